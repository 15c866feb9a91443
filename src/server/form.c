#include "server/form.h"

#include <string.h>

/* White space in a row in JSON: enough to indent, and no model fills a page with it. */
enum { MAX_BLANKS = 24 };

static bool is_schema(const rvi_json *v)
{
    return rvi_json_is(v, RVI_JSON_OBJECT) || rvi_json_is(v, RVI_JSON_BOOL);
}

static bool read_schema(rvi_answer_form *f, const char *field, const char *place, const rvi_json *v,
                        rvi_problem *p)
{
    *f = (rvi_answer_form){field, RV_GRAMMAR_SCHEMA, v};
    return is_schema(v) || rvi_problem_set(p, 400, "invalid_json_schema", field,
                                           "%s must be a JSON schema, an object", place);
}

/* "strict" may be false, and the schema holds all the same. */
static bool check_strict(const char *place, const rvi_json *strict, rvi_problem *p)
{
    return !strict || rvi_json_is(strict, RVI_JSON_BOOL) || rvi_json_is(strict, RVI_JSON_NULL) ||
           rvi_problem_set(p, 400, "invalid_type", place, "%s.strict must be true or false", place);
}

/* {"type": "text" | "json_object" | "json_schema"}; of the last the schema lies in `holder`, or
 * beside the type where that is NULL. llama-server takes a schema beside json_object too. */
static bool read_typed(rvi_answer_form *f, const char *field, const char *holder, const rvi_json *v,
                       rvi_problem *p)
{
    const rvi_json *type = rvi_json_get(v, "type"), *schema = rvi_json_get(v, "schema");
    *f = (rvi_answer_form){0};
    if (!rvi_json_is(v, RVI_JSON_OBJECT))
        return rvi_problem_set(p, 400, "invalid_type", field, "%s must be an object", field);
    if (rvi_json_is_string(type, "text")) return true;
    if (rvi_json_is_string(type, "json_schema")) {
        const rvi_json *named = holder ? rvi_json_get(v, holder) : v;
        return check_strict(field, rvi_json_get(named, "strict"), p) &&
               read_schema(f, field, holder ? "response_format.json_schema.schema" : "schema",
                           rvi_json_get(named, "schema"), p);
    }
    if (!rvi_json_is_string(type, "json_object"))
        return rvi_problem_set(p, 400, "invalid_value", field,
                               "%s.type must be text, json_object or json_schema", field);
    if (schema && !rvi_json_is(schema, RVI_JSON_NULL))
        return read_schema(f, field, "response_format.schema", schema, p);
    *f = (rvi_answer_form){field, RV_GRAMMAR_JSON, NULL};
    return true;
}

/* An object of settings with the form in its member "format": OpenAI's text, Anthropic's
 * output_config. Others in it must ask for nothing: `other`, but for the word `usual`. */
static bool read_settings(rvi_answer_form *f, const char *field, const char *other,
                          const char *usual, const rvi_json *v, rvi_problem *p)
{
    const rvi_json *format = rvi_json_get(v, "format"), *more = rvi_json_get(v, other);
    *f = (rvi_answer_form){0};
    if (!rvi_json_is(v, RVI_JSON_OBJECT))
        return rvi_problem_set(p, 400, "invalid_type", field, "%s must be an object", field);
    if (more && !rvi_json_is(more, RVI_JSON_NULL) && !rvi_json_is_string(more, usual))
        return rvi_problem_set(p, 400, "unsupported_parameter", field,
                               "%s.%s is not supported by this server", field, other);
    if (!format || rvi_json_is(format, RVI_JSON_NULL)) return true;
    return read_typed(f, field, NULL, format, p);
}

/* Ollama's: "json", a schema, or an empty text. */
static bool read_ollama(rvi_answer_form *f, const char *field, const rvi_json *v, rvi_problem *p)
{
    *f = (rvi_answer_form){0};
    if (rvi_json_is_string(v, "")) return true;
    if (!rvi_json_is_string(v, "json"))
        return read_schema(f, field, "format, where it is not \"json\",", v, p);
    *f = (rvi_answer_form){field, RV_GRAMMAR_JSON, NULL};
    return true;
}

/* An empty text asks for nothing. */
static bool read_text(rvi_answer_form *f, const char *field, rv_grammar_kind kind,
                      const rvi_json *v, rvi_problem *p)
{
    *f = (rvi_answer_form){0};
    if (!rvi_json_is(v, RVI_JSON_STRING))
        return rvi_problem_set(p, 400, "invalid_type", field, "%s must be a string", field);
    if (v->as.string.len) *f = (rvi_answer_form){field, kind, v};
    return true;
}

static bool read_choices(rvi_answer_form *f, const char *field, const rvi_json *v, rvi_problem *p)
{
    *f = (rvi_answer_form){field, RV_GRAMMAR_CHOICES, v};
    return rvi_json_is(v, RVI_JSON_ARRAY) ||
           rvi_problem_set(p, 400, "invalid_type", field, "%s must be a list of strings", field);
}

static bool read_one(rvi_answer_form *f, const char *field, const rvi_json *v, rvi_problem *p)
{
    if (!strcmp(field, "response_format")) return read_typed(f, field, "json_schema", v, p);
    if (!strcmp(field, "output_format")) return read_typed(f, field, NULL, v, p);
    if (!strcmp(field, "output_config")) return read_settings(f, field, "effort", "", v, p);
    if (!strcmp(field, "text")) return read_settings(f, field, "verbosity", "medium", v, p);
    if (!strcmp(field, "format")) return read_ollama(f, field, v, p);
    if (!strcmp(field, "guided_regex")) return read_text(f, field, RV_GRAMMAR_REGEX, v, p);
    if (!strcmp(field, "guided_choice")) return read_choices(f, field, v, p);
    if (!strcmp(field, "grammar") || !strcmp(field, "guided_grammar"))
        return read_text(f, field, RV_GRAMMAR_GBNF, v, p);
    return read_schema(f, field, field, v, p);
}

bool rvi_form_read(rvi_answer_form *f, const char *field, const rvi_json *v, rvi_problem *p)
{
    rvi_answer_form asked;
    bool again = f->field && !strcmp(f->field, field); /* of two with one name the last counts */
    if (!read_one(&asked, field, v, p)) return false;
    if (f->field && asked.field && !again)
        return rvi_problem_set(p, 400, "invalid_value", field, "give one of %s and %s", f->field,
                               field);
    if (asked.field || again) *f = asked;
    return true;
}

bool rvi_form_grammar(const rvi_answer_form *f, const rv_model *m, rv_grammar **out, rvi_problem *p)
{
    rv_grammar_options o = {.size = sizeof o, .max_blanks = MAX_BLANKS, .canonical = 1};
    rv_error err = {0};
    rvi_buf text = {0};
    *out = NULL;
    if (!f->field) return true;
    if (rvi_json_is(f->source, RVI_JSON_STRING))
        rvi_buf_append(&text, f->source->as.string.data, f->source->as.string.len);
    else if (f->source)
        rvi_json_write(&text, f->source);
    rv_status st = text.failed ? RV_E_NOMEM
                               : rv_grammar_new(out, m, f->kind, text.len ? text.data : "",
                                                text.len, &o, &err);
    rvi_buf_deinit(&text);
    if (st == RV_E_CONFIG || st == RV_E_UNSUPPORTED || st == RV_E_GENERATION)
        return rvi_problem_set(
            p, 400, f->kind == RV_GRAMMAR_SCHEMA ? "invalid_json_schema" : "invalid_grammar",
            f->field, "%s: %s", f->field, err.text);
    return !st || rvi_problem_from(p, st, &err);
}
