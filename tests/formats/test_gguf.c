/* GGUF files made in memory: what a good one yields, and the error each bad one gives. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/os.h"
#include "formats/gguf.h"
#include "gguf_builder.h"

/* ---- helpers ---- */

/* Opens a copy of exactly len bytes, so that a sanitizer sees a read past their end. */
static rv_status open_copy(rvi_gguf **out, const void *bytes, size_t len, rv_error *err)
{
    void *copy = rvi_alloc_array(len ? len : 1, 1);
    assert_non_null(copy);
    if (len) memcpy(copy, bytes, len);
    rvi_blob blob = {.data = copy, .len = len, .heap = copy};
    rv_status st = rvi_gguf_open_blob(out, &blob, "test.gguf", err);
    assert_null(blob.data); /* taken, whatever the result */
    return st;
}

static rvi_gguf *open_built(gguf_builder *b)
{
    rvi_buf bytes = {0};
    rvi_gguf *g;
    rv_error err = {0};
    gb_finish(b, &bytes);
    assert_false(bytes.failed);
    if (open_copy(&g, bytes.data, bytes.len, &err)) fail_msg("%s", err.text);
    rvi_buf_deinit(&bytes);
    gb_deinit(b);
    return g;
}

static void expect_bad_bytes(const void *bytes, size_t len, const char *text)
{
    rvi_gguf *g = (rvi_gguf *)1;
    rv_error err = {0};
    rv_status st = open_copy(&g, bytes, len, &err);
    assert_null(g);
    if (st != RV_E_MODEL || !strstr(err.text, text))
        fail_msg("got status %d, \"%s\"; expected \"%s\"", st, err.text, text);
    assert_int_equal(err.code, st);
    assert_int_equal(strncmp(err.text, "test.gguf: ", 11), 0);
    assert_int_equal(open_copy(&g, bytes, len, NULL), st); /* the error is optional */
}

static void expect_bad(gguf_builder *b, const char *text)
{
    rvi_buf bytes = {0};
    gb_finish(b, &bytes);
    expect_bad_bytes(bytes.data, bytes.len, text);
    rvi_buf_deinit(&bytes);
    gb_deinit(b);
}

/* Reads everything a file offers. */
static uint64_t walk(rvi_gguf *g)
{
    uint64_t sum = rvi_gguf_file_bytes(g);
    for (size_t i = 0; i < rvi_gguf_n_values(g); i++) {
        const rvi_gguf_value *v = rvi_gguf_value_at(g, i);
        assert_ptr_equal(rvi_gguf_find(g, v->key), v);
        for (size_t k = 0; k < v->string.len; k++) sum += (uint8_t)v->string.data[k];
        if (v->kind != RVI_GGUF_ARRAY) continue;
        for (uint64_t k = 0; k < v->count; k++) {
            sum += (uint64_t)rvi_gguf_item_i64(v, k) + (rvi_gguf_item_f64(v, k) > 1);
            if (v->item_kind != RVI_GGUF_STRING) continue;
            for (size_t c = 0; c < v->strings[k].len; c++) sum += (uint8_t)v->strings[k].data[c];
        }
    }
    for (size_t i = 0; i < rvi_gguf_n_tensors(g); i++) {
        const rvi_tensor_view *t = rvi_gguf_tensor_at(g, i);
        assert_ptr_equal(rvi_gguf_tensor(g, t->name), t);
        for (uint64_t k = 0; k < t->n_bytes; k++) sum += t->data[k];
    }
    return sum;
}

static const uint64_t shape_1[] = {32}, shape_2[] = {3, 5}, shape_3[] = {2, 3, 64},
                      shape_4[] = {2, 1, 3, 4};

static void add_tensors(gguf_builder *b)
{
    float f[15];
    uint8_t q4[6 * 36];
    for (int i = 0; i < 15; i++) f[i] = (float)i + 0.5f;
    for (size_t i = 0; i < sizeof q4; i++) q4[i] = (uint8_t)i;
    gb_tensor(b, "matrix", RVI_F32, 2, shape_2, f);
    gb_tensor(b, "cube", RVI_Q4_0, 3, shape_3, q4);
    gb_tensor(b, "row", RVI_Q8_0, 1, shape_1, NULL);
    gb_tensor(b, "four", RVI_F16, 4, shape_4, NULL);
}

