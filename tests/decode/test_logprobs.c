/* Log-probabilities against sums in long double, and the best tokens against plain sorting. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>
#include <math.h>

#include "base/rng.h"
#include "decode/logprobs.h"

enum { N = 3001 };
static float l[N];

static void sums(void **state)
{
    (void)state;
    rvi_rng rng = {5};
    static const double spread[] = {0, 1, 30, 2000};
    for (int k = 0; k < 4; k++) {
        long double sum = 0, best = -INFINITY;
        for (int i = 0; i < N; i++) {
            l[i] = (float)(spread[k] * (rvi_rng_double(&rng) - 0.3) + 50);
            if ((long double)l[i] > best) best = (long double)l[i];
        }
        for (int i = 0; i < N; i++) sum += expl((long double)l[i] - best);
        assert_true(fabs(rvi_log_sum_exp(l, N) - (double)(best + logl(sum))) < 1e-12 * 2000);
    }
    assert_true(rvi_log_sum_exp((float[]){0, 0}, 2) == log(2));
    assert_true(rvi_log_sum_exp((float[]){-INFINITY, 3}, 2) == 3);
    assert_true(rvi_log_sum_exp((float[]){-INFINITY, -INFINITY}, 2) == -INFINITY);
    assert_true(rvi_log_sum_exp(l, 0) == -INFINITY);
    assert_true(rvi_log_sum_exp((float[]){1, INFINITY}, 2) == INFINITY);
    assert_true(isnan(rvi_log_sum_exp((float[]){INFINITY, NAN}, 2)));
}

static int best_first(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    if (l[x] != l[y]) return l[x] < l[y] ? 1 : -1;
    return x < y ? -1 : 1;
}

static void best_tokens(void **state)
{
    (void)state;
    rvi_rng rng = {6};
    for (int kind = 0; kind < 4; kind++) {
        int32_t order[N];
        rv_token_prob top[21];
        for (int i = 0; i < N; i++) {
            double u = rvi_rng_double(&rng);
            l[i] = kind == 0 ? (float)(9 * u) : kind == 1 ? (float)(int)(5 * u) : (float)(kind * i);
            if (kind == 3 && i % 2) l[i] = -INFINITY;
            order[i] = i;
        }
        qsort(order, N, sizeof order[0], best_first);
        double log_sum = rvi_log_sum_exp(l, N);
        for (int n_top = 0; n_top <= 20; n_top++) {
            top[n_top].id = -77;
            rvi_top_logprobs(l, N, log_sum, top, n_top);
            for (int i = 0; i < n_top; i++) {
                assert_int_equal(top[i].id, order[i]);
                assert_true(fabs((double)top[i].logprob - ((double)l[order[i]] - log_sum)) <
                            1e-6 * 6000);
            }
            assert_int_equal(top[n_top].id, -77);
        }
    }
}

static void fewer_than_asked_for(void **state)
{
    (void)state;
    rv_token_prob top[4];
    rvi_top_logprobs((float[]){1, NAN, 2}, 3, 2.5, top, 4);
    assert_int_equal(top[0].id, 2);
    assert_true(top[0].logprob == -0.5f);
    assert_int_equal(top[1].id, 0);
    for (int i = 2; i < 4; i++) {
        assert_int_equal(top[i].id, -1);
        assert_true(top[i].logprob == -INFINITY);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums),
        cmocka_unit_test(best_tokens),
        cmocka_unit_test(fewer_than_asked_for),
    };
    return cmocka_run_group_tests_name("logprobs", tests, NULL, NULL);
}
