/* One row alone on a CUDA device, which has kernels of its own, against the same row among others:
 * the same bits, whatever types its products have, however long it is, and however many keys it
 * sees. RUVLLM_TEST_CUDA=system: on a real device. */
#include "cuda/fake.h"

#include "kernels/kernels.h"

static unsigned seed;

static float some(void)
{
    return (float)(int)((seed = seed * 1664525 + 1013904223) >> 16) / 32768 - 1;
}

typedef struct weight {
    rvi_tensor *t;
    rvi_pack *pack;
    uint8_t *bytes;
} weight;

static weight some_weight(rvi_backend *be, rvi_qtype type, int n_out, int n_in)
{
    size_t n = (size_t)n_out * rvi_qtype_row_bytes(type, (size_t)n_in);
    weight w = {.bytes = rvi_alloc_array(n, 1)};
    for (size_t i = 0; i < n; i++)
        w.bytes[i] = (uint8_t)((seed = seed * 1664525 + 1013904223) >> 24 & 0x3B);
    rvi_tensor_view view = {.name = "w",
                            .type = type,
                            .n_dims = 2,
                            .shape = {(uint64_t)n_out, (uint64_t)n_in},
                            .data = w.bytes,
                            .n_bytes = n};
    assert_ok(be->ops->weight_new(be, &w.t, &view, err));
    assert_ok(be->ops->pack_new(be, &w.pack, be->ops->pack_bytes(be, w.t), err));
    be->ops->pack(be, w.pack, w.t);
    return w;
}

static void free_weight(rvi_backend *be, weight *w)
{
    be->ops->tensor_free(be, w->t);
    be->ops->pack_free(be, w->pack);
    rvi_free(w->bytes);
}

/* top: times the first one. */
static rvi_tensor *some_floats(rvi_backend *be, int n, float top)
{
    float *x = rvi_alloc_array((size_t)n, sizeof *x);
    rvi_tensor *t;
    for (int i = 0; i < n; i++) x[i] = some() * (i ? 1 : top);
    rvi_tensor_view view = {.name = "b",
                            .type = RVI_F32,
                            .n_dims = 1,
                            .shape = {(uint64_t)n},
                            .data = (const uint8_t *)x,
                            .n_bytes = (size_t)n * sizeof *x};
    assert_ok(be->ops->floats_new(be, &t, &view, 0, err));
    rvi_free(x);
    return t;
}

enum { STORED, GATED, ADDED, NORMED = 4, BIASED = 8, BY_RINGS = 16 }; /* of a product */

/* Is what was asked for last done by rings? A device without bulk copies has none. */
static bool is_ring(rvi_backend *be)
{
    const rvi_cuda *c = rvi_cuda_of(be);
    rvi_cuda_kernel k = c->commands[c->n_commands - 1].kernel;
    return !c->has_groups || k == RVI_CUDA_product_ring ||
           (k >= RVI_CUDA_product_ring_Q4_0 && k <= RVI_CUDA_product_ring_IQ4_XS);
}

/* The last of n_rows rows beside the others, then alone. */
static void check_rows(rvi_backend *be, const rvi_qtype *types, const int *outs, int n_parts,
                       int n_in, int kind, int n_rows)
{
    enum { MOST = 3500 };
    int end = kind & (GATED | ADDED), n = end ? outs[0] : 0;
    float *x = rvi_alloc_array((size_t)n_in, sizeof *x), old[MOST], want[MOST], got[MOST];
    float *normed[2] = {rvi_alloc_array((size_t)n_in, sizeof *x),
                        rvi_alloc_array((size_t)n_in, sizeof *x)};
    weight w[3];
    rvi_tensor *in, *out, *other, *norm = NULL, *bias[3] = {NULL};
    for (int i = 0; !end && i < n_parts; i++) n += outs[i];
    assert_true(n <= MOST);
    assert_ok(be->ops->rows_new(be, &in, n_rows, n_in, err));
    assert_ok(be->ops->rows_new(be, &other, n_rows, n_in, err));
    assert_ok(be->ops->rows_new(be, &out, n_rows, n, err));
    assert_ok(be->ops->reserve(be, n_rows, n_in, ~0u, err));
    rvi_matmul m = {.x = rvi_cols_of(in, 0, n_in), .n_parts = n_parts, .n_rows = n_rows};
    if (kind & NORMED) {
        m.norm = norm = some_floats(be, n_in, 1);
        m.normed = rvi_cols_of(other, 0, n_in);
        m.eps = 1e-5f;
    }
    for (int i = 0, at = 0; i < n_parts; at += end ? 0 : outs[i], i++) {
        w[i] = some_weight(be, types[i], outs[i], n_in);
        if (kind & BIASED) bias[i] = some_floats(be, outs[i], 1);
        m.part[i] = (rvi_product_part){w[i].t, bias[i], rvi_cols_of(out, at, outs[i])};
    }
    if (end == GATED) m.gated = rvi_cols_of(out, 0, n);
    if (end == ADDED) m.add_to = rvi_cols_of(out, 0, n);
    for (int i = 0; i < n; i++) old[i] = some();
    for (int r = 0; r < n_rows; r++) {
        for (int k = 0; k < n_in; k++) x[k] = some();
        be->ops->rows_write(be, m.x, r, x);
        be->ops->rows_write(be, rvi_cols_of(out, 0, n), r, old);
    }
    be->ops->matmul(be, &m);
    be->ops->rows_read(be, rvi_cols_of(out, 0, n), n_rows - 1, want);
    if (norm) be->ops->rows_read(be, m.normed, n_rows - 1, normed[0]);
    be->ops->rows_write(be, m.x, 0, x);
    be->ops->rows_write(be, rvi_cols_of(out, 0, n), 0, old);
    m.n_rows = 1;
    be->ops->matmul(be, &m);
    if (kind & BY_RINGS) assert_true(is_ring(be));
    be->ops->rows_read(be, rvi_cols_of(out, 0, n), 0, got);
    if (norm) be->ops->rows_read(be, m.normed, 0, normed[1]);
    for (int i = 0; i < n; i++) assert_true(isfinite(want[i]) && want[i] != old[i]);
    assert_memory_equal(got, want, (size_t)n * sizeof *got);
    if (norm) assert_memory_equal(normed[0], normed[1], (size_t)n_in * sizeof *x);
    for (int i = 0; i < n_parts; i++) {
        free_weight(be, &w[i]);
        if (bias[i]) be->ops->tensor_free(be, bias[i]);
    }
    if (norm) be->ops->tensor_free(be, norm);
    be->ops->tensor_free(be, in);
    be->ops->tensor_free(be, other);
    be->ops->tensor_free(be, out);
    rvi_free(x);
    rvi_free(normed[0]);
    rvi_free(normed[1]);
}

static void check_product(rvi_backend *be, const rvi_qtype *types, const int *outs, int n_parts,
                          int n_in, int kind)
{
    check_rows(be, types, outs, n_parts, n_in, kind, 3);
}

