#include "calls/prompt.h"

#include <string.h>

typedef struct writer {
    rvi_arena *arena;
    rvi_prompt_way way;
    const rvi_family *family;
    bool failed;
} writer;

static void *take(writer *w, size_t n, size_t size)
{
    void *p = rvi_arena_alloc(w->arena, n ? n : 1, size);
    w->failed = w->failed || !p;
    return p;
}

/* Moves what was written to the arena, as a text. */
static rvi_json text_of(writer *w, rvi_buf *b)
{
    rvi_json v = {.kind = RVI_JSON_STRING};
    v.as.string.data =
        b->failed ? NULL : rvi_arena_strndup(w->arena, b->data ? b->data : "", b->len);
    v.as.string.len = b->len;
    w->failed = w->failed || !v.as.string.data;
    if (!v.as.string.data) v.as.string.data = "";
    if (w->failed) v.as.string.len = 0;
    rvi_buf_deinit(b);
    return v;
}

/* The object with another value for one member, which is added if it has none. */
static rvi_json with_member(writer *w, const rvi_json *object, rvi_json value)
{
    size_t n = rvi_json_count(object), k = 0;
    rvi_json *items = take(w, n + 1, sizeof *items), out = *object;
    if (!items) return out;
    for (size_t i = 0; i < n; i++) {
        const rvi_json *x = rvi_json_at(object, i);
        bool same = x->key_len == value.key_len && !memcmp(x->key, value.key, x->key_len);
        if (!same) items[k++] = *x;
    }
    items[k++] = value;
    out.as.list.items = items;
    out.as.list.count = k;
    return out;
}

static bool has_role(const rvi_json *message, const char *role)
{
    return rvi_json_is_string(rvi_json_get(message, "role"), role);
}

static const rvi_json *calls_of(const rvi_json *message)
{
    const rvi_json *calls = rvi_json_get(message, "tool_calls");
    return rvi_json_is(calls, RVI_JSON_ARRAY) && rvi_json_count(calls) ? calls : NULL;
}

bool rvi_prompt_has_tools(const rvi_json *conversation)
{
    const rvi_json *messages = rvi_json_get(conversation, "messages");
    if (rvi_json_count(rvi_json_get(conversation, "tools"))) return true;
    for (size_t i = 0; i < rvi_json_count(messages); i++)
        if (has_role(rvi_json_at(messages, i), "tool") || calls_of(rvi_json_at(messages, i)))
            return true;
    return false;
}

/* ---- the template's own way ---- */

/* The arguments as an object or as a text, whichever is wanted; what cannot be read stays. */
static rvi_json wanted_arguments(writer *w, const rvi_json *given)
{
    const rvi_json *object;
    rvi_buf text = {0};
    bool texts = w->way == RVI_PROMPT_TEXTS || w->way == RVI_PROMPT_TEXTS_SAID;
    if (texts && given->kind == RVI_JSON_OBJECT) {
        rvi_json_write(&text, given);
        return rvi_json_named(text_of(w, &text), "arguments");
    }
    if (!texts && given->kind == RVI_JSON_STRING &&
        !rvi_json_parse(&object, given->as.string.data, given->as.string.len, w->arena, "arguments",
                        NULL) &&
        object->kind == RVI_JSON_OBJECT)
        return rvi_json_named(*object, "arguments");
    return *given;
}

static rvi_json wanted_call(writer *w, const rvi_json *call)
{
    const rvi_json *f = rvi_json_get(call, "function");
    const rvi_json *arguments = rvi_json_get(f ? f : call, "arguments");
    if (!arguments) return *call;
    rvi_json inner = with_member(w, f ? f : call, wanted_arguments(w, arguments));
    return f ? with_member(w, call, rvi_json_named(inner, "function")) : inner;
}

static rvi_json wanted_message(writer *w, const rvi_json *message)
{
    const rvi_json *calls = calls_of(message);
    size_t n = rvi_json_count(calls);
    rvi_json *items = calls ? take(w, n, sizeof *items) : NULL, out = *message;
    if (!items) return out;
    for (size_t i = 0; i < n; i++) items[i] = wanted_call(w, rvi_json_at(calls, i));
    out = with_member(w, message,
                      rvi_json_named(rvi_json_list(RVI_JSON_ARRAY, items, n), "tool_calls"));
    const rvi_json *content = rvi_json_get(message, "content");
    rvi_json none = {.kind = RVI_JSON_NULL};
    if (w->way == RVI_PROMPT_SAID || w->way == RVI_PROMPT_TEXTS_SAID) {
        none.kind = RVI_JSON_STRING;
        none.as.string.data = "";
    }
    if (!content || content->kind == RVI_JSON_NULL)
        out = with_member(w, &out, rvi_json_named(none, "content"));
    return out;
}

