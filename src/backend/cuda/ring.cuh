/* ring.cuh - products of one row, which is even, with large matrices: weights by bulk copies.
 *
 * Every warp that computes has a ring of slots in shared memory, which its first lane fills, before the row is there and
 * whenever the warp has used a slot. One more warp adds the segments of a tile and writes its results. Order and bits are
 * those of products.cuh. One tile at a time (`together` is 1), gated ones in pairs of panels. Only for quantized types,
 * and for devices that have bulk copies. */

enum { RING_TURNS = 4 }; /* tiles whose sums wait */

struct ring_shared { /* of all types, as row_sums is */
    uint64_t full[WARPS_OF_BLOCK][RING], summed[RING_TURNS], drained[RING_TURNS];
    float sums[RING_TURNS][SEGMENTS][16], factor;
};

static __device__ ring_shared *shared_of_ring()
{
    __shared__ ring_shared r;
    return &r;
}

/* Counters as those of bulk copies: a round is over when n lanes have arrived, each for what it has read or written
 * itself. By all lanes of a warp: ring_wait. */
#ifdef __CUDACC__
#define ring_count expect_warps
#define ring_arrive done_with
#define ring_wait wait_for
static __device__ __forceinline__ void ring_copy(uint8_t *to, uint8_t *to2, const uint8_t *const from[2], int bytes, uint64_t *place)
{
    expect(place, 2 * bytes);
    copy_bulk(to, from[0], bytes, place);
    copy_bulk(to2, from[1], bytes, place);
}
#else /* on the host: how many have to come, how many are missing, the round */
static void ring_count(uint64_t *place, int n)
{
    *place = (uint64_t)n << 32 | (uint64_t)n << 16;
}
static void ring_arrive(uint64_t *place)
{
    *place -= 1 << 16;
    if (!(*place >> 16 & 0xffff)) *place = (*place + (*place >> 32 << 16)) ^ 1;
}
static void ring_wait(uint64_t *place, uint32_t parity)
{
    while (simt_from((*place & 1) == parity, 0)) {
    }
}
static void ring_copy(uint8_t *to, uint8_t *to2, const uint8_t *const from[2], int bytes, uint64_t *place)
{
    copy_bulk(to, from[0], bytes, place);
    copy_bulk(to2, from[1], bytes, place);
    ring_arrive(place);
}
#endif

/* ---- weights: two units of a block at a time ---- */

/* Units 2 p and 2 p + 1, as units 0 and 1 of weights_of. block: in shared memory; d: of the block, where it has one. */
template <int TYPE> static __device__ __forceinline__ void load_pair(const uint8_t *block, int p, uint32_t d, piece w[2])
{
    typedef quants_of<TYPE> Q;
    int lane = threadIdx.x % 32, g = lane / 4, half = lane % 4 / 2;
    if constexpr (Q::WORDS == 1) {
        uint2 v = *(const uint2 *)(block + p / 2 * 512 + lane * 16 + p % 2 * 8);
        w[0].low[0] = v.x, w[1].low[1] = v.y;
    } else {
        uint4 v = *(const uint4 *)(block + p * 512 + lane * 16);
        w[0].low[0] = v.x, w[0].low[1] = v.y, w[1].low[2] = v.z, w[1].low[3] = v.w;
    }
    if constexpr (Q::BITS == 5)
        w[0].high = w[1].high = *(const uint32_t *)(block + Q::AT_HIGH + (lane * Q::HIGHS + p / 2) * 4) >> (p % 2 * 8);
    if constexpr (Q::BITS == 6)
        w[0].high = w[1].high = *(const uint32_t *)(block + Q::AT_HIGH + (lane * Q::HIGHS + p) * 4);
    const uint8_t *scales = block + Q::AT_SCALES + (Q::TWO ? 2 * g + half : g) * Q::UNITS * Q::SCALES + 2 * p * Q::SCALES;
    if constexpr (Q::SCALES == 1) w[0].s = w[1].s = *(const uint16_t *)scales;
    if constexpr (Q::SCALES == 2) w[0].s = w[1].s = *(const uint32_t *)scales;
    const uint8_t *own = block + Q::AT_D + (g * Q::UNITS + 2 * p) * (Q::HAS_M ? 4 : 2);
    if constexpr (Q::EACH && Q::HAS_M) {
        uint2 v = *(const uint2 *)own;
        w[0].d = v.x, w[1].d = v.y;
    } else if constexpr (Q::EACH) {
        uint32_t v = *(const uint32_t *)own;
        w[0].d = v, w[1].d = v >> 16;
    } else {
        w[0].d = w[1].d = d;
    }
}