static void products(void **state)
{
    (void)state;
    rvi_backend *be = open_device();
    const int outs[] = {21, 40, 33};
    seed = 1;
    /* one type, two, three, and one of two in between */
    const rvi_qtype types[][3] = {{RVI_Q4_K, RVI_Q4_K, RVI_Q4_K},
                                  {RVI_Q4_K, RVI_Q4_K, RVI_Q6_K},
                                  {RVI_Q5_0, RVI_Q8_0, RVI_Q8_0},
                                  {RVI_Q4_0, RVI_F16, RVI_Q8_0},
                                  {RVI_Q4_K, RVI_Q6_K, RVI_Q4_K}};
    for (size_t i = 0; i < RVI_COUNT(types); i++) check_product(be, types[i], outs, 3, 512, STORED);
    const int both[] = {37, 37};
    for (int n_in = 256; n_in <= 2304; n_in += 2048) /* parts by warps of their own, and not */
        for (int i = 0; i < 2; i++)
            check_product(be, (const rvi_qtype[]){RVI_Q4_K, i ? RVI_Q6_K : RVI_Q4_K}, both, 2, n_in,
                          GATED);
    /* by the host's driver, which has 128 blocks: parts one after the other, and paired in turns */
    for (int n = 2048; n <= 2056; n += 8)
        check_product(be, (const rvi_qtype[]){RVI_Q4_K, RVI_Q4_K}, (const int[]){n, n}, 2, 2304,
                      GATED);
    /* rows that a thread holds, and rows that are read twice */
    check_product(be, (const rvi_qtype[]){RVI_Q8_0}, outs, 1, 9 * 1024 + 32, ADDED);
    check_product(be, (const rvi_qtype[]){RVI_Q8_0}, outs, 1, 19 * 1024 + 64, ADDED);
    /* kernels of short rows and of long ones with few outputs, of each type */
    const rvi_qtype all[] = {RVI_Q4_0,   RVI_Q4_1,   RVI_Q5_0, RVI_Q5_1, RVI_Q8_0,
                             RVI_Q2_K,   RVI_Q3_K,   RVI_Q4_K, RVI_Q5_K, RVI_Q6_K,
                             RVI_IQ4_NL, RVI_IQ4_XS, RVI_F16,  RVI_BF16};
    for (size_t i = 0; i < RVI_COUNT(all); i++) {
        check_product(be, &all[i], outs, 1, 768, ADDED);
        check_product(be, &all[i], outs, 1, i % 2 ? 2560 : 5376, ADDED);
    }
    /* an odd number of blocks in the last segment of a long row */
    check_product(be, (const rvi_qtype[]){RVI_BF16}, outs, 1, 2432, ADDED);
    /* more tiles than blocks, of a row whose last segment is half of one */
    ((rvi_cuda *)be)->n_blocks = 256;
    check_product(be, (const rvi_qtype[]){RVI_Q5_0, RVI_Q5_0}, (const int[]){2056, 2056}, 2, 896,
                  GATED);
    check_product(be, (const rvi_qtype[]){RVI_BF16, RVI_BF16}, (const int[]){2056, 2056}, 2, 896,
                  GATED);
    be->ops->free(be);
}

/* More rows than a tile of product_wide has: several types, outputs that end within a panel
 * and within a four, one segment and two. */
static void very_many_rows(void **state)
{
    (void)state;
    rvi_backend *be = open_device();
    const rvi_qtype types[][3] = {{RVI_Q4_K, RVI_F16, RVI_Q6_K}, {RVI_Q8_0, RVI_Q8_0}};
    seed = 4;
    /* few rows of 16 bits, their segments by blocks of their own */
    const rvi_qtype halves[] = {RVI_BF16, RVI_F16};
    check_rows(be, halves, (const int[]){300, 21}, 2, 544, STORED, 33);
    check_rows(be, halves, (const int[]){140}, 1, 544, ADDED, 31);
    check_rows(be, halves, (const int[]){21}, 1, 4384, ADDED, 9); /* more for a thread to hold */
    ((rvi_cuda *)be)->n_blocks = 8; /* of two processors: each takes several tiles */
    check_rows(be, types[0], (const int[]){36, 21, 140}, 3, 512, STORED, 190);
    check_rows(be, types[1], (const int[]){72, 72}, 2, 288, GATED, 191);
    check_rows(be, types[1], (const int[]){132}, 1, 544, ADDED, 200);
    check_rows(be, (const rvi_qtype[]){RVI_F16, RVI_F16}, (const int[]){136, 136}, 2, 288, GATED,
               20);
    be->ops->free(be);
}

/* Matrices that are large enough for product_ring: parts of one type and of two, whose last tiles
 * are not whole, with segments that fill the warps and segments that do not. */
static void rings(void **state)
{
    (void)state;
    rvi_backend *be = open_device();
    bool real = is_real();
    const int n_in = real ? 4608 : 1792, n = real ? 3477 : 2053, all[] = {n, n},
              three[] = {n - 1055, 405, 650};
    seed = 7;
    check_product(be, (const rvi_qtype[]){RVI_Q4_K, RVI_Q4_K, RVI_Q6_K}, three, 3, n_in, BY_RINGS);
    check_product(be, (const rvi_qtype[]){RVI_Q5_0, RVI_Q8_0, RVI_Q8_0}, three, 3, n_in,
                  NORMED | BY_RINGS);
    check_product(be, (const rvi_qtype[]){RVI_Q8_0, RVI_Q8_0}, all, 2, n_in, GATED | BY_RINGS);
    check_product(be, (const rvi_qtype[]){RVI_Q2_K}, all, 1, n_in, ADDED | BY_RINGS);
    be->ops->free(be);
}

/* Every type, as on a device of two processors, whose blocks take more tiles than sums can wait:
 * with a norm and biases; gated; added to. Rings have 1 to 5 slots, by type and by columns, which
 * do not fill their last block where the type allows it. */
static void rings_of_all_types(void **state)
{
    (void)state;
    rvi_backend *be = open_device();
    const rvi_qtype all[] = {RVI_Q4_0, RVI_Q4_1, RVI_Q5_0, RVI_Q5_1, RVI_Q8_0,   RVI_Q2_K,
                             RVI_Q3_K, RVI_Q4_K, RVI_Q5_K, RVI_Q6_K, RVI_IQ4_NL, RVI_IQ4_XS};
    ((rvi_cuda *)be)->n_blocks = 8;
    seed = 9;
    for (size_t i = 0; i < RVI_COUNT(all); i++) {
        rvi_qtype t = all[i], other = all[(i + 5) % RVI_COUNT(all)];
        bool large = rvi_qtypes[t].block_weights == 256;
        check_product(be, (const rvi_qtype[]){t, other, other}, (const int[]){165, 90, 90}, 3, 2304,
                      NORMED | BIASED | BY_RINGS);
        check_product(be, (const rvi_qtype[]){t, t}, (const int[]){171, 171}, 2,
                      large ? 2304 : 1312, GATED | NORMED | BIASED | BY_RINGS);
        check_product(be, &t, (const int[]){345}, 1, large ? 1792 : 1952, ADDED | BY_RINGS);
    }
    for (int long_row = 0; long_row < 2; long_row++) /* one slot, a row that is read twice */
        check_product(be, (const rvi_qtype[]){RVI_Q4_K}, (const int[]){75}, 1, 17664,
                      (long_row ? NORMED : ADDED) | BY_RINGS);
    be->ops->free(be);
}

