/* The instant loop of a learner: scores move a small adapter that always takes part, thumbs down
 * move one that takes part in the same request alone. Both by gradients captured while the answer
 * was generated; nothing here runs the model, but for what is made once.
 *
 * What follows from a judgement but need not be done in its call is attended to afterwards: the
 * probe and the snapshot. With a background thread that is done between calls, otherwise at the
 * call's end; whatever depends on it catches up first, so that it makes no difference who did it
 * when. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/number.h"
#include "base/os.h"
#include "learn/learner/learner_internal.h"
#include "learn/consolidate/prose.h"
#include "learn/journal/text.h"

enum { RING = 256, PROBE_HALF = 4, PROBE_EVERY = 4 };

/* ---- what is made once ---- */

static rv_status need_capturer(rvi_learner *l, rv_error *err)
{
    return l->instant.capturer ? RV_OK : rvi_capturer_new(&l->instant.capturer, l->parts.m, err);
}

rv_status rvi_learner_capture(rvi_learner *l, rvi_capture **out, rv_error *err)
{
    *out = NULL;
    rv_status st = need_capturer(l, err);
    return st ? st : rvi_capture_new(out, l->instant.capturer, RING, err);
}

/* Where texts go that probes and whitening are made of. */
typedef struct text_taker {
    const rvi_learner *l;
    const rvi_base_model *v;
    rv_status (*add)(const struct text_taker *t, const int32_t *ids, size_t n, rv_error *err);
    rvi_whitener *whitener;         /* or NULL */
    rvi_probe *probe;               /* or NULL */
    rvi_study_progress_fn progress; /* may be NULL */
    void *ctx;
} text_taker;

static rv_status tell(const text_taker *t, int done, int total, rv_error *err)
{
    bool stopped = t->progress && t->progress(t->ctx, "ordinary text", done, total, NAN);
    return stopped || rvi_backend_is_stopped(t->v->be) ? rvi_error(err, RV_E_CANCELLED, "cancelled")
                                                       : RV_OK;
}

/* Calls add with prose, and from calibration on with the model's own texts; up to `most` of
 * each. */
static rv_status each_text(const text_taker *t, int most, rvi_replay_kind own, rv_error *err)
{
    const rvi_learner *l = t->l;
    const rvi_replay *r = &l->replay;
    int n = 0, prose = (int)RVI_MIN(rvi_n_prose, (size_t)most), total = prose;
    rv_status st = RV_OK;
    for (size_t i = 0; l->calibrated && i < r->n_pieces && total < prose + most; i++)
        total += r->pieces[i].kind == (uint32_t)own;
    for (; !st && n < prose; n++) {
        rvi_ids ids = {0};
        if (!rvi_ids_push(&ids, t->v->start)) st = rvi_nomem(err, "prose");
        if (!st) st = rvi_base_model_encode(t->v, rvi_prose[n], strlen(rvi_prose[n]), &ids, err);
        if (!st) st = t->add(t, ids.data, RVI_MIN(ids.len, (size_t)RVI_PROBE_TOKENS), err);
        if (!st) st = tell(t, n + 1, total, err);
        rvi_ids_deinit(&ids);
    }
    for (size_t i = 0; !st && l->calibrated && i < r->n_pieces && n < total; i++)
        if (r->pieces[i].kind == (uint32_t)own) {
            st = t->add(t, r->ids.data + r->pieces[i].first,
                        RVI_MIN((size_t)r->pieces[i].n, (size_t)RVI_PROBE_TOKENS), err);
            if (!st) st = tell(t, ++n, total, err);
        }
    return st;
}

static rv_status add_probe(const text_taker *t, const int32_t *ids, size_t n, rv_error *err)
{
    return rvi_probe_add(t->probe, ids, n, err);
}

