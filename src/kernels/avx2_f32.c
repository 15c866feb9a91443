/* avx2_f32.c - the AVX2 + FMA + F16C row: vector_f32.h with registers of 8 lanes; avx2_quant.c and
 * avx2_panels.c have the quantized types.
 *
 * Built with the flags for these instructions; nothing here may run before table.c has found them. */
#if defined(__x86_64__)

#include "kernels/avx2.h"
#include "kernels/rows.h"
#include "kernels/vector_f32.h"

void rvi_kernels_fill_avx2(rvi_kernels *k)
{
    fill_f32(k);
    rvi_kernels_fill_avx2_attention(k);
    rvi_kernels_fill_avx2_float(k);
    rvi_kernels_fill_avx2_train(k);
    rvi_kernels_fill_avx2_quant(k);
    rvi_kernels_fill_avx2_panels(k);
}

#else
typedef int rvi_no_avx2_f32_here; /* a C file must not be empty */
#endif
