/* jinja_exec.c - statements: output, assignments, loops, macros. */
#include <string.h>

#include "template/jinja_run.h"

typedef enum flow { ON, BREAK, CONTINUE, FAILED } flow;

static flow exec_body(rvi_jrun *r, rvi_jnodes body, rvi_jact *act);

/* ---- activations and frames ---- */

static rvi_jact *new_act(rvi_jrun *r, rvi_jact *parent, uint32_t n_slots)
{
    rvi_jact *act = rvi_jinja_alloc(r, 1, sizeof *act);
    if (!act || !(act->slots = rvi_jinja_alloc(r, n_slots, sizeof *act->slots))) return NULL;
    act->parent = parent;
    for (uint32_t i = 0; i < n_slots; i++) act->slots[i] = RVI_JV(MISSING);
    return rvi_jinja_charge(r, 1 + n_slots / 4) ? act : NULL;
}

static rvi_jv resolve(rvi_jrun *r, const rvi_jstr *name)
{
    rvi_jv v;
    if (rvi_jdict_get_str(r->vars, name->data, name->len, &v)) return v;
    const rvi_jfn *fn = rvi_jinja_global(name->data, name->len);
    return fn ? (rvi_jv){.kind = RVI_J_FUNCTION, .as.fn = fn} : RVI_JV(MISSING);
}

static bool enter_frame(rvi_jrun *r, const rvi_jframe *f, rvi_jact *act)
{
    for (uint32_t i = 0; i < f->n_loads; i++) {
        const rvi_jload *load = &f->loads[i];
        rvi_jact *from = act;
        switch (load->action) {
        case RVI_JLOAD_RESOLVE: act->slots[load->slot] = resolve(r, load->name); break;
        case RVI_JLOAD_ALIAS:
            for (uint32_t up = load->up; up; up--) from = from->parent;
            act->slots[load->slot] = from->slots[load->from];
            break;
        case RVI_JLOAD_UNDEFINED: act->slots[load->slot] = RVI_JV(MISSING); break;
        }
    }
    return rvi_jinja_charge(r, f->n_loads);
}

/* ---- output ---- */

static bool put(rvi_jrun *r, rvi_jv v)
{
    if (v.kind == RVI_J_UNDEFINED) return true;
    v = rvi_jv_soft_str(r, v);
    if (rvi_jv_failed(v)) return false;
    const rvi_jstr *s = v.as.str;
    if (s->len > r->limits.max_output - r->out.len) {
        rvi_jinja_fail(r, "writes more than %zu bytes", r->limits.max_output);
        return false;
    }
    if (!rvi_jinja_charge_bytes(r, s->len)) return false;
    rvi_jinja_append(r, &r->out, s, 0, s->len);
    if (r->out.failed && !r->status) r->status = rvi_nomem(r->err, "rendered chat template");
    return !r->status;
}

/* The text written since start, taken out of the output. */
static rvi_jv take_output(rvi_jrun *r, size_t start)
{
    return rvi_jinja_cut(r, &r->out, start);
}

static flow exec_output(rvi_jrun *r, const rvi_jnode *n, rvi_jact *act)
{
    for (uint32_t i = 0; i < n->list.count; i++) {
        rvi_jv v = rvi_jinja_eval(r, n->list.items[i], act);
        if (rvi_jv_failed(v) || !put(r, v)) return FAILED;
    }
    return ON;
}

/* ---- assignment ---- */

static rvi_jdict *namespace_of(rvi_jrun *r, const rvi_jnode *n, rvi_jact *act)
{
    for (uint32_t up = n->up; up; up--) act = act->parent;
    rvi_jv v = act->slots[n->slot];
    if (v.kind == RVI_J_NAMESPACE) return v.as.dict;
    r->line = n->line;
    rvi_jinja_fail(r, "cannot assign attribute on non-namespace object");
    return NULL;
}

