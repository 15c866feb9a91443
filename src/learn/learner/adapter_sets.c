/* Sets of adapters that sessions hold.
 *
 * The same adapters are the same set for as long as the set lives: keys and values computed with it
 * are found again by its serial. A set lives while somebody holds it, and beyond that until one of
 * its adapters is retired; a retired adapter lives until no set names it. */
#include "base/mem.h"
#include "learn/learner/learner_internal.h"

struct rvi_made_set {
    rvi_made_set *next;
    int n_users; /* sessions */
    rvi_adapter_use uses[RVI_MAX_ADAPTERS];
    rvi_adapter_set set;
};

/* Adapters of the last down projection alone write no keys or values: what was computed without
 * them stays valid, and such a set has the serial of the empty one. */
static bool writes_keys(const rvi_learner *l, const rvi_adapter *a)
{
    const rvi_model *m = l->parts.m;
    int last = m->layers[m->hp.n_layers - 1].down.slot;
    for (int i = 0; i < a->n_slots; i++)
        if (a->slots[i].a && i != last) return true;
    return false;
}

static uint64_t serial_of(const rvi_learner *l, const rvi_adapter *const *adapters, int n)
{
    for (int i = 0; i < n; i++)
        if (writes_keys(l, adapters[i])) return l->parts.new_serial(l->parts.serial_ctx);
    return 0;
}

static bool is_of(const rvi_made_set *s, const rvi_adapter *const *adapters, int n)
{
    for (int i = 0; i < n && s->set.n == n; i++)
        if (s->uses[i].adapter != adapters[i]) return false;
    return s->set.n == n;
}

rv_status rvi_learner_hold(rvi_learner *l, const rvi_adapter *const *adapters, int n,
                           rvi_made_set **out, rv_error *err)
{
    *out = NULL;
    if (!n) return RV_OK;
    rvi_made_set *s = l->sets;
    while (s && !is_of(s, adapters, n)) s = s->next;
    if (!s) {
        if (!(s = rvi_zalloc(sizeof *s))) return rvi_nomem(err, "adapters");
        for (int i = 0; i < n; i++) s->uses[i] = (rvi_adapter_use){adapters[i], 1};
        s->set = (rvi_adapter_set){s->uses, n, serial_of(l, adapters, n)};
        s->next = l->sets;
        l->sets = s;
    }
    s->n_users++;
    *out = s;
    return RV_OK;
}

const rvi_adapter_set *rvi_made_set_of(const rvi_made_set *s)
{
    return s ? &s->set : NULL;
}

rvi_made_set *rvi_made_set_retain(rvi_made_set *s)
{
    if (s) s->n_users++;
    return s;
}

void rvi_learner_release(rvi_learner *l, rvi_made_set *s)
{
    if (!s) return;
    s->n_users--;
    rvi_learner_sweep(l);
}

void rvi_learner_free_sets(rvi_learner *l)
{
    while (l->sets) {
        rvi_made_set *s = l->sets;
        l->sets = s->next;
        rvi_free(s);
    }
}

/* ---- retired adapters ---- */

static bool names(const rvi_made_set *s, const rvi_adapter *a)
{
    for (int i = 0; i < s->set.n; i++)
        if (s->uses[i].adapter == a) return true;
    return false;
}

static bool names_retired(const rvi_made_set *s, const rvi_instant *in)
{
    for (size_t i = 0; i < in->n_retired; i++)
        if (names(s, in->retired[i])) return true;
    return false;
}

void rvi_learner_sweep(rvi_learner *l)
{
    rvi_instant *in = &l->instant;
    for (rvi_made_set **at = &l->sets; *at;) {
        rvi_made_set *s = *at;
        if (s->n_users || !names_retired(s, in)) {
            at = &s->next;
        } else {
            *at = s->next;
            rvi_free(s);
        }
    }
    size_t kept = 0;
    for (size_t i = 0; i < in->n_retired; i++) {
        const rvi_made_set *s = l->sets;
        while (s && !names(s, in->retired[i])) s = s->next;
        if (s)
            in->retired[kept++] = in->retired[i];
        else
            rvi_adapter_free(in->retired[i]);
    }
    in->n_retired = kept;
}
