#include "server/wish.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os.h"

typedef enum kind { FLAG, INT, FLOAT, SEED, STOPS, BIAS, USAGE, LOGPROBS, FORM, OWN, REFUSED } kind;

typedef struct field {
    const char *name;
    unsigned what; /* requests that have it */
    kind kind;
    double min, max;
    size_t at;            /* in the wish */
    const char *harmless; /* of REFUSED: the words, between blanks, that ask for nothing */
} field;

enum { TEXT = RVI_FOR_CHAT | RVI_FOR_COMPLETION, VECTOR = RVI_FOR_EMBEDDING };

#define AT(member) offsetof(rvi_wish, member)
#define SAMPLING(name, kind, min, max, member)                                                     \
    {                                                                                              \
        name, TEXT, kind, min, max, AT(sampling.member), NULL                                      \
    }

/* OWN: read by the handler, or without an effect on the answer. */
static const field fields[] = {
    {"temperature", TEXT, FLOAT, 0, 2, AT(temperature), NULL},
    SAMPLING("top_p", FLOAT, 0, 1, top_p),
    SAMPLING("top_k", INT, -1, 1e9, top_k),
    SAMPLING("min_p", FLOAT, 0, 1, min_p),
    SAMPLING("typical_p", FLOAT, 0, 1, typical_p),
    SAMPLING("top_n_sigma", FLOAT, 0, 100, top_n_sigma),
    SAMPLING("xtc_probability", FLOAT, 0, 1, xtc_probability),
    SAMPLING("xtc_threshold", FLOAT, 0, 1, xtc_threshold),
    SAMPLING("repetition_penalty", FLOAT, 0.01, 100, repetition_penalty),
    SAMPLING("repeat_penalty", FLOAT, 0.01, 100, repetition_penalty),
    SAMPLING("repeat_last_n", INT, 1, 1e9, repetition_window),
    SAMPLING("frequency_penalty", FLOAT, -2, 2, frequency_penalty),
    SAMPLING("presence_penalty", FLOAT, -2, 2, presence_penalty),
    SAMPLING("dry_multiplier", FLOAT, 0, 100, dry_multiplier),
    SAMPLING("dry_base", FLOAT, 1, 100, dry_base),
    SAMPLING("dry_allowed_length", INT, 1, 4096, dry_allowed_length),
    SAMPLING("seed", SEED, 0, 0, seed),
    SAMPLING("logit_bias", BIAS, -100, 100, logit_bias),
    {"mirostat", TEXT, INT, 0, 2, AT(mirostat), NULL},
    {"mirostat_tau", TEXT, FLOAT, 0, 100, AT(mirostat_tau), NULL},
    {"mirostat_eta", TEXT, FLOAT, 0, 1, AT(mirostat_eta), NULL},
    {"max_tokens", TEXT, INT, -1, 1e9, AT(max_tokens), NULL},
    {"max_completion_tokens", RVI_FOR_CHAT, INT, -1, 1e9, AT(max_completion_tokens), NULL},
    {"min_tokens", TEXT, INT, 0, 1e9, AT(generate.min_tokens), NULL},
    {"ignore_eos", TEXT, FLAG, 0, 0, AT(generate.ignore_eos), NULL},
    {"stop", TEXT, STOPS, 0, 0, 0, NULL},
    {"n", TEXT, INT, 1, RVI_WISH_CHOICES, AT(n), NULL},
    {"best_of", RVI_FOR_COMPLETION, INT, 1, RVI_WISH_CHOICES, AT(n_best), NULL},
    {"stream", TEXT, FLAG, 0, 0, AT(stream), NULL},
    {"stream_options", TEXT, USAGE, 0, 0, AT(include_usage), NULL},
    {"logprobs", RVI_FOR_CHAT, FLAG, 0, 0, AT(logprobs), NULL},
    {"top_logprobs", RVI_FOR_CHAT, INT, 0, 20, AT(top_logprobs), NULL},
    {"logprobs", RVI_FOR_COMPLETION, LOGPROBS, 0, 20, AT(top_logprobs), NULL},
    {"echo", RVI_FOR_COMPLETION, FLAG, 0, 0, AT(echo), NULL},
    {"response_format", TEXT, FORM, 0, 0, 0, NULL},
    {"json_schema", TEXT, FORM, 0, 0, 0, NULL},
    {"grammar", TEXT, FORM, 0, 0, 0, NULL},
    {"guided_json", TEXT, FORM, 0, 0, 0, NULL},
    {"guided_regex", TEXT, FORM, 0, 0, 0, NULL},
    {"guided_choice", TEXT, FORM, 0, 0, 0, NULL},
    {"guided_grammar", TEXT, FORM, 0, 0, 0, NULL},
    {"dimensions", VECTOR, INT, 1, 1e6, AT(dimensions), NULL},
    {"encoding_format", VECTOR, OWN, 0, 0, 0, NULL},
    {"input", VECTOR, OWN, 0, 0, 0, NULL},
    {"messages", RVI_FOR_CHAT, OWN, 0, 0, 0, NULL},
    {"prompt", RVI_FOR_COMPLETION, OWN, 0, 0, 0, NULL},
    {"model", TEXT | VECTOR, OWN, 0, 0, 0, NULL},
    {"user", TEXT | VECTOR, OWN, 0, 0, 0, NULL},
    {"metadata", TEXT, OWN, 0, 0, 0, NULL},
    {"store", TEXT, OWN, 0, 0, 0, NULL},
    {"safety_identifier", TEXT, OWN, 0, 0, 0, NULL},
    {"prompt_cache_key", TEXT, OWN, 0, 0, 0, NULL},
    {"service_tier", TEXT, OWN, 0, 0, 0, NULL},
    {"parallel_tool_calls", TEXT, OWN, 0, 0, 0, NULL},
    {"tools", TEXT, REFUSED, 0, 0, 0, ""},
    {"tool_choice", TEXT, REFUSED, 0, 0, 0, " none auto "},
    {"functions", TEXT, REFUSED, 0, 0, 0, ""},
    {"function_call", TEXT, REFUSED, 0, 0, 0, " none auto "},
    {"suffix", TEXT, REFUSED, 0, 0, 0, ""},
    {"audio", TEXT, REFUSED, 0, 0, 0, ""},
    {"modalities", TEXT, REFUSED, 0, 0, 0, " text "},
    {"prediction", TEXT, REFUSED, 0, 0, 0, ""},
    {"web_search_options", TEXT, REFUSED, 0, 0, 0, ""},
    {"reasoning_effort", TEXT, REFUSED, 0, 0, 0, " none "},
    {"verbosity", TEXT, REFUSED, 0, 0, 0, " medium "},
    {"stop_token_ids", TEXT, REFUSED, 0, 0, 0, ""},
    {"lora", TEXT, REFUSED, 0, 0, 0, ""},
};

