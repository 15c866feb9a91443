/* test_matmul.c - products of the CPU backend: however tasks share out rows and outputs among
 * threads, a row gets the bits that it gets alone on one thread. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "backend/backend.h"
#include "base/mem.h"
#include "base/rng.h"
#include "formats/qtypes.h"

enum { N_IN = 768, N_OUT = 616, N_ROWS = 203 }; /* neither whole panels nor whole groups of rows */

typedef enum kind { PARTS, ADDED, GATED, KINDS } kind;

typedef struct machine {
    rvi_backend *be;
    rvi_pack *pack;
    rvi_tensor *w[2], *x, *out[2];
} machine;

static uint8_t *bytes[2];
static float input[N_ROWS][N_IN];

static void open_machine(machine *m, rvi_qtype type, int threads)
{
    rvi_cpu_options o = {.n_threads = threads};
    *m = (machine){0};
    assert_int_equal(rvi_backend_cpu_new(&m->be, &o, NULL, NULL), RV_OK);
    const rvi_backend_ops *op = m->be->ops;
    size_t packed = 0;
    for (int i = 0; i < 2; i++) {
        rvi_tensor_view view = {.name = "w",
                                .type = type,
                                .n_dims = 2,
                                .shape = {N_OUT, N_IN},
                                .data = bytes[i],
                                .n_bytes = N_OUT * rvi_qtype_row_bytes(type, N_IN)};
        assert_int_equal(op->weight_new(m->be, &m->w[i], &view, NULL), RV_OK);
        packed += op->pack_bytes(m->be, m->w[i]);
        assert_int_equal(op->rows_new(m->be, &m->out[i], N_ROWS, N_OUT, NULL), RV_OK);
    }
    if (packed) {
        assert_int_equal(op->pack_new(m->be, &m->pack, packed, NULL), RV_OK);
        for (int i = 0; i < 2; i++) op->pack(m->be, m->pack, m->w[i]);
    }
    assert_int_equal(op->rows_new(m->be, &m->x, N_ROWS, N_IN, NULL), RV_OK);
    assert_int_equal(op->reserve(m->be, N_ROWS, N_IN, 1u << type, NULL), RV_OK);
}

static void close_machine(machine *m)
{
    const rvi_backend_ops *op = m->be->ops;
    for (int i = 0; i < 2; i++) {
        op->tensor_free(m->be, m->w[i]);
        op->tensor_free(m->be, m->out[i]);
    }
    op->tensor_free(m->be, m->x);
    op->pack_free(m->be, m->pack);
    op->free(m->be);
}

/* Rows first .. first + n - 1 of the input in one call; out: [2][N_ROWS][N_OUT]. */
static void multiply(const machine *m, kind what, int first, int n, float *out)
{
    const rvi_backend_ops *op = m->be->ops;
    rvi_cols x = rvi_cols_of(m->x, 0, N_IN), to[2];
    for (int i = 0; i < 2; i++) to[i] = rvi_cols_of(m->out[i], 0, N_OUT);
    for (int r = 0; r < n; r++) {
        op->rows_write(m->be, x, r, input[first + r]);
        for (int i = 0; i < 2; i++) op->rows_write(m->be, to[i], r, input[first + r]);
    }
    rvi_matmul mm = {.x = x,
                     .part = {{m->w[0], NULL, to[0]}, {m->w[1], NULL, to[1]}},
                     .n_parts = what == ADDED ? 1 : 2,
                     .n_rows = n};
    if (what == ADDED) mm.add_to = to[0];
    if (what == GATED) mm.gated = to[0];
    op->matmul(m->be, &mm);
    for (int r = 0; r < n; r++)
        for (int i = 0; i < 2; i++)
            op->rows_read(m->be, to[i], r,
                          out + ((size_t)i * N_ROWS + (size_t)(first + r)) * N_OUT);
}

