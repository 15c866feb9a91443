/* kernels.cu - the arithmetic on the device, with orders that depend on the row alone.
 *
 * Compiled without contraction: a multiply-add is fused where fmaf says so and nowhere else, so that
 * kernels that must agree bit for bit do.
 *
 *  sum     A sum over the n columns of a row by a block of T threads: thread t takes columns t, t + T, ...
 *          in order; then the lanes of each warp are added as a tree (l ^ 16, 8, 4, 2, 1), then the warps
 *          in order.
 *  dot     A product with a row of weights: lane l of a warp takes the units of 32 weights l, l + 32, ... in
 *          order, each weight by one fused multiply-add; then the tree over the lanes.
 *  keys    Chunks of 256 keys by absolute position; inside a chunk one maximum, a fixed tree for the sum of
 *          weights, values added key after key; chunks are merged in order.
 * products.cuh and attention.cuh have orders of their own.
 *
 * Neither the number of rows of a call nor the shape of the grid takes part in any of them. */
#include "args.h"
#include "weights.h"

#define KERNEL extern "C" __global__ void
#define INFINITE __int_as_float(0x7f800000)
#define NOT_A_NUMBER __int_as_float(0x7fffffff)

template <typename T> static __device__ T *as(rvi_cuda_at at)
{
    return (T *)at;
}

static __device__ float *row_of(const rvi_cuda_cols &c, int row)
{
    return (float *)c.at + (size_t)row * c.stride;
}

#ifdef __CUDACC__
/* The compiler's own header for halves needs a package of its own. */
static __device__ float from_half(uint16_t h)
{
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
    return f;
}

static __device__ uint16_t to_half(float f)
{
    uint16_t h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
    return h;
}

static __device__ __forceinline__ uint32_t to_halves(float first, float second)
{
    uint32_t h;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(h) : "f"(second), "f"(first));
    return h;
}

/* Every kernel calls this before it reads what others wrote or writes what others read: kernels of a list may be
 * started before the one in front of them has ended. */
static __device__ void begin()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* A line of memory is going to be needed. */
static __device__ __forceinline__ void fetch(const void *p)
{
    asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}

/* Weights, which are read once. */
static __device__ __forceinline__ uint32_t load_once(const uint8_t *p)
{
    uint32_t v;
    asm volatile("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(v) : "l"(p));
    return v;
}

static __device__ __forceinline__ uint32_t load_half(const uint8_t *p)
{
    uint16_t v;
    asm volatile("ld.global.nc.L1::no_allocate.u16 %0, [%1];" : "=h"(v) : "l"(p));
    return v;
}

static __device__ __forceinline__ void load_once2(uint32_t *to, const uint8_t *p)
{
    asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];" : "=r"(to[0]), "=r"(to[1]) : "l"(p));
}

static __device__ __forceinline__ void load_once4(uint32_t *to, const uint8_t *p)
{
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "l"(p));
}

/* 16 bytes to shared memory, while the thread goes on. */
static __device__ __forceinline__ void copy16(uint8_t *to, const uint8_t *from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((uint32_t)__cvta_generic_to_shared(to)), "l"(from) : "memory");
}

static __device__ __forceinline__ void copy_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* For all but the last LEFT that were committed. */
template <int LEFT> static __device__ __forceinline__ void copy_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

/* Four 8 x 8 matrices of f16 in shared memory, transposed: lane l names line l % 8 of matrix l / 8, and gets of each
 * the column l / 4 of lines l % 4 * 2, + 1. */
static __device__ __forceinline__ void load_matrices(uint32_t m[4], const uint8_t *line)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(line))
                 : "memory");
}

/* Pairs of f16, each operation rounded. */
static __device__ __forceinline__ uint32_t half_add(uint32_t a, uint32_t b)
{
    asm("add.rn.f16x2 %0, %1, %2;" : "=r"(a) : "r"(a), "r"(b));
    return a;
}

static __device__ __forceinline__ uint32_t half_mul(uint32_t a, uint32_t b)
{
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(a) : "r"(a), "r"(b));
    return a;
}

static __device__ __forceinline__ uint32_t half_fma(uint32_t a, uint32_t b, uint32_t c)
{
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(a) : "r"(a), "r"(b), "r"(c));
    return a;
}

static __device__ __forceinline__ float power_of_two(float x)
{
    asm("ex2.approx.ftz.f32 %0, %0;" : "+f"(x));
    return x;
}

/* (x & mask) | with, in one instruction. */
static __device__ __forceinline__ uint32_t masked(uint32_t x, uint32_t mask, uint32_t with)
{
    asm("lop3.b32 %0, %0, %1, %2, 0xea;" : "+r"(x) : "r"(mask), "r"(with));
    return x;
}

#define DYNAMIC_SHARED(name) extern __shared__ __align__(1024) uint8_t name[] /* as the tensor cores want it */

/* c += a b: a: 16 x 16 (lane l has of rows l / 4 and l / 4 + 8 the columns l % 4 * 2, + 1, and those 8 further on); b: 16
 * x 8 (column l / 4, likewise); c: of rows l / 4 and l / 4 + 8 the columns l % 4 * 2, + 1. */
static __device__ __forceinline__ void mma_f16(float c[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/* ---- bulk copies into shared memory: one thread starts them, any waits for them ----
 *
 * A place counts what has arrived, round after round: `expect_one` makes it, `expect` begins a round, and wait_for waits
 * until that round is over, by its number's parity. A place of expect_warps counts the warps that say done_with.
 * Where copies are done at once, between_stages keeps the warps of a block together instead. */

#if __CUDA_ARCH__ >= 900
static __device__ __forceinline__ uint32_t shared_at(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

static __device__ __forceinline__ void expect_one(uint64_t *place)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_at(place)) : "memory");
}

static __device__ __forceinline__ void expect_warps(uint64_t *place, int n)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_at(place)), "r"(n) : "memory");
}

static __device__ __forceinline__ void done_with(uint64_t *place) /* by one lane */
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_at(place)) : "memory");
}

static __device__ __forceinline__ void between_stages()
{
}

static __device__ __forceinline__ void expecting() /* after the last expect_one */
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

