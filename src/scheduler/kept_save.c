/* Writing sessions. Pages that are new go where the file of pages has none that the head of before
 * names; where nothing of it can be used any more, into a file of another number. Then comes the
 * head that names them. */
#include "scheduler/sessions_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct rvi_save {
    rvi_kept_session *k;
    rvi_kept_head h;
    uint64_t bytes;   /* of both files */
    rvi_buf head;     /* as it will be: checksums of pages as they come */
    int n_before;     /* pages that are in the file already */
    uint32_t *places; /* of all pages */
    uint64_t n_places;
    rvi_seq pages; /* the others, held until they are copied */
    int n_new, n_copied;
    uint8_t *piece; /* copies that wait to be written */
    size_t piece_len;
    rvi_buf to, part; /* the file of pages; the name that a new one has until it is whole */
    FILE *f;
    bool reserved, over;
    rv_status st;
    rv_error why;
};

/* ---- what is saved ---- */

/* How many tokens from the beginning were computed with the same adapters, or all without any; 0:
 * with some that no digest tells. */
static size_t kept_run(const rvi_session *s, const uint8_t **set)
{
    size_t n = 0, len = (size_t)s->seq.len;
    uint64_t serial = len ? s->sets[0] : 0;
    bool is_own = serial && s->adapters && s->adapters->serial == serial;
    *set = is_own ? s->adapters->digest : NULL;
    if (serial && !*set) return 0;
    while (n < len && s->sets[n] == serial) n++;
    return n;
}

static bool describe(const rvi_kept_session *k, const rvi_session *s,
                     const rvi_sampler_state *sampler, rvi_kept_head *h)
{
    const rvi_engine *e = s->e;
    const uint8_t *set;
    size_t n = kept_run(s, &set);
    uint64_t now =
        RVI_MAX(rvi_sessions_clock(), k->entry->saved); /* it may have been turned back */
    *h = (rvi_kept_head){.kv_type = rvi_engine_kv_format(e),
                         .exact = e->m->be->ops->is_exact(e->m->be),
                         .page_tokens = RVI_PAGE_TOKENS,
                         .rope_set = (uint32_t)s->rope_set,
                         .has_set = set != NULL,
                         .page_bytes = rvi_pages_bytes(e->pool),
                         .began = k->entry->bytes ? k->entry->began : now,
                         .saved = now,
                         .random = sampler->random,
                         .n_ids = s->past.len,
                         .n_pages = n / RVI_PAGE_TOKENS,
                         .tenant_len = (uint32_t)strlen(k->entry->tenant),
                         .name_len = (uint32_t)strlen(k->entry->name)};
    if (h->tenant_len > RVI_KEPT_NAME || h->name_len > RVI_KEPT_NAME) return false;
    memcpy(&h->surprise, &sampler->surprise, sizeof h->surprise);
    memcpy(h->model, k->of->o.model, sizeof h->model);
    if (set) memcpy(h->set, set, sizeof h->set);
    memcpy(h->tenant, k->entry->tenant, h->tenant_len);
    memcpy(h->name, k->entry->name, h->name_len);
    return true;
}

/* How many of the file's pages are the first ones of what is saved; 0 too where somebody has
 * touched the file. */
static int agreeing_pages(const rvi_save *x, const rvi_session *s)
{
    const rvi_kept_session *k = x->k;
    const rvi_kept_head *h = &x->h;
    size_t n = (size_t)RVI_MIN((uint64_t)k->n_pages, h->n_pages) * RVI_PAGE_TOKENS, i = 0;
    if (!n || h->rope_set != (uint32_t)k->rope_set || h->has_set != k->has_set ||
        memcmp(h->set, k->set_digest, sizeof h->set))
        return 0;
    rvi_os_version now = rvi_os_version_of(x->to.data);
    if (memcmp(&now, &k->entry->known, sizeof now)) return 0;
    while (i < n && s->past.data[i] == rvi_kept_id(k, i)) i++;
    return (int)(i / RVI_PAGE_TOKENS);
}

/* New pages take the first places that the head of before does not name. */
static rv_status place_pages(rvi_save *x, rv_error *err)
{
    const rvi_kept_session *k = x->k;
    size_t n = (size_t)x->h.n_pages, n_before = (size_t)x->n_before;
    size_t n_taken = n_before ? (size_t)k->n_pages : 0, most = (size_t)k->n_places + n, at = 0;
    x->places = rvi_alloc_array(n, sizeof *x->places);
    bool *taken = rvi_zalloc_array(most, sizeof *taken);
    bool ok = (x->places || !n) && (taken || !most);
    for (size_t i = 0; ok && i < n_taken; i++) taken[rvi_kept_place(k, i)] = true;
    for (size_t i = 0; ok && i < n; i++) {
        if (i >= n_before)
            while (taken[at]) at++;
        x->places[i] = (uint32_t)(i < n_before ? rvi_kept_place(k, i) : at++);
        x->n_places = RVI_MAX(x->n_places, (uint64_t)x->places[i] + 1);
    }
    rvi_free(taken);
    return ok ? RV_OK : rvi_nomem(err, "session");
}

