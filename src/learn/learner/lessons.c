/* Feedback that teaches, and that takes back: corrections, preferences, undoing, forgetting.
 *
 * Everything is logged before it has an effect; a correction that is logged stands from then on. Of
 * the corrections of one thing the newest stands; the others are kept, and stand again when what
 * ended them is taken back. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/os.h"
#include "base/utf8.h"
#include "learn/learner/learner_internal.h"
#include "learn/journal/text.h"

enum { FORGET_MAX = 1024 }; /* bytes of a text to forget */

rvi_feedback rvi_learner_event(const rvi_learner *l, rvi_feedback_kind kind)
{
    rvi_feedback f = rvi_feedback_new(kind);
    f.user = rvi_text_of(l->user);
    return f;
}

rvi_adaptation rvi_adaptation_new(rv_learn_loop loop)
{
    return (rvi_adaptation){.loop = loop, .quality_delta = NAN};
}

/* Of a long answer its beginning, in whole characters. */
static void note_answer(rvi_adaptation *out, const char *before, const char *answer)
{
    size_t len = RVI_MIN(strlen(answer), sizeof out->notes - 1 - strlen(before));
    len -= rvi_utf8_incomplete(answer, len);
    snprintf(out->notes, sizeof out->notes, "%s%.*s", before, (int)len, answer);
}

/* ---- corrections ---- */

void rvi_lesson_deinit(rvi_lesson *x)
{
    rvi_free(x->question);
    rvi_free(x->answer);
    rvi_fact_free(x->fact);
    rvi_ids_deinit(&x->spoken);
    rvi_free(x->rejected);
}

/* The answer as it was given, then the end. */
static rv_status speak(rvi_learner *l, rvi_lesson *x, rv_error *err)
{
    rv_status st = rvi_voice_encode(&l->voice, x->answer, strlen(x->answer), &x->spoken, err);
    if (!st && x->spoken.len >= RVI_MAX_SLOT)
        st =
            rvi_error(err, RV_E_TOO_LONG, "the answer has %zu tokens, but at most %d can be taught",
                      x->spoken.len, RVI_MAX_SLOT - 1);
    if (!st && !rvi_ids_push(&x->spoken, l->voice.end)) st = rvi_nomem(err, "slot");
    return st;
}

/* A copy without the white space around it. */
static char *trimmed(const char *text)
{
    size_t len = strlen(text);
    while (len && strchr(" \t\r\n", text[len - 1])) len--;
    while (len && strchr(" \t\r\n", *text)) text++, len--;
    char *p = rvi_alloc_array(len + 1, 1);
    if (p) {
        memcpy(p, text, len);
        p[len] = 0;
    }
    return p;
}

bool rvi_learner_same_words(const char *a, const char *b)
{
    bool same = false;
    return !rvi_words_same(&same, a, strlen(a), b, strlen(b), NULL) && same;
}

static void end(rvi_lesson *x, uint64_t by)
{
    x->stands = false;
    x->ended_by = by;
}

/* A lesson with a place for it, so that nothing can fail once it is logged. Where no question was
 * given, the one that the statement answers. Takes fact, also on failure. */
static rv_status prepare_lesson(rvi_learner *l, rvi_lesson *x, rvi_fact *fact, const char *question,
                                const char *answer, const char *rejected, rv_error *err)
{
    *x = (rvi_lesson){.fact = fact, .answer = trimmed(answer), .stands = true};
    x->question = trimmed(question);
    if (x->question && !*x->question) {
        rvi_free(x->question);
        x->question = rvi_learner_copy(fact->question);
    }
    rv_status st = x->question && x->answer ? speak(l, x, err) : rvi_nomem(err, "lessons");
    if (!st && rejected && !(x->rejected = rvi_learner_copy(rejected)))
        st = rvi_nomem(err, "lessons");
    if (!st && (!rvi_learner_room((void **)&l->lessons, l->n_lessons, &l->cap_lessons, sizeof *x) ||
                !rvi_learner_room((void **)&l->done, l->n_done, &l->cap_done, sizeof *l->done)))
        st = rvi_nomem(err, "lessons");
    if (st) rvi_lesson_deinit(x);
    return st;
}

static void add_prepared(rvi_learner *l, const rvi_lesson *x, uint64_t event)
{
    for (size_t i = 0; i < l->n_lessons; i++)
        if (l->lessons[i].stands && rvi_learner_same_words(l->lessons[i].question, x->question))
            end(&l->lessons[i], event);
    l->lessons[l->n_lessons] = *x;
    l->lessons[l->n_lessons++].event = event;
    l->done[l->n_done++] = (rvi_done){.kind = RVI_DID_CORRECT, .event = event};
}

