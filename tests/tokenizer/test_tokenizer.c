/* test_tokenizer.c - small tokenizers of our own against what the reference library answers
 * (tools/make_tokenizer_vectors.py), and the questions one can ask a tokenizer. Run from the
 * repository root. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "harness/amount.h"
#include "tokenizer/vectors.h"

static const char *const names[] = {
    "gpt2",        "llama3",    "qwen2",     "o200k",    "deepseek", "digits", "prefix_space",
    "spm_prepend", "spm_first", "spm_words", "spm_runs", "flags",    "bert",   "bert_cased"};

/* config may be NULL */
static rvi_tokenizer *open_with(const char *name, const char *config, const char *generation,
                                const char *template_text)
{
    char path[200];
    rvi_blob blob;
    rv_error err = {0};
    rvi_tokenizer *t;
    snprintf(path, sizeof path, "tests/tokenizer/data/%s.json", name);
    if (rvi_blob_open(&blob, path, &err)) fail_msg("%s", err.text);
    rvi_tokenizer_files files = {.tokenizer = (const char *)blob.data, .tokenizer_len = blob.len};
    files.config = config;
    files.config_len = config ? strlen(config) : 0;
    files.generation = generation;
    files.generation_len = generation ? strlen(generation) : 0;
    files.template_text = template_text;
    files.template_len = template_text ? strlen(template_text) : 0;
    if (rvi_tokenizer_from_json(&t, &files, NULL, &err)) fail_msg("%s: %s", name, err.text);
    rvi_blob_close(&blob);
    return t;
}

static void reference_vectors(void **state)
{
    (void)state;
    loaded texts, expected;
    load_json(&texts, "texts");
    for (size_t n = 0; n < RVI_COUNT(names); n++) {
        char file[100];
        rvi_tokenizer *t = open_with(names[n], NULL, NULL, NULL);
        snprintf(file, sizeof file, "%s.expected", names[n]);
        load_json(&expected, file);
        check_texts(t, names[n], texts.root, rvi_json_get(expected.root, "texts"));
        check_random(t, names[n], rvi_json_get(expected.root, "random"));
        if (rvi_json_get(expected.root, "own"))
            check_texts(t, names[n], rvi_json_get(expected.root, "own_texts"),
                        rvi_json_get(expected.root, "own"));
        unload(&expected);
        rvi_tokenizer_free(t);
    }
    unload(&texts);
}

static void expect_first_and_last(const rvi_tokenizer *t, int32_t first, int32_t last)
{
    rvi_ids plain = {0}, around = {0};
    rv_error err;
    assert_int_equal(rvi_tokenizer_encode(t, "the", 3, 0, &plain, &err), RV_OK);
    assert_int_equal(rvi_tokenizer_encode(t, "the", 3, RVI_TOK_BOS_EOS, &around, &err), RV_OK);
    assert_int_equal(around.len, plain.len + (first >= 0) + (last >= 0));
    if (first >= 0) assert_int_equal(around.data[0], first);
    if (last >= 0) assert_int_equal(around.data[around.len - 1], last);
    rvi_ids_deinit(&plain);
    rvi_ids_deinit(&around);
}

