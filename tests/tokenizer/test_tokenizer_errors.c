/* test_tokenizer_errors.c - tokenizer.json files that cannot be used: the error says what is wrong.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tokenizer/tokenizer.h"

#define MODEL(rest) "{\"model\":{\"type\":\"BPE\"," rest "}}"
#define GOOD_MODEL                                                                                 \
    "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}"
#define WITH(rest) "{" GOOD_MODEL "," rest "}"

static const struct {
    const char *text, *says; /* says NULL: it is fine */
} rows[] = {
    {"{" GOOD_MODEL "}", NULL},
    {"", "tokenizer.json"},
    {"[]", "not an object"},
    {"{}", "model is missing"},
    {"{\"model\":3}", "model is missing"},
    {"{\"model\":{}}", "model.type is missing"},
    {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[]}}",
     NULL}, /* older files do not name the type */
    {"{\"model\":{\"type\":\"Unigram\"}}", "model type 'Unigram' is not supported"},
    {"{\"model\":{\"type\":\"WordPiece\"}}", "model.vocab is missing"},
    {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":0}}}",
     "unk_token is not in the vocabulary"},
    {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":0},\"unk_token\":\"a\"}}", NULL},
    {"{\"model\":{\"type\":\"WordLevel\"}}", "model type 'WordLevel' is not supported"},
    {MODEL("\"merges\":[]"), "model.vocab is missing"},
    {MODEL("\"vocab\":[],\"merges\":[]"), "model.vocab is missing"},
    {MODEL("\"vocab\":{},\"merges\":[]"), "model.vocab is missing or empty"},
    {MODEL("\"vocab\":{\"a\":0}"), "model.merges is missing"},
    {MODEL("\"vocab\":{\"a\":0},\"merges\":{}"), "model.merges is missing or not a list"},
    {MODEL("\"vocab\":{\"a\":\"0\"},\"merges\":[]"), "id of token 'a' is not a whole number"},
    {MODEL("\"vocab\":{\"a\":-1},\"merges\":[]"), "the id -1 of token 'a' is out of range"},
    {MODEL("\"vocab\":{\"a\":16777216},\"merges\":[]"), "out of range"},
    {MODEL("\"vocab\":{\"a\":1000000},\"merges\":[]"), "for only 1 tokens"},
    {MODEL("\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]"), "'a' and 'b' have the same id 0"},
    {MODEL("\"vocab\":{\"a\":0,\"a\":1},\"merges\":[]"), "'a' is there twice"},
    {MODEL("\"vocab\":{\"a\":0,\"b\":1},\"merges\":[\"a c\"]"), "merge 0 names 'c'"},
    {MODEL("\"vocab\":{\"a\":0,\"b\":1},\"merges\":[\"c a\"]"), "merge 0 names 'c'"},
    {MODEL("\"vocab\":{\"a\":0,\"b\":1},\"merges\":[\"a b\"]"), "merge 0 names 'ab'"},
    {MODEL("\"vocab\":{\"a\":0,\"b\":1},\"merges\":[\"ab\"]"), "merge 0 is neither"},
    {MODEL("\"vocab\":{\"a\":0,\"b\":1},\"merges\":[\"a b c\"]"), "merge 0 is neither"},
    {MODEL("\"vocab\":{\"a\":0,\"b\":1},\"merges\":[[\"a\"]]"), "merge 0 is neither"},
    {MODEL("\"vocab\":{\"a\":0,\"b\":1},\"merges\":[[\"a\",1]]"), "merge 0 is neither"},
    {MODEL("\"vocab\":{\"a\":0},\"merges\":[],\"dropout\":0.1"), "dropout"},
    {WITH("\"added_tokens\":{}"), "added_tokens is not a list"},
    {WITH("\"added_tokens\":[{\"id\":3}]"), "has no content"},
    {WITH("\"added_tokens\":[{\"content\":\"x\"}]"), "id of token 'x'"},
    {WITH("\"normalizer\":{}"), "normalizer without a type"},
    {WITH("\"normalizer\":{\"type\":\"Precompiled\"}"),
     "normalizer 'Precompiled' is not supported"},
    {WITH("\"normalizer\":{\"type\":\"Sequence\"}"), "Sequence without a list"},
    {WITH("\"normalizer\":{\"type\":\"Prepend\"}"), "normalizer Prepend: text missing"},
    {WITH("\"normalizer\":{\"type\":\"Replace\",\"pattern\":{},\"content\":\"\"}"),
     "pattern must be"},
    {WITH("\"pre_tokenizer\":{\"type\":\"UnicodeScripts\"}"),
     "pre-tokenizer 'UnicodeScripts' is not supported"},
    {WITH("\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(\"},\"behavior\":"
          "\"Isolated\"}"),
     "')' missing"},
    {WITH("\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a\"},\"behavior\":"
          "\"Other\"}"),
     "unknown behavior 'Other'"},
    {WITH("\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a\"}}"),
     "without a behavior"},
    {WITH("\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"ab\"}"),
     "must be one character"},
    {WITH("\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":"
          "\"x\"}"),
     "unknown prepend_scheme 'x'"},
    {WITH("\"decoder\":{\"type\":\"WordPiece\"}"), NULL},
    {WITH("\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"},{\"type\":"
          "\"WordPiece\"}]}"),
     "WordPiece behind Fuse"},
    {WITH("\"decoder\":{\"type\":\"CTC\"}"), "decoder 'CTC' is not supported"},
    {WITH("\"decoder\":{\"type\":\"Strip\",\"content\":\" \",\"start\":-1,\"stop\":0}"), "Strip"},
    {WITH("\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"},{\"type\":"
          "\"ByteFallback\"}]}"),
     "behind Fuse"},
    {WITH("\"post_processor\":{\"type\":\"Other\"}"), "post_processor 'Other' is not supported"},
    {WITH("\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[]}"),
     "does not hold it"},
    {WITH("\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{"
          "\"id\":\"x\"}},"
          "{\"Sequence\":{\"id\":\"A\"}}]}"),
     "not defined"},
    {WITH("\"post_processor\":{\"type\":\"BertProcessing\",\"cls\":[\"x\",99],\"sep\":[\"y\",0]}"),
     "out of range"},
};

