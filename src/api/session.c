/* Sessions: timelines of tokens in an engine. */
#include <string.h>

#include "api/api.h"
#include "decode/draft.h"
#include "decode/saved.h"

static rv_status check_options(const rv_model *m, const rv_session_options *o, rv_error *err)
{
    if (o->adapters && o->adapters->m != m)
        return rvi_error(err, RV_E_ADAPTER, "the adapters were loaded for another model");
    if (o->engine && o->engine->m != m)
        return rvi_error(err, RV_E_INVALID, "the engine is of another model");
    if (o->n_context < 0)
        return rvi_error(err, RV_E_CONFIG, "n_context must be 0 or more (got %d)", o->n_context);
    if (o->engine && o->n_context > o->engine->e->o.n_tokens)
        return rvi_error(err, RV_E_CONFIG, "n_context must be at most the engine's %d (got %d)",
                         o->engine->e->o.n_tokens, o->n_context);
    if (o->learner && o->learner->m != m)
        return rvi_error(err, RV_E_INVALID, "the learner is of another model");
    return RV_OK;
}

/* What a session without a shared engine gets: room for itself alone. */
static rv_status own_engine(rv_engine **out, const rv_model *m, const rv_session_options *o,
                            rv_error *err)
{
    rv_engine_options eo = {.size = sizeof eo,
                            .n_tokens = o->n_context,
                            .kv_type = o->kv_type,
                            .kv_warm = o->kv_warm,
                            .max_logits = 1 + RVI_DRAFT_MOST};
    return rv_engine_new(out, m, &eo, err);
}

/* The tokens that a session holds. */
static int choose_context(const rv_model *m, int asked, int n_engine, const char **why)
{
    int trained = m->model->hp.n_context, usual = RVI_MIN(trained, RVI_API_CONTEXT);
    if (asked) {
        *why = "asked for";
        return asked;
    }
    *why = n_engine < usual            ? "as many as its engine has"
           : trained < RVI_API_CONTEXT ? "what the model was made for"
                                       : "the default";
    return RVI_MIN(usual, n_engine);
}

static rv_status fill_session(rv_session *s, const rv_model *m, const rv_session_options *o,
                              rv_error *err)
{
    rv_status st = RV_OK;
    if (o->engine)
        s->e = rvi_api_retain_engine(o->engine);
    else
        st = own_engine(&s->e, m, o, err);
    if (st) return st;
    s->adapters = rvi_api_retain_set(o->adapters);
    s->teacher = rvi_api_retain_learner(o->learner);
    s->user = o->user;
    int trained = m->model->hp.n_context;
    int n_context = choose_context(m, o->n_context, s->e->e->o.n_tokens, &s->context_why);
    if (n_context > trained)
        rvi_log_write(&m->rt->log, RVI_LOG_WARN,
                      "a context of %d tokens is more than the %d this model was made for",
                      n_context, trained);
    rvi_api_turn turn;
    if ((st = rvi_api_enter(&turn, m->rt, err))) return st;
    st = rvi_session_new(&s->s, s->e->e, n_context, s->adapters ? &s->adapters->set : NULL, s, err);
    rvi_api_leave(&turn);
    return st;
}

rv_status rv_session_new(rv_session **out, const rv_model *m, const rv_session_options *given,
                         rv_error *err)
{
    if (!out) return rvi_error(err, RV_E_INVALID, "rv_session_new: NULL argument");
    *out = NULL;
    rv_session_options o;
    rv_status st = rvi_api_need_decoder(m, err);
    if (!st) st = rvi_api_read_struct(&o, sizeof o, given, "rv_session_options", err);
    if (!st) st = check_options(m, &o, err);
    if (st) return st;
    const rv_allocator *heap = rvi_api_use_heap(m->rt);
    rv_session *s = rvi_zalloc(sizeof *s);
    st = s ? fill_session(s, m, &o, err) : rvi_nomem(err, "session");
    rvi_api_leave_heap(heap);
    if (st)
        rv_session_free(&s);
    else
        *out = s;
    return st;
}