/* So many rows that a block of tiles has all of a row's segments, on a real device: the last of
 * them, then it alone. */
static void check_tiles(rvi_backend *be, rvi_qtype type)
{
    enum { ROWS = 1287, IN = 768, OUT = 1536 };
    float *x = rvi_alloc_array(IN, sizeof *x), *want = rvi_alloc_array(OUT, sizeof *want),
          *got = rvi_alloc_array(OUT, sizeof *got);
    weight w[2];
    rvi_tensor *in, *out;
    assert_ok(be->ops->rows_new(be, &in, ROWS, IN, err));
    assert_ok(be->ops->rows_new(be, &out, ROWS, OUT, err));
    assert_ok(be->ops->reserve(be, ROWS, OUT, ~0u, err));
    rvi_matmul m = {.x = rvi_cols_of(in, 0, IN),
                    .n_parts = 2,
                    .n_rows = ROWS,
                    .gated = rvi_cols_of(out, 0, OUT)};
    for (int i = 0; i < 2; i++) {
        w[i] = some_weight(be, type, OUT, IN);
        m.part[i] = (rvi_product_part){w[i].t, NULL, m.gated};
    }
    for (int r = 0; r < ROWS; r++) {
        for (int k = 0; k < IN; k++) x[k] = some();
        be->ops->rows_write(be, m.x, r, x);
    }
    be->ops->matmul(be, &m);
    be->ops->rows_read(be, m.gated, ROWS - 1, want);
    be->ops->rows_write(be, m.x, 0, x);
    m.n_rows = 1;
    be->ops->matmul(be, &m);
    be->ops->rows_read(be, m.gated, 0, got);
    for (int i = 0; i < OUT; i++) assert_true(isfinite(want[i]));
    assert_memory_equal(got, want, OUT * sizeof *got);
    for (int i = 0; i < 2; i++) free_weight(be, &w[i]);
    be->ops->tensor_free(be, in);
    be->ops->tensor_free(be, out);
    rvi_free(x);
    rvi_free(want);
    rvi_free(got);
}

static void tiles_of_all_types(void **state)
{
    (void)state;
    if (!is_real()) skip(); /* minutes on the host */
    rvi_backend *be = open_device();
    seed = 3;
    for (int t = RVI_F32; t < RVI_QTYPE_COUNT; t++) check_tiles(be, (rvi_qtype)t);
    be->ops->free(be);
}

/* The same bytes in other pages. */
static void move_pages(rvi_backend *be, rvi_kv_store *kv, int32_t *pages, int n_keys)
{
    int n = (n_keys - 1) / RVI_PAGE_TOKENS; /* the last one stays */
    for (int i = 0; i + 1 < n; i += 2) {
        int32_t first = pages[i], free_page = pages[n + 1];
        be->ops->kv_copy_page(be, kv, free_page, first);
        be->ops->kv_copy_page(be, kv, first, pages[i + 1]);
        be->ops->kv_copy_page(be, kv, pages[i + 1], free_page);
        pages[i] = pages[i + 1];
        pages[i + 1] = first;
    }
}

/* Queries of one row and of its neighbours: alone it has kernels of its own, with them it goes in
 * tiles. */
static void check_attention(rvi_backend *be, rv_kv_type type, int n_keys, int group, int head_size,
                            int window)
{
    enum { KV_HEADS = 2, NEAR = 3, MOST = 1300, PAGES = MOST / RVI_PAGE_TOKENS + 1 };
    int nk = KV_HEADS * head_size, nq = nk * group;
    rvi_kv_spec spec = {.n_layers = 1,
                        .n_kv_heads = KV_HEADS,
                        .head_size = head_size,
                        .n_pages = PAGES,
                        .type = type};
    rvi_kv_store *kv;
    rvi_tensor *rows, *out;
    int32_t pages[PAGES];
    static rvi_kv_row at[MOST];
    float *x = rvi_alloc_array((size_t)(nq + 2 * nk), sizeof *x),
          *want = rvi_alloc_array((size_t)nq, sizeof *want),
          *got = rvi_alloc_array((size_t)nq, sizeof *got);
    assert_ok(be->ops->kv_new(be, &kv, &spec, err));
    assert_ok(be->ops->rows_new(be, &rows, n_keys, nq + 2 * nk, err));
    assert_ok(be->ops->rows_new(be, &out, NEAR, nq, err));
    assert_ok(be->ops->reserve(be, n_keys, nq + 2 * nk, ~0u, err));
    for (int i = 0; i < PAGES; i++) pages[i] = (i * 7 + 3) % PAGES;
    for (int r = 0; r < n_keys; r++) {
        for (int i = 0; i < nq + 2 * nk; i++) x[i] = some();
        be->ops->rows_write(be, rvi_cols_of(rows, 0, nq + 2 * nk), r, x);
        at[r] = (rvi_kv_row){.pages = pages, .pos = r};
    }
    be->ops->kv_write(be, kv, 0, rvi_cols_of(rows, nq, nk), rvi_cols_of(rows, nq + nk, nk), at,
                      n_keys);
    be->ops->submit(be);
    const rvi_attention a = {.n_heads = KV_HEADS * group,
                             .n_kv_heads = KV_HEADS,
                             .head_size = head_size,
                             .scale = 0.3f,
                             .window = window};
    /* the last rows stand first, so that one of them can be alone */
    rvi_tensor *q;
    assert_ok(be->ops->rows_new(be, &q, NEAR, nq, err));
    for (int r = 0; r < NEAR; r++) {
        be->ops->rows_read(be, rvi_cols_of(rows, 0, nq), n_keys - NEAR + r, x);
        be->ops->rows_write(be, rvi_cols_of(q, 0, nq), r, x);
    }
    be->ops->attention(be, rvi_cols_of(out, 0, nq), rvi_cols_of(q, 0, nq), kv, 0, &a,
                       at + n_keys - NEAR, NEAR);
    be->ops->rows_read(be, rvi_cols_of(out, 0, nq), NEAR - 1, want);
    be->ops->rows_write(be, rvi_cols_of(q, 0, nq), 0, x);
    move_pages(be, kv, pages, n_keys);
    be->ops->attention(be, rvi_cols_of(out, 0, nq), rvi_cols_of(q, 0, nq), kv, 0, &a,
                       at + n_keys - 1, 1);
    be->ops->rows_read(be, rvi_cols_of(out, 0, nq), 0, got);
    for (int i = 0; i < nq; i++) assert_true(isfinite(want[i]));
    if (memcmp(got, want, (size_t)nq * sizeof *got))
        fail_msg("%d keys, %d heads of %d: a row alone has other bits", n_keys, group, head_size);
    be->ops->kv_free(be, kv);
    be->ops->tensor_free(be, rows);
    be->ops->tensor_free(be, out);
    be->ops->tensor_free(be, q);
    rvi_free(x);
    rvi_free(want);
    rvi_free(got);
}

