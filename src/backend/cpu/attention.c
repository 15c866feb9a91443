/* Attention over KV pages, split over threads.
 *
 * The rows of a call are cut into tiles, and the heads that share a KV head into groups; a unit is
 * one tile and one group. Within a unit, neighbouring rows of the same sequence go through the keys
 * together. Where there are many units, a task is a whole unit: it takes the chunks of keys in
 * order and merges each at once. Where there are few (decoding), a task is one chunk of one unit;
 * the results wait in the store's parts, as many chunks at a time as there is room for, and are
 * then merged in order. The kernels' law makes both the same bits. */
#include <math.h>
#include <string.h>

#include "backend/cpu/kv_store.h"
#include "base/mem.h"

typedef struct job {
    rvi_cpu *cpu;
    rvi_cols out, q;
    const rvi_kv_store *kv;
    int il;
    const rvi_attention *a;
    const rvi_kv_row *rows;
    int n_rows;
    int tile_rows, n_tiles;
    int group_heads, n_groups; /* of one KV head; the last group may be smaller */
    int n_units, stride;       /* from one task's unit to the next one's */
    /* split: */
    int first_chunk, n_chunks; /* whose results wait, of every unit */
} job;

/* Rows of one sequence, and heads that share a KV head. Query i is row i / n_heads, head i %
 * n_heads of these. */
typedef struct run {
    int row, n_rows, head, n_heads, kv_head;
} run;

static int first_key(const rvi_attention *a, int pos)
{
    return a->window && pos >= a->window ? pos - a->window + 1 : 0;
}

/* ---- one run and one chunk ---- */

static void load_queries(const job *j, const run *r, rvi_kv_scratch *s)
{
    size_t n = (size_t)j->a->head_size, padded = j->kv->padded;
    /* heads lie side by side: where none is padded, those of a row are one piece */
    int together = padded == n ? r->n_heads : 1, n_pieces = r->n_rows * r->n_heads / together;
    for (int i = 0; i < n_pieces; i++) {
        int query = i * together;
        size_t head = (size_t)(r->head + query % r->n_heads), len = (size_t)together * n;
        float *q = s->q + (size_t)query * padded;
        memcpy(q, rvi_cpu_row(j->q, r->row + query / r->n_heads) + head * n, len * sizeof *q);
        j->cpu->k.scale(q, j->a->scale, len);
    }
    for (int i = 0; j->kv->type == RVI_ATTN_Q8 && i < r->n_rows * r->n_heads; i++) {
        size_t at = (size_t)i * padded;
        s->d[i] = j->cpu->k.quantize_head(s->q + at, s->q8 + at, n);
    }
}

/* The planes of the pages that hold the chunk's keys first .. end - 1 (positions). next: the chunk
 * that this worker will probably take next. */
static rvi_attn_keys find_keys(const job *j, const run *r, int chunk, int first, int end, int next)
{
    const rvi_kv_store *kv = j->kv;
    const rvi_kv_row *row = &j->rows[r->row];
    rvi_attn_keys keys = {.n = (size_t)j->a->head_size, .soft_cap = j->a->soft_cap};
    int base = chunk * RVI_ATTN_PAGES;
    for (int p = first / RVI_PAGE_TOKENS; p <= (end - 1) / RVI_PAGE_TOKENS; p++) {
        if (p < base || p >= base + RVI_ATTN_PAGES) continue;
        keys.k[p - base] = rvi_kv_planes(kv, row->pages[p], j->il, r->kv_head);
        keys.v[p - base] = keys.k[p - base] + kv->k_bytes;
    }
    for (int i = 0, p = next * RVI_ATTN_PAGES; i < 2; i++, p++)
        if (p * RVI_PAGE_TOKENS < end && p * RVI_PAGE_TOKENS >= first)
            keys.next[i] = rvi_kv_planes(kv, row->pages[p], j->il, r->kv_head);
    return keys;
}

/* The keys of a chunk that a row sees; false: none */
static bool sees(const job *j, int row, int chunk, int32_t *from, int32_t *end)
{
    int pos = j->rows[row].pos, base = chunk * RVI_ATTN_CHUNK;
    *from = RVI_MAX(first_key(j->a, pos) - base, 0);
    *end = RVI_MIN(pos + 1 - base, RVI_ATTN_CHUNK);
    return *from < *end;
}

