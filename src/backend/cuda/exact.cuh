/* exact.cuh - products with weights in rows (weights.h): all that an exact backend has, and of others the types that have no
 * panels. The order is `dot` of kernels.cu. */

/* ---- weights: a unit of 32 weights to floats ----
 *
 * main, head: of the unit's block; sub: which 32 of it. Every operation is rounded, in the order of
 * formats/quant.c, so the floats are those of the CPU. */

enum weight_type {
#define X(name, weights, before, main, after) name,
    RVI_CUDA_TYPES(X)
#undef X
};

template <int TYPE> struct layout_of;
#define X(name, weights, before, main_bytes, after)                                                                    \
    template <> struct layout_of<name> {                                                                               \
        enum { WEIGHTS = weights, MAIN = main_bytes, HEAD = before + after };                                          \
    };
RVI_CUDA_TYPES(X)
#undef X

static __device__ float half_at(const uint8_t *p)
{
    return from_half(*(const uint16_t *)p);
}

static __device__ uint32_t word_at(const uint8_t *p) /* aligned to 2 */
{
    return ((const uint16_t *)p)[0] | (uint32_t)((const uint16_t *)p)[1] << 16;
}

/* 16 bytes */
struct bytes16 {
    uint32_t w[4];
    __device__ int operator[](int i) const { return w[i / 4] >> (i % 4 * 8) & 255; }
    __device__ int byte(int i) const { return (int)(int8_t)(*this)[i]; }
};

static __device__ bytes16 load16(const uint8_t *p)
{
    uint4 v = __ldg((const uint4 *)p);
    return {{v.x, v.y, v.z, v.w}};
}

static __device__ const int8_t iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                 1,    13,   25,  38,  53,  69,  89,  113};

