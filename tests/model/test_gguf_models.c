/* Tiny GGUF models of every family and weight type against values computed by others: llama.cpp
 * where it is exact, a float64 program where llama.cpp rounds (see tests/gguf/README.md). Also the
 * same model read from memory and through a reader callback. */
#include "golden.h"

#include <math.h>

static const char *const kinds[] = {
    "llama",        "llama-spm",    "llama3-rope",   "llama-linear", "llama-yarn", "llama-mqa",
    "llama-head48", "llama-head80", "llama-bias",    "mistral",      "qwen2",      "qwen2-yarn",
    "qwen3",        "phi3",         "phi3-longrope", "phi3-partial", "gemma2",     "gemma2-27b"};
static const char *const types[] = {"f16",  "bf16", "q4_0", "q4_1", "q5_0", "q5_1",   "q8_0",
                                    "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs"};

/* The largest difference from the expected logits, of the short and the long input. */
static double difference(const char *name, bool exact)
{
    char path[128], expected[128];
    golden g;
    double worst = 0;
    snprintf(path, sizeof path, "tests/gguf/%s.gguf", name);
    snprintf(expected, sizeof expected, "tests/gguf/%s.expected.safetensors", name);
    golden_open(&g, path, expected, exact, 2, NULL);
    size_t vocab = (size_t)g.m->hp.n_vocab;
    for (int is_long = 0; is_long < 2; is_long++) {
        int n;
        feed f;
        const int32_t *ids = golden_ids(g.expected, is_long ? "long_tokens" : "tokens", &n);
        const float *want = golden_floats(g.expected, is_long ? "long_last_logits" : "logits");
        if (!ids) continue;
        assert_non_null(want);
        size_t rows = is_long ? 1 : (size_t)n;
        float *got = rvi_alloc_array(rows * vocab, sizeof *got);
        feed_init(&f, g.m, n, n, exact ? RV_KV_F32 : RV_KV_F16);
        feed_ids(&f, ids, n, 64, NULL, is_long ? NULL : got, is_long ? got : NULL);
        for (size_t i = 0; i < rows * vocab; i++) {
            double d = fabs((double)got[i] - (double)want[i]);
            worst = d >= worst ? d : worst;
            if (isnan(d)) fail_msg("%s: not a number", name);
        }
        feed_deinit(&f);
        rvi_free(got);
    }
    golden_close(&g);
    return worst;
}

static void families(void **state)
{
    (void)state;
    for (size_t i = 0; i < RVI_COUNT(kinds); i++) {
        double exact = difference(kinds[i], true), normal = difference(kinds[i], false);
        print_message("# %-14s exact %.1e   f16 KV %.1e\n", kinds[i], exact, normal);
        assert_true(exact < 2e-4); /* observed: 9.0e-5 (46 layers), 2.8e-5 elsewhere */
        assert_true(normal < 0.1); /* observed: 3.8e-2, 1.7e-2 elsewhere */
    }
}

static void weight_types(void **state)
{
    (void)state;
    for (size_t i = 0; i < RVI_COUNT(types); i++) {
        char name[32];
        snprintf(name, sizeof name, "q-%s", types[i]);
        double exact = difference(name, true), normal = difference(name, false);
        print_message("# %-14s exact %.1e   int8 activations, f16 KV %.1e\n", types[i], exact,
                      normal);
        assert_true(exact < 2e-4); /* observed: 5.0e-6 */
        assert_true(normal < 0.5); /* observed: 0.22; logits deviate by about 1.5 */
    }
}

/* ---- other ways in ---- */

static int read_bytes(void *ctx, uint64_t offset, void *dst, size_t n)
{
    const rvi_blob *b = ctx;
    if (offset > b->len || n > b->len - offset) return -1;
    memcpy(dst, b->data + offset, n);
    return 0;
}

static int read_nothing(void *ctx, uint64_t offset, void *dst, size_t n)
{
    (void)ctx;
    (void)offset;
    (void)dst;
    (void)n;
    return -1;
}

static void logits_of(rvi_backend *be, rvi_source *take, float *out)
{
    static const int32_t ids[] = {5, 6, 7, 8};
    rvi_model *m;
    feed f;
    assert_ok(rvi_model_new(&m, be, take, NULL, err));
    feed_init(&f, m, 4, 4, RV_KV_F32);
    feed_ids(&f, ids, 4, 4, NULL, NULL, out);
    feed_deinit(&f);
    rvi_model_free(m);
}

static void memory_and_reader(void **state)
{
    (void)state;
    const char *path = "tests/gguf/qwen3.gguf";
    rvi_backend *be;
    rvi_source *s;
    rvi_blob file, borrowed, copied, bad;
    float from_path[512], from_memory[512], from_reader[512];
    assert_ok(
        rvi_backend_cpu_new(&be, &(rvi_cpu_options){.n_threads = 1, .exact = true}, NULL, err));
    assert_ok(rvi_blob_open(&file, path, err));
    assert_ok(rvi_source_open(&s, path, err));
    logits_of(be, s, from_path);
    rvi_blob_from_memory(&borrowed, file.data, file.len);
    assert_ok(rvi_source_open_gguf_blob(&s, &borrowed, "memory", err));
    logits_of(be, s, from_memory);
    assert_ok(rvi_blob_read(&copied, read_bytes, &file, file.len, "reader", err));
    assert_ok(rvi_source_open_gguf_blob(&s, &copied, "reader", err));
    logits_of(be, s, from_reader);
    assert_memory_equal(from_path, from_memory, 320 * sizeof(float));
    assert_memory_equal(from_path, from_reader, 320 * sizeof(float));
    assert_int_equal(rvi_blob_read(&bad, read_nothing, NULL, 100, "reader", NULL), RV_E_IO);

    /* a checkpoint in memory */
    rvi_blob config, weights;
    float in_memory[512], on_disk[512];
    assert_ok(rvi_blob_open(&config, "tests/golden/llama/config.json", err));
    assert_ok(rvi_blob_open(&weights, "tests/golden/llama/model.safetensors", err));
    assert_ok(rvi_source_open_hf_blobs(&s, &config, &weights, "memory", err));
    logits_of(be, s, in_memory);
    assert_ok(rvi_source_open(&s, "tests/golden/llama", err));
    logits_of(be, s, on_disk);
    assert_memory_equal(in_memory, on_disk, 320 * sizeof(float));
    rvi_blob_close(&file);
    be->ops->free(be);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(families), cmocka_unit_test(weight_types),
                                       cmocka_unit_test(memory_and_reader)};
    return cmocka_run_group_tests_name("gguf models", tests, NULL, NULL);
}
