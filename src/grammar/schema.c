/* schema.c - JSON Schema (2020-12, and what older drafts say in other words) to normal forms.
 *
 * What asks for something that cannot be enforced is refused with its place in the schema;
 * annotations and unknown keywords ask for nothing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/decimal.h"
#include "grammar/rx_parse.h"
#include "grammar/values.h"

static rvi_text text_of(const rvi_json *v)
{
    return (rvi_text){v->as.string.data, v->as.string.len};
}

static rvi_text key_of(const rvi_json *v)
{
    return (rvi_text){v->key, v->key_len};
}

static bool is_number(const rvi_json *v)
{
    return rvi_json_is(v, RVI_JSON_INT) || rvi_json_is(v, RVI_JSON_NUMBER);
}

static void *refuse(rvi_values *v, const rvi_json *at, rv_status st, const char *why)
{
    char path[256];
    if (!v->st) v->st = rvi_error(v->err, st, "%s: %s", rvi_json_path(v->root, at, path), why);
    return NULL;
}

/* Says where an error is that does not. The path is not looked for before: that takes time. */
static void locate(rvi_values *v, const rvi_json *at)
{
    char path[256], why[sizeof v->err->text];
    if (!v->st || v->st == RV_E_NOMEM || !v->err) return;
    snprintf(why, sizeof why, "%s", v->rxs.status ? v->rxs.why : v->err->text);
    v->st = rvi_error(v->err, v->st, "%s: %s", rvi_json_path(v->root, at, path), why);
}

/* A keyword, unless it is newer than the schema's draft. */
static const rvi_json *since(const rvi_values *v, const rvi_json *s, int draft, const char *keyword)
{
    return v->draft < draft ? NULL : rvi_json_get(s, keyword);
}

/* The members of an object, sorted by name; of a repeated name the last counts. */
typedef struct entry {
    rvi_text name;
    const rvi_json *value;
} entry;

static int by_name(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    int c = rvi_text_compare(&x->name, &y->name);
    return c ? c : x->value < y->value ? -1 : x->value > y->value;
}

static const entry *sorted_members(rvi_values *v, const rvi_json *object, size_t *n)
{
    size_t count = rvi_json_count(object), k = 0;
    entry *list = rvi_values_alloc(v, count, sizeof *list);
    *n = 0;
    if (!list) return NULL;
    for (size_t i = 0; i < count; i++)
        list[i] = (entry){key_of(rvi_json_at(object, i)), rvi_json_at(object, i)};
    qsort(list, count, sizeof *list, by_name);
    for (size_t i = 0; i < count; i++) {
        if (k && !rvi_text_compare(&list[i].name, &list[k - 1].name)) k--;
        list[k++] = list[i];
    }
    *n = k;
    return list;
}

/* ---- constants ---- */

static const rvi_form *leaf_form(rvi_values *v, unsigned words, rvi_rx number, rvi_rx string)
{
    rvi_form *f = rvi_values_alloc(v, 1, sizeof *f);
    if (f) *f = (rvi_form){.words = words, .number = number, .string = string};
    return f;
}

static rvi_rx number_equal(rvi_values *v, const rvi_json *value)
{
    rvi_decimal d;
    if (!rvi_decimal_from_json(&d, value)) {
        refuse(v, value, RV_E_UNSUPPORTED, "a number with too many digits");
        return RVI_RX_NONE;
    }
    return rvi_rx_bounded(&v->rxs, &v->arena, RVI_EQUAL, &d);
}

/* Only this object: each member has its value, and there are no others. */
static const rvi_form *const_object(rvi_values *v, const rvi_json *value)
{
    size_t n;
    const entry *members = sorted_members(v, value, &n);
    rvi_member *named = rvi_values_alloc(v, n, sizeof *named);
    rvi_text *required = rvi_values_alloc(v, n, sizeof *required);
    rvi_members *m = rvi_values_alloc(v, 1, sizeof *m);
    const rvi_members **list = rvi_values_alloc(v, 1, sizeof *list);
    if (v->st) return NULL;
    for (size_t i = 0; i < n; i++) {
        named[i] = (rvi_member){members[i].name, rvi_node_const(v, members[i].value)};
        required[i] = members[i].name;
    }
    *m = (rvi_members){.named = named, .n_named = n, .others = RVI_NEVER, .has_others = true};
    list[0] = m;
    rvi_object *o = rvi_values_alloc(v, 1, sizeof *o),
               **objects = rvi_values_alloc(v, 1, sizeof *objects);
    rvi_form *f = rvi_values_alloc(v, 1, sizeof *f);
    if (v->st) return NULL;
    *o = rvi_object_any();
    o->members = list;
    o->n_members = 1;
    o->required = required;
    o->n_required = n;
    objects[0] = o;
    *f = (rvi_form){.objects = objects, .n_objects = 1};
    return f;
}

