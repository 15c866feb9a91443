/* Merging against the formulas written out in double on whole products; the decompositions by what
 * defines them. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "harness/assert_ok.h"
#include "lora/merge.h"
#include "lora/svd.h"

/* ---- decompositions ---- */

enum { MOST = 40 };

static double at(const double *a, int m, int row, int col)
{
    return a[(size_t)col * (size_t)m + (size_t)row];
}

/* How far q^T q (columns of m) is from the identity. */
static double not_orthogonal(const double *q, int m, int n)
{
    double worst = 0;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            double sum = 0;
            for (int k = 0; k < m; k++) sum += at(q, m, k, i) * at(q, m, k, j);
            worst = fmax(worst, fabs(sum - (i == j)));
        }
    return worst;
}

typedef enum matrix_kind { FULL, ZERO, RANK_ONE, DEFICIENT, GRADED, EQUAL, KINDS } matrix_kind;

static void fill_matrix(double *a, int m, int n, matrix_kind kind, rvi_rng *rng)
{
    double x[MOST], y[MOST];
    for (int i = 0; i < MOST; i++) {
        x[i] = rvi_rng_double(rng) - 0.5;
        y[i] = rvi_rng_double(rng) - 0.5;
    }
    for (int j = 0; j < n; j++)
        for (int i = 0; i < m; i++) {
            double v = rvi_rng_double(rng) - 0.5;
            if (kind == ZERO) v = 0;
            if (kind == RANK_ONE) v = x[i] * y[j];
            if (kind == DEFICIENT && j >= (n + 1) / 2) v = at(a, m, i, j / 2);
            if (kind == GRADED) v *= pow(10, -20.0 * j / n);
            if (kind == EQUAL) v = i == j ? 3 : 0;
            a[(size_t)j * (size_t)m + (size_t)i] = v;
        }
}

static void qr_by_definition(void **state)
{
    (void)state;
    static const int sizes[][2] = {{1, 1}, {2, 1}, {5, 5}, {30, 7}, {40, 33}};
    static double a[MOST * MOST], q[MOST * MOST], r[MOST * MOST];
    rvi_rng rng = {1};
    double worst = 0;
    for (size_t s = 0; s < RVI_COUNT(sizes); s++)
        for (int kind = 0; kind < KINDS; kind++) {
            int m = sizes[s][0], n = sizes[s][1];
            fill_matrix(a, m, n, (matrix_kind)kind, &rng);
            memcpy(q, a, sizeof q);
            rvi_qr(q, m, n, r);
            worst = fmax(worst, not_orthogonal(q, m, n));
            for (int j = 0; j < n; j++)
                for (int i = 0; i < m; i++) {
                    double sum = 0;
                    for (int k = 0; k < n; k++) sum += at(q, m, i, k) * at(r, n, k, j);
                    worst = fmax(worst, fabs(sum - at(a, m, i, j)));
                    if (i < n && i > j) assert_true(at(r, n, i, j) == 0);
                }
        }
    print_message("# QR: worst error %.1e\n", worst);
    assert_true(worst < 2e-14); /* observed: 1.7e-15 */
}

