#include "decode/logprobs.h"

#include <math.h>

double rvi_log_sum_exp(const float *logits, int n)
{
    double max = -INFINITY, sum = 0;
    for (int i = 0; i < n; i++) {
        if (isnan(logits[i])) return NAN;
        if ((double)logits[i] > max) max = (double)logits[i];
    }
    if (isinf(max)) return max;
    for (int i = 0; i < n; i++) sum += exp((double)logits[i] - max);
    return max + log(sum);
}

/* top is kept sorted; an element moves up only past strictly smaller ones, which keeps equals in
 * the order of their ids. */
void rvi_top_logprobs(const float *logits, int n, double log_sum, rv_token_prob *top, int n_top)
{
    int filled = 0;
    if (n_top < 1) return;
    for (int i = 0; i < n_top; i++) top[i] = (rv_token_prob){-1, -INFINITY};
    for (int i = 0; i < n; i++) {
        if (filled == n_top && !(logits[i] > logits[top[n_top - 1].id])) continue;
        if (isnan(logits[i])) continue;
        int at = filled < n_top ? filled++ : n_top - 1;
        for (; at > 0 && logits[top[at - 1].id] < logits[i]; at--) top[at] = top[at - 1];
        top[at].id = i;
    }
    for (int i = 0; i < filled; i++) top[i].logprob = (float)((double)logits[top[i].id] - log_sum);
}
