/* ruvllm.h - the only public header of libruvllm, an LLM engine to embed.
 *
 * Objects
 *   rv_runtime      the machine: worker threads, instruction set, log sink, allocator
 *   rv_model        weights, tokenizer and chat template of one model; never changes after open
 *   rv_adapter      a LoRA for one model; never changes after load
 *   rv_adapter_set  adapters with their scales, in order: what a row of a step names
 *   rv_engine       KV pages and scratch, shared by many sessions: what computes a step
 *   rv_session      one timeline of tokens in an engine, and the answer being made on it
 *   rv_sampler      from logits to a token, with its own random state
 *   rv_learner      what one user taught a model: stands beside sessions, changes their next
 *                   answers
 *   rv_error        a status and one sentence that names the cause (a tensor, a field, an offset)
 *
 * Failing: what can fail returns rv_status (RV_OK is 0) and fills the optional rv_error. On failure
 * a leading out pointer is NULL, nothing is left behind, and the arguments are as they were, unless
 * the function says otherwise. NULL where an object is needed is RV_E_INVALID. The library never
 * exits, prints or reads the environment. A model file that is cut short while it is in use is
 * RV_E_IO: for that the library handles SIGBUS in files that it has mapped, and hands all other
 * faults to the handler that was there before the file was opened.
 *
 * Owning: what _new, _open or _load gave is given back by _free or _close, which take the address
 * of the caller's variable and set it to NULL, so that a later use is RV_E_INVALID; they accept
 * NULL. Objects may be freed in any order, also inside a callback of their own: each lives until
 * the last object made from it is gone. Texts and lists that the library hands out are freed by
 * rv_free. Arguments are borrowed for the call unless the function says otherwise.
 *
 * Threads: a runtime computes for one thread at a time. A second thread (or a callback) that asks
 * for a step of any of its engines meanwhile, or for a new engine or session, gets RV_E_SESSION and
 * nothing happened. Reading a model (info, text, templates), rv_session_cancel and freeing may be
 * done from any thread meanwhile; a session whose answer is under way ends it, cancelled. (That no
 * other thread is about to begin a call with what is freed is for the caller to see to.) Other
 * calls on one object come from one thread at a time. Runtimes are independent of each other.
 * Callbacks run on the calling thread, under no lock.
 *
 * Structs of options begin with their size and are filled with defaults by their _init function,
 * which takes sizeof the caller's struct: fields are only ever added at the end, so a program built
 * with an older header keeps working. Other structs are fixed within one soname. */
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
RV_API void rv_free(void *p); /* texts and lists the library handed out; accepts NULL */

/* ---- runtime ---- */

typedef struct rv_runtime rv_runtime;

typedef enum rv_log_level { RV_LOG_ERROR, RV_LOG_WARN, RV_LOG_INFO, RV_LOG_DEBUG } rv_log_level;

/* Where the heap of a runtime and of everything made from it comes from. What libc takes for itself
 * (threads, streams) and mapped files are not part of it. Called by any thread that uses the
 * runtime. With hooks, texts and lists are freed before the runtime's last object. */
typedef struct rv_allocator {
    void *(*alloc)(void *ctx, size_t size); /* aligned for any object; NULL: none left */
    void *(*resize)(void *ctx, void *p, size_t size);
    void (*release)(void *ctx, void *p);
    void *ctx;
} rv_allocator;

typedef struct rv_runtime_options {
    size_t size;
    int n_threads;   /* 0: one for each CPU this process may use */
    int exact;       /* f32 activations and an f32 KV cache: comparable with float references */
    const char *isa; /* highest instruction set to use, one of rv_isa_list; NULL: the best */
    void (*log)(void *ctx, rv_log_level level, const char *line); /* NULL: silent; any thread */
    void *log_ctx;
    rv_log_level log_level;
    const rv_allocator *allocator; /* copied; NULL: malloc and free */
    int no_pack; /* run from the file's own layout: opens faster, shares the pages of mapped files
                    with other processes, computes slower; the same bits */
} rv_runtime_options;

