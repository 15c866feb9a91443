/* Draws against the distribution they must have, the order of the stages, biases and masks,
 * penalties, seeds, options good and bad. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "decode/sampler_support.h"

enum { N = 8, DRAWS = 30000 };
static const float logits[N] = {1.5f, 3.0f, -1.0f, 2.9f, 0.0f, 2.0f, -4.0f, 1.0f};

/* Of the chi-square distribution at p = 0.001, by degrees of freedom. */
static const double critical[N] = {0, 10.83, 13.82, 16.27, 18.47, 20.52, 22.46, 24.32};

/* Pearson's statistic of DRAWS draws; a probability of zero must never be drawn. */
static void check_draws(const rv_sampling *o, const double *want)
{
    rvi_sampler *s = sampler(o, N);
    int count[N] = {0}, freedom = -1;
    double sum = 0;
    for (int i = 0; i < DRAWS; i++) count[pick(s, logits)]++;
    for (int i = 0; i < N; i++) {
        if (want[i] == 0) {
            assert_int_equal(count[i], 0);
            continue;
        }
        sum += pow(count[i] - DRAWS * want[i], 2) / (DRAWS * want[i]);
        freedom++;
    }
    rvi_sampler_free(s);
    if (sum > (freedom ? critical[freedom] : 1e-9))
        fail_msg("chi-square %g with %d degrees of freedom", sum, freedom);
}

static void softmax(double temperature, const bool *keep, double *out)
{
    double total = 0;
    for (int i = 0; i < N; i++)
        total += out[i] = !keep || keep[i] ? exp((double)logits[i] / temperature) : 0;
    for (int i = 0; i < N; i++) out[i] /= total;
}

/* The first of p by ascending score until they reach the mass. */
static void keep_first(const double *p, const double *score, double mass, bool *keep)
{
    double sum = 0;
    memset(keep, 0, N * sizeof *keep);
    while (sum < mass) {
        int best = -1;
        for (int i = 0; i < N; i++)
            if (!keep[i] && (best < 0 || score[i] < score[best])) best = i;
        if (best < 0) break;
        keep[best] = true;
        sum += p[best];
    }
}

static void nucleus(double temperature, double mass, bool *keep)
{
    double p[N], score[N];
    softmax(temperature, NULL, p);
    for (int i = 0; i < N; i++) score[i] = -p[i];
    keep_first(p, score, mass, keep);
}

static void draws_follow_the_softmax(void **state)
{
    (void)state;
    static const float temperatures[] = {0.3f, 0.8f, 1, 1.7f, 10};
    for (size_t i = 0; i < RVI_COUNT(temperatures); i++) {
        double want[N];
        rv_sampling o = plain(temperatures[i]);
        o.seed = i;
        softmax((double)o.temperature, NULL, want);
        check_draws(&o, want);
    }
}

static void draws_follow_the_survivors(void **state)
{
    (void)state;
    double want[N], p[N], score[N];
    bool keep[N] = {0, 1, 0, 1, 0, 1, 0, 0};
    rv_sampling o = plain(1);
    o.top_k = 3;
    softmax(1, keep, want);
    check_draws(&o, want);

    o = plain(1);
    o.top_p = 0.75f; /* 0.370 + 0.335 = 0.705, so a third one belongs to it */
    check_draws(&o, want);

    o = plain(1);
    o.min_p = 0.3f; /* of the best one's: 3.0 - ln(1/0.3) = 1.796 */
    check_draws(&o, want);

    o = plain(1);
    o.top_n_sigma = 0.6f; /* deviation 2.221: down to 1.667 */
    check_draws(&o, want);

    o = plain(1);
    o.top_p = 1e-6f; /* at least one stays */
    softmax(1, (bool[N]){0, 1}, want);
    check_draws(&o, want);

    o = plain(1);
    o.typical_p = 0.5f;
    double entropy = 0;
    softmax(1, NULL, p);
    for (int i = 0; i < N; i++) entropy -= p[i] * log(p[i]);
    for (int i = 0; i < N; i++) score[i] = fabs(-log(p[i]) - entropy);
    keep_first(p, score, 0.5, keep);
    softmax(1, keep, want);
    check_draws(&o, want);
    assert_false(keep[6]);
}

