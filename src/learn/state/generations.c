#include "learn/state/generations.h"

#include "base/mem.h"
#include "learn/journal/text.h"
#include "learn/journal/list.h"

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

bool rvi_generation_active(const rvi_generation *g)
{
    return !g->gone_by && !g->replaced_by && !g->erased && !g->lost;
}

rvi_generation *rvi_generations_find(const rvi_generations *g, int number)
{
    for (size_t i = g->n; i-- > 0;) {
        rvi_generation *x = &g->list[i];
        if (number ? x->number == number : rvi_generation_active(x)) return x;
    }
    return NULL;
}

rv_status rvi_generations_reserve(rvi_generations *g, rv_error *err)
{
    return rvi_list_room((void **)&g->list, g->n, &g->cap, sizeof *g->list)
               ? RV_OK
               : rvi_nomem(err, "generations");
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

/* Which generation replaces which. */
static void settle(rvi_generations *g)
{
    for (size_t i = 0; i < g->n; i++) {
        const rvi_generation *x = &g->list[i];
        g->list[i].replaced_by = 0;
        for (size_t k = 0; !x->gone_by && !x->lost && k < i; k++)
            if (replaces(x, &g->list[k])) g->list[k].replaced_by = x->number;
    }
}

void rvi_generations_add(rvi_generations *g, const rvi_generation *x)
{
    g->list[g->n++] = *x;
    g->last_number = RVI_MAX(g->last_number, x->number);
    settle(g);
}

/* 1: it was in use, or replaced by one that is. */
static int take_out(rvi_generation *x, uint64_t by)
{
    if (x->gone_by) return 0;
    x->gone_by = by;
    return 1;
}

int rvi_generations_go_back(rvi_generations *g, uint64_t to, uint64_t by)
{
    int n = 0;
    for (size_t i = 0; i < g->n; i++)
        if ((uint64_t)g->list[i].number > to) n += take_out(&g->list[i], by);
    settle(g);
    return n;
}

bool rvi_generation_has_learned(const rvi_generation *x, uint64_t event)
{
    size_t i = 0;
    while (i < x->n_learned && x->learned[i] != event) i++;
    return i < x->n_learned;
}

int rvi_generations_withdraw(rvi_generations *g, uint64_t learned, uint64_t by, bool erase)
{
    int n = 0;
    for (size_t i = 0; i < g->n; i++) {
        rvi_generation *x = &g->list[i];
        if (!rvi_generation_has_learned(x, learned)) continue;
        n += take_out(x, by) || (erase && !x->erased);
        if (erase) x->gone_by = by; /* nothing brings it back, so what else it held waits again */
        x->erased = x->erased || erase;
    }
    settle(g);
    return n;
}

void rvi_generations_lose(rvi_generations *g, rvi_generation *x)
{
    x->lost = true;
    settle(g);
}

void rvi_generations_name_lost(const rvi_generations *g, rvi_generation *x)
{
    x->n_parents = 0;
    for (size_t i = 0; i < g->n && x->n_parents < RVI_GENERATION_PARENTS; i++) {
        const rvi_generation *old = &g->list[i];
        bool held = old->origin != RVI_FROM_FILE && old->origin != RVI_FROM_MERGE;
        if (held && old->lost && !old->told) x->parents[x->n_parents++] = old->number;
    }
}

rv_status rvi_generation_learn(rvi_generation *x, uint64_t event, rv_error *err)
{
    if (rvi_generation_has_learned(x, event)) return RV_OK;
    uint64_t *more = rvi_realloc_array(x->learned, x->n_learned + 1, sizeof *more);
    if (!more) return rvi_nomem(err, "generations");
    x->learned = more;
    x->learned[x->n_learned++] = event;
    return RV_OK;
}

rv_status rvi_generations_inherit(const rvi_generations *g, rvi_generation *x, rv_error *err)
{
    rv_status st = RV_OK;
    for (size_t i = 0; i < g->n; i++) {
        const rvi_generation *older = &g->list[i];
        /* also one that was erased since: the log is read again */
        bool in_use = !older->gone_by && !older->replaced_by && !older->lost;
        bool merged = x->origin == RVI_FROM_MERGE && is_parent(x, older->number);
        bool goes_on = merged || (replaces(x, older) && in_use);
        for (size_t k = 0; goes_on && !st && k < older->n_learned; k++)
            st = rvi_generation_learn(x, older->learned[k], err);
    }
    return st;
}

int rvi_generations_bring_back(rvi_generations *g, uint64_t by)
{
    int n = 0;
    for (size_t i = 0; i < g->n; i++) {
        if (g->list[i].gone_by != by) continue;
        g->list[i].gone_by = 0;
        n++;
    }
    settle(g);
    return n;
}

bool rvi_generations_gate_merged(const rvi_generations *g, const rvi_generation *merged)
{
    for (size_t i = 0; i < merged->n_parents; i++) {
        const rvi_generation *parent = rvi_generations_find(g, merged->parents[i]);
        if (!parent || parent->gated) return true;
    }
    return false;
}

bool rvi_generations_of_lessons(const rvi_generations *g, const rvi_generation *x)
{
    bool yes = x->origin == RVI_FROM_GROUP || x->origin == RVI_FROM_SHARED;
    for (size_t i = 0; !yes && x->origin == RVI_FROM_MERGE && i < x->n_parents; i++) {
        const rvi_generation *parent =
            x->parents[i] ? rvi_generations_find(g, x->parents[i]) : NULL;
        yes = parent && parent->number < x->number && rvi_generations_of_lessons(g, parent);
    }
    return yes;
}
