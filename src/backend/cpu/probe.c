/* How it is measured:
 *
 *  ring      One block of memory, larger than the last cache, whose bytes are valid weights of
 *            every type with finite scales. Matrices are laid over it one behind the other, round
 *            and round, so the weights of a product were last touched a whole working set ago.
 *  rounds    The rates of the engine's own ops are means over several short visits, spread over the
 *            whole time and taking turns: other programs slow all of them alike, as they slow a
 *            model.
 *  best      Ceilings (reading, instruction peaks) are the best of several passes, since nothing
 *            can make a pass too fast. */
#include "backend/cpu/probe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "base/mem.h"
#include "base/os.h"
#include "base/rng.h"
#include "kernels/peak.h"

enum {
    MAX_SAMPLES = 256,
    COLS = 2048, /* of the matrices: a multiple of every block */
    ROUNDS = 6,
    CHUNK = 256 << 10, /* bytes of a reading task */
    HEADS = RVI_CPU_PROBE_HEADS,
    KV_HEADS = 4,
    HEAD_SIZE = 64,
    KEYS = 2048,      /* in the cache */
    BATCH_KEYS = 512, /* that the last row of a batch sees */
    CALLS = 4,        /* of an op that are timed together */
    FF = 4096,        /* elements of a row in the row ops */
    BATCH = 64,       /* rows of what the row ops work on */
};
static const size_t smallest_set = 2u << 20;

/* Bytes of the matrices: of a small, a usual and a large model, one that stays in a cache; rows of
 * one for prompts; layers of a KV cache that is beyond the nearer caches. */
typedef struct sizes {
    size_t small, matrix, large, cached, prompt_rows;
    int n_layers; /* of the KV cache */
    int batch;    /* rows of "many" in the row ops, at most BATCH */
} sizes;
static const sizes usual = {160u << 10, 2u << 20, 8u << 20, 1u << 20, 1024, 32, BATCH},
                   little = {32u << 10, 128u << 10, 256u << 10, 64u << 10, 8, 4, 8};

/* Work of one kind, gathered over the rounds. */
typedef struct tally {
    double seconds, n;
} tally;

static double mean(const tally *t)
{
    return t->n > 0 ? t->seconds / t->n : 0;
}

typedef struct weight_tally {
    tally small, memory, large, cache, many;
} weight_tally;

typedef enum row_op { OP_NORM, OP_ROPE, OP_GLU, OP_ATTENTION } row_op;
enum { N_OPS = OP_ATTENTION + 1 };

typedef struct probe {
    rvi_cpu_probe *out;
    rvi_backend *be;
    uint8_t *ring;
    size_t ring_bytes, ring_at;
    double slice; /* seconds that one series may take */
    double until; /* then what can be left out is */
    int rounds;
    sizes sizes;
    rvi_tensor *x, *y;
    rv_error *err;
    weight_tally weight[RVI_QTYPE_COUNT];
    tally call, ops[2][N_OPS]; /* one row, many rows */
} probe;

/* Beside other programs a product can take a hundred times as long: its threads wait for each
 * other. */
static bool is_late(const probe *p)
{
    return rvi_os_seconds() > p->until;
}

/* ---- series of times ---- */

typedef struct series {
    double begun, t[MAX_SAMPLES];
    size_t n;
} series;

static bool more(const series *s, double seconds, size_t at_least)
{
    return s->n < MAX_SAMPLES && (s->n < at_least || rvi_os_seconds() - s->begun < seconds);
}

static double best(const series *s)
{
    double t = INFINITY;
    for (size_t i = 0; i < s->n; i++) t = RVI_MIN(t, s->t[i]);
    return t;
}

/* A clock that did not move would make a rate infinite. */
static double rate(double amount, double seconds)
{
    return amount / RVI_MAX(seconds, 1e-9);
}

/* ---- reading ---- */

typedef struct reading {
    rvi_peak_read_fn read;
    const uint8_t *data;
    size_t bytes;
    uint64_t *sink; /* one a worker, a cache line apart */
} reading;

#define ALL_TYPES ~0u /* the ring has weights of all types */

enum { SINK_STRIDE = 8 };

