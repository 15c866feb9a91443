#include <string.h>

#include "api/api.h"

rv_status rvi_api_give_text(rvi_buf *b, char **text, size_t *len, rv_error *err)
{
    if (!b->data) rvi_buf_puts(b, "");
    if (b->failed || !b->data) {
        rvi_buf_deinit(b);
        return rvi_nomem(err, "text");
    }
    *text = b->data;
    if (len) *len = b->len;
    return RV_OK;
}

rv_status rvi_api_give_text_after(rv_status st, rvi_buf *b, char **text, size_t *len, rv_error *err)
{
    if (!st) return rvi_api_give_text(b, text, len, err);
    rvi_buf_deinit(b);
    return st;
}

static rv_status need_tokenizer(const rv_model *m, rv_error *err)
{
    if (!m) return rvi_error(err, RV_E_INVALID, "no model given");
    return m->tokenizer ? RV_OK
                        : rvi_error(err, RV_E_TOKENIZATION,
                                    "%s: this model has no tokenizer; give token ids", m->name);
}

rv_status rv_tokenize(const rv_model *m, const char *text, size_t len, unsigned flags,
                      int32_t **ids, size_t *n, rv_error *err)
{
    if (!ids || !n || (!text && len))
        return rvi_error(err, RV_E_INVALID, "rv_tokenize: NULL argument");
    *ids = NULL;
    *n = 0;
    rv_status st = need_tokenizer(m, err);
    if (st) return st;
    rvi_ids out = {0};
    int32_t bos = rvi_tokenizer_bos(m->tokenizer);
    bool wrap = (flags & RV_TOKENIZE_WRAP) != 0;
    unsigned how = (flags & RV_TOKENIZE_PLAIN ? RVI_TOK_PLAIN : 0) | (wrap ? RVI_TOK_BOS_EOS : 0);
    const rv_allocator *heap = rvi_api_use_heap(m->rt);
    if (!wrap && (flags & RV_TOKENIZE_BOS) && rvi_tokenizer_adds_bos(m->tokenizer) && bos >= 0 &&
        !rvi_ids_push(&out, bos))
        st = rvi_nomem(err, "tokens");
    if (!st && (len || wrap))
        st = rvi_tokenizer_encode(m->tokenizer, text ? text : "", len, how, &out, err);
    rvi_api_leave_heap(heap);
    if (st) {
        rvi_ids_deinit(&out);
        return st;
    }
    *ids = out.data;
    *n = out.len;
    return RV_OK;
}

rv_status rv_detokenize(const rv_model *m, const int32_t *ids, size_t n, int skip_special,
                        char **text, size_t *len, rv_error *err)
{
    if (!text || (!ids && n)) return rvi_error(err, RV_E_INVALID, "rv_detokenize: NULL argument");
    *text = NULL;
    rv_status st = need_tokenizer(m, err);
    if (st) return st;
    rvi_buf out = {0};
    const rv_allocator *heap = rvi_api_use_heap(m->rt);
    st = rvi_tokenizer_decode(m->tokenizer, ids, n, skip_special ? RVI_TOK_SKIP_SPECIAL : 0, &out,
                              err);
    st = rvi_api_give_text_after(st, &out, text, len, err);
    rvi_api_leave_heap(heap);
    return st;
}

static rvi_template_now to_now(const rv_time *t)
{
    if (!t) return (rvi_template_now){.year = 1970, .month = 1, .day = 1};
    return (rvi_template_now){t->year, t->month, t->day, t->hour, t->minute, t->second};
}

rv_status rv_render_chat(const rv_model *m, const char *conversation, size_t conversation_len,
                         const rv_time *now, char **text, size_t *len, rv_error *err)
{
    if (!conversation || !text)
        return rvi_error(err, RV_E_INVALID, "rv_render_chat: NULL argument");
    *text = NULL;
    rv_status st = need_tokenizer(m, err);
    if (st) return st;
    rvi_arena arena = {.max = 256 << 20};
    rvi_buf out = {0};
    const rvi_json *json;
    rvi_template_now when = to_now(now);
    const rv_allocator *heap = rvi_api_use_heap(m->rt);
    st = rvi_json_parse(&json, conversation, conversation_len, &arena, "conversation", err);
    if (!st) st = rvi_chat_render(m->chat, json, &when, &out, err);
    rvi_arena_deinit(&arena);
    st = rvi_api_give_text_after(st, &out, text, len, err);
    rvi_api_leave_heap(heap);
    return st;
}

/* The conversation's variables, with tools and documents as none where they are not given. */
static rv_status with_defaults(const rvi_json **out, const rvi_json *given, rvi_arena *arena,
                               rv_error *err)
{
    static const char *const none[] = {"tools", "documents"};
    if (!rvi_json_is(given, RVI_JSON_OBJECT))
        return rvi_error(err, RV_E_CONFIG, "conversation: an object with \"messages\" is expected");
    rvi_json *root = rvi_arena_alloc(arena, 1, sizeof *root);
    rvi_json *items = rvi_arena_alloc(arena, given->as.list.count + RVI_COUNT(none), sizeof *items);
    if (!root || !items) return rvi_nomem(err, "conversation");
    size_t n = 0;
    for (size_t i = 0; i < RVI_COUNT(none); i++)
        if (!rvi_json_get(given, none[i]))
            items[n++] = (rvi_json){
                .kind = RVI_JSON_NULL, .key = none[i], .key_len = (uint32_t)strlen(none[i])};
    for (size_t i = 0; i < given->as.list.count; i++) items[n++] = given->as.list.items[i];
    *root = (rvi_json){.kind = RVI_JSON_OBJECT};
    root->as.list.items = items;
    root->as.list.count = n;
    *out = root;
    return RV_OK;
}

rv_status rv_render_template(const rv_runtime *rt, const char *source, size_t source_len,
                             const char *conversation, size_t conversation_len, const rv_time *now,
                             char **text, size_t *len, rv_error *err)
{
    if (!rt || !source || !conversation || !text)
        return rvi_error(err, RV_E_INVALID, "rv_render_template: NULL argument");
    *text = NULL;
    rvi_arena arena = {.max = 256 << 20};
    rvi_template *t = NULL;
    rvi_buf out = {0};
    const rvi_json *json, *vars = NULL;
    rvi_template_now when = to_now(now);
    const rv_allocator *heap = rvi_api_use_heap(rt);
    rv_status st =
        rvi_json_parse(&json, conversation, conversation_len, &arena, "conversation", err);
    if (!st) st = with_defaults(&vars, json, &arena, err);
    if (!st) st = rvi_template_new(&t, source, source_len, err);
    if (!st) st = rvi_template_render(t, vars, &when, NULL, &out, err);
    rvi_template_free(t);
    rvi_arena_deinit(&arena);
    st = rvi_api_give_text_after(st, &out, text, len, err);
    rvi_api_leave_heap(heap);
    return st;
}
