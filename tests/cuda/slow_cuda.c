/* The CUDA backend on a driver of our own (fake_driver.cpp), which computes the kernels on the
 * host: what is missing, too old, too small or breaks; goldens, the law and the reuse of lists as
 * far as they are quick. RUVLLM_TEST_CUDA=system runs the tests of models on a real device. */
#include "cuda/divergence.h"
#include "cuda/fake.h"

#include "backend/cuda/probe.h"
#include "model/workspace.h"

/* Products are tried on a real device. */
static const char *driver(void)
{
    return is_real() ? NULL : FAKE_DRIVER;
}

static void refuses(const rvi_cuda_options *o, rv_status want, const char *says)
{
    rvi_backend *be;
    rv_error why = {0};
    assert_int_equal(rvi_backend_cuda_new(&be, o, NULL, &why), want);
    assert_null(be);
    if (!strstr(why.text, says)) fail_msg("'%s' does not say '%s'", why.text, says);
}

static void what_is_missing(void **state)
{
    (void)state;
    rvi_cuda_options o = {.n_threads = 1, .driver = FAKE_DRIVER, .image = "in the library"};
    rvi_cuda_options other = o;
    other.driver = "no-such-driver.so";
    refuses(&other, RV_E_UNSUPPORTED, "no CUDA driver: no-such-driver.so cannot be loaded");
    other.driver = "libm.so.6";
    refuses(&other, RV_E_UNSUPPORTED, "too old: it has no cuInit");
    other = o;
    other.device = 1;
    refuses(&other, RV_E_CONFIG, "there is no CUDA device 1: devices 0..0 were found");
    fake()->n_devices = 0;
    refuses(&o, RV_E_UNSUPPORTED, "finds no device");
    o.image = NULL;
    if (!rvi_cuda_embedded().data) refuses(&o, RV_E_UNSUPPORTED, "built without CUDA kernels");
}

/* A driver that cannot do what this program needs, a device that others have: said in a sentence,
 * and nothing is left behind. */
static void what_is_too_old(void **state)
{
    (void)state;
    rvi_backend *be;
    rvi_cuda_options o = {
        .n_threads = 1, .driver = FAKE_DRIVER, .image = "in the library", .image_version = 12040};
    fake()->version = 12030;
    refuses(&o, RV_E_UNSUPPORTED,
            "the CUDA driver knows CUDA 12.3, this program needs 12.4: install a newer driver");
    fake()->version = 12040;
    assert_ok(rvi_backend_cuda_new(&be, &o, NULL, err));
    be->ops->free(be);
    fake()->loading = RVI_CU_CANNOT_COMPILE;
    refuses(&o, RV_E_UNSUPPORTED, "too old to compile the kernels of this program");
    fake()->loading = 999;
    refuses(&o, RV_E_UNSUPPORTED, "loading kernels: CUDA_ERROR_UNKNOWN (999)");
    fake()->loading = 0;
    fake()->opening = RVI_CU_UNAVAILABLE;
    refuses(&o, RV_E_UNSUPPORTED, "CUDA device 0 cannot be used: another program has it for");
    fake()->opening = RVI_CU_OUT_OF_MEMORY;
    refuses(&o, RV_E_NOMEM, "CUDA device 0 has no memory left to be opened");
    fake()->opening = 999;
    refuses(&o, RV_E_UNSUPPORTED, "opening the CUDA device: CUDA_ERROR_UNKNOWN (999)");
    fake()->opening = 0;
    fake()->memory = 1 << 20;
    refuses(&o, RV_E_NOMEM, "MiB are missing");
}

/* KV caches that only the CPU has are refused by their names. */
static void other_caches(void **state)
{
    (void)state;
    static const struct {
        rv_kv_type type;
        int head_size;
        const char *says; /* NULL: it can be had */
    } cases[] = {{RV_KV_WARM, 64, "no KV cache of type warm: f32, f16 and q8 can be had"},
                 {RV_KV_TIERED, 64, "no KV cache of type tiered"},
                 {RV_KV_F16, 528,
                  "heads of 528 elements are too large for a CUDA device (at most "
                  "512)"},
                 {RV_KV_F16, 512, NULL}};
    rvi_backend *be;
    assert_ok(open_fake(&be, false, NULL, err));
    for (size_t i = 0; i < RVI_COUNT(cases); i++) {
        rvi_kv_store *kv;
        rv_error why = {0};
        rvi_kv_spec spec = {.n_layers = 1,
                            .n_pages = 1,
                            .n_kv_heads = 1,
                            .head_size = cases[i].head_size,
                            .type = cases[i].type};
        rv_status st = be->ops->kv_new(be, &kv, &spec, &why);
        assert_int_equal(st, cases[i].says ? RV_E_UNSUPPORTED : RV_OK);
        if (!cases[i].says)
            be->ops->kv_free(be, kv);
        else if (!strstr(why.text, cases[i].says))
            fail_msg("'%s' does not say '%s'", why.text, cases[i].says);
    }
    be->ops->free(be);
}

static void open_model(golden *g, const char *path, const char *expected, bool exact)
{
    rvi_source *source;
    *g = (golden){0};
    assert_ok(open_fake(&g->be, exact, NULL, err));
    assert_ok(rvi_source_open(&source, path, err));
    assert_ok(rvi_model_new(&g->m, g->be, source, NULL, err));
    if (expected) assert_ok(rvi_safetensors_open(&g->expected, expected, err));
}

