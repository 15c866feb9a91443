/* The backward pass: against the float64 gradients of the official implementation for the nine
 * golden models, and against itself in its other ways of going (kept layers, shared beginnings,
 * threads, stored hidden states, turns through the head). Limits stand beside the largest value
 * observed. */
#include "harness/amount.h"
#include "training.h"

/* ---- the golden gradients ---- */

static bool but_head(const void *ctx, int target)
{
    const rvi_model *m = ctx;
    return target != m->head.slot;
}

static rvi_safetensors *open_lora(const char *name, const char *file)
{
    char path[160];
    rvi_safetensors *s;
    snprintf(path, sizeof path, "tests/golden/%s/lora/%s.safetensors", name, file);
    assert_ok(rvi_safetensors_open(&s, path, err));
    return s;
}

static rvi_tensor_view *lora_tensor(rvi_safetensors *s, const char *before,
                                    const rvi_lora_target *target, bool is_b)
{
    char name[256];
    snprintf(name, sizeof name, "%sbase_model.model.%s.lora_%c.weight", before, target->hf_name,
             is_b ? 'B' : 'A');
    rvi_tensor_view *v = rvi_safetensors_tensor(s, name);
    if (!v) fail_msg("%s is missing", name);
    return v;
}

static const char *isa; /* NULL: the best of this machine */

static void golden_training(training *r, const char *name, bool exact, int n_threads,
                            const rvi_trainer_options *o)
{
    golden g;
    golden_open_named(&g, name, exact, n_threads, isa);
    training_init(r, g, but_head, 2, 4, o);
    rvi_safetensors *s = open_lora(name, "adapter_model");
    for (int i = 0; i < g.m->n_targets; i++)
        for (int is_b = 0; is_b < 2; is_b++) {
            size_t n;
            float *at = slot_of(r->params, i, is_b, &n);
            if (!at) continue;
            rvi_tensor_view *v = lora_tensor(s, "", &g.m->targets[i], is_b);
            assert_int_equal(v->shape[0] * v->shape[1], n);
            rvi_dequantize(v->type, v->data, at, n);
        }
    rvi_safetensors_close(s);
}

/* The text of the golden loss. */
static const int32_t *golden_text(training *r, task *k, rvi_span *span)
{
    int n;
    const int32_t *ids = golden_ids(r->g.expected, "tokens", &n);
    *span = (rvi_span){.n = n, .parent = -1};
    k->n = 0;
    add_text(k, ids, 0, n);
    return ids;
}

static void check_golden(bool exact, double least_cosine, double most_relative, double most_loss)
{
    static task k;
    double worst_cosine = 1, worst_relative = 0, worst_loss = 0;
    int n_tensors = 0;
    for (size_t i = 0; i < RVI_COUNT(golden_names); i++) {
        training r;
        rvi_span span;
        double cosine = 1, error = 0;
        golden_training(&r, golden_names[i], exact, 2, &usual);
        rvi_safetensors *s = open_lora(golden_names[i], "expected");
        const int32_t *ids = golden_text(&r, &k, &span);
        double loss = run_all(&r, ids, &span, 1, &k),
               loss_error = fabs(loss - (double)golden_floats(s, "loss")[0]);
        for (int slot = 0; slot < r.g.m->n_targets; slot++)
            for (int is_b = 0; is_b < 2; is_b++) {
                size_t n;
                const float *got = slot_of(r.grads, slot, is_b, &n);
                if (!got) continue;
                rvi_tensor_view *v = lora_tensor(s, "grad.", &r.g.m->targets[slot], is_b);
                const float *want = (const float *)(const void *)v->data;
                cosine = fmin(cosine, cosine_of(got, want, n));
                error = fmax(error, relative(got, want, n));
                n_tensors++;
            }
        print_message("# %-14s %s: 1 - cosine %.1e  relative %.1e  loss %.1e\n", golden_names[i],
                      exact ? "exact" : "default", 1 - cosine, error, loss_error);
        worst_cosine = fmin(worst_cosine, cosine);
        worst_relative = fmax(worst_relative, error);
        worst_loss = fmax(worst_loss, loss_error);
        rvi_safetensors_close(s);
        training_deinit(&r);
    }
    print_message("# worst of %d tensors: 1 - cosine %.1e  relative %.1e  loss %.1e\n", n_tensors,
                  1 - worst_cosine, worst_relative, worst_loss);
    assert_int_equal(n_tensors, 7 * 28 + 2 * 16);
    assert_true(worst_cosine >= least_cosine);
    assert_true(worst_relative <= most_relative);
    assert_true(worst_loss <= most_loss);
}

