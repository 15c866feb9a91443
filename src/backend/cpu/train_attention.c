/* Attention over the rows of a batch (rvi_span), forward and backward, as products of small float
 * matrices.
 *
 * A block is some rows of one span, a task a block with one KV head and its query heads, some of
 * them at a time. The queries of all these heads are put together, row by row, as one operand: they
 * share their keys, and for products as small as those of single heads the overhead would be larger
 * than the product. Their scores for all keys are kept in scratch, so that softmax is simple. Keys
 * are packed from their spans in chunks; products skip the panels of keys that come after all rows
 * of a group.
 *
 * The gradients of k and v are three sums, one after the other:
 *  1. over a block's own queries, added by the task of the block itself;
 *  2. over the queries of other blocks that see only a few keys before themselves: the task of such
 *     a block leaves a part for each of these keys, and parts are added in the order of the blocks;
 *  3. over all other queries, whose parts would take too much memory: for each key in the order of
 *     the spans, with the probabilities computed again from what the task left of each query (the
 *     largest score, the inverse of the sum, and sum(p dp)).
 * Tasks run in waves whose parts fit into memory. So every sum has one order.
 *
 * Keys that a query does not see have the probability 0 but take part in the products: a NaN or an
 * infinity in one row may reach other rows of the same text. */
#include <string.h>

#include "backend/cpu/train.h"

