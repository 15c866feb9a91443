/* Keeping a bank: its entries, the store, and changes that happen as a whole or not at all. */
#include "learn/bank_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/cursor.h"

#define TABLE "bank"
#define UNDO  "bank.undo"
#define META  "bank.meta"

enum {
    UNDO_EVENTS = 64,
    TRIM_EVERY = 16, /* events */
};

/* ---- entries ---- */

static rv_status reserve(rvi_bank *b, rv_error *err)
{
    if (b->n < b->cap) return RV_OK;
    size_t cap = b->cap ? 2 * b->cap : 64;
    rvi_bank_entry *entries = rvi_realloc_array(b->entries, cap, sizeof *entries);
    if (!entries) return rvi_nomem(err, "bank");
    b->entries = entries;
    b->cap = cap;
    return RV_OK;
}

void rvi_bank_clear(rvi_bank *b)
{
    for (size_t i = 0; i < b->n; i++) {
        if (b->entries[i].now != b->entries[i].saved) rvi_free(b->entries[i].now);
        rvi_free(b->entries[i].saved);
    }
    b->n = 0;
}

size_t rvi_bank_index(const rvi_bank *b, size_t n, uint64_t id)
{
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (b->entries[middle].id == id) return middle;
        if (b->entries[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return SIZE_MAX;
}

static int by_id(const void *a, const void *b)
{
    uint64_t x = ((const rvi_bank_entry *)a)->id, y = ((const rvi_bank_entry *)b)->id;
    return (x > y) - (x < y);
}

rvi_pattern *rvi_bank_edit(rvi_bank *b, size_t i, rv_error *err)
{
    rvi_bank_entry *e = &b->entries[i];
    if (e->now == e->saved) {
        rvi_pattern *copy = rvi_pattern_copy(e->saved, true);
        if (!copy) {
            (void)rvi_nomem(err, "pattern");
            return NULL;
        }
        e->now = copy;
    }
    return e->now;
}

void rvi_bank_drop(rvi_bank *b, size_t i)
{
    rvi_bank_entry *e = &b->entries[i];
    if (e->now != e->saved) rvi_free(e->now);
    e->now = NULL;
}

rv_status rvi_bank_insert(rvi_bank *b, const rvi_pattern *p, const rvi_pattern_keys *keys,
                          bool exact, rv_error *err)
{
    rv_status st = reserve(b, err);
    if (st) return st;
    rvi_pattern *copy = rvi_pattern_copy(p, exact);
    if (!copy) return rvi_nomem(err, "pattern");
    b->entries[b->n++] = (rvi_bank_entry){.now = copy,
                                          .id = p->id,
                                          .size = (uint32_t)rvi_pattern_size(p),
                                          .n_dim = (uint32_t)p->n_dim,
                                          .keys = *keys};
    return RV_OK;
}

/* ---- the store ---- */

static void put_key(uint8_t out[RVI_BANK_ID_LEN], uint64_t v)
{
    for (unsigned i = 0; i < RVI_BANK_ID_LEN; i++)
        out[i] = (uint8_t)(v >> (8 * (RVI_BANK_ID_LEN - 1 - i)));
}

uint64_t rvi_bank_key(const uint8_t *key)
{
    uint64_t v = 0;
    for (unsigned i = 0; i < RVI_BANK_ID_LEN; i++) v = v << 8 | key[i];
    return v;
}

typedef struct meta {
    uint64_t version, next_id, last_event;
} meta;

static rv_status read_meta(rvi_store *s, meta *out, rv_error *err)
{
    char storage[64];
    rvi_buf buf = rvi_buf_over(storage, sizeof storage);
    bool found;
    *out = (meta){.next_id = 1};
    rv_status st = rvi_store_get(s, META, "bank", 4, &buf, &found, err);
    if (!st && found) {
        rvi_cursor c = {.data = (const uint8_t *)buf.data, .len = buf.len};
        out->version = rvi_cursor_u64(&c);
        out->next_id = rvi_cursor_u64(&c);
        out->last_event = rvi_cursor_u64(&c);
        if (c.failed || c.pos != c.len || !out->next_id || out->next_id > INT64_MAX)
            st = rvi_error(err, RV_E_STORAGE, "the head of the bank is damaged");
    }
    rvi_buf_deinit(&buf);
    return st;
}

static rv_status write_meta(rvi_store *s, meta m, rv_error *err)
{
    uint8_t bytes[24];
    const uint64_t values[] = {m.version, m.next_id, m.last_event};
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)(values[i / 8] >> (8 * (i % 8)));
    return rvi_store_put(s, META, "bank", 4, bytes, sizeof bytes, err);
}

typedef struct loader {
    rvi_bank *b;
    float *vector;
    rv_status st;
    rv_error *err;
} loader;

static int load_one(void *ctx, rvi_bytes key, rvi_bytes record)
{
    loader *l = ctx;
    rvi_pattern p;
    rvi_pattern_keys keys;
    if (key.len != RVI_BANK_ID_LEN || rvi_pattern_parse(&p, record, l->vector, NULL) ||
        p.id != rvi_bank_key(key.data) || !p.id || p.id >= INT64_MAX ||
        (p.n_dim && l->b->n_dim && p.n_dim != l->b->n_dim)) {
        l->b->n_damaged++;
        return 0;
    }
    l->st = rvi_pattern_keys_of(&keys, &p, l->err);
    if (!l->st) l->st = rvi_bank_insert(l->b, &p, &keys, true, l->err);
    if (l->st) return 1;
    rvi_bank_entry *e = &l->b->entries[l->b->n - 1];
    e->saved = e->now;
    if (p.n_dim) l->b->n_dim = p.n_dim;
    return 0;
}

rv_status rvi_bank_load(rvi_bank *b, rv_error *err)
{
    meta m;
    rvi_bank fresh = {.store = b->store, .options = b->options};
    loader l = {.b = &fresh, .err = err};
    rv_status st = read_meta(b->store, &m, err);
    if (st) return st;
    l.vector = rvi_alloc_array(RVI_PATTERN_MAX_DIM, sizeof *l.vector);
    if (!l.vector) return rvi_nomem(err, "vector");
    st = rvi_store_scan(b->store, TABLE, NULL, 0, load_one, &l, err);
    if (!st) st = l.st;
    rvi_free(l.vector);
    if (!st) {
        fresh.version = m.version;
        fresh.next_id = m.next_id;
        fresh.last_event = m.last_event;
        if (fresh.n && fresh.entries[fresh.n - 1].id >= fresh.next_id)
            fresh.next_id = fresh.entries[fresh.n - 1].id + 1;
        rvi_bank old = *b;
        *b = fresh;
        fresh = old;
    }
    rvi_bank_clear(&fresh);
    rvi_free(fresh.entries);
    return st;
}

rv_status rvi_bank_stored_version(rvi_bank *b, uint64_t *out, rv_error *err)
{
    meta m;
    rv_status st = read_meta(b->store, &m, err);
    *out = m.version;
    return st;
}

/* ---- what was before an event ---- */

/* Only the first change of an event knows what was before it. */
static rv_status keep_before(rvi_bank *b, const rvi_bank_entry *e, uint64_t event, rvi_buf *record,
                             rv_error *err)
{
    uint8_t key[RVI_BANK_IMAGE_LEN];
    bool found;
    put_key(key, event);
    put_key(key + RVI_BANK_ID_LEN, e->id);
    record->len = 0;
    rv_status st = rvi_store_get(b->store, UNDO, key, sizeof key, record, &found, err);
    if (st || found) return st;
    record->len = 0;
    if (e->saved) st = rvi_pattern_write(record, e->saved, err);
    return st ? st : rvi_store_put(b->store, UNDO, key, sizeof key, record->data, record->len, err);
}

typedef struct collection {
    rvi_buf *keys;
    uint64_t only, last;
    size_t n_events;
} collection;

static int collect_key(void *ctx, rvi_bytes key, rvi_bytes record)
{
    collection *c = ctx;
    (void)record;
    if (key.len != RVI_BANK_IMAGE_LEN) return 0;
    uint64_t event = rvi_bank_key(key.data);
    if (c->only && event != c->only) return 1;
    c->n_events += !c->n_events || event != c->last;
    c->last = event;
    return !rvi_buf_append(c->keys, key.data, key.len);
}

rv_status rvi_bank_images(rvi_bank *b, uint64_t event, rvi_buf *keys, size_t *n_events,
                          rv_error *err)
{
    uint8_t from[RVI_BANK_ID_LEN];
    collection c = {.keys = keys, .only = event};
    put_key(from, event);
    rv_status st = rvi_store_scan(b->store, UNDO, from, sizeof from, collect_key, &c, err);
    if (n_events) *n_events = c.n_events;
    return !st && keys->failed ? rvi_nomem(err, "keys") : st;
}

rv_status rvi_bank_image(rvi_bank *b, const uint8_t *key, rvi_buf *out, rv_error *err)
{
    bool found;
    return rvi_store_get(b->store, UNDO, key, RVI_BANK_IMAGE_LEN, out, &found, err);
}

rv_status rvi_bank_remove_image(rvi_bank *b, const uint8_t *key, rv_error *err)
{
    return rvi_store_remove(b->store, UNDO, key, RVI_BANK_IMAGE_LEN, err);
}

rv_status rvi_bank_trim_images(rvi_bank *b, size_t n_keep, rv_error *err)
{
    rvi_buf keys = {0};
    size_t n_events = 0, n_seen = 0;
    uint64_t last = 0;
    rv_status st = rvi_bank_images(b, 0, &keys, &n_events, err);
    for (size_t i = 0; !st && i < keys.len; i += RVI_BANK_IMAGE_LEN) {
        const uint8_t *key = (const uint8_t *)keys.data + i;
        n_seen += !i || rvi_bank_key(key) != last;
        last = rvi_bank_key(key);
        if (n_seen + n_keep > n_events) break;
        st = rvi_bank_remove_image(b, key, err);
    }
    rvi_buf_deinit(&keys);
    return st;
}

/* ---- a change ---- */

rv_status rvi_bank_begin(rvi_bank *b, bool durable, rv_error *err)
{
    uint64_t version;
    rv_status st = rvi_store_begin(b->store, durable, err);
    if (st) return st;
    st = rvi_bank_stored_version(b, &version, err);
    if (!st && version != b->version) st = rvi_bank_load(b, err);
    return st ? rvi_store_end(b->store, st, err) : RV_OK;
}

static rv_status write_entry(rvi_bank *b, const rvi_bank_entry *e, rvi_buf *record, rv_error *err)
{
    uint8_t key[RVI_BANK_ID_LEN];
    put_key(key, e->id);
    if (!e->now) return rvi_store_remove(b->store, TABLE, key, sizeof key, err);
    record->len = 0;
    rv_status st = rvi_pattern_write(record, e->now, err);
    return st ? st
              : rvi_store_put(b->store, TABLE, key, sizeof key, record->data, record->len, err);
}

static rv_status write_changes(rvi_bank *b, const rvi_bank_change *c, meta *m, rv_error *err)
{
    rvi_buf record = {.max = RVI_STORE_MAX_RECORD};
    rv_status st = RV_OK;
    bool changed = c->event > m->last_event;
    if (changed) m->last_event = c->event;
    for (size_t i = 0; !st && i < b->n; i++) {
        const rvi_bank_entry *e = &b->entries[i];
        if (e->now == e->saved) continue;
        changed = true;
        if (c->undoable && c->event) st = keep_before(b, e, c->event, &record, err);
        if (!st) st = write_entry(b, e, &record, err);
    }
    rvi_buf_deinit(&record);
    if (!st && c->undoable && c->event % TRIM_EVERY == 0)
        st = rvi_bank_trim_images(b, UNDO_EVENTS, err);
    if (!st && changed) {
        m->version++;
        st = write_meta(b->store, *m, err);
    }
    return st;
}

/* Makes the entries as they will be, or as they were. */
static void settle(rvi_bank *b, bool accept)
{
    size_t n = 0;
    bool sorted = true;
    b->n_dim = 0;
    for (size_t i = 0; i < b->n; i++) {
        rvi_bank_entry *e = &b->entries[i];
        rvi_pattern *stays = accept ? e->now : e->saved, *goes = accept ? e->saved : e->now;
        if (goes != stays) rvi_free(goes);
        if (!stays) continue;
        e->saved = e->now = stays;
        if (e->n_dim) b->n_dim = e->n_dim;
        if (n && b->entries[n - 1].id > e->id) sorted = false;
        if (n != i) b->entries[n] = *e;
        n++;
    }
    b->n = n;
    if (!sorted) qsort(b->entries, n, sizeof *b->entries, by_id);
}

rv_status rvi_bank_end(rvi_bank *b, rv_status st, rvi_bank_change c, rv_error *err)
{
    meta m = {b->version, c.next_id, b->last_event};
    if (!st) st = write_changes(b, &c, &m, err);
    st = rvi_store_end(b->store, st, err);
    settle(b, !st);
    if (!st) {
        b->version = m.version;
        b->next_id = m.next_id;
        b->last_event = m.last_event;
    }
    return st;
}

static int note_key(void *ctx, rvi_bytes key, rvi_bytes record)
{
    rvi_buf *keys = ctx;
    uint16_t len = (uint16_t)key.len;
    (void)record;
    return !rvi_buf_append(keys, &len, sizeof len) || !rvi_buf_append(keys, key.data, key.len);
}

rv_status rvi_bank_erase(rvi_store *store, rv_error *err)
{
    static const char *const tables[] = {TABLE, UNDO, META};
    rv_status st = rvi_store_begin(store, true, err);
    if (st) return st;
    for (size_t i = 0; !st && i < RVI_COUNT(tables); i++) {
        rvi_buf keys = {0};
        uint16_t len;
        st = rvi_store_scan(store, tables[i], NULL, 0, note_key, &keys, err);
        if (!st && keys.failed) st = rvi_nomem(err, "keys");
        for (size_t at = 0; !st && at < keys.len; at += sizeof len + len) {
            memcpy(&len, keys.data + at, sizeof len);
            st = rvi_store_remove(store, tables[i], keys.data + at + sizeof len, len, err);
        }
        rvi_buf_deinit(&keys);
    }
    return rvi_store_end(store, st, err);
}
