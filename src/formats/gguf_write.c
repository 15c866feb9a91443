#include "formats/gguf_write.h"

#include <errno.h>
#include <string.h>

#include "base/os.h"

enum { ALIGNMENT = 32 }; /* what a file without general.alignment has */

static void put(rvi_buf *b, uint64_t v, unsigned n_bytes)
{
    for (unsigned i = 0; i < n_bytes; i++) rvi_buf_putc(b, (char)(v >> (8 * i) & 0xFF));
}

static void put_text(rvi_buf *b, const char *text)
{
    size_t len = strlen(text);
    put(b, len, 8);
    rvi_buf_append(b, text, len);
}

static void put_value(rvi_buf *b, const rvi_gguf_entry *e)
{
    put_text(b, e->key);
    put(b, e->text ? RVI_GGUF_STRING : RVI_GGUF_F32, 4);
    if (e->text) {
        put_text(b, e->text);
    } else {
        uint32_t bits;
        memcpy(&bits, &e->number, sizeof bits);
        put(b, bits, 4);
    }
}

/* Bytes of a tensor's data; false if it makes no sense. */
static bool view_bytes(const rvi_tensor_view *v, uint64_t *out)
{
    uint64_t n = 1;
    if (v->type >= RVI_QTYPE_COUNT || v->n_dims < 1 || v->n_dims > RVI_MAX_DIMS || !v->data)
        return false;
    for (int i = 0; i < v->n_dims; i++) {
        if (!v->shape[i] || n > (UINT64_MAX >> 16) / v->shape[i]) return false;
        n *= v->shape[i];
    }
    if (v->shape[v->n_dims - 1] % rvi_qtypes[v->type].block_weights) return false;
    *out = n / rvi_qtypes[v->type].block_weights * rvi_qtypes[v->type].block_bytes;
    return *out <= PTRDIFF_MAX;
}

static uint64_t pad(uint64_t n)
{
    return (ALIGNMENT - n % ALIGNMENT) % ALIGNMENT;
}

static rv_status make_header(rvi_buf *h, const rvi_gguf_entry *values, size_t n_values,
                             const rvi_tensor_view *tensors, size_t n_tensors, rv_error *err)
{
    uint64_t at = 0, n_bytes;
    rvi_buf_puts(h, "GGUF");
    put(h, 3, 4);
    put(h, n_tensors, 8);
    put(h, n_values, 8);
    for (size_t i = 0; i < n_values; i++) put_value(h, &values[i]);
    for (size_t i = 0; i < n_tensors; i++) {
        const rvi_tensor_view *v = &tensors[i];
        if (!view_bytes(v, &n_bytes) || n_bytes > PTRDIFF_MAX - at - ALIGNMENT)
            return rvi_error(err, RV_E_INVALID,
                             "tensor '%s' cannot be written: its type, shape or data is bad",
                             v->name);
        put_text(h, v->name);
        put(h, (uint64_t)v->n_dims, 4);
        for (int d = v->n_dims - 1; d >= 0; d--) put(h, v->shape[d], 8); /* row length first */
        put(h, rvi_qtypes[v->type].gguf_id, 4);
        put(h, at, 8);
        at += n_bytes + pad(n_bytes);
    }
    while (h->len % ALIGNMENT && rvi_buf_putc(h, 0)) {
    }
    return h->failed ? rvi_nomem(err, "GGUF header") : RV_OK;
}

rv_status rvi_gguf_write(const char *path, const rvi_gguf_entry *values, size_t n_values,
                         const rvi_tensor_view *tensors, size_t n_tensors, rv_error *err)
{
    static const uint8_t zeros[ALIGNMENT];
    rvi_buf header = {0};
    FILE *f = NULL;
    rv_status st = make_header(&header, values, n_values, tensors, n_tensors, err);
    if (!st && !(f = fopen(path, "wb")))
        st = rvi_error(err, RV_E_IO, "%s: cannot open for writing: %s", path, strerror(errno));
    if (!st) st = rvi_os_write(f, header.data, header.len, path, err);
    for (size_t i = 0; i < n_tensors && !st; i++) {
        uint64_t n_bytes = 0;
        if (view_bytes(&tensors[i], &n_bytes))
            st = rvi_os_write(f, tensors[i].data, (size_t)n_bytes, path, err);
        if (!st) st = rvi_os_write(f, zeros, (size_t)pad(n_bytes), path, err);
    }
    if (!st) st = rvi_os_sync(f, path, err);
    if (f && fclose(f) && !st)
        st = rvi_error(err, RV_E_IO, "%s: cannot write: %s", path, strerror(errno));
    rvi_buf_deinit(&header);
    return st;
}
