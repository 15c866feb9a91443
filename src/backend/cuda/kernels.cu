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

/* The threads that prepare a row: all of a block, or all but those that bring weights. */
static __device__ __forceinline__ void preparing_meet()
{
    asm volatile("bar.sync 1, %0;" ::"n"((int)RVI_CUDA_THREADS) : "memory");
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

/* Likewise as they are: the elements l % 4 * 2, + 1 of line l / 4. */
static __device__ __forceinline__ void load_lines(uint32_t m[4], const uint8_t *line)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
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

static __device__ __forceinline__ float reciprocal(float x)
{
    asm("rcp.approx.ftz.f32 %0, %0;" : "+f"(x));
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

/* ---- copies into shared memory: a warp starts them, any waits for them ----
 *
 * A place counts what has arrived, round after round: `expect_one` makes it for rounds of so many copies, `expect` begins
 * a round, and wait_for waits until that round is over, by its number's parity. A place of expect_warps counts those that
 * say done_with, and is waited for by wait_for_warps: each lane for what it has read itself, or, where the tensor cores
 * alone have read, one for its warp. The lanes for which `starts_copies` is true call expect and
 * copy_bulk: one, or, where the device has no copies in bulk, all; there, between_stages keeps the warps of a block
 * together, and nobody counts them. */

static __device__ __forceinline__ uint32_t shared_at(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

static __device__ __forceinline__ void expect_warps(uint64_t *place, int n)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_at(place)), "r"(n) : "memory");
}

#if __CUDA_ARCH__ >= 900
static __device__ __forceinline__ void done_with(uint64_t *place)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_at(place)) : "memory");
}

static __device__ __forceinline__ void between_stages()
{
}

static __device__ __forceinline__ bool starts_copies()
{
    return threadIdx.x % 32 == 0;
}

static __device__ __forceinline__ void expect_one(uint64_t *place, int = 1)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_at(place)) : "memory");
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

static __device__ __forceinline__ void wait_for_warps(uint64_t *place, uint32_t parity)
{
    wait_for(place, parity);
}
#else /* a lane copies 16 bytes at a time, and tells the place when its own are there */
static __device__ __forceinline__ void done_with(uint64_t *)
{
}

static __device__ __forceinline__ void between_stages()
{
    __syncthreads();
}

static __device__ __forceinline__ void wait_for_warps(uint64_t *, uint32_t)
{
}

static __device__ __forceinline__ bool starts_copies()
{
    return true;
}

static __device__ __forceinline__ void expect_one(uint64_t *place, int copies = 1)
{
    expect_warps(place, 32 * copies);
}

static __device__ __forceinline__ void expecting()
{
}

static __device__ __forceinline__ void expect(uint64_t *, int)
{
}

static __device__ __forceinline__ void copy_bulk(uint8_t *to, const uint8_t *from, int bytes, uint64_t *place)
{
#pragma unroll 4
    for (int i = threadIdx.x % 32 * 16; i < bytes; i += 512) copy16(to + i, from + i);
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_at(place)) : "memory");
}

static __device__ __forceinline__ void wait_for(uint64_t *place, uint32_t parity)
{
    asm volatile("{.reg .pred p; again: mbarrier.test_wait.parity.shared::cta.b64 p, [%0], %1; @!p bra again;}" ::"r"(
                     shared_at(place)),
                 "r"(parity)
                 : "memory");
    __syncwarp();
}
#endif
#else /* tests/cuda computes the kernels on the host, and copies at once */
float from_half(uint16_t h);
uint16_t to_half(float f);