/* With probability 0.25 the tokens 1 and 3 (0.370 and 0.335) make way for 5 (0.136), the least
 * probable one above 0.1; the other draws are as if it were not there. */
static void xtc_comes_by_chance(void **state)
{
    (void)state;
    double without[N], with[N];
    rv_sampling o = plain(1);
    o.xtc_probability = 0.25f;
    o.xtc_threshold = 0.1f;
    softmax(1, NULL, without);
    softmax(1, (bool[N]){1, 0, 1, 0, 1, 1, 1, 1}, with);
    for (int i = 0; i < N; i++) with[i] = 0.25 * with[i] + 0.75 * without[i];
    check_draws(&o, with);
}

static void the_order_is_the_callers(void **state)
{
    (void)state;
    double want[N];
    bool early[N], late[N];
    rv_sampling o = plain(2);
    o.top_p = 0.75f;
    nucleus(2, 0.75, early); /* the default: temperature first flattens, so more stay */
    softmax(2, early, want);
    check_draws(&o, want);
    o.order = "penalties,temperature,top_p";
    check_draws(&o, want);
    nucleus(1, 0.75, late);
    assert_true(memcmp(early, late, sizeof early) != 0);
    o.order = "top_p,temperature";
    softmax(2, late, want);
    check_draws(&o, want);
    o.order = " top_p , temperature ";
    check_draws(&o, want);
    o.order = "top_p"; /* a stage that is not named does not run */
    softmax(1, late, want);
    check_draws(&o, want);
    o.order = "";
    softmax(1, NULL, want);
    check_draws(&o, want);
}

/* A penalty after a filter finds its tokens among what is left, and only there. */
static void penalties_after_a_filter(void **state)
{
    (void)state;
    static const int32_t past[] = {1, 6, 0};
    rv_sampling o = plain(1);
    o.top_k = 3;
    o.repetition_penalty = 2;
    o.order = "top_k,penalties";
    rvi_sampler *s = sampler(&o, N);
    for (int i = 0; i < 100; i++) pick_after(s, logits, past, 3, 3);
    assert_int_equal(s->set.n, 3);
    static const int32_t ids[] = {1, 3, 5};
    static const double l[] = {1.5, 2.9, 2.0};
    double total = exp(1.5) + exp(2.9) + exp(2.0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(rvi_candidates_id(&s->set, i), ids[i]);
        double p = (double)s->set.weights[i] / s->set.total;
        assert_true(fabs(p - exp(l[i]) / total) < 1e-6);
    }
    rvi_sampler_free(s);
}

static void greedy_takes_the_first_maximum(void **state)
{
    (void)state;
    rv_sampling o = plain(0);
    float tie[N] = {0, 5, 1, 5, 0, 0, 0, 0}, all[N] = {0};
    o.top_k = 1; /* filters have nothing to say */
    o.xtc_probability = 1;
    rvi_sampler *s = sampler(&o, N);
    assert_int_equal(pick(s, logits), 1);
    assert_int_equal(pick(s, tie), 1);
    assert_int_equal(pick(s, all), 0);
    rvi_sampler_free(s);
}

static void a_tiny_temperature_is_nearly_greedy(void **state)
{
    (void)state;
    static const float tiny[] = {1e-2f, 1e-7f, 1e-30f, 1e-38f, 1e-44f};
    static const float far[N] = {-3e38f, 3.4e38f, 3.3e38f, -1, 0, 1, 2, 3};
    for (size_t i = 0; i < RVI_COUNT(tiny); i++) {
        rv_sampling o = plain(tiny[i]);
        o.top_p = 0.9f;
        o.typical_p = 0.99f;
        o.min_p = 0.01f;
        rvi_sampler *s = sampler(&o, N);
        assert_int_equal(pick(s, logits), 1);
        assert_int_equal(pick(s, far), 1);
        rvi_sampler_free(s);
    }
}

