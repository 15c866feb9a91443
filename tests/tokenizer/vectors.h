/* vectors.h - comparing a tokenizer with the answers in tests/tokenizer/data
 * (tools/make_tokenizer_vectors.py). For tests that include cmocka.h before; run from the
 * repository root. */
#ifndef TESTS_TOKENIZER_VECTORS_H
#define TESTS_TOKENIZER_VECTORS_H

#include <stdio.h>
#include <string.h>

#include "base/blob.h"
#include "base/json.h"
#include "base/utf8.h"
#include "tokenizer/tokenizer.h"

typedef struct loaded {
    rvi_blob blob;
    rvi_arena arena;
    const rvi_json *root;
} loaded;

static inline void load_json(loaded *l, const char *name)
{
    char path[200];
    rv_error err = {0};
    *l = (loaded){0};
    snprintf(path, sizeof path, "tests/tokenizer/data/%s.json", name);
    if (rvi_blob_open(&l->blob, path, &err)) fail_msg("%s", err.text);
    if (rvi_json_parse(&l->root, (const char *)l->blob.data, l->blob.len, &l->arena, name, &err))
        fail_msg("%s", err.text);
}

static inline void unload(loaded *l)
{
    rvi_arena_deinit(&l->arena);
    rvi_blob_close(&l->blob);
}

static inline void expect_ids(const char *name, size_t row, const char *what, const rvi_ids *got,
                              const rvi_json *want)
{
    bool same = got->len == rvi_json_count(want);
    for (size_t i = 0; i < got->len && same; i++)
        same = got->data[i] == rvi_json_int(rvi_json_at(want, i), -1);
    if (same) return;
    fprintf(stderr, "got ");
    for (size_t i = 0; i < got->len; i++) fprintf(stderr, " %d", (int)got->data[i]);
    fprintf(stderr, "\nwant");
    for (size_t i = 0; i < rvi_json_count(want); i++)
        fprintf(stderr, " %d", (int)rvi_json_int(rvi_json_at(want, i), -1));
    fail_msg("\n%s, row %zu: %s differ", name, row, what);
}

static inline void expect_text(const char *name, size_t row, const char *what, const rvi_buf *got,
                               const rvi_json *want)
{
    size_t len = want->as.string.len;
    if (got->len != len || (len && memcmp(got->data, want->as.string.data, len)))
        fail_msg("%s, row %zu: %s is '%s', not '%s'", name, row, what, got->len ? got->data : "",
                 want->as.string.data);
}

/* Decodes at once and in portions: both equal `want`, and each portion is whole characters. */
static inline void expect_decoded(const rvi_tokenizer *t, const char *name, size_t row,
                                  const rvi_ids *ids, unsigned flags, const rvi_json *want)
{
    rvi_buf all = {0}, parts = {0};
    rvi_detok d;
    rv_error err = {0};
    assert_int_equal(rvi_tokenizer_decode(t, ids->data, ids->len, flags, &all, &err), RV_OK);
    expect_text(name, row, "decoded text", &all, want);
    rvi_detok_init(&d, t, flags);
    for (size_t i = 0; i <= ids->len; i++) {
        size_t before = parts.len;
        rv_status st = i < ids->len ? rvi_detok_push(&d, ids->data[i], &parts, &err)
                                    : rvi_detok_flush(&d, &parts, &err);
        assert_int_equal(st, RV_OK);
        bool valid = true;
        for (size_t k = before; k < parts.len && valid;) {
            uint32_t cp;
            k += rvi_utf8_decode(parts.data + k, parts.len - k, &cp, &valid);
        }
        assert_true(valid);
    }
    expect_text(name, row, "text in portions", &parts, want);
    rvi_buf_deinit(&all);
    rvi_buf_deinit(&parts);
}

static inline void check_texts(const rvi_tokenizer *t, const char *name, const rvi_json *texts,
                               const rvi_json *rows)
{
    static const struct {
        const char *key;
        unsigned flags;
    } ways[] = {{"plain", RVI_TOK_PLAIN}, {"around", RVI_TOK_BOS_EOS}, {"ids", 0}};
    rv_error err = {0};
    assert_int_equal(rvi_json_count(texts), rvi_json_count(rows));
    for (size_t i = 0; i < rvi_json_count(texts); i++) {
        const rvi_json *text = rvi_json_at(texts, i), *row = rvi_json_at(rows, i);
        rvi_ids ids = {0};
        for (size_t w = 0; w < RVI_COUNT(ways); w++) {
            ids.len = 0;
            assert_int_equal(rvi_tokenizer_encode(t, text->as.string.data, text->as.string.len,
                                                  ways[w].flags, &ids, &err),
                             RV_OK);
            expect_ids(name, i, ways[w].key, &ids, rvi_json_get(row, ways[w].key));
        }
        expect_decoded(t, name, i, &ids, 0, rvi_json_get(row, "decoded"));
        rvi_ids_deinit(&ids);
    }
}

static inline void check_random(const rvi_tokenizer *t, const char *name, const rvi_json *rows)
{
    assert_true(rvi_json_count(rows) > 0);
    for (size_t i = 0; i < rvi_json_count(rows); i++) {
        const rvi_json *row = rvi_json_at(rows, i), *list = rvi_json_get(row, "ids");
        rvi_ids ids = {0};
        for (size_t k = 0; k < rvi_json_count(list); k++)
            assert_true(rvi_ids_push(&ids, (int32_t)rvi_json_int(rvi_json_at(list, k), -1)));
        expect_decoded(t, name, i, &ids, 0, rvi_json_get(row, "text"));
        expect_decoded(t, name, i, &ids, RVI_TOK_SKIP_SPECIAL, rvi_json_get(row, "skip"));
        rvi_ids_deinit(&ids);
    }
}

#endif
