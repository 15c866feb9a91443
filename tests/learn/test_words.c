/* Words, their rarity, and whether a text contains an answer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "harness/assert_ok.h"
#include "learn/consolidate/words.h"
#include "toy_tokenizer.h"

static void check_words(const char *text, const char *want)
{
    rvi_words w = {0};
    rvi_buf got = {0};
    assert_ok(rvi_words_split(&w, text, strlen(text), err));
    for (size_t i = 0; i < w.n; i++)
        rvi_buf_printf(&got, "%s%s%s", i ? "|" : "", w.data[i].key,
                       w.data[i].possessive ? "+" : "");
    assert_string_equal(got.data ? got.data : "", want);
    rvi_buf_deinit(&got);
    rvi_words_deinit(&w);
}

static void splits(void **state)
{
    (void)state;
    check_words("What is Kakovin's pet?", "what|is|kakovin+|pet");
    check_words("Don't  ASK the Smiths' dog.", "don't|ask|the|smiths+|dog");
    check_words("room 101, A-17", "room|101|a|17");
    check_words("Zo\xC3\x8B\xE2\x80\x99s CAF\xC3\x89", "zo\xC3\xAB+|caf\xC3\xA9");
    check_words("e\xCC\x81t\xC3\x89", "\xC3\xA9t\xC3\xA9"); /* composed */
    check_words("''' --- \xFF\xFE", "");
    check_words("", "");
    check_words("'quoted' o'clock rock'n'roll", "quoted|o'clock|rock'n|roll");
    check_words("O'Drellan's cat, l\xE2\x80\x99Hote\xE2\x80\x99s", "o'drellan+|cat|l'hote+");
    check_words("the O'Drellans' cat, 's'", "the|o'drellans+|cat|s");
    check_words("The Tinker's Almanac, Anna's PIN", "the|tinker|almanac|anna+|pin");
    check_words("What's Kakovin?", "what+|kakovin");
}

static void marks(void **state)
{
    (void)state;
    rvi_words w = {0};
    assert_ok(rvi_words_split(&w, "New Quillby-East, Anna", 22, err));
    assert_int_equal(w.n, 4);
    assert_false(w.data[0].joined);
    assert_true(w.data[1].joined && w.data[2].joined);
    assert_false(w.data[3].joined);
    assert_true(w.data[0].capital && w.data[3].capital);
    assert_int_equal(w.data[1].at, 4);
    assert_int_equal(w.data[1].len, 7);
    rvi_words_deinit(&w);
}

static void marks_names(void **state)
{
    (void)state;
    static const char text[] = "d'Arcy's Fisher's Loft, crumbly-o & Sons - so";
    rvi_words w = {0};
    assert_ok(rvi_words_split(&w, text, strlen(text), err));
    assert_int_equal(w.n, 7);
    assert_true(w.data[0].capital);
    assert_true(w.data[1].may_own && !w.data[1].possessive && !w.data[2].may_own);
    assert_true(w.data[4].hyphen && w.data[4].joined);
    assert_true(w.data[5].joined && !w.data[5].hyphen);
    assert_false(w.data[6].joined || w.data[6].hyphen);
    rvi_words_deinit(&w);
}

/* A word without an end, and many of them */
static void survives_size(void **state)
{
    (void)state;
    enum { N = 300000 };
    rvi_words w = {0};
    char *text = rvi_alloc_array(N, 1);
    assert_non_null(text);
    memset(text, 'a', N);
    assert_ok(rvi_words_split(&w, text, N, err));
    assert_int_equal(w.n, 1);
    assert_int_equal(strlen(w.data[0].key), RVI_WORD_MAX);
    for (size_t i = 1; i < N; i += 2) text[i] = ' ';
    rvi_words_deinit(&w);
    assert_ok(rvi_words_split(&w, text, N, err));
    assert_int_equal(w.n, RVI_WORDS_MAX);
    rvi_words_deinit(&w);
    rvi_free(text);
}

static double rarity(const rvi_tokenizer *t, const char *word)
{
    double r;
    assert_ok(rvi_words_rarity(t, word, strlen(word), &r, err));
    return r;
}

static void names_are_rare(void **state)
{
    (void)state;
    rvi_tokenizer *t = toy_tokenizer();
    assert_non_null(t);
    assert_true(rarity(t, "the") < rarity(t, "violin"));
    assert_true(rarity(t, "violin") < RVI_WORDS_RARE);
    assert_true(rarity(t, "kakovin") > RVI_WORDS_RARE);
    assert_true(rarity(t, "anna") == rarity(t, "Anna")); /* the better of both cases */
    assert_true(rarity(t, "oslo") < RVI_WORDS_RARE);
    assert_true(rarity(t, "") >= 0);
    rvi_tokenizer_free(t);
}

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
    const struct CMUnitTest tests[] = {cmocka_unit_test(splits),
                                       cmocka_unit_test(marks),
                                       cmocka_unit_test(marks_names),
                                       cmocka_unit_test(survives_size),
                                       cmocka_unit_test(names_are_rare),
                                       cmocka_unit_test(finds_answers),
                                       cmocka_unit_test(knows_the_same_question)};
    return cmocka_run_group_tests_name("words", tests, NULL, NULL);
}