enum { NEAR = 3 }; /* rows together */

/* Keys and values of the first head that two pages have for a position; what was never written
 * differs. */
static void check_slot(const uint8_t *page, const uint8_t *page2, rv_kv_type type, int size,
                       int slot)
{
    bool q8 = type == RV_KV_Q8;
    size_t n = (size_t)size, s = (size_t)slot, width = q8 ? 1 : 2,
           v = rvi_attn_k_bytes(q8 ? RVI_ATTN_Q8 : RVI_ATTN_F16, n), k_scale = n * RVI_PAGE_TOKENS;
    for (size_t e = 0; e < n; e++) {
        size_t at = q8 ? (e / 4 * RVI_PAGE_TOKENS + s) * 4 + e % 4 : (e * RVI_PAGE_TOKENS + s) * 2;
        assert_memory_equal(page + at, page2 + at, width);
    }
    assert_memory_equal(page + v + s * n * width, page2 + v + s * n * width, n * width);
    if (!q8) return;
    assert_memory_equal(page + k_scale + s * 4, page2 + k_scale + s * 4, 4);
    assert_memory_equal(page + v + k_scale + s * 4, page2 + v + k_scale + s * 4, 4);
}

/* A row whose query and key are turned and written by its own attention, against the same row with
 * two neighbours, where kernels of their own turn and write: the same bits, also in the pages. */
static void check_turning(rvi_backend *be, rv_kv_type type, int n_keys, int kv_heads, int group,
                          int head_size, bool interleaved)
{
    int nk = kv_heads * head_size, nq = nk * group, all = nq + 2 * nk;
    int n_pages = n_keys / RVI_PAGE_TOKENS + 1;
    rvi_kv_spec spec = {.n_layers = 1,
                        .n_kv_heads = kv_heads,
                        .head_size = head_size,
                        .n_pages = n_pages,
                        .type = type};
    rvi_kv_store *kv[2];
    rvi_tensor *x, *out, *angles;
    int32_t *pages = rvi_alloc_array((size_t)n_pages, sizeof *pages);
    rvi_kv_row *at = rvi_alloc_array((size_t)n_keys, sizeof *at);
    float *values = rvi_alloc_array((size_t)(NEAR * all), sizeof *values), turns[NEAR][512],
          *old = rvi_alloc_array((size_t)n_keys * (size_t)(2 * nk), sizeof *old),
          *got = rvi_alloc_array((size_t)(2 * nq), sizeof *got);
    for (int i = 0; i < n_pages; i++) pages[i] = (i * 7 + 3) % n_pages;
    if (n_pages % 7 == 0)
        for (int i = 0; i < n_pages; i++) pages[i] = n_pages - 1 - i;
    for (int i = 0; i < n_keys; i++) at[i] = (rvi_kv_row){.pages = pages, .pos = i};
    for (int i = 0; i < NEAR * all; i++) values[i] = some();
    for (int i = 0; i < n_keys * 2 * nk; i++) old[i] = some();
    for (int r = 0; r < NEAR; r++)
        for (int i = 0; i < head_size; i++) turns[r][i] = some();
    assert_ok(be->ops->rows_new(be, &x, RVI_MAX(n_keys, NEAR), all, err));
    assert_ok(be->ops->rows_new(be, &out, NEAR, nq, err));
    assert_ok(be->ops->rows_new(be, &angles, NEAR, head_size, err));
    assert_ok(be->ops->reserve(be, n_keys, all, ~0u, err));
    const rvi_attention a = {
        .n_heads = kv_heads * group, .n_kv_heads = kv_heads, .head_size = head_size, .scale = 0.3f};
    rvi_cols k = rvi_cols_of(x, nq, nk), v = rvi_cols_of(x, nq + nk, nk);
    for (int alone = 0; alone < 2; alone++) {
        assert_ok(be->ops->kv_new(be, &kv[alone], &spec, err));
        int n_old = n_keys - NEAR;
        for (int r = 0; r < n_old; r++)
            be->ops->rows_write(be, rvi_cols_of(x, nq, 2 * nk), r, old + r * 2 * nk);
        be->ops->kv_write(be, kv[alone], 0, k, v, at, n_old);
        be->ops->submit(be);
        for (int r = 0, n; r < NEAR; r += n) {
            n = alone ? 1 : NEAR;
            for (int i = 0; i < n; i++) {
                be->ops->rows_write(be, rvi_cols_of(x, 0, all), i, values + (r + i) * all);
                be->ops->rows_write(be, rvi_cols_of(angles, 0, head_size), i, turns[r + i]);
            }
            be->ops->rope(be, rvi_cols_of(x, 0, nq + nk), head_size,
                          rvi_cols_of(angles, 0, head_size), interleaved, n);
            for (int i = 0; i < (alone ? 1 : 2); i++) /* twice, as for branches of a sequence */
                be->ops->kv_write(be, kv[alone], 0, k, v, at + n_old + r, n);
            be->ops->attention(be, rvi_cols_of(out, 0, nq), rvi_cols_of(x, 0, nq), kv[alone], 0, &a,
                               at + n_old + r, n);
            be->ops->submit(be);
        }
        be->ops->rows_read(be, rvi_cols_of(out, 0, nq), alone ? 0 : NEAR - 1, got + alone * nq);
    }
    for (int i = 0; i < nq; i++) assert_true(isfinite(got[i]));
    if (memcmp(got, got + nq, (size_t)nq * sizeof *got))
        fail_msg("%d keys, %d x %d heads of %d: a row that turns alone has other bits", n_keys,
                 kv_heads, group, head_size);
    size_t bytes = be->ops->kv_page_bytes(kv[0]);
    uint8_t *page = rvi_alloc_array(2, bytes);
    for (int i = 0; i < 2; i++) {
        memset(page + (size_t)i * bytes, 0, bytes);
        be->ops->kv_read_page(be, kv[i], pages[(n_keys - 1) / RVI_PAGE_TOKENS],
                              page + (size_t)i * bytes);
    }
    check_slot(page, page + bytes, type, head_size, (n_keys - 1) % RVI_PAGE_TOKENS);
    for (int i = 0; i < 2; i++) be->ops->kv_free(be, kv[i]);
    be->ops->tensor_free(be, x);
    be->ops->tensor_free(be, out);
    be->ops->tensor_free(be, angles);
    rvi_free(page);
    rvi_free(pages);
    rvi_free(at);
    rvi_free(values);
    rvi_free(old);
    rvi_free(got);
}

/* The middle one of three rows has a value that is not finite, or not in f16, in one of two heads:
 * the row before it has the bits that it has alone, the others see it and say so. */
