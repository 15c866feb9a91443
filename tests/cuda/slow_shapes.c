/* Models of shapes that nothing was tuned for, named by arguments (without any: one of tests/gguf):
 *
 *     RUVLLM_TEST_CUDA=system slow_shapes FILE...
 *
 * The exact mode agrees with the CPU's, the default mode is about as far from it as the CPU's is,
 * and a row has the same bits alone, in chunks of any size and among up to 127 others. */
#include "cuda/divergence.h"
#include "cuda/fake.h"

enum { N_STEPS = 3, MOST = 128, LONG = 300 }; /* longer than one run of keys that attention takes */

static const char *const some[] = {"tests/gguf/llama-head80.gguf"};
static char *const *files;
static int n_files, n_ids, most; /* tokens of the text, sequences in a step: fewer on the host */

/* NULL: the machine's own. */
static const char *driver(void)
{
    const char *name = getenv("RUVLLM_TEST_CUDA");
    return !name ? FAKE_DRIVER : !strcmp(name, "system") ? NULL : name;
}

static void open_model(golden *g, const char *path, bool on_device, bool exact)
{
    rvi_source *source;
    rvi_cuda_options o = {.n_threads = 2,
                          .exact = exact,
                          .driver = driver(),
                          .image = driver() ? "the library has the kernels" : NULL};
    *g = (golden){0};
    assert_ok(on_device
                  ? rvi_backend_cuda_new(&g->be, &o, NULL, err)
                  : rvi_backend_cpu_new(&g->be, &(rvi_cpu_options){.n_threads = 2, .exact = exact},
                                        NULL, err));
    assert_ok(rvi_source_open(&source, path, err));
    assert_ok(rvi_model_new(&g->m, g->be, source, NULL, err));
}

static int32_t token(const rvi_model *m, int sequence, int position)
{
    return (int32_t)((position * 37 + sequence * 101 + 11) % m->hp.n_vocab);
}

static float *logits(const rvi_model *m, rv_kv_type kv, int chunk)
{
    feed f;
    int32_t ids[LONG];
    float *out = rvi_alloc_array((size_t)n_ids * (size_t)m->hp.n_vocab, sizeof *out);
    for (int i = 0; i < n_ids; i++) ids[i] = token(m, 0, i);
    feed_init(&f, m, n_ids, chunk, kv);
    feed_ids(&f, ids, n_ids, chunk, NULL, out, NULL);
    feed_deinit(&f);
    return out;
}

static float *logits_of(const char *path, bool on_device, bool exact, rv_kv_type kv, int *n_vocab)
{
    golden g;
    open_model(&g, path, on_device, exact);
    *n_vocab = g.m->hp.n_vocab;
    float *out = logits(g.m, kv, n_ids);
    golden_close(&g);
    return out;
}

/* The last steps of a text, one row each, while others of other lengths take one row each too. */
static void in_company(const golden *g, rv_kv_type kv, int n, float *out)
{
    const rvi_model *m = g->m;
    rvi_kv_spec spec = rvi_model_kv_spec(m, kv, n * (n_ids / RVI_PAGE_TOKENS + 2));
    rvi_pages *pool;
    rvi_workspace *ws;
    static rvi_seq seqs[MOST];
    static rvi_row rows[LONG];
    int ours = n / 2, set = rvi_rope_set(&m->rope, n_ids);
    assert_ok(rvi_pages_new(&pool, m->be, &spec, err));
    assert_ok(rvi_workspace_new(&ws, m, RVI_MAX(n_ids, n), n, err));
    for (int q = 0; q < n; q++) {
        int have = q == ours ? n_ids - N_STEPS : 1 + q * 53 % (n_ids - N_STEPS);
        assert_ok(rvi_seq_init(&seqs[q], pool, n_ids, err));
        assert_ok(rvi_seq_extend(&seqs[q], have, err));
        for (int i = 0; i < have; i++)
            rows[i] = (rvi_row){.seq = &seqs[q],
                                .pos = i,
                                .token = token(m, q == ours ? 0 : q + 1, i),
                                .rope_set = set};
        rvi_model_forward(m, ws, rows, have);
    }
    for (int step = 0; step < N_STEPS; step++) {
        for (int q = 0; q < n; q++) {
            int at = seqs[q].len;
            assert_ok(rvi_seq_extend(&seqs[q], 1, err));
            rows[q] = (rvi_row){.seq = &seqs[q],
                                .pos = at,
                                .token = token(m, q == ours ? 0 : q + 1, at),
                                .rope_set = set};
        }
        rvi_model_forward(m, ws, rows, n);
        memcpy(out + (size_t)step * (size_t)m->hp.n_vocab,
               rvi_model_logits(m, ws, rows, &(int32_t){ours}, 1),
               (size_t)m->hp.n_vocab * sizeof *out);
    }
    rvi_workspace_free(ws);
    for (int q = 0; q < n; q++) rvi_seq_deinit(&seqs[q]);
    rvi_pages_free(pool);
}

