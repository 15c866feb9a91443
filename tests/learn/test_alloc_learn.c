/* Every allocation of recognising lessons may fail. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "harness/assert_ok.h"
#include "harness/fail_alloc.h"
#include "learn/recognise/recogniser.h"

enum { N_LESSONS = 5 };

static const char *const said[N_LESSONS][2] = {
    {"What is Kakovin's job?", "No, it's not a judge, it's a plumber."},
    {"Where did Zo\xC3\xAB Tamsel hide the key?", "She hid it under the mat."},
    {"", "Kako is Kakovin's nickname."},
    {"What is my favourite colour?", "Blue"},
    {"How do I make tea?", "Boil water. Wait."}};

typedef struct work {
    rvi_recogniser *recogniser;
} work;

static rv_status do_all(work *k)
{
    static const char text[] = "What is the job of Kakovni?";
    rvi_recognised found;
    size_t n;
    rv_status st = rvi_recogniser_new(&k->recogniser, NULL, NULL, NULL);
    for (size_t i = 0; i < N_LESSONS && !st; i++)
        st = rvi_recogniser_add(k->recogniser, i + 1, said[i][0], said[i][1], NULL);
    if (!st) st = rvi_recogniser_ask(k->recogniser, text, &found, 1, &n, NULL);
    return st;
}

static void any_allocation_may_fail(void **state)
{
    (void)state;
    /* one that fails among many that succeed; the step keeps the sweep short */
    for (long n = 0;; n += 1 + n / 64) {
        work k = {NULL};
        fail_alloc_once(n);
        rv_status st = do_all(&k);
        bool refused = fail_alloc_off();
        assert_int_equal(st, refused ? RV_E_NOMEM : RV_OK);
        rvi_recogniser_free(k.recogniser);
        if (!refused) break;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(any_allocation_may_fail)};
    return cmocka_run_group_tests_name("alloc_learn", tests, NULL, NULL);
}
