#include "scheduler/sessions.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/cursor.h"
#include "base/mem.h"
#include "base/os.h"
#include "base/thread.h"
#include "scheduler/vectors.h"

/* Little-endian: magic[8], u32 KV type, u32 exact, u32 tokens of a page, u32 rope set, u64 bytes of
 * a page, u64 began, u64 saved (seconds of the clock), u64 random, f64 surprise, u64 ids, u64
 * pages, model[64], u32 and u32 lengths of tenant and name; tenant, name, the ids (i32), the pages,
 * sha256[32]. Where adapters computed the pages, the magic is another one, and the digest of their
 * set (32 bytes) stands behind the model. */
enum {
    HEADER = 8 + 4 * 4 + 7 * 8 + RVI_SHA256_HEX - 1 + RVI_SHA256_LEN + 2 * 4,
    LONGEST_NAME = 256
};
static const uint8_t magic[2][8] = {{'r', 'v', 'k', 'e', 'p', 't', '1', '\n'},
                                    {'r', 'v', 'k', 'e', 'p', 't', '2', '\n'}};
static const char suffix[] = ".session";

struct rvi_kept_entry {
    rvi_kept_entry *next;
    char *tenant, *name, *path;
    uint64_t began, saved, bytes;  /* bytes 0: there is no file yet */
    double begun_here, saved_here; /* seconds of no clock that is set; 0: by another process */
    bool claimed;
};

struct rvi_sessions {
    rvi_sessions_options o;
    const rvi_engine *e;
    char *dir;
    rvi_lock *lock; /* of entries and bytes */
    rvi_kept_entry *entries;
    uint64_t bytes;
    int process_lock; /* -1: none */
};

typedef struct header {
    uint32_t kv_type, exact, page_tokens, rope_set;
    uint64_t page_bytes, began, saved, random, surprise, n_ids,
        n_pages; /* surprise: bits of a double */
    char model[RVI_SHA256_HEX];
    bool has_set;
    uint8_t set[RVI_SHA256_LEN];
    uint32_t tenant_len, name_len;
    char tenant[LONGEST_NAME + 1], name[LONGEST_NAME + 1];
} header;

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
    return rvi_buf_printf(out, "%s/%s%s", s->dir, hex, suffix);
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

static uint64_t clock_now(void)
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

/* Its file is gone. */
static void drop(rvi_sessions *s, rvi_kept_entry *x)
{
    rvi_vectors_remove(x->path);
    remove_entry(s, x);
}

