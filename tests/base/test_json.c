/* JSON: what the grammar allows is read, what it forbids is refused with a place, and what is
 * written reads back. */
#include <float.h>
#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"
#include "base/rng.h"

/* Parses from a copy of exactly len bytes, so that a sanitizer sees a read behind the end. */
static rv_status parse_n(rvi_arena *arena, const rvi_json **out, const char *text, size_t len,
                         rv_error *err)
{
    char *copy = rvi_alloc_array(len ? len : 1, 1);
    assert_non_null(copy);
    if (len) memcpy(copy, text, len);
    rv_status st = rvi_json_parse(out, copy, len, arena, "text", err);
    rvi_free(copy);
    return st;
}

static rv_status parse(rvi_arena *arena, const rvi_json **out, const char *text, rv_error *err)
{
    return parse_n(arena, out, text, strlen(text), err);
}

static void test_accepts(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "null",
        "true",
        "false",
        "0",
        "-0",
        "-1",
        "10",
        "1234567890",
        "[]",
        "{}",
        "\"\"",
        " \t\r\n null \n",
        "[1]",
        "[1,2]",
        "[ ]",
        "{ }",
        "[[[]]]",
        "{\"\":0}",
        "{\"a\":{\"b\":[]}}",
        "{\"a\":1,\"a\":2}",
        "1.5",
        "0.5",
        "-0.5",
        "1e5",
        "1E5",
        "1e+5",
        "1e-5",
        "0e0",
        "0E+1",
        "1.25e-300",
        "5e-324",
        "1e-999",
        "1.7976931348623157e308",
        "100000000000000000000000000000",
        "[-0.000000000000000000000000000000000000000000000000000000000000000000000000000001]",
        "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"",
        "\"\\u0000\"",
        "\"\\u00e9\\uD83D\\uDE00\"",
        "\"\\uD800\"",
        "\"\\uDC00\\uD800\"",
        "\"\\uD800\\uD800\\uDC00\"",
        "\"\\uD800\\n\"",
        "\"\xC3\xA9\"",
        "\"\xF4\x8F\xBF\xBF\"",
        "\"\x7F\"",
        "\"\xE2\x80\xA8\"",
        "\xEF\xBB\xBF{}",
        "[\"a\",1,null,true,{\"k\":\"v\"}]",
        "\"/*\"",
        "[\"\\\\\\\"\"]",
    };
    for (size_t i = 0; i < RVI_COUNT(texts); i++) {
        rvi_arena arena = {0};
        rv_error err = {0};
        const rvi_json *v = NULL;
        if (parse(&arena, &v, texts[i], &err)) fail_msg("%s: %s", texts[i], err.text);
        assert_non_null(v);
        rvi_arena_deinit(&arena);
    }
}

static void test_refuses(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        " ",
        "\xEF\xBB\xBF",
        "nul",
        "nulll",
        "True",
        "tru",
        "falsy",
        "NaN",
        "nan",
        "Infinity",
        "-Infinity",
        "-",
        "+1",
        "01",
        "-01",
        "00",
        "1.",
        ".5",
        "-.5",
        "1.e5",
        "1e",
        "1e+",
        "1e5.5",
        "0x10",
        "1_000",
        "1 2",
        "1e999",
        "-1e999",
        "--1",
        "[",
        "]",
        "[1",
        "[1,",
        "[1,]",
        "[,1]",
        "[,]",
        "[1 2]",
        "[1,,2]",
        "[1}",
        "[\"a\"",
        "[\"a\",\n4\n,1,",
        "{",
        "}",
        "{\"a\"",
        "{\"a\":",
        "{\"a\":1",
        "{\"a\":1,",
        "{\"a\":1,}",
        "{,}",
        "{a:1}",
        "{'a':1}",
        "{1:1}",
        "{\"a\" 1}",
        "{\"a\":1 \"b\":2}",
        "{\"a\":1]",
        "{\"a\"::1}",
        "{:1}",
        "{null:1}",
        "{\"a\":1}}",
        "[]]",
        "{}{}",
        "[][]",
        "\"a\" x",
        "\"",
        "\"a",
        "\"\\\"",
        "\"\\",
        "\"\\x\"",
        "\"\\u\"",
        "\"\\u12\"",
        "\"\\u123\"",
        "\"\\u12G4\"",
        "\"\\U0041\"",
        "\"\\uD800\\u\"",
        "\"\\uD800\\u12\"",
        "\"\\u",
        "\"\\uD800\\uDC0",
        "\"\\ \"",
        "\"\\0\"",
        "\"\\'\"",
        "\"\n\"",
        "\"\t\"",
        "\"\x01\"",
        "\"\x1F\"",
        "\"\x80\"",
        "\"\xC3\"",
        "\"\xC0\x80\"",
        "\"\xED\xA0\x80\"",
        "\"\xF4\x90\x80\x80\"",
        "\"\xFF\"",
        "\"\xE2\x82\"",
        "'a'",
        "// x\n1",
        "/* x */ 1",
        "1 // x",
        "[1]#",
        "\v1",
        "\f1",
        "\xC2\xA0 1",
        "\\u0031",
        "<a>",
        "[\"\\uD83D\\uDE0\"]",
    };
    for (size_t i = 0; i < RVI_COUNT(texts); i++) {
        rvi_arena arena = {0};
        rv_error err = {0};
        const rvi_json *v = NULL;
        rv_status st = parse(&arena, &v, texts[i], &err);
        if (st != RV_E_CONFIG) fail_msg("accepted: %s", texts[i]);
        assert_null(v);
        assert_int_equal(err.code, RV_E_CONFIG);
        assert_non_null(strstr(err.text, "text: line "));
        rvi_arena_deinit(&arena);
    }
}

