/* ruvllm.h - run language models inside your program.
 *
 *   rv_runtime *rt;  rv_model *m;  rv_session *s;  rv_answer *a;  rv_error err;
 *   rv_message ask = {.role = "user", .content = "Why is the sky blue?"};
 *   rv_chat chat = {.size = sizeof chat, .messages = &ask, .n_messages = 1};
 *   if (!rv_runtime_new(&rt, NULL, &err) && !rv_model_open(&m, rt, "model.gguf", NULL, &err) &&
 *       !rv_session_new(&s, m, NULL, &err) && !rv_session_chat(s, &chat, NULL, &a, &err))
 *       puts(a->text);
 *
 * Objects
 *   rv_runtime      the machine: worker threads, instruction set, log, allocator
 *   rv_model        weights, tokenizer and chat template; never changes after it was opened
 *   rv_adapter      a LoRA for one model; never changes after it was loaded
 *   rv_adapter_set  adapters with their scales, in order
 *   rv_engine       KV cache and scratch memory that many sessions share
 *   rv_session      a timeline of tokens in an engine, and the answer being generated on it
 *   rv_sampler      picks a token from logits, for programs that run their own loop
 *   rv_grammar      what an answer's text may be: ruvllm_grammar.h
 *   rv_learner      learns from feedback: ruvllm_learn.h
 *
 * Errors. A function that can fail returns rv_status; RV_OK is 0. The optional rv_error receives
 * one sentence that names the cause: a field and its limits, a tensor, a file, an offset. On
 * failure a leading out pointer is NULL and nothing else has changed, unless the function says
 * otherwise. NULL where an object is needed is RV_E_INVALID. The library never exits, prints or
 * reads the environment. A model file that is cut short while it is in use is RV_E_IO: for that the
 * library handles SIGBUS in files that it has mapped, and passes all other faults to the handler
 * that was there before.
 *
 * Ownership. Free what _new, _open, _load and _fork gave with the _free or _close function of its
 * type, which takes the address of your variable, sets it to NULL, and accepts NULL. Free objects
 * in any order, even inside their own callbacks: each one lives until the last object made from it
 * is gone. Free everything else the library hands out (texts, lists, rv_answer) with rv_free; each
 * is a single block. The library copies what it keeps of your arguments, unless a function says
 * otherwise.
 *
 * Threads. A runtime computes for one thread at a time; rv_runtime_options.wait says whether a
 * second thread waits for its turn or gets RV_E_BUSY. Any thread may open models, read them (info,
 * text, templates), ask for memory figures, cancel and free at any time, and none of these waits.
 * All other calls on one session, sampler or learner must come from one thread at a time; different
 * sessions may be used by different threads, also when they share an engine. A callback runs on the
 * thread that called the library, with no lock held; it may not compute on the same runtime
 * (RV_E_BUSY). Runtimes are independent of each other.
 *
 * Structs. Set `size` to sizeof the struct in every struct that has it, and leave what you do not
 * care about 0: zero always means the default. Fields are only ever added at the end, so a program
 * keeps working with a newer library. Structs without `size` never change, except those that only
 * the library makes (rv_event, rv_answer, rv_model_info, rv_adaptation, rv_learn_plan ...), which
 * may grow at the end. Texts are UTF-8. */
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

/* The version of this header; rv_version() is the library's. */
#define RV_VERSION_MAJOR  0
#define RV_VERSION_MINOR  2
#define RV_VERSION_PATCH  0
#define RV_VERSION_NUMBER (RV_VERSION_MAJOR * 10000 + RV_VERSION_MINOR * 100 + RV_VERSION_PATCH)

