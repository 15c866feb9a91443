/* vector.h - products of float vectors, the same bits everywhere: sixteen sums side by side, which
 * a compiler turns into vector instructions, added up in a fixed order; and a look at stored
 * ones. */
#ifndef RVI_LEARN_VECTOR_H
#define RVI_LEARN_VECTOR_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

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

/* Room for count floats that begins where the widest registers like it: rows of whole cache lines
 * stay on them. NULL: there is none. */
float *rvi_floats_new(size_t count);

/* n floats as they were stored, at any address: is each of them a number, and none below least? */
static inline bool rvi_floats_sound(const void *bytes, size_t n, float least)
{
    for (size_t i = 0; i < n; i++) {
        float v;
        memcpy(&v, (const char *)bytes + i * sizeof v, sizeof v);
        if (!isfinite(v) || v < least) return false;
    }
    return true;
}

#endif
