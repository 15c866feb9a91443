/* Engines: what computes a step for many sessions. */
#include <stdio.h>

#include "api/service.h"
#include "base/mem.h"
#include "base/resident.h"
#include "decode/score.h"

enum { DEFAULT_ROWS = 512, DEFAULT_LOGITS = 16 };

/* A GPU is faster with more rows together; a step still has to end soon, so that it can be
 * cancelled: these take less than 100 ms on an H200. */
static int gpu_rows(int n_embd)
{
    return n_embd > 4096 ? 1024 : n_embd > 2048 ? 2048 : 4096;
}

static int default_rows(const rv_model *m)
{
    if (m->split) return RVI_SPLIT_ROWS;
    return rvi_backend_is_cpu(m->rt->be) ? DEFAULT_ROWS : gpu_rows(m->model->hp.n_embd);
}

int rvi_api_whole_context(int n_context)
{
    n_context = RVI_MIN(n_context, RVI_MAX_CONTEXT - RVI_PAGE_TOKENS);
    return RVI_MAX(n_context + RVI_PAGE_TOKENS, RVI_SERVICE_TOKENS);
}

rvi_room rvi_api_room(const rv_runtime *rt, const rvi_sizes *s, int n_tokens)
{
    if (n_tokens == RV_GPU_WHOLE_CONTEXT) n_tokens = rvi_api_whole_context(s->n_context);
    return (rvi_room){.n_tokens = n_tokens ? n_tokens : RVI_MIN(s->n_context, RVI_API_CONTEXT),
                      .kv = rvi_api_kv_type(rt, RV_KV_DEFAULT, NULL),
                      .max_rows = gpu_rows(s->n_embd),
                      .max_logits = DEFAULT_LOGITS};
}

/* An engine that a GPU has no memory for: what would make room. */
static rv_status explain_memory(const rv_model *m, const rvi_engine_options *o, rv_error *err)
{
    size_t mine = m->sizes->ends;
    for (int il = m->sizes->n_layers - m->gpu_layers; il < m->sizes->n_layers; il++)
        mine += m->sizes->layers[il];
    rvi_room room = {o->n_tokens, o->kv_type, o->max_rows, o->max_logits};
    int n = rvi_sizes_fit(m->sizes, m->rt->be, &room, rvi_device_room(m->rt->be) + mine);
    if (!err || n >= m->gpu_layers) return RV_E_NOMEM;
    char why[sizeof err->text];
    snprintf(why, sizeof why, "%s", err->text);
    if (n)
        return rvi_error(err, RV_E_NOMEM, "%s; gpu-layers %d would leave room for %d tokens", why,
                         n, o->n_tokens);
    return rvi_error(err, RV_E_NOMEM, "%s; even with gpu-layers 1, %d tokens need %.1f MiB", why,
                     o->n_tokens, (double)rvi_sizes_need(m->sizes, m->rt->be, &room, 1) / 0x1p20);
}

rv_status rvi_api_need_weights(const rv_model *m, rv_error *err)
{
    if (!m) return rvi_error(err, RV_E_INVALID, "no model given");
    return m->model
               ? RV_OK
               : rvi_error(err, RV_E_INVALID, "%s was opened for its vocabulary only", m->name);
}

rv_status rvi_api_need_decoder(const rv_model *m, rv_error *err)
{
    rv_status st = rvi_api_need_weights(m, err);
    if (st || !m->model->arch->is_encoder) return st;
    return rvi_error(err, RV_E_INVALID, "%s makes embeddings; it predicts no tokens", m->name);
}

rv_kv_type rvi_api_kv_type(const rv_runtime *rt, rv_kv_type asked, const char **why)
{
    bool is_asked = asked != RV_KV_DEFAULT;
    if (why) *why = is_asked ? "asked for" : rt->o.exact ? "exact" : "the default";
    if (is_asked) return asked;
    return rt->o.exact ? RV_KV_F32 : RV_KV_F16;
}

rv_status rvi_api_check_kv_type(rv_kv_type type, rv_error *err)
{
    if ((int)type >= RV_KV_DEFAULT && type <= RV_KV_TIERED) return RV_OK;
    return rvi_error(err, RV_E_CONFIG, "kv_type must be 0..%d (got %d)", RV_KV_TIERED, (int)type);
}

