/* unpack.h - rows of quantized weights, as files have them, taken apart into bytes and scales. Inside the kernels
 * room only.
 *
 * Whatever the type, weight k of block b of 32 of row r then reads
 *     d[b][r] * scale[b][r] * (q[b][r][k] - offset)     with the scale of its half of the block, where there are any
 *         + m[b][r]   or   - m[b][r] * min[b][r]        by the type's form of minimum
 * (or the value that rvi_iq4_values has for q), so packing and dequantizing need one loop for all types. Written with
 * the compiler's generic vectors, so that one text serves all instruction sets. */
#ifndef RVI_KERNELS_UNPACK_H
#define RVI_KERNELS_UNPACK_H

#include <stdalign.h>
#include <stdbool.h>
#include <string.h>

#include "base/compat.h"
#include "kernels/panels.h"
#include "kernels/simd.h"

enum { CHUNK = 256, CHUNK_BLOCKS = CHUNK / 32 };

/* A pair of int16, one for the first 16 weights of a block and one for the last 16, as the products take them. */
typedef uint32_t pair;

static ALWAYS_INLINE pair pair_of(int first, int last)
{
    return (uint32_t)(uint16_t)first | (uint32_t)last << 16;
}

static ALWAYS_INLINE int pair_part(pair p, int half)
{
    return (int16_t)(uint16_t)(p >> (16 * half));
}

/* Up to 256 weights of up to 16 rows. scale, min and m are set only for the types that have them. */
typedef struct rows16 {
    alignas(64) uint8_t q[CHUNK_BLOCKS][RVI_PANEL][32];
    rvi_f16 d[CHUNK_BLOCKS][RVI_PANEL];
    rvi_f16 m[CHUNK_BLOCKS][RVI_PANEL];
    pair scale[CHUNK_BLOCKS][RVI_PANEL];
    pair min[CHUNK_BLOCKS][RVI_PANEL];
} rows16;

typedef uint8_t bytes16 __attribute__((vector_size(16)));
typedef uint8_t bytes32 __attribute__((vector_size(32)));

static ALWAYS_INLINE bytes16 load16(const uint8_t *p)
{
    bytes16 v;
    memcpy(&v, p, sizeof v);
    return v;
}

static ALWAYS_INLINE bytes32 load32(const uint8_t *p)
{
    bytes32 v;
    memcpy(&v, p, sizeof v);
    return v;
}

static ALWAYS_INLINE void store32(uint8_t *p, bytes32 v)
{
    memcpy(p, &v, sizeof v);
}

static ALWAYS_INLINE rvi_f16 read_f16(const uint8_t *p)
{
    rvi_f16 h;
    memcpy(&h, p, sizeof h);
    return h;
}

/* ---- types of 32 weights a block: n blocks of row r ---- */

/* The low nibbles of 16 bytes, then the high nibbles. */
static ALWAYS_INLINE bytes32 nibbles(const uint8_t *qs)
{
    bytes16 v = load16(qs), low = v & 15, high = v >> 4;
    return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20,
                                   21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31);
}

/* 16 where bit k of the four bytes is set, else 0. */
static ALWAYS_INLINE bytes32 fifth_bits(const uint8_t *qh)
{
    const bytes32 bit = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128,
                         1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    typedef uint64_t longs4 __attribute__((vector_size(32)));
    const uint64_t each = 0x0101010101010101u;
    longs4 spread = {qh[0] * each, qh[1] * each, qh[2] * each, qh[3] * each};
    return (bytes32)(((bytes32)spread & bit) == bit) & 16;
}

static ALWAYS_INLINE void unpack_Q4_0(rows16 *p, int r, const uint8_t *src, int n)
{
    for (int b = 0; b < n; b++, src += sizeof(rvi_block_q4_0)) {
        p->d[b][r] = read_f16(src + offsetof(rvi_block_q4_0, d));
        store32(p->q[b][r], nibbles(src + offsetof(rvi_block_q4_0, qs)));
    }
}

static ALWAYS_INLINE void unpack_Q4_1(rows16 *p, int r, const uint8_t *src, int n)
{
    for (int b = 0; b < n; b++, src += sizeof(rvi_block_q4_1)) {
        p->d[b][r] = read_f16(src + offsetof(rvi_block_q4_1, d));
        p->m[b][r] = read_f16(src + offsetof(rvi_block_q4_1, m));
        store32(p->q[b][r], nibbles(src + offsetof(rvi_block_q4_1, qs)));
    }
}

static ALWAYS_INLINE void unpack_Q5_0(rows16 *p, int r, const uint8_t *src, int n)
{
    for (int b = 0; b < n; b++, src += sizeof(rvi_block_q5_0)) {
        bytes32 high = fifth_bits(src + offsetof(rvi_block_q5_0, qh));
        p->d[b][r] = read_f16(src + offsetof(rvi_block_q5_0, d));
        store32(p->q[b][r], nibbles(src + offsetof(rvi_block_q5_0, qs)) | high);
    }
}

