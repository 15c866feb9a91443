#include "server/anthropic.h"

#include <stdio.h>
#include <string.h>

#include "server/messages.h"
#include "server/quick.h"
#include "server/reply.h"
#include "server/tools.h"

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
    case 504: return "timeout_error";
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

bool rvi_anthropic_asks(const rvi_conn *c)
{
    return c->in.state != RVI_HTTP_BAD && rvi_http_header_get(&c->in, "anthropic-version");
}

/* ---- the request ---- */

static const rvi_parts_rule system_rule = {"system", " text ", ""};

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

/* ---- blocks of a message ---- */

typedef struct reading {
    rvi_messages *m;
    rvi_problem *p;
    char place[64]; /* of the message */
    bool own;
    rvi_buf text, thought; /* since the last other block */
    size_t n_texts;
} reading;

static void flush(reading *r)
{
    if (r->n_texts || r->thought.len)
        rvi_messages_add(r->m, r->own ? "assistant" : "user", &r->text, NULL);
    rvi_messages_thought(r->m, &r->thought);
    rvi_buf_deinit(&r->text);
    r->text = (rvi_buf){0};
    r->n_texts = 0;
}

static bool read_use(reading *r, const rvi_json *v, size_t i)
{
    const rvi_json *input = rvi_json_get(v, "input");
    const char *id = rvi_json_string(rvi_json_get(v, "id"), NULL),
               *name = rvi_json_string(rvi_json_get(v, "name"), NULL);
    if (!r->own || !id || !name || !rvi_json_is(input, RVI_JSON_OBJECT))
        return rvi_problem_set(r->p, 400, "invalid_value", "messages",
                               "%s[%zu]: a tool_use is the assistant's, and has id, name and input",
                               r->place, i);
    flush(r);
    rvi_messages_call(r->m, id, name, input);
    return true;
}

static bool read_result(reading *r, const rvi_json *v, size_t i)
{
    static const rvi_parts_rule rule = {"messages", " text ", ""};
    const rvi_json *content = rvi_json_get(v, "content");
    const char *id = rvi_json_string(rvi_json_get(v, "tool_use_id"), NULL);
    char place[96];
    rvi_buf text = {0};
    if (r->own || !id)
        return rvi_problem_set(r->p, 400, "invalid_value", "messages",
                               "%s[%zu]: a tool_result is the user's, and has a tool_use_id",
                               r->place, i);
    snprintf(place, sizeof place, "%s[%zu].content", r->place, i);
    bool ok = !content || rvi_json_is(content, RVI_JSON_NULL) ||
              rvi_messages_content(&rule, place, content, &text, r->p);
    flush(r);
    if (ok) rvi_messages_result(r->m, id, &text);
    rvi_buf_deinit(&text);
    return ok;
}

static bool read_block(reading *r, const rvi_json *v, size_t i)
{
    const rvi_json *type = rvi_json_get(v, "type"), *text = rvi_json_get(v, "text");
    if (rvi_json_is_string(type, "tool_use")) return read_use(r, v, i);
    if (rvi_json_is_string(type, "tool_result")) return read_result(r, v, i);
    if (r->own && rvi_json_is_string(type, "thinking")) {
        rvi_buf_puts(&r->thought, rvi_json_string(rvi_json_get(v, "thinking"), ""));
        return true;
    }
    if (r->own && rvi_json_is_string(type, "redacted_thinking")) return true;
    if (!rvi_json_is_string(type, "text") || !rvi_json_is(text, RVI_JSON_STRING))
        return rvi_problem_set(r->p, 400, "unsupported_content", "messages",
                               "%s[%zu]: blocks are text, tool_use and tool_result (got '%.40s')",
                               r->place, i, rvi_json_string(type, ""));
    if (r->n_texts++) rvi_buf_putc(&r->text, '\n');
    rvi_buf_append(&r->text, text->as.string.data, text->as.string.len);
    return true;
}

static bool read_blocks(reading *r, const rvi_json *content)
{
    if (rvi_json_is(content, RVI_JSON_STRING)) {
        rvi_buf_append(&r->text, content->as.string.data, content->as.string.len);
        r->n_texts = 1;
        return true;
    }
    if (!rvi_json_is(content, RVI_JSON_ARRAY))
        return rvi_problem_set(r->p, 400, "invalid_type", "messages",
                               "%s must be a string or a list of blocks", r->place);
    for (size_t i = 0; i < rvi_json_count(content); i++)
        if (!read_block(r, rvi_json_at(content, i), i)) return false;
    return true;
}