static void no_memory(void **state)
{
    (void)state;
    rvi_backend *be;
    rvi_source *source;
    rvi_model *m;
    rv_error why = {0};
    fake()->memory = 16 << 20;
    assert_ok(open_fake(&be, true, NULL, err));
    fake()->memory = fake()->used + (64 << 10);
    assert_ok(rvi_source_open(&source, "tests/golden/llama", err));
    assert_int_equal(rvi_model_new(&m, be, source, NULL, &why), RV_E_NOMEM);
    assert_non_null(strstr(why.text, "of device memory are needed"));
    be->ops->free(be);

    golden g;
    rvi_pages *pool;
    fake()->memory = (size_t)1 << 40;
    open_model(&g, "tests/golden/llama", NULL, true);
    fake()->memory = fake()->used + (1 << 20);
    rvi_kv_spec spec = rvi_model_kv_spec(g.m, RV_KV_F32, 1000);
    assert_int_equal(rvi_pages_new(&pool, g.be, &spec, &why), RV_E_NOMEM);
    assert_non_null(strstr(why.text, "the KV cache: "));
    golden_close(&g);
}

/* A kernel that fails: the step says so, the engine refuses further ones, and everything can be
 * freed. */
static void lost_device(void **state)
{
    (void)state;
    golden g;
    feed f;
    int n;
    rv_error why = {0};
    open_model(&g, "tests/golden/llama", "tests/golden/llama/expected.safetensors", true);
    const int32_t *ids = golden_ids(g.expected, "tokens", &n);
    float *last = rvi_alloc_array((size_t)g.m->hp.n_vocab, sizeof *last);
    feed_init(&f, g.m, n, 4, RV_KV_F32);
    feed_ids(&f, ids, 1, 1, NULL, NULL, last);
    assert_true(isfinite(last[0]));
    assert_ok(rvi_model_check(g.m, f.ws, err));
    fake()->fail_after = 7;
    feed_ids(&f, ids + 1, 1, 1, NULL, NULL, last);
    assert_true(isnan(last[0]));
    assert_int_equal(rvi_model_check(g.m, f.ws, &why), RV_E_STATE);
    assert_non_null(strstr(why.text, "CUDA_ERROR_ILLEGAL_ADDRESS"));
    long launches = fake()->launches;
    feed_ids(&f, ids + 2, 1, 1, NULL, NULL, last);
    assert_true(isnan(last[0]));
    assert_int_equal(fake()->launches, launches);
    feed_deinit(&f);
    rvi_free(last);
    golden_close(&g);
}

/* The most likely token of a step of one row, as engines ask for it. */
static int32_t best_of_step(const golden *g, feed *f, int32_t token, bool *recalled)
{
    int32_t which = 0, best = -2;
    int pos = f->seq.len;
    assert_ok(rvi_seq_extend(&f->seq, 1, err));
    rvi_row row = {.seq = &f->seq, .pos = pos, .token = token, .rope_set = f->rope_set};
    rvi_workspace_expect(f->ws, RVI_THEN_BEST);
    rvi_model_forward(g->m, f->ws, &row, 1);
    *recalled = f->ws->is_recalled;
    (void)rvi_model_best(g->m, f->ws, &row, &which, 1, &best);
    return best;
}

/* Single tokens: nothing is copied to or from the device besides the list, which reads and writes
 * pinned memory; wherever it breaks, there is no token, and the status says why. */
static void single_tokens(void **state)
{
    (void)state;
    enum { WARM = 3 };
    golden g;
    feed f;
    int n;
    long commands = 1;
    bool recalled;
    for (long broken = -1; broken < commands; broken += broken < 2 ? 1 : 5) {
        rv_error why = {0};
        (void)reset(NULL);
        open_model(&g, "tests/golden/llama", "tests/golden/llama/expected.safetensors", false);
        const int32_t *ids = golden_ids(g.expected, "tokens", &n);
        feed_init(&f, g.m, n, 4, RV_KV_F16);
        for (int i = 0; i < WARM; i++) assert_true(best_of_step(&g, &f, ids[i], &recalled) >= 0);
        size_t sent = fake()->sent, fetched = fake()->fetched;
        long launches = fake()->launches, graphs = fake()->graphs;
        fake()->fail_after = broken;
        int32_t best = best_of_step(&g, &f, ids[WARM], &recalled);
        assert_true(recalled);
        if (broken < 0) {
            commands = fake()->launches - launches;
            assert_true(best >= 0 && commands > 10);
            assert_int_equal(fake()->graphs, graphs + 1);
            assert_int_equal(fake()->sent, sent);
            assert_int_equal(fake()->fetched, fetched);
            assert_ok(rvi_model_check(g.m, f.ws, err));
        } else {
            assert_int_equal(best, -1);
            assert_int_equal(rvi_model_check(g.m, f.ws, &why), RV_E_STATE);
            assert_non_null(strstr(why.text, "CUDA_ERROR_ILLEGAL_ADDRESS"));
        }
        feed_deinit(&f);
        golden_close(&g);
    }
    (void)reset(NULL);
}

/* Logits that a product wrote to the host have the bits of those that were copied there, also of
 * passes that are started again, on both sides of a page's end; and passes that nobody waits for do
 * not disturb what is staged for others. */
