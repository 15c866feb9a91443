/* amx_panels.c - products of many rows with quantized weights, by the matrix units.
 *
 * The bits are those of ref_quant.c: integer dot products are exact in tiles too, and the f32 steps are taken on
 * vector registers in the same order. What those steps ask of the vector ports is what counts (tiles.h).
 *
 * Types of 32 weights a block: one step a block, 16 rows x 32 inputs x 16 outputs:
 *
 *     A 16 x 32 bytes        B 8 x 64 bytes: the 8 registers          C 16 x 16 int32
 *     rows of activations    of a block (panels.h), unpacked          convert, times (dw * xd), added to the row's
 *                            chain
 *
 * Types of 256: a weight's integer sc * q has up to 14 bits, so it goes as two bytes, 2^n * high + low, through two
 * tiles; nothing but multiplying until all 256 inputs are summed. Two groups of rows meet each tile of weights:
 * loading a tile costs nearly as much as multiplying by it. Sums for the minima (sum of mn * sum) are a product too:
 * each sum as two bf16 numbers without loss, so the f32 result is exact.
 *
 * Activations come in groups of 16 rows, in the order in which tiles take them. */
#if defined(__x86_64__)

#include <stdalign.h>

#include "kernels/features.h"
#include "kernels/avx512_panels.h"
#include "kernels/rows.h"
#include "kernels/tiles.h"

typedef struct narrow_acts {
    int8_t q[16][32];
    float d[16], d_sum[16];
} narrow_acts;
_Static_assert(sizeof(narrow_acts) == RVI_NARROW_TILE_BYTES, "as panels.c says");

typedef struct wide_acts {
    int8_t q[4][16][64];
    rvi_bf16 sums[16][32]; /* of each 16 inputs: 16 multiples of 32, then what is left */
    float d[16];
    float to_a_line[16];
} wide_acts;
_Static_assert(sizeof(wide_acts) == RVI_WIDE_TILE_BYTES, "as panels.c says");

/* ---- activations ---- */

/* One step of gathering results across lanes: of vectors in pairs, of pairs of pairs. */
#define ACROSS_2(combine, a, b)   combine(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b))
#define ACROSS_4(combine, ab, cd) combine(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd))
#define ACROSS_QUARTERS(combine, a, b)                                                                                 \
    combine(_mm512_shuffle_i32x4(a, b, _MM_SHUFFLE(2, 0, 2, 0)), _mm512_shuffle_i32x4(a, b, _MM_SHUFFLE(3, 1, 3, 1)))

/* Lane r: the largest magnitude in the 32 values at x + r * x_stride. */
static ALWAYS_INLINE __m512i largest_magnitudes(const float *x, size_t x_stride)
{
    __m512i four[4];
    UNROLL for (int i = 0; i < 4; i++)
    {
        __m512i top[4];
        UNROLL for (int j = 0; j < 4; j++)
        {
            const float *row = x + (size_t)(4 * i + j) * x_stride;
            top[j] = _mm512_max_epi32(magnitude(_mm512_loadu_ps(row)), magnitude(_mm512_loadu_ps(row + 16)));
        }
        four[i] = ACROSS_4(_mm512_max_epi32, ACROSS_2(_mm512_max_epi32, top[0], top[1]),
                           ACROSS_2(_mm512_max_epi32, top[2], top[3]));
    }
    __m512i first = ACROSS_QUARTERS(_mm512_max_epi32, four[0], four[1]);
    __m512i last = ACROSS_QUARTERS(_mm512_max_epi32, four[2], four[3]);
    return ACROSS_QUARTERS(_mm512_max_epi32, first, last);
}

