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

/* ---- operands ---- */

enum { SIDE = RVI_CUDA_OPERAND };

KERNEL __launch_bounds__(RVI_CUDA_THREADS) operands(rvi_cuda_operand_args a)
{
    begin();
    __shared__ float tile[SIDE][SIDE + 1];
    const rvi_cuda_operand_job *j = as<const rvi_cuda_operand_job>(a.jobs);
    int block = blockIdx.x;
    for (; block >= j->n_blocks; j++) block -= j->n_blocks;
    int across = (j->n_cols + SIDE - 1) / SIDE, row = block / across * SIDE, col = block % across * SIDE;
    for (int i = threadIdx.x; i < SIDE * SIDE; i += blockDim.x) {
        int r = i / SIDE, c = i % SIDE;
        bool there = row + r < j->n_rows && col + c < j->n_cols;
        tile[r][c] = there ? as<const float>(j->from)[(size_t)(row + r) * j->from_stride + col + c] : 0.0f;
    }
    __syncthreads();
    int first = j->turned ? col : row, at = j->turned ? row : col, n = j->turned ? j->n_cols : j->n_rows;
    for (int i = threadIdx.x; i < SIDE * SIDE / 2; i += blockDim.x) {
        int r = i / (SIDE / 2), c = i % (SIDE / 2) * 2;
        if (first + r >= n) continue;
        size_t to = (size_t)(first + r) * j->to_stride + at + c;
        if (j->turned)
            put_pair(j->to, to, tile[c][r], tile[c + 1][r], a.exact);
        else
            put_pair(j->to, to, tile[r][c], tile[r][c + 1], a.exact);
    }
}

/* ---- products: 4 warps, 32 x 32 of a tile of 64 x 64 each ----
 *
 * Of 64 rows of both operands 128 bytes are in shared memory at a time; chunk c of 16 bytes of row r lies at c ^ (r % 8), so
 * that the lanes of a warp read from different banks. */

typedef float gemm_sums[2][4][4]; /* 16 rows, 8 columns: those of mma_bf16 */

struct gemm_place {
    const rvi_cuda_segment *segment;
    int at; /* bytes of its rows */
};

template <bool EXACT>
static __device__ void gemm_load(const rvi_cuda_gemm_job *g, gemm_place *p, int row, int col, uint8_t *stage)
{
    const rvi_cuda_segment *s = p->segment;
    size_t row_bytes = (size_t)s->k * (EXACT ? 4 : 2);
    for (int i = threadIdx.x; i < 2 * SIDE * 8; i += RVI_CUDA_GEMM_THREADS) {
        bool is_b = i >= SIDE * 8;
        int r = i / 8 % SIDE, chunk = i % 8, from = (is_b ? col : row) + r;
        uint8_t *to = stage + i / 8 * 128 + (chunk ^ r % 8) * 16;
        if (from < (is_b ? g->n : g->m))
            copy16(to, as<const uint8_t>(is_b ? s->b : s->a) + from * row_bytes + p->at + chunk * 16);
        else
            *(uint4 *)to = uint4{0, 0, 0, 0};
    }
    p->at += 128;
    if (p->at == (int)row_bytes) p->segment++, p->at = 0;
}

static __device__ void gemm_step_bf16(gemm_sums sums, const uint8_t *a, const uint8_t *b, int g, int t)
{
#pragma unroll
    for (int k = 0; k < 8; k += 2) {
        uint32_t left[2][4], right[4][2];
        int near = (k ^ g) * 16 + t * 4, far = ((k + 1) ^ g) * 16 + t * 4;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const uint8_t *line = a + (i * 16 + g) * 128;
            left[i][0] = *(const uint32_t *)(line + near);
            left[i][1] = *(const uint32_t *)(line + 8 * 128 + near);
            left[i][2] = *(const uint32_t *)(line + far);
            left[i][3] = *(const uint32_t *)(line + 8 * 128 + far);
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const uint8_t *line = b + (i * 8 + g) * 128;
            right[i][0] = *(const uint32_t *)(line + near);
            right[i][1] = *(const uint32_t *)(line + far);
        }
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                mma_bf16(sums[i][j], left[i][0], left[i][1], left[i][2], left[i][3], right[j][0], right[j][1]);
    }
}

static __device__ float4 gemm_four(const uint8_t *lines, int row, int chunk)
{
    return *(const float4 *)(lines + row * 128 + (chunk ^ row % 8) * 16);
}

