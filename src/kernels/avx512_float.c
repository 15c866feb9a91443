/* avx512_float.c - float weights in default mode with registers of 16 lanes (vector_float.h).
 *
 * Built with the flags for these instructions; nothing here may run before table.c has found them. */
#if defined(__x86_64__)

#include "kernels/avx512.h"
#include "kernels/rows.h"

enum { PANELS_MANY = 4, PANELS_ONE = 4, ROWS_HALVES = 4, COLUMNS_HALVES = 2 };

static ALWAYS_INLINE vec cut_off(vec v)
{
    __m512i upper = _mm512_set1_epi32((int)0xffff0000u);
    return _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(v), upper));
}

static ALWAYS_INLINE void load_bf16_pairs(const void *p, vec *even, vec *odd)
{
    __m512i pairs = _mm512_loadu_si512(p);
    *even = _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
    *odd = cut_off(_mm512_castsi512_ps(pairs));
}

static ALWAYS_INLINE vec round_to_bf16(vec v)
{
    __m512i bits = _mm512_castps_si512(v);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i up = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
    return cut_off(_mm512_castsi512_ps(_mm512_add_epi32(bits, up)));
}

static ALWAYS_INLINE vec absolute(vec v)
{
    return _mm512_abs_ps(v);
}

static ALWAYS_INLINE void prefetch(uintptr_t address)
{
    _mm_prefetch((const void *)address, _MM_HINT_T0);
}

#include "kernels/vector_float.h"

void rvi_kernels_fill_avx512_float(rvi_kernels *k)
{
    fill_float(k);
}

#else
typedef int rvi_no_avx512_float_here; /* a C file must not be empty */
#endif
