/* kernels.h - the arithmetic, as a table of functions filled from reference to best.
 *
 * No malloc, no threads, no logs; nothing here can fail. The scalar row (ref.c) is the specification and every
 * faster row gives THE SAME BITS. That is possible because each operation's order is written down here and is
 * the same for every vector width:
 *
 *  sum16   A sum over n f32 products runs in 16 lanes: lane j takes elements j, j+16, j+32, ... in order, each
 *          by one fused multiply-add onto the lane, starting from +0. Elements past the last whole 16 go to the
 *          lanes they fall on (lanes without one are left as they are). Then the lanes are added as a tree:
 *          l[j] += l[j+8] for j < 8, l[j] += l[j+4], l[j] += l[j+2], l[0] + l[1].
 *  chain   Products with int8 activations: one f32 accumulator per output, starting from +0, block after block;
 *          inside a block of 32 the integer dot product is exact (int32). The step of each type stands at
 *          rvi_gemm_act_fn.
 *  exp     One polynomial (exp.h), evaluated by the same fused multiply-adds in the same order; below about
 *          -87.34 it is 0.
 *
 * So the result of one output row never depends on how many rows go together: gemm over 1 x 1, 3 x 2 or 64 x
 * 512 agree. */
#ifndef RVI_KERNELS_KERNELS_H
#define RVI_KERNELS_KERNELS_H

#include <stdbool.h>

#include "formats/qtypes.h"

/* 32 activations as int8: x ~ d * q, d = amax / 127, q = round to nearest even of x * (127 / amax).
 * amax below 1e-30: d = 0, q = 0. Any NaN or infinity among the 32: d = NaN, q = 0 (so the result is NaN, never
 * garbage). |q| <= 127, never -128: the products rely on it. */
typedef struct rvi_act_block {
    float d;
    int16_t sum[2]; /* sum of q[0..15], of q[16..31] */
    int8_t q[32];
} rvi_act_block;
_Static_assert(sizeof(rvi_act_block) == 40, "act block size");

/* Tile of a product with int8 activations:
 *     out[ix * out_stride + iw] = sum over k of w[iw][k] * x[ix][k],  iw < n_w, ix < n_x,
 *     k < n (a multiple of the type's block: 32 or 256)
 * w: rows of one quantized type, w_stride bytes apart, any alignment. x: rows of n / 32 blocks, x_stride blocks
 * apart. Step for block b of 32, where dot is the exact integer dot product of the block's quants, their offset
 * removed (q - 8, q - 16, table value), with x's q; dot0 and dot1 are those of its halves; xd is x's d; dw and dmin
 * are the f16 scales as f32; sc and mn the integer scales and minima:
 *     Q4_0 Q5_0 Q8_0 IQ4_NL   acc = fma((float)dot, dw * xd, acc)
 *     Q4_1 Q5_1               acc = fma((float)dot, dw * xd, acc)
 *                             acc = fma(m, xd * (float)(sum0 + sum1), acc)
 *     Q4_K Q5_K               acc = fma((float)(sc * dot), dw * xd, acc)
 *                             acc = fma(-(float)(mn * (sum0 + sum1)), dmin * xd, acc)
 *     Q2_K                    acc = fma((float)(sc0 * dot0 + sc1 * dot1), dw * xd, acc)
 *                             acc = fma(-(float)(mn0 * sum0 + mn1 * sum1), dmin * xd, acc)
 *     Q3_K Q6_K               acc = fma((float)(sc0 * dot0 + sc1 * dot1), dw * xd, acc)
 *     IQ4_XS                  acc = fma((float)(sc * dot), dw * xd, acc) */
typedef void (*rvi_gemm_act_fn)(const void *w, size_t w_stride, int n_w, const rvi_act_block *x, size_t x_stride,
                                int n_x, float *out, size_t out_stride, size_t n);

