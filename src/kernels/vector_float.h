/* vector_float.h - float weights in default mode (float_panels.h has the laws) for a vector row,
 * written once for all instruction sets. Inside the kernels room only.
 *
 * A register holds one input's weights for WIDTH outputs, so the laws' chains run in the lanes.
 * Besides what vector_f32.h asks of a row, this needs
 *     load_bf16_pairs(p, &even, &odd)   WIDTH pairs of bf16
 *     round_to_bf16(v)                  nearest, ties to even; of a NaN anything
 *     absolute(v)
 *     prefetch(address)                 of the cache line there, which need not exist
 *     PANELS_MANY, PANELS_ONE           F32 and F16: panels that go together with ROWS rows, and
 *                                       with one (more, up to 4); a chain for each row and register
 *     ROWS_HALVES, COLUMNS_HALVES       BF16: rows (up to 6) that go together, registers of outputs
 *                                       that do so with one row; 4 chains for each of them
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

enum {
    STEP = RVI_FLOAT_STEP,
    RUN = RVI_RUN,
    PANEL_COLUMNS = 16 / WIDTH, /* registers of outputs of a panel */
    ROWS = 6,                   /* that go together in F32 and F16 */
    FEW_ROWS = 24,              /* to widen weights for them would take longer than it saves */
    PREFETCH_BYTES = 4096
};
_Static_assert(PANELS_MANY <= PANELS_ONE && PANELS_ONE <= 4, "a part of many rows may be one row");

/* Before the loop over the pairs of a step: full unrolling would make the code of many rows too long. */
#if defined(__clang__)
#define UNROLL_SOME _Pragma("clang loop unroll_count(4)")
#else
#define UNROLL_SOME _Pragma("GCC unroll 4")
#endif

/* ---- activations ---- */

static ALWAYS_INLINE vec without_small(vec v, float floor)
{
    return choose(above(splat(floor), absolute(v)), splat(0.0f), v);
}

static void prepare_f16(const float *x, void *out, size_t n)
{
    size_t room = rvi_float_act_bytes(RVI_F16, n) / sizeof *x;
    for (size_t k = 0; k < room; k += WIDTH)
        store((float *)out + k, WIDTH, k < n ? without_small(load(x + k, n - k), RVI_F16_FLOOR) : splat(0.0f));
}

static ALWAYS_INLINE vec prepared_bf16(vec x)
{
    return without_small(choose(unordered(x), splat(NAN), round_to_bf16(x)), RVI_BF16_FLOOR);
}

static void prepare_halves(const float *x, void *out, size_t n)
{
    size_t padded = rvi_float_steps(n) * STEP;
    for (size_t k = 0; k < padded; k += WIDTH) {
        float *to = (float *)out + k / STEP * 2 * STEP + k % STEP;
        vec v = k < n ? load(x + k, n - k) : splat(0.0f), h = prepared_bf16(v);
        store(to, WIDTH, h);
        store(to + STEP, WIDTH, prepared_bf16(subtract(v, h)));
    }
}

/* ---- blocks ---- */

/* What a block takes and where its results go. Weights lie as a panel has them, or as floats: input after input, 16
 * outputs of each panel. */
typedef struct operands {
    const uint8_t *w;
    size_t panel_stride, pair_stride; /* bytes from panel to panel, from two inputs to the next two */
    const float *x;
    size_t x_stride;
    float *out;
    size_t out_stride;
} operands;

/* The operands from a row, a panel, a pair of inputs on (of a row that has x_floats for each pair). */
static ALWAYS_INLINE operands from(operands o, int row, int panel, size_t pair, size_t x_floats)
{
    o.w += (size_t)panel * o.panel_stride + pair * o.pair_stride;
    o.x += (size_t)row * o.x_stride + pair * x_floats;
    o.out += (size_t)row * o.out_stride + (size_t)panel * 16;
    return o;
}

/* The same with weights that have become floats. */
static ALWAYS_INLINE operands with_floats(operands o, const float *w, int n_panels)
{
    o.w = (const uint8_t *)w;
    o.panel_stride = 64;
    o.pair_stride = (size_t)n_panels * 128;
    return o;
}

/* One input's weights for a register of outputs of a panel; type: F32 or F16 */
static ALWAYS_INLINE vec load_weights(rvi_qtype type, const uint8_t *input, int column)
{
    size_t at = (size_t)column * WIDTH;
    return type == RVI_F32 ? load((const float *)(const void *)input + at, WIDTH)
                           : load_f16((const rvi_f16 *)(const void *)input + at, WIDTH);
}