static __device__ __forceinline__ void expect(uint64_t *place, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_at(place)), "r"(bytes) : "memory");
}

/* Multiples of 16. */
static __device__ __forceinline__ void copy_bulk(uint8_t *to, const uint8_t *from, int bytes, uint64_t *place)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_at(to)),
                 "l"(from), "r"(bytes), "r"(shared_at(place))
                 : "memory");
}

static __device__ __forceinline__ void wait_for(uint64_t *place, uint32_t parity)
{
    asm volatile("{.reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @!p bra again;}" ::"r"(
                     shared_at(place)),
                 "r"(parity)
                 : "memory");
}
#else
#define COPIES_AT_ONCE
#endif
#else /* tests/cuda computes the kernels on the host */
#define COPIES_AT_ONCE
float from_half(uint16_t h);
uint16_t to_half(float f);
#endif

#ifdef COPIES_AT_ONCE
static __device__ void expect_one(uint64_t *)
{
}
static __device__ void expect_warps(uint64_t *, int)
{
}
static __device__ void done_with(uint64_t *)
{
}
static __device__ void between_stages()
{
    __syncthreads();
}
static __device__ void expecting()
{
}
static __device__ void expect(uint64_t *, int)
{
}
static __device__ void copy_bulk(uint8_t *to, const uint8_t *from, int bytes, uint64_t *)
{
    for (int i = 0; i < bytes; i += 16) *(uint4 *)(to + i) = *(const uint4 *)(from + i);
}
static __device__ void wait_for(uint64_t *, uint32_t)
{
    __syncwarp();
}
#endif

