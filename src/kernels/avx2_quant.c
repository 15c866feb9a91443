/* avx2_quant.c - the AVX2 row for quantized data: activations to int8, products with int8 activations, weights
 * to f32.
 *
 * Rows of weights go through panels (unpack.h). Eight outputs share a register, one chain in each lane:
 *     few activation rows    lanes are 8 rows of weights, their dot products added across by a tree of integer adds;
 *     many activation rows   lanes are 8 rows of activations, repacked so that a lane holds 4 neighbouring k: no
 *                            adding across, and each unpacked weight row serves up to 32 activation rows.
 * Integer parts are exact in any order and the f32 steps are those of ref_quant.c, so the bits are too.
 *
 * Bounds: |activation| <= 127 (quantize_act). One maddubs adds two products: at most 2 * 128 * 127 = 32512 <
 * 2^15. For types that are not `large` (|q| <= 32) four of them fit: 4 * 2 * 32 * 127 = 32512. Scaled sums
 * over a block stay below 2^24. */
#if defined(__x86_64__)

#include <math.h>

#include "kernels/avx2.h"
#include "kernels/rows.h"
#include "kernels/vector_quant.h"

/* ---- activations ---- */

static ALWAYS_INLINE int32_t largest_lane(__m256i v)
{
    __m128i v4 = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    __m128i v2 = _mm_max_epi32(v4, _mm_shuffle_epi32(v4, _MM_SHUFFLE(1, 0, 3, 2)));
    return _mm_cvtsi128_si32(_mm_max_epi32(v2, _mm_shuffle_epi32(v2, _MM_SHUFFLE(2, 3, 0, 1))));
}

/* The bits of |x| order as integers like the values, with infinity and then NaN on top. */
static void quantize_block(const float *x, rvi_act_block *out)
{
    const __m256i no_sign = _mm256_set1_epi32(0x7fffffff);
    __m256 v[4];
    __m256i top = _mm256_setzero_si256();
    UNROLL for (int i = 0; i < 4; i++) {
        v[i] = _mm256_loadu_ps(x + 8 * i);
        top = _mm256_max_epi32(top, _mm256_and_si256(_mm256_castps_si256(v[i]), no_sign));
    }
    int32_t amax_bits = largest_lane(top);
    float amax;
    memcpy(&amax, &amax_bits, sizeof amax);
    if (!(amax >= 1e-30f && amax < INFINITY)) {
        memset(out, 0, sizeof *out);
        if (!(amax < INFINITY)) out->d = NAN;
        return;
    }

    const __m256 inverse = _mm256_set1_ps(127.0f / amax);
    __m256i q[4];
    UNROLL for (int i = 0; i < 4; i++) q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse));
    __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
    bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    __m256i sums = _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes), _mm256_set1_epi16(1));
    sums = _mm256_hadd_epi32(sums, sums);
    sums = _mm256_hadd_epi32(sums, sums);

    out->d = amax / 127.0f;
    out->sum[0] = (int16_t)_mm256_extract_epi32(sums, 0);
    out->sum[1] = (int16_t)_mm256_extract_epi32(sums, 4);
    _mm256_storeu_si256((__m256i *)out->q, bytes);
}

static void quantize_act(const float *x, rvi_act_block *out, size_t n)
{
    for (size_t b = 0; b < n / 32; b++) quantize_block(x + 32 * b, out + b);
}

/* ---- lanes are rows of weights ---- */

/* Pairs of products of weights and activations as int16. maddubs wants one side unsigned: a negative weight
 * lends its sign. */
static ALWAYS_INLINE __m256i multiply_pairs(__m256i w, __m256i x, traits t)
{
    return t.negative ? _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w)) : _mm256_maddubs_epi16(w, x);
}

/* Lane r of the result: the sum of the 8 lanes of v[r]. */
static ALWAYS_INLINE __m256i sum_each(const __m256i v[8])
{
    __m256i a = _mm256_hadd_epi32(_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3]));
    __m256i b = _mm256_hadd_epi32(_mm256_hadd_epi32(v[4], v[5]), _mm256_hadd_epi32(v[6], v[7]));
    return _mm256_add_epi32(_mm256_permute2x128_si256(a, b, 0x20), _mm256_permute2x128_si256(a, b, 0x31));
}

