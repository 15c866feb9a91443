#include "server/items.h"

#include "base/json.h"
#include "server/reply.h"

static rvi_answer_item *last_item(rvi_answer_items *s)
{
    return s->n ? &s->list[s->n - 1] : NULL;
}

static void end_last(rvi_answer_items *s)
{
    rvi_answer_item *item = last_item(s);
    if (!item || item->ended) return;
    item->ended = true;
    s->hear(s->ctx, item, RVI_ITEM_ENDS, "", 0);
}

/* NULL: no memory; then the answer fails as a whole. */
static rvi_answer_item *begin_item(rvi_answer_items *s, const rv_said *said)
{
    end_last(s);
    if (s->n == s->cap) {
        int cap = s->cap ? s->cap * 2 : 4;
        rvi_answer_item *list = rvi_realloc_array(s->list, (size_t)cap, sizeof *list);
        if (!list) {
            s->failed = true;
            return NULL;
        }
        s->list = list;
        s->cap = cap;
    }
    rvi_answer_item *item = &s->list[s->n];
    *item = (rvi_answer_item){.kind = said->kind, .index = s->n++, .call = said->index};
    if (said->kind == RV_SAID_CALL) {
        rvi_buf_puts(&item->id, said->id);
        rvi_buf_puts(&item->name, said->name);
    }
    s->hear(s->ctx, item, RVI_ITEM_BEGINS, "", 0);
    return item;
}

static void add(rvi_answer_items *s, const rv_said *said)
{
    rvi_answer_item *item = last_item(s);
    bool arguments = said->kind == RV_SAID_ARGUMENTS;
    if (!said->text_len) return;
    if (!item || item->ended || item->kind != (arguments ? RV_SAID_CALL : said->kind))
        item = arguments ? NULL : begin_item(s, said);
    if (!item) return;
    rvi_buf_append(&item->text, said->text, said->text_len);
    if (item->text.failed) s->failed = true;
    s->hear(s->ctx, item, RVI_ITEM_GOES_ON, said->text, said->text_len);
}

static int on_said(void *ctx, const rv_said *said)
{
    rvi_answer_items *s = ctx;
    switch (said->kind) {
    case RV_SAID_TEXT:
    case RV_SAID_THOUGHT:
    case RV_SAID_ARGUMENTS: add(s, said); break;
    case RV_SAID_CALL: (void)begin_item(s, said); break;
    case RV_SAID_CALL_END: end_last(s); break;
    }
    return 0;
}

void rvi_items_read(rvi_answer_items *s, const char *text, size_t len)
{
    rv_error err;
    if (!s->tools)
        add(s, &(rv_said){.kind = RV_SAID_TEXT, .text = text, .text_len = len});
    else if ((!s->reader && rv_tools_reader_new(&s->reader, s->tools, on_said, s, &err)) ||
             rv_tools_read(s->reader, text, len, &err))
        s->failed = true;
}

void rvi_items_end(rvi_answer_items *s)
{
    rv_error err;
    if (s->reader && rv_tools_read_end(s->reader, &err)) s->failed = true;
    if (!s->n) (void)begin_item(s, &(rv_said){.kind = RV_SAID_TEXT});
    end_last(s);
}

void rvi_items_free(rvi_answer_items *s)
{
    rv_tools_reader_free(&s->reader);
    for (int i = 0; i < s->n; i++) {
        rvi_buf_deinit(&s->list[i].text);
        rvi_buf_deinit(&s->list[i].id);
        rvi_buf_deinit(&s->list[i].name);
    }
    rvi_free(s->list);
}

bool rvi_items_call(const rvi_answer_items *s)
{
    for (int i = 0; i < s->n; i++)
        if (s->list[i].kind == RV_SAID_CALL) return true;
    return false;
}

void rvi_items_join(const rvi_answer_items *s, rv_said_kind kind, rvi_buf *out)
{
    for (int i = 0; i < s->n; i++)
        if (s->list[i].kind == kind && s->list[i].text.len)
            rvi_buf_append(out, s->list[i].text.data, s->list[i].text.len);
    if (s->failed) out->failed = true;
}

void rvi_items_put_arguments(const rvi_answer_item *item, rvi_buf *out)
{
    enum { MOST_ARENA = 64 << 20 };
    rvi_arena arena = {.max = MOST_ARENA};
    const rvi_json *v = NULL;
    rv_error err;
    bool whole = item->text.len &&
                 !rvi_json_parse(&v, item->text.data, item->text.len, &arena, "arguments", &err);
    if (whole && rvi_json_is(v, RVI_JSON_OBJECT))
        rvi_json_write(out, v); /* a stream is read by lines: none may end within */
    else
        rvi_buf_puts(out, "{}");
    if (item->text.failed) out->failed = true;
    rvi_arena_deinit(&arena);
}

void rvi_items_put_calls(const rvi_answer_items *s, rvi_buf *out)
{
    bool comma = false;
    rvi_buf_putc(out, '[');
    for (int i = 0; i < s->n; i++) {
        const rvi_answer_item *item = &s->list[i];
        if (item->kind != RV_SAID_CALL) continue;
        rvi_buf_puts(out, comma ? ",{\"id\":" : "{\"id\":");
        rvi_put_buf(out, &item->id);
        rvi_buf_puts(out, ",\"type\":\"function\",\"function\":{\"name\":");
        rvi_put_buf(out, &item->name);
        rvi_buf_puts(out, ",\"arguments\":");
        rvi_put_buf(out, &item->text);
        rvi_buf_puts(out, "}}");
        comma = true;
    }
    rvi_buf_putc(out, ']');
}