/* ---- steps of a group of 4 warps: c += a b, a: 64 x 16, those of a warp as in mma_f16; b: 16 x ROWS, in shared memory
 * (products.cuh, prepared rows for tiles), step k of 4 of a line of 128 bytes. They go on while the group does
 * other things, until group_wait. more: false: c is taken to be 0. ---- */

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define FOUR(i) "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3])
template <int ROWS>
static __device__ __forceinline__ void group_step(float c[ROWS / 8][4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                                  const uint8_t *b, int k, bool more)
{
    uint32_t from = (uint32_t)__cvta_generic_to_shared(b) + k * 32;
    uint64_t at = (uint64_t)1 << 62 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 16 | (from >> 4 & 0x3fff);
    if constexpr (ROWS == 32)
        asm volatile("{.reg .pred p; setp.ne.b32 p, %21, 0; wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
                 "{%16, %17, %18, %19}, %20, p, 1, 1, 0;}"
                 : FOUR(0), FOUR(1), FOUR(2), FOUR(3)
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(at), "r"((int)more));
    if constexpr (ROWS == 64)
        asm volatile("{.reg .pred p; setp.ne.b32 p, %37, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "
                 "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
                 "{%32, %33, %34, %35}, %36, p, 1, 1, 0;}"
                 : FOUR(0), FOUR(1), FOUR(2), FOUR(3), FOUR(4), FOUR(5),
                   FOUR(6), FOUR(7)
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(at), "r"((int)more));
    if constexpr (ROWS == 128)
        asm volatile("{.reg .pred p; setp.ne.b32 p, %69, 0; wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "
                 "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, "
                 "%40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, "
                 "%59, %60, %61, %62, %63}, "
                 "{%64, %65, %66, %67}, %68, p, 1, 1, 0;}"
                 : FOUR(0), FOUR(1), FOUR(2), FOUR(3), FOUR(4), FOUR(5), FOUR(6), FOUR(7),
                   FOUR(8), FOUR(9), FOUR(10), FOUR(11), FOUR(12), FOUR(13), FOUR(14), FOUR(15)
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(at), "r"((int)more));
    if constexpr (ROWS == 192)
        asm volatile("{.reg .pred p; setp.ne.b32 p, %101, 0; wgmma.mma_async.sync.aligned.m64n192k16.f32.f16.f16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "
                 "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, "
                 "%41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, "
                 "%61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, "
                 "%81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95}, "
                 "{%96, %97, %98, %99}, %100, p, 1, 1, 0;}"
                 : FOUR(0), FOUR(1), FOUR(2), FOUR(3), FOUR(4), FOUR(5), FOUR(6), FOUR(7),
                   FOUR(8), FOUR(9), FOUR(10), FOUR(11), FOUR(12), FOUR(13), FOUR(14), FOUR(15),
                   FOUR(16), FOUR(17), FOUR(18), FOUR(19), FOUR(20), FOUR(21), FOUR(22), FOUR(23)
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(at), "r"((int)more));
}
#undef FOUR

static __device__ __forceinline__ void group_begin()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

static __device__ __forceinline__ void group_end()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* For all but the last LEFT that were ended. */
template <int LEFT> static __device__ __forceinline__ void group_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

#else
template <int ROWS>
static __device__ __forceinline__ void group_step(float c[ROWS / 8][4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                                  const uint8_t *b, int k, bool more)
{
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < ROWS / 8; i++) {
        const uint32_t *line = (const uint32_t *)(b + (8 * i + g) * 128) + t;
        if (!more) c[i][0] = c[i][1] = c[i][2] = c[i][3] = 0;
        mma_f16(c[i], a0, a1, a2, a3, line[(2 * k ^ g) * 4], line[((2 * k + 1) ^ g) * 4]);
    }
}
static __device__ __forceinline__ void group_begin()
{
}
static __device__ __forceinline__ void group_end()
{
}
template <int LEFT> static __device__ __forceinline__ void group_wait()
{
}
#endif

/* ---- sums ---- */

static __device__ float tree(float v)
{
    for (int d = 16; d; d >>= 1) v += __shfl_xor_sync(0xffffffff, v, d);
    return v;
}

/* The block's sum, known to every thread. */
static __device__ float block_sum(float v)
{
    __shared__ float part[32];
    int warp = threadIdx.x / 32, n = blockDim.x / 32;
    v = tree(v);
    __syncthreads();
    if (threadIdx.x % 32 == 0) part[warp] = v;
    __syncthreads();
    float sum = part[0];
    for (int i = 1; i < n; i++) sum += part[i];
    return sum;
}

static __device__ float block_max(float v)
{
    __shared__ float part[32];
    int warp = threadIdx.x / 32, n = blockDim.x / 32;
    for (int d = 16; d; d >>= 1) v = fmaxf(v, __shfl_xor_sync(0xffffffff, v, d));
    __syncthreads();
    if (threadIdx.x % 32 == 0) part[warp] = v;
    __syncthreads();
    float top = part[0];
    for (int i = 1; i < n; i++) top = fmaxf(top, part[i]);
    return top;
}

/* ---- row by row ---- */

KERNEL rows_copy(rvi_cuda_copy_args a)
{
    begin();
    const float *from = as<const float>(a.from) + (size_t)blockIdx.x * a.out.n;
    float *out = row_of(a.out, blockIdx.x);
    for (int i = threadIdx.x; i < a.out.n; i += blockDim.x) out[i] = from[i];
}

/* The first kernel of a list. The others may read what it brings before their wait, so none may start before its end. */
KERNEL bring(rvi_cuda_bring_args a)
{
    int i = 0, block = blockIdx.x;
    for (int j = 1; j < a.n_jobs; j++) i = block >= a.job[j].first_block ? j : i;
    rvi_cuda_bring_job job = a.job[i];
    block -= job.first_block;
    int row = block / job.pieces, at = block % job.pieces * RVI_CUDA_BRING + threadIdx.x;
    const float *from = as<const float>(job.from) + (size_t)row * job.out.n;
    float *out = row_of(job.out, row), v[4];
#pragma unroll
    for (int j = 0; j < 4; j++) v[j] = at + j * RVI_CUDA_THREADS < job.out.n ? __ldcv(&from[at + j * RVI_CUDA_THREADS]) : 0.0f;
#pragma unroll
    for (int j = 0; j < 4; j++)
        if (at + j * RVI_CUDA_THREADS < job.out.n) out[at + j * RVI_CUDA_THREADS] = v[j];
    __threadfence();
}

/* The last kernel of a list: the host sees its number when it sees what the list has written. */
KERNEL signal(rvi_cuda_signal_args a)
{
    begin();
    if (threadIdx.x) return;
    uint32_t n = *as<uint32_t>(a.counter) + 1;
    *as<uint32_t>(a.counter) = n;
    __threadfence_system();
    *as<volatile uint32_t>(a.out) = n;
}

KERNEL gather(rvi_cuda_gather_args a)
{
    begin();
    const float *from = row_of(a.x, a.from ? as<const int32_t>(a.from)[blockIdx.x] : a.row);
    float *out = row_of(a.out, blockIdx.x);
    for (int i = threadIdx.x; i < a.out.n; i += blockDim.x) out[i] = from[i];
}

/* Grid: rows, groups of `size` columns. */
KERNEL rms_norm(rvi_cuda_norm_args a)
{
    begin();
    const float *x = row_of(a.x, blockIdx.x) + blockIdx.y * a.size, *w = as<const float>(a.w);
    float *out = row_of(a.out, blockIdx.x) + blockIdx.y * a.size;
    float sum = 0;
#pragma unroll 4
    for (int i = threadIdx.x; i < a.size; i += blockDim.x) sum = fmaf(x[i], x[i], sum);
    float r = 1.0f / sqrtf(block_sum(sum) / (float)a.size + a.eps);
#pragma unroll 4
    for (int i = threadIdx.x; i < a.size; i += blockDim.x) out[i] = (x[i] * r) * w[i];
}

KERNEL layer_norm(rvi_cuda_norm_args a)
{
    begin();
    const float *x = row_of(a.x, blockIdx.x), *w = as<const float>(a.w), *b = as<const float>(a.b);
    float *out = row_of(a.out, blockIdx.x);
    float sum = 0, squares = 0;
    for (int i = threadIdx.x; i < a.size; i += blockDim.x) sum += x[i];
    float mean = block_sum(sum) / (float)a.size;
    for (int i = threadIdx.x; i < a.size; i += blockDim.x) squares = fmaf(x[i] - mean, x[i] - mean, squares);
    float r = 1.0f / sqrtf(block_sum(squares) / (float)a.size + a.eps);
    for (int i = threadIdx.x; i < a.size; i += blockDim.x) out[i] = fmaf((x[i] - mean) * r, w[i], b[i]);
}

/* Pair p of a head. */
static __device__ void turn(const float *x, float *to, float c, float s, int p, int n_pairs, int interleaved)
{
    int u = interleaved ? 2 * p : p, v = u + (interleaved ? 1 : n_pairs);
    float left = x[u], right = x[v];
    to[u] = fmaf(left, c, -(right * s));
    to[v] = fmaf(right, c, left * s);
}

KERNEL rope(rvi_cuda_rope_args a)
{
    begin();
    int n_pairs = a.angles.n / 2, total = a.x.n / a.head_size * n_pairs;
    const float *cosines = row_of(a.angles, blockIdx.x), *sines = cosines + n_pairs;
    for (int i = blockIdx.y * blockDim.x + threadIdx.x; i < total; i += gridDim.y * blockDim.x) {
        float *x = row_of(a.x, blockIdx.x) + i / n_pairs * a.head_size;
        turn(x, x, cosines[i % n_pairs], sines[i % n_pairs], i % n_pairs, n_pairs, a.interleaved);
    }
}

static __device__ float silu(float g)
{
    return g / (1.0f + expf(-g));
}

static __device__ float gelu_tanh(float g)
{
    float y = g * fmaf(0.044715f, g * g, 1.0f);
    return g / (1.0f + expf(-1.5957691216057308f * y)); /* -2 sqrt(2 / pi) */
}

/* kind: rvi_glu; out = act(x) * y */
KERNEL glu(rvi_cuda_pair_args a)
{
    begin();
    const float *x = row_of(a.x, blockIdx.x), *y = row_of(a.y, blockIdx.x);
    float *out = row_of(a.out, blockIdx.x);
    for (int i = blockIdx.y * blockDim.x + threadIdx.x; i < a.out.n; i += gridDim.y * blockDim.x)
        out[i] = (a.kind ? gelu_tanh(x[i]) : silu(x[i])) * y[i];
}

/* kind: rvi_act */
KERNEL act(rvi_cuda_pair_args a)
{
    begin();
    float *x = row_of(a.x, blockIdx.x);
    for (int i = blockIdx.y * blockDim.x + threadIdx.x; i < a.x.n; i += gridDim.y * blockDim.x) {
        float g = x[i];
        x[i] = a.kind == 0 ? g * normcdff(g) : a.kind == 1 ? gelu_tanh(g) : g < 0.0f ? 0.0f : g;
    }
}

KERNEL add(rvi_cuda_pair_args a)
{
    begin();
    const float *y = row_of(a.y, blockIdx.x);
    float *x = row_of(a.x, blockIdx.x);
    for (int i = blockIdx.y * blockDim.x + threadIdx.x; i < a.x.n; i += gridDim.y * blockDim.x) x[i] += y[i];
}

static __device__ float capped(float x, float cap)
{
    return cap * tanhf(x / cap);
}

KERNEL soft_cap(rvi_cuda_pair_args a)
{
    begin();
    float *x = row_of(a.x, blockIdx.x);
    for (int i = blockIdx.y * blockDim.x + threadIdx.x; i < a.x.n; i += gridDim.y * blockDim.x)
        x[i] = capped(x[i], a.value);
}

/* The first of the row's largest values; -1: one is NaN or infinite, or all are -INFINITE. Floats hold every place up to
 * 2^24. Grid: rows, pieces of a row; the last block of a row to end merges its pieces. */
KERNEL best(rvi_cuda_best_args a)
{
    __shared__ int last;
    begin();
    int row = blockIdx.x, each = (a.x.n + a.pieces - 1) / a.pieces, first = blockIdx.y * each, end = min(first + each, a.x.n);
    const float *x = row_of(a.x, row), none = -16777216.0f;
    float top = -INFINITE, bad = 0, place = none;
#pragma unroll 8
    for (int i = first + threadIdx.x; i < end; i += blockDim.x) {
        float v = x[i];
        if (!(v < INFINITE)) bad = 1;
        if (v > top) {
            top = v;
            place = -(float)i;
        }
    }
    float most = block_max(top);
    place = block_max(top == most ? place : none);
    bad = block_max(bad);
    if (a.pieces > 1) {
        float4 *part = as<float4>(a.parts) + row * a.pieces;
        if (threadIdx.x == 0) {
            int *arrived = as<int>(a.arrivals) + row;
            part[blockIdx.y] = {most, place, bad, 0.0f};
            __threadfence();
            last = atomicAdd(arrived, 1) == a.pieces - 1;
            if (last) *arrived = 0;
        }
        __syncthreads();
        if (!last) return;
        __threadfence();
        float4 of = {-INFINITE, none, 0.0f, 0.0f};
        if ((int)threadIdx.x < a.pieces) of = __ldcg(&part[threadIdx.x]);
        most = block_max(of.x);
        place = block_max(of.x == most ? of.y : none);
        bad = block_max(of.z);
    }
    if (threadIdx.x == 0) as<int32_t>(a.out)[row] = bad > 0 || most == -INFINITE ? -1 : (int32_t)-place;
}

/* ---- weights: a unit of 32 weights to floats ----
 *
 * main, head: of the unit's block; sub: which 32 of it. Every operation is rounded, in the order of
 * formats/quant.c, so the floats are those of the CPU. */

enum weight_type {
#define X(name, weights, before, main, after) name,
    RVI_CUDA_TYPES(X)
#undef X
};

template <int TYPE> struct layout_of;
#define X(name, weights, before, main_bytes, after)                                                                    \
    template <> struct layout_of<name> {                                                                               \
        enum { WEIGHTS = weights, MAIN = main_bytes, HEAD = before + after };                                          \
    };
RVI_CUDA_TYPES(X)
#undef X

static __device__ float half_at(const uint8_t *p)
{
    return from_half(*(const uint16_t *)p);
}

static __device__ uint32_t word_at(const uint8_t *p) /* aligned to 2 */
{
    return ((const uint16_t *)p)[0] | (uint32_t)((const uint16_t *)p)[1] << 16;
}

/* 16 bytes */
struct bytes16 {
    uint32_t w[4];
    __device__ int operator[](int i) const { return w[i / 4] >> (i % 4 * 8) & 255; }
    __device__ int byte(int i) const { return (int)(int8_t)(*this)[i]; }
};

static __device__ bytes16 load16(const uint8_t *p)
{
    uint4 v = __ldg((const uint4 *)p);
    return {{v.x, v.y, v.z, v.w}};
}

static __device__ const int8_t iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                 1,    13,   25,  38,  53,  69,  89,  113};

