#include "server/messages.h"

#include <stdio.h>
#include <string.h>

#include "server/reply.h"

rvi_messages rvi_messages_begin(rvi_buf *chat, rvi_buf *question)
{
    rvi_buf_puts(chat, "{\"messages\":[");
    return (rvi_messages){.chat = chat, .question = question};
}

void rvi_messages_add(rvi_messages *m, const char *role, rvi_buf *text, const rvi_json *from)
{
    static const char *const kept[] = {"name", "tool_calls", "tool_call_id"};
    rvi_buf_printf(m->chat, "%s{\"role\":\"%s\",\"content\":", m->n++ ? "," : "", role);
    rvi_put_buf(m->chat, text);
    for (size_t k = 0; k < RVI_COUNT(kept); k++) {
        const rvi_json *v = rvi_json_get(from, kept[k]);
        if (!v || rvi_json_is(v, RVI_JSON_NULL)) continue;
        rvi_buf_printf(m->chat, ",\"%s\":", kept[k]);
        rvi_json_write(m->chat, v);
    }
    rvi_buf_putc(m->chat, '}');
    if (!strcmp(role, "user")) {
        m->question->len = 0;
        rvi_buf_append(m->question, text->len ? text->data : "", text->len);
    }
    rvi_buf_deinit(text);
    *text = (rvi_buf){0};
}

bool rvi_messages_end(rvi_messages *m, rvi_problem *p)
{
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
