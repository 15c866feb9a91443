/* Feedback that teaches, and that takes back: corrections, preferences, undoing, forgetting.
 *
 * Everything is logged before it has an effect, and the places for it are made before it is logged:
 * what is logged counts from then on, and nothing can fail that would make it not count. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/os.h"
#include "base/utf8.h"
#include "learn/learner/learner_internal.h"
#include "learn/consolidate/words.h"
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

/* Is an instruction fit to stand before every chat, and is there room for it? */
static rv_status check_instruction(const rvi_learner *l, const rvi_feedback *f, const char *text,
                                   rv_error *err)
{
    enum { MOST = 16, BYTES = 2048 }; /* each is computed with every chat */
    size_t n = 0, len = strlen(text);
    if (!rvi_text_blank(f->question))
        return rvi_error(err, RV_E_INVALID,
                         "a lesson of scope always counts in every chat: it has no question");
    if (len > BYTES)
        return rvi_error(err, RV_E_INVALID,
                         "a lesson of scope always must be at most %d bytes (got %zu): it stands "
                         "before every chat",
                         BYTES, len);
    for (size_t i = 0; i < l->lessons.n; i++)
        n += rvi_lesson_instructs(&l->lessons.list[i]) &&
             !rvi_question_same(l->lessons.list[i].answer, text);
    return n < MOST ? RV_OK
                    : rvi_error(err, RV_E_INVALID,
                                "%d lessons of scope always are the most; forget one of them first",
                                MOST);
}

/* Is that what the user got, as far as is known? Otherwise it is taught again, and counts anew. */
static bool takes_effect(const rvi_learner *l, const rvi_lesson *x, const rvi_correction *t)
{
    rvi_text got = rvi_text_trim(rvi_text_of(t->rejected));
    if (rvi_lesson_instructs(x)) return true;
    if (rvi_refusals_since(&l->refusals, x->question, x->event)) return false;
    return t->spoken ? t->spoken == x->event : !got.len || rvi_text_is(got, x->answer);
}

/* The answer is spoken from now on where it is asked for, or stands before every chat. */
static rv_status teach(rvi_learner *l, const rvi_correction *t, rvi_feedback *f,
                       rvi_adaptation *out, rv_error *err)
{
    bool always = t->scope == RV_SCOPE_ALWAYS;
    uint64_t spoken = always ? 0 : t->spoken;
    double start = rvi_os_seconds();
    rvi_lesson x;
    rv_status st = always ? check_instruction(l, f, t->answer, err) : RV_OK;
    if (!st) st = rvi_lessons_reserve(&l->lessons, err);
    if (!st) st = rvi_lesson_init(&x, &l->base, f->question, f->corrected, t->scope, err);
    if (st) return st;
    const rvi_lesson *known = rvi_lessons_same(&l->lessons, &x);
    if (known && takes_effect(l, known, t)) {
        snprintf(out->notes, sizeof out->notes, "already known");
        rvi_lesson_deinit(&x);
        return RV_OK;
    }
    f->target = spoken;
    if (spoken)
        st = rvi_refusals_add(&l->refusals, 0, spoken, rvi_text_of(x.question), (rvi_text){0}, 0,
                              err);
    if (!st && (st = rvi_learner_log(l, f, err)) && spoken) rvi_refusals_remove(&l->refusals, 0);
    if (st) {
        rvi_lesson_deinit(&x);
        return st;
    }
    if (spoken) l->refusals.list[l->refusals.n - 1].event = f->seq;
    note_answer(out, always ? "before every chat: " : "", x.answer);
    rvi_lessons_add(&l->lessons, &x, f->seq);
    out->question = always ? NULL : x.question;
    rvi_history_note(&l->history, f);
    double added = rvi_os_seconds();
    st = rvi_learner_recognise_last(l, err);
    out->forward_us = (rvi_os_seconds() - added) * 1e6;
    out->latency_us = (added - start) * 1e6;
    return st;
}

