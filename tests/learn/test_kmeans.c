/* Groups: purity on labelled data, the same result for the same seed, and the corners. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "harness/assert_ok.h"
#include "labelled.h"
#include "learn/kmeans.h"

enum { N = 600, DIM = 48, LABELS = 12 };

static float data[N][DIM];
static const float *points[N];
static uint32_t groups[N], again[N];
static size_t medoids[N];

static void make(double spread, uint64_t seed)
{
    labelled_make(&data[0][0], N, DIM, LABELS, spread, seed);
    for (size_t i = 0; i < N; i++) points[i] = data[i];
}

static void test_purity(void **state)
{
    (void)state;
    /* well apart (observed 1.000 for all seeds), and with points as far from their centre as it is
     * from the origin (worst observed 0.998) */
    static const struct {
        double spread, wanted;
    } cases[] = {{0.3, 0.999}, {1.0, 0.98}};
    double worst = 1;
    for (size_t c = 0; c < RVI_COUNT(cases); c++)
        for (uint64_t seed = 1; seed <= 10; seed++) {
            make(cases[c].spread, seed);
            assert_ok(rvi_kmeans(points, N, DIM, LABELS, seed, groups, medoids, err));
            double purity = labelled_purity(groups, N, LABELS, LABELS);
            if (purity < worst) worst = purity;
            if (purity < cases[c].wanted)
                fail_msg("spread %g, seed %d: purity %g", cases[c].spread, (int)seed, purity);
            for (size_t k = 0; k < LABELS; k++) {
                assert_true(medoids[k] < N);
                assert_int_equal(groups[medoids[k]], k);
            }
            assert_ok(rvi_kmeans(points, N, DIM, LABELS, seed, again, medoids, err));
            assert_memory_equal(groups, again, sizeof groups);
        }
    print_message("worst purity %.4f\n", worst);
}

static void test_noise_has_none(void **state)
{
    (void)state;
    make(1000, 3); /* labels without meaning: the measure can fail */
    assert_ok(rvi_kmeans(points, N, DIM, LABELS, 1, groups, medoids, err));
    assert_true(labelled_purity(groups, N, LABELS, LABELS) < 0.35);
}

static void test_corners(void **state)
{
    (void)state;
    rv_error why = {0};
    make(0.5, 9);
    assert_ok(rvi_kmeans(points, N, DIM, 1, 1, groups, medoids, err));
    for (size_t i = 0; i < N; i++) assert_int_equal(groups[i], 0);
    assert_ok(rvi_kmeans(points, 40, DIM, 40, 1, groups, medoids, err)); /* each its own */
    for (size_t i = 0; i < 40; i++) assert_int_equal(medoids[groups[i]], i);
    for (size_t i = 0; i < N; i++) points[i] = data[i % 3]; /* three different ones */
    assert_ok(rvi_kmeans(points, N, DIM, 8, 1, groups, medoids, err));
    size_t n_used = 0;
    for (size_t k = 0; k < 8; k++) n_used += medoids[k] != SIZE_MAX;
    assert_int_equal(n_used, 3);
    for (size_t i = 0; i < N; i++) assert_int_equal(groups[i], groups[i % 3]);
    assert_int_equal(rvi_kmeans(points, 5, DIM, 6, 1, groups, medoids, &why), RV_E_INVALID);
    assert_int_equal(rvi_kmeans(points, 0, DIM, 1, 1, groups, medoids, &why), RV_E_INVALID);
    assert_int_equal(rvi_kmeans(points, 5, 0, 1, 1, groups, medoids, &why), RV_E_INVALID);
    assert_int_equal(rvi_kmeans_groups(0), 1);
    assert_int_equal(rvi_kmeans_groups(200), 10);
    assert_int_equal(rvi_kmeans_groups(10000), 70);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_purity),
        cmocka_unit_test(test_noise_has_none),
        cmocka_unit_test(test_corners),
    };
    return cmocka_run_group_tests_name("k-means", tests, NULL, NULL);
}
