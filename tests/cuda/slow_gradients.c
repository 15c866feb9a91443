/* Training on a CUDA device, computed on the host by fake_driver.cpp: gradients and losses against
 * the CPU's, which tests/model/test_gradients.c holds to those of the official implementation, and
 * what breaks or does not fit. RUVLLM_TEST_CUDA=system computes the gradients on a real device;
 * slow_gradients MODEL [exact] those of one model alone, for tools under which all take too
 * long. */
#include <limits.h>

#include "cuda/fake.h"
#include "model/training.h"

/* A beginning with two ends; LONG, so that gemma2's window ends within it. */
enum { SHORT = 14, LONG = 62, FIRST = 11, SECOND = 7, TOP = 5 };

static const char *device; /* a driver */

static void open_on(training *r, bool on_device, const char *path, bool exact, bool keep)
{
    golden g;
    rvi_trainer_options o = usual;
    o.keep_layers = keep;
    if (on_device)
        setenv("RUVLLM_TEST_CUDA", device, 1);
    else
        unsetenv("RUVLLM_TEST_CUDA");
    golden_open(&g, path, NULL, exact, 1, NULL);
    training_init(r, g, every_target, 3, 6, &o);
    random_params(r->params, 4);
}

typedef struct results {
    double loss;
    float *grads;
    int32_t ids[TOP];
    float log_p[TOP];
} results;

/* Loss and gradients of targets of three kinds, and the largest logits of a row. */
static void train(training *r, int begin, results *out)
{
    static task k;
    const rvi_span spans[] = {{.first = 0, .n = begin, .pos = 0, .parent = -1},
                              {.first = begin, .n = FIRST, .pos = begin, .parent = 0},
                              {.first = begin + FIRST, .n = SECOND, .pos = begin, .parent = 0}};
    int32_t ids[LONG + FIRST + SECOND], row = begin + 3;
    int n = begin + FIRST + SECOND, vocab = r->g.m->hp.n_vocab;
    other_text(ids, n, vocab);
    k.n = 0;
    for (int i = begin - 5; i < n; i++) add_target(&k, i, -1, i, vocab, 0.25f);
    add_target(&k, begin, 0, 3, vocab, 0.5f); /* a row for the second time */
    out->loss = run_all(r, ids, spans, 3, &k);
    rvi_trainer_top(r->t, &row, 1, TOP, out->ids, out->log_p);
    out->grads = rvi_alloc_array(r->grads->n, sizeof *out->grads);
    assert_non_null(out->grads);
    memcpy(out->grads, r->grads->theta, r->grads->n * sizeof *out->grads);
}

static void compare(const char *path, int begin, bool exact, double most_relative, double most_loss)
{
    training r;
    results want, got, again;
    open_on(&r, false, path, true, false);
    train(&r, begin, &want);
    training_deinit(&r);
    open_on(&r, true, path, exact, false);
    train(&r, begin, &got);
    training_deinit(&r);
    open_on(&r, true, path, exact, true); /* layers kept instead of computed again */
    train(&r, begin, &again);
    size_t n = r.grads->n;
    double error = relative(got.grads, want.grads, n),
           loss_error = fabs(got.loss - want.loss) / fabs(want.loss);
    print_message("# %s %s: gradients %.1e  loss %.1e\n", path, exact ? "exact" : "default", error,
                  loss_error);
    assert_true(error <= most_relative);
    assert_true(loss_error <= most_loss);
    assert_true(again.loss == got.loss);
    assert_memory_equal(again.grads, got.grads, n * sizeof *got.grads);
    if (exact) assert_memory_equal(got.ids, want.ids, sizeof want.ids);
    for (int i = 0; i < TOP; i++) assert_true(fabsf(got.log_p[i] - want.log_p[i]) < 0.05f);
    training_deinit(&r);
    rvi_free(want.grads);
    rvi_free(got.grads);
    rvi_free(again.grads);
}

/* Windows, soft caps and norms behind the halves; norms of heads; bf16 products and weights of
 * blocks. */
static void gradients(void **state)
{
    (void)state;
    compare("tests/golden/gemma2", LONG, true, 1e-4, 1e-5);      /* observed: 3.0e-6, 7.4e-8 */
    compare("tests/golden/qwen3", SHORT, true, 1e-4, 1e-5);      /* observed: 1.4e-6, 2e-8 */
    compare("tests/gguf/q-q4_1.gguf", SHORT, false, 0.05, 1e-2); /* observed: 0.014, 1.6e-4 */
}