/* Every kind of value, and tensors of 1 to 4 dimensions. */
static gguf_builder sample(uint32_t version)
{
    static const char *const words[] = {"one", "", "\xC3\xBC"};
    gguf_builder b = {.version = version};
    gb_str(&b, "general.architecture", "llama");
    gb_u8(&b, "u8", 200);
    gb_i8(&b, "i8", -100);
    gb_u16(&b, "u16", 60000);
    gb_i16(&b, "i16", -30000);
    gb_u32(&b, "u32", 4000000000u);
    gb_i32(&b, "i32", -2000000000);
    gb_u64(&b, "u64", 1ull << 63);
    gb_i64(&b, "i64", -(1ll << 62));
    gb_f32(&b, "f32", 1.5f);
    gb_f64(&b, "f64", 1e-5);
    gb_bool(&b, "yes", true);
    gb_bool(&b, "no", false);
    gb_raw_number(&b, "seven", RVI_GGUF_BOOL, 7, 1);
    gb_str(&b, "empty", "");
    gb_str_array(&b, "words", words, 3);
    gb_array(&b, "u8s", RVI_GGUF_U8, (uint8_t[]){1, 255}, 2, 1);
    gb_array(&b, "i8s", RVI_GGUF_I8, (int8_t[]){1, -1}, 2, 1);
    gb_array(&b, "u16s", RVI_GGUF_U16, (uint16_t[]){1, 65535}, 2, 2);
    gb_array(&b, "i16s", RVI_GGUF_I16, (int16_t[]){1, -1}, 2, 2);
    gb_array(&b, "u32s", RVI_GGUF_U32, (uint32_t[]){1, UINT32_MAX}, 2, 4);
    gb_array(&b, "i32s", RVI_GGUF_I32, (int32_t[]){1, -1}, 2, 4);
    gb_array(&b, "u64s", RVI_GGUF_U64, (uint64_t[]){1, UINT64_MAX}, 2, 8);
    gb_array(&b, "i64s", RVI_GGUF_I64, (int64_t[]){1, INT64_MIN}, 2, 8);
    gb_array(&b, "f32s", RVI_GGUF_F32, (float[]){-2.75f, 1e30f, NAN}, 3, 4);
    gb_array(&b, "f64s", RVI_GGUF_F64, (double[]){2.75, -1e300}, 2, 8);
    gb_array(&b, "bools", RVI_GGUF_BOOL, (uint8_t[]){0, 2}, 2, 1);
    gb_array(&b, "nothing", RVI_GGUF_F32, NULL, 0, 4);
    gb_str_array(&b, "no words", NULL, 0);
    add_tensors(&b);
    return b;
}

/* ---- good files ---- */

static void check_numbers(const rvi_gguf *g)
{
    static const struct {
        const char *key;
        rvi_gguf_kind kind;
        int64_t i;
    } numbers[] = {
        {"u8", RVI_GGUF_U8, 200},          {"i8", RVI_GGUF_I8, -100},
        {"u16", RVI_GGUF_U16, 60000},      {"i16", RVI_GGUF_I16, -30000},
        {"u32", RVI_GGUF_U32, 4000000000}, {"i32", RVI_GGUF_I32, -2000000000},
        {"u64", RVI_GGUF_U64, INT64_MIN},  {"i64", RVI_GGUF_I64, -(1ll << 62)},
        {"yes", RVI_GGUF_BOOL, 1},         {"no", RVI_GGUF_BOOL, 0},
        {"seven", RVI_GGUF_BOOL, 1},
    };
    for (size_t i = 0; i < RVI_COUNT(numbers); i++) {
        const rvi_gguf_value *v = rvi_gguf_find(g, numbers[i].key);
        assert_non_null(v);
        assert_int_equal(v->kind, numbers[i].kind);
        assert_true(v->number.i == numbers[i].i);
        assert_string_equal(v->key, numbers[i].key);
    }
    assert_true(rvi_gguf_find(g, "f32")->number.f == 1.5);
    assert_true(rvi_gguf_find(g, "f64")->number.f == 1e-5);
}

static void check_getters(const rvi_gguf *g)
{
    uint32_t u = 77;
    float f = 77;
    bool yes = false;
    rvi_str s = {0};
    assert_true(rvi_gguf_get_u32(g, "u8", &u) && u == 200);
    assert_true(rvi_gguf_get_u32(g, "u16", &u) && u == 60000);
    assert_true(rvi_gguf_get_u32(g, "u32", &u) && u == 4000000000u);
    u = 77;
    assert_false(rvi_gguf_get_u32(g, "i8", &u));  /* negative */
    assert_false(rvi_gguf_get_u32(g, "u64", &u)); /* too big */
    assert_false(rvi_gguf_get_u32(g, "f32", &u));
    assert_false(rvi_gguf_get_u32(g, "yes", &u));
    assert_false(rvi_gguf_get_u32(g, "words", &u));
    assert_false(rvi_gguf_get_u32(g, "absent", &u));
    assert_int_equal(u, 77);
    assert_true(rvi_gguf_get_f32(g, "f32", &f) && f == 1.5f);
    assert_true(rvi_gguf_get_f32(g, "f64", &f) && f == 1e-5f);
    assert_true(rvi_gguf_get_f32(g, "i8", &f) && f == -100.0f);
    assert_true(rvi_gguf_get_f32(g, "u64", &f) && f == 0x1p63f);
    assert_false(rvi_gguf_get_f32(g, "yes", &f));
    assert_false(rvi_gguf_get_f32(g, "words", &f));
    assert_false(rvi_gguf_get_f32(g, "empty", &f));
    assert_true(f == 0x1p63f);
    assert_true(rvi_gguf_get_bool(g, "seven", &yes) && yes);
    assert_true(rvi_gguf_get_bool(g, "no", &yes) && !yes);
    assert_false(rvi_gguf_get_bool(g, "u8", &yes));
    assert_true(rvi_gguf_get_str(g, "general.architecture", &s) && s.len == 5 &&
                !memcmp(s.data, "llama", 5));
    assert_true(rvi_gguf_get_str(g, "empty", &s) && s.len == 0);
    assert_false(rvi_gguf_get_str(g, "u8", &s));
}

