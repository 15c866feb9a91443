/* Peak loops for x86-64 with AVX-512: f32, VNNI int8, bf16; each is called only where the machine has its extension. */
#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>

#include "kernels/peak_rows.h"

int32_t rvi_peak_avx512_int8(uint64_t n)
{
    __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(5), acc[16];
    for (int j = 0; j < 16; j++) acc[j] = _mm512_setzero_si512();
    for (uint64_t i = 0; i < n; i++) {
        __asm__ volatile("" : "+v"(a));
#pragma GCC unroll 16
        for (int j = 0; j < 16; j++) acc[j] = _mm512_dpbusd_epi32(acc[j], a, b);
    }
    for (int j = 1; j < 16; j++) acc[0] = _mm512_xor_si512(acc[0], acc[j]);
    return _mm_cvtsi128_si32(_mm512_castsi512_si128(acc[0]));
}

static int32_t total(__m512 acc[16])
{
    for (int j = 1; j < 16; j++) acc[0] = _mm512_add_ps(acc[0], acc[j]);
    return (int32_t)_mm512_cvtss_f32(acc[0]);
}

int32_t rvi_peak_avx512_bf16(uint64_t n)
{
    __m512i half = _mm512_set1_epi16(0x3E80); /* 0.25 */
    __m512 acc[16];
    for (int j = 0; j < 16; j++) acc[j] = _mm512_setzero_ps();
    for (uint64_t i = 0; i < n; i++) {
        __m512bh a;
        __asm__ volatile("" : "+v"(half));
        memcpy(&a, &half, sizeof a);
#pragma GCC unroll 16
        for (int j = 0; j < 16; j++) acc[j] = _mm512_dpbf16_ps(acc[j], a, a);
    }
    for (int j = 0; j < 16; j++) acc[j] = _mm512_min_ps(acc[j], _mm512_set1_ps(1.0f));
    return total(acc);
}

int32_t rvi_peak_avx512_f32(uint64_t n)
{
    __m512 a = _mm512_set1_ps(0.5f), b = _mm512_set1_ps(0.25f), acc[16];
    for (int j = 0; j < 16; j++) acc[j] = _mm512_setzero_ps();
    for (uint64_t i = 0; i < n; i++) {
        __asm__ volatile("" : "+v"(a));
#pragma GCC unroll 16
        for (int j = 0; j < 16; j++) acc[j] = _mm512_fmadd_ps(acc[j], a, b);
    }
    return total(acc);
}

uint64_t rvi_peak_avx512_read(const void *data, size_t n)
{
    const char *p = data;
    __m512i acc[4];
    for (int j = 0; j < 4; j++) acc[j] = _mm512_setzero_si512();
    for (size_t i = 0; i < n; i += 256)
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) acc[j] = _mm512_xor_si512(acc[j], _mm512_load_si512(p + i + (size_t)j * 64));
    for (int j = 1; j < 4; j++) acc[0] = _mm512_xor_si512(acc[0], acc[j]);
    return (uint64_t)_mm_cvtsi128_si64(_mm512_castsi512_si128(acc[0]));
}
#else
typedef int rvi_peak_avx512_nothing;
#endif
