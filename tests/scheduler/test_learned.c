/* A learner takes part in the chats of a service as it does in a session's: what was taught is
 * spoken where it is asked for, and other requests get the answer of the model alone. */
#include "scheduler/served.h"

#include "api/scored.h"
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

/* ---- judging what a service answered ---- */

typedef struct judging {
    rv_learner *l;
    rv_service *svc;
    rv_session *s; /* on which answers are judged */
    rv_message message;
    rv_chat chat;
} judging;

static void open_judging(judging *j, const char *asked)
{
    rv_learner_options lo = {.size = sizeof lo, .seed = 5};
    rv_service_options so = {.size = sizeof so, .n_tokens = 1024, .n_context = 256, .no_thread = 1};
    rv_session_options o = {.size = sizeof o, .n_context = 256};
    assert_ok(rv_learner_new(&j->l, t.m, &lo, err));
    assert_ok(rv_service_new(&j->svc, t.m, &so, err));
    assert_ok(rv_session_new(&j->s, t.m, &o, err));
    j->message = (rv_message){"user", asked, NULL};
    j->chat = (rv_chat){.size = sizeof j->chat, .messages = &j->message, .n_messages = 1};
}

static void close_judging(judging *j)
{
    rv_session_free(&j->s);
    rv_service_free(&j->svc);
    rv_learner_free(&j->l);
}

/* The first score of all says nothing yet: it is what others are compared with. */
static digest learn(const judging *j)
{
    assert_ok(rv_learner_score(j->l, j->s, 0.9, NULL, err));
    assert_ok(rv_learner_score(j->l, j->s, 0.1, NULL, err));
    return scored(j->l);
}

/* The answer of a session of its own, which is judged there. */
static digest judge_alone(const char *asked, rv_answer **out)
{
    judging j;
    rv_generate_options go = greedy(N_NEW);
    open_judging(&j, asked);
    assert_ok(rv_learner_begin(j.l, j.s, &j.chat, NULL, err));
    int32_t *ids;
    size_t n;
    assert_ok(rv_chat_tokenize(t.m, &j.chat, &ids, &n, err));
    assert_ok(rv_session_generate(j.s, ids, n, &go, out, err));
    digest d = learn(&j);
    rv_free(ids);
    close_judging(&j);
    return d;
}

/* Beside two others. */
static served ask_judged(const judging *j, const rv_given *given)
{
    served list[3] = {{0}};
    rv_generate_options go = greedy(N_NEW);
    rv_message message = {"user", "Where is the tea?", NULL};
    rv_chat other = {.size = sizeof other, .messages = &message, .n_messages = 1};
    for (int i = 0; i < 3; i++) {
        rv_request r = {.size = sizeof r, .chat = &other, .generate = &go};
        if (i == 1) {
            r.chat = &j->chat;
            r.learner = j->l;
            r.judged = j->s;
            r.given = given;
        }
        assert_ok(rv_service_submit(j->svc, &r, &list[i].request, err));
    }
    served_run(j->svc, list, 3);
    return list[1];
}

/* What is learned from a judgement is, bit for bit, what it is where a session gave the answer:
 * from a new answer, and from one that is gone through again, whose prompt is still known. */
static void answers_are_judged(void **state)
{
    (void)state;
    rv_answer *a;
    digest alone = judge_alone(tea, &a);
    assert_true(alone.hex[0]);
    rv_given given = {.ids = a->ids, .n_ids = a->n_ids, .text = a->text};
    for (int again = 0; again < 2; again++) {
        judging j;
        open_judging(&j, tea);
        if (again) { /* it was answered here before */
            served first = {0};
            rv_generate_options go = greedy(N_NEW);
            rv_request r = {.size = sizeof r, .chat = &j.chat, .generate = &go, .learner = j.l};
            assert_ok(rv_service_submit(j.svc, &r, &first.request, err));
            served_run(j.svc, &first, 1);
        }
        assert_refused(RV_E_LEARNING, rv_learner_score(j.l, j.s, 0.1, NULL, err));
        served got = ask_judged(&j, again ? &given : NULL);
        assert_string_equal(got.text, a->text);
        assert_true(!again || got.last.n_reused > 0);
        assert_string_equal(learn(&j).hex, alone.hex);
        close_judging(&j);
    }
    rv_free(a);
}

/* The lesson that was spoken is judged, not the model; another answer is the model's although the
 * lesson would be spoken now. */
static void lessons_that_were_spoken_are_judged(void **state)
{
    (void)state;
    for (int lesson = 0; lesson < 2; lesson++) {
        judging j;
        rv_answer *a;
        rv_adaptation *got;
        open_judging(&j, dog);
        rv_session_options so = {.size = sizeof so, .n_context = 256, .learner = j.l};
        rv_session *s;
        rv_generate_options go = greedy(N_NEW);
        go.ignore_eos = 0;
        assert_ok(rv_session_new(&s, t.m, &so, err));
        if (lesson) assert_ok(rv_learner_correct(j.l, NULL, dog, "chess", NULL, err));
        uint64_t version = rv_learner_version(j.l);
        assert_ok(rv_session_chat(s, &j.chat, &go, &a, err));
        if (!lesson) assert_ok(rv_learner_correct(j.l, NULL, dog, "chess", NULL, err));
        rv_given given = {.ids = a->ids, .n_ids = a->n_ids, .text = a->text, .version = version};
        served again = ask_judged(&j, &given);
        assert_int_equal(again.n, (int)a->n_ids);
        assert_ok(rv_learner_thumb(j.l, j.s, 0, &got, err));
        assert_int_equal(strstr(got->notes, "no longer spoken") != NULL, lesson);
        rv_free(got);
        rv_free(a);
        assert_ok(rv_session_chat(s, &j.chat, &go, &a, err));
        assert_int_equal(strcmp(a->text, "chess") == 0, !lesson);
        rv_free(a);
        rv_session_free(&s);
        close_judging(&j);
    }
}

