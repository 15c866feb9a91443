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
    rvi_text_spans_cut(&r->scratch_user, start);
    return RVI_JV(FAIL);
}

static rvi_text_spans *user_of(rvi_jrun *r, const rvi_buf *out)
{
    return out == &r->out ? &r->out_user : &r->scratch_user;
}

static void add_span(rvi_jrun *r, const rvi_buf *out, size_t start, size_t end)
{
    if (!rvi_text_spans_add(user_of(r, out), start, end) && !r->status)
        r->status = rvi_nomem(r->err, "rendered chat template");
}

void rvi_jinja_append(rvi_jrun *r, rvi_buf *out, const rvi_jstr *s, size_t from, size_t len)
{
    size_t at = out->len;
    if (!rvi_buf_append(out, s->data + from, len) || !s->user) return;
    if (s->user == rvi_juser_all) {
        add_span(r, out, at, at + len);
        return;
    }
    for (size_t i = 0; i < len;) {
        size_t run = i;
        while (run < len && s->user[from + run] == s->user[from + i]) run++;
        if (s->user[from + i]) add_span(r, out, at + i, at + run);
        i = run;
    }
}

void rvi_jinja_trace(rvi_jrun *r, const rvi_buf *out, const rvi_jstr *s, size_t from)
{
    if (!s->user) return;
    rvi_text_spans_cut(user_of(r, out), from);
    add_span(r, out, from, out->len);
}

rvi_jv rvi_jinja_cut(rvi_jrun *r, rvi_buf *out, size_t start)
{
    size_t len = out->len - start;
    rvi_text_spans *spans = user_of(r, out);
    const rvi_text_span *first = rvi_text_spans_from(spans, start);
    rvi_jv v = rvi_jv_str(r, out->data ? out->data + start : "", len);
    out->len = start;
    if (first && !rvi_jv_failed(v)) {
        char *user = NULL;
        if (first->start > start || first->end < start + len) {
            user = rvi_jinja_alloc(r, len, 1);
            if (!user || !rvi_jinja_charge_bytes(r, len)) v = RVI_JV(FAIL);
            for (const rvi_text_span *s = first; user && s < spans->data + spans->n; s++) {
                size_t from = RVI_MAX(s->start, start);
                memset(user + (from - start), 1, s->end - from);
            }
        }
        if (!rvi_jv_failed(v)) v.as.str->user = user ? user : rvi_juser_all;
    }
    rvi_text_spans_cut(spans, start);
    return v;
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
    return rvi_jinja_cut(r, &r->scratch, start);
}

/* ---- the caller's variables ---- */

/* Templates build control tokens from the names of roles: "<|" + role + "|>". These are no text of
 * users; any other name is. */
static bool is_known_role(const rvi_json *m)
{
    static const char *const names[] = {"system",  "user",  "assistant", "tool",  "developer",
                                        "ipython", "model", "function",  "human", "observation"};
    if (m->key_len != 4 || memcmp(m->key, "role", 4)) return false;
    for (size_t i = 0; i < RVI_COUNT(names); i++)
        if (rvi_json_is_string(m, names[i])) return true;
    return false;
}

static rvi_jv text_from_json(rvi_jrun *r, const char *data, size_t len, bool user)
{
    rvi_jv v = rvi_jv_view(r, data, len);
    if (user && !rvi_jv_failed(v)) v.as.str->user = rvi_juser_all;
    return v;
}

