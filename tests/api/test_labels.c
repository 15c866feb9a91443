/* A thumb down and a correction of a lesson that was spoken tell where it is not asked for. By
 * spelling, on a tiny model with random weights. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "api/memory_store.h"
#include "api/opened.h"
#include "learn/tiny_model.h"

static const char dog[] = "What is Kakovin's dog?", wording[] = "What is the dog of Kakovin?",
                  near[] = "Kakovin's dog?", other[] = "Tell me what the dog of Kakovin is.";

static tiny t;
static rvi_store kept;
static rv_store store;
static rv_learner *l;
static rv_session *s;

static void open_learner(void)
{
    rv_learner_options o = {.size = sizeof o, .store = &store};
    rv_session_options so = {.size = sizeof so, .n_context = 256};
    assert_ok(rv_learner_new(&l, t.m, &o, err));
    so.learner = l;
    assert_ok(rv_session_new(&s, t.m, &so, err));
}

static void close_learner(void)
{
    rv_session_free(&s);
    rv_learner_free(&l);
}

static void reopen(void)
{
    close_learner();
    open_learner();
}

static int set_up(void **state)
{
    (void)state;
    tiny_open(&t);
    assert_ok(rvi_store_memory(&kept, err));
    store = memory_store(&kept);
    open_learner();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    close_learner();
    rvi_store_close(&kept);
    tiny_close(&t);
    return 0;
}

static bool says(const char *question, const char *answer)
{
    rv_message message = {"user", question, NULL};
    rv_chat chat = {.size = sizeof chat, .messages = &message, .n_messages = 1};
    rv_generate_options go = greedy(8);
    rv_answer *a;
    go.ignore_eos = 0;
    assert_ok(rv_session_chat(s, &chat, &go, &a, err));
    bool same = !strcmp(a->text, answer);
    rv_free(a);
    return same;
}

/* The request, and what is nearer to it than to the lesson's question; nothing else. */
static void a_thumb_refines(void **state)
{
    (void)state;
    assert_ok(rv_learner_correct(l, NULL, dog, "Rex", NULL, err));
    assert_true(says(dog, "Rex") && says(other, "Rex") && says(near, "Rex"));
    assert_true(says(wording, "Rex"));
    assert_ok(rv_learner_thumb(l, s, 0, NULL, err)); /* on `wording`, the last one */
    for (int reopened = 0; reopened < 2; reopened++) {
        assert_false(says(wording, "Rex"));
        assert_false(says("what is the dog of kakovin", "Rex"));
        assert_false(says(near, "Rex"));
        assert_true(says(dog, "Rex"));
        assert_true(says(other, "Rex"));
        reopen();
    }
    assert_ok(rv_learner_undo(l, NULL, err));
    for (int reopened = 0; reopened < 2; reopened++) {
        assert_true(says(wording, "Rex"));
        reopen();
    }
}

/* A correction of what was spoken for another wording is a lesson of its own there, and the old one
 * stays for its own question. */
static void a_correction_refines(void **state)
{
    (void)state;
    assert_ok(rv_learner_correct(l, NULL, dog, "Rex", NULL, err));
    assert_true(says(wording, "Rex"));
    assert_ok(rv_learner_correct(l, s, NULL, "Fido", NULL, err));
    for (int reopened = 0; reopened < 2; reopened++) {
        assert_true(says(wording, "Fido"));
        assert_true(says(dog, "Rex"));
        reopen();
    }
    assert_ok(rv_learner_undo(l, NULL, err));
    assert_true(says(wording, "Rex"));
    /* to the same question: it takes its place, and both are shown */
    assert_true(says(dog, "Rex"));
    assert_ok(rv_learner_correct(l, s, NULL, "Max", NULL, err));
    assert_true(says(dog, "Max") && says(wording, "Max"));
    char *json;
    assert_ok(rv_learner_status(l, &json, err));
    assert_non_null(strstr(json, "\"answer\":\"Max\",\"scope\":\"topic\",\"instead_of\":[{"));
    rv_free(json);
}

static void correct(const char *answer, bool applied, uint64_t n_events)
{
    rv_adaptation *a;
    uint64_t n;
    assert_ok(rv_learner_correct(l, s, NULL, answer, &a, err));
    assert_int_equal(a->applied, applied);
    if (!applied) assert_string_equal(a->notes, "already known");
    rv_free(a);
    assert_ok(rv_learner_verify_log(l, &n, err));
    assert_int_equal(n, n_events);
}

/* The same correction again is not stored again, unless something else was said. */
static void the_same_again_is_known(void **state)
{
    (void)state;
    assert_false(says(dog, "Rex"));
    correct("Rex", true, 1);
    assert_true(says(dog, "Rex"));
    correct("Rex", false, 1);
    correct(" Rex\n", false, 1);
    assert_true(says("what is kakovin's dog", "Rex"));
    correct("Rex", false, 1);
    correct("rex", true, 2); /* another text */
    assert_ok(rv_learner_undo(l, NULL, err));
    assert_true(says(dog, "Rex"));
    assert_ok(rv_learner_thumb(l, s, 0, NULL, err));
    assert_false(says(dog, "Rex"));
    correct("Rex", true, 5); /* it had been turned down */
    assert_true(says(dog, "Rex"));
    correct("Rex", false, 5);
    /* asked before it was taught elsewhere: what was seen is something else */
    assert_false(says("What is Zuzanna's city?", "Oslo"));
    assert_ok(rv_learner_correct(l, NULL, "What is Zuzanna's city?", "Oslo", NULL, err));
    correct("Oslo", true, 7);
    rv_adaptation *a;
    for (int i = 0; i < 2; i++) {
        assert_ok(rv_learner_teach(l, NULL, NULL, "Be brief.", RV_SCOPE_ALWAYS, &a, err));
        assert_int_equal(a->applied, !i);
        rv_free(a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_thumb_refines, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_correction_refines, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_same_again_is_known, set_up, tear_down)};
    return cmocka_run_group_tests_name("labels", tests, NULL, NULL);
}
