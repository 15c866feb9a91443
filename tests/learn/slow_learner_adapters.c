/* Adapters of a learner: shared ones go on, merged ones take their parents' place, files go out and
 * come back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/blob.h"
#include "learn/learner_bed.h"

/* A shared adapter is trained further after it was opened again, as if it had not been closed. */
static void shared_adapters_go_on(void **state)
{
    (void)state;
    rvi_store store;
    digest want = {0};
    for (int reopened = 0; reopened < 2; reopened++) {
        rvi_learner_options o = tiny_options();
        char path[256];
        o.shared = 1;
        o.dir = tiny_path(&t, path, reopened ? "shared-reopened" : "shared");
        rvi_learner *l = open_new(&store, &o);
        teach_two(l);
        study(l, RV_LOOP_BACKGROUND);
        if (reopened) {
            rvi_learner_free(l);
            l = open_on(&store, &o);
        }
        teach(l, city, "Oslo");
        study(l, RV_LOOP_BACKGROUND);
        assert_int_equal(l->generations.n, 2);
        assert_int_equal(l->generations.list[0].replaced_by, 2);
        if (reopened)
            assert_same(of_generation(l, 2), want);
        else
            want = of_generation(l, 2);
        close_both(l, &store);
    }
}

/* The number of the one generation that takes part in the answer; 0: none does. */
static int speaker(rvi_learner *l, const char *question)
{
    rvi_plan plan;
    int number = 0;
    assert_ok(rvi_learner_plan(l, &question, 1, &plan, err));
    const rvi_adapter_set *set = rvi_made_set_of(plan.adapters);
    assert_true(!set || set->n <= 1);
    for (size_t i = 0; set && set->n && i < l->generations.n; i++)
        if (set->uses[0].adapter == l->generations.list[i].adapter)
            number = l->generations.list[i].number;
    rvi_learner_release(l, plan.adapters);
    return number;
}

/* A merge speaks for what its parents were taught, opened again or not; after a rollback they
 * do. */
static void merges_take_their_parents_place(void **state)
{
    (void)state;
    for (int fenced = 0; fenced < 2; fenced++) {
        rvi_store store;
        rvi_adaptation a;
        rvi_learner_options o = tiny_options();
        char path[256];
        o.group_size = 1;
        o.recipe = fenced ? RVI_RECIPE_FENCED : RVI_RECIPE_GATED;
        o.dir = tiny_path(&t, path, fenced ? "merge-fenced" : "merge");
        rvi_learner *l = open_new(&store, &o);
        teach_two(l);
        study(l, RV_LOOP_BACKGROUND);
        if (!fenced) assert_int_equal(speaker(l, dog), 1);
        if (!fenced) assert_int_equal(speaker(l, job), 2);
        assert_ok(rvi_learner_merge(l, 1, 2, RV_MERGE_AVERAGE, &a, err));
        for (int reopened = 0; reopened < 2; reopened++) {
            assert_int_equal(speaker(l, dog), 3);
            assert_int_equal(speaker(l, job), 3);
            assert_int_equal(speaker(l, "What is tea?"), fenced ? 3 : 0);
            rvi_learner_free(l);
            l = open_on(&store, &o);
        }
        assert_ok(rvi_learner_rollback(l, 2, &a, err));
        rv_error e = {0};
        assert_int_equal(rvi_learner_rollback(l, 3, &a, &e), RV_E_NOT_FOUND);
        for (int reopened = 0; !fenced && reopened < 2; reopened++) {
            assert_int_equal(speaker(l, dog), 1);
            assert_int_equal(speaker(l, job), 2);
            rvi_learner_free(l);
            l = open_on(&store, &o);
        }
        close_both(l, &store);
    }
}

/* Where adapters take part is the caller's choice; a shared adapter goes back to its former
 * self. */
static void gates_are_as_the_caller_wants(void **state)
{
    (void)state;
    for (int shared = 0; shared < 2; shared++) {
        rvi_store store;
        rvi_adaptation a;
        rvi_learner_options o = tiny_options();
        o.recipe = RVI_RECIPE_FENCED;
        o.shared = shared;
        rvi_learner *l = open_new(&store, &o);
        teach(l, dog, "Rex");
        study(l, RV_LOOP_BACKGROUND);
        assert_int_equal(speaker(l, "What is tea?"), shared ? 0 : 1);
        l->o.gate = RVI_GATING_ON;
        assert_int_equal(speaker(l, "What is tea?"), 0);
        assert_int_equal(speaker(l, dog), 1);
        l->o.gate = RVI_GATING_OFF;
        assert_int_equal(speaker(l, "What is tea?"), 1);
        if (shared) {
            teach(l, job, "plumber");
            study(l, RV_LOOP_BACKGROUND);
            assert_int_equal(speaker(l, dog), 2);
            assert_ok(rvi_learner_rollback(l, 1, &a, err));
            assert_int_equal(speaker(l, dog), 1);
        }
        close_both(l, &store);
    }
}

/* ---- in and out ---- */

static void adapters_go_out_and_come_back(void **state)
{
    (void)state;
    rvi_store store;
    rvi_learner_options o = tiny_options();
    rvi_adaptation a;
    char path[256];
    static const char *const names[] = {"out", "out.gguf"};
    rvi_learner *l = open_new(&store, &o);
    teach_two(l);
    study(l, RV_LOOP_BACKGROUND);
    digest want = of_generation(l, 1);
    for (size_t i = 0; i < 2; i++) {
        tiny_path(&t, path, names[i]);
        assert_ok(rvi_learner_write(l, rvi_learner_generation(l, 1), path, false, err));
        assert_ok(rvi_learner_import(l, path, &a, err));
        assert_same(of_generation(l, a.generation), want);
    }
    /* another base refuses it by its digest, and stays as it was */
    char other[256];
    rv_model *m = t.m, *stranger;
    rvi_store empty;
    tiny_model_write(tiny_path(&t, other, "other.gguf"), 2);
    assert_ok(rv_model_open(&stranger, t.rt, other, 0, err));
    tiny in_other = {.rt = t.rt, .m = stranger};
    rvi_learner *foreign;
    assert_ok(rvi_store_memory(&empty, err));
    assert_ok(tiny_learner(&foreign, &in_other, &o, &empty, err));
    for (size_t i = 0; i < 2; i++) {
        rv_error e = {0};
        assert_int_equal(rvi_learner_import(foreign, tiny_path(&t, path, names[i]), &a, &e),
                         RV_E_ADAPTER);
        assert_int_equal(foreign->generations.n, 0);
    }
    rvi_learner_free(foreign);
    rv_model_close(&stranger);
    assert_ptr_equal(t.m, m);
    close_both(l, &store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shared_adapters_go_on),
        cmocka_unit_test(merges_take_their_parents_place),
        cmocka_unit_test(gates_are_as_the_caller_wants),
        cmocka_unit_test(adapters_go_out_and_come_back),
    };
    return cmocka_run_group_tests_name("learner_adapters", tests, open_tiny, close_tiny);
}