rv_status rvi_instant_new_micro(rvi_learner *l, rv_error *err)
{
    rvi_micro_options o = {
        .rank = l->o.micro_rank, .seed = l->o.seed + 1, .kl_step = (double)l->o.micro_kl_step};
    return l->instant.micro ? RV_OK : rvi_micro_new(&l->instant.micro, l->parts.m, &o, err);
}

/* The probe takes forward passes, so it is made when the first check is due, or when an earlier
 * process left the adapter where events must look at it. */
static rv_status need_probe(rvi_learner *l, rv_error *err)
{
    rvi_instant *in = &l->instant;
    rv_status st = need_capturer(l, err);
    if (st || in->probe) return st;
    text_taker t = {.l = l, .v = &l->base, .add = add_probe};
    st = rvi_probe_new(&in->probe, in->capturer, l->parts.m, 2 * PROBE_HALF, err);
    t.probe = in->probe;
    if (!st) st = each_text(&t, PROBE_HALF, RVI_PROBE, err);
    if (!st) {
        rvi_micro_set_probe(in->micro, in->probe);
    } else {
        rvi_probe_free(in->probe);
        in->probe = NULL;
    }
    return st;
}

static rv_status need_micro(rvi_learner *l, rv_error *err)
{
    rv_status st = need_capturer(l, err);
    if (!st) st = rvi_instant_new_micro(l, err);
    return !st && rvi_micro_pulls(l->instant.micro) ? need_probe(l, err) : st;
}

/* The inputs of the last down projection over a text, as samples of what ordinary text uses. */
static rv_status add_samples(const text_taker *by, const int32_t *ids, size_t n, rv_error *err)
{
    const rvi_model *m = by->l->parts.m;
    rvi_trainer *t = NULL;
    rvi_trainer_options o = {.max_rows = (int)n, .max_spans = 1, .max_losses = 1};
    rvi_span span = {0, (int)n, 0, -1};
    float *u = rvi_alloc_array((size_t)m->hp.n_ff, sizeof *u);
    rv_status st =
        u ? rvi_trainer_new(&t, m, by->v->be, NULL, NULL, &o, err) : rvi_nomem(err, "samples");
    if (!st) {
        rvi_trainer_begin(t, ids, &span, 1);
        rvi_trainer_forward(t, 0, m->hp.n_layers);
        for (int i = 0; i < (int)n; i++) {
            rvi_trainer_get_act(t, i, u);
            (void)rvi_whitener_add(by->whitener, u);
        }
    }
    rvi_trainer_free(t);
    rvi_free(u);
    return st;
}

/* ---- whitening, in three parts (learner.h) ---- */

/* One of prose alone serves until the model's own texts are there, and on while lists were made
 * with it. */
static bool has_thumbs(const rvi_learner *l)
{
    const rvi_instant *in = &l->instant;
    return in->thumbs && (in->whole || !l->calibrated || in->n_dislikes);
}

bool rvi_whitening_is_due(rvi_learner *l)
{
    return rvi_refusals_has_thumb(&l->refusals, NULL) && !l->instant.thumbs &&
           rvi_instant_load_whitener(l, NULL) != RV_OK;
}

rv_status rvi_whitening_make(rvi_whitening *w, const rvi_learner *l, const rvi_base_model *v,
                             rvi_study_progress_fn progress, void *ctx, rv_error *err)
{
    enum { MOST_TEXTS = 160 };
    *w = (rvi_whitening){.whole = l->calibrated};
    text_taker t = {.l = l, .v = v, .add = add_samples, .progress = progress, .ctx = ctx};
    rv_status st = rvi_whitener_new(&w->made, l->parts.m->hp.n_ff, 0, err);
    t.whitener = w->made;
    if (!st) st = each_text(&t, MOST_TEXTS, RVI_GENERAL, err);
    return st ? st : rvi_whitener_finish(w->made, err);
}

