/* forms.c - union, intersection and complement of normal forms. */
#include <string.h>

#include "grammar/decimal.h"
#include "grammar/values.h"

enum { MAX_ALTERNATIVES = 256 };

void *rvi_values_alloc(rvi_values *v, size_t count, size_t size)
{
    void *p = v->st ? NULL : rvi_arena_alloc(&v->arena, count ? count : 1, size);
    if (p || v->st) return p;
    rvi_rxs_no_room(&v->rxs, &v->arena, count ? count : 1, size);
    v->st = rvi_rxs_check(&v->rxs, NULL, v->err);
    return NULL;
}

static void too_many(rvi_values *v)
{
    if (!v->st)
        v->st = rvi_error(v->err, RV_E_UNSUPPORTED,
                          "the schema combines more than %d alternatives in one place",
                          MAX_ALTERNATIVES);
}

rvi_object rvi_object_any(void)
{
    return (rvi_object){.keys = RVI_RX_ALL, .max = RVI_NO_LIMIT};
}

rvi_array rvi_array_any(void)
{
    return (rvi_array){.max = RVI_NO_LIMIT};
}

static rvi_form *new_form(rvi_values *v, unsigned words, rvi_rx number, rvi_rx string)
{
    rvi_form *f = rvi_values_alloc(v, 1, sizeof *f);
    if (f) *f = (rvi_form){.words = words, .number = number, .string = string};
    return f;
}

static bool set_array(rvi_values *v, rvi_form *f, const rvi_array *a)
{
    rvi_array **list = rvi_values_alloc(v, 1, sizeof *list),
              *copy = rvi_values_alloc(v, 1, sizeof *copy);
    if (!list || !copy) return false;
    *copy = *a;
    list[0] = copy;
    f->arrays = list;
    f->n_arrays = 1;
    return true;
}

static bool set_object(rvi_values *v, rvi_form *f, const rvi_object *o)
{
    rvi_object **list = rvi_values_alloc(v, 1, sizeof *list),
               *copy = rvi_values_alloc(v, 1, sizeof *copy);
    if (!list || !copy) return false;
    *copy = *o;
    list[0] = copy;
    f->objects = list;
    f->n_objects = 1;
    return true;
}

const rvi_form *rvi_form_object(rvi_values *v, const rvi_object *o)
{
    rvi_form *f = new_form(v, RVI_WORDS, v->number, RVI_RX_ALL);
    rvi_array any = rvi_array_any();
    return f && set_array(v, f, &any) && set_object(v, f, o) ? f : NULL;
}

const rvi_form *rvi_form_array(rvi_values *v, const rvi_array *a)
{
    rvi_form *f = new_form(v, RVI_WORDS, v->number, RVI_RX_ALL);
    rvi_object any = rvi_object_any();
    return f && set_array(v, f, a) && set_object(v, f, &any) ? f : NULL;
}

const rvi_form *rvi_form_any(rvi_values *v)
{
    rvi_object any = rvi_object_any();
    return rvi_form_object(v, &any);
}

const rvi_form *rvi_form_never(rvi_values *v)
{
    return new_form(v, 0, RVI_RX_NONE, RVI_RX_NONE);
}

/* ---- is there certainly nothing in it? ---- */

enum { LOOK_DEEP = 6 };

static bool node_empty(rvi_values *v, rvi_node n)
{
    if (n <= RVI_NEVER) return n == RVI_NEVER;
    if (v->nodes[n].making || v->depth > LOOK_DEEP || !rvi_rxs_spend(&v->rxs, 2)) return false;
    v->depth++;
    const rvi_form *f = rvi_values_form(v, n);
    bool empty = f && rvi_form_empty(v, f);
    v->depth--;
    return empty;
}

