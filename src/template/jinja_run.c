/* jinja_run.c - one render from beginning to end: bounds, failures, the caller's variables. */
#include "template/jinja_run.h"

#include <stdarg.h>
#include <string.h>

enum {
    DEFAULT_STEPS = 5000000,
    DEFAULT_DEPTH = 200,
    MAX_DEPTH = 1000,
    DEFAULT_OUTPUT = 16 << 20,
    DEFAULT_MEMORY = 256 << 20,
    C_DEPTH = 2500, /* recursive C calls, whatever the reason: some 300 bytes of stack each */
};

/* ---- failures and bounds ---- */

rvi_jv rvi_jinja_fail(rvi_jrun *r, const char *fmt, ...)
{
    if (r->status) return RVI_JV(FAIL);
    rv_error cause;
    va_list args;
    va_start(args, fmt);
    rvi_errorv(&cause, RV_E_TOKENIZATION, fmt, args);
    va_end(args);
    r->status =
        rvi_error(r->err, RV_E_TOKENIZATION, "chat template, line %u: %s", r->line, cause.text);
    return RVI_JV(FAIL);
}

void *rvi_jinja_alloc(rvi_jrun *r, size_t count, size_t size)
{
    if (r->status) return NULL;
    size_t used = r->arena.used + r->scratch.cap;
    if (used >= r->limits.max_memory || (count && size > (r->limits.max_memory - used) / count)) {
        rvi_jinja_fail(r, "needs more than %zu bytes of memory", r->limits.max_memory);
        return NULL;
    }
    void *p = rvi_arena_alloc(&r->arena, count ? count : 1, size);
    if (!p) r->status = rvi_nomem(r->err, "chat template values");
    return p;
}

bool rvi_jinja_charge(rvi_jrun *r, uint64_t steps)
{
    if (r->status) return false;
    r->steps += steps;
    if (r->steps <= r->limits.max_steps) return true;
    rvi_jinja_fail(r, "takes more than %llu steps", (unsigned long long)r->limits.max_steps);
    return false;
}

bool rvi_jinja_enter(rvi_jrun *r)
{
    if (r->depth >= C_DEPTH) {
        rvi_jinja_fail(r, "nested too deeply");
        return false;
    }
    r->depth++;
    return !r->status;
}

void rvi_jinja_leave(rvi_jrun *r)
{
    r->depth--;
}

size_t rvi_jinja_build(rvi_jrun *r)
{
    return r->scratch.len;
}

rvi_jv rvi_jinja_drop(rvi_jrun *r, size_t start)
{
    r->scratch.len = start;
    return RVI_JV(FAIL);
}

rvi_jv rvi_jinja_take(rvi_jrun *r, size_t start)
{
    if (r->status) return rvi_jinja_drop(r, start);
    if (r->scratch.failed) {
        r->status =
            rvi_error(r->err, RV_E_NOMEM,
                      "chat template, line %u: no memory for a text, or more than %zu bytes",
                      r->line, r->scratch.max);
        return rvi_jinja_drop(r, start);
    }
    rvi_jv v =
        rvi_jv_str(r, r->scratch.data ? r->scratch.data + start : "", r->scratch.len - start);
    r->scratch.len = start;
    return v;
}

/* ---- the caller's variables ---- */

static rvi_jv from_json(rvi_jrun *r, const rvi_json *j, int depth)
{
    rvi_jv v, *items;
    switch (j->kind) {
    case RVI_JSON_NULL: return RVI_JV(NONE);
    case RVI_JSON_BOOL: return rvi_jv_bool(j->as.boolean);
    case RVI_JSON_INT: return rvi_jv_int(j->as.integer);
    case RVI_JSON_NUMBER: return rvi_jv_float(j->as.number);
    case RVI_JSON_STRING: return rvi_jv_view(r, j->as.string.data, j->as.string.len);
    case RVI_JSON_ARRAY:
    case RVI_JSON_OBJECT: break;
    }
    if (depth >= RVI_JSON_DEPTH) return rvi_jinja_fail(r, "a variable is nested too deeply");
    if (j->kind == RVI_JSON_ARRAY) {
        v = rvi_jv_seq(r, RVI_J_LIST, j->as.list.count, &items);
        if (rvi_jv_failed(v)) return v;
        for (size_t i = 0; i < j->as.list.count; i++) {
            items[i] = from_json(r, &j->as.list.items[i], depth + 1);
            if (rvi_jv_failed(items[i])) return items[i];
        }
        return v;
    }
    v = rvi_jv_dict(r, RVI_J_DICT);
    for (size_t i = 0; i < j->as.list.count && !rvi_jv_failed(v); i++) {
        const rvi_json *m = &j->as.list.items[i];
        rvi_jv key = rvi_jv_view(r, m->key, m->key_len), value = from_json(r, m, depth + 1);
        if (rvi_jv_failed(key) || rvi_jv_failed(value) || !rvi_jdict_set(r, v.as.dict, key, value))
            return RVI_JV(FAIL);
    }
    return v;
}

/* ---- the door ---- */

rv_status rvi_template_render(const rvi_template *t, const rvi_json *vars,
                              const rvi_template_now *now, const rvi_template_limits *limits,
                              rvi_buf *out, rv_error *err)
{
    rvi_jrun r = {.err = err, .now = now, .line = 1};
    if (limits) r.limits = *limits;
    if (!r.limits.max_steps) r.limits.max_steps = DEFAULT_STEPS;
    if (!r.limits.max_depth) r.limits.max_depth = DEFAULT_DEPTH;
    if (!r.limits.max_output) r.limits.max_output = DEFAULT_OUTPUT;
    if (!r.limits.max_memory) r.limits.max_memory = DEFAULT_MEMORY;
    r.limits.max_depth = RVI_MIN(r.limits.max_depth, (uint32_t)MAX_DEPTH);
    r.out.max = r.limits.max_output;
    r.scratch.max = r.limits.max_memory / 2;

    if (vars && vars->kind != RVI_JSON_OBJECT)
        return rvi_error(err, RV_E_TOKENIZATION,
                         "chat template: the variables are not a JSON object");
    rvi_jv context = vars ? from_json(&r, vars, 0) : rvi_jv_dict(&r, RVI_J_DICT);
    if (!rvi_jv_failed(context)) {
        r.vars = context.as.dict;
        if (rvi_jinja_run_root(&r, t->root) && r.out.len &&
            !rvi_buf_append(out, r.out.data, r.out.len))
            r.status = rvi_nomem(err, "rendered chat template");
    }
    rvi_arena_deinit(&r.arena);
    rvi_buf_deinit(&r.out);
    rvi_buf_deinit(&r.scratch);
    return r.status;
}
