/* Where a model is computed: on the GPU, on the CPU, or on both, and how fast each is with it. */
#include "backend/cpu/probe.h"
#include "backend/cuda/probe.h"
#include "base/json.h"
#include "base/machine.h"
#include "base/os.h"

#include "api/api.h"

/* ---- rates ---- */

static rv_status new_host(rvi_backend **out, const rv_runtime *rt, rv_error *err)
{
    rvi_cpu_options cpu = {.n_threads = rt->n_threads,
                           .exact = rt->o.exact != 0,
                           .no_pack = rt->o.no_pack != 0,
                           .isa = rt->o.isa};
    return rvi_backend_cpu_new(out, &cpu, &rt->log, err);
}

static rv_status measure_host(const rv_runtime *rt, rvi_qtype type, double *out, rv_error *err)
{
    rvi_backend *host;
    rvi_machine_info m;
    uint64_t last = 0;
    rvi_machine_read(&m, "");
    for (int level = 1; level <= 9; level++)
        last = RVI_MAX(last, rvi_machine_cache_bytes(&m, level));
    rv_status st = new_host(&host, rt, err);
    if (st) return st;
    st = rvi_cpu_probe_row(out, host, type, (size_t)last, err);
    host->ops->free(host);
    return st;
}

/* A runtime measures once for a type of weights. */
static rv_status measure(rv_runtime *rt, rvi_qtype type, rvi_rates *out, rv_error *err)
{
    const rvi_cuda_probe_options o = {.what = RVI_CUDA_PROBE_TYPE, .type = type};
    rvi_api_turn turn;
    rvi_cuda_probe p;
    rvi_rates r;
    rv_status st = rvi_api_enter(&turn, rt, err);
    if (st) return st;
    if (!(rt->measured >> type & 1)) {
        st = rvi_cuda_probe_run(&p, rt->be, &o, err);
        if (!st) st = measure_host(rt, type, &r.host, err);
        if (!st) {
            r.device = p.weight[type].row;
            r.bus = p.to_device;
            r.crossing = p.crossing;
            r.call = p.call;
            rt->rates[type] = r;
            rt->measured |= 1u << type;
        }
    }
    *out = rt->rates[type];
    rvi_api_leave(&turn);
    return st;
}

/* The type that most weights have when they are computed with. */
static rvi_qtype type_of(const rvi_source *source, bool quantize)
{
    rvi_qtype type = rvi_api_main_type(source);
    return quantize && (type == RVI_F32 || type == RVI_F16 || type == RVI_BF16) ? RVI_Q8_0 : type;
}

/* ---- opening ---- */

typedef struct question {
    rv_runtime *rt;
    const char *name;
    rvi_qtype type;
} question;

static bool ask(void *ctx, rvi_rates *out)
{
    const question *q = ctx;
    rv_error why = {0};
    if (!measure(q->rt, q->type, out, &why)) return true;
    rvi_log_write(&q->rt->log, RVI_LOG_INFO,
                  "%s: as many layers as fit go to the GPU, how fast it is could not be measured: "
                  "%s",
                  q->name, why.text);
    return false;
}

static rv_status check_options(const rv_model *m, const rv_open_options *o, rv_error *err)
{
    if (o->gpu_layers < 0 || o->gpu_layers > RVI_MAX_LAYERS)
        return rvi_error(err, RV_E_CONFIG, "gpu_layers must be 0..%d (got %d)", RVI_MAX_LAYERS,
                         o->gpu_layers);
    if (o->gpu_tokens < RV_GPU_WHOLE_CONTEXT || o->gpu_tokens > RVI_MAX_CONTEXT)
        return rvi_error(err, RV_E_CONFIG, "gpu_tokens must be -1..%d (got %d)", RVI_MAX_CONTEXT,
                         o->gpu_tokens);
    if (o->gpu_layers && rvi_backend_is_cpu(m->rt->be))
        return rvi_error(err, RV_E_CONFIG, "gpu-layers %d: the device is the CPU, not a GPU",
                         o->gpu_layers);
    return RV_OK;
}

