/* test_train.c - the training ops of the CPU backend against float64: products by their formula
 * over the weights as they are stored, everything else by its forward in float64, whose gradient is
 * taken by differences. However many threads share the work, the bits are the same. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend/backend.h"
#include "backend/cpu/profile.h"
#include "base/rng.h"
#include "harness/amount.h"
#include "kernels/kernels.h"

enum { MAX_ROWS = 600, MAX_COLS = 1600, MAX_VOCAB = 5000 };

static rvi_rng rng = {7};

static float number(void)
{
    return (float)(rvi_rng_double(&rng) * 2 - 1);
}

static float *numbers_new(size_t n)
{
    float *x = malloc((n + 1) * sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < n; i++) x[i] = number();
    return x;
}

static rvi_backend *open_backend(int threads, bool exact, const char *isa)
{
    rvi_backend *be;
    rvi_cpu_options o = {.n_threads = threads, .exact = exact, .isa = isa};
    assert_int_equal(rvi_backend_cpu_new(&be, &o, NULL, NULL), RV_OK);
    assert_int_equal(be->ops->train_reserve(be, MAX_ROWS, MAX_COLS, MAX_VOCAB, NULL), RV_OK);
    return be;
}

/* Rows of a tensor with a gap before and after the columns in use, holding x; its gaps hold 7. */
static rvi_cols rows_of(rvi_backend *be, const float *x, int n_rows, int n_cols)
{
    enum { GAP = 3 };
    rvi_tensor *t;
    assert_int_equal(be->ops->rows_new(be, &t, n_rows, n_cols + 2 * GAP, NULL), RV_OK);
    float *row = malloc((size_t)(n_cols + 2 * GAP) * sizeof *row);
    assert_non_null(row);
    for (int r = 0; r < n_rows; r++) {
        for (int i = 0; i < n_cols + 2 * GAP; i++) row[i] = 7;
        for (int i = 0; i < n_cols; i++)
            row[GAP + i] = x ? x[(size_t)r * (size_t)n_cols + (size_t)i] : 0;
        be->ops->rows_write(be, rvi_cols_of(t, 0, n_cols + 2 * GAP), r, row);
    }
    free(row);
    return rvi_cols_of(t, GAP, n_cols);
}

/* What rows hold now; the gaps must hold what they did. Frees the tensor. */
static float *take(rvi_backend *be, rvi_cols c, int n_rows)
{
    int total = be->ops->n_cols(c.t);
    float *out = malloc(((size_t)n_rows * (size_t)c.n + 1) * sizeof *out),
          *row = malloc((size_t)total * sizeof *row);
    assert_true(out && row);
    for (int r = 0; r < n_rows; r++) {
        be->ops->rows_read(be, rvi_cols_of(c.t, 0, total), r, row);
        for (int i = 0; i < total; i++)
            if (i < c.first || i >= c.first + c.n) assert_true(row[i] == 7.0f);
        memcpy(out + (size_t)r * (size_t)c.n, row + c.first, (size_t)c.n * sizeof *out);
    }
    free(row);
    be->ops->tensor_free(be, c.t);
    return out;
}

static void drop(rvi_backend *be, rvi_cols c)
{
    be->ops->tensor_free(be, c.t);
}

static void expect_near(double got, double want, double tolerance, const char *what)
{
    if (fabs(got - want) <= tolerance) return;
    fail_msg("%s: %.9g instead of %.9g, allowed is %.3g", what, got, want, tolerance);
}

/* Every kernel row of this machine that brings training kernels of its own, and not exact where
 * that is another arithmetic. */
typedef struct mode {
    const char *isa;
    bool exact;
} mode;

static bool has_same_training(const rvi_kernels *a, const rvi_kernels *b)
{
    return a->train_f32 == b->train_f32 && a->norm_back == b->norm_back &&
           a->silu_back == b->silu_back && a->gelu_back == b->gelu_back &&
           a->exp_sum == b->exp_sum && a->exp_slope == b->exp_slope && a->softmax == b->softmax &&
           a->softmax_back == b->softmax_back && a->key_back == b->key_back &&
           !memcmp(a->dequantize, b->dequantize, sizeof a->dequantize) &&
           !memcmp(a->pack, b->pack, sizeof a->pack);
}

static int modes(mode *out)
{
    rvi_kernels k, before = {0};
    int n = 0;
    for (const char *const *isa = rvi_kernels_available(); *isa; isa++) {
        assert_true(rvi_kernels_init(&k, *isa));
        if (!has_same_training(&k, &before)) out[n++] = (mode){*isa, true};
        if (k.train_bf16 && k.train_bf16 != before.train_bf16) out[n++] = (mode){*isa, false};
        before = k;
    }
    return n;
}

/* ---- linear layers ---- */

typedef struct layer {
    rvi_qtype type;
    int n_rows, n_in, n_out, rank;
    bool bias, no_dx, no_grads;
    uint8_t *stored;
    float *w, *bias_at, *a, *b, *x, *dy, *dx0, *da0, *db0;
    float scale;
} layer;

static void layer_new(layer *l)
{
    size_t n = (size_t)l->n_in * (size_t)l->n_out, rank = (size_t)l->rank;
    size_t row_bytes = rvi_qtype_row_bytes(l->type, (size_t)l->n_in);
    l->w = numbers_new(n);
    l->stored = malloc(row_bytes * (size_t)l->n_out + 1);
    assert_non_null(l->stored);
    for (int o = 0; o < l->n_out; o++) {
        uint8_t *row = l->stored + (size_t)o * row_bytes;
        float *w = l->w + (size_t)o * (size_t)l->n_in;
        if (!rvi_quantize(
                l->type, w, row,
                (size_t)l->n_in)) /* no encoder: small numbers, so that scales are finite */
            for (size_t i = 0; i < row_bytes; i++) row[i] = (uint8_t)rvi_rng_u64(&rng) & 0x2f;
        rvi_dequantize(l->type, row, w, (size_t)l->n_in);
    }
    l->bias_at = l->bias ? numbers_new((size_t)l->n_out) : NULL;
    l->a = numbers_new(rank * (size_t)l->n_in);
    l->b = numbers_new(rank * (size_t)l->n_out);
    l->da0 = numbers_new(rank * (size_t)l->n_in);
    l->db0 = numbers_new(rank * (size_t)l->n_out);
    l->x = numbers_new((size_t)l->n_rows * (size_t)l->n_in);
    l->dx0 = numbers_new((size_t)l->n_rows * (size_t)l->n_in);
    l->dy = numbers_new((size_t)l->n_rows * (size_t)l->n_out);
    l->scale = 0.75f;
}

static void layer_free(layer *l)
{
    float *all[] = {l->w, l->bias_at, l->a, l->b, l->x, l->dy, l->dx0, l->da0, l->db0};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) free(all[i]);
    free(l->stored);
}

typedef struct results {
    float *y, *dx, *da, *db;
} results;

static void results_free(results *r)
{
    free(r->y);
    free(r->dx);
    free(r->da);
    free(r->db);
}

static float *copy_of(const float *x, size_t n)
{
    float *out = malloc((n + 1) * sizeof *out);
    assert_non_null(out);
    memcpy(out, x, n * sizeof *out);
    return out;
}

