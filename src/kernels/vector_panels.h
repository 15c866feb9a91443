/* vector_panels.h - products with weights in panels (panels.h), written once for all instruction sets. Inside the
 * kernels room only.
 *
 * A lane is an output; integer parts are exact in any order and the f32 steps are those of ref_quant.c, so the bits are
 * too. Weights of a block are unpacked once for all rows of activations of a pass. Before including it, a row defines
 * what vector_f32.h asks for, and
 *     ints, bytes                      registers of WIDTH int32, of 4 WIDTH bytes
 *     load_bytes(p)                    from an aligned address
 *     shift_bytes(v, n, bits)          (v >> n) & bits in each byte, or v << -n; n a constant, bits free of those that
 *                                      would come from the neighbouring byte
 *     both(a, b)                       a | b
 *     look_up_bytes(v)                 rvi_iq4_values[v] + 128 of each byte
 *     splat_int(i) load_small(p)       the same in all lanes; WIDTH signed bytes
 *     low_nibble(i) high_nibble(i)     i & 15, (i >> 4) & 15 in all lanes
 *     multiply_ints(a, b) add_ints(a, b) to_float(i)
 *     dot_registers(start, w, n, x, largest)
 *                                      start + sum over i < n, j < 4 of w[i] (unsigned, <= largest)
 *                                      times x[4 i + j], for each lane; largest is a constant
 *     SIGNED_BYTES                     1: dot_registers takes w - 128 where largest is over 127
 *     MAX_PASS                         rows of activations of the largest pass: 4 or 8
 *     SIDE_BY_SIDE                     1: sums of all rows of a pass are made side by side. One
 *                                      behind the other, each a chain of slow steps, they fill a
 *                                      short queue of instructions that wait */
#ifndef RVI_KERNELS_VECTOR_PANELS_H
#define RVI_KERNELS_VECTOR_PANELS_H

#include <string.h>

#include "kernels/panels.h"
#include "kernels/simd.h"

enum {
    REGISTERS = RVI_PANEL / WIDTH, /* that hold 4 inputs of 16 outputs */
    REGISTER_BYTES = 4 * WIDTH,
    AHEAD = 2048,        /* bytes between a prefetch and its use, of panels that come from memory for one row */
    AHEAD_OF_MANY = 8192 /* and for several, which take longer over each byte: mostly from the last cache */
};

/* The 8 registers of a block, from its planes at q (already at this register's place in the 64 bytes). */
static ALWAYS_INLINE void unpack_planes(bytes w[8], const uint8_t *q, traits t)
{
    UNROLL for (int p = 0; p < 4; p++)
    {
        if (t.low_bits == 8) {
            w[p] = load_bytes(q + 64 * p);
            w[p + 4] = load_bytes(q + 64 * (p + 4));
        }
        if (t.low_bits == 4) {
            bytes v = load_bytes(q + 64 * p);
            w[p] = shift_bytes(v, 0, 15);
            w[p + 4] = shift_bytes(v, 4, 15);
        }
    }
    if (t.low_bits == 2) {
        UNROLL for (int p = 0; p < 2; p++)
        {
            bytes v = load_bytes(q + 64 * p);
            w[4 * p] = shift_bytes(v, 0, 3);
            w[4 * p + 1] = shift_bytes(v, 2, 3);
            w[4 * p + 2] = shift_bytes(v, 4, 3);
            w[4 * p + 3] = shift_bytes(v, 6, 3);
        }
    }
    const uint8_t *high = q + 64 * t.low_bits;
    if (t.high_bits == 2) {
        UNROLL for (int p = 0; p < 2; p++)
        {
            bytes v = load_bytes(high + 64 * p);
            w[4 * p] = both(w[4 * p], shift_bytes(v, -4, 0x30));
            w[4 * p + 1] = both(w[4 * p + 1], shift_bytes(v, -2, 0x30));
            w[4 * p + 2] = both(w[4 * p + 2], shift_bytes(v, 0, 0x30));
            w[4 * p + 3] = both(w[4 * p + 3], shift_bytes(v, 2, 0x30));
        }
    }
    if (t.high_bits == 1) {
        bytes v = load_bytes(high);
        const int to = t.low_bits, bit = 1 << t.low_bits; /* bit i goes to bit `to` */
        w[0] = both(w[0], shift_bytes(v, 0 - to, bit));
        w[1] = both(w[1], shift_bytes(v, 1 - to, bit));
        w[2] = both(w[2], shift_bytes(v, 2 - to, bit));
        w[3] = both(w[3], shift_bytes(v, 3 - to, bit));
        w[4] = both(w[4], shift_bytes(v, 4 - to, bit));
        w[5] = both(w[5], shift_bytes(v, 5 - to, bit));
        w[6] = both(w[6], shift_bytes(v, 6 - to, bit));
        w[7] = both(w[7], shift_bytes(v, 7 - to, bit));
    }
    if (t.looked_up) UNROLL for (int i = 0; i < 8; i++) w[i] = look_up_bytes(w[i]);
}

