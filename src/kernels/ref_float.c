/* ref_float.c - the scalar row for float weights in default mode: the specification of the laws
 * `runs` and `pairs` (float_panels.h), and the packing of panels, which every row shares. */
#include <math.h>
#include <string.h>

#include "kernels/float_panels.h"
#include "kernels/kernels.h"
#include "kernels/rows.h"

enum { STEP = RVI_FLOAT_STEP };

/* ---- packing ---- */

/* Weights of one row from input `first` up to `end`; to: the panel's first weight of this output */
static void pack_part_f32(const uint8_t *row, uint8_t *to, size_t first, size_t end)
{
    for (size_t k = first; k < end; k++) memcpy(to + k * 64, row + k * sizeof(float), sizeof(float));
}

static void pack_part_f16(const uint8_t *row, uint8_t *to, size_t first, size_t end)
{
    for (size_t k = first; k < end; k++) memcpy(to + k * 32, row + k * sizeof(rvi_f16), sizeof(rvi_f16));
}

static void pack_part_bf16(const uint8_t *row, uint8_t *to, size_t first, size_t end)
{
    enum { FLOOR_BITS = (127 - 56) << 7 };
    for (size_t k = first; k < end; k++) {
        rvi_bf16 w;
        memcpy(&w, row + k * sizeof w, sizeof w);
        if ((w & 0x7fff) < FLOOR_BITS) w = 0;
        memcpy(to + k / 2 * 64 + k % 2 * sizeof w, &w, sizeof w);
    }
}

/* A part of the panel that stays in the first level cache takes its weights from all rows before the next one. */
static void pack(rvi_qtype type, const void *rows, size_t row_stride, int n_rows, void *panel, size_t n)
{
    enum { PART = 256 };
    size_t apart = type == RVI_F16 ? 2 : 4; /* bytes from output to output within a pair */
    memset(panel, 0, rvi_float_panel_bytes(type, n));
    for (size_t first = 0; first < n; first += PART) {
        size_t end = n - first < PART ? n : first + PART;
        for (int i = 0; i < n_rows; i++) {
            const uint8_t *row = (const uint8_t *)rows + (size_t)i * row_stride;
            uint8_t *to = (uint8_t *)panel + (size_t)i * apart;
            if (type == RVI_F32)
                pack_part_f32(row, to, first, end);
            else if (type == RVI_F16)
                pack_part_f16(row, to, first, end);
            else
                pack_part_bf16(row, to, first, end);
        }
    }
}

#define PACK(name, type)                                                                                               \
    static void name(const void *rows, size_t row_stride, int n_rows, void *panel, size_t n)                           \
    {                                                                                                                  \
        pack(type, rows, row_stride, n_rows, panel, n);                                                                \
    }
PACK(pack_f32, RVI_F32)
PACK(pack_f16, RVI_F16)
PACK(pack_bf16, RVI_BF16)
#undef PACK

/* ---- activations ---- */

static float prepared_bf16(float x)
{
    uint32_t bits;
    float f = NAN;
    if (isnan(x)) return f;
    memcpy(&bits, &x, sizeof bits);
    bits += 0x7fff + (bits >> 16 & 1);
    bits &= 0xffff0000u;
    memcpy(&f, &bits, sizeof f);
    return fabsf(f) < RVI_BF16_FLOOR ? 0.0f : f;
}

static void prepare_f32(const float *x, void *out, size_t n)
{
    memset(out, 0, rvi_float_act_bytes(RVI_F32, n));
    memcpy(out, x, n * sizeof *x);
}

static void prepare_f16(const float *x, void *out, size_t n)
{
    float *to = out;
    memset(out, 0, rvi_float_act_bytes(RVI_F16, n));
    for (size_t k = 0; k < n; k++) to[k] = fabsf(x[k]) < RVI_F16_FLOOR ? 0.0f : x[k];
}

