/* Sessions, answers, samplers. */
#include <string.h>

#include "api/api.h"
#include "decode/sampler.h"

static const rv_session_options defaults = {.size = sizeof defaults, .kv_type = RV_KV_DEFAULT};

void rv_session_options_init(rv_session_options *o, size_t size)
{
    rvi_api_init_options(o, size, &defaults, sizeof defaults);
}

static rv_status check_options(const rv_model *m, const rv_session_options *o, rv_error *err)
{
    if (o->adapters && o->adapters->m != m)
        return rvi_error(err, RV_E_ADAPTER, "the adapters were loaded for another model");
    if (o->engine && o->engine->m != m)
        return rvi_error(err, RV_E_INVALID, "the engine is of another model");
    if (o->n_context < 0)
        return rvi_error(err, RV_E_CONFIG, "a context of %d tokens is not possible", o->n_context);
    return RV_OK;
}

/* What a session without a shared engine gets: room for itself alone. */
static rv_status own_engine(rv_engine **out, const rv_model *m, const rv_session_options *o,
                            rv_error *err)
{
    rv_engine_options eo;
    rv_engine_options_init(&eo, sizeof eo);
    eo.n_tokens = o->n_context;
    eo.kv_type = o->kv_type;
    eo.max_logits = 1;
    return rv_engine_new(out, m, &eo, err);
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
    int trained = m->model->hp.n_context;
    int usual = RVI_MIN(RVI_MIN(trained, RVI_API_CONTEXT), s->e->e->o.n_tokens);
    int n_context = o->n_context ? o->n_context : usual;
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
    rv_session_options o = defaults;
    rv_status st = rvi_api_need_decoder(m, err);
    if (!st) st = rvi_api_read_options(&o, sizeof o, given, "rv_session_options", err);
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
        return rvi_error(err, RV_E_SESSION, "the session has an answer that was not finished");
    rvi_api_turn turn;
    rv_status st = rvi_api_enter(&turn, from->e->m->rt, err);
    if (st) return st;
    rv_session *s = rvi_zalloc(sizeof *s);
    if (s) {
        s->e = rvi_api_retain_engine(from->e);
        s->adapters = rvi_api_retain_set(from->adapters);
        s->learner = rvi_api_retain_learner(from->learner);
        s->held = rvi_made_set_retain(from->held);
        st = rvi_session_fork(&s->s, from->s, s, err);
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
    rvi_api_forget_answer(s);
    rvi_api_leave_learner(s->learner, s->held, s->capture);
    rvi_free(s->question);
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
    rvi_api_turn turn;
    if (rvi_api_enter(&turn, rt, NULL) == RV_OK) rvi_api_leave(&turn);
    rvi_api_release_runtime(rt);
}

int rv_session_context(const rv_session *s)
{
    return s ? s->s->n_context : 0;
}

size_t rv_session_tokens(const rv_session *s, const int32_t **ids)
{
    if (ids) *ids = s ? s->s->past.data : NULL;
    return s ? (size_t)s->s->seq.len : 0;
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
        st = rvi_error(err, RV_E_SESSION, "the session has an answer that was not finished");
    else
        st = rvi_session_sync(s->s, ids, n, n_reused, logits, err);
    rvi_api_leave(&turn);
    return st;
}

/* ---- answers ---- */

void rv_sampling_init(rv_sampling *s, size_t size)
{
    if (s) rvi_sampling_init(s, size, false);
}

void rv_sampling_init_greedy(rv_sampling *s, size_t size)
{
    if (s) rvi_sampling_init(s, size, true);
}

const char *rv_finish_name(rv_finish f)
{
    static const char *const names[] = {
#define X(name, text) text,
        RV_FINISH_MAP(X)
#undef X
    };
    return (size_t)f < RVI_COUNT(names) ? names[f] : "";
}

static const rv_generate_options generate_defaults = {
    .size = sizeof generate_defaults, .max_tokens = 256, .top_logprobs = -1};

void rv_generate_options_init(rv_generate_options *o, size_t size)
{
    rvi_api_init_options(o, size, &generate_defaults, sizeof generate_defaults);
}

/* Answers that got a thumb down do not come again. */
static rv_status avoid_disliked(rv_session *s, rv_error *err)
{
    enum { MOST = 256 };
    rvi_avoid list[MOST];
    size_t n = rvi_learner_avoids(s->learner->l, s->question, list, MOST);
    return rvi_answer_avoid(s->s, list, n, err);
}

/* busy is held */
static rv_status start(rv_session *s, const int32_t *prompt, size_t n_prompt,
                       const rv_generate_options *given, rv_error *err)
{
    rv_generate_options o = generate_defaults;
    rv_sampling sampling;
    rv_status st = rvi_api_read_options(&o, sizeof o, given, "rv_generate_options", err);
    if (!st && !o.stop && o.n_stop)
        st = rvi_error(err, RV_E_INVALID, "%zu stop strings, but no list of them", o.n_stop);
    rvi_sampling_init(&sampling, sizeof sampling, false);
    if (!st) st = rvi_api_read_options(&sampling, sizeof sampling, o.sampling, "rv_sampling", err);
    if (st) return st;
    rvi_api_note_use(s->e->m->rt);
    o.sampling = &sampling;
    st = rvi_answer_start(s->s, prompt, n_prompt, &o, err);
    rvi_slot slot = {.ids = s->slot.data, .n = s->slot.len};
    if (!st && slot.n && (st = rvi_answer_lock(s->s, &slot, err))) rvi_answer_drop(s->s);
    if (!st && s->begun && (st = avoid_disliked(s, err))) rvi_answer_drop(s->s);
    s->spoke = !st && slot.n;
    s->begun = false;
    rvi_ids_deinit(&s->slot);
    return st;
}

static rv_status give(rv_session *s, rv_generated *out, rv_error *err)
{
    rvi_generated g;
    rv_status st = rvi_answer_take(s->s, &g, err);
    rvi_api_note_use(s->e->m->rt);
    if (!st) rvi_api_note_answer(s);
    *out = (rv_generated){.ids = g.ids.data,
                          .n_ids = g.ids.len,
                          .chosen = g.chosen,
                          .top = g.top,
                          .n_top = g.n_top,
                          .finish = g.finish,
                          .n_prompt = g.n_prompt,
                          .n_reused = g.n_reused,
                          .prompt_seconds = g.prompt_seconds,
                          .seconds = g.seconds};
    rv_status given = rvi_api_give_text(&g.text, &out->text, &out->text_len, st ? NULL : err);
    if (!st && given) out->finish = RV_FINISH_ERROR;
    return st ? st : given;
}

rv_status rv_session_start(rv_session *s, const int32_t *prompt, size_t n_prompt,
                           const rv_generate_options *o, rv_error *err)
{
    if (!s || (!prompt && n_prompt))
        return rvi_error(err, RV_E_INVALID, "rv_session_start: NULL argument");
    rvi_api_turn turn;
    rv_status st = rvi_api_enter(&turn, s->e->m->rt, err);
    if (st) return st;
    st = start(s, prompt, n_prompt, o, err);
    rvi_api_leave(&turn);
    return st;
}

rv_status rv_session_finish(rv_session *s, rv_generated *out, rv_error *err)
{
    if (out) *out = (rv_generated){.finish = RV_FINISH_ERROR};
    if (!s || !out) return rvi_error(err, RV_E_INVALID, "rv_session_finish: NULL argument");
    rvi_api_turn turn;
    rv_status st = rvi_api_enter(&turn, s->e->m->rt, err);
    if (st) return st;
    st = s->s->answer ? give(s, out, err)
                      : rvi_error(err, RV_E_SESSION, "the session has no answer to finish");
    rvi_api_leave(&turn);
    return st;
}

rv_status rv_session_generate(rv_session *s, const int32_t *prompt, size_t n_prompt,
                              const rv_generate_options *o, rv_generated *out, rv_error *err)
{
    if (out) *out = (rv_generated){.finish = RV_FINISH_ERROR};
    if (!s || !out || (!prompt && n_prompt))
        return rvi_error(err, RV_E_INVALID, "rv_session_generate: NULL argument");
    rvi_api_turn turn;
    rv_status st = rvi_api_enter(&turn, s->e->m->rt, err);
    if (st) return st;
    st = start(s, prompt, n_prompt, o, err);
    if (!st) {
        while (rvi_answer_advance(s->e->e, s->s)) {
        }
        st = give(s, out, err);
    }
    rvi_api_leave(&turn);
    return st;
}

void rv_generated_free(rv_generated *g)
{
    if (!g) return;
    rvi_free(g->ids);
    rvi_free(g->text);
    rvi_free(g->chosen);
    rvi_free(g->top);
    *g = (rv_generated){0};
}

/* ---- samplers ---- */

struct rv_sampler {
    rv_model *m;
    rvi_sampler *s;
};

rv_status rv_sampler_new(rv_sampler **out, const rv_model *m, const rv_sampling *given,
                         rv_error *err)
{
    if (!out) return rvi_error(err, RV_E_INVALID, "rv_sampler_new: NULL argument");
    *out = NULL;
    rv_sampling o;
    rv_status st = rvi_api_need_decoder(m, err);
    rvi_sampling_init(&o, sizeof o, false);
    if (!st) st = rvi_api_read_options(&o, sizeof o, given, "rv_sampling", err);
    if (st) return st;
    const rv_allocator *heap = rvi_api_use_heap(m->rt);
    rv_sampler *s = rvi_zalloc(sizeof *s);
    if (s) {
        s->m = rvi_api_retain_model(m);
        st = rvi_sampler_new(&s->s, &o, m->model->hp.n_vocab, m->tokenizer, err);
    } else {
        st = rvi_nomem(err, "sampler");
    }
    rvi_api_leave_heap(heap);
    if (st)
        rv_sampler_free(&s);
    else
        *out = s;
    return st;
}

void rv_sampler_free(rv_sampler **handle)
{
    if (!handle || !*handle) return;
    rv_sampler *s = *handle;
    rv_model *m = s->m;
    *handle = NULL;
    rvi_sampler_free(s->s);
    rvi_free(s);
    rvi_api_release_model(m);
}

rv_status rv_sampler_pick(rv_sampler *s, float *logits, const int32_t *past, size_t n_past,
                          size_t n_prompt, int32_t *id, rv_error *err)
{
    if (!s || !logits || !id || (!past && n_past))
        return rvi_error(err, RV_E_INVALID, "rv_sampler_pick: NULL argument");
    int n_vocab = s->m->model->hp.n_vocab;
    if (n_prompt > n_past)
        return rvi_error(err, RV_E_INVALID, "a prompt of %zu among %zu tokens", n_prompt, n_past);
    for (size_t i = 0; i < n_past; i++)
        if (past[i] < 0 || past[i] >= n_vocab)
            return rvi_error(err, RV_E_GENERATION, "token id %d is not in the vocabulary of %d",
                             past[i], n_vocab);
    return rvi_sampler_pick(s->s, logits, past, n_past, n_prompt, id, err);
}
