/* Answers that were held to nothing: what is wrong with one, and tries with that told. */
#include <string.h>

#include "api/api.h"
#include "ruvllm_tools.h"

enum { MAX_RETRIES = 100 };

/* Three texts in one block. */
static rv_status give(const rvi_checked *c, rv_checked **out, rv_error *err)
{
    const rvi_buf *from[] = {&c->message, &c->problem, &c->turns};
    const char *texts[3];
    size_t len = sizeof **out;
    for (int i = 0; i < 3; i++) len += from[i]->len + 3;
    rv_checked *made = rvi_zalloc(len);
    if (!made) return rvi_nomem(err, "answer");
    char *at = (char *)(made + 1);
    for (int i = 0; i < 3; i++) {
        texts[i] = at;
        if (from[i]->len) memcpy(at, from[i]->data, from[i]->len);
        if (i == 2 && !from[i]->len) memcpy(at, "[]", 2);
        at += from[i]->len + 1;
    }
    *made = (rv_checked){texts[0], texts[1], texts[2]};
    *out = made;
    return RV_OK;
}

rv_status rv_tools_check(rv_tools *t, const char *text, size_t len, rv_checked **out, rv_error *err)
{
    if (!t || !out || (!text && len))
        return rvi_error(err, RV_E_INVALID, "rv_tools_check: NULL argument");
    *out = NULL;
    const rv_allocator *heap = rvi_api_use_heap(t->m->rt);
    rvi_checked checked = {0};
    rvi_check check = rvi_api_tools_check(t);
    rv_status st = rvi_check_answer(&check, text ? text : "", len, &checked, err);
    if (!st) st = give(&checked, out, err);
    rvi_checked_deinit(&checked);
    rvi_api_leave_heap(heap);
    return st;
}

/* ---- tries ---- */

/* The conversation as one JSON object up to its last message, with what follows in a second text:
 * turns go between the two. */
static rv_status open_chat(const rv_chat *given, rv_chat *chat, rvi_buf *out, rv_error *err)
{
    rvi_arena arena = {.max = RVI_API_CHAT_BYTES};
    const rvi_json *json, *messages;
    rv_status st = rvi_api_read_chat(chat, &json, given, &arena, err);
    rvi_buf_putc(out, '{');
    for (size_t i = 0; !st && i < rvi_json_count(json); i++) {
        const rvi_json *member = rvi_json_at(json, i);
        if (!strcmp(member->key, "messages")) continue;
        rvi_json_write_string(out, member->key, member->key_len);
        rvi_buf_putc(out, ':');
        rvi_json_write(out, member);
        rvi_buf_putc(out, ',');
    }
    messages = st ? NULL : rvi_json_get(json, "messages");
    if (!st && !rvi_json_count(messages))
        st = rvi_error(err, RV_E_INVALID, "n_messages must be at least 1 (got 0)");
    rvi_buf_puts(out, "\"messages\":[");
    for (size_t i = 0; i < rvi_json_count(messages); i++) {
        if (i) rvi_buf_putc(out, ',');
        rvi_json_write(out, rvi_json_at(messages, i));
    }
    rvi_arena_deinit(&arena);
    return st || !out->failed ? st : rvi_nomem(err, "chat");
}

/* turns: "[{...},{...}]" */
static rv_status add_turns(rvi_buf *conversation, const char *turns, rv_error *err)
{
    size_t len = strlen(turns);
    rvi_buf_putc(conversation, ',');
    if (!rvi_buf_append(conversation, turns + 1, len - 2)) return rvi_nomem(err, "chat");
    return RV_OK;
}

static rv_status answer(rv_tools *t, rv_session *s, const rv_chat *chat, rvi_buf *conversation,
                        const rv_generate_options *o, rv_answer **a, rv_checked **checked,
                        rv_error *err)
{
    size_t open = conversation->len;
    if (!rvi_buf_puts(conversation, "]}")) return rvi_nomem(err, "chat");
    rv_chat own = {.size = sizeof own,
                   .variables = conversation->data,
                   .special = chat->special,
                   .now = chat->now};
    rv_status st = rv_session_chat(s, &own, o, a, err);
    conversation->len = open;
    return st ? st : rv_tools_check(t, (*a)->text, (*a)->text_len, checked, err);
}

rv_status rv_tools_chat(rv_tools *t, rv_session *s, const rv_chat *given,
                        const rv_generate_options *how, int retries, rv_answer **a,
                        rv_checked **checked, int *n_tries, rv_error *err)
{
    int none, *n = n_tries ? n_tries : &none;
    *n = 0;
    if (a) *a = NULL;
    if (checked) *checked = NULL;
    if (!t || !s || !given || !a || !checked)
        return rvi_error(err, RV_E_INVALID, "rv_tools_chat: NULL argument");
    if (retries < 0 || retries > MAX_RETRIES)
        return rvi_error(err, RV_E_INVALID, "retries must be 0..%d (got %d)", MAX_RETRIES, retries);
    const rv_allocator *heap = rvi_api_use_heap(t->m->rt);
    rv_generate_options o;
    rv_chat chat;
    rvi_buf conversation = {0};
    rv_status st = rvi_api_read_struct(&o, sizeof o, how, "rv_generate_options", err);
    if (!st) st = open_chat(given, &chat, &conversation, err);
    if (!o.grammar) o.grammar = t->g;
    for (bool again = true; again && !st;) {
        rv_free(*a);
        rv_free(*checked);
        *a = NULL;
        *checked = NULL;
        st = answer(t, s, &chat, &conversation, &o, a, checked, err);
        if (st) break;
        ++*n;
        again = *(*checked)->problem && *n <= retries &&
                ((*a)->finish == RV_FINISH_EOS || (*a)->finish == RV_FINISH_LENGTH);
        if (again) st = add_turns(&conversation, (*checked)->turns, err);
    }
    rvi_buf_deinit(&conversation);
    if (st) {
        rv_free(*a);
        rv_free(*checked);
        *a = NULL;
        *checked = NULL;
    }
    rvi_api_leave_heap(heap);
    return st;
}
