/* sampler.h - chooses the next token from the logits.
 *
 * Steps: add the biases; drop masked tokens (-INFINITY); run the stages of rv_sampling.order, each
 * on the tokens that the earlier ones left; draw one token. With temperature 0 the result is the
 * argmax after the stages that change logits (penalties, dry); stages that only drop tokens do not
 * run. Of equal logits the lower id comes first. The random generator is seeded and the exponential
 * function is our own (sampler_set.c), so the same seed and logits give the same token on every
 * machine. */
#ifndef RVI_DECODE_SAMPLER_H
#define RVI_DECODE_SAMPLER_H

#include <stdbool.h>

#include "backend/draw.h"
#include "base/error.h"
#include "tokenizer/tokenizer.h"

enum {
    RVI_SAMPLING_SIZE_MAX = 4096,  /* a larger size field is uninitialized memory */
    RVI_LOGIT_BIAS_MAX = 1 << 20,  /* entries of the bias list */
    RVI_DRY_BREAKERS_MAX = 64,     /* strings, */
    RVI_DRY_BREAKER_LEN_MAX = 256, /* and bytes of each */
    RVI_DRY_LONGEST = 4096,        /* a longer repeat counts as this long */
};

/* Whole defaults, or for greedy picking everything off: writes at most size bytes of the
 * defaults, with the size field set to size. Does nothing if size is too small for the size
 * field. */
void rvi_sampling_init(rv_sampling *s, size_t size, bool greedy);
/* Sets full to the defaults, overwritten by the first given->size bytes of given; given may be NULL
 * or of an older or newer header. Lists and strings stay the caller's. */
void rvi_sampling_read(rv_sampling *full, const rv_sampling *given);
/* Names the field that is out of its range. NULL (the defaults) is fine. */
rv_status rvi_sampling_check(const rv_sampling *s, rv_error *err) RVI_MUST_CHECK;

typedef struct rvi_sampler rvi_sampler;

/* options (NULL: the defaults) are checked and copied. t is only used to find the tokens that break
 * a DRY match; if it is NULL, no token does. */
rv_status rvi_sampler_new(rvi_sampler **out, const rv_sampling *options, int n_vocab,
                          const rvi_tokenizer *t, rv_error *err) RVI_MUST_CHECK;
void rvi_sampler_free(rvi_sampler *s); /* accepts NULL */

/* What a sampler remembers from token to token. With that of another one of the same options it
 * goes on as that one. */
typedef struct rvi_sampler_state {
    uint64_t random;
    double surprise; /* mirostat */
} rvi_sampler_state;

rvi_sampler_state rvi_sampler_get(const rvi_sampler *s);
void rvi_sampler_set(rvi_sampler *s, const rvi_sampler_state *state);

/* The next token. logits are overwritten. past: every token so far, n_prompt of them from the
 * prompt. Allocates nothing. RV_E_GENERATION: the logits are no distribution. */
rv_status rvi_sampler_pick(rvi_sampler *s, float *logits, const int32_t *past, size_t n_past,
                           size_t n_prompt, int32_t *out, rv_error *err) RVI_MUST_CHECK;

/* What it needs to know for a pick without all the logits: the one that comes `ahead` picks after
 * the next. False: it needs them all. */
bool rvi_sampler_ask(const rvi_sampler *s, int ahead, rvi_draw_ask *out);
/* The token that rvi_sampler_pick would return, from what was asked for. False: that does not tell;
 * nothing has changed then. */
bool rvi_sampler_pick_drawn(rvi_sampler *s, const rvi_drawn *d, int32_t *out);

#endif
