#include "learn/instant/delta.h"

#include <math.h>

#include "base/mem.h"

static const rvi_linear *projection(const rvi_model *m)
{
    return &m->layers[m->hp.n_layers - 1].down;
}

static rv_status copy_matrix(rvi_backend *be, rvi_tensor **out, bool is_b, const float *data,
                             int rows, int cols, rv_error *err)
{
    rvi_tensor_view v = {.name = "adapter",
                         .type = RVI_F32,
                         .n_dims = 2,
                         .shape = {(uint64_t)rows, (uint64_t)cols},
                         .data = (const uint8_t *)data};
    return rvi_lora_matrix_new(out, be, &v, is_b, err);
}

rv_status rvi_delta_export(rvi_adapter **out, const rvi_model *m, const rvi_delta *d, rv_error *err)
{
    *out = NULL;
    if (d->rank < 1 || d->rank > RVI_MAX_RANK)
        return rvi_error(err, RV_E_LEARNING, "a change of rank %d makes no adapter", d->rank);
    size_t rank = (size_t)d->rank, n_embd = (size_t)m->hp.n_embd;
    rvi_adapter *a = rvi_zalloc(sizeof *a);
    if (!a) return rvi_nomem(err, "adapter");
    a->be = m->be;
    a->n_slots = m->n_targets;
    a->slots = rvi_zalloc_array((size_t)m->n_targets, sizeof *a->slots);
    float *b = rvi_alloc_array(rank * n_embd, sizeof *b);
    rv_status st = a->slots && b ? RV_OK : rvi_nomem(err, "adapter");
    if (!st) {
        rvi_lora_slot *slot = &a->slots[projection(m)->slot];
        enum { NEAR = 16 }; /* rows at a time, so that what is read and written stays near */
        for (size_t from = 0; from < rank; from += NEAR)
            for (size_t i = 0; i < n_embd; i++)
                for (size_t j = from; j < RVI_MIN(rank, from + NEAR); j++)
                    b[i * rank + j] = d->b[j * n_embd + i];
        slot->scale = 1;
        a->n_used = 1;
        st = copy_matrix(m->be, &slot->a, false, d->a, d->rank, m->hp.n_ff, err);
        if (!st) st = copy_matrix(m->be, &slot->b, true, b, m->hp.n_embd, d->rank, err);
    }
    rvi_free(b);
    if (st)
        rvi_adapter_free(a);
    else
        *out = a;
    return st;
}

rv_status rvi_delta_weight_norm(double *out, const rvi_model *m, rv_error *err)
{
    rvi_backend *be = m->be;
    rvi_tensor *row;
    size_t n = (size_t)m->hp.n_ff;
    double sum = 0;
    rv_status st = be->ops->rows_new(be, &row, 1, m->hp.n_ff, err);
    if (st) return st;
    float *w = rvi_alloc_array(n, sizeof *w);
    if (!w) st = rvi_nomem(err, "weights");
    for (int32_t i = 0; !st && i < m->hp.n_embd; i++) {
        be->ops->embed(be, rvi_cols_of(row, 0, m->hp.n_ff), projection(m)->w, &i, 1, 1);
        be->ops->rows_read(be, rvi_cols_of(row, 0, m->hp.n_ff), 0, w);
        for (size_t j = 0; j < n; j++) sum += (double)w[j] * (double)w[j];
    }
    be->ops->tensor_free(be, row);
    rvi_free(w);
    *out = sqrt(sum);
    return st;
}