static void read_task(void *ctx, int task, int worker)
{
    const reading *r = ctx;
    size_t from = (size_t)task * CHUNK;
    r->sink[worker * SINK_STRIDE] += r->read(r->data + from, RVI_MIN(CHUNK, r->bytes - from));
}

static double read_rate(probe *p, reading *r, bool all)
{
    int n_tasks = (int)((r->bytes + CHUNK - 1) / CHUNK);
    /* small sets are read several times a sample, so that the clock does not show */
    int rounds = (int)RVI_MAX((8u << 20) / r->bytes, (size_t)1);
    series s = {.begun = rvi_os_seconds()};
    for (int first = 1; first || more(&s, p->slice / 2, 3); first = 0) {
        double start = rvi_os_seconds();
        for (int i = 0; i < rounds; i++) {
            if (all)
                rvi_pool_run(rvi_cpu_of(p->be)->pool, read_task, r, n_tasks);
            else
                for (int t = 0; t < n_tasks; t++) read_task(r, t, 0);
        }
        if (!first) s.t[s.n++] = rvi_os_seconds() - start;
    }
    return rate((double)r->bytes * rounds, best(&s));
}

static rv_status measure_reads(probe *p)
{
    rvi_cpu_probe *out = p->out;
    uint64_t *sink = rvi_zalloc_array((size_t)out->n_threads * SINK_STRIDE, sizeof *sink);
    rvi_peak_read_fn read = rvi_peak_reader();
    if (!sink) return rvi_nomem(p->err, "probe");
    for (size_t bytes = RVI_MIN(smallest_set, p->ring_bytes);; bytes *= 4) {
        if (bytes > p->ring_bytes / 2 || out->n_sets + 1 == RVI_CPU_PROBE_SETS)
            bytes = p->ring_bytes;
        reading r = {read, p->ring, bytes, sink};
        out->set_bytes[out->n_sets] = bytes;
        out->read[out->n_sets].one = read_rate(p, &r, false);
        out->read[out->n_sets++].all = read_rate(p, &r, true);
        if (bytes == p->ring_bytes) break;
    }
    rvi_free(sink);
    return RV_OK;
}

/* ---- instruction peaks ---- */

typedef struct peaking {
    const rvi_peak *peak;
    uint64_t rounds;
    int32_t *sink; /* one a task */
} peaking;

static void peak_task(void *ctx, int task, int worker)
{
    const peaking *j = ctx;
    (void)worker;
    j->sink[task] = j->peak->run(j->rounds);
}

static double peak_rate(probe *p, peaking *j, int n_tasks)
{
    series s = {.begun = rvi_os_seconds()};
    do {
        double start = rvi_os_seconds();
        rvi_pool_run(rvi_cpu_of(p->be)->pool, peak_task, j, n_tasks);
        s.t[s.n++] = rvi_os_seconds() - start;
    } while (more(&s, p->slice / 2, 3));
    return rate((double)j->rounds * (double)j->peak->ops_per_round * n_tasks, best(&s));
}

/* The fastest of a kind: a wider instruction is not always the faster one. */
static rv_status measure_peak(probe *p, rvi_peak_kind kind, const char **name,
                              rvi_cpu_probe_pair *out)
{
    int n_tasks = p->out->n_threads * 4; /* a late worker leaves its share to the others */
    int32_t *sink = rvi_zalloc_array((size_t)n_tasks, sizeof *sink);
    if (!sink) return rvi_nomem(p->err, "probe");
    peaking chosen = {.sink = sink};
    for (size_t i = 0;; i++) {
        peaking j = {.peak = rvi_peak_at(kind, i), .rounds = 64, .sink = sink};
        if (!j.peak) break;
        double start;
        do {
            j.rounds *= 2;
            start = rvi_os_seconds();
            peak_task(&j, 0, 0);
        } while (rvi_os_seconds() - start < p->slice / 40 && j.rounds < (uint64_t)1 << 40);
        double one = peak_rate(p, &j, 1);
        if (one > out->one) {
            out->one = one;
            chosen = j;
        }
    }
    *name = chosen.peak->name;
    out->all = peak_rate(p, &chosen, n_tasks);
    if (out->all < out->one) out->all = out->one; /* the other threads were kept from running */
    rvi_free(sink);
    return RV_OK;
}