/* name, value, meaning */
#define RV_STATUS_MAP(X)                                                                           \
    X(OK, 0, "ok")                                                                                 \
    X(E_INVALID, 1, "invalid argument")                                                            \
    X(E_CONFIG, 2, "bad option")                                                                   \
    X(E_NOMEM, 3, "out of memory")                                                                 \
    X(E_BUSY, 4, "the runtime is computing for another call")                                      \
    X(E_STATE, 5, "not possible in this state")                                                    \
    X(E_CANCELLED, 6, "cancelled")                                                                 \
    X(E_TOO_LONG, 7, "longer than the context")                                                    \
    X(E_CONTEXT_FULL, 8, "the session's context is full")                                          \
    X(E_NO_PAGES, 9, "the KV cache is full; free a session or try later")                          \
    X(E_NOT_FOUND, 10, "not found")                                                                \
    X(E_IO, 11, "input or output error")                                                           \
    X(E_MODEL, 12, "bad model file")                                                               \
    X(E_TOKENIZATION, 13, "tokenizer or chat template error")                                      \
    X(E_ADAPTER, 14, "bad adapter")                                                                \
    X(E_GENERATION, 15, "no token can be generated")                                               \
    X(E_LEARNING, 16, "learning error")                                                            \
    X(E_STORAGE, 17, "storage error")                                                              \
    X(E_UNSUPPORTED, 18, "not supported on this machine")

typedef enum rv_status {
#define X(name, value, text) RV_##name = value,
    RV_STATUS_MAP(X)
#undef X
} rv_status;

typedef struct rv_error {
    rv_status code;
    char text[512]; /* always terminated; a longer sentence ends in "..." */
} rv_error;

RV_API const char *rv_version(void);                 /* "0.2.0" */
RV_API const char *rv_status_name(rv_status status); /* "RV_E_MODEL" */
RV_API const char *rv_status_text(rv_status status); /* "bad model file" */
RV_API void rv_free(void *p);                        /* accepts NULL */

/* Progress of something long, done from 0 to 1. Return anything but 0 to cancel it: the call ends
 * soon with RV_E_CANCELLED. */
typedef int (*rv_progress_fn)(void *ctx, double done);

/* ---- runtime ---- */

typedef struct rv_runtime rv_runtime;

typedef enum rv_log_level {
    RV_LOG_DEFAULT, /* warnings and errors */
    RV_LOG_ERROR,
    RV_LOG_WARN,
    RV_LOG_INFO,
    RV_LOG_DEBUG
} rv_log_level;

/* Where the heap of a runtime and of everything made from it comes from. Worker threads, C library
 * streams and mapped files are not part of it. Any thread that uses the runtime calls it. With an
 * allocator, free texts and lists before the runtime's last object. */
typedef struct rv_allocator {
    void *(*alloc)(void *ctx, size_t size); /* aligned for any object; NULL: out of memory */
    void *(*resize)(void *ctx, void *p, size_t size);
    void (*release)(void *ctx, void *p);
    void *ctx;
} rv_allocator;

enum { RV_WAIT_FOREVER = 0, RV_WAIT_NEVER = -1 };

typedef struct rv_runtime_options {
    size_t size;
    int n_threads;   /* 0: one for each CPU this process may use */
    int exact;       /* f32 activations and an f32 KV cache: comparable with float references */
    const char *isa; /* highest instruction set to use, one of rv_isa_list; NULL: the best */
    void (*log)(void *ctx, rv_log_level level, const char *line); /* NULL: silent; any thread */
    void *log_ctx;
    rv_log_level log_level;
    const rv_allocator *allocator; /* NULL: malloc and free */
    int no_pack; /* compute from the file's own layout: opens faster, shares a mapped file's pages
                    with other processes, computes slower; the same bits */
    int wait;    /* when another thread is computing: RV_WAIT_FOREVER (the default) waits for it,
                    RV_WAIT_NEVER returns RV_E_BUSY at once, n > 0 waits n milliseconds */
    const char *device; /* what computes: NULL or "cpu", "cuda" or "cuda:N" (a GPU, by its number),
                           "auto" (a GPU that can be used, otherwise the CPU; the log says why, as a
                           warning where there is a driver). RV_E_UNSUPPORTED: there is no such
                           GPU, or the library was built without CUDA */
} rv_runtime_options;

RV_API rv_status rv_runtime_new(rv_runtime **out, const rv_runtime_options *o, rv_error *err);
RV_API void rv_runtime_free(rv_runtime **rt);
RV_API const char *rv_runtime_isa(const rv_runtime *rt); /* "avx512"; "" for NULL */
/* RV_E_STATE: what the runtime computes with has failed for good (a GPU was lost; err says how) and
 * nothing that was made from it computes any more. From any thread, beside a step too. */
