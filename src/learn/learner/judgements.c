/* The instant loop of a learner: scores move a small adapter that always takes part, by gradients
 * captured while the answer was generated; nothing here runs the model, but for what is made once.
 * A thumb down is no more than its log entry: how the answer began, and from where on another must
 * differ where the same is asked (refusals.h).
 *
 * What follows from a score but need not be done in its call is attended to afterwards: the probe
 * and the snapshot. With a background thread that is done between calls, otherwise at the call's
 * end; whatever depends on it catches up first, so that it makes no difference who did it when. */
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
    rvi_instant *in = &l->instant;
    if (in->capturer) return RV_OK;
    rv_status st =
        in->next_capturer ? RV_OK : rvi_capturer_begin(&in->next_capturer, l->parts.m, err);
    if (st) return st;
    (void)rvi_capturer_go_on(in->next_capturer, l->parts.m->hp.n_vocab);
    in->capturer = in->next_capturer;
    in->next_capturer = NULL;
    return RV_OK;
}

rv_status rvi_learner_capture(rvi_learner *l, rvi_capture **out, rv_error *err)
{
    *out = NULL;
    rv_status st = need_capturer(l, err);
    return st ? st : rvi_capture_new(out, l->instant.capturer, RING, err);
}

/* Texts of the probe: prose, and from calibration on as many of the model's own. */
static int count_texts(const rvi_learner *l)
{
    size_t own = l->calibrated ? rvi_replay_count(&l->replay, RVI_PROBE) : 0;
    return (int)(RVI_MIN(rvi_n_prose, (size_t)PROBE_HALF) + RVI_MIN(own, (size_t)PROBE_HALF));
}

static rv_status find_text(const rvi_learner *l, int k, rvi_ids *ids, rv_error *err)
{
    const rvi_replay *r = &l->replay;
    int at = (int)RVI_MIN(rvi_n_prose, (size_t)PROBE_HALF);
    if (k < at) {
        const char *text = rvi_prose[k];
        rv_status st = rvi_ids_push(ids, l->base.start) ? RV_OK : rvi_nomem(err, "prose");
        return st ? st : rvi_base_model_encode(&l->base, text, strlen(text), ids, err);
    }
    size_t i = 0;
    while (r->pieces[i].kind != RVI_PROBE || at++ < k) i++;
    for (uint32_t j = 0; j < r->pieces[i].n; j++)
        if (!rvi_ids_push(ids, r->ids.data[r->pieces[i].first + j])) return rvi_nomem(err, "texts");
    return RV_OK;
}

/* What was read before calibration lacks the model's own texts until these are read, too. */
static bool has_probe(const rvi_learner *l)
{
    const rvi_instant *in = &l->instant;
    return in->probe && !rvi_probe_has_begun(in->probe) && in->n_taken >= count_texts(l);
}

static rv_status begin_text(rvi_learner *l, int n_rows, rv_error *err)
{
    rvi_instant *in = &l->instant;
    rvi_ids ids = {0};
    rv_status st = find_text(l, in->n_taken, &ids, err);
    if (!st)
        st = rvi_probe_begin(in->probe, ids.data, RVI_MIN(ids.len, (size_t)RVI_PROBE_TOKENS),
                             n_rows, err);
    if (!st) in->n_taken++;
    rvi_ids_deinit(&ids);
    return st;
}

/* So many rows more of the probe, which is not whole, of a text that has `most` at a time; fewer
 * where it ends. */
static rv_status make_probe(rvi_learner *l, int *n_rows, int most, rv_error *err)
{
    rvi_instant *in = &l->instant;
    rv_status st = RV_OK;
    if (!in->probe) {
        in->n_taken = 0;
        st = rvi_probe_new(&in->probe, in->capturer, l->parts.m, 2 * PROBE_HALF, err);
    }
    if (!st && !rvi_probe_has_begun(in->probe)) st = begin_text(l, most, err);
    if (!st) *n_rows = RVI_MIN(*n_rows, rvi_probe_left(in->probe));
    if (!st) st = rvi_probe_go_on(in->probe, *n_rows, err);
    if (st) {
        rvi_probe_free(in->probe);
        in->probe = NULL;
    }
    rvi_micro_set_probe(in->micro, in->probe);
    return st;
}

