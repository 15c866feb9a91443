/* Sampling against the distribution it must have, penalties, seeds, bad options. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include <math.h>

#include "decode/sampler.h"

enum { N = 8 };
static const float logits[N] = {1.5f, 3.0f, -1.0f, 2.9f, 0.0f, 2.0f, -4.0f, 1.0f};

static int32_t pick_once(rvi_sampler *s, const float *l, const int32_t *past, size_t n_past,
                         size_t n_prompt)
{
    float copy[N];
    int32_t id = -1;
    memcpy(copy, l, sizeof copy);
    assert_int_equal(rvi_sampler_pick(s, copy, past, n_past, n_prompt, &id, NULL), RV_OK);
    return id;
}

static rv_sampling plain(float temperature)
{
    rv_sampling o;
    rv_sampling_init_greedy(&o);
    o.temperature = temperature;
    o.seed = 42;
    return o;
}

/* Pearson's statistic of `draws` draws against the wanted probabilities; a zero probability must
 * never be drawn. */
static double chi_square(const rv_sampling *o, const double *want, int draws)
{
    rvi_sampler *s;
    int count[N] = {0};
    double sum = 0;
    assert_int_equal(rvi_sampler_new(&s, o, N, NULL), RV_OK);
    for (int i = 0; i < draws; i++) count[pick_once(s, logits, NULL, 0, 0)]++;
    for (int i = 0; i < N; i++) {
        if (want[i] == 0)
            assert_int_equal(count[i], 0);
        else
            sum += pow(count[i] - draws * want[i], 2) / (draws * want[i]);
    }
    rvi_sampler_free(s);
    return sum;
}

static void softmax(double temperature, const bool *keep, double *out)
{
    double total = 0;
    for (int i = 0; i < N; i++)
        total += out[i] = !keep || keep[i] ? exp(logits[i] / temperature) : 0;
    for (int i = 0; i < N; i++) out[i] /= total;
}

static void draws_follow_the_softmax(void **state)
{
    (void)state;
    double want[N];
    rv_sampling o = plain(0.8f);
    softmax((double)o.temperature, NULL, want);
    assert_true(chi_square(&o, want, 100000) < 24.3); /* 7 degrees of freedom, p = 0.001 */
}

static void filters_keep_the_best(void **state)
{
    (void)state;
    double want[N];
    rv_sampling o = plain(1);
    o.top_k = 3;
    softmax(1, (bool[N]){0, 1, 0, 1, 0, 1, 0, 0}, want);
    assert_true(chi_square(&o, want, 20000) < 13.8); /* 2 degrees of freedom, p = 0.001 */
    o = plain(1);
    o.top_p = 0.75f; /* 0.370 + 0.335 = 0.705, so a third one belongs to it */
    assert_true(chi_square(&o, want, 20000) < 13.8);
    o = plain(1);
    o.min_p = 0.3f; /* of the best one's: 3.0 - ln(1/0.3) = 1.796 */
    assert_true(chi_square(&o, want, 20000) < 13.8);
    o = plain(1);
    o.top_p = 1e-6f; /* at least one stays */
    softmax(1, (bool[N]){0, 1}, want);
    assert_true(chi_square(&o, want, 100) < 1e-9);
}

static void greedy_takes_the_first_maximum(void **state)
{
    (void)state;
    rvi_sampler *s;
    rv_sampling o = plain(0);
    float tie[N] = {0, 5, 1, 5, 0, 0, 0, 0};
    assert_int_equal(rvi_sampler_new(&s, &o, N, NULL), RV_OK);
    assert_int_equal(pick_once(s, logits, NULL, 0, 0), 1);
    assert_int_equal(pick_once(s, tie, NULL, 0, 0), 1);
    rvi_sampler_free(s);
}

static void same_seed_same_tokens(void **state)
{
    (void)state;
    rv_sampling o;
    rv_sampling_init(&o);
    o.repetition_penalty = 1;
    int differing = 0;
    for (uint64_t seed = 1; seed < 20; seed++) {
        rvi_sampler *a, *b, *c;
        o.seed = seed;
        assert_int_equal(rvi_sampler_new(&a, &o, N, NULL), RV_OK);
        assert_int_equal(rvi_sampler_new(&b, &o, N, NULL), RV_OK);
        o.seed = seed + 1000;
        assert_int_equal(rvi_sampler_new(&c, &o, N, NULL), RV_OK);
        for (int i = 0; i < 50; i++) {
            int32_t id = pick_once(a, logits, NULL, 0, 0);
            assert_int_equal(id, pick_once(b, logits, NULL, 0, 0));
            differing += id != pick_once(c, logits, NULL, 0, 0);
        }
        rvi_sampler_free(a);
        rvi_sampler_free(b);
        rvi_sampler_free(c);
    }
    assert_true(differing > 100);
}

