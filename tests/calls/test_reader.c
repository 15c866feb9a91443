/* What models write, read back: every family's calls, thoughts, what is no call; the same for any
 * pieces. Texts that follow a family's grammar at random are always read as whole calls. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "calls/notation.h"
#include "calls/reader.h"
#include "grammar/grammar.h"
#include "grammar/vocab_fixture.h"

static const char tools_text[] = "[{\"type\":\"function\",\"function\":{\"name\":\"weather\","
                                 "\"description\":\"d\",\"parameters\":{"
                                 "\"type\":\"object\",\"properties\":{\"city\":{\"type\":"
                                 "\"string\",\"maxLength\":12},\"days\":{\"type\":"
                                 "\"integer\",\"minimum\":1,\"maximum\":14},\"unit\":{\"enum\":["
                                 "\"C\",\"F\",null]}},\"required\":["
                                 "\"city\"]}}},{\"type\":\"function\",\"function\":{\"name\":"
                                 "\"stop_it\",\"parameters\":{\"type\":"
                                 "\"object\",\"properties\":{\"why\":{\"$ref\":\"#/$defs/"
                                 "w\"},\"list\":{\"type\":\"array\",\"items\":{\"type\":"
                                 "\"boolean\"},\"maxItems\":3}},\"required\":[\"list\"],\"$defs\":{"
                                 "\"w\":{\"type\":\"string\",\"maxLength\":5}}"
                                 "}}},{\"type\":\"function\",\"function\":{\"name\":\"now\"}}]";

static const rvi_thinking think = {"<think>", "</think>"};

/* Everything that was said, as one text: pieces of the same kind are joined. */
typedef struct heard {
    rvi_buf log;
    int last;
    size_t n_calls, n_whole;
} heard;

static bool hear(void *ctx, const rvi_reader_event *said)
{
    static const char *const names[] = {"text", "thought", "call", "arguments", "end"};
    heard *h = ctx;
    bool joins = said->kind != RVI_SAID_CALL && said->kind != RVI_SAID_CALL_END;
    if (!joins || h->last != (int)said->kind)
        rvi_buf_printf(&h->log, "%s%s:", h->log.len ? "|" : "", names[said->kind]);
    h->last = (int)said->kind;
    if (said->kind == RVI_SAID_CALL) {
        assert_int_equal(strlen(said->id), RVI_CALL_ID_LEN);
        assert_int_equal(said->index, h->n_calls++);
        rvi_buf_puts(&h->log, said->name);
    } else if (said->kind == RVI_SAID_CALL_END) {
        rvi_buf_puts(&h->log, said->complete ? "whole" : "cut");
        h->n_whole += said->complete;
    } else {
        assert_true(said->len);
        rvi_buf_append(&h->log, said->text, said->len);
    }
    return true;
}

/* pieces: 0 at once, otherwise a seed for their sizes. */
static void listen(const rvi_reader_setup *how, const char *text, size_t len, uint64_t pieces,
                   heard *h)
{
    rvi_reader *r;
    rvi_rng rng;
    rvi_reader_setup setup = *how;
    *h = (heard){.last = -1};
    setup.take = hear;
    setup.ctx = h;
    rng.state = pieces;
    assert_int_equal(rvi_reader_new(&r, &setup, NULL), RV_OK);
    for (size_t at = 0; at < len;) {
        size_t n = pieces ? 1 + rvi_rng_u64(&rng) % (pieces % 3 ? 3 : 17) : len;
        n = RVI_MIN(n, len - at);
        assert_int_equal(rvi_reader_push(r, text + at, n, NULL), RV_OK);
        at += n;
    }
    assert_int_equal(rvi_reader_end(r, NULL), RV_OK);
    assert_int_equal(rvi_reader_calls(r), h->n_calls);
    rvi_reader_free(r);
    rvi_buf_puts(&h->log, "");
}

static void same_in_pieces(const rvi_reader_setup *setup, const char *text, size_t len,
                           const char *whole)
{
    for (uint64_t seed = 1; seed <= 8; seed++) {
        heard h;
        listen(setup, text, len, seed, &h);
        if (strcmp(h.log.data, whole) != 0)
            fail_msg("in pieces (%d): %s\n at once: %s\n of: %.*s", (int)seed, h.log.data, whole,
                     (int)len, text);
        rvi_buf_deinit(&h.log);
    }
}

static const rvi_family *family(const char *name)
{
    for (size_t i = 0; i < rvi_family_count(); i++)
        if (!strcmp(rvi_family_at(i)->name, name)) return rvi_family_at(i);
    fail_msg("no family %s", name);
    return NULL;
}

