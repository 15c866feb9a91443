/* simt.h - what kernels.cu needs to be compiled for the host: the words of CUDA C++, and the
 * threads of a block as fibers that take turns (simt.cpp). Blocks run one after the other. */
#ifndef TESTS_CUDA_SIMT_H
#define TESTS_CUDA_SIMT_H

#include <cmath>
#include <cstdint>
#include <cstring>

#define __global__
#define __device__
#define __shared__ static
#define __launch_bounds__(...)

struct simt_index {
    unsigned x, y, z;
};
extern simt_index threadIdx, blockIdx, blockDim, gridDim;

struct float4 {
    float x, y, z, w;
};
struct uint4 {
    uint32_t x, y, z, w;
};
struct uint2 {
    uint32_t x, y;
};
struct int2 {
    int32_t x, y;
};

void simt_sync_block(void);
uint32_t simt_from(uint32_t v, int lane); /* what that lane of the warp has */

static inline void __syncthreads(void)
{
    simt_sync_block();
}
template <typename T> static inline T __shfl_xor_sync(unsigned, T v, int d)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    bits = simt_from(bits, (int)(threadIdx.x % 32) ^ d);
    memcpy(&v, &bits, sizeof v);
    return v;
}
template <typename T> static inline T __ldg(const T *p)
{
    if ((uintptr_t)p % sizeof(T)) __builtin_trap(); /* a device would stop here too */
    return *p;
}
static inline float __int_as_float(int32_t i)
{
    float f;
    memcpy(&f, &i, sizeof f);
    return f;
}
static inline uint32_t __float_as_uint(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}
static inline int __dp4a(int a, int b, int c)
{
    for (int i = 0; i < 32; i += 8) c += (int8_t)(a >> i) * (int8_t)(b >> i);
    return c;
}
static inline void begin(void)
{
}
static inline void prefetch(const uint8_t *, size_t)
{
}
static inline float __uint_as_float(uint32_t u)
{
    return __int_as_float((int32_t)u);
}
static inline float normcdff(float x)
{
    return (float)(0.5 * erfc(-(double)x * 0.70710678118654752440));
}
static inline int max(int a, int b)
{
    return a > b ? a : b;
}
static inline int min(int a, int b)
{
    return a < b ? a : b;
}
using std::isfinite;

/* See kernels.cu. */
static inline void mma_s8_k32(int c[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                              uint32_t b0, uint32_t b1)
{
    int g = (int)threadIdx.x % 32 / 4, t = (int)threadIdx.x % 4;
    for (int k = 0; k < 4; k++) {
        uint32_t a[4] = {simt_from(a0, 4 * g + k), simt_from(a2, 4 * g + k),
                         simt_from(a1, 4 * g + k), simt_from(a3, 4 * g + k)};
        uint32_t b[4] = {simt_from(b0, 8 * t + k), simt_from(b1, 8 * t + k),
                         simt_from(b0, 8 * t + 4 + k), simt_from(b1, 8 * t + 4 + k)};
        for (int i = 0; i < 4; i++)
            for (int h = 0; h < 2; h++)
                c[i] = __dp4a((int)a[i / 2 * 2 + h], (int)b[i % 2 * 2 + h], c[i]);
    }
}
static inline void mma_s8_k16(int c[4], uint32_t a0, uint32_t a1, uint32_t b)
{
    mma_s8_k32(c, a0, a1, 0, 0, b, 0);
}
static inline void mma_bf16(float c[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                            uint32_t b0, uint32_t b1)
{
    int g = (int)threadIdx.x % 32 / 4, t = (int)threadIdx.x % 4;
    for (int k = 0; k < 4; k++) {
        uint32_t a[4] = {simt_from(a0, 4 * g + k), simt_from(a2, 4 * g + k),
                         simt_from(a1, 4 * g + k), simt_from(a3, 4 * g + k)};
        uint32_t b[4] = {simt_from(b0, 8 * t + k), simt_from(b1, 8 * t + k),
                         simt_from(b0, 8 * t + 4 + k), simt_from(b1, 8 * t + 4 + k)};
        for (int i = 0; i < 4; i++)
            for (int h = 0; h < 4; h++) {
                uint32_t x = a[i / 2 * 2 + h / 2], y = b[i % 2 * 2 + h / 2];
                c[i] += __uint_as_float(h % 2 ? x & 0xffff0000 : x << 16) *
                        __uint_as_float(h % 2 ? y & 0xffff0000 : y << 16);
            }
    }
}

/* Runs fn(args) by grid x threads threads. */
void simt_run(void (*fn)(const void *args), const void *args, simt_index grid, unsigned threads);

#endif
