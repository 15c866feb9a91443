/* float_data.h - for the tests of the kernels: floats of every kind, outputs with guard bytes,
 * comparison of bits. */
#ifndef FLOAT_DATA_H
#define FLOAT_DATA_H

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

/* Room for n objects with `shift` bytes before it (so that it starts anywhere) and guard bytes on
 * both sides. */
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

/* An output for the row under test: guarded, off by one float. Inputs come from malloc, so ASan
 * sees reads past them. */
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

static void assert_same_bits(const char *what, const float *got, const float *want, size_t n,
                             size_t size_a, size_t size_b)
{
    for (size_t i = 0; i < n; i++) {
        if (bits_of_float(got[i]) == bits_of_float(want[i]) || (isnan(got[i]) && isnan(want[i])))
            continue;
        fail_msg("%s %s (sizes %zu, %zu): [%zu] is %a, reference %a", row.isa, what, size_a, size_b,
                 i, (double)got[i], (double)want[i]);
    }
}

#endif