static void test_nul_bytes(void **state)
{
    (void)state;
    rvi_arena arena = {0};
    const rvi_json *v;
    assert_int_equal(parse_n(&arena, &v, "\0", 1, NULL), RV_E_CONFIG);
    assert_int_equal(parse_n(&arena, &v, "1\0", 2, NULL), RV_E_CONFIG);
    assert_int_equal(parse_n(&arena, &v, "\"a\0b\"", 5, NULL), RV_E_CONFIG);
    assert_int_equal(parse_n(&arena, &v, "\"\\\0\"", 4, NULL), RV_E_CONFIG);
    assert_int_equal(parse_n(&arena, &v, "[1\0]", 4, NULL), RV_E_CONFIG);

    assert_int_equal(parse(&arena, &v, "{\"a\\u0000b\":\"x\\u0000y\", \"a\":1}", NULL), RV_OK);
    assert_int_equal(rvi_json_int(rvi_json_get(v, "a"), 0), 1);
    const rvi_json *m = rvi_json_at(v, 0);
    assert_int_equal(m->key_len, 3);
    assert_memory_equal(m->key, "a\0b", 4);
    assert_int_equal(m->as.string.len, 3);
    assert_memory_equal(m->as.string.data, "x\0y", 4);
    assert_false(rvi_json_is_string(m, "x"));
    rvi_arena_deinit(&arena);
}

static void test_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        rvi_json_kind kind;
        int64_t integer;
        double number;
    } cases[] = {
        {"0", RVI_JSON_INT, 0, 0},
        {"-0", RVI_JSON_INT, 0, 0},
        {"-17", RVI_JSON_INT, -17, 0},
        {"9223372036854775807", RVI_JSON_INT, INT64_MAX, 0},
        {"-9223372036854775808", RVI_JSON_INT, INT64_MIN, 0},
        {"9223372036854775808", RVI_JSON_NUMBER, 0, 9223372036854775808.0},
        {"-9223372036854775809", RVI_JSON_NUMBER, 0, -9223372036854775808.0},
        {"18446744073709551615", RVI_JSON_NUMBER, 0, 18446744073709551615.0},
        {"1.0", RVI_JSON_NUMBER, 0, 1.0},
        {"-0.0", RVI_JSON_NUMBER, 0, -0.0},
        {"1e2", RVI_JSON_NUMBER, 0, 100.0},
        {"0.1", RVI_JSON_NUMBER, 0, 0.1},
        {"1e-999", RVI_JSON_NUMBER, 0, 0.0},
        {"2.2250738585072011e-308", RVI_JSON_NUMBER, 0, 2.2250738585072011e-308},
        {"123456789012345678901234567890.5", RVI_JSON_NUMBER, 0, 123456789012345678901234567890.5},
    };
    for (size_t i = 0; i < RVI_COUNT(cases); i++) {
        rvi_arena arena = {0};
        const rvi_json *v;
        assert_int_equal(parse(&arena, &v, cases[i].text, NULL), RV_OK);
        assert_int_equal(v->kind, cases[i].kind);
        if (v->kind == RVI_JSON_INT)
            assert_true(v->as.integer == cases[i].integer);
        else
            assert_memory_equal(&v->as.number, &cases[i].number, sizeof(double));
        rvi_arena_deinit(&arena);
    }
}

