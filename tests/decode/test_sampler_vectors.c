/* What is left after each stage, against other implementations (data/sampler_vectors.inc) and, on
 * vocabularies that are too large for a file, against plain sorting. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "decode/sampler_support.h"

struct vector {
    const char *source;
    const float *logits;
    int n;
    rv_sampling o;
    const int32_t *past;
    size_t n_past, n_prompt;
    const int32_t *breakers;
    size_t n_breakers;
    const int32_t *ids;
    const double *p;
    int n_left;
};

struct mirostat_vector {
    const float *logits;
    int n;
    float tau, eta;
    const int32_t *kept, *drawn;
    int n_steps;
};

#define OPTIONS(t, k, p, min, typical, sigma, xtc_p, xtc_t, rep, window, freq, presence, dry,      \
                base, allowed, dry_w, tau, eta, stages)                                            \
    {                                                                                              \
        .size = sizeof(rv_sampling), .temperature = t, .top_k = k, .top_p = p, .min_p = min,       \
        .typical_p = typical, .top_n_sigma = sigma, .xtc_probability = xtc_p,                      \
        .xtc_threshold = xtc_t, .repetition_penalty = rep, .repetition_window = window,            \
        .frequency_penalty = freq, .presence_penalty = presence, .dry_multiplier = dry,            \
        .dry_base = base, .dry_allowed_length = allowed, .dry_window = dry_w, .mirostat_tau = tau, \
        .mirostat_eta = eta, .order = stages                                                       \
    }
#include "decode/data/sampler_vectors.inc"

/* Survivors of weight 0 (far below 1e-30) say nothing: some implementations keep them as
 * numbers. */
static void check_left(const struct vector *v, const rvi_candidates *c)
{
    int at = 0;
    for (int i = 0; i < v->n_left; i++) {
        double p = 0;
        while (at < c->n && rvi_candidates_id(c, at) < v->ids[i]) {
            if (c->weights[at] > 0)
                fail_msg("%s (%s): token %d should be gone", v->o.order, v->source,
                         rvi_candidates_id(c, at));
            at++;
        }
        if (at < c->n && rvi_candidates_id(c, at) == v->ids[i])
            p = (double)c->weights[at++] / c->total;
        else if (v->p[i] > 1e-30)
            fail_msg("%s (%s): token %d should be left", v->o.order, v->source, v->ids[i]);
        /* seen: 2.6e-8 */
        if (fabs(p - v->p[i]) > 3e-7)
            fail_msg("%s (%s): token %d has %g, not %g", v->o.order, v->source, v->ids[i], p,
                     v->p[i]);
    }
    for (; at < c->n; at++)
        if (c->weights[at] > 0)
            fail_msg("%s (%s): token %d should be gone", v->o.order, v->source,
                     rvi_candidates_id(c, at));
}

static void other_implementations(void **state)
{
    (void)state;
    for (size_t i = 0; i < RVI_COUNT(vectors); i++) {
        const struct vector *v = &vectors[i];
        rvi_sampler *s = sampler(&v->o, v->n);
        if (v->n_breakers) {
            s->breaks = rvi_zalloc_array((size_t)v->n, sizeof *s->breaks);
            assert_non_null(s->breaks);
            for (size_t b = 0; b < v->n_breakers; b++) s->breaks[v->breakers[b]] = 1;
        }
        pick_after(s, v->logits, v->past, v->n_past, v->n_prompt);
        check_left(v, &s->set);
        rvi_sampler_free(s);
    }
}

/* Step by step: the number of survivors, and then mirostat learns from the token that the other
 * implementation drew. */
static void other_mirostat(void **state)
{
    (void)state;
    for (size_t i = 0; i < RVI_COUNT(mirostat_vectors); i++) {
        const struct mirostat_vector *v = &mirostat_vectors[i];
        rv_sampling o = plain(1);
        o.mirostat_tau = v->tau;
        o.mirostat_eta = v->eta;
        rvi_sampler *s = sampler(&o, v->n);
        const rvi_stage *last = s->stages[s->n_stages - 1];
        assert_string_equal(last->name, "mirostat");
        for (int k = 0; k < v->n_steps; k++) {
            double mu = s->mu;
            int at = 0;
            pick(s, v->logits);
            if (s->set.n != v->kept[k])
                fail_msg("sequence %zu, step %d: %d left, not %d", i, k, s->set.n, v->kept[k]);
            while (rvi_candidates_id(&s->set, at) != v->drawn[k]) assert_true(++at < s->set.n);
            s->mu = mu;
            last->drawn(s, (double)s->set.weights[at] / s->set.total);
        }
        rvi_sampler_free(s);
    }
}

/* Zipf's law over 2000 tokens: after a while the mean surprise of the draws is tau. */
static void mirostat_comes_to_tau(void **state)
{
    (void)state;
    enum { VOCAB = 2000, DRAWS = 6000 };
    static float l[VOCAB];
    static const float taus[] = {1.5f, 3, 5};
    for (int i = 0; i < VOCAB; i++) l[i] = -1.05f * logf((float)(i + 1));
    for (size_t t = 0; t < RVI_COUNT(taus); t++) {
        rv_sampling o = plain(1);
        o.mirostat_tau = taus[t];
        rvi_sampler *s = sampler(&o, VOCAB);
        double sum = 0;
        for (int i = 0; i < DRAWS; i++) {
            int32_t id = pick(s, l);
            double total = 0;
            for (int k = 0; k < s->set.n; k++)
                total += exp((double)l[rvi_candidates_id(&s->set, k)]);
            if (i >= DRAWS / 2) sum -= log2(exp((double)l[id]) / total);
        }
        double mean = sum / (DRAWS / 2);
        if (fabs(mean - (double)taus[t]) > 0.03) /* seen: 0.008 */
            fail_msg("a mean surprise of %g bits, not %g", mean, (double)taus[t]);
        rvi_sampler_free(s);
    }
}

