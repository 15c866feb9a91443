/* Chats: messages become what their JSON form becomes, texts come through as they are, errors name
 * the message, and a chat's answer is that of its tokens. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "api/opened.h"

static const char *const model_path = "tests/gguf/qwen2.gguf"; /* ChatML */

static rv_chat chat_of(const rv_message *messages, size_t n)
{
    return (rv_chat){.size = sizeof(rv_chat), .messages = messages, .n_messages = n};
}

static char *render_by(const rv_runtime *rt, const char *source, const rv_chat *chat)
{
    char *text;
    size_t len;
    assert_ok(rv_template_render(rt, source, strlen(source), chat, &text, &len, err));
    assert_int_equal(strlen(text), len);
    return text;
}

static void expect_text(const rv_runtime *rt, const char *source, const rv_chat *chat,
                        const char *want)
{
    char *text = render_by(rt, source, chat);
    assert_string_equal(text, want);
    rv_free(text);
}

/* Both say the same, as text and as tokens. */
static void expect_same(const rv_model *m, const rv_chat *a, const rv_chat *b)
{
    char *text[2];
    int32_t *ids[2];
    size_t n[2];
    for (int i = 0; i < 2; i++) {
        assert_ok(rv_chat_render(m, i ? b : a, &text[i], NULL, err));
        assert_ok(rv_chat_tokenize(m, i ? b : a, &ids[i], &n[i], err));
    }
    assert_string_equal(text[0], text[1]);
    assert_int_equal(n[0], n[1]);
    assert_true(n[0] > 0);
    assert_memory_equal(ids[0], ids[1], n[0] * sizeof **ids);
    for (int i = 0; i < 2; i++) {
        rv_free(text[i]);
        rv_free(ids[i]);
    }
}

/* ---- messages ---- */

static void texts_come_through(void **state)
{
    (void)state;
    static const char source[] = "{% for m in messages %}{{ m.role }}|{{ m.content }}|{% endfor %}";
    static const char *const texts[][2] = {
        {"say \"hi\"", "say \\\"hi\\\""},
        {"line\nline\r\n\ttab", "line\\nline\\r\\n\\ttab"},
        {"back\\slash \\n", "back\\\\slash \\\\n"},
        {"\x01\x1f\x7f", "\\u0001\\u001f\\u007f"},
        {"ž\xE2\x82\xAC\xF0\x9F\x98\x80", "\\u017e\\u20ac\\ud83d\\ude00"},
        {"{{ messages }}{% for %}", "{{ messages }}{% for %}"},
        {"", ""},
        {" two  spaces ", " two  spaces "},
    };
    opened o;
    open_all(&o, model_path, 1, 64);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char json[512], want[256];
        const rv_message messages[] = {{"system", texts[i][0], NULL}, {"user", texts[i][0], NULL}};
        rv_chat by_list = chat_of(messages, 2), by_json = {.size = sizeof by_json};
        snprintf(json, sizeof json,
                 "{\"messages\":[{\"role\":\"system\",\"content\":\"%s\"},"
                 "{\"role\":\"user\",\"content\":\"%s\"}]}",
                 texts[i][1], texts[i][1]);
        by_json.variables = json;
        snprintf(want, sizeof want, "system|%s|user|%s|", texts[i][0], texts[i][0]);
        expect_text(o.rt, source, &by_list, want);
        expect_text(o.rt, source, &by_json, want);
        expect_same(o.m, &by_list, &by_json);
    }
    close_all(&o);
}

static void further_fields(void **state)
{
    (void)state;
    opened o;
    open_all(&o, model_path, 1, 64);
    const rv_message named = {"user", "hi", "{\"name\":\"Ada\",\"age\":[1,2]}"};
    rv_chat chat = chat_of(&named, 1);
    expect_text(o.rt, "{{ messages[0].name }} {{ messages[0].age[1] }} {{ messages[0].content }}",
                &chat, "Ada 2 hi");
    /* content as a list of parts takes the place of the text */
    const rv_message parts = {"user", "text",
                              "{\"content\":[{\"type\":\"text\",\"text\":\"part\"}]}"};
    chat = chat_of(&parts, 1);
    expect_text(o.rt, "{{ messages[0].content[0].text }}{{ messages[0].content | length }}", &chat,
                "part1");
    const rv_message none = {"assistant", NULL, "{\"tool_calls\":[{\"name\":\"f\"}]}"};
    chat = chat_of(&none, 1);
    expect_text(o.rt, "{{ messages[0].content is defined }} {{ messages[0].tool_calls[0].name }}",
                &chat, "False f");
    const rv_message empty = {"user", "x", "{}"};
    chat = chat_of(&empty, 1);
    expect_text(o.rt, "{{ messages[0].role }}{{ messages[0].content }}", &chat, "userx");
    chat = chat_of(NULL, 0); /* no messages are an empty list */
    expect_text(o.rt, "{{ messages | length }}", &chat, "0");
    close_all(&o);
}

/* ---- what else a template sees ---- */

