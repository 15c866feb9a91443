/* avx2_train.c - the AVX2 row's training entries: vector_train.h with registers of 8 lanes.
 *
 * Built with the flags for these instructions; nothing here may run before table.c has found them. */
#if defined(__x86_64__)

#include "kernels/avx2.h"
#include "kernels/rows.h"

#define GEMM_NAME   "avx2 f32"
#define GEMM_ROWS   6
#define GEMM_PANELS 1
#include "kernels/vector_train.h"

void rvi_kernels_fill_avx2_train(rvi_kernels *k)
{
    fill_train(k);
}

#else
typedef int rvi_no_avx2_train_here; /* a C file must not be empty */
#endif
