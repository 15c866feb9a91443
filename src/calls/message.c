/* A whole answer as the fields of an assistant's message; one that was held to nothing is mended
 * and checked. */
#include <string.h>

#include "calls/reader.h"
#include "calls/validate.h"
#include "text/repair.h"

typedef struct message {
    rvi_buf text, thought, calls, arguments;
    const rvi_check *check; /* NULL: it is taken as it is */
    rvi_buf *problem;       /* what is wrong first */
    bool unreadable;        /* a call has no arguments that could be read */
    size_t n_calls;
    rv_status st;
    rv_error *err;
} message;

/* ---- checking ---- */

static bool out_of_memory(message *m)
{
    m->st = rvi_nomem(m->err, "message");
    return false;
}

/* The arguments of a call mended, and judged by its tool's schema. */
static bool check_arguments(message *m, const char *name, bool complete)
{
    const rvi_tool *tool = rvi_tools_find(m->check->reader.tools, name, strlen(name));
    const rvi_tool_choice *choice = &m->check->choice;
    rvi_buf mended = {0}, why = {0};
    rv_error no_json = {0};
    rv_status st = rvi_json_repair(m->arguments.data ? m->arguments.data : "", m->arguments.len,
                                   &mended, NULL, NULL, &no_json);
    if (st == RV_E_CONFIG || !complete) {
        m->unreadable = true;
        rvi_buf_puts(&why, complete ? "they are no JSON object." : "the call was not ended.");
        st = RV_OK;
    } else if (!st) {
        m->arguments.len = 0;
        rvi_buf_append(&m->arguments, mended.data, mended.len);
        st = rvi_validate_json(tool->schema, strlen(tool->schema), mended.data, mended.len, &why,
                               m->err);
    } else if (m->err) {
        *m->err = no_json;
    }
    bool first = !m->problem->len && !st;
    if (first && why.len)
        rvi_buf_printf(m->problem, "The arguments of %s are wrong: %.*s", name, (int)why.len,
                       why.data);
    else if (first && choice->kind == RVI_CHOICE_NAMED &&
             tool != &m->check->reader.tools->items[choice->tool])
        rvi_buf_printf(m->problem, "The tool %s must be called, not %s.",
                       m->check->reader.tools->items[choice->tool].name, name);
    else if (first && m->check->one_call && m->n_calls > 1)
        rvi_buf_puts(m->problem, "Only one call at a time is allowed.");
    rvi_buf_deinit(&mended);
    rvi_buf_deinit(&why);
    if (st) m->st = st;
    return !st && (!m->problem->failed || out_of_memory(m));
}

static void name_tools(const message *m)
{
    const rvi_tools *tools = m->check->reader.tools;
    for (size_t i = 0; i < tools->n; i++)
        rvi_buf_printf(m->problem, "%s%s", i ? ", " : " ", tools->items[i].name);
    rvi_buf_putc(m->problem, '.');
}

/* What looks like a call and was not read as one. */
static bool holds_call(const message *m)
{
    const rvi_family *f = m->check->reader.family;
    char trigger[64];
    size_t len = f ? rvi_family_trigger(f, trigger, sizeof trigger) : 0, at = 0;
    if (!f || !m->text.data) return false;
    if (len) {
        for (; at + len <= m->text.len; at++)
            if (!memcmp(m->text.data + at, trigger, len)) return true;
        return false;
    }
    while (at < m->text.len && strchr(" \t\r\n", m->text.data[at])) at++;
    return at < m->text.len && m->text.data[at] == '{' && m->check->form.kind == RVI_FORM_TEXT;
}

