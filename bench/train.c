/* train.c - speed of the training ops of the CPU backend: build/bench/train [threads [isa
 * [exact]]].
 *
 * Shapes of a small model (d 576, ff 1536, 9 heads over 3, 456 rows: 18 texts of 24 rows behind a
 * shared beginning of 24). Best of many repetitions, because other programs can only make a run
 * slower. The share of the peak counts the weights' multiplications and additions alone, so that an
 * adapter's work shows as a loss. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/backend.h"
#include "base/rng.h"
#include "kernels/kernels.h"
#include "kernels/peak.h"

enum {
    ROWS = 456,
    D = 576,
    FF = 1536,
    VOCAB = 49152,
    LOSSES = 160,
    RANK = 8,
    HEADS = 9,
    KV_HEADS = 3,
    HEAD = 64
};

static double now(void)
{
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void check(int failed)
{
    if (!failed) return;
    fprintf(stderr, "something failed\n");
    exit(1);
}

static rvi_rng rng = {1};

static float number(void)
{
    return (float)(rvi_rng_double(&rng) - 0.5);
}

/* ---- the peak of one core ---- */

static double peak_of(const char *instruction)
{
    for (size_t i = 0;; i++) {
        const rvi_peak *p = rvi_peak_at(RVI_PEAK_BF16, i);
        if (!p) return 0;
        if (!strstr(p->name, instruction)) continue;
        double best = 0;
        for (int r = 0; r < 20; r++) {
            enum { ROUNDS = 100000 };
            double begun = now();
            volatile int32_t sink = p->run(ROUNDS);
            (void)sink;
            double rate = (double)p->ops_per_round * ROUNDS / (now() - begun);
            best = rate > best ? rate : best;
        }
        return best;
    }
}

/* ---- ops ---- */

typedef struct bench {
    rvi_backend *be;
    double peak; /* of all threads */
} bench;

static rvi_tensor *rows_new(bench *b, int n_rows, int n_cols)
{
    rvi_tensor *t;
    check(b->be->ops->rows_new(b->be, &t, n_rows, n_cols, NULL) != RV_OK);
    float *row = malloc((size_t)n_cols * sizeof *row);
    check(!row);
    for (int r = 0; r < n_rows; r++) {
        for (int i = 0; i < n_cols; i++) row[i] = number();
        b->be->ops->rows_write(b->be, rvi_cols_of(t, 0, n_cols), r, row);
    }
    free(row);
    return t;
}

static rvi_cols all(bench *b, rvi_tensor *t)
{
    return rvi_cols_of(t, 0, b->be->ops->n_cols(t));
}

static double best_of(void (*run)(void *ctx), void *ctx)
{
    double best = 1e9, begun = now();
    for (int i = 0; i < 3 || now() - begun < 1.0; i++) {
        double start = now(), seconds;
        run(ctx);
        seconds = now() - start;
        best = seconds < best ? seconds : best;
    }
    return best;
}

static void report(const bench *b, const char *name, double seconds, double operations)
{
    printf("%-34s %9.3f ms", name, seconds * 1e3);
    if (operations > 0) {
        printf(" %9.1f GFLOP/s", operations / seconds * 1e-9);
        if (b->peak > 0) printf(" %5.1f %% of peak", 100 * operations / seconds / b->peak);
    }
    printf("\n");
}

typedef struct linear {
    bench *b;
    rvi_float_linear l[RVI_MAX_LINEARS];
    int n_layers, n_rows;
    rvi_cols x, y, dx, dy;
} linear;

static void run_forward(void *ctx)
{
    linear *t = ctx;
    t->b->be->ops->linear(t->b->be, t->l, t->n_layers, t->y, t->x, t->n_rows);
}

static void run_back(void *ctx)
{
    linear *t = ctx;
    t->b->be->ops->linear_back(t->b->be, t->l, t->n_layers, t->dx, false, t->dy, t->x, t->n_rows);
}

/* The same by a call for each layer, over the columns of the same rows. */
static void run_one_by_one(void *ctx)
{
    linear *t = ctx;
    const rvi_backend_ops *ops = t->b->be->ops;
    rvi_cols y = t->y;
    for (int i = 0; i < t->n_layers; i++, y.first += y.n) {
        y.n = ops->n_rows(t->l[i].w);
        ops->linear(t->b->be, &t->l[i], 1, y, t->x, t->n_rows);
    }
}

static void run_back_one_by_one(void *ctx)
{
    linear *t = ctx;
    const rvi_backend_ops *ops = t->b->be->ops;
    rvi_cols dy = t->dy;
    for (int i = 0; i < t->n_layers; i++, dy.first += dy.n) {
        dy.n = ops->n_rows(t->l[i].w);
        ops->linear_back(t->b->be, &t->l[i], 1, t->dx, false, dy, t->x, t->n_rows);
    }
}

