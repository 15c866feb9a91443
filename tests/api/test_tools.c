/* Tools, thoughts and answers that are checked: what the public interface promises of them. The
 * model's weights are random, so its answers are of every kind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "api/opened.h"
#include "base/compat.h"
#include "ruvllm_tools.h"

static const char *const model_path = "tests/gguf/qwen2.gguf";
enum { N_CONTEXT = 1024 };

static const char tools_text[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"weather\",\"parameters\":{\"type\":"
    "\"object\",\"properties\":{\"city\":{\"type\":\"string\",\"maxLength\":4},\"days\":{\"type\":"
    "\"integer\",\"minimum\":1,\"maximum\":9}},\"required\":[\"city\"]}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"now\"}}]";

static opened o;

static int open_it(void **state)
{
    (void)state;
    open_all(&o, model_path, 2, N_CONTEXT);
    return 0;
}

static int close_it(void **state)
{
    (void)state;
    close_all(&o);
    return 0;
}

static rv_tools_options with(const char *choice)
{
    return (rv_tools_options){
        .size = sizeof(rv_tools_options), .tools = tools_text, .choice = choice, .seed = 3};
}

static rv_tools *make(const rv_model *m, const rv_tools_options *to)
{
    rv_tools *t;
    assert_ok(rv_tools_new(&t, m, to, err));
    return t;
}

static rv_sampling sampling(uint64_t seed)
{
    return (rv_sampling){.size = sizeof(rv_sampling),
                         .seed = seed,
                         .temperature = 1,
                         .top_p = 1,
                         .repetition_penalty = 1};
}

static const rv_message asked = {"user", "What is the weather?", NULL};

static rv_chat chat_of(const rv_tools *t)
{
    return (rv_chat){.size = sizeof(rv_chat),
                     .messages = &asked,
                     .n_messages = 1,
                     .tools = tools_text,
                     .variables = rv_tools_variables(t)};
}

/* ---- options ---- */

static void wrong_options_are_refused(void **state)
{
    (void)state;
    rv_tools *t;
    rv_tools_options to = with("somebody");
    assert_refused(RV_E_CONFIG, rv_tools_new(&t, o.m, &to, err));
    assert_null(t);
    to = with("{\"type\":\"function\",\"function\":{}}");
    assert_refused(RV_E_CONFIG, rv_tools_new(&t, o.m, &to, err));
    to = with(NULL);
    to.think = 5; /* ChatML knows no thinking */
    assert_refused(RV_E_UNSUPPORTED, rv_tools_new(&t, o.m, &to, err));
    to.think = -2;
    assert_refused(RV_E_INVALID, rv_tools_new(&t, o.m, &to, err));
    to = with("required");
    to.tools = "[]";
    assert_refused(RV_E_CONFIG, rv_tools_new(&t, o.m, &to, err));
    to.tools = "{}";
    assert_refused(RV_E_CONFIG, rv_tools_new(&t, o.m, &to, err));
    to = with(NULL);
    to.form_text = "x";
    to.form = (rv_grammar_kind)99;
    assert_refused(RV_E_INVALID, rv_tools_new(&t, o.m, &to, err));
    to = with(NULL);
    to.size = 3;
    assert_refused(RV_E_CONFIG, rv_tools_new(&t, o.m, &to, err));
    assert_refused(RV_E_INVALID, rv_tools_new(NULL, o.m, &to, err));
    for (int unheld = 0; unheld < 2; unheld++) { /* held or not: what cannot be judged is named */
        rv_error why = {0};
        to = with(NULL);
        to.unheld = unheld;
        to.tools = "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":"
                   "\"object\",\"properties\":{\"a\":{\"type\":\"array\",\"uniqueItems\":true}}}}}"
                   "]";
        assert_int_equal(rv_tools_new(&t, o.m, &to, &why), RV_E_UNSUPPORTED);
        assert_non_null(strstr(why.text, "tools[0].function.parameters (f)"));
        assert_non_null(strstr(why.text, "uniqueItems"));
    }
    rv_tools_free(NULL);
    assert_null(rv_tools_grammar(NULL));
}

