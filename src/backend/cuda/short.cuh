/* short.cuh - products of one row with few tiles: what small models take their time for.
 *
 * As in row.cuh, but what can be done without the row is done before it is there: weights of a segment, up to 8 units,
 * become f16 in registers. What is left then is little, in time and in code: instructions that a kernel comes to for the
 * first time are slow. Order and bits are those of products.cuh. */

/* ---- weights of a tile, of a segment of 8 units at most ---- */

template <int TYPE> struct raw_tile { /* as they lie in memory */
    enum { UNITS = quants_of<TYPE>::UNITS, BLOCKS = 8 / UNITS };
    block_words<TYPE> block[BLOCKS][2];
};

struct half_tile { /* as the tensor cores take them */
    uint32_t unit[8][2][4];
};

/* n: blocks of the segment. */
template <int TYPE>
static __device__ __forceinline__ void load_tile(const uint8_t *const at[2], int n, raw_tile<TYPE> *w)
{
#pragma unroll
    for (int i = 0; i < 2 * raw_tile<TYPE>::BLOCKS; i++)
        if (i / 2 < n) load_block<TYPE>(at[i % 2] + i / 2 * quants_of<TYPE>::BYTES, &w->block[i / 2][i % 2]);
}

template <int TYPE> static __device__ __forceinline__ void turn_tile(const raw_tile<TYPE> &w, half_tile *to)
{
    enum { UNITS = raw_tile<TYPE>::UNITS };
#pragma unroll
    for (int i = 0; i < 16; i++) {
        piece one;
        piece_of<TYPE>(w.block[i / 2 / UNITS][i % 2], i / 2 % UNITS, &one);
        weights_of<TYPE>(one, i / 2 % UNITS, to->unit[i / 2][i % 2]);
    }
}

/* x: of the segment's first unit, for the lane. */
static __device__ __forceinline__ void add_tile(const half_tile &w, int units, const uint4 *x, float acc[4])
{
#pragma unroll
    for (int i = 0; i < 8; i++) {
        if (i % 4 == 0 && i >= units) break; /* there are 4 or 8 */
        uint4 v = x[i * 4];
        const uint32_t *h = w.unit[i][0], *l = w.unit[i][1];
        mma_f16(acc, h[0], l[0], h[1], l[1], v.x, v.y);
        mma_f16(acc, h[2], l[2], h[3], l[3], v.z, v.w);
    }
}

/* ---- short rows ---- */

/* The block takes the tiles from `first` on that go together, before `end`; with a step, a second time, that far on. */
template <int TYPE, bool TWICE = false>
static __device__ __forceinline__ void row_short(const rvi_cuda_product_args &a, int first, int end, int step = 0)
{
    typedef quants_of<TYPE> Q;
    DYNAMIC_SHARED(shared_short);
    float (*sums)[2][WARPS_OF_BLOCK][16] = row_sums();
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, segments = a.segments, part = 0, which = 0, s = warp;
#pragma unroll 1
    for (; s >= segments; s -= segments) which++;
    if (a.aside) part = which & 1, which >>= 1;
    int n = which < a.together ? min(8, units_of(a.x.n) - s * 8) / Q::UNITS : 0; /* blocks of a segment */
    place p = {first + which, part};
    raw_tile<TYPE> raw;
    half_tile w;
    open_place(a, s, n, end, &p);
    if (p.left) load_tile(p.at, n, &raw);
    turn_tile(raw, &w);
    place p2 = {first + which + step, part};
    if (TWICE) open_place(a, s, n, end, &p2);
    auto ending_at = [&](int tile) {
        bool is = (int)threadIdx.x < 16 * a.together && tile < end && !(a.paired && threadIdx.x % 16 >= 8);
        return ending_of(a, a.paired ? 1 : 2, tile, threadIdx.x % 16, 0, is);
    };
    int tile = first + (int)threadIdx.x / 16;
    ending e = ending_at(tile);
    float factor = stage_held<2, true>(a, blockIdx.y == 0, (uint2 *)shared_short);
    __syncthreads();
    const uint4 *x = (const uint4 *)shared_short + s * 32 + lane % 4;
    if (a.finish == RVI_CUDA_ADD && e.to) e.old = *e.to;
    if (p.left) {
        float acc[4] = {}, *to = sums[0][part][warp];
        add_tile(w, n * Q::UNITS, x, acc);
        if (TWICE && p2.left) load_tile(p2.at, n, &raw);
        if (lane % 4 == 0) to[lane / 4] = acc[0], to[8 + lane / 4] = acc[2];
    }
    __syncthreads();
    if (e.to) end_output(a, e, sums[0], factor);
    if (!TWICE || first + step >= end) return;
    e = ending_at(tile + step);
    if (a.finish == RVI_CUDA_ADD && e.to) e.old = *e.to;
    if (p2.left) {
        float acc[4] = {}, *to = sums[1][part][warp];
        turn_tile(raw, &w);
        add_tile(w, n * Q::UNITS, x, acc);
        if (lane % 4 == 0) to[lane / 4] = acc[0], to[8 + lane / 4] = acc[2];
    }
    __syncthreads();
    if (e.to) end_output(a, e, sums[1], factor);
}

/* One type. Grid: 1, blocks. */
#define X(name, bits, offset, scales, d_units, has_m)                                                                  \
    KERNEL __launch_bounds__(RVI_CUDA_THREADS, 2) product_short_##name(rvi_cuda_product_args a)                        \
    {                                                                                                                  \
        row_short<name>(a, blockIdx.y * a.together, a.tiles);                                                          \
    }
