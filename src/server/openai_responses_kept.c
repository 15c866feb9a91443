/* What a Responses request says, and responses that were stored. */
#include <stdio.h>
#include <string.h>

#include "server/messages.h"
#include "server/openai.h"
#include "server/quick.h"
#include "server/tools.h"

/* ---- input ---- */

static bool read_call(const rvi_json *v, size_t i, rvi_messages *m, rvi_problem *p)
{
    const rvi_json *arguments = rvi_json_get(v, "arguments");
    const char *id = rvi_json_string(rvi_json_get(v, "call_id"), NULL),
               *name = rvi_json_string(rvi_json_get(v, "name"), NULL);
    if (!id || !name || !rvi_json_is(arguments, RVI_JSON_STRING))
        return rvi_problem_set(p, 400, "invalid_value", "input",
                               "input[%zu]: a function_call has call_id, name and arguments", i);
    rvi_messages_call(m, id, name, arguments);
    return true;
}

static bool read_output(const rvi_json *v, size_t i, rvi_messages *m, rvi_problem *p)
{
    static const rvi_parts_rule rule = {"input", " input_text output_text text ", ""};
    const char *id = rvi_json_string(rvi_json_get(v, "call_id"), NULL);
    char place[64];
    rvi_buf text = {0};
    if (!id)
        return rvi_problem_set(p, 400, "invalid_value", "input",
                               "input[%zu]: a function_call_output has a call_id", i);
    snprintf(place, sizeof place, "input[%zu].output", i);
    bool ok = rvi_messages_content(&rule, place, rvi_json_get(v, "output"), &text, p);
    if (ok) rvi_messages_result(m, id, &text);
    rvi_buf_deinit(&text);
    return ok;
}

static bool read_item(const rvi_json *v, size_t i, rvi_messages *m, rvi_problem *p)
{
    static const rvi_parts_rule rule = {"input", " input_text output_text text ", ""};
    const char *type = rvi_json_string(rvi_json_get(v, "type"), "message");
    const char *role = rvi_json_string(rvi_json_get(v, "role"), "");
    char place[64];
    rvi_buf text = {0};
    if (!strcmp(type, "reasoning")) return true; /* thoughts of earlier turns */
    if (!strcmp(type, "function_call")) return read_call(v, i, m, p);
    if (!strcmp(type, "function_call_output")) return read_output(v, i, m, p);
    if (strcmp(type, "message"))
        return rvi_problem_set(p, 400, "unsupported_content", "input",
                               "input[%zu]: items of type '%.40s' are not supported", i, type);
    if (!strcmp(role, "developer")) role = "system";
    if (!rvi_messages_lists(" system user assistant ", role))
        return rvi_problem_set(p, 400, "invalid_value", "input",
                               "input[%zu].role must be system, developer, user or assistant", i);
    snprintf(place, sizeof place, "input[%zu].content", i);
    bool ok = rvi_messages_content(&rule, place, rvi_json_get(v, "content"), &text, p);
    if (ok) rvi_messages_add(m, role, &text, NULL);
    rvi_buf_deinit(&text);
    return ok;
}

static bool read_input(const rvi_json *input, rvi_messages *m, rvi_problem *p)
{
    rvi_buf text = {0};
    if (rvi_json_is(input, RVI_JSON_STRING)) {
        rvi_buf_append(&text, input->as.string.data, input->as.string.len);
        rvi_messages_add(m, "user", &text, NULL);
        return true;
    }
    if (!rvi_json_is(input, RVI_JSON_ARRAY) || !rvi_json_count(input))
        return rvi_problem_set(p, 400, "missing_field", "input",
                               "input must be a text or a list of at least one item");
    for (size_t i = 0; i < rvi_json_count(input); i++)
        if (!read_item(rvi_json_at(input, i), i, m, p)) return false;
    return true;
}

static const rvi_said *find(const rvi_serving *s, const char *tenant, const char *id)
{
    const rvi_said *said = rvi_kept_find(&s->server->kept, tenant, id, 0);
    return said && said->response ? said : NULL;
}

static bool not_found(const char *field, const char *id, rvi_problem *p)
{
    return rvi_problem_set(p, 404, "response_not_found", field,
                           "Response with id '%.60s' not found: it was not stored, or too long ago",
                           id);
}