static void families_follow_the_template(void **state)
{
    static const struct {
        const char *source, *family, *variables;
    } cases[] = {
        {"{{ messages[0].content }}", "hermes", NULL},
        {"{{ messages[0].content }}{# tools #}[TOOL_CALLS]", "mistral", NULL},
        {"{{ messages[0].content }}{# tools #}<think></think><tool_call>name arguments", "hermes",
         "{\"enable_thinking\":true}"},
        {"{{ messages[0].content }}{# tools #}<tool_call><function=<parameter=", "qwen-coder",
         NULL},
    };
    (void)state;
    for (size_t i = 0; i < RVI_COUNT(cases); i++) {
        rv_model *m;
        rv_open_options oo = {
            .size = sizeof oo, .chat_template = cases[i].source, .vocabulary_only = 1};
        assert_ok(rv_model_open(&m, o.rt, model_path, &oo, err));
        rv_tools_options to = with(NULL);
        rv_tools *t = make(m, &to);
        assert_string_equal(rv_tools_family(t), cases[i].family);
        if (cases[i].variables)
            assert_string_equal(rv_tools_variables(t), cases[i].variables);
        else
            assert_null(rv_tools_variables(t));
        rv_tools_free(&t);
        to.choice = "none"; /* no calls are read then */
        t = make(m, &to);
        assert_string_equal(rv_tools_family(t), "");
        rv_tools_free(&t);
        rv_model_close(&m);
    }
}

/* The template of Phi-4-mini-instruct, which has no variable "tools": it takes them from the system
 * turn, as a text, and knows no calls. */
static const char phi_template[] =
    "{% for message in messages %}{% if message['role'] == 'system' and 'tools' in message and "
    "message['tools'] is not none %}{{ '<|' + message['role'] + '|>' + message['content'] + "
    "'<|tool|>' + message['tools'] + '<|/tool|>' + '<|end|>' }}{% else %}{{ '<|' + "
    "message['role'] + '|>' + message['content'] + '<|end|>' }}{% endif %}{% endfor %}{% if "
    "add_generation_prompt %}{{ '<|assistant|>' }}{% else %}{{ eos_token }}{% endif %}";

static void phi_takes_tools_in_its_system_turn(void **state)
{
    static const char tools[] = "[{\"type\":\"function\",\"function\":{\"name\":\"now\"}}]";
    static const struct {
        const char *messages, *text;
    } cases[] = {
        {"[{\"role\":\"user\",\"content\":\"u\"}]",
         "<|system|>You are a helpful assistant with some tools.<|tool|>[{\"name\":\"now\"}]"
         "<|/tool|><|end|><|user|>u<|end|><|assistant|>"},
        {"[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":\"u\"},"
         "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"1\",\"type\":"
         "\"function\",\"function\":{\"name\":\"now\",\"arguments\":\"{}\"}}]},"
         "{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":\"12:30\"}]",
         "<|system|>s<|tool|>[{\"name\":\"now\"}]<|/tool|><|end|><|user|>u<|end|><|assistant|>"
         "<|tool_call|>[{\"name\": \"now\", \"arguments\": {}}]<|/tool_call|><|end|><|tool|>12:30"
         "<|end|><|assistant|>"},
    };
    (void)state;
    rv_model *m;
    rv_open_options oo = {.size = sizeof oo, .chat_template = phi_template, .vocabulary_only = 1};
    assert_ok(rv_model_open(&m, o.rt, model_path, &oo, err));
    for (size_t i = 0; i < RVI_COUNT(cases); i++) {
        char variables[512], *text;
        size_t len;
        snprintf(variables, sizeof variables, "{\"messages\":%s}", cases[i].messages);
        rv_chat chat = {.size = sizeof chat, .tools = tools, .variables = variables};
        assert_ok(rv_chat_render(m, &chat, &text, &len, err));
        assert_string_equal(text, cases[i].text);
        rv_free(text);
    }
    rv_model_close(&m);
}

/* ---- reading ---- */

typedef struct heard {
    char log[512];
    int stop_at, n;
} heard;

static int hear(void *ctx, const rv_said *said)
{
    heard *h = ctx;
    size_t len = strlen(h->log);
    static const char *const names[] = {"text ", "thought ", "call ", "", "end "};
    if (said->kind == RV_SAID_CALL || said->kind == RV_SAID_CALL_END)
        snprintf(h->log + len, sizeof h->log - len, "|%s%s %d", names[said->kind], said->name,
                 said->complete);
    else
        snprintf(h->log + len, sizeof h->log - len, "%s%.*s", len ? "" : names[said->kind],
                 (int)said->text_len, said->text);
    return ++h->n == h->stop_at;
}

