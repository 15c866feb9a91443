/* Some random lives of requests (slow_lives.c: ten thousand). */
#include "scheduler/lives.h"

/* Under an emulator, where a hundred with cold pages take half an hour, a few, whatever they meet:
 * their texts are those of requests alone. */
#ifdef TESTS_EMULATED
enum { FEWER = 10, MEETS_ALL = 0 };
#else
enum { FEWER = 1, MEETS_ALL = 1 };
#endif

/* RUVLLM_LIVES: how many times as many, for a run under a sanitizer, say. */
static int times(void)
{
    const char *text = getenv("RUVLLM_LIVES");
    return text && atoi(text) > 0 ? atoi(text) : 1;
}

static void run_under(int n, rv_kv_type kv, rv_pressure pressure)
{
    enum { TRIES = 10 };
    static lives l;
    static rv_service_metrics m;
    bool met_all = false;
    for (int i = 0; i < TRIES && !met_all; i++) {
        lives_open(&l, 2, kv, pressure);
        if (pressure) lives_add_others(&l);
        lives_run(&l, n * times() / FEWER, &m);
        met_all = !MEETS_ALL || lives_met_all(&l, &m);
        lives_close(&l);
    }
    assert_true(met_all);
}

static void run(int n, rv_kv_type kv)
{
    run_under(n, kv, RV_PRESSURE_RECOMPUTE);
}

static void under_pressure(void **state)
{
    (void)state;
    run_under(100, RV_KV_DEFAULT, RV_PRESSURE_SPILL);
    run_under(100, RV_KV_DEFAULT, RV_PRESSURE_EVICT);
    run_under(100, RV_KV_TIERED, RV_PRESSURE_QUANTIZE);
}

static void under_a_budget(void **state)
{
    (void)state;
    static const rv_kv_type types[] = {RV_KV_DEFAULT, RV_KV_TIERED};
    static lives l;
    static rv_service_metrics m;
    for (int i = 0; i < 2; i++) {
        lives_open(&l, 2, types[i], RV_PRESSURE_RECOMPUTE);
        l.budget = true;
        lives_run(&l, 100 * times() / FEWER, &m);
        assert_true(!MEETS_ALL || (m.n_preempted > 0 && m.n_dropped_kept > 0));
        lives_close(&l);
    }
}

static void a_hundred(void **state)
{
    (void)state;
    run(150, RV_KV_DEFAULT);
}

static void with_tiers(void **state)
{
    (void)state;
    run(100, RV_KV_WARM);
    run(100, RV_KV_TIERED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_hundred), cmocka_unit_test(with_tiers),
                                       cmocka_unit_test(under_pressure),
                                       cmocka_unit_test(under_a_budget)};
    return cmocka_run_group_tests_name("lives", tests, NULL, NULL);
}
