/* test_kernels.c - every entry of the kernel table but attention (test_attention.c), on every ISA
 * row that this machine can run.
 *
 * Two kinds of cases. `same_bits` compares a row with the reference: all remainders of sizes,
 * unaligned data, extreme values, guard bytes around outputs; equal means equal bits (any NaN
 * equals any NaN). `meaning` holds a row, the reference too, against double precision or against a
 * law of kernels.h; each tolerance stands beside the worst value observed. */
#include "kernel_data.h"

#include "harness/amount.h"
#include "kernels/gelu.h"

/* ---- same bits: f32 ---- */

static rvi_f16 *halves_new(size_t n)
{
    rvi_f16 *x = alloc((n + !n) * sizeof *x);
    for (size_t i = 0; i < n; i++) x[i] = rvi_f32_to_f16((float)random_below(4001) * 1e-3f - 2.0f);
    return x;
}

static int8_t *bytes_new(size_t n)
{
    int8_t *x = alloc(n + !n);
    for (size_t i = 0; i < n; i++) x[i] = (int8_t)((int)random_below(255) - 127);
    return x;
}

static void check_gemm_f32(size_t n, int n_w, int n_x, kind k)
{
    size_t w_stride = n + 3, x_stride = n + 1, out_stride = (size_t)n_w + 2,
           n_out = (size_t)n_x * out_stride;
    float *w = floats_new((size_t)(n_w - 1) * w_stride + n, k);
    float *x = floats_new((size_t)(n_x - 1) * x_stride + n, k == SPECIAL ? ORDINARY : k);
    guarded g;
    float *got = out_new(&g, n_out), *want = alloc(n_out * sizeof *want);
    memcpy(want, got,
           n_out * sizeof *want); /* so that the gaps between output rows can be compared too */
    row.gemm_f32(w, w_stride, n_w, x, x_stride, n_x, got, out_stride, n);
    ref.gemm_f32(w, w_stride, n_w, x, x_stride, n_x, want, out_stride, n);
    assert_same_bits("gemm_f32", got, want, n_out, n, (size_t)(10 * n_w + n_x));
    rvi_f16 *half = halves_new((size_t)(n_w - 1) * w_stride + n);
    row.gemm_f16(half, w_stride, n_w, x, x_stride, n_x, got, out_stride, n);
    ref.gemm_f16(half, w_stride, n_w, x, x_stride, n_x, want, out_stride, n);
    assert_same_bits("gemm_f16", got, want, n_out, n, (size_t)(10 * n_w + n_x));
    free(half);
    int8_t *bytes = bytes_new((size_t)n_w * ((n + 15) / 16 * 16));
    row.gemm_bytes(bytes, n_w, x, x_stride, n_x, got, out_stride, n);
    ref.gemm_bytes(bytes, n_w, x, x_stride, n_x, want, out_stride, n);
    assert_same_bits("gemm_bytes", got, want, n_out, n, (size_t)(10 * n_w + n_x));
    free(bytes);
    guard_free(&g, "gemm_f32");
    free(want);
    free(x);
    free(w);
}

static void same_gemm_f32(void **state)
{
    (void)state;
    size_t n = 0;
    do {
        for (int n_w = 1; n_w <= 9; n_w++)
            for (int n_x = 1 + random_below(OFTEN(1, 3)); n_x <= 7; n_x += OFTEN(1, 3))
                check_gemm_f32(n, n_w, n_x, (kind)random_below(KINDS));
    } while ((n = next_size(n)) != 0);
    for (kind k = ORDINARY; k < KINDS; k++) check_gemm_f32(64, 33, 18, k);
}

static void check_gemm_low(size_t n, int n_out, int n_x, kind k)
{
    size_t x_stride = n + 1, out_stride = (size_t)n_out + 2, len = (size_t)n_x * out_stride;
    float *w = floats_new((size_t)(n_out + 15) / 16 * 16 * n, k);
    float *x = floats_new((size_t)(n_x - 1) * x_stride + n, k == SPECIAL ? ORDINARY : k);
    float *before = floats_new(len, ORDINARY);
    guarded g;
    float *got = out_new(&g, len), *want = alloc(len * sizeof *want);
    memcpy(got, before, len * sizeof *got);
    memcpy(want, before, len * sizeof *want);
    row.gemm_low(w, n_out, x, x_stride, n_x, got, out_stride, n);
    ref.gemm_low(w, n_out, x, x_stride, n_x, want, out_stride, n);
    assert_same_bits("gemm_low", got, want, len, n, (size_t)(10 * n_out + n_x));
    rvi_f16 *half = halves_new((size_t)(n_out + 15) / 16 * 16 * n);
    row.gemm_low_f16(half, n_out, x, x_stride, n_x, got, out_stride, n);
    ref.gemm_low_f16(half, n_out, x, x_stride, n_x, want, out_stride, n);
    assert_same_bits("gemm_low_f16", got, want, len, n, (size_t)(10 * n_out + n_x));
    free(half);
    int8_t *bytes = bytes_new((size_t)(n_out + 15) / 16 * 16 * n);
    float *d = floats_new((size_t)(n_out + 15) / 16, ORDINARY);
    row.gemm_low_bytes(bytes, d, n_out, x, x_stride, n_x, got, out_stride, n);
    ref.gemm_low_bytes(bytes, d, n_out, x, x_stride, n_x, want, out_stride, n);
    assert_same_bits("gemm_low_bytes", got, want, len, n, (size_t)(10 * n_out + n_x));
    free(d);
    free(bytes);
    guard_free(&g, "gemm_low");
    free(want);
    free(before);
    free(x);
    free(w);
}

static void same_gemm_low(void **state)
{
    (void)state;
    for (size_t n = 1; n <= 33; n += 1 + n / 8)
        for (int n_out = 1; n_out <= 70; n_out += 1 + n_out / AMOUNT(5, 2))
            for (int n_x = 1 + random_below(OFTEN(1, 3)); n_x <= 9; n_x += OFTEN(1, 3))
                check_gemm_low(n, n_out, n_x, (kind)random_below(KINDS));
    for (kind k = ORDINARY; k < KINDS; k++) check_gemm_low(8, 576, 7, k);
}

