/* KV pages in device memory, and attention over them. */
#include <string.h>

#include "backend/cuda/cuda.h"
#include "base/mem.h"
#include "kernels/kernels.h"

_Static_assert((int)RVI_PAGE_TOKENS == (int)RVI_CUDA_PAGE, "a page is a page");

/* Pages lie as they do in host memory (kernels.h): a page's bytes are the same everywhere. */
struct rvi_kv_store {
    rvi_kv_spec spec;
    rvi_attn_type type;
    rvi_cuda_at data, parts, arrivals;
    size_t page_bytes, k_bytes, v_bytes, padded;
    int run; /* rows of a run at most: they fill tiles */
};

size_t rvi_cuda_parts_bytes(int head_size)
{
    return RVI_CUDA_PARTS * (rvi_attn_padded((size_t)head_size) + RVI_CUDA_PART_MORE) *
               sizeof(float) +
           RVI_CUDA_ARRIVALS * sizeof(int32_t);
}

rv_status rvi_cuda_kv_new(rvi_backend *be, rvi_kv_store **out, const rvi_kv_spec *spec,
                          rv_error *err)
{
    rvi_cuda *c = rvi_cuda_of(be);
    *out = NULL;
    if (spec->head_size > RVI_CUDA_MAX_HEAD)
        return rvi_error(
            err, RV_E_UNSUPPORTED,
            "heads of %d elements are too large for a CUDA device (at most %d); device "
            "cpu computes them",
            spec->head_size, RVI_CUDA_MAX_HEAD);
    if (spec->type == RV_KV_WARM || spec->type == RV_KV_TIERED)
        return rvi_error(
            err, RV_E_UNSUPPORTED,
            "a CUDA device has no KV cache of type %s: f32, f16 and q8 can be had there",
            spec->type == RV_KV_WARM ? "warm" : "tiered");
    rvi_kv_store *kv = rvi_zalloc(sizeof *kv);
    if (!kv) return rvi_nomem(err, "KV store");
    size_t size = (size_t)spec->head_size, n_pages = (size_t)RVI_MAX(spec->n_pages, 1);
    kv->spec = *spec;
    kv->type = spec->type == RV_KV_F32  ? RVI_ATTN_F32
               : spec->type == RV_KV_Q8 ? RVI_ATTN_Q8
                                        : RVI_ATTN_F16;
    kv->k_bytes = rvi_attn_k_bytes(kv->type, size);
    kv->v_bytes = rvi_attn_v_bytes(kv->type, size);
    kv->padded = rvi_attn_padded(size);
    int share = RVI_MAX(spec->n_heads / spec->n_kv_heads, 1),
        most = RVI_MAX(RVI_CUDA_MOST_QUERIES / share, 1); /* rows of a tile */
    kv->run = RVI_CUDA_MOST_QUERIES / most * most;
    kv->page_bytes =
        (kv->k_bytes + kv->v_bytes) * (size_t)spec->n_kv_heads * (size_t)spec->n_layers;
    rv_status st =
        kv->page_bytes > PTRDIFF_MAX / n_pages
            ? rvi_error(err, RV_E_NOMEM, "a KV cache of %d pages is too large", spec->n_pages)
            : rvi_cuda_alloc(c, &kv->data, kv->page_bytes * n_pages, "the KV cache", err);
    if (!st)
        st = rvi_cuda_alloc(c, &kv->parts, rvi_cuda_parts_bytes(spec->head_size),
                            "attention scratch", err);
    kv->arrivals =
        kv->parts + rvi_cuda_parts_bytes(spec->head_size) - RVI_CUDA_ARRIVALS * sizeof(int32_t);
    rvi_cu_result r =
        st ? 0 : c->cu.fill(kv->arrivals, 0, RVI_CUDA_ARRIVALS * sizeof(int32_t), c->stream);
    if (r) {
        rvi_cuda_release(c, kv->parts);
        st = rvi_cu_error(&c->cu, r, "clearing attention scratch", err);
    }
    if (st) {
        rvi_cuda_release(c, kv->data);
        rvi_free(kv);
        return st;
    }
    atomic_fetch_add(&be->memory->kv, kv->page_bytes * (size_t)spec->n_pages);
    *out = kv;
    return RV_OK;
}

