/* Files of natural corrections, a JSON object a line:
 *   {"id", "class", "lang", "question", "answer", "accept": [...], "wordings": [...],
 *    "neighbours": [...], "same_subject": [...]}
 * and those of zsRE and CounterFact, {"id", "question" or "prompt", "answer", "rephrase": [...],
 * "local": [...]}, whose rephrase are wordings and whose local are neighbours. */
#include <string.h>

#include "base/error.h"
#include "eval/natural.h"

enum { MAX_FILE = 64 << 20, MAX_TREE = 512 << 20 };

/* A text that can be asked or taught: neither empty nor with a NUL in it; NULL: it is none. */
static const char *text_of(const rvi_json *v)
{
    const char *text = rvi_json_string(v, NULL);
    return text && *text && strlen(text) == v->as.string.len ? text : NULL;
}

/* The first of two members that is there. */
static const rvi_json *either(const rvi_json *v, const char *key, const char *other)
{
    const rvi_json *found = rvi_json_get(v, key);
    return found ? found : rvi_json_get(v, other);
}

static rv_status need(const rvi_json *v, const char *what, const char **out, rv_error *err)
{
    *out = text_of(v);
    if (*out) return RV_OK;
    return rvi_error(err, RV_E_CONFIG, v ? "%s is no text, or empty" : "%s is missing", what);
}

/* May be missing; otherwise a list of texts, or of objects with a "question". */
static rv_status read_texts(eval *e, const rvi_json *list, const char *what, eval_texts *out,
                            rv_error *err)
{
    size_t n = rvi_json_count(list);
    if (!list) return RV_OK;
    if (!rvi_json_is(list, RVI_JSON_ARRAY))
        return rvi_error(err, RV_E_CONFIG, "%s is no list", what);
    if (!n) return RV_OK;
    if (!(out->items = rvi_arena_alloc(&e->arena, n, sizeof *out->items)))
        return rvi_nomem(err, what);
    for (size_t i = 0; i < n; i++) {
        const rvi_json *v = rvi_json_at(list, i);
        if (rvi_json_is(v, RVI_JSON_OBJECT)) v = rvi_json_get(v, "question");
        if (!(out->items[i] = text_of(v)))
            return rvi_error(err, RV_E_CONFIG, "%s: entry %zu is no text, or empty", what, i + 1);
    }
    out->n = n;
    return RV_OK;
}

static rv_status read_one(eval *e, const char **text, eval_texts *out, rv_error *err)
{
    if (!(out->items = rvi_arena_alloc(&e->arena, 1, sizeof *out->items)))
        return rvi_nomem(err, "correction");
    out->items[0] = *text;
    out->n = 1;
    return RV_OK;
}

static rv_status read_correction(eval *e, const rvi_json *v, natural_correction *out, rv_error *err)
{
    const char *class = text_of(rvi_json_get(v, "class")), *lang = text_of(rvi_json_get(v, "lang"));
    eval_texts *asked = out->asked;
    *out = (natural_correction){.class = class ? class : "-", .lang = lang ? lang : "-"};
    if (!rvi_json_is(v, RVI_JSON_OBJECT)) return rvi_error(err, RV_E_CONFIG, "no JSON object");
    rv_status st = need(rvi_json_get(v, "id"), "\"id\"", &out->id, err);
    if (!st) st = need(either(v, "question", "prompt"), "\"question\"", &out->question, err);
    if (!st) st = need(rvi_json_get(v, "answer"), "\"answer\"", &out->answer, err);
    if (!st) st = read_texts(e, rvi_json_get(v, "accept"), "\"accept\"", &out->accept, err);
    if (!st && !rvi_json_get(v, "accept")) st = read_one(e, &out->answer, &out->accept, err);
    if (!st) st = read_one(e, &out->question, &asked[NATURAL_EDIT], err);
    if (!st)
        st = read_texts(e, either(v, "wordings", "rephrase"), "\"wordings\"",
                        &asked[NATURAL_WORDING], err);
    if (!st)
        st = read_texts(e, either(v, "neighbours", "local"), "\"neighbours\"",
                        &asked[NATURAL_NEIGHBOUR], err);
    if (!st)
        st = read_texts(e, rvi_json_get(v, "same_subject"), "\"same_subject\"",
                        &asked[NATURAL_SAME], err);
    if (!st && !eval_contains_any(out->answer, &out->accept))
        st = rvi_error(err, RV_E_CONFIG, "\"answer\" has none of \"accept\" in it");
    return st;
}

static rv_status add(natural_file *f, const natural_correction *c, rv_error *err)
{
    if (f->n == f->cap) {
        size_t cap = f->cap ? 2 * f->cap : 64;
        natural_correction *grown = rvi_realloc_array(f->items, cap, sizeof *grown);
        if (!grown) return rvi_nomem(err, "corrections");
        f->items = grown;
        f->cap = cap;
    }
    f->items[f->n++] = *c;
    return RV_OK;
}

static bool blank(const char *line, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (!strchr(" \t\r", line[i]) || !line[i]) return false;
    return true;
}

rv_status natural_load(eval *e, const char *path, natural_file *f, rv_error *err)
{
    size_t before = f->n, most = e->o.limit ? (size_t)e->o.limit : SIZE_MAX, number = 0;
    rvi_buf text = {.max = MAX_FILE};
    e->arena.max = MAX_TREE;
    rv_status st = cli_read_file(path, &text, err);
    for (size_t at = 0, len; !st && at < text.len && f->n < most; at += len + 1) {
        const char *line = text.data + at, *end = memchr(line, '\n', text.len - at);
        rv_error own = {0};
        const rvi_json *v;
        natural_correction c;
        len = end ? (size_t)(end - line) : text.len - at;
        number++;
        if (blank(line, len)) continue;
        st = rvi_json_parse(&v, line, len, &e->arena, "JSON", &own);
        const char *why = st ? strstr(own.text, "column") : NULL; /* it counts lines of a line */
        if (!st) st = read_correction(e, v, &c, &own);
        if (!st) st = add(f, &c, &own);
        if (st)
            st = rvi_error(err, st, "%s, line %zu: %s", path, number,
                           why           ? why
                           : own.text[0] ? own.text
                                         : rv_status_text(st));
    }
    if (!st && f->n == before && f->n < most)
        st = rvi_error(err, RV_E_CONFIG, "%s: holds no correction", path);
    rvi_buf_deinit(&text);
    return st;
}
