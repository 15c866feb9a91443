/* Making, copying and writing KV pages. */
#include "backend/cpu/kv_store.h"

#include <string.h>

#include "base/mem.h"
#include "base/os.h"

_Static_assert((int)RVI_PAGE_TOKENS == (int)RVI_ATTN_PAGE, "a page is a page");

static bool scratch_new(rvi_kv_store *kv, size_t n_workers)
{
    size_t q = RVI_KV_QUERIES * kv->padded, part = RVI_KV_QUERIES * kv->part_floats;
    size_t q8 = q / sizeof(float), head = (size_t)kv->spec.head_size;
    size_t wide = head <= RVI_KV_WIDE_HEAD ? RVI_ATTN_CHUNK * (head + kv->padded) : 0;
    size_t mine = q + 2 * q8 + part + 2 * kv->padded + wide;
    kv->scratch = rvi_zalloc_array(n_workers, sizeof *kv->scratch);
    kv->floats = rvi_alloc_aligned(
        (n_workers * mine + RVI_KV_PARTS * (kv->part_floats + 2)) * sizeof *kv->floats, 64);
    if (!kv->scratch || !kv->floats) return false;
    float *at = kv->floats;
    for (size_t i = 0; i < n_workers; i++, at += mine) {
        kv->scratch[i].q = at;
        kv->scratch[i].part = at + q;
        kv->scratch[i].row = at + q + part;
        kv->scratch[i].turned = at + q + part + kv->padded;
        kv->scratch[i].q8 = (int8_t *)(at + q + part + 2 * kv->padded);
        kv->scratch[i].cold = (int8_t *)(at + q + part + 2 * kv->padded + q8);
        kv->scratch[i].wide = wide ? at + mine - wide : NULL;
    }
    kv->parts = at;
    kv->m = at + RVI_KV_PARTS * kv->part_floats;
    kv->l = kv->m + RVI_KV_PARTS;
    return true;
}

static bool is_tiered(const rvi_kv_store *kv)
{
    return kv->n_forms > 1;
}

static size_t all_planes(const rvi_kv_store *kv, const rvi_kv_form *f)
{
    return (f->k_bytes + f->v_bytes) * (size_t)kv->spec.n_kv_heads * (size_t)kv->spec.n_layers;
}

/* One piece of address space; the OS gives memory as pages are first written. */
static rv_status form_new(rvi_kv_store *kv, rvi_attn_type type, bool tiered, atomic_size_t *room,
                          rv_error *err)
{
    rvi_kv_form *f = &kv->forms[kv->n_forms++];
    size_t n = (size_t)kv->spec.n_pages, size = (size_t)kv->spec.head_size;
    f->type = type;
    f->k_bytes = rvi_attn_k_bytes(type, size);
    f->v_bytes = rvi_attn_v_bytes(type, size);
    f->page_bytes = all_planes(kv, f);
    if (tiered) {
        f->slots = rvi_alloc_array(n, sizeof *f->slots);
        f->free_slots = rvi_alloc_array(n, sizeof *f->free_slots);
        if (!f->slots || !f->free_slots) return rvi_nomem(err, "KV store");
        for (f->n_returned = 0; (size_t)f->n_returned < n; f->n_returned++) {
            f->slots[f->n_returned] = -1;
            f->free_slots[f->n_returned] = (int32_t)n - 1 - f->n_returned;
        }
    }
    f->data = kv->spec.n_pages > 0 && f->page_bytes <= PTRDIFF_MAX / n
                  ? rvi_os_alloc_large(f->page_bytes * n)
                  : NULL;
    if (f->data) {
        atomic_fetch_add(room, f->page_bytes * n);
        return RV_OK;
    }
    return rvi_error(err, RV_E_NOMEM,
                     "no memory for a KV cache of %d pages of %d tokens; ask for a smaller context",
                     kv->spec.n_pages, RVI_PAGE_TOKENS);
}

static size_t form_bytes(const rvi_kv_store *kv, const rvi_kv_form *f)
{
    return f->page_bytes * (size_t)(kv->spec.n_pages - f->n_returned);
}

