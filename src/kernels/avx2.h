/* avx2.h - registers of 8 lanes for vector_f32.h and vector_quant.h (which say what each function means). Only
 * for the files that are built with the flags for AVX2, FMA and F16C. */
#ifndef RVI_KERNELS_AVX2_H
#define RVI_KERNELS_AVX2_H

#include <immintrin.h>
#include <stdbool.h>
#include <string.h>

#include "formats/qtypes.h"
#include "kernels/simd.h"

#define WIDTH 8
typedef __m256 vec;
typedef __m256 mask;

static ALWAYS_INLINE vec splat(float f)
{
    return _mm256_set1_ps(f);
}
static ALWAYS_INLINE vec add(vec a, vec b)
{
    return _mm256_add_ps(a, b);
}
static ALWAYS_INLINE vec subtract(vec a, vec b)
{
    return _mm256_sub_ps(a, b);
}
static ALWAYS_INLINE vec multiply(vec a, vec b)
{
    return _mm256_mul_ps(a, b);
}
static ALWAYS_INLINE vec divide(vec a, vec b)
{
    return _mm256_div_ps(a, b);
}
static ALWAYS_INLINE vec negate(vec a)
{
    return _mm256_xor_ps(a, _mm256_set1_ps(-0.0f));
}
static ALWAYS_INLINE vec fused(vec a, vec b, vec c)
{
    return _mm256_fmadd_ps(a, b, c);
}

static ALWAYS_INLINE mask above(vec a, vec b)
{
    return _mm256_cmp_ps(a, b, _CMP_GT_OQ);
}
static ALWAYS_INLINE vec higher(vec a, vec b)
{
    return _mm256_max_ps(a, b);
}
static ALWAYS_INLINE mask unordered(vec a)
{
    return _mm256_cmp_ps(a, a, _CMP_UNORD_Q);
}
static ALWAYS_INLINE mask either(mask m, mask n)
{
    return _mm256_or_ps(m, n);
}
static ALWAYS_INLINE bool any(mask m)
{
    return _mm256_movemask_ps(m) != 0;
}
static ALWAYS_INLINE vec choose(mask m, vec a, vec b)
{
    return _mm256_blendv_ps(b, a, m);
}

static ALWAYS_INLINE __m256i first_lanes_bits(size_t left)
{
    static const int32_t bits[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};
    return _mm256_loadu_si256((const __m256i *)(bits + (left < WIDTH ? WIDTH - left : 0)));
}

static ALWAYS_INLINE mask first_lanes(size_t left)
{
    return _mm256_castsi256_ps(first_lanes_bits(left));
}

static ALWAYS_INLINE vec load(const float *p, size_t left)
{
    return left >= WIDTH ? _mm256_loadu_ps(p) : _mm256_maskload_ps(p, first_lanes_bits(left));
}

static ALWAYS_INLINE void store(float *p, size_t left, vec v)
{
    if (left >= WIDTH)
        _mm256_storeu_ps(p, v);
    else
        _mm256_maskstore_ps(p, first_lanes_bits(left), v);
}

/* Eight 16-bit numbers, or the `left` first ones followed by zeros. */
static ALWAYS_INLINE __m128i load_halves(const void *p, size_t left)
{
    __m128i h = _mm_setzero_si128();
    if (left >= WIDTH)
        h = _mm_loadu_si128((const __m128i *)p);
    else
        memcpy(&h, p, left * sizeof(uint16_t));
    return h;
}

static ALWAYS_INLINE vec load_f16(const void *p, size_t left)
{
    return _mm256_cvtph_ps(load_halves(p, left));
}

static ALWAYS_INLINE vec load_bf16(const void *p, size_t left)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_halves(p, left)), 16));
}

static ALWAYS_INLINE void store_f16(rvi_f16 *p, size_t left, vec v)
{
    __m128i h = _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    if (left >= WIDTH)
        _mm_storeu_si128((__m128i *)p, h);
    else
        memcpy(p, &h, left * sizeof *p);
}

static ALWAYS_INLINE vec add_exponent(vec p, vec k)
{
    __m256i shift = _mm256_slli_epi32(_mm256_cvtps_epi32(k), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), shift));
}

/* Shuffles stay within 128-bit halves; the 64-bit permutation puts the halves of the result in order. */
static ALWAYS_INLINE vec swap_middle(vec v)
{
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(v), _MM_SHUFFLE(3, 1, 2, 0)));
}

static ALWAYS_INLINE void split_pairs(vec lo, vec hi, vec *a, vec *b)
{
    *a = swap_middle(_mm256_shuffle_ps(lo, hi, _MM_SHUFFLE(2, 0, 2, 0)));
    *b = swap_middle(_mm256_shuffle_ps(lo, hi, _MM_SHUFFLE(3, 1, 3, 1)));
}

static ALWAYS_INLINE void join_pairs(vec a, vec b, vec *lo, vec *hi)
{
    a = swap_middle(a);
    b = swap_middle(b);
    *lo = _mm256_unpacklo_ps(a, b);
    *hi = _mm256_unpackhi_ps(a, b);
}

static ALWAYS_INLINE float add_across(vec v)
{
    __m128 v4 = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    __m128 v2 = _mm_add_ps(v4, _mm_movehl_ps(v4, v4));
    return _mm_cvtss_f32(_mm_add_ss(v2, _mm_movehdup_ps(v2)));
}

static ALWAYS_INLINE float max_across(vec v)
{
    __m128 v4 = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    __m128 v2 = _mm_max_ps(v4, _mm_movehl_ps(v4, v4));
    return _mm_cvtss_f32(_mm_max_ss(v2, _mm_movehdup_ps(v2)));
}

/* ---- for vector_quant.h ---- */

static ALWAYS_INLINE vec load_int8(const int8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}

static ALWAYS_INLINE vec splat_f16(rvi_f16 h)
{
    return _mm256_cvtph_ps(_mm_set1_epi16((short)h));
}

static ALWAYS_INLINE void look_up_iq4(int8_t *q)
{
    __m256i table = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)rvi_iq4_values));
    __m256i v = _mm256_loadu_si256((const __m256i *)q);
    _mm256_storeu_si256((__m256i *)q, _mm256_shuffle_epi8(table, v));
}

#endif
