/* store.h - where learning keeps what must outlive the process: the small interface that this room
 * sees, and its dispatch. What keeps the bytes is handed in: rvi_store_memory here, an SQLite file
 * in the program's own room.
 *
 * A stream is a growing list of records, numbered 1, 2, 3 ... without gaps. A table maps keys to
 * records, in the byte order of its keys. Names, keys and records are capped (below).
 *
 * Durability: an append, and a transaction that began durable, are on the disk when the call
 * returns. A single put or remove, and a transaction that did not begin durable, survive the end of
 * the process at once, and a power failure from the next durable call on; nothing is ever
 * reordered.
 *
 * A store is used by one thread at a time. Where the bytes are a file, several processes (or
 * several stores of one process) may have it open and write in turns; a writer that waits too long
 * gets RV_E_STORAGE. */
#ifndef RVI_LEARN_STORE_H
#define RVI_LEARN_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ruvllm_learn.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/utf8.h"

enum {
    RVI_STORE_MAX_RECORD = 1 << 20, /* bytes */
    RVI_STORE_MAX_KEY = 256,        /* bytes; at least 1 */
    RVI_STORE_MAX_NAME = 64,        /* of a stream or table: a-z 0-9 _ . - */
};

typedef rv_bytes rvi_bytes;

/* Return something else than 0 to stop. The bytes are valid during the call, which must not use the
 * store. */
typedef int (*rvi_store_item_fn)(void *ctx, rvi_bytes key, rvi_bytes record);
typedef int (*rvi_store_record_fn)(void *ctx, uint64_t seq, rvi_bytes record);

/* Whoever implements an rv_store (ruvllm.h) gets arguments that were checked before; begin, commit
 * and rollback come in pairs and never nest. Outside of them every call is a transaction of its
 * own. A failed call may leave a transaction only good for rollback. */
typedef struct rvi_store {
    rv_store by;              /* append NULL: closed */
    void (*close)(void *ctx); /* NULL: somebody else does */
    bool in_transaction, in_scan;
} rvi_store;

/* Keeps everything on the heap, until it is closed. */
rv_status rvi_store_memory(rvi_store *out, rv_error *err) RVI_MUST_CHECK;
void rvi_store_close(rvi_store *s); /* accepts a zeroed one; an open transaction is rolled back */

/* seq (may be NULL): the number the record got. */
rv_status rvi_store_append(rvi_store *s, const char *stream, const void *record, size_t len,
                           uint64_t *seq, rv_error *err) RVI_MUST_CHECK;
rv_status rvi_store_put(rvi_store *s, const char *table, const void *key, size_t key_len,
                        const void *record, size_t len, rv_error *err) RVI_MUST_CHECK;
/* Appends the record to out. A missing one is no error: *found is false then. */
rv_status rvi_store_get(rvi_store *s, const char *table, const void *key, size_t key_len,
                        rvi_buf *out, bool *found, rv_error *err) RVI_MUST_CHECK;
rv_status rvi_store_remove(rvi_store *s, const char *table, const void *key, size_t key_len,
                           rv_error *err) RVI_MUST_CHECK; /* a missing one is no error */
/* Every item of a table from the key `from` on (from_len 0: all), in order. */
rv_status rvi_store_scan(rvi_store *s, const char *table, const void *from, size_t from_len,
                         rvi_store_item_fn each, void *ctx, rv_error *err) RVI_MUST_CHECK;
/* Every record of a stream from number `from` on. */
rv_status rvi_store_read(rvi_store *s, const char *stream, uint64_t from, rvi_store_record_fn each,
                         void *ctx, rv_error *err) RVI_MUST_CHECK;

/* Everything between begin and end happens as a whole or not at all, and no other process writes in
 * between; durable: end returns when it is on the disk. */
rv_status rvi_store_begin(rvi_store *s, bool durable, rv_error *err) RVI_MUST_CHECK;
/* st RV_OK: commits. Anything else: rolls back, and st is the answer, err as the caller left it. */
rv_status rvi_store_end(rvi_store *s, rv_status st, rv_error *err) RVI_MUST_CHECK;

#endif
