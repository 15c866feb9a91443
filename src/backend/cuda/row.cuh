/* row.cuh - products of one row, which is even: what decoding one sequence takes its time for.
 *
 * Weights come straight into registers, a block of a panel ahead: every byte is needed by one lane once, so that shared
 * memory would only cost instructions. The first of them, norms and biases are asked for before the kernels in front
 * have ended. Each block prepares the row for itself. Order and bits are those of products.cuh. */

/* ---- the row ---- */

/* The only row, which is even, into shared memory. */
template <int FOURS, bool NORM>
static __device__ __forceinline__ float stage_held(const rvi_cuda_product_args &a, bool keep, uint2 *staged)
{
    return hold_row<FOURS, NORM>(a, 0, keep, [&](int i, uint2 v) { staged[i] = v; });
}

/* Likewise a row that a thread cannot hold: read twice, FOURS fours at a time, what was read last first. */
template <int FOURS, bool NORM>
static __device__ __forceinline__ float stage_long(const rvi_cuda_product_args &a, bool keep, uint2 *staged)
{
    enum { STEP = FOURS * RVI_CUDA_THREADS };
    float4 v[FOURS], w[FOURS];
    float sum = 0;
    uint32_t top = 0;
    int end = units_of(a.x.n) * 8, first = 0;
    auto load = [&]() {
#pragma unroll
        for (int i = 0; i < FOURS; i++) {
            int k = 4 * (first + threadIdx.x + i * RVI_CUDA_THREADS);
            v[i] = four_at<true>(row_of(a.x, 0), k, a.x.n);
            w[i] = NORM ? norm_at<true>(a, k) : float4{1.0f, 1.0f, 1.0f, 1.0f};
        }
    };
    begin();
#pragma unroll 1
    for (;; first += STEP) {
        load();
#pragma unroll
        for (int i = 0; i < FOURS; i++) count_four(v[i], w[i], &sum, &top);
        if (first + STEP >= end) break;
    }
    about_row r = about(a, sum, top);
#pragma unroll 1
    for (;; load()) {
#pragma unroll
        for (int i = 0; i < FOURS; i++) {
            int at = first + threadIdx.x + i * RVI_CUDA_THREADS;
            uint2 h = halves_of<true>(a, 0, at, v[i], w[i], r, keep);
            if (at < end) staged[at] = h;
        }
        if ((first -= STEP) < 0) break;
    }
    return r.factor;
}

/* What its results are multiplied by. */
static __device__ __forceinline__ float stage_row(const rvi_cuda_product_args &a, bool keep, uint2 *staged)
{
    enum { COLUMNS = 4 * RVI_CUDA_THREADS };
    if (a.x.n <= 4 * COLUMNS) return stage_held<4, true>(a, keep, staged);
    if (a.norm) return stage_long<5, true>(a, keep, staged);
    if (a.x.n <= 5 * COLUMNS) return stage_held<5, false>(a, keep, staged);
    if (a.x.n <= 8 * COLUMNS) return stage_held<8, false>(a, keep, staged);
    return a.x.n <= 14 * COLUMNS ? stage_held<14, false>(a, keep, staged) : stage_long<10, false>(a, keep, staged);
}

/* ---- weights ---- */

/* What a lane has of a block of a panel. */
template <int TYPE> struct block_words {
    typedef quants_of<TYPE> Q;
    enum {
        LOW = Q::UNITS * Q::WORDS,
        HIGH = Q::HIGHS,
        S = Q::UNITS * Q::SCALES / 4,
        D = Q::BITS == 16 ? 0 : Q::EACH ? Q::UNITS * (Q::HAS_M ? 4 : 2) / 4 : 1,
        AHEAD = Q::BITS == 16 || Q::UNITS == 8 ? 1 : 2, /* on their way to registers: a segment of a short row */
    };
    uint32_t low[LOW], high[HIGH + 1], s[S + 1], d[D + 1];
};

template <int N> static __device__ __forceinline__ void load_words(uint32_t *to, const uint8_t *from)
{
    if constexpr (N == 1) to[0] = load_once(from);
    if constexpr (N == 2) load_once2(to, from);
    if constexpr (N == 4) load_once4(to, from);
}

