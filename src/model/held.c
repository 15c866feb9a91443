#include "model/held.h"

#include "base/mem.h"

/* The next linear layer of the range, and whether for the backward too; *at begins with 0. NULL: no
 * more. */
static const rvi_linear *next_linear(const rvi_model *m, rvi_held_range range, int *at, bool *back)
{
    enum { EACH = 9 };
    int n_layers = m->hp.n_layers, n = EACH * RVI_MAX(n_layers - range.first, 0);
    while (*at < n) {
        int il = range.first + *at / EACH;
        const rvi_layer *l = &m->layers[il];
        const rvi_linear *all[EACH] = {&l->q,    &l->k,  &l->v,       &l->qkv, &l->o,
                                       &l->gate, &l->up, &l->gate_up, &l->down};
        const rvi_linear *next = all[(*at)++ % EACH];
        *back = il >= range.back;
        if (next->w) return next;
    }
    *back = range.back <= n_layers;
    return (*at)++ == n ? &m->head : NULL;
}

size_t rvi_held_weights_bytes(const rvi_model *m, rvi_backend *be, rvi_held_range range)
{
    size_t bytes = 0;
    const rvi_linear *l;
    bool back;
    for (int at = 0; (l = next_linear(m, range, &at, &back));)
        bytes += be->ops->held_bytes(be, l->w, back);
    return bytes;
}

/* Whole rows of weights go to a device by way of its scratch, many at a time. */
static rv_status reserve(const rvi_model *m, rvi_backend *be, rvi_held_range range, rv_error *err)
{
    enum { ROWS = 256 };
    const rvi_linear *l;
    bool back;
    int widest = 1;
    if (!be->ops->needs_held) return RV_OK;
    for (int at = 0; (l = next_linear(m, range, &at, &back));)
        widest = RVI_MAX(widest, be->ops->n_cols(l->w));
    return be->ops->train_reserve(be, ROWS, widest, 1, err);
}

rv_status rvi_held_weights_new(rvi_held_weights **out, const rvi_model *m, rvi_backend *be,
                               rvi_held_range range, size_t bytes, rv_error *err)
{
    *out = NULL;
    rvi_held_weights *w = rvi_zalloc(sizeof *w);
    if (!w) return rvi_nomem(err, "trainer");
    w->be = be;
    w->n_slots = m->n_targets;
    w->by_slot = rvi_zalloc_array((size_t)m->n_targets, sizeof *w->by_slot);
    const rvi_linear *l;
    bool back;
    rv_status st = w->by_slot ? reserve(m, be, range, err) : rvi_nomem(err, "trainer");
    if (!st) st = be->ops->pack_new(be, &w->pack, bytes, err);
    for (int at = 0; !st && (l = next_linear(m, range, &at, &back));)
        st = be->ops->held_new(be, &w->by_slot[l->slot], w->pack, l->w, back, err);
    if (st)
        rvi_held_weights_free(w);
    else
        *out = w;
    return st;
}

void rvi_held_weights_free(rvi_held_weights *w)
{
    if (!w) return;
    for (int i = 0; w->by_slot && i < w->n_slots; i++) w->be->ops->held_free(w->be, w->by_slot[i]);
    w->be->ops->pack_free(w->be, w->pack);
    rvi_free(w->by_slot);
    rvi_free(w);
}
