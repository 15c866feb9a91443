/* test_float_panels.c - default-mode products with float weights, on every ISA row that this
 * machine can run.
 *
 * Rows of the table, tiles included, are held to the bits of the reference over all kinds of data,
 * also around the floor of the law and with subnormals switched off; the reference itself is held
 * against double precision. */
#include "float_data.h"
#include "harness/amount.h"
#include "kernels/panels.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "kernels/float_panels.h"

static const rvi_qtype types[] = {RVI_F32, RVI_F16, RVI_BF16};
enum { N_TYPES = sizeof types / sizeof types[0] };

/* The kinds of float_data.h and two more */
enum {
    WIDE = KINDS, /* finite, exponents from -70 to 60: sums of all sizes, some overflow */
    FLOOR,        /* around the floor of `pairs`: half of it goes to zero, products near 2^-112 */
    FLOOR_F16,    /* around that of activations for F16, often with small differences */
    SMALLEST_F16, /* the smallest weights of F16, of both signs */
    ALL_KINDS
};

static float number(int k)
{
    uint32_t bits = random_bits();
    if (k == WIDE)
        return float_of_bits((bits & 0x807fffffu) | (uint32_t)(127 - 70 + random_below(131)) << 23);
    if (k == FLOOR)
        return float_of_bits((bits & 0x807fffffu) | (uint32_t)(127 - 60 + random_below(8)) << 23);
    if (k == FLOOR_F16)
        return float_of_bits((bits & 0x80000001u) | (uint32_t)(127 - 81 + random_below(4)) << 23);
    if (k == SMALLEST_F16) return rvi_f16_to_f32((rvi_f16)((bits & 0x8000u) | 1));
    return random_float((kind)k);
}

static size_t weight_bytes(rvi_qtype t)
{
    return t == RVI_F32 ? 4 : 2;
}

static float weight_at(rvi_qtype t, const uint8_t *p)
{
    float f;
    uint16_t half;
    if (t == RVI_F32) {
        memcpy(&f, p, sizeof f);
        return f;
    }
    memcpy(&half, p, sizeof half);
    return t == RVI_F16 ? rvi_f16_to_f32(half) : rvi_bf16_to_f32(half);
}

static void weight_set(rvi_qtype t, uint8_t *p, float f)
{
    uint16_t half = t == RVI_F16 ? rvi_f32_to_f16(f) : rvi_f32_to_bf16(f);
    if (t == RVI_F32)
        memcpy(p, &f, sizeof f);
    else
        memcpy(p, &half, sizeof half);
}

/* One product: packed weights, rows of activations and what the reference makes of them */
typedef struct product {
    rvi_qtype t;
    size_t n, panel_bytes, act_bytes, out_stride, n_out;
    int n_panels, n_rows, n_outputs;
    uint8_t *w;
    void *panels, *acts;
    float *x, *want;
} product;

static void *aligned_new(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 64) / 64 * 64);
    assert_non_null(p);
    return p;
}

static void pack(product *p)
{
    size_t row_bytes = p->n * weight_bytes(p->t);
    for (int i = 0; i < p->n_panels; i++) {
        int left = p->n_outputs - 16 * i;
        row.pack[p->t](p->w + 1 + (size_t)(16 * i) * row_bytes, row_bytes, left < 16 ? left : 16,
                       (uint8_t *)p->panels + (size_t)i * p->panel_bytes, p->n);
    }
}

