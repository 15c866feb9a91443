/* safetensors files: reading, shards, writing, and the error each bad file gives. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/os.h"
#include "formats/safetensors.h"

/* ---- helpers ---- */

/* Header length, header, then n_data bytes 0, 1, 2, ... */
static void make_file(rvi_buf *out, const char *header, size_t n_data)
{
    uint64_t len = strlen(header);
    for (unsigned i = 0; i < 8; i++) rvi_buf_putc(out, (char)(len >> (8 * i) & 0xFF));
    rvi_buf_puts(out, header);
    for (size_t i = 0; i < n_data; i++) rvi_buf_putc(out, (char)i);
    assert_false(out->failed);
}

/* Opens a copy of exactly len bytes, so that a sanitizer sees a read past their end. */
static rv_status open_copy(rvi_safetensors **out, const void *bytes, size_t len, rv_error *err)
{
    void *copy = rvi_alloc_array(len ? len : 1, 1);
    assert_non_null(copy);
    if (len) memcpy(copy, bytes, len);
    rvi_blob blob = {.data = copy, .len = len, .heap = copy};
    rv_status st = rvi_safetensors_open_blob(out, &blob, "test.st", err);
    assert_null(blob.data);
    return st;
}

static rvi_safetensors *open_text(const char *header, size_t n_data)
{
    rvi_buf bytes = {0};
    rvi_safetensors *s;
    rv_error err = {0};
    make_file(&bytes, header, n_data);
    if (open_copy(&s, bytes.data, bytes.len, &err)) fail_msg("%s", err.text);
    rvi_buf_deinit(&bytes);
    return s;
}

static void expect_bad_bytes(const void *bytes, size_t len, const char *text)
{
    rvi_safetensors *s = (rvi_safetensors *)1;
    rv_error err = {0};
    rv_status st = open_copy(&s, bytes, len, &err);
    assert_null(s);
    if (st != RV_E_MODEL || !strstr(err.text, text))
        fail_msg("got status %d, \"%s\"; expected \"%s\"", st, err.text, text);
    assert_int_equal(err.code, st);
    assert_int_equal(strncmp(err.text, "test.st: ", 9), 0);
    assert_int_equal(open_copy(&s, bytes, len, NULL), st);
}

static void expect_bad(const char *header, const char *text)
{
    rvi_buf bytes = {0};
    make_file(&bytes, header, 64);
    expect_bad_bytes(bytes.data, bytes.len, text);
    rvi_buf_deinit(&bytes);
}

static uint64_t walk(rvi_safetensors *s)
{
    uint64_t sum = rvi_safetensors_file_bytes(s);
    for (size_t i = 0; i < rvi_safetensors_n_tensors(s); i++) {
        const rvi_tensor_view *t = rvi_safetensors_tensor_at(s, i);
        assert_ptr_equal(rvi_safetensors_tensor(s, t->name), t);
        assert_null(rvi_safetensors_raw(s, t->name));
        for (uint64_t k = 0; k < t->n_bytes; k++) sum += t->data[k];
    }
    for (size_t i = 0; i < rvi_safetensors_n_raw(s); i++) {
        const rvi_raw_tensor *t = rvi_safetensors_raw_at(s, i);
        assert_ptr_equal(rvi_safetensors_raw(s, t->name), t);
        assert_null(rvi_safetensors_tensor(s, t->name));
        for (uint64_t k = 0; k < t->n_bytes; k++) sum += t->data[k];
    }
    return sum;
}

static const char sample[] =
    "{\"__metadata__\":{\"format\":\"pt\"},"
    "\"w\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
    "\"h\":{\"shape\":[1,1,2,2],\"data_offsets\":[24,32],\"dtype\":\"F16\"},"
    "\"b\":{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[32,34],\"extra\":[{}]},"
    "\"ids\":{\"dtype\":\"I64\",\"shape\":[2],\"data_offsets\":[34,50]},"
    "\"four\":{\"dtype\":\"F4\",\"shape\":[4],\"data_offsets\":[50,52]},"
    "\"none\":{\"dtype\":\"F32\",\"shape\":[0,5],\"data_offsets\":[52,52]}}   ";
enum { SAMPLE_DATA = 52 };

/* ---- reading ---- */

