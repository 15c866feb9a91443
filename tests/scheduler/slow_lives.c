/* Ten thousand random lives of requests: each gets, bit for bit, what it gets alone, and no page is
 * lost. */
#include "scheduler/lives.h"

static void ten_thousand(void **state)
{
    static lives l;
    static rv_service_metrics m;
    (void)state;
    lives_open(&l, 1, RV_KV_DEFAULT, 0, false);
    lives_run(&l, 10000, &m);
    assert_true(lives_met_all(&l, &m));
    lives_close(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(ten_thousand)};
    return cmocka_run_group_tests_name("ten thousand lives", tests, NULL, NULL);
}
