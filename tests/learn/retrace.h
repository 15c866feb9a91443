/* retrace.h - makes every generation of a log again, in a fresh learner of the same model, user and
 * options that stays in memory, and compares: every event is applied as on opening, and where a
 * generation was published it is trained from what was known when its making began. Imported and
 * merged ones are passed over. */
#ifndef RV_TESTS_LEARN_RETRACE_H
#define RV_TESTS_LEARN_RETRACE_H

#include <string.h>

#include "base/mem.h"
#include "learn/journal/text.h"
#include "learn/learner/jobs.h"
#include "learn/learner/learner_internal.h"

typedef struct retraced {
    uint64_t n_events, n_generations; /* n_generations: that came out the same */
    uint64_t different;               /* the publish event of the first that did not; 0: none */
} retraced;

typedef struct publication {
    uint64_t event, known, first, last;
    char digest[RVI_SHA256_HEX];
    bool pairs, deep;
    rv_preference_loss loss;
} publication;

typedef struct tracer {
    rvi_learner *l;
    publication *list;
    size_t n, cap, done;
    retraced *out;
    rv_status st;
    rv_error *err;
} tracer;

static int list_one(void *ctx, const rvi_feedback *f)
{
    tracer *w = ctx;
    if (f->kind != RVI_FEEDBACK_PUBLISH || !f->target || !rvi_text_is(f->user, w->l->user))
        return 0;
    publication *p = rvi_list_room((void **)&w->list, w->n, &w->cap, sizeof *p);
    if (!p) {
        w->st = rvi_nomem(w->err, "generations");
        return 1;
    }
    *p = (publication){.event = f->seq,
                       .known = f->target,
                       .first = f->first,
                       .last = f->last,
                       .pairs = rvi_text_is(f->recipe, "preferences"),
                       .deep = f->note.len > 0,
                       .loss = rvi_text_is(f->note, "kto") ? RV_LOSS_KTO : RV_LOSS_DPO};
    memcpy(p->digest, f->digest, sizeof p->digest);
    w->n++;
    return 0;
}

static rv_status make_again(tracer *w, const publication *p)
{
    rvi_learner *l = w->l;
    size_t before = l->generations.n;
    char again[RVI_SHA256_HEX] = "";
    bool made = false;
    rv_status st = rvi_learner_calibrate(l, NULL, NULL, w->err);
    l->deep = !p->deep ? NULL : p->loss == RV_LOSS_KTO ? "kto" : "dpo";
    if (!st && p->pairs) {
        rvi_job j = {.kind = &rvi_job_trains_deep, .loss = p->loss};
        st = rvi_job_carry_out(&j, l, RVI_DEEP_LEAST, NULL, NULL, w->err);
    } else if (!st) {
        rvi_round r;
        st = rvi_round_take(&r, l, w->err);
        if (!st && r.n_waiting && r.made.first == p->first && r.made.last == p->last) {
            st = rvi_round_train(&r, l, &l->base, NULL, NULL, w->err);
            if (!st) st = rvi_round_publish(&r, l, &made, w->err);
        }
        rvi_round_deinit(&r, l);
    }
    l->deep = NULL;
    if (!st && l->generations.n > before)
        st = rvi_adapter_digest(l->generations.list[before].adapter, again, w->err);
    if (st) return st;
    if (!strcmp(again, p->digest))
        w->out->n_generations++;
    else if (!w->out->different)
        w->out->different = p->event;
    return RV_OK;
}

/* Generations whose making did not know of event `next` any more. */
static rv_status make_until(tracer *w, uint64_t next)
{
    rv_status st = RV_OK;
    while (!st && !w->out->different && w->done < w->n && w->list[w->done].known < next)
        st = make_again(w, &w->list[w->done++]);
    return st;
}

static int trace_one(void *ctx, const rvi_feedback *f)
{
    tracer *w = ctx;
    w->st = make_until(w, f->seq);
    if (!w->st) w->st = rvi_learner_apply(w->l, f, w->err);
    w->out->n_events++;
    return w->st || w->out->different;
}

static rv_status retrace(rvi_learner *fresh, rvi_store *log, retraced *out, rv_error *err)
{
    tracer w = {.l = fresh, .out = out, .err = err};
    *out = (retraced){0};
    rv_status st = rvi_feedback_read(log, 1, list_one, &w, err);
    if (!st) st = w.st;
    if (!st) st = rvi_feedback_read(log, 1, trace_one, &w, err);
    if (!st) st = w.st;
    if (!st) st = make_until(&w, UINT64_MAX);
    rvi_free(w.list);
    return st;
}

#endif
