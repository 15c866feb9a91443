/* vector_train.h - the training entries of a vector row, written once for all instruction sets. Inside the kernels room
 * only.
 *
 * A row defines its registers as vector_lanes.h says, and
 *     GEMM_NAME                the name of its products
 *     GEMM_ROWS, GEMM_PANELS   rows of A and panels of B whose sums stay in registers
 * includes this file and calls fill_train(table). */
#ifndef RVI_KERNELS_VECTOR_TRAIN_H
#define RVI_KERNELS_VECTOR_TRAIN_H

#include <string.h>

#include "kernels/kernels.h"
#include "kernels/transpose.h"
#include "kernels/vector_lanes.h"

/* ---- products ----
 *
 * A in groups: [k / 16][GEMM_ROWS][16 of k]; B in panels: [k][16 columns]. An element of C is one chain of fused steps
 * over k, from 0 or from what C holds. */

enum {
    PANEL = RVI_GEMM_PANEL,
    K_STEP = 16,
    K_SLICE = 256, /* rows of the current panels that stay in the first-level cache */
    PANEL_VECS = PANEL / WIDTH
};

/* Rows of a matrix: at `at`, or `stride` apart from `first` on. */
typedef struct lines {
    const float *const *at;
    const float *first;
    size_t stride;
} lines;

static ALWAYS_INLINE const float *line(lines x, int i)
{
    return x.at ? x.at[i] : x.first + (size_t)i * x.stride;
}

/* K_STEP numbers, or the `left` first ones followed by zeros */
static ALWAYS_INLINE void copy_step(float *to, const float *from, int left)
{
    UNROLL for (int v = 0; v < K_STEP; v += WIDTH)
        store(to + v, WIDTH, left > v ? load(from + v, (size_t)(left - v)) : splat(0.0f));
}

static ALWAYS_INLINE void pack_a_lines(float *to, size_t k_total, lines a, int m, int k)
{
    for (int g = 0; g < m; g += GEMM_ROWS, to += GEMM_ROWS * k_total)
        for (int r = 0; r < GEMM_ROWS; r++) {
            float *row = to + r * K_STEP;
            const float *from = g + r < m ? line(a, g + r) : NULL;
            int i = 0;
            for (; from && i + K_STEP <= k; i += K_STEP) copy_step(row + i * GEMM_ROWS, from + i, K_STEP);
            for (; i < k; i += K_STEP) copy_step(row + i * GEMM_ROWS, from ? from + i : NULL, from ? k - i : 0);
        }
}

static ALWAYS_INLINE float *a_row(float *to, size_t k_total, int row)
{
    return to + (size_t)(row / GEMM_ROWS) * (GEMM_ROWS * k_total) + row % GEMM_ROWS * K_STEP;
}

static ALWAYS_INLINE size_t a_column(int k)
{
    return (size_t)(k / K_STEP * (GEMM_ROWS * K_STEP) + k % K_STEP);
}

/* Eight rows of A from columns of a, and zeros up to `padded`. */
static ALWAYS_INLINE void pack_eight_rows(float *to, size_t k_total, const float *a, size_t stride, int row, int k,
                                          int padded)
{
    static const words8 zeros;
    float *at[8];
    int i = 0;
    UNROLL for (int r = 0; r < 8; r++) at[r] = a_row(to, k_total, row + r);
    for (; i + 8 <= k; i += 8) {
        words8 v[8];
        UNROLL for (int e = 0; e < 8; e++) memcpy(&v[e], a + (size_t)(i + e) * stride + row, sizeof v[e]);
        transpose8(v);
        UNROLL for (int r = 0; r < 8; r++) memcpy(at[r] + a_column(i), &v[r], sizeof v[r]);
    }
    for (; i < k || i % 8; i++)
        for (int r = 0; r < 8; r++) at[r][a_column(i)] = i < k ? a[(size_t)i * stride + (size_t)(row + r)] : 0.0f;
    for (; i < padded; i += 8)
        for (int r = 0; r < 8; r++) memcpy(at[r] + a_column(i), &zeros, sizeof zeros);
}

