/* The time of a token for each number of layers on a device, and which is the best: with invented
 * rates, against sums made by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/mem.h"
#include "model/placement.h"

enum { LAYERS = 10, LAYER = 100000000, HEAD = 500000000, COLUMNS = 4096 };

/* Ten layers of 100 MB, a head of 500 MB. */
static rvi_sizes *even_sizes(void)
{
    rvi_sizes *s = rvi_zalloc(sizeof *s + LAYERS * sizeof *s->layers);
    assert_non_null(s);
    s->n_embd = COLUMNS;
    s->n_layers = LAYERS;
    s->ends = HEAD;
    for (int il = 0; il < LAYERS; il++) s->layers[il] = LAYER;
    return s;
}

static void assert_time(double got, double want)
{
    /* observed: 1e-16 */
    if (!(got > want * (1 - 1e-12) && got < want * (1 + 1e-12)))
        fail_msg("%.17g, not %.17g", got, want);
}

static void seconds(void **state)
{
    (void)state;
    rvi_sizes *s = even_sizes();
    const rvi_rates r = {.host = 1e10, .device = 1e12, .bus = 1e9, .crossing = 1e-5, .call = 2e-6};
    assert_time(rvi_token_seconds(s, &r, 0), 1.5e9 / 1e10); /* nothing crosses, nothing is called */
    double row = COLUMNS * 4 / 1e9 + 1e-5;
    assert_time(rvi_token_seconds(s, &r, 1), 9e8 / 1e10 + 6e8 / 1e12 + row + 9 * 2e-6);
    assert_time(rvi_token_seconds(s, &r, 4), 6e8 / 1e10 + 9e8 / 1e12 + row + 27 * 2e-6);
    assert_time(rvi_token_seconds(s, &r, LAYERS), 1.5e9 / 1e12 + row + 63 * 2e-6);
    s->layers[9] = 3 * LAYER; /* the last ones are the device's */
    assert_time(rvi_token_seconds(s, &r, 1), 9e8 / 1e10 + 8e8 / 1e12 + row + 9 * 2e-6);
    rvi_free(s);
}

static void best(void **state)
{
    (void)state;
    rvi_sizes *s = even_sizes();
    const rvi_rates fast = {
        .host = 2e10, .device = 3e12, .bus = 5e10, .crossing = 2e-5, .call = 2e-6};
    for (int most = 0; most <= LAYERS; most++)
        assert_int_equal(rvi_best_layers(s, &fast, 0, most), most);

    /* a card slower than the CPU: nothing, or what was asked for */
    rvi_rates slow = fast;
    slow.device = 1e10;
    assert_int_equal(rvi_best_layers(s, &slow, 0, 7), 0);
    assert_int_equal(rvi_best_layers(s, &slow, 1, 7), 1);

    /* a bus that takes longer than is won: nothing, until enough layers are there */
    rvi_rates far = fast;
    far.crossing = 0.045;
    assert_int_equal(rvi_best_layers(s, &far, 0, 2), 0);
    assert_int_equal(rvi_best_layers(s, &far, 0, LAYERS), LAYERS);
    far.crossing = 0;
    far.bus = COLUMNS * 4 / 0.045; /* the same as a rate */
    assert_int_equal(rvi_best_layers(s, &far, 0, 2), 0);
    assert_int_equal(rvi_best_layers(s, &far, 0, LAYERS), LAYERS);

    /* kernels that cost more than a layer's weights on the CPU: the head alone is worth it */
    rvi_rates calls = fast;
    calls.call = 1e-3;
    assert_int_equal(rvi_best_layers(s, &calls, 0, 8), 1);

    /* as fast on both sides: measured rates vary, and that does not take layers away */
    rvi_rates even = {.host = 1e10, .device = 1e10, .bus = 1e12};
    assert_int_equal(rvi_best_layers(s, &even, 0, 6), 6);
    even.device = 0.95e10;
    assert_int_equal(rvi_best_layers(s, &even, 0, LAYERS), LAYERS);
    even.device = 0.85e10;
    assert_int_equal(rvi_best_layers(s, &even, 0, LAYERS), 0);
    rvi_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(seconds), cmocka_unit_test(best)};
    return cmocka_run_group_tests_name("placement", tests, NULL, NULL);
}
