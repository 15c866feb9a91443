/* rx_counters.c - unions whose parts differ in the limits of one repetition alone are one part:
 * x{1,3}y | x{2,7}y is x{1,7}y. A counted repetition that can be read in several ways has a part
 * for each count it may have reached; joined, these stay few, also where repetitions are inside
 * each other. */
#include <stdlib.h>
#include <string.h>

#include "grammar/rx_internal.h"

enum { DEPTH = 5 /* how far behind the beginning a repetition is looked for */ };

typedef struct counted {
    rvi_rx key[DEPTH + 2]; /* what is before the repetition, its body, what is behind it */
    uint32_t min, max;
    size_t index; /* in the list */
} counted;

/* The repetition that stands behind `before` other parts. */
static bool find(const rvi_rxs *p, rvi_rx a, int before, counted *out)
{
    memset(out->key, 0, sizeof out->key);
    for (int i = 0; i < before; i++) {
        if (p->nodes[a].kind != CAT) return false;
        out->key[i] = p->nodes[a].a;
        a = p->nodes[a].b;
    }
    bool last = p->nodes[a].kind != CAT;
    const rvi_rx_node *r = &p->nodes[last ? a : p->nodes[a].a];
    if (r->kind != REPEAT) return false;
    out->key[DEPTH] = r->a;
    out->key[DEPTH + 1] = last ? RVI_RX_EPS : p->nodes[a].b;
    out->min = r->min;
    out->max = r->max;
    return true;
}

static int by_key(const void *a, const void *b)
{
    const counted *x = a, *y = b;
    int c = memcmp(x->key, y->key, sizeof x->key);
    return c ? c : x->min < y->min ? -1 : x->min > y->min;
}

static rvi_rx rebuild(rvi_rxs *p, const counted *c, int before)
{
    rvi_rx rx = rvi_rx_cat(p, rvi_rx_repeat(p, c->key[DEPTH], c->min, c->max), c->key[DEPTH + 1]);
    while (before-- > 0) rx = rvi_rx_cat(p, c->key[before], rx);
    return rx;
}

/* Ranges of counts that touch become one; what went into another is RVI_RX_NONE afterwards. */
static void join(rvi_rxs *p, rx_list *l, counted *all, size_t n, int before)
{
    qsort(all, n, sizeof *all, by_key);
    for (size_t i = 0; i < n && !p->status;) {
        counted *first = &all[i];
        size_t from = i;
        for (i++; i < n && !memcmp(all[i].key, first->key, sizeof first->key); i++) {
            if (first->max != RVI_RX_FOREVER && all[i].min > first->max + 1) break;
            first->max = RVI_MAX(first->max, all[i].max);
            l->items[all[i].index] = RVI_RX_NONE;
        }
        if (i - from > 1) l->items[first->index] = rebuild(p, first, before);
    }
}

static void drop_none(rx_list *l)
{
    size_t k = 0;
    for (size_t i = 0; i < l->n; i++)
        if (l->items[i] != RVI_RX_NONE) l->items[k++] = l->items[i];
    l->n = k;
}

void rvi_rx_join_counters(rvi_rxs *p, rx_list *l)
{
    counted *all = rvi_alloc_array(l->n, sizeof *all);
    if (!all) rvi_rxs_fail(p, RV_E_NOMEM, "");
    for (int before = 0; before < DEPTH && l->n > 1 && !p->status; before++) {
        size_t n = 0;
        for (size_t i = 0; i < l->n; i++)
            if (find(p, l->items[i], before, &all[n])) all[n++].index = i;
        if (!rvi_rxs_spend(p, 3 * n)) break;
        if (n > 1) join(p, l, all, n, before);
        drop_none(l);
    }
    rvi_free(all);
}
