/* Allocation: overflow is refused, arenas align and obey their maximum, buffers fail once and stay
 * failed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/resident.h"
#include "base/rng.h"

static void test_alloc(void **state)
{
    (void)state;
    assert_null(rvi_zalloc(0));
    assert_null(rvi_alloc_array(0, 8));
    assert_null(rvi_alloc_array(8, 0));
    assert_null(rvi_zalloc_array(0, 0));
    assert_null(rvi_realloc_array(NULL, 0, 4));
    assert_null(rvi_alloc_aligned(0, 64));
    assert_null(rvi_alloc_array(SIZE_MAX, 2));
    assert_null(rvi_alloc_array(SIZE_MAX / 2 + 2, 2)); /* the product wraps round to 2 */
    assert_null(rvi_zalloc_array(SIZE_MAX / 8 + 1, 8));
    assert_null(rvi_alloc_array((size_t)PTRDIFF_MAX + 1, 1));
    assert_null(rvi_alloc_aligned(SIZE_MAX, 64));
    assert_null(rvi_alloc_aligned((size_t)PTRDIFF_MAX, 64));

    unsigned char *p = rvi_zalloc_array(100, 7);
    assert_non_null(p);
    for (size_t i = 0; i < 700; i++) assert_int_equal(p[i], 0);
    memset(p, 7, 700);
    assert_null(rvi_realloc_array(p, SIZE_MAX, 2)); /* the old one stays valid */
    for (size_t i = 0; i < 700; i++) assert_int_equal(p[i], 7);
    unsigned char *q = rvi_realloc_array(p, 2000, 1);
    assert_non_null(q);
    for (size_t i = 0; i < 700; i++) assert_int_equal(q[i], 7);
    rvi_free(q);
    rvi_free(NULL);
}

static void test_aligned(void **state)
{
    (void)state;
    for (size_t align = 8; align <= 4096; align *= 2)
        for (size_t size = 1; size < 300; size += 37) {
            void *p = rvi_alloc_aligned(size, align);
            assert_non_null(p);
            assert_int_equal((uintptr_t)p % align, 0);
            memset(p, 1, size);
            rvi_free(p);
        }
}

/* Blocks of any size keep what is in them when they grow and shrink, also across the sizes from
 * which they are counted and mapped one by one. */
static void test_resized(void **state)
{
    (void)state;
    static const size_t sizes[] = {100,     200 << 10, (1 << 20) - 1, 1 << 20, 5 << 20,
                                   2 << 20, 1 << 20,   300 << 10,     50,      3 << 20};
    size_t before = rvi_mem_in_use(), least = sizes[0];
    unsigned char *p = NULL;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        unsigned char *q = rvi_realloc_array(p, sizes[i], 1);
        assert_non_null(q);
        p = q;
        least = i ? RVI_MIN(least, sizes[i]) : sizes[0];
        for (size_t k = 0; i && k < least; k++) assert_int_equal(p[k], k % 251);
        for (size_t k = 0; k < sizes[i]; k++) p[k] = (unsigned char)(k % 251);
        least = sizes[i];
        if (before) assert_true(rvi_mem_in_use() >= before + sizes[i]);
        assert_null(rvi_realloc_array(p, SIZE_MAX / 2, 1)); /* and is still there */
    }
    rvi_free(p);
    assert_int_equal(rvi_mem_in_use(), before);
    unsigned char *zero = rvi_zalloc(3 << 20);
    for (size_t k = 0; k < 3 << 20; k += 511) assert_int_equal(zero[k], 0);
    rvi_free(zero);
}

/* What is freed is the system's again at once, whatever was allocated between it. */
static void test_given_back(void **state)
{
    (void)state;
    enum { N = 48, EACH = 2 << 20 };
    rvi_resident before, full, after;
    void *large[N], *small[N];
    if (!rvi_resident_read(&before)) skip();
    for (int i = 0; i < N; i++) {
        assert_non_null(large[i] = rvi_alloc_aligned(EACH, 64));
        memset(large[i], 1, EACH);
        assert_non_null(small[i] = rvi_zalloc(1000));
    }
    assert_true(rvi_resident_read(&full));
    for (int i = 0; i < N; i++) rvi_free(large[i]);
    assert_true(rvi_resident_read(&after));
    for (int i = 0; i < N; i++) rvi_free(small[i]);
#if !defined(__SANITIZE_ADDRESS__)
    assert_true(full.all >= before.all + N * (size_t)EACH);
    assert_true(after.all <= before.all + N * (size_t)EACH / 8);
#endif
}

static void test_arena(void **state)
{
    (void)state;
    enum { N = 5000 };
    rvi_arena a = {0};
    rvi_rng rng = {.state = 3};
    static unsigned char *objects[N];
    static size_t sizes[N];
    size_t used = 0;
    for (size_t i = 0; i < N; i++) { /* mostly small ones, now and then one larger than a block */
        sizes[i] = 1 + rvi_rng_u64(&rng) % (i % 100 == 0 ? 100000 : 200);
        objects[i] = rvi_arena_alloc(&a, sizes[i], 1);
        assert_non_null(objects[i]);
        assert_int_equal((uintptr_t)objects[i] % 16, 0);
        for (size_t j = 0; j < sizes[i]; j++) assert_true(objects[i][j] == 0);
        memset(objects[i], (int)(i % 251 + 1), sizes[i]);
        used += sizes[i];
    }
    for (size_t i = 0; i < N; i++) /* none overlaps another */
        for (size_t j = 0; j < sizes[i]; j++) assert_true(objects[i][j] == i % 251 + 1);
    assert_true(a.used >= used && a.total >= a.used);
    assert_true(a.total < 2 * used + (4 << 20)); /* no waste beyond blocks */
    rvi_arena_deinit(&a);
    assert_null(a.blocks);
    assert_int_equal(a.used, 0);
    rvi_arena_deinit(&a); /* an empty one too */
}

