/* /api/chat, /api/generate, /api/embed */
#include "server/ollama.h"

#include <stdio.h>
#include <string.h>

#include "base/os.h"
#include "server/messages.h"
#include "server/probs.h"
#include "server/prompts.h"
#include "server/reply.h"
#include "server/tools.h"
#include "server/vectors.h"

static void write_problem(const rvi_problem *p, rvi_buf *out)
{
    rvi_buf_puts(out, "{\"error\":");
    rvi_put_text(out, p->message);
    if (p->code) rvi_put_member(out, "code", p->code);
    rvi_buf_putc(out, '}');
}

const rvi_dialect rvi_ollama = {write_problem, "", "\n", NULL};

static const rvi_writer chat_writer, generate_writer;

/* ---- answers ---- */

static void put_ns(rvi_buf *out, const char *name, double seconds)
{
    rvi_buf_printf(out, ",\"%s\":%lld", name, (long long)(seconds * 1e9));
}

/* The beginning of a line, up to what is said. */
static void open_line(const rvi_call *k, rvi_buf *out)
{
    double now = (double)k->created + rvi_os_seconds() - k->since;
    rvi_buf_printf(out, "{\"id\":\"%s\"", k->id);
    rvi_put_member(out, "model", k->model);
    rvi_buf_puts(out, ",\"created_at\":");
    rvi_put_time(out, now);
}

/* [{"id", "function"}, ...]: from the first to the last of these items */
static void put_calls(const rvi_answer_item *first, const rvi_answer_item *last, rvi_buf *out)
{
    bool comma = false;
    rvi_buf_puts(out, ",\"tool_calls\":[");
    for (const rvi_answer_item *item = first; item <= last; item++) {
        if (item->kind != RV_SAID_CALL) continue;
        rvi_buf_puts(out, comma ? ",{\"id\":" : "{\"id\":");
        rvi_put_buf(out, &item->id);
        rvi_buf_printf(out, ",\"function\":{\"index\":%zu", item->call);
        rvi_put_member(out, "name", item->name.data);
        rvi_buf_puts(out, ",\"arguments\":");
        rvi_items_put_arguments(item, out);
        rvi_buf_puts(out, "}}");
        comma = true;
    }
    rvi_buf_putc(out, ']');
}

/* Text and thoughts, NULL where there are none, and calls, as members of a line. */
static void put_said(const rvi_call *k, const rvi_buf *text, const rvi_buf *thought,
                     const rvi_answer_item *first, const rvi_answer_item *last, rvi_buf *out)
{
    const rvi_buf none = {0};
    bool chat = k->writer == &chat_writer;
    rvi_buf_puts(out,
                 chat ? ",\"message\":{\"role\":\"assistant\",\"content\":" : ",\"response\":");
    rvi_put_buf(out, text ? text : &none);
    if (thought && thought->len) {
        rvi_buf_puts(out, ",\"thinking\":");
        rvi_put_buf(out, thought);
    }
    if (first) put_calls(first, last, out);
    if (chat) rvi_buf_putc(out, '}');
}

static void put_probs(const rvi_call *k, rvi_buf *out)
{
    if (!k->wish.logprobs || !k->choices[0].n_probs) return;
    rvi_buf_puts(out, ",\"logprobs\":");
    rvi_probs_take(&k->choices[0], out);
}

static void put_figures(const rvi_call *k, rvi_buf *out)
{
    const rvi_choice *c = &k->choices[0];
    rvi_usage u = rvi_call_usage(k);
    rvi_buf_printf(out, ",\"done\":true,\"done_reason\":\"%s\"",
                   c->finish == RV_FINISH_LENGTH ? "length" : "stop");
    put_ns(out, "total_duration", rvi_os_seconds() - k->since);
    put_ns(out, "load_duration", 0);
    rvi_buf_printf(out, ",\"prompt_eval_count\":%ld", u.prompt);
    put_ns(out, "prompt_eval_duration", c->prompt_seconds);
    rvi_buf_printf(out, ",\"eval_count\":%ld", u.generated);
    put_ns(out, "eval_duration", c->seconds);
    rvi_call_put_state(k, out);
    rvi_buf_putc(out, '}');
}

