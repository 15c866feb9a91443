#include "base/sha256.h"

#include <string.h>

/* The first 32 bits of the fractional parts of the cube roots of the first 64 primes. */
static const uint32_t round_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotate(uint32_t v, unsigned n)
{
    return v >> n | v << (32 - n);
}

static void add_block(uint32_t state[8], const uint8_t *p)
{
    uint32_t w[64];
    for (int i = 0; i < 16; i++, p += 4)
        w[i] = (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
    for (int i = 16; i < 64; i++) {
        uint32_t s0 = rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ w[i - 15] >> 3,
                 s1 = rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ w[i - 2] >> 10;
        w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3], e = state[4], f = state[5],
             g = state[6], h = state[7];
    for (int i = 0; i < 64; i++) {
        uint32_t s1 = rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25),
                 t1 = h + s1 + ((e & f) ^ (~e & g)) + round_constants[i] + w[i],
                 s0 = rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22),
                 t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
        h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
    }
    state[0] += a, state[1] += b, state[2] += c, state[3] += d;
    state[4] += e, state[5] += f, state[6] += g, state[7] += h;
}

void rvi_sha256_init(rvi_sha256 *h)
{
    /* of the square roots of the first 8 primes */
    static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memcpy(h->state, start, sizeof start);
    h->n_bytes = 0;
}

void rvi_sha256_add(rvi_sha256 *h, const void *bytes, size_t len)
{
    const uint8_t *p = bytes;
    size_t held = (size_t)(h->n_bytes % sizeof h->block);
    h->n_bytes += len;
    if (held && len) {
        size_t n = sizeof h->block - held < len ? sizeof h->block - held : len;
        memcpy(h->block + held, p, n);
        p += n, len -= n;
        if (held + n < sizeof h->block) return;
        add_block(h->state, h->block);
    }
    for (; len >= sizeof h->block; p += sizeof h->block, len -= sizeof h->block)
        add_block(h->state, p);
    if (len) memcpy(h->block, p, len);
}

void rvi_sha256_add_u64(rvi_sha256 *h, uint64_t v)
{
    uint8_t bytes[8];
    for (unsigned i = 0; i < 8; i++) bytes[i] = (uint8_t)(v >> (8 * i));
    rvi_sha256_add(h, bytes, sizeof bytes);
}

void rvi_sha256_end(rvi_sha256 *h, uint8_t out[RVI_SHA256_LEN])
{
    static const uint8_t padding[64] = {0x80};
    uint64_t n_bits = h->n_bytes * 8;
    size_t held = (size_t)(h->n_bytes % 64);
    rvi_sha256_add(h, padding, held < 56 ? 56 - held : 120 - held);
    uint8_t length[8];
    for (unsigned i = 0; i < 8; i++) length[i] = (uint8_t)(n_bits >> (56 - 8 * i));
    rvi_sha256_add(h, length, sizeof length);
    for (unsigned i = 0; i < RVI_SHA256_LEN; i++)
        out[i] = (uint8_t)(h->state[i / 4] >> (24 - 8 * (i % 4)));
}

void rvi_sha256_end_hex(rvi_sha256 *h, char out[RVI_SHA256_HEX])
{
    uint8_t digest[RVI_SHA256_LEN];
    rvi_sha256_end(h, digest);
    for (unsigned i = 0; i < RVI_SHA256_LEN; i++) {
        out[2 * i] = "0123456789abcdef"[digest[i] >> 4];
        out[2 * i + 1] = "0123456789abcdef"[digest[i] & 15];
    }
    out[RVI_SHA256_HEX - 1] = 0;
}
