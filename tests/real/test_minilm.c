/* The real encoder: all-MiniLM-L6-v2, as `ruvllm pull minilm` leaves it in the cache folder. Every
 * case is skipped where it is not there. The reference vectors are the package's own
 * (tests/real/data/minilm.json, made by tools/make_minilm_reference.py). */
#include "model/golden.h"

#include <math.h>
#include <stdlib.h>

#include "base/json.h"
#include "base/os.h"
#include "decode/embed.h"
#include "real/cached_model.h"

enum { MOST = 512, WIDTH = 384 };

static char path[1024]; /* empty: not on this machine */

static int find_model(void **state)
{
    (void)state;
    find_cached("minilm", path, sizeof path);
    return 0;
}

/* The ids of a row's text, cut as the package cuts; they must be the package's. */
static void encode_row(const rvi_model *m, const rvi_tokenizer *t, const rvi_json *row,
                       rvi_ids *ids)
{
    const rvi_json *text = rvi_json_get(row, "text"), *want = rvi_json_get(row, "ids");
    assert_ok(rvi_tokenizer_encode(t, text->as.string.data, text->as.string.len, RVI_TOK_BOS_EOS,
                                   ids, err));
    if (!rvi_json_bool(rvi_json_get(row, "whole"), false))
        ids->len = rvi_embed_cut(m, ids->data, ids->len, rvi_tokenizer_n_after(t));
    assert_int_equal(ids->len, rvi_json_count(want));
    for (size_t i = 0; i < ids->len; i++)
        assert_int_equal(ids->data[i], rvi_json_int(rvi_json_at(want, i), -1));
}

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
    assert_true(fabs(aa - 1) < 1e-5);
    return ab / sqrt(aa * bb);
}

static void vectors(void **state)
{
    (void)state;
    if (!path[0]) skip();
    rvi_blob file;
    rvi_arena arena = {0};
    const rvi_json *root;
    assert_ok(rvi_blob_open(&file, "tests/real/data/minilm.json", err));
    assert_ok(rvi_json_parse(&root, (const char *)file.data, file.len, &arena, "minilm.json", err));
    const rvi_json *rows = rvi_json_get(root, "texts");
    rvi_tokenizer *t = open_cached_tokenizer(path);
    for (int exact = 0; exact < 2; exact++) {
        golden g;
        feed f;
        double worst = 1, start;
        size_t n_tokens = 0;
        golden_open(&g, path, NULL, exact, 2, NULL);
        assert_int_equal(rvi_model_pooling(g.m), RV_POOLING_MEAN);
        assert_int_equal(rvi_model_max_text(g.m), 256);
        feed_init(&f, g.m, MOST, MOST, exact ? RV_KV_F32 : RV_KV_F16);
        start = rvi_os_seconds();
        for (size_t i = 0; i < rvi_json_count(rows); i++) {
            const rvi_json *row = rvi_json_at(rows, i);
            rvi_ids ids = {0};
            float out[WIDTH];
            encode_row(g.m, t, row, &ids);
            assert_ok(rvi_embed(g.m, f.ws, &f.seq, MOST, ids.data, ids.len,
                                &(rvi_embed_options){.normalize = true}, out, err));
            worst = fmin(worst, cosine(out, rvi_json_get(row, "vector")));
            n_tokens += ids.len;
            rvi_ids_deinit(&ids);
        }
        print_message("# %s: %zu texts, %zu tokens, 1 - cosine at most %.1e, %.3f s\n",
                      exact ? "exact" : "default", rvi_json_count(rows), n_tokens, 1 - worst,
                      rvi_os_seconds() - start);
        assert_int_equal(rvi_json_count(rows), 13);
        assert_true(1 - worst < (exact ? 1e-6 : 1e-3)); /* observed: 1.7e-11; 2.6e-8 */
        feed_deinit(&f);
        golden_close(&g);
    }
    rvi_tokenizer_free(t);
    rvi_arena_deinit(&arena);
    rvi_blob_close(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(vectors)};
    return cmocka_run_group_tests_name("minilm", tests, find_model, NULL);
}
