#include "base/fingerprint.h"

#include <string.h>

#include "base/rng.h"

enum { WORDS = RVI_FINGERPRINT_WORDS, ROW = 8 * WORDS };

static uint64_t load(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    v = __builtin_bswap64(v);
#endif
    return v;
}

static inline void add_row(uint64_t lanes[WORDS], const uint8_t *row)
{
#pragma GCC unroll 8
    for (int i = 0; i < WORDS; i++) {
        uint64_t v = (lanes[i] ^ load(row + 8 * i)) * 0x9E3779B97F4A7C15u;
        lanes[i] = v << 29 | v >> 35;
    }
}

void rvi_fingerprint(const void *bytes, size_t len, uint64_t out[WORDS])
{
    const uint8_t *p = bytes;
    uint64_t lanes[WORDS];
    rvi_rng start = {1};
    for (int i = 0; i < WORDS; i++) lanes[i] = rvi_rng_u64(&start);
    for (; len >= ROW; p += ROW, len -= ROW) add_row(lanes, p);
    if (len) {
        uint8_t last[ROW] = {0};
        memcpy(last, p, len);
        add_row(lanes, last);
    }
    memcpy(out, lanes, sizeof lanes);
}

void rvi_fingerprint_add(rvi_sha256 *h, const void *bytes, size_t len)
{
    uint64_t print[RVI_FINGERPRINT_WORDS];
    rvi_fingerprint(bytes, len, print);
    rvi_sha256_add_u64(h, len);
    for (int i = 0; i < RVI_FINGERPRINT_WORDS; i++) rvi_sha256_add_u64(h, print[i]);
}
