/* neon_f32.c - the Advanced SIMD row: vector_f32.h with registers of 4 lanes; neon_quant.c and neon_panels.c
 * have the quantized types. */
#if defined(__aarch64__)

#include "kernels/neon.h"
#include "kernels/rows.h"
#include "kernels/vector_f32.h"

void rvi_kernels_fill_neon(rvi_kernels *k)
{
    fill_f32(k);
    rvi_kernels_fill_neon_attention(k);
    rvi_kernels_fill_neon_float(k);
    rvi_kernels_fill_neon_train(k);
    rvi_kernels_fill_neon_quant(k);
    rvi_kernels_fill_neon_panels(k);
}

#else
typedef int rvi_no_neon_f32_here; /* a C file must not be empty */
#endif
