/* vector_quant.h - quantized weights to f32, and into panels, written once for all instruction sets. Inside the kernels
 * room only. Before including it, a row defines what vector_f32.h asks for, and
 *     load_int8(p)      WIDTH int8 as floats
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
    alignas(64) uint32_t reg[8][RVI_PANEL];
    UNROLL for (int r = 0; r < RVI_PANEL; r += 8)
    {
        words8 rows[8];
        memcpy(rows, q[r], sizeof rows);
        transpose8(rows);
        UNROLL for (int i = 0; i < 8; i++) memcpy(&reg[i][r], &rows[i], sizeof rows[i]);
    }
    bytes64 v[8];
    memcpy(v, reg, sizeof v);
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

static ALWAYS_INLINE void pack(unpack_fn unpack, traits t, const uint8_t *rows, size_t row_stride, int n_rows,
                               uint8_t *panel, size_t n)
{
    uint8_t *planes = panel, *scales = panel + n / 32 * panel_quant_bytes(t);
    uint8_t *end = scales + n / t.block_weights * panel_scale_bytes(t);
    const size_t halves = RVI_PANEL * sizeof(rvi_f16);
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
    memset(end, 0, (size_t) - (uintptr_t)end % 64);
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
