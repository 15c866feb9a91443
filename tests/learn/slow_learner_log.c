/* The log of a learner: every generation can be made again from it, and a learner that is opened
 * again is as it was. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "learn/learner_bed.h"
#include "store/file_store.h"

/* ---- made again ---- */

static void assert_retraced(rvi_store *log, const rvi_learner_options *given, uint64_t n)
{
    rvi_store store;
    rvi_retrace r;
    rvi_learner_options o = *given;
    o.dir = NULL;
    rvi_learner *fresh = open_new(&store, &o);
    assert_ok(rvi_learner_retrace(fresh, log, NULL, NULL, &r, err));
    assert_int_equal(r.different, 0);
    assert_int_equal(r.n_generations, n);
    close_both(fresh, &store);
    o.seed++; /* with other options it does not come out the same, and is noticed */
    fresh = open_new(&store, &o);
    assert_ok(rvi_learner_retrace(fresh, log, NULL, NULL, &r, err));
    assert_true(r.different > 0);
    assert_int_equal(r.n_generations, 0);
    close_both(fresh, &store);
}

static void logs_make_the_same_generations(void **state)
{
    (void)state;
    for (int shared = 0; shared < 2; shared++) {
        rvi_store store;
        rvi_learner_options o = tiny_options();
        rvi_adaptation a;
        o.shared = shared;
        o.group_size = 2;
        rvi_learner *l = open_new(&store, &o);
        teach_two(l);
        teach(l, city, "Oslo"); /* stands when the first group is made, and belongs to the second */
        study(l, RV_LOOP_BACKGROUND);
        teach(l, job, "chess");
        teach(l, car, "blue");
        assert_ok(rvi_learner_undo(l, false, &a, err));
        for (int i = 0; i < 8; i++)
            assert_ok(rvi_learner_prefer(l, "Tell me about tea.", "It is good.", "No.", &a, err));
        study(l, RV_LOOP_DEEP);
        assert_ok(rvi_learner_rollback(l, 2, &a, err));
        assert_ok(rvi_learner_forget(l, "Oslo", 0, &a, err));
        teach(l, car, "Denver");
        study(l, RV_LOOP_BACKGROUND);
        assert_int_equal(l->generations.n, 5);
        assert_retraced(&store, &o, 5);
        close_both(l, &store);
    }
}

/* A correction that came while a group was being trained is not part of it. */
static void logs_know_what_a_group_knew(void **state)
{
    (void)state;
    rvi_store store;
    rvi_learner_options o = tiny_options();
    rvi_learner *l = open_new(&store, &o);
    rvi_job r = {.kind = &rvi_job_trains};
    teach_two(l);
    assert_ok(r.kind->take(&r, l, err));
    teach(l, city, "Oslo");
    assert_ok(r.kind->compute(&r, l, &l->base, NULL, NULL, err));
    assert_ok(r.kind->publish(&r, l, err));
    assert_true(r.published);
    rvi_job_drop(&r);
    study(l, RV_LOOP_BACKGROUND);
    assert_retraced(&store, &o, 2);
    close_both(l, &store);
}

/* Five lessons, four of which an adapter may hold: three and two, not four and one. */
static void what_waits_is_shared_out_evenly(void **state)
{
    static const struct {
        int limit, first;
    } groups[] = {{1, 1}, {2, 2}, {3, 3}, {4, 3}, {5, 5}, {20, 5}};
    (void)state;
    for (size_t i = 0; i < RVI_COUNT(groups); i++) {
        rvi_store store;
        rvi_learner_options o = tiny_options();
        o.group_size = groups[i].limit;
        rvi_learner *l = open_new(&store, &o);
        rvi_job r = {.kind = &rvi_job_trains};
        teach_two(l);
        teach(l, city, "Oslo");
        teach(l, car, "blue");
        teach(l, "Who has the key?", "Ann");
        assert_ok(r.kind->take(&r, l, err));
        assert_int_equal(r.n, groups[i].first);
        rvi_job_drop(&r);
        close_both(l, &store);
    }
}

/* ---- opened again ---- */

static void learners_open_as_they_were(void **state)
{
    (void)state;
    rvi_store store;
    rvi_learner_options o = tiny_options();
    char path[256], db[256];
    o.dir = tiny_path(&t, path, "again");
    assert_ok(rvi_os_make_dirs(o.dir, err));
    assert_ok(file_store(&store, tiny_path(&t, db, "again/state.db"), 0, err));
    tiny_copy_model(&store, &calibrated);
    rvi_learner *l;
    assert_ok(tiny_learner(&l, &t, &o, &store, err));
    teach_two(l);
    study(l, RV_LOOP_BACKGROUND);
    teach(l, city, "Oslo");
    teach(l, dog, "Bello");
    digest want = of_generation(l, 1);
    for (int round = 0; round < 2; round++) {
        rvi_learner_free(l);
        assert_ok(file_store(&store, db, 0, err));
        assert_ok(tiny_learner(&l, &t, &o, &store, err));
        assert_int_equal(l->generations.n, 1);
        assert_same(of_generation(l, 1), want);
        assert_string_equal(slot_of(l, dog), "Bello");
        assert_string_equal(slot_of(l, job), "plumber");
        assert_string_equal(slot_of(l, city), "Oslo");
        assert_int_equal(rvi_learner_waiting(l), 2);
    }
    rvi_adaptation a; /* and the last event can still be taken back */
    assert_ok(rvi_learner_undo(l, false, &a, err));
    assert_string_equal(slot_of(l, dog), "Rex");
    rvi_learner_free(l);
}

/* A number belongs to one file for ever: what is made after a reset, or after a generation's file
 * was lost, does not take the place of another. */
static void numbers_are_given_once(void **state)
{
    (void)state;
    rvi_store store;
    rvi_learner_options o = tiny_options();
    char path[256], file[512];
    o.dir = tiny_path(&t, path, "numbers");
    rvi_learner *l = open_new(&store, &o);
    teach(l, dog, "Rex");
    study(l, RV_LOOP_BACKGROUND);
    digest first = of_generation(l, 1);
    rvi_learner_reset(l);
    teach(l, job, "plumber");
    assert_int_equal(study(l, RV_LOOP_BACKGROUND).generation, 2);
    digest second = of_generation(l, 2);
    rvi_learner_free(l);
    l = open_on(&store, &o);
    assert_int_equal(l->generations.n, 2);
    assert_same(of_generation(l, 1), first);
    assert_same(of_generation(l, 2), second);
    rvi_learner_free(l);
    snprintf(file, sizeof file, "%s/generation-000002.gguf", o.dir);
    rvi_os_remove_tree(file);
    for (int round = 0; round < 2; round++) {
        l = open_on(&store, &o);
        if (!round) assert_int_equal(study(l, RV_LOOP_BACKGROUND).generation, 3);
        assert_int_equal(l->generations.n, 3);
        assert_same(of_generation(l, 1), first);
        assert_true(rvi_learner_generation(l, 2)->lost);
        assert_non_null(rvi_learner_generation(l, 3));
        rvi_learner_free(l);
    }
    rvi_store_close(&store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logs_make_the_same_generations),
        cmocka_unit_test(logs_know_what_a_group_knew),
        cmocka_unit_test(what_waits_is_shared_out_evenly),
        cmocka_unit_test(learners_open_as_they_were),
        cmocka_unit_test(numbers_are_given_once),
    };
    return cmocka_run_group_tests_name("learner_log", tests, open_tiny, close_tiny);
}