static void pack_a(void *out, size_t k_total, const float *a, size_t stride, bool transposed, int m, int k)
{
    if (!transposed) {
        pack_a_lines(out, k_total, (lines){NULL, a, stride}, m, k);
        return;
    }
    int padded = (k + K_STEP - 1) / K_STEP * K_STEP, rows = (m + GEMM_ROWS - 1) / GEMM_ROWS * GEMM_ROWS, r = 0;
    for (; r + 8 <= m; r += 8) pack_eight_rows(out, k_total, a, stride, r, k, padded);
    for (; r < rows; r++)
        for (int i = 0; i < padded; i++)
            a_row(out, k_total, r)[a_column(i)] = r < m && i < k ? a[(size_t)i * stride + (size_t)r] : 0.0f;
}

static void pack_a_rows(void *out, size_t k_total, const float *const *rows, int m, int k)
{
    pack_a_lines(out, k_total, (lines){rows, NULL, 0}, m, k);
}

/* Eight columns of B from rows of b, from `col` on. */
static ALWAYS_INLINE void pack_eight(float *to, lines b, int col, int k)
{
    const float *from[8];
    int i = 0;
    UNROLL for (int c = 0; c < 8; c++) from[c] = line(b, col + c);
    for (; i + 8 <= k; i += 8) {
        words8 v[8];
        UNROLL for (int c = 0; c < 8; c++) memcpy(&v[c], from[c] + i, sizeof v[c]);
        transpose8(v);
        UNROLL for (int c = 0; c < 8; c++) memcpy(to + (i + c) * PANEL, &v[c], sizeof v[c]);
    }
    for (; i < k; i++)
        for (int c = 0; c < 8; c++) to[i * PANEL + c] = from[c][i];
}

static ALWAYS_INLINE void pack_b_lines(float *to, size_t k_total, lines b, bool transposed, int k, int n)
{
    int padded = (k + K_STEP - 1) / K_STEP * K_STEP;
    for (int p = 0; p < n; p += PANEL, to += PANEL * k_total) {
        int cols = n - p < PANEL ? n - p : PANEL, done = 0;
        if (!transposed) {
            for (int i = 0; i < k; i++) copy_step(to + i * PANEL, line(b, i) + p, cols);
        } else {
            for (; done + 8 <= cols; done += 8) pack_eight(to + done, b, p + done, k);
            for (int c = done; c < PANEL; c++) {
                const float *from = c < cols ? line(b, p + c) : NULL;
                for (int i = 0; i < k; i++) to[i * PANEL + c] = from ? from[i] : 0.0f;
            }
        }
        memset(to + k * PANEL, 0, (size_t)(padded - k) * PANEL * sizeof *to);
    }
}
_Static_assert((int)PANEL == (int)K_STEP, "a row of a panel is copied by steps of k");

static void pack_b(void *out, size_t k_total, const float *b, size_t stride, bool transposed, int k, int n)
{
    pack_b_lines(out, k_total, (lines){NULL, b, stride}, transposed, k, n);
}

static void pack_b_rows(void *out, size_t k_total, const float *const *rows, bool transposed, int k, int n)
{
    pack_b_lines(out, k_total, (lines){rows, NULL, 0}, transposed, k, n);
}

