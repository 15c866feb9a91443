/* unevaluated.c - unevaluatedProperties and unevaluatedItems: what no other condition of an
 * alternative has seen. */
#include <stdlib.h>
#include <string.h>

#include "grammar/values.h"

static rvi_object *close_object(rvi_values *v, const rvi_object *o, rvi_node rest)
{
    size_t n_named = 0, n_patterns = 0, k = 0;
    rvi_object *out = rvi_values_alloc(v, 1, sizeof *out);
    if (!out) return NULL;
    *out = *o;
    out->plan = NULL;
    for (size_t i = 0; i < o->n_members; i++) {
        if (o->members[i]->silent) continue;
        if (o->members[i]->has_others) return out;
        n_named += o->members[i]->n_named;
        n_patterns += o->members[i]->n_patterns;
    }
    rvi_members *m = rvi_values_alloc(v, 1, sizeof *m);
    rvi_member *named = rvi_values_alloc(v, n_named, sizeof *named);
    rvi_key_rule *patterns = rvi_values_alloc(v, n_patterns, sizeof *patterns);
    const rvi_members **list = rvi_values_alloc(v, o->n_members + 1, sizeof *list);
    if (v->st) return NULL;
    n_named = n_patterns = 0;
    for (size_t i = 0; i < o->n_members; i++) {
        const rvi_members *from = list[i] = o->members[i];
        for (size_t j = 0; !from->silent && j < from->n_named; j++)
            named[n_named++] = (rvi_member){from->named[j].name, RVI_ANY};
        for (size_t j = 0; !from->silent && j < from->n_patterns; j++)
            patterns[n_patterns++] = (rvi_key_rule){from->patterns[j].keys, RVI_ANY};
    }
    qsort(named, n_named, sizeof *named, rvi_text_compare);
    for (size_t i = 0; i < n_named; i++)
        if (!k || rvi_text_compare(&named[i], &named[k - 1])) named[k++] = named[i];
    *m = (rvi_members){named, k, patterns, n_patterns, rest, true, false};
    list[o->n_members] = m;
    out->members = list;
    out->n_members++;
    return out;
}

static rvi_array *close_array(rvi_values *v, const rvi_array *a, rvi_node rest)
{
    size_t most = 0;
    rvi_array *out = rvi_values_alloc(v, 1, sizeof *out);
    if (!out) return NULL;
    *out = *a;
    out->plan = NULL;
    for (size_t i = 0; i < a->n_items; i++) {
        if (a->items[i]->silent) continue;
        if (a->items[i]->has_rest) return out;
        most = RVI_MAX(most, a->items[i]->n_prefix);
    }
    /* what contains matches was evaluated by it: only the others must be in the rest */
    for (size_t i = 0; i < a->n_contains; i++)
        if (!a->contains[i].silent)
            rest = rvi_node_not(
                v, rvi_node_and(v, rvi_node_not(v, rest), rvi_node_not(v, a->contains[i].node)));
    rvi_items *m = rvi_values_alloc(v, 1, sizeof *m);
    rvi_node *prefix = rvi_values_alloc(v, most, sizeof *prefix);
    const rvi_items **list = rvi_values_alloc(v, a->n_items + 1, sizeof *list);
    if (v->st) return NULL;
    if (a->n_items) memcpy(list, a->items, a->n_items * sizeof *list);
    *m = (rvi_items){.prefix = prefix, .n_prefix = most, .rest = rest, .has_rest = true};
    list[a->n_items] = m;
    out->items = list;
    out->n_items++;
    return out;
}

const rvi_form *rvi_unevaluated_form(rvi_values *v, const rvi_json *s, const rvi_form *f)
{
    const rvi_json *members = rvi_json_get(s, "unevaluatedProperties"),
                   *items = rvi_json_get(s, "unevaluatedItems");
    if ((!members && !items) || !f) return f;
    rvi_form *out = rvi_values_alloc(v, 1, sizeof *out);
    rvi_object **objects = rvi_values_alloc(v, f->n_objects, sizeof *objects);
    rvi_array **arrays = rvi_values_alloc(v, f->n_arrays, sizeof *arrays);
    if (v->st) return NULL;
    *out = *f;
    for (size_t i = 0; i < f->n_objects; i++)
        objects[i] =
            members ? close_object(v, f->objects[i], rvi_node_schema(v, members)) : f->objects[i];
    for (size_t i = 0; i < f->n_arrays; i++)
        arrays[i] = items ? close_array(v, f->arrays[i], rvi_node_schema(v, items)) : f->arrays[i];
    out->objects = objects;
    out->arrays = arrays;
    return v->st ? NULL : out;
}
