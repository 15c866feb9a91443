/* Training on a CUDA device: scratch, attention over spans, the loss, and what goes row by row. */
#include "backend/cuda/train.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

/* ---- scratch ---- */

static void free_train(rvi_cuda *c, rvi_cuda_train *t)
{
    if (!t) return;
    rvi_cuda_release(c, t->operands);
    rvi_cuda_release(c, t->losses);
    rvi_cuda_release(c, t->stats);
    atomic_fetch_sub(&c->be.memory->scratch, t->counted);
    rvi_free(t->losses_host);
    rvi_free(t);
}

void rvi_cuda_train_free(rvi_cuda *c)
{
    free_train(c, c->train);
    c->train = NULL;
}

/* Operands of the largest call, backward: rows and their gradients, both also turned; the adapters'
 * matrices, A twice; and what they give of both, also turned. */
static size_t operands_bytes(const rvi_cuda *c, const rvi_cuda_train *t)
{
    const size_t spare = RVI_MAX_LINEARS * RVI_CUDA_OPERAND, rank = RVI_MAX_RANK,
                 layers = RVI_MAX_LINEARS;
    size_t rows = rvi_cuda_padded(t->max_rows), in = rvi_cuda_padded(t->max_cols) + spare,
           out = rvi_cuda_padded(RVI_MAX(t->max_cols, t->max_vocab)) + spare;
    size_t elements =
        2 * rows * (in + out) + rank * (2 * layers * in + out) + 4 * layers * rows * rank;
    return elements * rvi_cuda_element(c);
}

rv_status rvi_cuda_train_reserve(rvi_backend *be, int n_rows, int n_cols, int n_vocab,
                                 rv_error *err)
{
    rvi_cuda *c = rvi_cuda_of(be);
    rvi_cuda_train *old = c->train;
    if (old && n_rows <= old->max_rows && n_cols <= old->max_cols && n_vocab <= old->max_vocab)
        return RV_OK;
    rvi_cuda_train *t = rvi_zalloc(sizeof *t);
    if (!t) return rvi_nomem(err, "training scratch");
    t->max_rows = RVI_MAX(n_rows, old ? old->max_rows : 1);
    t->max_cols = RVI_MAX(n_cols, old ? old->max_cols : 1);
    t->max_vocab = RVI_MAX(n_vocab, old ? old->max_vocab : 1);
    size_t rows = (size_t)t->max_rows, losses = rows * sizeof(float),
           stats = rows * (size_t)t->max_cols * sizeof(float);
    t->operands_bytes = operands_bytes(c, t);
    t->losses_host = rvi_alloc_array(rows, sizeof(float));
    rv_status st = t->losses_host ? RV_OK : rvi_nomem(err, "training scratch");
    /* one target may list every token, with its probability and room for its logit; a tile of
     * weights goes through the staging area too */
    int cols = RVI_MAX(t->max_cols, 4 * (t->max_vocab / t->max_rows + 1));
    cols = RVI_MAX(cols, 2 * RVI_CUDA_OPERAND * (t->max_cols / t->max_rows + 1));
    if (!st) st = rvi_cuda_reserve(be, t->max_rows, cols, 0, err);
    if (!st) st = rvi_cuda_alloc(c, &t->operands, t->operands_bytes, "training scratch", err);
    if (!st) st = rvi_cuda_alloc(c, &t->losses, losses, "training scratch", err);
    if (!st) st = rvi_cuda_alloc(c, &t->stats, stats, "training scratch", err);
    if (!st) {
        t->counted = t->operands_bytes + losses + stats;
        atomic_fetch_add(&be->memory->scratch, t->counted);
        c->train = t;
    }
    rvi_cuda_submit(be); /* what was collected has the old addresses */
    free_train(c, st ? t : old);
    return st;
}

size_t rvi_cuda_memory_left(rvi_backend *be)
{
    size_t left, total;
    rvi_backend_cuda_memory(be, &left, &total);
    return left;
}

void rvi_cuda_start_early(rvi_cuda *c)
{
    enum { MUCH = 160 }; /* commands */
    if (c->n_commands >= MUCH) rvi_cuda_submit(&c->be);
}

/* ---- attention ---- */