/* What an adapter in training holds is the caller's storage, for whoever reads it or computes with
 * it; states that were stored go on as if they had been computed. */
static void storage_counts(void **state)
{
    (void)state;
    enum { N = 6 };
    training r;
    rvi_adapter *copy;
    feed f;
    size_t vocab;
    float *logits[2];
    int32_t ids[N];
    open_on(&r, true, "tests/golden/llama", true, false);
    vocab = (size_t)r.g.m->hp.n_vocab;
    assert_ok(rvi_adapter_copy(&copy, r.params->adapter, err));
    other_text(ids, N, r.g.m->hp.n_vocab);
    for (int i = 0; i < 2; i++) {
        rvi_adapter_use use = {i ? copy : r.params->adapter, 1.0f};
        rvi_adapter_set set = {.uses = &use, .n = 1};
        logits[i] = rvi_alloc_array(vocab, sizeof(float));
        feed_init(&f, r.g.m, N, N, RV_KV_F32);
        feed_ids(&f, ids, N, N, &set, NULL, logits[i]);
        feed_deinit(&f);
    }
    assert_memory_equal(logits[0], logits[1], vocab * sizeof(float));
    rvi_free(logits[0]);
    rvi_free(logits[1]);
    rvi_adapter_free(copy);
    training_deinit(&r);
}

/* A second backend computes with the first one's weights. */
static void like_another(void **state)
{
    (void)state;
    training r;
    results want, got;
    rvi_backend *own;
    open_on(&r, true, "tests/golden/qwen2", true, false);
    train(&r, SHORT, &want);
    assert_ok(r.g.be->ops->like(&own, r.g.be, 0, NULL, NULL, err));
    rvi_trainer_free(r.t);
    assert_ok(rvi_trainer_new(&r.t, r.g.m, own, r.params, r.grads, &usual, err));
    train(&r, SHORT, &got);
    assert_true(got.loss == want.loss);
    assert_memory_equal(got.grads, want.grads, r.grads->n * sizeof *got.grads);
    rvi_free(want.grads);
    rvi_free(got.grads);
    rvi_trainer_free(r.t);
    r.t = NULL;
    own->ops->free(own);
    training_deinit(&r);
}

/* A trainer computes with its own weights, or with those that were brought to the device before. */
static void shared_weights(void **state)
{
    (void)state;
    training r;
    results want, got;
    rvi_held_weights *held;
    rvi_held_range range = {0, usual.lowest};
    open_on(&r, true, "tests/golden/llama", true, false);
    train(&r, SHORT, &want);
    rvi_trainer_free(r.t);
    size_t bytes = rvi_held_weights_bytes(r.g.m, r.g.be, range);
    assert_ok(rvi_held_weights_new(&held, r.g.m, r.g.be, range, bytes, err));
    rvi_trainer_options o = usual;
    size_t own = 0;
    for (int i = 0; i < 2; i++, o.weights = held) {
        assert_ok(rvi_trainer_new(&r.t, r.g.m, r.g.be, r.params, r.grads, &o, err));
        if (i) assert_int_equal(own - fake()->used, bytes);
        own = fake()->used;
        train(&r, SHORT, &got);
        assert_true(got.loss == want.loss);
        assert_memory_equal(got.grads, want.grads, r.grads->n * sizeof *got.grads);
        rvi_free(got.grads);
        rvi_trainer_free(r.t);
        r.t = NULL;
    }
    rvi_held_weights_free(held);
    rvi_free(want.grads);
    training_deinit(&r);
}

/* ---- calls come first ---- */

enum { EARLY = 10 }; /* launches of a step that are started before a call comes */

typedef struct visitor {
    long came;   /* launches at that time */
    int n_waits; /* since then */
} visitor;

static void wait_for_visitor(void *ctx)
{
    visitor *v = ctx;
    v->n_waits += fake()->launches >= v->came;
}

/* What a second backend computes waits for calls before every list of launches, not only before the
 * host's own tasks, and ends with the same bits. */
static void calls_come_first(void **state)
{
    (void)state;
    training r;
    results want, got;
    rvi_backend *own;
    visitor v = {.came = LONG_MAX};
    open_on(&r, true, "tests/golden/llama", true, false);
    train(&r, SHORT, &want);
    assert_ok(r.g.be->ops->like(&own, r.g.be, 0, wait_for_visitor, &v, err));
    rvi_trainer_free(r.t);
    assert_ok(rvi_trainer_new(&r.t, r.g.m, own, r.params, r.grads, &usual, err));
    v.came = fake()->launches + EARLY;
    train(&r, SHORT, &got);
    /* losses, gradients, logits, losses again; the host alone has one task behind the beginning */
    assert_true(v.n_waits >= 4);
    assert_true(got.loss == want.loss);
    assert_memory_equal(got.grads, want.grads, r.grads->n * sizeof *got.grads);
    rvi_free(want.grads);
    rvi_free(got.grads);
    rvi_trainer_free(r.t);
    r.t = NULL;
    own->ops->free(own);
    training_deinit(&r);
}

