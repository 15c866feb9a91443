/* sampler_support.h - what the tests of the sampler share. Included after <cmocka.h>. */
#ifndef TESTS_DECODE_SAMPLER_SUPPORT_H
#define TESTS_DECODE_SAMPLER_SUPPORT_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "decode/sampler_internal.h"
#include "harness/assert_ok.h"

/* All stages off: draws follow the softmax of the logits as they are. */
static inline rv_sampling plain(float temperature)
{
    rv_sampling o;
    rvi_sampling_init(&o, sizeof o, true);
    o.temperature = temperature;
    o.seed = 42;
    return o;
}

static inline rvi_sampler *sampler(const rv_sampling *o, int n_vocab)
{
    rvi_sampler *s = NULL;
    assert_ok(rvi_sampler_new(&s, o, n_vocab, NULL, err));
    return s;
}

/* Picks from a copy of the logits. */
static inline int32_t pick_after(rvi_sampler *s, const float *l, const int32_t *past, size_t n_past,
                                 size_t n_prompt)
{
    size_t size = (size_t)s->n_vocab * sizeof *l;
    float *copy = malloc(size);
    int32_t id = -1;
    assert_non_null(copy);
    memcpy(copy, l, size);
    assert_ok(rvi_sampler_pick(s, copy, past, n_past, n_prompt, &id, err));
    free(copy);
    assert_in_range(id, 0, s->n_vocab - 1);
    return id;
}

static inline int32_t pick(rvi_sampler *s, const float *l)
{
    return pick_after(s, l, NULL, 0, 0);
}

#endif
