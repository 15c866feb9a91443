/* A learner of a model on a CUDA device trains there, by the public functions alone: its gradients
 * are launches of the driver of fake_driver.cpp, the losses are those of the CPU, and what it
 * publishes is used there. */
#include "cuda/fake_runtime.h"

#include "api/memory_store.h"
#include "learn/journal/pieces.h"
#include "learn/tiny_model.h"

enum { STEPS = 2, LAYERS = 2 /* that adapters are in: the upper 0.6 */, MOST_LOSSES = 64 };

typedef struct course {
    double losses[MOST_LOSSES];
    int n;
    long gradients; /* kernels of the device that only a backward pass has */
    int generation;
} course;

static int keep_loss(void *ctx, const char *stage, int done, int total, double loss)
{
    course *c = ctx;
    (void)stage;
    (void)done;
    (void)total;
    if (!isnan(loss) && c->n < MOST_LOSSES) c->losses[c->n++] = loss;
    return 0;
}

/* Puts into the store what else is found out once for a model, which would take minutes on this
 * driver: texts of its own, here a few short ones in place of 200, and that it neither
 * repeats nor reads what stands in its chat. */
static void put_known(rvi_store *store, const rv_model *m)
{
    enum { TEXTS = 9, TOKENS = 12 };
    static const char *const traits[] = {"repeats", "reads"};
    static const rvi_replay_kind kinds[] = {RVI_GENERAL, RVI_PROBE, RVI_PROSE};
    rvi_replay_text pieces[TEXTS];
    int32_t ids[TEXTS * TOKENS];
    char digest[RVI_SHA256_HEX], name[RVI_SHA256_HEX + 8];
    rvi_buf data = {0};
    for (uint32_t i = 0; i < TEXTS * TOKENS; i++)
        ids[i] = (int32_t)(i * 37 % (uint32_t)rv_model_get_info(m)->n_vocab);
    for (uint32_t i = 0; i < TEXTS; i++)
        pieces[i] = (rvi_replay_text){
            .first = i * TOKENS, .n = TOKENS, .loss = 4, .kind = kinds[i % RVI_COUNT(kinds)]};
    const rvi_replay texts = {.ids = {ids, RVI_COUNT(ids), RVI_COUNT(ids)},
                              .pieces = pieces,
                              .n_pieces = TEXTS,
                              .n_portions = RVI_REPLAY_PORTIONS};
    assert_ok(rv_model_digest(m, digest, err));
    assert_true(rvi_replay_save(&texts, &data));
    snprintf(name, sizeof name, "%s.replay", digest);
    assert_ok(rvi_store_begin(store, false, err));
    assert_ok(rvi_pieces_put(store, "model", name, 1, data.data, data.len, err));
    for (size_t i = 0; i < RVI_COUNT(traits); i++) {
        snprintf(name, sizeof name, "%s.%s", digest, traits[i]);
        assert_ok(rvi_store_put(store, "model", name, strlen(name), "0", 1, err));
    }
    assert_ok(rvi_store_end(store, RV_OK, err));
    rvi_buf_deinit(&data);
}

static course train(rv_runtime *rt, const char *path)
{
    course c = {0};
    rvi_store memory;
    rv_model *m;
    rv_learner *l;
    rv_adaptation *a;
    rv_learner_options o = {
        .size = sizeof o, .seed = 5, .experiments = "n_steps=2,rank=2,sources=1,no_slots=1"};
    assert_ok(rv_model_open(&m, rt, path, NULL, err));
    assert_ok(rvi_store_memory(&memory, err));
    put_known(&memory, m);
    const rv_store store = memory_store(&memory);
    o.store = &store;
    assert_ok(rv_learner_new(&l, m, &o, err));
    assert_ok(rv_learner_correct(l, NULL, "Nim?", "teal", NULL, err));
    long before = fake()->gradients;
    assert_ok(rv_learner_consolidate(l, RV_LOOP_BACKGROUND, RV_LOSS_DPO, keep_loss, &c, &a, err));
    c.gradients = fake()->gradients - before;
    c.generation = a->generation;
    if (!c.generation) print_message("# %s\n", a->notes);
    rv_free(a);
    rv_learner_free(&l);
    rvi_store_close(&memory);
    rv_model_close(&m);
    return c;
}

static void trains_there(void **state)
{
    (void)state;
    char path[256];
    tiny t; /* on the CPU */
    tiny_template = "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}"
                    "{% if add_generation_prompt %}<|im_start|>{% endif %}";
    tiny_open(&t);
    const rv_runtime_options o = {.size = sizeof o, .n_threads = 1, .exact = 1};
    rv_runtime *cpu, *gpu = fake_runtime_with(&o);
    assert_ok(rv_runtime_new(&cpu, &o, err));
    course want = train(cpu, tiny_path(&t, path, "tiny.gguf")), got = train(gpu, path);
    print_message("# %d losses, %ld kernels of gradients\n", got.n, got.gradients);
    assert_int_equal(want.gradients, 0);
    /* of a layer: two norms, a gate, queries and keys; and the last norm */
    assert_int_equal(got.gradients, STEPS * (LAYERS * 5 + 1));
    assert_true(want.n >= STEPS);
    assert_int_equal(got.n, want.n);
    for (int i = 0; i < want.n; i++)
        if (!(fabs(got.losses[i] - want.losses[i]) <= 1e-3 * fabs(want.losses[i])))
            fail_msg("loss %d is %.7g, on the CPU %.7g", i, got.losses[i], want.losses[i]);
    assert_true(want.generation > 0);
    assert_int_equal(got.generation, want.generation);
    rv_runtime_free(&gpu);
    rv_runtime_free(&cpu);
    tiny_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(trains_there, reset, reset),
    };
    return cmocka_run_group_tests_name("learn", tests, NULL, NULL);
}
