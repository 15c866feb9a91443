/* Texts: UTF-8, blank ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "learn/journal/text.h"

static rvi_text text(const char *s)
{
    return (rvi_text){s, strlen(s)};
}

static void test_texts(void **state)
{
    (void)state;
    assert_true(rvi_text_blank(text(" \xe2\x80\x83\n")));
    assert_false(rvi_text_blank(text(" x ")));
    assert_true(rvi_text_blank((rvi_text){0}));
    assert_int_equal(rvi_text_invalid(text("abc")), 3);
    assert_int_equal(rvi_text_invalid(text("ab\xff")), 2);
    assert_int_equal(rvi_text_invalid(text("ab\xe2\x82")), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_texts)};
    return cmocka_run_group_tests_name("texts", tests, NULL, NULL);
}