/* ---- products ---- */

/* Takes a weight's bytes on the ring for packed ones: the time of a product does not depend on the
 * values. */
static void as_packed(probe *p, rvi_tensor *w)
{
    size_t bytes = rvi_cpu_pack_bytes(p->be, w);
    if (bytes && w->data + bytes <= p->ring + p->ring_bytes) w->panels = w->data;
}

/* The next matrix on the ring, of about so many bytes. */
static rv_status next_matrix(probe *p, rvi_tensor **out, rvi_qtype type, size_t bytes)
{
    size_t row = rvi_qtype_row_bytes(type, COLS), n = RVI_MAX(bytes / row, (size_t)1);
    if (p->ring_at + n * row > p->ring_bytes) p->ring_at = 0;
    n = RVI_MIN(n, p->ring_bytes / row);
    rvi_tensor_view view = {.name = "probe",
                            .type = type,
                            .n_dims = 2,
                            .shape = {n, COLS},
                            .data = p->ring + p->ring_at,
                            .n_bytes = n * row};
    p->ring_at += (n * row + 63) / 64 * 64;
    rv_status st = p->be->ops->weight_new(p->be, out, &view, p->err);
    if (!st) as_packed(p, *out);
    return st;
}

/* Seconds of one product of x's first n_rows rows; the result lies in y. */
static double time_product(probe *p, rvi_backend *be, const rvi_tensor *w, int n_rows)
{
    rvi_cols y = rvi_cols_of(p->y, 0, be->ops->n_rows(w)),
             x = rvi_cols_of(p->x, 0, be->ops->n_cols(w));
    double start = rvi_os_seconds();
    be->ops->matmul(be,
                    &(rvi_matmul){.x = x, .part = {{w, NULL, y}}, .n_parts = 1, .n_rows = n_rows});
    return rvi_os_seconds() - start;
}

/* Products over fresh matrices of the ring, for so many seconds and at least one. With one row, the
 * first only warms up the caches that hold the input and the code. */
static rv_status over_ring(probe *p, rvi_backend *be, rvi_qtype type, int n_rows, size_t bytes,
                           double seconds, tally *out)
{
    double begun = rvi_os_seconds();
    rv_status st = RV_OK;
    int warm = n_rows == 1;
    for (int i = 0; !st && (i <= 2 * warm || rvi_os_seconds() - begun < seconds); i++) {
        rvi_tensor *w = NULL;
        st = next_matrix(p, &w, type, bytes);
        if (st) break;
        double t = time_product(p, be, w, n_rows);
        if (i >= warm) {
            out->seconds += t;
            out->n += 1;
        }
        p->be->ops->tensor_free(p->be, w);
    }
    return st;
}

static rv_status in_cache(probe *p, rvi_qtype type, double seconds, tally *out)
{
    rvi_tensor *w = NULL;
    rv_status st = next_matrix(p, &w, type, p->sizes.cached);
    if (st) return st;
    double begun = rvi_os_seconds();
    for (int i = 0; i < 4 || rvi_os_seconds() - begun < seconds; i++) {
        double t = time_product(p, p->be, w, 1);
        if (i > 1) {
            out->seconds += t;
            out->n += 1;
        }
    }
    p->be->ops->tensor_free(p->be, w);
    return RV_OK;
}

static size_t prompt_bytes(const probe *p, rvi_qtype type)
{
    return p->sizes.prompt_rows * rvi_qtype_row_bytes(type, COLS);
}

static rv_status visit_weight(probe *p, rvi_qtype type, double part)
{
    weight_tally *t = &p->weight[type];
    double slice = p->slice * part;
    rv_status st = over_ring(p, p->be, type, 1, p->sizes.matrix, slice, &t->memory);
    if (!st) st = over_ring(p, p->be, type, 1, p->sizes.small, slice / 2, &t->small);
    if (!st) st = over_ring(p, p->be, type, 1, p->sizes.large, slice, &t->large);
    if (!st) st = in_cache(p, type, slice / 2, &t->cache);
    /* these take long on a slow machine: no more of them than the time allows */
    if (!st && t->many.seconds < p->slice)
        st = over_ring(p, p->be, type, RVI_CPU_PROBE_ROWS, prompt_bytes(p, type), 0, &t->many);
    return st;
}