static const rvi_form *const_array(rvi_values *v, const rvi_json *value)
{
    size_t n = rvi_json_count(value);
    rvi_node *prefix = rvi_values_alloc(v, n, sizeof *prefix);
    rvi_items *items = rvi_values_alloc(v, 1, sizeof *items);
    const rvi_items **list = rvi_values_alloc(v, 1, sizeof *list);
    rvi_array *a = rvi_values_alloc(v, 1, sizeof *a),
              **arrays = rvi_values_alloc(v, 1, sizeof *arrays);
    rvi_form *f = rvi_values_alloc(v, 1, sizeof *f);
    if (v->st) return NULL;
    for (size_t i = 0; i < n; i++) prefix[i] = rvi_node_const(v, rvi_json_at(value, i));
    *items = (rvi_items){.prefix = prefix, .n_prefix = n, .rest = RVI_NEVER, .has_rest = true};
    list[0] = items;
    *a = (rvi_array){.items = list, .n_items = 1, .min = (uint32_t)n, .max = (uint32_t)n};
    arrays[0] = a;
    *f = (rvi_form){.arrays = arrays, .n_arrays = 1};
    return f;
}

const rvi_form *rvi_const_form(rvi_values *v, const rvi_json *value)
{
    switch (value->kind) {
    case RVI_JSON_NULL: return leaf_form(v, RVI_WORD_NULL, RVI_RX_NONE, RVI_RX_NONE);
    case RVI_JSON_BOOL:
        return leaf_form(v, value->as.boolean ? RVI_WORD_TRUE : RVI_WORD_FALSE, RVI_RX_NONE,
                         RVI_RX_NONE);
    case RVI_JSON_INT:
    case RVI_JSON_NUMBER: return leaf_form(v, 0, number_equal(v, value), RVI_RX_NONE);
    case RVI_JSON_STRING:
        return leaf_form(v, 0, RVI_RX_NONE,
                         rvi_rx_literal(&v->rxs, value->as.string.data, value->as.string.len));
    case RVI_JSON_ARRAY: return const_array(v, value);
    case RVI_JSON_OBJECT: return const_object(v, value);
    }
    return NULL;
}

/* Strings become one automaton, the rest a union. */
static const rvi_form *enum_form(rvi_values *v, const rvi_json *list)
{
    size_t n = 0, k = 0, count = rvi_json_count(list);
    rvi_text *texts = rvi_values_alloc(v, count, sizeof *texts);
    const rvi_form *f = rvi_form_never(v);
    if (!rvi_json_is(list, RVI_JSON_ARRAY))
        return refuse(v, list, RV_E_CONFIG, "a list of values is expected");
    for (size_t i = 0; i < count && !v->st; i++) {
        const rvi_json *value = rvi_json_at(list, i);
        if (rvi_json_is(value, RVI_JSON_STRING))
            texts[n++] = text_of(value);
        else
            f = rvi_form_or(v, f, rvi_const_form(v, value));
    }
    if (v->st) return NULL;
    qsort(texts, n, sizeof *texts, rvi_text_compare);
    for (size_t i = 0; i < n; i++)
        if (!k || rvi_text_compare(&texts[i], &texts[k - 1])) texts[k++] = texts[i];
    rvi_rx strings = k == 1 ? rvi_rx_literal(&v->rxs, texts[0].data, texts[0].len)
                            : rvi_rx_names(&v->rxs, &v->arena, texts, k, NULL);
    return rvi_form_or(v, f, leaf_form(v, 0, RVI_RX_NONE, strings));
}

/* ---- types ---- */

