#include "learn/learner/jobs.h"

#include "learn/learner/learner_internal.h"

/* ---- when ---- */

bool rvi_learner_group_due(const rvi_learner *l)
{
    return rvi_learner_waiting(l) >= (size_t)RVI_MAX(l->o.background_min_samples, 1);
}

/* Enough pairs, and nobody has asked anything for a while. */
bool rvi_learner_pairs_due(const rvi_learner *l, double idle, double *wait)
{
    size_t least = (size_t)RVI_MAX(l->o.deep_min_pairs, RVI_DEEP_LEAST);
    if (l->o.deep_min_pairs < 1 || rvi_learner_pairs_waiting(l) < least) return false;
    double rest = (double)l->o.deep_idle_seconds - idle;
    if (rest > 0) *wait = rest;
    return rest <= 0;
}

/* ---- lessons ---- */

static bool group_due(rvi_learner *l, double idle, double *wait)
{
    (void)idle;
    (void)wait;
    return l->calibrated && rvi_learner_group_due(l);
}

static rv_status take_round(rvi_job *j, rvi_learner *l, rv_error *err)
{
    rv_status st = rvi_round_take(&j->round, l, err);
    j->n = (int)j->round.n_waiting;
    return st;
}

static rv_status train_round(rvi_job *j, rvi_learner *l, const rvi_base_model *v,
                             rvi_study_progress_fn progress, void *ctx, rv_error *err)
{
    return rvi_round_train(&j->round, l, v, progress, ctx, err);
}

static bool round_is_current(const rvi_job *j, const rvi_learner *l)
{
    return rvi_round_is_current(&j->round, l);
}

static rv_status publish_round(rvi_job *j, rvi_learner *l, rv_error *err)
{
    rv_status st = rvi_round_publish(&j->round, l, &j->published, err);
    if (j->published) j->generation = j->round.made.number;
    return st;
}

static void drop_round(rvi_job *j, rvi_learner *l)
{
    rvi_round_deinit(&j->round, l);
}

/* ---- the table, the most urgent first ---- */

const rvi_job_kind rvi_job_trains = {"training",       group_due,     take_round, train_round,
                                     round_is_current, publish_round, drop_round};

const rvi_job_kind *rvi_job_due(rvi_learner *l, double idle, double *wait)
{
    static const rvi_job_kind *const kinds[] = {&rvi_job_calibrates, &rvi_job_trains,
                                                &rvi_job_trains_deep};
    for (size_t i = 0; i < RVI_COUNT(kinds); i++)
        if (kinds[i]->due(l, idle, wait)) return kinds[i];
    return NULL;
}

rv_status rvi_job_carry_out(rvi_job *j, rvi_learner *l, int n_least, rvi_study_progress_fn progress,
                            void *ctx, rv_error *err)
{
    rv_status st = j->kind->take(j, l, err);
    rvi_learner_yield(l);
    if (!st && j->n >= n_least) {
        st = j->kind->compute(j, l, &l->base, progress, ctx, err);
        if (!st) st = j->kind->publish(j, l, err);
    }
    j->kind->drop(j, l);
    return st;
}
