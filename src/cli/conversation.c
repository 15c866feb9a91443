#include "cli/conversation.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "base/os.h"

enum { MAX_FILE = 64 << 20, MAX_TREE = 1 << 30 };

/* ---- the list ---- */

static bool reserve(cli_conversation *c)
{
    if (c->n < c->cap) return true;
    size_t cap = c->cap ? c->cap * 2 : 16;
    cli_message *grown = rvi_realloc_array(c->messages, cap, sizeof *grown);
    if (!grown) return false;
    c->messages = grown;
    c->cap = cap;
    return true;
}

/* Takes the bytes of json, which are gone from the buffer afterwards in any case. */
static rv_status insert(cli_conversation *c, size_t at, const char *role, rvi_buf *json,
                        rv_error *err)
{
    if (json->failed || !reserve(c)) {
        rvi_buf_deinit(json);
        return rvi_nomem(err, "conversation");
    }
    memmove(&c->messages[at + 1], &c->messages[at], (c->n - at) * sizeof c->messages[0]);
    c->messages[at] =
        (cli_message){json->data, json->len, !strcmp(role, "system"), !strcmp(role, "user")};
    c->n++;
    *json = (rvi_buf){0};
    return RV_OK;
}

static void erase(cli_conversation *c, size_t at, size_t n)
{
    for (size_t i = at; i < at + n; i++) rvi_free(c->messages[i].json);
    if (n) memmove(&c->messages[at], &c->messages[at + n], (c->n - at - n) * sizeof c->messages[0]);
    c->n -= n;
}

void cli_conversation_deinit(cli_conversation *c)
{
    cli_conversation_cut(c, 0);
    rvi_free(c->messages);
    rvi_free(c->others);
    *c = (cli_conversation){0};
}

static rv_status insert_text(cli_conversation *c, size_t at, const char *role, const char *text,
                             size_t len, rv_error *err)
{
    rvi_buf json = {0};
    rvi_buf_printf(&json, "{\"role\":\"%s\",\"content\":", role);
    rvi_json_write_string(&json, text, len);
    rvi_buf_puts(&json, "}");
    return insert(c, at, role, &json, err);
}

rv_status cli_conversation_add(cli_conversation *c, const char *role, const char *text, size_t len,
                               rv_error *err)
{
    return insert_text(c, c->n, role, text, len, err);
}

rv_status cli_conversation_set(cli_conversation *c, const char *name, const char *json,
                               rv_error *err)
{
    rvi_buf all = {0};
    if (c->others) rvi_buf_append(&all, c->others, c->others_len);
    rvi_buf_printf(&all, "\"%s\":%s,", name, json);
    if (all.failed) {
        rvi_buf_deinit(&all);
        return rvi_nomem(err, "conversation");
    }
    rvi_free(c->others);
    c->others = all.data;
    c->others_len = all.len;
    return RV_OK;
}

void cli_conversation_cut(cli_conversation *c, size_t n)
{
    if (n < c->n) erase(c, n, c->n - n);
}

static bool has_system(const cli_conversation *c)
{
    return c->n && c->messages[0].is_system;
}

size_t cli_conversation_drop_turns(cli_conversation *c, size_t n_turns)
{
    size_t first = has_system(c), at = first, dropped = 0;
    while (dropped < n_turns && at < c->n) {
        for (at++; at < c->n && !c->messages[at].is_user; at++) {
        }
        dropped++;
    }
    erase(c, first, at - first);
    return dropped;
}

rv_status cli_conversation_set_system(cli_conversation *c, const char *text, rv_error *err)
{
    bool had = has_system(c);
    rv_status st = text ? insert_text(c, 0, "system", text, strlen(text), err) : RV_OK;
    if (!st && had) erase(c, text ? 1 : 0, 1);
    return st;
}

/* ---- JSON ---- */

