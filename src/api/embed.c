/* Embeddings: one vector a text, on an engine's pages and scratch. */
#include <string.h>

#include "api/api.h"
#include "decode/embed.h"

rv_status rvi_api_cut_ids(const rv_model *m, const int32_t *ids, size_t *n, int32_t **cut,
                          rv_error *err)
{
    size_t most = (size_t)rvi_model_max_text(m->model);
    *cut = NULL;
    if (!m->model->arch->is_encoder || *n <= most) return RV_OK;
    if (!(*cut = rvi_alloc_array(*n, sizeof **cut))) return rvi_nomem(err, "tokens");
    memcpy(*cut, ids, *n * sizeof **cut);
    rvi_log_write(&m->rt->log, RVI_LOG_WARN,
                  "a text of %zu tokens was cut to the %zu that %s takes", *n, most, m->name);
    size_t n_after = m->tokenizer ? rvi_tokenizer_n_after(m->tokenizer) : 0;
    *n = rvi_embed_cut(m->model, *cut, *n, n_after);
    return RV_OK;
}

static rv_status embed(rv_engine *e, const int32_t *ids, size_t n, const rv_embed_options *o,
                       float *out, rv_error *err)
{
    int32_t *cut = NULL;
    rvi_seq seq = {0};
    rvi_embed_options inner = {.pooling = o->pooling, .normalize = !o->keep_length};
    rv_status st = !o->refuse_long ? rvi_api_cut_ids(e->m, ids, &n, &cut, err) : RV_OK;
    if (!st && n > (size_t)e->e->o.n_tokens)
        st =
            rvi_error(err, RV_E_TOO_LONG, "the text has %zu tokens, but the engine has room for %d",
                      n, e->e->o.n_tokens);
    if (!st && n) st = rvi_seq_init(&seq, e->e->pool, (int)n, err);
    rvi_engine_begin(e->e); /* the workspace no longer holds the last step's logits */
    if (!st)
        st = rvi_embed(e->m->model, e->e->ws, &seq, e->e->o.max_rows, cut ? cut : ids, n, &inner,
                       out, err);
    rvi_seq_deinit(&seq);
    rvi_free(cut);
    return st;
}

rv_status rv_engine_embed(rv_engine *e, const int32_t *ids, size_t n, const rv_embed_options *given,
                          float *out, rv_error *err)
{
    if (!e || !out || (!ids && n))
        return rvi_error(err, RV_E_INVALID, "rv_engine_embed: NULL argument");
    rv_embed_options o;
    rvi_api_turn turn;
    rv_status st = rvi_api_read_struct(&o, sizeof o, given, "rv_embed_options", err);
    if (!st) st = rvi_api_enter(&turn, e->m->rt, err);
    if (st) return st;
    rvi_api_retain_engine(e); /* the log's sink may free it */
    st = embed(e, ids, n, &o, out, err);
    rvi_api_release_engine(e);
    rvi_api_leave(&turn);
    return st;
}