/* What dot_registers leaves in its result. */
static ALWAYS_INLINE int offset_in_quants(traits t)
{
    return SIGNED_BYTES && t.offset == 128 ? 0 : t.offset;
}

static ALWAYS_INLINE void prefetch_planes(const uint8_t *q, int n_x, traits t)
{
    const uint8_t *from = q + (n_x == 1 ? AHEAD : AHEAD_OF_MANY);
    UNROLL for (size_t i = 0; i < panel_quant_bytes(t); i += 64) __builtin_prefetch(from + i);
}

/* dot[r] += the product with 4 n activations at x[r], r < n_x, side by side. */
static ALWAYS_INLINE void dot_rows(ints *dot, const bytes *w, int n, const int8_t *const *x, int n_x, int largest)
{
    UNROLL for (int i = 0; i < n; i++) UNROLL for (int r = 0; r < n_x; r++) dot[r] =
        dot_registers(dot[r], w + i, 1, x[r] + 4 * i, largest);
}

/* One register of outputs of n_p neighbouring panels (2 where a single row reads them from memory: two streams come
 * faster than one) against n_x rows of activations; both are constants. fetch: the panels come from memory. */
static ALWAYS_INLINE void gemm_narrow(traits t, const uint8_t *q, const uint8_t *scales, size_t panel_bytes, int n_p,
                                      int reg, const char *x, size_t x_stride, int n_x, float *out, size_t out_stride,
                                      size_t n_blocks, bool fetch)
{
    const int offset = offset_in_quants(t);
    vec acc[2][MAX_PASS];
    UNROLL for (int p = 0; p < n_p; p++) UNROLL for (int r = 0; r < n_x; r++) acc[p][r] = splat(0.0f);
    q += REGISTER_BYTES * reg;
    scales += sizeof(rvi_f16) * WIDTH * (size_t)reg;
    for (size_t b = 0; b < n_blocks; b++, q += panel_quant_bytes(t), scales += panel_scale_bytes(t))
        UNROLL for (int p = 0; p < n_p; p++)
        {
            bytes w[8];
            const uint8_t *at = q + (size_t)p * panel_bytes, *s = scales + (size_t)p * panel_bytes;
            if (fetch) prefetch_planes(at, n_x, t);
            unpack_planes(w, at, t);
            vec d = load_f16(s, WIDTH), m = d;
            if (t.form == ONE_MIN) m = load_f16(s + RVI_PANEL * sizeof(rvi_f16), WIDTH);
            const rvi_act_block *a[MAX_PASS];
            const int8_t *aq[MAX_PASS];
            ints dot[MAX_PASS];
            UNROLL for (int r = 0; SIDE_BY_SIDE && r < n_x; r++)
            {
                a[r] = (const rvi_act_block *)(const void *)(x + (size_t)r * x_stride) + b;
                aq[r] = a[r]->q;
                dot[r] = splat_int(-offset * a[r]->sum);
            }
            if (SIDE_BY_SIDE) dot_rows(dot, w, 8, aq, n_x, t.largest);
            UNROLL for (int r = 0; r < n_x; r++)
            {
                if (!SIDE_BY_SIDE) {
                    a[r] = (const rvi_act_block *)(const void *)(x + (size_t)r * x_stride) + b;
                    dot[r] = dot_registers(splat_int(-offset * a[r]->sum), w, 8, a[r]->q, t.largest);
                }
                acc[p][r] = fused(to_float(dot[r]), multiply(d, splat(a[r]->d)), acc[p][r]);
                if (t.form == ONE_MIN) acc[p][r] = fused(m, splat(a[r]->d_sum), acc[p][r]);
            }
        }
    UNROLL for (int p = 0; p < n_p; p++) UNROLL for (int r = 0; r < n_x; r++)
        store(out + (size_t)r * out_stride + RVI_PANEL * p + WIDTH * reg, WIDTH, acc[p][r]);
}

