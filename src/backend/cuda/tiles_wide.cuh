/* tiles_wide.cuh - products of very many rows, by the law of products.cuh: a block for each processor stays there and
 * takes tiles of 128 outputs and ROWS rows in turns. All parts have one type.
 *
 * Four warps bring activations and weights, AHEAD stages ahead, also of the next tile (one alone would not start
 * copies fast enough). Two groups of 4 warps have 64 outputs each; one may write its results while the other still
 * multiplies. A stage is two units of all rows; a block of weights of all 16 panels comes with its first stage, and its
 * place is free when its last stage is. A warp has two panels; gated: the same one of both parts, so that a lane has
 * both of what makes a result. */

enum { WIDE_PANELS = RVI_CUDA_TILE / OUTS, BRINGERS = 4 };
enum { PUT_ROWS = RVI_CUDA_PUT_ROWS, PUT_LINE = RVI_CUDA_PUT_LINE };

/* Blocks as they come: those of F16 are cut in two where stages take much room. SLOTS: places for them. */
template <int TYPE, int ROWS> struct wide_block {
    typedef quants_of<TYPE> Q;
    enum { UNITS = RVI_CUDA_TILE_UNITS(Q::UNITS, Q::BITS, ROWS), STAGES = UNITS / 2, BYTES = Q::BYTES * UNITS / Q::UNITS };
    enum { AHEAD = RVI_CUDA_TILE_AHEAD(ROWS), SLOTS = RVI_CUDA_TILE_PLACES(AHEAD, STAGES) };
};

struct wide_ring {
    uint8_t *acts, *weights;
    uint64_t *arrived, *free; /* of each stage */
    int stage, slot;          /* the next ones */
    uint32_t turn;            /* of the stage */
};

template <int ROWS> static __device__ __forceinline__ void next_stage(wide_ring *r)
{
    if (++r->stage == RVI_CUDA_TILE_AHEAD(ROWS)) r->stage = 0, r->turn ^= 1;
}

template <int TYPE, int ROWS> static __device__ __forceinline__ void next_slot(wide_ring *r)
{
    if (++r->slot == wide_block<TYPE, ROWS>::SLOTS) r->slot = 0;
}

/* A tile of all of them: rows first, so that those at work at a time share weights. */
struct wide_tile {
    int row, at, part; /* at: the tile of that part */
};

template <int ROWS> static __device__ __forceinline__ wide_tile wide_tile_of(const rvi_cuda_product_args &a, int i)
{
    uint32_t down = (uint32_t)(a.n_rows + ROWS - 1) / ROWS;
    wide_tile t = {(int)((uint32_t)i % down) * ROWS, (int)((uint32_t)i / down), 0};
    if (!is_gated(a)) t.part = part_of(a, &t.at, WIDE_PANELS);
    return t;
}

template <int ROWS> static __device__ __forceinline__ int n_wide_tiles(const rvi_cuda_product_args &a)
{
    int n = 0, gated = is_gated(a), panels = gated ? WIDE_PANELS / 2 : WIDE_PANELS;
    for (int i = 0; i < (gated ? 1 : a.n_parts); i++) n += (panels_of(a.part[i]) + panels - 1) / panels;
    return n * ((a.n_rows + ROWS - 1) / ROWS);
}

/* ---- the warps that bring: a quarter of the panels each, the last one the activations too ---- */

/* Of the block's segment, or all. */
static __device__ __forceinline__ int2 wide_stages(const rvi_cuda_product_args &a)
{
    return stages_of(a, gridDim.z > 1 ? blockIdx.z : 0, gridDim.z > 1 ? blockIdx.z + 1 : a.segments);
}

