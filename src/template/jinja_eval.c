/* jinja_eval.c - expressions. One function per node kind, reached through a table, so that the
 * stack of a deeply nested expression holds only small frames. */
#include <string.h>

#include "template/jinja_run.h"

typedef rvi_jv (*evaluator)(rvi_jrun *r, const rvi_jnode *n, rvi_jact *act);

static rvi_jact *outwards(rvi_jact *act, uint32_t up)
{
    while (up--) act = act->parent;
    return act;
}

static rvi_jv eval_const(rvi_jrun *r, const rvi_jnode *n, rvi_jact *act)
{
    (void)r, (void)act;
    return n->value;
}

static rvi_jv eval_name(rvi_jrun *r, const rvi_jnode *n, rvi_jact *act)
{
    rvi_jv v = outwards(act, n->up)->slots[n->slot];
    return v.kind == RVI_J_MISSING ? rvi_jv_undefined_name(r, n->name) : v;
}

static rvi_jv eval_seq(rvi_jrun *r, const rvi_jnode *n, rvi_jact *act)
{
    rvi_jv *items,
        v = rvi_jv_seq(r, n->kind == RVI_JN_LIST ? RVI_J_LIST : RVI_J_TUPLE, n->list.count, &items);
    for (uint32_t i = 0; i < n->list.count && !rvi_jv_failed(v); i++) {
        items[i] = rvi_jinja_eval(r, n->list.items[i], act);
        if (rvi_jv_failed(items[i])) return items[i];
    }
    return v;
}

static rvi_jv eval_dict(rvi_jrun *r, const rvi_jnode *n, rvi_jact *act)
{
    rvi_jv v = rvi_jv_dict(r, RVI_J_DICT);
    for (uint32_t i = 0; i < n->list.count && !rvi_jv_failed(v); i += 2) {
        rvi_jv key = rvi_jinja_eval(r, n->list.items[i], act);
        if (rvi_jv_failed(key)) return key;
        rvi_jv value = rvi_jinja_eval(r, n->list.items[i + 1], act);
        if (rvi_jv_failed(value) || !rvi_jdict_set(r, v.as.dict, key, value)) return RVI_JV(FAIL);
    }
    return v;
}

static rvi_jv eval_getattr(rvi_jrun *r, const rvi_jnode *n, rvi_jact *act)
{
    rvi_jv object = rvi_jinja_eval(r, n->a, act);
    return rvi_jv_failed(object) ? object : rvi_jinja_getattr(r, object, n->value);
}

static rvi_jv eval_slice(rvi_jrun *r, const rvi_jnode *n, rvi_jact *act, rvi_jv object)
{
    rvi_jv part[3];
    for (int i = 0; i < 3; i++) {
        part[i] = n->list.items[i] ? rvi_jinja_eval(r, n->list.items[i], act) : RVI_JV(NONE);
        if (rvi_jv_failed(part[i])) return part[i];
    }
    return rvi_jinja_slice(r, object, part[0], part[1], part[2]);
}

static rvi_jv eval_getitem(rvi_jrun *r, const rvi_jnode *n, rvi_jact *act)
{
    rvi_jv object = rvi_jinja_eval(r, n->a, act);
    if (rvi_jv_failed(object)) return object;
    if (n->b->kind == RVI_JN_SLICE) return eval_slice(r, n->b, act, object);
    rvi_jv key = rvi_jinja_eval(r, n->b, act);
    return rvi_jv_failed(key) ? key : rvi_jinja_getitem(r, object, key);
}

/* ---- calls ---- */

/* *args: all items of an iterable */
static bool add_dyn_args(rvi_jrun *r, rvi_jargs *out, rvi_jv more)
{
    rvi_jv list = rvi_jv_to_list(r, more, RVI_J_LIST);
    if (rvi_jv_failed(list)) return false;
    const rvi_jseq *s = list.as.seq;
    rvi_jv *pos = rvi_jinja_alloc(r, out->n_pos + s->count, sizeof *pos);
    if (!pos || !rvi_jinja_charge(r, s->count)) return false;
    if (out->n_pos) memcpy(pos, out->pos, out->n_pos * sizeof *pos);
    if (s->count) memcpy(pos + out->n_pos, s->items, s->count * sizeof *pos);
    out->pos = pos;
    out->n_pos += s->count;
    return true;
}

