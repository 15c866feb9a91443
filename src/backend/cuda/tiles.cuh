/* tiles.cuh - products of many rows, by the law of products.cuh: a block has 128 outputs and ROWS rows.
 *
 * A warp turns the weights of its 16 outputs into f16 in registers, and the tensor cores take the activations from
 * shared memory: a stage is two units of ROWS rows. Weights come into shared memory by block, for each warp its own;
 * stages are copied by the warps in turns, each when all warps are done with what was there before.
 * Gated: the first 4 warps have 64 outputs of the first part, the last 4 the same ones of the second.
 * Where there are few blocks, each has a segment, and add_segments follows. */

enum { STAGES = RVI_CUDA_TILE_STAGES, SLOTS = RVI_CUDA_TILE_SLOTS }; /* at most; a.stages and a.slots are what there is */

struct tile_memory { /* where things are */
    uint8_t *acts, *ring;          /* ring: the warp's */
    uint64_t *stage, *slot, *free; /* what has arrived; free: all warps are done with a stage */
};

/* Of segments from .. end: their first stage, and how many there are. */
static __device__ __forceinline__ int2 stages_of(const rvi_cuda_product_args &a, int from, int end)
{
    int first = from * length_of(a.x.n), last = min(end * length_of(a.x.n), units_of(a.x.n));
    return {first / 2, (last - first) / 2};
}

/* Activations on their way: stages are copied in order, by the warps in turns. */
struct supply {
    const uint8_t *from;
    size_t step;
    int bytes, left, stages, stage, round, warp; /* stage: the next one of so many; warp: whose turn it is */
};

template <int ROWS> static __device__ __forceinline__ supply supply_of(const rvi_cuda_product_args &a, int row, int2 stages)
{
    supply s = {as<const uint8_t>(a.acts) + ((size_t)stages.x * a.n_rows + row) * 128, (size_t)a.n_rows * 128};
    s.bytes = min(ROWS, a.n_rows - row) * 128, s.left = stages.y, s.stages = a.stages;
    return s;
}

template <int ROWS> static __device__ __forceinline__ void copy_stage(supply *s, const tile_memory &m)
{
    if (s->left == 0) return;
    if ((int)threadIdx.x / 32 == s->warp) {
        if (s->round) wait_for_warps(m.free + s->stage, (s->round - 1) & 1);
        if (starts_copies()) {
            expect(m.stage + s->stage, s->bytes);
            copy_bulk(m.acts + s->stage * ROWS * 128, s->from, s->bytes, m.stage + s->stage);
        }
    }
    s->from += s->step, s->left--;
    s->warp = (s->warp + 1) % WARPS_OF_BLOCK;
    if (++s->stage == s->stages) s->stage = 0, s->round++;
}

/* A block of both panels into slot i. */
template <int TYPE>
static __device__ __forceinline__ void copy_weights(const uint8_t *const panel[2], int block, int end, int i, const tile_memory &m)
{
    enum { BYTES = quants_of<TYPE>::BYTES };
    if (block >= end || !starts_copies()) return;
    expect(m.slot + i, 2 * BYTES);
    for (int p = 0; p < 2; p++)
        copy_bulk(m.ring + (2 * i + p) * BYTES, panel[p] + (size_t)block * BYTES, BYTES, m.slot + i);
}

template <int ROWS> struct tile {
    float acc[ROWS / 8][4], total[ROWS / 8][4];
};

/* -0: a first segment added to it is what it was. */
template <int ROWS> static __device__ __forceinline__ void no_segment(tile<ROWS> *x)
{
#pragma unroll
    for (int i = 0; i < ROWS / 2; i++) x->total[i / 4][i % 4] = -0.0f;
}

template <int ROWS> static __device__ __forceinline__ void end_segment(tile<ROWS> *x)
{
#pragma unroll
    for (int i = 0; i < ROWS / 2; i++) x->total[i / 4][i % 4] += x->acc[i / 4][i % 4];
}