static rvi_tensor *view_of(rvi_backend *be, float *data, int n_rows, int n_cols)
{
    rvi_tensor *t;
    assert_int_equal(be->ops->floats_view(be, &t, data, n_rows, n_cols, NULL), RV_OK);
    return t;
}

/* Weights that are held packed: with many threads. */
typedef struct holding {
    rvi_pack *pack[RVI_MAX_LINEARS];
    rvi_held *held[RVI_MAX_LINEARS];
} holding;

static void hold(rvi_backend *be, holding *h, rvi_float_linear *l, int n)
{
    for (int i = 0; i < n; i++) {
        size_t bytes = be->ops->held_bytes(be, l[i].w, true);
        if (!bytes) continue;
        assert_int_equal(be->ops->pack_new(be, &h->pack[i], bytes, NULL), RV_OK);
        assert_int_equal(be->ops->held_new(be, &h->held[i], h->pack[i], l[i].w, true, NULL), RV_OK);
        l[i].held = h->held[i];
    }
}

static void let_go(rvi_backend *be, holding *h)
{
    for (int i = 0; i < RVI_MAX_LINEARS; i++) {
        be->ops->held_free(be, h->held[i]);
        be->ops->pack_free(be, h->pack[i]);
    }
}

/* Runs the layer; packed: after its weight went into the form for inference. */
static results run_layer(const layer *l, int threads, mode m, bool packed)
{
    rvi_backend *be = open_backend(threads, m.exact, m.isa);
    const rvi_backend_ops *ops = be->ops;
    results r = {.da = copy_of(l->da0, (size_t)l->rank * (size_t)l->n_in),
                 .db = copy_of(l->db0, (size_t)l->rank * (size_t)l->n_out)};
    rvi_tensor_view view = {.name = "w", .type = l->type, .n_dims = 2, .data = l->stored};
    view.shape[0] = (uint64_t)l->n_out;
    view.shape[1] = (uint64_t)l->n_in;
    rvi_tensor *w, *bias = NULL, *a = NULL, *b = NULL, *da = NULL, *db = NULL;
    rvi_pack *pack = NULL;
    assert_int_equal(ops->weight_new(be, &w, &view, NULL), RV_OK);
    size_t bytes = packed ? ops->pack_bytes(be, w) : 0;
    if (bytes) {
        assert_int_equal(ops->pack_new(be, &pack, bytes, NULL), RV_OK);
        ops->pack(be, pack, w);
    }
    if (l->bias) bias = view_of(be, l->bias_at, 1, l->n_out);
    if (l->rank) {
        a = view_of(be, l->a, l->rank, l->n_in);
        b = view_of(be, l->b, l->n_out, l->rank);
        da = view_of(be, r.da, l->rank, l->n_in);
        db = view_of(be, r.db, l->n_out, l->rank);
    }
    rvi_float_linear fl = {.w = w, .bias = bias, .a = a, .b = b, .scale = l->scale};
    rvi_cols x = rows_of(be, l->x, l->n_rows, l->n_in), y = rows_of(be, NULL, l->n_rows, l->n_out);
    rvi_cols dy = rows_of(be, l->dy, l->n_rows, l->n_out),
             dx = rows_of(be, l->dx0, l->n_rows, l->n_in);
    if (!l->no_grads) {
        fl.da = da;
        fl.db = db;
    }
    holding held = {0};
    hold(be, &held, &fl, 1);
    ops->linear(be, &fl, 1, y, x, l->n_rows);
    ops->linear_back(be, &fl, 1, l->no_dx ? (rvi_cols){0} : dx, false, dy, x, l->n_rows);
    r.y = take(be, y, l->n_rows);
    r.dx = take(be, dx, l->n_rows);
    drop(be, x);
    drop(be, dy);
    rvi_tensor *all[] = {w, bias, a, b, da, db};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) ops->tensor_free(be, all[i]);
    let_go(be, &held);
    ops->pack_free(be, pack);
    ops->free(be);
    return r;
}

/* One sum in float64 with what its terms amount to. */
typedef struct sum {
    double value, size;
} sum;

static void add_term(sum *s, double a, double b)
{
    s->value += a * b;
    s->size += fabs(a * b);
}

static void check_layer(const layer *l, const results *r, double relative)
{
    enum { STEP = AMOUNT(1, 7) }; /* of the outputs and inputs whose sums are made again */
    int n_in = l->n_in, n_out = l->n_out, rank = l->rank, n_rows = l->n_rows;
    sum *t = calloc((size_t)(n_rows * rank + 1), sizeof *t),
        *q = calloc((size_t)(n_rows * rank + 1), sizeof *q);
    assert_true(t && q);
    for (int i = 0; i < n_rows; i++)
        for (int k = 0; k < rank; k++) {
            for (int e = 0; e < n_in; e++)
                add_term(&t[i * rank + k], (double)l->scale * (double)l->a[k * n_in + e],
                         (double)l->x[i * n_in + e]);
            for (int o = 0; o < n_out; o++)
                add_term(&q[i * rank + k], (double)l->scale * (double)l->b[o * rank + k],
                         (double)l->dy[i * n_out + o]);
        }
    for (int i = 0; i < n_rows; i++)
        for (int o = i % STEP; o < n_out; o += STEP) {
            sum s = {0};
            if (l->bias) add_term(&s, (double)l->bias_at[o], 1);
            for (int e = 0; e < n_in; e++)
                add_term(&s, (double)l->w[o * n_in + e], (double)l->x[i * n_in + e]);
            for (int k = 0; k < rank; k++) {
                s.value += (double)l->b[o * rank + k] * t[i * rank + k].value;
                s.size += fabs((double)l->b[o * rank + k]) * t[i * rank + k].size;
            }
            expect_near((double)r->y[i * n_out + o], s.value, relative * s.size, "y");
        }
    for (int i = 0; i < n_rows; i++)
        for (int e = i % STEP; e < n_in; e += STEP) {
            sum s = {0};
            add_term(&s, (double)l->dx0[i * n_in + e], 1);
            for (int o = 0; !l->no_dx && o < n_out; o++)
                add_term(&s, (double)l->w[o * n_in + e], (double)l->dy[i * n_out + o]);
            for (int k = 0; !l->no_dx && k < rank; k++) {
                s.value += (double)l->a[k * n_in + e] * q[i * rank + k].value;
                s.size += fabs((double)l->a[k * n_in + e]) * q[i * rank + k].size;
            }
            expect_near((double)r->dx[i * n_in + e], s.value, relative * s.size, "dx");
        }
    for (int k = 0; k < rank; k++) {
        for (int e = 0; e < n_in; e++) {
            sum s = {0};
            add_term(&s, (double)l->da0[k * n_in + e], 1);
            for (int i = 0; !l->no_grads && i < n_rows; i++) {
                s.value += q[i * rank + k].value * (double)l->x[i * n_in + e];
                s.size += fabs(q[i * rank + k].size * (double)l->x[i * n_in + e]);
            }
            expect_near((double)r->da[k * n_in + e], s.value, relative * s.size, "da");
        }
        for (int o = 0; o < n_out; o++) {
            sum s = {0};
            add_term(&s, (double)l->db0[o * rank + k], 1);
            for (int i = 0; !l->no_grads && i < n_rows; i++) {
                s.value += t[i * rank + k].value * (double)l->dy[i * n_out + o];
                s.size += fabs(t[i * rank + k].size * (double)l->dy[i * n_out + o]);
            }
            expect_near((double)r->db[o * rank + k], s.value, relative * s.size, "db");
        }
    }
    free(t);
    free(q);
}

