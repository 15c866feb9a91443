/* products.cuh - products with weights in panels (weights.h), on the tensor cores.
 *
 *  activations  A row is multiplied by a power of two that brings its largest element to 2^13 .. 2^14 and rounded to
 *               f16; the result is multiplied by the inverse. A row with a NaN or an infinity gives NaN.
 *  weights      q, less its offset, is exact in f16; D = d * scale and M = m * minimum are rounded to f16; the weight
 *               is q * D, or fma(q, D, M), rounded to f16. F16 and BF16 are multiplied by a power of two that brings
 *               the largest of a panel to 2^13 .. 2^14 and rounded to f16; results by the inverse.
 *               F32 is two parts, each rounded to f16: the weight times that power, and what this rounding left. So is
 *               a row that meets it; the product is one of three times as many columns (to whole groups of units): first
 *               parts of both, first of the weights with second of the row, second of the weights with first of the row.
 *  unit         Two steps of a k16 product onto an f32 accumulator: of weights 0 1 2 3 of each 8, then of 4 5 6 7.
 *  row          The units of a row are cut into at most 8 segments, whose length is a multiple of 8 units. A segment is
 *               one chain over its units from +0; segments are added in order.
 *
 * All kernels have this order. The columns and rows of a product of the tensor cores do not touch each other, so
 * neither the rows that go together nor the kernel show in the result. */

/* ---- activations ----
 *
 * Prepared rows, for the kernels of few rows: by unit, then by row, 64 bytes. For tiles: by two units, then by row, 128
 * bytes of 8 pieces: (unit, step, half of the step), each with words of the 4 lanes of a step; piece i of row r lies at
 * i ^ r % 8, which is how the tensor cores read shared memory. Both to whole groups of 4 units; then the rows' factors. */

enum { GROUP_UNITS = 4, SEGMENTS = RVI_CUDA_SEGMENTS, OUTS = RVI_CUDA_PANEL };

static __device__ __forceinline__ int units_of(uint32_t n) /* without a sign divisions are shifts */
{
    return (n + 32 * GROUP_UNITS - 1) / (32 * GROUP_UNITS) * GROUP_UNITS;
}

/* Units of a segment. */
static __device__ __forceinline__ int length_of(uint32_t n)
{
    return ((uint32_t)units_of(n) + 8 * SEGMENTS - 1) / (8 * SEGMENTS) * 8;
}

/* What the block learns of a row before it writes it. */
struct about_row {
    float norm, scale, factor; /* 1 / the root of the mean square, by the device's approximation; powers of two */
};

/* Columns k .. k + 3; EVEN: all rows begin at multiples of 16 bytes and end so. Past the last: zeros. */
template <bool EVEN> static __device__ __forceinline__ float4 four_at(const float *x, int k, int n)
{
    float4 v = {};
    if constexpr (EVEN) {
        if (k < n) v = *(const float4 *)(x + k);
    } else {
        v = {k < n ? x[k] : 0.0f, k + 1 < n ? x[k + 1] : 0.0f, k + 2 < n ? x[k + 2] : 0.0f, k + 3 < n ? x[k + 3] : 0.0f};
    }
    return v;
}

/* Of the norm. */
template <bool EVEN> static __device__ __forceinline__ float4 norm_at(const rvi_cuda_product_args &a, int k)
{
    return a.norm ? four_at<EVEN>(as<const float>(a.norm), k, a.x.n) : float4{1.0f, 1.0f, 1.0f, 1.0f};
}

static __device__ __forceinline__ uint32_t size_bits(float v)
{
    return __float_as_uint(v) & 0x7fffffff;
}

static __device__ __forceinline__ uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static __device__ __forceinline__ void count_four(float4 v, float4 w, float *sum, uint32_t *top)
{
    *sum = fmaf(v.w, v.w, fmaf(v.z, v.z, fmaf(v.y, v.y, fmaf(v.x, v.x, *sum))));
    *top = larger(larger(larger(*top, size_bits(v.x * w.x)), size_bits(v.y * w.y)),
                  larger(size_bits(v.z * w.z), size_bits(v.w * w.w)));
}