static __device__ void scale_min(const uint8_t *s, int j, int *scale, int *min)
{
    if (j < 4) {
        *scale = s[j] & 63;
        *min = s[j + 4] & 63;
    } else {
        *scale = (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
        *min = s[j + 4] >> 4 | (s[j] >> 6) << 4;
    }
}

template <int TYPE>
static __device__ void decode(const uint8_t *main, const uint8_t *head, int sub, float w[32])
{
    if constexpr (TYPE == F32) {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            float4 v = __ldg((const float4 *)main + i);
            w[4 * i] = v.x, w[4 * i + 1] = v.y, w[4 * i + 2] = v.z, w[4 * i + 3] = v.w;
        }
    } else if constexpr (TYPE == F16 || TYPE == BF16) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            bytes16 q = load16(main + 16 * i);
#pragma unroll
            for (int j = 0; j < 8; j++) {
                uint32_t bits = q.w[j / 2] >> (j % 2 * 16) & 0xffff;
                w[8 * i + j] =
                    TYPE == F16 ? from_half((uint16_t)bits) : __uint_as_float(bits << 16);
            }
        }
    } else if constexpr (TYPE == Q8_0) {
        float d = half_at(head);
        bytes16 low = load16(main), high = load16(main + 16);
#pragma unroll
        for (int i = 0; i < 16; i++) {
            w[i] = (float)low.byte(i) * d;
            w[16 + i] = (float)high.byte(i) * d;
        }
    } else if constexpr (TYPE == Q4_0 || TYPE == Q4_1 || TYPE == Q5_0 || TYPE == Q5_1 || TYPE == IQ4_NL) {
        const bool has_min = TYPE == Q4_1 || TYPE == Q5_1, has_fifth = TYPE == Q5_0 || TYPE == Q5_1;
        float d = half_at(head), m = has_min ? half_at(head + 2) : 0.0f;
        uint32_t fifth = has_fifth ? word_at(head + (has_min ? 4 : 2)) : 0;
        bytes16 q = load16(main);
#pragma unroll
        for (int i = 0; i < 32; i++) {
            int v = i < 16 ? q[i] & 15 : q[i - 16] >> 4;
            if (has_fifth) v |= (fifth >> i & 1) << 4;
            if (TYPE == IQ4_NL)
                w[i] = d * (float)iq4_values[v];
            else if (has_min)
                w[i] = d * (float)v + m;
            else
                w[i] = d * (float)(v - (has_fifth ? 16 : 8));
        }
    } else if constexpr (TYPE == Q2_K) {
        float d = half_at(head + 16), dmin = half_at(head + 18);
        const uint8_t *qs = main + sub / 4 * 32;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int scale = head[2 * sub + h];
            float dl = d * (float)(scale & 15), ml = dmin * (float)(scale >> 4);
            bytes16 q = load16(qs + 16 * h);
#pragma unroll
            for (int i = 0; i < 16; i++) w[16 * h + i] = dl * (float)(q[i] >> (sub % 4 * 2) & 3) - ml;
        }
    } else if constexpr (TYPE == Q3_K) { /* main: third bits, quants; head: scales, d */
        float d = half_at(head + 12);
        const uint8_t *qs = main + 32 + sub / 4 * 32;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int g = 2 * sub + h, low = head[g % 8] >> (g / 8 * 4) & 15, high = head[8 + g % 4] >> (g / 4 * 2) & 3;
            float dl = d * (float)((low | high << 4) - 32);
            bytes16 q = load16(qs + 16 * h), third = load16(main + 16 * h);
#pragma unroll
            for (int i = 0; i < 16; i++)
                w[16 * h + i] = dl * (float)((q[i] >> (sub % 4 * 2) & 3) - (third[i] >> sub & 1 ? 0 : 4));
        }
    } else if constexpr (TYPE == Q4_K || TYPE == Q5_K) { /* main of Q5_K: fifth bits, quants */
        int scale, min;
        scale_min(head + 4, sub, &scale, &min);
        float dl = half_at(head) * (float)scale, ml = half_at(head + 2) * (float)min;
        const uint8_t *qs = main + (TYPE == Q5_K ? 32 : 0) + sub / 2 * 32;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            bytes16 q = load16(qs + 16 * h), fifth = TYPE == Q5_K ? load16(main + 16 * h) : bytes16{};
#pragma unroll
            for (int i = 0; i < 16; i++) {
                int v = q[i] >> (sub % 2 * 4) & 15;
                if (TYPE == Q5_K) v |= (fifth[i] >> sub & 1) << 4;
                w[16 * h + i] = dl * (float)v - ml;
            }
        }
    } else if constexpr (TYPE == Q6_K) { /* main: low, high bits; head: scales, d */
        float d = half_at(head + 16);
        const uint8_t *low = main + sub / 4 * 64 + sub % 2 * 32, *high = main + 128 + sub / 4 * 32;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float dl = d * (float)(int8_t)head[2 * sub + h];
            bytes16 l = load16(low + 16 * h), u = load16(high + 16 * h);
#pragma unroll
            for (int i = 0; i < 16; i++) {
                int v = (l[i] >> (sub % 4 / 2 * 4) & 15) | (u[i] >> (sub % 4 * 2) & 3) << 4;
                w[16 * h + i] = dl * (float)(v - 32);
            }
        }
    } else if constexpr (TYPE == IQ4_XS) { /* head: d, high bits of scales, low bits */
        int low = head[4 + sub / 2] >> (sub % 2 * 4) & 15, high = *(const uint16_t *)(head + 2) >> (2 * sub) & 3;
        float dl = half_at(head) * (float)((low | high << 4) - 32);
        bytes16 q = load16(main + 16 * sub);
#pragma unroll
        for (int i = 0; i < 32; i++) w[i] = dl * (float)iq4_values[i < 16 ? q[i] & 15 : q[i - 16] >> 4];
    }
}