rvi_node rvi_members_node(rvi_values *v, const rvi_members *m, rvi_text name)
{
    rvi_node node = RVI_ANY;
    bool found = false;
    size_t low = 0, high = m->n_named;
    while (low < high) {
        size_t mid = (low + high) / 2;
        int c = rvi_text_compare(&name, &m->named[mid].name);
        if (!c) {
            node = m->named[mid].node;
            found = true;
            break;
        }
        if (c < 0)
            high = mid;
        else
            low = mid + 1;
    }
    for (size_t i = 0; i < m->n_patterns; i++)
        if (rvi_rx_matches(&v->rxs, m->patterns[i].keys, name.data, name.len)) {
            node = rvi_node_and(v, node, m->patterns[i].node);
            found = true;
        }
    return found ? node : m->others;
}

static bool object_empty(rvi_values *v, const rvi_object *o)
{
    if (o->min > o->max) return true;
    for (size_t r = 0; r < o->n_required; r++) {
        rvi_node node = RVI_ANY;
        for (size_t i = 0; i < o->n_members; i++)
            node = rvi_node_and(v, node, rvi_members_node(v, o->members[i], o->required[r]));
        if (!rvi_rxs_spend(&v->rxs, 2 * o->n_members)) return false;
        if (node_empty(v, node)) return true;
    }
    return false;
}

static bool array_empty(rvi_values *v, const rvi_array *a)
{
    if (a->min > a->max) return true;
    for (uint32_t i = 0; i < a->min && i < 16; i++) {
        rvi_node node = RVI_ANY;
        for (size_t k = 0; k < a->n_items; k++)
            node = rvi_node_and(
                v, node, i < a->items[k]->n_prefix ? a->items[k]->prefix[i] : a->items[k]->rest);
        if (node_empty(v, node)) return true;
    }
    return false;
}

bool rvi_form_empty(rvi_values *v, const rvi_form *f)
{
    if (f->words || rvi_rx_live(&v->rxs, f->number) || rvi_rx_live(&v->rxs, f->string))
        return false;
    for (size_t i = 0; i < f->n_arrays; i++)
        if (!array_empty(v, f->arrays[i])) return false;
    for (size_t i = 0; i < f->n_objects; i++)
        if (!object_empty(v, f->objects[i])) return false;
    return true;
}

/* ---- intersection ---- */

static const void *join(rvi_values *v, const void *a, size_t n_a, const void *b, size_t n_b,
                        size_t size, size_t *n)
{
    *n = n_a + n_b;
    if (!n_b) return a;
    if (!n_a) return b;
    char *list = rvi_values_alloc(v, *n, size);
    if (!list) return NULL;
    memcpy(list, a, n_a * size);
    memcpy(list + n_a * size, b, n_b * size);
    return list;
}

static rvi_object *object_and(rvi_values *v, const rvi_object *a, const rvi_object *b)
{
    rvi_object *o = rvi_values_alloc(v, 1, sizeof *o);
    if (!o) return NULL;
    *o = (rvi_object){.min = RVI_MAX(a->min, b->min), .max = RVI_MIN(a->max, b->max)};
    o->members = join(v, a->members, a->n_members, b->members, b->n_members, sizeof *a->members,
                      &o->n_members);
    o->required = join(v, a->required, a->n_required, b->required, b->n_required,
                       sizeof *a->required, &o->n_required);
    o->dependencies = join(v, a->dependencies, a->n_dependencies, b->dependencies,
                           b->n_dependencies, sizeof *a->dependencies, &o->n_dependencies);
    o->some = join(v, a->some, a->n_some, b->some, b->n_some, sizeof *a->some, &o->n_some);
    o->keys = rvi_rx_and(&v->rxs, a->keys, b->keys);
    return v->st ? NULL : o;
}