rv_status rvi_cpu_kv_new(rvi_backend *be, rvi_kv_store **out, const rvi_kv_spec *spec,
                         rv_error *err)
{
    *out = NULL;
    rvi_kv_store *kv = rvi_zalloc(sizeof *kv);
    if (!kv) return rvi_nomem(err, "KV store");
    bool cold = spec->type == RV_KV_TIERED, tiered = cold || spec->type == RV_KV_WARM;
    rvi_attn_type first = spec->type == RV_KV_F32  ? RVI_ATTN_F32
                          : spec->type == RV_KV_Q8 ? RVI_ATTN_Q8
                                                   : RVI_ATTN_F16;
    kv->spec = *spec;
    kv->padded = rvi_attn_padded((size_t)spec->head_size);
    kv->part_floats = rvi_attn_part_floats((size_t)spec->head_size);
    if (cold && spec->head_size > RVI_ATTN_COLD_HEAD) {
        rvi_free(kv);
        return rvi_error(err, RV_E_UNSUPPORTED,
                         "heads of %d elements are too large for a KV cache of 4 bits (at most %d)",
                         spec->head_size, RVI_ATTN_COLD_HEAD);
    }
    rv_status st = scratch_new(kv, (size_t)rvi_pool_size(rvi_cpu_of(be)->pool))
                       ? RV_OK
                       : rvi_nomem(err, "attention scratch");
    if (!st) st = form_new(kv, first, tiered, &be->memory->kv_room, err);
    if (!st && tiered) st = form_new(kv, RVI_ATTN_Q8, tiered, &be->memory->kv_room, err);
    if (!st && cold) st = form_new(kv, RVI_ATTN_Q4, tiered, &be->memory->kv_room, err);
    if (st) {
        rvi_cpu_kv_free(be, kv);
        return st;
    }
    if (!tiered) atomic_fetch_add(&be->memory->kv, form_bytes(kv, kv->forms));
    *out = kv;
    return RV_OK;
}

void rvi_cpu_kv_free(rvi_backend *be, rvi_kv_store *kv)
{
    if (!kv) return;
    for (int i = 0; i < kv->n_forms; i++) {
        rvi_kv_form *f = &kv->forms[i];
        if (f->data) {
            atomic_fetch_sub(&be->memory->kv, form_bytes(kv, f));
            atomic_fetch_sub(&be->memory->kv_room, f->page_bytes * (size_t)kv->spec.n_pages);
        }
        rvi_free(f->data);
        rvi_free(f->slots);
        rvi_free(f->free_slots);
    }
    rvi_free(kv->floats);
    rvi_free(kv->scratch);
    rvi_free(kv);
}

static uint8_t *page_of(const rvi_kv_form *f, int32_t page)
{
    return f->data + (size_t)(f->slots ? f->slots[page] : page) * f->page_bytes;
}

/* ---- forms ---- */

unsigned rvi_cpu_kv_forms(const rvi_kv_store *kv, int32_t page)
{
    unsigned forms = 0;
    for (int i = 0; i < kv->n_forms; i++) forms |= rvi_kv_has(&kv->forms[i], page) ? 1u << i : 0;
    return forms;
}

static void take_slot(rvi_backend *be, rvi_kv_form *f, int32_t page)
{
    if (f->n_ready) {
        f->slots[page] = f->free_slots[f->n_returned + --f->n_ready];
    } else {
        f->slots[page] = f->free_slots[--f->n_returned];
        atomic_fetch_add(&be->memory->kv, f->page_bytes);
    }
}

static void give_slot(rvi_kv_form *f, int32_t page)
{
    f->free_slots[f->n_returned + f->n_ready++] = f->slots[page];
    f->slots[page] = -1;
}

void rvi_cpu_kv_hold(rvi_backend *be, rvi_kv_store *kv, int32_t page, unsigned forms)
{
    if (!is_tiered(kv) && !forms)
        rvi_os_release_mapped(page_of(kv->forms, page), kv->forms->page_bytes);
    for (int i = 0; is_tiered(kv) && i < kv->n_forms; i++) {
        rvi_kv_form *f = &kv->forms[i];
        bool wanted = forms >> i & 1;
        if (wanted && !rvi_kv_has(f, page)) take_slot(be, f, page);
        if (!wanted && rvi_kv_has(f, page)) give_slot(f, page);
    }
}

void rvi_cpu_kv_trim(rvi_backend *be, rvi_kv_store *kv, int n)
{
    for (int i = 0; is_tiered(kv) && i < kv->n_forms; i++) {
        rvi_kv_form *f = &kv->forms[i];
        while (f->n_ready > n) {
            size_t slot = (size_t)f->free_slots[f->n_returned++];
            f->n_ready--;
            rvi_os_release_mapped(f->data + slot * f->page_bytes, f->page_bytes);
            atomic_fetch_sub(&be->memory->kv, f->page_bytes);
        }
    }
}

