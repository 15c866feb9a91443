/* The instant loop of a learner: scores move a small adapter that always takes part, thumbs down
 * move one that takes part in the same request alone. Both by gradients captured while the answer
 * was generated; nothing here runs the model, but for what is made once.
 *
 * What follows from a judgement but need not be done in its call is attended to afterwards: the
 * probe, the snapshot, the bank. With a background thread that is done between calls, otherwise at
 * the call's end; whatever depends on it catches up first, so that it makes no difference who did
 * it when. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/os.h"
#include "learn/learner_internal.h"
#include "learn/prose.h"

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

/* Calls add with every text that probes may be made of: prose, and from calibration on the model's
 * own. */
static rv_status each_text(rvi_learner *l, int most, rvi_piece_kind own,
                           rv_status (*add)(rvi_learner *l, const int32_t *ids, size_t n,
                                            rv_error *err),
                           rv_error *err)
{
    rv_status st = RV_OK;
    int n = 0;
    for (size_t i = 0; !st && i < rvi_n_prose && n < most; i++, n++) {
        rvi_ids ids = {0};
        if (!rvi_ids_push(&ids, l->voice.start)) st = rvi_nomem(err, "prose");
        if (!st) st = rvi_voice_encode(&l->voice, rvi_prose[i], strlen(rvi_prose[i]), &ids, err);
        if (!st) st = add(l, ids.data, RVI_MIN(ids.len, (size_t)RVI_PROBE_TOKENS), err);
        rvi_ids_deinit(&ids);
    }
    const rvi_replay *r = &l->replay;
    n = 0;
    for (size_t i = 0; !st && l->calibrated && i < r->n_pieces && n < most; i++)
        if (r->pieces[i].kind == (uint32_t)own) {
            st = add(l, r->ids.data + r->pieces[i].first,
                     RVI_MIN((size_t)r->pieces[i].n, (size_t)RVI_PROBE_TOKENS), err);
            n++;
        }
    return st;
}

static rv_status add_probe(rvi_learner *l, const int32_t *ids, size_t n, rv_error *err)
{
    return rvi_probe_add(l->instant.probe, ids, n, err);
}

rv_status rvi_instant_new_micro(rvi_learner *l, rv_error *err)
{
    rvi_micro_options o = {
        .rank = l->o.micro_rank, .seed = l->o.seed + 1, .kl_step = (double)l->o.micro_kl_step};
    return l->instant.micro ? RV_OK : rvi_micro_new(&l->instant.micro, l->parts.m, &o, err);
}

static rv_status need_micro(rvi_learner *l, rv_error *err)
{
    rvi_instant *in = &l->instant;
    rv_status st = need_capturer(l, err);
    if (!st) st = rvi_instant_new_micro(l, err);
    if (!st && !in->probe) {
        st = rvi_probe_new(&in->probe, in->capturer, l->parts.m, 2 * PROBE_HALF, err);
        if (!st) st = each_text(l, PROBE_HALF, RVI_PROBE, add_probe, err);
        if (!st) {
            rvi_micro_set_probe(in->micro, in->probe);
        } else {
            rvi_probe_free(in->probe);
            in->probe = NULL;
        }
    }
    return st;
}

/* The inputs of the last down projection over a text, as samples of what ordinary text uses. */
static rv_status add_samples(rvi_learner *l, const int32_t *ids, size_t n, rv_error *err)
{
    rvi_trainer *t = NULL;
    rvi_trainer_options o = {.max_rows = (int)n, .max_spans = 1, .max_losses = 1};
    rvi_span span = {0, (int)n, 0, -1};
    float *u = rvi_alloc_array((size_t)l->parts.m->hp.n_ff, sizeof *u);
    rv_status st = u ? rvi_trainer_new(&t, l->parts.m, l->voice.be, NULL, NULL, &o, err)
                     : rvi_nomem(err, "samples");
    if (!st) {
        rvi_trainer_begin(t, ids, &span, 1);
        rvi_trainer_forward(t, 0, l->parts.m->hp.n_layers);
        for (int i = 0; i < (int)n; i++) {
            rvi_trainer_get_act(t, i, u);
            (void)rvi_whitener_add(l->instant.whitener, u);
        }
    }
    rvi_trainer_free(t);
    rvi_free(u);
    return st;
}