static rvi_array *array_and(rvi_values *v, const rvi_array *a, const rvi_array *b)
{
    rvi_array *o = rvi_values_alloc(v, 1, sizeof *o);
    if (!o) return NULL;
    *o = (rvi_array){.min = RVI_MAX(a->min, b->min),
                     .max = RVI_MIN(a->max, b->max),
                     .unique = a->unique || b->unique};
    o->items = join(v, a->items, a->n_items, b->items, b->n_items, sizeof *a->items, &o->n_items);
    o->contains = join(v, a->contains, a->n_contains, b->contains, b->n_contains,
                       sizeof *a->contains, &o->n_contains);
    return v->st ? NULL : o;
}

static bool any_object(const rvi_object *o)
{
    return !o->n_members && !o->n_required && !o->n_dependencies && !o->n_some &&
           o->keys == RVI_RX_ALL && !o->min && o->max == RVI_NO_LIMIT;
}

static bool any_array(const rvi_array *a)
{
    return !a->n_items && !a->n_contains && !a->min && a->max == RVI_NO_LIMIT && !a->unique;
}

static bool objects_and(rvi_values *v, rvi_form *f, const rvi_form *a, const rvi_form *b)
{
    if (a->n_objects == 1 && any_object(a->objects[0])) {
        f->objects = b->objects;
        f->n_objects = b->n_objects;
        return true;
    }
    if (b->n_objects == 1 && any_object(b->objects[0])) {
        f->objects = a->objects;
        f->n_objects = a->n_objects;
        return true;
    }
    rvi_object **list = rvi_values_alloc(
        v, RVI_MIN(a->n_objects * b->n_objects, (size_t)MAX_ALTERNATIVES), sizeof *list);
    size_t n = 0;
    for (size_t i = 0; i < a->n_objects && !v->st; i++)
        for (size_t k = 0; k < b->n_objects && !v->st; k++) {
            rvi_object *o = object_and(v, a->objects[i], b->objects[k]);
            if (!o || (a->n_objects * b->n_objects > 1 && object_empty(v, o))) continue;
            if (n == MAX_ALTERNATIVES)
                too_many(v);
            else
                list[n++] = o;
        }
    f->objects = list;
    f->n_objects = n;
    return !v->st;
}

static bool arrays_and(rvi_values *v, rvi_form *f, const rvi_form *a, const rvi_form *b)
{
    if (a->n_arrays == 1 && any_array(a->arrays[0])) {
        f->arrays = b->arrays;
        f->n_arrays = b->n_arrays;
        return true;
    }
    if (b->n_arrays == 1 && any_array(b->arrays[0])) {
        f->arrays = a->arrays;
        f->n_arrays = a->n_arrays;
        return true;
    }
    rvi_array **list = rvi_values_alloc(
        v, RVI_MIN(a->n_arrays * b->n_arrays, (size_t)MAX_ALTERNATIVES), sizeof *list);
    size_t n = 0;
    for (size_t i = 0; i < a->n_arrays && !v->st; i++)
        for (size_t k = 0; k < b->n_arrays && !v->st; k++) {
            rvi_array *o = array_and(v, a->arrays[i], b->arrays[k]);
            if (!o || (a->n_arrays * b->n_arrays > 1 && array_empty(v, o))) continue;
            if (n == MAX_ALTERNATIVES)
                too_many(v);
            else
                list[n++] = o;
        }
    f->arrays = list;
    f->n_arrays = n;
    return !v->st;
}

static rvi_rx number_and(rvi_values *v, rvi_rx a, rvi_rx b)
{
    if (a == v->number || (a == v->whole && rvi_rx_whole_multiple(&v->rxs, b))) return b;
    if (b == v->number || (b == v->whole && rvi_rx_whole_multiple(&v->rxs, a))) return a;
    return rvi_rx_and(&v->rxs, a, b);
}

const rvi_form *rvi_form_and(rvi_values *v, const rvi_form *a, const rvi_form *b)
{
    if (v->st || !a || !b) return NULL;
    rvi_form *f = new_form(v, a->words & b->words, number_and(v, a->number, b->number),
                           rvi_rx_and(&v->rxs, a->string, b->string));
    return f && arrays_and(v, f, a, b) && objects_and(v, f, a, b) ? f : NULL;
}

