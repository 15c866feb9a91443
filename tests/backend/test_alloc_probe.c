/* Measuring with allocations refused: an error is returned and nothing leaks (which a sanitizer
 * sees). */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "../harness/fail_alloc.h"
#include "backend/cpu/probe.h"
#include "harness/assert_ok.h"

static void test_probe(void **state)
{
    (void)state;
    const rvi_cpu_probe_options o = {
        .working_set = 8u << 20, .seconds = 0.01, .n_physical = 1, .quick = true};
    rvi_cpu_options options = {.n_threads = 2};
    rvi_cpu_probe p;
    bool refused = true;
    int n_refused = 0;
    /* the first calls one by one; later ones are matrices again and again, so the steps grow */
    for (long n = 0; refused; n += 1 + n / 4) {
        rvi_backend *be = NULL;
        rv_error e = {0};
        assert_ok(rvi_backend_cpu_new(&be, &options, NULL, err));
        fail_alloc_after(n);
        rv_status st = rvi_cpu_probe_run(&p, be, &o, &e);
        refused = fail_alloc_off();
        be->ops->free(be);
        if (st != (refused ? RV_E_NOMEM : RV_OK))
            fail_msg("call %ld refused: status %d %s", n, (int)st, e.text);
        n_refused += refused;
        assert_true(n < 100000);
    }
    assert_true(n_refused > 12);
}

static void test_one_type(void **state)
{
    (void)state;
    rvi_cpu_options options = {.n_threads = 2};
    bool refused = true;
    int n_refused = 0;
    for (long n = 0; refused; n++) {
        rvi_backend *be = NULL;
        rv_error e = {0};
        double row;
        assert_ok(rvi_backend_cpu_new(&be, &options, NULL, err));
        fail_alloc_after(n);
        rv_status st = rvi_cpu_probe_row(&row, be, RVI_Q4_K, 0, &e);
        refused = fail_alloc_off();
        be->ops->free(be);
        if (st != (refused ? RV_E_NOMEM : RV_OK))
            fail_msg("call %ld refused: status %d %s", n, (int)st, e.text);
        n_refused += refused;
        assert_true(n < 1000);
    }
    assert_true(n_refused > 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_probe),
                                       cmocka_unit_test(test_one_type)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