/* A whitener of prose alone serves until the model's own texts are there. */
static rv_status need_thumbs(rvi_learner *l, rv_error *err)
{
    enum { MOST_TEXTS = 160 };
    rvi_instant *in = &l->instant;
    if (!in->thumbs && rvi_instant_load_whitener(l, NULL)) in->whole = false; /* it is made */
    if (in->thumbs && (in->whole || !l->calibrated || in->n_dislikes)) return RV_OK;
    rvi_instant_forsake_all(l);
    rvi_thumbs_free(in->thumbs);
    rvi_whitener_free(in->whitener);
    in->thumbs = NULL;
    in->whitener = NULL;
    rv_status st = rvi_whitener_new(&in->whitener, l->parts.m->hp.n_ff, 0, err);
    if (!st) st = each_text(l, MOST_TEXTS, RVI_GENERAL, add_samples, err);
    if (!st) st = rvi_whitener_finish(in->whitener, err);
    if (!st) st = rvi_thumbs_new(&in->thumbs, l->parts.m, in->whitener, 0, err);
    in->whole = !st && l->calibrated;
    if (!st) rvi_instant_save_whitener(l);
    return st;
}

/* ---- adapters ---- */

rv_status rvi_instant_reserve(rvi_learner *l, rv_error *err)
{
    rvi_instant *in = &l->instant;
    size_t want = in->n_retired + l->n_generations + in->n_dislikes + 2; /* one is about to come */
    if (want <= in->cap_retired) return RV_OK;
    want = RVI_MAX(want, 2 * in->cap_retired);
    void *more = rvi_realloc_array(in->retired, want, sizeof *in->retired);
    if (!more) return rvi_nomem(err, "adapters");
    in->retired = more;
    in->cap_retired = want;
    return RV_OK;
}

void rvi_instant_retire(rvi_learner *l, rvi_adapter *a)
{
    if (a) l->instant.retired[l->instant.n_retired++] = a;
}

static void replace(rvi_learner *l, rvi_adapter **at, rvi_adapter *by)
{
    rvi_instant_retire(l, *at);
    *at = by;
    rvi_learner_sweep(l);
}

rv_status rvi_instant_publish(rvi_learner *l, rvi_adapter **at, const rvi_delta *d, rv_error *err)
{
    rvi_adapter *a = NULL;
    rv_status st = rvi_instant_reserve(l, err);
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
        if (in->dislikes[i].adapter && rvi_learner_same_words(question, in->dislikes[i].question))
            out[n++] = in->dislikes[i].adapter;
    return n;
}

void rvi_instant_deinit(rvi_learner *l)
{
    rvi_instant *in = &l->instant;
    replace(l, &in->adapter, NULL);
    for (size_t i = 0; i < in->n_dislikes; i++) {
        replace(l, &in->dislikes[i].adapter, NULL);
        rvi_pairs_free(in->dislikes[i].pairs);
        rvi_free(in->dislikes[i].question);
    }
    rvi_free(in->dislikes);
    rvi_instant_forsake_all(l);
    rvi_micro_free(in->micro);
    rvi_probe_free(in->probe);
    rvi_thumbs_free(in->thumbs);
    rvi_whitener_free(in->whitener);
    *in = (rvi_instant){.capturer = in->capturer, /* sessions' rings are of it */
                        .retired = in->retired,
                        .n_retired = in->n_retired,
                        .cap_retired = in->cap_retired};
}

/* ---- events ---- */

static rv_status probe(rvi_learner *l, rv_adaptation *out, rv_error *err)
{
    rvi_instant *in = &l->instant;
    double start = rvi_os_thread_seconds();
    rvi_probe_result r;
    in->probe_due = false;
    if (!in->micro || !rvi_micro_probe(in->micro, &r)) {
        if (out) out->forward_us += (rvi_os_thread_seconds() - start) * 1e6;
        return RV_OK;
    }
    rvi_delta d = rvi_micro_delta(in->micro);
    rv_status st = rvi_instant_publish(l, &in->adapter, &d, err);
    char note[sizeof((rv_adaptation *)0)->notes];
    snprintf(note, sizeof note,
             "rolled back: the probe texts had drifted by %.4f nats, perplexity %+.1f %%", r.kl,
             100 * r.ppl);
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
    return l->instant.probe_due ? probe(l, NULL, err) : RV_OK;
}

/* out (may be NULL): of the judgement that it comes after. */
static rv_status attend(rvi_learner *l, rv_adaptation *out, rv_error *err)
{
    rv_status st = l->instant.probe_due ? probe(l, out, err) : RV_OK;
    if (!st) rvi_instant_save_due(l);
    return st ? st : rvi_learner_follow(l, err);
}

rv_status rvi_learner_attend(rvi_learner *l, rv_error *err)
{
    return attend(l, NULL, err);
}

bool rvi_learner_is_attended(const rvi_learner *l)
{
    return atomic_load(&l->doing.what) != NULL;
}

