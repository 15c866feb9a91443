/* Chats: messages to the tree a template reads, to text, to token ids. */
#include <string.h>

#include "api/api.h"
#include "calls/prompt.h"
#include "learn/journal/text.h"
#include "learn/recognise/follow.h"

static rvi_json text_node(const char *key, const char *text)
{
    rvi_json v = {.kind = RVI_JSON_STRING, .key = key, .key_len = (uint32_t)strlen(key)};
    v.as.string.data = text;
    v.as.string.len = strlen(text);
    return v;
}

static rv_status parse(const rvi_json **out, const char *text, rvi_json_kind kind, const char *what,
                       rvi_arena *arena, rv_error *err)
{
    rv_status st = rvi_json_parse(out, text, strlen(text), arena, what, err);
    if (!st && !rvi_json_is(*out, kind))
        st = rvi_error(err, RV_E_CONFIG, "%s must be a JSON %s", what,
                       kind == RVI_JSON_OBJECT ? "object" : "list");
    return st;
}

static rv_status check_text(const char *text, size_t at, const char *field, rv_error *err)
{
    rvi_text t = {text, strlen(text)};
    size_t bad = rvi_text_invalid(t);
    if (bad == t.len) return RV_OK;
    return rvi_error(err, RV_E_INVALID, "messages[%zu].%s is not UTF-8 at byte %zu", at, field,
                     bad);
}

/* role, content, then the members of `more`; of two with one name the last counts. */
static rv_status message_node(rvi_json *out, const rv_message *m, size_t at, rvi_arena *arena,
                              rv_error *err)
{
    const rvi_json *more = NULL;
    char what[64];
    snprintf(what, sizeof what, "messages[%zu].more", at);
    if (!m->role) return rvi_error(err, RV_E_INVALID, "messages[%zu].role is NULL", at);
    rv_status st = check_text(m->role, at, "role", err);
    if (!st && m->content) st = check_text(m->content, at, "content", err);
    if (st) return st;
    st = m->more ? parse(&more, m->more, RVI_JSON_OBJECT, what, arena, err) : RV_OK;
    if (st) return st;
    size_t n = 0, n_more = rvi_json_count(more);
    rvi_json *items = rvi_arena_alloc(arena, n_more + 2, sizeof *items);
    if (!items) return rvi_nomem(err, "chat");
    items[n++] = text_node("role", m->role);
    if (m->content && !rvi_json_get(more, "content")) items[n++] = text_node("content", m->content);
    for (size_t i = 0; i < n_more; i++) items[n++] = *rvi_json_at(more, i);
    *out = rvi_json_list(RVI_JSON_OBJECT, items, n);
    return RV_OK;
}

static rv_status messages_node(rvi_json *out, const rv_chat *chat, rvi_arena *arena, rv_error *err)
{
    rvi_json *items = rvi_arena_alloc(arena, RVI_MAX(chat->n_messages, (size_t)1), sizeof *items);
    if (!items) return rvi_nomem(err, "chat");
    rv_status st = RV_OK;
    for (size_t i = 0; !st && i < chat->n_messages; i++)
        st = message_node(&items[i], &chat->messages[i], i, arena, err);
    *out = rvi_json_named(rvi_json_list(RVI_JSON_ARRAY, items, chat->n_messages), "messages");
    return st;
}

rv_status rvi_api_read_chat(rv_chat *chat, const rvi_json **json, const rv_chat *given,
                            rvi_arena *arena, rv_error *err)
{
    const rvi_json *variables = NULL, *tools = NULL;
    rv_status st = rvi_api_read_struct(chat, sizeof *chat, given, "rv_chat", err);
    if (!st && chat->variables)
        st = parse(&variables, chat->variables, RVI_JSON_OBJECT, "variables", arena, err);
    if (!st && chat->tools) st = parse(&tools, chat->tools, RVI_JSON_ARRAY, "tools", arena, err);
    if (st) return st;
    if (chat->n_messages && !chat->messages)
        return rvi_error(err, RV_E_INVALID, "n_messages is %zu, but messages is NULL",
                         chat->n_messages);
    bool whole = rvi_json_get(variables, "messages") != NULL;
    if (whole && chat->messages)
        return rvi_error(err, RV_E_INVALID,
                         "messages are given twice: as a list, and in variables");
    size_t n = 0, n_variables = rvi_json_count(variables);
    rvi_json *root = rvi_arena_alloc(arena, 1, sizeof *root);
    rvi_json *items = rvi_arena_alloc(arena, n_variables + 3, sizeof *items);
    if (!root || !items) return rvi_nomem(err, "chat");
    for (size_t i = 0; i < n_variables; i++) items[n++] = *rvi_json_at(variables, i);
    if (!whole) {
        if ((st = messages_node(&items[n], chat, arena, err))) return st;
        n++;
    }
    if (tools) items[n++] = rvi_json_named(*tools, "tools");
    if (!rvi_json_get(variables, "add_generation_prompt")) {
        items[n] = (rvi_json){.kind = RVI_JSON_BOOL};
        items[n].as.boolean = !chat->no_reply;
        items[n] = rvi_json_named(items[n], "add_generation_prompt");
        n++;
    }
    *root = rvi_json_list(RVI_JSON_OBJECT, items, n);
    *json = root;
    return RV_OK;
}