static __device__ void scale_min(const uint8_t *s, int j, int *scale, int *min)
{
    if (j < 4) {
        *scale = s[j] & 63;
        *min = s[j + 4] & 63;
    } else {
        *scale = (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
        *min = s[j + 4] >> 4 | (s[j] >> 6) << 4;
    }
}

template <int TYPE>
static __device__ void decode(const uint8_t *main, const uint8_t *head, int sub, float w[32])
{
    if constexpr (TYPE == F32) {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            float4 v = __ldg((const float4 *)main + i);
            w[4 * i] = v.x, w[4 * i + 1] = v.y, w[4 * i + 2] = v.z, w[4 * i + 3] = v.w;
        }
    } else if constexpr (TYPE == F16 || TYPE == BF16) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            bytes16 q = load16(main + 16 * i);
#pragma unroll
            for (int j = 0; j < 8; j++) {
                uint32_t bits = q.w[j / 2] >> (j % 2 * 16) & 0xffff;
                w[8 * i + j] =
                    TYPE == F16 ? from_half((uint16_t)bits) : __uint_as_float(bits << 16);
            }
        }
    } else if constexpr (TYPE == Q8_0) {
        float d = half_at(head);
        bytes16 low = load16(main), high = load16(main + 16);
#pragma unroll
        for (int i = 0; i < 16; i++) {
            w[i] = (float)low.byte(i) * d;
            w[16 + i] = (float)high.byte(i) * d;
        }
    } else if constexpr (TYPE == Q4_0 || TYPE == Q4_1 || TYPE == Q5_0 || TYPE == Q5_1 || TYPE == IQ4_NL) {
        const bool has_min = TYPE == Q4_1 || TYPE == Q5_1, has_fifth = TYPE == Q5_0 || TYPE == Q5_1;
        float d = half_at(head), m = has_min ? half_at(head + 2) : 0.0f;
        uint32_t fifth = has_fifth ? word_at(head + (has_min ? 4 : 2)) : 0;
        bytes16 q = load16(main);
#pragma unroll
        for (int i = 0; i < 32; i++) {
            int v = i < 16 ? q[i] & 15 : q[i - 16] >> 4;
            if (has_fifth) v |= (fifth >> i & 1) << 4;
            if (TYPE == IQ4_NL)
                w[i] = d * (float)iq4_values[v];
            else if (has_min)
                w[i] = d * (float)v + m;
            else
                w[i] = d * (float)(v - (has_fifth ? 16 : 8));
        }
    } else if constexpr (TYPE == Q2_K) {
        float d = half_at(head + 16), dmin = half_at(head + 18);
        const uint8_t *qs = main + sub / 4 * 32;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int scale = head[2 * sub + h];
            float dl = d * (float)(scale & 15), ml = dmin * (float)(scale >> 4);
            bytes16 q = load16(qs + 16 * h);
#pragma unroll
            for (int i = 0; i < 16; i++) w[16 * h + i] = dl * (float)(q[i] >> (sub % 4 * 2) & 3) - ml;
        }
    } else if constexpr (TYPE == Q3_K) { /* main: third bits, quants; head: scales, d */
        float d = half_at(head + 12);
        const uint8_t *qs = main + 32 + sub / 4 * 32;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int g = 2 * sub + h, low = head[g % 8] >> (g / 8 * 4) & 15, high = head[8 + g % 4] >> (g / 4 * 2) & 3;
            float dl = d * (float)((low | high << 4) - 32);
            bytes16 q = load16(qs + 16 * h), third = load16(main + 16 * h);
#pragma unroll
            for (int i = 0; i < 16; i++)
                w[16 * h + i] = dl * (float)((q[i] >> (sub % 4 * 2) & 3) - (third[i] >> sub & 1 ? 0 : 4));
        }
    } else if constexpr (TYPE == Q4_K || TYPE == Q5_K) { /* main of Q5_K: fifth bits, quants */
        int scale, min;
        scale_min(head + 4, sub, &scale, &min);
        float dl = half_at(head) * (float)scale, ml = half_at(head + 2) * (float)min;
        const uint8_t *qs = main + (TYPE == Q5_K ? 32 : 0) + sub / 2 * 32;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            bytes16 q = load16(qs + 16 * h), fifth = TYPE == Q5_K ? load16(main + 16 * h) : bytes16{};
#pragma unroll
            for (int i = 0; i < 16; i++) {
                int v = q[i] >> (sub % 2 * 4) & 15;
                if (TYPE == Q5_K) v |= (fifth[i] >> sub & 1) << 4;
                w[16 * h + i] = dl * (float)v - ml;
            }
        }
    } else if constexpr (TYPE == Q6_K) { /* main: low, high bits; head: scales, d */
        float d = half_at(head + 16);
        const uint8_t *low = main + sub / 4 * 64 + sub % 2 * 32, *high = main + 128 + sub / 4 * 32;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float dl = d * (float)(int8_t)head[2 * sub + h];
            bytes16 l = load16(low + 16 * h), u = load16(high + 16 * h);
#pragma unroll
            for (int i = 0; i < 16; i++) {
                int v = (l[i] >> (sub % 4 / 2 * 4) & 15) | (u[i] >> (sub % 4 * 2) & 3) << 4;
                w[16 * h + i] = dl * (float)(v - 32);
            }
        }
    } else if constexpr (TYPE == IQ4_XS) { /* head: d, high bits of scales, low bits */
        int low = head[4 + sub / 2] >> (sub % 2 * 4) & 15, high = *(const uint16_t *)(head + 2) >> (2 * sub) & 3;
        float dl = half_at(head) * (float)((low | high << 4) - 32);
        bytes16 q = load16(main + 16 * sub);
#pragma unroll
        for (int i = 0; i < 32; i++) w[i] = dl * (float)iq4_values[i < 16 ? q[i] & 15 : q[i - 16] >> 4];
    }
}

/* ---- products ---- */

enum { STAGED = 8192, WARPS = RVI_CUDA_THREADS / 32, GROUP = 32 * RVI_CUDA_UNIT };

/* Activations of `rows` rows in shared memory: columns k0 .. k0 + n - 1, zeros behind the last. A float4 of
 * a unit lies beside those of the other lanes' units, so that a warp's loads meet every bank once. */
