/* Saved sessions by the nearest context, with the real models: twelve conversations about different
 * things are found again by questions in other words. Skipped where the models are not there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/os.h"
#include "harness/assert_ok.h"
#include "real/cached_model.h"
#include "ruvllm_service.h"

static const struct {
    const char *said, *wanted;
} topics[] = {
    {"How do I keep a sourdough starter alive in summer?", "the talk about baking bread"},
    {"My bicycle chain slips when I climb hills.", "repairing the gears of my bike"},
    {"Explain how tides follow the moon.", "why does the sea rise and fall"},
    {"Write a poem about the first snow of the year.", "verses on winter weather"},
    {"Which pension plan suits a freelancer of forty?", "saving money for retirement"},
    {"My cat does not eat since we moved house.", "the pet that lost its appetite"},
    {"How does a hash table handle collisions?", "data structures with buckets and keys"},
    {"Plan three days in Lisbon with two children.", "the family trip to Portugal"},
    {"Why did the Roman republic become an empire?", "Caesar and the end of the senate's power"},
    {"I cannot sleep because of noise from the street.", "insomnia and loud traffic at night"},
    {"Translate the contract's clause on liability.", "the legal document about damages"},
    {"What should I plant in a shady garden in May?", "flowers for a spot without sun"},
};
enum { N = sizeof topics / sizeof *topics };

static void converse(rv_service *svc, int k)
{
    char name[16];
    static const rv_sampling sampling = {.size = sizeof sampling, .greedy = 1};
    rv_generate_options go = {.size = sizeof go, .sampling = &sampling, .max_tokens = 24};
    rv_message said = {.role = "user", .content = topics[k].said};
    rv_chat chat = {.size = sizeof chat, .messages = &said, .n_messages = 1};
    uint64_t id;
    size_t left = 1;
    bool saved = false;
    snprintf(name, sizeof name, "%d", k);
    rv_request r = {.size = sizeof r, .chat = &chat, .generate = &go, .session = name};
    assert_ok(rv_service_submit(svc, &r, &id, err));
    while (left) {
        rv_batch *b;
        assert_ok(rv_service_step(svc, &left, err));
        assert_ok(rv_service_drain(svc, 0, &b, err));
        for (size_t i = 0; b && i < b->n; i++)
            saved = saved || (b->events[i].kind == RV_SERVICE_DONE && b->events[i].saved);
        rv_free(b);
    }
    assert_true(saved);
}

static void by_what_they_are_about(void **state)
{
    (void)state;
    char model[1024], encoder[1024], folder[] = "/tmp/ruvllm-nearest-XXXXXX";
    rv_runtime *rt;
    rv_model *m, *embedder;
    rv_service *svc;
    find_cached("smollm2", model, sizeof model);
    find_cached("minilm", encoder, sizeof encoder);
    if (!model[0] || !encoder[0]) skip();
    assert_non_null(mkdtemp(folder));
    assert_ok(rv_runtime_new(&rt, NULL, err));
    assert_ok(rv_model_open(&m, rt, model, NULL, err));
    assert_ok(rv_model_open(&embedder, rt, encoder, NULL, err));
    rv_service_options so = {.size = sizeof so,
                             .n_tokens = 2048,
                             .no_thread = 1,
                             .sessions = folder,
                             .embedder = embedder};
    assert_ok(rv_service_new(&svc, m, &so, err));
    for (int k = 0; k < N; k++) converse(svc, k);
    int n_right = 0;
    double seconds[2] = {0};
    for (int round = 0; round < 2; round++) {
        double start = rvi_os_seconds();
        n_right = 0;
        for (int k = 0; k < N; k++) {
            rv_found_session *found;
            size_t n;
            assert_ok(rv_service_find(svc, NULL, topics[k].wanted, 3, &found, &n, err));
            assert_int_equal(n, 3);
            n_right += atoi(found[0].name) == k;
            if (atoi(found[0].name) != k)
                print_message("# '%s': session %s, %.2f\n", topics[k].wanted, found[0].name,
                              (double)found[0].similarity);
            rv_free(found);
        }
        seconds[round] = rvi_os_seconds() - start;
    }
    print_message("# %d of %d; %.1f ms each at first, then %.1f\n", n_right, N,
                  seconds[0] / N * 1e3, seconds[1] / N * 1e3);
    assert_true(n_right >= N - 1);
    rv_service_free(&svc);
    rv_model_close(&embedder);
    rv_model_close(&m);
    rv_runtime_free(&rt);
    rvi_os_remove_tree(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(by_what_they_are_about)};
    return cmocka_run_group_tests_name("nearest sessions, real", tests, NULL, NULL);
}
