/* postgres.c - rv_store in a PostgreSQL database that several processes share: ruvllm_store.h says
 * what it promises.
 *
 * Writers of one space take turns by an advisory lock that ends with their transaction, so that its
 * streams are numbered without gaps, in the order of the commits. An append notifies the other
 * processes when it is committed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os.h"
#include "base/sha256.h"
#include "store/postgres_link.h"

enum { MAX_SPACE = 256, TEXT = 0, BINARY = 1 };

/* ---- parameters and results ---- */

typedef struct parameter {
    const char *data;
    size_t len;
    int format;
} parameter;

static parameter of_text(const char *text)
{
    return (parameter){text, strlen(text), TEXT};
}

static parameter of_bytes(rv_bytes b)
{
    return (parameter){b.len ? b.data : "", b.len, BINARY};
}

/* NULL, with what went wrong in *st. The link's lock is held. */
static PGresult *execute(rvi_pg_store *s, int which, const parameter *p, int n, const char *doing,
                         rv_status *st, rv_error *err)
{
    enum { MOST = 4 };
    const char *values[MOST];
    int lengths[MOST], formats[MOST];
    char name[16];
    for (int i = 0; i < n; i++) {
        values[i] = p[i].data;
        lengths[i] = (int)p[i].len;
        formats[i] = p[i].format;
    }
    snprintf(name, sizeof name, "rv%d", which);
    PGresult *r = rvi_pq.execPrepared(s->link->conn, name, n, values, lengths, formats, BINARY);
    ExecStatusType got = rvi_pq.resultStatus(r);
    *st = RV_OK;
    if (got == PGRES_COMMAND_OK || got == PGRES_TUPLES_OK) return r;
    *st = rvi_pg_link_fail(s->link, r, doing, err);
    return NULL;
}

/* A call: in a transaction the link is this store's already. */
static rv_status enter(rvi_pg_store *s, rv_error *err)
{
    return s->in_transaction ? RV_OK : rvi_pg_link_enter(s->link, err);
}

static void leave(rvi_pg_store *s)
{
    if (!s->in_transaction) rvi_pg_link_exit(s->link);
}

/* Executes a statement as a call of its own. */
static PGresult *call(rvi_pg_store *s, int which, const parameter *p, int n, const char *doing,
                      rv_status *st, rv_error *err)
{
    *st = enter(s, err);
    if (*st) return NULL;
    PGresult *r = execute(s, which, p, n, doing, st, err);
    leave(s);
    return r;
}

static rv_bytes column(const PGresult *r, int row, int i)
{
    return (rv_bytes){rvi_pq.getvalue(r, row, i), (size_t)rvi_pq.getlength(r, row, i)};
}

static uint64_t number(rv_bytes b) /* a bigint: eight bytes, the highest first */
{
    const uint8_t *p = b.data;
    uint64_t v = 0;
    for (size_t i = 0; i < b.len && i < 8; i++) v = v << 8 | p[i];
    return v;
}

static rv_status fail_record(const rvi_pg_store *s, const char *name, rv_error *err)
{
    return rvi_error(err, RV_E_STORAGE, "%s: %s holds data that this program did not write",
                     s->link->name, name);
}

/* ---- locks ---- */

static int64_t key_of(const char *space, const char *what)
{
    rvi_sha256 h;
    uint8_t hash[RVI_SHA256_LEN];
    rvi_sha256_init(&h);
    rvi_sha256_add(&h, space, strlen(space) + 1);
    rvi_sha256_add(&h, what, strlen(what));
    rvi_sha256_end(&h, hash);
    uint64_t v = number((rv_bytes){hash, 8}) & INT64_MAX;
    return (int64_t)(v ? v : 1);
}

static rvi_pg_held *held(rvi_pg_store *s, int64_t key)
{
    for (size_t i = 0; i < RVI_PG_LOCKS; i++)
        if (s->held[i].key == key) return &s->held[i];
    return NULL;
}

/* A connection gets a lock as often as it asks: its stores are asked first. What was taken on an
 * earlier connection went with that. */
