/* avx2_quant.c - the AVX2 row for quantized data: activations to int8, weights to f32, weights into panels. */
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

/* The largest magnitude of n values. Its bits order as integers like the values, with infinity and then NaN on top. */
static ALWAYS_INLINE float largest_magnitude(const float *x, int n)
{
    const __m256i no_sign = _mm256_set1_epi32(0x7fffffff);
    __m256i top = _mm256_setzero_si256();
    for (int i = 0; i < n; i += 8)
        top = _mm256_max_epi32(top, _mm256_and_si256(_mm256_castps_si256(_mm256_loadu_ps(x + i)), no_sign));
    int32_t bits = largest_lane(top);
    float amax;
    memcpy(&amax, &bits, sizeof amax);
    return amax;
}

/* 32 integers and the sums of their halves; amax is a number other than 0. */
static ALWAYS_INLINE void quantize32(const float *x, float inverse, int8_t *q, int16_t *sums)
{
    __m256i i32[4];
    UNROLL for (int i = 0; i < 4; i++) i32[i] =
        _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), _mm256_set1_ps(inverse)));
    __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(i32[0], i32[1]), _mm256_packs_epi32(i32[2], i32[3]));
    bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    __m256i sum = _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes), _mm256_set1_epi16(1));
    sum = _mm256_hadd_epi32(sum, sum);
    sum = _mm256_hadd_epi32(sum, sum);
    sums[0] = (int16_t)_mm256_extract_epi32(sum, 0);
    sums[1] = (int16_t)_mm256_extract_epi32(sum, 4);
    _mm256_storeu_si256((__m256i *)q, bytes);
}

static void quantize_act(const float *x, rvi_act_block *out, size_t n)
{
    for (; n; n -= 32, x += 32, out++) {
        float amax = largest_magnitude(x, 32);
        if (amax >= 1e-30f && amax < INFINITY) {
            int16_t sums[2];
            out->d = amax / 127.0f;
            quantize32(x, 127.0f / amax, out->q, sums);
            out->sum = sums[0] + sums[1];
            out->d_sum = out->d * (float)out->sum;
        } else {
            memset(out, 0, sizeof *out);
            if (!(amax < INFINITY)) out->d = out->d_sum = NAN;
        }
    }
}

static void quantize_wide(const float *x, rvi_act_wide *out, size_t n)
{
    for (; n; n -= 256, x += 256, out++) {
        float amax = largest_magnitude(x, 256);
        if (amax >= 1e-30f && amax < INFINITY) {
            out->d = amax / 127.0f;
            for (int i = 0; i < 8; i++) {
                quantize32(x + 32 * i, 127.0f / amax, out->q + 32 * i, out->sum16 + 2 * i);
                out->sum32[i] = (int16_t)(out->sum16[2 * i] + out->sum16[2 * i + 1]);
            }
        } else {
            memset(out, 0, sizeof *out);
            if (!(amax < INFINITY)) out->d = NAN;
        }
    }
}

#define X(...) DEFINE_QUANT(__VA_ARGS__)
QUANTIZED(X)
#undef X

void rvi_kernels_fill_avx2_quant(rvi_kernels *k)
{
    k->quantize_act = quantize_act;
    k->quantize_wide = quantize_wide;
#define X(name, ...) FILL_QUANT(k, name)
    QUANTIZED(X)
#undef X
}

#else
typedef int rvi_no_avx2_quant_here; /* a C file must not be empty */
#endif
