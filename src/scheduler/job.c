/* A job from its admission to its last event. */
#include <math.h>
#include <string.h>

#include "base/os.h"
#include "decode/score.h"
#include "scheduler/internal.h"

rv_status rvi_order_new(rvi_order **out, int n, rv_error *err)
{
    *out = NULL;
    rvi_order *r = rvi_zalloc(sizeof *r);
    if (!r) return rvi_nomem(err, "request");
    r->jobs = rvi_zalloc_array((size_t)n, sizeof *r->jobs);
    if (!r->jobs) {
        rvi_free(r);
        return rvi_nomem(err, "request");
    }
    atomic_init(&r->cancelled, false);
    r->n_jobs = r->n_left = n;
    for (int i = 0; i < n; i++) {
        r->jobs[i].r = r;
        r->jobs[i].choice = i;
    }
    *out = r;
    return RV_OK;
}

void rvi_order_free(rvi_order *r)
{
    if (!r) return;
    for (int i = 0; i < r->n_jobs; i++) {
        rvi_spill_drop(&r->jobs[i].spilled);
        rvi_pooler_free(r->jobs[i].pooler);
        rvi_free(r->jobs[i].values);
        rvi_free(r->jobs[i].top);
    }
    if (r->hooks.release) r->hooks.release(r->hooks.ctx);
    rvi_kept_release(r->kept);
    rvi_free(r->jobs);
    rvi_arena_deinit(&r->arena);
    rvi_free(r);
}

/* ---- events of its answer ---- */

static rv_service_event event_of(const rvi_job *j, rv_service_event_kind kind)
{
    return (rv_service_event){.kind = kind,
                              .request = j->r->id,
                              .user = j->r->user,
                              .choice = j->choice,
                              .id = -1,
                              .n_prompt = j->r->n_ids,
                              .n_reused = j->n_reused,
                              .n_generated = j->n_generated,
                              .n_preempted = j->n_preempted};
}

static void note_token(rvi_scheduler *s, rvi_job *j)
{
    double now = rvi_os_seconds();
    if (j->first <= 0) {
        j->first = now;
        rvi_tally_add(&s->figures.first_token, now - j->r->arrived);
    } else {
        rvi_tally_add(&s->figures.inter_token, now - j->last);
    }
    j->last = now;
}

/* Of the answer there are so many tokens now. */
static void count_tokens(rvi_scheduler *s, rvi_job *j, int n_generated)
{
    int n_new = RVI_MAX(n_generated - j->n_generated, 0);
    if (!j->r->beside) rvi_figures_add(&s->figures.answer_tokens, (uint64_t)n_new);
    j->n_generated = n_generated;
}

static int on_event(void *ctx, const rv_event *ev)
{
    rvi_job *j = ctx;
    rvi_scheduler *s = j->s->owner;
    rv_service_event out;
    if (ev->kind == RV_EVENT_DONE) return 0;
    if (ev->kind == RV_EVENT_PROMPT) {
        out = event_of(j, RV_SERVICE_PROMPT);
        out.n_done = ev->n_done;
    } else {
        if (ev->id >= 0) note_token(s, j);
        count_tokens(s, j, ev->n_generated);
        out = event_of(j, RV_SERVICE_TOKEN);
        out.id = ev->id;
        out.is_special = ev->is_special;
        out.text = ev->text;
        out.text_len = ev->text_len;
        out.chosen = ev->chosen;
        out.top = ev->top;
        out.n_top = ev->n_top;
    }
    if (rvi_events_put(&s->events, &out)) return 0;
    j->lost = true;
    return 1;
}

static int on_mask(void *ctx, const int32_t *ids, size_t n_ids, float *logits, size_t n_vocab)
{
    const rvi_job *j = ctx;
    return j->r->o.mask(j->r->o.ctx, ids, n_ids, logits, n_vocab);
}

/* ---- rows that are read ---- */

static rv_status pool_rows(void *ctx, const rvi_engine *e, int first, int n, int pos, rv_error *err)
{
    rvi_job *j = ctx;
    for (int i = 0; i < n; i++) rvi_pooler_take(j->pooler, e->ws, first + i, (size_t)(pos + i));
    return pos + n == j->r->n_ids ? rvi_pooler_finish(j->pooler, j->values, err) : RV_OK;
}

static rv_status score_rows(void *ctx, const rvi_engine *e, int first, int n, int pos,
                            rv_error *err)
{
    rvi_job *j = ctx;
    int n_top = j->r->n_top;
    rvi_scorer by = {.m = e->m, .ws = e->ws, .rows = e->rows, .max_logits = e->o.max_logits};
    if (n_top) by.top = j->top + (size_t)pos * (size_t)n_top;
    by.n_top = n_top;
    int to = first + RVI_MIN(n, j->r->n_ids - 1 - pos);
    if (!pos) j->sum = 0;
    rvi_score_rows(&by, j->r->ids + pos + 1 - first, first, to, j->values + pos, &j->sum);
    if (isfinite(j->sum)) return RV_OK;
    return rvi_engine_explain(
        e, rvi_error(err, RV_E_GENERATION, "the model's output is not finite"), err);
}

