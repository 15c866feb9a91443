/* train.cuh - training: products of operands, attention over the rows of a batch and its backward, the loss, and the
 * backward of norms and gates. Part of kernels.cu.
 *
 *  product A result is one sum over k in order: of single products by fused multiply-adds (exact), or of steps of 16 as the
 *          tensor cores add them up. Gradients of adapters are such sums over the rows of the batch.
 *  keys    Of a query, span by span from its own up to the first, 32 keys at a time. Gradients of a key: chunks of 32
 *          queries (heads within rows), those of its own span first, go to the warps in turn; their sums are added in
 *          the order of the warps.
 * Nothing is added by atomics, so the bits are the same in every run. */
#include "train_args.h"

#ifdef __CUDACC__
static __device__ __forceinline__ void mma_bf16(float c[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
#endif

/* To nearest, ties to even; what is not a number stays so. */
static __device__ uint32_t to_bf16(float f)
{
    uint32_t u = __float_as_uint(f);
    if ((u & 0x7fffffff) > 0x7f800000) return u >> 16 | 0x40;
    return (u + 0x7fff + (u >> 16 & 1)) >> 16;
}

/* Two neighbours of an operand, at an even index. */
static __device__ void put_pair(rvi_cuda_at to, size_t index, float first, float second, bool exact)
{
    if (exact)
        as<float2>(to)[index / 2] = float2{first, second};
    else
        as<uint32_t>(to)[index / 2] = to_bf16(first) | to_bf16(second) << 16;
}

static __device__ int padded(int n)
{
    return (n + RVI_CUDA_OPERAND - 1) / RVI_CUDA_OPERAND * RVI_CUDA_OPERAND;
}

/* ---- jobs ---- */

/* The job that this block belongs to, of n <= 32: the last one that begins no later. All lanes look at once. */
template <typename T> static __device__ T find_job(rvi_cuda_at jobs, int n)
{
    const T *all = as<const T>(jobs);
    int lane = threadIdx.x % 32, mine = lane < n && all[lane].first_block <= (int)blockIdx.x ? lane : 0;
    for (int d = 16; d; d >>= 1) mine = max(mine, __shfl_xor_sync(0xffffffff, mine, d));
    return all[mine];
}

/* ---- operands ---- */

enum { SIDE = RVI_CUDA_OPERAND };

KERNEL __launch_bounds__(RVI_CUDA_THREADS) operands(rvi_cuda_operand_args a)
{
    begin();
    enum { ROWS = RVI_CUDA_THREADS / SIDE, LINES = RVI_CUDA_THREADS / (SIDE / 2) };
    __shared__ float tile[SIDE][SIDE + 1];
    const rvi_cuda_operand_job j = find_job<rvi_cuda_operand_job>(a.jobs, a.n_jobs);
    int block = blockIdx.x - j.first_block, across = (j.n_cols + SIDE - 1) / SIDE;
    int row = block / across * SIDE, col = block % across * SIDE, r = threadIdx.x / SIDE, c = threadIdx.x % SIDE;
    const float *from = as<const float>(j.from) + (size_t)(row + r) * j.from_stride + col + c;
    float x[SIDE / ROWS];
#pragma unroll
    for (int i = 0; i < SIDE / ROWS; i++) {
        bool there = row + r + i * ROWS < j.n_rows && col + c < j.n_cols;
        x[i] = there ? from[(size_t)(i * ROWS) * j.from_stride] : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < SIDE / ROWS; i++) tile[r + i * ROWS][c] = x[i];
    __syncthreads();
    int first = j.turned ? col : row, at = j.turned ? row : col, n = j.turned ? j.n_cols : j.n_rows;
    r = threadIdx.x / (SIDE / 2), c = threadIdx.x % (SIDE / 2) * 2;
#pragma unroll
    for (int i = 0; i < SIDE; i += LINES, r += LINES) {
        if (first + r >= n) continue;
        size_t to = (size_t)(first + r) * j.to_stride + at + c;
        if (j.turned)
            put_pair(j.to, to, tile[c][r], tile[c + 1][r], a.exact);
        else
            put_pair(j.to, to, tile[r][c], tile[r][c + 1], a.exact);
    }
}

/* ---- products: 4 warps, 32 x 32 of a tile of 64 x 64 each ----
 *
 * Of 64 rows of both operands 128 bytes are in shared memory at a time; chunk c of 16 bytes of row r lies at c ^ (r % 8), so
 * that the lanes of a warp read from different banks. */

typedef float gemm_sums[2][4][4]; /* 16 rows, 8 columns: those of mma_bf16 */

/* What a thread copies of each stage: a chunk of every 16th row of both operands. */
struct gemm_source {
    const rvi_cuda_segment *next;
    const uint8_t *a, *b; /* its next chunk of its first row */
    size_t rows;          /* bytes of 16 rows */
    int left;             /* stages of the segment */
    uint32_t there;       /* by bits: its rows of a, then of b, that there are */
};

enum { GEMM_ROWS = RVI_CUDA_GEMM_THREADS / 8, GEMM_EACH = SIDE / GEMM_ROWS };

static __device__ gemm_source gemm_source_of(const rvi_cuda_gemm_job &g, int row, int col)
{
    gemm_source s = {as<const rvi_cuda_segment>(g.segments)};
    for (int i = 0; i < GEMM_EACH; i++) {
        int r = threadIdx.x / 8 + i * GEMM_ROWS;
        s.there |= (uint32_t)(row + r < g.m) << i | (uint32_t)(col + r < g.n) << (GEMM_EACH + i);
    }
    return s;
}

template <bool EXACT> static __device__ void gemm_load(gemm_source *s, int row, int col, uint8_t *stage)
{
    int r = threadIdx.x / 8, chunk = threadIdx.x % 8;
    if (!s->left) {
        rvi_cuda_segment next = *s->next++;
        size_t row_bytes = (size_t)next.k * (EXACT ? 4 : 2);
        s->a = as<const uint8_t>(next.a) + (row + r) * row_bytes + chunk * 16;
        s->b = as<const uint8_t>(next.b) + (col + r) * row_bytes + chunk * 16;
        s->rows = GEMM_ROWS * row_bytes;
        s->left = (int)(row_bytes / 128);
    }
    uint8_t *to = stage + r * 128 + (chunk ^ r % 8) * 16;
#pragma unroll
    for (int i = 0; i < 2 * GEMM_EACH; i++, to += GEMM_ROWS * 128)
        if (s->there >> i & 1)
            copy16(to, i < GEMM_EACH ? s->a + i * s->rows : s->b + (i - GEMM_EACH) * s->rows);
        else
            *(uint4 *)to = uint4{0, 0, 0, 0};
    s->a += 128, s->b += 128, s->left--;
}

/* a, b: 32 rows of the stage's operands. */
static __device__ void gemm_step_bf16(gemm_sums sums, const uint8_t *a, const uint8_t *b)
{
    int lane = threadIdx.x % 32, line = lane % 8, high = lane / 8 % 2, far = lane / 16;
    a += (high * 8 + line) * 128, b += (far * 8 + line) * 128;
#pragma unroll
    for (int k = 0; k < 8; k += 2) {
        uint32_t left[2][4], right[2][4];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            load_lines(left[i], a + i * 16 * 128 + ((k + far) ^ line) * 16);
            load_lines(right[i], b + i * 16 * 128 + ((k + high) ^ line) * 16);
        }
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                mma_bf16(sums[i][j], left[i][0], left[i][1], left[i][2], left[i][3], right[j / 2][j % 2 * 2], right[j / 2][j % 2 * 2 + 1]);
    }
}

static __device__ float4 gemm_four(const uint8_t *lines, int row, int chunk)
{
    return *(const float4 *)(lines + row * 128 + (chunk ^ row % 8) * 16);
}

static __device__ void gemm_step_f32(gemm_sums sums, const uint8_t *a, const uint8_t *b)
{
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    for (int k = 0; k < 8; k++) {
        float4 right[8];
#pragma unroll
        for (int i = 0; i < 8; i++) right[i] = gemm_four(b, i / 2 * 8 + t * 2 + i % 2, k);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float4 left = gemm_four(a, i / 2 * 16 + i % 2 * 8 + g, k);
#pragma unroll
            for (int j = 0; j < 8; j++) {
                float *sum = &sums[i / 2][j / 2][i % 2 * 2 + j % 2];
                *sum = fmaf(left.x, right[j].x, *sum);
                *sum = fmaf(left.y, right[j].y, *sum);
                *sum = fmaf(left.z, right[j].z, *sum);
                *sum = fmaf(left.w, right[j].w, *sum);
            }
        }
    }
}

