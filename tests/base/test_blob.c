/* Blobs: from a file, from memory, from a reader; and what cannot be one says why. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/blob.h"
#include "base/mem.h"
#include "base/os.h"

typedef struct fixture {
    rvi_buf dir, path;
} fixture;

static int set_up(void **state)
{
    static fixture f;
    f = (fixture){0};
    if (rvi_os_temp_dir(&f.dir, "/tmp", NULL) || !rvi_buf_printf(&f.path, "%s/file", f.dir.data))
        return -1;
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    rvi_os_remove_tree(f->dir.data);
    rvi_buf_deinit(&f->dir);
    rvi_buf_deinit(&f->path);
    return 0;
}

static void put(const char *path, const void *bytes, size_t n)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

static void test_file(void **state)
{
    fixture *f = *state;
    static const size_t sizes[] = {1, 5, 4096, 100001};
    for (size_t s = 0; s < RVI_COUNT(sizes); s++) {
        uint8_t *bytes = rvi_alloc_array(sizes[s], 1);
        assert_non_null(bytes);
        for (size_t i = 0; i < sizes[s]; i++) bytes[i] = (uint8_t)(i * 7 + s);
        put(f->path.data, bytes, sizes[s]);
        rvi_blob b;
        assert_int_equal(rvi_blob_open(&b, f->path.data, NULL), RV_OK);
        assert_int_equal(b.len, sizes[s]);
        assert_memory_equal(b.data, bytes, sizes[s]);
        unlink(f->path.data); /* the mapping outlives the name */
        assert_memory_equal(b.data, bytes, sizes[s]);
        rvi_blob_close(&b);
        assert_null(b.data);
        rvi_blob_close(&b); /* a closed one too */
        rvi_free(bytes);
    }
}

static void refused(const char *path, rv_status status, const char *why)
{
    rv_error err = {0};
    rvi_blob b;
    assert_int_equal(rvi_blob_open(&b, path, &err), status);
    assert_non_null(strstr(err.text, path));
    if (!strstr(err.text, why)) fail_msg("%s", err.text);
    assert_null(b.data);
    rvi_blob_close(&b);
}

static void test_refused_files(void **state)
{
    fixture *f = *state;
    refused(f->path.data, RV_E_NOT_FOUND, "No such file");
    refused(f->dir.data, RV_E_IO, "not a regular file");
    refused("/dev/null", RV_E_IO, "not a regular file");
    put(f->path.data, "", 0);
    refused(f->path.data, RV_E_IO, "empty");
    unlink(f->path.data);
    assert_int_equal(mkfifo(f->path.data, 0600), 0); /* must not wait for a writer */
    refused(f->path.data, RV_E_IO, "not a regular file");
}

static void test_memory(void **state)
{
    (void)state;
    static const char bytes[] = "abc";
    rvi_blob b;
    rvi_blob_from_memory(&b, bytes, 3);
    assert_ptr_equal(b.data, bytes);
    assert_int_equal(b.len, 3);
    rvi_blob_close(&b); /* borrowed: nothing to free */
    assert_string_equal(bytes, "abc");
}

typedef struct source {
    uint64_t fail_from; /* offset from which on reading fails */
    uint64_t expected;  /* the next offset asked for */
    size_t largest;
} source;

static int read_some(void *ctx, uint64_t offset, void *dst, size_t n)
{
    source *s = ctx;
    assert_true(offset == s->expected);
    s->expected += n;
    s->largest = RVI_MAX(s->largest, n);
    if (offset + n > s->fail_from) return 1;
    for (size_t i = 0; i < n; i++) ((uint8_t *)dst)[i] = (uint8_t)((offset + i) % 253);
    return 0;
}

static void test_reader(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {1, 100, (8 << 20) - 1, 8 << 20, (8 << 20) + 1, 20 << 20};
    for (size_t s = 0; s < RVI_COUNT(sizes); s++) {
        source src = {.fail_from = UINT64_MAX};
        rvi_blob b;
        assert_int_equal(rvi_blob_read(&b, read_some, &src, sizes[s], "source", NULL), RV_OK);
        assert_true(b.len == sizes[s] && src.expected == sizes[s]);
        assert_true(src.largest <= 8 << 20);
        assert_int_equal((uintptr_t)b.data % 64, 0);
        for (size_t i = 0; i < b.len; i++)
            if (b.data[i] != i % 253) fail_msg("byte %zu", i);
        rvi_blob_close(&b);
    }
}

