/* sampler_drawn.c - picks without all the logits: by the best ones and sums over the others
 * (backend/draw.h).
 *
 * The result is that of rvi_sampler_pick, or none. Candidates that are not known have lower logits
 * than each one that is, before the temperature; after it, no higher ones. The first stage that
 * drops candidates has done its work if what stays lies above the lowest of those known: then
 * nothing that is not known would have stayed. From there on the set is the same. */
#include <math.h>

#include "decode/sampler_internal.h"

/* The first stage that drops candidates; NULL: none does. */
static const rvi_stage *first_drop(const rvi_sampler *s)
{
    for (int i = 0; i < s->n_stages; i++)
        if (s->stages[i]->run != rvi_stage_temperature) return s->stages[i];
    return NULL;
}

/* The temperature of the weights that this stage sees, or with NULL the draw. */
static float temperature_before(const rvi_sampler *s, const rvi_stage *stage)
{
    for (int i = 0; i < s->n_stages && s->stages[i] != stage; i++)
        if (s->stages[i]->run == rvi_stage_temperature) return s->o.temperature;
    return 1;
}

bool rvi_sampler_ask(const rvi_sampler *s, int ahead, rvi_draw_ask *out)
{
    *out = (rvi_draw_ask){.random = -1, .temperature = 1};
    if (s->n_bias || s->n_forced || s->reads_past) return false;
    if (!(s->o.temperature > 0)) return !s->n_stages;
    const rvi_stage *drop = first_drop(s);
    out->temperature = temperature_before(s, drop);
    if (!drop) {
        rvi_rng rng = s->rng;
        for (int i = 0; i <= ahead; i++) out->random = rvi_rng_double(&rng);
        out->wants = RVI_DRAW_WEIGHTS;
        return true;
    }
    out->wants = drop->need == RVI_NEEDS_TOTAL ? RVI_DRAW_TOP | RVI_DRAW_WEIGHTS : RVI_DRAW_TOP;
    bool is_deep = drop->need == RVI_NEEDS_BEST && s->o.top_k >= RVI_DRAW_LEAST;
    return drop->need != RVI_NEEDS_ALL && !is_deep;
}

static void take_known(rvi_sampler *s, const rvi_drawn *d)
{
    rvi_candidates *c = &s->set;
    c->logits = s->few;
    c->n = 0;
    c->dense = c->weighed = false;
    for (int i = 0; i < d->n; i++) {
        if (!(d->logits[i] > -INFINITY)) continue;
        c->ids[c->n] = d->ids[i];
        c->logits[c->n++] = d->logits[i];
    }
}

/* Runs the stages up to `drop`, which must not keep the lowest of those known. */
static bool drop_first(rvi_sampler *s, const rvi_stage *drop, const rvi_drawn *d, int *next)
{
    rvi_candidates *c = &s->set;
    while (s->stages[*next] != drop) s->stages[(*next)++]->run(s);
    (*next)++;
    if (drop->need == RVI_NEEDS_TOTAL)
        return d->possible &&
               rvi_candidates_keep_nucleus_of(c, (double)s->o.top_p, d->weights, s->n_vocab);
    float lowest = rvi_min(c->logits, c->n);
    drop->run(s);
    return rvi_min(c->logits, c->n) > lowest;
}

bool rvi_sampler_pick_drawn(rvi_sampler *s, const rvi_drawn *d, int32_t *out)
{
    rvi_draw_ask ask;
    if (!rvi_sampler_ask(s, 0, &ask) || d->best < 0) return false;
    if (!(s->o.temperature > 0)) {
        *out = d->best;
        return true;
    }
    const rvi_stage *drop = first_drop(s);
    if (!drop) {
        if (d->drawn < 0) return false;
        (void)rvi_rng_double(&s->rng);
        *out = d->drawn;
        return true;
    }
    int next = 0;
    if (d->n < 1) return false;
    take_known(s, d);
    if (d->n < s->n_vocab && !drop_first(s, drop, d, &next)) return false;
    while (next < s->n_stages) s->stages[next++]->run(s);
    *out = rvi_sampler_draw(s);
    return true;
}
