/* peak_rows.h - the loops of peak.h as each file offers them. A file for another CPU family compiles to nothing. */
#ifndef RVI_KERNELS_PEAK_ROWS_H
#define RVI_KERNELS_PEAK_ROWS_H

#include <stdint.h>
#include <stddef.h>

/* Rounds and operations: each run does OPS operations a round. */
enum {
    RVI_PEAK_OPS_SCALAR = 8 * 2,
    RVI_PEAK_OPS_AVX2_INT8 = 10 * 32 * 2,
    RVI_PEAK_OPS_AVX2_F32 = 12 * 8 * 2,
    RVI_PEAK_OPS_AVXVNNI_INT8 = 12 * 32 * 2,
    RVI_PEAK_OPS_AVX512_INT8 = 16 * 64 * 2,
    RVI_PEAK_OPS_AVX512_BF16 = 16 * 32 * 2,
    RVI_PEAK_OPS_AVX512_F32 = 16 * 16 * 2,
    RVI_PEAK_OPS_AMX_INT8 = 4 * 16 * 16 * 64 * 2,
    RVI_PEAK_OPS_AMX_BF16 = 4 * 16 * 16 * 32 * 2,
    RVI_PEAK_OPS_NEON_INT8 = 8 * 16 * 2,
    RVI_PEAK_OPS_NEON_F32 = 16 * 4 * 2,
    RVI_PEAK_OPS_SDOT = 16 * 16 * 2,
    RVI_PEAK_OPS_SMMLA = 16 * 32 * 2,
    RVI_PEAK_OPS_BFDOT = 16 * 8 * 2,
    RVI_PEAK_OPS_BFMMLA = 16 * 16 * 2,
};

int32_t rvi_peak_avx2_int8(uint64_t n);
int32_t rvi_peak_avx2_f32(uint64_t n);
uint64_t rvi_peak_avx2_read(const void *data, size_t n);
int32_t rvi_peak_avxvnni_int8(uint64_t n);
int32_t rvi_peak_avx512_int8(uint64_t n);
int32_t rvi_peak_avx512_bf16(uint64_t n);
int32_t rvi_peak_avx512_f32(uint64_t n);
uint64_t rvi_peak_avx512_read(const void *data, size_t n);
int32_t rvi_peak_amx_int8(uint64_t n);
int32_t rvi_peak_amx_bf16(uint64_t n);
int32_t rvi_peak_neon_int8(uint64_t n);
int32_t rvi_peak_neon_f32(uint64_t n);
uint64_t rvi_peak_neon_read(const void *data, size_t n);
int32_t rvi_peak_dotprod_int8(uint64_t n);
int32_t rvi_peak_i8mm_int8(uint64_t n);
int32_t rvi_peak_bf16_dot(uint64_t n);
int32_t rvi_peak_bf16_mmla(uint64_t n);

#endif
