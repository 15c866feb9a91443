/* neon_quant.c - the Advanced SIMD row for quantized data: activations to int8, weights to f32, weights into panels. */
#if defined(__aarch64__)

#include <math.h>

#include "kernels/neon.h"
#include "kernels/rows.h"
#include "kernels/vector_quant.h"

/* ---- activations ---- */

/* The largest magnitude of n values. Its bits order as integers like the values, with infinity and then NaN on top. */
static ALWAYS_INLINE float largest_magnitude(const float *x, int n)
{
    uint32x4_t top = vdupq_n_u32(0);
    for (int i = 0; i < n; i += 4) top = vmaxq_u32(top, vreinterpretq_u32_f32(vabsq_f32(vld1q_f32(x + i))));
    uint32_t bits = vmaxvq_u32(top);
    float amax;
    memcpy(&amax, &bits, sizeof amax);
    return amax;
}

/* 16 integers; their sum. */
static ALWAYS_INLINE int16_t quantize16(const float *x, float inverse, int8_t *q)
{
    int16x4_t s[4];
    UNROLL for (int i = 0; i < 4; i++) s[i] = vmovn_s32(vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + 4 * i), inverse)));
    int8x16_t v = vcombine_s8(vmovn_s16(vcombine_s16(s[0], s[1])), vmovn_s16(vcombine_s16(s[2], s[3])));
    vst1q_s8(q, v);
    return vaddlvq_s8(v);
}

static void quantize_act(const float *x, rvi_act_block *out, size_t n)
{
    for (; n; n -= 32, x += 32, out++) {
        float amax = largest_magnitude(x, 32);
        if (amax >= 1e-30f && amax < INFINITY) {
            float inverse = 127.0f / amax;
            out->d = amax / 127.0f;
            out->sum = quantize16(x, inverse, out->q) + quantize16(x + 16, inverse, out->q + 16);
            out->d_sum = out->d * (float)out->sum;
        } else {
            memset(out, 0, sizeof *out);
            if (!(amax < INFINITY)) out->d = out->d_sum = NAN;
        }
    }
}

static void quantize_wide(const float *x, rvi_act_wide *out, size_t n)
{
    for (; n; n -= 256, x += 256, out++) {
        float amax = largest_magnitude(x, 256);
        if (amax >= 1e-30f && amax < INFINITY) {
            float inverse = 127.0f / amax;
            out->d = amax / 127.0f;
            for (int i = 0; i < 16; i++) out->sum16[i] = quantize16(x + 16 * i, inverse, out->q + 16 * i);
            for (int i = 0; i < 8; i++) out->sum32[i] = (int16_t)(out->sum16[2 * i] + out->sum16[2 * i + 1]);
        } else {
            memset(out, 0, sizeof *out);
            if (!(amax < INFINITY)) out->d = NAN;
        }
    }
}

#define X(...) DEFINE_QUANT(__VA_ARGS__)
QUANTIZED(X)
#undef X

void rvi_kernels_fill_neon_quant(rvi_kernels *k)
{
    k->quantize_act = quantize_act;
    k->quantize_wide = quantize_wide;
#define X(name, ...) FILL_QUANT(k, name)
    QUANTIZED(X)
#undef X
}

#else
typedef int rvi_no_neon_quant_here; /* a C file must not be empty */
#endif