typedef struct rvi_kernels {
    const char *isa; /* of the best row that took part */

    void (*quantize_act)(const float *x, rvi_act_block *out, size_t n);  /* n: a multiple of 32 */
    rvi_gemm_act_fn gemm_act[RVI_QTYPE_COUNT];                           /* NULL for F32, F16, BF16 */

    /* Exact mode and float weights: rows become f32 first (bit-equal to rvi_dequantize), then sum16. */
    void (*dequantize[RVI_QTYPE_COUNT])(const void *src, float *dst, size_t n);
    /* out[ix * out_stride + iw] = sum16 over k of w[iw * w_stride + k] * x[ix * x_stride + k]; any n, strides
     * in floats */
    void (*gemm_f32)(const float *w, size_t w_stride, int n_w, const float *x, size_t x_stride, int n_x,
                     float *out, size_t out_stride, size_t n);

    /* out = (x * (1 / sqrt(sum16(x * x) / n + eps))) * w; out may be x. The mean is a division by (float)n. */
    void (*rms_norm)(float *out, const float *x, const float *w, size_t n, float eps);
    /* m = s / n, s: sum16 of the products x * 1; c = x - m; r = 1 / sqrt(sum16(c * c) / n + eps);
     * out = fma(c * r, w, b); out may be x. Divisions are by (float)n. */
    void (*layer_norm)(float *out, const float *x, const float *w, const float *b, size_t n, float eps);
    void (*add)(float *x, const float *y, size_t n);                     /* x += y */
    void (*scale)(float *x, float s, size_t n);                          /* x *= s */
    void (*axpy)(float *x, float s, const float *y, size_t n);           /* x = fma(s, y, x) */
    /* (g / (1 + exp(-g))) * u; out may be gate or up */
    void (*silu_mul)(float *out, const float *gate, const float *up, size_t n);
    /* The tanh form: (g / (1 + exp(z * (g * fma(0.044715, g * g, 1))))) * u, z = -2 sqrt(2 / pi); out may be
     * gate or up */
    void (*gelu_mul)(float *out, const float *gate, const float *up, size_t n);
    void (*gelu)(float *x, size_t n);      /* x * Phi(x), the exact form (gelu.h) */
    void (*gelu_tanh)(float *x, size_t n); /* g / (1 + exp(...)) as in gelu_mul */
    void (*relu)(float *x, size_t n);      /* 0 where x < 0; -0 and NaN stay */
    /* cap * tanh(x / cap), as cap * (1 - 2 / (exp(2 * (x / cap)) + 1)) */
    void (*soft_cap)(float *x, float cap, size_t n);

    /* Rotates pairs by the angles of one position: (a, b) -> (a c - b s, b c + a s), as fma(a, c, -(b * s)) and
     * fma(b, c, a * s). Pair i is (x[i], x[i + n_pairs]), or (x[2i], x[2i+1]) when interleaved. In place, one head. */
    void (*rope)(float *x, const float *cos, const float *sin, size_t n_pairs, bool interleaved);

    void (*f32_to_f16)(const float *x, rvi_f16 *out, size_t n);
    void (*f16_to_f32)(const rvi_f16 *x, float *out, size_t n);

    /* Attention over up to 32 keys of one page: rows of n = head size f32 or f16 (widened exactly), one after the
     * other. score[i] = sum16(q * k_i). */
    void (*attn_score_f32)(const float *q, const float *k, int n_keys, size_t n, float *score);
    void (*attn_score_f16)(const float *q, const rvi_f16 *k, int n_keys, size_t n, float *score);
    /* acc = fma(p[i], v_i, acc), i in order */
    void (*attn_mix_f32)(float *acc, const float *p, const float *v, int n_keys, size_t n);
    void (*attn_mix_f16)(float *acc, const float *p, const rvi_f16 *v, int n_keys, size_t n);
    /* One step of the online softmax, given n <= 32 scores, the running maximum *m (start: -infinity) and sum *l:
     *     m' = max(*m, all scores)          a NaN score is passed over; a maximum of zero is +0
     *     score[i] = exp(score[i] - m')
     *     factor = exp(*m - m')             for what was summed before; 0 at the first step; returned
     *     *l = fma(*l, factor, s)           s: the plain sum of the new scores in order i = 0, 1, ...
     *     *m = m' */
    float (*softmax_step)(float *score, int n, float *m, float *l);
    /* The maximum of a row of logits: NaN if any is NaN, -infinity if n is 0, +0 if it is a zero of either sign. */
    float (*max)(const float *x, size_t n);
} rvi_kernels;

/* ISA rows from reference to best; a row's name is what --isa takes. */
#define RVI_ISA_LIST(X)  \
    X(ref, "scalar C")   \
    X(avx2, "x86-64 with AVX2, FMA, F16C") \
    X(neon, "aarch64 with Advanced SIMD")

/* Fills k with every row this machine has, up to and including `isa` (NULL: all). False if the name is unknown
 * or the machine lacks it (k is then filled with the reference). */
bool rvi_kernels_init(rvi_kernels *k, const char *isa);

/* The names this machine can run, reference first, NULL-terminated. */
const char *const *rvi_kernels_available(void);

#endif
