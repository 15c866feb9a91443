/* What forgetting leaves to be taken back: all that was not forgotten, after opening again too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "learn/learner_bed.h"

static rvi_learner *reopen(rvi_learner *l, rvi_store *store, const rvi_learner_options *o)
{
    rvi_learner_free(l);
    return open_on(store, o);
}

static void undo(rvi_learner *l, const char *notes)
{
    rvi_adaptation a;
    assert_ok(rvi_learner_undo(l, false, &a, err));
    assert_string_equal(a.notes, notes);
}

static const char nothing[] = "there is nothing to take back";

static void the_rest_can_be_undone(void **state)
{
    (void)state;
    for (int way = 0; way < 4; way++) { /* by a text or an event; opened again or not */
        rvi_store store;
        rvi_learner_options o = tiny_options();
        rvi_adaptation a;
        rvi_learner *l = open_new(&store, &o);
        teach(l, dog, "Rex");
        teach(l, job, "plumber");
        teach(l, city, "Oslo");
        assert_ok(rvi_learner_forget(l, way & 1 ? NULL : "plumber", way & 1 ? 2 : 0, &a, err));
        assert_string_equal(a.notes, "1 lesson forgotten");
        assert_int_equal(a.samples_used, 1);
        if (way & 2) l = reopen(l, &store, &o);
        undo(l, "no longer: Oslo");
        assert_string_equal(slot_of(l, city), "");
        assert_string_equal(slot_of(l, dog), "Rex");
        undo(l, "no longer: Rex");
        undo(l, nothing);
        assert_string_equal(slot_of(l, job), "");
        close_both(l, &store);
    }
}

/* Each correction ended the one before it. */
static void undo_revives_nothing_that_was_forgotten(void **state)
{
    static const char *const names[] = {"Rex", "Fido", "Bello"};
    static const char *const stands[3][3] = {
        /* what was forgotten; what stands after it, and after each undo */
        {"Bello", "Fido", ""},
        {"Bello", "", ""},
        {"", "", ""}};
    (void)state;
    for (int way = 0; way < 6; way++) {
        rvi_store store;
        rvi_learner_options o = tiny_options();
        rvi_adaptation a;
        rvi_learner *l = open_new(&store, &o);
        for (int i = 0; i < 3; i++) teach(l, dog, names[i]);
        assert_ok(rvi_learner_forget(l, names[way / 2], 0, &a, err));
        for (int i = 0; i < 3; i++) {
            if (way & 1) l = reopen(l, &store, &o);
            assert_string_equal(slot_of(l, dog), stands[way / 2][i]);
            assert_ok(rvi_learner_undo(l, false, &a, err));
            assert_int_equal(a.applied, i < 2);
        }
        assert_string_equal(slot_of(l, dog), "");
        close_both(l, &store);
    }
}

static void what_nothing_has_changes_nothing(void **state)
{
    (void)state;
    rvi_store store;
    rvi_learner_options o = tiny_options();
    rvi_adaptation a;
    uint64_t n;
    rvi_learner *l = open_new(&store, &o);
    teach_two(l);
    assert_ok(rvi_learner_forget(l, "Oslo", 0, &a, err));
    assert_int_equal(a.applied, 0);
    assert_int_equal(a.event, 0);
    assert_ok(rvi_learner_forget(l, "Rex", 0, &a, err));
    assert_ok(rvi_learner_forget(l, "Rex", 0, &a, err)); /* it is forgotten already */
    assert_string_equal(a.notes, "0 lessons forgotten");
    assert_ok(rvi_feedback_count(&l->store, &n, err));
    assert_int_equal(n, 3);
    undo(l, "no longer: plumber");
    close_both(l, &store);
}

/* The label that a correction was goes with it. */
static void labels_are_forgotten_too(void **state)
{
    static const char other[] = "Who is the dog of Kakovin?";
    (void)state;
    rvi_store store;
    rvi_learner_options o = tiny_options();
    rvi_adaptation a;
    rvi_learner *l = open_new(&store, &o);
    teach(l, dog, "Rex");
    const rvi_correction fido = {.question = other, .answer = "Fido", .spoken = 1};
    assert_ok(rvi_learner_teach(l, &fido, &a, err));
    assert_int_equal(l->refusals.n, 1);
    assert_ok(rvi_learner_forget(l, "Fido", 0, &a, err));
    for (int reopened = 0; reopened < 2; reopened++) {
        assert_int_equal(l->refusals.n, 0);
        l = reopen(l, &store, &o);
    }
    undo(l, "no longer: Rex");
    undo(l, nothing);
    close_both(l, &store);
}

/* A rollback is no lesson. */
static void rollbacks_can_still_be_undone(void **state)
{
    (void)state;
    rvi_store store;
    rvi_learner_options o = tiny_options();
    char path[256];
    rvi_adaptation a;
    o.dir = tiny_path(&t, path, "rolled");
    rvi_learner *l = open_new(&store, &o);
    teach(l, dog, "Rex");
    study(l, RV_LOOP_BACKGROUND);
    teach(l, job, "plumber");
    study(l, RV_LOOP_BACKGROUND);
    assert_ok(rvi_learner_rollback(l, 0, &a, err));
    assert_ok(rvi_learner_forget(l, "plumber", 0, &a, err));
    l = reopen(l, &store, &o);
    undo(l, "1 generation is in use again"); /* not the other, which is erased */
    assert_string_equal(slot_of(l, dog), "Rex");
    assert_string_equal(slot_of(l, job), "");
    close_both(l, &store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_rest_can_be_undone),
        cmocka_unit_test(undo_revives_nothing_that_was_forgotten),
        cmocka_unit_test(what_nothing_has_changes_nothing),
        cmocka_unit_test(labels_are_forgotten_too),
        cmocka_unit_test(rollbacks_can_still_be_undone),
    };
    return cmocka_run_group_tests_name("test_forget", tests, open_tiny, close_tiny);
}