template <int TYPE> static __device__ __forceinline__ uint32_t block_d(const uint8_t *block)
{
    typedef quants_of<TYPE> Q;
    int g = threadIdx.x % 32 / 4;
    if constexpr (Q::EACH) return 0;
    if constexpr (Q::HAS_M) return ((const uint32_t *)(block + Q::AT_D))[g];
    return ((const uint16_t *)(block + Q::AT_D))[g];
}

/* A block of both panels, in shared memory. x: of its first unit, for the lane. */
template <int TYPE>
static __device__ __forceinline__ void add_ring_block(const uint8_t *w, const uint8_t *w2, const uint4 *x, float acc[4])
{
    typedef quants_of<TYPE> Q;
    uint32_t d = block_d<TYPE>(w), d2 = block_d<TYPE>(w2);
#pragma unroll
    for (int p = 0; p < Q::UNITS / 2; p++) {
        piece one[2], two[2];
        load_pair<TYPE>(w, p, d, one);
        load_pair<TYPE>(w2, p, d2, two);
#pragma unroll
        for (int u = 0; u < 2; u++) {
            uint32_t h[2][4];
            weights_of<TYPE>(one[u], u, h[0]);
            weights_of<TYPE>(two[u], u, h[1]);
            uint4 v = x[(2 * p + u) * 4];
            mma_f16(acc, h[0][0], h[1][0], h[0][1], h[1][1], v.x, v.y);
            mma_f16(acc, h[0][2], h[1][2], h[0][3], h[1][3], v.z, v.w);
        }
    }
}

/* ---- the two kinds of warps ---- */

/* The tiles of a block, and what its rings hold. */
struct ring_work {
    int first, step, end, turns, segments, length, units, slots, slot, per_slot; /* per_slot: blocks of both panels */
    uint8_t *ring, *row;
};

/* A segment of the block's tile number `turn`. Warps take them in turns. */
struct ring_item {
    int turn, s, n; /* n: its blocks, 0: there is none */
};

template <int TYPE> static __device__ __forceinline__ void next_item(const ring_work &r, ring_item *i, int by)
{
#pragma unroll 1
    for (i->s += by; i->s >= r.segments; i->s -= r.segments) i->turn++;
    i->n = i->turn < r.turns ? (uint32_t)min(r.length, r.units - i->s * r.length) / quants_of<TYPE>::UNITS : 0;
}

/* What the next slot of a warp's ring gets. */
struct ring_next {
    ring_item i;
    place p;
    int slot;
};

template <int TYPE>
static __device__ __forceinline__ void open_next(const rvi_cuda_product_args &a, const ring_work &r, int by, ring_next *f)
{
    next_item<TYPE>(r, &f->i, by);
    f->p.tile = r.first + f->i.turn * r.step;
    open_place(a, f->i.s, f->i.n, r.end, &f->p);
}

