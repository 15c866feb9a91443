/* test_tokenizer_gguf.c - the small tokenizers as GGUF metadata: the answers are those of
 * tokenizer.json. And what metadata is refused. Run from the repository root. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "formats/gguf_builder.h"
#include "tokenizer/vectors.h"

enum { MOST = 700, LONGEST = 64 };

typedef struct vocabulary {
    char texts[MOST][LONGEST];
    const char *tokens[MOST];
    int32_t types[MOST];
    float scores[MOST];
    char merge_texts[MOST][2 * LONGEST];
    const char *merges[MOST];
    size_t n, n_merges;
} vocabulary;

static int32_t find(const vocabulary *v, const char *text)
{
    for (size_t i = 0; i < v->n; i++)
        if (!strcmp(v->texts[i], text)) return (int32_t)i;
    return -1;
}

static void add(vocabulary *v, size_t id, const char *text, int32_t type)
{
    assert_true(id < MOST && strlen(text) < LONGEST);
    snprintf(v->texts[id], LONGEST, "%s", text);
    v->types[id] = type;
    if (id >= v->n) v->n = id + 1;
}

/* What a converter makes of tokenizer.json: 1 normal, 2 unknown, 3 control, 4 user-defined, 5
 * unused, 6 byte. The score of a piece is minus the rank of its merge. */
static void convert(vocabulary *v, const rvi_json *root)
{
    const rvi_json *model = rvi_json_get(root, "model"), *vocab = rvi_json_get(model, "vocab");
    const rvi_json *added = rvi_json_get(root, "added_tokens"),
                   *merges = rvi_json_get(model, "merges");
    bool bytes = rvi_json_bool(rvi_json_get(model, "byte_fallback"), false);
    memset(v, 0, sizeof *v);
    for (size_t i = 0; i < MOST; i++) {
        v->tokens[i] = v->texts[i];
        v->types[i] = 5;
        snprintf(v->texts[i], LONGEST, "[unused%zu]", i);
    }
    for (size_t i = 0; i < rvi_json_count(vocab); i++) {
        const rvi_json *m = rvi_json_at(vocab, i);
        bool is_byte = bytes && m->key_len == 6 && !strncmp(m->key, "<0x", 3);
        add(v, (size_t)m->as.integer, m->key,
            is_byte                             ? 6
            : bytes && !strcmp(m->key, "<unk>") ? 2
                                                : 1);
    }
    for (size_t i = 0; i < rvi_json_count(added); i++) {
        const rvi_json *a = rvi_json_at(added, i);
        add(v, (size_t)rvi_json_int(rvi_json_get(a, "id"), -1),
            rvi_json_string(rvi_json_get(a, "content"), ""),
            rvi_json_bool(rvi_json_get(a, "special"), false) ? 3 : 4);
    }
    for (size_t i = 0; i < rvi_json_count(merges); i++) {
        const rvi_json *m = rvi_json_at(merges, i);
        const char *left = rvi_json_string(rvi_json_at(m, 0), ""),
                   *right = rvi_json_string(rvi_json_at(m, 1), "");
        char both[2 * LONGEST];
        snprintf(both, sizeof both, "%s%s", left, right);
        snprintf(v->merge_texts[i], 2 * LONGEST, "%s %s", left, right);
        v->merges[i] = v->merge_texts[i];
        v->scores[find(v, both)] = -1.0f - (float)i;
    }
    v->n_merges = rvi_json_count(merges);
    for (size_t i = 0; i < v->n; i++)
        if (v->types[i] == 1 && v->scores[i] == 0) v->scores[i] = -1000.0f - (float)i;
}

static rvi_gguf *finish(gguf_builder *b)
{
    static rvi_buf bytes; /* outlives the file; freed by the next one or at the end */
    rvi_blob blob;
    rvi_gguf *g;
    rv_error err = {0};
    rvi_buf_deinit(&bytes);
    if (b) {
        gb_finish(b, &bytes);
        gb_deinit(b);
        rvi_blob_from_memory(&blob, bytes.data, bytes.len);
        if (rvi_gguf_open_blob(&g, &blob, "test", &err)) fail_msg("%s", err.text);
        return g;
    }
    return NULL;
}