/* ---- values ---- */

static bool refuse_type(const field *f, const char *wanted, rvi_problem *p)
{
    return rvi_problem_set(p, 400, "invalid_type", f->name, "%s must be %s", f->name, wanted);
}

static bool read_number(const field *f, const rvi_json *v, double *out, rvi_problem *p)
{
    if (!rvi_json_is(v, RVI_JSON_INT) && !rvi_json_is(v, RVI_JSON_NUMBER))
        return refuse_type(f, f->kind == FLOAT ? "a number" : "a whole number", p);
    *out = rvi_json_number(v, 0);
    if (f->kind != FLOAT && floor(*out) != *out) return refuse_type(f, "a whole number", p);
    if (*out >= f->min && *out <= f->max) return true;
    return rvi_problem_set(p, 400, "value_out_of_range", f->name, "%s must be %g to %g (got %g)",
                           f->name, f->min, f->max, *out);
}

static bool read_stops(rvi_wish *w, const field *f, const rvi_json *v, rvi_problem *p)
{
    size_t n = rvi_json_is(v, RVI_JSON_STRING) ? 1 : rvi_json_count(v);
    if (!rvi_json_is(v, RVI_JSON_STRING) && !rvi_json_is(v, RVI_JSON_ARRAY))
        return refuse_type(f, "a string or a list of strings", p);
    if (n > RVI_WISH_STOPS)
        return rvi_problem_set(p, 400, "value_out_of_range", f->name,
                               "stop may have %d strings (got %zu)", RVI_WISH_STOPS, n);
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
static bool read_bias(rvi_wish *w, const field *f, const rvi_json *v, rvi_arena *arena,
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
        if (!read_number(&(field){f->name, 0, FLOAT, f->min, f->max, 0, NULL}, item, &bias, p))
            return false;
        list[i] = (rv_logit_bias){(int32_t)id, bias <= f->min   ? -INFINITY
                                               : bias >= f->max ? INFINITY
                                                                : (float)bias};
    }
    w->sampling.logit_bias = list;
    w->sampling.n_logit_bias = n;
    return true;
}

static bool read_usage(rvi_wish *w, const field *f, const rvi_json *v, rvi_problem *p)
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
static bool asks_for_nothing(const field *f, const rvi_json *v)
{
    char word[48];
    if (rvi_json_is(v, RVI_JSON_ARRAY) && rvi_json_count(v) == 1) v = rvi_json_at(v, 0);
    if (rvi_json_is(v, RVI_JSON_OBJECT) && rvi_json_count(v)) v = rvi_json_get(v, "type");
    if (rvi_json_is(v, RVI_JSON_STRING)) {
        const char *text = rvi_json_string(v, "");
        if (!*text) return true;
        if (strlen(text) > 40 || strchr(text, ' ')) return false;
        snprintf(word, sizeof word, " %s ", text);
        return strstr(f->harmless, word);
    }
    if (rvi_json_is(v, RVI_JSON_BOOL)) return !rvi_json_bool(v, true);
    return rvi_json_is(v, RVI_JSON_NULL) ||
           ((rvi_json_is(v, RVI_JSON_ARRAY) || rvi_json_is(v, RVI_JSON_OBJECT)) &&
            !rvi_json_count(v));
}