static bool add_type(rvi_values *v, const rvi_json *name, rvi_form *f, const rvi_form *any)
{
    const char *s = rvi_json_string(name, "");
    if (!strcmp(s, "null")) {
        f->words |= RVI_WORD_NULL;
    } else if (!strcmp(s, "boolean")) {
        f->words |= RVI_WORD_TRUE | RVI_WORD_FALSE;
    } else if (!strcmp(s, "number")) {
        f->number = v->number;
    } else if (!strcmp(s, "integer")) {
        if (f->number != v->number) f->number = v->integer;
    } else if (!strcmp(s, "string")) {
        f->string = RVI_RX_ALL;
    } else if (!strcmp(s, "array")) {
        f->arrays = any->arrays;
        f->n_arrays = any->n_arrays;
    } else if (!strcmp(s, "object")) {
        f->objects = any->objects;
        f->n_objects = any->n_objects;
    } else if (!strcmp(s, "any")) {
        *f = *any; /* draft 3 */
    } else {
        char why[64];
        snprintf(why, sizeof why, "no type is called '%.32s'", s);
        refuse(v, name, RV_E_CONFIG, *s ? why : "not a type");
    }
    return !v->st;
}

static const rvi_form *type_form(rvi_values *v, const rvi_json *type)
{
    const rvi_form *any = rvi_form_any(v);
    rvi_form *f = rvi_values_alloc(v, 1, sizeof *f);
    if (v->st) return NULL;
    if (rvi_json_is(type, RVI_JSON_STRING)) return add_type(v, type, f, any) ? f : NULL;
    if (!rvi_json_is(type, RVI_JSON_ARRAY)) return refuse(v, type, RV_E_CONFIG, "not a type");
    for (size_t i = 0; i < rvi_json_count(type); i++)
        if (!add_type(v, rvi_json_at(type, i), f, any)) return NULL;
    return f;
}

/* ---- numbers ---- */

static rvi_rx narrow(rvi_values *v, rvi_rx number, const rvi_json *limit, rvi_bound how)
{
    rvi_decimal d;
    if (!limit || v->st) return number;
    if (!is_number(limit)) return refuse(v, limit, RV_E_CONFIG, "a number is expected"), number;
    if (!rvi_decimal_from_json(&d, limit))
        return refuse(v, limit, RV_E_UNSUPPORTED, "a number with too many digits"), number;
    rvi_rx within = rvi_rx_bounded(&v->rxs, &v->arena, how, &d);
    return number == v->number ? within : rvi_rx_and(&v->rxs, number, within);
}

/* draft 4: exclusiveMinimum is a flag of minimum */
static rvi_rx narrow_both(rvi_values *v, rvi_rx number, const rvi_json *s, const char *bound,
                          const char *exclusive, rvi_bound how, rvi_bound strict)
{
    const rvi_json *flag = rvi_json_get(s, exclusive);
    bool is_flag = rvi_json_is(flag, RVI_JSON_BOOL);
    number = narrow(v, number, rvi_json_get(s, bound), is_flag && flag->as.boolean ? strict : how);
    return is_flag ? number : narrow(v, number, flag, strict);
}

static const rvi_form *number_form(rvi_values *v, const rvi_json *s, const rvi_form *f)
{
    rvi_rx number =
        narrow_both(v, v->number, s, "minimum", "exclusiveMinimum", RVI_AT_LEAST, RVI_ABOVE);
    number = narrow_both(v, number, s, "maximum", "exclusiveMaximum", RVI_AT_MOST, RVI_BELOW);
    const rvi_json *step = rvi_json_get(s, "multipleOf");
    if (!step) step = rvi_json_get(s, "divisibleBy");
    if (step && !v->st) {
        rvi_decimal d;
        if (!is_number(step) || !rvi_decimal_from_json(&d, step))
            return refuse(v, step, RV_E_CONFIG, "a number above 0 is expected");
        rvi_rx multiple = rvi_rx_multiple(&v->rxs, &v->arena, &d);
        if (v->rxs.status == RV_E_UNSUPPORTED) return refuse(v, step, RV_E_UNSUPPORTED, v->rxs.why);
        number = number == v->number ? multiple : rvi_rx_and(&v->rxs, number, multiple);
    }
    if (number == v->number || v->st) return f;
    rvi_form *only = rvi_values_alloc(v, 1, sizeof *only);
    const rvi_form *any = rvi_form_any(v);
    if (!only || !any) return NULL;
    *only = *any;
    only->number = number;
    return rvi_form_and(v, f, only);
}

/* ---- strings ---- */

/* A count: a whole number from 0 on. */
static uint32_t count_of(rvi_values *v, const rvi_json *n, uint32_t otherwise)
{
    rvi_decimal d;
    uint32_t out;
    if (!n || v->st) return otherwise;
    if (!is_number(n) || !rvi_decimal_from_json(&d, n) || d.negative || d.n_frac)
        return refuse(v, n, RV_E_CONFIG, "a whole number from 0 on is expected"), otherwise;
    return rvi_decimal_to_uint(&d, &out) ? out : 999999999;
}