static void test_good(void **state)
{
    (void)state;
    rvi_safetensors *s = open_text(sample, SAMPLE_DATA);
    assert_int_equal(rvi_safetensors_n_tensors(s), 4);
    assert_int_equal(rvi_safetensors_n_raw(s), 2);
    const rvi_tensor_view *t = rvi_safetensors_tensor(s, "w");
    assert_non_null(t);
    assert_true(t->type == RVI_F32 && t->n_dims == 2 && t->shape[0] == 2 && t->shape[1] == 3 &&
                t->n_bytes == 24);
    assert_int_equal(t->data[23], 23);
    assert_int_equal(t->used, 0);
    t = rvi_safetensors_tensor(s, "h");
    assert_true(t->type == RVI_F16 && t->n_dims == 4 && t->shape[3] == 2 && t->data[0] == 24 &&
                t->n_bytes == 8);
    t = rvi_safetensors_tensor(s, "b");
    assert_true(t->type == RVI_BF16 && t->n_dims == 1 && t->shape[0] == 1 && t->n_bytes == 2);
    t = rvi_safetensors_tensor(s, "none");
    assert_true(t->n_dims == 2 && t->shape[0] == 0 && t->shape[1] == 5 && t->n_bytes == 0);
    const rvi_raw_tensor *r = rvi_safetensors_raw(s, "ids");
    assert_non_null(r);
    assert_string_equal(r->dtype, "I64");
    assert_string_equal(r->name, "ids");
    assert_true(r->n_dims == 1 && r->shape[0] == 2 && r->n_bytes == 16 && r->data[0] == 34);
    assert_int_equal(rvi_safetensors_raw(s, "four")->n_bytes, 2);
    assert_null(rvi_safetensors_tensor(s, "ids"));
    assert_null(rvi_safetensors_tensor(s, "__metadata__"));
    assert_null(rvi_safetensors_tensor(s, "absent"));
    assert_null(rvi_safetensors_raw(s, "w"));
    assert_null(rvi_safetensors_tensor_at(s, 4));
    assert_null(rvi_safetensors_raw_at(s, 2));
    walk(s);
    rvi_safetensors_close(s);
    rvi_safetensors_close(NULL);

    s = open_text("{}", 0);
    assert_int_equal(rvi_safetensors_n_tensors(s), 0);
    rvi_safetensors_close(s);
    s = open_text("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
                  "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[2,6]}}",
                  6); /* overlapping and unaligned */
    assert_int_equal(rvi_safetensors_tensor(s, "b")->data[0], 2);
    rvi_safetensors_close(s);
}

static void test_bad_header(void **state)
{
    (void)state;
    expect_bad_bytes("", 0, "not a safetensors file");
    expect_bad_bytes("\2\0\0\0\0\0\0", 7, "not a safetensors file");
    expect_bad_bytes("\2\0\0\0\0\0\0\0{", 9, "a header of 2 bytes");
    expect_bad_bytes("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF{}", 10,
                     "a header of 18446744073709551615 bytes");
    expect_bad_bytes("\0\0\0\0\0\0\0\0{}", 10, "no JSON object");
    expect_bad("[]", "no JSON object");
    expect_bad(" {}", "no JSON object");
    expect_bad("{\"a\"", "");
    expect_bad("{} x", "line 1");
    expect_bad("{\"a\\u0000b\":{}}", "holds a NUL");
}