/* The tree as text. Its depth has the parser's limit. */
static void write_json(rvi_buf *out, const rvi_json *v)
{
    bool object = v->kind == RVI_JSON_OBJECT;
    switch (v->kind) {
    case RVI_JSON_NULL: rvi_buf_puts(out, "null"); break;
    case RVI_JSON_BOOL: rvi_buf_puts(out, v->as.boolean ? "true" : "false"); break;
    case RVI_JSON_INT: rvi_buf_printf(out, "%lld", (long long)v->as.integer); break;
    case RVI_JSON_NUMBER: rvi_json_write_number(out, v->as.number); break;
    case RVI_JSON_STRING: rvi_json_write_string(out, v->as.string.data, v->as.string.len); break;
    case RVI_JSON_ARRAY:
    case RVI_JSON_OBJECT:
        rvi_buf_putc(out, object ? '{' : '[');
        for (size_t i = 0; i < v->as.list.count; i++) {
            const rvi_json *item = &v->as.list.items[i];
            if (i) rvi_buf_putc(out, ',');
            if (object) {
                rvi_json_write_string(out, item->key, item->key_len);
                rvi_buf_putc(out, ':');
            }
            write_json(out, item);
        }
        rvi_buf_putc(out, object ? '}' : ']');
        break;
    }
}

void cli_conversation_text(const cli_conversation *c, size_t i, rvi_buf *out)
{
    rvi_arena arena = {0};
    const rvi_json *message;
    if (!rvi_json_parse(&message, c->messages[i].json, c->messages[i].len, &arena, "message",
                        NULL)) {
        const rvi_json *content = rvi_json_get(message, "content");
        if (rvi_json_is(content, RVI_JSON_STRING))
            rvi_buf_append(out, content->as.string.data, content->as.string.len);
        else if (content)
            write_json(out, content);
    }
    rvi_arena_deinit(&arena);
}

bool cli_conversation_system(const cli_conversation *c, rvi_buf *out)
{
    if (!has_system(c)) return false;
    cli_conversation_text(c, 0, out);
    return true;
}

static rv_status load_messages(cli_conversation *c, const rvi_json *list, const char *path,
                               rv_error *err)
{
    rv_status st = RV_OK;
    for (size_t i = 0; !st && i < rvi_json_count(list); i++) {
        const rvi_json *message = rvi_json_at(list, i), *role = rvi_json_get(message, "role");
        if (!rvi_json_is(role, RVI_JSON_STRING))
            return rvi_error(err, RV_E_CONFIG,
                             "%s: message %zu is not an object with a string \"role\"", path, i);
        rvi_buf json = {0};
        write_json(&json, message);
        st = insert(c, c->n, role->as.string.data, &json, err);
    }
    return st;
}

rv_status cli_conversation_append(cli_conversation *c, const char *list, rv_error *err)
{
    rvi_arena arena = {.max = MAX_TREE};
    const rvi_json *tree;
    rv_status st = rvi_json_parse(&tree, list, strlen(list), &arena, "turns", err);
    if (!st) st = load_messages(c, tree, "turns", err);
    rvi_arena_deinit(&arena);
    return st;
}

static rv_status load_tree(cli_conversation *c, const rvi_json *tree, const char *path,
                           rv_error *err)
{
    bool object = rvi_json_is(tree, RVI_JSON_OBJECT);
    const rvi_json *list = object ? rvi_json_get(tree, "messages") : tree;
    if (!rvi_json_is(list, RVI_JSON_ARRAY))
        return rvi_error(err, RV_E_CONFIG,
                         "%s: {\"messages\": [...]} or a list of {\"role\", \"content\"} is "
                         "expected",
                         path);
    rv_status st = load_messages(c, list, path, err);
    rvi_buf others = {0};
    for (size_t i = 0; !st && object && i < rvi_json_count(tree); i++) {
        const rvi_json *member = rvi_json_at(tree, i);
        if (member->key_len == 8 && !memcmp(member->key, "messages", 8)) continue;
        rvi_json_write_string(&others, member->key, member->key_len);
        rvi_buf_putc(&others, ':');
        write_json(&others, member);
        rvi_buf_putc(&others, ',');
    }
    if (!st && others.failed) st = rvi_nomem(err, "conversation");
    if (st) {
        rvi_buf_deinit(&others);
    } else {
        c->others = others.data;
        c->others_len = others.len;
    }
    return st;
}

rv_status cli_conversation_load(cli_conversation *c, const char *path, rv_error *err)
{
    rvi_buf file = {.max = MAX_FILE};
    rvi_arena arena = {.max = MAX_TREE};
    cli_conversation loaded = {0};
    const rvi_json *tree;
    rv_status st = cli_read_file(path, &file, err);
    if (!st && !file.len) st = rvi_error(err, RV_E_CONFIG, "%s: it is empty", path);
    if (!st) st = rvi_json_parse(&tree, file.data, file.len, &arena, path, err);
    if (!st) st = load_tree(&loaded, tree, path, err);
    if (st) {
        cli_conversation_deinit(&loaded);
    } else {
        cli_conversation_deinit(c);
        *c = loaded;
    }
    rvi_buf_deinit(&file);
    rvi_arena_deinit(&arena);
    return st;
}