/* Lane r: the sum of the bytes of row r. */
static ALWAYS_INLINE __m512i sums_of_rows(int8_t q[16][32])
{
    const __m512i rows = _mm512_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15);
    __m512i half[2];
    UNROLL for (int i = 0; i < 2; i++)
    {
        __m512i two[4]; /* rows each, in eight lanes each */
        UNROLL for (int j = 0; j < 4; j++) two[j] =
            _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), _mm512_load_si512(q[8 * i + 2 * j]));
        half[i] = ACROSS_4(_mm512_add_epi32, ACROSS_2(_mm512_add_epi32, two[0], two[1]),
                           ACROSS_2(_mm512_add_epi32, two[2], two[3]));
    }
    return _mm512_permutexvar_epi32(rows, ACROSS_QUARTERS(_mm512_add_epi32, half[0], half[1]));
}

/* A row's 32 values as integers: two registers; 0 where the row has no usable scale. */
static ALWAYS_INLINE void integers32(const float *x, const float *inverse, bool usable, __m512i i[2])
{
    __mmask16 some = (__mmask16) - (int)usable;
    UNROLL for (int h = 0; h < 2; h++) i[h] =
        _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_maskz_loadu_ps(some, x + 16 * h), _mm512_set1_ps(*inverse)));
}

/* Blocks of 16 rows at once: by the rule of quantize32, with one division for all of them. */
static void prepare_narrow(const float *x, size_t x_stride, void *out, size_t n)
{
    const __m512i in_order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    narrow_acts *a = out;
    for (size_t k = 0; k < n; k += 32, a++, x += 32) {
        __m512 top = _mm512_castsi512_ps(largest_magnitudes(x, x_stride)), most = _mm512_set1_ps(127.0f);
        __mmask16 finite = _mm512_cmp_ps_mask(top, _mm512_set1_ps(INFINITY), _CMP_LT_OQ);
        __mmask16 usable = finite & _mm512_cmp_ps_mask(top, _mm512_set1_ps(1e-30f), _CMP_GE_OQ);
        __m512 d = _mm512_mask_blend_ps(finite, _mm512_set1_ps(NAN), _mm512_maskz_div_ps(usable, top, most));
        alignas(64) float inverse[16];
        _mm512_store_ps(inverse, _mm512_maskz_div_ps(usable, most, top));
        for (int r = 0; r < 16; r += 2) {
            __m512i i[2], j[2];
            integers32(x + (size_t)r * x_stride, inverse + r, usable >> r & 1, i);
            integers32(x + (size_t)(r + 1) * x_stride, inverse + r + 1, usable >> (r + 1) & 1, j);
            __m512i bytes2 = _mm512_packs_epi16(_mm512_packs_epi32(i[0], i[1]), _mm512_packs_epi32(j[0], j[1]));
            _mm512_store_si512(a->q[r], _mm512_permutexvar_epi32(in_order, bytes2));
        }
        _mm512_store_ps(a->d, d);
        _mm512_store_ps(a->d_sum, _mm512_mul_ps(d, _mm512_cvtepi32_ps(sums_of_rows(a->q))));
    }
}

/* A whole number of magnitude up to 256 is exact in bf16. */
static rvi_bf16 small_bf16(int i)
{
    float f = (float)i;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return (rvi_bf16)(bits >> 16);
}

static void prepare_wide(const float *x, size_t x_stride, void *out, size_t n)
{
    for (int r = 0; r < 16; r++, x += x_stride) {
        wide_acts *a = out;
        for (size_t k = 0; k < n; k += 256, a++) {
            float inverse = choose_wide_scale(x + k, &a->d[r]);
            int32_t sums[16];
            for (int i = 0; i < 4; i++) quantize64(x + k + 64 * i, inverse, a->q[i][r], sums + 4 * i);
            for (int i = 0; i < 16; i++) {
                int high = (sums[i] + 16) >> 5; /* |high| <= 64, -16 <= rest < 16 */
                a->sums[r][i] = small_bf16(32 * high);
                a->sums[r][16 + i] = small_bf16(sums[i] - 32 * high);
            }
        }
    }
}

/* ---- types of 32 weights a block ---- */