/* panel: the two whose outputs this warp has. */
template <int TYPE, int ROWS>
static __device__ __forceinline__ void multiply_tile(const rvi_cuda_product_args &a, const uint8_t *const panel[2], int row,
                                                     int2 stages, tile<ROWS> *x, tile_memory m)
{
    typedef quants_of<TYPE> Q;
    enum { PER = Q::UNITS / 2 };
    int length = length_of(a.x.n) / Q::UNITS, n_blocks = stages.y / PER;
    size_t skip = (size_t)(stages.x / PER) * Q::BYTES;
    const uint8_t *mine[2] = {panel[0] + skip, panel[1] + skip};
    m.ring += threadIdx.x / 32 * a.slots * 2 * Q::BYTES;
    for (int i = 0; i < a.slots; i++) copy_weights<TYPE>(mine, i, n_blocks, i, m);
    supply s = supply_of<ROWS>(a, row, stages);
    begin();
    for (int i = 0; i < a.stages - 2; i++) copy_stage<ROWS>(&s, m);
    no_segment(x);
    int stage = 0, before = -1, slot = 0; /* before: the stage that the tensor cores may still read */
    uint32_t stage_turn = 0, slot_turn = 0;
#pragma unroll 1
    for (int done = 0; done < n_blocks; done += length) {
#pragma unroll 1
        for (int k = done; k < min(done + length, n_blocks); k++) {
            const uint8_t *w = m.ring + slot * 2 * Q::BYTES;
            wait_for(m.slot + slot, slot_turn);
            piece p[2];
#pragma unroll
            for (int i = 0; i < PER; i++) {
                wait_for(m.stage + stage, stage_turn);
                between_stages();
                copy_stage<ROWS>(&s, m);
                __syncwarp(); /* a lane may have copied alone, and the steps below want all of them */
                const uint8_t *acts = m.acts + stage * ROWS * 128;
#pragma unroll
                for (int u = 0; u < 2; u++) {
                    int unit = i * 2 + u;
                    uint32_t h[2][4];
                    for (int j = 0; j < 2; j++) {
                        load_piece<TYPE>(w + j * Q::BYTES, unit, &p[j]);
                        weights_of<TYPE>(p[j], unit, h[j]);
                    }
                    group_begin();
                    group_step<ROWS>(x->acc, h[0][0], h[1][0], h[0][1], h[1][1], acts, u * 2, k > done || unit > 0);
                    group_step<ROWS>(x->acc, h[0][2], h[1][2], h[0][3], h[1][3], acts, u * 2 + 1, true);
                    group_end();
                    group_wait<1>();
                    if (u == 0 && before >= 0 && threadIdx.x % 32 == 0) done_with(m.free + before);
                }
                before = stage;
                if (++stage == a.stages) stage = 0, stage_turn ^= 1;
            }
            __syncwarp();
            copy_weights<TYPE>(mine, k + a.slots, n_blocks, slot, m);
            if (++slot == a.slots) slot = 0, slot_turn ^= 1;
        }
        group_wait<0>();
        end_segment(x);
    }
}

/* Results of segment s, where these wait to be added. */
static __device__ float *segment_at(const rvi_cuda_product_args &a, int s, int row, int part, int n_outs)
{
    return as<float>(a.parts) + (((size_t)s * a.n_rows + row) * (is_gated(a) ? 2 : 1) + part) * n_outs;
}

static __device__ __forceinline__ int all_outs(const rvi_cuda_product_args &a)
{
    int n = a.part[0].n_out;
    for (int i = 1; i < a.n_parts && !is_gated(a); i++) n += a.part[i].n_out;
    return n;
}

/* The results of a tile, [rows][128 outputs] in shared memory. A thread has one output of every so many rows, and asks
 * for what it adds to before it needs it. */
static __device__ __forceinline__ void put_results(const rvi_cuda_product_args &a, const float *results, int row, int n_rows, int tile, int part)
{
    enum { LINE = RVI_CUDA_TILE_LINE, AT_ONCE = 8 };
    int gated = is_gated(a), width = gated ? 64 : 128, k = threadIdx.x % width, o = tile * width + k, step = RVI_CUDA_THREADS / width;
    const rvi_cuda_panels &p = a.part[part];
    if (o >= p.n_out) return;
    float bias = p.bias ? as<const float>(p.bias)[o] : NO_BIAS;
    float bias2 = gated && a.part[1].bias ? as<const float>(a.part[1].bias)[o] : NO_BIAS;
    const float *factor = factors(a) + row;
    float *out = as<float>(p.out) + (size_t)row * p.stride + o;
#pragma unroll 1
    for (int r = threadIdx.x / width; r < n_rows; r += AT_ONCE * step) {
        float v[AT_ONCE], v2[AT_ONCE], old[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            int at = min(r + i * step, n_rows - 1);
            float f = factor[at];
            old[i] = a.finish == RVI_CUDA_ADD ? out[(size_t)at * p.stride] : 0.0f;
            v[i] = results[at * LINE + k] * f;
            v2[i] = gated ? results[at * LINE + 64 + k] * f : 0.0f;
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            if (r + i * step >= n_rows) break;
            out[(size_t)(r + i * step) * p.stride] = finished(a.finish, v[i] + bias, v2[i] + bias2, old[i]);
        }
    }
}