void rvi_cuda_kv_free(rvi_backend *be, rvi_kv_store *kv)
{
    if (!kv) return;
    rvi_cuda_submit(be); /* what was collected may write to it */
    rvi_cuda_forget(rvi_cuda_of(be));
    rvi_cuda_release(rvi_cuda_of(be), kv->data);
    rvi_cuda_release(rvi_cuda_of(be), kv->parts);
    atomic_fetch_sub(&be->memory->kv, kv->page_bytes * (size_t)kv->spec.n_pages);
    rvi_free(kv);
}

size_t rvi_cuda_kv_page_bytes(const rvi_kv_store *kv)
{
    return kv->page_bytes;
}

static rvi_cuda_at page_at(const rvi_kv_store *kv, int32_t page)
{
    return kv->data + (rvi_cuda_at)page * kv->page_bytes;
}

/* Behind everything that was asked for before; false: the device failed. */
static bool begin_copy(rvi_cuda *c)
{
    rvi_cuda_submit(&c->be);
    return !atomic_load(&c->failed) &&
           !rvi_cuda_fails(c, c->cu.context_use(c->context), "using the device");
}

void rvi_cuda_kv_copy_page(rvi_backend *be, rvi_kv_store *kv, int32_t to, int32_t from)
{
    rvi_cuda *c = rvi_cuda_of(be);
    if (begin_copy(c))
        rvi_cuda_fails(
            c, c->cu.copy_within(page_at(kv, to), page_at(kv, from), kv->page_bytes, c->stream),
            "copying a KV page");
}

void rvi_cuda_kv_read_page(rvi_backend *be, const rvi_kv_store *kv, int32_t page, void *to)
{
    rvi_cuda *c = rvi_cuda_of(be);
    memset(to, 0, kv->page_bytes);
    if (!begin_copy(c)) return;
    rvi_cu_result r = c->cu.copy_out(to, page_at(kv, page), kv->page_bytes, c->stream);
    rvi_cuda_fails(c, r ? r : c->cu.stream_wait(c->stream), "reading a KV page");
}

/* Of f16: positions whose value is not finite become what `write_head` of pages.cuh makes of them.
 * Were there any? */
static bool mend_head(const rvi_kv_store *kv, uint16_t *k, uint16_t *v)
{
    enum { EXPONENT = 0x7c00, NOT_A_NUMBER = 0x7fff };
    size_t n = (size_t)kv->spec.head_size;
    bool any = false;
    for (size_t slot = 0; slot < RVI_PAGE_TOKENS; slot++, v += kv->padded) {
        bool lost = false;
        for (size_t e = 0; e < n; e++) lost |= (v[e] & EXPONENT) == EXPONENT;
        if (!lost) continue;
        for (size_t e = 0; e < n; e++) k[e * RVI_PAGE_TOKENS + slot] = NOT_A_NUMBER;
        memset(v, 0, n * sizeof *v);
        any = true;
    }
    return any;
}

/* Pages that a CPU wrote may have values that are not finite. */
static rvi_cu_result mend_page(rvi_cuda *c, const rvi_kv_store *kv, rvi_cuda_at to,
                               const uint8_t *from)
{
    enum { MOST = 2 * RVI_PAGE_TOKENS * RVI_CUDA_MAX_HEAD };
    uint16_t head[MOST];
    size_t bytes = kv->k_bytes + kv->v_bytes;
    rvi_cu_result r = 0;
    for (size_t at = 0; !r && at < kv->page_bytes; at += bytes) {
        memcpy(head, from + at, bytes);
        if (mend_head(kv, head, head + kv->k_bytes / sizeof *head)) {
            r = c->cu.copy_in(to + at, head, bytes, c->stream);
            if (!r) r = c->cu.stream_wait(c->stream);
        }
    }
    return r;
}

void rvi_cuda_kv_write_page(rvi_backend *be, rvi_kv_store *kv, int32_t page, const void *from)
{
    rvi_cuda *c = rvi_cuda_of(be);
    if (!begin_copy(c)) return;
    rvi_cu_result r = c->cu.copy_in(page_at(kv, page), from, kv->page_bytes, c->stream);
    if (!r) r = c->cu.stream_wait(c->stream);
    if (!r && kv->type == RVI_ATTN_F16) r = mend_page(c, kv, page_at(kv, page), from);
    rvi_cuda_fails(c, r, "writing a KV page");
}