static void check_lost(rvi_backend *be, rv_kv_type type, float bad, int n_keys, bool turns)
{
    enum { HEADS = 2, GROUP = 3, SIZE = 32, NK = HEADS * SIZE, NQ = NK * GROUP, ALL = NQ + 2 * NK };
    enum { PAGES = 4, MOST = PAGES * RVI_PAGE_TOKENS };
    const rvi_kv_spec spec = {
        .n_layers = 1, .n_kv_heads = HEADS, .head_size = SIZE, .n_pages = PAGES, .type = type};
    const rvi_attention a = {
        .n_heads = HEADS * GROUP, .n_kv_heads = HEADS, .head_size = SIZE, .scale = 0.3f};
    const int32_t pages[PAGES] = {2, 0, 3, 1};
    static float values[MOST][ALL], turned[NEAR][SIZE], got[2][NEAR][NQ];
    rvi_kv_row at[MOST];
    rvi_tensor *x, *out, *angles;
    int n_old = n_keys - NEAR;
    for (int r = 0; r < n_keys; r++) {
        at[r] = (rvi_kv_row){.pages = pages, .pos = r};
        for (int i = 0; i < ALL; i++) values[r][i] = some();
    }
    values[n_old + 1][NQ + NK + 5] = bad;
    for (int r = 0; r < NEAR; r++)
        for (int i = 0; i < SIZE; i++) turned[r][i] = some();
    assert_ok(be->ops->rows_new(be, &x, MOST, ALL, err));
    assert_ok(be->ops->rows_new(be, &out, NEAR, NQ, err));
    assert_ok(be->ops->rows_new(be, &angles, NEAR, SIZE, err));
    assert_ok(be->ops->reserve(be, MOST, ALL, ~0u, err));
    rvi_cols all = rvi_cols_of(x, 0, ALL), q = rvi_cols_of(x, 0, NQ), k = rvi_cols_of(x, NQ, NK),
             v = rvi_cols_of(x, NQ + NK, NK), mix = rvi_cols_of(out, 0, NQ);
    for (int alone = 0; alone < 2; alone++) {
        rvi_kv_store *kv;
        assert_ok(be->ops->kv_new(be, &kv, &spec, err));
        for (int r = 0; r < n_old; r++) be->ops->rows_write(be, all, r, values[r]);
        be->ops->kv_write(be, kv, 0, k, v, at, n_old);
        be->ops->submit(be);
        for (int r = 0, n = alone ? 1 : NEAR; r < NEAR; r += n) {
            for (int i = 0; i < n; i++) {
                be->ops->rows_write(be, all, i, values[n_old + r + i]);
                be->ops->rows_write(be, rvi_cols_of(angles, 0, SIZE), i, turned[r + i]);
            }
            if (turns)
                be->ops->rope(be, rvi_cols_of(x, 0, NQ + NK), SIZE, rvi_cols_of(angles, 0, SIZE),
                              false, n);
            be->ops->kv_write(be, kv, 0, k, v, at + n_old + r, n);
            be->ops->attention(be, mix, q, kv, 0, &a, at + n_old + r, n);
            be->ops->submit(be);
            for (int i = 0; i < n; i++) be->ops->rows_read(be, mix, i, got[alone][r + i]);
        }
        be->ops->kv_free(be, kv);
    }
    for (int r = 0; r < NEAR; r++)
        for (int i = 0; i < NQ; i++) {
            float left = got[0][r][i], right = got[1][r][i];
            if (r && i < NQ / HEADS)
                assert_true(isnan(left) && isnan(right));
            else
                assert_true(isfinite(left) && left == right);
        }
    be->ops->tensor_free(be, x);
    be->ops->tensor_free(be, out);
    be->ops->tensor_free(be, angles);
}

static void lost_values(void **state)
{
    (void)state;
    rvi_backend *be = open_device();
    const float bad[] = {INFINITY, -INFINITY, NAN, 70000};
    seed = 13;
    for (size_t i = 0; i < RVI_COUNT(bad); i++)
        for (int turns = 0; turns < 2; turns++) {
            check_lost(be, RV_KV_F16, bad[i], 40, turns);
            check_lost(be, RV_KV_Q8, bad[i], 66, turns); /* they open a chunk */
        }
    be->ops->free(be);
}

static void turning(void **state)
{
    (void)state;
    rvi_backend *be = open_device();
    seed = 4;
    check_turning(be, RV_KV_F16, 3, 2, 3, 64, false);
    check_turning(be, RV_KV_F16, 65, 2, 4, 128, false); /* the key opens a chunk */
    check_turning(be, RV_KV_F16, 200, 1, 9, 32, true);
    check_turning(be, RV_KV_F16, 1025, 2, 2, 16, false); /* and a run */
    check_turning(be, RV_KV_F16, 1100, 112, 1, 16,
                  false); /* blocks that have several runs of a row */
    check_turning(be, RV_KV_Q8, 3, 2, 3, 64, false);
    check_turning(be, RV_KV_Q8, 65, 2, 4, 128, false);
    check_turning(be, RV_KV_Q8, 200, 1, 9, 32, true);
    check_turning(be, RV_KV_Q8, 1025, 2, 2, 16, false);
    check_turning(be, RV_KV_Q8, 1100, 112, 1, 16, false);
    be->ops->free(be);
}

static void attention(void **state)
{
    (void)state;
    rvi_backend *be = open_device();
    seed = 2;
    check_attention(be, RV_KV_F16, 3, 1, 128, 0);
    check_attention(be, RV_KV_F16, 64, 4, 64, 0);
    check_attention(be, RV_KV_F16, 65, 7, 80, 0);
    check_attention(be, RV_KV_F16, 300, 9, 16, 0); /* more heads than half a tile has */
    check_attention(be, RV_KV_F16, 300, 2, 128, 100);
    check_attention(be, RV_KV_F16, 1200, 2, 32, 0); /* more parts than a block merges */
    check_attention(be, RV_KV_Q8, 3, 1, 128, 0);
    check_attention(be, RV_KV_Q8, 64, 4, 64, 0);
    check_attention(be, RV_KV_Q8, 300, 9, 16, 0);
    check_attention(be, RV_KV_Q8, 300, 2, 128, 100);
    check_attention(be, RV_KV_Q8, 1200, 2, 32, 0);
    const int sizes[] = {80, 128}, groups[] = {1, 4, 7};
    for (size_t i = 0; i < RVI_COUNT(sizes) * RVI_COUNT(groups); i++)
        for (int q8 = 0; q8 < 2; q8++)
            check_attention(be, q8 ? RV_KV_Q8 : RV_KV_F16, 150, groups[i / 2], sizes[i % 2], 0);
    be->ops->free(be);
}

/* Queries, keys, values and attention of one row, which alone and with few keys are one kernel. */
typedef struct layer_case {
    rvi_qtype types[3];
    int n_in, kv_heads, group, head_size, n_keys, window, launches; /* launches: of the row alone */
    bool bias, interleaved;
    int turned; /* elements of a head; 0: all */
    float soft_cap;
    bool lost; /* the value of head 0 is out of f16 */
} layer_case;

enum { LAYER_KEYS = 1300, LAYER_PAGES = LAYER_KEYS / RVI_PAGE_TOKENS + 1 };

