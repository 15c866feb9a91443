/* Publishing generations and rolling back. A generation is on the disk before the log names it, and
 * the log names it before anybody uses it. */
#include <stdio.h>
#include <string.h>

#include "learn/journal/text.h"
#include "learn/learner/learner_internal.h"

const rvi_generation *rvi_learner_generation(const rvi_learner *l, int number)
{
    return rvi_generations_find(&l->generations, number);
}

int rvi_learner_next_number(const rvi_learner *l)
{
    return l->generations.last_number + 1;
}

bool rvi_learner_holds(const rvi_learner *l, const rvi_generation *g, const rvi_lesson *x)
{
    return rvi_generations_continue(&l->generations, g, x->generation);
}

bool rvi_learner_is_trained(const rvi_learner *l, const rvi_lesson *x)
{
    const rvi_generation *g = x->absorbed ? rvi_learner_generation(l, x->generation) : NULL;
    return g && x->generation &&
           rvi_generation_active(g); /* of what came after it nobody has asked */
}

rv_status rvi_learner_add_generation(rvi_learner *l, const rvi_generation *g, rv_error *err)
{
    rv_status st = rvi_generations_reserve(&l->generations, err);
    if (!st) st = rvi_learner_reserve(l, err);
    if (!st) rvi_generations_add(&l->generations, g);
    return st;
}

rv_status rvi_learner_publish(rvi_learner *l, rvi_generation *g, uint64_t *event, rv_error *err)
{
    char digest[RVI_SHA256_HEX];
    rv_status st = rvi_adapter_digest(g->adapter, digest, err);
    return st ? st : rvi_learner_publish_made(l, g, digest, NULL, event, err);
}

rv_status rvi_learner_publish_made(rvi_learner *l, rvi_generation *g, const char *digest,
                                   const char *file, uint64_t *event, rv_error *err)
{
    rvi_feedback f = rvi_learner_event(l, g->origin == RVI_FROM_FILE    ? RVI_FEEDBACK_IMPORT
                                          : g->origin == RVI_FROM_MERGE ? RVI_FEEDBACK_MERGE
                                                                        : RVI_FEEDBACK_PUBLISH);
    rv_status st = rvi_learner_own(l, err); /* before a file is written */
    if (st) return st;
    int number = rvi_learner_next_number(l);
    bool fits = g->number == number;
    g->number = number;
    f.generation = (uint64_t)g->number;
    f.first = g->first;
    f.last = g->last;
    f.seed = l->o.seed;
    f.recipe = rvi_text_of(rvi_recipe_name(g));
    f.target = g->known;
    if (l->deep && g->known) f.note = rvi_text_of(l->deep);
    f.n_parents = g->n_parents;
    for (size_t i = 0; i < g->n_parents; i++) f.parents[i] = (uint64_t)g->parents[i];
    memcpy(f.digest, digest, sizeof f.digest);
    st = file && fits ? rvi_learner_move_generation(l, file, g, err)
                      : rvi_learner_save_generation(l, g, err);
    if (!st) st = rvi_generations_reserve(&l->generations, err);
    if (!st) st = rvi_learner_reserve(l, err);
    if (!st) st = rvi_learner_log_generation(l, &f, err);
    if (st) return st;
    rvi_generations_add(&l->generations, g);
    if (event) *event = f.seq;
    return RV_OK;
}

rv_status rvi_learner_rollback(rvi_learner *l, int generation, rvi_adaptation *out, rv_error *err)
{
    *out = rvi_adaptation_new(RV_LOOP_BACKGROUND);
    rv_status st = rvi_learner_own(l, err);
    if (st) return st;
    const rvi_generation *to = generation ? rvi_learner_generation(l, generation) : NULL;
    if (generation && (!to || to->gone_by))
        return rvi_error(err, RV_E_NOT_FOUND,
                         to ? "generation %d is out of use" : "there is no generation %d",
                         generation);
    rvi_feedback f = rvi_learner_event(l, RVI_FEEDBACK_ROLLBACK);
    f.generation = (uint64_t)generation;
    st = rvi_instant_catch_up(l, err);
    if (!st) st = rvi_history_reserve(&l->history, err);
    if (!st) st = rvi_learner_log(l, &f, err);
    if (st) return st;
    rvi_history_note(&l->history, RVI_DID_ROLL_BACK, f.seq);
    int n = rvi_generations_go_back(&l->generations, f.generation, f.seq);
    if ((st = rvi_shared_restore(l, err))) return st;
    out->applied = 1;
    out->event = f.seq;
    out->generation = generation;
    snprintf(out->notes, sizeof out->notes,
             "%d generation%s out of use; what was taught is still answered from memory", n,
             n == 1 ? " is" : "s are");
    return RV_OK;
}

/* ---- what must not be known any more ---- */

rv_status rvi_learner_withdraw(rvi_learner *l, uint64_t by, int *n_gone, int *n_again,
                               rv_error *err)
{
    *n_gone = *n_again = 0;
    for (size_t i = 0; i < l->lessons.n; i++) {
        const rvi_lesson *x = &l->lessons.list[i];
        if (x->ended_by != by) continue;
        if (x->generation) *n_gone += rvi_generations_withdraw(&l->generations, x->generation, by);
    }
    if (!*n_gone) return RV_OK;
    for (size_t i = 0; i < l->lessons.n; i++) {
        rvi_lesson *x = &l->lessons.list[i];
        const rvi_generation *g = x->generation ? rvi_learner_generation(l, x->generation) : NULL;
        if (!g || g->gone_by != by || x->ended_by == by) continue;
        x->generation = 0;
        *n_again += x->in_force;
    }
    return rvi_shared_restore(l, err);
}