/* ---- union ---- */

const rvi_form *rvi_form_or(rvi_values *v, const rvi_form *a, const rvi_form *b)
{
    if (v->st || !a || !b) return NULL;
    rvi_rx number = a->number == v->number || b->number == v->number
                        ? v->number
                        : rvi_rx_or(&v->rxs, a->number, b->number);
    rvi_form *f =
        new_form(v, a->words | b->words, number, rvi_rx_or(&v->rxs, a->string, b->string));
    if (!f) return NULL;
    /* an alternative that allows everything makes the others needless */
    const rvi_form *wide = NULL;
    if (!v->exact && a->n_objects == 1 && any_object(a->objects[0])) wide = a;
    if (!v->exact && b->n_objects == 1 && any_object(b->objects[0])) wide = b;
    f->objects = wide ? wide->objects
                      : join(v, a->objects, a->n_objects, b->objects, b->n_objects,
                             sizeof *a->objects, &f->n_objects);
    if (wide) f->n_objects = 1;
    wide = NULL;
    if (!v->exact && a->n_arrays == 1 && any_array(a->arrays[0])) wide = a;
    if (!v->exact && b->n_arrays == 1 && any_array(b->arrays[0])) wide = b;
    f->arrays = wide ? wide->arrays
                     : join(v, a->arrays, a->n_arrays, b->arrays, b->n_arrays, sizeof *a->arrays,
                            &f->n_arrays);
    if (wide) f->n_arrays = 1;
    if (f->n_objects > MAX_ALTERNATIVES || f->n_arrays > MAX_ALTERNATIVES) too_many(v);
    return v->st ? NULL : f;
}

/* ---- complement ---- */

/* Collects alternatives. */
typedef struct object_list {
    rvi_object *items[MAX_ALTERNATIVES];
    size_t n;
} object_list;

static void add_object(rvi_values *v, object_list *l, const rvi_object *o)
{
    rvi_object *copy = rvi_values_alloc(v, 1, sizeof *copy);
    if (!copy) return;
    *copy = *o;
    if (l->n == MAX_ALTERNATIVES)
        too_many(v);
    else
        l->items[l->n++] = copy;
}

/* An object in which the named member, if it is there, has a value in the node. */
static bool one_member(rvi_values *v, rvi_object *o, rvi_text name, rvi_node node)
{
    rvi_members *m = rvi_values_alloc(v, 1, sizeof *m);
    rvi_member *named = rvi_values_alloc(v, 1, sizeof *named);
    const rvi_members **list = rvi_values_alloc(v, 1, sizeof *list);
    if (!m || !named || !list) return false;
    *named = (rvi_member){name, node};
    *m = (rvi_members){.named = named, .n_named = 1, .silent = true};
    list[0] = m;
    *o = rvi_object_any();
    o->members = list;
    o->n_members = 1;
    return true;
}

static void require(rvi_values *v, rvi_object *o, rvi_text name)
{
    rvi_text *list = rvi_values_alloc(v, 1, sizeof *list);
    if (!list) return;
    *list = name;
    o->required = list;
    o->n_required = 1;
}

static void add_some(rvi_values *v, object_list *l, rvi_rx keys, rvi_node node)
{
    rvi_object o = rvi_object_any();
    rvi_key_rule *rule = rvi_values_alloc(v, 1, sizeof *rule);
    if (!rule || node == RVI_NEVER) return;
    *rule = (rvi_key_rule){keys, node};
    o.some = rule;
    o.n_some = 1;
    add_object(v, l, &o);
}

