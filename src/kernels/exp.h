/* exp.h - the exponential of every row: constants, the order of operations, and the scalar form.
 *
 * exp(x) for f32, error below 1 ulp (measured in tests/kernels):
 *     x is NaN          -> NaN
 *     x > RVI_EXP_MAX   -> +infinity         (the last f32 whose exponential is finite)
 *     x < RVI_EXP_MIN   -> +0                (results below about 1.1761e-38; no result is denormal)
 *     otherwise         k = x / ln 2 rounded to the nearest even integer (by adding and taking away 1.5 * 2^23),
 *                       r = x - k ln 2 in two fused steps, |r| <= ln 2 / 2,
 *                       p = 1 + r + r^2 (C2 + C3 r + ... + C6 r^4) by Horner's rule in fused steps,
 *                       result = p * 2^k by adding k to p's exponent field.
 * The addition on the exponent field cannot leave the normal range: at k = 128 the bound RVI_EXP_MAX keeps p
 * below 1, and at k = -126 the bound RVI_EXP_MIN keeps p at or above 1. A vector row repeats these steps lane
 * by lane, so it gives the same bits. */
#ifndef RVI_KERNELS_EXP_H
#define RVI_KERNELS_EXP_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define RVI_EXP_MAX    0x1.62e42ep+6f   /* 88.7228317 */
#define RVI_EXP_MIN    (-0x1.5d581p+6f) /* -87.3360023 */
#define RVI_EXP_LOG2E  0x1.715476p+0f
#define RVI_EXP_ROUND  0x1.8p+23f  /* adding it leaves the integer in the low bits */
#define RVI_EXP_LN2_HI 0x1.62ep-1f /* 12 bits, so that k * LN2_HI is exact */
#define RVI_EXP_LN2_LO 0x1.0bfbe8p-15f
/* Minimax for the relative error over |r| <= 0.34675: 3.1e-9 before rounding. */
#define RVI_EXP_C2 0x1.fffffcp-2f
#define RVI_EXP_C3 0x1.555492p-3f
#define RVI_EXP_C4 0x1.5558f4p-5f
#define RVI_EXP_C5 0x1.123a2p-7f
#define RVI_EXP_C6 0x1.6a23ccp-10f

static inline float rvi_exp_f32(float x)
{
    if (x != x) return x;
    if (x > RVI_EXP_MAX) return INFINITY;
    if (x < RVI_EXP_MIN) return 0.0f;
    float k = fmaf(x, RVI_EXP_LOG2E, RVI_EXP_ROUND) - RVI_EXP_ROUND;
    float r = fmaf(k, -RVI_EXP_LN2_HI, x);
    r = fmaf(k, -RVI_EXP_LN2_LO, r);
    float p = fmaf(RVI_EXP_C6, r, RVI_EXP_C5);
    p = fmaf(p, r, RVI_EXP_C4);
    p = fmaf(p, r, RVI_EXP_C3);
    p = fmaf(p, r, RVI_EXP_C2);
    p = fmaf(p, r, 1.0f);
    p = fmaf(p, r, 1.0f);
    uint32_t bits;
    memcpy(&bits, &p, sizeof bits);
    bits += (uint32_t)(int32_t)k << 23;
    memcpy(&p, &bits, sizeof p);
    return p;
}

/* gelu: g / (1 + exp(RVI_GELU_Z * (g * fma(RVI_GELU_CUBE, g * g, 1)))) */
#define RVI_GELU_CUBE 0.044715f
#define RVI_GELU_Z    (-1.5957691216057308f) /* -2 sqrt(2 / pi) */

#endif
