/* The products of adapters by themselves: each row's bits whatever it is computed with, and what
 * sealing loses. */
#include <math.h>

#include "adapter_files.h"
#include "base/rng.h"

static float fill(size_t i)
{
    return ((float)(i * 37 % 101) / 101.0f - 0.5f) / 8;
}

static rvi_tensor *matrix_of(rvi_backend *be, const float *values, int n_rows, int n_cols)
{
    rvi_tensor_view v = {.name = "matrix",
                         .type = RVI_F32,
                         .n_dims = 2,
                         .shape = {(uint64_t)n_rows, (uint64_t)n_cols},
                         .data = (const uint8_t *)values};
    rvi_tensor *t;
    assert_ok(be->ops->floats_new(be, &t, &v, 0, err));
    return t;
}

static rvi_pack *seal_pair(rvi_backend *be, rvi_tensor *a, rvi_tensor *b)
{
    rvi_pack *pack;
    size_t bytes = be->ops->lora_bytes(be, a, b);
    assert_true(bytes > 0);
    assert_ok(be->ops->pack_new(be, &pack, bytes, err));
    assert_ok(be->ops->lora_seal(be, pack, a, b, err));
    return pack;
}

/* Rows of A a thousand times as large as others, and columns of B as much smaller: what 8 bits lose
 * is a small part of the result all the same. */
static void sealed_is_close(void **state)
{
    enum { IN = 150, OUT = 77, RANK = 11 };
    static float a[RANK * IN], b[OUT * RANK], in[IN], got[OUT];
    (void)state;
    rvi_backend *be;
    rvi_tensor *x, *out;
    assert_ok(rvi_backend_cpu_new(&be, &(rvi_cpu_options){.n_threads = 1}, NULL, err));
    const rvi_backend_ops *op = be->ops;
    assert_ok(op->reserve(be, 1, IN, 0, err));
    assert_ok(op->rows_new(be, &x, 1, IN, err));
    assert_ok(op->rows_new(be, &out, 1, OUT, err));
    rvi_rng rng = {1};
    for (size_t i = 0; i < IN; i++) in[i] = (float)(rvi_rng_double(&rng) - 0.5);
    for (size_t i = 0; i < RVI_COUNT(a); i++)
        a[i] = (float)(rvi_rng_double(&rng) - 0.5) * powf(10, (float)(i / IN % 4));
    for (size_t i = 0; i < RVI_COUNT(b); i++)
        b[i] = (float)(rvi_rng_double(&rng) - 0.5) * powf(10, -(float)(i % RANK % 4));
    op->rows_write(be, rvi_cols_of(x, 0, IN), 0, in);
    memset(got, 0, sizeof got);
    op->rows_write(be, rvi_cols_of(out, 0, OUT), 0, got);
    rvi_tensor *ma = matrix_of(be, a, RANK, IN), *mb = matrix_of(be, b, OUT, RANK);
    rvi_pack *pack = seal_pair(be, ma, mb);
    rvi_lora_product p = {ma, mb, 1.5f, rvi_cols_of(out, 0, OUT)};
    op->lora(be, rvi_cols_of(x, 0, IN), &(rvi_lora_group){(int32_t[]){0}, 1, &p, 1}, 1);
    op->rows_read(be, rvi_cols_of(out, 0, OUT), 0, got);
    double wrong = 0, size = 0;
    for (size_t o = 0; o < OUT; o++) {
        double sum = 0;
        for (size_t k = 0; k < RANK; k++) {
            double low = 0;
            for (size_t i = 0; i < IN; i++) low += (double)a[k * IN + i] * (double)in[i];
            sum += (double)b[o * RANK + k] * low;
        }
        wrong += (1.5 * sum - (double)got[o]) * (1.5 * sum - (double)got[o]);
        size += 2.25 * sum * sum;
    }
    print_message("# sealed: off by %.2f %%\n", 100 * sqrt(wrong / size));
    assert_true(sqrt(wrong / size) < 0.02);
    op->tensor_free(be, ma);
    op->tensor_free(be, mb);
    op->tensor_free(be, x);
    op->tensor_free(be, out);
    op->pack_free(be, pack);
    op->free(be);
}

/* Rows of several groups, evenly apart and not, packed and sealed matrices and others: each row
 * gets the bits it gets alone. */