/* The tables of a call, in the staging area: spans, the span of each row, who sees a span. */
typedef struct tables {
    rvi_cuda_span *spans;
    int32_t *span_of, *seen_by;
} tables;

static bool is_below(const rvi_span *spans, int i, int top)
{
    while (i > top) i = spans[i].parent; /* parents come first */
    return i == top;
}

static int count_seen_by(const rvi_span *spans, int n_spans)
{
    int n = 0;
    for (int i = 0; i < n_spans; i++)
        for (int s = i; s >= 0; s = spans[s].parent) n++;
    return n;
}

static void fill_tables(const tables *t, const rvi_span *spans, int n_spans)
{
    int32_t at = 0;
    for (int i = 0; i < n_spans; i++) {
        const rvi_span *s = &spans[i];
        t->spans[i] = (rvi_cuda_span){s->first, s->n, s->pos, s->parent, at, 0};
        for (int j = 0; j < s->n; j++) t->span_of[s->first + j] = i;
        for (int k = i; k < n_spans; k++) {
            if (!is_below(spans, k, i)) continue;
            t->seen_by[at++] = k;
            t->spans[i].n_seen_by++;
        }
    }
}

static int rows_of(const rvi_span *spans, int n_spans)
{
    int n = 0;
    for (int i = 0; i < n_spans; i++) n = RVI_MAX(n, spans[i].first + spans[i].n);
    return n;
}

static bool stage_spans(rvi_cuda *c, rvi_cuda_span_args *a, const rvi_span *spans, int n_spans)
{
    size_t n_rows = (size_t)rows_of(spans, n_spans),
           first = (size_t)n_spans * sizeof(rvi_cuda_span),
           seen_by = (size_t)count_seen_by(spans, n_spans) * sizeof(int32_t);
    void *host;
    rvi_cuda_at at = rvi_cuda_stage(c, first + n_rows * sizeof(int32_t) + seen_by, &host);
    if (!at) return false;
    tables t = {host, (int32_t *)(void *)((uint8_t *)host + first), NULL};
    t.seen_by = t.span_of + n_rows;
    memset(t.span_of, 0, n_rows * sizeof *t.span_of); /* of rows between spans */
    fill_tables(&t, spans, n_spans);
    a->spans = at;
    a->span_of = at + first;
    a->seen_by = at + first + n_rows * sizeof(int32_t);
    return true;
}

static rvi_cuda_span_args span_args(const rvi_cuda *c, const rvi_attention *a, rvi_cols out,
                                    rvi_cols q, rvi_cols k, rvi_cols v)
{
    return (rvi_cuda_span_args){.out = rvi_cuda_cols_of(out),
                                .q = rvi_cuda_cols_of(q),
                                .k = rvi_cuda_cols_of(k),
                                .v = rvi_cuda_cols_of(v),
                                .stats = c->train->stats,
                                .n_heads = a->n_heads,
                                .n_kv_heads = a->n_kv_heads,
                                .head_size = a->head_size,
                                .window = a->window,
                                .scale = a->scale,
                                .soft_cap = a->soft_cap};
}

static void add_span_kernel(rvi_cuda *c, rvi_cuda_kernel k, const rvi_cuda_span_args *a, int n_rows,
                            int n_heads, uint32_t threads)
{
    if (a->head_size > RVI_CUDA_MAX_HEAD) {
        rvi_cuda_fails(c, RVI_CU_INVALID, "training with heads of more than 512 elements");
        return;
    }
    rvi_cuda_add(c, k, (uint32_t[]){(uint32_t)n_rows, (uint32_t)n_heads, 1}, threads, a, sizeof *a);
}

void rvi_cuda_span_attention(rvi_backend *be, rvi_cols out, rvi_cols q, rvi_cols k, rvi_cols v,
                             const rvi_attention *a, const rvi_span *spans, int n_spans)
{
    rvi_cuda *c = rvi_cuda_of(be);
    int n_rows = rows_of(spans, n_spans);
    if (n_rows < 1 || rvi_cuda_is_idle(c)) return;
    rvi_cuda_span_args args = span_args(c, a, out, q, k, v);
    if (!stage_spans(c, &args, spans, n_spans)) return;
    add_span_kernel(c, RVI_CUDA_span_attention, &args, n_rows, a->n_heads, 32);
}

