/* Embeddings through the public interface: a decoder's against its own hidden states, an encoder's
 * against the stored ones of transformers, and what is refused. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "api/opened.h"

static const int32_t ids[] = {5, 6, 7, 8, 9, 10, 11};
enum { N = 7 };

static void embed_way(rv_engine *e, const int32_t *list, size_t n, rv_pooling pooling,
                      int normalize, float *out)
{
    rv_embed_options o;
    o = (rv_embed_options){.size = sizeof o};
    o.pooling = pooling;
    o.keep_length = !normalize;
    assert_ok(rv_engine_embed(e, list, n, &o, out, err));
}

/* The mean is that of the last states of every prefix: a decoder's state
 * at a position depends on what came before it alone. */
static void pooling_of_a_decoder(void **state)
{
    (void)state;
    opened o;
    rv_engine *e;
    open_all(&o, "tests/golden/llama", 2, 64);
    const rv_model_info *info = rv_model_get_info(o.m);
    assert_false(info->is_encoder);
    assert_in_range(info->n_embd, 1, 1024);
    assert_ok(rv_engine_new(&e, o.m, NULL, err));
    float last[1024], mean[1024], unit[1024], first[1024];
    double sum[1024] = {0}, length = 0;
    for (size_t n = 1; n <= N; n++) {
        embed_way(e, ids, n, RV_POOLING_LAST, 0, last);
        for (int i = 0; i < info->n_embd; i++) sum[i] += (double)last[i];
        if (n == 1) memcpy(first, last, sizeof first);
    }
    embed_way(e, ids, N, RV_POOLING_MEAN, 0, mean);
    for (int i = 0; i < info->n_embd; i++) {
        assert_true(fabs((double)mean[i] - sum[i] / N) < 1e-6);
        length += (double)mean[i] * (double)mean[i];
    }
    embed_way(e, ids, N, RV_POOLING_DEFAULT, 1, unit);
    for (int i = 0; i < info->n_embd; i++)
        assert_true(fabs((double)unit[i] - (double)mean[i] / sqrt(length)) < 1e-6);
    embed_way(e, ids, N, RV_POOLING_FIRST, 0, last);
    assert_memory_equal(first, last, (size_t)info->n_embd * sizeof(float));
    rv_engine_free(&e);

    /* small steps give the same bits, and sessions beside it are not touched */
    rv_engine_options eo;
    rv_session_options so;
    rv_session *s;
    float again[1024];
    eo = (rv_engine_options){.size = sizeof eo};
    eo.max_rows = 3;
    eo.n_tokens = 64;
    assert_ok(rv_engine_new(&e, o.m, &eo, err));
    so = (rv_session_options){.size = sizeof so};
    so.engine = e;
    so.n_context = 32;
    assert_ok(rv_session_new(&s, o.m, &so, err));
    assert_ok(rv_session_sync(s, ids, 5, NULL, NULL, err));
    embed_way(e, ids, N, RV_POOLING_MEAN, 0, again);
    assert_memory_equal(mean, again, (size_t)info->n_embd * sizeof(float));
    assert_int_equal(rv_session_tokens(s, NULL), 5);
    assert_null(rv_engine_logits(e, 0));
    int32_t many[65] = {1};
    assert_refused(RV_E_TOO_LONG, rv_engine_embed(e, many, 65, NULL, again, err));
    assert_refused(RV_E_NO_PAGES, rv_engine_embed(e, many, 64, NULL, again, err));
    assert_int_equal(rv_session_tokens(s, NULL), 5);
    rv_session_free(&s);
    rv_engine_free(&e);
    close_all(&o);
}

static void an_encoder_has_no_sessions(void **state)
{
    (void)state;
    rv_runtime *rt;
    rv_model *m;
    rv_session *s;
    rv_sampler *sampler;
    rv_engine *e;
    rv_perplexity p;
    float vector[1024], other[1024];
    assert_ok(rv_runtime_new(&rt, NULL, err));
    assert_ok(rv_model_open(&m, rt, "tests/golden/bert", NULL, err));
    const rv_model_info *info = rv_model_get_info(m);
    assert_true(info->is_encoder);
    assert_refused(RV_E_INVALID, rv_session_new(&s, m, NULL, err));
    assert_refused(RV_E_INVALID, rv_sampler_new(&sampler, m, NULL, err));
    assert_refused(RV_E_INVALID,
                   rv_model_perplexity(m, ids, N, 4, RV_KV_DEFAULT, NULL, NULL, &p, err));
    assert_refused(RV_E_NOT_FOUND, rv_model_tap(m, ids, N, "logits", RV_KV_DEFAULT, NULL,
                                                "/tmp/ruvllm-no-logits", err));
    assert_ok(rv_engine_new(&e, m, NULL, err));
    embed_way(e, ids, N, RV_POOLING_MEAN, 1, vector);
    embed_way(e, ids, N, RV_POOLING_FIRST, 1, other);
    assert_memory_not_equal(vector, other, (size_t)info->n_embd * sizeof(float));
    /* too long: cut by default, an error if cutting is off */
    static int32_t many[4096];
    rv_embed_options o;
    o = (rv_embed_options){.size = sizeof o};
    for (int i = 0; i < 4096; i++) many[i] = 5 + i % 20;
    assert_in_range(info->n_context, 8, 4000);
    assert_ok(rv_engine_embed(e, many, 4000, &o, vector, err));
    o.refuse_long = 1;
    assert_refused(RV_E_TOO_LONG, rv_engine_embed(e, many, 4000, &o, vector, err));
    rv_engine_free(&e);
    rv_model_close(&m);
    rv_runtime_free(&rt);
}

static void refused(void **state)
{
    (void)state;
    opened o;
    rv_engine *e;
    float vector[1024];
    rv_embed_options eo = {0};
    open_all(&o, "tests/golden/llama", 1, 64);
    assert_ok(rv_engine_new(&e, o.m, NULL, err));
    assert_refused(RV_E_INVALID, rv_engine_embed(NULL, ids, N, NULL, vector, err));
    assert_refused(RV_E_INVALID, rv_engine_embed(e, NULL, N, NULL, vector, err));
    assert_refused(RV_E_INVALID, rv_engine_embed(e, ids, N, NULL, NULL, err));
    assert_refused(RV_E_CONFIG, rv_engine_embed(e, ids, N, &eo, vector, err));
    eo = (rv_embed_options){.size = sizeof eo};
    eo.pooling = (rv_pooling)17;
    assert_refused(RV_E_CONFIG, rv_engine_embed(e, ids, N, &eo, vector, err));
    assert_refused(RV_E_INVALID, rv_engine_embed(e, ids, 0, NULL, vector, err));
    static const int32_t outside[] = {1, 1 << 30};
    assert_refused(RV_E_INVALID, rv_engine_embed(e, outside, 2, NULL, vector, err));
    rv_engine_free(&e);
    close_all(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pooling_of_a_decoder),
        cmocka_unit_test(an_encoder_has_no_sessions),
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests_name("embeddings", tests, NULL, NULL);
}
