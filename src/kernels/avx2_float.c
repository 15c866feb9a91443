/* avx2_float.c - float weights in default mode with registers of 8 lanes (vector_float.h).
 *
 * Built with the flags for these instructions; nothing here may run before table.c has found them. */
#if defined(__x86_64__)

#include "kernels/avx2.h"
#include "kernels/rows.h"

enum { PANELS_MANY = 1, PANELS_ONE = 2, ROWS_HALVES = 2, COLUMNS_HALVES = 1 };

static ALWAYS_INLINE vec cut_off(vec v)
{
    return _mm256_and_ps(v, _mm256_castsi256_ps(_mm256_set1_epi32((int)0xffff0000u)));
}

static ALWAYS_INLINE void load_bf16_pairs(const void *p, vec *even, vec *odd)
{
    __m256i pairs = _mm256_loadu_si256(p);
    *even = _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
    *odd = cut_off(_mm256_castsi256_ps(pairs));
}

static ALWAYS_INLINE vec round_to_bf16(vec v)
{
    __m256i bits = _mm256_castps_si256(v);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i up = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
    return cut_off(_mm256_castsi256_ps(_mm256_add_epi32(bits, up)));
}

static ALWAYS_INLINE vec absolute(vec v)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), v);
}

static ALWAYS_INLINE void prefetch(uintptr_t address)
{
    _mm_prefetch((const void *)address, _MM_HINT_T0);
}

#include "kernels/vector_float.h"

void rvi_kernels_fill_avx2_float(rvi_kernels *k)
{
    fill_float(k);
}

#else
typedef int rvi_no_avx2_float_here; /* a C file must not be empty */
#endif