/* ---- where rows find their pages ---- */

static int pages_of(const rvi_kv_row *row)
{
    return row->pos / RVI_PAGE_TOKENS + 1;
}

/* The longest run of rows from `rows` on that fits a staging area of `room` bytes, one at least;
 * the number of its page numbers. Neighbours of one sequence share a table. */
static int fitting(const rvi_kv_row *rows, int n_rows, size_t room, size_t *n_pages)
{
    size_t before = 0, longest = 0; /* pages of finished tables; of the open one */
    int n = 0;
    for (; n < n_rows; n++) {
        if (n && rows[n].pages != rows[n - 1].pages) {
            before += longest;
            longest = 0;
        }
        size_t now = RVI_MAX(longest, (size_t)pages_of(&rows[n]));
        if (n && ((size_t)n + 1) * 16 + (before + now) * 4 > room) break;
        longest = now;
    }
    *n_pages = before + longest;
    return n;
}

static void fill_places(int32_t *to, const rvi_kv_row *rows, int n)
{
    int32_t *tables = to + 2 * n, end = 0;
    for (int r = 0, first = 0, longest = 0; r < n; r++) {
        if (r == 0 || rows[r].pages != rows[r - 1].pages) {
            first = end;
            longest = 0;
        }
        to[2 * r] = first;
        to[2 * r + 1] = rows[r].pos;
        int pages = pages_of(&rows[r]);
        if (pages <= longest) continue;
        memcpy(tables + first + longest, rows[r].pages + longest,
               (size_t)(pages - longest) * sizeof *tables);
        longest = pages;
        end = first + pages;
    }
}

/* Runs of at most `most` neighbours in a sequence: {first row, rows}. */
static void fill_runs(int32_t *to, const rvi_kv_row *rows, int most, rvi_cuda_placed *p)
{
    p->staged_runs = to;
    p->n_runs = p->longest = 0;
    for (int r = 0; r < p->n_rows; r++) {
        int32_t *run = to + 2 * RVI_MAX(p->n_runs - 1, 0);
        bool follows =
            r && rows[r].pages == rows[r - 1].pages && rows[r].pos == rows[r - 1].pos + 1;
        if (!follows || run[1] == most) {
            run = to + 2 * p->n_runs++;
            run[0] = r;
            run[1] = 0;
        }
        run[1]++;
        p->longest = RVI_MAX(p->longest, run[1]);
    }
}

/* Positions and tables of the first rows, as many as fit; how many: the return value. They are
 * staged once for all layers of a list. run: neighbours of a run at most. */
static const rvi_cuda_placed *place(rvi_cuda *c, const rvi_kv_row *rows, int n_rows, int run,
                                    rvi_cuda_kv *kv)
{
    if (rvi_cuda_is_nearly_full(c)) rvi_cuda_submit(&c->be);
    rvi_cuda_placed *p = NULL;
    for (int i = 0; i < RVI_MIN(c->n_placed, RVI_CUDA_PLACED) && !p; i++)
        if (c->placed[i].rows == rows && c->placed[i].n_rows <= n_rows) p = &c->placed[i];
    if (!p) {
        size_t n_pages;
        int n = fitting(rows, n_rows, c->max_staged / 2, &n_pages);
        void *host;
        size_t tables = (size_t)n * 2 * sizeof(int32_t),
               runs = (tables + n_pages * sizeof(int32_t) + 7) / 8 * 8;
        rvi_cuda_at at = rvi_cuda_stage(c, runs + tables, &host);
        if (!at) return NULL;
        fill_places(host, rows, n);
        p = &c->placed[c->n_placed++ % RVI_CUDA_PLACED];
        *p = (rvi_cuda_placed){
            .rows = rows, .n_rows = n, .at = at, .tables = at + tables, .runs = at + runs};
        fill_runs((int32_t *)((uint8_t *)host + runs), rows, run, p);
    }
    kv->rows = p->at;
    kv->tables = p->tables;
    return p;
}

bool rvi_cuda_place_all(rvi_cuda *c, const rvi_kv_row *rows, int n_rows)
{
    rvi_cuda_kv kv;
    const rvi_cuda_placed *p = place(c, rows, n_rows, RVI_CUDA_MOST_QUERIES, &kv);
    return p && p->n_rows == n_rows;
}

