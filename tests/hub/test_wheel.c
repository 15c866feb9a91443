/* The zip reader: every way a member may be written, and everything that may be wrong with a file
 * of a stranger. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/rng.h"
#include "make_zip.h"
#include "hub/wheel.h"

enum { BIG = 700001 }; /* several steps of the unpacker */

static uint8_t big[BIG];

static int fill_big(void **state)
{
    (void)state;
    rvi_rng rng = {.state = 11};
    for (size_t i = 0; i < BIG; i++) big[i] = (uint8_t)(i % 3 ? rvi_rng_u64(&rng) % 7 : i / 1000);
    return 0;
}

static rv_status collect(void *ctx, const uint8_t *bytes, size_t n, rv_error *err)
{
    return rvi_buf_append(ctx, bytes, n) ? RV_OK : rvi_nomem(err, "collected");
}

/* From a copy of exactly len bytes, so that a sanitizer sees a read behind the end. */
static rv_status extract(const char *zip, size_t len, const char *name, rvi_buf *out, rv_error *err)
{
    uint8_t *copy = rvi_alloc_array(len ? len : 1, 1);
    assert_non_null(copy);
    if (len) memcpy(copy, zip, len);
    rvi_blob blob;
    rvi_blob_from_memory(&blob, copy, len);
    rvi_wheel_member m;
    rv_status st = rvi_wheel_find(&m, &blob, name, err);
    if (!st) {
        assert_true(m.data >= copy && m.packed_len <= len && m.data + m.packed_len <= copy + len);
        st = rvi_wheel_unpack(&m, collect, out, err);
    }
    rvi_free(copy);
    return st;
}

static void test_reads(void **state)
{
    (void)state;
    for (unsigned variant = 0; variant < 32; variant++) {
        bool deflate = variant & 1, descriptor = variant & 2, zip64 = variant & 4;
        zip_options o = {.zip64 = variant & 8,
                         .comment = variant & 16 ? "a comment PK\5\6 in it" : NULL};
        zip_member members[] = {
            {.name = "pkg/__init__.py", .bytes = "x = 1\n", .len = 6, .deflate = true},
            {.name = "pkg/empty",
             .bytes = "",
             .len = 0,
             .deflate = deflate,
             .descriptor = descriptor,
             .zip64 = zip64},
            {.name = "pkg/model.gguf",
             .bytes = big,
             .len = BIG,
             .deflate = deflate,
             .descriptor = descriptor,
             .zip64 = zip64},
            {.name = "pkg/model.gguf2", .bytes = "no", .len = 2},
        };
        rvi_buf zip = {0}, out = {0};
        rv_error err = {0};
        assert_true(zip_make(&zip, members, RVI_COUNT(members), &o));
        for (size_t i = 0; i < RVI_COUNT(members); i++) {
            if (extract(zip.data, zip.len, members[i].name, &out, &err))
                fail_msg("variant %u: %s", variant, err.text);
            assert_int_equal(out.len, members[i].len);
            if (out.len) assert_memory_equal(out.data, members[i].bytes, out.len);
            rvi_buf_deinit(&out);
        }
        rvi_buf_deinit(&zip);
    }
}

