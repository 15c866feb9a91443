/* qtypes.c - the table of storage types, and the two 16-bit float formats.
 *
 * The conversions work on bits and depend on no CPU feature. A NaN keeps its sign and the upper
 * bits of its payload; all but bf16 -> f32 (a shift) make it quiet, as the conversion instructions
 * of x86-64 (F16C) and aarch64 do, so that kernels may use those. */
#include "formats/qtypes.h"

#include <string.h>

const rvi_qtype_info rvi_qtypes[RVI_QTYPE_COUNT] = {
#define X(name, text, id, block, weights, bytes) {text, id, weights, bytes},
    RVI_QTYPES(X)
#undef X
};

const int8_t rvi_iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                   1,    13,   25,  38,  53,  69,  89,  113};

rvi_qtype rvi_qtype_from_gguf(uint32_t id)
{
    for (int t = 0; t < RVI_QTYPE_COUNT; t++)
        if (rvi_qtypes[t].gguf_id == id) return (rvi_qtype)t;
    return RVI_QTYPE_COUNT;
}

static uint32_t bits_of(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static float float_of(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

enum { HALF_INF = 0x7C00, HALF_QUIET = 0x0200, HALF_MANTISSA = 0x03FF };
static const uint32_t inf = 0x7F800000, quiet = 0x00400000;
static const uint32_t rebias = (127 - 15) << 23; /* between the exponents of half and single */

float rvi_f16_to_f32(rvi_f16 h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, magnitude = h & 0x7FFF, u;
    if (magnitude > HALF_INF)
        u = inf | quiet | (magnitude & HALF_MANTISSA) << 13;
    else if (magnitude == HALF_INF)
        u = inf;
    else if (magnitude > HALF_MANTISSA)
        u = (magnitude << 13) + rebias;
    else
        u = bits_of((float)magnitude * 0x1p-24f); /* zero and denormals: exact */
    return float_of(sign | u);
}

rvi_f16 rvi_f32_to_f16(float f)
{
    uint32_t u = bits_of(f), sign = u >> 16 & 0x8000, magnitude = u & 0x7FFFFFFF, h;
    if (magnitude > inf) {
        h = HALF_INF | HALF_QUIET | (magnitude >> 13 & HALF_MANTISSA);
    } else if (magnitude >= bits_of(0x1p16f)) {
        h = HALF_INF;
    } else if (magnitude >= bits_of(0x1p-14f)) {
        /* A carry out of the mantissa lands in the exponent, which is right, up to infinity for
         * 65520 and above. */
        h = (magnitude - rebias + 0xFFF + (magnitude >> 13 & 1)) >> 13;
    } else {
        /* The spacing of floats in [0.5, 1) is 2^-24, that of half denormals: this addition is the
         * rounding. */
        h = bits_of(float_of(magnitude) + 0.5f) - bits_of(0.5f);
    }
    return (rvi_f16)(sign | h);
}

float rvi_bf16_to_f32(rvi_bf16 h)
{
    return float_of((uint32_t)h << 16);
}

rvi_bf16 rvi_f32_to_bf16(float f)
{
    uint32_t u = bits_of(f);
    if ((u & 0x7FFFFFFF) > inf) return (rvi_bf16)((u | quiet) >> 16);
    return (rvi_bf16)((u + 0x7FFF + (u >> 16 & 1)) >> 16);
}
