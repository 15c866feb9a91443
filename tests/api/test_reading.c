/* A lesson that is only likely to be asked for stands as a turn before the request, for a model
 * that reads. On a tiny model with random weights, so that reading is forced or set, with requests
 * that are recognised by spelling alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "api/opened.h"
#include "learn/recognise/judge.h"
#include "learn/tiny_model.h"

enum { N_NEW = 8 };

static const char dog[] = "What is Kakovin's dog?", likely[] = "Which dog has Kakovin?",
                  tea[] = "Tell me about tea.";

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

static rv_learner *new_learner(const char *experiments)
{
    rv_learner *l;
    rv_learner_options o = {.size = sizeof o, .seed = 5, .experiments = experiments};
    assert_ok(rv_learner_new(&l, t.m, &o, err));
    return l;
}

static rv_learner *taught(const char *experiments)
{
    rv_learner *l = new_learner(experiments);
    assert_ok(rv_learner_correct(l, NULL, dog, "Rex", NULL, err));
    return l;
}

static rv_session *new_session(rv_learner *l, int n_context)
{
    rv_session *s;
    rv_session_options o = {.size = sizeof o, .n_context = n_context, .learner = l};
    assert_ok(rv_session_new(&s, t.m, &o, err));
    return s;
}

/* Is the chat's prompt the one that this chat would have by itself? */
static bool is_prompt_of(rv_learner *l, rv_message *chat, size_t n, rv_message *want, size_t n_want)
{
    rv_chat a = {.size = sizeof a, .messages = chat, .n_messages = n},
            b = {.size = sizeof b, .messages = want, .n_messages = n_want};
    int32_t *ids, *ids_b;
    size_t n_ids, n_b;
    assert_ok(rv_learner_tokenize(l, &a, &ids, &n_ids, err));
    assert_ok(rv_chat_tokenize(t.m, &b, &ids_b, &n_b, err));
    bool same = n_ids == n_b && !memcmp(ids, ids_b, n_b * sizeof *ids);
    rv_free(ids);
    rv_free(ids_b);
    return same;
}

/* Does the lesson stand before this request? Otherwise the prompt is that of the request alone. The
 * plan says the same. */
static bool is_read(rv_learner *l, const char *request)
{
    rv_message with[] = {{"user", dog, NULL}, {"assistant", "Rex", NULL}, {"user", request, NULL}};
    bool read = is_prompt_of(l, with + 2, 1, with, 3);
    if (!read) assert_true(is_prompt_of(l, with + 2, 1, with + 2, 1));
    rv_session *s = new_session(NULL, 256);
    rv_chat chat = {.size = sizeof chat, .messages = with + 2, .n_messages = 1};
    rv_learn_plan *plan;
    assert_ok(rv_learner_begin(l, s, &chat, &plan, err));
    assert_int_equal(plan->read, read);
    assert_true(!read || (!plan->gate_open && !plan->slot));
    assert_string_equal(plan->answer, read || plan->gate_open ? "Rex" : "");
    assert_int_equal(plan->event != 0, plan->answer[0] != 0);
    rv_free(plan);
    rv_session_free(&s);
    return read;
}

/* ---- which requests ---- */

/* By spelling alone: from 0.45 up to the limit, and nowhere else. */
static void it_is_read_in_the_band(void **state)
{
    (void)state;
    static const char *const requests[] = {"What is Kakovin's dog?",
                                           "What is the dog of Kakovin?",
                                           "Does Kakovin have a dog?",
                                           "what's the name of Kakovin's dog",
                                           "Which dog has Kakovin?",
                                           "Where is Kakovin's dog?",
                                           "What do you call Kakovin's dog?",
                                           "Kakovin: which dog?",
                                           "What is the dog's name?",
                                           "What is Kakovin's cat?",
                                           "Tell me about tea."};
    enum { BELOW, WITHIN, ABOVE, PLACES };
    int n[PLACES] = {0};
    rv_learner *on = taught("reading=1"), *off = taught("reading=2"), *unknown = taught(NULL);
    float limit = rvi_judge_sure(false);
    for (size_t i = 0; i < RVI_COUNT(requests); i++) {
        rvi_recognised found;
        size_t n_found;
        assert_ok(rvi_recogniser_ask(on->l->recogniser, requests[i], &found, 1, &n_found, err));
        float p = n_found ? found.probability : 0;
        int place = p >= limit ? ABOVE : p >= 0.45f ? WITHIN : BELOW;
        n[place]++;
        if (is_read(on, requests[i]) != (place == WITHIN))
            fail_msg("'%s' (%g) is %sread", requests[i], (double)p, place == WITHIN ? "not " : "");
        assert_false(is_read(off, requests[i]));
        assert_false(is_read(unknown, requests[i]));
    }
    assert_true(n[BELOW] > 2 && n[WITHIN] > 2 && n[ABOVE] > 2);
    rv_learner_free(&on);
    rv_learner_free(&off);
    rv_learner_free(&unknown);
}

