/* test_number.c - numbers to text and back, compared with the C library's in the C locale. */
#include <float.h>
#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/number.h"
#include "base/rng.h"

static const double doubles[] = {0.0,
                                 -0.0,
                                 1.0,
                                 -1.0,
                                 0.5,
                                 0.1,
                                 1.0 / 3,
                                 2.5,
                                 3.5,
                                 9.5,
                                 99.5,
                                 0.25,
                                 0.125,
                                 1e15,
                                 1e16,
                                 1e17,
                                 123456.5,
                                 999999.5,
                                 9.9999995,
                                 1e22,
                                 1e23,
                                 1e-4,
                                 1e-5,
                                 9.99995e-5,
                                 DBL_MAX,
                                 DBL_MIN,
                                 DBL_EPSILON,
                                 5e-324,
                                 2.2250738585072011e-308,
                                 1.7976931348623155e308,
                                 INFINITY,
                                 -INFINITY,
                                 NAN,
                                 4503599627370496.5,
                                 9007199254740993.0};

static double random_double(uint64_t *state)
{
    uint64_t bits = *state = *state * 6364136223846793005u + 1442695040888963407u;
    bits ^= bits >> 29;
    double v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static void same_text(const char *fmt, int width, int precision, double v)
{
    char want[1600], got[1600];
    int a = snprintf(want, sizeof want, fmt, width, precision, v),
        b = rvi_snprintf(got, sizeof got, fmt, width, precision, v);
    if (a != b || strcmp(want, got))
        fail_msg("%s, %d, %d, %a: '%s', not '%s'", fmt, width, precision, v, got, want);
}

static void doubles_as_text(void **state)
{
    static const char *const formats[] = {"%*.*e",  "%*.*f",  "%*.*g",   "%-*.*g|",
                                          "%+*.*f", "% *.*e", "%0*.*f",  "%#*.*f",
                                          "%*.*G",  "%*.*E",  "%-+*.*e|"};
    static const int precisions[] = {-1, 0, 1, 2, 5, 6, 15, 16, 17, 40};
    uint64_t seed = 7;
    (void)state;
    for (size_t f = 0; f < RVI_COUNT(formats); f++)
        for (size_t p = 0; p < RVI_COUNT(precisions); p++) {
            for (size_t i = 0; i < RVI_COUNT(doubles); i++) {
                same_text(formats[f], 0, precisions[p], doubles[i]);
                same_text(formats[f], 30, precisions[p], doubles[i]);
            }
            for (int i = 0; i < 200; i++)
                same_text(formats[f], 0, precisions[p], random_double(&seed));
        }
    same_text("%*.*f", 0, 1100, 5e-324);
    same_text("%*.*e", 0, 1100, 5e-324);
    same_text("%*.*g", 0, 1100, DBL_MAX);
}

#define SAME(...)                                                                                  \
    do {                                                                                           \
        char want[300], got[300];                                                                  \
        int a = snprintf(want, sizeof want, __VA_ARGS__),                                          \
            b = rvi_snprintf(got, sizeof got, __VA_ARGS__);                                        \
        assert_int_equal(a, b);                                                                    \
        assert_string_equal(want, got);                                                            \
    } while (0)

static void other_conversions(void **state)
{
    (void)state;
    SAME("%d|%5d|%-5d|%05d|%+d|% d|%.3d|%8.3d", 42, -42, 42, -42, 42, 42, 7, -7);
    SAME("%d %d %i", INT_MIN, INT_MAX, 0);
    SAME("%lld %ld %zd %jd %td %hd %hhd", LLONG_MIN, LONG_MAX, (ptrdiff_t)-3, INTMAX_MIN,
         (ptrdiff_t)9, (short)-5, (signed char)-6);
    SAME("%llu %lu %zu %ju %hu %hhu %u", ULLONG_MAX, ULONG_MAX, SIZE_MAX, UINTMAX_MAX,
         (unsigned short)65535, (unsigned char)255, 7u);
    SAME("%x %X %#x %#X %04x %08llx %o %#o %#x", 255u, 255u, 255u, 255u, 10u, 0xABCDEFull, 8u, 8u,
         0u);
    SAME("%s|%10s|%-10s|%.3s|%.*s|%.0s", "text", "text", "text", "text", 2, "text", "text");
    SAME("%c|%3c|%-3c|%%|%*d|%-*d|%*d", 'a', 'b', 'c', 6, 1, 6, 2, -6, 3);
    SAME("a %% b %5.2f %s", 2.345, "c");
    char small[4];
    assert_int_equal(rvi_snprintf(small, sizeof small, "%d", 123456), 6);
    assert_string_equal(small, "123");
    assert_int_equal(rvi_snprintf(NULL, 0, "%d", 123456), 6);
}

static void same_number(const char *text)
{
    char *end_want;
    const char *end;
    double want = strtod(text, &end_want), got = rvi_number_parse(text, &end);
    if (memcmp(&want, &got, sizeof want) && !(isnan(want) && isnan(got)))
        fail_msg("'%s': %a, not %a", text, got, want);
    assert_ptr_equal(end, end_want);
}

static void text_as_double(void **state)
{
    static const char *const texts[] = {
        "0",
        "-0",
        "1",
        "+1",
        "1.",
        ".5",
        "1e5",
        "1e",
        "1e+",
        "1e-5x",
        "12.34.56",
        "",
        "-",
        ".",
        "e5",
        "inf",
        "-Infinity",
        "nan",
        "INF",
        "infinit",
        "1e400",
        "-1e400",
        "1e-400",
        "4.9e-324",
        "2.4703282292062327e-324",
        "2.4703282292062328e-324",
        "1.7976931348623158e308",
        "1.7976931348623159e308",
        "179769313486231580793728971405303415079934132710037826936173778980"
        "444968292764750946649017977587207096330286416692887910946555547851940402630657488671505820"
        "6"
        "819089020007083836762738548458177115317644757302700698555713669596228429148198608349364752"
        "927"
        "19074168444365510704342711559699508093042880",
        "9007199254740993",
        "9007199254740992.999999999999999999999999999999999999999999999999999",
        "9007199254740993.00000000000000000000000000000000000000000000000000000000000000000000001",
        "2.2250738585072011e-308",
        "2.2250738585072012e-308",
        "0.1",
        "0.3",
        "123456789012345678901234567890",
        "1e23",
        "8.5e-324",
        "0.000000000000000000000000000000000000000000000000000000000000001e64",
        "6.631236846766476e-316",
        "3.2378839133029012895883524125015321748630094239805755e-319"};
    uint64_t seed = 3;
    (void)state;
    for (size_t i = 0; i < RVI_COUNT(texts); i++) same_number(texts[i]);
    for (int i = 0; i < 20000; i++) {
        char text[64];
        double v = random_double(&seed);
        if (!isfinite(v)) continue;
        snprintf(text, sizeof text, "%.*e", i % 25, v);
        same_number(text);
    }
    char *longest = malloc(5001);
    assert_non_null(longest);
    memset(longest, '7', 5000);
    longest[1] = '.';
    longest[5000] = 0;
    same_number(longest);
    free(longest);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(doubles_as_text),
        cmocka_unit_test(other_conversions),
        cmocka_unit_test(text_as_double),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
