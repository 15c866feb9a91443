/* What computes, and why: one table of choices. Nothing is decided here. A row names what was
 * chosen and repeats the reason that whoever chose it wrote down. */
#include "backend/cuda/probe.h"
#include "base/json.h"
#include "base/machine.h"
#include "kernels/kernels.h"

#include "api/api.h"

typedef struct asked {
    const rv_model *m;
    const rv_session *s;          /* NULL: none */
    const rv_generate_options *o; /* of its answers; sizes were checked */
} asked;

/* Writes what was chosen and why; nothing, where there was no choice. */
typedef void tell(const asked *a, rvi_buf *is, rvi_buf *why);

/* ---- the machine ---- */

static void device(const asked *a, rvi_buf *is, rvi_buf *why)
{
    const rv_runtime *rt = a->m->rt;
    rvi_cuda_card card;
    rvi_buf_puts(why, rt->device_why);
    if (rvi_backend_is_cpu(rt->be)) {
        rvi_buf_puts(is, "cpu");
        return;
    }
    rvi_cuda_card_read(&card, rt->be);
    rvi_buf_printf(is, "%s, %s, compute capability %d.%d, %.1f of %.1f GiB free", rt->be->ops->name,
                   card.name, card.major, card.minor, (double)card.left / 0x1p30,
                   (double)card.total / 0x1p30);
}

static void layers(const asked *a, rvi_buf *is, rvi_buf *why)
{
    const rv_model *m = a->m;
    int n = m->gpu_layers;
    if (!m->sizes) return; /* there is no GPU to share them with */
    rvi_buf_puts(why, m->layers_why);
    if (!n)
        rvi_buf_printf(is, "all %d on the CPU", m->sizes->n_layers);
    else if (n == m->sizes->n_layers)
        rvi_buf_printf(is, "all %d on the GPU", n);
    else
        rvi_buf_printf(is, "the last %d of %d on the GPU, the others on the CPU", n,
                       m->sizes->n_layers);
}

static void instructions(const asked *a, rvi_buf *is, rvi_buf *why)
{
    const char *const *names = rvi_kernels_available();
    if (!a->m->host) return;
    rvi_buf_puts(is, rvi_backend_cpu_isa(a->m->host));
    rvi_buf_printf(why, "%s; this CPU has", rvi_backend_cpu_isa_why(a->m->host));
    for (; *names; names++) rvi_buf_printf(why, names[1] ? " %s," : " %s", *names);
}

static void threads(const asked *a, rvi_buf *is, rvi_buf *why)
{
    const rv_runtime *rt = a->m->rt;
    rvi_machine_info machine;
    rvi_machine_read(&machine, "");
    rvi_buf_printf(is, "%d", rt->n_threads);
    rvi_buf_puts(why, rt->threads_why);
    if (machine.cpu_quota > 0 && machine.cpu_quota < rt->n_threads)
        rvi_buf_printf(why, "; but it gets the time of only %.1f CPUs, so that they wait",
                       machine.cpu_quota);
}

/* ---- the model ---- */

static void kind(const asked *a, rvi_buf *is, rvi_buf *why)
{
    bool encoder = a->m->info.is_encoder != 0;
    rvi_buf_printf(is, "%s, %s", a->m->info.architecture, encoder ? "encoder" : "decoder");
    rvi_buf_puts(why, encoder ? "it makes embeddings: the rows of a text go through one pass "
                                "together, and it predicts no tokens"
                              : "it predicts tokens, each by the KV cache of those before it");
}

/* The products of a side of the bus. */
typedef struct side {
    const char *name; /* "": there is only one */
    rvi_products_form form;
} side;

static int sides(const rv_model *m, side out[2])
{
    rvi_qtype type = rvi_api_main_type(m->model->source);
    int n = 0;
    if (m->gpu_layers) out[n++] = (side){"on the GPU ", rvi_backend_cuda_products(m->rt->be, type)};
    if (m->host) out[n++] = (side){"on the CPU ", rvi_backend_cpu_products(m->host, type)};
    if (n == 1) out[0].name = "";
    return n;
}

static void weights(const asked *a, rvi_buf *is, rvi_buf *why)
{
    side on[2];
    int n = sides(a->m, on);
    rvi_buf_printf(is, "%s, ", a->m->info.type);
    for (int i = 0; i < n; i++) {
        rvi_buf_printf(is, "%s%s%s", i ? ", " : "", on[i].name, on[i].form.weights);
        rvi_buf_printf(why, "%s%s%s", i ? "; " : "", on[i].name, on[i].form.weights_why);
    }
}

static void activations(const asked *a, rvi_buf *is, rvi_buf *why)
{
    side on[2];
    int n = sides(a->m, on);
    for (int i = 0; i < n; i++) {
        rvi_buf_printf(is, "%s%s%s", i ? ", " : "", on[i].name, on[i].form.activations);
        rvi_buf_printf(why, "%s%s%s", i ? "; " : "", on[i].name, on[i].form.activations_why);
    }
}