static ALWAYS_INLINE void unpack_Q5_1(rows16 *p, int r, const uint8_t *src, int n)
{
    for (int b = 0; b < n; b++, src += sizeof(rvi_block_q5_1)) {
        bytes32 high = fifth_bits(src + offsetof(rvi_block_q5_1, qh));
        p->d[b][r] = read_f16(src + offsetof(rvi_block_q5_1, d));
        p->m[b][r] = read_f16(src + offsetof(rvi_block_q5_1, m));
        store32(p->q[b][r], nibbles(src + offsetof(rvi_block_q5_1, qs)) | high);
    }
}

static ALWAYS_INLINE void unpack_Q8_0(rows16 *p, int r, const uint8_t *src, int n)
{
    for (int b = 0; b < n; b++, src += sizeof(rvi_block_q8_0)) {
        p->d[b][r] = read_f16(src + offsetof(rvi_block_q8_0, d));
        store32(p->q[b][r], load32(src + offsetof(rvi_block_q8_0, qs)) ^ 128);
    }
}

static ALWAYS_INLINE void unpack_IQ4_NL(rows16 *p, int r, const uint8_t *src, int n)
{
    for (int b = 0; b < n; b++, src += sizeof(rvi_block_iq4_nl)) {
        p->d[b][r] = read_f16(src + offsetof(rvi_block_iq4_nl, d));
        store32(p->q[b][r], nibbles(src + offsetof(rvi_block_iq4_nl, qs)));
    }
}

/* ---- types of 256 weights a block: one block of row r (n is CHUNK_BLOCKS) ---- */

static ALWAYS_INLINE void set_d(rows16 *p, int r, rvi_f16 d)
{
    for (int b = 0; b < CHUNK_BLOCKS; b++) p->d[b][r] = d;
}

static ALWAYS_INLINE void set_m(rows16 *p, int r, rvi_f16 m)
{
    for (int b = 0; b < CHUNK_BLOCKS; b++) p->m[b][r] = m;
}

static ALWAYS_INLINE void unpack_Q2_K(rows16 *p, int r, const uint8_t *src, int n)
{
    (void)n;
    const uint8_t *scales = src + offsetof(rvi_block_q2_k, scales);
    set_d(p, r, read_f16(src + offsetof(rvi_block_q2_k, d)));
    set_m(p, r, read_f16(src + offsetof(rvi_block_q2_k, dmin)));
    for (int b = 0; b < CHUNK_BLOCKS; b++) {
        p->scale[b][r] = pair_of(scales[2 * b] & 15, scales[2 * b + 1] & 15);
        p->min[b][r] = pair_of(scales[2 * b] >> 4, scales[2 * b + 1] >> 4);
    }
    for (int half = 0; half < 2; half++) {
        bytes32 v = load32(src + offsetof(rvi_block_q2_k, qs) + 32 * half);
        for (int j = 0; j < 4; j++, v >>= 2) store32(p->q[4 * half + j][r], v & 3);
    }
}

/* Four scales at a time: bytes of w0 and w1 hold low nibbles, bytes of w2 four pairs of high bits. */
static ALWAYS_INLINE void unpack_Q3_K(rows16 *p, int r, const uint8_t *src, int n)
{
    (void)n;
    uint32_t w[3], joined[4];
    uint8_t scales[16];
    memcpy(w, src + offsetof(rvi_block_q3_k, scales), sizeof w);
    for (int i = 0; i < 4; i++)
        joined[i] = (w[i % 2] >> (i / 2 * 4) & 0x0f0f0f0fu) | (w[2] >> (2 * i) & 0x03030303u) << 4;
    memcpy(scales, joined, sizeof scales);
    for (int b = 0; b < CHUNK_BLOCKS; b++) p->scale[b][r] = pair_of(scales[2 * b] - 32, scales[2 * b + 1] - 32);
    set_d(p, r, read_f16(src + offsetof(rvi_block_q3_k, d)));

    bytes32 high = load32(src + offsetof(rvi_block_q3_k, hmask));
    for (int half = 0; half < 2; half++) {
        bytes32 v = load32(src + offsetof(rvi_block_q3_k, qs) + 32 * half);
        for (int j = 0; j < 4; j++, v >>= 2, high >>= 1) store32(p->q[4 * half + j][r], (v & 3) | (high & 1) << 2);
    }
}