typedef struct layer {
    const layer_case *is;
    int nq, nk;
    rvi_kv_store *kv;
    rvi_tensor *in, *normed, *angles, *qkv, *mix, *norm, *bias[3];
    weight w[3];
    rvi_matmul product;
    rvi_kv_row at[LAYER_KEYS];
    int32_t pages[LAYER_PAGES];
    float *x, *angle; /* of the last row */
} layer;

/* Older keys and values. */
static void fill_pages(rvi_backend *be, layer *l)
{
    int n = l->nq + 2 * l->nk;
    float *x = rvi_alloc_array((size_t)n, sizeof *x);
    for (int i = 0; i < LAYER_PAGES; i++) l->pages[i] = (i * 7 + 3) % LAYER_PAGES;
    for (int r = 0; r < l->is->n_keys; r++) {
        for (int i = 0; i < n; i++) x[i] = some();
        be->ops->rows_write(be, rvi_cols_of(l->qkv, 0, n), r, x);
        l->at[r] = (rvi_kv_row){.pages = l->pages, .pos = r};
    }
    be->ops->kv_write(be, l->kv, 0, rvi_cols_of(l->qkv, l->nq, l->nk),
                      rvi_cols_of(l->qkv, l->nq + l->nk, l->nk), l->at, l->is->n_keys);
    be->ops->submit(be);
    rvi_free(x);
}

static void some_product(rvi_backend *be, layer *l)
{
    const int outs[] = {l->nq, l->nk, l->nk};
    l->product = (rvi_matmul){.x = rvi_cols_of(l->in, 0, l->is->n_in),
                              .normed = rvi_cols_of(l->normed, 0, l->is->n_in),
                              .norm = l->norm,
                              .eps = 1e-5f,
                              .n_parts = 3};
    for (int i = 0, at = 0; i < 3; at += outs[i++]) {
        l->w[i] = some_weight(be, l->is->types[i], outs[i], l->is->n_in);
        if (l->is->bias) l->bias[i] = some_floats(be, outs[i], l->is->lost && i == 2 ? 1e6f : 1);
        l->product.part[i] =
            (rvi_product_part){l->w[i].t, l->bias[i], rvi_cols_of(l->qkv, at, outs[i])};
    }
}

static layer *layer_new(rvi_backend *be, const layer_case *h)
{
    layer *l = rvi_zalloc(sizeof *l);
    l->is = h;
    l->nk = h->kv_heads * h->head_size;
    l->nq = l->nk * h->group;
    int all = l->nq + 2 * l->nk;
    rvi_kv_spec spec = {.n_layers = 1,
                        .n_kv_heads = h->kv_heads,
                        .head_size = h->head_size,
                        .n_pages = LAYER_PAGES,
                        .type = RV_KV_F16};
    assert_ok(be->ops->kv_new(be, &l->kv, &spec, err));
    assert_ok(be->ops->rows_new(be, &l->in, NEAR, h->n_in, err));
    assert_ok(be->ops->rows_new(be, &l->normed, NEAR, h->n_in, err));
    assert_ok(be->ops->rows_new(be, &l->angles, NEAR, h->head_size, err));
    assert_ok(be->ops->rows_new(be, &l->qkv, h->n_keys, all, err));
    assert_ok(be->ops->rows_new(be, &l->mix, NEAR, l->nq, err));
    assert_ok(be->ops->reserve(be, h->n_keys, RVI_MAX(all, h->n_in), ~0u, err));
    l->norm = some_floats(be, h->n_in, 1);
    fill_pages(be, l);
    some_product(be, l);
    l->x = rvi_alloc_array((size_t)h->n_in, sizeof *l->x);
    l->angle = rvi_alloc_array((size_t)h->head_size, sizeof *l->angle);
    for (int r = 0; r < NEAR; r++) {
        for (int i = 0; i < h->n_in; i++) l->x[i] = some();
        for (int i = 0; i < h->head_size; i++) l->angle[i] = some();
        be->ops->rows_write(be, rvi_cols_of(l->in, 0, h->n_in), r, l->x);
        be->ops->rows_write(be, rvi_cols_of(l->angles, 0, h->head_size), r, l->angle);
    }
    return l;
}

static void layer_free(rvi_backend *be, layer *l)
{
    rvi_tensor *tensors[] = {l->in,   l->normed,  l->angles,  l->qkv,    l->mix,
                             l->norm, l->bias[0], l->bias[1], l->bias[2]};
    for (size_t i = 0; i < RVI_COUNT(tensors); i++)
        if (tensors[i]) be->ops->tensor_free(be, tensors[i]);
    for (int i = 0; i < 3; i++) free_weight(be, &l->w[i]);
    be->ops->kv_free(be, l->kv);
    rvi_free(l->x);
    rvi_free(l->angle);
    rvi_free(l);
}

/* The last n rows; of the last one: values and the attention's result. Returns launches. */
static long run_layer(rvi_backend *be, layer *l, int n, float *out)
{
    const layer_case *h = l->is;
    const rvi_kv_row *rows = l->at + h->n_keys - n;
    rvi_cols q = rvi_cols_of(l->qkv, 0, l->nq), k = rvi_cols_of(l->qkv, l->nq, l->nk),
             v = rvi_cols_of(l->qkv, l->nq + l->nk, l->nk), mix = rvi_cols_of(l->mix, 0, l->nq);
    const rvi_attention a = {.n_heads = h->kv_heads * h->group,
                             .n_kv_heads = h->kv_heads,
                             .head_size = h->head_size,
                             .scale = 0.01f,
                             .soft_cap = h->soft_cap,
                             .window = h->window};
    be->ops->submit(be);
    long before = fake()->launches;
    l->product.n_rows = n;
    be->ops->matmul(be, &l->product);
    be->ops->rope(be, rvi_cols_of(l->qkv, 0, l->nq + l->nk), h->head_size,
                  rvi_cols_of(l->angles, 0, h->turned ? h->turned : h->head_size), h->interleaved,
                  n);
    be->ops->kv_write(be, l->kv, 0, k, v, rows, n);
    be->ops->attention(be, mix, q, l->kv, 0, &a, rows, n);
    be->ops->submit(be);
    long launches = fake()->launches - before;
    be->ops->rows_read(be, v, n - 1, out);
    be->ops->rows_read(be, mix, n - 1, out + l->nk);
    return launches;
}

