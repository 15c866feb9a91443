/* Some random lives of requests (slow_lives.c: ten thousand). */
#include "scheduler/lives.h"

/* Under an emulator a few, whatever they meet: their texts are those of requests alone. */
#ifdef TESTS_EMULATED
enum { FEWER = 10, MEETS_ALL = 0 };
#else
enum { FEWER = 1, MEETS_ALL = 1 };
#endif

static lives l;

/* RUVLLM_LIVES: how many times as many, for a run under a sanitizer, say. */
static int times(void)
{
    const char *text = getenv("RUVLLM_LIVES");
    return text && atoi(text) > 0 ? atoi(text) : 1;
}

static void run_under(int n, rv_pressure pressure)
{
    enum { TRIES = 10 };
    static rv_service_metrics m;
    bool met_all = false;
    l.pressure = pressure;
    if (pressure) lives_add_others(&l);
    for (int i = 0; i < TRIES && !met_all; i++) {
        lives_run(&l, n * times() / FEWER, &m);
        met_all = !MEETS_ALL || lives_met_all(&l, &m);
    }
    assert_true(met_all);
}

static void run_with_budget(int n)
{
    static rv_service_metrics m;
    l.pressure = RV_PRESSURE_RECOMPUTE;
    l.budget = true;
    lives_run(&l, n * times() / FEWER, &m);
    assert_true(!MEETS_ALL || (m.n_preempted > 0 && m.n_dropped_kept > 0));
}

static void short_texts(void **state)
{
    (void)state;
    lives_open(&l, 2, RV_KV_DEFAULT, 0, false);
    run_under(150, RV_PRESSURE_RECOMPUTE);
    run_with_budget(100);
    lives_close(&l);
}

static void with_warm_pages(void **state)
{
    (void)state;
    lives_open(&l, 2, RV_KV_WARM, 0, false);
    run_under(100, RV_PRESSURE_RECOMPUTE);
    lives_close(&l);
}

static void with_tiers(void **state)
{
    (void)state;
    lives_open(&l, 2, RV_KV_TIERED, 32, true);
    run_under(100, RV_PRESSURE_RECOMPUTE);
    run_with_budget(100);
    lives_close(&l);
}

static void under_pressure(void **state)
{
    (void)state;
    lives_open(&l, 2, RV_KV_DEFAULT, 0, true);
    run_under(100, RV_PRESSURE_SPILL);
    run_under(100, RV_PRESSURE_EVICT);
    lives_close(&l);
    lives_open(&l, 2, RV_KV_TIERED, 128, true);
    run_under(100, RV_PRESSURE_QUANTIZE);
    lives_close(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_texts), cmocka_unit_test(with_warm_pages),
        cmocka_unit_test(with_tiers), cmocka_unit_test(under_pressure)};
    return cmocka_run_group_tests_name("lives", tests, NULL, NULL);
}
