/* Ten thousand lessons in one learner: taught, asked for, contradicted, forgotten, and read again
 * from the log. On a tiny model with random weights, recognised by spelling. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "api/memory_store.h"
#include "api/opened.h"
#include "learn/tiny_model.h"

enum { MANY = 10000 };

static tiny t;

static int open_tiny(void **state)
{
    (void)state;
    tiny_open(&t);
    return 0;
}

static int close_tiny(void **state)
{
    (void)state;
    tiny_close(&t);
    return 0;
}

static rv_learner *new_learner(const rv_store *store)
{
    rv_learner *l;
    rv_learner_options o = {.size = sizeof o, .store = store};
    assert_ok(rv_learner_new(&l, t.m, &o, err));
    return l;
}

/* Places that differ in one word each, and their codes. */
static void lesson(int i, char question[96], char answer[32])
{
    snprintf(question, 96, "What is the code of room %d?", i);
    snprintf(answer, 32, "%d", (i * 7919 + 13) % 99991);
}

static void teach(rv_learner *l, const char *question, const char *answer)
{
    rv_adaptation *a;
    assert_ok(rv_learner_correct(l, NULL, question, answer, &a, err));
    assert_int_equal(a->applied, 1);
    rv_free(a);
}

/* What would be spoken; "": nothing taught would take part. */
static void plan_of(rv_learner *l, const char *request, char out[64])
{
    rv_session *s;
    rv_session_options o = {.size = sizeof o, .n_context = 64, .learner = l};
    rv_message turn = {.role = "user", .content = request};
    rv_chat chat = {.size = sizeof chat, .messages = &turn, .n_messages = 1};
    rv_learn_plan *plan;
    assert_ok(rv_session_new(&s, t.m, &o, err));
    assert_ok(rv_learner_begin(l, s, &chat, &plan, err));
    snprintf(out, 64, "%s", plan->slot ? plan->answer : plan->gate_open ? "?" : "");
    rv_free(plan);
    rv_session_free(&s);
}

static void assert_plan(rv_learner *l, const char *request, const char *answer)
{
    char said[64];
    plan_of(l, request, said);
    if (strcmp(said, answer)) fail_msg("%s: '%s', not '%s'", request, said, answer);
}

static void assert_all_there(rv_learner *l, int contradicted)
{
    char question[96], answer[32];
    for (int i = 1; i <= MANY; i += 1111) {
        lesson(i, question, answer);
        assert_plan(l, question, i == contradicted ? "none" : answer);
    }
    assert_plan(l, "what is the code of room 10000", "97132");
    assert_plan(l, "What is the code of room 10001?", "");
    assert_plan(l, "How do I boil an egg?", "");
}

static void ten_thousand_are_told_apart(void **state)
{
    (void)state;
    rvi_store kept;
    char question[96], answer[32], *json;
    uint64_t n;
    rv_adaptation *a;
    assert_ok(rvi_store_memory(&kept, err));
    rv_store store = memory_store(&kept);
    rv_learner *l = new_learner(&store);
    for (int i = 1; i <= MANY; i++) {
        lesson(i, question, answer);
        teach(l, question, answer);
    }
    assert_all_there(l, 0);
    lesson(5556, question, answer);
    teach(l, question, "none"); /* the newest counts, and both are shown */
    assert_all_there(l, 5556);
    assert_ok(rv_learner_status(l, &json, err));
    assert_non_null(strstr(json, "\"instead_of\":[{\"event\":5556,"));
    rv_free(json);
    assert_ok(rv_learner_forget(l, "room 2345?", &a, err));
    assert_int_equal(a->samples_used, 1);
    rv_free(a);
    rv_learner_free(&l);
    l = new_learner(&store); /* all of it from the log */
    assert_all_there(l, 5556);
    assert_plan(l, "What is the code of room 2345?", "");
    assert_ok(rv_learner_verify_log(l, &n, err));
    assert_int_equal(n, MANY + 2);
    rv_learner_free(&l);
    rvi_store_close(&kept);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(ten_thousand_are_told_apart)};
    return cmocka_run_group_tests_name("many lessons", tests, open_tiny, close_tiny);
}
