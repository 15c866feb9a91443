#include "calls/tools.h"

#include <string.h>

static const rvi_json *function_of(const rvi_json *tool)
{
    const rvi_json *f = rvi_json_get(tool, "function");
    return f ? f : tool;
}

static bool name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c && strchr("_.-", c));
}

static rv_status check_name(const rvi_tools *t, size_t at, const rvi_json *name, rv_error *err)
{
    if (!rvi_json_is(name, RVI_JSON_STRING))
        return rvi_error(err, RV_E_CONFIG, "tools[%zu].function.name is not a string", at);
    size_t len = name->as.string.len;
    bool ok = len && len <= RVI_MAX_TOOL_NAME;
    for (size_t i = 0; i < len && ok; i++) ok = name_char(name->as.string.data[i]);
    if (!ok)
        return rvi_error(err, RV_E_CONFIG,
                         "tools[%zu].function.name must be 1..%d letters, digits, _ . - (got "
                         "'%.70s')",
                         at, RVI_MAX_TOOL_NAME, name->as.string.data);
    for (size_t i = 0; i < at; i++)
        if (!strcmp(t->items[i].name, name->as.string.data))
            return rvi_error(err, RV_E_CONFIG, "tools[%zu]: there are two tools named '%s'", at,
                             t->items[i].name);
    return RV_OK;
}

/* Whether members may be declared elsewhere than in "properties". */
static bool is_composed(const rvi_json *schema)
{
    static const char *const words[] = {"additionalProperties",
                                        "patternProperties",
                                        "unevaluatedProperties",
                                        "allOf",
                                        "anyOf",
                                        "oneOf",
                                        "$ref",
                                        "if",
                                        "dependentSchemas",
                                        "dependencies",
                                        "not"};
    for (size_t i = 0; i < RVI_COUNT(words); i++)
        if (rvi_json_get(schema, words[i])) return true;
    return false;
}

/* The schema of the arguments: what is declared, an object in any case, and no members that nobody
 * declared. */
static bool write_schema(const rvi_json *parameters, rvi_buf *out)
{
    bool closed = rvi_json_get(parameters, "properties") && !is_composed(parameters), comma = false;
    if (!parameters)
        return rvi_buf_puts(out, "{\"type\":\"object\",\"additionalProperties\":false}");
    rvi_buf_putc(out, '{');
    if (!rvi_json_get(parameters, "type")) comma = rvi_buf_puts(out, "\"type\":\"object\"");
    for (size_t i = 0; i < rvi_json_count(parameters); i++) {
        const rvi_json *member = rvi_json_at(parameters, i);
        rvi_buf_puts(out, comma ? "," : "");
        rvi_json_write_string(out, member->key, member->key_len);
        rvi_buf_putc(out, ':');
        rvi_json_write(out, member);
        comma = true;
    }
    if (closed) rvi_buf_puts(out, ",\"additionalProperties\":false");
    return rvi_buf_putc(out, '}');
}

static rv_status read_tool(rvi_tools *t, size_t at, rv_error *err)
{
    const rvi_json *tool = rvi_json_at(t->list, at), *type = rvi_json_get(tool, "type");
    const rvi_json *f = function_of(tool), *parameters = rvi_json_get(f, "parameters");
    if (!rvi_json_is(f, RVI_JSON_OBJECT))
        return rvi_error(err, RV_E_CONFIG, "tools[%zu] is not an object with a function", at);
    if (type && !rvi_json_is_string(type, "function"))
        return rvi_error(err, RV_E_UNSUPPORTED,
                         "tools[%zu].type must be \"function\": no other tools are known", at);
    rv_status st = check_name(t, at, rvi_json_get(f, "name"), err);
    if (st) return st;
    const rvi_json *about = rvi_json_get(f, "description"),
                   *kind = rvi_json_get(parameters, "type");
    if (about && !rvi_json_is(about, RVI_JSON_STRING) && !rvi_json_is(about, RVI_JSON_NULL))
        return rvi_error(err, RV_E_CONFIG, "tools[%zu].function.description is not a string", at);
    if (rvi_json_is(parameters, RVI_JSON_NULL)) parameters = NULL;
    if (parameters && (!rvi_json_is(parameters, RVI_JSON_OBJECT) ||
                       (kind && !rvi_json_is_string(kind, "object"))))
        return rvi_error(err, RV_E_CONFIG,
                         "tools[%zu].function.parameters must be the schema of an object", at);
    rvi_buf schema = {0};
    bool ok = write_schema(parameters, &schema);
    char *copy = ok ? rvi_arena_strndup(&t->arena, schema.data, schema.len) : NULL;
    rvi_buf_deinit(&schema);
    if (!copy) return rvi_nomem(err, "tools");
    t->items[at] = (rvi_tool){rvi_json_string(rvi_json_get(f, "name"), ""), parameters, copy};
    return RV_OK;
}

rv_status rvi_tools_new(rvi_tools **out, const char *text, size_t len, rv_error *err)
{
    *out = NULL;
    if (len > RVI_MAX_TOOLS_BYTES)
        return rvi_error(err, RV_E_CONFIG, "tools: %zu bytes are too many (at most %d)", len,
                         RVI_MAX_TOOLS_BYTES);
    rvi_tools *t = rvi_zalloc(sizeof *t);
    if (!t) return rvi_nomem(err, "tools");
    t->arena.max = 32u * RVI_MAX_TOOLS_BYTES;
    const char *copy = rvi_arena_strndup(&t->arena, text, len); /* numbers point into it */
    rv_status st = copy ? rvi_json_parse(&t->list, copy, len, &t->arena, "tools", err)
                        : rvi_nomem(err, "tools");
    if (!st && !rvi_json_is(t->list, RVI_JSON_ARRAY))
        st = rvi_error(err, RV_E_CONFIG, "tools must be a JSON list");
    size_t n = rvi_json_count(t->list);
    if (!st && n > RVI_MAX_TOOLS)
        st = rvi_error(err, RV_E_CONFIG, "there must be at most %d tools (got %zu)", RVI_MAX_TOOLS,
                       n);
    if (!st && !(t->items = rvi_arena_alloc(&t->arena, n + 1, sizeof *t->items)))
        st = rvi_nomem(err, "tools");
    for (; !st && t->n < n; t->n += !st) st = read_tool(t, t->n, err);
    if (st)
        rvi_tools_free(t);
    else
        *out = t;
    return st;
}

