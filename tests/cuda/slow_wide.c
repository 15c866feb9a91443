/* Attention of many neighbouring rows on a CUDA device, which has a kernel of its own, against each
 * row alone: the same bits. RUVLLM_TEST_CUDA=system: on a real device, with more of them. */
#include "cuda/fake.h"

static unsigned seed;

static float some(void)
{
    return (float)(int)((seed = seed * 1664525 + 1013904223) >> 16) / 32768 - 1;
}

typedef struct shape {
    int n_keys, n_rows, kv_heads, group, head_size, window;
    float soft_cap;
    int n_pairs;                /* of a head, that turn; 0: none */
    bool interleaved, q8, wide; /* wide: by attention_wide, where the device has it */
    int lost;                   /* the row of the step whose first value is infinite; 0: none */
} shape;

enum { MOST = 2600, PAGES = MOST / RVI_PAGE_TOKENS + 1 };

typedef struct device {
    rvi_backend *be;
    const shape *s;
    rvi_kv_store *kv;
    rvi_tensor *rows, *angles, *out;
    int nq, nk;
} device;

/* Is what was asked for last done by attention_wide? */
static bool is_wide(rvi_backend *be)
{
    const rvi_cuda *c = rvi_cuda_of(be);
    rvi_cuda_kernel k = c->commands[c->n_commands - 1].kernel;
    return !c->has_groups || (k >= RVI_CUDA_attention_wide_64 && k <= RVI_CUDA_attention_wide_256);
}

/* Rows 0 .. n - 1: queries and keys turn, keys and values go to their pages, queries look. */
static void step(const device *d, const rvi_kv_row *at, int n)
{
    const shape *s = d->s;
    const rvi_attention a = {.n_heads = s->kv_heads * s->group,
                             .n_kv_heads = s->kv_heads,
                             .head_size = s->head_size,
                             .scale = 0.3f,
                             .soft_cap = s->soft_cap,
                             .window = s->window};
    if (s->n_pairs)
        d->be->ops->rope(d->be, rvi_cols_of(d->rows, 0, d->nq + d->nk), s->head_size,
                         rvi_cols_of(d->angles, 0, 2 * s->n_pairs), s->interleaved, n);
    d->be->ops->kv_write(d->be, d->kv, 0, rvi_cols_of(d->rows, d->nq, d->nk),
                         rvi_cols_of(d->rows, d->nq + d->nk, d->nk), at, n);
    d->be->ops->attention(d->be, rvi_cols_of(d->out, 0, d->nq), rvi_cols_of(d->rows, 0, d->nq),
                          d->kv, 0, &a, at, n);
    if (s->wide && n > 1) assert_true(is_wide(d->be));
    d->be->ops->submit(d->be);
}

/* Row r of the step is that of position pos. */
static void put_row(const device *d, int r, int pos, float *x)
{
    int n = d->nq + 2 * d->nk;
    seed = (unsigned)pos * 2654435761u;
    for (int i = 0; i < n; i++) x[i] = some();
    if (d->s->lost && pos == d->s->n_keys - d->s->n_rows + d->s->lost) x[d->nq + d->nk] = INFINITY;
    d->be->ops->rows_write(d->be, rvi_cols_of(d->rows, 0, n), r, x);
    for (int i = 0; i < 2 * d->s->n_pairs; i++) x[i] = some();
    if (d->s->n_pairs)
        d->be->ops->rows_write(d->be, rvi_cols_of(d->angles, 0, 2 * d->s->n_pairs), r, x);
}

