/* The cursor: little-endian values, and no byte behind the end. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "base/compat.h"
#include "base/cursor.h"
#include "base/mem.h"
#include "base/rng.h"

static void test_values(void **state)
{
    (void)state;
    static const uint8_t bytes[] = {
        0x01,                                           /* u8 */
        0x02, 0x81,                                     /* u16 */
        0x03, 0x00, 0x00, 0x82,                         /* u32 */
        0x04, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x83, /* u64 */
        0x00, 0x00, 0xC0, 0x3F,                         /* f32: 1.5 */
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0xC0, /* f64: -2.25 */
        0xAA, 0xBB, 0xCC,                               /* three bytes */
    };
    rvi_cursor c = {.data = bytes, .len = sizeof bytes};
    assert_int_equal(rvi_cursor_u8(&c), 0x01);
    assert_int_equal(rvi_cursor_u16(&c), 0x8102);
    assert_int_equal(rvi_cursor_u32(&c), 0x82000003u);
    assert_true(rvi_cursor_u64(&c) == 0x8300000000000004u);
    assert_true(rvi_cursor_f32(&c) == 1.5f);
    assert_true(rvi_cursor_f64(&c) == -2.25);
    assert_true(rvi_cursor_has(&c, 3));
    const uint8_t *p = rvi_cursor_take(&c, 3);
    assert_ptr_equal(p, bytes + sizeof bytes - 3);
    assert_int_equal(c.pos, c.len);
    assert_non_null(rvi_cursor_take(&c, 0));
    assert_false(c.failed);
}

/* For every length and width: reading works as far as the bytes go, then fails for good. */
static void test_bounds(void **state)
{
    (void)state;
    for (size_t len = 0; len < 40; len++) {
        uint8_t *bytes = rvi_alloc_array(
            len ? len : 1, 1); /* exactly len, so that a sanitizer sees one too many */
        assert_non_null(bytes);
        memset(bytes, 0xFF, len);
        for (unsigned width = 1; width <= 8; width++) {
            rvi_cursor c = {.data = bytes, .len = len};
            for (size_t i = 0; i < len / width; i++) {
                uint64_t v = rvi_cursor_uint(&c, width);
                assert_true(v == UINT64_MAX >> (64 - 8 * width));
                assert_false(c.failed);
            }
            size_t pos = c.pos;
            assert_true(rvi_cursor_uint(&c, width) == 0);
            assert_true(c.failed);
            assert_int_equal(c.pos, pos);
            assert_int_equal(rvi_cursor_u8(&c), 0); /* although bytes may be left */
            assert_null(rvi_cursor_take(&c, 0));
            assert_false(rvi_cursor_has(&c, 0));
            assert_true(rvi_cursor_f32(&c) == 0 && rvi_cursor_f64(&c) == 0);
        }
        rvi_free(bytes);
    }
}

static void test_absurd_lengths(void **state)
{
    (void)state;
    static const uint8_t bytes[16] = {0};
    static const uint64_t lengths[] = {17, UINT32_MAX, UINT64_MAX, UINT64_MAX - 7,
                                       (uint64_t)INT64_MAX + 1};
    for (size_t i = 0; i < RVI_COUNT(lengths); i++)
        for (size_t pos = 0; pos <= 16; pos += 4) {
            rvi_cursor c = {.data = bytes, .len = sizeof bytes, .pos = pos};
            assert_null(rvi_cursor_take(&c, lengths[i]));
            assert_true(c.failed);
            assert_int_equal(c.pos, pos);
        }
}

static void test_empty(void **state)
{
    (void)state;
    rvi_cursor c = {0};
    assert_true(rvi_cursor_has(&c, 0));
    assert_int_equal(rvi_cursor_u32(&c), 0);
    assert_true(c.failed);
}

/* The generator's first numbers for seed 0 are those of the published splitmix64. */
static void test_rng(void **state)
{
    (void)state;
    rvi_rng r = {0};
    assert_true(rvi_rng_u64(&r) == 0xE220A8397B1DCDAFu);
    assert_true(rvi_rng_u64(&r) == 0x6E789E6AA1B965F4u);
    assert_true(rvi_rng_u64(&r) == 0x06C45D188009454Fu);
    double sum = 0;
    for (int i = 0; i < 100000; i++) {
        double x = rvi_rng_double(&r);
        assert_true(x >= 0 && x < 1);
        sum += x;
    }
    assert_true(sum > 49500 && sum < 50500); /* 5 standard deviations are 456 */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_absurd_lengths),
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_rng),
    };
    return cmocka_run_group_tests_name("cursor", tests, NULL, NULL);
}
