/* /v1/responses: one answer as an object or as its events. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "server/openai.h"
#include "server/timings.h"
#include "server/tools.h"

typedef struct response {
    int n_events;
    bool store;
} response;

/* ---- the object ---- */

/* ,"name": the body's own value, or what is usual */
static void put_own(const rvi_call *k, const char *name, const char *usual, rvi_buf *out)
{
    const rvi_json *v = rvi_json_get(k->body, name);
    rvi_buf_printf(out, ",\"%s\":", name);
    if (v && !rvi_json_is(v, RVI_JSON_NULL))
        rvi_json_write(out, v);
    else
        rvi_buf_puts(out, usual);
}

static const char *const prefixes[] = {
    [RV_SAID_TEXT] = "msg", [RV_SAID_THOUGHT] = "rs", [RV_SAID_CALL] = "fc"};

/* The item's id: the answer's, and its number. */
static void put_id(const rvi_call *k, const rvi_answer_item *item, rvi_buf *out)
{
    rvi_buf_printf(out, "\"%s_%s_%d\"", prefixes[item->kind], k->id + strlen("resp_"), item->index);
}

static void put_part(const rvi_answer_item *item, const rvi_buf *text, rvi_buf *out)
{
    bool thought = item->kind == RV_SAID_THOUGHT;
    rvi_buf_puts(out, thought ? "{\"type\":\"reasoning_text\",\"text\":"
                              : "{\"type\":\"output_text\",\"text\":");
    rvi_put_buf(out, text);
    rvi_buf_puts(out, thought ? "}" : ",\"annotations\":[],\"logprobs\":[]}");
}

static void put_item(const rvi_call *k, const rvi_answer_item *item, const char *status,
                     rvi_buf *out)
{
    static const char *const types[] = {[RV_SAID_TEXT] = "message",
                                        [RV_SAID_THOUGHT] = "reasoning",
                                        [RV_SAID_CALL] = "function_call"};
    bool over = strcmp(status, "in_progress");
    rvi_buf_printf(out, "{\"type\":\"%s\",\"id\":", types[item->kind]);
    put_id(k, item, out);
    rvi_buf_printf(out, ",\"status\":\"%s\"", status);
    if (item->kind == RV_SAID_CALL) {
        const rvi_buf none = {0};
        rvi_put_member(out, "call_id", item->id.data);
        rvi_put_member(out, "name", item->name.data);
        rvi_buf_puts(out, ",\"arguments\":");
        rvi_put_buf(out, over ? &item->text : &none);
        rvi_buf_putc(out, '}');
        return;
    }
    rvi_buf_puts(out, item->kind == RV_SAID_TEXT ? ",\"role\":\"assistant\"" : ",\"summary\":[]");
    rvi_buf_puts(out, ",\"content\":[");
    if (over) put_part(item, &item->text, out);
    rvi_buf_puts(out, "]}");
}

static void put_output(const rvi_call *k, const char *status, rvi_buf *out)
{
    const rvi_choice *c = &k->choices[0];
    for (int i = 0; i < c->said.n; i++) {
        if (i) rvi_buf_putc(out, ',');
        put_item(k, &c->said.list[i], i + 1 < c->said.n ? "completed" : status, out);
    }
    if (c->text.failed) out->failed = true;
}

static const char *status_of(const rvi_call *k)
{
    return k->choices[0].finish == RV_FINISH_LENGTH ? "incomplete" : "completed";
}

static void put_usage(const rvi_call *k, rvi_buf *out)
{
    rvi_usage u = rvi_call_usage(k);
    rvi_buf_printf(out,
                   ",\"usage\":{\"input_tokens\":%ld,\"input_tokens_details\":{\"cached_tokens\":"
                   "%ld,\"cache_write_tokens\":0},\"output_tokens\":%ld,\"output_tokens_details\":"
                   "{\"reasoning_tokens\":0},\"total_tokens\":%ld}",
                   u.prompt, u.cached, u.generated, u.prompt + u.generated);
}

