/* The law (law.h) on the golden models and on every weight type. */
#include "law.h"

enum { N_IDS = 48, N_LONG = 100, N_TILED = 70 }; /* N_TILED: more rows than a pair of tiles takes */

static void golden_models(void **state)
{
    (void)state;
    for (size_t i = 0; i < RVI_COUNT(golden_names); i++) {
        char path[128], expected[160];
        rvi_safetensors *e;
        int n;
        snprintf(path, sizeof path, "tests/golden/%s", golden_names[i]);
        snprintf(expected, sizeof expected, "%s/expected.safetensors", path);
        assert_ok(rvi_safetensors_open(&e, expected, err));
        const int32_t *ids = golden_ids(e, "tokens", &n);
        assert_int_equal(n, N_IDS);
        check_subject(&(subject){path, ids, n, RV_KV_F32, true, false});
        check_subject(&(subject){path, ids, n, RV_KV_F16, false, false});
        check_subject(&(subject){path, ids, n, RV_KV_Q8, false, false});
        ids = golden_ids(e, "long_tokens", &n); /* more than one chunk of 64, past every window */
        assert_true(n >= N_LONG);
        check_subject(&(subject){path, ids, N_LONG, RV_KV_F32, true, true});
        rvi_safetensors_close(e);
    }
}

/* Every weight type, with int8 activations and with f32 ones. */
static void weight_types(void **state)
{
    (void)state;
    static const char *const types[] = {"f16",  "bf16", "q4_0", "q4_1", "q5_0", "q5_1",   "q8_0",
                                        "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs"};
    int32_t ids[N_TILED];
    for (int i = 0; i < N_TILED; i++) ids[i] = (i * 37 + 11) % 300;
    for (size_t i = 0; i < RVI_COUNT(types); i++) {
        char path[128];
        snprintf(path, sizeof path, "tests/gguf/q-%s.gguf", types[i]);
        check_subject(&(subject){path, ids, N_TILED, RV_KV_F16, false, false});
        check_subject(&(subject){path, ids, 20, RV_KV_F32, true, false});
    }
}

/* A device is opened once for each model; what it has in common is made when the first one opens it
 * and would go with the last. */
static rvi_backend *kept;

static int keep_device(void **state)
{
    (void)state;
    if (test_driver())
        assert_ok(test_backend_new(&kept, &(rvi_cpu_options){.n_threads = 1, .exact = true}, err));
    return 0;
}

static int release_device(void **state)
{
    (void)state;
    if (kept) kept->ops->free(kept);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(golden_models),
                                       cmocka_unit_test(weight_types)};
    return cmocka_run_group_tests_name("law", tests, keep_device, release_device);
}