template <int TYPE, int ROWS>
static __device__ __forceinline__ void bring_tile(const rvi_cuda_product_args &a, const wide_tile &t, int warp, wide_ring *r)
{
    enum { MINE = WIDE_PANELS / BRINGERS };
    typedef wide_block<TYPE, ROWS> B;
    int lane = threadIdx.x % 32, gated = is_gated(a), panel = warp * MINE + lane % MINE;
    const rvi_cuda_panels &p = a.part[gated ? panel % 2 : t.part];
    const uint8_t *w = panel_at(p, gated ? t.at * (WIDE_PANELS / 2) + panel / 2 : t.at * WIDE_PANELS + panel);
    int2 stages = wide_stages(a);
    const uint8_t *x = as<const uint8_t>(a.acts) + ((size_t)stages.x * a.n_rows + t.row) * 128;
    w += (size_t)(stages.x / B::STAGES) * B::BYTES;
    int of_rows = warp == BRINGERS - 1 ? min((int)ROWS, a.n_rows - t.row) * 128 : 0;
#pragma unroll 1
    for (int k = 0; k < stages.y; k++) {
        bool first = k % B::STAGES == 0;
        wait_for_warps(r->free + r->stage, r->turn ^ 1);
        if (lane == 0) expect(r->arrived + r->stage, of_rows + (first ? MINE * B::BYTES : 0));
        __syncwarp();
        if (of_rows && lane == MINE) copy_bulk(r->acts + r->stage * ROWS * 128, x, of_rows, r->arrived + r->stage);
        if (first) {
            if (lane < MINE) copy_bulk(r->weights + (r->slot * WIDE_PANELS + panel) * B::BYTES, w, B::BYTES, r->arrived + r->stage);
            w += B::BYTES;
            next_slot<TYPE, ROWS>(r);
        }
        __syncwarp();
        between_stages();
        x += (size_t)a.n_rows * 128;
        next_stage<ROWS>(r);
    }
}

/* ---- the groups ---- */

template <int TYPE, int ROWS>
static __device__ __forceinline__ void multiply_wide(const rvi_cuda_product_args &a, int warp, wide_ring *r, tile<ROWS> *x)
{
    typedef wide_block<TYPE, ROWS> B;
    int length = length_of(a.x.n) / B::UNITS, n_blocks = wide_stages(a).y / B::STAGES, lane = threadIdx.x % 32;
#pragma unroll 1
    for (int done = 0; done < n_blocks; done += length) {
        int before = -1; /* the stage that the tensor cores may still read */
#pragma unroll 1
        for (int k = done; k < min(done + length, n_blocks); k++) {
            const uint8_t *w = r->weights + (r->slot * WIDE_PANELS + warp * 2) * B::BYTES;
            piece p[2];
#pragma unroll
            for (int i = 0; i < B::STAGES; i++) {
                wait_for(r->arrived + r->stage, r->turn);
                between_stages();
                const uint8_t *acts = r->acts + r->stage * ROWS * 128;
#pragma unroll
                for (int u = 0; u < 2; u++) {
                    int unit = i * 2 + u;
                    uint32_t h[2][4];
                    for (int j = 0; j < 2; j++) {
                        load_piece<TYPE>(w + j * B::BYTES, unit, &p[j]);
                        weights_of<TYPE>(p[j], unit, h[j]);
                    }
                    group_begin();
                    group_step<ROWS>(x->acc, h[0][0], h[1][0], h[0][1], h[1][1], acts, u * 2, k > done || unit > 0);
                    group_step<ROWS>(x->acc, h[0][2], h[1][2], h[0][3], h[1][3], acts, u * 2 + 1, true);
                    group_end();
                    group_wait<1>();
                    if (u == 0 && before >= 0 && lane == 0) done_with(r->free + before);
                }
                before = r->stage;
                next_stage<ROWS>(r);
            }
            next_slot<TYPE, ROWS>(r);
        }
        group_wait<0>();
        if (lane == 0) done_with(r->free + before);
        end_segment<ROWS>(x, done == 0);
    }
}

/* What a warp's results are finished with: outputs o .. o + 15 of a part; gated: o .. o + 7 of both. */
struct wide_ending {
    float *to; /* output 0 of row 0 */
    int stride, n_out, o, row;
    bool gated, adds, waits, even; /* waits: results of a segment; even: fours of outputs lie at multiples of 16 bytes */
    float scale[2];                /* of the panel of the lane's outputs; gated: of both */
};

static __device__ __forceinline__ wide_ending wide_ending_of(const rvi_cuda_product_args &a, const wide_tile &t, int panel)
{
    const rvi_cuda_panels &p = a.part[t.part];
    bool gated = is_gated(a), waits = gridDim.z > 1;
    wide_ending e = {as<float>(p.out), p.stride, p.n_out, panel * OUTS, t.row, gated, a.finish == RVI_CUDA_ADD && !waits, waits, false};
    if (waits) {
        e.to = segment_at(a, blockIdx.z, 0, 0, all_outs(a)), e.stride = all_outs(a);
        for (int i = 0; i < t.part; i++) e.to += a.part[i].n_out;
    }
    e.even = ((uint64_t)e.to | (uint64_t)(uint32_t)e.stride * 4 | (uint64_t)(uint32_t)p.n_out * 4) % 16 == 0;
    e.scale[0] = panel_factor(p, (gated ? panel : panel + threadIdx.x % 4 / 2) * OUTS);
    e.scale[1] = gated ? panel_factor(a.part[1], panel * OUTS) : 1.0f;
    return e;
}

