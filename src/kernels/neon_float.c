/* neon_float.c - float weights in default mode with registers of 4 lanes (vector_float.h). The law has no subnormal
 * numbers in it (float_panels.h), so FPCR stays as it is. */
#if defined(__aarch64__)

#include "kernels/neon.h"
#include "kernels/rows.h"

enum { PANELS_MANY = 1, PANELS_ONE = 2, ROWS_HALVES = 4, COLUMNS_HALVES = 2 };

static ALWAYS_INLINE vec cut_off(vec v)
{
    return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(v), vdupq_n_u32(0xffff0000u)));
}

static ALWAYS_INLINE void load_bf16_pairs(const void *p, vec *even, vec *odd)
{
    uint32x4_t pairs = vld1q_u32(p);
    *even = vreinterpretq_f32_u32(vshlq_n_u32(pairs, 16));
    *odd = cut_off(vreinterpretq_f32_u32(pairs));
}

static ALWAYS_INLINE vec round_to_bf16(vec v)
{
    uint32x4_t bits = vreinterpretq_u32_f32(v);
    uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    uint32x4_t up = vaddq_u32(odd, vdupq_n_u32(0x7fff));
    return cut_off(vreinterpretq_f32_u32(vaddq_u32(bits, up)));
}

static ALWAYS_INLINE vec absolute(vec v)
{
    return vabsq_f32(v);
}

static ALWAYS_INLINE void prefetch(uintptr_t address)
{
    __builtin_prefetch((const void *)address);
}

#include "kernels/vector_float.h"

void rvi_kernels_fill_neon_float(rvi_kernels *k)
{
    fill_float(k);
}

#else
typedef int rvi_no_neon_float_here; /* a C file must not be empty */
#endif