/* Operations on rows of floats: run(table, a, b, c, n) leaves its result in a; b and c are read. */
typedef void (*row_op)(const rvi_kernels *k, float *a, const float *b, const float *c, size_t n);

static void run_rms_norm(const rvi_kernels *k, float *a, const float *b, const float *c, size_t n)
{
    k->rms_norm(a, b, c, n, 1e-5f);
}
static void run_rms_norm_in_place(const rvi_kernels *k, float *a, const float *b, const float *c,
                                  size_t n)
{
    (void)b;
    k->rms_norm(a, a, c, n, 1e-6f);
}
static void run_layer_norm(const rvi_kernels *k, float *a, const float *b, const float *c, size_t n)
{
    k->layer_norm(a, b, c, b, n, 1e-12f);
}
static void run_layer_norm_in_place(const rvi_kernels *k, float *a, const float *b, const float *c,
                                    size_t n)
{
    k->layer_norm(a, a, c, b, n, 1e-5f);
}
static void run_gelu(const rvi_kernels *k, float *a, const float *b, const float *c, size_t n)
{
    (void)b;
    (void)c;
    k->gelu(a, n);
}
static void run_gelu_tanh(const rvi_kernels *k, float *a, const float *b, const float *c, size_t n)
{
    (void)b;
    (void)c;
    k->gelu_tanh(a, n);
}
static void run_relu(const rvi_kernels *k, float *a, const float *b, const float *c, size_t n)
{
    (void)b;
    (void)c;
    k->relu(a, n);
}
static void run_add(const rvi_kernels *k, float *a, const float *b, const float *c, size_t n)
{
    (void)c;
    k->add(a, b, n);
}
static void run_scale(const rvi_kernels *k, float *a, const float *b, const float *c, size_t n)
{
    (void)c;
    k->scale(a, b[0], n);
}
static void run_axpy(const rvi_kernels *k, float *a, const float *b, const float *c, size_t n)
{
    k->axpy(a, c[0], b, n);
}
static void run_silu_mul(const rvi_kernels *k, float *a, const float *b, const float *c, size_t n)
{
    k->silu_mul(a, b, c, n);
}
static void run_silu_mul_in_place(const rvi_kernels *k, float *a, const float *b, const float *c,
                                  size_t n)
{
    (void)b;
    k->silu_mul(a, a, c, n);
}
static void run_gelu_mul(const rvi_kernels *k, float *a, const float *b, const float *c, size_t n)
{
    k->gelu_mul(a, b, c, n);
}
static void run_soft_cap(const rvi_kernels *k, float *a, const float *b, const float *c, size_t n)
{
    (void)b;
    (void)c;
    k->soft_cap(a, 30.0f, n);
}
static void run_rope_halves(const rvi_kernels *k, float *a, const float *b, const float *c,
                            size_t n)
{
    k->rope(a, b, c, n / 2, false);
}
static void run_rope_interleaved(const rvi_kernels *k, float *a, const float *b, const float *c,
                                 size_t n)
{
    k->rope(a, b, c, n / 2, true);
}
static void run_max(const rvi_kernels *k, float *a, const float *b, const float *c, size_t n)
{
    (void)c;
    a[0] = k->max(b, n);
}
static void run_exp_sum(const rvi_kernels *k, float *a, const float *b, const float *c, size_t n)
{
    float sums[2];
    k->exp_sums(b, c[0], 0.7f, n, sums);
    a[0] = sums[0];
}
static void run_exp_weighted(const rvi_kernels *k, float *a, const float *b, const float *c,
                             size_t n)
{
    float sums[2];
    k->exp_sums(b, c[0], 1.3f, n, sums);
    a[0] = sums[1];
}
static void same_row_op(const char *name, row_op run, int repeats)
{
    for (size_t n = 1; n != 0; n = next_size(n))
        for (int i = 0; i < AMOUNT(repeats, (repeats + 9) / 10) * KINDS; i++) {
            kind k = (kind)(i % KINDS);
            float *b = floats_new(n, k), *c = floats_new(n < 2 ? 2 : n, i % 2 ? k : ORDINARY);
            float *want = floats_new(n, k);
            guarded g;
            float *got = out_new(&g, n);
            memcpy(got, want, n * sizeof *got);
            run(&row, got, b, c, n);
            run(&ref, want, b, c, n);
            assert_same_bits(name, got, want, n, n, (size_t)k);
            guard_free(&g, name);
            free(b);
            free(c);
            free(want);
        }
}

/* name, repeats of each size and kind */
#define ROW_OPS(X)                                                                                 \
    X(rms_norm, 2)                                                                                 \
    X(rms_norm_in_place, 1)                                                                        \
    X(add, 1)                                                                                      \
    X(scale, 1)                                                                                    \
    X(axpy, 1)                                                                                     \
    X(silu_mul, 8)                                                                                 \
    X(silu_mul_in_place, 1)                                                                        \
    X(layer_norm, 2)                                                                               \
    X(layer_norm_in_place, 2)                                                                      \
    X(gelu, 8)                                                                                     \
    X(gelu_tanh, 8)                                                                                \
    X(relu, 1)                                                                                     \
    X(gelu_mul, 8)                                                                                 \
    X(soft_cap, 8)                                                                                 \
    X(rope_halves, 1) X(rope_interleaved, 1) X(max, 4) X(exp_sum, 4) X(exp_weighted, 4)