rv_status rvi_learner_teach(rvi_learner *l, const rvi_correction *t, rvi_adaptation *out,
                            rv_error *err)
{
    rvi_feedback f = rvi_learner_event(l, RVI_FEEDBACK_CORRECTION);
    f.question = rvi_text_of(t->question);
    f.corrected = rvi_text_of(t->answer);
    f.given = rvi_text_of(t->rejected);
    f.scope = t->scope;
    *out = rvi_adaptation_new(RV_LOOP_INSTANT);
    rv_status st = rvi_feedback_check(&f, err);
    if (!st) st = rvi_learner_own(l, err);
    if (!st) st = rvi_history_reserve(&l->history, err);
    if (!st) st = teach(l, t, &f, out, err);
    if (st || !f.seq) return st;
    out->applied = 1;
    out->event = f.seq;
    out->samples_used = 1;
    return RV_OK;
}

/* ---- preferences ---- */

rv_status rvi_learner_prefer(rvi_learner *l, const char *question, const char *chosen,
                             const char *rejected, rvi_adaptation *out, rv_error *err)
{
    *out = rvi_adaptation_new(RV_LOOP_DEEP);
    if (!strcmp(chosen, rejected))
        return rvi_error(err, RV_E_INVALID,
                         "the better answer and the one it is better than are the same");
    rvi_feedback f = rvi_learner_event(l, RVI_FEEDBACK_CORRECTION);
    f.question = rvi_text_of(question);
    f.corrected = rvi_text_of(chosen);
    f.given = rvi_text_of(rejected);
    f.note = rvi_text_of("preference");
    rvi_lesson x;
    rv_status st = rvi_learner_own(l, err);
    if (!st) st = rvi_history_reserve(&l->history, err);
    if (!st) st = rvi_lessons_reserve(&l->lessons, err);
    if (!st) st = rvi_lesson_init_pair(&x, f.question, f.corrected, f.given, err);
    if (st) return st;
    if ((st = rvi_learner_log(l, &f, err))) {
        rvi_lesson_deinit(&x);
        return st;
    }
    rvi_lessons_add(&l->lessons, &x, f.seq);
    rvi_history_note(&l->history, &f);
    out->applied = 1;
    out->event = f.seq;
    snprintf(out->notes, sizeof out->notes, "kept for the next deep run");
    return RV_OK;
}

/* ---- taking back ---- */

static const char score_is_back[] = "the last score is taken back";

/* What cannot be taken back is not logged as taken back. */
static rv_status undo_score(rvi_learner *l, uint64_t event, rvi_adaptation *out, rv_error *err)
{
    rv_status st = rvi_instant_catch_up(l, err);
    bool later = false; /* a step goes on from those before it */
    for (size_t i = l->history.n; i-- > 0 && l->history.list[i].event > event;)
        later = later || l->history.list[i].kind == RVI_FEEDBACK_SCORE;
    if (!st && (later || !rvi_instant_has_before(l, event))) {
        snprintf(out->notes, sizeof out->notes, "%s",
                 later ? "another score came after it, which has to be taken back first"
                       : "the step of that judgement can no longer be taken back");
        return RV_OK;
    }
    rvi_feedback f = rvi_learner_event(l, RVI_FEEDBACK_UNDO);
    f.target = event;
    if (!st) st = rvi_instant_log_back(l, event, &f, 1, err);
    if (st) return st;
    out->event = f.seq;
    snprintf(out->notes, sizeof out->notes, "%s", score_is_back);
    rvi_history_take_out(&l->history, event);
    out->applied = 1;
    return RV_OK;
}

static rv_status undo_thumb(rvi_learner *l, uint64_t event, rvi_adaptation *out)
{
    const rvi_refusal *thumb = rvi_refusals_find(&l->refusals, event);
    if (thumb)
        note_answer(out, "the thumb down is taken back, for an answer to: ", thumb->request);
    else
        snprintf(out->notes, sizeof out->notes, "%s", score_is_back);
    rvi_refusals_remove(&l->refusals, event);
    out->applied = 1;
    return RV_OK;
}