static void golden_exact(void **state)
{
    (void)state;
    check_golden(true, 0.99999, 1e-3, 1e-4); /* observed: 1 - 1.3e-11, 5.3e-6, 7.5e-7 */
}

/* bf16 products where the machine has matrix units for them */
static void golden_default(void **state)
{
    (void)state;
    check_golden(false, 0.999, 0.05, 1e-2); /* observed: 1 - 2.3e-4, 0.022, 1.9e-3 */
}

/* Every other set of instructions, but the reference kernels where there are faster ones. */
static void golden_instructions(void **state)
{
    (void)state;
    int n = 0;
    if (test_driver()) skip(); /* a device has one */
    for (const char *const *name = rv_isa_list(); *name; name++, n++) {
        if (!n && name[1]) continue;
        print_message("# %s\n", *name);
        isa = *name;
        check_golden(true, 0.99999, 1e-3, 1e-4);
        check_golden(false, 0.999, 0.05, 1e-2);
    }
    isa = NULL;
    assert_true(n > 0);
}

/* ---- the other ways of going ---- */

/* A text of three parts, so long that the windows of mistral and gemma2 end within it: a beginning
 * and two ways to go on. */
enum { BEGIN = 84, FIRST = 21, SECOND = 13 };

static void copy_grads(const training *r, float **out)
{
    *out = rvi_alloc_array(r->grads->n, sizeof **out);
    memcpy(*out, r->grads->theta, r->grads->n * sizeof **out);
}

static void same_grads(const training *r, const float *want, const char *name, const char *how)
{
    size_t differing = 0;
    for (size_t i = 0; i < r->grads->n; i++)
        differing += memcmp(&r->grads->theta[i], &want[i], sizeof *want) != 0;
    if (differing) fail_msg("%s: %s: %zu of %zu values differ", name, how, differing, r->grads->n);
}

/* Loss and gradients of a beginning with two ends, as a trainer of the given options computes
 * them. */
static double run_tree(const char *name, bool exact, int n_threads, const rvi_trainer_options *o,
                       training *r, task *k)
{
    int32_t ids[BEGIN + FIRST + SECOND];
    static const rvi_span spans[] = {
        {.first = 0, .n = BEGIN, .pos = 0, .parent = -1},
        {.first = BEGIN, .n = FIRST, .pos = BEGIN, .parent = 0},
        {.first = BEGIN + FIRST, .n = SECOND, .pos = BEGIN, .parent = 0}};
    golden_training(r, name, exact, n_threads, o);
    other_text(ids, BEGIN + FIRST + SECOND, r->g.m->hp.n_vocab);
    k->n = 0;
    for (int i = BEGIN / 2; i < BEGIN + FIRST + SECOND; i++)
        add_target(k, i, -1, i, r->g.m->hp.n_vocab, i < BEGIN ? 0.5f : 0.25f);
    return run_all(r, ids, spans, 3, k);
}

/* Kept layers, one thread, few losses at a time, so many threads that weights are held packed: not
 * one bit differs. */
static void same_bits(void **state)
{
    (void)state;
    static task k;
    rvi_trainer_options kept = usual, narrow = usual;
    kept.keep_layers = true;
    narrow.max_losses = 7;
    for (size_t i = 0; i < 2 * RVI_COUNT(golden_names); i += OFTEN(AMOUNT(1, 3), 3)) {
        const char *name = golden_names[i / 2];
        bool exact = i % 2;
        const struct {
            const char *how;
            int n_threads;
            const rvi_trainer_options *o;
        } ways[] = {{"kept layers", 2, &kept},
                    {"one thread", 1, &usual},
                    {"narrow", 2, &narrow},
                    {"held weights", 5, &usual}};
        training r;
        float *want;
        double loss = run_tree(name, exact, 2, &usual, &r, &k);
        copy_grads(&r, &want);
        assert_true(dot(want, want, r.grads->n) > 0);
        training_deinit(&r);
        for (size_t w = 0; w < RVI_COUNT(ways); w++) {
            double again = run_tree(name, exact, ways[w].n_threads, ways[w].o, &r, &k);
            assert_true(again == loss);
            same_grads(&r, want, name, ways[w].how);
            training_deinit(&r);
        }
        rvi_free(want);
    }
}

