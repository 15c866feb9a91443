#include "server/wish.h"

#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/os.h"
#include "server/messages.h"

/* ---- values ---- */

static bool refuse_type(const rvi_field *f, const char *wanted, rvi_problem *p)
{
    return rvi_problem_set(p, 400, "invalid_type", f->name, "%s must be %s", f->name, wanted);
}

static bool read_number(const rvi_field *f, const rvi_json *v, double *out, rvi_problem *p)
{
    if (!rvi_json_is(v, RVI_JSON_INT) && !rvi_json_is(v, RVI_JSON_NUMBER))
        return refuse_type(f, f->kind == RVI_FIELD_FLOAT ? "a number" : "a whole number", p);
    *out = rvi_json_number(v, 0);
    if (f->kind != RVI_FIELD_FLOAT && floor(*out) != *out)
        return refuse_type(f, "a whole number", p);
    if (*out >= f->min && *out <= f->max) return true;
    return rvi_problem_set(p, 400, "value_out_of_range", f->name, "%s must be %g to %g (got %g)",
                           f->name, f->min, f->max, *out);
}

static bool read_text(const char **out, const rvi_field *f, const rvi_json *v, rvi_problem *p)
{
    if (!rvi_json_is(v, RVI_JSON_STRING)) return refuse_type(f, "a string", p);
    size_t n = v->as.string.len;
    *out = v->as.string.data;
    if (strlen(*out) != n) return refuse_type(f, "a string without U+0000", p);
    if ((double)n >= f->min && (double)n <= f->max) return true;
    return rvi_problem_set(p, 400, "value_out_of_range", f->name,
                           "%s must have %g to %g bytes (got %zu)", f->name, f->min, f->max, n);
}

static bool read_stops(rvi_wish *w, const rvi_field *f, const rvi_json *v, rvi_problem *p)
{
    size_t n = rvi_json_is(v, RVI_JSON_STRING) ? 1 : rvi_json_count(v);
    if (!rvi_json_is(v, RVI_JSON_STRING) && !rvi_json_is(v, RVI_JSON_ARRAY))
        return refuse_type(f, "a string or a list of strings", p);
    if (n > RVI_WISH_STOPS)
        return rvi_problem_set(p, 400, "value_out_of_range", f->name,
                               "%s may have %d strings (got %zu)", f->name, RVI_WISH_STOPS, n);
    w->generate.n_stop = 0; /* of two members with one name the last counts */
    for (size_t i = 0; i < n; i++) {
        const char *text =
            rvi_json_string(rvi_json_is(v, RVI_JSON_STRING) ? v : rvi_json_at(v, i), NULL);
        if (!text) return refuse_type(f, "a string or a list of strings", p);
        if (*text) w->stops[w->generate.n_stop++] = text;
    }
    return true;
}

/* Keys are token ids; the ends of the range mean never and always. */
static bool read_bias(rvi_wish *w, const rvi_field *f, const rvi_json *v, rvi_arena *arena,
                      rvi_problem *p)
{
    size_t n = rvi_json_count(v);
    if (!rvi_json_is(v, RVI_JSON_OBJECT)) return refuse_type(f, "an object", p);
    rv_logit_bias *list = rvi_arena_alloc(arena, n + 1, sizeof *list);
    if (!list) return rvi_problem_set(p, 503, NULL, NULL, "out of memory");
    for (size_t i = 0; i < n; i++) {
        const rvi_json *item = rvi_json_at(v, i);
        char *end;
        double bias;
        long id = strtol(item->key, &end, 10);
        if (!*item->key || *end || id < 0 || id > INT32_MAX)
            return rvi_problem_set(p, 400, "invalid_type", f->name,
                                   "logit_bias has token ids as keys (got '%.40s')", item->key);
        if (!read_number(&(rvi_field){f->name, 0, RVI_FIELD_FLOAT, f->min, f->max, 0, NULL}, item,
                         &bias, p))
            return false;
        list[i] = (rv_logit_bias){(int32_t)id, bias <= f->min   ? -INFINITY
                                               : bias >= f->max ? INFINITY
                                                                : (float)bias};
    }
    w->sampling.logit_bias = list;
    w->sampling.n_logit_bias = n;
    return true;
}

