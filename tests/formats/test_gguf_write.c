/* GGUF files of our own: byte for byte what the builder of the tests makes, read back, and what
 * cannot be written. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/os.h"
#include "formats/gguf_builder.h"
#include "formats/gguf_write.h"

static const float odd[3] = {1, -0.0f, 3.5f}, matrix[6] = {1, 2, 3, 4, 5, 6};
static const rvi_f16 halves[5] = {0x3C00, 0xBC00, 0x7BFF, 1, 0};

static rvi_tensor_view view(const char *name, rvi_qtype type, int n_dims, uint64_t n, uint64_t m,
                            const void *data)
{
    return (rvi_tensor_view){
        .name = name, .type = type, .n_dims = n_dims, .shape = {n, m}, .data = data};
}

static void same_as_the_builder(void **state)
{
    (void)state;
    rvi_buf dir = {0}, path = {0}, want = {0};
    rv_error err = {0};
    gguf_builder b = {.version = 3};
    rvi_gguf *g;
    rvi_blob blob;
    gb_str(&b, "general.architecture", "llama");
    gb_f32(&b, "alpha", 0.1f);
    gb_str(&b, "empty", "");
    gb_tensor(&b, "odd", RVI_F32, 1, (uint64_t[]){3}, odd);
    gb_tensor(&b, "matrix", RVI_F32, 2, (uint64_t[]){2, 3}, matrix);
    gb_tensor(&b, "halves", RVI_F16, 1, (uint64_t[]){5}, halves);
    gb_finish(&b, &want);
    gb_deinit(&b);

    const rvi_gguf_entry values[] = {
        {"general.architecture", "llama", 0}, {"alpha", NULL, 0.1f}, {"empty", "", 0}};
    const rvi_tensor_view tensors[] = {view("odd", RVI_F32, 1, 3, 0, odd),
                                       view("matrix", RVI_F32, 2, 2, 3, matrix),
                                       view("halves", RVI_F16, 1, 5, 0, halves)};
    assert_int_equal(rvi_os_temp_dir(&dir, "/tmp", NULL), RV_OK);
    rvi_buf_printf(&path, "%s/x.gguf", dir.data);
    if (rvi_gguf_write(path.data, values, 3, tensors, 3, &err)) fail_msg("%s", err.text);
    assert_int_equal(rvi_blob_open(&blob, path.data, NULL), RV_OK);
    assert_true(blob.len >= want.len); /* the builder may leave out the padding of the end */
    assert_memory_equal(blob.data, want.data, want.len);
    for (size_t i = want.len; i < blob.len; i++) assert_int_equal(blob.data[i], 0);
    rvi_blob_close(&blob);

    assert_int_equal(rvi_gguf_open(&g, path.data, NULL), RV_OK);
    const rvi_tensor_view *v = rvi_gguf_tensor(g, "matrix");
    assert_true(v && v->shape[0] == 2 && v->shape[1] == 3);
    assert_memory_equal(v->data, matrix, sizeof matrix);
    rvi_gguf_close(g);
    assert_int_equal(rvi_gguf_write(path.data, NULL, 0, NULL, 0, NULL), RV_OK);
    assert_int_equal(rvi_gguf_open(&g, path.data, NULL), RV_OK);
    assert_int_equal(rvi_gguf_n_tensors(g), 0);
    rvi_gguf_close(g);
    rvi_os_remove_tree(dir.data);
    rvi_buf_deinit(&dir);
    rvi_buf_deinit(&path);
    rvi_buf_deinit(&want);
}

static void what_cannot_be_written(void **state)
{
    (void)state;
    static float many[65536];
    const rvi_tensor_view bad[] = {
        view("dims", RVI_F32, 0, 1, 1, odd),
        view("dims", RVI_F32, 5, 1, 1, odd),
        view("type", RVI_QTYPE_COUNT, 1, 1, 1, odd),
        view("null", RVI_F32, 1, 1, 1, NULL),
        view("block", RVI_Q8_0, 1, 33, 1, odd),
        view("none", RVI_F32, 1, 0, 1, odd),
        view("big", RVI_F32, 2, 1ull << 40, 1ull << 40, odd),
    };
    rv_error err = {0};
    for (size_t i = 0; i < RVI_COUNT(bad); i++) {
        assert_int_equal(rvi_gguf_write("/tmp/no such directory/x", NULL, 0, &bad[i], 1, &err),
                         RV_E_INVALID);
        assert_non_null(strstr(err.text, bad[i].name));
    }
    const rvi_tensor_view good = view("x", RVI_F32, 1, 3, 0, odd),
                          large = view("x", RVI_F32, 1, 65536, 0, many);
    assert_int_equal(rvi_gguf_write("/tmp/no such directory/x", NULL, 0, &good, 1, &err), RV_E_IO);
    if (rvi_os_stat("/dev/full", NULL) != RVI_OS_OTHER) skip();
    assert_int_equal(rvi_gguf_write("/dev/full", NULL, 0, &good, 1, &err), RV_E_IO); /* the flush */
    assert_int_equal(rvi_gguf_write("/dev/full", NULL, 0, &large, 1, &err), RV_E_IO); /* a write */
    assert_non_null(strstr(err.text, "/dev/full"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_as_the_builder),
        cmocka_unit_test(what_cannot_be_written),
    };
    return cmocka_run_group_tests_name("writing GGUF", tests, NULL, NULL);
}
