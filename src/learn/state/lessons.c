#include "learn/state/lessons.h"

#include <string.h>

#include "base/mem.h"
#include "learn/journal/text.h"
#include "learn/consolidate/words.h"
#include "learn/journal/list.h"

/* ---- questions ---- */

uint64_t rvi_question_key(const char *text)
{
    uint64_t key;
    if (rvi_words_key(&key, text, strlen(text), NULL)) return 0;
    return key ? key : 1;
}

bool rvi_question_may_be(uint64_t a, uint64_t b)
{
    return a == b || !a || !b;
}

bool rvi_question_same(const char *a, const char *b)
{
    bool same = false;
    return !rvi_words_same(&same, a, strlen(a), b, strlen(b), NULL) && same;
}

/* ---- one ---- */

void rvi_lesson_deinit(rvi_lesson *x)
{
    rvi_free(x->question);
    rvi_free(x->answer);
    rvi_free(x->rejected);
    rvi_ids_deinit(&x->spoken);
}

/* The answer as it was given, then the end. */
static rv_status speak(rvi_lesson *x, const rvi_base_model *v, rv_error *err)
{
    rv_status st = rvi_base_model_encode(v, x->answer, strlen(x->answer), &x->spoken, err);
    if (!st && x->spoken.len >= RVI_MAX_SLOT)
        st =
            rvi_error(err, RV_E_TOO_LONG, "the answer has %zu tokens, but at most %d can be taught",
                      x->spoken.len, RVI_MAX_SLOT - 1);
    if (!st && !rvi_ids_push(&x->spoken, v->end)) st = rvi_nomem(err, "slot");
    return st;
}

rv_status rvi_lesson_init(rvi_lesson *x, const rvi_base_model *v, rvi_text question,
                          rvi_text answer, rv_scope scope, rv_error *err)
{
    rvi_text asked = rvi_text_trim(question), taught = rvi_text_trim(answer);
    *x = (rvi_lesson){.in_force = true, .scope = scope};
    if (!taught.len) return rvi_error(err, RV_E_INVALID, "the corrected answer is empty");
    x->answer = rvi_text_copy(taught);
    x->question = rvi_text_copy(asked.len ? asked : taught);
    bool whole = x->question && x->answer;
    if (whole) x->key = rvi_question_key(x->question);
    rv_status st = whole ? RV_OK : rvi_nomem(err, "lessons");
    if (!st && scope != RV_SCOPE_ALWAYS) st = speak(x, v, err);
    if (st) rvi_lesson_deinit(x);
    return st;
}

rv_status rvi_lesson_init_pair(rvi_lesson *x, rvi_text question, rvi_text chosen, rvi_text rejected,
                               rv_error *err)
{
    *x = (rvi_lesson){.in_force = true,
                      .question = rvi_text_copy(question),
                      .answer = rvi_text_copy(chosen),
                      .rejected = rvi_text_copy(rejected)};
    if (x->question && x->answer && x->rejected) return RV_OK;
    rvi_lesson_deinit(x);
    return rvi_nomem(err, "lessons");
}

bool rvi_lesson_answers(const rvi_lesson *x)
{
    return x->in_force && !x->rejected && x->scope != RV_SCOPE_ALWAYS;
}

bool rvi_lesson_instructs(const rvi_lesson *x)
{
    return x->in_force && x->scope == RV_SCOPE_ALWAYS;
}

bool rvi_lesson_prefers(const rvi_lesson *x)
{
    return x->in_force && x->rejected;
}

static void end(rvi_lesson *x, uint64_t by)
{
    x->in_force = false;
    x->ended_by = by;
}

/* ---- all ---- */

rv_status rvi_lessons_reserve(rvi_lessons *l, rv_error *err)
{
    return rvi_list_room((void **)&l->list, l->n, &l->cap, sizeof *l->list)
               ? RV_OK
               : rvi_nomem(err, "lessons");
}

static bool replaces(const rvi_lesson *x, const rvi_lesson *old)
{
    return old->in_force && !x->rejected && !old->rejected &&
           rvi_lesson_answers(old) == rvi_lesson_answers(x) &&
           rvi_question_may_be(old->key, x->key) && rvi_question_same(old->question, x->question);
}

