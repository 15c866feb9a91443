/* Picks from what a device says of logits, against picks from the logits: the same tokens, the same
 * random numbers used, or none at all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "decode/drawn.h"

enum { MOST = 9000 };
static float l[MOST];
static rvi_drawn d;

enum { FLAT, STEEP, TIED, EQUAL, MASKED, HUGE_ONES, KINDS };

static void fill(int kind, int n, rvi_rng *rng)
{
    for (int i = 0; i < n; i++) {
        double u = rvi_rng_double(rng) + rvi_rng_double(rng) - 1, v = rvi_rng_double(rng);
        l[i] = (float)(kind == FLAT        ? 2 * u
                       : kind == STEEP     ? 10 * u + (v < 0.01 ? 8 : 0)
                       : kind == TIED      ? floor(6 * u)
                       : kind == EQUAL     ? -1.5
                       : kind == HUGE_ONES ? 3e38 * u
                                           : 9 * u);
        if (kind == MASKED && i && v < 0.3) l[i] = -INFINITY;
        if (kind == TIED && l[i] == 0) l[i] = v < 0.5 ? -0.0f : 0.0f;
    }
}

typedef struct tally {
    int told, not_told;
} tally;

/* A few picks with both samplers, which stay together. */
static void compare(const rv_sampling *o, int kind, int n, int least, rvi_rng *rng, tally *to)
{
    rvi_sampler *s[2] = {sampler(o, n), sampler(o, n)};
    for (int k = 0; k < 3; k++) {
        rvi_draw_ask ask;
        int32_t got = -2;
        fill(kind, n, rng);
        if (!rvi_sampler_ask(s[1], 0, &ask)) ask.wants = RVI_DRAW_TOP;
        rv_sampling weighs = plain(ask.temperature);
        rvi_sampler *draws = sampler(&weighs, n);
        rvi_sampler_state now = rvi_sampler_get(s[1]);
        rvi_sampler_set(draws, &now);
        drawn_of(&d, l, n, &ask, draws, least);
        rvi_sampler_free(draws);
        int32_t want = pick(s[0], l);
        if (rvi_sampler_pick_drawn(s[1], &d, &got)) {
            to->told++;
            if (got != want)
                fail_msg("%d, not %d of %d: kind %d, temperature %g, top_k %d, top_p %g, min_p %g, "
                         "xtc %g, "
                         "typical %g, order %s, %d known",
                         got, want, n, kind, (double)o->temperature, o->top_k, (double)o->top_p,
                         (double)o->min_p, (double)o->xtc_probability, (double)o->typical_p,
                         o->order ? o->order : "-", d.n);
        } else {
            to->not_told++;
            assert_int_equal(got, -2);
            now = rvi_sampler_get(s[1]); /* nothing has changed */
            assert_int_equal(pick(s[1], l), want);
        }
        rvi_sampler_state a = rvi_sampler_get(s[0]), b = rvi_sampler_get(s[1]);
        assert_true(a.random == b.random && a.surprise == b.surprise);
    }
    rvi_sampler_free(s[0]);
    rvi_sampler_free(s[1]);
}

static rv_sampling options(rvi_rng *rng)
{
    static const float temperatures[] = {0, 1, 0.7f, 1.3f, 1e-3f, 2e-38f, 30};
    static const float top_ps[] = {1, 0.95f, 0.5f, 0.1f, 0.999f};
    static const float min_ps[] = {0, 0, 0.05f, 0.5f};
    static const int top_ks[] = {0, 0, 1, 5, 40, 200};
    rv_sampling o = plain(temperatures[rvi_rng_u64(rng) % RVI_COUNT(temperatures)]);
    o.top_p = top_ps[rvi_rng_u64(rng) % RVI_COUNT(top_ps)];
    o.min_p = min_ps[rvi_rng_u64(rng) % RVI_COUNT(min_ps)];
    o.top_k = top_ks[rvi_rng_u64(rng) % RVI_COUNT(top_ks)];
    o.seed = rvi_rng_u64(rng);
    if (rvi_rng_u64(rng) % 4 == 0) o.xtc_probability = 0.5f;
    if (rvi_rng_u64(rng) % 8 == 0) o.typical_p = 0.8f;
    if (rvi_rng_u64(rng) % 8 == 0) o.mirostat_tau = 3;
    if (rvi_rng_u64(rng) % 8 == 0) o.order = "top_p,temperature,top_k,min_p";
    if (rvi_rng_u64(rng) % 8 == 0) o.order = "min_p,top_k,temperature,xtc";
    return o;
}