rv_status rvi_learner_add_lesson(rvi_learner *l, uint64_t event, const char *question,
                                 const char *answer, const char *rejected, rv_error *err)
{
    rvi_fact *fact = NULL;
    rvi_lesson x;
    rv_status st =
        rvi_fact_read(&fact, l->parts.t, question, strlen(question), answer, strlen(answer), err);
    if (!st) st = prepare_lesson(l, &x, fact, question, answer, rejected, err);
    if (!st) add_prepared(l, &x, event);
    return st == RV_E_TOO_LONG ? RV_OK : st; /* of an earlier version: all else is still learned */
}

rv_status rvi_learner_correct(rvi_learner *l, const char *question, const char *answer,
                              const char *rejected, rvi_adaptation *out, rv_error *err)
{
    double start = rvi_os_seconds();
    rvi_fact *fact = NULL;
    rvi_lesson x;
    rvi_feedback f = rvi_learner_event(l, RVI_FEEDBACK_CORRECTION);
    f.question = rvi_text_of(question);
    f.corrected = rvi_text_of(answer);
    f.given = rvi_text_of(rejected);
    *out = rvi_adaptation_new(RV_LOOP_INSTANT);
    rv_status st =
        rvi_fact_read(&fact, l->parts.t, question, strlen(question), answer, strlen(answer), err);
    if (!st) st = rvi_feedback_check(&f, err);
    if (!st) st = rvi_learner_own(l, err);
    if (st) {
        rvi_fact_free(fact);
        return st;
    }
    st = prepare_lesson(l, &x, fact, question, answer, rejected, err);
    if (st) return st;
    if ((st = rvi_learner_log(l, &f, err))) {
        rvi_lesson_deinit(&x);
        return st;
    }
    note_answer(out, "", x.answer);
    add_prepared(l, &x, f.seq);
    double added = rvi_os_seconds();
    st = rvi_learner_recognise_anew(l, err);
    out->forward_us = (rvi_os_seconds() - added) * 1e6;
    out->applied = !st;
    out->event = f.seq;
    out->samples_used = 1;
    out->latency_us = (added - start) * 1e6;
    return st;
}

/* ---- preferences ---- */

void rvi_preference_deinit(rvi_preference *p)
{
    rvi_free(p->question);
    rvi_free(p->chosen);
    rvi_free(p->rejected);
}

rv_status rvi_learner_add_pair(rvi_learner *l, uint64_t event, const char *question,
                               const char *chosen, const char *rejected, rv_error *err)
{
    rvi_preference *p =
        rvi_learner_room((void **)&l->pairs, l->n_pairs, &l->cap_pairs, sizeof *l->pairs);
    if (!p) return rvi_nomem(err, "pairs");
    p->event = event;
    p->question = rvi_learner_copy(question);
    p->chosen = rvi_learner_copy(chosen);
    p->rejected = rvi_learner_copy(rejected);
    if (p->question && p->chosen && p->rejected) {
        l->n_pairs++;
        return RV_OK;
    }
    rvi_preference_deinit(p);
    return rvi_nomem(err, "pairs");
}

rv_status rvi_learner_prefer(rvi_learner *l, const char *question, const char *chosen,
                             const char *rejected, rvi_adaptation *out, rv_error *err)
{
    *out = rvi_adaptation_new(RV_LOOP_DEEP);
    rvi_feedback f = rvi_learner_event(l, RVI_FEEDBACK_CORRECTION);
    f.question = rvi_text_of(question);
    f.corrected = rvi_text_of(chosen);
    f.given = rvi_text_of(rejected);
    f.note = rvi_text_of("preference");
    rv_status st = rvi_learner_own(l, err);
    if (st) return st;
    /* the places for it first, so that nothing can fail once it is logged */
    if (!rvi_learner_room((void **)&l->done, l->n_done, &l->cap_done, sizeof *l->done))
        return rvi_nomem(err, "events");
    st = rvi_learner_add_pair(l, 0, question, chosen, rejected, err);
    if (st) return st;
    if ((st = rvi_learner_log(l, &f, err))) {
        rvi_preference_deinit(&l->pairs[--l->n_pairs]);
        return st;
    }
    l->pairs[l->n_pairs - 1].event = f.seq;
    l->done[l->n_done++] = (rvi_done){.kind = RVI_DID_PREFER, .event = f.seq};
    out->applied = 1;
    out->event = f.seq;
    snprintf(out->notes, sizeof out->notes, "kept for the next deep run");
    return RV_OK;
}