#define X(name, repeats)                                                                           \
    static void same_##name(void **state)                                                          \
    {                                                                                              \
        (void)state;                                                                               \
        same_row_op(#name, run_##name, repeats);                                                   \
    }
ROW_OPS(X)
#undef X

/* The bounds of exp and their neighbours, then a walk over all bit patterns, through silu with up =
 * 1. */
static void same_exp(void **state)
{
    (void)state;
    enum { N = AMOUNT(1 << 18, 1 << 12) };
    float *x = alloc(N * sizeof *x), *one = alloc(N * sizeof *one);
    float *got = alloc(N * sizeof *got), *want = alloc(N * sizeof *want);
    uint32_t bounds[] = {bits_of_float(-RVI_EXP_MAX),
                         bits_of_float(-RVI_EXP_MIN),
                         0x7f800000u,
                         0xff800000u,
                         0u,
                         0x80000000u};
    for (uint32_t i = 0; i < N; i++) {
        uint32_t near = bounds[i / 64 % 6] + i % 64 - 32;
        x[i] = float_of_bits(i < 6 * 64 ? near : i * (0xffffffffu / N) + random_bits() % 4096);
        one[i] = 1.0f;
    }
    row.silu_mul(got, x, one, N);
    ref.silu_mul(want, x, one, N);
    assert_same_bits("exp in silu_mul", got, want, N, N, 0);
    free(x);
    free(one);
    free(got);
    free(want);
}

/* ---- same bits: f16 ---- */

static bool same_f16(rvi_f16 a, rvi_f16 b)
{
    return a == b || ((a & 0x7fff) > 0x7c00 && (b & 0x7fff) > 0x7c00);
}

static void same_f16_to_f32(void **state)
{
    (void)state;
    enum { ALL = 65536 };
    rvi_f16 *h = alloc(ALL * sizeof *h);
    float *got = alloc(ALL * sizeof *got), *want = alloc(ALL * sizeof *want);
    for (int i = 0; i < ALL; i++) h[i] = (rvi_f16)i;
    row.f16_to_f32(h, got, ALL);
    ref.f16_to_f32(h, want, ALL);
    assert_same_bits("f16_to_f32", got, want, ALL, ALL, 0);
    for (size_t n = 1; n != 0; n = next_size(n)) {
        rvi_f16 *part = alloc(n * sizeof *part);
        guarded g;
        float *out = out_new(&g, n);
        fill_f16(part, n, ANY_BITS);
        row.f16_to_f32(part, out, n);
        ref.f16_to_f32(part, want, n);
        assert_same_bits("f16_to_f32", out, want, n, n, 0);
        guard_free(&g, "f16_to_f32");
        free(part);
    }
    free(h);
    free(got);
    free(want);
}

static void check_f32_to_f16(const float *x, size_t n)
{
    guarded g;
    rvi_f16 *got = guard_new(&g, n * sizeof *got, sizeof *got), *want = alloc(n * sizeof *want);
    row.f32_to_f16(x, got, n);
    ref.f32_to_f16(x, want, n);
    for (size_t i = 0; i < n; i++)
        if (!same_f16(got[i], want[i]))
            fail_msg("%s f32_to_f16: %a is %04x, reference %04x", row.isa, (double)x[i], got[i],
                     want[i]);
    guard_free(&g, "f32_to_f16");
    free(want);
}

/* Every f16 as f32, the middle between it and the next, and the neighbours of that middle: all
 * rounding decisions. */
static void same_f32_to_f16(void **state)
{
    (void)state;
    float x[4];
    for (uint32_t h = 0; h < 65536; h++) {
        float here = rvi_f16_to_f32((rvi_f16)h), next = rvi_f16_to_f32((rvi_f16)(h + 1));
        x[0] = here;
        x[1] = isfinite(next) ? (here + next) / 2 : here;
        x[2] = nextafterf(x[1], INFINITY);
        x[3] = nextafterf(x[1], -INFINITY);
        check_f32_to_f16(x, 4);
    }
    for (size_t n = 1; n != 0; n = next_size(n))
        for (kind k = ORDINARY; k < KINDS; k++) {
            float *v = floats_new(n, k);
            check_f32_to_f16(v, n);
            free(v);
        }
}

/* ---- same bits: quantized ---- */

static bool same_act(const rvi_act_block *a, const rvi_act_block *b)
{
    bool same_d = bits_of_float(a->d) == bits_of_float(b->d) || (isnan(a->d) && isnan(b->d));
    return same_d && a->sum == b->sum && (isnan(a->d) || a->d_sum == b->d_sum) &&
           memcmp(a->q, b->q, sizeof a->q) == 0;
}

static void same_quantize_act(void **state)
{
    (void)state;
    for (int i = 0; i < AMOUNT(3000, 200); i++) {
        size_t blocks = (size_t)(1 + i % 9), n = 32 * blocks;
        float *x = floats_new(n, (kind)(i % KINDS));
        if (i % 7 == 0) /* around the smallest range, and exact halves between two integers */
            for (size_t j = 0; j < n; j++)
                x[j] = i % 2 ? random_unit() * 1.1e-30f : (float)random_below(255) * 0.5f - 63.5f;
        if (i % 14 == 0) x[0] = 127.0f;
        guarded g;
        rvi_act_block *got = guard_new(&g, blocks * sizeof *got, 4),
                      *want = alloc(blocks * sizeof *want);
        row.quantize_act(x, got, n);
        ref.quantize_act(x, want, n);
        for (size_t b = 0; b < blocks; b++)
            if (!same_act(&got[b], &want[b]))
                fail_msg("%s quantize_act: block %zu of case %d differs", row.isa, b, i);
        guard_free(&g, "quantize_act");
        free(x);
        free(want);
    }
}

static void same_quantize_wide(void **state)
{
    (void)state;
    for (int i = 0; i < AMOUNT(600, 60); i++) {
        size_t blocks = (size_t)(1 + i % 3), n = 256 * blocks;
        float *x = floats_new(n, (kind)(i % KINDS));
        if (i % 14 == 0) x[n - 1] = 127.0f;
        guarded g;
        rvi_act_wide *got = guard_new(&g, blocks * sizeof *got, 4),
                     *want = alloc(blocks * sizeof *want);
        row.quantize_wide(x, got, n);
        ref.quantize_wide(x, want, n);
        for (size_t b = 0; b < blocks; b++) {
            if (isnan(want[b].d) && isnan(got[b].d)) got[b].d = want[b].d;
            if (memcmp(&got[b], &want[b], sizeof *got) != 0)
                fail_msg("%s quantize_wide: block %zu of case %d differs", row.isa, b, i);
        }
        guard_free(&g, "quantize_wide");
        free(x);
        free(want);
    }
}

/* Activations for weights of a type: random blocks. */
static void *acts_new(rvi_qtype t, size_t n, int n_rows, kind k)
{
    size_t bytes = rvi_act_bytes(t, n);
    void *acts = alloc(bytes * (size_t)n_rows);
    for (size_t at = 0; at < bytes * (size_t)n_rows; at += bytes)
        if (rvi_qtypes[t].block_weights == 256)
            fill_wide_acts((rvi_act_wide *)(void *)((char *)acts + at), n / 256, k);
        else
            fill_acts((rvi_act_block *)(void *)((char *)acts + at), n / 32, k);
    return acts;
}

/* n_w rows as panels. */
static uint8_t *panels_new(rvi_qtype t, const uint8_t *w, size_t w_stride, int n_w, size_t n,
                           void **memory)
{
    size_t bytes = rvi_panel_bytes(t, n);
    int n_panels = (n_w + RVI_PANEL - 1) / RVI_PANEL;
    *memory = alloc(bytes * (size_t)n_panels + 63);
    uint8_t *panels = (uint8_t *)*memory + (-(uintptr_t)*memory % 64);
    for (int p = 0; p < n_panels; p++) {
        int rows = n_w - p * RVI_PANEL < RVI_PANEL ? n_w - p * RVI_PANEL : RVI_PANEL;
        row.pack[t](w + (size_t)(p * RVI_PANEL) * w_stride, w_stride, rows,
                    panels + (size_t)p * bytes, n);
    }
    return panels;
}

static void *quantized(rvi_qtype t, const float *x, size_t n, int n_rows)
{
    size_t bytes = rvi_act_bytes(t, n);
    char *acts = alloc(bytes * (size_t)n_rows);
    for (int r = 0; r < n_rows; r++)
        if (rvi_qtypes[t].block_weights == 256)
            row.quantize_wide(x + (size_t)r * n, (rvi_act_wide *)(void *)(acts + (size_t)r * bytes),
                              n);
        else
            row.quantize_act(x + (size_t)r * n, (rvi_act_block *)(void *)(acts + (size_t)r * bytes),
                             n);
    return acts;
}

static void check_gemm_panels(rvi_qtype t, size_t n, int n_w, int n_x, kind k)
{
    int n_panels = (n_w + RVI_PANEL - 1) / RVI_PANEL;
    size_t w_stride = rvi_qtype_row_bytes(t, n) + 1, x_stride = rvi_act_bytes(t, n);
    size_t out_stride = (size_t)(n_panels * RVI_PANEL) + 3, n_out = (size_t)n_x * out_stride;
    uint8_t *w = alloc((size_t)n_w *
                       w_stride); /* rows start at odd and even addresses, the last ends with w */
    for (int i = 0; i < n_w; i++)
        fill_blocks(w + 1 + (size_t)i * w_stride, t, n / rvi_qtypes[t].block_weights, k);
    void *x = acts_new(t, n, n_x, k), *memory;
    uint8_t *panels = panels_new(t, w + 1, w_stride, n_w, n, &memory);
    guarded g;
    float *got = out_new(&g, n_out), *want = alloc(n_out * sizeof *want);
    memcpy(want, got, n_out * sizeof *want);
    for (int r = 0; r < n_x;
         r++) /* outputs without a row are 0, or NaN where the activations are */
        for (int i = n_w; i < n_panels * RVI_PANEL; i++)
            want[(size_t)r * out_stride + (size_t)i] = 0.0f;
    row.gemm_panels[t](panels, n_panels, x, x_stride, n_x, got, out_stride, n);
    ref.gemm_act[t](w + 1, w_stride, n_w, x, x_stride, n_x, want, out_stride, n);
    char what[64];
    snprintf(what, sizeof what, "gemm_panels %s, %d x %d", rvi_qtypes[t].name, n_w, n_x);
    for (int r = 0; r < n_x; r++)
        for (int i = n_w; i < n_panels * RVI_PANEL; i++) {
            size_t at = (size_t)r * out_stride + (size_t)i;
            if (k == ORDINARY) assert_true(got[at] == 0.0f);
            got[at] = 0.0f;
        }
    assert_same_bits(what, got, want, n_out, n,
                     (size_t)k); /* the gaps too: they hold guard bytes in both */
    guard_free(&g, "gemm_panels");
    free(want);
    free(x);
    free(w);
    free(memory);
}

static void same_gemm_panels(void **state)
{
    (void)state;
    for (int t = 0; t < RVI_QTYPE_COUNT; t++) {
        size_t unit = rvi_qtypes[t].block_weights;
        if (ref.gemm_act[t] == NULL) continue; /* float weights: test_float_panels.c */
        assert_non_null(row.gemm_panels[t]);
        for (int i = 0; i < 49 * 2; i++)
            check_gemm_panels((rvi_qtype)t, unit * (size_t)(1 + random_below(unit == 32 ? 12 : 3)),
                              1 + i % 7 * 3, 1 + i / 7 % 7, (kind)(i % KINDS));
        static const int wide[][2] = {{1, 8},   {16, 1}, {9, 9},   {16, 33}, {33, 4},
                                      {48, 37}, {3, 70}, {16, 16}, {32, 31}};
        for (size_t i = 0; i < sizeof wide / sizeof wide[0]; i++)
            check_gemm_panels((rvi_qtype)t, unit == 32 ? 32 * 18 : 512, wide[i][0], wide[i][1],
                              (kind)(i % KINDS));
    }
}

/* Tiles, where the row has them, against panels: both from the same floats. */
static void same_gemm_tiles(void **state)
{
    (void)state;
    for (int t = 0; t < RVI_QTYPE_COUNT; t++) {
        if (row.gemm_tiles[t] == NULL || rvi_qtypes[t].block_weights == 1) continue;
        size_t unit = rvi_qtypes[t].block_weights;
        for (int i = 0; i < OFTEN(40, 14); i++) {
            kind k = (kind)(i % KINDS);
            size_t n = unit * (size_t)(1 + (i < 4 ? 70 : random_below(unit == 32 ? 40 : 6)) %
                                               (unit == 32 ? 80 : 10));
            int n_groups = 1 + random_below(5), n_panels = 1 + random_below(3), n_w = 16 * n_panels;
            if (i == 0) { /* more activations than stay in a cache */
                n_groups = 32;
                n = unit == 32 ? 71 * unit : 9 * unit;
            }
            size_t row_bytes = rvi_qtype_row_bytes((rvi_qtype)t, n),
                   act_bytes = rvi_act_bytes((rvi_qtype)t, n);
            size_t tile_bytes = rvi_tile_act_bytes((rvi_qtype)t, n), stride = (size_t)n_w + 5;
            uint8_t *w = alloc((size_t)n_w * row_bytes);
            fill_blocks(w, (rvi_qtype)t, (size_t)n_w * n / unit, k == ANY_BITS ? ORDINARY : k);
            void *memory, *tile_memory = alloc(tile_bytes * (size_t)n_groups + 63);
            char *tiles = (char *)tile_memory + (-(uintptr_t)tile_memory % 64);
            uint8_t *panels = panels_new((rvi_qtype)t, w, row_bytes, n_w, n, &memory);
            float *x = floats_new((size_t)(16 * n_groups) * n, k);
            void *acts = quantized((rvi_qtype)t, x, n, 16 * n_groups);
            guarded g;
            size_t n_out = (size_t)(16 * n_groups) * stride;
            float *got = out_new(&g, n_out), *want = alloc(n_out * sizeof *want);
            memcpy(want, got, n_out * sizeof *want);
            for (int j = 0; j < n_groups; j++)
                row.prepare_tiles[t](x + (size_t)(16 * j) * n, n, tiles + (size_t)j * tile_bytes,
                                     n);
            row.gemm_tiles[t](panels, n_panels, tiles, n_groups, got, stride, n);
            row.gemm_panels[t](panels, n_panels, acts, act_bytes, 16 * n_groups, want, stride, n);
            assert_same_bits(rvi_qtypes[t].name, got, want, n_out, n, (size_t)k);
            guard_free(&g, "gemm_tiles");
            free(want);
            free(acts);
            free(x);
            free(memory);
            free(tile_memory);
            free(w);
        }
    }
}

static void same_dequantize(void **state)
{
    (void)state;
    for (int t = 0; t < RVI_QTYPE_COUNT; t++) {
        size_t unit = rvi_qtypes[t].block_weights;
        for (size_t blocks = 1; blocks <= (unit == 1 ? 70 : 20); blocks++)
            for (kind k = ORDINARY; k < KINDS; k++) {
                size_t n = blocks * unit, bytes = blocks * rvi_qtypes[t].block_bytes;
                uint8_t *w = alloc(bytes + 1);
                if (unit == 1)
                    for (size_t i = 0; i < bytes; i++) w[1 + i] = (uint8_t)random_bits();
                else
                    fill_blocks(w + 1, (rvi_qtype)t, blocks, k);
                guarded g;
                float *got = out_new(&g, n), *want = alloc(n * sizeof *want);
                row.dequantize[t](w + 1, got, n);
                ref.dequantize[t](w + 1, want, n);
                assert_same_bits(rvi_qtypes[t].name, got, want, n, n, (size_t)k);
                guard_free(&g, rvi_qtypes[t].name);
                free(want);
                free(w);
            }
    }
}

/* ---- meaning ---- */

/* Worst error of exp in units of the last place of the result, over a dense walk of its range.
 * Observed: 0.875. */
static void meaning_exp(void **state)
{
    (void)state;
    double worst = 0;
    for (uint32_t i = 0; i < 2000000; i++) {
        float x = (float)(-87.336 + (88.7228 + 87.336) * ((double)i / 2000000.0));
        double want = exp((double)x);
        float got = rvi_exp_f32(x), nearest = (float)want;
        double ulp = (double)(nextafterf(nearest, INFINITY) - nearest);
        worst = fmax(worst, fabs((double)got - want) / ulp);
    }
    print_message("exp: worst error %.3f ulp\n", worst);
    assert_true(worst < 1.0);

    assert_true(rvi_exp_f32(0.0f) == 1.0f && rvi_exp_f32(-0.0f) == 1.0f &&
                rvi_exp_f32(1e-40f) == 1.0f);
    assert_true(isnan(rvi_exp_f32(NAN)));
    assert_true(isfinite(rvi_exp_f32(RVI_EXP_MAX)));
    assert_true(isinf(rvi_exp_f32(nextafterf(RVI_EXP_MAX, INFINITY))) &&
                isinf(rvi_exp_f32(INFINITY)));
    assert_true(rvi_exp_f32(RVI_EXP_MIN) >= 0x1p-126f);
    assert_true(rvi_exp_f32(nextafterf(RVI_EXP_MIN, -INFINITY)) == 0.0f &&
                rvi_exp_f32(-INFINITY) == 0.0f);
}

/* Error relative to the sum of |a b|. Observed over these sizes: 7.4e-8. */
static void meaning_gemm_f32(void **state)
{
    (void)state;
    double worst = 0;
    for (size_t n = 1; n != 0; n = next_size(n)) {
        float *w = floats_new(n * 3, ORDINARY), *x = floats_new(n * 2, ORDINARY), out[6];
        row.gemm_f32(w, n, 3, x, n, 2, out, 3, n);
        for (size_t o = 0; o < 6; o++) {
            double sum = 0, size = 0;
            for (size_t i = 0; i < n; i++) {
                double product = (double)w[o % 3 * n + i] * (double)x[o / 3 * n + i];
                sum += product;
                size += fabs(product);
            }
            worst = fmax(worst, fabs((double)out[o] - sum) / size);
        }
        free(w);
        free(x);
    }
    print_message("gemm_f32: worst error %.3g of the sum of magnitudes\n", worst);
    assert_true(worst < 2e-7);
}

/* Error relative to |what was there| + the sum of |a b|. Observed: 1.8e-7. */
static void meaning_gemm_low(void **state)
{
    (void)state;
    enum { OUT = 37, RANK = 24, ROWS = 5 };
    double worst = 0;
    float *w = floats_new(48 * RANK, ORDINARY), *x = floats_new(ROWS * RANK, ORDINARY);
    float *before = floats_new(ROWS * OUT, ORDINARY), *out = alloc(ROWS * OUT * sizeof *out);
    for (size_t n = 1; n <= RANK; n++) {
        memcpy(out, before, ROWS * OUT * sizeof *out);
        row.gemm_low(w, OUT, x, RANK, ROWS, out, OUT, n);
        for (size_t i = 0; i < ROWS * OUT; i++) {
            size_t o = i % OUT, r = i / OUT;
            double sum = (double)before[i], size = fabs(sum);
            for (size_t k = 0; k < n; k++) {
                double product =
                    (double)w[(o / 16 * n + k) * 16 + o % 16] * (double)x[r * RANK + k];
                sum += product;
                size += fabs(product);
            }
            worst = fmax(worst, fabs((double)out[i] - sum) / size);
        }
    }
    free(w);
    free(x);
    free(before);
    free(out);
    print_message("gemm_low: worst error %.3g of the sum of magnitudes\n", worst);
    assert_true(worst < 4e-7);
}

/* Products that underflow from below leave -0 in their lanes. Lanes past the end of the row must
 * not turn it into +0: the sum of sixteen -0 is -0. Below 16 elements the untouched lanes are +0,
 * and so is the sum. */
static void meaning_lanes_without_element_stay(void **state)
{
    (void)state;
    float w[70], x[70], out;
    for (size_t n = 1; n <= 70; n++) {
        w[n - 1] = 1e-30f;
        x[n - 1] = -1e-30f;
        row.gemm_f32(w, n, 1, x, n, 1, &out, 1, n);
        assert_true(out == 0.0f);
        assert_int_equal(signbit(out) != 0, n >= 16);
    }
}

/* One way to ask every row: rows of weights as a file has them in, products out. */
static void products(rvi_qtype t, const uint8_t *w, size_t w_stride, int n_w, const void *x,
                     size_t x_stride, int n_x, float *out, size_t n)
{
    if (row.gemm_act[t] != NULL && row.gemm_panels[t] == NULL) {
        row.gemm_act[t](w, w_stride, n_w, x, x_stride, n_x, out, (size_t)n_w, n);
        return;
    }
    int n_panels = (n_w + RVI_PANEL - 1) / RVI_PANEL;
    size_t stride = (size_t)(n_panels * RVI_PANEL);
    void *memory;
    uint8_t *panels = panels_new(t, w, w_stride, n_w, n, &memory);
    float *all = alloc(stride * (size_t)n_x * sizeof *all);
    row.gemm_panels[t](panels, n_panels, x, x_stride, n_x, all, stride, n);
    for (int r = 0; r < n_x; r++)
        memcpy(out + r * n_w, all + (size_t)r * stride, (size_t)n_w * sizeof *out);
    free(all);
    free(memory);
}

static double activation(rvi_qtype t, const void *acts, size_t i)
{
    if (rvi_qtypes[t].block_weights == 256) {
        const rvi_act_wide *a = (const rvi_act_wide *)acts + i / 256;
        return (double)a->d * a->q[i % 256];
    }
    const rvi_act_block *a = (const rvi_act_block *)acts + i / 32;
    return (double)a->d * a->q[i % 32];
}

/* Products with int8 activations against dequantized weights times d q, in double. Error relative
 * to the sum of magnitudes (for types with a minimum, of its parts d q and m too, since they may
 * cancel). Observed: 3.1e-8. */
static void meaning_products(void **state)
{
    (void)state;
    double worst = 0;
    for (int t = 0; t < RVI_QTYPE_COUNT; t++) {
        if (ref.gemm_act[t] == NULL) continue;
        for (int repeat = 0; repeat < 20; repeat++) {
            enum { N = 1024 };
            size_t bytes = rvi_qtype_row_bytes((rvi_qtype)t, N);
            uint8_t *w = alloc(bytes);
            float *weights = alloc(N * sizeof *weights), *x = floats_new(N, ORDINARY), out;
            fill_blocks(w, (rvi_qtype)t, N / rvi_qtypes[t].block_weights, ORDINARY);
            rvi_dequantize((rvi_qtype)t, w, weights, N);
            void *acts = quantized((rvi_qtype)t, x, N, 1);
            products((rvi_qtype)t, w, bytes, 1, acts, 0, 1, &out, N);
            double sum = 0, size = 0;
            for (size_t i = 0; i < N; i++) {
                double xi = activation((rvi_qtype)t, acts, i);
                sum += (double)weights[i] * xi;
                size += fabs((double)weights[i] * xi) + fabs(0.05 * xi);
            }
            worst = fmax(worst, fabs((double)out - sum) / size);
            free(acts);
            free(w);
            free(weights);
            free(x);
        }
    }
    print_message("products: worst error %.3g of the sum of magnitudes\n", worst);
    assert_true(worst < 2e-7);
}

/* The law of the room: a tile equals its outputs computed one by one. */
static void meaning_tiles_equal_single_outputs(void **state)
{
    (void)state;
    enum { N = 512, W = 37, ROWS = 41 };
    float *w = floats_new(W * N, ORDINARY), *x = floats_new(ROWS * N, ORDINARY);
    float *tile = alloc(W * ROWS * sizeof *tile), one;
    row.gemm_f32(w, N, W, x, N, ROWS, tile, W, N);
    for (size_t i = 0; i < W * ROWS; i++) {
        row.gemm_f32(w + i % W * N, N, 1, x + i / W * N, N, 1, &one, 1, N);
        assert_same_bits("gemm_f32, tile against 1 x 1", &tile[i], &one, 1, i % W, i / W);
    }
    for (int t = 0; t < RVI_QTYPE_COUNT; t++) {
        if (ref.gemm_act[t] == NULL) continue;
        size_t row_bytes = rvi_qtype_row_bytes((rvi_qtype)t, N),
               act_bytes = rvi_act_bytes((rvi_qtype)t, N);
        uint8_t *blocks = alloc(W * row_bytes);
        char *acts = quantized((rvi_qtype)t, x, N, ROWS);
        fill_blocks(blocks, (rvi_qtype)t, W * N / rvi_qtypes[t].block_weights, ORDINARY);
        products((rvi_qtype)t, blocks, row_bytes, W, acts, act_bytes, ROWS, tile, N);
        for (size_t i = 0; i < W * ROWS; i += 1 + (size_t)random_below(3)) {
            products((rvi_qtype)t, blocks + i % W * row_bytes, row_bytes, 1,
                     acts + i / W * act_bytes, act_bytes, 1, &one, N);
            assert_same_bits(rvi_qtypes[t].name, &tile[i], &one, 1, i % W, i / W);
        }
        free(blocks);
        free(acts);
    }
    free(tile);
    free(w);
    free(x);
}

static void meaning_quantize_act(void **state)
{
    (void)state;
    rvi_act_block b;
    float x[32] = {0};
    row.quantize_act(x, &b, 32);
    assert_true(b.d == 0.0f && b.sum == 0);
    for (int i = 0; i < 32; i++) assert_int_equal(b.q[i], 0);

    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 3 * 32; i++) {
        fill(x, 32, ORDINARY);
        x[i % 32] = bad[i / 32];
        row.quantize_act(x, &b, 32);
        assert_true(isnan(b.d) && b.sum == 0);
        for (int j = 0; j < 32; j++) assert_int_equal(b.q[j], 0);
    }
    for (int repeat = 0; repeat < 1000; repeat++) {
        fill(x, 32, repeat % 2 ? ORDINARY : HUGE_);
        row.quantize_act(x, &b, 32);
        int sum = 0, top = 0;
        for (int i = 0; i < 32; i++) {
            sum += b.q[i];
            top = abs(b.q[i]) > top ? abs(b.q[i]) : top;
            /* half a step, and the rounding of d and of x * (127 / amax): observed 0.50001 */
            assert_true(fabs((double)x[i] - (double)b.d * b.q[i]) <= 0.5001 * (double)b.d);
        }
        assert_int_equal(top, 127);
        assert_int_equal(b.sum, sum);
        assert_true(b.d_sum == b.d * (float)sum);
    }
}

