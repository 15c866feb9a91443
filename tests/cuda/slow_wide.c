/* Attention of many neighbouring rows on a CUDA device, which has a kernel of its own, against each
 * row alone: the same bits. RUVLLM_TEST_CUDA=system: on a real device, with more of them. */
#include "cuda/fake.h"

static bool is_real(void)
{
    const char *name = getenv("RUVLLM_TEST_CUDA");
    return name && !strcmp(name, "system");
}

static rvi_backend *open_device(void)
{
    rvi_backend *be;
    rvi_cuda_options o = {.n_threads = 1,
                          .driver = is_real() ? NULL : FAKE_DRIVER,
                          .image = is_real() ? NULL : "in the library"};
    assert_ok(rvi_backend_cuda_new(&be, &o, NULL, err));
    return be;
}

static unsigned seed;

static float some(void)
{
    return (float)(int)((seed = seed * 1664525 + 1013904223) >> 16) / 32768 - 1;
}

typedef struct shape {
    int n_keys, n_rows, kv_heads, group, head_size, window;
    float soft_cap;
} shape;

enum { MOST = 2600, PAGES = MOST / RVI_PAGE_TOKENS + 1 };

/* The last n_rows of n_keys, together and, each `step`-th of them, alone. */
static void check(rvi_backend *be, const shape *s, int step)
{
    int nk = s->kv_heads * s->head_size, nq = nk * s->group, n = nq + 2 * nk;
    rvi_kv_spec spec = {.n_layers = 1,
                        .n_kv_heads = s->kv_heads,
                        .head_size = s->head_size,
                        .n_pages = PAGES,
                        .type = RV_KV_F16};
    rvi_kv_store *kv;
    rvi_tensor *rows, *q, *out;
    int32_t pages[PAGES];
    static rvi_kv_row at[MOST];
    float *x = rvi_alloc_array((size_t)n, sizeof *x),
          *want = rvi_alloc_array((size_t)nq, sizeof *want),
          *got = rvi_alloc_array((size_t)nq, sizeof *got);
    int first = s->n_keys - s->n_rows;
    assert_ok(be->ops->kv_new(be, &kv, &spec, err));
    assert_ok(be->ops->rows_new(be, &rows, s->n_keys, 2 * nk, err));
    assert_ok(be->ops->rows_new(be, &q, s->n_rows + 1, nq, err));
    assert_ok(be->ops->rows_new(be, &out, s->n_rows + 1, nq, err));
    assert_ok(be->ops->reserve(be, s->n_keys, n, 0, err));
    for (int i = 0; i < PAGES; i++) pages[i] = (i * 7 + 3) % PAGES;
    for (int r = 0; r < s->n_keys; r++) {
        for (int i = 0; i < n; i++) x[i] = some();
        be->ops->rows_write(be, rvi_cols_of(rows, 0, 2 * nk), r, x);
        if (r >= first) be->ops->rows_write(be, rvi_cols_of(q, 0, nq), r - first, x + 2 * nk);
        at[r] = (rvi_kv_row){.pages = pages, .pos = r};
    }
    be->ops->kv_write(be, kv, 0, rvi_cols_of(rows, 0, nk), rvi_cols_of(rows, nk, nk), at,
                      s->n_keys);
    be->ops->submit(be);
    const rvi_attention a = {.n_heads = s->kv_heads * s->group,
                             .n_kv_heads = s->kv_heads,
                             .head_size = s->head_size,
                             .scale = 0.3f,
                             .soft_cap = s->soft_cap,
                             .window = s->window};
    be->ops->attention(be, rvi_cols_of(out, 0, nq), rvi_cols_of(q, 0, nq), kv, 0, &a, at + first,
                       s->n_rows);
    for (int r = s->n_rows - 1; r > 0; r -= step) { /* row 0 is needed */
        be->ops->rows_read(be, rvi_cols_of(out, 0, nq), r, want);
        be->ops->rows_read(be, rvi_cols_of(q, 0, nq), r, x);
        be->ops->rows_write(be, rvi_cols_of(q, 0, nq), 0, x);
        be->ops->attention(be, rvi_cols_of(out, 0, nq), rvi_cols_of(q, 0, nq), kv, 0, &a,
                           at + first + r, 1);
        be->ops->rows_read(be, rvi_cols_of(out, 0, nq), 0, got);
        for (int i = 0; i < nq; i++) assert_true(isfinite(want[i]));
        for (int i = 0; i < nq; i++)
            if (memcmp(&got[i], &want[i], sizeof *got))
                fail_msg("%d keys, %d heads of %d: row %d has other bits alone, from %d on: %g, %g",
                         s->n_keys, s->group, s->head_size, r, i, (double)got[i], (double)want[i]);
    }
    be->ops->kv_free(be, kv);
    be->ops->tensor_free(be, rows);
    be->ops->tensor_free(be, q);
    be->ops->tensor_free(be, out);
    rvi_free(x);
    rvi_free(want);
    rvi_free(got);
}

/* A step of 64 rows and of so many heads and keys that tiles get no parts. */
static void alone_and_together(void **state)
{
    (void)state;
    rvi_backend *be = open_device();
    seed = 5;
    check(be, &(shape){.n_keys = 530, .n_rows = 65, .kv_heads = 16, .group = 4, .head_size = 64},
          16);
    be->ops->free(be);
}

static void shapes(void **state)
{
    (void)state;
    if (!is_real()) skip(); /* minutes on the host */
    rvi_backend *be = open_device();
    const shape list[] = {
        {.n_keys = 1024, .n_rows = 1024, .kv_heads = 8, .group = 4, .head_size = 128},
        {.n_keys = 2050, .n_rows = 1024, .kv_heads = 4, .group = 7, .head_size = 128},
        {.n_keys = 1500, .n_rows = 1021, .kv_heads = 2, .group = 7, .head_size = 64},
        {.n_keys = 2600, .n_rows = 1300, .kv_heads = 3, .group = 3, .head_size = 64},
        {.n_keys = 1300,
         .n_rows = 1111,
         .kv_heads = 4,
         .group = 8,
         .head_size = 128,
         .window = 500},
        {.n_keys = 1200,
         .n_rows = 1000,
         .kv_heads = 4,
         .group = 2,
         .head_size = 128,
         .soft_cap = 5},
        {.n_keys = 1100, .n_rows = 1024, .kv_heads = 1, .group = 16, .head_size = 128},
    };
    seed = 7;
    for (size_t i = 0; i < RVI_COUNT(list); i++) check(be, &list[i], 13);
    be->ops->free(be);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(alone_and_together, reset, reset),
        cmocka_unit_test_setup_teardown(shapes, reset, reset),
    };
    return cmocka_run_group_tests_name("wide", tests, NULL, NULL);
}
