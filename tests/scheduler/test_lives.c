/* Some random lives of requests (slow_lives.c: ten thousand). */
#include "scheduler/lives.h"

static void run(int n, rv_kv_type kv)
{
    static lives l;
    static rv_service_metrics m;
    lives_open(&l, 2, kv);
    lives_run(&l, n, &m);
    lives_close(&l);
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_hundred), cmocka_unit_test(with_tiers)};
    return cmocka_run_group_tests_name("lives", tests, NULL, NULL);
}
