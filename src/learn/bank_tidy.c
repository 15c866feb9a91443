/* Which patterns are about the same, which may go, and tidying up. */
#include "learn/bank_internal.h"

#include <stdlib.h>

#include "learn/kmeans.h"
#include "learn/vector.h"

/* ---- which are about the same ---- */

static bool is_zero(const uint8_t key[16])
{
    static const uint8_t zero[16];
    return !memcmp(key, zero, sizeof zero);
}

bool rvi_bank_same_question(const rvi_bank *b, const rvi_pattern *p, const rvi_pattern_keys *pk,
                            const rvi_pattern *q, const rvi_pattern_keys *qk)
{
    if (!rvi_bank_equal(pk->subject, qk->subject)) return false;
    if (!is_zero(pk->subject) && !is_zero(pk->relation) &&
        rvi_bank_equal(pk->relation, qk->relation))
        return true;
    if (rvi_bank_equal(pk->question, qk->question)) return true;
    return p->n_dim && p->n_dim == q->n_dim &&
           rvi_vector_dot(p->vector, q->vector, p->n_dim) >= b->options.same;
}

/* ---- room ---- */

static bool may_go(const rvi_pattern *p)
{
    return !(p->correction && p->state == RVI_PATTERN_LIVE);
}

typedef struct candidate {
    bool stays_longer;
    uint64_t uses, id;
    int64_t last_use;
    size_t at;
} candidate;

static int first_to_go(const void *x, const void *y)
{
    const candidate *a = x, *b = y;
    if (a->stays_longer != b->stays_longer) return a->stays_longer - b->stays_longer;
    if (a->uses != b->uses) return a->uses < b->uses ? -1 : 1;
    if (a->last_use != b->last_use) return a->last_use < b->last_use ? -1 : 1;
    return (a->id > b->id) - (a->id < b->id);
}

rv_status rvi_bank_make_room(rvi_bank *b, bool spare_changed, size_t *n_removed, rv_error *err)
{
    const rvi_bank_options *o = &b->options;
    size_t n = 0, bytes = 0, n_candidates = 0;
    *n_removed = 0;
    for (size_t i = 0; i < b->n; i++)
        if (b->entries[i].now) {
            n++;
            bytes += b->entries[i].size;
        }
    if (n <= o->max_patterns && bytes <= o->max_bytes) return RV_OK;
    candidate *all = rvi_alloc_array(b->n, sizeof *all);
    if (!all) return rvi_nomem(err, "bank");
    for (size_t i = 0; i < b->n; i++) {
        const rvi_bank_entry *e = &b->entries[i];
        if (!e->now || (spare_changed && e->now != e->saved) || !may_go(e->now)) continue;
        all[n_candidates++] = (candidate){e->now->state != RVI_PATTERN_SUPERSEDED, e->now->uses,
                                          e->id, e->now->last_use, i};
    }
    qsort(all, n_candidates, sizeof *all, first_to_go);
    for (; *n_removed < n_candidates && (n > o->max_patterns || bytes > o->max_bytes);
         ++*n_removed) {
        size_t at = all[*n_removed].at;
        bytes -= b->entries[at].size;
        n--;
        rvi_bank_drop(b, at);
    }
    rvi_free(all);
    if (n > o->max_patterns || bytes > o->max_bytes)
        return rvi_error(err, RV_E_LEARNING,
                         "the bank is full: %zu patterns, %zu bytes, and the rest may not go: "
                         "corrections that have not been trained yet",
                         n, bytes);
    return RV_OK;
}

/* ---- tidying up ---- */

typedef struct twin {
    const rvi_pattern_keys *keys;
    size_t at;
} twin;

static int by_subject_and_answer(const void *x, const void *y)
{
    const twin *a = x, *b = y;
    int c = memcmp(a->keys->subject, b->keys->subject, 16);
    if (!c) c = memcmp(a->keys->answer, b->keys->answer, 16);
    return c ? c : (a->at > b->at) - (a->at < b->at);
}