/* The last n_rows of n_keys, together and, each `each`-th of them, alone. */
static void check(rvi_backend *be, const shape *s, int each)
{
    device d = {.be = be, .s = s, .nk = s->kv_heads * s->head_size};
    d.nq = d.nk * s->group;
    int n = d.nq + 2 * d.nk, first = s->n_keys - s->n_rows;
    rvi_kv_spec spec = {.n_layers = 1,
                        .n_kv_heads = s->kv_heads,
                        .head_size = s->head_size,
                        .n_pages = PAGES,
                        .n_heads = s->kv_heads * s->group,
                        .type = s->q8 ? RV_KV_Q8 : RV_KV_F16};
    int32_t pages[PAGES];
    static rvi_kv_row at[MOST];
    float *x = rvi_alloc_array((size_t)n, sizeof *x),
          *want = rvi_alloc_array((size_t)s->n_rows * (size_t)d.nq, sizeof *want),
          *got = rvi_alloc_array((size_t)d.nq, sizeof *got);
    int most = RVI_MAX(s->n_rows, first);
    assert_ok(be->ops->kv_new(be, &d.kv, &spec, err));
    assert_ok(be->ops->rows_new(be, &d.rows, most, n, err));
    assert_ok(be->ops->rows_new(be, &d.angles, most, RVI_MAX(2 * s->n_pairs, 1), err));
    assert_ok(be->ops->rows_new(be, &d.out, most, d.nq, err));
    assert_ok(be->ops->reserve(be, most, n, 0, err));
    for (int i = 0; i < PAGES; i++) pages[i] = (i * 7 + 3) % PAGES;
    for (int i = 0; i < s->n_keys; i++) at[i] = (rvi_kv_row){.pages = pages, .pos = i};
    for (int i = 0; i < first; i++) put_row(&d, i, i, x);
    if (first) {
        if (s->n_pairs)
            be->ops->rope(be, rvi_cols_of(d.rows, 0, d.nq + d.nk), s->head_size,
                          rvi_cols_of(d.angles, 0, 2 * s->n_pairs), s->interleaved, first);
        be->ops->kv_write(be, d.kv, 0, rvi_cols_of(d.rows, d.nq, d.nk),
                          rvi_cols_of(d.rows, d.nq + d.nk, d.nk), at, first);
        be->ops->submit(be);
    }
    for (int r = 0; r < s->n_rows; r++) put_row(&d, r, first + r, x);
    step(&d, at + first, s->n_rows);
    for (int r = 0; r < s->n_rows; r++)
        be->ops->rows_read(be, rvi_cols_of(d.out, 0, d.nq), r, want + (size_t)r * (size_t)d.nq);
    for (int r = s->n_rows - 1; r >= 0; r -= each) {
        const float *all = want + (size_t)r * (size_t)d.nq;
        put_row(&d, 0, first + r, x);
        step(&d, at + first + r, 1);
        be->ops->rows_read(be, rvi_cols_of(d.out, 0, d.nq), 0, got);
        bool sees = s->lost && r >= s->lost; /* the first head's value: NaN */
        for (int i = 0; i < d.nq; i++)
            if (sees && i < s->group * s->head_size ? !isnan(all[i]) || !isnan(got[i])
                                                    : !isfinite(all[i]))
                fail_msg("%d keys, %d heads of %d: row %d, %d: %g, alone %g", s->n_keys, s->group,
                         s->head_size, r, i, (double)all[i], (double)got[i]);
        for (int i = sees ? s->group * s->head_size : 0; i < d.nq; i++)
            if (memcmp(&got[i], &all[i], sizeof *got))
                fail_msg("%d keys, %d heads of %d: row %d has other bits alone, from %d on: %g, %g",
                         s->n_keys, s->group, s->head_size, r, i, (double)got[i], (double)all[i]);
    }
    be->ops->kv_free(be, d.kv);
    be->ops->tensor_free(be, d.rows);
    be->ops->tensor_free(be, d.angles);
    be->ops->tensor_free(be, d.out);
    rvi_free(x);
    rvi_free(want);
    rvi_free(got);
}

/* A step of 64 rows and of so many heads and keys that tiles get no parts. */
static void alone_and_together(void **state)
{
    (void)state;
    rvi_backend *be = open_device();
    check(be,
          &(shape){.n_keys = 530,
                   .n_rows = 65,
                   .kv_heads = 16,
                   .group = 4,
                   .head_size = 64,
                   .n_pairs = 24},
          16);
    check(be,
          &(shape){.n_keys = 530,
                   .n_rows = 65,
                   .kv_heads = 16,
                   .group = 4,
                   .head_size = 64,
                   .n_pairs = 24,
                   .q8 = true},
          16);
    check(be,
          &(shape){.n_keys = 530,
                   .n_rows = 65,
                   .kv_heads = 16,
                   .group = 4,
                   .head_size = 64,
                   .n_pairs = 24,
                   .lost = 40},
          8);
    for (int group = 1; group <= 7; group += 3) /* heads that no kernel of their own takes */
        check(be,
              &(shape){.n_keys = 100,
                       .n_rows = 70,
                       .kv_heads = 2,
                       .group = group,
                       .head_size = 48,
                       .n_pairs = 24},
              23);
    check(be, /* without parts */
          &(shape){.n_keys = 530,
                   .n_rows = 65,
                   .kv_heads = 16,
                   .group = 4,
                   .head_size = 144,
                   .n_pairs = 72},
          32);
    /* Groups of warps; of 256 halves of the values. */
    static const struct {
        int head_size, group;
    } wide[] = {{64, 2},  {64, 4},  {80, 1},  {80, 4},  {96, 1},
                {112, 3}, {128, 2}, {128, 4}, {256, 2}, {256, 4}};
    for (size_t i = 0; i < RVI_COUNT(wide); i++)
        check(be,
              &(shape){.n_keys = 470,
                       .n_rows = 128,
                       .kv_heads = 16 / wide[i].group,
                       .group = wide[i].group,
                       .head_size = wide[i].head_size,
                       .soft_cap = wide[i].group > 2 ? 50 : 0,
                       .window = wide[i].group > 2 ? 0 : 200,
                       .n_pairs = wide[i].head_size / 2,
                       .wide = true},
              43);
    check(be,
          &(shape){.n_keys = 300,
                   .n_rows = 66,
                   .kv_heads = 2,
                   .group = 2,
                   .head_size = 208,
                   .window = 100,
                   .n_pairs = 104},
          16);
    be->ops->free(be);
}

