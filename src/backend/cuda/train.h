/* train.h - what the files of training on a CUDA device share.
 *
 * Linear layers are products of operands (train_args.h): rows, weights and adapters are turned into
 * these first, in scratch that each call begins to fill anew; what runs on the device runs in the
 * order of the calls. Frozen weights are held as operands, as they are and turned, as long as a
 * trainer lives. */
#ifndef RVI_BACKEND_CUDA_TRAIN_H
#define RVI_BACKEND_CUDA_TRAIN_H

#include "backend/cuda/cuda.h"

typedef struct rvi_cuda_train {
    int max_rows, max_cols, max_vocab;
    rvi_cuda_at operands; /* scratch of linear layers, */
    size_t operands_bytes, used;
    rvi_cuda_at losses; /* of rows, */
    float *losses_host;
    rvi_cuda_at stats; /* of queries: max_rows times max_cols of them at most */
    size_t counted;
} rvi_cuda_train;

struct rvi_held {
    rvi_cuda_at w, turned; /* n_out rows of n_in; n_in rows of n_out, or 0 */
};

static inline size_t rvi_cuda_padded(int n)
{
    return ((size_t)n + RVI_CUDA_OPERAND - 1) / RVI_CUDA_OPERAND * RVI_CUDA_OPERAND;
}

static inline size_t rvi_cuda_element(const rvi_cuda *c)
{
    return c->exact ? sizeof(float) : 2;
}

/* Starts what was collected, if that is much: the device need not wait for the whole step. */
void rvi_cuda_start_early(rvi_cuda *c);

#endif