/* sum, top: of the thread's columns. */
static __device__ __forceinline__ about_row about(const rvi_cuda_product_args &a, float sum, uint32_t top)
{
    __shared__ __align__(16) float sums[RVI_CUDA_THREADS / 32];
    __shared__ __align__(16) uint32_t tops[RVI_CUDA_THREADS / 32];
    sum = tree(sum);
    for (int d = 16; d; d >>= 1) top = larger(top, __shfl_xor_sync(0xffffffff, top, d));
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum, tops[threadIdx.x / 32] = top;
    preparing_meet();
    sum = 0, top = 0;
#pragma unroll
    for (int i = 0; i < RVI_CUDA_THREADS / 128; i++) {
        float4 v = ((const float4 *)sums)[i];
        uint4 u = ((const uint4 *)tops)[i];
        sum = (((i ? sum + v.x : v.x) + v.y) + v.z) + v.w;
        top = larger(larger(larger(top, u.x), larger(u.y, u.z)), u.w);
    }
    about_row r = {1.0f, 1.0f, 1.0f};
    if (a.norm) r.norm = rsqrtf(fmaf(sum, a.over, a.eps));
    float most = __uint_as_float(top) * r.norm;
    int e = min(max(267 - (int)(__float_as_uint(most) >> 23), 1), 253);
    r.scale = isfinite(most) ? __uint_as_float((uint32_t)e << 23) : 0.0f;
    r.factor = isfinite(most) ? __uint_as_float((uint32_t)(254 - e) << 23) : NOT_A_NUMBER;
    return r;
}

template <bool EVEN> static __device__ __forceinline__ about_row learn_row(const rvi_cuda_product_args &a, int row)
{
    const float *x = row_of(a.x, row);
    float sum = 0;
    uint32_t top = 0;
#pragma unroll 4
    for (int k = 4 * threadIdx.x; k < a.x.n; k += 4 * RVI_CUDA_THREADS)
        count_four(four_at<EVEN>(x, k, a.x.n), norm_at<EVEN>(a, k), &sum, &top);
    return about(a, sum, top);
}

/* Columns 4 i .. + 3 of a row, normed: v as they are, w: the norm's. */
template <bool EVEN>
static __device__ __forceinline__ float4 normed_four(const rvi_cuda_product_args &a, int row, int i, float4 v, float4 w,
                                                     const about_row &r, bool keep)
{
    v = {(v.x * r.norm) * w.x, (v.y * r.norm) * w.y, (v.z * r.norm) * w.z, (v.w * r.norm) * w.w}; /* no norm: 1 */
    if (keep && a.normed.at) {
        float *to = row_of(a.normed, row) + 4 * i, all[4] = {v.x, v.y, v.z, v.w};
        if (EVEN && 4 * i < a.x.n) *(float4 *)to = v;
        for (int j = 0; !EVEN && j < 4 && 4 * i + j < a.x.n; j++) to[j] = all[j];
    }
    return v;
}

/* In f16. */
template <bool EVEN>
static __device__ __forceinline__ uint2 halves_of(const rvi_cuda_product_args &a, int row, int i, float4 v, float4 w,
                                                  const about_row &r, bool keep)
{
    v = normed_four<EVEN>(a, row, i, v, w, r, keep);
    uint32_t kept = r.scale == 0.0f ? 0 : ~0u; /* without a branch */
    return {to_halves(v.x * r.scale, v.y * r.scale) & kept, to_halves(v.z * r.scale, v.w * r.scale) & kept};
}

static __device__ bool is_even(const rvi_cuda_product_args &a)
{
    return (a.x.at | a.norm | a.normed.at | (uint64_t)(a.x.stride | a.normed.stride | a.x.n) * 4) % 16 == 0;
}

static __device__ float *factors(const rvi_cuda_product_args &a)
{
    return as<float>(a.acts + (size_t)units_of(a.x.n) * a.n_rows * 64);
}

/* put(i, halves) of each four columns, to whole groups of units. */
template <bool EVEN, typename PUT>
static __device__ __forceinline__ void put_row(const rvi_cuda_product_args &a, int row, const about_row &r, bool keep, PUT put)
{
    const float *x = row_of(a.x, row);
#pragma unroll 2
    for (int i = threadIdx.x; i < units_of(a.x.n) * 8; i += RVI_CUDA_THREADS)
        put(i, halves_of<EVEN>(a, row, i, four_at<EVEN>(x, 4 * i, a.x.n), norm_at<EVEN>(a, 4 * i), r, keep));
}

