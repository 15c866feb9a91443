/* Stop strings: the same text whatever the borders of its pieces. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "decode/stop.h"

typedef struct example {
    const char *stops[3];
    size_t n;
    const char *text, *want;
    bool hit;
    size_t which; /* of stops */
} example;

static const example examples[] = {
    {{"END"}, 1, "hello END world", "hello ", true, 0},
    {{"END"}, 1, "hello EN", "hello EN", false, 0},
    {{"END"}, 1, "ENENDx", "EN", true, 0},
    {{"aab"}, 1, "aaaab", "aa", true, 0},
    {{"\n\n"}, 1, "one\ntwo\n\nthree", "one\ntwo", true, 0},
    {{"abcX", "bc"}, 2, "abcY", "a", true, 1},
    {{"abcX", "bc"}, 2, "abcX", "", true, 0},
    {{"abcX", "bc"}, 2, "abc", "a", true, 1}, /* complete at the end, inside what was held back */
    {{"x", "END", "ND"}, 3, "an END", "an ", true, 1},
    {{"\xF0\x9F\x98\x80"}, 1, "smile \xF0\x9F\x98\x80!", "smile ", true, 0},
    {{0}, 0, "no stops at all", "no stops at all", false, 0},
};

static void any_borders(void **state)
{
    (void)state;
    for (size_t e = 0; e < RVI_COUNT(examples); e++) {
        const example *x = &examples[e];
        size_t len = strlen(x->text);
        for (size_t piece = 1; piece <= len; piece++) {
            rvi_stop s;
            rvi_buf out = {0};
            rvi_stop_init(&s, x->stops, x->n);
            for (size_t at = 0; at < len && !s.hit; at += piece)
                assert_true(rvi_stop_push(&s, x->text + at, RVI_MIN(piece, len - at), &out));
            if (!s.hit) assert_true(rvi_stop_flush(&s, &out));
            assert_int_equal(s.hit, x->hit);
            assert_int_equal(s.which, x->which);
            assert_string_equal(out.data ? out.data : "", x->want);
            rvi_stop_deinit(&s);
            rvi_buf_deinit(&out);
        }
    }
}

/* Nothing that could be the beginning of a stop string leaves early, and nothing else is held back.
 */
static void holds_back_no_more_than_needed(void **state)
{
    (void)state;
    static const char *const stops[] = {"STOP"};
    rvi_stop s;
    rvi_buf out = {0};
    rvi_stop_init(&s, stops, 1);
    assert_true(rvi_stop_push(&s, "a ST", 4, &out));
    assert_string_equal(out.data, "a ");
    assert_true(rvi_stop_push(&s, "A", 1, &out));
    assert_string_equal(out.data, "a STA");
    rvi_stop_deinit(&s);
    rvi_buf_deinit(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(any_borders),
                                       cmocka_unit_test(holds_back_no_more_than_needed)};
    return cmocka_run_group_tests_name("stop", tests, NULL, NULL);
}
