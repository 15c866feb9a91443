/* ruvllm_experimental.h - looking inside, and settings of experiments. What is here may change or
 * go with any version: programs that are to keep working do without it. */
#ifndef RUVLLM_EXPERIMENTAL_H
#define RUVLLM_EXPERIMENTAL_H

#include "ruvllm_learn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where the time goes. json NULL: counting begins (anew). Otherwise it ends, and *json is a list of
 * objects: op, calls, seconds, bytes (of weights and KV cache that had to be read), operations. */
RV_API rv_status rv_runtime_profile(rv_runtime *rt, char **json, rv_error *err);

/* How a runtime on a GPU whose device is "auto" would share out a model that was opened with
 * weights, on any runtime; gpu: idle, with the memory free that it is to have. Measures for a
 * moment and writes an object: layers, fit (that there is memory for, with n_tokens of KV cache, as
 * rv_open_options.gpu_tokens), missing (bytes, for all), gpu_layers (the best number; all, if they
 * fit), decode_tps (tokens a second, with these), cpu_tps (the CPU alone), and the rates that this
 * follows from. */
RV_API rv_status rv_model_describe_placement(const rv_model *m, rv_runtime *gpu, int n_tokens,
                                             char **json, rv_error *err);

/* What computes, and why: an object with a member for each choice that was made, in the order of
 * src/api/explain.c, each {"is": ..., "why": ...}: the device, its layers, instructions, threads,
 * weights, activations, the model's kind; of s also kv_cache, context and adapters, of answers with
 * o (a NULL of it: the defaults) guessing. s may be NULL: what it chose is left out. Takes no time:
 * the reasons were kept when the choices were made. */
RV_API rv_status rv_model_explain(const rv_model *m, const rv_session *s,
                                  const rv_generate_options *o, char **json, rv_error *err);

/* Perplexity over windows of n_context tokens without overlap, of which the second half is scored.
 * progress (may be NULL) returns anything but 0 to cancel. */
typedef struct rv_perplexity {
    double value;
    int64_t n_scored;
    int n_windows;
} rv_perplexity;
RV_API rv_status rv_model_perplexity(const rv_model *m, const int32_t *ids, size_t n, int n_context,
                                     rv_kv_type kv_type,
                                     int (*progress)(void *ctx, int done, int total,
                                                     double running),
                                     void *ctx, rv_perplexity *out, rv_error *err);

/* Runs ids through the model and writes the named intermediates (comma-separated; NULL or "":
 * hidden states and logits) as f32 tensors, one row a position, into a safetensors file. Names:
 * hidden.I, logits, and per layer I attn_norm.I q.I k.I v.I q_rope.I k_rope.I attn_mix.I attn_out.I
 * ffn_norm.I ffn_gate.I ffn_up.I ffn_act.I ffn_out.I (attn_post_norm.I, ffn_post_norm.I where the
 * model has them); "*" takes all. */
RV_API rv_status rv_model_tap(const rv_model *m, const int32_t *ids, size_t n, const char *names,
                              rv_kv_type kv_type, const rv_adapter_set *adapters, const char *path,
                              rv_error *err);

/* Calls each for the events of the log from number `from` (1: the first) on, as JSON objects, until
 * it returns something else than 0; it must not use the learner. */
typedef int (*rv_log_fn)(void *ctx, uint64_t number, const char *json, size_t len);
RV_API rv_status rv_learner_read_log(rv_learner *l, uint64_t from, rv_log_fn each, void *ctx,
                                     rv_error *err);

/* Makes every generation of the log again, from nothing, in memory, and compares the adapters by
 * their digests. Takes as long as training them took. Imported and merged ones are passed over, and
 * so is what scores and thumbs change at once. */
typedef struct rv_replay {
    uint64_t n_events, n_generations; /* n_generations: that came out the same, bit for bit */
    uint64_t different;               /* the event that published the first that did not; 0: none */
} rv_replay;
RV_API rv_status rv_learner_replay(rv_learner *l, rv_learn_progress_fn progress, void *ctx,
                                   rv_replay *out, rv_error *err);

/* Settings for rv_learner_options.experiments: name, type, default, meaning. */
#define RV_LEARNER_EXPERIMENTS(X)                                                                  \
    X(recipe, int, 0, "0: trained for generality, behind the gate; 1: fenced by training")         \
    X(gate, int, 0, "0: as the recipe wants; 1: always; 2: never")                                 \
    X(no_slots, int, 0, "corrections are not spoken from memory: only the weights answer")         \
    X(reading, int, 0,                                                                             \
      "lessons that are only likely to be asked for: 0: are read by a model that was found to "    \
      "read; 1: by any; 2: by none")                                                               \
    X(shared, int, 0, "all groups train one adapter, with rehearsal and EWC")                      \
    X(sources, int, 7,                                                                             \
      "of texts to train on, beside what was taught: 1 forms of the question + 2 wordings of the " \
      "model's own + 4 the question with words left out")                                          \
    X(no_same_fence, int, 0,                                                                       \
      "an ablation: questions about a lesson's own subject are not among the texts that must not " \
      "change")                                                                                    \
    X(group_size, int, 20, "corrections of a group, 1..1000")                                      \
    X(rank, int, 8, "of an adapter, 1..256")                                                       \
    X(alpha, float, 16, "of an adapter")                                                           \
    X(n_steps, int, 0, "of training; 0: as the recipe wants")                                      \
    X(learning_rate, float, 2e-3, "above 0, at most 1")                                            \
    X(ewc_lambda, float, 0.01, "of shared adapters; 0: off")                                       \
    X(rehearsal, float, 0.5, "share of old corrections in a shared adapter's batches, below 1")    \
    X(kl_weight, float, -1, "negative: as the recipe wants")                                       \
    X(random_gradient, int, 0, "a control: replaces every gradient by a random one of its norm")   \
    X(no_rollback, int, 0, "the instant adapter is kept even when its probe says it drifted")      \
    X(background_min_samples, int, 1, "corrections that wait before training begins")              \
    X(deep_min_pairs, int, 32,                                                                     \
      "preferences that wait before a deep run begins by itself; 0: never")                        \
    X(deep_idle_seconds, int, 60, "and for so long no answer was asked for")

#ifdef __cplusplus
}
#endif
#endif
