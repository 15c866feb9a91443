/* divergence.h - how far logits are from those they should be. */
#ifndef TESTS_CUDA_DIVERGENCE_H
#define TESTS_CUDA_DIVERGENCE_H

#include <math.h>

static inline double log_sum(const float *x, int n)
{
    double top = -INFINITY, sum = 0;
    for (int i = 0; i < n; i++) top = fmax(top, (double)x[i]);
    for (int i = 0; i < n; i++) sum += exp((double)x[i] - top);
    return top + log(sum);
}

/* KL of the rows of b from those of a, on average; n columns. */
static inline double divergence(const float *a, const float *b, int n_rows, int n)
{
    double all = 0;
    for (int r = 0; r < n_rows; r++, a += n, b += n) {
        double from = log_sum(a, n), to = log_sum(b, n);
        for (int i = 0; i < n; i++)
            all += exp((double)a[i] - from) * ((double)a[i] - from - ((double)b[i] - to));
    }
    return all / n_rows;
}

#endif
