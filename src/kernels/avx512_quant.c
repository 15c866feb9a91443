/* avx512_quant.c - the AVX-512 row for quantized weights to f32, and into panels.
 *
 * Built with the flags for these instructions; nothing here may run before table.c has found them. */
#if defined(__x86_64__)

#include <math.h>
#include <string.h>

#include "kernels/avx512.h"
#include "kernels/rows.h"
#include "kernels/vector_quant.h"

#define X(...) DEFINE_QUANT(__VA_ARGS__)
QUANTIZED(X)
#undef X

void rvi_kernels_fill_avx512_quant(rvi_kernels *k)
{
#define X(name, ...) FILL_QUANT(k, name)
    QUANTIZED(X)
#undef X
}

#else
typedef int rvi_no_avx512_quant_here; /* a C file must not be empty */
#endif
