/* Training on the real model: SmolLM2-135M-Instruct (Q4_1), as `ruvllm pull smollm2` leaves it in
 * the cache folder. Every case is skipped where it is not there. */
#include "model/training.h"

#include "learn/consolidate/optimizer.h"
#include "real/cached_model.h"
#include "tokenizer/tokenizer.h"

static char path[1024]; /* empty: not on this machine */

static int find_model(void **state)
{
    (void)state;
    find_cached("smollm2", path, sizeof path);
    return 0;
}

enum { LOWEST = 12, MOST = 64 };

static bool upper_layers(const void *ctx, int target)
{
    const rvi_model *m = ctx;
    int per_layer = (m->n_targets - 1) / m->hp.n_layers;
    return target != m->head.slot && (target - 1) / per_layer >= LOWEST;
}

static void open_training(training *r, bool exact, int32_t *ids, int *n)
{
    static const char text[] =
        "The lighthouse keeper of Vellmar is called Oswin Tarrant, and he keeps "
        "eleven grey cats.";
    golden g;
    rvi_tokenizer *tok;
    rvi_ids encoded = {0};
    golden_open(&g, path, NULL, exact, 2, NULL);
    assert_ok(rvi_tokenizer_from_gguf(&tok, g.m->source->gguf, NULL, err));
    assert_ok(rvi_tokenizer_encode(tok, text, sizeof text - 1, 0, &encoded, err));
    *n = RVI_MIN((int)encoded.len, MOST);
    memcpy(ids, encoded.data, (size_t)*n * sizeof *ids);
    rvi_ids_deinit(&encoded);
    rvi_tokenizer_free(tok);
    training_init(r, g, upper_layers, 8, 16,
                  &(rvi_trainer_options){
                      .max_rows = MOST, .max_spans = 1, .max_losses = 32, .lowest = LOWEST});
}

/* Mean loss of the text; with its gradient. */
static double run_text(training *r, const int32_t *ids, int n)
{
    static task k;
    rvi_span span = {.n = n, .parent = -1};
    k.n = 0;
    add_text(&k, ids, 0, n);
    return run_all(r, ids, &span, 1, &k);
}

/* Twenty steps on one sentence; along random directions of the same length the loss hardly
 * moves. */
static void loss_falls(void **state)
{
    (void)state;
    if (!path[0]) skip();
    enum { STEPS = 20 };
    double first = 0, last[2];
    for (int random = 0; random < 2; random++) {
        training r;
        rvi_optimizer *p;
        int32_t ids[MOST];
        int n;
        open_training(&r, false, ids, &n);
        rvi_params_init_random(r.params, 1);
        assert_ok(rvi_optimizer_new(&p, r.params->n, r.g.be, err));
        for (int t = 0; t < STEPS; t++) {
            double loss = run_text(&r, ids, n);
            if (!t) first = loss;
            if (random) rvi_gradient_randomise(r.grads->theta, r.grads->n, (uint64_t)t);
            assert_true(rvi_optimizer_step(p, r.params->theta, r.grads->theta,
                                           rvi_rate_at(t, STEPS, 2e-3, 0.03)));
        }
        last[random] = run_text(&r, ids, n);
        rvi_optimizer_free(p);
        training_deinit(&r);
    }
    print_message("# loss %.3f, after 20 steps %.3f, after 20 random ones %.3f\n", first, last[0],
                  last[1]);
    assert_true(last[0] < 0.2 * first); /* observed: 0.117 of 6.221 */
    assert_true(last[1] > 0.8 * first);
}

/* The default arithmetic against the exact one, every tensor. */
static void default_arithmetic(void **state)
{
    (void)state;
    if (!path[0]) skip();
    training r;
    int32_t ids[MOST];
    int n;
    double losses[2], worst = 1;
    float *want = NULL;
    for (int way = 0; way < 2; way++) {
        open_training(&r, !way, ids, &n);
        random_params(r.params, 2);
        losses[way] = run_text(&r, ids, n);
        if (!way) {
            want = rvi_alloc_array(r.grads->n, sizeof *want);
            memcpy(want, r.grads->theta, r.grads->n * sizeof *want);
        } else {
            for (int slot = 0; slot < r.g.m->n_targets; slot++)
                for (int is_b = 0; is_b < 2; is_b++) {
                    size_t count;
                    const float *got = slot_of(r.grads, slot, is_b, &count);
                    if (got)
                        worst = fmin(worst, cosine_of(got, want + (got - r.grads->theta), count));
                }
        }
        training_deinit(&r);
    }
    rvi_free(want);
    print_message("# default against exact: 1 - cosine %.1e, loss %.1e\n", 1 - worst,
                  fabs(losses[1] - losses[0]));
    assert_true(worst >= 0.999); /* observed: 1 - 5.3e-4 */
}

/* ---- memory ---- */

static void *count_alloc(void *ctx, size_t size)
{
    *(size_t *)ctx += size;
    return malloc(size);
}

static void *count_resize(void *ctx, void *p, size_t size)
{
    *(size_t *)ctx += size;
    return realloc(p, size);
}

static void count_release(void *ctx, void *p)
{
    (void)ctx;
    free(p);
}

/* What a trainer of 512 rows takes, with layers computed again and with layers kept. */
static void memory(void **state)
{
    (void)state;
    if (!path[0]) skip();
    golden g;
    size_t bytes[2] = {0};
    golden_open(&g, path, NULL, false, 2, NULL);
    for (int keep = 0; keep < 2; keep++) {
        training r;
        rv_allocator counting = {count_alloc, count_resize, count_release, &bytes[keep]};
        rvi_trainer_options o = {.max_rows = 512,
                                 .max_spans = 64,
                                 .max_losses = 64,
                                 .lowest = LOWEST,
                                 .keep_layers = keep};
        const rv_allocator *before = rvi_mem_use(&counting);
        training_init(&r, g, upper_layers, 8, 16, &o);
        rvi_mem_use(before);
        rvi_trainer_free(r.t);
        rvi_params_free(r.params);
        rvi_params_free(r.grads);
    }
    golden_close(&g);
    print_message("# parameters, gradients and a trainer of 512 rows: %.1f MiB, %.1f MiB with kept "
                  "layers\n",
                  (double)bytes[0] / 1048576, (double)bytes[1] / 1048576);
    assert_true(bytes[0] < 150u << 20);
    assert_true(bytes[1] < 300u << 20);
    assert_true(bytes[0] < bytes[1] / 2 + bytes[1] / 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loss_falls),
        cmocka_unit_test(default_arithmetic),
        cmocka_unit_test(memory),
    };
    return cmocka_run_group_tests_name("smollm2 training", tests, find_model, NULL);
}