static rv_status undo_rollback(rvi_learner *l, uint64_t event, rvi_adaptation *out, rv_error *err)
{
    int n = rvi_generations_bring_back(&l->generations, event);
    out->applied = 1;
    snprintf(out->notes, sizeof out->notes, "%d generation%s in use again", n,
             n == 1 ? " is" : "s are");
    return rvi_learner_settle(l, err);
}

/* Appends what became of weights that knew what is gone. */
static rv_status note_withdrawn(rvi_learner *l, uint64_t by, bool erase, rvi_adaptation *out,
                                rv_error *err)
{
    int n_gone, n_again;
    size_t len = strlen(out->notes), max = sizeof out->notes;
    rvi_learner_withdraw(l, by, erase, &n_gone, &n_again);
    out->applied = out->applied || n_gone > 0;          /* also of what was not in force any more */
    if (erase && out->applied) rvi_learner_drop_run(l); /* training that was stopped knew it, too */
    if (!n_gone && !(erase && l->unerased[0])) return RV_OK;
    rv_status st = rvi_learner_settle(l, err);
    if (!n_gone) return st;
    len += (size_t)snprintf(out->notes + len, max - len, "; %d adapter%s trained on that %s %s%s",
                            n_gone, n_gone == 1 ? "" : "s", n_gone == 1 ? "is" : "are",
                            !erase           ? "out of use, and kept until that is forgotten"
                            : l->unerased[0] ? "out of use, and still to be erased: "
                                             : "erased",
                            erase ? l->unerased : "");
    if (n_again && len < max)
        len += (size_t)snprintf(out->notes + len, max - len,
                                "; %d other lesson%s wait%s to be trained again without it",
                                n_again, n_again == 1 ? "" : "s", n_again == 1 ? "s" : "");
    if (erase && len < max && rvi_learner_shares(l))
        snprintf(out->notes + len, max - len,
                 "; other processes erase their copies when they next look at what was taught");
    return st;
}

static rv_status undo_lesson(rvi_learner *l, uint64_t event, rvi_adaptation *out, rv_error *err)
{
    const rvi_lesson *ended = rvi_lessons_take_back(&l->lessons, event, out->event),
                     *x = rvi_lessons_find(&l->lessons, event);
    bool pair = x && x->rejected;
    rvi_refusals_remove(&l->refusals, event);
    out->applied = ended || (x && !pair);
    if (ended && !pair)
        note_answer(out, "no longer: ", ended->answer);
    else
        snprintf(
            out->notes, sizeof out->notes, "%s",
            ended ? "the last preference is taken back"
            : x && !pair
                ? "taken back; the question was corrected since, so this did not speak any more"
                : "an adapter was made of it already");
    rv_status st = note_withdrawn(l, out->event, false, out, err),
              read = rvi_learner_recognise_anew(l, st ? NULL : err);
    return st ? st : read; /* what was taken back is silent even if an adapter cannot be read */
}

rv_status rvi_learner_undo(rvi_learner *l, bool own, rvi_adaptation *out, rv_error *err)
{
    *out = rvi_adaptation_new(RV_LOOP_INSTANT);
    rv_status st = rvi_learner_own(l, err);
    if (st) return st;
    size_t n = l->history.n;
    while (n && own && !l->history.list[n - 1].own) n--;
    if (!n) {
        snprintf(out->notes, sizeof out->notes, "%s",
                 own ? "nothing was taught here that is left to take back"
                     : "there is nothing to take back");
        return RV_OK;
    }
    rvi_done d = l->history.list[n - 1];
    if (d.kind == RVI_FEEDBACK_SCORE) return undo_score(l, d.event, out, err);
    rvi_feedback f = rvi_learner_event(l, RVI_FEEDBACK_UNDO);
    f.target = d.event;
    st = rvi_learner_log(l, &f, err);
    if (st) return st;
    rvi_history_take_out(&l->history, d.event);
    out->event = f.seq;
    if (d.kind == RVI_FEEDBACK_THUMB) return undo_thumb(l, d.event, out);
    return d.kind == RVI_FEEDBACK_ROLLBACK ? undo_rollback(l, d.event, out, err)
                                           : undo_lesson(l, d.event, out, err);
}

