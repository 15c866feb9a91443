/* Every allocation of reading tools, writing their grammar, reading answers, checking and mending
 * them fails once: an error each time, and nothing leaks (the sanitizer pass watches). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "calls/prompt.h"
#include "calls/validate.h"
#include "harness/alloc_sweep.h"

static const char tools_text[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"weather\",\"description\":\"d\","
    "\"parameters\":{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\"},\"unit\":{"
    "\"enum\":[\"C\",\"F\"]}},\"required\":[\"city\"]}}},{\"type\":\"function\",\"function\":{"
    "\"name\":\"now\"}}]";

static const rvi_thinking think = {"<think>", "</think>"};

/* One answer of each way to write calls, with a thought and text before it. */
static const struct {
    const char *family, *text;
} answers[] = {
    {"hermes",
     "<think>hm</think>Well. <tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"a\","
     "}}\n</tool_call>\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": 5}}\n"
     "</tool_call>"},
    {"mistral", "[TOOL_CALLS][{\"name\": \"now\", \"arguments\": {}, \"id\": \"abcdefghi\"}]"},
    {"qwen-coder",
     "<tool_call>\n<function=weather>\n<parameter=city>\nParis\n</parameter>\n<parameter=unit>\nK\n"
     "</parameter>\n</function>\n</tool_call>"},
    {"lfm", "<|tool_call_start|>[weather(city=\"a\", unit=\"C\")]<|tool_call_end|>"},
    {"hermes", "<tool_call>\n{\"name\": \"nobody\", \"arguments\": {}}\n</tool_call>"},
    {"hermes", "{\"a\": [1, 2, 'x'"},
};

static const rvi_family *family(const char *name)
{
    for (size_t i = 0; i < rvi_family_count(); i++)
        if (!strcmp(rvi_family_at(i)->name, name)) return rvi_family_at(i);
    fail_msg("no family %s", name);
    return NULL;
}

static rv_status whole_life(size_t which, rv_error *err)
{
    static const char schema[] = "{\"type\":\"object\",\"required\":[\"a\",\"b\"]}";
    rvi_tools *tools = NULL;
    rvi_buf grammar = {0}, message = {0};
    rvi_checked checked = {0};
    rv_status st = rvi_tools_new(&tools, tools_text, sizeof tools_text - 1, err);
    rvi_check check = {.reader = {.family = family(answers[which].family),
                                  .tools = tools,
                                  .thinking = &think,
                                  .seed = 1},
                       .form = {RVI_FORM_SCHEMA, schema, sizeof schema - 1}};
    rvi_notation n = {.tools = tools,
                      .family = check.reader.family,
                      .thinking = &think,
                      .form = RVI_FORM_SCHEMA,
                      .form_text = schema,
                      .form_len = sizeof schema - 1};
    const char *text = answers[which].text;
    if (!st) st = rvi_choice_read(&n.choice, tools, "{\"function\":{\"name\":\"now\"}}", err);
    if (!st) st = rvi_notation_write(&grammar, &n, err);
    if (!st) st = rvi_reader_message(&check.reader, text, strlen(text), &message, err);
    if (!st) st = rvi_check_ready(&check, err);
    if (!st) st = rvi_check_answer(&check, text, strlen(text), &checked, err);
    rvi_checked_deinit(&checked);
    rvi_buf_deinit(&message);
    rvi_buf_deinit(&grammar);
    rvi_tools_free(tools);
    return st;
}

static rv_status adapting(size_t way, rv_error *err)
{
    static const char talk[] =
        "{\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"now\"}}],\"messages\":[{"
        "\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":\"u\"},{\"role\":"
        "\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"a\",\"type\":\"function\","
        "\"function\":{\"name\":\"now\",\"arguments\":\"{}\"}}]},{\"role\":\"tool\",\"content\":"
        "\"12:30\",\"tool_call_id\":\"a\"}]}";
    rvi_arena arena = {0};
    const rvi_json *json, *out;
    rv_status st = rvi_json_parse(&json, talk, sizeof talk - 1, &arena, "talk", err);
    if (!st)
        st = rvi_prompt_adapt(&out, json, (rvi_prompt_way)way, rvi_family_plain(), &arena, err);
    rvi_arena_deinit(&arena);
    return st;
}

static void calls(void **state)
{
    (void)state;
    for (size_t i = 0; i < RVI_COUNT(answers); i++) {
        assert_true(alloc_sweep(whole_life, i, false) > 30);
        assert_true(alloc_sweep(whole_life, i, true) > 30);
    }
}

static void prompts(void **state)
{
    (void)state;
    for (size_t way = 0; way <= RVI_PROMPT_IN_MESSAGE; way++)
        assert_true(alloc_sweep(adapting, way, true));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(calls), cmocka_unit_test(prompts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
