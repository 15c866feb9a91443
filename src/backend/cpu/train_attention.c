/* Attention over the rows of a batch (rvi_span), forward and backward, as products of small float matrices.
 *
 * A task of the forward, and of the backward by q, is some rows of one span with the query heads of one KV head (or some of
 * them): their scores for all keys stand in scratch, so that softmax is plain. Keys come in chunks, gathered from the
 * spans where they lie. The backward by k and v goes the other way round: a task is some keys of one span, which meet the
 * queries of all spans that see them in the order of the spans, with the probabilities computed again from what the first
 * pass left of each query: the largest score, the inverse of the sum, and sum(p dp). So every sum has one order.
 *
 * Keys that a query does not see have the probability 0 but take part in the products: a NaN or an infinity in one row
 * may reach other rows of the same text. */
#include <string.h>

#include "backend/cpu/train.h"

enum {
    MAX_QUERIES = RVI_TRAIN_QUERIES, /* rows times heads of a task */
    MAX_HEADS = 8,                   /* of a task */
    MAX_ROWS = 64,                   /* of a task */
    KEYS = RVI_TRAIN_KEYS            /* of a chunk */
};

typedef struct job {
    rvi_cpu *cpu;
    const rvi_train_gemm *g;
    rvi_cols out, q, k, v; /* out: backward: its gradient */
    rvi_cols dq, dk, dv;   /* backward, else .t is NULL */
    const rvi_attention *a;
    const rvi_span *spans;
    int n_spans;
    int group;                   /* query heads of a KV head */
    int heads, head_blocks;      /* of a task; tasks that share a KV head */
    int rows;                    /* of a task */
    int begin, end;              /* query heads of this round of the backward */
    float *top, *inverse, *sums; /* [head of the round][row] of queries */
} job;

static int blocks_of(int n, int size)
{
    return (n + size - 1) / size;
}

static int first_key(const rvi_attention *a, int pos)
{
    return a->window && pos >= a->window ? pos - a->window + 1 : 0;
}

static float *head_at(rvi_cols c, int row, int head, int size)
{
    return rvi_cpu_row(c, row) + (size_t)head * (size_t)size;
}

static size_t stat_at(const job *j, int head, int row)
{
    return (size_t)(head - j->begin) * (size_t)j->cpu->train->max_rows + (size_t)row;
}

/* Keys from .. from + n - 1 (positions of span s's text) of a KV head; *stride floats apart, copied where they do not lie
 * together. */
static const float *gather(const job *j, rvi_cols c, int s, int kv, int from, int n, float *copy,
                           size_t *stride)
{
    int size = j->a->head_size, end = from + n;
    *stride = (size_t)c.t->stride;
    while (end <= j->spans[s].pos) s = j->spans[s].parent;
    if (from >= j->spans[s].pos)
        return head_at(c, j->spans[s].first + from - j->spans[s].pos, kv, size);
    *stride = (size_t)size;
    for (; end > from; s = j->spans[s].parent) {
        int first = RVI_MAX(from, j->spans[s].pos);
        for (int p = first; p < end; p++)
            memcpy(copy + (size_t)(p - from) * (size_t)size,
                   head_at(c, j->spans[s].first + p - j->spans[s].pos, kv, size),
                   (size_t)size * sizeof *copy);
        end = RVI_MIN(end, first);
    }
    return copy;
}

/* ---- queries ---- */

typedef struct queries {
    int span, row, n; /* rows of the batch */
    int pos;          /* of the first one */
    int kv, head, n_heads;
    int first, n_keys; /* positions that any of them sees */
    size_t stride;     /* of scores */
} queries;

/* The queries of a task; tasks go over the spans, their rows, KV heads and blocks of heads. */
static queries queries_of(const job *j, int task)
{
    int each = j->a->n_kv_heads * j->head_blocks, s = 0, block;
    for (; task >= (block = blocks_of(j->spans[s].n, j->rows)) * each; s++) task -= block * each;
    queries q = {.span = s};
    int at = task / each * j->rows, block_of_heads = task % j->head_blocks;
    q.row = j->spans[s].first + at;
    q.n = RVI_MIN(j->rows, j->spans[s].n - at);
    q.pos = j->spans[s].pos + at;
    q.kv = task % each / j->head_blocks;
    q.head = q.kv * j->group + block_of_heads * j->heads;
    q.n_heads = RVI_MIN(j->heads, j->group - block_of_heads * j->heads);
    q.first = first_key(j->a, q.pos);
    q.n_keys = q.pos + q.n - q.first;
    q.stride = (size_t)rvi_gemm_cols(q.n_keys);
    return q;
}