/* The text of the last message, if it is the assistant's, is what the answer begins with. */
static bool read_message(const rvi_json *v, size_t i, bool last, rvi_messages *m, rvi_buf *begun,
                         rvi_problem *p)
{
    const rvi_json *role = rvi_json_get(v, "role");
    reading r = {.m = m, .p = p, .own = rvi_json_is_string(role, "assistant")};
    bool system = rvi_json_is_string(role, "system");
    if (!r.own && !rvi_json_is_string(role, "user") && !system)
        return rvi_problem_set(p, 400, "invalid_value", "messages",
                               "messages[%zu].role must be user or assistant", i);
    snprintf(r.place, sizeof r.place, "messages[%zu].content", i);
    bool ok = read_blocks(&r, rvi_json_get(v, "content"));
    if (ok && r.own && last && begun)
        rvi_buf_append(begun, r.text.len ? r.text.data : "", r.text.len);
    else if (ok && system)
        rvi_messages_add(m, "system", &r.text, NULL);
    else if (ok)
        flush(&r);
    rvi_buf_deinit(&r.text);
    rvi_buf_deinit(&r.thought);
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

/* ---- tools and thinking ---- */

static bool read_tools(const rvi_json *body, rvi_tools_wish *w, rvi_problem *p)
{
    const rvi_json *tools = rvi_json_get(body, "tools");
    if (!tools || rvi_json_is(tools, RVI_JSON_NULL)) return true;
    if (!rvi_json_is(tools, RVI_JSON_ARRAY))
        return rvi_problem_set(p, 400, "invalid_type", "tools", "tools must be a list");
    for (size_t i = 0; i < rvi_json_count(tools); i++) {
        const rvi_json *t = rvi_json_at(tools, i), *type = rvi_json_get(t, "type");
        if (type && !rvi_json_is(type, RVI_JSON_NULL) && !rvi_json_is_string(type, "custom"))
            return rvi_problem_set(p, 400, "unsupported_parameter", "tools",
                                   "tools[%zu]: '%.60s' runs at Anthropic, not here", i,
                                   rvi_json_string(type, ""));
        rvi_tools_add(w, rvi_json_get(t, "name"), rvi_json_get(t, "description"),
                      rvi_json_get(t, "input_schema"));
    }
    return true;
}

static bool read_choice(const rvi_json *body, rvi_tools_wish *w, rvi_problem *p)
{
    const rvi_json *choice = rvi_json_get(body, "tool_choice"),
                   *type = rvi_json_get(choice, "type");
    if (!choice || rvi_json_is(choice, RVI_JSON_NULL)) return true;
    w->one_call = rvi_json_bool(rvi_json_get(choice, "disable_parallel_tool_use"), false);
    if (rvi_json_is_string(type, "any"))
        rvi_buf_puts(&w->choice, "required");
    else if (rvi_json_is_string(type, "auto") || rvi_json_is_string(type, "none"))
        rvi_buf_puts(&w->choice, rvi_json_string(type, ""));
    else if (rvi_json_is_string(type, "tool"))
        rvi_buf_puts(&w->choice, rvi_json_string(rvi_json_get(choice, "name"), "?"));
    else
        return rvi_problem_set(p, 400, "invalid_value", "tool_choice",
                               "tool_choice.type must be auto, any, tool or none");
    return true;
}

/* Who does not ask for thoughts gets none. */
static bool read_thinking(rvi_call *k, int *think)
{
    const rvi_json *v = rvi_json_get(k->body, "thinking"), *type = rvi_json_get(v, "type");
    int64_t budget = rvi_json_int(rvi_json_get(v, "budget_tokens"), 0);
    *think = RV_THINK_OFF;
    if (!v || rvi_json_is(v, RVI_JSON_NULL) || rvi_json_is_string(type, "disabled")) return true;
    if (!rvi_json_is_string(type, "enabled") && !rvi_json_is_string(type, "adaptive"))
        return rvi_problem_set(&k->problem, 400, "invalid_value", "thinking",
                               "thinking.type must be enabled, adaptive or disabled");
    if (budget < 0 || budget > INT32_MAX || (!budget && rvi_json_is_string(type, "enabled")))
        return rvi_problem_set(&k->problem, 400, "value_out_of_range", "thinking",
                               "thinking.budget_tokens must be 1 or more");
    *think = (int)budget;
    return k->s->thinks || k->s->server->llama.on || rvi_tools_no_thoughts(k, "thinking");
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
                   : rvi_items_call(&c->said)      ? "tool_use"
                                                   : "end_turn");
    rvi_put_member(out, "stop_sequence", by_string ? k->wish.stops[c->stop] : NULL);
}

/* The message up to its content. */
static void open_message(const rvi_call *k, rvi_buf *out)
{
    rvi_buf_printf(out, "{\"id\":\"%s\",\"type\":\"message\",\"role\":\"assistant\"", k->id);
    rvi_put_member(out, "model", k->model);
    rvi_call_put_state(k, out);
    rvi_buf_puts(out, ",\"content\":[");
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
}

static void begin(rvi_call *k)
{
    if (k->wish.stream) rvi_conn_stream(k->conn, "text/event-stream; charset=utf-8", true);
}

