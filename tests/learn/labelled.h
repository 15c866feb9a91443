/* labelled.h - vectors of known origin: points around centres in random directions. */
#ifndef TESTS_LEARN_LABELLED_H
#define TESTS_LEARN_LABELLED_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "base/rng.h"

static inline double labelled_normal(rvi_rng *r)
{
    double u = 1 - rvi_rng_double(r), v = rvi_rng_double(r);
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

/* out [n][n_dim]: point i belongs to centre i % n_labels; spread: of a point, in lengths of a
 * centre. */
static inline void labelled_make(float *out, size_t n, size_t n_dim, size_t n_labels, double spread,
                                 uint64_t seed)
{
    for (size_t i = 0; i < n; i++) {
        rvi_rng centre = {seed * 1000 + i % n_labels}, own = {seed * 1000003 + i};
        for (size_t j = 0; j < n_dim; j++)
            out[i * n_dim + j] = (float)(labelled_normal(&centre) + spread * labelled_normal(&own));
    }
}

/* Share of the points whose group has their label as its most frequent one. */
static inline double labelled_purity(const uint32_t *groups, size_t n, size_t n_labels, size_t k)
{
    size_t right = 0;
    for (size_t g = 0; g < k; g++) {
        size_t best = 0;
        for (size_t label = 0; label < n_labels; label++) {
            size_t count = 0;
            for (size_t i = label; i < n; i += n_labels) count += groups[i] == g;
            if (count > best) best = count;
        }
        right += best;
    }
    return (double)right / (double)n;
}

#endif
