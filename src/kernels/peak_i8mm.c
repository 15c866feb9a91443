/* Peak loop for aarch64 with the int8 matrix extension. */
#if defined(__aarch64__)
#define PEAK_NAME rvi_peak_i8mm_int8
#define PEAK_OP   vmmlaq_s32
#include "kernels/peak_arm_int8.h"
#else
typedef int rvi_peak_i8mm_nothing;
#endif
