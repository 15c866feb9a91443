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

/* A tokenizer with the same step n times over in one of its parts; NULL: refused, see err. */
static rvi_tokenizer *repeated_step(const char *key, const char *list, const char *step, int n,
                                    const char *more, rv_error *err)
{
    rvi_buf text = {0};
    rvi_tokenizer *t;
    rvi_buf_printf(&text, "{" GOOD_MODEL "%s,\"%s\":{\"type\":\"Sequence\",\"%s\":[", more, key,
                   list);
    for (int i = 0; i < n; i++) rvi_buf_printf(&text, "%s%s", i ? "," : "", step);
    rvi_buf_puts(&text, "]}}");
    rvi_tokenizer_files files = {.tokenizer = text.data, .tokenizer_len = text.len};
    rv_status st = rvi_tokenizer_from_json(&t, &files, NULL, err);
    assert_int_equal(st != RV_OK, t == NULL);
    rvi_buf_deinit(&text);
    return t;
}

/* Steps that double a text: 20 of them would make megabytes of a few bytes. */
static void multiplied(void **state)
{
    (void)state;
    static const struct {
        const char *key, *list, *step, *text;
    } parts[] = {
        {"normalizer", "normalizers",
         "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"aa\"}", "aaaa"},
        {"normalizer", "normalizers",
         "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"a\"},\"content\":\"aa\"}", "aaaa"},
        {"normalizer", "normalizers", "{\"type\":\"ByteLevel\"}", "\xC3\xA9"},
        {"pre_tokenizer", "pretokenizers",
         "{\"type\":\"ByteLevel\",\"use_regex\":false,\"add_prefix_space\":false}", "\xC3\xA9"},
    };
    for (size_t p = 0; p < RVI_COUNT(parts); p++)
        for (int n = 1; n <= 20; n += 19) {
            rv_error err = {0};
            rvi_ids ids = {0};
            rvi_tokenizer *t =
                repeated_step(parts[p].key, parts[p].list, parts[p].step, n, "", &err);
            assert_non_null(t);
            rv_status st =
                rvi_tokenizer_encode(t, parts[p].text, strlen(parts[p].text), 0, &ids, &err);
            assert_int_equal(st, n == 1 ? RV_OK : RV_E_TOKENIZATION);
            if (n > 1) assert_non_null(strstr(err.text, "makes more than"));
            rvi_ids_deinit(&ids);
            rvi_tokenizer_free(t);
        }

    const char *doubling =
        "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"aa\"}";
    rv_error err = {0};
    rvi_buf out = {0};
    rvi_tokenizer *t = repeated_step("decoder", "decoders", doubling, 20, "", &err);
    assert_non_null(t);
    int32_t id = rvi_tokenizer_find(t, "a", 1);
    assert_int_equal(rvi_tokenizer_decode(t, &id, 1, 0, &out, &err), RV_E_TOKENIZATION);
    assert_non_null(strstr(err.text, "the decoder makes more than 65536 bytes"));
    rvi_buf_deinit(&out);
    rvi_tokenizer_free(t);

    /* added tokens are normalized when the file is loaded */
    const char *added = ",\"added_tokens\":[{\"id\":3,\"content\":\"aaaa\",\"normalized\":true}]";
    assert_null(repeated_step("normalizer", "normalizers", doubling, 9, added, &err));
    assert_non_null(strstr(err.text, "added token 'aaaa'"));
    assert_null(repeated_step("normalizer", "normalizers", doubling, 20, added, &err));
    assert_non_null(strstr(err.text, "makes more than"));
}

/* Texts of the file that every character is compared with, or put beside. */
static void long_texts(void **state)
{
    (void)state;
    static char text[8000], word[2001];
    static const struct {
        const char *format, *says;
    } rows_of[] = {
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[],"
         "\"continuing_subword_prefix\":\"%s\"}}",
         "model.continuing_subword_prefix has 2000 bytes"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[],"
         "\"end_of_word_suffix\":\"%s\"}}",
         "model.end_of_word_suffix has 2000 bytes"},
        {"{" GOOD_MODEL ",\"decoder\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"%s\"},"
         "\"content\":\"\"}}",
         "a text of 2000 bytes to be replaced"},
    };
    memset(word, 'a', sizeof word - 1);
    for (size_t i = 0; i < RVI_COUNT(rows_of); i++) {
        rvi_tokenizer *t;
        rv_error err = {0};
        int n = snprintf(text, sizeof text, rows_of[i].format, word);
        rvi_tokenizer_files files = {.tokenizer = text, .tokenizer_len = (size_t)n};
        assert_int_equal(rvi_tokenizer_from_json(&t, &files, NULL, &err), RV_E_TOKENIZATION);
        if (!strstr(err.text, rows_of[i].says)) fail_msg("%s", err.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(refused), cmocka_unit_test(files_beside),
                                       cmocka_unit_test(too_much), cmocka_unit_test(multiplied),
                                       cmocka_unit_test(long_texts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