/* Jinja checks all namespaces of a target before it evaluates the value. */
static bool check_namespaces(rvi_jrun *r, const rvi_jnode *n, rvi_jact *act)
{
    if (n->kind == RVI_JN_NSREF) return namespace_of(r, n, act);
    for (uint32_t i = 0; i < n->list.count; i++)
        if (!check_namespaces(r, n->list.items[i], act)) return false;
    return true;
}

static bool assign(rvi_jrun *r, const rvi_jnode *n, rvi_jact *act, rvi_jv value)
{
    if (n->kind == RVI_JN_NAME) {
        for (uint32_t up = n->up; up; up--) act = act->parent;
        act->slots[n->slot] = value;
        return true;
    }
    if (n->kind == RVI_JN_NSREF) {
        rvi_jdict *d = namespace_of(r, n, act);
        return d && rvi_jdict_set(r, d, (rvi_jv){.kind = RVI_J_STR, .as.str = n->attr}, value);
    }
    uint32_t want = n->list.count;
    rvi_jv it = rvi_jv_iter(r, value), item;
    rvi_jv *items = rvi_jinja_alloc(r, want, sizeof *items);
    if (rvi_jv_failed(it) || !items) return false;
    int more = 1;
    uint32_t got = 0;
    while (got <= want && (more = rvi_jiter_next(r, it.as.iter, &item)) == 1) {
        if (got < want) items[got] = item;
        got++;
    }
    if (more < 0) return false;
    if (got > want)
        return rvi_jinja_fail(r, "too many values to unpack (expected %u)", want), false;
    if (got < want)
        return rvi_jinja_fail(r, "not enough values to unpack (expected %u, got %u)", want, got),
               false;
    for (uint32_t i = 0; i < want; i++)
        if (!assign(r, n->list.items[i], act, items[i])) return false;
    return true;
}

static flow exec_set(rvi_jrun *r, const rvi_jnode *n, rvi_jact *act)
{
    if (!check_namespaces(r, n->a, act)) return FAILED;
    rvi_jv v = rvi_jinja_eval(r, n->b, act);
    return !rvi_jv_failed(v) && assign(r, n->a, act, v) ? ON : FAILED;
}

/* Runs a block in a frame of its own and takes what it wrote as a value; filtered if it has one. */
static flow capture(rvi_jrun *r, const rvi_jnode *n, rvi_jact *act, rvi_jv *out)
{
    size_t start = r->out.len;
    if (!enter_frame(r, n->block->frame, act)) return FAILED;
    flow f = exec_body(r, n->block->body, act);
    if (f != ON) {
        r->out.len = RVI_MIN(r->out.len, start);
        rvi_text_spans_cut(&r->out_user, r->out.len);
        return f;
    }
    *out = take_output(r, start);
    if (!rvi_jv_failed(*out) && n->b) *out = rvi_jinja_apply_filter(r, n->b, act, *out);
    return rvi_jv_failed(*out) ? FAILED : ON;
}

static flow exec_set_block(rvi_jrun *r, const rvi_jnode *n, rvi_jact *act)
{
    rvi_jv v;
    flow f = capture(r, n, act, &v);
    if (f != ON) return f;
    return assign(r, n->a, act, v) ? ON : FAILED;
}

static flow exec_filter_block(rvi_jrun *r, const rvi_jnode *n, rvi_jact *act)
{
    rvi_jv v;
    flow f = capture(r, n, act, &v);
    if (f != ON) return f;
    return put(r, v) ? ON : FAILED;
}

/* ---- loops ---- */

int rvi_jinja_for_test_next(rvi_jrun *r, rvi_jiter *it, rvi_jv *out)
{
    const rvi_jblock *k = it->loop->block;
    for (int more; (more = rvi_jiter_next(r, it->source.as.iter, out)) == 1;) {
        if (!enter_frame(r, k->test_frame, it->act) || !assign(r, k->test_target, it->act, *out))
            return -1;
        rvi_jv yes = rvi_jinja_eval(r, k->test, it->act);
        if (rvi_jv_failed(yes)) return -1;
        if (!rvi_jv_truth(yes)) continue;
        /* The item is given on as its target took it apart: a list of two becomes a tuple. */
        if (k->test_target->kind == RVI_JN_TUPLE && out->kind != RVI_J_TUPLE)
            *out = rvi_jv_to_list(r, *out, RVI_J_TUPLE);
        return rvi_jv_failed(*out) ? -1 : 1;
    }
    return r->status ? -1 : 0;
}

