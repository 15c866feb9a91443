#include "learn/consolidate/drift.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "decode/logprobs.h"

enum { AT_ONCE = 32 }; /* rows through the head */

typedef struct drift {
    const rvi_model *m;
    rvi_pages *pool;
    rvi_seq seq;
    rvi_workspace *ws;
    rvi_row *rows;
    int longest;
    float *alone; /* logits of a text's rows without the set */
    double sum;
    int n;
} drift;

static rv_status run(drift *d, const int32_t *ids, int n, const rvi_adapter_set *set, rv_error *err)
{
    int rope_set = rvi_rope_set(&d->m->rope, n);
    rvi_seq_truncate(&d->seq, 0);
    rv_status st = rvi_seq_extend(&d->seq, n, err);
    for (int i = 0; !st && i < n; i++)
        d->rows[i] = (rvi_row){
            .seq = &d->seq, .pos = i, .token = ids[i], .rope_set = rope_set, .adapters = set};
    if (!st) rvi_model_forward(d->m, d->ws, d->rows, n);
    return st;
}

static double divergence(const float *p, const float *q, int n)
{
    double lp = rvi_log_sum_exp(p, n), lq = rvi_log_sum_exp(q, n), sum = 0;
    for (int i = 0; i < n; i++) {
        double x = (double)p[i] - lp;
        if (x > -40) sum += exp(x) * (x - ((double)q[i] - lq));
    }
    return sum;
}

/* Positions from first on, AT_ONCE of them, evenly. */
static int choose(int first, int n, int32_t *which)
{
    int have = n - first, k = RVI_MIN(have, AT_ONCE);
    for (int i = 0; i < k; i++) which[i] = first + i * have / k;
    return k;
}

static rv_status compare(drift *d, const int32_t *ids, int n, int first, const rvi_adapter_set *set,
                         rv_error *err)
{
    int32_t which[AT_ONCE];
    int k = choose(first, n, which), n_vocab = d->m->hp.n_vocab;
    size_t size = (size_t)k * (size_t)n_vocab;
    rv_status st = run(d, ids, n, NULL, err);
    if (st) return st;
    memcpy(d->alone, rvi_model_logits(d->m, d->ws, d->rows, which, k), size * sizeof *d->alone);
    if ((st = run(d, ids, n, set, err))) return st;
    const float *with = rvi_model_logits(d->m, d->ws, d->rows, which, k);
    for (int i = 0; i < k; i++) {
        size_t at = (size_t)i * (size_t)n_vocab;
        d->sum += divergence(d->alone + at, with + at, n_vocab);
    }
    d->n += k;
    return RV_OK;
}

rv_status rvi_drift(const rvi_replay *r, const rvi_base_model *v, const rvi_adapter_set *set,
                    double *kl, rv_error *err)
{
    drift d = {.m = v->m};
    size_t own = 0, most = rvi_replay_count(r, RVI_PROSE);
    *kl = 0;
    if (!set || !set->n) return RV_OK;
    for (size_t i = 0; i < r->n_pieces; i++)
        if (r->pieces[i].kind == RVI_PROBE || r->pieces[i].kind == RVI_PROSE)
            d.longest = RVI_MAX(d.longest, (int)r->pieces[i].n);
    if (!d.longest) return rvi_error(err, RV_E_LEARNING, "there are no probe texts yet");
    rvi_kv_spec spec =
        rvi_model_kv_spec(v->m, RV_KV_F16, (d.longest + RVI_PAGE_TOKENS - 1) / RVI_PAGE_TOKENS);
    rv_status st = rvi_pages_new(&d.pool, v->be, &spec, err);
    if (!st) st = rvi_seq_init(&d.seq, d.pool, d.longest, err);
    if (!st) st = rvi_workspace_new_on(&d.ws, v->m, v->be, d.longest, AT_ONCE, err);
    d.rows = rvi_alloc_array((size_t)d.longest, sizeof *d.rows);
    d.alone = rvi_alloc_array((size_t)AT_ONCE * (size_t)v->m->hp.n_vocab, sizeof *d.alone);
    if (!st && (!d.rows || !d.alone)) st = rvi_nomem(err, "probe");
    for (size_t i = 0; !st && i < r->n_pieces; i++) {
        const rvi_replay_text *p = &r->pieces[i];
        if (p->kind != RVI_PROSE && (p->kind != RVI_PROBE || ++own > most)) continue;
        st = compare(&d, r->ids.data + p->first, (int)p->n - 1, (int)p->loss, set, err);
    }
    if (!st && d.n) *kl = d.sum / d.n;
    rvi_workspace_free(d.ws);
    rvi_seq_deinit(&d.seq);
    rvi_pages_free(d.pool);
    rvi_free(d.rows);
    rvi_free(d.alone);
    return st;
}