static const rvi_form *string_form(rvi_values *v, const rvi_json *s, const rvi_form *f)
{
    const rvi_json *pattern = rvi_json_get(s, "pattern"), *format = rvi_json_get(s, "format");
    uint32_t min = count_of(v, rvi_json_get(s, "minLength"), 0),
             max = count_of(v, rvi_json_get(s, "maxLength"), RVI_NO_LIMIT);
    rvi_rx string = RVI_RX_ALL, rx;
    if (v->st) return NULL;
    if (min || max != RVI_NO_LIMIT) string = rvi_rx_repeat(&v->rxs, RVI_RX_CHAR, min, max);
    if (pattern) {
        if (!rvi_json_is(pattern, RVI_JSON_STRING))
            return refuse(v, pattern, RV_E_CONFIG, "a regular expression is expected");
        v->st = rvi_rx_parse(&v->rxs, pattern->as.string.data, pattern->as.string.len, false, &rx,
                             v->err);
        locate(v, pattern);
        if (v->st) return NULL;
        string = rvi_rx_and(&v->rxs, string, rx);
    }
    if (rvi_json_is(format, RVI_JSON_STRING)) {
        v->st = rvi_rx_format(&v->rxs, format->as.string.data, &v->formats, &rx, v->err);
        locate(v, format);
        if (v->st) return NULL;
        string = rvi_rx_and(&v->rxs, string, rx);
    }
    if (string == RVI_RX_ALL) return f;
    rvi_form *only = rvi_values_alloc(v, 1, sizeof *only);
    const rvi_form *any = rvi_form_any(v);
    if (!only || !any) return NULL;
    *only = *any;
    only->string = string;
    return rvi_form_and(v, f, only);
}

/* ---- objects ---- */

static bool object_expected(rvi_values *v, const rvi_json *json)
{
    if (json && !rvi_json_is(json, RVI_JSON_OBJECT))
        refuse(v, json, RV_E_CONFIG, "an object is expected");
    return !v->st;
}

static const rvi_member *named_members(rvi_values *v, const rvi_json *properties, size_t *n)
{
    const entry *members = sorted_members(v, properties, n);
    rvi_member *list = rvi_values_alloc(v, *n, sizeof *list);
    for (size_t i = 0; list && i < *n; i++)
        list[i] = (rvi_member){members[i].name, rvi_node_schema(v, members[i].value)};
    return list;
}

static const rvi_key_rule *key_rules(rvi_values *v, const rvi_json *patterns, size_t *n)
{
    rvi_key_rule *list = rvi_values_alloc(v, rvi_json_count(patterns), sizeof *list);
    *n = rvi_json_count(patterns);
    for (size_t i = 0; list && i < *n && !v->st; i++) {
        const rvi_json *p = rvi_json_at(patterns, i);
        v->st = rvi_rx_parse(&v->rxs, p->key, p->key_len, false, &list[i].keys, v->err);
        locate(v, p);
        list[i].node = rvi_node_schema(v, p);
    }
    return list;
}

static bool set_members(rvi_values *v, const rvi_json *s, rvi_object *o)
{
    const rvi_json *properties = rvi_json_get(s, "properties"),
                   *patterns = rvi_json_get(s, "patternProperties"),
                   *others = rvi_json_get(s, "additionalProperties");
    if (!properties && !patterns && !others) return true;
    if (!object_expected(v, properties) || !object_expected(v, patterns)) return false;
    rvi_members *m = rvi_values_alloc(v, 1, sizeof *m);
    const rvi_members **list = rvi_values_alloc(v, 1, sizeof *list);
    if (v->st) return false;
    m->named = named_members(v, properties, &m->n_named);
    m->patterns = key_rules(v, patterns, &m->n_patterns);
    m->others = others ? rvi_node_schema(v, others) : RVI_ANY;
    m->has_others = others != NULL;
    list[0] = m;
    o->members = list;
    o->n_members = 1;
    return !v->st;
}