/* Worst errors against double, relative to |result| + a floor where the result crosses zero. */
static void meaning_activations(void **state)
{
    (void)state;
    enum { N = 20001 };
    float *g = alloc(N * sizeof *g), *u = alloc(N * sizeof *u), *cap = alloc(N * sizeof *cap);
    float *silu = alloc(N * sizeof *silu), *gelu = alloc(N * sizeof *gelu);
    for (int i = 0; i < N; i++) {
        g[i] = (float)(i - N / 2) / 1000.0f; /* -10 .. 10 */
        u[i] = 1.5f;
        cap[i] = 20.0f * g[i];
    }
    row.silu_mul(silu, g, u, N);
    row.gelu_mul(gelu, g, u, N);
    row.soft_cap(cap, 30.0f, N);
    double worst_silu = 0, worst_gelu = 0, worst_cap = 0;
    for (int i = 0; i < N; i++) {
        double x = (double)g[i], inner = 0.79788456080286536 * (x + 0.044715 * x * x * x);
        double want_silu = 1.5 * x / (1 + exp(-x)), want_gelu = 1.5 * x / (1 + exp(-2 * inner));
        worst_silu =
            fmax(worst_silu, fabs((double)silu[i] - want_silu) / (fabs(want_silu) + 1e-30));
        worst_gelu =
            fmax(worst_gelu, fabs((double)gelu[i] - want_gelu) / (fabs(want_gelu) + 1e-30));
        worst_cap = fmax(worst_cap, fabs((double)cap[i] - 30 * tanh(20 * x / 30)) / 30);
    }
    print_message("silu %.3g, gelu %.3g relative; soft_cap %.3g of the cap\n", worst_silu,
                  worst_gelu, worst_cap);
    assert_true(worst_silu < 5e-7); /* observed 1.6e-7 */
    assert_true(worst_gelu <
                2e-5); /* observed 1.1e-5, at the far left where exp's argument is large */
    assert_true(worst_cap < 5e-7); /* observed 2.1e-7 */
    free(g);
    free(u);
    free(silu);
    free(gelu);
    free(cap);
}