/* ---- a session and its answers ---- */

static void kv_cache(const asked *a, rvi_buf *is, rvi_buf *why)
{
    static const char *const names[] = {[RV_KV_F16] = "f16",
                                        [RV_KV_F32] = "f32",
                                        [RV_KV_Q8] = "q8",
                                        [RV_KV_WARM] = "warm",
                                        [RV_KV_TIERED] = "tiered"};
    if (!a->s) return;
    const rvi_engine *e = a->s->e->e;
    rvi_buf_printf(is, "%s, %.1f KiB a token", names[e->o.kv_type],
                   (double)rvi_pages_bytes(e->pool) / RVI_PAGE_TOKENS / 1024);
    rvi_buf_puts(why, a->s->e->kv_why);
}

static void context(const asked *a, rvi_buf *is, rvi_buf *why)
{
    if (!a->s) return;
    const rvi_engine *e = a->s->e->e;
    int n = rv_session_context(a->s), pages = (n + RVI_PAGE_TOKENS - 1) / RVI_PAGE_TOKENS;
    rvi_buf_printf(is, "%d tokens, %d pages of %d, %.3g MiB", n, pages, RVI_PAGE_TOKENS,
                   (double)rvi_pages_bytes(e->pool) * pages / 0x1p20);
    rvi_buf_puts(why, a->s->context_why);
    if (n != a->m->model->hp.n_context)
        rvi_buf_printf(why, "; the model was made for %d", a->m->model->hp.n_context);
}

static void adapters(const asked *a, rvi_buf *is, rvi_buf *why)
{
    if (!a->s) return;
    const rv_adapter_set *set = a->s->adapters;
    if (set)
        rvi_buf_printf(is, "%d", set->set.n);
    else
        rvi_buf_puts(is, "none");
    rvi_buf_puts(why, set ? "asked for; rows with the same ones are computed together, beside the "
                            "model's products"
                          : "none was asked for, so that nothing is computed for them");
}

static void guessing(const asked *a, rvi_buf *is, rvi_buf *why)
{
    if (!a->s) return;
    if (a->o->draft == RV_DRAFT_OFF) {
        rvi_buf_puts(is, "off");
        rvi_buf_puts(why, "asked for");
        return;
    }
    rvi_buf_puts(is,
                 a->o->draft_session ? "by a smaller model and by repetition" : "by repetition");
    rvi_buf_printf(why, "%s; guesses are tried where they are worth their time, as measured",
                   a->o->draft_session || a->o->draft ? "asked for" : "the default");
}

/* ---- the table ---- */

static const struct {
    const char *name;
    tell *tell;
} choices[] = {
    {"device", device},           {"layers", layers},     {"instructions", instructions},
    {"threads", threads},         {"model", kind},        {"weights", weights},
    {"activations", activations}, {"kv_cache", kv_cache}, {"context", context},
    {"adapters", adapters},       {"guessing", guessing},
};

static rv_status write_choices(const asked *a, rvi_buf *out, rv_error *err)
{
    rvi_buf is = {0}, why = {0};
    bool failed = false;
    for (size_t i = 0; i < RVI_COUNT(choices); i++) {
        is.len = why.len = 0;
        choices[i].tell(a, &is, &why);
        failed = failed || is.failed || why.failed;
        if (!is.len || failed) continue;
        rvi_buf_printf(out, "%s\"%s\":{\"is\":", out->len ? "," : "{", choices[i].name);
        rvi_json_write_string(out, is.data, is.len);
        rvi_buf_puts(out, ",\"why\":");
        rvi_json_write_string(out, why.data, why.len);
        rvi_buf_puts(out, "}");
    }
    rvi_buf_puts(out, "}");
    rvi_buf_deinit(&is);
    rvi_buf_deinit(&why);
    return failed ? rvi_nomem(err, "explanation") : RV_OK;
}

rv_status rv_model_explain(const rv_model *m, const rv_session *s, const rv_generate_options *given,
                           char **json, rv_error *err)
{
    if (json) *json = NULL;
    if (!m || !json) return rvi_error(err, RV_E_INVALID, "rv_model_explain: NULL argument");
    if (s && s->e->m != m)
        return rvi_error(err, RV_E_INVALID, "rv_model_explain: the session is of another model");
    rv_generate_options o;
    rvi_api_turn turn;
    rv_status st = rvi_api_need_weights(m, err);
    if (!st) st = rvi_api_read_struct(&o, sizeof o, given, "rv_generate_options", err);
    if (!st) st = rvi_api_enter(&turn, m->rt, err);
    if (st) return st;
    const asked a = {m, s, &o};
    rvi_buf b = {0};
    st = rvi_api_give_text_after(write_choices(&a, &b, err), &b, json, NULL, err);
    rvi_api_leave(&turn);
    return st;
}