/* ---- corrections that were not wanted ---- */

enum { MOST_SILENCES = 1024 };

rv_status rvi_learner_silence(rvi_learner *l, const char *question, uint64_t event, rvi_text avoid,
                              size_t branch, rv_error *err)
{
    if (l->n_silences == MOST_SILENCES) (void)rvi_learner_unsilence(l, l->silences[0].event);
    rvi_silence *x = rvi_learner_room((void **)&l->silences, l->n_silences, &l->cap_silences,
                                      sizeof *l->silences);
    if (!x || !(x->question = rvi_learner_copy(question))) return rvi_nomem(err, "judgements");
    if (avoid.data && branch <= avoid.len) {
        if (!(x->avoid = rvi_alloc_array(avoid.len + 1, 1))) {
            rvi_free(x->question);
            return rvi_nomem(err, "judgements");
        }
        memcpy(x->avoid, avoid.data, avoid.len);
        x->avoid[avoid.len] = 0;
        x->branch = branch;
    }
    x->event = event;
    l->n_silences++;
    return RV_OK;
}

bool rvi_learner_unsilence(rvi_learner *l, uint64_t event)
{
    size_t i = 0;
    while (i < l->n_silences && l->silences[i].event != event) i++;
    if (i == l->n_silences) return false;
    rvi_free(l->silences[i].question);
    rvi_free(l->silences[i].avoid);
    l->n_silences--;
    memmove(l->silences + i, l->silences + i + 1, (l->n_silences - i) * sizeof *l->silences);
    return true;
}

const char *rvi_learner_silenced_by(const rvi_learner *l, uint64_t event)
{
    for (size_t i = l->n_silences; i-- > 0;)
        if (l->silences[i].event == event) return l->silences[i].question;
    return NULL;
}

size_t rvi_learner_avoids(const rvi_learner *l, const char *question, rvi_avoid *out, size_t max)
{
    size_t n = 0;
    for (size_t i = l->n_silences; i-- > 0 && n < max;) {
        const rvi_silence *x = &l->silences[i];
        if (x->avoid && rvi_learner_same_words(x->question, question))
            out[n++] = (rvi_avoid){x->avoid, strlen(x->avoid), x->branch};
    }
    return n;
}

bool rvi_learner_silenced(const rvi_learner *l, const rvi_lesson *x, const char *question)
{
    for (size_t i = l->n_silences; i-- > 0 && l->silences[i].event > x->event;)
        if (rvi_learner_same_words(l->silences[i].question, question)) return true;
    return false;
}

/* ---- taking back ---- */

rv_status rvi_learner_note(rvi_learner *l, rvi_done_kind kind, uint64_t event, rv_error *err)
{
    rvi_done *d = rvi_learner_room((void **)&l->done, l->n_done, &l->cap_done, sizeof *d);
    if (!d) return rvi_nomem(err, "events");
    *d = (rvi_done){kind, event};
    l->n_done++;
    return RV_OK;
}

void rvi_learner_unnote(rvi_learner *l, uint64_t event)
{
    size_t n = l->n_done;
    while (n && l->done[n - 1].event != event) n--;
    if (!n) return;
    memmove(l->done + n - 1, l->done + n, (l->n_done - n) * sizeof *l->done);
    l->n_done--;
}

/* A pair that no adapter was made of. */
static void take_back_pair(rvi_learner *l, uint64_t event, rvi_adaptation *out)
{
    for (size_t i = 0; i < l->n_pairs; i++) {
        if (l->pairs[i].event != event || l->pairs[i].used) continue;
        rvi_preference_deinit(&l->pairs[i]);
        memmove(l->pairs + i, l->pairs + i + 1, (l->n_pairs - i - 1) * sizeof *l->pairs);
        l->n_pairs--;
        out->applied = 1;
        snprintf(out->notes, sizeof out->notes, "the last preference is taken back");
        return;
    }
}

/* What the correction had put in the place of others makes room for them again. */
void rvi_learner_take_back(rvi_learner *l, uint64_t event, uint64_t by, rvi_adaptation *out)
{
    take_back_pair(l, event, out);
    for (size_t i = 0; i < l->n_lessons; i++) {
        rvi_lesson *x = &l->lessons[i];
        if (x->event == event && x->stands) {
            end(x, by);
            out->applied = 1;
            note_answer(out, "no longer: ", x->answer);
        } else if (x->ended_by == event) {
            x->stands = true;
            x->ended_by = 0;
        }
    }
}