static void drop_old(rvi_sessions *s)
{
    uint64_t now = clock_now();
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

/* ---- headers ---- */

static bool read_header(rvi_cursor *c, header *h)
{
    const uint8_t *start = rvi_cursor_take(c, sizeof magic[0]);
    if (!start) return false;
    h->has_set = !memcmp(start, magic[1], sizeof magic[1]);
    if (!h->has_set && memcmp(start, magic[0], sizeof magic[0])) return false;
    h->kv_type = rvi_cursor_u32(c);
    h->exact = rvi_cursor_u32(c);
    h->page_tokens = rvi_cursor_u32(c);
    h->rope_set = rvi_cursor_u32(c);
    h->page_bytes = rvi_cursor_u64(c);
    h->began = rvi_cursor_u64(c);
    h->saved = rvi_cursor_u64(c);
    h->random = rvi_cursor_u64(c);
    h->surprise = rvi_cursor_u64(c);
    h->n_ids = rvi_cursor_u64(c);
    h->n_pages = rvi_cursor_u64(c);
    const uint8_t *model = rvi_cursor_take(c, RVI_SHA256_HEX - 1);
    const uint8_t *set = h->has_set ? rvi_cursor_take(c, sizeof h->set) : NULL;
    h->tenant_len = rvi_cursor_u32(c);
    h->name_len = rvi_cursor_u32(c);
    if (c->failed || h->tenant_len > LONGEST_NAME || h->name_len > LONGEST_NAME) return false;
    const uint8_t *tenant = rvi_cursor_take(c, h->tenant_len),
                  *name = rvi_cursor_take(c, h->name_len);
    if (c->failed) return false;
    memcpy(h->model, model, RVI_SHA256_HEX - 1);
    if (set) memcpy(h->set, set, sizeof h->set);
    memcpy(h->tenant, tenant, h->tenant_len);
    memcpy(h->name, name, h->name_len);
    h->model[RVI_SHA256_HEX - 1] = h->tenant[h->tenant_len] = h->name[h->name_len] = 0;
    return strlen(h->tenant) == h->tenant_len && strlen(h->name) == h->name_len;
}

static bool put(rvi_buf *b, uint64_t v, int n_bytes)
{
    bool ok = true;
    for (int i = 0; i < n_bytes; i++) ok = rvi_buf_putc(b, (char)(uint8_t)(v >> (8 * i))) && ok;
    return ok;
}

static bool put_header(rvi_buf *b, const header *h)
{
    return rvi_buf_append(b, magic[h->has_set], sizeof magic[0]) && put(b, h->kv_type, 4) &&
           put(b, h->exact, 4) && put(b, h->page_tokens, 4) && put(b, h->rope_set, 4) &&
           put(b, h->page_bytes, 8) && put(b, h->began, 8) && put(b, h->saved, 8) &&
           put(b, h->random, 8) && put(b, h->surprise, 8) && put(b, h->n_ids, 8) &&
           put(b, h->n_pages, 8) && rvi_buf_append(b, h->model, RVI_SHA256_HEX - 1) &&
           rvi_buf_append(b, h->set, h->has_set ? sizeof h->set : 0) && put(b, h->tenant_len, 4) &&
           put(b, h->name_len, 4) && rvi_buf_append(b, h->tenant, h->tenant_len) &&
           rvi_buf_append(b, h->name, h->name_len);
}

/* ---- lifetimes ---- */

/* A file whose header is no header is left alone: asking for its session says what is wrong. */
static int list_file(void *ctx, const char *name)
{
    rvi_sessions *s = ctx;
    uint8_t bytes[HEADER + 2 * LONGEST_NAME];
    rvi_buf path = {0};
    size_t len = strlen(name), end = sizeof suffix - 1;
    uint64_t size = 0;
    header h;
    if (len <= end || strcmp(name + len - end, suffix)) return 0;
    bool ok = rvi_buf_printf(&path, "%s/%s", s->dir, name);
    FILE *f = ok && rvi_os_stat(path.data, &size) == RVI_OS_FILE ? fopen(path.data, "rb") : NULL;
    rvi_cursor c = {.data = bytes, .len = f ? fread(bytes, 1, sizeof bytes, f) : 0};
    if (f) fclose(f);
    rvi_buf_deinit(&path);
    if (!ok) return 1;
    if (!read_header(&c, &h) || strcmp(h.model, s->o.model) || find(s, h.tenant, h.name)) return 0;
    rvi_kept_entry *x = add_entry(s, h.tenant, h.name);
    if (!x) return 1;
    x->began = h.began;
    x->saved = h.saved;
    s->bytes += x->bytes = size;
    return 0;
}

/* What a kill has left beside the files. */
static int drop_part(void *ctx, const char *name)
{
    const rvi_sessions *s = ctx;
    rvi_buf path = {0};
    size_t len = strlen(name), end = sizeof suffix - 1;
    if (!strcmp(name, "lock") || !strstr(name, suffix) ||
        (len > end && !strcmp(name + len - end, suffix)))
        return rvi_vectors_clean(s->dir, name);
    if (rvi_buf_printf(&path, "%s/%s", s->dir, name)) (void)remove(path.data);
    rvi_buf_deinit(&path);
    return 0;
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
    rvi_buf_deinit(&lock);
    if (!st) {
        drop_old(s);
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
    drop_old(s);
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

/* Everything in the file is checked before anything of it is used. */
static rv_status load(rvi_kept_session *k, rv_error *err)
{
    const rvi_engine *e = k->of->e;
    const char *name = k->entry->name;
    header h;
    uint8_t digest[RVI_SHA256_LEN];
    rvi_sha256 sum;
    uint64_t size = 1, head = 0, body = 0;
    bool is_empty = rvi_os_stat(k->entry->path, &size) == RVI_OS_FILE && !size;
    rv_status st = is_empty ? RV_OK : rvi_blob_open(&k->file, k->entry->path, err);
    if (st) return st;
    rvi_cursor c = {.data = k->file.data, .len = k->file.len};
    bool ok = !is_empty && read_header(&c, &h) && k->file.len >= RVI_SHA256_LEN;
    if (ok) {
        head = c.pos + RVI_SHA256_LEN;
        ok = h.n_ids <= RVI_MAX_CONTEXT && h.n_pages <= h.n_ids / RVI_PAGE_TOKENS &&
             h.page_bytes <= SIZE_MAX / (RVI_MAX_CONTEXT + 1);
        if (ok) body = 4 * h.n_ids + h.n_pages * h.page_bytes;
        ok = ok && k->file.len == head + body;
    }
    if (ok) {
        size_t len = k->file.len - RVI_SHA256_LEN;
        rvi_sha256_init(&sum);
        rvi_sha256_add(&sum, k->file.data, len);
        rvi_sha256_end(&sum, digest);
        ok = !memcmp(digest, k->file.data + len, sizeof digest) &&
             !strcmp(h.model, k->of->o.model) && !strcmp(h.tenant, k->entry->tenant) &&
             !strcmp(h.name, name);
    }
    if (ok && (st = rvi_blob_check(&k->file, k->entry->path, err))) return st;
    if (!ok)
        return rvi_error(err, RV_E_STORAGE, "session '%s': %s is damaged", name, k->entry->path);
    k->ids = rvi_cursor_take(&c, 4 * h.n_ids);
    k->n_ids = (size_t)h.n_ids;
    k->sampler.random = h.random;
    memcpy(&k->sampler.surprise, &h.surprise, sizeof h.surprise);
    k->rope_set = (int)h.rope_set;
    k->entry->began = h.began;
    bool fits = h.kv_type == rvi_engine_kv_format(e) && h.page_tokens == RVI_PAGE_TOKENS &&
                h.exact == (uint32_t)e->m->be->ops->is_exact(e->m->be) &&
                h.page_bytes == rvi_pages_bytes(e->pool);
    if (fits) k->n_pages = (int)h.n_pages; /* else they are computed again */
    k->pages = rvi_cursor_take(&c, h.n_pages * h.page_bytes);
    if (h.has_set) memcpy(k->set_digest, h.set, sizeof h.set);
    k->has_set = h.has_set;
    return RV_OK;
}

/* Somebody else has removed its file: the session begins anew. */
static void restart(rvi_sessions *s, rvi_kept_entry *x)
{
    rvi_vectors_remove(x->path);
    rvi_lock_take(s->lock);
    s->bytes -= x->bytes;
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

/* Cut within a page of the system, the rest of that page reads as zeros without a fault. */
bool rvi_kept_is_whole(const rvi_kept_session *k)
{
    uint64_t size = 0;
    return rvi_os_stat(k->entry->path, &size) == RVI_OS_FILE && size == k->file.len &&
           !rvi_blob_check(&k->file, k->entry->path, NULL);
}

/* ---- saving ---- */

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
                     const rvi_sampler_state *sampler, header *h)
{
    const rvi_engine *e = s->e;
    const uint8_t *set;
    size_t n = kept_run(s, &set);
    uint64_t now = RVI_MAX(clock_now(), k->entry->saved); /* the clock may have been turned back */
    *h = (header){.kv_type = rvi_engine_kv_format(e),
                  .exact = e->m->be->ops->is_exact(e->m->be),
                  .page_tokens = RVI_PAGE_TOKENS,
                  .rope_set = (uint32_t)s->rope_set,
                  .page_bytes = rvi_pages_bytes(e->pool),
                  .began = k->entry->bytes ? k->entry->began : now,
                  .saved = now,
                  .random = sampler->random,
                  .n_ids = s->past.len,
                  .n_pages = n / RVI_PAGE_TOKENS,
                  .has_set = set,
                  .tenant_len = (uint32_t)strlen(k->entry->tenant),
                  .name_len = (uint32_t)strlen(k->entry->name)};
    if (h->tenant_len > LONGEST_NAME || h->name_len > LONGEST_NAME) return false;
    memcpy(&h->surprise, &sampler->surprise, sizeof h->surprise);
    memcpy(h->model, k->of->o.model, sizeof h->model);
    if (set) memcpy(h->set, set, sizeof h->set);
    memcpy(h->tenant, k->entry->tenant, h->tenant_len);
    memcpy(h->name, k->entry->name, h->name_len);
    return true;
}

/* Takes the bytes of the file that will be there, or does nothing. */
static rv_status reserve(rvi_kept_session *k, uint64_t bytes, rv_error *err)
{
    rvi_sessions *s = k->of;
    rv_status st = RV_OK;
    rvi_lock_take(s->lock);
    drop_old(s);
    if (s->o.max_bytes && s->bytes - k->entry->bytes + bytes > s->o.max_bytes)
        st = rvi_error(err, RV_E_STORAGE, "sessions have %llu bytes, and %llu is the limit",
                       (unsigned long long)(s->bytes - k->entry->bytes + bytes),
                       (unsigned long long)s->o.max_bytes);
    else
        s->bytes += bytes;
    rvi_lock_give(s->lock);
    return st;
}

/* written: the new file is in its place; otherwise the one before. */
static void record_size(rvi_kept_session *k, const header *h, uint64_t bytes, bool written)
{
    rvi_lock_take(k->of->lock);
    k->of->bytes -= written ? k->entry->bytes : bytes;
    if (written) {
        k->entry->bytes = bytes;
        k->entry->saved_here = rvi_os_seconds();
        if (!k->entry->saved) k->entry->begun_here = k->entry->saved_here;
        k->entry->began = h->began;
        k->entry->saved = h->saved;
    }
    rvi_lock_give(k->of->lock);
}

struct rvi_save {
    rvi_kept_session *k;
    header h;
    uint64_t bytes; /* of the whole file */
    rvi_buf head;   /* of the file: the header and the ids */
    rvi_seq pages;  /* held until they are copied */
    int n_copied;
    uint8_t *piece; /* copies that wait to be written */
    size_t piece_len;
    rvi_buf part; /* the name of the file that is written */
    FILE *f;
    rvi_sha256 sum;
    bool reserved, over;
    rv_status st;
    rv_error why;
};

rv_status rvi_save_begin(rvi_save **out, rvi_kept_session *k, const rvi_session *s,
                         const rvi_sampler_state *sampler, rv_error *err)
{
    *out = NULL;
    rvi_save *x = rvi_zalloc(sizeof *x);
    if (!x) return rvi_nomem(err, "session");
    x->k = k;
    rv_status st = RV_OK;
    if (!describe(k, s, sampler, &x->h))
        st = rvi_error(err, RV_E_CONFIG, "tenant and session have at most %d bytes", LONGEST_NAME);
    bool ok = !st && put_header(&x->head, &x->h);
    for (size_t i = 0; ok && i < x->h.n_ids; i++) ok = put(&x->head, (uint32_t)s->past.data[i], 4);
    if (!st && !ok) st = rvi_nomem(err, "session");
    int n = (int)x->h.n_pages * RVI_PAGE_TOKENS;
    if (!st && n) st = rvi_seq_init(&x->pages, s->seq.pool, n, err);
    if (!st && n) rvi_seq_adopt(&x->pages, s->seq.pages, n);
    x->bytes = x->head.len + x->h.n_pages * x->h.page_bytes + RVI_SHA256_LEN;
    if (st)
        rvi_save_free(x);
    else
        *out = x;
    return st;
}

/* So many pages at a time that copying them takes two or three milliseconds. */
static size_t pages_at_once(const header *h)
{
    const uint64_t most = 8 << 20;
    return (size_t)RVI_MIN(RVI_MAX(most / h->page_bytes, 1), h->n_pages);
}

void rvi_save_fill(rvi_save *x)
{
    size_t page = (size_t)x->h.page_bytes, most = pages_at_once(&x->h);
    if (!x->pages.n_pages || x->st) return;
    if (!x->piece && !(x->piece = rvi_alloc_array(most, page))) {
        x->st = rvi_nomem(&x->why, "session");
        return;
    }
    for (x->piece_len = 0; x->piece_len < most * page && x->n_copied < x->pages.n_pages;
         x->piece_len += page)
        rvi_seq_read_page(&x->pages, x->n_copied++, x->piece + x->piece_len);
    if (x->n_copied == x->pages.n_pages) rvi_seq_deinit(&x->pages);
}

bool rvi_save_is_over(const rvi_save *x)
{
    return x->over;
}

static rv_status add(rvi_save *x, const void *data, size_t len)
{
    rvi_sha256_add(&x->sum, data, len);
    return rvi_os_write(x->f, data, len, x->k->entry->path, &x->why);
}

static rv_status open_part(rvi_save *x)
{
    rvi_blob_close(&x->k->file); /* the one before, of which nothing is needed any more */
    rvi_sha256_init(&x->sum);
    rv_status st = reserve(x->k, x->bytes, &x->why);
    x->reserved = !st;
    if (!st) st = rvi_os_create_beside(x->k->entry->path, &x->part, &x->f, &x->why);
    return st ? st : add(x, x->head.data, x->head.len);
}

/* All is written, or something failed. */
static void finish(rvi_save *x)
{
    const char *path = x->k->entry->path;
    uint8_t digest[RVI_SHA256_LEN];
    bool moved = false;
    rv_error why;
    if (!x->st) {
        rvi_sha256_end(&x->sum, digest);
        x->st = rvi_os_write(x->f, digest, sizeof digest, path, &x->why);
    }
    if (!x->st) x->st = rvi_os_sync(x->f, path, &x->why);
    if (x->f && fclose(x->f) && !x->st)
        x->st = rvi_error(&x->why, RV_E_IO, "cannot write %s: %s", path, strerror(errno));
    if (!x->st) moved = !(x->st = rvi_os_replace(x->part.data, path, &x->why));
    if (!moved && x->f) rvi_os_remove_tree(x->part.data);
    if (moved && (x->st = rvi_os_sync_parent(path, &why)))
        x->st =
            rvi_error(&x->why, x->st,
                      "session '%.64s' goes on from here, but a power failure may undo that: %s",
                      x->k->entry->name, why.text);
    x->f = NULL;
    if (x->reserved) record_size(x->k, &x->h, x->bytes, moved);
    x->reserved = false;
    x->over = true;
}

void rvi_save_write(rvi_save *x)
{
    if (!x->st && !x->f) x->st = open_part(x);
    if (!x->st) x->st = add(x, x->piece, x->piece_len);
    x->piece_len = 0;
    if (x->st || x->n_copied == (int)x->h.n_pages) finish(x);
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
    rvi_buf_deinit(&x->part);
    rvi_free(x->piece);
    rvi_free(x);
}

/* One of which no header could be read is in no table, but its file may be there. */
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
    if (is_gone) rvi_vectors_remove(path.data);
    if (x && is_gone) remove_entry(s, x);
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
    drop_old(s);
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

/* A file is always whole, the one before or the one after: no claim is needed. */
rv_status rvi_sessions_read(rvi_sessions *s, const char *tenant, const rvi_listed_session *x,
                            rvi_ids *ids, rv_error *err)
{
    rvi_kept_entry entry = {.name = (char *)(uintptr_t)x->name,
                            .tenant = (char *)(uintptr_t)tenant,
                            .path = (char *)(uintptr_t)x->path};
    rvi_kept_session k = {.of = s, .entry = &entry};
    rv_status st = load(&k, err);
    for (size_t i = 0; !st && i < k.n_ids; i++)
        if (!rvi_ids_push(ids, rvi_kept_id(&k, i))) st = rvi_nomem(err, "session");
    rvi_blob_close(&k.file);
    return st;
}
