#include "model/placement.h"

#include <stdio.h>

#include "base/number.h"
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

/* ---- the time of a token ---- */

double rvi_token_seconds(const rvi_sizes *s, const rvi_rates *r, int n)
{
    enum { KERNELS = 6, BESIDES = 3 }; /* of a layer; the last norm, the head, the way back */
    double host = 0, device = 0;
    for (int il = 0; il < s->n_layers; il++)
        *(il < s->n_layers - n ? &host : &device) += (double)s->layers[il];
    *(n ? &device : &host) += (double)s->ends;
    if (!n) return host / r->host;
    double row = (double)s->n_embd * sizeof(float);
    return host / r->host + device / r->device + row / r->bus + r->crossing +
           (KERNELS * n + BESIDES) * r->call;
}

int rvi_best_layers(const rvi_sizes *s, const rvi_rates *r, int least, int most)
{
    const double clearly = 0.9;
    double shortest = clearly * rvi_token_seconds(s, r, most);
    int best = most;
    for (int n = most - 1; n >= least; n--) {
        double seconds = rvi_token_seconds(s, r, n);
        if (seconds >= shortest) continue;
        shortest = seconds;
        best = n;
    }
    return best;
}

/* ---- the decision ---- */

static rv_status too_little(const rvi_sizes *s, rvi_backend *device, const rvi_room *r, size_t room,
                            int wanted, int most, const char *name, rv_error *err)
{
    char advice[64] = "not one layer fits; device cpu does without it";
    if (most) snprintf(advice, sizeof advice, "gpu-layers %d would fit", most);
    size_t need = rvi_sizes_need(s, device, r, wanted);
    return rvi_error(err, RV_E_NOMEM,
                     "%s: %d of %d layers with %d tokens need %.1f MiB of device memory, %.1f "
                     "MiB of it can be used: %.1f MiB are missing; %s",
                     name, wanted, s->n_layers, r->n_tokens, (double)need / 0x1p20,
                     (double)room / 0x1p20, (double)(need - room) / 0x1p20, advice);
}

/* What the choice between n layers on the device and others followed from. */
typedef struct grounds {
    int n, most;
    int n_tokens;
    size_t missing;         /* bytes, for all layers */
    const rvi_rates *rates; /* NULL: unknown */
} grounds;

static void put_expected(const rvi_sizes *s, const grounds *g, char *out, size_t size)
{
    *out = 0;
    if (!g->rates || !g->most) return;
    double alone = 1 / rvi_token_seconds(s, g->rates, 0);
    double shared = 1 / rvi_token_seconds(s, g->rates, g->n ? g->n : g->most);
    if (g->n)
        (void)rvi_snprintf(out, size,
                           "; about %.3g tokens a second are expected, %.3g by the CPU alone",
                           shared, alone);
    else
        (void)rvi_snprintf(out, size,
                           "; about %.3g tokens a second are expected, %.3g with %d of them on the "
                           "GPU",
                           alone, shared, g->most);
}

/* Warns, and writes the same with the rates to `why`. */
static void say(const rvi_sizes *s, const rvi_log *log, const grounds *g, const char *name,
                char *why)
{
    char where[128], expected[128], because[256];
    const rvi_rates *r = g->rates;
    if (g->n)
        snprintf(where, sizeof where,
                 "the last %d of %d layers are computed on the GPU, the others on the CPU", g->n,
                 s->n_layers);
    else
        snprintf(where, sizeof where, "all %d layers are computed on the CPU", s->n_layers);
    put_expected(s, g, expected, sizeof expected);
    (void)rvi_snprintf(because, sizeof because,
                       "%.1f MiB of device memory are missing for all of them with %d tokens%s",
                       (double)g->missing / 0x1p20, g->n_tokens, expected);
    rvi_log_write(log, RVI_LOG_WARN, "%s: %s: %s", name, where, because);
    if (why && r)
        (void)rvi_snprintf(why, RVI_PLACING_WHY,
                           "%s (measured: the GPU reads weights at %.3g GB/s, the CPU at %.3g, the "
                           "bus has %.3g GB/s, a row's way there and back takes %.3g us, a kernel "
                           "%.3g us)",
                           because, r->device / 1e9, r->host / 1e9, r->bus / 1e9, r->crossing * 1e6,
                           r->call * 1e6);
    else if (why)
        (void)rvi_snprintf(why, RVI_PLACING_WHY, "%s", because);
}

/* All layers that were wanted fit. */
static void explain_fit(const rvi_sizes *s, const rvi_backend *device, const rvi_room *r,
                        const rvi_placing *how, int n, size_t room)
{
    if (!how->why) return;
    (void)rvi_snprintf(how->why, RVI_PLACING_WHY,
                       "%s; with %d tokens they take %.1f of the %.1f MiB that can be used",
                       how->asked ? "asked for" : "they fit", r->n_tokens,
                       (double)rvi_sizes_need(s, device, r, n) / 0x1p20, (double)room / 0x1p20);
}

rv_status rvi_place(int *n, const rvi_sizes *s, rvi_backend *device, const rvi_room *r,
                    const rvi_placing *how, const char *name, rv_error *err)
{
    size_t room = rvi_device_room(device); /* before measuring takes some */
    int most = rvi_sizes_fit(s, device, r, room), least = how->may_leave ? 0 : 1;
    int wanted = how->asked ? RVI_MIN(how->asked, s->n_layers) : least;
    *n = how->asked ? wanted : most;
    if (wanted > most) return too_little(s, device, r, room, wanted, most, name, err);
    if (*n == s->n_layers || how->asked) {
        explain_fit(s, device, r, how, *n, room);
        return RV_OK;
    }
    rvi_rates rates;
    bool known = most && how->rates && how->rates(how->ctx, &rates);
    if (known) *n = rvi_best_layers(s, &rates, least, most);
    const grounds g = {.n = *n,
                       .most = most,
                       .n_tokens = r->n_tokens,
                       .missing = rvi_sizes_need(s, device, r, s->n_layers) - room,
                       .rates = known ? &rates : NULL};
    say(s, device->log, &g, name, how->why);
    return RV_OK;
}