static bool set_required(rvi_values *v, const rvi_json *list, rvi_object *o)
{
    if (!list || rvi_json_is(list, RVI_JSON_BOOL)) return true; /* draft 3: of the member itself */
    if (!rvi_json_is(list, RVI_JSON_ARRAY))
        return refuse(v, list, RV_E_CONFIG, "a list of names is expected"), false;
    rvi_text *names = rvi_values_alloc(v, rvi_json_count(list), sizeof *names);
    if (!names) return false;
    for (size_t i = 0; i < rvi_json_count(list); i++) {
        const rvi_json *name = rvi_json_at(list, i);
        bool again = false;
        if (!rvi_json_is(name, RVI_JSON_STRING))
            return refuse(v, name, RV_E_CONFIG, "a name is expected"), false;
        names[o->n_required] = text_of(name);
        for (size_t k = 0; k < o->n_required && o->n_required < 64; k++)
            again = again || !rvi_text_compare(&names[k], &names[o->n_required]);
        if (!again) o->n_required++;
    }
    o->required = names;
    return true;
}

/* dependentRequired, and the lists in dependencies */
static bool set_dependencies(rvi_values *v, const rvi_json *rules, rvi_object *o)
{
    size_t n = 0, k = o->n_dependencies;
    if (!rules) return true;
    if (!object_expected(v, rules)) return false;
    for (size_t i = 0; i < rvi_json_count(rules); i++)
        n += RVI_MAX(rvi_json_count(rvi_json_at(rules, i)), (size_t)1);
    rvi_dependency *list = rvi_values_alloc(v, k + n, sizeof *list);
    if (!list) return false;
    if (k) memcpy(list, o->dependencies, k * sizeof *list);
    for (size_t i = 0; i < rvi_json_count(rules); i++) {
        const rvi_json *rule = rvi_json_at(rules, i);
        if (rvi_json_is(rule, RVI_JSON_STRING)) /* draft 3 */
            list[k++] = (rvi_dependency){key_of(rule), text_of(rule)};
        if (!rvi_json_is(rule, RVI_JSON_ARRAY)) continue;
        for (size_t j = 0; j < rvi_json_count(rule); j++) {
            if (!rvi_json_is(rvi_json_at(rule, j), RVI_JSON_STRING))
                return refuse(v, rule, RV_E_CONFIG, "a list of names is expected"), false;
            list[k++] = (rvi_dependency){key_of(rule), text_of(rvi_json_at(rule, j))};
        }
    }
    o->dependencies = list;
    o->n_dependencies = k;
    return true;
}

static const rvi_form *object_form(rvi_values *v, const rvi_json *s, const rvi_form *f)
{
    rvi_object o = rvi_object_any();
    const rvi_json *names = since(v, s, 6, "propertyNames");
    o.min = count_of(v, rvi_json_get(s, "minProperties"), 0);
    o.max = count_of(v, rvi_json_get(s, "maxProperties"), RVI_NO_LIMIT);
    if (v->st || !set_members(v, s, &o) || !set_required(v, rvi_json_get(s, "required"), &o) ||
        !set_dependencies(v, rvi_json_get(s, "dependentRequired"), &o) ||
        !set_dependencies(v, rvi_json_get(s, "dependencies"), &o))
        return NULL;
    if (names) {
        const rvi_form *key = rvi_values_form(v, rvi_node_schema(v, names));
        if (!key) return NULL;
        o.keys = key->string;
    }
    if (!o.n_members && !o.n_required && !o.n_dependencies && !o.min && o.max == RVI_NO_LIMIT &&
        o.keys == RVI_RX_ALL)
        return f;
    return rvi_form_and(v, f, rvi_form_object(v, &o));
}

/* ---- arrays ---- */

static bool set_items(rvi_values *v, const rvi_json *s, rvi_array *a)
{
    const rvi_json *prefix = rvi_json_get(s, "prefixItems"), *rest = rvi_json_get(s, "items");
    if (!prefix && rvi_json_is(rest, RVI_JSON_ARRAY)) { /* drafts before 2020-12 */
        prefix = rest;
        rest = rvi_json_get(s, "additionalItems");
    }
    if (!prefix && !rest) return true;
    if (prefix && !rvi_json_is(prefix, RVI_JSON_ARRAY))
        return refuse(v, prefix, RV_E_CONFIG, "a list of schemas is expected"), false;
    rvi_items *items = rvi_values_alloc(v, 1, sizeof *items);
    const rvi_items **list = rvi_values_alloc(v, 1, sizeof *list);
    rvi_node *nodes = rvi_values_alloc(v, rvi_json_count(prefix), sizeof *nodes);
    if (v->st) return false;
    for (size_t i = 0; i < rvi_json_count(prefix); i++)
        nodes[i] = rvi_node_schema(v, rvi_json_at(prefix, i));
    *items = (rvi_items){.prefix = nodes, .n_prefix = rvi_json_count(prefix)};
    items->rest = rest ? rvi_node_schema(v, rest) : RVI_ANY;
    items->has_rest = rest != NULL;
    list[0] = items;
    a->items = list;
    a->n_items = 1;
    return !v->st;
}