rv_status rvi_whitening_save(rvi_whitening *w, rvi_learner *l, rv_error *err)
{
    rvi_instant *in = &l->instant;
    rvi_thumbs *thumbs = NULL;
    if (has_thumbs(l)) return RV_OK; /* by another call meanwhile */
    rv_status st = rvi_thumbs_new(&thumbs, l->parts.m, w->made, 0, err);
    if (st) return st;
    rvi_instant_free_prepared(l);
    rvi_thumbs_free(in->thumbs);
    rvi_whitener_free(in->whitener);
    in->thumbs = thumbs;
    in->whitener = w->made;
    in->whole = w->whole;
    w->made = NULL;
    rvi_instant_save_whitener(l);
    return RV_OK;
}

void rvi_whitening_deinit(rvi_whitening *w)
{
    rvi_whitener_free(w->made);
    w->made = NULL;
}

static rv_status need_thumbs(rvi_learner *l, rv_error *err)
{
    rvi_whitening w = {0};
    if (has_thumbs(l)) return RV_OK;
    rv_status st = rvi_whitening_make(&w, l, &l->base, NULL, NULL, err);
    if (!st) st = rvi_whitening_save(&w, l, err);
    rvi_whitening_deinit(&w);
    return st;
}

/* ---- adapters ---- */

rv_status rvi_learner_reserve(rvi_learner *l, rv_error *err)
{
    return rvi_adapter_sets_reserve(&l->sets, l->generations.n + l->instant.n_dislikes + 2, err);
}

static void replace(rvi_learner *l, rvi_adapter **at, rvi_adapter *by)
{
    rvi_adapter_sets_retire(&l->sets, *at);
    *at = by;
    rvi_adapter_sets_sweep(&l->sets);
}

rv_status rvi_instant_publish(rvi_learner *l, rvi_adapter **at, const rvi_delta *d, rv_error *err)
{
    rvi_adapter *a = NULL;
    rv_status st = rvi_learner_reserve(l, err);
    if (!st && d->rank) st = rvi_delta_export(&a, l->parts.m, d, err);
    if (!st) replace(l, at, a);
    return st;
}

int rvi_instant_adapters(const rvi_learner *l, const char *question, const rvi_adapter **out,
                         int max)
{
    const rvi_instant *in = &l->instant;
    int n = 0;
    if (in->adapter && n < max) out[n++] = in->adapter;
    for (size_t i = 0; question && i < in->n_dislikes && n < max; i++)
        if (in->dislikes[i].adapter && rvi_question_same(question, in->dislikes[i].question))
            out[n++] = in->dislikes[i].adapter;
    return n;
}

void rvi_instant_deinit(rvi_learner *l)
{
    rvi_instant *in = &l->instant;
    replace(l, &in->adapter, NULL);
    for (size_t i = 0; i < in->n_dislikes; i++) {
        replace(l, &in->dislikes[i].adapter, NULL);
        rvi_edits_free(in->dislikes[i].edits);
        rvi_free(in->dislikes[i].question);
    }
    rvi_free(in->dislikes);
    rvi_instant_free_prepared(l);
    rvi_micro_free(in->micro);
    rvi_probe_free(in->probe);
    rvi_thumbs_free(in->thumbs);
    rvi_whitener_free(in->whitener);
    *in = (rvi_instant){.capturer = in->capturer}; /* sessions' rings are of it */
}

/* ---- events ---- */

