#include "calls/notation.h"

#include <string.h>

/* A text in quotes, as the notation has them. */
static void put_literal(rvi_buf *out, const char *text, size_t len)
{
    rvi_buf_putc(out, '"');
    for (size_t i = 0; i < len; i++) {
        char c = text[i];
        if (c == '\n' || c == '\r' || c == '\t') {
            rvi_buf_puts(out, c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t");
            continue;
        }
        if (c == '"' || c == '\\') rvi_buf_putc(out, '\\');
        rvi_buf_putc(out, c);
    }
    rvi_buf_puts(out, "\" ");
}

/* A text of a family, with its places for ids and numbers; accepts NULL. */
static void put_text(rvi_buf *out, const char *text)
{
    while (text && *text) {
        size_t len = strcspn(text, RVI_CALL_ID RVI_CALL_NUMBER);
        if (len) put_literal(out, text, len);
        text += len;
        if (*text) rvi_buf_puts(out, *text++ == *RVI_CALL_ID ? "[a-zA-Z0-9]{9} " : "[0-9]{1,3} ");
    }
}

static void put_json(rvi_buf *out, const char *schema)
{
    rvi_buf_printf(out, "%%json %s ", schema);
}

/* ---- arguments as tags and as keywords ---- */

static rv_status refuse(size_t tool, const char *name, const char *why, rv_error *err)
{
    return rvi_error(err, RV_E_UNSUPPORTED, "tools[%zu].function.parameters: '%.100s' %s", tool,
                     name, why);
}

/* Only plain members can be put in a row: no conditions among them. */
static rv_status check_plain(const rvi_tool *t, size_t at, bool python, rv_error *err)
{
    static const char *const known[] = {
        "type",        "properties", "required", "additionalProperties",
        "description", "title",      "$defs",    "definitions",
        "$schema",     "examples",   "default",  "$id",
        "$comment"};
    const rvi_json *properties = rvi_json_get(t->parameters, "properties"),
                   *required = rvi_json_get(t->parameters, "required");
    for (size_t i = 0; i < rvi_json_count(t->parameters); i++) {
        const char *key = rvi_json_at(t->parameters, i)->key;
        size_t k = 0;
        while (k < RVI_COUNT(known) && strcmp(known[k], key)) k++;
        if (k == RVI_COUNT(known))
            return refuse(at, key, "cannot be enforced for this model's way of calling tools", err);
    }
    for (size_t i = 0; i < rvi_json_count(required); i++)
        if (!rvi_json_get(properties, rvi_json_string(rvi_json_at(required, i), "")))
            return refuse(at, rvi_json_string(rvi_json_at(required, i), "?"),
                          "is required, but no property", err);
    for (size_t i = 0; i < rvi_json_count(properties); i++) {
        const char *key = rvi_json_at(properties, i)->key;
        bool word = *key && strlen(key) == rvi_json_at(properties, i)->key_len;
        for (const char *c = key; *c && word; c++)
            word = python ? (*c >= '0' && *c <= '9') || (*c >= 'a' && *c <= 'z') ||
                                (*c >= 'A' && *c <= 'Z') || *c == '_'
                          : !strchr("<>\"\n\r", *c);
        if (!word) return refuse(at, key, "is no name for this model's way of calling tools", err);
    }
    return RV_OK;
}

static bool is_required(const rvi_tool *t, const char *name)
{
    const rvi_json *required = rvi_json_get(t->parameters, "required");
    for (size_t i = 0; i < rvi_json_count(required); i++)
        if (rvi_json_is_string(rvi_json_at(required, i), name)) return true;
    return false;
}

/* A member's schema as a document of its own, with what it may refer to. */
static void put_member_schema(rvi_buf *out, const rvi_tool *t, const rvi_json *schema, bool no_text)
{
    static const char *const shared[] = {"$schema", "$defs", "definitions"};
    const char *comma = "";
    if (!rvi_json_is(schema, RVI_JSON_OBJECT)) {
        rvi_buf_puts(out, no_text ? "{\"not\":{\"type\":\"string\"}} " : "{} ");
        return;
    }
    rvi_buf_putc(out, '{');
    for (size_t i = 0; i < RVI_COUNT(shared); i++) {
        const rvi_json *v = rvi_json_get(t->parameters, shared[i]);
        if (!v || rvi_json_get(schema, shared[i])) continue;
        rvi_buf_printf(out, "%s\"%s\":", comma, shared[i]);
        rvi_json_write(out, v);
        comma = ",";
    }
    for (size_t i = 0; i < rvi_json_count(schema); i++) {
        const rvi_json *v = rvi_json_at(schema, i);
        rvi_buf_puts(out, comma);
        rvi_json_write_string(out, v->key, v->key_len);
        rvi_buf_putc(out, ':');
        rvi_json_write(out, v);
        comma = ",";
    }
    if (no_text) rvi_buf_printf(out, "%s\"not\":{\"type\":\"string\"}", comma);
    rvi_buf_puts(out, "} ");
}

static void put_tagged_value(rvi_buf *out, const rvi_family *f, const rvi_tool *t,
                             const rvi_json *schema)
{
    bool text, other;
    size_t end = strlen(f->value_end);
    while (end && f->value_end[end - 1] == '\n') end--;
    rvi_tool_kinds(t->parameters, schema, &text, &other);
    rvi_buf_puts(out, "( ");
    if (text) {
        rvi_buf_puts(out, other ? "%bare " : "%text ");
        put_literal(out, f->value_end, end);
        put_member_schema(out, t, schema, false);
    }
    if (text && other) rvi_buf_puts(out, "| ");
    if (other) {
        rvi_buf_puts(out, text ? "%other " : "%json ");
        put_member_schema(out, t, schema, text);
    }
    rvi_buf_puts(out, ") ");
}

static void put_member(rvi_buf *out, const rvi_family *f, const rvi_tool *t, const rvi_json *p)
{
    if (f->body == RVI_CALL_PYTHON) {
        put_literal(out, p->key, p->key_len);
        rvi_buf_puts(out, "\"=\" %json ");
        put_member_schema(out, t, p, false);
        return;
    }
    put_text(out, f->key_open);
    put_literal(out, p->key, p->key_len);
    put_text(out, f->key_close);
    put_tagged_value(out, f, t, p);
    put_text(out, f->value_end);
}

/* Members in their order, those that are not required or without them. Rule aI: from the I-th on,
 * the first that is written; bI: others were before. */
static void put_members(rvi_buf *out, const rvi_notation *n, size_t at)
{
    const rvi_tool *t = &n->tools->items[at];
    const rvi_json *properties = rvi_json_get(t->parameters, "properties");
    size_t count = rvi_json_count(properties);
    bool python = n->family->body == RVI_CALL_PYTHON;
    for (size_t i = 0; i < count; i++) {
        const rvi_json *p = rvi_json_at(properties, i);
        rvi_buf_printf(out, "ruvllm-%zu-p%zu ::= ", at, i);
        put_member(out, n->family, t, p);
        for (const char *ab = "ab"; *ab; ab++) {
            rvi_buf_printf(out, "\nruvllm-%zu-%c%zu ::= %sruvllm-%zu-p%zu ruvllm-%zu-b%zu", at, *ab,
                           i, python && *ab == 'b' ? "\", \" " : "", at, i, at, i + 1);
            if (!is_required(t, p->key)) rvi_buf_printf(out, " | ruvllm-%zu-%c%zu", at, *ab, i + 1);
        }
        rvi_buf_putc(out, '\n');
    }
    rvi_buf_printf(out, "ruvllm-%zu-a%zu ::= \"\"\nruvllm-%zu-b%zu ::= \"\"\n", at, count, at,
                   count);
}

/* ---- calls ---- */

static void put_call(rvi_buf *out, const rvi_notation *n, size_t at)
{
    const rvi_family *f = n->family;
    const rvi_tool *t = &n->tools->items[at];
    put_literal(out, t->name, strlen(t->name));
    if (f->body == RVI_CALL_TAGS || f->body == RVI_CALL_PYTHON) {
        put_text(out, f->middle);
        rvi_buf_printf(out, "ruvllm-%zu-a0 ", at);
    } else if (f->body == RVI_CALL_NAMED) {
        put_text(out, f->middle);
        put_json(out, t->schema);
    } else {
        rvi_buf_printf(out, "\"\\\", \\\"%s\\\": \" ", f->arguments);
        put_json(out, t->schema);
        rvi_buf_puts(out,
                     f->with_id ? "\", \\\"id\\\": \\\"\" [a-zA-Z0-9]{9} \"\\\"}\" " : "\"}\" ");
    }
}

static void put_calls(rvi_buf *out, const rvi_notation *n)
{
    const rvi_family *f = n->family;
    bool named = n->choice.kind == RVI_CHOICE_NAMED;
    rvi_buf_puts(out, "ruvllm-calls ::= ");
    put_text(out, f->section_open);
    rvi_buf_puts(out, "ruvllm-call ");
    if (!n->one_call && !f->single) {
        rvi_buf_puts(out, "( ");
        put_text(out, f->between);
        rvi_buf_puts(out, "ruvllm-call )* ");
    }
    put_text(out, f->section_close);
    rvi_buf_puts(out, "\nruvllm-call ::= ");
    put_text(out, f->open);
    if (f->body == RVI_CALL_OBJECT) rvi_buf_puts(out, "\"{\\\"name\\\": \\\"\" ");
    rvi_buf_puts(out, "( ");
    for (size_t i = 0, k = 0; i < n->tools->n; i++) {
        if (named && i != n->choice.tool) continue;
        if (k++) rvi_buf_puts(out, "| ");
        put_call(out, n, i);
    }
    rvi_buf_puts(out, ") ");
    put_text(out, f->close);
    rvi_buf_putc(out, '\n');
    for (size_t i = 0; i < n->tools->n; i++)
        if (f->body == RVI_CALL_TAGS || f->body == RVI_CALL_PYTHON) put_members(out, n, i);
}

/* ---- answers ---- */

/* Text in which neither a call nor thinking begins. */
static void put_free_text(rvi_buf *out, const rvi_notation *n, bool may_call)
{
    char trigger[64];
    size_t len = may_call ? rvi_family_trigger(n->family, trigger, sizeof trigger) : 0;
    if (may_call && !len) /* a call is an answer that begins with a brace */
        rvi_buf_puts(out, "[ \\t\\r\\n]* ( [^{ \\t\\r\\n] ");
    rvi_buf_puts(out, len || n->thinking ? "%without " : ".* ");
    if (len) put_literal(out, trigger, len);
    if (len && n->thinking) rvi_buf_puts(out, ", ");
    if (n->thinking) put_literal(out, n->thinking->open, strlen(n->thinking->open));
    rvi_buf_puts(out, may_call && !len ? ")?" : "");
}

static rv_status put_choices(rvi_buf *out, const rvi_notation *n, rv_error *err)
{
    rvi_arena arena = {.max = RVI_MAX_TOOLS_BYTES};
    const rvi_json *list;
    rv_status st = rvi_json_parse(&list, n->form_text, n->form_len, &arena, "choices", err);
    if (!st && (!rvi_json_is(list, RVI_JSON_ARRAY) || !rvi_json_count(list)))
        st = rvi_error(err, RV_E_CONFIG, "choices: a list of strings is expected");
    for (size_t i = 0; !st && i < rvi_json_count(list); i++) {
        const rvi_json *choice = rvi_json_at(list, i);
        if (!rvi_json_is(choice, RVI_JSON_STRING))
            st = rvi_error(err, RV_E_CONFIG, "choices: item %zu is no string", i);
        if (!st && i) rvi_buf_puts(out, "| ");
        if (!st) put_literal(out, choice->as.string.data, choice->as.string.len);
    }
    rvi_arena_deinit(&arena);
    return st;
}

static rv_status put_form(rvi_buf *out, const rvi_notation *n, bool may_call, rv_error *err)
{
    rv_status st = RV_OK;
    if (n->form == RVI_FORM_GBNF) { /* with its own root, and the lines it ends with */
        rvi_buf_append(out, n->form_text, n->form_len);
        rvi_buf_putc(out, '\n');
        return RV_OK;
    }
    rvi_buf_puts(out, "root ::= ");
    switch (n->form) {
    case RVI_FORM_TEXT: put_free_text(out, n, may_call); break;
    case RVI_FORM_SCHEMA:
        rvi_buf_puts(out, "%json ");
        rvi_buf_append(out, n->form_text, n->form_len);
        break;
    case RVI_FORM_JSON: rvi_buf_puts(out, "%json {\"type\":\"object\"}"); break;
    case RVI_FORM_REGEX:
        rvi_buf_puts(out, "%regex ");
        put_literal(out, n->form_text, n->form_len);
        break;
    case RVI_FORM_CHOICES: st = put_choices(out, n, err); break;
    case RVI_FORM_GBNF: break;
    }
    rvi_buf_putc(out, '\n');
    return st;
}

/* The text before the answer. */
static void put_thinking(rvi_buf *out, const rvi_notation *n)
{
    if (!n->thinking) return;
    const char *open = n->thinking->open, *close = n->thinking->close;
    if (n->no_thoughts) {
        if (n->opened) put_literal(out, close, strlen(close));
        if (n->opened) rvi_buf_puts(out, "\"\\n\\n\" ");
        return;
    }
    if (!n->opened) {
        rvi_buf_puts(out, "( [ \\n]{0,2} ");
        put_literal(out, open, strlen(open));
    }
    rvi_buf_puts(out,
                 n->opened ? "ruvllm-thinking [ \\n]{0,2} " : "ruvllm-thinking [ \\n]{0,2} )? ");
}

rv_status rvi_notation_write(rvi_buf *out, const rvi_notation *n, rv_error *err)
{
    bool may_call = n->tools && n->tools->n && n->choice.kind != RVI_CHOICE_NONE;
    bool must_call = may_call && n->choice.kind != RVI_CHOICE_AUTO;
    bool rows =
        may_call && (n->family->body == RVI_CALL_TAGS || n->family->body == RVI_CALL_PYTHON);
    rv_status st = RV_OK;
    for (size_t i = 0; rows && !st && i < n->tools->n; i++)
        st = check_plain(&n->tools->items[i], i, n->family->body == RVI_CALL_PYTHON, err);
    if (st) return st;
    rvi_buf_puts(out, "ruvllm-start ::= ");
    put_thinking(out, n);
    if (must_call)
        rvi_buf_puts(out, "ruvllm-calls\n");
    else if (!may_call)
        rvi_buf_puts(out, "root\n");
    else
        rvi_buf_puts(out, n->form == RVI_FORM_TEXT ? "( root | ruvllm-before ruvllm-calls )\n"
                                                   : "( root | ruvllm-calls )\n");
    if (may_call && !must_call && n->form == RVI_FORM_TEXT) {
        bool anywhere = rvi_family_trigger(n->family, (char[64]){0}, 64) > 0;
        rvi_buf_puts(out,
                     anywhere ? "ruvllm-before ::= root\n" : "ruvllm-before ::= [ \\n]{0,2}\n");
    }
    if (!must_call) st = put_form(out, n, may_call, err);
    if (may_call) put_calls(out, n);
    if (n->thinking && !n->no_thoughts) {
        const char *close = n->thinking->close;
        rvi_buf_puts(out, "ruvllm-thinking ::= %without ");
        put_literal(out, close, strlen(close));
        put_literal(out, close, strlen(close));
        rvi_buf_putc(out, '\n');
    }
    return st || !out->failed ? st : rvi_nomem(err, "grammar");
}
