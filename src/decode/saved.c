#include "decode/saved.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/os.h"

/* Little-endian: magic[8], u32 KV type, u32 exact, u32 tokens of a page, u32 rope set, u64 bytes of
 * a page, u64 ids, u64 pages, model[64]; the ids (i32), the pages, sha256[32] of all before it. */
enum { FIXED = 8 + 4 * 4 + 3 * 8, HEADER = FIXED + RVI_SHA256_HEX - 1 };
static const uint8_t magic[8] = {'r', 'v', 's', 'e', 's', 's', '1', '\n'};

static void put(uint8_t **at, uint64_t v, int n_bytes)
{
    for (int i = 0; i < n_bytes; i++) *(*at)++ = (uint8_t)(v >> (8 * i));
}

static uint64_t get(const uint8_t **at, int n_bytes)
{
    uint64_t v = 0;
    for (int i = 0; i < n_bytes; i++) v |= (uint64_t) * (*at)++ << (8 * i);
    return v;
}

typedef struct header {
    uint32_t kv_type, exact, page_tokens, rope_set;
    uint64_t page_bytes, n_ids, n_pages;
} header;

static header describe(const rvi_session *s)
{
    const rvi_engine *e = s->e;
    size_t n = 0, len = (size_t)s->seq.len;
    while (n < len && !s->sets[n]) n++;
    return (header){.kv_type = rvi_engine_kv_format(e),
                    .exact = e->m->be->ops->is_exact(e->m->be),
                    .page_tokens = RVI_PAGE_TOKENS,
                    .rope_set = (uint32_t)s->rope_set,
                    .page_bytes = rvi_pages_bytes(e->pool),
                    .n_ids = n,
                    .n_pages = n / RVI_PAGE_TOKENS};
}

/* ---- writing ---- */

static rv_status add(FILE *f, rvi_sha256 *sum, const void *data, size_t len, const char *path,
                     rv_error *err)
{
    rvi_sha256_add(sum, data, len);
    return rvi_os_write(f, data, len, path, err);
}

static rv_status write_header(FILE *f, rvi_sha256 *sum, const header *h, const char *model,
                              const char *path, rv_error *err)
{
    uint8_t bytes[HEADER], *at = bytes;
    memcpy(at, magic, sizeof magic);
    at += sizeof magic;
    put(&at, h->kv_type, 4);
    put(&at, h->exact, 4);
    put(&at, h->page_tokens, 4);
    put(&at, h->rope_set, 4);
    put(&at, h->page_bytes, 8);
    put(&at, h->n_ids, 8);
    put(&at, h->n_pages, 8);
    memcpy(at, model, RVI_SHA256_HEX - 1);
    return add(f, sum, bytes, sizeof bytes, path, err);
}

static rv_status write_all(FILE *f, const rvi_session *s, const char *model, const char *path,
                           rv_error *err)
{
    header h = describe(s);
    rvi_sha256 sum;
    uint8_t digest[RVI_SHA256_LEN], id[4];
    void *page = rvi_alloc_array(h.page_bytes, 1);
    if (!page) return rvi_nomem(err, "page");
    rvi_sha256_init(&sum);
    rv_status st = write_header(f, &sum, &h, model, path, err);
    for (size_t i = 0; !st && i < h.n_ids; i++) {
        uint8_t *at = id;
        put(&at, (uint32_t)s->past.data[i], sizeof id);
        st = add(f, &sum, id, sizeof id, path, err);
    }
    for (size_t i = 0; !st && i < h.n_pages; i++) {
        rvi_seq_read_page(&s->seq, (int)i, page);
        st = add(f, &sum, page, h.page_bytes, path, err);
    }
    rvi_sha256_end(&sum, digest);
    if (!st) st = rvi_os_write(f, digest, sizeof digest, path, err);
    if (!st) st = rvi_os_sync(f, path, err);
    rvi_free(page);
    return st;
}

rv_status rvi_session_save(const rvi_session *s, const char model[RVI_SHA256_HEX], const char *path,
                           rv_error *err)
{
    rvi_buf temp = {0};
    FILE *f;
    rv_status st = rvi_os_create_beside(path, &temp, &f, err);
    if (!st) st = write_all(f, s, model, path, err);
    if (f && fclose(f) && !st)
        st = rvi_error(err, RV_E_IO, "cannot write %s: %s", path, strerror(errno));
    if (!st) st = rvi_os_replace(temp.data, path, err);
    if (st && f) rvi_os_remove_tree(temp.data);
    rvi_buf_deinit(&temp);
    return st;
}

/* ---- reading ---- */

static rv_status take(FILE *f, rvi_sha256 *sum, void *to, size_t len, const char *path,
                      rv_error *err)
{
    if (fread(to, 1, len, f) != len)
        return rvi_error(err, RV_E_IO, "%s: cannot be read to its end", path);
    rvi_sha256_add(sum, to, len);
    return RV_OK;
}

