#include "learn/consolidate/baseline.h"

#include "base/mem.h"

int rvi_baseline_lowest(const rvi_model *m)
{
    return (m->hp.n_layers * 4 + 5) / 10;
}

/* They stay: samples of runs come behind them and go. */
static rv_status add_pieces(rvi_baseline *g, rv_error *err)
{
    const rvi_replay *r = g->replay;
    size_t own = 0;
    rv_status st = RV_OK;
    for (size_t i = 0; !st && i < r->n_pieces; i++) {
        const rvi_replay_text *p = &r->pieces[i];
        rvi_index *to = p->kind == RVI_GENERAL ? &g->general : &g->probe;
        /* as many self-made probes as there are passages of prose */
        if (p->kind == RVI_PROBE && ++own > rvi_replay_count(r, RVI_PROSE)) continue;
        st = rvi_samples_add(&g->samples, r->ids.data + p->first, p->n, p->loss, true, false, to,
                             err);
    }
    if (!st) g->n_own = g->samples.n;
    return st;
}

rv_status rvi_baseline_init(rvi_baseline *g, const rvi_base_model *v, const rvi_replay *replay,
                            rvi_progress_fn progress, void *ctx, rv_error *err)
{
    *g = (rvi_baseline){.v = v, .replay = replay};
    rvi_samples_init(&g->samples, v, rvi_baseline_lowest(v->m));
    rv_status st = add_pieces(g, err);
    if (!st) st = rvi_baseline_prepare(g, progress, ctx, err);
    if (st) rvi_baseline_deinit(g);
    return st;
}

void rvi_baseline_deinit(rvi_baseline *g)
{
    rvi_samples_deinit(&g->samples);
    rvi_index_deinit(&g->general);
    rvi_index_deinit(&g->probe);
    *g = (rvi_baseline){0};
}

void rvi_baseline_use(rvi_baseline *g, const rvi_base_model *v)
{
    rvi_samples_let_weights_go(&g->samples);
    g->v = g->samples.v = v;
}

/* Rows for samples from `first` on: no single text is too long. */
static int portion_rows(const rvi_baseline *g, size_t first)
{
    int rows = RVI_PORTION_ROWS;
    for (size_t i = first; i < g->samples.n; i++) rows = RVI_MAX(rows, g->samples.items[i].n);
    return rows;
}

static rv_status new_trainer(rvi_trainer **out, const rvi_baseline *g, const rvi_params *params,
                             int rows, rv_error *err)
{
    rvi_trainer_options o = {.max_rows = rows,
                             .max_spans = RVI_SAMPLES_AT_ONCE + 1,
                             .max_losses = 192,
                             .lowest = g->samples.lowest,
                             .weights = g->samples.weights};
    return rvi_trainer_new(out, g->v->m, g->v->be, params, NULL, &o, err);
}

rv_status rvi_baseline_prepare(rvi_baseline *g, rvi_progress_fn progress, void *ctx, rv_error *err)
{
    rvi_trainer *t = NULL;
    int rows = portion_rows(g, g->samples.n_ready);
    rv_status st = rvi_samples_hold_weights(&g->samples, err);
    if (!st) st = new_trainer(&t, g, NULL, rows, err);
    if (!st) st = rvi_samples_prepare(&g->samples, t, rows, progress, ctx, err);
    rvi_trainer_free(t);
    return st;
}

void rvi_baseline_clear(rvi_baseline *g)
{
    rvi_samples_let_weights_go(&g->samples);
    rvi_samples_cut(&g->samples, g->n_own);
}

rv_status rvi_baseline_probe(rvi_baseline *g, const rvi_params *params, double *kl, rv_error *err)
{
    rvi_trainer *t = NULL;
    rvi_batch b = {0};
    double sum = 0;
    int tokens = 0, rows = portion_rows(g, 0);
    rv_status st = new_trainer(&t, g, params, rows, err);
    if (!st) st = rvi_batch_init(&b, rows, RVI_SAMPLES_AT_ONCE, err);
    for (size_t at = 0, took; !st && at < g->probe.n; at += took) {
        const size_t *which = g->probe.data + at;
        took = rvi_batch_run(&b, &g->samples, which, g->probe.n - at, t);
        rvi_trainer_loss(t, b.loss_rows, b.targets, b.n_losses, false);
        for (int i = 0; i < b.n_losses; i++) sum += (double)b.targets[i].loss;
        tokens += b.n_losses;
    }
    *kl = tokens ? sum / tokens : 0;
    rvi_batch_deinit(&b);
    rvi_trainer_free(t);
    return st;
}