int64_t rvi_jloop_length(rvi_jrun *r, rvi_jloop *loop)
{
    size_t n;
    if (loop->length >= 0) return loop->length;
    if (rvi_jv_length(r, loop->iterable, &n)) return loop->length = (int64_t)n;
    /* A generator: read the rest now. */
    rvi_jv rest =
        rvi_jv_to_list(r, (rvi_jv){.kind = RVI_J_ITER, .as.iter = loop->iter}, RVI_J_LIST);
    if (rvi_jv_failed(rest)) return -1;
    rvi_jv it = rvi_jv_iter(r, rest);
    if (rvi_jv_failed(it)) return -1;
    loop->iter = it.as.iter;
    return loop->length =
               (int64_t)rest.as.seq->count + loop->index0 + 1 + (loop->after.kind != RVI_J_MISSING);
}

/* 1: there is a next item, 0: none, -1: failed */
static int peek(rvi_jrun *r, rvi_jloop *loop, rvi_jv *out)
{
    if (loop->after.kind == RVI_J_MISSING) {
        int more = rvi_jiter_next(r, loop->iter, &loop->after);
        if (more != 1) {
            loop->after = RVI_JV(MISSING);
            return more;
        }
    }
    *out = loop->after;
    return 1;
}

rvi_jv rvi_jloop_attribute(rvi_jrun *r, rvi_jloop *loop, const rvi_jstr *name)
{
    static const char *const names[] = {"index",    "index0",   "first",     "last",
                                        "length",   "revindex", "revindex0", "previtem",
                                        "nextitem", "depth",    "depth0"};
    size_t which = 0;
    int64_t length;
    rvi_jv next;
    while (which < RVI_COUNT(names) &&
           (strlen(names[which]) != name->len || memcmp(names[which], name->data, name->len)))
        which++;
    switch (which) {
    case 0: return rvi_jv_int(loop->index0 + 1);
    case 1: return rvi_jv_int(loop->index0);
    case 2: return rvi_jv_bool(loop->index0 == 0);
    case 3:
    case 8:
        switch (peek(r, loop, &next)) {
        case 1: return which == 3 ? rvi_jv_bool(false) : next;
        case 0:
            return which == 3 ? rvi_jv_bool(true) : rvi_jv_undefined(r, "there is no next item");
        default: return RVI_JV(FAIL);
        }
    case 4:
    case 5:
    case 6:
        if ((length = rvi_jloop_length(r, loop)) < 0) return RVI_JV(FAIL);
        return rvi_jv_int(which == 4   ? length
                          : which == 5 ? length - loop->index0
                                       : length - loop->index0 - 1);
    case 7:
        return loop->index0 == 0 ? rvi_jv_undefined(r, "there is no previous item") : loop->before;
    case 9: return rvi_jv_int(loop->depth0 + 1);
    case 10: return rvi_jv_int(loop->depth0);
    default: return RVI_JV(MISSING);
    }
}

/* act: the record that holds the loop's frames; outer: the record around a recursive loop,
 * otherwise NULL. */