void rvi_cpu_kv_copy_page(rvi_backend *be, rvi_kv_store *kv, int32_t to, int32_t from)
{
    if (is_tiered(kv)) rvi_cpu_kv_hold(be, kv, to, rvi_cpu_kv_forms(kv, from));
    for (int i = 0; i < kv->n_forms; i++)
        if (rvi_kv_has(&kv->forms[i], from))
            memcpy(page_of(&kv->forms[i], to), page_of(&kv->forms[i], from),
                   kv->forms[i].page_bytes);
}

/* ---- pages as bytes: of a tiered store the finest form but the hot one, after its number ---- */

enum { FORM_BYTES = 64 };

size_t rvi_cpu_kv_page_bytes(const rvi_kv_store *kv)
{
    return is_tiered(kv) ? FORM_BYTES + kv->forms[1].page_bytes : kv->forms[0].page_bytes;
}

void rvi_cpu_kv_read_page(rvi_backend *be, const rvi_kv_store *kv, int32_t page, void *to)
{
    (void)be;
    const rvi_kv_form *f = kv->forms;
    uint8_t *bytes = to;
    if (is_tiered(kv)) {
        while (++f < kv->forms + kv->n_forms - 1 && !rvi_kv_has(f, page)) {
        }
        memset(bytes, 0, rvi_cpu_kv_page_bytes(kv));
        bytes[0] = (uint8_t)(f - kv->forms);
        bytes += FORM_BYTES;
    }
    memcpy(bytes, page_of(f, page), all_planes(kv, f));
}

void rvi_cpu_kv_write_page(rvi_backend *be, rvi_kv_store *kv, int32_t page, const void *from)
{
    const rvi_kv_form *f = kv->forms;
    const uint8_t *bytes = from;
    if (is_tiered(kv)) {
        f += RVI_MAX(1, RVI_MIN(bytes[0], kv->n_forms - 1));
        rvi_cpu_kv_hold(be, kv, page, 1u << (f - kv->forms));
        bytes += FORM_BYTES;
    }
    memcpy(page_of(f, page), bytes, all_planes(kv, f));
}

/* ---- writing ---- */

/* One key to its lane: element e of slot s is at [e][s], in q8 the fours at [e / 4][s]. row:
 * scratch of padded floats. */
