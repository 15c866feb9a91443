/* avx512_panels.c - the AVX-512 row for quantized data: activations to int8, products by VNNI. Packing and dequantizing
 * are AVX2's. */
#if defined(__x86_64__)

#include "kernels/avx512_panels.h"
#include "kernels/rows.h"

#define X(...) DEFINE_PANELS(__VA_ARGS__)
QUANTIZED(X)
#undef X

static void quantize_act(const float *x, rvi_act_block *out, size_t n)
{
    for (; n; n -= 32, x += 32, out++) {
        out->sum = quantize32(x, &out->d, out->q);
        out->d_sum = out->d * (float)out->sum;
    }
}

static void quantize_wide(const float *x, rvi_act_wide *out, size_t n)
{
    for (; n; n -= 256, x += 256, out++) {
        float inverse = choose_wide_scale(x, &out->d);
        for (int i = 0; i < 4; i++) {
            int32_t sums[4];
            quantize64(x + 64 * i, inverse, out->q + 64 * i, sums);
            for (int j = 0; j < 4; j++) out->sum16[4 * i + j] = (int16_t)sums[j];
        }
        for (int i = 0; i < 8; i++) out->sum32[i] = (int16_t)(out->sum16[2 * i] + out->sum16[2 * i + 1]);
    }
}

void rvi_kernels_fill_avx512_panels(rvi_kernels *k)
{
    k->quantize_act = quantize_act;
    k->quantize_wide = quantize_wide;
#define X(name, ...) FILL_PANELS(k, name)
    QUANTIZED(X)
#undef X
}

#else
typedef int rvi_no_avx512_panels_here; /* a C file must not be empty */
#endif