/* Bytes of a matrix as next_matrix makes it */
static double matrix_bytes(const probe *p, rvi_qtype type, size_t wanted)
{
    size_t row = rvi_qtype_row_bytes(type, COLS);
    return (double)(RVI_MIN(RVI_MAX(wanted / row, (size_t)1), p->ring_bytes / row) * row);
}

static double matrix_ops(const probe *p, rvi_qtype type, size_t wanted, int n_rows)
{
    return 2.0 * n_rows * matrix_bytes(p, type, wanted) / rvi_qtypes[type].block_bytes *
           rvi_qtypes[type].block_weights;
}

/* From memory, the time of a product is a line, a fixed cost and so much a byte, that becomes
 * flatter for large matrices: the threads have more to share. */
static void conclude_weight(probe *p, rvi_qtype type)
{
    const weight_tally *t = &p->weight[type];
    double usual_bytes = matrix_bytes(p, type, p->sizes.matrix), far = mean(&t->memory);
    double large = matrix_bytes(p, type, p->sizes.large), much = mean(&t->large);
    double small = matrix_bytes(p, type, p->sizes.small), few = mean(&t->small);
    double cached = matrix_bytes(p, type, p->sizes.cached), near = mean(&t->cache);
    double call = few - small * (far - few) / RVI_MAX(usual_bytes - small, 1.0);
    /* at least the cost of an empty product, at most half of the small one: noise must not eat
     * all */
    call = RVI_MAX(RVI_MIN(call, few / 2), p->out->call);
    p->out->weight[type].call = call;
    p->out->weight[type].memory = rate(usual_bytes, RVI_MAX(far - call, far / 2));
    /* noise must make the remaining bytes neither more expensive than the first ones nor free */
    double least = 0.5 * far * (large - usual_bytes) / usual_bytes;
    p->out->weight[type].large =
        RVI_MAX(rate(large - usual_bytes, RVI_MAX(much - far, least)), p->out->weight[type].memory);
    p->out->weight[type].cache = rate(cached, RVI_MAX(near - p->out->call, near / 2));
    p->out->weight[type].many =
        rate(matrix_ops(p, type, prompt_bytes(p, type), RVI_CPU_PROBE_ROWS), mean(&t->many));
}

/* The smallest product that still wakes every thread. */
static rv_status visit_call(probe *p, double part)
{
    rvi_tensor *w = NULL;
    size_t rows = (size_t)p->out->n_threads * RVI_PANEL;
    rvi_tensor_view view = {.name = "probe",
                            .type = RVI_Q8_0,
                            .n_dims = 2,
                            .shape = {rows, 32},
                            .data = p->ring,
                            .n_bytes = rows * rvi_qtype_row_bytes(RVI_Q8_0, 32)};
    rv_status st = p->be->ops->weight_new(p->be, &w, &view, p->err);
    if (st) return st;
    as_packed(p, w);
    rvi_cols y = rvi_cols_of(p->y, 0, (int)rows), x = rvi_cols_of(p->x, 0, 32);
    const rvi_matmul product = {.x = x, .part = {{w, NULL, y}}, .n_parts = 1, .n_rows = 1};
    double begun = rvi_os_seconds();
    for (int i = 0; i < 2 || rvi_os_seconds() - begun < p->slice * part; i++) {
        double start = rvi_os_seconds();
        for (int k = 0; k < 16; k++) p->be->ops->matmul(p->be, &product);
        if (i) {
            p->call.seconds += rvi_os_seconds() - start;
            p->call.n += 16;
        }
    }
    p->be->ops->tensor_free(p->be, w);
    return RV_OK;
}

/* ---- row ops and attention ---- */

