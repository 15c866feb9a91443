/* A run of training that has learned what it was given: it ends early, its rate falls to 0 until
 * then, and where it was stopped in between it goes on with the same bits. */
#include "model/training.h"

#include "learn/consolidate/train.h"

enum { FRAME = 3, TAUGHT = 6, KEPT = 2, LENGTH = 12, STEPS = 30, A_STEP = 3 };

typedef struct bed {
    golden g;
    rvi_base_model v;
    rvi_samples texts;
    size_t order[KEPT + TAUGHT];
} bed;

static void bed_init(bed *b)
{
    rvi_trainer *base;
    const rvi_trainer_options o = {.max_rows = 64, .max_spans = 65, .max_losses = 64, .lowest = 1};
    *b = (bed){0};
    golden_open_named(&b->g, "llama", false, 1, NULL);
    b->v = (rvi_base_model){.m = b->g.m, .be = b->g.be};
    for (int i = 0; i < FRAME; i++) assert_true(rvi_ids_push(&b->v.frame, i + 1));
    rvi_samples_init(&b->texts, &b->v, o.lowest);
    for (int i = 0; i < KEPT + TAUGHT; i++) {
        int32_t ids[LENGTH] = {1, 2, 3};
        for (int k = FRAME; k < LENGTH; k++) ids[k] = (7 * i + 3 * k) % b->g.m->hp.n_vocab;
        b->order[i] = (size_t)i;
        assert_ok(rvi_samples_add(&b->texts, ids, LENGTH, FRAME, i < KEPT, false, NULL, err));
    }
    assert_ok(rvi_trainer_new(&base, b->g.m, b->g.be, NULL, NULL, &o, err));
    assert_ok(rvi_samples_prepare(&b->texts, base, o.max_rows, NULL, NULL, err));
    rvi_trainer_free(base);
}

static void bed_deinit(bed *b)
{
    rvi_samples_deinit(&b->texts);
    rvi_ids_deinit(&b->v.frame);
    golden_close(&b->g);
}

static void begin(bed *b, float enough, rvi_params **theta, rvi_training *t)
{
    const rvi_train_options o = {.n_steps = STEPS,
                                 .n_teach = A_STEP,
                                 .n_keep = 1,
                                 .beta = 1,
                                 .rate = 2e-3f,
                                 .warm_up = 0.03f,
                                 .enough = enough,
                                 .seed = 1,
                                 .max_rows = 64};
    assert_ok(rvi_params_new(theta, b->g.be, b->g.m->targets, b->g.m->n_targets, every_target, NULL,
                             4, 8, err));
    rvi_params_init_random(*theta, 1);
    assert_ok(
        rvi_training_init(t, &b->texts, *theta, &o, b->order + KEPT, TAUGHT, b->order, KEPT, err));
}

static void end(rvi_params *theta, rvi_training *t)
{
    rvi_training_deinit(t);
    rvi_params_free(theta);
}

static void ends_when_all_is_learned(void **state)
{
    (void)state;
    bed b;
    rvi_params *theta;
    rvi_training t;
    bed_init(&b);
    begin(&b, 1e9f, &theta, &t); /* any loss is low enough */
    while (rvi_training_step(&t)) assert_true(t.step <= t.ends);
    assert_int_equal(t.easing, TAUGHT / A_STEP); /* when all had their turn, not before */
    assert_int_equal(t.ends, t.easing + STEPS / 6 + 1);
    assert_int_equal(t.step, t.ends);
    end(theta, &t);
    const float never[] = {0, 1e-9f};
    for (size_t i = 0; i < RVI_COUNT(never); i++) {
        begin(&b, never[i], &theta, &t);
        while (rvi_training_step(&t)) {
        }
        assert_int_equal(t.step, STEPS);
        assert_int_equal(t.easing, 0);
        end(theta, &t);
    }
    bed_deinit(&b);
}

static void goes_on_with_the_same_bits(void **state)
{
    (void)state;
    bed b;
    rvi_params *whole, *half;
    rvi_training t, again;
    rvi_buf saved = {0};
    bed_init(&b);
    begin(&b, 1e9f, &whole, &t);
    while (rvi_training_step(&t))
        if (t.step == 4) assert_true(rvi_training_save(&t, &saved));
    begin(&b, 1e9f, &half, &again);
    assert_ok(rvi_training_load(&again, saved.data, saved.len, err));
    assert_int_equal(again.step, 4);
    assert_int_equal(again.ends, t.ends);
    while (rvi_training_step(&again)) {
    }
    assert_int_equal(again.step, t.step);
    assert_memory_equal(whole->theta, half->theta, whole->n * sizeof *whole->theta);
    rvi_buf_deinit(&saved);
    end(whole, &t);
    end(half, &again);
    bed_deinit(&b);
}

/* Of a long answer a text teaches some tokens; the texts of a lesson, all of them. */
static void texts_teach_all_of_a_long_answer(void **state)
{
    enum { TEXTS = 12, QUESTION = 9, LONG = 70 };
    rvi_base_model v = {0};
    rvi_samples s;
    int32_t ids[QUESTION + LONG] = {0};
    int taught[QUESTION + LONG] = {0};
    (void)state;
    rvi_samples_init(&s, &v, 1);
    for (int i = 0; i < TEXTS; i++)
        assert_ok(rvi_samples_add(&s, ids, QUESTION + LONG, QUESTION - 1, false, false, NULL, err));
    for (size_t i = 0; i < s.n; i++) {
        const int32_t *at = s.at.data + s.items[i].losses;
        assert_int_equal(s.items[i].n_losses, RVI_SAMPLE_LOSSES);
        for (int k = 0; k < RVI_SAMPLE_LOSSES; k++) {
            assert_in_range(at[k], k ? at[k - 1] + 1 : QUESTION - 1, QUESTION + LONG - 2);
            taught[at[k]]++;
        }
    }
    for (int i = QUESTION - 1; i < QUESTION + LONG - 1; i++) assert_true(taught[i] > 0);
    rvi_samples_deinit(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_teach_all_of_a_long_answer),
        cmocka_unit_test(ends_when_all_is_learned),
        cmocka_unit_test(goes_on_with_the_same_bits),
    };
    return cmocka_run_group_tests_name("training", tests, NULL, NULL);
}