static ALWAYS_INLINE void load_pair(rvi_qtype type, const uint8_t *pair, size_t pair_stride, int column, vec *even,
                                    vec *odd)
{
    if (type == RVI_BF16) {
        load_bf16_pairs(pair + column * WIDTH * 4, even, odd);
        return;
    }
    *even = load_weights(type, pair, column);
    *odd = load_weights(type, pair + pair_stride / 2, column);
}

/* n_pairs pairs of inputs of n_panels panels become floats that lie together. What the next panels have at this place
 * is asked for meanwhile. */
static ALWAYS_INLINE void widen(rvi_qtype type, operands o, int n_panels, size_t n_pairs, float *to)
{
    size_t apart = (size_t)n_panels * 16;
    for (size_t j = 0; j < n_pairs; j++, to += 2 * apart)
        for (int p = 0; p < n_panels; p++) {
            const uint8_t *pair = o.w + (size_t)p * o.panel_stride + j * o.pair_stride;
            uintptr_t next = (uintptr_t)pair + (size_t)n_panels * o.panel_stride;
            prefetch(next);
            if (type == RVI_F32) prefetch(next + 64);
            UNROLL for (int c = 0; c < PANEL_COLUMNS; c++)
            {
                vec even, odd;
                load_pair(type, pair, o.pair_stride, c, &even, &odd);
                store(to + p * 16 + c * WIDTH, WIDTH, even);
                store(to + apart + (size_t)p * 16 + c * WIDTH, WIDTH, odd);
            }
        }
}

static ALWAYS_INLINE float *sums_at(operands o, int row, int column)
{
    return o.out + (size_t)row * o.out_stride + column * WIDTH;
}

/* ---- F32 and F16: runs ---- */

/* One run onto the sums in `out`, or onto zeros if it is the first. A single row leaves time to ask for the weights
 * ahead. */
static ALWAYS_INLINE void run_block(rvi_qtype type, operands o, int n_rows, int n_panels, size_t n_pairs, bool first)
{
    enum { MOST_COLUMNS = PANELS_ONE * PANEL_COLUMNS };
    int n_columns = n_panels * PANEL_COLUMNS;
    vec run[ROWS][MOST_COLUMNS], w[MOST_COLUMNS];
    UNROLL for (int r = 0; r < n_rows; r++) UNROLL for (int c = 0; c < n_columns; c++) run[r][c] = splat(0.0f);
    for (size_t j = 0; j < n_pairs; j++) {
        const uint8_t *pair = o.w + j * o.pair_stride;
        UNROLL for (int p = 0; n_rows == 1 && p < n_panels; p++)
        {
            uintptr_t ahead = (uintptr_t)pair + (size_t)p * o.panel_stride + PREFETCH_BYTES;
            prefetch(ahead);
            if (type == RVI_F32) prefetch(ahead + 64);
        }
        UNROLL for (size_t i = 0; i < 2; i++)
        {
            const uint8_t *input = pair + i * (o.pair_stride / 2);
            UNROLL for (int c = 0; c < n_columns; c++) w[c] =
                load_weights(type, input + (size_t)(c / PANEL_COLUMNS) * o.panel_stride, c % PANEL_COLUMNS);
            UNROLL for (int r = 0; r < n_rows; r++)
            {
                vec x = splat(o.x[(size_t)r * o.x_stride + 2 * j + i]);
                UNROLL for (int c = 0; c < n_columns; c++) run[r][c] = fused(w[c], x, run[r][c]);
            }
        }
    }
    UNROLL for (int r = 0; r < n_rows; r++) UNROLL for (int c = 0; c < n_columns; c++)
    {
        vec sum = first ? splat(0.0f) : load(sums_at(o, r, c), WIDTH);
        store(sums_at(o, r, c), WIDTH, add(sum, run[r][c]));
    }
}

