/* Making, copying and writing KV pages. */
#include "backend/cpu/kv_store.h"

#include <string.h>

#include "base/mem.h"
#include "base/os.h"

_Static_assert((int)RVI_PAGE_TOKENS == (int)RVI_ATTN_PAGE, "a page is a page");

static rvi_attn_type attn_type(rv_kv_type type)
{
    return type == RV_KV_F32 ? RVI_ATTN_F32 : type == RV_KV_Q8 ? RVI_ATTN_Q8 : RVI_ATTN_F16;
}

static bool scratch_new(rvi_kv_store *kv, size_t n_workers)
{
    size_t q = RVI_KV_QUERIES * kv->padded, part = RVI_KV_QUERIES * kv->part_floats;
    size_t q8 = q / sizeof(float), mine = q + q8 + part + kv->padded;
    kv->scratch = rvi_zalloc_array(n_workers, sizeof *kv->scratch);
    kv->floats = rvi_alloc_aligned(
        (n_workers * mine + RVI_KV_PARTS * (kv->part_floats + 2)) * sizeof *kv->floats, 64);
    if (!kv->scratch || !kv->floats) return false;
    float *at = kv->floats;
    for (size_t i = 0; i < n_workers; i++, at += mine) {
        kv->scratch[i].q = at;
        kv->scratch[i].part = at + q;
        kv->scratch[i].row = at + q + part;
        kv->scratch[i].q8 = (int8_t *)(at + q + part + kv->padded);
    }
    kv->parts = at;
    kv->m = at + RVI_KV_PARTS * kv->part_floats;
    kv->l = kv->m + RVI_KV_PARTS;
    return true;
}

rv_status rvi_cpu_kv_new(rvi_backend *be, rvi_kv_store **out, const rvi_kv_spec *spec,
                         rv_error *err)
{
    *out = NULL;
    rvi_kv_store *kv = rvi_zalloc(sizeof *kv);
    if (!kv) return rvi_nomem(err, "KV store");
    size_t size = (size_t)spec->head_size;
    kv->spec = *spec;
    kv->type = attn_type(spec->type);
    kv->k_bytes = rvi_attn_k_bytes(kv->type, size);
    kv->v_bytes = rvi_attn_v_bytes(kv->type, size);
    kv->page_bytes =
        (kv->k_bytes + kv->v_bytes) * (size_t)spec->n_kv_heads * (size_t)spec->n_layers;
    kv->padded = rvi_attn_padded(size);
    kv->part_floats = rvi_attn_part_floats(size);
    if (!scratch_new(kv, (size_t)rvi_pool_size(rvi_cpu_of(be)->pool))) {
        rvi_cpu_kv_free(be, kv);
        return rvi_nomem(err, "attention scratch");
    }
    /* One piece of address space; the OS gives memory as pages are first written. */
    kv->data = spec->n_pages > 0 && kv->page_bytes <= PTRDIFF_MAX / (size_t)spec->n_pages
                   ? rvi_os_alloc_large(kv->page_bytes * (size_t)spec->n_pages)
                   : NULL;
    if (!kv->data) {
        rvi_cpu_kv_free(be, kv);
        return rvi_error(
            err, RV_E_NOMEM,
            "no memory for a KV cache of %d pages of %d tokens; ask for a smaller context",
            spec->n_pages, RVI_PAGE_TOKENS);
    }
    atomic_fetch_add(&be->memory->kv, kv->page_bytes * (size_t)spec->n_pages);
    *out = kv;
    return RV_OK;
}

void rvi_cpu_kv_free(rvi_backend *be, rvi_kv_store *kv)
{
    if (!kv) return;
    if (kv->data) atomic_fetch_sub(&be->memory->kv, kv->page_bytes * (size_t)kv->spec.n_pages);
    rvi_free(kv->data);
    rvi_free(kv->floats);
    rvi_free(kv->scratch);
    rvi_free(kv);
}

void rvi_cpu_kv_copy_page(rvi_backend *be, rvi_kv_store *kv, int32_t to, int32_t from)
{
    (void)be;
    memcpy(kv->data + (size_t)to * kv->page_bytes, kv->data + (size_t)from * kv->page_bytes,
           kv->page_bytes);
}

size_t rvi_cpu_kv_page_bytes(const rvi_kv_store *kv)
{
    return kv->page_bytes;
}

void rvi_cpu_kv_read_page(rvi_backend *be, const rvi_kv_store *kv, int32_t page, void *to)
{
    (void)be;
    memcpy(to, kv->data + (size_t)page * kv->page_bytes, kv->page_bytes);
}

void rvi_cpu_kv_write_page(rvi_backend *be, rvi_kv_store *kv, int32_t page, const void *from)
{
    (void)be;
    memcpy(kv->data + (size_t)page * kv->page_bytes, from, kv->page_bytes);
}

/* ---- writing ---- */

/* One key to its lane: element e of slot s is at [e][s], in q8 the fours at [e / 4][s]. row:
 * scratch of padded floats. */