static const struct {
    const char *name, *model, *pre, *extra; /* extra: one more control token */
    int add_bos, space_prefix;              /* -1: not said */
} rows[] = {
    {"gpt2", "gpt2", "gpt-2", NULL, -1, -1},
    {"llama3", "gpt2", "llama-bpe", NULL, -1, -1},
    {"qwen2", "gpt2", "qwen2", NULL, -1, -1},
    {"o200k", "gpt2", "gpt-4o", NULL, 1, -1},
    {"deepseek", "gpt2", "deepseek-v3", NULL, 0, -1},
    {"digits", "gpt2", "smollm", NULL, -1, -1},
    {"spm_prepend", "llama", "default", NULL, -1, -1},
    {"spm_runs", "llama", "default", NULL, 0, 0},
    {"spm_first", "llama", "default", "[INST]", 0, 1},
};

static void same_as_json(void **state)
{
    (void)state;
    static vocabulary v;
    loaded texts, source, expected;
    rv_error err = {0};
    load_json(&texts, "texts");
    for (size_t i = 0; i < RVI_COUNT(rows); i++) {
        char file[100];
        gguf_builder b = {.version = 3};
        rvi_tokenizer *t;
        load_json(&source, rows[i].name);
        convert(&v, source.root);
        if (rows[i].extra) add(&v, v.n, rows[i].extra, 3);
        gb_str(&b, "tokenizer.ggml.model", rows[i].model);
        gb_str(&b, "tokenizer.ggml.pre", rows[i].pre);
        gb_str_array(&b, "tokenizer.ggml.tokens", v.tokens, v.n);
        gb_array(&b, "tokenizer.ggml.token_type", RVI_GGUF_I32, v.types, v.n, 4);
        if (!strcmp(rows[i].model, "llama"))
            gb_array(&b, "tokenizer.ggml.scores", RVI_GGUF_F32, v.scores, v.n, 4);
        else
            gb_str_array(&b, "tokenizer.ggml.merges", v.merges, v.n_merges);
        gb_u32(&b, "tokenizer.ggml.bos_token_id", (uint32_t)find(&v, "<s>"));
        gb_u32(&b, "tokenizer.ggml.eos_token_id", (uint32_t)find(&v, "</s>"));
        if (!strcmp(rows[i].name, "o200k")) gb_bool(&b, "tokenizer.ggml.add_eos_token", true);
        if (rows[i].add_bos >= 0) gb_bool(&b, "tokenizer.ggml.add_bos_token", rows[i].add_bos != 0);
        if (rows[i].space_prefix >= 0)
            gb_bool(&b, "tokenizer.ggml.add_space_prefix", rows[i].space_prefix != 0);
        rvi_gguf *g = finish(&b);
        if (rvi_tokenizer_from_gguf(&t, g, NULL, &err)) fail_msg("%s: %s", rows[i].name, err.text);
        rvi_gguf_close(g);
        finish(NULL); /* nothing of the file is needed any more */
        snprintf(file, sizeof file, "%s.expected", rows[i].name);
        load_json(&expected, file);
        check_texts(t, rows[i].name, texts.root, rvi_json_get(expected.root, "texts"));
        check_random(t, rows[i].name, rvi_json_get(expected.root, "random"));
        assert_int_equal(rvi_tokenizer_eos(t), find(&v, "</s>"));
        assert_true(rvi_tokenizer_is_eos(t, find(&v, "</s>")));
        assert_true(rvi_tokenizer_is_eos(t, find(&v, "<|end|>")));
        rvi_tokenizer_free(t);
        unload(&expected);
        unload(&source);
    }
    unload(&texts);
}

/* BERT's vocabulary as its converter writes it: U+2581 where a word begins, no "##", special tokens
 * as they are. lowercase: -1 not said, otherwise the key's value. */
