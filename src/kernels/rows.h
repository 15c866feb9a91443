/* rows.h - inside the kernels room: the functions by which each instruction set puts its kernels into a table.
 *
 * Each function overwrites the entries it has kernels for and leaves the others as they were. Only table.c may call
 * rvi_kernels_fill_<name> of an instruction set, after asking the machine whether it has it. */
#ifndef RVI_KERNELS_ROWS_H
#define RVI_KERNELS_ROWS_H

#include "kernels/kernels.h"

#define X(name, is_present) void rvi_kernels_fill_##name(rvi_kernels *k);
RVI_ISA_LIST(X)
#undef X

/* Parts of the above, each called by the function of its instruction set. */
void rvi_kernels_fill_ref_quant(rvi_kernels *k);
void rvi_kernels_fill_ref_attention(rvi_kernels *k);
void rvi_kernels_fill_ref_float(rvi_kernels *k);
void rvi_kernels_fill_ref_train(rvi_kernels *k);

#if defined(__x86_64__)
void rvi_kernels_fill_avx2_quant(rvi_kernels *k);
void rvi_kernels_fill_avx2_panels(rvi_kernels *k);
void rvi_kernels_fill_avx2_attention(rvi_kernels *k);
void rvi_kernels_fill_avx2_float(rvi_kernels *k);
void rvi_kernels_fill_avx2_train(rvi_kernels *k);

void rvi_kernels_fill_avx512_quant(rvi_kernels *k);
void rvi_kernels_fill_avx512_panels(rvi_kernels *k);
void rvi_kernels_fill_avx512_attention(rvi_kernels *k);
void rvi_kernels_fill_avx512_float(rvi_kernels *k);
void rvi_kernels_fill_avx512_train(rvi_kernels *k);

void rvi_kernels_fill_amx_float(rvi_kernels *k);
void rvi_kernels_fill_amx_train(rvi_kernels *k); /* only where AVX-512 has bf16 too */
#elif defined(__aarch64__)
void rvi_kernels_fill_neon_quant(rvi_kernels *k);
void rvi_kernels_fill_neon_panels(rvi_kernels *k);
void rvi_kernels_fill_neon_attention(rvi_kernels *k);
void rvi_kernels_fill_neon_float(rvi_kernels *k);
void rvi_kernels_fill_neon_train(rvi_kernels *k);
#endif

#endif
