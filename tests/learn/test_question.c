/* When two questions are the same one, and that keys never tell the same apart. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "learn/state/lessons.h"

/* Lines of texts that are the same question. */
static const char *const same[][4] = {
    {"What is Kakovin's dog?", "what is kakovin's dog", "  What  is Kakovin's dog ?!", NULL},
    {"7 + 2 = ?", "7+2=", NULL},
    {"7 - 2 = ?", NULL},
    {"\xe2\x84\xaa"
     "elvin",
     "kelvin", "KELVIN", NULL},                            /* the sign of kelvin */
    {"caf\xc3\xa9?", "cafe\xcc\x81", "CAF\xc3\x89", NULL}, /* composed, and not */
    {"cafe", NULL},
    {"don\xe2\x80\x99t", "don't", NULL},
    {"\xe9\xa6\x96\xe9\x83\xbd\xe3\x81\xaf\xef\xbc\x9f", "\xe9\xa6\x96\xe9\x83\xbd\xe3\x81\xaf",
     NULL},
    {"Room 12", "room 12.", NULL},
    {"Room 21", NULL},
    {"???", NULL},
};

static void keys_agree(void **state)
{
    (void)state;
    for (size_t i = 0; i < RVI_COUNT(same); i++)
        for (size_t k = 0; k < RVI_COUNT(same); k++)
            for (size_t a = 0; same[i][a]; a++)
                for (size_t b = 0; same[k][b]; b++) {
                    bool may_be = rvi_question_may_be(rvi_question_key(same[i][a]),
                                                      rvi_question_key(same[k][b]));
                    assert_int_equal(rvi_question_same(same[i][a], same[k][b]), i == k);
                    assert_int_equal(may_be, i == k); /* in any script */
                }
    assert_true(rvi_question_may_be(0, rvi_question_key("dog"))); /* it says nothing */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(keys_agree)};
    return cmocka_run_group_tests_name("questions", tests, NULL, NULL);
}