static rv_status check_options(const rv_engine_options *o, rv_error *err)
{
    if (o->n_tokens < 0)
        return rvi_error(err, RV_E_CONFIG, "n_tokens must be 0 or more (got %d)", o->n_tokens);
    if (o->max_rows < 0)
        return rvi_error(err, RV_E_CONFIG, "max_rows must be 0 or more (got %d)", o->max_rows);
    if (o->max_logits < 0)
        return rvi_error(err, RV_E_CONFIG, "max_logits must be 0 or more (got %d)", o->max_logits);
    if (o->kv_warm < 0 || o->kv_warm > RVI_MAX_CONTEXT)
        return rvi_error(err, RV_E_CONFIG, "kv_warm must be 0..%d (got %d)", RVI_MAX_CONTEXT,
                         o->kv_warm);
    return rvi_api_check_kv_type(o->kv_type, err);
}

rv_status rv_engine_new(rv_engine **out, const rv_model *m, const rv_engine_options *given,
                        rv_error *err)
{
    if (!out) return rvi_error(err, RV_E_INVALID, "rv_engine_new: NULL argument");
    *out = NULL;
    rv_engine_options o;
    rvi_api_turn turn;
    rv_status st = rvi_api_need_weights(m, err);
    if (!st) st = rvi_api_read_struct(&o, sizeof o, given, "rv_engine_options", err);
    if (!st) st = check_options(&o, err);
    if (!st) st = rvi_api_enter(&turn, m->rt, err);
    if (st) return st;
    const char *kv_why;
    rvi_engine_options inner = {
        .n_tokens = o.n_tokens ? o.n_tokens : RVI_MIN(m->model->hp.n_context, RVI_API_CONTEXT),
        .max_rows = o.max_rows ? o.max_rows : default_rows(m),
        .max_logits = o.max_logits ? o.max_logits : DEFAULT_LOGITS,
        .kv_type = rvi_api_kv_type(m->rt, o.kv_type, &kv_why),
        .warm_pages = (o.kv_warm + RVI_PAGE_TOKENS - 1) / RVI_PAGE_TOKENS};
    if (!o.max_rows && m->model->arch->is_encoder)
        inner.max_rows = inner.n_tokens; /* a text is computed whole */
    rv_engine *e = rvi_zalloc(sizeof *e);
    if (e) {
        atomic_init(&e->users, 1);
        e->m = rvi_api_retain_model(m);
        e->kv_why = kv_why;
        st = rvi_engine_new(&e->e, m->model, m->tokenizer, &m->eos, &inner, err);
        if (st == RV_E_NOMEM && m->sizes) st = explain_memory(m, &inner, err);
        if (!st && !(e->rows = rvi_alloc_array((size_t)e->e->o.max_rows, sizeof *e->rows)))
            st = rvi_nomem(err, "engine");
    } else {
        st = rvi_nomem(err, "engine");
    }
    if (st)
        rvi_api_release_engine(e);
    else
        *out = e;
    rvi_api_leave(&turn);
    return st;
}

rv_engine *rvi_api_retain_engine(rv_engine *e)
{
    atomic_fetch_add(&e->users, 1);
    return e;
}

void rvi_api_release_engine(rv_engine *e)
{
    if (!e || atomic_fetch_sub(&e->users, 1) != 1) return;
    rv_model *m = e->m;
    size_t before = rvi_mem_in_use();
    rvi_engine_free(e->e);
    rvi_free(e->rows);
    rvi_free(e);
    rvi_resident_trim(before);
    rvi_api_release_model(m);
}

void rv_engine_free(rv_engine **e)
{
    if (!e) return;
    rvi_api_release_engine(*e);
    *e = NULL;
}

/* ---- steps ---- */

static rv_status check_rows(const rv_engine *e, const rv_row *rows, size_t n, rv_error *err)
{
    for (size_t i = 0; i < n; i++) {
        if (!rows[i].session) return rvi_error(err, RV_E_INVALID, "row %zu: no session", i);
        if (rows[i].adapters && rows[i].adapters->m != e->m)
            return rvi_error(err, RV_E_ADAPTER, "row %zu: its adapters are of another model", i);
    }
    return RV_OK;
}

