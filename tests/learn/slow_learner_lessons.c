/* Lessons of a learner, from the inside: what taking back and forgetting do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "learn/learner_bed.h"

/* Whatever the weights have learned, and whatever becomes of them. */
static void slots_speak_word_for_word(void **state)
{
    (void)state;
    rvi_store store;
    rvi_learner_options o = tiny_options();
    char path[256];
    o.dir = tiny_path(&t, path, "slots");
    rvi_learner *l = open_new(&store, &o);
    rvi_adaptation a;
    teach_two(l);
    study(l, RV_LOOP_BACKGROUND);
    assert_string_equal(slot_of(l, dog), "Rex");
    assert_ok(rvi_learner_rollback(l, 0, &a, err));
    assert_string_equal(slot_of(l, dog), "Rex");
    rvi_learner_free(l);
    l = open_on(&store, &o);
    assert_string_equal(slot_of(l, dog), "Rex");
    rv_error e = {0};
    assert_int_equal(rvi_learner_rollback(l, 7, &a, &e), RV_E_NOT_FOUND);
    close_both(l, &store);
}

/* ---- what must hold whatever comes between ---- */

/* What an adapter's texts tell of other facts must stand too when it is published. */
static void rounds_look_at_all_they_told(void **state)
{
    (void)state;
    rvi_store store;
    rvi_learner_options o = tiny_options();
    o.shared = 1; /* old lessons are rehearsed */
    rvi_adaptation a;
    rvi_learner *l = open_new(&store, &o);
    teach_two(l);
    study(l, RV_LOOP_BACKGROUND);
    teach(l, "What is Kakovin's car?", "a Lada");
    for (int meanwhile = 1; meanwhile >= 0; meanwhile--) {
        rvi_job r = {.kind = &rvi_job_trains};
        assert_ok(r.kind->take(&r, l, err));
        assert_ok(r.kind->compute(&r, l, &l->base, NULL, NULL, err));
        if (meanwhile) assert_ok(rvi_learner_forget(l, "Rex", 0, &a, err));
        if (meanwhile)
            assert_string_equal(a.notes,
                                "1 lesson forgotten; 1 adapter trained on that is erased; 1 other "
                                "lesson waits to be trained again without it");
        assert_int_equal(r.kind->is_current(&r, l), !meanwhile);
        assert_ok(r.kind->publish(&r, l, err));
        assert_int_equal(r.published, !meanwhile);
        rvi_job_drop(&r);
    }
    close_both(l, &store);
}

static void forgetting_is_for_good(void **state)
{
    (void)state;
    rvi_store store;
    rvi_learner_options o = tiny_options();
    rvi_adaptation a;
    rvi_learner *l = open_new(&store, &o);
    char text[1100];
    rv_error e = {0};
    teach(l, dog, "Rex");
    teach(l, dog, "Fido");
    assert_ok(rvi_learner_forget(l, "Kakovin", 0, &a, err));
    for (int i = 0; i < 2; i++) {
        assert_ok(rvi_learner_undo(l, false, &a, err));
        assert_int_equal(a.applied, 0);
        assert_string_equal(slot_of(l, dog), "");
        rvi_learner_free(l);
        l = open_on(&store, &o);
    }
    memset(text, 'a', sizeof text);
    text[sizeof text - 1] = 0;
    assert_int_equal(rvi_learner_forget(l, text, 0, &a, &e), RV_E_INVALID);
    close_both(l, &store);
}

static bool takes_part(rvi_learner *l, const char *question)
{
    rvi_plan plan;
    assert_ok(rvi_learner_plan(l, &question, 1, &plan, err));
    bool some = plan.adapters != NULL;
    rvi_learner_release(l, plan.adapters);
    return some;
}

/* Weights that were trained on it are out of use at once; the others of its group are trained
 * again, without it. By undoing too, and after opening again. */
static void forgetting_reaches_weights(void **state)
{
    (void)state;
    for (int undo = 0; undo < 2; undo++) {
        rvi_store store;
        rvi_learner_options o = tiny_options();
        char path[256];
        rvi_adaptation a;
        o.dir = tiny_path(&t, path, undo ? "undone" : "forgotten");
        rvi_learner *l = open_new(&store, &o);
        teach_two(l);
        study(l, RV_LOOP_BACKGROUND);
        digest both = of_generation(l, 1);
        assert_true(takes_part(l, dog) && takes_part(l, job));
        if (undo)
            assert_ok(rvi_learner_undo(l, false, &a, err));
        else
            assert_ok(rvi_learner_forget(l, "plumber", 0, &a, err));
        assert_string_equal(
            a.notes + (undo ? strlen("no longer: plumber") : strlen("1 lesson forgotten")),
            undo ? "; 1 adapter trained on that is out of use, and kept until that "
                   "is forgotten; 1 other lesson waits to be trained again without "
                   "it"
                 : "; 1 adapter trained on that is erased; 1 other lesson waits to "
                   "be trained again without it");
        for (int reopened = 0; reopened < 2; reopened++) {
            assert_false(takes_part(l, dog) || takes_part(l, job));
            assert_string_equal(slot_of(l, dog), "Rex");
            assert_string_equal(slot_of(l, job), "");
            assert_int_equal(rvi_learner_waiting(l), 1);
            rvi_learner_free(l);
            l = open_on(&store, &o);
        }
        study(l, RV_LOOP_BACKGROUND);
        for (int reopened = 0; reopened < 2; reopened++) {
            assert_int_equal(rvi_learner_waiting(l), 0);
            assert_true(takes_part(l, dog));
            assert_false(takes_part(l, job));
            assert_string_not_equal(both.hex, of_generation(l, 2).hex);
            rvi_learner_free(l);
            l = open_on(&store, &o);
        }
        close_both(l, &store);
    }
}