static rv_status probe(rvi_learner *l, rvi_adaptation *out, rv_error *err)
{
    rvi_instant *in = &l->instant;
    double start = rvi_os_thread_seconds();
    rvi_probe_result r = {0, 0};
    rv_status made = rvi_learner_shares(l) ? rvi_learner_own(l, err) : RV_OK;
    if (!made && !in->probe_due) return RV_OK; /* another process has done it */
    if (!made && in->micro) made = need_probe(l, err);
    if (made) return made;
    in->probe_due = false;
    bool back = in->micro && rvi_micro_probe(in->micro, &r);
    rvi_instant_save_checked(l, back);
    if (!back) {
        if (out) out->forward_us += (rvi_os_thread_seconds() - start) * 1e6;
        return RV_OK;
    }
    rvi_delta d = rvi_micro_delta(in->micro);
    rv_status st = rvi_instant_publish(l, &in->adapter, &d, err);
    char note[sizeof((rvi_adaptation *)0)->notes];
    (void)rvi_snprintf(note, sizeof note,
                       "rolled back: the probe texts had drifted by %.4f nats, perplexity %+.1f %%",
                       r.kl, 100 * r.ppl);
    if (out) {
        snprintf(out->notes, sizeof out->notes, "%s", note);
        out->forward_us += (rvi_os_thread_seconds() - start) * 1e6;
    } else {
        rvi_log_write(l->parts.be->log, RVI_LOG_INFO, "%s", note);
    }
    return st;
}

rv_status rvi_instant_catch_up(rvi_learner *l, rv_error *err)
{
    rv_error why = {0};
    if (!l->instant.probe_due) return RV_OK;
    rv_status st = probe(l, NULL, &why);
    /* a shared store that cannot be reached: answers go on, and appending fails before this */
    if (st == RV_E_STORAGE && rvi_learner_shares(l)) return RV_OK;
    return st ? rvi_error(err, st, "%s", why.text) : RV_OK;
}

/* out (may be NULL): of the judgement that it comes after. */
static rv_status finish_pending(rvi_learner *l, rvi_adaptation *out, rv_error *err)
{
    rv_status st = l->instant.probe_due ? probe(l, out, err) : RV_OK;
    rvi_instant_save_lists(l);
    return st;
}

rv_status rvi_learner_finish_pending(rvi_learner *l, rv_error *err)
{
    return finish_pending(l, NULL, err);
}

bool rvi_learner_has_background(const rvi_learner *l)
{
    return atomic_load(&l->doing.what) != NULL;
}

static rvi_feedback judgement(const rvi_learner *l, rvi_feedback_kind kind, const char *question,
                              double score)
{
    rvi_feedback f = rvi_learner_event(l, kind);
    if (question) f.question = (rvi_text){question, strlen(question)};
    f.score = score;
    return f;
}

/* The event with what was answered. In a transaction of the caller, who owns the state. */
static rv_status append_judgement(rvi_learner *l, rvi_feedback *f, const rvi_capture *c,
                                  rv_error *err)
{
    char name[32];
    rvi_buf given = {0};
    snprintf(name, sizeof name, "answer %llu", (unsigned long long)rvi_capture_answer(c));
    f->answer = (rvi_text){name, strlen(name)};
    rv_status st = rvi_learner_given(l, c, &given, err);
    if (!st && given.len) f->given = (rvi_text){given.data, given.len};
    if (!st) st = rvi_feedback_append(&l->store, f, err);
    rvi_buf_deinit(&given);
    return st;
}

rv_status rvi_instant_tokens(const rvi_capture *c, rvi_captured **out, int *n, rv_error *err)
{
    uint64_t answer = rvi_capture_answer(c);
    *n = answer ? rvi_capture_count(c, answer) : 0;
    *out = NULL;
    if (!*n)
        return rvi_error(err, RV_E_LEARNING, "the answer is unknown, or too long ago to be judged");
    if (!(*out = rvi_alloc_array((size_t)*n, sizeof **out))) return rvi_nomem(err, "tokens");
    for (int i = 0; i < *n; i++) (*out)[i] = rvi_capture_get(c, answer, i);
    return RV_OK;
}

