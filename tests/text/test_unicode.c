/* test_unicode.c - sets of code points by property, case folding, widths, and the
 * normalization forms against Python's unicodedata (tools/make_tokenizer_vectors.py). Run from the
 * repository root. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/blob.h"
#include "base/json.h"
#include "text/chars.h"
#include "text/unicode.h"

static size_t count(const rvi_cpset *s)
{
    size_t n = 0;
    for (uint32_t c = 0; c <= RVI_UNICODE_LAST; c++)
        if ((c < 0xD800 || c > 0xDFFF) && rvi_cpset_has(s, c)) n++;
    return n;
}

static void expect_count(const char *property, size_t want)
{
    rvi_cpset s = {0};
    assert_int_equal(rvi_cpset_add_property(&s, property, strlen(property)), RVI_PROPERTY_OK);
    rvi_cpset_close(&s);
    size_t n = count(&s);
    if (n != want) fail_msg("%s has %zu members, not %zu", property, n, want);
    assert_true(rvi_cpset_invert(&s));
    assert_int_equal(count(&s), 0x110000 - 0x800 - want);
    rvi_cpset_deinit(&s);
}

/* The sizes are those that Oniguruma's tables of Unicode 16.0 give. */
static void properties(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        size_t n;
    } rows[] = {{"L", 141028},   {"Lu", 1858},     {"Ll", 2258},        {"Lt", 31},
                {"Lm", 404},     {"Lo", 136477},   {"M", 2501},         {"N", 1911},
                {"Nd", 760},     {"P", 855},       {"S", 8514},         {"Z", 19},
                {"Cn", 819533},  {"Word", 144671}, {"White_Space", 25}, {"Alphabetic", 142759},
                {"Upper", 1978}, {"Lower", 2569},  {"Alnum", 143519},   {"Han", 99030},
                {"Latin", 1487}, {"Any", 1112064}};
    for (size_t i = 0; i < RVI_COUNT(rows); i++) expect_count(rows[i].name, rows[i].n);
    rvi_cpset s = {0};
    assert_int_equal(rvi_cpset_add_property(&s, "Nope", 4), RVI_PROPERTY_UNKNOWN);
    assert_int_equal(rvi_cpset_add_property(&s, "", 0), RVI_PROPERTY_UNKNOWN);
    rvi_cpset_deinit(&s);
}

static void set_algebra(void **state)
{
    (void)state;
    rvi_cpset a = {0}, b = {0};
    assert_true(rvi_cpset_add(&a, 'm', 'z') && rvi_cpset_add(&a, 'a', 'f') &&
                rvi_cpset_add(&a, 'e', 'k') && rvi_cpset_add(&a, 0x300, 0x400));
    rvi_cpset_close(&a);
    assert_int_equal(a.n, 3);
    assert_true(rvi_cpset_has(&a, 'k') && !rvi_cpset_has(&a, 'l') && rvi_cpset_has(&a, 0x400) &&
                !rvi_cpset_has(&a, 0x401));
    assert_true(rvi_cpset_add(&b, 'j', 'n') && rvi_cpset_add(&b, 0x3F0, 0x10FFFF));
    rvi_cpset_close(&b);
    assert_true(rvi_cpset_intersect(&a, &b));
    assert_int_equal(count(&a), 2 + 2 + 0x11); /* j k, m n, 3F0..400 */
    rvi_cpset_deinit(&a);
    rvi_cpset_deinit(&b);
}

static void folding(void **state)
{
    (void)state;
    rvi_cpset s = {0};
    assert_true(rvi_cpset_add(&s, 's', 's') && rvi_cpset_add(&s, 0x3C3, 0x3C3) &&
                rvi_cpset_add(&s, 'K', 'K'));
    rvi_cpset_close(&s);
    assert_true(rvi_cpset_fold(&s));
    static const uint32_t members[] = {'s', 'S', 0x17F, 0x3A3, 0x3C2, 0x3C3, 'k', 'K', 0x212A};
    for (size_t i = 0; i < RVI_COUNT(members); i++) assert_true(rvi_cpset_has(&s, members[i]));
    assert_int_equal(count(&s), RVI_COUNT(members));
    rvi_cpset_deinit(&s);
    assert_int_equal(rvi_unicode_to_lower('A'), 'a');
    assert_int_equal(rvi_unicode_to_lower(0x100), 0x101);
    assert_int_equal(rvi_unicode_to_lower(0x101), 0x101);
    assert_int_equal(rvi_unicode_to_lower(0x10400), 0x10428);
    assert_int_equal(rvi_unicode_to_lower('1'), '1');
}

