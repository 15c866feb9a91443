/* ref_quant.c - the scalar row for quantized data: the specification of quantize_act, quantize_wide, gemm_act and
 * dequantize.
 *
 * A block of any type becomes integers first (struct ints); one loop then runs the chain for all types. Weight i
 * of a block is
 *     d * scale[i / 16] * q[i]  (+ m, or - dmin * min[i / 16])
 * and the chain keeps integers and scales apart, as kernels.h says. */
#include <math.h>
#include <string.h>

#include "kernels/kernels.h"
#include "kernels/rows.h"

/* ---- activations ---- */

/* n values: their d, and the factor that makes integers of them; 0: all of these are 0. */
static float choose_scale(const float *x, int n, float *d)
{
    float amax = 0.0f;
    *d = 0.0f;
    for (int i = 0; i < n; i++) {
        if (!isfinite(x[i])) {
            *d = NAN;
            return 0.0f;
        }
        amax = fmaxf(amax, fabsf(x[i]));
    }
    if (amax < 1e-30f) return 0.0f;
    *d = amax / 127.0f;
    return 127.0f / amax;
}

static int8_t quantize(float x, float inverse)
{
    return inverse == 0.0f ? 0 : (int8_t)rintf(x * inverse);
}

static void quantize_act(const float *x, rvi_act_block *out, size_t n)
{
    for (; n; n -= 32, x += 32, out++) {
        memset(out, 0, sizeof *out);
        float inverse = choose_scale(x, 32, &out->d);
        for (int i = 0; i < 32; i++) {
            out->q[i] = quantize(x[i], inverse);
            out->sum += out->q[i];
        }
        out->d_sum = out->d * (float)out->sum;
    }
}

static void quantize_wide(const float *x, rvi_act_wide *out, size_t n)
{
    for (; n; n -= 256, x += 256, out++) {
        memset(out, 0, sizeof *out);
        float inverse = choose_scale(x, 256, &out->d);
        for (int i = 0; i < 256; i++) {
            out->q[i] = quantize(x[i], inverse);
            out->sum16[i / 16] = (int16_t)(out->sum16[i / 16] + out->q[i]);
            out->sum32[i / 32] = (int16_t)(out->sum32[i / 32] + out->q[i]);
        }
    }
}

/* ---- weights as integers ---- */

typedef struct ints {
    float d, m;             /* m: the minimum of Q4_1 and Q5_1, dmin of the K types, 0 for the others */
    int scale[16], min[16]; /* of each 16 weights; 1 and 0 where the type has none */
    int q[256];             /* offset removed */
} ints;

/* Copies the block at src, whatever its alignment, into a local b. */
#define LOAD(type)                                                                                                     \
    type b;                                                                                                            \
    memcpy(&b, src, sizeof b)

static void plain_scales(ints *w, rvi_f16 d)
{
    w->d = rvi_f16_to_f32(d);
    w->m = 0.0f;
    for (int g = 0; g < 16; g++) {
        w->scale[g] = 1;
        w->min[g] = 0;
    }
}

/* 32 four-bit values: the low nibbles of 16 bytes, then the high nibbles. */
static void nibbles(int *q, const uint8_t *qs)
{
    for (int i = 0; i < 16; i++) {
        q[i] = qs[i] & 15;
        q[i + 16] = qs[i] >> 4;
    }
}

static void add_fifth_bits(int *q, const uint8_t *qh)
{
    for (int i = 0; i < 32; i++) q[i] += (qh[i / 8] >> (i % 8) & 1) * 16;
}

static void add_to_all(int *q, int n, int value)
{
    for (int i = 0; i < n; i++) q[i] += value;
}

static void unpack_Q4_0(const uint8_t *src, ints *w)
{
    LOAD(rvi_block_q4_0);
    plain_scales(w, b.d);
    nibbles(w->q, b.qs);
    add_to_all(w->q, 32, -8);
}

static void unpack_Q4_1(const uint8_t *src, ints *w)
{
    LOAD(rvi_block_q4_1);
    plain_scales(w, b.d);
    w->m = rvi_f16_to_f32(b.m);
    nibbles(w->q, b.qs);
}

static void unpack_Q5_0(const uint8_t *src, ints *w)
{
    LOAD(rvi_block_q5_0);
    plain_scales(w, b.d);
    nibbles(w->q, b.qs);
    add_fifth_bits(w->q, b.qh);
    add_to_all(w->q, 32, -16);
}

static void unpack_Q5_1(const uint8_t *src, ints *w)
{
    LOAD(rvi_block_q5_1);
    plain_scales(w, b.d);
    w->m = rvi_f16_to_f32(b.m);
    nibbles(w->q, b.qs);
    add_fifth_bits(w->q, b.qh);
}