RV_API rv_status rv_runtime_check(const rv_runtime *rt, rv_error *err);
/* The instruction sets this machine can use, slowest first, NULL-terminated. */
RV_API const char *const *rv_isa_list(void);
/* The machine as a JSON object: cpu, cores, isa, caches, memory. With measure (takes a few seconds)
 * also read bandwidth, integer and float peaks, and the rate of each weight type. On a GPU `gpu` is
 * the card, and measuring is of it: copies, the bus, launches, and the rate of each weight type;
 * with measure 2 copies and the bus alone, for which a tenth of a second is enough. */
RV_API rv_status rv_runtime_describe(rv_runtime *rt, int measure, char **json, rv_error *err);

/* Bytes in use by everything made from a runtime; they add up. */
typedef struct rv_memory {
    size_t size;
    uint64_t weights;  /* packed weights, norms, and adapters that a learner made */
    uint64_t mapped;   /* size of open model files; what was packed need not stay in memory, so the
                          system drops most of it */
    uint64_t kv;       /* KV pages of all engines; the system gives a page when it is first used */
    uint64_t scratch;  /* activations and logits of engines; the runtime keeps some for the next */
    uint64_t adapters; /* loaded by rv_adapter_load */
    /* Of the whole process, not of the runtime alone; 0: not known on this system. weights, kv,
     * scratch, adapters, training, heap, mapped_resident and program, less what is reserved, are
     * `resident` to a few percent. */
    uint64_t heap;            /* blocks that are none of the above: tokenizers, requests, texts */
    uint64_t reserved;        /* of all blocks: what was never written to, so that the system has
                                 not given it yet */
    uint64_t mapped_resident; /* pages of mapped model files that are in memory, */
    uint64_t program;         /* and of other files: the program itself, libraries */
    uint64_t resident;        /* as the system counts it */
    uint64_t training;        /* what learners compute with on the CPU in the background */
} rv_memory;

RV_API rv_status rv_runtime_memory(const rv_runtime *rt, rv_memory *out, rv_error *err);

/* ---- model ---- */

typedef struct rv_model rv_model;

/* Copies n bytes from offset to dst and returns 0. */
typedef int (*rv_read_fn)(void *ctx, uint64_t offset, void *dst, size_t n);

#define RV_GPU_WHOLE_CONTEXT (-1)

typedef struct rv_open_options {
    size_t size;
    int vocabulary_only; /* tokenizer and chat template, no weights */
    rv_progress_fn progress;
    void *progress_ctx;
    /* A GGUF file that is not a file on disk; the path is then only its name in messages (NULL:
     * "model"). Either data, which must outlive the model, or read, which is called during
     * rv_model_open only. */
    const void *data;
    rv_read_fn read;
    void *read_ctx;
    uint64_t len; /* bytes of data, or behind read */
    int quantize; /* float weights of linear layers become Q8_0: less memory, faster, and slightly
                     different results */
    const char *chat_template; /* used instead of the model's own; copied. NULL: its own */
    /* On a GPU: how many of the model's layers, the last ones, it computes; the others are the
     * CPU's. 0: all; where there is no memory for all, as many as make a token fastest, by rates
     * that are measured then (device "auto": even none), which is logged as a warning. RV_E_NOMEM
     * says how many would fit. gpu_tokens: of the KV cache to leave room for; 0: as many as an
     * engine has by default, RV_GPU_WHOLE_CONTEXT: as many as a service has for one request of any
     * length. */
    int gpu_layers, gpu_tokens;
} rv_open_options;

/* path: a .gguf file (the first of a split one), a model directory (config.json, *.safetensors,
 * tokenizer.json), or, with vocabulary_only, a directory with tokenizer.json alone. A model without
 * a tokenizer opens; it works on token ids. */
RV_API rv_status rv_model_open(rv_model **out, rv_runtime *rt, const char *path,
                               const rv_open_options *o, rv_error *err);
RV_API void rv_model_close(rv_model **m);