static __device__ __forceinline__ float4 bias_at(const rvi_cuda_panels &p, int o)
{
    float4 v = {NO_BIAS, NO_BIAS, NO_BIAS, NO_BIAS};
    const float *b = as<const float>(p.bias) + o;
    if (p.bias)
        v = {o < p.n_out ? b[0] : 0.0f, o + 1 < p.n_out ? b[1] : 0.0f, o + 2 < p.n_out ? b[2] : 0.0f, o + 3 < p.n_out ? b[3] : 0.0f};
    return v;
}

static __device__ __forceinline__ float4 four_results(const float *line, float s, float f, float4 b)
{
    float4 v = *(const float4 *)line;
    return {v.x * s * f + b.x, v.y * s * f + b.y, v.z * s * f + b.z, v.w * s * f + b.w};
}

/* Outputs o .. o + 3 of a row. */
static __device__ __forceinline__ void put_four(const wide_ending &e, int row, int o, float4 v)
{
    float *to = e.to + (size_t)row * e.stride + o;
    if (e.even)
        *(float4 *)to = v;
    else {
        if (o < e.n_out) to[0] = v.x;
        if (o + 1 < e.n_out) to[1] = v.y;
        if (o + 2 < e.n_out) to[2] = v.z;
        if (o + 3 < e.n_out) to[3] = v.w;
    }
}

/* PUT_ROWS rows, which lie in lines; gated: two lanes a row, else four. */
static __device__ __forceinline__ void put_gated(const rvi_cuda_product_args &a, const wide_ending &e, int row, const float *lines)
{
    int lane = threadIdx.x % 32, c = lane % 2 * 4, o = e.o + c;
    float4 bias = bias_at(a.part[0], o), bias2 = bias_at(a.part[1], o);
#pragma unroll 1
    for (int r = lane / 2; r < PUT_ROWS && row + r < a.n_rows && o < e.n_out; r += 16) {
        float f = factors(a)[row + r];
        float4 v = four_results(lines + r * PUT_LINE + c, e.scale[0], f, bias);
        float4 w = four_results(lines + r * PUT_LINE + 8 + c, e.scale[1], f, bias2);
        put_four(e, row + r, o,
                 {finished(a.finish, v.x, w.x, 0.0f), finished(a.finish, v.y, w.y, 0.0f), finished(a.finish, v.z, w.z, 0.0f),
                  finished(a.finish, v.w, w.w, 0.0f)});
    }
}

static __device__ __forceinline__ float4 old_four(const wide_ending &e, int row, int o)
{
    const float *at = e.to + (size_t)row * e.stride + o;
    if (e.even) return *(const float4 *)at;
    return {o < e.n_out ? at[0] : 0.0f, o + 1 < e.n_out ? at[1] : 0.0f, o + 2 < e.n_out ? at[2] : 0.0f,
            o + 3 < e.n_out ? at[3] : 0.0f};
}

static __device__ __forceinline__ void put_plain(const rvi_cuda_product_args &a, const rvi_cuda_panels &p, const wide_ending &e, int row,
                                                 const float *lines)
{
    int lane = threadIdx.x % 32, c = lane % 4 * 4, o = e.o + c, first = lane / 4;
    float4 bias = {NO_BIAS, NO_BIAS, NO_BIAS, NO_BIAS}, old[PUT_ROWS / 8];
    if (o >= e.n_out) return;
    if (!e.waits) bias = bias_at(p, o);
#pragma unroll
    for (int i = 0; i < PUT_ROWS / 8 && e.adds; i++) old[i] = old_four(e, min(row + first + 8 * i, a.n_rows - 1), o);
#pragma unroll
    for (int i = 0; i < PUT_ROWS / 8; i++) {
        int r = first + 8 * i;
        if (row + r >= a.n_rows) break;
        float4 v = four_results(lines + r * PUT_LINE + c, e.scale[0], e.waits ? 1.0f : factors(a)[row + r], bias);
        if (e.adds) v = {old[i].x + v.x, old[i].y + v.y, old[i].z + v.z, old[i].w + v.w};
        put_four(e, row + r, o, v);
    }
}