/* ---- against sorting ---- */

enum { VOCAB = 4003 };
static float big[VOCAB];
static int32_t sorted[VOCAB];

static int by_logit(const void *a, const void *b)
{
    float x = big[*(const int32_t *)a], y = big[*(const int32_t *)b];
    if (x != y) return x < y ? 1 : -1;
    return *(const int32_t *)a < *(const int32_t *)b ? -1 : 1;
}

/* kind 0: spread; 1: many equals; 2: all equal; 3: so close that all but the last bits agree;
 * 4: zeros of both signs; 5: ascending */
static void fill(int kind, rvi_rng *rng)
{
    for (int i = 0; i < VOCAB; i++) {
        double u = rvi_rng_double(rng);
        big[i] = kind == 0   ? (float)(20 * u - 10)
                 : kind == 1 ? (float)floor(9 * u)
                 : kind == 2 ? -2.5f
                 : kind == 3 ? nextafterf(1, 2) + (float)(u * 1e-5)
                 : kind == 4 ? (u < 0.5 ? -0.0f : 0.0f)
                             : (float)i / 300;
    }
    for (int i = 0; i < VOCAB; i++) sorted[i] = i;
    qsort(sorted, VOCAB, sizeof sorted[0], by_logit);
}

static void check_first(const rvi_candidates *c, int want)
{
    static bool keep[VOCAB];
    memset(keep, 0, sizeof keep);
    assert_int_equal(c->n, want);
    for (int i = 0; i < want; i++) keep[sorted[i]] = true;
    for (int i = 0; i < c->n; i++) {
        assert_true(keep[rvi_candidates_id(c, i)]);
        if (i) assert_true(rvi_candidates_id(c, i) > rvi_candidates_id(c, i - 1));
    }
}

static void top_k_is_the_front_of_the_sorted(void **state)
{
    (void)state;
    static const int ks[] = {1, 2, 3, 17, 31, 32, 33, 100, 2000, VOCAB - 1, VOCAB, 2 * VOCAB};
    rvi_rng rng = {3};
    for (int kind = 0; kind < 6; kind++) {
        fill(kind, &rng);
        for (size_t i = 0; i < RVI_COUNT(ks); i++) {
            rv_sampling o = plain(1);
            o.top_k = ks[i];
            rvi_sampler *s = sampler(&o, VOCAB);
            pick(s, big);
            check_first(&s->set, RVI_MIN(ks[i], VOCAB));
            rvi_sampler_free(s);
        }
    }
}

static void top_p_is_the_front_of_the_sorted(void **state)
{
    (void)state;
    static const float ps[] = {1e-6f, 0.1f, 0.33f, 0.5f, 0.9f, 0.95f, 0.9995f, 0.99999994f};
    rvi_rng rng = {4};
    for (int kind = 0; kind < 6; kind++) {
        fill(kind, &rng);
        double total = 0;
        for (int i = 0; i < VOCAB; i++) total += exp((double)big[i]);
        for (size_t i = 0; i < RVI_COUNT(ps); i++) {
            rv_sampling o = plain(1);
            o.top_p = ps[i];
            rvi_sampler *s = sampler(&o, VOCAB);
            pick(s, big);
            double mass = 0, last = 0;
            for (int k = 0; k < s->set.n; k++) {
                last = exp((double)big[sorted[k]]) / total;
                mass += last;
            }
            check_first(&s->set, s->set.n); /* the front, of the smallest length that reaches p */
            double slack = 1e-6 * (double)ps[i] + 1e-12;
            if (mass < (double)ps[i] - slack || mass - last >= (double)ps[i] + slack)
                fail_msg("kind %d: %d tokens have %.9g, without the last %.9g; top_p is %.9g", kind,
                         s->set.n, mass, mass - last, (double)ps[i]);
            rvi_sampler_free(s);
        }
    }
}

/* The sampler's exponential, through the weights. */
static void weights_are_exponentials(void **state)
{
    (void)state;
    enum { MANY = 90001 };
    static float l[MANY];
    double worst = 0, total = 0;
    rv_sampling o = plain(1);
    rvi_sampler *s = sampler(&o, MANY);
    for (int i = 0; i < MANY; i++) l[i] = -(float)i * 1e-3f;
    pick(s, l);
    assert_true(s->set.weights[0] == 1);
    for (int i = 0; i < MANY; i++) {
        double want = exp((double)l[i]), w = (double)s->set.weights[i];
        total += w;
        if (l[i] < -86)
            assert_true(w == 0);
        else
            worst = fmax(worst, fabs(w / want - 1));
    }
    assert_true(fabs(total / s->set.total - 1) < 1e-12);
    if (worst > 1.5e-7) fail_msg("relative error %g", worst);
    rvi_sampler_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_implementations),
        cmocka_unit_test(other_mirostat),
        cmocka_unit_test(mirostat_comes_to_tau),
        cmocka_unit_test(top_k_is_the_front_of_the_sorted),
        cmocka_unit_test(top_p_is_the_front_of_the_sorted),
        cmocka_unit_test(weights_are_exponentials),
    };
    return cmocka_run_group_tests_name("sampler_vectors", tests, NULL, NULL);
}
