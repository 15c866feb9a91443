/* params.h - the parameters of an adapter that is being trained: one flat array, and an adapter
 * whose matrices are views of it.
 *
 * Layout: slot after slot in the order of the model's targets, A (rank x n_in) then B (n_out x
 * rank), so that optimizers, Fisher information and snapshots work on one array. Gradients are a
 * second object of the same shape. */
#ifndef RVI_LORA_PARAMS_H
#define RVI_LORA_PARAMS_H

#include "lora/adapter.h"

typedef struct rvi_params {
    float *theta; /* memory of the backend (host_new) */
    size_t n;
    int rank;
    float scale;          /* alpha / rank */
    rvi_tensor *whole;    /* a view of theta */
    rvi_adapter *adapter; /* parts of it: always has its current values */
} rvi_params;

/* wanted(ctx, target): whether this linear layer is trained. All values are zero. */
rv_status rvi_params_new(rvi_params **out, rvi_backend *be, const rvi_lora_target *targets,
                         int n_targets, bool (*wanted)(const void *ctx, int target),
                         const void *ctx, int rank, float alpha, rv_error *err) RVI_MUST_CHECK;
/* The same shape, all zero. */
rv_status rvi_params_like(rvi_params **out, const rvi_params *p, rv_error *err) RVI_MUST_CHECK;
void rvi_params_free(rvi_params *p); /* accepts NULL */
/* A ~ U(-1/sqrt(n_in), 1/sqrt(n_in)), B = 0. */
void rvi_params_init_random(rvi_params *p, uint64_t seed);

#endif