static void check_arrays(const rvi_gguf *g)
{
    static const struct {
        const char *key;
        int64_t second;
        double second_f;
    } arrays[] = {
        {"u8s", 255, 255},
        {"i8s", -1, -1},
        {"u16s", 65535, 65535},
        {"i16s", -1, -1},
        {"u32s", UINT32_MAX, 4294967295.0},
        {"i32s", -1, -1},
        {"u64s", -1, 0x1p64},
        {"i64s", INT64_MIN, -0x1p63},
        {"bools", 1, 1},
    };
    for (size_t i = 0; i < RVI_COUNT(arrays); i++) {
        const rvi_gguf_value *v = rvi_gguf_find(g, arrays[i].key);
        assert_non_null(v);
        assert_int_equal(v->kind, RVI_GGUF_ARRAY);
        assert_int_equal(v->count, 2);
        assert_true(rvi_gguf_item_i64(v, 0) == (strcmp(v->key, "bools") ? 1 : 0));
        assert_true(rvi_gguf_item_i64(v, 1) == arrays[i].second);
        assert_true(rvi_gguf_item_f64(v, 1) == arrays[i].second_f);
        assert_true(rvi_gguf_item_i64(v, 2) == 0 && rvi_gguf_item_f64(v, UINT64_MAX) == 0);
    }
    const rvi_gguf_value *f = rvi_gguf_find(g, "f32s"), *d = rvi_gguf_find(g, "f64s"),
                         *w = rvi_gguf_find(g, "words");
    assert_true(rvi_gguf_item_f64(f, 0) == -2.75 && rvi_gguf_item_i64(f, 0) == -2);
    assert_true(rvi_gguf_item_i64(f, 1) == 0 && rvi_gguf_item_i64(f, 2) == 0); /* do not fit */
    assert_true(isnan(rvi_gguf_item_f64(f, 2)));
    assert_true(rvi_gguf_item_f64(d, 1) == -1e300 && rvi_gguf_item_i64(d, 1) == 0);
    assert_int_equal(w->item_kind, RVI_GGUF_STRING);
    assert_int_equal(w->count, 3);
    assert_int_equal(w->strings[0].len, 3);
    assert_memory_equal(w->strings[0].data, "one", 3);
    assert_int_equal(w->strings[1].len, 0);
    assert_memory_equal(w->strings[2].data, "\xC3\xBC", 2);
    assert_true(rvi_gguf_item_i64(w, 0) == 0);
    assert_int_equal(rvi_gguf_find(g, "nothing")->count, 0);
    assert_int_equal(rvi_gguf_find(g, "no words")->count, 0);
}

static void check_tensors(rvi_gguf *g)
{
    assert_int_equal(rvi_gguf_n_tensors(g), 4);
    rvi_tensor_view *t = rvi_gguf_tensor(g, "matrix");
    assert_non_null(t);
    assert_int_equal(t->type, RVI_F32);
    assert_int_equal(t->n_dims, 2);
    assert_true(t->shape[0] == 3 && t->shape[1] == 5 && t->n_bytes == 60);
    float last;
    memcpy(&last, t->data + 56, 4);
    assert_true(last == 14.5f);
    t = rvi_gguf_tensor(g, "cube");
    assert_int_equal(t->type, RVI_Q4_0);
    assert_true(t->n_dims == 3 && t->shape[0] == 2 && t->shape[1] == 3 && t->shape[2] == 64);
    assert_int_equal(t->n_bytes, 6 * 36);
    assert_int_equal(t->data[6 * 36 - 1], 6 * 36 - 1);
    t = rvi_gguf_tensor(g, "row");
    assert_true(t->n_dims == 1 && t->shape[0] == 32 && t->n_bytes == 34);
    t = rvi_gguf_tensor(g, "four");
    assert_true(t->n_dims == 4 && t->shape[0] == 2 && t->shape[1] == 1 && t->shape[2] == 3 &&
                t->shape[3] == 4);
    assert_int_equal(t->n_bytes, 48);
    assert_int_equal(t->used, 0);
    assert_null(rvi_gguf_tensor(g, "absent"));
    assert_null(rvi_gguf_tensor(g, ""));
    assert_null(rvi_gguf_tensor_at(g, 4));
    assert_null(rvi_gguf_value_at(g, rvi_gguf_n_values(g)));
    assert_null(rvi_gguf_find(g, "absent"));
}

