/* avx512_attention.c - attention of the AVX-512 row: vector_attention.h with registers of 16 lanes.
 *
 * Built with the flags for these instructions; nothing here may run before table.c has found them. */
#if defined(__x86_64__)

#include <stdbool.h>

#include "kernels/avx512.h"
#include "kernels/rows.h"

#define QUERIES 12
#define VECS    2

typedef __m512i dots;
typedef __m512i bytes;

static ALWAYS_INLINE vec widen_int8(const int8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)));
}

static ALWAYS_INLINE void narrow_int8(int8_t *p, vec v)
{
    _mm_storeu_si128((__m128i *)(void *)p, _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(v)));
}

/* vpdpbusd wants one side unsigned: keys go in with 128 added, and the sum starts from what that adds to it. */
static ALWAYS_INLINE dots dots_start(const int8_t *q, size_t n)
{
    __m128i sum = _mm_setzero_si128();
    for (size_t i = 0; i < n; i += 16)
        sum = _mm_dpbusd_epi32(sum, _mm_set1_epi8(1), _mm_loadu_si128((const __m128i *)(const void *)(q + i)));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, _MM_SHUFFLE(1, 0, 3, 2)));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, _MM_SHUFFLE(2, 3, 0, 1)));
    return _mm512_set1_epi32(-128 * _mm_cvtsi128_si32(sum));
}

static ALWAYS_INLINE bytes load_bytes(const uint8_t *p)
{
    return _mm512_xor_si512(_mm512_loadu_si512(p), _mm512_set1_epi32((int)0x80808080u));
}

static ALWAYS_INLINE bytes splat_bytes(int32_t i)
{
    return _mm512_set1_epi32(i);
}
static ALWAYS_INLINE dots dot4(dots acc, bytes k, bytes q)
{
    return _mm512_dpbusd_epi32(acc, k, q);
}

static ALWAYS_INLINE vec widen_nibbles(const uint8_t *p, bool high)
{
    __m512i b = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
    return _mm512_cvtepi32_ps(high ? _mm512_srli_epi32(b, 4) : _mm512_and_si512(b, _mm512_set1_epi32(15)));
}

static ALWAYS_INLINE void split_nibbles(const uint8_t *p, bytes *to)
{
    const __m512i half = _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16(4), 1);
    __m512i twice = _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)(const void *)p));
    *to = _mm512_and_si512(_mm512_srlv_epi16(twice, half), _mm512_set1_epi8(15));
}

static ALWAYS_INLINE dots dot4_low(dots acc, bytes k, bytes q)
{
    return _mm512_dpbusd_epi32(acc, k, q);
}

static ALWAYS_INLINE dots dots_zero(void)
{
    return _mm512_setzero_si512();
}

static ALWAYS_INLINE vec dots_to_float(dots acc)
{
    return _mm512_cvtepi32_ps(acc);
}

#include "kernels/vector_attention.h"

void rvi_kernels_fill_avx512_attention(rvi_kernels *k)
{
    fill_attention(k);
}

#else
typedef int rvi_no_avx512_attention_here; /* a C file must not be empty */
#endif
