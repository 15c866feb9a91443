/* heads.cuh - queries, keys, values and attention of one row by clusters of blocks: each has a head of keys and the heads
 * of queries that share it.
 *
 * The blocks of a cluster have tiles of the product, as in short.cuh, and send results to the shared memory of those that
 * attend: the first ones, each with a chunk of keys, as in attention.cuh. The chunks' parts are sent to the first block,
 * which merges them. All keys that the row sees are of one run. Older keys, weights and what else no kernel in front
 * writes is asked for before `begin`. Order and bits are those of the two kernels that this one stands for, product_row
 * and attention_row. Heads of queries that share keys may be split over clusters, which then have the same keys and
 * values, with the same bits. Grid: blocks of a cluster, heads of keys and their splits. */

/* ---- shared memory of other blocks of the cluster ---- */

#if __CUDA_ARCH__ >= 900
static __device__ __forceinline__ uint32_t shared_of(const void *mine, int block)
{
    uint32_t at;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at) : "r"(shared_at(mine)), "r"(block));
    return at;
}

/* To where `to` and `place` are in another block: the place counts the bytes, see expect. */
static __device__ __forceinline__ void send4(const float *to, float4 v, uint64_t *place, int block)
{
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(
                     shared_of(to, block)),
                 "r"(__float_as_uint(v.x)), "r"(__float_as_uint(v.y)), "r"(__float_as_uint(v.z)), "r"(__float_as_uint(v.w)),
                 "r"(shared_of(place, block))
                 : "memory");
}

static __device__ __forceinline__ void send2(const float *to, float x, float y, uint64_t *place, int block)
{
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, %2}, [%3];" ::"r"(
                     shared_of(to, block)),
                 "r"(__float_as_uint(x)), "r"(__float_as_uint(y)), "r"(shared_of(place, block))
                 : "memory");
}

/* By one thread, once, before any block sends. */
static __device__ __forceinline__ void expect_sent(uint64_t *place, int bytes)
{
    expect_one(place);
    expecting();
    expect(place, bytes);
}

/* Until all of it has come. */
static __device__ __forceinline__ void wait_for_sent(uint64_t *place)
{
    asm volatile("{.reg .pred p; again: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], 0; @!p bra again;}" ::"r"(
                     shared_at(place))
                 : "memory");
}