static const rvi_form *array_form(rvi_values *v, const rvi_json *s, const rvi_form *f)
{
    rvi_array a = rvi_array_any();
    const rvi_json *contains = since(v, s, 6, "contains"), *unique = rvi_json_get(s, "uniqueItems");
    a.min = count_of(v, rvi_json_get(s, "minItems"), 0);
    a.max = count_of(v, rvi_json_get(s, "maxItems"), RVI_NO_LIMIT);
    if (v->st || !set_items(v, s, &a)) return NULL;
    if (contains) {
        rvi_contains *c = rvi_values_alloc(v, 1, sizeof *c);
        if (!c) return NULL;
        c->node = rvi_node_schema(v, contains);
        c->min = count_of(v, rvi_json_get(s, "minContains"), 1);
        c->max = count_of(v, rvi_json_get(s, "maxContains"), RVI_NO_LIMIT);
        c->silent = v->draft < 2020; /* there it evaluates nothing */
        if (c->min > 200 || (c->max > 200 && c->max != RVI_NO_LIMIT))
            return refuse(v, contains, RV_E_UNSUPPORTED, "counting more than 200 items");
        a.contains = c;
        a.n_contains = 1;
    }
    a.unique = rvi_json_bool(unique, false) && a.max > 1 && f->n_arrays;
    if (a.unique && (!a.n_items || a.items[0]->n_prefix || a.items[0]->rest <= RVI_NEVER))
        return refuse(v, unique, RV_E_UNSUPPORTED, "uniqueItems cannot be enforced but of strings");
    if (!a.n_items && !a.n_contains && !a.min && a.max == RVI_NO_LIMIT) return f;
    return rvi_form_and(v, f, rvi_form_array(v, &a));
}

/* ---- combinations ---- */

static const rvi_form *schema_at(rvi_values *v, const rvi_json *schema)
{
    return rvi_values_form(v, rvi_node_schema(v, schema));
}

static const rvi_form *all_of(rvi_values *v, const rvi_json *list, const rvi_form *f)
{
    for (size_t i = 0; i < rvi_json_count(list) && f; i++)
        f = rvi_form_and(v, f, schema_at(v, rvi_json_at(list, i)));
    return f;
}

/* Where it matters which members were evaluated, every set of branches that hold together is an
 * alternative. */
static const rvi_form *any_of_exact(rvi_values *v, const rvi_json *list)
{
    enum { MOST = 5 };
    size_t n = rvi_json_count(list);
    const rvi_form *sum = rvi_form_never(v);
    if (n > MOST)
        return refuse(v, list, RV_E_UNSUPPORTED, "more than 5 branches beside \"unevaluated...\"");
    for (unsigned set = 1; set < 1u << n && sum; set++) {
        const rvi_form *f = rvi_form_any(v);
        for (size_t i = 0; i < n && f; i++)
            if (set >> i & 1) f = rvi_form_and(v, f, schema_at(v, rvi_json_at(list, i)));
        sum = rvi_form_or(v, sum, f);
    }
    return sum;
}

static const rvi_form *any_of(rvi_values *v, const rvi_json *list)
{
    const rvi_form *titled = rvi_titled_form(v, list, false);
    if (titled || v->st) return titled;
    if (v->exact) return any_of_exact(v, list);
    const rvi_form *sum = rvi_form_never(v);
    for (size_t i = 0; i < rvi_json_count(list) && sum; i++)
        sum = rvi_form_or(v, sum, schema_at(v, rvi_json_at(list, i)));
    return sum;
}

/* Each branch without all others; what is disjoint anyway stays as it is. base: what holds beside
 * oneOf, to see more branches as disjoint. */
static const rvi_form *one_of(rvi_values *v, const rvi_json *list, const rvi_form *base)
{
    size_t n = rvi_json_count(list);
    const rvi_form *titled = rvi_titled_form(v, list, true);
    if (titled || v->st) return titled;
    const rvi_form *sum = rvi_form_never(v);
    const rvi_form **branch = rvi_values_alloc(v, n, sizeof *branch);
    if (v->st) return NULL;
    for (size_t i = 0; i < n; i++)
        branch[i] = rvi_form_and(v, base, schema_at(v, rvi_json_at(list, i)));
    for (size_t i = 0; i < n && !v->st; i++) {
        const rvi_form *f = branch[i];
        for (size_t k = 0; k < n && f; k++) {
            if (k == i) continue;
            const rvi_form *both = rvi_form_and(v, branch[i], branch[k]);
            if (!both || rvi_form_empty(v, both)) continue;
            f = rvi_form_and(v, f, rvi_form_not(v, schema_at(v, rvi_json_at(list, k))));
        }
        sum = rvi_form_or(v, sum, f);
    }
    return v->st ? NULL : sum;
}