static int count_tasks(const job *j)
{
    int n = 0;
    for (int s = 0; s < j->n_spans; s++) n += blocks_of(j->spans[s].n, j->rows);
    return n * j->a->n_kv_heads * j->head_blocks;
}

/* scores[head][row][key] = rows of x times rows of keys */
static void multiply_keys(const job *j, const queries *q, rvi_cols x, rvi_cols keys, float *scores,
                          rvi_attn_train *w)
{
    const rvi_train_gemm *g = j->g;
    int size = j->a->head_size;
    size_t depth = rvi_gemm_k(g, (size_t)size),
           one = rvi_gemm_a_at(g, depth, rvi_gemm_rows(g, q->n), 0);
    for (int h = 0; h < q->n_heads; h++)
        g->pack_a(w->left + (size_t)h * one, depth, head_at(x, q->row, q->head + h, size),
                  (size_t)x.t->stride, false, q->n, size);
    for (int at = 0; at < q->n_keys; at += KEYS) {
        size_t stride;
        int n = RVI_MIN(KEYS, q->n_keys - at);
        const float *k = gather(j, keys, q->span, q->kv, q->first + at, n, w->gathered, &stride);
        g->pack_b(w->right, depth, k, stride, true, size, n);
        for (int h = 0; h < q->n_heads; h++)
            g->product(w->left + (size_t)h * one, depth, q->n, w->right, depth, n, depth,
                       scores + (size_t)(h * q->n) * q->stride + at, q->stride, false);
    }
}

/* rows of out = weights[head][row][key] times rows of values */
static void multiply_values(const job *j, const queries *q, rvi_cols out, rvi_cols values,
                            const float *weights, rvi_attn_train *w)
{
    const rvi_train_gemm *g = j->g;
    int size = j->a->head_size;
    for (int at = 0; at < q->n_keys; at += KEYS) {
        size_t stride, depth;
        int n = RVI_MIN(KEYS, q->n_keys - at);
        const float *v = gather(j, values, q->span, q->kv, q->first + at, n, w->gathered, &stride);
        depth = rvi_gemm_k(g, (size_t)n);
        g->pack_b(w->right, depth, v, stride, false, n, size);
        for (int h = 0; h < q->n_heads; h++) {
            g->pack_a(w->left, depth, weights + (size_t)(h * q->n) * q->stride + at, q->stride,
                      false, q->n, n);
            g->product(w->left, depth, q->n, w->right, depth, size, depth,
                       head_at(out, q->row, q->head + h, size), (size_t)out.t->stride, at > 0);
        }
    }
}

/* Scores become probabilities; the backward keeps what they were made of. */
static void to_probabilities(const job *j, const queries *q, float *scores, bool keep)
{
    for (int i = 0; i < q->n_heads * q->n; i++) {
        int row = i % q->n, head = q->head + i / q->n, pos = q->pos + row;
        float stats[2];
        j->cpu->k.softmax(scores + (size_t)i * q->stride, (size_t)q->n_keys,
                          (size_t)(first_key(j->a, pos) - q->first), (size_t)(pos + 1 - q->first),
                          j->a->scale, j->a->soft_cap, stats);
        if (!keep) continue;
        j->top[stat_at(j, head, q->row + row)] = stats[0];
        j->inverse[stat_at(j, head, q->row + row)] = stats[1];
    }
}

static void forward_task(void *ctx, int task, int worker)
{
    const job *j = ctx;
    rvi_attn_train *w = &j->cpu->train->attention[worker];
    queries q = queries_of(j, task);
    multiply_keys(j, &q, j->q, j->k, w->scores, w);
    to_probabilities(j, &q, w->scores, false);
    multiply_values(j, &q, j->out, j->v, w->scores, w);
}

