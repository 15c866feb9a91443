#include "server/anthropic.h"

#include <stdio.h>
#include <string.h>

#include "server/messages.h"
#include "server/quick.h"
#include "server/reply.h"

/* ---- errors ---- */

static const char *type_of(int status)
{
    switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 413: return "request_too_large";
    case 429: return "rate_limit_error";
    case 503: return "overloaded_error";
    default: return status < 500 ? "invalid_request_error" : "api_error";
    }
}

static void write_problem(const rvi_problem *p, rvi_buf *out)
{
    rvi_buf_printf(out, "{\"type\":\"error\",\"error\":{\"type\":\"%s\"", type_of(p->status));
    rvi_put_member(out, "message", p->message);
    if (p->code) rvi_put_member(out, "code", p->code);
    rvi_buf_puts(out, "}}");
}

const rvi_dialect rvi_anthropic = {write_problem, "event: error\ndata: ", "\n\n", "request-id"};

/* ---- the request ---- */

/* Thoughts of earlier turns are no part of the conversation. */
static const rvi_parts_rule user_rule = {"messages", " text ", ""},
                            own_rule = {"messages", " text ", " thinking redacted_thinking "},
                            system_rule = {"system", " text ", ""};

static bool read_system(const rvi_json *body, rvi_messages *m, rvi_problem *p)
{
    const rvi_json *v = rvi_json_get(body, "system");
    rvi_buf text = {0};
    if (!v || rvi_json_is(v, RVI_JSON_NULL)) return true;
    bool ok = rvi_messages_content(&system_rule, "system", v, &text, p);
    if (ok && text.len) rvi_messages_add(m, "system", &text, NULL);
    rvi_buf_deinit(&text);
    return ok;
}

/* The last message, if it is the assistant's, is what the answer begins with. */
static bool read_message(const rvi_json *v, size_t i, bool last, rvi_messages *m, rvi_buf *begun,
                         rvi_problem *p)
{
    const rvi_json *role = rvi_json_get(v, "role");
    bool own = rvi_json_is_string(role, "assistant");
    rvi_buf text = {0};
    char place[64];
    if (!own && !rvi_json_is_string(role, "user") && !rvi_json_is_string(role, "system"))
        return rvi_problem_set(p, 400, "invalid_value", "messages",
                               "messages[%zu].role must be user or assistant", i);
    snprintf(place, sizeof place, "messages[%zu].content", i);
    bool ok = rvi_messages_content(own ? &own_rule : &user_rule, place, rvi_json_get(v, "content"),
                                   &text, p);
    if (ok && own && last && begun)
        rvi_buf_append(begun, text.len ? text.data : "", text.len);
    else if (ok)
        rvi_messages_add(m, rvi_json_string(role, ""), &text, NULL);
    rvi_buf_deinit(&text);
    return ok;
}

/* begun NULL: the last message is like any other. */
static bool read_messages(const rvi_json *body, rvi_buf *chat, rvi_buf *question, rvi_buf *begun,
                          rvi_problem *p)
{
    const rvi_json *list = rvi_json_get(body, "messages");
    size_t n = rvi_json_count(list);
    if (!rvi_json_is(list, RVI_JSON_ARRAY) || !n)
        return rvi_problem_set(p, 400, "missing_field", "messages",
                               "messages must be a list of at least one message");
    rvi_messages m = rvi_messages_begin(chat, question);
    if (!read_system(body, &m, p)) return false;
    for (size_t i = 0; i < n; i++)
        if (!read_message(rvi_json_at(list, i), i, i + 1 == n, &m, begun, p)) return false;
    return rvi_messages_end(&m, p);
}

/* ---- the answer ---- */

/* What was reused is not among the input tokens, but beside them. */
static void put_usage(const rvi_call *k, rvi_buf *out)
{
    rvi_usage u = rvi_call_usage(k);
    rvi_buf_printf(out,
                   ",\"usage\":{\"input_tokens\":%ld,\"cache_creation_input_tokens\":0,"
                   "\"cache_read_input_tokens\":%ld,\"output_tokens\":%ld}",
                   u.prompt - u.cached, u.cached, u.generated);
}

/* ,"stop_reason":...,"stop_sequence":... of a choice that has ended */
static void put_stop(const rvi_call *k, rvi_buf *out)
{
    const rvi_choice *c = &k->choices[0];
    bool by_string = c->finish == RV_FINISH_STOP;
    rvi_put_member(out, "stop_reason",
                   by_string                       ? "stop_sequence"
                   : c->finish == RV_FINISH_LENGTH ? "max_tokens"
                                                   : "end_turn");
    rvi_put_member(out, "stop_sequence", by_string ? k->wish.stops[c->stop] : NULL);
}