enum {
    NARROW_CHUNK = 32,       /* blocks, */
    WIDE_PANELS = 2,         /* panels whose tiles of weights fit the first cache */
    SLICE_BYTES = 768 * 1024 /* of activations that stay in the second cache while all panels of a call meet them */
};

/* Blocks of the inputs, from .. end - 1. */
typedef struct range {
    int from, end;
} range;

typedef struct narrow_weights {
    int8_t q[NARROW_CHUNK][8][64];
    float d[NARROW_CHUNK][16], m[NARROW_CHUNK][16];
} narrow_weights;

static ALWAYS_INLINE void unpack_narrow(narrow_weights *w, const uint8_t *q, const uint8_t *scales, int n_blocks,
                                        traits t)
{
    for (int b = 0; b < n_blocks; b++, q += panel_quant_bytes(t), scales += panel_scale_bytes(t)) {
        bytes v[8];
        unpack_planes(v, q, t);
        UNROLL for (int i = 0; i < 8; i++)
            _mm512_store_si512(w->q[b][i], _mm512_sub_epi8(v[i], _mm512_set1_epi8((char)t.offset)));
        _mm512_store_ps(w->d[b], load_f16(scales, 16));
        if (t.form == ONE_MIN) _mm512_store_ps(w->m[b], load_f16(scales + 32, 16));
    }
}

typedef int32_t results[16][16];

/* Row r of results as floats. While tile instructions are in flight, the second vector port neither multiplies nor
 * converts, but it adds (tiles.h): most rows become floats by two additions, which leave the first port to the
 * multiplications of the step. An integer below 2^22 added to the bits of 1.5 * 2^23 is that float plus the integer,
 * so the difference is exact. Some rows are converted, so that both ports have as much to do; none where minima give
 * the first port more to do anyway. */
static ALWAYS_INLINE __m512 narrow_float(results c, int r, traits t)
{
    __m512i i = _mm512_load_si512(c[r]);
    if (r % 4 == 0 && t.form != ONE_MIN) return _mm512_cvtepi32_ps(i);
    __m512i shifted = _mm512_add_epi32(i, _mm512_set1_epi32(0x4b400000));
    return _mm512_sub_ps(_mm512_castsi512_ps(shifted), _mm512_set1_ps(12582912.0f));
}

/* A block: its weights' place in the chunk, and its activations. */
typedef struct narrow_block {
    const narrow_weights *w;
    int b;
    const narrow_acts *a;
} narrow_block;

static ALWAYS_INLINE narrow_block narrow_at(const narrow_weights *w, int b, const narrow_acts *a)
{
    return (narrow_block){w, b, a + b};
}

/* The step of the chains of rows from .. end - 1 with the results of one tile. The compiler is kept from moving rows:
 * it would put all additions first, and then one port has nothing to do while the other works. */
static ALWAYS_INLINE void narrow_rows(__m512 acc[16], int from, int end, results c, narrow_block k, traits t)
{
    __m512 d = _mm512_load_ps(k.w->d[k.b]), m = t.form == ONE_MIN ? _mm512_load_ps(k.w->m[k.b]) : d;
    UNROLL for (int r = from; r < end; r++)
    {
        __m512 scale = _mm512_mul_ps(d, _mm512_set1_ps(k.a->d[r]));
        acc[r] = _mm512_fmadd_ps(narrow_float(c, r, t), scale, acc[r]);
        if (t.form == ONE_MIN) acc[r] = _mm512_fmadd_ps(m, _mm512_set1_ps(k.a->d_sum[r]), acc[r]);
        __asm__ volatile("" : "+v"(acc[r]));
    }
}

/* A turn of even blocks, which have the tiles 0, 4 and 6: `now` multiplies, the odd block before it is stored, the even
 * one before that takes its steps. Rows lie between tile instructions, so that neither fill the core's queues. */
