/* /v1/chat/completions */
#include <stdio.h>
#include <string.h>

#include "server/messages.h"
#include "server/openai.h"
#include "server/probs.h"
#include "server/quick.h"
#include "server/timings.h"
#include "server/tools.h"

/* ---- messages ---- */

static const char *role_of(const rvi_json *m, size_t i, rvi_problem *p)
{
    static const char *const known[] = {"system", "user", "assistant", "tool", "function"};
    const char *role = rvi_json_string(rvi_json_get(m, "role"), NULL);
    if (role && !strcmp(role, "developer")) return "system";
    for (size_t k = 0; role && k < RVI_COUNT(known); k++)
        if (!strcmp(role, known[k])) return role;
    (void)rvi_problem_set(p, 400, "invalid_value", "messages",
                          "messages[%zu].role must be system, developer, user, assistant or tool",
                          i);
    return NULL;
}

static bool read_message(const rvi_json *v, rvi_messages *m, rvi_problem *p)
{
    static const rvi_parts_rule rule = {"messages", " text ", ""};
    const rvi_json *content = rvi_json_get(v, "content");
    const char *role;
    char place[64];
    rvi_buf text = {0};
    if (!rvi_json_is(v, RVI_JSON_OBJECT))
        return rvi_problem_set(p, 400, "invalid_type", "messages",
                               "messages[%zu] must be an object", m->n);
    if (!(role = role_of(v, m->n, p))) return false;
    bool empty = !content || rvi_json_is(content, RVI_JSON_NULL);
    if (empty && strcmp(role, "assistant"))
        return rvi_problem_set(p, 400, "missing_field", "messages",
                               "messages[%zu].content is missing", m->n);
    snprintf(place, sizeof place, "messages[%zu].content", m->n);
    bool ok = empty || rvi_messages_content(&rule, place, content, &text, p);
    if (ok) rvi_messages_add(m, role, &text, v);
    rvi_buf_deinit(&text);
    return ok;
}

static bool read_messages(const rvi_json *body, size_t n, rvi_buf *chat, rvi_buf *question,
                          rvi_problem *p)
{
    const rvi_json *list = rvi_json_get(body, "messages");
    if (!rvi_json_is(list, RVI_JSON_ARRAY) || !rvi_json_count(list))
        return rvi_problem_set(p, 400, "missing_field", "messages",
                               "messages must be a list of at least one message");
    rvi_messages m = rvi_messages_begin(chat, question);
    for (size_t i = 0; i < n; i++)
        if (!read_message(rvi_json_at(list, i), &m, p)) return false;
    return rvi_messages_end(&m, p);
}

bool rvi_openai_messages(const rvi_json *body, rvi_buf *chat, rvi_buf *question, rvi_problem *p)
{
    return read_messages(body, rvi_json_count(rvi_json_get(body, "messages")), chat, question, p);
}

/* ---- log probabilities ---- */

/* ,"logprobs":... of what was kept */
static void put_probs(const rvi_call *k, rvi_choice *c, rvi_buf *out)
{
    rvi_buf_puts(out, ",\"logprobs\":");
    if (!k->wish.logprobs || (!c->n_probs && k->wish.stream)) {
        rvi_buf_puts(out, "null");
        return;
    }
    rvi_buf_puts(out, "{\"content\":");
    rvi_probs_take(c, out);
    rvi_buf_puts(out, ",\"refusal\":null}");
}

/* ---- streamed ---- */

static const char chunk[] = "chat.completion.chunk";

/* delta: the JSON object; finish NULL: not yet */
static void send_chunk(rvi_call *k, int choice, const rvi_buf *delta, const char *finish)
{
    rvi_buf json = {0};
    rvi_openai_open(k, chunk, &json);
    rvi_buf_printf(&json, ",\"choices\":[{\"index\":%d,\"delta\":", choice);
    rvi_buf_append(&json, delta->data, delta->len);
    put_probs(k, &k->choices[choice], &json);
    if (finish)
        rvi_buf_printf(&json, ",\"finish_reason\":\"%s\"}]", finish);
    else
        rvi_buf_puts(&json, ",\"finish_reason\":null}]");
    if (k->wish.include_usage) rvi_buf_puts(&json, ",\"usage\":null");
    if (rvi_timings_wanted(k) && k->choices[choice].n_ids) rvi_timings_put(k, choice, &json);
    rvi_buf_putc(&json, '}');
    rvi_reply_event(k->conn, NULL, &json);
}

static void begin(rvi_call *k)
{
    rvi_buf delta = {0};
    if (!k->wish.stream) return;
    rvi_conn_stream(k->conn, "text/event-stream; charset=utf-8", true);
    rvi_buf_puts(&delta, k->s->server->llama.on ? "{\"role\":\"assistant\",\"content\":null}"
                                                : "{\"role\":\"assistant\",\"content\":\"\"}");
    for (int i = 0; i < k->n_choices; i++) send_chunk(k, i, &delta, NULL);
    rvi_buf_deinit(&delta);
}