static rvi_cuda_kv kv_args(const rvi_kv_store *kv, int il)
{
    return (rvi_cuda_kv){.data = kv->data,
                         .page_bytes = kv->page_bytes,
                         .k_bytes = kv->k_bytes,
                         .v_bytes = kv->v_bytes,
                         .il = il,
                         .n_kv_heads = kv->spec.n_kv_heads,
                         .head_size = kv->spec.head_size,
                         .padded = (int32_t)kv->padded,
                         .type = (int32_t)kv->type};
}

static rvi_cuda_cols cols_from(rvi_cols c, int row)
{
    rvi_cuda_cols x = rvi_cuda_cols_of(c);
    x.at += (rvi_cuda_at)row * (rvi_cuda_at)x.stride * sizeof(float);
    return x;
}

/* Where the last command turns these keys, it becomes one that writes them too. */
static bool join_rope(rvi_cuda *c, const rvi_cuda_kv_write_args *w, int n_rows)
{
    rvi_cuda_command *last = rvi_cuda_last(c);
    rvi_cuda_rope_args rope;
    if (!last || last->kernel != RVI_CUDA_rope) return false;
    memcpy(&rope, last->args, sizeof rope);
    if (rope.x.at + (rvi_cuda_at)rope.x.n * sizeof(float) !=
            w->k.at + (rvi_cuda_at)w->k.n * sizeof(float) ||
        rope.x.stride != w->k.stride || rope.head_size != w->kv.head_size ||
        last->grid[0] != (uint32_t)n_rows)
        return false;
    rvi_cuda_rope_kv_args a = {.kv = w->kv,
                               .x = rope.x,
                               .angles = rope.angles,
                               .v = w->v,
                               .interleaved = rope.interleaved};
    c->n_commands--;
    int queries = a.x.n / a.kv.head_size - a.kv.n_kv_heads,
        blocks = (queries + RVI_CUDA_QUERY_HEADS - 1) / RVI_CUDA_QUERY_HEADS;
    rvi_cuda_add(c, RVI_CUDA_rope_kv,
                 (uint32_t[]){(uint32_t)n_rows, (uint32_t)(a.kv.n_kv_heads + blocks), 1},
                 RVI_CUDA_ATTENTION, &a, sizeof a);
    return true;
}

void rvi_cuda_kv_write(rvi_backend *be, rvi_kv_store *kv, int il, rvi_cols k, rvi_cols v,
                       const rvi_kv_row *rows, int n_rows)
{
    rvi_cuda *c = rvi_cuda_of(be);
    if (rvi_cuda_is_idle(c)) return;
    for (int at = 0, n; at < n_rows; at += n) {
        rvi_cuda_kv_write_args a = {kv_args(kv, il), cols_from(k, at), cols_from(v, at)};
        const rvi_cuda_placed *p = place(c, rows + at, n_rows - at, kv->run, &a.kv);
        if (!p) return;
        n = p->n_rows;
        if (n == n_rows && join_rope(c, &a, n)) return;
        uint32_t grid[] = {(uint32_t)n, (uint32_t)kv->spec.n_kv_heads, 1};
        rvi_cuda_add(c, RVI_CUDA_kv_write, grid, RVI_CUDA_ATTENTION, &a, sizeof a);
    }
}

/* Parts of so many keys each, by absolute position, that the row with most of them may have, at
 * any position of its page: passes with one key (rvi_pass_key) have the same ops. */
static int most_parts(const rvi_attention *a, const rvi_kv_row *rows, int n_rows, int keys)
{
    int most = 1;
    for (int r = 0; r < n_rows; r++) {
        int at = rows[r].pos / RVI_PAGE_TOKENS * RVI_PAGE_TOKENS;
        int first = a->window && at >= a->window ? at - a->window + 1 : 0;
        most = RVI_MAX(most, rows[r].pos / keys - first / keys + 1);
    }
    return most;
}

/* Parts of each row that are computed apart and then merged: a power of two, so that the list of
 * the next token is mostly the same; 0: a block takes a row. *all: every part of every row has its
 * own place, or there is only one of each. */
