/* neon.h - registers of 4 lanes for vector_f32.h and vector_quant.h (which say what each function means).
 * Advanced SIMD is part of the base aarch64 architecture: no compiler flags, nothing to detect. */
#ifndef RVI_KERNELS_NEON_H
#define RVI_KERNELS_NEON_H

#include <arm_neon.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "formats/qtypes.h"
#include "kernels/simd.h"

#define WIDTH 4
typedef float32x4_t vec;
typedef uint32x4_t mask;

static ALWAYS_INLINE vec splat(float f)
{
    return vdupq_n_f32(f);
}
static ALWAYS_INLINE vec add(vec a, vec b)
{
    return vaddq_f32(a, b);
}
static ALWAYS_INLINE vec subtract(vec a, vec b)
{
    return vsubq_f32(a, b);
}
static ALWAYS_INLINE vec multiply(vec a, vec b)
{
    return vmulq_f32(a, b);
}
static ALWAYS_INLINE vec divide(vec a, vec b)
{
    return vdivq_f32(a, b);
}
static ALWAYS_INLINE vec negate(vec a)
{
    return vnegq_f32(a);
}
static ALWAYS_INLINE vec fused(vec a, vec b, vec c)
{
    return vfmaq_f32(c, a, b);
}

static ALWAYS_INLINE mask above(vec a, vec b)
{
    return vcgtq_f32(a, b);
}
static ALWAYS_INLINE mask unordered(vec a)
{
    return vmvnq_u32(vceqq_f32(a, a));
}
static ALWAYS_INLINE mask either(mask m, mask n)
{
    return vorrq_u32(m, n);
}
static ALWAYS_INLINE bool any(mask m)
{
    return vmaxvq_u32(m) != 0;
}
static ALWAYS_INLINE vec choose(mask m, vec a, vec b)
{
    return vbslq_f32(m, a, b);
}
static ALWAYS_INLINE vec higher(vec a, vec b)
{
    return choose(above(a, b), a, b); /* vmaxq gives NaN where one is NaN */
}

static ALWAYS_INLINE mask first_lanes(size_t left)
{
    static const uint32_t lane[WIDTH] = {0, 1, 2, 3};
    return vcltq_u32(vld1q_u32(lane), vdupq_n_u32(left < WIDTH ? (uint32_t)left : WIDTH));
}

static ALWAYS_INLINE vec load(const float *p, size_t left)
{
    if (left >= WIDTH) return vld1q_f32(p);
    float part[WIDTH] = {0};
    memcpy(part, p, left * sizeof *p);
    return vld1q_f32(part);
}

static ALWAYS_INLINE void store(float *p, size_t left, vec v)
{
    if (left >= WIDTH) {
        vst1q_f32(p, v);
        return;
    }
    float part[WIDTH];
    vst1q_f32(part, v);
    memcpy(p, part, left * sizeof *p);
}

/* Four 16-bit numbers, or the `left` first ones followed by zeros. */
static ALWAYS_INLINE uint16x4_t load_halves(const void *p, size_t left)
{
    uint16_t part[WIDTH] = {0};
    memcpy(part, p, left >= WIDTH ? sizeof part : left * sizeof part[0]);
    return vld1_u16(part);
}

static ALWAYS_INLINE vec load_f16(const void *p, size_t left)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(load_halves(p, left)));
}

static ALWAYS_INLINE vec load_bf16(const void *p, size_t left)
{
    return vreinterpretq_f32_u32(vshll_n_u16(load_halves(p, left), 16));
}

static ALWAYS_INLINE void store_f16(rvi_f16 *p, size_t left, vec v)
{
    uint16_t part[WIDTH];
    vst1_u16(part, vreinterpret_u16_f16(vcvt_f16_f32(v)));
    memcpy(p, part, left >= WIDTH ? sizeof part : left * sizeof part[0]);
}

static ALWAYS_INLINE vec add_exponent(vec p, vec k)
{
    uint32x4_t shift = vshlq_n_u32(vreinterpretq_u32_s32(vcvtnq_s32_f32(k)), 23);
    return vreinterpretq_f32_u32(vaddq_u32(vreinterpretq_u32_f32(p), shift));
}

static ALWAYS_INLINE void split_pairs(vec lo, vec hi, vec *a, vec *b)
{
    *a = vuzp1q_f32(lo, hi);
    *b = vuzp2q_f32(lo, hi);
}

static ALWAYS_INLINE void join_pairs(vec a, vec b, vec *lo, vec *hi)
{
    *lo = vzip1q_f32(a, b);
    *hi = vzip2q_f32(a, b);
}

static ALWAYS_INLINE float add_across(vec v)
{
    return vpadds_f32(vadd_f32(vget_low_f32(v), vget_high_f32(v)));
}

static ALWAYS_INLINE float max_across(vec v)
{
    return vmaxvq_f32(v);
}

/* ---- for vector_quant.h ---- */

static ALWAYS_INLINE vec load_int8(const int8_t *p)
{
    int8_t part[8] = {0};
    memcpy(part, p, WIDTH);
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vld1_s8(part)))));
}

static ALWAYS_INLINE vec splat_f16(rvi_f16 h)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(h)));
}

static ALWAYS_INLINE void look_up_iq4(int8_t *q)
{
    int8x16_t table = vld1q_s8(rvi_iq4_values);
    for (int i = 0; i < 32; i += 16) vst1q_s8(q + i, vqtbl1q_s8(table, vreinterpretq_u8_s8(vld1q_s8(q + i))));
}

#endif
