/* Decoders and encoders of every storage type against vectors made by the `gguf` Python package
 * (tools/make_quant_vectors.py), and the 16-bit floats against their definition.
 *
 *     test_quant [VECTORS] */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/blob.h"
#include "base/cursor.h"
#include "formats/qtypes.h"

static const char *vectors_path = "tests/formats/data/quant_vectors.bin";

static uint32_t bits_of(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static float float_of(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* ---- the table ---- */

static void test_table(void **state)
{
    (void)state;
    for (int t = 0; t < RVI_QTYPE_COUNT; t++) {
        assert_int_equal(rvi_qtype_from_gguf(rvi_qtypes[t].gguf_id), t);
        assert_true(rvi_qtypes[t].block_weights > 0 && rvi_qtypes[t].block_bytes > 0);
    }
    assert_int_equal(rvi_qtype_from_gguf(4), RVI_QTYPE_COUNT); /* a type that was withdrawn */
    assert_int_equal(rvi_qtype_from_gguf(UINT32_MAX), RVI_QTYPE_COUNT);
    assert_int_equal(rvi_qtype_row_bytes(RVI_F32, 10), 40);
    assert_int_equal(rvi_qtype_row_bytes(RVI_Q4_0, 64), 36);
    assert_int_equal(rvi_qtype_row_bytes(RVI_Q6_K, 512), 420);
    assert_string_equal(rvi_qtypes[RVI_Q4_K].name, "q4_k");
}

/* ---- 16-bit floats ---- */

/* The value of a finite half, from the definition of the format. */
static double half_value(unsigned h)
{
    int exponent = (int)(h >> 10 & 31), mantissa = (int)(h & 1023);
    double v = exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24);
    return h & 0x8000 ? -v : v;
}

static void test_f16_all(void **state)
{
    (void)state;
    for (unsigned h = 0; h < 0x10000; h++) {
        float f = rvi_f16_to_f32((rvi_f16)h);
        unsigned magnitude = h & 0x7FFF;
        assert_int_equal(signbit(f) != 0, h >> 15);
        if (magnitude > 0x7C00) {
            assert_true(isnan(f));
            assert_int_equal(rvi_f32_to_f16(f), h | 0x200); /* sign and payload kept, made quiet */
            continue;
        }
        if (magnitude == 0x7C00)
            assert_true(isinf(f));
        else
            assert_true((double)f == half_value(h));
        assert_int_equal(rvi_f32_to_f16(f), h);
    }
}

/* Between every two neighbours: just below, at, and just above the middle. */
static void test_f16_rounding(void **state)
{
    (void)state;
    for (unsigned h = 0; h < 0x7C00; h++) {
        double up = h == 0x7BFF ? 65536.0 : half_value(h + 1);
        float middle = (float)((half_value(h) + up) / 2); /* exact: one bit more than a half has */
        unsigned even = h & 1 ? h + 1 : h;
        assert_int_equal(rvi_f32_to_f16(nextafterf(middle, 0.0f)), h);
        assert_int_equal(rvi_f32_to_f16(middle), even);
        assert_int_equal(rvi_f32_to_f16(nextafterf(middle, INFINITY)), h + 1);
        assert_int_equal(rvi_f32_to_f16(-middle), even | 0x8000);
    }
    assert_int_equal(rvi_f32_to_f16(0x1p16f), 0x7C00);
    assert_int_equal(rvi_f32_to_f16(3.4e38f), 0x7C00);
    assert_int_equal(rvi_f32_to_f16(-INFINITY), 0xFC00);
    assert_int_equal(rvi_f32_to_f16(0x1p-25f), 0);
    assert_int_equal(rvi_f32_to_f16(float_of(1)), 0);
    assert_int_equal(rvi_f32_to_f16(-0.0f), 0x8000);
    assert_int_equal(rvi_f32_to_f16(float_of(0x7F800001)),
                     0x7E00); /* payload below the bits kept: still NaN */
}

static void test_bf16(void **state)
{
    (void)state;
    for (unsigned h = 0; h < 0x10000; h++) {
        float f = rvi_bf16_to_f32((rvi_bf16)h);
        assert_int_equal(bits_of(f), h << 16);
        unsigned magnitude = h & 0x7FFF;
        assert_int_equal(rvi_f32_to_bf16(float_of(h << 16)), magnitude > 0x7F80 ? h | 0x40 : h);
        if (magnitude >= 0x7F80) continue;
        unsigned even = h & 1 ? h + 1 : h; /* 0x7F7F + 1 is infinity */
        assert_int_equal(rvi_f32_to_bf16(float_of(h << 16 | 0x7FFF)), h);
        assert_int_equal(rvi_f32_to_bf16(float_of(h << 16 | 0x8000)), even);
        assert_int_equal(rvi_f32_to_bf16(float_of(h << 16 | 0x8001)), h + 1);
    }
    assert_int_equal(rvi_f32_to_bf16(float_of(0x7F800001)), 0x7FC0); /* must not become infinity */
    assert_int_equal(rvi_f32_to_bf16(float_of(0xFFFFFFFF)), 0xFFFF);
}

/* ---- blocks ---- */

static void compare_floats(rvi_qtype type, const float *got, const uint8_t *want_bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float want;
        memcpy(&want, want_bytes + 4 * i, sizeof want);
        if (isnan(want) ? isnan(got[i]) : bits_of(want) == bits_of(got[i])) continue;
        fail_msg("%s: weight %zu: %a (%08x), expected %a (%08x)", rvi_qtypes[type].name, i,
                 (double)got[i], bits_of(got[i]), (double)want, bits_of(want));
    }
}

