/* Opening and writing files while memory runs out: each allocation in turn is refused, and every
 * time the answer must be RV_E_NOMEM and nothing may leak (a sanitizer watches). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/os.h"
#include "formats/safetensors.h"
#include "gguf_builder.h"
#include "../harness/fail_alloc.h"

/* Does the work and undoes it; *object tells whether there was a result. */
typedef rv_status (*work_fn)(const void *arg, bool *object, rv_error *err);

static void sweep(work_fn work, const void *arg, long least_calls)
{
    for (int once = 0; once < 2; once++) {
        for (long n = 0;; n++) {
            rv_error err = {0};
            bool object = false;
            if (once)
                fail_alloc_once(n);
            else
                fail_alloc_after(n);
            rv_status st = work(arg, &object, &err);
            bool refused = fail_alloc_off();
            if (!refused) {
                if (st) fail_msg("%s", err.text);
                assert_true(object);
                assert_true(n >= least_calls); /* otherwise the sweep proves nothing */
                break;
            }
            if (st != RV_E_NOMEM)
                fail_msg("allocation %ld refused: status %d \"%s\"", n, st, err.text);
            assert_int_equal(err.code, RV_E_NOMEM);
            assert_false(object);
        }
    }
}

static rv_status open_gguf_bytes(const void *arg, bool *object, rv_error *err)
{
    const rvi_buf *bytes = arg;
    rvi_gguf *g = (rvi_gguf *)1;
    rvi_blob blob;
    rvi_blob_from_memory(&blob, bytes->data, bytes->len);
    rv_status st = rvi_gguf_open_blob(&g, &blob, "test", err);
    *object = g != NULL;
    rvi_gguf_close(g);
    return st;
}

static int read_bytes(void *ctx, uint64_t offset, void *dst, size_t n)
{
    memcpy(dst, ((const rvi_buf *)ctx)->data + offset, n);
    return 0;
}

/* The blob is on the heap and must be freed whatever happens. */
static rv_status open_gguf_callback(const void *arg, bool *object, rv_error *err)
{
    rvi_buf bytes = *(const rvi_buf *)arg;
    rvi_gguf *g = NULL;
    rvi_blob blob;
    rv_status st = rvi_blob_read(&blob, read_bytes, &bytes, bytes.len, "test", err);
    if (!st) st = rvi_gguf_open_blob(&g, &blob, "test", err);
    *object = g != NULL;
    rvi_gguf_close(g);
    return st;
}

static rv_status open_gguf_path(const void *arg, bool *object, rv_error *err)
{
    rvi_gguf *g = (rvi_gguf *)1;
    rv_status st = rvi_gguf_open(&g, arg, err);
    *object = g != NULL;
    rvi_gguf_close(g);
    return st;
}

static rv_status open_safetensors_path(const void *arg, bool *object, rv_error *err)
{
    rvi_safetensors *s = (rvi_safetensors *)1;
    rv_status st = rvi_safetensors_open(&s, arg, err);
    *object = s != NULL;
    rvi_safetensors_close(s);
    return st;
}

static rv_status open_safetensors_dir(const void *arg, bool *object, rv_error *err)
{
    rvi_safetensors *s = (rvi_safetensors *)1;
    rv_status st = rvi_safetensors_open_dir(&s, arg, err);
    *object = s != NULL;
    rvi_safetensors_close(s);
    return st;
}

enum { N_ENTRIES = 300 };
static char entry_names[N_ENTRIES][24];
static rvi_st_entry entries[N_ENTRIES];

static rv_status write_safetensors(const void *arg, bool *object, rv_error *err)
{
    rv_status st = rvi_safetensors_write(arg, entries, N_ENTRIES, err);
    *object = st == RV_OK;
    return st;
}

static void make_entries(const char *prefix)
{
    static const float data[2] = {1, 2};
    for (int i = 0; i < N_ENTRIES; i++) {
        snprintf(entry_names[i], sizeof entry_names[i], "%s.%d", prefix, i);
        entries[i] = (rvi_st_entry){entry_names[i], 1, {2}, data};
    }
}

/* Large enough for several arena blocks. */
static void make_gguf(rvi_buf *out, const char *prefix)
{
    gguf_builder b = {.version = 3};
    char name[32];
    gb_str(&b, "general.architecture", "llama");
    gb_raw_array(&b, "tokens", RVI_GGUF_STRING, 500);
    for (int i = 0; i < 500; i++) gb_put_str(&b.values, "token", 5);
    for (int i = 0; i < 200; i++) {
        snprintf(name, sizeof name, "%s.%d", prefix, i);
        gb_u32(&b, name, 1);
        gb_tensor(&b, name, RVI_F32, 1, (uint64_t[]){1}, NULL);
    }
    gb_finish(&b, out);
    assert_false(out->failed);
    gb_deinit(&b);
}

static char *path_in(rvi_buf *path, const rvi_buf *dir, const char *name)
{
    path->len = 0;
    assert_true(rvi_buf_printf(path, "%s/%s", dir->data, name));
    return path->data;
}

static void write_bytes(const char *path, const char *data, size_t len)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
}

static void test_gguf(void **state)
{
    const rvi_buf *dir = *state;
    rvi_buf bytes = {0}, path = {0};
    make_gguf(&bytes, "a");
    sweep(open_gguf_bytes, &bytes, 5);
    sweep(open_gguf_callback, &bytes, 6);
    write_bytes(path_in(&path, dir, "m-00001-of-00002.gguf"), bytes.data, bytes.len);
    bytes.len = 0;
    make_gguf(&bytes, "b");
    write_bytes(path_in(&path, dir, "m-00002-of-00002.gguf"), bytes.data, bytes.len);
    sweep(open_gguf_path, path_in(&path, dir, "m-00001-of-00002.gguf"), 10);
    rvi_buf_deinit(&bytes);
    rvi_buf_deinit(&path);
}

static void test_safetensors(void **state)
{
    const rvi_buf *dir = *state;
    rvi_buf path = {0}, index = {0};
    rv_error err = {0};
    rvi_buf_puts(&index, "{\"weight_map\":{");
    for (int shard = 0; shard < 2; shard++) {
        const char *file = shard ? "two.safetensors" : "one.safetensors";
        make_entries(shard ? "two" : "one");
        for (int i = 0; i < N_ENTRIES; i++)
            rvi_buf_printf(&index, "%s\"%s\":\"%s\"", shard + i ? "," : "", entry_names[i], file);
        if (rvi_safetensors_write(path_in(&path, dir, file), entries, N_ENTRIES, &err))
            fail_msg("%s", err.text);
    }
    rvi_buf_puts(&index, "}}");
    write_bytes(path_in(&path, dir, "model.safetensors.index.json"), index.data, index.len);
    rvi_buf_deinit(&index);
    sweep(open_safetensors_dir, dir->data, 20);
    sweep(open_safetensors_path, path_in(&path, dir, "one.safetensors"), 8);
    sweep(write_safetensors, path_in(&path, dir, "written.safetensors"), 4);
    rvi_buf_deinit(&path);
}

static int set_up(void **state)
{
    static rvi_buf dir;
    *state = &dir;
    return rvi_os_temp_dir(&dir, "/tmp", NULL) != RV_OK;
}

static int tear_down(void **state)
{
    rvi_buf *dir = *state;
    rvi_os_remove_tree(dir->data);
    rvi_buf_deinit(dir);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gguf),
        cmocka_unit_test(test_safetensors),
    };
    return cmocka_run_group_tests_name("alloc formats", tests, set_up, tear_down);
}
