/* The parts of the scheduler by themselves: whose turn it is, how many rows a step may have, what
 * is counted, what is told. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "harness/assert_ok.h"
#include "decode/budget.h"
#include "scheduler/events.h"
#include "scheduler/figures.h"
#include "scheduler/pace.h"
#include "scheduler/tenants.h"

/* ---- tenants ---- */

static bool has_waiting(void *ctx, const rvi_tenant *x)
{
    (void)ctx;
    return x->first != NULL;
}

/* Two tenants that always want more get the same number of rows, whatever the sizes of their
 * requests; a third that comes late and wants little gets that at once. */
static void turns_are_fair(void **state)
{
    (void)state;
    rvi_tenants t = {.quantum = 64};
    rvi_tenant *of[3];
    rvi_waiting wants[3] = {{0}};
    int64_t rows[3] = {0};
    static const int size[] = {1000, 10, 30};
    assert_ok(rvi_tenants_join(&t, "large", &of[0], err));
    assert_ok(rvi_tenants_join(&t, "small", &of[1], err));
    for (int i = 0; i < 2; i++) rvi_tenant_wait(of[i], &wants[i]);
    for (int n = 0; n < 5000; n++) {
        rvi_tenant *x = rvi_tenants_next(&t, has_waiting, NULL);
        int i = x == of[1];
        rvi_tenants_pay(&t, x, size[i]);
        rows[i] += size[i];
    }
    assert_true(labs((long)(rows[0] - rows[1])) <= 2 * 1000 + 64);
    assert_ok(rvi_tenants_join(&t, "late", &of[2], err));
    rvi_tenant_wait(of[2], &wants[2]);
    int waited = 0;
    while (rvi_tenants_next(&t, has_waiting, NULL) != of[2]) {
        rvi_tenant *x = rvi_tenants_next(&t, has_waiting, NULL);
        rvi_tenants_pay(&t, x, size[x == of[1]]);
        waited += size[x == of[1]];
    }
    assert_true(waited <= 1000 + 64);
    for (int i = 0; i < 3; i++) {
        rvi_tenant_unwait(of[i], &wants[i]);
        rvi_tenants_leave(&t, of[i]);
    }
    assert_null(t.turn);
    assert_null(rvi_tenants_next(&t, has_waiting, NULL));
}

/* What a tenant used while it was alone is soon forgotten. */
static void debts_have_a_limit(void **state)
{
    (void)state;
    rvi_tenants t = {.quantum = 64};
    rvi_tenant *a, *b;
    rvi_waiting wants[2] = {{0}};
    assert_ok(rvi_tenants_join(&t, "a", &a, err));
    rvi_tenants_pay(&t, a, 1000000);
    assert_ok(rvi_tenants_join(&t, "b", &b, err));
    rvi_tenant_wait(a, &wants[0]);
    rvi_tenant_wait(b, &wants[1]);
    int rows = 0;
    for (; rvi_tenants_next(&t, has_waiting, NULL) != a; rows += 16) rvi_tenants_pay(&t, b, 16);
    assert_in_range(rows, 64, 64 * 10);
    rvi_tenant_unwait(a, &wants[0]);
    rvi_tenant_unwait(b, &wants[1]);
    rvi_tenants_leave(&t, a);
    rvi_tenants_leave(&t, b);
}

static void ranks_decide_within_a_tenant(void **state)
{
    (void)state;
    rvi_tenants t = {.quantum = 64};
    rvi_tenant *x;
    rvi_waiting w[4] = {{.rank = 3}, {.rank = 1}, {.rank = 2}, {.rank = 1}};
    assert_ok(rvi_tenants_join(&t, "x", &x, err));
    for (int i = 0; i < 4; i++) rvi_tenant_wait(x, &w[i]);
    static const int order[] = {1, 3, 2, 0}; /* of equals the first to wait */
    for (int i = 0; i < 4; i++) {
        assert_ptr_equal(x->first, &w[order[i]]);
        rvi_tenant_unwait(x, x->first);
    }
    rvi_tenant_unwait(x, &w[0]); /* not there */
    rvi_tenants_leave(&t, x);
}

/* ---- budget ---- */

/* On a machine whose steps cost a + b n, it settles where a step takes what it should; when rows
 * grow dearer or cheaper it follows. */
