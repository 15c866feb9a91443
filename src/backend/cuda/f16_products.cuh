/* f16_products.cuh - products with weights in f16 panels (weights.h), on the tensor cores.
 *
 *  activations  A row is multiplied by a power of two that brings its largest element to 2^13 .. 2^14 and rounded to
 *               f16; the result is multiplied by the inverse. A row with a NaN or an infinity gives NaN. With BF16
 *               weights two bf16: h, the activation rounded, and l, what is left of it rounded.
 *  weights      q, less its offset, is exact in f16; D = d * scale and M = m * minimum are rounded to f16; the weight
 *               is q * D, or fma(q, D, M), rounded to f16. BF16 as they are.
 *  unit         Two steps of mma.m16n8k16 onto an f32 accumulator: of weights 0 1 2 3 of each 8, then of 4 5 6 7.
 *               BF16: each of them with h, then with l.
 *  row          The blocks of a row are cut into 4 segments of (blocks + 3) / 4. A segment is one chain over its units
 *               from +0; the segments that have blocks are added in order.
 *
 * All kernels have this order. The columns and rows of an mma do not touch each other, so neither the rows that go
 * together nor the kernel show in the result. */

/* ---- activations ----
 *
 * Prepared rows lie by unit, then by row: 64 bytes of f16 (BF16: of h, then 64 of l), to whole groups of 4 units. */