rv_status rvi_learner_given(const rvi_learner *l, const rvi_capture *c, rvi_buf *out, rv_error *err)
{
    uint64_t answer = rvi_capture_answer(c);
    int n = answer ? rvi_capture_count(c, answer) : 0;
    size_t before = out->len;
    int32_t *ids = rvi_alloc_array((size_t)n + 1, sizeof *ids);
    rv_status st = ids ? RV_OK : rvi_nomem(err, "answer");
    for (int i = 0; !st && i < n; i++) ids[i] = rvi_capture_get(c, answer, i).id;
    if (!st) st = rvi_base_model_decode(&l->base, ids, (size_t)n, out, err);
    if (!st && out->data) { /* its last character may be cut */
        rvi_text text = {out->data + before, out->len - before};
        out->len = before + RVI_MIN(rvi_text_invalid(text), (size_t)RVI_FEEDBACK_MAX_TEXT);
        if (text.len > RVI_FEEDBACK_MAX_TEXT) {
            text.len = out->len - before;
            out->len = before + rvi_text_invalid(text);
        }
        out->data[out->len] = 0;
    }
    rvi_free(ids);
    return st;
}

static void say(rvi_adaptation *out, rvi_micro_outcome outcome, double kl, bool first)
{
    out->applied = outcome == RVI_MICRO_STEPPED;
    if (outcome == RVI_MICRO_STEPPED)
        (void)rvi_snprintf(out->notes, sizeof out->notes, "one step, %.4f nats a token", kl);
    else
        snprintf(out->notes, sizeof out->notes, "%s",
                 outcome == RVI_MICRO_DROPPED ? "dropped: its numbers are not finite"
                 : first ? "noted; the first score changes nothing, later ones are compared with it"
                         : "noted; nothing changed: it says no more than the scores before it");
}

/* Logs the score and what it has made of the adapter, or neither. */
static rv_status log_score(rvi_learner *l, rvi_feedback *f, const rvi_capture *c, rv_error *err)
{
    rvi_instant *in = &l->instant;
    size_t n = in->n_states;
    uint64_t oldest = n ? in->states[0] : 0;
    rv_status st = rvi_store_begin(&l->store, true, err);
    if (st) return st;
    st = append_judgement(l, f, c, err);
    if (!st) st = rvi_instant_save(l, f->seq, false, err);
    st = rvi_store_end(&l->store, st, err);
    if (!st) rvi_learner_logged(l, f);
    if (!st || (in->n_states == n && (!n || in->states[0] == oldest))) return st;
    in->n_states = n; /* the list is as it was */
    if (in->states[0] != oldest) {
        memmove(in->states + 1, in->states, (n - 1) * sizeof *in->states);
        in->states[0] = oldest;
    }
    return st;
}

rv_status rvi_learner_score(rvi_learner *l, const rvi_capture *c, const char *question,
                            double score, rvi_adaptation *out, rv_error *err)
{
    rvi_instant *in = &l->instant;
    rvi_captured *tokens = NULL;
    int n;
    double kl = 0;
    *out = (rvi_adaptation){.loop = RV_LOOP_INSTANT, .quality_delta = NAN};
    if (!(score >= 0 && score <= 1))
        return rvi_error(err, RV_E_INVALID, "a score is a number from 0 to 1");
    rvi_feedback f = judgement(l, RVI_FEEDBACK_SCORE, question, score);
    rv_status st = rvi_learner_own(l, err);
    if (!st) st = rvi_instant_catch_up(l, err);
    if (!st) st = rvi_instant_tokens(c, &tokens, &n, err);
    if (!st) st = need_micro(l, err);
    if (!st && !in->n_states) st = rvi_instant_save(l, 0, true, err); /* before all of them */
    if (!st) st = rvi_history_reserve(&l->history, err);
    if (!st) {
        double start = rvi_os_thread_seconds();
        rvi_scores before = in->scores;
        int since = in->since_probe;
        double advantage = rvi_scores_take(&in->scores, score);
        rvi_micro_outcome outcome = rvi_micro_event(in->micro, tokens, n, advantage, &kl);
        out->latency_us = (rvi_os_thread_seconds() - start) * 1e6;
        out->samples_used = n;
        say(out, outcome, kl, !before.n);
        if (out->applied && !l->o.no_rollback && ++in->since_probe >= PROBE_EVERY) {
            in->since_probe = 0;
            in->probe_due = true;
        }
        st = log_score(l, &f, c, err);
        if (st) { /* as if it had not been said */
            in->scores = before;
            in->since_probe = since;
            in->probe_due = false;
            if (out->applied) (void)rvi_micro_undo(in->micro);
            *out = (rvi_adaptation){.loop = RV_LOOP_INSTANT, .quality_delta = NAN};
        } else {
            out->event = f.seq;
            rvi_history_note(&l->history, RVI_DID_SCORE, f.seq);
        }
    }
    if (!st && out->applied) {
        rvi_delta d = rvi_micro_delta(in->micro);
        st = rvi_instant_publish(l, &in->adapter, &d, err);
    }
    rvi_free(tokens);
    return st || rvi_learner_has_background(l) ? st : finish_pending(l, out, err);
}