/* Two neighbouring columns of a row. */
static __device__ void gemm_put(const rvi_cuda_gemm_job &g, int row, int col, float first, float second, bool exact)
{
    if (g.finish == RVI_CUDA_GEMM_OPERAND) {
        int m = padded(g.m), n = padded(g.n);
        first *= g.scale, second *= g.scale;
        if (g.out && row < g.m) put_pair(g.out, (size_t)row * n + col, first, second, exact);
        for (int i = 0; g.turned && i < 2; i++) { /* of rows that are not there the sums are 0 */
            size_t to = (size_t)(col + i) * m + row;
            if (exact)
                as<float>(g.turned)[to] = i ? second : first;
            else
                as<uint16_t>(g.turned)[to] = (uint16_t)to_bf16(i ? second : first);
        }
        return;
    }
    if (row >= g.m || col >= g.n) return;
    float *out = as<float>(g.out) + (size_t)row * g.stride + col;
    bool both = col + 1 < g.n;
    if (g.bias) first += as<const float>(g.bias)[col], second += both ? as<const float>(g.bias)[col + 1] : 0.0f;
    if (both && (size_t)out % sizeof(float2) == 0) {
        *(float2 *)out = float2{first, second};
    } else {
        out[0] = first;
        if (both) out[1] = second;
    }
}