/* An answer is gone through beside those that have all places, and is no request too many. */
static void judging_waits_for_nobody(void **state)
{
    (void)state;
    rv_answer *a;
    digest alone = judge_alone(tea, &a);
    rv_given given = {.ids = a->ids, .n_ids = a->n_ids, .text = a->text};
    judging j;
    open_judging(&j, tea);
    rv_service_free(&j.svc);
    rv_service_options so = {.size = sizeof so,
                             .n_tokens = 1024,
                             .n_context = 256,
                             .no_thread = 1,
                             .max_running = 1,
                             .max_waiting = 1,
                             .max_tenant = 2,
                             .pressure = RV_PRESSURE_REJECT};
    assert_ok(rv_service_new(&j.svc, t.m, &so, err));
    rv_generate_options go = greedy(100);
    rv_request r = {.size = sizeof r, .chat = &j.chat, .generate = &go};
    served list[3] = {{0}};
    size_t left;
    assert_ok(rv_service_submit(j.svc, &r, &list[0].request, err));
    assert_ok(rv_service_step(j.svc, &left, err));
    rv_request again = r;
    again.learner = j.l;
    again.judged = j.s;
    again.given = &given;
    assert_ok(rv_service_submit(j.svc, &again, &list[2].request, err));
    assert_ok(rv_service_submit(j.svc, &r, &list[1].request, err));
    assert_refused(RV_E_BUSY, rv_service_submit(j.svc, &r, &list[1].request, err));
    for (int i = 0; !list[2].ended; i++) {
        assert_true(i < 2 * N_NEW);
        assert_ok(rv_service_step(j.svc, &left, err));
        served_drain(j.svc, 0, list, 3);
    }
    assert_false(list[0].ended);
    assert_string_equal(list[2].text, a->text);
    assert_string_equal(learn(&j).hex, alone.hex);
    rv_free(a);
    close_judging(&j);
}

static void what_cannot_be_judged_is_refused(void **state)
{
    (void)state;
    judging j;
    int32_t ids[300] = {0}, unknown = INT32_MAX;
    uint64_t id;
    open_judging(&j, tea);
    rv_given given = {.ids = ids, .n_ids = 3, .text = "tea"};
    rv_request good = {.size = sizeof good, .chat = &j.chat, .learner = j.l, .judged = j.s}, r;
    good.given = &given;
    r = good;
    r.learner = NULL;
    assert_refused(RV_E_INVALID, rv_service_submit(j.svc, &r, &id, err));
    r = good;
    r.n = 2;
    assert_refused(RV_E_INVALID, rv_service_submit(j.svc, &r, &id, err));
    r = good;
    r.judged = NULL;
    assert_refused(RV_E_INVALID, rv_service_submit(j.svc, &r, &id, err));
    given.n_ids = 300;
    assert_refused(RV_E_TOO_LONG, rv_service_submit(j.svc, &good, &id, err));
    given = (rv_given){.ids = &unknown, .n_ids = 1, .text = "tea"};
    assert_refused(RV_E_INVALID, rv_service_submit(j.svc, &good, &id, err));
    given.text = NULL;
    assert_refused(RV_E_INVALID, rv_service_submit(j.svc, &good, &id, err));
    given = (rv_given){.ids = ids, .n_ids = 3, .text = "tea"};
    rv_generate_options go = greedy(N_NEW);
    assert_ok(rv_session_start(j.s, ids, 3, &go, err));
    assert_refused(RV_E_STATE, rv_service_submit(j.svc, &good, &id, err));
    rv_answer *a;
    for (size_t n = 1; n;) assert_ok(rv_engine_advance(rv_session_engine(j.s), &n, err));
    assert_ok(rv_session_finish(j.s, &a, err));
    rv_free(a);
    assert_ok(rv_service_submit(j.svc, &good, &id, err)); /* but it never begins */
    rv_service_cancel(j.svc, id);
    served one = {.request = id};
    served_run(j.svc, &one, 1);
    assert_int_equal(one.last.finish, RV_FINISH_CANCELLED);
    assert_refused(RV_E_LEARNING, rv_learner_score(j.l, j.s, 0.1, NULL, err));
    close_judging(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(lessons_are_spoken),
                                       cmocka_unit_test(instructions_are_read),
                                       cmocka_unit_test(likely_lessons_are_read),
                                       cmocka_unit_test(answers_are_judged),
                                       cmocka_unit_test(lessons_that_were_spoken_are_judged),
                                       cmocka_unit_test(judging_waits_for_nobody),
                                       cmocka_unit_test(what_cannot_be_judged_is_refused)};
    return cmocka_run_group_tests_name("learned", tests, open_tiny, close_tiny);
}