namespace f16 {

enum { GROUP_UNITS = 4, SEGMENTS = 4, OUTS = RVI_CUDA_PANEL };

static __device__ int units_of(int n)
{
    return (n + 32 * GROUP_UNITS - 1) / (32 * GROUP_UNITS) * GROUP_UNITS;
}

/* What the block learns of a row before it writes it. */
struct about_row {
    float norm, scale, factor; /* 1 / the root of the mean square; powers of two */
};

static __device__ about_row learn_row(const rvi_cuda_product_args &a, int row)
{
    const float *x = row_of(a.x, row), *w = as<const float>(a.norm);
    float sum = 0, top = 0;
#pragma unroll 4
    for (int i = threadIdx.x; i < a.x.n; i += blockDim.x) {
        float v = x[i], size = fabsf(w ? v * w[i] : v);
        sum = fmaf(v, v, sum);
        top = isfinite(size) ? fmaxf(top, size) : INFINITE;
    }
    about_row r = {1.0f, 1.0f, 1.0f};
    if (w) r.norm = 1.0f / sqrtf(block_sum(sum) / (float)a.x.n + a.eps);
    top = block_max(top) * r.norm;
    if (a.part[0].type == BF16) return r;
    int e = min(max(267 - (int)(__float_as_uint(top) >> 23), 1), 253);
    r.scale = isfinite(top) ? __uint_as_float((uint32_t)e << 23) : 0.0f;
    r.factor = isfinite(top) ? __uint_as_float((uint32_t)(254 - e) << 23) : NOT_A_NUMBER;
    return r;
}

/* to: of unit 0; next: bytes from a unit to the next. */
static __device__ void put_row(const rvi_cuda_product_args &a, int row, const about_row &r, bool keep, uint8_t *to, size_t next)
{
    for (int i = threadIdx.x; i < units_of(a.x.n) * 8; i += blockDim.x) {
        float v[4];
        uint16_t h[4], l[4] = {};
        normed(a, row, 4 * i, r.norm, keep, v);
        for (int j = 0; j < 4; j++) {
            if (a.part[0].type == BF16) {
                h[j] = to_bf16(v[j]);
                l[j] = to_bf16(v[j] - __uint_as_float((uint32_t)h[j] << 16));
            } else {
                h[j] = r.scale == 0.0f ? (uint16_t)0 : to_half(v[j] * r.scale);
            }
        }
        uint2 *at = (uint2 *)(to + i / 8 * next) + i % 8;
        *at = {h[0] | (uint32_t)h[1] << 16, h[2] | (uint32_t)h[3] << 16};
        if (a.part[0].type == BF16) at[8] = {l[0] | (uint32_t)l[1] << 16, l[2] | (uint32_t)l[3] << 16};
    }
}

static __device__ int act_bytes(const rvi_cuda_product_args &a) /* of a unit */
{
    return a.part[0].type == BF16 ? 128 : 64;
}

static __device__ float *factors(const rvi_cuda_product_args &a)
{
    return as<float>(a.acts + (size_t)units_of(a.x.n) * a.n_rows * act_bytes(a));
}

/* Grid: rows. */
KERNEL f16_prepare(rvi_cuda_product_args a)
{
    begin();
    int row = blockIdx.x, bytes = act_bytes(a);
    about_row r = learn_row(a, row);
    put_row(a, row, r, true, as<uint8_t>(a.acts) + (size_t)row * bytes, (size_t)a.n_rows * bytes);
    if (threadIdx.x == 0) factors(a)[row] = r.factor;
}

/* ---- weights ---- */

template <int TYPE> struct quants_of;
#define X(name, bits, offset, scales, d_units, has_m)                                                                  \
    template <> struct quants_of<name> {                                                                               \
        enum {                                                                                                         \
            BITS = bits,                                                                                               \
            OFFSET = offset,                                                                                           \
            HAS_M = has_m,                                                                                             \
            UNITS = RVI_CUDA_F16_UNITS(d_units),                                                                     \
            TWO = RVI_CUDA_HAS_TWO(scales, has_m),                                                                     \
            SCALES = TWO ? scales / 2 : scales, /* bytes of a unit for a lane */                                       \
            WORDS = RVI_CUDA_LOW_BYTES(bits) / 16, /* of a unit for a lane */                                          \
            HIGHS = UNITS * RVI_CUDA_HIGH_BYTES(bits) / 16,                                                            \
            DS = UNITS / d_units,                                                                                      \
            D = RVI_CUDA_D_BYTES(has_m),                                                                               \
            AT_HIGH = UNITS * OUTS * RVI_CUDA_LOW_BYTES(bits),                                                         \
            AT_SCALES = AT_HIGH + UNITS * OUTS * RVI_CUDA_HIGH_BYTES(bits),                                            \
            AT_D = AT_SCALES + UNITS * OUTS * scales,                                                                  \
            BYTES = AT_D + OUTS * DS * D,                                                                              \
        };                                                                                                             \
    };
RVI_CUDA_QUANTS(X)
#undef X
template <> struct quants_of<BF16> {
    enum { BITS = 16, OFFSET = 0, HAS_M = 0, UNITS = 4, TWO = 0, SCALES = 0, WORDS = 4, HIGHS = 0, DS = 0, D = 0 };
    enum { AT_HIGH = UNITS * OUTS * 64, AT_SCALES = AT_HIGH, AT_D = AT_HIGH, BYTES = AT_HIGH };
};

template <int N> static __device__ __forceinline__ void load_words(uint32_t *to, const uint8_t *p)
{
    if constexpr (N == 1) {
        to[0] = __ldg((const uint32_t *)p);
    } else if constexpr (N == 2) {
        uint2 v = __ldg((const uint2 *)p);
        to[0] = v.x, to[1] = v.y;
    } else if constexpr (N == 4) {
        uint4 v = __ldg((const uint4 *)p);
        to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
    }
}

/* A lane's part of a block of a panel: output lane / 4, weights 8 (lane % 4) .. + 7 of each unit. */
template <int TYPE> struct raw {
    typedef quants_of<TYPE> Q;
    uint32_t low[Q::UNITS * Q::WORDS], high[Q::HIGHS > 0 ? Q::HIGHS : 1];
    uint32_t s[Q::SCALES > 0 ? Q::UNITS * Q::SCALES / 4 : 1], d[Q::DS * Q::D >= 4 ? Q::DS * Q::D / 4 : 1];
};

template <int TYPE> static __device__ __forceinline__ void load_raw(const uint8_t *block, raw<TYPE> *w)
{
    typedef quants_of<TYPE> Q;
    int lane = threadIdx.x % 32, g = lane / 4, half = lane % 4 / 2;
#pragma unroll
    for (int i = 0; i < Q::UNITS * Q::WORDS / 4; i++) load_words<4>(w->low + 4 * i, block + i * 512 + lane * 16);
    load_words<Q::HIGHS>(w->high, block + Q::AT_HIGH + lane * Q::HIGHS * 4);
    load_words<Q::UNITS * Q::SCALES / 4>(w->s, block + Q::AT_SCALES + (Q::TWO ? 2 * g + half : g) * Q::UNITS * Q::SCALES);
    if constexpr (Q::DS * Q::D == 2)
        w->d[0] = __ldg((const uint16_t *)(block + Q::AT_D) + g);
    else
        load_words<Q::DS * Q::D / 4>(w->d, block + Q::AT_D + g * Q::DS * Q::D);
}

enum : uint32_t { SIXTY_FOURS = 0x64646464, A_SIXTEENTH = 0x2c002c00 };

static __device__ constexpr uint32_t both(int negative) /* two halves of a whole number 1024 .. 2047, or 64 .. 127 */
{
    return negative >= 1024 ? (0xe400u + (negative - 1024)) * 0x10001u : (0xd400u + (negative - 64) * 16) * 0x10001u;
}

/* The unit's D in both halves, and M likewise where there is one. */
template <int TYPE> static __device__ __forceinline__ void scales_of(const raw<TYPE> &w, int unit, uint32_t *d, uint32_t *m)
{
    typedef quants_of<TYPE> Q;
    uint32_t dm;
    if constexpr (Q::SCALES == 0) {
        dm = Q::HAS_M ? w.d[unit] : w.d[unit / 2] >> (unit % 2 * 16);
    } else if constexpr (Q::SCALES == 1) {
        uint32_t s = __byte_perm(w.s[unit / 4], SIXTY_FOURS, 0x4040 + unit % 4 * 0x101);
        dm = half_mul(half_add(s, both(1152)), __byte_perm(w.d[0], 0, 0x1010));
    } else {
        uint32_t s = __byte_perm(w.s[unit / 2], SIXTY_FOURS, unit % 2 ? 0x4342 : 0x4140);
        dm = half_mul(half_add(s, both(1024)), w.d[0]);
    }
    *d = __byte_perm(dm, 0, 0x1010);
    *m = Q::HAS_M ? __byte_perm(dm, 0, 0x3232) : 0;
}

static __device__ __forceinline__ uint32_t shifted(uint32_t x, int right)
{
    return right >= 0 ? x >> right : x << -right;
}

/* The lane's 8 weights of a unit, in pairs. */
template <int TYPE> static __device__ __forceinline__ void weights_of(const raw<TYPE> &w, int unit, uint32_t f[4])
{
    typedef quants_of<TYPE> Q;
    if constexpr (Q::BITS == 16) {
        for (int i = 0; i < 4; i++) f[i] = w.low[4 * unit + i];
    } else {
        uint32_t d, m;
        scales_of<TYPE>(w, unit, &d, &m);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t q;
            if constexpr (Q::BITS == 8) {
                q = __byte_perm(w.low[2 * unit + i / 2], SIXTY_FOURS, i % 2 ? 0x4342 : 0x4140);
                q = half_add(q, both(1152));
            } else { /* even: 1024 + q; odd: 1024 + 16 q */
                const int to = i % 2 ? 8 : 4;
                q = (w.low[unit] >> (i / 2 * 8) & (i % 2 ? 0x00f000f0 : 0x000f000f)) | 0x64006400;
                if constexpr (Q::BITS == 5)
                    q |= shifted(w.high[unit / 4], unit % 4 * 4 + i - to) & (0x00010001u << to);
                if constexpr (Q::BITS == 6)
                    q |= shifted(w.high[unit / 2], (unit % 2 * 4 + i) * 2 - to) & (0x00030003u << to);
                q = i % 2 ? half_fma(q, A_SIXTEENTH, both(64 + Q::OFFSET)) : half_add(q, both(1024 + Q::OFFSET));
            }
            f[i] = Q::HAS_M ? half_fma(q, d, m) : half_mul(q, d);
        }
    }
}

