/* ref_attention.c - the scalar row of attention: the specification, as kernels.h writes it down. */
#include <math.h>
#include <string.h>

#include "kernels/exp.h"
#include "kernels/kernels.h"
#include "kernels/rows.h"

static float quantize_head(const float *x, int8_t *q, size_t n)
{
    memset(q, 0, rvi_attn_padded(n));
    float amax = 0.0f;
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(x[i])) return NAN;
        amax = fmaxf(amax, fabsf(x[i]));
    }
    if (amax < 1e-30f) return 0.0f;
    float inverse = 127.0f / amax;
    for (size_t i = 0; i < n; i++) q[i] = (int8_t)rintf(x[i] * inverse);
    return amax / 127.0f;
}

/* Value i of a plane of 4 bits. */
static int nibble(const uint8_t *plane, size_t i)
{
    return plane[i / 64 * 32 + i % 32] >> (i % 64 / 32 * 4) & 15;
}

/* Key and query: index in the chunk, index among the queries. */
static float score(const rvi_attn_keys *keys, int key, const rvi_attn_queries *queries, int query, rvi_attn_type type)
{
    const uint8_t *page = keys->k[key / RVI_ATTN_PAGE];
    size_t n = keys->n, slot = (size_t)(key % RVI_ATTN_PAGE), q_at = (size_t)query * rvi_attn_padded(n);
    float sum = 0.0f;
    if (type == RVI_ATTN_Q8) {
        const int8_t *k = (const int8_t *)page, *q = queries->q8 + q_at;
        const float *kd = (const float *)(const void *)(page + (n + 3) / 4 * 4 * RVI_ATTN_PAGE);
        int32_t dot = 0;
        for (size_t e = 0; e < n; e++) dot += q[e] * k[(e / 4 * RVI_ATTN_PAGE + slot) * 4 + e % 4];
        sum = (float)dot * (queries->d[query] * kd[slot]);
    } else if (type == RVI_ATTN_Q4) {
        const int8_t *q = queries->q8 + q_at;
        const rvi_f16 *kd = (const rvi_f16 *)(const void *)(page + (n + 3) / 4 * 2 * RVI_ATTN_PAGE);
        int32_t dot = 0, all = 0;
        for (size_t e = 0; e < n; e++) {
            dot += q[e] * nibble(page, (e / 4 * RVI_ATTN_PAGE + slot) * 4 + e % 4);
            all += q[e];
        }
        float d = rvi_f16_to_f32(kd[slot]), m = rvi_f16_to_f32(kd[RVI_ATTN_PAGE + slot]);
        sum = fmaf(queries->d[query] * (float)all, m, (float)dot * (queries->d[query] * d));
    } else {
        const float *q = queries->q + q_at;
        for (size_t e = 0; e < n; e++) {
            size_t at = e * RVI_ATTN_PAGE + slot;
            float k = type == RVI_ATTN_F32 ? ((const float *)(const void *)page)[at]
                                           : rvi_f16_to_f32(((const rvi_f16 *)(const void *)page)[at]);
            sum = fmaf(q[e], k, sum);
        }
    }
    if (keys->soft_cap > 0) {
        float e = rvi_exp_f32(2.0f * (sum / keys->soft_cap));
        sum = keys->soft_cap * (1.0f - 2.0f / (e + 1.0f));
    }
    return sum;
}

/* d[32] and m[32] of a V plane */
static const rvi_f16 *cold_scales(const uint8_t *page, size_t n)
{
    return (const rvi_f16 *)(const void *)(page + RVI_ATTN_PAGE / 2 * rvi_attn_padded(n));
}

