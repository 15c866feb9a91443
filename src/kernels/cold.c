/* cold.c - making the 4 bit form of keys and values (kernels.h). There is one way for all instruction sets: a page is
 * made once, and read many times. */
#include <math.h>
#include <string.h>

#include "kernels/kernels.h"

void rvi_attn_rotate(float *x, size_t n)
{
    size_t block = n & (~n + 1); /* the largest power of 2 that divides n */
    float scale = 1.0f / sqrtf((float)block);
    for (size_t at = 0; at < n; at += block)
        for (size_t half = block / 2; half; half /= 2)
            for (size_t i = at; i < at + block; i += 2 * half)
                for (size_t j = i; j < i + half; j++) {
                    float a = x[j], b = x[j + half];
                    x[j] = a + b;
                    x[j + half] = a - b;
                }
    for (size_t i = 0; i < n; i++) x[i] *= scale;
}

void rvi_attn_quantize4(const float *x, uint8_t *q, size_t n, rvi_f16 *d, rvi_f16 *m)
{
    float low = x[0], high = x[0], sum = 0.0f;
    for (size_t i = 0; i < n; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
        sum += x[i] * 0.0f; /* NaN where any is not finite */
    }
    *d = rvi_f32_to_f16((high - low) / 15.0f);
    *m = rvi_f32_to_f16(low);
    memset(q, 0, n);
    float step = rvi_f16_to_f32(*d), from = rvi_f16_to_f32(*m);
    if (isnan(sum) || !(step < INFINITY) || !(fabsf(from) < INFINITY)) {
        *d = *m = rvi_f32_to_f16(NAN);
        return;
    }
    if (step <= 0.0f) return;
    float inverse = 1.0f / step;
    for (size_t i = 0; i < n; i++) {
        float level = rintf((x[i] - from) * inverse);
        q[i] = (uint8_t)(level < 0.0f ? 0.0f : level > 15.0f ? 15.0f : level);
    }
}

/* Value i of a plane, which was 0. */
static void put(uint8_t *plane, size_t i, uint8_t value)
{
    plane[i / 64 * 32 + i % 32] |= (uint8_t)(value << (i % 64 / 32 * 4));
}

void rvi_attn_chill(const uint8_t *warm, uint8_t *cold, size_t n)
{
    size_t groups = (n + 3) / 4, padded = rvi_attn_padded(n);
    uint8_t *cold_v = cold + rvi_attn_k_bytes(RVI_ATTN_Q4, n);
    const int8_t *k = (const int8_t *)warm, *v = k + rvi_attn_k_bytes(RVI_ATTN_Q8, n);
    float row[RVI_ATTN_COLD_HEAD];
    uint8_t q[RVI_ATTN_COLD_HEAD];
    memset(cold, 0, rvi_attn_k_bytes(RVI_ATTN_Q4, n) + rvi_attn_v_bytes(RVI_ATTN_Q4, n));
    for (size_t slot = 0; slot < RVI_ATTN_PAGE; slot++) {
        float d;
        rvi_f16 scale, low;
        memcpy(&d, k + (groups * RVI_ATTN_PAGE + slot) * 4, sizeof d);
        for (size_t e = 0; e < n; e++) row[e] = d * (float)k[(e / 4 * RVI_ATTN_PAGE + slot) * 4 + e % 4];
        rvi_attn_rotate(row, n);
        rvi_attn_quantize4(row, q, n, &scale, &low);
        for (size_t e = 0; e < n; e++) put(cold, (e / 4 * RVI_ATTN_PAGE + slot) * 4 + e % 4, q[e]);
        memcpy(cold + groups * 2 * RVI_ATTN_PAGE + slot * sizeof scale, &scale, sizeof scale);
        memcpy(cold + groups * 2 * RVI_ATTN_PAGE + (RVI_ATTN_PAGE + slot) * sizeof low, &low, sizeof low);

        memcpy(&d, v + RVI_ATTN_PAGE * padded + slot * sizeof d, sizeof d);
        for (size_t e = 0; e < n; e++) row[e] = d * (float)v[slot * padded + e];
        rvi_attn_quantize4(row, q, n, &scale, &low);
        for (size_t e = 0; e < n; e++) put(cold_v, slot * padded + e, q[e]);
        memcpy(cold_v + RVI_ATTN_PAGE / 2 * padded + slot * sizeof scale, &scale, sizeof scale);
        memcpy(cold_v + RVI_ATTN_PAGE / 2 * padded + (RVI_ATTN_PAGE + slot) * sizeof low, &low, sizeof low);
    }
}
