/* test_train_gemm.c - products of float matrices for training: every row of this machine against
 * float64, operands in both directions, put together from parts, odd sizes, nothing written outside
 * C; the bits do not follow from m and n. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "kernels/kernels.h"

enum { GUARD = 64 };

static rvi_rng rng = {3};

static float number(void)
{
    return (float)(rvi_rng_double(&rng) * 2 - 1);
}

static float *numbers_new(size_t n)
{
    float *x = malloc((n + 1) * sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < n; i++) x[i] = number();
    return x;
}

/* Bytes on a cache line between two guards. */
static uint8_t *place_new(size_t bytes)
{
    uint8_t *p = aligned_alloc(64, (bytes + 2 * GUARD + 63) / 64 * 64);
    assert_non_null(p);
    memset(p, 0x5a, bytes + 2 * GUARD);
    return p + GUARD;
}

static void place_free(uint8_t *p, size_t bytes)
{
    for (int i = 0; i < GUARD; i++)
        if (p[-1 - i] != 0x5a || p[bytes + (size_t)i] != 0x5a)
            fail_msg("something was written outside");
    free(p - GUARD);
}

typedef struct shape {
    int m, n, k, extra; /* extra: a second part of k */
    bool a_turned, b_turned, add;
} shape;

typedef struct operands {
    float *a, *b, *a2, *b2, *c;
    size_t a_stride, b_stride, a2_stride, b2_stride;
} operands;

static operands operands_new(const shape *s)
{
    operands o = {.a_stride = (size_t)(s->a_turned ? s->m : s->k) + 3,
                  .b_stride = (size_t)(s->b_turned ? s->k : s->n) + 5,
                  .a2_stride = (size_t)s->extra + 1,
                  .b2_stride = (size_t)s->n};
    o.a = numbers_new(o.a_stride * (size_t)(s->a_turned ? s->k : s->m));
    o.b = numbers_new(o.b_stride * (size_t)(s->b_turned ? s->n : s->k));
    o.a2 = numbers_new(o.a2_stride * (size_t)s->m);
    o.b2 = numbers_new(o.b2_stride * (size_t)s->extra);
    o.c = numbers_new((size_t)s->m * (size_t)s->n);
    return o;
}

static void operands_free(operands *o)
{
    free(o->a);
    free(o->b);
    free(o->a2);
    free(o->b2);
    free(o->c);
}

static const float **rows_new(const float *x, size_t stride, int n)
{
    const float **rows = malloc(((size_t)n + 1) * sizeof *rows);
    assert_non_null(rows);
    for (int i = 0; i < n; i++) rows[i] = x + (size_t)i * stride;
    return rows;
}

/* Packs the operands; single rows where the table can, which is the same. */
static void pack(const rvi_train_gemm *g, const shape *s, const operands *o, int m, int n,
                 uint8_t *a, uint8_t *b, size_t total)
{
    g->pack_a(a, total, o->a, o->a_stride, s->a_turned, m, s->k);
    g->pack_b(b, total, o->b, o->b_stride, s->b_turned, s->k, n);
    if (!g->pack_a_rows) return;
    const float **rows = rows_new(o->a, o->a_stride, m),
                **cols = rows_new(o->b, o->b_stride, s->b_turned ? n : s->k);
    if (!s->a_turned) {
        memset(a, 0x5b, (size_t)rvi_gemm_rows(g, m) * total * g->number_bytes);
        g->pack_a_rows(a, total, rows, m, s->k);
    }
    memset(b, 0x5b, (size_t)rvi_gemm_cols(n) * total * g->number_bytes);
    g->pack_b_rows(b, total, cols, s->b_turned, s->k, n);
    free(rows);
    free(cols);
}

/* The first m rows and n columns by row g of the table; c_stride n + 3, gaps hold 7. */
static float *run(const rvi_train_gemm *g, const shape *s, const operands *o, int m, int n)
{
    size_t first = rvi_gemm_k(g, (size_t)s->k), total = first + rvi_gemm_k(g, (size_t)s->extra);
    size_t a_bytes = (size_t)rvi_gemm_rows(g, m) * total * g->number_bytes;
    size_t b_bytes = (size_t)rvi_gemm_cols(n) * total * g->number_bytes, c_stride = (size_t)n + 3;
    size_t c_bytes = (size_t)m * c_stride * sizeof(float);
    uint8_t *a = place_new(a_bytes), *b = place_new(b_bytes), *c_place = place_new(c_bytes);
    float *c = (float *)(void *)c_place, *out = malloc((size_t)m * (size_t)n * sizeof *out + 1);
    assert_non_null(out);
    for (size_t i = 0; i < (size_t)m * c_stride; i++) c[i] = 7;
    for (int i = 0; s->add && i < m; i++)
        for (int j = 0; j < n; j++)
            c[(size_t)i * c_stride + (size_t)j] = o->c[(size_t)i * (size_t)s->n + (size_t)j];
    pack(g, s, o, m, n, a, b, total);
    if (s->extra) {
        g->pack_a(a + rvi_gemm_a_at(g, total, 0, first), total, o->a2, o->a2_stride, false, m,
                  s->extra);
        g->pack_b(b + rvi_gemm_b_at(g, total, 0, first), total, o->b2, o->b2_stride, false,
                  s->extra, n);
    }
    bool any_k = g->pack_a_rows && !s->extra; /* f32: k need not be filled up */
    g->product(a, total, m, b, total, n, any_k ? (size_t)s->k : total, c, c_stride, s->add);
    for (int i = 0; i < m; i++) {
        memcpy(out + (size_t)i * (size_t)n, c + (size_t)i * c_stride, (size_t)n * sizeof *out);
        for (int j = 0; j < 3; j++) assert_true(c[(size_t)i * c_stride + (size_t)(n + j)] == 7.0f);
    }
    place_free(a, a_bytes);
    place_free(b, b_bytes);
    place_free(c_place, c_bytes);
    return out;
}

