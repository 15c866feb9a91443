/* From a request to what takes part in its answer: the gate finds the lessons whose subject the
 * request names and the one it asks for; the lesson that is asked for speaks from its slot, and
 * generations that hold a named one take part, as do those that stand behind no gate.
 *
 * The gate is of the lessons that stand, and is made anew after every change of them. */
#include <string.h>

#include "base/mem.h"
#include "learn/learner_internal.h"

/* ---- the gate ---- */

void rvi_learner_drop_gate(rvi_learner *l)
{
    rvi_gate_free(l->gate);
    rvi_free(l->gate_facts);
    rvi_free(l->gate_lessons);
    l->gate = NULL;
    l->gate_facts = NULL;
    l->gate_lessons = NULL;
    l->n_gate = 0;
}

/* Made anew after every change of what stands; prototypes of relations that `before` (else the gate
 * as it is) has are taken over. */
rv_status rvi_learner_make_gate(rvi_learner *l, const rvi_gate *before, rv_error *err)
{
    if (!before && l->gate && rvi_gate_calibrated(l->gate)) before = l->gate;
    rvi_gate *gate = NULL;
    size_t n = 0;
    const rvi_fact **facts = rvi_alloc_array(l->n_lessons + 1, sizeof *facts);
    size_t *lessons = rvi_alloc_array(l->n_lessons + 1, sizeof *lessons);
    rv_status st = facts && lessons ? RV_OK : rvi_nomem(err, "gate");
    for (size_t i = 0; !st && i < l->n_lessons; i++) {
        if (!l->lessons[i].stands || l->lessons[i].fact->kind == RVI_FACT_FREE) continue;
        facts[n] = l->lessons[i].fact;
        lessons[n++] = i;
    }
    rvi_gate_reader reader = {.read = rvi_features_read,
                              .ctx = l->features,
                              .recall = rvi_calibration_recall,
                              .keep = rvi_calibration_remember,
                              .memory = l};
    if (l->features) reader.dim = rvi_features_dim(l->features);
    if (!st && n)
        st = rvi_gate_new(&gate, l->parts.t, facts, n, l->calibration, &reader, before, err);
    if (st) {
        rvi_free(facts);
        rvi_free(lessons);
        return st;
    }
    rvi_learner_drop_gate(l);
    l->gate = gate;
    l->gate_facts = facts;
    l->gate_lessons = lessons;
    l->n_gate = n;
    return RV_OK;
}

/* ---- a request ---- */

/* Of the lessons about the subjects that were hit: the one that is asked for, or -1. */
static rv_status pick_lesson(rvi_learner *l, const rvi_gate_hit *hit, const char *turn, int *out,
                             rv_error *err)
{
    float *features = NULL;
    rv_status st = RV_OK;
    *out = -1;
    if (rvi_gate_calibrated(l->gate)) {
        rvi_gate_text text = {turn, strlen(turn), hit->masks, hit->n_masks};
        features = rvi_alloc_array((size_t)rvi_features_dim(l->features), sizeof *features);
        if (!features) return rvi_nomem(err, "features");
        st = rvi_features_read(l->features, &text, 1, features, err);
    }
    float tau = l->o.strict_gate ? RVI_GATE_TAU_STRICT : RVI_GATE_TAU;
    if (!st) *out = rvi_gate_pick(l->gate, hit, features, tau);
    rvi_free(features);
    return st;
}

/* Which lessons are about what the request names, and which one it asks for. */
static rv_status open_gate(rvi_learner *l, const char *const *turns, size_t n_turns, bool *named,
                           rvi_plan *out, rv_error *err)
{
    rvi_gate_hit hit = {0};
    int picked = -1;
    uint64_t asked = 0; /* the correction that this very question was given */
    const char *last = turns[n_turns - 1];
    for (size_t i = 0; i < l->n_lessons; i++) {
        const rvi_lesson *x = &l->lessons[i];
        if (!x->stands || x->fact->kind != RVI_FACT_FREE ||
            !rvi_learner_same_words(last, x->fact->question))
            continue;
        named[i] = true;
        out->subject = out->lesson = x;
        asked = x->event;
    }
    if (!l->gate) return RV_OK;
    rvi_turn *given = rvi_alloc_array(n_turns, sizeof *given);
    if (!given) return rvi_nomem(err, "turns");
    for (size_t i = 0; i < n_turns; i++) given[i] = (rvi_turn){turns[i], strlen(turns[i]), true};
    rv_status st = rvi_gate_words(l->gate, given, n_turns, &hit, err);
    rvi_free(given);
    if (st || !hit.n) return st;
    for (size_t i = 0; i < l->n_gate; i++) {
        if (!rvi_gate_about(l->gate, &hit, i)) continue;
        named[l->gate_lessons[i]] = true;
        out->subject = &l->lessons[l->gate_lessons[i]];
    }
    if (!l->o.no_slots) st = pick_lesson(l, &hit, last, &picked, err);
    if (picked < 0) return st;
    const rvi_lesson *x = &l->lessons[l->gate_lessons[picked]];
    if (!asked || (picked == hit.same && x->event > asked)) out->lesson = x;
    return st;
}