static void product_new(product *p, rvi_qtype t, size_t n, int n_outputs, int n_rows, int w_kind,
                        int x_kind)
{
    *p = (product){.t = t,
                   .n = n,
                   .n_outputs = n_outputs,
                   .n_rows = n_rows,
                   .n_panels = (n_outputs + 15) / 16};
    p->panel_bytes = rvi_float_panel_bytes(t, n);
    p->act_bytes = rvi_float_act_bytes(t, n);
    p->out_stride = (size_t)p->n_panels * 16 + 3;
    p->n_out = (size_t)(n_rows - 1) * p->out_stride + (size_t)p->n_panels * 16;
    p->w = alloc((size_t)n_outputs * n * weight_bytes(t) + 1); /* rows stand at odd addresses */
    for (size_t i = 0; i < (size_t)n_outputs * n; i++)
        weight_set(t, p->w + 1 + i * weight_bytes(t), number(w_kind));
    p->x = alloc((size_t)n_rows * n * sizeof *p->x);
    for (size_t i = 0; i < (size_t)n_rows * n; i++) p->x[i] = number(x_kind);
    p->panels = aligned_new((size_t)p->n_panels * p->panel_bytes);
    p->acts = aligned_new((size_t)n_rows * p->act_bytes);
    pack(p);
    for (int r = 0; r < n_rows; r++)
        ref.prepare[t](p->x + (size_t)r * n, (uint8_t *)p->acts + (size_t)r * p->act_bytes, n);
    p->want = alloc(p->n_out * sizeof *p->want);
    memset(p->want, GUARD_BYTE, p->n_out * sizeof *p->want);
    ref.gemm_panels[t](p->panels, p->n_panels, p->acts, p->act_bytes, n_rows, p->want,
                       p->out_stride, n);
}

static void product_free(product *p)
{
    free(p->w);
    free(p->x);
    free(p->panels);
    free(p->acts);
    free(p->want);
}

static void check_rows(const product *p)
{
    guarded g;
    float *got = out_new(&g, p->n_out);
    row.gemm_panels[p->t](p->panels, p->n_panels, p->acts, p->act_bytes, p->n_rows, got,
                          p->out_stride, p->n);
    assert_same_bits("gemm_panels", got, p->want, p->n_out, p->n, (size_t)p->n_rows);
    guard_free(&g, "gemm_panels");
}

static void check_tiles(const product *p)
{
    int n_groups = p->n_rows / 16;
    if (!row.gemm_tiles[p->t] || !n_groups) return;
    size_t bytes = rvi_tile_act_bytes(p->t, p->n);
    uint8_t *acts = aligned_new((size_t)n_groups * bytes);
    for (int g = 0; g < n_groups; g++)
        row.prepare_tiles[p->t](p->x + (size_t)(16 * g) * p->n, p->n, acts + (size_t)g * bytes,
                                p->n);
    guarded g;
    float *got = out_new(&g, p->n_out);
    row.gemm_tiles[p->t](p->panels, p->n_panels, acts, n_groups, got, p->out_stride, p->n);
    size_t done = (size_t)(16 * n_groups) * p->out_stride; /* the other rows are not for tiles */
    if (done < p->n_out) memcpy(got + done, p->want + done, (p->n_out - done) * sizeof *got);
    assert_same_bits("gemm_tiles", got, p->want, p->n_out, p->n, (size_t)p->n_rows);
    guard_free(&g, "gemm_tiles");
    free(acts);
}

static void check(rvi_qtype t, size_t n, int n_outputs, int n_rows, int w_kind, int x_kind)
{
    product p;
    product_new(&p, t, n, n_outputs, n_rows, w_kind, x_kind);
    check_rows(&p);
    check_tiles(&p);
    product_free(&p);
}

static void same_products(void **state)
{
    (void)state;
    for (int i = 0; i < N_TYPES; i++) {
        rvi_qtype t = types[i];
        check(t, 0, 20, 9, ORDINARY, ORDINARY);
        for (size_t n = (size_t)random_below(OFTEN(1, 2)); n <= 70; n += OFTEN(1, 2))
            check(t, n, 1 + random_below(40), 1 + random_below(9), random_below(ALL_KINDS),
                  random_below(ALL_KINDS));
        for (int n_rows = 1; n_rows <= 40; n_rows += 1 + random_below(OFTEN(1, 3)))
            check(t, 96, 1 + random_below(49), n_rows, ORDINARY, ORDINARY);
        /* more rows, inputs and panels than a kernel takes at a time */
        check(t, 293, 33, 135, ORDINARY, ORDINARY);
        check(t, 600, 106, 29, ORDINARY, ORDINARY);
        check(t, 600, 106, 1, ORDINARY, ORDINARY);
        for (int a = 0; a < ALL_KINDS; a++)
            for (int b = 0; b < AMOUNT(ALL_KINDS, 1); b++)
                check(t, 64, 33, 18, a, (a + b) % ALL_KINDS);
        check(t, 1000, 40, 34, WIDE, WIDE);
        check(t, 1000, 40, 34, FLOOR, FLOOR);
        check(t, 1000, 40, 34, SMALLEST_F16, FLOOR_F16);
    }
    /* More inputs than the slices and blocks of the tiles */
    check(RVI_BF16, 8200, 16, 52, ORDINARY, WIDE);
}

