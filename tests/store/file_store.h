/* file_store.h - a store file as the learning room sees it. */
#ifndef TESTS_STORE_FILE_STORE_H
#define TESTS_STORE_FILE_STORE_H

#include "learn/journal/store.h"
#include "ruvllm_store.h"

static inline void file_store_close(void *ctx)
{
    rv_store_close(&(rv_store){.ctx = ctx});
}

static inline rv_status file_store(rvi_store *out, const char *path, int busy_ms, rv_error *err)
{
    *out = (rvi_store){0};
    rv_store_options o = {.size = sizeof o, .busy_ms = busy_ms};
    rv_status st = rv_store_open(&out->by, path, &o, err);
    if (!st) out->close = file_store_close;
    return st;
}

#endif
