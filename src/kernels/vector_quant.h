/* vector_quant.h - quantized weights to f32, and into panels, written once for all instruction sets. Inside the kernels
 * room only. Before including it, a row defines what vector_f32.h asks for, and
 *     splat_f16(h)      one f16 in all lanes
 *     look_up_iq4(q)    q[k] = rvi_iq4_values[q[k]] for 32 values 0 .. 15 */
#ifndef RVI_KERNELS_VECTOR_QUANT_H
#define RVI_KERNELS_VECTOR_QUANT_H

#include "kernels/transpose.h"
#include "kernels/unpack.h"

/* 32 quants as weights: the offset removed, or looked up. */
static ALWAYS_INLINE void remove_offset(int8_t *out, const uint8_t *q, traits t)
{
    bytes32 v = load32(q);
    if (!t.looked_up) v -= (uint8_t)t.offset;
    memcpy(out, &v, sizeof v);
    if (t.looked_up) look_up_iq4(out);
}

/* (d * scale) * q, then + m or - (m * min), each operation rounded. */
static ALWAYS_INLINE void dequantize(unpack_fn unpack, traits t, const uint8_t *src, float *dst, size_t n)
{
    for (size_t start = 0; start < n; start += CHUNK) {
        rows16 p;
        int n_blocks = chunk_blocks(n, start);
        unpack_rows(&p, unpack, t, src, 0, 1, start, n_blocks);
        for (int b = 0; b < n_blocks; b++) {
            alignas(32) int8_t q[32];
            remove_offset(q, p.q[b][0], t);
            for (int half = 0; half < 2; half++) {
                vec d = splat_f16(p.d[b][0]), m = t.form == NO_MIN ? splat(0.0f) : splat_f16(p.m[b][0]);
                if (t.scale_inputs) d = multiply(d, splat((float)pair_part(p.scale[b][0], half)));
                if (t.form == SCALED_MIN) m = multiply(m, splat((float)pair_part(p.min[b][0], half)));
                for (int i = 16 * half; i < 16 * half + 16; i += WIDTH) {
                    vec v = multiply(d, load_int8(q + i));
                    if (t.form == ONE_MIN) v = add(v, m);
                    if (t.form == SCALED_MIN) v = subtract(v, m);
                    store(dst + start + (size_t)(32 * b + i), WIDTH, v);
                }
            }
        }
    }
}

typedef uint8_t bytes64 __attribute__((vector_size(64)));

/* The planes of one block: q[r][k] of 16 rows. */
static ALWAYS_INLINE void pack_planes(uint8_t *out, uint8_t (*q)[32], traits t)
{
    words16 words[8];
    bytes64 v[8];
    turn_eight_words(words, q[0], sizeof q[0]);
    UNROLL for (int i = 0; i < 8; i++) v[i] = (bytes64)words[i];
    int at = 0;
    if (t.low_bits == 8) {
        memcpy(out, v, sizeof v);
    } else if (t.low_bits == 4) {
        for (; at < 4; at++) {
            bytes64 plane = (v[at] & 15) | (v[at + 4] & 15) << 4;
            memcpy(out + 64 * at, &plane, sizeof plane);
        }
    } else {
        for (; at < 2; at++) {
            bytes64 plane = v[4 * at] & 3;
            UNROLL for (int f = 1; f < 4; f++) plane |= (v[4 * at + f] & 3) << (2 * f);
            memcpy(out + 64 * at, &plane, sizeof plane);
        }
    }
    if (t.high_bits == 2) {
        for (int p = 0; p < 2; p++) {
            bytes64 plane = v[4 * p] >> 4;
            UNROLL for (int f = 1; f < 4; f++) plane |= (v[4 * p + f] >> 4) << (2 * f);
            memcpy(out + 64 * (at + p), &plane, sizeof plane);
        }
    }
    if (t.high_bits == 1) {
        bytes64 plane = v[0] >> t.low_bits;
        UNROLL for (int i = 1; i < 8; i++) plane |= (v[i] >> t.low_bits) << i;
        memcpy(out + 64 * at, &plane, sizeof plane);
    }
}

/* The scales and minima of 256 inputs behind d and dmin. */
static ALWAYS_INLINE void pack_small_scales(uint8_t *out, const rows16 *p, traits t)
{
    int n = 256 / t.scale_inputs;
    for (int g = 0; g < n; g++, out += RVI_PANEL) {
        const pair *sc = p->scale[g * t.scale_inputs / 32], *mn = p->min[g * t.scale_inputs / 32];
        const int shift = g * t.scale_inputs % 32; /* of the first or the last 16 */
        if (scales_share_a_byte(t)) {
            for (int r = 0; r < RVI_PANEL; r++) out[r] = (uint8_t)(sc[r] >> shift | mn[r] >> shift << 4);
        } else {
            for (int r = 0; r < RVI_PANEL; r++) out[r] = (uint8_t)(sc[r] >> shift);
            if (t.form != SCALED_MIN) continue;
            for (int r = 0; r < RVI_PANEL; r++) out[RVI_PANEL * n + r] = (uint8_t)(mn[r] >> shift);
        }
    }
}