static bool add_text(rvi_messages *m, const char *role, const char *text, size_t len,
                     const rvi_json *from)
{
    rvi_buf copy = {0};
    bool ok = rvi_buf_append(&copy, text, len);
    if (!ok) m->chat->failed = true;
    rvi_messages_add(m, role, &copy, from);
    return ok;
}

/* What was answered: a text, or calls of tools. */
static bool add_answer(rvi_messages *m, const rvi_said *said, rvi_arena *arena)
{
    const rvi_json *calls = NULL;
    rv_error err;
    if (!said->calls) return add_text(m, "assistant", said->text, strlen(said->text), NULL);
    if (rvi_json_parse(&calls, said->calls, strlen(said->calls), arena, "calls", &err))
        return false;
    for (size_t i = 0; i < rvi_json_count(calls); i++) {
        const rvi_json *f = rvi_json_get(rvi_json_at(calls, i), "function");
        rvi_messages_call(m, rvi_json_string(rvi_json_get(rvi_json_at(calls, i), "id"), ""),
                          rvi_json_string(rvi_json_get(f, "name"), ""),
                          rvi_json_get(f, "arguments"));
    }
    return true;
}

/* The messages of an answer's chat, without its instructions. */
static const rvi_json *messages_of(const rvi_said *said, rvi_arena *arena, size_t *first)
{
    const rvi_json *chat;
    rv_error err;
    *first = said->instructed ? 1 : 0;
    if (rvi_json_parse(&chat, said->chat, strlen(said->chat), arena, "chat", &err)) return NULL;
    return rvi_json_get(chat, "messages");
}

static bool read_previous(const rvi_serving *s, const char *tenant, const rvi_json *id,
                          rvi_arena *arena, rvi_messages *m, rvi_problem *p)
{
    size_t first;
    if (!id || rvi_json_is(id, RVI_JSON_NULL)) return true;
    const rvi_said *said = find(s, tenant, rvi_json_string(id, ""));
    if (!said) return not_found("previous_response_id", rvi_json_string(id, ""), p);
    const rvi_json *list = messages_of(said, arena, &first);
    if (!list) return rvi_problem_set(p, 503, NULL, NULL, "out of memory");
    for (size_t i = first; i < rvi_json_count(list); i++) {
        const rvi_json *v = rvi_json_at(list, i), *text = rvi_json_get(v, "content");
        (void)add_text(m, rvi_json_string(rvi_json_get(v, "role"), "user"),
                       rvi_json_string(text, ""), text->as.string.len, v);
    }
    return add_answer(m, said, arena) || rvi_problem_set(p, 503, NULL, NULL, "out of memory");
}

bool rvi_openai_input(const rvi_serving *s, const char *tenant, const rvi_json *body,
                      rvi_arena *arena, rvi_buf *chat, rvi_buf *question, bool *instructed,
                      rvi_problem *p)
{
    const rvi_json *told = rvi_json_get(body, "instructions");
    rvi_messages m = rvi_messages_begin(chat, question);
    *instructed = rvi_json_is(told, RVI_JSON_STRING) && told->as.string.len;
    if (told && !rvi_json_is(told, RVI_JSON_STRING) && !rvi_json_is(told, RVI_JSON_NULL))
        return rvi_problem_set(p, 400, "invalid_type", "instructions",
                               "instructions must be a string");
    if (*instructed) (void)add_text(&m, "system", told->as.string.data, told->as.string.len, NULL);
    return read_previous(s, tenant, rvi_json_get(body, "previous_response_id"), arena, &m, p) &&
           read_input(rvi_json_get(body, "input"), &m, p) && rvi_messages_end(&m, p);
}

/* ---- tools ---- */