template <int ROWS>
static __device__ void stage(float *xs, const rvi_cuda_matmul_args &a, int row, int k0)
{
    const int n = STAGED / ROWS;
    for (int i = threadIdx.x; i < STAGED; i += blockDim.x) {
        int r = i / n, k = i % n, unit = k / 32;
        float v = row + r < a.n_rows && k0 + k < a.x.n ? row_of(a.x, row + r)[k0 + k] : 0.0f;
        xs[r * n + ((unit / 32 * 8 + k % 32 / 4) * 32 + unit % 32) * 4 + k % 4] = v;
    }
}

template <int TYPE, int ROWS>
static __device__ void add_unit(const uint8_t *row, uint64_t heads, int unit, const float4 *xs, float acc[ROWS])
{
    typedef layout_of<TYPE> L;
    const int per_block = L::WEIGHTS / 32;
    int block = unit / per_block;
    float w[32];
    decode<TYPE>(row + (size_t)block * L::MAIN, row + heads + (size_t)block * L::HEAD, unit % per_block, w);
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int j = 0; j < 8; j++) {
            float4 x = xs[r * (STAGED / ROWS / 4) + j * 32];
            acc[r] = fmaf(w[4 * j], x.x, acc[r]);
            acc[r] = fmaf(w[4 * j + 1], x.y, acc[r]);
            acc[r] = fmaf(w[4 * j + 2], x.z, acc[r]);
            acc[r] = fmaf(w[4 * j + 3], x.w, acc[r]);
        }
}

/* v, v2: with their biases; old: what is there. */
static __device__ __forceinline__ float finished(int finish, float v, float v2, float old)
{
    switch (finish) {
    case RVI_CUDA_ADD: return old + v;
    case RVI_CUDA_SILU: return silu(v) * v2;
    case RVI_CUDA_GELU: return gelu_tanh(v) * v2;
    default: return v;
    }
}

static __device__ void finish(const rvi_cuda_matmul_args &a, int row, int o, float v, float v2)
{
    float *out = row_of(a.out, row) + o;
    if (a.bias) v += as<const float>(a.bias)[o];
    if (a.bias2) v2 += as<const float>(a.bias2)[o];
    *out = finished(a.finish, v, v2, a.finish == RVI_CUDA_ADD ? *out : 0.0f);
}

/* A warp computes one output of ROWS rows. Grid: outputs / WARPS, rows / ROWS. */
template <int TYPE, int ROWS> static __device__ void matmul(const rvi_cuda_matmul_args &a)
{
    __shared__ float4 xs[STAGED / 4];
    int lane = threadIdx.x % 32, o = blockIdx.x * WARPS + threadIdx.x / 32, row = blockIdx.y * ROWS;
    int n_units = (a.x.n + 31) / 32;
    bool mine = o < a.n_out;
    const uint8_t *w = as<const uint8_t>(a.w) + (size_t)o * a.row_bytes;
    const uint8_t *w2 = as<const uint8_t>(a.w2) + (size_t)o * a.row_bytes;
    float acc[ROWS] = {}, acc2[ROWS] = {};
    for (int k0 = 0; k0 < a.x.n; k0 += STAGED / ROWS) {
        __syncthreads();
        stage<ROWS>((float *)xs, a, row, k0);
        __syncthreads();
#pragma unroll 1
        for (int g = 0; mine && g < STAGED / ROWS / GROUP; g++) {
            int unit = k0 / 32 + g * 32 + lane;
            if (unit >= n_units) break;
            add_unit<TYPE, ROWS>(w, a.heads, unit, xs + g * 256 + lane, acc);
            if (a.w2) add_unit<TYPE, ROWS>(w2, a.heads, unit, xs + g * 256 + lane, acc2);
        }
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        float v = tree(acc[r]), v2 = a.w2 ? tree(acc2[r]) : 0.0f;
        if (mine && lane == 0 && row + r < a.n_rows) finish(a, row + r, o, v, v2);
    }
}

#define X(name, weights, before, main, after)                                                                          \
    KERNEL __launch_bounds__(RVI_CUDA_THREADS) matmul_##name##_1(rvi_cuda_matmul_args a) { begin(), matmul<name, 1>(a); }            \
    KERNEL __launch_bounds__(RVI_CUDA_THREADS) matmul_##name##_4(rvi_cuda_matmul_args a) { begin(), matmul<name, 4>(a); }
RVI_CUDA_TYPES(X)
#undef X
