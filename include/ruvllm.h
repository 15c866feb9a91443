/* ruvllm.h - the only public header of libruvllm.
 *
 * Errors: every function that can fail returns rv_status (0 = RV_OK) and, where it takes one, fills
 * an optional rv_error with one sentence that names the cause (a tensor, a field, a file offset).
 * The library never exits, prints or reads the environment. */
#ifndef RUVLLM_H
#define RUVLLM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define RV_API __attribute__((visibility("default")))
#else
#define RV_API
#endif

/* name, value, what it means */
#define RV_STATUS_MAP(X)                                                                           \
    X(OK, 0, "ok")                                                                                 \
    X(E_STORAGE, 1, "storage error")                                                               \
    X(E_SESSION, 2, "session error")                                                               \
    X(E_KV_CACHE, 3, "KV cache error")                                                             \
    X(E_PAGED_ATTENTION, 4, "page pool exhausted")                                                 \
    X(E_ADAPTER, 5, "adapter error")                                                               \
    X(E_SONA, 6, "learning error")                                                                 \
    X(E_CONFIG, 7, "bad option or configuration")                                                  \
    X(E_NOMEM, 8, "out of memory")                                                                 \
    X(E_INVALID, 9, "invalid operation")                                                           \
    X(E_NOT_FOUND, 10, "not found")                                                                \
    X(E_BACKEND, 11, "backend error")                                                              \
    X(E_MODEL, 12, "bad model file")                                                               \
    X(E_TOKENIZATION, 13, "tokenizer or chat template error")                                      \
    X(E_GENERATION, 14, "generation error")                                                        \
    X(E_IO, 15, "input or output error")

typedef enum rv_status {
#define X(name, value, text) RV_##name = value,
    RV_STATUS_MAP(X)
#undef X
} rv_status;

typedef struct rv_error {
    rv_status code;
    char text[512]; /* UTF-8, always terminated */
} rv_error;

RV_API const char *rv_version(void);
RV_API const char *rv_status_name(rv_status status); /* "RV_E_MODEL" */
RV_API const char *rv_status_text(rv_status status); /* "bad model file" */
RV_API void rv_free(void *p); /* for texts and lists this library hands out; accepts NULL */

/* ---- runtime: threads, instruction set, log sink
 * ------------------------------------------------------------------- Owns the worker threads.
 * Everything made from a runtime is used by one thread at a time; two runtimes are independent. It
 * must outlive its models. Option structs are filled by their _init function first, then changed.
 */

typedef struct rv_runtime rv_runtime;

typedef enum rv_log_level { RV_LOG_ERROR, RV_LOG_WARN, RV_LOG_INFO, RV_LOG_DEBUG } rv_log_level;

typedef struct rv_runtime_options {
    int n_threads; /* 0: one for each CPU this process may use */
    int exact; /* f32 activations and an f32 KV cache: the mode compared with float references */
    const char
        *isa; /* highest instruction set to use ("ref", "avx2", "neon"); NULL: the best there is */
    void (*log)(void *ctx, rv_log_level level, const char *line); /* NULL: silent */
    void *log_ctx;
    rv_log_level log_level;
} rv_runtime_options;

RV_API void rv_runtime_options_init(rv_runtime_options *o);
RV_API rv_status rv_runtime_new(rv_runtime **out, const rv_runtime_options *o, rv_error *err);
RV_API void rv_runtime_free(rv_runtime *rt); /* accepts NULL */
RV_API const char *rv_runtime_isa(const rv_runtime *rt);
RV_API const char *const *rv_isa_list(
    void); /* what this machine can run, slowest first, NULL-terminated */

/* ---- model: weights, tokenizer, chat template; immutable after open
 * ------------------------------------------------ */

typedef struct rv_model rv_model;

/* path: a .gguf file (the first of a split one), a model directory (config.json, *.safetensors,
 * tokenizer.json), or, with RV_OPEN_VOCABULARY, also a directory with tokenizer.json alone. A model
 * without a tokenizer opens: it works on ids. */
enum { RV_OPEN_VOCABULARY = 1 /* tokenizer and template only, no weights */ };
RV_API rv_status rv_model_open(rv_model **out, rv_runtime *rt, const char *path, unsigned flags,
                               rv_error *err);
/* A GGUF file in memory, which must outlive the model. name is used in messages. */
RV_API rv_status rv_model_open_memory(rv_model **out, rv_runtime *rt, const void *data, size_t len,
                                      const char *name, unsigned flags, rv_error *err);
/* A GGUF file behind a callback: read(ctx, offset, dst, n) copies n bytes and returns 0. Everything
 * is read during the call. */
typedef int (*rv_read_fn)(void *ctx, uint64_t offset, void *dst, size_t n);
RV_API rv_status rv_model_open_reader(rv_model **out, rv_runtime *rt, rv_read_fn read, void *ctx,
                                      uint64_t len, const char *name, unsigned flags,
                                      rv_error *err);
RV_API void rv_model_close(rv_model *m); /* accepts NULL; its sessions and adapters must be gone */

typedef struct rv_model_info {
    char architecture[32], name[128], type[32]; /* type: of the most weights, "q4_1" */
    uint64_t n_params, file_bytes;
    int n_layers, n_embd, n_ff, n_heads, n_kv_heads, head_size, n_vocab, n_context;
    int has_tokenizer, has_template;
    char tokenizer[64],
        chat_template[32]; /* kind of tokenizer; "stored" or the family's fallback */
} rv_model_info;

RV_API rv_status rv_model_get_info(const rv_model *m, rv_model_info *out);
/* All of it as one JSON object, with_tensors: the tensor list too. *json: rv_free. */
RV_API rv_status rv_model_describe(const rv_model *m, int with_tensors, char **json, rv_error *err);

