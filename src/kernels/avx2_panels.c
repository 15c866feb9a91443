/* avx2_panels.c - the AVX2 row's products. */
#if defined(__x86_64__)

#include "kernels/avx2_panels.h"
#include "kernels/rows.h"

enum { SIGNED_BYTES = 1 };

/* maddubs adds two products in int16: 2 * largest * 127, so several results can be added there before they would
 * overflow. Bytes over 127 stand for themselves less 128; a negative weight lends its sign: at most 2 * 128 * 127 =
 * 32512. */
static ALWAYS_INLINE ints dot_registers(ints start, const bytes *w, int n, const int8_t *x, int largest)
{
    const __m256i ones = _mm256_set1_epi16(1);
    if (largest > 127) {
        UNROLL for (int i = 0; i < n; i++)
        {
            __m256i v = _mm256_xor_si256(w[i], _mm256_set1_epi8((char)0x80)), xv = four_everywhere(x + 4 * i);
            __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(v), _mm256_sign_epi8(xv, v));
            start = _mm256_add_epi32(start, _mm256_madd_epi16(pairs, ones));
        }
        return start;
    }
    const int fit = 32767 / (2 * 127 * largest), together = fit >= 8 ? 8 : fit >= 4 ? 4 : 2;
    UNROLL for (int i = 0; i < n; i += together)
    {
        __m256i pairs = _mm256_maddubs_epi16(w[i], four_everywhere(x + 4 * i));
        UNROLL for (int j = 1; j < 8; j++) if (j < together && i + j < n) pairs =
            _mm256_add_epi16(pairs, _mm256_maddubs_epi16(w[i + j], four_everywhere(x + 4 * (i + j))));
        start = _mm256_add_epi32(start, _mm256_madd_epi16(pairs, ones));
    }
    return start;
}

#include "kernels/vector_panels.h"

#define X(...) DEFINE_PANELS(__VA_ARGS__)
QUANTIZED(X)
#undef X

void rvi_kernels_fill_avx2_panels(rvi_kernels *k)
{
#define X(name, ...) FILL_PANELS(k, name)
    QUANTIZED(X)
#undef X
}

#else
typedef int rvi_no_avx2_panels_here; /* a C file must not be empty */
#endif
