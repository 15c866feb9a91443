/* vector_float.h - float weights in default mode (float_panels.h has the law) for a vector row,
 * written once for all instruction sets. Inside the kernels room only.
 *
 * A register holds one input's weights for WIDTH outputs, so the law's chains run in the lanes.
 * Steps start their chains from zero, which lets the processor work on several at once; only
 * `acc + ...` ties them together. Besides what vector_f32.h asks of a row, this needs
 *     load_bf16_pairs(p, &even, &odd)   WIDTH pairs of bf16
 *     cut_off(v)                        the upper 16 bits of each lane
 *     round_to_bf16(v)                  nearest, ties to even; of a NaN anything
 *     absolute(v)
 *     prefetch(address)                 of the cache line there, which need not exist
 *     ROWS_SINGLE, PANELS_SINGLE        rows (up to 6) and panels (1 or 2) that go together in F32
 *                                       and BF16, 2 chains for a row and a register of outputs
 *     ROWS_TRIPLE, COLUMNS_TRIPLE       rows (up to 6) that go together in F16, 6 chains for a row
 *                                       and a register of outputs; such registers for a single row
 * and afterwards calls fill_float(table). */
#ifndef RVI_KERNELS_VECTOR_FLOAT_H
#define RVI_KERNELS_VECTOR_FLOAT_H

#include <math.h>
#include <stdalign.h>
#include <stdint.h>
#include <string.h>

#include "kernels/float_panels.h"
#include "kernels/kernels.h"
#include "kernels/simd.h"

enum { STEP = RVI_PAIRS_STEP, PANEL_COLUMNS = 16 / WIDTH, PAIR_COLUMNS = 2 * PANEL_COLUMNS };
enum { PREFETCH_BYTES = 4096 };

/* Before the loop over the pairs of a step: full unrolling would make the code of many rows too long. */
#if defined(__clang__)
#define UNROLL_SOME _Pragma("clang loop unroll_count(4)")
#else
#define UNROLL_SOME _Pragma("GCC unroll 4")
#endif

/* ---- activations ---- */

static ALWAYS_INLINE vec prepared_bf16(vec x)
{
    vec v = choose(unordered(x), splat(NAN), round_to_bf16(x));
    return choose(above(splat(RVI_PAIRS_FLOOR), absolute(v)), splat(0.0f), v);
}

static void prepare_halves(const float *x, void *out, size_t n)
{
    size_t padded = rvi_pairs_steps(n) * STEP;
    for (size_t k = 0; k < padded; k += WIDTH) {
        float *to = (float *)out + k / STEP * 2 * STEP + k % STEP;
        vec v = k < n ? load(x + k, n - k) : splat(0.0f), h = prepared_bf16(v);
        store(to, WIDTH, h);
        store(to + STEP, WIDTH, prepared_bf16(subtract(v, h)));
    }
}

/* ---- products ---- */

/* Inputs 2j and 2j + 1 of a column of outputs; pair: those of its whole panel */
static ALWAYS_INLINE void load_pair(rvi_qtype type, const uint8_t *pair, int column, vec *even, vec *odd)
{
    size_t at = (size_t)column * WIDTH;
    if (type == RVI_F32) {
        const float *p = (const float *)(const void *)pair + at;
        *even = load(p, WIDTH);
        *odd = load(p + 16, WIDTH);
    } else if (type == RVI_F16) {
        const rvi_f16 *p = (const rvi_f16 *)(const void *)pair + at;
        *even = load_f16(p, WIDTH);
        *odd = load_f16(p + 16, WIDTH);
    } else {
        load_bf16_pairs(pair + at * 4, even, odd);
    }
}

typedef struct chains {
    vec even, odd;
} chains;

static ALWAYS_INLINE void extend(chains *c, vec even, vec odd, const float *x)
{
    c->even = fused(even, splat(x[0]), c->even);
    c->odd = fused(odd, splat(x[1]), c->odd);
}

/* Column c belongs to the panel at w + (c / PANEL_COLUMNS) * panel_bytes. */
static ALWAYS_INLINE void load_column(rvi_qtype type, const uint8_t *w, size_t panel_bytes, int c, int n_rows,
                                      vec *even, vec *odd)
{
    w += (size_t)(c / PANEL_COLUMNS) * panel_bytes;
    if (n_rows == 1 && c % PANEL_COLUMNS == 0) prefetch((uintptr_t)w + PREFETCH_BYTES);
    load_pair(type, w, c % PANEL_COLUMNS, even, odd);
}