static ALWAYS_INLINE void narrow_even(__m512 acc[16], results c[2], narrow_block now, narrow_block before, traits t)
{
    _tile_zero(0);
    narrow_rows(acc, 0, 3, c[0], before, t);
    _tile_loadd(4, now.a->q, 32);
    narrow_rows(acc, 3, 6, c[0], before, t);
    _tile_loadd(6, now.w->q[now.b], 64);
    narrow_rows(acc, 6, 9, c[0], before, t);
    _tile_dpbssd(0, 4, 6);
    narrow_rows(acc, 9, 12, c[0], before, t);
    _tile_stored(1, c[1], 64);
    TILES_DONE(c);
    narrow_rows(acc, 12, 16, c[0], before, t);
}

/* The same of odd blocks, which have the tiles 1, 5 and 7. */
static ALWAYS_INLINE void narrow_odd(__m512 acc[16], results c[2], narrow_block now, narrow_block before, traits t)
{
    _tile_zero(1);
    narrow_rows(acc, 0, 3, c[1], before, t);
    _tile_loadd(5, now.a->q, 32);
    narrow_rows(acc, 3, 6, c[1], before, t);
    _tile_loadd(7, now.w->q[now.b], 64);
    narrow_rows(acc, 6, 9, c[1], before, t);
    _tile_dpbssd(1, 5, 7);
    narrow_rows(acc, 9, 12, c[1], before, t);
    _tile_stored(0, c[0], 64);
    TILES_DONE(c);
    narrow_rows(acc, 12, 16, c[1], before, t);
}

static ALWAYS_INLINE void narrow_begin(__m512 acc[16], bool first, const float *out, size_t out_stride)
{
    UNROLL for (int r = 0; r < 16; r++) acc[r] =
        first ? _mm512_setzero_ps() : _mm512_loadu_ps(out + (size_t)r * out_stride);
}

static ALWAYS_INLINE void narrow_end(const __m512 acc[16], float *out, size_t out_stride)
{
    UNROLL for (int r = 0; r < 16; r++) _mm512_storeu_ps(out + (size_t)r * out_stride, acc[r]);
}

/* All groups of rows (x_stride blocks apart) over an even number of blocks. The first two blocks of a group multiply
 * while the last two of the group before take their steps; after the last group they are the last group's own, and
 * nobody looks at them. */
static ALWAYS_INLINE void narrow_pairs(const narrow_weights *w, const narrow_acts *x, size_t x_stride, int n_groups,
                                       int n_blocks, bool first, float *out, size_t out_stride, traits t)
{
    alignas(64) results c[2];
    _tile_zero(0);
    _tile_loadd(4, x[0].q, 32);
    _tile_loadd(6, w->q[0], 64);
    _tile_dpbssd(0, 4, 6);
    _tile_zero(1);
    _tile_loadd(5, x[1].q, 32);
    _tile_loadd(7, w->q[1], 64);
    _tile_dpbssd(1, 5, 7);
    _tile_stored(0, c[0], 64);
    TILES_DONE(c);
    for (int g = 0; g < n_groups; g++, out += 16 * out_stride) {
        const narrow_acts *next = g + 1 < n_groups ? x + x_stride : x;
        __m512 acc[16];
        narrow_begin(acc, first, out, out_stride);
        int b = 2;
        for (; b < n_blocks; b += 2) {
            narrow_even(acc, c, narrow_at(w, b, x), narrow_at(w, b - 2, x), t);
            narrow_odd(acc, c, narrow_at(w, b + 1, x), narrow_at(w, b - 1, x), t);
        }
        narrow_even(acc, c, narrow_at(w, 0, next), narrow_at(w, b - 2, x), t);
        narrow_odd(acc, c, narrow_at(w, 1, next), narrow_at(w, b - 1, x), t);
        narrow_end(acc, out, out_stride);
        x = next;
    }
}