typedef struct row_bench {
    rvi_tensor *x, *y, *angles, *norm;
    rvi_kv_store *kv;
    int n_layers, il; /* the layer whose turn it is */
    int32_t pages[KEYS / RVI_PAGE_TOKENS];
    rvi_kv_row rows[BATCH];
} row_bench;

static void row_bench_deinit(rvi_backend *be, row_bench *b)
{
    be->ops->tensor_free(be, b->x);
    be->ops->tensor_free(be, b->y);
    be->ops->tensor_free(be, b->angles);
    be->ops->tensor_free(be, b->norm);
    be->ops->kv_free(be, b->kv);
}

static void fill_rows(rvi_backend *be, rvi_tensor *t, const float *values)
{
    for (int r = 0; r < be->ops->n_rows(t); r++)
        be->ops->rows_write(be, rvi_cols_of(t, 0, be->ops->n_cols(t)), r, values);
}

/* values: FF of them */
static rv_status row_bench_init(row_bench *b, rvi_backend *be, const float *values, rv_error *err)
{
    const rvi_backend_ops *op = be->ops;
    rvi_kv_spec spec = {.n_layers = b->n_layers,
                        .n_kv_heads = KV_HEADS,
                        .head_size = HEAD_SIZE,
                        .n_pages = KEYS / RVI_PAGE_TOKENS,
                        .type = RV_KV_F16};
    rvi_tensor_view norm = {.name = "probe",
                            .type = RVI_F32,
                            .n_dims = 1,
                            .shape = {FF},
                            .data = (const uint8_t *)values,
                            .n_bytes = FF * sizeof *values};
    rv_status st = op->rows_new(be, &b->x, BATCH, FF, err);
    if (!st) st = op->rows_new(be, &b->y, BATCH, FF, err);
    if (!st) st = op->rows_new(be, &b->angles, BATCH, HEAD_SIZE, err);
    if (!st) st = op->floats_new(be, &b->norm, &norm, 0, err);
    if (!st) st = op->kv_new(be, &b->kv, &spec, err);
    if (st) return st;
    fill_rows(be, b->x, values);
    fill_rows(be, b->y, values);
    fill_rows(be, b->angles, values);
    for (int i = 0; i < KEYS / RVI_PAGE_TOKENS; i++) b->pages[i] = i;
    int n = HEAD_SIZE * KV_HEADS;
    for (int il = 0; il < b->n_layers; il++)
        for (int at = 0; at < KEYS; at += BATCH) {
            for (int r = 0; r < BATCH; r++)
                b->rows[r] = (rvi_kv_row){.pages = b->pages, .pos = at + r};
            op->kv_write(be, b->kv, il, rvi_cols_of(b->x, 0, n), rvi_cols_of(b->y, 0, n), b->rows,
                         BATCH);
        }
    return RV_OK;
}

static void run_row_op(rvi_backend *be, row_bench *b, row_op which, int n, int il)
{
    const rvi_backend_ops *op = be->ops;
    rvi_cols x = rvi_cols_of(b->x, 0, FF), y = rvi_cols_of(b->y, 0, FF);
    int q = HEADS * HEAD_SIZE, k = KV_HEADS * HEAD_SIZE;
    rvi_attention a = {
        .n_heads = HEADS, .n_kv_heads = KV_HEADS, .head_size = HEAD_SIZE, .scale = 0.125f};
    switch (which) {
    case OP_NORM:
        op->rms_norm(be, y, x, b->norm, n, 1e-5f);
        op->add(be, y, x, n);
        break;
    case OP_ROPE: {
        rvi_cols angles = rvi_cols_of(b->angles, 0, HEAD_SIZE), keys = rvi_cols_of(b->y, q, k);
        op->rope(be, rvi_cols_of(b->y, 0, q), HEAD_SIZE, angles, false, n);
        op->rope(be, keys, HEAD_SIZE, angles, false, n);
        op->kv_write(be, b->kv, il, keys, rvi_cols_of(b->x, 0, k), b->rows, n);
        break;
    }
    case OP_GLU: op->glu(be, y, x, x, RVI_GLU_SILU, n); break;
    case OP_ATTENTION:
        op->attention(be, rvi_cols_of(b->y, 0, q), rvi_cols_of(b->x, 0, q), b->kv, il, &a, b->rows,
                      n);
        break;
    }
}