/* Block b of the eight rows of a panel times one block of activations, scales included. */
static ALWAYS_INLINE ints dot_rows(const panel *p, int b, const rvi_act_block *x, traits t)
{
    /* Spreads a pair of int16 scales: the first over the lower 16 weights, the second over the upper. */
    const __m256i spread = _mm256_setr_epi8(0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1,
                                            2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3);
    __m256i xq = _mm256_loadu_si256((const __m256i *)x->q), v[8];
    UNROLL for (int r = 0; r < 8; r++) {
        __m256i scale = _mm256_set1_epi16(1);
        if (t.scaled) scale = _mm256_shuffle_epi8(_mm256_set1_epi32((int)p->scale[b][r]), spread);
        v[r] = _mm256_madd_epi16(multiply_pairs(load_ints(p->q[b][r]), xq, t), scale);
    }
    return sum_each(v);
}

/* ---- lanes are rows of activations ---- */

enum {
    FEW = 4,                   /* up to here, weights in the lanes are faster */
    X_ROWS = 32, W_ROWS = 32,  /* outputs of one pass over n; their accumulators live on the stack */
    X_PANELS = X_ROWS / WIDTH
};

/* Up to 256 activations of eight rows: q[b][g] holds elements 4 g .. 4 g + 3 of block b of each row. */
typedef struct act_panel {
    __m256i q[CHUNK_BLOCKS][8];
    act_lanes lanes[CHUNK_BLOCKS];
} act_panel;

/* An 8 x 8 matrix of 32-bit elements. */
static ALWAYS_INLINE void transpose(__m256i v[8])
{
    __m256i a[8], b[8];
    UNROLL for (int i = 0; i < 8; i += 2) {
        a[i] = _mm256_unpacklo_epi32(v[i], v[i + 1]);
        a[i + 1] = _mm256_unpackhi_epi32(v[i], v[i + 1]);
    }
    UNROLL for (int i = 0; i < 8; i += 4) {
        b[i] = _mm256_unpacklo_epi64(a[i], a[i + 2]);
        b[i + 1] = _mm256_unpackhi_epi64(a[i], a[i + 2]);
        b[i + 2] = _mm256_unpacklo_epi64(a[i + 1], a[i + 3]);
        b[i + 3] = _mm256_unpackhi_epi64(a[i + 1], a[i + 3]);
    }
    UNROLL for (int i = 0; i < 4; i++) {
        v[i] = _mm256_permute2x128_si256(b[i], b[i + 4], 0x20);
        v[i + 4] = _mm256_permute2x128_si256(b[i], b[i + 4], 0x31);
    }
}

/* Rows past the last one repeat it; their results are not stored. */
static void pack_activations(act_panel *p, const rvi_act_block *x, size_t x_stride, int n_rows, int n_blocks)
{
    for (int b = 0; b < n_blocks; b++) {
        alignas(32) float d[8], d_sum[8];
        alignas(32) pair sums[8];
        __m256i v[8];
        UNROLL for (int r = 0; r < 8; r++) {
            const rvi_act_block *xb = x + (size_t)RVI_MIN(r, n_rows - 1) * x_stride + b;
            v[r] = _mm256_loadu_si256((const __m256i *)xb->q);
            d[r] = xb->d;
            d_sum[r] = xb->d * (float)(xb->sum[0] + xb->sum[1]);
            sums[r] = pair_of(xb->sum[0], xb->sum[1]);
        }
        transpose(v);
        UNROLL for (int g = 0; g < 8; g++) p->q[b][g] = v[g];
        p->lanes[b] = (act_lanes){_mm256_load_ps(d), _mm256_load_ps(d_sum), load_ints(sums)};
    }
}

/* One block of one weight row times eight activation rows, scales included. */
static ALWAYS_INLINE __m256i dot_lanes(const int8_t *w, pair scale, const __m256i *x, traits t)
{
    __m256i total = _mm256_setzero_si256();
    UNROLL for (int half = 0; half < 2; half++) {
        __m256i sum = _mm256_setzero_si256(), s = _mm256_set1_epi16(t.scaled ? (short)pair_part(scale, half) : 1);
        UNROLL for (int g = 4 * half; g < 4 * half + 4; g++) {
            int32_t four;
            memcpy(&four, w + 4 * g, sizeof four);
            __m256i product = multiply_pairs(_mm256_set1_epi32(four), x[g], t);
            if (t.large) total = _mm256_add_epi32(total, _mm256_madd_epi16(product, s));
            else sum = _mm256_add_epi16(sum, product);
        }
        if (!t.large) total = _mm256_add_epi32(total, _mm256_madd_epi16(sum, s));
    }
    return total;
}

