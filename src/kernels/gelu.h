/* gelu.h - the exact form of GELU, x * Phi(x), Phi(x) = (1 + erf(x / sqrt(2))) / 2: constants and order of
 * operations for every row.
 *
 *     u = x * x, t = |x|
 *     t <= RVI_PHI_SPLIT   Phi = fma(x, p, 0.5), p = L0 + L1 u + ... + L6 u^6 by Horner's rule in fused steps
 *     otherwise (and NaN)  k = 1 / fma(RVI_PHI_C, t, 1), p = (U1 + U2 k + ... + U6 k^5) k, Horner in fused steps,
 *                          q = p * exp(-0.5 * u); Phi = q below zero, 1 - q above
 *     gelu = x * Phi
 * Phi is off by less than 1e-7, so erf by less than 2e-7 (measured in tests/kernels). Both polynomials are minimax
 * for the relative error: 2.7e-9 and 4.2e-7 (of q, which is below 0.067 there) before rounding. -infinity gives
 * NaN, as x * Phi does. */
#ifndef RVI_KERNELS_GELU_H
#define RVI_KERNELS_GELU_H

#include "kernels/exp.h"

#define RVI_PHI_SPLIT 1.5f
#define RVI_PHI_L0    0x1.988454p-2f
#define RVI_PHI_L1    (-0x1.10582cp-4f)
#define RVI_PHI_L2    0x1.46cd9cp-7f
#define RVI_PHI_L3    (-0x1.3707e6p-10f)
#define RVI_PHI_L4    0x1.dfa54ep-14f
#define RVI_PHI_L5    (-0x1.2489cep-17f)
#define RVI_PHI_L6    0x1.b9e814p-22f
#define RVI_PHI_C     0.5625f
#define RVI_PHI_U1    0x1.cb894ep-3f
#define RVI_PHI_U2    0x1.cd1258p-3f
#define RVI_PHI_U3    0x1.26f51p-3f
#define RVI_PHI_U4    0x1.278a58p-4f
#define RVI_PHI_U5    (-0x1.5df96ep-2f)
#define RVI_PHI_U6    0x1.77f5dp-3f

static inline float rvi_phi_f32(float x)
{
    float u = x * x, t = fabsf(x);
    if (t <= RVI_PHI_SPLIT) {
        float p = fmaf(RVI_PHI_L6, u, RVI_PHI_L5);
        p = fmaf(p, u, RVI_PHI_L4);
        p = fmaf(p, u, RVI_PHI_L3);
        p = fmaf(p, u, RVI_PHI_L2);
        p = fmaf(p, u, RVI_PHI_L1);
        p = fmaf(p, u, RVI_PHI_L0);
        return fmaf(x, p, 0.5f);
    }
    float k = 1.0f / fmaf(RVI_PHI_C, t, 1.0f);
    float p = fmaf(RVI_PHI_U6, k, RVI_PHI_U5);
    p = fmaf(p, k, RVI_PHI_U4);
    p = fmaf(p, k, RVI_PHI_U3);
    p = fmaf(p, k, RVI_PHI_U2);
    p = fmaf(p, k, RVI_PHI_U1);
    float q = (p * k) * rvi_exp_f32(-0.5f * u);
    return x < 0.0f ? q : 1.0f - q;
}

#endif
