/* draw.cuh - what the host needs of a row of logits to pick a token (backend/draw.h), by two kernels.
 *
 * draw_look finds the largest logit, and a floor above which lie RVI_DRAW_LEAST logits or some more: the largest of
 * every few neighbours are looked at (spots), and as many of these as are wanted lie above the floor. draw_weigh
 * collects the logits from the floor on and adds up weights, each sum in the order that is written down; what it draws
 * follows from these sums. A block has RVI_CUDA_DRAW_PIECE columns of a row, the last block of a row to end does what
 * is left. Neither collects in an order of its own: ids are sorted. */

enum { SPOT_GROUPS = RVI_CUDA_DRAW_PIECE / 64, SUM_RUN_BLOCKS = RVI_SUM_RUN / RVI_SUM_BLOCK };

/* The scratch of a row, see rvi_cuda_draw_args. */
struct draw_row {
    const float *x;
    rvi_drawn *out;
    rvi_cuda_draw_head *head;
    float *spots;
    double *weights, *exps; /* by block */
    int32_t *ids;
    float *logits;
    int n, blocks;
};

static __device__ draw_row draw_row_of(const rvi_cuda_draw_args &a, int row)
{
    uint8_t *at = as<uint8_t>(a.scratch) + (size_t)row * RVI_CUDA_DRAW_BYTES;
    draw_row r;
    r.n = a.x.n;
    r.blocks = (a.x.n + RVI_SUM_BLOCK - 1) / RVI_SUM_BLOCK;
    r.x = row_of(a.x, row);
    r.out = as<rvi_drawn>(a.out) + row;
    r.head = (rvi_cuda_draw_head *)at;
    r.weights = (double *)(at + sizeof(rvi_cuda_draw_head));
    r.exps = r.weights + RVI_CUDA_DRAW_BLOCKS;
    r.spots = (float *)(r.exps + RVI_CUDA_DRAW_BLOCKS);
    r.ids = (int32_t *)(r.spots + RVI_CUDA_DRAW_SPOTS);
    r.logits = (float *)(r.ids + RVI_DRAW_MOST);
    return r;
}

/* Ordered as the floats are; -0 and 0 are equals. */
static __device__ uint32_t key_of(float x)
{
    uint32_t bits = __float_as_uint(x + 0.0f);
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

/* Is this the last of the row's blocks to arrive? What all of them have written can be read then. */
static __device__ bool is_last(int32_t *arrived, int pieces)
{
    __shared__ int last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        last = atomicAdd(arrived, 1) == pieces - 1;
        if (last) *arrived = 0;
    }
    __syncthreads();
    if (last) __threadfence();
    return last;
}

