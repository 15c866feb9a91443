/* Attention over KV pages, split over threads.
 *
 * The rows of a call are cut into tiles, and the heads that share a KV head into groups; a unit is
 * one tile and one group. Within a unit, neighbouring rows of the same sequence go through the keys
 * together. Where there are many units, a task is a whole unit: it takes the chunks of keys in
 * order and merges each at once. Where there are few (decoding), a task is one chunk of one unit;
 * the results wait in the store's parts, as many chunks at a time as there is room for, and are
 * then merged in order. The kernels' law makes both the same bits.
 *
 * A row reads its own page in the store's first form, the warm_pages pages before it in the second
 * and all others in the third (backend.h): each chunk has a piece for each form, coldest first,
 * most of them empty. A piece is to the kernels what a chunk is elsewhere. */
#include <assert.h>
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
    unsigned types;            /* of the store's forms, a bit for each */
    /* split: */
    int first_piece, n_pieces; /* whose results wait, of every unit */
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

enum { MANY_QUERIES = 64 }; /* from here on it pays to widen keys and values first */

/* types: a bit for each type in which keys will be read */
static void load_queries(const job *j, const run *r, unsigned types, rvi_kv_scratch *s)
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
    for (int i = 0; types >> RVI_ATTN_Q8 && i < r->n_rows * r->n_heads; i++) {
        size_t at = (size_t)i * padded;
        if (types >> RVI_ATTN_Q8 & 1) s->d[i] = j->cpu->k.quantize_head(s->q + at, s->q8 + at, n);
        if (!(types >> RVI_ATTN_Q4 & 1)) continue;
        memcpy(s->turned, s->q + at, n * sizeof *s->turned);
        rvi_attn_rotate(s->turned, n);
        s->cold_d[i] = j->cpu->k.quantize_head(s->turned, s->cold + at, n);
    }
}

/* ---- pieces ---- */

static int chunk_of(const job *j, int piece)
{
    return piece / j->kv->n_forms;
}

static int form_of(const job *j, int piece)
{
    return j->kv->n_forms - 1 - piece % j->kv->n_forms;
}

/* The first position that a row reads in this form. */
static int form_start(const job *j, int form, const rvi_kv_row *row)
{
    if (form == j->kv->n_forms - 1) return 0;
    int page = row->pos / RVI_PAGE_TOKENS;
    if (form && !row->coarse) page -= j->kv->spec.warm_pages;
    return RVI_MAX(page, 0) * RVI_PAGE_TOKENS;
}

/* The keys of a piece that a row sees, as places in the chunk; false: none */
static bool sees(const job *j, int row, int piece, int32_t *from, int32_t *end)
{
    const rvi_kv_row *r = &j->rows[row];
    int base = chunk_of(j, piece) * RVI_ATTN_CHUNK;
    int form = form_of(j, piece), stop = form ? form_start(j, form - 1, r) : r->pos + 1;
    *from = RVI_MAX(RVI_MAX(first_key(j->a, r->pos), form_start(j, form, r)) - base, 0);
    *end = RVI_MIN(stop - base, RVI_ATTN_CHUNK);
    return *from < *end;
}

/* The planes of the pages that hold the piece's keys first .. end - 1 (places in the chunk). next:
 * the piece that this worker will probably take next. */
static rvi_attn_keys find_keys(const job *j, const run *r, int piece, int first, int end, int next)
{
    const rvi_kv_store *kv = j->kv;
    const rvi_kv_form *f = &kv->forms[form_of(j, piece)];
    const rvi_kv_row *row = &j->rows[r->row];
    const int32_t *pages = row->pages + chunk_of(j, piece) * RVI_ATTN_PAGES;
    rvi_attn_keys keys = {.n = (size_t)j->a->head_size, .soft_cap = j->a->soft_cap};
    for (int p = first / RVI_PAGE_TOKENS; p <= (end - 1) / RVI_PAGE_TOKENS; p++) {
        assert(rvi_kv_has(f, pages[p]));
        keys.k[p] = rvi_kv_planes(kv, f, pages[p], j->il, r->kv_head);
        keys.v[p] = keys.k[p] + f->k_bytes;
    }
    for (int i = 0, p = chunk_of(j, next) * RVI_ATTN_PAGES; i < 2; i++, p++)
        if (p <= row->pos / RVI_PAGE_TOKENS && rvi_kv_has(f, row->pages[p]))
            keys.next[i] = rvi_kv_planes(kv, f, row->pages[p], j->il, r->kv_head);
    return keys;
}

/* The keys of pages first .. last become f32. This does not show in the bits: f16 is widened
 * exactly wherever it is read. */
