/* Consolidating: what waits goes into the weights. Lessons go round by round (round.c), one group
 * and one generation each; the deep loop also makes one generation of the preferences (deep.c).
 *
 * What was trained takes part once it is published; until then, and after a failure, all is as
 * before. */
#include <stdio.h>

#include "base/os.h"
#include "learn/learner/jobs.h"
#include "learn/learner/learner_internal.h"

/* Jobs of a kind, each about n_least or more; all: until there are none. */
static rv_status study(rvi_learner *l, const rvi_job_kind *kind, rv_preference_loss loss,
                       int n_least, bool all, rvi_study_progress_fn progress, void *ctx,
                       rvi_adaptation *out, rv_error *err)
{
    rv_status st = RV_OK;
    for (bool more = true; !st && more;) {
        rvi_job j = {.kind = kind, .loss = loss};
        st = rvi_job_carry_out(&j, l, n_least, progress, ctx, err);
        more = all && j.n >= n_least;
        if (!j.published) continue;
        out->applied = 1;
        out->samples_used += j.n;
        out->generation = j.generation;
    }
    return st;
}

/* Of those that share the store one trains. */
static rv_status take_lease(rvi_learner *l, rv_error *err)
{
    rv_status st = rvi_learner_shares(l) ? rvi_learner_own(l, err) : RV_OK; /* it can be reached */
    rvi_learner_yield(l);
    if (!st && !rvi_learner_lease(l))
        st = rvi_error(err, RV_E_BUSY,
                       "another process that shares what was taught is training it: wait until it "
                       "has ended");
    return st;
}

rv_status rvi_learner_consolidate(rvi_learner *l, rv_learn_loop loop, rv_preference_loss loss,
                                  rvi_study_progress_fn progress, void *ctx, rvi_adaptation *out,
                                  rv_error *err)
{
    double start = rvi_os_seconds();
    *out = rvi_adaptation_new(loop);
    size_t before = l->generations.n;
    rv_status st = rvi_instant_catch_up(l, err);
    if (!st) st = take_lease(l, err);
    if (!st) st = rvi_learner_calibrate(l, progress, ctx, err);
    l->deep = loop != RV_LOOP_DEEP ? NULL : loss == RV_LOSS_KTO ? "kto" : "dpo";
    if (!st) st = study(l, &rvi_job_trains, loss, 1, true, progress, ctx, out, err);
    if (!st && loop == RV_LOOP_DEEP)
        st = study(l, &rvi_job_trains_deep, loss, RVI_DEEP_LEAST, false, progress, ctx, out, err);
    l->deep = NULL;
    rvi_learner_end_lease(l);
    rvi_learner_report(l, before, out);
    out->latency_us = (rvi_os_seconds() - start) * 1e6;
    if (!st && !out->applied) snprintf(out->notes, sizeof out->notes, "nothing waits");
    return st;
}