static void logits_of_steps(void **state)
{
    (void)state;
    enum { N = 36, UNTIL = 9 };
    int n_recalled = 0;
    golden g;
    feed f;
    rvi_source *source;
    rvi_cuda_options o = {
        .n_threads = 1, .driver = driver(), .image = driver() ? "in the library" : NULL};
    g = (golden){0};
    assert_ok(rvi_backend_cuda_new(&g.be, &o, NULL, err));
    assert_ok(rvi_source_open(&source, "tests/gguf/q-q4_k.gguf", err));
    assert_ok(rvi_model_new(&g.m, g.be, source, NULL, err));
    size_t vocab = (size_t)g.m->hp.n_vocab;
    float *want = rvi_alloc_array(N * vocab, sizeof *want);
    int32_t ids[N], which = 0;
    for (int i = 0; i < N; i++) ids[i] = (i * 37 + 11) % 300;
    feed_init(&f, g.m, N, N, RV_KV_F16);
    feed_ids(&f, ids, N, N, NULL, want, NULL);
    feed_deinit(&f);
    feed_init(&f, g.m, N, 1, RV_KV_F16);
    for (int i = 0; i < N; i++) {
        rvi_row row = {.seq = &f.seq, .pos = i, .token = ids[i], .rope_set = f.rope_set};
        assert_ok(rvi_seq_extend(&f.seq, 1, err));
        bool waits = i > UNTIL || i % 3 != 1;
        rvi_workspace_expect(f.ws, waits ? RVI_THEN_LOGITS : RVI_THEN_NOTHING);
        rvi_model_forward(g.m, f.ws, &row, 1);
        n_recalled += f.ws->is_recalled;
        if (!waits) continue;
        const float *logits = rvi_model_logits(g.m, f.ws, &row, &which, 1);
        assert_memory_equal(logits, want + (size_t)i * vocab, vocab * sizeof *want);
    }
    assert_true(n_recalled > N - UNTIL - 8);
    feed_deinit(&f);
    rvi_free(want);
    golden_close(&g);
}

/* With a window the first key that a row sees moves inside a page: a pass that is started again
 * earlier in the page than it was remembered sees keys of one chunk more. */
static void steps_of_a_window(void **state)
{
    (void)state;
    enum { N = 384, EARLY = 356 }; /* more keys than one run */
    golden g;
    feed f;
    int32_t ids[N], which = 0;
    open_model(&g, "tests/golden/mistral", NULL, false);
    assert_int_equal(g.m->hp.window[0], 64);
    size_t vocab = (size_t)g.m->hp.n_vocab;
    float *want = rvi_alloc_array(N * vocab, sizeof *want);
    for (int i = 0; i < N; i++) ids[i] = (i * 37 + 11) % 300;
    feed_init(&f, g.m, N, N, RV_KV_F16);
    feed_ids(&f, ids, N, N, NULL, want, NULL);
    int n_recalled = 0;
    const int at[] = {N - 1, N - 1, N - 1, EARLY, EARLY};
    for (size_t i = 0; i < RVI_COUNT(at); i++) {
        rvi_row row = {.seq = &f.seq, .pos = at[i], .token = ids[at[i]], .rope_set = f.rope_set};
        rvi_seq_truncate(&f.seq, at[i]);
        assert_ok(rvi_seq_extend(&f.seq, 1, err));
        rvi_workspace_expect(f.ws, RVI_THEN_LOGITS);
        rvi_model_forward(g.m, f.ws, &row, 1);
        n_recalled += f.ws->is_recalled;
        const float *logits = rvi_model_logits(g.m, f.ws, &row, &which, 1);
        assert_memory_equal(logits, want + (size_t)at[i] * vocab, vocab * sizeof *want);
    }
    assert_true(n_recalled > 1);
    feed_deinit(&f);
    rvi_free(want);
    golden_close(&g);
}

/* Rows that are freed while a copy to them waits: the copy comes first. */
static void freed_rows(void **state)
{
    (void)state;
    rvi_backend *be;
    rvi_tensor *t;
    float x[8] = {0};
    assert_ok(open_fake(&be, true, NULL, err));
    assert_ok(be->ops->rows_new(be, &t, 1, 8, err));
    long launches = fake()->launches;
    be->ops->rows_write(be, rvi_cols_of(t, 0, 8), 0, x);
    assert_int_equal(fake()->launches, launches);
    be->ops->tensor_free(be, t);
    assert_int_equal(fake()->launches, launches + 1);
    be->ops->submit(be);
    assert_int_equal(fake()->launches, launches + 1);
    be->ops->free(be);
}

/* More room than there is: who computes with less goes on, with the same bits. */
static void no_more_room(void **state)
{
    (void)state;
    enum { N = 8 };
    rvi_backend *be;
    rvi_tensor *t;
    float x[N], y[N];
    rv_error why = {0};
    assert_ok(open_fake(&be, false, NULL, err));
    assert_ok(be->ops->rows_new(be, &t, 2, N, err));
    assert_ok(be->ops->reserve(be, 4, N, ~0u, err));
    for (int i = 0; i < N; i++) x[i] = (float)i;
    for (int turn = 0; turn < 2; turn++) {
        size_t used = fake()->used, counted = be->memory->scratch;
        be->ops->rows_write(be, rvi_cols_of(t, 0, N), 0, x); /* waits until there is no room */
        fake()->memory = used + (1 << 20);
        assert_int_equal(be->ops->reserve(be, 1 << (10 + turn), 1 << 14, 0, &why), RV_E_NOMEM);
        assert_non_null(strstr(why.text, "of device memory are needed"));
        assert_int_equal(fake()->used, used);
        assert_int_equal(be->memory->scratch, counted);
        be->ops->add(be, rvi_cols_of(t, 0, N), rvi_cols_of(t, 0, N), 1);
        be->ops->rows_read(be, rvi_cols_of(t, 0, N), 0, y);
        for (int i = 0; i < N; i++) assert_true(y[i] == 2 * x[i]);
    }
    assert_ok(be->ops->check(be, err));
    fake()->memory = (size_t)1 << 40;
    assert_ok(be->ops->reserve(be, 1 << 10, 1 << 14, ~0u, err));
    be->ops->tensor_free(be, t);
    be->ops->free(be);
}

/* Exact logits of a golden model; in chunks of any size and beside a stranger the same bits; the
 * lists of single tokens become graphs. */