static rvi_template_now time_of(const rv_time *t)
{
    if (!t) return (rvi_template_now){.year = 1970, .month = 1, .day = 1};
    return (rvi_template_now){t->year, t->month, t->day, t->hour, t->minute, t->second};
}

/* A model's template makes something of an empty chat, but nobody means one. */
static rv_status need_messages(const rvi_json *json, rv_error *err)
{
    if (rvi_json_count(rvi_json_get(json, "messages"))) return RV_OK;
    return rvi_error(err, RV_E_INVALID, "n_messages must be at least 1 (got 0)");
}

/* With tools, in the first way that the template takes. The first error is the one that counts. */
static rv_status render_tools(const rv_model *m, const rvi_json *json, const rvi_template_now *now,
                              rvi_buf *text, rvi_text_spans *user, rv_error *err)
{
    const rvi_family *f = rvi_family_find(m->template_text, m->template_len);
    bool known = f || !rvi_json_count(rvi_json_get(json, "tools"));
    bool in_message = f && f->in_message;
    int way = in_message      ? RVI_PROMPT_IN_MESSAGE
              : f && f->texts ? RVI_PROMPT_TEXTS
              : known         ? RVI_PROMPT_OBJECTS
                              : RVI_PROMPT_IN_SYSTEM;
    /* a template may fail on a tool's schema; in words it is told how this family calls */
    const int last = in_message                     ? way
                     : f && f != rvi_family_plain() ? RVI_PROMPT_TEXTS_SAID
                                                    : RVI_PROMPT_IN_USER;
    const size_t n_before = text->len;
    rvi_arena arena = {.max = RVI_API_CHAT_BYTES};
    rv_error first = {0};
    rv_status st = RV_OK, first_st = RV_OK;
    for (bool fits = false; !fits && way <= last; way++) {
        const rvi_json *adapted;
        rv_error own = {0};
        if (user) rvi_text_spans_cut(user, n_before);
        text->len = n_before;
        st = rvi_prompt_adapt(&adapted, json, (rvi_prompt_way)way,
                              in_message ? f : rvi_family_plain(), &arena, &own);
        if (!st) st = rvi_chat_render_marked(m->chat, adapted, now, text, user, &own);
        if (st && !first_st) {
            first_st = st;
            first = own;
        }
        /* a template may leave the system turn out */
        fits = st ? st != RV_E_TOKENIZATION
                  : way < RVI_PROMPT_IN_SYSTEM || way == last ||
                        strstr(text->data + n_before, "<tools>");
    }
    if (st && err) *err = first;
    rvi_arena_deinit(&arena);
    return st ? first_st : RV_OK;
}

/* user: the bytes of text that come from users. */
static rv_status render(const rv_model *m, const rv_chat *chat, const rvi_json *json, rvi_buf *text,
                        rvi_text_spans *user, rv_error *err)
{
    rvi_template_now now = time_of(chat->now);
    rv_status st = rvi_api_need_tokenizer(m, err);
    if (!st) st = need_messages(json, err);
    if (!st && rvi_prompt_has_tools(json)) return render_tools(m, json, &now, text, user, err);
    return st ? st : rvi_chat_render_marked(m->chat, json, &now, text, user, err);
}