RV_API void rv_runtime_options_init(rv_runtime_options *o, size_t size);
RV_API rv_status rv_runtime_new(rv_runtime **out, const rv_runtime_options *o, rv_error *err);
RV_API void rv_runtime_free(rv_runtime **rt);
RV_API const char *rv_runtime_isa(const rv_runtime *rt); /* "" for NULL */
/* What this machine can run, slowest first, NULL-terminated. */
RV_API const char *const *rv_isa_list(void);
/* The machine as one JSON object: cpu, cores, isa, caches, memory; with measure (a few seconds)
 * also read bandwidth, integer and float peaks, and the rate of each weight type. */
RV_API rv_status rv_runtime_describe(rv_runtime *rt, int measure, char **json, rv_error *err);
/* Where the time goes. json NULL: counting begins (anew). Otherwise it ends, and *json is a list of
 * objects: op, calls, seconds, bytes (of weights and KV cache that had to be read) and
 * operations. */
RV_API rv_status rv_runtime_profile(rv_runtime *rt, char **json, rv_error *err);

/* ---- model ---- */

typedef struct rv_model rv_model;

enum { RV_OPEN_VOCABULARY = 1 /* tokenizer and template only, no weights */ };
/* path: a .gguf file (the first of a split one), a model directory (config.json, *.safetensors,
 * tokenizer.json), or, with RV_OPEN_VOCABULARY, also a directory with tokenizer.json alone. A model
 * without a tokenizer opens: it works on ids. */
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
RV_API void rv_model_close(rv_model **m);

typedef struct rv_model_info {
    char architecture[32], name[128], type[32]; /* type: of the most weights, "q4_1" */
    uint64_t n_params, file_bytes;
    int n_layers, n_embd, n_ff, n_heads, n_kv_heads, head_size, n_vocab, n_context;
    int has_tokenizer, has_template;
    int is_encoder;                        /* makes embeddings only: no sessions */
    char tokenizer[64], chat_template[32]; /* kinds; template: "stored" or the family's fallback */
    int32_t bos;                           /* -1: none */
    const int32_t *eos; /* the ids that end an answer, n_eos of them, as long as the model lives */
    size_t n_eos;
} rv_model_info;

RV_API rv_status rv_model_get_info(const rv_model *m, rv_model_info *out);
/* The identity of the model, every byte of its weights, vocabulary, template and configuration: 64
 * hexadecimal digits and a 0 byte. The same bytes have it anywhere; learned state and adapters name
 * it. The first call reads the whole file; RV_E_IO if that is no longer all there. */
RV_API rv_status rv_model_digest(const rv_model *m, char out[65], rv_error *err);
/* All of it as one JSON object, with_tensors: the tensor list too. *json: rv_free. */
RV_API rv_status rv_model_describe(const rv_model *m, int with_tensors, char **json, rv_error *err);

/* ---- text ---- */

enum {
    RV_TOKENIZE_PLAIN = 1, /* special-token text is ordinary text */
    RV_TOKENIZE_BOS = 2,   /* the beginning-of-text token first, where the model wants one */
    RV_TOKENIZE_WRAP = 4,  /* all that the model's own rules put around a text (BERT: CLS, SEP) */
};
/* *ids: n of them, rv_free. */
RV_API rv_status rv_tokenize(const rv_model *m, const char *text, size_t len, unsigned flags,
                             int32_t **ids, size_t *n, rv_error *err);
/* *text: terminated UTF-8, rv_free; len may be NULL. skip_special: leave special tokens out. */
RV_API rv_status rv_detokenize(const rv_model *m, const int32_t *ids, size_t n, int skip_special,
                               char **text, size_t *len, rv_error *err);

typedef struct rv_time {
    int year, month, day, hour, minute, second;
} rv_time;

/* Renders a conversation, a JSON object {"messages": [...], "tools": [...] | null,
 * "add_generation_prompt": bool, any other variable}, by the model's chat template. Text parts of
 * list contents are joined where the template takes no lists. now: for templates that print the
 * date; NULL: 1970. */
RV_API rv_status rv_render_chat(const rv_model *m, const char *conversation,
                                size_t conversation_len, const rv_time *now, char **text,
                                size_t *len, rv_error *err);
/* The same by a template of the caller's, with exactly the variables given: nothing is added but
 * tools and documents as none. */