static void model_and_law(void **state)
{
    (void)state;
    enum { N = 10 };
    golden g;
    feed f;
    int n;
    open_model(&g, "tests/golden/qwen3", "tests/golden/qwen3/expected.safetensors", true);
    const int32_t *ids = golden_ids(g.expected, "tokens", &n);
    const float *want = golden_floats(g.expected, "logits");
    size_t total = N * (size_t)g.m->hp.n_vocab;
    float *whole = rvi_alloc_array(total, sizeof *whole),
          *got = rvi_alloc_array(total, sizeof *got);
    feed_init(&f, g.m, N, N, RV_KV_F32);
    feed_ids(&f, ids, N, N, NULL, whole, NULL);
    for (size_t i = 0; i < total; i++) assert_true(fabsf(whole[i] - want[i]) < 2e-4f);
    feed_deinit(&f);
    for (int chunk = 1; chunk <= 3; chunk += 2) {
        feed_init(&f, g.m, N, chunk, RV_KV_F32);
        feed_ids(&f, ids, N, chunk, NULL, got, NULL);
        assert_memory_equal(got, whole, total * sizeof *got);
        feed_deinit(&f);
    }
    assert_true(fake()->graphs > N); /* of the pass and of the logits */
    rvi_free(whole);
    rvi_free(got);
    golden_close(&g);
}

/* Every weight type: a product with the rows of the identity gives what the CPU decodes. */
static void weight_types(void **state)
{
    (void)state;
    enum { OUT = 3 };
    rvi_backend *be;
    assert_ok(open_fake(&be, true, NULL, err));
    for (int type = 0; type < RVI_QTYPE_COUNT; type++) {
        int n_in = rvi_qtypes[type].block_weights == 1 ? 77 : 512;
        size_t row = rvi_qtype_row_bytes((rvi_qtype)type, (size_t)n_in);
        uint8_t *bytes = rvi_alloc_array(OUT, row);
        float *want = rvi_alloc_array((size_t)(OUT * n_in), sizeof *want), x[512], y[OUT];
        unsigned seed = 1;
        for (size_t i = 0; i < OUT * row; i++)
            bytes[i] = (uint8_t)((seed = seed * 1664525 + 1013904223) >> 24 & 0x3B);
        rvi_dequantize((rvi_qtype)type, bytes, want, (size_t)(OUT * n_in));
        rvi_tensor_view view = {.name = "w",
                                .type = (rvi_qtype)type,
                                .n_dims = 2,
                                .shape = {OUT, (uint64_t)n_in},
                                .data = bytes,
                                .n_bytes = OUT * row};
        rvi_tensor *w, *in, *out;
        rvi_pack *pack;
        assert_ok(be->ops->weight_new(be, &w, &view, err));
        assert_ok(be->ops->pack_new(be, &pack, be->ops->pack_bytes(be, w), err));
        be->ops->pack(be, pack, w);
        assert_ok(be->ops->rows_new(be, &in, 4, n_in, err));
        assert_ok(be->ops->rows_new(be, &out, 4, OUT, err));
        rvi_matmul m = {.x = rvi_cols_of(in, 0, n_in),
                        .part = {{w, NULL, rvi_cols_of(out, 0, OUT)}},
                        .n_parts = 1};
        for (int k = 0; k < n_in; k += 13) {
            for (int i = 0; i < n_in; i++) x[i] = i == k ? 1.0f : 0.0f;
            m.n_rows = k % 2 ? 1 : 4;
            for (int r = 0; r < m.n_rows; r++) be->ops->rows_write(be, m.x, r, x);
            be->ops->matmul(be, &m);
            be->ops->rows_read(be, m.part[0].out, m.n_rows - 1, y);
            for (int o = 0; o < OUT; o++)
                if (y[o] != want[o * n_in + k])
                    fail_msg("%s: weight (%d, %d) is %.9g, not %.9g", rvi_qtypes[type].name, o, k,
                             (double)y[o], (double)want[o * n_in + k]);
        }
        be->ops->tensor_free(be, w);
        be->ops->tensor_free(be, in);
        be->ops->tensor_free(be, out);
        be->ops->pack_free(be, pack);
        rvi_free(bytes);
        rvi_free(want);
    }
    be->ops->free(be);
}

/* Default mode, a type that has panels: products of one row and of rows together, by every kernel,
 * give the same bits, and the value of the formula. */