static void test_bad_tensors(void **state)
{
    (void)state;
    static const struct {
        const char *description, *error;
    } cases[] = {
        {"3", "no object"},
        {"[]", "no object"},
        {"{}", "dtype '(none)' is unknown"},
        {"{\"dtype\":\"F31\",\"shape\":[1],\"data_offsets\":[0,4]}", "dtype 'F31' is unknown"},
        {"{\"dtype\":3,\"shape\":[1],\"data_offsets\":[0,4]}", "dtype '(none)' is unknown"},
        {"{\"dtype\":\"F32\",\"data_offsets\":[0,4]}", "no shape"},
        {"{\"dtype\":\"F32\",\"shape\":{\"a\":1},\"data_offsets\":[0,4]}", "no shape"},
        {"{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1],\"data_offsets\":[0,4]}", "5 dimensions"},
        {"{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}",
         "dimension 0 is not a whole number"},
        {"{\"dtype\":\"F32\",\"shape\":[1,1.5],\"data_offsets\":[0,4]}",
         "dimension 1 is not a whole number"},
        {"{\"dtype\":\"F32\",\"shape\":[\"1\"],\"data_offsets\":[0,4]}",
         "dimension 0 is not a whole number"},
        {"{\"dtype\":\"F32\",\"shape\":[99999999999999999999],\"data_offsets\":[0,4]}",
         "dimension 0"},
        {"{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,0]}",
         "overflow"},
        {"{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}",
         "overflow"},
        {"{\"dtype\":\"F32\",\"shape\":[1]}", "data_offsets are not two"},
        {"{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}", "data_offsets are not two"},
        {"{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}", "data_offsets are not two"},
        {"{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]}", "data_offsets are not two"},
        {"{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4.0]}", "data_offsets are not two"},
        {"{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,4]}",
         "do not lie within the data (64 bytes)"},
        {"{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[64,68]}",
         "do not lie within the data"},
        {"{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,9223372036854775807]}",
         "do not lie within the data"},
        {"{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}",
         "span 4 bytes, but shape and dtype need 8"},
        {"{\"dtype\":\"F16\",\"shape\":[],\"data_offsets\":[0,4]}", "need 2"},
        {"{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,4]}", "need 0"},
        {"{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]}", "need 2"},
        {"{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]}", "need 2"},
    };
    for (size_t i = 0; i < RVI_COUNT(cases); i++) {
        rvi_buf header = {0};
        rvi_buf_printf(&header, "{\"te.nsor\":%s}", cases[i].description);
        expect_bad(header.data, cases[i].error);
        expect_bad(header.data, "tensor 'te.nsor'");
        rvi_buf_deinit(&header);
    }
    expect_bad("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
               "\"a\":{\"dtype\":\"I32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
               "tensor 'a' occurs twice");
}

/* Every truncation and every damaged byte of a small file: open returns, and what it accepts can be
 * read. */
static void test_damage(void **state)
{
    (void)state;
    rvi_buf bytes = {0};
    rvi_safetensors *s;
    rv_error err;
    make_file(&bytes, sample, SAMPLE_DATA);
    for (size_t len = 0; len < bytes.len; len++) {
        assert_true(open_copy(&s, bytes.data, len, &err) != RV_OK);
        assert_null(s);
    }
    size_t n_refused = 0;
    for (size_t i = 0; i < bytes.len; i++) {
        for (unsigned flip = 1; flip < 256;
             flip = flip < 128 ? flip * 2 : flip + 127) { /* each bit, then all */
            bytes.data[i] = (char)(bytes.data[i] ^ (char)flip);
            rv_status st = open_copy(&s, bytes.data, bytes.len, &err);
            if (st)
                n_refused++;
            else
                walk(s);
            assert_true((st == RV_OK) == (s != NULL));
            rvi_safetensors_close(s);
            bytes.data[i] = (char)(bytes.data[i] ^ (char)flip);
        }
    }
    assert_true(n_refused > 1000);
    rvi_buf_deinit(&bytes);
}

/* ---- directories ---- */

static void new_dir(rvi_buf *dir)
{
    rv_error err = {0};
    if (rvi_os_temp_dir(dir, "/tmp", &err)) fail_msg("%s", err.text);
}