static void same_seed_same_tokens(void **state)
{
    (void)state;
    rv_sampling o;
    rvi_sampling_init(&o, sizeof o, false);
    o.xtc_probability = 0.5f;
    int differing = 0;
    for (uint64_t seed = 1; seed < 20; seed++) {
        o.seed = seed;
        rvi_sampler *a = sampler(&o, N), *b = sampler(&o, N);
        o.seed = seed + 1;
        rvi_sampler *c = sampler(&o, N);
        for (int i = 0; i < 50; i++) {
            int32_t id = pick(a, logits);
            assert_int_equal(id, pick(b, logits));
            differing += id != pick(c, logits);
        }
        rvi_sampler_free(a);
        rvi_sampler_free(b);
        rvi_sampler_free(c);
    }
    assert_true(differing > 100);
}

/* The tokens of one seed, written down: no machine and no compiler changes them. */
static void the_same_tokens_everywhere(void **state)
{
    (void)state;
    enum { VOCAB = 5000, TOKENS = 12 };
    static const int32_t want[TOKENS] = {3121, 450,  1582, 543,  4081, 2785,
                                         681,  2933, 960,  2125, 2361, 4085};
    static float l[VOCAB];
    int32_t got[TOKENS];
    rvi_rng rng = {7};
    rv_sampling o;
    rvi_sampling_init(&o, sizeof o, false);
    o.seed = 2024;
    o.temperature = 1.3f;
    rvi_sampler *s = sampler(&o, VOCAB);
    for (int i = 0; i < TOKENS; i++) {
        for (int j = 0; j < VOCAB; j++) l[j] = (float)(12 * rvi_rng_double(&rng) - 6);
        got[i] = pick_after(s, l, got, (size_t)i, 0);
    }
    rvi_sampler_free(s);
    for (int i = 0; i < TOKENS; i++) assert_int_equal(got[i], want[i]);
}

static void penalties(void **state)
{
    (void)state;
    static const int32_t past[] = {1, 3, 3};
    rv_sampling o = plain(0);
    o.repetition_penalty = 2; /* 3.0 -> 1.5, 2.9 -> 1.45: 2.0 wins; below 0 it multiplies */
    rvi_sampler *s = sampler(&o, N);
    assert_int_equal(pick_after(s, logits, past, 3, 3), 5);
    float negative[N] = {-1, -1.5f, -3, -3, -3, -3, -3, -3};
    assert_int_equal(pick_after(s, negative, (int32_t[]){0}, 1, 1), 1);
    rvi_sampler_free(s);
    o.repetition_window = 1; /* only the last token, 3, is held against it */
    s = sampler(&o, N);
    assert_int_equal(pick_after(s, logits, past, 3, 3), 1);
    rvi_sampler_free(s);

    o = plain(0);
    o.presence_penalty = 0.05f; /* prompt tokens do not count */
    o.frequency_penalty = 0.04f;
    s = sampler(&o, N);
    assert_int_equal(pick_after(s, logits, past, 3, 3), 1);
    assert_int_equal(pick_after(s, logits, past, 1, 0), 1);                 /* 3.0 - 0.09 = 2.91 */
    assert_int_equal(pick_after(s, logits, (int32_t[]){1, 1}, 2, 0), 3);    /* 3.0 - 0.13 = 2.87 */
    assert_int_equal(pick_after(s, logits, (int32_t[]){1, 1, 3}, 3, 0), 1); /* against 2.81 */
    for (int i = 0; i < N; i++) assert_int_equal(s->counts[i], 0);
    rvi_sampler_free(s);
}

/* A penalty that leaves the floats makes a token least likely, not impossible; and a masked token
 * stays masked, whatever is subtracted from it. */