/* plain: control tokens in these parts are just text; NULL: everywhere they are what they say. */
static rv_status encode(const rv_model *m, const rvi_buf *text, const rvi_text_spans *plain,
                        rvi_ids *ids, rv_error *err)
{
    return rvi_tokenizer_encode_marked(m->tokenizer, text->data ? text->data : "", text->len, plain,
                                       0, ids, err);
}

static rv_status chat_ids(const rv_model *m, const rv_chat *chat, const rvi_json *json,
                          rvi_ids *ids, rv_error *err)
{
    rvi_buf text = {0};
    rvi_text_spans user = {0};
    rv_status st = render(m, chat, json, &text, &user, err);
    if (!st) st = encode(m, &text, chat->special ? NULL : &user, ids, err);
    rvi_text_spans_deinit(&user);
    rvi_buf_deinit(&text);
    return st;
}

/* ---- instructions of a learner ---- */

/* The same object with another value for one member, which it has. */
static const rvi_json *with_member(const rvi_json *object, rvi_json value, rvi_arena *arena)
{
    size_t n = object->as.list.count;
    rvi_json *items = rvi_arena_alloc(arena, n, sizeof *items);
    rvi_json *out = rvi_arena_alloc(arena, 1, sizeof *out);
    if (!items || !out) return NULL;
    for (size_t i = 0; i < n; i++) {
        const rvi_json *x = &object->as.list.items[i];
        bool same = x->key_len == value.key_len && !memcmp(x->key, value.key, x->key_len);
        items[i] = same ? value : *x;
    }
    *out = *object;
    out->as.list.items = items;
    return out;
}

bool rvi_api_message_is(const rvi_json *message, const char *role)
{
    return rvi_json_is_string(rvi_json_get(message, "role"), role);
}

const char *rvi_api_message_text(const rvi_json *message, rvi_arena *arena)
{
    const rvi_json *content = rvi_json_get(message, "content");
    if (!rvi_json_is(content, RVI_JSON_ARRAY)) return rvi_json_string(content, "");
    rvi_buf text = {0};
    for (size_t k = 0; k < rvi_json_count(content); k++) {
        const rvi_json *part = rvi_json_get(rvi_json_at(content, k), "text");
        if (k) (void)rvi_buf_putc(&text, '\n');
        (void)rvi_buf_puts(&text, rvi_json_string(part, ""));
    }
    const char *joined = rvi_arena_strndup(arena, text.data ? text.data : "", text.len);
    rvi_buf_deinit(&text);
    return joined;
}

/* Did a lesson speak in this turn, the i-th message and the next, which is all of it? */
static rv_status is_spoken(const rv_learner *l, const rvi_json *messages, size_t i,
                           rvi_arena *arena, bool *out, rv_error *err)
{
    const rvi_json *user = rvi_json_at(messages, i), *model = rvi_json_at(messages, i + 1);
    *out = false;
    if (!rvi_api_message_is(user, "user") || !rvi_api_message_is(model, "assistant") ||
        !rvi_api_message_is(rvi_json_at(messages, i + 2), "user") ||
        rvi_json_count(rvi_json_get(model, "tool_calls")))
        return RV_OK;
    const char *request = rvi_api_message_text(user, arena),
               *answer = rvi_api_message_text(model, arena);
    *out = request && answer && rvi_learner_leaves_out(l->l, request, answer);
    return request && answer ? RV_OK : rvi_nomem(err, "chat");
}

/* The chat as a model reads it that would repeat what it was taught, whatever is asked: without
 * turns in which a lesson spoke, unless only the turns before the request explain it. */
static rv_status without_spoken(const rv_learner *l, const rvi_json **json, rvi_arena *arena,
                                rv_error *err)
{
    const rvi_json *messages = rvi_json_get(*json, "messages");
    size_t n = rvi_json_count(messages), last = n, kept = 0;
    while (last > 0 && !rvi_api_message_is(rvi_json_at(messages, last - 1), "user")) last--;
    if (!last--) return RV_OK;
    rvi_json *items = rvi_arena_alloc(arena, n, sizeof *items);
    if (!items) return rvi_nomem(err, "chat");
    for (size_t i = 0; i < n; i++) {
        bool spoken = false;
        rv_status st = i + 1 < last ? is_spoken(l, messages, i, arena, &spoken, err) : RV_OK;
        if (st) return st;
        if (spoken)
            i++;
        else
            items[kept++] = *rvi_json_at(messages, i);
    }
    if (kept == n) return RV_OK;
    float follows = 0;
    const char *request = rvi_api_message_text(rvi_json_at(messages, last), arena);
    rv_status st =
        request ? rvi_follow_probability(request, &follows, err) : rvi_nomem(err, "chat");
    if (st || follows >= 0.5f) return st;
    *json = with_member(
        *json, rvi_json_named(rvi_json_list(RVI_JSON_ARRAY, items, kept), "messages"), arena);
    return *json ? RV_OK : rvi_nomem(err, "chat");
}

