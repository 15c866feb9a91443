/* Schemas that are made to take long: each is either read, masks and all, within the work that is
 * allowed, or refused with its place. No clock decides: what is counted does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/json.h"
#include "grammar/grammar.h"
#include "grammar/vocab_fixture.h"

static rvi_vocab *vocab;

static int setup(void **state)
{
    (void)state;
    return rvi_vocab_new(&vocab, FIXTURE_SIZE, fixture_piece, NULL, NULL) != RV_OK;
}

static int teardown(void **state)
{
    (void)state;
    rvi_vocab_free(vocab);
    return 0;
}

/* pattern: with %d for each number from 0 to n - 1. */
static void put_many(rvi_buf *out, const char *before, const char *pattern, int n)
{
    const char *number = strstr(pattern, "%d"), *next = number ? strstr(number + 2, "%d") : NULL;
    rvi_buf_puts(out, before);
    for (int i = 0; i < n; i++) {
        if (i) rvi_buf_putc(out, ',');
        rvi_buf_append(out, pattern, (size_t)(number - pattern));
        rvi_buf_printf(out, "%d", i);
        rvi_buf_append(out, number + 2, next ? (size_t)(next - number - 2) : strlen(number + 2));
        if (next) rvi_buf_printf(out, "%d%s", i, next + 2);
    }
}

static rvi_grammar *compile(rvi_buf *schema, rv_error *err)
{
    rvi_grammar *g;
    assert_false(schema->failed);
    assert_true(schema->len < 1 << 20);
    rv_status st = rvi_grammar_schema(&g, vocab, schema->data, schema->len, NULL, err);
    rvi_buf_deinit(schema);
    assert_int_equal(st != RV_OK, g == NULL);
    return g;
}

static void expect_refused(rvi_buf *schema, const char *where)
{
    rv_error err;
    rvi_grammar *g = compile(schema, &err);
    if (g) fail_msg("%s: not refused", where);
    if (strncmp(err.text, where, strlen(where)) != 0) fail_msg("%s: %s", where, err.text);
    assert_non_null(strstr(err.text, "too much work"));
}

/* Every token's bit on the way says what reading the token says, and the text is taken. */
static void expect_read(rvi_buf *schema, const char *text)
{
    rv_error err;
    uint64_t copy[FIXTURE_SIZE / 64 + 1];
    const uint64_t *mask;
    rvi_grammar *g = compile(schema, &err);
    if (!g) fail_msg("%s", err.text);
    uint32_t at = rvi_grammar_start(g), next;
    for (size_t i = 0; text[i] && at; i++) {
        if (rvi_grammar_mask(g, at, &mask, &err)) fail_msg("%s: %s", text, err.text);
        memcpy(copy, mask, sizeof copy);
        for (int32_t id = 0; id < FIXTURE_SIZE; id++) {
            if (id == FIXTURE_EOS) continue;
            assert_int_equal(rvi_grammar_token(g, at, id, &next, NULL), RV_OK);
            assert_int_equal(copy[id / 64] >> (id % 64) & 1, next != 0);
        }
        assert_int_equal(rvi_grammar_token(g, at, (uint8_t)text[i], &at, NULL), RV_OK);
    }
    assert_true(at && rvi_grammar_ends(g, at));
    rvi_grammar_free(g);
}

static void test_many_members(void **state)
{
    rvi_buf s = {0};
    (void)state;
    put_many(&s, "{\"properties\":{", "\"n%d\":{}", 60000);
    rvi_buf_puts(&s, "},\"additionalProperties\":false}");
    expect_read(&s, "{\"n7\":1,\"n59999\":2}");
    put_many(&s, "{\"required\":[\"n1\"],\"properties\":{", "\"n%d\":{}", 60000);
    rvi_buf_puts(&s, "},\"patternProperties\":{\"^x\":{}},\"additionalProperties\":false}");
    expect_read(&s, "{\"n59999\":2,\"xyz\":3,\"n1\":4}");
    put_many(&s, "{\"const\":{", "\"n%d\":0", 60000);
    rvi_buf_puts(&s, ",\"n5\":1}}"); /* the last one counts */
    rv_error err;
    rvi_grammar *g = compile(&s, &err);
    assert_non_null(g);
    uint32_t at;
    assert_int_equal(rvi_grammar_text(g, rvi_grammar_start(g), "{\"n5\":1,", 8, &at, NULL), RV_OK);
    assert_true(at);
    assert_int_equal(rvi_grammar_text(g, rvi_grammar_start(g), "{\"n5\":0", 7, &at, NULL), RV_OK);
    assert_false(at);
    rvi_grammar_free(g);
}