static void check_panels(rvi_backend *be, int type)
{
    enum { OUT = 21, ROWS = 170, IN = 512 };
    size_t row = rvi_qtype_row_bytes((rvi_qtype)type, IN);
    uint8_t *bytes = rvi_alloc_array(OUT, row);
    float *weights = rvi_alloc_array(OUT * IN, sizeof *weights);
    static float x[ROWS][IN];
    unsigned seed = (unsigned)type + 1;
    for (size_t i = 0; i < OUT * row; i++)
        bytes[i] = (uint8_t)((seed = seed * 1664525 + 1013904223) >> 24 & 0x3B);
    rvi_dequantize((rvi_qtype)type, bytes, weights, OUT * IN);
    rvi_tensor_view view = {.name = "w",
                            .type = (rvi_qtype)type,
                            .n_dims = 2,
                            .shape = {OUT, IN},
                            .data = bytes,
                            .n_bytes = OUT * row};
    rvi_tensor *w, *in, *out;
    rvi_pack *pack;
    assert_ok(be->ops->weight_new(be, &w, &view, err));
    assert_ok(be->ops->pack_new(be, &pack, be->ops->pack_bytes(be, w), err));
    be->ops->pack(be, pack, w);
    assert_ok(be->ops->rows_new(be, &in, ROWS, IN, err));
    assert_ok(be->ops->rows_new(be, &out, ROWS, OUT, err));
    assert_ok(be->ops->reserve(be, ROWS, IN, ~0u, err));
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < IN; i++)
            x[r][i] = (float)(int)((seed = seed * 1664525 + 1013904223) >> 16) / 32768 - 1;
    float y[ROWS][OUT], one[OUT];
    static const int together[] = {ROWS, 70, 33, 11, 3, 1};
    for (size_t i = 0; i < RVI_COUNT(together); i++) {
        int n = together[i];
        rvi_matmul m = {.x = rvi_cols_of(in, 0, IN),
                        .part = {{w, NULL, rvi_cols_of(out, 0, OUT)}},
                        .n_parts = 1,
                        .n_rows = n};
        for (int r = 0; r < n; r++) be->ops->rows_write(be, m.x, r, x[r]);
        be->ops->matmul(be, &m);
        if (n == ROWS) be->ops->fetch(be, m.part[0].out, ROWS, y[0]);
        be->ops->rows_read(be, m.part[0].out, n - 1, one);
        assert_memory_equal(one, y[n - 1], sizeof one);
    }
    /* Activations and weights are rounded to f16; of F32 what that leaves is too (1.4e-7 at most on
     * the host). */
    const double near = type == RVI_F32 ? 1e-6 : 1e-3;
    for (int r = 0; r < ROWS; r += 23) {
        for (int j = 0; j < OUT; j++) {
            double want = 0, size = 0;
            for (int k = 0; k < IN; k++) {
                want += (double)weights[j * IN + k] * (double)x[r][k];
                size += fabs((double)weights[j * IN + k] * (double)x[r][k]);
            }
            if (!(fabs(want - (double)y[r][j]) <= near * size))
                fail_msg("%s: row %d, output %d: %.9g, not %.9g", rvi_qtypes[type].name, r, j,
                         (double)y[r][j], want);
        }
    }
    be->ops->tensor_free(be, w);
    be->ops->tensor_free(be, in);
    be->ops->tensor_free(be, out);
    be->ops->pack_free(be, pack);
    rvi_free(bytes);
    rvi_free(weights);
}

static void panels(void **state)
{
    (void)state;
    rvi_backend *be;
    rvi_cuda_options o = {
        .n_threads = 1, .driver = driver(), .image = driver() ? "in the library" : NULL};
    assert_ok(rvi_backend_cuda_new(&be, &o, NULL, err));
    for (int type = 0; type < RVI_QTYPE_COUNT; type++) check_panels(be, type);
    be->ops->free(be);
}

/* Cards with less shared memory, and without clusters and products by groups of warps: rings are
 * shorter and tiles smaller there. The driver refuses launches that ask for more than they have. */
static void smaller_cards(void **state)
{
    (void)state;
    static const struct {
        int major, minor, kib;
        rvi_qtype type; /* whose rings fill what there is */
    } cards[] = {{8, 0, 163, RVI_BF16}, {8, 6, 99, RVI_Q5_K}, {8, 9, 99, RVI_IQ4_XS}};
    const rvi_cuda_options o = {.n_threads = 1, .driver = FAKE_DRIVER, .image = "in the library"};
    for (size_t i = 0; i < RVI_COUNT(cards); i++) {
        rvi_backend *be;
        fake()->major = cards[i].major;
        fake()->minor = cards[i].minor;
        fake()->shared = cards[i].kib << 10;
        assert_ok(rvi_backend_cuda_new(&be, &o, NULL, err));
        check_panels(be, (int)cards[i].type);
        be->ops->free(be);
    }
    fake()->shared = 64 << 10;
    refuses(&o, RV_E_UNSUPPORTED, "too little shared memory: a block needs 99 KiB");
    fake()->major = 7;
    fake()->minor = 5;
    refuses(&o, RV_E_UNSUPPORTED, "its compute capability is 7.5, 8.0 or later is needed");
}

/* A part of a card (MIG) has few processors, so that rings are for rows with few segments too, and
 * blocks have many tiles: one row has the bits that it has beside another. */
static void one_row_alone(rvi_backend *be, int n_in, bool gated)
{
    enum { OUT = 400, MOST = 1024 };
    static uint8_t bytes[2][OUT * MOST];
    float x[2][MOST], y[OUT], one[OUT];
    unsigned seed = 7;
    rvi_tensor *w[2], *in, *out, *up;
    rvi_pack *pack[2];
    size_t row = rvi_qtype_row_bytes(RVI_Q4_0, (size_t)n_in);
    for (int i = 0; i < 2; i++) {
        for (size_t k = 0; k < OUT * row; k++)
            bytes[i][k] = (uint8_t)((seed = seed * 1664525 + 1013904223) >> 24 & 0x3B);
        for (int k = 0; k < n_in; k++)
            x[i][k] = (float)(int)((seed = seed * 1664525 + 1013904223) >> 16) / 32768 - 1;
        rvi_tensor_view view = {.name = "w",
                                .type = RVI_Q4_0,
                                .n_dims = 2,
                                .shape = {OUT, (uint64_t)n_in},
                                .data = bytes[i],
                                .n_bytes = OUT * row};
        assert_ok(be->ops->weight_new(be, &w[i], &view, err));
        assert_ok(be->ops->pack_new(be, &pack[i], be->ops->pack_bytes(be, w[i]), err));
        be->ops->pack(be, pack[i], w[i]);
    }
    assert_ok(be->ops->rows_new(be, &in, 2, n_in, err));
    assert_ok(be->ops->rows_new(be, &out, 2, OUT, err));
    assert_ok(be->ops->rows_new(be, &up, 2, OUT, err));
    rvi_cols to = rvi_cols_of(out, 0, OUT);
    for (int n = 2; n >= 1; n--) {
        rvi_matmul m = {.x = rvi_cols_of(in, 0, n_in),
                        .part = {{w[0], NULL, to}, {w[1], NULL, rvi_cols_of(up, 0, OUT)}},
                        .n_parts = gated ? 2 : 1,
                        .n_rows = n,
                        .glu = RVI_GLU_SILU};
        if (gated) m.gated = to;
        for (int r = 0; r < n; r++) be->ops->rows_write(be, m.x, r, x[r]);
        be->ops->matmul(be, &m);
        const rvi_cuda *c = rvi_cuda_of(be);
        bool ring = rvi_cuda_is_ring(c->commands[c->n_commands - 1].kernel);
        assert_int_equal(ring, n == 1 && rvi_cuda_segments(n_in) > (gated ? 2 : 4));
        be->ops->rows_read(be, to, 0, n == 2 ? y : one);
    }
    assert_memory_equal(one, y, sizeof y);
    rvi_tensor *all[] = {w[0], w[1], in, out, up};
    for (size_t i = 0; i < RVI_COUNT(all); i++) be->ops->tensor_free(be, all[i]);
    for (int i = 0; i < 2; i++) be->ops->pack_free(be, pack[i]);
}

