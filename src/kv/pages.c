#include "kv/pages.h"

#include <string.h>

#include "base/mem.h"

struct rvi_pages {
    rvi_backend *be;
    rvi_kv_store *store;
    int total, n_free, n_idle;
    int32_t *refs;
    bool *kept;         /* by somebody who is no sequence */
    bool *touched;      /* the system may have given memory for it */
    int32_t *free_list; /* the first n_free are free pages */
    int budget;         /* in hot pages; 0: none */
    int allowed;
    bool tiered;
    int warm_pages; /* INT32_MAX: there is no cold form */
    int n_with[RVI_KV_COLD + 1];
};

rv_status rvi_pages_new(rvi_pages **out, rvi_backend *be, const rvi_kv_spec *spec, rv_error *err)
{
    *out = NULL;
    rvi_pages *p = rvi_zalloc(sizeof *p);
    if (!p) return rvi_nomem(err, "page pool");
    size_t n = (size_t)RVI_MAX(spec->n_pages, 1);
    p->be = be;
    p->tiered = spec->type == RV_KV_WARM || spec->type == RV_KV_TIERED;
    p->warm_pages = spec->type == RV_KV_TIERED ? spec->warm_pages : INT32_MAX;
    p->total = p->n_free = p->allowed = (int)n;
    p->refs = rvi_zalloc_array(n, sizeof *p->refs);
    p->kept = rvi_zalloc_array(n, sizeof *p->kept);
    p->touched = rvi_zalloc_array(n, sizeof *p->touched);
    p->free_list = rvi_alloc_array(n, sizeof *p->free_list);
    rv_status st = RV_OK;
    if (!p->refs || !p->kept || !p->touched || !p->free_list) st = rvi_nomem(err, "page pool");
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
    rvi_free(p->touched);
    rvi_free(p->free_list);
    rvi_free(p);
}

/* What a page in each form takes, in 32nds of a hot one (docs/KV.md). */
enum { HOT_PARTS = 32, WARM_PARTS = 17, COLD_PARTS = 9 };

/* Pages that can be taken. */
static int room(const rvi_pages *p)
{
    if (!p->budget) return p->n_free;
    int64_t parts = (int64_t)p->n_with[RVI_KV_HOT] * HOT_PARTS +
                    (int64_t)p->n_with[RVI_KV_WARM] * WARM_PARTS +
                    (int64_t)p->n_with[RVI_KV_COLD] * COLD_PARTS;
    int64_t left = (int64_t)p->budget * HOT_PARTS - parts;
    return left > 0 ? (int)RVI_MIN(left / HOT_PARTS, p->n_free) : 0;
}

int rvi_pages_in_use(const rvi_pages *p)
{
    return rvi_pages_most(p) - room(p);
}

int rvi_pages_most(const rvi_pages *p)
{
    return p->budget ? p->budget : p->total;
}

int rvi_pages_total(const rvi_pages *p)
{
    return RVI_MIN(rvi_pages_most(p), p->allowed);
}

void rvi_pages_allow(rvi_pages *p, int n)
{
    p->allowed = n;
}

void rvi_pages_release_free(rvi_pages *p)
{
    if (p->tiered || !p->be->ops->kv_hold) return; /* rvi_pages_trim does it */
    for (int i = 0; i < p->n_free; i++) {
        int32_t page = p->free_list[i];
        if (p->touched[page]) p->be->ops->kv_hold(p->be, p->store, page, 0);
        p->touched[page] = false;
    }
}

