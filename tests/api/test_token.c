/* Tokens one at a time: text as the vocabulary stores it, kind, and no allocation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "api/opened.h"

static atomic_int n_calls;

static void *count_alloc(void *ctx, size_t size)
{
    (void)ctx;
    atomic_fetch_add(&n_calls, 1);
    return malloc(size);
}

static void *count_resize(void *ctx, void *p, size_t size)
{
    (void)ctx;
    atomic_fetch_add(&n_calls, 1);
    return realloc(p, size);
}

static void count_release(void *ctx, void *p)
{
    (void)ctx;
    free(p);
}

static void every_token(void **state)
{
    (void)state;
    static const char *const paths[] = {"tests/gguf/llama.gguf", "tests/gguf/llama-spm.gguf"};
    static const rv_allocator hooks = {count_alloc, count_resize, count_release, NULL};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        rv_runtime_options ro = {.size = sizeof ro, .n_threads = 1, .allocator = &hooks};
        opened o = {0};
        assert_ok(rv_runtime_new(&o.rt, &ro, err));
        assert_ok(rv_model_open(&o.m, o.rt, paths[i], NULL, err));
        const rv_model_info *info = rv_model_get_info(o.m);
        int n_end = 0, n_special = 0, n_normal = 0, before = atomic_load(&n_calls);
        for (int32_t id = 0; id < info->n_vocab; id++) {
            const char *text = NULL;
            size_t len = 99999;
            rv_token_kind kind = rv_token_get(o.m, id, &text, &len);
            assert_non_null(text);
            assert_int_equal(text[len], 0);
            assert_int_equal(kind == RV_TOKEN_UNUSED, len == 0);
            bool ends = false;
            for (size_t k = 0; k < info->n_eos; k++) ends = ends || info->eos[k] == id;
            assert_int_equal(kind == RV_TOKEN_END, ends);
            n_end += kind == RV_TOKEN_END;
            n_special += kind == RV_TOKEN_SPECIAL;
            n_normal += kind == RV_TOKEN_NORMAL;
            assert_int_equal(rv_token_get(o.m, id, NULL, NULL), kind);
        }
        assert_int_equal(atomic_load(&n_calls), before);
        assert_int_equal(n_end, (int)info->n_eos);
        assert_true(n_special > 0);
        assert_true(n_normal > 200);
        /* special tokens are those that skip_special leaves out */
        for (int32_t id = 0; id < info->n_vocab; id++) {
            rv_token_kind kind = rv_token_get(o.m, id, NULL, NULL);
            char *text;
            if (kind != RV_TOKEN_SPECIAL && kind != RV_TOKEN_END) continue;
            assert_ok(rv_detokenize(o.m, &id, 1, 1, &text, NULL, err));
            assert_string_equal(text, "");
            rv_free(text);
        }
        rv_model_close(&o.m);
        rv_runtime_free(&o.rt);
    }
}

static void stored_texts(void **state)
{
    (void)state;
    opened o;
    const char *text;
    size_t len;
    int32_t *ids;
    size_t n;
    open_all(&o, "tests/gguf/llama.gguf", 1, 32);
    assert_ok(rv_tokenize(o.m, "<|im_end|>", 10, RV_TOKENIZE_SPECIAL, &ids, &n, err));
    assert_int_equal(n, 1);
    rv_token_kind kind = rv_token_get(o.m, ids[0], &text, &len);
    assert_true(kind == RV_TOKEN_SPECIAL || kind == RV_TOKEN_END);
    assert_string_equal(text, "<|im_end|>");
    assert_int_equal(len, 10);
    rv_free(ids);
    /* without the flag it is text like any other */
    assert_ok(rv_tokenize(o.m, "<|im_end|>", 10, 0, &ids, &n, err));
    assert_true(n > 1);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(rv_token_get(o.m, ids[i], NULL, NULL), RV_TOKEN_NORMAL);
    rv_free(ids);
    /* a space is written as byte-level vocabularies write it */
    assert_ok(rv_tokenize(o.m, " ", 1, 0, &ids, &n, err));
    assert_int_equal(n, 1);
    (void)rv_token_get(o.m, ids[0], &text, &len);
    assert_string_equal(text, "\xC4\xA0");
    rv_free(ids);
    close_all(&o);
}

static void no_such_token(void **state)
{
    (void)state;
    opened o;
    const char *text;
    size_t len;
    open_all(&o, "tests/gguf/llama.gguf", 1, 32);
    static const int32_t outside[] = {-1, INT32_MIN, INT32_MAX, 100000};
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++) {
        len = 7;
        assert_int_equal(rv_token_get(o.m, outside[i], &text, &len), RV_TOKEN_UNUSED);
        assert_string_equal(text, "");
        assert_int_equal(len, 0);
    }
    close_all(&o);
    open_all(&o, "tests/golden/qwen3", 1, 32); /* no tokenizer */
    assert_int_equal(rv_token_get(o.m, 5, &text, &len), RV_TOKEN_UNUSED);
    assert_string_equal(text, "");
    close_all(&o);
}

/* The bytes of the tokens of a text are the text. */
static void bytes_of_tokens(void **state)
{
    (void)state;
    static const char *const paths[] = {"tests/gguf/llama.gguf", "tests/gguf/llama-spm.gguf"};
    static const char text[] = " Tea \xc3\xa9\xf0\x9f\x98\x80";
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        opened o = {0};
        int32_t *ids;
        size_t n, len, at = 0;
        char all[64], *bytes;
        rv_error why;
        assert_ok(rv_runtime_new(&o.rt, NULL, err));
        assert_ok(rv_model_open(&o.m, o.rt, paths[i], NULL, err));
        assert_ok(rv_tokenize(o.m, text, strlen(text), 0, &ids, &n, err));
        for (size_t k = 0; k < n; k++) {
            assert_ok(rv_token_bytes(o.m, ids[k], &bytes, &len, err));
            assert_true(at + len < sizeof all);
            memcpy(all + at, bytes, len);
            at += len;
            rv_free(bytes);
        }
        /* SentencePiece puts a blank before a text */
        size_t skip = at - strlen(text);
        assert_true(skip <= 1);
        assert_memory_equal(all + skip, text, strlen(text));
        assert_ok(rv_token_bytes(o.m, rv_model_get_info(o.m)->eos[0], &bytes, &len, err));
        assert_int_equal(len, 0);
        rv_free(bytes);
        assert_int_equal(rv_token_bytes(o.m, 5, NULL, &len, &why), RV_E_INVALID);
        assert_int_equal(rv_token_bytes(NULL, 5, &bytes, &len, &why), RV_E_INVALID);
        rv_free(ids);
        rv_model_close(&o.m);
        rv_runtime_free(&o.rt);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_token), cmocka_unit_test(bytes_of_tokens),
        cmocka_unit_test(stored_texts), cmocka_unit_test(no_such_token)};
    return cmocka_run_group_tests_name("token", tests, NULL, NULL);
}