/* A group of rows with one or more panels over n_k of k; m and n say what of it C has. */
static ALWAYS_INLINE void gemm_block(int n_panels, const float *a, const float *b, size_t b_stride, size_t n_k,
                                     float *c, size_t c_stride, int m, int n, bool add_to)
{
    vec acc[GEMM_ROWS][GEMM_PANELS * PANEL_VECS];
    UNROLL for (int r = 0; r < GEMM_ROWS; r++) UNROLL for (int v = 0; v < n_panels * PANEL_VECS; v++)
    {
        bool here = add_to && r < m && v * WIDTH < n;
        acc[r][v] = here ? load(c + (size_t)r * c_stride + v * WIDTH, (size_t)(n - v * WIDTH)) : splat(0.0f);
    }
    for (size_t i = 0; i < n_k; i += K_STEP, a += GEMM_ROWS * K_STEP) {
        size_t n_j = n_k - i < K_STEP ? n_k - i : K_STEP;
        for (size_t j = 0; j < n_j; j++, b += PANEL) {
            vec bv[GEMM_PANELS * PANEL_VECS];
            UNROLL for (int v = 0; v < n_panels * PANEL_VECS; v++) bv[v] =
                load(b + (size_t)(v / PANEL_VECS) * b_stride + v % PANEL_VECS * WIDTH, WIDTH);
            UNROLL for (int r = 0; r < GEMM_ROWS; r++)
            {
                vec av = splat(a[(size_t)(r * K_STEP) + j]);
                UNROLL for (int v = 0; v < n_panels * PANEL_VECS; v++) acc[r][v] = fused(av, bv[v], acc[r][v]);
            }
        }
    }
    UNROLL for (int r = 0; r < GEMM_ROWS; r++)
    {
        if (r >= m) continue;
        UNROLL for (int v = 0; v < n_panels * PANEL_VECS; v++) if (v * WIDTH < n)
            store(c + (size_t)r * c_stride + v * WIDTH, (size_t)(n - v * WIDTH), acc[r][v]);
    }
}

static void product(const void *a, size_t a_total, int m, const void *b, size_t b_total, int n, size_t k, float *c,
                    size_t c_stride, bool add_to)
{
    for (int p = 0; p < n; p += GEMM_PANELS * PANEL)
        for (size_t from = 0; from < k; from += K_SLICE) {
            size_t n_k = k - from < K_SLICE ? k - from : K_SLICE;
            const float *b_at = (const float *)b + (size_t)p * b_total + from * PANEL;
            for (int g = 0; g < m; g += GEMM_ROWS) {
                const float *a_at = (const float *)a + (size_t)g * a_total + from * GEMM_ROWS;
                float *c_at = c + (size_t)g * c_stride + p;
                bool onto = add_to || from > 0;
                if (GEMM_PANELS > 1 && n - p > PANEL)
                    gemm_block(GEMM_PANELS, a_at, b_at, PANEL * b_total, n_k, c_at, c_stride, m - g, n - p, onto);
                else
                    gemm_block(1, a_at, b_at, PANEL * b_total, n_k, c_at, c_stride, m - g, n - p, onto);
            }
        }
}
_Static_assert(GEMM_PANELS <= 2, "the last panels are one or two");

static const rvi_train_gemm gemm_table = {GEMM_NAME, GEMM_ROWS, K_STEP,      sizeof(float), pack_a,
                                          pack_b,    product,   pack_a_rows, pack_b_rows};

/* ---- sums over a row ---- */

/* Four registers of sums, so that additions need not wait for each other. */
static ALWAYS_INLINE float add_all(vec s[4])
{
    return add_across(add(add(s[0], s[1]), add(s[2], s[3])));
}

static void norm_back(float *dx, const float *dy, const float *x, const float *w, size_t n, float eps, bool add_to)
{
    vec square[4] = {splat(0), splat(0), splat(0), splat(0)}, dot[4] = {splat(0), splat(0), splat(0), splat(0)};
    for (size_t i = 0; i < n; i += 4 * WIDTH) UNROLL for (size_t u = 0; u < 4; u++)
        {
            size_t at = i + u * WIDTH;
            if (at >= n) continue;
            vec v = load(x + at, n - at);
            square[u] = fused(v, v, square[u]);
            dot[u] = fused(v, multiply(load(w + at, n - at), load(dy + at, n - at)), dot[u]);
        }
    float r = 1.0f / sqrtf(add_all(square) / (float)n + eps);
    vec by_x = splat(-(r * r * r * add_all(dot) / (float)n)), by_dy = splat(r);
    for (size_t i = 0; i < n; i += WIDTH) {
        vec d = multiply(by_dy, multiply(load(w + i, n - i), load(dy + i, n - i)));
        d = fused(load(x + i, n - i), by_x, d);
        store(dx + i, n - i, add_to ? add(load(dx + i, n - i), d) : d);
    }
}