/* ---- products ---- */

enum { STAGED = 8192, WARPS = RVI_CUDA_THREADS / 32, GROUP = 32 * RVI_CUDA_UNIT };

/* Activations of `rows` rows in shared memory: columns k0 .. k0 + n - 1, zeros behind the last. A float4 of
 * a unit lies beside those of the other lanes' units, so that a warp's loads meet every bank once. */
template <int ROWS>
static __device__ void stage(float *xs, const rvi_cuda_matmul_args &a, int row, int k0)
{
    const int n = STAGED / ROWS;
    for (int i = threadIdx.x; i < STAGED; i += blockDim.x) {
        int r = i / n, k = i % n, unit = k / 32;
        float v = row + r < a.n_rows && k0 + k < a.x.n ? row_of(a.x, row + r)[k0 + k] : 0.0f;
        xs[r * n + ((unit / 32 * 8 + k % 32 / 4) * 32 + unit % 32) * 4 + k % 4] = v;
    }
}

template <int TYPE, int ROWS>
static __device__ void add_unit(const uint8_t *row, uint64_t heads, int unit, const float4 *xs, float acc[ROWS])
{
    typedef layout_of<TYPE> L;
    const int per_block = L::WEIGHTS / 32;
    int block = unit / per_block;
    float w[32];
    decode<TYPE>(row + (size_t)block * L::MAIN, row + heads + (size_t)block * L::HEAD, unit % per_block, w);
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int j = 0; j < 8; j++) {
            float4 x = xs[r * (STAGED / ROWS / 4) + j * 32];
            acc[r] = fmaf(w[4 * j], x.x, acc[r]);
            acc[r] = fmaf(w[4 * j + 1], x.y, acc[r]);
            acc[r] = fmaf(w[4 * j + 2], x.z, acc[r]);
            acc[r] = fmaf(w[4 * j + 3], x.w, acc[r]);
        }
}

