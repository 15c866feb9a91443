/* gguf_write.h - writing GGUF files (version 3): a few values and tensors from memory. */
#ifndef RVI_FORMATS_GGUF_WRITE_H
#define RVI_FORMATS_GGUF_WRITE_H

#include "formats/gguf.h"

/* A value: a text, or where that is NULL an f32. */
typedef struct rvi_gguf_entry {
    const char *key, *text;
    float number;
} rvi_gguf_entry;

/* Writes values and tensors in the order given, directly to path, and flushes to disk. Of a view
 * only name, type, shape and data are used (n_dims at least 1). On failure an incomplete file is
 * left at path. */
rv_status rvi_gguf_write(const char *path, const rvi_gguf_entry *values, size_t n_values,
                         const rvi_tensor_view *tensors, size_t n_tensors,
                         rv_error *err) RVI_MUST_CHECK;

#endif