/* Each number of rows and of panels is its own copy of the block. */
static ALWAYS_INLINE void run_rows(rvi_qtype type, operands o, int n_rows, int n_panels, size_t n_pairs, bool first)
{
#define CASE(rows)                                                                                                     \
    case rows:                                                                                                         \
        if (n_panels <= (rows == 1 ? PANELS_ONE : PANELS_MANY)) run_block(type, o, rows, n_panels, n_pairs, first);    \
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

static ALWAYS_INLINE void run_panels(rvi_qtype type, operands o, int n_rows, int n_panels, size_t n_pairs, bool first)
{
#define CASE(panels)                                                                                                   \
    case panels: run_rows(type, o, n_rows, panels, n_pairs, first); break;
    switch (n_panels) {
        CASE(1)
        CASE(2)
        CASE(3)
        CASE(4)
    }
#undef CASE
}

static void run_f32(operands o, int n_rows, int n_panels, size_t n_pairs, bool first)
{
    run_panels(RVI_F32, o, n_rows, n_panels, n_pairs, first);
}

static void run_f16(operands o, int n_rows, int n_panels, size_t n_pairs, bool first)
{
    run_panels(RVI_F16, o, n_rows, n_panels, n_pairs, first);
}

static ALWAYS_INLINE int less(int a, int b)
{
    return a < b ? a : b;
}

static ALWAYS_INLINE size_t pairs_from(size_t first, size_t n_pairs)
{
    return n_pairs - first < RUN / 2 ? n_pairs - first : RUN / 2;
}

/* Few rows: weights are used as they lie. Of F32 no more than two panels go together, because equal places of more
 * panels tend to fall on the same lines of a cache. */
static ALWAYS_INLINE void gemm_few(rvi_qtype type, operands o, int n_panels, int n_rows, size_t n_pairs)
{
    int most = n_rows == 1 ? PANELS_ONE : type == RVI_F32 ? less(PANELS_MANY, 2) : PANELS_MANY;
    for (int p = 0; p < n_panels; p += most)
        for (size_t j = 0; j == 0 || j < n_pairs; j += RUN / 2)
            for (int r = 0; r < n_rows; r += ROWS)
                (type == RVI_F32 ? run_f32 : run_f16)(from(o, r, p, j, 2), less(n_rows - r, ROWS),
                                                      less(n_panels - p, most), pairs_from(j, n_pairs), j == 0);
}

/* Many rows: a run's weights are widened once for a part of the rows, whose inputs of the run stay in the second level
 * cache while the panels pass. */
static ALWAYS_INLINE void gemm_many(rvi_qtype type, operands o, int n_panels, int n_rows, size_t n_pairs)
{
    enum { MOST_ROWS = 132 };
    alignas(64) float wide[RUN * PANELS_MANY * 16];
    int n_parts = (n_rows + MOST_ROWS - 1) / MOST_ROWS;
    int part = ((n_rows + n_parts - 1) / n_parts + ROWS - 1) / ROWS * ROWS;
    for (int row = 0; row < n_rows; row += part)
        for (size_t j = 0; j == 0 || j < n_pairs; j += RUN / 2)
            for (int p = 0; p < n_panels; p += PANELS_MANY) {
                int panels = less(n_panels - p, PANELS_MANY), end = less(n_rows, row + part);
                operands here = from(o, 0, p, j, 2);
                widen(type, here, panels, pairs_from(j, n_pairs), wide);
                here = with_floats(here, wide, panels);
                for (int r = row; r < end; r += ROWS)
                    run_f32(from(here, r, 0, 0, 0), less(end - r, ROWS), panels, pairs_from(j, n_pairs), j == 0);
            }
}

/* ---- BF16: steps of pairs ---- */

typedef struct chains {
    vec even, odd;
} chains;

static ALWAYS_INLINE void extend(chains *c, vec even, vec odd, const float *x)
{
    c->even = fused(even, splat(x[0]), c->even);
    c->odd = fused(odd, splat(x[1]), c->odd);
}

/* Steps onto the sums in `out`, or onto zeros if they are the first; type: BF16, or F32 of weights that have become
 * floats. Registers of outputs take turns, step by step. */
static ALWAYS_INLINE void steps_block(rvi_qtype type, operands o, int n_rows, int n_panels, size_t n_steps, bool first)
{
    enum { MOST_COLUMNS = 2 * PANEL_COLUMNS };
    int n_columns = n_panels * PANEL_COLUMNS, together = n_rows == 1 ? COLUMNS_HALVES : 1;
    chains zero = {splat(0.0f), splat(0.0f)};
    vec acc[ROWS_HALVES][MOST_COLUMNS];
    UNROLL for (int r = 0; r < n_rows; r++) UNROLL for (int c = 0; c < n_columns; c++) acc[r][c] =
        first ? splat(0.0f) : load(sums_at(o, r, c), WIDTH);
    for (size_t s = 0; s < n_steps; s++) UNROLL for (int turn = 0; turn < n_columns; turn += together)
        {
            int end = turn + together < n_columns ? turn + together : n_columns;
            chains h[ROWS_HALVES][MOST_COLUMNS], l[ROWS_HALVES][MOST_COLUMNS];
            UNROLL for (int r = 0; r < n_rows; r++) UNROLL for (int c = turn; c < end; c++) h[r][c] = l[r][c] = zero;
            UNROLL_SOME for (size_t j = 0; j < STEP / 2; j++)
            {
                UNROLL for (int c = turn; c < end; c++)
                {
                    const uint8_t *pair =
                        o.w + (size_t)(c / PANEL_COLUMNS) * o.panel_stride + (s * (STEP / 2) + j) * o.pair_stride;
                    vec even, odd;
                    if (n_rows == 1 && c % PANEL_COLUMNS == 0) prefetch((uintptr_t)pair + PREFETCH_BYTES);
                    load_pair(type, pair, o.pair_stride, c % PANEL_COLUMNS, &even, &odd);
                    UNROLL for (int r = 0; r < n_rows; r++)
                    {
                        const float *x = o.x + (size_t)r * o.x_stride + s * 2 * STEP + 2 * j;
                        extend(&h[r][c], even, odd, x);
                        extend(&l[r][c], even, odd, x + STEP);
                    }
                }
            }
            UNROLL for (int r = 0; r < n_rows; r++) UNROLL for (int c = turn; c < end; c++)
            {
                acc[r][c] = add(acc[r][c], add(h[r][c].even, h[r][c].odd));
                acc[r][c] = add(acc[r][c], add(l[r][c].even, l[r][c].odd));
            }
        }
    UNROLL for (int r = 0; r < n_rows; r++) UNROLL for (int c = 0; c < n_columns; c++)
        store(sums_at(o, r, c), WIDTH, acc[r][c]);
}

/* Each number of rows is its own copy of the block. */
static ALWAYS_INLINE void steps_rows(rvi_qtype type, operands o, int n_rows, int n_panels, size_t n_steps, bool first)
{
#define CASE(rows)                                                                                                     \
    case rows:                                                                                                         \
        if (rows <= ROWS_HALVES) steps_block(type, o, rows, n_panels, n_steps, first);                                 \
        break;
    switch (n_rows) {
        CASE(1)
        CASE(2)
        CASE(3)
        CASE(4)
    }
#undef CASE
}

/* Few rows; two panels at once for one row: two streams come faster from memory than one. */
static void gemm_few_bf16(operands o, int n_panels, int n_rows, size_t n_steps)
{
    int p = 0;
    for (; n_rows == 1 && n_panels - p >= 2; p += 2) steps_block(RVI_BF16, from(o, 0, p, 0, 0), 1, 2, n_steps, true);
    for (; p < n_panels; p++) steps_rows(RVI_BF16, from(o, 0, p, 0, 0), n_rows, 1, n_steps, true);
}

/* Many rows: weights are widened once for a part of them. The steps of a panel stay in the first level cache while the
 * rows pass, those of the rows in the second while the panels do. */
static void gemm_many_bf16(operands o, int n_panels, int n_rows, size_t n_steps)
{
    enum { PART_ROWS = 128, PART_STEPS = 4 };
    alignas(64) float wide[PART_STEPS * STEP * 16];
    for (int row = 0; row < n_rows; row += PART_ROWS)
        for (size_t s = 0; s == 0 || s < n_steps; s += PART_STEPS) {
            size_t steps = n_steps - s < PART_STEPS ? n_steps - s : PART_STEPS;
            for (int p = 0; p < n_panels; p++) {
                int end = less(n_rows, row + PART_ROWS);
                operands here = from(o, 0, p, s * (STEP / 2), 4);
                widen(RVI_BF16, here, 1, steps * (STEP / 2), wide);
                here = with_floats(here, wide, 1);
                for (int r = row; r < end; r += ROWS_HALVES)
                    steps_rows(RVI_F32, from(here, r, 0, 0, 0), less(end - r, ROWS_HALVES), 1, steps, s == 0);
            }
        }
}

/* ---- the table ---- */

static ALWAYS_INLINE void gemm_panels(rvi_qtype type, const void *panels, int n_panels, const void *acts,
                                      size_t act_stride, int n_rows, float *out, size_t out_stride, size_t n)
{
    operands o = {.w = panels,
                  .panel_stride = rvi_float_panel_bytes(type, n),
                  .pair_stride = rvi_float_panel_bytes(type, STEP) / (STEP / 2),
                  .x = acts,
                  .x_stride = act_stride / sizeof(float),
                  .out = out,
                  .out_stride = out_stride};
    size_t n_steps = rvi_float_steps(n), n_pairs = n_steps * (STEP / 2);
    if (type == RVI_BF16)
        (n_rows > ROWS_HALVES ? gemm_many_bf16 : gemm_few_bf16)(o, n_panels, n_rows, n_steps);
    else if (n_rows > FEW_ROWS)
        gemm_many(type, o, n_panels, n_rows, n_pairs);
    else
        gemm_few(type, o, n_panels, n_rows, n_pairs);
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
    k->prepare[RVI_F16] = prepare_f16;
    k->prepare[RVI_BF16] = prepare_halves;
    k->gemm_panels[RVI_F32] = gemm_panels_f32;
    k->gemm_panels[RVI_F16] = gemm_panels_f16;
    k->gemm_panels[RVI_BF16] = gemm_panels_bf16;
}

#endif