static bool read_field(rvi_wish *w, const field *f, const rvi_json *v, rvi_arena *arena,
                       rvi_problem *p)
{
    char *place = (char *)w + f->at;
    double number;
    switch (f->kind) {
    case FLAG:
        if (!rvi_json_is(v, RVI_JSON_BOOL)) return refuse_type(f, "true or false", p);
        if (f->at == AT(generate.ignore_eos))
            w->generate.ignore_eos = rvi_json_bool(v, false);
        else
            *(bool *)place = rvi_json_bool(v, false);
        return true;
    case LOGPROBS: w->has_logprobs = true; /* fall through */
    case INT:
        if (!read_number(f, v, &number, p)) return false;
        *(int *)(void *)place = (int)number;
        return true;
    case FLOAT:
        if (!read_number(f, v, &number, p)) return false;
        *(float *)(void *)place = (float)number;
        if (f->at == AT(temperature)) w->has_temperature = true;
        return true;
    case SEED:
        if (!rvi_json_is(v, RVI_JSON_INT)) return refuse_type(f, "a whole number", p);
        w->sampling.seed = (uint64_t)rvi_json_int(v, 0);
        return true;
    case STOPS: return read_stops(w, f, v, p);
    case BIAS: return read_bias(w, f, v, arena, p);
    case USAGE: return read_usage(w, f, v, p);
    case FORM: return rvi_form_read(&w->form, f->name, v, p);
    case OWN: return true;
    case REFUSED: break;
    }
    return asks_for_nothing(f, v) || rvi_problem_set(p, 400, "unsupported_parameter", f->name,
                                                     "%s is not supported by this server", f->name);
}

/* ---- what they mean together ---- */

enum { NOT_GIVEN = -1000 };

static bool settle(rvi_wish *w, unsigned what, rvi_problem *p)
{
    rv_sampling *s = &w->sampling;
    int most = w->max_completion_tokens != NOT_GIVEN ? w->max_completion_tokens : w->max_tokens;
    w->generate.max_tokens = most == NOT_GIVEN || most == -1 ? RV_TO_CONTEXT_END
                             : most                          ? most
                                                             : RV_NO_TOKENS;
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
    if (what == RVI_FOR_CHAT && w->top_logprobs && !w->logprobs)
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

bool rvi_wish_read(rvi_wish *w, unsigned what, const rvi_json *body, rvi_arena *arena,
                   rvi_buf *ignored, rvi_problem *p)
{
    *w = (rvi_wish){.n = 1, .max_tokens = NOT_GIVEN, .max_completion_tokens = NOT_GIVEN};
    w->sampling.size = sizeof w->sampling;
    w->sampling.seed = rvi_os_random();
    w->sampling.top_p = -1;
    w->generate.size = sizeof w->generate;
    for (size_t i = 0; i < rvi_json_count(body); i++) {
        const rvi_json *v = rvi_json_at(body, i);
        const field *f = NULL;
        for (size_t k = 0; !f && k < RVI_COUNT(fields); k++)
            if ((fields[k].what & what) && !strcmp(fields[k].name, v->key)) f = &fields[k];
        if (f && !rvi_json_is(v, RVI_JSON_NULL) && !read_field(w, f, v, arena, p)) return false;
        if (!f) note_ignored(ignored, v->key);
    }
    /* 0 asks for the most likely token alone; in rv_sampling it would be the default */
    w->sampling.top_p = w->sampling.top_p < 0    ? 0
                        : w->sampling.top_p <= 0 ? FLT_MIN
                                                 : w->sampling.top_p;
    return settle(w, what, p);
}

bool rvi_wish_body(const rvi_json **out, const rvi_buf *text, rvi_arena *arena, rvi_problem *p)
{
    rv_error err = {0};
    rv_status st = rvi_json_parse(out, text->len ? text->data : "", text->len, arena, "body", &err);
    if (st == RV_E_NOMEM) return rvi_problem_set(p, 413, "request_too_large", NULL, "%s", err.text);
    if (st) return rvi_problem_set(p, 400, "invalid_json", NULL, "%s", err.text);
    if (!rvi_json_is(*out, RVI_JSON_OBJECT))
        return rvi_problem_set(p, 400, "invalid_json", NULL, "the body must be a JSON object");
    return true;
}
