/* quant.c - blocks to floats and floats to blocks, in plain C.
 *
 * This is the meaning of the stored bits. Each formula is evaluated in f32, every operation
 * rounded, in the order written here, so that all machines agree bit for bit (with the `gguf`
 * Python package too: see tools/make_quant_vectors.py). Blocks are read and written through copies:
 * they need no alignment. Little-endian machines only. */
#include <math.h>
#include <string.h>

#include "formats/qtypes.h"

/* ---- decoders: one block (for the plain types: one weight) at src to floats at y ---- */

/* Copies the block at src, whatever its alignment, into a local b. */
#define LOAD(type)                                                                                 \
    type b;                                                                                        \
    memcpy(&b, src, sizeof b)

static void decode_F32(const uint8_t *src, float *y)
{
    memcpy(y, src, sizeof *y);
}

static void decode_F16(const uint8_t *src, float *y)
{
    LOAD(rvi_f16);
    y[0] = rvi_f16_to_f32(b);
}

static void decode_BF16(const uint8_t *src, float *y)
{
    LOAD(rvi_bf16);
    y[0] = rvi_bf16_to_f32(b);
}

/* Of 16 bytes, low nibbles first, then the high ones: weight i of 32. */
static int nibble(const uint8_t *qs, int i)
{
    return i < 16 ? qs[i] & 15 : qs[i - 16] >> 4;
}

/* Bit i of 32 as the fifth bit of a quant. */
static int fifth_bit(const uint8_t *qh, int i)
{
    return (qh[i / 8] >> (i % 8) & 1) << 4;
}

static void decode_Q4_0(const uint8_t *src, float *y)
{
    LOAD(rvi_block_q4_0);
    float d = rvi_f16_to_f32(b.d);
    for (int i = 0; i < 32; i++) y[i] = d * (float)(nibble(b.qs, i) - 8);
}

static void decode_Q4_1(const uint8_t *src, float *y)
{
    LOAD(rvi_block_q4_1);
    float d = rvi_f16_to_f32(b.d), m = rvi_f16_to_f32(b.m);
    for (int i = 0; i < 32; i++) y[i] = d * (float)nibble(b.qs, i) + m;
}

static void decode_Q5_0(const uint8_t *src, float *y)
{
    LOAD(rvi_block_q5_0);
    float d = rvi_f16_to_f32(b.d);
    for (int i = 0; i < 32; i++) y[i] = d * (float)((nibble(b.qs, i) | fifth_bit(b.qh, i)) - 16);
}

static void decode_Q5_1(const uint8_t *src, float *y)
{
    LOAD(rvi_block_q5_1);
    float d = rvi_f16_to_f32(b.d), m = rvi_f16_to_f32(b.m);
    for (int i = 0; i < 32; i++) y[i] = d * (float)(nibble(b.qs, i) | fifth_bit(b.qh, i)) + m;
}

static void decode_Q8_0(const uint8_t *src, float *y)
{
    LOAD(rvi_block_q8_0);
    float d = rvi_f16_to_f32(b.d);
    for (int i = 0; i < 32; i++) y[i] = (float)b.qs[i] * d;
}

static void decode_IQ4_NL(const uint8_t *src, float *y)
{
    LOAD(rvi_block_iq4_nl);
    float d = rvi_f16_to_f32(b.d);
    for (int i = 0; i < 32; i++) y[i] = d * (float)rvi_iq4_values[nibble(b.qs, i)];
}

/* 256 weights as 16 groups of 16. Both halves of 128 hold their two-bit quants in 32 bytes: weights
 * 32 k .. 32 k + 31 of the half in bit pair k. */