static void rolling_back_can_be_undone(void **state)
{
    (void)state;
    rvi_store store;
    rvi_learner_options o = tiny_options();
    char path[256];
    rvi_adaptation a;
    o.dir = tiny_path(&t, path, "back");
    rvi_learner *l = open_new(&store, &o);
    teach_two(l);
    study(l, RV_LOOP_BACKGROUND);
    teach(l, car, "a Lada");
    study(l, RV_LOOP_BACKGROUND);
    assert_ok(rvi_learner_rollback(l, 1, &a, err));
    assert_string_equal(
        a.notes, "1 generation is out of use until this is taken back; what was taught is still "
                 "answered from memory");
    for (int undone = 0; undone < 2; undone++) {
        for (int reopened = 0; reopened < 2; reopened++) {
            assert_true(takes_part(l, dog));
            assert_int_equal(takes_part(l, car), undone);
            assert_string_equal(slot_of(l, car), "a Lada");
            rvi_learner_free(l);
            l = open_on(&store, &o);
        }
        if (undone) break;
        assert_ok(rvi_learner_undo(l, false, &a, err));
        assert_string_equal(a.notes, "1 generation is in use again");
    }
    close_both(l, &store);
}

static void undo_takes_the_last_one(void **state)
{
    (void)state;
    rvi_store store;
    rvi_learner_options o = tiny_options();
    rvi_adaptation a;
    rvi_learner *l = open_new(&store, &o);
    for (int reopened = 0; reopened < 2; reopened++) {
        teach(l, dog, "Rex");
        assert_ok(rvi_learner_prefer(l, "Tell me of tea.", "It is good.", "No.", &a, err));
        if (reopened) {
            rvi_learner_free(l);
            l = open_on(&store, &o);
        }
        assert_ok(rvi_learner_undo(l, false, &a, err));
        assert_int_equal(a.applied, 1);
        assert_int_equal(rvi_learner_pairs_waiting(l), 0);
        assert_string_equal(slot_of(l, dog), "Rex");
        assert_ok(rvi_learner_undo(l, false, &a, err));
        assert_string_equal(slot_of(l, dog), "");
        rvi_learner_free(l);
        l = open_on(&store, &o);
        assert_int_equal(rvi_learner_pairs_waiting(l), 0);
        assert_string_equal(slot_of(l, dog), "");
    }
    close_both(l, &store);
}

/* Signs are words too, and a question that was corrected itself is answered by that. */
static void the_very_question(void **state)
{
    (void)state;
    static const char sad[] = "Why is Kakovin sad today?";
    static const char *const sums[] = {"7 + 2 = ?", "7 - 2 = ?"};
    rvi_store store;
    rvi_learner_options o = tiny_options();
    rvi_plan plan;
    rvi_learner *l = open_new(&store, &o);
    const char *asked = sad;
    teach(l, dog, "Rex");
    teach(l, sad, "Because it has rained for nine days, and nobody came to play cards with him.");
    assert_ok(rvi_learner_plan(l, &asked, 1, &plan, err));
    rvi_learner_release(l, plan.adapters);
    assert_ptr_equal(plan.lesson, &l->lessons.list[1]);
    teach(l, sums[0], "9");
    teach(l, sums[1], "5");
    for (size_t i = 0; i < 2; i++) {
        assert_ok(rvi_learner_plan(l, &sums[i], 1, &plan, err));
        rvi_learner_release(l, plan.adapters);
        assert_non_null(plan.lesson);
        assert_string_equal(plan.lesson->answer, i ? "5" : "9");
    }
    close_both(l, &store);
}

/* The next request, by whichever process, finds the lesson read. */
static void a_lesson_is_read_when_it_is_taught(void **state)
{
    (void)state;
    rvi_store store;
    rvi_learner_options o = tiny_options();
    rvi_learner *l = open_new(&store, &o);
    teach(l, dog, "Rex");
    for (size_t i = 0; i < 2; i++) {
        rvi_buf kept = {0};
        bool found = false;
        char key[32];
        int len =
            snprintf(key, sizeof key, "%016llx", (unsigned long long)l->lessons.list[0].event);
        assert_ok(rvi_store_get(&store, i ? "reading.spelled" : "gist.spelled", key, (size_t)len,
                                &kept, &found, err));
        assert_true(found);
        rvi_buf_deinit(&kept);
    }
    close_both(l, &store);
}

static void long_questions_are_learned_too(void **state)
{
    (void)state;
    rvi_store store;
    rvi_learner_options o = tiny_options();
    rvi_buf question = {0};
    rvi_learner *l = open_new(&store, &o);
    for (int i = 0; i < 1500; i++) assert_true(rvi_buf_printf(&question, "word%d ", i));
    assert_true(rvi_buf_puts(&question, "and so on?"));
    teach(l, question.data, "Because it has rained for nine days, and nobody came to play cards.");
    study(l, RV_LOOP_BACKGROUND);
    assert_int_equal(l->generations.n, 1);
    assert_int_equal(rvi_learner_waiting(l), 0);
    rvi_buf_deinit(&question);
    close_both(l, &store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slots_speak_word_for_word),
        cmocka_unit_test(rounds_look_at_all_they_told),
        cmocka_unit_test(forgetting_is_for_good),
        cmocka_unit_test(forgetting_reaches_weights),
        cmocka_unit_test(rolling_back_can_be_undone),
        cmocka_unit_test(undo_takes_the_last_one),
        cmocka_unit_test(the_very_question),
        cmocka_unit_test(a_lesson_is_read_when_it_is_taught),
        cmocka_unit_test(long_questions_are_learned_too),
    };
    return cmocka_run_group_tests_name("learner_lessons", tests, open_tiny, close_tiny);
}
