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

/* The block takes the tiles from `first` on that go together, before `end`. */
template <int TYPE> static __device__ __forceinline__ void row_short(const rvi_cuda_product_args &a, int first, int end)
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
    int tile = first + (int)threadIdx.x / 16;
    bool is = (int)threadIdx.x < 16 * a.together && tile < end && !(a.paired && threadIdx.x % 16 >= 8);
    ending e = ending_of(a, a.paired ? 1 : 2, tile, threadIdx.x % 16, 0, is);
    float factor = stage_held<2, true>(a, blockIdx.y == 0, (uint2 *)shared_short);
    __syncthreads();
    if (a.finish == RVI_CUDA_ADD && e.to) e.old = *e.to;
    if (p.left) {
        float acc[4] = {}, *to = sums[0][part][warp];
        add_tile(w, n * Q::UNITS, (const uint4 *)shared_short + s * 32 + lane % 4, acc);
        if (lane % 4 == 0) to[lane / 4] = acc[0], to[8 + lane / 4] = acc[2];
    }
    __syncthreads();
    if (e.to) end_output(a, e, sums[0], factor);
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

/* ---- long rows of F16 or BF16 with few outputs: a block has one tile ---- */

/* Neither normed nor gated, RVI_CUDA_LONG columns at most. Grid: 1, tiles. */
KERNEL __launch_bounds__(RVI_CUDA_THREADS, 2) product_long(rvi_cuda_product_args a)
{
    typedef quants_of<F16> Q;
    DYNAMIC_SHARED(shared_long);
    float (*sums)[2][WARPS_OF_BLOCK][16] = row_sums();
    int s = threadIdx.x / 32, lane = threadIdx.x % 32, length = length_of(a.x.n);
    int n = s < a.segments ? min(length, units_of(a.x.n) - s * length) / Q::UNITS : 0; /* blocks of a segment */
    place p = {(int)blockIdx.y, 0};
    block_words<F16> w[2];
    open_place(a, s, n, a.tiles, &p);
    auto load = [&]() {
        if (!p.left) return;
        load_block<F16>(p.at[0], &w[0]);
        load_block<F16>(p.at[1], &w[1]);
        p.at[0] += Q::BYTES, p.at[1] += Q::BYTES, p.left--;
    };
    load();
#pragma unroll 1
    for (int at = lane * 128; at < p.left * Q::BYTES; at += 4096) fetch(p.at[0] + at), fetch(p.at[1] + at);
    ending e = ending_of(a, 2, blockIdx.y, threadIdx.x % 16, 0, threadIdx.x < 16);
    const uint4 *x = (const uint4 *)shared_long + s * length * 4 + lane % 4;
    float factor = 0, acc[4] = {};
#pragma unroll 1
    for (int i = 0;; i++, x += Q::UNITS * 4) {
        block_words<F16> h[2] = {w[0], w[1]};
        load(); /* the second block too is asked for before the row is there */
        if (i == 0) {
            uint2 *to = (uint2 *)shared_long;
            factor = a.x.n <= 20 * RVI_CUDA_THREADS ? stage_held<5, false>(a, false, to) : stage_held<8, false>(a, false, to);
            __syncthreads();
        }
        if (i < n) add_block<F16>(h, x, acc);
        if (i + 1 >= n) break;
    }
    if (a.finish == RVI_CUDA_ADD && e.to) e.old = *e.to;
    if (n && lane % 4 == 0) sums[0][0][s][lane / 4] = acc[0], sums[0][0][s][8 + lane / 4] = acc[2];
    __syncthreads();
    if (e.to) end_output(a, e, sums[0], factor);
}