static void pieces_say_the_same(void **state)
{
    static const char text[] = "Well. <tool_call>\n{\"name\": \"weather\", \"arguments\": "
                               "{\"city\": \"a\"}}\n</tool_call>";
    static const char said[] = "text Well.|call weather 0{\"city\": \"a\"}|end weather 1";
    (void)state;
    rv_tools_options to = with(NULL);
    rv_tools *t = make(o.m, &to);
    for (size_t step = 1; step < sizeof text; step++) {
        heard h = {.n = 0};
        rv_tools_reader *r;
        assert_ok(rv_tools_reader_new(&r, t, hear, &h, err));
        for (size_t at = 0; at < sizeof text - 1; at += step)
            assert_ok(rv_tools_read(r, text + at, RVI_MIN(step, sizeof text - 1 - at), err));
        assert_ok(rv_tools_read_end(r, err));
        assert_string_equal(h.log, said);
        rv_tools_reader_free(&r);
    }
    heard h = {.stop_at = 2};
    rv_tools_reader *r;
    assert_ok(rv_tools_reader_new(&r, t, hear, &h, err));
    assert_refused(RV_E_CANCELLED, rv_tools_read(r, text, sizeof text - 1, err));
    rv_tools_reader_free(&r);
    assert_refused(RV_E_INVALID, rv_tools_reader_new(&r, t, NULL, NULL, err));
    assert_refused(RV_E_INVALID, rv_tools_read(NULL, "", 0, err));
    char *message;
    assert_ok(rv_tools_message(t, text, sizeof text - 1, &message, err));
    assert_non_null(strstr(message, "\"content\":\"Well.\""));
    assert_non_null(strstr(message, "\"arguments\":\"{\\\"city\\\": \\\"a\\\"}\""));
    rv_free(message);
    rv_tools_free(&t);
}

/* ---- held answers ---- */

static rv_answer *ask(rv_session *s, rv_tools *t, uint64_t seed, int max_tokens)
{
    rv_answer *a;
    rv_chat chat = chat_of(t);
    rv_sampling how = sampling(seed);
    rv_generate_options go = {.size = sizeof go,
                              .sampling = &how,
                              .max_tokens = max_tokens,
                              .grammar = rv_tools_grammar(t)};
    assert_ok(rv_session_chat(s, &chat, &go, &a, err));
    return a;
}

static void held_answers_have_no_problem(void **state)
{
    static const char *const templates[] = {
        "{{ messages[0].content }}",
        "{{ messages[0].content }}{# tools #}[TOOL_CALLS]",
        "{{ messages[0].content }}{# tools #}{\"name\": , \"parameters\": ",
        "{{ messages[0].content }}{# tools #}<tool_call><function=<parameter=",
        "{{ messages[0].content }}{# tools #}<|tool_call_start|>[",
        phi_template,
        "{{ messages[0].content }}{% if tools %}functools[{% endif %}",
    };
    (void)state;
    int n_ended = 0;
    for (size_t i = 0; i < RVI_COUNT(templates); i++) {
        opened with_template = {.rt = o.rt};
        rv_open_options oo = {.size = sizeof oo, .chat_template = templates[i]};
        rv_session_options so = {.size = sizeof so, .n_context = N_CONTEXT};
        assert_ok(rv_model_open(&with_template.m, o.rt, model_path, &oo, err));
        assert_ok(rv_session_new(&with_template.s, with_template.m, &so, err));
        for (uint64_t seed = 0; seed < 8; seed++) {
            rv_tools_options to = with(seed % 2 ? "required" : "weather");
            to.one_call = 1;
            rv_tools *t = make(with_template.m, &to);
            rv_answer *a = ask(with_template.s, t, seed, 160);
            rv_checked *c;
            assert_ok(rv_tools_check(t, a->text, a->text_len, &c, err));
            if (a->finish == RV_FINISH_EOS) {
                n_ended++;
                if (*c->problem) fail_msg("%s: %s: %s", templates[i], a->text, c->problem);
                assert_string_equal(c->turns, "[]");
                assert_non_null(strstr(c->message, "\"tool_calls\":["));
            }
            rv_free(c);
            rv_free(a);
            rv_tools_free(&t);
        }
        rv_session_free(&with_template.s);
        rv_model_close(&with_template.m);
    }
    assert_true(n_ended > 30);
}

/* ---- checking ---- */

#define CALL(text) "<tool_call>\n" text "\n</tool_call>"