static void tools_and_variables(void **state)
{
    (void)state;
    static const char source[] =
        "{{ tools is none }} {{ documents is none }} {{ add_generation_prompt }} {{ mood }}";
    const rv_message message = {"user", "hi", NULL};
    rv_chat chat = chat_of(&message, 1);
    opened o;
    open_all(&o, model_path, 1, 64);
    expect_text(o.rt, source, &chat, "True True True ");
    chat.no_reply = 1;
    expect_text(o.rt, source, &chat, "True True False ");
    chat.variables = "{\"mood\":\"good\",\"add_generation_prompt\":true}"; /* said twice: this */
    expect_text(o.rt, source, &chat, "True True True good");
    chat.tools = "[{\"name\":\"f\"}]";
    chat.variables = "{\"documents\":[]}";
    expect_text(o.rt, source, &chat, "False False False ");
    expect_text(o.rt, "{{ tools[0].name }}", &chat, "f");
    chat.tools = "[]";
    expect_text(o.rt, "{{ tools | length }}", &chat, "0");
    /* the same with a model's own template: with a reply begun, and without */
    rv_chat whole = {.size = sizeof whole,
                     .variables = "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}"};
    chat = chat_of(&message, 1);
    expect_same(o.m, &chat, &whole);
    chat.no_reply = whole.no_reply = 1;
    expect_same(o.m, &chat, &whole);
    chat.no_reply = 0;
    char *with, *without;
    assert_ok(rv_chat_render(o.m, &chat, &with, NULL, err));
    assert_ok(rv_chat_render(o.m, &whole, &without, NULL, err));
    assert_true(strlen(with) > strlen(without));
    assert_memory_equal(with, without, strlen(without));
    rv_free(with);
    rv_free(without);
    close_all(&o);
}

static void the_time(void **state)
{
    (void)state;
    static const char source[] = "{{ strftime_now('%Y-%m-%d') }}";
    const rv_time now = {2031, 2, 3, 4, 5, 6};
    rv_chat chat = {.size = sizeof chat};
    opened o;
    open_all(&o, model_path, 1, 64);
    expect_text(o.rt, source, &chat, "1970-01-01");
    chat.now = &now;
    expect_text(o.rt, source, &chat, "2031-02-03");
    close_all(&o);
}

/* ---- errors ---- */

static void expect_error(const rv_model *m, rv_session *s, const rv_chat *chat, rv_status want,
                         const char *says)
{
    rv_error e = {0};
    char *text;
    int32_t *ids;
    size_t n;
    rv_answer *a;
    for (int i = 0; i < 4; i++) {
        rv_status st = i == 0   ? rv_chat_render(m, chat, &text, NULL, &e)
                       : i == 1 ? rv_chat_tokenize(m, chat, &ids, &n, &e)
                       : i == 2 ? rv_session_chat(s, chat, NULL, &a, &e)
                                : rv_session_start_chat(s, chat, NULL, &e);
        if (st != want || e.code != st || !strstr(e.text, says))
            fail_msg("%d: %s '%s', wanted '%s'", i, rv_status_name(st), e.text, says);
    }
    assert_null(text);
    assert_null(ids);
    assert_null(a);
    assert_int_equal(rv_session_tokens(s, NULL), 0);
}

static void errors_name_the_place(void **state)
{
    (void)state;
    opened o;
    open_all(&o, model_path, 1, 64);
    rv_message m[] = {{"user", "a", NULL}, {"assistant", "b", NULL}, {"user", "c", NULL}};
    rv_chat chat = chat_of(m, 3);
    m[1].more = "{\"name\":";
    expect_error(o.m, o.s, &chat, RV_E_CONFIG, "messages[1].more");
    m[1].more = "";
    expect_error(o.m, o.s, &chat, RV_E_CONFIG, "messages[1].more");
    m[1].more = "[1]";
    expect_error(o.m, o.s, &chat, RV_E_CONFIG, "messages[1].more must be a JSON object");
    m[1].more = NULL;
    m[2].role = NULL;
    expect_error(o.m, o.s, &chat, RV_E_INVALID, "messages[2].role");
    m[2].role = "user";
    m[2].content = "\xC3(";
    expect_error(o.m, o.s, &chat, RV_E_INVALID, "messages[2].content");
    m[2].content = "c";
    chat.tools = "{}";
    expect_error(o.m, o.s, &chat, RV_E_CONFIG, "tools must be a JSON list");
    chat.tools = "[";
    expect_error(o.m, o.s, &chat, RV_E_CONFIG, "tools");
    chat.tools = NULL;
    chat.variables = "[]";
    expect_error(o.m, o.s, &chat, RV_E_CONFIG, "variables must be a JSON object");
    chat.variables = "{\"x\":";
    expect_error(o.m, o.s, &chat, RV_E_CONFIG, "variables");
    chat.variables = "{\"messages\":[]}";
    expect_error(o.m, o.s, &chat, RV_E_INVALID, "twice");
    chat.variables = NULL;
    chat.messages = NULL;
    expect_error(o.m, o.s, &chat, RV_E_INVALID, "n_messages is 3, but messages is NULL");
    chat.size = 0;
    expect_error(o.m, o.s, &chat, RV_E_CONFIG, "rv_chat.size");
    close_all(&o);
}