static void expect_same(const float *a, const float *b, size_t n, const char *what)
{
    if (memcmp(a, b, n * sizeof *a) != 0)
        fail_msg("%s: other bits with other threads or calls", what);
}

/* In bf16 both operands are off by 2^-9 of themselves, an adapter's by twice as much; f32 sums are
 * short here. */
static const double tolerance_f32 = 2e-6, tolerance_bf16 = 0.012;

static void try_layer(layer *l, mode m)
{
    layer_new(l);
    static const int threads[] = {5, 3, 16}; /* from 4 on weights are held packed */
    results one = run_layer(l, 1, m, false);
    check_layer(l, &one, m.exact ? tolerance_f32 : tolerance_bf16);
    for (int i = 0; i < AMOUNT(3, 1); i++) {
        results other = run_layer(l, threads[i], m, true);
        expect_same(one.y, other.y, (size_t)l->n_rows * (size_t)l->n_out, "y");
        expect_same(one.dx, other.dx, (size_t)l->n_rows * (size_t)l->n_in, "dx");
        expect_same(one.da, other.da, (size_t)l->rank * (size_t)l->n_in, "da");
        expect_same(one.db, other.db, (size_t)l->rank * (size_t)l->n_out, "db");
        results_free(&other);
    }
    results_free(&one);
    layer_free(l);
}

static void linear_types(void **state)
{
    (void)state;
    mode all[16];
    for (int i = 0, n = modes(all); i < n; i++)
        for (int t = 0; t < RVI_QTYPE_COUNT; t++) {
            layer l = {.type = (rvi_qtype)t,
                       .n_rows = 21,
                       .n_in = 512,
                       .n_out = 70,
                       .rank = 5,
                       .bias = t % 2};
            try_layer(&l, all[i]);
        }
}

static void linear_shapes(void **state)
{
    (void)state;
    static const struct {
        int n_rows, n_in, n_out, rank;
    } shapes[] = {{1, 32, 1, 1},     {2, 64, 3, 0},    {5, 96, 17, 16},  {16, 32, 16, 8},
                  {17, 160, 33, 17}, {33, 224, 65, 2}, {70, 64, 129, 3}, {48, 576, 64, 40},
                  {1, 64, 48, 33},   {130, 96, 40, 70}};
    mode all[16];
    for (int i = 0, n = modes(all); i < n; i++)
        for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
            layer l = {.type = RVI_Q8_0,
                       .n_rows = shapes[s].n_rows,
                       .n_in = shapes[s].n_in,
                       .n_out = shapes[s].n_out,
                       .rank = shapes[s].rank,
                       .bias = s % 2,
                       .no_dx = s % 3 == 2,
                       .no_grads = s % 5 == 4};
            try_layer(&l, all[i]);
            /* rows of any length */
            layer odd = {.type = s % 2 ? RVI_F32 : RVI_BF16,
                         .n_rows = shapes[s].n_rows,
                         .n_in = shapes[s].n_in - 1 - (int)s,
                         .n_out = shapes[s].n_out,
                         .rank = shapes[s].rank};
            try_layer(&odd, all[i]);
        }
}

/* More inputs than a chunk has and more rows than a block; and far more outputs than inputs. */
static void linear_large(void **state)
{
    (void)state;
    mode all[16];
    int n = modes(all);
    mode last = all[n - 1]; /* the fastest: the sums in float64 take their time */
    layer wide = {.type = RVI_Q4_1, .n_rows = 300, .n_in = 1312, .n_out = 96, .rank = 8},
          tall = {.type = RVI_Q8_0, .n_rows = 200, .n_in = 64, .n_out = 9001};
    try_layer(&wide, last);
    try_layer(&tall, last);
}

/* ---- layers of one input ---- */

typedef struct layer_group {
    int n, n_rows, n_in;
    bool no_dx, fresh;
    layer layers[RVI_MAX_LINEARS]; /* x and dx0 of the first are of all */
} layer_group;

typedef struct group_results {
    float *y, *dx, *da[RVI_MAX_LINEARS], *db[RVI_MAX_LINEARS];
} group_results;

static int group_cols(const layer_group *g)
{
    int n = 0;
    for (int i = 0; i < g->n; i++) n += g->layers[i].n_out;
    return n;
}

/* dy of all layers: their columns */
static float *side_by_side(const layer_group *g)
{
    int total = group_cols(g), first = 0;
    float *out = malloc((size_t)(g->n_rows * total) * sizeof *out);
    assert_non_null(out);
    for (int i = 0; i < g->n; first += g->layers[i++].n_out)
        for (int r = 0; r < g->n_rows; r++)
            memcpy(out + r * total + first, g->layers[i].dy + r * g->layers[i].n_out,
                   (size_t)g->layers[i].n_out * sizeof *out);
    return out;
}

/* Together, or by a call for each layer */
static group_results run_group(const layer_group *g, int threads, mode m, bool together)
{
    rvi_backend *be = open_backend(threads, m.exact, m.isa);
    const rvi_backend_ops *ops = be->ops;
    group_results r = {0};
    rvi_float_linear fl[RVI_MAX_LINEARS] = {0};
    for (int i = 0; i < g->n; i++) {
        const layer *l = &g->layers[i];
        rvi_tensor *w, *bias = l->bias ? view_of(be, l->bias_at, 1, l->n_out) : NULL;
        rvi_tensor_view view = {.name = "w", .type = l->type, .n_dims = 2, .data = l->stored};
        view.shape[0] = (uint64_t)l->n_out;
        view.shape[1] = (uint64_t)l->n_in;
        assert_int_equal(ops->weight_new(be, &w, &view, NULL), RV_OK);
        fl[i] = (rvi_float_linear){.w = w, .bias = bias, .scale = l->scale};
        r.da[i] = copy_of(l->da0, (size_t)l->rank * (size_t)l->n_in);
        r.db[i] = copy_of(l->db0, (size_t)l->rank * (size_t)l->n_out);
        if (!l->rank) continue;
        fl[i].a = view_of(be, l->a, l->rank, l->n_in);
        fl[i].b = view_of(be, l->b, l->n_out, l->rank);
        if (l->no_grads) continue;
        fl[i].da = view_of(be, r.da[i], l->rank, l->n_in);
        fl[i].db = view_of(be, r.db[i], l->n_out, l->rank);
    }
    holding held = {0};
    hold(be, &held, fl, g->n);
    float *dys = side_by_side(g);
    int n = g->n_rows, total = group_cols(g);
    rvi_cols x = rows_of(be, g->layers[0].x, n, g->n_in), y = rows_of(be, NULL, n, total),
             dy = rows_of(be, dys, n, total), dx = rows_of(be, g->layers[0].dx0, n, g->n_in),
             to = g->no_dx ? (rvi_cols){0} : dx;
    if (together) {
        ops->linear(be, fl, g->n, y, x, n);
        ops->linear_back(be, fl, g->n, to, g->fresh, dy, x, n);
    }
    for (int i = 0, at = 0; !together && i < g->n; at += g->layers[i++].n_out) {
        int cols = g->layers[i].n_out;
        ops->linear(be, &fl[i], 1, rvi_cols_of(y.t, y.first + at, cols), x, n);
        ops->linear_back(be, &fl[i], 1, to, g->fresh && i == 0,
                         rvi_cols_of(dy.t, dy.first + at, cols), x, n);
    }
    r.y = take(be, y, n);
    r.dx = take(be, dx, n);
    drop(be, x);
    drop(be, dy);
    free(dys);
    for (int i = 0; i < g->n; i++) {
        const rvi_tensor *all[] = {fl[i].w, fl[i].bias, fl[i].a, fl[i].b, fl[i].da, fl[i].db};
        for (size_t t = 0; t < sizeof all / sizeof all[0]; t++)
            ops->tensor_free(be, (rvi_tensor *)all[t]);
    }
    let_go(be, &held);
    ops->free(be);
    return r;
}