static const int op_elements[N_OPS] = {FF, (HEADS + KV_HEADS) * HEAD_SIZE, FF, HEADS *HEAD_SIZE};

static void visit_op(probe *p, row_bench *b, row_op which, int n, double part, tally *out)
{
    /* one row sees all keys, those of a batch one key more each */
    int end = n == 1 ? KEYS : BATCH_KEYS;
    for (int r = 0; r < n; r++) b->rows[r] = (rvi_kv_row){.pages = b->pages, .pos = end - n + r};
    double begun = rvi_os_seconds();
    for (int i = 0; i < 2 || rvi_os_seconds() - begun < p->slice * part; i++) {
        double start = rvi_os_seconds();
        for (int k = 0; k < CALLS; k++) {
            run_row_op(p->be, b, which, n, b->il);
            b->il = (b->il + 1) % b->n_layers;
        }
        if (i) {
            out->seconds += rvi_os_seconds() - start;
            out->n += CALLS;
        }
    }
}

static void visit_ops(probe *p, row_bench *b, double part)
{
    for (int op = 0; op < N_OPS; op++)
        for (int many = 0; many < 2; many++)
            visit_op(p, b, (row_op)op, many ? p->sizes.batch : 1, part, &p->ops[many][op]);
}

static void conclude_ops(probe *p, bool is_many)
{
    rvi_cpu_probe_ops *out = is_many ? &p->out->many : &p->out->one;
    const tally *t = p->ops[is_many];
    double n = is_many ? p->sizes.batch : 1;
    double keys = is_many ? BATCH_KEYS - (n - 1) / 2 : KEYS; /* on average */
    /* the caller counts waking the threads for attention as a call */
    double attention = mean(&t[OP_ATTENTION]);
    attention = RVI_MAX(attention - p->out->call, attention / 2);
    out->norm = mean(&t[OP_NORM]) / (n * op_elements[OP_NORM]);
    out->rope = mean(&t[OP_ROPE]) / (n * op_elements[OP_ROPE]);
    out->glu = mean(&t[OP_GLU]) / (n * op_elements[OP_GLU]);
    out->attention = attention / (n * keys * op_elements[OP_ATTENTION]);
}

/* The first columns of y's rows, copied as logits are. */
static rv_status measure_logits(probe *p)
{
    int n = p->be->ops->n_cols(p->y);
    float *out = rvi_alloc_array((size_t)n, sizeof *out);
    if (!out) return rvi_nomem(p->err, "probe");
    tally t = {0};
    double begun = rvi_os_seconds();
    for (int i = 0; i < 2 || rvi_os_seconds() - begun < p->slice / 4; i++) {
        double start = rvi_os_seconds();
        for (int r = 0; r < 16; r++) p->be->ops->rows_read(p->be, rvi_cols_of(p->y, 0, n), r, out);
        if (i) {
            t.seconds += rvi_os_seconds() - start;
            t.n += 16;
        }
    }
    p->out->logit = mean(&t) / n;
    rvi_free(out);
    return RV_OK;
}

/* All that the engine does, round by round. */
static rv_status measure_engine(probe *p, const float *values)
{
    row_bench b = {.n_layers = p->sizes.n_layers};
    rv_status st = row_bench_init(&b, p->be, values, p->err);
    for (int round = 0; !st && round < p->rounds && (!round || !is_late(p)); round++) {
        const double part = 1.0 / p->rounds;
        st = visit_call(p, part);
        for (int t = 0; !st && t < RVI_QTYPE_COUNT; t++) st = visit_weight(p, (rvi_qtype)t, part);
        if (!st) visit_ops(p, &b, part / 2);
    }
    row_bench_deinit(p->be, &b);
    if (st) return st;
    p->out->call = mean(&p->call);
    for (int t = 0; t < RVI_QTYPE_COUNT; t++) conclude_weight(p, (rvi_qtype)t);
    conclude_ops(p, false);
    conclude_ops(p, true);
    return measure_logits(p);
}

/* ---- other thread counts ---- */

