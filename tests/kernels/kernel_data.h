/* kernel_data.h - for test_kernels.c: inputs of every kind, outputs with guard bytes, comparison of bits. */
#ifndef KERNEL_DATA_H
#define KERNEL_DATA_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/kernels.h"

static rvi_kernels ref, row; /* row: the one under test */

/* ---- floats ---- */

static uint64_t random_state;

static uint32_t random_bits(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 32);
}

static int random_below(int n)
{
    return (int)(random_bits() % (uint32_t)n);
}

static float float_of_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static uint32_t bits_of_float(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

/* Uniform in -1 .. 1. */
static float random_unit(void)
{
    return (float)((double)random_bits() / 2147483648.0 - 1.0);
}

typedef enum kind {
    ORDINARY, /* about -4 .. 4 */
    TINY,     /* denormals and their neighbours, so that products underflow, to -0 as well */
    HUGE_,    /* sums overflow to infinity */
    SPARSE,   /* mostly zeros of both signs */
    SPECIAL,  /* ordinary with a few infinities and NaN */
    ANY_BITS, /* every pattern */
    KINDS
} kind;

static float random_float(kind k)
{
    switch (k) {
    case TINY: return random_unit() * (random_below(2) ? 1e-38f : 1e-22f);
    case HUGE_: return random_unit() * 3e38f;
    case SPARSE: return random_below(4) ? (random_below(2) ? 0.0f : -0.0f) : random_unit();
    case SPECIAL: {
        static const float special[] = {INFINITY, -INFINITY, NAN, -0.0f};
        return random_below(16) ? random_unit() * 4.0f : special[random_below(4)];
    }
    case ANY_BITS: return float_of_bits(random_bits());
    default: return random_unit() * 4.0f;
    }
}

static void fill(float *x, size_t n, kind k)
{
    for (size_t i = 0; i < n; i++) x[i] = random_float(k);
}

static void fill_f16(rvi_f16 *x, size_t n, kind k)
{
    for (size_t i = 0; i < n; i++) x[i] = k == ANY_BITS ? (rvi_f16)random_bits() : rvi_f32_to_f16(random_float(k));
}

/* Room for n objects with `shift` bytes before it (so that it starts anywhere) and guard bytes on both sides. */
typedef struct guarded {
    uint8_t *base;
    size_t bytes, shift;
} guarded;

enum { GUARD = 64, GUARD_BYTE = 0xA5 };

static void *guard_new(guarded *g, size_t bytes, size_t shift)
{
    g->bytes = bytes;
    g->shift = shift;
    g->base = malloc(bytes + shift + 2 * GUARD);
    assert_non_null(g->base);
    memset(g->base, GUARD_BYTE, bytes + shift + 2 * GUARD);
    return g->base + GUARD + shift;
}

static void guard_free(guarded *g, const char *what)
{
    for (size_t i = 0; i < g->shift + GUARD; i++)
        if (g->base[i] != GUARD_BYTE) fail_msg("%s %s: wrote before its output", row.isa, what);
    for (size_t i = 0; i < GUARD; i++)
        if (g->base[GUARD + g->shift + g->bytes + i] != GUARD_BYTE)
            fail_msg("%s %s: wrote past its output", row.isa, what);
    free(g->base);
}

/* An output for the row under test: guarded, off by one float. Inputs come from malloc, so ASan sees reads
 * past them. */
static float *out_new(guarded *g, size_t n)
{
    return guard_new(g, n * sizeof(float), sizeof(float));
}

static void *alloc(size_t bytes)
{
    void *p = malloc(bytes ? bytes : 1);
    assert_non_null(p);
    return p;
}

static float *floats_new(size_t n, kind k)
{
    float *x = alloc(n * sizeof *x);
    fill(x, n, k);
    return x;
}

static void assert_same_bits(const char *what, const float *got, const float *want, size_t n, size_t size_a,
                             size_t size_b)
{
    for (size_t i = 0; i < n; i++) {
        if (bits_of_float(got[i]) == bits_of_float(want[i]) || (isnan(got[i]) && isnan(want[i]))) continue;
        fail_msg("%s %s (sizes %zu, %zu): [%zu] is %a, reference %a", row.isa, what, size_a, size_b, i,
                 (double)got[i], (double)want[i]);
    }
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
    case RVI_Q4_1: return (scale_places){2, {offsetof(rvi_block_q4_1, d), offsetof(rvi_block_q4_1, m)}};
    case RVI_Q5_1: return (scale_places){2, {offsetof(rvi_block_q5_1, d), offsetof(rvi_block_q5_1, m)}};
    case RVI_Q2_K: return (scale_places){2, {offsetof(rvi_block_q2_k, d), offsetof(rvi_block_q2_k, dmin)}};
    case RVI_Q4_K: return (scale_places){2, {offsetof(rvi_block_q4_k, d), offsetof(rvi_block_q4_k, dmin)}};
    case RVI_Q5_K: return (scale_places){2, {offsetof(rvi_block_q5_k, d), offsetof(rvi_block_q5_k, dmin)}};
    case RVI_Q3_K: return (scale_places){1, {offsetof(rvi_block_q3_k, d), 0}};
    case RVI_Q6_K: return (scale_places){1, {offsetof(rvi_block_q6_k, d), 0}};
    default: return (scale_places){1, {0, 0}};
    }
}

static rvi_f16 random_scale(kind k)
{
    switch (k) {
    case TINY: return (rvi_f16)(random_bits() & 0x83ff);                              /* denormal */
    case HUGE_: return (rvi_f16)(0x7bff ^ (random_bits() & 0x8000));                  /* 65504 */
    case SPARSE: return random_below(2) ? (rvi_f16)(random_bits() & 0x8000) : 0x2c00; /* zero or 1/16 */
    case SPECIAL: return random_below(16) ? 0x2c00 : (rvi_f16)(random_below(2) ? 0x7c00 : 0x7e00);
    case ANY_BITS: return (rvi_f16)(random_bits() & 0xbfff);                          /* below 2 */
    default: return rvi_f32_to_f16(random_unit() * 0.05f);
    }
}

/* Random quants, or all bytes alike (the largest and smallest quants of every type), with scales of a kind. */
static void fill_blocks(uint8_t *w, rvi_qtype t, size_t n_blocks, kind k)
{
    static const uint8_t alike[] = {0x00, 0xff, 0x80, 0x7f, 0x88, 0x77, 0x0f, 0xf0};
    size_t block_bytes = rvi_qtypes[t].block_bytes;
    scale_places places = places_of(t);
    int pattern = random_below(16);
    for (size_t i = 0; i < n_blocks * block_bytes; i++) w[i] = pattern < 8 ? alike[pattern] : (uint8_t)random_bits();
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
        x[b].sum[0] = x[b].sum[1] = 0;
        for (int i = 0; i < 32; i++) {
            x[b].q[i] = (int8_t)(pattern == 0 ? 127 : pattern == 1 ? -127 : random_below(255) - 127);
            x[b].sum[i / 16] = (int16_t)(x[b].sum[i / 16] + x[b].q[i]);
        }
    }
}

#endif