static void members_not(rvi_values *v, object_list *l, const rvi_members *m)
{
    rvi_object o;
    rvi_rx covered = RVI_RX_NONE;
    for (size_t i = 0; i < m->n_named; i++) {
        rvi_text name = m->named[i].name;
        covered = rvi_rx_or(&v->rxs, covered, rvi_rx_literal(&v->rxs, name.data, name.len));
        rvi_node wrong = rvi_node_not(v, m->named[i].node);
        if (wrong == RVI_NEVER || !one_member(v, &o, name, wrong)) continue;
        require(v, &o, name);
        add_object(v, l, &o);
    }
    for (size_t i = 0; i < m->n_patterns; i++) {
        covered = rvi_rx_or(&v->rxs, covered, m->patterns[i].keys);
        add_some(v, l, m->patterns[i].keys, rvi_node_not(v, m->patterns[i].node));
    }
    add_some(v, l, rvi_rx_not(&v->rxs, covered), rvi_node_not(v, m->others));
}

static void object_not(rvi_values *v, object_list *l, const rvi_object *a)
{
    rvi_object o;
    for (size_t i = 0; i < a->n_members && !v->st; i++) members_not(v, l, a->members[i]);
    for (size_t i = 0; i < a->n_required && !v->st; i++)
        if (one_member(v, &o, a->required[i], RVI_NEVER)) add_object(v, l, &o);
    for (size_t i = 0; i < a->n_dependencies && !v->st; i++)
        if (one_member(v, &o, a->dependencies[i].needed, RVI_NEVER)) {
            require(v, &o, a->dependencies[i].if_present);
            add_object(v, l, &o);
        }
    for (size_t i = 0; i < a->n_some && !v->st; i++) {
        rvi_key_rule *rule = rvi_values_alloc(v, 1, sizeof *rule);
        if (!one_member(v, &o, (rvi_text){"", 0}, RVI_ANY) || !rule) return;
        *rule = (rvi_key_rule){a->some[i].keys, rvi_node_not(v, a->some[i].node)};
        rvi_members *m = rvi_values_alloc(v, 1, sizeof *m);
        const rvi_members **list = rvi_values_alloc(v, 1, sizeof *list);
        if (!m || !list) return;
        *m = (rvi_members){.patterns = rule, .n_patterns = 1, .silent = true};
        list[0] = m;
        o.members = list;
        add_object(v, l, &o);
    }
    if (a->keys != RVI_RX_ALL) add_some(v, l, rvi_rx_not(&v->rxs, a->keys), RVI_ANY);
    o = rvi_object_any();
    if (a->min) {
        o.max = a->min - 1;
        add_object(v, l, &o);
    }
    o = rvi_object_any();
    if (a->max != RVI_NO_LIMIT) {
        o.min = a->max + 1;
        add_object(v, l, &o);
    }
}

typedef struct array_list {
    rvi_array *items[MAX_ALTERNATIVES];
    size_t n;
} array_list;

static void add_array(rvi_values *v, array_list *l, const rvi_array *a)
{
    rvi_array *copy = rvi_values_alloc(v, 1, sizeof *copy);
    if (!copy) return;
    *copy = *a;
    if (l->n == MAX_ALTERNATIVES)
        too_many(v);
    else
        l->items[l->n++] = copy;
}

static void add_contains(rvi_values *v, array_list *l, rvi_contains c)
{
    rvi_array a = rvi_array_any();
    rvi_contains *copy = rvi_values_alloc(v, 1, sizeof *copy);
    if (!copy) return;
    *copy = c;
    a.contains = copy;
    a.n_contains = 1;
    add_array(v, l, &a);
}