/* What is there is where the sum begins: calls one after the other give the bits of one sum. */
static __device__ void gemm_before(const rvi_cuda_gemm_job &g, int row, int col, gemm_sums sums)
{
#pragma unroll
    for (int i = 0; i < 32; i++) {
        int r = row + i / 16 * 16 + i % 4 / 2 * 8, c = col + i / 4 % 4 * 8 + i % 2;
        bool there = g.finish == RVI_CUDA_GEMM_ADD && r < g.m && c < g.n;
        sums[i / 16][i / 4 % 4][i % 4] = there ? as<const float>(g.out)[(size_t)r * g.stride + c] : 0.0f;
    }
}

template <bool EXACT> static __device__ void gemm(const rvi_cuda_gemm_args &a)
{
    enum { STAGES = RVI_CUDA_GEMM_STAGES, STAGE = RVI_CUDA_GEMM_STAGE };
    DYNAMIC_SHARED(shared);
    const rvi_cuda_gemm_job g = find_job<rvi_cuda_gemm_job>(a.jobs, a.n_jobs);
    int block = blockIdx.x - g.first_block, tile_row = block / g.tiles_across * SIDE, tile_col = block % g.tiles_across * SIDE;
    gemm_source next = gemm_source_of(g, tile_row, tile_col);
    for (int i = 0; i < STAGES - 1; i++) {
        if (i < g.n_stages) gemm_load<EXACT>(&next, tile_row, tile_col, shared + i * STAGE);
        copy_commit();
    }
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int row = tile_row + warp / 2 * 32 + lane / 4, col = tile_col + warp % 2 * 32 + lane % 4 * 2;
    gemm_sums sums;
    gemm_before(g, row, col, sums);
    for (int i = 0; i < g.n_stages; i++) {
        copy_wait<STAGES - 2>();
        __syncthreads();
        if (i + STAGES - 1 < g.n_stages)
            gemm_load<EXACT>(&next, tile_row, tile_col, shared + (i + STAGES - 1) % STAGES * STAGE);
        copy_commit();
        const uint8_t *left = shared + i % STAGES * STAGE + warp / 2 * 32 * 128,
                      *right = shared + i % STAGES * STAGE + STAGE / 2 + warp % 2 * 32 * 128;
        if (EXACT)
            gemm_step_f32(sums, left, right);
        else
            gemm_step_bf16(sums, left, right);
    }
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int h = 0; h < 2; h++)
                gemm_put(g, row + i * 16 + h * 8, col + j * 8, sums[i][j][h * 2], sums[i][j][h * 2 + 1], EXACT);
}

