/* Peak loops for x86-64 with AMX: four accumulator tiles of 16 x 16, two tiles of each operand. */
#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>

#include "kernels/peak_rows.h"
#include "kernels/tiles.h"

typedef struct tile {
    uint8_t bytes[16 * 64];
} tile;

static void set_up(tile *data, int byte)
{
    memset(data, byte, sizeof *data);
    tiles_begin(64, 16);
    TILES_DONE(data);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_loadd(4, data, 64);
    _tile_loadd(5, data, 64);
    _tile_loadd(6, data, 64);
    _tile_loadd(7, data, 64);
}

/* The tile registers go back to their first state, so that later context switches need not save them. */
static int32_t take_down(tile *data)
{
    int32_t value;
    _tile_stored(0, data, 64);
    TILES_DONE(data);
    tiles_end();
    memcpy(&value, data, sizeof value);
    return value;
}

int32_t rvi_peak_amx_int8(uint64_t n)
{
    tile data;
    set_up(&data, 1);
    for (uint64_t i = 0; i < n; i++) {
        _tile_dpbssd(0, 4, 6);
        _tile_dpbssd(1, 4, 7);
        _tile_dpbssd(2, 5, 6);
        _tile_dpbssd(3, 5, 7);
    }
    return take_down(&data);
}

int32_t rvi_peak_amx_bf16(uint64_t n)
{
    tile data;
    set_up(&data, 0x3D); /* 0x3D3D: about 0.046 */
    for (uint64_t i = 0; i < n; i++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    return take_down(&data);
}
#else
typedef int rvi_peak_amx_nothing;
#endif
