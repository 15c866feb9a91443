/* Any bytes as a GGUF file: open must return, and what it accepts must be readable to its last
 * byte. */
#include <stdlib.h>
#include <string.h>

#include "formats/gguf.h"

/* Depends on every value read, so that no read is left out. */
static volatile uint64_t sink;

static void read_value(const rvi_gguf *g, const rvi_gguf_value *v)
{
    uint32_t u = 0;
    float f = 0;
    bool yes = false;
    rvi_str s = {0};
    uint64_t sum = strlen(v->key);
    if (rvi_gguf_find(g, v->key) != v) abort();
    if (rvi_gguf_get_u32(g, v->key, &u)) sum += u;
    if (rvi_gguf_get_f32(g, v->key, &f)) sum += f > 0;
    if (rvi_gguf_get_bool(g, v->key, &yes)) sum += yes;
    if (rvi_gguf_get_str(g, v->key, &s))
        for (size_t i = 0; i < s.len; i++) sum += (uint8_t)s.data[i];
    if (v->kind == RVI_GGUF_ARRAY)
        for (uint64_t i = 0; i < v->count; i++) {
            sum += (uint64_t)rvi_gguf_item_i64(v, i) + (rvi_gguf_item_f64(v, i) > 0);
            if (v->item_kind != RVI_GGUF_STRING) continue;
            for (size_t k = 0; k < v->strings[i].len; k++) sum += (uint8_t)v->strings[i].data[k];
        }
    sink += sum;
}

static void read_tensor(rvi_gguf *g, const rvi_tensor_view *t)
{
    float weights[256];
    const rvi_qtype_info *info = &rvi_qtypes[t->type];
    if (rvi_gguf_tensor(g, t->name) != t || t->n_dims < 1 || t->n_dims > RVI_MAX_DIMS) abort();
    uint64_t n_bytes = info->block_bytes;
    for (int i = 0; i < t->n_dims; i++)
        n_bytes *= i == t->n_dims - 1 ? t->shape[i] / info->block_weights : t->shape[i];
    if (n_bytes != t->n_bytes) abort();
    for (uint64_t at = 0; at < t->n_bytes; at += info->block_bytes) {
        rvi_dequantize(t->type, t->data + at, weights, info->block_weights);
        sink += weights[0] > 0;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    rvi_gguf *g;
    rvi_blob blob;
    rv_error err = {0};
    rvi_blob_from_memory(&blob, data, size);
    if (rvi_gguf_open_blob(&g, &blob, "fuzz", &err)) {
        if (g || !err.text[0]) abort();
        return 0;
    }
    for (size_t i = 0; i < rvi_gguf_n_values(g); i++) read_value(g, rvi_gguf_value_at(g, i));
    for (size_t i = 0; i < rvi_gguf_n_tensors(g); i++) read_tensor(g, rvi_gguf_tensor_at(g, i));
    rvi_gguf_close(g);
    return 0;
}