static void svd_by_definition(void **state)
{
    (void)state;
    static const int sizes[] = {1, 2, 3, 8, 16, 40};
    static double a[MOST * MOST], u[MOST * MOST], v[MOST * MOST], s[MOST];
    rvi_rng rng = {2};
    double worst = 0;
    for (size_t z = 0; z < RVI_COUNT(sizes); z++)
        for (int kind = 0; kind < KINDS; kind++) {
            int n = sizes[z];
            fill_matrix(a, n, n, (matrix_kind)kind, &rng);
            memcpy(u, a, sizeof u);
            rvi_svd(u, n, s, v);
            worst = fmax(worst, fmax(not_orthogonal(u, n, n), not_orthogonal(v, n, n)));
            for (int j = 0; j < n; j++) {
                assert_true(s[j] >= 0 && (!j || s[j] <= s[j - 1]));
                for (int i = 0; i < n; i++) {
                    double sum = 0;
                    for (int k = 0; k < n; k++) sum += at(u, n, i, k) * s[k] * at(v, n, j, k);
                    worst = fmax(worst, fabs(sum - at(a, n, i, j)));
                }
            }
            if (kind == ZERO) assert_true(s[0] == 0);
            if (kind == RANK_ONE && n > 1) assert_true(s[0] > 0 && s[1] == 0);
            if (kind == EQUAL) assert_true(fabs(s[0] - 3) < 1e-14 && fabs(s[n - 1] - 3) < 1e-14);
        }
    print_message("# SVD: worst error %.1e\n", worst);
    assert_true(worst < 1e-13); /* observed: 1.1e-14 */

    /* known values: [[3, 0], [4, 5]] has 3 sqrt 5 and sqrt 5; and sizes near the ends of double */
    static const double scales[] = {1, 1e-200, 1e200};
    worst = 0;
    for (size_t i = 0; i < RVI_COUNT(scales); i++) {
        double k[] = {3 * scales[i], 4 * scales[i], 0, 5 * scales[i]};
        rvi_svd(k, 2, s, v);
        worst = fmax(worst, fabs(s[0] / scales[i] - 3 * sqrt(5.0)));
        worst = fmax(worst, fabs(s[1] / scales[i] - sqrt(5.0)));
    }
    print_message("# SVD, known values: worst error %.1e\n", worst);
    assert_true(worst < 1e-13); /* observed: 8.9e-16 */
}

/* ---- adapters of a small model ---- */

static const rvi_lora_target targets[] = {
    {"model.layers.0.self_attn.q_proj", "blk.0.attn_q", 40, 24, 0, false, 0},
    {"model.layers.0.mlp.up_proj", "blk.0.ffn_up", 17, 60, 0, false, 0},
    {"model.layers.0.mlp.down_proj", "blk.0.ffn_down", 3, 2, 0, false, 0}, /* narrower than ranks */
    {"lm_head", "output", 9, 9, 0, false, 0},
};
enum { N = RVI_COUNT(targets), MOST_PRODUCT = 60 * 40 };

static rvi_backend *be;

static int backend_setup(void **state)
{
    (void)state;
    return rvi_backend_cpu_new(&be, &(rvi_cpu_options){.n_threads = 1}, NULL, NULL) != RV_OK;
}

static int backend_teardown(void **state)
{
    (void)state;
    be->ops->free(be);
    return 0;
}

typedef struct shape {
    int rank[N]; /* 0: none */
    float scale;
    float size; /* of the values */
} shape;

static rvi_adapter *adapter_of(const shape *s, uint64_t seed)
{
    rvi_adapter *a;
    rvi_rng rng = {seed};
    assert_ok(rvi_adapter_new(&a, be, N, err));
    for (int i = 0; i < N; i++) {
        size_t n_a = (size_t)(s->rank[i] * targets[i].n_in),
               n_b = (size_t)(s->rank[i] * targets[i].n_out);
        float v[2048];
        if (!s->rank[i]) continue;
        assert_true(n_a + n_b <= RVI_COUNT(v));
        for (size_t k = 0; k < n_a + n_b; k++) v[k] = s->size * (float)(rvi_rng_double(&rng) - 0.5);
        assert_ok(rvi_adapter_put(a, i, &targets[i], s->rank[i], s->scale, v, v + n_a, err));
    }
    return a;
}

/* out += c s B A of one slot, written out. */
static void add_product(double *out, const rvi_adapter *a, int slot, double c)
{
    int rank = rvi_adapter_rank(a, slot), n_in = targets[slot].n_in, n_out = targets[slot].n_out;
    float ma[4096], mb[4096];
    if (!rank) return;
    assert_true(rank * n_in <= 4096 && rank * n_out <= 4096);
    rvi_adapter_read(a, slot, ma, mb);
    for (int o = 0; o < n_out; o++)
        for (int i = 0; i < n_in; i++) {
            double sum = 0;
            for (int k = 0; k < rank; k++)
                sum += (double)mb[o * rank + k] * (double)ma[k * n_in + i];
            out[o * n_in + i] += c * (double)a->slots[slot].scale * sum;
        }
}