static void begin(rvi_call *k)
{
    if (k->wish.stream) rvi_conn_stream(k->conn, "application/x-ndjson", false);
}

static void on_token(rvi_call *k, int choice, const rv_service_event *e)
{
    rvi_probs_add(k, choice, e);
}

/* Text and thoughts as they come; a call when it is whole. */
static void on_said(rvi_call *k, int choice, const rvi_answer_item *item, rvi_item_event event,
                    const char *text, size_t len)
{
    rvi_buf json = {0}, piece = {0};
    bool call = item->kind == RV_SAID_CALL;
    (void)choice;
    if (!k->wish.stream || event != (call ? RVI_ITEM_ENDS : RVI_ITEM_GOES_ON)) return;
    rvi_buf_append(&piece, text, len);
    open_line(k, &json);
    put_said(k, item->kind == RV_SAID_TEXT ? &piece : NULL,
             item->kind == RV_SAID_THOUGHT ? &piece : NULL, call ? item : NULL, item, &json);
    put_probs(k, &json);
    rvi_buf_puts(&json, ",\"done\":false}");
    rvi_reply_line(k->conn, &json);
    rvi_buf_deinit(&piece);
}

static void put_whole(const rvi_call *k, rvi_buf *out)
{
    const rvi_choice *c = &k->choices[0];
    rvi_buf text = {0}, thought = {0};
    rvi_items_join(&c->said, RV_SAID_TEXT, &text);
    rvi_items_join(&c->said, RV_SAID_THOUGHT, &thought);
    bool calls = rvi_items_call(&c->said);
    put_said(k, &text, &thought, calls ? c->said.list : NULL, c->said.list + c->said.n - 1, out);
    if (text.failed || thought.failed) out->failed = true;
    rvi_buf_deinit(&text);
    rvi_buf_deinit(&thought);
}

static void end(rvi_call *k)
{
    rvi_buf json = {0};
    open_line(k, &json);
    if (k->wish.stream)
        put_said(k, NULL, NULL, NULL, NULL, &json);
    else
        put_whole(k, &json);
    put_probs(k, &json);
    put_figures(k, &json);
    if (!k->wish.stream) {
        rvi_reply_json(&rvi_ollama, k->conn, &json);
        return;
    }
    rvi_reply_line(k->conn, &json);
    rvi_conn_end(k->conn);
}

static const rvi_writer chat_writer = {&rvi_ollama, begin, on_token, NULL,
                                       end,         NULL,  on_said,  NULL};
static const rvi_writer generate_writer = {&rvi_ollama, begin, on_token, NULL,
                                           end,         NULL,  on_said,  NULL};

/* ---- what requests share ---- */

/* The model stays as long as there is room for it, or --unload-after says; with a time of 0 it goes
 * when the answer has ended. That concerns everybody. */
static bool read_stay(rvi_call *k, const rvi_json *v)
{
    bool none = (rvi_json_is(v, RVI_JSON_INT) || rvi_json_is(v, RVI_JSON_NUMBER)) &&
                !(rvi_json_number(v, 1) > 0 || rvi_json_number(v, 1) < 0);
    if (rvi_json_is(v, RVI_JSON_STRING)) {
        const char *text = rvi_json_string(v, "");
        none = *text && !strpbrk(text, "123456789");
    }
    k->unloads = none && (k->conn->key->may & RVI_MAY_ADMIN);
    return none == k->unloads ||
           rvi_problem_set(&k->problem, 403, "insufficient_scope", "keep_alive",
                           "keep_alive: to unload a model for all needs the scope admin");
}

static bool check(rvi_call *k)
{
    if (k->wish.n_context > k->s->n_context)
        return rvi_problem_set(&k->problem, 400, "value_out_of_range", "num_ctx",
                               "num_ctx must be 1 to %d (got %d)", k->s->n_context,
                               k->wish.n_context);
    return read_stay(k, rvi_json_get(k->body, "keep_alive"));
}