/* **kwargs: a dict with strings as keys; out->named has room for them */
static bool add_dyn_named(rvi_jrun *r, rvi_jargs *out, const rvi_jdict *d)
{
    for (size_t i = 0; i < d->count; i++) {
        rvi_jv key = d->pairs[i].key;
        if (key.kind != RVI_J_STR) return rvi_jinja_fail(r, "keywords must be strings"), false;
        for (size_t k = 0; k < out->n_named; k++) {
            const rvi_jstr *name = out->named[k].name;
            if (name->len == key.as.str->len && !memcmp(name->data, key.as.str->data, name->len))
                return rvi_jinja_fail(r, "got multiple values for keyword argument '%.*s'",
                                      (int)RVI_MIN(name->len, (size_t)100), name->data),
                       false;
        }
        if (!rvi_jinja_charge(r, out->n_named + 1)) return false;
        out->named[out->n_named++] = (rvi_jnamed){.name = key.as.str, .value = d->pairs[i].value};
    }
    return true;
}

bool rvi_jinja_eval_args(rvi_jrun *r, const rvi_jcall *call, rvi_jact *act, rvi_jv caller,
                         rvi_jargs *out)
{
    static const rvi_jstr caller_name = {.data = "caller", .len = 6, .chars = 6};
    *out = (rvi_jargs){0};
    if (!call) return true;
    rvi_jv dyn_args = RVI_JV(MISSING), dyn_named = RVI_JV(MISSING);
    out->pos = rvi_jinja_alloc(r, call->args.count, sizeof *out->pos);
    if (!out->pos) return false;
    for (uint32_t i = 0; i < call->args.count; i++) {
        rvi_jv v = rvi_jinja_eval(r, call->args.items[i], act);
        if (rvi_jv_failed(v)) return false;
        out->pos[out->n_pos++] = v;
    }
    rvi_jnamed *named = rvi_jinja_alloc(r, call->n_keywords + 1u, sizeof *named);
    if (!named) return false;
    out->named = named;
    for (uint32_t i = 0; i < call->n_keywords; i++) {
        rvi_jv v = rvi_jinja_eval(r, call->keywords[i].value, act);
        if (rvi_jv_failed(v)) return false;
        named[out->n_named++] = (rvi_jnamed){.name = call->keywords[i].name, .value = v};
    }
    if (caller.kind != RVI_J_MISSING)
        named[out->n_named++] = (rvi_jnamed){.name = &caller_name, .value = caller};
    if (call->dyn_args) {
        dyn_args = rvi_jinja_eval(r, call->dyn_args, act);
        if (rvi_jv_failed(dyn_args) || !add_dyn_args(r, out, dyn_args)) return false;
    }
    if (call->dyn_keywords) {
        dyn_named = rvi_jinja_eval(r, call->dyn_keywords, act);
        if (rvi_jv_failed(dyn_named)) return false;
        if (dyn_named.kind != RVI_J_DICT)
            return rvi_jinja_fail(r, "argument after ** must be a mapping, not %s",
                                  rvi_jv_type_name(dyn_named)),
                   false;
        named = rvi_jinja_alloc(r, out->n_named + dyn_named.as.dict->count, sizeof *named);
        if (!named) return false;
        if (out->n_named) memcpy(named, out->named, out->n_named * sizeof *named);
        out->named = named;
        return add_dyn_named(r, out, dyn_named.as.dict);
    }
    return true;
}

static rvi_jv eval_call(rvi_jrun *r, const rvi_jnode *n, rvi_jact *act)
{
    rvi_jargs args;
    rvi_jv callee = rvi_jinja_eval(r, n->a, act);
    if (rvi_jv_failed(callee) || !rvi_jinja_eval_args(r, n->call, act, RVI_JV(MISSING), &args))
        return RVI_JV(FAIL);
    r->line = n->line;
    return rvi_jinja_call(r, callee, &args);
}

/* ---- filters and tests ---- */

static rvi_jv apply(rvi_jrun *r, const rvi_jnode *n, rvi_jact *act, rvi_jv v)
{
    rvi_jargs args;
    if (!rvi_jinja_eval_args(r, n->call, act, RVI_JV(MISSING), &args)) return RVI_JV(FAIL);
    r->line = n->line;
    if (!n->fn)
        return rvi_jinja_fail(r, "No %s named '%.*s' found.",
                              n->kind == RVI_JN_FILTER ? "filter" : "test",
                              (int)RVI_MIN(n->name->len, (size_t)100), n->name->data);
    return rvi_jinja_call_builtin(r, n->fn, v, &args);
}

static rvi_jv eval_filter(rvi_jrun *r, const rvi_jnode *n, rvi_jact *act)
{
    rvi_jv v = rvi_jinja_eval(r, n->a, act);
    return rvi_jv_failed(v) ? v : apply(r, n, act, v);
}

rvi_jv rvi_jinja_apply_filter(rvi_jrun *r, const rvi_jnode *n, rvi_jact *act, rvi_jv captured)
{
    /* A chain of filters over a block's text: the innermost one has no node under it. */
    if (n->a) captured = rvi_jinja_apply_filter(r, n->a, act, captured);
    return rvi_jv_failed(captured) ? captured : apply(r, n, act, captured);
}