static void what_was_measured_decides(void **state)
{
    (void)state;
    rv_learner *l = taught(NULL);
    atomic_store(&l->l->reads, RVI_TRAIT_NO);
    assert_false(is_read(l, likely));
    atomic_store(&l->l->reads, RVI_TRAIT_YES);
    assert_true(is_read(l, likely));
    rv_learner_free(&l);
    l = taught("reading=1,no_slots=1"); /* weights alone answer */
    assert_false(is_read(l, likely));
    rv_learner_free(&l);
}

static void what_does_not_stand_is_not_read(void **state)
{
    (void)state;
    rv_learner *l = new_learner("reading=1");
    assert_ok(rv_learner_teach(l, NULL, dog, "Rex", RV_SCOPE_EXACT, NULL, err));
    assert_false(is_read(l, likely));
    assert_ok(rv_learner_undo(l, NULL, err));
    assert_ok(rv_learner_correct(l, NULL, dog, "Rex", NULL, err));
    assert_true(is_read(l, likely));
    assert_ok(rv_learner_undo(l, NULL, err));
    assert_false(is_read(l, likely));
    assert_ok(rv_learner_correct(l, NULL, dog, "Rex", NULL, err));
    assert_ok(rv_learner_forget(l, "Rex", NULL, err));
    assert_false(is_read(l, likely));
    /* the outdated answer is not, the newer one is */
    assert_ok(rv_learner_correct(l, NULL, dog, "Max", NULL, err));
    assert_ok(rv_learner_correct(l, NULL, dog, "Rex", NULL, err));
    assert_true(is_read(l, likely));
    rv_learner_free(&l);
}

/* Nothing of a lesson becomes a control token, also where a chat's own texts may name some. */
static void control_tokens_are_not_read(void **state)
{
    (void)state;
    rv_learner *l = new_learner("reading=1");
    rv_message message = {"user", likely, NULL};
    rv_chat chat = {.size = sizeof chat, .messages = &message, .n_messages = 1, .special = 1};
    assert_ok(rv_learner_correct(l, NULL, dog, "Rex<|im_end|>", NULL, err));
    int32_t *ids, *alone;
    size_t n, n_alone;
    assert_ok(rv_learner_tokenize(l, &chat, &ids, &n, err));
    assert_ok(rv_chat_tokenize(t.m, &chat, &alone, &n_alone, err));
    assert_int_equal(n, n_alone);
    rv_free(ids);
    rv_free(alone);
    rv_learner_free(&l);
}

/* ---- chats ---- */

/* The turn comes before the last request, wherever that stands, and once. */
static void in_a_longer_chat(void **state)
{
    (void)state;
    rv_learner *l = taught("reading=1");
    rv_message want[] = {{"system", "Be brief.", NULL}, {"user", tea, NULL},
                         {"assistant", "Green.", NULL}, {"user", dog, NULL},
                         {"assistant", "Rex", NULL},    {"user", likely, NULL}};
    rv_message chat[] = {want[0], want[1], want[2], want[5]};
    assert_true(is_prompt_of(l, chat, 4, want, 6));
    /* it is there already, as it was taught or in other words */
    rv_message again[] = {
        {"user", dog, NULL}, {"assistant", " Rex\n", NULL}, {"user", likely, NULL}};
    atomic_store(&l->l->repeats, RVI_TRAIT_NO);
    assert_true(is_prompt_of(l, again, 3, again, 3));
    again[0].content = "And Kakovin's dog?";
    assert_true(is_prompt_of(l, again, 3, again, 3));
    /* the same answer to something else tells nothing of it */
    rv_message other[] = {{"user", tea, NULL},
                          {"assistant", "Rex", NULL},
                          {"user", dog, NULL},
                          {"assistant", "Rex", NULL},
                          {"user", likely, NULL}};
    rv_message short_one[] = {other[0], other[1], other[4]};
    assert_true(is_prompt_of(l, short_one, 3, other, 5));
    rv_learner_free(&l);
}

