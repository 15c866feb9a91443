#include "scheduler/sessions_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/os.h"
#include "scheduler/vectors.h"

/* ---- the table ---- */

static char *copy_text(const char *text)
{
    size_t len = strlen(text) + 1;
    char *copy = rvi_alloc_array(len, 1);
    if (copy) memcpy(copy, text, len);
    return copy;
}

static void entry_free(rvi_kept_entry *x)
{
    if (!x) return;
    rvi_free(x->tenant);
    rvi_free(x->name);
    rvi_free(x->path);
    rvi_free(x);
}

static void remove_entry(rvi_sessions *s, rvi_kept_entry *x)
{
    rvi_kept_entry **at = &s->entries;
    while (*at != x) at = &(*at)->next;
    *at = x->next;
    s->bytes -= x->bytes;
    entry_free(x);
}

/* Names may hold anything: a file's is the hash of them. */
static bool path_of(const rvi_sessions *s, const char *tenant, const char *name, rvi_buf *out)
{
    rvi_sha256 h;
    char hex[RVI_SHA256_HEX];
    rvi_sha256_init(&h);
    rvi_sha256_add(&h, tenant, strlen(tenant) + 1);
    rvi_sha256_add(&h, name, strlen(name) + 1);
    rvi_sha256_add(&h, s->o.model, strlen(s->o.model));
    rvi_sha256_end_hex(&h, hex);
    return rvi_buf_printf(out, "%s/%s" RVI_KEPT_HEAD, s->dir, hex);
}

static rvi_kept_entry *add_entry(rvi_sessions *s, const char *tenant, const char *name)
{
    rvi_buf path = {0};
    rvi_kept_entry *x = rvi_zalloc(sizeof *x);
    if (x && path_of(s, tenant, name, &path)) {
        x->path = copy_text(path.data);
        x->tenant = copy_text(tenant);
        x->name = copy_text(name);
    }
    rvi_buf_deinit(&path);
    if (!x || !x->path || !x->tenant || !x->name) {
        entry_free(x);
        return NULL;
    }
    x->next = s->entries;
    s->entries = x;
    return x;
}

static rvi_kept_entry *find(const rvi_sessions *s, const char *tenant, const char *name)
{
    rvi_kept_entry *x = s->entries;
    while (x && (strcmp(x->tenant, tenant) || strcmp(x->name, name))) x = x->next;
    return x;
}

uint64_t rvi_sessions_clock(void)
{
    return (uint64_t)time(NULL);
}

/* A clock that was turned back makes nothing older, and one that was put forward nothing that this
 * process knows to be younger. */
static bool is_past(uint64_t now, uint64_t then, double here, double limit)
{
    if (limit <= 0 || now <= then || (double)(now - then) <= limit) return false;
    return here <= 0 || rvi_os_seconds() - here > limit;
}

void rvi_kept_remove_pages(const char *path, uint64_t number)
{
    rvi_buf pages = {0};
    if (number && rvi_kept_pages_path(path, number, &pages)) (void)remove(pages.data);
    rvi_buf_deinit(&pages);
}

/* Its head is gone. */
static void drop(rvi_sessions *s, rvi_kept_entry *x)
{
    rvi_vectors_remove(x->path);
    rvi_kept_remove_pages(x->path, x->number);
    remove_entry(s, x);
}

void rvi_sessions_drop_old(rvi_sessions *s)
{
    uint64_t now = rvi_sessions_clock();
    for (rvi_kept_entry *x = s->entries, *next; x; x = next) {
        next = x->next;
        if (x->claimed || !x->bytes) continue;
        if (!is_past(now, x->saved, x->saved_here, s->o.idle) &&
            !is_past(now, x->began, x->begun_here, s->o.age))
            continue;
        (void)remove(x->path);
        drop(s, x);
    }
}

/* ---- lifetimes ---- */

static bool ends_in(const char *name, const char *end)
{
    size_t len = strlen(name), n = strlen(end);
    return len > n && !strcmp(name + len - n, end);
}

static uint64_t size_of_pages(const char *path, uint64_t number)
{
    rvi_buf pages = {0};
    uint64_t size = 0;
    if (rvi_kept_pages_path(path, number, &pages)) (void)rvi_os_stat(pages.data, &size);
    rvi_buf_deinit(&pages);
    return size;
}