static int parts_for(const rvi_attention *a, const rvi_kv_row *rows, int n_rows, int keys,
                     bool *all)
{
    int most = most_parts(a, rows, n_rows, keys), parts = 1;
    *all = most == 1;
    if (most == 1) return 0;
    most += a->window > 0; /* rows of a tile may begin in another chunk */
    while (parts < most) parts *= 2;
    *all = (int64_t)n_rows * a->n_heads * parts <= RVI_CUDA_PARTS;
    return *all ? parts : 0;
}

/* Of heads that all kernels of attention.cuh take. */
enum { SMALL_HEAD = 128 };

static bool takes_tiles(const rvi_cuda *c, const rvi_kv_store *kv, const rvi_attention *a)
{
    int n = kv->spec.head_size;
    return !c->exact && kv->type != RVI_ATTN_F32 && n % 16 == 0 &&
           n <= (kv->type == RVI_ATTN_F16 ? RVI_CUDA_MAX_TILE_HEAD : SMALL_HEAD) &&
           a->n_heads / kv->spec.n_kv_heads <= RVI_CUDA_QUERIES;
}

/* The last command, where it turns these queries and keys and writes the keys. */
static bool last_rope(rvi_cuda *c, const rvi_cuda_attention_args *args, int n_rows,
                      rvi_cuda_rope_kv_args *rope)
{
    const rvi_cuda_command *last = rvi_cuda_last(c);
    if (!last || last->kernel != RVI_CUDA_rope_kv || last->grid[0] != (uint32_t)n_rows)
        return false;
    memcpy(rope, last->args, sizeof *rope);
    return rope->x.at == args->q.at && !memcmp(&rope->kv, &args->kv, sizeof rope->kv) &&
           rope->x.n == (args->n_heads + args->kv.n_kv_heads) * args->kv.head_size;
}

/* Where the last command turns the only row's query and key and writes them, attention does it. */
static void take_rope(rvi_cuda *c, rvi_cuda_attention_args *args)
{
    rvi_cuda_rope_kv_args rope;
    if (!last_rope(c, args, 1, &rope)) return;
    args->angles = rope.angles;
    args->k = rope.x;
    args->k.at += (rvi_cuda_at)args->n_heads * (rvi_cuda_at)args->kv.head_size * sizeof(float);
    args->v = rope.v;
    args->interleaved = rope.interleaved;
    args->turns = 1;
    args->early = c->n_placed == 1; /* the list has one step: older keys are there */
    c->n_commands--;
}

/* Where the last command turns queries and keys, attention turns the queries. */
static void take_queries(rvi_cuda *c, rvi_cuda_attention_args *args, int n_rows)
{
    rvi_cuda_rope_kv_args rope;
    if (!last_rope(c, args, n_rows, &rope) || rope.angles.n % 16 ||
        (rope.angles.at | (rvi_cuda_at)rope.angles.stride * sizeof(float)) % 16)
        return;
    args->angles = rope.angles;
    args->interleaved = rope.interleaved;
    args->turns = 1;
    rope.n_rows = n_rows;
    c->n_commands--;
    rvi_cuda_add(c, RVI_CUDA_rope_keys,
                 (uint32_t[]){(uint32_t)(n_rows + RVI_CUDA_KEY_ROWS - 1) / RVI_CUDA_KEY_ROWS,
                              (uint32_t)rope.kv.n_kv_heads, 1},
                 RVI_CUDA_THREADS, &rope, sizeof rope);
}

/* Is it the product of these queries, keys and values? */
static bool is_product_of(const rvi_cuda_product_args *p, const rvi_cuda_attention_args *a)
{
    int nk = a->kv.n_kv_heads * a->kv.head_size;
    return p->n_parts == 3 && p->finish == RVI_CUDA_STORE && p->part[0].out == a->q.at &&
           p->part[1].out == a->k.at && p->part[2].out == a->v.at && p->part[1].n_out == nk &&
           p->part[2].n_out == nk && p->part[0].n_out == a->n_heads * a->kv.head_size &&
           (a->q.at | a->k.at | a->v.at | a->out.at | a->angles.at |
            (rvi_cuda_at)a->angles.n * sizeof(float)) %
                   16 ==
               0;
}

/* The blocks of a cluster that has so many heads of queries, and its tiles. */
typedef struct cluster {
    int blocks, tiles, first_tiles; /* first_tiles: of the first type */
} cluster;