rv_status rv_engine_step(rv_engine *e, const rv_row *rows, size_t n, rv_error *err)
{
    rvi_api_turn turn;
    if (!e || (!rows && n)) return rvi_error(err, RV_E_INVALID, "rv_engine_step: NULL argument");
    if (n > (size_t)e->e->o.max_rows)
        return rvi_error(err, RV_E_CONFIG, "%zu rows in a step: the engine takes at most %d", n,
                         e->e->o.max_rows);
    rv_status st = check_rows(e, rows, n, err);
    if (!st) st = rvi_api_enter(&turn, e->m->rt, err);
    if (st) return st;
    for (size_t i = 0; i < n; i++) {
        const rv_adapter_set *set = rows[i].adapters ? rows[i].adapters : rows[i].session->adapters;
        e->rows[i] = (rvi_step_row){.s = rows[i].session->s,
                                    .token = rows[i].token,
                                    .want_logits = rows[i].want_logits != 0,
                                    .set = set ? &set->set : NULL};
    }
    st = rvi_engine_step(e->e, e->rows, n, err);
    rvi_api_leave(&turn);
    return st;
}

float *rv_engine_logits(rv_engine *e, size_t i)
{
    return e && i < (size_t)e->e->n_logits ? rvi_engine_logits(e->e, (int)i) : NULL;
}

/* Beside services, whose streams wait meanwhile, a step is as long as half the time between two
 * tokens may be, or that time if it has few rows. 0: there is nobody to wait for. */
static int rows_beside(const rv_engine *e)
{
    const rv_runtime *rt = e->m->rt;
    if (!rvi_api_is_serving(rt)) return 0;
    double seconds = 1e-9 * (double)atomic_load(&rt->token_ns);
    return rvi_budget_beside(&e->e->budget, rvi_answer_count(e->e), e->e->o.max_rows, seconds);
}

rv_status rv_engine_advance(rv_engine *e, size_t *n_running, rv_error *err)
{
    if (n_running) *n_running = 0;
    if (!e || !n_running) return rvi_error(err, RV_E_INVALID, "rv_engine_advance: NULL argument");
    rvi_api_turn turn;
    rvi_api_note_use(e->m->rt);
    rv_status st = rvi_api_enter(&turn, e->m->rt, err);
    if (st) return st;
    e->e->most_rows = rows_beside(e);
    *n_running = rvi_answer_advance(e->e, NULL);
    e->e->most_rows = 0;
    rvi_api_leave(&turn);
    return RV_OK;
}

rv_status rv_engine_score(rv_engine *e, const int32_t *ids, size_t n,
                          const rv_adapter_set *adapters, float *log_p, rv_error *err)
{
    if (!e || !ids || !log_p || n < 2)
        return rvi_error(err, RV_E_INVALID, "rv_engine_score: NULL argument, or fewer than 2 ids");
    if (adapters && adapters->m != e->m)
        return rvi_error(err, RV_E_ADAPTER, "the adapters are of another model");
    if (n > (size_t)e->e->o.n_tokens)
        return rvi_error(err, RV_E_TOO_LONG, "%zu tokens, but the engine has room for %d", n,
                         e->e->o.n_tokens);
    rvi_api_turn turn;
    rvi_seq seq = {0};
    double sum = 0;
    rv_status st = rvi_engine_check_ids(e->e, ids, n, err);
    if (!st) st = rvi_api_enter(&turn, e->m->rt, err);
    if (st) return st;
    rvi_engine_begin(e->e); /* the workspace no longer holds the last step's logits */
    st = rvi_seq_init(&seq, e->e->pool, (int)n, err);
    rvi_scorer s = {.m = e->m->model,
                    .ws = e->e->ws,
                    .seq = &seq,
                    .rows = e->e->rows,
                    .max_rows = e->e->o.max_rows,
                    .max_logits = e->e->o.max_logits,
                    .rope_set = rvi_rope_set(&e->m->model->rope, (int)n),
                    .adapters = adapters ? &adapters->set : NULL};
    if (!st) st = rvi_score(&s, ids, (int)n, 0, -1, log_p, &sum, err);
    rvi_seq_deinit(&seq);
    rvi_api_leave(&turn);
    return st;
}