/* Files of these types have quants of 4 bits in the order of a plane: 32 inputs of a row are words of a register. */
static ALWAYS_INLINE void pack_narrow_nibbles(traits t, const uint8_t *rows, size_t row_stride, uint8_t *planes,
                                              uint8_t *scales, size_t n)
{
    const size_t halves = RVI_PANEL * sizeof(rvi_f16), head = t.block_bytes - 16;
    for (; n; n -= 32, rows += t.block_bytes, planes += panel_quant_bytes(t), scales += panel_scale_bytes(t)) {
        words16 plane[4];
        turn_four_words(plane, rows + head, row_stride);
        UNROLL for (int p = 0; p < 4; p++) memcpy(planes + 64 * p, &plane[p], sizeof plane[p]);
        for (size_t r = 0; r < RVI_PANEL; r++) {
            memcpy(scales + r * sizeof(rvi_f16), rows + r * row_stride, sizeof(rvi_f16));
            if (t.form == NO_MIN) continue;
            memcpy(scales + halves + r * sizeof(rvi_f16), rows + r * row_stride + sizeof(rvi_f16), sizeof(rvi_f16));
        }
    }
}

/* Byte i of four words of 16 rows, i = 0 .. 15. */
static ALWAYS_INLINE void store_bytes(uint8_t *out, const words16 words[4])
{
    typedef uint8_t row_bytes __attribute__((vector_size(RVI_PANEL)));
    UNROLL for (int i = 0; i < 16; i++)
    {
        row_bytes one = __builtin_convertvector(words[i / 4] >> (8 * (i % 4)), row_bytes);
        memcpy(out + sizeof one * (size_t)i, &one, sizeof one);
    }
}

/* Q4_K, Q5_K: d, dmin and the scales of 16 rows are the words of a block's first 16 bytes. */
static ALWAYS_INLINE void pack_heads(uint8_t *out, const uint8_t *rows, size_t row_stride)
{
    typedef uint16_t row_halves __attribute__((vector_size(2 * RVI_PANEL)));
    words16 head[4], joined[4]; /* 8 scales, 8 minima, four in a word */
    turn_four_words(head, rows, row_stride);
    UNROLL for (int i = 0; i < 2; i++)
    {
        row_halves half = __builtin_convertvector(head[0] >> (16 * i), row_halves);
        memcpy(out + sizeof half * (size_t)i, &half, sizeof half);
        joined[2 * i] = head[1 + i] & 0x3f3f3f3fu;
        joined[2 * i + 1] = (head[3] >> (4 * i) & 0x0f0f0f0fu) | (head[1 + i] >> 6 & 0x03030303u) << 4;
    }
    store_bytes(out + 2 * sizeof(row_halves), joined);
}

/* Files of these types have in 32 bytes a block of 32 quants in the low and another one in the high halves. */
static ALWAYS_INLINE void pack_two_blocks(uint8_t *one, uint8_t *other, const uint8_t *rows, size_t row_stride)
{
    words16 v[8];
    turn_eight_words(v, rows, row_stride);
    UNROLL for (int p = 0; p < 4; p++)
    {
        words16 low = (v[p] & 0x0f0f0f0fu) | (v[p + 4] & 0x0f0f0f0fu) << 4;
        words16 high = (v[p] >> 4 & 0x0f0f0f0fu) | (v[p + 4] & 0xf0f0f0f0u);
        memcpy(one + 64 * p, &low, sizeof low);
        memcpy(other + 64 * p, &high, sizeof high);
    }
}

/* Q5_K: bit b of 32 bytes belongs to block b of 32. */
static ALWAYS_INLINE void pack_fifth_bits(uint8_t *out, size_t block, const uint8_t *rows, size_t row_stride)
{
    words16 v[8];
    turn_eight_words(v, rows, row_stride);
    for (int b = 0; b < 8; b++, out += block) {
        words16 plane = v[0] & 0x01010101u;
        UNROLL for (int i = 1; i < 8; i++) plane |= (v[i] & 0x01010101u) << i;
        memcpy(out, &plane, sizeof plane);
        UNROLL for (int i = 0; i < 8; i++) v[i] >>= 1;
    }
}

/* Q6_K: bits 2 b, 2 b + 1 of 32 bytes belong to block b of four. */
static ALWAYS_INLINE void pack_high_bits(uint8_t *out, size_t block, const uint8_t *rows, size_t row_stride)
{
    words16 v[8];
    turn_eight_words(v, rows, row_stride);
    for (int b = 0; b < 4; b++, out += block) {
        UNROLL for (int p = 0; p < 2; p++)
        {
            words16 plane = v[4 * p] & 0x03030303u;
            UNROLL for (int f = 1; f < 4; f++) plane |= (v[4 * p + f] & 0x03030303u) << (2 * f);
            memcpy(out + 64 * p, &plane, sizeof plane);
        }
        UNROLL for (int i = 0; i < 8; i++) v[i] >>= 2;
    }
}

