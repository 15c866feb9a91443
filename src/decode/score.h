/* score.h - how probable a model finds each token of a text. */
#ifndef RVI_DECODE_SCORE_H
#define RVI_DECODE_SCORE_H

#include "model/model.h"

typedef struct rvi_scorer {
    const rvi_model *m;
    rvi_workspace *ws;
    rvi_seq *seq; /* with room for the text; its contents are overwritten */
    rvi_row *rows;
    int max_rows, max_logits; /* of a step; the workspace's */
    int rope_set;
    const rvi_adapter_set *adapters; /* NULL: none */
    rv_token_prob *top;              /* rvi_score_rows: the likeliest n_top of each row */
    int n_top;                       /* 0: nobody wants them */
} rvi_scorer;

/* ln p of ids[i + 1] after ids[0 .. i] for first <= i < n - 1, as log_p[i - first] (may be NULL)
 * and in *sum, to which it is added. bos replaces ids[0]; -1: ids[0] is used. */
rv_status rvi_score(const rvi_scorer *s, const int32_t *ids, int n, int first, int32_t bos,
                    float *log_p, double *sum, rv_error *err) RVI_MUST_CHECK;

/* What follows the forward pass: the same for its rows from .. to - 1, of which row i is followed
 * by next[i]. Of s it takes m, ws, rows, max_logits, top and n_top. */
void rvi_score_rows(const rvi_scorer *s, const int32_t *next, int from, int to, float *log_p,
                    double *sum);

#endif