/* The ungated activations over -16 .. 16, against double. */
static void meaning_ungated(void **state)
{
    (void)state;
    enum { N = 1 << 20 };
    int step = OFTEN(1, 5); /* others in every row: same_gelu compares their bits */
    float *x = alloc(N * sizeof *x), *gelu = alloc(N * sizeof *gelu),
          *tanh_form = alloc(N * sizeof *tanh_form);
    for (int i = 0; i < N; i++) gelu[i] = tanh_form[i] = x[i] = (float)(i - N / 2) * 0x1p-15f;
    row.gelu(gelu, N);
    row.gelu_tanh(tanh_form, N);
    double worst = 0, worst_tanh = 0, worst_erf = 0;
    for (int i = random_below(step); i < N; i += step) {
        double v = (double)x[i], want = 0.5 * v * erfc(-v / sqrt(2.0));
        double inner = 0.79788456080286536 * (v + 0.044715 * v * v * v);
        worst = fmax(worst, fabs((double)gelu[i] - want) / (fabs(v) + 1e-30));
        worst_tanh = fmax(worst_tanh, fabs((double)tanh_form[i] - v / (1 + exp(-2 * inner))) /
                                          (fabs(v) + 1e-30));
        worst_erf = fmax(worst_erf, fabs(2 * (double)rvi_phi_f32(x[i]) - 1 - erf(v / sqrt(2.0))));
    }
    print_message("gelu %.3g, tanh form %.3g of |x|; erf %.3g\n", worst, worst_tanh, worst_erf);
    assert_true(worst < 1.5e-7);      /* observed 1.0e-7 */
    assert_true(worst_tanh < 2.5e-7); /* observed 1.2e-7 */
    assert_true(worst_erf < 2e-7);    /* observed 1.3e-7 */
    free(x);
    free(gelu);
    free(tanh_form);

    float edge[] = {0.0f, -0.0f, INFINITY, -100.0f, NAN, -INFINITY, 3.0f};
    float same[] = {0.0f, -0.0f, INFINITY, -100.0f, NAN, -INFINITY, 3.0f};
    row.gelu(edge, 7);
    assert_true(edge[0] == 0.0f && edge[1] == 0.0f && edge[2] == INFINITY && edge[3] == 0.0f);
    assert_true(isnan(edge[4]) && isnan(edge[5]));
    row.relu(same, 7);
    assert_true(same[0] == 0.0f && signbit(same[1]) && same[2] == INFINITY && same[3] == 0.0f);
    assert_true(isnan(same[4]) && same[5] == 0.0f && !signbit(same[5]) && same[6] == 3.0f);
}

