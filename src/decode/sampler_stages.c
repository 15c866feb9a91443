/* sampler_stages.c - the table of stages, and each of them but dry.
 *
 * A stage sees the candidates that the stages before it left; where it needs probabilities they are
 * those among these candidates. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "decode/sampler_internal.h"

float rvi_bounded(double logit)
{
    return logit > FLT_MAX ? FLT_MAX : logit < -FLT_MAX ? -FLT_MAX : (float)logit;
}

/* ---- stages that change logits ---- */

static bool penalties_active(const rv_sampling *o)
{
    return (o->repetition_penalty != 1 && o->repetition_window) || o->frequency_penalty != 0 ||
           o->presence_penalty != 0;
}

/* Repetition (Keskar et al. 2019, with the usual mending for negative logits): once for each token
 * of the window. Frequency and presence: by the number of times a token was generated. */
static void penalties(rvi_sampler *s)
{
    const rv_sampling *o = &s->o;
    if (o->repetition_penalty != 1) {
        size_t first = s->n_past - RVI_MIN(s->n_past, (size_t)o->repetition_window);
        double penalty = (double)o->repetition_penalty;
        for (size_t i = first; i < s->n_past; i++) {
            if (s->counts[s->past[i]]++) continue;
            float *l = rvi_candidates_find(&s->set, s->past[i]);
            if (l) *l = rvi_bounded(*l > 0 ? (double)*l / penalty : (double)*l * penalty);
        }
        for (size_t i = first; i < s->n_past; i++) s->counts[s->past[i]] = 0;
    }
    if (o->frequency_penalty != 0 || o->presence_penalty != 0) {
        for (size_t i = s->n_prompt; i < s->n_past; i++) s->counts[s->past[i]]++;
        for (size_t i = s->n_prompt; i < s->n_past; i++) {
            int32_t count = s->counts[s->past[i]];
            if (!count) continue;
            s->counts[s->past[i]] = 0;
            float *l = rvi_candidates_find(&s->set, s->past[i]);
            if (l)
                *l = rvi_bounded((double)*l - count * (double)o->frequency_penalty -
                                 (double)o->presence_penalty);
        }
    }
    s->set.weighed = false;
}

static bool dry_active(const rv_sampling *o)
{
    return o->dry_multiplier > 0;
}

/* ---- stages that reshape or drop candidates ---- */

static bool temperature_active(const rv_sampling *o)
{
    return o->temperature > 0 && o->temperature != 1;
}

/* Where a tiny temperature would carry the best logit out of the floats, logits are taken relative
 * to the best one first, which leaves the distribution as it is. */
void rvi_stage_temperature(rvi_sampler *s)
{
    rvi_candidates *c = &s->set;
    float t = s->o.temperature, best = rvi_max(c->logits, c->n);
    rvi_candidates_scale(c, isfinite(best / t) ? 0 : best, t);
}

static bool top_n_sigma_active(const rv_sampling *o)
{
    return o->top_n_sigma > 0;
}

/* Top-n-sigma (Tang et al. 2024): logits within n standard deviations of the best. */
static void top_n_sigma(rvi_sampler *s)
{
    rvi_candidates *c = &s->set;
    double best = (double)rvi_max(c->logits, c->n), squares = 0;
    double mean = rvi_sum(c->logits, c->n) / c->n;
    for (int i = 0; i < c->n; i++) {
        double d = (double)c->logits[i] - mean;
        squares += d * d;
    }
    rvi_candidates_keep_high(c, best - (double)s->o.top_n_sigma * sqrt(squares / c->n));
}

static bool top_k_active(const rv_sampling *o)
{
    return o->top_k > 0;
}

/* The k highest logits. */
static void top_k(rvi_sampler *s)
{
    rvi_candidates_keep_best(&s->set, s->o.top_k);
}

static bool typical_p_active(const rv_sampling *o)
{
    return o->typical_p < 1;
}

/* Locally typical sampling (Meister et al. 2022): the tokens whose surprise is nearest to the
 * entropy, until their probability reaches typical_p. With x = logit - best the surprise is
 * log(total) - x and the entropy log(total) - E[x], so their distance is |E[x] - x|. */
static void typical_p(rvi_sampler *s)
{
    rvi_candidates *c = &s->set;
    rvi_candidates_weigh(c);
    double mean = 0;
    for (int i = 0; i < c->n; i++)
        mean += (double)c->weights[i] * ((double)c->logits[i] - (double)c->best);
    mean /= c->total;
    for (int i = 0; i < c->n; i++) {
        double x = (double)c->logits[i] - (double)c->best;
        c->keys[i] = rvi_key(rvi_bounded(fabs(mean - x)));
    }
    rvi_candidates_keep_lowest(c, (double)s->o.typical_p);
}

static bool top_p_active(const rv_sampling *o)
{
    return o->top_p < 1;
}