static void same_tokens(void **state)
{
    (void)state;
    rvi_rng rng = {3};
    static const int sizes[] = {1, 2, 40, 255, 257, 1000, 1024, 1025, 5000, MOST};
    tally all = {0};
    for (int i = 0; i < 1000; i++) {
        rv_sampling o = options(&rng);
        int n = sizes[rvi_rng_u64(&rng) % RVI_COUNT(sizes)];
        static const int leasts[] = {1, 20, 256, 600};
        int least = leasts[rvi_rng_u64(&rng) % RVI_COUNT(leasts)];
        compare(&o, (int)(rvi_rng_u64(&rng) % KINDS), n, least, &rng, &all);
    }
    print_message("# %d picks were told, %d were not\n", all.told, all.not_told);
    assert_true(all.told > 1500 && all.not_told > 300);
}

/* What is common is told from 256 logits. */
static void common_ones_are_told(void **state)
{
    (void)state;
    rvi_rng rng = {4};
    tally k = {0}, p = {0}, m = {0}, whole = {0}, greedy = {0}, deep = {0};
    for (int i = 0; i < 20; i++) {
        rv_sampling o = plain(0.8f);
        o.seed = (uint64_t)i;
        compare(&o, STEEP, 5000, 256, &rng, &whole);
        o.top_p = 0.5f;
        compare(&o, STEEP, 5000, 256, &rng, &p);
        o.top_p = 0.95f;
        o.top_k = 40;
        compare(&o, STEEP, 5000, 256, &rng, &k);
        o.top_k = 0;
        o.top_p = 1;
        o.min_p = 0.1f;
        compare(&o, STEEP, 5000, 256, &rng, &m);
        o = plain(0);
        compare(&o, STEEP, 5000, 256, &rng, &greedy);
        o = plain(1);
        o.top_k = 700;
        compare(&o, STEEP, 5000, 256, &rng, &deep);
    }
    assert_true(!whole.not_told && !p.not_told && !k.not_told && !m.not_told && !greedy.not_told);
    assert_true(!deep.told);
}

/* Which samplers ask for what. */
static void asks(void **state)
{
    (void)state;
    rvi_draw_ask ask;
    const struct {
        float temperature, top_p, min_p, penalty, typical, sigma;
        int top_k, wants; /* -1: all */
    } cases[] = {
        {0, 0.9f, 0, 1, 1, 0, 40, 0},
        {0.7f, 1, 0, 1, 1, 0, 0, RVI_DRAW_WEIGHTS},
        {0.7f, 0.9f, 0, 1, 1, 0, 0, RVI_DRAW_TOP | RVI_DRAW_WEIGHTS},
        {0.7f, 0.9f, 0.1f, 1, 1, 0, 40, RVI_DRAW_TOP},
        {0.7f, 1, 0.1f, 1, 1, 0, 0, RVI_DRAW_TOP},
        {0.7f, 1, 0.1f, 1, 1, 0, RVI_DRAW_LEAST, -1},
        {0.7f, 1, 0.1f, 1.1f, 1, 0, 40, -1},
        {0, 1, 0, 1.1f, 1, 0, 0, -1},
        {0.7f, 1, 0, 1, 0.5f, 0, 0, -1},
        {0.7f, 1, 0, 1, 1, 2, 40, -1},
    };
    for (size_t i = 0; i < RVI_COUNT(cases); i++) {
        rv_sampling o = plain(cases[i].temperature);
        o.top_p = cases[i].top_p;
        o.min_p = cases[i].min_p;
        o.repetition_penalty = cases[i].penalty;
        o.typical_p = cases[i].typical;
        o.top_n_sigma = cases[i].sigma;
        o.top_k = cases[i].top_k;
        rvi_sampler *s = sampler(&o, 5000);
        bool can = rvi_sampler_ask(s, 0, &ask);
        assert_int_equal(can, cases[i].wants >= 0);
        if (can) assert_int_equal(ask.wants, cases[i].wants);
        assert_true(!can || (ask.random >= 0) == (ask.wants == RVI_DRAW_WEIGHTS));
        rvi_sampler_free(s);
    }
}

/* The random number for a pick that comes later is the one that is used then. */
static void random_numbers_ahead(void **state)
{
    (void)state;
    rv_sampling o = plain(1);
    rvi_sampler *s = sampler(&o, 3);
    rvi_draw_ask now, ahead[5];
    for (int i = 0; i < 5; i++) assert_true(rvi_sampler_ask(s, i, &ahead[i]));
    for (int i = 0; i < 5; i++) {
        assert_true(rvi_sampler_ask(s, 0, &now) && now.random == ahead[i].random);
        (void)pick(s, (const float[]){1, 2, 3});
    }
    rvi_sampler_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_tokens),
        cmocka_unit_test(common_ones_are_told),
        cmocka_unit_test(asks),
        cmocka_unit_test(random_numbers_ahead),
    };
    return cmocka_run_group_tests_name("sampler_drawn", tests, NULL, NULL);
}
