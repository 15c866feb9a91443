/* sampler.c - making a sampler, and one pick from logits to a token. */
#include "decode/sampler.h"

#include <math.h>

#include "decode/sampler_internal.h"

/* ---- making ---- */

/* The stages that have something to do; only those that change logits when greedy. */
static rv_status take_stages(rvi_sampler *s, const char *order, rv_error *err)
{
    const rvi_stage *named[RVI_STAGES_MAX];
    int n;
    rv_status st = rvi_stages_parse(order, named, &n, err);
    for (int i = 0; !st && i < n; i++) {
        if (!named[i]->active(&s->o)) continue;
        if (s->o.temperature == 0 && !named[i]->changes_logits) continue;
        s->stages[s->n_stages++] = named[i];
        s->reads_past |= named[i]->reads_past;
    }
    return st;
}

static bool runs(const rvi_sampler *s, void (*stage)(rvi_sampler *s))
{
    for (int i = 0; i < s->n_stages; i++)
        if (s->stages[i]->run == stage) return true;
    return false;
}

static rv_status take_biases(rvi_sampler *s, const rv_logit_bias *bias, size_t n, rv_error *err)
{
    if (!n) return RV_OK;
    s->bias = rvi_alloc_array(n, sizeof *s->bias);
    s->forced = rvi_alloc_array(n, sizeof *s->forced);
    if (!s->bias || !s->forced) return rvi_nomem(err, "sampler");
    for (size_t i = 0; i < n; i++) {
        if (bias[i].id >= s->n_vocab)
            return rvi_error(err, RV_E_CONFIG,
                             "logit_bias[%zu]: token id %d is not in the vocabulary of %d", i,
                             bias[i].id, s->n_vocab);
        if (bias[i].bias == INFINITY)
            s->forced[s->n_forced++] = bias[i].id;
        else
            s->bias[s->n_bias++] = bias[i];
    }
    return RV_OK;
}

static rv_status reserve(rvi_sampler *s, rv_error *err)
{
    size_t n = (size_t)s->n_vocab;
    if (s->o.temperature > 0) {
        s->set.ids = rvi_alloc_array(n, sizeof *s->set.ids);
        s->set.weights = rvi_zalloc_array(n, sizeof *s->set.weights);
        s->set.keys = rvi_alloc_array(n, sizeof *s->set.keys);
        s->few = rvi_alloc_array(RVI_DRAW_MOST, sizeof *s->few);
        if (!s->set.ids || !s->set.weights || !s->set.keys || !s->few)
            return rvi_nomem(err, "sampler");
    }
    if (s->reads_past && !(s->counts = rvi_zalloc_array(n, sizeof *s->counts)))
        return rvi_nomem(err, "sampler");
    return RV_OK;
}

static rv_status take_dry(rvi_sampler *s, const rv_sampling *o, const rvi_tokenizer *t,
                          rv_error *err)
{
    static const char *const usual[] = {"\n", ":", "\"", "*"};
    if (!runs(s, rvi_stage_dry)) return RV_OK;
    s->match_cap = RVI_DRY_LONGEST;
    if (o->dry_window) s->match_cap = RVI_MIN(o->dry_window, RVI_DRY_LONGEST);
    if (!(s->match = rvi_alloc_array((size_t)s->match_cap, sizeof *s->match)))
        return rvi_nomem(err, "sampler");
    if (!t) return RV_OK;
    if (!o->dry_breakers) return rvi_dry_find_breakers(s, t, usual, RVI_COUNT(usual), err);
    return o->n_dry_breakers ? rvi_dry_find_breakers(s, t, o->dry_breakers, o->n_dry_breakers, err)
                             : RV_OK;
}

rv_status rvi_sampler_new(rvi_sampler **out, const rv_sampling *options, int n_vocab,
                          const rvi_tokenizer *t, rv_error *err)
{
    *out = NULL;
    rv_sampling o;
    rv_status st = rvi_sampling_check(options, err);
    if (st) return st;
    if (n_vocab < 1)
        return rvi_error(err, RV_E_INVALID, "the vocabulary must not be empty (got %d tokens)",
                         n_vocab);
    rvi_sampling_read(&o, options);
    rvi_sampler *s = rvi_zalloc(sizeof *s);
    if (!s) return rvi_nomem(err, "sampler");
    s->o = o;
    s->o.order = NULL;
    s->o.logit_bias = NULL;
    s->o.dry_breakers = NULL;
    s->n_vocab = n_vocab;
    s->rng.state = o.seed;
    s->mu = 2 * (double)o.mirostat_tau;
    st = take_stages(s, o.order, err);
    if (!st) st = take_biases(s, o.logit_bias, o.n_logit_bias, err);
    if (!st) st = reserve(s, err);
    if (!st) st = take_dry(s, &o, t, err);
    if (st)
        rvi_sampler_free(s);
    else
        *out = s;
    return st;
}

void rvi_sampler_free(rvi_sampler *s)
{
    if (!s) return;
    rvi_free(s->bias);
    rvi_free(s->forced);
    rvi_free(s->breaks);
    rvi_free(s->match);
    rvi_free(s->counts);
    rvi_free(s->set.ids);
    rvi_free(s->set.weights);
    rvi_free(s->set.keys);
    rvi_free(s->few);
    rvi_free(s);
}

/* ---- picking ---- */