/* Texts are "" where the model says nothing. */
typedef struct rv_model_info {
    const char *architecture, *name, *type; /* type of most weights: "q4_1" */
    const char *tokenizer;                  /* "byte-level BPE (qwen2)" */
    const char *chat_template;              /* "stored", or the family's layout that replaces it */
    uint64_t n_params, file_bytes;
    int n_layers, n_embd, n_ff, n_heads, n_kv_heads, head_size, n_vocab;
    int n_context; /* tokens the model was trained for */
    int has_tokenizer, has_template;
    int is_encoder; /* makes embeddings only: it has no sessions */
    int32_t bos;    /* -1: none */
    const int32_t *eos;
    size_t n_eos;   /* ids that end an answer */
    int gpu_layers; /* that a GPU computes; 0: none */
} rv_model_info;

/* Valid as long as the model; NULL for NULL. */
RV_API const rv_model_info *rv_model_get_info(const rv_model *m);
/* The identity of a model: every byte of its weights, vocabulary, chat template and
 * configuration, as 64 hexadecimal digits. The same model has the same digest on any machine;
 * sessions on disk, adapters and learned state name it. The first call reads the whole file;
 * RV_E_IO if that is no longer all there. */
RV_API rv_status rv_model_digest(const rv_model *m, char out[65], rv_error *err);
/* Everything the file says, as a JSON object; with_tensors: the list of tensors too. */
RV_API rv_status rv_model_describe(const rv_model *m, int with_tensors, char **json, rv_error *err);

/* ---- text ---- */

enum {
    RV_TOKENIZE_SPECIAL = 1, /* "<|im_end|>" in the text becomes that token; otherwise it is text */
    RV_TOKENIZE_BOS = 2,     /* begin with the beginning-of-text token, where the model wants one */
    RV_TOKENIZE_WRAP = 4,    /* add everything the model puts around a text (BERT: CLS and SEP) */
};
RV_API rv_status rv_tokenize(const rv_model *m, const char *text, size_t len, unsigned flags,
                             int32_t **ids, size_t *n, rv_error *err);
/* *text is terminated; len may be NULL. skip_special: leave special tokens out. */
RV_API rv_status rv_detokenize(const rv_model *m, const int32_t *ids, size_t n, int skip_special,
                               char **text, size_t *len, rv_error *err);

typedef enum rv_token_kind {
    RV_TOKEN_UNUSED, /* the vocabulary has a hole here */
    RV_TOKEN_NORMAL,
    RV_TOKEN_SPECIAL, /* never part of an answer's text */
    RV_TOKEN_END      /* special, and ends an answer */
} rv_token_kind;

/* A token as the vocabulary stores it (byte-level pieces, "<0x0A>"), terminated, valid as long as
 * the model. text and len may be NULL. Nothing is allocated. */
RV_API rv_token_kind rv_token_get(const rv_model *m, int32_t id, const char **text, size_t *len);
/* The bytes that a token adds to a text in its middle, which may be part of a character; none for
 * special tokens. RV_E_UNSUPPORTED: they depend on the tokens beside it. */
RV_API rv_status rv_token_bytes(const rv_model *m, int32_t id, char **bytes, size_t *len,
                                rv_error *err);

/* ---- chats ---- */

typedef struct rv_message {
    const char *role;    /* "system", "user", "assistant", "tool" */
    const char *content; /* NULL: none */
    const char *more;    /* NULL, or a JSON object with further fields of the message: "name",
                            "tool_calls", "content" as a list of parts ... */
} rv_message;

typedef struct rv_time {
    int year, month, day, hour, minute, second;
} rv_time;

/* What an answer continues. Many templates add a system message of their own where there is none
 * (rv_chat_render shows it). Texts of messages are text: "<|im_end|>" inside them does not become a
 * control token (llama.cpp and vLLM let it), unless `special` asks for that. */
typedef struct rv_chat {
    size_t size;
    const rv_message *messages;
    size_t n_messages;
    const char *tools;     /* NULL, or a JSON list of tool definitions */
    const char *variables; /* NULL, or a JSON object: more variables for the template; with a member
                              "messages" it is the whole conversation, and messages are NULL */
    int no_reply;          /* render the turns alone, without the beginning of a reply */
    int special;
    const rv_time *now; /* for templates that print the date; NULL: 1970-01-01, so that a prompt is
                           the same every day */
} rv_chat;

/* The chat as the text the model was trained on, by its chat template; and as token ids. */
RV_API rv_status rv_chat_render(const rv_model *m, const rv_chat *chat, char **text, size_t *len,
                                rv_error *err);
