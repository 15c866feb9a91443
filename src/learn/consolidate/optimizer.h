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

/* ---- rates ---- */

typedef enum rvi_schedule_kind {
    RVI_SCHEDULE_CONSTANT,
    RVI_SCHEDULE_LINEAR,      /* rate to least */
    RVI_SCHEDULE_COSINE,      /* rate to least along half a wave */
    RVI_SCHEDULE_EXPONENTIAL, /* rate to rate * decay */
    RVI_SCHEDULE_STEP, /* rate times decay after each of n_drops + 1 equal parts but the last */
    RVI_SCHEDULE_ONE_CYCLE, /* rate / 25 up to rate over 30 %, down to rate / 10,000 at the end */
    RVI_SCHEDULE_COUNT
} rvi_schedule_kind;

/* n_steps is the number of steps that will be taken: every curve ends with them. The first warm_up
 * * n_steps steps come in linearly from 0, as a factor on the curve (one-cycle has a warm-up of its
 * own). */
typedef struct rvi_schedule {
    rvi_schedule_kind kind;
    int n_steps;
    double rate, least, warm_up;
    double decay; /* exponential and step; 0: 0.1 */
    int n_drops;  /* step; 0: 2 */
} rvi_schedule;

double rvi_schedule_rate(const rvi_schedule *s, int step); /* step: from 0 */
const char *rvi_schedule_name(rvi_schedule_kind kind);     /* "one-cycle" */
bool rvi_schedule_by_name(rvi_schedule_kind *out, const char *name);

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
void rvi_optimizer_free(rvi_optimizer *p);  /* accepts NULL */
void rvi_optimizer_reset(rvi_optimizer *p); /* as after new */

/* One step down the gradient. False: the gradient is not finite and nothing was changed. norm (may
 * be NULL): the gradient's, before clipping. */
bool rvi_optimizer_step(rvi_optimizer *p, float *theta, const float *grad, double rate,
                        double *norm) RVI_MUST_CHECK;

/* A random direction of the same length instead of the gradient: a control that learning must fail
 * with. NaN stays NaN. */
void rvi_gradient_randomise(float *grad, size_t n, uint64_t seed);
double rvi_gradient_norm(const float *grad, size_t n);

#endif