static rv_status log_judgement(rvi_learner *l, rvi_feedback_kind kind, const rvi_capture *c,
                               const char *question, double score, uint64_t *event, rv_error *err)
{
    char name[32];
    rvi_buf given = {0};
    rvi_feedback f = rvi_feedback_new(kind);
    snprintf(name, sizeof name, "answer %llu", (unsigned long long)rvi_capture_answer(c));
    f.user = (rvi_text){l->user, strlen(l->user)};
    f.answer = (rvi_text){name, strlen(name)};
    if (question) f.question = (rvi_text){question, strlen(question)};
    f.score = score;
    rv_status st = rvi_learner_given(l, c, &given, err);
    if (!st && given.len) f.given = (rvi_text){given.data, given.len};
    if (!st) st = rvi_learner_log(l, &f, err);
    *event = f.seq;
    rvi_buf_deinit(&given);
    return st;
}

rv_status rvi_instant_tokens(const rvi_capture *c, rvi_captured **out, int *n, rv_error *err)
{
    uint64_t answer = rvi_capture_answer(c);
    *n = answer ? rvi_capture_count(c, answer) : 0;
    *out = NULL;
    if (!*n)
        return rvi_error(err, RV_E_SONA, "the answer is unknown, or too long ago to be judged");
    if (!(*out = rvi_alloc_array((size_t)*n, sizeof **out))) return rvi_nomem(err, "tokens");
    for (int i = 0; i < *n; i++) (*out)[i] = rvi_capture_get(c, answer, i);
    return RV_OK;
}

static void say(rv_adaptation *out, rvi_micro_outcome outcome, double kl)
{
    out->applied = outcome == RVI_MICRO_STEPPED;
    if (outcome == RVI_MICRO_STEPPED)
        snprintf(out->notes, sizeof out->notes, "one step, %.4f nats a token", kl);
    else
        snprintf(out->notes, sizeof out->notes, "%s",
                 outcome == RVI_MICRO_DROPPED ? "dropped: its numbers are not finite"
                                              : "no step: nothing to learn from it");
}

rv_status rvi_learner_score(rvi_learner *l, const rvi_capture *c, const char *question,
                            double score, rv_adaptation *out, rv_error *err)
{
    rvi_instant *in = &l->instant;
    rvi_captured *tokens = NULL;
    int n;
    double kl = 0;
    *out = (rv_adaptation){.loop = RV_LOOP_INSTANT, .quality_delta = NAN};
    if (!(score >= 0 && score <= 1))
        return rvi_error(err, RV_E_INVALID, "a score is a number from 0 to 1");
    rv_status st = rvi_instant_catch_up(l, err);
    if (!st) st = rvi_instant_tokens(c, &tokens, &n, err);
    if (!st) st = need_micro(l, err);
    if (!st) st = log_judgement(l, RVI_FEEDBACK_SCORE, c, question, score, &out->event, err);
    if (!st) {
        double start = rvi_os_thread_seconds();
        in->scores_before = in->scores;
        double advantage = rvi_scores_take(&in->scores, score);
        rvi_micro_outcome outcome = rvi_micro_event(in->micro, tokens, n, advantage, &kl);
        rvi_delta d = rvi_micro_delta(in->micro);
        if (outcome == RVI_MICRO_STEPPED) st = rvi_instant_publish(l, &in->adapter, &d, err);
        out->latency_us = (rvi_os_thread_seconds() - start) * 1e6;
        out->samples_used = n;
        say(out, outcome, kl);
        if (!st)
            st = rvi_learner_note(l, out->applied ? RVI_DID_SCORE : RVI_DID_NOTHING, out->event, 0,
                                  err);
    }
    if (!st && out->applied && !l->o.no_rollback && ++in->since_probe >= PROBE_EVERY) {
        in->since_probe = 0;
        in->probe_due = true;
    }
    if (!st && out->applied) rvi_instant_count(l);
    rvi_free(tokens);
    return st || rvi_learner_is_attended(l) ? st : attend(l, out, err);
}

