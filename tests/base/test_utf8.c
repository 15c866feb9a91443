/* UTF-8: every code point both ways, and Unicode's recommended handling of what is not UTF-8. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "base/compat.h"
#include "base/utf8.h"

static void test_every_code_point(void **state)
{
    (void)state;
    for (uint32_t cp = 0; cp <= 0x10FFFF; cp++) {
        char bytes[4];
        uint32_t back = 0;
        bool valid = false;
        size_t n = rvi_utf8_encode(cp, bytes);
        size_t used = rvi_utf8_decode(bytes, n, &back, &valid);
        bool surrogate = cp >= 0xD800 && cp <= 0xDFFF;
        if (used != n || !valid || back != (surrogate ? 0xFFFD : cp))
            fail_msg("U+%04X", (unsigned)cp);
        size_t expected = surrogate ? 3 : cp < 0x80 ? 1 : cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
        if (n != expected) fail_msg("U+%04X: %zu bytes", (unsigned)cp, n);
        for (size_t cut = 1; cut < n; cut++) { /* every beginning is known as one */
            if (rvi_utf8_incomplete(bytes, cut) != cut)
                fail_msg("U+%04X cut at %zu", (unsigned)cp, cut);
            if (rvi_utf8_decode(bytes, cut, &back, &valid) != cut || valid || back != 0xFFFD)
                fail_msg("U+%04X cut at %zu", (unsigned)cp, cut);
        }
        if (rvi_utf8_incomplete(bytes, n)) fail_msg("U+%04X is complete", (unsigned)cp);
    }
}

static void test_encode_out_of_range(void **state)
{
    (void)state;
    static const uint32_t cps[] = {0x110000, 0xFFFFFFFF, 0xD800, 0xDFFF};
    for (size_t i = 0; i < RVI_COUNT(cps); i++) {
        char bytes[4];
        assert_int_equal(rvi_utf8_encode(cps[i], bytes), 3);
        assert_memory_equal(bytes, "\xEF\xBF\xBD", 3);
    }
}

/* Each string with the code points it decodes to; 0xFFFD stands for one maximal invalid part. */
static void test_invalid(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        uint32_t cps[8];
        size_t n;
    } cases[] = {
        {"\x80", {0xFFFD}, 1},
        {"\xBF\xBF", {0xFFFD, 0xFFFD}, 2},
        {"\xC0\x80", {0xFFFD, 0xFFFD}, 2},
        {"\xC1\xBF", {0xFFFD, 0xFFFD}, 2},
        {"\xC2", {0xFFFD}, 1},
        {"\xC2"
         "A",
         {0xFFFD, 'A'},
         2},
        {"\xE0\x80\x80", {0xFFFD, 0xFFFD, 0xFFFD}, 3},
        {"\xE0\x9F\xBF", {0xFFFD, 0xFFFD, 0xFFFD}, 3},
        {"\xE0\xA0\x80", {0x800}, 1},
        {"\xE2\x82", {0xFFFD}, 1},
        {"\xE2\x82"
         "A",
         {0xFFFD, 'A'},
         2},
        {"\xE2\x82\xE2\x82\xAC", {0xFFFD, 0x20AC}, 2},
        {"\xED\x9F\xBF", {0xD7FF}, 1},
        {"\xED\xA0\x80", {0xFFFD, 0xFFFD, 0xFFFD}, 3},
        {"\xED\xAF\xBF\xED\xBF\xBF", {0xFFFD, 0xFFFD, 0xFFFD, 0xFFFD, 0xFFFD, 0xFFFD}, 6},
        {"\xEE\x80\x80", {0xE000}, 1},
        {"\xF0\x80\x80\x80", {0xFFFD, 0xFFFD, 0xFFFD, 0xFFFD}, 4},
        {"\xF0\x8F\xBF\xBF", {0xFFFD, 0xFFFD, 0xFFFD, 0xFFFD}, 4},
        {"\xF0\x90\x80\x80", {0x10000}, 1},
        {"\xF0\x9F\x98", {0xFFFD}, 1},
        {"\xF0\x9F\x98z", {0xFFFD, 'z'}, 2},
        {"\xF4\x8F\xBF\xBF", {0x10FFFF}, 1},
        {"\xF4\x90\x80\x80", {0xFFFD, 0xFFFD, 0xFFFD, 0xFFFD}, 4},
        {"\xF5\x80\x80\x80", {0xFFFD, 0xFFFD, 0xFFFD, 0xFFFD}, 4},
        {"\xFE\xFF", {0xFFFD, 0xFFFD}, 2},
        {"\x61\xF1\x80\x80\xE1\x80\xC2\x62",
         {'a', 0xFFFD, 0xFFFD, 0xFFFD, 'b'},
         5}, /* Unicode's example */
    };
    for (size_t i = 0; i < RVI_COUNT(cases); i++) {
        size_t len = strlen(cases[i].bytes), at = 0, n = 0;
        while (at < len) {
            uint32_t cp = 0;
            bool valid = false;
            size_t used = rvi_utf8_decode(cases[i].bytes + at, len - at, &cp, &valid);
            assert_in_range(used, 1, RVI_MIN(len - at, (size_t)4));
            assert_true(n < cases[i].n);
            assert_int_equal(cp, cases[i].cps[n]);
            assert_int_equal(valid, cp != 0xFFFD);
            at += used;
            n++;
        }
        assert_int_equal(n, cases[i].n);
        assert_int_equal(rvi_utf8_count(cases[i].bytes, len), cases[i].n);
    }
}

