/* A learner takes part in the chats of a service as it does in a session's: what was taught is
 * spoken where it is asked for, and other requests get the answer of the model alone. */
#include "scheduler/served.h"

#include "learn/tiny_model.h"

enum { N_NEW = 10 };

static const char dog[] = "What is Kakovin's dog?", tea[] = "Tell me about tea.";

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

static void compare(const served *s, rv_learner *l, const rv_chat *chat,
                    const rv_generate_options *go)
{
    rv_session *alone;
    rv_answer *a;
    rv_session_options so = {.size = sizeof so, .n_context = 256, .learner = l};
    assert_ok(rv_session_new(&alone, t.m, &so, err));
    assert_ok(rv_session_chat(alone, chat, go, &a, err));
    assert_int_equal(s->last.finish, a->finish);
    assert_string_equal(s->text, a->text);
    assert_int_equal(s->n, (int)a->n_ids - (a->finish == RV_FINISH_EOS));
    for (int i = 0; i < s->n; i++) {
        assert_int_equal(s->ids[i], a->ids[i]);
        assert_memory_equal(&s->logprobs[i], &a->chosen[i].logprob, sizeof(float));
    }
    rv_free(a);
    rv_session_free(&alone);
}

static void lessons_are_spoken(void **state)
{
    (void)state;
    rv_learner *l;
    rv_service *svc;
    rv_learner_options lo = {.size = sizeof lo, .seed = 5};
    rv_service_options so = {.size = sizeof so, .n_tokens = 1024, .n_context = 256, .no_thread = 1};
    assert_ok(rv_learner_new(&l, t.m, &lo, err));
    assert_ok(rv_learner_correct(l, NULL, dog, "chess", NULL, err));
    assert_ok(rv_service_new(&svc, t.m, &so, err));
    rv_generate_options go = greedy(N_NEW);
    go.logprobs = 1;
    go.ignore_eos = 0;
    served list[4] = {{0}};
    rv_message messages[2] = {{"user", dog, NULL}, {"user", tea, NULL}};
    rv_chat chats[2];
    for (int i = 0; i < 4; i++) {
        chats[i % 2] =
            (rv_chat){.size = sizeof *chats, .messages = &messages[i % 2], .n_messages = 1};
        rv_request r = {
            .size = sizeof r, .chat = &chats[i % 2], .generate = &go, .learner = i < 2 ? l : NULL};
        assert_ok(rv_service_submit(svc, &r, &list[i].request, err));
    }
    served_run(svc, list, 4);
    assert_string_equal(list[0].text, "chess");
    assert_string_not_equal(list[2].text, "chess");
    for (int i = 0; i < 4; i++) compare(&list[i], i < 2 ? l : NULL, &chats[i % 2], &go);
    assert_string_equal(list[1].text, list[3].text);
    /* freed while a request that names it waits */
    rv_request r = {.size = sizeof r, .chat = &chats[0], .generate = &go, .learner = l};
    uint64_t id;
    assert_ok(rv_service_submit(svc, &r, &id, err));
    rv_learner_free(&l);
    rv_service_free(&svc);
}

/* A lesson of scope always is read by the requests of a service as by a session's. */
static void instructions_are_read(void **state)
{
    (void)state;
    rv_learner *l;
    rv_service *svc;
    rv_learner_options lo = {.size = sizeof lo, .seed = 5};
    rv_service_options so = {.size = sizeof so, .n_tokens = 1024, .n_context = 256, .no_thread = 1};
    assert_ok(rv_learner_new(&l, t.m, &lo, err));
    assert_ok(rv_learner_teach(l, NULL, NULL, "Speak of tea.", RV_SCOPE_ALWAYS, NULL, err));
    assert_ok(rv_service_new(&svc, t.m, &so, err));
    rv_generate_options go = greedy(N_NEW);
    go.logprobs = 1;
    go.ignore_eos = 0;
    served one = {0};
    rv_message message = {"user", tea, NULL};
    rv_chat chat = {.size = sizeof chat, .messages = &message, .n_messages = 1};
    rv_request r = {.size = sizeof r, .chat = &chat, .generate = &go, .learner = l};
    assert_ok(rv_service_submit(svc, &r, &one.request, err));
    served_run(svc, &one, 1);
    compare(&one, l, &chat, &go);
    rv_service_free(&svc);
    rv_learner_free(&l);
}

/* Who submits a request cannot tell what is likely: its prompt is made anew when it begins, for all
 * its choices, as a session's is; where the context has no room for the turn it stays. */
static void likely_lessons_are_read(void **state)
{
    (void)state;
    rv_learner *l;
    rv_service *svc;
    rv_learner_options lo = {.size = sizeof lo, .seed = 5, .experiments = "reading=1"};
    rv_message messages[] = {
        {"user", dog, NULL}, {"assistant", "Rex", NULL}, {"user", "Which dog has Kakovin?", NULL}};
    rv_chat whole = {.size = sizeof whole, .messages = messages, .n_messages = 3},
            chat = {.size = sizeof chat, .messages = messages + 2, .n_messages = 1};
    int32_t *ids;
    size_t n_whole, n_alone;
    assert_ok(rv_chat_tokenize(t.m, &whole, &ids, &n_whole, err));
    rv_free(ids);
    assert_ok(rv_chat_tokenize(t.m, &chat, &ids, &n_alone, err));
    rv_free(ids);
    assert_ok(rv_learner_new(&l, t.m, &lo, err));
    assert_ok(rv_learner_correct(l, NULL, dog, "Rex", NULL, err));
    rv_generate_options go = greedy(N_NEW);
    go.logprobs = 1;
    go.ignore_eos = 0;
    for (int tight = 0; tight < 2; tight++) {
        rv_service_options so = {.size = sizeof so, .n_tokens = 1024, .no_thread = 1};
        served one = {0}, first = {0}, second = {0};
        so.n_context = tight ? (int)n_whole + 1 : 256;
        assert_ok(rv_service_new(&svc, t.m, &so, err));
        rv_request r = {.size = sizeof r, .chat = &chat, .generate = &go, .learner = l};
        assert_ok(rv_service_submit(svc, &r, &one.request, err));
        served_run(svc, &one, 1);
        assert_int_equal(one.last.n_prompt, tight ? n_alone : n_whole);
        if (!tight) {
            compare(&one, l, &chat, &go);
            compare(&one, NULL, &whole, &go);
        }
        r.n = 2;
        second.choice = 1;
        assert_ok(rv_service_submit(svc, &r, &first.request, err));
        second.request = first.request;
        served both[] = {first, second};
        served_run(svc, both, 2);
        for (int i = 0; i < 2; i++) assert_string_equal(both[i].text, one.text);
        rv_service_free(&svc);
    }
    rv_learner_free(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(lessons_are_spoken),
                                       cmocka_unit_test(instructions_are_read),
                                       cmocka_unit_test(likely_lessons_are_read)};
    return cmocka_run_group_tests_name("learned", tests, open_tiny, close_tiny);
}