bool rvi_openai_response_tools(const rvi_json *body, rvi_tools_wish *w, rvi_problem *p)
{
    const rvi_json *tools = rvi_json_get(body, "tools"),
                   *choice = rvi_json_get(body, "tool_choice");
    bool named = rvi_json_is(choice, RVI_JSON_OBJECT);
    if (tools && !rvi_json_is(tools, RVI_JSON_ARRAY) && !rvi_json_is(tools, RVI_JSON_NULL))
        return rvi_problem_set(p, 400, "invalid_type", "tools", "tools must be a list");
    for (size_t i = 0; i < rvi_json_count(tools); i++) {
        const rvi_json *t = rvi_json_at(tools, i);
        if (!rvi_json_is_string(rvi_json_get(t, "type"), "function"))
            return rvi_problem_set(p, 400, "unsupported_parameter", "tools",
                                   "tools[%zu].type must be \"function\" (got '%.60s')", i,
                                   rvi_json_string(rvi_json_get(t, "type"), ""));
        rvi_tools_add(w, rvi_json_get(t, "name"), rvi_json_get(t, "description"),
                      rvi_json_get(t, "parameters"));
    }
    if (named && !rvi_json_is_string(rvi_json_get(choice, "type"), "function"))
        return rvi_problem_set(p, 400, "unsupported_parameter", "tool_choice",
                               "tool_choice must be auto, none, required or name a function");
    if (named)
        rvi_buf_puts(&w->choice, rvi_json_string(rvi_json_get(choice, "name"), "?"));
    else
        rvi_buf_puts(&w->choice, rvi_json_string(choice, "auto"));
    w->one_call = !rvi_json_bool(rvi_json_get(body, "parallel_tool_calls"), true);
    return true;
}

/* ---- stored responses ---- */

/* The id in the path, up to the next slash; *rest: what follows it. */
static void read_path(const rvi_conn *c, char id[64], const char **rest)
{
    const char *at = strstr(c->in.path, "/responses/") + strlen("/responses/");
    size_t n = strcspn(at, "/");
    snprintf(id, 64, "%.*s", (int)RVI_MIN(n, (size_t)63), at);
    *rest = at + n;
}

static void put_result(const rvi_said *said, const rvi_json *v, size_t i, rvi_buf *out)
{
    rvi_buf_printf(out, "{\"type\":\"function_call_output\",\"id\":\"%s-%zu\"", said->id, i);
    rvi_put_member(out, "call_id", rvi_json_string(rvi_json_get(v, "tool_call_id"), ""));
    rvi_put_member(out, "output", rvi_json_string(rvi_json_get(v, "content"), ""));
    rvi_buf_puts(out, ",\"status\":\"completed\"}");
}

/* The newest first, as all of them. */
static void put_uses(const rvi_said *said, const rvi_json *v, size_t i, rvi_buf *out)
{
    const rvi_json *calls = rvi_json_get(v, "tool_calls");
    for (size_t n = rvi_json_count(calls), k = n; k-- > 0;) {
        const rvi_json *f = rvi_json_get(rvi_json_at(calls, k), "function");
        rvi_buf_printf(out, "%s{\"type\":\"function_call\",\"id\":\"%s-%zu-%zu\"",
                       k + 1 < n ? "," : "", said->id, i, k);
        rvi_put_member(out, "call_id",
                       rvi_json_string(rvi_json_get(rvi_json_at(calls, k), "id"), ""));
        rvi_put_member(out, "name", rvi_json_string(rvi_json_get(f, "name"), ""));
        rvi_put_member(out, "arguments", rvi_json_string(rvi_json_get(f, "arguments"), "{}"));
        rvi_buf_puts(out, ",\"status\":\"completed\"}");
    }
}

