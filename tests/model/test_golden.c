/* The nine golden models against float64 values of the official implementation: logits, hidden
 * states, long inputs, greedy continuation, adapters. Limits stand beside the largest difference
 * observed (AVX2, 2 threads). */
#include "golden.h"
#include "lora/file.h"

#include <math.h>

static double worst(const float *a, const float *b, size_t n)
{
    double w = 0;
    for (size_t i = 0; i < n; i++) w = fmax(w, fabs((double)a[i] - (double)b[i]));
    return w;
}

/* ---- hidden states by taps ---- */

typedef struct hidden_check {
    rvi_backend *be;
    rvi_safetensors *expected;
    double worst_relative;
    int n_seen;
} hidden_check;

static void check_hidden(void *ctx, const char *name, rvi_cols values, int n_rows)
{
    hidden_check *c = ctx;
    if (strncmp(name, "hidden.", 7)) return;
    const float *want = golden_floats(c->expected, name);
    assert_non_null(want);
    float *row = rvi_alloc_array((size_t)values.n, sizeof *row);
    double error = 0, size = 0;
    for (int r = 0; r < n_rows; r++) {
        c->be->ops->rows_read(c->be, values, r, row);
        for (int i = 0; i < values.n; i++) {
            double w = want[(size_t)r * (size_t)values.n + (size_t)i], d = row[i] - w;
            error += d * d;
            size += w * w;
        }
    }
    rvi_free(row);
    c->worst_relative = fmax(c->worst_relative, sqrt(error / size));
    c->n_seen++;
}

static void logits_and_hidden(void **state)
{
    (void)state;
    for (size_t i = 0; i < RVI_COUNT(golden_names); i++) {
        golden g;
        feed f;
        int n;
        golden_open_named(&g, golden_names[i], true, 2, NULL);
        const int32_t *ids = golden_ids(g.expected, "tokens", &n);
        size_t total = (size_t)n * (size_t)g.m->hp.n_vocab;
        float *logits = rvi_alloc_array(total, sizeof *logits);
        hidden_check c = {.be = g.be, .expected = g.expected};
        feed_init(&f, g.m, n, n, RV_KV_F32);
        rvi_workspace_set_tap(f.ws, check_hidden, &c);
        feed_ids(&f, ids, n, n, NULL, logits, NULL);
        double error = worst(logits, golden_floats(g.expected, "logits"), total);
        print_message("# %-14s exact logits %.2e  hidden %.2e\n", golden_names[i], error,
                      c.worst_relative);
        assert_true(error < 2e-4);            /* observed: 1.0e-5 */
        assert_true(c.worst_relative < 1e-4); /* observed: 1.9e-6 */
        assert_int_equal(c.n_seen, g.m->hp.n_layers + 1);
        feed_deinit(&f);
        rvi_free(logits);
        golden_close(&g);
    }
}

static void long_inputs(void **state)
{
    (void)state;
    int n_checked = 0;
    for (size_t i = 0; i < RVI_COUNT(golden_names); i++) {
        golden g;
        feed f;
        int n;
        golden_open_named(&g, golden_names[i], true, 2, NULL);
        const int32_t *ids = golden_ids(g.expected, "long_tokens", &n);
        const float *want = golden_floats(g.expected, "long_last_logits");
        if (want) {
            size_t vocab = (size_t)g.m->hp.n_vocab;
            float *last = rvi_alloc_array(vocab, sizeof *last);
            feed_init(&f, g.m, n, 128, RV_KV_F32);
            feed_ids(&f, ids, n, 128, NULL, NULL, last);
            double error = worst(last, want, vocab);
            print_message("# %-14s long input, exact %.2e\n", golden_names[i], error);
            assert_true(error < 2e-4); /* observed: 7.2e-6 */
            n_checked++;
            feed_deinit(&f);
            rvi_free(last);
        }
        golden_close(&g);
    }
    assert_int_equal(n_checked, 8); /* all but phi3, whose context is shorter */
}

