/* Sizes of what the products take. */
#include "kernels/panels.h"

#include "kernels/float_panels.h"

static size_t to_lines(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

size_t rvi_panel_bytes(rvi_qtype type, size_t n)
{
    switch (type) {
#define X(name, ...)                                                                                                   \
    case RVI_##name: {                                                                                                 \
        traits t = TRAITS(name, __VA_ARGS__);                                                                          \
        return to_lines(n / 32 * panel_quant_bytes(t) + n / t.block_weights * panel_scale_bytes(t));                   \
    }
        QUANTIZED(X)
#undef X
    default: return rvi_float_panel_bytes(type, n);
    }
}

size_t rvi_act_bytes(rvi_qtype type, size_t n)
{
    switch (rvi_qtypes[type].block_weights) {
    case 256: return n / 256 * sizeof(rvi_act_wide);
    case 32: return n / 32 * sizeof(rvi_act_block);
    default: return rvi_float_act_bytes(type, n);
    }
}

size_t rvi_tile_act_bytes(rvi_qtype type, size_t n)
{
    switch (rvi_qtypes[type].block_weights) {
    case 256: return n / 256 * RVI_WIDE_TILE_BYTES;
    case 32: return n / 32 * RVI_NARROW_TILE_BYTES;
    default: return 16 * rvi_float_act_bytes(type, n) / 2;
    }
}