static void same_prepared(void **state)
{
    (void)state;
    for (int i = 0; i < N_TYPES; i++)
        for (int k = 0; k < ALL_KINDS; k++)
            for (size_t n = 0; n <= 100; n += AMOUNT(1, 1 + n / 16)) {
                size_t bytes = rvi_float_act_bytes(types[i], n);
                float *x = alloc(n * sizeof *x), *want = alloc(bytes);
                for (size_t j = 0; j < n; j++) x[j] = number(k);
                guarded g;
                float *got = out_new(&g, bytes / sizeof *got);
                row.prepare[types[i]](x, got, n);
                ref.prepare[types[i]](x, want, n);
                assert_same_bits("prepare", got, want, bytes / sizeof *got, n, (size_t)k);
                guard_free(&g, "prepare");
                free(want);
                free(x);
            }
}

/* A program around the library may have switched subnormals off; no bit may change. F32 is left
 * out: there they count. */
static void flushing_does_not_show(void **state)
{
    (void)state;
#if defined(__x86_64__)
    for (int i = 0; i < N_TYPES; i++) {
        if (types[i] == RVI_F32) continue;
        for (int k = 0; k <= ALL_KINDS; k++) {
            product p;
            if (k < ALL_KINDS)
                product_new(&p, types[i], 160, 32, 3, k, k);
            else /* the smallest differences of the smallest products */
                product_new(&p, types[i], 2, 16, 200, SMALLEST_F16, FLOOR_F16);
            unsigned mode = _mm_getcsr();
            _mm_setcsr(mode | 0x8040);
            check_rows(&p);
            _mm_setcsr(mode);
            product_free(&p);
        }
    }
#else
    skip();
#endif
}

/* Every f16, and every bf16 from the floor on, is kept: times 1 gives the weight. */
static void every_weight_is_exact(void **state)
{
    (void)state;
    for (int i = 0; i < N_TYPES; i++) {
        rvi_qtype t = types[i];
        if (t == RVI_F32) continue;
        uint16_t w[16];
        float one[1] = {1.0f}, out[16];
        void *panel = aligned_new(rvi_float_panel_bytes(t, 1)),
             *acts = aligned_new(rvi_float_act_bytes(t, 1));
        row.prepare[t](one, acts, 1);
        for (uint32_t bits = 0; bits < 0x10000; bits += AMOUNT(16, 16 * 17)) {
            for (uint32_t j = 0; j < 16; j++) w[j] = (uint16_t)(bits + j);
            row.pack[t](w, sizeof w[0], 16, panel, 1);
            row.gemm_panels[t](panel, 1, acts, rvi_float_act_bytes(t, 1), 1, out, 16, 1);
            for (int j = 0; j < 16; j++) {
                float value = weight_at(t, (const uint8_t *)&w[j]);
                if (t == RVI_BF16 && fabsf(value) < RVI_BF16_FLOOR) value = 0.0f;
                if (isfinite(value))
                    assert_true(out[j] == value);
                else
                    assert_true(!isfinite(out[j]));
            }
        }
        free(panel);
        free(acts);
    }
}

/* Missing outputs are zeros whatever stood in the panel. */
static void missing_outputs_are_zero(void **state)
{
    (void)state;
    for (int i = 0; i < N_TYPES; i++) {
        rvi_qtype t = types[i];
        size_t n = 40, bytes = rvi_float_panel_bytes(t, n);
        uint8_t *panel = aligned_new(bytes), *w = alloc(5 * n * 4);
        float *x = floats_new(n, ORDINARY), out[16];
        void *acts = aligned_new(rvi_float_act_bytes(t, n));
        for (size_t j = 0; j < 5 * n; j++) weight_set(t, w + j * weight_bytes(t), random_unit());
        memset(panel, 0xff, bytes);
        row.pack[t](w, n * weight_bytes(t), 5, panel, n);
        row.prepare[t](x, acts, n);
        row.gemm_panels[t](panel, 1, acts, rvi_float_act_bytes(t, n), 1, out, 16, n);
        for (int o = 0; o < 16; o++)
            assert_true(o < 5 ? out[o] != 0.0f && isfinite(out[o]) : out[o] == 0.0f);
        free(acts);
        free(x);
        free(w);
        free(panel);
    }
}

