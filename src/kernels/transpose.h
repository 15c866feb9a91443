/* transpose.h - small squares of 32-bit words. Inside the kernels room only. */
#ifndef RVI_KERNELS_TRANSPOSE_H
#define RVI_KERNELS_TRANSPOSE_H

#include <stdint.h>

#include "kernels/simd.h"

typedef uint32_t words8 __attribute__((vector_size(32)));

/* Rows of 8 words, 8 of them, become columns. */
static ALWAYS_INLINE void transpose8(words8 v[8])
{
    words8 a[8], b[8];
    UNROLL for (int i = 0; i < 8; i += 2)
    {
        a[i] = __builtin_shufflevector(v[i], v[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
        a[i + 1] = __builtin_shufflevector(v[i], v[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
    }
    UNROLL for (int i = 0; i < 8; i += 4)
    {
        b[i] = __builtin_shufflevector(a[i], a[i + 2], 0, 1, 8, 9, 4, 5, 12, 13);
        b[i + 1] = __builtin_shufflevector(a[i], a[i + 2], 2, 3, 10, 11, 6, 7, 14, 15);
        b[i + 2] = __builtin_shufflevector(a[i + 1], a[i + 3], 0, 1, 8, 9, 4, 5, 12, 13);
        b[i + 3] = __builtin_shufflevector(a[i + 1], a[i + 3], 2, 3, 10, 11, 6, 7, 14, 15);
    }
    UNROLL for (int i = 0; i < 4; i++)
    {
        v[i] = __builtin_shufflevector(b[i], b[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        v[i + 4] = __builtin_shufflevector(b[i], b[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
}

#endif