rv_status rvi_learner_undo_to(rvi_learner *l, uint64_t version, rvi_adaptation *out, rv_error *err)
{
    const rvi_history *h = &l->history;
    rvi_adaptation one;
    int n = 0;
    bool stuck = false;
    *out = rvi_adaptation_new(RV_LOOP_INSTANT);
    rv_status st = rvi_learner_own(l, err);
    if (!st && version > atomic_load(&l->applied))
        return rvi_error(err, RV_E_NOT_FOUND, "there is no version %llu yet: the last is %llu",
                         (unsigned long long)version, (unsigned long long)atomic_load(&l->applied));
    while (!st && !stuck && h->n && h->list[h->n - 1].event > version) {
        st = rvi_learner_undo(l, false, &one, err);
        stuck = !st && !one.event; /* nothing was logged: it stays the last one */
        if (st || stuck) continue;
        out->event = one.event;
        n++;
    }
    out->applied = n > 0;
    snprintf(out->notes, sizeof out->notes, "%d taken back%s", n,
             stuck ? "; a judgement before them can no longer be" : "");
    return st;
}

/* ---- forgetting ---- */

/* Thumbs and scores that stand and have a text in them. Only the log knows what they were about. */
typedef struct search {
    const rvi_history *h;
    size_t at;                 /* in it */
    rvi_feedback like, *found; /* events that forget them, as this one */
    size_t n, cap;
    rv_status st;
    rv_error *err;
} search;

static bool is_judgement(rvi_feedback_kind kind)
{
    return kind == RVI_FEEDBACK_SCORE || kind == RVI_FEEDBACK_THUMB;
}

static int look_at(void *ctx, const rvi_feedback *f)
{
    search *s = ctx;
    const rvi_text texts[] = {f->question, f->given, f->note}, what = s->like.note;
    bool in = false;
    while (s->at < s->h->n && s->h->list[s->at].event < f->seq) s->at++;
    if (s->at == s->h->n) return 1;
    if (s->h->list[s->at].event != f->seq || !is_judgement(f->kind)) return 0;
    for (size_t k = 0; !s->st && !in && k < RVI_COUNT(texts); k++)
        s->st = rvi_words_contain(&in, texts[k].data, texts[k].len, what.data, what.len, s->err);
    if (!in || s->st) return s->st != RV_OK;
    rvi_feedback *one = rvi_list_room((void **)&s->found, s->n, &s->cap, sizeof *one);
    if (!one) s->st = rvi_nomem(s->err, "judgements");
    if (!one) return 1;
    *one = s->like;
    one->note = (rvi_text){0};
    one->target = f->seq;
    s->n++;
    return 0;
}

/* Of the text, with room for one event more behind them. */
static rv_status find_judgements(search *s, rvi_learner *l, rv_error *err)
{
    const rvi_history *h = s->h;
    rv_status st = RV_OK;
    while (s->at < h->n && !is_judgement(h->list[s->at].kind)) s->at++;
    if (s->at < h->n) st = rvi_feedback_read(&l->store, h->list[s->at].event, look_at, s, err);
    if (!st) st = s->st;
    return st || rvi_list_room((void **)&s->found, s->n, &s->cap, sizeof *s->found)
               ? st
               : rvi_nomem(err, "judgements");
}

/* The first of the scores at the end that are all forgotten, so that their steps go with them; 0:
 * none. *n_left: other forgotten ones, whose steps the later ones were made from. */
static uint64_t first_score(const rvi_learner *l, const rvi_feedback *gone, size_t n, int *n_left)
{
    uint64_t first = 0;
    bool stays = false;
    for (size_t i = l->history.n; i-- > 0;) {
        const rvi_done *d = &l->history.list[i];
        size_t k = 0;
        if (d->kind != RVI_FEEDBACK_SCORE) continue;
        while (k < n && gone[k].target != d->event) k++;
        stays = stays || k == n || !rvi_instant_has_before(l, d->event);
        if (!stays) first = d->event;
        *n_left += stays && k < n;
    }
    return first;
}

