/* neon_attention.c - attention of the Advanced SIMD row: vector_attention.h with registers of 4 lanes. */
#if defined(__aarch64__)

#include <stdbool.h>

#include "kernels/neon.h"
#include "kernels/rows.h"

#define QUERIES 6
#define VECS    4

typedef int32x4_t dots;
typedef int8x16_t bytes;

static ALWAYS_INLINE vec widen_int8(const int8_t *p)
{
    int8_t part[8] = {0};
    memcpy(part, p, WIDTH);
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vld1_s8(part)))));
}

static ALWAYS_INLINE void narrow_int8(int8_t *p, vec v)
{
    int16x4_t pairs = vmovn_s32(vcvtnq_s32_f32(v));
    int8_t part[8];
    vst1_s8(part, vmovn_s16(vcombine_s16(pairs, pairs)));
    memcpy(p, part, WIDTH);
}

static ALWAYS_INLINE dots dots_start(const int8_t *q, size_t n)
{
    (void)q;
    (void)n;
    return vdupq_n_s32(0);
}

static ALWAYS_INLINE bytes load_bytes(const uint8_t *p)
{
    return vreinterpretq_s8_u8(vld1q_u8(p));
}
static ALWAYS_INLINE bytes splat_bytes(int32_t i)
{
    return vreinterpretq_s8_s32(vdupq_n_s32(i));
}

static ALWAYS_INLINE dots dot4(dots acc, bytes k, bytes q)
{
    int32x4_t low = vpaddlq_s16(vmull_s8(vget_low_s8(k), vget_low_s8(q)));
    int32x4_t high = vpaddlq_s16(vmull_high_s8(k, q));
    return vaddq_s32(acc, vpaddq_s32(low, high));
}

static ALWAYS_INLINE vec widen_nibbles(const uint8_t *p, bool high)
{
    uint8_t part[8] = {0};
    memcpy(part, p, WIDTH);
    uint8x8_t b = vld1_u8(part);
    b = high ? vshr_n_u8(b, 4) : vand_u8(b, vdup_n_u8(15));
    return vcvtq_f32_u32(vmovl_u16(vget_low_u16(vmovl_u8(b))));
}

static ALWAYS_INLINE void split_nibbles(const uint8_t *p, bytes *to)
{
    UNROLL for (int i = 0; i < 2; i++)
    {
        uint8x16_t both = vld1q_u8(p + 16 * i);
        to[i] = vreinterpretq_s8_u8(vandq_u8(both, vdupq_n_u8(15)));
        to[2 + i] = vreinterpretq_s8_u8(vshrq_n_u8(both, 4));
    }
}

static ALWAYS_INLINE dots dot4_low(dots acc, bytes k, bytes q)
{
    return dot4(acc, k, q);
}

static ALWAYS_INLINE dots dots_zero(void)
{
    return vdupq_n_s32(0);
}

static ALWAYS_INLINE vec dots_to_float(dots acc)
{
    return vcvtq_f32_s32(acc);
}

#include "kernels/vector_attention.h"

void rvi_kernels_fill_neon_attention(rvi_kernels *k)
{
    fill_attention(k);
}

#else
typedef int rvi_no_neon_attention_here; /* a C file must not be empty */
#endif