/* Row r of a weight panel against one panel of activations: the chains of eight outputs at acc. */
static ALWAYS_INLINE void chain_lanes(float *acc, const panel *p, int r, const act_panel *x, int n_blocks, traits t)
{
    __m256 a = _mm256_load_ps(acc);
    for (int b = 0; b < n_blocks; b++) {
        __m256i min = _mm256_set1_epi32(t.form == SCALED_MIN ? (int)p->min[b][r] : 0);
        __m256 m = t.form == NO_MIN ? _mm256_setzero_ps() : _mm256_set1_ps(p->m[b][r]);
        pair scale = t.scaled ? p->scale[b][r] : 0;
        __m256i dot = dot_lanes(p->q[b][r], scale, x->q[b], t);
        a = chain_step(a, dot, t, _mm256_set1_ps(p->d[b][r]), m, min, x->lanes[b]);
    }
    _mm256_store_ps(acc, a);
}

/* At most W_ROWS x X_ROWS outputs. */
static ALWAYS_INLINE void gemm_tile(unpack_fn unpack, traits t, const uint8_t *w, size_t w_stride, int n_w,
                                    const rvi_act_block *x, size_t x_stride, int n_x, float *out, size_t out_stride,
                                    size_t n)
{
    alignas(32) float acc[W_ROWS][X_ROWS];
    act_panel xp[X_PANELS];
    int n_panels = (n_x + 7) / 8;
    memset(acc, 0, sizeof acc);
    for (size_t start = 0; start < n; start += CHUNK) {
        int n_blocks = chunk_blocks(n, start);
        for (int j = 0; j < n_panels; j++)
            pack_activations(&xp[j], x + (size_t)(8 * j) * x_stride + start / 32, x_stride, n_x - 8 * j, n_blocks);
        for (int iw = 0; iw < n_w; iw += WIDTH) {
            panel p;
            int rows = RVI_MIN(n_w - iw, WIDTH);
            unpack_rows(&p, unpack, t, w + (size_t)iw * w_stride, w_stride, rows, rows, start, n_blocks);
            for (int r = 0; r < rows; r++)
                for (int j = 0; j < n_panels; j++) chain_lanes(acc[iw + r] + 8 * j, &p, r, &xp[j], n_blocks, t);
        }
    }
    for (int ix = 0; ix < n_x; ix++)
        for (int iw = 0; iw < n_w; iw++) out[(size_t)ix * out_stride + (size_t)iw] = acc[iw][ix];
}

static ALWAYS_INLINE void gemm_act(unpack_fn unpack, traits t, const void *w, size_t w_stride, int n_w,
                                   const rvi_act_block *x, size_t x_stride, int n_x, float *out, size_t out_stride,
                                   size_t n)
{
    if (n_x <= FEW) {
        gemm_rows(unpack, t, w, w_stride, n_w, x, x_stride, n_x, out, out_stride, n);
        return;
    }
    for (int ix = 0; ix < n_x; ix += X_ROWS)
        for (int iw = 0; iw < n_w; iw += W_ROWS)
            gemm_tile(unpack, t, (const uint8_t *)w + (size_t)iw * w_stride, w_stride, RVI_MIN(n_w - iw, W_ROWS),
                      x + (size_t)ix * x_stride, x_stride, RVI_MIN(n_x - ix, X_ROWS),
                      out + (size_t)ix * out_stride + iw, out_stride, n);
}

#define X(...) DEFINE_TYPE(gemm_act, __VA_ARGS__)
QUANTIZED(X)
#undef X

void rvi_kernels_fill_avx2_quant(rvi_kernels *k)
{
    k->quantize_act = quantize_act;
#define X(...) FILL_TYPE(k, __VA_ARGS__)
    QUANTIZED(X)
#undef X
}

#else
typedef int rvi_no_avx2_quant_here; /* a C file must not be empty */
#endif
