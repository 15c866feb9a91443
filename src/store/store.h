/* store.h - what the kinds of stores behind rv_store_open share. */
#ifndef RVI_STORE_STORE_H
#define RVI_STORE_STORE_H

#include <stdbool.h>

#include "base/error.h"
#include "ruvllm_store.h"

enum {
    RVI_STORE_BUSY_MS = 10000,        /* that a writer waits for another, unless it is told */
    RVI_STORE_RECORD_BYTES = 1 << 20, /* more than that was not written by this program */
    RVI_STORE_KEY_BYTES = 256,
};

typedef int (*rvi_item_fn)(void *ctx, rv_bytes key, rv_bytes record);
typedef int (*rvi_record_fn)(void *ctx, uint64_t seq, rv_bytes record);

/* What the ctx of every store begins with. */
typedef struct rvi_opened {
    void (*close)(void *ctx);
} rvi_opened;

/* A store in one file; the options are whole. */
rv_status rvi_sqlite_open(rv_store *out, const char *path, const rv_store_options *o,
                          rv_error *err) RVI_MUST_CHECK;
/* postgres.c, or no_postgres.c where libpq was not there when the program was built. The options
 * are whole. */
rv_status rvi_postgres_open(rv_store *out, const char *url, const rv_store_options *o,
                            rv_error *err) RVI_MUST_CHECK;

#endif