bool rvi_instant_find_dislike(const rvi_instant *in, const char *question, size_t *at)
{
    for (size_t i = 0; i < in->n_dislikes; i++)
        if (rvi_learner_same_words(question, in->dislikes[i].question)) {
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
        return rvi_learner_room((void **)&in->dislikes, in->n_dislikes, &in->cap_dislikes,
                                sizeof *in->dislikes);
    rvi_dislike *oldest = in->dislikes;
    for (size_t i = 1; i < in->n_dislikes; i++)
        if (in->dislikes[i].event < oldest->event) oldest = &in->dislikes[i];
    return oldest;
}

/* Its place is another request's from now on; its thumbs can no longer be taken back. */
static void forget_dislike(rvi_learner *l, rvi_dislike *d)
{
    rvi_instant_forsake_all(l); /* some may be prepared for its list */
    replace(l, &d->adapter, NULL);
    rvi_pairs_free(d->pairs);
    rvi_free(d->question);
    size_t at = (size_t)(d - l->instant.dislikes);
    for (size_t i = 0; i < l->n_done; i++)
        if (l->done[i].kind == RVI_DID_THUMB && l->done[i].dislike == at)
            l->done[i].kind = RVI_DID_NOTHING;
}

static rv_status dislike_of(rvi_learner *l, const char *question, size_t *out, rv_error *err)
{
    rvi_instant *in = &l->instant;
    if (rvi_instant_find_dislike(in, question, out)) return RV_OK;
    rvi_dislike *d = place_for(l), fresh = {.question = rvi_learner_copy(question)};
    rv_status st = d && fresh.question ? rvi_instant_reserve(l, err) : rvi_nomem(err, "thumbs");
    if (!st) st = rvi_pairs_new(&fresh.pairs, err);
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

rv_status rvi_learner_thumb_down(rvi_learner *l, const rvi_capture *c, const char *question,
                                 rv_adaptation *out, rv_error *err)
{
    rvi_instant *in = &l->instant;
    rvi_captured *tokens = NULL;
    int n;
    size_t at = 0;
    double kl = 0, start = rvi_os_thread_seconds();
    *out = (rv_adaptation){.loop = RV_LOOP_INSTANT, .quality_delta = NAN};
    rv_status st = rvi_instant_tokens(c, &tokens, &n, err);
    if (!st) st = need_thumbs(l, err);
    out->forward_us = (rvi_os_thread_seconds() - start) * 1e6;
    bool silenced =
        !st && question; /* the place for it first, so that nothing fails once it is logged */
    if (silenced) st = rvi_learner_silence(l, question, 0, err);
    silenced = silenced && !st;
    if (!st) st = log_judgement(l, RVI_FEEDBACK_THUMB, c, question, 0, &out->event, err);
    if (silenced && st)
        (void)rvi_learner_unsilence(l, 0);
    else if (silenced)
        l->silences[l->n_silences - 1].event = out->event;
    start = rvi_os_thread_seconds();
    if (!st) st = dislike_of(l, question, &at, err);
    if (!st) in->dislikes[at].event = out->event;
    rvi_thumbs *by = st ? NULL : rvi_instant_foreseen(l, c, &in->dislikes[at]);
    if (!st && !by) st = rvi_pairs_prepare(by = in->thumbs, in->dislikes[at].pairs, tokens, n, err);
    if (!st) {
        rvi_micro_outcome outcome = rvi_pairs_down(by, in->dislikes[at].pairs, &kl);
        rvi_delta d = rvi_pairs_delta(in->dislikes[at].pairs);
        if (outcome == RVI_MICRO_STEPPED)
            st = rvi_instant_publish(l, &in->dislikes[at].adapter, &d, err);
        out->latency_us = (rvi_os_thread_seconds() - start) * 1e6;
        out->samples_used = n;
        say(out, outcome, kl);
        if (!st)
            st = rvi_learner_note(l, out->applied ? RVI_DID_THUMB : RVI_DID_NOTHING, out->event, at,
                                  err);
    } else if (out->event) { /* logged: what it silenced can be taken back */
        rv_status noted = rvi_learner_note(l, RVI_DID_NOTHING, out->event, 0, NULL);
        (void)noted;
    }
    if (!st && out->applied) rvi_instant_count(l);
    rvi_free(tokens);
    return st || rvi_learner_is_attended(l) ? st : attend(l, out, err);
}

static bool undo(rvi_learner *l, const rvi_done *d, rv_error *err)
{
    rvi_instant *in = &l->instant;
    rvi_delta delta;
    if (d->kind == RVI_DID_SCORE) {
        if (!in->micro || !rvi_micro_undo(in->micro)) return false;
        in->scores = in->scores_before;
        delta = rvi_micro_delta(in->micro);
        return rvi_instant_publish(l, &in->adapter, &delta, err) == RV_OK;
    }
    rvi_dislike *x = &in->dislikes[d->dislike];
    if (!rvi_pairs_undo(x->pairs)) return false;
    delta = rvi_pairs_delta(x->pairs);
    return rvi_instant_publish(l, &x->adapter, &delta, err) == RV_OK;
}

bool rvi_instant_undo(rvi_learner *l, const rvi_done *d, rv_error *err)
{
    if (rvi_instant_catch_up(l, err)) return false;
    bool done = (d->kind == RVI_DID_SCORE || d->kind == RVI_DID_THUMB) && undo(l, d, err);
    if (done) rvi_instant_count(l);
    return done;
}