static void test_number_lengths(void **state)
{
    (void)state;
    for (size_t n = 990; n < 1010; n++) { /* 1000 characters are the most */
        char text[1100];
        memset(text, '0', n);
        memcpy(text, "0.5", 3);
        rvi_arena arena = {0};
        rv_error err = {0};
        const rvi_json *v;
        rv_status st = parse_n(&arena, &v, text, n, &err);
        assert_int_equal(st, n <= 1000 ? RV_OK : RV_E_CONFIG);
        if (!st)
            assert_true(v->as.number == 0.5);
        else
            assert_non_null(strstr(err.text, "too many digits"));
        rvi_arena_deinit(&arena);
    }
}

static void test_strings(void **state)
{
    (void)state;
    static const struct {
        const char *text, *value;
    } cases[] = {
        {"\"\"", ""},
        {"\"plain\"", "plain"},
        {"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\/\b\f\n\r\t"},
        {"\"\\u0041\\u00E9\\u20ac\"", "A\xC3\xA9\xE2\x82\xAC"},
        {"\"\\ud83d\\ude00\"", "\xF0\x9F\x98\x80"},
        {"\"\\uDBFF\\uDFFF\"", "\xF4\x8F\xBF\xBF"},
        {"\"\\ud800\"", "\xEF\xBF\xBD"},
        {"\"\\ud800x\"", "\xEF\xBF\xBDx"},
        {"\"\\udc00\\ud800\"", "\xEF\xBF\xBD\xEF\xBF\xBD"},
        {"\"\\ud800\\ud83d\\ude00\"", "\xEF\xBF\xBD\xF0\x9F\x98\x80"},
        {"\"\\ud800\\u0041\"", "\xEF\xBF\xBD"
                               "A"},
        {"\"\xC3\xA9\xF0\x9F\x98\x80\"", "\xC3\xA9\xF0\x9F\x98\x80"},
    };
    for (size_t i = 0; i < RVI_COUNT(cases); i++) {
        rvi_arena arena = {0};
        const rvi_json *v;
        assert_int_equal(parse(&arena, &v, cases[i].text, NULL), RV_OK);
        assert_true(rvi_json_is_string(v, cases[i].value));
        assert_string_equal(rvi_json_string(v, "?"), cases[i].value);
        rvi_arena_deinit(&arena);
    }
}

static void test_objects(void **state)
{
    (void)state;
    rvi_arena arena = {0};
    const rvi_json *v;
    assert_int_equal(
        parse(&arena, &v, "{\"z\":1,\"a\":[true,2.0,2.5,\"s\"],\"z\":3,\"\":null}", NULL), RV_OK);
    assert_int_equal(rvi_json_count(v), 4);
    assert_string_equal(rvi_json_at(v, 0)->key, "z"); /* the order of the text */
    assert_string_equal(rvi_json_at(v, 1)->key, "a");
    assert_int_equal(rvi_json_int(rvi_json_get(v, "z"), 0), 3); /* the last of equal names */
    assert_true(rvi_json_is(rvi_json_get(v, ""), RVI_JSON_NULL));
    assert_null(rvi_json_get(v, "b"));
    const rvi_json *a = rvi_json_get(v, "a");
    assert_int_equal(rvi_json_count(a), 4);
    assert_true(rvi_json_bool(rvi_json_at(a, 0), false));
    assert_int_equal(rvi_json_int(rvi_json_at(a, 1), -1), 2);  /* whole value */
    assert_int_equal(rvi_json_int(rvi_json_at(a, 2), -1), -1); /* not whole */
    assert_true(rvi_json_number(rvi_json_at(a, 2), 0) == 2.5);
    assert_null(rvi_json_at(a, 4));
    assert_null(rvi_json_get(a, "x"));

    /* wrong kinds and NULL */
    assert_int_equal(rvi_json_count(NULL), 0);
    assert_null(rvi_json_at(NULL, 0));
    assert_null(rvi_json_get(NULL, "a"));
    assert_int_equal(rvi_json_int(NULL, 7), 7);
    assert_int_equal(rvi_json_int(rvi_json_at(a, 3), 7), 7);
    assert_true(rvi_json_number(rvi_json_at(a, 3), 0.5) == 0.5);
    assert_true(rvi_json_bool(rvi_json_at(a, 3), true));
    assert_string_equal(rvi_json_string(rvi_json_at(a, 0), "none"), "none");
    assert_int_equal(rvi_json_count(rvi_json_at(a, 3)), 0);
    rvi_arena_deinit(&arena);
}

