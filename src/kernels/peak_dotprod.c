/* Peak loop for aarch64 with the dot product extension. */
#if defined(__aarch64__)
#include <arm_neon.h>

#include "kernels/peak_rows.h"

int32_t rvi_peak_dotprod_int8(uint64_t n)
{
    int8x16_t a = vdupq_n_s8(3), b = vdupq_n_s8(5);
    int32x4_t acc[16];
    for (int j = 0; j < 16; j++) acc[j] = vdupq_n_s32(0);
    for (uint64_t i = 0; i < n; i++) {
        __asm__ volatile("" : "+w"(a));
#pragma GCC unroll 16
        for (int j = 0; j < 16; j++) acc[j] = vdotq_s32(acc[j], a, b);
    }
    for (int j = 1; j < 16; j++) acc[0] = veorq_s32(acc[0], acc[j]);
    return vgetq_lane_s32(acc[0], 0);
}
#else
typedef int rvi_peak_dotprod_nothing;
#endif