/* A head that cannot be read is left alone: asking for its session says what is wrong. */
static int list_file(void *ctx, const char *name)
{
    rvi_sessions *s = ctx;
    uint8_t bytes[RVI_KEPT_HEADER];
    rvi_buf path = {0};
    uint64_t size = 0;
    rvi_kept_head h;
    if (!ends_in(name, RVI_KEPT_HEAD)) return 0;
    bool ok = rvi_buf_printf(&path, "%s/%s", s->dir, name);
    FILE *f = ok && rvi_os_stat(path.data, &size) == RVI_OS_FILE ? fopen(path.data, "rb") : NULL;
    rvi_cursor c = {.data = bytes, .len = f ? fread(bytes, 1, sizeof bytes, f) : 0};
    if (f) fclose(f);
    rvi_buf_deinit(&path);
    if (!ok) return 1;
    if (!rvi_kept_head_read(&c, &h) || strcmp(h.model, s->o.model) || find(s, h.tenant, h.name))
        return 0;
    rvi_kept_entry *x = add_entry(s, h.tenant, h.name);
    if (!x) return 1;
    x->began = h.began;
    x->saved = h.saved;
    x->number = h.number;
    s->bytes += x->bytes = size + size_of_pages(x->path, h.number);
    return 0;
}

/* What a kill has left of heads that were being written. */
static int drop_part(void *ctx, const char *name)
{
    const rvi_sessions *s = ctx;
    rvi_buf path = {0};
    if (!strstr(name, RVI_KEPT_HEAD) || ends_in(name, RVI_KEPT_HEAD))
        return rvi_vectors_clean(s->dir, name);
    if (rvi_buf_printf(&path, "%s/%s", s->dir, name)) (void)remove(path.data);
    rvi_buf_deinit(&path);
    return 0;
}

typedef struct stale {
    const rvi_sessions *s;
    const char *of; /* path of a head, whose pages alone are looked at; NULL: all */
} stale;

/* Pages that no head names. */
static int drop_stale(void *ctx, const char *name)
{
    const stale *w = ctx;
    const rvi_sessions *s = w->s;
    rvi_buf path = {0}, head = {0};
    size_t stem;
    uint64_t number;
    bool is_part;
    if (!rvi_kept_is_pages(name, &stem, &number, &is_part)) return 0;
    bool ok = rvi_buf_printf(&path, "%s/%s", s->dir, name) &&
              rvi_buf_printf(&head, "%s/%.*s" RVI_KEPT_HEAD, s->dir, (int)stem, name);
    if (ok && (!w->of || !strcmp(head.data, w->of))) {
        const rvi_kept_entry *x = s->entries;
        while (x && strcmp(x->path, head.data)) x = x->next;
        if (is_part || (x ? x->number != number : rvi_os_stat(head.data, NULL) == RVI_OS_NONE))
            (void)remove(path.data);
    }
    rvi_buf_deinit(&path);
    rvi_buf_deinit(&head);
    return !ok;
}

rv_status rvi_sessions_new(rvi_sessions **out, const rvi_engine *e, const rvi_sessions_options *o,
                           rv_error *err)
{
    *out = NULL;
    rvi_sessions *s = rvi_zalloc(sizeof *s);
    rvi_buf lock = {0};
    if (!s) return rvi_nomem(err, "sessions");
    s->o = *o;
    s->e = e;
    s->process_lock = -1;
    s->dir = copy_text(o->dir);
    rv_status st = s->dir ? rvi_os_make_private_dirs(o->dir, err) : rvi_nomem(err, "sessions");
    if (!st && !rvi_buf_printf(&lock, "%s/lock", o->dir)) st = rvi_nomem(err, "sessions");
    if (!st) st = rvi_os_lock(lock.data, &s->process_lock, err);
    if (!st) st = rvi_lock_new(&s->lock, err);
    if (!st) st = rvi_os_list(o->dir, drop_part, s, err);
    if (!st) st = rvi_os_list(o->dir, list_file, s, err);
    if (!st) st = rvi_os_list(o->dir, drop_stale, &(stale){s, NULL}, err);
    rvi_buf_deinit(&lock);
    if (!st) {
        rvi_sessions_drop_old(s);
        *out = s;
    } else {
        rvi_sessions_free(s);
    }
    return st;
}

