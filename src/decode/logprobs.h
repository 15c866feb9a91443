/* logprobs.h - log-probabilities of the model's own distribution: the softmax of raw logits. */
#ifndef RVI_DECODE_LOGPROBS_H
#define RVI_DECODE_LOGPROBS_H

#include "ruvllm.h"

/* log(sum of exp(logit)): subtract it from a logit to get its log-probability. -INFINITY if there
 * is nothing finite; NaN if a logit is NaN. */
double rvi_log_sum_exp(const float *logits, int n);

/* The n_top best tokens, best first and of equals the lower id first. Where the vocabulary has
 * fewer, the rest has id -1 and log-probability -INFINITY. log_sum: rvi_log_sum_exp of them. */
void rvi_top_logprobs(const float *logits, int n, double log_sum, rv_token_prob *top, int n_top);

#endif