static rv_status try_lock(rvi_pg_store *s, int64_t key, bool *got, rv_error *err)
{
    char sql[80];
    rv_status st = enter(s, err);
    *got = false;
    if (st) return st;
    rvi_pg_held *own = held(s, key);
    if (own && own->epoch == s->link->epoch) {
        leave(s);
        return rvi_error(err, RV_E_INVALID, "this lock is held already");
    }
    if (own) *own = (rvi_pg_held){0};
    for (rvi_pg_store *o = s->link->stores; o; o = o->next)
        if (o != s && held(o, key)) {
            leave(s);
            return RV_OK;
        }
    snprintf(sql, sizeof sql, "SELECT pg_try_advisory_lock(%lld)", (long long)key);
    PGresult *r = rvi_pq.exec(s->link->conn, sql);
    if (rvi_pq.resultStatus(r) != PGRES_TUPLES_OK) {
        st = rvi_pg_link_fail(s->link, r, "lock", err);
    } else {
        *got = *rvi_pq.getvalue(r, 0, 0) == 't';
        rvi_pq.clear(r);
    }
    rvi_pg_held *place = held(s, 0);
    if (*got) *place = (rvi_pg_held){key, s->link->epoch};
    leave(s);
    return st;
}

static rv_status pg_lock(void *ctx, const char *what, int wait_ms, rv_error *err)
{
    static const double moment = 0.004;
    rvi_pg_store *s = ctx;
    int64_t key = key_of(s->space, what);
    double end = rvi_os_seconds() + wait_ms / 1000.0;
    bool got = false;
    if (!held(s, key) && !held(s, 0))
        return rvi_error(err, RV_E_INVALID, "too many locks are held, besides '%s'", what);
    rv_status st = try_lock(s, key, &got, err);
    while (!st && !got && rvi_os_seconds() < end) {
        rvi_thread_sleep(moment);
        st = try_lock(s, key, &got, err);
    }
    if (!st && !got)
        st = rvi_error(err, RV_E_STORAGE, "%s: another process has had the lock '%s' for %d ms",
                       s->link->name, what, wait_ms);
    return st;
}

/* A lock that was taken on an earlier connection went with it. */
static void give_lock(rvi_pg_store *s, rvi_pg_held *h)
{
    char sql[80];
    if (!s->in_transaction) rvi_lock_take(s->link->lock);
    if (h->epoch == s->link->epoch && rvi_pq.status(s->link->conn) == CONNECTION_OK) {
        snprintf(sql, sizeof sql, "SELECT pg_advisory_unlock(%lld)", (long long)h->key);
        rv_status st = rvi_pg_link_do(s->link, sql, "unlock", NULL);
        (void)st; /* a lost connection gives it back too */
    }
    *h = (rvi_pg_held){0};
    leave(s);
}

static void pg_unlock(void *ctx, const char *what)
{
    rvi_pg_store *s = ctx;
    rvi_pg_held *h = held(s, key_of(s->space, what));
    if (h) give_lock(s, h);
}

/* ---- transactions ---- */

static rv_status pg_begin(void *ctx, int durable, rv_error *err)
{
    rvi_pg_store *s = ctx;
    char sql[160];
    rv_status st = rvi_pg_link_enter(s->link, err);
    if (st) return st;
    snprintf(sql, sizeof sql, "BEGIN; %sSELECT pg_advisory_xact_lock(%lld)",
             durable ? "SET LOCAL synchronous_commit TO DEFAULT; " : "",
             (long long)key_of(s->space, ""));
    st = rvi_pg_link_do(s->link, sql, "begin to write", err);
    if (st) {
        rvi_pq.clear(rvi_pq.exec(s->link->conn, "ROLLBACK"));
        rvi_pg_link_exit(s->link);
    }
    s->in_transaction = !st;
    return st;
}

static void pg_rollback(void *ctx)
{
    rvi_pg_store *s = ctx;
    if (!s->in_transaction) return;
    rv_status st = rvi_pg_link_do(s->link, "ROLLBACK", "roll back", NULL);
    (void)st; /* a lost connection rolls back too */
    s->in_transaction = false;
    rvi_pg_link_exit(s->link);
}

/* Of a transaction that failed on the way the server only says that it has rolled it back. */
static rv_status pg_commit(void *ctx, rv_error *err)
{
    rvi_pg_store *s = ctx;
    rv_status st = RV_OK;
    PGresult *r = rvi_pq.exec(s->link->conn, "COMMIT");
    if (rvi_pq.resultStatus(r) != PGRES_COMMAND_OK) {
        st = rvi_pg_link_fail(s->link, r, "commit", err);
    } else {
        if (strcmp(rvi_pq.cmdStatus(r), "COMMIT"))
            st = rvi_error(err, RV_E_STORAGE, "%s: the transaction was rolled back", s->link->name);
        rvi_pq.clear(r);
    }
    s->in_transaction = false;
    rvi_pg_link_exit(s->link);
    return st;
}

