/* sha256.h - SHA-256 (FIPS 180-4) of a stream of bytes: identifies models, adapters and logs by
 * their contents. Plain C, about 250 MB/s: for files and records, not for inner loops. */
#ifndef RVI_BASE_SHA256_H
#define RVI_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

enum {
    RVI_SHA256_LEN = 32,
    RVI_SHA256_HEX = 65, /* 64 lower-case hexadecimal digits and the 0 byte */
};

typedef struct rvi_sha256 {
    uint32_t state[8];
    uint64_t n_bytes;
    uint8_t block[64]; /* the n_bytes % 64 bytes that wait for a whole block */
} rvi_sha256;

void rvi_sha256_init(rvi_sha256 *h);
void rvi_sha256_add(rvi_sha256 *h, const void *bytes, size_t len); /* bytes may be NULL with 0 */
/* Eight bytes, lowest first: lengths and counts between fields, so that no two sequences of fields
 * make the same stream. */
void rvi_sha256_add_u64(rvi_sha256 *h, uint64_t v);
void rvi_sha256_end(rvi_sha256 *h, uint8_t out[RVI_SHA256_LEN]); /* h needs a new init then */
void rvi_sha256_end_hex(rvi_sha256 *h, char out[RVI_SHA256_HEX]);

#endif