static rvi_tokenizer *open_bert(const char *name, int lowercase, bool keys)
{
    static vocabulary v;
    loaded source;
    gguf_builder b = {.version = 3};
    rvi_tokenizer *t;
    rv_error err = {0};
    load_json(&source, name);
    convert(&v, source.root);
    for (size_t i = 0; i < v.n; i++) {
        char old[LONGEST];
        snprintf(old, sizeof old, "%s", v.texts[i]);
        if (v.types[i] == 3) continue;
        if (!strncmp(old, "##", 2))
            snprintf(v.texts[i], LONGEST, "%s", old + 2);
        else
            snprintf(v.texts[i], LONGEST, "\xE2\x96\x81%.60s", old);
    }
    gb_str(&b, "tokenizer.ggml.model", "bert");
    gb_str_array(&b, "tokenizer.ggml.tokens", v.tokens, v.n);
    gb_array(&b, "tokenizer.ggml.token_type", RVI_GGUF_I32, v.types, v.n, 4);
    if (lowercase >= 0) gb_bool(&b, "tokenizer.ggml.normalizer.lowercase", lowercase != 0);
    if (keys) {
        gb_u32(&b, "tokenizer.ggml.cls_token_id", (uint32_t)find(&v, "[CLS]"));
        gb_u32(&b, "tokenizer.ggml.seperator_token_id", (uint32_t)find(&v, "[SEP]"));
        gb_u32(&b, "tokenizer.ggml.unknown_token_id", (uint32_t)find(&v, "[UNK]"));
        gb_bool(&b, "tokenizer.ggml.add_sep_token", false); /* contradicts; not listened to */
    }
    rvi_gguf *g = finish(&b);
    if (rvi_tokenizer_from_gguf(&t, g, NULL, &err)) fail_msg("%s: %s", name, err.text);
    rvi_gguf_close(g);
    finish(NULL);
    unload(&source);
    return t;
}

static void bert(void **state)
{
    (void)state;
    loaded texts, expected;
    load_json(&texts, "texts");
    load_json(&expected, "bert.expected");
    for (int way = 0; way < 2;
         way++) { /* with keys; found by text and by what the pieces look like */
        rvi_tokenizer *t = open_bert("bert", way ? -1 : 1, !way);
        check_texts(t, "bert", texts.root, rvi_json_get(expected.root, "texts"));
        check_texts(t, "bert", rvi_json_get(expected.root, "own_texts"),
                    rvi_json_get(expected.root, "own"));
        check_random(t, "bert", rvi_json_get(expected.root, "random"));
        assert_string_equal(rvi_tokenizer_kind(t), "WordPiece");
        rvi_tokenizer_free(t);
    }
    unload(&expected);
    unload(&texts);

    /* A vocabulary with capitals is one of a cased model, unless the file says otherwise. */
    for (int lowercase = -1; lowercase < 2; lowercase++) {
        rvi_tokenizer *t = open_bert("bert_cased", lowercase, true);
        rvi_ids ids = {0};
        size_t len;
        assert_int_equal(rvi_tokenizer_encode(t, "T", 1, 0, &ids, NULL), RV_OK);
        assert_int_equal(ids.len, 1);
        assert_string_equal(rvi_tokenizer_text(t, ids.data[0], &len), lowercase == 1 ? "t" : "T");
        rvi_ids_deinit(&ids);
        rvi_tokenizer_free(t);
    }
}

static void count_warning(void *ctx, rvi_log_level level, const char *line)
{
    (void)line;
    if (level == RVI_LOG_WARN) ++*(int *)ctx;
}

