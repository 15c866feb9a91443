/* neon_train.c - the NEON row's training entries: vector_train.h with registers of 4 lanes.
 *
 * Built with the flags for these instructions; nothing here may run before table.c has found them. */
#if defined(__aarch64__)

#include "kernels/neon.h"
#include "kernels/rows.h"

#define GEMM_NAME   "neon f32"
#define GEMM_ROWS   6
#define GEMM_PANELS 1
#include "kernels/vector_train.h"

void rvi_kernels_fill_neon_train(rvi_kernels *k)
{
    fill_train(k);
}

#else
typedef int rvi_no_neon_train_here; /* a C file must not be empty */
#endif