static void test_good(void **state)
{
    (void)state;
    for (uint32_t version = 2; version <= 3; version++) {
        gguf_builder b = sample(version);
        size_t n_values = (size_t)b.n_values;
        rvi_gguf *g = open_built(&b);
        assert_int_equal(rvi_gguf_n_values(g), n_values);
        check_numbers(g);
        check_getters(g);
        check_arrays(g);
        check_tensors(g);
        assert_true(walk(g) > 0);
        rvi_gguf_close(g);
    }
    rvi_gguf_close(NULL);
}

static void test_no_tensors_no_values(void **state)
{
    (void)state;
    gguf_builder b = {.version = 3};
    rvi_gguf *g = open_built(&b);
    assert_int_equal(rvi_gguf_n_tensors(g), 0);
    assert_int_equal(rvi_gguf_n_values(g), 0);
    assert_null(rvi_gguf_find(g, "x"));
    assert_null(rvi_gguf_tensor(g, "x"));
    assert_int_equal(rvi_gguf_file_bytes(g), 24);
    rvi_gguf_close(g);

    b = (gguf_builder){.version = 3};
    gb_str(&b, "tokenizer.ggml.model", "gpt2");
    g = open_built(&b);
    assert_int_equal(rvi_gguf_n_values(g), 1);
    rvi_gguf_close(g);
}

static void test_alignment(void **state)
{
    (void)state;
    static const uint32_t good[] = {1, 8, 64, 4096};
    for (size_t i = 0; i < RVI_COUNT(good); i++) {
        gguf_builder b = {.version = 3, .alignment = good[i]};
        gb_u32(&b, "general.alignment", good[i]);
        add_tensors(&b);
        rvi_gguf *g = open_built(&b);
        check_tensors(g);
        rvi_gguf_close(g);
    }
    static const uint32_t bad[] = {0, 3, 24, 1u << 31, UINT32_MAX};
    for (size_t i = 0; i < RVI_COUNT(bad); i++) {
        gguf_builder b = {.version = 3};
        gb_u32(&b, "general.alignment", bad[i]);
        add_tensors(&b);
        expect_bad(&b, "general.alignment");
    }
    gguf_builder b = {.version = 3};
    gb_str(&b, "general.alignment", "32");
    expect_bad(&b, "general.alignment");
}

static void test_overlap_is_fine(void **state)
{
    (void)state;
    gguf_builder b = {.version = 3};
    add_tensors(&b);
    gb_raw_tensor(&b, "again", 1, (uint64_t[]){4}, 0, 0);
    rvi_gguf *g = open_built(&b);
    assert_ptr_equal(rvi_gguf_tensor(g, "again")->data, rvi_gguf_tensor(g, "matrix")->data);
    rvi_gguf_close(g);
}

static void test_many_names(void **state)
{
    (void)state;
    enum { N = 20000 };
    gguf_builder b = {.version = 3};
    char name[32];
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof name, "blk.%d.weight", i);
        gb_u32(&b, name, (uint32_t)i);
        gb_raw_tensor(&b, name, 1, (uint64_t[]){1}, 0, 32 * (uint64_t)i);
    }
    for (int i = 0; i < 32 * N; i++) rvi_buf_putc(&b.data, (char)(i / 32));
    rvi_gguf *g = open_built(&b);
    for (int i = 0; i < N; i++) {
        uint32_t u;
        snprintf(name, sizeof name, "blk.%d.weight", i);
        assert_true(rvi_gguf_get_u32(g, name, &u) && u == (uint32_t)i);
        assert_int_equal(rvi_gguf_tensor(g, name)->data[0], i & 0xFF);
    }
    assert_null(rvi_gguf_tensor(g, "blk.20000.weight"));
    rvi_gguf_close(g);
}

/* ---- sources ---- */

typedef struct source {
    const rvi_buf *bytes;
    uint64_t fail_at;
} source;

static int read_source(void *ctx, uint64_t offset, void *dst, size_t n)
{
    const source *s = ctx;
    if (offset + n > s->fail_at) return 1;
    memcpy(dst, s->bytes->data + offset, n);
    return 0;
}

