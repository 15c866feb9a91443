#include "grammar/names.h"

#include <string.h>

#include "base/utf8.h"

int rvi_text_compare(const void *a, const void *b)
{
    const rvi_text *x = a, *y = b;
    int c = memcmp(x->data, y->data, RVI_MIN(x->len, y->len));
    return c ? c : x->len < y->len ? -1 : x->len > y->len;
}

static uint32_t names_step(const void *self, uint32_t state, uint32_t cp)
{
    const rvi_names *t = self;
    const rvi_name_node *n = &t->nodes[state], *child = t->nodes + n->child;
    uint32_t low = 0, high = n->count;
    while (low < high) {
        uint32_t mid = (low + high) / 2;
        if (child[mid].cp < cp)
            low = mid + 1;
        else
            high = mid;
    }
    return low < n->count && child[low].cp == cp ? n->child + low : UINT32_MAX;
}

static bool names_end(const void *self, uint32_t state)
{
    return ((const rvi_names *)self)->nodes[state].ends;
}

static size_t names_bounds(const void *self, uint32_t state, const uint32_t **out)
{
    const rvi_names *t = self;
    *out = t->bounds + 2 * (size_t)t->nodes[state].child;
    return 2 * (size_t)t->nodes[state].count;
}

/* Breadth first, so that children stand together. depth[i]: bytes of the names before node i. */
static void fill(rvi_names *t, uint32_t *depth, const rvi_text *texts)
{
    for (uint32_t at = 0; at < t->n_nodes; at++) {
        rvi_name_node *n = &t->nodes[at];
        uint32_t low = n->low;
        n->ends = texts[low].len == depth[at];
        n->child = t->n_nodes;
        if (n->ends) low++;
        while (low < n->high) {
            uint32_t cp, same, first = low;
            size_t used =
                rvi_utf8_decode(texts[low].data + depth[at], texts[low].len - depth[at], &cp, NULL);
            do {
                low++;
                same = UINT32_MAX;
                if (low < n->high)
                    rvi_utf8_decode(texts[low].data + depth[at], texts[low].len - depth[at], &same,
                                    NULL);
            } while (same == cp);
            depth[t->n_nodes] = depth[at] + (uint32_t)used;
            t->bounds[2 * (size_t)t->n_nodes] = cp;
            t->bounds[2 * (size_t)t->n_nodes + 1] = cp + 1;
            t->nodes[t->n_nodes++] = (rvi_name_node){.cp = cp, .low = first, .high = low};
            n->count++;
        }
    }
}

rvi_rx rvi_rx_names(rvi_rxs *p, rvi_arena *arena, const rvi_text *texts, size_t n,
                    const rvi_names **out)
{
    size_t most = 1;
    if (out) *out = NULL;
    if (!n) return RVI_RX_NONE;
    for (size_t i = 0; i < n; i++) most += texts[i].len;
    rvi_names *t = rvi_arena_alloc(arena, 1, sizeof *t);
    uint32_t *depth = rvi_alloc_array(most, sizeof *depth);
    if (t) t->nodes = rvi_arena_alloc(arena, most, sizeof *t->nodes);
    if (t) t->bounds = rvi_arena_alloc(arena, 2 * most, sizeof *t->bounds);
    if (!t || !depth || !t->nodes || !t->bounds) {
        rvi_free(depth);
        rvi_rxs_no_room(p, arena, 2 * most, sizeof *t->nodes);
        return RVI_RX_NONE;
    }
    t->n_nodes = 1;
    t->nodes[0].high = (uint32_t)n;
    depth[0] = 0;
    fill(t, depth, texts);
    rvi_free(depth);
    if (out) *out = t;
    rvi_rx_auto a = {names_step, names_end, names_bounds, t, true, true};
    return rvi_rx_automaton(p, &a, 0);
}
