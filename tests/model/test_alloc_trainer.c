/* Every allocation of making parameters and a trainer fails once: an error each time, and nothing
 * leaks (the sanitizer pass watches). */
#include "training.h"

#include "harness/fail_alloc.h"

/* Many threads hold weights packed, and go without where there is no memory for them. */
static void sweep(const char *name, bool keep_layers, int n_threads, bool may_go_without)
{
    golden g;
    golden_open_named(&g, name, false, n_threads, NULL);
    rvi_trainer_options o = {
        .max_rows = 8, .max_spans = 2, .max_losses = 4, .keep_layers = keep_layers};
    long n = 0;
    for (;; n++) {
        rv_error err = {0};
        rvi_params *params = NULL, *grads = NULL;
        rvi_trainer *t = NULL;
        fail_alloc_after(n);
        rv_status st = rvi_params_new(&params, g.be, g.m->targets, g.m->n_targets, every_target,
                                      NULL, 4, 8, &err);
        if (!st) st = rvi_params_like(&grads, params, &err);
        if (!st) st = rvi_trainer_new(&t, g.m, g.be, params, grads, &o, &err);
        bool done = !fail_alloc_off();
        if (st != (done ? RV_OK : RV_E_NOMEM) && !(may_go_without && !st))
            fail_msg("call %ld: status %d: %s", n, st, err.text);
        assert_true(!st == (t != NULL));
        rvi_trainer_free(t);
        rvi_params_free(params);
        rvi_params_free(grads);
        if (done) break;
    }
    print_message("# %s: %ld allocations\n", name, n);
    assert_true(n > 80);
    golden_close(&g);
}

static void every_allocation(void **state)
{
    (void)state;
    sweep("gemma2", false, 2, false);
    sweep("qwen3", true, 2, false);
    sweep("llama", false, 5, true);
}

/* What cannot be trained is refused by name. */
static void refusals(void **state)
{
    (void)state;
    golden g, encoder;
    rvi_params *params, *grads, *other;
    rvi_trainer *t;
    rv_error why = {0};
    golden_open_named(&g, "llama", false, 1, NULL);
    golden_open_named(&encoder, "bert", false, 1, NULL);
    const rvi_trainer_options good = {.max_rows = 8, .max_spans = 2, .max_losses = 4};
    assert_int_equal(
        rvi_params_new(&params, g.be, g.m->targets, g.m->n_targets, every_target, NULL, 0, 8, &why),
        RV_E_ADAPTER);
    assert_null(params);
    assert_int_equal(rvi_params_new(&params, g.be, g.m->targets, g.m->n_targets, every_target, NULL,
                                    RVI_MAX_RANK + 1, 8, &why),
                     RV_E_ADAPTER);
    assert_int_equal(rvi_params_new(&params, g.be, g.m->targets, g.m->n_targets, every_target, NULL,
                                    4, NAN, &why),
                     RV_E_ADAPTER);
    assert_int_equal(rvi_params_new(&params, g.be, g.m->targets, 0, every_target, NULL, 4, 8, &why),
                     RV_E_ADAPTER);
    assert_ok(
        rvi_params_new(&params, g.be, g.m->targets, g.m->n_targets, every_target, NULL, 4, 8, err));
    assert_ok(
        rvi_params_new(&other, g.be, g.m->targets, g.m->n_targets, every_target, NULL, 2, 8, err));
    assert_ok(rvi_params_like(&grads, params, err));
    assert_int_equal(rvi_trainer_new(&t, encoder.m, encoder.be, NULL, NULL, &good, &why),
                     RV_E_INVALID);
    assert_int_equal(rvi_trainer_new(&t, g.m, g.be, params, other, &good, &why), RV_E_INVALID);
    assert_int_equal(rvi_trainer_new(&t, g.m, g.be, NULL, grads, &good, &why), RV_E_INVALID);
    const rvi_trainer_options bad[] = {
        {.max_rows = 0, .max_spans = 2, .max_losses = 4},
        {.max_rows = 8, .max_spans = 0, .max_losses = 4},
        {.max_rows = 8, .max_spans = 2, .max_losses = 0},
        {.max_rows = 8, .max_spans = 2, .max_losses = 4, .lowest = -1},
        {.max_rows = 8, .max_spans = 2, .max_losses = 4, .lowest = 3}};
    for (size_t i = 0; i < RVI_COUNT(bad); i++) {
        assert_int_equal(rvi_trainer_new(&t, g.m, g.be, params, grads, &bad[i], &why),
                         RV_E_INVALID);
        assert_null(t);
    }
    rvi_params_free(params);
    rvi_params_free(other);
    rvi_params_free(grads);
    golden_close(&encoder);
    golden_close(&g);
}

/* A in its bounds and spread over them, B zero, the same for a seed. */
static void random_beginning(void **state)
{
    (void)state;
    golden g;
    rvi_params *p, *again;
    golden_open_named(&g, "llama", false, 1, NULL);
    assert_ok(
        rvi_params_new(&p, g.be, g.m->targets, g.m->n_targets, every_target, NULL, 4, 8, err));
    assert_ok(rvi_params_like(&again, p, err));
    assert_true(p->scale == 2);
    rvi_params_init_random(p, 5);
    rvi_params_init_random(again, 5);
    assert_memory_equal(p->theta, again->theta, p->n * sizeof *p->theta);
    size_t total = 0;
    for (int i = 0; i < g.m->n_targets; i++) {
        size_t n_a, n_b;
        const float *a = slot_of(p, i, false, &n_a), *b = slot_of(p, i, true, &n_b);
        double bound = 1 / sqrt(g.m->targets[i].n_in), squares = dot(a, a, n_a);
        for (size_t j = 0; j < n_a; j++) assert_true(fabs(a[j]) <= bound);
        assert_true(fabs(squares / (double)n_a / (bound * bound / 3) - 1) < 0.15);
        assert_true(dot(b, b, n_b) == 0);
        total += n_a + n_b;
    }
    assert_int_equal(total, p->n);
    rvi_params_free(p);
    rvi_params_free(again);
    golden_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation),
        cmocka_unit_test(refusals),
        cmocka_unit_test(random_beginning),
    };
    return cmocka_run_group_tests_name("alloc trainer", tests, NULL, NULL);
}