KERNEL __launch_bounds__(RVI_CUDA_GEMM_THREADS) gemm_f32(rvi_cuda_gemm_args a)
{
    begin();
    gemm<true>(a);
}

KERNEL __launch_bounds__(RVI_CUDA_GEMM_THREADS) gemm_bf16(rvi_cuda_gemm_args a)
{
    begin();
    gemm<false>(a);
}

/* ---- attention over spans ---- */

static __device__ float span_score(const rvi_cuda_span_args &a, float dot)
{
    float s = dot * a.scale;
    return a.soft_cap != 0.0f ? capped(s, a.soft_cap) : s;
}

/* d score / d dot, by the score. */
static __device__ float span_slope(const rvi_cuda_span_args &a, float score)
{
    float c = a.soft_cap != 0.0f ? score / a.soft_cap : 0.0f;
    return a.scale * (1.0f - c * c);
}

static __device__ float warp_max(float v)
{
    for (int d = 16; d; d >>= 1) v = fmaxf(v, __shfl_xor_sync(0xffffffff, v, d));
    return v;
}

static __device__ const float *head_of(const rvi_cuda_cols &c, int row, int head, int size)
{
    return row_of(c, row) + head * size;
}

/* A head by the lanes of a warp: lane l has the elements l, l + 32, ... */
template <int N> struct spread {
    float x[N];
};

template <int N> static __device__ spread<N> spread_of(const float *from, int size)
{
    spread<N> s;
#pragma unroll
    for (int i = 0; i < N; i++) {
        int e = threadIdx.x % 32 + 32 * i;
        s.x[i] = e < size ? from[e] : 0.0f;
    }
    return s;
}

template <int N> static __device__ void spread_put(const spread<N> &s, float *to, int size, float scale)
{
#pragma unroll
    for (int i = 0; i < N; i++)
        if ((int)(threadIdx.x % 32) + 32 * i < size) to[threadIdx.x % 32 + 32 * i] = s.x[i] * scale;
}

/* Lane l gets the product with the head at(l), for l < n; several on their way at a time. */
template <int N, typename F> static __device__ float span_dots(const spread<N> &x, int n, int size, F at)
{
    enum { TOGETHER = N <= 4 ? 8 : 2 };
    float mine = 0;
    for (int j = 0; j < n; j += TOGETHER) {
        float sum[TOGETHER] = {};
#pragma unroll
        for (int u = 0; u < TOGETHER; u++) {
            spread<N> y = spread_of<N>(at(min(j + u, n - 1)), size);
#pragma unroll
            for (int i = 0; i < N; i++) sum[u] = fmaf(x.x[i], y.x[i], sum[u]);
        }
        for (int d = 16; d; d >>= 1)
#pragma unroll
            for (int u = 0; u < TOGETHER; u++) sum[u] += __shfl_xor_sync(0xffffffff, sum[u], d);
#pragma unroll
        for (int u = 0; u < TOGETHER; u++)
            if ((int)(threadIdx.x % 32) == j + u) mine = sum[u];
    }
    return mine;
}

/* Adds the heads at(j), times weight[j]. */
template <int N, typename F>
static __device__ void span_add(spread<N> *to, const float *weight, int n, int size, F at)
{
#pragma unroll 8
    for (int j = 0; j < n; j++) {
        spread<N> y = spread_of<N>(at(j), size);
#pragma unroll
        for (int i = 0; i < N; i++) to->x[i] = fmaf(weight[j], y.x[i], to->x[i]);
    }
}