/* Best of a few visits: advice on threads is for a machine that is left alone. */
static rv_status best_of(probe *p, rvi_backend *be, int n_rows, size_t bytes, double *seconds)
{
    rv_status st = RV_OK;
    *seconds = INFINITY;
    for (int i = 0; !st && i < 6; i++) {
        tally t = {0};
        st = over_ring(p, be, RVI_Q4_K, n_rows, bytes, n_rows == 1 ? p->slice / 6 : 0, &t);
        if (!st) *seconds = RVI_MIN(*seconds, mean(&t));
    }
    return st;
}

static rv_status measure_count(probe *p, int n)
{
    const rvi_cpu *cpu = rvi_cpu_of(p->be);
    rvi_cpu_options o = {.n_threads = n, .exact = cpu->exact, .isa = cpu->k.isa};
    rvi_backend *be = NULL;
    rv_status st = RV_OK;
    double one = 0, many = 0;
    if (n != p->out->n_threads) {
        st = rvi_backend_cpu_new(&be, &o, NULL, p->err);
        if (!st) st = be->ops->reserve(be, RVI_CPU_PROBE_ROWS, COLS, ALL_TYPES, p->err);
    }
    rvi_backend *use = be ? be : p->be;
    if (!st) st = best_of(p, use, 1, p->sizes.matrix, &one);
    if (!st) st = best_of(p, use, RVI_CPU_PROBE_ROWS, prompt_bytes(p, RVI_Q4_K), &many);
    if (!st) {
        size_t at = p->out->n_counts++;
        p->out->count[at].n = n;
        p->out->count[at].memory = rate(matrix_bytes(p, RVI_Q4_K, p->sizes.matrix), one);
        p->out->count[at].many =
            rate(matrix_ops(p, RVI_Q4_K, prompt_bytes(p, RVI_Q4_K), RVI_CPU_PROBE_ROWS), many);
    }
    if (be) be->ops->free(be);
    return st;
}

static rv_status measure_counts(probe *p, const rvi_cpu_probe_options *o)
{
    int wanted[RVI_CPU_PROBE_COUNTS] = {
        1, o->n_physical / 4, o->n_physical / 2, o->n_physical, p->out->n_threads, o->n_logical};
    rv_status st = RV_OK;
    for (int last = 0; !st && !is_late(p);) {
        int n = 0; /* the next larger one */
        for (size_t i = 0; i < RVI_COUNT(wanted); i++)
            if (wanted[i] > last && (!n || wanted[i] < n)) n = wanted[i];
        if (!n || n > 1024) break;
        st = measure_count(p, n);
        last = n;
    }
    return st;
}

/* ---- the whole ---- */

typedef struct filling {
    uint8_t *data;
    size_t bytes;
} filling;

enum { FILL = 4 << 20 };

/* Bytes 0x20..0x3F: read as f16, bf16 or f32 they are normal numbers below 2. */
static void fill_task(void *ctx, int task, int worker)
{
    filling *f = ctx;
    (void)worker;
    rvi_rng rng = {(uint64_t)task};
    size_t from = (size_t)task * FILL, to = RVI_MIN(from + FILL, f->bytes);
    for (size_t i = from; i + 8 <= to; i += 8) {
        uint64_t v = (rvi_rng_u64(&rng) & 0x1F1F1F1F1F1F1F1Fu) | 0x2020202020202020u;
        memcpy(f->data + i, &v, sizeof v);
    }
}

/* Four times the last cache; an eighth of the memory at most. */
static size_t ring_size(const rvi_cpu_probe_options *o)
{
    enum { LEAST = 8 << 20, STEP = 1 << 20 };
    uint64_t n = o->working_set;
    if (!n) {
        n = RVI_MAX((uint64_t)o->last_cache * 4, (uint64_t)256 << 20);
        n = RVI_MIN(n, (uint64_t)1 << 30);
        if (o->available) n = RVI_MIN(n, o->available / 8);
    }
    return (size_t)RVI_MAX(n / STEP * STEP, (uint64_t)LEAST);
}

