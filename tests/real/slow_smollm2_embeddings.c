/* Embeddings of the real decoder model through the public interface, against transformers
 * (tests/real/data/smollm2_embeddings.json, made by tools/make_smollm2_embeddings.py). Skipped
 * where the model is not in the cache folder. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/blob.h"
#include "base/json.h"
#include "harness/assert_ok.h"
#include "real/cached_model.h"

enum { WIDTH = 576 };

static double cosine(const float *got, const rvi_json *want)
{
    double ab = 0, aa = 0, bb = 0;
    assert_int_equal(rvi_json_count(want), WIDTH);
    for (size_t i = 0; i < WIDTH; i++) {
        double a = got[i], b = rvi_json_number(rvi_json_at(want, i), NAN);
        ab += a * b;
        aa += a * a;
        bb += b * b;
    }
    assert_true(fabs(aa - 1) < 1e-5); /* normalised by default */
    return ab / sqrt(aa * bb);
}

static void compare(const char *path, int exact, double least)
{
    static const struct {
        const char *name;
        rv_pooling pooling;
    } ways[] = {{"mean", RV_POOLING_DEFAULT}, {"mean", RV_POOLING_MEAN}, {"last", RV_POOLING_LAST}};
    rvi_blob file;
    rvi_arena arena = {0};
    const rvi_json *root;
    rv_runtime_options ro;
    rv_runtime *rt;
    rv_model *m;
    rv_engine *e;
    float vector[WIDTH];
    double worst = 1;
    assert_ok(rvi_blob_open(&file, "tests/real/data/smollm2_embeddings.json", err));
    assert_ok(rvi_json_parse(&root, (const char *)file.data, file.len, &arena, "embeddings", err));
    ro = (rv_runtime_options){.size = sizeof ro};
    ro.exact = exact;
    assert_ok(rv_runtime_new(&rt, &ro, err));
    assert_ok(rv_model_open(&m, rt, path, 0, err));
    assert_ok(rv_engine_new(&e, m, NULL, err));
    const rvi_json *texts = rvi_json_get(root, "texts");
    assert_true(rvi_json_count(texts) >= 6);
    for (size_t i = 0; i < rvi_json_count(texts); i++) {
        const rvi_json *row = rvi_json_at(texts, i), *text = rvi_json_get(row, "text"),
                       *want = rvi_json_get(row, "ids");
        int32_t *ids;
        size_t n;
        assert_ok(rv_tokenize(m, text->as.string.data, text->as.string.len, RV_TOKENIZE_WRAP, &ids,
                              &n, err));
        assert_int_equal(n, rvi_json_count(want));
        for (size_t k = 0; k < n; k++)
            assert_int_equal(ids[k], rvi_json_int(rvi_json_at(want, k), -1));
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
            rv_embed_options o;
            o = (rv_embed_options){.size = sizeof o};
            o.pooling = ways[w].pooling;
            assert_ok(rv_engine_embed(e, ids, n, &o, vector, err));
            worst = fmin(worst, cosine(vector, rvi_json_get(row, ways[w].name)));
        }
        rv_free(ids);
    }
    print_message("# %s: 1 - cosine at most %.2g\n", exact ? "exact" : "default", 1 - worst);
    assert_true(worst >= least);
    rv_engine_free(&e);
    rv_model_close(&m);
    rv_runtime_free(&rt);
    rvi_arena_deinit(&arena);
    rvi_blob_close(&file);
}

static void against_transformers(void **state)
{
    (void)state;
    char path[1024];
    find_cached("smollm2", path, sizeof path);
    if (!path[0]) skip();
    compare(path, 1, 0.9999);
    compare(path, 0, 0.99);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(against_transformers)};
    return cmocka_run_group_tests_name("embeddings of SmolLM2", tests, NULL, NULL);
}