/* F32: n_columns registers of outputs, n_rows rows. */
static ALWAYS_INLINE void block_single(rvi_qtype type, const uint8_t *w, size_t panel_bytes, int n_columns,
                                       const float *x, size_t x_stride, int n_rows, float *out, size_t out_stride,
                                       size_t n_steps)
{
    const size_t pair_bytes = 128;
    vec acc[ROWS_SINGLE][PAIR_COLUMNS];
    UNROLL for (int r = 0; r < n_rows; r++) UNROLL for (int c = 0; c < n_columns; c++) acc[r][c] = splat(0.0f);
    for (size_t s = 0; s < n_steps; s++) {
        chains ch[ROWS_SINGLE][PAIR_COLUMNS];
        UNROLL for (int r = 0; r < n_rows; r++) UNROLL for (int c = 0; c < n_columns; c++) ch[r][c] =
            (chains){splat(0.0f), splat(0.0f)};
        const float *xs = x + s * STEP;
        UNROLL_SOME for (int j = 0; j < STEP / 2; j++)
        {
            vec even[PAIR_COLUMNS], odd[PAIR_COLUMNS];
            UNROLL for (int c = 0; c < n_columns; c++) load_column(type, w, panel_bytes, c, n_rows, &even[c], &odd[c]);
            UNROLL for (int r = 0; r < n_rows; r++) UNROLL for (int c = 0; c < n_columns; c++)
                extend(&ch[r][c], even[c], odd[c], xs + (size_t)r * x_stride + 2 * j);
            w += pair_bytes;
        }
        UNROLL for (int r = 0; r < n_rows; r++) UNROLL for (int c = 0; c < n_columns; c++) acc[r][c] =
            add(acc[r][c], add(ch[r][c].even, ch[r][c].odd));
    }
    UNROLL for (int r = 0; r < n_rows; r++) UNROLL for (int c = 0; c < n_columns; c++)
        store(out + (size_t)r * out_stride + c * WIDTH, WIDTH, acc[r][c]);
}

typedef struct triple {
    chains low_h, high_h, high_l;
} triple;

/* Inputs 2j and 2j + 1 of a column of outputs, cut in two; of BF16 only the high part is set. */
typedef struct halves {
    vec high_even, high_odd, low_even, low_odd;
} halves;

/* A step's weights, cut in two, input after input: 16 outputs' high parts, then their low ones. */
enum { CUT_FLOATS = STEP * 2 * 16 };

static ALWAYS_INLINE halves cut_column(rvi_qtype type, vec even, vec odd)
{
    if (type == RVI_BF16) return (halves){.high_even = even, .high_odd = odd};
    vec high_even = cut_off(even), high_odd = cut_off(odd);
    return (halves){high_even, high_odd, subtract(even, high_even), subtract(odd, high_odd)};
}

static ALWAYS_INLINE halves load_cut(rvi_qtype type, const float *cut, int j, int column)
{
    const float *p = cut + j * 64 + column * WIDTH;
    halves w = {.high_even = load(p, WIDTH), .high_odd = load(p + 32, WIDTH)};
    if (type == RVI_F16) w.low_even = load(p + 16, WIDTH), w.low_odd = load(p + 48, WIDTH);
    return w;
}

/* What the next panel has at this place is asked for meanwhile. */
static ALWAYS_INLINE void cut_step(rvi_qtype type, const uint8_t *w, size_t panel_bytes, float *cut)
{
    for (int j = 0; j < STEP / 2; j++, cut += 64) {
        prefetch((uintptr_t)(w + j * 64) + panel_bytes);
        UNROLL for (int c = 0; c < PANEL_COLUMNS; c++)
        {
            vec even, odd;
            load_pair(type, w + j * 64, c, &even, &odd);
            halves h = cut_column(type, even, odd);
            store(cut + c * WIDTH, WIDTH, h.high_even);
            store(cut + 32 + c * WIDTH, WIDTH, h.high_odd);
            if (type == RVI_BF16) continue;
            store(cut + 16 + c * WIDTH, WIDTH, h.low_even);
            store(cut + 48 + c * WIDTH, WIDTH, h.low_odd);
        }
    }
}

static ALWAYS_INLINE void extend_triple(rvi_qtype type, triple *t, const halves *w, const float *x)
{
    if (type == RVI_F16) extend(&t->low_h, w->low_even, w->low_odd, x);
    extend(&t->high_h, w->high_even, w->high_odd, x);
    extend(&t->high_l, w->high_even, w->high_odd, x + STEP);
}

static ALWAYS_INLINE vec add_triple(rvi_qtype type, vec acc, const triple *t)
{
    if (type == RVI_F16) acc = add(acc, add(t->low_h.even, t->low_h.odd));
    acc = add(acc, add(t->high_h.even, t->high_h.odd));
    return add(acc, add(t->high_l.even, t->high_l.odd));
}

static ALWAYS_INLINE triple triple_zero(void)
{
    chains zero = {splat(0.0f), splat(0.0f)};
    return (triple){zero, zero, zero};
}

/* One step of F16, or of BF16, whose weights have no low part, for `together` columns from column `first`, n_rows
 * rows, onto acc. */