static void merge(rvi_pattern *into, const rvi_pattern *from)
{
    double n = (double)into->n_scores, m = (double)from->n_scores;
    bool newer = from->last_event > into->last_event;
    if (into->correction || from->correction) {
        if (newer ? from->correction : !into->correction) {
            into->quality = from->quality;
            into->verdict = from->verdict;
        }
    } else if (n + m > 0) {
        into->quality = (float)(((double)into->quality * n + (double)from->quality * m) / (n + m));
        into->verdict = rvi_verdict_of((double)into->quality);
    }
    into->n_scores =
        from->n_scores > UINT32_MAX - into->n_scores ? UINT32_MAX : into->n_scores + from->n_scores;
    into->correction = into->correction || from->correction;
    if (from->state == RVI_PATTERN_LIVE) {
        into->state = RVI_PATTERN_LIVE;
        into->generation = 0;
    }
    into->uses += from->uses;
    into->last_use = RVI_MAX(into->last_use, from->last_use);
    into->last_event = RVI_MAX(into->last_event, from->last_event);
    into->distilled = into->distilled && from->distilled;
}

static rv_status merge_twins(rvi_bank *b, size_t *n_merged, rv_error *err)
{
    if (!b->n) return RV_OK;
    rv_status st = RV_OK;
    size_t n = 0;
    twin *all = rvi_alloc_array(b->n, sizeof *all);
    if (!all) return rvi_nomem(err, "bank");
    for (size_t i = 0; i < b->n; i++)
        if (b->entries[i].now) all[n++] = (twin){&b->entries[i].keys, i};
    qsort(all, n, sizeof *all, by_subject_and_answer);
    for (size_t i = 0; !st && i < n; i++) {
        rvi_bank_entry *a = &b->entries[all[i].at];
        for (size_t k = i + 1; !st && a->now && k < n; k++) {
            rvi_bank_entry *c = &b->entries[all[k].at];
            if (!rvi_bank_equal(a->keys.subject, c->keys.subject) ||
                !rvi_bank_equal(a->keys.answer, c->keys.answer))
                break;
            if (!c->now || !rvi_bank_same_question(b, a->now, &a->keys, c->now, &c->keys)) continue;
            rvi_pattern *into = rvi_bank_edit(b, all[i].at, err);
            if (!into) st = RV_E_NOMEM;
            if (into) {
                merge(into, c->now);
                rvi_bank_drop(b, all[k].at);
                ++*n_merged;
            }
        }
    }
    rvi_free(all);
    return st;
}

/* The patterns that can be grouped, and their groups. */
typedef struct grouping {
    const float **points;
    size_t *at; /* [n]: their entries */
    uint32_t *groups;
    size_t *medoids;
    size_t n, k;
} grouping;

static void grouping_deinit(grouping *g)
{
    rvi_free(g->points);
    rvi_free(g->at);
    rvi_free(g->groups);
    rvi_free(g->medoids);
}

static rv_status make_groups(grouping *g, const rvi_bank *b, size_t k, rv_error *err)
{
    *g = (grouping){0};
    if (!b->n) return RV_OK;
    g->points = rvi_alloc_array(b->n, sizeof *g->points);
    g->at = rvi_alloc_array(b->n, sizeof *g->at);
    g->groups = rvi_alloc_array(b->n, sizeof *g->groups);
    g->medoids = rvi_alloc_array(b->n, sizeof *g->medoids);
    if (!g->points || !g->at || !g->groups || !g->medoids) return rvi_nomem(err, "groups");
    for (size_t i = 0; i < b->n; i++) {
        const rvi_pattern *p = b->entries[i].now;
        if (!p || !p->n_dim || p->state == RVI_PATTERN_SUPERSEDED) continue;
        g->points[g->n] = p->vector;
        g->at[g->n++] = i;
    }
    if (!g->n) return RV_OK;
    g->k = RVI_MIN(k ? k : rvi_kmeans_groups(g->n), g->n);
    size_t n_dim = b->entries[g->at[0]].now->n_dim;
    return rvi_kmeans(g->points, g->n, n_dim, g->k, b->options.seed, g->groups, g->medoids, err);
}