/* What a block says, streamed: nothing yet; or whole. */
static void put_block(const rvi_answer_item *item, bool whole, rvi_buf *out)
{
    const rvi_buf none = {0}, *text = whole ? &item->text : &none;
    switch (item->kind) {
    case RV_SAID_THOUGHT:
        rvi_buf_puts(out, "{\"type\":\"thinking\",\"thinking\":");
        rvi_put_buf(out, text);
        rvi_buf_puts(out, ",\"signature\":\"\"}");
        break;
    case RV_SAID_CALL:
        rvi_buf_puts(out, "{\"type\":\"tool_use\"");
        rvi_put_member(out, "id", item->id.data);
        rvi_put_member(out, "name", item->name.data);
        rvi_buf_puts(out, ",\"input\":");
        if (whole)
            rvi_items_put_arguments(item, out);
        else
            rvi_buf_puts(out, "{}");
        rvi_buf_putc(out, '}');
        break;
    default:
        rvi_buf_puts(out, "{\"type\":\"text\",\"text\":");
        rvi_put_buf(out, text);
        rvi_buf_putc(out, '}');
    }
}

static void put_delta(const rvi_answer_item *item, const char *text, size_t len, rvi_buf *out)
{
    const char *type = item->kind == RV_SAID_THOUGHT ? "thinking"
                       : item->kind == RV_SAID_CALL  ? "input_json"
                                                     : "text";
    rvi_buf_printf(out, "{\"type\":\"%s_delta\",\"%s\":", type,
                   item->kind == RV_SAID_CALL ? "partial_json" : type);
    rvi_json_write_string(out, text, len);
    rvi_buf_putc(out, '}');
}

static void on_said(rvi_call *k, int choice, const rvi_answer_item *item, rvi_item_event event,
                    const char *text, size_t len)
{
    static const char *const names[] = {"content_block_start", "content_block_delta",
                                        "content_block_stop"};
    rvi_buf json = {0};
    (void)choice;
    if (!k->wish.stream) return;
    send_start(k);
    rvi_buf_printf(&json, "{\"type\":\"%s\",\"index\":%d", names[event], item->index);
    if (event == RVI_ITEM_BEGINS) {
        rvi_buf_puts(&json, ",\"content_block\":");
        put_block(item, false, &json);
    } else if (event == RVI_ITEM_GOES_ON) {
        rvi_buf_puts(&json, ",\"delta\":");
        put_delta(item, text, len, &json);
    }
    rvi_buf_putc(&json, '}');
    tell(k, names[event], &json);
}

static void end_stream(rvi_call *k)
{
    rvi_buf json = {0};
    rvi_buf_puts(&json, "{\"type\":\"message_delta\",\"delta\":{\"container\":null");
    put_stop(k, &json);
    rvi_buf_putc(&json, '}');
    put_usage(k, &json);
    rvi_call_put_end(k, &json);
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
    for (int i = 0; i < k->choices[0].said.n; i++) {
        if (i) rvi_buf_putc(&out, ',');
        put_block(&k->choices[0].said.list[i], true, &out);
    }
    rvi_buf_putc(&out, ']');
    if (k->choices[0].text.failed) out.failed = true;
    put_stop(k, &out);
    put_usage(k, &out);
    rvi_buf_putc(&out, '}');
    rvi_reply_json(&rvi_anthropic, k->conn, &out);
}

static const rvi_writer writer = {&rvi_anthropic, begin, NULL, NULL, end, NULL, on_said, NULL};

void rvi_anthropic_messages(rvi_serving *s, rvi_conn *c)
{
    rvi_tools_wish w = {0};
    rvi_call *k = rvi_call_new(s, c, &writer, RVI_FOR_MESSAGES, "msg_");
    if (!k) return;
    if (!rvi_json_get(k->body, "max_tokens"))
        (void)rvi_problem_set(&k->problem, 400, "missing_field", "max_tokens",
                              "max_tokens is missing");
    else if (read_messages(k->body, &k->chat, &k->question, &k->begun, &k->problem) &&
             read_tools(k->body, &w, &k->problem) && read_choice(k->body, &w, &k->problem) &&
             read_thinking(k, &w.think)) {
        w.bare = k->begun.len;
        if (rvi_tools_open(k, &w)) (void)rvi_call_submit_chat(k);
    }
    rvi_tools_drop(&w);
    rvi_call_start(k);
}

/* ---- counting ---- */

static bool count(const rvi_quick *q, rvi_buf *out, rvi_problem *p)
{
    rvi_wish wish;
    rvi_buf chat = {0}, question = {0}, ignored = {0};
    rvi_tools_wish w = {0};
    size_t n = 0;
    bool ok = rvi_wish_read(&wish, RVI_FOR_MESSAGES, q->body, q->arena, &ignored, p) &&
              read_messages(q->body, &chat, &question, NULL, p) && read_tools(q->body, &w, p);
    if (ok) rvi_tools_tell(&w, &chat);
    ok = ok && rvi_quick_count(q->s, &chat, &n, p);
    rvi_tools_drop(&w);
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