void rvi_sessions_free(rvi_sessions *s)
{
    if (!s) return;
    while (s->entries) remove_entry(s, s->entries);
    if (s->process_lock >= 0) rvi_os_unlock(s->process_lock);
    rvi_lock_free(s->lock);
    rvi_free(s->dir);
    rvi_free(s);
}

/* ---- claims ---- */

static int count_tenant(const rvi_sessions *s, const char *tenant)
{
    int n = 0;
    for (const rvi_kept_entry *x = s->entries; x; x = x->next) n += !strcmp(x->tenant, tenant);
    return n;
}

static rv_status claim(rvi_sessions *s, const char *tenant, const char *name, rvi_kept_entry **out,
                       rv_error *err)
{
    rvi_sessions_drop_old(s);
    rvi_kept_entry *x = find(s, tenant, name);
    if (x && x->claimed)
        return rvi_error(err, RV_E_BUSY, "session '%s' has a request that has not ended", name);
    int n = x ? 0 : count_tenant(s, tenant);
    if (s->o.max_tenant && n >= s->o.max_tenant)
        return rvi_error(err, RV_E_STATE, "'%s' has %d sessions, which is the limit", tenant, n);
    if (!x && !(x = add_entry(s, tenant, name))) return rvi_nomem(err, "session");
    x->claimed = true;
    *out = x;
    return RV_OK;
}

static rv_status damaged(const rvi_kept_session *k, const char *path, rv_error *err)
{
    return rvi_error(err, RV_E_STORAGE, "session '%s': %s is damaged", k->entry->name, path);
}

static bool sum_is(const uint8_t want[RVI_SHA256_LEN], const void *data, size_t len)
{
    uint8_t digest[RVI_SHA256_LEN];
    rvi_sha256 sum;
    rvi_sha256_init(&sum);
    rvi_sha256_add(&sum, data, len);
    rvi_sha256_end(&sum, digest);
    return !memcmp(digest, want, sizeof digest);
}

static rv_status read_file(const char *path, rvi_buf *out, rv_error *err)
{
    rvi_blob file = {0};
    uint64_t size = 1;
    if (rvi_os_stat(path, &size) == RVI_OS_FILE && !size) return RV_OK;
    rv_status st = rvi_blob_open(&file, path, err);
    if (!st && !rvi_buf_append(out, file.data, file.len)) st = rvi_nomem(err, "session");
    if (!st) st = rvi_blob_check(&file, path, err);
    rvi_blob_close(&file);
    return st;
}

/* Everything in it is checked before anything of it is used. */
static rv_status load_head(rvi_kept_session *k, rvi_kept_head *h, rv_error *err)
{
    const rvi_kept_entry *x = k->entry;
    rv_status st = read_file(x->path, &k->head, err);
    if (st) return st;
    rvi_cursor c = {.data = (const uint8_t *)k->head.data, .len = k->head.len};
    bool ok = c.len > RVI_SHA256_LEN &&
              sum_is(c.data + c.len - RVI_SHA256_LEN, c.data, c.len - RVI_SHA256_LEN) &&
              rvi_kept_head_read(&c, h) && !strcmp(h->model, k->of->o.model) &&
              !strcmp(h->tenant, x->tenant) && !strcmp(h->name, x->name) &&
              h->n_ids <= RVI_MAX_CONTEXT && h->n_pages <= h->n_ids / RVI_PAGE_TOKENS &&
              h->page_bytes <= SIZE_MAX / (RVI_MAX_CONTEXT + 1) &&
              c.len - c.pos == 4 * (h->n_ids + h->n_pages) + RVI_SHA256_LEN * (h->n_pages + 1);
    if (!ok) return damaged(k, x->path, err);
    k->ids = rvi_cursor_take(&c, 4 * h->n_ids);
    k->n_ids = (size_t)h->n_ids;
    k->places = rvi_cursor_take(&c, 4 * h->n_pages);
    k->digests = rvi_cursor_take(&c, RVI_SHA256_LEN * h->n_pages);
    return RV_OK;
}

/* They are hashed unless this process has done so, or has written them, and nobody has touched the
 * file since. */