RV_API rv_status rv_render_template(const rv_runtime *rt, const char *source, size_t source_len,
                                    const char *conversation, size_t conversation_len,
                                    const rv_time *now, char **text, size_t *len, rv_error *err);

/* ---- adapters ---- */

typedef struct rv_adapter rv_adapter;
typedef struct rv_adapter_set rv_adapter_set;

/* A PEFT directory or a GGUF adapter file. */
RV_API rv_status rv_adapter_load(rv_adapter **out, const rv_model *m, const char *path,
                                 rv_error *err);
RV_API void rv_adapter_free(rv_adapter **a);

typedef struct rv_adapter_use {
    const rv_adapter *adapter;
    float scale;
} rv_adapter_use;

/* All of them adapters of m, at most 64; n 0: the set that changes nothing. */
RV_API rv_status rv_adapter_set_new(rv_adapter_set **out, const rv_model *m,
                                    const rv_adapter_use *uses, size_t n, rv_error *err);
RV_API void rv_adapter_set_free(rv_adapter_set **set);

/* ---- engine and session ---- */

typedef struct rv_engine rv_engine;
typedef struct rv_session rv_session;

/* Q8: int8 with one scale for each position and head; half the memory of F16, and faster */
typedef enum rv_kv_type { RV_KV_F32, RV_KV_F16, RV_KV_DEFAULT, RV_KV_Q8 } rv_kv_type;

typedef struct rv_engine_options {
    size_t size;
    int n_tokens;       /* KV room of all sessions together; 0: 4096 or the model's context */
    int max_rows;       /* of one step; 0: 512 */
    int max_logits;     /* rows of one step that want logits; 0: 16 */
    rv_kv_type kv_type; /* default: F16; F32 in exact runtimes */
} rv_engine_options;

RV_API void rv_engine_options_init(rv_engine_options *o, size_t size);
RV_API rv_status rv_engine_new(rv_engine **out, const rv_model *m, const rv_engine_options *o,
                               rv_error *err);
RV_API void rv_engine_free(rv_engine **e);

typedef struct rv_session_options {
    size_t size;
    int n_context; /* most tokens of prompt and answer together; 0: 4096, what the model was made
                      for, or the engine's room, whichever is least */
    rv_kv_type kv_type;             /* of an engine of its own */
    const rv_adapter_set *adapters; /* for every token unless a row names another set; NULL: none */
    rv_engine *engine;              /* NULL: an engine of its own */
} rv_session_options;

RV_API void rv_session_options_init(rv_session_options *o, size_t size);
RV_API rv_status rv_session_new(rv_session **out, const rv_model *m, const rv_session_options *o,
                                rv_error *err);
/* A second session with the same past, in the same engine; shares its KV pages. */
RV_API rv_status rv_session_fork(rv_session **out, rv_session *from, rv_error *err);
RV_API void rv_session_free(rv_session **s);
RV_API int rv_session_context(const rv_session *s); /* 0 for NULL */
/* The tokens whose keys and values are held, valid until the session changes. */
RV_API size_t rv_session_tokens(const rv_session *s, const int32_t **ids);
/* Makes the session's past exactly ids: what agrees is kept (*n_reused of them), the rest is
 * dropped, what is new is computed. logits (may be NULL): those after the last token, n_vocab
 * floats that may be changed, valid until the engine's next step. On failure the past is the part
 * that was computed. (Models with short and long position factors take those of the session's whole
 * context here and in steps, and those of prompt and max_tokens together in answers.) */
RV_API rv_status rv_session_sync(rv_session *s, const int32_t *ids, size_t n, size_t *n_reused,
                                 float **logits, rv_error *err);
/* Ends a running generate, sync, step or answer within moments, in the middle of a step too: what
 * other sessions compute in it is not affected. From any thread or signal handler. */
RV_API void rv_session_cancel(rv_session *s);

/* One row of a step: a token that goes to the end of a session. */
typedef struct rv_row {
    rv_session *session;
    int32_t token;
    int want_logits;
    const rv_adapter_set *adapters; /* for this row alone; NULL: the session's */
} rv_row;
/* One forward pass over rows of any sessions of the engine that have no answer under way. What a
 * row gets does not depend, bit for bit, on the rows beside it. On failure no session changed. */