static double norm(const double *x, int slot)
{
    double sum = 0;
    for (int i = 0; i < targets[slot].n_in * targets[slot].n_out; i++) sum += x[i] * x[i];
    return sqrt(sum);
}

/* The largest |merged - sum c_i dW_i| / |sum c_i dW_i| over the slots, by Frobenius norms. */
static double distance(const rvi_adapter *merged, const rvi_merge_part *parts, int n,
                       const double *c)
{
    double worst = 0;
    for (int s = 0; s < N; s++) {
        static double want[MOST_PRODUCT], off[MOST_PRODUCT];
        memset(want, 0, sizeof want);
        for (int i = 0; i < n; i++) add_product(want, parts[i].adapter, s, c[i]);
        memcpy(off, want, sizeof off);
        add_product(off, merged, s, -1);
        double size = norm(want, s);
        worst = fmax(worst, size > 0 ? norm(off, s) / size : norm(off, s));
    }
    return worst;
}

static const shape shapes[3] = {
    {{4, 2, 3, 0}, 2, 0.5f}, {{4, 2, 0, 1}, 0.5f, 1}, {{1, 6, 2, 0}, -0.25f, 2}};

static void parts_open(rvi_merge_part *parts, int n)
{
    for (int i = 0; i < n; i++)
        parts[i] = (rvi_merge_part){.adapter = adapter_of(&shapes[i], (uint64_t)i + 1),
                                    .quality = 0.2 + 0.3 * i,
                                    .n_samples = 10 - 3 * i};
}

static void parts_close(rvi_merge_part *parts, int n)
{
    for (int i = 0; i < n; i++) rvi_adapter_free((rvi_adapter *)(uintptr_t)parts[i].adapter);
}

/* Every weighted sum, with ranks that add up and recompressed to a rank that holds all: the
 * formula, and nothing lost. */
static void sums_by_hand(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int n;
        double c[3];
    } cases[] = {
        {"sum", 3, {1, 1, 1}},
        {"sum", 1, {1}},
        {"average", 3, {1.0 / 3, 1.0 / 3, 1.0 / 3}},
        {"average", 2, {0.5, 0.5}},
        {"quality_weighted", 3, {2.0 / 8.7, 3.5 / 8.7, 3.2 / 8.7}},
        {"ema", 2, {0.99, 0.01}},
    };
    double side_by_side = 0, compressed = 0;
    for (size_t i = 0; i < RVI_COUNT(cases); i++)
        for (int rank = 0; rank <= 12; rank += 12) {
            rvi_merge_part parts[3];
            rvi_adapter *merged;
            double slots[N];
            rvi_merge_report report = {.slots = slots};
            parts_open(parts, cases[i].n);
            assert_ok(rvi_adapter_merge(&merged, targets, rvi_merge_find(cases[i].name), parts,
                                        cases[i].n, rank, &report, err));
            double *worst = rank ? &compressed : &side_by_side;
            *worst = fmax(*worst, distance(merged, parts, cases[i].n, cases[i].c));
            assert_true(report.lost < 1e-25 && report.energy > 0);
            for (int s = 0; s < N; s++) {
                int sum = 0;
                for (int k = 0; k < cases[i].n; k++) sum += rvi_adapter_rank(parts[k].adapter, s);
                assert_int_equal(rvi_adapter_rank(merged, s), sum);
                assert_true(slots[s] < 1e-25);
            }
            rvi_adapter_free(merged);
            parts_close(parts, cases[i].n);
        }
    print_message("# sums: side by side %.1e, recompressed %.1e\n", side_by_side, compressed);
    assert_true(side_by_side < 1e-6); /* observed: 4.1e-8 */
    assert_true(compressed < 1e-6);   /* observed: 6.8e-8 */
}