/* Grid: rows, pieces. */
KERNEL draw_look(rvi_cuda_draw_args a)
{
    __shared__ uint32_t keys[RVI_CUDA_DRAW_SPOTS];
    begin();
    draw_row r = draw_row_of(a, blockIdx.x);
    const float none = -16777216.0f;
    int lane = threadIdx.x % 32, groups = (r.n + 63) / 64, spots = (r.n + a.spot - 1) / a.spot;
    int first = blockIdx.y * SPOT_GROUPS, end = min(first + SPOT_GROUPS, groups);
    float wrong = 0, masked = 0;
#pragma unroll 4
    for (int g = first + (int)threadIdx.x / 32; g < end; g += WARPS) {
        int i = g * 64 + lane;
        float u = i < r.n ? r.x[i] : -INFINITE, v = i + 32 < r.n ? r.x[i + 32] : -INFINITE;
        if (!(u < INFINITE) || !(v < INFINITE)) wrong = 1;
        if ((i < r.n && u == -INFINITE) || (i + 32 < r.n && v == -INFINITE)) masked = 1;
        for (int d = a.spot / 2; d; d >>= 1) {
            u = fmaxf(u, __shfl_xor_sync(0xffffffff, u, d));
            v = fmaxf(v, __shfl_xor_sync(0xffffffff, v, d));
        }
        if (lane % a.spot == 0 && i < r.n) r.spots[i / a.spot] = u;
        if (lane % a.spot == 0 && i + 32 < r.n) r.spots[(i + 32) / a.spot] = v;
    }
    wrong = block_max(wrong);
    masked = block_max(masked);
    if (threadIdx.x == 0) r.head->flags[blockIdx.y] = (wrong > 0 ? 1 : 0) | (masked > 0 ? 2 : 0);
    if (!is_last(&r.head->looked, a.pieces)) return;

    const rvi_draw_ask *ask = as<const rvi_draw_ask>(a.asks) + blockIdx.x;
    int wants = __ldcv(&ask->wants), flags = 0;
    float top = -INFINITE;
    if ((int)threadIdx.x < a.pieces) flags = __ldcg(&r.head->flags[threadIdx.x]);
    wrong = block_max((float)(flags & 1));
    masked = block_max((float)(flags & 2));
    for (int s = threadIdx.x; s < spots; s += blockDim.x) {
        float v = __ldcg(&r.spots[s]);
        keys[s] = key_of(v);
        top = fmaxf(top, v);
    }
    top = block_max(top);
    float place = none;
    for (int s = threadIdx.x; s < spots && place == none; s += blockDim.x)
        if (keys[s] == key_of(top)) place = -(float)s;
    int at = (int)-block_max(place) * a.spot + (int)threadIdx.x;
    place = block_max((int)threadIdx.x < a.spot && at < r.n && r.x[at] == top ? -(float)at : none);
    bool fine = wrong == 0 && top > -INFINITE;

    uint32_t floor = wants & RVI_DRAW_TOP ? 0 : 0xffffffffu;
    int least = min((int)RVI_DRAW_LEAST, spots / 2);
    bool all = r.n <= RVI_DRAW_MOST;
    for (uint32_t bit = 0x80000000u; bit && fine && floor != 0xffffffffu && !all; bit >>= 1) {
        float above = 0;
        for (int s = threadIdx.x; s < spots; s += blockDim.x) above += keys[s] >= (floor | bit);
        int n = (int)block_sum(above);
        if (n < least) continue;
        floor |= bit;
        if (n <= least + least / 4) break;
    }
    if (threadIdx.x == 0) {
        rvi_cuda_draw_head *h = r.head;
        h->random = __ldcv(&ask->random);
        h->temperature = __ldcv(&ask->temperature);
        h->wants = fine ? wants & (RVI_DRAW_TOP | RVI_DRAW_WEIGHTS | RVI_DRAW_EXPS) : 0;
        h->top = top;
        h->floor = floor;
        h->possible = masked == 0;
        h->n = 0;
        r.out->best = fine ? (int32_t)-place : -1;
        r.out->best_logit = top;
        r.out->possible = masked == 0;
        r.out->drawn = -1;
        r.out->n = 0;
    }
}

/* As rvi_candidates_scale and rvi_candidates_weigh of the host. */
struct draw_scale {
    float temperature, shift, best;
};

static __device__ float scaled(float x, const draw_scale &s)
{
    const float lowest = -3.40282346638528859812e+38f;
    if (s.temperature == 1.0f) return x;
    float y = (x - s.shift) / s.temperature;
    return y > lowest ? y : lowest;
}

static __device__ draw_scale scale_of(const rvi_cuda_draw_head *h)
{
    draw_scale s = {h->temperature, 0, 0};
    if (s.temperature != 1.0f && !isfinite(h->top / s.temperature)) s.shift = h->top;
    s.best = scaled(h->top, s);
    return s;
}

