/* Every allocation of opening an encoder and embedding a text with it, refused in turn: RV_E_NOMEM
 * comes back and nothing leaks (which a sanitizer sees). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "decode/embed.h"
#include "harness/fail_alloc.h"
#include "tokenizer/tokenizer.h"

static const char *const paths[] = {"tests/golden/bert-cls", "tests/gguf/bert-q8_0.gguf"};

static rv_status embed(const rvi_model *m, rv_error *err)
{
    enum { ROWS = 8 };
    static const int32_t ids[] = {2, 5, 6, 7, 3};
    rvi_kv_spec spec = rvi_model_kv_spec(m, RV_KV_F16, 2);
    rvi_pages *pool = NULL;
    rvi_seq seq = {0};
    rvi_workspace *ws = NULL;
    float out[64];
    rv_status st = rvi_pages_new(&pool, m->be, &spec, err);
    if (!st) st = rvi_seq_init(&seq, pool, ROWS, err);
    if (!st) st = rvi_workspace_new(&ws, m, ROWS, 1, err);
    if (!st) st = rvi_embed(m, ws, &seq, ROWS, ids, 5, &(rvi_embed_options){0}, out, err);
    rvi_workspace_free(ws);
    rvi_seq_deinit(&seq);
    rvi_pages_free(pool);
    return st;
}

static rv_status attempt(const char *path, rv_error *err)
{
    rvi_backend *be = NULL;
    rvi_source *source;
    rvi_model *m = NULL;
    rvi_tokenizer *t = NULL;
    rv_status st = rvi_backend_cpu_new(&be, &(rvi_cpu_options){.n_threads = 1}, NULL, err);
    if (!st) st = rvi_source_open(&source, path, err);
    if (!st) st = rvi_model_new(&m, be, source, NULL, err);
    if (!st) st = embed(m, err);
    if (!st && m->source->gguf) st = rvi_tokenizer_from_gguf(&t, m->source->gguf, NULL, err);
    if (!st && t) {
        rvi_ids ids = {0};
        rvi_buf text = {0};
        st = rvi_tokenizer_encode(t, "The river, walking", 18, RVI_TOK_BOS_EOS, &ids, err);
        if (!st) st = rvi_tokenizer_decode(t, ids.data, ids.len, 0, &text, err);
        rvi_ids_deinit(&ids);
        rvi_buf_deinit(&text);
    }
    rvi_tokenizer_free(t);
    rvi_model_free(m);
    if (be) be->ops->free(be);
    return st;
}

static void sweep(void **state)
{
    (void)state;
    for (size_t i = 0; i < RVI_COUNT(paths); i++) {
        long n = 0;
        for (bool refused = true; refused; n++) {
            rv_error err = {0};
            fail_alloc_once(n);
            rv_status st = attempt(paths[i], &err);
            refused = fail_alloc_off();
            if (st != (refused ? RV_E_NOMEM : RV_OK))
                fail_msg("%s: call %ld refused: status %d, '%s'", paths[i], n, (int)st, err.text);
        }
        assert_true(n > 100);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sweep)};
    return cmocka_run_group_tests_name("allocation failures in encoders", tests, NULL, NULL);
}