/* By all lanes, when none reads the slot any more. */
template <int TYPE>
static __device__ __forceinline__ void fill_slot(const rvi_cuda_product_args &a, const ring_work &r, ring_shared *c, ring_next *f)
{
    int warp = threadIdx.x / 32, blocks = min(f->p.left, r.per_slot), bytes = blocks * quants_of<TYPE>::BYTES;
    if (!blocks) return;
    uint8_t *to = r.ring + (warp * r.slots + f->slot) * r.slot;
    if (threadIdx.x % 32 == 0) ring_copy(to, to + r.slot / 2, f->p.at, bytes, &c->full[warp][f->slot]);
    if (++f->slot == r.slots) f->slot = 0;
    f->p.at[0] += bytes, f->p.at[1] += bytes;
    if (!(f->p.left -= blocks)) open_next<TYPE>(a, r, WARPS_OF_BLOCK, f);
}

/* The weights do not depend on the kernels before. */
template <int TYPE>
static __device__ __forceinline__ void begin_ring(const rvi_cuda_product_args &a, const ring_work &r, ring_shared *c, ring_next *f)
{
    int warp = threadIdx.x / 32;
    if (threadIdx.x % 32 == 0) {
#pragma unroll 1
        for (int i = 0; i < r.slots; i++) ring_count(&c->full[warp][i], 1);
        expecting();
    }
    *f = {{0, 0, 0}, {0, 0}, 0};
    open_next<TYPE>(a, r, warp, f);
#pragma unroll 1
    for (int i = 0; i < r.slots; i++) fill_slot<TYPE>(a, r, c, f);
}

template <int TYPE>
static __device__ __forceinline__ void add_segments_of(const rvi_cuda_product_args &a, const ring_work &r, ring_shared *c, ring_next *f)
{
    typedef quants_of<TYPE> Q;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, slot = 0;
    uint32_t parity = 0;
    const uint8_t *ring = r.ring + warp * r.slots * r.slot;
    ring_item i = {0, 0, 0};
#pragma unroll 1
    for (next_item<TYPE>(r, &i, warp); i.n; next_item<TYPE>(r, &i, WARPS_OF_BLOCK)) {
        float acc[4] = {};
        const uint4 *x = (const uint4 *)r.row + i.s * r.length * 4 + lane % 4;
#pragma unroll 1
        for (int left = i.n; left > 0; left -= r.per_slot) {
            const uint8_t *w = ring + slot * r.slot;
            ring_wait(&c->full[warp][slot], parity >> slot & 1);
#pragma unroll 1
            for (int k = min(left, r.per_slot); k > 0; k--, w += Q::BYTES, x += Q::UNITS * 4)
                add_ring_block<TYPE>(w, w + r.slot / 2, x, acc);
            __syncwarp();
            fill_slot<TYPE>(a, r, c, f);
            parity ^= 1u << slot;
            if (++slot == r.slots) slot = 0;
        }
        int at = i.turn % RING_TURNS, round = i.turn / RING_TURNS;
        if (round) ring_wait(c->drained + at, (round - 1) & 1);
        if (lane % 4 == 0) {
            c->sums[at][i.s][lane / 4] = acc[0], c->sums[at][i.s][8 + lane / 4] = acc[2];
            ring_arrive(c->summed + at);
        }
    }
}

static __device__ __forceinline__ void end_turns(const rvi_cuda_product_args &a, const ring_work &r, ring_shared *c)
{
    int lane = threadIdx.x % 32, o = lane % 16;
#pragma unroll 1
    for (int turn = 0; turn < r.turns; turn++) {
        ending e = ending_of(a, a.paired ? 1 : 2, r.first + turn * r.step, o, 0, lane < (a.paired ? 8 : 16));
        if (a.finish == RVI_CUDA_ADD && e.to) e.old = *e.to;
        const float (*from)[16] = c->sums[turn % RING_TURNS];
        ring_wait(c->summed + turn % RING_TURNS, turn / RING_TURNS & 1);
        float v = from[0][o], v2 = from[0][o ^ 8], factor = c->factor; /* who wrote it had the first segment */
#pragma unroll
        for (int j = 1; j < SEGMENTS; j++)
            if (j < r.segments) v += from[j][o], v2 += from[j][o ^ 8];
        if (e.to) put_ending(a, e, v * factor, a.paired ? v2 * factor : 0.0f);
        ring_arrive(c->drained + turn % RING_TURNS);
    }
}