/* ---- text
 * -------------------------------------------------------------------------------------------------------
 */

enum {
    RV_TOKENIZE_PLAIN = 1, /* special-token text is ordinary text */
    RV_TOKENIZE_BOS = 2,   /* the beginning-of-text token first, where the model wants one */
};
/* *ids: n of them, rv_free. */
RV_API rv_status rv_tokenize(const rv_model *m, const char *text, size_t len, unsigned flags,
                             int32_t **ids, size_t *n, rv_error *err);
/* *text: terminated UTF-8, rv_free. skip_special: leave special tokens out. */
RV_API rv_status rv_detokenize(const rv_model *m, const int32_t *ids, size_t n, int skip_special,
                               char **text, size_t *len, rv_error *err);

typedef struct rv_time {
    int year, month, day, hour, minute, second;
} rv_time;

/* Renders a conversation, a JSON object {"messages": [...], "tools": [...] | null,
 * "add_generation_prompt": bool, any other variable}, by the model's chat template. Text parts of
 * list contents are joined where the template takes no lists. now: for templates that print the
 * date. */
RV_API rv_status rv_render_chat(const rv_model *m, const char *conversation,
                                size_t conversation_len, const rv_time *now, char **text,
                                size_t *len, rv_error *err);
/* The same by a template of the caller's, with exactly the variables given: nothing is added but
 * tools and documents as none. */
RV_API rv_status rv_render_template(const char *source, size_t source_len, const char *conversation,
                                    size_t conversation_len, const rv_time *now, char **text,
                                    size_t *len, rv_error *err);

/* ---- adapters
 * ---------------------------------------------------------------------------------------------------
 */

typedef struct rv_adapter rv_adapter;

/* A PEFT directory or a GGUF adapter file. */
RV_API rv_status rv_adapter_load(rv_adapter **out, const rv_model *m, const char *path,
                                 rv_error *err);
RV_API void rv_adapter_free(rv_adapter *a); /* accepts NULL */

typedef struct rv_adapter_use {
    const rv_adapter *adapter;
    float scale;
} rv_adapter_use;

/* ---- sessions: generating
 * ----------------------------------------------------------------------------------------- */

typedef struct rv_session rv_session;

typedef enum rv_kv_type { RV_KV_F32, RV_KV_F16 } rv_kv_type;

typedef struct rv_session_options {
    int n_context; /* most tokens of prompt and answer together; 0: 4096 or what the model was made
                      for, whichever is less */
    rv_kv_type kv_type;             /* F16; F32 in exact runtimes */
    const rv_adapter_use *adapters; /* copied; on every token of the session */
    size_t n_adapters;
} rv_session_options;

RV_API void rv_session_options_init(rv_session_options *o, const rv_model *m);
RV_API rv_status rv_session_new(rv_session **out, const rv_model *m, const rv_session_options *o,
                                rv_error *err);
RV_API void rv_session_free(rv_session *s); /* accepts NULL */
RV_API int rv_session_context(const rv_session *s);

typedef struct rv_sampling {
    float temperature;        /* 0: greedy */
    float top_p, min_p;       /* 1 and 0: off */
    int top_k;                /* 0: off */
    float repetition_penalty; /* 1: off; over the last repetition_window tokens, the prompt's
                                 included */
    int repetition_window;
    float frequency_penalty, presence_penalty; /* 0: off; over the generated tokens */
    uint64_t seed;
} rv_sampling;

RV_API void rv_sampling_init(
    rv_sampling *s); /* temperature 0.7, top-p 0.9, repetition penalty 1.1, seed 0 */
RV_API void rv_sampling_init_greedy(rv_sampling *s); /* the argmax of the raw logits */

typedef enum rv_finish {
    RV_FINISH_EOS,
    RV_FINISH_STOP,
    RV_FINISH_LENGTH,
    RV_FINISH_CANCELLED,
    RV_FINISH_ERROR
} rv_finish;
RV_API const char *rv_finish_name(rv_finish f); /* "eos", "stop", "length", "cancelled", "error" */

typedef struct rv_generate_options {
    rv_sampling sampling;
    int max_tokens;          /* 256 */
    const char *const *stop; /* strings that end the answer and are not part of it */
    size_t n_stop;
    int ignore_eos;
    /* Called with every token (an end token apart) and the text that became certain with it
     * (perhaps none); anything but 0 cancels. */
    int (*on_token)(void *ctx, int32_t id, const char *text, size_t len);
    void *ctx;
} rv_generate_options;

RV_API void rv_generate_options_init(rv_generate_options *o);

typedef struct rv_generated {
    int32_t *ids; /* an end token that ended the answer is the last one */
    size_t n_ids;
    char *text; /* terminated UTF-8, "" without a tokenizer */
    size_t text_len;
    rv_finish finish;
    int n_prompt, n_reused; /* prompt tokens, and how many of them were still in the cache */
    double prompt_seconds, seconds;
} rv_generated;

/* Generates after the whole prompt given; what agrees with the session's past is not computed
 * again. out is filled in any case (on failure with what came before it) and freed by
 * rv_generated_free. */
RV_API rv_status rv_session_generate(rv_session *s, const int32_t *prompt, size_t n_prompt,
                                     const rv_generate_options *o, rv_generated *out,
                                     rv_error *err);
RV_API void rv_generated_free(rv_generated *g);

/* ---- looking inside
 * -----------------------------------------------------------------------------------------------
 */

/* Perplexity over windows of n_context tokens without overlap, the second half of each scored.
 * progress (may be NULL): anything but 0 cancels. */
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
                              rv_kv_type kv_type, const rv_adapter_use *adapters, size_t n_adapters,
                              const char *path, rv_error *err);

#ifdef __cplusplus
}
#endif
#endif