static void prepare_halves(const float *x, void *out, size_t n)
{
    memset(out, 0, rvi_float_act_bytes(RVI_BF16, n));
    for (size_t k = 0; k < n; k++) {
        float *to = (float *)out + k / STEP * 2 * STEP + k % STEP;
        to[0] = prepared_bf16(x[k]);
        to[STEP] = prepared_bf16(x[k] - to[0]);
    }
}

/* ---- products ---- */

/* The weight of input k and output i of a panel */
static float weight(rvi_qtype type, const uint8_t *panel, size_t k, int i)
{
    float w;
    uint16_t half;
    if (type == RVI_F32) {
        memcpy(&w, panel + k * 64 + i * 4, sizeof w);
        return w;
    }
    memcpy(&half, type == RVI_F16 ? panel + k * 32 + i * 2 : panel + k / 2 * 64 + i * 4 + k % 2 * 2, sizeof half);
    return type == RVI_F16 ? rvi_f16_to_f32(half) : rvi_bf16_to_f32(half);
}

/* The law `runs` */
static float sum_runs(rvi_qtype type, const uint8_t *panel, int i, const float *x, size_t n)
{
    float acc = 0.0f;
    for (size_t first = 0; first < n; first += RVI_RUN) {
        float run = 0.0f;
        for (size_t k = first; k < n && k < first + RVI_RUN; k++) run = fmaf(weight(type, panel, k, i), x[k], run);
        acc += run;
    }
    return acc;
}

/* The law `pairs` */
static float sum_pairs(const uint8_t *panel, int i, const float *x, size_t n)
{
    float acc = 0.0f;
    for (size_t first = 0; first < n; first += STEP)
        for (int part = 0; part < 2; part++, x += STEP) { /* h, l */
            float even = 0.0f, odd = 0.0f;
            for (size_t k = 0; k < STEP; k += 2) {
                even = fmaf(weight(RVI_BF16, panel, first + k, i), x[k], even);
                odd = fmaf(weight(RVI_BF16, panel, first + k + 1, i), x[k + 1], odd);
            }
            acc += even + odd;
        }
    return acc;
}

static void products(rvi_qtype type, const void *panels, int n_panels, const void *acts, size_t act_stride, int n_rows,
                     float *out, size_t out_stride, size_t n)
{
    size_t padded = rvi_float_steps(n) * STEP;
    for (int r = 0; r < n_rows; r++) {
        const float *x = (const float *)(const void *)((const char *)acts + (size_t)r * act_stride);
        for (int o = 0; o < n_panels * 16; o++) {
            const uint8_t *panel = (const uint8_t *)panels + (size_t)(o / 16) * rvi_float_panel_bytes(type, n);
            out[(size_t)r * out_stride + (size_t)o] =
                type == RVI_BF16 ? sum_pairs(panel, o % 16, x, padded) : sum_runs(type, panel, o % 16, x, padded);
        }
    }
}

#define GEMM(name, type)                                                                                               \
    static void name(const void *panels, int n_panels, const void *acts, size_t act_stride, int n_rows, float *out,    \
                     size_t out_stride, size_t n)                                                                      \
    {                                                                                                                  \
        products(type, panels, n_panels, acts, act_stride, n_rows, out, out_stride, n);                                \
    }
GEMM(gemm_f32, RVI_F32)
GEMM(gemm_f16, RVI_F16)
GEMM(gemm_bf16, RVI_BF16)
#undef GEMM

void rvi_kernels_fill_ref_float(rvi_kernels *k)
{
    k->pack[RVI_F32] = pack_f32;
    k->pack[RVI_F16] = pack_f16;
    k->pack[RVI_BF16] = pack_bf16;
    k->prepare[RVI_F32] = prepare_f32;
    k->prepare[RVI_F16] = prepare_f16;
    k->prepare[RVI_BF16] = prepare_halves;
    k->gemm_panels[RVI_F32] = gemm_f32;
    k->gemm_panels[RVI_F16] = gemm_f16;
    k->gemm_panels[RVI_BF16] = gemm_bf16;
}
