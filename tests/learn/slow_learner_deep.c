/* Deep runs of a learner: what they measure, when they stop, and that one that was stopped goes on
 * with the same bits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/blob.h"
#include "learn/learner/jobs.h"
#include "learn/learner_bed.h"
#include "learn/journal/snapshot.h"

static void deep_runs_tell_what_they_measured(void **state)
{
    (void)state;
    rvi_store store;
    rvi_learner_options o = tiny_options();
    o.n_steps = 60;
    rvi_learner *l = open_new(&store, &o);
    teach_two(l);
    rvi_adaptation a = study(l, RV_LOOP_DEEP);
    const rvi_study_result *f = &rvi_learner_generation(l, 1)->figures;
    print_message("# %s\n", a.notes);
    assert_int_equal(f->n_held, 2); /* of two lessons, the question and 6 forms each */
    assert_true(f->held_after < f->held_before);
    assert_true(fabs(a.quality_delta - (f->held_before - f->held_after)) < 1e-12);
    assert_true(f->best_step > 0 && f->best_step <= f->n_steps && f->n_steps <= 60);
    assert_non_null(strstr(a.notes, "held-out wordings"));
    a = study(l, RV_LOOP_DEEP);
    assert_true(isnan(a.quality_delta));
    assert_string_equal(a.notes, "nothing waits");
    teach(l, car, "blue");
    a = study(l, RV_LOOP_BACKGROUND); /* nothing set aside, nothing claimed */
    assert_true(isnan(a.quality_delta));
    assert_string_equal(a.notes, "");
    close_both(l, &store);
}

/* Pairs that are taken back while they are trained are not published; those that came meanwhile
 * wait. */
static void deep_runs_look_again(void **state)
{
    (void)state;
    rvi_store store;
    rvi_learner_options o = tiny_options();
    rvi_adaptation a;
    rvi_learner *l = open_new(&store, &o);
    static const char *const asked[] = {"Tell me of tea.", "Tell me of rain.", "Tell me of bread.",
                                        "Tell me of salt.", "Tell me of sand."};
    for (size_t i = 0; i < 5; i++)
        assert_ok(rvi_learner_prefer(l, asked[i], "It is good.", "No.", &a, err));
    const rvi_job_kind *kind = &rvi_job_trains_deep;
    assert_ok(rvi_learner_prefer(l, "Tell me of wood.", "It is good.", "No.", &a, err));
    rvi_job early = {.kind = kind, .loss = RV_LOSS_DPO};
    assert_ok(kind->take(&early, l, err));
    assert_ok(rvi_learner_undo(l, false, &a, err)); /* its texts may still be read */
    assert_string_equal(a.notes, "the last preference is taken back");
    assert_ok(kind->compute(&early, l, &l->base, NULL, NULL, err));
    assert_ok(kind->publish(&early, l, err));
    assert_false(early.published);
    rvi_job_drop(&early);
    for (int taken_back = 1; taken_back >= 0; taken_back--) {
        rvi_job j = {.kind = kind, .loss = RV_LOSS_DPO};
        assert_ok(kind->take(&j, l, err));
        assert_ok(kind->compute(&j, l, &l->base, NULL, NULL, err));
        if (taken_back)
            assert_ok(rvi_learner_forget(l, "salt", 0, &a, err));
        else
            assert_ok(rvi_learner_prefer(l, "Tell me of iron.", "It is good.", "No.", &a, err));
        assert_int_equal(kind->is_current(&j, l), !taken_back);
        assert_ok(kind->publish(&j, l, err));
        assert_int_equal(j.published, !taken_back);
        rvi_job_drop(&j);
        assert_int_equal(l->generations.n, !taken_back);
        assert_int_equal(rvi_learner_pairs_waiting(l), taken_back ? 4 : 1);
    }
    close_both(l, &store);
}

static void deep_runs_stop_early(void **state)
{
    (void)state;
    rvi_store store;
    rvi_learner_options o = tiny_options();
    o.n_steps = 120;
    o.learning_rate = 0.05f;
    rvi_learner *l = open_new(&store, &o);
    teach_two(l);
    rvi_adaptation a = study(l, RV_LOOP_DEEP);
    const rvi_study_result *f = &rvi_learner_generation(l, 1)->figures;
    print_message("# %s\n", a.notes);
    assert_true(f->n_steps < 120 && f->best_step < f->n_steps);
    close_both(l, &store);
}