static const rvi_form *if_then_else(rvi_values *v, const rvi_json *s, const rvi_form *f)
{
    const rvi_json *cond = rvi_json_get(s, "if"), *then = rvi_json_get(s, "then"),
                   *other = rvi_json_get(s, "else");
    if (!cond || (!then && !other && !v->exact)) return f;
    const rvi_form *c = schema_at(v, cond), *yes = c, *no = rvi_form_not(v, c);
    if (then) yes = rvi_form_and(v, yes, schema_at(v, then));
    if (other) no = rvi_form_and(v, no, schema_at(v, other));
    return rvi_form_and(v, f, rvi_form_or(v, yes, no));
}

/* Either the member is not there, or the schema holds. */
static const rvi_form *dependent(rvi_values *v, const rvi_json *rules, const rvi_form *f)
{
    for (size_t i = 0; i < rvi_json_count(rules) && f; i++) {
        const rvi_json *rule = rvi_json_at(rules, i);
        if (!rvi_json_is(rule, RVI_JSON_OBJECT) && !rvi_json_is(rule, RVI_JSON_BOOL)) continue;
        rvi_object there = rvi_object_any();
        rvi_text *name = rvi_values_alloc(v, 1, sizeof *name);
        if (!name) return NULL;
        *name = key_of(rule);
        there.required = name;
        there.n_required = 1;
        const rvi_form *present = rvi_form_object(v, &there), *with;
        const rvi_form *absent = rvi_form_not(v, present);
        if (!absent) return NULL;
        rvi_form *free_rest = rvi_values_alloc(v, 1, sizeof *free_rest),
                 *only = rvi_values_alloc(v, 1, sizeof *only);
        const rvi_form *any = rvi_form_any(v);
        if (v->st) return NULL;
        *free_rest = *any; /* all but objects are free */
        free_rest->objects = absent->objects;
        free_rest->n_objects = absent->n_objects;
        *only = (rvi_form){.objects = present->objects, .n_objects = present->n_objects};
        with = rvi_form_and(v, only, schema_at(v, rule));
        f = rvi_form_and(v, f, rvi_form_or(v, free_rest, with));
    }
    return f;
}

/* ---- a schema ---- */

static bool check_list(rvi_values *v, const rvi_json *list)
{
    if (list && (!rvi_json_is(list, RVI_JSON_ARRAY) || !rvi_json_count(list)))
        refuse(v, list, RV_E_CONFIG, "a list of schemas is expected");
    return !v->st;
}

static const rvi_form *follow_reference(rvi_values *v, const rvi_json *s, const rvi_json *ref,
                                        bool dynamic, const rvi_form *f)
{
    bool depends = false;
    /* an $id beside a $ref counts from 2019-09 on, and schemas that do not say their draft may be
     * older */
    bool counts = v->draft >= 2019 && rvi_json_get(v->root, "$schema");
    if (!counts && v->nested_ids && s != v->root && rvi_json_get(s, "$id"))
        return refuse(v, ref, RV_E_UNSUPPORTED, "a reference beside an $id cannot be enforced");
    rvi_refs refs = {v->root, &v->rxs, &v->index, v->nested_ids};
    const rvi_json *target =
        dynamic ? rvi_ref_find_dynamic(&refs, ref, &depends) : rvi_ref_find(&refs, ref);
    if (v->rxs.status) return refuse(v, ref, v->rxs.status, v->rxs.why);
    if (!target) return refuse(v, ref, RV_E_UNSUPPORTED, "the reference leads out of the schema");
    if (depends)
        return refuse(v, ref, RV_E_UNSUPPORTED,
                      "a dynamic reference whose target depends on the way to it cannot be "
                      "enforced");
    return rvi_form_and(v, f, schema_at(v, target));
}

