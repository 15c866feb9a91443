/* gguf_write.h - writing GGUF files (version 3): a few values and tensors that lie in memory. */
#ifndef RVI_FORMATS_GGUF_WRITE_H
#define RVI_FORMATS_GGUF_WRITE_H

#include "formats/gguf.h"

/* A value: a text, or where that is NULL an f32. */
typedef struct rvi_gguf_entry {
    const char *key, *text;
    float number;
} rvi_gguf_entry;

/* In the order given, to path itself, and on to the disk; a view's name, type, shape and data count
 * (n_dims from 1). On failure what was written so far stays behind at path. */
rv_status rvi_gguf_write(const char *path, const rvi_gguf_entry *values, size_t n_values,
                         const rvi_tensor_view *tensors, size_t n_tensors,
                         rv_error *err) RVI_MUST_CHECK;

#endif
