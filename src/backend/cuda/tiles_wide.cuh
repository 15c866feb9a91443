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

/* What the warp's results are finished with is going to be needed: of its two panels their factors, of its 16 outputs
 * what they are added to. The tensor cores wait for a group that asks for it only then. */
template <int ROWS> static __device__ __forceinline__ void fetch_ending(const rvi_cuda_product_args &a, const wide_tile &t, int panel)
{
    int lane = threadIdx.x % 32, gated = is_gated(a);
    const rvi_cuda_panels &p = a.part[t.part], &q = a.part[gated ? lane % 2 : t.part];
    if (lane < 2) fetch(panel_at(q, gated ? panel : panel + lane) + q.panel_bytes - 16);
    if (a.finish != RVI_CUDA_ADD) return;
    const float *to = as<const float>(p.out) + min(panel * OUTS, p.n_out - 1);
    for (int r = t.row + lane; r < min(t.row + ROWS, a.n_rows); r += 32) fetch(to + (size_t)r * p.stride);
}

template <int TYPE, int ROWS>
static __device__ __forceinline__ void multiply_wide(const rvi_cuda_product_args &a, const wide_tile &t, int panel, int warp, wide_ring *r,
                                                     tile<ROWS> *x)
{
    typedef wide_block<TYPE, ROWS> B;
    int length = length_of(a.x.n) / B::UNITS, n_blocks = wide_stages(a).y / B::STAGES;
#pragma unroll 1
    for (int done = 0; done < n_blocks; done += length) {
        if (done + length >= n_blocks) fetch_ending<ROWS>(a, t, panel);
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
                    if (u == 0 && before >= 0) done_with(r->free + before);
                }
                before = r->stage;
                next_stage<ROWS>(r);
            }
            next_slot<TYPE, ROWS>(r);
        }
        group_wait<0>();
        done_with(r->free + before);
        end_segment(x);
    }
}

/* What a warp's results are finished with: outputs o .. o + 15 of a part; gated: o .. o + 7 of both. */
struct wide_ending {
    float *to; /* output 0 of row 0 */
    int stride, n_out, o, row;
    bool adds, waits, even; /* waits: results of a segment; even: fours of outputs lie at multiples of 16 bytes */
    float scale[2];         /* of the panel of the lane's outputs; gated: of both */
};

