/* The public interface: what a program that links the library sees. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <pthread.h>

#include "api/opened.h"

static const char *const model_path = "tests/gguf/llama-spm.gguf";

static const int32_t prompt[] = {1, 270, 280, 290, 300};

/* ---- streaming, stopping, cancelling ---- */

typedef struct seen {
    int32_t ids[64];
    int n, cancel_after, done;
    rv_finish finish;
    char text[1024];
} seen;

static int on_event(void *ctx, const rv_event *ev)
{
    seen *s = ctx;
    if (ev->kind == RV_EVENT_PROMPT) return 0;
    if (ev->kind == RV_EVENT_DONE) {
        s->done++;
        s->finish = ev->finish;
        return 0;
    }
    assert_int_equal(s->done, 0);
    assert_int_equal(strlen(ev->text), ev->text_len);
    if (ev->id >= 0) s->ids[s->n++] = ev->id;
    strncat(s->text, ev->text, ev->text_len);
    return s->n == s->cancel_after;
}

static void streaming_equals_result(void **state)
{
    (void)state;
    opened o;
    seen s = {.cancel_after = -1};
    rv_answer *g = NULL;
    rv_generate_options go = greedy(40);
    go.on_event = on_event;
    go.ctx = &s;
    open_all(&o, model_path, 2, 128);
    assert_ok(rv_session_generate(o.s, prompt, 5, &go, &g, err));
    assert_int_equal(g->n_ids, 40);
    assert_int_equal(s.n, 40);
    assert_memory_equal(g->ids, s.ids, 40 * sizeof(int32_t));
    assert_string_equal(g->text, s.text);
    assert_int_equal(g->finish, RV_FINISH_LENGTH);
    assert_int_equal(s.done, 1);
    assert_int_equal(s.finish, RV_FINISH_LENGTH);
    char *again;
    assert_ok(rv_detokenize(o.m, g->ids, g->n_ids, 1, &again, NULL, err));
    assert_string_equal(again, g->text);
    rv_free(again);
    rv_free(g);
    close_all(&o);
}

static void cancelling_and_stopping(void **state)
{
    (void)state;
    opened o;
    rv_answer *whole = NULL, *g = NULL;
    seen s = {.cancel_after = 3};
    rv_generate_options go = greedy(40);
    open_all(&o, model_path, 1, 128);
    assert_ok(rv_session_generate(o.s, prompt, 5, &go, &whole, err));

    go.on_event = on_event;
    go.ctx = &s;
    assert_ok(rv_session_generate(o.s, prompt, 5, &go, &g, err));
    assert_int_equal(g->finish, RV_FINISH_CANCELLED);
    assert_int_equal(g->n_ids, 3);
    rv_free(g);

    /* a stop string from the middle of the text ends it there */
    go = greedy(40);
    assert_true(whole->text_len > 12);
    char stop[4] = {0};
    memcpy(stop, whole->text + 8, 3);
    const char *stops[] = {stop};
    go.stop = stops;
    go.n_stop = 1;
    assert_ok(rv_session_generate(o.s, prompt, 5, &go, &g, err));
    assert_int_equal(g->finish, RV_FINISH_STOP);
    assert_int_equal(g->text_len, strstr(whole->text, stop) - whole->text);
    assert_memory_equal(g->text, whole->text, g->text_len);
    rv_free(g);

    go = greedy(RV_NO_TOKENS);
    assert_ok(rv_session_generate(o.s, prompt, 5, &go, &g, err));
    assert_int_equal(g->n_ids, 0);
    assert_string_equal(g->text, "");
    rv_free(g);
    rv_free(whole);
    close_all(&o);
}

