/* float_panels.h - default-mode products with F32, F16 and BF16 weights: the laws `runs` and
 * `pairs`, and the layouts.
 *
 * Inputs are taken up to a whole step of 32; past the last of n inputs weights and activations are
 * zeros.
 *
 * F32 and F16, the law `runs`: one fused multiply-add a weight, which is widened to f32 (exactly),
 * with activations in f32. A run is 256 inputs, the last one may be shorter. From acc = +0, run
 * after run:
 *     run = +0
 *     run = fma(w[k], x[k], run),   k over the inputs of the run in order
 *     acc = acc + run
 * so the error does not grow with the number of inputs as that of one chain would.
 *
 * BF16, the law `pairs`: the step of two rows of 32 numbers w, x onto an accumulator, which starts
 * from +0, is
 *     even = odd = +0
 *     even = fma(w[2j], x[2j], even), odd = fma(w[2j + 1], x[2j + 1], odd),   j = 0 .. 15 in order
 *     acc = acc + (even + odd)
 * which is what one TDPBF16PS does. For each 32 inputs the accumulator takes the steps of (w, h),
 * (w, l) in this order. h is x rounded to bf16 (nearest, ties to even), l is x - h (exact) rounded
 * to bf16: together 16 bits or more of x.
 *
 * Numbers below a floor are taken as +0: RVI_F16_FLOOR (2^-79) in activations for F16 weights,
 * RVI_BF16_FLOOR (2^-56) in h and l and in BF16 weights. Every product and so every sum is then a
 * multiple of 2^-126: none is subnormal, and the flushing of subnormals that the tiles do, and that
 * other code may have switched on, cannot show. F32 has no floor.
 *
 * A product with an infinity or a NaN among its operands gives an infinity or a NaN; which of the
 * two is the same in all rows of the table.
 *
 * Panel: 16 outputs, step after step, in each step
 *     F32    input after input, 16 floats
 *     F16    input after input, 16 f16
 *     BF16   pair of inputs after pair, output after output w[2j], w[2j + 1]
 * Prepared row: for F32 and F16 floats x, and a cache line more, so that the rows of a power of two
 * inputs do not fall on the same few places of a cache; for BF16 step after step 32 floats h, then
 * 32 floats l.
 * Group of 16 rows in tile order: step after step 16 rows of 32 bf16, those of h, then those of l. */
#ifndef RVI_KERNELS_FLOAT_PANELS_H
#define RVI_KERNELS_FLOAT_PANELS_H

#include "formats/qtypes.h"

enum { RVI_FLOAT_STEP = 32, RVI_RUN = 256 };

#define RVI_BF16_FLOOR 0x1p-56f
#define RVI_F16_FLOOR  0x1p-79f

static inline size_t rvi_float_steps(size_t n)
{
    return (n + RVI_FLOAT_STEP - 1) / RVI_FLOAT_STEP;
}

/* Bytes of a panel of 16 outputs; type: F32, F16 or BF16. */
static inline size_t rvi_float_panel_bytes(rvi_qtype type, size_t n)
{
    return rvi_float_steps(n) * (type == RVI_F32 ? 2048 : 1024);
}

/* Bytes of a prepared row; for BF16 a row of a group in tile order takes half of it. */
static inline size_t rvi_float_act_bytes(rvi_qtype type, size_t n)
{
    return type == RVI_BF16 ? rvi_float_steps(n) * 256 : rvi_float_steps(n) * 128 + 64;
}

#endif