/* f: of two panels; acts: the lane's 8 of a row, BF16: and of l. */
template <int TYPE> static __device__ __forceinline__ void step(float acc[4], const uint32_t f[2][4], uint4 x, uint4 l)
{
    if constexpr (TYPE == BF16) {
        mma_bf16(acc, f[0][0], f[1][0], f[0][1], f[1][1], x.x, x.y);
        mma_bf16(acc, f[0][0], f[1][0], f[0][1], f[1][1], l.x, l.y);
        mma_bf16(acc, f[0][2], f[1][2], f[0][3], f[1][3], x.z, x.w);
        mma_bf16(acc, f[0][2], f[1][2], f[0][3], f[1][3], l.z, l.w);
    } else {
        mma_f16(acc, f[0][0], f[1][0], f[0][1], f[1][1], x.x, x.y);
        mma_f16(acc, f[0][2], f[1][2], f[0][3], f[1][3], x.z, x.w);
    }
}

/* ---- parts ---- */

/* The part that tile i of all of them is in, by tiles of n panels; i becomes the tile of that part. */
static __device__ int part_of(const rvi_cuda_product_args &a, int *i, int n)
{
    int p = 0;
    for (; p + 1 < a.n_parts && *i >= (panels_of(a.part[p]) + n - 1) / n; p++) *i -= (panels_of(a.part[p]) + n - 1) / n;
    return p;
}