/* ---- described in words ---- */

static const char before_tools[] =
    "You can call functions. They are described here as JSON:\n<tools>\n";
static const char behind_tools[] =
    "</tools>\n\nTo call one, write its name and arguments as a JSON object between tags, and "
    "nothing "
    "behind it:\n<tool_call>\n{\"name\": \"function name\", \"arguments\": {\"argument\": "
    "\"value\"}}\n</tool_call>\nThe result comes back between <tool_response> tags. Answer "
    "directly "
    "where no function is needed.";

static void put_content(rvi_buf *out, const rvi_json *content)
{
    if (rvi_json_is(content, RVI_JSON_STRING))
        rvi_buf_append(out, content->as.string.data, content->as.string.len);
    for (size_t i = 0; rvi_json_is(content, RVI_JSON_ARRAY) && i < rvi_json_count(content); i++) {
        const rvi_json *text = rvi_json_get(rvi_json_at(content, i), "text");
        if (i) rvi_buf_putc(out, '\n');
        if (text) put_content(out, text);
    }
}

static void put_tools(rvi_buf *out, const rvi_json *tools)
{
    rvi_buf_puts(out, before_tools);
    for (size_t i = 0; i < rvi_json_count(tools); i++) {
        const rvi_json *f = rvi_json_get(rvi_json_at(tools, i), "function");
        rvi_json_write(out, f ? f : rvi_json_at(tools, i));
        rvi_buf_putc(out, '\n');
    }
    rvi_buf_puts(out, behind_tools);
}

static void put_text(rvi_buf *out, const char *text)
{
    if (text) rvi_buf_puts(out, text);
}

static void put_call(rvi_buf *out, const rvi_family *family, const rvi_json *call)
{
    const rvi_json *f = rvi_json_get(call, "function");
    const rvi_json *name = rvi_json_get(f ? f : call, "name"),
                   *arguments = rvi_json_get(f ? f : call, "arguments");
    put_text(out, family->open);
    rvi_buf_puts(out, "{\"name\": ");
    rvi_json_write_string(out, rvi_json_string(name, ""), strlen(rvi_json_string(name, "")));
    rvi_buf_printf(out, ", \"%s\": ", family->arguments);
    if (rvi_json_is(arguments, RVI_JSON_STRING))
        put_content(out, arguments);
    else if (arguments)
        rvi_json_write(out, arguments);
    else
        rvi_buf_puts(out, "{}");
    rvi_buf_putc(out, '}');
    put_text(out, family->close);
}

static rvi_json message_of(writer *w, const char *role, rvi_buf *content)
{
    rvi_json *items = take(w, 2, sizeof *items);
    if (!items) return (rvi_json){0};
    items[0] = rvi_json_named((rvi_json){.kind = RVI_JSON_STRING}, "role");
    items[0].as.string.data = role;
    items[0].as.string.len = strlen(role);
    items[1] = rvi_json_named(text_of(w, content), "content");
    return rvi_json_list(RVI_JSON_OBJECT, items, 2);
}

/* Results one after the other become one turn. */
static rvi_json told_results(writer *w, const rvi_json *messages, size_t *at)
{
    rvi_buf text = {0};
    for (size_t i = *at; i < rvi_json_count(messages); i++) {
        const rvi_json *m = rvi_json_at(messages, i);
        if (!has_role(m, "tool")) break;
        rvi_buf_puts(&text, i > *at ? "\n<tool_response>\n" : "<tool_response>\n");
        put_content(&text, rvi_json_get(m, "content"));
        rvi_buf_puts(&text, "\n</tool_response>");
        if (i > *at) *at = i;
    }
    return message_of(w, "user", &text);
}

static rvi_json told_calls(writer *w, const rvi_json *message)
{
    const rvi_json *calls = calls_of(message);
    rvi_buf text = {0};
    put_content(&text, rvi_json_get(message, "content"));
    if (text.len) rvi_buf_putc(&text, '\n');
    put_text(&text, w->family->section_open);
    for (size_t i = 0; i < rvi_json_count(calls); i++) {
        if (i) put_text(&text, w->family->between);
        put_call(&text, w->family, rvi_json_at(calls, i));
    }
    put_text(&text, w->family->section_close);
    return message_of(w, "assistant", &text);
}