static rv_status check_text(message *m, rv_error *err)
{
    const rvi_check *c = m->check;
    bool must = c->choice.kind == RVI_CHOICE_REQUIRED || c->choice.kind == RVI_CHOICE_NAMED;
    rv_status st = RV_OK;
    if (m->n_calls || m->problem->len) return RV_OK;
    if (holds_call(m)) {
        rvi_buf_puts(m->problem, "A call could not be read. It must name one of these tools:");
        name_tools(m);
    } else if (must) {
        rvi_buf_puts(m->problem, "A tool must be called:");
        name_tools(m);
    } else if (c->form.kind != RVI_FORM_TEXT) {
        rvi_buf meant = {0};
        st = rvi_validate_form(&c->form, m->text.data ? m->text.data : "", m->text.len, &meant,
                               m->problem, err);
        if (!st && meant.len) {
            m->text.len = 0;
            rvi_buf_append(&m->text, meant.data, meant.len);
        }
        rvi_buf_deinit(&meant);
    }
    return st || !m->problem->failed ? st : rvi_nomem(err, "message");
}

rv_status rvi_check_ready(const rvi_check *c, rv_error *err)
{
    rv_status st = c->form.kind == RVI_FORM_TEXT ? RV_OK : rvi_validate_ready(&c->form, err);
    for (size_t i = 0; !st && c->reader.tools && i < c->reader.tools->n; i++) {
        const rvi_tool *tool = &c->reader.tools->items[i];
        rv_error own = {0};
        rvi_checked_form schema = {RVI_FORM_SCHEMA, tool->schema, strlen(tool->schema)};
        st = rvi_validate_ready(&schema, &own);
        if (st == RV_E_NOMEM) return rvi_nomem(err, "tools");
        if (st)
            st = rvi_error(err, st, "tools[%zu].function.parameters (%s): %s", i, tool->name,
                           own.text);
    }
    return st;
}

/* ---- writing ---- */

static bool take(void *ctx, const rvi_reader_event *said)
{
    message *m = ctx;
    switch (said->kind) {
    case RVI_SAID_TEXT: return rvi_buf_append(&m->text, said->text, said->len);
    case RVI_SAID_THOUGHT: return rvi_buf_append(&m->thought, said->text, said->len);
    case RVI_SAID_CALL:
        m->arguments.len = 0;
        m->n_calls++;
        return rvi_buf_printf(&m->calls,
                              "%s{\"id\":\"%s\",\"type\":\"function\",\"function\":{\"name\":\"%s\""
                              ",\"arguments\":",
                              said->index ? "," : "", said->id, said->name);
    case RVI_SAID_ARGUMENTS: return rvi_buf_append(&m->arguments, said->text, said->len);
    case RVI_SAID_CALL_END:
        if (m->check && !check_arguments(m, said->name, said->complete)) return false;
        rvi_json_write_string(&m->calls, m->arguments.data ? m->arguments.data : "",
                              m->arguments.len);
        return rvi_buf_puts(&m->calls, "}}");
    }
    return false;
}

static void write_message(const message *m, rvi_buf *out)
{
    rvi_buf_puts(out, "{\"content\":");
    if (m->text.len)
        rvi_json_write_string(out, m->text.data, m->text.len);
    else
        rvi_buf_puts(out, "null");
    if (m->thought.len) {
        rvi_buf_puts(out, ",\"reasoning_content\":");
        rvi_json_write_string(out, m->thought.data, m->thought.len);
    }
    if (m->calls.len)
        rvi_buf_printf(out, ",\"tool_calls\":[%.*s]", (int)m->calls.len, m->calls.data);
    rvi_buf_putc(out, '}');
}

static rv_status read_answer(message *m, const rvi_reader_setup *setup, const char *text,
                             size_t len, rvi_buf *out, rv_error *err)
{
    rvi_reader *r;
    rvi_reader_setup own = *setup;
    rv_error why = {0}; /* of a check, which ends the reading */
    own.take = take;
    own.ctx = m;
    m->err = &why;
    rv_status st = rvi_reader_new(&r, &own, err);
    if (!st) st = rvi_reader_push(r, text, len, err);
    if (!st) st = rvi_reader_end(r, err);
    if (!st && m->check) st = check_text(m, err);
    if (!st) write_message(m, out);
    if (st == RV_E_CANCELLED && m->st) {
        st = m->st;
        if (err) *err = why;
    } else if (st == RV_E_CANCELLED || (!st && (out->failed || m->text.failed))) {
        st = rvi_nomem(err, "message");
    }
    rvi_reader_free(r);
    return st;
}

