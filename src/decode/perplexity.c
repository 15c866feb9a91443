#include "decode/perplexity.h"

#include <math.h>

#include "base/mem.h"
#include "decode/logprobs.h"

enum { CHUNK = 256, LOGIT_ROWS = 32 };

typedef struct scorer {
    const rvi_model *m;
    rvi_workspace *ws;
    rvi_seq seq;
    rvi_row rows[CHUNK];
    int rope_set;
} scorer;

/* Sum over positions first .. n-2 of the surprise at the token that follows. */
static rv_status score_window(scorer *s, const int32_t *ids, int n, int first, int32_t bos,
                              double *sum, rv_error *err)
{
    rvi_seq_truncate(&s->seq, 0);
    for (int at = 0; at < n; at += CHUNK) {
        int rows = RVI_MIN(CHUNK, n - at);
        rv_status st = rvi_seq_extend(&s->seq, rows, err);
        if (st) return st;
        for (int i = 0; i < rows; i++) {
            int32_t token = at + i == 0 && bos >= 0 ? bos : ids[at + i];
            s->rows[i] =
                (rvi_row){.seq = &s->seq, .pos = at + i, .token = token, .rope_set = s->rope_set};
        }
        rvi_model_forward(s->m, s->ws, s->rows, rows);
        for (int from = RVI_MAX(first - at, 0); from < rows && at + from < n - 1;) {
            int32_t which[LOGIT_ROWS];
            int k = 0;
            while (k < LOGIT_ROWS && from + k < rows && at + from + k < n - 1) {
                which[k] = from + k;
                k++;
            }
            const float *logits = rvi_model_logits(s->m, s->ws, s->rows, which, k);
            int n_vocab = s->m->hp.n_vocab;
            for (int i = 0; i < k; i++) { /* -log softmax of the token that follows */
                const float *row = logits + (size_t)i * (size_t)n_vocab;
                *sum += rvi_log_sum_exp(row, n_vocab) - (double)row[ids[at + from + i + 1]];
            }
            from += k;
        }
    }
    if (isfinite(*sum)) return RV_OK;
    const char *broken = rvi_model_find_broken_tensor(s->m);
    if (broken)
        return rvi_error(
            err, RV_E_GENERATION,
            "the model file is damaged: tensor '%s' holds a value that is not a number", broken);
    return rvi_error(err, RV_E_GENERATION, "the model's output is not finite");
}

rv_status rvi_perplexity_run(rv_perplexity *out, const rvi_model *m, const int32_t *ids,
                             size_t n_ids, int n_context, rv_kv_type kv_type, int32_t bos,
                             rvi_perplexity_fn progress, void *ctx, rv_error *err)
{
    *out = (rv_perplexity){0};
    if (n_context < 4 || n_context > RVI_MAX_CONTEXT)
        return rvi_error(err, RV_E_CONFIG, "windows of %d tokens are not possible", n_context);
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
    scorer *s = rvi_zalloc(sizeof *s);
    if (!s) return rvi_nomem(err, "perplexity");
    s->m = m;
    s->rope_set = rvi_rope_set(&m->rope, n_context);
    rvi_kv_spec spec =
        rvi_model_kv_spec(m, kv_type, (n_context + RVI_PAGE_TOKENS - 1) / RVI_PAGE_TOKENS);
    rv_status st = rvi_pages_new(&pool, m->be, &spec, 0, err);
    if (!st) st = rvi_seq_init(&s->seq, pool, n_context, err);
    if (!st) st = rvi_workspace_new(&s->ws, m, RVI_MIN(CHUNK, n_context), LOGIT_ROWS, err);
    double sum = 0;
    int total = (int)(n_ids / (size_t)n_context), first = n_context / 2;
    for (int w = 0; !st && w < total; w++) {
        st = score_window(s, ids + (size_t)w * (size_t)n_context, n_context, first, bos, &sum, err);
        if (st) break;
        out->n_windows = w + 1;
        out->n_scored += n_context - 1 - first;
        out->value = exp(sum / (double)out->n_scored);
        if (progress && progress(ctx, w + 1, total, out->value))
            st = rvi_error(err, RV_E_GENERATION, "cancelled");
    }
    rvi_workspace_free(s->ws);
    rvi_seq_deinit(&s->seq);
    rvi_pages_free(pool);
    rvi_free(s);
    return st;
}