static void few_processors(void **state)
{
    (void)state;
    rvi_backend *be;
    fake()->processors = 1;
    assert_ok(open_fake(&be, false, NULL, err));
    for (int gated = 0; gated < 2; gated++)
        for (int n = 256; n <= 1024; n += 256) one_row_alone(be, n, gated);
    assert_ok(be->ops->check(be, err));
    be->ops->free(be);
}

/* A driver that compiles for 8.0 what could be had for 9.0: kernels that have no code there are
 * left alone. */
static void compiled_for_another(void **state)
{
    (void)state;
    rvi_backend *be;
    const rvi_cuda_options o = {.n_threads = 1, .driver = FAKE_DRIVER, .image = "in the library"};
    for (int compiles = 0; compiles < 2; compiles++) {
        fake()->compiles = compiles;
        assert_ok(rvi_backend_cuda_new(&be, &o, NULL, err));
        assert_int_equal(rvi_cuda_of(be)->has_groups, !compiles);
        assert_int_equal(rvi_cuda_of(be)->has_clusters, !compiles);
        assert_int_equal(rvi_cuda_of(be)->early, !compiles);
        check_panels(be, RVI_Q4_K);
        be->ops->free(be);
    }
}

/* A model on a large card and, in chunks of another size and token by token, on a small one. The
 * host computes both, so that even the bits are the same. */
static void model_on_a_small_card(void **state)
{
    (void)state;
    enum { N = 70, TOGETHER = 40 };
    int32_t ids[N];
    float *logits[2];
    for (int i = 0; i < N; i++) ids[i] = (i * 37 + 11) % 300;
    for (int small = 0; small < 2; small++) {
        golden g;
        feed f;
        if (small) fake()->major = 8, fake()->shared = 99 << 10;
        open_model(&g, "tests/gguf/q-q4_k.gguf", NULL, false);
        size_t vocab = (size_t)g.m->hp.n_vocab;
        logits[small] = rvi_alloc_array(N * vocab, sizeof **logits);
        feed_init(&f, g.m, N, N, RV_KV_F16);
        feed_ids(&f, ids, small ? TOGETHER : N, N, NULL, logits[small], NULL);
        for (int i = TOGETHER; i < N && small; i++)
            feed_ids(&f, ids + i, 1, 1, NULL, logits[small] + (size_t)i * vocab, NULL);
        feed_deinit(&f);
        assert_true(isfinite(logits[small][N * vocab - 1]));
        if (small) assert_memory_equal(logits[0], logits[1], N * vocab * sizeof **logits);
        golden_close(&g);
    }
    rvi_free(logits[0]);
    rvi_free(logits[1]);
}

/* Default mode on a whole model with pages of f16: close to the exact logits, and the same bits
 * in chunks of any size. Past 64 keys, so that chunks of them are merged. */
static void default_mode(void **state)
{
    (void)state;
    enum { N = 70 };
    golden g;
    feed f;
    int32_t ids[N];
    rvi_source *source;
    rvi_cuda_options o = {
        .n_threads = 1, .driver = driver(), .image = driver() ? "in the library" : NULL};
    for (int i = 0; i < N; i++) ids[i] = (i * 37 + 11) % 300;
    g = (golden){0};
    assert_ok(rvi_backend_cuda_new(&g.be, &o, NULL, err));
    assert_ok(rvi_source_open(&source, "tests/gguf/q-q4_k.gguf", err));
    assert_ok(rvi_model_new(&g.m, g.be, source, NULL, err));
    assert_int_equal(g.m->hp.head_size % 16, 0); /* or another attention takes it */
    size_t total = N * (size_t)g.m->hp.n_vocab;
    float *whole = rvi_alloc_array(total, sizeof *whole),
          *got = rvi_alloc_array(total, sizeof *got);
    feed_init(&f, g.m, N, N, RV_KV_F16);
    feed_ids(&f, ids, N, N, NULL, whole, NULL);
    feed_deinit(&f);
    static const int chunks[] = {1, 9};
    for (size_t c = 0; c < RVI_COUNT(chunks); c++) {
        feed_init(&f, g.m, N, chunks[c], RV_KV_F16);
        feed_ids(&f, ids, N, chunks[c], NULL, got, NULL);
        assert_memory_equal(got, whole, total * sizeof *got);
        feed_deinit(&f);
    }
    golden_close(&g);

    open_model(&g, "tests/gguf/q-q4_k.gguf", NULL, true);
    feed_init(&f, g.m, N, N, RV_KV_F32);
    feed_ids(&f, ids, N, N, NULL, got, NULL);
    double apart = 0, size = 0;
    for (size_t i = 0; i < total; i++) {
        apart += ((double)got[i] - (double)whole[i]) * ((double)got[i] - (double)whole[i]);
        size += (double)got[i] * (double)got[i];
    }
    print_message("# default mode: %.1e of the logits' size\n", sqrt(apart / size));
    assert_true(apart < 1e-4 * size);
    feed_deinit(&f);
    rvi_free(whole);
    rvi_free(got);
    golden_close(&g);
}

