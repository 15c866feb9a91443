#include "cli/calls.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"

void cli_calls_rows(cli_calls *c, cli_option *rows)
{
    const cli_option own[] = {
        {"tools", 0, CLI_TEXT, &c->file, NULL},
        {"tool-choice", 0, CLI_TEXT, &c->choice, NULL},
        {"think", 0, CLI_TEXT, &c->think, NULL},
        {"retries", 0, CLI_INT, &c->retries, NULL},
    };
    c->retries = INT_MIN;
    _Static_assert(RVI_COUNT(own) == CLI_CALLS_OPTIONS, "one row each");
    memcpy(rows, own, sizeof own);
}

bool cli_calls_given(const cli_calls *c)
{
    return c->file || c->think || c->retries >= 0;
}

/* 0: not a number of tokens */
static int think_of(const char *text)
{
    char *end;
    errno = 0;
    if (!strcmp(text, "off")) return RV_THINK_OFF;
    long n = strtol(text, &end, 10);
    return errno || end == text || *end || n < 1 || n > INT_MAX ? 0 : (int)n;
}

int cli_calls_check(const cli *c, const cli_calls *calls, const cli_form *form)
{
    if (calls->retries != INT_MIN && (calls->retries < 0 || calls->retries > 100))
        return cli_usage(c, "--retries must be 0..100 (got %d)", calls->retries);
    if (calls->retries >= 0 && !calls->file && !cli_form_given(form))
        return cli_usage(c, "--retries needs something to check: --tools, --schema or the like");
    if (calls->think && !think_of(calls->think))
        return cli_usage(c, "--think must be a number of tokens from 1 on, or off (got '%s')",
                         calls->think);
    if (calls->choice && !calls->file) return cli_usage(c, "--tool-choice needs --tools");
    if (calls->choice && !*calls->choice)
        return cli_usage(c, "--tool-choice must be auto, none, required or a name (got '')");
    return CLI_OK;
}

rv_status cli_calls_open(cli_calls *c, const cli_form *form, const rv_model *m, uint64_t seed,
                         rv_error *err)
{
    rv_tools_options o = {.size = sizeof o, .choice = c->choice, .seed = seed};
    rvi_buf text = {0};
    if (!cli_calls_given(c)) return RV_OK;
    rv_status st = c->file ? cli_read_source(c->file, &c->tools, err) : RV_OK;
    if (!st && c->file && !rvi_buf_puts(&c->tools, "")) st = rvi_nomem(err, "tools");
    if (!st) st = cli_form_read(form, &o.form, &text, err);
    o.tools = c->file ? c->tools.data : NULL;
    o.think = c->think ? think_of(c->think) : 0;
    if (cli_form_given(form)) o.form_text = text.data ? text.data : "";
    o.form_len = text.len;
    o.unheld = c->retries >= 0;
    if (!st) st = rv_tools_new(&c->t, m, &o, err);
    rvi_buf_deinit(&text);
    return st;
}

void cli_calls_close(cli_calls *c)
{
    rv_tools_free(&c->t);
    rvi_buf_deinit(&c->tools);
}

rv_status cli_calls_tell(const cli_calls *c, cli_conversation *talk, rv_error *err)
{
    rv_status st = RV_OK;
    const char *variables = rv_tools_variables(c->t);
    bool silent = c->choice && !strcmp(c->choice, "none");
    if (c->file && !silent) st = cli_conversation_set(talk, "tools", c->tools.data, err);
    if (!st && variables)
        st = cli_conversation_set(talk, "enable_thinking",
                                  strstr(variables, "false") ? "false" : "true", err);
    return st;
}

static void print_call(const rvi_json *call, rvi_buf *out)
{
    const rvi_json *f = rvi_json_get(call, "function");
    const char *arguments = rvi_json_string(rvi_json_get(f, "arguments"), "");
    rvi_buf_printf(out, "{\"id\":\"%s\",\"name\":\"%s\",\"arguments\":",
                   rvi_json_string(rvi_json_get(call, "id"), ""),
                   rvi_json_string(rvi_json_get(f, "name"), ""));
    for (; *arguments; arguments++) /* on one line: line breaks stand between tokens only */
        rvi_buf_putc(out, strchr("\n\r", *arguments) ? ' ' : *arguments);
    rvi_buf_puts(out, "}\n");
}

rv_status cli_calls_print(const rv_checked *checked, rvi_buf *out, rv_error *err)
{
    rvi_arena arena = {0};
    const rvi_json *message;
    rv_status st = rvi_json_parse(&message, checked->message, strlen(checked->message), &arena,
                                  "message", err);
    const rvi_json *calls = st ? NULL : rvi_json_get(message, "tool_calls"),
                   *text = st ? NULL : rvi_json_get(message, "content");
    if (rvi_json_is(text, RVI_JSON_STRING)) {
        rvi_buf_append(out, text->as.string.data, text->as.string.len);
        rvi_buf_putc(out, '\n');
    }
    for (size_t i = 0; i < rvi_json_count(calls); i++) print_call(rvi_json_at(calls, i), out);
    if (!st && out->failed) st = rvi_nomem(err, "answer");
    rvi_arena_deinit(&arena);
    return st;
}