static void penalties(void **state)
{
    (void)state;
    rvi_sampler *s;
    static const int32_t past[] = {1, 3, 3};
    rv_sampling o = plain(0);
    o.repetition_penalty =
        2; /* 3.0 -> 1.5, 2.9 -> 1.45: 2.0 wins; negative logits grow more negative */
    assert_int_equal(rvi_sampler_new(&s, &o, N, NULL), RV_OK);
    assert_int_equal(pick_once(s, logits, past, 3, 3), 5);
    float negative[N] = {-1, -1.5f, -3, -3, -3, -3, -3, -3};
    assert_int_equal(pick_once(s, negative, (int32_t[]){0}, 1, 1), 1);
    rvi_sampler_free(s);
    o.repetition_window = 1; /* only the last token, 3, is held against it */
    assert_int_equal(rvi_sampler_new(&s, &o, N, NULL), RV_OK);
    assert_int_equal(pick_once(s, logits, past, 3, 3), 1);
    rvi_sampler_free(s);

    o = plain(0);
    o.presence_penalty = 0.05f; /* prompt tokens do not count */
    o.frequency_penalty = 0.04f;
    assert_int_equal(rvi_sampler_new(&s, &o, N, NULL), RV_OK);
    assert_int_equal(pick_once(s, logits, past, 3, 3), 1);
    assert_int_equal(pick_once(s, logits, past, 1, 0), 1);                 /* 3.0 - 0.09 = 2.91 */
    assert_int_equal(pick_once(s, logits, (int32_t[]){1, 1}, 2, 0), 3);    /* 3.0 - 0.13 = 2.87 */
    assert_int_equal(pick_once(s, logits, (int32_t[]){1, 1, 3}, 3, 0), 1); /* 2.87 against 2.81 */
    rvi_sampler_free(s);
}

static void what_is_not_a_number(void **state)
{
    (void)state;
    rvi_sampler *s;
    rv_error err = {0};
    rv_sampling o = plain(1);
    float bad[N] = {0, 0, NAN}, flat[N];
    int32_t id;
    assert_int_equal(rvi_sampler_new(&s, &o, N, NULL), RV_OK);
    assert_int_equal(rvi_sampler_pick(s, bad, NULL, 0, 0, &id, &err), RV_E_GENERATION);
    for (int i = 0; i < N; i++) flat[i] = -INFINITY;
    assert_int_equal(rvi_sampler_pick(s, flat, NULL, 0, 0, &id, &err), RV_E_GENERATION);
    flat[4] = 1; /* one possible token */
    assert_int_equal(rvi_sampler_pick(s, flat, NULL, 0, 0, &id, &err), RV_OK);
    assert_int_equal(id, 4);
    rvi_sampler_free(s);
}

static void bad_options(void **state)
{
    (void)state;
    rvi_sampler *s;
    rv_sampling good = plain(1), o;
#define refused(field, value)                                                                      \
    o = good;                                                                                      \
    o.field = value;                                                                               \
    assert_int_equal(rvi_sampler_new(&s, &o, N, NULL), RV_E_CONFIG);                               \
    assert_null(s)
    refused(temperature, -1);
    refused(temperature, NAN);
    refused(top_p, 0);
    refused(top_p, 1.5f);
    refused(min_p, -0.1f);
    refused(top_k, -1);
    refused(repetition_penalty, 0);
    refused(repetition_window, -1);
    refused(frequency_penalty, INFINITY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_follow_the_softmax),
        cmocka_unit_test(filters_keep_the_best),
        cmocka_unit_test(greedy_takes_the_first_maximum),
        cmocka_unit_test(same_seed_same_tokens),
        cmocka_unit_test(penalties),
        cmocka_unit_test(what_is_not_a_number),
        cmocka_unit_test(bad_options),
    };
    return cmocka_run_group_tests_name("sampler", tests, NULL, NULL);
}