static rv_status begin_reading(rvi_job *j, const rv_generate_options *o, rv_error *err)
{
    rvi_order *r = j->r;
    const rvi_model *m = j->s->e->m;
    bool embeds = r->kind == RV_REQUEST_EMBED;
    rvi_reader reader = {embeds ? pool_rows : score_rows, j};
    j->n_values = embeds ? (size_t)m->hp.n_embd : (size_t)r->n_ids - 1;
    j->values = rvi_zalloc_array(j->n_values, sizeof *j->values);
    if (r->n_top) j->top = rvi_zalloc_array(j->n_values * (size_t)r->n_top, sizeof *j->top);
    if (!j->values || (r->n_top && !j->top)) return rvi_nomem(err, "request");
    rv_status st = embeds ? rvi_pooler_new(&j->pooler, m, (size_t)r->n_ids, &r->embed, err) : RV_OK;
    if (st) return st;
    return rvi_answer_start_reading(j->s, r->ids, (size_t)r->n_ids, &reader, o, err);
}

/* ---- sessions on disk ---- */

/* Were the saved pages computed with what the job computes with? */
static bool is_of_set(const rvi_kept_session *k, const rvi_adapter_set *set)
{
    if (!k->has_set) return !set || !set->serial;
    return set && set->serial && set->digest &&
           !memcmp(set->digest, k->set_digest, sizeof k->set_digest);
}

/* The pages of a saved session whose tokens are those of the request: a chat may have been changed
 * since, or be written in other tokens than its answers were. */
static int agreeing_pages(const rvi_kept_session *k, const rvi_order *r)
{
    int most = RVI_MIN(k->n_pages, r->n_ids / RVI_PAGE_TOKENS) * RVI_PAGE_TOKENS, n = 0;
    while (n < most && r->ids[n] == rvi_kept_id(k, (size_t)n)) n++;
    return n / RVI_PAGE_TOKENS;
}

/* They go into the tree, where the job finds them. Where that is not possible now, they are
 * computed again. */
static void restore(rvi_scheduler *s, const rvi_job *j)
{
    const rvi_kept_session *k = j->r->kept;
    rvi_prefix_space space = rvi_job_space(s, j);
    rvi_pages *pool = s->e->pool;
    int n = agreeing_pages(k, j->r), len = n * RVI_PAGE_TOKENS;
    if (!n || !is_of_set(k, j->s->adapters) || space.rope_set != k->rope_set) return;
    if (rvi_prefix_find(s->prefix, &space, j->r->ids, len, s->pages) == len) return;
    int lack = n - (rvi_pages_total(pool) - rvi_pages_in_use(pool));
    if (lack > 0 && rvi_prefix_evict(s->prefix, lack) < lack) return;
    rvi_seq seq;
    if (rvi_seq_init(&seq, pool, len, NULL)) return;
    if (!rvi_seq_extend(&seq, len, NULL)) {
        for (int i = 0; i < n; i++) rvi_seq_write_page(&seq, i, rvi_kept_page(k, (size_t)i));
        if (rvi_kept_is_whole(k)) rvi_prefix_insert(s->prefix, &space, j->r->ids, len, seq.pages);
    }
    rvi_seq_deinit(&seq);
}

/* ---- beginning ---- */

rv_status rvi_job_begin(rvi_scheduler *s, rvi_job *j, rv_error *err)
{
    rvi_order *r = j->r;
    int n_context = rvi_job_total(j) + (r->kind != RV_REQUEST_ANSWER || !r->o.max_tokens);
    rv_status st = rvi_session_new(&j->s, s->e, n_context, r->adapters, s, err);
    if (!st) j->s->rope_set = rvi_rope_set(&s->e->m->rope, rvi_job_total(j));
    if (!st && r->hooks.begin) st = r->hooks.begin(r->hooks.ctx, j->choice, j->s, err);
    if (st) return st;
    rv_sampling sampling = r->sampling;
    rv_generate_options o = r->o;
    sampling.seed += (uint64_t)j->choice;
    o.sampling = &sampling;
    o.on_event = on_event;
    o.mask = r->o.mask ? on_mask : NULL;
    o.ctx = j;
    if (r->kind != RV_REQUEST_ANSWER) return begin_reading(j, &o, err);
    if (r->kept) restore(s, j);
    st = rvi_answer_start(j->s, r->ids, (size_t)r->n_ids, &o, err);
    if (!st && r->kept && r->kept->n_ids && !r->whole)
        rvi_sampler_set(rvi_answer_sampler(j->s), &r->kept->sampler);
    if (!st && r->hooks.started) st = r->hooks.started(r->hooks.ctx, j->choice, j->s, err);
    return st;
}

/* Before there is a session, as far as it is known: a learner may choose other adapters. An answer
 * that has forgotten something goes on with the rotary factors that it began with. */
