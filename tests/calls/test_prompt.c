/* Tools in OpenAI's form, what is chosen, and conversations as templates take them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "calls/families.h"
#include "calls/prompt.h"
#include "calls/tools.h"

static void test_bad_tools(void **state)
{
    static const char *const cases[][2] = {
        {"{}", "must be a JSON list"},
        {"[1]", "tools[0] is not an object"},
        {"[{\"type\":\"retrieval\",\"function\":{\"name\":\"a\"}}]", "tools[0].type"},
        {"[{\"function\":{}}]", "tools[0].function.name is not a string"},
        {"[{\"function\":{\"name\":\"a b\"}}]", "letters, digits"},
        {"[{\"function\":{\"name\":\"\"}}]", "1..64"},
        {"[{\"name\":\"a\"},{\"name\":\"a\"}]", "two tools named 'a'"},
        {"[{\"name\":\"a\",\"description\":1}]", "description"},
        {"[{\"name\":\"a\",\"parameters\":[]}]", "schema of an object"},
        {"[{\"name\":\"a\",\"parameters\":{\"type\":\"string\"}}]", "schema of an object"},
    };
    (void)state;
    for (size_t i = 0; i < RVI_COUNT(cases); i++) {
        rvi_tools *t;
        rv_error err = {0};
        assert_int_not_equal(rvi_tools_new(&t, cases[i][0], strlen(cases[i][0]), &err), RV_OK);
        assert_null(t);
        if (!strstr(err.text, cases[i][1])) fail_msg("%s: %s", cases[i][0], err.text);
    }
    rvi_buf many = {0};
    rvi_tools *t;
    rv_error err = {0};
    rvi_buf_puts(&many, "[");
    for (int i = 0; i <= RVI_MAX_TOOLS; i++)
        rvi_buf_printf(&many, "%s{\"name\":\"t%d\"}", i ? "," : "", i);
    rvi_buf_puts(&many, "]");
    assert_int_not_equal(rvi_tools_new(&t, many.data, many.len, &err), RV_OK);
    assert_non_null(strstr(err.text, "at most 256"));
    rvi_buf_deinit(&many);
}

static void test_choices(void **state)
{
    static const char list[] = "[{\"name\":\"a\"},{\"function\":{\"name\":\"b\",\"parameters\":{"
                               "\"properties\":{\"x\":{}}}}}]";
    static const struct {
        const char *text;
        rvi_choice_kind kind;
        size_t tool;
    } cases[] = {{NULL, RVI_CHOICE_AUTO, 0},
                 {"auto", RVI_CHOICE_AUTO, 0},
                 {"none", RVI_CHOICE_NONE, 0},
                 {"required", RVI_CHOICE_REQUIRED, 0},
                 {"b", RVI_CHOICE_NAMED, 1},
                 {"{\"type\":\"function\",\"function\":{\"name\":\"b\"}}", RVI_CHOICE_NAMED, 1},
                 {"{\"type\":\"function\",\"name\":\"a\"}", RVI_CHOICE_NAMED, 0}};
    rvi_tools *t;
    rvi_tool_choice c;
    (void)state;
    assert_int_equal(rvi_tools_new(&t, list, strlen(list), NULL), RV_OK);
    assert_string_equal(t->items[0].schema, "{\"type\":\"object\",\"additionalProperties\":false}");
    assert_string_equal(t->items[1].schema, "{\"type\":\"object\",\"properties\":{\"x\":{}},"
                                            "\"additionalProperties\":false}");
    for (size_t i = 0; i < RVI_COUNT(cases); i++) {
        assert_int_equal(rvi_choice_read(&c, t, cases[i].text, NULL), RV_OK);
        assert_int_equal(c.kind, cases[i].kind);
        assert_int_equal(c.tool, cases[i].tool);
    }
    assert_int_not_equal(rvi_choice_read(&c, t, "c", NULL), RV_OK);
    assert_int_not_equal(rvi_choice_read(&c, t, "{\"type\":\"function\"}", NULL), RV_OK);
    assert_int_not_equal(rvi_choice_read(&c, NULL, "required", NULL), RV_OK);
    rvi_tools_free(t);
}

static void test_kinds(void **state)
{
    static const struct {
        const char *schema;
        bool text, other;
    } cases[] = {{"{\"type\":\"string\"}", true, false},
                 {"{\"type\":\"integer\"}", false, true},
                 {"{\"type\":[\"string\",\"null\"]}", true, true},
                 {"{\"enum\":[\"a\",\"b\"]}", true, false},
                 {"{\"const\":1}", false, true},
                 {"{\"$ref\":\"#/$defs/s\"}", true, false},
                 {"{\"$ref\":\"#/$defs/none\"}", true, true},
                 {"{\"anyOf\":[{\"type\":\"string\"},{\"$ref\":\"#/$defs/s\"}]}", true, false},
                 {"{}", true, true}};
    static const char root[] = "{\"$defs\":{\"s\":{\"type\":\"string\"}}}";
    (void)state;
    for (size_t i = 0; i < RVI_COUNT(cases); i++) {
        rvi_arena arena = {0};
        const rvi_json *parameters, *schema;
        bool text, other;
        assert_int_equal(rvi_json_parse(&parameters, root, strlen(root), &arena, "", NULL), RV_OK);
        assert_int_equal(
            rvi_json_parse(&schema, cases[i].schema, strlen(cases[i].schema), &arena, "", NULL),
            RV_OK);
        rvi_tool_kinds(parameters, schema, &text, &other);
        if (text != cases[i].text || other != cases[i].other) fail_msg("%s", cases[i].schema);
        rvi_arena_deinit(&arena);
    }
}

#define CALLS(arguments)                                                                           \
    "\"tool_calls\":[{\"id\":\"1\",\"type\":\"function\",\"function\":{\"name\":\"f\","            \
    "\"arguments\":" arguments "}}]"

static void test_conversations(void **state)
{
    static const char talk[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"u\"},{\"role\":\"assistant\"," CALLS(
            "\"{\\\"x\\\":1}\"") "},{\"role\":\"tool\",\"content\":\"r\"},{\"role\":\"tool\","
                                 "\"content\":"
                                 "[{\"type\":\"text\",\"text\":\"s\"}]}],\"tools\":[{\"type\":"
                                 "\"function\",\"function\":{\"name\":\"f\"}}]}";
    static const struct {
        rvi_prompt_way way;
        const char *parts[4];
    } cases[] = {
        {RVI_PROMPT_OBJECTS,
         {"\"arguments\":{\"x\":1}", "\"content\":null", "\"role\":\"tool\"", "\"tools\":[{"}},
        {RVI_PROMPT_TEXTS, {"\"arguments\":\"{\\\"x\\\":1}\"", "\"tools\":[{"}},
        {RVI_PROMPT_IN_SYSTEM,
         {"{\"role\":\"system\",\"content\":\"You can call functions",
          "<tool_call>\\n{\\\"name\\\": \\\"f\\\", \\\"arguments\\\": "
          "{\\\"x\\\":1}}\\n</tool_call>",
          "<tool_response>\\nr\\n</tool_response>\\n<tool_response>\\ns\\n</tool_response>",
          "\"tools\":[]"}},
        {RVI_PROMPT_IN_USER,
         {"{\"role\":\"user\",\"content\":\"You can call functions", "\\n\\nu\""}},
        {RVI_PROMPT_IN_MESSAGE,
         {"some tools.\",\"tools\":\"[{\\\"name\\\":\\\"f\\\"}]\"}",
          "<tool_call>\\n{\\\"name\\\": \\\"f\\\"", "{\"role\":\"tool\",\"content\":\"r\"}",
          "\"tools\":[]"}},
    };
    (void)state;
    for (size_t i = 0; i < RVI_COUNT(cases); i++) {
        rvi_arena arena = {0};
        const rvi_json *json, *out;
        rvi_buf text = {0};
        assert_int_equal(rvi_json_parse(&json, talk, strlen(talk), &arena, "", NULL), RV_OK);
        assert_true(rvi_prompt_has_tools(json));
        assert_int_equal(
            rvi_prompt_adapt(&out, json, cases[i].way, rvi_family_plain(), &arena, NULL), RV_OK);
        rvi_json_write(&text, out);
        rvi_buf_puts(&text, "");
        for (size_t k = 0; k < 4 && cases[i].parts[k]; k++)
            if (!strstr(text.data, cases[i].parts[k]))
                fail_msg("no %s in\n%s", cases[i].parts[k], text.data);
        rvi_buf_deinit(&text);
        rvi_arena_deinit(&arena);
    }
}

static void test_families(void **state)
{
    static const char *const cases[][2] = {
        {"{{ tools }} <tool_call>{\"name\": arguments", "hermes"},
        {"{{ tools }} <tool_call>\\n<function= <parameter= name arguments", "qwen-coder"},
        {"{{ tools }} {\\\"name\\\": x, \\\"parameters\\\": y", "llama"},
        {"{{ tools }} [TOOL_CALLS] [ARGS]", "mistral-args"},
        {"{{ tools }} <|tool|> <|/tool|>", "phi"},
        {"{% if tools %} functools[{", "functools"},
    };
    (void)state;
    for (size_t i = 0; i < RVI_COUNT(cases); i++) {
        const rvi_family *f = rvi_family_find(cases[i][0], strlen(cases[i][0]));
        assert_non_null(f);
        assert_string_equal(f->name, cases[i][1]);
    }
    assert_null(rvi_family_find("<tool_call> name arguments", 26));
    assert_null(rvi_family_find(NULL, 0));
    assert_string_equal(rvi_thinking_find("x</think>", 9)->open, "<think>");
    assert_null(rvi_thinking_find("x", 1));
    for (size_t i = 0; rvi_calls_marker(i); i++) assert_true(strlen(rvi_calls_marker(i)) > 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_tools), cmocka_unit_test(test_choices),
        cmocka_unit_test(test_kinds),     cmocka_unit_test(test_conversations),
        cmocka_unit_test(test_families),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