/* ---- streams and tables ---- */

static rv_status append_one(rvi_pg_store *s, const char *stream, rv_bytes record, uint64_t *seq,
                            rv_error *err)
{
    rv_status st;
    const rvi_pg_held *h = held(s, key_of(s->space, stream));
    if (h && h->epoch != s->link->epoch)
        return rvi_error(err, RV_E_STORAGE, "%s: the lock '%s' was lost with the connection",
                         s->link->name, stream);
    const parameter p[] = {of_text(s->space), of_text(stream), of_bytes(record), of_text(s->tag)};
    PGresult *r = execute(s, RVI_PG_APPEND, p, 4, "append", &st, err);
    if (r) *seq = number(column(r, 0, 0));
    rvi_pq.clear(r);
    return st;
}

/* Ends the transaction that a single write began for itself. */
static rv_status end_own(rvi_pg_store *s, rv_status st, rv_error *err)
{
    if (!st) return pg_commit(s, err);
    pg_rollback(s);
    return st;
}

static rv_status pg_append(void *ctx, const char *stream, rv_bytes record, uint64_t *seq,
                           rv_error *err)
{
    rvi_pg_store *s = ctx;
    bool own = !s->in_transaction;
    rv_status st = own ? pg_begin(s, 1, err) : RV_OK;
    if (st) return st;
    st = append_one(s, stream, record, seq, err);
    return own ? end_own(s, st, err) : st;
}

static rv_status write_item(rvi_pg_store *s, int which, const parameter *p, int n, rv_error *err)
{
    bool own = !s->in_transaction;
    rv_status st = own ? pg_begin(s, 0, err) : RV_OK;
    if (st) return st;
    rvi_pq.clear(execute(s, which, p, n, "write", &st, err));
    return own ? end_own(s, st, err) : st;
}

static rv_status pg_put(void *ctx, const char *table, rv_bytes key, rv_bytes record, rv_error *err)
{
    rvi_pg_store *s = ctx;
    const parameter p[] = {of_text(s->space), of_text(table), of_bytes(key), of_bytes(record)};
    return write_item(s, RVI_PG_PUT, p, 4, err);
}

static rv_status pg_remove(void *ctx, const char *table, rv_bytes key, rv_error *err)
{
    rvi_pg_store *s = ctx;
    const parameter p[] = {of_text(s->space), of_text(table), of_bytes(key)};
    return write_item(s, RVI_PG_REMOVE, p, 3, err);
}

static rv_status pg_get(void *ctx, const char *table, rv_bytes key, rvi_item_fn each,
                        void *each_ctx, rv_error *err)
{
    rvi_pg_store *s = ctx;
    rv_status st;
    const parameter p[] = {of_text(s->space), of_text(table), of_bytes(key)};
    PGresult *r = call(s, RVI_PG_GET, p, 3, "read", &st, err);
    if (r && rvi_pq.ntuples(r)) {
        rv_bytes record = column(r, 0, 0);
        if (record.len > RVI_STORE_RECORD_BYTES)
            st = fail_record(s, table, err);
        else
            (void)each(each_ctx, key, record);
    }
    rvi_pq.clear(r);
    return st;
}

/* Page after page; what a callback gets lies in the page, which no other call touches. */
static rv_status pg_scan(void *ctx, const char *table, rv_bytes from, rvi_item_fn each,
                         void *each_ctx, rv_error *err)
{
    rvi_pg_store *s = ctx;
    rv_status st = RV_OK;
    char last[RVI_STORE_KEY_BYTES];
    bool more = true;
    for (bool first = true; !st && more; first = false) {
        const parameter p[] = {of_text(s->space), of_text(table), of_bytes(from),
                               of_text(first ? "" : "behind it")};
        PGresult *r = call(s, RVI_PG_SCAN, p, 4, "read", &st, err);
        int n = r ? rvi_pq.ntuples(r) : 0;
        more = n == RVI_PG_PAGE;
        for (int i = 0; i < n && !st; i++) {
            rv_bytes key = column(r, i, 0), record = column(r, i, 1);
            if (key.len > sizeof last || record.len > RVI_STORE_RECORD_BYTES) {
                st = fail_record(s, table, err);
            } else if (each(each_ctx, key, record)) {
                more = false;
                break;
            } else if (i == n - 1) {
                memcpy(last, key.data, key.len);
                from = (rv_bytes){last, key.len};
            }
        }
        rvi_pq.clear(r);
    }
    return st;
}

