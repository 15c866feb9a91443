#include "decode/embed.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

size_t rvi_embed_cut(const rvi_model *m, int32_t *ids, size_t n, size_t n_after)
{
    size_t most = (size_t)rvi_model_max_text(m);
    if (n <= most) return n;
    n_after = RVI_MIN(n_after, most);
    memmove(ids + most - n_after, ids + n - n_after, n_after * sizeof *ids);
    return most;
}

static rv_status check(const rvi_model *m, int max_rows, const int32_t *ids, size_t n,
                       const rvi_embed_options *o, rv_error *err)
{
    const char *refused = m->source->embedding.refused;
    if (!n) return rvi_error(err, RV_E_GENERATION, "there are no tokens to embed");
    if (o->pooling == RV_POOLING_DEFAULT && refused)
        return rvi_error(err, RV_E_MODEL, "%s: %s; choose a pooling", m->source->name, refused);
    if (o->pooling < RV_POOLING_DEFAULT || o->pooling > RV_POOLING_FIRST)
        return rvi_error(err, RV_E_CONFIG, "there is no pooling %d", (int)o->pooling);
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= m->hp.n_vocab)
            return rvi_error(err, RV_E_GENERATION, "token id %d is not in the vocabulary of %d",
                             ids[i], m->hp.n_vocab);
    if (n > (size_t)m->hp.n_context)
        return rvi_error(err, RV_E_GENERATION,
                         "the text has %zu tokens, but the model takes at most %d: shorten it", n,
                         m->hp.n_context);
    if (m->arch->is_encoder && n > (size_t)max_rows)
        return rvi_error(err, RV_E_GENERATION,
                         "the text has %zu tokens, but only %d rows are computed at once: shorten "
                         "it or ask for more",
                         n, max_rows);
    return RV_OK;
}

typedef struct pooler {
    rv_pooling pooling;
    int width;
    size_t n;
    double *sum; /* mean: over the rows so far, in their order; otherwise the one row */
    float *row;
} pooler;

static void take_row(pooler *p, rvi_workspace *ws, int row, size_t pos)
{
    if ((p->pooling == RV_POOLING_FIRST && pos != 0) ||
        (p->pooling == RV_POOLING_LAST && pos != p->n - 1))
        return;
    rvi_workspace_hidden(ws, row, p->row);
    for (int i = 0; i < p->width; i++) p->sum[i] += (double)p->row[i];
}

static rv_status finish(const rvi_model *m, const pooler *p, bool normalize, float *out,
                        rv_error *err)
{
    double squares = 0, scale = p->pooling == RV_POOLING_MEAN ? 1.0 / (double)p->n : 1.0;
    for (int i = 0; i < p->width; i++) squares += p->sum[i] * p->sum[i];
    if (!isfinite(squares)) {
        const char *broken = rvi_model_find_broken_tensor(m);
        if (broken)
            return rvi_error(err, RV_E_GENERATION,
                             "the model file is damaged: tensor '%s' holds a value that is not a "
                             "number",
                             broken);
        return rvi_error(err, RV_E_GENERATION, "the model's output is not finite");
    }
    if (normalize && squares > 0) scale = 1.0 / sqrt(squares);
    for (int i = 0; i < p->width; i++) out[i] = (float)(p->sum[i] * scale);
    return RV_OK;
}

static rv_status run(const rvi_model *m, rvi_workspace *ws, rvi_seq *seq, rvi_row *rows,
                     int max_rows, const int32_t *ids, pooler *p, rv_error *err)
{
    int rope_set = rvi_rope_set(&m->rope, (int)p->n);
    for (size_t at = 0; at < p->n; at += (size_t)max_rows) {
        int n = (int)RVI_MIN(p->n - at, (size_t)max_rows);
        rv_status st = rvi_seq_extend(seq, n, err);
        if (st) return st;
        for (int i = 0; i < n; i++)
            rows[i] = (rvi_row){.seq = seq,
                                .pos = (int32_t)at + i,
                                .token = ids[at + (size_t)i],
                                .rope_set = rope_set};
        rvi_model_forward(m, ws, rows, n);
        for (int i = 0; i < n; i++) take_row(p, ws, i, at + (size_t)i);
    }
    return RV_OK;
}

rv_status rvi_embed(const rvi_model *m, rvi_workspace *ws, rvi_seq *scratch_seq, int max_rows,
                    const int32_t *ids, size_t n, const rvi_embed_options *o, float *out,
                    rv_error *err)
{
    rv_status st = check(m, max_rows, ids, n, o, err);
    if (st) return st;
    pooler p = {.pooling = o->pooling == RV_POOLING_DEFAULT ? rvi_model_pooling(m) : o->pooling,
                .width = m->hp.n_embd,
                .n = n};
    size_t chunk = RVI_MIN(n, (size_t)max_rows);
    rvi_row *rows = rvi_alloc_array(chunk, sizeof *rows);
    p.sum = rvi_zalloc_array((size_t)p.width, sizeof *p.sum);
    p.row = rvi_alloc_array((size_t)p.width, sizeof *p.row);
    if (!rows || !p.sum || !p.row) st = rvi_nomem(err, "embedding");
    if (!st) st = run(m, ws, scratch_seq, rows, (int)chunk, ids, &p, err);
    if (!st) st = rvi_source_check(m->source, err);
    if (!st) st = finish(m, &p, o->normalize, out, err);
    rvi_seq_truncate(scratch_seq, 0);
    rvi_free(rows);
    rvi_free(p.sum);
    rvi_free(p.row);
    return st;
}