static void problems_are_told(void **state)
{
    static const struct {
        const char *choice, *text;
        const char *problem; /* a part of it; "": none */
        const char *message; /* a part of it, */
        const char *turns;   /* and of them */
    } cases[] = {
        {"auto", "Hello.", "", "{\"content\":\"Hello.\"}", "[]"},
        {"auto", CALL("{\"name\": \"now\", \"arguments\": {}}"), "", "\"name\":\"now\"", "[]"},
        {"auto", CALL("{\"name\": \"weather\", \"arguments\": {'city': 'a', \"days\": 3,}}"), "",
         "\"{\\\"city\\\": \\\"a\\\", \\\"days\\\": 3}\"", "[]"},
        {"auto", CALL("{\"name\": \"weather\", \"arguments\": {\"city\": \"a\", \"days\": 12}}"),
         "The arguments of weather are wrong: The JSON does not satisfy the schema. At /days", "12",
         "\"role\":\"tool\""},
        {"auto", CALL("{\"name\": \"weather\", \"arguments\": {}}"), "something is missing",
         "\"{}\"", "\"tool_call_id\":\""},
        {"auto", CALL("{\"name\": \"wether\", \"arguments\": {\"city\": \"a\"}}"),
         "It must name one of these tools: weather, now.", "wether",
         "[{\"role\":\"assistant\",\"content\":\"<tool_call>"},
        {"auto", "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"a",
         "the call was not ended", "weather", "\"role\":\"user\""},
        {"required", "Hello.", "A tool must be called: weather, now.", "Hello.",
         "\"role\":\"user\""},
        {"now", CALL("{\"name\": \"weather\", \"arguments\": {\"city\": \"a\"}}"),
         "The tool now must be called, not weather.", "weather", "\"role\":\"tool\""},
        {"now",
         CALL("{\"name\": \"now\", \"arguments\": {}}")
             CALL("{\"name\": \"now\", \"arguments\": {}}"),
         "Only one call at a time", "now", "\"role\":\"tool\""},
    };
    (void)state;
    for (size_t i = 0; i < RVI_COUNT(cases); i++) {
        rv_tools_options to = with(cases[i].choice);
        rv_checked *c;
        to.unheld = to.one_call = 1;
        rv_tools *t = make(o.m, &to);
        assert_ok(rv_tools_check(t, cases[i].text, strlen(cases[i].text), &c, err));
        if (!*cases[i].problem != !*c->problem || !strstr(c->problem, cases[i].problem) ||
            !strstr(c->message, cases[i].message) || !strstr(c->turns, cases[i].turns))
            fail_msg("%s: '%s' %s %s", cases[i].text, c->problem, c->message, c->turns);
        rv_free(c);
        rv_tools_free(&t);
    }
}

static void forms_are_checked(void **state)
{
    static const struct {
        rv_grammar_kind kind;
        const char *form, *text, *problem, *message;
    } cases[] = {
        {RV_GRAMMAR_SCHEMA, "{\"type\":\"array\"}", "```json\n[12,]\n```", "",
         "{\"content\":\"[12]\"}"},
        {RV_GRAMMAR_SCHEMA, "{\"type\":\"integer\"}", "\"x\"", "\"x\" is not allowed", "x"},
        {RV_GRAMMAR_JSON, "", "{\"a\": True}", "", "{\\\"a\\\": true}"},
        {RV_GRAMMAR_JSON, "", "[1]", "[1] is not allowed", "[1]"},
        {RV_GRAMMAR_SCHEMA, "{\"type\":\"integer\"}", "not any", "no JSON in the answer",
         "not any"},
        {RV_GRAMMAR_CHOICES, "[\"yes\",\"no\"]", " yes\n", "", "{\"content\":\"yes\"}"},
        {RV_GRAMMAR_CHOICES, "[\"yes\",\"no\"]", "ye", "missing at its end", "ye"},
        {RV_GRAMMAR_REGEX, "a+", "aab", "'b' is not allowed at byte 2", "aab"},
        {RV_GRAMMAR_GBNF, "root ::= \"x\"+", "xxx", "", "xxx"},
        {RV_GRAMMAR_LARK, "start: \"x\"+", "xy", "'y' is not allowed at byte 1", "xy"},
    };
    (void)state;
    for (size_t i = 0; i < RVI_COUNT(cases); i++) {
        rv_tools_options to = {.size = sizeof to,
                               .unheld = 1,
                               .form = cases[i].kind,
                               .form_text = cases[i].form,
                               .form_len = strlen(cases[i].form)};
        rv_checked *c;
        rv_tools *t = make(o.m, &to);
        assert_ok(rv_tools_check(t, cases[i].text, strlen(cases[i].text), &c, err));
        if (!*cases[i].problem != !*c->problem || !strstr(c->problem, cases[i].problem) ||
            !strstr(c->message, cases[i].message))
            fail_msg("%s: '%s' %s", cases[i].text, c->problem, c->message);
        rv_free(c);
        rv_tools_free(&t);
    }
    rv_tools *t;
    rv_tools_options to = {
        .size = sizeof to, .unheld = 1, .form = RV_GRAMMAR_REGEX, .form_text = "(", .form_len = 1};
    assert_refused(RV_E_CONFIG, rv_tools_new(&t, o.m, &to, err));
}