static void unpack_Q8_0(const uint8_t *src, ints *w)
{
    LOAD(rvi_block_q8_0);
    plain_scales(w, b.d);
    for (int i = 0; i < 32; i++) w->q[i] = b.qs[i];
}

static void look_up_iq4(int *q, int n)
{
    for (int i = 0; i < n; i++) q[i] = rvi_iq4_values[q[i]];
}

static void unpack_IQ4_NL(const uint8_t *src, ints *w)
{
    LOAD(rvi_block_iq4_nl);
    plain_scales(w, b.d);
    nibbles(w->q, b.qs);
    look_up_iq4(w->q, 32);
}

/* Two-bit values of Q2_K and Q3_K: each 32 bytes hold 128 weights, 32 to each pair of bits. */
static void bit_pairs(int *q, const uint8_t *qs)
{
    for (int i = 0; i < 256; i++) q[i] = qs[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
}

static void unpack_Q2_K(const uint8_t *src, ints *w)
{
    LOAD(rvi_block_q2_k);
    w->d = rvi_f16_to_f32(b.d);
    w->m = rvi_f16_to_f32(b.dmin);
    for (int g = 0; g < 16; g++) {
        w->scale[g] = b.scales[g] & 15;
        w->min[g] = b.scales[g] >> 4;
    }
    bit_pairs(w->q, b.qs);
}

/* Scales: 6 bits, less 32. Four low bits in nibble g / 8 of byte g % 8, two high bits in pair g / 4 of
 * byte 8 + g % 4. Weights: the third bit of weight i is bit i / 32 of hmask[i % 32]; the offset is 4. */
static void unpack_Q3_K(const uint8_t *src, ints *w)
{
    LOAD(rvi_block_q3_k);
    plain_scales(w, b.d);
    for (int g = 0; g < 16; g++) {
        int low = b.scales[g % 8] >> (g / 8 * 4) & 15, high = b.scales[8 + g % 4] >> (g / 4 * 2) & 3;
        w->scale[g] = high * 16 + low - 32;
    }
    bit_pairs(w->q, b.qs);
    for (int i = 0; i < 256; i++) w->q[i] += (b.hmask[i % 32] >> (i / 32) & 1) * 4 - 4;
}

/* Q4_K and Q5_K: eight scales and eight minima of 6 bits in 12 bytes. The first four of each fill the low bits
 * of bytes 0..3 and 4..7; the last four have their low nibbles in bytes 8..11 (scale low, minimum high) and
 * their high bits atop bytes 0..7. */
static void six_bit_scales(ints *w, const uint8_t *s)
{
    for (int g = 0; g < 16; g++) {
        int j = g / 2;
        w->scale[g] = j < 4 ? s[j] & 63 : (s[j + 4] & 15) + (s[j - 4] >> 6) * 16;
        w->min[g] = j < 4 ? s[j + 4] & 63 : (s[j + 4] >> 4) + (s[j] >> 6) * 16;
    }
}

/* Each 32 bytes hold 64 weights: the low nibbles, then the high nibbles. */
static void wide_nibbles(int *q, const uint8_t *qs)
{
    for (int i = 0; i < 256; i++) q[i] = qs[i / 64 * 32 + i % 32] >> (i % 64 / 32 * 4) & 15;
}

static void unpack_Q4_K(const uint8_t *src, ints *w)
{
    LOAD(rvi_block_q4_k);
    w->d = rvi_f16_to_f32(b.d);
    w->m = rvi_f16_to_f32(b.dmin);
    six_bit_scales(w, b.scales);
    wide_nibbles(w->q, b.qs);
}

static void unpack_Q5_K(const uint8_t *src, ints *w)
{
    LOAD(rvi_block_q5_k);
    w->d = rvi_f16_to_f32(b.d);
    w->m = rvi_f16_to_f32(b.dmin);
    six_bit_scales(w, b.scales);
    wide_nibbles(w->q, b.qs);
    for (int i = 0; i < 256; i++) w->q[i] += (b.qh[i % 32] >> (i / 32) & 1) * 16;
}

/* Each half of 128 weights: 64 bytes of low nibbles (64 weights low, 64 weights high), 32 bytes of bit pairs. */
static void unpack_Q6_K(const uint8_t *src, ints *w)
{
    LOAD(rvi_block_q6_k);
    plain_scales(w, b.d);
    for (int g = 0; g < 16; g++) w->scale[g] = b.scales[g];
    for (int i = 0; i < 256; i++) {
        int low = b.ql[i / 128 * 64 + i % 64] >> (i % 128 / 64 * 4) & 15;
        int high = b.qh[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
        w->q[i] = high * 16 + low - 32;
    }
}

/* Scales: 6 bits, less 32, one for each 32 weights: four low bits from scales_l, two high bits from scales_h. */
static void unpack_IQ4_XS(const uint8_t *src, ints *w)
{
    LOAD(rvi_block_iq4_xs);
    plain_scales(w, b.d);
    for (int g = 0; g < 16; g++) {
        int j = g / 2;
        int low = b.scales_l[j / 2] >> (j % 2 * 4) & 15, high = b.scales_h >> (2 * j) & 3;
        w->scale[g] = high * 16 + low - 32;
    }
    for (int j = 0; j < 8; j++) nibbles(w->q + 32 * j, b.qs + 16 * j);
    look_up_iq4(w->q, 256);
}

/* ---- the chain ---- */

typedef enum min_form {
    NO_MIN,
    ONE_MIN,   /* weight = d q + m */
    SCALED_MIN /* weight = d scale q - dmin min */
} min_form;

static int dot16(const int *w, const int8_t *x)
{
    int sum = 0;
    for (int i = 0; i < 16; i++) sum += w[i] * x[i];
    return sum;
}

static float step_32(float acc, const ints *w, min_form form, const rvi_act_block *x)
{
    int dot = dot16(w->q, x->q) + dot16(w->q + 16, x->q + 16);
    acc = fmaf((float)dot, w->d * x->d, acc);
    if (form == ONE_MIN) acc = fmaf(w->m, x->d_sum, acc);
    return acc;
}

static float step_256(float acc, const ints *w, min_form form, const rvi_act_wide *x)
{
    int dot = 0, min = 0;
    for (int g = 0; g < 16; g++) {
        dot += w->scale[g] * dot16(w->q + 16 * g, x->q + 16 * g);
        min += w->min[g] * x->sum16[g];
    }
    acc = fmaf((float)dot, w->d * x->d, acc);
    if (form == SCALED_MIN) acc = fmaf(-(float)min, w->m * x->d, acc);
    return acc;
}

typedef void (*unpack_fn)(const uint8_t *src, ints *w);

static void gemm_act(rvi_qtype type, unpack_fn unpack, min_form form, const void *w, size_t w_stride, int n_w,
                     const void *x, size_t x_stride, int n_x, float *out, size_t out_stride, size_t n)
{
    bool wide = rvi_qtypes[type].block_weights == 256;
    size_t n_blocks = n / rvi_qtypes[type].block_weights;
    for (int iw = 0; iw < n_w; iw++) {
        const uint8_t *src = (const uint8_t *)w + (size_t)iw * w_stride;
        for (int ix = 0; ix < n_x; ix++) out[(size_t)ix * out_stride + (size_t)iw] = 0.0f;
        for (size_t b = 0; b < n_blocks; b++, src += rvi_qtypes[type].block_bytes) {
            ints block;
            unpack(src, &block);
            for (int ix = 0; ix < n_x; ix++) {
                float *acc = out + (size_t)ix * out_stride + iw;
                const void *row = (const char *)x + (size_t)ix * x_stride;
                *acc = wide ? step_256(*acc, &block, form, (const rvi_act_wide *)row + b)
                            : step_32(*acc, &block, form, (const rvi_act_block *)row + b);
            }
        }
    }
}

/* name, form of the minimum */
#define QUANTIZED(X)                                                                                                   \
    X(Q4_0, NO_MIN)                                                                                                    \
    X(Q4_1, ONE_MIN)                                                                                                   \
    X(Q5_0, NO_MIN)                                                                                                    \
    X(Q5_1, ONE_MIN)                                                                                                   \
    X(Q8_0, NO_MIN)                                                                                                    \
    X(IQ4_NL, NO_MIN)                                                                                                  \
    X(Q2_K, SCALED_MIN) X(Q3_K, NO_MIN) X(Q4_K, SCALED_MIN) X(Q5_K, SCALED_MIN) X(Q6_K, NO_MIN) X(IQ4_XS, NO_MIN)

#define X(name, form)                                                                                                  \
    static void gemm_act_##name(const void *w, size_t w_stride, int n_w, const void *x, size_t x_stride, int n_x,      \
                                float *out, size_t out_stride, size_t n)                                               \
    {                                                                                                                  \
        gemm_act(RVI_##name, unpack_##name, form, w, w_stride, n_w, x, x_stride, n_x, out, out_stride, n);             \
    }
QUANTIZED(X)
#undef X

#define X(name, text, id, block, weights, bytes)                                                                       \
    static void dequantize_##name(const void *src, float *dst, size_t n)                                               \
    {                                                                                                                  \
        rvi_dequantize(RVI_##name, src, dst, n);                                                                       \
    }
RVI_QTYPES(X)
#undef X

void rvi_kernels_fill_ref_quant(rvi_kernels *k)
{
    k->quantize_act = quantize_act;
    k->quantize_wide = quantize_wide;
#define X(name, form) k->gemm_act[RVI_##name] = gemm_act_##name;
    QUANTIZED(X)
#undef X
#define X(name, text, id, block, weights, bytes) k->dequantize[RVI_##name] = dequantize_##name;
    RVI_QTYPES(X)
#undef X
}
