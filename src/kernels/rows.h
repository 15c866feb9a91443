/* rows.h - inside the kernels room: the functions by which each ISA row puts its entries into a table.
 *
 * Each overwrites the entries it has and leaves the others, so a row rests on what was filled before it.
 * The rows of another CPU family do not exist in a build; only table.c may run a row, after asking the machine. */
#ifndef RVI_KERNELS_ROWS_H
#define RVI_KERNELS_ROWS_H

#include "kernels/kernels.h"

void rvi_kernels_fill_ref(rvi_kernels *k);           /* every entry */
void rvi_kernels_fill_ref_quant(rvi_kernels *k);     /* quantize_*, gemm_act, dequantize; called by the above */
void rvi_kernels_fill_ref_attention(rvi_kernels *k); /* attention; called by the first */

void rvi_kernels_fill_ref_float(rvi_kernels *k); /* float_panels.h; likewise */
void rvi_kernels_fill_ref_train(rvi_kernels *k); /* train_gemm.h; likewise */

#if defined(__x86_64__)
void rvi_kernels_fill_avx2(rvi_kernels *k);
void rvi_kernels_fill_avx2_quant(rvi_kernels *k);  /* called by the above */
void rvi_kernels_fill_avx2_panels(rvi_kernels *k); /* likewise */
void rvi_kernels_fill_avxvnni(rvi_kernels *k);
void rvi_kernels_fill_avx512(rvi_kernels *k);
void rvi_kernels_fill_avx512_panels(rvi_kernels *k); /* called by the above */
void rvi_kernels_fill_amx(rvi_kernels *k);
void rvi_kernels_fill_avx2_attention(rvi_kernels *k);   /* called by rvi_kernels_fill_avx2 */
void rvi_kernels_fill_avx512_attention(rvi_kernels *k); /* called by rvi_kernels_fill_avx512 */
void rvi_kernels_fill_avx2_float(rvi_kernels *k);       /* likewise */
void rvi_kernels_fill_avx512_float(rvi_kernels *k);     /* called by the above */
void rvi_kernels_fill_amx_float(rvi_kernels *k);
void rvi_kernels_fill_avx2_train(rvi_kernels *k); /* train_gemm.h, each called by its row */
void rvi_kernels_fill_avx512_train(rvi_kernels *k);
void rvi_kernels_fill_avx512_quant(rvi_kernels *k); /* called by rvi_kernels_fill_avx512 */
void rvi_kernels_fill_amx_train(rvi_kernels *k);    /* where AVX-512 has bf16 too */
#endif

#if defined(__aarch64__)
void rvi_kernels_fill_neon(rvi_kernels *k);
void rvi_kernels_fill_neon_quant(rvi_kernels *k);     /* called by the above */
void rvi_kernels_fill_neon_attention(rvi_kernels *k); /* called by the first */
void rvi_kernels_fill_neon_float(rvi_kernels *k);     /* likewise */
void rvi_kernels_fill_neon_panels(rvi_kernels *k);    /* likewise */
void rvi_kernels_fill_neon_train(rvi_kernels *k);     /* likewise */
void rvi_kernels_fill_dotprod(rvi_kernels *k);
#endif

#endif
