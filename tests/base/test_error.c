/* Error texts: whole UTF-8 characters, nothing that drives a terminal, always terminated. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/error.h"
#include "base/log.h"
#include "base/utf8.h"

static void test_simple(void **state)
{
    (void)state;
    rv_error err = {0};
    assert_int_equal(rvi_error(&err, RV_E_MODEL, "tensor '%s' at %d", "x", 7), RV_E_MODEL);
    assert_int_equal(err.code, RV_E_MODEL);
    assert_string_equal(err.text, "tensor 'x' at 7");
    assert_int_equal(rvi_error(NULL, RV_E_IO, "%s", "nobody listens"), RV_E_IO);
    assert_int_equal(rvi_nomem(&err, "token table"), RV_E_NOMEM);
    assert_string_equal(err.text, "out of memory: token table");
    assert_int_equal(rvi_error(&err, RV_E_IO, "%s", ""), RV_E_IO);
    assert_string_equal(err.text, "");
}

/* Texts of every length around the limit, made of characters of 1 to 4 bytes. */
static void test_cut_at_a_whole_character(void **state)
{
    (void)state;
    static const char *const chars[] = {"a", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80"};
    for (size_t c = 0; c < RVI_COUNT(chars); c++)
        for (size_t lead = 0; lead < 5; lead++) {
            char text[1200] = "xxxx";
            size_t n = strlen(chars[c]);
            text[lead] = 0;
            for (size_t len = lead; len + n < sizeof text; len += n) {
                memcpy(text + len, chars[c], n + 1);
                rv_error err;
                memset(&err, 0x55, sizeof err);
                rvi_error(&err, RV_E_IO, "%s", text);
                size_t full = len + n, room = sizeof err.text - 1;
                bool cut = full > room;
                size_t expected = cut ? lead + (room - 3 - lead) / n * n : full;
                assert_int_equal(strlen(err.text), expected + (cut ? 3 : 0));
                assert_memory_equal(err.text, text, expected);
                assert_string_equal(err.text + expected, cut ? "..." : "");
            }
        }
}

static void test_control_characters(void **state)
{
    (void)state;
    rv_error err;
    rvi_error(&err, RV_E_MODEL, "%s", "a\x1B[31mred\r\n\tb\x07\x7F\x01z");
    assert_string_equal(err.text, "a?[31mred?\n\tb???z");
    rvi_error(&err, RV_E_MODEL, "%s",
              "x\xC2\x9B"
              "31m\xC2\x80\xC2\xA0y"); /* C1 controls, then a no-break space */
    assert_string_equal(err.text, "x?31m?\xC2\xA0y");
}

static void test_invalid_utf8(void **state)
{
    (void)state;
    rv_error err;
    rvi_error(&err, RV_E_MODEL, "%s",
              "a\xFF"
              "b\x9B"
              "c\xE2\x82"
              "d\xC3");
    assert_string_equal(err.text, "a?b?c?d?");
    for (int byte = 1; byte < 256; byte++) { /* any bytes at all: the result is UTF-8 */
        char text[900];
        for (size_t i = 0; i < sizeof text - 1; i++)
            text[i] = (char)(1 + (byte * (int)i * 7 + byte) % 255);
        text[sizeof text - 1] = 0;
        rvi_error(&err, RV_E_MODEL, "%s", text);
        size_t len = strlen(err.text);
        assert_true(len < sizeof err.text);
        for (size_t i = 0; i < len;) {
            uint32_t cp;
            bool valid = false;
            i += rvi_utf8_decode(err.text + i, len - i, &cp, &valid);
            assert_true(valid);
            assert_true(cp == '\n' || cp == '\t' || (cp >= 0x20 && cp < 0x7F) || cp >= 0xA0);
        }
    }
}

static void test_status_names(void **state)
{
    (void)state;
    assert_string_equal(rv_status_name(RV_OK), "RV_OK");
    assert_string_equal(rv_status_name(RV_E_NOMEM), "RV_E_NOMEM");
    assert_string_equal(rv_status_text(RV_E_MODEL), "bad model file");
    assert_string_equal(rv_status_name((rv_status)9999), "RV_E_UNKNOWN");
    assert_string_equal(rv_status_text((rv_status)9999), "unknown status");
    int values[] = {
#define X(name, value, text) RV_##name,
        RV_STATUS_MAP(X)
#undef X
    };
    for (size_t i = 0; i < RVI_COUNT(values); i++) {
        assert_int_equal(values[i], i); /* one after the other, none twice */
        assert_int_equal(strncmp(rv_status_name((rv_status)values[i]), "RV_", 3), 0);
    }
}

typedef struct heard {
    int n;
    rvi_log_level level;
    char line[2000];
} heard;

static void hear(void *ctx, rvi_log_level level, const char *line)
{
    heard *h = ctx;
    h->n++;
    h->level = level;
    assert_true(strlen(line) < sizeof h->line);
    memcpy(h->line, line, strlen(line) + 1);
}

static void test_log(void **state)
{
    (void)state;
    heard h = {0};
    rvi_log log = {.sink = hear, .ctx = &h, .level = RVI_LOG_WARN};
    rvi_log_write(NULL, RVI_LOG_ERROR, "nobody");
    rvi_log_write(&(rvi_log){0}, RVI_LOG_ERROR, "nobody");
    rvi_log_write(&log, RVI_LOG_INFO, "too talkative");
    assert_int_equal(h.n, 0);
    rvi_log_write(&log, RVI_LOG_WARN, "%d of %d", 1, 2);
    assert_int_equal(h.n, 1);
    assert_int_equal(h.level, RVI_LOG_WARN);
    assert_string_equal(h.line, "1 of 2");
    char text[3000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    rvi_log_write(&log, RVI_LOG_ERROR, "%s", text); /* cut, not overflowing */
    assert_int_equal(h.n, 2);
    assert_true(strlen(h.line) > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_simple),
        cmocka_unit_test(test_cut_at_a_whole_character),
        cmocka_unit_test(test_control_characters),
        cmocka_unit_test(test_invalid_utf8),
        cmocka_unit_test(test_status_names),
        cmocka_unit_test(test_log),
    };
    return cmocka_run_group_tests_name("error", tests, NULL, NULL);
}