/* The template puts <s> before and </s> behind; tokenizer_config.json can say otherwise. */
static void config_goes_first(void **state)
{
    (void)state;
    rvi_tokenizer *t = open_with("o200k", NULL, NULL, NULL);
    int32_t bos = rvi_tokenizer_find(t, "<s>", 3), eos = rvi_tokenizer_find(t, "</s>", 4),
            end = rvi_tokenizer_find(t, "<|end|>", 7);
    assert_true(bos >= 0 && eos >= 0 && end >= 0);
    expect_first_and_last(t, bos, eos);
    assert_true(rvi_tokenizer_adds_bos(t)); /* the template's only token in front is taken for it */
    rvi_tokenizer_free(t);

    t = open_with(
        "o200k",
        "{\"bos_token\":\"<s>\",\"eos_token\":{\"content\":\"<|end|>\"},\"add_bos_token\":false,"
        "\"add_eos_token\":true}",
        NULL, NULL);
    expect_first_and_last(t, -1, end);
    assert_int_equal(rvi_tokenizer_bos(t), bos);
    assert_int_equal(rvi_tokenizer_eos(t), end);
    assert_false(rvi_tokenizer_adds_bos(t));
    rvi_tokenizer_free(t);

    t = open_with(
        "gpt2",
        "{\"bos_token\":{\"content\":\"<s>\"},\"add_bos_token\":true,\"add_eos_token\":true,"
        "\"pad_token\":null}",
        NULL, NULL);
    expect_first_and_last(t, rvi_tokenizer_find(t, "<s>", 3),
                          -1); /* no eos token: nothing to add */
    size_t len;
    assert_string_equal(rvi_tokenizer_special_text(t, "bos_token", &len), "<s>");
    assert_int_equal(len, 3);
    assert_null(rvi_tokenizer_special_text(t, "pad_token", &len));
    assert_null(rvi_tokenizer_special_text(t, "no_such", &len));
    rvi_tokenizer_free(t);
}

static void end_of_generation(void **state)
{
    (void)state;
    rvi_tokenizer *t =
        open_with("gpt2", "{\"eos_token\":\"</s>\"}", "{\"eos_token_id\":[3,5,-1,99999999]}", NULL);
    assert_true(rvi_tokenizer_is_eos(t, rvi_tokenizer_eos(t)));
    assert_true(rvi_tokenizer_is_eos(
        t, rvi_tokenizer_find(t, "<|end|>", 7))); /* special, and known as an end */
    assert_true(rvi_tokenizer_is_eos(t, 3));
    assert_true(rvi_tokenizer_is_eos(t, 5));
    assert_false(rvi_tokenizer_is_eos(t, 4));
    assert_false(rvi_tokenizer_is_eos(t, rvi_tokenizer_find(t, "<|user|>", 8)));
    assert_false(rvi_tokenizer_is_eos(t, -1));
    assert_false(rvi_tokenizer_is_eos(t, rvi_tokenizer_size(t)));
    rvi_tokenizer_free(t);

    t = open_with("gpt2", NULL, "{\"eos_token_id\":7,\"bos_token_id\":6}", NULL);
    assert_int_equal(rvi_tokenizer_eos(t), 7);
    assert_int_equal(rvi_tokenizer_bos(t), 6);
    rvi_tokenizer_free(t);
}

static void pieces(void **state)
{
    (void)state;
    rvi_tokenizer *t = open_with("flags", NULL, NULL, NULL);
    size_t len, n_holes = 0;
    assert_int_equal(rvi_tokenizer_size(t), 601);
    for (int32_t i = 0; i < rvi_tokenizer_size(t); i++) {
        const char *text = rvi_tokenizer_text(t, i, &len);
        if (!text)
            n_holes++;
        else
            assert_int_equal(rvi_tokenizer_find(t, text, len), i);
    }
    assert_true(n_holes > 100);
    assert_null(rvi_tokenizer_text(t, -1, &len));
    assert_null(rvi_tokenizer_text(t, 601, &len));
    assert_int_equal(rvi_tokenizer_find(t, "<|hole|>", 8), 600);
    assert_int_equal(rvi_tokenizer_find(t, "<|hole", 6), -1);
    assert_true(rvi_tokenizer_is_special(t, 600));
    assert_false(rvi_tokenizer_is_special(t, rvi_tokenizer_find(t, "keep", 4)));
    assert_string_equal(rvi_tokenizer_kind(t), "byte-level BPE");
    rvi_tokenizer_free(t);
    t = open_with("spm_first", NULL, NULL, NULL);
    assert_string_equal(rvi_tokenizer_kind(t), "SentencePiece-like BPE");
    assert_int_equal(rvi_tokenizer_n_after(t), 0);
    rvi_tokenizer_free(t);
    t = open_with("bert", NULL, NULL, NULL);
    assert_string_equal(rvi_tokenizer_kind(t), "WordPiece");
    assert_int_equal(rvi_tokenizer_bos(t), rvi_tokenizer_find(t, "[CLS]", 5));
    assert_true(rvi_tokenizer_adds_bos(t));
    assert_int_equal(rvi_tokenizer_n_after(t), 1);
    rvi_tokenizer_free(t);
}