/* A warp's results, [rows][128 outputs], into shared memory: neighbouring threads get neighbouring outputs. */
template <int ROWS>
static __device__ __forceinline__ void stage_results(const rvi_cuda_panels &p, int first, const tile<ROWS> &x, float *results)
{
    int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    float scale[2] = {panel_factor(p, first * OUTS), panel_factor(p, (first + 1) * OUTS)};
#pragma unroll
    for (int i = 0; i < ROWS / 2; i++)
        results[(i / 4 * 8 + 2 * t + i % 2) * RVI_CUDA_TILE_LINE + warp * 16 + i % 4 / 2 * 8 + g] =
            x.total[i / 4][i % 4] * scale[i % 4 / 2];
}

/* Results of a segment that wait to be added. */
static __device__ __forceinline__ void put_segment(const rvi_cuda_product_args &a, const float *results, int row, int n_rows, int tile, int part)
{
    int gated = is_gated(a), k = threadIdx.x % 128, o = gated ? tile * 64 + k % 64 : tile * 128 + k, before = 0;
    for (int j = 0; j < part && !gated; j++) before += a.part[j].n_out;
    if (o >= a.part[part].n_out) return;
    float *to = segment_at(a, blockIdx.z, row, gated ? k / 64 : 0, all_outs(a)) + before + o;
    size_t next = (size_t)all_outs(a) * (gated ? 2 : 1);
#pragma unroll 4
    for (int r = threadIdx.x / 128; r < n_rows; r += RVI_CUDA_THREADS / 128) to[r * next] = results[r * RVI_CUDA_TILE_LINE + k];
}

/* Grid: rows / ROWS, tiles of outputs, segments or 1. */
template <int ROWS> static __device__ __forceinline__ void tiles_product(const rvi_cuda_product_args &a)
{
    DYNAMIC_SHARED(shared);
    __shared__ uint64_t stage_arrived[STAGES], stage_free[STAGES], slot_arrived[WARPS_OF_BLOCK][SLOTS];
    int gated = is_gated(a), warp = threadIdx.x / 32;
    int row = blockIdx.x * ROWS, at = blockIdx.y, part = gated ? warp / 4 : part_of(a, &at, 16);
    const rvi_cuda_panels &p = a.part[part];
    const uint8_t *panel[2];
    int first = gated ? at * 8 + warp % 4 * 2 : at * 16 + warp * 2;
    for (int i = 0; i < 2; i++) panel[i] = panel_at(p, first + i);
    tile_memory m = {shared, shared + a.stages * ROWS * 128, stage_arrived, slot_arrived[warp], stage_free};
    if (threadIdx.x < STAGES) expect_one(m.stage + threadIdx.x), expect_warps(m.free + threadIdx.x, WARPS_OF_BLOCK);
    if (threadIdx.x % 32 < SLOTS) expect_one(m.slot + threadIdx.x % 32, 2);
    expecting();
    __syncthreads();
    int2 stages = stages_of(a, gridDim.z > 1 ? blockIdx.z : 0, gridDim.z > 1 ? blockIdx.z + 1 : a.segments);
    tile<ROWS> x;
    switch (p.type) {
#define X(name, bits, offset, scales, d_units, has_m)                                                                  \
    case name: multiply_tile<name, ROWS>(a, panel, row, stages, &x, m); break;
        RVI_CUDA_QUANTS(X)
#undef X
    default: multiply_tile<F16, ROWS>(a, panel, row, stages, &x, m);
    }
    __syncthreads();
    stage_results(p, first, x, (float *)shared);
    __syncthreads();
    int n_rows = min(ROWS, a.n_rows - row);
    if (gridDim.z > 1)
        put_segment(a, (float *)shared, row, n_rows, at, part);
    else
        put_results(a, (float *)shared, row, n_rows, at, gated ? 0 : part);
}

