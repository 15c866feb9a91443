/* Fingerprints: the definition written out, every bit counts, at any alignment. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/fingerprint.h"
#include "base/rng.h"

enum { N = 200 };

static void by_definition(const uint8_t *p, size_t len, uint64_t lane[8])
{
    rvi_rng r = {1};
    for (int i = 0; i < 8; i++) lane[i] = rvi_rng_u64(&r);
    for (size_t row = 0; row < len; row += 64)
        for (size_t i = 0; i < 8; i++) {
            uint64_t word = 0;
            for (size_t k = 0; k < 8; k++) {
                size_t at = row + 8 * i + k;
                if (at < len) word |= (uint64_t)p[at] << (8 * k);
            }
            lane[i] = (lane[i] ^ word) * 0x9E3779B97F4A7C15u;
            lane[i] = lane[i] << 29 | lane[i] >> 35;
        }
}

static void definition(void **state)
{
    (void)state;
    uint8_t bytes[N + 8];
    for (size_t shift = 0; shift < 8; shift++)
        for (size_t n = 0; n <= N; n++) {
            uint64_t want[8], got[8];
            for (size_t i = 0; i < n; i++) bytes[shift + i] = (uint8_t)(i * 31 + n);
            by_definition(bytes + shift, n, want);
            rvi_fingerprint(bytes + shift, n, got);
            assert_memory_equal(got, want, sizeof got);
        }
}

static void every_bit(void **state)
{
    (void)state;
    uint8_t bytes[N] = {0};
    uint64_t first[8], other[8];
    rvi_fingerprint(bytes, N, first);
    for (size_t i = 0; i < N * 8; i++) {
        bytes[i / 8] ^= (uint8_t)(1u << i % 8);
        rvi_fingerprint(bytes, N, other);
        assert_memory_not_equal(first, other, sizeof first);
        bytes[i / 8] ^= (uint8_t)(1u << i % 8);
    }
    /* words that change places */
    bytes[0] = 1;
    bytes[64] = 2;
    rvi_fingerprint(bytes, N, first);
    bytes[0] = 2;
    bytes[64] = 1;
    rvi_fingerprint(bytes, N, other);
    assert_memory_not_equal(first, other, sizeof first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(definition), cmocka_unit_test(every_bit)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
