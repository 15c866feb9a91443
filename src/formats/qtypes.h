/* qtypes.h - how weights are stored: one row per storage type; enum, names and sizes all come from
 * it.
 *
 * Block layouts are those of GGUF files (little-endian, packed, f16 scales). A row of a tensor is a
 * whole number of blocks. Adding a type: a struct, a row in RVI_QTYPES, its decoder (and encoder)
 * in quant.c. */
#ifndef RVI_FORMATS_QTYPES_H
#define RVI_FORMATS_QTYPES_H

#include <stddef.h>
#include <stdint.h>

typedef uint16_t rvi_f16;  /* IEEE half, as bits */
typedef uint16_t rvi_bf16; /* upper half of a float, as bits */

/* 32 weights a block: w = d * (q - 8) | d * q + m | d * (q - 16) | d * q + m | d * q */
typedef struct {
    rvi_f16 d;
    uint8_t qs[16];
} rvi_block_q4_0; /* low nibbles: 0..15, high: 16..31 */
typedef struct {
    rvi_f16 d, m;
    uint8_t qs[16];
} rvi_block_q4_1;
typedef struct {
    rvi_f16 d;
    uint8_t qh[4];
    uint8_t qs[16];
} rvi_block_q5_0; /* qh: fifth bits */
typedef struct {
    rvi_f16 d, m;
    uint8_t qh[4];
    uint8_t qs[16];
} rvi_block_q5_1;
typedef struct {
    rvi_f16 d;
    int8_t qs[32];
} rvi_block_q8_0;
typedef struct {
    rvi_f16 d;
    uint8_t qs[16];
} rvi_block_iq4_nl; /* w = d * table[q] */

/* 256 weights a block */
typedef struct {
    uint8_t scales[16];
    uint8_t qs[64];
    rvi_f16 d, dmin;
} rvi_block_q2_k;
typedef struct {
    uint8_t hmask[32];
    uint8_t qs[64];
    uint8_t scales[12];
    rvi_f16 d;
} rvi_block_q3_k;
typedef struct {
    rvi_f16 d, dmin;
    uint8_t scales[12];
    uint8_t qs[128];
} rvi_block_q4_k;
typedef struct {
    rvi_f16 d, dmin;
    uint8_t scales[12];
    uint8_t qh[32];
    uint8_t qs[128];
} rvi_block_q5_k;
typedef struct {
    uint8_t ql[128];
    uint8_t qh[64];
    int8_t scales[16];
    rvi_f16 d;
} rvi_block_q6_k;
typedef struct {
    rvi_f16 d;
    uint16_t scales_h;
    uint8_t scales_l[4];
    uint8_t qs[128];
} rvi_block_iq4_xs;

/* name, spelling, id in GGUF files, block struct, weights a block, bytes a block */
#define RVI_QTYPES(X)                                                                              \
    X(F32, "f32", 0, float, 1, 4)                                                                  \
    X(F16, "f16", 1, rvi_f16, 1, 2)                                                                \
    X(BF16, "bf16", 30, rvi_bf16, 1, 2)                                                            \
    X(Q4_0, "q4_0", 2, rvi_block_q4_0, 32, 18)                                                     \
    X(Q4_1, "q4_1", 3, rvi_block_q4_1, 32, 20)                                                     \
    X(Q5_0, "q5_0", 6, rvi_block_q5_0, 32, 22)                                                     \
    X(Q5_1, "q5_1", 7, rvi_block_q5_1, 32, 24)                                                     \
    X(Q8_0, "q8_0", 8, rvi_block_q8_0, 32, 34)                                                     \
    X(Q2_K, "q2_k", 10, rvi_block_q2_k, 256, 84)                                                   \
    X(Q3_K, "q3_k", 11, rvi_block_q3_k, 256, 110)                                                  \
    X(Q4_K, "q4_k", 12, rvi_block_q4_k, 256, 144)                                                  \
    X(Q5_K, "q5_k", 13, rvi_block_q5_k, 256, 176)                                                  \
    X(Q6_K, "q6_k", 14, rvi_block_q6_k, 256, 210)                                                  \
    X(IQ4_NL, "iq4_nl", 20, rvi_block_iq4_nl, 32, 18)                                              \
    X(IQ4_XS, "iq4_xs", 23, rvi_block_iq4_xs, 256, 136)

typedef enum rvi_qtype {
#define X(name, text, id, block, weights, bytes) RVI_##name,
    RVI_QTYPES(X)
#undef X
        RVI_QTYPE_COUNT
} rvi_qtype;

#define X(name, text, id, block, weights, bytes)                                                   \
    _Static_assert(sizeof(block) == (bytes), text " block size");
RVI_QTYPES(X)
#undef X

typedef struct rvi_qtype_info {
    const char *name;
    uint32_t gguf_id;
    uint32_t block_weights, block_bytes;
} rvi_qtype_info;

extern const rvi_qtype_info rvi_qtypes[RVI_QTYPE_COUNT];
extern const int8_t rvi_iq4_values[16]; /* the table of IQ4_NL and IQ4_XS */

/* The type with this GGUF id, or RVI_QTYPE_COUNT. */
rvi_qtype rvi_qtype_from_gguf(uint32_t id);

/* Bytes of a row of n weights; n must be a multiple of block_weights. */
static inline size_t rvi_qtype_row_bytes(rvi_qtype t, size_t n)
{
    return n / rvi_qtypes[t].block_weights * rvi_qtypes[t].block_bytes;
}

float rvi_f16_to_f32(rvi_f16 h);
rvi_f16 rvi_f32_to_f16(float f); /* round to nearest even; NaN stays NaN */
float rvi_bf16_to_f32(rvi_bf16 h);
rvi_bf16 rvi_f32_to_bf16(float f);

/* n weights (a multiple of the block) to floats: bit-equal to the `gguf` Python package. src needs
 * no alignment. */
void rvi_dequantize(rvi_qtype type, const void *src, float *dst, size_t n);

/* Floats to blocks, bit-equal to the `gguf` package: F32 F16 BF16 Q8_0 Q4_0 Q4_1 Q5_0 Q5_1. False
 * for the other types. Not defined by that package, and fixed here: the payload of a NaN scale; the
 * sign of a zero minimum (Q4_1, Q5_1) when the block has zeros of both signs: that of the first;
 * quants that are not finite before they are cut (a block with a NaN or an infinity, or a scale
 * without a finite inverse): 0, as the package gives on x86-64. */
int rvi_quantize(rvi_qtype type, const float *src, void *dst, size_t n);

#endif