/* dq of some queries, and what the keys need of them */
static void query_task(void *ctx, int task, int worker)
{
    const job *j = ctx;
    rvi_attn_train *w = &j->cpu->train->attention[worker];
    queries q = queries_of(j, task);
    int end = RVI_MIN(q.head + q.n_heads, j->end);
    q.head = RVI_MAX(q.head, j->begin);
    if ((q.n_heads = end - q.head) < 1) return;
    size_t n = (size_t)(q.n_heads * q.n) * q.stride;
    multiply_keys(j, &q, j->q, j->k, w->scores, w);
    if (j->a->soft_cap != 0.0f) memcpy(w->raw, w->scores, n * sizeof *w->raw);
    to_probabilities(j, &q, w->scores, true);
    multiply_keys(j, &q, j->out, j->v, w->slopes, w);
    for (int i = 0; i < q.n_heads * q.n; i++) {
        size_t at = (size_t)i * q.stride;
        float sum = j->cpu->k.softmax_back(w->slopes + at, w->scores + at, w->raw + at,
                                           (size_t)q.n_keys, j->a->scale, j->a->soft_cap);
        j->sums[stat_at(j, q.head + i / q.n, q.row + i % q.n)] = sum;
    }
    multiply_values(j, &q, j->dq, j->k, w->slopes, w);
}

/* ---- keys ---- */

typedef struct keys {
    int span, row, n, pos, kv;
} keys;

static keys keys_of(const job *j, int task)
{
    int s = 0, block;
    for (; task >= (block = blocks_of(j->spans[s].n, MAX_ROWS)) * j->a->n_kv_heads; s++)
        task -= block * j->a->n_kv_heads;
    int at = task / j->a->n_kv_heads * MAX_ROWS;
    return (keys){s, j->spans[s].first + at, RVI_MIN(MAX_ROWS, j->spans[s].n - at),
                  j->spans[s].pos + at, task % j->a->n_kv_heads};
}

static bool sees(const rvi_span *spans, int s, int key_span)
{
    while (s > key_span) s = spans[s].parent;
    return s == key_span;
}

/* c += weights[key][query] times the queries' rows of x */
static void add_queries(const job *j, const keys *k, rvi_cols c, const float *weights, rvi_cols x,
                        int row, int n, int head, rvi_attn_train *w)
{
    const rvi_train_gemm *g = j->g;
    int size = j->a->head_size;
    size_t depth = rvi_gemm_k(g, (size_t)n);
    g->pack_a(w->left, depth, weights, MAX_ROWS, false, k->n, n);
    g->pack_b(w->right, depth, head_at(x, row, head, size), (size_t)x.t->stride, false, n, size);
    g->product(w->left, depth, k->n, w->right, depth, size, depth, head_at(c, k->row, k->kv, size),
               (size_t)c.t->stride, true);
}

/* Queries row .. row + n - 1 at positions from pos on, of one head. own: the keys packed, then the values */
static void meet_queries(const job *j, const keys *k, int row, int n, int pos, int head,
                         const uint8_t *own[2], rvi_attn_train *w)
{
    const rvi_train_gemm *g = j->g;
    int size = j->a->head_size;
    size_t depth = rvi_gemm_k(g, (size_t)size), stat = stat_at(j, head, row);
    const rvi_cols with[2] = {j->q, j->out};
    float *result[2] = {w->scores, w->slopes};
    for (int i = 0; i < 2; i++) {
        g->pack_b(w->right, depth, head_at(with[i], row, head, size), (size_t)with[i].t->stride,
                  true, size, n);
        g->product(own[i], depth, k->n, w->right, depth, n, depth, result[i], MAX_ROWS, false);
    }
    for (int i = 0; i < k->n; i++) {
        int key = k->pos + i, from = RVI_MAX(key - pos, 0),
            end = j->a->window ? RVI_MIN(key + j->a->window - pos, n) : n;
        j->cpu->k.key_back(w->scores + i * MAX_ROWS, w->slopes + i * MAX_ROWS, j->top + stat,
                           j->inverse + stat, j->sums + stat, (size_t)n, (size_t)from,
                           (size_t)RVI_MAX(end, 0), j->a->scale, j->a->soft_cap);
    }
    add_queries(j, k, j->dk, w->slopes, j->q, row, n, head, w);
    add_queries(j, k, j->dv, w->scores, j->out, row, n, head, w);
}