static __device__ const uint8_t *panel_at(const rvi_cuda_panels &p, int i)
{
    return as<const uint8_t>(p.w) + (size_t)min(i, panels_of(p) - 1) * p.panel_bytes;
}

/* ---- few rows: a warp has a segment of 16 outputs and 8 N rows ---- */

template <int TYPE, int N>
static __device__ __forceinline__ void segment(const uint8_t *const panel[2], int n, int s, const uint4 *acts, int n_rows, int row,
                               float acc[N][4])
{
    typedef quants_of<TYPE> Q;
    enum { ACTS = TYPE == BF16 ? 8 : 4 };
    int n_blocks = units_of(n) / Q::UNITS, length = (n_blocks + SEGMENTS - 1) / SEGMENTS, g = threadIdx.x % 32 / 4;
    int block = s * length, end = min(block + length, n_blocks);
    if (block >= end) return;
    const uint4 *x[N];
#pragma unroll
    for (int i = 0; i < N; i++) x[i] = acts + min(row + 8 * i + g, n_rows - 1) * ACTS + threadIdx.x % 4;
    raw<TYPE> w[2], next[2];
    for (int p = 0; p < 2; p++) load_raw<TYPE>(panel[p] + (size_t)block * Q::BYTES, &next[p]);
#pragma unroll 1
    for (; block < end; block++) {
#pragma unroll
        for (int p = 0; p < 2; p++) {
            w[p] = next[p];
            load_raw<TYPE>(panel[p] + (size_t)min(block + 1, end - 1) * Q::BYTES, &next[p]);
        }
#pragma unroll
        for (int unit = 0; unit < Q::UNITS; unit++) {
            uint32_t f[2][4];
            for (int p = 0; p < 2; p++) weights_of<TYPE>(w[p], unit, f[p]);
#pragma unroll
            for (int i = 0; i < N; i++) {
                const uint4 *at = x[i] + (size_t)(block * Q::UNITS + unit) * n_rows * ACTS;
                step<TYPE>(acc[i], f, *at, TYPE == BF16 ? at[4] : uint4{});
            }
        }
    }
}

template <int N>
static __device__ void segment_of(const rvi_cuda_panels &p, int tile, int n, int s, const uint4 *acts, int n_rows, int row,
                                  float acc[N][4])
{
    const uint8_t *panel[2] = {panel_at(p, 2 * tile), panel_at(p, 2 * tile + 1)};
    switch (p.type) {
#define X(name, bits, offset, scales, d_units, has_m)                                                                  \
    case name: segment<name, N>(panel, n, s, acts, n_rows, row, acc); break;
        RVI_CUDA_QUANTS(X)
#undef X
    default: segment<BF16, N>(panel, n, s, acts, n_rows, row, acc);
    }
}

/* How many segments of the part have blocks. */
static __device__ int segments_of(const rvi_cuda_panels &p, int n)
{
    int units = 0;
    switch (p.type) {
#define X(name, bits, offset, scales, d_units, has_m)                                                                  \
    case name: units = RVI_CUDA_F16_UNITS(d_units); break;
        RVI_CUDA_QUANTS(X)
#undef X
    default: units = quants_of<BF16>::UNITS;
    }
    int n_blocks = units_of(n) / units, length = (n_blocks + SEGMENTS - 1) / SEGMENTS;
    return (n_blocks + length - 1) / length;
}

