/* Peak loops for aarch64 with the bf16 extension. */
#if defined(__aarch64__)
#include <arm_neon.h>

#include "kernels/peak_rows.h"

static int32_t total(float32x4_t acc[16])
{
    for (int j = 1; j < 16; j++) acc[0] = vaddq_f32(acc[0], acc[j]);
    return (int32_t)vgetq_lane_f32(vminq_f32(acc[0], vdupq_n_f32(1.0f)), 0);
}

/* clang-format off */
#define PEAK(name, op)                                                                      \
    int32_t name(uint64_t n)                                                                \
    {                                                                                       \
        uint16x8_t bits = vdupq_n_u16(0x3E80); /* 0.25 */                                   \
        float32x4_t acc[16];                                                                \
        for (int j = 0; j < 16; j++) acc[j] = vdupq_n_f32(0);                               \
        for (uint64_t i = 0; i < n; i++) {                                                  \
            __asm__ volatile("" : "+w"(bits));                                              \
            bfloat16x8_t a = vreinterpretq_bf16_u16(bits);                                  \
            _Pragma("GCC unroll 16")                                                        \
            for (int j = 0; j < 16; j++) acc[j] = op(acc[j], a, a);                         \
        }                                                                                   \
        return total(acc);                                                                  \
    }
/* clang-format on */

PEAK(rvi_peak_bf16_dot, vbfdotq_f32)
PEAK(rvi_peak_bf16_mmla, vbfmmlaq_f32)
#else
typedef int rvi_peak_bf16_nothing;
#endif
