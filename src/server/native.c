#include "server/native.h"

#include <string.h>

#include "server/openai.h"
#include "server/prompts.h"
#include "server/quick.h"

void rvi_native_health(rvi_serving *s, rvi_conn *c)
{
    static const char ok[] = "{\"status\":\"ok\"}";
    rvi_problem p;
    rv_error err;
    if (!s->server->ready)
        (void)rvi_problem_set(&p, 503, "model_loading", NULL, "the model is being opened");
    else if (rv_runtime_check(s->server->rt, &err))
        (void)rvi_problem_set(&p, 503, "device_failed", NULL, "%s", err.text);
    else {
        rvi_conn_reply(c, 200, "application/json", ok, sizeof ok - 1);
        return;
    }
    rvi_dialect_refuse(&rvi_openai, c, &p);
}

static bool read_flag(const rvi_json *body, const char *name, bool usual, bool *out, rvi_problem *p)
{
    const rvi_json *v = rvi_json_get(body, name);
    if (v && !rvi_json_is(v, RVI_JSON_BOOL) && !rvi_json_is(v, RVI_JSON_NULL))
        return rvi_problem_set(p, 400, "invalid_type", name, "%s must be true or false", name);
    *out = rvi_json_bool(v, usual);
    return true;
}

static void put_token(const rvi_serving *s, int32_t id, bool piece, rvi_buf *out)
{
    rvi_buf text = {0};
    if (!piece) {
        rvi_buf_printf(out, "%d", id);
        return;
    }
    (void)rvi_call_token_text(s, id, &text);
    rvi_buf_printf(out, "{\"id\":%d,\"piece\":", id);
    rvi_put_buf(out, &text);
    rvi_buf_putc(out, '}');
    rvi_buf_deinit(&text);
}

/* llama-server's {"content"} and vLLM's {"prompt"}, which also counts. */
static bool tokenize(const rvi_quick *q, rvi_buf *out, rvi_problem *p)
{
    const rvi_json *content = rvi_json_get(q->body, "content");
    bool counts = !content, bos, special, pieces;
    const char *field = counts ? "prompt" : "content";
    int32_t *ids;
    size_t n;
    rv_error err = {0};
    if (counts) content = rvi_json_get(q->body, "prompt");
    if (!rvi_json_is(content, RVI_JSON_STRING))
        return rvi_problem_set(p, 400, "invalid_type", field, "%s must be a string", field);
    if (!read_flag(q->body, counts ? "add_special_tokens" : "add_special", counts, &bos, p) ||
        !read_flag(q->body, "parse_special", true, &special, p) ||
        !read_flag(q->body, counts ? "return_token_strs" : "with_pieces", false, &pieces, p))
        return false;
    unsigned flags = (bos ? RV_TOKENIZE_BOS : 0U) | (special ? RV_TOKENIZE_SPECIAL : 0U);
    rv_status st = rv_tokenize(q->s->model, content->as.string.data, content->as.string.len, flags,
                               &ids, &n, &err);
    if (st) return rvi_problem_from(p, st, &err);
    if (counts) rvi_buf_printf(out, "{\"count\":%zu,\"max_model_len\":%d,", n, q->s->n_context);
    rvi_buf_puts(out, counts ? "\"tokens\":[" : "{\"tokens\":[");
    for (size_t i = 0; i < n; i++) {
        if (i) rvi_buf_putc(out, ',');
        put_token(q->s, ids[i], pieces, out);
    }
    rvi_buf_puts(out, "]}");
    rv_free(ids);
    return true;
}

void rvi_native_tokenize(rvi_serving *s, rvi_conn *c)
{
    rvi_quick_answer(s, c, &rvi_openai, tokenize);
}

static bool detokenize(const rvi_quick *q, rvi_buf *out, rvi_problem *p)
{
    const rvi_json *tokens = rvi_json_get(q->body, "tokens");
    rvi_prompt *list;
    int n;
    char *text = NULL;
    size_t len = 0;
    rv_error err = {0};
    if (!rvi_json_is(tokens, RVI_JSON_ARRAY))
        return rvi_problem_set(p, 400, "invalid_type", "tokens", "tokens must be a list of ids");
    if (rvi_json_count(tokens)) {
        if (!rvi_prompts_read(q->s->model, tokens, "tokens", 0, q->arena, &list, &n, p))
            return false;
        if (n != 1 || list[0].text)
            return rvi_problem_set(p, 400, "invalid_type", "tokens",
                                   "tokens must be a list of ids");
        rv_status st = rv_detokenize(q->s->model, list[0].ids, list[0].n, 0, &text, &len, &err);
        if (st) return rvi_problem_from(p, st, &err);
    }
    rvi_buf_puts(out, "{\"content\":");
    rvi_json_write_string(out, text ? text : "", len);
    rvi_buf_putc(out, '}');
    rv_free(text);
    return true;
}

void rvi_native_detokenize(rvi_serving *s, rvi_conn *c)
{
    rvi_quick_answer(s, c, &rvi_openai, detokenize);
}

/* Tools, and whether to think, behind the messages. */
static void add_variables(const rvi_quick *q, rvi_buf *chat)
{
    const rvi_json *tools = rvi_json_get(q->body, "tools");
    chat->len--; /* the brace */
    if (rvi_json_is(tools, RVI_JSON_ARRAY) && rvi_json_count(tools)) {
        rvi_buf_puts(chat, ",\"tools\":");
        rvi_json_write(chat, tools);
    }
    if (q->s->server->llama.on || q->s->thinks)
        rvi_buf_printf(chat, ",\"enable_thinking\":%s",
                       q->s->server->llama.no_thoughts ? "false" : "true");
    if (q->s->server->llama.on) rvi_quick_put_variables(chat, tools);
    rvi_buf_putc(chat, '}');
}

/* The template left the beginning of the answer inside the thoughts. */
static bool ends_thinking(const char *text, size_t len)
{
    static const char open[] = "<think>";
    while (len && strchr(" \n", text[len - 1])) len--;
    return len >= sizeof open - 1 && !memcmp(text + len - (sizeof open - 1), open, sizeof open - 1);
}

static bool apply_template(const rvi_quick *q, rvi_buf *out, rvi_problem *p)
{
    rvi_buf messages = {0}, question = {0};
    rv_time today;
    rv_chat chat = {.size = sizeof chat, .now = &today};
    char *text = NULL;
    size_t len = 0;
    rv_error err = {0};
    bool ok = rvi_openai_messages(q->body, &messages, &question, p);
    rvi_quick_today(&today);
    if (ok) add_variables(q, &messages);
    chat.no_reply = !rvi_json_bool(rvi_json_get(q->body, "add_generation_prompt"), true);
    chat.variables = messages.data;
    rv_status st = ok ? rv_chat_render(q->s->model, &chat, &text, &len, &err) : RV_OK;
    if (st) ok = rvi_problem_from(p, st, &err);
    if (ok) {
        rvi_buf whole = {0};
        rvi_buf_append(&whole, text, len);
        if (q->s->server->llama.no_thoughts && ends_thinking(text, len))
            rvi_buf_puts(&whole, "</think>");
        rvi_buf_puts(out, "{\"prompt\":");
        rvi_put_buf(out, &whole);
        rvi_buf_putc(out, '}');
        rvi_buf_deinit(&whole);
    }
    rv_free(text);
    rvi_buf_deinit(&messages);
    rvi_buf_deinit(&question);
    return ok;
}

void rvi_native_apply_template(rvi_serving *s, rvi_conn *c)
{
    rvi_quick_answer(s, c, &rvi_openai, apply_template);
}
