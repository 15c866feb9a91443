#include "calls/validate.h"

#include <string.h>

#include "grammar/grammar.h"
#include "text/json_path.h"
#include "text/repair.h"

static const char any_object[] = "{\"type\":\"object\"}";

enum { MAX_SCHEMA_BYTES = 64 << 20 };

/* ---- a grammar over bytes ---- */

typedef struct checker {
    rvi_vocab *v;
    rvi_grammar *g;
} checker;

static const uint8_t *one_byte(void *ctx, int32_t id, uint32_t *len, bool *eos)
{
    uint8_t *byte = ctx;
    *eos = id == 256;
    *byte = (uint8_t)id;
    *len = 1;
    return *eos ? NULL : byte;
}

static rv_status make(const rvi_checked_form *f, checker *c, rv_error *err)
{
    uint8_t byte;
    *c = (checker){0};
    rv_status st = rvi_vocab_new(&c->v, 257, one_byte, &byte, err);
    if (st) return st;
    switch (f->kind) {
    case RVI_FORM_TEXT: break;
    case RVI_FORM_JSON:
    case RVI_FORM_SCHEMA: return rvi_grammar_schema(&c->g, c->v, f->text, f->len, NULL, err);
    case RVI_FORM_REGEX: return rvi_grammar_regex(&c->g, c->v, f->text, f->len, err);
    case RVI_FORM_GBNF: return rvi_grammar_gbnf(&c->g, c->v, f->text, f->len, NULL, err);
    case RVI_FORM_CHOICES: return rvi_grammar_choices(&c->g, c->v, f->text, f->len, err);
    }
    return RV_OK;
}

static void drop(checker *c)
{
    rvi_grammar_free(c->g);
    rvi_vocab_free(c->v);
}

/* How many bytes of the text are right; *whole: all are, and it may end there. */
static rv_status walk(checker *c, const char *text, size_t len, size_t *right, bool *whole,
                      rv_error *err)
{
    uint32_t state = rvi_grammar_start(c->g), next = 0;
    rv_status st = RV_OK;
    size_t at = 0;
    for (; at < len && !st; at++) {
        st = rvi_grammar_text(c->g, state, text + at, 1, &next, err);
        if (!next) break;
        state = next;
    }
    *right = at;
    *whole = !st && at == len && rvi_grammar_ends(c->g, state);
    return st;
}

/* ---- JSON ---- */

/* What a model can be told: the place, what stands there, what is declared. */
static void explain(const rvi_json *schema, const char *json, size_t len, size_t at, rvi_buf *out)
{
    rvi_buf path = {0}, declared = {0};
    rvi_json_path_at(json, len, at, &path);
    const rvi_json *here = rvi_json_path_schema(schema, path.data ? path.data : "");
    bool closes = json[at] == '}' || json[at] == ']';
    rvi_buf_printf(out, "The JSON does not satisfy the schema. At %s (byte %zu): ",
                   path.len ? path.data : "its top", at);
    if (closes)
        rvi_buf_printf(out, "the %s may not end here, something is missing.",
                       json[at] == '}' ? "object" : "list");
    else
        rvi_buf_printf(out, "%.*s is not allowed.", (int)RVI_MIN(len - at, (size_t)40), json + at);
    if (here) rvi_json_write(&declared, here);
    if (declared.len && declared.len <= 400)
        rvi_buf_printf(out, " Declared there: %.*s", (int)declared.len, declared.data);
    out->failed = out->failed || path.failed || declared.failed;
    rvi_buf_deinit(&path);
    rvi_buf_deinit(&declared);
}

struct rvi_validator {
    checker c;
    rvi_arena arena;
    rvi_buf schema, json; /* copies: what came so far */
    const rvi_json *tree;
    uint32_t state; /* 0: it is wrong, which was told */
};

rv_status rvi_validator_new(rvi_validator **out, const char *schema, size_t len, rv_error *err)
{
    rvi_validator *v = *out = rvi_zalloc(sizeof *v);
    if (!v || !rvi_buf_append(&v->schema, schema, len)) {
        rvi_validator_free(v);
        *out = NULL;
        return rvi_nomem(err, "schema");
    }
    v->arena.max = MAX_SCHEMA_BYTES;
    rvi_checked_form form = {RVI_FORM_SCHEMA, len ? v->schema.data : "", len};
    rv_status st = make(&form, &v->c, err);
    if (!st) st = rvi_json_parse(&v->tree, form.text, len, &v->arena, "schema", err);
    if (!st) v->state = rvi_grammar_start(v->c.g);
    if (!st) return RV_OK;
    rvi_validator_free(v);
    *out = NULL;
    return st;
}

