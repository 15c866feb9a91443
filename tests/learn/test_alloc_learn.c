/* Every allocation of reading corrections, wording facts and making gates may fail. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "harness/assert_ok.h"
#include "harness/fail_alloc.h"
#include "learn/gate.h"
#include "learn/wordings.h"
#include "toy_tokenizer.h"

enum { DIM = 4, N_FACTS = 5 };

static const char *const said[N_FACTS][2] = {
    {"What is Kakovin's job?", "No, it's not a judge, it's a plumber."},
    {"Where did Zo\xC3\xAB Tamsel hide the key?", "She hid it under the mat."},
    {"", "Kako is Kakovin's nickname."},
    {"What is my favourite colour?", "Blue"},
    {"How do I make tea?", "Boil water. Wait."}};

static rv_status lengths(void *ctx, const rvi_gate_text *texts, size_t n, float *out, rv_error *err)
{
    (void)ctx;
    (void)err;
    for (size_t i = 0; i < n * DIM; i++) out[i] = (float)(texts[i / DIM].len * (i % DIM + 1) % 7);
    return RV_OK;
}

typedef struct work {
    const rvi_tokenizer *t;
    rvi_fact *facts[N_FACTS];
    rvi_wordings words;
    rvi_calibration *calibration;
    rvi_gate *gate;
} work;

static rv_status do_all(work *k)
{
    static const char text[] = "What is the job of Kakovni?";
    const rvi_gate_reader reader = {.read = lengths, .dim = DIM};
    const rvi_fact *facts[N_FACTS];
    const rvi_fence fence = {3, 1, 1, true};
    rvi_turn turn = {text, sizeof text - 1, true};
    rvi_gate_hit hit;
    rvi_rng rng = {1};
    rv_status st = RV_OK;
    for (size_t i = 0; i < N_FACTS && !st; i++) {
        const char *q = said[i][0], *a = said[i][1];
        st = rvi_fact_read(&k->facts[i], k->t, q, strlen(q), a, strlen(a), NULL);
        facts[i] = k->facts[i];
    }
    for (size_t i = 0; i < N_FACTS && !st; i++)
        st = rvi_wordings_teach_from(&k->words, facts[i], facts, N_FACTS, NULL, 0, 40, &rng, NULL);
    if (!st) st = rvi_wordings_negatives(&k->words, facts, N_FACTS, &fence, &rng, NULL);
    if (!st) st = rvi_calibration_new(&k->calibration, &reader, NULL, 0, NULL);
    if (!st) st = rvi_gate_new(&k->gate, k->t, facts, N_FACTS, k->calibration, &reader, NULL, NULL);
    if (!st) st = rvi_gate_words(k->gate, &turn, 1, &hit, NULL);
    return st;
}

static void any_allocation_may_fail(void **state)
{
    rvi_tokenizer *t = toy_tokenizer();
    (void)state;
    /* one that fails among many that succeed; the step keeps the sweep short */
    for (long n = 0;; n += 1 + n / 64) {
        work k = {.t = t};
        fail_alloc_once(n);
        rv_status st = do_all(&k);
        bool refused = fail_alloc_off();
        assert_int_equal(st, refused ? RV_E_NOMEM : RV_OK);
        for (size_t i = 0; i < N_FACTS; i++) rvi_fact_free(k.facts[i]);
        rvi_wordings_deinit(&k.words);
        rvi_gate_free(k.gate);
        rvi_calibration_free(k.calibration);
        if (!refused) break;
    }
    rvi_tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(any_allocation_may_fail)};
    return cmocka_run_group_tests_name("alloc_learn", tests, NULL, NULL);
}
