/* Every allocation of reading corrections, wording facts and recognising them may fail. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "harness/assert_ok.h"
#include "harness/fail_alloc.h"
#include "learn/recognise/recogniser.h"
#include "learn/consolidate/wordings.h"
#include "toy_tokenizer.h"

enum { N_FACTS = 5 };

static const char *const said[N_FACTS][2] = {
    {"What is Kakovin's job?", "No, it's not a judge, it's a plumber."},
    {"Where did Zo\xC3\xAB Tamsel hide the key?", "She hid it under the mat."},
    {"", "Kako is Kakovin's nickname."},
    {"What is my favourite colour?", "Blue"},
    {"How do I make tea?", "Boil water. Wait."}};

typedef struct work {
    const rvi_tokenizer *t;
    rvi_fact *facts[N_FACTS];
    rvi_wordings words;
    rvi_recogniser *recogniser;
} work;

static rv_status do_all(work *k)
{
    static const char text[] = "What is the job of Kakovni?";
    const rvi_fact *facts[N_FACTS];
    const rvi_fence fence = {3, 1, 1, true};
    rvi_recognised found;
    size_t n;
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
    if (!st) st = rvi_recogniser_new(&k->recogniser, NULL, NULL, NULL, NULL, NULL);
    for (size_t i = 0; i < N_FACTS && !st; i++)
        st = rvi_recogniser_add(k->recogniser, i + 1, said[i][0], said[i][1], NULL);
    if (!st) st = rvi_recogniser_ask(k->recogniser, text, &found, 1, &n, NULL);
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
        rvi_recogniser_free(k.recogniser);
        if (!refused) break;
    }
    rvi_tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(any_allocation_may_fail)};
    return cmocka_run_group_tests_name("alloc_learn", tests, NULL, NULL);
}