static void group_results_free(group_results *r)
{
    free(r->y);
    free(r->dx);
    for (int i = 0; i < RVI_MAX_LINEARS; i++) {
        free(r->da[i]);
        free(r->db[i]);
    }
}

static void expect_same_group(const layer_group *g, const group_results *a, const group_results *b)
{
    size_t rows = (size_t)g->n_rows;
    expect_same(a->y, b->y, rows * (size_t)group_cols(g), "y of a group");
    expect_same(a->dx, b->dx, rows * (size_t)g->n_in, "dx of a group");
    for (int i = 0; i < g->n; i++) {
        size_t rank = (size_t)g->layers[i].rank;
        expect_same(a->da[i], b->da[i], rank * (size_t)g->n_in, "da of a group");
        expect_same(a->db[i], b->db[i], rank * (size_t)g->layers[i].n_out, "db of a group");
    }
}

/* Each layer's y, da and db are what float64 says of it alone; dx is the sum of what the layers
 * add. */
static void check_group(const layer_group *g, const group_results *r, double relative)
{
    int total = group_cols(g), first = 0, n_in = g->n_in;
    size_t n = (size_t)(g->n_rows * n_in);
    sum *dx = calloc(n, sizeof *dx);
    assert_non_null(dx);
    for (size_t e = 0; !g->fresh && e < n; e++) add_term(&dx[e], (double)g->layers[0].dx0[e], 1);
    for (int i = 0; i < g->n; first += g->layers[i++].n_out) {
        layer l = g->layers[i];
        float *y = malloc((size_t)(g->n_rows * l.n_out) * sizeof *y);
        assert_non_null(y);
        for (int row = 0; row < g->n_rows; row++)
            memcpy(y + row * l.n_out, r->y + row * total + first, (size_t)l.n_out * sizeof *y);
        l.x = g->layers[0].x;
        l.no_dx = true; /* its own check would be of dx0 alone */
        check_layer(&l, &(results){y, l.dx0, r->da[i], r->db[i]}, relative);
        free(y);
        for (int row = 0; !g->no_dx && row < g->n_rows; row++) {
            const float *dy = l.dy + row * l.n_out;
            for (int o = 0; o < l.n_out; o++)
                for (int e = 0; e < n_in; e++)
                    add_term(&dx[row * n_in + e], (double)l.w[o * n_in + e], (double)dy[o]);
            for (int k = 0; k < l.rank; k++) {
                sum q = {0};
                for (int o = 0; o < l.n_out; o++)
                    add_term(&q, (double)l.scale * (double)l.b[o * l.rank + k], (double)dy[o]);
                for (int e = 0; e < n_in; e++) {
                    dx[row * n_in + e].value += (double)l.a[k * n_in + e] * q.value;
                    dx[row * n_in + e].size += fabs((double)l.a[k * n_in + e]) * q.size;
                }
            }
        }
    }
    for (size_t e = 0; !g->no_dx && e < n; e++)
        expect_near((double)r->dx[e], dx[e].value, relative * dx[e].size, "dx of a group");
    free(dx);
}

static void try_group(layer_group *g, mode m, bool checked)
{
    for (int i = 0; i < g->n; i++) {
        layer *l = &g->layers[i];
        l->n_rows = g->n_rows;
        l->n_in = g->n_in;
        layer_new(l);
        l->scale = 0.5f + 0.25f * (float)i;
    }
    static const struct {
        int threads; /* from 4 on weights are held packed */
        bool together;
    } ways[] = {{2, false}, {6, true}, {6, false}, {2, true}, {3, true}};
    group_results one = run_group(g, 1, m, true);
    if (checked) check_group(g, &one, m.exact ? tolerance_f32 : tolerance_bf16);
    for (int i = 0; i < AMOUNT(5, 3); i++) {
        group_results other = run_group(g, ways[i].threads, m, ways[i].together);
        expect_same_group(g, &one, &other);
        group_results_free(&other);
    }
    group_results_free(&one);
    for (int i = 0; i < g->n; i++) layer_free(&g->layers[i]);
}

static void linear_groups(void **state)
{
    (void)state;
    mode all[16];
    for (int i = 0, n = modes(all); i < n; i++) {
        layer_group like_qkv = {.n = 3,
                                .n_rows = 37,
                                .n_in = 96,
                                .layers = {{.type = RVI_Q4_1, .n_out = 96, .rank = 8},
                                           {.type = RVI_Q4_1, .n_out = 32, .rank = 8},
                                           {.type = RVI_Q4_1, .n_out = 32, .rank = 8}}};
        try_group(&like_qkv, all[i], true);
        /* ranks that do not fit into a step together; one layer without an adapter; types and
         * biases of all kinds */
        layer_group mixed = {.n = 3,
                             .n_rows = 70,
                             .n_in = 256,
                             .fresh = true,
                             .layers = {{.type = RVI_Q6_K, .n_out = 50, .rank = 12, .bias = true},
                                        {.type = RVI_Q8_0, .n_out = 17, .bias = true},
                                        {.type = RVI_F32, .n_out = 33, .rank = 25}}};
        try_group(&mixed, all[i], true);
        layer_group odd = {.n = 2,
                           .n_rows = 5,
                           .n_in = 77,
                           .layers = {{.type = RVI_BF16, .n_out = 19, .rank = 3, .no_grads = true},
                                      {.type = RVI_F32, .n_out = 7, .rank = 5}}};
        try_group(&odd, all[i], true);
        layer_group no_dx = {.n = 3,
                             .n_rows = 49,
                             .n_in = 64,
                             .no_dx = true,
                             .layers = {{.type = RVI_Q8_0, .n_out = 40},
                                        {.type = RVI_Q4_0, .n_out = 70, .rank = 40, .bias = true},
                                        {.type = RVI_Q8_0, .n_out = 3, .rank = 1}}};
        try_group(&no_dx, all[i], true);
        /* chunks that end within a layer, forward and backward */
        layer_group chunks = {.n = 3,
                              .n_rows = 20,
                              .n_in = 800,
                              .layers = {{.type = RVI_Q8_0, .n_out = 300, .rank = 4},
                                         {.type = RVI_Q8_0, .n_out = 500, .rank = 33},
                                         {.type = RVI_Q4_1, .n_out = 70, .rank = 2}}};
        try_group(&chunks, all[i], false);
    }
}