static rv_status load_pages(rvi_kept_session *k, rv_error *err)
{
    rvi_buf path = {0};
    size_t size = (size_t)k->page_bytes, n = (size_t)k->n_pages, n_places = 0;
    rv_status st =
        rvi_kept_pages_path(k->entry->path, k->number, &path) ? RV_OK : rvi_nomem(err, "session");
    rvi_os_version version = rvi_os_version_of(path.data ? path.data : "");
    for (size_t i = 0; i < n; i++) n_places = RVI_MAX(n_places, rvi_kept_place(k, i) + 1);
    bool ok = !st && n_places <= version.size / size;
    if (ok) st = rvi_blob_open(&k->file, path.data, err);
    ok = ok && (st || n_places <= k->file.len / size);
    k->n_places = ok ? (int)n_places : 0;
    if (ok && !st && memcmp(&version, &k->entry->known, sizeof version)) {
        for (size_t i = 0; ok && i < n; i++)
            ok = sum_is(k->digests + i * RVI_SHA256_LEN, rvi_kept_page(k, i), size);
        if (ok) st = rvi_blob_check(&k->file, path.data, err);
        if (ok && !st) k->entry->known = version;
    }
    if (!ok && !st) st = damaged(k, path.data, err);
    rvi_buf_deinit(&path);
    return st;
}

static rv_status load(rvi_kept_session *k, rv_error *err)
{
    const rvi_engine *e = k->of->e;
    rvi_kept_head h;
    rv_status st = load_head(k, &h, err);
    if (st) return st;
    k->sampler.random = h.random;
    memcpy(&k->sampler.surprise, &h.surprise, sizeof h.surprise);
    k->rope_set = (int)h.rope_set;
    k->has_set = h.has_set;
    memcpy(k->set_digest, h.set, sizeof h.set);
    k->number = h.number;
    k->page_bytes = h.page_bytes;
    k->entry->began = h.began;
    bool fits = h.kv_type == rvi_engine_kv_format(e) && h.page_tokens == RVI_PAGE_TOKENS &&
                h.exact == (uint32_t)e->m->be->ops->is_exact(e->m->be) &&
                h.page_bytes == rvi_pages_bytes(e->pool);
    if (fits) k->n_pages = (int)h.n_pages; /* else they are computed again */
    return k->n_pages ? load_pages(k, err) : RV_OK;
}

/* Somebody else has removed its file: the session begins anew. */
static void restart(rvi_sessions *s, rvi_kept_entry *x)
{
    rvi_vectors_remove(x->path);
    rvi_kept_remove_pages(x->path, x->number);
    rvi_lock_take(s->lock);
    s->bytes -= x->bytes;
    x->number = 0;
    x->began = x->saved = x->bytes = 0;
    x->begun_here = x->saved_here = 0;
    rvi_lock_give(s->lock);
}

rv_status rvi_sessions_claim(rvi_sessions *s, const char *tenant, const char *name,
                             rvi_kept_session **out, rv_error *err)
{
    *out = NULL;
    rvi_kept_session *k = rvi_zalloc(sizeof *k);
    if (!k) return rvi_nomem(err, "session");
    k->of = s;
    rvi_lock_take(s->lock);
    rv_status st = claim(s, tenant, name, &k->entry, err);
    rvi_lock_give(s->lock);
    bool is_there = !st && rvi_os_stat(k->entry->path, NULL) != RVI_OS_NONE;
    if (is_there) st = load(k, err);
    if (!st && !is_there) restart(s, k->entry);
    if (st)
        rvi_kept_release(k);
    else
        *out = k;
    return st;
}

void rvi_kept_release(rvi_kept_session *k)
{
    if (!k) return;
    rvi_blob_close(&k->file);
    rvi_buf_deinit(&k->head);
    if (k->entry) {
        rvi_lock_take(k->of->lock);
        k->entry->claimed = false;
        if (!k->entry->bytes) remove_entry(k->of, k->entry); /* never saved */
        rvi_lock_give(k->of->lock);
    }
    rvi_free(k);
}

int32_t rvi_kept_id(const rvi_kept_session *k, size_t i)
{
    rvi_cursor c = {.data = k->ids, .len = 4 * k->n_ids, .pos = 4 * i};
    return (int32_t)rvi_cursor_u32(&c);
}

size_t rvi_kept_place(const rvi_kept_session *k, size_t page)
{
    rvi_cursor c = {.data = k->places, .len = 4 * (page + 1), .pos = 4 * page};
    return rvi_cursor_u32(&c);
}