rv_status rvi_api_place(rv_model *m, rvi_source *source, const rv_open_options *o, rv_error *err)
{
    rv_runtime *rt = m->rt;
    rvi_backend *host;
    rv_status st = check_options(m, o, err);
    if (rvi_backend_is_cpu(rt->be)) m->host = rt->be;
    if (st || m->host) return st;
    st = rvi_sizes_new(&m->sizes, rt->be, source, o->quantize != 0, err);
    if (st) return st;
    rvi_room room = rvi_api_room(rt, m->sizes, o->gpu_tokens);
    question q = {rt, m->name, type_of(source, o->quantize != 0)};
    rvi_placing how = {.asked = o->gpu_layers,
                       .may_leave = rt->is_automatic,
                       .rates = ask,
                       .ctx = &q,
                       .why = m->layers_why};
    st = rvi_place(&m->gpu_layers, m->sizes, rt->be, &room, &how, m->name, err);
    if (!st && m->gpu_layers < m->sizes->n_layers) {
        st = new_host(&host, rt, err);
        m->host = host;
        if (!st && m->gpu_layers)
            return rvi_backend_split_new(&m->split, rt->be, host,
                                         m->sizes->n_layers - m->gpu_layers, err);
        if (st) return st;
        m->split = host;
        m->host_memory = host->memory;
        host->memory = rt->be->memory; /* one runtime, one count */
    }
    return st;
}

rv_status rvi_api_explain_memory(const rv_model *m, const rv_open_options *o, rv_error *err)
{
    int n;
    rv_error why;
    rvi_room room = rvi_api_room(m->rt, m->sizes, o->gpu_tokens);
    const rvi_placing how = {.asked = m->gpu_layers};
    if (m->gpu_layers && rvi_place(&n, m->sizes, m->rt->be, &room, &how, m->name, &why) && err)
        *err = why;
    return RV_E_NOMEM;
}

void rvi_api_free_split(rv_model *m)
{
    if (!m->split) return;
    if (m->host_memory) {
        atomic_fetch_sub(&m->split->memory->scratch, rvi_backend_cpu_scratch(m->split));
        m->split->memory = m->host_memory;
    }
    m->split->ops->free(m->split);
}

/* ---- what opening would do ---- */

static void describe(const rvi_sizes *s, const rvi_rates *r, int most, size_t missing, rvi_buf *b)
{
    int best = most == s->n_layers ? most : rvi_best_layers(s, r, 0, most);
    rvi_buf_printf(b, "{\"layers\":%d,\"fit\":%d,\"missing\":%zu,\"gpu_layers\":%d", s->n_layers,
                   most, missing, best);
    rvi_buf_printf(b, ",\"decode_tps\":%.4g,\"cpu_tps\":%.4g", 1 / rvi_token_seconds(s, r, best),
                   1 / rvi_token_seconds(s, r, 0));
    rvi_buf_printf(b,
                   ",\"rates\":{\"gpu_gbps\":%.4g,\"cpu_gbps\":%.4g,\"bus_gbps\":%.4g,"
                   "\"crossing_us\":%.4g,\"call_us\":%.4g}}",
                   r->device / 1e9, r->host / 1e9, r->bus / 1e9, r->crossing * 1e6, r->call * 1e6);
}

rv_status rv_model_describe_placement(const rv_model *m, rv_runtime *gpu, int n_tokens, char **json,
                                      rv_error *err)
{
    if (json) *json = NULL;
    if (!m || !gpu || !json)
        return rvi_error(err, RV_E_INVALID, "rv_model_describe_placement: NULL argument");
    rv_status st = rvi_api_need_weights(m, err);
    if (st) return st;
    if (rvi_backend_is_cpu(gpu->be))
        return rvi_error(err, RV_E_CONFIG, "the runtime computes on the CPU, not on a GPU");
    if (n_tokens < RV_GPU_WHOLE_CONTEXT || n_tokens > RVI_MAX_CONTEXT)
        return rvi_error(err, RV_E_CONFIG, "n_tokens must be -1..%d (got %d)", RVI_MAX_CONTEXT,
                         n_tokens);
    const rv_allocator *heap = rvi_api_use_heap(gpu);
    rvi_sizes *sizes = NULL;
    rvi_rates rates;
    rvi_buf b = {0};
    st = rvi_sizes_new(&sizes, gpu->be, m->model->source, false, err);
    if (!st) {
        rvi_room room = rvi_api_room(gpu, sizes, n_tokens);
        size_t left = rvi_device_room(gpu->be),
               all = rvi_sizes_need(sizes, gpu->be, &room, sizes->n_layers);
        int most = rvi_sizes_fit(sizes, gpu->be, &room, left);
        st = measure(gpu, type_of(m->model->source, false), &rates, err);
        if (!st) describe(sizes, &rates, most, all > left ? all - left : 0, &b);
        if (!st) st = rvi_api_give_text(&b, json, NULL, err);
    }
    rvi_free(sizes);
    rvi_api_leave_heap(heap);
    return st;
}