/* The norm, which no kernel writes, on its way before `begin`. */
static __device__ __forceinline__ void fetch_norm(const rvi_cuda_product_args &a)
{
    for (int k = 32 * threadIdx.x; a.norm && k < a.x.n; k += 32 * RVI_CUDA_THREADS) fetch(as<const float>(a.norm) + k);
}

/* Columns 4 i .. + 3 of a prepared row; TILES: for tiles. */
template <bool TILES>
static __device__ __forceinline__ void put_prepared(const rvi_cuda_product_args &a, int row, int i, uint2 v)
{
    if (!TILES) {
        as<uint2>(a.acts)[((size_t)(i / 8) * a.n_rows + row) * 8 + i % 8] = v;
        return;
    }
    int t = i % 8 / 2, piece = i / 8 % 2 * 4 + i % 2 * 2;
    uint32_t *to = as<uint32_t>(a.acts) + ((size_t)(i / 16) * a.n_rows + row) * 32 + t;
    to[(piece ^ (row & 7)) * 4] = v.x;
    to[((piece + 1) ^ (row & 7)) * 4] = v.y;
}

/* Grid: rows. */
template <bool EVEN, bool TILES> static __device__ __forceinline__ void prepare_row(const rvi_cuda_product_args &a)
{
    int row = blockIdx.x;
    fetch_norm(a);
    begin();
    about_row r = learn_row<EVEN>(a, row);
    put_row<EVEN>(a, row, r, true, [&](int i, uint2 v) { put_prepared<TILES>(a, row, i, v); });
    if (threadIdx.x == 0) factors(a)[row] = r.factor;
}

/* put(i, halves) of each four columns of an even row, which is read once: a thread holds its FOURS fours in between; the
 * norm, which no kernel writes, is there before `begin`. Zeros behind the last column change neither sum nor maximum.
 * Returns the row's factor. */
template <int FOURS, bool NORM, typename PUT>
static __device__ __forceinline__ float hold_row(const rvi_cuda_product_args &a, int row, bool keep, PUT put)
{
    const float *x = row_of(a.x, row);
    float4 v[FOURS], w[FOURS];
    float sum = 0;
    uint32_t top = 0;
#pragma unroll
    for (int i = 0; i < FOURS; i++)
        w[i] = NORM ? norm_at<true>(a, 4 * (threadIdx.x + i * RVI_CUDA_THREADS)) : float4{1.0f, 1.0f, 1.0f, 1.0f};
    begin();
#pragma unroll
    for (int i = 0; i < FOURS; i++) v[i] = four_at<true>(x, 4 * (threadIdx.x + i * RVI_CUDA_THREADS), a.x.n);
#pragma unroll
    for (int i = 0; i < FOURS; i++) count_four(v[i], w[i], &sum, &top);
    about_row r = about(a, sum, top);
#pragma unroll
    for (int i = 0; i < FOURS; i++) {
        int at = threadIdx.x + i * RVI_CUDA_THREADS;
        uint2 h = halves_of<true>(a, row, at, v[i], w[i], r, keep);
        if (at < units_of(a.x.n) * 8) put(at, h);
    }
    return r.factor;
}

/* For tiles. Grid: rows. */
template <int FOURS, bool NORM> static __device__ __forceinline__ void prepare_held(const rvi_cuda_product_args &a)
{
    int row = blockIdx.x;
    float factor = hold_row<FOURS, NORM>(a, row, true, [&](int i, uint2 v) { put_prepared<true>(a, row, i, v); });
    if (threadIdx.x == 0) factors(a)[row] = factor;
}

KERNEL prepare(rvi_cuda_product_args a)
{
    if (is_even(a))
        prepare_row<true, false>(a);
    else
        prepare_row<false, false>(a);
}