/* Ranks that the scratch cannot hold together: the layers go one by one. */
static void linear_ranks(void **state)
{
    (void)state;
    mode all[16];
    for (int i = 0, n = modes(all); i < n; i++) {
        if (!strcmp(all[i].isa, "ref")) continue; /* slow, and no other code */
        layer_group g = {.n = 3,
                         .n_rows = 18,
                         .n_in = 32,
                         .layers = {{.type = RVI_Q8_0, .n_out = 20, .rank = 500},
                                    {.type = RVI_Q8_0, .n_out = 17, .rank = 501},
                                    {.type = RVI_Q8_0, .n_out = 16, .rank = RVI_MAX_RANK}}};
        try_group(&g, all[i], true);
    }
}

/* NaN in a row of x and of dy: the row's results are NaN, and all of da and db that it enters; no
 * other. */
static void linear_nan(void **state)
{
    (void)state;
    mode all[16];
    for (int i = 0, n = modes(all); i < n; i++) {
        layer l = {.type = RVI_Q4_0, .n_rows = 20, .n_in = 64, .n_out = 40, .rank = 4};
        layer_new(&l);
        l.x[3 * 64 + 5] = NAN;
        l.dy[7 * 40 + 39] = NAN;
        results r = run_layer(&l, 2, all[i], false);
        for (int row = 0; row < 20; row++) {
            for (int o = 0; o < 40; o++) assert_int_equal(isnan(r.y[row * 40 + o]) != 0, row == 3);
            for (int e = 0; e < 64; e++) assert_int_equal(isnan(r.dx[row * 64 + e]) != 0, row == 7);
        }
        assert_true(isnan(r.da[0]) && isnan(r.db[39 * 4]));
        results_free(&r);
        layer_free(&l);
    }
}

/* ---- attention ---- */

typedef struct texts {
    rvi_attention a;
    const rvi_span *spans;
    int n_spans, n_rows;
    double *q, *k, *v, *dout;
    double *out;
} texts;

static int row_at(const rvi_span *spans, int s, int pos)
{
    while (pos < spans[s].pos) s = spans[s].parent;
    return spans[s].first + pos - spans[s].pos;
}

/* Forward in float64; returns sum of dout * out. */
static double attend(const texts *t)
{
    const rvi_attention *a = &t->a;
    int size = a->head_size, q_cols = a->n_heads * size, kv_cols = a->n_kv_heads * size;
    double total = 0, p[MAX_ROWS];
    for (int s = 0; s < t->n_spans; s++)
        for (int i = 0; i < t->spans[s].n; i++)
            for (int h = 0; h < a->n_heads; h++) {
                int row = t->spans[s].first + i, pos = t->spans[s].pos + i,
                    kv = h / (a->n_heads / a->n_kv_heads);
                int from = a->window && pos >= a->window ? pos - a->window + 1 : 0;
                double l = 0;
                for (int u = from; u <= pos; u++) {
                    const double *k = t->k + row_at(t->spans, s, u) * kv_cols + kv * size;
                    double z = 0;
                    for (int e = 0; e < size; e++) z += t->q[row * q_cols + h * size + e] * k[e];
                    z *= (double)a->scale;
                    if (a->soft_cap != 0.0f)
                        z = (double)a->soft_cap * tanh(z / (double)a->soft_cap);
                    l += p[u] = exp(z);
                }
                for (int e = 0; e < size; e++) {
                    double o = 0;
                    for (int u = from; u <= pos; u++)
                        o += p[u] / l * t->v[row_at(t->spans, s, u) * kv_cols + kv * size + e];
                    if (t->out) t->out[row * q_cols + h * size + e] = o;
                    total += o * t->dout[row * q_cols + h * size + e];
                }
            }
    return total;
}

static double *widen(const float *x, size_t n)
{
    double *out = malloc((n + 1) * sizeof *out);
    assert_non_null(out);
    for (size_t i = 0; i < n; i++) out[i] = (double)x[i];
    return out;
}

/* Gradients by differences, of every stride-th element */
static double *slopes_new(texts *t, double *x, size_t n, size_t stride)
{
    const double h = 1e-5;
    double *out = calloc(n, sizeof *out);
    assert_non_null(out);
    for (size_t i = 0; i < n; i += stride) {
        double kept = x[i];
        x[i] = kept + h;
        double up = attend(t);
        x[i] = kept - h;
        out[i] = (up - attend(t)) / (2 * h);
        x[i] = kept;
    }
    return out;
}

static void check_slopes(const double *want, const float *got, size_t n, size_t stride,
                         const char *what)
{
    for (size_t i = 0; i < n; i += stride)
        expect_near((double)got[i], want[i], 3e-6 + 3e-5 * fabs(want[i]), what);
}

static const rvi_span family[] = {
    {0, 5, 0, -1},                  /* shared by */
    {5, 4, 5, 0},                   /* a child, shared by */
    {9, 3, 9, 1},                   /* two grandchildren */
    {12, 18, 9, 1},  {30, 7, 5, 0}, /* another child */
    {37, 1, 0, -1},                 /* a text of its own */
    {38, 33, 0, -1}, {71, 2, 33, 6},
};

typedef struct attn_results {
    float *out, *dq, *dk, *dv;
} attn_results;

static attn_results run_attention(const texts *t, const float *q, const float *k, const float *v,
                                  const float *dout, int threads, mode m)
{
    rvi_backend *be = open_backend(threads, m.exact, m.isa);
    const rvi_backend_ops *ops = be->ops;
    int q_cols = t->a.n_heads * t->a.head_size, kv_cols = t->a.n_kv_heads * t->a.head_size,
        n = t->n_rows;
    rvi_cols cq = rows_of(be, q, n, q_cols), ck = rows_of(be, k, n, kv_cols),
             cv = rows_of(be, v, n, kv_cols);
    rvi_cols co = rows_of(be, NULL, n, q_cols), cd = rows_of(be, dout, n, q_cols);
    rvi_cols dq = rows_of(be, q, n, q_cols), dk = rows_of(be, k, n, kv_cols),
             dv = rows_of(be, v, n, kv_cols);
    ops->span_attention(be, co, cq, ck, cv, &t->a, t->spans, t->n_spans);
    ops->span_attention_back(be, dq, dk, dv, cd, cq, ck, cv, &t->a, t->spans, t->n_spans);
    attn_results r = {take(be, co, n), take(be, dq, n), take(be, dk, n), take(be, dv, n)};
    drop(be, cq);
    drop(be, ck);
    drop(be, cv);
    drop(be, cd);
    ops->free(be);
    return r;
}

static void attn_free(attn_results *r)
{
    free(r->out);
    free(r->dq);
    free(r->dk);
    free(r->dv);
}

/* Texts longer than a block of rows and a chunk of keys */
static const rvi_span long_family[] = {{0, 130, 0, -1}, {130, 200, 130, 0}, {330, 70, 130, 0}};

/* With wide heads: blocks whose parts of dk and dv are kept, then such as see too many keys for
 * that */
static const rvi_span far_family[] = {
    {0, 45, 0, -1}, {45, 70, 45, 0}, {115, 3, 45, 0}, {118, 9, 0, -1}};

enum { FAR_ROWS = 127, CHILDREN = 40, CHILD = 2, SHARED = 100 };
enum { MANY_ROWS = SHARED + CHILDREN * CHILD };