/* Through shared memory, PUT_ROWS rows of the warp's 16 outputs at a time: results that a lane has lie apart. */
template <int ROWS>
static __device__ __forceinline__ void put_wide_tile(const rvi_cuda_product_args &a, const rvi_cuda_panels &p, const wide_ending &e,
                                                     const tile<ROWS> &x, float *lines)
{
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll 1
    for (int pass = 0; pass < ROWS / PUT_ROWS; pass++) {
        int row = e.row + pass * PUT_ROWS;
        if (row >= a.n_rows) break;
#pragma unroll
        for (int q = 0; q < ROWS / PUT_ROWS; q++)
            if (q == pass)
#pragma unroll
                for (int i = 0; i < PUT_ROWS / 2; i++)
                    lines[(i / 4 * 8 + 2 * t + i % 2) * PUT_LINE + i % 4 / 2 * 8 + g] = x.total[q * (PUT_ROWS / 8) + i / 4][i % 4];
        __syncwarp();
        if (e.gated)
            put_gated(a, e, row, lines);
        else
            put_plain(a, p, e, row, lines);
        __syncwarp();
    }
}

template <int TYPE, int ROWS>
static __device__ __forceinline__ void take_tile(const rvi_cuda_product_args &a, const wide_tile &t, int warp, wide_ring *r, float *lines)
{
    const rvi_cuda_panels &p = a.part[t.part];
    int gated = is_gated(a), panel = gated ? t.at * (WIDE_PANELS / 2) + warp : t.at * WIDE_PANELS + warp * 2;
    tile<ROWS> x;
#pragma unroll
    for (int i = 0; i < ROWS / 2; i++) x.acc[i / 4][i % 4] = 0; /* else they are kept from tile to tile */
    multiply_wide<TYPE, ROWS>(a, warp, r, &x);
    wide_ending e = wide_ending_of(a, t, panel);
    put_wide_tile(a, p, e, x, lines);
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900 && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#error "code for compute capability 9.0 needs its groups of warps: compile for sm_90a"
#endif
/* Devices without groups do not start these kernels: nothing is compiled for them. */
#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
template <int TYPE, int ROWS> static __device__ __forceinline__ void wide_product(const rvi_cuda_product_args &, uint8_t *)
{
}
#else
template <int TYPE, int ROWS> static __device__ __forceinline__ void wide_product(const rvi_cuda_product_args &a, uint8_t *shared)
{
    enum { AHEAD = RVI_CUDA_TILE_AHEAD(ROWS) };
    __shared__ uint64_t arrived[AHEAD], freed[AHEAD];
    if (threadIdx.x < AHEAD) expect_warps(arrived + threadIdx.x, BRINGERS), expect_warps(freed + threadIdx.x, WARPS_OF_BLOCK);
    expecting();
    __syncthreads();
    int n = n_wide_tiles<ROWS>(a), warp = threadIdx.x / 32;
    if (warp < WARPS_OF_BLOCK || warp == WARPS_OF_BLOCK + BRINGERS - 1) begin(); /* the others bring weights only */
    float *lines = (float *)(shared + AHEAD * ROWS * 128);
    wide_ring r = {shared, (uint8_t *)(lines + WARPS_OF_BLOCK * PUT_ROWS * PUT_LINE), arrived, freed, 0, 0, 0};
    if (warp >= WARPS_OF_BLOCK) {
        leave_registers<24>();
#pragma unroll 1
        for (int i = blockIdx.x; i < n; i += gridDim.x) bring_tile<TYPE, ROWS>(a, wide_tile_of<ROWS>(a, i), warp - WARPS_OF_BLOCK, &r);
    } else {
        take_registers<240>();
        lines += warp * PUT_ROWS * PUT_LINE;
#pragma unroll 1
        for (int i = blockIdx.x; i < n; i += gridDim.x) take_tile<TYPE, ROWS>(a, wide_tile_of<ROWS>(a, i), warp, &r, lines);
    }
}

#endif

/* Grid: at most as many blocks as there are tiles, 1, segments (which are added by add_segments; not gated) or 1. */
#define WIDE(name, type, rows)                                                                                         \
    KERNEL __launch_bounds__(RVI_CUDA_TILE_THREADS, 1) product_wide_##name(rvi_cuda_product_args a)                    \
    {                                                                                                                  \
        DYNAMIC_SHARED(shared_tiles);                                                                                  \
        wide_product<type, rows>(a, shared_tiles);                                                                     \
    }
#define X(name, bits, offset, scales, d_units, has_m) WIDE(name, name, RVI_CUDA_TILE_ROWS)
RVI_CUDA_QUANTS(X)
#undef X
WIDE(F16, F16, RVI_CUDA_TILE_ROWS)
WIDE(F16_64, F16, 64)
WIDE(F16_32, F16, 32)
#undef WIDE