/* Nucleus sampling (Holtzman et al. 2019): the most probable tokens until they reach top_p. */
static void top_p(rvi_sampler *s)
{
    rvi_candidates_keep_nucleus(&s->set, (double)s->o.top_p);
}

static bool min_p_active(const rv_sampling *o)
{
    return o->min_p > 0;
}

/* Min-p (Nguyen et al. 2024): at least min_p of the best token's probability. */
static void min_p(rvi_sampler *s)
{
    double best = (double)rvi_max(s->set.logits, s->set.n);
    rvi_candidates_keep_high(&s->set, best + log((double)s->o.min_p));
}

static bool xtc_active(const rv_sampling *o)
{
    return o->xtc_probability > 0;
}

/* Exclude top choices (Weidmann 2024): by chance, of all tokens whose probability is at least the
 * threshold only the least probable stays (of equals the one with the highest id). */
static void xtc(rvi_sampler *s)
{
    rvi_candidates *c = &s->set;
    if (rvi_rng_double(&s->rng) >= (double)s->o.xtc_probability) return;
    rvi_candidates_weigh(c);
    double floor = (double)s->o.xtc_threshold * c->total;
    int stays = -1, kept = 0;
    for (int i = 0; i < c->n; i++)
        if ((double)c->weights[i] >= floor && (stays < 0 || c->logits[i] <= c->logits[stays]))
            stays = i;
    for (int i = 0; i < c->n; i++)
        if ((double)c->weights[i] < floor || i == stays) rvi_candidates_move(c, kept++, i);
    rvi_candidates_shrink(c, kept);
}

static bool mirostat_active(const rv_sampling *o)
{
    return o->mirostat_tau > 0;
}

/* Mirostat 2 (Basu et al. 2020): drops tokens with a surprise of more than mu bits; the draw then
 * moves mu so that the mean surprise approaches tau. */
static void mirostat(rvi_sampler *s)
{
    rvi_candidates_weigh(&s->set);
    rvi_candidates_keep_heavy(&s->set, s->set.total * exp2(-s->mu));
}

/* Mirostat learns from the probability that the chosen token was drawn with. */
static void mirostat_learn(rvi_sampler *s, double p)
{
    s->mu -= (double)s->o.mirostat_eta * (-log2(p) - (double)s->o.mirostat_tau);
}

/* ---- the table, in the default order ---- */

static const rvi_stage table[RVI_STAGES_MAX] = {
    /* name, function, active, changes logits, reads the past, needs, told of the draw */
    {"penalties", penalties, penalties_active, true, true, RVI_NEEDS_ALL, NULL},
    {"dry", rvi_stage_dry, dry_active, true, true, RVI_NEEDS_ALL, NULL},
    {"top_n_sigma", top_n_sigma, top_n_sigma_active, false, false, RVI_NEEDS_ALL, NULL},
    {"temperature", rvi_stage_temperature, temperature_active, false, false, RVI_NEEDS_BEST, NULL},
    {"top_k", top_k, top_k_active, false, false, RVI_NEEDS_BEST, NULL},
    {"typical_p", typical_p, typical_p_active, false, false, RVI_NEEDS_ALL, NULL},
    {"top_p", top_p, top_p_active, false, false, RVI_NEEDS_TOTAL, NULL},
    {"min_p", min_p, min_p_active, false, false, RVI_NEEDS_BEST, NULL},
    {"xtc", xtc, xtc_active, false, false, RVI_NEEDS_ALL, NULL},
    {"mirostat", mirostat, mirostat_active, false, false, RVI_NEEDS_ALL, mirostat_learn},
};

static const rvi_stage *find(const char *name, size_t len)
{
    for (int i = 0; i < RVI_STAGES_MAX; i++)
        if (strlen(table[i].name) == len && !memcmp(table[i].name, name, len)) return &table[i];
    return NULL;
}

rv_status rvi_stages_parse(const char *order, const rvi_stage **stages, int *n, rv_error *err)
{
    *n = 0;
    if (!order)
        for (; *n < RVI_STAGES_MAX; (*n)++) stages[*n] = &table[*n];
    if (!order || !order[strspn(order, " ")]) return RV_OK; /* "": no stage at all */
    for (const char *at = order;; at++) {
        at += strspn(at, " ");
        size_t len = strcspn(at, " ,");
        int shown = (int)RVI_MIN(len, (size_t)40);
        const rvi_stage *stage = find(at, len);
        if (!stage)
            return rvi_error(err, RV_E_CONFIG, "order: there is no sampling stage '%.*s'", shown,
                             at);
        for (int i = 0; i < *n; i++)
            if (stages[i] == stage)
                return rvi_error(err, RV_E_CONFIG, "order: stage '%s' is listed twice",
                                 stage->name);
        stages[(*n)++] = stage;
        at += len;
        at += strspn(at, " ");
        if (!*at) return RV_OK;
        if (*at != ',')
            return rvi_error(err, RV_E_CONFIG, "order: no comma after stage '%s'", stage->name);
    }
}