rv_status rvi_instant_new_micro(rvi_learner *l, rv_error *err)
{
    rvi_micro_options o = {.seed = l->o.seed + 1};
    return l->instant.micro ? RV_OK : rvi_micro_new(&l->instant.micro, l->parts.m, &o, err);
}

/* The probe takes forward passes, so it is made when the first check is due, or when an earlier
 * process left the adapter where events must look at it. */
static rv_status need_probe(rvi_learner *l, rv_error *err)
{
    rv_status st = need_capturer(l, err);
    while (!st && !has_probe(l)) {
        int n = RVI_PROBE_TOKENS;
        st = make_probe(l, &n, n, err);
    }
    return st;
}

/* As many rows as the time allows; false: that failed. */
static bool probe_piece(rvi_learner *l)
{
    rvi_instant *in = &l->instant;
    int n = RVI_PIECE_ROWS;
    if (in->piece_seconds > 0) n = rvi_budget_beside(&in->piece_cost, 0, n, in->piece_seconds);
    double start = rvi_os_seconds();
    if (make_probe(l, &n, RVI_PIECE_ROWS, NULL)) return false;
    rvi_budget_note(&in->piece_cost, n, 0, rvi_os_seconds() - start);
    return true;
}

bool rvi_instant_prepare(rvi_learner *l, bool captures, bool scores)
{
    rvi_instant *in = &l->instant;
    bool next = scores && in->since_probe >= PROBE_EVERY - 1; /* one will be due then */
    bool probes = in->micro && !has_probe(l) &&
                  (in->probe_due || next || (scores && rvi_micro_pulls(in->micro)));
    if ((captures || probes) && !in->capturer) {
        if (!in->next_capturer && rvi_capturer_begin(&in->next_capturer, l->parts.m, NULL))
            return false;
        if (rvi_capturer_go_on(in->next_capturer, RVI_PIECE_HEAD_ROWS)) {
            in->capturer = in->next_capturer;
            in->next_capturer = NULL;
        }
        return true;
    }
    return probes && probe_piece(l) && !has_probe(l);
}

static rv_status need_micro(rvi_learner *l, rv_error *err)
{
    rv_status st = need_capturer(l, err);
    if (!st) st = rvi_instant_new_micro(l, err);
    return !st && rvi_micro_pulls(l->instant.micro) ? need_probe(l, err) : st;
}

/* ---- adapters ---- */

rv_status rvi_learner_reserve(rvi_learner *l, rv_error *err)
{
    return rvi_adapter_sets_reserve(&l->sets, l->generations.n + 2, err);
}

static void replace(rvi_learner *l, rvi_adapter *by)
{
    rvi_adapter_sets_retire(&l->sets, l->instant.adapter);
    l->instant.adapter = by;
    rvi_adapter_sets_sweep(&l->sets);
}

rv_status rvi_instant_publish(rvi_learner *l, rv_error *err)
{
    rvi_adapter *a = NULL;
    rvi_delta d = rvi_micro_delta(l->instant.micro);
    bool moved = rvi_micro_status_of(l->instant.micro).size > 0;
    rv_status st = rvi_learner_reserve(l, err);
    if (!st && moved) st = rvi_delta_export(&a, l->parts.m, &d, err);
    if (!st) replace(l, a);
    return st;
}

void rvi_instant_deinit(rvi_learner *l)
{
    rvi_instant *in = &l->instant;
    replace(l, NULL);
    rvi_micro_free(in->micro);
    rvi_probe_free(in->probe);
    /* sessions' rings are of it */
    *in = (rvi_instant){.capturer = in->capturer, .next_capturer = in->next_capturer};
}

/* ---- events ---- */