static void mix(const rvi_attn_keys *keys, int key, float p, float *acc, rvi_attn_type type)
{
    const uint8_t *page = keys->v[key / RVI_ATTN_PAGE];
    size_t n = keys->n, padded = rvi_attn_padded(n), slot = (size_t)(key % RVI_ATTN_PAGE), at = slot * padded;
    if (type == RVI_ATTN_Q8) {
        const int8_t *v = (const int8_t *)page + at;
        const float *vd = (const float *)(const void *)(page + RVI_ATTN_PAGE * padded);
        float weight = p * vd[slot];
        for (size_t e = 0; e < n; e++) acc[e] = fmaf(weight, (float)v[e], acc[e]);
    } else if (type == RVI_ATTN_Q4) {
        float weight = p * rvi_f16_to_f32(cold_scales(page, n)[slot]);
        for (size_t e = 0; e < n; e++) acc[e] = fmaf(weight, (float)nibble(page, at + e), acc[e]);
    } else if (type == RVI_ATTN_F16) {
        const rvi_f16 *v = (const rvi_f16 *)(const void *)page + at;
        for (size_t e = 0; e < n; e++) acc[e] = fmaf(p, rvi_f16_to_f32(v[e]), acc[e]);
    } else {
        const float *v = (const float *)(const void *)page + at;
        for (size_t e = 0; e < n; e++) acc[e] = fmaf(p, v[e], acc[e]);
    }
}

static void chunk(const rvi_attn_keys *keys, const rvi_attn_queries *queries, float *part, size_t part_stride,
                  rvi_attn_type type)
{
    size_t padded = rvi_attn_padded(keys->n);
    for (int q = 0; q < queries->n_queries; q++, part += part_stride) {
        float p[RVI_ATTN_CHUNK], m = -INFINITY, lane[16] = {0}, low[16] = {0};
        int from = queries->from[q], end = queries->end[q];
        for (int i = from; i < end; i++) {
            p[i] = score(keys, i, queries, q, type);
            m = p[i] > m ? p[i] : m;
        }
        m += 0.0f;
        memset(part, 0, padded * sizeof *part);
        for (int i = from; i < end; i++) {
            p[i] = rvi_exp_f32(p[i] - m);
            lane[i % 16] += p[i];
            mix(keys, i, p[i], part, type);
            if (type != RVI_ATTN_Q4) continue;
            const rvi_f16 *vm = cold_scales(keys->v[i / RVI_ATTN_PAGE], keys->n) + RVI_ATTN_PAGE;
            low[i % 16] = fmaf(p[i], rvi_f16_to_f32(vm[i % RVI_ATTN_PAGE]), low[i % 16]);
        }
        for (int width = 8; width >= 1; width /= 2)
            for (int j = 0; j < width; j++) {
                lane[j] += lane[j + width];
                low[j] += low[j + width];
            }
        for (size_t e = 0; type == RVI_ATTN_Q4 && e < keys->n; e++) part[e] += low[0];
        part[padded] = m;
        part[padded + 1] = lane[0];
    }
}

static void chunk_f32(const rvi_attn_keys *keys, const rvi_attn_queries *queries, float *part, size_t part_stride)
{
    chunk(keys, queries, part, part_stride, RVI_ATTN_F32);
}

static void chunk_f16(const rvi_attn_keys *keys, const rvi_attn_queries *queries, float *part, size_t part_stride)
{
    chunk(keys, queries, part, part_stride, RVI_ATTN_F16);
}

static void chunk_q8(const rvi_attn_keys *keys, const rvi_attn_queries *queries, float *part, size_t part_stride)
{
    chunk(keys, queries, part, part_stride, RVI_ATTN_Q8);
}

static void chunk_q4(const rvi_attn_keys *keys, const rvi_attn_queries *queries, float *part, size_t part_stride)
{
    chunk(keys, queries, part, part_stride, RVI_ATTN_Q4);
}

static void merge(float *acc, float *m, float *l, const float *part, size_t n)
{
    float part_m = part[rvi_attn_padded(n)], part_l = part[rvi_attn_padded(n) + 1];
    float top = part_m > *m ? part_m : *m;
    float a = rvi_exp_f32(*m - top), b = rvi_exp_f32(part_m - top);
    for (size_t e = 0; e < n; e++) acc[e] = fmaf(*l == 0.0f ? 0.0f : acc[e], a, part[e] * b);
    *l = fmaf(*l, a, part_l * b);
    *m = top;
}

void rvi_kernels_fill_ref_attention(rvi_kernels *k)
{
    k->quantize_head = quantize_head;
    k->attn_chunk[RVI_ATTN_F32] = chunk_f32;
    k->attn_chunk[RVI_ATTN_F16] = chunk_f16;
    k->attn_chunk[RVI_ATTN_Q8] = chunk_q8;
    k->attn_chunk[RVI_ATTN_Q4] = chunk_q4;
    k->attn_merge = merge;
}
