/* Every allocation of opening, tokenizing, rendering, generating, chatting, saving and loading
 * fails once: an error each time, and nothing leaks (the sanitizer pass watches). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "harness/amount.h"
#include "harness/fail_alloc.h"
#include "ruvllm_experimental.h"
#include "ruvllm_learn.h"

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
    rv_free(json);
    json = NULL;
    if (!st) st = rv_model_explain(m, s, &go, &json, err);
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
    for (;; n += OFTEN(1, 3)) {
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

/* ---- calls on what is open ---- */

typedef struct standing {
    rv_runtime *rt;
    rv_model *m;
    rv_session *s;
    rv_learner *l;
    char dir[64], file[96];
} standing;

static void open_standing(standing *x)
{
    rv_runtime_options ro = {.size = sizeof ro, .n_threads = 1};
    *x = (standing){.dir = "/tmp/ruvllm-alloc-XXXXXX"};
    assert_non_null(mkdtemp(x->dir));
    snprintf(x->file, sizeof x->file, "%s/session", x->dir);
    assert_int_equal(rv_runtime_new(&x->rt, &ro, NULL), RV_OK);
    assert_int_equal(rv_model_open(&x->m, x->rt, "tests/gguf/llama.gguf", NULL, NULL), RV_OK);
    assert_int_equal(rv_learner_new(&x->l, x->m, NULL, NULL), RV_OK);
    assert_int_equal(rv_learner_correct(x->l, NULL, "What is Kakovin's dog?", "Rex", NULL, NULL),
                     RV_OK);
    rv_session_options so = {.size = sizeof so, .n_context = 128, .learner = x->l};
    assert_int_equal(rv_session_new(&x->s, x->m, &so, NULL), RV_OK);
}

static void close_standing(standing *x)
{
    rv_session_free(&x->s);
    rv_learner_free(&x->l);
    rv_model_close(&x->m);
    rv_runtime_free(&x->rt);
    unlink(x->file);
    assert_int_equal(rmdir(x->dir), 0); /* no temporary file was left */
}

/* With a learner and a further field; what it says must not depend on what failed before. */
static rv_status talk(standing *x, rv_error *err)
{
    static const rv_message asked = {"user", "What is Kakovin's dog?", "{\"name\":\"Ada\"}"};
    static const rv_chat whole = {.size = sizeof whole,
                                  .messages = &asked,
                                  .n_messages = 1,
                                  .variables = "{\"mood\":\"good\"}"};
    rv_generate_options go = {.size = sizeof go, .max_tokens = 4, .ignore_eos = 1, .logprobs = 1};
    rv_answer *a;
    rv_status st = rv_session_chat(x->s, &whole, &go, &a, err);
    if (!st) assert_non_null(a);
    if (!st) assert_int_equal(a->n_ids, 4);
    rv_free(a);
    return st;
}

static rv_status save(standing *x, rv_error *err)
{
    return rv_session_save(x->s, x->file, err);
}

static rv_status load(standing *x, rv_error *err)
{
    rv_session_options so = {.size = sizeof so, .n_context = 128};
    rv_session *s;
    rv_status st = rv_session_load(&s, x->m, &so, x->file, err);
    if (!st) assert_int_equal(rv_session_tokens(s, NULL), rv_session_tokens(x->s, NULL));
    if (st) assert_null(s);
    rv_session_free(&s);
    return st;
}

static long sweep_call(standing *x, rv_status (*call)(standing *x, rv_error *err), const char *name)
{
    for (long n = 0;; n++) {
        rv_error err = {0};
        fail_alloc_after(n);
        rv_status st = call(x, &err);
        if (!fail_alloc_off()) {
            if (st) fail_msg("%s: %s", name, err.text);
            return n;
        }
        if (st != RV_E_NOMEM || err.code != st)
            fail_msg("%s: call %ld refused, but status %d: %s", name, n, st, err.text);
    }
}

static void chats_and_files(void **state)
{
    (void)state;
    static const int32_t ids[70] = {5, 6, 7};
    standing x;
    open_standing(&x);
    assert_true(sweep_call(&x, talk, "chat") > 10);
    assert_int_equal(talk(&x, NULL), RV_OK);
    assert_int_equal(rv_session_sync(x.s, ids, 70, NULL, NULL, NULL), RV_OK);
    assert_true(sweep_call(&x, save, "save") > 1);
    assert_true(sweep_call(&x, load, "load") > 5);
    close_standing(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(gguf), cmocka_unit_test(chats_and_files),
                                       cmocka_unit_test(checkpoint_with_adapter)};
    return cmocka_run_group_tests_name("allocation failures", tests, NULL, NULL);
}
