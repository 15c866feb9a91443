#include "lora/adapter.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

rv_status rvi_adapter_new(rvi_adapter **out, rvi_backend *be, int n_slots, rv_error *err)
{
    *out = NULL;
    rvi_adapter *a = rvi_zalloc(sizeof *a);
    if (!a) return rvi_nomem(err, "adapter");
    a->be = be;
    a->n_slots = n_slots;
    a->slots = rvi_zalloc_array((size_t)n_slots, sizeof *a->slots);
    if (!a->slots) {
        rvi_adapter_free(a);
        return rvi_nomem(err, "adapter");
    }
    *out = a;
    return RV_OK;
}

void rvi_adapter_free(rvi_adapter *a)
{
    if (!a) return;
    for (int i = 0; a->slots && i < a->n_slots; i++) {
        a->be->ops->tensor_free(a->be, a->slots[i].a);
        a->be->ops->tensor_free(a->be, a->slots[i].b);
    }
    a->be->ops->pack_free(a->be, a->pack);
    rvi_free(a->slots);
    rvi_free(a->base_digest);
    rvi_free(a->provenance);
    rvi_free(a);
}

rv_status rvi_lora_matrix_new(rvi_tensor **out, rvi_backend *be, const rvi_tensor_view *view,
                              bool is_b, rv_error *err)
{
    rv_status st = be->ops->floats_new(be, out, view, 0, err);
    if (st || !(st = be->ops->lora_pack(be, *out, is_b, err))) return st;
    be->ops->tensor_free(be, *out);
    *out = NULL;
    return st;
}

rv_status rvi_adapter_seal(rvi_adapter *a, rv_error *err)
{
    const rvi_backend_ops *op = a->be->ops;
    size_t bytes = 0;
    for (int i = 0; i < a->n_slots; i++)
        if (a->slots[i].a) bytes += op->lora_bytes(a->be, a->slots[i].a, a->slots[i].b);
    if (!bytes) return RV_OK;
    rv_status st = op->pack_new(a->be, &a->pack, bytes, err);
    for (int i = 0; !st && i < a->n_slots; i++)
        if (a->slots[i].a) st = op->lora_seal(a->be, a->pack, a->slots[i].a, a->slots[i].b, err);
    return st;
}

bool rvi_lora_is_finite(const rvi_tensor_view *v)
{
    enum { STEP = 256 }; /* a whole number of blocks of every type */
    float values[STEP];
    uint64_t n = v->shape[0] * v->shape[1];
    for (uint64_t at = 0; at < n; at += STEP) {
        size_t k = (size_t)RVI_MIN(n - at, (uint64_t)STEP);
        rvi_dequantize(v->type, v->data + rvi_qtype_row_bytes(v->type, (size_t)at), values, k);
        for (size_t i = 0; i < k; i++)
            if (!isfinite(values[i])) return false;
    }
    return true;
}

/* pack: for products before the adapter is sealed. */
static rv_status put_matrix(rvi_adapter *a, rvi_tensor **out, bool is_b, bool pack,
                            const char *name, int layer, int n_rows, int n_cols,
                            const float *values, rv_error *err)
{
    rvi_tensor_view view = {.name = name,
                            .type = RVI_F32,
                            .n_dims = 2,
                            .shape = {(uint64_t)n_rows, (uint64_t)n_cols},
                            .data = (const uint8_t *)values,
                            .layer = layer};
    if (!rvi_lora_is_finite(&view))
        return rvi_error(err, RV_E_ADAPTER, "adapter of '%s': a value is not a number", name);
    return pack ? rvi_lora_matrix_new(out, a->be, &view, is_b, err)
                : a->be->ops->floats_new(a->be, out, &view, 0, err);
}

static rv_status put(rvi_adapter *a, int slot, const rvi_lora_target *t, int rank, float scale,
                     const float *ma, const float *mb, bool pack, rv_error *err)
{
    const char *name = t->hf_name[0] ? t->hf_name : t->gguf_name;
    rvi_lora_slot *s = &a->slots[slot];
    if (rank < 1 || rank > RVI_MAX_RANK)
        return rvi_error(err, RV_E_ADAPTER, "adapter of '%s': rank must be 1..%d (got %d)", name,
                         RVI_MAX_RANK, rank);
    if (!isfinite(scale))
        return rvi_error(err, RV_E_ADAPTER, "adapter of '%s': its scale is not a number", name);
    rv_status st = put_matrix(a, &s->a, false, pack, name, t->layer, rank, t->n_in, ma, err);
    if (!st) st = put_matrix(a, &s->b, true, pack, name, t->layer, t->n_out, rank, mb, err);
    s->scale = scale;
    s->layer = t->layer;
    if (!st) a->n_used++;
    return st;
}

rv_status rvi_adapter_put(rvi_adapter *a, int slot, const rvi_lora_target *t, int rank, float scale,
                          const float *ma, const float *mb, rv_error *err)
{
    return put(a, slot, t, rank, scale, ma, mb, true, err);
}

int rvi_adapter_rank(const rvi_adapter *a, int slot)
{
    return a->slots[slot].a ? a->be->ops->n_rows(a->slots[slot].a) : 0;
}

static size_t n_values(const rvi_adapter *a, const rvi_tensor *t)
{
    return t ? (size_t)a->be->ops->n_rows(t) * (size_t)a->be->ops->n_cols(t) : 0;
}