static void rows_do_not_depend_on_their_batch(void **state)
{
    enum { IN = 70, OUT = 45, ROWS = 40, GROUPS = 3, PRODUCTS = 3 };
    static const int rank[GROUPS] = {1, 4, 19};
    static float values[GROUPS][PRODUCTS][2][19 * IN], got[OUT], want[OUT], in[IN];
    (void)state;
    for (int threads = 1; threads <= 3; threads += 2) {
        rvi_backend *be;
        rvi_tensor *x, *out, *alone;
        rvi_lora_product products[GROUPS][PRODUCTS] = {0};
        int32_t rows[GROUPS][ROWS];
        rvi_lora_group groups[GROUPS] = {0};
        rvi_pack *packs[GROUPS];
        assert_ok(rvi_backend_cpu_new(&be, &(rvi_cpu_options){.n_threads = threads}, NULL, err));
        const rvi_backend_ops *op = be->ops;
        assert_ok(op->reserve(be, ROWS, IN, 0, err));
        assert_ok(op->rows_new(be, &x, ROWS, IN, err));
        assert_ok(op->rows_new(be, &out, ROWS, OUT, err));
        assert_ok(op->rows_new(be, &alone, ROWS, OUT, err));
        for (int r = 0; r < ROWS; r++) {
            for (size_t i = 0; i < IN; i++) in[i] = fill(7 * i + (size_t)r);
            op->rows_write(be, rvi_cols_of(x, 0, IN), r, in);
            op->rows_write(be, rvi_cols_of(out, 0, OUT), r, in);
            op->rows_write(be, rvi_cols_of(alone, 0, OUT), r, in);
            int g = r < 8 ? 0 : r % 5 == 0 ? 2 : r % 2; /* a run, and rows with gaps */
            if (r != 11) rows[g][groups[g].n_rows++] = r;
        }
        for (int g = 0; g < GROUPS; g++)
            for (int p = 0; p < PRODUCTS; p++) {
                rvi_lora_product *at = &products[g][p];
                float *a = values[g][p][0], *b = values[g][p][1];
                for (size_t i = 0; i < RVI_COUNT(values[g][p][0]); i++) {
                    a[i] = fill(3 * i + (size_t)g);
                    b[i] = fill(5 * i + (size_t)p);
                }
                rvi_tensor_view view = {.name = "b",
                                        .type = RVI_F32,
                                        .n_dims = 2,
                                        .shape = {OUT, (uint64_t)rank[g]},
                                        .data = (const uint8_t *)b};
                rvi_tensor *ma, *mb;
                if (p == 2)
                    ma = matrix_of(be, a, rank[g], IN);
                else
                    assert_ok(op->floats_view(be, &ma, a, rank[g], IN, err));
                if (p == 2)
                    packs[g] = seal_pair(be, ma, mb = matrix_of(be, b, OUT, rank[g]));
                else if (p)
                    assert_ok(op->floats_view(be, &mb, b, OUT, rank[g], err));
                else
                    assert_ok(rvi_lora_matrix_new(&mb, be, &view, true, err));
                *at = (rvi_lora_product){ma, mb, 0.75f, rvi_cols_of(out, 0, OUT)};
                groups[g].rows = rows[g];
                groups[g].products = products[g];
                groups[g].n_products = PRODUCTS;
            }
        op->lora(be, rvi_cols_of(x, 0, IN), groups, GROUPS);
        for (int g = 0; g < GROUPS; g++) {
            for (int p = 0; p < PRODUCTS; p++) products[g][p].out.t = alone;
            for (int i = 0; i < groups[g].n_rows; i++)
                op->lora(be, rvi_cols_of(x, 0, IN),
                         &(rvi_lora_group){&rows[g][i], 1, products[g], PRODUCTS}, 1);
        }
        for (int r = 0; r < ROWS; r++) {
            op->rows_read(be, rvi_cols_of(out, 0, OUT), r, got);
            op->rows_read(be, rvi_cols_of(alone, 0, OUT), r, want);
            assert_memory_equal(got, want, sizeof got);
            op->rows_read(be, rvi_cols_of(x, 0, IN), r, in);
            assert_true((r == 11) == !memcmp(got, in, sizeof got));
        }
        for (int i = 0; i < GROUPS * PRODUCTS; i++) {
            const rvi_lora_product *at = &products[i / PRODUCTS][i % PRODUCTS];
            op->tensor_free(be, (rvi_tensor *)(uintptr_t)at->a);
            op->tensor_free(be, (rvi_tensor *)(uintptr_t)at->b);
        }
        for (int g = 0; g < GROUPS; g++) op->pack_free(be, packs[g]);
        op->tensor_free(be, x);
        op->tensor_free(be, out);
        op->tensor_free(be, alone);
        op->free(be);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sealed_is_close),
        cmocka_unit_test(rows_do_not_depend_on_their_batch),
    };
    return cmocka_run_group_tests_name("products of adapters", tests, NULL, NULL);
}
