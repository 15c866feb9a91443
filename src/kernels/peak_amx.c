/* Peak loops for x86-64 with AMX: four accumulator tiles of 16 x 16, two tiles of each operand. */
#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>

#include "kernels/peak_rows.h"

/* The 64 bytes that ldtilecfg takes */
typedef struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;
_Static_assert(sizeof(tile_config) == 64, "tile configuration size");

typedef struct tile {
    uint8_t bytes[16 * 64];
} tile;

/* gcc 12 tells its optimizer that ldtilecfg reads 8 bytes and that tile loads and stores touch no memory: without this
 * the stores before them are dropped, and a tile that was not configured is an illegal instruction. */
static void written(const void *a, const void *b)
{
    __asm__ volatile("" : : "r"(a), "r"(b) : "memory");
}

static void set_up(tile *data, int byte)
{
    tile_config c = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        c.row_bytes[i] = 64;
        c.rows[i] = 16;
    }
    memset(data, byte, sizeof *data);
    written(&c, data);
    _tile_loadconfig(&c);
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
    written(data, data);
    _tile_release();
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