/* Between the two all blocks have come to the first. */
static __device__ __forceinline__ void cluster_arrive()
{
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

static __device__ __forceinline__ void cluster_wait()
{
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
#elif defined(__CUDACC__) /* never launched */
static __device__ void expect_sent(uint64_t *, int)
{
}
static __device__ void send4(const float *, float4, uint64_t *, int)
{
}
static __device__ void send2(const float *, float, float, uint64_t *, int)
{
}
static __device__ void wait_for_sent(uint64_t *)
{
}
static __device__ void cluster_arrive()
{
}
static __device__ void cluster_wait()
{
}
#endif

/* ---- what a block has ---- */

struct head_room {
    uint8_t *keys;  /* a chunk */
    uint2 *row;     /* staged */
    raw_row<128> *raw;   /* of the cluster's heads; sent */
    float *parts;   /* by chunk and head: values, maximum, sum; sent to the first block */
    uint64_t *come; /* counts raw, then parts */
};

static __device__ __forceinline__ head_room head_room_in(const rvi_cuda_product_args &p, uint8_t *shared)
{
    head_room r;
    r.keys = shared;
    r.row = (uint2 *)(shared + CHUNK_BYTES);
    r.raw = (raw_row<128> *)(shared + CHUNK_BYTES + units_of(p.x.n) * 64);
    r.come = (uint64_t *)(r.raw + 1);
    r.parts = (float *)(r.come + 2);
    return r;
}

/* The cluster's head of keys and heads of queries, `group` from `query` on, and the chunks of the row. */
struct cluster_work {
    int head, query, group, size, first, chunks;
    int2 see;
};

/* The part that the cluster's tile i is in; i becomes the tile of that part. */
static __device__ __forceinline__ int head_part(const cluster_work &c, int *i)
{
    int tiles = c.size / 16, queries = c.group * tiles;
    if (*i < queries) {
        *i += c.query * tiles;
        return 0;
    }
    int p = *i < queries + tiles ? 1 : 2;
    *i += (c.head - p + 1) * tiles - queries;
    return p;
}

static __device__ __forceinline__ void open_head(const rvi_cuda_product_args &a, const cluster_work &c, int s, int n, int end,
                                                 place *p)
{
    int tile = p->tile;
    p->left = tile < end ? n : 0;
    if (!p->left) return;
    const rvi_cuda_panels &w = a.part[head_part(c, &tile)];
    size_t from = (size_t)segment_blocks(w, a.x.n, s).x * w.block_bytes;
#pragma unroll
    for (int i = 0; i < 2; i++) p->at[i] = panel_at(w, 2 * tile + i) + from;
}

static __device__ __forceinline__ ending head_ending(const rvi_cuda_product_args &a, const cluster_work &c, int i, int o, bool is)
{
    ending e = {0, 0.0f, {NO_BIAS, NO_BIAS}, {1.0f, 1.0f}};
    if (!is) return e;
    const rvi_cuda_panels &p = a.part[head_part(c, &i)];
    o += i * 16;
    e.to = as<float>(p.out) + o;
    if (p.bias) e.bias[0] = as<const float>(p.bias)[o];
    e.factor[0] = panel_factor(p, o);
    return e;
}

/* ---- the product ---- */

/* The block takes the cluster's tiles from `first` on, as many as go together, before `end`. */
template <int TYPE>
static __device__ __forceinline__ void head_product(const rvi_cuda_product_args &a, const cluster_work &c, const head_room &r,
                                                    const rvi_cuda_cols &angles, int first, int end)
{
    typedef quants_of<TYPE> Q;
    float (*sums)[2][WARPS_OF_BLOCK][16] = row_sums();
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, segments = a.segments, together = a.together, which = 0, s = warp;
#pragma unroll 1
    for (; s >= segments; s -= segments) which++;
    int n = which < together ? min(8, units_of(a.x.n) - s * 8) / Q::UNITS : 0; /* blocks of a segment */
    place p = {first + which, 0};
    half_tile w;
    raw_tile<TYPE> raw;
    open_head(a, c, s, n, end, &p);
    if (p.left) load_tile(p.at, n, &raw);
    turn_tile(raw, &w);
    int tile = first + (int)threadIdx.x / 16, o = threadIdx.x % 16;
    ending e = head_ending(a, c, tile, o, (int)threadIdx.x < 16 * together && tile < end);
    float factor = stage_held<2, true>(a, blockIdx.x == 0 && blockIdx.y == 0, r.row);
    if ((int)threadIdx.x * 4 < angles.n) /* with the keys, by those that attend */
        copy16((uint8_t *)(r.raw->angles + threadIdx.x * 4), (const uint8_t *)(row_of(angles, 0) + threadIdx.x * 4));
    copy_commit();
    __syncthreads();
    cluster_wait();
    if (p.left) {
        float acc[4] = {};
        add_tile(w, n * Q::UNITS, (const uint4 *)r.row + s * 32 + lane % 4, acc);
        if (lane % 4 == 0) sums[0][0][warp][lane / 4] = acc[0], sums[0][0][warp][8 + lane / 4] = acc[2];
    }
    __syncthreads();
    if (warp >= (together + 1) / 2) return; /* whole warps */
    float v = 0;
    if (e.to) {
        int j0 = (int)threadIdx.x / 16 * segments;
        v = sums[0][0][j0][o];
#pragma unroll
        for (int j = 1; j < SEGMENTS; j++)
            if (j < segments) v += sums[0][0][j0 + j][o];
        v = v * factor * e.factor[0] + e.bias[0];
    }
    float4 four = {v, __shfl_xor_sync(0xffffffff, v, 1), __shfl_xor_sync(0xffffffff, v, 2),
                   __shfl_xor_sync(0xffffffff, v, 3)};
    int at = tile * 16 + o;
    if (!e.to || lane % 4) return;
    *(float4 *)e.to = four;
    /* keys and values only to the last chunk */
#pragma unroll 1
    for (int d = at < c.group * c.size ? 0 : c.chunks - 1; d < c.chunks; d++) send4(r.raw->x + at, four, r.come, d);
}

static __device__ __forceinline__ void cluster_product(const rvi_cuda_product_args &a, const cluster_work &c, const head_room &r,
                                                       const rvi_cuda_cols &angles)
{
    int rank = blockIdx.x, per_head = c.size / 16, tiles = (c.group + 2) * per_head;
    int first_tiles = c.group * per_head + a.first_tiles;
    bool second = rank >= a.first_blocks;
    int first = second ? first_tiles + (rank - a.first_blocks) * a.together : rank * a.together;
    int end = second ? tiles : first_tiles;
    switch (a.part[second ? 2 : 0].type) {
#define X(name, bits, offset, scales, d_units, has_m)                                                                  \
    case name: head_product<name>(a, c, r, angles, first, end); break;
        RVI_CUDA_QUANTS(X)
#undef X
    default: head_product<F16>(a, c, r, angles, first, end);
    }
}

/* ---- attention ---- */

static __device__ __forceinline__ void head_queries(const rvi_cuda_attention_args &a, const raw_row<128> &raw, int group,
                                                    query_line<128> *to)
{
    uint32_t half = a.kv.head_size / 2, total = group * half;
    float scale = query_scale(a);
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < total; i += RVI_CUDA_THREADS) {
        element_pair x = pair_of(a, raw.angles, raw.x + i / half * a.kv.head_size, i % half);
        to[i / half].x[x.at] = to_half(x.x * scale);
        to[i / half].x[x.at2] = to_half(x.x2 * scale);
    }
}

/* The row's own key and value, as put_newest does; by all threads. */
static __device__ __forceinline__ void head_newest(const rvi_cuda_attention_args &a, const cluster_work &c, const head_room &r)
{
    int p = threadIdx.x, pos = c.see.y, key = pos % KEYS, slot = pos % RVI_CUDA_PAGE;
    const float *x = r.raw->x + c.group * c.size, *v = x + c.size;
    bool is = p < c.size / 2, lost = __syncthreads_or(is && (is_out(v[2 * p]) || is_out(v[2 * p + 1])));
    if (!is) return;
    element_pair k = pair_of(a, r.raw->angles, x, p);
    if (lost) k.x = k.x2 = NOT_A_NUMBER;
    uint8_t *plane = planes(a.kv, 0, pos / RVI_CUDA_PAGE, c.head);
    uint16_t left = to_half(k.x), right = to_half(k.x2);
    uint32_t two = lost ? 0 : to_halves(v[2 * p], v[2 * p + 1]);
    *(uint16_t *)(r.keys + key_piece(k.at, key / 8) * 16 + key % 8 * 2) = left;
    *(uint16_t *)(r.keys + key_piece(k.at2, key / 8) * 16 + key % 8 * 2) = right;
    *(uint32_t *)(r.keys + value_piece(key, p / 4) * 16 + p % 4 * 4) = two;
    ((uint16_t *)plane)[k.at * RVI_CUDA_PAGE + slot] = left;
    ((uint16_t *)plane)[k.at2 * RVI_CUDA_PAGE + slot] = right;
    ((uint32_t *)(plane + a.kv.k_bytes))[(slot * a.kv.padded) / 2 + p] = two;
}

/* As join_here does for one run; by the first block. */
static __device__ __forceinline__ void merge_sent(const rvi_cuda_attention_args &a, const cluster_work &c, const float *parts)
{
    uint32_t fours = c.size / 4;
    int line = c.size + RVI_CUDA_PART_MORE, all = c.group * line;
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < c.group * fours; i += RVI_CUDA_THREADS) {
        int head = i / fours, e = i % fours * 4;
        const float *part = parts + head * line;
        float m = -INFINITE, l = 0;
        float4 acc = {};
#pragma unroll 2
        for (int at = 0; at < c.chunks; at++, part += all) {
            float f, d;
            float4 v = *(const float4 *)(part + e);
            merge_factors(&m, &l, part[c.size], part[c.size + 1], &f, &d);
            acc = merged(acc, f, v, d);
        }
        float over = 1.0f / l;
        float *to = row_of(a.out, 0) + (c.query + head) * c.size + e;
        *(float4 *)to = {acc.x * over, acc.y * over, acc.z * over, acc.w * over};
    }
}

