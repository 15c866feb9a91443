/* Generations: adapters that are published and never change. What rolling back changes is which of
 * them are active.
 *
 * A generation is on the disk before the log names it, and the log names it before anybody uses it.
 * Numbers rise by one and are never used again. */
#include <string.h>

#include "learn/learner/learner_internal.h"
#include "learn/journal/text.h"

/* ---- names ---- */

static const char *const origin_names[] = {[RVI_FROM_GROUP] = "R7",
                                           [RVI_FROM_SHARED] = "shared",
                                           [RVI_FROM_PAIRS] = "preferences",
                                           [RVI_FROM_FILE] = "import",
                                           [RVI_FROM_MERGE] = "merge"};

const char *rvi_recipe_name(const rvi_generation *g)
{
    if (g->origin == RVI_FROM_GROUP && g->recipe == RVI_RECIPE_FENCED) return "R1";
    return origin_names[g->origin];
}

void rvi_recipe_read(rvi_generation *g, rvi_text name)
{
    g->origin = RVI_FROM_GROUP;
    for (size_t i = 0; i < RVI_COUNT(origin_names); i++)
        if (rvi_text_is(name, origin_names[i])) g->origin = (rvi_origin)i;
    g->recipe = rvi_text_is(name, "R1") ? RVI_RECIPE_FENCED : RVI_RECIPE_GATED;
    g->gated = (g->origin == RVI_FROM_GROUP && g->recipe == RVI_RECIPE_GATED) ||
               g->origin == RVI_FROM_SHARED;
}

/* ---- the list ---- */

const rvi_generation *rvi_learner_generation(const rvi_learner *l, int number)
{
    for (size_t i = l->n_generations; i-- > 0;) {
        const rvi_generation *g = &l->generations[i];
        if (number ? g->number == number : rvi_generation_active(g)) return g;
    }
    return NULL;
}

rv_status rvi_learner_add_generation(rvi_learner *l, const rvi_generation *g, rv_error *err)
{
    rvi_generation *x = rvi_learner_room((void **)&l->generations, l->n_generations,
                                         &l->cap_generations, sizeof *x);
    rv_status st = x ? rvi_instant_reserve(l, err) : rvi_nomem(err, "generations");
    if (st) return st;
    *x = *g;
    l->n_generations++;
    return RV_OK;
}

int rvi_learner_next_number(const rvi_learner *l)
{
    return l->last_number + 1;
}

static bool is_parent(const rvi_generation *g, int number)
{
    for (size_t i = 0; i < g->n_parents; i++)
        if (g->parents[i] == number) return true;
    return false;
}

/* A merge takes the place of its parents, a shared adapter that of its former self. */
static bool replaces(const rvi_generation *g, const rvi_generation *older)
{
    return is_parent(g, older->number) ||
           (g->origin == RVI_FROM_SHARED && older->origin == RVI_FROM_SHARED);
}

void rvi_generations_settle(rvi_learner *l)
{
    for (size_t i = 0; i < l->n_generations; i++) {
        const rvi_generation *g = &l->generations[i];
        l->generations[i].replaced_by = 0;
        for (size_t k = 0; !g->gone && k < i; k++)
            if (replaces(g, &l->generations[k])) l->generations[k].replaced_by = g->number;
    }
}

void rvi_learner_go_back(rvi_learner *l, uint64_t to)
{
    for (size_t i = 0; i < l->n_generations; i++)
        if ((uint64_t)l->generations[i].number > to) l->generations[i].gone = true;
    rvi_generations_settle(l);
}

bool rvi_generation_active(const rvi_generation *g)
{
    return !g->gone && !g->replaced_by;
}

bool rvi_generation_holds(const rvi_learner *l, const rvi_generation *g, const rvi_lesson *x)
{
    int number = x->generation;
    while (number && number != g->number) {
        const rvi_generation *older = rvi_learner_generation(l, number);
        number = older ? older->replaced_by : 0;
    }
    return number != 0;
}

bool rvi_learner_rests(const rvi_learner *l, const rvi_lesson *x)
{
    const rvi_generation *g = x->absorbed ? rvi_learner_generation(l, x->generation) : NULL;
    return g && x->generation &&
           rvi_generation_active(g); /* of what came after it nobody has asked */
}

bool rvi_merge_gated(const rvi_learner *l, const rvi_generation *g)
{
    for (size_t i = 0; i < g->n_parents; i++) {
        const rvi_generation *parent = rvi_learner_generation(l, g->parents[i]);
        if (!parent || parent->gated) return true;
    }
    return false;
}

/* ---- publishing and rolling back ---- */

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
    if (!st) st = rvi_learner_add_generation(l, g, err);
    if (st) return st;
    if ((st = rvi_learner_log(l, &f, err))) {
        l->n_generations--;
        return st;
    }
    l->last_number = number;
    rvi_generations_settle(l);
    if (event) *event = f.seq;
    return RV_OK;
}

rv_status rvi_learner_rollback(rvi_learner *l, int generation, rvi_adaptation *out, rv_error *err)
{
    *out = rvi_adaptation_new(RV_LOOP_BACKGROUND);
    const rvi_generation *to = generation ? rvi_learner_generation(l, generation) : NULL;
    if (generation && (!to || to->gone))
        return rvi_error(err, RV_E_NOT_FOUND,
                         to ? "generation %d was rolled back" : "there is no generation %d",
                         generation);
    rvi_feedback f = rvi_learner_event(l, RVI_FEEDBACK_ROLLBACK);
    f.generation = (uint64_t)generation;
    rv_status st = rvi_learner_attend(l, err);
    if (!st) st = rvi_learner_log(l, &f, err);
    if (st) return st;
    rvi_learner_go_back(l, f.generation);
    if ((st = rvi_shared_restore(l, err))) return st;
    out->applied = 1;
    out->event = f.seq;
    out->generation = generation;
    return RV_OK;
}
