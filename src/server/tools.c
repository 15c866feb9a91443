#include "server/tools.h"

#include <string.h>

#include "base/os.h"

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

/* ---- what the template is told ---- */

/* ,"name":value behind the messages of the chat */
static void tell(rvi_buf *chat, const char *name, const char *value, size_t len)
{
    if (chat->len) chat->len--; /* the brace */
    rvi_buf_printf(chat, ",\"%s\":", name);
    rvi_buf_append(chat, value, len);
    rvi_buf_putc(chat, '}');
}

/* vLLM's and llama-server's chat_template_kwargs: more variables. */
static bool tell_variables(rvi_call *k)
{
    const rvi_json *v = rvi_json_get(k->body, "chat_template_kwargs");
    rvi_buf value = {0};
    if (!is_given(v)) return true;
    if (!rvi_json_is(v, RVI_JSON_OBJECT))
        return rvi_problem_set(&k->problem, 400, "invalid_type", "chat_template_kwargs",
                               "chat_template_kwargs must be an object");
    for (size_t i = 0; i < rvi_json_count(v); i++) {
        const rvi_json *one = rvi_json_at(v, i);
        static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_";
        if (!*one->key || strspn(one->key, letters) != strlen(one->key) ||
            !strcmp(one->key, "messages") || !strcmp(one->key, "tools") ||
            !strcmp(one->key, "enable_thinking"))
            continue;
        value.len = 0;
        rvi_json_write(&value, one);
        tell(&k->chat, one->key, value.data, value.len);
    }
    if (value.failed) k->chat.failed = true;
    rvi_buf_deinit(&value);
    return true;
}

/* ---- thinking ---- */

bool rvi_tools_no_thoughts(rvi_call *k, const char *field)
{
    return rvi_problem_set(&k->problem, 400, "unsupported_parameter", field,
                           "%s: the model's chat template knows no thinking", field);
}

bool rvi_tools_effort(rvi_call *k, const char *field, const rvi_json *v, int *think)
{
    static const struct {
        const char *word;
        int tokens;
    } efforts[] = {
        {"none", RV_THINK_OFF}, {"minimal", 256}, {"low", 1024}, {"medium", 4096}, {"high", 0},
        {"xhigh", 0},           {"max", 0}};
    if (!is_given(v)) return true;
    for (size_t i = 0; i < RVI_COUNT(efforts); i++) {
        if (!rvi_json_is_string(v, efforts[i].word)) continue;
        *think = efforts[i].tokens;
        return k->s->thinks || *think == RV_THINK_OFF || rvi_tools_no_thoughts(k, field);
    }
    return rvi_problem_set(&k->problem, 400, "invalid_value", field,
                           "%s must be none, minimal, low, medium, high, xhigh or max", field);
}

/* {"enable_thinking": false} among the variables ends it too. */
static void read_switch(const rvi_call *k, int *think)
{
    const rvi_json *v =
        rvi_json_get(rvi_json_get(k->body, "chat_template_kwargs"), "enable_thinking");
    if (rvi_json_is(v, RVI_JSON_BOOL) && !rvi_json_bool(v, true)) *think = RV_THINK_OFF;
}

/* ---- tools ---- */

static bool wants_none(const rvi_tools_wish *w)
{
    return w->choice.len == 4 && !memcmp(w->choice.data, "none", 4);
}

static bool has_tools(const rvi_tools_wish *w)
{
    return w->list.len > 2; /* [] are none */
}

void rvi_tools_add(rvi_tools_wish *w, const rvi_json *name, const rvi_json *about,
                   const rvi_json *parameters)
{
    const rvi_json *const values[] = {name, about, parameters};
    static const char *const names[] = {"name", "description", "parameters"};
    bool comma = false;
    if (w->list.len)
        w->list.data[w->list.len - 1] = ','; /* the bracket */
    else
        rvi_buf_putc(&w->list, '[');
    rvi_buf_puts(&w->list, "{\"type\":\"function\",\"function\":{");
    for (size_t i = 0; i < RVI_COUNT(values); i++) {
        if (!is_given(values[i])) continue;
        rvi_buf_printf(&w->list, "%s\"%s\":", comma ? "," : "", names[i]);
        rvi_json_write(&w->list, values[i]);
        comma = true;
    }
    rvi_buf_puts(&w->list, "}}]");
}

void rvi_tools_tell(const rvi_tools_wish *w, rvi_buf *chat)
{
    if (has_tools(w) && !wants_none(w)) tell(chat, "tools", w->list.data, w->list.len);
    if (w->list.failed) chat->failed = true;
}

void rvi_tools_drop(rvi_tools_wish *w)
{
    rvi_buf_deinit(&w->list);
    rvi_buf_deinit(&w->choice);
    *w = (rvi_tools_wish){0};
}

static rv_status make(rvi_call *k, const rvi_tools_wish *w, rv_error *err)
{
    const rvi_answer_form *form = &k->wish.form;
    rvi_buf text = {0};
    rv_tools_options o = {.size = sizeof o,
                          .tools = w->list.len ? w->list.data : NULL,
                          .choice = w->choice.len ? w->choice.data : NULL,
                          .one_call = w->one_call,
                          .think = k->s->thinks ? w->think : 0,
                          .form = form->kind,
                          .seed = rvi_os_random()};
    bool ok = put_source(&text, form->source) && !w->list.failed && !w->choice.failed;
    if (form->field) o.form_text = text.data;
    o.form_len = text.len;
    rv_status st = ok ? rv_tools_new(&k->tools, k->s->model, &o, err) : rvi_nomem(err, "tools");
    rvi_buf_deinit(&text);
    return st;
}

bool rvi_tools_open(rvi_call *k, rvi_tools_wish *w)
{
    rv_error err = {0};
    rv_status st = RV_OK;
    bool tools = has_tools(w);
    if (!tools) w->list.len = w->choice.len = 0;
    read_switch(k, &w->think);
    if (w->bare) w->think = RV_THINK_OFF;
    bool ok = tell_variables(k);
    if (ok && (tools || (k->s->thinks && !w->bare))) st = make(k, w, &err);
    if (ok && !st) rvi_tools_tell(w, &k->chat);
    if (ok && !st && k->s->thinks) {
        const char *on = w->think == RV_THINK_OFF ? "false" : "true";
        tell(&k->chat, "enable_thinking", on, strlen(on));
    }
    rvi_tools_drop(w);
    if (st == RV_E_NOMEM) return rvi_problem_from(&k->problem, st, &err);
    if (st) return rvi_problem_set(&k->problem, 400, "invalid_tools", "tools", "%s", err.text);
    return ok;
}

bool rvi_tools_open_openai(rvi_call *k, rvi_tools_wish *w)
{
    const rvi_json *tools = rvi_json_get(k->body, "tools"),
                   *choice = rvi_json_get(k->body, "tool_choice");
    if (is_given(tools) && !rvi_json_is(tools, RVI_JSON_ARRAY))
        return rvi_problem_set(&k->problem, 400, "invalid_type", "tools", "tools must be a list");
    if (is_given(tools)) (void)put_source(&w->list, tools);
    if (is_given(choice)) (void)put_source(&w->choice, choice);
    w->one_call = !rvi_json_bool(rvi_json_get(k->body, "parallel_tool_calls"), true);
    return rvi_tools_open(k, w);
}