static void greedy_ids(void **state)
{
    (void)state;
    for (size_t i = 0; i < RVI_COUNT(golden_names); i++) {
        golden g;
        feed f;
        int n, n_want;
        golden_open_named(&g, golden_names[i], true, 2, NULL);
        const int32_t *ids = golden_ids(g.expected, "tokens", &n),
                      *want = golden_ids(g.expected, "greedy", &n_want);
        size_t vocab = (size_t)g.m->hp.n_vocab;
        float *last = rvi_alloc_array(vocab, sizeof *last);
        assert_int_equal(n_want, 32);
        feed_init(&f, g.m, 16 + n_want, 16, RV_KV_F32);
        feed_ids(&f, ids, 16, 16, NULL, NULL, last);
        for (int k = 0; k < n_want; k++) {
            int32_t best = 0;
            for (size_t v = 1; v < vocab; v++)
                if (last[v] > last[best]) best = (int32_t)v;
            assert_int_equal(best, want[k]);
            feed_ids(&f, &best, 1, 1, NULL, NULL, last);
        }
        feed_deinit(&f);
        rvi_free(last);
        golden_close(&g);
    }
}

/* f16 KV, the default, and q8: reported, and bounded well above what was seen. */
static void check_kv(rv_kv_type type, const char *name, double bound)
{
    for (size_t i = 0; i < RVI_COUNT(golden_names); i++) {
        golden g;
        feed f;
        int n;
        golden_open_named(&g, golden_names[i], false, 2, NULL);
        const int32_t *ids = golden_ids(g.expected, "tokens", &n);
        size_t total = (size_t)n * (size_t)g.m->hp.n_vocab;
        float *logits = rvi_alloc_array(total, sizeof *logits);
        feed_init(&f, g.m, n, n, type);
        feed_ids(&f, ids, n, n, NULL, logits, NULL);
        double error = worst(logits, golden_floats(g.expected, "logits"), total);
        print_message("# %-14s %s KV logits %.2e\n", golden_names[i], name, error);
        assert_true(error < bound);
        feed_deinit(&f);
        rvi_free(logits);
        golden_close(&g);
    }
}

static void half_kv(void **state)
{
    (void)state;
    /* observed: 3.6e-3; on a CUDA device, whose activations are f16 too, 6.3e-3 */
    check_kv(RV_KV_F16, "f16", test_driver() ? 2e-2 : 5e-3);
}

static void int8_kv(void **state)
{
    (void)state;
    check_kv(RV_KV_Q8, "q8", 0.2); /* observed: 7.9e-2 */
}

static void adapters(void **state)
{
    (void)state;
    for (size_t i = 0; i < RVI_COUNT(golden_names); i++) {
        golden g;
        feed f;
        int n;
        char path[160];
        rvi_adapter *a;
        rvi_safetensors *expected;
        golden_open_named(&g, golden_names[i], true, 2, NULL);
        const int32_t *ids = golden_ids(g.expected, "tokens", &n);
        size_t total = (size_t)n * (size_t)g.m->hp.n_vocab;
        float *with = rvi_alloc_array(total, sizeof *with),
              *off = rvi_alloc_array(total, sizeof *off),
              *never = rvi_alloc_array(total, sizeof *never);
        feed_init(&f, g.m, n, n, RV_KV_F32);
        feed_ids(&f, ids, n, n, NULL, never, NULL);

        snprintf(path, sizeof path, "tests/golden/%s/lora", golden_names[i]);
        assert_ok(rvi_adapter_load(&a, g.be, path, g.m->targets, g.m->n_targets,
                                   g.m->arch->gguf_names, NULL, err));
        snprintf(path, sizeof path, "tests/golden/%s/lora/expected.safetensors", golden_names[i]);
        assert_ok(rvi_safetensors_open(&expected, path, err));
        rvi_adapter_use use = {a, 1.0f};
        rvi_adapter_set set = {.uses = &use, .n = 1};
        rvi_seq_truncate(&f.seq, 0);
        feed_ids(&f, ids, n, n, &set, with, NULL);
        rvi_seq_truncate(&f.seq, 0);
        feed_ids(&f, ids, n, n, NULL, off, NULL);

        double error = worst(with, golden_floats(expected, "logits"), total);
        print_message("# %-14s adapter logits %.2e\n", golden_names[i], error);
        assert_true(error < 5e-4); /* observed: 1.1e-5 */
        assert_memory_equal(off, never, total * sizeof *off);
        assert_true(worst(with, never, total) > 0.1);
        rvi_safetensors_close(expected);
        rvi_adapter_free(a);
        feed_deinit(&f);
        rvi_free(with);
        rvi_free(off);
        rvi_free(never);
        golden_close(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_and_hidden), cmocka_unit_test(long_inputs),
        cmocka_unit_test(greedy_ids),        cmocka_unit_test(half_kv),
        cmocka_unit_test(int8_kv),           cmocka_unit_test(adapters),
    };
    return cmocka_run_group_tests_name("golden", tests, NULL, NULL);
}
