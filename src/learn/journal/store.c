/* Checks of what every store has in common; then the store's own function. */
#include "learn/journal/store.h"

#include <string.h>

static rv_status check_name(const rvi_store *s, const char *name, rv_error *err)
{
    if (!s->by.append) return rvi_error(err, RV_E_INVALID, "the store is closed");
    if (s->in_scan) return rvi_error(err, RV_E_INVALID, "the store is used while it is read");
    size_t len = strlen(name);
    if (!len || len > RVI_STORE_MAX_NAME ||
        strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_.-") != len)
        return rvi_error(err, RV_E_INVALID, "'%.80s' cannot name a stream or table", name);
    return RV_OK;
}

static rv_status check_key(const char *table, size_t len, rv_error *err)
{
    if (len && len <= RVI_STORE_MAX_KEY) return RV_OK;
    return rvi_error(err, RV_E_INVALID, "table %s: a key of %zu bytes; 1 to %d are possible", table,
                     len, (int)RVI_STORE_MAX_KEY);
}

static rv_status check_record(const char *name, size_t len, rv_error *err)
{
    if (len <= RVI_STORE_MAX_RECORD) return RV_OK;
    return rvi_error(err, RV_E_INVALID, "%s: a record of %zu bytes; at most %d are possible", name,
                     len, (int)RVI_STORE_MAX_RECORD);
}

void rvi_store_close(rvi_store *s)
{
    if (s->in_transaction) s->by.rollback(s->by.ctx);
    if (s->close) s->close(s->by.ctx);
    *s = (rvi_store){0};
}

rv_status rvi_store_append(rvi_store *s, const char *stream, const void *record, size_t len,
                           uint64_t *seq, rv_error *err)
{
    uint64_t number = 0;
    rv_status st = check_name(s, stream, err);
    if (!st) st = check_record(stream, len, err);
    if (!st) st = s->by.append(s->by.ctx, stream, (rvi_bytes){record, len}, &number, err);
    if (seq) *seq = number;
    return st;
}

rv_status rvi_store_put(rvi_store *s, const char *table, const void *key, size_t key_len,
                        const void *record, size_t len, rv_error *err)
{
    rv_status st = check_name(s, table, err);
    if (!st) st = check_key(table, key_len, err);
    if (!st) st = check_record(table, len, err);
    if (!st)
        st = s->by.put(s->by.ctx, table, (rvi_bytes){key, key_len}, (rvi_bytes){record, len}, err);
    return st;
}

typedef struct taken {
    rvi_buf *out;
    bool found;
} taken;

static int take(void *ctx, rvi_bytes key, rvi_bytes record)
{
    taken *t = ctx;
    (void)key;
    t->found = true;
    (void)rvi_buf_append(t->out, record.data ? record.data : "", record.len);
    return 1;
}

rv_status rvi_store_get(rvi_store *s, const char *table, const void *key, size_t key_len,
                        rvi_buf *out, bool *found, rv_error *err)
{
    *found = false;
    rv_status st = check_name(s, table, err);
    if (!st) st = check_key(table, key_len, err);
    taken t = {.out = out};
    if (!st) st = s->by.get(s->by.ctx, table, (rvi_bytes){key, key_len}, take, &t, err);
    *found = !st && t.found;
    return !st && out->failed ? rvi_nomem(err, "record") : st;
}

rv_status rvi_store_remove(rvi_store *s, const char *table, const void *key, size_t key_len,
                           rv_error *err)
{
    rv_status st = check_name(s, table, err);
    if (!st) st = check_key(table, key_len, err);
    if (!st) st = s->by.remove(s->by.ctx, table, (rvi_bytes){key, key_len}, err);
    return st;
}

rv_status rvi_store_scan(rvi_store *s, const char *table, const void *from, size_t from_len,
                         rvi_store_item_fn each, void *ctx, rv_error *err)
{
    rv_status st = check_name(s, table, err);
    if (!st && from_len) st = check_key(table, from_len, err);
    if (st) return st;
    s->in_scan = true;
    st = s->by.scan(s->by.ctx, table, (rvi_bytes){from, from_len}, each, ctx, err);
    s->in_scan = false;
    return st;
}

rv_status rvi_store_read(rvi_store *s, const char *stream, uint64_t from, rvi_store_record_fn each,
                         void *ctx, rv_error *err)
{
    rv_status st = check_name(s, stream, err);
    if (st) return st;
    s->in_scan = true;
    st = s->by.read(s->by.ctx, stream, from, each, ctx, err);
    s->in_scan = false;
    return st;
}

rv_status rvi_store_begin(rvi_store *s, bool durable, rv_error *err)
{
    if (!s->by.append) return rvi_error(err, RV_E_INVALID, "the store is closed");
    if (s->in_scan || s->in_transaction)
        return rvi_error(err, RV_E_INVALID, "the store is already in use");
    rv_status st = s->by.begin(s->by.ctx, durable, err);
    s->in_transaction = !st;
    return st;
}

rv_status rvi_store_end(rvi_store *s, rv_status st, rv_error *err)
{
    if (!s->in_transaction) return st ? st : rvi_error(err, RV_E_INVALID, "no transaction to end");
    s->in_transaction = false;
    if (!st) return s->by.commit(s->by.ctx, err);
    s->by.rollback(s->by.ctx);
    return st;
}
