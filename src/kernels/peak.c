/* Which of the loops this machine can run. */
#include "kernels/peak.h"

#include "kernels/features.h"
#include "kernels/peak_rows.h"

/* ---- anywhere ---- */

static int32_t scalar_int8(uint64_t n)
{
    volatile int8_t start = 3;
    int32_t sum[8] = {0};
    int32_t a = start, b = start;
    for (uint64_t i = 0; i < n; i++) {
        a ^= (int32_t)(i & 1);
        for (int j = 0; j < 8; j++) sum[j] = (sum[j] + a * b) & 0xFFFFFF;
    }
    int32_t all = 0;
    for (int j = 0; j < 8; j++) all ^= sum[j];
    return all;
}

static int32_t scalar_f32(uint64_t n)
{
    volatile float start = 0.5f;
    float sum[8] = {0}, a = start, b = start, all = 0;
    for (uint64_t i = 0; i < n; i++)
        for (int j = 0; j < 8; j++) sum[j] = sum[j] * a + b;
    for (int j = 0; j < 8; j++) all += sum[j];
    return (int32_t)all;
}

#if !defined(__aarch64__)
static uint64_t scalar_read(const void *data, size_t n)
{
    const uint64_t *p = data;
    uint64_t sum[4] = {0};
    for (size_t i = 0; i < n / sizeof *p; i += 4)
        for (size_t j = 0; j < 4; j++) sum[j] += p[i + j];
    return sum[0] ^ sum[1] ^ sum[2] ^ sum[3];
}
#endif

/* ---- the table ---- */

static const struct {
    rvi_peak_kind kind;
    bool (*present)(void); /* NULL: always */
    rvi_peak peak;
} rows[] = {
    {RVI_PEAK_INT8, NULL, {"scalar", RVI_PEAK_OPS_SCALAR, scalar_int8}},
    {RVI_PEAK_BF16, NULL, {"scalar f32", RVI_PEAK_OPS_SCALAR, scalar_f32}},
#if defined(__x86_64__)
    {RVI_PEAK_INT8, rvi_has_avx2, {"avx2 vpmaddubsw", RVI_PEAK_OPS_AVX2_INT8, rvi_peak_avx2_int8}},
    {RVI_PEAK_INT8, rvi_has_avxvnni, {"avx-vnni vpdpbusd", RVI_PEAK_OPS_AVXVNNI_INT8, rvi_peak_avxvnni_int8}},
    {RVI_PEAK_INT8, rvi_has_avx512_vnni, {"avx512-vnni vpdpbusd", RVI_PEAK_OPS_AVX512_INT8, rvi_peak_avx512_int8}},
    {RVI_PEAK_INT8, rvi_has_amx_int8, {"amx-int8 tdpbssd", RVI_PEAK_OPS_AMX_INT8, rvi_peak_amx_int8}},
    {RVI_PEAK_BF16, rvi_has_avx2, {"avx2 vfmadd f32", RVI_PEAK_OPS_AVX2_F32, rvi_peak_avx2_f32}},
    {RVI_PEAK_BF16, rvi_has_avx512, {"avx512 vfmadd f32", RVI_PEAK_OPS_AVX512_F32, rvi_peak_avx512_f32}},
    {RVI_PEAK_BF16, rvi_has_avx512_bf16, {"avx512-bf16 vdpbf16ps", RVI_PEAK_OPS_AVX512_BF16, rvi_peak_avx512_bf16}},
    {RVI_PEAK_BF16, rvi_has_amx_bf16, {"amx-bf16 tdpbf16ps", RVI_PEAK_OPS_AMX_BF16, rvi_peak_amx_bf16}},
#elif defined(__aarch64__)
    {RVI_PEAK_INT8, NULL, {"neon smlal", RVI_PEAK_OPS_NEON_INT8, rvi_peak_neon_int8}},
    {RVI_PEAK_INT8, rvi_has_dotprod, {"dotprod sdot", RVI_PEAK_OPS_SDOT, rvi_peak_dotprod_int8}},
    {RVI_PEAK_INT8, rvi_has_i8mm, {"i8mm smmla", RVI_PEAK_OPS_SMMLA, rvi_peak_i8mm_int8}},
    {RVI_PEAK_BF16, NULL, {"neon fmla f32", RVI_PEAK_OPS_NEON_F32, rvi_peak_neon_f32}},
    {RVI_PEAK_BF16, rvi_has_bf16, {"bf16 bfdot", RVI_PEAK_OPS_BFDOT, rvi_peak_bf16_dot}},
    {RVI_PEAK_BF16, rvi_has_bf16, {"bf16 bfmmla", RVI_PEAK_OPS_BFMMLA, rvi_peak_bf16_mmla}},
#endif
};

const rvi_peak *rvi_peak_at(rvi_peak_kind kind, size_t i)
{
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++)
        if (rows[r].kind == kind && (!rows[r].present || rows[r].present()) && i-- == 0) return &rows[r].peak;
    return NULL;
}

rvi_peak_read_fn rvi_peak_reader(void)
{
#if defined(__x86_64__)
    return rvi_has_avx512() ? rvi_peak_avx512_read : rvi_has_avx2() ? rvi_peak_avx2_read : scalar_read;
#elif defined(__aarch64__)
    return rvi_peak_neon_read;
#else
    return scalar_read;
#endif
}
