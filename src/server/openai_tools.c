/* Tools of /v1/chat/completions: from "tools" and "tool_choice" to what holds the answers, and from
 * their text, as it comes, to calls. */
#include "server/openai_tools.h"

#include <string.h>

#include "base/os.h"
#include "server/reply.h"

static bool is_given(const rvi_json *v)
{
    return v && !rvi_json_is(v, RVI_JSON_NULL);
}

/* A text as it is, anything else as JSON. False: no memory. */
static bool put_source(rvi_buf *out, const rvi_json *v)
{
    if (rvi_json_is(v, RVI_JSON_STRING))
        rvi_buf_append(out, v->as.string.data, v->as.string.len);
    else if (v)
        rvi_json_write(out, v);
    return rvi_buf_puts(out, "");
}

/* ,"tools":[...] behind the messages of the chat */
static void tell(rvi_call *k, const rvi_json *tools)
{
    if (k->chat.len) k->chat.len--; /* the brace */
    rvi_buf_puts(&k->chat, ",\"tools\":");
    rvi_json_write(&k->chat, tools);
    rvi_buf_putc(&k->chat, '}');
}

bool rvi_openai_tools(rvi_call *k)
{
    const rvi_json *tools = rvi_json_get(k->body, "tools"),
                   *choice = rvi_json_get(k->body, "tool_choice");
    const rvi_answer_form *form = &k->wish.form;
    rvi_buf list = {0}, chosen = {0}, text = {0};
    rv_error err = {0};
    if (!is_given(tools)) return true;
    if (!rvi_json_is(tools, RVI_JSON_ARRAY))
        return rvi_problem_set(&k->problem, 400, "invalid_type", "tools", "tools must be a list");
    if (!rvi_json_count(tools)) return true;
    rv_tools_options o = {.size = sizeof o,
                          .form = form->kind,
                          .one_call =
                              !rvi_json_bool(rvi_json_get(k->body, "parallel_tool_calls"), true),
                          .seed = rvi_os_random()};
    bool ok = put_source(&list, tools) && put_source(&text, form->source) &&
              (!is_given(choice) || put_source(&chosen, choice));
    o.tools = list.data;
    o.choice = is_given(choice) ? chosen.data : NULL;
    if (form->field) o.form_text = text.data;
    o.form_len = text.len;
    rv_status st = ok ? rv_tools_new(&k->tools, k->s->model, &o, &err) : rvi_nomem(&err, "tools");
    if (!st && !rvi_json_is_string(choice, "none")) tell(k, tools);
    rvi_buf_deinit(&list);
    rvi_buf_deinit(&chosen);
    rvi_buf_deinit(&text);
    if (st == RV_E_NOMEM) return rvi_problem_from(&k->problem, st, &err);
    return !st || rvi_problem_set(&k->problem, 400, "invalid_tools", "tools", "%s", err.text);
}

/* ---- as it comes ---- */

typedef struct hearing {
    rvi_call *call;
    int choice;
    rv_tools_reader *reader;
    bool calls;
    rvi_hear *hear;
} hearing;

/* As members of a delta; arguments are a text that holds JSON. */
static int on_said(void *ctx, const rv_said *s)
{
    hearing *h = ctx;
    rvi_buf delta = {0};
    switch (s->kind) {
    case RV_SAID_TEXT:
    case RV_SAID_THOUGHT:
        rvi_buf_puts(&delta, s->kind == RV_SAID_TEXT ? "{\"content\":" : "{\"reasoning_content\":");
        rvi_json_write_string(&delta, s->text, s->text_len);
        rvi_buf_putc(&delta, '}');
        break;
    case RV_SAID_CALL:
        h->calls = true;
        rvi_buf_printf(&delta, "{\"tool_calls\":[{\"index\":%zu", s->index);
        rvi_put_member(&delta, "id", s->id);
        rvi_buf_puts(&delta, ",\"type\":\"function\",\"function\":{\"name\":");
        rvi_put_text(&delta, s->name);
        rvi_buf_puts(&delta, ",\"arguments\":\"\"}}]}");
        break;
    case RV_SAID_ARGUMENTS:
        rvi_buf_printf(&delta,
                       "{\"tool_calls\":[{\"index\":%zu,\"function\":{\"arguments\":", s->index);
        rvi_json_write_string(&delta, s->text, s->text_len);
        rvi_buf_puts(&delta, "}}]}");
        break;
    case RV_SAID_CALL_END: break;
    }
    if (delta.len && !delta.failed && h->hear) h->hear(h->call, h->choice, &delta);
    rvi_buf_deinit(&delta);
    return 0;
}

/* Of a choice, made at its first text; NULL: no memory. */
static hearing *hearing_of(rvi_call *k, int choice)
{
    rv_error err;
    hearing *all = k->own;
    if (!all) k->own = all = rvi_arena_alloc(&k->arena, (size_t)k->n_choices, sizeof *all);
    if (!all) return NULL;
    hearing *h = &all[choice];
    if (!h->reader) {
        *h = (hearing){.call = k, .choice = choice};
        if (rv_tools_reader_new(&h->reader, k->tools, on_said, h, &err)) return NULL;
    }
    return h;
}

void rvi_openai_hear(rvi_call *k, int choice, const char *text, size_t len, rvi_hear *hear)
{
    rv_error err;
    hearing *h = hearing_of(k, choice);
    if (!h) return;
    h->hear = hear;
    (void)rv_tools_read(h->reader, text, len, &err);
}

bool rvi_openai_heard(rvi_call *k, int choice, rvi_hear *hear)
{
    rv_error err;
    hearing *h = hearing_of(k, choice);
    if (!h) return false;
    h->hear = hear;
    (void)rv_tools_read_end(h->reader, &err);
    return h->calls;
}

void rvi_openai_stop_hearing(rvi_call *k)
{
    hearing *all = k->own;
    for (int i = 0; all && i < k->n_choices; i++) rv_tools_reader_free(&all[i].reader);
}

/* ---- whole ---- */

bool rvi_openai_put_message(rvi_call *k, int choice, rvi_buf *out)
{
    const rvi_buf *text = &k->choices[choice].text;
    char *message = NULL;
    rv_error err;
    if (rv_tools_message(k->tools, text->len ? text->data : "", text->len, &message, &err)) {
        out->failed = true;
        return false;
    }
    bool calls = strstr(message, "\"tool_calls\":[") && rvi_openai_heard(k, choice, NULL);
    rvi_buf_puts(out, "{\"role\":\"assistant\",");
    rvi_buf_puts(out, message + 1); /* behind its brace */
    rv_free(message);
    return calls;
}