/* All groups over a single block. */
static ALWAYS_INLINE void narrow_single(const narrow_weights *w, const narrow_acts *x, size_t x_stride, int n_groups,
                                        bool first, float *out, size_t out_stride, traits t)
{
    alignas(64) results c;
    for (int g = 0; g < n_groups; g++, x += x_stride, out += 16 * out_stride) {
        __m512 acc[16];
        _tile_zero(0);
        _tile_loadd(4, x->q, 32);
        _tile_loadd(6, w->q[0], 64);
        _tile_dpbssd(0, 4, 6);
        _tile_stored(0, c, 64);
        TILES_DONE(c);
        narrow_begin(acc, first, out, out_stride);
        narrow_rows(acc, 0, 16, c, narrow_at(w, 0, x), t);
        narrow_end(acc, out, out_stride);
    }
}

static ALWAYS_INLINE void narrow_panel(const uint8_t *panel, const narrow_acts *x, int n_groups, float *out,
                                       size_t out_stride, size_t n, range slice, traits t)
{
    alignas(64) narrow_weights w;
    const uint8_t *scales = panel + n / 32 * panel_quant_bytes(t);
    size_t n_blocks = n / 32;
    for (int b = slice.from, now; b < slice.end; b += now) {
        now = slice.end - b < NARROW_CHUNK ? slice.end - b : NARROW_CHUNK;
        if (now > 1) now -= now % 2;
        unpack_narrow(&w, panel + (size_t)b * panel_quant_bytes(t), scales + (size_t)b * panel_scale_bytes(t), now, t);
        TILES_DONE(&w);
        if (now > 1)
            narrow_pairs(&w, x + b, n_blocks, n_groups, now, b == 0, out, out_stride, t);
        else
            narrow_single(&w, x + b, n_blocks, n_groups, b == 0, out, out_stride, t);
    }
}

/* ---- types of 256 ---- */

typedef struct wide_weights {
    int8_t high[WIDE_PANELS][4][16][64], low[WIDE_PANELS][4][16][64];
    rvi_bf16 min[WIDE_PANELS][16][32]; /* pairs of 16 outputs: the minima of each 16 inputs, and once more */
    float d[WIDE_PANELS][16], m[WIDE_PANELS][16];
} wide_weights;

/* sc * q = 2^n * high + low: without an offset, sc <= 63 is taken apart and each part times q <= 31 is a byte; else the
 * signed product is. */
static ALWAYS_INLINE unsigned split_bits(traits t)
{
    return t.offset ? 7 : 3;
}

/* Both bytes of a pair are multiplied at once: the lower product does not reach into the upper. */
static ALWAYS_INLINE void split_scale(__m512i v, __m512i scale, int8_t *high, int8_t *low)
{
    const __m512i seven = _mm512_set1_epi16(7);
    _mm512_store_si512(low, _mm512_mullo_epi16(v, _mm512_and_si512(scale, seven)));
    _mm512_store_si512(high, _mm512_mullo_epi16(v, _mm512_srli_epi16(scale, 3)));
}

static ALWAYS_INLINE void split_product(__m512i v, __m512i scale, int8_t *high, int8_t *low)
{
    const __m512i seven = _mm512_set1_epi16(127), byte = _mm512_set1_epi16(255);
    __m512i even = _mm512_mullo_epi16(_mm512_srai_epi16(_mm512_slli_epi16(v, 8), 8), scale);
    __m512i odd = _mm512_mullo_epi16(_mm512_srai_epi16(v, 8), scale);
    __m512i l = _mm512_or_si512(_mm512_and_si512(even, seven), _mm512_slli_epi16(_mm512_and_si512(odd, seven), 8));
    __m512i h = _mm512_or_si512(_mm512_and_si512(_mm512_srai_epi16(even, 7), byte),
                                _mm512_slli_epi16(_mm512_srai_epi16(odd, 7), 8));
    _mm512_store_si512(low, l);
    _mm512_store_si512(high, h);
}