static void write_file(const char *dir, const char *name, const rvi_buf *bytes)
{
    rvi_buf path = {0};
    assert_true(rvi_buf_printf(&path, "%s/%s", dir, name));
    FILE *f = fopen(path.data, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes->data, 1, bytes->len, f), bytes->len);
    assert_int_equal(fclose(f), 0);
    rvi_buf_deinit(&path);
}

static rv_status open_in(rvi_gguf **out, const char *dir, const char *name, rv_error *err)
{
    rvi_buf path = {0};
    assert_true(rvi_buf_printf(&path, "%s/%s", dir, name));
    *err = (rv_error){0};
    rv_status st = rvi_gguf_open(out, path.data, err);
    rvi_buf_deinit(&path);
    return st;
}

static char *new_dir(rvi_buf *dir)
{
    rv_error err = {0};
    if (rvi_os_temp_dir(dir, "/tmp", &err)) fail_msg("%s", err.text);
    return dir->data;
}

static void remove_dir(rvi_buf *dir)
{
    rvi_os_remove_tree(dir->data);
    rvi_buf_deinit(dir);
}

static void test_sources(void **state)
{
    (void)state;
    gguf_builder b = sample(3);
    rvi_buf bytes = {0}, dir = {0};
    rvi_gguf *g;
    rvi_blob blob;
    rv_error err = {0};
    gb_finish(&b, &bytes);
    gb_deinit(&b);

    rvi_blob_from_memory(&blob, bytes.data, bytes.len);
    assert_int_equal(rvi_gguf_open_blob(&g, &blob, "memory", &err), RV_OK);
    uint64_t sum = walk(g);
    rvi_gguf_close(g);

    source s = {&bytes, bytes.len};
    assert_int_equal(rvi_blob_read(&blob, read_source, &s, bytes.len, "callback", &err), RV_OK);
    assert_int_equal(rvi_gguf_open_blob(&g, &blob, "callback", &err), RV_OK);
    assert_true(walk(g) == sum);
    rvi_gguf_close(g);
    s.fail_at = bytes.len - 1;
    assert_int_equal(rvi_blob_read(&blob, read_source, &s, bytes.len, "callback", &err), RV_E_IO);

    new_dir(&dir);
    write_file(dir.data, "model.gguf", &bytes);
    assert_int_equal(open_in(&g, dir.data, "model.gguf", &err), RV_OK);
    assert_true(walk(g) == sum);
    assert_int_equal(rvi_gguf_file_bytes(g), bytes.len);
    rvi_gguf_close(g);
    assert_int_equal(open_in(&g, dir.data, "other.gguf", &err), RV_E_NOT_FOUND);
    assert_null(g);
    assert_non_null(strstr(err.text, "other.gguf"));
    assert_int_equal(open_in(&g, dir.data, ".", &err), RV_E_IO);
    rvi_buf_deinit(&bytes);
    remove_dir(&dir);
}

/* ---- split files ---- */

typedef struct split_case {
    int no, count, total; /* of split.*; -1: the key is left out */
    const char *tensor;
} split_case;

static void write_part(const char *dir, const char *name, split_case c)
{
    gguf_builder b = {.version = 3};
    rvi_buf bytes = {0};
    gb_str(&b, "from", name);
    if (c.no >= 0) gb_u16(&b, "split.no", (uint16_t)c.no);
    if (c.count >= 0) gb_u16(&b, "split.count", (uint16_t)c.count);
    if (c.total >= 0) gb_i32(&b, "split.tensors.count", c.total);
    float data[4] = {(float)c.no, 1, 2, 3};
    if (c.tensor) gb_tensor(&b, c.tensor, RVI_F32, 1, (uint64_t[]){4}, data);
    gb_finish(&b, &bytes);
    write_file(dir, name, &bytes);
    rvi_buf_deinit(&bytes);
    gb_deinit(&b);
}

static void expect_bad_in(const char *dir, const char *name, rv_status want, const char *text)
{
    rvi_gguf *g = NULL;
    rv_error err;
    rv_status st = open_in(&g, dir, name, &err);
    assert_null(g);
    if (st != want || !strstr(err.text, text))
        fail_msg("got status %d, \"%s\"; expected \"%s\"", st, err.text, text);
}

