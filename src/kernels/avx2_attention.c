/* avx2_attention.c - attention of the AVX2 row: vector_attention.h with registers of 8 lanes.
 *
 * Built with the flags for these instructions; nothing here may run before table.c has found them. */
#if defined(__x86_64__)

#include <stdbool.h>

#include "kernels/avx2.h"
#include "kernels/rows.h"

#define QUERIES 6
#define VECS    2

typedef __m256i dots;
typedef __m256i bytes;

static ALWAYS_INLINE vec widen_int8(const int8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p)));
}

static ALWAYS_INLINE void narrow_int8(int8_t *p, vec v)
{
    __m256i i = _mm256_cvtps_epi32(v);
    __m128i pairs = _mm_packs_epi32(_mm256_castsi256_si128(i), _mm256_extracti128_si256(i, 1));
    _mm_storel_epi64((__m128i *)(void *)p, _mm_packs_epi16(pairs, pairs));
}

static ALWAYS_INLINE dots dots_start(const int8_t *q, size_t n)
{
    (void)q;
    (void)n;
    return _mm256_setzero_si256();
}

static ALWAYS_INLINE bytes load_bytes(const uint8_t *p)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}
static ALWAYS_INLINE bytes splat_bytes(int32_t i)
{
    return _mm256_set1_epi32(i);
}

/* maddubs wants one side unsigned: a negative key lends its sign. Two products: at most 2 * 127 * 127 < 2^15. */
static ALWAYS_INLINE dots dot4(dots acc, bytes k, bytes q)
{
    __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(k), _mm256_sign_epi8(q, k));
    return _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

static ALWAYS_INLINE vec widen_nibbles(const uint8_t *p, bool high)
{
    __m256i b = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));
    return _mm256_cvtepi32_ps(high ? _mm256_srli_epi32(b, 4) : _mm256_and_si256(b, _mm256_set1_epi32(15)));
}

static ALWAYS_INLINE void split_nibbles(const uint8_t *p, bytes *to)
{
    __m256i both = _mm256_loadu_si256((const __m256i *)(const void *)p);
    to[0] = _mm256_and_si256(both, _mm256_set1_epi8(15));
    to[1] = _mm256_and_si256(_mm256_srli_epi16(both, 4), _mm256_set1_epi8(15));
}

static ALWAYS_INLINE dots dot4_low(dots acc, bytes k, bytes q)
{
    return _mm256_add_epi32(acc, _mm256_madd_epi16(_mm256_maddubs_epi16(k, q), _mm256_set1_epi16(1)));
}

static ALWAYS_INLINE dots dots_zero(void)
{
    return _mm256_setzero_si256();
}

static ALWAYS_INLINE vec dots_to_float(dots acc)
{
    return _mm256_cvtepi32_ps(acc);
}

#include "kernels/vector_attention.h"

void rvi_kernels_fill_avx2_attention(rvi_kernels *k)
{
    fill_attention(k);
}

#else
typedef int rvi_no_avx2_attention_here; /* a C file must not be empty */
#endif
