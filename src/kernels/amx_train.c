/* amx_train.c - products of training by tiles: both operands in bf16, 16 rows x 16 columns x 32 of k an instruction.
 *
 * A in groups: [k / 32][16 rows][32 of k]; B in panels: [k / 32][16 pairs of k][16 columns][2]: a tile each, 1 KiB. Two
 * groups meet two panels, or four groups one, so four tiles of sums share each load. Sums stay in their tiles over a
 * slice of k and wait in C between slices; at the right edge of C they wait in a buffer, so that an element's order of
 * sums is the same everywhere. The last rows, where they fill no group, have tiles of their own size.
 *
 * Built with the flags for these instructions; nothing here may run before table.c has found them and asked the system
 * for the tiles. Each product loads the tile configuration and gives it back. */
#if defined(__x86_64__)

#include <immintrin.h>
#include <stdbool.h>
#include <string.h>

#include "kernels/kernels.h"
#include "kernels/rows.h"
#include "kernels/tiles.h"

enum {
    STEP = 32,
    PANEL = RVI_GEMM_PANEL,
    TILE_BYTES = 1024,
    SLICE = 20 /* steps: two panels of so many stay in the first level cache */
};

/* ---- packing ---- */

static ALWAYS_INLINE __mmask16 first_lanes(int left)
{
    return (__mmask16)(left >= 16 ? 0xffffu : left <= 0 ? 0u : (1u << left) - 1u);
}

/* 16 floats, or the `left` first ones and zeros. */
static ALWAYS_INLINE __m512 load_part(const float *p, int left)
{
    return left >= 16 ? _mm512_loadu_ps(p) : _mm512_maskz_loadu_ps(first_lanes(left), p);
}