static void test_split(void **state)
{
    (void)state;
    rvi_buf dir = {0};
    rvi_gguf *g;
    rv_error err;
    char *d = new_dir(&dir);
    write_part(d, "m-00001-of-00003.gguf", (split_case){0, 3, 2, "a"});
    write_part(d, "m-00002-of-00003.gguf", (split_case){1, 3, 2, NULL});
    write_part(d, "m-00003-of-00003.gguf", (split_case){2, 3, 2, "c"});
    if (open_in(&g, d, "m-00001-of-00003.gguf", &err)) fail_msg("%s", err.text);
    assert_int_equal(rvi_gguf_n_tensors(g), 2);
    assert_int_equal(rvi_gguf_n_values(g), 4);
    rvi_str from;
    assert_true(rvi_gguf_get_str(g, "from", &from) && from.len == 21 && from.data[6] == '1');
    float first;
    memcpy(&first, rvi_gguf_tensor(g, "c")->data, 4);
    assert_true(first == 2.0f);
    assert_string_equal(rvi_gguf_tensor_at(g, 0)->name, "a");
    assert_true(rvi_gguf_file_bytes(g) > 300);
    rvi_gguf_close(g);

    expect_bad_in(d, "m-00002-of-00003.gguf", RV_E_MODEL, "/m-00001-of-00003.gguf");
    remove_dir(&dir);
}

static void test_split_errors(void **state)
{
    (void)state;
    rvi_buf dir = {0};
    char *d = new_dir(&dir);
    const char *one = "m-00001-of-00002.gguf", *two = "m-00002-of-00002.gguf";
    write_part(d, one, (split_case){0, 2, 2, "a"});
    expect_bad_in(d, one, RV_E_NOT_FOUND, "m-00002-of-00002.gguf: part 2 of 2");
    write_part(d, two, (split_case){1, 2, 2, "a"});
    expect_bad_in(d, one, RV_E_MODEL, "tensor 'a' occurs twice");
    write_part(d, two, (split_case){0, 2, 2, "b"});
    expect_bad_in(d, one, RV_E_MODEL, "'split.no' is 0");
    write_part(d, two, (split_case){1, 3, 2, "b"});
    expect_bad_in(d, one, RV_E_MODEL, "'split.count' is 3");
    write_part(d, two, (split_case){1, 2, 5, "b"});
    expect_bad_in(d, one, RV_E_MODEL, "'split.tensors.count' is 5");
    write_part(d, two,
               (split_case){-1, -1, -1, "b"}); /* without the keys there is nothing to contradict */
    rvi_gguf *g;
    rv_error err;
    assert_int_equal(open_in(&g, d, one, &err), RV_OK);
    rvi_gguf_close(g);
    write_file(d, two, &(rvi_buf){.data = (char[]){"GGUX"}, .len = 4});
    expect_bad_in(d, one, RV_E_MODEL, "m-00002-of-00002.gguf: not a GGUF file");

    write_part(d, "renamed.gguf", (split_case){1, 2, 2, "b"});
    expect_bad_in(d, "renamed.gguf", RV_E_MODEL, "one of 2 files of a split model");
    gguf_builder b = {.version = 3};
    gb_str(&b, "split.count", "2");
    expect_bad(&b, "'split.count' is no count");
    write_part(d, "merged.gguf", (split_case){0, 0, 1, "b"}); /* 0 parts: merged */
    assert_int_equal(open_in(&g, d, "merged.gguf", &err), RV_OK);
    rvi_gguf_close(g);
    write_part(d, "m-00000-of-00002.gguf",
               (split_case){-1, -1, -1, "b"}); /* no split name: there is no part 0 */
    assert_int_equal(open_in(&g, d, "m-00000-of-00002.gguf", &err), RV_OK);
    rvi_gguf_close(g);
    write_part(d, "s-00001-of-00001.gguf", (split_case){0, 1, 1, "b"});
    assert_int_equal(open_in(&g, d, "s-00001-of-00001.gguf", &err), RV_OK);
    rvi_gguf_close(g);
    remove_dir(&dir);
}

/* ---- bad files ---- */