/* A used session gives what a fresh one gives, and says what it reused. */
static void prefix_reuse(void **state)
{
    (void)state;
    opened a, b;
    rv_answer *first = NULL, *second = NULL, *fresh = NULL;
    rv_generate_options go = greedy(10);
    int32_t longer[16];
    open_all(&a, model_path, 2, 64);
    open_all(&b, model_path, 1, 64);
    assert_ok(rv_session_generate(a.s, prompt, 5, &go, &first, err));
    memcpy(longer, prompt, sizeof prompt);
    memcpy(longer + 5, first->ids, 10 * sizeof(int32_t));
    longer[15] = 275;
    assert_ok(rv_session_generate(a.s, longer, 16, &go, &second, err));
    assert_int_equal(second->n_reused, 14); /* the last generated token was never computed */
    assert_ok(rv_session_generate(b.s, longer, 16, &go, &fresh, err));
    assert_int_equal(fresh->n_reused, 0);
    assert_memory_equal(second->ids, fresh->ids, 10 * sizeof(int32_t));
    rv_free(second);
    longer[2] = 299; /* differs early */
    assert_ok(rv_session_generate(a.s, longer, 16, &go, &second, err));
    assert_int_equal(second->n_reused, 2);
    rv_free(first);
    rv_free(second);
    rv_free(fresh);
    close_all(&a);
    close_all(&b);
}

static void adapters(void **state)
{
    (void)state;
    rv_runtime_options ro;
    rv_session_options so;
    rv_runtime *rt;
    rv_model *m, *other;
    rv_adapter *a;
    rv_session *plain, *with, *none, *wrong;
    rv_answer *p = NULL, *w = NULL, *z = NULL;
    rv_generate_options go = greedy(20);
    rv_error why = {0};
    ro = (rv_runtime_options){.size = sizeof ro};
    ro.n_threads = 1;
    assert_ok(rv_runtime_new(&rt, &ro, err));
    assert_ok(rv_model_open(&m, rt, "tests/golden/llama", NULL, err));
    assert_ok(rv_model_open(&other, rt, "tests/golden/qwen2", NULL, err));
    assert_ok(rv_adapter_load(&a, m, "tests/golden/llama/lora", err));
    so = (rv_session_options){.size = sizeof so};
    assert_ok(rv_session_new(&plain, m, &so, err));
    rv_adapter_use use = {a, 1};
    rv_adapter_set *full, *idle, *mixed;
    assert_ok(rv_adapter_set_new(&full, m, &use, 1, err));
    use.scale = 0;
    assert_ok(rv_adapter_set_new(&idle, m, &use, 1, err));
    assert_refused(RV_E_ADAPTER, rv_adapter_set_new(&mixed, other, &use, 1, err));
    assert_null(mixed);
    so.adapters = full;
    assert_ok(rv_session_new(&with, m, &so, err));
    so.adapters = idle;
    assert_ok(rv_session_new(&none, m, &so, err));
    assert_refused(RV_E_ADAPTER, rv_session_new(&wrong, other, &so, err));
    assert_null(wrong);
    rv_adapter_free(&a); /* the sets keep it */
    rv_adapter_set_free(&full);
    rv_adapter_set_free(&idle);
    static const int32_t ids[] = {5, 6, 7, 8};
    assert_ok(rv_session_generate(plain, ids, 4, &go, &p, err));
    assert_ok(rv_session_generate(with, ids, 4, &go, &w, err));
    assert_ok(rv_session_generate(none, ids, 4, &go, &z, err));
    assert_memory_not_equal(p->ids, w->ids, 20 * sizeof(int32_t));
    assert_memory_equal(p->ids, z->ids, 20 * sizeof(int32_t));
    assert_string_equal(p->text, ""); /* no tokenizer */

    rv_adapter *bad;
    assert_int_equal(rv_adapter_load(&bad, other, "tests/golden/gemma2/lora", &why),
                     RV_OK); /* the same shapes: nothing tells them apart */
    rv_adapter_free(&bad);
    assert_int_equal(rv_adapter_load(&bad, m, "tests/golden/phi3/lora", &why), RV_E_ADAPTER);
    assert_null(bad);
    assert_int_equal(rv_adapter_load(&bad, m, "tests/golden/llama", &why), RV_E_NOT_FOUND);
    assert_int_equal(rv_adapter_load(&bad, m, "tests/nowhere", &why), RV_E_NOT_FOUND);
    assert_int_equal(rv_adapter_load(&bad, m, model_path, &why),
                     RV_E_ADAPTER); /* a model, not an adapter */
    rv_free(p);
    rv_free(w);
    rv_free(z);
    rv_session_free(&plain);
    rv_session_free(&with);
    rv_session_free(&none);
    rv_model_close(&m);
    rv_model_close(&other);
    rv_runtime_free(&rt);
}