void rvi_validator_free(rvi_validator *v)
{
    if (!v) return;
    drop(&v->c);
    rvi_arena_deinit(&v->arena);
    rvi_buf_deinit(&v->schema);
    rvi_buf_deinit(&v->json);
    rvi_free(v);
}

rv_status rvi_validator_push(rvi_validator *v, const char *json, size_t len, rvi_buf *problem,
                             rv_error *err)
{
    size_t at = v->json.len;
    if (!rvi_buf_append(&v->json, json, len)) return rvi_nomem(err, "schema");
    for (; at < v->json.len && v->state; at++) {
        uint32_t next = 0;
        rv_status st = rvi_grammar_text(v->c.g, v->state, v->json.data + at, 1, &next, err);
        if (st) return st;
        if (!next) explain(v->tree, v->json.data, v->json.len, at, problem);
        v->state = next;
    }
    return problem->failed ? rvi_nomem(err, "schema") : RV_OK;
}

rv_status rvi_validator_end(rvi_validator *v, rvi_buf *problem, rv_error *err)
{
    if (v->state && !rvi_grammar_ends(v->c.g, v->state)) {
        if (v->json.len)
            explain(v->tree, v->json.data, v->json.len, v->json.len - 1, problem);
        else
            rvi_buf_puts(problem, "There is no JSON.");
    }
    v->state = 0;
    return problem->failed ? rvi_nomem(err, "schema") : RV_OK;
}

rv_status rvi_validate_json(const char *schema, size_t schema_len, const char *json, size_t len,
                            rvi_buf *problem, rv_error *err)
{
    rvi_validator *v;
    rv_status st = rvi_validator_new(&v, schema, schema_len, err);
    if (!st) st = rvi_validator_push(v, json, len, problem, err);
    if (!st) st = rvi_validator_end(v, problem, err);
    rvi_validator_free(v);
    return st;
}

/* ---- forms ---- */

static rvi_checked_form schema_of(const rvi_checked_form *form)
{
    if (form->kind != RVI_FORM_JSON) return *form;
    return (rvi_checked_form){RVI_FORM_SCHEMA, any_object, sizeof any_object - 1};
}

rv_status rvi_validate_ready(const rvi_checked_form *given, rv_error *err)
{
    checker c;
    rvi_checked_form form = schema_of(given);
    rv_status st = make(&form, &c, err);
    drop(&c);
    return st;
}

static rv_status check_json(const rvi_checked_form *form, const char *text, size_t len,
                            rvi_buf *out, rvi_buf *problem, rv_error *err)
{
    rv_error why = {0};
    rv_status st = rvi_json_repair(text, len, out, NULL, NULL, &why);
    if (st == RV_E_CONFIG) {
        out->len = 0;
        rvi_buf_puts(problem, "There is no JSON in the answer.");
        return problem->failed ? rvi_nomem(err, "form") : RV_OK;
    }
    if (st) {
        if (err) *err = why;
        return st;
    }
    return rvi_validate_json(form->text, form->len, out->data, out->len, problem, err);
}

rv_status rvi_validate_form(const rvi_checked_form *given, const char *text, size_t len,
                            rvi_buf *out, rvi_buf *problem, rv_error *err)
{
    rvi_checked_form form = schema_of(given);
    if (form.kind == RVI_FORM_SCHEMA) return check_json(&form, text, len, out, problem, err);
    checker c = {0};
    size_t right = 0, from = 0;
    bool whole = form.kind == RVI_FORM_TEXT;
    rv_status st = whole ? RV_OK : make(&form, &c, err);
    if (!whole && !st) st = walk(&c, text, len, &right, &whole, err);
    if (!whole && !st) { /* without blanks around it */
        while (from < len && strchr(" \t\r\n", text[from])) from++;
        while (len > from && strchr(" \t\r\n", text[len - 1])) len--;
        st = walk(&c, text + from, len - from, &right, &whole, err);
    }
    drop(&c);
    if (st) return st;
    rvi_buf_append(out, text + from, len - from);
    if (!whole && right < len - from)
        rvi_buf_printf(problem,
                       "The answer does not have the form that is asked for: '%.*s' is not allowed "
                       "at byte %zu.",
                       (int)RVI_MIN(len - from - right, (size_t)40), text + from + right, right);
    else if (!whole)
        rvi_buf_puts(problem, "The answer does not have the form that is asked for: something is "
                              "missing at its end.");
    return out->failed || problem->failed ? rvi_nomem(err, "form") : RV_OK;
}
