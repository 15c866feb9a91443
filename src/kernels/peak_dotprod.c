/* Peak loop for aarch64 with the dot product extension. */
#if defined(__aarch64__)
#define PEAK_NAME rvi_peak_dotprod_int8
#define PEAK_OP   vdotq_s32
#include "kernels/peak_arm_int8.h"
#else
typedef int rvi_peak_dotprod_nothing;
#endif