static void small_things(void **state)
{
    (void)state;
    static const char *const tokens[] = {"a",    "b",       "ab",         "<|im_end|>", "<|x|>",
                                         "\xFF", "<|end|>", "<|return|>", "<|call|>"};
    static const int32_t types[] = {1, 1, 1, 3, 4, 1, 3, 3, 3};
    static const char *const merges[] = {"a b", "a z", "nothing"};
    int n_warnings = 0;
    size_t len;
    rvi_log log = {.sink = count_warning, .ctx = &n_warnings, .level = RVI_LOG_WARN};
    rv_error err = {0};
    rvi_tokenizer *t;
    gguf_builder b = {.version = 3};
    gb_str(&b, "tokenizer.ggml.model", "gpt2");
    gb_str(&b, "tokenizer.ggml.pre", "some-new-one");
    gb_str_array(&b, "tokenizer.ggml.tokens", tokens, RVI_COUNT(tokens));
    gb_array(&b, "tokenizer.ggml.token_type", RVI_GGUF_I32, types, RVI_COUNT(types), 4);
    gb_str_array(&b, "tokenizer.ggml.merges", merges, RVI_COUNT(merges));
    gb_u32(&b, "tokenizer.ggml.eot_token_id", 4);
    gb_u32(&b, "tokenizer.ggml.eos_token_id", 1000); /* out of range */
    gb_str(&b, "tokenizer.chat_template", "{{ x }}");
    rvi_gguf *g = finish(&b);
    if (rvi_tokenizer_from_gguf(&t, g, &log, &err)) fail_msg("%s", err.text);
    rvi_gguf_close(g);
    finish(NULL);
    assert_int_equal(n_warnings, 3); /* the unknown name, two merges, one text that is not UTF-8 */
    assert_string_equal(rvi_tokenizer_kind(t), "byte-level BPE (some-new-one)");
    assert_string_equal(rvi_tokenizer_chat_template(t, &len), "{{ x }}");
    assert_int_equal(rvi_tokenizer_eos(t), -1);
    assert_int_equal(rvi_tokenizer_bos(t), -1);
    assert_true(rvi_tokenizer_is_eos(t, 4)); /* eot */
    assert_true(rvi_tokenizer_is_eos(t, 3)); /* known text */
    assert_false(
        rvi_tokenizer_is_eos(t, 6)); /* <|end|> does not end where <|return|> and <|call|> do */
    assert_true(rvi_tokenizer_is_eos(t, 7));
    assert_true(rvi_tokenizer_is_special(t, 3));
    assert_false(rvi_tokenizer_is_special(t, 4));
    assert_string_equal(rvi_tokenizer_text(t, 5, &len), "\xEF\xBF\xBD");
    rvi_ids ids = {0};
    assert_int_equal(rvi_tokenizer_encode(t, "ab<|x|>ab<|im_end|>", 19, RVI_TOK_PLAIN, &ids, &err),
                     RV_OK);
    assert_int_equal(ids.data[0], 2);
    assert_int_equal(ids.data[1], 4);
    assert_int_equal(ids.data[2], 2);
    assert_int_equal(ids.len,
                     3); /* of "<|im_end|>" as plain text no character is in the vocabulary */
    rvi_ids_deinit(&ids);
    rvi_tokenizer_free(t);
}

/* Every name of the table: its patterns compile, and no warning is given. */
static void known_names(void **state)
{
    (void)state;
    static const char *const pres[] = {
        "default",     "gpt-2",      "phi-2",        "olmo",           "mpt",         "llama-bpe",
        "llama3",      "falcon3",    "dbrx",         "smaug-bpe",      "chatglm-bpe", "qwen2",
        "stablelm2",   "qwen35",     "smollm",       "starcoder",      "refact",      "codeshell",
        "command-r",   "tekken",     "gpt-4o",       "minimax-m2",     "tiny_aya",    "kimi-k2",
        "deepseek-v3", "afmoe",      "deepseek-llm", "deepseek-coder", "youtu",       "falcon",
        "jais-2",      "bailingmoe", "seed-coder",   "exaone-moe",     "minicpm5",    "laguna",
        "superbpe",    "bloom",      "viking",       "chameleon",      "gemma4"};
    static const char *const tokens[] = {"a", "b", "ab"}, *const merges[] = {"a b"};
    for (size_t i = 0; i < RVI_COUNT(pres); i++) {
        int n_warnings = 0;
        rvi_log log = {.sink = count_warning, .ctx = &n_warnings, .level = RVI_LOG_WARN};
        rvi_tokenizer *t;
        rvi_ids ids = {0};
        rv_error err = {0};
        gguf_builder b = {.version = 3};
        gb_str(&b, "tokenizer.ggml.model", "gpt2");
        gb_str(&b, "tokenizer.ggml.pre", pres[i]);
        gb_str_array(&b, "tokenizer.ggml.tokens", tokens, RVI_COUNT(tokens));
        gb_str_array(&b, "tokenizer.ggml.merges", merges, RVI_COUNT(merges));
        rvi_gguf *g = finish(&b);
        if (rvi_tokenizer_from_gguf(&t, g, &log, &err)) fail_msg("%s: %s", pres[i], err.text);
        rvi_gguf_close(g);
        if (n_warnings) fail_msg("%s is not known", pres[i]);
        assert_int_equal(rvi_tokenizer_encode(t, "ab", 2, 0, &ids, &err), RV_OK);
        assert_int_equal(ids.len, 1);
        assert_int_equal(ids.data[0], 2);
        rvi_ids_deinit(&ids);
        rvi_tokenizer_free(t);
    }
    finish(NULL);
}

