/* Some random lives of requests (slow_lives.c: ten thousand). */
#include "scheduler/lives.h"

static void a_hundred(void **state)
{
    static lives l;
    static rv_service_metrics m;
    (void)state;
    lives_open(&l, 2);
    lives_run(&l, 150, &m);
    lives_close(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_hundred)};
    return cmocka_run_group_tests_name("lives", tests, NULL, NULL);
}