/* A shared beginning is as good as two whole texts. */
static void shared_beginning(void **state)
{
    (void)state;
    static task k;
    double worst_loss = 0, worst_grad = 0;
    enum { ONE = BEGIN + FIRST, TWO = BEGIN + SECOND };
    for (size_t i = 0; i < RVI_COUNT(golden_names); i++) {
        training r;
        float *want;
        int32_t tree[BEGIN + FIRST + SECOND], ids[ONE + TWO];
        double loss = run_tree(golden_names[i], true, 2, &usual, &r, &k);
        copy_grads(&r, &want);
        int vocab = r.g.m->hp.n_vocab;
        static const rvi_span spans[] = {{.first = 0, .n = ONE, .parent = -1},
                                         {.first = ONE, .n = TWO, .parent = -1}};
        other_text(tree, BEGIN + FIRST + SECOND, vocab);
        memcpy(ids, tree, ONE * sizeof *ids);
        memcpy(ids + ONE, tree, BEGIN * sizeof *ids);
        memcpy(ids + ONE + BEGIN, tree + ONE, SECOND * sizeof *ids);
        k.n = 0; /* the targets of run_tree; those of the beginning by halves */
        for (int t = BEGIN / 2; t < BEGIN + FIRST + SECOND; t++) {
            if (t < BEGIN) {
                add_target(&k, t, -1, t, vocab, 0.25f);
                add_target(&k, ONE + t, -1, t, vocab, 0.25f);
            } else {
                add_target(&k, t < ONE ? t : t + BEGIN, -1, t, vocab, 0.25f);
            }
        }
        double apart = run_all(&r, ids, spans, 2, &k);
        double loss_error = fabs(apart - loss) / fabs(loss),
               error = relative(r.grads->theta, want, r.grads->n);
        print_message("# %-14s shared beginning: loss %.1e  gradients %.1e\n", golden_names[i],
                      loss_error, error);
        worst_loss = fmax(worst_loss, loss_error);
        worst_grad = fmax(worst_grad, error);
        rvi_free(want);
        training_deinit(&r);
    }
    assert_true(worst_loss <= 1e-5); /* observed: 0 */
    assert_true(worst_grad <= 1e-4); /* observed: 8.8e-7 */
}

/* A trainer on a backend of its own, beside the one that packed the model's weights for inference:
 * the same bits as in a model that was opened for training alone. */
static void own_backend(void **state)
{
    (void)state;
    static task k;
    static const char *const files[] = {"q-q4_1", "q-q6_k", "q-q8_0", "q-bf16", "gemma2"};
    static const rvi_span span = {.n = 40, .parent = -1};
    int32_t ids[40];
    if (test_driver()) skip(); /* the CPU cannot read its weights */
    for (size_t i = 0; i < RVI_COUNT(files); i++) {
        float *want = NULL;
        double losses[2];
        for (int way = 0; way < 2; way++) {
            char path[64];
            golden g;
            rvi_backend *own;
            training r = {0};
            snprintf(path, sizeof path, "tests/gguf/%s.gguf", files[i]);
            golden_no_pack = way == 0;
            golden_open(&g, path, NULL, way == 0, 1, NULL);
            golden_no_pack = false;
            assert_ok(rvi_backend_cpu_new(&own, &(rvi_cpu_options){.n_threads = 2, .exact = true},
                                          NULL, err));
            r.g = g;
            assert_ok(rvi_params_new(&r.params, own, g.m->targets, g.m->n_targets, every_target,
                                     NULL, 3, 6, err));
            assert_ok(rvi_params_like(&r.grads, r.params, err));
            assert_ok(rvi_trainer_new(&r.t, g.m, own, r.params, r.grads, &usual, err));
            random_params(r.params, 4);
            other_text(ids, 40, g.m->hp.n_vocab);
            k.n = 0;
            add_text(&k, ids, 0, 40);
            losses[way] = run_all(&r, ids, &span, 1, &k);
            if (!way)
                copy_grads(&r, &want);
            else
                same_grads(&r, want, files[i], "a backend of its own");
            training_deinit(&r);
            own->ops->free(own);
        }
        assert_true(losses[0] == losses[1]);
        rvi_free(want);
    }
}