/* ---- wrong use ---- */

static void wrong_use_is_a_status(void **state)
{
    (void)state;
    opened o;
    rv_error why = {0};
    rv_answer *g = NULL;
    rv_generate_options go = greedy(4);
    rv_runtime_options ro;
    rv_runtime *rt;
    rv_model *m;
    open_all(&o, model_path, 1, 16);
    assert_int_equal(rv_session_generate(NULL, prompt, 5, &go, &g, &why), RV_E_INVALID);
    assert_int_equal(rv_session_generate(o.s, NULL, 5, &go, &g, &why), RV_E_INVALID);
    assert_int_equal(rv_session_generate(o.s, prompt, 0, &go, &g, &why), RV_E_INVALID);
    assert_null(g);
    static const int32_t outside[] = {1, 320}, negative[] = {-1};
    assert_int_equal(rv_session_generate(o.s, outside, 2, &go, &g, &why), RV_E_INVALID);
    assert_non_null(strstr(why.text, "320"));
    assert_null(g);
    assert_int_equal(rv_session_generate(o.s, negative, 1, &go, &g, NULL), RV_E_INVALID);
    assert_null(g);
    int32_t too_long[16] = {1};
    assert_int_equal(rv_session_generate(o.s, too_long, 16, &go, &g, &why), RV_E_TOO_LONG);
    assert_non_null(strstr(why.text, "16 tokens, but the context holds 16"));
    assert_null(g);
    go.max_tokens = 1000; /* cut at the context */
    assert_ok(rv_session_generate(o.s, prompt, 5, &go, &g, err));
    assert_int_equal(g->n_ids, 11);
    rv_free(g);
    rv_sampling bad_sampling;
    bad_sampling = (rv_sampling){.size = sizeof bad_sampling};
    bad_sampling.top_p = 7;
    go.sampling = &bad_sampling;
    assert_int_equal(rv_session_generate(o.s, prompt, 5, &go, &g, &why), RV_E_CONFIG);
    assert_null(g);
    close_all(&o);

    ro = (rv_runtime_options){.size = sizeof ro};
    ro.isa = "no such thing";
    assert_int_equal(rv_runtime_new(&rt, &ro, &why), RV_E_CONFIG);
    assert_null(rt);
    ro.isa = NULL;
    ro.n_threads = -1;
    assert_int_equal(rv_runtime_new(&rt, &ro, &why), RV_E_CONFIG);
    ro.n_threads = 1;
    assert_ok(rv_runtime_new(&rt, &ro, err));
    assert_int_equal(rv_model_open(&m, rt, "tests/nowhere.gguf", NULL, &why), RV_E_NOT_FOUND);
    assert_null(m);
    assert_int_equal(rv_model_open(&m, rt, "tests", NULL, &why),
                     RV_E_NOT_FOUND); /* no config.json */
    assert_int_equal(rv_model_open(&m, rt, "Makefile", NULL, &why), RV_E_MODEL);
    assert_int_equal(rv_model_open(&m, rt, NULL, NULL, &why), RV_E_INVALID);
    rv_runtime_free(&rt);
    rv_runtime_free(NULL);
    rv_model_close(NULL);
    rv_session_free(NULL);
    rv_adapter_free(NULL);
    rv_free(NULL);
}