KERNEL __launch_bounds__(RVI_CUDA_THREADS, 2) product_tiles_32(rvi_cuda_product_args a)
{
    tiles_product<32>(a);
}

KERNEL __launch_bounds__(RVI_CUDA_THREADS, 2) product_tiles_64(rvi_cuda_product_args a)
{
    tiles_product<64>(a);
}

KERNEL __launch_bounds__(RVI_CUDA_THREADS, 1) product_tiles_128(rvi_cuda_product_args a)
{
    tiles_product<128>(a);
}

/* What a lane adds at a time: N neighbouring outputs, all segments asked for at once. */
template <int N> struct outs {
    float v[N];
};

template <int N> static __device__ __forceinline__ outs<N> outs_at(const float *from)
{
    outs<N> x;
    if constexpr (N == 4) {
        float4 v = *(const float4 *)from;
        x.v[0] = v.x, x.v[1] = v.y, x.v[2] = v.z, x.v[3] = v.w;
    } else {
        x.v[0] = *from;
    }
    return x;
}

template <int N> static __device__ __forceinline__ outs<N> added_segments(const rvi_cuda_product_args &a, const float *first, size_t next)
{
    outs<N> of[SEGMENTS], sum;
#pragma unroll
    for (int s = 0; s < SEGMENTS; s++)
        if (s < a.segments) of[s] = outs_at<N>(first + s * next);
    sum = of[0];
#pragma unroll
    for (int s = 1; s < SEGMENTS; s++)
        for (int j = 0; j < N && s < a.segments; j++) sum.v[j] += of[s].v[j];
    return sum;
}

template <int N, bool GATED> static __device__ __forceinline__ void add_up(const rvi_cuda_product_args &a)
{
    int row = blockIdx.x, n = all_outs(a);
    size_t next = (size_t)a.n_rows * n * (1 + GATED);
    for (int i = N * (blockIdx.y * blockDim.x + threadIdx.x); i < n; i += N * gridDim.y * blockDim.x) {
        int part = 0, o = i;
        for (; !GATED && part + 1 < a.n_parts && o >= a.part[part].n_out; part++) o -= a.part[part].n_out;
        const rvi_cuda_panels &p = a.part[part];
        float *to = as<float>(p.out) + (size_t)row * p.stride + o, f = factors(a)[row];
        outs<N> old = {}, bias, bias2, v2 = {};
        for (int j = 0; j < N; j++) bias.v[j] = bias2.v[j] = NO_BIAS;
        if (a.finish == RVI_CUDA_ADD) old = outs_at<N>(to);
        if (p.bias) bias = outs_at<N>(as<const float>(p.bias) + o);
        if (GATED && a.part[1].bias) bias2 = outs_at<N>(as<const float>(a.part[1].bias) + o);
        outs<N> v = added_segments<N>(a, segment_at(a, 0, row, 0, n) + i, next);
        if (GATED) v2 = added_segments<N>(a, segment_at(a, 0, row, 1, n) + i, next);
        for (int j = 0; j < N; j++) v.v[j] = finished(a.finish, v.v[j] * f + bias.v[j], v2.v[j] * f + bias2.v[j], old.v[j]);
        if constexpr (N == 4)
            *(float4 *)to = {v.v[0], v.v[1], v.v[2], v.v[3]};
        else
            *to = v.v[0];
    }
}

/* Do fours of outputs lie at multiples of 16 bytes, in every part? */
static __device__ __forceinline__ bool in_fours(const rvi_cuda_product_args &a)
{
    uint64_t all = 0;
    for (int i = 0; i < a.n_parts; i++) all |= a.part[i].out | a.part[i].bias | (uint64_t)(uint32_t)(a.part[i].n_out | a.part[i].stride) * 4;
    return all % 16 == 0;
}

/* Grid: rows, blocks of outputs. */
KERNEL add_segments(rvi_cuda_product_args a)
{
    begin();
    if (is_gated(a))
        in_fours(a) ? add_up<4, true>(a) : add_up<1, true>(a);
    else
        in_fours(a) ? add_up<4, false>(a) : add_up<1, false>(a);
}