/* The scales and minima of Q4_K and Q5_K, four at a time. */
static ALWAYS_INLINE void set_six_bit_scales(rows16 *p, int r, const uint8_t *src)
{
    uint32_t w[3], joined[4];
    uint8_t s[16]; /* 8 scales, 8 minima */
    memcpy(w, src, sizeof w);
    for (int i = 0; i < 2; i++) {
        joined[2 * i] = w[i] & 0x3f3f3f3fu;
        joined[2 * i + 1] = (w[2] >> (4 * i) & 0x0f0f0f0fu) | (w[i] >> 6 & 0x03030303u) << 4;
    }
    memcpy(s, joined, sizeof s);
    for (int b = 0; b < CHUNK_BLOCKS; b++) {
        p->scale[b][r] = pair_of(s[b], s[b]);
        p->min[b][r] = pair_of(s[8 + b], s[8 + b]);
    }
}

static ALWAYS_INLINE void unpack_Q4_K(rows16 *p, int r, const uint8_t *src, int n)
{
    (void)n;
    set_d(p, r, read_f16(src + offsetof(rvi_block_q4_k, d)));
    set_m(p, r, read_f16(src + offsetof(rvi_block_q4_k, dmin)));
    set_six_bit_scales(p, r, src + offsetof(rvi_block_q4_k, scales));
    for (int j = 0; j < 4; j++) {
        bytes32 v = load32(src + offsetof(rvi_block_q4_k, qs) + 32 * j);
        store32(p->q[2 * j][r], v & 15);
        store32(p->q[2 * j + 1][r], v >> 4);
    }
}

static ALWAYS_INLINE void unpack_Q5_K(rows16 *p, int r, const uint8_t *src, int n)
{
    (void)n;
    set_d(p, r, read_f16(src + offsetof(rvi_block_q5_k, d)));
    set_m(p, r, read_f16(src + offsetof(rvi_block_q5_k, dmin)));
    set_six_bit_scales(p, r, src + offsetof(rvi_block_q5_k, scales));
    bytes32 high = load32(src + offsetof(rvi_block_q5_k, qh));
    for (int j = 0; j < 4; j++, high >>= 2) {
        bytes32 v = load32(src + offsetof(rvi_block_q5_k, qs) + 32 * j);
        store32(p->q[2 * j][r], (v & 15) | (high & 1) << 4);
        store32(p->q[2 * j + 1][r], v >> 4 | (high & 2) << 3);
    }
}

static ALWAYS_INLINE void unpack_Q6_K(rows16 *p, int r, const uint8_t *src, int n)
{
    (void)n;
    int8_t scales[16];
    memcpy(scales, src + offsetof(rvi_block_q6_k, scales), sizeof scales);
    for (int b = 0; b < CHUNK_BLOCKS; b++) p->scale[b][r] = pair_of(scales[2 * b], scales[2 * b + 1]);
    set_d(p, r, read_f16(src + offsetof(rvi_block_q6_k, d)));
    for (int half = 0; half < 2; half++) {
        const uint8_t *ql = src + offsetof(rvi_block_q6_k, ql) + 64 * half;
        bytes32 high = load32(src + offsetof(rvi_block_q6_k, qh) + 32 * half);
        bytes32 v0 = load32(ql), v1 = load32(ql + 32);
        store32(p->q[4 * half][r], (v0 & 15) | (high & 3) << 4);
        store32(p->q[4 * half + 1][r], (v1 & 15) | (high & 12) << 2);
        store32(p->q[4 * half + 2][r], v0 >> 4 | (high & 48));
        store32(p->q[4 * half + 3][r], v1 >> 4 | (high >> 6) << 4);
    }
}

static ALWAYS_INLINE void unpack_IQ4_XS(rows16 *p, int r, const uint8_t *src, int n)
{
    (void)n;
    rvi_block_iq4_xs head;
    memcpy(&head, src, offsetof(rvi_block_iq4_xs, qs));
    set_d(p, r, head.d);
    for (int b = 0; b < CHUNK_BLOCKS; b++) {
        int low = head.scales_l[b / 2] >> (b % 2 * 4) & 15, high = head.scales_h >> (2 * b) & 3;
        p->scale[b][r] = pair_of(high * 16 + low - 32, high * 16 + low - 32);
        store32(p->q[b][r], nibbles(src + offsetof(rvi_block_iq4_xs, qs) + 16 * b));
    }
}

typedef void (*unpack_fn)(rows16 *p, int r, const uint8_t *src, int n);

/* Weights from `start` (a multiple of CHUNK) of n_rows rows, at w and w_stride bytes apart, n_blocks blocks of 32. */
static ALWAYS_INLINE void unpack_rows(rows16 *p, unpack_fn unpack, traits t, const uint8_t *w, size_t w_stride,
                                      int n_rows, size_t start, int n_blocks)
{
    for (int r = 0; r < n_rows; r++)
        unpack(p, r, w + (size_t)r * w_stride + start / t.block_weights * t.block_bytes, n_blocks);
}

static ALWAYS_INLINE int chunk_blocks(size_t n, size_t start)
{
    return n - start < CHUNK ? (int)((n - start) / 32) : CHUNK_BLOCKS;
}

#endif