static void check_type(rvi_qtype type)
{
    static float want[KINDS][2 * N_ROWS * N_OUT], got[2 * N_ROWS * N_OUT];
    static const int threads[] = {1, 2, 5, 16};
    machine m;
    open_machine(&m, type, 1);
    for (kind what = PARTS; what < KINDS; what++)
        for (int r = 0; r < N_ROWS; r++) multiply(&m, what, r, 1, want[what]);
    close_machine(&m);
    for (size_t t = 0; t < RVI_COUNT(threads); t++) {
        open_machine(&m, type, threads[t]);
        for (kind what = PARTS; what < KINDS; what++) {
            memset(got, 0xff, sizeof got);
            multiply(&m, what, 0, N_ROWS, got);
            if (memcmp(got, want[what], sizeof got))
                fail_msg("%s, kind %d, %d threads: bits differ", rvi_qtypes[type].name, (int)what,
                         threads[t]);
        }
        close_machine(&m);
    }
}

static void same_bits_however_cut(void **state)
{
    (void)state;
    static const rvi_qtype types[] = {RVI_Q4_0, RVI_Q4_1, RVI_Q8_0, RVI_Q4_K, RVI_F16};
    static float weights[N_OUT * N_IN];
    rvi_rng rng = {3};
    for (int r = 0; r < N_ROWS; r++)
        for (int i = 0; i < N_IN; i++) input[r][i] = (float)(rvi_rng_double(&rng) - 0.5);
    for (size_t t = 0; t < RVI_COUNT(types); t++) {
        size_t row = rvi_qtype_row_bytes(types[t], N_IN);
        for (int i = 0; i < 2; i++) {
            bytes[i] = rvi_alloc_array(N_OUT, row);
            assert_non_null(bytes[i]);
            for (size_t k = 0; k < (size_t)N_OUT * N_IN; k++)
                weights[k] = (float)(rvi_rng_double(&rng) - 0.5);
            if (rvi_quantize(types[t], weights, bytes[i], (size_t)N_OUT * N_IN)) continue;
            for (size_t k = 0; k < N_OUT * row; k++) /* no f16 scale is infinite or NaN */
                bytes[i][k] = (uint8_t)rvi_rng_u64(&rng) & 0x3f;
        }
        check_type(types[t]);
        for (int i = 0; i < 2; i++) rvi_free(bytes[i]);
    }
}

/* ---- norm, gated product and the product that reads it, as in a layer ---- */

enum { N_GATED = 672 }; /* whole blocks, but not for a task of an odd number of panels */

typedef struct layer {
    rvi_backend *be;
    rvi_pack *pack;
    rvi_tensor *w[3] /* gate, up, down */, *norm, *x, *normed, *both, *gated;
} layer;

static void open_layer(layer *l, rvi_qtype type, rvi_qtype down, int threads, uint8_t *const w[3])
{
    rvi_cpu_options o = {.n_threads = threads};
    static float ones[N_IN];
    *l = (layer){0};
    assert_int_equal(rvi_backend_cpu_new(&l->be, &o, NULL, NULL), RV_OK);
    const rvi_backend_ops *op = l->be->ops;
    size_t packed = 0;
    for (int i = 0; i < 3; i++) {
        rvi_tensor_view view = {.name = "w",
                                .type = i < 2 ? type : down,
                                .n_dims = 2,
                                .shape = {i < 2 ? N_GATED : N_IN, i < 2 ? N_IN : N_GATED},
                                .data = w[i]};
        view.n_bytes = view.shape[0] * rvi_qtype_row_bytes(view.type, view.shape[1]);
        assert_int_equal(op->weight_new(l->be, &l->w[i], &view, NULL), RV_OK);
        packed += op->pack_bytes(l->be, l->w[i]);
    }
    if (packed) {
        assert_int_equal(op->pack_new(l->be, &l->pack, packed, NULL), RV_OK);
        for (int i = 0; i < 3; i++) op->pack(l->be, l->pack, l->w[i]);
    }
    for (int i = 0; i < N_IN; i++) ones[i] = 1.0f + (float)(i % 5);
    rvi_tensor_view norm = {.name = "norm",
                            .type = RVI_F32,
                            .n_dims = 1,
                            .shape = {N_IN},
                            .data = (const uint8_t *)ones,
                            .n_bytes = sizeof ones};
    assert_int_equal(op->floats_new(l->be, &l->norm, &norm, 0, NULL), RV_OK);
    assert_int_equal(op->rows_new(l->be, &l->x, N_ROWS, N_IN, NULL), RV_OK);
    assert_int_equal(op->rows_new(l->be, &l->normed, N_ROWS, N_IN, NULL), RV_OK);
    assert_int_equal(op->rows_new(l->be, &l->both, N_ROWS, 2 * N_GATED, NULL), RV_OK);
    assert_int_equal(op->rows_new(l->be, &l->gated, N_ROWS, N_GATED, NULL), RV_OK);
    assert_int_equal(op->reserve(l->be, N_ROWS, N_IN, 1u << type | 1u << down, NULL), RV_OK);
}

