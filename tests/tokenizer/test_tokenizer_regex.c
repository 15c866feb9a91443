/* test_tokenizer_regex.c - the regular expressions of tokenizers: what they match (checked against
 * Oniguruma when the rows were written), what is refused, and that no expression takes more than
 * proportional time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tokenizer/regex.h"

#define CL100K                                                                                     \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|"                      \
    " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

/* want: the matches, each between brackets, with the rest of the text between them */
static const struct {
    const char *pattern, *text, *want;
} rows[] = {
    {"a|ab", "abab", "[a]b[a]b"},
    {"ab|a", "aba", "[ab][a]"},
    {"(?:a|b)+", "xabay", "x[aba]y"},
    {"a*", "baab", "[]b[aa]b[]"},
    {"a+?", "aaa", "[a][a][a]"},
    {"a*?b", "aab", "[aab]"},
    {"a++a", "aaa", "aaa"},
    {"a?+b", "aab", "a[ab]"},
    {"(?>a+)b", "aaab", "[aaab]"},
    {"(?>a|ab)c", "abc", "abc"},
    {"a{2}", "aaaaa", "[aa][aa]a"},
    {"a{2,3}", "aaaaaa", "[aaa][aaa]"},
    {"a{,2}b", "aaab", "a[aab]"},
    {"a{2,}?", "aaaa", "[aa][aa]"},
    {"a{2}+", "aaaaa", "[aaaa]a"}, /* an interval repeated, not a possessive one */
    {"x{", "ax{", "a[x{]"},
    {"a(?=b)", "abac", "[a]bac"},
    {"a(?!b)", "abac", "ab[a]c"},
    {"(?<=a)b", "abcb", "a[b]cb"},
    {"(?<!a|cc)b", "abccbdb", "abccbd[b]"},
    {"(?<=a|cc)b", "abccbdb", "a[b]cc[b]db"},
    {"^b", "ab\nb", "ab\n[b]"},
    {"b$", "ab\nb", "a[b]\n[b]"},
    {"\\Aa|b\\z", "aab", "[a]a[b]"},
    {"\\bb", "ab b", "ab [b]"},
    {"\\Bb", "ab b", "a[b] b"},
    {".+", "ab\ncd", "[ab]\n[cd]"},
    {"(?m:.+)", "ab\ncd", "[ab\ncd]"},
    {"(?i:ab)c", "ABc ABC", "[ABc] ABC"},
    {"(?i)ab|C", "aBc", "[aB][c]"},
    {"(?i:s)", "\xC5\xBFsS", "[\xC5\xBF][s][S]"},
    {"(?i:[a-b\xC3\xA9])+", "aB\xC3\x89z", "[aB\xC3\x89]z"},
    {"(?i:\\p{Lu})", "aA", "a[A]"},
    {"[a-c-]+", "b-d", "[b-]d"},
    {"[^a-c]+", "abxyc", "ab[xy]c"},
    {"[]a]+", "a]b", "[a]]b"},
    {"[\\]\\\\^-]+", "]\\^-a", "[]\\^-]a"},
    {"[a-z&&[^aeiou]]+", "hello", "[h]e[ll]o"},
    {"[ab[cd]]+", "abcde", "[abcd]e"},
    {"[[:digit:]]+[[:punct:]]", "12+3", "[12+]3"},
    {"[[:^alpha:]]+", "a1b", "a[1]b"},
    {"\\p{Lu}\\p{Ll}+", "Ab cD Ef", "[Ab] cD [Ef]"},
    {"\\P{L}+", "a12b", "a[12]b"},
    {"\\p{^L}+", "a12b", "a[12]b"},
    {"\\p{Han}+",
     "a\xE4\xBD\xA0\xE5\xA5\xBD"
     "b",
     "a[\xE4\xBD\xA0\xE5\xA5\xBD]b"},
    {"\\p{letter}+\\p{White_Space}", "ab c", "[ab ]c"},
    {"\\x{e9}\\u00e9\\x41",
     "\xC3\xA9\xC3\xA9"
     "A",
     "[\xC3\xA9\xC3\xA9"
     "A]"},
    {"\\d+\\D\\w+\\W\\s\\S\\h", "12-ab! xf", "[12-ab! xf]"},
    {"\\w+", "a\xC2\xB2_1 \xE2\x80\x8D", "[a\xC2\xB2_1] \xE2\x80\x8D"},
    {"\\s+",
     "a\xC2\xA0\xE3\x80\x80\xE2\x80\x8B"
     "b",
     "a[\xC2\xA0\xE3\x80\x80]\xE2\x80\x8B"
     "b"},
    {"[\\w]+|[^\\w\\s]+", "a\xC2\xB2+b", "[a][\xC2\xB2+][b]"}, /* in brackets U+00B2 is none */
    {"(?<name>a)(?#comment)b", "ab", "[ab]"},
    {"(?=[A-Z])", "aBcD", "a[]Bc[]D"},
    {"(?=(\\d{3})+(?!\\d))", "1234567", "1[]234[]567"},
    {"\\d{1,3}(?=(?:\\d{3})*\\b)", "1234567 89", "[1][234][567] [89]"},
    {"(?:a*)*b", "aab", "[aab]"},
    {"(?:a?){3}a{3}", "aaa", "[aaa]"},
    {CL100K, "I'LL pay  12345 \n\n ok!?\r\n  x",
     "[I]['LL][ pay][ ][ ][123][45][ \n\n][ ok][!?\r\n][ ][ x]"},
    {CL100K, "a   ", "[a][   ]"},
};