static void check_layer(rvi_backend *be, const layer_case *h)
{
    layer *l = layer_new(be, h);
    size_t n = (size_t)(l->nk + l->nq);
    float *want = rvi_alloc_array(n, sizeof *want), *got = rvi_alloc_array(n, sizeof *got);
    (void)run_layer(be, l, NEAR, want);
    be->ops->rows_write(be, l->product.x, 0, l->x);
    be->ops->rows_write(be, rvi_cols_of(l->angles, 0, h->head_size), 0, l->angle);
    long launches = run_layer(be, l, 1, got);
    for (size_t i = 0; i < n; i++) {
        int at = (int)i - l->nk; /* of the attention's result */
        if (h->lost && at >= 0 && at < h->group * h->head_size) {
            assert_true(isnan(want[i]) && isnan(got[i]));
            got[i] = want[i];
        } else
            assert_true(isfinite(want[i]));
    }
    if (memcmp(got, want, n * sizeof *got))
        fail_msg("%d keys, %d heads of %d: a row alone has other bits", h->n_keys,
                 h->kv_heads * h->group, h->head_size);
    int wanted = fake()->major < 9 ? 2 : h->launches; /* without clusters: product and attention */
    if (!is_real() && launches != wanted)
        fail_msg("%d keys, %d heads of %d: %ld launches instead of %d", h->n_keys,
                 h->kv_heads * h->group, h->head_size, launches, wanted);
    layer_free(be, l);
    rvi_free(want);
    rvi_free(got);
}

static void layers(void **state)
{
    (void)state;
    static const layer_case cases[] = {
        {{RVI_Q4_0, RVI_Q4_0, RVI_Q4_0}, 576, 3, 3, 64, 3, 0, 1, false, false, 0, 0, false},
        {{RVI_Q4_K, RVI_Q4_K, RVI_Q6_K},
         512,
         2,
         7,
         64,
         65,
         0,
         1,
         true,
         false,
         0,
         0,
         false}, /* two chunks */
        {{RVI_Q5_0, RVI_Q5_0, RVI_Q8_0},
         896,
         1,
         7,
         64,
         130,
         0,
         1,
         false,
         false,
         0,
         0,
         false}, /* split */
        {{RVI_Q8_0, RVI_Q5_0, RVI_Q5_0}, 160, 2, 2, 80, 256, 100, 1, false, true, 0, 0, false},
        {{RVI_F16, RVI_F16, RVI_F16}, 1056, 1, 9, 32, 200, 0, 1, true, false, 0, 0, false},
        {{RVI_Q4_0, RVI_Q4_0, RVI_Q8_0}, 160, 1, 16, 64, 130, 0, 1, false, false, 32, 0, false},
        {{RVI_Q8_0, RVI_Q8_0, RVI_Q8_0}, 192, 2, 4, 64, 90, 0, 1, false, true, 16, 0.02f, false},
        {{RVI_Q5_1, RVI_Q5_1, RVI_Q5_1}, 160, 1, 16, 128, 250, 40, 1, true, false, 64, 0.5f, false},
        {{RVI_Q6_K, RVI_Q6_K, RVI_Q6_K},
         2304,
         1,
         2,
         128,
         257,
         0,
         2,
         false,
         false,
         0,
         0,
         false}}; /* two runs */
    rvi_backend *be = open_device();
    seed = 4;
    for (size_t i = 0; i < RVI_COUNT(cases); i++) check_layer(be, &cases[i]);
    layer_case lost = cases[0];
    lost.n_keys = 70;
    lost.bias = lost.lost = true;
    check_layer(be, &lost);
    const int sizes[] = {80, 128}, groups[] = {1, 4, 7};
    for (size_t i = 0; i < RVI_COUNT(sizes) * RVI_COUNT(groups); i++)
        check_layer(be, &(layer_case){.types = {RVI_IQ4_NL, RVI_IQ4_NL, RVI_Q4_1},
                                      .n_in = 352,
                                      .kv_heads = 1,
                                      .group = groups[i / 2],
                                      .head_size = sizes[i % 2],
                                      .n_keys = 66 + 30 * (int)i,
                                      .launches = 1,
                                      .bias = i % 2});
    be->ops->free(be);
}

/* ---- adapters ---- */

enum { LORA_OUT = 3, LORA_MOST_IN = 300, LORA_MOST_OUT = 330 };

typedef struct lora_case {
    int n_in, n_rows, n_groups; /* row r is in group r % (n_groups + 1), or in none */
    int outs[LORA_OUT];
    int ranks[8]; /* of a group's products, in turns; 0: the last */
    int stacked;  /* adapters on each layer */
} lora_case;

typedef struct lora_matrix {
    rvi_tensor *t;
    float *x;
} lora_matrix;

static lora_matrix some_matrix(rvi_backend *be, int n_rows, int n_cols)
{
    size_t n = (size_t)n_rows * (size_t)n_cols;
    lora_matrix m = {.x = rvi_alloc_array(n, sizeof *m.x)};
    for (size_t i = 0; i < n; i++) m.x[i] = some();
    rvi_tensor_view view = {.name = "adapter",
                            .type = RVI_F32,
                            .n_dims = 2,
                            .shape = {(uint64_t)n_rows, (uint64_t)n_cols},
                            .data = (const uint8_t *)m.x,
                            .n_bytes = n * sizeof *m.x};
    assert_ok(be->ops->floats_new(be, &m.t, &view, 0, err));
    return m;
}

/* As a warp sums: lane l has columns l, l + 32, ...; then the tree. */
static float warp_dot(const float *a, const float *b, int n)
{
    float lane[32] = {0};
    for (int i = 0; i < n; i++) lane[i % 32] = fmaf(a[i], b[i], lane[i % 32]);
    for (int d = 16; d; d >>= 1)
        for (int i = 0; i < d; i++) lane[i] += lane[i + d];
    return lane[0];
}

enum { LORA_GROUPS = 9, LORA_PRODUCTS = 24, LORA_ROWS_MOST = 64 };

typedef struct lora_batch {
    const lora_case *is;
    int n_out, n_products; /* products: of a group */
    rvi_tensor *in, *out;
    float x[LORA_ROWS_MOST][LORA_MOST_IN], old[LORA_ROWS_MOST][LORA_OUT * LORA_MOST_OUT];
    lora_matrix a[LORA_GROUPS][LORA_PRODUCTS], b[LORA_GROUPS][LORA_PRODUCTS];
    rvi_lora_product products[LORA_GROUPS][LORA_PRODUCTS];
    rvi_lora_group groups[LORA_GROUPS];
    int32_t rows[LORA_GROUPS][LORA_ROWS_MOST];
} lora_batch;

static void some_group(rvi_backend *be, lora_batch *l, int g)
{
    const lora_case *h = l->is;
    int n = 0, turn = g; /* groups have other ranks in other places */
    for (int i = 0, at = 0; i < LORA_OUT && h->outs[i]; at += h->outs[i++])
        for (int u = 0; u < h->stacked; u++, n++) {
            if (!h->ranks[turn]) turn = 0;
            int rank = h->ranks[turn++];
            l->a[g][n] = some_matrix(be, rank, h->n_in);
            l->b[g][n] = some_matrix(be, h->outs[i], rank);
            l->products[g][n] = (rvi_lora_product){l->a[g][n].t, l->b[g][n].t, 0.25f + (float)n,
                                                   rvi_cols_of(l->out, at, h->outs[i])};
        }
    l->n_products = n;
    l->groups[g] = (rvi_lora_group){l->rows[g], 0, l->products[g], n};
    for (int r = g; r < h->n_rows; r += h->n_groups + 1) l->rows[g][l->groups[g].n_rows++] = r;
}