bool rvi_api_has_turn(const rvi_json *chat, const rvi_lesson *x, rvi_arena *arena)
{
    const rvi_json *messages = rvi_json_get(chat, "messages");
    for (size_t i = 0; i + 1 < rvi_json_count(messages); i++) {
        const rvi_json *user = rvi_json_at(messages, i), *model = rvi_json_at(messages, i + 1);
        if (!rvi_api_message_is(user, "user") || !rvi_api_message_is(model, "assistant")) continue;
        const char *request = rvi_api_message_text(user, arena),
                   *answer = rvi_api_message_text(model, arena);
        if (request && answer && rvi_lesson_is_turn(x, request, answer)) return true;
    }
    return false;
}

/* The lesson as a turn before the request. */
static rv_status with_turn(const rvi_json **json, const rvi_lesson *x, rvi_arena *arena,
                           rv_error *err)
{
    enum { TURN = 2, FIELDS = 2 };
    const rvi_json *messages = rvi_json_get(*json, "messages");
    size_t n = rvi_json_count(messages), at = n;
    while (at > 0 && !rvi_api_message_is(rvi_json_at(messages, at - 1), "user")) at--;
    if (!at--) return RV_OK;
    rvi_json *items = rvi_arena_alloc(arena, n + TURN, sizeof *items);
    rvi_json *fields = rvi_arena_alloc(arena, TURN * FIELDS, sizeof *fields);
    if (!items || !fields) return rvi_nomem(err, "chat");
    fields[0] = text_node("role", "user");
    fields[1] = text_node("content", x->question);
    fields[2] = text_node("role", "assistant");
    fields[3] = text_node("content", x->answer);
    for (size_t i = 0; i < n; i++) items[i < at ? i : i + TURN] = *rvi_json_at(messages, i);
    for (size_t i = 0; i < TURN; i++)
        items[at + i] = rvi_json_list(RVI_JSON_OBJECT, fields + i * FIELDS, FIELDS);
    *json = with_member(
        *json, rvi_json_named(rvi_json_list(RVI_JSON_ARRAY, items, n + TURN), "messages"), arena);
    return *json ? RV_OK : rvi_nomem(err, "chat");
}

/* The message with the text before its own content, which is a text. */
static const rvi_json *prefixed(const rvi_json *message, const char *text, rvi_arena *arena)
{
    rvi_buf joined = {0};
    const rvi_json *content = rvi_json_get(message, "content");
    (void)rvi_buf_printf(&joined, "%s\n\n", text);
    (void)rvi_buf_append(&joined, content->as.string.data, content->as.string.len);
    char *whole = joined.failed ? NULL : rvi_arena_strndup(arena, joined.data, joined.len);
    rvi_buf_deinit(&joined);
    return whole ? with_member(message, text_node("content", whole), arena) : NULL;
}

/* Where the text goes: into a system message of its own, or before the content of the first message
 * with that role. *out NULL: there is no such message, or its content is no text. */
static rv_status with_text(const rvi_json **out, const rvi_json *json, const char *role,
                           const char *text, rvi_arena *arena, rv_error *err)
{
    const rvi_json *messages = rvi_json_get(json, "messages"), *longer = NULL;
    size_t n = rvi_json_count(messages), at = 0;
    *out = NULL;
    while (at < n && !rvi_json_is_string(rvi_json_get(rvi_json_at(messages, at), "role"), role))
        at++;
    bool fresh = at == n;
    if (fresh && strcmp(role, "system")) return RV_OK;
    rvi_json *items = rvi_arena_alloc(arena, n + 1, sizeof *items);
    rvi_json *fields = rvi_arena_alloc(arena, 2, sizeof *fields);
    if (!items || !fields) return rvi_nomem(err, "chat");
    fields[0] = text_node("role", "system");
    fields[1] = text_node("content", text);
    items[0] = rvi_json_list(RVI_JSON_OBJECT, fields, 2);
    for (size_t i = 0; i < n; i++) items[i + fresh] = *rvi_json_at(messages, i);
    if (!fresh) {
        if (!rvi_json_is(rvi_json_get(&items[at], "content"), RVI_JSON_STRING)) return RV_OK;
        if (!(longer = prefixed(&items[at], text, arena))) return rvi_nomem(err, "chat");
        items[at] = *longer;
    }
    *out = with_member(
        json, rvi_json_named(rvi_json_list(RVI_JSON_ARRAY, items, n + fresh), "messages"), arena);
    return *out ? RV_OK : rvi_nomem(err, "chat");
}

