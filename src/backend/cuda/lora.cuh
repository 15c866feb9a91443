/* lora.cuh - adapters: out += B (A x * scale), for all groups and products of an input in two launches.
 *
 * Orders are those of `dot`, a column for each lane's turn: lane l takes columns l, l + 32, ... in order, then the tree.
 * Products with the same `out` are added to it one after the other, in the order of the list. What goes together shows
 * in no row's bits: a row's chains are its own. */

enum { LORA_ROWS = RVI_CUDA_LORA_ROWS, LORA_OUTS = 32 /* of a warp of lora_up */ };

/* n floats are going to be needed, by this warp. */
static __device__ __forceinline__ void fetch_floats(const float *p, int n)
{
    for (int i = threadIdx.x % 32 * 32; i < n; i += 32 * 32) fetch(p + i);
}

/* Row j of A times the tile's rows; those past the last are the last one again. */
template <int ROWS>
static __device__ __forceinline__ void down_rows(const rvi_cuda_lora_args &a, const rvi_cuda_lora_tile &t,
                                                 const rvi_cuda_lora_product &p, int j)
{
    enum { AHEAD = ROWS == 1 ? 16 : ROWS == 8 ? 4 : 8 };
    const float *w = as<const float>(p.a) + (size_t)j * a.x.n, *x[ROWS];
    float acc[ROWS] = {};
#pragma unroll
    for (int r = 0; r < ROWS; r++) x[r] = row_of(a.x, as<const int32_t>(a.rows)[t.first + min(r, t.n_rows - 1)]);
#pragma unroll AHEAD
    for (int i = threadIdx.x % 32; i < a.x.n; i += 32) {
        float v = w[i];
#pragma unroll
        for (int r = 0; r < ROWS; r++) acc[r] = fmaf(v, x[r][i], acc[r]);
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        float v = tree(acc[r]) * p.scale;
        if (threadIdx.x % 32 == 0 && r < t.n_rows) as<float>(a.low)[(size_t)(t.first + r) * RVI_CUDA_LOW + p.low + j] = v;
    }
}

/* Grid: ranks / warps, tiles, products of a group. The lists are there before the list of commands begins, adapters
 * before that. */
KERNEL lora_down(rvi_cuda_lora_args a)
{
    rvi_cuda_lora_tile t = as<const rvi_cuda_lora_tile>(a.tiles)[blockIdx.y];
    int j = blockIdx.x * WARPS + threadIdx.x / 32;
    if ((int)blockIdx.z >= t.n_products) return;
    rvi_cuda_lora_product p = as<const rvi_cuda_lora_product>(a.products)[t.product + blockIdx.z];
    if (j >= p.rank) return;
    if (t.n_rows == 1) fetch_floats(as<const float>(p.a) + (size_t)j * a.x.n, a.x.n);
    begin();
    if (t.n_rows == 1)
        down_rows<1>(a, t, p, j);
    else if (t.n_rows == 2)
        down_rows<2>(a, t, p, j);
    else if (t.n_rows <= 4)
        down_rows<4>(a, t, p, j);
    else
        down_rows<LORA_ROWS>(a, t, p, j);
}

/* Lane l has sums of outputs i 4 + l / 8 over its columns modulo 8, and gets the whole sum of output l % 8 * 4 + l / 8:
 * the rest of the tree, each lane for an output of its own. */
static __device__ __forceinline__ float sum_of_eights(float v[8])
{
#pragma unroll
    for (int d = 4; d; d >>= 1) {
        bool upper = threadIdx.x & d;
#pragma unroll
        for (int i = 0; i < d; i++) {
            float mine = upper ? v[i + d] : v[i], other = upper ? v[i] : v[i + d];
            v[i] = mine + __shfl_xor_sync(0xffffffff, other, d);
        }
    }
    return v[0];
}

/* The warp's 32 outputs of a row: eight lanes have four at a time. */
static __device__ __forceinline__ float up_row(const rvi_cuda_lora_product &p, const float *low, int first)
{
    int eighth = threadIdx.x % 8, last = p.n_out - 1;
    const float *b[8];
    float acc[8][4], v[8];
#pragma unroll
    for (int i = 0; i < 8; i++) b[i] = as<const float>(p.b) + (size_t)min(first + i * 4 + (int)threadIdx.x % 32 / 8, last) * p.rank;
#pragma unroll
    for (int i = 0; i < 32; i++) acc[i / 4][i % 4] = 0;
#pragma unroll 1
    for (int k = eighth; k < (p.rank + 31) / 32 * 32; k += 32) {
        float w[8][4], x[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            int at = k + 8 * j;
            x[j] = at < p.rank ? low[at] : 0.0f;
#pragma unroll
            for (int i = 0; i < 8; i++) w[i][j] = at < p.rank ? b[i][at] : 0.0f;
        }
#pragma unroll
        for (int i = 0; i < 32; i++)
            if (k + 8 * (i % 4) < p.rank) acc[i / 4][i % 4] = fmaf(w[i / 4][i % 4], x[i % 4], acc[i / 4][i % 4]);
    }
#pragma unroll
    for (int i = 0; i < 8; i++) v[i] = (acc[i][0] + acc[i][2]) + (acc[i][1] + acc[i][3]);
    return sum_of_eights(v);
}

/* Grid: outputs / (warps * 32), tiles, products of a group. */
KERNEL lora_up(rvi_cuda_lora_args a)
{
    rvi_cuda_lora_tile t = as<const rvi_cuda_lora_tile>(a.tiles)[blockIdx.y];
    int first = (blockIdx.x * WARPS + threadIdx.x / 32) * LORA_OUTS, lane = threadIdx.x % 32, o = first + lane % 8 * 4 + lane / 8;
    if ((int)blockIdx.z >= t.n_products) return;
    const rvi_cuda_lora_product *of = as<const rvi_cuda_lora_product>(a.products) + t.product + blockIdx.z;
    rvi_cuda_lora_product p = *of;
    int chain = p.chain;
    if (!chain || first >= p.n_out) return;
    if (t.n_rows == 1) fetch_floats(as<const float>(p.b) + (size_t)first * p.rank, min((int)LORA_OUTS, p.n_out - first) * p.rank);
    begin();
#pragma unroll 1
    for (int i = 0; i < chain; i++) {
        if (i) p = of[i];
#pragma unroll 1
        for (int r = 0; r < t.n_rows; r++) {
            float v = up_row(p, as<const float>(a.low) + (size_t)(t.first + r) * RVI_CUDA_LOW + p.low, first);
            float *out = as<float>(p.out) + (size_t)as<const int32_t>(a.rows)[t.first + r] * p.stride + o;
            if (o < p.n_out) *out += v;
        }
    }
}