/* Relative to the largest value of the row. The mean is far from zero in half of the cases.
 * Observed: 1.8e-6. */
static void meaning_layer_norm(void **state)
{
    (void)state;
    double worst = 0;
    for (size_t n = 2; n != 0; n = next_size(n)) {
        float *x = floats_new(n, ORDINARY), *w = floats_new(n, ORDINARY),
              *b = floats_new(n, ORDINARY);
        float *out = alloc(n * sizeof *out);
        for (size_t i = 0; n % 2 && i < n; i++) x[i] += 30.0f;
        row.layer_norm(out, x, w, b, n, 1e-5f);
        double sum = 0, squares = 0, largest = 0, error = 0;
        for (size_t i = 0; i < n; i++) sum += (double)x[i];
        double mean = sum / (double)n;
        for (size_t i = 0; i < n; i++) squares += ((double)x[i] - mean) * ((double)x[i] - mean);
        double r = 1 / sqrt(squares / (double)n + 1e-5);
        for (size_t i = 0; i < n; i++) {
            double want = ((double)x[i] - mean) * r * (double)w[i] + (double)b[i];
            error = fmax(error, fabs((double)out[i] - want));
            largest = fmax(largest, fabs(want));
        }
        worst = fmax(worst, error / largest);
        free(x);
        free(w);
        free(b);
        free(out);
    }
    print_message("layer_norm: worst error %.3g of the largest value\n", worst);
    assert_true(worst < 1e-5);
}

