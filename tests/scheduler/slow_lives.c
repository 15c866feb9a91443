/* Ten thousand random lives of requests, under several policies: each gets, bit for bit, what it
 * gets alone, and no page is lost. */
#include "scheduler/lives.h"

static lives l;

/* others: models that come and go beside them. */
static void run(int n_lives, rv_pressure pressure, bool others)
{
    static rv_service_metrics m;
    l.pressure = pressure;
    if (others) lives_add_others(&l);
    lives_run(&l, n_lives, &m);
    assert_true(lives_met_all(&l, &m));
}

static void in_16_bits(void **state)
{
    (void)state;
    lives_open(&l, 2, RV_KV_DEFAULT, 0, false);
    run(5000, RV_PRESSURE_RECOMPUTE, false);
    lives_close(&l);
}

static void in_tiers(void **state)
{
    (void)state;
    lives_open(&l, 2, RV_KV_TIERED, 32, true);
    run(2000, RV_PRESSURE_RECOMPUTE, false);
    lives_close(&l);
}

static void on_disk_or_forgetting(void **state)
{
    (void)state;
    lives_open(&l, 2, RV_KV_DEFAULT, 0, true);
    run(2000, RV_PRESSURE_SPILL, true);
    run(1000, RV_PRESSURE_EVICT, false);
    lives_close(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(in_16_bits), cmocka_unit_test(in_tiers),
                                       cmocka_unit_test(on_disk_or_forgetting)};
    return cmocka_run_group_tests_name("ten thousand lives", tests, NULL, NULL);
}