static bool judges(const rvi_history *h, uint64_t event)
{
    for (size_t i = 0; i < h->n; i++)
        if (h->list[i].event == event) return is_judgement(h->list[i].kind);
    return false;
}

static void note_forgotten(rvi_adaptation *out, int n_lessons, int n_judgements, int n_left)
{
    size_t max = sizeof out->notes;
    int len = 0;
    if (n_lessons || !n_judgements)
        len = snprintf(out->notes, max, "%d lesson%s", n_lessons, n_lessons == 1 ? "" : "s");
    if (n_judgements)
        len += snprintf(out->notes + len, max - (size_t)len, "%s%d judgement%s",
                        n_lessons ? " and " : "", n_judgements, n_judgements == 1 ? "" : "s");
    len += snprintf(out->notes + len, max - (size_t)len, " forgotten");
    if (n_left)
        snprintf(out->notes + len, max - (size_t)len,
                 "; the step%s of %d score%s stay%s under those of later ones",
                 n_left == 1 ? "" : "s", n_left, n_left == 1 ? "" : "s", n_left == 1 ? "s" : "");
}

/* f is logged behind one event for each judgement that has its text, so that the log tells which
 * they were. What nothing has is not logged. */
static rv_status forget(rvi_learner *l, const rvi_feedback *f, search *found, rvi_adaptation *out,
                        rv_error *err)
{
    int n_lessons, n_left = 0;
    rv_status st = rvi_instant_catch_up(l, err);
    if (!st) st = rvi_lessons_name(&l->lessons, f, &n_lessons, err);
    if (!st && !f->target) st = find_judgements(found, l, err);
    if (st) return st;
    size_t n = found->n;
    bool one = f->target && judges(&l->history, f->target);
    out->samples_used = n_lessons + (int)n + one;
    note_forgotten(out, n_lessons, (int)n + one, 0);
    if (!out->samples_used) return l->unerased[0] ? rvi_learner_settle(l, err) : RV_OK;
    rvi_feedback alone = *f, *events = n ? found->found : &alone;
    events[n] = *f;
    uint64_t first = first_score(l, events, n + 1, &n_left);
    st = rvi_instant_log_back(l, first, events, n + 1, err);
    if (st) return st;
    note_forgotten(out, n_lessons, (int)n + one, n_left);
    out->applied = 1;
    out->event = events[n].seq;
    rvi_lessons_forget(&l->lessons, out->event);
    for (size_t i = 0; i <= n; i++) rvi_learner_let_go(l, &events[i]);
    st = note_withdrawn(l, out->event, true, out, err);
    rv_status read = rvi_learner_recognise_anew(l, st ? NULL : err);
    return st ? st : read;
}

rv_status rvi_learner_forget(rvi_learner *l, const char *text, uint64_t event, rvi_adaptation *out,
                             rv_error *err)
{
    *out = rvi_adaptation_new(RV_LOOP_INSTANT);
    rvi_feedback f = rvi_learner_event(l, RVI_FEEDBACK_FORGET);
    f.note = rvi_text_of(text);
    f.target = event;
    if (f.note.len > FORGET_MAX)
        return rvi_error(err, RV_E_INVALID, "a text to forget has at most %d bytes", FORGET_MAX);
    rv_status st = rvi_learner_own(l, err);
    if (!st && !text && !rvi_lessons_find(&l->lessons, event) && !judges(&l->history, event))
        st = rvi_error(err, RV_E_NOT_FOUND, "event %llu taught nothing", (unsigned long long)event);
    if (!st) st = rvi_feedback_check(&f, err);
    search found = {.h = &l->history, .like = f, .err = err};
    if (!st) st = forget(l, &f, &found, out, err);
    rvi_free(found.found);
    return st;
}