static void test_replacement_character_is_valid(void **state)
{
    (void)state;
    uint32_t cp = 0;
    bool valid = false;
    assert_int_equal(rvi_utf8_decode("\xEF\xBF\xBD", 3, &cp, &valid), 3);
    assert_int_equal(cp, 0xFFFD);
    assert_true(valid);
    assert_int_equal(rvi_utf8_decode("\xEF\xBF\xBD", 3, &cp, NULL), 3);
}

static void test_incomplete(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
    } cases[] = {
        {"", 0},
        {"abc", 0},
        {"abc\xC3", 1},
        {"\xC3\xA9", 0},
        {"a\xE2\x82", 2},
        {"a\xF0\x9F\x98", 3},
        {"\xF0\x9F", 2},
        {"\xF0", 1},
        {"\x80", 0},
        {"\x80\x80\x80", 0},
        {"\xC0", 0},
        {"\xF5", 0},
        {"\xFF", 0},
        {"\xE0\x80", 0},
        {"\xED\xA0", 0},
        {"\xF4\x90", 0},
        {"\xC3\xA9\xA9", 0},
        {"\xE2\x82\xAC\xE2", 1},
        {"\xF0\x9F\x98\x80\x80", 0},
    };
    for (size_t i = 0; i < RVI_COUNT(cases); i++)
        assert_int_equal(rvi_utf8_incomplete(cases[i].bytes, strlen(cases[i].bytes)), cases[i].n);
}

/* A text arriving byte by byte, as tokens do: what is complete plus what is held back is always the
 * whole. */
static void test_streaming(void **state)
{
    (void)state;
    static const char text[] = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80z";
    size_t sent = 0, len = sizeof text - 1;
    char out[sizeof text];
    for (size_t have = 1; have <= len; have++) {
        size_t whole = have - rvi_utf8_incomplete(text, have);
        uint32_t cp;
        while (sent < whole) {
            bool valid = false;
            size_t used = rvi_utf8_decode(text + sent, whole - sent, &cp, &valid);
            assert_true(valid);
            memcpy(out + sent, text + sent, used);
            sent += used;
        }
    }
    assert_int_equal(sent, len);
    assert_memory_equal(out, text, len);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_code_point),
        cmocka_unit_test(test_encode_out_of_range),
        cmocka_unit_test(test_invalid),
        cmocka_unit_test(test_replacement_character_is_valid),
        cmocka_unit_test(test_incomplete),
        cmocka_unit_test(test_streaming),
    };
    return cmocka_run_group_tests_name("utf8", tests, NULL, NULL);
}