static void penalties_stay_finite(void **state)
{
    (void)state;
    float low[2] = {-INFINITY, -3.4e38f};
    static const int32_t past[] = {1, 1, 0};
    for (int greedy = 0; greedy < 2; greedy++) {
        rv_sampling o = plain(greedy ? 0 : 1);
        o.repetition_penalty = 100;
        o.frequency_penalty = -100;
        o.dry_multiplier = 100;
        o.dry_allowed_length = 1;
        rvi_sampler *s = sampler(&o, 2);
        for (int i = 0; i < 20; i++) assert_int_equal(pick_after(s, low, past, 3, 0), 1);
        rvi_sampler_free(s);
    }
}

static int32_t pick_biased(float temperature, const float *l, const rv_logit_bias *bias, size_t n)
{
    rv_sampling o = plain(temperature);
    o.logit_bias = bias;
    o.n_logit_bias = n;
    rvi_sampler *s = sampler(&o, N);
    int32_t id = pick(s, l);
    rvi_sampler_free(s);
    return id;
}

static void biases(void **state)
{
    (void)state;
    static const float masked[N] = {0, -INFINITY, 3, -INFINITY, 1, 2, 0, 0};
    for (int hot = 0; hot < 2; hot++) {
        float t = hot ? 1e-3f : 0;
#define biased(l, ...)                                                                             \
    pick_biased(t, l, (rv_logit_bias[]){__VA_ARGS__}, RVI_COUNT(((rv_logit_bias[]){__VA_ARGS__})))
        assert_int_equal(biased(logits, {5, 1.5f}), 5);
        assert_int_equal(biased(logits, {5, 0.6f}, {5, 0.6f}), 5); /* entries add up */
        assert_int_equal(biased(logits, {1, -INFINITY}), 3);
        assert_int_equal(biased(logits, {1, -INFINITY}, {3, -0.95f}), 5);
        assert_int_equal(biased(logits, {6, INFINITY}), 6);
        assert_int_equal(biased(logits, {6, INFINITY}, {2, INFINITY}), 2); /* the best of them */
        assert_int_equal(biased(logits, {6, INFINITY}, {2, INFINITY}, {6, 9}), 6);
        assert_int_equal(biased(logits, {6, INFINITY}, {6, -INFINITY}), 1); /* forbidden wins */
        assert_int_equal(biased(masked, {1, 1e9f}), 2);                     /* a mask wins */
        assert_int_equal(biased(masked, {1, INFINITY}), 2);
        assert_int_equal(biased(masked, {1, INFINITY}, {7, INFINITY}), 7);
#undef biased
    }
}

/* What is masked is never drawn, whatever else is set. */
static void masked_tokens_are_never_drawn(void **state)
{
    (void)state;
    float l[N];
    rv_sampling o = plain(5);
    o.top_p = 0.99f;
    o.repetition_penalty = 3;
    o.dry_multiplier = 5;
    o.dry_allowed_length = 1;
    o.mirostat_tau = 3;
    rvi_sampler *s = sampler(&o, N);
    for (int i = 0; i < 2000; i++) {
        bool masked[N];
        memcpy(l, logits, sizeof l);
        for (int j = 0; j < N; j++) {
            masked[j] = j != i % N && (i >> (j % 5) & 1);
            if (masked[j]) l[j] = -INFINITY;
        }
        int32_t id = pick_after(s, l, (int32_t[]){1, 2, 1, 2, 7, 1}, 6, 2);
        assert_false(masked[id]);
    }
    rvi_sampler_free(s);
}

