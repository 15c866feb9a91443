/* features.h - inside the kernels room: which instructions this machine has and the operating system allows. CPUID is
 * slow under a hypervisor, so ask once at start, never per task. */
#ifndef RVI_KERNELS_FEATURES_H
#define RVI_KERNELS_FEATURES_H

#include <stdbool.h>

bool rvi_has_ref(void); /* always */

#if defined(__x86_64__)
bool rvi_has_avx2(void);    /* and FMA, F16C */
bool rvi_has_avxvnni(void); /* and AVX2 */
bool rvi_has_avx512(void);  /* F, BW, DQ, VL, and AVX2 */
bool rvi_has_avx512_vnni(void);
bool rvi_has_avx512_bf16(void);
bool rvi_has_amx_int8(void); /* asks the system for the right to use the tiles */
bool rvi_has_amx_bf16(void); /* likewise */
bool rvi_has_amx(void);      /* both */
#elif defined(__aarch64__)
bool rvi_has_neon(void); /* always: part of the base architecture */
bool rvi_has_dotprod(void);
bool rvi_has_i8mm(void);
bool rvi_has_bf16(void);
#endif

#endif
