/* Peak loop for x86-64 with AVX-VNNI: vpdpbusd on 256-bit registers, without AVX-512. */
#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/peak_rows.h"

int32_t rvi_peak_avxvnni_int8(uint64_t n)
{
    __m256i a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(5), acc[12];
    for (int j = 0; j < 12; j++) acc[j] = _mm256_setzero_si256();
    for (uint64_t i = 0; i < n; i++) {
        __asm__ volatile("" : "+x"(a));
#pragma GCC unroll 12
        for (int j = 0; j < 12; j++) acc[j] = _mm256_dpbusd_avx_epi32(acc[j], a, b);
    }
    for (int j = 1; j < 12; j++) acc[0] = _mm256_xor_si256(acc[0], acc[j]);
    return _mm256_extract_epi32(acc[0], 0);
}
#else
typedef int rvi_peak_avxvnni_nothing;
#endif
