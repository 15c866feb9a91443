/* jinja_call.c - calling things, arguments of built-ins, and the global functions. */
#include <string.h>

#include "template/jinja_run.h"

/* ---- arguments ---- */

bool rvi_jarg_given(rvi_jv v)
{
    return v.kind != RVI_J_MISSING && v.kind != RVI_J_NONE;
}

bool rvi_jarg_str(rvi_jrun *r, rvi_jv v, const char *what, const rvi_jstr **out)
{
    if (v.kind != RVI_J_STR) {
        rvi_jinja_fail(r, "%s must be str, not %s", what, rvi_jv_type_name(v));
        return false;
    }
    *out = v.as.str;
    return true;
}

bool rvi_jarg_int(rvi_jrun *r, rvi_jv v, int64_t fallback, int64_t *out)
{
    *out = fallback;
    if (v.kind == RVI_J_MISSING) return true;
    if (!rvi_jv_is_integral(v)) {
        rvi_jinja_fail(r, "'%s' object cannot be interpreted as an integer", rvi_jv_type_name(v));
        return false;
    }
    *out = rvi_jv_as_int(v);
    return true;
}

/* The next name in a list of parameters, or NULL. */
static const char *next_param(const char **params, size_t *len)
{
    while (**params == ' ') ++*params;
    const char *name = *params;
    while (**params && **params != ' ') ++*params;
    *len = (size_t)(*params - name);
    return *len ? name : NULL;
}

rvi_jv rvi_jinja_call_builtin(rvi_jrun *r, const rvi_jfn *fn, rvi_jv self, const rvi_jargs *args)
{
    rvi_jv bound[RVI_JFN_MAX_PARAMS];
    const char *params = fn->params, *name;
    size_t n = 0, len, used = 0;
    if (!rvi_jinja_charge(r, 1)) return RVI_JV(FAIL);
    if (params[0] == '*') return fn->call(r, self, NULL, args);
    for (; (name = next_param(&params, &len)); n++) {
        bound[n] = n < args->n_pos ? args->pos[n] : RVI_JV(MISSING);
        for (size_t i = 0; i < args->n_named && name[0] != '-'; i++) {
            const rvi_jstr *given = args->named[i].name;
            if (given->len != len || memcmp(given->data, name, len)) continue;
            if (bound[n].kind != RVI_J_MISSING)
                return rvi_jinja_fail(r, "%s() got multiple values for argument '%.*s'", fn->name,
                                      (int)len, name);
            bound[n] = args->named[i].value;
            used++;
        }
        if (n < fn->required && bound[n].kind == RVI_J_MISSING)
            return rvi_jinja_fail(r, "%s() is missing an argument", fn->name);
    }
    if (args->n_pos > n)
        return rvi_jinja_fail(r, "%s() takes at most %zu arguments (%zu given)", fn->name, n,
                              args->n_pos);
    if (used < args->n_named)
        return rvi_jinja_fail(r, "%s() got an unexpected keyword argument", fn->name);
    return fn->call(r, self, bound, args);
}

rvi_jv rvi_jinja_call(rvi_jrun *r, rvi_jv callee, const rvi_jargs *args)
{
    switch (callee.kind) {
    case RVI_J_FUNCTION: return rvi_jinja_call_builtin(r, callee.as.fn, RVI_JV(NONE), args);
    case RVI_J_METHOD:
        return rvi_jinja_call_builtin(r, callee.as.method->fn, callee.as.method->self, args);
    case RVI_J_MACRO: return rvi_jinja_call_macro(r, callee.as.macro, args);
    case RVI_J_UNDEFINED: return rvi_jv_undefined_error(r, callee);
    case RVI_J_LOOP:
        if (args->n_pos != 1 || args->n_named)
            return rvi_jinja_fail(r, "loop() takes one argument");
        return rvi_jinja_call_loop(r, callee.as.loop, args->pos[0]);
    case RVI_J_JOINER:
        if (args->n_pos || args->n_named) return rvi_jinja_fail(r, "a joiner takes no arguments");
        if (callee.as.joiner->used) return callee.as.joiner->sep;
        callee.as.joiner->used = true;
        return rvi_jv_text(r, "");
    default: return rvi_jinja_fail(r, "'%s' object is not callable", rvi_jv_type_name(callee));
    }
}

/* ---- globals ---- */

#define FUNCTION(name)                                                                             \
    static rvi_jv name(rvi_jrun *r, rvi_jv self, const rvi_jv *a, const rvi_jargs *all)

static bool add_pair(rvi_jrun *r, rvi_jdict *d, rvi_jv pair)
{
    rvi_jv list = rvi_jv_to_list(r, pair, RVI_J_LIST);
    if (rvi_jv_failed(list)) return false;
    if (list.as.seq->count != 2)
        return rvi_jinja_fail(r, "dictionary update sequence element has length %zu; 2 is required",
                              list.as.seq->count),
               false;
    return rvi_jdict_set(r, d, list.as.seq->items[0], list.as.seq->items[1]);
}

