/* jinja_attr.c - attributes, subscripts, and the methods of containers. Strings' methods are in
 * jinja_str.c. */
#include <string.h>

#include "template/jinja_run.h"

const rvi_jfn *rvi_jinja_find(const rvi_jfn *table, size_t count, const char *name, size_t len)
{
    for (size_t i = 0; i < count; i++)
        if (strlen(table[i].name) == len && !memcmp(table[i].name, name, len)) return &table[i];
    return NULL;
}

/* ---- methods of dicts ---- */

static rvi_jv dict_get(rvi_jrun *r, rvi_jv self, const rvi_jv *a, const rvi_jargs *all)
{
    rvi_jv out;
    (void)all;
    int found = rvi_jdict_find(r, self.as.dict, a[0], &out);
    if (found < 0) return RVI_JV(FAIL);
    return found ? out : RVI_JARG(a[1], RVI_JV(NONE));
}

static rvi_jv dict_view(rvi_jrun *r, const rvi_jdict *d, rvi_jkind kind)
{
    rvi_jv *items, *pair, v = rvi_jv_seq(r, kind, d->count, &items);
    for (size_t i = 0; i < d->count && !rvi_jv_failed(v); i++) {
        items[i] = kind == RVI_J_KEYS ? d->pairs[i].key : d->pairs[i].value;
        if (kind != RVI_J_ITEMS) continue;
        items[i] = rvi_jv_seq(r, RVI_J_TUPLE, 2, &pair);
        if (rvi_jv_failed(items[i])) return items[i];
        pair[0] = d->pairs[i].key;
        pair[1] = d->pairs[i].value;
    }
    return v;
}

static rvi_jv dict_items(rvi_jrun *r, rvi_jv self, const rvi_jv *a, const rvi_jargs *all)
{
    (void)a, (void)all;
    return dict_view(r, self.as.dict, RVI_J_ITEMS);
}

static rvi_jv dict_keys(rvi_jrun *r, rvi_jv self, const rvi_jv *a, const rvi_jargs *all)
{
    (void)a, (void)all;
    return dict_view(r, self.as.dict, RVI_J_KEYS);
}

static rvi_jv dict_values(rvi_jrun *r, rvi_jv self, const rvi_jv *a, const rvi_jargs *all)
{
    (void)a, (void)all;
    return dict_view(r, self.as.dict, RVI_J_VALUES);
}

/* Containers do not change, so a copy is the thing itself. */
static const rvi_jfn dict_methods[] = {
    {"get", dict_get, "- -", 1},
    {"items", dict_items, "", 0},
    {"keys", dict_keys, "", 0},
    {"values", dict_values, "", 0},
};

/* ---- methods of loops ---- */

static rvi_jv loop_cycle(rvi_jrun *r, rvi_jv self, const rvi_jv *a, const rvi_jargs *all)
{
    (void)a;
    if (!all->n_pos) return rvi_jinja_fail(r, "no items for cycling given");
    if (all->n_named) return rvi_jinja_fail(r, "cycle() takes no keyword arguments");
    return all->pos[(size_t)self.as.loop->index0 % all->n_pos];
}

static const rvi_jfn loop_methods[] = {{"cycle", loop_cycle, "*", 0}};

const rvi_jfn *rvi_jinja_method(rvi_jkind kind, const char *name, size_t len)
{
    switch (kind) {
    case RVI_J_STR:
        return rvi_jinja_find(rvi_jinja_str_methods, rvi_jinja_n_str_methods, name, len);
    case RVI_J_DICT: return rvi_jinja_find(dict_methods, RVI_COUNT(dict_methods), name, len);
    case RVI_J_LOOP: return rvi_jinja_find(loop_methods, RVI_COUNT(loop_methods), name, len);
    default: return NULL;
    }
}

/* ---- attributes ---- */

/* Methods that would change a container: the sandbox forbids calling them. */
static bool changes(rvi_jkind kind, const rvi_jstr *name)
{
    static const char *const of_list[] = {"append", "clear", "pop",    "reverse",
                                          "insert", "sort",  "extend", "remove"};
    static const char *const of_dict[] = {"clear", "pop", "popitem", "setdefault", "update"};
    const char *const *table = kind == RVI_J_LIST ? of_list : of_dict;
    size_t n = kind == RVI_J_LIST   ? RVI_COUNT(of_list)
               : kind == RVI_J_DICT ? RVI_COUNT(of_dict)
                                    : 0;
    for (size_t i = 0; i < n; i++)
        if (strlen(table[i]) == name->len && !memcmp(table[i], name->data, name->len)) return true;
    return false;
}

static bool is(const rvi_jstr *name, const char *text)
{
    return name->len == strlen(text) && !memcmp(name->data, text, name->len);
}

static bool dunder(const rvi_jstr *name)
{
    return name->len > 4 && !memcmp(name->data, "__", 2) &&
           !memcmp(name->data + name->len - 2, "__", 2);
}