static void put_response(const rvi_call *k, const char *status, rvi_buf *out)
{
    const response *r = k->own;
    bool over = strcmp(status, "in_progress"), cut = !strcmp(status, "incomplete");
    rvi_buf_printf(out,
                   "{\"id\":\"%s\",\"object\":\"response\",\"created_at\":%ld,"
                   "\"status\":\"%s\",\"background\":false,\"error\":null",
                   k->id, k->created, status);
    rvi_put_member(out, "model", k->model);
    rvi_call_put_state(k, out);
    rvi_buf_puts(out, ",\"incomplete_details\":");
    rvi_buf_puts(out, cut ? "{\"reason\":\"max_output_tokens\"}" : "null");
    if (over) rvi_buf_printf(out, ",\"completed_at\":%ld", (long)time(NULL));
    rvi_buf_puts(out, ",\"output\":[");
    if (over) put_output(k, status, out);
    rvi_buf_puts(out, "],\"truncation\":\"disabled\"");
    put_own(k, "reasoning", "{\"effort\":null,\"summary\":null}", out);
    put_own(k, "tools", "[]", out);
    put_own(k, "tool_choice", "\"auto\"", out);
    rvi_buf_printf(out, ",\"store\":%s", r->store ? "true" : "false");
    put_own(k, "instructions", "null", out);
    put_own(k, "max_output_tokens", "null", out);
    put_own(k, "metadata", "{}", out);
    put_own(k, "parallel_tool_calls", "true", out);
    put_own(k, "previous_response_id", "null", out);
    put_own(k, "temperature", "null", out);
    put_own(k, "top_p", "null", out);
    put_own(k, "text", "{\"format\":{\"type\":\"text\"}}", out);
    put_own(k, "user", "null", out);
    if (over)
        put_usage(k, out);
    else
        rvi_buf_puts(out, ",\"usage\":null");
    rvi_buf_putc(out, '}');
}

/* ---- events ---- */

/* {"type":name,"sequence_number":n, and the caller's members; the caller sends it. */
static void open_event(rvi_call *k, const char *name, rvi_buf *json)
{
    response *r = k->own;
    rvi_buf_printf(json, "{\"type\":\"%s\",\"sequence_number\":%d", name, r->n_events++);
}

static void send_event(rvi_call *k, const char *name, rvi_buf *json)
{
    rvi_buf_putc(json, '}');
    rvi_reply_event(k->conn, name, json);
}

static void send_response(rvi_call *k, const char *name, const char *status)
{
    rvi_buf json = {0};
    open_event(k, name, &json);
    rvi_buf_puts(&json, ",\"response\":");
    put_response(k, status, &json);
    if (k->s->server->llama.on && strcmp(status, "in_progress")) rvi_timings_put(k, 0, &json);
    send_event(k, name, &json);
}

static void send_item(rvi_call *k, const rvi_answer_item *item, const char *name,
                      const char *status)
{
    rvi_buf json = {0};
    open_event(k, name, &json);
    rvi_buf_printf(&json, ",\"output_index\":%d,\"item\":", item->index);
    put_item(k, item, status, &json);
    send_event(k, name, &json);
}

/* An event about an item, or the one part of its text. */
static void open_about(rvi_call *k, const rvi_answer_item *item, const char *name, rvi_buf *json)
{
    open_event(k, name, json);
    rvi_buf_puts(json, ",\"item_id\":");
    put_id(k, item, json);
    rvi_buf_printf(json, ",\"output_index\":%d", item->index);
    if (item->kind != RV_SAID_CALL) rvi_buf_puts(json, ",\"content_index\":0");
}

static void send_part(rvi_call *k, const rvi_answer_item *item, const char *name,
                      const rvi_buf *text)
{
    rvi_buf json = {0};
    open_about(k, item, name, &json);
    rvi_buf_puts(&json, ",\"part\":");
    put_part(item, text, &json);
    send_event(k, name, &json);
}

static void begin(rvi_call *k)
{
    if (!k->wish.stream) return;
    rvi_conn_stream(k->conn, "text/event-stream; charset=utf-8", true);
    send_response(k, "response.created", "in_progress");
    send_response(k, "response.in_progress", "in_progress");
}

static void on_progress(rvi_call *k, int part, int done)
{
    rvi_buf json = {0};
    if (!rvi_progress_wanted(k)) return;
    open_event(k, "response.in_progress", &json);
    rvi_timings_put_progress(k, part, done, &json);
    send_event(k, "response.in_progress", &json);
}

static void send_delta(rvi_call *k, const rvi_answer_item *item, const char *text, size_t len)
{
    static const char *const names[] = {[RV_SAID_TEXT] = "response.output_text.delta",
                                        [RV_SAID_THOUGHT] = "response.reasoning_text.delta",
                                        [RV_SAID_CALL] = "response.function_call_arguments.delta"};
    rvi_buf json = {0};
    open_about(k, item, names[item->kind], &json);
    if (item->kind == RV_SAID_TEXT) rvi_buf_puts(&json, ",\"logprobs\":[]");
    rvi_buf_puts(&json, ",\"delta\":");
    rvi_json_write_string(&json, text, len);
    if (rvi_timings_wanted(k)) rvi_timings_put(k, 0, &json);
    send_event(k, names[item->kind], &json);
}

/* The item has ended: what it said as a whole. Whether it was cut short is known at the answer's
 * end, when its last item is sent. */