static rv_status set_up(probe *p, float *values)
{
    rvi_rng rng = {1};
    const rvi_backend_ops *op = p->be->ops;
    size_t most_rows = RVI_MAX(p->sizes.large / rvi_qtype_row_bytes(RVI_Q2_K, COLS),
                               (size_t)p->out->n_threads * 8);
    for (int i = 0; i < FF; i++) values[i] = (float)(rvi_rng_double(&rng) - 0.5);
    p->ring = rvi_alloc_aligned(p->ring_bytes, 64);
    if (!p->ring) return rvi_nomem(p->err, "probe");
    filling f = {p->ring, p->ring_bytes};
    rvi_pool_run(rvi_cpu_of(p->be)->pool, fill_task, &f, (int)((p->ring_bytes + FILL - 1) / FILL));
    rv_status st = op->rows_new(p->be, &p->x, RVI_CPU_PROBE_ROWS, COLS, p->err);
    if (!st) st = op->rows_new(p->be, &p->y, RVI_CPU_PROBE_ROWS, (int)most_rows, p->err);
    if (!st) st = op->reserve(p->be, RVI_CPU_PROBE_ROWS, FF, ALL_TYPES, p->err);
    if (st) return st;
    fill_rows(p->be, p->x, values);
    return RV_OK;
}

static void tear_down(probe *p)
{
    p->be->ops->tensor_free(p->be, p->x);
    p->be->ops->tensor_free(p->be, p->y);
    rvi_free(p->ring);
}

rv_status rvi_cpu_probe_row(double *out, rvi_backend *be, rvi_qtype type, size_t last_cache,
                            rv_error *err)
{
    enum { LEAST = 64 << 20, MOST = 256 << 20 };
    const double seconds = 0.01;
    rvi_cpu_probe figures = {.n_threads = rvi_pool_size(rvi_cpu_of(be)->pool)};
    rvi_cpu_probe_options o = {.working_set =
                                   RVI_MIN(RVI_MAX(2 * last_cache, (size_t)LEAST), (size_t)MOST)};
    probe p = {.out = &figures, .be = be, .ring_bytes = ring_size(&o), .sizes = usual, .err = err};
    tally t = {0};
    *out = 0;
    float *values = rvi_alloc_array(FF, sizeof *values);
    rv_status st = values ? set_up(&p, values) : rvi_nomem(err, "probe");
    if (!st) st = over_ring(&p, be, type, 1, p.sizes.large, seconds, &t);
    if (!st) *out = rate(matrix_bytes(&p, type, p.sizes.large), mean(&t));
    tear_down(&p);
    rvi_free(values);
    return st;
}

rv_status rvi_cpu_probe_run(rvi_cpu_probe *out, rvi_backend *be, const rvi_cpu_probe_options *o,
                            rv_error *err)
{
    *out = (rvi_cpu_probe){.n_threads = rvi_pool_size(rvi_cpu_of(be)->pool)};
    probe p = {.out = out,
               .be = be,
               .ring_bytes = ring_size(o),
               .rounds = o->quick ? 1 : ROUNDS,
               .sizes = o->quick ? little : usual,
               .err = err};
    /* many threads want more rows to share, as a large model has them */
    p.sizes.prompt_rows *= (size_t)RVI_MIN(RVI_MAX(out->n_threads / 4, 1), 4);
    out->large_from = p.sizes.matrix;
    /* about 80 slices in all: 4 for a type, 1 for a set and a peak, 2 for a thread count */
    p.slice = (o->seconds > 0 ? o->seconds : 4.5) / 80;
    p.until = rvi_os_seconds() + (o->limit > 0 ? o->limit : 12);
    float *values = rvi_alloc_array(FF, sizeof *values);
    rv_status st = values ? set_up(&p, values) : rvi_nomem(err, "probe");
    if (!st) st = measure_reads(&p);
    if (!st) st = measure_peak(&p, RVI_PEAK_INT8, &out->int8_name, &out->int8);
    if (!st) st = measure_peak(&p, RVI_PEAK_BF16, &out->bf16_name, &out->bf16);
    if (!st) st = measure_engine(&p, values);
    if (!st) st = measure_counts(&p, o);
    tear_down(&p);
    rvi_free(values);
    return st;
}