static void try_shape(const rvi_train_gemm *g, const shape *s, double relative)
{
    operands o = operands_new(s);
    float *c = run(g, s, &o, s->m, s->n);
    for (int i = 0; i < s->m; i++)
        for (int j = 0; j < s->n; j++) {
            double sum = s->add ? (double)o.c[i * s->n + j] : 0, size = fabs(sum);
            for (int k = 0; k < s->k; k++) {
                size_t ka = s->a_turned ? (size_t)k * o.a_stride + (size_t)i
                                        : (size_t)i * o.a_stride + (size_t)k;
                size_t kb = s->b_turned ? (size_t)j * o.b_stride + (size_t)k
                                        : (size_t)k * o.b_stride + (size_t)j;
                sum += (double)o.a[ka] * (double)o.b[kb];
                size += fabs((double)o.a[ka] * (double)o.b[kb]);
            }
            for (int k = 0; k < s->extra; k++) {
                double t = (double)o.a2[(size_t)i * o.a2_stride + (size_t)k] *
                           (double)o.b2[(size_t)k * o.b2_stride + (size_t)j];
                sum += t;
                size += fabs(t);
            }
            if (fabs((double)c[i * s->n + j] - sum) > relative * size)
                fail_msg("%s, %d x %d x %d: %g instead of %g", g->name, s->m, s->n, s->k,
                         (double)c[i * s->n + j], sum);
        }
    /* fewer rows and columns: the same bits */
    int m = (s->m + 1) / 2, n = (s->n + 1) / 2;
    float *part = run(g, s, &o, m, n);
    for (int i = 0; i < m; i++)
        if (memcmp(part + i * n, c + i * s->n, (size_t)n * sizeof *c) != 0)
            fail_msg("%s: m or n shows in the bits", g->name);
    free(part);
    free(c);
    operands_free(&o);
}

/* All tables of this machine, each once. */
static int tables(const rvi_train_gemm **out)
{
    int n = 0;
    for (const char *const *isa = rvi_kernels_available(); *isa; isa++) {
        rvi_kernels k;
        assert_true(rvi_kernels_init(&k, *isa));
        const rvi_train_gemm *both[] = {k.train_f32, k.train_bf16};
        for (int b = 0; b < 2; b++) {
            bool known = both[b] == NULL;
            for (int i = 0; i < n; i++) known = known || out[i] == both[b];
            if (!known) out[n++] = both[b];
        }
    }
    return n;
}

static void products(void **state)
{
    (void)state;
    static const int sizes[] = {1, 2, 7, 8, 15, 16, 17, 31, 32, 33, 40, 63, 70};
    static const int depths[] = {1, 2, 15, 16, 17, 31, 32, 33, 64, 100, 255, 300, 577, 700};
    const rvi_train_gemm *all[16];
    for (int t = 0, n = tables(all); t < n; t++)
        for (int i = 0; i < 400; i++) {
            shape s = {.m = sizes[rvi_rng_u64(&rng) % (sizeof sizes / sizeof sizes[0])],
                       .n = sizes[rvi_rng_u64(&rng) % (sizeof sizes / sizeof sizes[0])],
                       .k = depths[rvi_rng_u64(&rng) % (sizeof depths / sizeof depths[0])],
                       .extra = i % 3 ? 0 : depths[rvi_rng_u64(&rng) % 8],
                       .a_turned = i % 2,
                       .b_turned = i / 2 % 2,
                       .add = i / 4 % 2};
            try_shape(all[t], &s, all[t]->number_bytes == 2 ? 0.008 : 3e-6);
        }
}

static void large(void **state)
{
    (void)state;
    const rvi_train_gemm *all[16];
    for (int t = 0, n = tables(all); t < n; t++) {
        shape s = {.m = 150, .n = 100, .k = 2000, .extra = 8, .b_turned = true};
        try_shape(all[t], &s, all[t]->number_bytes == 2 ? 0.008 : 3e-6);
    }
}

/* NaN and infinity of a row of A, a column of B reach what they enter and nothing else. */
static void not_numbers(void **state)
{
    (void)state;
    const rvi_train_gemm *all[16];
    for (int t = 0, n = tables(all); t < n; t++) {
        shape s = {.m = 19, .n = 21, .k = 35, .a_turned = t % 2, .b_turned = t / 2 % 2};
        operands o = operands_new(&s);
        o.a[s.a_turned ? 34 * o.a_stride + 3 : 3 * o.a_stride + 34] = NAN;
        o.b[s.b_turned ? 20 * o.b_stride + 34 : 34 * o.b_stride + 20] = INFINITY;
        float *c = run(all[t], &s, &o, s.m, s.n);
        for (int i = 0; i < s.m; i++)
            for (int j = 0; j < s.n; j++)
                assert_int_equal(isfinite(c[i * s.n + j]) == 0, i == 3 || j == 20);
        assert_true(isnan(c[3 * s.n]));
        free(c);
        operands_free(&o);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(products), cmocka_unit_test(large),
                                       cmocka_unit_test(not_numbers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