static void read_matrix(const rvi_adapter *a, rvi_tensor *t, float *out)
{
    int n_rows = a->be->ops->n_rows(t), n_cols = a->be->ops->n_cols(t);
    if (a->be->ops->floats_in) { /* a device: one copy instead of one for each row */
        a->be->ops->fetch(a->be, rvi_cols_of(t, 0, n_cols), n_rows, out);
        return;
    }
    for (int r = 0; r < n_rows; r++, out += n_cols)
        a->be->ops->rows_read(a->be, rvi_cols_of(t, 0, n_cols), r, out);
}

void rvi_adapter_read(const rvi_adapter *a, int slot, float *ma, float *mb)
{
    read_matrix(a, a->slots[slot].a, ma);
    read_matrix(a, a->slots[slot].b, mb);
}

size_t rvi_adapter_n_params(const rvi_adapter *a)
{
    size_t n = 0;
    for (int i = 0; i < a->n_slots; i++)
        n += n_values(a, a->slots[i].a) + n_values(a, a->slots[i].b);
    return n;
}

static rv_status digest_slot(const rvi_adapter *a, int slot, rvi_sha256 *h, rv_error *err)
{
    const rvi_lora_slot *s = &a->slots[slot];
    if (!s->a) return RV_OK;
    size_t n_a = n_values(a, s->a), n_b = n_values(a, s->b);
    float *values = rvi_alloc_array(n_a + n_b, sizeof *values);
    if (!values) return rvi_nomem(err, "adapter");
    rvi_adapter_read(a, slot, values, values + n_a);
    rvi_sha256_add_u64(h, (uint64_t)slot);
    rvi_sha256_add_u64(h, (uint64_t)rvi_adapter_rank(a, slot));
    rvi_sha256_add(h, &s->scale, sizeof s->scale);
    rvi_sha256_add(h, values, (n_a + n_b) * sizeof *values);
    rvi_free(values);
    return RV_OK;
}

rv_status rvi_adapter_digest_more(const rvi_adapter *a, rvi_digesting *d, rv_error *err)
{
    if (d->hex[0]) return RV_OK;
    if (!d->n_done) rvi_sha256_init(&d->sum);
    while (d->n_done < a->n_slots && !a->slots[d->n_done].a) d->n_done++;
    rv_status st = d->n_done < a->n_slots ? digest_slot(a, d->n_done, &d->sum, err) : RV_OK;
    if (!st && ++d->n_done >= a->n_slots) rvi_sha256_end_hex(&d->sum, d->hex);
    return st;
}

rv_status rvi_adapter_digest(const rvi_adapter *a, char out[RVI_SHA256_HEX], rv_error *err)
{
    rvi_digesting d = {0};
    while (!d.hex[0]) {
        rv_status st = rvi_adapter_digest_more(a, &d, err);
        if (st) return st;
    }
    memcpy(out, d.hex, sizeof d.hex);
    return RV_OK;
}

rv_status rvi_adapter_copy(rvi_adapter **out, const rvi_adapter *a, rv_error *err)
{
    rvi_adapter *copy;
    *out = NULL;
    rv_status st = rvi_adapter_new(&copy, a->be, a->n_slots, err);
    for (int i = 0; !st && i < a->n_slots; i++) {
        const rvi_lora_slot *s = &a->slots[i];
        if (!s->a) continue;
        size_t n_a = n_values(a, s->a), n_b = n_values(a, s->b);
        float *values = rvi_alloc_array(n_a + n_b, sizeof *values);
        rvi_lora_target t = {.hf_name = "copy",
                             .n_in = a->be->ops->n_cols(s->a),
                             .n_out = a->be->ops->n_rows(s->b),
                             .layer = s->layer};
        if (!values) {
            st = rvi_nomem(err, "adapter");
        } else {
            rvi_adapter_read(a, i, values, values + n_a);
            st = put(copy, i, &t, rvi_adapter_rank(a, i), s->scale, values, values + n_a, false,
                     err);
        }
        rvi_free(values);
    }
    if (!st) st = rvi_adapter_seal(copy, err);
    if (!st)
        *out = copy;
    else
        rvi_adapter_free(copy);
    return st;
}

void rvi_lora_reorder(const float *from, float *to, int n_out, int rank, int n_heads,
                      bool to_paired)
{
    int size = n_out / n_heads, half = size / 2;
    for (int h = 0; h < n_heads; h++)
        for (int j = 0; j < half; j++)
            for (int s = 0; s < 2; s++) {
                int paired = h * size + 2 * j + s, split = h * size + s * half + j;
                int src = to_paired ? split : paired, dst = to_paired ? paired : split;
                memcpy(to + (size_t)dst * (size_t)rank, from + (size_t)src * (size_t)rank,
                       (size_t)rank * sizeof *to);
            }
    for (int h = 0; h < n_heads && size % 2; h++) { /* what has no partner stays */
        size_t at = (size_t)(h * size + size - 1) * (size_t)rank;
        memcpy(to + at, from + at, (size_t)rank * sizeof *to);
    }
}

void rvi_lora_hash(rvi_sha256 *h, const rvi_tensor_view *view)
{
    size_t len = strlen(view->name);
    rvi_sha256_add_u64(h, len);
    rvi_sha256_add(h, view->name, len);
    rvi_sha256_add_u64(h, view->n_bytes);
    rvi_sha256_add(h, view->data, (size_t)view->n_bytes);
}