static void write_file(const rvi_buf *dir, const char *name, const char *bytes, size_t len)
{
    rvi_buf path = {0};
    assert_true(rvi_buf_printf(&path, "%s/%s", dir->data, name));
    FILE *f = fopen(path.data, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
    rvi_buf_deinit(&path);
}

static void write_shard(const rvi_buf *dir, const char *name, const char *header, size_t n_data)
{
    rvi_buf bytes = {0};
    make_file(&bytes, header, n_data);
    write_file(dir, name, bytes.data, bytes.len);
    rvi_buf_deinit(&bytes);
}

static void write_index(const rvi_buf *dir, const char *text)
{
    write_file(dir, "model.safetensors.index.json", text, strlen(text));
}

static void expect_bad_dir(const rvi_buf *dir, rv_status want, const char *text)
{
    rvi_safetensors *s = (rvi_safetensors *)1;
    rv_error err = {0};
    rv_status st = rvi_safetensors_open_dir(&s, dir->data, &err);
    assert_null(s);
    if (st != want || !strstr(err.text, text))
        fail_msg("got status %d, \"%s\"; expected \"%s\"", st, err.text, text);
}

static const char one_tensor[] =
    "{\"%s\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}";

static void test_dir(void **state)
{
    (void)state;
    rvi_buf dir = {0};
    rvi_safetensors *s;
    rv_error err = {0};
    char header[200];
    new_dir(&dir);
    expect_bad_dir(&dir, RV_E_NOT_FOUND, "neither model.safetensors nor");

    /* b is in both shards; the index says which one counts. x is in no list. I64 tensors count
     * too. */
    write_shard(&dir, "s1.safetensors",
                "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
                "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]},"
                "\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
                8);
    write_shard(&dir, "s2.safetensors",
                "{\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
                "\"i\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[0,8]}}",
                8);
    write_index(&dir, "{\"metadata\":{\"total_size\":3},\"weight_map\":{\"a\":\"s1.safetensors\","
                      "\"b\":\"s2.safetensors\",\"i\":\"s2.safetensors\"}}");
    if (rvi_safetensors_open_dir(&s, dir.data, &err)) fail_msg("%s", err.text);
    assert_int_equal(rvi_safetensors_n_tensors(s), 2);
    assert_int_equal(rvi_safetensors_n_raw(s), 1);
    assert_int_equal(rvi_safetensors_tensor(s, "b")->shape[0], 2);
    assert_non_null(rvi_safetensors_raw(s, "i"));
    assert_null(rvi_safetensors_tensor(s, "x"));
    walk(s);
    rvi_safetensors_close(s);

    /* model.safetensors comes first */
    snprintf(header, sizeof header, one_tensor, "only");
    write_shard(&dir, "model.safetensors", header, 4);
    assert_int_equal(rvi_safetensors_open_dir(&s, dir.data, &err), RV_OK);
    assert_int_equal(rvi_safetensors_n_tensors(s), 1);
    assert_non_null(rvi_safetensors_tensor(s, "only"));
    rvi_safetensors_close(s);
    rvi_os_remove_tree(dir.data);
    expect_bad_dir(&dir, RV_E_NOT_FOUND, dir.data);
    rvi_buf_deinit(&dir);
}

static void test_bad_dir(void **state)
{
    (void)state;
    static const char *const names[] = {
        "../s1.safetensors", "/etc/passwd", "..", ".", "", "a/b", "a\\\\b", "x\\u0000"};
    rvi_buf dir = {0};
    char text[200];
    new_dir(&dir);
    snprintf(text, sizeof text, one_tensor, "a");
    write_shard(&dir, "s1.safetensors", text, 4);
    for (size_t i = 0; i < RVI_COUNT(names); i++) {
        snprintf(text, sizeof text, "{\"weight_map\":{\"a\":\"%s\"}}", names[i]);
        write_index(&dir, text);
        expect_bad_dir(&dir, RV_E_MODEL, "tensor 'a': its shard is no plain file name");
    }
    write_index(&dir, "{\"weight_map\":{\"a\":3}}");
    expect_bad_dir(&dir, RV_E_MODEL, "tensor 'a': its shard is no plain file name");
    write_index(&dir, "{\"weight_map\":{\"a\":\"s1.safetensors\",\"gone\":\"s1.safetensors\"}}");
    expect_bad_dir(&dir, RV_E_MODEL,
                   "s1.safetensors: tensor 'gone', which the index says is here, is missing");
    write_index(&dir, "{\"weight_map\":{\"a\":\"s1.safetensors\",\"b\":\"s2.safetensors\"}}");
    expect_bad_dir(&dir, RV_E_NOT_FOUND, "s2.safetensors");
    write_index(&dir, "{\"weight_map\":{\"a\":\"s1.safetensors\",\"a\":\"s1.safetensors\"}}");
    expect_bad_dir(&dir, RV_E_MODEL, "tensor 'a' occurs twice");
    write_index(&dir, "{\"weight_map\":{}}");
    expect_bad_dir(&dir, RV_E_MODEL, "weight_map");
    write_index(&dir, "{\"weight_map\":[]}");
    expect_bad_dir(&dir, RV_E_MODEL, "weight_map");
    write_index(&dir, "{}");
    expect_bad_dir(&dir, RV_E_MODEL, "weight_map");
    write_index(&dir, "[");
    expect_bad_dir(&dir, RV_E_MODEL, "model.safetensors.index.json");
    write_index(&dir, "7");
    expect_bad_dir(&dir, RV_E_MODEL, "no JSON object");
    write_index(&dir, "{\"weight_map\":{\"a\":\"s1.safetensors\"}}");
    write_file(&dir, "s1.safetensors", "garbage garbage", 15);
    expect_bad_dir(&dir, RV_E_MODEL, "s1.safetensors: not a safetensors file");
    rvi_os_remove_tree(dir.data);
    rvi_buf_deinit(&dir);
}

/* ---- writing ---- */

static void test_write(void **state)
{
    (void)state;
    rvi_buf dir = {0}, path = {0};
    rvi_safetensors *s;
    rv_error err = {0};
    float a[6] = {1, -2, 3.5f, INFINITY, NAN, -0.0f}, b[1] = {42};
    const rvi_st_entry entries[] = {
        {"z \"quoted\" \xC3\xBC", 2, {2, 3}, a},
        {"a", 1, {1}, b},
        {"scalar", 0, {0}, b},
        {"empty", 2, {0, 7}, NULL},
    };
    new_dir(&dir);
    rvi_buf_printf(&path, "%s/out.safetensors", dir.data);
    if (rvi_safetensors_write(path.data, entries, RVI_COUNT(entries), &err))
        fail_msg("%s", err.text);
    if (rvi_safetensors_open(&s, path.data, &err)) fail_msg("%s", err.text);
    assert_int_equal(rvi_safetensors_n_tensors(s), 4);
    for (size_t i = 0; i < RVI_COUNT(entries); i++) { /* in the order given */
        const rvi_tensor_view *t = rvi_safetensors_tensor_at(s, i);
        assert_string_equal(t->name, entries[i].name);
        assert_int_equal(t->n_dims, entries[i].n_dims ? entries[i].n_dims : 1);
        if (t->n_bytes) assert_memory_equal(t->data, entries[i].data, t->n_bytes);
    }
    const rvi_tensor_view *t = rvi_safetensors_tensor_at(s, 0);
    assert_true(t->shape[0] == 2 && t->shape[1] == 3 && t->n_bytes == 24);
    rvi_safetensors_close(s);

    rvi_blob blob;
    assert_int_equal(rvi_blob_open(&blob, path.data, &err), RV_OK);
    assert_int_equal(blob.data[0] % 8, 0); /* the data are aligned */
    rvi_blob_close(&blob);

    assert_int_equal(rvi_safetensors_write(path.data, NULL, 0, &err), RV_OK);
    assert_int_equal(rvi_safetensors_open(&s, path.data, &err), RV_OK);
    assert_int_equal(rvi_safetensors_n_tensors(s), 0);
    rvi_safetensors_close(s);
    rvi_os_remove_tree(dir.data);
    rvi_buf_deinit(&dir);
    rvi_buf_deinit(&path);
}

static void test_write_views(void **state)
{
    (void)state;
    rvi_buf dir = {0}, path = {0};
    rvi_safetensors *s;
    rv_error err = {0};
    static const float a[2] = {1, 2};
    static const rvi_f16 h[3] = {0x3C00, 0x8000, 1};
    const rvi_tensor_view views[] = {
        {.name = "a", .type = RVI_F32, .n_dims = 1, .shape = {2}, .data = (const uint8_t *)a},
        {.name = "h", .type = RVI_F16, .n_dims = 2, .shape = {3, 1}, .data = (const uint8_t *)h},
        {.name = "b", .type = RVI_BF16, .n_dims = 1, .shape = {3}, .data = (const uint8_t *)h},
        {.name = "q", .type = RVI_Q8_0, .n_dims = 1, .shape = {32}, .data = (const uint8_t *)h},
    };
    const rvi_st_meta meta[] = {{"format", "pt"}, {"a \"text\"", "{\"x\": 1}\n"}, {"empty", ""}};
    new_dir(&dir);
    rvi_buf_printf(&path, "%s/out.safetensors", dir.data);
    if (rvi_safetensors_write_views(path.data, views, 3, meta, 3, &err)) fail_msg("%s", err.text);
    if (rvi_safetensors_open(&s, path.data, &err)) fail_msg("%s", err.text);
    assert_int_equal(rvi_safetensors_n_tensors(s), 3);
    for (size_t i = 0; i < 3; i++) {
        const rvi_tensor_view *t = rvi_safetensors_tensor_at(s, i);
        assert_string_equal(t->name, views[i].name);
        assert_int_equal(t->type, views[i].type);
        assert_memory_equal(t->data, views[i].data, t->n_bytes);
    }
    for (size_t i = 0; i < 3; i++)
        assert_string_equal(rvi_safetensors_meta(s, meta[i].key), meta[i].value);
    assert_null(rvi_safetensors_meta(s, "none"));
    rvi_safetensors_close(s);
    assert_int_equal(rvi_safetensors_write_views(path.data, views + 3, 1, NULL, 0, &err),
                     RV_E_INVALID);
    assert_int_equal(rvi_safetensors_write_views(path.data, NULL, 0, meta, 1, &err),
                     RV_OK); /* only these */
    assert_int_equal(rvi_safetensors_open(&s, path.data, &err), RV_OK);
    assert_string_equal(rvi_safetensors_meta(s, "format"), "pt");
    rvi_safetensors_close(s);
    rvi_os_remove_tree(dir.data);
    rvi_buf_deinit(&dir);
    rvi_buf_deinit(&path);

    s = open_text("{\"__metadata__\":{\"n\":1,\"l\":[\"x\"],\"t\":\"text\"}}",
                  0); /* what is no text is left out */
    assert_string_equal(rvi_safetensors_meta(s, "t"), "text");
    assert_null(rvi_safetensors_meta(s, "n"));
    assert_null(rvi_safetensors_meta(s, "l"));
    rvi_safetensors_close(s);
}

static void test_write_errors(void **state)
{
    (void)state;
    float a[4] = {0};
    static float many[65536];
    rv_error err = {0};
    const rvi_st_entry twice[] = {{"a", 1, {4}, a}, {"a", 1, {4}, a}};
    const rvi_st_entry bad[] = {
        {"dims", 5, {1, 1, 1, 1}, a}, {"dims", -1, {1}, a},
        {"null", 1, {1}, NULL},       {"big", 2, {1ull << 40, 1ull << 40}, a},
        {"__metadata__", 1, {4}, a},
    };
    const char *nowhere = "/tmp/no such directory/x.safetensors";
    assert_int_equal(rvi_safetensors_write(nowhere, twice, 1, &err), RV_E_IO);
    assert_non_null(strstr(err.text, nowhere));
    assert_int_equal(rvi_safetensors_write(nowhere, twice, 2, &err), RV_E_INVALID);
    assert_non_null(strstr(err.text, "'a' is given twice"));
    for (size_t i = 0; i < RVI_COUNT(bad); i++) {
        assert_int_equal(rvi_safetensors_write(nowhere, &bad[i], 1, &err), RV_E_INVALID);
        assert_non_null(strstr(err.text, bad[i].name));
    }
    if (rvi_os_stat("/dev/full", NULL) != RVI_OS_OTHER) skip();
    const rvi_st_entry large[] = {{"m", 1, {65536}, many}};
    assert_int_equal(rvi_safetensors_write("/dev/full", twice, 1, &err),
                     RV_E_IO); /* fails at the flush */
    assert_non_null(strstr(err.text, "/dev/full"));
    assert_int_equal(rvi_safetensors_write("/dev/full", large, 1, &err),
                     RV_E_IO); /* fails at a write */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),         cmocka_unit_test(test_bad_header),
        cmocka_unit_test(test_bad_tensors),  cmocka_unit_test(test_damage),
        cmocka_unit_test(test_dir),          cmocka_unit_test(test_bad_dir),
        cmocka_unit_test(test_write),        cmocka_unit_test(test_write_views),
        cmocka_unit_test(test_write_errors),
    };
    return cmocka_run_group_tests_name("safetensors", tests, NULL, NULL);
}