/* The scale or minimum of inputs g * scale_inputs and on. */
static ALWAYS_INLINE ints small_scale(const uint8_t *small, int g, bool min, traits t)
{
    if (scales_share_a_byte(t)) {
        ints v = load_small(small + RVI_PANEL * g);
        return min ? high_nibble(v) : low_nibble(v);
    }
    return load_small(small + RVI_PANEL * (g + (min ? 256 / t.scale_inputs : 0)));
}

/* The integer sums of 32 inputs, block g of 256. */
static ALWAYS_INLINE void sum_wide(traits t, const bytes w[8], const uint8_t *small, int g,
                                   const rvi_act_wide *const *a, int n_x, ints *dot, ints *min)
{
    const int offset = offset_in_quants(t), parts = 32 / t.scale_inputs;
    UNROLL for (int part = 0; part < parts; part++)
    {
        const int at = g * parts + part, n = 8 / parts;
        ints sc = small_scale(small, at, false, t), mn = sc;
        if (t.form == SCALED_MIN) mn = small_scale(small, at, true, t);
        const int8_t *aq[MAX_PASS];
        ints one[MAX_PASS];
        UNROLL for (int r = 0; SIDE_BY_SIDE && r < n_x; r++)
        {
            aq[r] = a[r]->q + 32 * g + 16 * part;
            one[r] = splat_int(-offset * (parts == 1 ? a[r]->sum32[at] : a[r]->sum16[at]));
        }
        if (SIDE_BY_SIDE) dot_rows(one, w + n * part, n, aq, n_x, t.largest);
        UNROLL for (int r = 0; r < n_x; r++)
        {
            int sum = parts == 1 ? a[r]->sum32[at] : a[r]->sum16[at];
            if (!SIDE_BY_SIDE)
                one[r] =
                    dot_registers(splat_int(-offset * sum), w + n * part, n, a[r]->q + 32 * g + 16 * part, t.largest);
            dot[r] = add_ints(dot[r], multiply_ints(one[r], sc));
            if (t.form == SCALED_MIN) min[r] = add_ints(min[r], multiply_ints(mn, splat_int(sum)));
        }
    }
}

static ALWAYS_INLINE void gemm_wide(traits t, const uint8_t *q, const uint8_t *scales, size_t panel_bytes, int n_p,
                                    int reg, const char *x, size_t x_stride, int n_x, float *out, size_t out_stride,
                                    size_t n_blocks, bool fetch)
{
    const size_t halves = RVI_PANEL * sizeof(rvi_f16);
    vec acc[2][MAX_PASS];
    UNROLL for (int p = 0; p < n_p; p++) UNROLL for (int r = 0; r < n_x; r++) acc[p][r] = splat(0.0f);
    q += REGISTER_BYTES * reg;
    for (size_t b = 0; b < n_blocks; b++, scales += panel_scale_bytes(t)) {
        const rvi_act_wide *a[MAX_PASS];
        ints dot[2][MAX_PASS], min[2][MAX_PASS];
        UNROLL for (int r = 0; r < n_x; r++)
        {
            a[r] = (const rvi_act_wide *)(const void *)(x + (size_t)r * x_stride) + b;
            UNROLL for (int p = 0; p < n_p; p++) dot[p][r] = min[p][r] = splat_int(0);
        }
        for (int g = 0; g < 8; g++, q += panel_quant_bytes(t)) UNROLL for (int p = 0; p < n_p; p++)
            {
                bytes w[8];
                const uint8_t *at = q + (size_t)p * panel_bytes;
                const uint8_t *small =
                    scales + (size_t)p * panel_bytes + (t.form == NO_MIN ? 1 : 2) * halves + WIDTH * reg;
                if (fetch) prefetch_planes(at, n_x, t);
                unpack_planes(w, at, t);
                sum_wide(t, w, small, g, a, n_x, dot[p], min[p]);
            }
        UNROLL for (int p = 0; p < n_p; p++)
        {
            const uint8_t *s = scales + (size_t)p * panel_bytes + sizeof(rvi_f16) * WIDTH * (size_t)reg;
            vec d = load_f16(s, WIDTH), m = d;
            if (t.form == SCALED_MIN) m = load_f16(s + halves, WIDTH);
            UNROLL for (int r = 0; r < n_x; r++)
            {
                vec xd = splat(a[r]->d);
                acc[p][r] = fused(to_float(dot[p][r]), multiply(d, xd), acc[p][r]);
                if (t.form == SCALED_MIN) acc[p][r] = fused(negate(to_float(min[p][r])), multiply(m, xd), acc[p][r]);
            }
        }
    }
    UNROLL for (int p = 0; p < n_p; p++) UNROLL for (int r = 0; r < n_x; r++)
        store(out + (size_t)r * out_stride + RVI_PANEL * p + WIDTH * reg, WIDTH, acc[p][r]);
}