static __device__ __forceinline__ void cluster_attention(const rvi_cuda_attention_args &a, const cluster_work &c,
                                                         const head_room &r)
{
    __shared__ query_line<128> q[RVI_CUDA_ROW_QUERIES];
    __shared__ float2 scores[KEYS / 8][2][32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    int group = c.group, k = c.size / 16, n = group > 8 ? 2 : 1, chunk = c.first + blockIdx.x;
    int2 see[2] = {c.see, c.see};
    copy_wait<0>();
    __syncthreads();
    wait_for_sent(r.come);
    if ((int)blockIdx.x == c.chunks - 1) head_newest(a, c, r);
    head_queries(a, *r.raw, group, q);
    __syncthreads();
    float s[8][4], m[2], l[2];
    if (warp < KEYS / 16) {
#pragma unroll
        for (int i = 0; i < 8; i++) s[i / 4][i % 4] = 0;
#pragma unroll 2
        for (int e = 0; e < k; e++) {
            uint32_t f[4], b[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                f[i] = i % 2 < n && g + i % 2 * 8 < group ? ((const uint32_t *)q[g + i % 2 * 8].x)[e * 8 + i / 2 * 4 + t] : 0;
            load_matrices(b, r.keys + key_piece(e * 16 + lane / 8 % 2 * 8 + lane % 8, warp * 2 + lane / 16) * 16);
            mma_f16(s[0], f[0], f[1], f[2], f[3], b[0], b[1]);
            mma_f16(s[1], f[0], f[1], f[2], f[3], b[2], b[3]);
        }
#pragma unroll
        for (int i = 0; i < 4; i++)
            scores[2 * warp + i / 2][i % 2][lane] = {s[i / 2][i % 2 * 2], s[i / 2][i % 2 * 2 + 1]};
    }
    __syncthreads();
    if (warp >= k) return; /* a warp has every eighth 16 elements of the values */
#pragma unroll
    for (int i = 0; i < 16; i++) {
        float2 x = i % 2 < n ? scores[i / 2][i % 2][lane] : float2{};
        s[i / 2][i % 2 * 2] = x.x, s[i / 2][i % 2 * 2 + 1] = x.y;
    }
    weigh(a, chunk, see, chunk * KEYS >= c.see.x && chunk * KEYS + KEYS - 1 <= c.see.y, n, s, m, l);
    uint32_t p[4][4];
#pragma unroll
    for (int j = 0; j < 4; j++) weights_at(s, j, p[j]);
    float zero[2] = {}, one[2] = {1.0f, 1.0f}, over[2] = {1.0f, 1.0f}, *part[2];
    int line = c.size + RVI_CUDA_PART_MORE;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        part[h] = r.parts + (blockIdx.x * group + min(g + 8 * h, group - 1)) * line;
        if (g + 8 * h >= group) continue;
        if (c.chunks > 1) {
            if (t == 0 && warp == 0) send2(part[h] + c.size, m[h], l[h], r.come + 1, 0);
        } else { /* merged onto nothing */
            float top = -INFINITE, sum = 0;
            merge_factors(&top, &sum, m[h], l[h], &zero[h], &one[h]);
            over[h] = 1.0f / sum;
        }
    }
    float acc[2][4];
    mix_values(p, warp, r.keys, acc);
#pragma unroll
    for (int i = 0; i < 8; i += 2) {
        int h = i % 4 / 2, e = warp * 16 + i / 4 * 8 + t * 2;
        float x = acc[i / 4][i % 4], y = acc[i / 4][i % 4 + 1];
        if (g + 8 * h >= group) continue;
        if (c.chunks > 1)
            send2(part[h] + e, x, y, r.come + 1, 0);
        else
            *(float2 *)(row_of(a.out, 0) + (c.query + g + 8 * h) * c.size + e) = {
                (0.0f * zero[h] + x * one[h]) * over[h], (0.0f * zero[h] + y * one[h]) * over[h]};
    }
}

KERNEL __launch_bounds__(RVI_CUDA_THREADS, 2) heads_row(rvi_cuda_product_args p, rvi_cuda_attention_args a)
{
    DYNAMIC_SHARED(shared_heads);
    head_room r = head_room_in(p, shared_heads);
    int all = a.n_heads / a.kv.n_kv_heads, each = (all + a.n_splits - 1) / a.n_splits, split = blockIdx.y % a.n_splits;
    cluster_work c = {(int)blockIdx.y / a.n_splits};
    c.query = c.head * all + split * each, c.group = min(each, all - split * each), c.size = a.kv.head_size;
    c.see = keys_of(a, 0);
    c.first = c.see.x / KEYS, c.chunks = c.see.y / KEYS - c.first + 1;
    int rank = blockIdx.x;
    bool attends = rank < c.chunks, newest = rank == c.chunks - 1;
    if (threadIdx.x == 0 && attends) {
        expect_sent(r.come, (c.group + (newest ? 2 : 0)) * c.size * 4);
        expect_sent(r.come + 1, c.chunks * c.group * (c.size + 2) * 4);
    }
    __syncthreads();
    cluster_arrive();
    if (attends) {
        int chunk = c.first + rank, old = c.see.y - 1;
        if (threadIdx.x < RVI_CUDA_ATTENTION)
            copy_chunk(a, pages_of(a, 0, c.head, chunk, c.see.x, old), chunk, c.see.x, old, r.keys);
    }
    cluster_product(p, c, r, a.angles);
    if (!attends) return;
    cluster_attention(a, c, r);
    if (rank || c.chunks == 1) return;
    wait_for_sent(r.come + 1);
    merge_sent(a, c, r.parts);
}
