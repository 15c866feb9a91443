/* jinja_scope.c - binds every name of a template to a slot, by the scoping rules of Jinja's
 * compiler.
 *
 * 1. A frame is first read through at its own level (declare), then bound, which opens the frames
 * inside it. So an inner frame sees all names of the outer ones, also those that are set further
 * down.
 * 2. A name that a frame only reads belongs to the nearest outer frame that knows it; if none does,
 * this frame looks it up among the variables of the caller whenever it is entered.
 * 3. A name that a frame sets is its own. When the frame is entered it starts as a copy of the
 * outer one (so a set inside a loop does not leave it); if there is no outer one it starts as the
 * caller's variable, or undefined where the frame certainly sets it before any use: first seen in a
 * set outside any if.
 * 4. The branches of an if are no frames. */
#include <string.h>

#include "template/jinja_run.h"

typedef struct function {
    uint32_t n_slots;
} function;

typedef struct entry {
    struct scope *scope; /* NULL: free */
    const rvi_jstr *name;
    uint32_t slot;
} entry;

typedef struct pending_load {
    struct pending_load *next;
    rvi_jload load;
} pending_load;

typedef struct scope {
    struct scope *parent;
    function *fn;
    uint32_t branches;   /* ifs around the point that is being declared */
    pending_load *loads; /* the last one first */
    uint32_t n_loads;
} scope;

typedef struct binder {
    rvi_arena *arena; /* the template's */
    rvi_arena work;   /* scopes; freed at the end, never before, since entries name them */
    entry *entries;   /* hashed by scope and name */
    size_t n_entries, cap_entries;
    uint32_t loops;                                   /* for statements around this point */
    const rvi_jstr *loop, *caller, *kwargs, *varargs; /* interned */
    rv_error *err;
    rv_status status;
} binder;

static bool fail(binder *b, uint32_t line, const char *what, const rvi_jstr *name)
{
    if (!b->status)
        b->status = rvi_error(b->err, RV_E_TOKENIZATION, "chat template, line %u: %s '%.*s'", line,
                              what, (int)RVI_MIN(name->len, (size_t)100), name->data);
    return false;
}

static bool nomem(binder *b)
{
    if (!b->status) b->status = rvi_nomem(b->err, "chat template");
    return false;
}

/* ---- the table of names ---- */

static size_t hash_entry(const scope *s, const rvi_jstr *name)
{
    uint64_t h =
        ((uint64_t)(uintptr_t)s >> 4) * 0x9E3779B97F4A7C15u ^ ((uint64_t)(uintptr_t)name >> 4);
    h *= 0xC2B2AE3D27D4EB4Fu;
    return (size_t)(h ^ h >> 29);
}

static entry *find_entry(const binder *b, const scope *s, const rvi_jstr *name)
{
    if (!b->cap_entries) return NULL;
    size_t k = hash_entry(s, name) & (b->cap_entries - 1);
    for (; b->entries[k].scope; k = (k + 1) & (b->cap_entries - 1))
        if (b->entries[k].scope == s && b->entries[k].name == name) return &b->entries[k];
    return NULL;
}

static bool grow_entries(binder *b)
{
    size_t cap = b->cap_entries ? b->cap_entries * 2 : 256;
    entry *fresh = rvi_zalloc_array(cap, sizeof *fresh);
    if (!fresh) return nomem(b);
    for (size_t i = 0; i < b->cap_entries; i++) {
        if (!b->entries[i].scope) continue;
        size_t k = hash_entry(b->entries[i].scope, b->entries[i].name) & (cap - 1);
        while (fresh[k].scope) k = (k + 1) & (cap - 1);
        fresh[k] = b->entries[i];
    }
    rvi_free(b->entries);
    b->entries = fresh;
    b->cap_entries = cap;
    return true;
}

/* The slot of a new name in s; *slot is set. */
static bool add_entry(binder *b, scope *s, const rvi_jstr *name, uint32_t *slot)
{
    if (2 * b->n_entries >= b->cap_entries && !grow_entries(b)) return false;
    size_t k = hash_entry(s, name) & (b->cap_entries - 1);
    while (b->entries[k].scope) k = (k + 1) & (b->cap_entries - 1);
    *slot = s->fn->n_slots++;
    b->entries[k] = (entry){.scope = s, .name = name, .slot = *slot};
    b->n_entries++;
    return true;
}