/* Renders the chat with the text in a message of this role; *fits false: the template does not take
 * it there, or leaves it out. */
static rv_status render_with(const rv_model *m, const rv_chat *chat, const rvi_json *json,
                             const char *role, const char *text, rvi_arena *arena, rvi_buf *out,
                             rvi_text_spans *user, bool *fits, rv_error *err)
{
    const rvi_json *longer;
    rv_error why = {0};
    rv_status st = with_text(&longer, json, role, text, arena, &why);
    out->len = 0;
    rvi_text_spans_cut(user, 0);
    if (!st && longer) st = render(m, chat, longer, out, user, &why);
    *fits = !st && longer && out->data && strstr(out->data, text);
    if (!st || st == RV_E_TOKENIZATION) return RV_OK;
    if (err) *err = why;
    return st;
}

/* A lesson is a text whatever is in it: no control token comes of it, even where the program asked
 * for those that the chat's own texts name. */
static rv_status compose(const rv_learner *l, const rv_model *m, const rv_chat *chat,
                         const rvi_json *json, const rvi_lesson *read, rvi_arena *arena,
                         rvi_ids *ids, rv_error *err)
{
    rvi_buf instructions = {0}, text = {0};
    rvi_text_spans user = {0}, own = {0};
    rv_status st = l ? rvi_learner_instructions(l->l, &instructions, err) : RV_OK;
    if (!st && l) st = without_spoken(l, &json, arena, err);
    if (!st && read) st = with_turn(&json, read, arena, err);
    if (!st && !instructions.len) st = chat_ids(m, chat, json, ids, err);
    if (st || !instructions.len) {
        rvi_buf_deinit(&instructions);
        return st;
    }
    const char *given = instructions.data;
    bool fits;
    st = render(m, chat, json, &text, &user, err); /* is it right without them? */
    if (!st) st = render_with(m, chat, json, "system", given, arena, &text, &user, &fits, err);
    if (!st && !fits)
        st = render_with(m, chat, json, "user", given, arena, &text, &user, &fits, err);
    if (!st && !fits)
        st = rvi_error(err, RV_E_LEARNING,
                       "lessons of scope always have no place in this chat: its template takes no "
                       "system message, and it has no user's message that is a text");
    if (!st) {
        size_t at = (size_t)(strstr(text.data, given) - text.data);
        if (!rvi_text_spans_add(&own, at, at + instructions.len)) st = rvi_nomem(err, "chat");
    }
    if (!st) st = encode(m, &text, chat->special ? &own : &user, ids, err);
    rvi_text_spans_deinit(&user);
    rvi_text_spans_deinit(&own);
    rvi_buf_deinit(&instructions);
    rvi_buf_deinit(&text);
    return st;
}

rv_status rvi_api_learned_ids(const rv_learner *l, const rv_model *m, const rv_chat *chat,
                              const rvi_json *json, rvi_arena *arena, rvi_ids *ids, rv_error *err)
{
    return compose(l, m, chat, json, NULL, arena, ids, err);
}

bool rvi_api_read_lesson(const rv_learner *l, const rv_chat *chat, const rvi_json *json,
                         uint64_t lesson, int n_context, rvi_arena *arena, rvi_ids *ids)
{
    enum { PART = 8 }; /* of the context, which stays for the answer */
    size_t most = n_context ? (size_t)(n_context - n_context / PART) : SIZE_MAX;
    const rvi_lesson *x = lesson ? rvi_lessons_find(&l->l->lessons, lesson) : NULL;
    rvi_ids longer = {0};
    if (!x || compose(l, l->m, chat, json, x, arena, &longer, NULL) || longer.len > most) {
        rvi_ids_deinit(&longer);
        return false;
    }
    rvi_ids_deinit(ids);
    *ids = longer;
    return true;
}