KERNEL prepare_tiles(rvi_cuda_product_args a)
{
    enum { COLUMNS = 4 * RVI_CUDA_THREADS };
    if (!is_even(a))
        prepare_row<false, true>(a);
    else if (a.x.n <= 4 * COLUMNS)
        prepare_held<4, true>(a);
    else if (!a.norm && a.x.n <= 14 * COLUMNS)
        prepare_held<14, false>(a);
    else
        prepare_row<true, true>(a);
}

/* What rounding two elements to f16 left. */
static __device__ __forceinline__ uint32_t left_of(float x, float y, uint32_t halves)
{
    return to_halves(x - from_half((uint16_t)halves), y - from_half((uint16_t)(halves >> 16)));
}

/* For weights of F32: first parts, second parts, first parts again. Grid: rows. */
template <bool TILES> static __device__ __forceinline__ void prepare_row_parts(const rvi_cuda_product_args &args)
{
    rvi_cuda_product_args a = args;
    a.x.n = args.columns;
    int row = blockIdx.x, fours = units_of(a.x.n) * 8;
    fetch_norm(a);
    begin();
    about_row r = learn_row<false>(a, row);
    const float *x = row_of(a.x, row);
#pragma unroll 2
    for (int i = threadIdx.x; i < fours; i += RVI_CUDA_THREADS) {
        float4 v = normed_four<false>(a, row, i, four_at<false>(x, 4 * i, a.x.n), norm_at<false>(a, 4 * i), r, true);
        v = {v.x * r.scale, v.y * r.scale, v.z * r.scale, v.w * r.scale};
        if (r.scale == 0.0f) v = {}; /* there is an infinity or a NaN */
        uint2 first = {to_halves(v.x, v.y), to_halves(v.z, v.w)}, second = {left_of(v.x, v.y, first.x), left_of(v.z, v.w, first.y)};
        put_prepared<TILES>(a, row, i, first);
        put_prepared<TILES>(a, row, i + fours, second);
        put_prepared<TILES>(a, row, i + 2 * fours, first);
    }
    if (threadIdx.x == 0) factors(args)[row] = r.factor;
}

KERNEL prepare_parts(rvi_cuda_product_args a)
{
    prepare_row_parts<false>(a);
}

KERNEL prepare_parts_tiles(rvi_cuda_product_args a)
{
    prepare_row_parts<true>(a);
}

/* ---- weights ---- */

template <int TYPE> struct quants_of;
#define X(name, bits, offset, scales, d_units, has_m)                                                                  \
    template <> struct quants_of<name> {                                                                               \
        enum {                                                                                                         \
            BITS = bits,                                                                                               \
            OFFSET = offset,                                                                                           \
            HAS_M = has_m,                                                                                             \
            UNITS = RVI_CUDA_BLOCK_UNITS(d_units),                                                                       \
            EACH = d_units == 1, /* unit has a d */                                                                    \
            TWO = RVI_CUDA_HAS_TWO(scales, has_m),                                                                     \
            SCALES = TWO ? scales / 2 : scales, /* bytes of a unit for a lane */                                       \
            WORDS = RVI_CUDA_LOW_BYTES(bits) / 16, /* of a unit for a lane */                                          \
            HIGHS = UNITS * RVI_CUDA_HIGH_BYTES(bits) / 16,                                                            \
            AT_HIGH = UNITS * OUTS * RVI_CUDA_LOW_BYTES(bits),                                                         \
            AT_SCALES = AT_HIGH + UNITS * OUTS * RVI_CUDA_HIGH_BYTES(bits),                                            \
            AT_D = AT_SCALES + UNITS * OUTS * scales,                                                                  \
            BYTES = AT_D + OUTS * (UNITS / d_units) * RVI_CUDA_D_BYTES(has_m),                                         \
        };                                                                                                             \
    };
RVI_CUDA_QUANTS(X)
#undef X
template <> struct quants_of<F16> { /* and BF16 */
    enum { BITS = 16, OFFSET = 0, HAS_M = 0, UNITS = 4, EACH = 0, TWO = 0, SCALES = 0, WORDS = 4, HIGHS = 0 };
    enum { AT_HIGH = UNITS * OUTS * 64, AT_SCALES = AT_HIGH, AT_D = AT_HIGH, BYTES = AT_HIGH };
};