/* The best product of a rank: what is lost is the rest of the singular values, told beforehand by
 * adapters that are orthogonal to each other. */
static void losses(void **state)
{
    (void)state;
    /* slot 3 (9 x 9): products of unit vectors, singular values 8, 1 and 0.5 */
    static const double values[] = {8, 1, 0.5};
    rvi_merge_part parts[3];
    for (int i = 0; i < 3; i++) {
        rvi_adapter *a;
        float ma[9] = {0}, mb[9] = {0};
        ma[i] = (float)values[i];
        mb[8 - 2 * i] = 0.5f;
        assert_ok(rvi_adapter_new(&a, be, N, err));
        assert_ok(rvi_adapter_put(a, 3, &targets[3], 1, 2, ma, mb, err));
        parts[i] = (rvi_merge_part){.adapter = a};
    }
    static const double one[3] = {1, 1, 1};
    rvi_adapter *merged;
    double slots[N];
    rvi_merge_report report = {.slots = slots};
    const rvi_merge_rule *sum = rvi_merge_find("sum");
    assert_ok(rvi_adapter_merge(&merged, targets, sum, parts, 3, 2, &report, err));
    assert_true(fabs(report.energy - 65.25) < 1e-12);
    assert_true(fabs(report.lost - 0.25 / 65.25) < 1e-12);
    assert_true(fabs(slots[3] - report.lost) < 1e-12 && slots[0] == 0);
    assert_int_equal(report.worst_slot, 3);
    assert_int_equal(rvi_adapter_rank(merged, 3), 2);
    assert_true(fabs(distance(merged, parts, 3, one) - sqrt(0.25 / 65.25)) < 1e-6);
    rvi_adapter_free(merged);
    assert_ok(rvi_adapter_merge(&merged, targets, sum, parts, 3, 1, &report, err)); /* 1.9 % */
    assert_true(fabs(report.lost - 1.25 / 65.25) < 1e-12);
    rvi_adapter_free(merged);

    /* without the large one rank 1 loses 20 % */
    rv_error bad = {0};
    assert_int_equal(rvi_adapter_merge(&merged, targets, sum, parts + 1, 2, 1, &report, &bad),
                     RV_E_ADAPTER);
    assert_null(merged);
    assert_non_null(strstr(bad.text, "20.00 %"));
    assert_non_null(strstr(bad.text, "'lm_head'"));
    assert_true(fabs(report.lost - 0.2) < 1e-12);
    parts_close(parts, 3);
}

/* ---- ewc ---- */

static float *fisher_of(const rvi_adapter *a, uint64_t seed, float size)
{
    size_t n = rvi_adapter_n_params(a);
    rvi_rng rng = {seed};
    float *f = rvi_alloc_array(n, sizeof *f);
    for (size_t i = 0; i < n; i++) f[i] = size * (float)rvi_rng_double(&rng);
    return f;
}

/* The same products from other factors: B M and M^-1 A with a well-conditioned M. */
static rvi_adapter *other_factors(const rvi_adapter *a, uint64_t seed)
{
    rvi_adapter *b;
    rvi_rng rng = {seed};
    assert_ok(rvi_adapter_new(&b, be, N, err));
    for (int s = 0; s < N; s++) {
        int r = rvi_adapter_rank(a, s), n_in = targets[s].n_in, n_out = targets[s].n_out;
        float ma[2048], mb[2048];
        if (!r) continue;
        rvi_adapter_read(a, s, ma, mb);
        /* column operations on B, their inverses on A */
        for (int step = 0; step < 6 * r; step++) {
            int p = (int)(rvi_rng_u64(&rng) % (uint64_t)r),
                q = (int)(rvi_rng_u64(&rng) % (uint64_t)r);
            float t = (float)(rvi_rng_double(&rng) - 0.5);
            for (int o = 0; p != q && o < n_out; o++) mb[o * r + p] += t * mb[o * r + q];
            for (int i = 0; p != q && i < n_in; i++) ma[q * n_in + i] -= t * ma[p * n_in + i];
        }
        assert_ok(rvi_adapter_put(b, s, &targets[s], r, 1, ma, mb, err));
        b->slots[s].scale = a->slots[s].scale;
    }
    return b;
}

