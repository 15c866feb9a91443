/* pages.cuh - keys and values to pages, and attention over pages of any type by the order `keys` of kernels.cu. */

/* ---- keys and values; pages are laid out as kernels/kernels.h says ---- */

enum { KV_F32, KV_F16, KV_Q8 };

static __device__ uint8_t *planes(const rvi_cuda_kv &kv, int row, int page, int head)
{
    int2 r = as<const int2>(kv.rows)[row];
    int32_t number = as<const int32_t>(kv.tables)[r.x + page];
    return as<uint8_t>(kv.data) + (size_t)number * kv.page_bytes +
           ((size_t)kv.il * kv.n_kv_heads + head) * (kv.k_bytes + kv.v_bytes);
}

/* int8 with one scale: what quantize_head of kernels.h gives. */
static __device__ float head_scale(const float *x, int n, float *inverse)
{
    float amax = 0, bad = 0;
    for (int e = threadIdx.x; e < n; e += blockDim.x) {
        amax = fmaxf(amax, fabsf(x[e]));
        if (!isfinite(x[e])) bad = 1;
    }
    amax = block_max(amax);
    bad = block_max(bad);
    bool zero = bad > 0 || amax < 1e-30f;
    *inverse = zero ? 0.0f : 127.0f / amax;
    return bad > 0 ? NOT_A_NUMBER : zero ? 0.0f : amax / 127.0f;
}

static __device__ int8_t quant(float x, float inverse)
{
    return inverse == 0.0f ? (int8_t)0 : (int8_t)rintf(x * inverse);
}

/* Is an element of a value not finite, or not in f16? Attention multiplies values that a query does not see by 0, and so
 * f16 pages have none: the head's whole value is zeros, and its key is NaN, for those that see it. */
static __device__ __forceinline__ bool is_out(float v)
{
    return !(fabsf(v) < 65520.0f);
}

/* k, v: of one head of a row. */
static __device__ void write_head(const rvi_cuda_kv &kv, int row, int head, const float *k, const float *v)
{
    int n = kv.head_size, padded = kv.padded, pos = as<const int2>(kv.rows)[row].y, slot = pos % RVI_CUDA_PAGE;
    uint8_t *k_plane = planes(kv, row, pos / RVI_CUDA_PAGE, head), *v_plane = k_plane + kv.k_bytes;
    if (kv.type == KV_Q8) {
        float k_inverse, v_inverse, kd = head_scale(k, n, &k_inverse), vd = head_scale(v, n, &v_inverse);
        int fours = (n + 3) / 4;
        for (int e = threadIdx.x; e < fours * 4; e += blockDim.x)
            k_plane[(e / 4 * RVI_CUDA_PAGE + slot) * 4 + e % 4] = (uint8_t)(e < n ? quant(k[e], k_inverse) : 0);
        for (int e = threadIdx.x; e < padded; e += blockDim.x)
            v_plane[slot * padded + e] = (uint8_t)(e < n ? quant(v[e], v_inverse) : 0);
        if (threadIdx.x == 0) {
            ((float *)(k_plane + (size_t)fours * RVI_CUDA_PAGE * 4))[slot] = kd;
            ((float *)(v_plane + (size_t)RVI_CUDA_PAGE * padded))[slot] = vd;
        }
        return;
    }
    bool lost = false;
    if (kv.type == KV_F16) {
        for (int e = threadIdx.x; e < n; e += blockDim.x) lost = lost || is_out(v[e]);
        lost = __syncthreads_or(lost);
    }
    for (int e = threadIdx.x; e < padded; e += blockDim.x) {
        float kx = e < n ? k[e] : 0.0f, vx = e < n ? v[e] : 0.0f;
        if (lost) kx = NOT_A_NUMBER, vx = 0.0f;
        if (kv.type == KV_F32) {
            if (e < n) ((float *)k_plane)[e * RVI_CUDA_PAGE + slot] = kx;
            ((float *)v_plane)[slot * padded + e] = vx;
        } else {
            if (e < n) ((uint16_t *)k_plane)[e * RVI_CUDA_PAGE + slot] = to_half(kx);
            ((uint16_t *)v_plane)[slot * padded + e] = to_half(vx);
        }
    }
}

/* Grid: rows, heads. */
KERNEL kv_write(rvi_cuda_kv_write_args a)
{
    begin();
    int n = a.kv.head_size;
    write_head(a.kv, blockIdx.x, blockIdx.y, row_of(a.k, blockIdx.x) + blockIdx.y * n,
               row_of(a.v, blockIdx.x) + blockIdx.y * n);
}