/* A token has its own bytes also where it begins or ends inside a character. */
static void bytes_of_tokens(void **state)
{
    static const char text[] = "a \xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80 \xE6\xBC\xA2z";
    static const char *const of[] = {"gpt2", "llama3", "qwen2", "o200k", "spm_runs"};
    (void)state;
    for (size_t k = 0; k < RVI_COUNT(of); k++) {
        rvi_tokenizer *t = open_with(of[k], NULL, NULL, NULL);
        rvi_ids ids = {0};
        rvi_buf bytes = {0};
        assert_int_equal(rvi_tokenizer_encode(t, text, sizeof text - 1, 0, &ids, NULL), RV_OK);
        for (size_t i = 0; i < ids.len; i++)
            assert_int_equal(rvi_tokenizer_bytes(t, ids.data[i], &bytes, NULL), RV_OK);
        assert_true(ids.len > 6 && bytes.len >= sizeof text - 1);
        assert_memory_equal(bytes.data + bytes.len - (sizeof text - 1), text, sizeof text - 1);
        rvi_ids_deinit(&ids);
        rvi_buf_deinit(&bytes);
        rvi_tokenizer_free(t);
    }
}

static void chat_templates(void **state)
{
    (void)state;
    size_t len;
    rvi_tokenizer *t = open_with("gpt2", "{\"chat_template\":\"one\"}", NULL, NULL);
    assert_string_equal(rvi_tokenizer_chat_template(t, &len), "one");
    assert_int_equal(len, 3);
    rvi_tokenizer_free(t);
    t = open_with(
        "gpt2",
        "{\"chat_template\":[{\"name\":\"tools\",\"template\":\"x\"},{\"name\":\"default\","
        "\"template\":\"two\"}]}",
        NULL, NULL);
    assert_string_equal(rvi_tokenizer_chat_template(t, &len), "two");
    rvi_tokenizer_free(t);
    t = open_with("gpt2", "{\"chat_template\":\"one\"}", NULL, "three");
    assert_string_equal(rvi_tokenizer_chat_template(t, &len), "three");
    rvi_tokenizer_free(t);
    t = open_with("gpt2", NULL, NULL, NULL);
    assert_null(rvi_tokenizer_chat_template(t, &len));
    rvi_tokenizer_free(t);
}