/* v, v2: with their biases; old: what is there. */
static __device__ __forceinline__ float finished(int finish, float v, float v2, float old)
{
    switch (finish) {
    case RVI_CUDA_ADD: return old + v;
    case RVI_CUDA_SILU: return silu(v) * v2;
    case RVI_CUDA_GELU: return gelu_tanh(v) * v2;
    default: return v;
    }
}

static __device__ void finish(const rvi_cuda_matmul_args &a, int row, int o, float v, float v2)
{
    float *out = row_of(a.out, row) + o;
    if (a.bias) v += as<const float>(a.bias)[o];
    if (a.bias2) v2 += as<const float>(a.bias2)[o];
    *out = finished(a.finish, v, v2, a.finish == RVI_CUDA_ADD ? *out : 0.0f);
}

/* A warp computes one output of ROWS rows. Grid: outputs / WARPS, rows / ROWS. */
template <int TYPE, int ROWS> static __device__ void matmul(const rvi_cuda_matmul_args &a)
{
    __shared__ float4 xs[STAGED / 4];
    int lane = threadIdx.x % 32, o = blockIdx.x * WARPS + threadIdx.x / 32, row = blockIdx.y * ROWS;
    int n_units = (a.x.n + 31) / 32;
    bool mine = o < a.n_out;
    const uint8_t *w = as<const uint8_t>(a.w) + (size_t)o * a.row_bytes;
    const uint8_t *w2 = as<const uint8_t>(a.w2) + (size_t)o * a.row_bytes;
    float acc[ROWS] = {}, acc2[ROWS] = {};
    for (int k0 = 0; k0 < a.x.n; k0 += STAGED / ROWS) {
        __syncthreads();
        stage<ROWS>((float *)xs, a, row, k0);
        __syncthreads();
#pragma unroll 1
        for (int g = 0; mine && g < STAGED / ROWS / GROUP; g++) {
            int unit = k0 / 32 + g * 32 + lane;
            if (unit >= n_units) break;
            add_unit<TYPE, ROWS>(w, a.heads, unit, xs + g * 256 + lane, acc);
            if (a.w2) add_unit<TYPE, ROWS>(w2, a.heads, unit, xs + g * 256 + lane, acc2);
        }
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        float v = tree(acc[r]), v2 = a.w2 ? tree(acc2[r]) : 0.0f;
        if (mine && lane == 0 && row + r < a.n_rows) finish(a, row + r, o, v, v2);
    }
}

#define X(name, weights, before, main, after)                                                                          \
    KERNEL __launch_bounds__(RVI_CUDA_THREADS) matmul_##name##_1(rvi_cuda_matmul_args a) { begin(), matmul<name, 1>(a); }            \
    KERNEL __launch_bounds__(RVI_CUDA_THREADS) matmul_##name##_4(rvi_cuda_matmul_args a) { begin(), matmul<name, 4>(a); }
RVI_CUDA_TYPES(X)
#undef X

#include "products.cuh"
#include "row.cuh"
#include "tiles.cuh"

/* ---- adapters: a warp an output; lane l takes columns l, l + 32, ... ---- */

static __device__ float dot_floats(const float *a, const float *b, int n)
{
    float acc = 0;
    for (int i = threadIdx.x % 32; i < n; i += 32) acc = fmaf(a[i], b[i], acc);
    return tree(acc);
}

KERNEL lora_down(rvi_cuda_lora_args a)
{
    begin();
    int j = blockIdx.x * WARPS + threadIdx.x / 32;
    if (j >= a.rank) return;
    const float *x = row_of(a.x, as<const int32_t>(a.rows)[blockIdx.y]);
    float v = dot_floats(as<const float>(a.a) + (size_t)j * a.x.n, x, a.x.n) * a.scale;
    if (threadIdx.x % 32 == 0) as<float>(a.low)[(size_t)blockIdx.y * RVI_CUDA_LOW + j] = v;
}

KERNEL lora_up(rvi_cuda_lora_args a)
{
    begin();
    int o = blockIdx.x * WARPS + threadIdx.x / 32;
    if (o >= a.out.n) return;
    const float *low = as<const float>(a.low) + (size_t)blockIdx.y * RVI_CUDA_LOW;
    float v = dot_floats(as<const float>(a.b) + (size_t)o * a.rank, low, a.rank);
    if (threadIdx.x % 32 == 0) row_of(a.out, as<const int32_t>(a.rows)[blockIdx.y])[o] += v;
}

/* ---- keys and values; pages are laid out as kernels/kernels.h says ---- */

enum { KV_F32, KV_F16, KV_Q8 };

static __device__ uint8_t *planes(const rvi_cuda_kv &kv, int row, int page, int head)
{
    int2 r = as<const int2>(kv.rows)[row];
    int32_t number = as<const int32_t>(kv.tables)[r.x + page];
    return as<uint8_t>(kv.data) + (size_t)number * kv.page_bytes +
           ((size_t)kv.il * kv.n_kv_heads + head) * (kv.k_bytes + kv.v_bytes);
}

/* int8 with one scale: what quantize_head of kernels.h gives. */
static __device__ float head_scale(const float *x, int n, float *inverse)
{
    float amax = 0, bad = 0;
    for (int e = threadIdx.x; e < n; e += blockDim.x) {
        amax = fmaxf(amax, fabsf(x[e]));
        if (!isfinite(x[e])) bad = 1;
    }
    amax = block_max(amax);
    bad = block_max(bad);
    bool zero = bad > 0 || amax < 1e-30f;
    *inverse = zero ? 0.0f : 127.0f / amax;
    return bad > 0 ? NOT_A_NUMBER : zero ? 0.0f : amax / 127.0f;
}

static __device__ int8_t quant(float x, float inverse)
{
    return inverse == 0.0f ? (int8_t)0 : (int8_t)rintf(x * inverse);
}