/* A layer of random numbers; data: what of it is to be freed. */
static rvi_float_linear layer_new(bench *b, rvi_qtype type, int n_in, int n_out, int rank,
                                  void *data[5])
{
    const rvi_backend_ops *ops = b->be->ops;
    size_t row_bytes = rvi_qtype_row_bytes(type, (size_t)n_in);
    uint8_t *w = data[4] = malloc(row_bytes * (size_t)n_out);
    float *row = malloc((size_t)n_in * sizeof *row);
    check(!w || !row);
    for (int o = 0; o < n_out; o++) {
        for (int i = 0; i < n_in; i++) row[i] = number();
        check(!rvi_quantize(type, row, w + (size_t)o * row_bytes, (size_t)n_in));
    }
    free(row);
    rvi_tensor_view view = {.name = "w", .type = type, .n_dims = 2, .data = w};
    view.shape[0] = (uint64_t)n_out;
    view.shape[1] = (uint64_t)n_in;
    rvi_tensor *weight, *m[4] = {0};
    check(ops->weight_new(b->be, &weight, &view, NULL) != RV_OK);
    for (int i = 0; i < 4; i++) {
        int rows = i % 2 ? n_out : rank, cols = i % 2 ? rank : n_in;
        float *numbers = data[i] =
            rank ? malloc((size_t)rows * (size_t)cols * sizeof *numbers) : NULL;
        if (!rank) continue;
        check(!numbers);
        for (int e = 0; e < rows * cols; e++) numbers[e] = number();
        check(ops->floats_view(b->be, &m[i], numbers, rows, cols, NULL) != RV_OK);
    }
    return (rvi_float_linear){
        .w = weight, .a = m[0], .b = m[1], .scale = 2, .da = m[2], .db = m[3]};
}

static void layer_free(bench *b, const rvi_float_linear *l, void *data[5])
{
    const rvi_tensor *all[] = {l->w, l->a, l->b, l->da, l->db};
    for (int i = 0; i < 5; i++) {
        b->be->ops->tensor_free(b->be, (rvi_tensor *)all[i]);
        free(data[i]);
    }
}

/* Layers of one input together; n_out ends with 0. */
static void bench_linears(bench *b, rvi_qtype type, int n_in, const int *n_out, int rank,
                          int n_rows)
{
    linear t = {.b = b, .n_rows = n_rows};
    void *data[RVI_MAX_LINEARS][5];
    char name[80];
    int total = 0, at = snprintf(name, sizeof name, "%s %d -> ", rvi_qtypes[type].name, n_in);
    for (; n_out[t.n_layers]; t.n_layers++) {
        int i = t.n_layers;
        t.l[i] = layer_new(b, type, n_in, n_out[i], rank, data[i]);
        total += n_out[i];
        at += snprintf(name + at, sizeof name - (size_t)at, "%s%d", i ? "+" : "", n_out[i]);
    }
    snprintf(name + at, sizeof name - (size_t)at, ", rank %d", rank);
    rvi_tensor *r[4];
    for (int i = 0; i < 4; i++) r[i] = rows_new(b, n_rows, i % 2 ? total : n_in);
    t.x = all(b, r[0]);
    t.y = all(b, r[1]);
    t.dx = all(b, r[2]);
    t.dy = all(b, r[3]);
    double operations = 2.0 * n_in * total * n_rows;
    report(b, name, best_of(run_forward, &t), operations);
    if (t.n_layers > 1) report(b, "    one by one", best_of(run_one_by_one, &t), operations);
    report(b, "    backward", best_of(run_back, &t), operations);
    if (t.n_layers > 1)
        report(b, "    backward, one by one", best_of(run_back_one_by_one, &t), operations);
    for (int i = 0; i < t.n_layers; i++) layer_free(b, &t.l[i], data[i]);
    for (int i = 0; i < 4; i++) b->be->ops->tensor_free(b->be, r[i]);
}

static void bench_linear(bench *b, rvi_qtype type, int n_in, int n_out, int rank, int n_rows)
{
    bench_linears(b, type, n_in, (const int[]){n_out, 0}, rank, n_rows);
}

typedef struct others {
    bench *b;
    rvi_tensor *q, *k, *v, *out, *dq, *dk, *dv, *gate, *up, *act, *dgate, *dup, *x, *dx, *dy, *norm,
        *logits;
    rvi_span spans[19];
    rvi_target targets[LOSSES];
    bool grad;
} others;

static const rvi_attention attention = {HEADS, KV_HEADS, HEAD, 0.125f, 0, 0};

static void run_attention(void *ctx)
{
    others *o = ctx;
    bench *b = o->b;
    b->be->ops->span_attention(b->be, all(b, o->out), all(b, o->q), all(b, o->k), all(b, o->v),
                               &attention, o->spans, 19);
}

static void run_attention_back(void *ctx)
{
    others *o = ctx;
    bench *b = o->b;
    b->be->ops->span_attention_back(b->be, all(b, o->dq), all(b, o->dk), all(b, o->dv),
                                    all(b, o->out), all(b, o->q), all(b, o->k), all(b, o->v),
                                    &attention, o->spans, 19);
}

