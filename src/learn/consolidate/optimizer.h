/* optimizer.h - AdamW over one flat array of parameters, and the rate of each step.
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

/* The rate falls from rate to least along half a wave over the n_steps that will be taken; the
 * first warm_up * n_steps of them come in linearly from 0, as a factor on that. */
typedef struct rvi_schedule {
    int n_steps;
    double rate, least, warm_up;
} rvi_schedule;

double rvi_schedule_rate(const rvi_schedule *s, int step); /* step: from 0 */

/* ---- AdamW ---- */

typedef struct rvi_adamw {
    float beta1, beta2, eps;
    float decay; /* of the weights, apart from the gradient: theta -= rate * decay * theta */
    float clip;  /* the longest gradient, in the 2-norm over all of it; 0: any */
} rvi_adamw;

#define RVI_ADAMW_USUAL ((rvi_adamw){.beta1 = 0.9f, .beta2 = 0.99f, .eps = 1e-8f, .clip = 1})

/* m, v and n_steps are the whole state: stored and put back, training goes on as if it had not been
 * interrupted. */
typedef struct rvi_optimizer {
    rvi_adamw o;
    float *m, *v;    /* means of the gradient and of its square */
    double *squares; /* of the gradient, summed by pieces */
    size_t n;
    int64_t n_steps;
    rvi_backend *be; /* whose threads share the work; NULL (after new): the caller's thread alone */
} rvi_optimizer;

rv_status rvi_optimizer_new(rvi_optimizer **out, size_t n, const rvi_adamw *o,
                            rv_error *err) RVI_MUST_CHECK;
void rvi_optimizer_free(rvi_optimizer *p); /* accepts NULL */

/* One step down the gradient. False: the gradient is not finite and nothing was changed. norm (may
 * be NULL): the gradient's, before clipping. */
bool rvi_optimizer_step(rvi_optimizer *p, float *theta, const float *grad, double rate,
                        double *norm) RVI_MUST_CHECK;

/* A random direction of the same length instead of the gradient: a control that learning must fail
 * with. NaN stays NaN. */
void rvi_gradient_randomise(float *grad, size_t n, uint64_t seed);
double rvi_gradient_norm(const float *grad, size_t n);

#endif
