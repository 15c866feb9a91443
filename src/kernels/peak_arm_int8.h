/* peak_arm_int8.h - the loop of every int8 instruction of aarch64 that adds products to four sums: the including file
 * names the function (PEAK_NAME) and the instruction (PEAK_OP). */
#include <arm_neon.h>

#include "kernels/peak_rows.h"

int32_t PEAK_NAME(uint64_t n)
{
    int8x16_t a = vdupq_n_s8(3), b = vdupq_n_s8(5);
    int32x4_t acc[16];
    for (int j = 0; j < 16; j++) acc[j] = vdupq_n_s32(0);
    for (uint64_t i = 0; i < n; i++) {
        __asm__ volatile("" : "+w"(a)); /* not to be moved out of the loop */
#pragma GCC unroll 16
        for (int j = 0; j < 16; j++) acc[j] = PEAK_OP(acc[j], a, b);
    }
    for (int j = 1; j < 16; j++) acc[0] = veorq_s32(acc[0], acc[j]);
    return vgetq_lane_s32(acc[0], 0);
}