void rvi_tools_free(rvi_tools *t)
{
    if (!t) return;
    rvi_arena_deinit(&t->arena);
    rvi_free(t);
}

const rvi_tool *rvi_tools_find(const rvi_tools *t, const char *name, size_t len)
{
    for (size_t i = 0; t && i < t->n; i++)
        if (strlen(t->items[i].name) == len && !memcmp(t->items[i].name, name, len))
            return &t->items[i];
    return NULL;
}

static rv_status choose(rvi_tool_choice *out, const rvi_tools *t, const char *name, rv_error *err)
{
    static const char *const words[] = {"auto", "none", "required"};
    for (size_t i = 0; i < RVI_COUNT(words); i++)
        if (!strcmp(name, words[i])) {
            *out = (rvi_tool_choice){.kind = (rvi_choice_kind)i};
            if (out->kind == RVI_CHOICE_REQUIRED && (!t || !t->n))
                return rvi_error(err, RV_E_CONFIG, "tool_choice is required, but there is no tool");
            return RV_OK;
        }
    const rvi_tool *tool = rvi_tools_find(t, name, strlen(name));
    if (!tool)
        return rvi_error(err, RV_E_CONFIG,
                         "tool_choice must be auto, none, required or the name of a tool (got "
                         "'%.70s')",
                         name);
    *out = (rvi_tool_choice){RVI_CHOICE_NAMED, (size_t)(tool - t->items)};
    return RV_OK;
}

rv_status rvi_choice_read(rvi_tool_choice *out, const rvi_tools *t, const char *text, rv_error *err)
{
    *out = (rvi_tool_choice){0};
    if (!text) return RV_OK;
    if (*text != '{') return choose(out, t, text, err);
    rvi_arena arena = {.max = RVI_MAX_TOOLS_BYTES};
    const rvi_json *object;
    rv_status st = rvi_json_parse(&object, text, strlen(text), &arena, "tool_choice", err);
    const char *name = st ? NULL : rvi_json_string(rvi_json_get(function_of(object), "name"), NULL);
    if (!st && !name) st = rvi_error(err, RV_E_CONFIG, "tool_choice names no function");
    if (!st) st = choose(out, t, name, err);
    rvi_arena_deinit(&arena);
    return st;
}

static void note_value(const rvi_json *value, bool *text, bool *other)
{
    *(rvi_json_is(value, RVI_JSON_STRING) ? text : other) = true;
}

/* The definition that a schema refers to, or the schema. */
static const rvi_json *meant(const rvi_json *parameters, const rvi_json *schema)
{
    static const char *const places[] = {"$defs", "definitions"};
    for (int hops = 0; hops < 8 && rvi_json_get(schema, "$ref"); hops++) {
        const char *ref = rvi_json_string(rvi_json_get(schema, "$ref"), "");
        const rvi_json *found = NULL;
        for (size_t i = 0; i < RVI_COUNT(places); i++) {
            size_t len = strlen(places[i]);
            if (!strncmp(ref, "#/", 2) && !strncmp(ref + 2, places[i], len) && ref[2 + len] == '/')
                found = rvi_json_get(rvi_json_get(parameters, places[i]), ref + 3 + len);
        }
        if (!found) return NULL;
        schema = found;
    }
    return schema;
}

static void find_kinds(const rvi_json *parameters, const rvi_json *schema, int depth, bool *text,
                       bool *other)
{
    static const char *const lists[] = {"anyOf", "oneOf"};
    schema = meant(parameters, schema);
    const rvi_json *type = rvi_json_get(schema, "type"), *fixed = rvi_json_get(schema, "const"),
                   *values = rvi_json_get(schema, "enum");
    *text = *other = false;
    if (fixed) note_value(fixed, text, other);
    for (size_t i = 0; i < rvi_json_count(values); i++)
        note_value(rvi_json_at(values, i), text, other);
    if (*text || *other) return;
    if (rvi_json_is(type, RVI_JSON_STRING))
        *(rvi_json_is_string(type, "string") ? text : other) = true;
    for (size_t i = 0; rvi_json_is(type, RVI_JSON_ARRAY) && i < rvi_json_count(type); i++)
        *(rvi_json_is_string(rvi_json_at(type, i), "string") ? text : other) = true;
    for (size_t k = 0; k < RVI_COUNT(lists) && !type && depth < 8; k++)
        for (size_t i = 0; i < rvi_json_count(rvi_json_get(schema, lists[k])); i++) {
            bool t, o;
            find_kinds(parameters, rvi_json_at(rvi_json_get(schema, lists[k]), i), depth + 1, &t,
                       &o);
            *text = *text || t;
            *other = *other || o;
        }
    if (!*text && !*other) *text = *other = true;
}

void rvi_tool_kinds(const rvi_json *parameters, const rvi_json *schema, bool *text, bool *other)
{
    find_kinds(parameters, schema, 0, text, other);
}
