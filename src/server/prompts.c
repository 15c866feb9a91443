#include "server/prompts.h"

#include <string.h>

typedef struct reader {
    const rv_model *m;
    const char *field;
    unsigned flags;
    rvi_arena *arena;
    rvi_problem *p;
} reader;

static bool no_memory(const reader *r)
{
    return rvi_problem_set(r->p, 413, "request_too_large", r->field, "%s is too large", r->field);
}

static bool read_text(const reader *r, const rvi_json *v, rvi_prompt *out)
{
    rv_error err = {0};
    int32_t *ids = NULL, *copy;
    size_t n = 0;
    const char *text = v->as.string.data;
    rv_status st = rv_tokenize(r->m, text, v->as.string.len, r->flags, &ids, &n, &err);
    if (st) return rvi_problem_from(r->p, st, &err);
    copy = rvi_arena_alloc(r->arena, n + 1, sizeof *copy);
    if (copy && n) memcpy(copy, ids, n * sizeof *ids);
    rv_free(ids);
    *out = (rvi_prompt){copy, n, text, v->as.string.len};
    return copy || no_memory(r);
}

static bool add_ids(const reader *r, rvi_buf *all, const int32_t *ids, size_t n)
{
    return !n || rvi_buf_append(all, (const char *)ids, n * sizeof *ids) || no_memory(r);
}

/* An id, or a text in the middle of ids. */
static bool add_element(const reader *r, const rvi_json *v, bool first, rvi_buf *all)
{
    int n_vocab = rv_model_get_info(r->m)->n_vocab;
    int64_t id = rvi_json_int(v, -1);
    int32_t one = (int32_t)id;
    if (rvi_json_is(v, RVI_JSON_STRING)) {
        rvi_prompt text;
        reader inner = *r;
        if (!first) inner.flags &= RV_TOKENIZE_SPECIAL;
        return read_text(&inner, v, &text) && add_ids(r, all, text.ids, text.n);
    }
    if (id < 0 || id >= n_vocab)
        return rvi_problem_set(r->p, 400, "invalid_value", r->field,
                               "%s: token ids are whole numbers from 0 to %d", r->field,
                               n_vocab - 1);
    return add_ids(r, all, &one, 1);
}

static bool read_ids(const reader *r, const rvi_json *list, rvi_prompt *out)
{
    rvi_buf all = {0};
    bool ok = true;
    for (size_t i = 0; ok && i < rvi_json_count(list); i++)
        ok = add_element(r, rvi_json_at(list, i), !i, &all);
    size_t n = all.len / sizeof(int32_t);
    int32_t *ids = rvi_arena_alloc(r->arena, n + 1, sizeof *ids);
    if (ok && !ids) ok = no_memory(r);
    if (ok && n) memcpy(ids, all.data, n * sizeof *ids);
    rvi_buf_deinit(&all);
    *out = (rvi_prompt){ids, n, NULL, 0};
    return ok;
}

/* llama-server's {"prompt_string": text}; pictures and sounds beside it are not taken. */
static const rvi_json *text_of(const rvi_json *v)
{
    const rvi_json *text = rvi_json_get(v, "prompt_string");
    bool plain = rvi_json_is(v, RVI_JSON_OBJECT) && !rvi_json_get(v, "multimodal_data");
    return plain && rvi_json_is(text, RVI_JSON_STRING) ? text : v;
}

static bool read_one(const reader *r, const rvi_json *v, rvi_prompt *out)
{
    bool ok;
    v = text_of(v);
    if (rvi_json_is(v, RVI_JSON_STRING))
        ok = read_text(r, v, out);
    else if (rvi_json_is(v, RVI_JSON_ARRAY))
        ok = read_ids(r, v, out);
    else
        return rvi_problem_set(r->p, 400, "invalid_type", r->field,
                               "%s must be a string, a list of strings, a list of token ids, or a "
                               "list of such lists",
                               r->field);
    if (ok && !out->n)
        return rvi_problem_set(r->p, 400, "invalid_value", r->field, "%s must not be empty",
                               r->field);
    return ok;
}

/* A list of texts and ids in one row is one prompt, unless all of it are texts. */
bool rvi_prompts_many(const rvi_json *v)
{
    bool ids = false;
    if (!rvi_json_is(v, RVI_JSON_ARRAY) || !rvi_json_count(v)) return false;
    for (size_t i = 0; i < rvi_json_count(v); i++)
        ids = ids || rvi_json_is(rvi_json_at(v, i), RVI_JSON_INT);
    return !ids;
}

bool rvi_prompts_read(const rv_model *m, const rvi_json *v, const char *field, unsigned flags,
                      rvi_arena *arena, rvi_prompt **out, int *n, rvi_problem *p)
{
    reader r = {m, field, flags, arena, p};
    size_t count = rvi_json_count(v);
    bool many = rvi_prompts_many(v);
    if (!v || rvi_json_is(v, RVI_JSON_NULL))
        return rvi_problem_set(p, 400, "missing_field", field, "%s is missing", field);
    if (many && count > RVI_PROMPTS_MOST)
        return rvi_problem_set(p, 400, "value_out_of_range", field,
                               "%s may be a list of %d (got %zu)", field, RVI_PROMPTS_MOST, count);
    *n = many ? (int)count : 1;
    *out = rvi_arena_alloc(arena, (size_t)*n, sizeof **out);
    if (!*out) return no_memory(&r);
    for (int i = 0; i < *n; i++)
        if (!read_one(&r, many ? rvi_json_at(v, (size_t)i) : v, &(*out)[i])) return false;
    return true;
}
