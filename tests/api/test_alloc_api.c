/* Every allocation of opening, tokenizing, rendering and generating fails once: an error each time,
 * and nothing leaks (the sanitizer pass watches). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "harness/fail_alloc.h"
#include "ruvllm.h"

static const rv_message message = {"user", "the tea", NULL};
static const rv_chat chat = {.size = sizeof chat, .messages = &message, .n_messages = 1};

/* Everything a small program does; the first error ends it. */
static rv_status whole_life(const char *path, const char *adapter, rv_error *err)
{
    rv_runtime_options ro;
    rv_session_options so;
    rv_generate_options go;
    rv_runtime *rt = NULL;
    rv_model *m = NULL;
    rv_adapter *a = NULL;
    rv_adapter_set *set = NULL;
    rv_session *s = NULL;
    rv_answer *g = NULL;
    char *text = NULL, *json = NULL;
    int32_t *ids = NULL;
    size_t n = 0, len = 0;
    rv_adapter_use use = {NULL, 1};
    static const int32_t plain[] = {5, 6, 7};
    ro = (rv_runtime_options){.size = sizeof ro};
    ro.n_threads = 1;
    rv_status st = rv_runtime_new(&rt, &ro, err);
    if (!st) st = rv_model_open(&m, rt, path, NULL, err);
    if (!st && !adapter) st = rv_chat_render(m, &chat, &text, &len, err);
    if (!st && !adapter) st = rv_tokenize(m, text, len, 0, &ids, &n, err);
    if (!st && adapter) st = rv_adapter_load(&a, m, adapter, err);
    if (!st) st = rv_model_describe(m, 1, &json, err);
    so = (rv_session_options){.size = sizeof so};
    so.n_context = 256;
    use.adapter = a;
    if (!st && a) st = rv_adapter_set_new(&set, m, &use, 1, err);
    so.adapters = set;
    if (!st) st = rv_session_new(&s, m, &so, err);
    go = (rv_generate_options){.size = sizeof go};
    static const char *const stops[] = {"nowhere"};
    go.max_tokens = 5;
    go.top_logprobs = 3;
    go.stop = stops;
    go.n_stop = adapter ? 0 : 1;
    if (!st) st = rv_session_generate(s, ids ? ids : plain, ids ? n : 3, &go, &g, err);
    rv_free(g);
    rv_session_free(&s);
    rv_adapter_set_free(&set);
    rv_adapter_free(&a);
    rv_free(text);
    rv_free(json);
    rv_free(ids);
    rv_model_close(&m);
    rv_runtime_free(&rt);
    return st;
}

static void sweep(const char *path, const char *adapter)
{
    long n = 0;
    for (;; n++) {
        rv_error err = {0};
        fail_alloc_after(n);
        rv_status st = whole_life(path, adapter, &err);
        if (!fail_alloc_off()) {
            if (st) fail_msg("%s: %s", path, err.text);
            break;
        }
        if (st != RV_E_NOMEM)
            fail_msg("%s: call %ld refused, but status %d: %s", path, n, st, err.text);
        assert_int_equal(err.code, RV_E_NOMEM);
    }
    print_message("# %s: %ld allocations\n", path, n);
    assert_true(n > 30);
}

static void gguf(void **state)
{
    (void)state;
    sweep("tests/gguf/llama.gguf", NULL);
    sweep("tests/gguf/llama-spm.gguf", NULL);
}

static void checkpoint_with_adapter(void **state)
{
    (void)state;
    sweep("tests/golden/phi3-longrope", "tests/golden/phi3-longrope/lora");
    sweep("tests/golden/gemma2", "tests/golden/gemma2/lora");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(gguf),
                                       cmocka_unit_test(checkpoint_with_adapter)};
    return cmocka_run_group_tests_name("allocation failures", tests, NULL, NULL);
}