static void drop(message *m)
{
    rvi_buf_deinit(&m->text);
    rvi_buf_deinit(&m->thought);
    rvi_buf_deinit(&m->calls);
    rvi_buf_deinit(&m->arguments);
}

rv_status rvi_reader_message(const rvi_reader_setup *setup, const char *text, size_t len,
                             rvi_buf *out, rv_error *err)
{
    message m = {0};
    rv_status st = read_answer(&m, setup, text, len, out, err);
    drop(&m);
    return st;
}

/* ---- telling the model ---- */

static void write_problem(const message *m, const char *then, rvi_buf *out)
{
    rvi_buf text = {0};
    rvi_buf_append(&text, m->problem->data, m->problem->len);
    rvi_buf_puts(&text, then);
    rvi_json_write_string(out, text.data ? text.data : "", text.len);
    out->failed = out->failed || text.failed;
    rvi_buf_deinit(&text);
}

/* Calls that could be read come back as calls, each with the problem as its result; anything else
 * as the text that it is, with an answer of the user. */
static rv_status write_turns(const message *m, const char *text, size_t len, const char *fields,
                             rvi_buf *out, rv_error *err)
{
    rvi_arena arena = {0};
    const rvi_json *said = NULL;
    rv_status st = rvi_json_parse(&said, fields, strlen(fields), &arena, "message", err);
    const rvi_json *calls = st ? NULL : rvi_json_get(said, "tool_calls");
    bool as_calls = calls && !m->unreadable;
    rvi_buf_puts(out, "[{\"role\":\"assistant\",");
    if (as_calls) {
        rvi_buf_puts(out, fields + 1);
    } else {
        rvi_buf_puts(out, "\"content\":");
        rvi_json_write_string(out, text, len);
        rvi_buf_puts(out, "},{\"role\":\"user\",\"content\":");
        write_problem(m,
                      m->check->form.kind == RVI_FORM_TEXT
                          ? " Answer again, with this put right."
                          : " Write the whole answer again with this put right, and nothing else.",
                      out);
        rvi_buf_putc(out, '}');
    }
    for (size_t i = 0; as_calls && i < rvi_json_count(calls); i++) {
        const rvi_json *call = rvi_json_at(calls, i);
        rvi_buf_printf(out, ",{\"role\":\"tool\",\"tool_call_id\":\"%s\",\"name\":\"%s\",",
                       rvi_json_string(rvi_json_get(call, "id"), ""),
                       rvi_json_string(rvi_json_get(rvi_json_get(call, "function"), "name"), ""));
        rvi_buf_puts(out, "\"content\":");
        write_problem(m, " Call it again, with this put right.", out);
        rvi_buf_putc(out, '}');
    }
    rvi_buf_putc(out, ']');
    rvi_arena_deinit(&arena);
    return st || !out->failed ? st : rvi_nomem(err, "message");
}

rv_status rvi_check_answer(const rvi_check *c, const char *text, size_t len, rvi_checked *out,
                           rv_error *err)
{
    message m = {.check = c, .problem = &out->problem};
    rv_status st = read_answer(&m, &c->reader, text, len, &out->message, err);
    if (!st && out->problem.len)
        st = write_turns(&m, text, len, out->message.data, &out->turns, err);
    drop(&m);
    return st;
}

void rvi_checked_deinit(rvi_checked *c)
{
    rvi_buf_deinit(&c->message);
    rvi_buf_deinit(&c->problem);
    rvi_buf_deinit(&c->turns);
}
