#include "learn/state/adapter_sets.h"

#include "base/mem.h"

struct rvi_made_set {
    rvi_made_set *next;
    int n_users; /* sessions */
    rvi_adapter_use uses[RVI_MAX_ADAPTERS];
    rvi_adapter_set set;
};

/* Adapters of the last down projection alone write no keys or values: what was computed without
 * them stays valid, and such a set has the serial of the empty one. */
static bool writes_keys(const rvi_model *m, const rvi_adapter *a)
{
    int last = m->layers[m->hp.n_layers - 1].down.slot;
    for (int i = 0; i < a->n_slots; i++)
        if (a->slots[i].a && i != last) return true;
    return false;
}

static uint64_t serial_of(const rvi_adapter_sets *s, const rvi_adapter *const *adapters, int n)
{
    for (int i = 0; i < n; i++)
        if (writes_keys(s->m, adapters[i])) return s->new_serial(s->serial_ctx);
    return 0;
}

static bool is_of(const rvi_made_set *s, const rvi_adapter *const *adapters, int n)
{
    for (int i = 0; i < n && s->set.n == n; i++)
        if (s->uses[i].adapter != adapters[i]) return false;
    return s->set.n == n;
}

rv_status rvi_adapter_sets_hold(rvi_adapter_sets *s, const rvi_adapter *const *adapters, int n,
                                rvi_made_set **out, rv_error *err)
{
    *out = NULL;
    if (!n) return RV_OK;
    rvi_made_set *set = s->made;
    while (set && !is_of(set, adapters, n)) set = set->next;
    if (!set) {
        if (!(set = rvi_zalloc(sizeof *set))) return rvi_nomem(err, "adapters");
        for (int i = 0; i < n; i++) set->uses[i] = (rvi_adapter_use){adapters[i], 1};
        set->set =
            (rvi_adapter_set){.uses = set->uses, .n = n, .serial = serial_of(s, adapters, n)};
        set->next = s->made;
        s->made = set;
    }
    set->n_users++;
    *out = set;
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

void rvi_adapter_sets_release(rvi_adapter_sets *s, rvi_made_set *set)
{
    if (!set) return;
    set->n_users--;
    rvi_adapter_sets_sweep(s);
}

/* ---- retired adapters ---- */

rv_status rvi_adapter_sets_reserve(rvi_adapter_sets *s, size_t n, rv_error *err)
{
    size_t want = s->n_retired + n;
    if (want <= s->cap_retired) return RV_OK;
    want = RVI_MAX(want, 2 * s->cap_retired);
    void *more = rvi_realloc_array(s->retired, want, sizeof *s->retired);
    if (!more) return rvi_nomem(err, "adapters");
    s->retired = more;
    s->cap_retired = want;
    return RV_OK;
}

void rvi_adapter_sets_retire(rvi_adapter_sets *s, rvi_adapter *a)
{
    if (a) s->retired[s->n_retired++] = a;
}

static bool names(const rvi_made_set *s, const rvi_adapter *a)
{
    for (int i = 0; i < s->set.n; i++)
        if (s->uses[i].adapter == a) return true;
    return false;
}

static bool names_retired(const rvi_adapter_sets *s, const rvi_made_set *set)
{
    for (size_t i = 0; i < s->n_retired; i++)
        if (names(set, s->retired[i])) return true;
    return false;
}

void rvi_adapter_sets_sweep(rvi_adapter_sets *s)
{
    for (rvi_made_set **at = &s->made; *at;) {
        rvi_made_set *set = *at;
        if (set->n_users || !names_retired(s, set)) {
            at = &set->next;
        } else {
            *at = set->next;
            rvi_free(set);
        }
    }
    size_t kept = 0;
    for (size_t i = 0; i < s->n_retired; i++) {
        const rvi_made_set *set = s->made;
        while (set && !names(set, s->retired[i])) set = set->next;
        if (set)
            s->retired[kept++] = s->retired[i];
        else
            rvi_adapter_free(s->retired[i]);
    }
    s->n_retired = kept;
}

void rvi_adapter_sets_deinit(rvi_adapter_sets *s)
{
    while (s->made) {
        rvi_made_set *set = s->made;
        s->made = set->next;
        rvi_free(set);
    }
    rvi_adapter_sets_sweep(s);
    rvi_free(s->retired);
    s->retired = NULL;
    s->cap_retired = 0;
}