static void normal_forms(void **state)
{
    (void)state;
    rvi_blob blob;
    rvi_arena arena = {0};
    const rvi_json *rows;
    rv_error err = {0};
    assert_int_equal(rvi_blob_open(&blob, "tests/text/normal_forms.json", &err), RV_OK);
    assert_int_equal(
        rvi_json_parse(&rows, (const char *)blob.data, blob.len, &arena, "normal_forms", &err),
        RV_OK);
    assert_true(rvi_json_count(rows) > 300);
    for (size_t i = 0; i < rvi_json_count(rows); i++) {
        const rvi_json *row = rvi_json_at(rows, i), *text = rvi_json_at(row, 0);
        for (unsigned form = RVI_NFC; form <= RVI_NFKD; form++) {
            rvi_buf out = {0};
            const rvi_json *want = rvi_json_at(row, form + 1);
            assert_int_equal(rvi_unicode_normalize((rvi_unicode_form)form, text->as.string.data,
                                                   text->as.string.len, &out, &err),
                             RV_OK);
            if (out.len != want->as.string.len || memcmp(out.data, want->as.string.data, out.len))
                fail_msg("row %zu, form %u: '%s' gives '%s', not '%s'", i, form,
                         text->as.string.data, out.data, want->as.string.data);
            rvi_buf_deinit(&out);
        }
    }
    rvi_arena_deinit(&arena);
    rvi_blob_close(&blob);
}

/* A long run of marks in the wrong order: sorted in proportional time. */
static void many_marks(void **state)
{
    (void)state;
    enum { N = 100000 };
    char *text = malloc(4 * N + 1);
    rvi_buf out = {0};
    rv_error err;
    assert_non_null(text);
    text[0] = 'q';
    for (size_t i = 0; i < N; i++)
        memcpy(text + 1 + 4 * i, "\xCC\x81\xCC\xA3", 4); /* U+0301 (230), U+0323 (220) */
    assert_int_equal(rvi_unicode_normalize(RVI_NFC, text, 4 * N + 1, &out, &err), RV_OK);
    assert_int_equal(out.len, 4 * N + 1);
    for (size_t i = 0; i < 2 * N; i++)
        assert_memory_equal(out.data + 1 + 2 * i, i < N ? "\xCC\xA3" : "\xCC\x81", 2);
    rvi_buf_deinit(&out);
    free(text);
}

static void widths(void **state)
{
    static const struct {
        uint32_t c;
        int width;
    } cases[] = {{'a', 1},     {0xE9, 1},   {0x416, 1},  {0xAD, 1},    {0x301, 0},   {0x200B, 0},
                 {0x200D, 0},  {0xFE0F, 0}, {0x20DD, 0}, {0x1100, 2},  {0x1161, 0},  {0x11A8, 0},
                 {0x3042, 2},  {0x4E2D, 2}, {0xAC00, 2}, {0xFF21, 2},  {0xFF71, 1},  {0x1F600, 2},
                 {0x1F680, 2}, {0x231A, 2}, {0x2764, 1}, {0x20000, 2}, {0x10FFFF, 1}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int width = rvi_char_width(cases[i].c);
        if (width != cases[i].width) print_error("U+%04X\n", (unsigned)cases[i].c);
        assert_int_equal(width, cases[i].width);
    }
}

/* Letters of Unicode 16 have their case mappings in every table. */
static void newest_letters(void **state)
{
    static const uint32_t pairs[][2] = {
        {0x1C89, 0x1C8A}, {0xA7CB, 0x264}, {0xA7DA, 0xA7DB}, {0xA7DC, 0x19B}, {0x10D50, 0x10D70}};
    uint32_t to[3];
    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        assert_int_equal(rvi_char_to_lower(pairs[i][0], to), 1);
        assert_int_equal(to[0], pairs[i][1]);
        assert_int_equal(rvi_char_to_upper(pairs[i][1], to), 1);
        assert_int_equal(to[0], pairs[i][0]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(properties),     cmocka_unit_test(set_algebra), cmocka_unit_test(folding),
        cmocka_unit_test(normal_forms),   cmocka_unit_test(many_marks),  cmocka_unit_test(widths),
        cmocka_unit_test(newest_letters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