static rv_status read_header(FILE *f, rvi_sha256 *sum, const rvi_session *s, const char *model,
                             uint64_t size, const char *path, header *h, rv_error *err)
{
    uint8_t bytes[HEADER];
    const uint8_t *at = bytes + sizeof magic;
    header want = describe(s);
    uint32_t most_set = (uint32_t)rvi_rope_set(&s->e->m->rope, INT32_MAX); /* 0: it has only one */
    if (size < HEADER + RVI_SHA256_LEN)
        return rvi_error(err, RV_E_MODEL, "%s: not a saved session", path);
    rv_status st = take(f, sum, bytes, sizeof bytes, path, err);
    if (st) return st;
    if (memcmp(bytes, magic, sizeof magic))
        return rvi_error(err, RV_E_MODEL, "%s: not a saved session", path);
    h->kv_type = (uint32_t)get(&at, 4);
    h->exact = (uint32_t)get(&at, 4);
    h->page_tokens = (uint32_t)get(&at, 4);
    h->rope_set = (uint32_t)get(&at, 4);
    h->page_bytes = get(&at, 8);
    h->n_ids = get(&at, 8);
    h->n_pages = get(&at, 8);
    if (memcmp(at, model, RVI_SHA256_HEX - 1))
        return rvi_error(err, RV_E_MODEL, "%s: the session was saved with another model", path);
    if (h->kv_type != want.kv_type || h->exact != want.exact ||
        h->page_tokens != want.page_tokens || h->page_bytes != want.page_bytes)
        return rvi_error(err, RV_E_MODEL,
                         "%s: the session was saved with another KV type, or another precision",
                         path);
    if (h->n_ids > (uint64_t)s->n_context)
        return rvi_error(err, RV_E_TOO_LONG, "%s: %llu tokens do not fit the context of %d", path,
                         (unsigned long long)h->n_ids, s->n_context);
    if (h->n_pages != h->n_ids / RVI_PAGE_TOKENS || h->rope_set > most_set ||
        size != HEADER + 4 * h->n_ids + h->n_pages * h->page_bytes + RVI_SHA256_LEN)
        return rvi_error(err, RV_E_MODEL, "%s: the saved session is damaged", path);
    return RV_OK;
}

static rv_status read_ids(FILE *f, rvi_sha256 *sum, rvi_session *s, size_t n, const char *path,
                          rv_error *err)
{
    rv_status st = RV_OK;
    for (size_t i = 0; !st && i < n; i++) {
        uint8_t id[4];
        const uint8_t *at = id;
        st = take(f, sum, id, sizeof id, path, err);
        if (!st) s->past.data[i] = (int32_t)(uint32_t)get(&at, sizeof id);
    }
    rv_error why;
    if (!st && rvi_engine_check_ids(s->e, s->past.data, n, &why))
        st = rvi_error(err, RV_E_MODEL, "%s: the saved session is damaged: %s", path, why.text);
    return st;
}

static rv_status read_pages(FILE *f, rvi_sha256 *sum, rvi_session *s, const header *h,
                            const char *path, rv_error *err)
{
    int n = (int)h->n_pages * RVI_PAGE_TOKENS;
    void *page = rvi_alloc_array(h->page_bytes, 1);
    if (!page) return rvi_nomem(err, "page");
    rv_status st = rvi_seq_extend(&s->seq, n, err);
    for (int i = 0; !st && i < (int)h->n_pages; i++) {
        st = take(f, sum, page, h->page_bytes, path, err);
        if (!st) rvi_seq_write_page(&s->seq, i, page);
    }
    for (int i = 0; !st && i < n; i++) s->sets[i] = 0;
    rvi_free(page);
    return st;
}

/* The tokens behind the last whole page. */
static rv_status compute_rest(rvi_session *s, size_t n, rv_error *err)
{
    rv_status st = RV_OK;
    while (!st && (size_t)s->seq.len < n) {
        int rows = RVI_MIN((int)n - s->seq.len, s->e->o.max_rows);
        rvi_engine_begin(s->e);
        st = rvi_engine_add(s->e, s, rows, NULL, 0, err);
        if (!st) st = rvi_engine_compute(s->e, err);
    }
    return st;
}

rv_status rvi_session_restore(rvi_session *s, const char model[RVI_SHA256_HEX], const char *path,
                              rv_error *err)
{
    uint64_t size = 0;
    header h = {0};
    rvi_sha256 sum;
    uint8_t digest[RVI_SHA256_LEN], stored[RVI_SHA256_LEN];
    FILE *f = rvi_os_stat(path, &size) == RVI_OS_FILE ? fopen(path, "rb") : NULL;
    if (!f) return rvi_error(err, RV_E_NOT_FOUND, "%s: no such file, or it cannot be read", path);
    rvi_sha256_init(&sum);
    rv_status st = read_header(f, &sum, s, model, size, path, &h, err);
    if (!st) st = read_ids(f, &sum, s, (size_t)h.n_ids, path, err);
    if (!st) st = read_pages(f, &sum, s, &h, path, err);
    rvi_sha256_end(&sum, digest);
    if (!st && (fread(stored, 1, sizeof stored, f) != sizeof stored ||
                memcmp(stored, digest, sizeof stored)))
        st = rvi_error(err, RV_E_MODEL, "%s: the saved session is damaged", path);
    fclose(f);
    if (!st) {
        s->rope_set = (int)h.rope_set;
        rvi_seq_truncate(&s->seq, rvi_pages_reusable(s->e->pool, s->seq.pages, s->seq.len));
        s->past.len = (size_t)h.n_ids;
        st = compute_rest(s, s->past.len, err);
    }
    if (st) {
        rvi_seq_truncate(&s->seq, 0);
        s->past.len = 0;
    }
    return st;
}
