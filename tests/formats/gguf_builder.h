/* gguf_builder.h - makes GGUF files in memory, for tests. Header only.
 *
 *     gguf_builder b = {.version = 3};
 *     gb_str(&b, "general.architecture", "llama");
 *     gb_tensor(&b, "x", RVI_F32, 2, (uint64_t[]){2, 3}, data);   // shape: outermost first
 *     gb_finish(&b, &out);                                        // out: an rvi_buf
 *     gb_deinit(&b);
 *
 * The gb_raw_* functions write what no honest writer would. A failed allocation shows as
 * out->failed. */
#ifndef TESTS_FORMATS_GGUF_BUILDER_H
#define TESTS_FORMATS_GGUF_BUILDER_H

#include <string.h>

#include "base/mem.h"
#include "formats/gguf.h"

typedef struct gguf_builder {
    uint32_t version;
    uint32_t alignment; /* of the data; 0: 32. Write general.alignment yourself. */
    uint64_t n_values, n_tensors;
    rvi_buf values, infos, data;
} gguf_builder;

static inline void gb_put(rvi_buf *b, uint64_t v, unsigned n_bytes)
{
    for (unsigned i = 0; i < n_bytes; i++) rvi_buf_putc(b, (char)(v >> (8 * i) & 0xFF));
}

static inline void gb_put_str(rvi_buf *b, const char *s, size_t len)
{
    gb_put(b, len, 8);
    rvi_buf_append(b, s, len);
}

/* A key and its kind; the value follows in b->values. */
static inline void gb_raw_key(gguf_builder *b, const char *key, uint32_t kind)
{
    gb_put_str(&b->values, key, strlen(key));
    gb_put(&b->values, kind, 4);
    b->n_values++;
}

/* Any kind of n_bytes bytes, given as the bits of an integer. */
static inline void gb_raw_number(gguf_builder *b, const char *key, uint32_t kind, uint64_t bits,
                                 unsigned n_bytes)
{
    gb_raw_key(b, key, kind);
    gb_put(&b->values, bits, n_bytes);
}

/* gb_u8(b, key, v), gb_i8(b, key, v), ... */
#define GB_NUMBER(name, type, kind)                                                                \
    static inline void gb_##name(gguf_builder *b, const char *key, type v)                         \
    {                                                                                              \
        gb_raw_number(b, key, RVI_GGUF_##kind, (uint64_t)v, (unsigned)sizeof v);                   \
    }
GB_NUMBER(u8, uint8_t, U8)
GB_NUMBER(i8, int8_t, I8)
GB_NUMBER(u16, uint16_t, U16)
GB_NUMBER(i16, int16_t, I16)
GB_NUMBER(u32, uint32_t, U32)
GB_NUMBER(i32, int32_t, I32)
GB_NUMBER(u64, uint64_t, U64)
GB_NUMBER(i64, int64_t, I64)
GB_NUMBER(bool, bool, BOOL)
#undef GB_NUMBER

static inline void gb_f32(gguf_builder *b, const char *key, float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    gb_raw_number(b, key, RVI_GGUF_F32, bits, 4);
}

static inline void gb_f64(gguf_builder *b, const char *key, double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    gb_raw_number(b, key, RVI_GGUF_F64, bits, 8);
}

static inline void gb_str(gguf_builder *b, const char *key, const char *v)
{
    gb_raw_key(b, key, RVI_GGUF_STRING);
    gb_put_str(&b->values, v, strlen(v));
}

/* The head of an array; the items follow in b->values. */
static inline void gb_raw_array(gguf_builder *b, const char *key, uint32_t item_kind,
                                uint64_t count)
{
    gb_raw_key(b, key, RVI_GGUF_ARRAY);
    gb_put(&b->values, item_kind, 4);
    gb_put(&b->values, count, 8);
}

/* An array of numbers that lie in memory as they do in the file. */
static inline void gb_array(gguf_builder *b, const char *key, rvi_gguf_kind kind, const void *items,
                            size_t count, size_t item_size)
{
    gb_raw_array(b, key, (uint32_t)kind, count);
    rvi_buf_append(&b->values, items, count * item_size);
}

static inline void gb_str_array(gguf_builder *b, const char *key, const char *const *items,
                                size_t count)
{
    gb_raw_array(b, key, RVI_GGUF_STRING, count);
    for (size_t i = 0; i < count; i++) gb_put_str(&b->values, items[i], strlen(items[i]));
}

static inline void gb_pad(rvi_buf *b, size_t alignment)
{
    while (b->len % alignment && rvi_buf_putc(b, 0)) {
    }
}

/* A description alone; dims in the order of the file (row length first). */
static inline void gb_raw_tensor(gguf_builder *b, const char *name, uint32_t n_dims,
                                 const uint64_t *dims, uint32_t type, uint64_t offset)
{
    gb_put_str(&b->infos, name, strlen(name));
    gb_put(&b->infos, n_dims, 4);
    for (uint32_t i = 0; i < n_dims; i++) gb_put(&b->infos, dims[i], 8);
    gb_put(&b->infos, type, 4);
    gb_put(&b->infos, offset, 8);
    b->n_tensors++;
}

/* A tensor with its data: blocks of `type`, whole rows. data NULL: zeros. */
static inline void gb_tensor(gguf_builder *b, const char *name, rvi_qtype type, int n_dims,
                             const uint64_t *shape, const void *data)
{
    uint64_t dims[RVI_MAX_DIMS];
    size_t n_bytes = rvi_qtype_row_bytes(type, (size_t)shape[n_dims - 1]);
    for (int i = 0; i < n_dims; i++) {
        dims[i] = shape[n_dims - 1 - i];
        if (i < n_dims - 1) n_bytes *= (size_t)shape[i];
    }
    gb_pad(&b->data, b->alignment ? b->alignment : 32);
    gb_raw_tensor(b, name, (uint32_t)n_dims, dims, rvi_qtypes[type].gguf_id, b->data.len);
    if (data) rvi_buf_append(&b->data, data, n_bytes);
    for (size_t i = 0; !data && i < n_bytes; i++) rvi_buf_putc(&b->data, 0);
}

static inline void gb_finish(const gguf_builder *b, rvi_buf *out)
{
    rvi_buf_puts(out, "GGUF");
    gb_put(out, b->version, 4);
    gb_put(out, b->n_tensors, 8);
    gb_put(out, b->n_values, 8);
    rvi_buf_append(out, b->values.data, b->values.len);
    rvi_buf_append(out, b->infos.data, b->infos.len);
    if (b->n_tensors) gb_pad(out, b->alignment ? b->alignment : 32);
    rvi_buf_append(out, b->data.data, b->data.len);
    out->failed = out->failed || b->values.failed || b->infos.failed || b->data.failed;
}

static inline void gb_deinit(gguf_builder *b)
{
    rvi_buf_deinit(&b->values);
    rvi_buf_deinit(&b->infos);
    rvi_buf_deinit(&b->data);
}

#endif
