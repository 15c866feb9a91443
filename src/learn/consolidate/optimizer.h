/* optimizer.h - Adam over one flat array of parameters, and the rate of each step.
 *
 * The same gradients give the same bits on any number of threads: the gradient's norm is added up
 * by pieces in the order of the array, and a parameter's step depends on that parameter alone. */
#ifndef RVI_LEARN_CONSOLIDATE_OPTIMIZER_H
#define RVI_LEARN_CONSOLIDATE_OPTIMIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"
#include "base/error.h"

/* The rate falls from rate to 0 along half a wave over the n_steps that will be taken; the first
 * warm_up * n_steps of them come in linearly from 0, as a factor on that. step: from 0. */
double rvi_rate_at(int step, int n_steps, double rate, double warm_up);

/* ---- Adam ---- */

/* m, v and n_steps are the whole state: stored and put back, training goes on as if it had not been
 * interrupted. */
typedef struct rvi_optimizer {
    float *m, *v;    /* means of the gradient and of its square */
    double *squares; /* of the gradient, summed by pieces */
    size_t n;
    int64_t n_steps;
    rvi_backend *be; /* whose threads share the work */
} rvi_optimizer;

rv_status rvi_optimizer_new(rvi_optimizer **out, size_t n, rvi_backend *be,
                            rv_error *err) RVI_MUST_CHECK;
void rvi_optimizer_free(rvi_optimizer *p); /* accepts NULL */

/* One step down the gradient, which is clipped to length 1. False: it is not finite and nothing was
 * changed. */
bool rvi_optimizer_step(rvi_optimizer *p, float *theta, const float *grad,
                        double rate) RVI_MUST_CHECK;

/* A random direction of the same length instead of the gradient: a control that learning must fail
 * with. NaN stays NaN. */
void rvi_gradient_randomise(float *grad, size_t n, uint64_t seed);
double rvi_gradient_norm(const float *grad, size_t n);

#endif