/* What is wrong, the expected status, and a word of the message. */
static void test_refuses(void **state)
{
    (void)state;
    static const char text[] = "some text, some text, some text, some text";
#define GOOD .name = "m", .bytes = text, .len = sizeof text - 1
    static const struct {
        zip_member member;
        rv_status status;
        const char *why;
    } cases[] = {
        {{GOOD, .crc_error = 1}, RV_E_MODEL, "CRC"},
        {{GOOD, .deflate = true, .crc_error = 0x80000000}, RV_E_MODEL, "CRC"},
        {{GOOD, .len_error = 1}, RV_E_MODEL, "two lengths"},
        {{GOOD, .packed_error = -1}, RV_E_MODEL, "two lengths"},
        {{GOOD, .deflate = true, .len_error = 1}, RV_E_MODEL, "lengths differ"},
        {{GOOD, .deflate = true, .len_error = -1}, RV_E_MODEL, "more data"},
        {{GOOD, .deflate = true, .packed_error = -1}, RV_E_MODEL, "packed data broken"},
        {{GOOD, .deflate = true, .descriptor = true, .packed_error = 1},
         RV_E_MODEL,
         "lengths differ"},
        {{GOOD, .packed_error = 1000}, RV_E_MODEL, "reaches into the directory"},
        {{GOOD, .zip64 = true, .packed_error = INT64_MAX},
         RV_E_MODEL,
         "reaches into the directory"},
        {{GOOD, .zip64 = true, .packed_error = -1000}, RV_E_MODEL, "reaches into the directory"},
        {{GOOD, .zip64 = true, .len_error = INT64_MAX}, RV_E_MODEL, "two lengths"},
        {{GOOD, .zip64 = true, .offset_error = INT64_MAX}, RV_E_MODEL, "local header"},
        {{GOOD, .zip64 = true, .offset_error = -1}, RV_E_MODEL, "local header"},
        {{GOOD, .offset_error = 1}, RV_E_MODEL, "local header"},
        {{GOOD, .offset_error = 0xFFFFFF00}, RV_E_MODEL, "local header"},
        {{GOOD, .flags = 1}, RV_E_MODEL, "encrypted"},
        {{GOOD, .flags = 1 << 13}, RV_E_MODEL, "encrypted"},
        {{GOOD, .method = 12}, RV_E_MODEL, "method 12"},
        {{GOOD, .method = 8},
         RV_E_MODEL,
         "packed data broken"}, /* stored bytes that claim to be deflated */
        {{GOOD, .local_name = "n"}, RV_E_MODEL, "local header"},
        {{GOOD, .local_name = "mm"}, RV_E_MODEL, "local header"},
        {{.name = "M", .bytes = "", .len = 0}, RV_E_NOT_FOUND, "does not hold 'm'"},
        {{.name = "../m", .bytes = "", .len = 0}, RV_E_NOT_FOUND, "does not hold 'm'"},
        {{.name = "/m", .bytes = "", .len = 0}, RV_E_NOT_FOUND, "does not hold 'm'"},
        {{.name = "m/", .bytes = "", .len = 0}, RV_E_NOT_FOUND, "does not hold 'm'"},
        {{.name = "", .bytes = "", .len = 0}, RV_E_NOT_FOUND, "does not hold 'm'"},
    };
#undef GOOD
    for (size_t i = 0; i < RVI_COUNT(cases); i++) {
        rvi_buf zip = {0}, out = {0};
        rv_error err = {0};
        assert_true(zip_make(&zip, &cases[i].member, 1, NULL));
        rv_status st = extract(zip.data, zip.len, "m", &out, &err);
        if (st != cases[i].status || !strstr(err.text, cases[i].why))
            fail_msg("case %zu: %d %s", i, (int)st, err.text);
        rvi_buf_deinit(&zip);
        rvi_buf_deinit(&out);
    }
}

static void test_name_twice(void **state)
{
    (void)state;
    zip_member members[] = {{.name = "m", .bytes = "one", .len = 3},
                            {.name = "m", .bytes = "two", .len = 3}};
    rvi_buf zip = {0}, out = {0};
    rv_error err = {0};
    assert_true(zip_make(&zip, members, 2, NULL));
    assert_int_equal(extract(zip.data, zip.len, "m", &out, &err), RV_E_MODEL);
    assert_non_null(strstr(err.text, "twice"));
    rvi_buf_deinit(&zip);
    rvi_buf_deinit(&out);
}