static void model_without_tokenizer(void **state)
{
    (void)state;
    opened o;
    rv_error why = {0};
    int32_t *ids;
    size_t n;
    char *text;
    open_all(&o, "tests/golden/qwen3", 1, 32);
    assert_int_equal(rv_tokenize(o.m, "x", 1, 0, &ids, &n, &why), RV_E_TOKENIZATION);
    assert_int_equal(rv_detokenize(o.m, prompt, 1, 0, &text, NULL, &why), RV_E_TOKENIZATION);
    rv_chat chat = {.size = sizeof chat};
    assert_int_equal(rv_chat_render(o.m, &chat, &text, NULL, &why), RV_E_TOKENIZATION);
    assert_int_equal(rv_chat_tokenize(o.m, &chat, &ids, &n, &why), RV_E_TOKENIZATION);
    const rv_model_info *info = rv_model_get_info(o.m);
    assert_non_null(info);
    assert_false(info->has_tokenizer);
    assert_string_equal(info->architecture, "qwen3");
    assert_string_equal(info->type, "bf16");
    close_all(&o);
}

/* A directory opened for its vocabulary knows its family by config.json, as it does with
 * weights. */
static void vocabulary_of_a_directory(void **state)
{
    (void)state;
    rv_runtime_options ro;
    rv_runtime *rt;
    rv_model *m;
    rv_open_options vocabulary = {.size = sizeof vocabulary, .vocabulary_only = 1};
    int32_t *ids;
    size_t n;
    ro = (rv_runtime_options){.size = sizeof ro};
    ro.n_threads = 1;
    assert_ok(rv_runtime_new(&rt, &ro, err));
    assert_ok(rv_model_open(&m, rt, "tests/api/data/vocabulary", &vocabulary, err));
    const rv_model_info *info = rv_model_get_info(m);
    assert_non_null(info);
    assert_true(info->has_tokenizer);
    assert_false(info->has_template);
    assert_string_equal(info->chat_template, "mistral");
    assert_ok(rv_tokenize(m, "tea", 3, 0, &ids, &n, err));
    assert_true(n > 0);
    rv_free(ids);
    rv_session_options so;
    rv_session *s;
    so = (rv_session_options){.size = sizeof so};
    assert_int_equal(rv_session_new(&s, m, &so, NULL), RV_E_INVALID);
    rv_model_close(&m);
    rv_runtime_free(&rt);
}

/* ---- two runtimes on two threads ---- */

static void *generate_alone(void *arg)
{
    opened o;
    rv_generate_options go = greedy(30);
    open_all(&o, model_path, 2, 64);
    if (rv_session_generate(o.s, prompt, 5, &go, arg, NULL)) abort();
    close_all(&o);
    return NULL;
}

static void two_runtimes(void **state)
{
    (void)state;
    pthread_t a, b;
    rv_answer *ga = NULL, *gb = NULL;
    assert_int_equal(pthread_create(&a, NULL, generate_alone, &ga), 0);
    assert_int_equal(pthread_create(&b, NULL, generate_alone, &gb), 0);
    pthread_join(a, NULL);
    pthread_join(b, NULL);
    assert_int_equal(ga->n_ids, 30);
    assert_memory_equal(ga->ids, gb->ids, 30 * sizeof(int32_t));
    rv_free(ga);
    rv_free(gb);
}

static void names(void **state)
{
    (void)state;
    assert_string_equal(rv_status_name(RV_E_MODEL), "RV_E_MODEL");
    assert_string_equal(rv_finish_name(RV_FINISH_LENGTH), "length");
    assert_string_equal(rv_isa_list()[0], "ref");
    assert_true(strlen(rv_version()) >= 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streaming_equals_result),
        cmocka_unit_test(cancelling_and_stopping),
        cmocka_unit_test(prefix_reuse),
        cmocka_unit_test(adapters),
        cmocka_unit_test(wrong_use_is_a_status),
        cmocka_unit_test(model_without_tokenizer),
        cmocka_unit_test(vocabulary_of_a_directory),
        cmocka_unit_test(two_runtimes),
        cmocka_unit_test(names),
    };
    return cmocka_run_group_tests_name("api", tests, NULL, NULL);
}