static __device__ void gemm_step_f32(gemm_sums sums, const uint8_t *a, const uint8_t *b, int g, int t)
{
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
static __device__ void gemm_put(const rvi_cuda_gemm_job *g, int row, int col, float first, float second, bool exact)
{
    if (g->finish == RVI_CUDA_GEMM_OPERAND) {
        int m = padded(g->m), n = padded(g->n);
        first *= g->scale, second *= g->scale;
        if (g->out && row < g->m) put_pair(g->out, (size_t)row * n + col, first, second, exact);
        for (int i = 0; g->turned && i < 2; i++) { /* of rows that are not there the sums are 0 */
            size_t to = (size_t)(col + i) * m + row;
            if (exact)
                as<float>(g->turned)[to] = i ? second : first;
            else
                as<uint16_t>(g->turned)[to] = (uint16_t)to_bf16(i ? second : first);
        }
        return;
    }
    for (int i = 0; row < g->m && i < 2 && col + i < g->n; i++) {
        float *out = as<float>(g->out) + (size_t)row * g->stride + col + i, sum = i ? second : first;
        if (g->bias) sum += as<const float>(g->bias)[col + i];
        *out = sum;
    }
}

/* What is there is where the sum begins: calls one after the other give the bits of one sum. */
static __device__ float gemm_before(const rvi_cuda_gemm_job *g, int row, int col)
{
    if (g->finish != RVI_CUDA_GEMM_ADD || row >= g->m || col >= g->n) return 0;
    return as<const float>(g->out)[(size_t)row * g->stride + col];
}

template <bool EXACT> static __device__ void gemm(const rvi_cuda_gemm_args &a)
{
    enum { STAGES = RVI_CUDA_GEMM_STAGES, STAGE = RVI_CUDA_GEMM_STAGE };
    DYNAMIC_SHARED(shared);
    const rvi_cuda_gemm_job *g = as<const rvi_cuda_gemm_job>(a.jobs);
    int block = blockIdx.x, n_steps = 0;
    for (; block >= g->n_blocks; g++) block -= g->n_blocks;
    int tile_row = block / g->tiles_across * SIDE, tile_col = block % g->tiles_across * SIDE, row = tile_row, col = tile_col;
    gemm_place next = {as<const rvi_cuda_segment>(g->segments), 0};
    for (int i = 0; i < g->n_segments; i++) n_steps += next.segment[i].k * (EXACT ? 4 : 2) / 128;
    for (int i = 0; i < STAGES - 1; i++) {
        if (i < n_steps) gemm_load<EXACT>(g, &next, tile_row, tile_col, shared + i * STAGE);
        copy_commit();
    }
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    gemm_sums sums;
    row += warp / 2 * 32 + lane / 4, col += warp % 2 * 32 + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < 32; i++)
        sums[i / 16][i / 4 % 4][i % 4] =
            gemm_before(g, row + i / 16 * 16 + i % 4 / 2 * 8, col + i / 4 % 4 * 8 + i % 2);
    for (int i = 0; i < n_steps; i++) {
        copy_wait<STAGES - 2>();
        __syncthreads();
        if (i + STAGES - 1 < n_steps)
            gemm_load<EXACT>(g, &next, tile_row, tile_col, shared + (i + STAGES - 1) % STAGES * STAGE);
        copy_commit();
        const uint8_t *left = shared + i % STAGES * STAGE + warp / 2 * 32 * 128,
                      *right = shared + i % STAGES * STAGE + STAGE / 2 + warp % 2 * 32 * 128;
        if (EXACT)
            gemm_step_f32(sums, left, right, lane / 4, lane % 4);
        else
            gemm_step_bf16(sums, left, right, lane / 4, lane % 4);
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

enum { SPAN_ELEMENTS = RVI_CUDA_MAX_HEAD / 32 }; /* of a head, by lane */

static __device__ float dot_of(const float *x, const float *y, int n)
{
    float sum = 0;
    for (int i = 0; i < n; i++) sum = fmaf(x[i], y[i], sum);
    return sum;
}

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

/* A query's way through its keys: chunks of up to 32 of one span. */
struct span_keys {
    const rvi_cuda_span *spans;
    int span, first, at, end; /* at .. end: positions left in this span; first: the first that is seen */
};

static __device__ span_keys keys_of(const rvi_cuda_span_args &a, int row, int *pos)
{
    span_keys k = {as<const rvi_cuda_span>(a.spans), as<const int32_t>(a.span_of)[row]};
    const rvi_cuda_span *s = &k.spans[k.span];
    *pos = s->pos + row - s->first;
    k.first = a.window && *pos >= a.window ? *pos - a.window + 1 : 0;
    k.at = max(s->pos, k.first);
    k.end = *pos + 1;
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

static __device__ const float *head_of(const rvi_cuda_cols &c, int row, int head, int size)
{
    return row_of(c, row) + head * size;
}

/* Grid: rows, heads; a warp. */
KERNEL __launch_bounds__(32) span_attention(rvi_cuda_span_args a)
{
    begin();
    __shared__ float weight[32];
    int row = blockIdx.x, head = blockIdx.y, kv = head / (a.n_heads / a.n_kv_heads), size = a.head_size, lane = threadIdx.x;
    int pos, key, n;
    const float *q = head_of(a.q, row, head, size);
    float top = -INFINITE, sum = 0, acc[SPAN_ELEMENTS] = {};
    span_keys keys = keys_of(a, row, &pos);
    while ((n = next_keys(&keys, &key))) {
        float score = lane < n ? span_score(a, dot_of(q, head_of(a.k, key + lane, kv, size), size)) : -INFINITE;
        float new_top = fmaxf(top, warp_max(score)), before = expf(top - new_top);
        float w = lane < n ? expf(score - new_top) : 0.0f;
        top = new_top;
        sum = sum * before + tree(w);
        weight[lane] = w;
        __syncwarp();
#pragma unroll
        for (int i = 0; i < SPAN_ELEMENTS; i++) {
            int e = lane + 32 * i;
            if (e >= size) break;
            acc[i] *= before;
            for (int j = 0; j < n; j++) acc[i] = fmaf(weight[j], head_of(a.v, key + j, kv, size)[e], acc[i]);
        }
        __syncwarp();
    }
    float *out = row_of(a.out, row) + head * size;
#pragma unroll
    for (int i = 0; i < SPAN_ELEMENTS; i++)
        if (lane + 32 * i < size) out[lane + 32 * i] = acc[i] / sum;
}

/* Grid: rows, heads; a warp. dq, and what the keys need of each query. */
KERNEL __launch_bounds__(32) span_queries_back(rvi_cuda_span_args a)
{
    begin();
    __shared__ float weight[32];
    int row = blockIdx.x, head = blockIdx.y, kv = head / (a.n_heads / a.n_kv_heads), size = a.head_size, lane = threadIdx.x;
    int pos, key, n;
    const float *q = head_of(a.q, row, head, size), *dout = head_of(a.out, row, head, size);
    float top = -INFINITE, sum = 0, mean = 0, acc[SPAN_ELEMENTS] = {};
    span_keys keys = keys_of(a, row, &pos);
    while ((n = next_keys(&keys, &key))) {
        bool there = lane < n;
        float score = there ? span_score(a, dot_of(q, head_of(a.k, key + lane, kv, size), size)) : -INFINITE;
        float dp = there ? dot_of(dout, head_of(a.v, key + lane, kv, size), size) : 0.0f;
        float new_top = fmaxf(top, warp_max(score)), before = expf(top - new_top);
        float w = there ? expf(score - new_top) : 0.0f;
        top = new_top;
        sum = sum * before + tree(w);
        mean = mean * before + tree(w * dp);
    }
    float inverse = 1.0f / sum;
    mean *= inverse;
    keys = keys_of(a, row, &pos);
    while ((n = next_keys(&keys, &key))) {
        float ds = 0;
        if (lane < n) {
            float score = span_score(a, dot_of(q, head_of(a.k, key + lane, kv, size), size));
            float dp = dot_of(dout, head_of(a.v, key + lane, kv, size), size);
            ds = expf(score - top) * inverse * (dp - mean) * span_slope(a, score);
        }
        weight[lane] = ds;
        __syncwarp();
#pragma unroll
        for (int i = 0; i < SPAN_ELEMENTS; i++) {
            int e = lane + 32 * i;
            if (e >= size) break;
            for (int j = 0; j < n; j++) acc[i] = fmaf(weight[j], head_of(a.k, key + j, kv, size)[e], acc[i]);
        }
        __syncwarp();
    }
    float *dq = row_of(a.dq, row) + head * size;
#pragma unroll
    for (int i = 0; i < SPAN_ELEMENTS; i++)
        if (lane + 32 * i < size) dq[lane + 32 * i] = acc[i];
    float *stats = as<float>(a.stats) + ((size_t)row * a.n_heads + head) * RVI_CUDA_STATS;
    if (lane == 0) stats[0] = top, stats[1] = inverse, stats[2] = mean;
}

/* What queries add to a key's gradients: chunk by chunk. */
struct key_sums {
    float dk[SPAN_ELEMENTS], dv[SPAN_ELEMENTS];
};

/* Up to 32 heads of rows from `item` on, of the n from `first` on. */
static __device__ void add_queries(const rvi_cuda_span_args &a, key_sums *sums, int key, int kv, int key_pos, int first,
                                   int first_pos, int item, int n, float *p_of, float *ds_of)
{
    int lane = threadIdx.x % 32, group = a.n_heads / a.n_kv_heads, size = a.head_size, count = min(32, n - item);
    const float *k = head_of(a.k, key, kv, size), *v = head_of(a.v, key, kv, size);
    int mine = item + lane, row = first + mine / group, head = kv * group + mine % group;
    float p = 0, ds = 0;
    if (lane < count && (!a.window || first_pos + mine / group - key_pos < a.window)) {
        const float *stats = as<const float>(a.stats) + ((size_t)row * a.n_heads + head) * RVI_CUDA_STATS;
        float score = span_score(a, dot_of(head_of(a.q, row, head, size), k, size));
        p = expf(score - stats[0]) * stats[1];
        ds = p * (dot_of(head_of(a.out, row, head, size), v, size) - stats[2]) * span_slope(a, score);
    }
    p_of[lane] = p, ds_of[lane] = ds;
    __syncwarp();
#pragma unroll
    for (int i = 0; i < SPAN_ELEMENTS; i++) {
        int e = lane + 32 * i;
        if (e >= size) break;
        for (int j = 0; j < count; j++) {
            int r = first + (item + j) / group, h = kv * group + (item + j) % group;
            sums->dk[i] = fmaf(ds_of[j], head_of(a.q, r, h, size)[e], sums->dk[i]);
            sums->dv[i] = fmaf(p_of[j], head_of(a.out, r, h, size)[e], sums->dv[i]);
        }
    }
    __syncwarp();
}

/* Grid: rows, KV heads. */
KERNEL __launch_bounds__(RVI_CUDA_SPAN_WARPS * 32) span_keys_back(rvi_cuda_span_args a)
{
    begin();
    enum { WARPS = RVI_CUDA_SPAN_WARPS };
    __shared__ float p_of[WARPS][32], ds_of[WARPS][32], parts[WARPS][RVI_CUDA_MAX_HEAD];
    const rvi_cuda_span *spans = as<const rvi_cuda_span>(a.spans), *own;
    int key = blockIdx.x, kv = blockIdx.y, size = a.head_size, lane = threadIdx.x % 32, warp = threadIdx.x / 32,
        group = a.n_heads / a.n_kv_heads, chunk = 0;
    own = &spans[as<const int32_t>(a.span_of)[key]];
    int key_pos = own->pos + key - own->first;
    key_sums sums = {};
    for (int i = 0; i < own->n_seen_by; i++) {
        const rvi_cuda_span *s = &spans[as<const int32_t>(a.seen_by)[own->seen_by + i]];
        int skipped = i ? 0 : key - own->first, n = (s->n - skipped) * group;
        for (int item = 0; item < n; item += 32, chunk++)
            if (chunk % WARPS == warp)
                add_queries(a, &sums, key, kv, key_pos, s->first + skipped, s->pos + skipped, item, n, p_of[warp], ds_of[warp]);
    }
    for (int which = 0; which < 2; which++) {
        float *out = row_of(which ? a.dv : a.dk, key) + kv * size;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < SPAN_ELEMENTS; i++)
            if (lane + 32 * i < size) parts[warp][lane + 32 * i] = which ? sums.dv[i] : sums.dk[i];
        __syncthreads();
        for (int e = threadIdx.x; e < size; e += blockDim.x) {
            float sum = parts[0][e];
            for (int w = 1; w < WARPS; w++) sum += parts[w][e];
            out[e] = sum;
        }
    }
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