static double ewc_distance(const rvi_adapter *x, float size_x, const rvi_adapter *y, float size_y,
                           const double *c)
{
    float *fx = fisher_of(x, 7, size_x), *fy = fisher_of(y, 8, size_y);
    rvi_merge_part parts[2] = {{.adapter = x, .fisher = fx}, {.adapter = y, .fisher = fy}};
    rvi_adapter *merged;
    assert_ok(rvi_adapter_merge(&merged, targets, rvi_merge_find("ewc"), parts, 2, 0, NULL, err));
    double d = distance(merged, parts, 2, c);
    for (int s = 0; s < N; s++)
        assert_int_equal(rvi_adapter_rank(merged, s),
                         RVI_MAX(rvi_adapter_rank(x, s), rvi_adapter_rank(y, s)));
    rvi_adapter_free(merged);
    rvi_free(fx);
    rvi_free(fy);
    return d;
}

/* Whatever the Fisher information: of one product in two forms that product; and where one part has
 * none, the other's. */
static void ewc_keeps(void **state)
{
    (void)state;
    static const double first[] = {1, 0}, second[] = {0, 1};
    static const shape like[] = {{{4, 2, 2, 1}, 2, 0.5f}, {{4, 2, 2, 1}, 0.5f, 1}};
    rvi_adapter *a = adapter_of(&like[0], 1), *b = adapter_of(&like[1], 2),
                *same = other_factors(a, 3);
    double again = ewc_distance(a, 1, same, 1, first),
           apart = ewc_distance(a, 1, same, 100, second), none2 = ewc_distance(a, 1, b, 0, first),
           none1 = ewc_distance(a, 0, b, 1, second);
    print_message("# ewc: one product in two forms %.1e %.1e, nothing known of one %.1e %.1e\n",
                  again, apart, none2, none1);
    assert_true(again < 1e-5);                          /* observed: 6.6e-8 */
    assert_true(apart < 1e-5);                          /* observed: 3.3e-8 */
    assert_true(none2 < 1e-6);                          /* observed: 3.5e-8 */
    assert_true(none1 < 1e-6);                          /* observed: 4.5e-8 */
    assert_true(ewc_distance(a, 1, b, 1, first) > 0.1); /* and otherwise both count */
    assert_true(ewc_distance(a, 1, b, 1, second) > 0.1);
    rvi_adapter_free(a);
    rvi_adapter_free(b);
    rvi_adapter_free(same);
}

/* Rank 1 written out: factors of equal norm, the second's sign turned to the first's, the Fisher
 * information scaled by the squares of what the factors were scaled by. */
