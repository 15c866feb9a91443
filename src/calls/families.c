#include "calls/families.h"

#include <string.h>

#include "base/compat.h"
#include "base/mem.h"

/* In the order in which they are tried. */
static const rvi_family families[] = {
    {.name = "qwen-coder",
     .marks = {"<tool_call>", "<function=", "<parameter="},
     .body = RVI_CALL_TAGS,
     .open = "<tool_call>\n<function=",
     .middle = ">\n",
     .key_open = "<parameter=",
     .key_close = ">\n",
     .value_end = "\n</parameter>\n",
     .close = "</function>\n</tool_call>",
     .between = "\n"},
    {.name = "seed",
     .marks = {"<seed:tool_call>", "<function=", "<parameter="},
     .body = RVI_CALL_TAGS,
     .open = "<seed:tool_call>\n<function=",
     .middle = ">\n",
     .key_open = "<parameter=",
     .key_close = ">",
     .value_end = "</parameter>\n",
     .close = "</function>\n</seed:tool_call>",
     .between = "\n"},
    {.name = "glm",
     .marks = {"<tool_call>", "<arg_key>", "<arg_value>"},
     .body = RVI_CALL_TAGS,
     .open = "<tool_call>",
     .middle = "\n",
     .key_open = "<arg_key>",
     .key_close = "</arg_key>\n<arg_value>",
     .value_end = "</arg_value>\n",
     .close = "</tool_call>",
     .between = "\n"},
    {.name = "minimax",
     .marks = {"<minimax:tool_call>", "<invoke name=", "<parameter name="},
     .body = RVI_CALL_TAGS,
     .section_open = "<minimax:tool_call>\n",
     .open = "<invoke name=\"",
     .middle = "\">\n",
     .key_open = "<parameter name=\"",
     .key_close = "\">",
     .value_end = "</parameter>\n",
     .close = "</invoke>\n",
     .section_close = "</minimax:tool_call>"},
    {.name = "hermes",
     .marks = {"<tool_call>", "name", "arguments"},
     .body = RVI_CALL_OBJECT,
     .open = "<tool_call>\n",
     .arguments = "arguments",
     .close = "\n</tool_call>",
     .between = "\n"},
    {.name = "functionary",
     .marks = {"<function=", "</function>"},
     .body = RVI_CALL_NAMED,
     .open = "<function=",
     .middle = ">",
     .close = "</function>"},
    {.name = "mistral-id",
     .marks = {"[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"},
     .body = RVI_CALL_NAMED,
     .open = "[TOOL_CALLS]",
     .middle = "[CALL_ID]" RVI_CALL_ID "[ARGS]"},
    {.name = "mistral-args",
     .marks = {"[TOOL_CALLS]", "[ARGS]"},
     .body = RVI_CALL_NAMED,
     .open = "[TOOL_CALLS]",
     .middle = "[ARGS]"},
    {.name = "mistral",
     .marks = {"[TOOL_CALLS]"},
     .body = RVI_CALL_OBJECT,
     .section_open = "[TOOL_CALLS][",
     .arguments = "arguments",
     .with_id = true,
     .between = ", ",
     .section_close = "]"},
    {.name = "deepseek-r1",
     .marks = {"<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "```json"},
     .body = RVI_CALL_NAMED,
     .section_open = "<｜tool▁calls▁begin｜>",
     .open = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
     .middle = "\n```json\n",
     .close = "\n```<｜tool▁call▁end｜>",
     .between = "\n",
     .section_close = "<｜tool▁calls▁end｜>"},
    {.name = "deepseek",
     .marks = {"<｜tool▁call▁begin｜>", "<｜tool▁sep｜>"},
     .body = RVI_CALL_NAMED,
     .section_open = "<｜tool▁calls▁begin｜>",
     .open = "<｜tool▁call▁begin｜>",
     .middle = "<｜tool▁sep｜>",
     .close = "<｜tool▁call▁end｜>",
     .section_close = "<｜tool▁calls▁end｜>"},
    {.name = "kimi",
     .marks = {"<|tool_calls_section_begin|>", "<|tool_call_argument_begin|>"},
     .body = RVI_CALL_NAMED,
     .section_open = "<|tool_calls_section_begin|>",
     .open = "<|tool_call_begin|>functions.",
     .middle = ":" RVI_CALL_NUMBER "<|tool_call_argument_begin|>",
     .close = "<|tool_call_end|>",
     .section_close = "<|tool_calls_section_end|>"},
    {.name = "lfm",
     .marks = {"<|tool_call_start|>["},
     .body = RVI_CALL_PYTHON,
     .section_open = "<|tool_call_start|>[",
     .middle = "(",
     .close = ")",
     .between = ", ",
     .section_close = "]<|tool_call_end|>"},
    {.name = "lfm",
     .marks = {"<|tool_list_start|>"},
     .body = RVI_CALL_PYTHON,
     .section_open = "<|tool_call_start|>[",
     .middle = "(",
     .close = ")",
     .between = ", ",
     .section_close = "]<|tool_call_end|>"},
    {.name = "phi",
     .marks = {"<|tool|>", "<|/tool|>"},
     .body = RVI_CALL_OBJECT,
     .section_open = "<|tool_call|>[",
     .arguments = "arguments",
     .between = ", ",
     .section_close = "]<|/tool_call|>",
     .in_message = true},
    {.name = "functools",
     .marks = {"functools[", "if tools"},
     .body = RVI_CALL_OBJECT,
     .section_open = "functools[",
     .arguments = "arguments",
     .between = ", ",
     .section_close = "]",
     .texts = true},
    {.name = "granite",
     .marks = {"<|tool_call|>"},
     .body = RVI_CALL_OBJECT,
     .section_open = "<|tool_call|>[",
     .arguments = "arguments",
     .between = ", ",
     .section_close = "]"},
    {.name = "llama",
     .marks = {"{\"name\": ", "\"parameters\": "},
     .body = RVI_CALL_OBJECT,
     .arguments = "parameters",
     .single = true},
};

static const rvi_thinking thoughts[] = {
    {"<think>", "</think>"},           {"[THINK]", "[/THINK]"},
    {"<seed:think>", "</seed:think>"}, {"<|begin_of_thought|>", "<|end_of_thought|>"},
    {"<thinking>", "</thinking>"},     {"<reasoning>", "</reasoning>"},
};

static const char *const markers[] = {
    "<tool_call>",
    "</tool_call>",
    "<seed:tool_call>",
    "</seed:tool_call>",
    "<minimax:tool_call>",
    "</minimax:tool_call>",
    "[TOOL_CALLS]",
    "[CALL_ID]",
    "[ARGS]",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁calls▁end｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁sep｜>",
    "<|tool_calls_section_begin|>",
    "<|tool_calls_section_end|>",
    "<|tool_call_begin|>",
    "<|tool_call_end|>",
    "<|tool_call_argument_begin|>",
    "<|tool_call_start|>",
    "<|tool_call|>",
    "<|/tool_call|>",
    "<think>",
    "</think>",
    "[THINK]",
    "[/THINK]",
    "<seed:think>",
    "</seed:think>",
    "<|begin_of_thought|>",
    "<|end_of_thought|>",
};

static bool contains(const char *text, size_t len, const char *part)
{
    size_t n = strlen(part);
    for (size_t i = 0; i + n <= len; i++)
        if (text[i] == *part && !memcmp(text + i, part, n)) return true;
    return false;
}

/* As it stands, or with the quotes escaped as in a text of the template. */
static bool mentions(const char *text, size_t len, const char *mark)
{
    char escaped[64];
    rvi_buf b = rvi_buf_over(escaped, sizeof escaped);
    for (const char *c = mark; *c; c++) {
        if (*c == '"') rvi_buf_putc(&b, '\\');
        rvi_buf_putc(&b, *c);
    }
    bool found = contains(text, len, mark) || (!b.failed && contains(text, len, b.data));
    rvi_buf_deinit(&b);
    return found;
}

static bool fits(const rvi_family *f, const char *text, size_t len)
{
    for (size_t i = 0; i < RVI_COUNT(f->marks) && f->marks[i]; i++)
        if (!mentions(text, len, f->marks[i])) return false;
    return true;
}

const rvi_family *rvi_family_find(const char *template_text, size_t len)
{
    if (!template_text || !contains(template_text, len, "tools")) return NULL;
    for (size_t i = 0; i < RVI_COUNT(families); i++)
        if (fits(&families[i], template_text, len)) return &families[i];
    return NULL;
}

const rvi_family *rvi_family_plain(void)
{
    static const char name[] = "hermes";
    for (size_t i = 0; i < RVI_COUNT(families); i++)
        if (!strcmp(families[i].name, name)) return &families[i];
    return NULL;
}

size_t rvi_family_count(void)
{
    return RVI_COUNT(families);
}

const rvi_family *rvi_family_at(size_t i)
{
    return &families[i];
}

size_t rvi_family_trigger(const rvi_family *f, char *out, size_t size)
{
    size_t n = 0;
    for (int part = 0; part < 2; part++)
        for (const char *c = part ? f->open : f->section_open; c && *c && n + 1 < size; c++) {
            out[n++] = *c;
            if (strchr(">]={", *c)) {
                out[n] = 0;
                return n;
            }
        }
    out[n] = 0;
    return n;
}

const rvi_thinking *rvi_thinking_find(const char *template_text, size_t len)
{
    for (size_t i = 0; i < RVI_COUNT(thoughts); i++)
        if (template_text && contains(template_text, len, thoughts[i].close)) return &thoughts[i];
    return NULL;
}

const char *rvi_calls_marker(size_t i)
{
    return i < RVI_COUNT(markers) ? markers[i] : NULL;
}
