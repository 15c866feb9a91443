/* float_panels.h - default-mode products with F32, F16 and BF16 weights: the law `pairs` and the
 * layouts.
 *
 * Everything runs over steps of 32 inputs; past the last of n inputs weights and activations are
 * zeros up to a whole step.
 *
 * The step of two rows of 32 numbers w, x onto an accumulator, which starts from +0:
 *     even = odd = +0
 *     even = fma(w[2j], x[2j], even), odd = fma(w[2j + 1], x[2j + 1], odd),   j = 0 .. 15 in order
 *     acc = acc + (even + odd)
 * which is what one TDPBF16PS does. For each 32 inputs the accumulator takes
 *     F32    the step of (w, x)
 *     BF16   the steps of (w, h), (w, l) in this order
 *     F16    the steps of (wl, h), (wh, h), (wh, l) in this order
 * h is x rounded to bf16 (nearest, ties to even), l is x - h (exact) rounded to bf16: together 16
 * bits or more of x. wh is w cut off after 8 bits, wl is w - wh: both fit bf16 exactly, for every
 * f16. Left out is wl * l, below 2^-15 of the product.
 *
 * Numbers below RVI_PAIRS_FLOOR (2^-56, about 1.4e-17) are taken as +0 in h and l and in BF16
 * weights. Every product and so every sum is then a multiple of 2^-126: none is subnormal, and the
 * flushing of subnormals that the tiles do, and that other code may have switched on, cannot show.
 * F32 has no tile form and no floor.
 *
 * A product with an infinity or a NaN among its operands gives an infinity or a NaN; which of the
 * two is the same in all rows of the table.
 *
 * Panel: 16 outputs, step after step, 16 pairs of inputs a step; pair j is
 *     F32    16 floats w[2j] (output 0 .. 15), 16 floats w[2j + 1]
 *     F16    the same with f16
 *     BF16   output after output w[2j], w[2j + 1]
 * Prepared row: step after step 32 floats x (F32), or 32 floats h, then 32 floats l.
 * Group of 16 rows in tile order: step after step 16 rows of 32 bf16, those of h, then those of l. */
#ifndef RVI_KERNELS_FLOAT_PANELS_H
#define RVI_KERNELS_FLOAT_PANELS_H

#include "formats/qtypes.h"

enum { RVI_PAIRS_STEP = 32 };

#define RVI_PAIRS_FLOOR 0x1p-56f

static inline size_t rvi_pairs_steps(size_t n)
{
    return (n + RVI_PAIRS_STEP - 1) / RVI_PAIRS_STEP;
}

/* Bytes of a panel of 16 outputs; type: F32, F16 or BF16. */
static inline size_t rvi_float_panel_bytes(rvi_qtype type, size_t n)
{
    return rvi_pairs_steps(n) * (type == RVI_F32 ? 2048 : 1024);
}

/* Bytes of a prepared row; a row of a group in tile order takes half of it. */
static inline size_t rvi_float_act_bytes(rvi_qtype type, size_t n)
{
    return rvi_pairs_steps(n) * (type == RVI_F32 ? 128 : 256);
}

#endif