static __device__ __forceinline__ wide_ending wide_ending_of(const rvi_cuda_product_args &a, const wide_tile &t, int panel)
{
    const rvi_cuda_panels &p = a.part[t.part];
    bool gated = is_gated(a), waits = gridDim.z > 1;
    wide_ending e = {as<float>(p.out), p.stride, p.n_out, panel * OUTS, t.row, a.finish == RVI_CUDA_ADD && !waits, waits, false};
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

static __device__ __forceinline__ float4 old_four(const wide_ending &e, int row, int o)
{
    const float *at = e.to + (size_t)row * e.stride + o;
    if (e.even) return *(const float4 *)at;
    return {o < e.n_out ? at[0] : 0.0f, o + 1 < e.n_out ? at[1] : 0.0f, o + 2 < e.n_out ? at[2] : 0.0f,
            o + 3 < e.n_out ? at[3] : 0.0f};
}

/* Gated: a lane has both parts of output g of rows 2 t, 2 t + 1 of each 8. It asks for all factors at once, and finishes
 * its results without a branch between them, or each would wait for the one before. */
template <int FINISH, int ROWS>
static __device__ __forceinline__ void put_gated(const rvi_cuda_product_args &a, const wide_ending &e, const tile<ROWS> &x)
{
    int o = e.o + threadIdx.x % 32 / 4, row = e.row + threadIdx.x % 4 * 2, left = a.n_rows - row;
    if (o >= e.n_out) return;
    float bias = a.part[0].bias ? as<const float>(a.part[0].bias)[o] : NO_BIAS;
    float bias2 = a.part[1].bias ? as<const float>(a.part[1].bias)[o] : NO_BIAS;
    const float *factor = factors(a) + row;
    float f[ROWS / 8][2], *to = e.to + (size_t)row * e.stride + o;
#pragma unroll
    for (int i = 0; i < ROWS / 4; i++) f[i / 2][i % 2] = i / 2 * 8 + i % 2 < left ? factor[i / 2 * 8 + i % 2] : 0.0f;
#pragma unroll
    for (int i = 0; i < ROWS / 8; i++, to += 8 * e.stride)
#pragma unroll
        for (int k = 0; k < 2; k++) {
            float v = x.total[i][k] * e.scale[0] * f[i][k] + bias, v2 = x.total[i][2 + k] * e.scale[1] * f[i][k] + bias2;
            if (8 * i + k < left) to[k * e.stride] = finished(FINISH, v, v2, 0.0f);
        }
}

/* What PUT_ROWS rows are finished with, of those that a lane takes: every 8th. */
struct wide_rows {
    float factor[PUT_ROWS / 8];
    float4 old[PUT_ROWS / 8];
};

static __device__ __forceinline__ wide_rows wide_rows_at(const rvi_cuda_product_args &a, const wide_ending &e, int row, int o)
{
    wide_rows w = {};
#pragma unroll
    for (int i = 0; i < PUT_ROWS / 8; i++) {
        int at = min(row + 8 * i, a.n_rows - 1);
        w.factor[i] = e.waits ? 1.0f : factors(a)[at];
        if (e.adds && o < e.n_out) w.old[i] = old_four(e, at, o);
    }
    return w;
}

/* Through shared memory, PUT_ROWS rows of the warp's 16 outputs at a time, four lanes a row: results that a lane has lie
 * apart. What the next ones are finished with is on its way meanwhile. */
template <int ROWS>
static __device__ __forceinline__ void put_plain(const rvi_cuda_product_args &a, const rvi_cuda_panels &p, const wide_ending &e,
                                                 const tile<ROWS> &x, float *lines)
{
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4, o = e.o + 4 * t;
    float4 bias = {NO_BIAS, NO_BIAS, NO_BIAS, NO_BIAS};
    if (!e.waits) bias = bias_at(p, o);
    wide_rows next = wide_rows_at(a, e, e.row + g, o);
#pragma unroll 1
    for (int pass = 0; pass < ROWS / PUT_ROWS; pass++) {
        int row = e.row + pass * PUT_ROWS + g;
        wide_rows with = next;
        if (row - g >= a.n_rows) break;
        if (pass + 1 < ROWS / PUT_ROWS) next = wide_rows_at(a, e, row + PUT_ROWS, o);
#pragma unroll
        for (int q = 0; q < ROWS / PUT_ROWS; q++)
            if (q == pass)
#pragma unroll
                for (int i = 0; i < PUT_ROWS / 2; i++)
                    lines[(i / 4 * 8 + 2 * t + i % 2) * PUT_LINE + i % 4 / 2 * 8 + g] = x.total[q * (PUT_ROWS / 8) + i / 4][i % 4];
        __syncwarp();
#pragma unroll
        for (int i = 0; i < PUT_ROWS / 8; i++) {
            float4 v = four_results(lines + (8 * i + g) * PUT_LINE + 4 * t, e.scale[0], with.factor[i], bias), old = with.old[i];
            if (e.adds) v = {old.x + v.x, old.y + v.y, old.z + v.z, old.w + v.w};
            if (row + 8 * i < a.n_rows && o < e.n_out) put_four(e, row + 8 * i, o, v);
        }
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
    no_segment(&x);
    multiply_wide<TYPE, ROWS>(a, t, panel, warp, r, &x);
    wide_ending e = wide_ending_of(a, t, panel);
    if (a.finish == RVI_CUDA_SILU)
        put_gated<RVI_CUDA_SILU>(a, e, x);
    else if (gated)
        put_gated<RVI_CUDA_GELU>(a, e, x);
    else
        put_plain(a, p, e, x, lines);
    __syncwarp(); /* lanes past the last output end early, and the next tile's products want all of them */
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
    if (threadIdx.x < AHEAD) expect_warps(arrived + threadIdx.x, BRINGERS), expect_warps(freed + threadIdx.x, RVI_CUDA_THREADS);
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
WIDE(F16_128, F16, 128)
#undef WIDE