static __device__ void preparing_meet()
{
    simt_sync_first(RVI_CUDA_THREADS);
}
static __device__ bool starts_copies()
{
    return threadIdx.x % 32 == 0;
}
static __device__ void expect_one(uint64_t *, int = 1)
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
static __device__ void wait_for_warps(uint64_t *, uint32_t)
{
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
    int lane = threadIdx.x % 32, line = lane % 8, piece = (2 * k + lane / 8 % 2) ^ line;
#pragma unroll
    for (int i = 0; i < ROWS / 8; i += 2) {
        uint32_t f[4];
        load_lines(f, b + (8 * i + lane / 16 * 8 + line) * 128 + piece * 16);
        for (int j = 0; j < 8 && !more; j++) c[i + j / 4][j % 4] = 0;
        mma_f16(c[i], a0, a1, a2, a3, f[0], f[1]);
        mma_f16(c[i + 1], a0, a1, a2, a3, f[2], f[3]);
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

/* Up to HELD columns of a thread: read once, all at a time; the norm is there before `begin`. Zeros behind the last one
 * do not change the sum. */
template <int HELD>
static __device__ __forceinline__ void norm_held(const float *x, const float *w, float *out, float *onto, int size, float eps)
{
    float v[HELD], by[HELD], old[HELD], sum = 0;
    int first = threadIdx.x, step = blockDim.x;
#pragma unroll
    for (int i = 0; i < HELD; i++) by[i] = first + i * step < size ? w[first + i * step] : 0.0f;
    begin();
#pragma unroll
    for (int i = 0; i < HELD; i++) v[i] = first + i * step < size ? x[first + i * step] : 0.0f;
#pragma unroll
    for (int i = 0; i < HELD; i++) old[i] = onto && first + i * step < size ? onto[first + i * step] : 0.0f;
#pragma unroll
    for (int i = 0; i < HELD; i++) sum = fmaf(v[i], v[i], sum);
    float r = 1.0f / sqrtf(block_sum(sum) / (float)size + eps);
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        if (first + i * step >= size) break;
        float y = (v[i] * r) * by[i];
        out[first + i * step] = y;
        if (onto) onto[first + i * step] = old[i] + y;
    }
}

/* Grid: rows, groups of `size` columns; one, where the results are added to something. */
KERNEL rms_norm(rvi_cuda_norm_args a)
{
    const float *x = row_of(a.x, blockIdx.x) + blockIdx.y * a.size, *w = as<const float>(a.w);
    float *out = row_of(a.out, blockIdx.x) + blockIdx.y * a.size, *onto = a.onto.at ? row_of(a.onto, blockIdx.x) : 0;
    if (a.size <= 8 * (int)blockDim.x) return norm_held<8>(x, w, out, onto, a.size, a.eps);
    if (a.size <= 16 * (int)blockDim.x) return norm_held<16>(x, w, out, onto, a.size, a.eps);
    begin();
    float sum = 0;
#pragma unroll 4
    for (int i = threadIdx.x; i < a.size; i += blockDim.x) sum = fmaf(x[i], x[i], sum);
    float r = 1.0f / sqrtf(block_sum(sum) / (float)a.size + a.eps);
#pragma unroll 4
    for (int i = threadIdx.x; i < a.size; i += blockDim.x) {
        float y = (x[i] * r) * w[i];
        out[i] = y;
        if (onto) onto[i] += y;
    }
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

/* g / (1 + 2^x), by the device's approximations, which have no branches: many of them go on together. */
static __device__ __forceinline__ float over_power(float g, float x)
{
    return g * reciprocal(1.0f + power_of_two(x));
}

static __device__ __forceinline__ float silu(float g)
{
    return over_power(g, -1.4426950408889634f * g);
}

static __device__ __forceinline__ float gelu_tanh(float g)
{
    float y = g * fmaf(0.044715f, g * g, 1.0f);
    return over_power(g, -2.302208198144325f * y); /* -2 sqrt(2 / pi) / ln 2 */
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

#include "exact.cuh"
#include "draw.cuh"
#include "products.cuh"
#include "row.cuh"
#include "short.cuh"
#include "ring.cuh"
#include "tiles.cuh"

#include "lora.cuh"
#include "pages.cuh"
#include "attention.cuh"
#include "attention_wide.cuh"
#include "tiles_wide.cuh"
#include "heads.cuh"
#include "train.cuh"