static void decode_Q2_K(const uint8_t *src, float *y)
{
    LOAD(rvi_block_q2_k);
    float d = rvi_f16_to_f32(b.d), dmin = rvi_f16_to_f32(b.dmin);
    for (int i = 0; i < 256; i++) {
        int scale = b.scales[i / 16];
        int q = b.qs[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
        float dl = d * (float)(scale & 15), ml = dmin * (float)(scale >> 4);
        y[i] = dl * (float)q - ml;
    }
}

/* The third bit of weight i is bit i / 32 of hmask[i % 32], and means 0 when set, -4 when not.
 * Scale g of 16 has four low bits in nibble g / 8 of byte g % 8, and two high bits in pair g / 4 of
 * byte 8 + g % 4; 32 is subtracted. */
static void decode_Q3_K(const uint8_t *src, float *y)
{
    LOAD(rvi_block_q3_k);
    float d = rvi_f16_to_f32(b.d);
    for (int g = 0; g < 16; g++) {
        int low = b.scales[g % 8] >> (g / 8 * 4) & 15,
            high = b.scales[8 + g % 4] >> (g / 4 * 2) & 3;
        float dl = d * (float)((low | high << 4) - 32);
        for (int i = 16 * g; i < 16 * g + 16; i++) {
            int q = b.qs[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
            int third = b.hmask[i % 32] >> (i / 32) & 1;
            y[i] = dl * (float)(q - (third ? 0 : 4));
        }
    }
}

/* Scale and minimum of sub-block j of 8, six bits each, from the 12 bytes of Q4_K and Q5_K: the
 * first four in bytes 0..3 and 4..7; of the last four the low bits in the nibbles of bytes 8..11,
 * the high two above those of the first. */
static void scale_min(const uint8_t *s, int j, int *scale, int *min)
{
    if (j < 4) {
        *scale = s[j] & 63;
        *min = s[j + 4] & 63;
    } else {
        *scale = (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
        *min = s[j + 4] >> 4 | (s[j] >> 6) << 4;
    }
}

/* Sub-blocks 2 k and 2 k + 1 share 32 bytes: low nibbles, high nibbles. */
static void decode_Q4_K(const uint8_t *src, float *y)
{
    LOAD(rvi_block_q4_k);
    float d = rvi_f16_to_f32(b.d), dmin = rvi_f16_to_f32(b.dmin);
    for (int j = 0; j < 8; j++) {
        int scale, min;
        scale_min(b.scales, j, &scale, &min);
        float dl = d * (float)scale, ml = dmin * (float)min;
        for (int i = 0; i < 32; i++) {
            int q = b.qs[j / 2 * 32 + i] >> (j % 2 * 4) & 15;
            y[32 * j + i] = dl * (float)q - ml;
        }
    }
}

static void decode_Q5_K(const uint8_t *src, float *y)
{
    LOAD(rvi_block_q5_k);
    float d = rvi_f16_to_f32(b.d), dmin = rvi_f16_to_f32(b.dmin);
    for (int j = 0; j < 8; j++) {
        int scale, min;
        scale_min(b.scales, j, &scale, &min);
        float dl = d * (float)scale, ml = dmin * (float)min;
        for (int i = 0; i < 32; i++) {
            int q = (b.qs[j / 2 * 32 + i] >> (j % 2 * 4) & 15) | (b.qh[i] >> j & 1) << 4;
            y[32 * j + i] = dl * (float)q - ml;
        }
    }
}

/* Each half of 128 weights: four low bits in 64 bytes (weights 0..63 low nibbles, 64..127 high),
 * two high bits in 32 bytes (weights 32 k .. 32 k + 31 in pair k). */
static void decode_Q6_K(const uint8_t *src, float *y)
{
    LOAD(rvi_block_q6_k);
    float d = rvi_f16_to_f32(b.d);
    for (int i = 0; i < 256; i++) {
        int half = i / 128, at = i % 128;
        int low = b.ql[64 * half + at % 64] >> (at / 64 * 4) & 15;
        int high = b.qh[32 * half + at % 32] >> (at / 32 * 2) & 3;
        float dl = d * (float)b.scales[i / 16];
        y[i] = dl * (float)((low | high << 4) - 32);
    }
}

static void decode_IQ4_XS(const uint8_t *src, float *y)
{
    LOAD(rvi_block_iq4_xs);
    float d = rvi_f16_to_f32(b.d);
    for (int j = 0; j < 8; j++) {
        int low = b.scales_l[j / 2] >> (j % 2 * 4) & 15, high = b.scales_h >> (2 * j) & 3;
        float dl = d * (float)((low | high << 4) - 32);
        for (int i = 0; i < 32; i++)
            y[32 * j + i] = dl * (float)rvi_iq4_values[nibble(b.qs + 16 * j, i)];
    }
}

/* One loop per type, so that the compiler joins each with its block. */
#define X(name, text, id, block, weights, bytes)                                                   \
    static void decode_all_##name(const uint8_t *src, float *y, size_t n_blocks)                   \
    {                                                                                              \
        for (size_t i = 0; i < n_blocks; i++) decode_##name(src + i * (bytes), y + i * (weights)); \
    }
RVI_QTYPES(X)
#undef X

void rvi_dequantize(rvi_qtype type, const void *src, float *dst, size_t n)
{
    static void (*const decoders[RVI_QTYPE_COUNT])(const uint8_t *src, float *y,
                                                   size_t n_blocks) = {
#define X(name, text, id, block, weights, bytes) decode_all_##name,
        RVI_QTYPES(X)
#undef X
    };
    decoders[type](src, dst, n / rvi_qtypes[type].block_weights);
}

/* ---- encoders: 32 floats at x (for the plain types: one) to a block at dst ---- */

#define STORE() memcpy(dst, &b, sizeof b)

static void encode_F32(const float *x, uint8_t *dst)
{
    memcpy(dst, x, sizeof *x);
}

static void encode_F16(const float *x, uint8_t *dst)
{
    rvi_f16 b = rvi_f32_to_f16(x[0]);
    STORE();
}

static void encode_BF16(const float *x, uint8_t *dst)
{
    rvi_bf16 b = rvi_f32_to_bf16(x[0]);
    STORE();
}

/* 1 / d, and 0 for a block of zeros. Infinite for the smallest denormals. */
static float inverse(float d)
{
    return d == 0.0f ? 0.0f : 1.0f / d;
}

/* Quant of v, cut towards zero and limited to 0..most. What is no number or infinite becomes 0. */
static uint8_t cut(float v, int most)
{
    if (!(fabsf(v) < 1e6f)) return 0;
    int q = (int)v;
    return (uint8_t)(q < 0 ? 0 : q > most ? most : q);
}

/* The first element of greatest magnitude; a NaN counts as greatest. */
static float extreme(const float *x)
{
    float best = x[0];
    for (int i = 1; i < 32 && !isnan(best); i++)
        if (isnan(x[i]) || fabsf(x[i]) > fabsf(best)) best = x[i];
    return best;
}

/* Least and greatest element; both NaN if one is. */
static void range(const float *x, float *min, float *max)
{
    *min = *max = x[0];
    for (int i = 1; i < 32; i++) {
        if (isnan(x[i])) *min = *max = x[i];
        if (x[i] < *min) *min = x[i];
        if (x[i] > *max) *max = x[i];
    }
}

/* 32 quants of four bits into 16 bytes; of five bits the fifth into qh. */
static void pack(const uint8_t *q, uint8_t *qs, uint8_t *qh)
{
    for (int i = 0; i < 16; i++) qs[i] = (uint8_t)((q[i] & 15) | (q[i + 16] & 15) << 4);
    for (int i = 0; qh && i < 32; i++)
        qh[i / 8] = (uint8_t)(qh[i / 8] | (q[i] >> 4 & 1) << (i % 8));
}

/* Centred quants: the extreme element takes the lowest one, 0, so d has the opposite sign. */
static rvi_f16 centred(const float *x, uint8_t *q, int levels)
{
    float d = extreme(x) / (float)(-levels / 2), id = inverse(d),
          middle = (float)(levels / 2) + 0.5f;
    for (int i = 0; i < 32; i++) q[i] = cut(x[i] * id + middle, levels - 1);
    return rvi_f32_to_f16(d);
}

/* Quants above the least element m. */
static rvi_f16 above_min(const float *x, uint8_t *q, int levels, rvi_f16 *m)
{
    float min, max;
    range(x, &min, &max);
    float d = (max - min) / (float)(levels - 1), id = inverse(d);
    for (int i = 0; i < 32; i++) q[i] = cut((x[i] - min) * id + 0.5f, levels - 1);
    *m = rvi_f32_to_f16(min);
    return rvi_f32_to_f16(d);
}

static void encode_Q4_0(const float *x, uint8_t *dst)
{
    rvi_block_q4_0 b = {0};
    uint8_t q[32];
    b.d = centred(x, q, 16);
    pack(q, b.qs, NULL);
    STORE();
}

static void encode_Q4_1(const float *x, uint8_t *dst)
{
    rvi_block_q4_1 b = {0};
    uint8_t q[32];
    b.d = above_min(x, q, 16, &b.m);
    pack(q, b.qs, NULL);
    STORE();
}

static void encode_Q5_0(const float *x, uint8_t *dst)
{
    rvi_block_q5_0 b = {0};
    uint8_t q[32];
    b.d = centred(x, q, 32);
    pack(q, b.qs, b.qh);
    STORE();
}

static void encode_Q5_1(const float *x, uint8_t *dst)
{
    rvi_block_q5_1 b = {0};
    uint8_t q[32];
    b.d = above_min(x, q, 32, &b.m);
    pack(q, b.qs, b.qh);
    STORE();
}

/* Loops that compilers make vectors of: magnitudes are compared as integers, in whose order NaN is
 * the greatest, and halves go away from zero, as roundf has it. */
static void encode_Q8_0(const float *x, uint8_t *dst)
{
    rvi_block_q8_0 b = {0};
    int32_t bits[32], most = 0, q[32];
    float largest;
    memcpy(bits, x, sizeof bits);
    for (int i = 0; i < 32; i++) {
        int32_t magnitude = bits[i] & 0x7fffffff;
        most = magnitude > most ? magnitude : most;
    }
    memcpy(&largest, &most, sizeof largest);
    float d = largest / 127.0f, id = inverse(d);
    for (int i = 0; i < 32; i++) {
        float v = x[i] * id, in = fabsf(v) < 127.5f ? v : 0.0f;
        int32_t whole = (int32_t)in;
        float rest = in - (float)whole;
        q[i] = whole + (rest >= 0.5f) - (rest <= -0.5f);
    }
    for (int i = 0; i < 32; i++) b.qs[i] = (int8_t)q[i];
    b.d = rvi_f32_to_f16(d);
    STORE();
}

int rvi_quantize(rvi_qtype type, const float *src, void *dst, size_t n)
{
    static void (*const encoders[RVI_QTYPE_COUNT])(const float *x, uint8_t *dst) = {
        [RVI_F32] = encode_F32,   [RVI_F16] = encode_F16,   [RVI_BF16] = encode_BF16,
        [RVI_Q4_0] = encode_Q4_0, [RVI_Q4_1] = encode_Q4_1, [RVI_Q5_0] = encode_Q5_0,
        [RVI_Q5_1] = encode_Q5_1, [RVI_Q8_0] = encode_Q8_0,
    };
    if (!encoders[type]) return 0;
    uint8_t *at = dst;
    size_t step = rvi_qtypes[type].block_weights;
    for (size_t i = 0; i + step <= n; i += step, at += rvi_qtypes[type].block_bytes)
        encoders[type](src + i, at);
    return 1;
}