static void send_said(rvi_call *k, const rvi_answer_item *item)
{
    static const char *const names[] = {[RV_SAID_TEXT] = "response.output_text.done",
                                        [RV_SAID_THOUGHT] = "response.reasoning_text.done",
                                        [RV_SAID_CALL] = "response.function_call_arguments.done"};
    rvi_buf json = {0};
    open_about(k, item, names[item->kind], &json);
    if (item->kind == RV_SAID_TEXT) rvi_buf_puts(&json, ",\"logprobs\":[]");
    if (item->kind == RV_SAID_CALL) rvi_put_member(&json, "name", item->name.data);
    rvi_buf_puts(&json, item->kind == RV_SAID_CALL ? ",\"arguments\":" : ",\"text\":");
    rvi_put_buf(&json, &item->text);
    send_event(k, names[item->kind], &json);
    if (item->kind != RV_SAID_CALL) send_part(k, item, "response.content_part.done", &item->text);
}

static void on_said(rvi_call *k, int choice, const rvi_answer_item *item, rvi_item_event event,
                    const char *text, size_t len)
{
    const rvi_buf none = {0};
    const rvi_choice *c = &k->choices[choice];
    if (!k->wish.stream) return;
    if (event == RVI_ITEM_GOES_ON) {
        send_delta(k, item, text, len);
    } else if (event == RVI_ITEM_ENDS) {
        send_said(k, item);
    } else {
        if (item->index)
            send_item(k, &c->said.list[item->index - 1], "response.output_item.done", "completed");
        send_item(k, item, "response.output_item.added", "in_progress");
        if (item->kind != RV_SAID_CALL) send_part(k, item, "response.content_part.added", &none);
    }
}

static void end_stream(rvi_call *k)
{
    const rvi_choice *c = &k->choices[0];
    const char *status = status_of(k);
    if (c->said.n) send_item(k, &c->said.list[c->said.n - 1], "response.output_item.done", status);
    /* llama-server knows no other end */
    bool whole = !strcmp(status, "completed") || k->s->server->llama.on;
    send_response(k, whole ? "response.completed" : "response.incomplete", status);
    rvi_conn_end(k->conn);
}

static void end(rvi_call *k)
{
    const response *r = k->own;
    rvi_buf out = {0};
    put_response(k, status_of(k), &out);
    if (r->store) rvi_answers_set_response(&k->s->server->answers, k->id, &out);
    if (k->wish.stream) {
        rvi_buf_deinit(&out);
        end_stream(k);
    } else {
        rvi_reply_json(&rvi_openai, k->conn, &out);
    }
}

static const rvi_writer writer = {&rvi_openai, begin, NULL, NULL, end, NULL, on_said, on_progress};

/* ---- the request ---- */

static bool read_store(const rvi_json *body, bool *out, rvi_problem *p)
{
    const rvi_json *v = rvi_json_get(body, "store");
    *out = rvi_json_bool(v, true);
    return !v || rvi_json_is(v, RVI_JSON_BOOL) || rvi_json_is(v, RVI_JSON_NULL) ||
           rvi_problem_set(p, 400, "invalid_type", "store", "store must be true or false");
}

static bool read_effort(rvi_call *k, int *think)
{
    const rvi_json *v = rvi_json_get(k->body, "reasoning");
    if (!v || rvi_json_is(v, RVI_JSON_NULL)) return true;
    if (!rvi_json_is(v, RVI_JSON_OBJECT))
        return rvi_problem_set(&k->problem, 400, "invalid_type", "reasoning",
                               "reasoning must be an object");
    return rvi_tools_effort(k, "reasoning.effort", rvi_json_get(v, "effort"), think);
}

void rvi_openai_respond(rvi_serving *s, rvi_conn *c)
{
    rvi_call *k = rvi_call_new(s, c, &writer, RVI_FOR_RESPONSE, "resp_");
    if (!k) return;
    response *r = k->own = rvi_arena_alloc(&k->arena, 1, sizeof *r);
    if (!r) {
        (void)rvi_problem_set(&k->problem, 503, NULL, NULL, "out of memory");
    } else if (read_store(k->body, &r->store, &k->problem) &&
               rvi_openai_input(s, k->tenant, k->body, &k->arena, &k->chat, &k->question,
                                &k->instructed, &k->problem)) {
        rvi_tools_wish w = {0};
        if (rvi_openai_response_tools(k->body, &w, &k->problem) && read_effort(k, &w.think) &&
            rvi_tools_open(k, &w))
            (void)rvi_call_submit_chat(k);
        rvi_tools_drop(&w);
    }
    rvi_call_start(k);
}