static void widen_keys(const job *j, const rvi_kv_form *f, rvi_attn_keys *keys, int first, int last,
                       float *to)
{
    size_t n_k = f->k_bytes / sizeof(rvi_f16), n_v = f->v_bytes / sizeof(rvi_f16);
    for (int p = first; p <= last; p++, to += n_k + n_v) {
        j->cpu->k.f16_to_f32((const rvi_f16 *)(const void *)keys->k[p], to, n_k + n_v);
        keys->k[p] = (const uint8_t *)to;
        keys->v[p] = (const uint8_t *)(to + n_k);
    }
    keys->next[0] = keys->next[1] = NULL;
}

/* Results of the queries that see keys of this piece, at part + query * stride. Where they are
 * many, f16 is widened once for all of them: the kernel does it anew for every few, by the units
 * that multiply. */
static void compute_piece(const job *j, const run *r, int piece, int next, rvi_kv_scratch *s,
                          float *part, size_t stride)
{
    int n_queries = r->n_rows * r->n_heads, first = INT32_MAX, end = 0;
    for (int i = 0; i < r->n_rows; i++) {
        int32_t from_key, end_key;
        bool some = sees(j, r->row + i, piece, &from_key, &end_key);
        for (int h = 0; h < r->n_heads; h++) {
            s->from[i * r->n_heads + h] = some ? from_key : 0;
            s->end[i * r->n_heads + h] = some ? end_key : 0;
        }
        if (some) first = RVI_MIN(first, from_key);
        if (some) end = RVI_MAX(end, end_key);
    }
    if (!end) return;
    rvi_attn_keys keys = find_keys(j, r, piece, first, end, next);
    const rvi_kv_form *form = &j->kv->forms[form_of(j, piece)];
    rvi_attn_type type = form->type;
    if (type == RVI_ATTN_F16 && n_queries >= MANY_QUERIES && s->wide) {
        widen_keys(j, form, &keys, first / RVI_PAGE_TOKENS, (end - 1) / RVI_PAGE_TOKENS, s->wide);
        type = RVI_ATTN_F32;
    }
    for (int i = 0, n; i < n_queries; i += n) {
        for (n = 1; i + n < n_queries && (s->end[i + n] > 0) == (s->end[i] > 0);) n++;
        if (!s->end[i]) continue;
        size_t at = (size_t)i * j->kv->padded;
        rvi_attn_queries q = {s->q + at, s->q8 + at, s->d + i, s->from + i, s->end + i, n};
        if (type == RVI_ATTN_Q4) {
            q.q8 = s->cold + at;
            q.d = s->cold_d + i;
        }
        j->cpu->k.attn_chunk[type](&keys, &q, part + (size_t)i * stride, stride);
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

static void merge_piece(const job *j, const run *r, int piece, const float *part, size_t stride,
                        float *m, float *l)
{
    int32_t from, end;
    for (int row = 0; row < r->n_rows; row++) {
        if (!sees(j, r->row + row, piece, &from, &end)) continue;
        for (int i = row * r->n_heads; i < (row + 1) * r->n_heads; i++)
            j->cpu->k.attn_merge(output(j, r, i), m + i, l + i, part + (size_t)i * stride,
                                 (size_t)j->a->head_size);
    }
}

static void finish(const job *j, const run *r, const float *l)
{
    for (int i = 0; i < r->n_rows * r->n_heads; i++)
        j->cpu->k.scale(output(j, r, i), 1.0f / l[i], (size_t)j->a->head_size);
}

/* The pieces that rows see: *first .. return value - 1 */
static int pieces_of(const job *j, int row, int n_rows, int *first)
{
    int end = 0;
    *first = INT32_MAX;
    for (int i = row; i < row + n_rows; i++) {
        *first = RVI_MIN(*first, first_key(j->a, j->rows[i].pos) / RVI_ATTN_CHUNK);
        end = RVI_MAX(end, j->rows[i].pos / RVI_ATTN_CHUNK + 1);
    }
    *first *= j->kv->n_forms;
    return end * j->kv->n_forms;
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
        int piece, end = pieces_of(j, r.row, r.n_rows, &piece);
        load_queries(j, &r, j->types, s);
        start(&r, s->m, s->l);
        for (; piece < end && !rvi_backend_is_stopped(&j->cpu->be); piece++) {
            compute_piece(j, &r, piece, piece + j->kv->n_forms, s, s->part, j->kv->part_floats);
            merge_piece(j, &r, piece, s->part, j->kv->part_floats, s->m, s->l);
        }
        finish(j, &r, s->l);
    }
}

/* ---- units split by pieces ---- */

static int unit_queries(const job *j)
{
    return j->tile_rows * j->group_heads;
}

static float *part_of(const job *j, int unit, int query, int piece)
{
    size_t index = (size_t)(unit * unit_queries(j) + query) * (size_t)j->n_pieces;
    return j->kv->parts + (index + (size_t)(piece - j->first_piece)) * j->kv->part_floats;
}

static bool is_seen(const job *j, const run *r, int piece)
{
    int32_t from, end;
    for (int i = 0; i < r->n_rows; i++)
        if (sees(j, r->row + i, piece, &from, &end)) return true;
    return false;
}

static void piece_task(void *ctx, int task, int worker)
{
    const job *j = ctx;
    rvi_kv_scratch *s = &j->kv->scratch[worker];
    int unit = task / j->n_pieces, piece = j->first_piece + task % j->n_pieces;
    int next = piece + rvi_pool_size(j->cpu->pool) * j->kv->n_forms;
    size_t stride = (size_t)j->n_pieces * j->kv->part_floats;
    run r = {0};
    for (int from = 0, query; next_run(j, unit, &r, from, &query); from += r.n_rows) {
        if (!is_seen(j, &r, piece)) continue;
        load_queries(j, &r, 1u << j->kv->forms[form_of(j, piece)].type, s);
        compute_piece(j, &r, piece, next, s, part_of(j, unit, query, piece), stride);
    }
}

static void merge_unit(const job *j, int unit, bool is_first, bool is_last)
{
    size_t stride = (size_t)j->n_pieces * j->kv->part_floats;
    run r = {0};
    for (int from = 0, query; next_run(j, unit, &r, from, &query); from += r.n_rows) {
        float *m = j->kv->m + unit * unit_queries(j) + query;
        float *l = j->kv->l + unit * unit_queries(j) + query;
        if (is_first) start(&r, m, l);
        for (int p = j->first_piece; p < j->first_piece + j->n_pieces; p++)
            merge_piece(j, &r, p, part_of(j, unit, query, p), stride, m, l);
        if (is_last) finish(j, &r, l);
    }
}

/* Rounds of at most `room` pieces. */
static void run_split(job *j, int first, int end, int room)
{
    for (int at = first; at < end; at += room) {
        j->first_piece = at;
        j->n_pieces = RVI_MIN(room, end - at);
        rvi_pool_run(j->cpu->pool, piece_task, j, j->n_units * j->n_pieces);
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
    enum {
        UNITS_PER_THREAD = 4, /* from here on whole units keep the threads busy */
        FEW_QUERIES = 48,     /* the least that a full unit has */
    };
    job j = {.cpu = rvi_cpu_of(be),
             .out = out,
             .q = q,
             .kv = kv,
             .il = il,
             .a = a,
             .rows = rows,
             .n_rows = n_rows};
    if (n_rows < 1) return;
    for (int i = 0; i < kv->n_forms; i++) j.types |= 1u << kv->forms[i].type;
    int heads = a->n_heads / a->n_kv_heads, longest = 1;
    for (int r = 1, n = 1; r < n_rows; r++) {
        n = rows[r].pages == rows[r - 1].pages ? n + 1 : 1;
        longest = RVI_MAX(longest, n);
    }
    int n_threads = rvi_pool_size(j.cpu->pool);
    j.group_heads = RVI_MIN(heads, FEW_QUERIES);
    j.n_groups = (heads + j.group_heads - 1) / j.group_heads;
    /* the more queries share what is widened the better, if there is enough to do for all */
    for (int queries = RVI_KV_QUERIES; queries >= FEW_QUERIES; queries /= 2) {
        j.tile_rows = RVI_MIN(longest, queries / j.group_heads);
        j.n_tiles = (n_rows + j.tile_rows - 1) / j.tile_rows;
        j.n_units = j.n_tiles * a->n_kv_heads * j.n_groups;
        if (n_threads == 1 || j.n_units >= 2 * UNITS_PER_THREAD * n_threads) break;
    }

    j.stride = coprime(n_threads, j.n_units);
    int first, end = pieces_of(&j, 0, n_rows, &first);
    int room = RVI_KV_PARTS / unit_queries(&j) / j.n_units; /* pieces that can wait */
    if (n_threads > 1 && j.n_units < UNITS_PER_THREAD * n_threads && end - first > kv->n_forms &&
        room > 1)
        run_split(&j, first, end, room);
    else
        rvi_pool_run(j.cpu->pool, unit_task, &j, j.n_units);
}