/* What a lane has of a block of a panel at a time: output lane / 4, weights 8 (lane % 4) .. + 7 of each unit. */
struct piece {
    uint32_t low[4], high, s, d;
};

/* What begins at this unit. block: in shared memory. */
template <int TYPE> static __device__ __forceinline__ void load_piece(const uint8_t *block, int unit, piece *w)
{
    typedef quants_of<TYPE> Q;
    int lane = threadIdx.x % 32, g = lane / 4, half = lane % 4 / 2;
    if (unit % (4 / Q::WORDS) == 0) {
        uint4 v = *(const uint4 *)(block + unit / (4 / Q::WORDS) * 512 + lane * 16);
        w->low[0] = v.x, w->low[1] = v.y, w->low[2] = v.z, w->low[3] = v.w;
    }
    if constexpr (Q::BITS == 5)
        if (unit % 4 == 0) w->high = *(const uint32_t *)(block + Q::AT_HIGH + (lane * Q::HIGHS + unit / 4) * 4);
    if constexpr (Q::BITS == 6)
        if (unit % 2 == 0) w->high = *(const uint32_t *)(block + Q::AT_HIGH + (lane * Q::HIGHS + unit / 2) * 4);
    if constexpr (Q::SCALES > 0)
        if (unit % (4 / Q::SCALES) == 0)
            w->s = *(const uint32_t *)(block + Q::AT_SCALES + ((Q::TWO ? 2 * g + half : g) * Q::UNITS + unit) * Q::SCALES);
    if constexpr (Q::BITS < 16)
        if (Q::EACH || unit == 0) {
            int at = Q::EACH ? g * Q::UNITS + unit : g;
            w->d = Q::HAS_M ? ((const uint32_t *)(block + Q::AT_D))[at] : ((const uint16_t *)(block + Q::AT_D))[at];
        }
}

enum : uint32_t { SIXTY_FOURS = 0x64646464, A_SIXTEENTH = 0x2c002c00 };

static __device__ constexpr uint32_t both(int negative) /* two halves of a whole number 1024 .. 2047, or 64 .. 127 */
{
    return negative >= 1024 ? (0xe400u + (negative - 1024)) * 0x10001u : (0xd400u + (negative - 64) * 16) * 0x10001u;
}

/* Said so, the compiler takes the half of a word that an operation needs instead of making a new word. */
#ifdef __CUDACC__
static __device__ __forceinline__ uint32_t low_twice(uint32_t v)
{
    asm("{.reg .b16 l, h; mov.b32 {l, h}, %0; mov.b32 %0, {l, l};}" : "+r"(v));
    return v;
}

static __device__ __forceinline__ uint32_t high_twice(uint32_t v)
{
    asm("{.reg .b16 l, h; mov.b32 {l, h}, %0; mov.b32 %0, {h, h};}" : "+r"(v));
    return v;
}
#else
static uint32_t low_twice(uint32_t v)
{
    return (v & 0xffff) * 0x10001;
}
static uint32_t high_twice(uint32_t v)
{
    return (v >> 16) * 0x10001;
}
#endif

/* The unit's D in both halves, and M likewise where there is one. */
template <int TYPE> static __device__ __forceinline__ void scales_of(const piece &w, int unit, uint32_t *d, uint32_t *m)
{
    typedef quants_of<TYPE> Q;
    uint32_t dm = w.d;
    if constexpr (Q::SCALES == 1) {
        uint32_t s = __byte_perm(w.s, SIXTY_FOURS, 0x4040 + unit % 4 * 0x101);
        dm = half_mul(half_add(s, both(1152)), __byte_perm(w.d, 0, 0x1010));
    } else if constexpr (Q::SCALES == 2) {
        uint32_t s = __byte_perm(w.s, SIXTY_FOURS, unit % 2 ? 0x4342 : 0x4140);
        dm = half_mul(half_add(s, both(1024)), w.d);
    }
    *d = low_twice(dm);
    *m = Q::HAS_M ? high_twice(dm) : 0;
}

static __device__ __forceinline__ uint32_t shifted(uint32_t x, int right)
{
    return right >= 0 ? x >> right : x << -right;
}

