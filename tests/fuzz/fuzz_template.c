/* fuzz_template.c - any bytes as a chat template: parsing and rendering never crash, hang or leak.
 *
 * A first byte of '!' sends the rest through the chat layer, which probes and renders it several
 * times. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "template/chat.h"
#include "template/jinja.h"

static const char vars_text[] =
    "{\"messages\":[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\",\"content\":[{"
    "\"type\":\"text\",\"text\":\"h\xc3\xa9llo\"}],"
    "\"n\":1},{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"function\":{\"name\":"
    "\"f\",\"arguments\":{\"a\":[1,2.5,"
    "true]}}}]}],\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{}}}"
    "],\"add_generation_prompt\":true,"
    "\"bos_token\":\"<s>\",\"l\":[3,1,2],\"d\":{\"b\":1,\"a\":2},\"s\":\"Hello "
    "World\",\"i\":7,\"f\":2.5,\"n\":null}";

static void render_plain(const char *text, size_t len, const rvi_json *vars)
{
    const rvi_template_now now = {.year = 2024, .month = 2, .day = 29, .hour = 13};
    const rvi_template_limits limits = {
        .max_steps = 100000, .max_depth = 50, .max_output = 1 << 20, .max_memory = 16 << 20};
    rvi_template *t;
    rv_error err;
    rvi_buf out = {0};
    if (rvi_template_new(&t, text, len, &err)) return;
    for (int i = 0; i < 2; i++) /* twice: a template does not change */
        if (rvi_template_render(t, vars, &now, &limits, &out, &err)) break;
    if (out.len && memcmp(out.data, out.data + out.len / 2, out.len / 2)) abort();
    /* marking what comes from users changes no text, and the spans are in order inside it */
    rvi_buf marked = {0};
    rvi_text_spans user = {0};
    if (!rvi_template_render_marked(t, NULL, vars, &now, &limits, &marked, &user, &err)) {
        if (out.len && (marked.len != out.len / 2 || memcmp(marked.data, out.data, marked.len)))
            abort();
        for (size_t i = 0; i < user.n; i++)
            if (user.data[i].start >= user.data[i].end || user.data[i].end > marked.len ||
                (i && user.data[i].start <= user.data[i - 1].end))
                abort();
    }
    rvi_text_spans_deinit(&user);
    rvi_buf_deinit(&marked);
    rvi_template_free(t);
    rvi_buf_deinit(&out);
}

static void render_chat(const char *text, size_t len, const rvi_json *vars)
{
    rvi_chat_source src = {
        .template_text = text, .template_len = len, .bos_token = "<s>", .eos_token = "</s>"};
    rvi_chat *chat;
    rv_error err;
    rvi_buf out = {0};
    size_t end_len;
    if (rvi_chat_new(&chat, &src, &err)) return;
    (void)rvi_chat_turn_end(chat, &end_len);
    if (!rvi_chat_render(chat, vars, NULL, &out, &err) && out.failed) abort();
    rvi_chat_free(chat);
    rvi_buf_deinit(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    rvi_arena arena = {0};
    const rvi_json *vars;
    const char *text = (const char *)data;
    if (rvi_json_parse(&vars, vars_text, sizeof vars_text - 1, &arena, "vars", NULL)) abort();
    if (size && text[0] == '!')
        render_chat(text + 1, size - 1, vars);
    else
        render_plain(text, size, vars);
    rvi_arena_deinit(&arena);
    return 0;
}