/* ---- operators ---- */

static rvi_jv eval_not(rvi_jrun *r, const rvi_jnode *n, rvi_jact *act)
{
    rvi_jv v = rvi_jinja_eval(r, n->a, act);
    return rvi_jv_failed(v) ? v : rvi_jv_bool(!rvi_jv_truth(v));
}

static rvi_jv eval_sign(rvi_jrun *r, const rvi_jnode *n, rvi_jact *act)
{
    rvi_jv v = rvi_jinja_eval(r, n->a, act);
    return rvi_jv_failed(v) ? v : rvi_jinja_negate(r, v, n->kind == RVI_JN_NEG);
}

static rvi_jv eval_binary(rvi_jrun *r, const rvi_jnode *n, rvi_jact *act)
{
    rvi_jv a = rvi_jinja_eval(r, n->a, act);
    if (rvi_jv_failed(a)) return a;
    rvi_jv b = rvi_jinja_eval(r, n->b, act);
    return rvi_jv_failed(b) ? b : rvi_jinja_binary(r, (rvi_jop)n->op, a, b);
}

static rvi_jv eval_logic(rvi_jrun *r, const rvi_jnode *n, rvi_jact *act)
{
    rvi_jv a = rvi_jinja_eval(r, n->a, act);
    if (rvi_jv_failed(a) || rvi_jv_truth(a) == (n->kind == RVI_JN_OR)) return a;
    return rvi_jinja_eval(r, n->b, act);
}

static rvi_jv eval_concat(rvi_jrun *r, const rvi_jnode *n, rvi_jact *act)
{
    rvi_jv out = rvi_jv_text(r, "");
    for (uint32_t i = 0; i < n->list.count && !rvi_jv_failed(out); i++) {
        rvi_jv v = rvi_jinja_eval(r, n->list.items[i], act);
        if (!rvi_jv_failed(v)) v = rvi_jv_to_str(r, v);
        if (rvi_jv_failed(v)) return v;
        out = i ? rvi_jv_concat(r, out, v) : v;
    }
    return out;
}

static rvi_jv eval_compare(rvi_jrun *r, const rvi_jnode *n, rvi_jact *act)
{
    rvi_jv left = rvi_jinja_eval(r, n->a, act), result = left;
    for (uint32_t i = 0; i < n->list.count && !rvi_jv_failed(left); i++) {
        rvi_jv right = rvi_jinja_eval(r, n->list.items[i], act);
        if (rvi_jv_failed(right)) return right;
        result = rvi_jinja_compare(r, (rvi_jop)n->ops[i], left, right);
        if (!rvi_jv_truth(result)) break; /* false or failed */
        left = right;
    }
    return result;
}

static rvi_jv eval_cond(rvi_jrun *r, const rvi_jnode *n, rvi_jact *act)
{
    rvi_jv test = rvi_jinja_eval(r, n->b, act);
    if (rvi_jv_failed(test)) return test;
    if (rvi_jv_truth(test)) return rvi_jinja_eval(r, n->a, act);
    if (n->c) return rvi_jinja_eval(r, n->c, act);
    return rvi_jv_undefined(
        r, "the inline if-expression evaluated to false and no else section was defined.");
}

static const evaluator evaluators[] = {
    [RVI_JN_CONST] = eval_const,     [RVI_JN_NAME] = eval_name,     [RVI_JN_TUPLE] = eval_seq,
    [RVI_JN_LIST] = eval_seq,        [RVI_JN_DICT] = eval_dict,     [RVI_JN_GETATTR] = eval_getattr,
    [RVI_JN_GETITEM] = eval_getitem, [RVI_JN_CALL] = eval_call,     [RVI_JN_FILTER] = eval_filter,
    [RVI_JN_TEST] = eval_filter,     [RVI_JN_NOT] = eval_not,       [RVI_JN_NEG] = eval_sign,
    [RVI_JN_POS] = eval_sign,        [RVI_JN_BINARY] = eval_binary, [RVI_JN_AND] = eval_logic,
    [RVI_JN_OR] = eval_logic,        [RVI_JN_CONCAT] = eval_concat, [RVI_JN_COMPARE] = eval_compare,
    [RVI_JN_COND] = eval_cond,
};

rvi_jv rvi_jinja_eval(rvi_jrun *r, const rvi_jnode *n, rvi_jact *act)
{
    if (!rvi_jinja_charge(r, 1) || !rvi_jinja_enter(r)) return RVI_JV(FAIL);
    r->line = n->line;
    evaluator e = n->kind < RVI_COUNT(evaluators) ? evaluators[n->kind] : NULL;
    rvi_jv v = e ? e(r, n, act) : rvi_jinja_fail(r, "this cannot be evaluated");
    rvi_jinja_leave(r);
    return v;
}
