/* gguf.h - GGUF v2 and v3 files, whole or split: metadata and tensor views.
 *
 * Immutable after open (but for the `used` marks of its tensors). Strings and arrays of the
 * metadata point into the file's bytes: a string is not terminated, so it comes with a length. All
 * counts, offsets and lengths are checked against the file before anything is allocated. */
#ifndef RVI_FORMATS_GGUF_H
#define RVI_FORMATS_GGUF_H

#include <stdbool.h>

#include "base/blob.h"
#include "formats/tensor_view.h"

typedef enum rvi_gguf_kind { /* the file's own numbers */
                             RVI_GGUF_U8,
                             RVI_GGUF_I8,
                             RVI_GGUF_U16,
                             RVI_GGUF_I16,
                             RVI_GGUF_U32,
                             RVI_GGUF_I32,
                             RVI_GGUF_F32,
                             RVI_GGUF_BOOL,
                             RVI_GGUF_STRING,
                             RVI_GGUF_ARRAY,
                             RVI_GGUF_U64,
                             RVI_GGUF_I64,
                             RVI_GGUF_F64,
} rvi_gguf_kind;

typedef struct rvi_str { /* bytes somewhere in a file: not terminated */
    const char *data;
    size_t len;
} rvi_str;

typedef struct rvi_gguf_value {
    const char *key; /* terminated */
    rvi_gguf_kind kind;
    rvi_gguf_kind item_kind; /* of an array; arrays of arrays are refused */
    uint64_t count;          /* of an array */
    rvi_str string;
    const rvi_str *strings; /* string arrays: `count` of them */
    const uint8_t *items;   /* other arrays: the raw items, unaligned, little-endian */
    union {
        uint64_t u;
        int64_t i;
        double f;
    } number; /* every integer kind and bool fills u (sign-extended), the float kinds fill f */
} rvi_gguf_value;

typedef struct rvi_gguf rvi_gguf;

/* Opens path; for NAME-00001-of-0000N.gguf also its N - 1 neighbours. Opening any other part of a
 * split file is an error that names the first part. */
rv_status rvi_gguf_open(rvi_gguf **out, const char *path, rv_error *err) RVI_MUST_CHECK;
/* From bytes in memory; takes the blob (also on failure: it is closed then). name is used in
 * errors. One file only: a part of a split model is an error. */
rv_status rvi_gguf_open_blob(rvi_gguf **out, rvi_blob *take, const char *name,
                             rv_error *err) RVI_MUST_CHECK;
void rvi_gguf_close(rvi_gguf *g); /* accepts NULL */

/* Whether all bytes that were used could be read (rvi_blob_check). */
rv_status rvi_gguf_check(const rvi_gguf *g, rv_error *err) RVI_MUST_CHECK;
uint64_t rvi_gguf_file_bytes(const rvi_gguf *g); /* all parts together */
size_t rvi_gguf_n_values(const rvi_gguf *g);
const rvi_gguf_value *rvi_gguf_value_at(const rvi_gguf *g, size_t i);
const rvi_gguf_value *rvi_gguf_find(const rvi_gguf *g, const char *key); /* NULL if absent */

size_t rvi_gguf_n_tensors(const rvi_gguf *g);
rvi_tensor_view *rvi_gguf_tensor_at(rvi_gguf *g, size_t i);
rvi_tensor_view *rvi_gguf_tensor(rvi_gguf *g, const char *name); /* by hash; NULL if absent */

/* Typed access: false when the key is absent or of another kind (then *out is untouched). Integers
 * of every width convert when the value fits; a float is taken where a float is asked, from f32,
 * f64 or an integer. */
bool rvi_gguf_get_u32(const rvi_gguf *g, const char *key, uint32_t *out);
bool rvi_gguf_get_f32(const rvi_gguf *g, const char *key, float *out);
bool rvi_gguf_get_bool(const rvi_gguf *g, const char *key, bool *out);
bool rvi_gguf_get_str(const rvi_gguf *g, const char *key, rvi_str *out);
/* Item i of a numeric array, whatever its kind; 0 for a string array or i >= count. As an integer:
 * floats are cut towards zero (0 if they do not fit), a u64 beyond INT64_MAX wraps. */
double rvi_gguf_item_f64(const rvi_gguf_value *array, uint64_t i);
int64_t rvi_gguf_item_i64(const rvi_gguf_value *array, uint64_t i);

#endif
