/* Texts: UTF-8, blank ones, folding, whole words; patterns as bytes. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "harness/assert_ok.h"
#include "learn/pattern.h"
#include "learn/text.h"

static rvi_text text(const char *s)
{
    return (rvi_text){s, strlen(s)};
}

static void expect_fold(const char *from, const char *to)
{
    rvi_buf b = {0};
    assert_true(rvi_text_fold(&b, text(from)));
    assert_int_equal(b.len, strlen(to));
    if (b.len) assert_memory_equal(b.data, to, b.len);
    rvi_buf_deinit(&b);
}

static void test_fold(void **state)
{
    (void)state;
    expect_fold("", "");
    expect_fold("  \t\n", "");
    expect_fold(" What  IS\tthis ?! ", "what is this");
    expect_fold("ÄÖÜ Ελλάδα.", "äöü ελλάδα");
    expect_fold("a\xc2\xa0 b", "a b"); /* a no-break space is a space */
    expect_fold("3.14", "3.14");
    expect_fold("...", "");
    assert_true(rvi_text_blank(text(" \xe2\x80\x83\n")));
    assert_false(rvi_text_blank(text(" x ")));
    assert_true(rvi_text_blank((rvi_text){0}));
    assert_int_equal(rvi_text_invalid(text("abc")), 3);
    assert_int_equal(rvi_text_invalid(text("ab\xff")), 2);
    assert_int_equal(rvi_text_invalid(text("ab\xe2\x82")), 2);
}

static bool has(const char *whole, const char *part)
{
    bool yes = false;
    assert_ok(rvi_text_has_words(&yes, text(whole), text(part), err));
    return yes;
}

static void test_words(void **state)
{
    (void)state;
    assert_true(has("What is Kakovin's pet?", "kakovin"));
    assert_true(has("What is Kakovin's pet?", "KAKOVIN'S  PET"));
    assert_false(has("to concatenate", "cat"));
    assert_true(has("to concat cat", "cat"));
    assert_false(has("cats", "cat"));
    assert_false(has("Müller", "M"));
    assert_true(has("C++", "c++"));
    assert_true(has("cat", "cat"));
    assert_false(has("cat", ""));
    assert_false(has("", "cat"));
    assert_false(has("ca", "cat"));
}

static void test_verdicts(void **state)
{
    (void)state;
    static const struct {
        double score;
        rvi_verdict verdict;
    } labelled[] = {
        {0, RVI_VERDICT_FAILURE},   {0.29, RVI_VERDICT_FAILURE}, {0.3, RVI_VERDICT_PARTIAL},
        {0.5, RVI_VERDICT_PARTIAL}, {0.69, RVI_VERDICT_PARTIAL}, {0.7, RVI_VERDICT_SUCCESS},
        {1, RVI_VERDICT_SUCCESS},   {NAN, RVI_VERDICT_UNKNOWN},
    };
    for (size_t i = 0; i < RVI_COUNT(labelled); i++)
        assert_int_equal(rvi_verdict_of(labelled[i].score), labelled[i].verdict);
    assert_string_equal(rvi_verdict_name(RVI_VERDICT_PARTIAL), "partial");
}

static rvi_pattern sample(const float *vector, size_t n_dim)
{
    return (rvi_pattern){.id = 7,
                         .event = 3,
                         .last_event = UINT64_MAX,
                         .verdict = RVI_VERDICT_PARTIAL,
                         .state = RVI_PATTERN_ABSORBED,
                         .correction = true,
                         .distilled = true,
                         .quality = 0.4f,
                         .n_scores = 9,
                         .uses = 5,
                         .last_use = -1,
                         .generation = 2,
                         .question = text("What?"),
                         .answer = text("That \xe2\x82\xac."),
                         .relation = text("r"),
                         .vector = vector,
                         .n_dim = n_dim};
}

static void test_bytes(void **state)
{
    (void)state;
    static float scratch[RVI_PATTERN_MAX_DIM];
    const float vector[] = {0.25f, -3e-20f, 1e10f};
    rvi_pattern p = sample(vector, 3), q;
    rvi_buf b = {0}, again = {0};
    assert_ok(rvi_pattern_write(&b, &p, err));
    assert_ok(rvi_pattern_parse(&q, (rvi_bytes){b.data, b.len}, scratch, err));
    assert_memory_equal(q.vector, vector, sizeof vector);
    assert_int_equal(q.answer.len, p.answer.len);
    assert_int_equal(q.last_use, -1);
    assert_true(q.correction && q.distilled && q.quality == 0.4f && !q.subject.len);
    assert_ok(rvi_pattern_write(&again, &q, err));
    assert_int_equal(again.len, b.len);
    assert_memory_equal(again.data, b.data, b.len);
    for (size_t len = 0; len < b.len; len++) /* cut anywhere */
        assert_int_not_equal(rvi_pattern_parse(&q, (rvi_bytes){b.data, len}, scratch, NULL), RV_OK);
    for (size_t i = 0; i < b.len; i++) { /* any byte all ones: an error, or another pattern */
        char kept = b.data[i];
        b.data[i] = (char)0xFF;
        (void)!rvi_pattern_parse(&q, (rvi_bytes){b.data, b.len}, scratch, NULL);
        b.data[i] = kept;
    }
    rvi_buf_deinit(&b);
    rvi_buf_deinit(&again);
}

static void refuse(rvi_pattern p, const char *wanted)
{
    rv_error why = {0};
    assert_int_equal(rvi_pattern_check(&p, &why), RV_E_INVALID);
    if (!strstr(why.text, wanted)) fail_msg("%s", why.text);
}

static void test_refused(void **state)
{
    (void)state;
    static char big[RVI_PATTERN_MAX_TEXT + 1];
    const float zero[2] = {0}, bad[2] = {1, NAN}, good[2] = {1, 2};
    memset(big, 'x', sizeof big);
    rvi_pattern p = sample(good, 2);
    assert_ok(rvi_pattern_check(&p, err));
    p.answer = text("  ");
    refuse(p, "no answer");
    p.answer = (rvi_text){big, sizeof big};
    refuse(p, "answer has 65537 bytes");
    p = sample(good, 2);
    p.subject = (rvi_text){big, RVI_PATTERN_MAX_WORD + 1};
    refuse(p, "subject has");
    p = sample(good, 2);
    p.question = text("\xff");
    refuse(p, "question is not UTF-8");
    p.question = (rvi_text){0};
    refuse(p, "no question");
    refuse(sample(zero, 2), "zero or not finite");
    refuse(sample(bad, 2), "zero or not finite");
    refuse(sample(NULL, 2), "a vector of 2");
    refuse(sample(good, 0), "a vector of 0");
    p = sample(good, 2);
    p.quality = NAN;
    refuse(p, "quality");
    p.quality = 0;
    p.verdict = (rvi_verdict)9;
    refuse(p, "unknown verdict");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fold),     cmocka_unit_test(test_words),
        cmocka_unit_test(test_verdicts), cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests_name("texts and patterns", tests, NULL, NULL);
}
