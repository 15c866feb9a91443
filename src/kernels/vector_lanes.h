/* vector_lanes.h - what the vector bodies share: the tree of sum16, exp and the soft cap in all lanes. Inside the
 * kernels room only.
 *
 * Before including it (or a body that includes it), a row defines its registers and what they can do:
 *     WIDTH                              lanes of a register: 4, 8 or 16
 *     vec, mask                          a register of floats; the result of a comparison
 *     splat(f) add(a, b) subtract(a, b) multiply(a, b) divide(a, b) negate(a)   correctly rounded
 *     fused(a, b, c)                     a * b + c, rounded once
 *     load(p, left) store(p, left, v)    WIDTH floats, or the `left` first ones when left < WIDTH (the others load as
 *                                        0; nothing past the first ones is touched)
 *     load_f16(p, left) load_bf16(p, left) store_f16(p, left, v)   the same with 16-bit numbers at any address
 *     load_int8(p)                       WIDTH int8 as floats
 *     first_lanes(left)                  mask of the lanes below left
 *     above(a, b) unordered(a) either(m, n) any(m)   a > b; a is NaN; m or n; is any lane set
 *     choose(m, a, b)                    a where m is set, else b
 *     higher(a, b)                       a where a > b, else b (also where one is NaN)
 *     add_exponent(p, k)                 p * 2^k by adding the integer k (a float) to the exponent field of p
 *     split_pairs(lo, hi, &a, &b)        a: the even elements of lo then hi, b: the odd ones
 *     join_pairs(a, b, &lo, &hi)         the reverse
 *     add_across(v)                      the end of the tree of sum16 within one register
 *     max_across(v)                      the largest lane, where none is NaN */
#ifndef RVI_KERNELS_VECTOR_LANES_H
#define RVI_KERNELS_VECTOR_LANES_H

#include <math.h>

#include "kernels/exp.h"
#include "kernels/simd.h"

/* Sixteen lanes of sum16: register r holds lanes WIDTH * r and on. */
enum { SUM_REGISTERS = 16 / WIDTH };

static ALWAYS_INLINE float add_lanes(vec acc[SUM_REGISTERS])
{
    UNROLL for (int half = SUM_REGISTERS / 2; half >= 1; half /= 2) UNROLL for (int r = 0; r < half; r++) acc[r] =
        add(acc[r], acc[r + half]);
    return add_across(acc[0]);
}

/* rvi_exp_f32 of NaN and of what is not above RVI_EXP_MAX, in all lanes. Lanes below the range compute something
 * harmless and are replaced at the end; NaN goes through every step. */
static ALWAYS_INLINE vec exp_down_lanes(vec x)
{
    vec k = subtract(fused(x, splat(RVI_EXP_LOG2E), splat(RVI_EXP_ROUND)), splat(RVI_EXP_ROUND));
    vec r = fused(k, splat(-RVI_EXP_LN2_HI), x);
    r = fused(k, splat(-RVI_EXP_LN2_LO), r);
    vec p = fused(splat(RVI_EXP_C6), r, splat(RVI_EXP_C5));
    p = fused(p, r, splat(RVI_EXP_C4));
    p = fused(p, r, splat(RVI_EXP_C3));
    p = fused(p, r, splat(RVI_EXP_C2));
    p = fused(p, r, splat(1.0f));
    p = fused(p, r, splat(1.0f));
    return choose(above(splat(RVI_EXP_MIN), x), splat(0.0f), add_exponent(p, k));
}

/* rvi_exp_f32 in all lanes. */
static ALWAYS_INLINE vec exp_lanes(vec x)
{
    vec y = exp_down_lanes(x);
    y = choose(above(x, splat(RVI_EXP_MAX)), splat(INFINITY), y);
    return choose(unordered(x), x, y);
}

static ALWAYS_INLINE vec cap_lanes(vec x, float cap)
{
    vec e = exp_lanes(multiply(splat(2.0f), divide(x, splat(cap))));
    return multiply(splat(cap), subtract(splat(1.0f), divide(splat(2.0f), add(e, splat(1.0f)))));
}

#endif