static void rows_follow_the_time(void **state)
{
    (void)state;
    rvi_budget b = {0};
    rvi_rng rng = {1};
    double row = 1e-3;
    for (int phase = 0; phase < 3; phase++) {
        static const double costs[] = {1e-3, 4e-3, 0.5e-3};
        row = costs[phase];
        int n = 0;
        for (int step = 0; step < 400; step++) {
            n = rvi_budget_rows(&b, 24, 512, 0.05);
            double noise = 0.95 + 0.1 * rvi_rng_double(&rng);
            rvi_budget_note(&b, n, (4e-3 + row * n) * noise);
            rvi_budget_note(&b, 8, (4e-3 + row * 8) * noise);
        }
        double want = (0.05 - 4e-3) / row, seconds = 4e-3 + row * n;
        if (want < 24) {
            assert_int_equal(n, 24); /* the least */
        } else {
            assert_true(n > 0.7 * want);
            assert_true(seconds < 0.05 * 1.3);
        }
    }
    assert_int_equal(rvi_budget_rows(&b, 24, 30, 1e9), 30);
    assert_int_equal(rvi_budget_rows(&b, 24, 24, 0), 24);
}

/* ---- pace ---- */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef struct machine {
    /* seconds of a step, of each row, more a token before it, and a token before it for a step */
    double base, row, depth, before;
    rvi_rng rng;
    rvi_pace pace;
} machine;

static double step(machine *m, int n_tokens, int n_read, int n_before)
{
    double seconds = m->base + m->row * (n_tokens + n_read) + m->depth * n_before * n_read;
    if (n_read) seconds += m->before * n_before;
    seconds *= 0.95 + 0.1 * rvi_rng_double(&m->rng);
    m->pace.alone = true;
    rvi_pace_note(&m->pace, n_tokens, n_tokens + n_read, seconds);
    return seconds;
}

/* Reads a prompt beside so many streams; how long the streams wait, as 95 % of steps do. */
static double read_beside(machine *m, int n_tokens, int n_long, int n_prompt, int *n_steps)
{
    enum { MOST = 20000, MAX_ROWS = 512 };
    static double seconds[MOST];
    *n_steps = 0;
    for (int at = 0, n; at < n_prompt; at += n) {
        assert_true(*n_steps < MOST);
        n = rvi_pace_rows(&m->pace, n_tokens, n_long, MAX_ROWS, 0.05);
        assert_in_range(n, 0, MAX_ROWS - n_tokens);
        seconds[(*n_steps)++] = step(m, n_tokens, n, at);
    }
    qsort(seconds, (size_t)*n_steps, sizeof *seconds, by_size);
    return seconds[*n_steps * 95 / 100];
}

/* A prompt of 6,000 tokens makes streams wait half as long again at most, and yet ends; also when
 * the machine becomes slower meanwhile, or there are other streams than before. */
static void long_prompts_are_read_gently(void **state)
{
    (void)state;
    machine m = {.base = 4e-3, .row = 5e-4, .depth = 2e-8, .rng = {3}};
    int n_steps, slow;
    assert_int_equal(rvi_pace_rows(&m.pace, 8, 1, 512, 0.05), 0); /* to be measured */
    for (int i = 0; i < 50; i++) (void)step(&m, 8, 0, 0);
    double alone = m.base + 8 * m.row;
    assert_true(read_beside(&m, 8, 1, 6000, &n_steps) < 1.5 * alone);
    assert_true(n_steps < 6000 / 2);
    m.row *= 2;
    m.base *= 2;
    m.depth *= 2;
    assert_true(read_beside(&m, 8, 1, 6000, &slow) < 1.5 * 2 * alone);
    assert_true(slow < 2 * 6000);
    assert_true(read_beside(&m, 30, 1, 2000, &n_steps) < 1.5 * (m.base + 30 * m.row));
    (void)read_beside(&m, 1, 1, 2000, &n_steps);
    assert_true(read_beside(&m, 1, 7, 2000, &slow) <= 0.05 * 1.1);
    assert_true(slow < n_steps / 2); /* one listens and seven wait: they count for more */
    m = (machine){.base = 4e-3, .row = 1e-3, .depth = 2e-7, .before = 2e-6, .rng = {3}};
    for (int i = 0; i < 50; i++) (void)step(&m, 8, 0, 0);
    alone = m.base + 8 * m.row;
    assert_true(read_beside(&m, 8, 1, 6000, &n_steps) < 1.5 * alone);
    m.base = 0.2;
    (void)read_beside(&m, 8, 1, 1000, &n_steps); /* beyond the target: it ends all the same */
    assert_true(n_steps <= 1000 + 50);
}

/* ---- figures ---- */