/* With heads of 400: more parts than are kept at a time */
static const rvi_span *many_children(void)
{
    static rvi_span spans[1 + CHILDREN];
    spans[0] = (rvi_span){0, SHARED, 0, -1};
    for (int i = 0; i < CHILDREN; i++)
        spans[1 + i] = (rvi_span){SHARED + CHILD * i, CHILD, SHARED, 0};
    return spans;
}

static void try_texts(texts t, size_t stride)
{
    rvi_attention a = t.a;
    size_t nq = (size_t)(t.n_rows * a.n_heads * a.head_size),
           nk = (size_t)(t.n_rows * a.n_kv_heads * a.head_size);
    float *q = numbers_new(nq), *k = numbers_new(nk), *v = numbers_new(nk), *dout = numbers_new(nq);
    for (size_t i = 0; i < nq; i++) q[i] *= 2;
    t.q = widen(q, nq);
    t.k = widen(k, nk);
    t.v = widen(v, nk);
    t.dout = widen(dout, nq);
    t.out = widen(dout, nq);
    attend(&t);
    double *out = t.out;
    t.out = NULL;
    double *dq = slopes_new(&t, t.q, nq, stride), *dk = slopes_new(&t, t.k, nk, stride),
           *dv = slopes_new(&t, t.v, nk, stride);
    mode all[16];
    for (int i = 0, n = modes(all); i < n; i++) {
        if (!strcmp(all[i].isa, "ref") && t.n_rows > AMOUNT(MAX_ROWS, 100))
            continue; /* slow, and no other code than with fewer rows */
        attn_results r = run_attention(&t, q, k, v, dout, 1, all[i]),
                     two = run_attention(&t, q, k, v, dout, 2, all[i]);
        for (size_t e = 0; e < nq; e++) expect_near((double)r.out[e], out[e], 3e-6, "attention");
        check_slopes(dq, r.dq, nq, stride, "dq");
        check_slopes(dk, r.dk, nk, stride, "dk");
        check_slopes(dv, r.dv, nk, stride, "dv");
        expect_same(r.out, two.out, nq, "attention");
        expect_same(r.dq, two.dq, nq, "dq");
        expect_same(r.dk, two.dk, nk, "dk");
        expect_same(r.dv, two.dv, nk, "dv");
        attn_free(&r);
        attn_free(&two);
    }
    free(out);
    free(dq);
    free(dk);
    free(dv);
    free(q);
    free(k);
    free(v);
    free(dout);
    free(t.q);
    free(t.k);
    free(t.v);
    free(t.dout);
}

static void try_attention(rvi_attention a, size_t stride, bool is_long)
{
    if (is_long)
        try_texts((texts){.a = a, .spans = long_family, .n_spans = 3, .n_rows = 400}, stride);
    else
        try_texts((texts){.a = a, .spans = family, .n_spans = 8, .n_rows = 73}, stride);
}

static void attention_shapes(void **state)
{
    (void)state;
    static const int windows[] = {0, 1, 3, 8, 40};
    for (size_t w = 0; w < sizeof windows / sizeof windows[0]; w++) {
        try_attention((rvi_attention){4, 2, 8, 0.35f, 0, windows[w]}, 29, false);
        try_attention((rvi_attention){3, 1, 20, 0.2f, 1.5f, windows[w]}, 53, false);
    }
    try_attention((rvi_attention){9, 3, 64, 0.125f, 0, 0}, 997, false);
    try_attention((rvi_attention){2, 2, 33, 0.125f, 30.0f, 0}, 97, false);
    try_attention((rvi_attention){2, 1, 5, 0.4f, 0, 0}, 307, true);
    try_attention((rvi_attention){10, 1, 4, 0.4f, 0, 100}, 1511, true);
    try_attention((rvi_attention){140, 2, 2, 0.5f, 3.0f, 0}, 997, false);
}

/* Many queries behind shared keys: parts of dk and dv in several waves, blocks that leave none,
 * windows, groups. */
static void attention_parts(void **state)
{
    (void)state;
    const rvi_span *many = many_children();
    rvi_attention far = {1, 1, 1600, 0.02f, 0, 0}, window = {2, 1, 800, 0.03f, 4, 84};
    try_texts((texts){.a = far, .spans = far_family, .n_spans = 4, .n_rows = FAR_ROWS}, 50021);
    try_texts((texts){.a = window, .spans = far_family, .n_spans = 4, .n_rows = FAR_ROWS}, 50021);
    rvi_attention wide = {1, 1, 400, 0.05f, 0, 0}, groups = {24, 2, 16, 0.25f, 0, 60},
                  single = {40, 40, 8, 0.35f, 0, 0};
    int n_spans = 1 + CHILDREN;
    try_texts((texts){.a = wide, .spans = many, .n_spans = n_spans, .n_rows = MANY_ROWS}, 20011);
    try_texts((texts){.a = groups, .spans = many, .n_spans = n_spans, .n_rows = MANY_ROWS}, 9973);
    try_texts((texts){.a = single, .spans = many, .n_spans = n_spans, .n_rows = MANY_ROWS}, 20011);
}

/* Other texts before and after, so many that the work comes in other waves: the same bits. */
static void attention_neighbours(void **state)
{
    (void)state;
    enum { BEFORE = MANY_ROWS, ROWS = BEFORE + FAR_ROWS, Q = 1600, K = 800 };
    rvi_span spans[1 + CHILDREN + 4];
    memcpy(spans, many_children(), (1 + CHILDREN) * sizeof *spans);
    for (int i = 0; i < 4; i++) {
        spans[1 + CHILDREN + i] = far_family[i];
        spans[1 + CHILDREN + i].first += BEFORE;
        if (far_family[i].parent >= 0) spans[1 + CHILDREN + i].parent += 1 + CHILDREN;
    }
    rvi_attention a = {2, 1, K, 0.05f, 0, 0};
    texts all_texts = {.a = a, .spans = spans, .n_spans = 5 + CHILDREN, .n_rows = ROWS},
          first = {.a = a, .spans = spans, .n_spans = 1 + CHILDREN, .n_rows = BEFORE},
          last = {.a = a, .spans = far_family, .n_spans = 4, .n_rows = FAR_ROWS};
    float *q = numbers_new(ROWS * Q), *k = numbers_new(ROWS * K), *v = numbers_new(ROWS * K),
          *d = numbers_new(ROWS * Q);
    const mode best = {NULL, true};
    attn_results r = run_attention(&all_texts, q, k, v, d, 2, best),
                 one = run_attention(&first, q, k, v, d, 2, best),
                 two = run_attention(&last, q + BEFORE * Q, k + BEFORE * K, v + BEFORE * K,
                                     d + BEFORE * Q, 2, best);
    expect_same(r.out, one.out, BEFORE * Q, "attention");
    expect_same(r.dq, one.dq, BEFORE * Q, "dq");
    expect_same(r.dk, one.dk, BEFORE * K, "dk");
    expect_same(r.dv, one.dv, BEFORE * K, "dv");
    expect_same(r.out + BEFORE * Q, two.out, FAR_ROWS * Q, "attention");
    expect_same(r.dq + BEFORE * Q, two.dq, FAR_ROWS * Q, "dq");
    expect_same(r.dk + BEFORE * K, two.dk, FAR_ROWS * K, "dk");
    expect_same(r.dv + BEFORE * K, two.dv, FAR_ROWS * K, "dv");
    attn_free(&r);
    attn_free(&one);
    attn_free(&two);
    free(q);
    free(k);
    free(v);
    free(d);
}