static void test_arena_limits(void **state)
{
    (void)state;
    rvi_arena a = {.max = 1000};
    assert_null(rvi_arena_alloc(&a, 0, 8));
    assert_null(rvi_arena_alloc(&a, 8, 0));
    assert_null(rvi_arena_alloc(&a, SIZE_MAX, 2));
    assert_null(rvi_arena_alloc(&a, SIZE_MAX, 1));
    assert_null(rvi_arena_alloc(&a, (size_t)PTRDIFF_MAX, 1));
    assert_null(rvi_arena_alloc(&a, 1001, 1));
    assert_null(a.blocks);
    assert_non_null(rvi_arena_alloc(&a, 992, 1));
    assert_null(rvi_arena_alloc(&a, 16, 1));
    assert_int_equal(a.used, 992);
    rvi_arena_deinit(&a);
    assert_int_equal(a.max, 1000); /* stays for the next use */
    for (int i = 0; i < 62; i++) assert_non_null(rvi_arena_alloc(&a, 1, 1));
    assert_null(rvi_arena_alloc(&a, 1, 1));
    rvi_arena_deinit(&a);
}

static void test_arena_strndup(void **state)
{
    (void)state;
    rvi_arena a = {0};
    assert_string_equal(rvi_arena_strndup(&a, "hello", 3), "hel");
    assert_string_equal(rvi_arena_strndup(&a, NULL, 0), "");
    assert_memory_equal(rvi_arena_strndup(&a, "a\0b", 3), "a\0b", 4);
    assert_null(rvi_arena_strndup(&a, "x", SIZE_MAX));
    rvi_arena_deinit(&a);
}

static void test_buf(void **state)
{
    (void)state;
    rvi_buf b = {0};
    assert_true(rvi_buf_append(&b, NULL, 0));
    assert_string_equal(b.data, "");
    assert_true(rvi_buf_puts(&b, "one"));
    assert_true(rvi_buf_putc(&b, ' '));
    assert_true(rvi_buf_printf(&b, "%d %s", 2, "three"));
    assert_string_equal(b.data, "one 2 three");
    assert_int_equal(b.len, 11);
    assert_true(rvi_buf_append(&b, "\0x", 2));
    assert_int_equal(b.len, 13);
    assert_memory_equal(b.data + 11, "\0x", 3); /* and the closing 0 */
    rvi_buf_deinit(&b);
    assert_null(b.data);

    for (int i = 0; i < 100000; i++) assert_true(rvi_buf_printf(&b, "%d,", i % 10));
    assert_int_equal(b.len, 200000);
    for (size_t i = 0; i < b.len; i++)
        assert_true(b.data[i] == (i % 2 ? ',' : (char)('0' + i / 2 % 10)));
    rvi_buf_deinit(&b);
}

static void test_buf_maximum(void **state)
{
    (void)state;
    rvi_buf b = {.max = 10};
    assert_true(rvi_buf_puts(&b, "12345"));
    assert_true(rvi_buf_puts(&b, "67890")); /* exactly the maximum */
    assert_true(b.cap <= 11 || b.cap == 64);
    assert_false(b.failed);
    assert_true(rvi_buf_append(&b, "", 0));
    assert_false(rvi_buf_putc(&b, 'x'));
    assert_true(b.failed);
    assert_string_equal(b.data, "1234567890");
    assert_false(rvi_buf_append(&b, "", 0)); /* stays failed */
    assert_false(rvi_buf_printf(&b, "%d", 1));
    assert_int_equal(b.len, 10);
    rvi_buf_deinit(&b);
    assert_false(b.failed);
    assert_int_equal(b.max, 10);
    assert_false(rvi_buf_printf(&b, "%s", "12345678901"));
    assert_true(b.failed);
    rvi_buf_deinit(&b);

    b = (rvi_buf){.max = 100};
    for (int i = 0; i < 100; i++) assert_true(rvi_buf_putc(&b, 'x'));
    assert_int_equal(b.cap, 101); /* doubling stops at the maximum */
    rvi_buf_deinit(&b);
}

static void test_buf_absurd_lengths(void **state)
{
    (void)state;
    static const size_t maxima[] = {0, SIZE_MAX, SIZE_MAX - 1, (size_t)PTRDIFF_MAX,
                                    (size_t)PTRDIFF_MAX + 1};
    static const size_t lengths[] = {
        SIZE_MAX,           SIZE_MAX - 1, SIZE_MAX - 3, SIZE_MAX / 2, (size_t)PTRDIFF_MAX + 1,
        (size_t)PTRDIFF_MAX};
    for (size_t i = 0; i < RVI_COUNT(maxima); i++)
        for (size_t j = 0; j < RVI_COUNT(lengths); j++) {
            rvi_buf b = {.max = maxima[i]};
            assert_true(rvi_buf_puts(&b, "abc"));
            assert_false(rvi_buf_reserve(&b, lengths[j]));
            assert_true(b.failed);
            assert_string_equal(b.data, "abc");
            rvi_buf_deinit(&b);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alloc),         cmocka_unit_test(test_aligned),
        cmocka_unit_test(test_resized),       cmocka_unit_test(test_given_back),
        cmocka_unit_test(test_arena),         cmocka_unit_test(test_arena_limits),
        cmocka_unit_test(test_arena_strndup), cmocka_unit_test(test_buf),
        cmocka_unit_test(test_buf_maximum),   cmocka_unit_test(test_buf_absurd_lengths),
    };
    return cmocka_run_group_tests_name("mem", tests, NULL, NULL);
}
