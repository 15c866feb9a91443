/* kernel_data.h - for test_kernels.c: what float_data.h has, and quantized blocks. */
#ifndef KERNEL_DATA_H
#define KERNEL_DATA_H

#include "float_data.h"
#include "kernels/panels.h"

static void fill_f16(rvi_f16 *x, size_t n, kind k)
{
    for (size_t i = 0; i < n; i++)
        x[i] = k == ANY_BITS ? (rvi_f16)random_bits() : rvi_f32_to_f16(random_float(k));
}

/* Sizes of rows of floats: every remainder of 16, and some long ones. */
static size_t next_size(size_t n)
{
    return n < 70 ? n + 1 : n == 70 ? 96 : n == 96 ? 576 : n == 576 ? 1000 : 0;
}

/* ---- quantized ---- */

/* Where the f16 scales of a block stand; n_scales is 1 or 2. */
typedef struct scale_places {
    int n_scales;
    size_t at[2];
} scale_places;

static scale_places places_of(rvi_qtype t)
{
    switch (t) {
    case RVI_Q4_1:
        return (scale_places){2, {offsetof(rvi_block_q4_1, d), offsetof(rvi_block_q4_1, m)}};
    case RVI_Q5_1:
        return (scale_places){2, {offsetof(rvi_block_q5_1, d), offsetof(rvi_block_q5_1, m)}};
    case RVI_Q2_K:
        return (scale_places){2, {offsetof(rvi_block_q2_k, d), offsetof(rvi_block_q2_k, dmin)}};
    case RVI_Q4_K:
        return (scale_places){2, {offsetof(rvi_block_q4_k, d), offsetof(rvi_block_q4_k, dmin)}};
    case RVI_Q5_K:
        return (scale_places){2, {offsetof(rvi_block_q5_k, d), offsetof(rvi_block_q5_k, dmin)}};
    case RVI_Q3_K: return (scale_places){1, {offsetof(rvi_block_q3_k, d), 0}};
    case RVI_Q6_K: return (scale_places){1, {offsetof(rvi_block_q6_k, d), 0}};
    default: return (scale_places){1, {0, 0}};
    }
}

static rvi_f16 random_scale(kind k)
{
    switch (k) {
    case TINY: return (rvi_f16)(random_bits() & 0x83ff);             /* denormal */
    case HUGE_: return (rvi_f16)(0x7bff ^ (random_bits() & 0x8000)); /* 65504 */
    case SPARSE:
        return random_below(2) ? (rvi_f16)(random_bits() & 0x8000) : 0x2c00; /* zero or 1/16 */
    case SPECIAL: return random_below(16) ? 0x2c00 : (rvi_f16)(random_below(2) ? 0x7c00 : 0x7e00);
    case ANY_BITS: return (rvi_f16)(random_bits() & 0xbfff); /* below 2 */
    default: return rvi_f32_to_f16(random_unit() * 0.05f);
    }
}

/* Random quants, or all bytes alike (the largest and smallest quants of every type), with scales of
 * a kind. */
static void fill_blocks(uint8_t *w, rvi_qtype t, size_t n_blocks, kind k)
{
    static const uint8_t alike[] = {0x00, 0xff, 0x80, 0x7f, 0x88, 0x77, 0x0f, 0xf0};
    size_t block_bytes = rvi_qtypes[t].block_bytes;
    scale_places places = places_of(t);
    int pattern = random_below(16);
    for (size_t i = 0; i < n_blocks * block_bytes; i++)
        w[i] = pattern < 8 ? alike[pattern] : (uint8_t)random_bits();
    for (size_t b = 0; b < n_blocks; b++)
        for (int s = 0; s < places.n_scales; s++) {
            rvi_f16 h = random_scale(k);
            memcpy(w + b * block_bytes + places.at[s], &h, sizeof h);
        }
}

static void fill_acts(rvi_act_block *x, size_t n_blocks, kind k)
{
    int pattern = random_below(4); /* 0: all 127, 1: all -127, else random */
    for (size_t b = 0; b < n_blocks; b++) {
        x[b].d = fabsf(random_float(k == ANY_BITS ? HUGE_ : k));
        x[b].sum = 0;
        for (int i = 0; i < 32; i++) {
            x[b].q[i] = (int8_t)(pattern == 0   ? 127
                                 : pattern == 1 ? -127
                                                : random_below(255) - 127);
            x[b].sum += x[b].q[i];
        }
        x[b].d_sum = x[b].d * (float)x[b].sum;
    }
}

static void fill_wide_acts(rvi_act_wide *x, size_t n_blocks, kind k)
{
    int pattern = random_below(4);
    for (size_t b = 0; b < n_blocks; b++) {
        memset(&x[b], 0, sizeof x[b]);
        x[b].d = fabsf(random_float(k == ANY_BITS ? HUGE_ : k));
        for (int i = 0; i < 256; i++) {
            x[b].q[i] = (int8_t)(pattern == 0   ? 127
                                 : pattern == 1 ? -127
                                                : random_below(255) - 127);
            x[b].sum16[i / 16] = (int16_t)(x[b].sum16[i / 16] + x[b].q[i]);
            x[b].sum32[i / 32] = (int16_t)(x[b].sum32[i / 32] + x[b].q[i]);
        }
    }
}

#endif
