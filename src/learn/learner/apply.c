/* The log, and the owners of what follows from it: an event is logged first, then each owner
 * applies it; opening applies the whole log again, event by event, as it was when it came. */
#include "base/os.h"
#include "learn/journal/text.h"
#include "learn/learner/learner_internal.h"

/* ---- applying events ---- */

/* Undoing does not reach it any more, nor does it say where a lesson is not asked for. */
static void let_go(rvi_learner *l, uint64_t event)
{
    rvi_history_take_out(&l->history, event);
    rvi_refusals_remove(&l->refusals, event);
}

void rvi_learner_let_go(rvi_learner *l, const rvi_feedback *f)
{
    let_go(l, f->target); /* a judgement, or a lesson as those below */
    for (size_t i = 0; i < l->lessons.n; i++)
        if (l->lessons.list[i].ended_by == f->seq) let_go(l, l->lessons.list[i].event);
}

/* Each owner looks at the events that concern it. Lessons come before generations, which claim
 * those that they were made of. What follows for adapters is left to rvi_learner_settle. */
rv_status rvi_learner_apply(rvi_learner *l, const rvi_feedback *f, rv_error *err)
{
    if (!rvi_text_is(f->user, l->user)) return RV_OK;
    rv_status st = rvi_history_apply(&l->history, f, err);
    if (!st) st = rvi_lessons_apply(&l->lessons, f, &l->base, err);
    if (!st) st = rvi_refusals_apply(&l->refusals, f, err);
    if (st) return st;
    int n_gone, n_again;
    switch (f->kind) {
    case RVI_FEEDBACK_UNDO:
        (void)rvi_generations_bring_back(&l->generations, f->target);
        rvi_learner_withdraw(l, f->seq, false, &n_gone, &n_again);
        return RV_OK;
    case RVI_FEEDBACK_FORGET:
        rvi_learner_let_go(l, f);
        rvi_learner_withdraw(l, f->seq, true, &n_gone, &n_again);
        return RV_OK;
    case RVI_FEEDBACK_PUBLISH:
    case RVI_FEEDBACK_IMPORT:
    case RVI_FEEDBACK_MERGE: return rvi_learner_apply_generation(l, f, err);
    case RVI_FEEDBACK_ROLLBACK:
        (void)rvi_generations_go_back(&l->generations, f->generation, f->seq);
        return RV_OK;
    default: return RV_OK;
    }
}

rv_status rvi_learner_reopen(rvi_learner *l, rv_error *err)
{
    rv_status st = l->dir ? rvi_os_make_private_dirs(l->dir, err) : RV_OK;
    if (!st) st = rvi_feedback_repair(&l->store, err);
    if (!st) st = rvi_learner_read_paused(l, err);
    if (!st) st = rvi_learner_read_log(l, err);
    if (!st) st = rvi_learner_settle(l, err);
    if (!st) st = rvi_calibration_reopen(l, err);
    if (!st) st = rvi_repeats_reopen(l, err);
    if (!st) st = rvi_reads_reopen(l, err);
    if (!st) st = rvi_instant_reopen_scores(l, err);
    l->any = l->judged = false;
    return st;
}
