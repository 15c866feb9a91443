/* Peak loops for x86-64 with AVX2 and FMA. The empty asm hides the operands' values, so that nothing moves out of a
 * loop. */
#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/peak_rows.h"

int32_t rvi_peak_avx2_int8(uint64_t n)
{
    __m256i a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(5), one = _mm256_set1_epi16(1);
    __m256i acc[10];
    for (int j = 0; j < 10; j++) acc[j] = _mm256_setzero_si256();
    for (uint64_t i = 0; i < n; i++) {
#pragma GCC unroll 10
        for (int j = 0; j < 10; j++) {
            __asm__ volatile("" : "+x"(a));
            acc[j] = _mm256_add_epi32(acc[j], _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), one));
        }
    }
    for (int j = 1; j < 10; j++) acc[0] = _mm256_xor_si256(acc[0], acc[j]);
    return _mm256_extract_epi32(acc[0], 0);
}

int32_t rvi_peak_avx2_f32(uint64_t n)
{
    __m256 a = _mm256_set1_ps(0.5f), b = _mm256_set1_ps(0.25f), acc[12];
    for (int j = 0; j < 12; j++) acc[j] = _mm256_setzero_ps();
    for (uint64_t i = 0; i < n; i++) {
        __asm__ volatile("" : "+x"(a));
#pragma GCC unroll 12
        for (int j = 0; j < 12; j++) acc[j] = _mm256_fmadd_ps(acc[j], a, b);
    }
    for (int j = 1; j < 12; j++) acc[0] = _mm256_add_ps(acc[0], acc[j]);
    return (int32_t)_mm256_cvtss_f32(acc[0]);
}

uint64_t rvi_peak_avx2_read(const void *data, size_t n)
{
    const char *p = data;
    __m256i acc[8];
    for (int j = 0; j < 8; j++) acc[j] = _mm256_setzero_si256();
    for (size_t i = 0; i < n; i += 256)
#pragma GCC unroll 8
        for (int j = 0; j < 8; j++)
            acc[j] = _mm256_xor_si256(acc[j], _mm256_load_si256((const __m256i *)(const void *)(p + i) + j));
    for (int j = 1; j < 8; j++) acc[0] = _mm256_xor_si256(acc[0], acc[j]);
    return (uint64_t)_mm256_extract_epi64(acc[0], 0);
}
#else
typedef int rvi_peak_avx2_nothing;
#endif