enum { Q8_TOKENS = 200 };

/* Logits of a text with a cache of this type, in such chunks. exact: of the CPU. */
static void logits_with(rv_kv_type kv, bool exact, int chunk, float *out, int *n_vocab)
{
    golden g = {0};
    feed f;
    int32_t ids[Q8_TOKENS];
    rvi_source *source;
    rvi_cuda_options o = {
        .n_threads = 1, .driver = driver(), .image = driver() ? "in the library" : NULL};
    for (int i = 0; i < Q8_TOKENS; i++) ids[i] = (i * 37 + 11) % 300;
    assert_ok(exact ? rvi_backend_cpu_new(&g.be, &(rvi_cpu_options){.n_threads = 1, .exact = true},
                                          NULL, err)
                    : rvi_backend_cuda_new(&g.be, &o, NULL, err));
    assert_ok(rvi_source_open(&source, "tests/gguf/q-q4_k.gguf", err));
    assert_ok(rvi_model_new(&g.m, g.be, source, NULL, err));
    *n_vocab = g.m->hp.n_vocab;
    if (out) {
        feed_init(&f, g.m, Q8_TOKENS, chunk, kv);
        feed_ids(&f, ids, Q8_TOKENS, chunk, NULL, out, NULL);
        feed_deinit(&f);
    }
    golden_close(&g);
}

/* Pages of q8: no further from the exact logits with pages of f32 than the CPU is with its pages of
 * q8 (here two thirds of it), and the same bits in chunks of any size. */
static void pages_of_bytes(void **state)
{
    (void)state;
    int n;
    logits_with(RV_KV_F32, true, 1, NULL, &n);
    size_t bytes = (size_t)n * Q8_TOKENS * sizeof(float);
    float *x[4];
    for (int i = 0; i < 4; i++) x[i] = rvi_alloc_array(bytes, 1);
    logits_with(RV_KV_F32, true, Q8_TOKENS, x[0], &n);
    logits_with(RV_KV_Q8, true, Q8_TOKENS, x[1], &n);
    logits_with(RV_KV_Q8, false, Q8_TOKENS, x[2], &n);
    double cpu = divergence(x[0], x[1], Q8_TOKENS, n), gpu = divergence(x[0], x[2], Q8_TOKENS, n);
    print_message("# q8: KL %.2e on the CPU, %.2e here\n", cpu, gpu);
    assert_true(gpu > 0 && gpu <= 1.1 * cpu);
    static const int chunks[] = {1, 9};
    for (size_t i = 0; i < RVI_COUNT(chunks); i++) {
        logits_with(RV_KV_Q8, false, chunks[i], x[3], &n);
        assert_memory_equal(x[3], x[2], bytes);
    }
    for (int i = 0; i < 4; i++) rvi_free(x[i]);
}

/* The first of the largest, and rows that have none; odd widths. */
static void best_of_rows(void **state)
{
    (void)state;
    enum { ROWS = 6, WIDEST = 2500 };
    static const int widths[] = {1, 2, 31, 1024, WIDEST};
    static float x[ROWS][WIDEST];
    rvi_backend *be;
    rvi_tensor *t;
    assert_ok(open_fake(&be, true, NULL, err));
    assert_ok(be->ops->rows_new(be, &t, ROWS, WIDEST, err));
    assert_ok(be->ops->reserve(be, ROWS, WIDEST, ~0u, err));
    for (size_t w = 0; w < RVI_COUNT(widths); w++) {
        int n = widths[w], got[ROWS];
        unsigned seed = (unsigned)n;
        for (int r = 0; r < ROWS; r++)
            for (int i = 0; i < n; i++) /* few values: there are equals */
                x[r][i] = (float)((seed = seed * 1664525 + 1013904223) >> 28) - 20;
        x[1][n - 1] = 100; /* the last one */
        x[2][n / 2] = NAN;
        x[3][n / 3] = INFINITY;
        for (int i = 0; i < n; i++) x[4][i] = -INFINITY;
        x[5][0] = -0.0f; /* equal to the next */
        if (n > 1) x[5][1] = 0.0f;
        for (int r = 0; r < ROWS; r++) be->ops->rows_write(be, rvi_cols_of(t, 0, n), r, x[r]);
        be->ops->best(be, rvi_cols_of(t, 0, n), ROWS, got);
        for (int r = 0; r < ROWS; r++) {
            int want = 0;
            for (int i = 1; i < n; i++)
                if (x[r][i] > x[r][want]) want = i;
            assert_int_equal(got[r], r >= 2 && r <= 4 ? -1 : want);
        }
    }
    be->ops->tensor_free(be, t);
    be->ops->free(be);
}

/* Copies alone, one type alone, no time, and next to no memory. */
static void probe_less(rvi_backend *be)
{
    rvi_cuda_probe p;
    rvi_cuda_probe_options o = {.quick = true, .what = RVI_CUDA_PROBE_COPIES};
    long launches = fake()->launches;
    size_t used = fake()->used;
    assert_ok(rvi_cuda_probe_run(&p, be, &o, err));
    assert_true(p.copy > 0 && p.to_device > 0 && p.to_host > 0 && p.call == 0);
    assert_int_equal(fake()->launches, launches);
    for (int small = 0; small < 2; small++) {
        o = (rvi_cuda_probe_options){
            .quick = !small, .what = RVI_CUDA_PROBE_TYPE, .type = RVI_Q4_K};
        if (small) fake()->memory = fake()->used + (2 << 20);
        assert_ok(rvi_cuda_probe_run(&p, be, &o, err));
        for (int t = 0; t < RVI_QTYPE_COUNT; t++)
            assert_true((p.weight[t].row > 0) == (t == RVI_Q4_K) && p.weight[t].many == 0);
        assert_true(p.to_device > 0 && p.crossing > 0 && p.call > 0);
    }
    fake()->memory = (size_t)1 << 40;
    o = (rvi_cuda_probe_options){.quick = true, .limit = 1e-9};
    assert_ok(rvi_cuda_probe_run(&p, be, &o, err));
    assert_true(p.copy > 0 && p.call > 0);
    for (int t = 0; t < RVI_QTYPE_COUNT; t++) assert_true(p.weight[t].row == 0);
    assert_int_equal(fake()->used, used);
}

