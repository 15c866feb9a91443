/* avx512_panels.h - registers of 16 lanes for vector_panels.h (which says what each function means), and activations
 * to int8, for the files of the AVX-512 and AMX rows. */
#ifndef RVI_KERNELS_AVX512_PANELS_H
#define RVI_KERNELS_AVX512_PANELS_H

#include <math.h>

#include "kernels/avx512.h"

enum { MAX_PASS = 8, SIDE_BY_SIDE = 1, SIGNED_BYTES = 0 };
typedef __m512i ints;
typedef __m512i bytes;

static ALWAYS_INLINE bytes load_bytes(const uint8_t *p)
{
    return _mm512_load_si512(p);
}
static ALWAYS_INLINE bytes both(bytes a, bytes b)
{
    return _mm512_or_si512(a, b);
}
static ALWAYS_INLINE ints splat_int(int i)
{
    return _mm512_set1_epi32(i);
}
static ALWAYS_INLINE ints multiply_ints(ints a, ints b)
{
    return _mm512_mullo_epi32(a, b);
}
static ALWAYS_INLINE ints add_ints(ints a, ints b)
{
    return _mm512_add_epi32(a, b);
}
static ALWAYS_INLINE vec to_float(ints i)
{
    return _mm512_cvtepi32_ps(i);
}
static ALWAYS_INLINE ints low_nibble(ints i)
{
    return _mm512_and_si512(i, splat_int(15));
}
static ALWAYS_INLINE ints high_nibble(ints i)
{
    return _mm512_and_si512(_mm512_srli_epi32(i, 4), splat_int(15));
}

static ALWAYS_INLINE ints load_small(const uint8_t *p)
{
    return _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p));
}

static ALWAYS_INLINE bytes shift_bytes(bytes v, int n, int bits)
{
    typedef uint16_t halves __attribute__((vector_size(64))); /* compilers differ in what the intrinsic takes */
    if (n > 0) v = (bytes)((halves)v >> n);
    if (n < 0) v = (bytes)((halves)v << -n);
    return _mm512_and_si512(v, _mm512_set1_epi8((char)bits));
}

static ALWAYS_INLINE bytes look_up_bytes(bytes v)
{
    __m128i table = _mm_xor_si128(_mm_loadu_si128((const __m128i *)rvi_iq4_values), _mm_set1_epi8((char)0x80));
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), v);
}

/* The instruction itself can give four activations to all lanes, which compilers do not see. */
static ALWAYS_INLINE ints dot_registers(ints start, const bytes *w, int n, const int8_t *x, int largest)
{
    typedef int four __attribute__((aligned(1), may_alias));
    (void)largest;
    UNROLL for (int i = 0; i < n; i++)
    {
        const four *all = (const void *)(x + 4 * i);
        __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(start) : "v"(w[i]), "m"(*all));
    }
    return start;
}

#include "kernels/vector_panels.h"

/* ---- activations ---- */

/* The bits of |x| order as integers like the values, with infinity and then NaN on top. */
static ALWAYS_INLINE __m512i magnitude(__m512 v)
{
    return _mm512_and_si512(_mm512_castps_si512(v), _mm512_set1_epi32(0x7fffffff));
}

/* d of values whose largest magnitude is this; the factor that makes integers of them, 0: all of these are 0. */
static ALWAYS_INLINE float choose_scale(__m512i top, float *d)
{
    int32_t bits = _mm512_reduce_max_epi32(top);
    float amax;
    __builtin_memcpy(&amax, &bits, sizeof amax);
    bool usable = amax >= 1e-30f && amax < INFINITY;
    *d = usable ? amax / 127.0f : amax < INFINITY ? 0.0f : NAN;
    return usable ? 127.0f / amax : 0.0f;
}

/* 16 values as integers, and as bytes at q. */
static ALWAYS_INLINE __m512i quantize16(__m512 v, float inverse, int8_t *q)
{
    __m512i i = _mm512_cvtps_epi32(_mm512_mul_ps(v, _mm512_set1_ps(inverse)));
    _mm_storeu_si128((__m128i *)q, _mm512_cvtepi32_epi8(i));
    return i;
}

/* 32 values: d, bytes at q; returns their sum. */
static ALWAYS_INLINE int quantize32(const float *x, float *d, int8_t *q)
{
    __m512 a = _mm512_loadu_ps(x), b = _mm512_loadu_ps(x + 16);
    float inverse = choose_scale(_mm512_max_epi32(magnitude(a), magnitude(b)), d);
    if (inverse == 0.0f) a = b = _mm512_setzero_ps(); /* 0 times infinity would not be 0 */
    return _mm512_reduce_add_epi32(_mm512_add_epi32(quantize16(a, inverse, q), quantize16(b, inverse, q + 16)));
}

/* The one d of 256 values, and the factor that makes integers of them. */
static ALWAYS_INLINE float choose_wide_scale(const float *x, float *d)
{
    __m512i top = _mm512_setzero_si512();
    for (int i = 0; i < 256; i += 16) top = _mm512_max_epi32(top, magnitude(_mm512_loadu_ps(x + i)));
    return choose_scale(top, d);
}

/* 64 values: bytes at q; sums of each 16. */
static ALWAYS_INLINE void quantize64(const float *x, float inverse, int8_t *q, int32_t sums[4])
{
    UNROLL for (int i = 0; i < 4; i++)
        quantize16(inverse == 0.0f ? _mm512_setzero_ps() : _mm512_loadu_ps(x + 16 * i), inverse, q + 16 * i);
    __m512i four = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), _mm512_loadu_si512(q));
    four = _mm512_add_epi32(four, _mm512_shuffle_epi32(four, _MM_PERM_BADC));
    four = _mm512_add_epi32(four, _mm512_shuffle_epi32(four, _MM_PERM_CDAB));
    _mm512_mask_compressstoreu_epi32(sums, 0x1111, four);
}

#endif