static cluster cluster_for(const rvi_cuda_product_args *p, int heads, int per_head)
{
    cluster k = {.tiles = (heads + 2) * per_head, .first_tiles = heads * per_head};
    for (int i = 1; i < 3; i++)
        if (p->part[i].type == p->part[0].type) k.first_tiles += per_head;
    k.blocks = (k.first_tiles + p->together - 1) / p->together +
               (k.tiles - k.first_tiles + p->together - 1) / p->together;
    k.blocks = RVI_MAX(k.blocks, RVI_CUDA_RUN);
    return k;
}

/* Where the last command is the product of the only row's queries, keys and values, and a small
 * one, it becomes heads_row, which attends too. All keys are of one run. A head of keys has as many
 * clusters as it takes for each block to have one turn. */
static bool join_product(rvi_cuda *c, const rvi_cuda_attention_args *args)
{
    rvi_cuda_command *last = rvi_cuda_last(c);
    int group = args->n_heads / args->kv.n_kv_heads, per_head = args->kv.head_size / 16, splits = 1;
    rvi_cuda_product_args p;
    if (!c->has_clusters || args->kv.type != RVI_ATTN_F16 || args->kv.head_size > SMALL_HEAD ||
        !args->early || !last || !rvi_cuda_is_row(last->kernel))
        return false;
    memcpy(&p, last->args, sizeof p);
    if (!is_product_of(&p, args) || p.x.n > RVI_CUDA_SHORT) return false;
    cluster k = cluster_for(&p, group, per_head);
    while (k.blocks > RVI_CUDA_CLUSTER && splits < group) {
        splits++;
        k = cluster_for(&p, (group + splits - 1) / splits, per_head);
    }
    uint32_t shared =
        RVI_CUDA_ROW_SHARED + (uint32_t)(p.x.n + 127) / 128 * 256 + RVI_CUDA_RAW_BYTES + 16 +
        (uint32_t)(RVI_CUDA_RUN * group * (args->kv.head_size + RVI_CUDA_PART_MORE)) * 4;
    if (shared > RVI_CUDA_HEADS_SHARED || k.blocks > RVI_CUDA_CLUSTER ||
        k.blocks * splits * args->kv.n_kv_heads > c->n_blocks / 8)
        return false;
    p.first_blocks = (k.first_tiles + p.together - 1) / p.together;
    p.first_tiles = k.first_tiles - (k.tiles - 2 * per_head); /* of keys and values */
    rvi_cuda_command to = {
        .kernel = RVI_CUDA_heads_row,
        .grid = {(uint32_t)k.blocks, (uint32_t)(splits * args->kv.n_kv_heads), 1},
        .threads = RVI_CUDA_THREADS,
        .cluster = (uint8_t)k.blocks,
        .joined = 1,
        .shared = shared};
    memcpy(to.args, &p, sizeof p);
    rvi_cuda_attention_args a = *args;
    a.n_parts = 0; /* whatever the position, so that the next list is the same */
    a.n_splits = splits;
    if (!rvi_cuda_add(c, RVI_CUDA_heads_row, (uint32_t[]){0, 0, 0}, 0, &a, sizeof a)) return false;
    *last = to; /* no list ends with the first half */
    return true;
}

/* No row has a neighbour: false where not all of their parts have a place. A part is a run where
 * there are so many that the processors are busy with them, or else a chunk. */