/* The nearest scope from s outwards that knows name. up: functions crossed. */
static bool find_ref(const binder *b, const scope *s, const rvi_jstr *name, uint32_t *up,
                     uint32_t *slot)
{
    *up = 0;
    for (; s; s = s->parent) {
        entry *e = find_entry(b, s, name);
        if (e) {
            *slot = e->slot;
            return true;
        }
        if (s->parent && s->parent->fn != s->fn) ++*up;
    }
    return false;
}

static bool add_load(binder *b, scope *s, rvi_jload load)
{
    pending_load *p = rvi_arena_alloc(&b->work, 1, sizeof *p);
    if (!p) return nomem(b);
    p->load = load;
    p->next = s->loads;
    s->loads = p;
    s->n_loads++;
    return true;
}

static bool declare_read(binder *b, scope *s, const rvi_jstr *name)
{
    uint32_t up, slot;
    if (find_ref(b, s, name, &up, &slot)) return true;
    if (!add_entry(b, s, name, &slot)) return false;
    return add_load(b, s, (rvi_jload){.action = RVI_JLOAD_RESOLVE, .slot = slot, .name = name});
}

static bool declare_set(binder *b, scope *s, const rvi_jstr *name)
{
    uint32_t up = 0, from = 0, slot;
    if (find_entry(b, s, name)) return true;
    bool outer = s->parent && find_ref(b, s->parent, name, &up, &from);
    if (s->parent && s->parent->fn != s->fn) up++;
    if (!add_entry(b, s, name, &slot)) return false;
    rvi_jload load = {.action = outer         ? RVI_JLOAD_ALIAS
                                : s->branches ? RVI_JLOAD_RESOLVE
                                              : RVI_JLOAD_UNDEFINED,
                      .slot = slot,
                      .up = up,
                      .from = from,
                      .name = name};
    return add_load(b, s, load);
}

/* A parameter: set by whatever enters the frame. */
static bool declare_param(binder *b, scope *s, const rvi_jstr *name, uint32_t *slot)
{
    entry *e = find_entry(b, s, name);
    if (!e) return add_entry(b, s, name, slot);
    *slot = e->slot;
    return true;
}

static scope *open_scope(binder *b, scope *parent, function *fn)
{
    scope *s = rvi_arena_alloc(&b->work, 1, sizeof *s);
    if (!s) {
        nomem(b);
        return NULL;
    }
    s->parent = parent;
    s->fn = fn;
    return s;
}

static rvi_jframe *close_scope(binder *b, const scope *s)
{
    rvi_jframe *f = rvi_arena_alloc(b->arena, 1, sizeof *f);
    rvi_jload *loads = s->n_loads ? rvi_arena_alloc(b->arena, s->n_loads, sizeof *loads) : NULL;
    if (!f || (s->n_loads && !loads)) {
        nomem(b);
        return NULL;
    }
    f->loads = loads;
    f->n_loads = s->n_loads;
    uint32_t i = s->n_loads;
    for (const pending_load *p = s->loads; p; p = p->next) loads[--i] = p->load;
    return f;
}

/* ---- declare: what a frame reads and sets at its own level ---- */

static bool declare(binder *b, scope *s, const rvi_jnode *n);

static bool declare_all(binder *b, scope *s, rvi_jnodes list)
{
    for (uint32_t i = 0; i < list.count; i++)
        if (!declare(b, s, list.items[i])) return false;
    return true;
}

static bool declare_target(binder *b, scope *s, const rvi_jnode *n, bool param)
{
    uint32_t slot;
    if (n->kind == RVI_JN_NSREF) return declare_read(b, s, n->name);
    if (n->kind == RVI_JN_NAME)
        return param ? declare_param(b, s, n->name, &slot) : declare_set(b, s, n->name);
    for (uint32_t i = 0; i < n->list.count; i++)
        if (!declare_target(b, s, n->list.items[i], param)) return false;
    return true;
}

static bool declare_call(binder *b, scope *s, const rvi_jcall *call)
{
    if (!call) return true;
    if (!declare_all(b, s, call->args)) return false;
    for (uint32_t i = 0; i < call->n_keywords; i++)
        if (!declare(b, s, call->keywords[i].value)) return false;
    return declare(b, s, call->dyn_args) && declare(b, s, call->dyn_keywords);
}

