/* Every allocation of compiling a grammar, walking a text with masks, and looking for an end fails
 * once: an error each time (looking for an end may find none instead), and nothing leaks (the
 * sanitizer pass watches). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "grammar/grammar.h"
#include "grammar/vocab_fixture.h"
#include "harness/alloc_sweep.h"

typedef enum kind { SCHEMA, REGEX, GBNF, LARK, CHOICES } kind;

static const struct {
    kind kind;
    const char *source, *text;
} cases[] = {
    {SCHEMA,
     "{\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"next\":{\"$ref\":\"#/$defs/n\"},"
     "\"v\":{\"type\":\"number\",\"minimum\":-1.5,\"multipleOf\":0.5}},\"required\":[\"v\"]}},"
     "\"anyOf\":[{\"$ref\":\"#/$defs/n\"},{\"type\":\"array\",\"items\":{\"type\":\"string\","
     "\"pattern\":\"^a[bc]+$\",\"maxLength\":9},\"minItems\":1}]}",
     "{\"v\": 1.5, \"next\": {\"v\": 2}}"},
    {SCHEMA, "{\"type\":\"array\",\"items\":{\"enum\":[\"a\",\"ab\"]},\"uniqueItems\":true}",
     "[\"a\",\"ab\"]"},
    {REGEX, "(a|bc)*\\d{2,4}[^x-z]?", "abcabc123-"},
    {GBNF,
     "root ::= list | \"x\"\nlist ::= \"[\" ( item ( \",\" item )* )? \"]\"\nitem ::= [0-9]+ "
     "| list\n",
     "[1,[23,4],[]]"},
    {LARK,
     "start: _list\n_list: \"[\" [item (\",\" item)*] \"]\"\nitem: NUMBER | WORD~1..2 | _list\n"
     "NUMBER: /[0-9]+/\nWORD: (\"a\"..\"f\")+\n%ignore /[ ]+/\n",
     "[12, abc,[ab]]"},
    {CHOICES, NULL, "abcd"},
};

static rv_status make(rvi_grammar **g, const rvi_vocab *v, size_t i, rv_error *err)
{
    static const char choices[] = "[\"ab\",\"abcd\",\"null\"]";
    const char *s = cases[i].source;
    switch (cases[i].kind) {
    case SCHEMA: return rvi_grammar_schema(g, v, s, strlen(s), NULL, err);
    case REGEX: return rvi_grammar_regex(g, v, s, strlen(s), err);
    case GBNF: return rvi_grammar_gbnf(g, v, s, strlen(s), NULL, err);
    case LARK: return rvi_grammar_lark(g, v, s, strlen(s), NULL, err);
    case CHOICES: return rvi_grammar_choices(g, v, choices, sizeof choices - 1, err);
    }
    return RV_E_INVALID;
}

static rv_status whole_life(size_t i, rv_error *err)
{
    rvi_vocab *v = NULL;
    rvi_grammar *g = NULL;
    rv_status st = rvi_vocab_new(&v, FIXTURE_SIZE, fixture_piece, NULL, err);
    if (!st) st = make(&g, v, i, err);
    uint32_t state = st ? 0 : rvi_grammar_start(g), after;
    rvi_buf forced = {0};
    for (const char *c = cases[i].text; !st && *c; c++) {
        const uint64_t *mask;
        st = rvi_grammar_mask(g, state, &mask, err);
        if (!st) st = rvi_grammar_forced(g, state, 64, &forced, &after, err);
        if (!st) st = rvi_grammar_token(g, state, (uint8_t)*c, &state, err);
        if (!st && !state) fail_msg("%zu: '%s' leaves the grammar", i, c);
    }
    if (!st && !rvi_grammar_ends(g, state)) { /* no, or it could not find out */
        if (!atomic_load(&fail_alloc_refused)) fail_msg("%zu: the text may not end", i);
        st = rvi_nomem(err, "grammar");
    }
    rvi_buf_deinit(&forced);
    rvi_grammar_free(g);
    rvi_vocab_free(v);
    return st;
}

static void grammars(void **state)
{
    (void)state;
    for (size_t i = 0; i < RVI_COUNT(cases); i++) {
        assert_true(alloc_sweep(whole_life, i, false) > 20);
        assert_true(alloc_sweep(whole_life, i, true) > 20);
    }
}

/* An end is looked for: found, not found for want of memory, or an error. */
static void ends(void **state)
{
    (void)state;
    rvi_vocab *v;
    rvi_grammar *g;
    uint32_t behind;
    assert_int_equal(rvi_vocab_new(&v, FIXTURE_SIZE, fixture_piece, NULL, NULL), RV_OK);
    for (long n = 0;; n++) {
        rvi_buf text = {0};
        bool found = false;
        rv_error err = {0};
        assert_int_equal(make(&g, v, 0, NULL), RV_OK);
        assert_int_equal(rvi_grammar_text(g, rvi_grammar_start(g), "{\"ne", 4, &behind, NULL),
                         RV_OK);
        fail_alloc_after(n);
        rv_status st = rvi_grammar_finish(g, behind, &text, &found, &err);
        bool refused = fail_alloc_off();
        if (st && st != RV_E_NOMEM) fail_msg("call %ld refused, but status %d", n, st);
        if (!refused) assert_true(!st && found && text.len > 4);
        rvi_buf_deinit(&text);
        rvi_grammar_free(g);
        if (!refused) break;
    }
    rvi_vocab_free(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(grammars), cmocka_unit_test(ends)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