/* The lane's 8 weights of a unit, in pairs. */
template <int TYPE> static __device__ __forceinline__ void weights_of(const piece &w, int unit, uint32_t f[4])
{
    typedef quants_of<TYPE> Q;
    if constexpr (Q::BITS == 16) {
        for (int i = 0; i < 4; i++) f[i] = w.low[i];
    } else {
        uint32_t d, m;
        scales_of<TYPE>(w, unit, &d, &m);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t q;
            if constexpr (Q::BITS == 8) {
                q = __byte_perm(w.low[unit % 2 * 2 + i / 2], SIXTY_FOURS, i % 2 ? 0x4342 : 0x4140);
                q = half_add(q, both(1152));
            } else { /* even: 1024 + q; odd: 1024 + 16 q */
                const int to = i % 2 ? 8 : 4;
                q = masked(w.low[unit % 4] >> (i / 2 * 8), i % 2 ? 0x00f000f0 : 0x000f000f, 0x64006400);
                if constexpr (Q::BITS == 5) q |= shifted(w.high, unit % 4 * 4 + i - to) & (0x00010001u << to);
                if constexpr (Q::BITS == 6) q |= shifted(w.high, (unit % 2 * 4 + i) * 2 - to) & (0x00030003u << to);
                q = i % 2 ? half_fma(q, A_SIXTEENTH, both(64 + Q::OFFSET)) : half_add(q, both(1024 + Q::OFFSET));
            }
            f[i] = Q::HAS_M ? half_fma(q, d, m) : half_mul(q, d);
        }
    }
}

/* ---- parts ---- */

static __device__ __forceinline__ int panels_of(const rvi_cuda_panels &p)
{
    return ((uint32_t)p.n_out + OUTS - 1) / OUTS;
}

static __device__ bool is_gated(const rvi_cuda_product_args &a)
{
    return a.finish == RVI_CUDA_SILU || a.finish == RVI_CUDA_GELU;
}

/* The part that tile i of all of them is in, by tiles of n panels; i becomes the tile of that part. */
static __device__ __forceinline__ int part_of(const rvi_cuda_product_args &a, int *i, uint32_t n)
{
    int p = 0;
#pragma unroll 1
    for (; p + 1 < a.n_parts; p++) {
        int tiles = (panels_of(a.part[p]) + n - 1) / n;
        if (*i < tiles) break;
        *i -= tiles;
    }
    return p;
}

static __device__ const uint8_t *panel_at(const rvi_cuda_panels &p, int i)
{
    return as<const uint8_t>(p.w) + (size_t)min(i, panels_of(p) - 1) * p.panel_bytes;
}

/* What the results of output o are multiplied by. */
static __device__ float panel_factor(const rvi_cuda_panels &p, int o)
{
    if (p.type != F16 && p.type != BF16) return 1.0f;
    return *(const float *)(panel_at(p, o / OUTS) + p.panel_bytes - 16);
}

/* ---- few rows: a warp has a segment of a tile of 16 outputs, for 8 rows ----
 *
 * A block takes tiles in turns, as many at a time as it has warps for their segments. Gated: of each tile first the
 * first part, then the second; aside: each by warps of its own. The blocks of weights that a warp is going to need are
 * copied into shared memory some steps ahead, across tiles, so that the memory never waits. */

enum { RING = RVI_CUDA_RING, WARPS_OF_BLOCK = RVI_CUDA_THREADS / 32 };

struct feed {
    uint8_t *ring;
    uint64_t *arrived;
    int slot_bytes, into, out_of;
    uint32_t turns; /* bit i: the parity of what slot i waits for */
    int s, tile, part, step, tiles; /* tile, part: the next to open */
    int both; /* parts of a tile, one after the other */
    const uint8_t *from[2];
    int bytes, left;
};

/* Blocks from .. end of segment s. */
static __device__ __forceinline__ int2 segment_blocks(const rvi_cuda_panels &p, int n, int s)
{
    int from = s * length_of(n), end = min(from + length_of(n), units_of(n)), by = p.block_units == 8 ? 3 : 2;
    return {from >> by, end >> by};
}