static void test_reader_fails(void **state)
{
    (void)state;
    rv_error err = {0};
    rvi_blob b;
    source src = {.fail_from = 10 << 20};
    assert_int_equal(rvi_blob_read(&b, read_some, &src, 12 << 20, "source", &err), RV_E_IO);
    assert_string_equal(err.text, "source: reading 4194304 bytes at offset 8388608 failed");
    assert_null(b.data);
    rvi_blob_close(&b);
    assert_int_equal(rvi_blob_read(&b, read_some, &src, 0, "source", &err), RV_E_IO);
    assert_int_equal(rvi_blob_read(&b, read_some, &src, UINT64_MAX, "source", &err), RV_E_NOMEM);
    assert_null(b.data);
}

/* ---- files that shrink ---- */

static void cut_short(void **state)
{
    fixture *f = *state;
    enum { PAGE = 65536, N = 8 * PAGE }; /* no system has larger pages */
    rv_error err = {0};
    rvi_blob b, whole;
    uint8_t *bytes = rvi_alloc_array(N, 1);
    assert_non_null(bytes);
    memset(bytes, 7, N);
    put(f->path.data, bytes, N);
    assert_int_equal(rvi_blob_open(&b, f->path.data, NULL), RV_OK);
    assert_int_equal(b.data[N - 1], 7);
    assert_int_equal(truncate(f->path.data, 2 * PAGE), 0);
    assert_int_equal(rvi_blob_check(&b, "b", NULL), RV_OK); /* nobody has missed them yet */
    assert_int_equal(b.data[5 * PAGE + 9], 0);
    assert_int_equal(b.data[3 * PAGE], 0);
    assert_int_equal(b.data[N - 1], 0);
    assert_int_equal(b.data[PAGE], 7); /* what is left is left */
    assert_int_equal(rvi_blob_check(&b, "b", &err), RV_E_IO);
    assert_non_null(strstr(err.text, "b: "));

    put(f->path.data, bytes, N); /* another opening is another story */
    assert_int_equal(rvi_blob_open(&whole, f->path.data, NULL), RV_OK);
    assert_int_equal(whole.data[N - 1], 7);
    assert_int_equal(rvi_blob_check(&whole, "whole", NULL), RV_OK);
    assert_int_equal(rvi_blob_check(&b, "b", NULL), RV_E_IO);
    rvi_blob_close(&b);
    rvi_blob_close(&whole);
    rvi_free(bytes);
}

static sigjmp_buf out_of_fault;

static void jump_out(int number)
{
    siglongjmp(out_of_fault, number);
}

/* Faults elsewhere are the program's: its handler gets them, installed before or after. */
static void other_faults(void **state)
{
    fixture *f = *state;
    enum { PAGE = 65536 };
    struct sigaction own = {0}, old;
    rvi_blob b;
    uint8_t *bytes = rvi_zalloc(2 * PAGE);
    assert_non_null(bytes);
    own.sa_handler = jump_out;
    assert_int_equal(sigaction(SIGBUS, &own, &old), 0);
    put(f->path.data, bytes, 2 * PAGE);
    assert_int_equal(rvi_blob_open(&b, f->path.data, NULL), RV_OK);
    int fd = open(f->path.data, O_RDONLY);
    volatile uint8_t *theirs = mmap(NULL, 2 * PAGE, PROT_READ, MAP_SHARED, fd, 0);
    assert_true(theirs != MAP_FAILED);
    close(fd);
    assert_int_equal(truncate(f->path.data, 1), 0);
    for (int i = 0; i < 3; i++) {
        int number = sigsetjmp(out_of_fault, 1);
        if (!number) fail_msg("%d was read where nothing is", theirs[PAGE + i]);
        assert_int_equal(number, SIGBUS);
        assert_int_equal(rvi_blob_check(&b, "b", NULL), RV_OK);
    }
    assert_int_equal(b.data[PAGE], 0);
    assert_int_equal(rvi_blob_check(&b, "b", NULL), RV_E_IO);
    munmap((void *)(uintptr_t)theirs, 2 * PAGE);
    rvi_blob_close(&b);
    rvi_free(bytes);
    assert_int_equal(sigaction(SIGBUS, &old, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_file, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_refused_files, set_up, tear_down),
        cmocka_unit_test_setup_teardown(cut_short, set_up, tear_down),
        cmocka_unit_test_setup_teardown(other_faults, set_up, tear_down),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_reader),
        cmocka_unit_test(test_reader_fails),
    };
    return cmocka_run_group_tests_name("blob", tests, NULL, NULL);
}