/* The two halves of each lane. */
static ALWAYS_INLINE __m512i as_pairs(__m512i i)
{
    return _mm512_or_si512(_mm512_and_si512(i, _mm512_set1_epi32(0xffff)), _mm512_slli_epi32(i, 16));
}

static ALWAYS_INLINE __m512i bf16_pairs(__m512i first, __m512i second)
{
    __m512i a = _mm512_castps_si512(_mm512_cvtepi32_ps(first)), b = _mm512_castps_si512(_mm512_cvtepi32_ps(second));
    return _mm512_or_si512(_mm512_srli_epi32(a, 16), _mm512_and_si512(b, _mm512_set1_epi32((int)0xffff0000u)));
}

/* One block of a panel, into place p. */
static ALWAYS_INLINE void unpack_wide(wide_weights *w, int p, const uint8_t *q, const uint8_t *scales, traits t)
{
    const uint8_t *small = scales + (t.form == NO_MIN ? 32 : 64);
    for (int g = 0; g < 8; g++, q += panel_quant_bytes(t)) {
        bytes v[8];
        unpack_planes(v, q, t);
        UNROLL for (int i = 0; i < 8; i++)
        {
            int at = t.scale_inputs == 32 ? g : 2 * g + i / 4;
            __m512i scale = as_pairs(small_scale(small, at, false, t));
            int8_t *high = w->high[p][g / 2][8 * (g % 2) + i], *low = w->low[p][g / 2][8 * (g % 2) + i];
            if (t.offset)
                split_product(_mm512_sub_epi8(v[i], _mm512_set1_epi8((char)t.offset)), scale, high, low);
            else
                split_scale(v[i], scale, high, low);
        }
    }
    _mm512_store_ps(w->d[p], load_f16(scales, 16));
    if (t.form != SCALED_MIN) return;
    _mm512_store_ps(w->m[p], load_f16(scales + 32, 16));
    for (int i = 0; i < 8; i++) {
        bool each = t.scale_inputs == 16;
        __m512i pair = bf16_pairs(small_scale(small, each ? 2 * i : i, true, t),
                                  small_scale(small, each ? 2 * i + 1 : i, true, t));
        _mm512_store_si512(w->min[p][i], pair);
        _mm512_store_si512(w->min[p][8 + i], pair);
    }
}

/* Results of two groups of rows. Minima are computed first, while the steps of the job before still need its own: they
 * take turns. */
typedef struct wide_results {
    results high[2], low[2];
    float min[2][2][16][16];
} wide_results;

/* Two neighbouring groups of rows, or a last single one, over one block of 256 of one panel: what goes in, and where
 * the results are added. */
typedef struct wide_job {
    const wide_acts *a[2];
    float *out[2];
    int n_groups;
    int p;      /* panel */
    bool first; /* block */
} wide_job;

/* A quarter of a group's step: 4 rows. */
static ALWAYS_INLINE void wide_step(const wide_job *j, int group, int quarter, const wide_results *c, bool odd,
                                    const wide_weights *w, size_t out_stride, traits t)
{
    __m512 d = _mm512_load_ps(w->d[j->p]), m = t.form == SCALED_MIN ? _mm512_load_ps(w->m[j->p]) : d;
    UNROLL for (int r = 4 * quarter; r < 4 * quarter + 4; r++)
    {
        float *at = j->out[group] + (size_t)r * out_stride;
        __m512 xd = _mm512_set1_ps(j->a[group]->d[r]), acc = j->first ? _mm512_setzero_ps() : _mm512_loadu_ps(at);
        __m512i dot = _mm512_add_epi32(_mm512_slli_epi32(_mm512_load_si512(c->high[group][r]), split_bits(t)),
                                       _mm512_load_si512(c->low[group][r]));
        acc = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), _mm512_mul_ps(d, xd), acc);
        if (t.form == SCALED_MIN)
            acc = _mm512_fnmadd_ps(_mm512_load_ps(c->min[odd][group][r]), _mm512_mul_ps(m, xd), acc);
        _mm512_storeu_ps(at, acc);
    }
}

