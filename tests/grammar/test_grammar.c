/* Schemas, expressions and grammars against texts; at every state on the way, the mask of all
 * tokens against reading each token byte by byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "grammar/grammar.h"
#include "grammar/rx_parse.h"
#include "grammar/vocab_fixture.h"

typedef struct example {
    const char *source;
    const char *good[12], *bad[12];
} example;

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

/* Every bit of the mask says what reading the token's bytes says. */
static void check_mask(rvi_grammar *g, uint32_t state, const char *source, const char *text)
{
    uint64_t copy[FIXTURE_SIZE / 64 + 1];
    const uint64_t *mask;
    assert_int_equal(rvi_grammar_mask(g, state, &mask, NULL), RV_OK);
    memcpy(copy, mask, sizeof copy);
    bool ends = rvi_grammar_ends(g, state), eos = copy[FIXTURE_EOS / 64] >> (FIXTURE_EOS % 64) & 1;
    assert_int_equal(ends, eos);
    for (int32_t id = 0; id < FIXTURE_SIZE; id++) {
        uint32_t next;
        if (id == FIXTURE_EOS) continue;
        assert_int_equal(rvi_grammar_token(g, state, id, &next, NULL), RV_OK);
        bool bit = copy[id / 64] >> (id % 64) & 1;
        if (bit != (next != 0))
            fail_msg("%s: %s: token %d: mask %d, text %d", source, text, (int)id, bit, next != 0);
    }
}

static bool accepts(rvi_grammar *g, const char *source, const char *text)
{
    uint32_t state = rvi_grammar_start(g);
    for (size_t i = 0; i < strlen(text) && state; i++) {
        check_mask(g, state, source, text);
        assert_int_equal(rvi_grammar_token(g, state, (uint8_t)text[i], &state, NULL), RV_OK);
    }
    if (state) check_mask(g, state, source, text);
    return state && rvi_grammar_ends(g, state);
}

static void run_example(rvi_grammar *g, const example *e)
{
    for (size_t i = 0; e->good[i]; i++)
        if (!accepts(g, e->source, e->good[i])) fail_msg("%s refuses %s", e->source, e->good[i]);
    for (size_t i = 0; e->bad[i]; i++)
        if (accepts(g, e->source, e->bad[i])) fail_msg("%s allows %s", e->source, e->bad[i]);
}