const uint8_t *rvi_kept_page(const rvi_kept_session *k, size_t i)
{
    return k->file.data + rvi_kept_place(k, i) * (size_t)k->page_bytes;
}

/* Cut within a page of the system, the rest of that page reads as zeros without a fault. */
bool rvi_kept_is_whole(const rvi_kept_session *k)
{
    rvi_buf path = {0};
    uint64_t size = 0;
    bool whole = rvi_kept_pages_path(k->entry->path, k->number, &path) &&
                 rvi_os_stat(path.data, &size) == RVI_OS_FILE &&
                 size / k->page_bytes >= (uint64_t)k->n_places &&
                 !rvi_blob_check(&k->file, path.data, NULL);
    rvi_buf_deinit(&path);
    return whole;
}

/* One whose head could not be read is in no table, but its files may be there. */
rv_status rvi_sessions_forget(rvi_sessions *s, const char *tenant, const char *name, rv_error *err)
{
    rv_status st = RV_OK;
    rvi_buf path = {0};
    rvi_lock_take(s->lock);
    rvi_kept_entry *x = find(s, tenant, name);
    if (!path_of(s, tenant, name, &path))
        st = rvi_nomem(err, "session");
    else if (x && x->claimed)
        st = rvi_error(err, RV_E_BUSY, "session '%s' has a request that has not ended", name);
    else if (rvi_os_stat(path.data, NULL) == RVI_OS_NONE)
        st = rvi_error(err, RV_E_NOT_FOUND, "there is no session '%s'", name);
    else if (remove(path.data))
        st = rvi_error(err, RV_E_IO, "cannot remove %s: %s", path.data, strerror(errno));
    bool is_gone = !st || st == RV_E_NOT_FOUND;
    if (x && is_gone) {
        drop(s, x);
    } else if (is_gone) {
        rvi_vectors_remove(path.data);
        rv_status listed = rvi_os_list(s->dir, drop_stale, &(stale){s, path.data}, NULL);
        if (!st) st = listed;
    }
    rvi_lock_give(s->lock);
    rvi_buf_deinit(&path);
    return st;
}

/* ---- looking at all of them ---- */

rv_status rvi_sessions_list(rvi_sessions *s, const char *tenant, rvi_listed_session **out,
                            size_t *n, rv_error *err)
{
    size_t count = 0, texts = 0;
    *out = NULL;
    *n = 0;
    rvi_lock_take(s->lock);
    rvi_sessions_drop_old(s);
    for (const rvi_kept_entry *x = s->entries; x; x = x->next) {
        if (!x->bytes || strcmp(x->tenant, tenant)) continue;
        texts += strlen(x->name) + strlen(x->path) + 2;
        count++;
    }
    rvi_listed_session *list = rvi_alloc_array(count * sizeof *list + texts + 1, 1);
    char *text = list ? (char *)(list + count) : NULL;
    for (const rvi_kept_entry *x = s->entries; list && x; x = x->next) {
        if (!x->bytes || strcmp(x->tenant, tenant)) continue;
        size_t name = strlen(x->name) + 1, path = strlen(x->path) + 1;
        memcpy(text, x->name, name);
        memcpy(text + name, x->path, path);
        list[(*n)++] = (rvi_listed_session){text, text + name, x->saved};
        text += name + path;
    }
    rvi_lock_give(s->lock);
    *out = list;
    return list ? RV_OK : rvi_nomem(err, "sessions");
}

/* A head is always whole, the one before or the one after: no claim is needed. */
rv_status rvi_sessions_read(rvi_sessions *s, const char *tenant, const rvi_listed_session *x,
                            rvi_ids *ids, rv_error *err)
{
    rvi_kept_entry entry = {.name = (char *)(uintptr_t)x->name,
                            .tenant = (char *)(uintptr_t)tenant,
                            .path = (char *)(uintptr_t)x->path};
    rvi_kept_session k = {.of = s, .entry = &entry};
    rvi_kept_head h;
    rv_status st = load_head(&k, &h, err);
    for (size_t i = 0; !st && i < k.n_ids; i++)
        if (!rvi_ids_push(ids, rvi_kept_id(&k, i))) st = rvi_nomem(err, "session");
    rvi_buf_deinit(&k.head);
    return st;
}