RV_API rv_status rv_chat_tokenize(const rv_model *m, const rv_chat *chat, int32_t **ids, size_t *n,
                                  rv_error *err);
/* The chat by a template of yours, with exactly the variables given (tools and documents are none
 * where they are not). */
RV_API rv_status rv_template_render(const rv_runtime *rt, const char *source, size_t source_len,
                                    const rv_chat *chat, char **text, size_t *len, rv_error *err);

/* ---- adapters ---- */

typedef struct rv_adapter rv_adapter;
typedef struct rv_adapter_set rv_adapter_set;

/* path: a PEFT directory or a GGUF adapter file. */
RV_API rv_status rv_adapter_load(rv_adapter **out, const rv_model *m, const char *path,
                                 rv_error *err);
RV_API void rv_adapter_free(rv_adapter **a);

typedef struct rv_adapter_use {
    const rv_adapter *adapter;
    float scale; /* 1: as trained; 0 turns it off */
} rv_adapter_use;

/* At most 64 adapters of one model; n 0: the set that changes nothing. */
RV_API rv_status rv_adapter_set_new(rv_adapter_set **out, const rv_model *m,
                                    const rv_adapter_use *uses, size_t n, rv_error *err);
RV_API void rv_adapter_set_free(rv_adapter_set **set);

/* ---- engine and session ---- */

typedef struct rv_engine rv_engine;
typedef struct rv_session rv_session;
typedef struct rv_learner rv_learner;
typedef struct rv_grammar rv_grammar;

typedef enum rv_kv_type {
    RV_KV_DEFAULT, /* F16; F32 in exact runtimes */
    RV_KV_F32,
    RV_KV_F16,
    RV_KV_Q8,   /* int8 with one scale for each position and head: half of F16, and faster */
    RV_KV_WARM, /* F16 in the page of 32 tokens that is being written, Q8 before it */
    /* the same, and 4 bits for what is more than kv_warm tokens back: a third of F16 */
    RV_KV_TIERED
} rv_kv_type;

typedef struct rv_engine_options {
    size_t size;
    int n_tokens;   /* KV room of all sessions together; 0: 4096 or the model's context */
    int max_rows;   /* of one step; 0: 512, on a GPU 1024 or, for small models, 4096 */
    int max_logits; /* rows of one step that get logits; 0: 16 */
    rv_kv_type kv_type;
    int kv_warm; /* RV_KV_TIERED: tokens back that are still read in 8 bits, rounded up to whole
                    pages; 0: 1024 */
} rv_engine_options;

RV_API rv_status rv_engine_new(rv_engine **out, const rv_model *m, const rv_engine_options *o,
                               rv_error *err);
RV_API void rv_engine_free(rv_engine **e);

typedef struct rv_session_options {
    size_t size;
    int n_context;      /* most tokens of prompt and answer together, at most the engine's room; 0:
                           4096, the model's context or the engine's room, whichever is least. More
                           than the model was trained for is a warning to the log */
    rv_kv_type kv_type; /* where engine is NULL */
    const rv_adapter_set *adapters; /* for every token, unless a row names another set */
    rv_engine *engine;              /* NULL: one of its own */
    rv_learner *learner; /* rv_session_chat asks it what was taught; see ruvllm_learn.h */
    void *user;          /* yours: rv_session_user */
    int kv_warm;         /* where engine is NULL */
} rv_session_options;

RV_API rv_status rv_session_new(rv_session **out, const rv_model *m, const rv_session_options *o,
                                rv_error *err);
/* A second session with the same past, in the same engine; they share KV pages. */
RV_API rv_status rv_session_fork(rv_session **out, rv_session *from, rv_error *err);
RV_API void rv_session_free(rv_session **s);
RV_API void *rv_session_user(const rv_session *s);
RV_API rv_engine *rv_session_engine(rv_session *s); /* borrowed: do not free it */
RV_API int rv_session_context(const rv_session *s); /* n_context; 0 for NULL */
/* The tokens whose keys and values are in the cache, valid until the session changes. */
RV_API size_t rv_session_tokens(const rv_session *s, const int32_t **ids);
/* Makes the session's past exactly ids: keeps what agrees (*n_reused tokens), drops the rest,
 * computes what is new. *logits (may be NULL): n_vocab floats after the last token, yours to
 * change, valid until the engine's next step. On failure the past is the part that was computed. */