static void test_not_a_zip(void **state)
{
    (void)state;
    static const char zeros[70000];
    static const size_t sizes[] = {0, 1, 21, 22, 23, 70000};
    rvi_buf out = {0};
    for (size_t i = 0; i < RVI_COUNT(sizes); i++) {
        rv_error err = {0};
        assert_int_equal(extract(zeros, sizes[i], "m", &out, &err), RV_E_MODEL);
        assert_non_null(strstr(err.text, "no end record"));
    }
    rv_error err = {0}; /* an end record alone is an empty zip */
    assert_int_equal(extract("PK\5\6\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 22, "m", &out, &err),
                     RV_E_NOT_FOUND);
    rvi_buf_deinit(&out);
}

/* 1000 to 1: nothing is written beyond the announced length, whatever the packed data would
 * give. */
static void test_bomb(void **state)
{
    (void)state;
    size_t len = 20 << 20;
    uint8_t *zeros = rvi_zalloc(len);
    assert_non_null(zeros);
    zip_member m = {.name = "m",
                    .bytes = zeros,
                    .len = len,
                    .deflate = true,
                    .len_error = 100 - (long long)len};
    rvi_buf zip = {0}, out = {0};
    rv_error err = {0};
    assert_true(zip_make(&zip, &m, 1, NULL));
    assert_int_equal(extract(zip.data, zip.len, "m", &out, &err), RV_E_MODEL);
    assert_int_equal(out.len, 0);
    rvi_buf_deinit(&zip);
    rvi_buf_deinit(&out);
    rvi_free(zeros);
}

static void make_sample(rvi_buf *zip, unsigned variant)
{
    static const char text[] = "abcabcabcabcabcabcabcabc abcabcabcabc 0123456789";
    zip_member members[] = {
        {.name = "a", .bytes = text, .len = 10},
        {.name = "m",
         .bytes = text,
         .len = sizeof text - 1,
         .deflate = variant & 1,
         .descriptor = variant & 2,
         .zip64 = variant & 4},
    };
    zip_options o = {.zip64 = variant & 4, .comment = variant & 2 ? "end" : NULL};
    assert_true(zip_make(zip, members, 2, &o));
}

/* A file cut anywhere is refused; there is no length at which a part passes for the whole. */
static void test_truncated(void **state)
{
    (void)state;
    for (unsigned variant = 0; variant < 8; variant++) {
        rvi_buf zip = {0};
        make_sample(&zip, variant);
        for (size_t len = 0; len < zip.len; len++) {
            rvi_buf out = {0};
            if (extract(zip.data, len, "m", &out, NULL) == RV_OK)
                fail_msg("variant %u, %zu bytes", variant, len);
            if (len && extract(zip.data + (zip.len - len), len, "m", &out, NULL) == RV_OK)
                fail_msg("variant %u, last %zu bytes", variant, len);
            rvi_buf_deinit(&out);
        }
        rvi_buf_deinit(&zip);
    }
}

/* Every single bit flipped, then many at random: an error or the right bytes, never wrong ones. */
static void test_flipped_bits(void **state)
{
    (void)state;
    for (unsigned variant = 0; variant < 8; variant++) {
        rvi_buf zip = {0}, good = {0};
        make_sample(&zip, variant);
        assert_int_equal(extract(zip.data, zip.len, "m", &good, NULL), RV_OK);
        for (size_t bit = 0; bit < 8 * zip.len; bit++) {
            rvi_buf out = {0};
            zip.data[bit / 8] = (char)(zip.data[bit / 8] ^ (1 << bit % 8));
            if (extract(zip.data, zip.len, "m", &out, NULL) == RV_OK) {
                assert_int_equal(out.len, good.len);
                assert_memory_equal(out.data, good.data, good.len);
            }
            zip.data[bit / 8] = (char)(zip.data[bit / 8] ^ (1 << bit % 8));
            rvi_buf_deinit(&out);
        }
        rvi_buf_deinit(&zip);
        rvi_buf_deinit(&good);
    }
}

static void test_random_damage(void **state)
{
    (void)state;
    static const uint8_t extremes[] = {0, 1, 0x7F, 0x80, 0xFE, 0xFF};
    rvi_rng rng = {.state = 5};
    for (int round = 0; round < 40000; round++) {
        rvi_buf zip = {0}, out = {.max = 1 << 20};
        make_sample(&zip, (unsigned)round % 8);
        for (uint64_t n = 1 + rvi_rng_u64(&rng) % 6; n > 0; n--) {
            size_t at = rvi_rng_u64(&rng) % zip.len, run = 1 + rvi_rng_u64(&rng) % 8;
            uint8_t value = (uint8_t)rvi_rng_u64(&rng);
            if (rvi_rng_u64(&rng) % 2) value = extremes[value % sizeof extremes];
            for (size_t i = at; i < at + run && i < zip.len; i++) zip.data[i] = (char)value;
        }
        rv_error err = {0};
        rv_status st = extract(zip.data, zip.len, "m", &out, &err);
        assert_true(st == RV_OK || (err.code == st && err.text[0]));
        rvi_buf_deinit(&zip);
        rvi_buf_deinit(&out);
    }
}

static rv_status refuse(void *ctx, const uint8_t *bytes, size_t n, rv_error *err)
{
    (void)bytes;
    *(size_t *)ctx += n;
    return rvi_error(err, RV_E_IO, "enough");
}

/* The receiver's refusal ends the work at once and is what the caller sees. */
static void test_sink_refuses(void **state)
{
    (void)state;
    for (int deflate = 0; deflate < 2; deflate++) {
        zip_member m = {.name = "m", .bytes = big, .len = BIG, .deflate = deflate};
        rvi_buf zip = {0};
        rv_error err = {0};
        assert_true(zip_make(&zip, &m, 1, NULL));
        rvi_blob blob;
        rvi_wheel_member found;
        size_t taken = 0;
        rvi_blob_from_memory(&blob, zip.data, zip.len);
        assert_int_equal(rvi_wheel_find(&found, &blob, "m", NULL), RV_OK);
        assert_int_equal(rvi_wheel_unpack(&found, refuse, &taken, &err), RV_E_IO);
        assert_string_equal(err.text, "enough");
        assert_true(taken > 0 && taken < BIG);
        rvi_buf_deinit(&zip);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads),        cmocka_unit_test(test_refuses),
        cmocka_unit_test(test_name_twice),   cmocka_unit_test(test_not_a_zip),
        cmocka_unit_test(test_bomb),         cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_flipped_bits), cmocka_unit_test(test_random_damage),
        cmocka_unit_test(test_sink_refuses),
    };
    return cmocka_run_group_tests_name("wheel", tests, fill_big, NULL);
}
