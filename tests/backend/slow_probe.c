/* Measuring the machine: every figure is there, finite and possible, on any number of threads. How
 * fast a machine is, is not for a test to say. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend/cpu/probe.h"
#include "harness/amount.h"
#include "harness/assert_ok.h"
#include "kernels/kernels.h"
#include "kernels/peak.h"

static void assert_rate(double v, const char *what)
{
    /* between one a second and more than any machine has */
    if (!(isfinite(v) && v > 1 && v < 1e18)) fail_msg("%s: %g", what, v);
}

static void assert_seconds(double v, const char *what)
{
    if (!(isfinite(v) && v > 0 && v < 10)) fail_msg("%s: %g", what, v);
}

static void check_ops(const rvi_cpu_probe_ops *ops)
{
    assert_seconds(ops->norm, "norm");
    assert_seconds(ops->rope, "rope");
    assert_seconds(ops->glu, "glu");
    assert_seconds(ops->attention, "attention");
}

static void check_probe(const rvi_cpu_probe *p, int n_threads, size_t working_set)
{
    assert_int_equal(p->n_threads, n_threads);
    assert_in_range(p->n_sets, 2, RVI_CPU_PROBE_SETS);
    assert_int_equal(p->set_bytes[p->n_sets - 1], working_set);
    for (size_t i = 0; i < p->n_sets; i++) {
        if (i) assert_true(p->set_bytes[i] > p->set_bytes[i - 1]);
        assert_rate(p->read[i].one, "read, one thread");
        assert_rate(p->read[i].all, "read, all threads");
    }
    assert_non_null(p->int8_name);
    assert_non_null(p->bf16_name);
    assert_rate(p->int8.one, "int8");
    assert_true(p->int8.all >= p->int8.one);
    assert_rate(p->bf16.one, "bf16");
    assert_true(p->bf16.all >= p->bf16.one);
    for (size_t t = 0; t < RVI_QTYPE_COUNT; t++) {
        assert_rate(p->weight[t].memory, rvi_qtypes[t].name);
        assert_rate(p->weight[t].cache, rvi_qtypes[t].name);
        assert_rate(p->weight[t].many, rvi_qtypes[t].name);
    }
    assert_seconds(p->call, "call");
    assert_seconds(p->logit, "logit");
    check_ops(&p->one);
    check_ops(&p->many);
    bool own = false;
    assert_in_range(p->n_counts, 1, RVI_CPU_PROBE_COUNTS);
    assert_int_equal(p->count[0].n, 1);
    for (size_t i = 0; i < p->n_counts; i++) {
        if (i) assert_true(p->count[i].n > p->count[i - 1].n);
        own |= p->count[i].n == n_threads;
        assert_rate(p->count[i].memory, "thread count, one row");
        assert_rate(p->count[i].many, "thread count, many rows");
    }
    assert_true(own);
}

static void run(int n_threads, bool exact, const char *isa, const rvi_cpu_probe_options *o)
{
    rvi_cpu_options options = {.n_threads = n_threads, .exact = exact, .isa = isa};
    rvi_backend *be = NULL;
    rvi_cpu_probe p;
    assert_ok(rvi_backend_cpu_new(&be, &options, NULL, err));
    assert_ok(rvi_cpu_probe_run(&p, be, o, err));
    check_probe(&p, n_threads, o->working_set);
    be->ops->free(be);
}

/* However long it takes: beside other programs a machine may need minutes. */
static const rvi_cpu_probe_options quick = {.working_set = 16u << 20,
                                            .seconds = 0.1,
                                            .n_physical = 2,
                                            .n_logical = 4,
                                            .quick = true,
                                            .limit = 1e6};

static void test_threads(void **state)
{
    (void)state;
    for (int n = 1; n <= 3; n += AMOUNT(1, 2)) run(n, false, NULL, &quick);
}

static void test_exact_and_reference(void **state)
{
    (void)state;
    run(2, true, NULL, &quick);
    run(2, false, "ref", &quick);
}

/* Not told anything about the machine: it still measures, within the memory it may take. */
static void test_unknown_machine(void **state)
{
    (void)state;
    rvi_cpu_options options = {.n_threads = 2};
    rvi_cpu_probe_options o = {
        .seconds = 0.1, .available = 160u << 20, .quick = true, .limit = 1e6};
    rvi_backend *be = NULL;
    rvi_cpu_probe p;
    assert_ok(rvi_backend_cpu_new(&be, &options, NULL, err));
    assert_ok(rvi_cpu_probe_run(&p, be, &o, err));
    check_probe(&p, 2, 20u << 20); /* an eighth */
    be->ops->free(be);
}