static void test_bad_header(void **state)
{
    (void)state;
    static const uint32_t versions[] = {0, 1, 4, 77};
    gguf_builder b;
    expect_bad_bytes("", 0, "not a GGUF file");
    expect_bad_bytes("GGU", 3, "not a GGUF file");
    expect_bad_bytes("GGML\3\0\0\0", 8, "not a GGUF file");
    expect_bad_bytes("GGUF\3\0\0", 7, "ends within its header");
    expect_bad_bytes("GGUF\3\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 23, "ends within its header");
    for (size_t i = 0; i < RVI_COUNT(versions); i++) {
        b = sample(versions[i]);
        expect_bad(&b, "version");
    }
    b = sample(0x03000000);
    expect_bad(&b, "big-endian");
    b = sample(3);
    b.n_tensors = UINT64_MAX;
    expect_bad(&b, "tensors");
    b = sample(3);
    b.n_values = 1ull << 60;
    expect_bad(&b, "values");
    b = sample(3);
    b.n_values = 1000;
    expect_bad(&b, "the header announces 1000 values");
    b = sample(3);
    b.n_tensors = 1000;
    expect_bad(&b, "the header announces 1000 tensors");
    b = sample(3);
    b.n_values = 40; /* the file could hold them, but what follows are tensors */
    expect_bad(&b, "test.gguf");
}

static void test_bad_values(void **state)
{
    (void)state;
    gguf_builder b = {.version = 3};
    gb_put(&b.values, UINT64_MAX, 8); /* key length */
    gb_put(&b.values, 0, 8);
    b.n_values = 1;
    expect_bad(&b, "key at offset 24 runs past the end");

    b = (gguf_builder){.version = 3};
    gb_raw_key(&b, "k", RVI_GGUF_STRING);
    gb_put(&b.values, 1000, 8);
    expect_bad(&b, "key 'k': its value at offset 33 runs past the end");
    b = (gguf_builder){.version = 3};
    gb_raw_key(&b, "k", RVI_GGUF_U32);
    expect_bad(&b, "key 'k'");
    b = (gguf_builder){.version = 3};
    gb_raw_number(&b, "k", 13, 0, 8);
    expect_bad(&b, "key 'k': unknown kind 13");
    b = (gguf_builder){.version = 3};
    gb_raw_array(&b, "k", RVI_GGUF_ARRAY, 1);
    gb_put(&b.values, 0, 8);
    gb_put(&b.values, 0, 8);
    expect_bad(&b, "key 'k': an array of arrays");
    b = (gguf_builder){.version = 3};
    gb_raw_array(&b, "k", 99, 0);
    expect_bad(&b, "key 'k': unknown kind 99");
    static const uint64_t counts[] = {3, 1ull << 61, UINT64_MAX};
    for (size_t i = 0; i < RVI_COUNT(counts); i++) {
        b = (gguf_builder){.version = 3};
        gb_raw_array(&b, "k", RVI_GGUF_F64, counts[i]);
        gb_put(&b.values, 0, 8);
        gb_put(&b.values, 0, 8);
        expect_bad(&b, "key 'k': an array of");
        b = (gguf_builder){.version = 3};
        gb_raw_array(&b, "k", RVI_GGUF_STRING, counts[i]);
        gb_put(&b.values, 0, 8);
        gb_put(&b.values, 0, 8);
        expect_bad(&b, "key 'k': an array of");
    }
    b = (gguf_builder){.version = 3};
    gb_raw_array(&b, "k", RVI_GGUF_STRING, 2);
    gb_put(&b.values, 0, 8);
    gb_put(&b.values, 1, 8);
    expect_bad(&b, "key 'k': string 1");
    b = (gguf_builder){.version = 3};
    gb_u8(&b, "same", 1);
    gb_u8(&b, "other", 1);
    gb_u8(&b, "same", 2);
    expect_bad(&b, "key 'same' occurs twice");
    b = (gguf_builder){.version = 3};
    gb_u8(&b, "\xFF\xFE", 1);
    expect_bad(&b, "not UTF-8");
    b = (gguf_builder){.version = 3};
    gb_put_str(&b.values, "a\0b", 3);
    gb_put(&b.values, RVI_GGUF_U8, 4);
    gb_put(&b.values, 0, 1);
    b.n_values = 1;
    expect_bad(&b, "not UTF-8");
    b = (gguf_builder){.version = 3};
    char *name = calloc(70001, 1);
    assert_non_null(name);
    memset(name, 'x', 70000);
    gb_u8(&b, name, 1);
    free(name);
    expect_bad(&b, "70000 bytes long");
}

/* One tensor 't' with 4096 bytes of data. */
static void expect_bad_tensor(uint32_t n_dims, const uint64_t *dims, uint32_t type, uint64_t offset,
                              const char *text)
{
    gguf_builder b = {.version = 3};
    gb_raw_tensor(&b, "t", n_dims, dims, type, offset);
    for (int i = 0; i < 4096; i++) rvi_buf_putc(&b.data, 0);
    expect_bad(&b, text);
}

static void test_bad_tensors(void **state)
{
    (void)state;
    static const uint64_t dims[] = {32, 1, 1, 1, 1};
    expect_bad_tensor(0, dims, 0, 0, "tensor 't' (described at offset 24) has 0 dimensions");
    expect_bad_tensor(5, dims, 0, 0, "has 5 dimensions");
    expect_bad_tensor(1, dims, 16, 0, "tensor 't': type 16 ");
    expect_bad_tensor(1, dims, 4, 0, "tensor 't': type 4 ");
    expect_bad_tensor(1, dims, UINT32_MAX, 0, "tensor 't': type 4294967295 ");
    expect_bad_tensor(1, dims, 12, 0, "rows of 32 weights are no whole number of q4_k blocks");
    expect_bad_tensor(2, (uint64_t[]){33, 2}, 8, 0, "no whole number of q8_0 blocks");
    expect_bad_tensor(1, (uint64_t[]){0}, 0, 0, "dimension 0 is zero");
    expect_bad_tensor(3, (uint64_t[]){32, 0, 1}, 2, 0, "dimension 1 is zero");
    expect_bad_tensor(1, (uint64_t[]){1ull << 62}, 0, 0, "overflow");
    expect_bad_tensor(2, (uint64_t[]){1ull << 32, 1ull << 32}, 0, 0, "overflow");
    expect_bad_tensor(4, (uint64_t[]){32, 1ull << 31, 1ull << 31, 4}, 2, 0, "overflow");
    expect_bad_tensor(1, dims, 0, 8, "tensor 't': its offset 8 is no multiple");
    expect_bad_tensor(1, dims, 0, 4096, "tensor 't': its 128 bytes at offset 4096");
    expect_bad_tensor(1, dims, 0, UINT64_MAX - 31, "past the end");
    expect_bad_tensor(1, (uint64_t[]){1025}, 0, 0, "past the end");
    expect_bad_tensor(1, (uint64_t[]){1ull << 61}, 0, 0, "past the end");

    gguf_builder b = {.version = 3};
    add_tensors(&b);
    gb_raw_tensor(&b, "cube", 1, dims, 0, 0);
    expect_bad(&b, "tensor 'cube' occurs twice");
    b = (gguf_builder){.version = 3};
    gb_put_str(&b.infos, "t", 1);
    gb_put(&b.infos, 3, 4); /* three dimensions announced, one there */
    gb_put(&b.infos, 1, 8);
    gb_put(&b.infos, 1, 8);
    b.n_tensors = 1;
    expect_bad(&b, "tensor 't': its description");
    b = (gguf_builder){.version = 3};
    gb_put(&b.infos, 1000, 8);
    for (int i = 0; i < 4; i++) gb_put(&b.infos, 0, 8);
    b.n_tensors = 1;
    expect_bad(&b, "tensor name at offset 24");
    b = (gguf_builder){.version = 3};
    gb_raw_tensor(&b, "\x80", 1, dims, 0, 0);
    expect_bad(&b, "not UTF-8");
}

/* A hostile name cannot drive a terminal. */
static void test_control_characters_in_errors(void **state)
{
    (void)state;
    gguf_builder b = {.version = 3};
    gb_raw_tensor(&b, "\x1B[2J", 1, (uint64_t[]){32}, 99, 0);
    expect_bad(&b, "tensor '?[2J': type 99");
}

/* ---- anything at all ---- */

/* Every truncation and every damaged byte of a small file: open returns, and what it accepts can be
 * read. */
static void test_damage(void **state)
{
    (void)state;
    gguf_builder b = sample(3);
    rvi_buf bytes = {0};
    gb_finish(&b, &bytes);
    gb_deinit(&b);
    rv_error err;
    rvi_gguf *g;
    size_t n_refused = 0;
    for (size_t len = 0; len < bytes.len; len++) {
        rv_status st = open_copy(&g, bytes.data, len, &err);
        if (!st)
            fail_msg("a file of %zu bytes opens when cut to %zu", bytes.len,
                     len); /* its last byte is data */
        assert_null(g);
    }
    static const uint8_t flips[] = {0xFF, 0x01, 0x80, 0x40};
    for (size_t i = 0; i < bytes.len; i++) {
        for (size_t k = 0; k < RVI_COUNT(flips); k++) {
            bytes.data[i] = (char)(bytes.data[i] ^ flips[k]);
            rv_status st = open_copy(&g, bytes.data, bytes.len, &err);
            if (st)
                n_refused++;
            else
                walk(g);
            assert_true((st == RV_OK) == (g != NULL));
            rvi_gguf_close(g);
            bytes.data[i] = (char)(bytes.data[i] ^ flips[k]);
        }
    }
    assert_true(n_refused > 100);
    rvi_buf_deinit(&bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),        cmocka_unit_test(test_no_tensors_no_values),
        cmocka_unit_test(test_alignment),   cmocka_unit_test(test_overlap_is_fine),
        cmocka_unit_test(test_many_names),  cmocka_unit_test(test_sources),
        cmocka_unit_test(test_split),       cmocka_unit_test(test_split_errors),
        cmocka_unit_test(test_bad_header),  cmocka_unit_test(test_bad_values),
        cmocka_unit_test(test_bad_tensors), cmocka_unit_test(test_control_characters_in_errors),
        cmocka_unit_test(test_damage),
    };
    return cmocka_run_group_tests_name("gguf", tests, NULL, NULL);
}