static void close_layer(layer *l)
{
    const rvi_backend_ops *op = l->be->ops;
    rvi_tensor *all[] = {l->w[0], l->w[1], l->w[2], l->norm, l->x, l->normed, l->both, l->gated};
    for (size_t i = 0; i < RVI_COUNT(all); i++) op->tensor_free(l->be, all[i]);
    op->pack_free(l->be, l->pack);
    op->free(l->be);
}

/* Rows first .. first + n - 1; alone: every step's results are written. */
static void pass(const layer *l, bool alone, int first, int n, float *out)
{
    const rvi_backend_ops *op = l->be->ops;
    rvi_cols x = rvi_cols_of(l->x, 0, N_IN), gated = rvi_cols_of(l->gated, 0, N_GATED);
    for (int r = 0; r < n; r++) op->rows_write(l->be, x, r, input[first + r]);
    rvi_matmul up = {.x = x,
                     .norm = l->norm,
                     .eps = 1e-5f,
                     .normed = rvi_cols_of(l->normed, 0, N_IN),
                     .normed_unread = !alone,
                     .part = {{l->w[0], NULL, rvi_cols_of(l->both, 0, N_GATED)},
                              {l->w[1], NULL, rvi_cols_of(l->both, N_GATED, N_GATED)}},
                     .n_parts = 2,
                     .n_rows = n,
                     .gated = gated,
                     .reader = alone ? NULL : l->w[2]};
    op->matmul(l->be, &up);
    rvi_matmul down = {.x = gated,
                       .part = {{l->w[2], NULL, rvi_cols_of(l->normed, 0, N_IN)}},
                       .n_parts = 1,
                       .n_rows = n,
                       .add_to = x};
    op->matmul(l->be, &down);
    for (int r = 0; r < n; r++) op->rows_read(l->be, x, r, out + (size_t)(first + r) * N_IN);
}

static void same_bits_in_a_layer(void **state)
{
    (void)state;
    static const rvi_qtype types[][2] = {
        {RVI_Q4_0, RVI_Q4_0}, {RVI_Q4_1, RVI_Q8_0}, {RVI_Q4_K, RVI_Q5_0}, {RVI_Q8_0, RVI_F16}};
    static const int threads[] = {1, 3, 5, 16};
    static float want[N_ROWS * N_IN], got[N_ROWS * N_IN];
    rvi_rng rng = {4};
    for (size_t t = 0; t < RVI_COUNT(types); t++) {
        uint8_t *w[3];
        for (int i = 0; i < 3; i++) {
            size_t n = i < 2 ? N_GATED * rvi_qtype_row_bytes(types[t][0], N_IN)
                             : N_IN * rvi_qtype_row_bytes(types[t][1], N_GATED);
            w[i] = rvi_zalloc(n);
            assert_non_null(w[i]);
            for (size_t k = 0; k < n; k++) w[i][k] = (uint8_t)rvi_rng_u64(&rng) & 0x2f;
        }
        layer l;
        open_layer(&l, types[t][0], types[t][1], 1, w);
        for (int r = 0; r < N_ROWS; r++) pass(&l, true, r, 1, want);
        close_layer(&l);
        for (size_t i = 0; i < RVI_COUNT(threads); i++) {
            open_layer(&l, types[t][0], types[t][1], threads[i], w);
            for (int again = 0; again < 2; again++) {
                memset(got, 0xff, sizeof got);
                pass(&l, false, 0, N_ROWS, got);
                if (memcmp(got, want, sizeof got))
                    fail_msg("%s, %d threads: bits differ", rvi_qtypes[types[t][0]].name,
                             threads[i]);
            }
            close_layer(&l);
        }
        for (int i = 0; i < 3; i++) rvi_free(w[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_bits_however_cut),
                                       cmocka_unit_test(same_bits_in_a_layer)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
