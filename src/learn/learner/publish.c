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

/* ---- what a generation was made of ---- */

static bool is_of(const rvi_generation *g, const rvi_lesson *x)
{
    bool kind = g->origin == RVI_FROM_PAIRS ? rvi_lesson_prefers(x) : rvi_lesson_answers(x);
    return kind && !x->generation && x->event >= g->first && x->event <= g->last;
}

/* By the log: what waits within its range of events, and what those learned that it goes on
 * from. */
static rv_status note_learned(const rvi_learner *l, rvi_generation *g, rv_error *err)
{
    rv_status st = rvi_generations_inherit(&l->generations, g, err);
    for (size_t i = 0; !st && i < l->lessons.n; i++)
        if (is_of(g, &l->lessons.list[i]))
            st = rvi_generation_learn(g, l->lessons.list[i].event, err);
    return st;
}

/* That is its own from now on. */
static void claim(rvi_learner *l, const rvi_generation *g)
{
    if (g->lost) return;
    for (size_t i = 0; i < l->lessons.n; i++)
        if (is_of(g, &l->lessons.list[i])) l->lessons.list[i].generation = g->number;
}

int rvi_learner_wait_again(rvi_learner *l, const rvi_generation *g)
{
    int n = 0;
    for (size_t i = 0; i < l->lessons.n; i++) {
        rvi_lesson *x = &l->lessons.list[i];
        if (x->generation != g->number) continue;
        x->generation = 0;
        n += x->in_force;
    }
    return n;
}

/* ---- publishing ---- */

/* The places for it first, so that nothing can fail once it is logged. */
static rv_status reserve(rvi_learner *l, rvi_generation *g, rv_error *err)
{
    rv_status st = note_learned(l, g, err);
    if (!st) st = rvi_generations_reserve(&l->generations, err);
    return st ? st : rvi_learner_reserve(l, err);
}

rv_status rvi_learner_add_generation(rvi_learner *l, rvi_generation *g, rv_error *err)
{
    rv_status st = reserve(l, g, err);
    if (st) return st;
    rvi_generations_add(&l->generations, g);
    claim(l, g);
    return RV_OK;
}

/* An import or a merge is written otherwise than it is: its digest is only for the log. */
rv_status rvi_learner_publish(rvi_learner *l, rvi_generation *g, uint64_t *event, rv_error *err)
{
    rv_status st = rvi_adapter_digest(g->adapter, g->digest, err);
    return st ? st : rvi_learner_publish_made(l, g, NULL, NULL, event, err);
}

rv_status rvi_learner_publish_made(rvi_learner *l, rvi_generation *g, const char *file,
                                   const char *note, uint64_t *event, rv_error *err)
{
    rvi_feedback f = rvi_learner_event(l, g->origin == RVI_FROM_FILE    ? RVI_FEEDBACK_IMPORT
                                          : g->origin == RVI_FROM_MERGE ? RVI_FEEDBACK_MERGE
                                                                        : RVI_FEEDBACK_PUBLISH);
    rv_status st = rvi_learner_own(l, err); /* before a file is written */
    if (st) return st;
    int number = l->generations.last_number + 1;
    bool fits = g->number == number;
    g->number = number;
    f.generation = (uint64_t)g->number;
    f.first = g->first;
    f.last = g->last;
    f.seed = l->o.seed;
    f.recipe = rvi_text_of(rvi_recipe_name(g));
    f.target = g->known;
    f.note = rvi_text_of(note);
    f.n_parents = g->n_parents;
    for (size_t i = 0; i < g->n_parents; i++) f.parents[i] = (uint64_t)g->parents[i];
    memcpy(f.digest, g->digest, sizeof f.digest);
    if (f.kind != RVI_FEEDBACK_PUBLISH) g->digest[0] = 0;
    st = rvi_learner_save_generation(l, g, fits ? file : NULL, err);
    if (!st) st = reserve(l, g, err);
    if (!st) st = rvi_learner_log_generation(l, g, &f, err);
    if (st) return st;
    rvi_learner_lose_named(l, &f);
    rvi_generations_add(&l->generations, g);
    claim(l, g);
    if (event) *event = f.seq;
    return RV_OK;
}

rv_status rvi_learner_rollback(rvi_learner *l, int generation, rvi_adaptation *out, rv_error *err)
{
    *out = rvi_adaptation_new(RV_LOOP_BACKGROUND);
    rv_status st = rvi_learner_own(l, err);
    if (st) return st;
    const rvi_generation *to = NULL;
    if (generation) st = rvi_learner_need_adapter(l, generation, &to, err);
    if (st) return st;
    if (to && to->gone_by)
        return rvi_error(err, RV_E_NOT_FOUND, "generation %d is out of use", generation);
    rvi_feedback f = rvi_learner_event(l, RVI_FEEDBACK_ROLLBACK);
    f.generation = (uint64_t)generation;
    st = rvi_instant_catch_up(l, err);
    if (!st) st = rvi_history_reserve(&l->history, err);
    if (!st) st = rvi_learner_log(l, &f, err);
    if (st) return st;
    rvi_history_note(&l->history, &f);
    int n = rvi_generations_go_back(&l->generations, f.generation, f.seq);
    if ((st = rvi_learner_settle(l, err))) return st;
    out->applied = 1;
    out->event = f.seq;
    out->generation = generation;
    snprintf(
        out->notes, sizeof out->notes,
        "%d generation%s out of use until this is taken back; what was taught is still answered "
        "from memory",
        n, n == 1 ? " is" : "s are");
    return RV_OK;
}

/* ---- what must not be known any more ---- */

void rvi_learner_withdraw(rvi_learner *l, uint64_t by, bool erase, int *n_gone, int *n_again)
{
    rvi_generations *all = &l->generations;
    *n_gone = *n_again = 0;
    for (size_t i = 0; i < l->lessons.n; i++)
        if (l->lessons.list[i].ended_by == by)
            *n_gone += rvi_generations_withdraw(all, l->lessons.list[i].event, by, erase);
    for (size_t i = 0; *n_gone && i < all->n; i++)
        if (all->list[i].gone_by == by) *n_again += rvi_learner_wait_again(l, &all->list[i]);
}