/* Bytes that are not UTF-8 are read as U+FFFD, one for each maximal invalid part. */
static void invalid_utf8(void **state)
{
    (void)state;
    static const struct {
        const char *bytes, *as;
    } rows[] = {{"a\xFF"
                 "b",
                 "a\xEF\xBF\xBD"
                 "b"},
                {"\xE4\xBD", "\xEF\xBF\xBD"},
                {"\xED\xA0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
                {"\xC0\xAF", "\xEF\xBF\xBD\xEF\xBF\xBD"},
                {"\xF0\x9F\x98x", "\xEF\xBF\xBDx"}};
    for (size_t n = 0; n < RVI_COUNT(names); n++) {
        rvi_tokenizer *t = open_with(names[n], NULL, NULL, NULL);
        for (size_t i = 0; i < RVI_COUNT(rows); i++) {
            rvi_ids got = {0}, want = {0};
            rv_error err;
            assert_int_equal(
                rvi_tokenizer_encode(t, rows[i].bytes, strlen(rows[i].bytes), 0, &got, &err),
                RV_OK);
            assert_int_equal(
                rvi_tokenizer_encode(t, rows[i].as, strlen(rows[i].as), 0, &want, &err), RV_OK);
            assert_int_equal(got.len, want.len);
            assert_memory_equal(got.data, want.data, got.len * sizeof *got.data);
            rvi_ids_deinit(&got);
            rvi_ids_deinit(&want);
        }
        rvi_tokenizer_free(t);
    }
}

static void push_bytes(const rvi_tokenizer *t, rvi_detok *d, const char *bytes, rvi_buf *out)
{
    rv_error err;
    for (; *bytes; bytes++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", (unsigned char)*bytes);
        assert_int_equal(rvi_detok_push(d, rvi_tokenizer_find(t, name, 6), out, &err), RV_OK);
    }
}

/* A run of byte tokens is held until it ends, and one bad byte spoils all of it. */
static void byte_runs(void **state)
{
    (void)state;
    rvi_tokenizer *t = open_with("spm_runs", NULL, NULL, NULL);
    rvi_detok d;
    rvi_buf out = {0};
    rv_error err;
    int32_t letter = rvi_tokenizer_find(t, "a", 1);
    rvi_detok_init(&d, t, 0);
    push_bytes(t, &d, "\xE4\xBD\xA0", &out);
    assert_int_equal(out.len, 0);
    assert_int_equal(rvi_detok_push(&d, letter, &out, &err), RV_OK);
    assert_string_equal(out.data, "\xE4\xBD\xA0"
                                  "a");
    out.len = 0;
    push_bytes(t, &d, "\xE4\xBD\xA0\xFF", &out);
    assert_int_equal(rvi_detok_flush(&d, &out, &err), RV_OK);
    assert_string_equal(out.data, "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");

    /* a run that is longer than the room for it, of three-byte characters: the cut falls into a
     * character */
    out.len = 0;
    size_t n = RVI_DETOK_RUN / 3 * 2 + 5;
    for (size_t i = 0; i < n; i++) push_bytes(t, &d, "\xE4\xBD\xA0", &out);
    assert_true(out.len > 0);
    assert_int_equal(rvi_detok_flush(&d, &out, &err), RV_OK);
    assert_int_equal(out.len, n * 3);
    for (size_t i = 0; i < n; i++) assert_memory_equal(out.data + i * 3, "\xE4\xBD\xA0", 3);
    rvi_buf_deinit(&out);
    rvi_tokenizer_free(t);
}

/* Long runs end in reasonable time; joined again they are the text. */
static void long_runs(void **state)
{
    (void)state;
    static const char *const units[] = {"a",        " ",  "\n",     "A1", "\xE4\xBB\x8A",
                                        "\xCC\x81", " x", "  <|end"};
    const size_t count = OFTEN(20000, 5000);
    for (size_t n = 0; n < RVI_COUNT(names); n++) {
        /* the normalizers of some and the decoder of one do not give the text back */
        bool lossy = !strcmp(names[n], "flags") || !strcmp(names[n], "qwen2") ||
                     !strcmp(names[n], "spm_words") || !strncmp(names[n], "bert", 4);
        rvi_tokenizer *t = open_with(names[n], NULL, NULL, NULL);
        for (size_t u = 0; u < RVI_COUNT(units); u++) {
            size_t unit = strlen(units[u]), len = unit * count;
            char *text = malloc(len);
            rvi_ids ids = {0};
            rvi_buf out = {0};
            rv_error err;
            assert_non_null(text);
            for (size_t i = 0; i < count; i++) memcpy(text + i * unit, units[u], unit);
            assert_int_equal(rvi_tokenizer_encode(t, text, len, 0, &ids, &err), RV_OK);
            assert_int_equal(rvi_tokenizer_decode(t, ids.data, ids.len, 0, &out, &err), RV_OK);
            /* a space in front may be added or dropped */
            assert_true(lossy || (out.len + 1 >= len && out.len <= len + 1));
            size_t skip = out.len > len ? 1 : 0, lost = out.len < len ? 1 : 0;
            if (!lossy) assert_memory_equal(out.data + skip, text + lost, out.len - skip);
            rvi_ids_deinit(&ids);
            rvi_buf_deinit(&out);
            free(text);
        }
        rvi_tokenizer_free(t);
    }
}

/* ---- text of users ---- */

/* <e> and <e>x are special in the raw text, <N> (spelled <n>) in the normalized one, <w> is not
 * special. */
#define MARKED(normalizer)                                                                         \
    "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"<\":0,\"e\":1,\">\":2,\"x\":3,\"n\":4,\"w\":5,"     \
    "\"_\":6},\"merges\":[]},\"added_tokens\":["                                                   \
    "{\"id\":10,\"content\":\"<e>\",\"special\":true},"                                            \
    "{\"id\":11,\"content\":\"<e>x\",\"special\":true},"                                           \
    "{\"id\":12,\"content\":\"<N>\",\"special\":true,\"normalized\":true},"                        \
    "{\"id\":13,\"content\":\"<w>\"}],\"normalizer\":" normalizer "}"

static void check_marked(const rvi_tokenizer *t, const char *text, size_t start, size_t end,
                         const char *want)
{
    rvi_text_spans user = {0};
    rvi_ids ids = {0};
    rv_error err = {0};
    char got[200] = "";
    size_t n = 0;
    assert_true(rvi_text_spans_add(&user, start, end));
    rv_status st = rvi_tokenizer_encode_marked(t, text, strlen(text), &user, 0, &ids, &err);
    if (st) fail_msg("%s: %s", text, err.text);
    for (size_t i = 0; i < ids.len; i++)
        n += (size_t)snprintf(got + n, sizeof got - n, "%s%d", i ? " " : "", ids.data[i]);
    if (strcmp(got, want)) fail_msg("%s %zu-%zu: %s, not %s", text, start, end, got, want);
    rvi_ids_deinit(&ids);
    rvi_text_spans_deinit(&user);
}

static void text_of_users(void **state)
{
    static const char *const jsons[] = {
        MARKED("{\"type\":\"Lowercase\"}"),
        MARKED("{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Lowercase\"},"
               "{\"type\":\"Replace\",\"pattern\":{\"String\":\"x\"},\"content\":\"xx\"}]}")};
    (void)state;
    for (int doubled = 0; doubled < 2; doubled++) {
        rvi_tokenizer_files files = {.tokenizer = jsons[doubled],
                                     .tokenizer_len = strlen(jsons[doubled])};
        rvi_tokenizer *t;
        rv_error err = {0};
        if (rvi_tokenizer_from_json(&t, &files, NULL, &err)) fail_msg("%s", err.text);
        if (!doubled) {
            check_marked(t, "<e><e><e>", 3, 6, "10 0 1 2 10"); /* only what is in the span */
            check_marked(t, "<e><e>", 0, 0, "10 10");
            check_marked(t, "<e>x", 3, 4, "10 3");    /* the longer token reaches into it */
            check_marked(t, "<e>x", 0, 1, "0 1 2 3"); /* and a token that begins in it */
            check_marked(t, "<<e>", 0, 1, "0 10");    /* no token of the template is lost */
            check_marked(t, "<e<e>", 0, 2, "0 1 10");
            check_marked(t, "<w><w>", 0, 6, "13 13"); /* not special: an ordinary word */
            check_marked(t, "x<N>x<N>", 0, 5, "3 0 4 2 3 12");
            check_marked(t, "<N><e><N><N>", 6, 9, "12 10 0 4 2 12");
            check_marked(t, "<N><N>", 3, 6, "12 0 4 2");
        } else {
            check_marked(t, "x<N>x<N>", 0, 5, "3 3 0 4 2 3 3 12");
            check_marked(t, "x<N>x<N>", 4, 8, "3 3 12 3 3 0 4 2");
        }
        const char bad[] = "\xFFx";
        rvi_text_spans user = {0};
        rvi_ids ids = {0};
        assert_true(rvi_text_spans_add(&user, 0, 1));
        assert_int_equal(rvi_tokenizer_encode_marked(t, bad, 2, &user, 0, &ids, &err),
                         RV_E_TOKENIZATION);
        rvi_text_spans_deinit(&user);
        rvi_tokenizer_free(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reference_vectors), cmocka_unit_test(config_goes_first),
        cmocka_unit_test(end_of_generation), cmocka_unit_test(pieces),
        cmocka_unit_test(bytes_of_tokens),   cmocka_unit_test(chat_templates),
        cmocka_unit_test(invalid_utf8),      cmocka_unit_test(byte_runs),
        cmocka_unit_test(long_runs),         cmocka_unit_test(text_of_users),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