/* Warps 0 .. 3 have the segments of one tile of 16 outputs, 4 .. 7 those of the next; gated: of the same tile of the
 * second part. acts: prepared rows, or NULL: the block prepares the only row. */
template <int N, bool ALONE> static __device__ void product_few(const rvi_cuda_product_args &a)
{
    __shared__ float sums[2][SEGMENTS][16][8 * N + 1];
    __shared__ uint4 staged[ALONE ? RVI_CUDA_F16_STAGED / 8 : 1];
    int warp = threadIdx.x / 32, s = warp % SEGMENTS, which = warp / SEGMENTS, gated = is_gated(a);
    int row = blockIdx.x * 8 * N, tile = gated ? (int)blockIdx.y : (int)blockIdx.y * 2 + which, tiles = 0, n = a.x.n;
    for (int i = 0; i < (gated ? 1 : a.n_parts); i++) tiles += (panels_of(a.part[i]) + 1) / 2;
    bool mine = tile < tiles;
    int part = gated ? which : part_of(a, &tile, 2);
    const rvi_cuda_panels &p = a.part[part];
    if (mine && threadIdx.x % 32 < 2) /* the weights do not depend on the kernels before */
        prefetch_range(panel_at(p, 2 * tile + threadIdx.x % 2) + p.panel_bytes / SEGMENTS / 16 * 16 * s,
                       min((int)(p.panel_bytes / SEGMENTS / 16 * 16), 4096));
    begin();
    const uint4 *acts = as<const uint4>(a.acts);
    float only = 0;
    if constexpr (ALONE) {
        about_row r = learn_row(a, 0);
        put_row(a, 0, r, blockIdx.y == 0, (uint8_t *)staged, act_bytes(a));
        only = r.factor;
        acts = staged;
        __syncthreads();
    }
    float acc[N][4] = {};
    if (mine) segment_of<N>(p, tile, n, s, acts, a.n_rows, row, acc);
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < 4 * N; i++) sums[which][s][i % 4 / 2 * 8 + g][i / 4 * 8 + 2 * t + i % 2] = acc[i / 4][i % 4];
    __syncthreads();
    int first = threadIdx.x / 16 * 16; /* 16 threads have the outputs of a row */
    for (int i = first; i < 16 * 8 * N * (gated ? 1 : 2); i += blockDim.x) {
        int o = threadIdx.x % 16, r = i / 16 % (8 * N), k = i / (16 * 8 * N);
        int at = gated ? (int)blockIdx.y : (int)blockIdx.y * 2 + k;
        if (row + r >= a.n_rows || at >= tiles) continue;
        const rvi_cuda_panels &q = a.part[gated ? 0 : part_of(a, &at, 2)];
        if (at * 16 + o >= q.n_out) continue;
        float v[2] = {sums[k][0][o][r], gated ? sums[1][0][o][r] : 0.0f}, f = ALONE ? only : factors(a)[row + r];
        for (int j = 1; j < segments_of(q, n); j++) v[0] += sums[k][j][o][r];
        for (int j = 1; gated && j < segments_of(a.part[1], n); j++) v[1] += sums[1][j][o][r];
        finish(a, q, row + r, at * 16 + o, v[0] * f, v[1] * f);
    }
}

KERNEL __launch_bounds__(RVI_CUDA_THREADS, 3) f16_row(rvi_cuda_product_args a)
{
    product_few<1, true>(a);
}

KERNEL __launch_bounds__(RVI_CUDA_THREADS, 3) f16_few_1(rvi_cuda_product_args a)
{
    product_few<1, false>(a);
}

KERNEL __launch_bounds__(RVI_CUDA_THREADS, 2) f16_few_4(rvi_cuda_product_args a)
{
    product_few<4, false>(a);
}

/* ---- many rows: a block has 128 outputs and 128 rows ----
 *
 * A stage is two units. The warps turn the weights of a stage into f16 in shared memory while the one before it is
 * multiplied; activations are copied in three stages ahead. A warp has 64 outputs x 32 rows. Gated: 64 outputs of the
 * first part beside the same of the second. */

