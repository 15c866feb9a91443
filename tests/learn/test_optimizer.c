/* Adam against torch.optim.AdamW in float64 without decay, the rates against
 * torch.optim.lr_scheduler; clipping and warm-up against their formulas computed in Python. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/mem.h"
#include "harness/assert_ok.h"
#include "learn/consolidate/optimizer.h"

static void curves(void **state)
{
    (void)state;
    enum { POINTS = 8 };
    static const int at[POINTS] = {0, 1, 3, 4, 10, 20, 30, 39};
    static const double want[POINTS] = {0.0005,         0.000998458667, 0.00197236992,
                                        0.001951056516, 0.001707106781, 0.001,
                                        0.000292893219, 3.082666e-06};
    for (int p = 0; p < POINTS; p++) {
        double rate = rvi_rate_at(at[p], 40, 2e-3, 0.1);
        if (fabs(rate - want[p]) > 1e-11)
            fail_msg("step %d: %.12g, wanted %.12g", at[p], rate, want[p]);
    }
}

/* The curve is spread over the steps that are taken, however few. */
static void few_steps(void **state)
{
    (void)state;
    for (int n = 0; n <= 3; n++)
        for (int t = -1; t <= n + 1; t++) {
            double rate = rvi_rate_at(t, n, 1, 0.03);
            assert_true(rate > 0 && rate <= 1);
        }
    assert_true(rvi_rate_at(9999, 10000, 1, 0) < 1e-6);
    assert_true(rvi_rate_at(9, 10, 1, 0) < 0.03);
}

static rvi_backend *cpu(int n_threads)
{
    rvi_backend *be;
    assert_ok(rvi_backend_cpu_new(&be, &(rvi_cpu_options){.n_threads = n_threads}, NULL, err));
    return be;
}

enum { N = 5, STEPS = 4 };
static const float start[N] = {0.5f, -1.0f, 0.25f, 2.0f, 0.0f};
static const float gradients[STEPS][N] = {{0.1f, -0.2f, 0.3f, 0.0f, 1.0f},
                                          {2.0f, -1.0f, 0.5f, 0.25f, -3.0f},
                                          {0.01f, 0.02f, -0.03f, 0.04f, 0.0f},
                                          {-0.5f, 0.5f, 0.5f, -0.5f, 0.5f}};
static const double rates[STEPS] = {0.01, 0.02, 0.015, 0.005};

/* Long gradients are clipped, short ones are not. */
static void adam(void **state)
{
    (void)state;
    static const struct {
        float scale; /* of the gradients */
        double want[N];
    } cases[] = {
        {0.25f, {0.463751822, -0.961897607, 0.205319772, 1.976466651, 0.006692643}},
        {1, {0.462773273, -0.959789521, 0.207850513, 1.975096688, -0.012048247}},
    };
    rvi_backend *be = cpu(1);
    for (size_t i = 0; i < RVI_COUNT(cases); i++) {
        rvi_optimizer *p;
        float theta[N], grad[N];
        assert_ok(rvi_optimizer_new(&p, N, be, err));
        memcpy(theta, start, sizeof theta);
        for (int t = 0; t < STEPS; t++) {
            for (int j = 0; j < N; j++) grad[j] = cases[i].scale * gradients[t][j];
            assert_true(rvi_optimizer_step(p, theta, grad, rates[t]));
        }
        for (int j = 0; j < N; j++)
            assert_true(fabs(theta[j] - cases[i].want[j]) < 1e-6); /* observed: 1.5e-7 */
        rvi_optimizer_free(p);
    }
    be->ops->free(be);
}

/* A gradient that is no number leaves everything as it was. */
static void not_finite(void **state)
{
    (void)state;
    static const float broken[] = {NAN, INFINITY, -INFINITY};
    rvi_backend *be = cpu(1);
    for (size_t i = 0; i < RVI_COUNT(broken); i++) {
        rvi_optimizer *p;
        float theta[N], before[N], grad[N], m[N], v[N];
        assert_ok(rvi_optimizer_new(&p, N, be, err));
        memcpy(theta, start, sizeof theta);
        assert_true(rvi_optimizer_step(p, theta, gradients[0], 0.01));
        memcpy(before, theta, sizeof theta);
        memcpy(m, p->m, sizeof m);
        memcpy(v, p->v, sizeof v);
        memcpy(grad, gradients[1], sizeof grad);
        grad[i] = broken[i];
        assert_false(rvi_optimizer_step(p, theta, grad, 0.01));
        assert_memory_equal(theta, before, sizeof theta);
        assert_memory_equal(p->m, m, sizeof m);
        assert_memory_equal(p->v, v, sizeof v);
        assert_int_equal(p->n_steps, 1);
        assert_true(rvi_optimizer_step(p, theta, gradients[1], 0.01));
        rvi_optimizer_free(p);
    }
    be->ops->free(be);
}

/* More parameters than one thread's portion: the bits are those of one thread. */
static void threads(void **state)
{
    (void)state;
    enum { MANY = 70001 };
    static float alone[MANY], together[MANY], grad[MANY];
    rvi_backend *one = cpu(1), *three = cpu(3);
    rvi_optimizer *p, *q;
    assert_ok(rvi_optimizer_new(&p, MANY, one, err));
    assert_ok(rvi_optimizer_new(&q, MANY, three, err));
    for (int i = 0; i < MANY; i++) alone[i] = together[i] = (float)(i % 13) - 6;
    for (int t = 0; t < STEPS; t++) {
        for (int i = 0; i < MANY; i++) grad[i] = (float)((i * 31 + t * 17) % 101) / 101 - 0.5f;
        assert_true(rvi_optimizer_step(p, alone, grad, rates[t]));
        assert_true(rvi_optimizer_step(q, together, grad, rates[t]));
        assert_memory_equal(alone, together, sizeof alone);
    }
    assert_memory_equal(p->m, q->m, sizeof alone);
    assert_memory_equal(p->v, q->v, sizeof alone);
    rvi_optimizer_free(p);
    rvi_optimizer_free(q);
    one->ops->free(one);
    three->ops->free(three);
}

static void random_gradient(void **state)
{
    (void)state;
    enum { MANY = 4001 };
    static float a[MANY], b[MANY], was[MANY];
    for (int i = 0; i < MANY; i++) was[i] = (float)(i % 7) - 3;
    memcpy(a, was, sizeof a);
    memcpy(b, was, sizeof b);
    double norm = rvi_gradient_norm(was, MANY), along = 0, mean = 0;
    rvi_gradient_randomise(a, MANY, 1);
    assert_true(fabs(rvi_gradient_norm(a, MANY) - norm) < 1e-4 * norm);
    for (int i = 0; i < MANY; i++) {
        along += (double)a[i] * was[i];
        mean += a[i];
    }
    assert_true(fabs(along) < 0.05 * norm * norm);
    assert_true(fabs(mean) < 0.05 * norm * sqrt(MANY));
    rvi_gradient_randomise(b, MANY, 1);
    assert_memory_equal(a, b, sizeof a); /* the same for a seed */
    memcpy(b, was, sizeof b);
    rvi_gradient_randomise(b, MANY, 2);
    assert_memory_not_equal(a, b, sizeof a);
    memset(b, 0, sizeof b);
    rvi_gradient_randomise(b, MANY, 3);
    assert_true(rvi_gradient_norm(b, MANY) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(curves),  cmocka_unit_test(few_steps),  cmocka_unit_test(adam),
        cmocka_unit_test(threads), cmocka_unit_test(not_finite), cmocka_unit_test(random_gradient),
    };
    return cmocka_run_group_tests_name("optimizer", tests, NULL, NULL);
}
