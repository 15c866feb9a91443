/* avx512_f32.c - the AVX-512 row: vector_f32.h with registers of 16 lanes.
 *
 * Built with the flags for these instructions; nothing here may run before table.c has found them. */
#if defined(__x86_64__)

#include "kernels/avx512.h"
#include "kernels/rows.h"
#include "kernels/vector_f32.h"

void rvi_kernels_fill_avx512(rvi_kernels *k)
{
    fill_f32(k);
    rvi_kernels_fill_avx512_panels(k);
    rvi_kernels_fill_avx512_attention(k);
    rvi_kernels_fill_avx512_float(k);
    rvi_kernels_fill_avx512_train(k);
    rvi_kernels_fill_avx512_quant(k);
}

#else
typedef int rvi_no_avx512_f32_here; /* a C file must not be empty */
#endif