/* What doctor measures: a figure of each kind, and nothing left behind; a device that is lost is
 * said. */
static void probe(void **state)
{
    (void)state;
    rvi_backend *be;
    rvi_cuda_card card;
    rvi_cuda_probe p;
    rv_error why = {0};
    const rvi_cuda_probe_options quick = {.quick = true, .limit = 600};
    assert_ok(open_fake(&be, true, NULL, err));
    rvi_cuda_card_read(&card, be);
    assert_string_equal(card.name, "fake device");
    assert_int_equal(card.cuda, 13000);
    assert_int_equal(card.total, fake()->memory);
    assert_int_equal(card.left, fake()->memory - fake()->used);
    assert_ok(rvi_cuda_probe_run(&p, be, &quick, err));
    assert_true(p.copy > 0 && p.to_device > 0 && p.to_host > 0 && p.launch > 0 && p.call > 0);
    assert_true(p.call > p.launch && p.crossing > 0);
    for (int t = 0; t < RVI_QTYPE_COUNT; t++) {
        assert_true(p.weight[t].row > 0 && p.weight[t].many > 0 && p.weight[t].many_call >= 0);
        assert_true(p.weight[t].many_more >= p.weight[t].many);
        assert_true(p.weight[t].many_more <= 2.01 * p.weight[t].many);
    }
    probe_less(be);
    size_t used = fake()->used;
    fake()->fail_after = 9;
    assert_int_equal(rvi_cuda_probe_run(&p, be, &quick, &why), RV_E_STATE);
    assert_non_null(strstr(why.text, "CUDA_ERROR_ILLEGAL_ADDRESS"));
    assert_int_equal(fake()->used, used);
    be->ops->free(be);
}

/* Rows of a weight one by one: the host has them already. Then one that waits to be copied does not
 * hide what came between. */
static void rows_of_weights(void **state)
{
    (void)state;
    golden g;
    open_model(&g, "tests/golden/llama", NULL, false);
    rvi_backend *be = g.be;
    int n = g.m->hp.n_embd;
    float *row = rvi_alloc_array((size_t)n, sizeof *row), *want = rvi_alloc_array((size_t)n, 4);
    rvi_tensor *one;
    assert_ok(be->ops->rows_new(be, &one, 2, n, err));
    rvi_cols x = rvi_cols_of(one, 0, n);
    be->ops->submit(be);
    long launches = fake()->launches;
    size_t fetched = fake()->fetched;
    for (int i = 0; i < 20000; i++) { /* more than the staging area holds */
        int32_t id = i % 40;
        be->ops->embed(be, x, g.m->head.w, &id, 1, 1);
        be->ops->rows_read(be, x, 0, row);
    }
    assert_int_equal(fake()->launches, launches);
    assert_int_equal(fake()->fetched, fetched);
    be->ops->submit(be);
    be->ops->rows_read(be, x, 0, want); /* from the device: the last one */
    assert_int_equal(fake()->fetched - fetched, (size_t)n * sizeof *row);
    assert_memory_equal(row, want, (size_t)n * sizeof *row);
    be->ops->embed(be, x, g.m->head.w, (const int32_t[]){3, 5}, 2, 1);
    be->ops->rows_read(be, x, 1, row);
    be->ops->add(be, x, x, 2);
    be->ops->rows_read(be, x, 1, want);
    for (int i = 0; i < n; i++) assert_true(want[i] == row[i] + row[i]);
    be->ops->tensor_free(be, one);
    rvi_free(row);
    rvi_free(want);
    golden_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_missing, reset, reset),
        cmocka_unit_test_setup_teardown(what_is_too_old, reset, reset),
        cmocka_unit_test_setup_teardown(other_caches, reset, reset),
        cmocka_unit_test_setup_teardown(no_memory, reset, reset),
        cmocka_unit_test_setup_teardown(lost_device, reset, reset),
        cmocka_unit_test_setup_teardown(single_tokens, reset, reset),
        cmocka_unit_test_setup_teardown(logits_of_steps, reset, reset),
        cmocka_unit_test_setup_teardown(steps_of_a_window, reset, reset),
        cmocka_unit_test_setup_teardown(freed_rows, reset, reset),
        cmocka_unit_test_setup_teardown(no_more_room, reset, reset),
        cmocka_unit_test_setup_teardown(best_of_rows, reset, reset),
        cmocka_unit_test_setup_teardown(probe, reset, reset),
        cmocka_unit_test_setup_teardown(rows_of_weights, reset, reset),
        cmocka_unit_test_setup_teardown(model_and_law, reset, reset),
        cmocka_unit_test_setup_teardown(weight_types, reset, reset),
        cmocka_unit_test_setup_teardown(panels, reset, reset),
        cmocka_unit_test_setup_teardown(smaller_cards, reset, reset),
        cmocka_unit_test_setup_teardown(few_processors, reset, reset),
        cmocka_unit_test_setup_teardown(compiled_for_another, reset, reset),
        cmocka_unit_test_setup_teardown(model_on_a_small_card, reset, reset),
        cmocka_unit_test_setup_teardown(default_mode, reset, reset),
        cmocka_unit_test_setup_teardown(pages_of_bytes, reset, reset),
    };
    return cmocka_run_group_tests_name("cuda", tests, NULL, NULL);
}