static void quantiles_are_near(void **state)
{
    (void)state;
    enum { N = 20000 };
    static double values[N];
    static rvi_figures f;
    static rv_service_metrics m;
    rvi_rng rng = {5};
    double sum = 0;
    for (int i = 0; i < N; i++) {
        values[i] = 1e-5 * exp(9 * rvi_rng_double(&rng)); /* 10 us to 80 ms */
        rvi_tally_add(&f.step, values[i]);
        sum += values[i];
    }
    rvi_tally_add(&f.queue, 0);
    rvi_tally_add(&f.queue, 1e9);
    rvi_figures_add(&f.n_done, 7);
    rvi_figures_read(&f, &m);
    qsort(values, N, sizeof *values, by_size);
    assert_int_equal(m.step.n, N);
    assert_int_equal(m.n_done, 7);
    assert_true(fabs(m.step.sum - sum) < 1e-3 * sum);
    assert_true(fabs(m.step.max - values[N - 1]) < 1e-8);
    static const double shares[] = {0.01, 0.5, 0.95, 0.99, 1};
    for (size_t i = 0; i < RVI_COUNT(shares); i++) {
        double want = values[(int)(shares[i] * (N - 1))];
        double got = rv_histogram_quantile(&m.step, shares[i]);
        if (fabs(got - want) > 0.016 * want) fail_msg("%g: %g, not %g", shares[i], got, want);
    }
    assert_int_equal(m.queue.counts[0], 1);
    assert_int_equal(m.queue.counts[RV_HISTOGRAM_BUCKETS - 1], 1);
    assert_true(rv_histogram_quantile(&m.inter_token, 0.5) == 0);
    assert_true(rv_histogram_quantile(NULL, 0.5) == 0);
    for (int i = 1; i < RV_HISTOGRAM_BUCKETS; i++)
        assert_true(rv_histogram_bound(i) > rv_histogram_bound(i - 1));
}

/* ---- events ---- */

static void events_keep_what_they_point_to(void **state)
{
    (void)state;
    rvi_events e;
    rv_token_prob probs[3] = {{1, -0.5f}, {2, -1}, {3, -2}};
    float values[] = {1, 2, 3, 4, 5};
    assert_ok(rvi_events_init(&e, err));
    assert_false(rvi_events_hand_over(&e));
    assert_null(rvi_events_take(&e));
    for (uint64_t k = 1; k < 50; k++) {
        char text[64];
        int len = snprintf(text, sizeof text, "text %d of %d", (int)k, (int)(k * k));
        assert_ok(rvi_events_promise(&e, 1, err));
        rv_service_event ev = {.kind = RV_SERVICE_TOKEN,
                               .request = k,
                               .text = text,
                               .text_len = (size_t)len,
                               .chosen = &probs[0],
                               .top = probs,
                               .n_top = 3};
        assert_true(rvi_events_put(&e, &ev));
        ev = (rv_service_event){.kind = RV_SERVICE_DONE,
                                .request = k,
                                .values = values,
                                .n_values = 5,
                                .status = RV_E_NO_PAGES,
                                .error = text};
        rvi_events_put_last(&e, &ev);
        memset(text, 'x', sizeof text);
        if (k % 3 == 0) assert_true(rvi_events_hand_over(&e));
    }
    assert_true(rvi_events_hand_over(&e));
    assert_int_equal(atomic_load(&e.n_undrained), 98);
    uint64_t k = 0;
    for (rv_batch *b; (b = rvi_events_take(&e));) {
        for (size_t i = 0; i < b->n; i++) {
            const rv_service_event *ev = &b->events[i];
            char text[64];
            k += ev->kind == RV_SERVICE_TOKEN;
            snprintf(text, sizeof text, "text %d of %d", (int)k, (int)(k * k));
            assert_int_equal(ev->request, k);
            assert_string_equal(ev->kind == RV_SERVICE_TOKEN ? ev->text : ev->error, text);
            if (ev->kind == RV_SERVICE_TOKEN) {
                assert_memory_equal(ev->top, probs, sizeof probs);
                assert_int_equal(ev->chosen->id, 1);
                assert_null(ev->values);
            } else {
                assert_memory_equal(ev->values, values, sizeof values);
                assert_null(ev->top);
                assert_string_equal(ev->text, "");
            }
        }
        rv_free(b);
    }
    assert_int_equal(k, 49);
    assert_int_equal(atomic_load(&e.n_undrained), 0);
    assert_int_equal(e.n_promised, 0);
    rvi_events_deinit(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(turns_are_fair),
                                       cmocka_unit_test(debts_have_a_limit),
                                       cmocka_unit_test(ranks_decide_within_a_tenant),
                                       cmocka_unit_test(rows_follow_the_time),
                                       cmocka_unit_test(long_prompts_are_read_gently),
                                       cmocka_unit_test(quantiles_are_near),
                                       cmocka_unit_test(events_keep_what_they_point_to)};
    return cmocka_run_group_tests_name("parts", tests, NULL, NULL);
}