static void shapes(void **state)
{
    (void)state;
    if (!is_quick()) skip();
    rvi_backend *be = open_device();
    const shape list[] = {
        {.n_keys = 1024,
         .n_rows = 1024,
         .kv_heads = 8,
         .group = 4,
         .head_size = 128,
         .n_pairs = 64},
        {.n_keys = 2050,
         .n_rows = 1024,
         .kv_heads = 4,
         .group = 7,
         .head_size = 128,
         .n_pairs = 64,
         .interleaved = true},
        {.n_keys = 1500, .n_rows = 1021, .kv_heads = 2, .group = 7, .head_size = 64, .n_pairs = 32},
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
        {.n_keys = 1030,
         .n_rows = 1030,
         .kv_heads = 8,
         .group = 1,
         .head_size = 128,
         .n_pairs = 64},
        {.n_keys = 900, .n_rows = 333, .kv_heads = 6, .group = 1, .head_size = 80, .n_pairs = 40},
        {.n_keys = 1030, .n_rows = 1000, .kv_heads = 2, .group = 4, .head_size = 80, .n_pairs = 40},
        {.n_keys = 700, .n_rows = 650, .kv_heads = 2, .group = 7, .head_size = 80, .n_pairs = 16},
        {.n_keys = 1500,
         .n_rows = 1021,
         .kv_heads = 8,
         .group = 4,
         .head_size = 128,
         .n_pairs = 64,
         .q8 = true},
        {.n_keys = 900,
         .n_rows = 333,
         .kv_heads = 6,
         .group = 2,
         .head_size = 80,
         .window = 300,
         .q8 = true},
        {.n_keys = 1500,
         .n_rows = 1021,
         .kv_heads = 4,
         .group = 2,
         .head_size = 256,
         .soft_cap = 50},
        {.n_keys = 1300,
         .n_rows = 1111,
         .kv_heads = 4,
         .group = 4,
         .head_size = 256,
         .window = 500,
         .n_pairs = 128},
        {.n_keys = 900, .n_rows = 333, .kv_heads = 16, .group = 7, .head_size = 192, .lost = 40},
        {.n_keys = 1300,
         .n_rows = 1029,
         .kv_heads = 8,
         .group = 1,
         .head_size = 96,
         .n_pairs = 48,
         .wide = true},
        {.n_keys = 1100, .n_rows = 1024, .kv_heads = 4, .group = 7, .head_size = 112, .lost = 500},
        {.n_keys = 2500, .n_rows = 2100, .kv_heads = 4, .group = 1, .head_size = 256, .lost = 77},
    };
    for (size_t i = 0; i < RVI_COUNT(list); i++) check(be, &list[i], 13);
    be->ops->free(be);
}

/* A page that a CPU wrote: where a value is not finite, the key says so and the value is zeros. */
static void foreign_pages(void **state)
{
    (void)state;
    enum { SIZE = 48, HEADS = 2, LAYERS = 2, SLOT = 5, PLANE = SIZE * RVI_PAGE_TOKENS };
    static uint16_t page[LAYERS * HEADS][2][PLANE], got[LAYERS * HEADS][2][PLANE];
    rvi_backend *be = open_device();
    rvi_kv_store *kv;
    rvi_kv_spec spec = {.n_layers = LAYERS,
                        .n_kv_heads = HEADS,
                        .head_size = SIZE,
                        .n_pages = 2,
                        .type = RV_KV_F16};
    assert_ok(be->ops->kv_new(be, &kv, &spec, err));
    assert_int_equal(be->ops->kv_page_bytes(kv), sizeof page);
    for (size_t i = 0; i < sizeof page / sizeof ***page; i++)
        (&page[0][0][0])[i] = (uint16_t)(i * 977 % 0x7c00);
    page[2][1][SLOT * SIZE + 7] = 0xfc00; /* of the second layer's first head: -infinity */
    be->ops->kv_write_page(be, kv, 1, page);
    be->ops->kv_read_page(be, kv, 1, got);
    for (int e = 0; e < SIZE; e++) {
        assert_int_equal(got[2][0][e * RVI_PAGE_TOKENS + SLOT] & 0x7fff, 0x7fff);
        assert_int_equal(got[2][1][SLOT * SIZE + e], 0);
        got[2][0][e * RVI_PAGE_TOKENS + SLOT] = page[2][0][e * RVI_PAGE_TOKENS + SLOT];
        got[2][1][SLOT * SIZE + e] = page[2][1][SLOT * SIZE + e];
    }
    assert_memory_equal(got, page, sizeof page);
    be->ops->kv_free(be, kv);
    be->ops->free(be);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(foreign_pages, reset, reset),
        cmocka_unit_test_setup_teardown(alone_and_together, reset, reset),
        cmocka_unit_test_setup_teardown(shapes, reset, reset),
    };
    return cmocka_run_group_tests_name("wide", tests, NULL, NULL);
}