static const struct {
    const char *family, *text, *said;
    bool opened;
} cases[] = {
    {"hermes", "Hi there.\n", "text:Hi there.\n", false},
    {"hermes", "", "", false},
    {"hermes",
     "Let me see.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Par}is\"}}\n"
     "</tool_call>",
     "text:Let me see.|call:weather|arguments:{\"city\": \"Par}is\"}|end:whole", false},
    {"hermes",
     "<tool_call>{\"name\":\"now\",\"arguments\":{}}</tool_call>\n<tool_call>\n{\"name\": "
     "\"weather\", \"arguments\": {\"city\": \"\\\"\"}}\n</tool_call>\n",
     "call:now|arguments:{}|end:whole|call:weather|arguments:{\"city\": \"\\\"\"}|end:whole",
     false},
    {"hermes", "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"P",
     "call:weather|arguments:{\"city\": \"P|end:cut", false},
    {"hermes", "a <tool_call> is a tag", "text:a <tool_call> is a tag", false},
    {"hermes", "<tool_call>\n{\"name\": \"nobody\", \"arguments\": {}}\n</tool_call>",
     "text:<tool_call>\n{\"name\": \"nobody\", \"arguments\": {}}\n</tool_call>", false},
    {"hermes", "x <tool_ca", "text:x <tool_ca", false},
    {"hermes", "<think>\nhm </th\n</think>\n\nYes.", "thought:hm </th|text:Yes.", false},
    {"hermes", "hm\n</think>\n\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>",
     "thought:hm|call:now|arguments:{}|end:whole", true},
    {"hermes", "hm, cut", "thought:hm, cut", true},
    {"llama", "{\"name\": \"now\", \"parameters\": {}}", "call:now|arguments:{}|end:whole", false},
    {"llama", "I {think}", "text:I {think}", false},
    {"llama", "{\"a\": 1}", "text:{\"a\": 1}", false},
    {"mistral",
     "[TOOL_CALLS][{\"name\": \"now\", \"arguments\": {}, \"id\": \"abcdefghi\"}, {\"name\": "
     "\"weather\", \"arguments\": {\"city\": \"x\"}, \"id\": \"abcdefgh2\"}]",
     "call:now|arguments:{}|end:whole|call:weather|arguments:{\"city\": \"x\"}|end:whole", false},
    {"mistral-id",
     "[TOOL_CALLS]now[CALL_ID]abcdefghi[ARGS]{}[TOOL_CALLS]now[CALL_ID]123456789[ARGS]{}",
     "call:now|arguments:{}|end:whole|call:now|arguments:{}|end:whole", false},
    {"mistral-args", "Hm. [TOOL_CALLS]now[ARGS]{}", "text:Hm.|call:now|arguments:{}|end:whole",
     false},
    {"functionary", "<function=now>{}</function><function=weather>{\"city\":\"a\"}</function>",
     "call:now|arguments:{}|end:whole|call:weather|arguments:{\"city\":\"a\"}|end:whole", false},
    {"qwen-coder",
     "<tool_call>\n<function=weather>\n<parameter=city>\nA "
     "\"b\"\nc\n</parameter>\n<parameter=days>\n3\n"
     "</parameter>\n<parameter=unit>\nC\n</parameter>\n</function>\n</tool_call>",
     "call:weather|arguments:{\"city\": \"A \\\"b\\\"\\nc\", \"days\": 3, \"unit\": "
     "\"C\"}|end:whole",
     false},
    {"qwen-coder", "<tool_call>\n<function=now>\n</function>\n</tool_call>",
     "call:now|arguments:{}|end:whole", false},
    {"glm", "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>x</arg_value>\n</tool_call>",
     "call:weather|arguments:{\"city\": \"x\"}|end:whole", false},
    {"minimax",
     "<minimax:tool_call>\n<invoke name=\"weather\">\n<parameter name=\"city\">x</parameter>\n"
     "<parameter name=\"unit\">null</parameter>\n</invoke>\n</minimax:tool_call>",
     "call:weather|arguments:{\"city\": \"x\", \"unit\": null}|end:whole", false},
    {"lfm",
     "<|tool_call_start|>[weather(city=\"a, b)\", days=2), stop_it(list=[True, "
     "False])]<|tool_call_end|>ok",
     "call:weather|arguments:{\"city\": \"a, b)\", \"days\": 2}|end:whole|call:stop_it|arguments:{"
     "\"list\": [true, false]}|end:whole|text:ok",
     false},
    {"kimi",
     "<|tool_calls_section_begin|><|tool_call_begin|>functions.now:0<|tool_call_argument_begin|>{}"
     "<|tool_call_end|><|tool_calls_section_end|>",
     "call:now|arguments:{}|end:whole", false},
    {"deepseek-r1",
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```<"
     "｜tool▁call▁"
     "end｜><｜tool▁calls▁end｜>",
     "call:now|arguments:{}|end:whole", false},
    {"phi", "<|tool_call|>[{\"name\": \"now\", \"arguments\": {}}]<|/tool_call|>",
     "call:now|arguments:{}|end:whole", false},
    {"phi", "<|tool_call|>[{\"name\": \"now\", \"arguments\": {}}]", /* the end is left out */
     "call:now|arguments:{}|end:whole", false},
    {"functools",
     "Wait. functools[{\"name\": \"now\", \"arguments\": {}}, {\"name\": \"weather\", "
     "\"arguments\": {\"city\": \"]\"}}]",
     "text:Wait.|call:now|arguments:{}|end:whole|call:weather|arguments:{\"city\": "
     "\"]\"}|end:whole",
     false},
    {"functools", "functools has a cache", "text:functools has a cache", false},
};

static void test_cases(void **state)
{
    rvi_tools *tools;
    (void)state;
    assert_int_equal(rvi_tools_new(&tools, tools_text, strlen(tools_text), NULL), RV_OK);
    for (size_t i = 0; i < RVI_COUNT(cases); i++) {
        rvi_reader_setup setup = {.family = family(cases[i].family),
                                  .tools = tools,
                                  .thinking = &think,
                                  .opened = cases[i].opened,
                                  .seed = i};
        heard h;
        listen(&setup, cases[i].text, strlen(cases[i].text), 0, &h);
        if (strcmp(h.log.data, cases[i].said) != 0)
            fail_msg("%s: %s\n      said: %s\n  expected: %s", cases[i].family, cases[i].text,
                     h.log.data, cases[i].said);
        same_in_pieces(&setup, cases[i].text, strlen(cases[i].text), h.log.data);
        rvi_buf_deinit(&h.log);
    }
    rvi_tools_free(tools);
}

/* Every prefix of a text is read the same in pieces, and nothing is told twice. */
static void test_prefixes(void **state)
{
    rvi_tools *tools;
    (void)state;
    assert_int_equal(rvi_tools_new(&tools, tools_text, strlen(tools_text), NULL), RV_OK);
    for (size_t i = 0; i < RVI_COUNT(cases); i++)
        for (size_t n = 0; n < strlen(cases[i].text); n++) {
            rvi_reader_setup setup = {.family = family(cases[i].family),
                                      .tools = tools,
                                      .thinking = &think,
                                      .opened = cases[i].opened};
            heard h;
            listen(&setup, cases[i].text, n, 0, &h);
            same_in_pieces(&setup, cases[i].text, n, h.log.data);
            rvi_buf_deinit(&h.log);
        }
    rvi_tools_free(tools);
}

/* ---- texts made by the grammar ---- */

/* Follows the grammar at random; false: the text became too long. */
static bool write_at_random(rvi_grammar *g, rvi_rng *rng, rvi_buf *out)
{
    uint32_t at = rvi_grammar_start(g), next;
    for (int i = 0; i < 400 && at; i++) {
        if (rvi_grammar_complete(g, at)) return true;
        if (rvi_grammar_ends(g, at) && rvi_rng_u64(rng) % 12 == 0) return true;
        if (rvi_rng_u64(rng) % 24 == 0 && i > 30) {
            bool found;
            assert_int_equal(rvi_grammar_finish(g, at, out, &found, NULL), RV_OK);
            return found;
        }
        for (int tries = 0;; tries++) {
            char c = tries < 400 ? "\"{}[]:,<>/=\n abcC1tT_"[rvi_rng_u64(rng) % 21]
                                 : (char)(rvi_rng_u64(rng) % 95 + 32);
            if (tries > 4000) c = (char)rvi_rng_u64(rng);
            assert_int_equal(rvi_grammar_text(g, at, &c, 1, &next, NULL), RV_OK);
            if (!next) continue;
            rvi_buf_putc(out, c);
            at = next;
            break;
        }
    }
    return false;
}

static void check_arguments(const heard *h, const rvi_vocab *vocab, const rvi_tools *tools)
{
    for (const char *s = strstr(h->log.data, "call:"); s; s = strstr(s + 5, "|call:")) {
        const char *name = s + (*s == '|' ? 6 : 5), *args = strstr(name, "|arguments:");
        assert_non_null(args);
        const rvi_tool *tool = rvi_tools_find(tools, name, (size_t)(args - name));
        const char *end = args + 11, *more;
        while ((more = strstr(end, "|end:"))) { /* the last before the next call */
            end = more;
            if (!strncmp(more, "|end:whole|call:", 16) || !more[10]) break;
            end = more + 1;
        }
        rvi_grammar *g;
        uint32_t at;
        assert_non_null(tool);
        assert_int_equal(
            rvi_grammar_schema(&g, vocab, tool->schema, strlen(tool->schema), NULL, NULL), RV_OK);
        args += 11;
        assert_int_equal(
            rvi_grammar_text(g, rvi_grammar_start(g), args, (size_t)(end - args), &at, NULL),
            RV_OK);
        if (!rvi_grammar_ends(g, at))
            fail_msg("%s: not by the schema of %s", h->log.data, tool->name);
        rvi_grammar_free(g);
        s = end - 1;
    }
}

static void test_grammars(void **state)
{
    rvi_tools *tools;
    rvi_vocab *vocab;
    size_t n_calls = 0;
    (void)state;
    assert_int_equal(rvi_tools_new(&tools, tools_text, strlen(tools_text), NULL), RV_OK);
    assert_int_equal(rvi_vocab_new(&vocab, FIXTURE_SIZE, fixture_piece, NULL, NULL), RV_OK);
    for (size_t i = 0; i < rvi_family_count(); i++) {
        rvi_notation n = {.tools = tools, .family = rvi_family_at(i)};
        for (int kind = 0; kind < 4; kind++) {
            static const rvi_tool_choice choices[] = {{RVI_CHOICE_AUTO, 0},
                                                      {RVI_CHOICE_REQUIRED, 0},
                                                      {RVI_CHOICE_NAMED, 1},
                                                      {RVI_CHOICE_REQUIRED, 0}};
            rvi_buf text = {0};
            rvi_grammar *g;
            rv_error err = {0};
            rvi_rng rng;
            rvi_grammar_options how = {.max_blanks = 1, .canonical = true};
            n.choice = choices[kind];
            n.thinking = kind == 3 ? &think : NULL;
            n.one_call = kind == 2;
            assert_int_equal(rvi_notation_write(&text, &n, &err), RV_OK);
            if (rvi_grammar_gbnf(&g, vocab, text.data, text.len, &how, &err))
                fail_msg("%s: %s\n%s", n.family->name, err.text, text.data);
            rvi_buf_deinit(&text);
            rng.state = i * 10 + (uint64_t)kind;
            for (int k = 0; k < 12; k++) {
                rvi_reader_setup setup = {
                    .family = n.family, .tools = tools, .thinking = n.thinking, .seed = 7};
                rvi_buf out = {0};
                heard h;
                if (write_at_random(g, &rng, &out)) {
                    listen(&setup, out.data ? out.data : "", out.len, 0, &h);
                    rvi_buf_puts(&out, "");
                    if (h.n_whole != h.n_calls || (kind && !h.n_calls) ||
                        (kind == 2 && h.n_calls != 1))
                        fail_msg("%s (%d): %s\n%s", n.family->name, kind, out.data, h.log.data);
                    check_arguments(&h, vocab, tools);
                    same_in_pieces(&setup, out.data, out.len, h.log.data);
                    n_calls += h.n_calls;
                    rvi_buf_deinit(&h.log);
                }
                rvi_buf_deinit(&out);
            }
            rvi_grammar_free(g);
        }
    }
    assert_true(n_calls > 300);
    rvi_vocab_free(vocab);
    rvi_tools_free(tools);
}

static void test_message(void **state)
{
    static const char text[] = "a<think>b</think>";
    static const char call[] =
        "<think>b</think>c<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
    rvi_tools *tools;
    rvi_buf out = {0};
    (void)state;
    assert_int_equal(rvi_tools_new(&tools, tools_text, strlen(tools_text), NULL), RV_OK);
    rvi_reader_setup setup = {.family = family("hermes"), .tools = tools, .thinking = &think};
    assert_int_equal(rvi_reader_message(&setup, text, strlen(text), &out, NULL), RV_OK);
    assert_string_equal(out.data, "{\"content\":\"a<think>b</think>\"}");
    out.len = 0;
    assert_int_equal(rvi_reader_message(&setup, call, strlen(call), &out, NULL), RV_OK);
    const char *rest = strstr(out.data, "\",\"type\"");
    assert_non_null(rest);
    assert_string_equal(
        rest, "\",\"type\":\"function\",\"function\":{\"name\":\"now\",\"arguments\":\"{}\"}}]}");
    assert_non_null(strstr(
        out.data, "{\"content\":\"c\",\"reasoning_content\":\"b\",\"tool_calls\":[{\"id\":\""));
    rvi_buf_deinit(&out);
    rvi_tools_free(tools);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_prefixes),
        cmocka_unit_test(test_grammars),
        cmocka_unit_test(test_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