static void key_task(void *ctx, int task, int worker)
{
    const job *j = ctx;
    const rvi_train_gemm *g = j->g;
    rvi_attn_train *w = &j->cpu->train->attention[worker];
    keys k = keys_of(j, task);
    int size = j->a->head_size, head = RVI_MAX(k.kv * j->group, j->begin),
        last = RVI_MIN((k.kv + 1) * j->group, j->end);
    size_t depth = rvi_gemm_k(g, (size_t)size);
    const rvi_cols from[2] = {j->k, j->v}, to[2] = {j->dk, j->dv};
    if (head >= last) return;
    const uint8_t *own[2];
    for (int i = 0; i < 2; i++) {
        uint8_t *packed =
            w->own + (size_t)i * rvi_gemm_a_at(g, depth, rvi_gemm_rows(g, MAX_ROWS), 0);
        g->pack_a(packed, depth, head_at(from[i], k.row, k.kv, size), (size_t)from[i].t->stride,
                  false, k.n, size);
        own[i] = packed;
        for (int r = 0; head == k.kv * j->group && r < k.n; r++)
            memset(head_at(to[i], k.row + r, k.kv, size), 0, (size_t)size * sizeof(float));
    }
    for (int s = k.span; s < j->n_spans; s++) {
        if (!sees(j->spans, s, k.span)) continue;
        const rvi_span *span = &j->spans[s];
        int first = RVI_MAX(k.pos - span->pos, 0), end = span->n;
        if (j->a->window) end = RVI_MIN(end, k.pos + k.n - 1 + j->a->window - span->pos);
        for (int i = first; i < end; i += MAX_ROWS)
            for (int h = head; h < last; h++)
                meet_queries(j, &k, span->first + i, RVI_MIN(MAX_ROWS, end - i), span->pos + i, h,
                             own, w);
    }
}

/* ---- the ops ---- */

static job job_new(rvi_backend *be, const rvi_attention *a, const rvi_span *spans, int n_spans)
{
    rvi_cpu *cpu = rvi_cpu_of(be);
    job j = {.cpu = cpu, .g = cpu->train->attend, .a = a, .spans = spans, .n_spans = n_spans};
    size_t n = (size_t)cpu->train->max_rows * RVI_TRAIN_HEADS;
    j.group = a->n_heads / a->n_kv_heads;
    j.heads = RVI_MIN(j.group, MAX_HEADS);
    j.head_blocks = blocks_of(j.group, j.heads);
    j.rows = RVI_MIN(MAX_QUERIES / j.heads, MAX_ROWS);
    j.top = cpu->train->stats;
    j.inverse = j.top + n;
    j.sums = j.inverse + n;
    return j;
}

void rvi_cpu_span_attention(rvi_backend *be, rvi_cols out, rvi_cols q, rvi_cols k, rvi_cols v,
                            const rvi_attention *a, const rvi_span *spans, int n_spans)
{
    job j = job_new(be, a, spans, n_spans);
    j.out = out;
    j.q = q;
    j.k = k;
    j.v = v;
    rvi_pool_run(j.cpu->pool, forward_task, &j, count_tasks(&j));
}

void rvi_cpu_span_attention_back(rvi_backend *be, rvi_cols dq, rvi_cols dk, rvi_cols dv,
                                 rvi_cols dout, rvi_cols q, rvi_cols k, rvi_cols v,
                                 const rvi_attention *a, const rvi_span *spans, int n_spans)
{
    job j = job_new(be, a, spans, n_spans);
    int blocks = 0;
    j.out = dout;
    j.q = q;
    j.k = k;
    j.v = v;
    j.dq = dq;
    j.dk = dk;
    j.dv = dv;
    for (int s = 0; s < n_spans; s++) blocks += blocks_of(spans[s].n, MAX_ROWS);
    for (; j.begin < a->n_heads; j.begin += RVI_TRAIN_HEADS) {
        j.end = RVI_MIN(j.begin + RVI_TRAIN_HEADS, a->n_heads);
        rvi_pool_run(j.cpu->pool, query_task, &j, count_tasks(&j));
        rvi_pool_run(j.cpu->pool, key_task, &j, blocks * a->n_kv_heads);
    }
}