template <int TYPE> static __device__ __forceinline__ void load_block(const uint8_t *block, block_words<TYPE> *w)
{
    typedef quants_of<TYPE> Q;
    typedef block_words<TYPE> B;
    int lane = threadIdx.x % 32, g = lane / 4, half = lane % 4 / 2;
#pragma unroll
    for (int i = 0; i < B::LOW / 4; i++) load_words<4>(w->low + 4 * i, block + i * 512 + lane * 16);
    load_words<B::HIGH>(w->high, block + Q::AT_HIGH + lane * Q::HIGHS * 4);
    load_words<B::S>(w->s, block + Q::AT_SCALES + (Q::TWO ? 2 * g + half : g) * Q::UNITS * Q::SCALES);
    if constexpr (Q::EACH || Q::HAS_M)
        load_words<B::D>(w->d, block + Q::AT_D + g * B::D * 4);
    else if constexpr (Q::BITS < 16)
        w->d[0] = load_half(block + Q::AT_D + g * 2);
}

/* What load_piece gives. */
template <int TYPE> static __device__ __forceinline__ void piece_of(const block_words<TYPE> &b, int unit, piece *w)
{
    typedef quants_of<TYPE> Q;
    if constexpr (Q::WORDS == 1)
        w->low[unit % 4] = b.low[unit];
    else
#pragma unroll
        for (int i = 0; i < Q::WORDS; i++) w->low[(unit * Q::WORDS + i) % 4] = b.low[unit * Q::WORDS + i];
    if constexpr (Q::BITS == 5) w->high = b.high[unit / 4];
    if constexpr (Q::BITS == 6) w->high = b.high[unit / 2];
    if constexpr (Q::SCALES > 0) w->s = b.s[unit * Q::SCALES / 4];
    if constexpr (Q::BITS < 16) w->d = !Q::EACH ? b.d[0] : Q::HAS_M ? b.d[unit] : b.d[unit / 2] >> unit % 2 * 16;
}

/* x: of its first unit, for the lane. */
template <int TYPE>
static __device__ __forceinline__ void add_block(const block_words<TYPE> w[2], const uint4 *x, float acc[4])
{
#pragma unroll
    for (int unit = 0; unit < quants_of<TYPE>::UNITS; unit++) {
        uint32_t h[2][4];
        piece one;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            piece_of<TYPE>(w[i], unit, &one);
            weights_of<TYPE>(one, unit, h[i]);
        }
        uint4 v = x[unit * 4];
        mma_f16(acc, h[0][0], h[1][0], h[0][1], h[1][1], v.x, v.y);
        mma_f16(acc, h[0][2], h[1][2], h[0][3], h[1][3], v.z, v.w);
    }
}

/* By turn, part and warp. One for all types: each template's own would add up in product_row. */
static __device__ float (*row_sums())[2][WARPS_OF_BLOCK][16]
{
    __shared__ float sums[2][2][WARPS_OF_BLOCK][16];
    return sums;
}

/* The thread's output, of sums by part and warp. */
static __device__ __forceinline__ void end_output(const rvi_cuda_product_args &a, const ending &e,
                                                  const float (*sums)[WARPS_OF_BLOCK][16], float factor)
{
    int o = threadIdx.x % 16, j0 = ((int)threadIdx.x / 16 << a.aside) * a.segments, j1 = j0 + a.aside * a.segments;
    bool gated = is_gated(a);
    const float (*second)[16] = sums[!a.paired] + j1; /* of the second part */
    int o2 = a.paired ? o + 8 : o;
    float v = sums[0][j0][o], v2 = gated ? second[0][o2] : 0.0f;
#pragma unroll
    for (int j = 1; j < SEGMENTS; j++) {
        if (j < a.segments) v += sums[0][j0 + j][o];
        if (j < a.segments && gated) v2 += second[j][o2];
    }
    put_ending(a, e, v * factor, v2 * factor);
}

/* The next block that a warp loads: those of its segment, tile after tile. */
struct place {
    int tile, part, left; /* left: blocks of the segment, with this one; 0: there is none */
    const uint8_t *at[2];
};

/* s, n: the warp's segment, and its blocks. */
static __device__ __forceinline__ void open_place(const rvi_cuda_product_args &a, int s, int n, int end, place *p)
{
    int tile = p->tile;
    p->left = tile < end ? n : 0;
    if (!p->left) return;
    int part = is_gated(a) ? p->part : part_of(a, &tile, 2), paired = a.paired;
    const rvi_cuda_panels &w = a.part[part], &w2 = a.part[part + paired];
    size_t from = (size_t)segment_blocks(w, a.x.n, s).x * w.block_bytes;
    p->at[0] = panel_at(w, tile << !paired) + from;
    p->at[1] = panel_at(w2, paired ? tile : 2 * tile + 1) + from;
}