static void meaning_rms_norm(void **state)
{
    (void)state;
    double worst = 0;
    for (size_t n = 1; n != 0; n = next_size(n)) {
        float *x = floats_new(n, ORDINARY), *w = floats_new(n, ORDINARY),
              *out = alloc(n * sizeof *out);
        row.rms_norm(out, x, w, n, 1e-5f);
        double sum = 0;
        for (size_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
        double r = 1 / sqrt(sum / (double)n + 1e-5);
        for (size_t i = 0; i < n; i++) {
            double want = (double)x[i] * r * (double)w[i];
            worst = fmax(worst, fabs((double)out[i] - want) / (fabs(want) + 1e-30));
        }
        free(x);
        free(w);
        free(out);
    }
    print_message("rms_norm: worst relative error %.3g\n", worst);
    assert_true(worst < 6e-7); /* observed 2.0e-7 */
}

static void meaning_rope(void **state)
{
    (void)state;
    float x[6] = {1, 2, 3, 4, 5, 6}, y[6] = {1, 2, 3, 4, 5, 6};
    const float c[3] = {0.0f, 1.0f, -1.0f},
                s[3] = {1.0f, 0.0f, 0.0f}; /* a quarter turn, none, a half turn */
    row.rope(x, c, s, 3, false);
    row.rope(y, c, s, 3, true);
    const float want_x[6] = {-4, 2, -3, 1, 5, -6}, want_y[6] = {-2, 1, 3, 4, -5, -6};
    assert_memory_equal(x, want_x, sizeof x);
    assert_memory_equal(y, want_y, sizeof y);
}

static void meaning_max(void **state)
{
    (void)state;
    for (size_t n = 1; n != 0; n = next_size(n)) {
        float *x = floats_new(n, ORDINARY);
        size_t at = (size_t)random_below((int)n);
        x[at] = 5.0f;
        assert_true(row.max(x, n) == 5.0f);
        for (size_t i = 0; i < n; i++) x[i] = -x[i] - 100.0f;
        x[at] = -90.0f;
        assert_true(row.max(x, n) == -90.0f);
        x[at] = NAN;
        assert_true(isnan(row.max(x, n)));
        free(x);
    }
}

static void table_choice(void **state)
{
    (void)state;
    rvi_kernels k;
    assert_false(rvi_kernels_init(&k, "no such row"));
    assert_string_equal(k.isa, "ref");
    assert_ptr_equal(k.gemm_f32, ref.gemm_f32);

    const char *const *names = rvi_kernels_available();
    assert_string_equal(names[0], "ref");
    const char *best = NULL;
    for (size_t i = 0; names[i] != NULL; i++) {
        assert_true(rvi_kernels_init(&k, names[i]));
        assert_string_equal(k.isa, names[i]);
        best = names[i];
    }
    assert_true(rvi_kernels_init(&k, NULL));
    assert_string_equal(k.isa, best);
    /* every row of the list is found by its name, or refused because the machine lacks it */
    size_t n = 0;
#define X(name, is_present)                                                                        \
    if (names[n] && !strcmp(names[n], #name))                                                      \
        n++;                                                                                       \
    else {                                                                                         \
        assert_false(rvi_kernels_init(&k, #name));                                                 \
        assert_string_equal(k.isa, "ref");                                                         \
    }
    RVI_ISA_LIST(X)
#undef X
    assert_null(names[n]);
}

/* ---- groups ---- */

static int seed(void **state)
{
    (void)state;
    random_state = 20240611;
    return 0;
}

#define CASE(function) cmocka_unit_test_setup(function, seed)

int main(void)
{
    const struct CMUnitTest same_bits[] = {
        CASE(same_gemm_f32),
        CASE(same_gemm_low),
#define X(name, repeats) CASE(same_##name),
        ROW_OPS(X)
#undef X
            CASE(same_exp),
        CASE(same_f16_to_f32),
        CASE(same_f32_to_f16),
        CASE(same_quantize_act),
        CASE(same_quantize_wide),
        CASE(same_gemm_panels),
        CASE(same_gemm_tiles),
        CASE(same_dequantize),
    };
    const struct CMUnitTest meaning[] = {
        CASE(meaning_gemm_low),
        CASE(meaning_gemm_f32),
        CASE(meaning_lanes_without_element_stay),
        CASE(meaning_products),
        CASE(meaning_tiles_equal_single_outputs),
        CASE(meaning_quantize_act),
        CASE(meaning_activations),
        CASE(meaning_ungated),
        CASE(meaning_layer_norm),
        CASE(meaning_rms_norm),
        CASE(meaning_rope),
        CASE(meaning_max),
    };
    const struct CMUnitTest common[] = {CASE(meaning_exp), CASE(table_choice)};

    int failed = 0;
    rvi_kernels_init(&ref, "ref");
    failed += cmocka_run_group_tests_name("kernels", common, NULL, NULL);
    for (const char *const *isa = rvi_kernels_available(); *isa != NULL; isa++) {
        char group[64];
        if (!rvi_kernels_init(&row, *isa)) return 1;
        snprintf(group, sizeof group, "kernels, meaning, %s", *isa);
        failed += cmocka_run_group_tests_name(group, meaning, NULL, NULL);
        if (strcmp(*isa, "ref") == 0) continue;
        snprintf(group, sizeof group, "kernels, %s against ref", *isa);
        failed += cmocka_run_group_tests_name(group, same_bits, NULL, NULL);
    }
    return failed != 0;
}
