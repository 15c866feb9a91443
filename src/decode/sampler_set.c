/* sampler_set.c - the candidates of a pick: weights, dropping, selecting without sorting.
 *
 * A vocabulary has some 150,000 tokens and almost all of them are dropped, so the passes over all
 * of them look at a block at a time in loops of constant length, which compilers turn into vector
 * code; only blocks with something in them are looked at token by token.
 *
 * The exponential is written out here rather than taken from libm or the kernels: plain f32
 * multiplications and additions in one order, no fused ones, so that its bits (and with them every
 * draw) are the same on all machines. */
#include <float.h>
#include <limits.h>
#include <math.h>
#include <string.h>

#include "decode/sampler_internal.h"

enum { LANES = RVI_SUM_LANES, BLOCK = 64 };

/* exp(x) for x <= 0 in place, relative error below 1.5e-7 (seen: 9.6e-8); 0 below -86, where the
 * result would leave the normal floats. exp(x) = 2^k exp(r), k = round(x / ln 2), |r| <= ln 2 / 2,
 * and exp(r) is its Taylor polynomial of degree 7 (the next term is below 6e-9). Adding 1.5 * 2^23
 * rounds to an integer and leaves it in the low bits of the sum. */
static void exp_block(float x[BLOCK])
{
    static const float lowest = -86.0f, magic = 12582912.0f;
    static const float ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
    union {
        float f[BLOCK];
        uint32_t bits[BLOCK];
    } y, shifted;
    float v[BLOCK];
    for (int j = 0; j < BLOCK; j++) v[j] = x[j] > lowest ? x[j] : lowest;
    for (int j = 0; j < BLOCK; j++) {
        shifted.f[j] = v[j] * 1.44269504f + magic;
        float k = shifted.f[j] - magic;
        float r = (v[j] - k * ln2_high) - k * ln2_low;
        float p = 1.0f / 5040;
        p = p * r + 1.0f / 720;
        p = p * r + 1.0f / 120;
        p = p * r + 1.0f / 24;
        p = p * r + 1.0f / 6;
        p = p * r + 0.5f;
        y.f[j] = (p * r + 1.0f) * r + 1.0f;
    }
    for (int j = 0; j < BLOCK; j++) y.bits[j] += shifted.bits[j] << 23;
    for (int j = 0; j < BLOCK; j++) x[j] = x[j] < lowest ? 0.0f : y.f[j];
}

float rvi_max(const float *x, int n)
{
    float most[LANES], best = x[0];
    int i = 0;
    for (int j = 0; j < LANES; j++) most[j] = x[0];
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) most[j] = x[i + j] > most[j] ? x[i + j] : most[j];
    for (; i < n; i++) best = x[i] > best ? x[i] : best;
    for (int j = 0; j < LANES; j++) best = most[j] > best ? most[j] : best;
    return best;
}

float rvi_min(const float *x, int n)
{
    float least = x[0];
    for (int i = 1; i < n; i++) least = x[i] < least ? x[i] : least;
    return least;
}

static double sum_block(const float *x, int n)
{
    double sum[LANES] = {0}, rest = 0;
    int i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) sum[j] += (double)x[i + j];
    for (; i < n; i++) rest += (double)x[i];
    return (((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]))) +
           rest;
}

double rvi_sum(const float *x, int n)
{
    double sum = 0;
    for (int run = 0; run < n; run += RVI_SUM_RUN) {
        int end = RVI_MIN(run + RVI_SUM_RUN, n);
        double of_run = 0;
        for (int i = run; i < end; i += RVI_SUM_BLOCK)
            of_run += sum_block(x + i, RVI_MIN(RVI_SUM_BLOCK, end - i));
        sum += of_run;
    }
    return sum;
}

void rvi_candidates_scale(rvi_candidates *c, float shift, float divisor)
{
    int i = 0;
    for (; i + LANES <= c->n; i += LANES)
        for (int j = 0; j < LANES; j++) {
            float scaled = (c->logits[i + j] - shift) / divisor;
            c->logits[i + j] = scaled > -FLT_MAX ? scaled : -FLT_MAX;
        }
    for (; i < c->n; i++) {
        float scaled = (c->logits[i] - shift) / divisor;
        c->logits[i] = scaled > -FLT_MAX ? scaled : -FLT_MAX;
    }
    c->weighed = false;
}

