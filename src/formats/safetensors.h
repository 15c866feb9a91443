/* safetensors.h - safetensors files (one, or the shards of an index) as tensor views. */
#ifndef RVI_FORMATS_SAFETENSORS_H
#define RVI_FORMATS_SAFETENSORS_H

#include <stdio.h>

#include "base/blob.h"
#include "formats/tensor_view.h"

typedef struct rvi_safetensors rvi_safetensors;

/* A .safetensors file. F32, F16 and BF16 tensors become views, others raw tensors (below). A scalar
 * has the shape {1}. If a dimension is zero, n_bytes is zero. */
rv_status rvi_safetensors_open(rvi_safetensors **out, const char *path,
                               rv_error *err) RVI_MUST_CHECK;
/* DIR/model.safetensors, else every shard named by DIR/model.safetensors.index.json. The index
 * decides: each tensor it lists must be in the shard it names; tensors of the shards that it does
 * not list there are left out. */
rv_status rvi_safetensors_open_dir(rvi_safetensors **out, const char *dir,
                                   rv_error *err) RVI_MUST_CHECK;
/* From bytes in memory; takes the blob (also on failure: it is closed then). name is used in
 * errors. */
rv_status rvi_safetensors_open_blob(rvi_safetensors **out, rvi_blob *take, const char *name,
                                    rv_error *err) RVI_MUST_CHECK;
void rvi_safetensors_close(rvi_safetensors *s); /* accepts NULL */

/* Whether all bytes that were used could be read (rvi_blob_check). */
rv_status rvi_safetensors_check(const rvi_safetensors *s, const char *name,
                                rv_error *err) RVI_MUST_CHECK;
uint64_t rvi_safetensors_file_bytes(const rvi_safetensors *s);
size_t rvi_safetensors_n_tensors(const rvi_safetensors *s);
rvi_tensor_view *rvi_safetensors_tensor_at(rvi_safetensors *s, size_t i);
rvi_tensor_view *rvi_safetensors_tensor(rvi_safetensors *s, const char *name);

/* A text of the file's __metadata__, or NULL; with several shards, that of the first one. */
const char *rvi_safetensors_meta(const rvi_safetensors *s, const char *key);

/* Tensors of other dtypes (I32, I64, U8, BOOL, F64, ...) are available as name, dtype text and
 * bytes. */
typedef struct rvi_raw_tensor {
    const char *name, *dtype;
    int n_dims;
    uint64_t shape[RVI_MAX_DIMS];
    const uint8_t *data;
    uint64_t n_bytes;
} rvi_raw_tensor;
const rvi_raw_tensor *rvi_safetensors_raw(const rvi_safetensors *s, const char *name);
size_t rvi_safetensors_n_raw(const rvi_safetensors *s);
const rvi_raw_tensor *rvi_safetensors_raw_at(const rvi_safetensors *s, size_t i);

/* Writes f32, f16 or bf16 tensors in the order given, directly to path, and flushes to disk. Of a
 * view only name, type, shape and data are used; n_dims 0 is a scalar. On failure an incomplete
 * file is left at path (where that matters, write to a temporary name and use rvi_os_replace). */
typedef struct rvi_st_meta {
    const char *key, *value;
} rvi_st_meta;
rv_status rvi_safetensors_write_views(const char *path, const rvi_tensor_view *tensors, size_t n,
                                      const rvi_st_meta *meta, size_t n_meta,
                                      rv_error *err) RVI_MUST_CHECK;

/* The same for f32 tensors without metadata. */
typedef struct rvi_st_entry {
    const char *name;
    int n_dims;
    uint64_t shape[RVI_MAX_DIMS];
    const float *data;
} rvi_st_entry;
rv_status rvi_safetensors_write(const char *path, const rvi_st_entry *entries, size_t n,
                                rv_error *err) RVI_MUST_CHECK;

#endif