/* What was brought in has no lessons that could open a gate for it. */
static bool of_lessons(const rvi_learner *l, const rvi_generation *g)
{
    bool yes = g->origin == RVI_FROM_GROUP || g->origin == RVI_FROM_SHARED;
    for (size_t i = 0; !yes && i < g->n_parents; i++) {
        const rvi_generation *parent =
            g->parents[i] ? rvi_learner_generation(l, g->parents[i]) : NULL;
        yes = parent && parent->number < g->number && of_lessons(l, parent);
    }
    return yes;
}

static bool is_gated(const rvi_learner *l, const rvi_generation *g)
{
    if (l->o.gate == RVI_GATING_OFF) return false;
    return g->gated || (l->o.gate == RVI_GATING_ON && of_lessons(l, g));
}

/* Does this generation take part where the subjects of `named` lessons stand? NULL: all do. */
static bool takes_part(const rvi_learner *l, const rvi_generation *g, const bool *named)
{
    if (!rvi_generation_active(g)) return false;
    if (!is_gated(l, g) || !named) return true;
    for (size_t i = 0; i < l->n_lessons; i++)
        if (named[i] && rvi_generation_holds(l, g, &l->lessons[i])) return true;
    return false;
}

/* The adapters for these lessons and this question; NULL and NULL: all that are active. */
static rv_status hold_adapters(rvi_learner *l, const bool *named, const char *question,
                               rvi_made_set **out, rv_error *err)
{
    const rvi_adapter *adapters[RVI_MAX_ADAPTERS], *instant[RVI_MAX_ADAPTERS];
    int n_instant = rvi_instant_adapters(l, question, instant, RVI_MAX_ADAPTERS);
    int n = 0, n_more = n_instant - RVI_MAX_ADAPTERS; /* too many: the oldest stay out */
    for (size_t i = 0; i < l->n_generations; i++)
        n_more += takes_part(l, &l->generations[i], named);
    for (size_t i = 0; i < l->n_generations; i++)
        if (takes_part(l, &l->generations[i], named) && n_more-- <= 0)
            adapters[n++] = l->generations[i].adapter;
    for (int i = 0; i < n_instant; i++) adapters[n++] = instant[i];
    return rvi_learner_hold(l, adapters, n, out, err);
}

/* A slot rests where its adapter was seen to say the same by itself: alone, asked the very question
 * that taught it, and nothing before. Of other wordings the gate knows more than the weights do. */
static bool rests(const rvi_learner *l, const rvi_plan *p, const char *const *turns, size_t n_turns)
{
    const rvi_adapter_set *set = rvi_made_set_of(p->adapters);
    return n_turns == 1 && set && set->n == 1 && rvi_learner_rests(l, p->lesson) &&
           rvi_learner_same_words(turns[0], p->lesson->fact->question);
}

rv_status rvi_learner_plan(rvi_learner *l, const char *const *turns, size_t n_turns, rvi_plan *out,
                           rv_error *err)
{
    *out = (rvi_plan){0};
    bool *named = rvi_zalloc_array(l->n_lessons + 1, sizeof *named);
    rv_status st = named ? rvi_instant_catch_up(l, err) : rvi_nomem(err, "gate");
    if (!st && n_turns) st = open_gate(l, turns, n_turns, named, out, err);
    if (!st) st = hold_adapters(l, named, n_turns ? turns[n_turns - 1] : "", &out->adapters, err);
    if (out->lesson && (l->o.no_slots || rests(l, out, turns, n_turns) ||
                        rvi_learner_silenced(l, out->lesson, turns[n_turns - 1])))
        out->lesson = NULL;
    rvi_free(named);
    return st;
}

rv_status rvi_learner_all(rvi_learner *l, rvi_made_set **out, rv_error *err)
{
    rv_status st = rvi_instant_catch_up(l, err);
    return st ? st : hold_adapters(l, NULL, NULL, out, err);
}
