#include "decode/perplexity.h"

#include <math.h>

#include "base/mem.h"
#include "decode/score.h"

enum { CHUNK = 256, LOGIT_ROWS = 32 };

rv_status rvi_perplexity_run(rv_perplexity *out, const rvi_model *m, const int32_t *ids,
                             size_t n_ids, int n_context, rv_kv_type kv_type, int32_t bos,
                             rvi_perplexity_fn progress, void *ctx, rv_error *err)
{
    *out = (rv_perplexity){0};
    if (n_context < 4 || n_context > RVI_MAX_CONTEXT)
        return rvi_error(err, RV_E_CONFIG, "the window must be 4..%d tokens (got %d)",
                         RVI_MAX_CONTEXT, n_context);
    if (n_ids < (size_t)n_context)
        return rvi_error(err, RV_E_CONFIG, "the text has %zu tokens, fewer than one window of %d",
                         n_ids, n_context);
    for (size_t i = 0; i < n_ids; i++)
        if (ids[i] < 0 || ids[i] >= m->hp.n_vocab)
            return rvi_error(err, RV_E_CONFIG, "token id %d is not in the vocabulary of %d", ids[i],
                             m->hp.n_vocab);
    if (bos >= m->hp.n_vocab)
        return rvi_error(err, RV_E_MODEL,
                         "the tokenizer's first token %d is not in the model's vocabulary of %d",
                         bos, m->hp.n_vocab);
    rvi_pages *pool = NULL;
    rvi_seq seq = {0};
    rvi_row rows[CHUNK];
    rvi_scorer s = {.m = m,
                    .seq = &seq,
                    .rows = rows,
                    .max_rows = RVI_MIN(CHUNK, n_context),
                    .max_logits = LOGIT_ROWS,
                    .rope_set = rvi_rope_set(&m->rope, n_context)};
    rvi_kv_spec spec =
        rvi_model_kv_spec(m, kv_type, (n_context + RVI_PAGE_TOKENS - 1) / RVI_PAGE_TOKENS);
    rv_status st = rvi_pages_new(&pool, m->be, &spec, err);
    if (!st) st = rvi_seq_init(&seq, pool, n_context, err);
    if (!st) st = rvi_workspace_new(&s.ws, m, s.max_rows, LOGIT_ROWS, err);
    double sum = 0;
    int total = (int)(n_ids / (size_t)n_context), first = n_context / 2;
    for (int w = 0; !st && w < total; w++) {
        st = rvi_score(&s, ids + (size_t)w * (size_t)n_context, n_context, first, bos, NULL, &sum,
                       err);
        if (st) break;
        out->n_windows = w + 1;
        out->n_scored += n_context - 1 - first;
        out->value = exp(-sum / (double)out->n_scored);
        if (progress && progress(ctx, w + 1, total, out->value))
            st = rvi_error(err, RV_E_CANCELLED, "cancelled");
    }
    rvi_workspace_free(s.ws);
    rvi_seq_deinit(&seq);
    rvi_pages_free(pool);
    return st;
}