static void on_token(rvi_call *k, int choice, const rv_service_event *e)
{
    rvi_probs_add(k, choice, e);
}

/* As members of a delta; arguments are a text that holds JSON. */
static void put_delta(const rvi_answer_item *item, rvi_item_event event, const char *text,
                      size_t len, rvi_buf *out)
{
    bool begins = event == RVI_ITEM_BEGINS, goes_on = event == RVI_ITEM_GOES_ON;
    if (item->kind == RV_SAID_CALL && begins) {
        rvi_buf_printf(out, "{\"tool_calls\":[{\"index\":%zu", item->call);
        rvi_put_member(out, "id", item->id.data);
        rvi_buf_puts(out, ",\"type\":\"function\",\"function\":{\"name\":");
        rvi_put_buf(out, &item->name);
        rvi_buf_puts(out, ",\"arguments\":\"\"}}]}");
    } else if (item->kind == RV_SAID_CALL && goes_on) {
        rvi_buf_printf(out,
                       "{\"tool_calls\":[{\"index\":%zu,\"function\":{\"arguments\":", item->call);
        rvi_json_write_string(out, text, len);
        rvi_buf_puts(out, "}}]}");
    } else if (goes_on) {
        rvi_buf_puts(out, item->kind == RV_SAID_TEXT ? "{\"content\":" : "{\"reasoning_content\":");
        rvi_json_write_string(out, text, len);
        if (item->kind == RV_SAID_THOUGHT) {
            rvi_buf_puts(out, ",\"reasoning\":");
            rvi_json_write_string(out, text, len);
        }
        rvi_buf_putc(out, '}');
    }
}

static void on_progress(rvi_call *k, int part, int done)
{
    rvi_buf json = {0};
    if (!rvi_progress_wanted(k)) return;
    rvi_openai_open(k, chunk, &json);
    rvi_buf_puts(&json, ",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":null}]");
    rvi_timings_put_progress(k, part, done, &json);
    rvi_buf_putc(&json, '}');
    rvi_reply_event(k->conn, NULL, &json);
}

static void on_said(rvi_call *k, int choice, const rvi_answer_item *item, rvi_item_event event,
                    const char *text, size_t len)
{
    rvi_buf delta = {0};
    if (k->wish.stream) put_delta(item, event, text, len, &delta);
    if (delta.len) send_chunk(k, choice, &delta, NULL);
    rvi_buf_deinit(&delta);
}

/* An answer that was cut short calls nothing. */
static const char *finish_of(const rvi_call *k, int choice)
{
    const rvi_choice *c = &k->choices[choice];
    return rvi_items_call(&c->said) && c->finish != RV_FINISH_LENGTH ? "tool_calls"
                                                                     : rvi_openai_finish(c->finish);
}

static void on_done(rvi_call *k, int choice)
{
    rvi_buf delta = {0};
    if (!k->wish.stream) return;
    rvi_buf_puts(&delta, "{}");
    send_chunk(k, choice, &delta, finish_of(k, choice));
    rvi_buf_deinit(&delta);
}

/* ---- whole ---- */

static void put_message(const rvi_choice *c, rvi_buf *out)
{
    rvi_buf text = {0}, thought = {0};
    bool calls = rvi_items_call(&c->said);
    rvi_items_join(&c->said, RV_SAID_TEXT, &text);
    rvi_items_join(&c->said, RV_SAID_THOUGHT, &thought);
    rvi_buf_puts(out, "{\"role\":\"assistant\",\"content\":");
    if (text.len || !calls)
        rvi_put_buf(out, &text);
    else
        rvi_buf_puts(out, "null");
    if (thought.len) {
        rvi_put_member(out, "reasoning_content", thought.data);
        rvi_put_member(out, "reasoning", thought.data);
    }
    if (calls) {
        rvi_buf_puts(out, ",\"tool_calls\":");
        rvi_items_put_calls(&c->said, out);
    }
    rvi_buf_puts(out, ",\"refusal\":null}");
    if (text.failed || thought.failed) out->failed = true;
    rvi_buf_deinit(&text);
    rvi_buf_deinit(&thought);
}

static void put_choice(rvi_call *k, int i, rvi_buf *out)
{
    rvi_choice *c = &k->choices[i];
    rvi_buf_printf(out, "%s{\"index\":%d,\"message\":", i ? "," : "", i);
    put_message(c, out);
    put_probs(k, c, out);
    rvi_buf_printf(out, ",\"finish_reason\":\"%s\"}", finish_of(k, i));
    if (c->text.failed || c->probs.failed) out->failed = true;
}