void rvi_cuda_span_attention_back(rvi_backend *be, rvi_cols dq, rvi_cols dk, rvi_cols dv,
                                  rvi_cols dout, rvi_cols q, rvi_cols k, rvi_cols v,
                                  const rvi_attention *a, const rvi_span *spans, int n_spans)
{
    rvi_cuda *c = rvi_cuda_of(be);
    int n_rows = rows_of(spans, n_spans);
    if (n_rows < 1 || rvi_cuda_is_idle(c)) return;
    rvi_cuda_span_args args = span_args(c, a, dout, q, k, v);
    args.dq = rvi_cuda_cols_of(dq);
    args.dk = rvi_cuda_cols_of(dk);
    args.dv = rvi_cuda_cols_of(dv);
    if (!stage_spans(c, &args, spans, n_spans)) return;
    add_span_kernel(c, RVI_CUDA_span_queries_back, &args, n_rows, a->n_heads, 32);
    add_span_kernel(c, RVI_CUDA_span_keys_back, &args, n_rows, a->n_kv_heads,
                    RVI_CUDA_SPAN_WARPS * 32);
}

/* ---- row by row ---- */

static void norm_back(rvi_backend *be, rvi_cols dx, rvi_cols dy, rvi_cols x, const rvi_tensor *w,
                      int size, bool add, int n_rows, float eps)
{
    rvi_cuda_norm_back_args a = {.dx = rvi_cuda_cols_of(dx),
                                 .dy = rvi_cuda_cols_of(dy),
                                 .x = rvi_cuda_cols_of(x),
                                 .w = w->at,
                                 .size = size,
                                 .add = add,
                                 .eps = eps};
    uint32_t grid[] = {(uint32_t)n_rows, (uint32_t)(x.n / size), 1};
    if (n_rows > 0)
        rvi_cuda_add(rvi_cuda_of(be), RVI_CUDA_norm_back, grid, RVI_CUDA_THREADS, &a, sizeof a);
}

void rvi_cuda_rms_norm_back(rvi_backend *be, rvi_cols dx, rvi_cols dy, rvi_cols x,
                            const rvi_tensor *w, int n_rows, float eps)
{
    norm_back(be, dx, dy, x, w, x.n, true, n_rows, eps);
}

void rvi_cuda_head_norm_back(rvi_backend *be, rvi_cols dx, rvi_cols dy, rvi_cols x,
                             const rvi_tensor *w, int n_rows, float eps)
{
    norm_back(be, dx, dy, x, w, w->n_cols, false, n_rows, eps);
}

void rvi_cuda_glu_back(rvi_backend *be, rvi_cols dgate, rvi_cols dup, rvi_cols dact, rvi_cols gate,
                       rvi_cols up, rvi_glu kind, int n_rows)
{
    rvi_cuda_glu_back_args a = {.dgate = rvi_cuda_cols_of(dgate),
                                .dup = rvi_cuda_cols_of(dup),
                                .dact = rvi_cuda_cols_of(dact),
                                .gate = rvi_cuda_cols_of(gate),
                                .up = rvi_cuda_cols_of(up),
                                .kind = (int32_t)kind};
    uint32_t across = (uint32_t)((gate.n + RVI_CUDA_THREADS - 1) / RVI_CUDA_THREADS);
    if (n_rows > 0)
        rvi_cuda_add(rvi_cuda_of(be), RVI_CUDA_glu_back, (uint32_t[]){(uint32_t)n_rows, across, 1},
                     RVI_CUDA_THREADS, &a, sizeof a);
}

static void move(rvi_backend *be, rvi_cuda_kernel k, const rvi_cuda_move_args *a, int n_rows)
{
    if (n_rows > 0)
        rvi_cuda_add(rvi_cuda_of(be), k, (uint32_t[]){(uint32_t)n_rows, 1, 1}, RVI_CUDA_THREADS, a,
                     sizeof *a);
}

void rvi_cuda_copy(rvi_backend *be, rvi_cols out, rvi_cols x, int n_rows)
{
    rvi_cuda_move_args a = {.out = rvi_cuda_cols_of(out), .x = rvi_cuda_cols_of(x)};
    move(be, RVI_CUDA_move_rows, &a, n_rows);
}

