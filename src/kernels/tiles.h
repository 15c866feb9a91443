/* tiles.h - the tile registers of x86 for the files that are built with the flags for AMX. Inside the kernels room
 * only.
 *
 * While tile instructions are in flight (loads and stores too), the unit of the second vector port that multiplies,
 * fuses and converts 512 bits is theirs: 32 fma beside a tile product take 32 cycles, alone 16. Additions, integer
 * operations and shuffles still have both ports (measured on Sapphire Rapids: 32 additions beside it take 16).
 *
 * Tiles 0 .. 3 hold 16 x 16 results, 4 and 5 the rows of activations, 6 and 7 the weights. */
#ifndef RVI_KERNELS_TILES_H
#define RVI_KERNELS_TILES_H

#include <immintrin.h>
#include <stdint.h>

#include "kernels/simd.h"

/* gcc 12 tells its optimizer that ldtilecfg reads 8 bytes and that tile loads and stores touch no memory. This, between
 * ordinary stores and tile loads of the same bytes and the other way round, says that they do. */
#define TILES_DONE(p) __asm__ volatile("" : : "r"(p) : "memory")

/* The 64 bytes that ldtilecfg takes. */
typedef struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;
_Static_assert(sizeof(tile_config) == 64, "tile configuration size");

/* So many rows of results and of activations, these of row_bytes each, so many rows of weights. */
static ALWAYS_INLINE void tiles_begin_rows(int rows, int row_bytes, int weight_rows)
{
    tile_config c = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        c.row_bytes[i] = (uint16_t)(i == 4 || i == 5 ? row_bytes : 64);
        c.rows[i] = (uint8_t)(i >= 6 ? weight_rows : rows);
    }
    TILES_DONE(&c);
    _tile_loadconfig(&c);
}

/* Whole tiles of results */
static ALWAYS_INLINE void tiles_begin(int row_bytes, int weight_rows)
{
    tiles_begin_rows(16, row_bytes, weight_rows);
}

/* The registers go back to their first state, so that later context switches need not save them. */
static ALWAYS_INLINE void tiles_end(void)
{
    _tile_release();
}

#endif