/* Phi-3's special tokens take the white space behind them; only the model's name tells. */
static void strips_for_phi3(void **state)
{
    (void)state;
    static const char *const tokens[] = {"<unk>", "<s>",      "</s>",         "\xE2\x96\x81",
                                         "a",     "<|user|>", "<|endoftext|>"};
    static const int32_t types[] = {2, 3, 4, 1, 1, 3, 3};
    static const float scores[RVI_COUNT(types)] = {0};
    static const char text[] = "a<|user|> \n a<|endoftext|> a";
    for (int phi = 0; phi < 2; phi++) {
        rvi_tokenizer *t;
        rvi_ids ids = {0};
        rv_error err = {0};
        gguf_builder b = {.version = 3};
        gb_str(&b, "general.name", phi ? "Phi-3 mini" : "Other");
        gb_str(&b, "tokenizer.ggml.model", "llama");
        gb_str_array(&b, "tokenizer.ggml.tokens", tokens, RVI_COUNT(tokens));
        gb_array(&b, "tokenizer.ggml.token_type", RVI_GGUF_I32, types, RVI_COUNT(types), 4);
        gb_array(&b, "tokenizer.ggml.scores", RVI_GGUF_F32, scores, RVI_COUNT(scores), 4);
        rvi_gguf *g = finish(&b);
        if (rvi_tokenizer_from_gguf(&t, g, NULL, &err)) fail_msg("%s", err.text);
        rvi_gguf_close(g);
        assert_int_equal(rvi_tokenizer_encode(t, text, strlen(text), RVI_TOK_BOS_EOS, &ids, &err),
                         RV_OK);
        /* <s> _ a <|user|> (_ _ unk _) _ a <|endoftext|> _ _ a */
        static const int32_t with[] = {1, 3, 4, 5, 3, 4, 6, 3, 3, 4},
                             without[] = {1, 3, 4, 5, 3, 3, 0, 3, 4, 6, 3, 3, 4};
        assert_int_equal(ids.len, phi ? RVI_COUNT(with) : RVI_COUNT(without));
        assert_memory_equal(ids.data, phi ? with : without, ids.len * sizeof *ids.data);
        rvi_ids_deinit(&ids);
        rvi_tokenizer_free(t);
    }
    finish(NULL);
}

static void refused(void **state)
{
    (void)state;
    static const char *const tokens[] = {"a", "b"};
    static const int32_t types[] = {1, 1, 1};
    for (int i = 0; i < 8; i++) {
        static const char *const says[] = {
            "'t5'",          "missing",           "tokens is missing",
            "token_type",    "merges is missing", "scores is missing",
            "scores is not", "merges is not"};
        gguf_builder b = {.version = 3};
        rvi_tokenizer *t;
        rv_error err = {0};
        bool spm = i == 5 || i == 6;
        if (i != 1) gb_str(&b, "tokenizer.ggml.model", i == 0 ? "t5" : spm ? "llama" : "gpt2");
        if (i != 2) gb_str_array(&b, "tokenizer.ggml.tokens", tokens, 2);
        if (i == 3) gb_array(&b, "tokenizer.ggml.token_type", RVI_GGUF_I32, types, 3, 4);
        if (i == 6) gb_str_array(&b, "tokenizer.ggml.scores", tokens, 2);
        if (i == 7) gb_array(&b, "tokenizer.ggml.merges", RVI_GGUF_I32, types, 3, 4);
        rvi_gguf *g = finish(&b);
        assert_int_equal(rvi_tokenizer_from_gguf(&t, g, NULL, &err), RV_E_TOKENIZATION);
        assert_null(t);
        if (!strstr(err.text, says[i]))
            fail_msg("case %d: '%s' does not say '%s'", i, err.text, says[i]);
        rvi_gguf_close(g);
    }
    finish(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_as_json),    cmocka_unit_test(bert),
        cmocka_unit_test(small_things),    cmocka_unit_test(known_names),
        cmocka_unit_test(strips_for_phi3), cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