/* Q4_K, Q5_K, Q6_K */
static ALWAYS_INLINE void pack_wide_nibbles(traits t, const uint8_t *rows, size_t row_stride, uint8_t *planes,
                                            uint8_t *scales, size_t n)
{
    const size_t block = panel_quant_bytes(t), q5_head = offsetof(rvi_block_q5_k, qh);
    for (; n; n -= 256, rows += t.block_bytes, planes += 8 * block, scales += panel_scale_bytes(t)) {
        if (t.high_bits == 2) {
            words16 small[4];
            turn_four_words(small, rows + offsetof(rvi_block_q6_k, scales), row_stride);
            for (size_t r = 0; r < RVI_PANEL; r++)
                memcpy(scales + 2 * r, rows + r * row_stride + offsetof(rvi_block_q6_k, d), sizeof(rvi_f16));
            store_bytes(scales + RVI_PANEL * sizeof(rvi_f16), small);
            for (size_t i = 0; i < 4; i++) { /* blocks 0 and 2, 1 and 3, 4 and 6, 5 and 7 */
                uint8_t *one = planes + (i / 2 * 4 + i % 2) * block;
                pack_two_blocks(one, one + 2 * block, rows + offsetof(rvi_block_q6_k, ql) + 32 * i, row_stride);
            }
            for (size_t i = 0; i < 2; i++)
                pack_high_bits(planes + 4 * i * block + 256, block, rows + offsetof(rvi_block_q6_k, qh) + 32 * i,
                               row_stride);
            continue;
        }
        pack_heads(scales, rows, row_stride);
        for (size_t i = 0; i < 4; i++)
            pack_two_blocks(planes + 2 * i * block, planes + (2 * i + 1) * block,
                            rows + q5_head + (t.high_bits ? 32 : 0) + 32 * i, row_stride);
        if (t.high_bits) pack_fifth_bits(planes + 256, block, rows + q5_head, row_stride);
    }
}
_Static_assert(offsetof(rvi_block_q4_k, qs) == offsetof(rvi_block_q5_k, qh), "the same head");

static ALWAYS_INLINE void pack(unpack_fn unpack, traits t, const uint8_t *rows, size_t row_stride, int n_rows,
                               uint8_t *panel, size_t n)
{
    uint8_t *planes = panel, *scales = panel + n / 32 * panel_quant_bytes(t);
    uint8_t *end = scales + n / t.block_weights * panel_scale_bytes(t);
    const size_t halves = RVI_PANEL * sizeof(rvi_f16);
    const bool nibbles = t.low_bits == 4 && n_rows == RVI_PANEL;
    memset(end, 0, (size_t) - (uintptr_t)end % 64);
    if (nibbles && t.block_weights == 32 && !t.high_bits) {
        pack_narrow_nibbles(t, rows, row_stride, planes, scales, n);
        return;
    }
    if (nibbles && t.block_weights == 256 && !t.looked_up) {
        pack_wide_nibbles(t, rows, row_stride, planes, scales, n);
        return;
    }
    rows16 p;
    if (n_rows < RVI_PANEL) memset(&p, 0, sizeof p); /* rows that are not there */
    for (size_t start = 0; start < n; start += CHUNK) {
        int n_blocks = chunk_blocks(n, start);
        unpack_rows(&p, unpack, t, rows, row_stride, n_rows, start, n_blocks);
        for (int b = 0; b < n_blocks; b++, planes += panel_quant_bytes(t)) {
            pack_planes(planes, p.q[b], t);
            if (t.block_weights == 256 && b) continue;
            memcpy(scales, p.d[b], halves);
            if (t.form != NO_MIN) memcpy(scales + halves, p.m[b], halves);
            if (t.block_weights == 256) pack_small_scales(scales + (t.form == NO_MIN ? 1 : 2) * halves, &p, t);
            scales += panel_scale_bytes(t);
        }
    }
}

/* One copy of each for each type of QUANTIZED, and putting them into a table. */
#define DEFINE_QUANT(name, ...)                                                                                        \
    static void dequantize_##name(const void *src, float *dst, size_t n)                                               \
    {                                                                                                                  \
        dequantize(unpack_##name, TRAITS(name, __VA_ARGS__), src, dst, n);                                             \
    }                                                                                                                  \
    static void pack_##name(const void *rows, size_t row_stride, int n_rows, void *panel, size_t n)                    \
    {                                                                                                                  \
        pack(unpack_##name, TRAITS(name, __VA_ARGS__), rows, row_stride, n_rows, panel, n);                            \
    }

#define FILL_QUANT(k, name)                                                                                            \
    (k)->dequantize[RVI_##name] = dequantize_##name;                                                                   \
    (k)->pack[RVI_##name] = pack_##name;

#endif