rv_status rv_session_fork(rv_session **out, rv_session *from, rv_error *err)
{
    if (!out || !from) return rvi_error(err, RV_E_INVALID, "rv_session_fork: NULL argument");
    *out = NULL;
    if (from->s->answer)
        return rvi_error(err, RV_E_STATE, "the session has an answer that was not finished");
    rvi_api_turn turn;
    rv_status st = rvi_api_enter(&turn, from->e->m->rt, err);
    if (st) return st;
    rv_session *s = rvi_zalloc(sizeof *s);
    if (s) {
        s->e = rvi_api_retain_engine(from->e);
        s->adapters = rvi_api_retain_set(from->adapters);
        s->teacher = rvi_api_retain_learner(from->teacher);
        s->user = from->user;
        s->context_why = from->context_why;
        s->learner = rvi_api_retain_learner(from->learner);
        s->held = rvi_made_set_retain(from->held);
        st = rvi_session_fork(&s->s, from->s, s, err);
        if (!st) st = rvi_api_compose(s, s->held, err);
    } else {
        st = rvi_nomem(err, "session");
    }
    if (st && s)
        rvi_api_destroy_session(s);
    else
        *out = s;
    rvi_api_leave(&turn);
    return st;
}

void rvi_api_destroy_session(rv_session *s)
{
    rv_engine *e = s->e;
    rvi_session_free(s->s);
    rvi_api_release_set(s->adapters);
    rvi_api_leave_learner(s->learner, s->held, s->capture);
    rvi_api_release_learner(s->teacher);
    rvi_api_deinit_composed(s);
    rvi_free(s->question);
    rvi_free(s->meant);
    rvi_ids_deinit(&s->slot);
    rvi_free(s);
    rvi_api_release_engine(e);
}

void rv_session_free(rv_session **handle)
{
    if (!handle || !*handle) return;
    rv_session *s = *handle;
    *handle = NULL;
    if (!s->e) { /* never got as far as an engine: nobody else knows it */
        rvi_free(s);
        return;
    }
    rv_runtime *rt = rvi_api_retain_runtime(s->e->m->rt);
    if (s->s) rvi_session_cancel(s->s);
    s->next_freed = atomic_load(&rt->freed);
    while (!atomic_compare_exchange_weak(&rt->freed, &s->next_freed, s)) {
    }
    rvi_api_collect(rt);
    rvi_api_release_runtime(rt);
}

void *rv_session_user(const rv_session *s)
{
    return s ? s->user : NULL;
}

rv_engine *rv_session_engine(rv_session *s)
{
    return s ? s->e : NULL;
}

int rv_session_context(const rv_session *s)
{
    return s ? s->s->n_context : 0;
}

size_t rv_session_tokens(const rv_session *s, const int32_t **ids)
{
    if (ids) *ids = s ? s->s->past.data : NULL;
    return s ? (size_t)(s->s->seq.len - s->s->n_ahead) : 0;
}

void rv_session_cancel(rv_session *s)
{
    if (s) rvi_session_cancel(s->s);
}

rv_status rv_session_sync(rv_session *s, const int32_t *ids, size_t n, size_t *n_reused,
                          float **logits, rv_error *err)
{
    if (logits) *logits = NULL;
    if (n_reused) *n_reused = 0;
    if (!s || (!ids && n)) return rvi_error(err, RV_E_INVALID, "rv_session_sync: NULL argument");
    rvi_api_turn turn;
    rv_status st = rvi_api_enter(&turn, s->e->m->rt, err);
    if (st) return st;
    if (s->s->answer)
        st = rvi_error(err, RV_E_STATE, "the session has an answer that was not finished");
    else
        st = rvi_session_sync(s->s, ids, n, n_reused, logits, err);
    rvi_api_leave(&turn);
    return st;
}

/* ---- on disk ---- */

rv_status rv_session_save(rv_session *s, const char *path, rv_error *err)
{
    if (!s || !path) return rvi_error(err, RV_E_INVALID, "rv_session_save: NULL argument");
    rvi_api_turn turn;
    char digest[65];
    rv_status st = rv_model_digest(s->e->m, digest, err);
    if (!st) st = rvi_api_enter(&turn, s->e->m->rt, err);
    if (st) return st;
    if (s->s->answer)
        st = rvi_error(err, RV_E_STATE, "the session has an answer that was not finished");
    else
        st = rvi_session_save(s->s, digest, path, err);
    rvi_api_leave(&turn);
    return st;
}

rv_status rv_session_load(rv_session **out, const rv_model *m, const rv_session_options *o,
                          const char *path, rv_error *err)
{
    if (out) *out = NULL;
    if (!out || !path) return rvi_error(err, RV_E_INVALID, "rv_session_load: NULL argument");
    rv_session *s = NULL;
    rvi_api_turn turn;
    char digest[65];
    rv_status st = rv_session_new(&s, m, o, err);
    if (!st) st = rv_model_digest(m, digest, err);
    if (!st && !(st = rvi_api_enter(&turn, m->rt, err))) {
        st = rvi_session_restore(s->s, digest, path, err);
        rvi_api_leave(&turn);
    }
    if (st)
        rv_session_free(&s);
    else
        *out = s;
    return st;
}