/* A query's way through its keys: chunks of up to 32 of one span. */
struct span_keys {
    const rvi_cuda_span *spans;
    int span, first, at, end; /* at .. end: positions left in this span; first: the first that is seen */
};

static __device__ span_keys keys_of(const rvi_cuda_span_args &a, int row)
{
    span_keys k = {as<const rvi_cuda_span>(a.spans), as<const int32_t>(a.span_of)[row]};
    const rvi_cuda_span *s = &k.spans[k.span];
    int pos = s->pos + row - s->first;
    k.first = a.window && pos >= a.window ? pos - a.window + 1 : 0;
    k.at = max(s->pos, k.first);
    k.end = pos + 1;
    return k;
}

/* The row of the first key of the next chunk and how many there are; 0: no more. */
static __device__ int next_keys(span_keys *k, int *row)
{
    while (k->at >= k->end) {
        int s = k->spans[k->span].parent;
        if (s < 0) return 0;
        k->span = s;
        k->at = max(k->spans[s].pos, k->first);
        k->end = k->spans[s].pos + k->spans[s].n;
    }
    int n = min(32, k->end - k->at);
    *row = k->spans[k->span].first + k->at - k->spans[k->span].pos;
    k->at += n;
    return n;
}

/* The keys' chunk as a softmax takes it in: the largest score so far, the sum, and the factor of what was there. */
struct span_softmax {
    float top, sum, before;
};

static __device__ float take_scores(span_softmax *s, float score, bool there)
{
    float top = fmaxf(s->top, warp_max(there ? score : -INFINITE));
    float w = there ? expf(score - top) : 0.0f;
    s->before = expf(s->top - top);
    s->top = top;
    s->sum = s->sum * s->before + tree(w);
    return w;
}

template <int N> static __device__ void span_forward(const rvi_cuda_span_args &a, float *weight)
{
    int row = blockIdx.x, head = blockIdx.y, kv = head / (a.n_heads / a.n_kv_heads), size = a.head_size, lane = threadIdx.x, key, n;
    spread<N> q = spread_of<N>(head_of(a.q, row, head, size), size), mix = {};
    span_softmax s = {-INFINITE, 0, 0};
    span_keys keys = keys_of(a, row);
    while ((n = next_keys(&keys, &key))) {
        float dot = span_dots(q, n, size, [&](int j) { return head_of(a.k, key + j, kv, size); });
        weight[lane] = take_scores(&s, span_score(a, dot), lane < n);
        __syncwarp();
#pragma unroll
        for (int i = 0; i < N; i++) mix.x[i] *= s.before;
        span_add(&mix, weight, n, size, [&](int j) { return head_of(a.v, key + j, kv, size); });
        __syncwarp();
    }
    spread_put(mix, row_of(a.out, row) + head * size, size, 1.0f / s.sum);
}

/* Grid: rows, heads; a warp. */
KERNEL __launch_bounds__(32, 24) span_attention(rvi_cuda_span_args a)
{
    begin();
    __shared__ float weight[32];
    if (a.head_size <= 64)
        span_forward<2>(a, weight);
    else if (a.head_size <= 128)
        span_forward<4>(a, weight);
    else
        span_forward<RVI_CUDA_MAX_HEAD / 32>(a, weight);
}