/* The message up to its content. */
static void open_message(const rvi_call *k, rvi_buf *out)
{
    rvi_buf_printf(out, "{\"id\":\"%s\",\"type\":\"message\",\"role\":\"assistant\"", k->id);
    rvi_put_member(out, "model", k->s->name);
    rvi_buf_printf(out, ",\"learned_version\":%llu,\"content\":[", (unsigned long long)k->learned);
}

static void tell(const rvi_call *k, const char *name, rvi_buf *json)
{
    rvi_reply_event(k->conn, name, json);
}

/* When the size of the prompt is known. */
static void send_start(rvi_call *k)
{
    rvi_buf json = {0};
    if (k->choices[0].begun) return;
    k->choices[0].begun = true;
    rvi_buf_puts(&json, "{\"type\":\"message_start\",\"message\":");
    open_message(k, &json);
    rvi_buf_puts(&json, "],\"stop_reason\":null,\"stop_sequence\":null");
    put_usage(k, &json);
    rvi_buf_puts(&json, "}}");
    tell(k, "message_start", &json);
    rvi_buf_puts(&json, "{\"type\":\"content_block_start\",\"index\":0,"
                        "\"content_block\":{\"type\":\"text\",\"text\":\"\"}}");
    tell(k, "content_block_start", &json);
}

static void begin(rvi_call *k)
{
    if (k->wish.stream) rvi_conn_stream(k->conn, "text/event-stream; charset=utf-8", true);
}

static void on_token(rvi_call *k, int choice, const rv_service_event *e)
{
    rvi_buf json = {0};
    (void)choice;
    if (!k->wish.stream || !e->text_len) return;
    send_start(k);
    rvi_buf_puts(&json, "{\"type\":\"content_block_delta\",\"index\":0,"
                        "\"delta\":{\"type\":\"text_delta\",\"text\":");
    rvi_json_write_string(&json, e->text, e->text_len);
    rvi_buf_puts(&json, "}}");
    tell(k, "content_block_delta", &json);
}

static void end_stream(rvi_call *k)
{
    rvi_buf json = {0};
    send_start(k);
    rvi_buf_puts(&json, "{\"type\":\"content_block_stop\",\"index\":0}");
    tell(k, "content_block_stop", &json);
    rvi_buf_puts(&json, "{\"type\":\"message_delta\",\"delta\":{\"container\":null");
    put_stop(k, &json);
    rvi_buf_putc(&json, '}');
    put_usage(k, &json);
    rvi_buf_putc(&json, '}');
    tell(k, "message_delta", &json);
    rvi_buf_puts(&json, "{\"type\":\"message_stop\"}");
    tell(k, "message_stop", &json);
    rvi_conn_end(k->conn);
}

static void end(rvi_call *k)
{
    rvi_buf out = {0};
    if (k->wish.stream) {
        end_stream(k);
        return;
    }
    open_message(k, &out);
    rvi_buf_puts(&out, "{\"type\":\"text\",\"text\":");
    rvi_put_buf(&out, &k->choices[0].text);
    rvi_buf_puts(&out, "}]");
    put_stop(k, &out);
    put_usage(k, &out);
    rvi_buf_putc(&out, '}');
    rvi_reply_json(&rvi_anthropic, k->conn, &out);
}

static const rvi_writer writer = {&rvi_anthropic, begin, on_token, NULL, end, NULL};

void rvi_anthropic_messages(rvi_serving *s, rvi_conn *c)
{
    rvi_buf begun = {0};
    rvi_call *k = rvi_call_new(s, c, &writer, RVI_FOR_MESSAGES, "msg_");
    if (!k) return;
    if (!rvi_json_get(k->body, "max_tokens"))
        (void)rvi_problem_set(&k->problem, 400, "missing_field", "max_tokens",
                              "max_tokens is missing");
    else if (read_messages(k->body, &k->chat, &k->question, &begun, &k->problem))
        (void)rvi_call_submit_chat(k, &begun);
    rvi_buf_deinit(&begun);
    rvi_call_start(k);
}

/* ---- counting ---- */

static bool count(const rvi_quick *q, rvi_buf *out, rvi_problem *p)
{
    rvi_wish wish;
    rvi_buf chat = {0}, question = {0}, ignored = {0};
    size_t n = 0;
    bool ok = rvi_wish_read(&wish, RVI_FOR_MESSAGES, q->body, q->arena, &ignored, p) &&
              read_messages(q->body, &chat, &question, NULL, p) &&
              rvi_quick_count(q->s, &chat, &n, p);
    rvi_buf_printf(out, "{\"input_tokens\":%zu}", n);
    rvi_buf_deinit(&chat);
    rvi_buf_deinit(&question);
    rvi_buf_deinit(&ignored);
    return ok;
}

void rvi_anthropic_count(rvi_serving *s, rvi_conn *c)
{
    rvi_quick_answer(s, c, &rvi_anthropic, count);
}