/* rope of queries and keys, then kv_write. Grid: rows, heads of keys, then of queries by QUERY_HEADS. */
KERNEL rope_kv(rvi_cuda_rope_kv_args a)
{
    begin();
    __shared__ float turned[RVI_CUDA_MAX_HEAD];
    int row = blockIdx.x, n = a.kv.head_size, n_pairs = a.angles.n / 2, queries = a.x.n / n - a.kv.n_kv_heads;
    int head = blockIdx.y, first = (head - a.kv.n_kv_heads) * RVI_CUDA_QUERY_HEADS;
    const float *cosines = row_of(a.angles, row), *sines = cosines + n_pairs;
    float *x = row_of(a.x, row) + (first >= 0 ? first : queries + head) * n;
    if (first >= 0) {
#pragma unroll 4
        for (uint32_t i = threadIdx.x; i < min(RVI_CUDA_QUERY_HEADS, queries - first) * (uint32_t)n_pairs; i += blockDim.x) {
            uint32_t p = i % n_pairs;
            turn(x + i / n_pairs * n, x + i / n_pairs * n, cosines[p], sines[p], p, n_pairs, a.interleaved);
        }
        return;
    }
    for (int e = threadIdx.x + 2 * n_pairs; e < n; e += blockDim.x) turned[e] = x[e];
    for (int p = threadIdx.x; p < n_pairs; p += blockDim.x) turn(x, turned, cosines[p], sines[p], p, n_pairs, a.interleaved);
    __syncthreads();
    for (int e = threadIdx.x; e < n; e += blockDim.x) x[e] = turned[e]; /* other sequences may get it, too */
    write_head(a.kv, row, head, turned, row_of(a.v, row) + head * n);
}

/* ---- attention ---- */

enum { ELEMENTS = RVI_CUDA_MAX_HEAD / RVI_CUDA_ATTENTION }; /* of a head, for one thread */

/* What a run of chunks gives: the maximum, the sum of weights, the values of elements t, t + 128, ... */
struct mix {
    float m, l, acc[ELEMENTS];
};

template <int TYPE> static __device__ float score(const rvi_cuda_kv &kv, const uint8_t *plane, int slot, const float *q)
{
    int n = kv.head_size;
    float sum = 0;
#pragma unroll 16
    for (int e = 0; e < n; e++) {
        int at = TYPE == KV_Q8 ? (e / 4 * RVI_CUDA_PAGE + slot) * 4 + e % 4 : e * RVI_CUDA_PAGE + slot;
        float k = TYPE == KV_F32   ? ((const float *)plane)[at]
                  : TYPE == KV_F16 ? from_half(((const uint16_t *)plane)[at])
                                   : (float)((const int8_t *)plane)[at];
        sum = fmaf(q[e], k, sum);
    }
    if (TYPE == KV_Q8) sum *= ((const float *)(plane + (size_t)((n + 3) / 4) * 4 * RVI_CUDA_PAGE))[slot];
    return sum;
}

template <int TYPE>
static __device__ void add_value(const rvi_cuda_kv &kv, const uint8_t *plane, int slot, float p, float *acc)
{
    int at = slot * kv.padded;
    if (TYPE == KV_Q8) p *= ((const float *)(plane + (size_t)RVI_CUDA_PAGE * kv.padded))[slot];
#pragma unroll
    for (int i = 0; i < ELEMENTS; i++) {
        int e = threadIdx.x + i * RVI_CUDA_ATTENTION;
        if (e >= kv.head_size) break;
        float v = TYPE == KV_F32   ? ((const float *)plane)[at + e]
                  : TYPE == KV_F16 ? from_half(((const uint16_t *)plane)[at + e])
                                   : (float)((const int8_t *)plane)[at + e];
        acc[i] = fmaf(p, v, acc[i]);
    }
}

static __device__ int first_key(const rvi_cuda_attention_args &a, int pos)
{
    return a.window && pos >= a.window ? pos - a.window + 1 : 0;
}

/* q: the scaled query in shared memory; p: room for the weights of a chunk. */
template <int TYPE>
static __device__ mix chunk_of(const rvi_cuda_attention_args &a, int row, int kv_head, int chunk, const float *q, float *p)
{
    enum { PAGES = RVI_CUDA_CHUNK / RVI_CUDA_PAGE };
    __shared__ const uint8_t *page[PAGES];
    int pos = as<const int2>(a.kv.rows)[row].y, base = chunk * RVI_CUDA_CHUNK;
    int from = max(first_key(a, pos) - base, 0), end = min(pos + 1 - base, (int)RVI_CUDA_CHUNK);
    float top = -INFINITE, sum = 0;
    __syncthreads();
    if (threadIdx.x < PAGES && (int)threadIdx.x * RVI_CUDA_PAGE < end)
        page[threadIdx.x] = planes(a.kv, row, base / RVI_CUDA_PAGE + threadIdx.x, kv_head);
    __syncthreads();
    for (int key = threadIdx.x; key < RVI_CUDA_CHUNK; key += RVI_CUDA_ATTENTION) {
        float s = -INFINITE;
        if (key >= from && key < end) {
            s = score<TYPE>(a.kv, page[key / RVI_CUDA_PAGE], key % RVI_CUDA_PAGE, q);
            if (a.soft_cap > 0) s = capped(s, a.soft_cap);
        }
        p[key] = s;
        top = s != s ? s : fmaxf(top, s);
    }
    mix x = {};
    x.m = block_max(top);
    for (int key = threadIdx.x; key < RVI_CUDA_CHUNK; key += RVI_CUDA_ATTENTION) {
        float w = key >= from && key < end ? expf(p[key] - x.m) : 0.0f;
        p[key] = w;
        sum += w;
    }
    x.l = block_sum(sum);
#pragma unroll 8
    for (int key = from; key < end; key++)
        add_value<TYPE>(a.kv, page[key / RVI_CUDA_PAGE] + a.kv.k_bytes, key % RVI_CUDA_PAGE, p[key], x.acc);
    return x;
}

