#include "model/placement.h"

#include <stdio.h>

#include "kernels/kernels.h"

static size_t kv_bytes(const rvi_sizes *s, const rvi_room *r)
{
    rvi_attn_type type = r->kv == RV_KV_F32  ? RVI_ATTN_F32
                         : r->kv == RV_KV_Q8 ? RVI_ATTN_Q8
                                             : RVI_ATTN_F16;
    size_t pages = ((size_t)r->n_tokens + RVI_PAGE_TOKENS - 1) / RVI_PAGE_TOKENS;
    size_t size = (size_t)s->head_size;
    return pages * (size_t)s->n_kv_heads *
           (rvi_attn_k_bytes(type, size) + rvi_attn_v_bytes(type, size));
}

/* The tensors of rvi_workspace_new, and what the device computes with. */
static size_t workspace_bytes(const rvi_sizes *s, const rvi_backend *device, const rvi_room *r,
                              bool split)
{
    int most = split ? RVI_MIN(r->max_rows, RVI_SPLIT_ROWS) : r->max_rows,
        rows = RVI_MIN(most, r->n_tokens), nq = s->n_heads * s->head_size,
        nk = s->n_kv_heads * s->head_size, widest = RVI_MAX(RVI_MAX(s->n_embd, nq), s->n_ff);
    size_t columns = 3 * (size_t)s->n_embd + 2 * (size_t)nq + 2 * (size_t)nk + 3 * (size_t)s->n_ff +
                     (size_t)s->head_size;
    return (size_t)rows * columns * sizeof(float) +
           (size_t)r->max_logits * ((size_t)s->n_embd + (size_t)s->n_vocab) * sizeof(float) +
           rvi_backend_cuda_scratch(device, rows, widest, s->head_size);
}

size_t rvi_sizes_need(const rvi_sizes *s, const rvi_backend *device, const rvi_room *r, int n)
{
    size_t bytes = s->ends + workspace_bytes(s, device, r, n < s->n_layers);
    for (int il = s->n_layers - n; il < s->n_layers; il++) bytes += s->layers[il] + kv_bytes(s, r);
    return bytes;
}

int rvi_sizes_fit(const rvi_sizes *s, const rvi_backend *device, const rvi_room *r, size_t bytes)
{
    int n = s->n_layers;
    while (n > 0 && rvi_sizes_need(s, device, r, n) > bytes) n--;
    return n;
}

size_t rvi_device_room(rvi_backend *device)
{
    enum { PART = 64 };
    size_t left, total;
    rvi_backend_cuda_memory(device, &left, &total);
    if (!total) return SIZE_MAX / 2; /* it does not say: what is missing shows when it is taken */
    return left - RVI_MIN(left, total / PART);
}

rv_status rvi_place(int *n, const rvi_sizes *s, rvi_backend *device, const rvi_room *r, int asked,
                    const char *name, rv_error *err)
{
    size_t room = rvi_device_room(device);
    int most = rvi_sizes_fit(s, device, r, room),
        least = asked ? RVI_MIN(asked, s->n_layers) : 1; /* or there is nothing to be done */
    *n = asked ? least : most;
    if (least > most) {
        char advice[64] = "not one layer fits; device cpu does without it";
        if (most) snprintf(advice, sizeof advice, "gpu-layers %d would fit", most);
        size_t need = rvi_sizes_need(s, device, r, least);
        return rvi_error(err, RV_E_NOMEM,
                         "%s: %d of %d layers with %d tokens need %.1f MiB of device memory, %.1f "
                         "MiB of it can be used: %.1f MiB are missing; %s",
                         name, least, s->n_layers, r->n_tokens, (double)need / 0x1p20,
                         (double)room / 0x1p20, (double)(need - room) / 0x1p20, advice);
    }
    size_t all = rvi_sizes_need(s, device, r, s->n_layers);
    if (!asked && *n < s->n_layers)
        rvi_log_write(
            device->log, RVI_LOG_WARN,
            "%s: the last %d of %d layers are computed on the GPU, the others on the CPU: "
            "%.1f MiB of device memory are missing for all of them with %d tokens",
            name, *n, s->n_layers, (double)(all - room) / 0x1p20, r->n_tokens);
    return RV_OK;
}