static lora_batch *lora_batch_new(rvi_backend *be, const lora_case *h)
{
    lora_batch *l = rvi_zalloc(sizeof *l);
    l->is = h;
    for (int i = 0; i < LORA_OUT; i++) l->n_out += h->outs[i];
    assert_ok(be->ops->rows_new(be, &l->in, h->n_rows, h->n_in, err));
    assert_ok(be->ops->rows_new(be, &l->out, h->n_rows, l->n_out, err));
    assert_ok(be->ops->reserve(be, h->n_rows, RVI_MAX(h->n_in, l->n_out), ~0u, err));
    for (int r = 0; r < h->n_rows; r++) {
        for (int i = 0; i < h->n_in; i++) l->x[r][i] = some();
        for (int i = 0; i < l->n_out; i++) l->old[r][i] = some();
    }
    for (int g = 0; g < h->n_groups; g++) some_group(be, l, g);
    return l;
}

static void lora_batch_free(rvi_backend *be, lora_batch *l)
{
    for (int g = 0; g < l->is->n_groups; g++)
        for (int i = 0; i < l->n_products; i++) {
            be->ops->tensor_free(be, l->a[g][i].t);
            be->ops->tensor_free(be, l->b[g][i].t);
            rvi_free(l->a[g][i].x);
            rvi_free(l->b[g][i].x);
        }
    be->ops->tensor_free(be, l->in);
    be->ops->tensor_free(be, l->out);
    rvi_free(l);
}

static void put_lora_rows(rvi_backend *be, const lora_batch *l)
{
    for (int r = 0; r < l->is->n_rows; r++) {
        be->ops->rows_write(be, rvi_cols_of(l->in, 0, l->is->n_in), r, l->x[r]);
        be->ops->rows_write(be, rvi_cols_of(l->out, 0, l->n_out), r, l->old[r]);
    }
}

/* What row r of group g is to be. */
static void lora_want(const lora_batch *l, int g, int r, float *want)
{
    float low[RVI_MAX_RANK];
    memcpy(want, l->old[r], (size_t)l->n_out * sizeof *want);
    for (int i = 0; g < l->is->n_groups && i < l->n_products; i++) {
        const rvi_lora_product *p = &l->products[g][i];
        int rank = p->a->n_rows;
        for (int j = 0; j < rank; j++)
            low[j] = warp_dot(l->a[g][i].x + j * l->is->n_in, l->x[r], l->is->n_in) * p->scale;
        for (int o = 0; o < p->out.n; o++)
            want[p->out.first + o] += warp_dot(l->b[g][i].x + o * rank, low, rank);
    }
}

/* All rows at once, with the bits of the order that is written down, in so many launches; then some
 * of them alone. */
static void check_adapters(rvi_backend *be, const lora_case *h, long launches)
{
    lora_batch *l = lora_batch_new(be, h);
    rvi_cols x = rvi_cols_of(l->in, 0, h->n_in);
    float want[LORA_OUT * LORA_MOST_OUT], got[LORA_OUT * LORA_MOST_OUT];
    size_t bytes = (size_t)l->n_out * sizeof *want;
    put_lora_rows(be, l);
    be->ops->submit(be);
    long before = fake()->launches;
    be->ops->lora(be, x, l->groups, h->n_groups);
    be->ops->submit(be);
    if (!is_real()) assert_int_equal(fake()->launches - before, launches);
    for (int r = 0; r < h->n_rows; r++) {
        be->ops->rows_read(be, rvi_cols_of(l->out, 0, l->n_out), r, got);
        lora_want(l, r % (h->n_groups + 1), r, want);
        if (memcmp(got, want, bytes)) fail_msg("adapters, %d rows: row %d", h->n_rows, r);
    }
    put_lora_rows(be, l);
    for (int r = 0; r < h->n_rows; r += 5) {
        int g = r % (h->n_groups + 1);
        if (g == h->n_groups) continue;
        const rvi_lora_group one = {(const int32_t[]){r}, 1, l->products[g], l->n_products};
        be->ops->lora(be, x, &one, 1);
        be->ops->rows_read(be, rvi_cols_of(l->out, 0, l->n_out), r, got);
        lora_want(l, g, r, want);
        assert_memory_equal(got, want, bytes);
    }
    lora_batch_free(be, l);
}

static void adapters(void **state)
{
    (void)state;
    rvi_backend *be = open_device();
    seed = 11;
    check_adapters(be, &(lora_case){64, 1, 1, {40}, {1}, 1}, 2);
    check_adapters(be, &(lora_case){77, 8, 8, {96, 32, 33}, {8, 16, 3, 33}, 1}, 2);
    check_adapters(be, &(lora_case){300, 20, 5, {330, 0, 0}, {16, 64, 5}, 3}, 2);
    check_adapters(be, &(lora_case){100, 61, 2, {70, 31}, {16, 40}, 2}, 2); /* rows go together */
    check_adapters(be, &(lora_case){100, 63, 8, {70, 31}, {7}, 1}, 2);
    /* more than a line holds: group after group, and the last one in two pieces */
    check_adapters(be, &(lora_case){33, 3, 2, {35, 34}, {700, 1024, 300}, 1}, 8);
    be->ops->free(be);
}

/* Other adapters, in the same number, are the same list of commands. */
static void graphs_of_adapters(void **state)
{
    (void)state;
    if (is_real()) skip(); /* only the host's driver counts */
    rvi_backend *be = open_device();
    const lora_case is = {64, 6, 5, {40, 20}, {8}, 1};
    seed = 12;
    lora_batch *l = lora_batch_new(be, &is);
    rvi_cols x = rvi_cols_of(l->in, 0, is.n_in);
    be->ops->submit(be);
    for (int turn = 0; turn < 5; turn++) {
        rvi_lora_group order[5];
        for (int g = 0; g < 5; g++) order[g] = l->groups[(g + turn) % 5];
        long graphs = fake()->graphs, allocations = fake()->allocations;
        be->ops->lora(be, x, order, 5);
        be->ops->lora(be, x, order, 5);
        be->ops->submit(be);
        assert_int_equal(fake()->graphs - graphs, turn > 0);
        assert_int_equal(fake()->allocations, allocations);
    }
    lora_batch_free(be, l);
    be->ops->free(be);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(very_many_rows, reset, reset),
        cmocka_unit_test_setup_teardown(products, reset, reset),
        cmocka_unit_test_setup_teardown(rings, reset, reset),
        cmocka_unit_test_setup_teardown(rings_of_all_types, reset, reset),
        cmocka_unit_test_setup_teardown(tiles_of_all_types, reset, reset),
        cmocka_unit_test_setup_teardown(attention, reset, reset),
        cmocka_unit_test_setup_teardown(layers, reset, reset),
        cmocka_unit_test_setup_teardown(turning, reset, reset),
        cmocka_unit_test_setup_teardown(lost_values, reset, reset),
        cmocka_unit_test_setup_teardown(adapters, reset, reset),
        cmocka_unit_test_setup_teardown(graphs_of_adapters, reset, reset),
    };
    return cmocka_run_group_tests_name("rows", tests, NULL, NULL);
}
