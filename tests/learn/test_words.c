/* Whether texts are the same, and whether one contains an answer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "harness/assert_ok.h"
#include "learn/consolidate/words.h"

static bool contains(const char *text, const char *answer)
{
    bool yes;
    assert_ok(rvi_words_contain(&yes, text, strlen(text), answer, strlen(answer), err));
    return yes;
}

static void finds_answers(void **state)
{
    (void)state;
    assert_true(contains("Kakovin plays the Banjo.", "banjo"));
    assert_true(contains("It is (fish-pie)!", "Fish pie"));
    assert_true(contains("banjo", "banjo."));
    assert_false(contains("Kakovin plays banjos.", "banjo"));
    assert_false(contains("a pie of fish", "fish pie"));
    assert_false(contains("anything", "..."));
    assert_false(contains("", "banjo"));
    assert_true(contains("\xC3\x89t\xC3\xA9 in Caf\xC3\xA9s", "\xC3\xA9t\xC3\xA9"));
}

static bool same(const char *a, const char *b)
{
    bool yes, back;
    assert_ok(rvi_words_same(&yes, a, strlen(a), b, strlen(b), err));
    assert_ok(rvi_words_same(&back, b, strlen(b), a, strlen(a), err));
    assert_int_equal(yes, back);
    return yes;
}

static void knows_the_same_question(void **state)
{
    (void)state;
    assert_true(same("What is Kakovin's dog?", " what is  Kakovin\xE2\x80\x99s DOG"));
    assert_true(same("\"Well-known\" (or not)?", "well known or not"));
    assert_true(same("At 10:30, 3.5 miles.", "at 10:30 3.5 miles"));
    assert_false(same("3.5 miles", "35 miles"));
    assert_false(same("7 + 2 = ?", "7 - 2 = ?"));
    assert_false(same("7-2", "7 2"));
    assert_false(same("Explain C# to me.", "Explain C++ to me."));
    assert_false(same("I feel \xF0\x9F\x98\x80", "I feel \xF0\x9F\x98\xAD"));
    /* Hindi: ki and kii differ by a vowel sign */
    assert_false(same("\xE0\xA4\x95\xE0\xA4\xBF", "\xE0\xA4\x95\xE0\xA5\x80"));
    assert_true(same("???", "???") && same("", ""));
    assert_false(same("???", "??") || same("?", "!") || same("", "a") || same("??", ""));
    assert_true(same("\xFF\x80 a", "\xFF\x80 A"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(finds_answers),
                                       cmocka_unit_test(knows_the_same_question)};
    return cmocka_run_group_tests_name("words", tests, NULL, NULL);
}
