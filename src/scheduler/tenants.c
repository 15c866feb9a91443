#include "scheduler/tenants.h"

#include <string.h>

#include "base/mem.h"

static rvi_tenant *find(const rvi_tenants *t, const char *name)
{
    rvi_tenant *x = t->turn;
    for (; x; x = x->next == t->turn ? NULL : x->next)
        if (!strcmp(x->name, name)) return x;
    return NULL;
}

rv_status rvi_tenants_join(rvi_tenants *t, const char *name, rvi_tenant **out, rv_error *err)
{
    size_t len = strlen(name) + 1;
    *out = find(t, name);
    if (!*out) {
        rvi_tenant *x = rvi_zalloc(sizeof *x);
        if (x) x->name = rvi_alloc_array(len, 1);
        if (!x || !x->name) {
            rvi_free(x);
            return rvi_nomem(err, "tenant");
        }
        memcpy(x->name, name, len);
        if (t->turn) { /* last in the round */
            rvi_tenant *last = t->turn;
            while (last->next != t->turn) last = last->next;
            last->next = x;
            x->next = t->turn;
        } else {
            t->turn = x->next = x;
        }
        *out = x;
    }
    (*out)->n_live++;
    return RV_OK;
}

void rvi_tenants_leave(rvi_tenants *t, rvi_tenant *x)
{
    if (--x->n_live) return;
    rvi_tenant *before = x;
    while (before->next != x) before = before->next;
    before->next = x->next;
    if (t->turn == x) t->turn = x->next == x ? NULL : x->next;
    rvi_free(x->name);
    rvi_free(x);
}

void rvi_tenant_wait(rvi_tenant *x, rvi_waiting *w)
{
    rvi_waiting **at = &x->first;
    while (*at && (*at)->rank <= w->rank) at = &(*at)->next;
    w->next = *at;
    *at = w;
}

void rvi_tenant_unwait(rvi_tenant *x, rvi_waiting *w)
{
    rvi_waiting **at = &x->first;
    while (*at && *at != w) at = &(*at)->next;
    if (*at) *at = w->next;
    w->next = NULL;
}

static bool others_wait(const rvi_tenants *t, const rvi_tenant *x)
{
    for (const rvi_tenant *other = x->next; other != x; other = other->next)
        for (const rvi_waiting *w = other->first; w; w = w->next)
            if (w != t->begins) return true;
    return false;
}

void rvi_tenants_pay(const rvi_tenants *t, rvi_tenant *x, int n_rows)
{
    enum { DEBT = 8 }; /* quanta */
    x->credit -= n_rows;
    if (!others_wait(t, x)) x->credit = RVI_MAX(x->credit, -(int64_t)DEBT * t->quantum);
}

/* So many rounds that someone who wants has credit. Debts of those who want nothing now shrink with
 * them; credit they do not collect. */
static void give_rounds(rvi_tenants *t, int64_t most)
{
    int64_t rounds = -most / t->quantum + 1;
    rvi_tenant *x = t->turn;
    do {
        int64_t more = x->credit + rounds * t->quantum;
        x->credit = RVI_MIN(more, RVI_MAX(x->credit, (int64_t)t->quantum));
        x = x->next;
    } while (x != t->turn);
}

rvi_tenant *rvi_tenants_next(rvi_tenants *t, bool (*wants)(void *ctx, const rvi_tenant *x),
                             void *ctx)
{
    if (!t->turn) return NULL;
    bool any = false;
    int64_t most = 0;
    rvi_tenant *x = t->turn;
    do {
        if (wants(ctx, x)) {
            if (x->credit > 0) return t->turn = x;
            most = any ? RVI_MAX(most, x->credit) : x->credit;
            any = true;
        }
        x = x->next;
    } while (x != t->turn);
    if (!any) return NULL;
    t->turn = t->turn->next; /* who has used up its credit goes last in the next round */
    give_rounds(t, most);
    for (x = t->turn; !wants(ctx, x) || x->credit <= 0;) x = x->next;
    return t->turn = x;
}