rvi_prefix_space rvi_job_space(const rvi_scheduler *s, const rvi_job *j)
{
    const rvi_adapter_set *set = j->s ? j->s->adapters : j->r->adapters;
    return (rvi_prefix_space){.adapters = set ? set->serial : 0,
                              .salt = j->r->space,
                              .rope_set = j->s ? j->s->rope_set
                                               : rvi_rope_set(&s->e->m->rope, rvi_job_total(j))};
}

void rvi_job_keep(rvi_scheduler *s, const rvi_job *j, bool whole)
{
    const rvi_seq *seq = &j->s->seq;
    if (seq->coarse) return; /* what it computed is not what others would */
    rvi_prefix_space space = rvi_job_space(s, j);
    int n = whole ? seq->len / RVI_PAGE_TOKENS * RVI_PAGE_TOKENS : seq->len;
    rvi_prefix_insert(s->prefix, &space, j->s->past.data, n, seq->pages);
}

void rvi_job_unspill(rvi_scheduler *s, rvi_job *j)
{
    s->spilled_bytes -= (uint64_t)j->spilled.n_pages * rvi_pages_bytes(s->e->pool);
    rvi_spill_drop(&j->spilled);
}

/* ---- end ---- */

static void count_end(rvi_scheduler *s, const rv_service_event *ev)
{
    rvi_figures *f = &s->figures;
    rvi_figures_add(ev->timed_out                       ? &f->n_timed_out
                    : ev->finish == RV_FINISH_CANCELLED ? &f->n_cancelled
                    : ev->finish == RV_FINISH_ERROR     ? &f->n_failed
                                                        : &f->n_done,
                    1);
}

/* Takes the answer; its own end counts unless something else ended the job. */
static void take_answer(rvi_scheduler *s, rvi_job *j, rv_service_event *ev, rv_error *why)
{
    rvi_generated g;
    bool by_itself = rvi_answer_ended(j->s);
    rv_status st = rvi_answer_take(j->s, &g, why);
    count_tokens(s, j, (int)g.ids.len);
    ev->n_generated = j->n_generated;
    ev->n_guessed = g.n_guessed;
    ev->n_right = g.n_right;
    if (by_itself) {
        ev->finish = g.finish;
        ev->stop = g.stop;
        ev->status = st;
    }
    rvi_generated_deinit(&g);
}

void rvi_job_end(rvi_scheduler *s, rvi_job *j, rv_finish finish, rv_status st, const rv_error *why)
{
    rvi_order *r = j->r;
    rv_error own = {0};
    rv_service_event ev = event_of(j, RV_SERVICE_DONE);
    ev.finish = finish;
    ev.status = st;
    ev.timed_out = r->timed_out;
    ev.n_evicted = j->n_evicted;
    ev.coarse = j->s && j->s->seq.coarse;
    if (why) own = *why;
    rvi_sampler_state sampler = {0};
    if (r->kept && j->s && j->s->answer) sampler = rvi_sampler_get(rvi_answer_sampler(j->s));
    if (j->s && j->s->answer && !st) take_answer(s, j, &ev, &own);
    if (j->lost) {
        ev.finish = RV_FINISH_ERROR;
        ev.status = rvi_nomem(&own, "events");
    }
    if (ev.finish != RV_FINISH_CANCELLED) ev.timed_out = 0;
    ev.error = ev.status ? own.text : NULL;
    bool good = ev.finish != RV_FINISH_ERROR && ev.finish != RV_FINISH_CANCELLED;
    if (good && j->values) {
        ev.values = j->values;
        ev.n_values = j->n_values;
        ev.top = j->top;
        ev.n_top = j->top ? j->n_values * (size_t)r->n_top : 0;
    }
    double now = rvi_os_seconds(), first = j->first > 0 ? j->first : now;
    if (j->admitted > 0) {
        ev.queue_seconds = j->admitted - r->arrived;
        ev.prompt_seconds = first - j->admitted;
        ev.seconds = now - first;
    } else {
        ev.queue_seconds = now - r->arrived;
    }
    if (j->s && r->kind == RV_REQUEST_ANSWER) rvi_job_keep(s, j, false);
    rvi_admit_stop(s, j);
    if (good && j->s && r->kept) rvi_saving_begin(s, j, &sampler, &ev, &own);
    rvi_session_free(j->s);
    rvi_job_unspill(s, j);
    j->s = NULL;
    if (r->hooks.ended) r->hooks.ended(r->hooks.ctx, j->choice, good);
    if (!j->save) rvi_job_tell_end(s, j, &ev);
}

void rvi_job_tell_end(rvi_scheduler *s, rvi_job *j, const rv_service_event *ev)
{
    j->ended = true;
    j->r->n_left--;
    count_end(s, ev);
    rvi_figures_add(&s->figures.n_guessed, (uint64_t)ev->n_guessed);
    rvi_figures_add(&s->figures.n_right, (uint64_t)ev->n_right);
    rvi_events_put_last(&s->events, ev);
}
