/* vector.h - products of float vectors, the same bits everywhere: sixteen sums side by side, which a
 * compiler turns into vector instructions, added up in a fixed order. */
#ifndef RVI_LEARN_VECTOR_H
#define RVI_LEARN_VECTOR_H

#include <stddef.h>

static inline float rvi_vector_dot(const float *a, const float *b, size_t n)
{
    enum { LANES = 16 };
    float sum[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (size_t k = 0; k < LANES; k++) sum[k] += a[i + k] * b[i + k];
    for (size_t k = 0; i + k < n; k++) sum[k] += a[i + k] * b[i + k];
    for (size_t half = LANES / 2; half; half /= 2)
        for (size_t k = 0; k < half; k++) sum[k] += sum[k + half];
    return sum[0];
}

#endif
