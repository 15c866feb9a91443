/* /v1/responses: one answer as an object or as its events. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "server/openai.h"

typedef struct response {
    int n_events;
    char item[40]; /* id of the message */
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

static void put_part(const rvi_buf *text, rvi_buf *out)
{
    rvi_buf_puts(out, "{\"type\":\"output_text\",\"text\":");
    rvi_put_buf(out, text);
    rvi_buf_puts(out, ",\"annotations\":[],\"logprobs\":[]}");
}

static void put_item(const rvi_call *k, const char *status, rvi_buf *out)
{
    const response *r = k->own;
    rvi_buf_printf(out, "{\"type\":\"message\",\"id\":\"%s\",\"status\":\"%s\",", r->item, status);
    rvi_buf_puts(out, "\"role\":\"assistant\",\"content\":[");
    if (strcmp(status, "in_progress")) put_part(&k->choices[0].text, out);
    rvi_buf_puts(out, "]}");
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
    rvi_put_member(out, "model", k->s->name);
    rvi_buf_printf(out, ",\"learned_version\":%llu", (unsigned long long)k->learned);
    rvi_buf_puts(out, ",\"incomplete_details\":");
    rvi_buf_puts(out, cut ? "{\"reason\":\"max_output_tokens\"}" : "null");
    if (over) rvi_buf_printf(out, ",\"completed_at\":%ld", (long)time(NULL));
    rvi_buf_puts(out, ",\"output\":[");
    if (over) put_item(k, status, out);
    rvi_buf_puts(out, "],\"reasoning\":{\"effort\":null,\"summary\":null},\"tools\":[],"
                      "\"tool_choice\":\"auto\",\"truncation\":\"disabled\"");
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
    send_event(k, name, &json);
}

static void send_item(rvi_call *k, const char *name, const char *status)
{
    rvi_buf json = {0};
    open_event(k, name, &json);
    rvi_buf_puts(&json, ",\"output_index\":0,\"item\":");
    put_item(k, status, &json);
    send_event(k, name, &json);
}

/* An event about the one part of the text. */
static void open_part(rvi_call *k, const char *name, rvi_buf *json)
{
    const response *r = k->own;
    open_event(k, name, json);
    rvi_buf_printf(json, ",\"item_id\":\"%s\",\"output_index\":0,\"content_index\":0", r->item);
}

static void send_part(rvi_call *k, const char *name, const rvi_buf *text)
{
    rvi_buf json = {0};
    open_part(k, name, &json);
    rvi_buf_puts(&json, ",\"part\":");
    put_part(text, &json);
    send_event(k, name, &json);
}

static void begin(rvi_call *k)
{
    const rvi_buf none = {0};
    if (!k->wish.stream) return;
    rvi_conn_stream(k->conn, "text/event-stream; charset=utf-8", true);
    send_response(k, "response.created", "in_progress");
    send_response(k, "response.in_progress", "in_progress");
    send_item(k, "response.output_item.added", "in_progress");
    send_part(k, "response.content_part.added", &none);
}

static void on_token(rvi_call *k, int choice, const rv_service_event *e)
{
    static const char name[] = "response.output_text.delta";
    rvi_buf json = {0};
    (void)choice;
    if (!k->wish.stream || !e->text_len) return;
    open_part(k, name, &json);
    rvi_buf_puts(&json, ",\"logprobs\":[],\"delta\":");
    rvi_json_write_string(&json, e->text, e->text_len);
    send_event(k, name, &json);
}

static void end_stream(rvi_call *k)
{
    static const char done[] = "response.output_text.done";
    const char *status = status_of(k);
    rvi_buf json = {0};
    open_part(k, done, &json);
    rvi_buf_puts(&json, ",\"logprobs\":[],\"text\":");
    rvi_put_buf(&json, &k->choices[0].text);
    send_event(k, done, &json);
    send_part(k, "response.content_part.done", &k->choices[0].text);
    send_item(k, "response.output_item.done", status);
    send_response(k, strcmp(status, "completed") ? "response.incomplete" : "response.completed",
                  status);
    rvi_conn_end(k->conn);
}

static void end(rvi_call *k)
{
    const response *r = k->own;
    rvi_buf out = {0};
    put_response(k, status_of(k), &out);
    if (r->store) rvi_answers_set_response(&k->s->answers, k->id, &out);
    if (k->wish.stream) {
        rvi_buf_deinit(&out);
        end_stream(k);
    } else {
        rvi_reply_json(&rvi_openai, k->conn, &out);
    }
}

static const rvi_writer writer = {&rvi_openai, begin, on_token, NULL, end, NULL};

/* ---- the request ---- */

static bool read_store(const rvi_json *body, bool *out, rvi_problem *p)
{
    const rvi_json *v = rvi_json_get(body, "store");
    *out = rvi_json_bool(v, true);
    return !v || rvi_json_is(v, RVI_JSON_BOOL) || rvi_json_is(v, RVI_JSON_NULL) ||
           rvi_problem_set(p, 400, "invalid_type", "store", "store must be true or false");
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
        snprintf(r->item, sizeof r->item, "msg_%s", k->id + strlen("resp_"));
        (void)rvi_call_submit_chat(k, NULL);
    }
    rvi_call_start(k);
}