/* user: what it holds comes from users. */
static rvi_jv from_json(rvi_jrun *r, const rvi_json *j, bool user, int depth)
{
    rvi_jv v, *items;
    switch (j->kind) {
    case RVI_JSON_NULL: return RVI_JV(NONE);
    case RVI_JSON_BOOL: return rvi_jv_bool(j->as.boolean);
    case RVI_JSON_INT: return rvi_jv_int(j->as.integer);
    case RVI_JSON_NUMBER: return rvi_jv_float(j->as.number);
    case RVI_JSON_STRING: return text_from_json(r, j->as.string.data, j->as.string.len, user);
    case RVI_JSON_ARRAY:
    case RVI_JSON_OBJECT: break;
    }
    if (depth >= RVI_JSON_DEPTH) return rvi_jinja_fail(r, "a variable is nested too deeply");
    if (j->kind == RVI_JSON_ARRAY) {
        v = rvi_jv_seq(r, RVI_J_LIST, j->as.list.count, &items);
        if (rvi_jv_failed(v)) return v;
        for (size_t i = 0; i < j->as.list.count; i++) {
            items[i] = from_json(r, &j->as.list.items[i], user, depth + 1);
            if (rvi_jv_failed(items[i])) return items[i];
        }
        return v;
    }
    v = rvi_jv_dict(r, RVI_J_DICT);
    for (size_t i = 0; i < j->as.list.count && !rvi_jv_failed(v); i++) {
        const rvi_json *m = &j->as.list.items[i];
        rvi_jv key = text_from_json(r, m->key, m->key_len, user),
               value = from_json(r, m, user && !is_known_role(m), depth + 1);
        if (rvi_jv_failed(key) || rvi_jv_failed(value) || !rvi_jdict_set(r, v.as.dict, key, value))
            return RVI_JV(FAIL);
    }
    return v;
}

/* ---- rendering ---- */

static bool add_variables(rvi_jrun *r, const rvi_json *vars, bool user)
{
    if (!vars) return true;
    if (vars->kind != RVI_JSON_OBJECT) {
        r->status = rvi_error(r->err, RV_E_TOKENIZATION,
                              "chat template: the variables are not a JSON object");
        return false;
    }
    for (size_t i = 0; i < vars->as.list.count; i++) {
        const rvi_json *m = &vars->as.list.items[i];
        rvi_jv key = rvi_jv_view(r, m->key, m->key_len), value = from_json(r, m, user, 1);
        if (rvi_jv_failed(key) || rvi_jv_failed(value) || !rvi_jdict_set(r, r->vars, key, value))
            return false;
    }
    return true;
}

rv_status rvi_template_render_marked(const rvi_template *t, const rvi_json *own,
                                     const rvi_json *vars, const rvi_template_now *now,
                                     const rvi_template_limits *limits, rvi_buf *out,
                                     rvi_text_spans *user, rv_error *err)
{
    rvi_jrun r = {.err = err, .now = now, .line = 1, .track = user != NULL};
    if (limits) r.limits = *limits;
    if (!r.limits.max_steps) r.limits.max_steps = DEFAULT_STEPS;
    if (!r.limits.max_depth) r.limits.max_depth = DEFAULT_DEPTH;
    if (!r.limits.max_output) r.limits.max_output = DEFAULT_OUTPUT;
    if (!r.limits.max_memory) r.limits.max_memory = DEFAULT_MEMORY;
    r.limits.max_depth = RVI_MIN(r.limits.max_depth, (uint32_t)MAX_DEPTH);
    r.out.max = r.limits.max_output;
    r.scratch.max = r.limits.max_memory / 2;

    rvi_jv context = rvi_jv_dict(&r, RVI_J_DICT);
    r.vars = context.as.dict;
    if (!rvi_jv_failed(context) && add_variables(&r, own, false) &&
        add_variables(&r, vars, r.track) && rvi_jinja_run_root(&r, t->root) && r.out.len) {
        size_t at = out->len;
        if (!rvi_buf_append(out, r.out.data, r.out.len))
            r.status = rvi_nomem(err, "rendered chat template");
        for (size_t i = 0; i < r.out_user.n && !r.status; i++)
            if (!rvi_text_spans_add(user, at + r.out_user.data[i].start,
                                    at + r.out_user.data[i].end))
                r.status = rvi_nomem(err, "rendered chat template");
    }
    rvi_arena_deinit(&r.arena);
    rvi_buf_deinit(&r.out);
    rvi_buf_deinit(&r.scratch);
    rvi_text_spans_deinit(&r.out_user);
    rvi_text_spans_deinit(&r.scratch_user);
    return r.status;
}

rv_status rvi_template_render(const rvi_template *t, const rvi_json *vars,
                              const rvi_template_now *now, const rvi_template_limits *limits,
                              rvi_buf *out, rv_error *err)
{
    return rvi_template_render_marked(t, NULL, vars, now, limits, out, NULL, err);
}