static bool upper_only(const void *ctx, int target)
{
    const rvi_model *m = ctx;
    char layer[32];
    snprintf(layer, sizeof layer, ".layers.%d.", m->hp.n_layers - 1);
    return strstr(m->targets[target].hf_name, layer) != NULL;
}

/* Hidden states at the lowest trained layer, stored and put back, are as good as the layers
 * below. */
static void stored_hidden_states(void **state)
{
    (void)state;
    static task k;
    for (size_t i = 0; i < RVI_COUNT(golden_names); i++) {
        golden g;
        training r;
        float *want, *x;
        int n;
        golden_open_named(&g, golden_names[i], false, 2, NULL);
        int n_layers = g.m->hp.n_layers, lowest = n_layers - 1;
        size_t width = (size_t)g.m->hp.n_embd;
        rvi_trainer_options o = usual;
        o.lowest = lowest;
        training_init(&r, g, upper_only, 3, 6, &o);
        random_params(r.params, 3);
        const int32_t *ids = golden_ids(g.expected, "tokens", &n);
        rvi_span span = {.n = n, .parent = -1};
        k.n = 0;
        add_text(&k, ids, 0, n);
        double loss = run_all(&r, ids, &span, 1, &k);
        copy_grads(&r, &want);
        assert_true(dot(want, want, r.grads->n) > 0);

        x = rvi_alloc_array((size_t)n * width, sizeof *x);
        rvi_trainer_begin(r.t, ids, &span, 1);
        assert_int_equal(rvi_trainer_rows(r.t), n);
        rvi_trainer_forward(r.t, 0, lowest);
        rvi_trainer_get_x(r.t, x);
        memset(r.grads->theta, 0, r.grads->n * sizeof(float));
        rvi_trainer_begin(r.t, ids, &span, 1);
        for (int t = 0; t < n; t++) rvi_trainer_set_x(r.t, t, x + (size_t)t * width);
        rvi_trainer_forward(r.t, lowest, n_layers);
        assert_true(run_losses(&r, &k, true) == loss);
        rvi_trainer_backward(r.t);
        same_grads(&r, want, golden_names[i], "stored hidden states");
        rvi_free(want);
        rvi_free(x);
        training_deinit(&r);
    }
}

/* The layers are the same code: in exact arithmetic the training pass gives the logits of
 * inference, but for the order of sums. All of the vocabulary as the "largest" log
 * probabilities. */
static void inference_agrees(void **state)
{
    (void)state;
    double worst = 0;
    for (size_t i = 0; i < RVI_COUNT(golden_names); i++) {
        training r;
        feed f;
        int n;
        golden_training(&r, golden_names[i], true, 2, &usual);
        const int32_t *ids = golden_ids(r.g.expected, "tokens", &n);
        int vocab = r.g.m->hp.n_vocab;
        size_t total = (size_t)n * (size_t)vocab;
        float *logits = rvi_alloc_array(total, sizeof *logits),
              *log_p = rvi_alloc_array(total, sizeof *log_p);
        int32_t *top = rvi_alloc_array(total, sizeof *top), rows[MOST_ROWS];
        rvi_adapter_use use = {r.params->adapter, 1.0f};
        rvi_adapter_set set = {.uses = &use, .n = 1};
        feed_init(&f, r.g.m, n, n, RV_KV_F32);
        feed_ids(&f, ids, n, n, &set, logits, NULL);

        rvi_span span = {.n = n, .parent = -1};
        for (int t = 0; t < n; t++) rows[t] = t;
        rvi_trainer_begin(r.t, ids, &span, 1);
        rvi_trainer_forward(r.t, 0, r.g.m->hp.n_layers);
        rvi_trainer_top(r.t, rows, n, vocab, top, log_p);
        double error = 0;
        for (int t = 0; t < n; t++) {
            const float *z = logits + (size_t)t * (size_t)vocab;
            double sum = 0;
            for (int v = 0; v < vocab; v++) sum += exp(z[v]);
            for (int v = 0; v < vocab; v++) {
                size_t at = (size_t)t * (size_t)vocab + (size_t)v;
                error = fmax(error, fabs((double)log_p[at] - (z[top[at]] - log(sum))));
                if (v) assert_true(log_p[at] <= log_p[at - 1]);
            }
        }
        print_message("# %-14s training against inference: log p %.1e\n", golden_names[i], error);
        worst = fmax(worst, error);
        feed_deinit(&f);
        rvi_free(logits);
        rvi_free(log_p);
        rvi_free(top);
        training_deinit(&r);
    }
    assert_true(worst < 1e-4); /* observed: 1.1e-5 */
}