static flow run_loop(rvi_jrun *r, const rvi_jnode *n, rvi_jact *act, rvi_jact *outer,
                     rvi_jv iterable, int64_t depth0)
{
    const rvi_jblock *k = n->block;
    rvi_jv it = rvi_jv_iter(r, iterable);
    rvi_jloop *loop = rvi_jinja_alloc(r, 1, sizeof *loop);
    if (rvi_jv_failed(it) || !loop) return FAILED;
    if (k->test) {
        iterable = it = rvi_jinja_new_iter(r, RVI_JITER_FOR_TEST, it, "generator object");
        if (rvi_jv_failed(it)) return FAILED;
        it.as.iter->loop = n;
        it.as.iter->act = act;
    }
    *loop = (rvi_jloop){.iter = it.as.iter,
                        .iterable = iterable,
                        .index0 = -1,
                        .length = -1,
                        .node = n,
                        .outer = outer,
                        .depth0 = depth0};
    loop->before = loop->current = loop->after = RVI_JV(MISSING);

    bool completed = false; /* some pass reached the end of the body: continue and break do not */
    for (;;) {
        rvi_jv item;
        int more = peek(r, loop, &item);
        if (more < 0) return FAILED;
        if (!more) break;
        loop->after = RVI_JV(MISSING);
        loop->before = loop->current;
        loop->current = item;
        loop->index0++;
        if (!enter_frame(r, k->frame, act) || !assign(r, n->a, act, item)) return FAILED;
        act->slots[k->loop_slot] = (rvi_jv){.kind = RVI_J_LOOP, .as.loop = loop};
        flow f = exec_body(r, k->body, act);
        if (f == FAILED) return f;
        if (f == BREAK) break;
        completed |= f == ON;
    }
    if (completed || !k->orelse.count) return ON;
    return enter_frame(r, k->else_frame, act) ? exec_body(r, k->orelse, act) : FAILED;
}

static bool deeper(rvi_jrun *r)
{
    if (r->calls >= r->limits.max_depth)
        return rvi_jinja_fail(r, "macros or recursive loops nested too deeply"), false;
    r->calls++;
    return true;
}

static flow run_recursive(rvi_jrun *r, const rvi_jnode *n, rvi_jact *outer, rvi_jv iterable,
                          int64_t depth0)
{
    if (!deeper(r)) return FAILED;
    rvi_jact *act = new_act(r, outer, n->block->n_slots);
    flow f = act ? run_loop(r, n, act, outer, iterable, depth0) : FAILED;
    r->calls--;
    return f;
}

rvi_jv rvi_jinja_call_loop(rvi_jrun *r, rvi_jloop *loop, rvi_jv iterable)
{
    size_t start = r->out.len;
    if (!loop->outer)
        return rvi_jinja_fail(
            r, "The loop must have the 'recursive' marker to be called recursively.");
    if (run_recursive(r, loop->node, loop->outer, iterable, loop->depth0 + 1) == FAILED)
        return RVI_JV(FAIL);
    return take_output(r, start);
}

static flow exec_for(rvi_jrun *r, const rvi_jnode *n, rvi_jact *act)
{
    rvi_jv iterable = rvi_jinja_eval(r, n->b, act);
    if (rvi_jv_failed(iterable)) return FAILED;
    return n->block->recursive ? run_recursive(r, n, act, iterable, 0)
                               : run_loop(r, n, act, NULL, iterable, 0);
}

/* ---- macros ---- */

static rvi_jv new_macro(rvi_jrun *r, const rvi_jnode *n, rvi_jact *act)
{
    rvi_jmacro *m = rvi_jinja_alloc(r, 1, sizeof *m);
    if (!m) return RVI_JV(FAIL);
    *m = (rvi_jmacro){.node = n, .act = act};
    return (rvi_jv){.kind = RVI_J_MACRO, .as.macro = m};
}

static bool same_name(const rvi_jstr *a, const rvi_jstr *b)
{
    return a->len == b->len && !memcmp(a->data, b->data, a->len);
}

/* Takes a named argument out of the list (named[i].name becomes NULL). */
static rvi_jv pop_named(rvi_jargs *args, const rvi_jstr *name)
{
    for (size_t i = 0; i < args->n_named; i++)
        if (args->named[i].name && same_name(args->named[i].name, name)) {
            args->named[i].name = NULL;
            return args->named[i].value;
        }
    return RVI_JV(MISSING);
}

