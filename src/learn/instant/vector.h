/* vector.h - room for floats, and a look at stored ones. */
#ifndef RVI_LEARN_VECTOR_H
#define RVI_LEARN_VECTOR_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/mem.h"

/* Room for count floats that begins where the widest registers like it: rows of whole cache lines
 * stay on them. NULL: there is none. */
static inline float *rvi_floats_new(size_t count)
{
    return count <= SIZE_MAX / sizeof(float) ? rvi_alloc_aligned(count * sizeof(float), 64) : NULL;
}

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
