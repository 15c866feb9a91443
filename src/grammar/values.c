#include "grammar/values.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/decimal.h"

enum {
    MAX_NODES = 1 << 18,
    MAX_ARENA = 64 << 20,
    MAX_WORK = 40 << 20, /* at once: less than a second */
};

rv_status rvi_values_init(rvi_values *v, rv_error *err)
{
    *v = (rvi_values){.arena = {.max = MAX_ARENA}, .err = err};
    v->st = rvi_rxs_init(&v->rxs, MAX_WORK, err);
    if (v->st) return v->st;
    v->number = rvi_rx_number(&v->rxs);
    v->plain = rvi_rx_plain(&v->rxs);
    v->integer = v->whole = rvi_rx_integer(&v->rxs);
    v->n_nodes = 2;
    v->cap_nodes = 64;
    v->nodes = rvi_zalloc_array(v->cap_nodes, sizeof *v->nodes);
    v->table_mask = 127;
    v->table = rvi_zalloc_array(v->table_mask + 1, sizeof *v->table);
    if (!v->nodes || !v->table) return v->st = rvi_nomem(err, "grammar");
    v->nodes[RVI_ANY].inhabited = true;
    return v->st = rvi_rxs_check(&v->rxs, "grammar", err);
}

void rvi_values_deinit(rvi_values *v)
{
    rvi_rxs_deinit(&v->rxs);
    rvi_arena_deinit(&v->arena);
    rvi_ref_index_deinit(&v->index);
    rvi_free(v->nodes);
    rvi_free(v->table);
    *v = (rvi_values){0};
}

/* ---- nodes ---- */

static uint32_t hash_node(const rvi_node_info *n)
{
    uint64_t h = (uint64_t)n->kind * 0x9E3779B97F4A7C15u ^ (uint64_t)(uintptr_t)n->json;
    for (uint32_t i = 0; i < n->n_list; i++) h = (h ^ n->list[i]) * 0xD6E8FEB86659FD93u;
    h = (h ^ h >> 32) * 0xD6E8FEB86659FD93u;
    return (uint32_t)(h >> 32);
}

static bool same_node(const rvi_node_info *a, const rvi_node_info *b)
{
    return a->kind == b->kind && a->json == b->json && a->n_list == b->n_list &&
           !memcmp(a->list ? a->list : (const rvi_node[]){0},
                   b->list ? b->list : (const rvi_node[]){0}, a->n_list * sizeof *a->list);
}

static bool make_room(rvi_values *v)
{
    if (v->n_nodes == v->cap_nodes) {
        if (v->n_nodes >= MAX_NODES) {
            v->st = rvi_error(v->err, RV_E_UNSUPPORTED, "the schema needs more than %d value sets",
                              MAX_NODES);
            return false;
        }
        void *more = rvi_realloc_array(v->nodes, v->cap_nodes * 2, sizeof *v->nodes);
        if (!more) return v->st = rvi_nomem(v->err, "grammar"), false;
        v->nodes = more;
        v->cap_nodes *= 2;
    }
    if (v->n_nodes * 2 <= v->table_mask) return true;
    uint32_t mask = v->table_mask * 2 + 1, *table = rvi_zalloc_array(mask + 1, sizeof *table);
    if (!table) return v->st = rvi_nomem(v->err, "grammar"), false;
    rvi_free(v->table);
    v->table = table;
    v->table_mask = mask;
    for (uint32_t i = 2; i < v->n_nodes; i++) {
        uint32_t at = hash_node(&v->nodes[i]) & mask;
        while (table[at]) at = (at + 1) & mask;
        table[at] = i + 1;
    }
    return true;
}

static rvi_node intern(rvi_values *v, rvi_node_info n)
{
    if (v->st || !make_room(v)) return RVI_NEVER;
    uint32_t at = hash_node(&n) & v->table_mask;
    for (; v->table[at]; at = (at + 1) & v->table_mask)
        if (same_node(&v->nodes[v->table[at] - 1], &n)) return v->table[at] - 1;
    if (n.n_list) {
        rvi_node *list = rvi_values_alloc(v, n.n_list, sizeof *list);
        if (!list) return RVI_NEVER;
        memcpy(list, n.list, n.n_list * sizeof *list);
        n.list = list;
    }
    v->nodes[v->n_nodes] = n;
    v->table[at] = v->n_nodes + 1;
    return v->n_nodes++;
}

