/* A store on the heap. Streams and tables are arrays of records; a table's is sorted by key. A
 * transaction keeps what it replaced, so that a rollback can put it back without allocating. */
#include "learn/journal/store.h"

#include <string.h>

#include "learn/journal/list.h"

enum { MAX_LISTS = 256 }; /* streams and tables in all */

typedef struct item {
    size_t key_len, len;
    uint8_t bytes[]; /* the key, then the record */
} item;

typedef struct list {
    bool is_stream;
    char name[RVI_STORE_MAX_NAME + 1];
    item **items;
    size_t n, cap;
} list;

typedef struct change { /* before and after of one place; NULL: nothing there */
    list *in;
    item *before, *after;
} change;

typedef struct memory {
    list *lists[MAX_LISTS];
    size_t n_lists;
    change *changes; /* of the open transaction */
    size_t n_changes, cap_changes;
    bool in_transaction;
} memory;

static int compare(const item *a, rvi_bytes key)
{
    size_t n = RVI_MIN(a->key_len, key.len);
    int c = n ? memcmp(a->bytes, key.data, n) : 0;
    return c ? c : (a->key_len > key.len) - (a->key_len < key.len);
}

/* The first place whose key is not below key. */
static size_t find(const list *l, rvi_bytes key)
{
    size_t low = 0, high = l->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (compare(l->items[middle], key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static item *item_at(const list *l, size_t at, rvi_bytes key)
{
    return at < l->n && !compare(l->items[at], key) ? l->items[at] : NULL;
}

static item *new_item(rvi_bytes key, rvi_bytes record)
{
    item *it = rvi_zalloc(sizeof *it + key.len + record.len);
    if (!it) return NULL;
    it->key_len = key.len;
    it->len = record.len;
    if (key.len) memcpy(it->bytes, key.data, key.len);
    if (record.len) memcpy(it->bytes + key.len, record.data, record.len);
    return it;
}

static list *list_of(memory *m, bool is_stream, const char *name)
{
    for (size_t i = 0; i < m->n_lists; i++)
        if (m->lists[i]->is_stream == is_stream && !strcmp(m->lists[i]->name, name))
            return m->lists[i];
    return NULL;
}

static rv_status make_list(list **out, memory *m, bool is_stream, const char *name, rv_error *err)
{
    if ((*out = list_of(m, is_stream, name))) return RV_OK;
    if (m->n_lists == MAX_LISTS)
        return rvi_error(err, RV_E_STORAGE, "%s: more than %d streams and tables", name, MAX_LISTS);
    list *l = rvi_zalloc(sizeof *l);
    if (!l) return rvi_nomem(err, "list of the store");
    l->is_stream = is_stream;
    memcpy(l->name, name, strlen(name));
    *out = m->lists[m->n_lists++] = l;
    return RV_OK;
}

/* Room for one more, so that neither the change nor its undoing has to allocate. */
static rv_status reserve(memory *m, list *l, rv_error *err)
{
    bool done = rvi_list_room((void **)&l->items, l->n, &l->cap, sizeof *l->items) &&
                (!m->in_transaction || rvi_list_room((void **)&m->changes, m->n_changes,
                                                     &m->cap_changes, sizeof *m->changes));
    return done ? RV_OK : rvi_nomem(err, "list of the store");
}

static void insert(list *l, size_t at, item *it)
{
    memmove(l->items + at + 1, l->items + at, (l->n - at) * sizeof *l->items);
    l->items[at] = it;
    l->n++;
}

static void changed(memory *m, list *l, item *before, item *after)
{
    if (m->in_transaction)
        m->changes[m->n_changes++] = (change){l, before, after};
    else
        rvi_free(before);
}

static rv_status memory_append(void *ctx, const char *stream, rvi_bytes record, uint64_t *seq,
                               rv_error *err)
{
    memory *m = ctx;
    list *l;
    rv_status st = make_list(&l, m, true, stream, err);
    if (!st) st = reserve(m, l, err);
    if (st) return st;
    item *it = new_item((rvi_bytes){0}, record);
    if (!it) return rvi_nomem(err, "record of the store");
    insert(l, l->n, it);
    changed(m, l, NULL, it);
    *seq = l->n;
    return RV_OK;
}

static rv_status memory_put(void *ctx, const char *table, rvi_bytes key, rvi_bytes record,
                            rv_error *err)
{
    memory *m = ctx;
    list *l;
    rv_status st = make_list(&l, m, false, table, err);
    if (!st) st = reserve(m, l, err);
    if (st) return st;
    item *it = new_item(key, record);
    if (!it) return rvi_nomem(err, "record of the store");
    size_t at = find(l, key);
    item *before = item_at(l, at, key);
    if (before)
        l->items[at] = it;
    else
        insert(l, at, it);
    changed(m, l, before, it);
    return RV_OK;
}

static rv_status memory_get(void *ctx, const char *table, rvi_bytes key, rvi_store_item_fn each,
                            void *each_ctx, rv_error *err)
{
    list *l = list_of(ctx, false, table);
    item *it = l ? item_at(l, find(l, key), key) : NULL;
    (void)err;
    if (it) (void)each(each_ctx, key, (rvi_bytes){it->bytes + it->key_len, it->len});
    return RV_OK;
}

static rv_status memory_remove(void *ctx, const char *table, rvi_bytes key, rv_error *err)
{
    memory *m = ctx;
    list *l = list_of(m, false, table);
    size_t at = l ? find(l, key) : 0;
    item *it = l ? item_at(l, at, key) : NULL;
    if (!it) return RV_OK;
    rv_status st = reserve(m, l, err);
    if (st) return st;
    rvi_list_cut(l->items, &l->n, at, sizeof *l->items);
    changed(m, l, it, NULL);
    return RV_OK;
}

static rv_status memory_scan(void *ctx, const char *table, rvi_bytes from, rvi_store_item_fn each,
                             void *each_ctx, rv_error *err)
{
    const list *l = list_of(ctx, false, table);
    (void)err;
    for (size_t i = l ? find(l, from) : 0; l && i < l->n; i++) {
        const item *it = l->items[i];
        if (each(each_ctx, (rvi_bytes){it->bytes, it->key_len},
                 (rvi_bytes){it->bytes + it->key_len, it->len}))
            break;
    }
    return RV_OK;
}

static rv_status memory_read(void *ctx, const char *stream, uint64_t from, rvi_store_record_fn each,
                             void *each_ctx, rv_error *err)
{
    const list *l = list_of(ctx, true, stream);
    (void)err;
    for (uint64_t seq = from ? from : 1; l && seq <= l->n; seq++) {
        const item *it = l->items[seq - 1];
        if (each(each_ctx, seq, (rvi_bytes){it->bytes, it->len})) break;
    }
    return RV_OK;
}

static rv_status memory_begin(void *ctx, int durable, rv_error *err)
{
    (void)durable;
    (void)err;
    ((memory *)ctx)->in_transaction = true;
    return RV_OK;
}

static rv_status memory_commit(void *ctx, rv_error *err)
{
    memory *m = ctx;
    (void)err;
    for (size_t i = 0; i < m->n_changes; i++) rvi_free(m->changes[i].before);
    m->n_changes = 0;
    m->in_transaction = false;
    return RV_OK;
}

static void memory_rollback(void *ctx)
{
    memory *m = ctx;
    while (m->n_changes) {
        change c = m->changes[--m->n_changes];
        const item *known = c.after ? c.after : c.before;
        size_t at =
            c.in->is_stream ? c.in->n - 1 : find(c.in, (rvi_bytes){known->bytes, known->key_len});
        if (!c.after)
            insert(c.in, at, c.before); /* there was room for it before */
        else if (!c.before)
            rvi_list_cut(c.in->items, &c.in->n, at, sizeof *c.in->items);
        else
            c.in->items[at] = c.before;
        rvi_free(c.after);
    }
    m->in_transaction = false;
}

static void memory_close(void *ctx)
{
    memory *m = ctx;
    for (size_t i = 0; i < m->n_lists; i++) {
        list *l = m->lists[i];
        for (size_t k = 0; k < l->n; k++) rvi_free(l->items[k]);
        rvi_free(l->items);
        rvi_free(l);
    }
    rvi_free(m->changes);
    rvi_free(m);
}

rv_status rvi_store_memory(rvi_store *out, rv_error *err)
{
    *out = (rvi_store){0};
    memory *m = rvi_zalloc(sizeof *m);
    if (!m) return rvi_nomem(err, "store");
    out->by = (rv_store){
        .ctx = m,
        .append = memory_append,
        .put = memory_put,
        .get = memory_get,
        .remove = memory_remove,
        .scan = memory_scan,
        .read = memory_read,
        .begin = memory_begin,
        .commit = memory_commit,
        .rollback = memory_rollback,
    };
    out->close = memory_close;
    return RV_OK;
}