/* "think": true, false, or an effort. */
static bool read_think(rvi_call *k, int *think)
{
    const rvi_json *v = rvi_json_get(k->body, "think");
    if (!rvi_json_is(v, RVI_JSON_BOOL)) return rvi_tools_effort(k, "think", v, think);
    *think = rvi_json_bool(v, true) ? 0 : RV_THINK_OFF;
    return k->s->thinks || *think == RV_THINK_OFF || rvi_tools_no_thoughts(k, "think");
}

/* The chat has been read. */
static bool submit_chat(rvi_call *k)
{
    rvi_tools_wish w = {0};
    return read_think(k, &w.think) && rvi_tools_open_openai(k, &w) && rvi_call_submit_chat(k);
}

/* A request without a text asks for the model to be in memory, or to go. */
static void reply_loaded(rvi_call *k)
{
    rvi_buf json = {0};
    open_line(k, &json);
    put_said(k, NULL, NULL, NULL, NULL, &json);
    rvi_buf_printf(&json, ",\"done\":true,\"done_reason\":\"%s\"}", k->unloads ? "unload" : "load");
    rvi_reply_json(&rvi_ollama, k->conn, &json);
    rvi_call_drop(k);
}

/* ---- chat ---- */

static bool read_message(const rvi_json *v, rvi_messages *m, rvi_problem *p)
{
    const rvi_json *content = rvi_json_get(v, "content");
    const char *role = rvi_json_string(rvi_json_get(v, "role"), "");
    rvi_buf text = {0};
    if (!rvi_messages_lists(" system user assistant tool ", role))
        return rvi_problem_set(p, 400, "invalid_value", "messages",
                               "messages[%zu].role must be system, user, assistant or tool", m->n);
    if (rvi_json_count(rvi_json_get(v, "images")))
        return rvi_problem_set(p, 400, "unsupported_content", "messages",
                               "messages[%zu].images: only texts are taken", m->n);
    if (content && !rvi_json_is(content, RVI_JSON_STRING) && !rvi_json_is(content, RVI_JSON_NULL))
        return rvi_problem_set(p, 400, "invalid_type", "messages",
                               "messages[%zu].content must be a string", m->n);
    if (rvi_json_is(content, RVI_JSON_STRING))
        rvi_buf_append(&text, content->as.string.data, content->as.string.len);
    rvi_messages_add(m, role, &text, v);
    return true;
}

void rvi_ollama_chat(rvi_serving *s, rvi_conn *c)
{
    rvi_call *k = rvi_call_new(s, c, &chat_writer, RVI_FOR_TALK, "chat-");
    if (!k) return;
    const rvi_json *list = rvi_json_get(k->body, "messages");
    bool ok = check(k);
    if (ok && !rvi_json_count(list) && (!list || !rvi_json_is(list, RVI_JSON_STRING))) {
        reply_loaded(k);
        return;
    }
    if (ok && !rvi_json_is(list, RVI_JSON_ARRAY))
        ok = rvi_problem_set(&k->problem, 400, "invalid_type", "messages",
                             "messages must be a list");
    if (ok) {
        rvi_messages m = rvi_messages_begin(&k->chat, &k->question);
        for (size_t i = 0; ok && i < rvi_json_count(list); i++)
            ok = read_message(rvi_json_at(list, i), &m, &k->problem);
        if (ok && rvi_messages_end(&m, &k->problem)) (void)submit_chat(k);
    }
    rvi_call_start(k);
}

/* ---- generate ---- */

static bool submit_raw(rvi_call *k)
{
    rvi_prompt *prompts;
    int n;
    if (!rvi_prompts_read(k->s->model, rvi_json_get(k->body, "prompt"), "prompt",
                          RV_TOKENIZE_BOS | RV_TOKENIZE_SPECIAL, &k->arena, &prompts, &n,
                          &k->problem) ||
        !rvi_call_parts(k, 1, 1))
        return false;
    rv_request r = {.kind = RV_REQUEST_ANSWER, .ids = prompts[0].ids, .n_ids = prompts[0].n};
    return rvi_call_submit(k, 0, &r);
}

