/* amx_float.c - BF16 weights in default mode by tiles: 16 rows x 16 outputs x 32 inputs an
 * instruction, whose order of sums is the law `pairs` (float_panels.h).
 *
 * Two groups of rows meet two panels, so four tiles of sums share each load; they stay in their
 * tiles over a slice of the inputs and wait in `out` between slices (to store and load a float
 * changes no bit).
 *
 * Built with the flags for these instructions; nothing here may run before table.c has found them
 * and asked the system for the tiles. Each call loads the tile configuration and gives it back, so
 * it does not matter which thread calls. */
#if defined(__x86_64__)

#include <immintrin.h>
#include <stdbool.h>
#include <string.h>

#include "kernels/float_panels.h"
#include "kernels/kernels.h"
#include "kernels/rows.h"
#include "kernels/tiles.h"

enum {
    STEP = RVI_FLOAT_STEP,
    TILE_BYTES = 1024,
    SLICE = 32,              /* steps of a slice: the longer, the fewer times sums go to memory */
    ACTS_BYTES = 1024 * 1024 /* what activations may take of the second level cache */
};

/* ---- activations ---- */

static ALWAYS_INLINE __m512 load_part(const float *x, size_t left)
{
    return left >= 16 ? _mm512_loadu_ps(x) : _mm512_maskz_loadu_ps((__mmask16)((1u << left) - 1u), x);
}

static ALWAYS_INLINE __m512 prepared_bf16(__m512 x)
{
    __m512i bits = _mm512_castps_si512(x);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    bits = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    bits = _mm512_and_si512(bits, _mm512_set1_epi32((int)0xffff0000u));
    __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    bits = _mm512_mask_mov_epi32(bits, nan, _mm512_set1_epi32(0x7fc00000));
    __m512 v = _mm512_castsi512_ps(bits);
    __mmask16 small = _mm512_cmp_ps_mask(_mm512_abs_ps(v), _mm512_set1_ps(RVI_BF16_FLOOR), _CMP_LT_OQ);
    return _mm512_mask_mov_ps(v, small, _mm512_setzero_ps());
}

static ALWAYS_INLINE void store_bf16(uint8_t *p, __m512 v)
{
    __m512i upper = _mm512_srli_epi32(_mm512_castps_si512(v), 16);
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtepi32_epi16(upper));
}

static void prepare_row(const float *x, void *group, int row, size_t n)
{
    uint8_t *to = (uint8_t *)group + row * 64;
    for (size_t k = 0; k < n; k += STEP, to += 2 * TILE_BYTES)
        for (size_t half = 0; half < 2; half++) {
            size_t at = k + half * 16;
            __m512 v = at < n ? load_part(x + at, n - at) : _mm512_setzero_ps();
            __m512 h = prepared_bf16(v);
            store_bf16(to + half * 32, h);
            store_bf16(to + TILE_BYTES + half * 32, prepared_bf16(_mm512_sub_ps(v, h)));
        }
}

static void prepare_tiles(const float *x, size_t x_stride, void *out, size_t n)
{
    for (int r = 0; r < 16; r++) prepare_row(x + (size_t)r * x_stride, out, r, n);
}

/* ---- products ---- */

/* One step onto sums 0 and 1 (first group of rows with both panels), 2 and 3 (second group). new_weights: their
 * tiles are loaded. Each load comes as late as it is needed, so that loads and products run side by side. */
static ALWAYS_INLINE void step(int n_groups, int n_panels, bool new_weights, const uint8_t *a, size_t a_stride,
                               const uint8_t *b, size_t b_stride)
{
    if (new_weights) _tile_loadd(6, b, 64);
    _tile_loadd(4, a, 64);
    _tile_dpbf16ps(0, 4, 6);
    if (n_panels == 2) {
        if (new_weights) _tile_loadd(7, b + b_stride, 64);
        _tile_dpbf16ps(1, 4, 7);
    }
    if (n_groups == 2) {
        _tile_loadd(5, a + a_stride, 64);
        _tile_dpbf16ps(2, 5, 6);
        if (n_panels == 2) _tile_dpbf16ps(3, 5, 7);
    }
}