void rvi_lessons_add(rvi_lessons *l, const rvi_lesson *x, uint64_t event)
{
    for (size_t i = 0; i < l->n; i++)
        if (replaces(x, &l->list[i])) end(&l->list[i], event);
    l->list[l->n] = *x;
    l->list[l->n++].event = event;
}

const rvi_lesson *rvi_lessons_same(const rvi_lessons *l, const rvi_lesson *x)
{
    for (size_t i = 0; i < l->n; i++) {
        const rvi_lesson *old = &l->list[i];
        if (replaces(x, old) && old->scope == x->scope && !strcmp(old->answer, x->answer))
            return old;
    }
    return NULL;
}

rvi_lesson *rvi_lessons_find(const rvi_lessons *l, uint64_t event)
{
    size_t low = 0, high = l->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (l->list[middle].event < event)
            low = middle + 1;
        else
            high = middle;
    }
    return low < l->n && l->list[low].event == event ? &l->list[low] : NULL;
}

const rvi_lesson *rvi_lessons_take_back(rvi_lessons *l, uint64_t event, uint64_t by)
{
    const rvi_lesson *ended = NULL, *taken = rvi_lessons_find(l, event);
    /* where another has taken its place meanwhile, that one goes on standing */
    uint64_t later = taken && !taken->in_force ? taken->ended_by : 0;
    if (taken && taken->rejected && taken->generation) return NULL;
    for (size_t i = 0; i < l->n; i++) {
        rvi_lesson *x = &l->list[i];
        if (x->event == event) {
            if (x->in_force) ended = x;
            end(x, by);
        } else if (x->ended_by == event) {
            x->in_force = !later;
            x->ended_by = later;
        }
    }
    return ended;
}

rv_status rvi_lessons_name(rvi_lessons *l, const rvi_feedback *f, int *n, rv_error *err)
{
    rv_status st = RV_OK;
    *n = 0;
    for (size_t i = 0; !st && i < l->n; i++) {
        rvi_lesson *x = &l->list[i];
        const char *texts[] = {x->question, x->answer, x->rejected};
        bool in = x->event == f->target;
        for (size_t k = 0; !st && !in && !f->target && k < RVI_COUNT(texts) && texts[k]; k++)
            st = rvi_words_contain(&in, texts[k], strlen(texts[k]), f->note.data, f->note.len, err);
        x->named = in && !x->forgotten;
        *n += x->named;
    }
    return st;
}

void rvi_lessons_forget(rvi_lessons *l, uint64_t by)
{
    for (size_t i = 0; i < l->n; i++) {
        rvi_lesson *x = &l->list[i];
        if (!x->named) continue;
        x->named = false;
        x->forgotten = true;
        end(x, by);
    }
}

/* ---- the log ---- */

static rv_status apply_correction(rvi_lessons *l, const rvi_feedback *f, const rvi_base_model *v,
                                  rv_error *err)
{
    rvi_lesson x;
    rv_status st = rvi_lessons_reserve(l, err);
    if (!st)
        st = rvi_text_is(f->note, "preference")
                 ? rvi_lesson_init_pair(&x, f->question, f->corrected, f->given, err)
                 : rvi_lesson_init(&x, v, f->question, f->corrected, f->scope, err);
    if (!st) rvi_lessons_add(l, &x, f->seq);
    return st == RV_E_TOO_LONG ? RV_OK : st; /* of an earlier version: all else is still learned */
}

rv_status rvi_lessons_apply(rvi_lessons *l, const rvi_feedback *f, const rvi_base_model *v,
                            rv_error *err)
{
    int n;
    rv_status st;
    switch (f->kind) {
    case RVI_FEEDBACK_CORRECTION: return apply_correction(l, f, v, err);
    case RVI_FEEDBACK_UNDO: (void)rvi_lessons_take_back(l, f->target, f->seq); return RV_OK;
    case RVI_FEEDBACK_FORGET:
        st = rvi_lessons_name(l, f, &n, err);
        if (!st) rvi_lessons_forget(l, f->seq);
        return st;
    default: return RV_OK;
    }
}

void rvi_lessons_deinit(rvi_lessons *l)
{
    for (size_t i = 0; i < l->n; i++) rvi_lesson_deinit(&l->list[i]);
    rvi_free(l->list);
    *l = (rvi_lessons){0};
}