/* ---- answers ---- */

static void a_chat_is_its_tokens(void **state)
{
    (void)state;
    opened o;
    rv_session *other;
    rv_generate_options go = greedy(10);
    rv_session_options so = {.size = sizeof so, .n_context = 256};
    rv_message m[] = {{"user", "the tea", NULL}, {"assistant", NULL, NULL}, {"user", "more", NULL}};
    open_all(&o, model_path, 2, 256);
    assert_ok(rv_session_new(&other, o.m, &so, err));
    char *said = NULL;
    for (size_t turn = 1; turn <= 3; turn += 2) {
        rv_chat chat = chat_of(m, turn);
        char *text;
        size_t len, n, n_told;
        int32_t *ids, *told;
        rv_answer *a, *b;
        assert_ok(rv_chat_render(o.m, &chat, &text, &len, err));
        assert_ok(rv_tokenize(o.m, text, len, RV_TOKENIZE_SPECIAL, &ids, &n, err));
        assert_ok(rv_chat_tokenize(o.m, &chat, &told, &n_told, err));
        assert_int_equal(n_told, n);
        assert_memory_equal(told, ids, n * sizeof *ids);
        assert_ok(rv_session_generate(o.s, ids, n, &go, &a, err));
        assert_ok(rv_session_chat(other, &chat, &go, &b, err));
        assert_int_equal(b->n_ids, a->n_ids);
        assert_memory_equal(b->ids, a->ids, a->n_ids * sizeof *a->ids);
        assert_string_equal(b->text, a->text);
        assert_int_equal(b->n_prompt, (int)n);
        assert_int_equal(b->n_reused, a->n_reused);
        if (turn > 1) assert_true(b->n_reused > 0); /* the past was not computed again */
        if (!said) {
            said = test_malloc(a->text_len + 1);
            memcpy(said, a->text, a->text_len + 1);
            m[1].content = said;
        }
        rv_free(a);
        rv_free(b);
        rv_free(text);
        rv_free(ids);
        rv_free(told);
    }
    test_free(said);
    rv_session_free(&other);
    close_all(&o);
}

static void many_chats_together(void **state)
{
    (void)state;
    enum { N = 6 };
    opened o;
    rv_engine *e;
    rv_session *s[N];
    rv_answer *alone[N];
    char text[N][32];
    rv_generate_options go = greedy(8);
    open_all(&o, model_path, 2, 128);
    rv_engine_options eo = {.size = sizeof eo, .n_tokens = 128 * N, .max_rows = 16};
    assert_ok(rv_engine_new(&e, o.m, &eo, err));
    rv_session_options so = {.size = sizeof so, .n_context = 128, .engine = e};
    for (int i = 0; i < N; i++) {
        snprintf(text[i], sizeof text[i], "number %d", i * i);
        rv_message message = {"user", text[i], NULL};
        rv_chat chat = chat_of(&message, 1);
        assert_ok(rv_session_chat(o.s, &chat, &go, &alone[i], err));
        assert_ok(rv_session_new(&s[i], o.m, &so, err));
        assert_ok(rv_session_start_chat(s[i], &chat, &go, err));
        assert_refused(RV_E_STATE, rv_session_start_chat(s[i], &chat, &go, err));
    }
    size_t running;
    do assert_ok(rv_engine_advance(e, &running, err));
    while (running);
    for (int i = 0; i < N; i++) {
        rv_answer *a;
        assert_ok(rv_session_finish(s[i], &a, err));
        assert_int_equal(a->n_ids, alone[i]->n_ids);
        assert_memory_equal(a->ids, alone[i]->ids, a->n_ids * sizeof *a->ids);
        assert_string_equal(a->text, alone[i]->text);
        rv_free(a);
        rv_free(alone[i]);
        rv_session_free(&s[i]);
    }
    rv_engine_free(&e);
    close_all(&o);
}

static void too_long_for_the_context(void **state)
{
    (void)state;
    opened o;
    rv_answer *a;
    char many[400];
    memset(many, 'x', sizeof many - 1);
    many[sizeof many - 1] = 0;
    rv_message message = {"user", many, NULL};
    rv_chat chat = chat_of(&message, 1);
    open_all(&o, model_path, 1, 32);
    assert_refused(RV_E_TOO_LONG, rv_session_chat(o.s, &chat, NULL, &a, err));
    assert_null(a);
    close_all(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_come_through),    cmocka_unit_test(further_fields),
        cmocka_unit_test(tools_and_variables),   cmocka_unit_test(the_time),
        cmocka_unit_test(errors_name_the_place), cmocka_unit_test(a_chat_is_its_tokens),
        cmocka_unit_test(many_chats_together),   cmocka_unit_test(too_long_for_the_context),
    };
    return cmocka_run_group_tests_name("chat", tests, NULL, NULL);
}