/* ---- gates ---- */

static void silu_back(float *dgate, float *dup, const float *dact, const float *gate, const float *up, size_t n)
{
    const vec one = splat(1.0f);
    for (size_t i = 0; i < n; i += WIDTH) {
        vec g = load(gate + i, n - i), u = load(up + i, n - i), d = load(dact + i, n - i);
        vec s = divide(one, add(one, exp_lanes(negate(g))));
        vec slope = multiply(s, fused(g, subtract(one, s), one));
        store(dgate + i, n - i, multiply(multiply(d, u), slope));
        store(dup + i, n - i, multiply(d, multiply(g, s)));
    }
}

static void gelu_back(float *dgate, float *dup, const float *dact, const float *gate, const float *up, size_t n)
{
    const vec one = splat(1.0f);
    for (size_t i = 0; i < n; i += WIDTH) {
        vec g = load(gate + i, n - i), u = load(up + i, n - i), d = load(dact + i, n - i), square = multiply(g, g);
        vec y = multiply(g, fused(splat(RVI_GELU_CUBE), square, one));
        vec s = divide(one, add(one, exp_lanes(multiply(splat(RVI_GELU_Z), y)))), f = multiply(g, s);
        vec inner = multiply(splat(-RVI_GELU_Z), fused(splat(3 * RVI_GELU_CUBE), square, one));
        vec slope = fused(multiply(f, subtract(one, s)), inner, s);
        store(dgate + i, n - i, multiply(multiply(d, u), slope));
        store(dup + i, n - i, multiply(d, f));
    }
}

/* ---- loss ---- */

static double exp_sum(const float *z, float top, float inverse, size_t n)
{
    enum { PIECE = 1024 }; /* added in f32; pieces in f64 */
    const vec t = splat(top), by = splat(inverse);
    double sum = 0;
    for (size_t from = 0; from < n; from += PIECE) {
        size_t end = n - from < PIECE ? n : from + PIECE;
        vec s[4] = {splat(0), splat(0), splat(0), splat(0)};
        for (size_t i = from; i < end; i += 4 * WIDTH) UNROLL for (size_t u = 0; u < 4; u++)
            {
                size_t at = i + u * WIDTH;
                if (at >= end) continue;
                vec e = exp_lanes(multiply(subtract(load(z + at, end - at), t), by));
                s[u] = add(s[u], choose(first_lanes(end - at), e, splat(0.0f)));
            }
        sum += (double)add_all(s);
    }
    return sum;
}

static void exp_slope(float *z, float top, float inverse, float factor, float soft_cap, size_t n)
{
    const vec t = splat(top), by = splat(inverse), f = splat(factor), cap = splat(soft_cap);
    for (size_t i = 0; i < n; i += WIDTH) {
        vec v = load(z + i, n - i), e = multiply(exp_lanes(multiply(subtract(v, t), by)), f);
        if (soft_cap != 0.0f) {
            vec c = divide(v, cap);
            e = multiply(e, fused(negate(c), c, splat(1.0f)));
        }
        store(z + i, n - i, e);
    }
}

/* ---- attention ---- */

static ALWAYS_INLINE vec score(vec s, float scale, float soft_cap)
{
    s = multiply(s, splat(scale));
    return soft_cap != 0.0f ? cap_lanes(s, soft_cap) : s;
}

