/* The backward pass against finite differences of the forward pass: every kind of linear layer
 * under every loss, frozen weights of every type, and the input of the lowest trained layer. Limits
 * stand beside the largest value observed. */
#include "training.h"

#include "harness/amount.h"

/* What a step changes the loss by: less is lost in f32's noise, more sees the curve. */
static const double move = 0.003;

/* Loss with theta moved by `step` along `way` in n places. */
static double loss_at(training *r, const int32_t *ids, int n_ids, task *k, float *theta,
                      const float *way, size_t n, double step)
{
    rvi_span span = {.n = n_ids, .parent = -1};
    float *old = rvi_alloc_array(n, sizeof *old);
    memcpy(old, theta, n * sizeof *old);
    for (size_t i = 0; i < n; i++) theta[i] = (float)(theta[i] + step * way[i]);
    rvi_trainer_begin(r->t, ids, &span, 1);
    rvi_trainer_forward(r->t, 0, r->g.m->hp.n_layers);
    double loss = run_losses(r, k, false);
    memcpy(theta, old, n * sizeof *old);
    rvi_free(old);
    return loss;
}

/* A way of length near 1 with a part along the gradient, so that the difference stands out of f32's
 * noise, and a random part, so that a wrong component shows. */
static void choose_way(float *way, const float *grad, size_t n, uint64_t seed)
{
    fill_random(way, n, 1, seed);
    double own = sqrt(dot(way, way, n)), along = sqrt(dot(grad, grad, n));
    for (size_t i = 0; i < n; i++) way[i] = (float)(0.7 * way[i] / own + 0.7 * grad[i] / along);
}

/* The slope along a way by central differences of two steps, extrapolated to none. */
static double slope(training *r, const int32_t *ids, int n_ids, task *k, float *theta,
                    const float *way, size_t n, double step)
{
    double d[2];
    for (int i = 0; i < 2; i++) {
        double s = step / (1 + i);
        d[i] = (loss_at(r, ids, n_ids, k, theta, way, n, s) -
                loss_at(r, ids, n_ids, k, theta, way, n, -s)) /
               (2 * s);
    }
    return (4 * d[1] - d[0]) / 3;
}

static const char *const loss_names[] = {"cross entropy", "KL", "KL at 2"};

/* A slot's A in one of two layers and its B in the other; the head's and those of a single
 * layer. */
static bool is_checked(const rvi_model *m, int slot, bool is_b)
{
    int layer = (slot - 1) * m->hp.n_layers / (m->n_targets - 1);
    assert_int_equal(m->head.slot, 0);
    return !slot || m->hp.n_layers == 1 || layer % 2 == is_b;
}

/* Every kind of linear layer under every loss; returns the worst disagreement, relative to
 * the slope. */
static double check_differences(training *r, const char *name, int n_ids)
{
    static task k;
    int vocab = r->g.m->hp.n_vocab;
    int32_t ids[64];
    double worst = 0;
    other_text(ids, n_ids, vocab);
    for (int kind = 0; kind < AMOUNT(3, 1); kind++) {
        double worst_here = 0;
        rvi_span span = {.n = n_ids, .parent = -1};
        k.n = 0;
        for (int i = 0; i < n_ids; i++)
            add_target(&k, i, kind, i, vocab, (i % 4 == 3 ? -0.5f : 1.0f) / (float)n_ids);
        run_all(r, ids, &span, 1, &k);
        for (int slot = 0; slot < r->g.m->n_targets; slot++)
            for (int is_b = 0; is_b < 2; is_b++) {
                size_t n;
                float *theta = slot_of(r->params, slot, is_b, &n);
                if (!theta || !is_checked(r->g.m, slot, is_b)) continue;
                const float *grad = slot_of(r->grads, slot, is_b, &n);
                float *way = rvi_alloc_array(n, sizeof *way);
                choose_way(way, grad, n, (uint64_t)(slot + 1));
                double want = dot(grad, way, n);
                double got = slope(r, ids, n_ids, &k, theta, way, n, fmin(0.5, move / fabs(want)));
                double error = fabs(got - want) / fabs(want);
                if (error > 5e-3)
                    print_message("# %s, %s, %s %c: slope %.6g, gradient %.6g\n", name,
                                  loss_names[kind], r->g.m->targets[slot].hf_name, is_b ? 'B' : 'A',
                                  got, want);
                worst_here = fmax(worst_here, error);
                rvi_free(way);
            }
        print_message("# %-14s %-13s finite differences %.1e\n", name, loss_names[kind],
                      worst_here);
        worst = fmax(worst, worst_here);
    }
    return worst;
}

