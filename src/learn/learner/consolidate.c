/* Consolidating: what waits goes into the weights, round by round (round.c): corrections by groups,
 * one generation each; the deep loop also makes one generation of the pairs.
 *
 * What was trained takes part once it is published; until then, and after a failure, all is as
 * before. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/number.h"
#include "base/os.h"
#include "learn/learner/jobs.h"
#include "learn/learner/learner_internal.h"

/* Jobs like this one, each about n_least or more; all: until there are none. */
static rv_status study(rvi_learner *l, rvi_job like, int n_least, bool all,
                       rvi_study_progress_fn progress, void *ctx, rvi_adaptation *out,
                       rv_error *err)
{
    rv_status st = RV_OK;
    for (bool more = true; !st && more;) {
        rvi_job j = like;
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
    bool fresh;
    if (!st && !rvi_learner_lease(l, &fresh))
        st = rvi_error(err, RV_E_BUSY,
                       "another process that shares what was taught is training it: wait until it "
                       "has ended");
    return st;
}

/* ---- what was measured ---- */

typedef struct measured {
    double before, after; /* sums over what was set aside */
    size_t n;
    int n_steps, best;
} measured;

static void add(measured *m, const rvi_study_result *r)
{
    if (!r->n_held || !isfinite(r->held_before) || !isfinite(r->held_after)) return;
    m->before += r->held_before * (double)r->n_held;
    m->after += r->held_after * (double)r->n_held;
    m->n += r->n_held;
    m->n_steps += r->n_steps;
    m->best += r->best_step;
}

static void tell(rvi_adaptation *out, const measured *m, const char *what, const char *unit)
{
    if (!m->n) return;
    double n = (double)m->n;
    size_t len = strlen(out->notes);
    (void)rvi_snprintf(out->notes + len, sizeof out->notes - len,
                       "%sloss of %zu held-out %s: %.4f before, %.4f after%s; kept step %d of %d",
                       len ? "; " : "", m->n, what, m->before / n, m->after / n, unit, m->best,
                       m->n_steps);
    if (isnan(out->quality_delta)) out->quality_delta = (m->before - m->after) / n;
}

/* By the generations from the first-th on. */
static void report(const rvi_learner *l, size_t first, rvi_adaptation *out)
{
    measured wordings = {0}, pairs = {0};
    for (size_t i = first; i < l->generations.n; i++) {
        const rvi_generation *g = &l->generations.list[i];
        add(g->origin == RVI_FROM_PAIRS ? &pairs : &wordings, &g->figures);
    }
    tell(out, &wordings, "wordings", " (nats a token)");
    tell(out, &pairs, "pairs", "");
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
    rvi_job j = {.kind = &rvi_job_trains, .deep = loop == RV_LOOP_DEEP, .loss = loss};
    if (!st) st = study(l, j, 1, true, progress, ctx, out, err);
    j.kind = &rvi_job_trains_deep;
    if (!st && j.deep) st = study(l, j, RVI_DEEP_LEAST, false, progress, ctx, out, err);
    rvi_learner_end_lease(l);
    report(l, before, out);
    out->latency_us = (rvi_os_seconds() - start) * 1e6;
    if (!st && !out->applied) snprintf(out->notes, sizeof out->notes, "nothing waits");
    return st;
}