static rv_status probe(rvi_learner *l, rvi_adaptation *out, rv_error *err)
{
    rvi_instant *in = &l->instant;
    double start = rvi_os_thread_seconds();
    rvi_probe_result r = {0, 0};
    bool follows = rvi_learner_shares(l) && !l->owned;
    rv_status made = follows ? rvi_learner_own(l, err) : RV_OK;
    /* a probe is no event: only what was saved tells whether another process has done it */
    if (!made && follows) made = rvi_instant_reopen_scores(l, err);
    if (!made && !in->probe_due) return RV_OK;
    if (!made && in->micro) made = need_probe(l, err);
    if (made) return made;
    in->probe_due = false;
    bool back = in->micro && rvi_micro_probe(in->micro, &r);
    rvi_instant_save_checked(l, back);
    if (!back) {
        if (out) out->forward_us += (rvi_os_thread_seconds() - start) * 1e6;
        return RV_OK;
    }
    rv_status st = rvi_instant_publish(l, err);
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

/* Is there a background thread? */
static bool has_background(const rvi_learner *l)
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

/* Of the last answer, as many as are still there. */
static int count_tokens(const rvi_capture *c)
{
    uint64_t answer = rvi_capture_answer(c);
    return answer ? rvi_capture_count(c, answer) : 0;
}

static rv_status unknown_answer(rv_error *err)
{
    return rvi_error(err, RV_E_LEARNING, "the answer is unknown, or too long ago to be judged");
}

static rv_status take_tokens(const rvi_capture *c, rvi_captured **out, int *n, rv_error *err)
{
    *n = count_tokens(c);
    *out = NULL;
    if (!*n) return unknown_answer(err);
    if (!(*out = rvi_alloc_array((size_t)*n, sizeof **out))) return rvi_nomem(err, "tokens");
    for (int i = 0; i < *n; i++) (*out)[i] = rvi_capture_get(c, rvi_capture_answer(c), i);
    return RV_OK;
}

rv_status rvi_learner_given(const rvi_learner *l, const rvi_capture *c, rvi_buf *out, rv_error *err)
{
    uint64_t answer = rvi_capture_answer(c);
    int n = count_tokens(c);
    size_t before = out->len;
    int32_t *ids = rvi_alloc_array((size_t)n + 1, sizeof *ids);
    rv_status st = ids ? RV_OK : rvi_nomem(err, "answer");
    for (int i = 0; !st && i < n; i++) ids[i] = rvi_capture_get(c, answer, i).id;
    if (!st) st = rvi_base_model_decode(&l->base, ids, (size_t)n, out, err);
    if (!st && out->data) { /* its last character may be cut */
        size_t len = RVI_MIN(out->len - before, (size_t)RVI_FEEDBACK_MAX_TEXT);
        out->len = before + rvi_text_invalid((rvi_text){out->data + before, len});
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
    uint64_t states[RVI_INSTANT_STATES];
    size_t n = in->n_states;
    memcpy(states, in->states, sizeof states);
    rv_status st = rvi_store_begin(&l->store, true, err);
    if (st) return st;
    st = append_judgement(l, f, c, err);
    if (!st) st = rvi_instant_save(l, f->seq, err);
    st = rvi_store_end(&l->store, st, err);
    if (!st) rvi_learner_logged(l, f);
    if (!st) return RV_OK;
    in->n_states = n; /* the list is as it was */
    memcpy(in->states, states, sizeof states);
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
    if (!st) st = take_tokens(c, &tokens, &n, err);
    if (!st) st = need_micro(l, err);
    if (!st && !in->n_states) st = rvi_instant_save(l, 0, err); /* before all of them */
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
            rvi_history_note(&l->history, &f);
        }
    }
    if (!st && out->applied) st = rvi_instant_publish(l, err);
    rvi_free(tokens);
    if (!st && in->probe_due && !has_background(l)) st = probe(l, out, err);
    return st;
}

/* The tokens' text as answers have it: bytes that are no character are U+FFFD, and one that is not
 * whole at the end is left out. */