bool rvi_instant_find_dislike(const rvi_instant *in, const char *question, size_t *at)
{
    for (size_t i = 0; i < in->n_dislikes; i++)
        if (rvi_question_same(question, in->dislikes[i].question)) {
            *at = i;
            return true;
        }
    return false;
}

/* The place of a request that had no thumb yet: a new one, or the one whose last thumb is longest
 * ago. */
static rvi_dislike *place_for(rvi_learner *l)
{
    rvi_instant *in = &l->instant;
    if (in->n_dislikes < RVI_DISLIKES)
        return rvi_list_room((void **)&in->dislikes, in->n_dislikes, &in->cap_dislikes,
                             sizeof *in->dislikes);
    rvi_dislike *oldest = in->dislikes;
    for (size_t i = 1; i < in->n_dislikes; i++)
        if (in->dislikes[i].event < oldest->event) oldest = &in->dislikes[i];
    return oldest;
}

/* Its place is another request's from now on; its thumbs can no longer be taken back. */
static void forget_dislike(rvi_learner *l, rvi_dislike *d)
{
    rvi_instant_free_prepared(l); /* some may be prepared for its list */
    replace(l, &d->adapter, NULL);
    rvi_instant_drop_list(l, d);
    rvi_edits_free(d->edits);
    rvi_free(d->question);
}

static rv_status dislike_of(rvi_learner *l, const char *question, size_t *out, rv_error *err)
{
    rvi_instant *in = &l->instant;
    if (rvi_instant_find_dislike(in, question, out)) return RV_OK;
    rvi_dislike *d = place_for(l), fresh = {.question = rvi_text_copy(rvi_text_of(question))};
    rv_status st = d && fresh.question ? rvi_learner_reserve(l, err) : rvi_nomem(err, "thumbs");
    if (!st) st = rvi_edits_new(&fresh.edits, err);
    if (st) {
        rvi_free(fresh.question);
        return st;
    }
    *out = (size_t)(d - in->dislikes);
    if (*out < in->n_dislikes)
        forget_dislike(l, d);
    else
        in->n_dislikes++;
    *d = fresh;
    return RV_OK;
}

/* How the answer began, and how much of that another may share: up to the first token that the
 * model itself had doubts about, else the one it was least sure of. */
