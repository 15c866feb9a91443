/* avxvnni_panels.c - products by AVX-VNNI, for machines that have it without AVX-512. */
#if defined(__x86_64__)

#include "kernels/avx2_panels.h"
#include "kernels/rows.h"

enum { SIGNED_BYTES = 0 };

static ALWAYS_INLINE ints dot_registers(ints start, const bytes *w, int n, const int8_t *x, int largest)
{
    (void)largest;
    UNROLL for (int i = 0; i < n; i++) start = _mm256_dpbusd_avx_epi32(start, w[i], four_everywhere(x + 4 * i));
    return start;
}

#include "kernels/vector_panels.h"

#define X(...) DEFINE_PANELS(__VA_ARGS__)
QUANTIZED(X)
#undef X

void rvi_kernels_fill_avxvnni(rvi_kernels *k)
{
#define X(name, ...) FILL_PANELS(k, name)
    QUANTIZED(X)
#undef X
}

#else
typedef int rvi_no_avxvnni_panels_here; /* a C file must not be empty */
#endif