static void write_key(const rvi_kernels *kern, const rvi_kv_store *kv, uint8_t *plane, int slot,
                      const float *src, float *row)
{
    size_t n = (size_t)kv->spec.head_size, at = (size_t)slot;
    if (kv->type == RVI_ATTN_F32) {
        float *dst = (float *)(void *)plane + at;
        for (size_t e = 0; e < n; e++) dst[e * RVI_PAGE_TOKENS] = src[e];
    } else if (kv->type == RVI_ATTN_F16) {
        rvi_f16 *dst = (rvi_f16 *)(void *)plane + at, *half = (rvi_f16 *)(void *)row;
        kern->f32_to_f16(src, half, n);
        for (size_t e = 0; e < n; e++) dst[e * RVI_PAGE_TOKENS] = half[e];
    } else {
        size_t groups = (n + 3) / 4;
        int8_t *q = (int8_t *)row;
        float d = kern->quantize_head(src, q, n);
        for (size_t g = 0; g < groups; g++)
            memcpy(plane + (g * RVI_PAGE_TOKENS + at) * 4, q + g * 4, 4);
        memcpy(plane + (groups * RVI_PAGE_TOKENS + at) * 4, &d, sizeof d);
    }
}

static void write_value(const rvi_kernels *kern, const rvi_kv_store *kv, uint8_t *plane, int slot,
                        const float *src)
{
    size_t n = (size_t)kv->spec.head_size, at = (size_t)slot * kv->padded, rest = kv->padded - n;
    if (kv->type == RVI_ATTN_F32) {
        float *dst = (float *)(void *)plane + at;
        memcpy(dst, src, n * sizeof *dst);
        memset(dst + n, 0, rest * sizeof *dst);
    } else if (kv->type == RVI_ATTN_F16) {
        rvi_f16 *dst = (rvi_f16 *)(void *)plane + at;
        kern->f32_to_f16(src, dst, n);
        memset(dst + n, 0, rest * sizeof *dst);
    } else {
        float *d = (float *)(void *)(plane + RVI_PAGE_TOKENS * kv->padded);
        d[slot] = kern->quantize_head(src, (int8_t *)plane + at, n);
    }
}

typedef struct job {
    const rvi_cpu *cpu;
    const rvi_kv_store *kv;
    int il;
    rvi_cols k, v;
    const rvi_kv_row *rows;
    int n_rows, n_pieces;
} job;

/* The first row of a piece. Positions of a page share cache lines, so rows are split between pages
 * alone. */
static int piece_start(const job *j, int piece)
{
    int r = (int)((int64_t)j->n_rows * piece / j->n_pieces);
    while (r > 0 && r < j->n_rows && j->rows[r].pages == j->rows[r - 1].pages &&
           j->rows[r].pos / RVI_PAGE_TOKENS == j->rows[r - 1].pos / RVI_PAGE_TOKENS)
        r++;
    return r;
}

/* A piece of the rows of one head */
static void write_task(void *ctx, int task, int worker)
{
    const job *j = ctx;
    const rvi_kv_store *kv = j->kv;
    int head = task / j->n_pieces, end = piece_start(j, task % j->n_pieces + 1);
    size_t at = (size_t)head * (size_t)kv->spec.head_size;
    for (int r = piece_start(j, task % j->n_pieces); r < end; r++) {
        int pos = j->rows[r].pos, slot = pos % RVI_PAGE_TOKENS;
        uint8_t *planes = rvi_kv_planes(kv, j->rows[r].pages[pos / RVI_PAGE_TOKENS], j->il, head);
        write_key(&j->cpu->k, kv, planes, slot, rvi_cpu_row(j->k, r) + at, kv->scratch[worker].row);
        write_value(&j->cpu->k, kv, planes + kv->k_bytes, slot, rvi_cpu_row(j->v, r) + at);
    }
}

void rvi_cpu_kv_write(rvi_backend *be, rvi_kv_store *kv, int il, rvi_cols k, rvi_cols v,
                      const rvi_kv_row *rows, int n_rows)
{
    enum { FEW_ROWS = 16 /* done before another thread would be awake */, TASKS_A_THREAD = 4 };
    job j = {rvi_cpu_of(be), kv, il, k, v, rows, n_rows, 1};
    int heads = kv->spec.n_kv_heads, threads = rvi_pool_size(j.cpu->pool);
    if (n_rows <= FEW_ROWS) {
        for (int h = 0; h < heads; h++) write_task(&j, h, 0);
        return;
    }
    /* pages, in a few tasks for each thread */
    j.n_pieces = RVI_MIN((n_rows + RVI_PAGE_TOKENS - 1) / RVI_PAGE_TOKENS,
                         (TASKS_A_THREAD * threads + heads - 1) / heads);
    rvi_pool_run(j.cpu->pool, write_task, &j, heads * j.n_pieces);
}

double rvi_cpu_kv_row_bytes(const rvi_kv_store *kv)
{
    return (double)kv->spec.n_kv_heads * (double)(kv->k_bytes + kv->v_bytes) / RVI_PAGE_TOKENS;
}