rvi_node rvi_node_schema(rvi_values *v, const rvi_json *schema)
{
    if (rvi_json_is(schema, RVI_JSON_BOOL)) return schema->as.boolean ? RVI_ANY : RVI_NEVER;
    if (rvi_json_is(schema, RVI_JSON_OBJECT) && !rvi_json_count(schema)) return RVI_ANY;
    return intern(v, (rvi_node_info){.kind = RVI_NODE_SCHEMA, .json = schema});
}

rvi_node rvi_node_const(rvi_values *v, const rvi_json *value)
{
    return intern(v, (rvi_node_info){.kind = RVI_NODE_CONST, .json = value});
}

rvi_node rvi_node_not(rvi_values *v, rvi_node a)
{
    if (a <= RVI_NEVER) return a == RVI_ANY ? RVI_NEVER : RVI_ANY;
    if (v->nodes[a].kind == RVI_NODE_NOT) return v->nodes[a].list[0];
    return intern(v, (rvi_node_info){.kind = RVI_NODE_NOT, .list = &a, .n_list = 1});
}

static int by_number(const void *a, const void *b)
{
    rvi_node x = *(const rvi_node *)a, y = *(const rvi_node *)b;
    return x < y ? -1 : x > y;
}

rvi_node rvi_node_and(rvi_values *v, rvi_node a, rvi_node b)
{
    enum { MOST = 512 };
    rvi_node list[MOST], both[2] = {a, b};
    uint32_t n = 0, k = 0;
    if (v->st || a == RVI_NEVER || b == RVI_NEVER) return RVI_NEVER;
    if (a == RVI_ANY || a == b) return b;
    if (b == RVI_ANY) return a;
    for (int i = 0; i < 2; i++) {
        const rvi_node_info *x = &v->nodes[both[i]];
        bool many = x->kind == RVI_NODE_AND;
        const rvi_node *from = many ? x->list : &both[i];
        for (uint32_t j = 0; j < (many ? x->n_list : 1); j++) {
            if (n == MOST) {
                v->st = rvi_error(v->err, RV_E_UNSUPPORTED,
                                  "the schema combines more than %d conditions on one value", MOST);
                return RVI_NEVER;
            }
            list[n++] = from[j];
        }
    }
    qsort(list, n, sizeof *list, by_number);
    for (uint32_t i = 0; i < n; i++)
        if (!k || list[i] != list[k - 1]) list[k++] = list[i];
    if (k == 1) return list[0];
    return intern(v, (rvi_node_info){.kind = RVI_NODE_AND, .list = list, .n_list = k});
}

static const rvi_form *make_form(rvi_values *v, rvi_node node)
{
    const rvi_node_info n = v->nodes[node];
    const rvi_form *f;
    switch (n.kind) {
    case RVI_NODE_SCHEMA: return rvi_schema_form(v, n.json);
    case RVI_NODE_CONST: return rvi_const_form(v, n.json);
    case RVI_NODE_NOT: return rvi_form_not(v, rvi_values_form(v, n.list[0]));
    case RVI_NODE_AND: break;
    }
    f = rvi_values_form(v, n.list[0]);
    for (uint32_t i = 1; i < n.n_list && f; i++)
        f = rvi_form_and(v, f, rvi_values_form(v, n.list[i]));
    return f;
}

/* An error that does not say where in the schema it is: in that of the node. */
static void locate(rvi_values *v, rvi_node node)
{
    const rvi_node_info *n = &v->nodes[node];
    char path[256], text[sizeof v->err->text];
    if (!v->st || v->st == RV_E_NOMEM || !v->err || v->err->text[0] == '#') return;
    while (n->n_list) n = &v->nodes[n->list[0]];
    if (n->kind != RVI_NODE_SCHEMA || !n->json) return;
    snprintf(text, sizeof text, "%s", v->err->text);
    v->st = rvi_error(v->err, v->st, "%s: %s", rvi_json_path(v->root, n->json, path), text);
}

