#include "server/messages.h"

#include <stdio.h>
#include <string.h>

#include "server/reply.h"

rvi_messages rvi_messages_begin(rvi_buf *chat, rvi_buf *question)
{
    rvi_buf_puts(chat, "{\"messages\":[");
    return (rvi_messages){.chat = chat, .question = question};
}

static void close_message(rvi_messages *m)
{
    if (m->open) rvi_buf_puts(m->chat, m->n_calls ? "]}" : "}");
    m->open = false;
    m->n_calls = 0;
}

/* The message up to its content. */
static void open_message(rvi_messages *m, const char *role, rvi_buf *text)
{
    close_message(m);
    rvi_buf_printf(m->chat, "%s{\"role\":\"%s\",\"content\":", m->n++ ? "," : "", role);
    rvi_put_buf(m->chat, text);
    m->open = true;
    m->own = !strcmp(role, "assistant");
    if (!strcmp(role, "user")) {
        m->question->len = 0;
        rvi_buf_append(m->question, text->len ? text->data : "", text->len);
    }
    rvi_buf_deinit(text);
    *text = (rvi_buf){0};
}

void rvi_messages_add(rvi_messages *m, const char *role, rvi_buf *text, const rvi_json *from)
{
    static const char *const kept[] = {"name", "tool_calls", "tool_call_id", "reasoning_content"};
    open_message(m, role, text);
    for (size_t k = 0; k < RVI_COUNT(kept); k++) {
        const rvi_json *v = rvi_json_get(from, kept[k]);
        if (!v || rvi_json_is(v, RVI_JSON_NULL)) continue;
        rvi_buf_printf(m->chat, ",\"%s\":", kept[k]);
        rvi_json_write(m->chat, v);
        if (k == 1) m->own = false; /* has its calls */
    }
}

void rvi_messages_call(rvi_messages *m, const char *id, const char *name, const rvi_json *arguments)
{
    rvi_buf none = {0};
    if (!m->open || !m->own) open_message(m, "assistant", &none);
    rvi_buf_puts(m->chat, m->n_calls++ ? "," : ",\"tool_calls\":[");
    rvi_buf_puts(m->chat, "{\"type\":\"function\"");
    rvi_put_member(m->chat, "id", id);
    rvi_buf_puts(m->chat, ",\"function\":{\"name\":");
    rvi_put_text(m->chat, name);
    rvi_buf_puts(m->chat, ",\"arguments\":");
    if (arguments)
        rvi_json_write(m->chat, arguments);
    else
        rvi_buf_puts(m->chat, "{}");
    rvi_buf_puts(m->chat, "}}");
}

void rvi_messages_thought(rvi_messages *m, rvi_buf *text)
{
    if (text->len && m->open) rvi_put_member(m->chat, "reasoning_content", text->data);
    if (text->failed) m->chat->failed = true;
    rvi_buf_deinit(text);
    *text = (rvi_buf){0};
}

void rvi_messages_result(rvi_messages *m, const char *id, rvi_buf *text)
{
    open_message(m, "tool", text);
    rvi_put_member(m->chat, "tool_call_id", id);
}

bool rvi_messages_end(rvi_messages *m, rvi_problem *p)
{
    close_message(m);
    rvi_buf_puts(m->chat, "]}");
    return !m->chat->failed || rvi_problem_set(p, 503, NULL, NULL, "out of memory");
}

bool rvi_messages_lists(const char *list, const char *word)
{
    char between[48];
    if (strlen(word) > 40 || strchr(word, ' ')) return false;
    snprintf(between, sizeof between, " %s ", word);
    return strstr(list, between);
}

bool rvi_messages_content(const rvi_parts_rule *rule, const char *place, const rvi_json *v,
                          rvi_buf *out, rvi_problem *p)
{
    if (rvi_json_is(v, RVI_JSON_STRING)) {
        rvi_buf_append(out, v->as.string.data, v->as.string.len);
        return true;
    }
    if (!rvi_json_is(v, RVI_JSON_ARRAY))
        return rvi_problem_set(p, 400, "invalid_type", rule->field,
                               "%s must be a string or a list of parts", place);
    size_t taken = 0;
    for (size_t k = 0; k < rvi_json_count(v); k++) {
        const rvi_json *part = rvi_json_at(v, k), *text = rvi_json_get(part, "text");
        const char *type = rvi_json_string(rvi_json_get(part, "type"), "");
        if (rvi_messages_lists(rule->passed, type)) continue;
        if (!rvi_messages_lists(rule->types, type) || !rvi_json_is(text, RVI_JSON_STRING))
            return rvi_problem_set(p, 400, "unsupported_content", rule->field,
                                   "%s[%zu]: only parts of text are taken, of type%s(got '%.40s')",
                                   place, k, rule->types, type);
        if (taken++) rvi_buf_putc(out, '\n');
        rvi_buf_append(out, text->as.string.data, text->as.string.len);
    }
    return true;
}