rv_status rv_chat_tokenize(const rv_model *m, const rv_chat *given, int32_t **ids, size_t *n,
                           rv_error *err)
{
    if (ids) *ids = NULL;
    if (n) *n = 0;
    if (!given || !ids || !n)
        return rvi_error(err, RV_E_INVALID, "rv_chat_tokenize: NULL argument");
    rv_status st = rvi_api_need_tokenizer(m, err);
    if (st) return st;
    rv_chat chat;
    rvi_ids out = {0};
    rvi_arena arena = {.max = RVI_API_CHAT_BYTES};
    const rvi_json *json;
    const rv_allocator *heap = rvi_api_use_heap(m->rt);
    st = rvi_api_read_chat(&chat, &json, given, &arena, err);
    if (!st) st = chat_ids(m, &chat, json, &out, err);
    rvi_arena_deinit(&arena);
    if (st)
        rvi_ids_deinit(&out);
    else
        st = rvi_api_give_ids(&out, ids, n, err);
    rvi_api_leave_heap(heap);
    return st;
}

rv_status rv_chat_render(const rv_model *m, const rv_chat *given, char **text, size_t *len,
                         rv_error *err)
{
    if (text) *text = NULL;
    if (!given || !text) return rvi_error(err, RV_E_INVALID, "rv_chat_render: NULL argument");
    rv_status st = rvi_api_need_tokenizer(m, err);
    if (st) return st;
    rv_chat chat;
    rvi_buf out = {0};
    rvi_arena arena = {.max = RVI_API_CHAT_BYTES};
    const rvi_json *json;
    const rv_allocator *heap = rvi_api_use_heap(m->rt);
    st = rvi_api_read_chat(&chat, &json, given, &arena, err);
    if (!st) st = render(m, &chat, json, &out, NULL, err);
    rvi_arena_deinit(&arena);
    st = rvi_api_give_text_after(st, &out, text, len, err);
    rvi_api_leave_heap(heap);
    return st;
}

/* The chat's variables, with tools and documents as none where they are not given. */
static rv_status with_none(const rvi_json **out, const rvi_json *given, rvi_arena *arena,
                           rv_error *err)
{
    static const char *const none[] = {"tools", "documents"};
    rvi_json *root = rvi_arena_alloc(arena, 1, sizeof *root);
    rvi_json *items = rvi_arena_alloc(arena, given->as.list.count + RVI_COUNT(none), sizeof *items);
    if (!root || !items) return rvi_nomem(err, "chat");
    size_t n = 0;
    for (size_t i = 0; i < RVI_COUNT(none); i++)
        if (!rvi_json_get(given, none[i])) items[n++] = rvi_json_named((rvi_json){0}, none[i]);
    for (size_t i = 0; i < given->as.list.count; i++) items[n++] = given->as.list.items[i];
    *root = rvi_json_list(RVI_JSON_OBJECT, items, n);
    *out = root;
    return RV_OK;
}

rv_status rv_template_render(const rv_runtime *rt, const char *source, size_t source_len,
                             const rv_chat *given, char **text, size_t *len, rv_error *err)
{
    if (text) *text = NULL;
    if (!rt || (!source && source_len) || !given || !text)
        return rvi_error(err, RV_E_INVALID, "rv_template_render: NULL argument");
    rv_chat chat;
    rvi_template *t = NULL;
    rvi_buf out = {0};
    rvi_arena arena = {.max = RVI_API_CHAT_BYTES};
    const rvi_json *json, *variables = NULL;
    const rv_allocator *heap = rvi_api_use_heap(rt);
    rv_status st = rvi_api_read_chat(&chat, &json, given, &arena, err);
    if (!st) st = with_none(&variables, json, &arena, err);
    if (!st) st = rvi_template_new(&t, source ? source : "", source_len, err);
    if (!st) {
        rvi_template_now now = time_of(chat.now);
        st = rvi_template_render(t, variables, &now, NULL, &out, err);
    }
    rvi_template_free(t);
    rvi_arena_deinit(&arena);
    st = rvi_api_give_text_after(st, &out, text, len, err);
    rvi_api_leave_heap(heap);
    return st;
}