RV_API rv_status rv_engine_step(rv_engine *e, const rv_row *rows, size_t n_rows, rv_error *err);
/* Logits of the i-th row of the last step that wanted them, n_vocab floats that may be changed,
 * valid until the next step; NULL if there is none. */
RV_API float *rv_engine_logits(rv_engine *e, size_t i);

/* ---- sampling ---- */

typedef struct rv_logit_bias {
    int32_t id;
    float bias; /* added to the logit; -INFINITY: never, +INFINITY: always */
} rv_logit_bias;

typedef struct rv_sampling {
    size_t size;
    uint64_t seed;
    float temperature;        /* 0: greedy */
    float top_p, min_p;       /* 1 and 0: off */
    int top_k;                /* 0: off */
    float repetition_penalty; /* 1: off; over the last repetition_window tokens with the prompt's */
    int repetition_window;
    float frequency_penalty, presence_penalty; /* 0: off; over the generated tokens */
    float typical_p;                           /* 1: off */
    float top_n_sigma;                         /* 0: off */
    float xtc_probability, xtc_threshold;      /* probability 0: off; threshold 0.1 */
    float dry_multiplier, dry_base;            /* multiplier 0: off; base 1.75 */
    int dry_allowed_length, dry_window;        /* 2; window 0: all tokens so far */
    const char *const *dry_breakers;           /* NULL: newline, colon, double quote, asterisk */
    size_t n_dry_breakers;
    float mirostat_tau, mirostat_eta; /* tau 0: off (5 is usual); eta 0.1 */
    const rv_logit_bias *logit_bias;
    size_t n_logit_bias;
    /* Stages by name, comma-separated; a stage that is not named does not run. NULL:
     * "penalties,dry,top_n_sigma,temperature,top_k,typical_p,top_p,min_p,xtc,mirostat".
     * Biases and masks come before all of them, the draw after. */
    const char *order;
} rv_sampling;

/* temperature 0.7, top-p 0.9, repetition penalty 1.1 over 64 tokens, seed 0 */
RV_API void rv_sampling_init(rv_sampling *s, size_t size);
RV_API void rv_sampling_init_greedy(rv_sampling *s, size_t size); /* the argmax of the raw logits */

typedef struct rv_sampler rv_sampler;
RV_API rv_status rv_sampler_new(rv_sampler **out, const rv_model *m, const rv_sampling *o,
                                rv_error *err);
RV_API void rv_sampler_free(rv_sampler **s);
/* The next token after past, n_prompt of whose n_past tokens are the prompt's. logits are changed.
 */
RV_API rv_status rv_sampler_pick(rv_sampler *s, float *logits, const int32_t *past, size_t n_past,
                                 size_t n_prompt, int32_t *id, rv_error *err);

/* ---- answers ---- */

#define RV_FINISH_MAP(X)                                                                           \
    X(EOS, "eos") X(STOP, "stop") X(LENGTH, "length") X(CANCELLED, "cancelled") X(ERROR, "error")
typedef enum rv_finish {
#define X(name, text) RV_FINISH_##name,
    RV_FINISH_MAP(X)
#undef X
} rv_finish;
RV_API const char *rv_finish_name(rv_finish f); /* "eos", ... */

typedef struct rv_token_prob {
    int32_t id;
    float
        logprob; /* natural logarithm, of the model's own distribution: before bias and sampling */
} rv_token_prob;

typedef enum rv_event_kind { RV_EVENT_TOKEN, RV_EVENT_DONE, RV_EVENT_PROMPT } rv_event_kind;

typedef struct rv_event {
    rv_event_kind kind;
    rv_session *session;
    /* token: every one but an end token, with the text that became certain with it (perhaps none).
     * id -1: text that was held back and is certain at the end. */
    int32_t id;
    int is_special;
    const char *text; /* terminated, valid during the call */
    size_t text_len;
    const rv_token_prob *chosen, *top; /* NULL unless logprobs were asked for; n_top best */
    size_t n_top;
    /* done: the last event of an answer */
    rv_finish finish;
    const rv_error *error; /* NULL unless finish is RV_FINISH_ERROR */
    int n_prompt, n_reused, n_generated;
    double prompt_seconds, seconds;
    /* prompt: so many of the n_prompt tokens are computed (a long step counts by its layers); the
     * last one, before the first token, says all of them */
    int n_done;
} rv_event;