static void run_glu_back(void *ctx)
{
    others *o = ctx;
    bench *b = o->b;
    b->be->ops->glu_back(b->be, all(b, o->dgate), all(b, o->dup), all(b, o->act), all(b, o->gate),
                         all(b, o->up), RVI_GLU_SILU, ROWS);
}

static void run_norm_back(void *ctx)
{
    others *o = ctx;
    bench *b = o->b;
    b->be->ops->rms_norm_back(b->be, all(b, o->dx), all(b, o->dy), all(b, o->x), o->norm, ROWS,
                              1e-5f);
}

static void run_loss(void *ctx)
{
    others *o = ctx;
    bench *b = o->b;
    b->be->ops->loss(b->be, all(b, o->logits), o->targets, 0, o->grad, LOSSES);
}

static void bench_others(bench *b)
{
    static const int32_t id = 7;
    static const float one = 1;
    others o = {.b = b};
    rvi_tensor **at[] = {&o.q,  &o.out, &o.dq,    &o.k,   &o.v, &o.dk, &o.dv, &o.gate,
                         &o.up, &o.act, &o.dgate, &o.dup, &o.x, &o.dx, &o.dy};
    static const int cols[] = {D,
                               D,
                               D,
                               KV_HEADS * HEAD,
                               KV_HEADS * HEAD,
                               KV_HEADS * HEAD,
                               KV_HEADS * HEAD,
                               FF,
                               FF,
                               FF,
                               FF,
                               FF,
                               D,
                               D,
                               D};
    for (size_t i = 0; i < sizeof at / sizeof at[0]; i++) *at[i] = rows_new(b, ROWS, cols[i]);
    o.norm = rows_new(b, 1, D);
    o.logits = rows_new(b, LOSSES, VOCAB);
    o.spans[0] = (rvi_span){0, 24, 0, -1};
    double keys = 24 * 25 / 2;
    for (int s = 1; s < 19; s++) {
        o.spans[s] = (rvi_span){24 * s, 24, 24, 0};
        keys += 24 * 24 + 24 * 25 / 2;
    }
    for (int i = 0; i < LOSSES; i++) o.targets[i] = (rvi_target){&id, &one, 1, 0, 1, 1, 0};
    report(b, "attention", best_of(run_attention, &o), 4.0 * keys * HEADS * HEAD);
    report(b, "    backward", best_of(run_attention_back, &o), 10.0 * keys * HEADS * HEAD);
    report(b, "gate, backward", best_of(run_glu_back, &o), 0);
    report(b, "norm, backward", best_of(run_norm_back, &o), 0);
    report(b, "loss of 160 rows", best_of(run_loss, &o), 0);
    o.grad = true;
    report(b, "    with gradient", best_of(run_loss, &o), 0);
    for (size_t i = 0; i < sizeof at / sizeof at[0]; i++) b->be->ops->tensor_free(b->be, *at[i]);
    b->be->ops->tensor_free(b->be, o.norm);
    b->be->ops->tensor_free(b->be, o.logits);
}

int main(int argc, char **argv)
{
    int threads = argc > 1 ? atoi(argv[1]) : 1;
    bench b;
    rvi_cpu_options options = {
        .n_threads = threads, .isa = argc > 2 ? argv[2] : NULL, .exact = argc > 3};
    check(rvi_backend_cpu_new(&b.be, &options, NULL, NULL) != RV_OK);
    check(b.be->ops->train_reserve(b.be, ROWS, FF, VOCAB, NULL) != RV_OK);
    const char *isa = rvi_backend_cpu_isa(b.be);
    const char *instruction = strcmp(isa, "amx") == 0 && !options.exact ? "tdpbf16ps"
                              : strcmp(isa, "avx512") == 0 || strcmp(isa, "amx") == 0
                                  ? "avx512 vfmadd"
                              : strncmp(isa, "avx", 3) == 0 ? "avx2 vfmadd"
                              : strcmp(isa, "ref") == 0     ? "scalar"
                                                            : "fmla";
    b.peak = peak_of(instruction) * threads;
    printf("%d threads, %s: %s, peak %.1f GFLOP/s\n", threads, isa, instruction, b.peak * 1e-9);
    bench_linear(&b, RVI_Q4_1, D, FF, 0, ROWS);
    bench_linear(&b, RVI_Q4_1, D, FF, RANK, ROWS);
    bench_linear(&b, RVI_Q4_1, FF, D, RANK, ROWS);
    bench_linear(&b, RVI_Q4_1, D, D, RANK, ROWS);
    bench_linear(&b, RVI_Q4_1, D, KV_HEADS * HEAD, RANK, ROWS);
    bench_linears(&b, RVI_Q4_1, D, (const int[]){D, KV_HEADS * HEAD, KV_HEADS * HEAD, 0}, RANK,
                  ROWS);
    bench_linears(&b, RVI_Q4_1, D, (const int[]){FF, FF, 0}, RANK, ROWS);
    bench_linear(&b, RVI_Q8_0, D, FF, RANK, ROWS);
    bench_linear(&b, RVI_Q4_1, D, VOCAB, 0, LOSSES);
    bench_others(&b);
    b.be->ops->free(b.be);
    return 0;
}
