/* plan.c - what the walk through a text needs of an object's or an array's conditions. */
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "grammar/values.h"

static void gather(rvi_text *out, uint32_t *n, rvi_text name)
{
    out[(*n)++] = name;
}

/* Every name that a condition mentions, sorted, once. */
static bool gather_names(rvi_values *v, rvi_object_plan *p)
{
    const rvi_object *o = p->shape;
    size_t most = o->n_required + 2 * o->n_dependencies;
    uint32_t n = 0, k = 0;
    for (size_t i = 0; i < o->n_members; i++) most += o->members[i]->n_named;
    rvi_text *names = rvi_alloc_array(most + 1, sizeof *names);
    if (!names) return v->st = rvi_nomem(v->err, "grammar"), false;
    for (size_t i = 0; i < o->n_members; i++)
        for (size_t j = 0; j < o->members[i]->n_named; j++)
            gather(names, &n, o->members[i]->named[j].name);
    for (size_t i = 0; i < o->n_required; i++) gather(names, &n, o->required[i]);
    for (size_t i = 0; i < o->n_dependencies; i++) {
        gather(names, &n, o->dependencies[i].if_present);
        gather(names, &n, o->dependencies[i].needed);
    }
    qsort(names, n, sizeof *names, rvi_text_compare);
    for (uint32_t i = 0; i < n; i++)
        if (!k || rvi_text_compare(&names[i], &names[k - 1])) names[k++] = names[i];
    p->n_named = k;
    p->named = rvi_values_alloc(v, k, sizeof *p->named);
    for (uint32_t i = 0; p->named && i < k; i++) p->named[i].name = names[i];
    rvi_free(names);
    return p->named != NULL;
}

static uint32_t index_of(const rvi_object_plan *p, rvi_text name)
{
    const rvi_member key = {.name = name},
                     *at = bsearch(&key, p->named, p->n_named, sizeof key, rvi_text_compare);
    return (uint32_t)(at - p->named);
}

static bool gather_patterns(rvi_values *v, rvi_object_plan *p)
{
    const rvi_object *o = p->shape;
    rvi_rx list[RVI_MAX_PATTERNS];
    uint32_t n = 0;
    for (size_t i = 0; i < o->n_members; i++)
        for (size_t j = 0; j < o->members[i]->n_patterns; j++) {
            rvi_rx keys = o->members[i]->patterns[j].keys;
            uint32_t k = 0;
            while (k < n && list[k] != keys) k++;
            if (k == RVI_MAX_PATTERNS) goto too_many;
            list[k] = keys;
            n = RVI_MAX(n, k + 1);
        }
    if (o->n_some > RVI_MAX_SOME || n + o->n_some > RVI_MAX_PATTERNS) goto too_many;
    for (size_t i = 0; i < o->n_some; i++) list[n++] = o->some[i].keys;
    p->n_patterns = n;
    if (!(p->patterns = rvi_values_alloc(v, n, sizeof *p->patterns))) return false;
    memcpy(p->patterns, list, n * sizeof *list);
    return true;
too_many:
    v->st = rvi_error(v->err, RV_E_UNSUPPORTED,
                      "the schema combines more than %d patterns for the members of an object",
                      RVI_MAX_PATTERNS);
    return false;
}

rvi_object_plan *rvi_object_plan_get(rvi_values *v, rvi_object *o)
{
    if (o->plan || v->st) return o->plan;
    rvi_object_plan *p = rvi_values_alloc(v, 1, sizeof *p);
    if (!p) return NULL;
    p->shape = o;
    if (!gather_names(v, p) || !gather_patterns(v, p)) return NULL;
    p->n_words = (p->n_named + 63) / 64;
    p->required = rvi_values_alloc(v, p->n_words, sizeof *p->required);
    p->possible = rvi_values_alloc(v, p->n_words, sizeof *p->possible);
    p->needs = rvi_values_alloc(v, p->n_named, sizeof *p->needs);
    p->some_of = rvi_values_alloc(v, p->n_named, sizeof *p->some_of);
    if (v->st) return NULL;
    for (uint32_t i = 0; i < p->n_named && rvi_rxs_spend(&v->rxs, 4 * o->n_members); i++) {
        rvi_text name = p->named[i].name;
        for (size_t k = 0; k < o->n_members; k++)
            p->named[i].node =
                rvi_node_and(v, p->named[i].node, rvi_members_node(v, o->members[k], name));
        for (size_t s = 0; s < o->n_some; s++)
            if (rvi_rx_matches(&v->rxs, o->some[s].keys, name.data, name.len))
                p->some_of[i] |= 1u << s;
    }
    for (size_t i = 0; i < o->n_required; i++) {
        uint32_t k = index_of(p, o->required[i]);
        p->required[k / 64] |= 1ull << (k % 64);
    }
    for (size_t i = 0; i < o->n_dependencies; i++) {
        uint32_t from = index_of(p, o->dependencies[i].if_present),
                 to = index_of(p, o->dependencies[i].needed);
        if (!p->needs[from]) p->needs[from] = rvi_values_alloc(v, p->n_words, sizeof **p->needs);
        if (!p->needs[from]) return NULL;
        p->needs[from][to / 64] |= 1ull << (to % 64);
        p->has_needs = true;
    }
    uint64_t n_required = 0;
    for (uint32_t i = 0; i < p->n_named; i++) n_required += p->required[i / 64] >> (i % 64) & 1;
    p->tell_apart = o->n_some || o->max != RVI_NO_LIMIT || o->min > n_required;
    return v->st ? NULL : (o->plan = p);
}