static void what_is_no_distribution(void **state)
{
    (void)state;
    for (int greedy = 0; greedy < 2; greedy++) {
        rv_error err = {0};
        rv_sampling o = plain(greedy ? 0 : 1);
        float bad[N] = {0, 0, NAN}, flat[N], high[N] = {0, INFINITY};
        int32_t id;
        rvi_sampler *s = sampler(&o, N);
        assert_int_equal(rvi_sampler_pick(s, bad, NULL, 0, 0, &id, &err), RV_E_GENERATION);
        assert_non_null(strstr(err.text, "not a number (token 2)"));
        assert_int_equal(rvi_sampler_pick(s, high, NULL, 0, 0, &id, &err), RV_E_GENERATION);
        assert_non_null(strstr(err.text, "not finite (token 1)"));
        for (int i = 0; i < N; i++) flat[i] = -INFINITY;
        assert_int_equal(rvi_sampler_pick(s, flat, NULL, 0, 0, &id, &err), RV_E_GENERATION);
        assert_non_null(strstr(err.text, "forbids every token"));
        flat[7] = NAN; /* in the last lanes, too */
        assert_int_equal(rvi_sampler_pick(s, flat, NULL, 0, 0, &id, &err), RV_E_GENERATION);
        assert_non_null(strstr(err.text, "not a number"));
        flat[7] = -INFINITY;
        flat[4] = 1; /* one possible token */
        assert_int_equal(rvi_sampler_pick(s, flat, NULL, 0, 0, &id, &err), RV_OK);
        assert_int_equal(id, 4);
        rvi_sampler_free(s);
    }
}

static void a_bad_past(void **state)
{
    (void)state;
    float l[N] = {0};
    int32_t id;
    rv_sampling o = plain(1);
    o.repetition_penalty = 2;
    rvi_sampler *s = sampler(&o, N);
    assert_int_equal(rvi_sampler_pick(s, l, (int32_t[]){N}, 1, 0, &id, NULL), RV_E_INVALID);
    assert_int_equal(rvi_sampler_pick(s, l, (int32_t[]){-1}, 1, 0, &id, NULL), RV_E_INVALID);
    assert_int_equal(rvi_sampler_pick(s, l, (int32_t[]){1}, 1, 2, &id, NULL), RV_E_INVALID);
    assert_int_equal(rvi_sampler_pick(s, l, NULL, 1, 0, &id, NULL), RV_E_INVALID);
    rvi_sampler_free(s);
}

static void refuse(const rv_sampling *o, const char *word)
{
    rvi_sampler *s = (rvi_sampler *)&s;
    rv_error err = {0};
    assert_int_equal(rvi_sampling_check(o, &err), RV_E_CONFIG);
    if (!strstr(err.text, word)) fail_msg("'%s' does not say '%s'", err.text, word);
    assert_int_equal(rvi_sampler_new(&s, o, N, NULL, &err), RV_E_CONFIG);
    assert_null(s);
}