static void ewc_by_hand(void **state)
{
    (void)state;
    enum { S = 3, W = 9 };
    static const shape one[] = {{{0, 0, 0, 1}, 2, 1}, {{0, 0, 0, 1}, -3, 0.3f}};
    double va[2][W], vb[2][W], fa[2][W], fb[2][W], dot = 0, want[W * W], worst = 0;
    rvi_merge_part parts[2];
    float *fisher[2];
    for (int p = 0; p < 2; p++) {
        rvi_adapter *a = adapter_of(&one[p], (uint64_t)p + 20);
        float ma[W], mb[W];
        double na = 0, nb = 0, s = (double)one[p].scale;
        parts[p] = (rvi_merge_part){.adapter = a};
        fisher[p] = fisher_of(a, (uint64_t)p + 30, 1);
        parts[p].fisher = fisher[p];
        rvi_adapter_read(a, S, ma, mb);
        for (int i = 0; i < W; i++) {
            na += (double)ma[i] * (double)ma[i];
            nb += s * (double)mb[i] * s * (double)mb[i];
        }
        double g = sqrt(sqrt(na) / sqrt(nb)); /* b' = s b g, a' = a / g: equal norms */
        for (int i = 0; i < W; i++) {
            va[p][i] = (double)ma[i] / g;
            vb[p][i] = s * (double)mb[i] * g;
            fa[p][i] = g * g * (double)fisher[p][i];
            fb[p][i] = (double)fisher[p][W + i] / (g * g * s * s);
        }
    }
    for (int i = 0; i < W; i++) dot += va[0][i] * va[1][i] + vb[0][i] * vb[1][i];
    double sign = dot < 0 ? -1 : 1;
    for (int o = 0; o < W; o++)
        for (int i = 0; i < W; i++)
            want[o * W + i] =
                (fb[0][o] * vb[0][o] + sign * fb[1][o] * vb[1][o]) / (fb[0][o] + fb[1][o]) *
                ((fa[0][i] * va[0][i] + sign * fa[1][i] * va[1][i]) / (fa[0][i] + fa[1][i]));
    rvi_adapter *merged;
    assert_ok(rvi_adapter_merge(&merged, targets, rvi_merge_find("ewc"), parts, 2, 1, NULL, err));
    static double got[MOST_PRODUCT];
    memset(got, 0, sizeof got);
    add_product(got, merged, S, 1);
    for (int i = 0; i < W * W; i++) worst = fmax(worst, fabs(got[i] - want[i]));
    print_message("# ewc by hand: %.1e of %.1e\n", worst, norm(want, S));
    assert_true(worst < 1e-7); /* observed: 1.2e-8 */
    assert_true(norm(want, S) > 0.01);
    rvi_adapter_free(merged);
    parts_close(parts, 2);
    rvi_free(fisher[0]);
    rvi_free(fisher[1]);
}

/* ---- the ends of what is possible ---- */

/* Products of nothing, adapters that cancel, columns that repeat: no division by zero. */
static void singular_products(void **state)
{
    (void)state;
    static const shape zero = {{4, 2, 3, 1}, 2, 0}, some = {{4, 2, 3, 1}, 2, 1};
    static const double both[] = {1, 1}, half[] = {0.5, 0.5};
    rvi_adapter *z = adapter_of(&zero, 1), *a = adapter_of(&some, 2), *minus = adapter_of(&some, 2),
                *merged;
    for (int s = 0; s < N; s++) minus->slots[s].scale = -minus->slots[s].scale;
    rvi_merge_report report = {0};
    const rvi_merge_rule *sum = rvi_merge_find("sum"), *average = rvi_merge_find("average");

    rvi_merge_part nothing[] = {{.adapter = z}, {.adapter = z}};
    assert_ok(rvi_adapter_merge(&merged, targets, sum, nothing, 2, 2, &report, err));
    assert_true(report.energy == 0 && report.lost == 0 && report.worst_slot == -1);
    assert_true(distance(merged, nothing, 2, both) == 0);
    rvi_adapter_free(merged);

    rvi_merge_part cancel[] = {{.adapter = a}, {.adapter = minus}};
    assert_ok(rvi_adapter_merge(&merged, targets, sum, cancel, 2, 8, &report, err));
    assert_true(report.energy < 1e-24);
    assert_true(distance(merged, cancel, 2, both) < 1e-12);
    rvi_adapter_free(merged);

    /* twice the same: half of the ranks is enough, exactly */
    rvi_merge_part twice[] = {{.adapter = a}, {.adapter = a}};
    assert_ok(rvi_adapter_merge(&merged, targets, average, twice, 2, 4, &report, err));
    assert_true(report.lost < 1e-25);
    double doubled = distance(merged, twice, 2, half);
    print_message("# twice the same: %.1e\n", doubled);
    assert_true(doubled < 1e-6); /* observed: 4.7e-8 */
    rvi_adapter_free(merged);

    /* Fisher information of nothing at all */
    float *f = fisher_of(z, 1, 0), *g = fisher_of(a, 1, 0);
    rvi_merge_part unknown[] = {{.adapter = z, .fisher = f}, {.adapter = a, .fisher = g}};
    assert_ok(rvi_adapter_merge(&merged, targets, rvi_merge_find("ewc"), unknown, 2, 0, NULL, err));
    rvi_adapter_free(merged);
    rvi_free(f);
    rvi_free(g);
    rvi_adapter_free(z);
    rvi_adapter_free(a);
    rvi_adapter_free(minus);
}