/* The block takes tiles from `first` on, every step, before `end`. */
template <int TYPE>
static __device__ __forceinline__ void row_product(const rvi_cuda_product_args &a, int first, int step, int end)
{
    typedef quants_of<TYPE> Q;
    DYNAMIC_SHARED(shared_one);
    float (*sums)[2][WARPS_OF_BLOCK][16] = row_sums();
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, gated = is_gated(a);
    int segments = a.segments, together = a.together, aside = a.aside, part = 0, which = 0, s = warp;
#pragma unroll 1
    for (; s >= segments; s -= segments) which++;
    if (aside) part = which & 1, which >>= 1;
    int both = gated && !aside && !a.paired, units = min(length_of(a.x.n), units_of(a.x.n) - s * length_of(a.x.n));
    int n = which < together ? units / Q::UNITS : 0; /* blocks of a segment */
    place p = {first + which, part};
    enum { ROW_AHEAD = block_words<TYPE>::AHEAD };
    block_words<TYPE> w[ROW_AHEAD + 1][2];
    open_place(a, s, n, end, &p);
    auto load = [&](block_words<TYPE> to[2]) {
        if (!p.left) return;
        load_block<TYPE>(p.at[0], &to[0]);
        load_block<TYPE>(p.at[1], &to[1]);
        p.at[0] += Q::BYTES, p.at[1] += Q::BYTES;
        if (--p.left) return;
        if (!both || p.part) p.tile += step; /* the next tile, or part of it */
        p.part ^= both;
        open_place(a, s, n, end, &p);
    };
#pragma unroll
    for (int i = 0; i < ROW_AHEAD; i++) load(w[i]); /* the weights do not depend on the kernels before */
    if constexpr (Q::BITS < 16) { /* the rest of the segment; with 16 bits it is faster without */
#pragma unroll 1
        for (int at = lane * 128; at < p.left * Q::BYTES; at += 4096) fetch(p.at[0] + at), fetch(p.at[1] + at);
    }
    auto ending_at = [&](int tile) {
        bool is = (int)threadIdx.x < 16 * together && tile < end && !(a.paired && threadIdx.x % 16 >= 8);
        return ending_of(a, a.paired ? 1 : 2, tile, threadIdx.x % 16, 0, is);
    };
    ending e = ending_at(first + (int)threadIdx.x / 16);
    const uint4 *acts = (const uint4 *)shared_one + s * length_of(a.x.n) * 4 + lane % 4;
    float factor = stage_row(a, blockIdx.y == 0, (uint2 *)shared_one);
    __syncthreads();
#pragma unroll 1
    for (int turn = 0; first < end; turn ^= 1) {
        if (a.finish == RVI_CUDA_ADD && e.to) e.old = *e.to;
#pragma unroll 1
        for (int k = part; k <= part + both && n && first + which < end; k++) {
            float acc[4] = {};
#pragma unroll 1
            for (int block = 0; block < n; block++) {
                load(w[ROW_AHEAD]);
                add_block<TYPE>(w[0], acts + block * Q::UNITS * 4, acc);
#pragma unroll
                for (int i = 0; i < ROW_AHEAD; i++) w[i][0] = w[i + 1][0], w[i][1] = w[i + 1][1];
            }
            if (lane % 4 == 0) sums[turn][k][warp][lane / 4] = acc[0], sums[turn][k][warp][8 + lane / 4] = acc[2];
        }
        __syncthreads();
        if (e.to) end_output(a, e, sums[turn], factor);
        first += step;
        if (first < end) e = ending_at(first + (int)threadIdx.x / 16);
    }
}

/* One type. Grid: 1, blocks. */
#define X(name, bits, offset, scales, d_units, has_m)                                                                  \
    KERNEL __launch_bounds__(RVI_CUDA_THREADS, 2) product_row_##name(rvi_cuda_product_args a)                          \
    {                                                                                                                  \
        row_product<name>(a, blockIdx.y * a.together, gridDim.y * a.together, a.tiles);                                \
    }
RVI_CUDA_QUANTS(X)
X(F16, 16, 0, 0, 1, 0)
#undef X

/* Two types: the first blocks take the first tiles. */
KERNEL __launch_bounds__(RVI_CUDA_THREADS, 2) product_row(rvi_cuda_product_args a)
{
    bool second = (int)blockIdx.y >= a.first_blocks;
    int step = (second ? gridDim.y - a.first_blocks : a.first_blocks) * a.together;
    int first = second ? a.first_tiles + (blockIdx.y - a.first_blocks) * a.together : blockIdx.y * a.together;
    int end = second ? a.tiles : a.first_tiles;
    switch (a.part[second ? a.n_parts - 1 : 0].type) {
#define X(name, bits, offset, scales, d_units, has_m)                                                                  \
    case name: row_product<name>(a, first, step, end); break;
        RVI_CUDA_QUANTS(X)
#undef X
    default: row_product<F16>(a, first, step, end);
    }
}