static rv_status find_branch(const rvi_learner *l, const rvi_capture *c, rvi_buf *text,
                             size_t *branch, rv_error *err)
{
    static const float doubt = -0.6931f; /* ln 0.5 */
    const rvi_captured_id *head;
    int32_t ids[RVI_CAPTURE_HEAD];
    int n = rvi_capture_head(c, &head), at = 0;
    for (int i = 0; i < n; i++) ids[i] = head[i].id;
    for (int i = 0; i < n && head[at].log_p > doubt; i++)
        if (head[i].log_p < head[at].log_p) at = i;
    rv_status st = rvi_base_model_decode(&l->base, ids, (size_t)n, text, err);
    for (*branch = 0; !st && at > 0; at--) { /* back to where a character ends */
        rvi_buf shared = {0};
        st = rvi_base_model_decode(&l->base, ids, (size_t)at, &shared, err);
        bool fits = !st && shared.len <= text->len &&
                    (!shared.len || !memcmp(shared.data, text->data, shared.len));
        if (fits) *branch = shared.len;
        rvi_buf_deinit(&shared);
        if (fits) break;
    }
    if (!st && text->len) text->len = rvi_text_invalid((rvi_text){text->data, text->len});
    if (!st) *branch = RVI_MIN(*branch, text->len);
    return st;
}

/* The step along the gradient; what was promised does not depend on it. */
static rv_status step_down(rvi_learner *l, const rvi_capture *c, const char *question,
                           const rvi_captured *tokens, int n, rvi_adaptation *out, rv_error *err)
{
    rvi_instant *in = &l->instant;
    size_t at = 0;
    double kl = 0;
    rv_status st = dislike_of(l, question, &at, err);
    if (st) return st;
    rvi_dislike *d = &in->dislikes[at];
    d->event = out->event;
    rvi_thumbs *by = rvi_instant_prepared(l, c, d);
    if (!by) st = rvi_edits_prepare(by = in->thumbs, d->edits, tokens, n, err);
    if (st || rvi_edits_down(by, d->edits, &kl) != RVI_MICRO_STEPPED) return st;
    d->unsaved = true;
    rvi_delta delta = rvi_edits_delta(d->edits);
    return rvi_instant_publish(l, &d->adapter, &delta, err);
}

static rv_status note_refusal(rvi_learner *l, const char *question, uint64_t lesson, rvi_buf *text,
                              size_t branch, rv_error *err)
{
    char *request = rvi_text_copy(rvi_text_of(question));
    if (!request || !rvi_buf_puts(text, "")) {
        rvi_free(request);
        return rvi_nomem(err, "judgements");
    }
    rvi_refusal x = {
        .request = request, .lesson = lesson, .thumb = true, .avoid = text->data, .branch = branch};
    rv_status st = rvi_refusals_add(&l->refusals, &x, err);
    rvi_free(request);
    return st;
}

rv_status rvi_learner_thumb_down(rvi_learner *l, const rvi_capture *c, const char *question,
                                 uint64_t lesson, rvi_adaptation *out, rv_error *err)
{
    rvi_instant *in = &l->instant;
    rvi_captured *tokens = NULL;
    rvi_buf text = {0};
    int n;
    size_t branch = 0;
    double start = rvi_os_thread_seconds();
    *out = (rvi_adaptation){.loop = RV_LOOP_INSTANT, .quality_delta = NAN};
    rvi_feedback f = judgement(l, RVI_FEEDBACK_THUMB, question, 0);
    rv_status st = rvi_instant_tokens(c, &tokens, &n, err);
    if (!st && !in->thumbs && rvi_instant_load_whitener(l, NULL)) in->whole = false;
    /* what is missing the background thread makes, for later thumbs */
    bool steps = has_thumbs(l) || !rvi_learner_has_background(l);
    if (!st && steps) st = need_thumbs(l, err);
    out->forward_us = (rvi_os_thread_seconds() - start) * 1e6;
    start = rvi_os_thread_seconds();
    if (!st) st = find_branch(l, c, &text, &branch, err);
    if (!st) st = rvi_learner_own(l, err);
    f.note = (rvi_text){text.data ? text.data : "", text.len};
    f.branch = branch + 1;
    f.target = lesson;
    /* the places for it first, so that nothing fails once it is logged */
    if (!st) st = rvi_history_reserve(&l->history, err);
    if (!st) st = note_refusal(l, question, lesson, &text, branch, err);
    if (!st && (st = append_judgement(l, &f, c, err))) rvi_refusals_remove(&l->refusals, 0);
    if (!st) {
        rvi_learner_logged(l, &f);
        l->refusals.list[l->refusals.n - 1].event = out->event = f.seq;
        rvi_history_note(&l->history, RVI_DID_THUMB, f.seq);
        out->applied = 1;
        out->samples_used = n;
        snprintf(out->notes, sizeof out->notes, "not this answer again where this is asked");
        if (steps) st = step_down(l, c, question, tokens, n, out, err);
        out->latency_us = (rvi_os_thread_seconds() - start) * 1e6;
    }
    rvi_buf_deinit(&text);
    rvi_free(tokens);
    return st || rvi_learner_has_background(l) ? st : finish_pending(l, out, err);
}