static bool read_usage(rvi_wish *w, const rvi_field *f, const rvi_json *v, rvi_problem *p)
{
    const rvi_json *usage = rvi_json_get(v, "include_usage");
    if (!rvi_json_is(v, RVI_JSON_OBJECT)) return refuse_type(f, "an object", p);
    if (usage && !rvi_json_is(usage, RVI_JSON_BOOL) && !rvi_json_is(usage, RVI_JSON_NULL))
        return rvi_problem_set(p, 400, "invalid_type", "stream_options.include_usage",
                               "stream_options.include_usage must be true or false");
    w->include_usage = rvi_json_bool(usage, false);
    return true;
}

/* A word, a list of one, or an object whose type is one, of those that ask for nothing. */
static bool asks_for_nothing(const rvi_field *f, const rvi_json *v)
{
    if (rvi_json_is(v, RVI_JSON_ARRAY) && rvi_json_count(v) == 1) v = rvi_json_at(v, 0);
    if (rvi_json_is(v, RVI_JSON_OBJECT) && rvi_json_count(v)) v = rvi_json_get(v, "type");
    if (rvi_json_is(v, RVI_JSON_STRING)) {
        const char *text = rvi_json_string(v, "");
        return !*text || rvi_messages_lists(f->harmless, text);
    }
    if (rvi_json_is(v, RVI_JSON_BOOL)) return !rvi_json_bool(v, true);
    return rvi_json_is(v, RVI_JSON_NULL) ||
           ((rvi_json_is(v, RVI_JSON_ARRAY) || rvi_json_is(v, RVI_JSON_OBJECT)) &&
            !rvi_json_count(v));
}

static bool read_field(rvi_wish *w, const rvi_field *f, const rvi_json *v, rvi_arena *arena,
                       rvi_problem *p)
{
    char *place = (char *)w + f->at;
    double number;
    switch (f->kind) {
    case RVI_FIELD_FLAG:
        if (!rvi_json_is(v, RVI_JSON_BOOL)) return refuse_type(f, "true or false", p);
        if (f->at == offsetof(rvi_wish, generate.ignore_eos))
            w->generate.ignore_eos = rvi_json_bool(v, false);
        else
            *(bool *)place = rvi_json_bool(v, false);
        return true;
    case RVI_FIELD_LOGPROBS: w->has_logprobs = true; /* fall through */
    case RVI_FIELD_INT:
        if (!read_number(f, v, &number, p)) return false;
        *(int *)(void *)place = (int)number;
        return true;
    case RVI_FIELD_FLOAT:
        if (!read_number(f, v, &number, p)) return false;
        *(float *)(void *)place = (float)number;
        if (f->at == offsetof(rvi_wish, temperature)) w->has_temperature = true;
        return true;
    case RVI_FIELD_TEXT: return read_text((const char **)(void *)place, f, v, p);
    case RVI_FIELD_SEED:
        if (!rvi_json_is(v, RVI_JSON_INT)) return refuse_type(f, "a whole number", p);
        w->sampling.seed = (uint64_t)rvi_json_int(v, 0);
        return true;
    case RVI_FIELD_STOPS: return read_stops(w, f, v, p);
    case RVI_FIELD_BIAS: return read_bias(w, f, v, arena, p);
    case RVI_FIELD_USAGE: return read_usage(w, f, v, p);
    case RVI_FIELD_FORM: return rvi_form_read(&w->form, f->name, v, p);
    case RVI_FIELD_OWN: return true;
    case RVI_FIELD_OPTIONS: /* rvi_wish_read goes into it */
        return rvi_json_is(v, RVI_JSON_OBJECT) || refuse_type(f, "an object", p);
    case RVI_FIELD_REFUSED: break;
    }
    return asks_for_nothing(f, v) || rvi_problem_set(p, 400, "unsupported_parameter", f->name,
                                                     "%s is not supported by this server", f->name);
}

/* ---- what they mean together ---- */

enum { NOT_GIVEN = -1000 };