RV_API rv_status rv_session_sync(rv_session *s, const int32_t *ids, size_t n, size_t *n_reused,
                                 float **logits, rv_error *err);
/* Ends what the session computes, within a fraction of a second: an answer finishes as
 * RV_FINISH_CANCELLED (and its call returns RV_OK), rv_session_sync returns RV_E_CANCELLED. The
 * step that was being computed, up to max_rows tokens of a prompt, is lost. Without anything to end
 * it does nothing. From any thread or signal handler. */
RV_API void rv_session_cancel(rv_session *s);
/* Writes tokens, keys and values to a file, through a temporary file beside it; not the messages of
 * a chat, which you pass again and which then agree with the tokens. Tokens computed
 * with adapters are left out, from the first one on: their keys and values depend on the
 * adapter. */
RV_API rv_status rv_session_save(rv_session *s, const char *path, rv_error *err);
/* A session with the past of a saved one, as if it had just been computed. RV_E_NOT_FOUND: there is
 * no such file; RV_E_MODEL: it is damaged, or was saved with another model, KV type or precision;
 * RV_E_TOO_LONG: the past does not fit o->n_context. */
RV_API rv_status rv_session_load(rv_session **out, const rv_model *m, const rv_session_options *o,
                                 const char *path, rv_error *err);

/* One row of a step: a token that goes to the end of a session. */
typedef struct rv_row {
    rv_session *session;
    int32_t token;
    int want_logits;
    const rv_adapter_set *adapters; /* for this row alone; NULL: the session's */
} rv_row;

/* One forward pass over rows of any sessions of the engine that have no answer in progress. What a
 * row gets does not depend, bit for bit, on the rows beside it. On failure no session changed. */
RV_API rv_status rv_engine_step(rv_engine *e, const rv_row *rows, size_t n_rows, rv_error *err);
/* Logits of the i-th row of the last step that wanted them: n_vocab floats, yours to change, valid
 * until the next step; NULL: there is no such row. */
RV_API float *rv_engine_logits(rv_engine *e, size_t i);

/* ---- sampling ---- */

typedef struct rv_logit_bias {
    int32_t id;
    float bias; /* added to the logit; -INFINITY: never, +INFINITY: always */
} rv_logit_bias;

typedef struct rv_sampling {
    size_t size;
    uint64_t seed;            /* the same seed gives the same text */
    int greedy;               /* the most likely token each time, what other APIs call temperature
                                 0. Temperature, top_p and other ways of dropping tokens are then
                                 ignored; penalties and biases that you set still count */
    float temperature;        /* 0: 0.7 */
    float top_p;              /* 0: 0.9; 1: off */
    float min_p;              /* 0: off */
    int top_k;                /* 0: off */
    float repetition_penalty; /* 0: 1.1; 1: off. Over the last repetition_window tokens */
    int repetition_window;    /* 0: 64 */
    float frequency_penalty, presence_penalty; /* 0: off. Over the generated tokens */
    float typical_p;                           /* 0 or 1: off */
    float top_n_sigma;                         /* 0: off */
    float xtc_probability, xtc_threshold;      /* probability 0: off; threshold 0: 0.1 */
    float dry_multiplier, dry_base;            /* multiplier 0: off; base 0: 1.75 */
    int dry_allowed_length, dry_window;        /* 0: 2; window 0: all tokens so far */
    const char *const *dry_breakers;           /* NULL: newline, colon, double quote, asterisk */
    size_t n_dry_breakers;
    float mirostat_tau, mirostat_eta; /* tau 0: off (5 is usual); eta 0: 0.1 */
    const rv_logit_bias *logit_bias;
    size_t n_logit_bias;
    /* Stages by name, comma-separated; a stage that is not named does not run. NULL:
     * "penalties,dry,top_n_sigma,temperature,top_k,typical_p,top_p,min_p,xtc,mirostat".
     * Biases and masks come before all of them, the draw after. */
    const char *order;
} rv_sampling;

typedef struct rv_sampler rv_sampler;
RV_API rv_status rv_sampler_new(rv_sampler **out, const rv_model *m, const rv_sampling *o,
                                rv_error *err);
