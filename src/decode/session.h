/* session.h - one timeline of tokens on a model: prefix reuse, chunked prefill, the token loop.
 *
 * The caller hands in the whole prompt each time; the session keeps what agrees with its past,
 * drops the rest and computes what is new. By the law of the forward pass the result is the same,
 * bit for bit, as with an empty session. One thread at a time uses a session. */
#ifndef RVI_DECODE_SESSION_H
#define RVI_DECODE_SESSION_H

#include "decode/sampler.h"
#include "model/model.h"
#include "tokenizer/tokenizer.h"

typedef struct rvi_session_options {
    int n_context; /* most tokens of prompt and answer together */
    rv_kv_type kv_type;
    int chunk; /* rows of a prefill step; 0: 256 */
} rvi_session_options;

typedef struct rvi_session rvi_session;

/* model and tokenizer are borrowed; tokenizer may be NULL (then there is no text and no stop
 * string). eos: the ids that end an answer, borrowed. */
rv_status rvi_session_new(rvi_session **out, const rvi_model *m, const rvi_tokenizer *t,
                          const rvi_ids *eos, const rvi_session_options *o,
                          rv_error *err) RVI_MUST_CHECK;
void rvi_session_free(rvi_session *s); /* accepts NULL */

typedef struct rvi_generate_options {
    rv_sampling sampling;
    int max_tokens;
    const char *const *stop; /* strings that end the answer and are not part of it */
    size_t n_stop;
    bool ignore_eos;
    const rvi_adapter_set *adapters; /* NULL: none; the same pointer means the same adapters */
    /* Called with every token (an end token apart) and the text that became certain with it
     * (perhaps none); anything but 0 cancels. May be NULL. */
    int (*on_token)(void *ctx, int32_t id, const char *text, size_t len);
    void *ctx;
} rvi_generate_options;

typedef struct rvi_generated {
    rvi_ids ids; /* an end-of-text token that ended it is the last one */
    rvi_buf text;
    rv_finish finish;
    int n_prompt, n_reused;         /* prompt tokens, and how many of them were in the cache */
    double prompt_seconds, seconds; /* prefill; the token loop after it */
} rvi_generated;

void rvi_generated_deinit(rvi_generated *g);

/* On failure finish is RV_FINISH_ERROR and what was generated before stays in out. out: zeroed by
 * the caller, who deinits it in any case. */
rv_status rvi_session_generate(rvi_session *s, const int32_t *prompt, size_t n_prompt,
                               const rvi_generate_options *o, rvi_generated *out,
                               rv_error *err) RVI_MUST_CHECK;

#endif