/* dict(mapping or pairs, key=value, ...) */
static rvi_jv make_dict(rvi_jrun *r, rvi_jkind kind, const rvi_jargs *args)
{
    rvi_jv v = rvi_jv_dict(r, kind), item;
    if (rvi_jv_failed(v)) return v;
    if (args->n_pos > 1)
        return rvi_jinja_fail(r, "dict expected at most 1 argument, got %zu", args->n_pos);
    if (args->n_pos && args->pos[0].kind == RVI_J_DICT) {
        const rvi_jdict *from = args->pos[0].as.dict;
        for (size_t i = 0; i < from->count; i++)
            if (!rvi_jdict_set(r, v.as.dict, from->pairs[i].key, from->pairs[i].value))
                return RVI_JV(FAIL);
    } else if (args->n_pos) {
        rvi_jv it = rvi_jv_iter(r, args->pos[0]);
        if (rvi_jv_failed(it)) return it;
        for (int more; (more = rvi_jiter_next(r, it.as.iter, &item));)
            if (more < 0 || !add_pair(r, v.as.dict, item)) return RVI_JV(FAIL);
    }
    for (size_t i = 0; i < args->n_named; i++) {
        rvi_jv key = rvi_jv_part(r, args->named[i].name, 0, args->named[i].name->len);
        if (rvi_jv_failed(key) || !rvi_jdict_set(r, v.as.dict, key, args->named[i].value))
            return RVI_JV(FAIL);
    }
    return v;
}

FUNCTION(global_dict)
{
    (void)self, (void)a;
    return make_dict(r, RVI_J_DICT, all);
}

FUNCTION(global_namespace)
{
    (void)self, (void)a;
    return make_dict(r, RVI_J_NAMESPACE, all);
}

FUNCTION(global_range)
{
    enum { MAX_RANGE = 100000 };
    const int64_t far = (int64_t)1 << 60;
    int64_t v[3] = {0, 0, 1};
    (void)self, (void)all;
    for (int i = 0; i < 3; i++) {
        if (!rvi_jarg_int(r, a[i], v[i], &v[i])) return RVI_JV(FAIL);
        if (v[i] > far || v[i] < -far) return rvi_jinja_fail(r, "range() arguments are too large");
    }
    if (a[1].kind == RVI_J_MISSING) {
        v[1] = v[0];
        v[0] = 0;
    }
    if (!v[2]) return rvi_jinja_fail(r, "range() arg 3 must not be zero");
    int64_t span = v[2] > 0 ? v[1] - v[0] : v[0] - v[1], step = v[2] > 0 ? v[2] : -v[2];
    int64_t count = span > 0 ? (span - 1) / step + 1 : 0;
    if (count > MAX_RANGE)
        return rvi_jinja_fail(
            r, "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).", MAX_RANGE);
    rvi_jrange *range = rvi_jinja_alloc(r, 1, sizeof *range);
    if (!range) return RVI_JV(FAIL);
    *range = (rvi_jrange){.start = v[0], .stop = v[1], .step = v[2], .count = (size_t)count};
    return (rvi_jv){.kind = RVI_J_RANGE, .as.range = range};
}

FUNCTION(global_joiner)
{
    (void)self, (void)all;
    rvi_jv sep = a[0].kind == RVI_J_MISSING ? rvi_jv_text(r, ", ") : a[0];
    rvi_jjoiner *j = rvi_jinja_alloc(r, 1, sizeof *j);
    if (rvi_jv_failed(sep) || !j) return RVI_JV(FAIL);
    j->sep = sep;
    return (rvi_jv){.kind = RVI_J_JOINER, .as.joiner = j};
}

FUNCTION(global_raise_exception)
{
    (void)self, (void)all;
    rvi_jv text = rvi_jv_to_str(r, a[0]);
    if (!rvi_jv_failed(text)) /* verbatim: this is meant for the user */
        r->status = rvi_error(r->err, RV_E_TOKENIZATION, "%.*s",
                              (int)RVI_MIN(text.as.str->len, (size_t)4096), text.as.str->data);
    return RVI_JV(FAIL);
}

FUNCTION(global_strftime_now)
{
    const rvi_jstr *format;
    (void)self, (void)all;
    return rvi_jarg_str(r, a[0], "strftime_now() argument", &format) ? rvi_jinja_strftime(r, format)
                                                                     : RVI_JV(FAIL);
}

static const rvi_jfn globals[] = {
    {"namespace", global_namespace, "*", 0},
    {"range", global_range, "- - -", 1},
    {"dict", global_dict, "*", 0},
    {"joiner", global_joiner, "sep", 0},
    {"raise_exception", global_raise_exception, "message", 1},
    {"strftime_now", global_strftime_now, "format", 1},
};

const rvi_jfn *rvi_jinja_global(const char *name, size_t len)
{
    return rvi_jinja_find(globals, RVI_COUNT(globals), name, len);
}