template <int N> static __device__ void span_queries(const rvi_cuda_span_args &a, float *weight)
{
    int row = blockIdx.x, head = blockIdx.y, kv = head / (a.n_heads / a.n_kv_heads), size = a.head_size, lane = threadIdx.x, key, n;
    spread<N> q = spread_of<N>(head_of(a.q, row, head, size), size), dout = spread_of<N>(head_of(a.out, row, head, size), size), dq = {};
    auto k = [&](int j) { return head_of(a.k, key + j, kv, size); };
    auto v = [&](int j) { return head_of(a.v, key + j, kv, size); };
    span_softmax s = {-INFINITE, 0, 0};
    float mean = 0;
    span_keys keys = keys_of(a, row);
    while ((n = next_keys(&keys, &key))) {
        float w = take_scores(&s, span_score(a, span_dots(q, n, size, k)), lane < n);
        mean = mean * s.before + tree(w * span_dots(dout, n, size, v));
    }
    float inverse = 1.0f / s.sum;
    mean *= inverse;
    keys = keys_of(a, row);
    while ((n = next_keys(&keys, &key))) {
        float score = span_score(a, span_dots(q, n, size, k)), dp = span_dots(dout, n, size, v);
        weight[lane] = expf(score - s.top) * inverse * (dp - mean) * span_slope(a, score);
        __syncwarp();
        span_add(&dq, weight, n, size, k);
        __syncwarp();
    }
    spread_put(dq, row_of(a.dq, row) + head * size, size, 1.0f);
    float *stats = as<float>(a.stats) + ((size_t)row * a.n_heads + head) * RVI_CUDA_STATS;
    if (lane == 0) stats[0] = s.top, stats[1] = inverse, stats[2] = mean;
}

/* Grid: rows, heads; a warp. dq, and what the keys need of each query. */
KERNEL __launch_bounds__(32, 24) span_queries_back(rvi_cuda_span_args a)
{
    begin();
    __shared__ float weight[32];
    if (a.head_size <= 64)
        span_queries<2>(a, weight);
    else if (a.head_size <= 128)
        span_queries<4>(a, weight);
    else
        span_queries<RVI_CUDA_MAX_HEAD / 32>(a, weight);
}

/* A key, and what queries have added to its gradients so far. */
template <int N> struct span_key {
    spread<N> k, v, dk, dv;
    int kv, pos;
};

/* Up to 32 heads of rows, from `item` on, of the n from row `first` on. */
template <int N>
static __device__ void add_queries(const rvi_cuda_span_args &a, span_key<N> *key, int first, int first_pos, int item, int n,
                                   float *p_of, float *ds_of)
{
    int lane = threadIdx.x % 32, group = a.n_heads / a.n_kv_heads, size = a.head_size, count = min(32, n - item);
    auto row = [&](int j) { return first + (item + j) / group; };
    auto head = [&](int j) { return key->kv * group + (item + j) % group; };
    auto q = [&](int j) { return head_of(a.q, row(j), head(j), size); };
    auto dout = [&](int j) { return head_of(a.out, row(j), head(j), size); };
    float score = span_score(a, span_dots(key->k, count, size, q)), dp = span_dots(key->v, count, size, dout), p = 0, ds = 0;
    if (lane < count && (!a.window || first_pos + (item + lane) / group - key->pos < a.window)) {
        const float *stats = as<const float>(a.stats) + ((size_t)row(lane) * a.n_heads + head(lane)) * RVI_CUDA_STATS;
        p = expf(score - stats[0]) * stats[1];
        ds = p * (dp - stats[2]) * span_slope(a, score);
    }
    p_of[lane] = p, ds_of[lane] = ds;
    __syncwarp();
    span_add(&key->dk, ds_of, count, size, q);
    span_add(&key->dv, p_of, count, size, dout);
    __syncwarp();
}

enum { SPAN_WARPS = RVI_CUDA_SPAN_WARPS };

/* The sum over the warps, in their order. */
template <int N> static __device__ void add_warps(const spread<N> &s, float (*parts)[RVI_CUDA_MAX_HEAD], float *out, int size)
{
    __syncthreads();
    spread_put(s, parts[threadIdx.x / 32], size, 1.0f);
    __syncthreads();
    for (int e = threadIdx.x; e < size; e += blockDim.x) {
        float sum = parts[0][e];
        for (int w = 1; w < SPAN_WARPS; w++) sum += parts[w][e];
        out[e] = sum;
    }
}