static bool declare(binder *b, scope *s, const rvi_jnode *n)
{
    if (!n) return true;
    switch (n->kind) {
    case RVI_JN_NAME: return declare_read(b, s, n->name);
    case RVI_JN_SET: return declare(b, s, n->b) && declare_target(b, s, n->a, false);
    case RVI_JN_SET_BLOCK: return declare_target(b, s, n->a, false);
    case RVI_JN_FOR: return declare(b, s, n->b);
    case RVI_JN_MACRO: return declare_set(b, s, n->name);
    case RVI_JN_CALL_BLOCK: return declare(b, s, n->a);
    case RVI_JN_FILTER_BLOCK: return declare(b, s, n->b);
    case RVI_JN_GENERATION: return true;
    case RVI_JN_IF:
        for (uint32_t i = 0; i <= n->list.count; i++) {
            if (i < n->list.count && !declare(b, s, n->list.items[i])) return false;
            s->branches++;
            bool ok = declare_all(b, s, n->block->parts[i]);
            s->branches--;
            if (!ok) return false;
        }
        return true;
    default: /* expressions and output */
        return declare(b, s, n->a) && declare(b, s, n->b) && declare(b, s, n->c) &&
               declare_all(b, s, n->list) && declare_call(b, s, n->call);
    }
}

/* ---- does a macro's body use caller, kwargs or varargs that it does not set itself? ---- */

typedef enum use { UNSEEN, READ, SET } use; /* what happens to the name first */

static use first_use(const rvi_jnode *n, const rvi_jstr *name);

static use first_use_all(rvi_jnodes list, const rvi_jstr *name)
{
    use u = UNSEEN;
    for (uint32_t i = 0; i < list.count && u == UNSEEN; i++) u = first_use(list.items[i], name);
    return u;
}

static use first_use_target(const rvi_jnode *n, const rvi_jstr *name)
{
    if (n->kind == RVI_JN_NAME) return n->name == name ? SET : UNSEEN;
    use u = UNSEEN;
    for (uint32_t i = 0; i < n->list.count && u == UNSEEN; i++)
        u = first_use_target(n->list.items[i], name);
    return u;
}

static use first_use_call(const rvi_jcall *call, const rvi_jstr *name)
{
    use u = UNSEEN;
    if (!call) return u;
    u = first_use_all(call->args, name);
    for (uint32_t i = 0; i < call->n_keywords && u == UNSEEN; i++)
        u = first_use(call->keywords[i].value, name);
    if (u == UNSEEN) u = first_use(call->dyn_args, name);
    return u == UNSEEN ? first_use(call->dyn_keywords, name) : u;
}

static use first_use_block(const rvi_jnode *n, const rvi_jstr *name)
{
    const rvi_jblock *k = n->block;
    use u = UNSEEN;
    for (uint32_t i = 0; i < k->n_params && u == UNSEEN; i++)
        u = first_use_target(k->params[i], name);
    for (uint32_t i = 0; i < k->n_defaults && u == UNSEEN; i++) u = first_use(k->defaults[i], name);
    if (u == UNSEEN) u = first_use_all(k->body, name);
    if (u == UNSEEN) u = first_use_all(k->orelse, name);
    return u == UNSEEN ? first_use(k->test, name) : u;
}

static use first_use(const rvi_jnode *n, const rvi_jstr *name)
{
    use u = UNSEEN;
    if (!n) return u;
    switch (n->kind) {
    case RVI_JN_NAME: return n->name == name ? READ : UNSEEN;
    case RVI_JN_IF:
        for (uint32_t i = 0; i <= n->list.count && u == UNSEEN; i++) {
            if (i < n->list.count) u = first_use(n->list.items[i], name);
            if (u == UNSEEN) u = first_use_all(n->block->parts[i], name);
        }
        return u;
    case RVI_JN_SET:
    case RVI_JN_SET_BLOCK:
    case RVI_JN_FOR:
        u = first_use_target(n->a, name);
        if (u == UNSEEN) u = first_use(n->b, name);
        return u == UNSEEN ? first_use_block(n, name) : u;
    default:
        u = first_use(n->a, name);
        if (u == UNSEEN) u = first_use(n->b, name);
        if (u == UNSEEN) u = first_use(n->c, name);
        if (u == UNSEEN) u = first_use_all(n->list, name);
        if (u == UNSEEN) u = first_use_call(n->call, name);
        return u == UNSEEN && n->block ? first_use_block(n, name) : u;
    }
}

