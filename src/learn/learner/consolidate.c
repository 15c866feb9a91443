/* Consolidating: what waits goes into the weights. Lessons go round by round (round.c), one group
 * and one generation each; the deep loop also makes one generation of the preferences (deep.c).
 *
 * What was trained takes part once it is published; until then, and after a failure, all is as
 * before. */
#include <stdio.h>

#include "base/os.h"
#include "learn/learner/learner_internal.h"

rvi_study_options rvi_learner_study_options(const rvi_learner *l)
{
    return (rvi_study_options){.recipe = (rvi_recipe)l->o.recipe,
                               .sources = (unsigned)l->o.sources,
                               .rank = l->o.rank,
                               .alpha = l->o.alpha,
                               .rate = l->o.learning_rate,
                               .n_steps = l->o.n_steps,
                               .beta = l->o.kl_weight,
                               .rehearsal = l->o.rehearsal,
                               .ewc = l->o.ewc_lambda,
                               .decay = l->o.fisher_decay,
                               .random = l->o.random_gradient != 0,
                               .seed = l->o.seed,
                               .deep = l->deep != NULL,
                               .dir = l->dir,
                               .model = l->digest};
}

static rv_status study_waiting(rvi_learner *l, rvi_study_progress_fn progress, void *ctx,
                               rvi_adaptation *out, rv_error *err)
{
    rv_status st = RV_OK;
    for (bool more = true; !st && more;) {
        rvi_round r;
        bool published = false;
        st = rvi_round_take(&r, l, err);
        more = !st && r.n_waiting;
        if (more) st = rvi_round_train(&r, l, &l->voice, progress, ctx, err);
        if (!st && more) st = rvi_round_publish(&r, l, &published, err);
        if (published) {
            out->applied = 1;
            out->samples_used += (int)r.n_waiting;
            out->generation = r.made.number;
        }
        rvi_round_deinit(&r, l);
    }
    return st;
}

rv_status rvi_learner_consolidate(rvi_learner *l, rv_learn_loop loop, rv_preference_loss loss,
                                  rvi_study_progress_fn progress, void *ctx, rvi_adaptation *out,
                                  rv_error *err)
{
    double start = rvi_os_seconds();
    *out = rvi_adaptation_new(loop);
    size_t before = l->generations.n;
    rv_status st = rvi_learner_attend(l, err);
    if (!st) st = rvi_learner_calibrate(l, progress, ctx, err);
    l->deep = loop != RV_LOOP_DEEP ? NULL : loss == RV_LOSS_KTO ? "kto" : "dpo";
    if (!st) st = study_waiting(l, progress, ctx, out, err);
    if (!st && loop == RV_LOOP_DEEP) st = rvi_learner_study_pairs(l, loss, progress, ctx, out, err);
    l->deep = NULL;
    rvi_learner_report(l, before, out);
    out->latency_us = (rvi_os_seconds() - start) * 1e6;
    if (!st && !out->applied) snprintf(out->notes, sizeof out->notes, "nothing waits");
    return st;
}