static rv_status take_past(rvi_sampler *s, const int32_t *past, size_t n_past, size_t n_prompt,
                           rv_error *err)
{
    if (n_prompt > n_past || (n_past && !past))
        return rvi_error(err, RV_E_INVALID, "a past of %zu tokens, %zu of them the prompt's",
                         n_past, n_prompt);
    for (size_t i = 0; s->reads_past && i < n_past; i++)
        if (past[i] < 0 || past[i] >= s->n_vocab)
            return rvi_error(err, RV_E_INVALID, "token id %d is not in the vocabulary of %d",
                             past[i], s->n_vocab);
    s->past = past;
    s->n_past = n_past;
    s->n_prompt = n_prompt;
    return RV_OK;
}

/* How many logits are above -INFINITY; -1 if one is NaN or +INFINITY. */
static int count_possible(const float *logits, int n)
{
    enum { LANES = 8 };
    int possible[LANES] = {0}, wrong[LANES] = {0}, i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) {
            possible[j] += logits[i + j] > -INFINITY;
            wrong[j] |= !(logits[i + j] < INFINITY);
        }
    for (; i < n; i++) {
        possible[0] += logits[i] > -INFINITY;
        wrong[0] |= !(logits[i] < INFINITY);
    }
    for (int j = 1; j < LANES; j++) {
        possible[0] += possible[j];
        wrong[0] |= wrong[j];
    }
    return wrong[0] ? -1 : possible[0];
}

static rv_status explain(const float *logits, int n, rv_error *err)
{
    for (int i = 0; i < n; i++)
        if (!(logits[i] < INFINITY))
            return rvi_error(err, RV_E_GENERATION, "the model's output is not %s (token %d)",
                             isnan(logits[i]) ? "a number" : "finite", i);
    return rvi_error(err, RV_E_GENERATION, "a mask or a bias forbids every token");
}

/* All tokens that are not masked. When greedy, dense in any case: -INFINITY is no maximum. */
static void take_candidates(rvi_sampler *s, float *logits, int possible)
{
    rvi_candidates *c = &s->set;
    c->logits = logits;
    c->n = s->n_vocab;
    c->dense = true;
    c->weighed = false;
    if (possible == s->n_vocab || !c->ids) return;
    int n = 0;
    for (int i = 0; i < s->n_vocab; i++)
        if (logits[i] > -INFINITY) rvi_candidates_move(c, n++, i);
    rvi_candidates_shrink(c, n);
}

/* The best of the tokens whose bias is +INFINITY and that nothing forbids; -1: none. */
static int32_t forced(const rvi_sampler *s, const float *logits)
{
    int32_t best = -1;
    for (size_t i = 0; i < s->n_forced; i++) {
        int32_t id = s->forced[i];
        if (logits[id] == -INFINITY) continue;
        if (best < 0 || logits[id] > logits[best] || (logits[id] == logits[best] && id < best))
            best = id;
    }
    return best;
}

static int32_t argmax(const float *logits, int n)
{
    float best = rvi_max(logits, n);
    int32_t i = 0;
    while (i < n - 1 && !(logits[i] == best)) i++;
    return i;
}

int32_t rvi_sampler_draw(rvi_sampler *s)
{
    rvi_candidates *c = &s->set;
    rvi_candidates_weigh(c);
    double at = rvi_rng_double(&s->rng) * c->total, sum;
    int chosen = 0, i = 0;
    for (; i + RVI_SUM_RUN < c->n; i += RVI_SUM_RUN) { /* runs and blocks that lie before it */
        if (at < (sum = rvi_sum(c->weights + i, RVI_SUM_RUN))) break;
        at -= sum;
    }
    for (; i + RVI_SUM_BLOCK < c->n; i += RVI_SUM_BLOCK) {
        if (at < (sum = rvi_sum(c->weights + i, RVI_SUM_BLOCK))) break;
        at -= sum;
    }
    for (; i < c->n; i++) {
        if (!(c->weights[i] > 0)) continue;
        chosen = i; /* the last possible one stays, should rounding leave something of `at` */
        if (at < (double)c->weights[i]) break;
        at -= (double)c->weights[i];
    }
    for (int k = 0; k < s->n_stages; k++)
        if (s->stages[k]->drawn) s->stages[k]->drawn(s, (double)c->weights[chosen] / c->total);
    return rvi_candidates_id(c, chosen);
}

rvi_sampler_state rvi_sampler_get(const rvi_sampler *s)
{
    return (rvi_sampler_state){s->rng.state, s->mu};
}

void rvi_sampler_set(rvi_sampler *s, const rvi_sampler_state *state)
{
    s->rng.state = state->random;
    s->mu = state->surprise;
}

rv_status rvi_sampler_pick(rvi_sampler *s, float *logits, const int32_t *past, size_t n_past,
                           size_t n_prompt, int32_t *out, rv_error *err)
{
    rv_status st = take_past(s, past, n_past, n_prompt, err);
    if (st) return st;
    for (size_t i = 0; i < s->n_bias; i++) logits[s->bias[i].id] += s->bias[i].bias;
    int possible = count_possible(logits, s->n_vocab);
    if (possible <= 0) return explain(logits, s->n_vocab, err);
    int32_t id = forced(s, logits);
    if (id < 0) {
        take_candidates(s, logits, possible);
        for (int i = 0; i < s->n_stages; i++) s->stages[i]->run(s);
        id = s->o.temperature > 0 ? rvi_sampler_draw(s) : argmax(logits, s->n_vocab);
    }
    *out = id;
    return RV_OK;
}
