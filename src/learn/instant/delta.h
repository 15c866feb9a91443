/* delta.h - a change of the last layer's down projection: W + sum over j of b_j a_j^T. */
#ifndef RVI_LEARN_DELTA_H
#define RVI_LEARN_DELTA_H

#include "model/model.h"

typedef struct rvi_delta {
    int rank;
    const float *a, *b; /* [rank][n_ff], [rank][n_embd] */
} rvi_delta;

/* As an adapter of that one layer, a copy; rank 1 to RVI_MAX_RANK. */
rv_status rvi_delta_export(rvi_adapter **out, const rvi_model *m, const rvi_delta *d,
                           rv_error *err) RVI_MUST_CHECK;

/* The Frobenius norm of the projection's own matrix. Uses the backend. */
rv_status rvi_delta_weight_norm(double *out, const rvi_model *m, rv_error *err) RVI_MUST_CHECK;

#endif