/* Bytes of weights are signed where there is an offset to remove. */
#define WIDE_DOT(RESULT, ROWS, WEIGHTS)                                                                                \
    do {                                                                                                               \
        if (t.offset)                                                                                                  \
            _tile_dpbssd(RESULT, ROWS, WEIGHTS);                                                                       \
        else                                                                                                           \
            _tile_dpbsud(RESULT, ROWS, WEIGHTS);                                                                       \
    } while (0)

/* The minima, by the tiles that the second group needs last. */
static ALWAYS_INLINE void wide_minima(const wide_job *j, wide_results *c, bool odd, const wide_weights *w)
{
    bool two = j->n_groups == 2;
    _tile_zero(2);
    _tile_loadd(6, w->min[j->p], 64);
    _tile_loadd(4, j->a[0]->sums, 64);
    _tile_dpbf16ps(2, 4, 6);
    if (two) {
        _tile_zero(3);
        _tile_loadd(5, j->a[1]->sums, 64);
        _tile_dpbf16ps(3, 5, 6);
    }
    _tile_stored(2, c->min[odd][0], 64);
    if (two) _tile_stored(3, c->min[odd][1], 64);
}

/* A quarter of the multiplying: 64 inputs. Both groups meet the weights while these are in their tiles. */
static ALWAYS_INLINE void wide_multiply(const wide_job *j, int quarter, const wide_weights *w, traits t)
{
    _tile_loadd(6, w->high[j->p][quarter], 64);
    _tile_loadd(4, j->a[0]->q[quarter], 64);
    WIDE_DOT(0, 4, 6);
    _tile_loadd(7, w->low[j->p][quarter], 64);
    WIDE_DOT(1, 4, 7);
    if (j->n_groups == 2) {
        _tile_loadd(5, j->a[1]->q[quarter], 64);
        WIDE_DOT(2, 5, 6);
        WIDE_DOT(3, 5, 7);
    }
}

static ALWAYS_INLINE void wide_store(const wide_job *j, wide_results *c)
{
    _tile_stored(0, c->high[0], 64);
    _tile_stored(1, c->low[0], 64);
    if (j->n_groups == 2) {
        _tile_stored(2, c->high[1], 64);
        _tile_stored(3, c->low[1], 64);
    }
    TILES_DONE(c);
}