static rv_status decode_head(const rvi_learner *l, const int32_t *ids, int n, rvi_buf *out,
                             rv_error *err)
{
    rvi_buf raw = {0};
    rv_status st = rvi_tokenizer_decode(l->base.t, ids, (size_t)n, RVI_TOK_SKIP_SPECIAL, &raw, err);
    size_t len = !st && raw.len ? raw.len - rvi_utf8_incomplete(raw.data, raw.len) : 0;
    for (size_t at = 0, used; at < len; at += used) {
        uint32_t c;
        bool valid;
        char bytes[4];
        used = rvi_utf8_decode(raw.data + at, len - at, &c, &valid);
        (void)rvi_buf_append(out, bytes, rvi_utf8_encode(c, bytes));
    }
    rvi_buf_deinit(&raw);
    return !st && out->failed ? rvi_nomem(err, "answer") : st;
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
    rv_status st = decode_head(l, ids, n, text, err);
    for (*branch = 0; !st && at > 0; at--) { /* back to where a character ends */
        rvi_buf shared = {0};
        st = decode_head(l, ids, at, &shared, err);
        bool fits = !st && shared.len <= text->len &&
                    (!shared.len || !memcmp(shared.data, text->data, shared.len));
        if (fits) *branch = shared.len;
        rvi_buf_deinit(&shared);
        if (fits) break;
    }
    return st;
}

rv_status rvi_learner_thumb_down(rvi_learner *l, const rvi_capture *c, const char *question,
                                 uint64_t lesson, rvi_adaptation *out, rv_error *err)
{
    rvi_buf text = {0};
    size_t branch = 0;
    double start = rvi_os_thread_seconds();
    *out = (rvi_adaptation){.loop = RV_LOOP_INSTANT, .quality_delta = NAN};
    rvi_feedback f = judgement(l, RVI_FEEDBACK_THUMB, question, 0);
    int n = count_tokens(c);
    rv_status st = n ? find_branch(l, c, &text, &branch, err) : unknown_answer(err);
    if (!st) st = rvi_learner_own(l, err);
    f.note = (rvi_text){text.data ? text.data : "", text.len};
    f.branch = branch + 1;
    f.target = lesson;
    /* the places for it first, so that nothing fails once it is logged */
    if (!st) st = rvi_history_reserve(&l->history, err);
    if (!st) st = rvi_refusals_add(&l->refusals, 0, lesson, f.question, f.note, f.branch, err);
    if (!st && (st = append_judgement(l, &f, c, err))) rvi_refusals_remove(&l->refusals, 0);
    if (!st) {
        rvi_learner_logged(l, &f);
        l->refusals.list[l->refusals.n - 1].event = out->event = f.seq;
        rvi_history_note(&l->history, &f);
        out->applied = 1;
        out->samples_used = n;
        snprintf(out->notes, sizeof out->notes, "not this answer again where this is asked");
        out->latency_us = (rvi_os_thread_seconds() - start) * 1e6;
    }
    rvi_buf_deinit(&text);
    return st;
}

/* ---- taking back ---- */

rv_status rvi_instant_log_back(rvi_learner *l, uint64_t score, rvi_feedback *events, size_t n,
                               rv_error *err)
{
    rvi_instant *in = &l->instant;
    uint64_t states[RVI_INSTANT_STATES];
    size_t n_states = in->n_states;
    memcpy(states, in->states, sizeof states);
    rv_status st = rvi_learner_own(l, err);
    if (!st && score) st = rvi_instant_new_micro(l, err);
    if (!st) st = rvi_store_begin(&l->store, true, err);
    if (st) return st;
    if (score) st = rvi_instant_go_before(l, score, err);
    for (size_t i = 0; !st && i < n; i++) st = rvi_feedback_append(&l->store, &events[i], err);
    if (!st && score) st = rvi_instant_drop_from(l, score, err);
    if (!st && score) st = rvi_instant_save(l, events[n - 1].seq, err);
    st = rvi_store_end(&l->store, st, err);
    if (!st) rvi_learner_logged(l, &events[n - 1]);
    if (st && score) { /* as it was */
        in->n_states = n_states;
        memcpy(in->states, states, sizeof states);
        rv_status again = rvi_instant_go_before(l, UINT64_MAX, NULL);
        (void)again;
    }
    return st;
}