void rvi_candidates_weigh(rvi_candidates *c)
{
    if (c->weighed) return;
    float best = rvi_max(c->logits, c->n), x[BLOCK];
    for (int i = 0; i < c->n; i += BLOCK) {
        int m = RVI_MIN(BLOCK, c->n - i);
        memset(x, 0, sizeof x);
        memcpy(x, c->logits + i, (size_t)m * sizeof x[0]);
        for (int j = 0; j < BLOCK; j++) x[j] -= best;
        exp_block(x);
        memcpy(c->weights + i, x, (size_t)m * sizeof x[0]);
    }
    c->best = best;
    c->total = rvi_sum(c->weights, c->n);
    c->weighed = true;
}

float *rvi_candidates_find(const rvi_candidates *c, int32_t id)
{
    if (c->dense) return c->logits[id] > -INFINITY ? &c->logits[id] : NULL;
    int low = 0, high = c->n;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (c->ids[middle] < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < c->n && c->ids[low] == id ? &c->logits[low] : NULL;
}

void rvi_candidates_move(rvi_candidates *c, int to, int from)
{
    c->ids[to] = c->dense ? from : c->ids[from];
    c->logits[to] = c->logits[from];
    c->weights[to] = c->weights[from];
}

void rvi_candidates_shrink(rvi_candidates *c, int n)
{
    c->n = n;
    c->dense = false;
    if (c->weighed) c->total = rvi_sum(c->weights, n);
}

/* Keeps the candidates whose value (logits or weights: moving changes nothing ahead of it) is at
 * least the floor. */
static void keep_from(rvi_candidates *c, const float *value, float floor)
{
    int kept = 0;
    for (int i = 0; i < c->n; i += BLOCK) {
        int end = RVI_MIN(i + BLOCK, c->n);
        if (end == i + BLOCK) {
            int any[LANES] = {0};
            for (int j = 0; j < BLOCK; j += LANES)
                for (int k = 0; k < LANES; k++) any[k] |= value[i + j + k] >= floor;
            if (!(any[0] | any[1] | any[2] | any[3] | any[4] | any[5] | any[6] | any[7])) continue;
        }
        for (int j = i; j < end; j++)
            if (value[j] >= floor) rvi_candidates_move(c, kept++, j);
    }
    rvi_candidates_shrink(c, kept);
}

void rvi_candidates_keep_heavy(rvi_candidates *c, double weight)
{
    /* rounded to a float; one that is too large leaves the heaviest */
    float heaviest = rvi_max(c->weights, c->n);
    keep_from(c, c->weights, weight < (double)heaviest ? (float)weight : heaviest);
}

void rvi_candidates_keep_high(rvi_candidates *c, double logit)
{
    float best = rvi_max(c->logits, c->n);
    keep_from(c, c->logits, logit < (double)best ? rvi_bounded(logit) : best);
}

/* ---- selection ---- */

uint32_t rvi_key(float score)
{
    uint32_t bits;
    score += 0.0f; /* -0 and 0 are equals */
    memcpy(&bits, &score, sizeof bits);
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

static float score_of_key(uint32_t key)
{
    float score;
    uint32_t bits = key >> 31 ? key & 0x7FFFFFFFu : ~key;
    memcpy(&score, &bits, sizeof score);
    return score;
}

/* Where a selection ends: keys below `last` stay, and of those equal to it the first ones, until
 * they are `count` or have the weight `mass`. */
typedef struct cut {
    uint32_t last;
    int count;
    double mass;
    bool is_rough; /* set if sums in two orders did not agree about where it is */
} cut;

enum { DIGITS = 3, DIGIT_MAX = 2048 };
static const struct {
    int shift;
    uint32_t mask;
} digits[DIGITS] = {{21, 2047}, {10, 2047}, {0, 1023}};

/* Radix selection: the digits of the last key that stays are found from the highest on, each by one
 * count (and one sum of weights) over the keys that agree in the digits before it. weights NULL: by
 * count alone. False if all keys together do not reach it. */
static bool find_cut(const uint32_t *keys, const float *weights, int n_keys, cut *at)
{
    uint32_t fixed = 0;
    at->last = 0;
    for (int d = 0; d < DIGITS; d++) {
        int32_t n[DIGIT_MAX] = {0};
        double weight[DIGIT_MAX];
        if (weights) memset(weight, 0, sizeof weight);
        for (int i = 0; i < n_keys; i++) {
            if ((keys[i] & fixed) != at->last) continue;
            uint32_t digit = keys[i] >> digits[d].shift & digits[d].mask;
            n[digit]++;
            if (weights) weight[digit] += (double)weights[i];
        }
        uint32_t digit = 0, filled = 0;
        for (; digit <= digits[d].mask; digit++) {
            if (!n[digit]) continue;
            filled = digit;
            if (n[digit] >= at->count || (weights && weight[digit] >= at->mass)) break;
            at->count -= n[digit];
            if (weights) at->mass -= weight[digit];
        }
        if (digit > digits[d].mask) {
            if (d == 0) return false;
            digit = filled; /* they reached it in another order of summing: all of these stay */
            at->count = n[digit];
            at->mass = INFINITY;
            at->is_rough = true;
            weights = NULL;
        }
        at->last |= digit << digits[d].shift;
        fixed |= digits[d].mask << digits[d].shift;
    }
    return true;
}

static void keep_until(rvi_candidates *c, cut at)
{
    int kept = 0;
    for (int i = 0; i < c->n; i++) {
        if (c->keys[i] > at.last) continue;
        if (c->keys[i] == at.last) {
            if (at.count <= 0 || !(at.mass > 0)) continue;
            at.count--;
            at.mass -= (double)c->weights[i];
        }
        rvi_candidates_move(c, kept++, i);
    }
    rvi_candidates_shrink(c, kept);
}

static void set_keys_by_logit(rvi_candidates *c)
{
    for (int i = 0; i < c->n; i++) c->keys[i] = ~rvi_key(c->logits[i]);
}

/* The k-th best of the blocks' best logits is no higher than the k-th best logit, so what is below
 * it can go before the selection proper. */
void rvi_candidates_keep_best(rvi_candidates *c, int k)
{
    int n_blocks = (c->n + BLOCK - 1) / BLOCK;
    cut at = {0, k, INFINITY, false};
    if (k >= c->n) return;
    if (k <= n_blocks / 2) {
        for (int b = 0; b < n_blocks; b++)
            c->keys[b] = ~rvi_key(rvi_max(c->logits + b * BLOCK, RVI_MIN(BLOCK, c->n - b * BLOCK)));
        if (find_cut(c->keys, NULL, n_blocks, &at))
            rvi_candidates_keep_high(c, (double)score_of_key(~at.last));
        at.count = k;
    }
    set_keys_by_logit(c);
    if (find_cut(c->keys, NULL, c->n, &at)) keep_until(c, at);
}

/* Candidates below a share of (1 - p) / n do not sum up to 1 - p, so none of them is needed to
 * reach p, and they can go before the selection proper (a little is left for rounding). */
static bool keep_nucleus(rvi_candidates *c, double p, int n_all)
{
    cut at = {0, INT_MAX, p * c->total, false};
    rvi_candidates_keep_heavy(c, 0.999 * (1 - p) * c->total / n_all);
    set_keys_by_logit(c);
    if (!find_cut(c->keys, c->weights, c->n, &at)) return false;
    keep_until(c, at);
    return !at.is_rough;
}

void rvi_candidates_keep_nucleus(rvi_candidates *c, double p)
{
    rvi_candidates_weigh(c);
    (void)keep_nucleus(c, p, c->n);
}

/* What is missing has lower logits than the lowest that is here. As long as the cut lies above
 * that, the digits of its key are found among the same sums as with all candidates: digits before
 * the cut's hold none of the missing ones, and a digit whose weight suffices without them does so
 * with them, because adding to a sum never makes it smaller. */
bool rvi_candidates_keep_nucleus_of(rvi_candidates *c, double p, double total, int n_all)
{
    float lowest = rvi_min(c->logits, c->n);
    rvi_candidates_weigh(c);
    c->total = total;
    return keep_nucleus(c, p, n_all) && rvi_min(c->logits, c->n) > lowest;
}

void rvi_candidates_keep_lowest(rvi_candidates *c, double p)
{
    cut at = {0, INT_MAX, p * c->total, false};
    if (find_cut(c->keys, c->weights, c->n, &at)) keep_until(c, at);
}
