/* What belongs to the deep loop alone: its pairs, how they become a generation, and what it may say
 * about itself. Texts of pairs stay until the learner is reset or freed, which does not happen
 * during a run. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/number.h"
#include "base/os.h"
#include "learn/learner/jobs.h"
#include "learn/learner/learner_internal.h"

/* pairs NULL: they are only counted. Those of events up to `until`. */
static size_t gather(const rvi_learner *l, rvi_preference_pair *pairs, uint64_t until,
                     uint64_t *first, uint64_t *last)
{
    size_t n = 0;
    *first = UINT64_MAX;
    *last = 0;
    for (size_t i = 0; i < l->lessons.n; i++) {
        const rvi_lesson *x = &l->lessons.list[i];
        if (!rvi_lesson_prefers(x) || x->generation || x->event > until) continue;
        if (pairs) pairs[n] = (rvi_preference_pair){x->question, x->answer, x->rejected};
        n++;
        *first = RVI_MIN(*first, x->event);
        *last = RVI_MAX(*last, x->event);
    }
    return n;
}

/* ---- a run (jobs.h) ---- */

size_t rvi_learner_pairs_waiting(const rvi_learner *l)
{
    uint64_t first, last;
    return gather(l, NULL, UINT64_MAX, &first, &last);
}

static rv_status take(rvi_job *j, rvi_learner *l, rv_error *err)
{
    rv_status st = rvi_learner_own(l, err);
    if (st) return st;
    rvi_generation *made = &j->made;
    *made = (rvi_generation){.number = l->generations.last_number + 1,
                             .origin = RVI_FROM_PAIRS,
                             .recipe = (rvi_recipe)l->o.recipe};
    rvi_generations_name_lost(&l->generations, made);
    j->pairs = rvi_alloc_array(l->lessons.n + 1, sizeof *j->pairs);
    if (!j->pairs) return rvi_nomem(err, "pairs");
    j->n = (int)gather(l, j->pairs, UINT64_MAX, &made->first, &made->last);
    return rvi_feedback_count(&l->store, &made->known, err);
}

static rv_status train(rvi_job *j, rvi_learner *l, const rvi_base_model *v,
                       rvi_study_progress_fn progress, void *ctx, rv_error *err)
{
    rvi_generation *made = &j->made;
    const rvi_study by = {&l->o, NULL, true, l->digest, progress, ctx};
    rvi_params *theta = NULL;
    rv_status st = rvi_learner_need_baseline(l, v, progress, ctx, err);
    if (st) return st;
    st = rvi_study_pairs(&theta, &l->baseline, j->pairs, (size_t)j->n, j->loss, &by, &made->figures,
                         err);
    rvi_baseline_use(&l->baseline, &l->base);
    if (!st) st = rvi_adapter_copy(&made->adapter, theta->adapter, err);
    if (!st) st = rvi_adapter_digest(made->adapter, made->digest, err);
    if (!st) st = rvi_learner_save_early(l, v, made, &j->file, err);
    rvi_params_free(theta);
    return st;
}

static bool is_current(const rvi_job *j, const rvi_learner *l)
{
    uint64_t first, last;
    const rvi_generation *made = &j->made;
    return gather(l, NULL, made->last, &first, &last) == (size_t)j->n && first == made->first &&
           last == made->last;
}

static rv_status publish(rvi_job *j, rvi_learner *l, rv_error *err)
{
    const char *before = l->deep, *file = j->file.len ? j->file.data : NULL;
    rv_status st = rvi_learner_own(l, err);
    if (st || !is_current(j, l)) return st;
    l->deep = j->loss == RV_LOSS_KTO ? "kto" : "dpo"; /* the log says so */
    st = rvi_learner_publish_made(l, &j->made, file, NULL, err);
    l->deep = before;
    if (st) return st;
    rvi_job_published(j);
    return RV_OK;
}

const rvi_job_kind rvi_job_trains_deep = {"training deep", take, train, is_current, publish};

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

void rvi_learner_report(const rvi_learner *l, size_t first, rvi_adaptation *out)
{
    measured wordings = {0}, pairs = {0};
    for (size_t i = first; i < l->generations.n; i++) {
        const rvi_generation *g = &l->generations.list[i];
        add(g->origin == RVI_FROM_PAIRS ? &pairs : &wordings, &g->figures);
    }
    tell(out, &wordings, "wordings", " (nats a token)");
    tell(out, &pairs, "pairs", "");
}