static void end(rvi_call *k)
{
    rvi_buf out = {0};
    if (k->wish.stream) {
        rvi_openai_end_stream(k, chunk);
        return;
    }
    rvi_openai_open(k, "chat.completion", &out);
    rvi_buf_puts(&out, ",\"choices\":[");
    for (int i = 0; i < k->n_choices; i++) put_choice(k, i, &out);
    rvi_buf_puts(&out, "],\"usage\":");
    rvi_openai_usage(k, &out);
    if (k->s->server->llama.on) rvi_timings_put(k, 0, &out);
    rvi_verbose_put(k, &out);
    rvi_buf_putc(&out, '}');
    rvi_reply_json(&rvi_openai, k->conn, &out);
}

static const rvi_writer writer = {&rvi_openai, begin, on_token, on_done,
                                  end,         NULL,  on_said,  on_progress};

/* ---- an answer that was begun ---- */

static bool is_own(const rvi_json *list, size_t i)
{
    return rvi_json_is_string(rvi_json_get(rvi_json_at(list, i), "role"), "assistant");
}

/* The parts of a text that is begun, an empty line between two, as llama-server has it. */
static bool read_begun(const rvi_json *content, rvi_buf *out, rvi_problem *p)
{
    static const rvi_parts_rule rule = {"messages", " text ", ""};
    if (!rvi_json_is(content, RVI_JSON_ARRAY))
        return rvi_messages_content(&rule, "the last message", content, out, p);
    for (size_t i = 0; i < rvi_json_count(content); i++) {
        if (i) rvi_buf_puts(out, "\n\n");
        rvi_buf_puts(out, rvi_json_string(rvi_json_get(rvi_json_at(content, i), "text"), ""));
    }
    return true;
}

/* vLLM's continue_final_message; llama-server goes on with any last message of the assistant.
 * *n: messages that the template sees. */
static bool read_continued(rvi_call *k, size_t *n)
{
    const rvi_json *list = rvi_json_get(k->body, "messages");
    bool wanted = rvi_json_bool(rvi_json_get(k->body, "continue_final_message"), false);
    bool last = rvi_json_is(list, RVI_JSON_ARRAY) && *n && is_own(list, *n - 1);
    if (wanted && rvi_json_bool(rvi_json_get(k->body, "add_generation_prompt"), false))
        return rvi_problem_set(&k->problem, 400, "invalid_value", "continue_final_message",
                               "continue_final_message and add_generation_prompt exclude each "
                               "other");
    if (wanted && !last)
        return rvi_problem_set(&k->problem, 400, "invalid_value", "continue_final_message",
                               "continue_final_message: the last message is not the assistant's");
    if (!last || (!wanted && !k->s->server->llama.on)) return true;
    if (*n > 1 && is_own(list, *n - 2))
        return rvi_problem_set(&k->problem, 400, "invalid_value", "messages",
                               "the last two messages are the assistant's");
    if (rvi_json_count(rvi_json_get(rvi_json_at(list, *n - 1), "tool_calls"))) return true;
    *n -= 1;
    return read_begun(rvi_json_get(rvi_json_at(list, *n), "content"), &k->begun, &k->problem);
}

void rvi_openai_chat(rvi_serving *s, rvi_conn *c)
{
    rvi_tools_wish w = {0};
    rvi_call *k = rvi_call_new(s, c, &writer, RVI_FOR_CHAT, "chatcmpl-");
    if (!k) return;
    size_t n = rvi_json_count(rvi_json_get(k->body, "messages"));
    if (read_continued(k, &n) && (w.bare = k->begun.len, true) &&
        read_messages(k->body, n, &k->chat, &k->question, &k->problem) &&
        rvi_tools_effort(k, "reasoning_effort", rvi_json_get(k->body, "reasoning_effort"),
                         &w.think) &&
        rvi_tools_open_openai(k, &w))
        (void)rvi_call_submit_chat(k);
    rvi_call_start(k);
}

/* ---- counting ---- */

static bool count(const rvi_quick *q, rvi_buf *out, rvi_problem *p)
{
    rvi_buf chat = {0}, question = {0};
    size_t n = 0;
    bool ok =
        rvi_openai_messages(q->body, &chat, &question, p) && rvi_quick_count(q->s, &chat, &n, p);
    rvi_buf_printf(out, "{\"object\":\"response.input_tokens\",\"input_tokens\":%zu}", n);
    rvi_buf_deinit(&chat);
    rvi_buf_deinit(&question);
    return ok;
}

void rvi_openai_chat_tokens(rvi_serving *s, rvi_conn *c)
{
    rvi_quick_answer(s, c, &rvi_openai, count);
}