static bool half_is_nan(const uint8_t *p)
{
    return ((p[1] & 0x7F) << 8 | p[0]) > 0x7C00;
}

/* Blocks must have the same bytes, but for the payload of a NaN scale. */
static void compare_blocks(rvi_qtype type, const uint8_t *got, const uint8_t *want, size_t n_blocks)
{
    size_t size = rvi_qtypes[type].block_bytes;
    size_t n_halves = type == RVI_Q4_1 || type == RVI_Q5_1  ? 2
                      : type == RVI_F32 || type == RVI_BF16 ? 0
                                                            : 1;
    for (size_t b = 0; b < n_blocks; b++, got += size, want += size) {
        size_t at = 0;
        for (; at < 2 * n_halves; at += 2)
            if (memcmp(got + at, want + at, 2) &&
                !(half_is_nan(got + at) && half_is_nan(want + at)))
                break;
        if (at == 2 * n_halves && !memcmp(got + at, want + at, size - at)) continue;
        for (at = 0; at < size && got[at] == want[at]; at++) {
        }
        fail_msg("%s: block %zu, byte %zu: %02x, expected %02x", rvi_qtypes[type].name, b, at,
                 got[at], want[at]);
    }
}

/* Decodes from every alignment 0..3, with guard floats around the result. */
static void check_decoder(rvi_qtype type, const uint8_t *blocks, size_t n_bytes,
                          const uint8_t *floats, size_t n)
{
    uint8_t *src = malloc(n_bytes + 3);
    float *dst = malloc((n + 2) * sizeof *dst);
    assert_non_null(src);
    assert_non_null(dst);
    for (size_t shift = 0; shift < 4; shift++) {
        memcpy(src + shift, blocks, n_bytes);
        for (size_t i = 0; i < n + 2; i++) dst[i] = 12345.0f;
        rvi_dequantize(type, src + shift, dst + 1, n);
        compare_floats(type, dst + 1, floats, n);
        assert_true(dst[0] == 12345.0f && dst[n + 1] == 12345.0f);
    }
    free(src);
    free(dst);
}

static void check_encoder(rvi_qtype type, const float *floats, size_t n, const uint8_t *blocks,
                          size_t n_bytes)
{
    uint8_t *dst = malloc(n_bytes + 3);
    assert_non_null(dst);
    for (size_t shift = 0; shift < 2; shift++) {
        memset(dst, 0xA5, n_bytes + 3);
        assert_true(rvi_quantize(type, floats, dst + shift, n));
        compare_blocks(type, dst + shift, blocks, n / rvi_qtypes[type].block_weights);
        assert_true(dst[n_bytes + shift] == 0xA5 && dst[n_bytes + 2] == 0xA5 &&
                    (!shift || dst[0] == 0xA5));
    }
    free(dst);
}

static void test_vectors(void **state)
{
    (void)state;
    rvi_blob blob;
    rv_error err = {0};
    if (rvi_blob_open(&blob, vectors_path, &err)) fail_msg("%s", err.text);
    rvi_cursor c = {.data = blob.data, .len = blob.len};
    float *floats = NULL;
    size_t n_floats = 0;
    int decoded[RVI_QTYPE_COUNT] = {0}, encoded[RVI_QTYPE_COUNT] = {0};
    while (c.pos < c.len) {
        int what = rvi_cursor_u8(&c);
        rvi_qtype type = rvi_qtype_from_gguf(rvi_cursor_u8(&c));
        rvi_cursor_u16(&c);
        size_t n = rvi_cursor_u32(&c);
        assert_true(type != RVI_QTYPE_COUNT);
        size_t n_bytes = rvi_qtype_row_bytes(type, n);
        const uint8_t *blocks = what == 'F' ? NULL : rvi_cursor_take(&c, n_bytes);
        const uint8_t *values = what == 'E' ? NULL : rvi_cursor_take(&c, 4 * n);
        assert_false(c.failed);
        if (what == 'D') {
            check_decoder(type, blocks, n_bytes, values, n);
            decoded[type]++;
        } else if (what == 'F') {
            free(floats);
            floats = malloc(4 * n);
            assert_non_null(floats);
            memcpy(floats, values, 4 * n);
            n_floats = n;
        } else {
            assert_int_equal(what, 'E');
            assert_int_equal(n, n_floats);
            check_encoder(type, floats, n, blocks, n_bytes);
            encoded[type]++;
        }
    }
    free(floats);
    rvi_blob_close(&blob);
    for (int t = 0; t < RVI_QTYPE_COUNT; t++) {
        uint8_t block[256] = {0};
        float zeros[256] = {0};
        assert_true(decoded[t] > 0);
        assert_int_equal(encoded[t] > 0,
                         rvi_quantize((rvi_qtype)t, zeros, block, rvi_qtypes[t].block_weights));
    }
}

/* No weights: nothing is read or written. */
static void test_empty(void **state)
{
    (void)state;
    for (int t = 0; t < RVI_QTYPE_COUNT; t++) {
        rvi_dequantize((rvi_qtype)t, NULL, NULL, 0);
        rvi_quantize((rvi_qtype)t, NULL, NULL, 0);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1) vectors_path = argv[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),        cmocka_unit_test(test_f16_all),
        cmocka_unit_test(test_f16_rounding), cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_vectors),      cmocka_unit_test(test_empty),
    };
    return cmocka_run_group_tests_name("quant", tests, NULL, NULL);
}
