/* Who holds what: after a real model was loaded and has served requests, what the runtime counts
 * adds up to what the system says the process holds, within 5 %. Skipped where the model is not in
 * the cache folder, and where the system does not say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "harness/assert_ok.h"
#include "real/cached_model.h"
#include "ruvllm_service.h"

static void serve(rv_service *svc, int n_prompt)
{
    static int32_t ids[600];
    static const rv_sampling sampling = {.size = sizeof sampling, .greedy = 1};
    rv_generate_options go = {
        .size = sizeof go, .sampling = &sampling, .max_tokens = 8, .ignore_eos = 1};
    uint64_t id;
    size_t left = 1;
    for (int i = 0; i < n_prompt; i++) ids[i] = 100 + (i * 37 + n_prompt) % 4000;
    rv_request r = {.size = sizeof r, .ids = ids, .n_ids = (size_t)n_prompt, .generate = &go};
    assert_ok(rv_service_submit(svc, &r, &id, err));
    while (left) {
        rv_batch *b;
        assert_ok(rv_service_step(svc, &left, err));
        assert_ok(rv_service_drain(svc, 0, &b, err));
        rv_free(b);
    }
}

/* An engine that comes and goes leaves nothing behind that nobody counts. */
static void visit(const rv_model *m)
{
    rv_engine *e;
    rv_session *s;
    static const int32_t ids[600] = {5};
    rv_engine_options eo = {.size = sizeof eo,
                            .n_tokens = 1200}; /* below what malloc always maps */
    assert_ok(rv_engine_new(&e, m, &eo, err));
    rv_session_options so = {.size = sizeof so, .engine = e, .n_context = 1024};
    assert_ok(rv_session_new(&s, m, &so, err));
    assert_ok(rv_session_sync(s, ids, 600, NULL, NULL, err));
    rv_session_free(&s);
    rv_engine_free(&e);
}

static void look(const rv_runtime *rt, const char *when)
{
    rv_memory m = {.size = sizeof m};
    assert_ok(rv_runtime_memory(rt, &m, err));
    if (!m.resident) skip();
    uint64_t sum = m.weights + m.kv + m.scratch + m.adapters + m.training + m.heap +
                   m.mapped_resident + m.program - m.reserved;
    print_message(
        "# %s: weights %.1f, KV %.1f, scratch %.1f, adapters %.1f, heap %.1f, mapped %.1f "
        "of %.1f, program %.1f, less %.1f reserved: %.1f of %.1f MB\n",
        when, (double)m.weights / 1e6, (double)m.kv / 1e6, (double)m.scratch / 1e6,
        (double)m.adapters / 1e6, (double)m.heap / 1e6, (double)m.mapped_resident / 1e6,
        (double)m.mapped / 1e6, (double)m.program / 1e6, (double)m.reserved / 1e6,
        (double)sum / 1e6, (double)m.resident / 1e6);
    double ratio = (double)sum / (double)m.resident;
    assert_true(ratio > 0.95 && ratio < 1.05);
}

static void sums_equal_what_is_resident(void **state)
{
    (void)state;
    char path[1024];
    find_cached("smollm2", path, sizeof path);
    if (!path[0]) skip();
    static const rv_kv_type types[] = {RV_KV_F16, RV_KV_TIERED};
    for (int k = 0; k < 2; k++) {
        rv_runtime *rt;
        rv_model *m;
        rv_service *svc;
        rv_runtime_options ro = {.size = sizeof ro, .n_threads = 2};
        rv_service_options so = {.size = sizeof so,
                                 .n_tokens = 4096,
                                 .max_rows = 256,
                                 .kv_type = types[k],
                                 .token_ms = 1e6,
                                 .no_thread = 1};
        assert_ok(rv_runtime_new(&rt, &ro, err));
        assert_ok(rv_model_open(&m, rt, path, NULL, err));
        assert_ok(rv_service_new(&svc, m, &so, err));
        serve(svc, 600);
        look(rt, k ? "tiered" : "f16");
        for (int i = 0; i < 3; i++) serve(svc, 300 + i);
        look(rt, "after more requests");
        for (int i = 0; i < 3; i++) visit(m);
        look(rt, "after engines that came and went");
        rv_service_free(&svc);
        rv_model_close(&m);
        rv_runtime_free(&rt);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sums_equal_what_is_resident)};
    return cmocka_run_group_tests_name("memory", tests, NULL, NULL);
}