/* A slice of n_steps; groups are a_stride, panels b_stride bytes apart. */
static ALWAYS_INLINE void slice(int n_groups, int n_panels, const uint8_t *a, size_t a_stride, const uint8_t *b,
                                size_t b_stride, size_t n_steps)
{
    for (size_t s = 0; s < n_steps; s++, a += 2 * TILE_BYTES, b += TILE_BYTES) {
        step(n_groups, n_panels, true, a, a_stride, b, b_stride);               /* h */
        step(n_groups, n_panels, false, a + TILE_BYTES, a_stride, b, b_stride); /* l */
    }
}

/* Sums from `sums` (or zeros at the first slice), through the slice, and back. */
static ALWAYS_INLINE void block(int n_groups, int n_panels, bool first, const uint8_t *a, size_t a_stride,
                                const uint8_t *b, size_t b_stride, size_t n_steps, float *sums, size_t sums_stride)
{
    size_t bytes = sums_stride * sizeof *sums;
    float *below = sums + 16 * sums_stride;
    if (first) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    } else {
        _tile_loadd(0, sums, bytes);
        if (n_panels == 2) _tile_loadd(1, sums + 16, bytes);
        if (n_groups == 2) _tile_loadd(2, below, bytes);
        if (n_groups == 2 && n_panels == 2) _tile_loadd(3, below + 16, bytes);
    }
    slice(n_groups, n_panels, a, a_stride, b, b_stride, n_steps);
    _tile_stored(0, sums, bytes);
    if (n_panels == 2) _tile_stored(1, sums + 16, bytes);
    if (n_groups == 2) _tile_stored(2, below, bytes);
    if (n_groups == 2 && n_panels == 2) _tile_stored(3, below + 16, bytes);
}

/* All rows against one or two panels over one slice */
static ALWAYS_INLINE void panels_slice(int n_panels, bool first, const uint8_t *acts, size_t group_bytes, int n_groups,
                                       const uint8_t *b, size_t b_stride, size_t n_steps, float *out, size_t out_stride)
{
    int g = 0;
    for (; n_groups - g >= 2; g += 2, acts += 2 * group_bytes, out += 32 * out_stride)
        block(2, n_panels, first, acts, group_bytes, b, b_stride, n_steps, out, out_stride);
    if (g < n_groups) block(1, n_panels, first, acts, group_bytes, b, b_stride, n_steps, out, out_stride);
}

static void gemm_tiles(const void *weights, int n_panels, const void *x, int n_groups, float *out, size_t out_stride,
                       size_t n)
{
    const uint8_t *panels = weights, *acts = x;
    size_t n_steps = rvi_float_steps(n), panel_bytes = n_steps * TILE_BYTES, a_step = 2 * TILE_BYTES;
    /* Steps whose activations stay in the cache while all panels are read */
    size_t group_bytes = n_steps * a_step, kept = ACTS_BYTES / ((size_t)n_groups * a_step) / SLICE * SLICE;
    if (kept < SLICE) kept = SLICE;
    TILES_DONE(panels);
    tiles_begin(64, 16);
    for (size_t from = 0; from < n_steps; from += kept) {
        size_t end = from + kept < n_steps ? from + kept : n_steps;
        for (int p = 0; p < n_panels; p += 2) {
            float *to = out + (size_t)p * 16;
            for (size_t s = from; s < end; s += SLICE) {
                size_t steps = end - s < SLICE ? end - s : SLICE;
                const uint8_t *a = acts + s * a_step, *b = panels + (size_t)p * panel_bytes + s * TILE_BYTES;
                if (n_panels - p >= 2)
                    panels_slice(2, s == 0, a, group_bytes, n_groups, b, panel_bytes, steps, to, out_stride);
                else
                    panels_slice(1, s == 0, a, group_bytes, n_groups, b, panel_bytes, steps, to, out_stride);
            }
        }
    }
    TILES_DONE(out);
    tiles_end();
}

void rvi_kernels_fill_amx_float(rvi_kernels *k)
{
    k->prepare_tiles[RVI_BF16] = prepare_tiles;
    k->gemm_tiles[RVI_BF16] = gemm_tiles;
}

#else
typedef int rvi_no_amx_float_here; /* a C file must not be empty */
#endif