void rvi_cuda_zero(rvi_backend *be, rvi_cols x, int n_rows)
{
    rvi_cuda_move_args a = {.out = rvi_cuda_cols_of(x)};
    move(be, RVI_CUDA_move_rows, &a, n_rows);
}

/* Rows that ascend are different ones; where they do not, another launch begins. */
void rvi_cuda_scatter_add(rvi_backend *be, rvi_cols out, rvi_cols x, const int32_t *to, int n_rows)
{
    rvi_cuda *c = rvi_cuda_of(be);
    for (int at = 0, n; at < n_rows && !rvi_cuda_is_idle(c); at += n) {
        for (n = 1; at + n < n_rows && to[at + n] > to[at + n - 1];) n++;
        rvi_cuda_move_args a = {.out = rvi_cuda_cols_of(out), .x = rvi_cuda_cols_of(x)};
        a.x.at += (rvi_cuda_at)at * (rvi_cuda_at)a.x.stride * sizeof(float);
        void *host;
        a.to = rvi_cuda_stage(c, (size_t)n * sizeof *to, &host);
        if (!a.to) return;
        memcpy(host, to + at, (size_t)n * sizeof *to);
        move(be, RVI_CUDA_scatter_add, &a, n);
    }
}

/* ---- loss ---- */

static size_t target_bytes(const rvi_target *t)
{
    return sizeof(rvi_cuda_target) + (size_t)t->n * (2 * sizeof(float) + sizeof(int32_t));
}

/* As many of n targets as fit into `room` bytes, one at least. */
static int count_fitting(const rvi_target *targets, int n, size_t room, size_t *bytes)
{
    int k = 1;
    *bytes = target_bytes(targets);
    while (k < n && *bytes + target_bytes(&targets[k]) <= room)
        *bytes += target_bytes(&targets[k++]);
    return k;
}

static void put_targets(const rvi_target *targets, int n, uint8_t *host, rvi_cuda_at at)
{
    size_t used = (size_t)n * sizeof(rvi_cuda_target);
    for (int i = 0; i < n; i++) {
        const rvi_target *t = &targets[i];
        size_t list = (size_t)t->n * sizeof(float);
        rvi_cuda_target to = {at + used,      at + used + list, at + used + 2 * list, t->n, t->rest,
                              t->temperature, t->weight};
        memcpy(host + (size_t)i * sizeof to, &to, sizeof to);
        memcpy(host + used, t->ids, list);
        memcpy(host + used + list, t->p, list);
        used += 3 * list;
    }
}

void rvi_cuda_loss(rvi_backend *be, rvi_cols logits, rvi_target *targets, float soft_cap, bool grad,
                   int n_rows)
{
    rvi_cuda *c = rvi_cuda_of(be);
    rvi_cuda_train *t = c->train;
    for (int at = 0, n; at < n_rows && !rvi_cuda_is_idle(c); at += n) {
        size_t bytes;
        void *host;
        n = count_fitting(targets + at, n_rows - at, RVI_MIN(c->max_staged, (size_t)1 << 20),
                          &bytes);
        rvi_cuda_loss_args a = {.logits = rvi_cuda_cols_of(logits),
                                .targets = rvi_cuda_stage(c, bytes, &host),
                                .losses = t->losses + (rvi_cuda_at)at * sizeof(float),
                                .soft_cap = soft_cap,
                                .grad = grad};
        if (!a.targets) break;
        a.logits.at += (rvi_cuda_at)at * (rvi_cuda_at)a.logits.stride * sizeof(float);
        put_targets(targets + at, n, host, a.targets);
        rvi_cuda_add(c, RVI_CUDA_loss, (uint32_t[]){(uint32_t)n, 1, 1}, RVI_CUDA_THREADS, &a,
                     sizeof a);
    }
    rvi_cuda_submit(be);
    size_t bytes = (size_t)n_rows * sizeof(float);
    rvi_cu_result r = atomic_load(&c->failed);
    if (!r) r = c->cu.context_use(c->context);
    if (!r) r = c->cu.copy_out(t->losses_host, t->losses, bytes, c->stream);
    if (!r) r = c->cu.stream_wait(c->stream);
    bool failed = rvi_cuda_fails(c, r, "waiting for losses");
    for (int i = 0; i < n_rows; i++) targets[i].loss = failed ? NAN : t->losses_host[i];
}