static void refusals(void **state)
{
    (void)state;
    rvi_merge_part parts[3];
    rvi_adapter *merged, *other;
    rv_error bad = {0};
    const rvi_merge_rule *average = rvi_merge_find("average");
    parts_open(parts, 3);
    assert_null(rvi_merge_find("best"));
    assert_int_equal(rvi_adapter_merge(&merged, targets, average, parts, 0, 4, NULL, &bad),
                     RV_E_INVALID);
    assert_int_equal(rvi_adapter_merge(&merged, targets, average, parts, 3, -1, NULL, &bad),
                     RV_E_INVALID);
    assert_int_equal(
        rvi_adapter_merge(&merged, targets, rvi_merge_find("ema"), parts, 3, 4, NULL, &bad),
        RV_E_INVALID);
    assert_int_equal(
        rvi_adapter_merge(&merged, targets, rvi_merge_find("ewc"), parts, 2, 4, NULL, &bad),
        RV_E_INVALID);
    static const double qualities[] = {-1, NAN, INFINITY};
    for (size_t i = 0; i < RVI_COUNT(qualities); i++) {
        parts[1].quality = qualities[i];
        assert_int_equal(rvi_adapter_merge(&merged, targets, rvi_merge_find("quality_weighted"),
                                           parts, 3, 4, NULL, &bad),
                         RV_E_INVALID);
    }
    float *f = fisher_of(parts[0].adapter, 1, 1), *g = fisher_of(parts[1].adapter, 1, 1);
    parts[0].fisher = f;
    parts[1].fisher = g;
    static const float values[] = {-1, NAN, INFINITY};
    for (size_t i = 0; i < RVI_COUNT(values); i++) {
        g[5] = values[i];
        assert_int_equal(
            rvi_adapter_merge(&merged, targets, rvi_merge_find("ewc"), parts, 2, 4, NULL, &bad),
            RV_E_ADAPTER);
        assert_non_null(strstr(bad.text, "adapter 2"));
    }
    rvi_free(f);
    rvi_free(g);

    /* a value that went wrong in training */
    const float nan_row[40] = {NAN};
    be->ops->rows_write(be, rvi_cols_of(parts[2].adapter->slots[0].a, 0, 40), 0, nan_row);
    assert_int_equal(rvi_adapter_merge(&merged, targets, average, parts, 3, 4, NULL, &bad),
                     RV_E_ADAPTER);
    assert_non_null(strstr(bad.text, "adapter 3, layer 'model.layers.0.self_attn.q_proj'"));

    assert_ok(rvi_adapter_new(&other, be, N - 1, err));
    parts_close(parts + 2, 1);
    parts[2].adapter = other;
    assert_int_equal(rvi_adapter_merge(&merged, targets, average, parts, 3, 4, NULL, &bad),
                     RV_E_INVALID);
    assert_null(merged);
    parts_close(parts, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(qr_by_definition),  cmocka_unit_test(svd_by_definition),
        cmocka_unit_test(sums_by_hand),      cmocka_unit_test(losses),
        cmocka_unit_test(ewc_keeps),         cmocka_unit_test(ewc_by_hand),
        cmocka_unit_test(singular_products), cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests_name("merging adapters", tests, backend_setup, backend_teardown);
}