static const example schemas[] = {
    {"{\"oneOf\":[{\"const\":\"a\",\"title\":\"x\"},{\"const\":\"b\"},{\"const\":\"b\"},"
     "{\"enum\":[\"c\"],\"type\":\"string\"},{\"const\":\"ab\"}]}",
     {"\"a\"", "\"c\"", "\"ab\""},
     {"\"b\"", "\"d\"", "1"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\"string\"}"
     "},"
     "\"required\":[\"a\"],\"additionalProperties\":false}",
     {"{\"a\":1}", "{ \"b\" : \"x\" , \"a\" : -12 }", "{\"\\u0061\":0}", "{\"a\":1.0}"},
     {"{}", "{\"b\":\"x\"}", "{\"a\":1,\"a\":2}", "{\"a\":1,\"c\":2}", "{\"a\":1.5}", "{\"a\":01}",
      "{\"a\":1,}"}},
    {"{\"type\":\"number\",\"minimum\":-1.5,\"exclusiveMaximum\":20}",
     {"-1.5", "-1.50", "0", "19.999", "-0", "2"},
     {"-1.51", "20", "20.0", "-2", "100", "1e1", "\"1\""}},
    {"{\"multipleOf\":0.01}", {"0.01", "4.35", "7", "1.230"}, {"0.001", "4.351"}},
    {"{\"type\":\"integer\",\"multipleOf\":999983}",
     {"0", "-0", "999983", "-1999966", "999983.00", "99998300000"},
     {"1", "999984", "999983.1", "1999966.01", "5.0"}},
    {"{\"type\":\"string\",\"pattern\":\"^a+b?$\",\"maxLength\":3}",
     {"\"a\"", "\"aab\"", "\"\\u0061b\""},
     {"\"aaab\"", "\"b\"", "\"\"", "\"ab\\n\""}},
    {"{\"type\":\"string\",\"format\":\"date\"}",
     {"\"2024-02-29\"", "\"1999-12-31\"", "\"0001-01-01\"", "\"0010-01-01\"", "\"0400-02-29\""},
     {"\"2023-02-29\"", "\"1999-13-01\"", "\"1999-1-01\"", "\"0000-01-01\"", "\"0000-02-29\""}},
    {"{\"type\":\"string\",\"format\":\"date-time\"}",
     {"\"2000-02-29T23:59:59Z\""},
     {"\"0000-02-29T23:59:59Z\"", "\"0000-12-31T23:59:59Z\""}},
    {"{\"enum\":[1,\"two\",null,[3],{\"k\":true}]}",
     {"1", "1.0", "\"two\"", "null", "[3]", "{\"k\":true}"},
     {"2", "\"t\"", "[]", "[3,3]", "{\"k\":false}", "{}", "true"}},
    {"{\"oneOf\":[{\"multipleOf\":2},{\"multipleOf\":3}],\"type\":\"integer\"}",
     {"2", "3", "4", "9"},
     {"6", "12", "0", "5"}},
    {"{\"type\":\"object\",\"oneOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}]}",
     {"{\"a\":1}", "{\"b\":1}", "{\"c\":0,\"a\":1}"},
     {"{}", "{\"a\":1,\"b\":2}"}},
    {"{\"not\":{\"type\":[\"string\",\"object\"]}}", {"1", "null", "[\"a\"]"}, {"\"a\"", "{}"}},
    /* names that go where no other key goes on: not possible at all, or there already */
    {"{\"not\":{\"required\":[\"a\"]},\"propertyNames\":{\"maxLength\":0}}",
     {"{}", "{\"\":1}"},
     {"{\"a\":1}", "{\"b\":1}", "3"}},
    {"{\"type\":\"object\",\"properties\":{\"ab\":{}},\"patternProperties\":{\"^$\":{}},"
     "\"additionalProperties\":false}",
     {"{\"ab\":1,\"\":2}", "{\"\":2}"},
     {"{\"ab\":1,\"ab\":2}", "{\"a\":1}"}},
    {"{\"type\":\"object\",\"properties\":{\"ab\":{},\"\xC3\xA9\":{},\"/x\":{\"type\":\"null\"}},"
     "\"patternProperties\":{\"^/[^/]*$\":{}},\"additionalProperties\":false}",
     {"{\"/\":1,\"ab\":2}", "{\"/\xC3\xA9x\":1,\"\xC3\xA9\":2}", "{\"/x\":null,\"/xx\":3}"},
     {"{\"ab\":1,\"ab\":2}", "{\"a\":1}", "{\"/a/\":1}", "{\"/x\":1}", "{\"\xC3\xA8\":1}"}},
    {"{\"type\":\"object\",\"properties\":{\"ab\":{},\"\xC3\xA9\":{}},\"required\":[\"ab\"],"
     "\"patternProperties\":{\"^/[^/]*$\":{}},\"additionalProperties\":false,\"maxProperties\":2}",
     {"{\"/\":1,\"ab\":2}", "{\"ab\":1,\"\xC3\xA9\":2}", "{\"ab\":3,\"/\xC3\xA9\":1}"},
     {"{\"/a\":1,\"/b\":2}", "{\"ab\":1,\"/\":1,\"/\":2}", "{\"\xC3\xA9\":1,\"/\":2}"}},
    /* no room for other keys: half a character that is theirs alone is none of a name */
    {"{\"required\":[\"ab\"],\"properties\":{\"\xC3\xA9\":{}},\"maxProperties\":1}",
     {"{\"ab\":1}", "{\"\\u0061b\":1}", "7"},
     {"{}", "{\"\xC3\xA9\":1}", "{\"\xE2\x82\xAC\":1}", "{\"ab\":1,\"a\":2}"}},
    {"{\"$ref\":\"#/$defs/"
     "t\",\"$defs\":{\"t\":{\"type\":\"object\",\"properties\":{\"n\":{\"$ref\":"
     "\"#/$defs/t\"}},\"additionalProperties\":false}}}",
     {"{}", "{\"n\":{\"n\":{}}}"},
     {"{\"n\":1}", "{\"n\":{\"m\":{}}}"}},
    {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"string\"}],\"items\":{\"type\":\"boolean\"},"
     "\"minItems\":1,\"maxItems\":3}",
     {"[\"a\"]", "[\"a\",true,false]"},
     {"[]", "[true]", "[\"a\",1]", "[\"a\",true,true,true]"}},
    {"{\"type\":\"array\",\"contains\":{\"const\":1},\"minContains\":2,\"maxContains\":2,"
     "\"maxItems\":3}",
     {"[1,1]", "[1,0,1]", "[\"x\",1,1]"},
     {"[1]", "[1,1,1]", "[0,0,1]", "[1,0,0,1]"}},
    {"{\"type\":\"array\",\"items\":{\"type\":\"string\"},\"uniqueItems\":true}",
     {"[]", "[\"\"]", "[\"a\",\"b\"]", "[\"a\",\"ab\",\"\",\"abc\"]", "[\"a\" , \"A\"]"},
     {"[\"a\",\"a\"]", "[\"a\",\"b\",\"\\u0061\"]", "[\"\",\"\"]", "[\"abc\",\"ab\",\"abc\"]",
      "[1]"}},
    {"{\"type\":\"array\",\"items\":{\"enum\":[\"ab\",\"abc\",\"x\"]},\"uniqueItems\":true}",
     {"[\"abc\",\"ab\",\"x\"]", "[\"x\"]"},
     {"[\"ab\",\"ab\"]", "[\"abc\",\"ab\",\"x\",", "[\"ab\",\"x\",\"ab", "[\"x\",\"x"}},
    {"{\"type\":\"array\",\"allOf\":[{\"items\":{\"type\":\"string\"},\"uniqueItems\":true},{"
     "\"items\":"
     "{\"maxLength\":2}}],\"items\":{\"type\":[\"string\",\"null\"],\"pattern\":\"^a+$\"}}",
     {"[\"a\",\"aa\"]", "[\"aa\",\"a\"]"},
     {"[\"a\",\"aa\",", "[\"a\",\"a\"]", "[\"aaa", "[null]"}},
    {"{\"minProperties\":2,\"maxProperties\":2,\"type\":\"object\"}",
     {"{\"a\":1,\"b\":2}"},
     {"{\"a\":1}", "{\"a\":1,\"a\":2}", "{\"a\":1,\"\\u0061\":2}", "{\"a\":1,\"b\":2,\"c\":3}"}},
    {"{\"type\":\"object\",\"patternProperties\":{\"^x\":{\"type\":\"integer\"}},"
     "\"additionalProperties\":{\"type\":\"string\"},\"propertyNames\":{\"maxLength\":3}}",
     {"{}", "{\"x1\":2,\"a\":\"b\"}"},
     {"{\"x1\":\"b\"}", "{\"a\":1}", "{\"abcd\":\"b\"}"}},
    {"{\"if\":{\"properties\":{\"k\":{\"const\":\"a\"}},\"required\":[\"k\"]},\"then\":{"
     "\"required\":"
     "[\"v\"]},\"else\":{\"maxProperties\":1},\"type\":\"object\"}",
     {"{\"k\":\"a\",\"v\":1}", "{\"v\":1,\"k\":\"a\"}", "{\"k\":\"b\"}", "{}"},
     {"{\"k\":\"a\"}", "{\"k\":\"b\",\"v\":1}"}},
    {"{\"$id\":\"https://a/r\",\"$ref\":\"list\",\"$defs\":{\"own\":{\"$dynamicAnchor\":\"i\","
     "\"type\":\"boolean\"},\"list\":{\"$id\":\"list\",\"items\":{\"$dynamicRef\":\"#i\"},"
     "\"type\":\"array\",\"$defs\":{\"d\":{\"$dynamicAnchor\":\"i\"}}}}}",
     {"[]", "[true,false]"},
     {"[1]", "{}"}},
    {"{\"$schema\":\"https://json-schema.org/draft/2020-12/schema\",\"$id\":\"https://a/r\","
     "\"properties\":{\"p\":{\"$id\":\"inner\",\"$ref\":\"#/$defs/x\","
     "\"$defs\":{\"x\":{\"type\":\"null\"}}}},\"$defs\":{\"x\":{\"type\":\"string\"}},\"required\":"
     "[\"p\"],\"type\":\"object\"}",
     {"{\"p\":null}"},
     {"{\"p\":\"\"}", "{}"}},
    {"{\"type\":\"array\",\"prefixItems\":[true],\"contains\":{\"type\":\"string\"},"
     "\"unevaluatedItems\":false}",
     {"[1,\"a\"]", "[\"a\"]", "[null,\"a\",\"b\"]"},
     {"[1,2]", "[1,2,\"a\"]", "[]", "[1]"}},
    {"{\"type\":\"array\",\"not\":{\"contains\":{\"type\":\"string\"},\"minContains\":2},"
     "\"unevaluatedItems\":{\"type\":\"null\"}}", /* a negation evaluates nothing */
     {"[]", "[null]"},
     {"[\"a\"]", "[null,\"a\"]"}},
    {"{\"dependentRequired\":{\"a\":[\"b\"]},\"type\":\"object\"}",
     {"{}", "{\"b\":1}", "{\"a\":1,\"b\":2}", "{\"b\":1,\"a\":2}"},
     {"{\"a\":1}"}},
    {"{\"allOf\":[{\"properties\":{\"a\":true}}],\"properties\":{\"b\":true},"
     "\"unevaluatedProperties\":false,\"type\":\"object\"}",
     {"{\"a\":1,\"b\":2}"},
     {"{\"c\":1}"}},
    {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":45}",
     {"\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"", "\"\\n\xE2\x82\xAC\"", "\"a\\\"\""},
     {"\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"", "\"a\"", "\"\xE2\x82\xAC\""}},
    {"{\"type\":\"string\",\"pattern\":\"^a{0,9}b.{4,17}$\"}",
     {"\"baaaaaaaa\"", "\"aaaaaaaaabaaaaaaaaaaaaaaaaa\""},
     {"\"baaa\"", "\"aaaaaaaaaab1234\"", "\"baaaaaaaaaaaaaaaaaa\""}},
    {"{\"type\":\"object\",\"propertyNames\":{\"maxLength\":6},\"properties\":{\"name\":{\"type\":"
     "\"null\"}}}",
     {"{\"name\":null,\"aaaaaa\":1}"},
     {"{\"name\":1}", "{\"aaaaaaa\":1}"}},
    /* identifiers count where schemas are, and nowhere else */
    {"{\"$defs\":{\"a\":{\"not\":{\"unknown\":[{\"$id\":\"http://x/"
     "y\",\"type\":\"null\"}]}},\"b\":{"
     "\"$id\":\"http://x/y\",\"type\":\"string\"}},\"anyOf\":[{\"$ref\":\"#/$defs/a\"},{\"$ref\":"
     "\"http://x/y\"}]}",
     {"\"a\""},
     {"null", "1"}},
    {"{\"$defs\":{\"a\":{\"enum\":[{\"$anchor\":\"x\",\"type\":\"null\"}]},\"b\":{\"$anchor\":"
     "\"x\","
     "\"type\":\"string\"}},\"$ref\":\"#x\"}",
     {"\"a\""},
     {"null"}},
    {"{\"$dynamicAnchor\":\"n\",\"type\":\"array\",\"items\":{\"$dynamicRef\":\"#n\"}}",
     {"[]", "[[],[[]]]"},
     {"[1]", "[[null]]"}},
    {"{\"$schema\":\"http://json-schema.org/draft-04/schema#\",\"type\":\"integer\"}",
     {"12"},
     {"12.0"}},
    {"{\"type\":\"string\",\"format\":\"iri\"}",
     {"\"http://\xC3\xA9.x/\xE2\x82\xAC?a#b\"", "\"a:b\""},
     {"\"//x/y\"", "\"a:<\"", "\"a b:c\"", "\"\""}},
    {"{\"type\":\"string\",\"format\":\"iri-reference\"}",
     {"\"//x/\xC3\xA9\"", "\"\"", "\"a:b\""},
     {"\"a b\"", "\"a\\\\b\""}},
};

static void test_schemas(void **state)
{
    (void)state;
    for (size_t i = 0; i < RVI_COUNT(schemas); i++) {
        rvi_grammar *g;
        rv_error err = {0};
        const char *source = schemas[i].source;
        if (rvi_grammar_schema(&g, vocab, source, strlen(source), NULL, &err))
            fail_msg("%s: %s", source, err.text);
        run_example(g, &schemas[i]);
        rvi_grammar_free(g);
    }
}

static void test_refused(void **state)
{
    static const char *const cases[][2] = {
        {"{\"properties\":{\"a/b\":{\"uniqueItems\":true}}}", "#/properties/a~1b/uniqueItems"},
        {"{\"items\":{\"type\":\"integer\"},\"uniqueItems\":true}", "but of strings"},
        {"{\"items\":{\"enum\":[\"a\",\"b\"]},\"uniqueItems\":true,\"minItems\":3}", "few strings"},
        {"{\"not\":{\"items\":{\"type\":\"string\"},\"uniqueItems\":true}}", "not unique"},
        {"{\"items\":{\"format\":\"regex\"}}", "#/items/format"},
        {"{\"$ref\":\"http://example.com/x\"}", "#/$ref"},
        {"{\"pattern\":\"(a)\\\\1\"}", "#/pattern"},
        {"{\"anyOf\":[{\"$dynamicRef\":\"#a\"}]}", "#/anyOf/0/$dynamicRef"},
        {"{\"anyOf\":[{\"$id\":\"b\",\"items\":{\"$dynamicRef\":\"#a\"},\"$dynamicAnchor\":\"a\"},"
         "{\"$id\":\"c\",\"$dynamicAnchor\":\"a\",\"type\":\"null\"}]}",
         "#/anyOf/0/items/$dynamicRef"},
        {"{\"properties\":{\"p\":{\"$id\":\"b\",\"$ref\":\"#\"}}}", "#/properties/p/$ref"},
        {"{\"type\":\"text\"}", "#/type"},
        {"{\"items\":{\"pattern\":\"^(.{0,100}a.{0,100}b){10}$\"}}", "#/items/pattern: too much"},
        {"{\"items\":{\"$ref\":\"#/items\"}}", "#/items: the schema refers to itself"},
        {"{\"type\":\"string\",\"minLength\":3,\"maxLength\":2}", "no value"},
        {"{\"required\":[\"a\"],\"properties\":{\"a\":false},\"type\":\"object\"}", "no value"},
        {"{\"$ref\":\"#\"}", "itself"},
        {"[]", "schema is an object"},
        {"{", "member name expected"},
    };
    (void)state;
    for (size_t i = 0; i < RVI_COUNT(cases); i++) {
        rvi_grammar *g;
        rv_error err = {0};
        assert_int_not_equal(
            rvi_grammar_schema(&g, vocab, cases[i][0], strlen(cases[i][0]), NULL, &err), RV_OK);
        assert_null(g);
        if (!strstr(err.text, cases[i][1])) fail_msg("%s: %s", cases[i][0], err.text);
    }
}

/* Repetitions inside each other: what is alike is one repetition, and counts that can be reached in
 * several ways stay together, so that long texts take little work. */
static void test_repetitions(void **state)
{
    static const char *const sources[] = {"((a{1,100}){1,100}){1,100}", "(a|aa){1,9999}",
                                          "((a{1,100}b?){1,100}c?){1,100}"};
    (void)state;
    for (size_t k = 0; k < RVI_COUNT(sources); k++) {
        rvi_grammar *g;
        rv_error err = {0};
        assert_int_equal(rvi_grammar_regex(&g, vocab, sources[k], strlen(sources[k]), &err), RV_OK);
        uint32_t at = rvi_grammar_start(g);
        for (int i = 0; i < 3000 && at; i++)
            if (rvi_grammar_text(g, at, "a", 1, &at, &err))
                fail_msg("%s: %s", sources[k], err.text);
        assert_true(at && rvi_grammar_ends(g, at));
        rvi_grammar_free(g);
    }
}

static const example expressions[] = {
    {"ab*|c{2,3}", {"a", "abb", "cc", "ccc"}, {"", "c", "cccc", "ba"}},
    {"(?!abc)[a-c]{3}", {"abb", "cab"}, {"abc", "ab"}},
    {"\\w+@\\w+\\.com", {"a@b.com"}, {"a@b.co", "@b.com"}},
    {"[^a-z]\\u00e9", {"1\xC3\xA9"}, {"a\xC3\xA9", "1e"}},
    {"(x{3}){1,2}", {"xxx", "xxxxxx"}, {"xx", "xxxx", "xxxxxxxxx"}},
    {"(x{2,3}){0,1}y", {"y", "xxy", "xxxy"}, {"xy", "xxxxy"}},
    {"ab$[a-z$]*$", {"ab"}, {"abc", "ab$", "a"}},
};

static const example grammars[] = {
    {"root ::= expr\nexpr ::= term (\"+\" term)*\nterm ::= [ab]+ | \"(\" expr \")\"\n",
     {"a", "a+b", "(a+(b))+ab"},
     {"", "a+", "(a", "a)"}},
    {"# a comment\nroot ::= \"x\" item{2,3} [^\\n]?\nitem ::= \"a\" | # why\n  \"b\"\n",
     {"xab", "xaba", "xabz"},
     {"xa", "xab\n", "x"}},
    /* read in exponentially many ways */
    {"root ::= \"a\" (root | [b-z])*\n", {"a", "aabaa"}, {"", "b"}},
    {"root ::= x x x x\nx ::= \"a\"* (\"b\" x)*\n", {"", "aaaa", "abab"}, {"c"}},
    {"root ::= \"{\" (root (\",\" root){0,1})? \"}\"\n", {"{}", "{{},{}}"}, {"{{},{},{}}", "{,}"}},
    {"root ::= %without \"<c>\" (\"<c>\" call (\", \" call)* \"</c>\")?\n"
     "call ::= \"f\" %json {\"type\":\"integer\"} | \"g\" %json {\"$ref\":\"#/$defs/a\",\"$defs\":"
     "{\"a\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/a\"}}}}\n",
     {"", "a<c", "<c>f12</c>", "x <c>f1, g[[], []], f2</c>", "<c>g []</c>"},
     {"<c>", "<c>f1", "<c>f1.5</c>", "<c>g[1]</c>", "<c>f1</c>x", "a<c>b", "<c>f1 </c>"}},
    {"root ::= ruvllm-thinking %json {\"type\":\"integer\"}\nruvllm-thinking ::= %without \"/t\" "
     "\"/t\"\n",
     {"/t1", "a/ t/t 12 "},
     {"1", "/t", "/t/t1"}},
};

static void test_expressions(void **state)
{
    (void)state;
    for (size_t i = 0; i < RVI_COUNT(expressions); i++) {
        rvi_grammar *g;
        const char *source = expressions[i].source;
        assert_int_equal(rvi_grammar_regex(&g, vocab, source, strlen(source), NULL), RV_OK);
        run_example(g, &expressions[i]);
        rvi_grammar_free(g);
    }
}

static void test_gbnf(void **state)
{
    (void)state;
    for (size_t i = 0; i < RVI_COUNT(grammars); i++) {
        rvi_grammar *g;
        rv_error err = {0};
        const char *source = grammars[i].source;
        if (rvi_grammar_gbnf(&g, vocab, source, strlen(source), NULL, &err))
            fail_msg("%s", err.text);
        run_example(g, &grammars[i]);
        rvi_grammar_free(g);
    }
}

static const example larks[] = {
    {"start: sum\n?sum: product | sum \"+\" product -> add\n"
     "product: atom\n       | product \"*\" atom // and so on\n"
     "atom: NUMBER | \"(\" sum \")\"\n%import common.NUMBER\n%import common.WS\n%ignore WS\n",
     {"1", " 1 + 2*( 3+4e1 ) ", "1+2+3*4"},
     {"", "1+", "1 2", "(1", "1e"}},
    {"start: (\"a\".\"b\")~2\n", {NULL}, {NULL}},
    {"start: KEY \"=\" [value] (\";\"i | \"x\"i)\nKEY.2: /[a-c]+\\/?/\nvalue: %json "
     "{\"type\":\"integer\"}\n",
     {"a=1;", "ab/=X", "c=x"},
     {"=1;", "d=1;", "a=1.5;"}},
    {"start: \"a\"..\"c\"~2..3 /x.y/s? _tail\n_tail: \"\\n\"*\n# the end",
     {"ab", "abc\n\n", "aax\ny"},
     {"a", "abcd", "aaxy"}},
    {"start: \"{\" [pair (\",\" pair)*] \"}\"\npair: ESCAPED_STRING \":\" INT\n"
     "%import common (ESCAPED_STRING, INT)\n",
     {"{}", "{\"a\\\"\":1,\"b\":22}"},
     {"{,}", "{\"a\":}", "{a:1}"}},
};

static void test_lark(void **state)
{
    (void)state;
    for (size_t i = 0; i < RVI_COUNT(larks); i++) {
        rvi_grammar *g;
        rv_error err = {0};
        const char *source = larks[i].source;
        rv_status st = rvi_grammar_lark(&g, vocab, source, strlen(source), NULL, &err);
        if (!larks[i].good[0]) {
            assert_int_not_equal(st, RV_OK);
            continue;
        }
        if (st) fail_msg("%s: %s", source, err.text);
        run_example(g, &larks[i]);
        rvi_grammar_free(g);
    }
}

static void test_bad_lark(void **state)
{
    static const char *const cases[][2] = {
        {"start: a\n", "not defined"},
        {"rule: \"a\"\n", "lark-start"},
        {"start: start\n", "begins with itself"},
        {"start: \"a\n", "line 1: a text without"},
        {"start: /a\n", "closing /"},
        {"start: (\"a\"\n", "group"},
        {"start: x{\"a\"}\n", "templates"},
        {"start: \"a\"\n%declare B\n", "line 2"},
        {"start: W\n%import common.NOTHING -> W\n", "no such terminal"},
        {"start: W\n%import .other.W\n", "anything but common"},
        {"start: A\nA: b\nb: \"c\"\n", "contains a rule"},
        {"start: \"a\" ^\n", "an item is expected"},
        {"start \"a\"\n", "a : is expected"},
        {"start: /[a-z]/i\n", "both cases"},
        {"start: a\na: b \"x\" | \"y\"\nb: a\n", "left recursion"},
        {"start: <|eot|>\n", "special tokens"},
        {"start: %json {\"type\":\"what\"}\n", "#/type"},
    };
    (void)state;
    for (size_t i = 0; i < RVI_COUNT(cases); i++) {
        rvi_grammar *g;
        rv_error err = {0};
        assert_int_not_equal(
            rvi_grammar_lark(&g, vocab, cases[i][0], strlen(cases[i][0]), NULL, &err), RV_OK);
        assert_null(g);
        if (!strstr(err.text, cases[i][1])) fail_msg("%s: %s", cases[i][0], err.text);
    }
}

/* Thoughts are told apart, also where they may be left out and nothing but texts is around them. */
static void test_thinking(void **state)
{
    static const char *const sources[] = {
        "root ::= \"<t>\" ruvllm-thinking %json {\"type\":\"integer\"}\n",
        "root ::= ( [ \\n]{0,2} \"<t>\" ruvllm-thinking [ \\n]{0,2} )? %json "
        "{\"type\":\"integer\"}\n",
        "root ::= before? [0-9]*\nbefore ::= \"<t>\" ruvllm-thinking\n",
    };
    static const struct {
        const char *text;
        bool thinks;
    } cases[] = {{"<t", false},
                 {"<t>", true},
                 {"<t>ab</", true},
                 {"<t>ab</t>", false},
                 {"<t>ab</t>1", false}};
    uint32_t at;
    (void)state;
    for (size_t k = 0; k < RVI_COUNT(sources); k++) {
        rvi_grammar *g;
        char source[256];
        snprintf(source, sizeof source, "%sruvllm-thinking ::= %%without \"</t>\" \"</t>\"\n",
                 sources[k]);
        assert_int_equal(rvi_grammar_gbnf(&g, vocab, source, strlen(source), NULL, NULL), RV_OK);
        for (size_t i = 0; i < RVI_COUNT(cases); i++) {
            assert_int_equal(rvi_grammar_text(g, rvi_grammar_start(g), cases[i].text,
                                              strlen(cases[i].text), &at, NULL),
                             RV_OK);
            assert_true(at);
            if (rvi_grammar_thinks(g, at) != cases[i].thinks)
                fail_msg("%s: %s", source, cases[i].text);
        }
        rvi_grammar_free(g);
    }
}

static void test_bad_gbnf(void **state)
{
    static const char *const cases[][2] = {
        {"root ::= root \"a\" | \"b\"\n", "left recursion"},
        {"root ::= y{0,1000} \"z\"\ny ::= (\"a\" root)?\n", "too deeply"},
        {"root ::= \"[\" ((root \",\"){0,2000}){0,2000} \"]\"\n", "too many parts"},
        {"root ::= other\n", "not defined"},
        {"a ::= \"b\"\n", "root"},
        {"root ::= \"a\n", "quote"},
        {"root \"a\"\n", "::="},
        {"root ::= [a\n", "]"},
        {"root ::= (\"a\"\n", ")"},
        {"root ::= \"a\"{3,1}\n", "order"},
        {"root ::= %json {\"type\":\"what\"}\n", "#/type"},
        {"root ::= %json {\"type\":\n", "%json"},
        {"root ::= %json {\"uniqueItems\":true}\n", "#/uniqueItems"},
        {"root ::= %json {\"enum\":[]}\n", "no value"},
        {"root ::= %without a\n", "a text is expected"},
        {"root ::= %without \"a\n", "quote"},
    };
    (void)state;
    for (size_t i = 0; i < RVI_COUNT(cases); i++) {
        rvi_grammar *g;
        rv_error err = {0};
        assert_int_not_equal(
            rvi_grammar_gbnf(&g, vocab, cases[i][0], strlen(cases[i][0]), NULL, &err), RV_OK);
        if (!strstr(err.text, cases[i][1])) fail_msg("%s: %s", cases[i][0], err.text);
    }
}

static void test_choices_and_forced(void **state)
{
    static const char texts[] = "[\"yes\",\"yellow\",\"no\"]";
    static const char schema[] =
        "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"null\"}},"
        "\"required\":[\"name\"],\"additionalProperties\":false}";
    rvi_grammar *g;
    rvi_buf forced = {0};
    uint32_t after;
    (void)state;
    assert_int_equal(rvi_grammar_choices(&g, vocab, texts, sizeof texts - 1, NULL), RV_OK);
    assert_true(accepts(g, "choices", "yes"));
    assert_false(accepts(g, "choices", "ye"));
    assert_int_equal(rvi_grammar_token(g, rvi_grammar_start(g), 'y', &after, NULL), RV_OK);
    assert_int_equal(rvi_grammar_forced(g, after, 100, &forced, &after, NULL), RV_OK);
    assert_string_equal(forced.data, "e");
    rvi_grammar_free(g);
    forced.len = 0;
    assert_int_equal(rvi_grammar_schema(&g, vocab, schema, strlen(schema),
                                        &(rvi_grammar_options){.max_blanks = -1, .canonical = true},
                                        NULL),
                     RV_OK);
    assert_int_equal(rvi_grammar_forced(g, rvi_grammar_start(g), 100, &forced, &after, NULL),
                     RV_OK);
    assert_string_equal(forced.data, "{\"name\":null}");
    assert_true(rvi_grammar_ends(g, after));
    rvi_grammar_free(g);
    rvi_buf_deinit(&forced);
}

/* However many members are required, one inside the other, an end is found from anywhere. */
static void test_ends_of_large_objects(void **state)
{
    enum { MEMBERS = 60 };
    static const char *const begun[] = {"", "{\"", "{\"other\": [1, {\"x", "{\"inner\": {\"name"};
    (void)state;
    rvi_buf schema = {0}, text = {0};
    rvi_buf_puts(&schema, "{\"type\":\"object\",\"required\":[\"inner\",\"last\"],\"properties\":{"
                          "\"last\":{\"type\":\"string\",\"minLength\":5},\"inner\":{\"type\":"
                          "\"object\",\"required\":[");
    for (int i = 0; i < MEMBERS; i++)
        rvi_buf_printf(&schema, "%s\"a-name-that-is-long-%d\"", i ? "," : "", i * 7 % MEMBERS);
    rvi_buf_puts(&schema, "]}}}");
    for (size_t i = 0; i < RVI_COUNT(begun); i++) {
        rvi_grammar *g;
        uint32_t behind;
        bool found;
        assert_int_equal(rvi_grammar_schema(&g, vocab, schema.data, schema.len, NULL, NULL), RV_OK);
        assert_int_equal(
            rvi_grammar_text(g, rvi_grammar_start(g), begun[i], strlen(begun[i]), &behind, NULL),
            RV_OK);
        text.len = 0;
        rvi_buf_puts(&text, begun[i]);
        assert_int_equal(rvi_grammar_finish(g, behind, &text, &found, NULL), RV_OK);
        assert_true(found);
        assert_true(text.len < MEMBERS * 34);
        assert_int_equal(
            rvi_grammar_text(g, rvi_grammar_start(g), text.data, text.len, &behind, NULL), RV_OK);
        assert_true(behind && rvi_grammar_ends(g, behind));
        rvi_grammar_free(g);
    }
    rvi_buf_deinit(&schema);
    rvi_buf_deinit(&text);
}

/* Patterns that are tried before they are taken have a limit together, as one of them has. */
static void test_many_trials(void **state)
{
    enum { PATTERNS = 900, MOST = 4 << 20 };
    rvi_rxs pool;
    uint64_t most = 0;
    (void)state;
    assert_int_equal(rvi_rxs_init(&pool, MOST, NULL), RV_OK);
    for (int i = 0; i < PATTERNS; i++) {
        char pattern[64];
        rvi_rx rx;
        uint64_t before = pool.tried;
        int len = snprintf(pattern, sizeof pattern, "^((a|b){1,%d}c?){1,60}$", i + 20);
        assert_int_equal(rvi_rx_parse(&pool, pattern, (size_t)len, false, &rx, NULL), RV_OK);
        most = RVI_MAX(most, pool.tried - before);
    }
    assert_true(most && most * PATTERNS > 2 * MOST);
    assert_true(pool.tried <= MOST + most);
    rvi_rxs_deinit(&pool);
}

/* White space has a limit where one is set; what begins a text is one at most. */
static void test_blanks(void **state)
{
    static const example limited = {"{\"type\":\"object\"}",
                                    {"{}", " {}", "{  }", "{  \"a\":  1}"},
                                    {"  {}", "{   }", "\n {}"}};
    static const example none = {"{\"type\":\"object\"}", {"{}", "{\"a\":1}"}, {" {}", "{ }"}};
    static const example any = {"{\"type\":\"object\"}", {"   {}", "{    }"}, {"x{}"}};
    const struct {
        int most;
        const example *e;
    } cases[] = {{2, &limited}, {-1, &none}, {0, &any}};
    (void)state;
    for (size_t i = 0; i < RVI_COUNT(cases); i++) {
        rvi_grammar *g;
        rvi_grammar_options o = {.max_blanks = cases[i].most};
        const char *source = cases[i].e->source;
        assert_int_equal(rvi_grammar_schema(&g, vocab, source, strlen(source), &o, NULL), RV_OK);
        run_example(g, cases[i].e);
        rvi_grammar_free(g);
    }
}

/* Of a text that has begun; the caller frees *g and *end. */
static bool look_for_end(const char *schema, const char *begun, rvi_grammar **g, uint32_t *behind,
                         rvi_buf *end)
{
    bool found;
    assert_int_equal(rvi_grammar_schema(g, vocab, schema, strlen(schema), NULL, NULL), RV_OK);
    assert_int_equal(
        rvi_grammar_text(*g, rvi_grammar_start(*g), begun, strlen(begun), behind, NULL), RV_OK);
    assert_int_equal(rvi_grammar_finish(*g, *behind, end, &found, NULL), RV_OK);
    return found;
}

/* A key that must come, and a text that a pattern asks for, are written straight away. */
static void test_ends_that_are_asked_for(void **state)
{
    static const char *const cases[][3] = {
        {"{\"type\":\"object\",\"not\":{\"propertyNames\":{\"not\":{\"pattern\":"
         "\"^foo_[a-z]{3}$\"}}}}",
         "{\"a\":{\"b\":\"xy", "\"},\"foo_aaa\":0}"},
        {"{\"type\":\"object\",\"minProperties\":3,\"not\":{\"anyOf\":[{\"propertyNames\":{\"not\":"
         "{\"enum\":[\"1\",\"3\"]}}},{\"propertyNames\":{\"not\":{\"enum\":[\"2\",\"3\"]}}}]}}",
         "{\"x\":[{\"y", "\":0}],\"1\":0,\"2\":0}"},
        {"{\"type\":\"string\",\"pattern\":\"^[a-z ]+, yours [A-Z]{12}!$\"}", "\"dear",
         ", yours AAAAAAAAAAAA!\""},
    };
    (void)state;
    for (size_t i = 0; i < RVI_COUNT(cases); i++) {
        rvi_grammar *g;
        uint32_t behind;
        rvi_buf end = {0};
        bool found = look_for_end(cases[i][0], cases[i][1], &g, &behind, &end);
        assert_true(found);
        rvi_buf_putc(&end, 0);
        assert_string_equal(end.data, cases[i][2]);
        rvi_grammar_free(g);
        rvi_buf_deinit(&end);
    }
}

/* What has no value of its kind is not begun, where another kind has one. */
static void test_what_cannot_be(void **state)
{
    static const char *const cases[][2] = {
        {"{\"minProperties\":2,\"maxProperties\":1}", "{"},
        {"{\"type\":[\"object\",\"null\"],\"properties\":{\"a\":{}},\"minProperties\":2,"
         "\"additionalProperties\":false}",
         "{"},
        {"{\"required\":[\"a\",\"b\"],\"maxProperties\":1}", "{"},
        {"{\"minItems\":2,\"maxItems\":1}", "["},
        {"{\"type\":[\"array\",\"null\"],\"items\":false,\"minItems\":1}", "["},
        {"{\"minLength\":2,\"maxLength\":1}", "\""},
    };
    (void)state;
    for (size_t i = 0; i < RVI_COUNT(cases); i++) {
        rvi_grammar *g;
        uint32_t behind;
        const char *schema = cases[i][0];
        assert_int_equal(rvi_grammar_schema(&g, vocab, schema, strlen(schema), NULL, NULL), RV_OK);
        assert_int_equal(rvi_grammar_text(g, rvi_grammar_start(g), "null", 4, &behind, NULL),
                         RV_OK);
        assert_true(behind && rvi_grammar_ends(g, behind));
        assert_int_equal(rvi_grammar_text(g, rvi_grammar_start(g), cases[i][1], 1, &behind, NULL),
                         RV_OK);
        if (behind) fail_msg("%s begins with %s", schema, cases[i][1]);
        rvi_grammar_free(g);
    }
}

/* Where no end is near, looking for one is given up soon, and the text may go on. */
static void test_far_ends(void **state)
{
    static const char *const cases[][2] = {
        {"{\"type\":\"object\",\"minProperties\":5000}", "{\"a\":1"},
        {"{\"type\":\"string\",\"minLength\":1000000}", "\"a"},
    };
    (void)state;
    for (size_t i = 0; i < RVI_COUNT(cases); i++) {
        rvi_grammar *g;
        uint32_t behind;
        rvi_buf end = {0};
        bool found = look_for_end(cases[i][0], cases[i][1], &g, &behind, &end);
        assert_false(found);
        check_mask(g, behind, cases[i][0], cases[i][1]);
        rvi_grammar_free(g);
        rvi_buf_deinit(&end);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_schemas),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_repetitions),
        cmocka_unit_test(test_expressions),
        cmocka_unit_test(test_gbnf),
        cmocka_unit_test(test_lark),
        cmocka_unit_test(test_bad_lark),
        cmocka_unit_test(test_thinking),
        cmocka_unit_test(test_bad_gbnf),
        cmocka_unit_test(test_choices_and_forced),
        cmocka_unit_test(test_ends_of_large_objects),
        cmocka_unit_test(test_many_trials),
        cmocka_unit_test(test_blanks),
        cmocka_unit_test(test_ends_that_are_asked_for),
        cmocka_unit_test(test_what_cannot_be),
        cmocka_unit_test(test_far_ends),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