const rvi_form *rvi_values_form(rvi_values *v, rvi_node node)
{
    if (v->st) return NULL;
    if (v->nodes[node].form) return v->nodes[node].form;
    if (v->nodes[node].making) {
        v->st = rvi_error(v->err, RV_E_UNSUPPORTED, "the schema refers to itself without end");
        return NULL;
    }
    v->nodes[node].making = true;
    const rvi_form *f = node == RVI_ANY     ? rvi_form_any(v)
                        : node == RVI_NEVER ? rvi_form_never(v)
                                            : make_form(v, node);
    v->nodes[node].making = false;
    if (!v->st) v->st = rvi_rxs_check(&v->rxs, NULL, v->err);
    locate(v, node);
    if (v->st) return NULL;
    return v->nodes[node].form = f;
}

/* ---- everything that can be reached ---- */

typedef struct queue {
    rvi_node *items;
    size_t n, cap, done;
} queue;

static void visit(rvi_values *v, queue *q, rvi_node n)
{
    if (v->st || v->nodes[n].queued) return;
    if (q->n == q->cap) {
        size_t cap = q->cap ? q->cap * 2 : 64;
        rvi_node *items = rvi_realloc_array(q->items, cap, sizeof *items);
        if (!items) {
            v->st = rvi_nomem(v->err, "grammar");
            return;
        }
        q->items = items;
        q->cap = cap;
    }
    v->nodes[n].queued = true;
    q->items[q->n++] = n;
}

static void visit_object(rvi_values *v, queue *q, rvi_object *o)
{
    enum { ALL_SUBSETS = 4 };
    rvi_object_plan *p = rvi_object_plan_get(v, o);
    for (uint32_t i = 0; p && i < p->n_named; i++) {
        visit(v, q, p->named[i].node);
        for (uint32_t s = 0; s < o->n_some; s++)
            if (p->some_of[i] >> s & 1)
                visit(v, q, rvi_node_and(v, p->named[i].node, o->some[s].node));
    }
    if (!p) return;
    uint32_t n_own = p->n_patterns - (uint32_t)o->n_some;
    uint32_t subsets = n_own <= ALL_SUBSETS ? 1u << n_own : n_own + 1;
    for (uint32_t k = 0; k < subsets && !v->st; k++) {
        uint32_t bits = n_own <= ALL_SUBSETS ? k : k ? 1u << (k - 1) : 0;
        rvi_node node = rvi_plan_other(v, p, bits);
        visit(v, q, node);
        for (uint32_t s = 0; s < o->n_some; s++)
            visit(v, q, rvi_node_and(v, node, o->some[s].node));
    }
}

static void visit_array(rvi_values *v, queue *q, rvi_array *a)
{
    rvi_array_plan *p = rvi_array_plan_get(v, a);
    for (uint32_t i = 0; p && i < p->n_nodes; i++) {
        visit(v, q, p->nodes[i]);
        for (size_t c = 0; c < a->n_contains; c++) {
            visit(v, q, rvi_node_and(v, p->nodes[i], a->contains[c].node));
            if (a->contains[c].max != RVI_NO_LIMIT)
                visit(v, q, rvi_node_and(v, p->nodes[i], rvi_node_not(v, a->contains[c].node)));
        }
    }
}

/* ---- which nodes have values ----
 *
 * The least solution: a node has one if it can be built of nodes that have one. */

static bool object_inhabited(rvi_values *v, const rvi_object *o)
{
    const rvi_object_plan *p = o->plan;
    uint64_t possible = 0, required = 0;
    if (o->min > o->max || !rvi_rxs_spend(&v->rxs, 2 + 2 * (uint64_t)p->n_named)) return false;
    for (uint32_t i = 0; i < p->n_named; i++) {
        bool can = v->nodes[p->named[i].node].inhabited &&
                   rvi_rx_matches(&v->rxs, o->keys, p->named[i].name.data, p->named[i].name.len);
        bool must = p->required[i / 64] >> (i % 64) & 1;
        if (must && !can) return false;
        possible += can;
        required += must;
    }
    if (required > o->max) return false;
    bool others = false;
    for (uint32_t i = 0; i < p->n_other; i++)
        others = others || v->nodes[p->other[i].node].inhabited;
    for (uint32_t s = 0; s < o->n_some; s++) {
        bool can = false;
        for (uint32_t i = 0; i < p->n_named && !can; i++)
            can = (p->some_of[i] >> s & 1) &&
                  v->nodes[rvi_node_and(v, p->named[i].node, o->some[s].node)].inhabited;
        for (uint32_t i = 0; i < p->n_other && !can; i++)
            can = v->nodes[rvi_node_and(v, p->other[i].node, o->some[s].node)].inhabited;
        if (!can) return false;
    }
    return others || possible >= o->min;
}

