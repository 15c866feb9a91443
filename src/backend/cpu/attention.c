/* KV pages in memory, and attention over them.
 *
 * Page layout, layer after layer: K as [kv head][position][head_size], then V the same. Position p
 * of a sequence lies in slot p % RVI_PAGE_TOKENS of its page. A row's softmax runs online, one page
 * after the other in order of position, so its reduction order follows from its position (and the
 * layer's window) alone. */
#include <math.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "base/mem.h"

struct rvi_kv_store {
    rvi_kv_spec spec;
    uint8_t *data;
    size_t page_bytes, plane_bytes; /* plane: one head's K or V of one page */
};

static size_t element_bytes(rv_kv_type type)
{
    return type == RV_KV_F32 ? sizeof(float) : sizeof(rvi_f16);
}

rv_status rvi_cpu_kv_new(rvi_backend *be, rvi_kv_store **out, const rvi_kv_spec *spec,
                         rv_error *err)
{
    (void)be;
    *out = NULL;
    rvi_kv_store *kv = rvi_zalloc(sizeof *kv);
    if (!kv) return rvi_nomem(err, "KV store");
    kv->spec = *spec;
    kv->plane_bytes = RVI_PAGE_TOKENS * (size_t)spec->head_size * element_bytes(spec->type);
    kv->page_bytes = kv->plane_bytes * 2 * (size_t)spec->n_kv_heads * (size_t)spec->n_layers;
    /* One piece of address space; the OS gives memory as pages are first written. */
    kv->data = spec->n_pages > 0 && kv->page_bytes <= PTRDIFF_MAX / (size_t)spec->n_pages
                   ? rvi_alloc_aligned(kv->page_bytes * (size_t)spec->n_pages, 64)
                   : NULL;
    if (!kv->data) {
        rvi_free(kv);
        return rvi_error(
            err, RV_E_NOMEM,
            "no memory for a KV cache of %d pages of %d tokens; ask for a smaller context",
            spec->n_pages, RVI_PAGE_TOKENS);
    }
    *out = kv;
    return RV_OK;
}

void rvi_cpu_kv_free(rvi_backend *be, rvi_kv_store *kv)
{
    (void)be;
    if (!kv) return;
    rvi_free(kv->data);
    rvi_free(kv);
}

void rvi_cpu_kv_copy_page(rvi_backend *be, rvi_kv_store *kv, int32_t to, int32_t from)
{
    (void)be;
    memcpy(kv->data + (size_t)to * kv->page_bytes, kv->data + (size_t)from * kv->page_bytes,
           kv->page_bytes);
}

/* which: 0 = K, 1 = V */
static uint8_t *plane(const rvi_kv_store *kv, int32_t page, int il, int which, int head)
{
    size_t index = ((size_t)il * 2 + (size_t)which) * (size_t)kv->spec.n_kv_heads + (size_t)head;
    return kv->data + (size_t)page * kv->page_bytes + index * kv->plane_bytes;
}

void rvi_cpu_kv_write(rvi_backend *be, rvi_kv_store *kv, int il, rvi_cols k, rvi_cols v,
                      const rvi_kv_row *rows, int n_rows)
{
    const rvi_kernels *kern = &rvi_cpu_of(be)->k;
    size_t size = (size_t)kv->spec.head_size;
    for (int r = 0; r < n_rows; r++) {
        int32_t page = rows[r].pages[rows[r].pos / RVI_PAGE_TOKENS];
        size_t at = (size_t)(rows[r].pos % RVI_PAGE_TOKENS) * size;
        for (int which = 0; which < 2; which++)
            for (int h = 0; h < kv->spec.n_kv_heads; h++) {
                const float *src = rvi_cpu_row(which ? v : k, r) + (size_t)h * size;
                uint8_t *dst = plane(kv, page, il, which, h);
                if (kv->spec.type == RV_KV_F32)
                    memcpy((float *)(void *)dst + at, src, size * sizeof *src);
                else
                    kern->f32_to_f16(src, (rvi_f16 *)(void *)dst + at, size);
            }
    }
}

typedef struct job {
    rvi_cpu *cpu;
    rvi_cols out, q;
    const rvi_kv_store *kv;
    int il;
    const rvi_attention *a;
    const rvi_kv_row *rows;
} job;

/* One query head of one row. */
static void attention_task(void *ctx, int task, int worker)
{
    job *j = ctx;
    (void)worker;
    const rvi_attention *a = j->a;
    const rvi_kernels *k = &j->cpu->k;
    int row = task / a->n_heads, head = task % a->n_heads;
    int kv_head = head / (a->n_heads / a->n_kv_heads);
    size_t n = (size_t)a->head_size;
    const float *q = rvi_cpu_row(j->q, row) + (size_t)head * n;
    float *acc = rvi_cpu_row(j->out, row) + (size_t)head * n;
    const rvi_kv_row *past = &j->rows[row];
    int first = a->window && past->pos >= a->window ? past->pos - a->window + 1 : 0;
    float m = -INFINITY, l = 0, score[RVI_PAGE_TOKENS];

    memset(acc, 0, n * sizeof *acc);
    for (int p = first / RVI_PAGE_TOKENS; p <= past->pos / RVI_PAGE_TOKENS; p++) {
        int from = RVI_MAX(first - p * RVI_PAGE_TOKENS, 0);
        int n_keys = RVI_MIN(past->pos - p * RVI_PAGE_TOKENS + 1, RVI_PAGE_TOKENS) - from;
        const void *keys = plane(j->kv, past->pages[p], j->il, 0, kv_head);
        const void *values = plane(j->kv, past->pages[p], j->il, 1, kv_head);
        size_t skip = (size_t)from * n;
        bool f32 = j->kv->spec.type == RV_KV_F32;
        if (f32)
            k->attn_score_f32(q, (const float *)keys + skip, n_keys, n, score);
        else
            k->attn_score_f16(q, (const rvi_f16 *)keys + skip, n_keys, n, score);
        k->scale(score, a->scale, (size_t)n_keys);
        if (a->soft_cap > 0) k->soft_cap(score, a->soft_cap, (size_t)n_keys);
        k->scale(acc, k->softmax_step(score, n_keys, &m, &l), n);
        if (f32)
            k->attn_mix_f32(acc, score, (const float *)values + skip, n_keys, n);
        else
            k->attn_mix_f16(acc, score, (const rvi_f16 *)values + skip, n_keys, n);
    }
    k->scale(acc, 1.0f / l, n);
}

void rvi_cpu_attention(rvi_backend *be, rvi_cols out, rvi_cols q, const rvi_kv_store *kv, int il,
                       const rvi_attention *a, const rvi_kv_row *rows, int n_rows)
{
    job j = {.cpu = rvi_cpu_of(be), .out = out, .q = q, .kv = kv, .il = il, .a = a, .rows = rows};
    rvi_pool_run(j.cpu->pool, attention_task, &j, n_rows * a->n_heads);
}