static __device__ __forceinline__ void open_tile(const rvi_cuda_product_args &a, feed *f)
{
    int tile = f->tile, gated = is_gated(a);
    const rvi_cuda_panels &p = a.part[gated ? f->part : part_of(a, &tile, 2)];
    int2 b = segment_blocks(p, a.x.n, f->s);
    f->bytes = p.block_bytes;
    f->left = b.y - b.x;
    for (int i = 0; i < 2; i++) f->from[i] = panel_at(p, 2 * tile + i) + (size_t)b.x * p.block_bytes;
    if (!f->both || f->part) f->tile += f->step;
    f->part ^= f->both;
}

static __device__ __forceinline__ void load_next(const rvi_cuda_product_args &a, feed *f)
{
    if (f->left == 0 && f->tile < f->tiles) open_tile(a, f);
    if (f->left == 0) return;
    if (starts_copies()) {
        uint8_t *to = f->ring + f->into * f->slot_bytes;
        expect(f->arrived + f->into, 2 * f->bytes);
        copy_bulk(to, f->from[0], f->bytes, f->arrived + f->into);
        copy_bulk(to + f->bytes, f->from[1], f->bytes, f->arrived + f->into);
    }
    f->from[0] += f->bytes, f->from[1] += f->bytes;
    f->left--;
    if (++f->into == a.ring) f->into = 0;
}

template <int TYPE>
static __device__ __forceinline__ void segment(const rvi_cuda_product_args &a, const rvi_cuda_panels &part, feed *f,
                                               const uint4 *acts, int row, float acc[4])
{
    typedef quants_of<TYPE> Q;
    int2 b = segment_blocks(part, a.x.n, f->s);
    int n_rows = a.n_rows;
    const uint4 *x = acts + min(row + (int)threadIdx.x % 32 / 4, n_rows - 1) * 4 + threadIdx.x % 4;
#pragma unroll 1
    for (int block = b.x; block < b.y; block++) {
        const uint8_t *w = f->ring + f->out_of * f->slot_bytes;
        wait_for(f->arrived + f->out_of, f->turns >> f->out_of & 1);
        f->turns ^= 1u << f->out_of;
        if (++f->out_of == a.ring) f->out_of = 0;
        piece p[2];
#pragma unroll
        for (int unit = 0; unit < Q::UNITS; unit++) {
            uint32_t h[2][4];
            for (int i = 0; i < 2; i++) {
                load_piece<TYPE>(w + i * Q::BYTES, unit, &p[i]);
                weights_of<TYPE>(p[i], unit, h[i]);
            }
            uint4 v = x[(size_t)(block * Q::UNITS + unit) * n_rows * 4];
            mma_f16(acc, h[0][0], h[1][0], h[0][1], h[1][1], v.x, v.y);
            mma_f16(acc, h[0][2], h[1][2], h[0][3], h[1][3], v.z, v.w);
        }
        __syncwarp();
        load_next(a, f);
    }
}

static __device__ __forceinline__ void segment_of(const rvi_cuda_product_args &a, const rvi_cuda_panels &p, feed *f,
                                                  const uint4 *acts, int row, float acc[4])
{
    switch (p.type) {
#define X(name, bits, offset, scales, d_units, has_m)                                                                  \
    case name: segment<name>(a, p, f, acts, row, acc); break;
        RVI_CUDA_QUANTS(X)
#undef X
    default: segment<F16>(a, p, f, acts, row, acc);
    }
}

static __device__ const float NO_BIAS = -0.0f; /* v + NO_BIAS is v */

/* What a result is finished with; to: where it goes, 0: there is none. */
struct ending {
    float *to, old, bias[2], factor[2];
};

/* Output o of tile i of all of them, of so many panels of a part, for a row, but for `old`: nothing of this is written by
 * other kernels. */
static __device__ __forceinline__ ending ending_of(const rvi_cuda_product_args &a, int panels, int i, int o, int row,
                                                   bool is)
{
    ending e = {0, 0.0f, {NO_BIAS, NO_BIAS}, {1.0f, 1.0f}};
    int gated = is_gated(a), part = gated ? 0 : part_of(a, &i, panels);
    o += i * panels * OUTS;
    if (!is || row >= a.n_rows || o >= a.part[part].n_out) return e;
    e.to = as<float>(a.part[part].out) + (size_t)row * a.part[part].stride + o;
#pragma unroll
    for (int k = 0; k < 2; k++) {
        const rvi_cuda_panels &p = a.part[gated ? k : part];
        if (k > gated) break;
        if (p.bias) e.bias[k] = as<const float>(p.bias)[o];
        e.factor[k] = panel_factor(p, o);
    }
    return e;
}

