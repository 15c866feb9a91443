/* weights.h - how weights lie in device memory.
 *
 * ---- panels: quantized types, F16 and BF16, unless the backend is exact ----
 *
 * 8 outputs are a panel; outputs past the last are zeros. A unit is 32 weights of a row; a panel
 * is a run of blocks of 8 units (types whose d is that of 8) or 4, the last one filled up with
 * zeros. Of a unit, lane l of a warp has the weights 8 (l % 4) .. + 7 of output l / 4, so that what
 * the lanes load is what the tensor cores want of them. Planes of a block:
 *     low     16 bytes a lane at a time, words unit after unit. 4 bits: weight j of the 8 at bit
 *             16 (j % 2) + 4 (j / 2) of a word; 8 bits: two words, + 128; F16, BF16: four
 *             words
 *     high    lane after lane; 5 bits: a byte's worth for each unit, weight j of unit u at bit
 *             16 (j % 2) + 4 u + j / 2 of a word for 4 units; 6 bits: two bits each, at
 *             16 (j % 2) + 2 (4 u + j / 2) of a word for 2 units
 *     scales  output after output (two: first 16 weights, last 16 weights), unit after unit: a
 *             scale + 128; with m: scale and minimum
 *     d       output after output: f16 for each unit, or one for the block; where there is an m, d
 *             and m, or d and -m where minima scale it
 * F16 and BF16 have a low plane only, of f16: they are multiplied by a power of two; its inverse
 * stands 16 bytes before the end of the panel. F32 has the planes of three times as many weights,
 * each third to whole blocks: its first parts twice, then its second parts (products.cuh).
 *
 * ---- rows: the other types, and all types where the backend is exact ----
 *
 * The blocks of the file are cut in two: the main plane, quants whose length is a multiple of 16
 * bytes, and the head, scales and what else is left, in the file's order. A row has the main planes
 * of all its blocks, then their heads; both begin at multiples of 16, so that every lane loads 16
 * bytes of quants at once. F32, F16 and BF16 rows are main planes of 32 weights, the last one
 * filled up with zeros, and have no heads. The bytes are those of the file, but for padding. */
#ifndef RVI_BACKEND_CUDA_WEIGHTS_H
#define RVI_BACKEND_CUDA_WEIGHTS_H

/* name, weights a block, bytes of a block before its main plane, of the main plane, after it */
#define RVI_CUDA_TYPES(X)                                                                          \
    X(F32, 32, 0, 128, 0)                                                                          \
    X(F16, 32, 0, 64, 0)                                                                           \
    X(BF16, 32, 0, 64, 0)                                                                          \
    X(Q4_0, 32, 2, 16, 0)                                                                          \
    X(Q4_1, 32, 4, 16, 0)                                                                          \
    X(Q5_0, 32, 6, 16, 0)                                                                          \
    X(Q5_1, 32, 8, 16, 0)                                                                          \
    X(Q8_0, 32, 2, 32, 0)                                                                          \
    X(Q2_K, 256, 16, 64, 4)                                                                        \
    X(Q3_K, 256, 0, 96, 14)                                                                        \
    X(Q4_K, 256, 16, 128, 0)                                                                       \
    X(Q5_K, 256, 16, 160, 0)                                                                       \
    X(Q6_K, 256, 0, 192, 18)                                                                       \
    X(IQ4_NL, 32, 2, 16, 0)                                                                        \
    X(IQ4_XS, 256, 8, 128, 0)

/* name, bits of a quant as it is stored, what is to be taken off it, bytes of scales for a unit,
 * units that share a d, has m. Scales: 1: of the unit, signed; 2 with m: of the unit and of its m;
 * 2 without: of the first and last 16, signed; 4: of the first and last 16, and of their m. */
#define RVI_CUDA_QUANTS(X)                                                                         \
    X(Q4_0, 4, 8, 0, 1, 0)                                                                         \
    X(Q4_1, 4, 0, 0, 1, 1)                                                                         \
    X(Q5_0, 5, 16, 0, 1, 0)                                                                        \
    X(Q5_1, 5, 0, 0, 1, 1)                                                                         \
    X(Q8_0, 8, 0, 0, 1, 0)                                                                         \
    X(Q2_K, 4, 0, 4, 8, 1)                                                                         \
    X(Q3_K, 4, 4, 2, 8, 0)                                                                         \
    X(Q4_K, 4, 0, 2, 8, 1)                                                                         \
    X(Q5_K, 5, 0, 2, 8, 1)                                                                         \
    X(Q6_K, 6, 32, 2, 8, 0)                                                                        \
    X(IQ4_NL, 8, 0, 0, 1, 0)                                                                       \
    X(IQ4_XS, 8, 0, 1, 8, 0)

/* Bytes of the planes for one output: of a unit, of a unit, of a unit, of a d with its m. */
#define RVI_CUDA_LOW_BYTES(bits)  ((bits) == 8 ? 32 : 16)
#define RVI_CUDA_HIGH_BYTES(bits) ((bits) == 5 ? 4 : (bits) == 6 ? 8 : 0)
#define RVI_CUDA_D_BYTES(has_m)   ((has_m) ? 4 : 2)

/* Of a block. */
#define RVI_CUDA_BLOCK_UNITS(d_units)   ((d_units) == 8 ? 8 : 4)
#define RVI_CUDA_HAS_TWO(scales, has_m) ((scales) == 4 || ((scales) == 2 && !(has_m)))

/* product_wide: units of a block as it comes; stages of so many rows, and blocks of so many stages
 * on their way. A block that has been read is free when its last stage is. */
#define RVI_CUDA_TILE_UNITS(units, bits, rows) ((bits) == 16 && (rows) > 64 ? 2 : (units))
#define RVI_CUDA_TILE_AHEAD(rows)              ((rows) == 32 ? 8 : (rows) <= 128 ? 6 : 5)
#define RVI_CUDA_TILE_PLACES(ahead, stages)    (((ahead) + (stages)-2) / (stages) + 1)

#endif