/* k, v: of one head of a row. */
static __device__ void write_head(const rvi_cuda_kv &kv, int row, int head, const float *k, const float *v)
{
    int n = kv.head_size, padded = kv.padded, pos = as<const int2>(kv.rows)[row].y, slot = pos % RVI_CUDA_PAGE;
    uint8_t *k_plane = planes(kv, row, pos / RVI_CUDA_PAGE, head), *v_plane = k_plane + kv.k_bytes;
    if (kv.type == KV_Q8) {
        float k_inverse, v_inverse, kd = head_scale(k, n, &k_inverse), vd = head_scale(v, n, &v_inverse);
        int fours = (n + 3) / 4;
        for (int e = threadIdx.x; e < fours * 4; e += blockDim.x)
            k_plane[(e / 4 * RVI_CUDA_PAGE + slot) * 4 + e % 4] = (uint8_t)(e < n ? quant(k[e], k_inverse) : 0);
        for (int e = threadIdx.x; e < padded; e += blockDim.x)
            v_plane[slot * padded + e] = (uint8_t)(e < n ? quant(v[e], v_inverse) : 0);
        if (threadIdx.x == 0) {
            ((float *)(k_plane + (size_t)fours * RVI_CUDA_PAGE * 4))[slot] = kd;
            ((float *)(v_plane + (size_t)RVI_CUDA_PAGE * padded))[slot] = vd;
        }
        return;
    }
    for (int e = threadIdx.x; e < padded; e += blockDim.x) {
        float kx = e < n ? k[e] : 0.0f, vx = e < n ? v[e] : 0.0f;
        if (kv.type == KV_F32) {
            if (e < n) ((float *)k_plane)[e * RVI_CUDA_PAGE + slot] = kx;
            ((float *)v_plane)[slot * padded + e] = vx;
        } else {
            if (e < n) ((uint16_t *)k_plane)[e * RVI_CUDA_PAGE + slot] = to_half(kx);
            ((uint16_t *)v_plane)[slot * padded + e] = to_half(vx);
        }
    }
}

/* Grid: rows, heads. */
KERNEL kv_write(rvi_cuda_kv_write_args a)
{
    begin();
    int n = a.kv.head_size;
    write_head(a.kv, blockIdx.x, blockIdx.y, row_of(a.k, blockIdx.x) + blockIdx.y * n,
               row_of(a.v, blockIdx.x) + blockIdx.y * n);
}

/* rope of queries and keys, then kv_write. Grid: rows, heads of keys, then of queries by QUERY_HEADS. */
KERNEL rope_kv(rvi_cuda_rope_kv_args a)
{
    begin();
    __shared__ float turned[RVI_CUDA_MAX_HEAD];
    int row = blockIdx.x, n = a.kv.head_size, n_pairs = a.angles.n / 2, queries = a.x.n / n - a.kv.n_kv_heads;
    int head = blockIdx.y, first = (head - a.kv.n_kv_heads) * RVI_CUDA_QUERY_HEADS;
    const float *cosines = row_of(a.angles, row), *sines = cosines + n_pairs;
    float *x = row_of(a.x, row) + (first >= 0 ? first : queries + head) * n;
    if (first >= 0) {
#pragma unroll 4
        for (uint32_t i = threadIdx.x; i < min(RVI_CUDA_QUERY_HEADS, queries - first) * (uint32_t)n_pairs; i += blockDim.x) {
            uint32_t p = i % n_pairs;
            turn(x + i / n_pairs * n, x + i / n_pairs * n, cosines[p], sines[p], p, n_pairs, a.interleaved);
        }
        return;
    }
    for (int e = threadIdx.x + 2 * n_pairs; e < n; e += blockDim.x) turned[e] = x[e];
    for (int p = threadIdx.x; p < n_pairs; p += blockDim.x) turn(x, turned, cosines[p], sines[p], p, n_pairs, a.interleaved);
    __syncthreads();
    for (int e = threadIdx.x; e < n; e += blockDim.x) x[e] = turned[e]; /* other sequences may get it, too */
    write_head(a.kv, row, head, turned, row_of(a.v, row) + head * n);
}

/* ---- attention ---- */

enum { ELEMENTS = RVI_CUDA_MAX_HEAD / RVI_CUDA_ATTENTION }; /* of a head, for one thread */

/* What a run of chunks gives: the maximum, the sum of weights, the values of elements t, t + 128, ... */
struct mix {
    float m, l, acc[ELEMENTS];
};

template <int TYPE> static __device__ float score(const rvi_cuda_kv &kv, const uint8_t *plane, int slot, const float *q)
{
    int n = kv.head_size;
    float sum = 0;
#pragma unroll 16
    for (int e = 0; e < n; e++) {
        int at = TYPE == KV_Q8 ? (e / 4 * RVI_CUDA_PAGE + slot) * 4 + e % 4 : e * RVI_CUDA_PAGE + slot;
        float k = TYPE == KV_F32   ? ((const float *)plane)[at]
                  : TYPE == KV_F16 ? from_half(((const uint16_t *)plane)[at])
                                   : (float)((const int8_t *)plane)[at];
        sum = fmaf(q[e], k, sum);
    }
    if (TYPE == KV_Q8) sum *= ((const float *)(plane + (size_t)((n + 3) / 4) * 4 * RVI_CUDA_PAGE))[slot];
    return sum;
}

template <int TYPE>
static __device__ void add_value(const rvi_cuda_kv &kv, const uint8_t *plane, int slot, float p, float *acc)
{
    int at = slot * kv.padded;
    if (TYPE == KV_Q8) p *= ((const float *)(plane + (size_t)RVI_CUDA_PAGE * kv.padded))[slot];
#pragma unroll
    for (int i = 0; i < ELEMENTS; i++) {
        int e = threadIdx.x + i * RVI_CUDA_ATTENTION;
        if (e >= kv.head_size) break;
        float v = TYPE == KV_F32   ? ((const float *)plane)[at + e]
                  : TYPE == KV_F16 ? from_half(((const uint16_t *)plane)[at + e])
                                   : (float)((const int8_t *)plane)[at + e];
        acc[i] = fmaf(p, v, acc[i]);
    }
}

static __device__ int first_key(const rvi_cuda_attention_args &a, int pos)
{
    return a.window && pos >= a.window ? pos - a.window + 1 : 0;
}