static void items_not(rvi_values *v, array_list *l, const rvi_items *m)
{
    for (size_t i = 0; i < m->n_prefix && !v->st; i++) {
        rvi_node wrong = rvi_node_not(v, m->prefix[i]);
        rvi_node *prefix = rvi_values_alloc(v, i + 1, sizeof *prefix);
        rvi_items *items = rvi_values_alloc(v, 1, sizeof *items);
        const rvi_items **list = rvi_values_alloc(v, 1, sizeof *list);
        if (wrong == RVI_NEVER || !prefix || !items || !list) continue;
        for (size_t k = 0; k < i; k++) prefix[k] = RVI_ANY;
        prefix[i] = wrong;
        *items = (rvi_items){.prefix = prefix, .n_prefix = i + 1, .silent = true};
        list[0] = items;
        rvi_array a = rvi_array_any();
        a.items = list;
        a.n_items = 1;
        a.min = (uint32_t)i + 1;
        add_array(v, l, &a);
    }
    rvi_node wrong = rvi_node_not(v, m->rest);
    if (wrong != RVI_NEVER)
        add_contains(v, l, (rvi_contains){wrong, 1, RVI_NO_LIMIT, (uint32_t)m->n_prefix, true});
}

static void array_not(rvi_values *v, array_list *l, const rvi_array *a)
{
    if (a->unique && !v->st)
        v->st = rvi_error(v->err, RV_E_UNSUPPORTED,
                          "that items are not unique (by not, oneOf or if) cannot be enforced");
    for (size_t i = 0; i < a->n_items && !v->st; i++) items_not(v, l, a->items[i]);
    for (size_t i = 0; i < a->n_contains && !v->st; i++) {
        rvi_contains c = a->contains[i];
        if (c.min) add_contains(v, l, (rvi_contains){c.node, 0, c.min - 1, c.from, true});
        if (c.max != RVI_NO_LIMIT)
            add_contains(v, l, (rvi_contains){c.node, c.max + 1, RVI_NO_LIMIT, c.from, true});
    }
    rvi_array o = rvi_array_any();
    if (a->min) {
        o.max = a->min - 1;
        add_array(v, l, &o);
    }
    o = rvi_array_any();
    if (a->max != RVI_NO_LIMIT) {
        o.min = a->max + 1;
        add_array(v, l, &o);
    }
}

static const rvi_form *not_objects(rvi_values *v, const rvi_form *a, const rvi_form *f,
                                   const rvi_form *any)
{
    for (size_t i = 0; i < a->n_objects && f; i++) {
        object_list l = {.n = 0};
        object_not(v, &l, a->objects[i]);
        rvi_form one = *any;
        rvi_object **list = rvi_values_alloc(v, l.n, sizeof *list);
        if (!list) return NULL;
        memcpy(list, l.items, l.n * sizeof *list);
        one.objects = list;
        one.n_objects = l.n;
        f = rvi_form_and(v, f, &one);
    }
    return f;
}

static const rvi_form *not_arrays(rvi_values *v, const rvi_form *a, const rvi_form *f,
                                  const rvi_form *any)
{
    for (size_t i = 0; i < a->n_arrays && f; i++) {
        array_list l = {.n = 0};
        array_not(v, &l, a->arrays[i]);
        rvi_form one = *any;
        rvi_array **list = rvi_values_alloc(v, l.n, sizeof *list);
        if (!list) return NULL;
        memcpy(list, l.items, l.n * sizeof *list);
        one.arrays = list;
        one.n_arrays = l.n;
        f = rvi_form_and(v, f, &one);
    }
    return f;
}

const rvi_form *rvi_form_not(rvi_values *v, const rvi_form *a)
{
    const rvi_form *any = rvi_form_any(v);
    if (v->st || !a || !any) return NULL;
    rvi_rxs *p = &v->rxs;
    rvi_form *f = rvi_values_alloc(v, 1, sizeof *f);
    if (!f) return NULL;
    *f = *any;
    f->words = RVI_WORDS & ~a->words;
    f->string = rvi_rx_not(p, a->string);
    if (a->number == v->number)
        f->number = RVI_RX_NONE;
    else if (a->number !=
             RVI_RX_NONE) /* limits know no exponents, so neither does what is outside */
        f->number = rvi_rx_and(p, v->plain, rvi_rx_not(p, a->number));
    const rvi_form *g = not_objects(v, a, f, any);
    return g ? not_arrays(v, a, g, any) : NULL;
}