static __device__ __forceinline__ void put_ending(const rvi_cuda_product_args &a, const ending &e, float v, float v2)
{
    v *= e.factor[0], v2 *= e.factor[1];
    *e.to = finished(a.finish, v + e.bias[0], v2 + e.bias[1], e.old);
}

/* Grid: rows / 8, blocks. */
static __device__ __forceinline__ void few_product(const rvi_cuda_product_args &a)
{
    DYNAMIC_SHARED(shared_few);
    enum { ROWS = 8, PER_THREAD = 16 * ROWS * WARPS_OF_BLOCK / RVI_CUDA_THREADS };
    __shared__ float sums[2][2][WARPS_OF_BLOCK][16][ROWS];
    __shared__ uint64_t arrived[WARPS_OF_BLOCK][RING];
    int warp = threadIdx.x / 32, gated = is_gated(a), row = blockIdx.x * 8, tiles = a.tiles;
    int segments = a.segments, together = a.together, aside = a.aside, part = 0, which = 0, s = warp;
#pragma unroll 1
    for (; s >= segments; s -= segments) which++;
    if (aside) part = which & 1, which >>= 1;
    feed f = {};
    f.slot_bytes = a.slot_bytes;
    f.ring = shared_few + warp * a.ring * f.slot_bytes;
    f.arrived = arrived[warp];
    f.s = s, f.tiles = which < together ? tiles : 0;
    f.step = gridDim.y * together;
    f.tile = blockIdx.y * together + which;
    f.part = part, f.both = gated && !aside;
    if ((int)threadIdx.x % 32 < a.ring) expect_one(f.arrived + threadIdx.x % 32, 2);
    expecting();
    __syncwarp();
    int first = blockIdx.y * together, tile = f.tile;
#pragma unroll 1
    for (int i = 0; i < a.ring; i++) load_next(a, &f); /* the weights do not depend on the kernels before */
    const uint4 *acts = as<const uint4>(a.acts);
    begin();
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll 1
    for (int turn = 0; first < tiles; first += f.step, tile += f.step, turn ^= 1) {
        ending e[PER_THREAD];
#pragma unroll
        for (int i = 0; i < PER_THREAD; i++) {
            int at = threadIdx.x + i * RVI_CUDA_THREADS;
            e[i] = ending_of(a, 2, first + at / (16 * ROWS), at % 16, row + at / 16 % ROWS, at < 16 * ROWS * together);
            if (a.finish == RVI_CUDA_ADD && e[i].to) e[i].old = *e[i].to;
        }
#pragma unroll 1
        for (int k = part; k <= part + f.both && which < together && tile < tiles; k++) {
            int at = tile;
            float acc[4] = {};
            segment_of(a, a.part[gated ? k : part_of(a, &at, 2)], &f, acts, row, acc);
            for (int i = 0; i < 4; i++) sums[turn][k][warp][i / 2 * 8 + g][2 * t + i % 2] = acc[i];
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < PER_THREAD; i++) {
            int at = threadIdx.x + i * RVI_CUDA_THREADS, o = at % 16, r = at / 16 % ROWS;
            int k = (at / (16 * ROWS) << aside) * segments, k2 = k + aside * segments;
            if (!e[i].to) continue;
            float v[2] = {sums[turn][0][k][o][r], gated ? sums[turn][1][k2][o][r] : 0.0f};
            float x = factors(a)[row + r];
#pragma unroll
            for (int j = 1; j < SEGMENTS; j++) {
                if (j < segments) v[0] += sums[turn][0][k + j][o][r];
                if (j < segments && gated) v[1] += sums[turn][1][k2 + j][o][r];
            }
            put_ending(a, e[i], v[0] * x, v[1] * x);
        }
    }
}

KERNEL __launch_bounds__(RVI_CUDA_THREADS, 2) product_few(rvi_cuda_product_args a)
{
    few_product(a);
}
