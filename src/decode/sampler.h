/* sampler.h - from logits to the next token.
 *
 * Order: repetition, frequency and presence penalties; then greedy, or temperature, top-k, top-p,
 * min-p and one draw. Equal logits keep the lower id first, and the generator is seeded, so the
 * same seed gives the same tokens. */
#ifndef RVI_DECODE_SAMPLER_H
#define RVI_DECODE_SAMPLER_H

#include <stdbool.h>

#include "base/error.h"
#include "base/rng.h"

rv_status rvi_sampling_check(const rv_sampling *s, rv_error *err) RVI_MUST_CHECK;

typedef struct rvi_sampler rvi_sampler;

rv_status rvi_sampler_new(rvi_sampler **out, const rv_sampling *options, int n_vocab,
                          rv_error *err) RVI_MUST_CHECK;
void rvi_sampler_free(rvi_sampler *s); /* accepts NULL */

/* The next token; logits are changed. past: every token so far, n_prompt of them from the prompt.
 * An error if no logit is a number. */
rv_status rvi_sampler_pick(rvi_sampler *s, float *logits, const int32_t *past, size_t n_past,
                           size_t n_prompt, int32_t *out, rv_error *err) RVI_MUST_CHECK;

#endif