/* Answers are "yes" or "no" at random, and "yes" is right: tries end with the first that is. */
static void tries_end_with_a_right_answer(void **state)
{
    static const char both[] = "[\"yes\",\"no\"]", right[] = "[\"yes\"]";
    enum { RETRIES = 3, SEEDS = 24 };
    (void)state;
    int n_at_once = 0, n_later = 0, n_never = 0;
    rv_grammar *g;
    rv_tools_options to = {.size = sizeof to,
                           .unheld = 1,
                           .form = RV_GRAMMAR_CHOICES,
                           .form_text = right,
                           .form_len = sizeof right - 1};
    rv_tools *t = make(o.m, &to);
    assert_ok(rv_grammar_new(&g, o.m, RV_GRAMMAR_CHOICES, both, sizeof both - 1, NULL, err));
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        rv_sampling how = sampling(seed);
        rv_generate_options go = {
            .size = sizeof go, .sampling = &how, .max_tokens = 8, .grammar = g};
        rv_chat chat = {.size = sizeof chat, .messages = &asked, .n_messages = 1};
        rv_answer *a;
        rv_checked *c;
        int n;
        assert_ok(rv_tools_chat(t, o.s, &chat, &go, RETRIES, &a, &c, &n, err));
        bool yes = !strcmp(a->text, "yes");
        assert_int_equal(yes, !*c->problem);
        assert_in_range(n, 1, RETRIES + 1);
        if (!yes) assert_int_equal(n, RETRIES + 1);
        *(yes ? n == 1 ? &n_at_once : &n_later : &n_never) += 1;
        rv_free(a);
        rv_free(c);
    }
    print_message("# %d at once, %d later, %d never\n", n_at_once, n_later, n_never);
    assert_true(n_at_once && n_later);
    rv_grammar_free(&g);
    rv_tools_free(&t);
}

/* Each try has the ones before it, and what was wrong with them, in its prompt. */
static void tries_grow_the_conversation(void **state)
{
    (void)state;
    rv_tools_options to = with("required");
    to.unheld = 1;
    rv_tools *t = make(o.m, &to);
    rv_chat chat = chat_of(t);
    rv_sampling how = sampling(1);
    rv_generate_options go = {.size = sizeof go, .sampling = &how, .max_tokens = 4};
    int prompt[2];
    for (int retries = 0; retries < 2; retries++) {
        rv_answer *a;
        rv_checked *c;
        int n;
        assert_ok(rv_tools_chat(t, o.s, &chat, &go, retries, &a, &c, &n, err));
        assert_int_equal(n, retries + 1); /* four tokens are no call */
        assert_non_null(strstr(c->problem, "A tool must be called"));
        prompt[retries] = a->n_prompt;
        rv_free(a);
        rv_free(c);
    }
    assert_true(prompt[1] > prompt[0] + 10);
    rv_answer *a;
    rv_checked *c;
    assert_refused(RV_E_INVALID, rv_tools_chat(t, o.s, &chat, &go, 101, &a, &c, NULL, err));
    assert_refused(RV_E_INVALID, rv_tools_chat(t, o.s, NULL, &go, 1, &a, &c, NULL, err));
    chat.n_messages = 0;
    assert_refused(RV_E_INVALID, rv_tools_chat(t, o.s, &chat, &go, 1, &a, &c, NULL, err));
    assert_null(a);
    assert_null(c);
    rv_tools_free(&t);
}

/* ---- mending ---- */

