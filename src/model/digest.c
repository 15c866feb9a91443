#include "model/digest.h"

#include <string.h>

enum { WHOLE = 32 << 10, PIECE = 4 << 10, N_PIECES = WHOLE / PIECE };

static void add_bytes(rvi_sha256 *h, const void *bytes, size_t len)
{
    rvi_sha256_add_u64(h, len);
    rvi_sha256_add(h, bytes, len);
}

static void add_text(rvi_sha256 *h, const char *text)
{
    add_bytes(h, text, strlen(text));
}

static bool counts(const char *key)
{
    if (!strcmp(key, "general.architecture")) return true;
    return strncmp(key, "general.", 8) && strncmp(key, "split.", 6);
}

static size_t item_bytes(rvi_gguf_kind kind)
{
    switch (kind) {
    case RVI_GGUF_U8:
    case RVI_GGUF_I8:
    case RVI_GGUF_BOOL: return 1;
    case RVI_GGUF_U16:
    case RVI_GGUF_I16: return 2;
    case RVI_GGUF_U32:
    case RVI_GGUF_I32:
    case RVI_GGUF_F32: return 4;
    default: return 8;
    }
}

static void add_value(rvi_sha256 *h, const rvi_gguf_value *v)
{
    add_text(h, v->key);
    rvi_sha256_add_u64(h, (uint64_t)v->kind);
    if (v->kind == RVI_GGUF_STRING) {
        add_bytes(h, v->string.data, v->string.len);
    } else if (v->kind != RVI_GGUF_ARRAY) {
        rvi_sha256_add_u64(h, v->number.u); /* floats by their bits as a double */
    } else {
        rvi_sha256_add_u64(h, (uint64_t)v->item_kind);
        rvi_sha256_add_u64(h, v->count);
        for (uint64_t i = 0; v->strings && i < v->count; i++)
            add_bytes(h, v->strings[i].data, v->strings[i].len);
        if (v->items) add_bytes(h, v->items, (size_t)v->count * item_bytes(v->item_kind));
    }
}

static void add_tensor(rvi_sha256 *h, const char *name, const char *type, int n_dims,
                       const uint64_t *shape, const uint8_t *data, uint64_t n_bytes)
{
    add_text(h, name);
    add_text(h, type);
    rvi_sha256_add_u64(h, (uint64_t)n_dims);
    for (int i = 0; i < n_dims; i++) rvi_sha256_add_u64(h, shape[i]);
    rvi_sha256_add_u64(h, n_bytes);
    if (n_bytes <= WHOLE) {
        rvi_sha256_add(h, data, (size_t)n_bytes);
        return;
    }
    uint64_t last = n_bytes - PIECE;
    for (uint64_t i = 0; i < N_PIECES; i++) /* last * i / 7 without its overflow */
        rvi_sha256_add(
            h, data + last / (N_PIECES - 1) * i + last % (N_PIECES - 1) * i / (N_PIECES - 1),
            PIECE);
}

void rvi_model_digest(const rvi_source *s, char out[RVI_SHA256_HEX])
{
    rvi_sha256 h;
    rvi_sha256_init(&h);
    add_text(&h, "ruvllm model digest 1");
    for (size_t i = 0; s->gguf && i < rvi_gguf_n_values(s->gguf); i++) {
        const rvi_gguf_value *v = rvi_gguf_value_at(s->gguf, i);
        if (counts(v->key)) add_value(&h, v);
    }
    if (!s->gguf) add_bytes(&h, s->config_blob.data, s->config_blob.len);
    for (size_t i = 0; i < rvi_source_n_tensors(s); i++) {
        const rvi_tensor_view *v = rvi_source_tensor_at(s, i);
        add_tensor(&h, v->name, rvi_qtypes[v->type].name, v->n_dims, v->shape, v->data, v->n_bytes);
    }
    for (size_t i = 0; s->tensors && i < rvi_safetensors_n_raw(s->tensors); i++) {
        const rvi_raw_tensor *t = rvi_safetensors_raw_at(s->tensors, i);
        add_tensor(&h, t->name, t->dtype, t->n_dims, t->shape, t->data, t->n_bytes);
    }
    rvi_sha256_end_hex(&h, out);
}
