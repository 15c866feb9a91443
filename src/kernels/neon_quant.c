/* neon_quant.c - the Advanced SIMD row for quantized data, without the dot product extension: vector_quant.h
 * with four rows of weights in the lanes.
 *
 * Bounds: |activation| <= 127 (quantize_act), so two products fit int16: 2 * 128 * 127 = 32512 < 2^15. */
#if defined(__aarch64__)

#include <math.h>

#include "kernels/neon.h"
#include "kernels/rows.h"
#include "kernels/vector_quant.h"

/* ---- activations ---- */

/* The bits of |x| order as integers like the values, with infinity and then NaN on top. */
static void quantize_block(const float *x, rvi_act_block *out)
{
    float32x4_t v[8];
    uint32x4_t top = vdupq_n_u32(0);
    UNROLL for (int i = 0; i < 8; i++) {
        v[i] = vld1q_f32(x + 4 * i);
        top = vmaxq_u32(top, vreinterpretq_u32_f32(vabsq_f32(v[i])));
    }
    uint32_t amax_bits = vmaxvq_u32(top);
    float amax;
    memcpy(&amax, &amax_bits, sizeof amax);
    if (!(amax >= 1e-30f && amax < INFINITY)) {
        memset(out, 0, sizeof *out);
        if (!(amax < INFINITY)) out->d = NAN;
        return;
    }

    const float inverse = 127.0f / amax;
    out->d = amax / 127.0f;
    UNROLL for (int half = 0; half < 2; half++) {
        int16x4_t s[4];
        UNROLL for (int i = 0; i < 4; i++) s[i] = vmovn_s32(vcvtnq_s32_f32(vmulq_n_f32(v[4 * half + i], inverse)));
        int8x16_t q = vcombine_s8(vmovn_s16(vcombine_s16(s[0], s[1])), vmovn_s16(vcombine_s16(s[2], s[3])));
        vst1q_s8(out->q + 16 * half, q);
        out->sum[half] = vaddlvq_s8(q);
    }
}

static void quantize_act(const float *x, rvi_act_block *out, size_t n)
{
    for (size_t b = 0; b < n / 32; b++) quantize_block(x + 32 * b, out + b);
}

/* ---- products ---- */

/* 16 products, added in pairs to 8 and then to 4 sums. */
static ALWAYS_INLINE int32x4_t multiply16(int8x16_t w, int8x16_t x)
{
    return vpaddlq_s16(vmlal_high_s8(vmull_s8(vget_low_s8(w), vget_low_s8(x)), w, x));
}

static ALWAYS_INLINE ints dot_rows(const panel *p, int b, const rvi_act_block *x, traits t)
{
    int8x16_t x0 = vld1q_s8(x->q), x1 = vld1q_s8(x->q + 16);
    int32x4_t v[WIDTH];
    UNROLL for (int r = 0; r < WIDTH; r++) {
        int32x4_t first = multiply16(vld1q_s8(p->q[b][r]), x0), last = multiply16(vld1q_s8(p->q[b][r] + 16), x1);
        if (t.scaled) {
            pair scale = p->scale[b][r];
            v[r] = vmlaq_n_s32(vmulq_n_s32(first, pair_part(scale, 0)), last, pair_part(scale, 1));
        } else {
            v[r] = vaddq_s32(first, last);
        }
    }
    return vpaddq_s32(vpaddq_s32(v[0], v[1]), vpaddq_s32(v[2], v[3]));
}

#define X(...) DEFINE_TYPE(gemm_rows, __VA_ARGS__)
QUANTIZED(X)
#undef X

void rvi_kernels_fill_neon_quant(rvi_kernels *k)
{
    k->quantize_act = quantize_act;
#define X(...) FILL_TYPE(k, __VA_ARGS__)
    QUANTIZED(X)
#undef X
}

#else
typedef int rvi_no_neon_quant_here; /* a C file must not be empty */
#endif
