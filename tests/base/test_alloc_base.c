/* Every allocation of base, refused in turn: an error is returned and nothing leaks (which a
 * sanitizer sees). */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "../harness/fail_alloc.h"
#include "base/blob.h"
#include "base/json.h"
#include "base/os.h"
#include "base/pool.h"

/* Runs attempt with call 0, 1, 2 ... refused, once alone and once with all that follow, until none
 * is refused. attempt returns its status and must free what it made. */
static void sweep(rv_status (*attempt)(rv_error *err), long at_least)
{
    for (int once = 0; once < 2; once++) {
        long n = 0;
        for (bool refused = true; refused; n++) {
            rv_error err = {0};
            if (once)
                fail_alloc_once(n);
            else
                fail_alloc_after(n);
            rv_status st = attempt(&err);
            refused = fail_alloc_off();
            if (st != (refused ? RV_E_NOMEM : RV_OK))
                fail_msg("call %ld refused: status %d %s", n, (int)st, err.text);
            if (refused) assert_int_equal(err.code, RV_E_NOMEM);
            assert_true(n < 100000);
        }
        if (n <= at_least) fail_msg("only %ld allocations were tried", n - 1);
    }
}

static rv_status parse_json(rv_error *err)
{
    static char
        text[20000]; /* deep, wide, with strings: the arena and the stack both grow several times */
    size_t len = 0;
    if (!text[0]) {
        text[len++] = '[';
        for (int i = 0; i < 500; i++)
            len += (size_t)snprintf(text + len, sizeof text - len,
                                    "{\"key%d\":[1,2.5,\"\\u00e9\"]},", i);
        snprintf(text + len, sizeof text - len, "null]");
    }
    rvi_arena arena = {0};
    const rvi_json *v;
    rv_status st = rvi_json_parse(&v, text, strlen(text), &arena, "text", err);
    assert_int_equal(v != NULL, st == RV_OK);
    if (!st) assert_int_equal(rvi_json_count(v), 501);
    rvi_arena_deinit(&arena);
    return st;
}

static void test_json(void **state)
{
    (void)state;
    sweep(parse_json, 8);
}

static rv_status write_json(rv_error *err)
{
    rvi_buf out = {0};
    for (int i = 0; i < 100; i++) {
        rvi_json_write_string(&out, "text \n \x01 \xC3\xA9 \xFF", 13);
        rvi_json_write_number(&out, i * 0.1);
        rvi_buf_printf(&out, "%d", i);
        rvi_buf_putc(&out, ',');
    }
    bool ok = rvi_buf_puts(&out, "end");
    assert_int_equal(ok, !out.failed);
    if (!ok)
        assert_false(rvi_buf_append(&out, "", 0)); /* stays failed although memory is there again */
    if (ok) assert_string_equal(out.data + out.len - 3, "end");
    rvi_buf_deinit(&out);
    return ok ? RV_OK : rvi_nomem(err, "buffer");
}

static void test_buf(void **state)
{
    (void)state;
    sweep(write_json, 5);
}

/* An arena stays usable after a refusal: what fits its current block still comes. */
static void test_arena(void **state)
{
    (void)state;
    rvi_arena a = {0};
    char *first = rvi_arena_alloc(&a, 100, 1);
    assert_non_null(first);
    size_t used = a.used, total = a.total;
    fail_alloc_after(0);
    void *big = rvi_arena_alloc(&a, 1 << 20, 1);
    void *small = rvi_arena_alloc(&a, 100, 1);
    char *copy = rvi_arena_strndup(&a, "abc", 3);
    assert_true(fail_alloc_off());
    assert_null(big);
    assert_non_null(small);
    assert_string_equal(copy, "abc");
    assert_true(a.used > used && a.total == total);
    assert_non_null(rvi_arena_alloc(&a, 1 << 20, 1));
    rvi_arena_deinit(&a);
}

static void test_plain(void **state)
{
    (void)state;
    char *old = rvi_alloc_array(4, 1);
    assert_non_null(old);
    memcpy(old, "abc", 4);
    fail_alloc_after(0);
    void *results[] = {rvi_zalloc(8), rvi_alloc_array(2, 8), rvi_zalloc_array(2, 8),
                       rvi_alloc_aligned(100, 64), rvi_realloc_array(old, 100, 1)};
    assert_true(fail_alloc_off());
    for (size_t i = 0; i < RVI_COUNT(results); i++) assert_null(results[i]);
    assert_string_equal(old, "abc");
    rvi_free(old);
}

static int read_zeros(void *ctx, uint64_t offset, void *dst, size_t n)
{
    (void)ctx;
    (void)offset;
    memset(dst, 0, n);
    return 0;
}

static rv_status read_blob(rv_error *err)
{
    rvi_blob b;
    rv_status st = rvi_blob_read(&b, read_zeros, NULL, 1000, "source", err);
    assert_int_equal(b.data != NULL, st == RV_OK);
    rvi_blob_close(&b);
    return st;
}

static void test_blob(void **state)
{
    (void)state;
    sweep(read_blob, 1);
}

static rv_status make_pool(rv_error *err)
{
    rvi_pool *pool;
    rv_status st = rvi_pool_new(&pool, 3, err);
    assert_int_equal(pool != NULL, st == RV_OK);
    rvi_pool_free(pool);
    return st;
}

static void test_pool(void **state)
{
    (void)state;
    sweep(make_pool, 2);
}

static rv_status make_dirs(rv_error *err)
{
    rvi_buf dir = {0};
    rv_status st = rvi_os_make_dirs("/tmp", err);
    if (!st) st = rvi_os_temp_dir(&dir, "/tmp", err);
    if (!st)
        rvi_os_remove_tree(
            dir.data); /* best effort: may leave it when its own allocation is refused */
    fail_alloc_arm(-1, -1);
    bool left = !st && rvi_os_stat(dir.data, NULL) != RVI_OS_NONE;
    if (left) rvi_os_remove_tree(dir.data);
    rvi_buf_deinit(&dir);
    return st;
}

static void test_os(void **state)
{
    (void)state;
    for (long n = 0; n < 2; n++) { /* one buffer each */
        rv_error err = {0};
        fail_alloc_once(n);
        assert_int_equal(make_dirs(&err), RV_E_NOMEM);
        assert_int_equal(err.code, RV_E_NOMEM);
    }
    fail_alloc_once(2); /* in the removal, which reports nothing */
    assert_int_equal(make_dirs(NULL), RV_OK);
    assert_int_equal(make_dirs(NULL), RV_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json),  cmocka_unit_test(test_buf),  cmocka_unit_test(test_arena),
        cmocka_unit_test(test_plain), cmocka_unit_test(test_blob), cmocka_unit_test(test_pool),
        cmocka_unit_test(test_os),
    };
    return cmocka_run_group_tests_name("allocation failures in base", tests, NULL, NULL);
}
