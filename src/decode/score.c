#include "decode/score.h"

#include <math.h>

#include "decode/logprobs.h"

enum { LOGIT_ROWS = 64 };

void rvi_score_rows(const rvi_scorer *s, const int32_t *next, int from, int to, float *log_p,
                    double *sum)
{
    int n_vocab = s->m->hp.n_vocab;
    rv_token_prob *top = s->top;
    for (int k; from < to; from += k) {
        int32_t which[LOGIT_ROWS];
        k = RVI_MIN(RVI_MIN(to - from, s->max_logits), LOGIT_ROWS);
        for (int i = 0; i < k; i++) which[i] = from + i;
        const float *logits = rvi_model_logits(s->m, s->ws, s->rows, which, k);
        for (int i = 0; i < k; i++) {
            const float *row = logits + (size_t)i * (size_t)n_vocab;
            double all = rvi_log_sum_exp(row, n_vocab), x = (double)row[next[from + i]] - all;
            *sum += x;
            if (log_p) *log_p++ = (float)x;
            if (s->n_top) rvi_top_logprobs(row, n_vocab, all, top, s->n_top);
            if (s->n_top) top += s->n_top;
        }
    }
}

rv_status rvi_score(const rvi_scorer *s, const int32_t *ids, int n, int first, int32_t bos,
                    float *log_p, double *sum, rv_error *err)
{
    rvi_seq_truncate(s->seq, 0);
    for (int at = 0; at < n; at += s->max_rows) {
        int rows = RVI_MIN(s->max_rows, n - at);
        rv_status st = rvi_seq_extend(s->seq, rows, err);
        if (st) return st;
        for (int i = 0; i < rows; i++) {
            int32_t token = at + i == 0 && bos >= 0 ? bos : ids[at + i];
            s->rows[i] = (rvi_row){.seq = s->seq,
                                   .pos = at + i,
                                   .token = token,
                                   .rope_set = s->rope_set,
                                   .adapters = s->adapters && s->adapters->n ? s->adapters : NULL};
        }
        rvi_model_forward(s->m, s->ws, s->rows, rows);
        int from = RVI_MAX(first - at, 0), to = RVI_MIN(rows, n - 1 - at);
        if (from >= to) continue;
        rvi_score_rows(s, ids + at + 1, from, to, log_p, sum);
        if (log_p) log_p += to - from;
    }
    rv_status st = rvi_model_check(s->m, s->ws, err);
    if (st || isfinite(*sum)) return st;
    const char *broken = rvi_model_find_broken_tensor(s->m);
    if (broken)
        return rvi_error(
            err, RV_E_GENERATION,
            "the model file is damaged: tensor '%s' holds a value that is not a number", broken);
    return rvi_error(err, RV_E_GENERATION, "the model's output is not finite");
}