static void show_matches(char *out, size_t size, const char *pattern, const char *text)
{
    rvi_regex *re;
    rvi_regex_work w = {0};
    rv_error err = {0};
    size_t done = 0, start, end, n = 0, len = strlen(text);
    bool found;
    if (rvi_regex_new(&re, pattern, strlen(pattern), &err)) fail_msg("%s", err.text);
    rvi_regex_begin(&w, re, text, len);
    for (;;) {
        assert_int_equal(rvi_regex_next(&w, &found, &start, &end, &err), RV_OK);
        if (!found) break;
        assert_true(start >= done && end >= start && end <= len);
        n += (size_t)snprintf(out + n, size - n, "%.*s[%.*s]", (int)(start - done), text + done,
                              (int)(end - start), text + start);
        done = end;
    }
    snprintf(out + n, size - n, "%s", text + done);
    rvi_regex_work_deinit(&w);
    rvi_regex_free(re);
}

static void matches(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char got[500];
        show_matches(got, sizeof got, rows[i].pattern, rows[i].text);
        if (strcmp(got, rows[i].want))
            fail_msg("%s on '%s': got '%s', want '%s'", rows[i].pattern, rows[i].text, got,
                     rows[i].want);
    }
}

static void refused(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *says;
    } bad[] = {
        {"(a", "')' missing"},
        {"a)", "without '('"},
        {"[a", "']' missing"},
        {"*a", "nothing to repeat"},
        {"a{2,1}", "reverse order"},
        {"a{1001}", "too large"},
        {"(?:(?:(?:a{1,1000}b){1000}){1000})", "written out"},
        {"\\1", "unsupported escape \\1"},
        {"\\G", "unsupported escape \\G"},
        {"\\p{NoSuch}", "unknown property 'NoSuch'"},
        {"\\p{L", "'}' missing"},
        {"(?x:a)", "unsupported group"},
        {"(?<=a+)b", "fixed length"},
        {"[z-a]", "reverse order"},
        {"[]", "empty class"},
        {"\\", "nothing behind"},
        {"\\x{110000}", "hexadecimal"},
        {"[[:nosuch:]]", "unknown property"},
        {"\xFF", "UTF-8"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        rvi_regex *re;
        rv_error err = {0};
        assert_int_equal(rvi_regex_new(&re, bad[i].pattern, strlen(bad[i].pattern), &err),
                         RV_E_TOKENIZATION);
        assert_null(re);
        if (!strstr(err.text, bad[i].says))
            fail_msg("%s: '%s' does not say '%s'", bad[i].pattern, err.text, bad[i].says);
    }
}

static void refused_by_size(void **state)
{
    (void)state;
    enum { N = 20000 };
    static char pattern[N + 1];
    rvi_regex *re;
    rv_error err;
    memset(pattern, 'a', N);
    assert_int_equal(rvi_regex_new(&re, pattern, N, &err), RV_E_TOKENIZATION);
    memset(pattern, '(', N);
    assert_int_equal(rvi_regex_new(&re, pattern, 5000, &err), RV_E_TOKENIZATION);
    memset(pattern, '[', N);
    assert_int_equal(rvi_regex_new(&re, pattern, 5000, &err), RV_E_TOKENIZATION);
    for (int i = 0; i < 3000; i++) memcpy(pattern + i * 5, "\\p{L}", 5);
    assert_int_equal(rvi_regex_new(&re, pattern, 15000, &err), RV_E_TOKENIZATION);
}

/* Backtracking without memory would need 2^n or n^2 steps here. */
static void long_texts(void **state)
{
    (void)state;
    static const char *const patterns[] = {
        "(?:\\d+)+x",
        "(\\d|\\d\\d)+x",
        "\\d+x",
        "\\d*+x",
        "\\d+?x",
        "(?:\\d*)*x",
        "(?:a|\\d)*?x",
        "\\d+(?=x)",
        "(?=\\d+x)",
        "(?:(?:\\d{3})+(?!\\d))x",
        "(?:\\d?){30}\\d{30}x",
        "(?>\\d+)x",
    };
    enum { N = 100000 };
    char *text = malloc(N);
    assert_non_null(text);
    memset(text, '7', N);
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        rvi_regex *re;
        rvi_regex_work w = {0};
        rv_error err = {0};
        bool found = true;
        size_t start, end;
        if (rvi_regex_new(&re, patterns[i], strlen(patterns[i]), &err)) fail_msg("%s", err.text);
        rvi_regex_begin(&w, re, text, N);
        if (rvi_regex_next(&w, &found, &start, &end, &err))
            fail_msg("%s: %s", patterns[i], err.text);
        assert_false(found);
        assert_true(w.steps < (uint64_t)N * 200);
        rvi_regex_work_deinit(&w);
        rvi_regex_free(re);
    }
    free(text);
}

/* The lookahead succeeds at every third place, each time up to the end of the text. */
static void long_lookahead(void **state)
{
    (void)state;
    enum { N = 99999 };
    static const char pattern[] = "\\p{N}{1,3}(?=(?:\\p{N}{3})*(?!\\p{N}))";
    char *text = malloc(N);
    rvi_regex *re;
    rvi_regex_work w = {0};
    rv_error err;
    bool found = true;
    size_t start = 0, end = 0, n = 0;
    assert_non_null(text);
    memset(text, '7', N);
    assert_int_equal(rvi_regex_new(&re, pattern, strlen(pattern), &err), RV_OK);
    rvi_regex_begin(&w, re, text, N);
    while (!rvi_regex_next(&w, &found, &start, &end, &err) && found) {
        assert_int_equal(end - start, 3);
        n++;
    }
    assert_int_equal(n, N / 3);
    assert_true(w.steps < (uint64_t)N * 200);
    rvi_regex_work_deinit(&w);
    rvi_regex_free(re);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches),         cmocka_unit_test(refused),
        cmocka_unit_test(refused_by_size), cmocka_unit_test(long_texts),
        cmocka_unit_test(long_lookahead),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