static bool combine(rvi_wish *w, unsigned what, rvi_problem *p)
{
    rv_sampling *s = &w->sampling;
    int most = w->max_completion_tokens != NOT_GIVEN ? w->max_completion_tokens : w->max_tokens;
    w->generate.max_tokens = most < 0 ? RV_TO_CONTEXT_END : most ? most : RV_NO_TOKENS;
    s->greedy = w->has_temperature && w->temperature <= 0;
    s->temperature = w->has_temperature ? w->temperature : 0;
    if (w->mirostat == 1)
        return rvi_problem_set(p, 400, "unsupported_parameter", "mirostat",
                               "mirostat must be 0 or 2 (got 1)");
    if (w->mirostat == 2) {
        s->mirostat_tau = w->mirostat_tau > 0 ? w->mirostat_tau : 5;
        s->mirostat_eta = w->mirostat_eta;
    }
    if (w->n_best && w->n_best != w->n)
        return rvi_problem_set(p, 400, "unsupported_parameter", "best_of",
                               "best_of must be n (got %d)", w->n_best);
    if (!(what & (RVI_FOR_COMPLETION | RVI_FOR_NATIVE)) && w->top_logprobs && !w->logprobs)
        return rvi_problem_set(p, 400, NULL, "top_logprobs", "top_logprobs needs logprobs: true");
    w->generate.logprobs = w->logprobs || w->has_logprobs;
    w->generate.top_logprobs = w->top_logprobs;
    w->generate.stop = w->stops;
    s->top_k = RVI_MAX(s->top_k, 0);
    return true;
}

/* Goes into a header: only names of plain letters, and not too many. */
static void note_ignored(rvi_buf *out, const char *name)
{
    enum { MOST = 512, LONGEST = 64 };
    size_t n = strlen(name);
    if (!n || n > LONGEST || out->len + n > MOST) return;
    for (size_t i = 0; i < n; i++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.", name[i]))
            return;
    rvi_buf_printf(out, "%s%s", out->len ? "," : "", name);
}

typedef struct reading {
    rvi_wish *w;
    rvi_arena *arena;
    rvi_buf *ignored;
    rvi_problem *p;
} reading;

static bool read_members(const reading *r, unsigned what, const rvi_json *object)
{
    for (size_t i = 0; i < rvi_json_count(object); i++) {
        const rvi_json *v = rvi_json_at(object, i);
        const rvi_field *f = rvi_field_find(what, v->key);
        if (!f) note_ignored(r->ignored, v->key);
        if (f && !rvi_json_is(v, RVI_JSON_NULL) && !read_field(r->w, f, v, r->arena, r->p))
            return false;
    }
    return true;
}

/* Ollama's: the end of the context is -1, no window at all is 0. */
static void set_window(rvi_wish *w)
{
    if (w->last_n == NOT_GIVEN) return;
    w->sampling.repetition_window = w->last_n < 0 ? INT_MAX : w->last_n;
    if (!w->last_n) w->sampling.repetition_penalty = 1;
}

bool rvi_wish_read(rvi_wish *w, unsigned what, const rvi_json *body, rvi_arena *arena,
                   rvi_buf *ignored, rvi_problem *p)
{
    const reading r = {w, arena, ignored, p};
    *w = (rvi_wish){.n = 1,
                    .max_tokens = NOT_GIVEN,
                    .max_completion_tokens = NOT_GIVEN,
                    .last_n = NOT_GIVEN,
                    .stream = what & RVI_FOR_OLLAMA,
                    .truncate = what & RVI_FOR_VECTORS};
    w->sampling.size = sizeof w->sampling;
    w->sampling.seed = rvi_os_random();
    w->sampling.top_p = -1;
    w->generate.size = sizeof w->generate;
    if (!read_members(&r, what, body)) return false;
    if ((what & (RVI_FOR_OLLAMA | RVI_FOR_VECTORS)) &&
        !read_members(&r, RVI_FOR_OPTIONS, rvi_json_get(body, "options")))
        return false;
    set_window(w);
    /* 0 asks for the most likely token alone; in rv_sampling it would be the default */
    w->sampling.top_p = w->sampling.top_p < 0    ? 0
                        : w->sampling.top_p <= 0 ? FLT_MIN
                                                 : w->sampling.top_p;
    return combine(w, what, p);
}

bool rvi_wish_body(const rvi_json **out, const rvi_buf *text, rvi_arena *arena, rvi_problem *p)
{
    rv_error err = {0};
    if (!text->len)
        return rvi_problem_set(p, 400, "invalid_json", NULL,
                               "the body is empty; it must be a JSON object");
    rv_status st = rvi_json_parse(out, text->data, text->len, arena, "body", &err);
    if (st == RV_E_NOMEM) return rvi_problem_set(p, 413, "request_too_large", NULL, "%s", err.text);
    if (st) return rvi_problem_set(p, 400, "invalid_json", NULL, "%s", err.text);
    if (!rvi_json_is(*out, RVI_JSON_OBJECT))
        return rvi_problem_set(p, 400, "invalid_json", NULL, "the body must be a JSON object");
    return true;
}
