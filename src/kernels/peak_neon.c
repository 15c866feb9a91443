/* Peak loops for aarch64 as every machine has it: smlal over int8 products, fmla. */
#if defined(__aarch64__)
#include <arm_neon.h>

#include "kernels/peak_rows.h"

/* 16 int8 products: 8 and 8 by smull into int16 (two such fit), then pairwise into int32 */
int32_t rvi_peak_neon_int8(uint64_t n)
{
    int8x16_t a = vdupq_n_s8(3), b = vdupq_n_s8(5);
    int32x4_t acc[8];
    for (int j = 0; j < 8; j++) acc[j] = vdupq_n_s32(0);
    for (uint64_t i = 0; i < n; i++) {
#pragma GCC unroll 8
        for (int j = 0; j < 8; j++) {
            __asm__ volatile("" : "+w"(a));
            int16x8_t p = vmull_s8(vget_low_s8(a), vget_low_s8(b));
            p = vmlal_high_s8(p, a, b);
            acc[j] = vpadalq_s16(acc[j], p);
        }
    }
    for (int j = 1; j < 8; j++) acc[0] = veorq_s32(acc[0], acc[j]);
    return vgetq_lane_s32(acc[0], 0);
}

int32_t rvi_peak_neon_f32(uint64_t n)
{
    float32x4_t a = vdupq_n_f32(0.5f), acc[16];
    for (int j = 0; j < 16; j++) acc[j] = vdupq_n_f32(0);
    for (uint64_t i = 0; i < n; i++) {
        __asm__ volatile("" : "+w"(a));
#pragma GCC unroll 16
        for (int j = 0; j < 16; j++) acc[j] = vfmaq_f32(acc[j], a, a);
    }
    for (int j = 1; j < 16; j++) acc[0] = vaddq_f32(acc[0], acc[j]);
    return (int32_t)vgetq_lane_f32(vminq_f32(acc[0], vdupq_n_f32(1.0f)), 0);
}

uint64_t rvi_peak_neon_read(const void *data, size_t n)
{
    const uint8_t *p = data;
    uint8x16_t acc[16];
    for (int j = 0; j < 16; j++) acc[j] = vdupq_n_u8(0);
    for (size_t i = 0; i < n; i += 256)
#pragma GCC unroll 16
        for (int j = 0; j < 16; j++) acc[j] = veorq_u8(acc[j], vld1q_u8(p + i + (size_t)j * 16));
    for (int j = 1; j < 16; j++) acc[0] = veorq_u8(acc[0], acc[j]);
    return vgetq_lane_u64(vreinterpretq_u64_u8(acc[0]), 0);
}
#else
typedef int rvi_peak_neon_nothing;
#endif
