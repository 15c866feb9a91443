#include <math.h>
#include <string.h>

#include "api/api.h"

struct rv_session {
    rvi_session *s;
    const rv_model *m;
    rvi_api_set adapters;
    int n_context;
};

static rv_status need_weights(const rv_model *m, rv_error *err)
{
    if (!m) return rvi_error(err, RV_E_INVALID, "no model given");
    return m->model
               ? RV_OK
               : rvi_error(err, RV_E_INVALID, "%s was opened for its vocabulary only", m->name);
}

/* ---- adapters ---- */

rv_status rv_adapter_load(rv_adapter **out, const rv_model *m, const char *path, rv_error *err)
{
    if (!out || !path) return rvi_error(err, RV_E_INVALID, "rv_adapter_load: NULL argument");
    *out = NULL;
    rv_status st = need_weights(m, err);
    if (st) return st;
    rv_adapter *a = rvi_zalloc(sizeof *a);
    if (!a) return rvi_nomem(err, "adapter");
    a->m = m;
    st = rvi_adapter_load(&a->a, m->rt->be, path, m->model->targets, m->model->n_targets,
                          m->model->arch->gguf_names, err);
    if (st)
        rv_adapter_free(a);
    else
        *out = a;
    return st;
}

void rv_adapter_free(rv_adapter *a)
{
    if (!a) return;
    rvi_adapter_free(a->a);
    rvi_free(a);
}

rv_status rvi_api_set_init(rvi_api_set *out, const rv_model *m, const rv_adapter_use *uses,
                           size_t n, rv_error *err)
{
    *out = (rvi_api_set){0};
    if (!n) return RV_OK;
    if (!uses) return rvi_error(err, RV_E_INVALID, "%zu adapters, but no list of them", n);
    if (n > 64) return rvi_error(err, RV_E_ADAPTER, "%zu adapters at once are too many", n);
    out->uses = rvi_alloc_array(n, sizeof *out->uses);
    if (!out->uses) return rvi_nomem(err, "adapters");
    for (size_t i = 0; i < n; i++) {
        bool ours = uses[i].adapter && uses[i].adapter->m == m;
        if (!ours || !isfinite(uses[i].scale)) {
            rvi_api_set_deinit(out);
            return rvi_error(err, RV_E_ADAPTER, "adapter %zu %s", i + 1,
                             ours ? "has a scale that is no number"
                                  : "was loaded for another model");
        }
        out->uses[i] = (rvi_adapter_use){uses[i].adapter->a, uses[i].scale};
    }
    out->set = (rvi_adapter_set){out->uses, (int)n};
    return RV_OK;
}

void rvi_api_set_deinit(rvi_api_set *s)
{
    rvi_free(s->uses);
    *s = (rvi_api_set){0};
}

/* ---- sessions ---- */

void rv_session_options_init(rv_session_options *o, const rv_model *m)
{
    *o = (rv_session_options){.kv_type = m && m->rt->o.exact ? RV_KV_F32 : RV_KV_F16};
}

rv_status rv_session_new(rv_session **out, const rv_model *m, const rv_session_options *o,
                         rv_error *err)
{
    if (!out || !o) return rvi_error(err, RV_E_INVALID, "rv_session_new: NULL argument");
    *out = NULL;
    rv_status st = need_weights(m, err);
    if (st) return st;
    rv_session *s = rvi_zalloc(sizeof *s);
    if (!s) return rvi_nomem(err, "session");
    s->m = m;
    int trained = m->model->hp.n_context;
    s->n_context = o->n_context ? o->n_context : RVI_MIN(trained, 4096);
    if (s->n_context > trained)
        rvi_log_write(&m->rt->log, RVI_LOG_WARN,
                      "a context of %d tokens is more than the %d this model was made for",
                      s->n_context, trained);
    st = rvi_api_set_init(&s->adapters, m, o->adapters, o->n_adapters, err);
    rvi_session_options inner = {.n_context = s->n_context, .kv_type = o->kv_type};
    if (!st) st = rvi_session_new(&s->s, m->model, m->tokenizer, &m->eos, &inner, err);
    if (st)
        rv_session_free(s);
    else
        *out = s;
    return st;
}

void rv_session_free(rv_session *s)
{
    if (!s) return;
    rvi_session_free(s->s);
    rvi_api_set_deinit(&s->adapters);
    rvi_free(s);
}

int rv_session_context(const rv_session *s)
{
    return s ? s->n_context : 0;
}

void rv_sampling_init(rv_sampling *s)
{
    *s = (rv_sampling){
        .temperature = 0.7f, .top_p = 0.9f, .repetition_penalty = 1.1f, .repetition_window = 64};
}

void rv_sampling_init_greedy(rv_sampling *s)
{
    *s = (rv_sampling){.top_p = 1, .repetition_penalty = 1, .repetition_window = 64};
}

const char *rv_finish_name(rv_finish f)
{
    static const char *const names[] = {"eos", "stop", "length", "cancelled", "error"};
    return (size_t)f < RVI_COUNT(names) ? names[f] : "";
}

void rv_generate_options_init(rv_generate_options *o)
{
    *o = (rv_generate_options){.max_tokens = 256};
    rv_sampling_init(&o->sampling);
}

rv_status rv_session_generate(rv_session *s, const int32_t *prompt, size_t n_prompt,
                              const rv_generate_options *o, rv_generated *out, rv_error *err)
{
    if (out) *out = (rv_generated){.finish = RV_FINISH_ERROR};
    if (!s || !o || !out || (!prompt && n_prompt) || (!o->stop && o->n_stop))
        return rvi_error(err, RV_E_INVALID, "rv_session_generate: NULL argument");
    for (size_t i = 0; i < o->n_stop; i++)
        if (!o->stop[i] || !o->stop[i][0])
            return rvi_error(err, RV_E_CONFIG, "stop string %zu is empty", i + 1);
    if (o->n_stop && !s->m->tokenizer)
        return rvi_error(err, RV_E_CONFIG, "stop strings need a tokenizer, which this model lacks");
    rvi_generate_options inner = {.sampling = o->sampling,
                                  .max_tokens = o->max_tokens,
                                  .stop = o->stop,
                                  .n_stop = o->n_stop,
                                  .ignore_eos = o->ignore_eos != 0,
                                  .adapters = s->adapters.set.n ? &s->adapters.set : NULL,
                                  .on_token = o->on_token,
                                  .ctx = o->ctx};
    rvi_generated g = {0};
    rv_status st = rvi_session_generate(s->s, prompt, n_prompt, &inner, &g, err);
    *out = (rv_generated){.ids = g.ids.data,
                          .n_ids = g.ids.len,
                          .finish = g.finish,
                          .n_prompt = g.n_prompt,
                          .n_reused = g.n_reused,
                          .prompt_seconds = g.prompt_seconds,
                          .seconds = g.seconds};
    rv_status given = rvi_api_give_text(&g.text, &out->text, &out->text_len, st ? NULL : err);
    if (!st && given) out->finish = RV_FINISH_ERROR;
    return st ? st : given;
}

void rv_generated_free(rv_generated *g)
{
    if (!g) return;
    rvi_free(g->ids);
    rvi_free(g->text);
    *g = (rv_generated){0};
}