/* ---- bind ---- */

/* soft: inside an if or an inline if, where an unknown filter is an error only when it is reached.
 */
static bool bind(binder *b, scope *s, rvi_jnode *n, bool soft);

static bool bind_all(binder *b, scope *s, rvi_jnodes list, bool soft)
{
    for (uint32_t i = 0; i < list.count; i++)
        if (!bind(b, s, list.items[i], soft)) return false;
    return true;
}

static bool bind_name(binder *b, const scope *s, rvi_jnode *n)
{
    if (find_ref(b, s, n->name, &n->up, &n->slot)) return true;
    return fail(b, n->line, "cannot resolve", n->name);
}

static bool bind_target(binder *b, const scope *s, rvi_jnode *n)
{
    if (n->kind == RVI_JN_NAME && b->loops && n->name == b->loop)
        return fail(b, n->line, "Can't assign to special variable", n->name);
    if (n->kind == RVI_JN_NAME || n->kind == RVI_JN_NSREF) return bind_name(b, s, n);
    for (uint32_t i = 0; i < n->list.count; i++)
        if (!bind_target(b, s, n->list.items[i])) return false;
    return true;
}

/* Targets that the entered frame gets as parameters. */
static bool bind_target_names(binder *b, scope *s, rvi_jnode *n)
{
    return declare_target(b, s, n, true) && bind_target(b, s, n);
}

static bool bind_call(binder *b, scope *s, rvi_jcall *call, bool soft)
{
    if (!call) return true;
    if (!bind_all(b, s, call->args, soft)) return false;
    for (uint32_t i = 0; i < call->n_keywords; i++)
        if (!bind(b, s, call->keywords[i].value, soft)) return false;
    return bind(b, s, call->dyn_args, soft) && bind(b, s, call->dyn_keywords, soft);
}

/* A frame that holds only a body (and a filter over it). */
static bool bind_simple_frame(binder *b, scope *outer, rvi_jnode *n, rvi_jnode *filter)
{
    scope *s = open_scope(b, outer, outer->fn);
    return s && declare_all(b, s, n->block->body) && declare(b, s, filter) &&
           bind_all(b, s, n->block->body, false) && bind(b, s, filter, false) &&
           (n->block->frame = close_scope(b, s));
}

/* A special parameter of a macro: exists where the body reads it and no parameter has its name. */
static bool declare_special(binder *b, scope *s, const rvi_jblock *k, const rvi_jstr *name,
                            bool *uses, uint32_t *slot)
{
    for (uint32_t i = 0; i < k->n_params; i++)
        if (k->params[i]->name == name) return true;
    *uses = first_use_all(k->body, name) == READ;
    return !*uses || declare_param(b, s, name, slot);
}

/* Macros, call blocks and generation blocks. */
static bool bind_function(binder *b, scope *outer, rvi_jnode *n)
{
    rvi_jblock *k = n->block;
    function fn = {0};
    scope *s = open_scope(b, outer, &fn);
    uint32_t slot;
    if (!s) return false;
    for (uint32_t i = 0; i < k->n_params; i++) {
        if (!declare_param(b, s, k->params[i]->name, &slot)) return false;
        k->explicit_caller |= k->params[i]->name == b->caller;
    }
    if (k->explicit_caller && first_use_all(k->body, b->caller) == READ) {
        k->uses_caller = true;
        for (uint32_t i = 0; i + k->n_defaults < k->n_params; i++)
            if (k->params[i]->name == b->caller)
                return fail(b, n->line, "a default is needed for parameter", b->caller);
    }
    if (!declare_special(b, s, k, b->kwargs, &k->uses_kwargs, &k->kwargs_slot)) return false;
    if (!declare_special(b, s, k, b->varargs, &k->uses_varargs, &k->varargs_slot)) return false;
    if (!k->explicit_caller &&
        !declare_special(b, s, k, b->caller, &k->uses_caller, &k->caller_slot))
        return false;

    rvi_jnodes defaults = {.items = k->defaults, .count = k->n_defaults};
    if (!declare_all(b, s, defaults) || !declare_all(b, s, k->body)) return false;
    for (uint32_t i = 0; i < k->n_params; i++)
        if (!bind_name(b, s, k->params[i])) return false;
    if (!bind_all(b, s, defaults, false) || !bind_all(b, s, k->body, false)) return false;
    k->frame = close_scope(b, s);
    k->n_slots = fn.n_slots;
    return k->frame;
}

