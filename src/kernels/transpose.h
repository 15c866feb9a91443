/* transpose.h - small squares of 32-bit words. Inside the kernels room only. */
#ifndef RVI_KERNELS_TRANSPOSE_H
#define RVI_KERNELS_TRANSPOSE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kernels/simd.h"

typedef uint32_t words4 __attribute__((vector_size(16)));
typedef uint32_t words8 __attribute__((vector_size(32)));
typedef uint32_t words16 __attribute__((vector_size(64)));

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

/* 8 words of each of 16 rows, `stride` bytes apart: out[i] becomes word i of all rows. */
static ALWAYS_INLINE void turn_eight_words(words16 out[8], const uint8_t *rows, size_t stride)
{
    words16 v[8], a[8], b[8];
    UNROLL for (size_t r = 0; r < 8; r++)
    {
        words8 low, high;
        memcpy(&low, rows + r * stride, sizeof low);
        memcpy(&high, rows + (r + 8) * stride, sizeof high);
        v[r] = __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    }
    UNROLL for (int i = 0; i < 8; i += 2)
    {
        a[i] = __builtin_shufflevector(v[i], v[i + 1], 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29);
        a[i + 1] = __builtin_shufflevector(v[i], v[i + 1], 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
    }
    UNROLL for (int i = 0; i < 8; i += 4) UNROLL for (int j = 0; j < 2; j++)
    {
        const words16 one = a[i + j], other = a[i + j + 2];
        b[i + 2 * j] = __builtin_shufflevector(one, other, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
        b[i + 2 * j + 1] =
            __builtin_shufflevector(one, other, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
    }
    UNROLL for (int i = 0; i < 4; i++)
    {
        out[i] = __builtin_shufflevector(b[i], b[i + 4], 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27);
        out[i + 4] =
            __builtin_shufflevector(b[i], b[i + 4], 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31);
    }
}

/* The same with 4 words of each row. */
static ALWAYS_INLINE void turn_four_words(words16 out[4], const uint8_t *rows, size_t stride)
{
    words16 v[4], a[4];
    UNROLL for (size_t r = 0; r < 4; r++)
    {
        words4 part[4];
        UNROLL for (size_t l = 0; l < 4; l++) memcpy(&part[l], rows + (r + 4 * l) * stride, sizeof part[l]);
        words8 low = __builtin_shufflevector(part[0], part[1], 0, 1, 2, 3, 4, 5, 6, 7);
        words8 high = __builtin_shufflevector(part[2], part[3], 0, 1, 2, 3, 4, 5, 6, 7);
        v[r] = __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    }
    UNROLL for (int i = 0; i < 4; i += 2)
    {
        a[i] = __builtin_shufflevector(v[i], v[i + 1], 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29);
        a[i + 1] = __builtin_shufflevector(v[i], v[i + 1], 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
    }
    UNROLL for (int i = 0; i < 2; i++)
    {
        out[2 * i] = __builtin_shufflevector(a[i], a[i + 2], 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
        out[2 * i + 1] =
            __builtin_shufflevector(a[i], a[i + 2], 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
    }
}

#endif