static bool by_rows(rvi_cuda *c, const rvi_kv_store *kv, rvi_cuda_attention_args *args,
                    const rvi_attention *a, const rvi_kv_row *rows, int n_rows)
{
    int heads = n_rows * args->kv.n_kv_heads,
        most = most_parts(a, rows, n_rows, RVI_CUDA_RUN * RVI_CUDA_KEYS);
    bool runs = (int64_t)heads * most >= c->n_blocks * 3 / 4, all;
    args->per = runs ? RVI_CUDA_RUN : 1;
    args->n_parts = parts_for(a, rows, n_rows, args->per * RVI_CUDA_KEYS, &all);
    if (!all) return false;
    if (n_rows == 1) take_rope(c, args);
    if (args->turns && rows[0].pos < RVI_CUDA_RUN * RVI_CUDA_KEYS && join_product(c, args)) {
        args->n_parts = 0;
        return true;
    }
    if (args->n_parts <= RVI_CUDA_JOINED_HERE && heads <= RVI_CUDA_ARRIVALS)
        args->arrivals = kv->arrivals;
    int blocks = RVI_MAX(args->n_parts, 1);
    if (runs) blocks = RVI_MIN(blocks, RVI_MAX(c->n_blocks / heads, 1));
    bool q8 = args->kv.type == RVI_ATTN_Q8, large = args->kv.head_size > SMALL_HEAD;
    rvi_cuda_command *k = rvi_cuda_add(
        c,
        q8      ? RVI_CUDA_attention_row_q8
        : large ? RVI_CUDA_attention_row_large
                : RVI_CUDA_attention_row,
        (uint32_t[]){(uint32_t)args->kv.n_kv_heads, (uint32_t)n_rows, (uint32_t)blocks},
        RVI_CUDA_ATTENTION, args, sizeof *args);
    if (k)
        k->shared = q8      ? RVI_CUDA_ROW_SHARED_Q8
                    : large ? RVI_CUDA_ROW_SHARED_LARGE
                            : RVI_CUDA_ROW_SHARED;
    return true;
}

/* Blocks for the tiles of all runs, so many of a run, as far as a grid goes. */
static void add_tiles(rvi_cuda *c, rvi_cuda_kernel kernel, const rvi_cuda_attention_args *args,
                      const rvi_cuda_placed *p, int of_run, uint32_t threads, uint32_t shared)
{
    enum { GRID_Y = 65535 };
    rvi_cuda_attention_args a = *args;
    int each = RVI_MAX(GRID_Y / of_run, 1);
    for (int r = 0; r < p->n_runs; r += each) {
        uint32_t grid[] = {(uint32_t)a.kv.n_kv_heads,
                           (uint32_t)(RVI_MIN(each, p->n_runs - r) * of_run),
                           (uint32_t)RVI_MAX(a.n_parts, 1)};
        a.runs = p->runs + (rvi_cuda_at)r * 2 * sizeof(int32_t);
        rvi_cuda_command *k = rvi_cuda_add(c, kernel, grid, threads, &a, sizeof a);
        if (k) k->shared = shared;
    }
}

static void by_tiles(rvi_cuda *c, rvi_cuda_attention_args *args, const rvi_cuda_placed *p)
{
    int most = RVI_CUDA_QUERIES / (args->n_heads / args->kv.n_kv_heads); /* rows of a tile */
    args->n_splits = (p->longest + most - 1) / most;
    if (args->kv.head_size > SMALL_HEAD) /* halves; a total is only for runs */
        add_tiles(c, RVI_CUDA_attention_tiles_large, args, p, 2 * args->n_splits,
                  RVI_CUDA_ATTENTION,
                  args->n_parts ? RVI_CUDA_LARGE_CHUNK : RVI_CUDA_KEY_SHARED_LARGE);
    else if (args->kv.type == RVI_ATTN_Q8)
        add_tiles(c, RVI_CUDA_attention_tiles_q8, args, p, args->n_splits, RVI_CUDA_ATTENTION,
                  RVI_CUDA_KEY_SHARED_Q8);
    else
        add_tiles(c, RVI_CUDA_attention_tiles, args, p, args->n_splits, RVI_CUDA_ATTENTION,
                  RVI_CUDA_KEY_SHARED);
}

/* Is it faster when a tile takes its chunks one after the other? A chunk takes about as long as 16
 * blocks of attention_join on each processor. */
static bool joins_too_long(const rvi_cuda *c, const rvi_cuda_attention_args *args, int most,
                           int n_rows)
{
    int64_t blocks =
        (int64_t)args->n_heads * n_rows * ((args->kv.head_size - 1) / RVI_CUDA_JOIN_ELEMENTS + 1);
    return most <= blocks / (4 * c->n_blocks) + 2;
}

/* attention_wide for heads of this size; RVI_CUDA_KERNELS: there is none. */
static rvi_cuda_kernel wide_kernel(int size)
{
#define X(head)                                                                                    \
    if (size == head) return RVI_CUDA_attention_wide_##head;
    RVI_CUDA_WIDE_HEADS(X)
#undef X
    return RVI_CUDA_KERNELS;
}