/* A NaN in a query: its own row and the keys it sees are NaN; it does not leave its text. */
static void attention_nan(void **state)
{
    (void)state;
    mode all[16];
    for (int i = 0, n = modes(all); i < n; i++) {
        texts t = {.a = {2, 1, 16, 0.25f, 0, 0}, .spans = family, .n_spans = 8, .n_rows = 73};
        float *q = numbers_new(73 * 32), *k = numbers_new(73 * 16), *v = numbers_new(73 * 16),
              *d = numbers_new(73 * 32);
        q[31 * 32 + 3] = NAN; /* head 0 of position 6 of rows 0..4, 30.. */
        attn_results r = run_attention(&t, q, k, v, d, 2, all[i]);
        for (int row = 0; row < 73; row++) {
            bool seen = row < 5 || row == 30 || row == 31,
                 text = row < 5 || (row >= 30 && row < 37);
            for (int e = 0; e < 32; e++) {
                assert_int_equal(isnan(r.out[row * 32 + e]) != 0, row == 31 && e < 16);
                assert_int_equal(isnan(r.dq[row * 32 + e]) != 0, row == 31 && e < 16);
            }
            for (int e = 0; e < 16; e++) {
                if (seen) assert_true(isnan(r.dv[row * 16 + e]) && isnan(r.dk[row * 16 + e]));
                if (!text) assert_false(isnan(r.dv[row * 16 + e]) || isnan(r.dk[row * 16 + e]));
            }
        }
        attn_free(&r);
        free(q);
        free(k);
        free(v);
        free(d);
    }
}

/* ---- norms and gates ---- */

/* sum over i of dy_i y_i, y = w x / sqrt(mean x^2 + eps) over each head */
static double norm_of(const double *x, const float *w, const float *dy, int n, int size, double eps)
{
    double total = 0;
    for (int at = 0; at < n; at += size) {
        double square = 0;
        for (int i = 0; i < size; i++) square += x[at + i] * x[at + i];
        double r = 1 / sqrt(square / size + eps);
        for (int i = 0; i < size; i++) total += x[at + i] * r * (double)w[i] * (double)dy[at + i];
    }
    return total;
}

static void try_norm(mode m, int n, int size, bool heads)
{
    enum { ROWS = 3 };
    rvi_backend *be = open_backend(2, m.exact, m.isa);
    float *x = numbers_new((size_t)(ROWS * n)), *dy = numbers_new((size_t)(ROWS * n)),
          *w = numbers_new((size_t)size), *dx0 = numbers_new((size_t)(ROWS * n));
    rvi_tensor *tw = view_of(be, w, 1, size);
    rvi_cols cx = rows_of(be, x, ROWS, n), cdy = rows_of(be, dy, ROWS, n),
             cdx = rows_of(be, dx0, ROWS, n);
    float *got;
    if (heads) { /* in place */
        be->ops->head_norm_back(be, cdy, cdy, cx, tw, ROWS, 1e-5f);
        got = take(be, cdy, ROWS);
        drop(be, cdx);
    } else {
        be->ops->rms_norm_back(be, cdx, cdy, cx, tw, ROWS, 1e-5f);
        got = take(be, cdx, ROWS);
        drop(be, cdy);
    }
    drop(be, cx);
    for (int r = 0; r < ROWS; r++) {
        double *at = widen(x + r * n, (size_t)n);
        for (int i = 0; i < n; i++) {
            const double h = 1e-5;
            double kept = at[i];
            at[i] = kept + h;
            double up = norm_of(at, w, dy + r * n, n, size, 1e-5);
            at[i] = kept - h;
            double slope = (up - norm_of(at, w, dy + r * n, n, size, 1e-5)) / (2 * h);
            at[i] = kept;
            if (!heads) slope += (double)dx0[r * n + i];
            expect_near((double)got[r * n + i], slope, 1e-5 + 1e-5 * fabs(slope), "norm");
        }
        free(at);
    }
    be->ops->tensor_free(be, tw);
    be->ops->free(be);
    free(x);
    free(dy);
    free(w);
    free(dx0);
    free(got);
}

static void norms(void **state)
{
    (void)state;
    mode all[16];
    for (int i = 0, n = modes(all); i < n; i++) {
        static const int sizes[] = {1, 3, 15, 16, 17, 63, 100};
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
            try_norm(all[i], sizes[s], sizes[s], false);
            try_norm(all[i], 3 * sizes[s], sizes[s], true);
        }
    }
}

static double gate_of(double g, rvi_glu kind)
{
    if (kind == RVI_GLU_SILU) return g / (1 + exp(-g));
    return 0.5 * g * (1 + tanh(sqrt(2 / acos(-1.0)) * (g + 0.044715 * g * g * g)));
}

static void gates(void **state)
{
    (void)state;
    enum { ROWS = 2, N = 117 };
    mode all[16];
    for (int i = 0, n = modes(all); i < n; i++)
        for (int kind = 0; kind < 2; kind++) {
            rvi_backend *be = open_backend(1, all[i].exact, all[i].isa);
            float *g = numbers_new(ROWS * N), *u = numbers_new(ROWS * N),
                  *d = numbers_new(ROWS * N);
            for (int e = 0; e < ROWS * N; e++) g[e] *= e % 3 ? 3.0f : 12.0f;
            g[5] = 300;
            g[6] = -300;
            g[7] = 0;
            g[8] = NAN;
            rvi_cols cg = rows_of(be, g, ROWS, N), cu = rows_of(be, u, ROWS, N),
                     cd = rows_of(be, d, ROWS, N);
            rvi_cols dg = rows_of(be, NULL, ROWS, N), du = rows_of(be, NULL, ROWS, N);
            be->ops->glu_back(be, dg, du, cd, cg, cu, (rvi_glu)kind, ROWS);
            float *got_g = take(be, dg, ROWS), *got_u = take(be, du, ROWS);
            drop(be, cg);
            drop(be, cu);
            drop(be, cd);
            for (int e = 0; e < ROWS * N; e++) {
                const double h = 1e-5;
                double at = (double)g[e], f = gate_of(at, (rvi_glu)kind);
                double slope =
                    (gate_of(at + h, (rvi_glu)kind) - gate_of(at - h, (rvi_glu)kind)) / (2 * h);
                if (e == 8) {
                    assert_true(isnan(got_g[e]) && isnan(got_u[e]));
                    continue;
                }
                expect_near((double)got_g[e], (double)d[e] * (double)u[e] * slope, 2e-6, "d gate");
                expect_near((double)got_u[e], (double)d[e] * f, 2e-6 + 2e-6 * fabs(f), "d up");
            }
            be->ops->free(be);
            free(g);
            free(u);
            free(d);
            free(got_g);
            free(got_u);
        }
}

/* ---- loss ---- */