static bool put(rvi_buf *b, uint32_t v)
{
    uint8_t bytes[4] = {(uint8_t)v, (uint8_t)(v >> 8), (uint8_t)(v >> 16), (uint8_t)(v >> 24)};
    return rvi_buf_append(b, bytes, sizeof bytes);
}

/* As far as it is known before a page is written. */
static bool begin_head(rvi_save *x, const rvi_ids *past)
{
    bool ok = rvi_kept_head_put(&x->head, &x->h);
    for (size_t i = 0; ok && i < past->len; i++) ok = put(&x->head, (uint32_t)past->data[i]);
    for (size_t i = 0; ok && i < x->h.n_pages; i++) ok = put(&x->head, x->places[i]);
    return ok && rvi_buf_append(&x->head, x->k->digests, (size_t)x->n_before * RVI_SHA256_LEN);
}

static rv_status begin(rvi_save *x, const rvi_session *s, const rvi_sampler_state *sampler,
                       rv_error *err)
{
    rvi_kept_session *k = x->k;
    const char *path = k->entry->path;
    if (!describe(k, s, sampler, &x->h))
        return rvi_error(err, RV_E_CONFIG, "tenant and session have at most %d bytes",
                         RVI_KEPT_NAME);
    if (!rvi_kept_pages_path(path, k->number, &x->to)) return rvi_nomem(err, "session");
    x->n_before = agreeing_pages(x, s);
    x->n_new = (int)x->h.n_pages - x->n_before;
    x->h.number = k->number + !x->n_before;
    if (!x->n_before) x->to.len = 0;
    rv_status st = place_pages(x, err);
    if (!st && ((!x->n_before && !rvi_kept_pages_path(path, x->h.number, &x->to)) ||
                !begin_head(x, &s->past)))
        st = rvi_nomem(err, "session");
    x->bytes =
        x->head.len + (uint64_t)(x->n_new + 1) * RVI_SHA256_LEN + x->n_places * x->h.page_bytes;
    int n = x->n_new * RVI_PAGE_TOKENS;
    if (!st && n) st = rvi_seq_init(&x->pages, s->seq.pool, n, err);
    if (!st && n) rvi_seq_adopt(&x->pages, s->seq.pages + x->n_before, n);
    return st;
}

rv_status rvi_save_begin(rvi_save **out, rvi_kept_session *k, const rvi_session *s,
                         const rvi_sampler_state *sampler, rv_error *err)
{
    *out = NULL;
    rvi_save *x = rvi_zalloc(sizeof *x);
    if (!x) return rvi_nomem(err, "session");
    x->k = k;
    rv_status st = begin(x, s, sampler, err);
    if (st)
        rvi_save_free(x);
    else
        *out = x;
    return st;
}

/* ---- copying ---- */

/* So many pages at a time that copying them takes two or three milliseconds. */
static size_t pages_at_once(const rvi_save *x)
{
    const uint64_t most = 8 << 20;
    return (size_t)RVI_MIN(RVI_MAX(most / x->h.page_bytes, 1), (uint64_t)x->n_new);
}

void rvi_save_fill(rvi_save *x)
{
    size_t page = (size_t)x->h.page_bytes, most = pages_at_once(x);
    if (!x->pages.n_pages || x->st) return;
    if (!x->piece && !(x->piece = rvi_alloc_array(most, page))) {
        x->st = rvi_nomem(&x->why, "session");
        return;
    }
    for (x->piece_len = 0; x->piece_len < most * page && x->n_copied < x->n_new;
         x->piece_len += page)
        rvi_seq_read_page(&x->pages, x->n_copied++, x->piece + x->piece_len);
    if (x->n_copied == x->n_new) rvi_seq_deinit(&x->pages);
}

bool rvi_save_is_over(const rvi_save *x)
{
    return x->over;
}

/* ---- writing ---- */

/* Takes the bytes of what will be there, or does nothing. */
static rv_status reserve(rvi_save *x)
{
    rvi_sessions *s = x->k->of;
    uint64_t before = x->k->entry->bytes;
    rv_status st = RV_OK;
    rvi_lock_take(s->lock);
    rvi_sessions_drop_old(s);
    if (s->o.max_bytes && s->bytes - before + x->bytes > s->o.max_bytes)
        st = rvi_error(&x->why, RV_E_STORAGE, "sessions have %llu bytes, and %llu is the limit",
                       (unsigned long long)(s->bytes - before + x->bytes),
                       (unsigned long long)s->o.max_bytes);
    else
        s->bytes += x->bytes;
    rvi_lock_give(s->lock);
    x->reserved = !st;
    return st;
}

/* saved: the new head is in its place; otherwise the one before. */
static void record(rvi_save *x, bool saved)
{
    rvi_kept_entry *entry = x->k->entry;
    rvi_lock_take(x->k->of->lock);
    if (x->reserved) x->k->of->bytes -= saved ? entry->bytes : x->bytes;
    if (saved) {
        entry->bytes = x->bytes;
        entry->number = x->h.number;
        entry->known = rvi_os_version_of(x->to.data);
        entry->saved_here = rvi_os_seconds();
        if (!entry->saved) entry->begun_here = entry->saved_here;
        entry->began = x->h.began;
        entry->saved = x->h.saved;
    }
    rvi_lock_give(x->k->of->lock);
    x->reserved = false;
}