rv_status rvi_bank_groups(const rvi_bank *b, size_t k, uint32_t *groups, rv_error *err)
{
    grouping g;
    rv_status st = make_groups(&g, b, k, err);
    for (size_t i = 0; !st && i < b->n; i++) groups[i] = UINT32_MAX;
    for (size_t i = 0; !st && i < g.n; i++) groups[g.at[i]] = g.groups[i];
    grouping_deinit(&g);
    return st;
}

typedef struct ranked {
    uint32_t group;
    const rvi_pattern *p;
    size_t at;
} ranked;

static int best_first(const void *x, const void *y)
{
    const ranked *a = x, *b = y;
    if (a->group != b->group) return a->group < b->group ? -1 : 1;
    if (a->p->verdict != b->p->verdict) return a->p->verdict > b->p->verdict ? -1 : 1;
    if (a->p->quality != b->p->quality) return a->p->quality > b->p->quality ? -1 : 1;
    if (a->p->uses != b->p->uses) return a->p->uses > b->p->uses ? -1 : 1;
    return (a->p->id < b->p->id) - (a->p->id > b->p->id); /* the newer one */
}

static rv_status distil(rvi_bank *b, size_t *n_dropped, rv_error *err)
{
    bool any = false;
    for (size_t i = 0; i < b->n; i++)
        if (b->entries[i].now && !b->entries[i].now->distilled) any = true;
    if (!any) return RV_OK;
    grouping g;
    ranked *all = NULL;
    rv_status st = make_groups(&g, b, 0, err);
    if (!st && g.n && !(all = rvi_alloc_array(g.n, sizeof *all))) st = rvi_nomem(err, "groups");
    for (size_t i = 0; all && i < g.n; i++)
        all[i] = (ranked){g.groups[i], b->entries[g.at[i]].now, g.at[i]};
    if (all) qsort(all, g.n, sizeof *all, best_first);
    for (size_t i = 0, rank = 0; all && i < g.n; i++) {
        rank = i && all[i].group == all[i - 1].group ? rank + 1 : 0;
        size_t medoid = g.at[g.medoids[all[i].group]];
        const rvi_pattern *p = all[i].p;
        if (rank < b->options.keep || all[i].at == medoid || p->correction || p->distilled)
            continue;
        rvi_bank_drop(b, all[i].at);
        ++*n_dropped;
    }
    rvi_free(all);
    grouping_deinit(&g);
    for (size_t i = 0; !st && i < b->n; i++) {
        if (!b->entries[i].now || b->entries[i].now->distilled) continue;
        rvi_pattern *p = rvi_bank_edit(b, i, err);
        if (!p) st = RV_E_NOMEM;
        if (p) p->distilled = true;
    }
    return st;
}

rv_status rvi_bank_consolidate(rvi_bank *b, rvi_bank_report *report, rv_error *err)
{
    rvi_bank_report r = {0};
    rv_status st = rvi_bank_begin(b, true, err);
    if (st) return st;
    r.n_before = b->n;
    for (size_t i = 0; i < b->n; i++)
        if (b->entries[i].now->state == RVI_PATTERN_SUPERSEDED) {
            rvi_bank_drop(b, i);
            r.n_superseded++;
        }
    st = merge_twins(b, &r.n_merged, err);
    if (!st) st = distil(b, &r.n_distilled, err);
    rv_error why = {0};
    if (!st && (st = rvi_bank_make_room(b, false, &r.n_pruned, &why))) {
        if (st == RV_E_LEARNING)
            st = RV_OK; /* too full is an error where something is added */
        else
            st = rvi_error(err, st, "%s", why.text);
    }
    st = rvi_bank_end(b, st, (rvi_bank_change){.next_id = b->next_id}, err);
    r.n_after = b->n;
    if (report) *report = r;
    return st;
}