static bool bind_for(binder *b, scope *outer, rvi_jnode *n, bool soft)
{
    rvi_jblock *k = n->block;
    function own = {0}, *fn = k->recursive ? &own : outer->fn;
    if (!bind(b, outer, n->b, soft)) return false;
    b->loops++;

    scope *body = open_scope(b, outer, fn), *test = open_scope(b, outer, fn),
          *orelse = open_scope(b, outer, fn);
    if (!body || !test || !orelse) return false;
    if (!declare_param(b, body, b->loop, &k->loop_slot) || !bind_target_names(b, body, n->a))
        return false;
    if (!declare_all(b, body, k->body) || !bind_all(b, body, k->body, false)) return false;
    if (!(k->frame = close_scope(b, body))) return false;
    if (k->test) {
        if (!bind_target_names(b, test, k->test_target)) return false;
        if (!declare(b, test, k->test) || !bind(b, test, k->test, false)) return false;
        if (!(k->test_frame = close_scope(b, test))) return false;
    }
    if (!declare_all(b, orelse, k->orelse) || !bind_all(b, orelse, k->orelse, false)) return false;
    if (!(k->else_frame = close_scope(b, orelse))) return false;
    k->n_slots = own.n_slots;
    b->loops--;
    return true;
}

static bool bind_if(binder *b, scope *s, rvi_jnode *n)
{
    for (uint32_t i = 0; i <= n->list.count; i++) {
        if (i < n->list.count && !bind(b, s, n->list.items[i], true)) return false;
        if (!bind_all(b, s, n->block->parts[i], true)) return false;
    }
    return true;
}

static bool bind_function_name(binder *b, rvi_jnode *n, bool soft)
{
    bool filter = n->kind == RVI_JN_FILTER;
    n->fn = filter ? rvi_jinja_filter(n->name->data, n->name->len)
                   : rvi_jinja_test(n->name->data, n->name->len);
    return n->fn || soft || fail(b, n->line, filter ? "No filter named" : "No test named", n->name);
}

static bool bind(binder *b, scope *s, rvi_jnode *n, bool soft)
{
    if (!n) return true;
    switch (n->kind) {
    case RVI_JN_NAME: return bind_name(b, s, n);
    case RVI_JN_SET: return bind(b, s, n->b, soft) && bind_target(b, s, n->a);
    case RVI_JN_SET_BLOCK: return bind_target(b, s, n->a) && bind_simple_frame(b, s, n, n->b);
    case RVI_JN_FOR: return bind_for(b, s, n, soft);
    case RVI_JN_IF: return bind_if(b, s, n);
    case RVI_JN_MACRO: return bind_name(b, s, n) && bind_function(b, s, n);
    case RVI_JN_GENERATION: return bind_function(b, s, n);
    case RVI_JN_CALL_BLOCK: return bind_function(b, s, n) && bind(b, s, n->a, soft);
    case RVI_JN_FILTER_BLOCK: return bind_simple_frame(b, s, n, n->b);
    case RVI_JN_FILTER:
    case RVI_JN_TEST:
        if (!bind_function_name(b, n, soft)) return false;
        break;
    case RVI_JN_COND: soft = true; break;
    default: break;
    }
    return bind(b, s, n->a, soft) && bind(b, s, n->b, soft) && bind(b, s, n->c, soft) &&
           bind_all(b, s, n->list, soft) && bind_call(b, s, n->call, soft);
}

bool rvi_jinja_bind(rvi_jparser *p, rvi_jblock *root)
{
    binder b = {.arena = p->arena, .err = p->err};
    function fn = {0};
    b.loop = rvi_jparse_intern(p, "loop", 4);
    b.caller = rvi_jparse_intern(p, "caller", 6);
    b.kwargs = rvi_jparse_intern(p, "kwargs", 6);
    b.varargs = rvi_jparse_intern(p, "varargs", 7);
    if (p->status) return false;
    scope *s = open_scope(&b, NULL, &fn);
    if (s && declare_all(&b, s, root->body) && bind_all(&b, s, root->body, false))
        root->frame = close_scope(&b, s);
    root->n_slots = fn.n_slots;
    rvi_arena_deinit(&b.work);
    rvi_free(b.entries);
    p->status = b.status;
    return !b.status;
}