/* Queries, chunks on their way, and totals, as attention_wide has them. */
static uint32_t wide_shared(int size)
{
    enum { LINE = 128, THREADS = RVI_CUDA_WIDE_THREADS - 128 };
    uint32_t strips = ((uint32_t)size + 63) / 64, strip = 64 * LINE,
             queries = (uint32_t)RVI_CUDA_WIDE_QUERIES(size) / 64 * strips * strip,
             chunk = (uint32_t)size * LINE + strips * strip,
             totals = (uint32_t)size / RVI_CUDA_WIDE_SHARE(size) / 8 * THREADS * 16;
    return queries + (uint32_t)RVI_CUDA_WIDE_STAGES(size) * chunk + totals;
}

/* So many neighbours that blocks with more queries are mostly full. */
static bool by_wide_tiles(rvi_cuda *c, rvi_cuda_attention_args *args, const rvi_cuda_placed *p)
{
    int size = args->kv.head_size, share = args->n_heads / args->kv.n_kv_heads,
        queries = RVI_CUDA_WIDE_QUERIES(size), most = queries / share;
    rvi_cuda_kernel kernel = wide_kernel(size);
    if (!c->has_groups || args->kv.type != RVI_ATTN_F16 || kernel == RVI_CUDA_KERNELS ||
        args->n_parts || !most ||
        (args->q.at | args->out.at | (rvi_cuda_at)args->q.stride * sizeof(float) |
         (rvi_cuda_at)args->out.stride * sizeof(float)) %
            16)
        return false;
    int splits = (p->longest + most - 1) / most, tiles = 0;
    for (int i = 0; i < p->n_runs; i++) tiles += (p->staged_runs[2 * i + 1] + most - 1) / most;
    if (p->n_rows * share * 4 < tiles * queries * 3) return false;
    take_queries(c, args, p->n_rows);
    args->n_splits = splits;
    add_tiles(c, kernel, args, p, splits, RVI_CUDA_WIDE_THREADS, wide_shared(size));
    return true;
}

void rvi_cuda_attention(rvi_backend *be, rvi_cols out, rvi_cols q, const rvi_kv_store *kv, int il,
                        const rvi_attention *a, const rvi_kv_row *rows, int n_rows)
{
    rvi_cuda *c = rvi_cuda_of(be);
    bool tiles = takes_tiles(c, kv, a);
    if (rvi_cuda_is_idle(c)) return;
    for (int at = 0, n; at < n_rows; at += n) {
        rvi_cuda_attention_args args = {.kv = kv_args(kv, il),
                                        .out = cols_from(out, at),
                                        .q = cols_from(q, at),
                                        .parts = kv->parts,
                                        .n_heads = a->n_heads,
                                        .window = a->window,
                                        .scale = a->scale,
                                        .soft_cap = a->soft_cap};
        const rvi_cuda_placed *p = place(c, rows + at, n_rows - at, kv->run, &args.kv);
        if (!p) return;
        n = p->n_rows;
        bool all,
            alone = p->longest == 1 && a->n_heads / args.kv.n_kv_heads <= RVI_CUDA_ROW_QUERIES;
        if (!tiles || !alone || !by_rows(c, kv, &args, a, rows + at, n)) {
            args.per = 1;
            args.n_parts = parts_for(a, rows + at, n, tiles ? RVI_CUDA_KEYS : RVI_CUDA_CHUNK, &all);
            if (tiles && joins_too_long(c, &args, most_parts(a, rows + at, n, RVI_CUDA_KEYS), n))
                args.n_parts = 0;
            if (tiles && !by_wide_tiles(c, &args, p)) by_tiles(c, &args, p);
        }
        uint32_t grid[] = {(uint32_t)a->n_heads, (uint32_t)n, (uint32_t)RVI_MAX(args.n_parts, 1)};
        if (!tiles)
            rvi_cuda_add(c, RVI_CUDA_attention, grid, RVI_CUDA_ATTENTION, &args, sizeof args);
        grid[2] = tiles ? (uint32_t)(kv->spec.head_size + RVI_CUDA_JOIN_ELEMENTS - 1) /
                              RVI_CUDA_JOIN_ELEMENTS
                        : 1;
        if (args.n_parts && !args.arrivals)
            rvi_cuda_add(c, tiles ? RVI_CUDA_attention_join : RVI_CUDA_attention_merge, grid,
                         RVI_CUDA_ATTENTION, &args, sizeof args);
    }
}
