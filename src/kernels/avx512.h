/* avx512.h - registers of 16 lanes for vector_f32.h (which says what each function means). Only for the files that
 * are built with the flags for AVX-512 F, BW, DQ, VL and VNNI. */
#ifndef RVI_KERNELS_AVX512_H
#define RVI_KERNELS_AVX512_H

#include <immintrin.h>
#include <stdbool.h>
#include <stddef.h>

#include "formats/qtypes.h"
#include "kernels/simd.h"

#define WIDTH 16
typedef __m512 vec;
typedef __mmask16 mask;

static ALWAYS_INLINE vec splat(float f)
{
    return _mm512_set1_ps(f);
}
static ALWAYS_INLINE vec add(vec a, vec b)
{
    return _mm512_add_ps(a, b);
}
static ALWAYS_INLINE vec subtract(vec a, vec b)
{
    return _mm512_sub_ps(a, b);
}
static ALWAYS_INLINE vec multiply(vec a, vec b)
{
    return _mm512_mul_ps(a, b);
}
static ALWAYS_INLINE vec divide(vec a, vec b)
{
    return _mm512_div_ps(a, b);
}
static ALWAYS_INLINE vec negate(vec a)
{
    return _mm512_xor_ps(a, _mm512_set1_ps(-0.0f));
}
static ALWAYS_INLINE vec fused(vec a, vec b, vec c)
{
    return _mm512_fmadd_ps(a, b, c);
}

static ALWAYS_INLINE mask above(vec a, vec b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ);
}
static ALWAYS_INLINE vec higher(vec a, vec b)
{
    return _mm512_max_ps(a, b);
}
static ALWAYS_INLINE mask unordered(vec a)
{
    return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
}
static ALWAYS_INLINE mask either(mask m, mask n)
{
    return (mask)(m | n);
}
static ALWAYS_INLINE bool any(mask m)
{
    return m != 0;
}
static ALWAYS_INLINE vec choose(mask m, vec a, vec b)
{
    return _mm512_mask_blend_ps(m, b, a);
}

static ALWAYS_INLINE mask first_lanes(size_t left)
{
    return (mask)(left >= WIDTH ? 0xffffu : (1u << left) - 1u);
}

static ALWAYS_INLINE vec load(const float *p, size_t left)
{
    return left >= WIDTH ? _mm512_loadu_ps(p) : _mm512_maskz_loadu_ps(first_lanes(left), p);
}

static ALWAYS_INLINE void store(float *p, size_t left, vec v)
{
    if (left >= WIDTH)
        _mm512_storeu_ps(p, v);
    else
        _mm512_mask_storeu_ps(p, first_lanes(left), v);
}

/* Sixteen 16-bit numbers, or the `left` first ones followed by zeros. */
static ALWAYS_INLINE __m256i load_halves(const void *p, size_t left)
{
    return left >= WIDTH ? _mm256_loadu_si256((const __m256i *)p) : _mm256_maskz_loadu_epi16(first_lanes(left), p);
}

static ALWAYS_INLINE vec load_f16(const void *p, size_t left)
{
    return _mm512_cvtph_ps(load_halves(p, left));
}

static ALWAYS_INLINE vec load_bf16(const void *p, size_t left)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load_halves(p, left)), 16));
}

static ALWAYS_INLINE void store_f16(rvi_f16 *p, size_t left, vec v)
{
    __m256i h = _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    if (left >= WIDTH)
        _mm256_storeu_si256((__m256i *)p, h);
    else
        _mm256_mask_storeu_epi16(p, first_lanes(left), h);
}

static ALWAYS_INLINE vec add_exponent(vec p, vec k)
{
    return _mm512_scalef_ps(p, k); /* the result is normal, so this is the same */
}

static ALWAYS_INLINE void split_pairs(vec lo, vec hi, vec *a, vec *b)
{
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    *a = _mm512_permutex2var_ps(lo, even, hi);
    *b = _mm512_permutex2var_ps(lo, odd, hi);
}

static ALWAYS_INLINE void join_pairs(vec a, vec b, vec *lo, vec *hi)
{
    const __m512i first = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const __m512i last = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    *lo = _mm512_permutex2var_ps(a, first, b);
    *hi = _mm512_permutex2var_ps(a, last, b);
}

/* ---- for vector_quant.h ---- */

static ALWAYS_INLINE vec load_int8(const int8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)));
}

static ALWAYS_INLINE vec splat_f16(rvi_f16 h)
{
    return _mm512_cvtph_ps(_mm256_set1_epi16((short)h));
}

static ALWAYS_INLINE void look_up_iq4(int8_t *q)
{
    __m256i table = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)rvi_iq4_values));
    __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)q);
    _mm256_storeu_si256((__m256i *)(void *)q, _mm256_shuffle_epi8(table, v));
}

static ALWAYS_INLINE float add_across(vec v)
{
    __m256 v8 = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 v4 = _mm_add_ps(_mm256_castps256_ps128(v8), _mm256_extractf128_ps(v8, 1));
    __m128 v2 = _mm_add_ps(v4, _mm_movehl_ps(v4, v4));
    return _mm_cvtss_f32(_mm_add_ss(v2, _mm_movehdup_ps(v2)));
}

static ALWAYS_INLINE float max_across(vec v)
{
    return _mm512_reduce_max_ps(v);
}

#endif
