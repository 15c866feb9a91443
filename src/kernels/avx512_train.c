/* avx512_train.c - the AVX-512 row's training entries: vector_train.h with registers of 16 lanes.
 *
 * Built with the flags for these instructions; nothing here may run before table.c has found them. */
#if defined(__x86_64__)

#include "kernels/avx512.h"
#include "kernels/rows.h"

#define GEMM_NAME   "avx512 f32"
#define GEMM_ROWS   12
#define GEMM_PANELS 2
#include "kernels/vector_train.h"

void rvi_kernels_fill_avx512_train(rvi_kernels *k)
{
    fill_train(k);
}

#else
typedef int rvi_no_avx512_train_here; /* a C file must not be empty */
#endif