static void write_key(const rvi_kernels *kern, const rvi_kv_store *kv, rvi_attn_type type,
                      uint8_t *plane, int slot, const float *src, float *row)
{
    size_t n = (size_t)kv->spec.head_size, at = (size_t)slot;
    if (type == RVI_ATTN_F32) {
        float *dst = (float *)(void *)plane + at;
        for (size_t e = 0; e < n; e++) dst[e * RVI_PAGE_TOKENS] = src[e];
    } else if (type == RVI_ATTN_F16) {
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

static void write_value(const rvi_kernels *kern, const rvi_kv_store *kv, rvi_attn_type type,
                        uint8_t *plane, int slot, const float *src)
{
    size_t n = (size_t)kv->spec.head_size, at = (size_t)slot * kv->padded, rest = kv->padded - n;
    if (type == RVI_ATTN_F32) {
        float *dst = (float *)(void *)plane + at;
        memcpy(dst, src, n * sizeof *dst);
        memset(dst + n, 0, rest * sizeof *dst);
    } else if (type == RVI_ATTN_F16) {
        rvi_f16 *dst = (rvi_f16 *)(void *)plane + at;
        kern->f32_to_f16(src, dst, n);
        memset(dst + n, 0, rest * sizeof *dst);
    } else {
        float *d = (float *)(void *)(plane + RVI_PAGE_TOKENS * kv->padded);
        d[slot] = kern->quantize_head(src, (int8_t *)plane + at, n);
    }
}

/* ---- the coarser forms ---- */

/* Position `slot` of a head in f16, as floats. */
static void read_hot(const rvi_kernels *kern, const rvi_kv_store *kv, const uint8_t *planes,
                     int slot, rvi_kv_scratch *s)
{
    size_t n = (size_t)kv->spec.head_size;
    const rvi_f16 *k = (const rvi_f16 *)(const void *)planes + slot;
    const rvi_f16 *v =
        (const rvi_f16 *)(const void *)(planes + kv->forms[0].k_bytes) + (size_t)slot * kv->padded;
    rvi_f16 *half = (rvi_f16 *)(void *)s->part;
    for (size_t e = 0; e < n; e++) half[e] = k[e * RVI_PAGE_TOKENS];
    kern->f16_to_f32(half, s->turned, n);
    kern->f16_to_f32(v, s->q, n);
}

static void warm_head(const rvi_kernels *kern, const rvi_kv_store *kv, int32_t page, int il,
                      int head, rvi_kv_scratch *s)
{
    const uint8_t *hot = rvi_kv_planes(kv, &kv->forms[0], page, il, head);
    uint8_t *warm = rvi_kv_planes(kv, &kv->forms[1], page, il, head);
    for (int slot = 0; slot < RVI_PAGE_TOKENS; slot++) {
        read_hot(kern, kv, hot, slot, s);
        write_key(kern, kv, RVI_ATTN_Q8, warm, slot, s->turned, s->row);
        write_value(kern, kv, RVI_ATTN_Q8, warm + kv->forms[1].k_bytes, slot, s->q);
    }
}

typedef struct chilling {
    const rvi_kv_store *kv;
    int32_t page;
} chilling;

static void chill_head(const rvi_kv_store *kv, int32_t page, int il, int head)
{
    rvi_attn_chill(rvi_kv_planes(kv, &kv->forms[1], page, il, head),
                   rvi_kv_planes(kv, &kv->forms[2], page, il, head), (size_t)kv->spec.head_size);
}

static void chill_layer(void *ctx, int il, int worker)
{
    const chilling *c = ctx;
    (void)worker;
    for (int h = 0; h < c->kv->spec.n_kv_heads; h++) chill_head(c->kv, c->page, il, h);
}

void rvi_cpu_kv_chill(rvi_backend *be, rvi_kv_store *kv, int32_t page)
{
    chilling c = {kv, page};
    rvi_pool_run(rvi_cpu_of(be)->pool, chill_layer, &c, kv->spec.n_layers);
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
        int32_t page = j->rows[r].pages[pos / RVI_PAGE_TOKENS];
        const rvi_kv_form *f = &kv->forms[0];
        uint8_t *planes = rvi_kv_planes(kv, f, page, j->il, head);
        write_key(&j->cpu->k, kv, f->type, planes, slot, rvi_cpu_row(j->k, r) + at,
                  kv->scratch[worker].row);
        write_value(&j->cpu->k, kv, f->type, planes + f->k_bytes, slot, rvi_cpu_row(j->v, r) + at);
    }
}

/* The coarser forms, as far as they are held, of a page that row `task` has filled. */
static void coarsen_task(void *ctx, int task, int worker)
{
    const job *j = ctx;
    const rvi_kv_store *kv = j->kv;
    int pos = j->rows[task].pos;
    if (pos % RVI_PAGE_TOKENS != RVI_PAGE_TOKENS - 1) return;
    int32_t page = j->rows[task].pages[pos / RVI_PAGE_TOKENS];
    for (int h = 0; h < kv->spec.n_kv_heads; h++) {
        if (rvi_kv_has(&kv->forms[1], page))
            warm_head(&j->cpu->k, kv, page, j->il, h, &kv->scratch[worker]);
        if (kv->n_forms > 2 && rvi_kv_has(&kv->forms[2], page)) chill_head(kv, page, j->il, h);
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
        for (int r = 0; is_tiered(kv) && r < n_rows; r++) coarsen_task(&j, r, 0);
        return;
    }
    /* pages, in a few tasks for each thread */
    j.n_pieces = RVI_MIN((n_rows + RVI_PAGE_TOKENS - 1) / RVI_PAGE_TOKENS,
                         (TASKS_A_THREAD * threads + heads - 1) / heads);
    rvi_pool_run(j.cpu->pool, write_task, &j, heads * j.n_pieces);
    if (is_tiered(kv)) rvi_pool_run(j.cpu->pool, coarsen_task, &j, n_rows);
}

double rvi_cpu_kv_row_bytes(const rvi_kv_store *kv)
{
    const rvi_kv_form *f = &kv->forms[is_tiered(kv)]; /* most of what is read is in the second */
    return (double)kv->spec.n_kv_heads * (double)(f->k_bytes + f->v_bytes) / RVI_PAGE_TOKENS;
}
