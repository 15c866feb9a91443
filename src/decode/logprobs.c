#include "decode/logprobs.h"

#include <math.h>
#include <string.h>

#include "backend/draw.h"
#include "base/mem.h"

enum { BLOCK = 64 };

/* exp(x) for x <= 0 in place, relative error below 4e-13 (seen: 3.0e-13); 0 below -708, where the
 * result would leave the normal doubles. exp(x) = 2^k exp(r), k = round(x / ln 2), |r| <= ln 2 / 2,
 * and exp(r) is its Taylor polynomial of degree 10. Adding 1.5 * 2^52 rounds to an integer and
 * leaves it in the low bits of the sum. Plain multiplications and additions in one order, as in
 * sampler_set.c: other machines, and devices, give the same bits. */
static void exp_block(double x[BLOCK])
{
    static const double lowest = -708.0, magic = 6755399441055744.0;
    static const double ln2_high = 0x1.62e42feep-1, ln2_low = 0x1.a39ef35793c76p-33;
    union {
        double f[BLOCK];
        uint64_t bits[BLOCK];
    } y, shifted;
    double v[BLOCK];
    for (int j = 0; j < BLOCK; j++) v[j] = x[j] > lowest ? x[j] : lowest;
    for (int j = 0; j < BLOCK; j++) {
        shifted.f[j] = v[j] * 0x1.71547652b82fep+0 + magic;
        double k = shifted.f[j] - magic;
        double r = (v[j] - k * ln2_high) - k * ln2_low;
        double p = 1.0 / 3628800;
        p = p * r + 1.0 / 362880;
        p = p * r + 1.0 / 40320;
        p = p * r + 1.0 / 5040;
        p = p * r + 1.0 / 720;
        p = p * r + 1.0 / 120;
        p = p * r + 1.0 / 24;
        p = p * r + 1.0 / 6;
        p = p * r + 0.5;
        y.f[j] = (p * r + 1.0) * r + 1.0;
    }
    for (int j = 0; j < BLOCK; j++) y.bits[j] += shifted.bits[j] << 52;
    for (int j = 0; j < BLOCK; j++) x[j] = x[j] < lowest ? 0.0 : y.f[j];
}

/* The order of the sum is that of backend/draw.h. */
static double sum_block(const float *logits, int n, double max)
{
    double x[RVI_SUM_BLOCK], sum[RVI_SUM_LANES] = {0}, rest = 0;
    int i = 0;
    for (int j = 0; j < RVI_SUM_BLOCK; j++) x[j] = j < n ? (double)logits[j] - max : 0;
    for (int at = 0; at < n; at += BLOCK) exp_block(x + at);
    for (; i + RVI_SUM_LANES <= n; i += RVI_SUM_LANES)
        for (int j = 0; j < RVI_SUM_LANES; j++) sum[j] += x[i + j];
    for (; i < n; i++) rest += x[i];
    return (((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]))) +
           rest;
}

double rvi_log_sum_exp(const float *logits, int n)
{
    float most[RVI_SUM_LANES];
    double max = -INFINITY, sum = 0;
    int wrong[RVI_SUM_LANES] = {0}, i = 0;
    for (int j = 0; j < RVI_SUM_LANES; j++) most[j] = -INFINITY;
    for (; i + RVI_SUM_LANES <= n; i += RVI_SUM_LANES)
        for (int j = 0; j < RVI_SUM_LANES; j++) {
            most[j] = logits[i + j] > most[j] ? logits[i + j] : most[j];
            wrong[j] |= !(logits[i + j] <= INFINITY);
        }
    for (; i < n; i++) {
        most[0] = logits[i] > most[0] ? logits[i] : most[0];
        wrong[0] |= !(logits[i] <= INFINITY);
    }
    for (int j = 0; j < RVI_SUM_LANES; j++) {
        if (wrong[j]) return NAN;
        max = (double)most[j] > max ? (double)most[j] : max;
    }
    if (isinf(max)) return max;
    for (int run = 0; run < n; run += RVI_SUM_RUN) {
        int end = RVI_MIN(run + RVI_SUM_RUN, n);
        double of_run = 0;
        for (i = run; i < end; i += RVI_SUM_BLOCK)
            of_run += sum_block(logits + i, RVI_MIN(RVI_SUM_BLOCK, end - i), max);
        sum += of_run;
    }
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