static void says(const rv_error *why, const char *what)
{
    if (!strstr(why->text, what)) fail_msg("'%s' does not say '%s'", why->text, what);
}

static void no_memory(void **state)
{
    (void)state;
    training r;
    rv_error why = {0};
    open_on(&r, true, "tests/golden/llama", true, false);
    rvi_trainer_free(r.t);
    r.t = NULL;
    rvi_trainer_options more = usual;
    more.max_rows *= 2;
    fake()->memory = fake()->used + (1 << 20);
    assert_int_equal(rvi_trainer_new(&r.t, r.g.m, r.g.be, r.params, r.grads, &more, &why),
                     RV_E_NOMEM);
    says(&why, "of device memory are needed");
    training_deinit(&r);
}

static void lost_device(void **state)
{
    (void)state;
    training r;
    results got;
    rv_error why = {0};
    open_on(&r, true, "tests/golden/llama", true, false);
    fake()->fail_after = 40;
    train(&r, SHORT, &got);
    assert_true(isnan(got.loss));
    assert_true(isnan(got.grads[0]));
    assert_int_equal(r.g.be->ops->check(r.g.be, &why), RV_E_STATE);
    says(&why, "CUDA_ERROR_ILLEGAL_ADDRESS");
    rvi_free(got.grads);
    training_deinit(&r);
}

/* Layers on both sides cannot be trained, and nothing trains elsewhere instead. */
static void both_sides(void **state)
{
    (void)state;
    golden g;
    rvi_params *params;
    rv_error why = {0};
    rvi_trainer *t;
    rvi_trainer_options o = usual;
    rvi_backend *on_device, *host;
    assert_ok(open_fake(&on_device, true, NULL, err));
    assert_ok(
        rvi_backend_cpu_new(&host, &(rvi_cpu_options){.n_threads = 1, .exact = true}, NULL, err));
    assert_ok(rvi_backend_split_new(&g.be, on_device, host, 1, err));
    rvi_source *source;
    assert_ok(rvi_source_open(&source, "tests/golden/llama", err));
    assert_ok(rvi_model_new(&g.m, g.be, source, NULL, err));
    g.expected = NULL;
    assert_int_equal(
        rvi_params_new(&params, g.be, g.m->targets, g.m->n_targets, every_target, NULL, 2, 4, &why),
        RV_E_UNSUPPORTED);
    says(&why, "training needs all layers of the model on one device");
    assert_int_equal(rvi_trainer_new(&t, g.m, g.be, NULL, NULL, &o, &why), RV_E_UNSUPPORTED);
    golden_close(&g);
    on_device->ops->free(on_device);
}

int main(int argc, char **argv)
{
    const char *asked = getenv("RUVLLM_TEST_CUDA");
    device = asked ? asked : FAKE_DRIVER;
    if (argc > 1) {
        bool exact = argc > 2;
        compare(argv[1], SHORT, exact, exact ? 1e-4 : 0.05, exact ? 1e-5 : 1e-2);
        return 0;
    }
    const struct CMUnitTest real[] = {cmocka_unit_test(gradients), cmocka_unit_test(storage_counts),
                                      cmocka_unit_test(like_another)};
    const struct CMUnitTest all[] = {
        cmocka_unit_test_setup_teardown(gradients, reset, reset),
        cmocka_unit_test_setup_teardown(storage_counts, reset, reset),
        cmocka_unit_test_setup_teardown(like_another, reset, reset),
        cmocka_unit_test_setup_teardown(shared_weights, reset, reset),
        cmocka_unit_test_setup_teardown(calls_come_first, reset, reset),
        cmocka_unit_test_setup_teardown(no_memory, reset, reset),
        cmocka_unit_test_setup_teardown(lost_device, reset, reset),
        cmocka_unit_test_setup_teardown(both_sides, reset, reset),
    };
    if (!strcmp(device, "system"))
        return cmocka_run_group_tests_name("gradients on a device", real, NULL, NULL);
    return cmocka_run_group_tests_name("gradients on a device", all, NULL, NULL);
}