/* stage_row with fewer registers. */
static __device__ __forceinline__ float stage_ring(const rvi_cuda_product_args &a, bool keep, uint2 *staged)
{
    enum { COLUMNS = 4 * RVI_CUDA_THREADS };
    if (a.x.n <= 4 * COLUMNS) return stage_held<4, true>(a, keep, staged);
    return a.norm ? stage_long<4, true>(a, keep, staged) : stage_long<8, false>(a, keep, staged);
}

/* The block takes tiles from `first` on, every step, before `end`. */
template <int TYPE>
static __device__ __forceinline__ void ring_product(const rvi_cuda_product_args &a, int first, int step, int end)
{
    DYNAMIC_SHARED(shared_ring);
    ring_shared *c = shared_of_ring();
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    ring_work r = {first, step, end, 0, a.segments, length_of(a.x.n), units_of(a.x.n), a.ring, a.slot_bytes};
    r.turns = (uint32_t)(end - first + step - 1) / step;
    r.per_slot = (uint32_t)r.slot / (2 * quants_of<TYPE>::BYTES);
    r.ring = shared_ring;
    r.row = shared_ring + WARPS_OF_BLOCK * r.slots * r.slot;
    ring_next f;
    if (warp < WARPS_OF_BLOCK) {
        begin_ring<TYPE>(a, r, c, &f);
        float factor = stage_ring(a, blockIdx.y == 0, (uint2 *)r.row);
        if (threadIdx.x == 0) c->factor = factor;
    } else {
        if (lane < RING_TURNS) ring_count(c->summed + lane, r.segments * 8), ring_count(c->drained + lane, 32);
        expecting();
        begin();
    }
    __syncthreads(); /* for both kinds, so at one place */
    if (warp < WARPS_OF_BLOCK)
        add_segments_of<TYPE>(a, r, c, &f);
    else
        end_turns(a, r, c);
}

/* Devices without bulk copies do not start these kernels: nothing is compiled for them. */
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
template <int TYPE> static __device__ __forceinline__ void ring_of_one_type(const rvi_cuda_product_args &a)
{
    ring_product<TYPE>(a, blockIdx.y, gridDim.y, a.tiles);
}

/* The first blocks take the first tiles. */
static __device__ __forceinline__ void ring_of_two_types(const rvi_cuda_product_args &a)
{
    bool second = (int)blockIdx.y >= a.first_blocks;
    int step = second ? gridDim.y - a.first_blocks : a.first_blocks;
    int first = second ? a.first_tiles + (blockIdx.y - a.first_blocks) : blockIdx.y;
    int end = second ? a.tiles : a.first_tiles;
    switch (a.part[second ? a.n_parts - 1 : 0].type) {
#define X(name, bits, offset, scales, d_units, has_m)                                                                  \
    case name: ring_product<name>(a, first, step, end); break;
        RVI_CUDA_QUANTS(X)
#undef X
    }
}
#else
template <int TYPE> static __device__ __forceinline__ void ring_of_one_type(const rvi_cuda_product_args &)
{
}
static __device__ __forceinline__ void ring_of_two_types(const rvi_cuda_product_args &)
{
}
#endif

#define X(name, bits, offset, scales, d_units, has_m)                                                                  \
    KERNEL __launch_bounds__(RVI_CUDA_RING_THREADS, 2) product_ring_##name(rvi_cuda_product_args a)                    \
    {                                                                                                                  \
        ring_of_one_type<name>(a);                                                                                     \
    }
RVI_CUDA_QUANTS(X)
#undef X

KERNEL __launch_bounds__(RVI_CUDA_RING_THREADS, 2) product_ring(rvi_cuda_product_args a)
{
    ring_of_two_types(a);
}