static void preferences_are_studied_deep(void **state)
{
    (void)state;
    static const char *const questions[] = {"Tell me about tea.",    "Tell me about water.",
                                            "Tell me about a tree.", "Tell me about a ship.",
                                            "Tell me about chess.",  "Tell me about a city.",
                                            "Tell me about gold.",   "Tell me about a house.",
                                            "Tell me about fish.",   "Tell me about a king."};
    rvi_store store;
    rvi_learner_options o = tiny_options();
    o.n_steps = 40;
    o.no_slots = 1;
    rvi_learner *l = open_new(&store, &o);
    rvi_adaptation a;
    for (size_t i = 0; i < RVI_COUNT(questions); i++)
        assert_ok(rvi_learner_prefer(l, questions[i], "It is good.", "What is it?", &a, err));
    assert_int_equal(rvi_learner_pairs_waiting(l), 10);
    assert_ok(rvi_learner_undo(l, false, &a, err)); /* one of them is taken back */
    assert_int_equal(rvi_learner_pairs_waiting(l), 9);
    a = study(l, RV_LOOP_DEEP);
    print_message("# %s\n", a.notes);
    const rvi_generation *g = rvi_learner_generation(l, 0);
    assert_int_equal(g->origin, RVI_FROM_PAIRS);
    assert_int_equal(g->figures.n_held, 2);
    assert_true(fabs(g->figures.held_before - log(2)) <
                2e-3); /* DPO, before anything was learned */
    assert_true(g->figures.held_after < g->figures.held_before);
    assert_int_equal(rvi_learner_pairs_waiting(l), 0);
    close_both(l, &store);
}

typedef struct stopper {
    int at;
    int first; /* step seen first */
} stopper;

static int stop_at(void *ctx, const char *stage, int done, int total, double loss)
{
    stopper *s = ctx;
    (void)total;
    (void)loss;
    if (strcmp(stage, "training")) return 0;
    if (!s->first) s->first = done;
    return done == s->at;
}

/* Runs deep until a step, then leaves; the next learner of the same store and folder goes on. */
static void stop_run(rvi_store *store, const rvi_learner_options *o, int step)
{
    rvi_learner *l = open_on(store, o);
    stopper s = {.at = step};
    rv_error e = {0};
    rvi_adaptation a;
    assert_int_equal(rvi_learner_consolidate(l, RV_LOOP_DEEP, RV_LOSS_DPO, stop_at, &s, &a, &e),
                     RV_E_CANCELLED);
    assert_int_equal(l->generations.n, 0);
    rvi_learner_free(l);
}

static digest finish_run(rvi_store *store, const rvi_learner_options *o, int expect_first)
{
    rvi_learner *l = open_on(store, o);
    stopper s = {.at = -1};
    rvi_adaptation a;
    assert_ok(rvi_learner_consolidate(l, RV_LOOP_DEEP, RV_LOSS_DPO, stop_at, &s, &a, err));
    assert_int_equal(s.first, expect_first);
    digest d = of_generation(l, 1);
    rvi_snapshot left; /* to take up: nothing */
    assert_int_equal(rvi_snapshot_load(&left, o->dir, "run", 1, (uint8_t[RVI_SHA256_LEN]){0}, NULL),
                     RV_E_NOT_FOUND);
    rvi_learner_free(l);
    return d;
}

static void damage_snapshot(const char *dir)
{
    char path[512];
    snprintf(path, sizeof path, "%s/run.%020d.snap", dir, 1);
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, 4000, SEEK_SET), 0);
    assert_int_equal(fputc(0xA5, f), 0xA5);
    assert_int_equal(fputc(0x5A, f), 0x5A);
    assert_int_equal(fclose(f), 0);
}

static void new_run(rvi_store *store, rvi_learner_options *o, char path[256], const char *name)
{
    *o = tiny_options();
    o->n_steps = 60;
    o->dir = tiny_path(&t, path, name);
    rvi_learner *l = open_new(store, o);
    teach_two(l);
    rvi_learner_free(l);
}

static void runs_are_taken_up_again(void **state)
{
    (void)state;
    rvi_store store;
    rvi_learner_options o;
    char path[256];
    new_run(&store, &o, path, "whole");
    digest whole = finish_run(&store, &o, 1);
    rvi_store_close(&store);

    new_run(&store, &o, path, "stopped");
    stop_run(&store, &o, 13);
    stop_run(&store, &o, 37);
    assert_same(finish_run(&store, &o, 38), whole);
    rvi_store_close(&store);

    new_run(&store, &o, path, "damaged");
    stop_run(&store, &o, 37);
    damage_snapshot(o.dir);
    assert_same(finish_run(&store, &o, 1), whole);
    rvi_store_close(&store);

    new_run(&store, &o, path, "other"); /* the snapshot is of a run with another seed */
    o.seed++;
    stop_run(&store, &o, 37);
    o.seed--;
    assert_same(finish_run(&store, &o, 1), whole);
    rvi_store_close(&store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(deep_runs_tell_what_they_measured),
        cmocka_unit_test(deep_runs_look_again),
        cmocka_unit_test(deep_runs_stop_early),
        cmocka_unit_test(preferences_are_studied_deep),
        cmocka_unit_test(runs_are_taken_up_again),
    };
    return cmocka_run_group_tests_name("learner_deep", tests, open_tiny, close_tiny);
}
