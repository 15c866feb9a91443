/* The machine as the library describes it: valid JSON with the promised members. Measuring is the
 * business of tests/backend. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"
#include "harness/assert_ok.h"
#include "ruvllm_experimental.h"

static rv_runtime *runtime(int n_threads)
{
    rv_runtime_options o;
    rv_runtime *rt = NULL;
    o = (rv_runtime_options){.size = sizeof o};
    o.n_threads = n_threads;
    assert_ok(rv_runtime_new(&rt, &o, err));
    return rt;
}

static void test_members(void **state)
{
    (void)state;
    rv_runtime *rt = runtime(3);
    rvi_arena arena = {0};
    const rvi_json *d = NULL;
    char *text = NULL;
    assert_ok(rv_runtime_describe(rt, 0, &text, err));
    assert_ok(rvi_json_parse(&d, text, strlen(text), &arena, "description", err));
    assert_true(rvi_json_int(rvi_json_get(rvi_json_get(d, "cpu"), "logical"), 0) >= 1);
    assert_int_equal(rvi_json_int(rvi_json_get(d, "threads"), 0), 3);
    assert_true(rvi_json_number(rvi_json_get(rvi_json_get(d, "memory"), "total"), 0) > 0);
    assert_true(rvi_json_is(rvi_json_get(d, "caches"), RVI_JSON_ARRAY));
    const rvi_json *isa = rvi_json_get(d, "isa");
    assert_string_equal(rvi_json_string(rvi_json_get(isa, "in_use"), ""), rv_runtime_isa(rt));
    size_t n = 0;
    while (rv_isa_list()[n]) n++;
    assert_int_equal(rvi_json_count(rvi_json_get(isa, "available")), n);
    assert_null(rvi_json_get(d, "measured"));
    rv_free(text);
    rvi_arena_deinit(&arena);
    rv_runtime_free(&rt);
}

static void test_profile(void **state)
{
    (void)state;
    rv_runtime *rt = runtime(1);
    rv_model *m = NULL;
    rvi_arena arena = {0};
    const rvi_json *d = NULL;
    char *text = NULL;
    assert_ok(rv_runtime_profile(rt, &text, err)); /* none was on */
    assert_string_equal(text, "[]");
    rv_free(text);
    assert_ok(rv_model_open(&m, rt, "tests/gguf/q-q4_k.gguf", 0, err));
    assert_ok(rv_runtime_profile(rt, NULL, err));
    rv_session_options o;
    rv_session *s = NULL;
    float *logits = NULL;
    const int32_t ids[] = {1, 2, 3};
    o = (rv_session_options){.size = sizeof o};
    assert_ok(rv_session_new(&s, m, &o, err));
    assert_ok(rv_session_sync(s, ids, 3, NULL, &logits, err));
    assert_ok(rv_runtime_profile(rt, &text, err));
    assert_ok(rvi_json_parse(&d, text, strlen(text), &arena, "profile", err));
    bool product = false, attention = false;
    for (size_t i = 0; i < rvi_json_count(d); i++) {
        const rvi_json *op = rvi_json_at(d, i);
        const char *name = rvi_json_string(rvi_json_get(op, "op"), "");
        assert_true(rvi_json_number(rvi_json_get(op, "calls"), 0) >= 1);
        assert_true(rvi_json_number(rvi_json_get(op, "seconds"), 0) > 0);
        if (!strncmp(name, "product q4_k", 12)) {
            product = true;
            assert_true(rvi_json_number(rvi_json_get(op, "bytes"), 0) > 0);
            assert_true(rvi_json_number(rvi_json_get(op, "operations"), 0) > 0);
        }
        attention = attention || !strcmp(name, "attention, rows");
    }
    assert_true(product && attention);
    rv_free(text);
    rvi_arena_deinit(&arena);
    rv_session_free(&s);
    rv_model_close(&m);
    assert_int_equal(rv_runtime_profile(NULL, &text, NULL), RV_E_INVALID);
    assert_null(text);
    rv_runtime_free(&rt);
}

static void test_wrong_use(void **state)
{
    (void)state;
    rv_runtime *rt = runtime(1);
    rv_error err = {0};
    char *text = (char *)&err;
    assert_int_equal(rv_runtime_describe(NULL, 0, &text, &err), RV_E_INVALID);
    assert_null(text);
    assert_int_equal(rv_runtime_describe(rt, 0, NULL, &err), RV_E_INVALID);
    assert_int_equal(rv_runtime_describe(rt, 0, NULL, NULL), RV_E_INVALID);
    rv_runtime_free(&rt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_members),
                                       cmocka_unit_test(test_profile),
                                       cmocka_unit_test(test_wrong_use)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