/* a where from <= lane + i < end, else b */
static ALWAYS_INLINE vec within(size_t i, size_t from, size_t end, vec a, vec b)
{
    a = choose(first_lanes(end > i ? end - i : 0), a, b);
    return from > i ? choose(first_lanes(from - i), b, a) : a;
}

static ALWAYS_INLINE void clear(float *x, size_t from, size_t end)
{
    for (size_t i = from; i < end; i += WIDTH) store(x + i, end - i, splat(0.0f));
}

static void softmax(float *s, size_t n, size_t from, size_t end, float scale, float soft_cap, float stats[2])
{
    vec top = splat(-INFINITY), sum = splat(0.0f);
    size_t begin = from / WIDTH * WIDTH, done = (end + WIDTH - 1) / WIDTH * WIDTH;
    for (size_t i = begin; i < end; i += WIDTH) {
        vec z = score(load(s + i, n - i), scale, soft_cap);
        store(s + i, n - i, z);
        z = within(i, from, end, z, top);
        top = choose(above(z, top), z, top); /* NaN is passed over */
    }
    float m = max_across(top);
    for (size_t i = begin; i < end; i += WIDTH) {
        vec e = exp_down_lanes(subtract(load(s + i, n - i), splat(m)));
        e = within(i, from, end, e, splat(0.0f));
        store(s + i, n - i, e);
        sum = add(sum, e);
    }
    float inverse = 1.0f / add_across(sum);
    for (size_t i = begin; i < end; i += WIDTH) store(s + i, n - i, multiply(load(s + i, n - i), splat(inverse)));
    clear(s, 0, begin);
    clear(s, done, n);
    stats[0] = m;
    stats[1] = inverse;
}

static ALWAYS_INLINE vec cap_slope(vec s, float scale, float soft_cap)
{
    vec t = divide(score(s, scale, soft_cap), splat(soft_cap));
    return fused(negate(t), t, splat(1.0f));
}

static float softmax_back(float *dp, const float *p, const float *s, size_t n, float scale, float soft_cap)
{
    vec dot = splat(0.0f);
    for (size_t i = 0; i < n; i += WIDTH) dot = fused(load(p + i, n - i), load(dp + i, n - i), dot);
    float sum = add_across(dot);
    for (size_t i = 0; i < n; i += WIDTH) {
        vec d = subtract(load(dp + i, n - i), splat(sum));
        d = multiply(multiply(load(p + i, n - i), d), splat(scale));
        if (soft_cap != 0.0f) d = multiply(d, cap_slope(load(s + i, n - i), scale, soft_cap));
        store(dp + i, n - i, d);
    }
    return sum;
}

static void key_back(float *s, float *dp, const float *top, const float *inverse, const float *sums, size_t n,
                     size_t from, size_t end, float scale, float soft_cap)
{
    const vec zero = splat(0.0f);
    for (size_t i = 0; i < n; i += WIDTH) {
        vec raw = load(s + i, n - i), z = score(raw, scale, soft_cap);
        vec p = multiply(exp_down_lanes(subtract(z, load(top + i, n - i))), load(inverse + i, n - i));
        vec d = subtract(load(dp + i, n - i), load(sums + i, n - i));
        d = multiply(multiply(p, d), splat(scale));
        if (soft_cap != 0.0f) d = multiply(d, cap_slope(raw, scale, soft_cap));
        store(s + i, n - i, within(i, from, end, p, zero));
        store(dp + i, n - i, within(i, from, end, d, zero));
    }
}

static void fill_train(rvi_kernels *k)
{
    k->train_f32 = &gemm_table;
    k->norm_back = norm_back;
    k->silu_back = silu_back;
    k->gelu_back = gelu_back;
    k->exp_sum = exp_sum;
    k->exp_slope = exp_slope;
    k->softmax = softmax;
    k->softmax_back = softmax_back;
    k->key_back = key_back;
}

#endif