template <int N>
static __device__ void span_key_of(const rvi_cuda_span_args &a, float *p_of, float *ds_of, float (*parts)[RVI_CUDA_MAX_HEAD])
{
    const rvi_cuda_span *spans = as<const rvi_cuda_span>(a.spans), *own;
    int row = blockIdx.x, kv = blockIdx.y, size = a.head_size, warp = threadIdx.x / 32, group = a.n_heads / a.n_kv_heads, chunk = 0;
    own = &spans[as<const int32_t>(a.span_of)[row]];
    span_key<N> key = {spread_of<N>(head_of(a.k, row, kv, size), size), spread_of<N>(head_of(a.v, row, kv, size), size)};
    key.kv = kv, key.pos = own->pos + row - own->first;
    for (int i = 0; i < own->n_seen_by; i++) {
        const rvi_cuda_span *s = &spans[as<const int32_t>(a.seen_by)[own->seen_by + i]];
        int skipped = i ? 0 : row - own->first, n = (s->n - skipped) * group;
        for (int item = 0; item < n; item += 32, chunk++)
            if (chunk % SPAN_WARPS == warp)
                add_queries(a, &key, s->first + skipped, s->pos + skipped, item, n, p_of + warp * 32, ds_of + warp * 32);
    }
    add_warps(key.dk, parts, row_of(a.dk, row) + kv * size, size);
    add_warps(key.dv, parts, row_of(a.dv, row) + kv * size, size);
}

/* Grid: rows, KV heads. */
KERNEL __launch_bounds__(RVI_CUDA_SPAN_WARPS * 32, 3) span_keys_back(rvi_cuda_span_args a)
{
    begin();
    __shared__ float p_of[SPAN_WARPS * 32], ds_of[SPAN_WARPS * 32], parts[SPAN_WARPS][RVI_CUDA_MAX_HEAD];
    if (a.head_size <= 64)
        span_key_of<2>(a, p_of, ds_of, parts);
    else if (a.head_size <= 128)
        span_key_of<4>(a, p_of, ds_of, parts);
    else
        span_key_of<RVI_CUDA_MAX_HEAD / 32>(a, p_of, ds_of, parts);
}

/* ---- row by row ---- */

/* Grid: rows, groups of `size` columns. */
KERNEL norm_back(rvi_cuda_norm_back_args a)
{
    begin();
    int first = blockIdx.y * a.size;
    const float *x = row_of(a.x, blockIdx.x) + first, *dy = row_of(a.dy, blockIdx.x) + first, *w = as<const float>(a.w);
    float *dx = row_of(a.dx, blockIdx.x) + first, square = 0, dot = 0;
    for (int i = threadIdx.x; i < a.size; i += blockDim.x) {
        square = fmaf(x[i], x[i], square);
        dot = fmaf(x[i], w[i] * dy[i], dot);
    }
    square = block_sum(square);
    dot = block_sum(dot);
    float r = 1.0f / sqrtf(square / (float)a.size + a.eps), c = r * r * r * dot / (float)a.size;
    for (int i = threadIdx.x; i < a.size; i += blockDim.x) {
        float d = r * (w[i] * dy[i]) - x[i] * c;
        dx[i] = a.add ? dx[i] + d : d;
    }
}

/* kind: rvi_glu */
KERNEL glu_back(rvi_cuda_glu_back_args a)
{
    begin();
    int row = blockIdx.x;
    const float *gate = row_of(a.gate, row), *up = row_of(a.up, row), *dact = row_of(a.dact, row);
    float *dgate = row_of(a.dgate, row), *dup = row_of(a.dup, row);
    for (int i = blockIdx.y * blockDim.x + threadIdx.x; i < a.gate.n; i += gridDim.y * blockDim.x) {
        float g = gate[i], u = up[i], d = dact[i], z = 1.5957691216057308f, cube = 0.044715f;
        float y = a.kind ? z * (g * fmaf(cube, g * g, 1.0f)) : g;
        float inner = a.kind ? z * fmaf(3.0f * cube, g * g, 1.0f) : 1.0f; /* d y / d g */
        float s = 1.0f / (1.0f + expf(-y));
        dgate[i] = d * u * (s + g * s * (1.0f - s) * inner);
        dup[i] = d * (g * s);
    }
}