/* 32 floats as bf16, in order */
static ALWAYS_INLINE __m512i row_of_32(const float *p, int left)
{
    __m512 low = load_part(p, left), high = left > 16 ? load_part(p + 16, left - 16) : _mm512_setzero_ps();
    return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

/* Two rows of 16 floats as bf16: a pair for each column */
static ALWAYS_INLINE __m512i pairs_of(__m512 even, __m512 odd)
{
    const __m512i interleaved = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7,
                                                 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return _mm512_permutexvar_epi16(interleaved, (__m512i)_mm512_cvtne2ps_pbh(odd, even));
}

/* 16 rows of 16 words become columns. */
static ALWAYS_INLINE void transpose16(__m512i v[16])
{
    __m512i t[16];
    UNROLL for (int i = 0; i < 16; i += 2)
    {
        t[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
    }
    UNROLL for (int i = 0; i < 16; i += 4)
    { /* v[i + c]: columns c, 4 + c, ... of rows i .. i + 3 */
        v[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        v[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        v[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        v[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    UNROLL for (int c = 0; c < 4; c++)
    {
        __m512i low = _mm512_shuffle_i32x4(v[c], v[4 + c], 0x88), high = _mm512_shuffle_i32x4(v[c], v[4 + c], 0xdd);
        __m512i low2 = _mm512_shuffle_i32x4(v[8 + c], v[12 + c], 0x88),
                high2 = _mm512_shuffle_i32x4(v[8 + c], v[12 + c], 0xdd);
        t[c] = _mm512_shuffle_i32x4(low, low2, 0x88);
        t[8 + c] = _mm512_shuffle_i32x4(low, low2, 0xdd);
        t[4 + c] = _mm512_shuffle_i32x4(high, high2, 0x88);
        t[12 + c] = _mm512_shuffle_i32x4(high, high2, 0xdd);
    }
    UNROLL for (int i = 0; i < 16; i++) v[i] = t[i];
}

static ALWAYS_INLINE void store_tile(uint8_t *to, const __m512i v[16])
{
    UNROLL for (int i = 0; i < 16; i++) _mm512_storeu_si512(to + 64 * i, v[i]);
}

/* A tile of rows as they are: row i is 32 numbers from x + i * stride. */
static ALWAYS_INLINE void tile_of_rows(__m512i v[16], const float *x, size_t stride, int n_rows, int left)
{
    if (n_rows >= 16 && left >= STEP) {
        UNROLL for (int i = 0; i < 16; i++) v[i] = row_of_32(x + (size_t)i * stride, STEP);
        return;
    }
    UNROLL for (int i = 0; i < 16; i++) v[i] =
        i < n_rows ? row_of_32(x + (size_t)i * stride, left) : _mm512_setzero_si512();
}

/* A tile of pairs of rows: row i has the numbers of rows 2 i and 2 i + 1 of x. */
static ALWAYS_INLINE void tile_of_pairs(__m512i v[16], const float *x, size_t stride, int n_rows, int left)
{
    UNROLL for (int i = 0; i < 16; i++)
    {
        const float *at = x + (size_t)(2 * i) * stride;
        __m512 even = 2 * i < n_rows ? load_part(at, left) : _mm512_setzero_ps();
        __m512 odd = 2 * i + 1 < n_rows ? load_part(at + stride, left) : _mm512_setzero_ps();
        v[i] = pairs_of(even, odd);
    }
}

/* Rows that the next tile is made of: each is another place in memory, too far from the last for the hardware to
 * guess. */
static ALWAYS_INLINE void prefetch_rows(const float *x, size_t stride, int n)
{
    UNROLL for (int i = 0; i < n; i++) _mm_prefetch((const char *)(x + (size_t)i * stride), _MM_HINT_T0);
}

/* Row by row: other threads wrote the rows, and the hardware fetches ahead what is read in order. */
static void pack_rows(uint8_t *out, size_t group_bytes, const float *a, size_t stride, int m, int k)
{
    for (int r = 0; r < (m + 15) / 16 * 16; r++) {
        uint8_t *to = out + (size_t)(r / 16) * group_bytes + (size_t)(r % 16) * 64;
        const float *row = a + (size_t)r * stride;
        for (int i = 0; i < k; i += STEP, to += TILE_BYTES)
            _mm512_storeu_si512(to, r < m ? row_of_32(row + i, k - i) : _mm512_setzero_si512());
    }
}

static void pack_a(void *out, size_t k_total, const float *a, size_t stride, bool transposed, int m, int k)
{
    size_t group_bytes = k_total / STEP * TILE_BYTES;
    if (!transposed) {
        pack_rows(out, group_bytes, a, stride, m, k);
        return;
    }
    for (int g = 0; g < m; g += 16)
        for (int i = 0; i < k; i += STEP) {
            uint8_t *to = (uint8_t *)out + (size_t)(g / 16) * group_bytes + (size_t)(i / STEP) * TILE_BYTES;
            __m512i v[16];
            tile_of_pairs(v, a + (size_t)i * stride + g, stride, k - i, m - g);
            transpose16(v);
            store_tile(to, v);
        }
}

static void pack_b(void *out, size_t k_total, const float *b, size_t stride, bool transposed, int k, int n)
{
    size_t panel_bytes = k_total / STEP * TILE_BYTES;
    for (int i = 0; i < k; i += STEP)
        for (int p = 0; p < n; p += PANEL) {
            uint8_t *to = (uint8_t *)out + (size_t)(p / PANEL) * panel_bytes + (size_t)(i / STEP) * TILE_BYTES;
            __m512i v[16];
            if (transposed) {
                tile_of_rows(v, b + (size_t)p * stride + i, stride, n - p, k - i);
                transpose16(v);
            } else {
                const float *at = b + (size_t)i * stride + p;
                if (k - i >= 2 * STEP) prefetch_rows(at + STEP * stride, stride, STEP);
                tile_of_pairs(v, at, stride, k - i, n - p);
            }
            store_tile(to, v);
        }
}

/* ---- products ---- */

/* One step onto the sums of a block: of two groups with two panels they are 0 1 / 2 3, of groups with one panel 0 / 1 /
 * 2 / 3. Each tile is loaded as late as it is needed, so that loads and products run side by side. */
static ALWAYS_INLINE void step(int n_groups, int n_panels, const uint8_t *a, size_t a_stride, const uint8_t *b,
                               size_t b_stride)
{
    _tile_loadd(6, b, 64);
    _tile_stream_loadd(4, a, 64);
    _tile_dpbf16ps(0, 4, 6);
    if (n_panels == 2) {
        _tile_loadd(7, b + b_stride, 64);
        _tile_dpbf16ps(1, 4, 7);
    }
    if (n_groups > 1) {
        _tile_stream_loadd(5, a + a_stride, 64);
        _tile_dpbf16ps(2, 5, 6);
        if (n_panels == 2) _tile_dpbf16ps(3, 5, 7);
    }
    if (n_groups > 2) {
        _tile_stream_loadd(4, a + 2 * a_stride, 64);
        _tile_dpbf16ps(1, 4, 6);
        _tile_stream_loadd(5, a + 3 * a_stride, 64);
        _tile_dpbf16ps(3, 5, 6);
    }
}

/* Sum 0 is the first group's with the first panel, sum 2 the second group's; sums 1 and 3 are those with the second
 * panel, or of the third and fourth group. */
static ALWAYS_INLINE void block(int n_groups, int n_panels, bool onto, const uint8_t *a, size_t a_stride,
                                const uint8_t *b, size_t b_stride, size_t n_steps, float *c, size_t c_stride)
{
    size_t bytes = c_stride * sizeof *c, other = n_panels == 2 ? 16 : 32 * c_stride;
    float *below = c + 16 * c_stride;
    bool has1 = n_panels == 2 || n_groups > 2, has2 = n_groups > 1, has3 = has1 && has2;
    if (onto) {
        _tile_loadd(0, c, bytes);
        if (has1) _tile_loadd(1, c + other, bytes);
        if (has2) _tile_loadd(2, below, bytes);
        if (has3) _tile_loadd(3, below + other, bytes);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    const char *soon = (const char *)(onto ? c + 16 * (size_t)n_groups * c_stride : c);
    for (size_t s = 0; s < n_steps; s++, a += TILE_BYTES, b += TILE_BYTES, soon += 2 * bytes) {
        if (s < 8 * (size_t)n_groups) {
            _mm_prefetch(soon, _MM_HINT_T0);
            if (n_panels == 2) _mm_prefetch(soon + 64, _MM_HINT_T0);
            _mm_prefetch(soon + bytes, _MM_HINT_T0);
            if (n_panels == 2) _mm_prefetch(soon + bytes + 64, _MM_HINT_T0);
        }
        step(n_groups, n_panels, a, a_stride, b, b_stride);
    }
    _tile_stored(0, c, bytes);
    if (has1) _tile_stored(1, c + other, bytes);
    if (has2) _tile_stored(2, below, bytes);
    if (has3) _tile_stored(3, below + other, bytes);
}

/* Where C has only so many columns of the block */
static void edge_block(int n_groups, int n_panels, bool onto, const uint8_t *a, size_t a_stride, const uint8_t *b,
                       size_t b_stride, size_t n_steps, float *c, size_t c_stride, int rows, int cols)
{
    _Alignas(64) float buffer[32 * 32];
    size_t bytes = (size_t)cols * sizeof *c;
    for (int r = 0; onto && r < rows; r++) {
        memcpy(buffer + 32 * r, c + (size_t)r * c_stride, bytes);
        for (int i = cols; i < 32; i++) buffer[32 * r + i] = 0;
    }
    TILES_DONE(buffer);
    if (n_groups == 2 && n_panels == 2)
        block(2, 2, onto, a, a_stride, b, b_stride, n_steps, buffer, 32);
    else if (n_groups == 2)
        block(2, 1, onto, a, a_stride, b, b_stride, n_steps, buffer, 32);
    else if (n_panels == 2)
        block(1, 2, onto, a, a_stride, b, b_stride, n_steps, buffer, 32);
    else
        block(1, 1, onto, a, a_stride, b, b_stride, n_steps, buffer, 32);
    TILES_DONE(buffer);
    for (int r = 0; r < rows; r++) memcpy(c + (size_t)r * c_stride, buffer + 32 * r, bytes);
}

/* All rows with one or two panels over a slice. */
static ALWAYS_INLINE void slice_of_panels(int n_panels, bool onto, const uint8_t *a, size_t a_stride, int m,
                                          const uint8_t *b, size_t b_stride, int cols, size_t n_steps, float *c,
                                          size_t c_stride)
{
    int g = 0;
    for (; n_panels == 1 && m - g >= 64 && cols >= 16; g += 64, a += 4 * a_stride, c += 64 * c_stride)
        block(4, 1, onto, a, a_stride, b, b_stride, n_steps, c, c_stride);
    for (; g < m; g += 32, a += 2 * a_stride, c += 32 * c_stride) {
        int rows = m - g < 32 ? m - g : 32, n_groups = rows > 16 ? 2 : 1;
        if (cols < 16 * n_panels)
            edge_block(n_groups, n_panels, onto, a, a_stride, b, b_stride, n_steps, c, c_stride, rows, cols);
        else if (n_groups == 2)
            block(2, n_panels, onto, a, a_stride, b, b_stride, n_steps, c, c_stride);
        else
            block(1, n_panels, onto, a, a_stride, b, b_stride, n_steps, c, c_stride);
    }
}

/* m: whole groups, or less than one for which the tiles are made. */
static void product_of_rows(const uint8_t *a, size_t a_stride, int m, const uint8_t *b, size_t b_stride, int n,
                            size_t n_steps, float *c, size_t c_stride, bool add)
{
    size_t n_slices = (n_steps + SLICE - 1) / SLICE, slice = n_slices ? (n_steps + n_slices - 1) / n_slices : 0;
    for (int p = 0; p < n; p += 2 * PANEL)
        for (size_t from = 0; from < n_steps; from += slice) {
            size_t steps = n_steps - from < slice ? n_steps - from : slice;
            const uint8_t *a_at = a + from * TILE_BYTES;
            const uint8_t *b_at = b + (size_t)(p / PANEL) * b_stride + from * TILE_BYTES;
            if (n - p > PANEL)
                slice_of_panels(2, add || from > 0, a_at, a_stride, m, b_at, b_stride, n - p, steps, c + p, c_stride);
            else
                slice_of_panels(1, add || from > 0, a_at, a_stride, m, b_at, b_stride, n - p, steps, c + p, c_stride);
        }
}

static void product(const void *a, size_t a_total, int m, const void *b, size_t b_total, int n, size_t k, float *c,
                    size_t c_stride, bool add)
{
    size_t n_steps = k / STEP, a_stride = a_total / STEP * TILE_BYTES, b_stride = b_total / STEP * TILE_BYTES;
    int left = m % 16, whole = m - left;
    TILES_DONE(a);
    TILES_DONE(b);
    tiles_begin(64, 16);
    product_of_rows(a, a_stride, whole, b, b_stride, n, n_steps, c, c_stride, add);
    if (left) {
        tiles_begin_rows(left, 64, 16);
        product_of_rows((const uint8_t *)a + (size_t)(whole / 16) * a_stride, a_stride, left, b, b_stride, n, n_steps,
                        c + (size_t)whole * c_stride, c_stride, add);
    }
    TILES_DONE(c);
    tiles_end();
}

static const rvi_train_gemm gemm_table = {"amx bf16", 16, STEP, 2, pack_a, pack_b, product, NULL, NULL};

void rvi_kernels_fill_amx_train(rvi_kernels *k)
{
    k->train_bf16 = &gemm_table;
}

#else
typedef int rvi_no_amx_train_here; /* a C file must not be empty */
#endif