static ALWAYS_INLINE void step_triple(rvi_qtype type, const uint8_t *w, size_t panel_bytes, int first, int together,
                                      const float *xs, size_t x_stride, int n_rows, vec acc[][ROWS_TRIPLE])
{
    triple t[PAIR_COLUMNS][ROWS_TRIPLE];
    UNROLL for (int c = 0; c < together; c++) UNROLL for (int r = 0; r < n_rows; r++) t[c][r] = triple_zero();
    UNROLL_SOME for (int j = 0; j < STEP / 2; j++)
    {
        UNROLL for (int c = 0; c < together; c++)
        {
            vec even, odd;
            load_column(type, w + j * 64, panel_bytes, first + c, n_rows, &even, &odd);
            halves h = cut_column(type, even, odd);
            UNROLL for (int r = 0; r < n_rows; r++)
                extend_triple(type, &t[c][r], &h, xs + (size_t)r * x_stride + 2 * j);
        }
    }
    UNROLL for (int c = 0; c < together; c++) UNROLL for (int r = 0; r < n_rows; r++) acc[first + c][r] =
        add_triple(type, acc[first + c][r], &t[c][r]);
}

/* F16 and BF16: n_columns registers of outputs take turns, step by step; n_rows rows. */
static ALWAYS_INLINE void block_triple(rvi_qtype type, const uint8_t *w, size_t panel_bytes, int n_columns,
                                       const float *x, size_t x_stride, int n_rows, float *out, size_t out_stride,
                                       size_t n_steps)
{
    int together = n_rows == 1 ? COLUMNS_TRIPLE : 1;
    vec acc[PAIR_COLUMNS][ROWS_TRIPLE];
    UNROLL for (int c = 0; c < n_columns; c++) UNROLL for (int r = 0; r < n_rows; r++) acc[c][r] = splat(0.0f);
    for (size_t s = 0; s < n_steps; s++)
        UNROLL for (int c = 0; c < n_columns; c += together)
            step_triple(type, w + s * 1024, panel_bytes, c, n_columns < together ? n_columns : together,
                        x + s * 2 * STEP, x_stride, n_rows, acc);
    UNROLL for (int c = 0; c < n_columns; c++) UNROLL for (int r = 0; r < n_rows; r++)
        store(out + (size_t)r * out_stride + c * WIDTH, WIDTH, acc[c][r]);
}

/* n_steps steps of n_rows rows with weights that are already cut. first: sums start from zero, else from out. */
static ALWAYS_INLINE void steps_cut(rvi_qtype type, const float *cut, size_t n_steps, const float *x, size_t x_stride,
                                    int n_rows, float *out, size_t out_stride, bool first)
{
    UNROLL for (int c = 0; c < PANEL_COLUMNS; c++)
    {
        vec acc[ROWS_TRIPLE];
        UNROLL for (int r = 0; r < n_rows; r++) acc[r] =
            first ? splat(0.0f) : load(out + (size_t)r * out_stride + c * WIDTH, WIDTH);
        for (size_t s = 0; s < n_steps; s++) {
            triple t[ROWS_TRIPLE];
            UNROLL for (int r = 0; r < n_rows; r++) t[r] = triple_zero();
            UNROLL_SOME for (int j = 0; j < STEP / 2; j++)
            {
                halves h = load_cut(type, cut + s * CUT_FLOATS, j, c);
                UNROLL for (int r = 0; r < n_rows; r++)
                    extend_triple(type, &t[r], &h, x + s * 2 * STEP + (size_t)r * x_stride + 2 * j);
            }
            UNROLL for (int r = 0; r < n_rows; r++) acc[r] = add_triple(type, acc[r], &t[r]);
        }
        UNROLL for (int r = 0; r < n_rows; r++) store(out + (size_t)r * out_stride + c * WIDTH, WIDTH, acc[r]);
    }
}

/* F16 and BF16, many rows: weights are converted and cut once for CUT_ROWS rows. CUT_STEPS steps of a panel stay in the
 * first level cache while the rows pass, those of the rows in the second while the panels do. */