/* Windows and long factors: the last position of a long text, of the model alone. */
static void long_inputs(void **state)
{
    (void)state;
    int n_checked = 0;
    double worst = 0;
    for (size_t i = 0; i < RVI_COUNT(golden_names); i++) {
        golden g;
        int n;
        golden_open_named(&g, golden_names[i], true, 2, NULL);
        const int32_t *ids = golden_ids(g.expected, "long_tokens", &n);
        const float *want = golden_floats(g.expected, "long_last_logits");
        if (want) {
            rvi_trainer *t;
            rvi_span span = {.n = n, .parent = -1};
            rvi_trainer_options o = {.max_rows = n, .max_spans = 1, .max_losses = 1};
            assert_ok(rvi_trainer_new(&t, g.m, g.be, NULL, NULL, &o, err));
            int vocab = g.m->hp.n_vocab;
            int32_t *ids_of = rvi_alloc_array((size_t)vocab, sizeof *ids_of), row = n - 1;
            float *log_p = rvi_alloc_array((size_t)vocab, sizeof *log_p);
            rvi_trainer_begin(t, ids, &span, 1);
            rvi_trainer_forward(t, 0, g.m->hp.n_layers);
            rvi_trainer_top(t, &row, 1, vocab, ids_of, log_p);
            double sum = 0, error = 0;
            for (int v = 0; v < vocab; v++) sum += exp(want[v]);
            for (int v = 0; v < vocab; v++)
                error = fmax(error, fabs(log_p[v] - (want[ids_of[v]] - log(sum))));
            print_message("# %-14s long input: log p %.1e\n", golden_names[i], error);
            worst = fmax(worst, error);
            n_checked++;
            rvi_free(ids_of);
            rvi_free(log_p);
            rvi_trainer_free(t);
        }
        golden_close(&g);
    }
    assert_int_equal(n_checked, 8); /* all but phi3, whose context is shorter */
    assert_true(worst < 1e-4);      /* observed: 9.4e-6 */
}

/* A few of the largest are the first of all of them; equal ones by id. */
static void few_largest(void **state)
{
    (void)state;
    training r;
    rvi_span span;
    static task k;
    golden_training(&r, "gemma2", true, 1, &usual);
    int vocab = r.g.m->hp.n_vocab;
    float *all_p = rvi_alloc_array((size_t)vocab, sizeof *all_p), few_p[5];
    int32_t *all = rvi_alloc_array((size_t)vocab, sizeof *all), few[5];
    static const int32_t row = 17;
    rvi_trainer_begin(r.t, golden_text(&r, &k, &span), &span, 1);
    rvi_trainer_forward(r.t, 0, r.g.m->hp.n_layers);
    rvi_trainer_top(r.t, &row, 1, vocab, all, all_p);
    rvi_trainer_top(r.t, &row, 1, 5, few, few_p);
    assert_memory_equal(few, all, sizeof few);
    assert_memory_equal(few_p, all_p, sizeof few_p);
    double sum = 0;
    for (int v = 0; v < vocab; v++) sum += exp(all_p[v]);
    assert_true(fabs(sum - 1) < 1e-5);
    rvi_free(all);
    rvi_free(all_p);
    training_deinit(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_exact),         cmocka_unit_test(golden_default),
        cmocka_unit_test(golden_instructions),  cmocka_unit_test(same_bits),
        cmocka_unit_test(shared_beginning),     cmocka_unit_test(own_backend),
        cmocka_unit_test(stored_hidden_states), cmocka_unit_test(inference_agrees),
        cmocka_unit_test(long_inputs),          cmocka_unit_test(few_largest),
    };
    return cmocka_run_group_tests_name("gradients", tests, NULL, NULL);
}