/* Results of the queries that see keys of this chunk, at part + query * stride. */
static void compute_chunk(const job *j, const run *r, int chunk, int next, rvi_kv_scratch *s,
                          float *part, size_t stride)
{
    int n_queries = r->n_rows * r->n_heads, first = INT32_MAX, end = 0;
    for (int i = 0; i < r->n_rows; i++) {
        int32_t from_key, end_key;
        bool some = sees(j, r->row + i, chunk, &from_key, &end_key);
        for (int h = 0; h < r->n_heads; h++) {
            s->from[i * r->n_heads + h] = some ? from_key : 0;
            s->end[i * r->n_heads + h] = some ? end_key : 0;
        }
        first = RVI_MIN(first, first_key(j->a, j->rows[r->row + i].pos));
        end = RVI_MAX(end, j->rows[r->row + i].pos + 1);
    }
    rvi_attn_keys keys = find_keys(j, r, chunk, first, end, next);
    for (int i = 0, n; i < n_queries; i += n) {
        for (n = 1; i + n < n_queries && (s->end[i + n] > 0) == (s->end[i] > 0);) n++;
        if (!s->end[i]) continue;
        size_t at = (size_t)i * j->kv->padded;
        rvi_attn_queries q = {s->q + at, s->q8 + at, s->d + i, s->from + i, s->end + i, n};
        j->cpu->k.attn_chunk[j->kv->type](&keys, &q, part + (size_t)i * stride, stride);
    }
}

static float *output(const job *j, const run *r, int query)
{
    int head = r->head + query % r->n_heads;
    return rvi_cpu_row(j->out, r->row + query / r->n_heads) +
           (size_t)head * (size_t)j->a->head_size;
}

static void start(const run *r, float *m, float *l)
{
    for (int i = 0; i < r->n_rows * r->n_heads; i++) {
        m[i] = -INFINITY;
        l[i] = 0;
    }
}

static void merge_chunk(const job *j, const run *r, int chunk, const float *part, size_t stride,
                        float *m, float *l)
{
    int32_t from, end;
    for (int i = 0; i < r->n_rows * r->n_heads; i++)
        if (sees(j, r->row + i / r->n_heads, chunk, &from, &end))
            j->cpu->k.attn_merge(output(j, r, i), m + i, l + i, part + (size_t)i * stride,
                                 (size_t)j->a->head_size);
}

static void finish(const job *j, const run *r, const float *l)
{
    for (int i = 0; i < r->n_rows * r->n_heads; i++)
        j->cpu->k.scale(output(j, r, i), 1.0f / l[i], (size_t)j->a->head_size);
}

/* The chunks that rows see: *first .. return value - 1 */
static int chunks_of(const job *j, int row, int n_rows, int *first)
{
    int end = 0;
    *first = INT32_MAX;
    for (int i = row; i < row + n_rows; i++) {
        *first = RVI_MIN(*first, first_key(j->a, j->rows[i].pos) / RVI_ATTN_CHUNK);
        end = RVI_MAX(end, j->rows[i].pos / RVI_ATTN_CHUNK + 1);
    }
    return end;
}

/* ---- units ---- */

/* The run of unit `unit` that starts at its row `from` (from 0; call again with the end of the last
 * one), and the place of its first query within the unit; false: no more. */
static bool next_run(const job *j, int unit, run *r, int from, int *query)
{
    int group = unit % j->n_groups, rest = unit / j->n_groups;
    int kv_head = rest % j->a->n_kv_heads, tile = rest / j->a->n_kv_heads;
    int heads = j->a->n_heads / j->a->n_kv_heads;
    int row = tile * j->tile_rows + from;
    int end = RVI_MIN((tile + 1) * j->tile_rows, j->n_rows);
    if (row >= end) return false;
    *r = (run){.row = row,
               .head = kv_head * heads + group * j->group_heads,
               .n_heads = RVI_MIN(j->group_heads, heads - group * j->group_heads),
               .kv_head = kv_head};
    while (row < end && j->rows[row].pages == j->rows[r->row].pages) row++;
    r->n_rows = row - r->row;
    *query = from * j->group_heads;
    return true;
}

static void unit_task(void *ctx, int task, int worker)
{
    const job *j = ctx;
    rvi_kv_scratch *s = &j->kv->scratch[worker];
    run r = {0};
    /* a thread's tasks are neighbours: from rows that see most to those that see least in each */
    int unit = j->n_units - 1 - (int)((int64_t)task * j->stride % j->n_units);
    for (int from = 0, query; next_run(j, unit, &r, from, &query); from += r.n_rows) {
        int chunk, end = chunks_of(j, r.row, r.n_rows, &chunk);
        load_queries(j, &r, s);
        start(&r, s->m, s->l);
        for (; chunk < end && !rvi_backend_is_stopped(&j->cpu->be); chunk++) {
            compute_chunk(j, &r, chunk, chunk + 1, s, s->part, j->kv->part_floats);
            merge_chunk(j, &r, chunk, s->part, j->kv->part_floats, s->m, s->l);
        }
        finish(j, &r, s->l);
    }
}

