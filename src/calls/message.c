/* A whole answer as the fields of an assistant's message. */
#include "calls/reader.h"

typedef struct message {
    rvi_buf text, thought, calls, arguments;
} message;

static bool take(void *ctx, const rvi_reader_event *said)
{
    message *m = ctx;
    switch (said->kind) {
    case RVI_SAID_TEXT: return rvi_buf_append(&m->text, said->text, said->len);
    case RVI_SAID_THOUGHT: return rvi_buf_append(&m->thought, said->text, said->len);
    case RVI_SAID_CALL:
        m->arguments.len = 0;
        return rvi_buf_printf(&m->calls,
                              "%s{\"id\":\"%s\",\"type\":\"function\",\"function\":{\"name\":\"%s\""
                              ",\"arguments\":",
                              said->index ? "," : "", said->id, said->name);
    case RVI_SAID_ARGUMENTS: return rvi_buf_append(&m->arguments, said->text, said->len);
    case RVI_SAID_CALL_END:
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

rv_status rvi_reader_message(const rvi_reader_setup *setup, const char *text, size_t len,
                             rvi_buf *out, rv_error *err)
{
    message m = {0};
    rvi_reader *r;
    rvi_reader_setup own = *setup;
    own.take = take;
    own.ctx = &m;
    rv_status st = rvi_reader_new(&r, &own, err);
    if (!st) st = rvi_reader_push(r, text, len, err);
    if (!st) st = rvi_reader_end(r, err);
    if (!st) write_message(&m, out);
    if (st == RV_E_CANCELLED || (!st && out->failed)) st = rvi_nomem(err, "message");
    rvi_reader_free(r);
    rvi_buf_deinit(&m.text);
    rvi_buf_deinit(&m.thought);
    rvi_buf_deinit(&m.calls);
    rvi_buf_deinit(&m.arguments);
    return st;
}