static ALWAYS_INLINE void gemm_cut(rvi_qtype type, const uint8_t *panels, int n_panels, const float *acts,
                                   size_t x_stride, int n_rows, float *out, size_t out_stride, size_t n)
{
    enum { CUT_ROWS = 128, CUT_STEPS = 4 };
    alignas(64) float cut[CUT_STEPS * CUT_FLOATS];
    size_t panel_bytes = rvi_float_panel_bytes(type, n), n_steps = rvi_pairs_steps(n);
    for (int row = 0; row < n_rows; row += CUT_ROWS) {
        int end = n_rows - row < CUT_ROWS ? n_rows : row + CUT_ROWS;
        for (size_t s = 0; s < n_steps; s += CUT_STEPS) {
            size_t steps = n_steps - s < CUT_STEPS ? n_steps - s : CUT_STEPS;
            for (int p = 0, r; p < n_panels; p++) {
                const uint8_t *w = panels + (size_t)p * panel_bytes + s * 1024;
                const float *x = acts + s * 2 * STEP;
                for (size_t i = 0; i < steps; i++) cut_step(type, w + i * 1024, panel_bytes, cut + i * CUT_FLOATS);
                for (r = row; r + ROWS_TRIPLE <= end; r += ROWS_TRIPLE)
                    steps_cut(type, cut, steps, x + (size_t)r * x_stride, x_stride, ROWS_TRIPLE,
                              out + (size_t)r * out_stride + p * 16, out_stride, s == 0);
                for (; r < end; r++)
                    steps_cut(type, cut, steps, x + (size_t)r * x_stride, x_stride, 1,
                              out + (size_t)r * out_stride + p * 16, out_stride, s == 0);
            }
        }
    }
}

/* What one call to a block computes; each number of rows is its own copy of the block. */
static ALWAYS_INLINE void block(rvi_qtype type, const uint8_t *w, size_t panel_bytes, int n_panels, const float *x,
                                size_t x_stride, int n_rows, float *out, size_t out_stride, size_t n_steps)
{
#define CASE(rows)                                                                                                     \
    case rows:                                                                                                         \
        if (type != RVI_F32 && rows <= ROWS_TRIPLE)                                                                    \
            block_triple(type, w, panel_bytes, n_panels *PANEL_COLUMNS, x, x_stride, rows, out, out_stride, n_steps);  \
        else if (type == RVI_F32 && rows <= ROWS_SINGLE)                                                               \
            block_single(type, w, panel_bytes, n_panels *PANEL_COLUMNS, x, x_stride, rows, out, out_stride, n_steps);  \
        break;
    switch (n_rows) {
        CASE(1)
        CASE(2)
        CASE(3)
        CASE(4)
        CASE(5)
        CASE(6)
    }
#undef CASE
}

static ALWAYS_INLINE void gemm_panels(rvi_qtype type, const void *panels, int n_panels, const void *acts,
                                      size_t act_stride, int n_rows, float *out, size_t out_stride, size_t n)
{
    size_t panel_bytes = rvi_float_panel_bytes(type, n), n_steps = rvi_pairs_steps(n);
    size_t x_stride = act_stride / sizeof(float);
    int most = type == RVI_F32 ? ROWS_SINGLE : ROWS_TRIPLE;
    if (type != RVI_F32 && n_rows > ROWS_TRIPLE && n_steps) {
        gemm_cut(type, panels, n_panels, acts, x_stride, n_rows, out, out_stride, n);
        return;
    }
    for (int p = 0, together; p < n_panels; p += together) {
        const uint8_t *w = (const uint8_t *)panels + (size_t)p * panel_bytes;
        float *to = out + (size_t)p * 16;
        together = 1;
        if (n_rows == 1 && n_panels - p >= 2) { /* two streams come faster from memory than one */
            together = 2;
            block(type, w, panel_bytes, 2, acts, x_stride, 1, to, out_stride, n_steps);
            continue;
        }
        if (type == RVI_F32 && PANELS_SINGLE == 2 && n_panels - p >= 2) together = 2;
        for (int r = 0; r < n_rows; r += most) {
            const float *x = (const float *)acts + (size_t)r * x_stride;
            float *row = to + (size_t)r * out_stride;
            int rows = n_rows - r < most ? n_rows - r : most;
            if (PANELS_SINGLE == 2 && together == 2)
                block(type, w, panel_bytes, 2, x, x_stride, rows, row, out_stride, n_steps);
            else
                block(type, w, panel_bytes, 1, x, x_stride, rows, row, out_stride, n_steps);
        }
    }
}

#define GEMM_PANELS(name, type)                                                                                        \
    static void name(const void *panels, int n_panels, const void *acts, size_t act_stride, int n_rows, float *out,    \
                     size_t out_stride, size_t n)                                                                      \
    {                                                                                                                  \
        gemm_panels(type, panels, n_panels, acts, act_stride, n_rows, out, out_stride, n);                             \
    }
GEMM_PANELS(gemm_panels_f32, RVI_F32)
GEMM_PANELS(gemm_panels_f16, RVI_F16)
GEMM_PANELS(gemm_panels_bf16, RVI_BF16)
#undef GEMM_PANELS

static void fill_float(rvi_kernels *k)
{
    k->prepare[RVI_F16] = prepare_halves;
    k->prepare[RVI_BF16] = prepare_halves;
    k->gemm_panels[RVI_F32] = gemm_panels_f32;
    k->gemm_panels[RVI_F16] = gemm_panels_f16;
    k->gemm_panels[RVI_BF16] = gemm_panels_bf16;
}

#endif