static void set_max(rvi_values *v, rvi_array_plan *p)
{
    uint32_t i = 0;
    while (i < p->n_nodes && v->nodes[p->nodes[i]].inhabited) i++;
    p->max = i < p->n_nodes ? RVI_MIN(p->shape->max, i) : p->shape->max;
}

static bool array_inhabited(rvi_values *v, const rvi_array *a)
{
    rvi_array_plan *p = a->plan;
    set_max(v, p);
    if (a->min > p->max || !rvi_rxs_spend(&v->rxs, 2 + p->n_nodes / 4)) return false;
    for (size_t c = 0; c < a->n_contains; c++) {
        bool can = !a->contains[c].min;
        if (a->contains[c].min > p->max || a->contains[c].min > a->contains[c].max) return false;
        for (uint32_t i = 0; i < p->n_nodes && !can; i++)
            can = v->nodes[rvi_node_and(v, p->nodes[i], a->contains[c].node)].inhabited;
        if (!can) return false;
    }
    return true;
}

static bool form_inhabited(rvi_values *v, const rvi_form *f)
{
    if (f->words || rvi_rx_live(&v->rxs, f->number) || rvi_rx_live(&v->rxs, f->string)) return true;
    for (size_t i = 0; i < f->n_arrays; i++)
        if (array_inhabited(v, f->arrays[i])) return true;
    for (size_t i = 0; i < f->n_objects; i++)
        if (object_inhabited(v, f->objects[i])) return true;
    return false;
}

static void find_inhabited(rvi_values *v, const queue *q)
{
    for (bool changed = true; changed && !v->st;) {
        changed = false;
        for (size_t i = q->n; i-- > 0 && !v->st;) {
            rvi_node n = q->items[i];
            if (v->nodes[n].inhabited) continue;
            rvi_rxs_spend(&v->rxs, 2);
            bool some = form_inhabited(v, v->nodes[n].form);
            if (!v->st) v->st = rvi_rxs_check(&v->rxs, NULL, v->err);
            locate(v, n);
            if (some && !v->st) v->nodes[n].inhabited = changed = true;
        }
    }
    for (size_t i = 0; i < q->n && !v->st; i++) {
        const rvi_form *f = v->nodes[q->items[i]].form;
        for (size_t k = 0; k < f->n_arrays; k++) set_max(v, f->arrays[k]->plan);
    }
}

/* What takes long is made now, and not while someone waits for a mask. */
static void ready_large(rvi_values *v, const rvi_form *f)
{
    enum { LARGE = 256 }; /* names of an object */
    for (size_t i = 0; i < f->n_objects && !v->st; i++)
        if (f->objects[i]->plan->n_named > LARGE)
            (void)!rvi_object_plan_ready(v, f->objects[i]->plan);
}

rv_status rvi_values_close(rvi_values *v, rvi_node root, rv_error *err)
{
    queue q = {0};
    v->err = err;
    visit(v, &q, root);
    while (q.done < q.n && !v->st) {
        rvi_node n = q.items[q.done++];
        const rvi_form *f = rvi_values_form(v, n);
        for (size_t i = 0; f && i < f->n_objects; i++) visit_object(v, &q, f->objects[i]);
        for (size_t i = 0; f && i < f->n_arrays; i++) visit_array(v, &q, f->arrays[i]);
        if (!v->st) v->st = rvi_rxs_check(&v->rxs, NULL, err);
        locate(v, n);
    }
    if (!v->st) find_inhabited(v, &q);
    for (size_t i = 0; i < q.n && !v->st; i++) {
        ready_large(v, v->nodes[q.items[i]].form);
        locate(v, q.items[i]);
    }
    if (!v->st) v->st = rvi_rxs_check(&v->rxs, "schema", err);
    rvi_free(q.items);
    return v->st;
}
