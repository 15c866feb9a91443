/* simd.h - what the vector rows ask of the compiler. Inside the kernels room only. */
#ifndef RVI_KERNELS_SIMD_H
#define RVI_KERNELS_SIMD_H

/* For functions whose constant arguments choose the code (tile sizes, storage types): each use becomes its own
 * copy. */
#define ALWAYS_INLINE inline __attribute__((always_inline))

/* Before a loop with a constant count whose body indexes arrays of registers: without unrolling they would
 * live in memory. */
#if defined(__clang__)
/* It warns of copies whose count it does not know yet, and of loops that are gone by then. */
#pragma clang diagnostic ignored "-Wpass-failed"
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#endif