static ALWAYS_INLINE void gemm_pass(traits t, const uint8_t *panel, size_t panel_bytes, int n_p, const char *x,
                                    size_t x_stride, int n_x, float *out, size_t out_stride, size_t n, bool fetch)
{
    const uint8_t *scales = panel + n / 32 * panel_quant_bytes(t);
    size_t n_blocks = n / t.block_weights;
    for (int reg = 0; reg < REGISTERS; reg++)
        (t.block_weights == 32 ? gemm_narrow : gemm_wide)(t, panel, scales, panel_bytes, n_p, reg, x, x_stride, n_x,
                                                          out, out_stride, n_blocks, fetch);
}

/* A panel stays in cache while passes of rows go over it: as few as can be, each of about as many rows. */
static ALWAYS_INLINE void gemm_panels(traits t, size_t panel_bytes, const void *panels, int n_panels, const char *x,
                                      size_t x_stride, int n_x, float *out, size_t out_stride, size_t n)
{
    int p = 0;
    for (; n_x == 1 && p + 2 <= n_panels; p += 2)
        gemm_pass(t, (const uint8_t *)panels + (size_t)p * panel_bytes, panel_bytes, 2, x, x_stride, 1,
                  out + RVI_PANEL * p, out_stride, n, true);
    for (; p < n_panels; p++) {
        const uint8_t *panel = (const uint8_t *)panels + (size_t)p * panel_bytes;
        int n_passes = (n_x + MAX_PASS - 1) / MAX_PASS;
        for (int r = 0, rows; r < n_x; r += rows, n_passes--) {
            const char *from = x + (size_t)r * x_stride;
            float *to = out + (size_t)r * out_stride + RVI_PANEL * p;
            rows = (n_x - r + n_passes - 1) / n_passes;
            switch (rows) {
#define PASS(some)                                                                                                     \
    case (some):                                                                                                       \
        if ((some) <= MAX_PASS)                                                                                        \
            gemm_pass(t, panel, panel_bytes, 1, from, x_stride, (some), to, out_stride, n,                             \
                      (some) == 1 || (SIDE_BY_SIDE && r == 0));                                                        \
        break;
                PASS(1)
                PASS(2)
                PASS(3)
                PASS(4)
                PASS(5)
                PASS(6)
                PASS(7)
                PASS(8)
#undef PASS
            }
        }
    }
}

#define DEFINE_PANELS(name, ...)                                                                                       \
    static void gemm_panels_##name(const void *panels, int n_panels, const void *x, size_t x_stride, int n_x,          \
                                   float *out, size_t out_stride, size_t n)                                            \
    {                                                                                                                  \
        gemm_panels(TRAITS(name, __VA_ARGS__), rvi_panel_bytes(RVI_##name, n), panels, n_panels, x, x_stride, n_x,     \
                    out, out_stride, n);                                                                               \
    }

#define FILL_PANELS(k, name) (k)->gemm_panels[RVI_##name] = gemm_panels_##name;

#endif