static void test_many_references(void **state)
{
    rvi_buf s = {0};
    (void)state;
    put_many(&s, "{\"$defs\":{", "\"d%d\":{\"type\":\"null\"}", 16000);
    put_many(&s, "},\"properties\":{", "\"p%d\":{\"$ref\":\"#/$defs/d%d\"}", 16000);
    rvi_buf_puts(&s, "}}");
    expect_read(&s, "{\"p7\":null,\"p15999\":null}");
    put_many(&s, "{\"properties\":{", "\"p%d\":{\"type\":\"string\",\"format\":\"date\"}", 20000);
    rvi_buf_puts(&s, "}}");
    expect_read(&s, "{\"p7\":\"2000-02-29\"}");

    put_many(&s, "{\"$defs\":{", "\"d%d\":{\"$anchor\":\"a%d\"}", 12000);
    put_many(&s, "},\"properties\":{", "\"p%d\":{\"$ref\":\"#a%d\"}", 12000);
    rvi_buf_puts(&s, "}}");
    expect_refused(&s, "#/properties/p");
    put_many(&s, "{\"$id\":\"http://a/\",\"$defs\":{", "\"d%d\":{\"$id\":\"i%d\"}", 10000);
    put_many(&s, "},\"properties\":{", "\"p%d\":{\"$ref\":\"i%d\"}", 10000);
    rvi_buf_puts(&s, "}}");
    expect_refused(&s, "#/properties/p");
}

/* Each name makes the next one needed, and the last is impossible. */
static void test_chains(void **state)
{
    rvi_buf s = {0};
    (void)state;
    rvi_buf_puts(&s, "{\"properties\":{\"a\":{},\"a29999\":false},\"dependentRequired\":{\"x\":[]");
    for (int i = 10000; i < 29999; i++) rvi_buf_printf(&s, ",\"a%d\":[\"a%d\"]", i, i + 1);
    rvi_buf_puts(&s, "}}");
    expect_refused(&s, "#: ");
    rvi_buf_puts(&s, "{\"$defs\":{\"d6000\":{}");
    for (int i = 0; i < 6000; i++)
        rvi_buf_printf(&s,
                       ",\"d%d\":{\"type\":\"object\",\"required\":[\"n\"],\"properties\":{\"n\":{"
                       "\"$ref\":\"#/$defs/d%d\"}}}",
                       i, i + 1);
    rvi_buf_puts(&s, "},\"properties\":{\"x\":{}");
    for (int i = 0; i <= 6000; i++)
        rvi_buf_printf(&s, ",\"p%d\":{\"$ref\":\"#/$defs/d%d\"}", 10000 + i, 6000 - i);
    rvi_buf_puts(&s, "}}");
    expect_refused(&s, "#/");
}

static void test_large_sets(void **state)
{
    rvi_buf s = {0};
    rv_error err;
    (void)state;
    rvi_buf_puts(&s, "{\"properties\":{\"x\":{}");
    for (int i = 0; i < 50; i++) {
        rvi_buf_printf(&s, ",\"p%d\":{\"pattern\":\"", i);
        for (int k = 0; k < 800; k++) rvi_buf_puts(&s, "\\\\p{L}[\\\\p{N}\\\\p{P}]");
        rvi_buf_puts(&s, "\"}");
    }
    rvi_buf_puts(&s, "}}");
    expect_refused(&s, "#/properties/p");
    put_many(&s, "{\"allOf\":[", "{\"properties\":{\"n%d\":{}}}", 25000);
    rvi_buf_puts(&s, "]}");
    rvi_grammar *g = compile(&s, &err);
    assert_null(g);
    assert_non_null(strstr(err.text, "#: the schema needs too much memory"));
}

/* Strings that must all differ: what is left of them is kept from item to item. */
static void test_many_that_differ(void **state)
{
    static const char schema[] =
        "{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"type\":\"string\"}}";
    rvi_grammar *g;
    rv_error err;
    (void)state;
    assert_int_equal(rvi_grammar_schema(&g, vocab, schema, strlen(schema), NULL, &err), RV_OK);
    uint32_t at = rvi_grammar_start(g), next;
    assert_int_equal(rvi_grammar_text(g, at, "[", 1, &at, NULL), RV_OK);
    for (int i = 0; i < 300; i++) {
        const uint64_t *mask;
        rvi_buf item = {0};
        rvi_buf_printf(&item, "\"s%d\",", i);
        if (rvi_grammar_mask(g, at, &mask, &err)) fail_msg("%d: %s", i, err.text);
        if (rvi_grammar_text(g, at, item.data, item.len, &at, &err))
            fail_msg("%d: %s", i, err.text);
        assert_true(at);
        assert_int_equal(rvi_grammar_text(g, at, "\"s0\"", 4, &next, NULL), RV_OK);
        assert_false(next);
        rvi_buf_deinit(&item);
    }
    rvi_grammar_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many_members),     cmocka_unit_test(test_many_references),
        cmocka_unit_test(test_chains),           cmocka_unit_test(test_large_sets),
        cmocka_unit_test(test_many_that_differ),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
