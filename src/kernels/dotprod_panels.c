/* dotprod_panels.c - products by the dot product extension of aarch64.
 *
 * Built with the flags for these instructions; nothing here may run before table.c has found them. */
#if defined(__aarch64__)

#include "kernels/neon_panels.h"
#include "kernels/rows.h"

enum { MAX_PASS = 8, SIDE_BY_SIDE = 0 };

/* Four registers at a time take their activations from the lanes of one. */
static ALWAYS_INLINE ints dot_registers(ints start, const bytes *w, int n, const int8_t *x, int largest)
{
    UNROLL for (int i = 0; i < n; i += 4)
    {
        int8x16_t xv = vld1q_s8(x + 4 * i);
        start = vdotq_laneq_s32(start, as_signed(w[i], largest), xv, 0);
        start = vdotq_laneq_s32(start, as_signed(w[i + 1], largest), xv, 1);
        start = vdotq_laneq_s32(start, as_signed(w[i + 2], largest), xv, 2);
        start = vdotq_laneq_s32(start, as_signed(w[i + 3], largest), xv, 3);
    }
    return start;
}

#include "kernels/vector_panels.h"

#define X(...) DEFINE_PANELS(__VA_ARGS__)
QUANTIZED(X)
#undef X

void rvi_kernels_fill_dotprod(rvi_kernels *k)
{
#define X(name, ...) FILL_PANELS(k, name)
    QUANTIZED(X)
#undef X
}

#else
typedef int rvi_no_dotprod_panels_here; /* a C file must not be empty */
#endif