static void json_is_mended(void **state)
{
    static const char schema[] = "{\"type\":\"object\",\"required\":[\"a\"]}";
    static const char text[] = "Here: {'a': [1, 2,], // two\n \"b\": None";
    (void)state;
    rv_repaired *r;
    assert_ok(rv_json_repair(o.rt, text, sizeof text - 1, schema, sizeof schema - 1, &r, err));
    assert_int_equal(r->valid, 1);
    assert_true(r->n_changes >= 4);
    assert_string_equal(r->problem, "");
    rv_free(r);
    assert_ok(rv_json_repair(o.rt, "{}", 2, schema, sizeof schema - 1, &r, err));
    assert_int_equal(r->valid, 0);
    assert_int_equal(r->n_changes, 0);
    assert_non_null(strstr(r->problem, "something is missing"));
    rv_free(r);
    assert_refused(RV_E_CONFIG, rv_json_repair(o.rt, "not any", 7, NULL, 0, &r, err));
    assert_refused(RV_E_CONFIG, rv_json_repair(o.rt, "{}", 2, "{", 1, &r, err));
    assert_refused(RV_E_INVALID, rv_json_repair(NULL, "{}", 2, NULL, 0, &r, err));
}

static void json_is_mended_as_it_comes(void **state)
{
    static const char schema[] = "{\"type\":\"object\",\"properties\":{\"n\":{\"maximum\":9}}}";
    static const char text[] = "Here: {'a': [1, 2,], // two\n \"n\": 12, \"b\": None";
    (void)state;
    rv_repaired *whole;
    assert_ok(rv_json_repair(o.rt, text, sizeof text - 1, schema, sizeof schema - 1, &whole, err));
    assert_non_null(strstr(whole->problem, "/n"));
    for (size_t step = 1; step < sizeof text; step++) {
        rv_json_stream *s;
        rv_json_piece piece;
        char all[256] = "";
        size_t n_changes = 0, wrong_at = 0;
        assert_ok(rv_json_stream_new(&s, o.rt, schema, sizeof schema - 1, err));
        for (size_t at = 0; at < sizeof text; at += step) {
            size_t n = RVI_MIN(step, sizeof text - 1 - at);
            assert_ok(rv_json_stream_push(s, text + at, n, &piece, err));
            strncat(all, piece.text, sizeof all - strlen(all) - 1);
            n_changes += piece.n_changes;
            if (*piece.problem && !wrong_at) wrong_at = at + n;
        }
        assert_ok(rv_json_stream_end(s, &piece, err));
        strncat(all, piece.text, sizeof all - strlen(all) - 1);
        assert_string_equal(all, whole->text);
        assert_int_equal(n_changes + piece.n_changes, whole->n_changes);
        assert_non_null(strstr(piece.problem, "/n"));
        if (step == 1)
            assert_true(wrong_at && wrong_at < sizeof text - 8); /* long before the end */
        assert_refused(RV_E_STATE, rv_json_stream_push(s, "1", 1, &piece, err));
        rv_json_stream_free(&s);
    }
    rv_free(whole);
    rv_json_stream *s;
    rv_json_piece piece;
    assert_ok(rv_json_stream_new(&s, o.rt, NULL, 0, err));
    assert_ok(rv_json_stream_push(s, "not any", 7, &piece, err));
    assert_refused(RV_E_CONFIG, rv_json_stream_end(s, &piece, err));
    rv_json_stream_free(&s);
    assert_refused(RV_E_CONFIG, rv_json_stream_new(&s, o.rt, "{", 1, err));
    assert_null(s);
    assert_refused(RV_E_INVALID, rv_json_stream_new(&s, NULL, NULL, 0, err));
    assert_refused(RV_E_INVALID, rv_json_stream_push(NULL, "", 0, &piece, err));
    assert_refused(RV_E_INVALID, rv_json_stream_end(NULL, &piece, err));
    rv_json_stream_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_options_are_refused),
        cmocka_unit_test(families_follow_the_template),
        cmocka_unit_test(phi_takes_tools_in_its_system_turn),
        cmocka_unit_test(pieces_say_the_same),
        cmocka_unit_test(held_answers_have_no_problem),
        cmocka_unit_test(problems_are_told),
        cmocka_unit_test(forms_are_checked),
        cmocka_unit_test(tries_end_with_a_right_answer),
        cmocka_unit_test(tries_grow_the_conversation),
        cmocka_unit_test(json_is_mended),
        cmocka_unit_test(json_is_mended_as_it_comes),
    };
    return cmocka_run_group_tests_name("tools", tests, open_it, close_it);
}
