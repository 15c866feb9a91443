/* neon_panels.c - the Advanced SIMD row's products, without the dot product extension. */
#if defined(__aarch64__)

#include "kernels/neon_panels.h"
#include "kernels/rows.h"

enum { MAX_PASS = 4, SIDE_BY_SIDE = 0 };

/* A product is at most 127 * largest, or 127 * 128 where 128 were taken off; as many as `together` are added in int16
 * before they would overflow, then go in pairs to int32. Outputs 0, 1 and outputs 2, 3 of the four have registers of
 * their own. */
static ALWAYS_INLINE ints dot_registers(ints start, const bytes *w, int n, const int8_t *x, int largest)
{
    const int fit = 32767 / (127 * (largest > 127 ? 128 : largest)), together = fit >= 8 ? 8 : fit >= 4 ? 4 : 2;
    int16x8_t low = vdupq_n_s16(0), high = low;
    ints first = splat_int(0), last = first;
    UNROLL for (int i = 0; i < n; i++)
    {
        int32_t four;
        memcpy(&four, x + 4 * i, sizeof four);
        int8x16_t v = as_signed(w[i], largest), xv = vreinterpretq_s8_s32(vdupq_n_s32(four));
        bool fresh = i % together == 0, full = (i + 1) % together == 0 || i + 1 == n;
        low = fresh ? vmull_s8(vget_low_s8(v), vget_low_s8(xv)) : vmlal_s8(low, vget_low_s8(v), vget_low_s8(xv));
        high = fresh ? vmull_high_s8(v, xv) : vmlal_high_s8(high, v, xv);
        if (!full) continue;
        first = i < together ? vpaddlq_s16(low) : vpadalq_s16(first, low);
        last = i < together ? vpaddlq_s16(high) : vpadalq_s16(last, high);
    }
    return vaddq_s32(start, vpaddq_s32(first, last));
}

#include "kernels/vector_panels.h"

#define X(...) DEFINE_PANELS(__VA_ARGS__)
QUANTIZED(X)
#undef X

void rvi_kernels_fill_neon_panels(rvi_kernels *k)
{
#define X(name, ...) FILL_PANELS(k, name)
    QUANTIZED(X)
#undef X
}

#else
typedef int rvi_no_neon_panels_here; /* a C file must not be empty */
#endif