static bool rest_of_named(rvi_jrun *r, const rvi_jmacro *m, const rvi_jargs *args, rvi_jact *act)
{
    const rvi_jblock *k = m->node->block;
    rvi_jv kwargs = k->uses_kwargs ? rvi_jv_dict(r, RVI_J_DICT) : RVI_JV(NONE);
    if (rvi_jv_failed(kwargs)) return false;
    for (size_t i = 0; i < args->n_named; i++) {
        const rvi_jstr *name = args->named[i].name;
        if (!name) continue;
        if (!k->uses_kwargs)
            return rvi_jinja_fail(r, "macro takes no keyword argument '%.*s'",
                                  (int)RVI_MIN(name->len, (size_t)100), name->data),
                   false;
        rvi_jv key = rvi_jv_part(r, name, 0, name->len);
        if (rvi_jv_failed(key) || !rvi_jdict_set(r, kwargs.as.dict, key, args->named[i].value))
            return false;
    }
    if (k->uses_kwargs) act->slots[k->kwargs_slot] = kwargs;
    return true;
}

static bool bind_arguments(rvi_jrun *r, const rvi_jmacro *m, const rvi_jargs *given, rvi_jact *act)
{
    static const rvi_jstr caller_name = {.data = "caller", .len = 6, .chars = 6};
    const rvi_jblock *k = m->node->block;
    rvi_jargs args = *given;
    args.named = rvi_jinja_alloc(r, given->n_named, sizeof *args.named);
    if (!args.named) return false;
    if (given->n_named) memcpy(args.named, given->named, given->n_named * sizeof *args.named);

    bool found_caller = k->explicit_caller && given->n_pos >= k->n_params;
    for (uint32_t i = 0; i < k->n_params; i++) {
        bool positional = i < args.n_pos;
        act->slots[k->params[i]->slot] =
            positional ? args.pos[i] : pop_named(&args, k->params[i]->name);
        found_caller |= !positional && same_name(k->params[i]->name, &caller_name);
    }
    if (k->uses_caller && !found_caller) {
        rvi_jv caller = pop_named(&args, &caller_name);
        if (!rvi_jarg_given(caller)) caller = rvi_jv_undefined(r, "No caller defined");
        if (rvi_jv_failed(caller)) return false;
        if (!k->explicit_caller) act->slots[k->caller_slot] = caller;
    }
    if (!rest_of_named(r, m, &args, act)) return false;
    if (k->uses_varargs) {
        size_t n = args.n_pos > k->n_params ? args.n_pos - k->n_params : 0;
        rvi_jv *items, rest = rvi_jv_seq(r, RVI_J_TUPLE, n, &items);
        if (rvi_jv_failed(rest)) return false;
        if (n) memcpy(items, args.pos + k->n_params, n * sizeof *items);
        act->slots[k->varargs_slot] = rest;
    } else if (args.n_pos > k->n_params) {
        return rvi_jinja_fail(r, "macro takes not more than %u argument(s)", k->n_params), false;
    }
    return true;
}

static bool fill_defaults(rvi_jrun *r, const rvi_jblock *k, rvi_jact *act)
{
    uint32_t without = k->n_params - k->n_defaults;
    for (uint32_t i = 0; i < k->n_params; i++) {
        rvi_jv *slot = &act->slots[k->params[i]->slot];
        if (slot->kind != RVI_J_MISSING) continue;
        if (i < without) {
            *slot = rvi_jv_undefined_name(r, k->params[i]->name);
        } else {
            rvi_jv v = rvi_jinja_eval(r, k->defaults[i - without], act);
            *slot = v;
        }
        if (rvi_jv_failed(*slot)) return false;
    }
    return true;
}

/* Writes the macro's text to the output. */
static bool run_macro(rvi_jrun *r, const rvi_jmacro *m, const rvi_jargs *args)
{
    const rvi_jblock *k = m->node->block;
    if (!deeper(r)) return false;
    rvi_jact *act = new_act(r, m->act, k->n_slots);
    bool ok = act && bind_arguments(r, m, args, act) && enter_frame(r, k->frame, act) &&
              fill_defaults(r, k, act) && exec_body(r, k->body, act) != FAILED;
    r->calls--;
    return ok;
}