static rv_status pg_read(void *ctx, const char *stream, uint64_t from, rvi_record_fn each,
                         void *each_ctx, rv_error *err)
{
    rvi_pg_store *s = ctx;
    rv_status st = RV_OK;
    bool more = from <= INT64_MAX;
    while (!st && more) {
        char text[24];
        snprintf(text, sizeof text, "%lld", (long long)from);
        const parameter p[] = {of_text(s->space), of_text(stream), of_text(text)};
        PGresult *r = call(s, RVI_PG_READ, p, 3, "read", &st, err);
        int n = r ? rvi_pq.ntuples(r) : 0;
        more = n == RVI_PG_PAGE;
        for (int i = 0; i < n && !st; i++) {
            uint64_t seq = number(column(r, i, 0));
            rv_bytes record = column(r, i, 1);
            from = seq + 1;
            if (record.len > RVI_STORE_RECORD_BYTES) {
                st = fail_record(s, stream, err);
            } else if (each(each_ctx, seq, record)) {
                more = false;
                break;
            }
        }
        rvi_pq.clear(r);
    }
    return st;
}

static int pg_changed(void *ctx)
{
    rvi_pg_store *s = ctx;
    return atomic_exchange(&s->changed, false);
}

/* ---- opening and closing ---- */

static void pg_close(void *ctx)
{
    rvi_pg_store *s = ctx;
    pg_rollback(s);
    for (size_t i = 0; i < RVI_PG_LOCKS; i++)
        if (s->held[i].key) give_lock(s, &s->held[i]);
    if (s->link) rvi_pg_link_leave(s->link, s);
    rvi_free(s->space);
    rvi_free(s);
}

static rv_status new_store(rvi_pg_store **out, const char *space, rv_error *err)
{
    rvi_buf copy = {0};
    rvi_pg_store *s = rvi_zalloc(sizeof *s);
    if (!s || !rvi_buf_puts(&copy, space)) {
        rvi_free(s);
        rvi_buf_deinit(&copy);
        return rvi_nomem(err, "store");
    }
    s->space = copy.data;
    s->opened.close = pg_close;
    atomic_init(&s->changed, true); /* before the first look */
    snprintf(s->tag, sizeof s->tag, "%016llx", (unsigned long long)key_of(space, "changed"));
    *out = s;
    return RV_OK;
}

rv_status rvi_postgres_open(rv_store *out, const char *url, const rv_store_options *o,
                            rv_error *err)
{
    const char *space = o->space ? o->space : "default";
    rvi_pg_store *s = NULL;
    rvi_pg_link *link = NULL;
    *out = (rv_store){0};
    if (!*space || strlen(space) > MAX_SPACE)
        return rvi_error(err, RV_E_CONFIG, "rv_store_options.space must have 1..%d bytes (got %zu)",
                         (int)MAX_SPACE, strlen(space));
    if (o->beside) {
        const rvi_opened *other = o->beside->ctx;
        if (!other || other->close != pg_close ||
            strcmp(((const rvi_pg_store *)o->beside->ctx)->link->url, url))
            return rvi_error(err, RV_E_CONFIG,
                             "rv_store_options.beside is not an open store of the same database");
        link = ((const rvi_pg_store *)o->beside->ctx)->link;
    }
    rv_status st = new_store(&s, space, err);
    if (!st && !link) st = rvi_pg_link_open(&link, url, o->busy_ms, err);
    if (st) {
        if (s) pg_close(s);
        return st;
    }
    rvi_pg_link_join(link, s);
    *out = (rv_store){.ctx = s,
                      .append = pg_append,
                      .put = pg_put,
                      .get = pg_get,
                      .remove = pg_remove,
                      .scan = pg_scan,
                      .read = pg_read,
                      .begin = pg_begin,
                      .commit = pg_commit,
                      .rollback = pg_rollback,
                      .lock = pg_lock,
                      .unlock = pg_unlock,
                      .changed = pg_changed};
    return RV_OK;
}