static __device__ float weight_of(float logit, const draw_scale &s)
{
    const float lowest = -86.0f, magic = 12582912.0f;
    float x = scaled(logit, s) - s.best, v = x > lowest ? x : lowest;
    float shifted = v * 1.44269504f + magic, k = shifted - magic;
    float r = (v - k * 0.693359375f) - k * -2.12194440e-4f;
    float p = 1.0f / 5040;
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = (p * r + 1.0f) * r + 1.0f;
    return x < lowest ? 0.0f : __uint_as_float(__float_as_uint(p) + (__float_as_uint(shifted) << 23));
}

static __device__ double exp_of(float logit, float top)
{
    const double lowest = -708.0, magic = 6755399441055744.0;
    double x = (double)logit - (double)top, v = x > lowest ? x : lowest;
    double shifted = v * 1.4426950408889634 + magic, k = shifted - magic;
    double r = (v - k * 0.693147180369123816490) - k * 1.90821492927058770002e-10;
    double p = 1.0 / 3628800;
    p = p * r + 1.0 / 362880;
    p = p * r + 1.0 / 40320;
    p = p * r + 1.0 / 5040;
    p = p * r + 1.0 / 720;
    p = p * r + 1.0 / 120;
    p = p * r + 1.0 / 24;
    p = p * r + 1.0 / 6;
    p = p * r + 0.5;
    p = (p * r + 1.0) * r + 1.0;
    uint64_t bits = (uint64_t)__double_as_longlong(p) + ((uint64_t)__double_as_longlong(shifted) << 52);
    return x < lowest ? 0.0 : __longlong_as_double((long long)bits);
}

/* Of 8 neighbouring lanes. */
static __device__ double tree_of_lanes(double v)
{
    for (int d = 1; d < RVI_SUM_LANES; d *= 2) v += __shfl_xor_sync(0xffffffff, v, d);
    return v;
}

static __device__ void collect(const draw_row &r, int i, float v)
{
    int at = atomicAdd(&r.head->n, 1);
    if (at < RVI_DRAW_MOST) {
        r.ids[at] = i;
        r.logits[at] = v;
    }
}

struct draw_sums {
    double weight, exp;
};

static __device__ void add_element(const draw_row &r, int i, int wants, uint32_t floor, const draw_scale &s, float top, draw_sums &to)
{
    float v = r.x[i];
    if (key_of(v) >= floor) collect(r, i, v);
    if (wants & RVI_DRAW_WEIGHTS) to.weight += (double)weight_of(v, s);
    if (wants & RVI_DRAW_EXPS) to.exp += exp_of(v, top);
}

/* Of all blocks, by one thread. */
static __device__ double sum_of_runs(const double *runs, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += runs[i];
    return sum;
}

/* Takes away whole ones that lie before `at`, as long as more than one is left; returns how many. */
static __device__ int skip(double &at, const double *sums, int n)
{
    int i = 0;
    for (; i < n - 1 && !(at < sums[i]); i++) at -= sums[i];
    return i;
}

/* The token at `at`, in block `block` or, should rounding leave something, behind it. All threads. */
static __device__ void draw_token(const draw_row &r, const draw_scale &s, double at, int block)
{
    __shared__ float weight[RVI_SUM_BLOCK];
    __shared__ int more;
    int chosen = 0;
    for (; block < r.blocks; block++) {
        int first = block * RVI_SUM_BLOCK, n = min((int)RVI_SUM_BLOCK, r.n - first);
        if ((int)threadIdx.x < n) weight[threadIdx.x] = weight_of(r.x[first + threadIdx.x], s);
        __syncthreads();
        if (threadIdx.x == 0) {
            more = 1;
#pragma unroll 8
            for (int i = 0; i < n; i++) {
                double w = (double)weight[i];
                if (!(w > 0)) continue;
                chosen = first + i;
                if (at < w) {
                    more = 0;
                    break;
                }
                at -= w;
            }
        }
        __syncthreads();
        if (!more) break;
    }
    if (threadIdx.x == 0) {
        r.out->drawn = chosen;
        r.out->drawn_logit = r.x[chosen];
    }
}