/* The system turn with the tools as a member of it; message NULL: there is none. */
static rvi_json with_tools(writer *w, const rvi_json *tools, const rvi_json *message)
{
    rvi_buf list = {0}, content = {0};
    rvi_json turn;
    rvi_buf_putc(&list, '[');
    for (size_t i = 0; i < rvi_json_count(tools); i++) {
        const rvi_json *f = rvi_json_get(rvi_json_at(tools, i), "function");
        if (i) rvi_buf_puts(&list, ", ");
        rvi_json_write(&list, f ? f : rvi_json_at(tools, i));
    }
    rvi_buf_putc(&list, ']');
    if (message) {
        turn = *message;
    } else {
        rvi_buf_puts(&content, "You are a helpful assistant with some tools.");
        turn = message_of(w, "system", &content);
    }
    return with_member(w, &turn, rvi_json_named(text_of(w, &list), "tools"));
}

static rvi_json told_tools(writer *w, const rvi_json *tools, const rvi_json *message)
{
    rvi_buf text = {0};
    bool system = w->way == RVI_PROMPT_IN_SYSTEM;
    if (w->way == RVI_PROMPT_IN_MESSAGE) return with_tools(w, tools, message);
    if (system && message) put_content(&text, rvi_json_get(message, "content"));
    if (system && text.len) rvi_buf_puts(&text, "\n\n");
    put_tools(&text, tools);
    if (!system) rvi_buf_puts(&text, "\n\n");
    if (!system) put_content(&text, rvi_json_get(message, "content"));
    if (!message) return message_of(w, "system", &text);
    return with_member(w, message, rvi_json_named(text_of(w, &text), "content"));
}

static size_t told_messages(writer *w, const rvi_json *messages, const rvi_json *tools,
                            rvi_json *items)
{
    bool in_user = w->way == RVI_PROMPT_IN_USER;
    const char *role = in_user ? "user" : "system";
    size_t n = 0, host = 0, count = rvi_json_count(messages);
    while (host < count && !has_role(rvi_json_at(messages, host), role)) host++;
    bool has_tools = rvi_json_count(tools) > 0;
    if (has_tools && host == count && !in_user) items[n++] = told_tools(w, tools, NULL);
    for (size_t i = 0; i < count; i++) {
        const rvi_json *m = rvi_json_at(messages, i);
        if (has_tools && i == host)
            items[n++] = told_tools(w, tools, m);
        else if (has_role(m, "tool") && w->way != RVI_PROMPT_IN_MESSAGE)
            items[n++] = told_results(w, messages, &i);
        else
            items[n++] = calls_of(m) ? told_calls(w, m) : *m;
    }
    return n;
}

rv_status rvi_prompt_adapt(const rvi_json **out, const rvi_json *conversation, rvi_prompt_way way,
                           const rvi_family *family, rvi_arena *arena, rv_error *err)
{
    writer w = {.arena = arena, .way = way, .family = family};
    const rvi_json *messages = rvi_json_get(conversation, "messages"),
                   *tools = rvi_json_get(conversation, "tools");
    size_t n = rvi_json_count(messages);
    rvi_json *items = take(&w, n + 1, sizeof *items), *root = take(&w, 1, sizeof *root);
    *out = NULL;
    if (w.failed) return rvi_nomem(err, "chat");
    if (way < RVI_PROMPT_IN_SYSTEM) {
        for (size_t i = 0; i < n; i++) items[i] = wanted_message(&w, rvi_json_at(messages, i));
    } else {
        n = told_messages(&w, messages, tools, items);
    }
    *root = with_member(&w, conversation,
                        rvi_json_named(rvi_json_list(RVI_JSON_ARRAY, items, n), "messages"));
    /* an empty list, for some templates go through it without looking whether there is one */
    if (tools && way >= RVI_PROMPT_IN_SYSTEM)
        *root =
            with_member(&w, root, rvi_json_named(rvi_json_list(RVI_JSON_ARRAY, NULL, 0), "tools"));
    if (w.failed) return rvi_nomem(err, "chat");
    *out = root;
    return RV_OK;
}
