/* panels.h - how the vector rows keep quantized weights.
 *
 * 16 neighbouring outputs (rows of the matrix) form a panel; a kernel streams through it from its first byte to its
 * last. For each block of 32 inputs a panel has registers of 64 bytes in which 4 neighbouring bytes belong to one
 * output: register i holds inputs 4 i .. 4 i + 3 of all 16 outputs, i = 0 .. 7. So one instruction multiplies 4
 * inputs of 16 outputs by 4 activations, and the matrix units take the same bytes as a tile.
 *
 *     register i:   | output 0            | output 1            | ...  | output 15           |
 *                   | k  k+1  k+2  k+3    | k  k+1  k+2  k+3    |      | k  k+1  k+2  k+3    |    k = 4 i
 *
 * Quants are kept with their offset, so that they are not negative, and their bits in planes of 64 bytes:
 *     4-bit planes   p = 0 .. 3: the low nibbles are register p, the high nibbles register p + 4
 *     2-bit planes   p = 0, 1: bits 2 f, 2 f + 1 are register 4 p + f, f = 0 .. 3
 *     1-bit plane    bit i is register i
 *     bytes          8 registers as they are
 * A type's quant is made of its low plane (4-bit, or 2-bit for Q2_K and Q3_K) and the bits above it:
 *     Q4_0 Q4_1 IQ4_NL Q4_K IQ4_XS  4     Q5_0 Q5_1 Q5_K  4 + 1     Q6_K  4 + 2     Q2_K  2     Q3_K  2 + 1     Q8_0
 *                                   bytes
 * The panel is all blocks' planes, then all blocks' scales:
 *     types of 32    d[16], and m[16] where the type has one, as f16
 *     types of 256   d[16], and dmin[16], as f16; then for each 16 or 32 inputs sc[16], a signed byte; then mn[16],
 *                    a byte, likewise. Q2_K has both in one byte: sc in the low nibble.
 * A panel starts on a cache line and is filled up to one. */
#ifndef RVI_KERNELS_PANELS_H
#define RVI_KERNELS_PANELS_H

#include "kernels/kernels.h"

enum { RVI_PANEL = 16 };

/* Bytes of one panel of n inputs, of any type (float_panels.h has the layout of float weights). */
size_t rvi_panel_bytes(rvi_qtype type, size_t n);

/* Bytes of n activations prepared for weights of this type. */
size_t rvi_act_bytes(rvi_qtype type, size_t n);

/* Bytes of 16 rows of n activations prepared for tiles: whole cache lines. */
size_t rvi_tile_act_bytes(rvi_qtype type, size_t n);
enum { RVI_NARROW_TILE_BYTES = 640, RVI_WIDE_TILE_BYTES = 5248 }; /* of 32, of 256 inputs */

/* ---- inside the kernels room ---- */

typedef enum min_form {
    NO_MIN,
    ONE_MIN,   /* weight = d q + m */
    SCALED_MIN /* weight = d sc q - dmin mn */
} min_form;

/* What a loop must know of a type; always a constant where speed counts, so that the loop is compiled for it. */
typedef struct traits {
    uint32_t block_weights, block_bytes; /* as files have them */
    min_form form;
    int low_bits, high_bits; /* planes: 8 | 4, 2 and 0, 1, 2 */
    int offset;              /* weight = quant - offset */
    int largest;             /* quant */
    int scale_inputs;        /* inputs that share a scale: 16 or 32; 0: the block's d alone */
    bool looked_up;          /* quant = rvi_iq4_values[...] + offset */
} traits;

/* name, form, low bits, high bits, offset, largest quant, inputs a scale, looked up */
#define QUANTIZED(X)                                                                                                   \
    X(Q4_0, NO_MIN, 4, 0, 8, 15, 0, false)                                                                             \
    X(Q4_1, ONE_MIN, 4, 0, 0, 15, 0, false)                                                                            \
    X(Q5_0, NO_MIN, 4, 1, 16, 31, 0, false)                                                                            \
    X(Q5_1, ONE_MIN, 4, 1, 0, 31, 0, false)                                                                            \
    X(Q8_0, NO_MIN, 8, 0, 128, 255, 0, false)                                                                          \
    X(IQ4_NL, NO_MIN, 4, 0, 128, 255, 0, true)                                                                         \
    X(Q2_K, SCALED_MIN, 2, 0, 0, 3, 16, false)                                                                         \
    X(Q3_K, NO_MIN, 2, 1, 4, 7, 16, false)                                                                             \
    X(Q4_K, SCALED_MIN, 4, 0, 0, 15, 32, false)                                                                        \
    X(Q5_K, SCALED_MIN, 4, 1, 0, 31, 32, false)                                                                        \
    X(Q6_K, NO_MIN, 4, 2, 32, 63, 16, false)                                                                           \
    X(IQ4_XS, NO_MIN, 4, 0, 128, 255, 32, true)

/* The traits of a type; a constant after inlining. */
#define X(name, text, id, block, weights, bytes) enum { name##_WEIGHTS = (weights), name##_BYTES = (bytes) };
RVI_QTYPES(X)
#undef X
#define TRAITS(name, form, low, high, offset, largest, scale, table)                                                   \
    ((traits){name##_WEIGHTS, name##_BYTES, form, low, high, offset, largest, scale, table})

/* Bytes of the planes of 32 inputs; of the scales of a block. */
static inline size_t panel_quant_bytes(traits t)
{
    return 64 * (size_t)(t.low_bits + t.high_bits);
}

static inline bool scales_share_a_byte(traits t)
{
    return t.form == SCALED_MIN && t.low_bits == 2;
}

static inline size_t panel_scale_bytes(traits t)
{
    size_t half = RVI_PANEL * sizeof(rvi_f16), n = t.form == NO_MIN ? half : 2 * half;
    if (t.block_weights == 256) {
        size_t small = 256 / (size_t)t.scale_inputs * RVI_PANEL;
        n += t.form == SCALED_MIN && !scales_share_a_byte(t) ? 2 * small : small;
    }
    return n;
}

#endif
