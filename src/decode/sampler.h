/* sampler.h - from logits to the next token.
 *
 * Order of work: biases; what is masked (-INFINITY) is out; the stages of rv_sampling.order, one
 * after the other, each over what the ones before it left; one draw. With temperature 0 the answer
 * is the argmax after the stages that change logits (penalties, dry): those that only drop tokens
 * do not run. Equal logits keep the lower id first. The generator is seeded and the exponential is
 * our own (sampler_set.c), so the same seed and logits give the same token on every machine. */
#ifndef RVI_DECODE_SAMPLER_H
#define RVI_DECODE_SAMPLER_H

#include <stdbool.h>

#include "base/error.h"
#include "tokenizer/tokenizer.h"

enum {
    RVI_SAMPLING_SIZE_MAX = 4096,  /* a size field above this was never set */
    RVI_LOGIT_BIAS_MAX = 1 << 20,  /* entries of the bias list */
    RVI_DRY_BREAKERS_MAX = 64,     /* strings, */
    RVI_DRY_BREAKER_LEN_MAX = 256, /* and bytes of each */
    RVI_DRY_LONGEST = 4096,        /* a longer repeat counts as this long */
};

/* What rv_sampling_init (greedy: rv_sampling_init_greedy) does: at most size bytes of the defaults,
 * with the size field set to size. Nothing if size does not hold the size field. */
void rvi_sampling_init(rv_sampling *s, size_t size, bool greedy);
/* full: the defaults, overlaid with the given->size bytes that the caller knows of; given may be
 * NULL or of an older or newer header. Lists and strings stay the caller's. */
void rvi_sampling_read(rv_sampling *full, const rv_sampling *given);
/* Names the field that is out of its range. NULL (the defaults) is fine. */
rv_status rvi_sampling_check(const rv_sampling *s, rv_error *err) RVI_MUST_CHECK;

typedef struct rvi_sampler rvi_sampler;

/* options (NULL: the defaults) are checked and copied. t serves to find the tokens that break a DRY
 * match, and is not kept; without it there are none. */
rv_status rvi_sampler_new(rvi_sampler **out, const rv_sampling *options, int n_vocab,
                          const rvi_tokenizer *t, rv_error *err) RVI_MUST_CHECK;
void rvi_sampler_free(rvi_sampler *s); /* accepts NULL */

/* The next token. logits are used up: what is left in them has no meaning. past: every token so
 * far, n_prompt of them from the prompt. Allocates nothing. RV_E_GENERATION: the logits are no
 * distribution. */
rv_status rvi_sampler_pick(rvi_sampler *s, float *logits, const int32_t *past, size_t n_past,
                           size_t n_prompt, int32_t *out, rv_error *err) RVI_MUST_CHECK;

#endif