static double loss_of(const double *z0, int n, const rvi_target *t, double cap)
{
    double *q = malloc((size_t)n * sizeof *q), top = -INFINITY, all = 0, loss = 0, others = 0;
    assert_non_null(q);
    for (int i = 0; i < n; i++) {
        q[i] = (cap != 0 ? cap * tanh(z0[i] / cap) : z0[i]) / (double)t->temperature;
        if (q[i] > top) top = q[i];
    }
    for (int i = 0; i < n; i++) all += q[i] = exp(q[i] - top);
    for (int i = 0; i < n; i++) q[i] /= all;
    for (int i = 0; i < t->n; i++) {
        if (t->p[i] != 0.0f) loss += (double)t->p[i] * log((double)t->p[i] / q[t->ids[i]]);
        q[t->ids[i]] = 0;
    }
    for (int i = 0; i < n; i++) others += q[i];
    if (t->rest != 0.0f)
        loss += (double)t->rest * log((double)t->rest / (others < 1e-6 ? 1e-6 : others));
    free(q);
    return loss;
}

static void try_loss(mode m, int n, float cap)
{
    enum { ROWS = 5 };
    static const int32_t ids[] = {3, 0, 16, 9, 4};
    static const float one[] = {1}, part[] = {0.5f, 0.2f, 0.1f, 0.05f, 0}, whole[] = {0.25f, 0.75f};
    rvi_target targets[ROWS] = {{ids, one, 1, 0, 1, 1, 0},
                                {ids, part, 5, 0.15f, 1, 0.5f, 0},
                                {ids, whole, 2, 0, 2, -1.5f, 0},
                                {ids, part, 5, 0.15f, 0.7f, 2, 0},
                                {ids, part, 1, 0.5f, 1, 1, 0}};
    targets[4].n = 1; /* the listed id takes all: no gradient from the rest */
    rvi_backend *be = open_backend(2, m.exact, m.isa);
    float *z = numbers_new((size_t)(ROWS * n)),
          *capped = malloc((size_t)(ROWS * n) * sizeof *capped);
    assert_non_null(capped);
    for (int i = 0; i < ROWS * n; i++) z[i] *= 4;
    if (cap == 0.0f) z[4 * n + 3] = 40;
    for (int i = 0; i < ROWS * n; i++) capped[i] = cap != 0.0f ? cap * tanhf(z[i] / cap) : z[i];
    rvi_cols c = rows_of(be, capped, ROWS, n), c2 = rows_of(be, capped, ROWS, n);
    be->ops->loss(be, c2, targets, cap, false, ROWS);
    float first[ROWS];
    for (int r = 0; r < ROWS; r++) first[r] = targets[r].loss;
    be->ops->loss(be, c, targets, cap, true, ROWS);
    float *got = take(be, c, ROWS);
    drop(be, c2);
    for (int r = 0; r < ROWS; r++) {
        double *at = widen(z + r * n, (size_t)n), want = loss_of(at, n, &targets[r], (double)cap);
        assert_true(first[r] == targets[r].loss);
        expect_near((double)targets[r].loss, want, 2e-5 + 2e-6 * fabs(want), "loss");
        for (int i = 0; i < n; i += i < 20 ? 1 : 97) {
            const double h = 1e-4;
            double kept = at[i];
            at[i] = kept + h;
            double up = loss_of(at, n, &targets[r], (double)cap);
            at[i] = kept - h;
            double slope = (up - loss_of(at, n, &targets[r], (double)cap)) / (2 * h) *
                           (double)targets[r].weight;
            at[i] = kept;
            expect_near((double)got[r * n + i], slope, 2e-7 + 2e-5 * fabs(slope), "d logits");
        }
        free(at);
    }
    be->ops->free(be);
    free(z);
    free(capped);
    free(got);
}

static void losses(void **state)
{
    (void)state;
    mode all[16];
    for (int i = 0, n = modes(all); i < n; i++) {
        static const int sizes[] = {17, 32, 33, 100, 5000};
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
            try_loss(all[i], sizes[s], 0);
            try_loss(all[i], sizes[s], 5);
        }
    }
}

static void loss_nan(void **state)
{
    (void)state;
    mode all[16];
    for (int i = 0, n = modes(all); i < n; i++) {
        float z[2 * 40], p = 1;
        int32_t id = 2;
        for (int e = 0; e < 80; e++) z[e] = number();
        z[37] = NAN;
        z[40] = -INFINITY;
        rvi_target t[2] = {{&id, &p, 1, 0, 1, 1, 0}, {&id, &p, 1, 0, 1, 1, 0}};
        rvi_backend *be = open_backend(1, all[i].exact, all[i].isa);
        rvi_cols c = rows_of(be, z, 2, 40);
        be->ops->loss(be, c, t, 0, true, 2);
        float *got = take(be, c, 2);
        assert_true(isnan(t[0].loss) && isnan(got[0]) && isnan(got[2]));
        assert_true(isfinite(t[1].loss) && got[40] == 0.0f && isfinite(got[42]));
        free(got);
        be->ops->free(be);
    }
}

/* ---- moving rows, and while a profile is on ---- */

static void moving(void **state)
{
    (void)state;
    enum { ROWS = 6, N = 19 };
    rvi_backend *be = open_backend(2, false, NULL);
    assert_int_equal(rvi_profile_begin(be, NULL), RV_OK);
    float *x = numbers_new(ROWS * N), *y = numbers_new(ROWS * N);
    rvi_cols cx = rows_of(be, x, ROWS, N), cy = rows_of(be, y, ROWS, N),
             cz = rows_of(be, y, ROWS, N);
    static const int32_t to[] = {4, 1, 4};
    be->ops->copy(be, cz, cx, ROWS - 1);
    be->ops->scatter_add(be, cy, cx, to, 3);
    be->ops->zero(be, cx, 2);
    float *gx = take(be, cx, ROWS), *gy = take(be, cy, ROWS), *gz = take(be, cz, ROWS);
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < N; i++) {
            int at = r * N + i;
            float want = y[at];
            for (int s = 0; s < 3; s++)
                if (to[s] == r) want += x[s * N + i];
            assert_true(gx[at] == (r < 2 ? 0.0f : x[at]));
            assert_true(gy[at] == want);
            assert_true(gz[at] == (r < ROWS - 1 ? x[at] : y[at]));
        }
    be->ops->free(be);
    free(x);
    free(y);
    free(gx);
    free(gy);
    free(gz);
}

/* More rows than before: the scratch grows, what was reserved stays. */
static void reserving(void **state)
{
    (void)state;
    rvi_backend *be = open_backend(2, true, NULL);
    assert_int_equal(be->ops->train_reserve(be, 1, 2000, 10, NULL), RV_OK);
    assert_int_equal(be->ops->train_reserve(be, 700, 1, 10, NULL), RV_OK);
    assert_int_equal(be->ops->train_reserve(be, 10, 10, 10, NULL), RV_OK);
    be->ops->free(be);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_types),
        cmocka_unit_test(linear_shapes),
        cmocka_unit_test(linear_large),
        cmocka_unit_test(linear_nan),
        cmocka_unit_test(attention_shapes),
        cmocka_unit_test(attention_nan),
        cmocka_unit_test(attention_parts),
        cmocka_unit_test(attention_neighbours),
        cmocka_unit_test(norms),
        cmocka_unit_test(gates),
        cmocka_unit_test(losses),
        cmocka_unit_test(loss_nan),
        cmocka_unit_test(moving),
        cmocka_unit_test(reserving),
        cmocka_unit_test(linear_groups),
        cmocka_unit_test(linear_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
