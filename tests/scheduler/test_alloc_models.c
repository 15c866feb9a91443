/* Allocations that fail in a list of models: it is not made, a model is not listed or not loaded,
 * the next try succeeds, and nothing is lost. */
#include "scheduler/served.h"

#include "base/thread.h"
#include "harness/fail_alloc.h"

static const char *const path = "tests/gguf/llama-spm.gguf";
static rv_runtime *rt;

static int open_it(void **state)
{
    (void)state;
    rv_runtime_options ro = {.size = sizeof ro, .n_threads = 1};
    assert_ok(rv_runtime_new(&rt, &ro, err));
    return 0;
}

static int close_it(void **state)
{
    (void)state;
    rv_memory m = {.size = sizeof m};
    rv_budget_use u = {.size = sizeof u};
    assert_ok(rv_runtime_memory(rt, &m, err));
    assert_ok(rv_runtime_get_budget(rt, &u, err));
    assert_int_equal(m.weights + m.kv + m.adapters + u.kv.used, 0); /* everything is back */
    rv_runtime_free(&rt);
    return 0;
}

static rv_status make(rv_models **ms, rv_error *err)
{
    rv_service_options so = {.size = sizeof so, .n_tokens = 256, .n_context = 64, .max_running = 2};
    rv_open_options oo = {.size = sizeof oo, .chat_template = "{{ messages[0].content }}"};
    rv_status st = rv_models_new(ms, rt, NULL, err);
    if (!st) st = rv_models_add(*ms, "ann", path, &oo, &so, err);
    if (!st) st = rv_models_add(*ms, "bob", path, NULL, NULL, err);
    return st;
}

static void making_one(void **state)
{
    (void)state;
    for (long n = 0;; n++) {
        rv_models *ms = NULL;
        rv_listed_model *list = NULL;
        size_t count = 0;
        fail_alloc_after(n);
        rv_status st = make(&ms, NULL);
        rv_status listed = st ? st : rv_models_list(ms, &list, &count, NULL);
        bool done = !fail_alloc_off();
        if (done) assert_int_equal(count, 2);
        if (!done) assert_true(!listed || listed == RV_E_NOMEM);
        rv_free(list);
        rv_models_free(&ms);
        if (done) break;
    }
}

static void unload(rv_models *ms)
{
    rv_listed_model *list;
    size_t n;
    assert_ok(rv_models_unload(ms, "ann", err));
    for (bool out = false; !out; rvi_thread_sleep(1e-4)) {
        assert_ok(rv_models_list(ms, &list, &n, err));
        out = list[0].state == RV_MODEL_OUT;
        rv_free(list);
    }
}

/* An answer of 3 tokens; which of them, or 0. */
static int answer(rv_service *svc)
{
    static const int32_t ids[] = {5, 9, 17};
    rv_generate_options go = greedy(3);
    rv_request r = {.size = sizeof r, .ids = ids, .n_ids = 3, .generate = &go};
    uint64_t id;
    int sum = 0;
    assert_ok(rv_service_submit(svc, &r, &id, err));
    for (bool ended = false; !ended;) {
        rv_batch *b;
        assert_ok(rv_service_drain(svc, 600, &b, err));
        for (size_t i = 0; b && i < b->n; i++) {
            if (b->events[i].kind == RV_SERVICE_TOKEN) sum = sum * 300 + b->events[i].id;
            ended = ended || b->events[i].kind == RV_SERVICE_END;
        }
        rv_free(b);
    }
    return sum;
}

/* Every allocation of the first dozens of loading fails once, and then some of the rest: those of
 * opening a model are swept elsewhere. */
static void loading(void **state)
{
    (void)state;
    rv_models *ms;
    rv_service *svc;
    int n_failed = 0, n_tries = 0, want = 0;
    assert_ok(make(&ms, err));
    assert_ok(rv_models_hold(ms, "ann", 600, &svc, err));
    want = answer(svc);
    rv_models_give_back(ms, &svc);
    unload(ms);
    for (long n = 0;; n += 1 + n / 24) {
        rv_error why = {0};
        fail_alloc_once(n);
        rv_status st = rv_models_hold(ms, "ann", 600, &svc, &why);
        bool done = !fail_alloc_off();
        if (done) assert_int_equal(st, RV_OK);
        if (st) {
            assert_int_equal(st, RV_E_NOMEM);
            assert_true(strlen(why.text) > 5);
            assert_null(svc);
            n_failed++;
        }
        rv_models_give_back(ms, &svc);
        assert_ok(rv_models_hold(ms, "ann", 600, &svc, err));
        assert_int_equal(answer(svc), want);
        rv_models_give_back(ms, &svc);
        unload(ms);
        n_tries++;
        if (done) break;
    }
    print_message("# %d of %d failed\n", n_failed, n_tries);
    assert_true(n_failed > 20);
    rv_models_free(&ms);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(making_one), cmocka_unit_test(loading)};
    return cmocka_run_group_tests_name("allocations of a list of models", tests, open_it, close_it);
}