static void same_bits(const float *got, const float *want, size_t n, const char *path,
                      const char *what, int how_many)
{
    size_t differing = 0;
    for (size_t i = 0; i < n; i++) differing += memcmp(&got[i], &want[i], sizeof got[i]) != 0;
    if (differing)
        fail_msg("%s: %s %d: %zu of %zu values differ", path, what, how_many, differing, n);
}

static void check_law(const char *path, bool exact, rv_kv_type kv)
{
    static const int chunks[] = {1, 7, 64, 131}, companies[] = {2, 5, 8, 33, MOST};
    golden g;
    open_model(&g, path, true, exact);
    size_t vocab = (size_t)g.m->hp.n_vocab;
    float *want = logits(g.m, kv, n_ids), *few = rvi_alloc_array(N_STEPS * vocab, sizeof *few);
    for (size_t i = 0; i < RVI_COUNT(chunks); i++) {
        float *got = logits(g.m, kv, chunks[i]);
        same_bits(got, want, (size_t)n_ids * vocab, path, "in chunks of", chunks[i]);
        rvi_free(got);
    }
    for (size_t i = 0; i < RVI_COUNT(companies) && companies[i] <= most; i++) {
        in_company(&g, kv, companies[i], few);
        same_bits(few, want + (size_t)(n_ids - N_STEPS) * vocab, N_STEPS * vocab, path,
                  "sequences in a step:", companies[i]);
    }
    rvi_free(want);
    rvi_free(few);
    golden_close(&g);
}

static void shapes(void **state)
{
    (void)state;
    for (int i = 0; i < n_files; i++) {
        int n;
        double worst = 0;
        float *want = logits_of(files[i], false, true, RV_KV_F32, &n),
              *exact = logits_of(files[i], true, true, RV_KV_F32, &n),
              *cpu = logits_of(files[i], false, false, RV_KV_F16, &n),
              *gpu = logits_of(files[i], true, false, RV_KV_F16, &n);
        for (size_t k = 0; k < (size_t)n_ids * (size_t)n; k++) {
            double d = fabs((double)want[k] - (double)exact[k]);
            if (!(d <= worst)) worst = d;
        }
        double far = divergence(want, cpu, n_ids, n), here = divergence(want, gpu, n_ids, n);
        print_message("# %s: exact %.1e from the CPU, default KL %.2e (the CPU's %.2e)\n", files[i],
                      worst, here, far);
        assert_true(worst < 2e-4);
        /* Where the CPU rounds nothing (weights of f16 or f32), the activations of f16 are here. */
        assert_true(here < RVI_MAX(1.1 * far, 1e-5));
        rvi_free(want);
        rvi_free(exact);
        rvi_free(cpu);
        rvi_free(gpu);
        check_law(files[i], false, RV_KV_F16);
        check_law(files[i], false, RV_KV_Q8);
        check_law(files[i], true, RV_KV_F32);
    }
}

int main(int argc, char **argv)
{
    files = argc > 1 ? argv + 1 : (char *const *)(void *)some;
    n_ids = getenv("RUVLLM_TEST_CUDA") ? LONG : 12;
    most = getenv("RUVLLM_TEST_CUDA") ? MOST : 2;
    n_files = argc > 1 ? argc - 1 : (int)RVI_COUNT(some);
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(shapes, reset, reset)};
    return cmocka_run_group_tests_name("shapes", tests, NULL, NULL);
}