enum { TILE = 128, STAGE_UNITS = 2, ACT_STAGES = 4, WEIGHT_STAGE = TILE / OUTS * STAGE_UNITS * 512 };

struct tile {
    float acc[4][4][4], total[4][4][4]; /* [16 outputs][8 rows] */
};

template <int TYPE> static __device__ __forceinline__ void copy_acts(const rvi_cuda_product_args &a, int row, int stage, uint8_t *shared)
{
    enum { BYTES = TYPE == BF16 ? 128 : 64, PIECES = STAGE_UNITS * TILE * BYTES / 16 };
    int n_stages = units_of(a.x.n) / STAGE_UNITS;
    uint8_t *to = shared + 2 * WEIGHT_STAGE + stage % ACT_STAGES * PIECES * 16;
    if (stage < n_stages)
        for (int i = threadIdx.x; i < PIECES; i += RVI_CUDA_THREADS) {
            int at = i % (BYTES / 16), r = i / (BYTES / 16) % TILE, unit = stage * STAGE_UNITS + i / (BYTES / 16) / TILE;
            const uint8_t *from = as<const uint8_t>(a.acts) + ((size_t)unit * a.n_rows + min(row + r, a.n_rows - 1)) * BYTES;
            /* h of all rows, then l of all rows: loads of 8 rows meet every bank once */
            int place = (i / (BYTES / 16) / TILE * (BYTES / 64) + at / 4) * TILE * 4 + r * 4 + at % 4;
            copy16(to + place * 16, from + at * 16);
        }
    copy_commit();
}

template <int TYPE>
static __device__ __forceinline__ void put_weights(const raw<TYPE> w[2], int unit, int stage, uint8_t *shared)
{
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 2 * STAGE_UNITS; i++) {
        uint32_t f[4];
        weights_of<TYPE>(w[i / STAGE_UNITS], unit + i % STAGE_UNITS, f);
        uint4 *to = (uint4 *)(shared + stage % 2 * WEIGHT_STAGE + ((2 * warp + i / STAGE_UNITS) * STAGE_UNITS + i % STAGE_UNITS) * 512);
        to[lane] = {f[0], f[1], f[2], f[3]};
    }
}

template <int TYPE> static __device__ __forceinline__ void multiply_stage(tile *x, int stage, const uint8_t *shared)
{
    enum { BYTES = TYPE == BF16 ? 128 : 64 };
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const uint4 *w = (const uint4 *)(shared + stage % 2 * WEIGHT_STAGE) + warp % 2 * 8 * STAGE_UNITS * 32 + lane;
    const uint4 *acts = (const uint4 *)(shared + 2 * WEIGHT_STAGE + stage % ACT_STAGES * STAGE_UNITS * TILE * BYTES) + warp / 2 * 32 * 4 + lane;
#pragma unroll
    for (int unit = 0; unit < STAGE_UNITS; unit++) {
        uint4 b[4], l[4] = {};
#pragma unroll
        for (int n = 0; n < 4; n++) {
            b[n] = acts[unit * (BYTES / 64) * TILE * 4 + n * 32];
            if constexpr (TYPE == BF16) l[n] = acts[(unit * 2 + 1) * TILE * 4 + n * 32];
        }
#pragma unroll
        for (int m = 0; m < 4; m++) {
            uint4 u = w[(2 * m * STAGE_UNITS + unit) * 32], v = w[((2 * m + 1) * STAGE_UNITS + unit) * 32];
            uint32_t f[2][4] = {{u.x, u.y, u.z, u.w}, {v.x, v.y, v.z, v.w}};
#pragma unroll
            for (int n = 0; n < 4; n++) step<TYPE>(x->acc[m][n], f, b[n], l[n]);
        }
    }
}

static __device__ __forceinline__ void end_segment(tile *x, bool first)
{
#pragma unroll
    for (int i = 0; i < 64; i++) {
        float *acc = &x->acc[i / 16][i / 4 % 4][i % 4], *total = &x->total[i / 16][i / 4 % 4][i % 4];
        *total = first ? *acc : *total + *acc;
        *acc = 0;
    }
}

