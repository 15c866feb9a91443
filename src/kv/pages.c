#include "kv/pages.h"

#include <string.h>

#include "base/mem.h"

struct rvi_pages {
    rvi_backend *be;
    rvi_kv_store *store;
    int total, n_free, n_idle;
    int32_t *refs;
    bool *kept;         /* by somebody who is no sequence */
    int32_t *free_list; /* the first n_free are free pages */
};

rv_status rvi_pages_new(rvi_pages **out, rvi_backend *be, const rvi_kv_spec *spec, rv_error *err)
{
    *out = NULL;
    rvi_pages *p = rvi_zalloc(sizeof *p);
    if (!p) return rvi_nomem(err, "page pool");
    size_t n = (size_t)RVI_MAX(spec->n_pages, 1);
    p->be = be;
    p->total = p->n_free = (int)n;
    p->refs = rvi_zalloc_array(n, sizeof *p->refs);
    p->kept = rvi_zalloc_array(n, sizeof *p->kept);
    p->free_list = rvi_alloc_array(n, sizeof *p->free_list);
    rv_status st = RV_OK;
    if (!p->refs || !p->kept || !p->free_list) st = rvi_nomem(err, "page pool");
    rvi_kv_spec full = *spec;
    full.n_pages = (int)n;
    if (!st) st = be->ops->kv_new(be, &p->store, &full, err);
    if (st) {
        rvi_pages_free(p);
        return st;
    }
    for (int i = 0; i < p->total; i++) p->free_list[i] = p->total - 1 - i; /* page 0 goes first */
    *out = p;
    return RV_OK;
}

void rvi_pages_free(rvi_pages *p)
{
    if (!p) return;
    p->be->ops->kv_free(p->be, p->store);
    rvi_free(p->refs);
    rvi_free(p->kept);
    rvi_free(p->free_list);
    rvi_free(p);
}

int rvi_pages_in_use(const rvi_pages *p)
{
    return p->total - p->n_free;
}

int rvi_pages_total(const rvi_pages *p)
{
    return p->total;
}

int rvi_pages_refs(const rvi_pages *p, int32_t page)
{
    return p->refs[page];
}

rvi_kv_store *rvi_pages_store(const rvi_pages *p)
{
    return p->store;
}

size_t rvi_pages_bytes(const rvi_pages *p)
{
    return p->be->ops->kv_page_bytes(p->store);
}

static int32_t take(rvi_pages *p)
{
    int32_t page = p->free_list[--p->n_free];
    p->refs[page] = 1;
    return page;
}

static void retain(rvi_pages *p, int32_t page)
{
    p->n_idle -= p->kept[page] && p->refs[page] == 1;
    p->refs[page]++;
}

static void release(rvi_pages *p, int32_t page)
{
    if (--p->refs[page] == 0) p->free_list[p->n_free++] = page;
    p->n_idle += p->kept[page] && p->refs[page] == 1;
}

void rvi_pages_keep(rvi_pages *p, int32_t page)
{
    retain(p, page);
    p->kept[page] = true;
}

void rvi_pages_unkeep(rvi_pages *p, int32_t page)
{
    p->n_idle -= p->refs[page] == 1;
    p->kept[page] = false;
    release(p, page);
}

int rvi_pages_idle(const rvi_pages *p)
{
    return p->n_idle;
}

static int pages_for(int len)
{
    return (len + RVI_PAGE_TOKENS - 1) / RVI_PAGE_TOKENS;
}

rv_status rvi_seq_init(rvi_seq *s, rvi_pages *pool, int max_len, rv_error *err)
{
    *s = (rvi_seq){.pool = pool, .max_len = max_len};
    if (max_len < 1 || max_len > INT32_MAX - RVI_PAGE_TOKENS)
        return rvi_error(err, RV_E_TOO_LONG, "the length of a sequence must be 1..%d (got %d)",
                         INT32_MAX - RVI_PAGE_TOKENS, max_len);
    s->pages = rvi_alloc_array((size_t)pages_for(max_len), sizeof *s->pages);
    return s->pages ? RV_OK : rvi_nomem(err, "block table");
}

void rvi_seq_deinit(rvi_seq *s)
{
    if (s->pages) rvi_seq_truncate(s, 0);
    rvi_free(s->pages);
    *s = (rvi_seq){0};
}

static bool is_last_shared(const rvi_seq *s)
{
    return s->len % RVI_PAGE_TOKENS && s->pool->refs[s->pages[s->n_pages - 1]] > 1;
}

int rvi_seq_wants(const rvi_seq *s, int n)
{
    return n ? pages_for(s->len + n) - s->n_pages + is_last_shared(s) : 0;
}

rv_status rvi_seq_extend(rvi_seq *s, int n, rv_error *err)
{
    rvi_pages *p = s->pool;
    if (n < 0 || n > s->max_len - s->len)
        return rvi_error(err, RV_E_TOO_LONG, "%d tokens do not fit: the sequence has %d of %d", n,
                         s->len, s->max_len);
    if (n == 0) return RV_OK;
    bool shared = is_last_shared(s);
    int more = pages_for(s->len + n) - s->n_pages;
    if (more + shared > p->n_free)
        return rvi_error(err, RV_E_NO_PAGES, "the KV cache is full: %d pages wanted, %d of %d free",
                         more + shared, p->n_free, p->total);
    if (shared) {
        int32_t old = s->pages[s->n_pages - 1], own = take(p);
        p->be->ops->kv_copy_page(p->be, p->store, own, old);
        s->pages[s->n_pages - 1] = own;
        release(p, old);
    }
    while (more-- > 0) s->pages[s->n_pages++] = take(p);
    s->len += n;
    return RV_OK;
}

void rvi_seq_truncate(rvi_seq *s, int len)
{
    int keep = pages_for(len);
    while (s->n_pages > keep) release(s->pool, s->pages[--s->n_pages]);
    s->len = len;
}

void rvi_seq_adopt(rvi_seq *s, const int32_t *pages, int len)
{
    s->n_pages = pages_for(len);
    for (int i = 0; i < s->n_pages; i++) {
        s->pages[i] = pages[i];
        retain(s->pool, pages[i]);
    }
    s->len = len;
}

rv_status rvi_seq_fork(rvi_seq *out, const rvi_seq *from, rv_error *err)
{
    rv_status st = rvi_seq_init(out, from->pool, from->max_len, err);
    if (!st) rvi_seq_adopt(out, from->pages, from->len);
    return st;
}

void rvi_seq_read_page(const rvi_seq *s, int i, void *to)
{
    s->pool->be->ops->kv_read_page(s->pool->be, s->pool->store, s->pages[i], to);
}

void rvi_seq_write_page(rvi_seq *s, int i, const void *from)
{
    s->pool->be->ops->kv_write_page(s->pool->be, s->pool->store, s->pages[i], from);
}
