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

rv_status rvi_embed_check(const rvi_model *m, int max_rows, const int32_t *ids, size_t n,
                          const rvi_embed_options *o, rv_error *err)
{
    const char *refused = m->source->embedding.refused;
    if (!n) return rvi_error(err, RV_E_INVALID, "there are no tokens to embed");
    if (o->pooling == RV_POOLING_DEFAULT && refused)
        return rvi_error(err, RV_E_MODEL, "%s: %s; choose a pooling", m->source->name, refused);
    if (o->pooling < RV_POOLING_DEFAULT || o->pooling > RV_POOLING_FIRST)
        return rvi_error(err, RV_E_CONFIG, "there is no pooling %d", (int)o->pooling);
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= m->hp.n_vocab)
            return rvi_error(err, RV_E_INVALID, "token id %d is not in the vocabulary of %d",
                             ids[i], m->hp.n_vocab);
    if (n > (size_t)m->hp.n_context)
        return rvi_error(err, RV_E_TOO_LONG,
                         "the text has %zu tokens, but the model takes at most %d: shorten it", n,
                         m->hp.n_context);
    if (m->arch->is_encoder && n > (size_t)max_rows)
        return rvi_error(err, RV_E_TOO_LONG,
                         "the text has %zu tokens, but only %d rows are computed at once: shorten "
                         "it or ask for more",
                         n, max_rows);
    return RV_OK;
}

struct rvi_pooler {
    const rvi_model *m;
    rv_pooling pooling;
    bool normalize;
    int width;
    size_t n;
    double *sum; /* mean: over the rows so far, in their order; otherwise the one row */
    float *row;
};

rv_status rvi_pooler_new(rvi_pooler **out, const rvi_model *m, size_t n, const rvi_embed_options *o,
                         rv_error *err)
{
    *out = NULL;
    rvi_pooler *p = rvi_zalloc(sizeof *p);
    if (!p) return rvi_nomem(err, "embedding");
    p->m = m;
    p->pooling = o->pooling == RV_POOLING_DEFAULT ? rvi_model_pooling(m) : o->pooling;
    p->normalize = o->normalize;
    p->width = m->hp.n_embd;
    p->n = n;
    p->sum = rvi_zalloc_array((size_t)p->width, sizeof *p->sum);
    p->row = rvi_alloc_array((size_t)p->width, sizeof *p->row);
    if (!p->sum || !p->row) {
        rvi_pooler_free(p);
        return rvi_nomem(err, "embedding");
    }
    *out = p;
    return RV_OK;
}

void rvi_pooler_free(rvi_pooler *p)
{
    if (!p) return;
    rvi_free(p->sum);
    rvi_free(p->row);
    rvi_free(p);
}

void rvi_pooler_take(rvi_pooler *p, rvi_workspace *ws, int row, size_t pos)
{
    if (!pos) memset(p->sum, 0, (size_t)p->width * sizeof *p->sum);
    if ((p->pooling == RV_POOLING_FIRST && pos != 0) ||
        (p->pooling == RV_POOLING_LAST && pos != p->n - 1))
        return;
    rvi_workspace_hidden(ws, row, p->row);
    for (int i = 0; i < p->width; i++) p->sum[i] += (double)p->row[i];
}

rv_status rvi_pooler_finish(const rvi_pooler *p, float *out, rv_error *err)
{
    double squares = 0, scale = p->pooling == RV_POOLING_MEAN ? 1.0 / (double)p->n : 1.0;
    for (int i = 0; i < p->width; i++) squares += p->sum[i] * p->sum[i];
    if (!isfinite(squares)) {
        const char *broken = rvi_model_find_broken_tensor(p->m);
        if (broken)
            return rvi_error(err, RV_E_GENERATION,
                             "the model file is damaged: tensor '%s' holds a value that is not a "
                             "number",
                             broken);
        return rvi_error(err, RV_E_GENERATION, "the model's output is not finite");
    }
    if (p->normalize && squares > 0) scale = 1.0 / sqrt(squares);
    for (int i = 0; i < p->width; i++) out[i] = (float)(p->sum[i] * scale);
    return RV_OK;
}

static rv_status run(const rvi_model *m, rvi_workspace *ws, rvi_seq *seq, rvi_row *rows,
                     int max_rows, const int32_t *ids, rvi_pooler *p, rv_error *err)
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
        for (int i = 0; i < n; i++) rvi_pooler_take(p, ws, i, at + (size_t)i);
    }
    return RV_OK;
}

rv_status rvi_embed(const rvi_model *m, rvi_workspace *ws, rvi_seq *scratch_seq, int max_rows,
                    const int32_t *ids, size_t n, const rvi_embed_options *o, float *out,
                    rv_error *err)
{
    rvi_pooler *p = NULL;
    rvi_row *rows = NULL;
    rv_status st = rvi_embed_check(m, max_rows, ids, n, o, err);
    if (st) return st;
    size_t chunk = RVI_MIN(n, (size_t)max_rows);
    st = rvi_pooler_new(&p, m, n, o, err);
    if (!st && !(rows = rvi_alloc_array(chunk, sizeof *rows))) st = rvi_nomem(err, "embedding");
    if (!st) st = run(m, ws, scratch_seq, rows, (int)chunk, ids, p, err);
    if (!st) st = rvi_model_check(m, ws, err);
    if (!st) st = rvi_pooler_finish(p, out, err);
    rvi_seq_truncate(scratch_seq, 0);
    rvi_free(rows);
    rvi_pooler_free(p);
    return st;
}
