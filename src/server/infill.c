#include "server/infill.h"

#include <string.h>

/* The special tokens around a gap, by the families' own names. */
typedef struct marks {
    const char *prefix, *suffix, *middle, *repository, *file;
} marks;

static const marks families[] = {
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|repo_name|>", "<|file_sep|>"},
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<repo_name>", "<file_sep>"},
    {"<fim-prefix>", "<fim-suffix>", "<fim-middle>", NULL, NULL},
    {"<\xEF\xBD\x9C"
     "fim\xE2\x96\x81"
     "begin\xEF\xBD\x9C>",
     "<\xEF\xBD\x9C"
     "fim\xE2\x96\x81hole\xEF\xBD\x9C>",
     "<\xEF\xBD\x9C"
     "fim\xE2\x96\x81"
     "end\xEF\xBD\x9C>",
     NULL, NULL},
    {"\xE2\x96\x81<PRE>", "\xE2\x96\x81<SUF>", "\xE2\x96\x81<MID>", NULL, NULL},
    {"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>", NULL, NULL},
};

enum { NONE = -1 };

typedef struct ids {
    int32_t prefix, suffix, middle, repository, file;
} ids;

/* The token that is this text and a special one. */
static int32_t find(const rvi_serving *s, const char *name)
{
    int32_t *list = NULL, id = NONE;
    size_t n = 0;
    rv_error err;
    rvi_buf text = {0};
    if (!name || rv_tokenize(s->model, name, strlen(name), RV_TOKENIZE_SPECIAL, &list, &n, &err))
        return NONE;
    if (n == 1 && rvi_call_token_text(s, list[0], &text)) id = list[0];
    rvi_buf_deinit(&text);
    rv_free(list);
    return id;
}

static bool find_family(const rvi_serving *s, ids *out)
{
    for (size_t i = 0; i < RVI_COUNT(families); i++) {
        const marks *m = &families[i];
        *out = (ids){find(s, m->prefix), find(s, m->suffix), find(s, m->middle),
                     find(s, m->repository), find(s, m->file)};
        if (out->prefix >= 0 && out->suffix >= 0 && out->middle >= 0) return true;
    }
    return false;
}

typedef struct gap {
    rvi_call *k;
    ids id;
    rvi_buf all; /* of int32_t */
    bool ok;
} gap;

static void add(gap *g, const int32_t *list, size_t n)
{
    if (!g->ok || !n) return;
    g->ok = rvi_buf_append(&g->all, (const char *)list, n * sizeof *list) ||
            rvi_problem_set(&g->k->problem, 413, "request_too_large", NULL, "too large");
}

static void add_id(gap *g, int32_t id)
{
    if (id >= 0) add(g, &id, 1);
}

/* No special tokens: what the texts hold is code. */
static void add_text(gap *g, const char *text, size_t len, unsigned flags)
{
    int32_t *list = NULL;
    size_t n = 0;
    rv_error err = {0};
    if (!g->ok) return;
    rv_status st = rv_tokenize(g->k->s->model, text, len, flags, &list, &n, &err);
    if (st) g->ok = rvi_problem_from(&g->k->problem, st, &err);
    add(g, list, n);
    rv_free(list);
}

static bool is_text(const rvi_json *v)
{
    return rvi_json_is(v, RVI_JSON_STRING);
}

/* A text of the body, or none where it may be left out. */
static void add_member(gap *g, const char *name, bool needed)
{
    const rvi_json *v = rvi_json_get(g->k->body, name);
    if (!g->ok || (!needed && (!v || rvi_json_is(v, RVI_JSON_NULL)))) return;
    if (!is_text(v))
        g->ok = rvi_problem_set(&g->k->problem, 400, v ? "invalid_type" : "missing_field", name,
                                "%s must be a string", name);
    else
        add_text(g, v->as.string.data, v->as.string.len, 0);
}

/* Other files, each behind its name; a model without a token for that gets a line between them. */
static void add_extra(gap *g)
{
    static const char between[] = "\n\n--- snippet ---\n\n";
    const rvi_json *list = rvi_json_get(g->k->body, "input_extra");
    if (!list || rvi_json_is(list, RVI_JSON_NULL)) return;
    bool is_list = rvi_json_is(list, RVI_JSON_ARRAY);
    for (size_t i = 0; g->ok && is_list && i < rvi_json_count(list); i++) {
        const rvi_json *one = rvi_json_at(list, i), *text = rvi_json_get(one, "text"),
                       *name = rvi_json_get(one, "filename");
        is_list = is_text(text) && (!name || is_text(name));
        if (!is_list) break;
        add_id(g, g->id.file);
        if (g->id.file < 0) {
            add_text(g, between, sizeof between - 1, 0);
        } else {
            const char *file = rvi_json_string(name, "tmp");
            add_text(g, file, strlen(file), 0);
            add_text(g, "\n", 1, 0);
        }
        add_text(g, text->as.string.data, text->as.string.len, 0);
    }
    if (!is_list)
        g->ok = rvi_problem_set(&g->k->problem, 400, "invalid_type", "input_extra",
                                "input_extra is a list of objects with text and filename");
}

/* [repository][extra files][BOS] prefix, what was begun, suffix, and the gap at the end. */
static void add_all(gap *g)
{
    const rvi_json *extra = rvi_json_get(g->k->body, "input_extra");
    bool others = rvi_json_count(extra) || (extra && !rvi_json_is(extra, RVI_JSON_ARRAY));
    if (others && g->id.repository >= 0) {
        add_id(g, g->id.repository);
        add_text(g, "myproject\n", 10, 0);
    }
    add_extra(g);
    if (others && g->id.file >= 0) {
        add_id(g, g->id.file);
        add_text(g, "filename\n", 9, 0);
    }
    add_text(g, "", 0, RV_TOKENIZE_BOS);
    add_id(g, g->id.prefix);
    add_member(g, "input_prefix", true);
    add_member(g, "prompt", false);
    add_id(g, g->id.suffix);
    add_member(g, "input_suffix", true);
    add_id(g, g->id.middle);
}

bool rvi_infill_read(rvi_call *k, rvi_prompt *out)
{
    gap g = {.k = k, .ok = true};
    if (k->s->info.is_encoder || !find_family(k->s, &g.id))
        return rvi_problem_set(&k->problem, 400, "unsupported_model", NULL,
                               "this model has no tokens to fill a gap with: it was not made to");
    add_all(&g);
    size_t n = g.all.len / sizeof(int32_t);
    int32_t *list = rvi_arena_alloc(&k->arena, n + 1, sizeof *list);
    if (g.ok && !list)
        g.ok = rvi_problem_set(&k->problem, 413, "request_too_large", NULL, "too large");
    if (g.ok) memcpy(list, g.all.data, n * sizeof *list);
    rvi_buf_deinit(&g.all);
    *out = (rvi_prompt){list, n, NULL, 0};
    return g.ok;
}