rvi_node rvi_plan_other(rvi_values *v, rvi_object_plan *p, uint32_t bits)
{
    const rvi_object *o = p->shape;
    uint32_t n_own = p->n_patterns - (uint32_t)o->n_some;
    rvi_node node = RVI_ANY;
    bits &= (1u << n_own) - 1;
    for (uint32_t i = 0; i < p->n_other; i++)
        if (p->other[i].bits == bits) return p->other[i].node;
    for (size_t i = 0; i < o->n_members; i++) {
        const rvi_members *m = o->members[i];
        bool matched = false;
        for (size_t j = 0; j < m->n_patterns; j++)
            for (uint32_t k = 0; k < n_own; k++)
                if (p->patterns[k] == m->patterns[j].keys && (bits >> k & 1)) {
                    node = rvi_node_and(v, node, m->patterns[j].node);
                    matched = true;
                }
        if (!matched) node = rvi_node_and(v, node, m->others);
    }
    if (p->n_other == p->cap_other) {
        uint32_t cap = p->cap_other ? p->cap_other * 2 : 4;
        struct rvi_other *more = rvi_values_alloc(v, cap, sizeof *more);
        if (!more) return RVI_NEVER;
        if (p->n_other) memcpy(more, p->other, p->n_other * sizeof *more);
        p->other = more;
        p->cap_other = cap;
    }
    p->other[p->n_other++] = (struct rvi_other){bits, node};
    return node;
}

/* Keys without a name whose value exists. With a few patterns every combination is looked at; with
 * more, each pattern by itself. */
static rvi_rx other_keys(rvi_values *v, rvi_object_plan *p)
{
    rvi_rxs *x = &v->rxs;
    uint32_t n_own = p->n_patterns - (uint32_t)p->shape->n_some;
    rvi_rx keys = RVI_RX_NONE;
    if (n_own > 4) {
        rvi_rx any = RVI_RX_NONE;
        keys = RVI_RX_ALL;
        for (uint32_t k = 0; k < n_own; k++) {
            any = rvi_rx_or(x, any, p->patterns[k]);
            if (!v->nodes[rvi_plan_other(v, p, 1u << k)].inhabited)
                keys = rvi_rx_and(x, keys, rvi_rx_not(x, p->patterns[k]));
        }
        if (!v->nodes[rvi_plan_other(v, p, 0)].inhabited) keys = rvi_rx_and(x, keys, any);
    } else {
        for (uint32_t bits = 0; bits < 1u << n_own; bits++) {
            if (!v->nodes[rvi_plan_other(v, p, bits)].inhabited) continue;
            rvi_rx these = RVI_RX_ALL;
            for (uint32_t k = 0; k < n_own; k++)
                these = rvi_rx_and(x, these,
                                   bits >> k & 1 ? p->patterns[k] : rvi_rx_not(x, p->patterns[k]));
            keys = rvi_rx_or(x, keys, these);
        }
        bool all = true;
        for (uint32_t bits = 0; bits < 1u << n_own; bits++)
            all = all && v->nodes[rvi_plan_other(v, p, bits)].inhabited;
        if (all) keys = RVI_RX_ALL;
    }
    return rvi_rx_and(x, keys, p->shape->keys);
}

/* A name that makes an impossible one needed is impossible too. */
static void drop_hopeless(rvi_rxs *x, rvi_object_plan *p)
{
    for (bool changed = p->has_needs; changed;) {
        changed = false;
        for (uint32_t i = 0; i < p->n_named && rvi_rxs_spend(x, 1 + p->n_words / 16); i++) {
            if (!p->needs[i] || !(p->possible[i / 64] >> (i % 64) & 1)) continue;
            for (uint32_t w = 0; w < p->n_words; w++)
                if (p->needs[i][w] & ~p->possible[w]) {
                    p->possible[i / 64] &= ~(1ull << (i % 64));
                    changed = true;
                    break;
                }
        }
    }
}

/* Whether a name leaves the ways of keys without one. */
static bool strays(rvi_rxs *x, rvi_rx others, rvi_text name)
{
    for (size_t i = 0; i < name.len && others != RVI_RX_NONE;) {
        uint32_t cp;
        i += rvi_utf8_decode(name.data + i, name.len - i, &cp, NULL);
        others = rvi_rx_next(x, others, cp);
    }
    return !rvi_rx_live(x, others);
}