/* `{OTHERS"messages":[...]`, still open */
static void write_open(const cli_conversation *c, const char *between, rvi_buf *out)
{
    rvi_buf_putc(out, '{');
    if (c->others) rvi_buf_append(out, c->others, c->others_len);
    rvi_buf_puts(out, "\"messages\":[");
    for (size_t i = 0; i < c->n; i++) {
        if (i) rvi_buf_putc(out, ',');
        rvi_buf_puts(out, between);
        rvi_buf_append(out, c->messages[i].json, c->messages[i].len);
    }
    rvi_buf_puts(out, between);
    rvi_buf_putc(out, ']');
}

/* A file that is there must be a conversation too: a slip of the finger is not to cost a model. */
static rv_status check_place(const char *path, rv_error *err)
{
    cli_conversation old = {0};
    uint64_t size = 0;
    rv_status st = RV_OK;
    if (rvi_os_stat(path, &size) != RVI_OS_FILE || !size) return RV_OK;
    if (size > MAX_FILE || cli_conversation_load(&old, path, NULL))
        st = rvi_error(err, RV_E_CONFIG, "%s: not overwritten: it exists and is no conversation",
                       path);
    cli_conversation_deinit(&old);
    return st;
}

static rv_status write_text(FILE *f, const rvi_buf *text, const char *path, rv_error *err)
{
    rv_status st = rvi_os_write(f, text->data, text->len, path, err);
    if (fclose(f) && !st) st = rvi_error(err, RV_E_IO, "%s: %s", path, strerror(errno));
    return st;
}

/* The file is written under a random name in the same directory and then renamed: a full disk does
 * not destroy an older file, and no link is followed. */
static rv_status replace_file(const char *path, const rvi_buf *text, rv_error *err)
{
    rvi_buf part = {0};
    FILE *f = NULL;
    rv_status st = rvi_os_create_beside(path, &part, &f, err);
    if (!st) {
        st = write_text(f, text, path, err);
        if (!st) st = rvi_os_replace(part.data, path, err);
        if (st) remove(part.data);
    }
    rvi_buf_deinit(&part);
    return st;
}

rv_status cli_conversation_save(const cli_conversation *c, const char *path, rv_error *err)
{
    rvi_buf text = {0};
    write_open(c, "\n", &text);
    rvi_buf_puts(&text, "}\n");
    rv_status st = text.failed ? rvi_nomem(err, "conversation") : check_place(path, err);
    if (!st && rvi_os_is_device(path)) {
        FILE *f = fopen(path, "wb");
        st = f ? write_text(f, &text, path, err)
               : rvi_error(err, RV_E_IO, "%s: %s", path, strerror(errno));
    } else if (!st) {
        st = replace_file(path, &text, err);
    }
    rvi_buf_deinit(&text);
    return st;
}

rv_status cli_conversation_json(const cli_conversation *c, rvi_buf *out, rv_error *err)
{
    write_open(c, "", out);
    rvi_buf_putc(out, '}');
    return out->failed ? rvi_nomem(err, "conversation") : RV_OK;
}

rv_status cli_conversation_begin(rv_learner *l, rv_session *s, const rvi_buf *json,
                                 rv_learn_plan **plan, rv_error *err)
{
    rv_chat chat = {.size = sizeof chat, .variables = json->data};
    return rv_learner_begin(l, s, &chat, plan, err);
}

rv_status cli_conversation_ids(const cli_conversation *c, const rv_model *m, rv_learner *l,
                               bool special, const rv_time *now, int32_t **ids, size_t *n,
                               rv_error *err)
{
    rvi_buf json = {0};
    *ids = NULL;
    *n = 0;
    rv_status st = cli_conversation_json(c, &json, err);
    rv_chat chat = {.size = sizeof chat, .variables = json.data, .special = special, .now = now};
    if (!st)
        st = l ? rv_learner_tokenize(l, &chat, ids, n, err)
               : rv_chat_tokenize(m, &chat, ids, n, err);
    rvi_buf_deinit(&json);
    return st;
}