static __device__ mix chunk_mix(const rvi_cuda_attention_args &a, int row, int kv_head, int chunk, const float *q, float *p)
{
    return a.kv.type == KV_F32   ? chunk_of<KV_F32>(a, row, kv_head, chunk, q, p)
           : a.kv.type == KV_F16 ? chunk_of<KV_F16>(a, row, kv_head, chunk, q, p)
                                 : chunk_of<KV_Q8>(a, row, kv_head, chunk, q, p);
}

static __device__ void merge(mix *x, const mix &y)
{
    float top = fmaxf(x->m, y.m), c = expf(x->m - top), d = expf(y.m - top);
    x->m = top;
    x->l = x->l * c + y.l * d;
#pragma unroll
    for (int i = 0; i < ELEMENTS; i++) x->acc[i] = x->acc[i] * c + y.acc[i] * d;
}

static __device__ void put(const rvi_cuda_attention_args &a, int row, int head, const mix &x)
{
    float *out = row_of(a.out, row) + head * a.kv.head_size, r = 1.0f / x.l;
#pragma unroll
    for (int i = 0; i < ELEMENTS; i++) {
        int e = threadIdx.x + i * RVI_CUDA_ATTENTION;
        if (e < a.kv.head_size) out[e] = x.acc[i] * r;
    }
}

static __device__ float *part_at(const rvi_cuda_attention_args &a, int row, int head, int part)
{
    return as<float>(a.parts) + (((size_t)row * a.n_heads + head) * a.n_parts + part) * (a.kv.padded + RVI_CUDA_PART_MORE);
}

/* Grid: heads, rows, parts. With parts, part i is the chunk that lies i behind the row's first one, and
 * attention_merge follows; without, a block takes all chunks of its row. */
KERNEL attention(rvi_cuda_attention_args a)
{
    begin();
    __shared__ float q[RVI_CUDA_MAX_HEAD], p[RVI_CUDA_CHUNK];
    int head = blockIdx.x, row = blockIdx.y, n = a.kv.head_size, kv_head = head / (a.n_heads / a.kv.n_kv_heads);
    int pos = as<const int2>(a.kv.rows)[row].y;
    int first = first_key(a, pos) / RVI_CUDA_CHUNK, last = pos / RVI_CUDA_CHUNK;
    if (a.n_parts && first + (int)blockIdx.z > last) return;
    const float *x = row_of(a.q, row) + head * n;
    for (int e = threadIdx.x; e < n; e += blockDim.x) q[e] = x[e] * a.scale;
    __syncthreads();
    mix all = chunk_mix(a, row, kv_head, first + blockIdx.z, q, p);
    if (!a.n_parts) {
        for (int c = first + 1; c <= last; c++) merge(&all, chunk_mix(a, row, kv_head, c, q, p));
        put(a, row, head, all);
        return;
    }
    float *part = part_at(a, row, head, blockIdx.z);
    for (int i = 0; i < ELEMENTS; i++) {
        int e = threadIdx.x + i * RVI_CUDA_ATTENTION;
        if (e < n) part[e] = all.acc[i];
    }
    if (threadIdx.x == 0) part[a.kv.padded] = all.m, part[a.kv.padded + 1] = all.l;
}

static __device__ mix part_mix(const rvi_cuda_attention_args &a, const float *part)
{
    mix x = {};
    x.m = part[a.kv.padded], x.l = part[a.kv.padded + 1];
#pragma unroll
    for (int i = 0; i < ELEMENTS; i++) {
        int e = threadIdx.x + i * RVI_CUDA_ATTENTION;
        if (e < a.kv.head_size) x.acc[i] = part[e];
    }
    return x;
}

KERNEL attention_merge(rvi_cuda_attention_args a)
{
    begin();
    int head = blockIdx.x, row = blockIdx.y, pos = as<const int2>(a.kv.rows)[row].y;
    int n = pos / RVI_CUDA_CHUNK - first_key(a, pos) / RVI_CUDA_CHUNK + 1;
    mix all = part_mix(a, part_at(a, row, head, 0));
    for (int c = 1; c < n; c++) merge(&all, part_mix(a, part_at(a, row, head, c)));
    put(a, row, head, all);
}