static const rvi_form *reference(rvi_values *v, const rvi_json *s, const rvi_form *f)
{
    const rvi_json *ref = rvi_json_get(s, "$ref"), *dynamic = rvi_json_get(s, "$dynamicRef"),
                   *recursive = rvi_json_get(s, "$recursiveRef");
    if (rvi_json_is(ref, RVI_JSON_STRING)) f = follow_reference(v, s, ref, false, f);
    if (f && dynamic) {
        if (v->draft != 2020 || !rvi_json_is(dynamic, RVI_JSON_STRING))
            return refuse(v, dynamic, RV_E_UNSUPPORTED, "dynamic references cannot be enforced");
        f = follow_reference(v, s, dynamic, true, f);
    }
    if (f && recursive) {
        /* inside one resource it is a reference like any other */
        if (v->nested_ids || v->draft != 2019 || !rvi_json_is(recursive, RVI_JSON_STRING))
            return refuse(v, recursive, RV_E_UNSUPPORTED, "dynamic references cannot be enforced");
        f = follow_reference(v, s, recursive, false, f);
    }
    return f;
}

const rvi_form *rvi_schema_form(rvi_values *v, const rvi_json *s)
{
    if (rvi_json_is(s, RVI_JSON_BOOL)) return s->as.boolean ? rvi_form_any(v) : rvi_form_never(v);
    if (!rvi_json_is(s, RVI_JSON_OBJECT))
        return refuse(v, s, RV_E_CONFIG, "a schema is an object or a boolean");
    if (v->draft <= 7 && rvi_json_is(rvi_json_get(s, "$ref"), RVI_JSON_STRING))
        return reference(v, s, rvi_form_any(v)); /* its siblings do not count */
    const rvi_json *type = rvi_json_get(s, "type"), *choices = rvi_json_get(s, "enum"),
                   *constant = since(v, s, 6, "const"), *all = rvi_json_get(s, "allOf"),
                   *any = rvi_json_get(s, "anyOf"), *one = rvi_json_get(s, "oneOf"),
                   *negated = rvi_json_get(s, "not");
    if (!check_list(v, all) || !check_list(v, any) || !check_list(v, one)) return NULL;
    const rvi_form *f = type ? type_form(v, type) : rvi_form_any(v);
    if (f && choices) f = rvi_form_and(v, f, enum_form(v, choices));
    if (f && constant) f = rvi_form_and(v, f, rvi_const_form(v, constant));
    if (f) f = number_form(v, s, f);
    if (f) f = string_form(v, s, f);
    if (f) f = object_form(v, s, f);
    if (f) f = array_form(v, s, f);
    if (f) f = reference(v, s, f);
    if (f && all) f = all_of(v, all, f);
    if (f && any) f = rvi_form_and(v, f, any_of(v, any));
    if (f && one) f = rvi_form_and(v, f, one_of(v, one, v->exact ? rvi_form_any(v) : f));
    if (f && negated) f = rvi_form_and(v, f, rvi_form_not(v, schema_at(v, negated)));
    if (f && v->draft >= 7) f = if_then_else(v, s, f);
    if (f) f = dependent(v, rvi_json_get(s, "dependentSchemas"), f);
    if (f) f = dependent(v, rvi_json_get(s, "dependencies"), f);
    return f ? rvi_unevaluated_form(v, s, f) : NULL;
}

static void survey(rvi_values *v, const rvi_json *s, bool inside)
{
    for (size_t i = 0; i < rvi_json_count(s); i++) {
        const rvi_json *item = rvi_json_at(s, i);
        if (item->key &&
            (!strcmp(item->key, "unevaluatedProperties") || !strcmp(item->key, "unevaluatedItems")))
            v->exact = true;
        if (inside && item->key && !strcmp(item->key, "$id") && rvi_json_is(item, RVI_JSON_STRING))
            v->nested_ids = true;
        survey(v, item, true);
    }
}

static int draft_of(const char *uri)
{
    static const struct {
        const char *name;
        int draft;
    } drafts[] = {
        {"draft-03", 3}, {"draft-04", 4}, {"draft-06", 6}, {"draft-07", 7}, {"2019-09", 2019}};
    for (size_t i = 0; i < RVI_COUNT(drafts); i++)
        if (strstr(uri, drafts[i].name)) return drafts[i].draft;
    return 2020;
}

void rvi_schema_survey(rvi_values *v, const rvi_json *schema)
{
    v->root = schema;
    v->draft = draft_of(rvi_json_string(rvi_json_get(schema, "$schema"), ""));
    v->integer = v->draft <= 4 ? rvi_rx_digits(&v->rxs) : v->whole;
    survey(v, schema, false);
}
