/* avx2_panels.h - registers of 8 lanes for vector_panels.h (which says what each function means), but for
 * dot_registers, where AVX2 and AVX-VNNI differ. */
#ifndef RVI_KERNELS_AVX2_PANELS_H
#define RVI_KERNELS_AVX2_PANELS_H

#include "kernels/avx2.h"

enum { MAX_PASS = 4, SIDE_BY_SIDE = 0 };
typedef __m256i ints;
typedef __m256i bytes;

static ALWAYS_INLINE bytes load_bytes(const uint8_t *p)
{
    return _mm256_load_si256((const __m256i *)p);
}
static ALWAYS_INLINE bytes both(bytes a, bytes b)
{
    return _mm256_or_si256(a, b);
}
static ALWAYS_INLINE ints splat_int(int i)
{
    return _mm256_set1_epi32(i);
}
static ALWAYS_INLINE ints multiply_ints(ints a, ints b)
{
    return _mm256_mullo_epi32(a, b);
}
static ALWAYS_INLINE ints add_ints(ints a, ints b)
{
    return _mm256_add_epi32(a, b);
}
static ALWAYS_INLINE vec to_float(ints i)
{
    return _mm256_cvtepi32_ps(i);
}
static ALWAYS_INLINE ints low_nibble(ints i)
{
    return _mm256_and_si256(i, splat_int(15));
}
static ALWAYS_INLINE ints high_nibble(ints i)
{
    return _mm256_and_si256(_mm256_srli_epi32(i, 4), splat_int(15));
}

static ALWAYS_INLINE ints load_small(const uint8_t *p)
{
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p));
}

static ALWAYS_INLINE bytes shift_bytes(bytes v, int n, int bits)
{
    if (n > 0) v = _mm256_srli_epi16(v, n);
    if (n < 0) v = _mm256_slli_epi16(v, -n);
    return _mm256_and_si256(v, _mm256_set1_epi8((char)bits));
}

static ALWAYS_INLINE bytes look_up_bytes(bytes v)
{
    __m128i table = _mm_xor_si128(_mm_loadu_si128((const __m128i *)rvi_iq4_values), _mm_set1_epi8((char)0x80));
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), v);
}

static ALWAYS_INLINE __m256i four_everywhere(const int8_t *x)
{
    int four;
    memcpy(&four, x, sizeof four);
    return _mm256_set1_epi32(four);
}

#endif