static rv_status open_pages(rvi_save *x)
{
    rv_status st = reserve(x);
    if (st || !x->n_new) return st;
    if (!x->n_before) return rvi_os_create_beside(x->to.data, &x->part, &x->f, &x->why);
    x->f = fopen(x->to.data, "r+b");
    if (!x->f)
        return rvi_error(&x->why, RV_E_IO, "cannot write %s: %s", x->to.data, strerror(errno));
    return RV_OK;
}

static rv_status add_piece(rvi_save *x)
{
    size_t page = (size_t)x->h.page_bytes, n = x->piece_len / page;
    const uint32_t *places = x->places + x->n_before + x->n_copied - n;
    rv_status st = RV_OK;
    for (size_t i = 0; !st && i < n; i++) {
        const uint8_t *data = x->piece + i * page;
        uint8_t digest[RVI_SHA256_LEN];
        rvi_sha256 sum;
        rvi_sha256_init(&sum);
        rvi_sha256_add(&sum, data, page);
        rvi_sha256_end(&sum, digest);
        if (!rvi_buf_append(&x->head, digest, sizeof digest)) return rvi_nomem(&x->why, "session");
        st = rvi_os_seek(x->f, places[i] * (uint64_t)page, x->to.data, &x->why);
        if (!st) st = rvi_os_write(x->f, data, page, x->to.data, &x->why);
    }
    return st;
}

static rv_status close_file(FILE *f, const char *path, rv_status st, rv_error *err)
{
    if (!st) st = rvi_os_sync(f, path, err);
    if (fclose(f) && !st)
        st = rvi_error(err, RV_E_IO, "cannot write %s: %s", path, strerror(errno));
    return st;
}

/* The pages are on the disk, under their name. */
static rv_status end_pages(rvi_save *x)
{
    if (!x->f) return x->st;
    rv_status st = close_file(x->f, x->to.data, x->st, &x->why);
    x->f = NULL;
    if (x->n_before) return st;
    if (!st) st = rvi_os_replace(x->part.data, x->to.data, &x->why);
    if (!st) st = rvi_os_sync_parent(x->to.data, &x->why);
    if (st) (void)remove(x->part.data);
    return st;
}

static rv_status write_head(rvi_save *x)
{
    const char *path = x->k->entry->path;
    uint8_t digest[RVI_SHA256_LEN];
    rvi_sha256 sum;
    rvi_buf part = {0};
    FILE *f = NULL;
    rvi_sha256_init(&sum);
    rvi_sha256_add(&sum, x->head.data, x->head.len);
    rvi_sha256_end(&sum, digest);
    rv_status st =
        rvi_buf_append(&x->head, digest, sizeof digest) ? RV_OK : rvi_nomem(&x->why, "session");
    if (!st) st = rvi_os_create_beside(path, &part, &f, &x->why);
    if (f)
        st =
            close_file(f, path, rvi_os_write(f, x->head.data, x->head.len, path, &x->why), &x->why);
    if (!st) st = rvi_os_replace(part.data, path, &x->why);
    if (st && f) (void)remove(part.data);
    rvi_buf_deinit(&part);
    return st;
}

/* All pages are written, or something failed. */
static void finish(rvi_save *x)
{
    rvi_kept_session *k = x->k;
    const char *path = k->entry->path;
    rv_error why;
    x->st = end_pages(x);
    if (!x->st) x->st = write_head(x);
    bool saved = !x->st;
    if (!x->n_before)
        rvi_kept_remove_pages(path, saved ? k->number : x->h.number);
    else if (x->reserved) /* nothing counts behind these */
        rvi_os_cut(x->to.data, (saved ? x->n_places : (uint64_t)k->n_places) * x->h.page_bytes);
    record(x, saved);
    if (saved && (x->st = rvi_os_sync_parent(path, &why)))
        x->st =
            rvi_error(&x->why, x->st,
                      "session '%.64s' goes on from here, but a power failure may undo that: %s",
                      k->entry->name, why.text);
    x->over = true;
}

void rvi_save_write(rvi_save *x)
{
    bool first = !x->reserved;
    if (first) rvi_blob_close(&x->k->file); /* nothing of it is needed any more */
    if (!x->st && first) x->st = open_pages(x);
    if (!x->st && x->piece_len) x->st = add_piece(x);
    x->piece_len = 0;
    if (x->st || x->n_copied == x->n_new) finish(x);
}

rv_status rvi_save_result(const rvi_save *x, rv_error *err)
{
    if (x->st && err) *err = x->why;
    return x->st;
}

void rvi_save_free(rvi_save *x)
{
    if (!x) return;
    if (!x->over) {
        x->st = RV_E_CANCELLED;
        finish(x);
    }
    rvi_seq_deinit(&x->pages);
    rvi_buf_deinit(&x->head);
    rvi_buf_deinit(&x->to);
    rvi_buf_deinit(&x->part);
    rvi_free(x->places);
    rvi_free(x->piece);
    rvi_free(x);
}