/* Attributes that are values. */
static rvi_jv field(rvi_jrun *r, rvi_jv object, const rvi_jstr *name)
{
    rvi_jv v;
    switch (object.kind) {
    case RVI_J_NAMESPACE:
        return rvi_jdict_get_str(object.as.dict, name->data, name->len, &v) ? v : RVI_JV(MISSING);
    case RVI_J_LOOP: return rvi_jloop_attribute(r, object.as.loop, name);
    case RVI_J_JOINER:
        return is(name, "sep")    ? object.as.joiner->sep
               : is(name, "used") ? rvi_jv_bool(object.as.joiner->used)
                                  : RVI_JV(MISSING);
    case RVI_J_TUPLE:
        if (!object.as.seq->group) return RVI_JV(MISSING);
        return is(name, "grouper") ? object.as.seq->items[0]
               : is(name, "list")  ? object.as.seq->items[1]
                                   : RVI_JV(MISSING);
    case RVI_J_MACRO:
        if (!is(name, "name")) return RVI_JV(MISSING);
        return object.as.macro->node->name
                   ? (rvi_jv){.kind = RVI_J_STR, .as.str = object.as.macro->node->name}
                   : RVI_JV(NONE);
    case RVI_J_RANGE:
        return is(name, "start")  ? rvi_jv_int(object.as.range->start)
               : is(name, "stop") ? rvi_jv_int(object.as.range->stop)
               : is(name, "step") ? rvi_jv_int(object.as.range->step)
                                  : RVI_JV(MISSING);
    default: return RVI_JV(MISSING);
    }
}

static rvi_jv unsafe(rvi_jrun *r, rvi_jv object, const rvi_jstr *attr)
{
    size_t start = rvi_jinja_build(r);
    rvi_buf_printf(&r->scratch, "access to attribute '%.*s' of '%s' object is unsafe.",
                   (int)RVI_MIN(attr->len, (size_t)100), attr->data, rvi_jv_type_name(object));
    rvi_buf_putc(&r->scratch, 0);
    rvi_jv text = rvi_jinja_take(r, start);
    return rvi_jv_failed(text) ? text : rvi_jv_undefined(r, text.as.str->data);
}

static rvi_jv attribute(rvi_jrun *r, rvi_jv object, const rvi_jstr *name)
{
    if (object.kind == RVI_J_UNDEFINED) return rvi_jv_undefined_error(r, object);
    if (!rvi_jinja_charge_chars(r, name->len)) return RVI_JV(FAIL);
    rvi_jv v = field(r, object, name);
    if (v.kind != RVI_J_MISSING) return v;
    if (changes(object.kind, name) || dunder(name)) return unsafe(r, object, name);
    const rvi_jfn *fn = rvi_jinja_method(object.kind, name->data, name->len);
    if (!fn) return RVI_JV(MISSING);
    rvi_jmethod *m = rvi_jinja_alloc(r, 1, sizeof *m);
    if (!m) return RVI_JV(FAIL);
    *m = (rvi_jmethod){.self = object, .fn = fn};
    return (rvi_jv){.kind = RVI_J_METHOD, .as.method = m};
}

static rvi_jv subscript(rvi_jrun *r, rvi_jv object, rvi_jv key)
{
    size_t len;
    rvi_jv out;
    switch (object.kind) {
    case RVI_J_UNDEFINED: return rvi_jv_undefined_error(r, object);
    case RVI_J_DICT:
        if (key.kind == RVI_J_LIST || key.kind == RVI_J_DICT || key.kind == RVI_J_KEYS ||
            key.kind == RVI_J_ITEMS)
            return RVI_JV(MISSING);
        switch (rvi_jdict_find(r, object.as.dict, key, &out)) {
        case 1: return out;
        case 0: return RVI_JV(MISSING);
        default: return RVI_JV(FAIL);
        }
    case RVI_J_STR:
    case RVI_J_LIST:
    case RVI_J_TUPLE:
    case RVI_J_RANGE: break;
    default: return RVI_JV(MISSING);
    }
    if (!rvi_jv_is_integral(key) || !rvi_jv_length(r, object, &len)) return RVI_JV(MISSING);
    int64_t i = rvi_jv_as_int(key), n = (int64_t)len;
    if (i < 0) i += n;
    return i >= 0 && i < n ? rvi_jv_at(r, object, (size_t)i) : RVI_JV(MISSING);
}

rvi_jv rvi_jinja_getattr(rvi_jrun *r, rvi_jv object, rvi_jv name)
{
    rvi_jv v = attribute(r, object, name.as.str);
    if (v.kind == RVI_J_MISSING) v = subscript(r, object, name);
    return v.kind == RVI_J_MISSING ? rvi_jv_undefined_item(r, object, name) : v;
}

rvi_jv rvi_jinja_getitem(rvi_jrun *r, rvi_jv object, rvi_jv key)
{
    rvi_jv v = subscript(r, object, key);
    if (v.kind == RVI_J_MISSING && key.kind == RVI_J_STR) v = attribute(r, object, key.as.str);
    return v.kind == RVI_J_MISSING ? rvi_jv_undefined_item(r, object, key) : v;
}
