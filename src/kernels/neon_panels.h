/* neon_panels.h - registers of 4 lanes for vector_panels.h (which says what each function means), but for
 * dot_registers and MAX_PASS, where the base architecture and the dot product extension differ. */
#ifndef RVI_KERNELS_NEON_PANELS_H
#define RVI_KERNELS_NEON_PANELS_H

#include "kernels/neon.h"

enum { SIGNED_BYTES = 1 };
typedef int32x4_t ints;
typedef uint8x16_t bytes;

static ALWAYS_INLINE bytes load_bytes(const uint8_t *p)
{
    return vld1q_u8(p);
}
static ALWAYS_INLINE bytes both(bytes a, bytes b)
{
    return vorrq_u8(a, b);
}
static ALWAYS_INLINE ints splat_int(int i)
{
    return vdupq_n_s32(i);
}
static ALWAYS_INLINE ints multiply_ints(ints a, ints b)
{
    return vmulq_s32(a, b);
}
static ALWAYS_INLINE ints add_ints(ints a, ints b)
{
    return vaddq_s32(a, b);
}
static ALWAYS_INLINE vec to_float(ints i)
{
    return vcvtq_f32_s32(i);
}
static ALWAYS_INLINE ints low_nibble(ints i)
{
    return vandq_s32(i, splat_int(15));
}
static ALWAYS_INLINE ints high_nibble(ints i)
{
    return vandq_s32(vshrq_n_s32(i, 4), splat_int(15));
}

static ALWAYS_INLINE ints load_small(const uint8_t *p)
{
    uint32_t four;
    memcpy(&four, p, sizeof four);
    return vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u32(vdup_n_u32(four)))));
}

/* The compiler's own shifts: the intrinsics with an immediate want a literal. Bytes shift without their neighbours, so
 * the mask is often not needed. */
static ALWAYS_INLINE bytes shift_bytes(bytes v, int n, int bits)
{
    if (n > 0) v = v >> n;
    if (n < 0) v = v << -n;
    return n > 0 && bits == 255 >> n ? v : vandq_u8(v, vdupq_n_u8((uint8_t)bits));
}

static ALWAYS_INLINE bytes look_up_bytes(bytes v)
{
    return vqtbl1q_u8(veorq_u8(vreinterpretq_u8_s8(vld1q_s8(rvi_iq4_values)), vdupq_n_u8(128)), v);
}

/* Bytes that may be over 127 less 128, so that all fit a signed byte. */
static ALWAYS_INLINE int8x16_t as_signed(bytes w, int largest)
{
    return vreinterpretq_s8_u8(largest > 127 ? veorq_u8(w, vdupq_n_u8(128)) : w);
}

#endif