static void bad_options(void **state)
{
    (void)state;
    rv_sampling good = plain(1), o;
#define refused(field, value)                                                                      \
    o = good;                                                                                      \
    o.field = value;                                                                               \
    refuse(&o, #field)
#define refused_float(field, low, high)                                                            \
    refused(field, low);                                                                           \
    refused(field, high);                                                                          \
    refused(field, NAN);                                                                           \
    refused(field, INFINITY);                                                                      \
    refused(field, -INFINITY)
    refused_float(temperature, -1, 101);
    refused_float(top_p, 0, 1.5f);
    refused_float(min_p, -0.1f, 1.1f);
    refused_float(repetition_penalty, 0, 101);
    refused_float(frequency_penalty, -101, 101);
    refused_float(presence_penalty, -101, 101);
    refused_float(typical_p, 0, 1.1f);
    refused_float(top_n_sigma, -1, 101);
    refused_float(xtc_probability, -0.1f, 1.1f);
    refused_float(xtc_threshold, -0.1f, 1.1f);
    refused_float(dry_multiplier, -1, 101);
    refused_float(dry_base, 0.9f, 101);
    refused_float(mirostat_tau, -1, 101);
    refused_float(mirostat_eta, -0.1f, 1.1f);
    refused(top_k, -1);
    refused(repetition_window, -1);
    refused(dry_allowed_length, 0);
    refused(dry_allowed_length, RVI_DRY_LONGEST + 1);
    refused(dry_window, -1);
    refused(n_logit_bias, 1);
    refused(n_logit_bias, SIZE_MAX);
    refused(n_dry_breakers, 1);
    o = good;
    o.n_dry_breakers = RVI_DRY_BREAKERS_MAX + 1;
    refuse(&o, "dry_breakers");
    o.n_dry_breakers = 2;
    o.dry_breakers = (const char *const[]){"x", ""};
    refuse(&o, "dry_breakers[1]");
    o.dry_breakers = (const char *const[]){"x", NULL};
    refuse(&o, "dry_breakers[1]");
    char endless[RVI_DRY_BREAKER_LEN_MAX + 2];
    memset(endless, 'x', sizeof endless - 1);
    endless[sizeof endless - 1] = 0;
    o.dry_breakers = (const char *const[]){endless + 1, endless};
    refuse(&o, "dry_breakers[1]");
    o = good;
    o.n_logit_bias = 2;
    o.logit_bias = (rv_logit_bias[]){{1, 1}, {-1, 1}};
    refuse(&o, "logit_bias[1]");
    o.logit_bias = (rv_logit_bias[]){{1, 1}, {2, NAN}};
    refuse(&o, "logit_bias[1]");
    o.logit_bias = (rv_logit_bias[]){{1, 2e9f}, {2, 0}};
    refuse(&o, "logit_bias[0]");
    rvi_sampler *s;
    o.logit_bias = (rv_logit_bias[]){{1, 1}, {N, 1}}; /* only the vocabulary can tell */
    assert_int_equal(rvi_sampler_new(&s, &o, N, NULL, NULL), RV_E_CONFIG);
    assert_null(s);
    assert_int_equal(rvi_sampler_new(&s, &good, 0, NULL, NULL), RV_E_INVALID);
}

static void bad_orders(void **state)
{
    (void)state;
    rv_sampling o = plain(1);
    static const struct {
        const char *order, *says;
    } cases[] = {
        {"top_p,top_q", "'top_q'"},
        {"top_p,top_k,top_p", "'top_p' is listed twice"},
        {"top_p,", "''"},
        {",top_p", "''"},
        {"top_p,,top_k", "''"},
        {"top_p top_k", "no comma after stage 'top_p'"},
        {"Top_p", "'Top_p'"},
        {"top_p_", "'top_p_'"},
        {"top", "'top'"},
        {"top_p;top_k", "'top_p;top_k'"},
        {"penalties,dry\x1B,xtc", "'dry?'"}, /* control characters are made visible */
    };
    for (size_t i = 0; i < RVI_COUNT(cases); i++) {
        o.order = cases[i].order;
        refuse(&o, cases[i].says);
    }
    char endless[10001];
    memset(endless, 'x', sizeof endless - 1);
    endless[sizeof endless - 1] = 0;
    o.order = endless;
    refuse(&o, "xxxx");
    o.order = "mirostat,xtc,min_p,top_p,typical_p,top_k,temperature,top_n_sigma,dry,penalties";
    assert_ok(rvi_sampling_check(&o, err));
}

/* Programs built with an older or a newer header. */
static void sizes(void **state)
{
    (void)state;
    struct {
        rv_sampling o;
        uint64_t more[8];
    } newer;
    rv_sampling full, o;
    memset(&newer, 0xEE, sizeof newer);
    rvi_sampling_init(&newer.o, sizeof newer, false);
    assert_int_equal(newer.o.size, sizeof newer);
    newer.o.top_k = 7;
    assert_ok(rvi_sampling_check(&newer.o, err));
    rvi_sampling_read(&full, &newer.o);
    assert_int_equal(full.size, sizeof full);
    assert_int_equal(full.top_k, 7);

    size_t older = offsetof(rv_sampling, presence_penalty); /* a size that ends aligned */
    memset(&o, 0xEE, sizeof o);
    rvi_sampling_init(&o, older, false);
    assert_int_equal(o.size, older);
    assert_int_equal((unsigned char)((char *)&o)[older], 0xEE); /* not ours to write */
    o.top_k = 9;
    assert_ok(rvi_sampling_check(&o, err));
    rvi_sampling_read(&full, &o);
    assert_int_equal(full.size, sizeof full);
    assert_int_equal(full.top_k, 9);
    assert_true(full.typical_p == 1 && full.dry_base == 1.75f && full.mirostat_eta == 0.1f);
    assert_null(full.order);
    rvi_sampler *s = sampler(&o, N);
    pick(s, logits);
    rvi_sampler_free(s);

    memset(&o, 0xEE, sizeof o);
    rvi_sampling_init(&o, sizeof o.size - 1, false);
    assert_int_equal((unsigned char)((char *)&o)[0], 0xEE);
    static const size_t garbage[] = {
        0,        1,         sizeof(size_t) - 1, sizeof(rv_sampling) + 3, RVI_SAMPLING_SIZE_MAX + 8,
        SIZE_MAX, 0xEEEEEEEE};
    for (size_t i = 0; i < RVI_COUNT(garbage); i++) {
        o = plain(1);
        o.size = garbage[i];
        refuse(&o, "size");
    }
}

static void defaults(void **state)
{
    (void)state;
    rv_sampling o, read;
    rvi_sampling_init(&o, sizeof o, false);
    assert_true(o.temperature == 0.7f && o.top_p == 0.9f && o.min_p == 0 && o.top_k == 0);
    assert_true(o.repetition_penalty == 1.1f && o.repetition_window == 64 && o.seed == 0);
    assert_true(o.xtc_threshold == 0.1f && o.dry_allowed_length == 2 && o.dry_window == 0);
    rvi_sampling_read(&read, NULL);
    assert_memory_equal(&o, &read, sizeof o);
    assert_ok(rvi_sampling_check(NULL, err));
    rvi_sampling_init(&o, sizeof o, true);
    rvi_sampler *s = sampler(&o, N);
    assert_int_equal(s->n_stages, 0); /* greedy: the argmax of the raw logits */
    rvi_sampler_free(s);
    s = sampler(NULL, N);
    assert_int_equal(s->n_stages, 3);
    assert_string_equal(s->stages[0]->name, "penalties");
    assert_string_equal(s->stages[1]->name, "temperature");
    assert_string_equal(s->stages[2]->name, "top_p");
    rvi_sampler_free(s);
}

/* Strings and lists of the options may be gone after _new. */
static void options_are_copied(void **state)
{
    (void)state;
    char order[] = "top_k";
    rv_logit_bias bias[] = {{2, INFINITY}, {3, -INFINITY}};
    rv_sampling o = plain(1);
    o.order = order;
    o.top_k = 2;
    o.logit_bias = bias;
    o.n_logit_bias = 2;
    rvi_sampler *s = sampler(&o, N);
    memset(order, 'x', sizeof order);
    memset(bias, 0, sizeof bias);
    memset(&o, 0, sizeof o);
    assert_int_equal(pick(s, logits), 2);
    rvi_sampler_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_follow_the_softmax),
        cmocka_unit_test(draws_follow_the_survivors),
        cmocka_unit_test(xtc_comes_by_chance),
        cmocka_unit_test(the_order_is_the_callers),
        cmocka_unit_test(penalties_after_a_filter),
        cmocka_unit_test(greedy_takes_the_first_maximum),
        cmocka_unit_test(a_tiny_temperature_is_nearly_greedy),
        cmocka_unit_test(same_seed_same_tokens),
        cmocka_unit_test(the_same_tokens_everywhere),
        cmocka_unit_test(penalties),
        cmocka_unit_test(penalties_stay_finite),
        cmocka_unit_test(biases),
        cmocka_unit_test(masked_tokens_are_never_drawn),
        cmocka_unit_test(what_is_no_distribution),
        cmocka_unit_test(a_bad_past),
        cmocka_unit_test(bad_options),
        cmocka_unit_test(bad_orders),
        cmocka_unit_test(sizes),
        cmocka_unit_test(defaults),
        cmocka_unit_test(options_are_copied),
    };
    return cmocka_run_group_tests_name("sampler", tests, NULL, NULL);
}