static void put_items(const rvi_said *said, rvi_buf *out)
{
    enum { MOST_ARENA = 64 << 20 };
    rvi_arena arena = {.max = MOST_ARENA};
    size_t first;
    const rvi_json *list = messages_of(said, &arena, &first);
    size_t n = rvi_json_count(list);
    rvi_buf_puts(out, "{\"object\":\"list\",\"data\":[");
    for (size_t i = n; i-- > first;) { /* the newest first */
        const rvi_json *v = rvi_json_at(list, i);
        const char *role = rvi_json_string(rvi_json_get(v, "role"), "user");
        if (i + 1 < n) rvi_buf_putc(out, ',');
        if (!strcmp(role, "tool")) {
            put_result(said, v, i, out);
            continue;
        }
        if (rvi_json_count(rvi_json_get(v, "tool_calls"))) {
            put_uses(said, v, i, out);
            continue;
        }
        rvi_buf_printf(out, "{\"type\":\"message\",\"id\":\"%s-%zu\",\"status\":\"completed\"",
                       said->id, i);
        rvi_put_member(out, "role", role);
        rvi_buf_printf(out, ",\"content\":[{\"type\":\"%s\"",
                       strcmp(role, "assistant") ? "input_text" : "output_text");
        rvi_put_member(out, "text", rvi_json_string(rvi_json_get(v, "content"), ""));
        rvi_buf_puts(out, strcmp(role, "assistant") ? "}]}" : ",\"annotations\":[]}]}");
    }
    rvi_buf_printf(out, "],\"first_id\":\"%s-%zu\",\"last_id\":\"%s-%zu\",\"has_more\":false}",
                   said->id, n ? n - 1 : 0, said->id, first);
    if (!list) out->failed = true;
    rvi_arena_deinit(&arena);
}

void rvi_openai_response_get(rvi_serving *s, rvi_conn *c)
{
    char id[64];
    const char *rest;
    rvi_problem p;
    rvi_buf out = {0};
    read_path(c, id, &rest);
    const rvi_said *said = find(s, c->key->name, id);
    if (said && !*rest) {
        rvi_buf_puts(&out, said->response);
        rvi_reply_json(&rvi_openai, c, &out);
    } else if (said && !strcmp(rest, "/input_items")) {
        put_items(said, &out);
        rvi_reply_json(&rvi_openai, c, &out);
    } else {
        (void)not_found("response_id", id, &p);
        rvi_dialect_refuse(&rvi_openai, c, &p);
    }
}

void rvi_openai_response_delete(rvi_serving *s, rvi_conn *c)
{
    char id[64];
    const char *rest;
    rvi_problem p;
    rvi_buf out = {0};
    read_path(c, id, &rest);
    if (!*rest && find(s, c->key->name, id) && rvi_answers_forget(&s->server->answers, id)) {
        rvi_kept_remove(&s->server->kept, id);
        rvi_buf_printf(&out, "{\"id\":\"%s\",\"object\":\"response\",\"deleted\":true}", id);
        rvi_reply_json(&rvi_openai, c, &out);
        return;
    }
    (void)not_found("response_id", id, &p);
    rvi_dialect_refuse(&rvi_openai, c, &p);
}

/* Only what runs in the background can be cancelled, and nothing does: who leaves, cancels. */
void rvi_openai_response_cancel(rvi_serving *s, rvi_conn *c)
{
    char id[64];
    const char *rest;
    rvi_problem p;
    read_path(c, id, &rest);
    if (find(s, c->key->name, id) && !strcmp(rest, "/cancel"))
        (void)rvi_problem_set(&p, 400, "not_cancellable", "response_id",
                              "only a response made with background can be cancelled");
    else
        (void)not_found("response_id", id, &p);
    rvi_dialect_refuse(&rvi_openai, c, &p);
}

/* ---- counting ---- */

static bool count(const rvi_quick *q, rvi_buf *out, rvi_problem *p)
{
    rvi_buf chat = {0}, question = {0}, ignored = {0};
    rvi_tools_wish w = {0};
    bool instructed;
    rvi_wish wish;
    size_t n = 0;
    bool ok =
        rvi_wish_read(&wish, RVI_FOR_RESPONSE, q->body, q->arena, &ignored, p) &&
        rvi_openai_input(q->s, q->tenant, q->body, q->arena, &chat, &question, &instructed, p) &&
        rvi_openai_response_tools(q->body, &w, p);
    if (ok) rvi_tools_tell(&w, &chat);
    ok = ok && rvi_quick_count(q->s, &chat, &n, p);
    rvi_tools_drop(&w);
    rvi_buf_printf(out, "{\"object\":\"response.input_tokens\",\"input_tokens\":%zu}", n);
    rvi_buf_deinit(&chat);
    rvi_buf_deinit(&question);
    rvi_buf_deinit(&ignored);
    return ok;
}

void rvi_openai_response_tokens(rvi_serving *s, rvi_conn *c)
{
    rvi_quick_answer(s, c, &rvi_openai, count);
}
