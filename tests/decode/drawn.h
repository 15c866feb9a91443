/* drawn.h - what a device would say of a row of logits (backend/draw.h), found by plain loops. */
#ifndef TESTS_DECODE_DRAWN_H
#define TESTS_DECODE_DRAWN_H

#include "decode/sampler_support.h"

/* In the order of backend/draw.h, written down once more. */
static inline double drawn_sum(const double *x, int n)
{
    double sum = 0;
    for (int run = 0; run < n; run += 4096) {
        double of_run = 0;
        for (int b = run; b < run + 4096 && b < n; b += 256) {
            double lane[8] = {0}, rest = 0;
            int m = n - b < 256 ? n - b : 256;
            for (int i = 0; i < m; i++)
                if (i < m / 8 * 8)
                    lane[i % 8] += x[b + i];
                else
                    rest += x[b + i];
            of_run += (((lane[0] + lane[1]) + (lane[2] + lane[3])) +
                       ((lane[4] + lane[5]) + (lane[6] + lane[7]))) +
                      rest;
        }
        sum += of_run;
    }
    return sum;
}

/* The highest logits: the `least` highest, and those equal to the last of them. Weights are those
 * of a sampler that only has the temperature, and so is the token. */
static inline void drawn_of(rvi_drawn *d, const float *l, int n, const rvi_draw_ask *ask,
                            const rvi_sampler *draws, int least)
{
    *d = (rvi_drawn){.best = -1, .possible = 1, .drawn = -1, .best_logit = -INFINITY};
    for (int i = 0; i < n; i++) {
        if (!(l[i] < INFINITY)) return;
        if (l[i] == -INFINITY) d->possible = 0;
    }
    for (int i = 0; i < n; i++)
        if (l[i] > d->best_logit) d->best_logit = l[d->best = i];
    if (d->best < 0) return;
    double *x = malloc((size_t)n * sizeof *x);
    float *copy = malloc((size_t)n * sizeof *copy), floor = d->best_logit;
    assert_true(x && copy);
    if (ask->wants & RVI_DRAW_WEIGHTS) {
        rvi_sampler *s = (rvi_sampler *)(uintptr_t)draws;
        memcpy(copy, l, (size_t)n * sizeof *copy);
        rvi_sampler_state before = rvi_sampler_get(s);
        assert_ok(rvi_sampler_pick(s, copy, NULL, 0, 0, &d->drawn, err));
        rvi_sampler_set(s, &before);
        d->drawn_logit = l[d->drawn];
        for (int i = 0; i < s->set.n; i++) x[i] = (double)s->set.weights[i];
        d->weights = drawn_sum(x, s->set.n);
        if (!(ask->random >= 0) || !d->possible) d->drawn = -1;
    }
    if (ask->wants & RVI_DRAW_TOP) {
        int n_above = 0;
        while (n_above < least && n_above < n) { /* one value after the other */
            float next = -INFINITY;
            n_above = 0;
            for (int i = 0; i < n; i++) n_above += l[i] >= floor;
            for (int i = 0; i < n; i++)
                if (l[i] < floor && l[i] > next) next = l[i];
            if (n_above < least && n_above < n) floor = next;
        }
        if (n <= RVI_DRAW_MOST) floor = -INFINITY;
        for (int i = 0; i < n && d->n >= 0; i++) {
            if (!(l[i] >= floor)) continue;
            if (d->n == RVI_DRAW_MOST) {
                d->n = -1;
                break;
            }
            d->ids[d->n] = i;
            d->logits[d->n++] = l[i];
        }
    }
    free(x);
    free(copy);
}

#endif
