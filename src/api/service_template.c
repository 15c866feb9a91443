/* What a chat template does to the cache of prefixes. */
#include <string.h>

#include "api/service.h"
#include "template/chat.h"

/* The text of a short conversation at some time. */
static bool render(const rv_model *m, const rvi_json *conversation, const rvi_template_now *now,
                   rvi_buf *out)
{
    out->len = 0;
    return !rvi_chat_render(m->chat, conversation, now, out, NULL) && rvi_buf_puts(out, "");
}

/* Where two texts part; -1: nowhere. */
static long parting(const rvi_buf *a, const rvi_buf *b)
{
    size_t n = 0;
    while (n < a->len && n < b->len && a->data[n] == b->data[n]) n++;
    return n == a->len && n == b->len ? -1 : (long)n;
}

void rvi_service_check_template(const rv_model *m)
{
    static const char text[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}], "
                               "\"add_generation_prompt\": true}";
    static const rvi_template_now some = {2001, 2, 3, 4, 5, 6};
    static const struct {
        const char *name;
        rvi_template_now later;
    } steps[] = {{"second", {2001, 2, 3, 4, 5, 17}}, {"minute", {2001, 2, 3, 4, 16, 6}},
                 {"hour", {2001, 2, 3, 15, 5, 6}},   {"day", {2001, 2, 14, 4, 5, 6}},
                 {"month", {2001, 11, 3, 4, 5, 6}},  {"year", {1992, 2, 3, 4, 5, 6}}};
    rvi_arena arena = {.max = 1 << 16};
    rvi_buf first = {0}, later = {0};
    const rvi_json *conversation = NULL;
    if (!m->chat || !m->rt->log.sink) return;
    bool known = !rvi_json_parse(&conversation, text, strlen(text), &arena, "chat", NULL) &&
                 render(m, conversation, &some, &first);
    for (size_t i = 0; known && i < RVI_COUNT(steps); i++) {
        known = render(m, conversation, &steps[i].later, &later);
        long at = known ? parting(&first, &later) : -1;
        if (at < 0) continue;
        rvi_log_write(&m->rt->log, RVI_LOG_WARN,
                      "%s: its chat template writes the time %ld bytes behind the beginning of a "
                      "prompt, and that changes every %s: what was computed for prompts serves "
                      "later ones only until then",
                      m->name, at, steps[i].name);
        break;
    }
    rvi_buf_deinit(&first);
    rvi_buf_deinit(&later);
    rvi_arena_deinit(&arena);
}