rvi_jv rvi_jinja_call_macro(rvi_jrun *r, const rvi_jmacro *m, const rvi_jargs *args)
{
    size_t start = r->out.len;
    return run_macro(r, m, args) ? take_output(r, start) : RVI_JV(FAIL);
}

static flow exec_macro(rvi_jrun *r, const rvi_jnode *n, rvi_jact *act)
{
    rvi_jv m = new_macro(r, n, act);
    if (rvi_jv_failed(m)) return FAILED;
    for (uint32_t up = n->up; up; up--) act = act->parent;
    act->slots[n->slot] = m;
    return ON;
}

static flow exec_generation(rvi_jrun *r, const rvi_jnode *n, rvi_jact *act)
{
    rvi_jmacro m = {.node = n, .act = act};
    rvi_jargs none = {0};
    return run_macro(r, &m, &none) ? ON : FAILED;
}

static flow exec_call_block(rvi_jrun *r, const rvi_jnode *n, rvi_jact *act)
{
    rvi_jargs args;
    rvi_jv caller = new_macro(r, n, act);
    if (rvi_jv_failed(caller)) return FAILED;
    rvi_jv callee = rvi_jinja_eval(r, n->a->a, act);
    if (rvi_jv_failed(callee) || !rvi_jinja_eval_args(r, n->a->call, act, caller, &args))
        return FAILED;
    rvi_jv v = rvi_jinja_call(r, callee, &args);
    return !rvi_jv_failed(v) && put(r, v) ? ON : FAILED;
}

/* ---- the rest ---- */

static flow exec_if(rvi_jrun *r, const rvi_jnode *n, rvi_jact *act)
{
    uint32_t i = 0;
    for (; i < n->list.count; i++) {
        rvi_jv v = rvi_jinja_eval(r, n->list.items[i], act);
        if (rvi_jv_failed(v)) return FAILED;
        if (rvi_jv_truth(v)) break;
    }
    return exec_body(r, n->block->parts[i], act);
}

static flow exec_break(rvi_jrun *r, const rvi_jnode *n, rvi_jact *act)
{
    (void)r, (void)act;
    return n->kind == RVI_JN_BREAK ? BREAK : CONTINUE;
}

static flow (*const executors[])(rvi_jrun *r, const rvi_jnode *n, rvi_jact *act) = {
    [RVI_JN_OUTPUT] = exec_output,
    [RVI_JN_SET] = exec_set,
    [RVI_JN_SET_BLOCK] = exec_set_block,
    [RVI_JN_FOR] = exec_for,
    [RVI_JN_IF] = exec_if,
    [RVI_JN_MACRO] = exec_macro,
    [RVI_JN_CALL_BLOCK] = exec_call_block,
    [RVI_JN_FILTER_BLOCK] = exec_filter_block,
    [RVI_JN_GENERATION] = exec_generation,
    [RVI_JN_BREAK] = exec_break,
    [RVI_JN_CONTINUE] = exec_break,
};

static flow exec_body(rvi_jrun *r, rvi_jnodes body, rvi_jact *act)
{
    flow f = ON;
    if (!rvi_jinja_enter(r)) return FAILED;
    for (uint32_t i = 0; i < body.count && f == ON; i++) {
        r->line = body.items[i]->line;
        f = rvi_jinja_charge(r, 1) ? executors[body.items[i]->kind](r, body.items[i], act) : FAILED;
    }
    rvi_jinja_leave(r);
    return f;
}

bool rvi_jinja_run_root(rvi_jrun *r, const rvi_jblock *root)
{
    rvi_jact *act = new_act(r, NULL, root->n_slots);
    return act && enter_frame(r, root->frame, act) && exec_body(r, root->body, act) != FAILED &&
           !r->status;
}
