#include "learn/instant/credit.h"

#include <math.h>

#include "base/mem.h"

enum { MEMORY = 500 }; /* answers */
/* chance: the square of a standard score up to which nothing is said */
static const double ridge = 4, chance = 4;

static uint32_t place_of(int32_t id)
{
    return (uint32_t)id * 2654435761u >> 21;
}
_Static_assert(RVI_CREDITS == 1 << (32 - 21), "a place for every hash");

/* The token's row, or the one it may have: NULL when that tells of another. */
static rvi_credit_row *row_for(rvi_credits *c, int32_t id)
{
    rvi_credit_row *r = &c->rows[place_of(id)];
    if (r->id == id + 1) return r;
    if (r->id && (r->count || r->squares >= 1)) return NULL;
    *r = (rvi_credit_row){.id = id + 1};
    return r;
}

void rvi_credits_take(rvi_credits *c, const rvi_captured *tokens, int n, double advantage)
{
    for (int i = 0; i < n; i++) {
        rvi_credit_row *r = tokens[i].id >= 0 ? row_for(c, tokens[i].id) : NULL;
        if (r) r->count++;
    }
    c->n_answers = RVI_MIN(c->n_answers + 1, MEMORY);
    float part = 1 / (float)c->n_answers, fade = 1 - 1 / (float)MEMORY;
    for (int i = 0; i < RVI_CREDITS; i++) {
        rvi_credit_row *r = &c->rows[i];
        r->mean += part * ((float)r->count - r->mean);
        float off = (float)r->count - r->mean;
        r->product = fade * r->product + (float)advantage * off;
        r->squares = fade * r->squares + off * off;
        r->count = 0;
    }
}

double rvi_credit_of(const rvi_credits *c, int32_t id)
{
    const rvi_credit_row *r = &c->rows[place_of(id)];
    double product = (double)r->product, squares = (double)r->squares;
    if (r->id != id + 1 || product * product <= chance * squares) return 0;
    return product / (squares + ridge) * (1 - chance * squares / (product * product));
}

bool rvi_credits_are_sound(const rvi_credits *c)
{
    bool sound = c->n_answers >= 0 && c->n_answers <= MEMORY;
    for (int i = 0; sound && i < RVI_CREDITS; i++) {
        const rvi_credit_row *r = &c->rows[i];
        sound = r->id >= 0 && !r->count && isfinite(r->mean) && isfinite(r->product) &&
                isfinite(r->squares) && r->squares >= 0;
    }
    return sound;
}