/* ---- taking back ---- */

bool rvi_instant_can_undo(const rvi_learner *l, const rvi_done *d)
{
    return d->kind == RVI_DID_THUMB || rvi_instant_has_before(l, d->event);
}

/* The list of a thumb that was taken back: as before it where that is known; gone with the last
 * thumb on its question. */
static rv_status undo_step(rvi_learner *l, const char *question, uint64_t event, bool last,
                           rv_error *err)
{
    rvi_instant *in = &l->instant;
    size_t at;
    if (!rvi_instant_find_dislike(in, question, &at)) return RV_OK;
    rvi_dislike *d = &in->dislikes[at];
    rvi_edits *empty = NULL;
    if (!(d->event == event && rvi_edits_undo(d->edits))) {
        if (!last) return RV_OK;
        rv_status st = rvi_edits_new(&empty, err);
        if (st) return st;
        rvi_instant_free_prepared(l);
        rvi_edits_free(d->edits);
        d->edits = empty;
    }
    d->unsaved = true;
    rvi_delta delta = rvi_edits_delta(d->edits);
    return rvi_instant_publish(l, &d->adapter, &delta, err);
}

static rv_status undo_thumb(rvi_learner *l, const rvi_done *d, uint64_t *event, rv_error *err)
{
    rvi_feedback f = rvi_learner_event(l, RVI_FEEDBACK_UNDO);
    const rvi_refusal *known = rvi_refusals_find(&l->refusals, d->event);
    char *request = known ? rvi_text_copy(rvi_text_of(known->request)) : NULL;
    if (known && !request) return rvi_nomem(err, "question");
    f.target = d->event;
    rv_status st = rvi_learner_log(l, &f, err);
    *event = f.seq;
    if (!st && known) {
        rvi_refusals_remove(&l->refusals, d->event);
        st = undo_step(l, request, d->event, !rvi_refusals_has_thumb(&l->refusals, request), err);
    }
    rvi_free(request);
    return st;
}

static rv_status undo_score(rvi_learner *l, const rvi_done *d, uint64_t *event, rv_error *err)
{
    rvi_feedback f = rvi_learner_event(l, RVI_FEEDBACK_UNDO);
    f.target = d->event;
    rv_status st = rvi_learner_own(l, err);
    if (!st) st = rvi_instant_new_micro(l, err);
    if (!st) st = rvi_instant_go_before(l, d->event, err);
    if (!st) st = rvi_store_begin(&l->store, true, err);
    if (st) return st;
    st = rvi_feedback_append(&l->store, &f, err);
    if (!st) st = rvi_instant_save(l, f.seq, true, err);
    st = rvi_store_end(&l->store, st, err);
    if (!st) rvi_learner_logged(l, &f);
    *event = f.seq;
    if (st) { /* as it was */
        rv_status again = rvi_instant_go_before(l, UINT64_MAX, NULL);
        (void)again;
    }
    return st;
}

rv_status rvi_instant_undo(rvi_learner *l, const rvi_done *d, uint64_t *event, rv_error *err)
{
    return d->kind == RVI_DID_SCORE ? undo_score(l, d, event, err) : undo_thumb(l, d, event, err);
}