static void differences_by_module(void **state)
{
    (void)state;
    double worst = 0;
    for (size_t i = 0; i < RVI_COUNT(golden_names); i++) {
        golden g;
        training r;
        golden_open_named(&g, golden_names[i], true, 2, NULL);
        training_init(&r, g, every_target, 2, 4, &usual);
        random_params(r.params, 11);
        worst = fmax(worst, check_differences(&r, golden_names[i], 24));
        training_deinit(&r);
    }
    assert_true(worst < 2e-3); /* observed: 5.3e-4 */
}

static void differences_by_type(void **state)
{
    (void)state;
    static const char *const types[] = {"bf16", "f16",  "iq4_nl", "iq4_xs", "q2_k", "q3_k", "q4_0",
                                        "q4_1", "q4_k", "q5_0",   "q5_1",   "q5_k", "q6_k", "q8_0"};
    double worst = 0;
    for (size_t i = 0; i < RVI_COUNT(types); i++) {
        golden g;
        training r;
        char path[64];
        snprintf(path, sizeof path, "tests/gguf/q-%s.gguf", types[i]);
        golden_open(&g, path, NULL, true, 2, NULL);
        training_init(&r, g, every_target, 2, 4, &usual);
        random_params(r.params, 12);
        worst = fmax(worst, check_differences(&r, types[i], 20));
        training_deinit(&r);
    }
    assert_true(worst < 2e-3); /* observed: 5.3e-4 */
}

/* The gradient by the lowest trained layer's input, of a text that is longer than the windows of
 * mistral and gemma2 and than the reach of the short factors of phi3-longrope; and of GGUF models
 * with biases, head sizes, rotations and scalings of their own. */
static void differences_by_input(void **state)
{
    (void)state;
    static task k;
    double worst = 0;
    enum { N = 140, LOWEST = 1 };
    static const char *const files[] = {"llama-bias",   "llama-head48", "llama-mqa",
                                        "llama-linear", "qwen2-yarn",   "phi3-partial"};
    for (size_t i = 0; i < RVI_COUNT(golden_names) + RVI_COUNT(files); i++) {
        bool is_file = i >= RVI_COUNT(golden_names);
        const char *name = is_file ? files[i - RVI_COUNT(golden_names)] : golden_names[i];
        char path[64];
        golden g;
        training r;
        int32_t ids[N];
        rvi_span span = {.n = N, .parent = -1};
        rvi_trainer_options o = usual;
        o.lowest = LOWEST;
        snprintf(path, sizeof path, is_file ? "tests/gguf/%s.gguf" : "tests/golden/%s", name);
        golden_open(&g, path, NULL, true, 2, NULL);
        training_init(&r, g, every_target, 2, 4, &o);
        random_params(r.params, 13);
        int width = g.m->hp.n_embd;
        size_t n = (size_t)N * (size_t)width;
        float *x = rvi_alloc_array(n, sizeof *x), *dx = rvi_alloc_array(n, sizeof *dx),
              *way = rvi_alloc_array(n, sizeof *way), *moved = rvi_alloc_array(n, sizeof *moved);
        other_text(ids, N, g.m->hp.n_vocab);
        k.n = 0;
        for (int t = 0; t < N; t++) add_target(&k, t, -1, t, g.m->hp.n_vocab, 1.0f / N);
        run_all(&r, ids, &span, 1, &k);
        for (int t = 0; t < N; t++) rvi_trainer_get_dx(r.t, t, dx + t * width);
        rvi_trainer_begin(r.t, ids, &span, 1);
        rvi_trainer_forward(r.t, 0, LOWEST);
        rvi_trainer_get_x(r.t, x);
        choose_way(way, dx, n, 5);
        double d[2], want = dot(dx, way, n), step = move / fabs(want);
        for (int s = 0; s < 2; s++, step /= 2) {
            d[s] = 0;
            for (int sign = -1; sign <= 1; sign += 2) {
                for (size_t j = 0; j < n; j++) moved[j] = (float)(x[j] + sign * step * way[j]);
                rvi_trainer_begin(r.t, ids, &span, 1);
                for (int t = 0; t < N; t++) rvi_trainer_set_x(r.t, t, moved + t * width);
                rvi_trainer_forward(r.t, LOWEST, g.m->hp.n_layers);
                d[s] += sign * run_losses(&r, &k, false) / (2 * step);
            }
        }
        double got = (4 * d[1] - d[0]) / 3, error = fabs(got - want) / fabs(want);
        print_message("# %-14s input of layer %d: finite differences %.1e\n", name, LOWEST, error);
        worst = fmax(worst, error);
        rvi_free(x);
        rvi_free(dx);
        rvi_free(way);
        rvi_free(moved);
        training_deinit(&r);
    }
    assert_true(worst < 2e-3); /* observed: 8.4e-5 */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(differences_by_module),
        cmocka_unit_test(differences_by_type),
        cmocka_unit_test(differences_by_input),
    };
    return cmocka_run_group_tests_name("differences", tests, NULL, NULL);
}