enum {
    MAX_QUERIES = RVI_TRAIN_QUERIES,  /* rows times heads at a time */
    MAX_HEADS = 8,                    /* at a time */
    MAX_ROWS = 64,                    /* of a block */
    KEYS = RVI_TRAIN_KEYS,            /* of a chunk */
    MOST_PARTS = RVI_TRAIN_PARTS / 16 /* floats of a task: several fit at once, whatever they are */
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
    int heads;                   /* of them at a time */
    int rows;                    /* of a block */
    int begin, end;              /* query heads of this round of the backward */
    int wave, wave_end;          /* tasks */
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

/* Where keys from .. from + n - 1 (positions of span s's text) of a KV head lie. */
static void list_keys(const job *j, rvi_cols c, int s, int kv, int from, int n, const float **rows)
{
    for (int end = from + n; end > from; s = j->spans[s].parent) {
        int first = RVI_MAX(from, j->spans[s].pos);
        for (int p = first; p < end; p++)
            rows[p - from] =
                head_at(c, j->spans[s].first + p - j->spans[s].pos, kv, j->a->head_size);
        end = RVI_MIN(end, first);
    }
}

/* ---- blocks ---- */

typedef struct block {
    int span, row, n;  /* rows of the batch */
    int pos;           /* of the first one */
    int first, n_keys; /* positions that any of them sees */
} block;

static block block_of(const job *j, int span, int at)
{
    const rvi_span *s = &j->spans[span];
    block b = {span, s->first + at, RVI_MIN(j->rows, s->n - at), s->pos + at, 0, 0};
    b.first = first_key(j->a, b.pos);
    b.n_keys = b.pos + b.n - b.first;
    return b;
}

static block block_at(const job *j, int index)
{
    int s = 0, n;
    for (; index >= (n = blocks_of(j->spans[s].n, j->rows)); s++) index -= n;
    return block_of(j, s, index * j->rows);
}

static int count_blocks(const job *j)
{
    int n = 0;
    for (int s = 0; s < j->n_spans; s++) n += blocks_of(j->spans[s].n, j->rows);
    return n;
}

/* The next block; the one after the last is not to be looked at. */
static void step(const job *j, block *b)
{
    int at = b->row + b->n - j->spans[b->span].first, span = b->span;
    for (; span < j->n_spans && at >= j->spans[span].n; at = 0) span++;
    if (span < j->n_spans) *b = block_of(j, span, at);
}

static size_t floats_before(const job *j, const block *b)
{
    return (size_t)(b->pos - b->first) * (size_t)j->a->head_size * 2;
}

/* A block that sees too many keys before itself to leave parts; so do all that follow it in its
 * span. */
static bool is_far(const job *j, const block *b)
{
    return floats_before(j, b) > MOST_PARTS;
}

/* Of a block's part of dk and dv before itself, of one KV head; 0 when it leaves none. */
static size_t part_floats(const job *j, const block *b)
{
    return is_far(j, b) ? 0 : floats_before(j, b);
}

/* The first row of a span that belongs to such a block, or the number of its rows. */
static int first_far(const job *j, int span)
{
    for (int at = 0; at < j->spans[span].n; at += j->rows) {
        block b = block_of(j, span, at);
        if (is_far(j, &b)) return at;
    }
    return j->spans[span].n;
}

/* ---- queries ---- */

typedef struct queries {
    block b;
    int kv, head, n_heads;
    int n;         /* rows times heads */
    size_t stride; /* of scores */
} queries;

/* Those of some heads of a KV head, from `head` on and before `end` */
static queries queries_of(const job *j, const block *b, int kv, int head, int end)
{
    queries q = {.b = *b, .kv = kv, .head = head};
    q.n_heads = RVI_MIN(j->heads, end - head);
    q.n = q.n_heads * b->n;
    q.stride = (size_t)rvi_gemm_cols(b->n_keys);
    return q;
}

/* The addresses of the rows of x of all heads, one row's heads after each other. */
static void list_queries(const job *j, const queries *q, rvi_cols x, const float **rows)
{
    for (int r = 0; r < q->b.n; r++)
        for (int h = 0; h < q->n_heads; h++)
            *rows++ = head_at(x, q->b.row + r, q->head + h, j->a->head_size);
}

/* The last row of the group from `row` on */
static int group_last(const job *j, const queries *q, int row)
{
    return RVI_MIN(row + j->g->row_group, q->n) - 1;
}

/* Keys, of those that the block sees, that do not come after a row */
static int keys_seen(const queries *q, int row)
{
    return q->b.n_keys - q->b.n + row / q->n_heads + 1;
}

/* The last row of the groups from `row` on that need equally many panels of keys */
static int last_alike(const job *j, const queries *q, int row)
{
    int last = group_last(j, q, row), panels = rvi_gemm_cols(keys_seen(q, last));
    for (int next = last; next + 1 < q->n; last = next) {
        next = group_last(j, q, last + 1);
        if (rvi_gemm_cols(keys_seen(q, next)) != panels) break;
    }
    return last;
}

/* scores[row][key] = rows of x times rows of keys; those of keys after a row may be left as they
 * are */
static void multiply_keys(const job *j, const queries *q, const float *const *x, rvi_cols keys,
                          float *scores, rvi_attn_train *w)
{
    const rvi_train_gemm *g = j->g;
    int size = j->a->head_size;
    size_t depth = rvi_gemm_k(g, (size_t)size);
    g->pack_a_rows(w->left, depth, x, q->n, size);
    for (int at = 0; at < q->b.n_keys; at += KEYS) {
        int n = RVI_MIN(KEYS, q->b.n_keys - at);
        list_keys(j, keys, q->b.span, q->kv, q->b.first + at, n, w->keys);
        g->pack_b_rows(w->right, depth, w->keys, true, size, n);
        for (int row = 0, last; row < q->n; row = last + 1) {
            last = last_alike(j, q, row);
            int seen = keys_seen(q, last) - at;
            if (seen > 0)
                g->product(w->left + rvi_gemm_a_at(g, depth, row, 0), depth, last + 1 - row,
                           w->right, depth, RVI_MIN(seen, n), depth,
                           scores + (size_t)row * q->stride + at, q->stride, false);
        }
    }
}

/* rows of out = weights[row][key] times rows of values */
static void multiply_values(const job *j, const queries *q, rvi_cols out, rvi_cols values,
                            const float *weights, rvi_attn_train *w)
{
    const rvi_train_gemm *g = j->g;
    int size = j->a->head_size;
    float *to = q->n_heads == 1 ? head_at(out, q->b.row, q->head, size) : w->result;
    size_t to_stride = (size_t)(q->n_heads == 1 ? (int)out.t->stride : size);
    for (int at = 0; at < q->b.n_keys; at += KEYS) {
        int n = RVI_MIN(KEYS, q->b.n_keys - at);
        size_t depth = rvi_gemm_k(g, (size_t)n);
        list_keys(j, values, q->b.span, q->kv, q->b.first + at, n, w->keys);
        g->pack_b_rows(w->right, depth, w->keys, false, n, size);
        g->pack_a(w->left, depth, weights + at, q->stride, false, q->n, n);
        for (int row = 0, last; row < q->n; row = last + 1) {
            last = group_last(j, q, row);
            int seen = keys_seen(q, last) - at;
            if (seen > 0)
                g->product(w->left + rvi_gemm_a_at(g, depth, row, 0), depth, last + 1 - row,
                           w->right, depth, size, (size_t)RVI_MIN(seen, n),
                           to + (size_t)row * to_stride, to_stride, at > 0);
        }
    }
    size_t n = (size_t)(q->n_heads * size);
    for (int r = 0; q->n_heads > 1 && r < q->b.n; r++)
        memcpy(head_at(out, q->b.row + r, q->head, size), to + (size_t)r * n, n * sizeof *to);
}

/* Scores become probabilities; the backward keeps what they were made of. */
static void to_probabilities(const job *j, const queries *q, float *scores, bool keep)
{
    for (int i = 0; i < q->n; i++) {
        int row = i / q->n_heads, head = q->head + i % q->n_heads, pos = q->b.pos + row;
        float stats[2];
        j->cpu->k.softmax(scores + (size_t)i * q->stride, (size_t)q->b.n_keys,
                          (size_t)(first_key(j->a, pos) - q->b.first),
                          (size_t)(pos + 1 - q->b.first), j->a->scale, j->a->soft_cap, stats);
        if (!keep) continue;
        j->top[stat_at(j, head, q->b.row + row)] = stats[0];
        j->inverse[stat_at(j, head, q->b.row + row)] = stats[1];
    }
}

/* Slopes by probabilities become slopes by scores, 0 where a query does not see the key. */
static void to_slopes(const job *j, const queries *q, rvi_attn_train *w)
{
    for (int i = 0; i < q->n; i++) {
        int row = i / q->n_heads, end = keys_seen(q, i);
        size_t at = (size_t)i * q->stride;
        float sum = j->cpu->k.softmax_back(w->slopes + at, w->scores + at, w->raw + at, (size_t)end,
                                           j->a->scale, j->a->soft_cap);
        for (int key = end; key < q->b.n_keys; key++) w->slopes[at + (size_t)key] = 0.0f;
        j->sums[stat_at(j, q->head + i % q->n_heads, q->b.row + row)] = sum;
    }
}

static void forward_task(void *ctx, int task, int worker)
{
    const job *j = ctx;
    rvi_attn_train *w = &j->cpu->train->attention[worker];
    block b = block_at(j, task / j->a->n_kv_heads);
    int kv = task % j->a->n_kv_heads, end = (kv + 1) * j->group;
    for (int head = kv * j->group; head < end; head += j->heads) {
        queries q = queries_of(j, &b, kv, head, end);
        list_queries(j, &q, j->q, w->queries[0]);
        multiply_keys(j, &q, w->queries[0], j->k, w->scores, w);
        to_probabilities(j, &q, w->scores, false);
        multiply_values(j, &q, j->out, j->v, w->scores, w);
    }
}

/* ---- backward, by blocks ---- */

/* c[key] (=, add: +=) the sum over queries of weights[query][key] times their rows, which are
 * packed in w->right: keys from .. from + n - 1 of those that the block sees. */
static void weigh_queries(const job *j, const queries *q, const float *weights, int from, int n,
                          float *c, size_t c_stride, bool add, rvi_attn_train *w)
{
    const rvi_train_gemm *g = j->g;
    int own = q->b.n_keys - q->b.n;
    size_t depth = rvi_gemm_k(g, (size_t)q->n);
    g->pack_a(w->left, depth, weights + from, q->stride, true, n, q->n);
    for (int i = 0, m; i < n; i += m) {
        int before = RVI_MAX(from + i - own, 0) * q->n_heads; /* queries that see none of these */
        size_t skip = (size_t)(before / g->k_step * g->k_step);
        m = from < own ? n : RVI_MIN(n - i, g->row_group);
        g->product(w->left + rvi_gemm_a_at(g, depth, i, skip), depth, m,
                   w->right + rvi_gemm_b_at(g, depth, 0, skip), depth, j->a->head_size,
                   (size_t)q->n - skip, c + (size_t)i * c_stride, c_stride, add);
    }
}

/* What some queries of a block add to the block's own keys or values, and their part of those
 * before. */
static void leave_parts(const job *j, const queries *q, const float *weights, const float *const *x,
                        rvi_cols c, float *part, rvi_attn_train *w)
{
    int size = j->a->head_size, before = q->b.n_keys - q->b.n;
    size_t depth = rvi_gemm_k(j->g, (size_t)q->n);
    bool first = q->head == q->kv * j->group,
         fresh = first || q->head == j->begin; /* the first heads of this round */
    j->g->pack_b_rows(w->right, depth, x, false, q->n, size);
    weigh_queries(j, q, weights, before, q->b.n, head_at(c, q->b.row, q->kv, size),
                  (size_t)c.t->stride, !first, w);
    for (int at = 0; part && at < before; at += KEYS)
        weigh_queries(j, q, weights, at, RVI_MIN(KEYS, before - at),
                      part + (size_t)at * (size_t)size, (size_t)size, !fresh, w);
}

/* dq of some queries, and what they add to dk and dv */
static void query_back(const job *j, const queries *q, float *part, size_t part_size,
                       rvi_attn_train *w)
{
    list_queries(j, q, j->q, w->queries[0]);
    list_queries(j, q, j->out, w->queries[1]);
    multiply_keys(j, q, w->queries[0], j->k, w->scores, w);
    if (j->a->soft_cap != 0.0f)
        memcpy(w->raw, w->scores, (size_t)q->n * q->stride * sizeof *w->raw);
    to_probabilities(j, q, w->scores, true);
    multiply_keys(j, q, w->queries[1], j->v, w->slopes, w);
    to_slopes(j, q, w);
    multiply_values(j, q, j->dq, j->k, w->slopes, w);
    leave_parts(j, q, w->slopes, w->queries[0], j->dk, part, w);
    leave_parts(j, q, w->scores, w->queries[1], j->dv, part ? part + part_size / 2 : NULL, w);
}

/* Walks over the blocks of this wave; .at: where the part of the block's first KV head would begin,
 * counted from where that of the wave's first block would. */
typedef struct walk {
    block b;
    int index;
    size_t at, before; /* before: the parts of the first block that belong to the last wave */
} walk;

static walk walk_new(const job *j)
{
    walk w = {.index = j->wave / j->a->n_kv_heads};
    w.b = block_at(j, w.index);
    w.before = (size_t)(j->wave % j->a->n_kv_heads) * part_floats(j, &w.b);
    return w;
}

static void walk_on(const job *j, walk *w)
{
    w->at += (size_t)j->a->n_kv_heads * part_floats(j, &w->b);
    w->index++;
    step(j, &w->b);
}

static float *part_of(const job *j, const walk *w, int kv)
{
    return j->cpu->train->parts + (w->at + (size_t)kv * part_floats(j, &w->b) - w->before);
}

static void back_task(void *ctx, int task, int worker)
{
    const job *j = ctx;
    task += j->wave;
    int kv = task % j->a->n_kv_heads, end = RVI_MIN((kv + 1) * j->group, j->end);
    walk at = walk_new(j);
    while (at.index < task / j->a->n_kv_heads) walk_on(j, &at);
    size_t size = part_floats(j, &at.b);
    float *part = size ? part_of(j, &at, kv) : NULL;
    for (int head = RVI_MAX(kv * j->group, j->begin); head < end; head += j->heads) {
        queries q = queries_of(j, &at.b, kv, head, end);
        query_back(j, &q, part, size, &j->cpu->train->attention[worker]);
    }
}

static bool sees(const rvi_span *spans, int s, int key_span)
{
    while (s > key_span) s = spans[s].parent;
    return s == key_span;
}

/* Whether a block's keys can be seen by other blocks. */
static bool is_shared(const job *j, const block *b)
{
    bool shared = j->spans[b->span].n > j->rows;
    for (int s = b->span + 1; s < j->n_spans && !shared; s++)
        shared = j->spans[s].parent == b->span;
    return shared;
}

/* Rows of a block whose parts a task adds: most blocks have none, and one that all texts share has
 * many. */
enum { ADDED = 4 };

/* Adds the parts that this wave left of some rows of dk or dv, in the order of the blocks. */
static void parts_task(void *ctx, int task, int worker)
{
    const job *j = ctx;
    (void)worker;
    int some = task % blocks_of(j->rows, ADDED);
    task /= blocks_of(j->rows, ADDED);
    int kv = task / 2 % j->a->n_kv_heads, size = j->a->head_size;
    block keys = block_at(j, task / 2 / j->a->n_kv_heads);
    bool in_round = (kv + 1) * j->group > j->begin && kv * j->group < j->end;
    rvi_cols to = task % 2 ? j->dv : j->dk;
    if (!in_round || some * ADDED >= keys.n || !is_shared(j, &keys)) return;
    int first = keys.pos + some * ADDED, last = RVI_MIN(first + ADDED, keys.pos + keys.n);
    for (walk w = walk_new(j); w.index * j->a->n_kv_heads + kv < j->wave_end; walk_on(j, &w)) {
        size_t n = part_floats(j, &w.b);
        bool here = n && w.index * j->a->n_kv_heads + kv >= j->wave;
        if (!here || !sees(j->spans, w.b.span, keys.span)) continue;
        const float *part = part_of(j, &w, kv) + (task % 2 ? n / 2 : 0);
        int end = RVI_MIN(last, w.b.pos);
        for (int pos = RVI_MAX(first, w.b.first); pos < end; pos++)
            j->cpu->k.add(head_at(to, keys.row + pos - keys.pos, kv, size),
                          part + (size_t)(pos - w.b.first) * (size_t)size, (size_t)size);
    }
}

/* ---- backward, keys that meet far blocks ---- */

typedef struct keys {
    int span, row, n, pos, kv;
} keys;

static keys keys_of(const job *j, int task)
{
    int s = 0, n;
    for (; task >= (n = blocks_of(j->spans[s].n, MAX_ROWS)) * j->a->n_kv_heads; s++)
        task -= n * j->a->n_kv_heads;
    int at = task / j->a->n_kv_heads * MAX_ROWS;
    return (keys){s, j->spans[s].first + at, RVI_MIN(MAX_ROWS, j->spans[s].n - at),
                  j->spans[s].pos + at, task % j->a->n_kv_heads};
}

/* The position from which on queries have not met a key yet: after its own block */
static int first_to_meet(const job *j, const keys *k, int key)
{
    const rvi_span *s = &j->spans[k->span];
    return s->pos + RVI_MIN(((key - s->pos) / j->rows + 1) * j->rows, s->n);
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

/* Queries row .. row + n - 1 at positions from pos on, of one head. own: the keys packed, then the
 * values */
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
        int key = k->pos + i, from = RVI_MAX(first_to_meet(j, k, key) - pos, 0),
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
    const rvi_cols from[2] = {j->k, j->v};
    if (head >= last) return;
    const uint8_t *own[2];
    for (int i = 0; i < 2; i++) {
        uint8_t *packed =
            w->own + (size_t)i * rvi_gemm_a_at(g, depth, rvi_gemm_rows(g, MAX_ROWS), 0);
        g->pack_a(packed, depth, head_at(from[i], k.row, k.kv, size), (size_t)from[i].t->stride,
                  false, k.n, size);
        own[i] = packed;
    }
    for (int s = k.span; s < j->n_spans; s++) {
        if (!sees(j->spans, s, k.span)) continue;
        const rvi_span *span = &j->spans[s];
        int first = RVI_MAX(k.pos - span->pos, first_far(j, s)), end = span->n;
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
    job j = {
        .cpu = cpu, .g = cpu->train->attention_gemm, .a = a, .spans = spans, .n_spans = n_spans};
    size_t n = (size_t)cpu->train->max_rows * RVI_TRAIN_HEADS;
    j.group = a->n_heads / a->n_kv_heads;
    j.heads = RVI_MIN(j.group, MAX_HEADS);
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
    rvi_pool_run(j.cpu->pool, forward_task, &j, count_blocks(&j) * a->n_kv_heads);
}

/* Runs tasks from j->wave on, as many as have room for their parts. */
static void run_wave(job *j, int n_blocks)
{
    int n_kv = j->a->n_kv_heads;
    block b = block_at(j, j->wave / n_kv);
    size_t floats = 0;
    for (j->wave_end = j->wave; j->wave_end < n_blocks * n_kv; j->wave_end++) {
        if (j->wave_end > j->wave && j->wave_end % n_kv == 0) step(j, &b);
        if (floats + part_floats(j, &b) > RVI_TRAIN_PARTS) break;
        floats += part_floats(j, &b);
    }
    rvi_pool_run(j->cpu->pool, back_task, j, j->wave_end - j->wave);
    if (floats)
        rvi_pool_run(j->cpu->pool, parts_task, j, n_blocks * n_kv * 2 * blocks_of(j->rows, ADDED));
}

void rvi_cpu_span_attention_back(rvi_backend *be, rvi_cols dq, rvi_cols dk, rvi_cols dv,
                                 rvi_cols dout, rvi_cols q, rvi_cols k, rvi_cols v,
                                 const rvi_attention *a, const rvi_span *spans, int n_spans)
{
    job j = job_new(be, a, spans, n_spans);
    int n_blocks = count_blocks(&j), n_keys = 0;
    bool far = false;
    j.out = dout;
    j.q = q;
    j.k = k;
    j.v = v;
    j.dq = dq;
    j.dk = dk;
    j.dv = dv;
    for (int s = 0; s < n_spans; s++) {
        n_keys += blocks_of(spans[s].n, MAX_ROWS);
        far = far || first_far(&j, s) < spans[s].n;
    }
    for (; j.begin < a->n_heads; j.begin += RVI_TRAIN_HEADS) {
        j.end = RVI_MIN(j.begin + RVI_TRAIN_HEADS, a->n_heads);
        for (j.wave = 0; j.wave < n_blocks * a->n_kv_heads; j.wave = j.wave_end)
            run_wave(&j, n_blocks);
        if (far) rvi_pool_run(j.cpu->pool, key_task, &j, n_keys * a->n_kv_heads);
    }
}
