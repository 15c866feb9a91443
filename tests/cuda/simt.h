/* simt.h - what kernels.cu needs to be compiled for the host: the words of CUDA C++, and the
 * threads of a block as fibers that take turns (simt.cpp). Blocks run one after the other, those of
 * a cluster until they wait for each other: what they do not have in dynamic shared memory is lost
 * then. */
#ifndef TESTS_CUDA_SIMT_H
#define TESTS_CUDA_SIMT_H

#include <cmath>
#include <cstdint>
#include <cstring>

#define __global__
#define __device__
#define __shared__ static
#define __launch_bounds__(...)
#define __forceinline__      inline
#define __align__(n)         __attribute__((aligned(n)))
#define DYNAMIC_SHARED(name) uint8_t *name = simt_shared((int)blockIdx.x)

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
struct float2 {
    float x, y;
};
struct uint2 {
    uint32_t x, y;
};
struct int2 {
    int32_t x, y;
};

uint8_t *simt_shared(int block); /* of a block of the cluster that runs */
void simt_sync_block(void);
void simt_sync_first(unsigned n); /* threads of the block; always as many */
void simt_arrive(void);           /* of the cluster's threads */
bool simt_have_arrived(void);
void simt_let_others(void);               /* the other blocks of the cluster go on */
uint32_t simt_from(uint32_t v, int lane); /* what that lane of the warp has */
/* What all lanes of the warp have, until simt_seen. */
const uint32_t (*simt_show(const uint32_t mine[6]))[6];
void simt_seen(void);

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
static inline double __shfl_xor_sync(unsigned mask, double v, int d)
{
    uint32_t half[2];
    memcpy(half, &v, sizeof v);
    for (uint32_t &h : half) h = __shfl_xor_sync(mask, h, d);
    memcpy(&v, half, sizeof v);
    return v;
}
static inline int __any_sync(unsigned, int is)
{
    uint32_t v = is != 0;
    for (int d = 16; d; d >>= 1) v |= __shfl_xor_sync(0, v, d);
    return (int)v;
}
static inline int __syncthreads_or(int is)
{
    static int any;
    __syncthreads();
    any = 0;
    __syncthreads();
    if (is) any = 1;
    __syncthreads();
    return any;
}
template <typename T> static inline T __ldg(const T *p)
{
    if ((uintptr_t)p % sizeof(T)) __builtin_trap(); /* a device would stop here too */
    return *p;
}
template <typename T> static inline T __ldcg(const T *p)
{
    return __ldg(p);
}
template <typename T> static inline T __ldcv(const T *p)
{
    return __ldg(p);
}
static inline void __threadfence_system(void)
{
}
static inline int atomicAdd(int *at, int n) /* blocks run one after the other */
{
    return (*at += n) - n;
}
static inline void __threadfence(void)
{
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
static inline long long __double_as_longlong(double d)
{
    long long i;
    memcpy(&i, &d, sizeof i);
    return i;
}
static inline double __longlong_as_double(long long i)
{
    double d;
    memcpy(&d, &i, sizeof d);
    return d;
}
static inline uint32_t __byte_perm(uint32_t a, uint32_t b, uint32_t which)
{
    uint64_t all = (uint64_t)b << 32 | a;
    uint32_t out = 0;
    for (int i = 0; i < 4; i++) out |= (uint32_t)(all >> (which >> 4 * i & 7) * 8 & 255) << 8 * i;
    return out;
}
float from_half(uint16_t h);
uint16_t to_half(float f);
static inline uint32_t to_halves(float first, float second)
{
    return to_half(first) | (uint32_t)to_half(second) << 16;
}
template <typename F> static inline uint32_t by_halves(F f)
{
    return to_half(f(0)) | (uint32_t)to_half(f(16)) << 16;
}
static inline float half_of(uint32_t a, int shift)
{
    return from_half((uint16_t)(a >> shift));
}
static inline uint32_t half_add(uint32_t a, uint32_t b)
{
    return by_halves([=](int s) { return half_of(a, s) + half_of(b, s); });
}
static inline uint32_t half_mul(uint32_t a, uint32_t b)
{
    return by_halves([=](int s) { return half_of(a, s) * half_of(b, s); });
}
static inline uint32_t half_fma(uint32_t a, uint32_t b, uint32_t c)
{
    return by_halves([=](int s) { return fmaf(half_of(a, s), half_of(b, s), half_of(c, s)); });
}
static inline float reciprocal(float x)
{
    return 1.0f / x;
}
static inline float power_of_two(float x)
{
    return exp2f(x);
}
static inline uint32_t masked(uint32_t x, uint32_t mask, uint32_t with)
{
    return (x & mask) | with;
}
static inline void copy16(uint8_t *to, const uint8_t *from)
{
    if ((uintptr_t)to % 16 || (uintptr_t)from % 16) __builtin_trap();
    memcpy(to, from, 16);
}
template <int BYTES> static inline void load_bytes(void *to, const uint8_t *from)
{
    if ((uintptr_t)from % BYTES) __builtin_trap();
    memcpy(to, from, BYTES);
}
static inline uint32_t load_once(const uint8_t *p)
{
    uint32_t v;
    load_bytes<4>(&v, p);
    return v;
}
static inline uint32_t load_half(const uint8_t *p)
{
    uint16_t v;
    load_bytes<2>(&v, p);
    return v;
}
static inline void load_once2(uint32_t *to, const uint8_t *p)
{
    load_bytes<8>(to, p);
}
static inline void load_once4(uint32_t *to, const uint8_t *p)
{
    load_bytes<16>(to, p);
}
static inline void __syncwarp(void)
{
    simt_from(0, 0);
}
static inline void copy_commit(void)
{
}
template <int> static inline void copy_wait(void)
{
}
/* See kernels.cu. */
static inline void load_matrices(uint32_t m[4], const uint8_t *line)
{
    uint64_t at = (uint64_t)line;
    const uint32_t mine[6] = {(uint32_t)at, (uint32_t)(at >> 32)};
    int g = (int)threadIdx.x % 32 / 4, t = (int)threadIdx.x % 4;
    const uint32_t(*all)[6] = simt_show(mine);
    for (int i = 0; i < 4; i++) {
        const uint16_t *lines[2];
        for (int j = 0; j < 2; j++) {
            const uint32_t *a = all[8 * i + 2 * t + j];
            lines[j] = (const uint16_t *)(a[0] | (uint64_t)a[1] << 32);
        }
        m[i] = lines[0][g] | (uint32_t)lines[1][g] << 16;
    }
    simt_seen();
}
/* See kernels.cu. */
static inline void load_lines(uint32_t m[4], const uint8_t *line)
{
    uint64_t at = (uint64_t)line;
    const uint32_t mine[6] = {(uint32_t)at, (uint32_t)(at >> 32)};
    int lane = (int)threadIdx.x % 32;
    const uint32_t(*all)[6] = simt_show(mine);
    for (int i = 0; i < 4; i++) {
        const uint32_t *a = all[8 * i + lane / 4];
        memcpy(&m[i], (const uint8_t *)(a[0] | (uint64_t)a[1] << 32) + lane % 4 * 4, sizeof m[i]);
    }
    simt_seen();
}
static inline void begin(void)
{
}
static inline void fetch(const void *)
{
}
static inline float __uint_as_float(uint32_t u)
{
    return __int_as_float((int32_t)u);
}
static inline float rsqrtf(float x)
{
    return 1.0f / sqrtf(x);
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

/* value: of a half of a word. */
template <typename F>
static inline void mma(float c[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                       uint32_t b1, F value)
{
    const uint32_t mine[6] = {a0, a2, a1, a3, b0, b1};
    int g = (int)threadIdx.x % 32 / 4, t = (int)threadIdx.x % 4;
    const uint32_t(*all)[6] = simt_show(mine); /* of the lanes of the warp */
    for (int k = 0; k < 4; k++)
        for (int i = 0; i < 4; i++)
            for (int h = 0; h < 4; h++) {
                uint32_t x = all[4 * g + k][i / 2 * 2 + h / 2],
                         y = all[8 * t + i % 2 * 4 + k][4 + h / 2];
                c[i] += value(x >> h % 2 * 16 & 0xffff) * value(y >> h % 2 * 16 & 0xffff);
            }
    simt_seen();
}
static inline void mma_f16(float c[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                           uint32_t b0, uint32_t b1)
{
    mma(c, a0, a1, a2, a3, b0, b1, [](uint32_t u) { return from_half((uint16_t)u); });
}

static inline void mma_bf16(float c[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                            uint32_t b0, uint32_t b1)
{
    mma(c, a0, a1, a2, a3, b0, b1, [](uint32_t u) { return __int_as_float((int32_t)(u << 16)); });
}

/* See heads.cuh: a place has the bytes that are missing. */
static inline void expect_sent(uint64_t *place, int bytes)
{
    *place = (uint64_t)bytes;
}
template <typename T> static inline void send_to(const float *to, T v, uint64_t *place, int block)
{
    uint8_t *mine = simt_shared((int)blockIdx.x), *there = simt_shared(block);
    memcpy(there + ((uint8_t *)to - mine), &v, sizeof v);
    *(uint64_t *)(there + ((uint8_t *)place - mine)) -= sizeof v;
}
static inline void send4(const float *to, float4 v, uint64_t *place, int block)
{
    if ((uintptr_t)to % 16) __builtin_trap();
    send_to(to, v, place, block);
}
static inline void send2(const float *to, float x, float y, uint64_t *place, int block)
{
    if ((uintptr_t)to % 8) __builtin_trap();
    send_to(to, float2{x, y}, place, block);
}
static inline void wait_for_sent(uint64_t *place)
{
    while (*(volatile uint64_t *)place) simt_let_others();
}
static inline void cluster_arrive(void)
{
    simt_arrive();
}
static inline void cluster_wait(void)
{
    while (!simt_have_arrived()) simt_let_others();
}

/* Runs fn(args) by grid x threads threads, in clusters of so many blocks along x. */
void simt_run(void (*fn)(const void *args), const void *args, simt_index grid, unsigned threads,
              unsigned cluster);

#endif