static bool submit_prompt(rvi_call *k, const rvi_json *prompt)
{
    const rvi_json *parts[] = {rvi_json_get(k->body, "system"), prompt};
    static const char *const roles[] = {"system", "user"}, *const names[] = {"system", "prompt"};
    rvi_messages m = rvi_messages_begin(&k->chat, &k->question);
    for (size_t i = 0; i < RVI_COUNT(parts); i++) {
        rvi_buf text = {0};
        if (!parts[i] || rvi_json_is(parts[i], RVI_JSON_NULL)) continue;
        if (!rvi_json_is(parts[i], RVI_JSON_STRING))
            return rvi_problem_set(&k->problem, 400, "invalid_type", names[i],
                                   "%s must be a string", names[i]);
        rvi_buf_append(&text, parts[i]->as.string.data, parts[i]->as.string.len);
        if (i || text.len) rvi_messages_add(&m, roles[i], &text, NULL);
        rvi_buf_deinit(&text);
    }
    return rvi_messages_end(&m, &k->problem) && submit_chat(k);
}

void rvi_ollama_generate(rvi_serving *s, rvi_conn *c)
{
    rvi_call *k = rvi_call_new(s, c, &generate_writer, RVI_FOR_GENERATE, "gen-");
    if (!k) return;
    const rvi_json *prompt = rvi_json_get(k->body, "prompt");
    bool ok = check(k);
    if (ok && (!prompt || rvi_json_is(prompt, RVI_JSON_NULL) || rvi_json_is_string(prompt, ""))) {
        reply_loaded(k);
        return;
    }
    if (ok) (void)(k->wish.raw ? submit_raw(k) : submit_prompt(k, prompt));
    rvi_call_start(k);
}

/* ---- vectors ---- */

static void end_embed(rvi_call *k)
{
    rvi_buf out = {0};
    rvi_buf_puts(&out, "{\"model\":");
    rvi_put_text(&out, k->model);
    rvi_buf_puts(&out, ",\"embeddings\":[");
    for (int i = 0; i < k->n_parts; i++) {
        if (i) rvi_buf_putc(&out, ',');
        rvi_put_floats(&out, k->parts[i].values, rvi_vectors_size(k, i));
    }
    rvi_buf_putc(&out, ']');
    put_ns(&out, "total_duration", rvi_os_seconds() - k->since);
    put_ns(&out, "load_duration", 0);
    rvi_buf_printf(&out, ",\"prompt_eval_count\":%ld}", rvi_call_usage(k).prompt);
    rvi_reply_json(&rvi_ollama, k->conn, &out);
}

static void end_embeddings(rvi_call *k)
{
    rvi_buf out = {0};
    rvi_buf_puts(&out, "{\"embedding\":");
    rvi_put_floats(&out, k->parts[0].values, rvi_vectors_size(k, 0));
    rvi_buf_putc(&out, '}');
    rvi_reply_json(&rvi_ollama, k->conn, &out);
}

static const rvi_writer embed_writer = {.dialect = &rvi_ollama, .end = end_embed};
static const rvi_writer embeddings_writer = {.dialect = &rvi_ollama, .end = end_embeddings};

static void embed(rvi_serving *s, rvi_conn *c, const rvi_writer *w, const char *field)
{
    rvi_call *k = rvi_call_new(s, c, w, RVI_FOR_VECTORS, "embd-");
    if (!k) return;
    if (check(k)) (void)rvi_vectors_submit(k, field, k->wish.truncate);
    rvi_call_start(k);
}

void rvi_ollama_embed(rvi_serving *s, rvi_conn *c)
{
    embed(s, c, &embed_writer, "input");
}

void rvi_ollama_embeddings(rvi_serving *s, rvi_conn *c)
{
    embed(s, c, &embeddings_writer, "prompt");
}