/* The job `now` multiplies, while the steps of the one before are taken; either may be NULL. */
static ALWAYS_INLINE void wide_turn(const wide_job *now, const wide_job *before, bool odd, wide_results *c,
                                    const wide_weights *w, size_t out_stride, traits t)
{
    if (before) wide_store(before, c);
    if (now) {
        if (t.form == SCALED_MIN) wide_minima(now, c, odd, w);
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    UNROLL for (int quarter = 0; quarter < 4; quarter++)
    {
        if (now) wide_multiply(now, quarter, w, t);
        if (before) wide_step(before, 0, quarter, c, !odd, w, out_stride, t);
        if (before && before->n_groups == 2) wide_step(before, 1, quarter, c, !odd, w, out_stride, t);
    }
}

/* Up to WIDE_PANELS neighbouring panels: while two groups of rows are in the first cache, they meet all of them. */
static ALWAYS_INLINE void wide_panels(const uint8_t *panels, size_t panel_bytes, int n_panels, const wide_acts *x,
                                      int n_groups, float *out, size_t out_stride, size_t n, range slice, traits t)
{
    alignas(64) wide_weights w;
    alignas(64) wide_results c;
    const size_t quants = 8 * panel_quant_bytes(t);
    int n_blocks = (int)(n / 256);
    for (int b = slice.from; b < slice.end; b++) {
        for (int p = 0; p < n_panels; p++) {
            const uint8_t *panel = panels + (size_t)p * panel_bytes;
            unpack_wide(&w, p, panel + (size_t)b * quants,
                        panel + (size_t)n_blocks * quants + (size_t)b * panel_scale_bytes(t), t);
        }
        TILES_DONE(&w);
        wide_job jobs[2] = {{.n_groups = 0}};
        bool odd = false;
        for (int g = 0; g < n_groups; g += 2)
            for (int p = 0; p < n_panels; p++, odd = !odd) {
                const wide_acts *a = x + (size_t)g * (size_t)n_blocks + b;
                float *to = out + (size_t)(16 * g) * out_stride + RVI_PANEL * p;
                jobs[odd] =
                    (wide_job){{a, a + n_blocks}, {to, to + 16 * out_stride}, n_groups - g < 2 ? 1 : 2, p, b == 0};
                wide_turn(&jobs[odd], g || p ? &jobs[!odd] : NULL, odd, &c, &w, out_stride, t);
            }
        wide_turn(NULL, &jobs[!odd], odd, &c, &w, out_stride, t);
    }
}

/* ---- the entries ---- */

/* The blocks whose activations stay in cache together, from `from` on. */
static ALWAYS_INLINE range slice_from(int from, int n_blocks, int n_groups, traits t)
{
    int group = t.block_weights == 256 ? RVI_WIDE_TILE_BYTES : RVI_NARROW_TILE_BYTES;
    int step = t.block_weights == 256 ? 1 : NARROW_CHUNK, n = SLICE_BYTES / (n_groups * group) / step * step;
    if (n < step) n = step;
    return (range){from, n_blocks - from < n ? n_blocks : from + n};
}

static ALWAYS_INLINE void gemm_tiles(traits t, size_t panel_bytes, const void *panels, int n_panels, const void *x,
                                     int n_groups, float *out, size_t out_stride, size_t n)
{
    if (t.block_weights == 256)
        tiles_begin(64, 16);
    else
        tiles_begin(32, 8);
    const int step = t.block_weights == 256 ? WIDE_PANELS : 1, n_blocks = (int)(n / t.block_weights);
    for (range slice = {0}; slice.end < n_blocks;) {
        slice = slice_from(slice.end, n_blocks, n_groups, t);
        for (int p = 0; p < n_panels; p += step) {
            const uint8_t *panel = (const uint8_t *)panels + (size_t)p * panel_bytes;
            float *to = out + RVI_PANEL * p;
            int now = n_panels - p < step ? n_panels - p : step;
            if (t.block_weights == 256)
                wide_panels(panel, panel_bytes, now, x, n_groups, to, out_stride, n, slice, t);
            else
                narrow_panel(panel, x, n_groups, to, out_stride, n, slice, t);
        }
    }
    tiles_end();
}

#define X(name, ...)                                                                                                   \
    static void gemm_tiles_##name(const void *panels, int n_panels, const void *x, int n_groups, float *out,           \
                                  size_t out_stride, size_t n)                                                         \
    {                                                                                                                  \
        gemm_tiles(TRAITS(name, __VA_ARGS__), rvi_panel_bytes(RVI_##name, n), panels, n_panels, x, n_groups, out,      \
                   out_stride, n);                                                                                     \
    }
QUANTIZED(X)
#undef X

void rvi_kernels_fill_amx(rvi_kernels *k)
{
#define X(name, ...)                                                                                                   \
    k->gemm_tiles[RVI_##name] = gemm_tiles_##name;                                                                     \
    k->prepare_tiles[RVI_##name] = name##_WEIGHTS == 256 ? prepare_wide : prepare_narrow;
    QUANTIZED(X)
#undef X
    rvi_kernels_fill_amx_float(k);
    if (rvi_has_avx512_bf16()) rvi_kernels_fill_amx_train(k);
}

#else
typedef int rvi_no_amx_panels_here; /* a C file must not be empty */
#endif