/* q: the scaled query in shared memory; p: room for the weights of a chunk. */
template <int TYPE>
static __device__ mix chunk_of(const rvi_cuda_attention_args &a, int row, int kv_head, int chunk, const float *q, float *p)
{
    enum { PAGES = RVI_CUDA_CHUNK / RVI_CUDA_PAGE };
    __shared__ const uint8_t *page[PAGES];
    int pos = as<const int2>(a.kv.rows)[row].y, base = chunk * RVI_CUDA_CHUNK;
    int from = max(first_key(a, pos) - base, 0), end = min(pos + 1 - base, (int)RVI_CUDA_CHUNK);
    float top = -INFINITE, sum = 0;
    __syncthreads();
    if (threadIdx.x < PAGES && (int)threadIdx.x * RVI_CUDA_PAGE < end)
        page[threadIdx.x] = planes(a.kv, row, base / RVI_CUDA_PAGE + threadIdx.x, kv_head);
    __syncthreads();
    for (int key = threadIdx.x; key < RVI_CUDA_CHUNK; key += RVI_CUDA_ATTENTION) {
        float s = -INFINITE;
        if (key >= from && key < end) {
            s = score<TYPE>(a.kv, page[key / RVI_CUDA_PAGE], key % RVI_CUDA_PAGE, q);
            if (a.soft_cap > 0) s = capped(s, a.soft_cap);
        }
        p[key] = s;
        top = s != s ? s : fmaxf(top, s);
    }
    mix x = {};
    x.m = block_max(top);
    for (int key = threadIdx.x; key < RVI_CUDA_CHUNK; key += RVI_CUDA_ATTENTION) {
        float w = key >= from && key < end ? expf(p[key] - x.m) : 0.0f;
        p[key] = w;
        sum += w;
    }
    x.l = block_sum(sum);
#pragma unroll 8
    for (int key = from; key < end; key++)
        add_value<TYPE>(a.kv, page[key / RVI_CUDA_PAGE] + a.kv.k_bytes, key % RVI_CUDA_PAGE, p[key], x.acc);
    return x;
}

static __device__ mix chunk_mix(const rvi_cuda_attention_args &a, int row, int kv_head, int chunk, const float *q, float *p)
{
    return a.kv.type == KV_F32   ? chunk_of<KV_F32>(a, row, kv_head, chunk, q, p)
           : a.kv.type == KV_F16 ? chunk_of<KV_F16>(a, row, kv_head, chunk, q, p)
                                 : chunk_of<KV_Q8>(a, row, kv_head, chunk, q, p);
}

static __device__ void merge(mix *x, const mix &y)
{
    float top = fmaxf(x->m, y.m), c = expf(x->m - top), d = expf(y.m - top);
    x->m = top;
    x->l = x->l * c + y.l * d;
#pragma unroll
    for (int i = 0; i < ELEMENTS; i++) x->acc[i] = x->acc[i] * c + y.acc[i] * d;
}

static __device__ void put(const rvi_cuda_attention_args &a, int row, int head, const mix &x)
{
    float *out = row_of(a.out, row) + head * a.kv.head_size, r = 1.0f / x.l;
#pragma unroll
    for (int i = 0; i < ELEMENTS; i++) {
        int e = threadIdx.x + i * RVI_CUDA_ATTENTION;
        if (e < a.kv.head_size) out[e] = x.acc[i] * r;
    }
}

static __device__ float *part_at(const rvi_cuda_attention_args &a, int row, int head, int part)
{
    return as<float>(a.parts) + (((size_t)row * a.n_heads + head) * a.n_parts + part) * (a.kv.padded + RVI_CUDA_PART_MORE);
}

/* Grid: heads, rows, parts. With parts, part i is the chunk that lies i behind the row's first one, and
 * attention_merge follows; without, a block takes all chunks of its row. */
KERNEL attention(rvi_cuda_attention_args a)
{
    begin();
    __shared__ float q[RVI_CUDA_MAX_HEAD], p[RVI_CUDA_CHUNK];
    int head = blockIdx.x, row = blockIdx.y, n = a.kv.head_size, kv_head = head / (a.n_heads / a.kv.n_kv_heads);
    int pos = as<const int2>(a.kv.rows)[row].y;
    int first = first_key(a, pos) / RVI_CUDA_CHUNK, last = pos / RVI_CUDA_CHUNK;
    if (a.n_parts && first + (int)blockIdx.z > last) return;
    const float *x = row_of(a.q, row) + head * n;
    for (int e = threadIdx.x; e < n; e += blockDim.x) q[e] = x[e] * a.scale;
    __syncthreads();
    mix all = chunk_mix(a, row, kv_head, first + blockIdx.z, q, p);
    if (!a.n_parts) {
        for (int c = first + 1; c <= last; c++) merge(&all, chunk_mix(a, row, kv_head, c, q, p));
        put(a, row, head, all);
        return;
    }
    float *part = part_at(a, row, head, blockIdx.z);
    for (int i = 0; i < ELEMENTS; i++) {
        int e = threadIdx.x + i * RVI_CUDA_ATTENTION;
        if (e < n) part[e] = all.acc[i];
    }
    if (threadIdx.x == 0) part[a.kv.padded] = all.m, part[a.kv.padded + 1] = all.l;
}

static __device__ mix part_mix(const rvi_cuda_attention_args &a, const float *part)
{
    mix x = {};
    x.m = part[a.kv.padded], x.l = part[a.kv.padded + 1];
#pragma unroll
    for (int i = 0; i < ELEMENTS; i++) {
        int e = threadIdx.x + i * RVI_CUDA_ATTENTION;
        if (e < a.kv.head_size) x.acc[i] = part[e];
    }
    return x;
}

KERNEL attention_merge(rvi_cuda_attention_args a)
{
    begin();
    int head = blockIdx.x, row = blockIdx.y, pos = as<const int2>(a.kv.rows)[row].y;
    int n = pos / RVI_CUDA_CHUNK - first_key(a, pos) / RVI_CUDA_CHUNK + 1;
    mix all = part_mix(a, part_at(a, row, head, 0));
    for (int c = 1; c < n; c++) merge(&all, part_mix(a, part_at(a, row, head, c)));
    put(a, row, head, all);
}

#include "attention.cuh"
#include "attention_wide.cuh"
#include "tiles_wide.cuh"
#include "heads.cuh"
#include "train.cuh"