RV_API void rv_sampler_free(rv_sampler **s);
/* The next token after past, of whose n_past tokens the first n_prompt are the prompt. Changes
 * logits. */
RV_API rv_status rv_sampler_pick(rv_sampler *s, float *logits, const int32_t *past, size_t n_past,
                                 size_t n_prompt, int32_t *id, rv_error *err);

/* ---- answers ---- */

#define RV_FINISH_MAP(X)                                                                           \
    X(EOS, "eos") X(STOP, "stop") X(LENGTH, "length") X(CANCELLED, "cancelled") X(ERROR, "error")
/* LENGTH: max_tokens, or the end of the context (n_prompt + n_ids == rv_session_context). */
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

typedef enum rv_event_kind {
    RV_EVENT_PROMPT, /* about n_done of the n_prompt tokens have been read, those in the cache among
                        them; several times a second while a long prompt is read */
    RV_EVENT_TOKEN,  /* a token was generated */
    RV_EVENT_DONE    /* the last event of an answer */
} rv_event_kind;

typedef struct rv_event {
    rv_event_kind kind;
    rv_session *session;
    /* RV_EVENT_TOKEN: every token but one that ends the answer, with the text that became certain
     * with it (perhaps none, never half a character). id -1: text that was held back until the
     * end. */
    int32_t id;
    int is_special;
    const char *text; /* terminated, valid during the call */
    size_t text_len;
    const rv_token_prob *chosen, *top; /* NULL unless logprobs were asked for; n_top best */
    size_t n_top;
    /* RV_EVENT_DONE */
    rv_finish finish;
    const rv_error *error; /* NULL unless finish is RV_FINISH_ERROR */
    int n_prompt, n_reused, n_generated;
    double prompt_seconds, seconds; /* reading the prompt; generating, after it */
    int n_done;                     /* RV_EVENT_PROMPT */
    int n_guessed, n_right;         /* RV_EVENT_DONE: as in rv_answer */
} rv_event;

enum { RV_TO_CONTEXT_END = -1, RV_NO_TOKENS = -2 };

/* Guessing the next tokens and checking several in one step: the same text, probabilities and
 * random numbers in fewer steps. How many are tried, and whether on one way or on several, follows
 * from how often guesses were right and from the times that steps take; text that cannot be guessed
 * is generated without. */
typedef enum rv_draft {
    RV_DRAFT_DEFAULT, /* RV_DRAFT_NGRAM */
    RV_DRAFT_OFF,
    RV_DRAFT_NGRAM /* what followed the same tokens earlier in prompt or answer */
} rv_draft;

typedef struct rv_generate_options {
    size_t size;
    const rv_sampling *sampling; /* NULL: the defaults */
    int max_tokens;              /* 0: 256; RV_TO_CONTEXT_END; RV_NO_TOKENS: read the prompt only */
    int min_tokens;              /* no end token before so many */
    const char *const *stop;     /* strings that end the answer and are not part of its text,
                                    wherever tokens begin and end */
    size_t n_stop;
    int ignore_eos;
    int logprobs;     /* of the chosen tokens */
    int top_logprobs; /* and of so many of the best, up to 20; implies logprobs */
    /* What happens, as it happens. Return anything but 0 to cancel. */
    int (*on_event)(void *ctx, const rv_event *event);
    /* Forbids tokens by setting their logits to -INFINITY; ids: the n_ids generated so far. Return
     * anything but 0 to cancel. */
    int (*mask)(void *ctx, const int32_t *ids, size_t n_ids, float *logits, size_t n_vocab);
    void *ctx; /* of both */
    /* What the text may be: ruvllm_grammar.h; NULL: anything. Kept as long as needed. The answer
     * ends (RV_FINISH_EOS) when its text is complete and nothing can follow, also with ignore_eos;
     * an answer that ends otherwise may be cut short. */
    rv_grammar *grammar;
    uint32_t grammar_state; /* where in the grammar it begins; 0: at the start */
    rv_draft draft;
    /* NULL: none. Guesses by a smaller model: a session of it, in the same runtime, which has no
     * answer and which nobody else uses until this one is finished. Its past becomes this
     * answer's. Both models must have the same vocabulary: another is RV_E_INVALID. */
    rv_session *draft_session;
    /* The text goes on where the prompt ends: a blank that it begins with is kept, which otherwise
     * many vocabularies leave out at the start of a text. */
    int continues;
} rv_generate_options;

