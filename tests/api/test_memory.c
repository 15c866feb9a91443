/* Memory in use, by class. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "api/opened.h"

static rv_memory now(const rv_runtime *rt)
{
    rv_memory m = {.size = sizeof m};
    assert_ok(rv_runtime_memory(rt, &m, err));
    assert_int_equal(m.size, sizeof m);
    return m;
}

static void every_object_counts(void **state)
{
    (void)state;
    opened o = {0};
    rv_adapter *a;
    rv_runtime_options ro = {.size = sizeof ro, .n_threads = 1};
    rv_session_options so = {.size = sizeof so, .n_context = 64};
    assert_ok(rv_runtime_new(&o.rt, &ro, err));
    rv_memory m = now(o.rt), before;
    assert_true(!m.weights && !m.mapped && !m.kv && !m.scratch && !m.adapters);
    assert_ok(rv_model_open(&o.m, o.rt, "tests/golden/llama", NULL, err));
    before = m = now(o.rt);
    assert_true(m.weights + m.mapped > 0 && !m.kv && !m.scratch && !m.adapters);
    assert_ok(rv_session_new(&o.s, o.m, &so, err));
    m = now(o.rt);
    assert_true(m.kv > 0 && m.scratch > 0);
    uint64_t kv = m.kv, scratch = m.scratch;
    rv_session *second;
    so.n_context = 128;
    assert_ok(rv_session_new(&second, o.m, &so, err));
    m = now(o.rt);
    assert_true(m.kv > 2 * kv);
    assert_ok(rv_adapter_load(&a, o.m, "tests/golden/llama/lora", err));
    assert_true(now(o.rt).adapters > 0);
    rv_adapter_free(&a);
    rv_session_free(&second);
    m = now(o.rt);
    assert_int_equal(m.kv, kv);
    assert_int_equal(m.adapters, 0);
    rv_session_free(&o.s);
    m = now(o.rt);
    assert_int_equal(m.weights, before.weights);
    assert_int_equal(m.mapped, before.mapped);
    assert_int_equal(m.kv, 0);
    assert_true(m.scratch < scratch); /* the runtime keeps some for the next engine */
    rv_model_close(&o.m);
    m = now(o.rt);
    assert_true(!m.weights && !m.mapped);
    rv_runtime_free(&o.rt);
}

static void structs_of_other_versions(void **state)
{
    (void)state;
    opened o;
    struct {
        rv_memory m;
        uint64_t more[2];
    } newer;
    open_all(&o, "tests/gguf/llama.gguf", 1, 64);
    rv_memory older, now_ = now(o.rt);
    assert_true(now_.weights + now_.mapped > 0);
    assert_true(now_.kv > 0);
    assert_true(now_.scratch > 0);
    memset(&older, 0x5A, sizeof older);
    older.size = offsetof(rv_memory, kv);
    assert_ok(rv_runtime_memory(o.rt, &older, err));
    assert_int_equal(older.weights, now_.weights);
    assert_int_equal(older.mapped, now_.mapped);
    assert_int_equal(older.kv, UINT64_C(0x5A5A5A5A5A5A5A5A)); /* not ours to write */
    memset(&newer, 0x5A, sizeof newer);
    newer.m.size = sizeof newer;
    assert_ok(rv_runtime_memory(o.rt, &newer.m, err));
    assert_int_equal(newer.m.adapters, now_.adapters);
    static const size_t bad[] = {0, 1, SIZE_MAX};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        older.size = bad[i];
        assert_refused(RV_E_CONFIG, rv_runtime_memory(o.rt, &older, err));
    }
    assert_refused(RV_E_INVALID, rv_runtime_memory(NULL, &older, err));
    assert_refused(RV_E_INVALID, rv_runtime_memory(o.rt, NULL, err));
    close_all(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_object_counts),
                                       cmocka_unit_test(structs_of_other_versions)};
    return cmocka_run_group_tests_name("memory", tests, NULL, NULL);
}