/* panel: the two whose weights this warp prepares. */
template <int TYPE>
static __device__ __forceinline__ void multiply_tile(const rvi_cuda_product_args &a, const uint8_t *const panel[2], int row, tile *x, uint8_t *shared)
{
    typedef quants_of<TYPE> Q;
    enum { STAGES = Q::UNITS / STAGE_UNITS };
    int n_blocks = units_of(a.x.n) / Q::UNITS, length = (n_blocks + SEGMENTS - 1) / SEGMENTS;
    raw<TYPE> w[2], next[2];
    for (int p = 0; p < 2; p++) load_raw<TYPE>(panel[p], &w[p]);
    begin();
    for (int i = 0; i + 1 < ACT_STAGES; i++) copy_acts<TYPE>(a, row, i, shared);
    put_weights<TYPE>(w, 0, 0, shared);
#pragma unroll
    for (int i = 0; i < 64; i++) x->acc[i / 16][i / 4 % 4][i % 4] = 0;
#pragma unroll 1
    for (int block = 0; block < n_blocks; block++) {
        for (int p = 0; p < 2; p++)
            load_raw<TYPE>(panel[p] + (size_t)min(block + 1, n_blocks - 1) * Q::BYTES, &next[p]);
#pragma unroll
        for (int i = 0; i < STAGES; i++) {
            int stage = block * STAGES + i;
            copy_wait<ACT_STAGES - 2>();
            __syncthreads();
            copy_acts<TYPE>(a, row, stage + ACT_STAGES - 1, shared);
            if (i + 1 < STAGES) put_weights<TYPE>(w, (i + 1) * STAGE_UNITS, stage + 1, shared);
            multiply_stage<TYPE>(x, stage, shared);
            if (i + 1 == STAGES) put_weights<TYPE>(next, 0, stage + 1, shared);
        }
        for (int p = 0; p < 2; p++) w[p] = next[p];
        if ((block + 1) % length == 0 || block + 1 == n_blocks) end_segment(x, block < length);
    }
}

/* Grid: rows / TILE, tiles of outputs. */
KERNEL __launch_bounds__(RVI_CUDA_THREADS, 1) f16_tiles(rvi_cuda_product_args a)
{
    DYNAMIC_SHARED(shared);
    int gated = is_gated(a), warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    int row = blockIdx.x * TILE, at = blockIdx.y, part = gated ? 0 : part_of(a, &at, TILE / OUTS);
    const rvi_cuda_panels &p = a.part[part];
    const uint8_t *panel[2];
    for (int i = 0; i < 2; i++)
        panel[i] = gated ? panel_at(a.part[warp / 4], at * 8 + warp % 4 * 2 + i) : panel_at(p, at * 16 + warp * 2 + i);
    tile x;
    switch (p.type) {
#define X(name, bits, offset, scales, d_units, has_m)                                                                  \
    case name: multiply_tile<name>(a, panel, row, &x, shared); break;
        RVI_CUDA_QUANTS(X)
#undef X
    default: multiply_tile<BF16>(a, panel, row, &x, shared);
    }
    float *gate = (float *)shared; /* [rows][64 outputs], of the warps that have the first part */
    if (gated) {
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 64; i++) {
            int o = i / 16 * 16 + i % 4 / 2 * 8 + g, r = warp / 2 * 32 + i / 4 % 4 * 8 + 2 * t + i % 2;
            if (warp % 2 == 0) gate[r * 65 + o] = x.total[i / 16][i / 4 % 4][i % 4];
        }
        __syncthreads();
        if (warp % 2 == 0) return;
    }
#pragma unroll
    for (int i = 0; i < 64; i++) {
        int in = i / 16 * 16 + i % 4 / 2 * 8 + g, r = warp / 2 * 32 + i / 4 % 4 * 8 + 2 * t + i % 2;
        int o = gated ? at * 64 + in : at * TILE + warp % 2 * 64 + in;
        if (row + r >= a.n_rows || o >= p.n_out) continue;
        float f = factors(a)[row + r], v = x.total[i / 16][i / 4 % 4][i % 4] * f;
        finish(a, p, row + r, o, gated ? gate[r * 65 + in] * f : v, v);
    }
}

} // namespace f16
