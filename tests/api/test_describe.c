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
    assert_int_equal(rv_runtime_check(rt, NULL), RV_OK);
    assert_int_equal(rv_runtime_check(NULL, NULL), RV_E_INVALID);
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

/* One choice of an explanation; NULL: it was not one. */
static void check_choice(const rvi_json *d, const char *name, const char *is, const char *why)
{
    const rvi_json *c = rvi_json_get(d, name);
    if (is && !c) fail_msg("nothing is said of '%s'", name);
    if (!is && c) fail_msg("something is said of '%s'", name);
    if (!is) return;
    const char *made = rvi_json_string(rvi_json_get(c, "is"), ""),
               *because = rvi_json_string(rvi_json_get(c, "why"), "");
    if (!strstr(made, is) || !strstr(because, why))
        fail_msg("%s is '%s' because of '%s', not '%s', '%s'", name, made, because, is, why);
}

static void test_explained(void **state)
{
    (void)state;
    const struct {
        int exact;
        const char *isa, *device;
        rv_kv_type kv;
        int n_context;
        rv_draft draft;
        const char *expected[8][3];
    } cases[] = {
        {.expected = {{"device", "cpu", "the default"},
                      {"layers", NULL, NULL},
                      {"instructions", "", "the highest of this CPU"},
                      {"weights", "q4_k, packed", "panels"},
                      {"activations", "int8 in blocks of 256", ""},
                      {"kv_cache", "f16, ", "the default"},
                      {"guessing", "by repetition", "the default"},
                      {"adapters", "none", "none was asked for"}}},
        {.exact = 1,
         .isa = "ref",
         .device = "cpu",
         .n_context = 64,
         .draft = RV_DRAFT_OFF,
         .expected = {{"device", "cpu", "asked for"},
                      {"instructions", "ref", "asked for; this CPU has ref"},
                      {"weights", "q4_k, as in the file", "exact"},
                      {"activations", "f32", "exact"},
                      {"kv_cache", "f32, ", "exact"},
                      {"context", "64 tokens, 2 pages of 32", "asked for; the model"},
                      {"guessing", "off", "asked for"},
                      {"threads", "2", "asked for"}}},
        {.kv = RV_KV_TIERED, .expected = {{"kv_cache", "tiered, ", "asked for"}}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rv_runtime_options ro = {.size = sizeof ro,
                                 .n_threads = 2,
                                 .exact = cases[i].exact,
                                 .isa = cases[i].isa,
                                 .device = cases[i].device};
        rv_session_options so = {
            .size = sizeof so, .kv_type = cases[i].kv, .n_context = cases[i].n_context};
        rv_generate_options go = {.size = sizeof go, .draft = cases[i].draft};
        rv_runtime *rt;
        rv_model *m, *other;
        rv_session *s;
        rv_error refused = {0};
        rvi_arena arena = {0};
        const rvi_json *d;
        char *text;
        assert_ok(rv_runtime_new(&rt, &ro, err));
        assert_ok(rv_model_open(&m, rt, "tests/gguf/q-q4_k.gguf", NULL, err));
        assert_ok(rv_model_open(&other, rt, "tests/gguf/bert.gguf", NULL, err));
        assert_ok(rv_session_new(&s, m, &so, err));
        assert_ok(rv_model_explain(m, s, i ? &go : NULL, &text, err));
        assert_ok(rvi_json_parse(&d, text, strlen(text), &arena, "explanation", err));
        check_choice(d, "model", "llama, decoder", "tokens");
        for (size_t k = 0; k < 8 && cases[i].expected[k][0]; k++)
            check_choice(d, cases[i].expected[k][0], cases[i].expected[k][1],
                         cases[i].expected[k][2]);
        rv_free(text);
        assert_ok(rv_model_explain(other, NULL, NULL, &text, err));
        assert_ok(rvi_json_parse(&d, text, strlen(text), &arena, "explanation", err));
        check_choice(d, "model", "bert, encoder", "embeddings");
        check_choice(d, "kv_cache", NULL, NULL);
        check_choice(d, "guessing", NULL, NULL);
        rv_free(text);
        text = (char *)&refused;
        assert_int_equal(rv_model_explain(other, s, NULL, &text, &refused), RV_E_INVALID);
        assert_null(text);
        assert_int_equal(rv_model_explain(NULL, s, NULL, &text, &refused), RV_E_INVALID);
        assert_int_equal(rv_model_explain(m, s, NULL, NULL, &refused), RV_E_INVALID);
        rvi_arena_deinit(&arena);
        rv_session_free(&s);
        rv_model_close(&other);
        rv_model_close(&m);
        rv_runtime_free(&rt);
    }
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
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_members), cmocka_unit_test(test_profile),
        cmocka_unit_test(test_explained), cmocka_unit_test(test_wrong_use)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