static float rounded(rvi_qtype t, float x)
{
    return t == RVI_F16 ? rvi_f16_to_f32(rvi_f32_to_f16(x)) : rvi_bf16_to_f32(rvi_f32_to_bf16(x));
}

/* Against double precision: the error relative to the size of the outputs, and that of activations
 * rounded to the type of the weights (summed in double, so that only the rounding counts). Seen:
 * F32 2.8e-7, F16 2.8e-7 against 1.9e-4, BF16 2.1e-6 against 1.4e-3. */
static void close_to_double(void **state)
{
    (void)state;
    enum { N = 2048, OUTPUTS = 16, ROWS = 8 };
    for (int i = 0; i < N_TYPES; i++) {
        product p;
        rvi_qtype t = types[i];
        product_new(&p, t, N, OUTPUTS, ROWS, ORDINARY, ORDINARY);
        float *got = alloc(p.n_out * sizeof *got);
        row.gemm_panels[t](p.panels, 1, p.acts, p.act_bytes, ROWS, got, p.out_stride, N);
        double error = 0, rounding = 0, size = 0;
        for (size_t r = 0; r < ROWS; r++)
            for (size_t o = 0; o < OUTPUTS; o++) {
                double exact = 0, coarse = 0;
                for (size_t k = 0; k < N; k++) {
                    double w = (double)weight_at(t, p.w + 1 + (o * N + k) * weight_bytes(t));
                    exact += w * (double)p.x[r * N + k];
                    coarse += w * (double)rounded(t, p.x[r * N + k]);
                }
                double e = (double)got[r * p.out_stride + o] - exact;
                error += e * e;
                rounding += (coarse - exact) * (coarse - exact);
                size += exact * exact;
            }
        error = sqrt(error / size);
        rounding = sqrt(rounding / size);
        assert_true(error < (t == RVI_BF16 ? 1e-5 : 1e-6));
        if (t != RVI_F32) assert_true(error < rounding / 20);
        free(got);
        product_free(&p);
    }
}

static int seed(void **state)
{
    (void)state;
    random_state = 20261115;
    return 0;
}

#define CASE(function) cmocka_unit_test_setup(function, seed)

/* A row that adds no product of floats was tested as the row before it. */
static bool has_same_products(const rvi_kernels *a, const rvi_kernels *b)
{
    bool same = true;
    for (int i = 0; i < N_TYPES; i++) {
        rvi_qtype t = types[i];
        same = same && a->gemm_panels[t] == b->gemm_panels[t] && a->prepare[t] == b->prepare[t] &&
               a->pack[t] == b->pack[t] && a->gemm_tiles[t] == b->gemm_tiles[t] &&
               a->prepare_tiles[t] == b->prepare_tiles[t];
    }
    return same;
}

int main(void)
{
    const struct CMUnitTest same_bits[] = {
        CASE(same_products),
        CASE(same_prepared),
    };
    const struct CMUnitTest meaning[] = {
        CASE(flushing_does_not_show),
        CASE(every_weight_is_exact),
        CASE(missing_outputs_are_zero),
        CASE(close_to_double),
    };
    rvi_kernels_init(&ref, "ref");
    int failed = 0;
    rvi_kernels before = {0};
    for (const char *const *isa = rvi_kernels_available(); *isa != NULL; isa++, before = row) {
        char group[64];
        if (!rvi_kernels_init(&row, *isa)) return 1;
        if (has_same_products(&row, &before)) continue;
        snprintf(group, sizeof group, "float panels, meaning, %s", *isa);
        failed += cmocka_run_group_tests_name(group, meaning, NULL, NULL);
        if (strcmp(*isa, "ref") == 0) continue;
        snprintf(group, sizeof group, "float panels, %s against ref", *isa);
        failed += cmocka_run_group_tests_name(group, same_bits, NULL, NULL);
    }
    return failed != 0;
}