static void test_depth(void **state)
{
    (void)state;
    static char text[2 * 100000];
    for (size_t depth = RVI_JSON_DEPTH - 1; depth <= RVI_JSON_DEPTH + 1; depth++) {
        memset(text, '[', depth);
        memset(text + depth, ']', depth);
        rvi_arena arena = {0};
        rv_error err = {0};
        const rvi_json *v;
        assert_int_equal(parse_n(&arena, &v, text, 2 * depth, &err),
                         depth <= RVI_JSON_DEPTH ? RV_OK : RV_E_CONFIG);
        if (depth > RVI_JSON_DEPTH) assert_non_null(strstr(err.text, "nested too deeply"));
        rvi_arena_deinit(&arena);
    }
    rvi_arena arena = {0};
    const rvi_json *v;
    memset(text, '[', sizeof text);
    assert_int_equal(parse_n(&arena, &v, text, sizeof text, NULL), RV_E_CONFIG);
    for (size_t i = 0; i < sizeof text; i++) text[i] = "{\"\":"[i % 4];
    assert_int_equal(parse_n(&arena, &v, text, sizeof text, NULL), RV_E_CONFIG);
    rvi_arena_deinit(&arena);
}

static void test_place_of_an_error(void **state)
{
    (void)state;
    rvi_arena arena = {0};
    rv_error err = {0};
    const rvi_json *v;
    assert_int_equal(parse(&arena, &v, "{\n  \"a\": 1,\n  \"b\": x\n}", &err), RV_E_CONFIG);
    assert_string_equal(err.text, "text: line 3, column 8: value expected");
    assert_int_equal(parse(&arena, &v, "nope", &err), RV_E_CONFIG);
    assert_string_equal(err.text, "text: line 1, column 1: unknown word");
    rvi_arena_deinit(&arena);
}

/* 300,000 members: read in reasonable time, and refused when the arena's maximum is smaller than
 * the tree. */
static void test_large(void **state)
{
    (void)state;
    enum { N = 300000 };
    rvi_buf text = {0};
    rvi_buf_putc(&text, '{');
    for (int i = 0; i < N; i++)
        rvi_buf_printf(&text, "%s\"key %d\": [%d, \"v%d\"]", i ? ", " : "", i, i, i);
    assert_true(rvi_buf_putc(&text, '}'));
    rvi_arena arena = {0};
    const rvi_json *v;
    assert_int_equal(rvi_json_parse(&v, text.data, text.len, &arena, "text", NULL), RV_OK);
    assert_int_equal(rvi_json_count(v), N);
    for (size_t i = 0; i < N; i += 997) {
        const rvi_json *m = rvi_json_at(v, i);
        char key[32];
        snprintf(key, sizeof key, "key %zu", i);
        assert_string_equal(m->key, key);
        assert_int_equal(rvi_json_int(rvi_json_at(m, 0), -1), i);
    }
    rvi_arena_deinit(&arena);

    rv_error err = {0};
    rvi_arena small = {.max = 1 << 20};
    assert_int_equal(rvi_json_parse(&v, text.data, text.len, &small, "text", &err), RV_E_NOMEM);
    assert_null(v);
    assert_true(small.used <= small.max);
    rvi_arena_deinit(&small);
    rvi_buf_deinit(&text);
}

/* The scratch stack obeys the arena's maximum too: a flat list of a million values in an arena of 1
 * MiB. */
static void test_flat_list_is_capped(void **state)
{
    (void)state;
    rvi_buf text = {0};
    for (int i = 0; i < 1000000; i++) rvi_buf_puts(&text, i ? ",0" : "[0");
    assert_true(rvi_buf_putc(&text, ']'));
    rvi_arena arena = {.max = 1 << 20};
    const rvi_json *v;
    assert_int_equal(rvi_json_parse(&v, text.data, text.len, &arena, "text", NULL), RV_E_NOMEM);
    rvi_arena_deinit(&arena);
    rvi_buf_deinit(&text);
}

