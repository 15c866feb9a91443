/* vector_quant.h - quantized weights in a vector row, written once for all instruction sets. Inside the
 * kernels room only.
 *
 * Products here run with rows of weights in the lanes: a panel of WIDTH rows (unpack.h) against one row of
 * activations after the other. Integer parts are exact in any order and the f32 steps are those of
 * ref_quant.c, so the bits are too. Before including it, a row defines what vector_f32.h asks for, and
 *     ints                               a register of WIDTH int32, or of WIDTH pairs of int16
 *     load_ints(p) splat_ints(i)         from aligned memory; the same in all lanes
 *     to_float(i)                        int32 to f32, rounded to nearest even
 *     dot_pairs(a, b)                    a.first * b.first + a.last * b.last as int32
 *     load_int8(p)                       WIDTH int8 as floats
 *     look_up_iq4(q)                     for unpack.h
 *     dot_rows(p, b, x, t)               declared here, defined by the row: lane r is the integer dot product of
 *                                        block b of row r of panel p with the activations x, scales included */
#ifndef RVI_KERNELS_VECTOR_QUANT_H
#define RVI_KERNELS_VECTOR_QUANT_H

#include "kernels/unpack.h"

static ALWAYS_INLINE ints dot_rows(const panel *p, int b, const rvi_act_block *x, traits t);

/* The activation side of a step. */
typedef struct act_lanes {
    vec d;
    vec d_sum;  /* d * (float)(sum[0] + sum[1]) */
    ints sums;  /* the pair of sums */
} act_lanes;

static ALWAYS_INLINE act_lanes same_in_all_lanes(const rvi_act_block *x)
{
    float d_sum = x->d * (float)(x->sum[0] + x->sum[1]);
    return (act_lanes){splat(x->d), splat(d_sum), splat_ints(pair_of(x->sum[0], x->sum[1]))};
}

/* One step of WIDTH chains; m and min are read only where the type has them. */
static ALWAYS_INLINE vec chain_step(vec acc, ints dot, traits t, vec d, vec m, ints min, act_lanes x)
{
    acc = fused(to_float(dot), multiply(d, x.d), acc);
    if (t.form == ONE_MIN) acc = fused(m, x.d_sum, acc);
    if (t.form == SCALED_MIN) acc = fused(negate(to_float(dot_pairs(min, x.sums))), multiply(m, x.d), acc);
    return acc;
}

static ALWAYS_INLINE int chunk_blocks(size_t n, size_t start)
{
    return n - start < CHUNK ? (int)((n - start) / 32) : CHUNK_BLOCKS;
}

enum { PASS_ROWS = 32 }; /* activation rows that share an unpacked panel */

/* At most WIDTH rows of weights and PASS_ROWS rows of activations. */
static ALWAYS_INLINE void gemm_panel(unpack_fn unpack, traits t, const uint8_t *w, size_t w_stride, int n_w,
                                     const rvi_act_block *x, size_t x_stride, int n_x, float *out, size_t out_stride,
                                     size_t n)
{
    alignas(32) float acc[PASS_ROWS][WIDTH] = {{0}};
    for (size_t start = 0; start < n; start += CHUNK) {
        panel p;
        int n_blocks = chunk_blocks(n, start);
        unpack_rows(&p, unpack, t, w, w_stride, n_w, WIDTH, start, n_blocks);
        for (int ix = 0; ix < n_x; ix++) {
            const rvi_act_block *xb = x + (size_t)ix * x_stride + start / 32;
            vec a = load(acc[ix], WIDTH);
            for (int b = 0; b < n_blocks; b++)
                a = chain_step(a, dot_rows(&p, b, xb + b, t), t, load(p.d[b], WIDTH), load(p.m[b], WIDTH),
                               load_ints(p.min[b]), same_in_all_lanes(xb + b));
            store(acc[ix], WIDTH, a);
        }
    }
    for (int ix = 0; ix < n_x; ix++) memcpy(out + (size_t)ix * out_stride, acc[ix], (size_t)n_w * sizeof(float));
}

static ALWAYS_INLINE void gemm_rows(unpack_fn unpack, traits t, const void *w, size_t w_stride, int n_w,
                                    const rvi_act_block *x, size_t x_stride, int n_x, float *out, size_t out_stride,
                                    size_t n)
{
    for (int iw = 0; iw < n_w; iw += WIDTH)
        for (int ix = 0; ix < n_x; ix += PASS_ROWS)
            gemm_panel(unpack, t, (const uint8_t *)w + (size_t)iw * w_stride, w_stride, RVI_MIN(n_w - iw, WIDTH),
                       x + (size_t)ix * x_stride, x_stride, RVI_MIN(n_x - ix, PASS_ROWS),
                       out + (size_t)ix * out_stride + iw, out_stride, n);
}

/* Weights to f32: (d * scale) * q, then + m or - (m * min), each operation rounded. */
static ALWAYS_INLINE void dequantize(unpack_fn unpack, traits t, const uint8_t *src, float *dst, size_t n)
{
    for (size_t start = 0; start < n; start += CHUNK) {
        panel p;
        int n_blocks = chunk_blocks(n, start);
        unpack_rows(&p, unpack, t, src, 0, 1, 1, start, n_blocks);
        for (int g = 0; g < 2 * n_blocks; g++) { /* 16 weights */
            int b = g / 2, half = g % 2;
            float d = p.d[b][0], m = 0.0f;
            if (t.scaled) d *= (float)pair_part(p.scale[b][0], half);
            if (t.form == ONE_MIN) m = p.m[b][0];
            if (t.form == SCALED_MIN) m = p.m[b][0] * (float)pair_part(p.min[b][0], half);
            for (int i = 0; i < 16; i += WIDTH) {
                vec v = multiply(splat(d), load_int8(p.q[b][0] + 16 * half + i));
                if (t.form == ONE_MIN) v = add(v, splat(m));
                if (t.form == SCALED_MIN) v = subtract(v, splat(m));
                store(dst + start + (size_t)(16 * g + i), WIDTH, v);
            }
        }
    }
}

/* One copy of the products and of dequantize for each type. A row names its product loop in DEFINE_TYPE, for
 * each type of QUANTIZED, and puts the copies into a table with FILL_TYPE. */
#define X(name, text, id, block, weights, bytes) enum { name##_WEIGHTS = (weights), name##_BYTES = (bytes) };
RVI_QTYPES(X)
#undef X

#define DEFINE_TYPE(gemm, name, form, negative, large, scaled)                                                    \
    static const traits traits_##name = {form, negative, large, scaled, name##_WEIGHTS, name##_BYTES};            \
    static void gemm_act_##name(const void *w, size_t w_stride, int n_w, const rvi_act_block *x, size_t x_stride, \
                                int n_x, float *out, size_t out_stride, size_t n)                                 \
    {                                                                                                             \
        gemm(unpack_##name, traits_##name, w, w_stride, n_w, x, x_stride, n_x, out, out_stride, n);               \
    }                                                                                                             \
    static void dequantize_##name(const void *src, float *dst, size_t n)                                          \
    {                                                                                                             \
        dequantize(unpack_##name, traits_##name, src, dst, n);                                                    \
    }

#define FILL_TYPE(k, name, form, negative, large, scaled) \
    (k)->gemm_act[RVI_##name] = gemm_act_##name;          \
    (k)->dequantize[RVI_##name] = dequantize_##name;

#endif