RVI_CUDA_QUANTS(X)
X(F16, 16, 0, 0, 1, 0)
#undef X

/* F16 or BF16, where there is nothing to turn. Grid: 1, blocks, which have all tiles in two turns. */
KERNEL __launch_bounds__(RVI_CUDA_THREADS, 2) product_twice(rvi_cuda_product_args a)
{
    row_short<F16, true>(a, blockIdx.y * a.together, a.tiles, gridDim.y * a.together);
}

/* Two types: the first blocks take the first tiles. */
KERNEL __launch_bounds__(RVI_CUDA_THREADS, 2) product_short(rvi_cuda_product_args a)
{
    bool second = (int)blockIdx.y >= a.first_blocks;
    int first = second ? a.first_tiles + (blockIdx.y - a.first_blocks) * a.together : blockIdx.y * a.together;
    int end = second ? a.tiles : a.first_tiles;
    switch (a.part[second ? a.n_parts - 1 : 0].type) {
#define X(name, bits, offset, scales, d_units, has_m)                                                                  \
    case name: row_short<name>(a, first, end); break;
        RVI_CUDA_QUANTS(X)
#undef X
    default: row_short<F16>(a, first, end);
    }
}

/* ---- long rows of F16 or BF16 with few outputs: a block has one tile, or half of it, a panel ---- */

/* Two blocks of the panel, of which n are there; the outputs of the tile's other panel are nobody's. */
static __device__ __forceinline__ void add_panel(const block_words<F16> w[2], int n, const uint4 *x, float acc[4])
{
    enum { UNITS = quants_of<F16>::UNITS };
#pragma unroll
    for (int i = 0; i < 2 * UNITS; i++) {
        if (i / UNITS >= n) break;
        uint4 v = x[i * 4];
        const uint32_t *h = w[i / UNITS].low + i % UNITS * 4;
        mma_f16(acc, h[0], 0, h[1], 0, v.x, v.y);
        mma_f16(acc, h[2], 0, h[3], 0, v.z, v.w);
    }
}

/* Neither normed nor gated, FOURS fours of the row for each thread at most. */
template <int PANELS, int FOURS> static __device__ __forceinline__ void row_long(const rvi_cuda_product_args &a)
{
    typedef quants_of<F16> Q;
    enum { AT_ONCE = 2 / PANELS }; /* blocks of a panel */
    DYNAMIC_SHARED(shared_long);
    float (*sums)[2][WARPS_OF_BLOCK][16] = row_sums();
    int s = threadIdx.x / 32, lane = threadIdx.x % 32, length = length_of(a.x.n), tile = blockIdx.y;
    int n = s < a.segments ? min(length, units_of(a.x.n) - s * length) / Q::UNITS : 0, left = n; /* blocks of a segment */
    const rvi_cuda_panels &part = a.part[part_of(a, &tile, PANELS)];
    size_t from = (size_t)segment_blocks(part, a.x.n, s).x * Q::BYTES;
    const uint8_t *at = panel_at(part, PANELS * tile) + from, *at2 = panel_at(part, 2 * tile + 1) + from;
    block_words<F16> w[2];
    auto load = [&]() {
        if (left <= 0) return;
        load_block<F16>(at, &w[0]);
        load_block<F16>(PANELS == 2 ? at2 : left > 1 ? at + Q::BYTES : at, &w[1]);
        at += AT_ONCE * Q::BYTES, at2 += AT_ONCE * Q::BYTES, left -= AT_ONCE;
    };
    load();
    ending e = ending_of(a, PANELS, blockIdx.y, threadIdx.x % 16, 0, threadIdx.x < PANELS * OUTS);
    const uint4 *x = (const uint4 *)shared_long + s * length * 4 + lane % 4;
    float factor = 0, acc[4] = {};
#pragma unroll 1
    for (int i = 0;; i += AT_ONCE, x += AT_ONCE * Q::UNITS * 4) {
        block_words<F16> h[2] = {w[0], w[1]};
        load(); /* the second time too is asked for before the row is there */
        if (i == 0) {
            factor = stage_held<FOURS, false>(a, false, (uint2 *)shared_long);
            __syncthreads();
            if (a.finish == RVI_CUDA_ADD && e.to) e.old = *e.to;
        }
        if (PANELS == 1)
            add_panel(h, n - i, x, acc);
        else if (i < n)
            add_block<F16>(h, x, acc);
        if (i + AT_ONCE >= n) break;
    }
    if (n && lane % 4 == 0) sums[0][0][s][lane / 4] = acc[0], sums[0][0][s][8 + lane / 4] = acc[2];
    __syncthreads();
    if (e.to) end_output(a, e, sums[0], factor);
}

/* RVI_CUDA_LONG columns at most. Grid: 1, tiles. */
KERNEL __launch_bounds__(RVI_CUDA_THREADS, 2) product_long(rvi_cuda_product_args a)
{
    row_long<2, RVI_CUDA_LONG / (4 * RVI_CUDA_THREADS)>(a);
}

/* RVI_CUDA_PANEL_LONG columns at most. Grid: 1, panels. */
KERNEL __launch_bounds__(RVI_CUDA_THREADS, 2) product_panel(rvi_cuda_product_args a)
{
    row_long<1, RVI_CUDA_PANEL_LONG / (4 * RVI_CUDA_THREADS)>(a);
}