/* Grid: rows, pieces. */
KERNEL draw_weigh(rvi_cuda_draw_args a)
{
    __shared__ double sums[RVI_CUDA_DRAW_BLOCKS], runs[2][RVI_CUDA_DRAW_BLOCKS / SUM_RUN_BLOCKS], left;
    __shared__ int32_t ids[2][RVI_DRAW_MOST];
    __shared__ float logits[RVI_DRAW_MOST];
    __shared__ int from;
    begin();
    draw_row r = draw_row_of(a, blockIdx.x);
    int wants = r.head->wants, t = threadIdx.x;
    if (!wants) return;
    uint32_t floor = r.head->floor;
    float top = r.head->top;
    draw_scale s = scale_of(r.head);
    int block = blockIdx.y * (RVI_CUDA_DRAW_PIECE / RVI_SUM_BLOCK) + t / RVI_SUM_LANES, lane = t % RVI_SUM_LANES;
    int first = block * RVI_SUM_BLOCK, n = max(0, min((int)RVI_SUM_BLOCK, r.n - first)), whole = n / RVI_SUM_LANES * RVI_SUM_LANES;
    draw_sums sum = {0, 0}, rest = {0, 0};
#pragma unroll 4
    for (int i = lane; i < whole; i += RVI_SUM_LANES) add_element(r, first + i, wants, floor, s, top, sum);
    for (int i = whole; i < n && lane == 0; i++) add_element(r, first + i, wants, floor, s, top, rest);
    sum.weight = tree_of_lanes(sum.weight) + rest.weight;
    sum.exp = tree_of_lanes(sum.exp) + rest.exp;
    if (lane == 0 && block < r.blocks) {
        r.weights[block] = sum.weight;
        r.exps[block] = sum.exp;
    }
    if (!is_last(&r.head->weighed, a.pieces)) return;

    int n_runs = (r.blocks + SUM_RUN_BLOCKS - 1) / SUM_RUN_BLOCKS, found = __ldcg(&r.head->n);
    bool fit = found <= RVI_DRAW_MOST;
    for (int i = t; i < r.blocks; i += blockDim.x) sums[i] = __ldcg(&r.weights[i]);
    for (int i = t; i < found && fit; i += blockDim.x) ids[0][i] = __ldcg(&r.ids[i]);
    if (t < 2 * n_runs) {
        const double *of = t < n_runs ? r.weights : r.exps;
        int run = t % n_runs, end = min((run + 1) * SUM_RUN_BLOCKS, r.blocks);
        double v = 0;
        for (int i = run * SUM_RUN_BLOCKS; i < end; i++) v += __ldcg(&of[i]);
        runs[t / n_runs][run] = v;
    }
    __syncthreads();
    if (t == 0) {
        double all = sum_of_runs(runs[0], n_runs), at = r.head->random * all;
        int run = skip(at, runs[0], n_runs), begin_at = run * SUM_RUN_BLOCKS;
        from = begin_at + skip(at, sums + begin_at, r.blocks - begin_at);
        left = at;
        r.out->weights = all;
    } else if (t == 32) {
        r.out->exps = sum_of_runs(runs[1], n_runs);
    } else if (t >= 64 && fit) { /* the place of an id is how many are smaller */
        for (int i = t - 64; i < found; i += blockDim.x - 64) {
            int mine = ids[0][i], place = 0;
            for (int k = 0; k < found; k++) place += ids[0][k] < mine;
            ids[1][place] = mine;
            logits[place] = __ldcg(&r.logits[i]);
        }
    }
    __syncthreads();
    for (int i = t; i < found && fit; i += blockDim.x) {
        r.out->ids[i] = ids[1][i];
        r.out->logits[i] = logits[i];
    }
    if (t == 0) r.out->n = fit ? found : -1;
    if ((wants & RVI_DRAW_WEIGHTS) && r.head->random >= 0 && r.head->possible) draw_token(r, s, left, from);
}