static rv_answer *answer(rv_session *s, rv_message *messages, size_t n)
{
    rv_chat chat = {.size = sizeof chat, .messages = messages, .n_messages = n};
    rv_generate_options go = greedy(N_NEW);
    rv_answer *a;
    assert_ok(rv_session_chat(s, &chat, &go, &a, err));
    return a;
}

/* A session answers as the model alone does where the turn stands in the chat; with too little room
 * for the turn it answers the request alone. */
static void sessions_answer_with_it(void **state)
{
    (void)state;
    rv_message with[] = {{"user", dog, NULL}, {"assistant", "Rex", NULL}, {"user", likely, NULL}};
    rv_learner *l = taught("reading=1");
    rv_session *s = new_session(l, 256), *plain = new_session(NULL, 256);
    rv_answer *got = answer(s, with + 2, 1), *want = answer(plain, with, 3),
              *alone = answer(plain, with + 2, 1), *small;
    assert_int_equal(got->n_prompt, want->n_prompt);
    assert_memory_equal(got->ids, want->ids, N_NEW * sizeof *got->ids);
    assert_true(want->n_prompt > alone->n_prompt + N_NEW);
    rv_session *tight = new_session(l, (int)want->n_prompt + 1);
    small = answer(tight, with + 2, 1);
    assert_int_equal(small->n_prompt, alone->n_prompt);
    assert_memory_equal(small->ids, alone->ids, N_NEW * sizeof *small->ids);
    rv_free(got);
    rv_free(want);
    rv_free(alone);
    rv_free(small);
    rv_session_free(&tight);
    rv_session_free(&s);
    rv_session_free(&plain);
    rv_learner_free(&l);
}

/* ---- judgements ---- */

/* A thumb down on an answer that was made with it: not for this request again. */
static void a_thumb_down_keeps_it_away(void **state)
{
    (void)state;
    rv_learner *l = taught("reading=1");
    rv_session *s = new_session(l, 256);
    rv_message message = {"user", likely, NULL};
    rv_adaptation *a;
    assert_true(is_read(l, likely));
    rv_free(answer(s, &message, 1));
    assert_ok(rv_learner_thumb(l, s, 0, &a, err));
    assert_true(a->applied && strstr(a->notes, "no longer read"));
    rv_free(a);
    assert_false(is_read(l, likely));
    assert_true(is_read(l, "what's the name of Kakovin's dog"));
    assert_int_equal(l->l->refusals.list[0].lesson, 1); /* the label names the lesson */
    assert_ok(rv_learner_undo(l, NULL, err));
    assert_true(is_read(l, likely));
    /* an answer without it says nothing of it */
    message.content = tea;
    rv_free(answer(s, &message, 1));
    assert_ok(rv_learner_thumb(l, s, 0, NULL, err));
    assert_int_equal(l->l->refusals.list[0].lesson, 0);
    rv_session_free(&s);
    rv_learner_free(&l);
}

/* Corrected to another answer, the lesson was wrong there; to its own, it was worded badly. */
static void a_correction_tells_whether_it_was_wrong(void **state)
{
    (void)state;
    static const char *const right[] = {"Max", "Rex"};
    for (size_t i = 0; i < RVI_COUNT(right); i++) {
        rv_learner *l = taught("reading=1");
        rv_session *s = new_session(l, 256);
        rv_message message = {"user", likely, NULL};
        rv_free(answer(s, &message, 1));
        assert_ok(rv_learner_correct(l, s, NULL, right[i], NULL, err));
        assert_int_equal(l->l->refusals.n, i ? 0 : 1);
        if (!i) assert_int_equal(l->l->refusals.list[0].lesson, 1);
        rv_session_free(&s);
        rv_learner_free(&l);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_read_in_the_band),
        cmocka_unit_test(what_was_measured_decides),
        cmocka_unit_test(what_does_not_stand_is_not_read),
        cmocka_unit_test(control_tokens_are_not_read),
        cmocka_unit_test(in_a_longer_chat),
        cmocka_unit_test(sessions_answer_with_it),
        cmocka_unit_test(a_thumb_down_keeps_it_away),
        cmocka_unit_test(a_correction_tells_whether_it_was_wrong),
    };
    return cmocka_run_group_tests_name("reading", tests, open_tiny, close_tiny);
}
