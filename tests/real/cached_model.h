/* cached_model.h - where `ruvllm pull NAME` left a model; tests that need it are skipped where it
 * is not. */
#ifndef TESTS_REAL_CACHED_MODEL_H
#define TESTS_REAL_CACHED_MODEL_H

#include <stdio.h>
#include <stdlib.h>

#include "base/blob.h"
#include "harness/assert_ok.h"
#include "hub/hub.h"
#include "tokenizer/tokenizer.h"

/* out: the path, or "" if it is not on this machine. */
static inline void find_cached(const char *name, char *out, size_t size)
{
    char cache[512];
    rvi_buf b = {0};
    const char *dir = getenv("RUVLLM_CACHE_DIR"), *home = getenv("HOME");
    const rvi_hub_model *m = rvi_hub_find(name);
    out[0] = 0;
    if (dir && *dir)
        snprintf(cache, sizeof cache, "%s", dir);
    else
        snprintf(cache, sizeof cache, "%s/.cache/ruvllm", home ? home : ".");
    if (rvi_hub_present(cache, m) && rvi_hub_path(&b, cache, m, NULL) == RV_OK)
        snprintf(out, size, "%s", b.data);
    rvi_buf_deinit(&b);
}

/* The tokenizer of a model that is a directory. */
static inline rvi_tokenizer *open_cached_tokenizer(const char *path)
{
    char file[1100];
    rvi_blob blob;
    rvi_tokenizer *t;
    snprintf(file, sizeof file, "%s/tokenizer.json", path);
    assert_ok(rvi_blob_open(&blob, file, err));
    rvi_tokenizer_files files = {.tokenizer = (const char *)blob.data, .tokenizer_len = blob.len};
    assert_ok(rvi_tokenizer_from_json(&t, &files, NULL, err));
    rvi_blob_close(&blob);
    return t;
}

#endif