/* No time is left: each rate is measured once, other thread counts are not. */
static void test_late(void **state)
{
    (void)state;
    rvi_cpu_options options = {.n_threads = 2};
    rvi_cpu_probe_options o = quick;
    rvi_backend *be = NULL;
    rvi_cpu_probe p;
    o.limit = 1e-9;
    assert_ok(rvi_backend_cpu_new(&be, &options, NULL, err));
    assert_ok(rvi_cpu_probe_run(&p, be, &o, err));
    assert_int_equal(p.n_counts, 0);
    for (size_t t = 0; t < RVI_QTYPE_COUNT; t++) {
        assert_rate(p.weight[t].memory, rvi_qtypes[t].name);
        assert_rate(p.weight[t].many, rvi_qtypes[t].name);
    }
    be->ops->free(be);
}

/* One type alone, as a model that is being opened asks for it. */
static void test_one_type(void **state)
{
    (void)state;
    for (int exact = 0; exact < 2; exact++) {
        rvi_cpu_options options = {.n_threads = 2, .exact = exact};
        rvi_backend *be = NULL;
        double row;
        assert_ok(rvi_backend_cpu_new(&be, &options, NULL, err));
        for (int t = 0; t < RVI_QTYPE_COUNT; t += AMOUNT(RVI_Q4_K, 1)) {
            assert_ok(rvi_cpu_probe_row(&row, be, (rvi_qtype)t, 0, err));
            assert_rate(row, rvi_qtypes[t].name);
        }
        be->ops->free(be);
    }
}

/* A backend that was measured computes what it computed before. */
static void test_leaves_no_trace(void **state)
{
    (void)state;
    enum { N = 64 };
    float w[N * N], x[N], before[N], after[N];
    for (int i = 0; i < N * N; i++) w[i] = (float)(i % 17) - 8;
    for (int i = 0; i < N; i++) x[i] = (float)(i % 5) - 2;
    rvi_cpu_options options = {.n_threads = 2};
    rvi_tensor_view view = {.name = "w",
                            .type = RVI_F32,
                            .n_dims = 2,
                            .shape = {N, N},
                            .data = (const uint8_t *)w,
                            .n_bytes = sizeof w};
    rvi_backend *be = NULL;
    rvi_tensor *weight = NULL, *in = NULL, *out = NULL;
    rvi_cpu_probe p;
    assert_ok(rvi_backend_cpu_new(&be, &options, NULL, err));
    assert_ok(be->ops->weight_new(be, &weight, &view, err));
    assert_ok(be->ops->rows_new(be, &in, 1, N, err));
    assert_ok(be->ops->rows_new(be, &out, 1, N, err));
    assert_ok(be->ops->reserve(be, 1, N, 1u << view.type, err));
    be->ops->rows_write(be, rvi_cols_of(in, 0, N), 0, x);
    for (int i = 0; i < 2; i++) {
        be->ops->matmul(be, &(rvi_matmul){.x = rvi_cols_of(in, 0, N),
                                          .part = {{.w = weight, .out = rvi_cols_of(out, 0, N)}},
                                          .n_parts = 1,
                                          .n_rows = 1});
        be->ops->rows_read(be, rvi_cols_of(out, 0, N), 0, i ? after : before);
        if (!i) assert_ok(rvi_cpu_probe_run(&p, be, &quick, err));
    }
    assert_memory_equal(before, after, sizeof before);
    be->ops->tensor_free(be, weight);
    be->ops->tensor_free(be, in);
    be->ops->tensor_free(be, out);
    be->ops->free(be);
}

/* Every instruction loop that the machine is said to have runs, and gives the same value each
 * time. */
static void test_peaks(void **state)
{
    (void)state;
    static const rvi_peak_kind kinds[] = {RVI_PEAK_INT8, RVI_PEAK_BF16};
    for (size_t k = 0; k < RVI_COUNT(kinds); k++) {
        const rvi_peak *peak;
        size_t n = 0;
        for (; (peak = rvi_peak_at(kinds[k], n)); n++) {
            assert_true(peak->name[0] && peak->ops_per_round > 0);
            for (size_t before = 0; before < n; before++)
                assert_string_not_equal(peak->name, rvi_peak_at(kinds[k], before)->name);
            assert_int_equal(peak->run(101), peak->run(101));
            (void)peak->run(0);
        }
        assert_true(n >= 1);
        assert_null(rvi_peak_at(kinds[k], n + 5));
    }
}

static void test_reader(void **state)
{
    (void)state;
    enum { N = 4096 };
    uint64_t *data = aligned_alloc(64, N);
    assert_non_null(data);
    memset(data, 0, N);
    rvi_peak_read_fn read = rvi_peak_reader();
    uint64_t empty = read(data, N);
    data[N / 2 / 8] =
        0x1234567890ABCDEFu; /* the first eight bytes of a step: every reader sums them */
    assert_true(read(data, N) != empty);
    assert_int_equal(read(data, N), read(data, N));
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_exact_and_reference),
        cmocka_unit_test(test_unknown_machine),
        cmocka_unit_test(test_leaves_no_trace),
        cmocka_unit_test(test_peaks),
        cmocka_unit_test(test_reader),
        cmocka_unit_test(test_late),
        cmocka_unit_test(test_one_type),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