void rvi_pages_limit(rvi_pages *p, int n)
{
    p->budget = p->tiered ? RVI_MIN(n, p->total) : 0;
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

/* ---- forms ---- */

static unsigned forms_of(const rvi_pages *p, int32_t page)
{
    return p->be->ops->kv_forms(p->store, page);
}

bool rvi_pages_is_tiered(const rvi_pages *p)
{
    return p->tiered;
}

static void count_forms(rvi_pages *p, unsigned forms, int by)
{
    for (unsigned f = RVI_KV_HOT; f <= RVI_KV_COLD; f <<= 1) p->n_with[f] += forms & f ? by : 0;
}

static void hold(rvi_pages *p, int32_t page, unsigned forms)
{
    count_forms(p, forms_of(p, page), -1);
    count_forms(p, forms, 1);
    p->be->ops->kv_hold(p->be, p->store, page, forms);
}

int rvi_pages_with(const rvi_pages *p, unsigned form)
{
    return p->n_with[form];
}

size_t rvi_pages_form_bytes(const rvi_pages *p, unsigned form)
{
    size_t bytes = rvi_pages_bytes(p);
    if (!p->tiered) return form == RVI_KV_HOT ? bytes : 0;
    if (form == RVI_KV_COLD && p->warm_pages == INT32_MAX) return 0;
    int parts = form == RVI_KV_HOT ? HOT_PARTS : form == RVI_KV_WARM ? WARM_PARTS : COLD_PARTS;
    return bytes * (size_t)parts / WARM_PARTS; /* as bytes it is warm */
}

bool rvi_pages_is_finer(const rvi_pages *p, int32_t a, int32_t b)
{
    if (!p->tiered) return false;
    unsigned mine = forms_of(p, a), other = forms_of(p, b);
    return mine != other && (mine & other) == other;
}

bool rvi_pages_can_grow(const rvi_pages *p, int32_t page)
{
    return !p->tiered || forms_of(p, page) & RVI_KV_HOT;
}

/* The first of the pages before `own` that a row in it would read warm and cannot; own: none. */
static int first_too_cold(const rvi_pages *p, const int32_t *pages, int own)
{
    int i = own > p->warm_pages ? own - p->warm_pages : 0;
    while (i < own && forms_of(p, pages[i]) & RVI_KV_WARM) i++;
    return i;
}

int rvi_pages_reusable(const rvi_pages *p, const int32_t *pages, int len)
{
    if (!p->tiered) return len;
    int own = len / RVI_PAGE_TOKENS, able;
    if (len % RVI_PAGE_TOKENS && !rvi_pages_can_grow(p, pages[own])) len = own * RVI_PAGE_TOKENS;
    while ((able = first_too_cold(p, pages, own)) < own) {
        own = able;
        len = own * RVI_PAGE_TOKENS;
    }
    return len;
}

/* ---- */

static int32_t take(rvi_pages *p)
{
    int32_t page = p->free_list[--p->n_free];
    p->refs[page] = 1;
    p->touched[page] = true;
    if (p->tiered) hold(p, page, RVI_KV_HOT);
    return page;
}

static void retain(rvi_pages *p, int32_t page)
{
    p->n_idle -= p->kept[page] && p->refs[page] == 1;
    p->refs[page]++;
}

static void release(rvi_pages *p, int32_t page)
{
    if (--p->refs[page] == 0) {
        p->free_list[p->n_free++] = page;
        if (p->tiered) hold(p, page, 0);
    }
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

int rvi_pages_held(const rvi_pages *p)
{
    return p->total - p->n_free - p->n_idle;
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

/* Others that begin as this text does may want the warm forms of its first pages, without which
 * they would have to begin anew: those that are kept stay warm, unless this is about room. */
static void drop_unread(rvi_pages *p, int32_t page, int i, int first, int last, int n_warm)
{
    unsigned had = forms_of(p, page), want = had;
    if (last - i > n_warm && !(had & RVI_KV_COLD)) {
        hold(p, page, had = want |= RVI_KV_COLD);
        p->be->ops->kv_chill(p->be, p->store, page);
    }
    if (p->refs[page] - p->kept[page] > 1) return;
    want &= ~(unsigned)RVI_KV_HOT;
    if (first - i > n_warm && !(p->kept[page] && i < p->warm_pages && n_warm))
        want &= ~(unsigned)RVI_KV_WARM;
    if (want != had) hold(p, page, want);
}

/* Pages that the sequence's rows read warm. */
static int warm_of(const rvi_seq *s)
{
    return s->coarse ? 0 : s->pool->warm_pages;
}

void rvi_seq_coarsen(rvi_seq *s)
{
    s->coarse = true;
    for (int i = 0, n = s->len / RVI_PAGE_TOKENS; i < n; i++)
        drop_unread(s->pool, s->pages[i], i, n, n, 0);
}

void rvi_seq_drop_unread(const rvi_seq *s, int first, int last)
{
    rvi_pages *p = s->pool;
    if (!p->tiered) return;
    int filled = (last + 1) / RVI_PAGE_TOKENS;
    first /= RVI_PAGE_TOKENS;
    last /= RVI_PAGE_TOKENS;
    for (int i = 0; i < first; i++) drop_unread(p, s->pages[i], i, first, last, warm_of(s));
    for (int i = first; i < filled; i++) /* by these rows, which may read it cold */
        hold(p, s->pages[i], RVI_KV_HOT | RVI_KV_WARM | (last - i > warm_of(s) ? RVI_KV_COLD : 0));
}

void rvi_pages_trim(rvi_pages *p, int n)
{
    if (p->tiered) p->be->ops->kv_trim(p->be, p->store, n);
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
        if (p->tiered) hold(p, own, forms_of(p, old));
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
    out->coarse = from->coarse;
    if (!st) rvi_seq_adopt(out, from->pages, from->len);
    return st;
}

void rvi_seq_read_page(const rvi_seq *s, int i, void *to)
{
    s->pool->be->ops->kv_read_page(s->pool->be, s->pool->store, s->pages[i], to);
}

void rvi_seq_write_page(rvi_seq *s, int i, const void *from)
{
    rvi_pages *p = s->pool;
    if (p->tiered) count_forms(p, forms_of(p, s->pages[i]), -1);
    p->be->ops->kv_write_page(p->be, p->store, s->pages[i], from);
    if (p->tiered) count_forms(p, forms_of(p, s->pages[i]), 1);
}