KERNEL move_rows(rvi_cuda_move_args a)
{
    begin();
    float *out = row_of(a.out, blockIdx.x);
    const float *x = a.x.at ? row_of(a.x, blockIdx.x) : 0;
    for (int i = threadIdx.x; i < a.out.n; i += blockDim.x) out[i] = x ? x[i] : 0.0f;
}

KERNEL scatter_add(rvi_cuda_move_args a)
{
    begin();
    float *out = row_of(a.out, as<const int32_t>(a.to)[blockIdx.x]);
    const float *x = row_of(a.x, blockIdx.x);
    for (int i = threadIdx.x; i < a.out.n; i += blockDim.x) out[i] += x[i];
}

/* ---- loss: see the CPU's for the formulas ---- */

struct loss_slopes {
    double base, more, all, factor; /* more: of the ids that are listed */
};

/* The listed logits are in `kept`; others: the sum of exp over all others. */
static __device__ loss_slopes loss_of(const rvi_cuda_target *t, const float *kept, double top, double others, float *out)
{
    const double least_rest = 1e-6;
    const float *p = as<const float>(t->p);
    double inverse = 1.0 / t->temperature, all = others, sum_p = 0, loss = 0;
    for (int i = 0; i < t->n; i++) all += exp((kept[i] - top) * inverse);
    double rest = others / all, log_all = log(all);
    bool held = rest < least_rest;
    for (int i = 0; i < t->n; i++) {
        sum_p += p[i];
        if (p[i] != 0) loss += p[i] * (log((double)p[i]) - ((kept[i] - top) * inverse - log_all));
    }
    if (t->rest != 0) loss += t->rest * (log((double)t->rest) - log(held ? least_rest : rest));
    *out = (float)(loss + others * 0.0); /* what is not a number shows, also where rest is 0 */
    double c = held ? 0 : t->rest / rest;
    return {sum_p - c * (1 - rest), c, all, t->weight * inverse};
}

KERNEL loss(rvi_cuda_loss_args a)
{
    begin();
    __shared__ loss_slopes slopes;
    const rvi_cuda_target *t = as<const rvi_cuda_target>(a.targets) + blockIdx.x;
    const int32_t *ids = as<const int32_t>(t->ids);
    const float *p = as<const float>(t->p);
    float *z = row_of(a.logits, blockIdx.x), *kept = as<float>(t->kept), most = -INFINITE, sum = 0;
    float inverse = 1.0f / t->temperature;
    for (int i = threadIdx.x; i < a.logits.n; i += blockDim.x) most = fmaxf(most, z[i]);
    most = block_max(most);
    for (int i = threadIdx.x; i < t->n; i += blockDim.x) kept[i] = z[ids[i]];
    __syncthreads();
    for (int i = threadIdx.x; i < t->n; i += blockDim.x) z[ids[i]] = -INFINITE;
    __syncthreads();
    for (int i = threadIdx.x; i < a.logits.n; i += blockDim.x) sum += expf((z[i] - most) * inverse);
    sum = block_sum(sum);
    if (threadIdx.x == 0) slopes = loss_of(t, kept, most, sum, as<float>(a.losses) + blockIdx.x);
    if (!a.grad) return;
    __syncthreads();
    float factor = (float)(slopes.factor * slopes.base / slopes.all);
    for (int i = threadIdx.x; i < a.logits.n; i += blockDim.x) {
        float e = expf((z[i] - most) * inverse) * factor, c = a.soft_cap != 0.0f ? z[i] / a.soft_cap : 0.0f;
        z[i] = e * (1.0f - c * c);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < t->n; i += blockDim.x) {
        double q = exp(((double)kept[i] - most) * (1.0 / t->temperature)) / slopes.all;
        double cap = a.soft_cap != 0.0f ? (double)kept[i] / a.soft_cap : 0;
        z[ids[i]] = (float)(slopes.factor * (q * (slopes.base + slopes.more) - p[i]) * (1 - cap * cap));
    }
}