/* One block, freed by rv_free. */
typedef struct rv_answer {
    const char *text; /* terminated; "" without a tokenizer */
    size_t text_len;
    const int32_t *ids; /* all that were generated: with the token that ended it, also one that
                           completed a stop string */
    size_t n_ids;
    const rv_token_prob *chosen; /* one for each id, or NULL */
    const rv_token_prob *top;    /* n_top for each id, best first, or NULL */
    size_t n_top;
    rv_finish finish;
    int n_prompt, n_reused;         /* prompt tokens, and how many of them were in the cache */
    double prompt_seconds, seconds; /* reading the prompt; generating, after it */
    uint32_t grammar_state; /* behind the last id, to go on from; 0: no grammar, or an end token */
    int n_guessed, n_right; /* tokens that were tried as guesses, and those that came true */
    size_t stop;            /* RV_FINISH_STOP: the index of the stop string that ended it */
} rv_answer;

/* The model's reply to a chat. Pass the whole conversation each time: what agrees with the
 * session's past is not computed again. A session with a learner asks it first what was taught. *a
 * is NULL on failure, unless generating had begun: then it holds what came before the failure. */
RV_API rv_status rv_session_chat(rv_session *s, const rv_chat *chat, const rv_generate_options *o,
                                 rv_answer **a, rv_error *err);
/* The same after a prompt of token ids, without a chat template and without the learner. */
RV_API rv_status rv_session_generate(rv_session *s, const int32_t *prompt, size_t n_prompt,
                                     const rv_generate_options *o, rv_answer **a, rv_error *err);

/* Many answers at once: start one on each session, advance the engine until none is running, finish
 * each. One advance is one step over a token of every running answer and as much of the waiting
 * prompts as fits. An answer that fails ends by itself, with its error in its last event and from
 * rv_session_finish: also with RV_E_NO_PAGES when the engine's room is used up, so start no more
 * answers than its n_tokens hold (prompt and max_tokens of each, rounded up to 32). start_chat asks
 * the session's learner, as rv_session_chat does. */
RV_API rv_status rv_session_start_chat(rv_session *s, const rv_chat *chat,
                                       const rv_generate_options *o, rv_error *err);
RV_API rv_status rv_session_start(rv_session *s, const int32_t *prompt, size_t n_prompt,
                                  const rv_generate_options *o, rv_error *err);
RV_API rv_status rv_engine_advance(rv_engine *e, size_t *n_running, rv_error *err);
/* Takes the answer, cancelling it if it is still running. Returns the answer's own status. */
RV_API rv_status rv_session_finish(rv_session *s, rv_answer **a, rv_error *err);

/* ---- embeddings and scores ---- */

typedef enum rv_pooling {
    RV_POOLING_DEFAULT, /* what the model declares; mean where it declares nothing */
    RV_POOLING_MEAN,
    RV_POOLING_LAST,
    RV_POOLING_FIRST
} rv_pooling;

typedef struct rv_embed_options {
    size_t size;
    rv_pooling pooling;
    int keep_length; /* do not scale the vector to length 1 */
    int refuse_long; /* a text longer than an encoder embeds is RV_E_TOO_LONG; otherwise it is cut
                        as its makers' code cuts it, with a warning to the log */
} rv_embed_options;

/* The pooled final hidden states of ids, n_embd floats. Get the ids of a text from rv_tokenize with
 * RV_TOKENIZE_WRAP. No session changes; the engine must have room for n tokens (an encoder: n
 * rows). */
RV_API rv_status rv_engine_embed(rv_engine *e, const int32_t *ids, size_t n,
                                 const rv_embed_options *o, float *out, rv_error *err);
/* log_p[i] = ln p(ids[i + 1] after ids[0..i]) by the model's own distribution: n - 1 floats. No
 * session changes; the engine must have room for n tokens. adapters may be NULL. */
RV_API rv_status rv_engine_score(rv_engine *e, const int32_t *ids, size_t n,
                                 const rv_adapter_set *adapters, float *log_p, rv_error *err);

#ifdef __cplusplus
}
#endif
#endif