/* ---- units split by chunks ---- */

static int unit_queries(const job *j)
{
    return j->tile_rows * j->group_heads;
}

static float *part_of(const job *j, int unit, int query, int chunk)
{
    size_t index = (size_t)(unit * unit_queries(j) + query) * (size_t)j->n_chunks;
    return j->kv->parts + (index + (size_t)(chunk - j->first_chunk)) * j->kv->part_floats;
}

static void chunk_task(void *ctx, int task, int worker)
{
    const job *j = ctx;
    rvi_kv_scratch *s = &j->kv->scratch[worker];
    int unit = task / j->n_chunks, chunk = j->first_chunk + task % j->n_chunks;
    size_t stride = (size_t)j->n_chunks * j->kv->part_floats;
    run r = {0};
    for (int from = 0, query; next_run(j, unit, &r, from, &query); from += r.n_rows) {
        int first, end = chunks_of(j, r.row, r.n_rows, &first);
        if (chunk < first || chunk >= end) continue;
        load_queries(j, &r, s);
        compute_chunk(j, &r, chunk, chunk + rvi_pool_size(j->cpu->pool), s,
                      part_of(j, unit, query, chunk), stride);
    }
}

static void merge_unit(const job *j, int unit, bool is_first, bool is_last)
{
    size_t stride = (size_t)j->n_chunks * j->kv->part_floats;
    run r = {0};
    for (int from = 0, query; next_run(j, unit, &r, from, &query); from += r.n_rows) {
        float *m = j->kv->m + unit * unit_queries(j) + query;
        float *l = j->kv->l + unit * unit_queries(j) + query;
        if (is_first) start(&r, m, l);
        for (int c = j->first_chunk; c < j->first_chunk + j->n_chunks; c++)
            merge_chunk(j, &r, c, part_of(j, unit, query, c), stride, m, l);
        if (is_last) finish(j, &r, l);
    }
}

/* Rounds of at most `room` chunks. */
static void run_split(job *j, int first, int end, int room)
{
    for (int at = first; at < end; at += room) {
        j->first_chunk = at;
        j->n_chunks = RVI_MIN(room, end - at);
        rvi_pool_run(j->cpu->pool, chunk_task, j, j->n_units * j->n_chunks);
        for (int u = 0; u < j->n_units; u++) merge_unit(j, u, at == first, at + room >= end);
    }
}

/* The first number from `from` on that has no divisor in common with n: multiples of it modulo n
 * meet every unit once. */
static int coprime(int from, int n)
{
    for (;; from++) {
        int a = from, b = n;
        while (b) {
            int rest = a % b;
            a = b;
            b = rest;
        }
        if (a == 1) return from;
    }
}

void rvi_cpu_attention(rvi_backend *be, rvi_cols out, rvi_cols q, const rvi_kv_store *kv, int il,
                       const rvi_attention *a, const rvi_kv_row *rows, int n_rows)
{
    enum { UNITS_PER_THREAD = 4 }; /* from here on whole units keep the threads busy */
    job j = {.cpu = rvi_cpu_of(be),
             .out = out,
             .q = q,
             .kv = kv,
             .il = il,
             .a = a,
             .rows = rows,
             .n_rows = n_rows};
    if (n_rows < 1) return;
    int heads = a->n_heads / a->n_kv_heads, longest = 1;
    for (int r = 1, n = 1; r < n_rows; r++) {
        n = rows[r].pages == rows[r - 1].pages ? n + 1 : 1;
        longest = RVI_MAX(longest, n);
    }
    j.group_heads = RVI_MIN(heads, RVI_KV_QUERIES);
    j.n_groups = (heads + j.group_heads - 1) / j.group_heads;
    j.tile_rows = RVI_MIN(longest, RVI_KV_QUERIES / j.group_heads);
    j.n_tiles = (n_rows + j.tile_rows - 1) / j.tile_rows;
    j.n_units = j.n_tiles * a->n_kv_heads * j.n_groups;

    int n_threads = rvi_pool_size(j.cpu->pool);
    j.stride = coprime(n_threads, j.n_units);
    int first, end = chunks_of(&j, 0, n_rows, &first);
    int room = RVI_KV_PARTS / unit_queries(&j) / j.n_units; /* chunks that can wait */
    if (n_threads > 1 && j.n_units < UNITS_PER_THREAD * n_threads && end - first > 1 && room > 1)
        run_split(&j, first, end, room);
    else
        rvi_pool_run(j.cpu->pool, unit_task, &j, j.n_units);
}