/* What cannot be taken back is not logged as taken back. */
static rv_status undo_judgement(rvi_learner *l, const rvi_done *d, rvi_adaptation *out,
                                rv_error *err)
{
    rv_status st = rvi_instant_catch_up(l, err);
    if (!st && !rvi_instant_can_undo(l, d)) {
        snprintf(out->notes, sizeof out->notes,
                 "the step of that judgement can no longer be taken back");
        return RV_OK;
    }
    if (!st) st = rvi_instant_undo(l, d, &out->event, err);
    if (st) return st;
    l->n_done--;
    out->applied = 1;
    snprintf(out->notes, sizeof out->notes, "the last judgement is taken back");
    return RV_OK;
}

rv_status rvi_learner_undo(rvi_learner *l, rvi_adaptation *out, rv_error *err)
{
    *out = rvi_adaptation_new(RV_LOOP_INSTANT);
    rv_status st = rvi_learner_own(l, err);
    if (st) return st;
    if (!l->n_done) {
        snprintf(out->notes, sizeof out->notes, "there is nothing to take back");
        return RV_OK;
    }
    rvi_done d = l->done[l->n_done - 1];
    if (d.kind == RVI_DID_SCORE || d.kind == RVI_DID_THUMB) return undo_judgement(l, &d, out, err);
    rvi_feedback f = rvi_learner_event(l, RVI_FEEDBACK_UNDO);
    f.target = d.event;
    st = rvi_learner_log(l, &f, err);
    if (st) return st;
    l->n_done--;
    out->event = f.seq;
    snprintf(out->notes, sizeof out->notes, "an adapter was made of it already");
    rvi_learner_take_back(l, d.event, f.seq, out);
    return rvi_learner_recognise_anew(l, err);
}

rv_status rvi_learner_drop(rvi_learner *l, const char *text, uint64_t by, rvi_adaptation *out,
                           rv_error *err)
{
    rv_status st = RV_OK;
    for (size_t i = 0; !st && i < l->n_lessons; i++) {
        rvi_lesson *x = &l->lessons[i];
        bool in = false;
        if (!x->stands) continue;
        st = rvi_words_contain(&in, x->question, strlen(x->question), text, strlen(text), err);
        if (!st && !in)
            st = rvi_words_contain(&in, x->answer, strlen(x->answer), text, strlen(text), err);
        if (!in) continue;
        end(x, by);
        out->samples_used++;
    }
    if (!st) st = rvi_learner_drop_pairs(l, text, err);
    l->n_done = 0; /* taking back something older might bring it back */
    return st;
}

/* Lessons that the event ended and that an active adapter was trained on. */
static int count_in_weights(const rvi_learner *l, uint64_t by)
{
    int n = 0;
    for (size_t i = 0; i < l->n_lessons; i++) {
        const rvi_lesson *x = &l->lessons[i];
        bool held = false;
        for (size_t k = 0; x->ended_by == by && x->generation && k < l->n_generations; k++)
            held = held || (rvi_generation_active(&l->generations[k]) &&
                            rvi_generation_holds(l, &l->generations[k], x));
        n += held;
    }
    return n;
}

rv_status rvi_learner_forget(rvi_learner *l, const char *text, rvi_adaptation *out, rv_error *err)
{
    *out = rvi_adaptation_new(RV_LOOP_INSTANT);
    if (strlen(text) > FORGET_MAX)
        return rvi_error(err, RV_E_INVALID, "a text to forget has at most %d bytes", FORGET_MAX);
    rvi_feedback f = rvi_learner_event(l, RVI_FEEDBACK_FORGET);
    f.note = rvi_text_of(text);
    rv_status st = rvi_learner_log(l, &f, err);
    if (!st) st = rvi_learner_drop(l, text, f.seq, out, err);
    out->applied = out->samples_used > 0;
    out->event = f.seq;
    int n = st ? 0 : count_in_weights(l, f.seq);
    size_t len = (size_t)snprintf(out->notes, sizeof out->notes, "%d forgotten", out->samples_used);
    if (n)
        snprintf(out->notes + len, sizeof out->notes - len,
                 "; adapters were trained on %d of them, and know them until they are rolled back",
                 n);
    return st ? st : rvi_learner_recognise_anew(l, err);
}