bool rvi_object_plan_ready(rvi_values *v, rvi_object_plan *p)
{
    if (p->ready || v->st) return !v->st;
    rvi_rxs *x = &v->rxs;
    rvi_text *texts = rvi_alloc_array(p->n_named + 1, sizeof *texts);
    if (!texts) return v->st = rvi_nomem(v->err, "grammar"), false;
    for (uint32_t i = 0; i < p->n_named; i++) {
        rvi_text name = texts[i] = p->named[i].name;
        if (v->nodes[p->named[i].node].inhabited &&
            rvi_rx_matches(x, p->shape->keys, name.data, name.len))
            p->possible[i / 64] |= 1ull << (i % 64);
    }
    drop_hopeless(x, p);
    rvi_rx parts[RVI_MAX_PATTERNS + 2];
    parts[1] = rvi_rx_names(x, &v->arena, texts, p->n_named, &p->names);
    rvi_free(texts);
    p->others = other_keys(v, p);
    bool all = p->others == RVI_RX_ALL; /* of which every name leaves some that go on */
    if (p->n_named) p->others = rvi_rx_and(x, p->others, rvi_rx_not(x, parts[1]));
    if (!rvi_rx_live(x, p->others)) p->others = RVI_RX_NONE;
    for (uint32_t i = 0; !all && i < p->n_named && !p->names_stray; i++)
        p->names_stray = strays(x, p->others, p->named[i].name);
    parts[0] = p->others;
    for (uint32_t i = 0; i < p->n_patterns; i++)
        parts[2 + i] = p->others == RVI_RX_NONE ? RVI_RX_NONE : p->patterns[i];
    p->key_start = rvi_rx_tuple(x, parts, 2 + p->n_patterns);
    if (!v->st) v->st = rvi_rxs_check(x, NULL, v->err);
    p->ready = !v->st;
    return p->ready;
}

/* ---- arrays ---- */

/* Items that differ are enforced of strings: there are enough of them, and all by one rule. */
static bool check_unique(rvi_values *v, const rvi_array_plan *p)
{
    const rvi_form *f = rvi_values_form(v, p->nodes[0]);
    if (!f || v->st) return false;
    bool strings = !f->words && f->number == RVI_RX_NONE && !f->n_arrays && !f->n_objects;
    bool many = p->shape->min <= 1 || rvi_rx_slack(&v->rxs, f->string) == RVI_RX_FOREVER;
    if (strings && many && p->n_nodes == 1 && !p->shape->n_contains) return true;
    v->st = rvi_error(v->err, RV_E_UNSUPPORTED,
                      strings && p->n_nodes == 1 && !p->shape->n_contains
                          ? "uniqueItems beside minItems cannot be enforced of few strings"
                          : "uniqueItems cannot be enforced but of strings");
    return false;
}

rvi_array_plan *rvi_array_plan_get(rvi_values *v, rvi_array *a)
{
    enum { MAX_PREFIX = 4096 };
    if (a->plan || v->st) return a->plan;
    rvi_array_plan *p = rvi_values_alloc(v, 1, sizeof *p);
    if (!p) return NULL;
    size_t most = 0, from = 0;
    for (size_t i = 0; i < a->n_items; i++) most = RVI_MAX(most, a->items[i]->n_prefix);
    for (size_t i = 0; i < a->n_contains; i++) from = RVI_MAX(from, a->contains[i].from);
    if (most > MAX_PREFIX || a->n_contains > RVI_MAX_CONTAINS) {
        v->st = rvi_error(v->err, RV_E_UNSUPPORTED,
                          "the schema describes more than %d items one by one, or combines more "
                          "than %d conditions on what an array contains",
                          MAX_PREFIX, RVI_MAX_CONTAINS);
        return NULL;
    }
    p->shape = a;
    p->n_nodes = (uint32_t)most + 1;
    p->max = a->max;
    if (!(p->nodes = rvi_values_alloc(v, p->n_nodes, sizeof *p->nodes))) return NULL;
    for (uint32_t i = 0; i < p->n_nodes; i++)
        for (size_t k = 0; k < a->n_items; k++)
            p->nodes[i] = rvi_node_and(v, p->nodes[i],
                                       i < a->items[k]->n_prefix ? a->items[k]->prefix[i]
                                                                 : a->items[k]->rest);
    p->count_to = RVI_MAX((uint32_t)RVI_MAX(most, from), a->min);
    if (a->max != RVI_NO_LIMIT) p->count_to = RVI_MAX(p->count_to, a->max);
    if (a->unique && !check_unique(v, p)) return NULL;
    return v->st ? NULL : (a->plan = p);
}

rvi_node rvi_plan_item(const rvi_array_plan *p, uint32_t index)
{
    return p->nodes[RVI_MIN(index, p->n_nodes - 1)];
}