static void refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < RVI_COUNT(rows); i++) {
        rvi_tokenizer_files files = {.tokenizer = rows[i].text,
                                     .tokenizer_len = strlen(rows[i].text)};
        rvi_tokenizer *t = NULL;
        rv_error err = {0};
        rv_status st = rvi_tokenizer_from_json(&t, &files, NULL, &err);
        if (!rows[i].says) {
            if (st) fail_msg("%s: %s", rows[i].text, err.text);
            rvi_tokenizer_free(t);
            continue;
        }
        assert_null(t);
        assert_int_not_equal(st, RV_OK);
        assert_int_equal(st, err.code);
        if (!strstr(err.text, rows[i].says))
            fail_msg("%s: '%s' does not say '%s'", rows[i].text, err.text, rows[i].says);
    }
}

static void files_beside(void **state)
{
    (void)state;
    static const char good[] = "{" GOOD_MODEL "}";
    rvi_tokenizer *t;
    rv_error err = {0};
    rvi_tokenizer_files files = {.tokenizer = good, .tokenizer_len = sizeof good - 1};
    files.config = "[1]";
    files.config_len = 3;
    assert_int_not_equal(rvi_tokenizer_from_json(&t, &files, NULL, &err), RV_OK);
    assert_non_null(strstr(err.text, "tokenizer_config.json: not an object"));
    files.config = NULL;
    files.generation = "{";
    files.generation_len = 1;
    assert_int_not_equal(rvi_tokenizer_from_json(&t, &files, NULL, &err), RV_OK);
    assert_non_null(strstr(err.text, "generation_config.json"));
    rvi_tokenizer_files none = {0};
    assert_int_not_equal(rvi_tokenizer_from_json(&t, &none, NULL, &err), RV_OK);
    assert_null(t);

    /* wrong kinds of values beside are passed over */
    files.generation = "{\"eos_token_id\":\"x\"}";
    files.generation_len = strlen(files.generation);
    files.special_map = "{\"bos_token\":{\"content\":\"a\"},\"eos_token\":7}";
    files.special_map_len = strlen(files.special_map);
    assert_int_equal(rvi_tokenizer_from_json(&t, &files, NULL, &err), RV_OK);
    assert_int_equal(rvi_tokenizer_bos(t), 0);
    assert_int_equal(rvi_tokenizer_eos(t), -1);
    rvi_tokenizer_free(t);
}

/* Hundreds of steps, and sequences in sequences */
static void too_much(void **state)
{
    (void)state;
    static char text[100000];
    static const struct {
        const char *key, *list, *step;
    } parts[] = {{"normalizer", "normalizers", "{\"type\":\"NFC\"}"},
                 {"pre_tokenizer", "pretokenizers", "{\"type\":\"Digits\"}"},
                 {"decoder", "decoders", "{\"type\":\"Fuse\"}"}};
    for (size_t p = 0; p < RVI_COUNT(parts); p++)
        for (int deep = 0; deep < 2; deep++) {
            int n = snprintf(text, sizeof text, "{" GOOD_MODEL ",\"%s\":", parts[p].key);
            for (int i = 0; i < (deep ? 20 : 1); i++)
                n += snprintf(text + n, sizeof text - (size_t)n, "{\"type\":\"Sequence\",\"%s\":[",
                              parts[p].list);
            for (int i = 0; i < (deep ? 1 : 100); i++)
                n += snprintf(text + n, sizeof text - (size_t)n, "%s%s", i ? "," : "",
                              parts[p].step);
            for (int i = 0; i < (deep ? 20 : 1); i++)
                n += snprintf(text + n, sizeof text - (size_t)n, "]}");
            n += snprintf(text + n, sizeof text - (size_t)n, "}");
            rvi_tokenizer_files files = {.tokenizer = text, .tokenizer_len = (size_t)n};
            rvi_tokenizer *t;
            rv_error err = {0};
            assert_int_equal(rvi_tokenizer_from_json(&t, &files, NULL, &err), RV_E_TOKENIZATION);
            assert_non_null(strstr(err.text, deep ? "nested too deeply" : "too many steps"));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(refused), cmocka_unit_test(files_beside),
                                       cmocka_unit_test(too_much)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