typedef struct rv_generate_options {
    size_t size;
    const rv_sampling *sampling; /* NULL: the defaults */
    int max_tokens;              /* 256 */
    int min_tokens;              /* no end token before so many; 0 */
    const char *const *stop;     /* strings that end the answer and are not part of it */
    size_t n_stop;
    int ignore_eos;
    int top_logprobs; /* -1: no logprobs; 0: of the chosen tokens; up to 20: and of so many best */
    /* What happens, as it happens; anything but 0 cancels. */
    int (*on_event)(void *ctx, const rv_event *event);
    /* Forbids tokens by setting their logits to -INFINITY; ids: the n_ids generated so far.
     * Anything but 0 cancels. */
    int (*mask)(void *ctx, const int32_t *ids, size_t n_ids, float *logits, size_t n_vocab);
    void *ctx; /* of both */
} rv_generate_options;

RV_API void rv_generate_options_init(rv_generate_options *o, size_t size);

typedef struct rv_generated {
    int32_t *ids; /* an end token that ended the answer is the last one */
    size_t n_ids;
    char *text; /* terminated UTF-8, "" without a tokenizer */
    size_t text_len;
    rv_token_prob *chosen; /* one for each id, or NULL */
    rv_token_prob *top;    /* n_top for each id, best first, or NULL */
    size_t n_top;
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
RV_API void rv_generated_free(rv_generated *g); /* accepts NULL and a zeroed one */

/* The same for many sessions at once: start an answer on each, advance the engine until none runs,
 * finish each. Options are copied (strings too), but not callbacks' contexts. One advance is one
 * step over a token of every answer under way and as much of the waiting prompts as fits; an answer
 * that fails ends by itself, with its error in its last event and in finish. */
RV_API rv_status rv_session_start(rv_session *s, const int32_t *prompt, size_t n_prompt,
                                  const rv_generate_options *o, rv_error *err);
RV_API rv_status rv_engine_advance(rv_engine *e, size_t *n_running, rv_error *err);
/* Takes the answer, cancelling it where it is still under way; the status is the answer's own. */
RV_API rv_status rv_session_finish(rv_session *s, rv_generated *out, rv_error *err);

/* ---- embeddings ---- */

typedef enum rv_pooling {
    RV_POOLING_DEFAULT, /* what the model declares; mean where it declares nothing */
    RV_POOLING_MEAN,
    RV_POOLING_LAST,
    RV_POOLING_FIRST
} rv_pooling;

typedef struct rv_embed_options {
    size_t size;
    rv_pooling pooling;
    int normalize; /* to length 1; on */
    int truncate;  /* on: texts longer than an encoder embeds are cut as its makers' code does (the
                      end tokens stay), with a warning to the log; off: an error */
} rv_embed_options;

RV_API void rv_embed_options_init(rv_embed_options *o, size_t size);
/* The pooled final hidden states of ids, n_embd floats. Ids of a text come from rv_tokenize with
 * RV_TOKENIZE_WRAP. No session changes; the engine must have room for n tokens (an encoder model:
 * n rows). */
RV_API rv_status rv_engine_embed(rv_engine *e, const int32_t *ids, size_t n,
                                 const rv_embed_options *o, float *out, rv_error *err);

/* ---- scoring ---- */

/* ln p of each of ids[1..n) after those before it, by the model's own distribution: n - 1 floats.
 * No session changes; the engine must have room for n tokens. adapters NULL: none. */
RV_API rv_status rv_engine_score(rv_engine *e, const int32_t *ids, size_t n,
                                 const rv_adapter_set *adapters, float *log_p, rv_error *err);

/* ---- learning ----
 *
 * A learner holds what one user taught one model. Before an answer, rv_learner_begin looks at the
 * conversation and decides what takes part in it; after the answer, feedback changes the next one:
 *   a correction     is spoken from then on wherever the same thing is asked (a slot), and moves
 *                    into the weights later: groups of corrections become LoRA adapters
 *                    (rv_learner_consolidate)
 *   a score, a thumb change a small adapter at once, by the gradient captured while generating
 * A request that has to do with nothing that was taught gets, bit for bit, the answer of the model
 * alone. Every event is written to the store, in a chain of hashes, before anything is learned from
 * it.
 *
 * Threads: as a session of its model's runtime. The background thread is the learner's own; it
 * computes on threads of the lowest priority and rests while the runtime computes. No call fails
 * because of it: it takes the runtime for moments only, and a call that meets it there waits for
 * it. The store is used by one thread at a time, by that one too. */

typedef struct rv_learner rv_learner;

typedef struct rv_bytes {
    const void *data; /* may be NULL when len is 0 */
    size_t len;
} rv_bytes;

/* Where a learner keeps its log and its patterns, handed in by the program. A stream is a growing
 * list of records, numbered 1, 2, 3 ... without gaps; a table maps keys to records, in the byte
 * order of its keys. Names have up to 64 of a-z 0-9 _ . -, keys 1 to 256 bytes, records up to 1
 * MiB. append, and a transaction that began durable, are on the disk when the call (commit)
 * returns; anything else survives a power failure from the next durable call on; nothing is
 * reordered. begin and commit or rollback come in pairs and do not nest. All of them return RV_OK
 * or fill err. A callback's bytes are valid during the call, which does not use the store; it
 * returns something else than 0 to stop. One thread at a time. */
typedef struct rv_store {
    void *ctx;
    rv_status (*append)(void *ctx, const char *stream, rv_bytes record, uint64_t *seq,
                        rv_error *err);
    rv_status (*put)(void *ctx, const char *table, rv_bytes key, rv_bytes record, rv_error *err);
    /* calls each at most once */
    rv_status (*get)(void *ctx, const char *table, rv_bytes key,
                     int (*each)(void *each_ctx, rv_bytes key, rv_bytes record), void *each_ctx,
                     rv_error *err);
    rv_status (*remove)(void *ctx, const char *table, rv_bytes key, rv_error *err);
    rv_status (*scan)(void *ctx, const char *table, rv_bytes from,
                      int (*each)(void *each_ctx, rv_bytes key, rv_bytes record), void *each_ctx,
                      rv_error *err);
    rv_status (*read)(void *ctx, const char *stream, uint64_t from,
                      int (*each)(void *each_ctx, uint64_t seq, rv_bytes record), void *each_ctx,
                      rv_error *err);
    rv_status (*begin)(void *ctx, int durable, rv_error *err);
    rv_status (*commit)(void *ctx, rv_error *err);
    void (*rollback)(void *ctx);
} rv_store;

/* How a group of corrections becomes an adapter. */
typedef enum rv_recipe {
    RV_RECIPE_GATED, /* R7: trained for generality, active only where a taught subject is named */
    RV_RECIPE_FENCED /* R1: fenced by training, fit for use without a gate: export, merging */
} rv_recipe;

/* Where adapters made of corrections take part. */
typedef enum rv_gate {
    RV_GATE_BY_RECIPE, /* a group's own of RV_RECIPE_FENCED in every answer, shared and others
                          where a taught subject is named */
    RV_GATE_ON,        /* all of them where a taught subject is named */
    RV_GATE_OFF        /* all of them in every answer */
} rv_gate;

typedef enum rv_consolidation {
    RV_MERGE_AVERAGE,
    RV_MERGE_QUALITY_WEIGHTED,
    RV_MERGE_EWC
} rv_consolidation;

typedef struct rv_learner_options {
    size_t size;
    const rv_store
        *store; /* NULL: in memory, gone with the learner. Copied; must outlive the learner */
    /* for adapters, snapshots and what is made once a model; NULL: in memory. Of several processes
     * the first that learns has it until its learner is freed: to teach another is RV_E_STORAGE */
    const char *dir;
    const char *user; /* "default" */
    uint64_t seed;
    rv_recipe recipe;
    int no_slots; /* corrections are not spoken from memory: only the weights answer */
    rv_gate gate;
    int strict_gate; /* a slot speaks only if no common relation is nearer at all (tau 0, else
                        0.1) */
    int shared;      /* all groups train one adapter, with rehearsal and EWC, instead of one each */
    int group_size;  /* corrections of a group; 20 */
    int rank;        /* of an adapter; 8 */
    float alpha;     /* 16 */
    int n_steps;     /* 0: the recipe's own for the group's size */
    float learning_rate; /* 2e-3 */
    float ewc_lambda;    /* 0.01; 0: off. Of shared adapters */
    float fisher_decay;  /* 0.95 */
    float rehearsal;     /* share of old corrections in a shared adapter's batches; 0.5 */
    float kl_weight;     /* beta; negative: the recipe's own */
    int random_gradient; /* control: every gradient is replaced by a random one of its norm */
    int micro_rank;      /* of the instant adapter, 1 to 4; 4 */
    float micro_kl_step; /* of one score; 0.03 */
    int no_rollback;     /* the instant adapter is not rolled back when its probe says it drifted */
    int background_min_samples; /* corrections that wait before the background thread begins; 1 */
    int n_threads;              /* of training; 0: those of the runtime */
    int deep_min_pairs; /* preferences that wait before the background thread runs deep by itself;
                           32; 0: never */
    int deep_idle_seconds; /* and for so long no answer was asked for; 60 */
} rv_learner_options;

RV_API void rv_learner_options_init(rv_learner_options *o, size_t size);
RV_API rv_status rv_learner_new(rv_learner **out, const rv_model *m, const rv_learner_options *o,
                                rv_error *err);
RV_API void rv_learner_free(rv_learner **l);
/* This object forgets everything that was taught (not what was made once for the model). The store
 * keeps its log: opening it again brings all of it back. */
RV_API rv_status rv_learner_reset(rv_learner *l, rv_error *err);

/* done of total; loss: of training, NaN elsewhere. Anything but 0 cancels (what was done is
 * kept). */
typedef int (*rv_learn_progress_fn)(void *ctx, const char *stage, int done, int total, double loss);

/* What is made once for a model and user: texts of its own, prototypes of relations. Some tens of
 * seconds for a small model; taken from the store where it is there. Consolidation and the
 * background thread do it by themselves. Until then corrections are recognised by their subject
 * alone, and the status says "calibrated": false. */
RV_API rv_status rv_learner_calibrate(rv_learner *l, rv_learn_progress_fn progress, void *ctx,
                                      rv_error *err);

typedef enum rv_learn_loop { RV_LOOP_INSTANT, RV_LOOP_BACKGROUND, RV_LOOP_DEEP } rv_learn_loop;

/* What a call changed. */
typedef struct rv_adaptation {
    int applied; /* 0: nothing changed, notes says why */
    rv_learn_loop loop;
    double latency_us;    /* of the change itself: thread time */
    double forward_us;    /* of forward passes that it needed */
    double quality_delta; /* measured; NaN: not measured */
    int samples_used;
    uint64_t event; /* its number in the log; 0: none */
    int generation; /* published by it; 0: none */
    char notes[256];
} rv_adaptation;

/* What takes part in the next answer of a session. */
typedef struct rv_learn_plan {
    int gate_open; /* a taught subject is named */
    int slot;      /* a correction will be spoken */
    int n_adapters;
    char subject[128], relation[128],
        answer[256]; /* of the slot, or of the subject that opened the gate */
} rv_learn_plan;

/* Decides what takes part in the session's next answer, which is to continue `conversation` (as for
 * rv_render_chat; its user turns are what counts), and captures it for feedback. out may be
 * NULL. */
RV_API rv_status rv_learner_begin(rv_learner *l, rv_session *s, const char *conversation,
                                  size_t conversation_len, rv_learn_plan *out, rv_error *err);

/* The right answer to a question. s NULL: to `question`; otherwise to what was last asked on s
 * (question NULL), whose answer was wrong. From the next rv_learner_begin on it takes part. */
RV_API rv_status rv_learner_correct(rv_learner *l, rv_session *s, const char *question,
                                    const char *answer, rv_adaptation *out, rv_error *err);
/* How good the last answer on s was, 0 to 1. */
RV_API rv_status rv_learner_score(rv_learner *l, rv_session *s, double score, rv_adaptation *out,
                                  rv_error *err);
/* A thumb for the last answer on s: up is a score of 1; down makes this answer to this request less
 * likely, and touches no other. A correction that was spoken is silent from then on where the same
 * is asked. */
RV_API rv_status rv_learner_thumb(rv_learner *l, rv_session *s, int up, rv_adaptation *out,
                                  rv_error *err);
/* A pair for deep learning: of two answers to a question the first is preferred. */
RV_API rv_status rv_learner_prefer(rv_learner *l, const char *question, const char *chosen,
                                   const char *rejected, rv_adaptation *out, rv_error *err);
/* Takes the last event back, bit for bit. */
RV_API rv_status rv_learner_undo(rv_learner *l, rv_adaptation *out, rv_error *err);
/* Removes what was taught with this text in its question or answer. */
RV_API rv_status rv_learner_forget(rv_learner *l, const char *text, rv_adaptation *out,
                                   rv_error *err);

/* Trains what waits, now, in this thread. DEEP: with a validation split, more steps and early stop,
 * and preferences too. loss: of preferences. */
typedef enum rv_preference_loss { RV_LOSS_DPO, RV_LOSS_KTO } rv_preference_loss;
RV_API rv_status rv_learner_consolidate(rv_learner *l, rv_learn_loop loop, rv_preference_loss loss,
                                        rv_learn_progress_fn progress, void *ctx,
                                        rv_adaptation *out, rv_error *err);
/* The background thread: calibrates, then trains what waits (background_min_samples of it, in
 * groups) whenever the runtime rests, and publishes each group as a generation. With deep_min_pairs
 * preferences waiting and nobody asking for deep_idle_seconds it trains those too, as
 * rv_learner_consolidate with RV_LOOP_DEEP and DPO does. Corrections that come meanwhile wait for
 * the next round. If one of the group is undone, forgotten or replaced before it is published, what
 * was trained is thrown away and the rest of the group begins again: nothing that was taken back
 * gets into an adapter. A round that fails changes nothing; the status says why (background_error),
 * and it is tried again later. Calibrating, consolidating and resetting stop the thread for as long
 * as they take. RV_E_SONA where there are no threads. Twice is as good as once. */
RV_API rv_status rv_learner_start(rv_learner *l, rv_error *err);
/* Returns when it has ended; a group that was not published waits, and its training goes on where
 * it was last saved. Freeing the learner cancels it too but waits for a moment only: on a busy
 * machine the thread may run, and use the runtime's allocator, a little longer. */
RV_API void rv_learner_pause(rv_learner *l);

/* Status as one JSON object: counts, generations, what waits, what was taught, figures that were
 * measured. */
RV_API rv_status rv_learner_status(rv_learner *l, char **json, rv_error *err);
/* KL(base || adapter) per token on the probe texts, with every adapter of the learner active;
 * calibrates first where that was not done. */
RV_API rv_status rv_learner_probe(rv_learner *l, double *kl, rv_error *err);
/* All adapters of the learner as a set, as if every gate were open. */
RV_API rv_status rv_learner_adapters(rv_learner *l, rv_adapter_set **out, rv_error *err);
/* Makes an earlier generation the current one. */
RV_API rv_status rv_learner_rollback(rv_learner *l, int generation, rv_adaptation *out,
                                     rv_error *err);
/* path: a directory (PEFT) or a file ending in .gguf. generation 0: the newest. f16: 16-bit. */
RV_API rv_status rv_learner_export(rv_learner *l, int generation, const char *path, int f16,
                                   rv_error *err);
/* An adapter from elsewhere becomes a generation, active in every answer. */
RV_API rv_status rv_learner_import(rv_learner *l, const char *path, rv_adaptation *out,
                                   rv_error *err);
/* Two generations become one; RV_E_ADAPTER where more than 5 % of the energy would be lost. */
RV_API rv_status rv_learner_merge(rv_learner *l, int a, int b, rv_consolidation how,
                                  rv_adaptation *out, rv_error *err);
/* Walks the chain of the log: *n records; RV_E_STORAGE names the first broken one. */
RV_API rv_status rv_learner_verify_log(rv_learner *l, uint64_t *n, rv_error *err);

/* ---- looking inside ---- */

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
                              rv_kv_type kv_type, const rv_adapter_set *adapters, const char *path,
                              rv_error *err);

#ifdef __cplusplus
}
#endif
#endif
