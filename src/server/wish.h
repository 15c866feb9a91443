/* wish.h - the options of a request for text or vectors: one table of names with their types and
 * ranges.
 *
 * A known option of a wrong type or out of its range is refused, and so is one that cannot be
 * honoured; null is the same as leaving it out. Unknown names are accepted and listed, for clients
 * add fields monthly. */
#ifndef RVI_SERVER_WISH_H
#define RVI_SERVER_WISH_H

#include "base/json.h"
#include "ruvllm.h"
#include "server/form.h"

/* Requests of OpenAI, of Anthropic (MESSAGES) and of Ollama. */
enum {
    RVI_FOR_CHAT = 1,
    RVI_FOR_COMPLETION = 2,
    RVI_FOR_EMBEDDING = 4,
    RVI_FOR_RESPONSE = 8,
    RVI_FOR_MESSAGES = 16,
    RVI_FOR_TALK = 32,     /* /api/chat */
    RVI_FOR_GENERATE = 64, /* /api/generate */
    RVI_FOR_VECTORS = 128, /* /api/embed */
    RVI_FOR_OPTIONS = 256, /* the "options" of these three */
    RVI_FOR_NATIVE = 512,  /* llama-server's /completion */
    RVI_FOR_INFILL = 1024, /* beside it, of /infill */
    RVI_FOR_RANKING = 2048,
    RVI_FOR_OLLAMA = RVI_FOR_TALK | RVI_FOR_GENERATE
};

enum { RVI_WISH_STOPS = 16, RVI_WISH_CHOICES = 128, RVI_SESSION_NAME = 256 };

typedef struct rvi_wish {
    rv_sampling sampling;
    rv_generate_options generate; /* its sampling is not set */
    int n;                        /* choices */
    bool stream, include_usage, logprobs, echo, raw, truncate;
    bool has_logprobs; /* completions: "logprobs" is there, its number in top_logprobs */
    int top_logprobs;
    int dimensions; /* of vectors; 0: all */
    int top_n;      /* of a ranking; 0: all */
    bool with_texts;
    bool base64;
    /* raw values that mean something together */
    float temperature, mirostat_tau, mirostat_eta;
    bool has_temperature;
    int mirostat, max_tokens, max_completion_tokens, n_best, last_n;
    int n_context;       /* that the client needs; 0: any */
    int priority;        /* as vLLM has it: lower goes first */
    float timeout;       /* seconds from when the request was whole; 0: none */
    const char *session; /* on disk; NULL: none */
    const char *stops[RVI_WISH_STOPS];
    rvi_answer_form form;
} rvi_wish;

/* Reads the members of body for one kind of request. Texts are those of body; lists are in the
 * arena. ignored: the unknown names, separated by commas. False: p says why. */
bool rvi_wish_read(rvi_wish *w, unsigned what, const rvi_json *body, rvi_arena *arena,
                   rvi_buf *ignored, rvi_problem *p);

/* The body as a JSON object. */
bool rvi_wish_body(const rvi_json **out, const rvi_buf *text, rvi_arena *arena, rvi_problem *p);

/* ---- wish_fields.c: the names of options, one table for all dialects ---- */

typedef enum rvi_field_kind {
    RVI_FIELD_FLAG,
    RVI_FIELD_INT,
    RVI_FIELD_FLOAT,
    RVI_FIELD_TEXT, /* of min to max bytes */
    RVI_FIELD_SEED,
    RVI_FIELD_STOPS,
    RVI_FIELD_BIAS,
    RVI_FIELD_USAGE,
    RVI_FIELD_LOGPROBS,
    RVI_FIELD_FORM,
    RVI_FIELD_OPTIONS, /* an object of options */
    RVI_FIELD_OWN,     /* read by the handler, or without an effect on the answer */
    RVI_FIELD_REFUSED
} rvi_field_kind;

typedef struct rvi_field {
    const char *name;
    unsigned what; /* requests that have it: RVI_FOR_... */
    rvi_field_kind kind;
    double min, max;
    size_t at;            /* in the wish */
    const char *harmless; /* of REFUSED: the words, between blanks, that ask for nothing */
} rvi_field;

const rvi_field *rvi_field_find(unsigned what, const char *name); /* NULL: not known */

#endif