static void test_write_string(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t len;
        const char *text;
    } cases[] = {
        {"", 0, "\"\""},
        {"a\"b\\c/", 6, "\"a\\\"b\\\\c/\""},
        {"\b\f\n\r\t", 5, "\"\\b\\f\\n\\r\\t\""},
        {"\0\x01\x1F\x7F", 4, "\"\\u0000\\u0001\\u001f\\u007f\""},
        {"\xC3\xA9\xF0\x9F\x98\x80", 6, "\"\xC3\xA9\xF0\x9F\x98\x80\""},
        {"\xC3", 1, "\"\xEF\xBF\xBD\""},
        {"a\xFF\xED\xA0\x80", 5, "\"a\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\""},
    };
    for (size_t i = 0; i < RVI_COUNT(cases); i++) {
        rvi_buf out = {0};
        assert_true(rvi_json_write_string(&out, cases[i].bytes, cases[i].len));
        assert_string_equal(out.data, cases[i].text);
        rvi_buf_deinit(&out);
    }
    rvi_buf small = {.max = 4};
    assert_false(rvi_json_write_string(&small, "too long", 8));
    rvi_buf_deinit(&small);
}

static void test_write_number(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *text;
    } cases[] = {
        {0, "0.0"},
        {-0.0, "-0.0"},
        {3, "3.0"},
        {0.1, "0.1"},
        {1e-5, "1e-05"},
        {1e300, "1e+300"},
        {0.30000000000000004, "0.30000000000000004"},
        {10, "10.0"},
        {100, "100.0"},
        {9007199254740992, "9007199254740992.0"},
        {1e15, "1000000000000000.0"},
        {1e16, "1e+16"},
        {123456, "123456.0"},
        {-2.5, "-2.5"},
        {INFINITY, "null"},
        {-INFINITY, "null"},
        {NAN, "null"},
    };
    for (size_t i = 0; i < RVI_COUNT(cases); i++) {
        rvi_buf out = {0};
        assert_true(rvi_json_write_number(&out, cases[i].value));
        assert_string_equal(out.data, cases[i].text);
        rvi_buf_deinit(&out);
    }
}

static void numbers_read_back(void)
{
    rvi_rng rng = {.state = 1};
    for (int i = 0; i < 4000; i++) {
        uint64_t bits = rvi_rng_u64(&rng);
        double value;
        memcpy(&value, &bits, sizeof value);
        if (i % 4 == 0) value = (double)(int64_t)(bits >> (bits & 63)) / 8;
        if (!isfinite(value)) continue;
        rvi_buf out = {0};
        rvi_arena arena = {0};
        const rvi_json *v;
        assert_true(rvi_json_write_number(&out, value));
        assert_int_equal(rvi_json_parse(&v, out.data, out.len, &arena, "number", NULL), RV_OK);
        assert_int_equal(v->kind, RVI_JSON_NUMBER);
        assert_memory_equal(&v->as.number, &value, sizeof value);
        rvi_arena_deinit(&arena);
        rvi_buf_deinit(&out);
    }
}

static void test_numbers_read_back(void **state)
{
    (void)state;
    numbers_read_back();
}

/* A program may have set a locale that writes 0,5. */
static void test_locale(void **state)
{
    (void)state;
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8",  "de_DE",
                                        "fr_FR.UTF-8", "ps_AF.UTF-8", "ps_AF"};
    size_t n_tried = 0;
    for (size_t i = 0; i < RVI_COUNT(names); i++) {
        if (!setlocale(LC_ALL, names[i])) continue;
        n_tried++;
        rvi_buf out = {0};
        assert_true(rvi_json_write_number(&out, 0.25));
        assert_string_equal(out.data, "0.25");
        rvi_buf_deinit(&out);
        numbers_read_back();
        assert_non_null(setlocale(LC_ALL, "C"));
    }
    if (!n_tried) skip();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accepts),
        cmocka_unit_test(test_refuses),
        cmocka_unit_test(test_nul_bytes),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_number_lengths),
        cmocka_unit_test(test_strings),
        cmocka_unit_test(test_objects),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_place_of_an_error),
        cmocka_unit_test(test_large),
        cmocka_unit_test(test_flat_list_is_capped),
        cmocka_unit_test(test_write_string),
        cmocka_unit_test(test_write_number),
        cmocka_unit_test(test_numbers_read_back),
        cmocka_unit_test(test_locale),
    };
    return cmocka_run_group_tests_name("json", tests, NULL, NULL);
}
