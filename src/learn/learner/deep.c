/* What belongs to the deep loop alone: its pairs, how they become a generation, and what it may say
 * about itself. Texts of pairs stay until the learner is reset or freed, which does not happen
 * during a run. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/number.h"
#include "base/os.h"
#include "learn/learner/learner_internal.h"

/* pairs NULL: they are only counted. Those of events up to `until`. */
static size_t gather(const rvi_learner *l, rvi_preference_pair *pairs, uint64_t until,
                     uint64_t *first, uint64_t *last)
{
    size_t n = 0;
    *first = UINT64_MAX;
    *last = 0;
    for (size_t i = 0; i < l->preferences.n; i++) {
        const rvi_preference *p = &l->preferences.list[i];
        if (!rvi_preference_waits(p) || p->event > until) continue;
        if (pairs) pairs[n] = (rvi_preference_pair){p->question, p->chosen, p->rejected};
        n++;
        *first = RVI_MIN(*first, p->event);
        *last = RVI_MAX(*last, p->event);
    }
    return n;
}

/* ---- a run, in three parts (learner.h) ---- */

size_t rvi_learner_pairs_waiting(const rvi_learner *l)
{
    uint64_t first, last;
    return gather(l, NULL, UINT64_MAX, &first, &last);
}

rv_status rvi_deep_take(rvi_deep *d, rvi_learner *l, rv_preference_loss loss, rv_error *err)
{
    *d = (rvi_deep){0};
    rv_status st = rvi_learner_own(l, err);
    if (st) return st;
    *d = (rvi_deep){.loss = loss,
                    .pairs = rvi_alloc_array(l->preferences.n + 1, sizeof *d->pairs),
                    .made = {.number = rvi_learner_next_number(l),
                             .origin = RVI_FROM_PAIRS,
                             .recipe = (rvi_recipe)l->o.recipe}};
    if (!d->pairs) return rvi_nomem(err, "pairs");
    d->n = gather(l, d->pairs, UINT64_MAX, &d->made.first, &d->made.last);
    return rvi_feedback_count(&l->store, &d->made.known, err);
}

rv_status rvi_deep_train(rvi_deep *d, rvi_learner *l, const rvi_base_model *v,
                         rvi_study_progress_fn progress, void *ctx, rv_error *err)
{
    rvi_study_options o = rvi_learner_study_options(l);
    rvi_params *theta = NULL;
    o.deep = true;
    rv_status st = rvi_learner_need_baseline(l, v, progress, ctx, err);
    if (st) return st;
    st = rvi_study_pairs(&theta, &l->baseline, d->pairs, d->n, d->loss, &o, &d->made.figures,
                         progress, ctx, err);
    rvi_baseline_use(&l->baseline, &l->base);
    if (!st) st = rvi_adapter_copy(&d->made.adapter, theta->adapter, err);
    if (!st) st = rvi_adapter_digest(d->made.adapter, d->made.digest, err);
    if (!st) st = rvi_learner_save_early(l, v, &d->made, &d->file, err);
    rvi_params_free(theta);
    return st;
}

bool rvi_deep_is_current(const rvi_deep *d, const rvi_learner *l)
{
    uint64_t first, last;
    return gather(l, NULL, d->made.last, &first, &last) == d->n && first == d->made.first &&
           last == d->made.last;
}

rv_status rvi_deep_publish(rvi_deep *d, rvi_learner *l, bool *published, rv_error *err)
{
    const char *before = l->deep;
    *published = false;
    rv_status st = rvi_learner_own(l, err);
    if (st || !rvi_deep_is_current(d, l)) return st;
    l->deep = d->loss == RV_LOSS_KTO ? "kto" : "dpo"; /* the log says so */
    st = rvi_learner_publish_made(l, &d->made, d->file.len ? d->file.data : NULL, NULL, err);
    l->deep = before;
    if (st) return st;
    d->made = (rvi_generation){.number = d->made.number}; /* the rest is the learner's */
    *published = true;
    return RV_OK;
}

void rvi_deep_deinit(rvi_deep *d)
{
    if (d->file.len) rvi_os_remove_tree(d->file.data); /* moved into place by now, or of no use */
    rvi_buf_deinit(&d->file);
    rvi_adapter_free(d->made.adapter);
    rvi_generation_deinit(&d->made);
    rvi_free(d->pairs);
    *d = (rvi_deep){0};
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
