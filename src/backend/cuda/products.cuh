/* products.cuh - products with weights in panels (weights.h).
 *
 * Activations: of each 32, int8 by the rule of rvi_act_block (kernels/kernels.h): xd, x. With BF16 weights two
 * bf16: h, the activation rounded, and l, what is left of it rounded.
 *
 *  unit    dot: the exact integer dot product of 32 quants, their offset taken off, with x; sum: of x. d, m: the
 *          f16 scales as f32, times the integer scale where there is one of the unit, rounded.
 *              acc = fma((float)dot, d * xd, acc)        two scales: dot = s0 * (first 16) + s1 * (last 16)
 *              acc = fma(+-m, xd * (float)sum, acc)      where there is an m; two: one step for each 16
 *          BF16: four steps of mma.m16n8k16, of weights 0 1 2 3 of each 8 with h and with l, then of 4 5 6 7.
 *  row     The units of a row are cut into 32 segments of (units + 31) / 32. A segment is one chain over its units
 *          from +0; the segments of each 4 are added in order, then these 8 runs in order.
 *
 * Two kernels have this order: product_row, a lane a segment, for one row; product_tiles on the tensor cores. */

/* ---- activations ---- */

/* Prepared rows lie by row, then by unit: 32 bytes of int8, in words 0 4 1 5 2 6 3 7, for all rows; then {xd, sums of
 * the first and last 16} by unit, then by row. BF16: 8 h, then 8 l. */
struct about {
    float d;
    int16_t first, last;
};

/* 8 lanes have a unit, 4 columns each. */
static __device__ about quantize(const float v[4], uint32_t *q)
{
    float amax = 0;
    for (int i = 0; i < 4; i++) amax = isfinite(v[i]) ? fmaxf(amax, fabsf(v[i])) : INFINITE;
    for (int d = 4; d; d >>= 1) amax = fmaxf(amax, __shfl_xor_sync(0xffffffff, amax, d));
    bool bad = amax == INFINITE, zero = bad || amax < 1e-30f;
    float inverse = zero ? 0.0f : 127.0f / amax;
    int sum = 0;
    *q = 0;
    for (int i = 0; i < 4; i++) {
        int x = zero ? 0 : (int)rintf(v[i] * inverse);
        sum += x;
        *q |= (uint32_t)(x & 255) << (8 * i);
    }
    for (int d = 2; d; d >>= 1) sum += __shfl_xor_sync(0xffffffff, sum, d);
    int other = __shfl_xor_sync(0xffffffff, sum, 4);
    bool low = threadIdx.x % 8 < 4;
    return {bad ? NOT_A_NUMBER : zero ? 0.0f : amax / 127.0f, (int16_t)(low ? sum : other),
            (int16_t)(low ? other : sum)};
}

/* 1 / the root of the mean square of a row. */
static __device__ float norm_factor(const float *x, int n, float eps)
{
    float sum = 0;
#pragma unroll 8
    for (int i = threadIdx.x; i < n; i += blockDim.x) sum = fmaf(x[i], x[i], sum);
    return 1.0f / sqrtf(block_sum(sum) / (float)n + eps);
}

/* Columns k .. k + 3 of a row, normed. */
static __device__ void normed(const rvi_cuda_product_args &a, int row, int k, float r, bool keep, float v[4])
{
    const float *x = row_of(a.x, row), *w = as<const float>(a.norm);
    for (int i = 0; i < 4; i++) {
        v[i] = k + i < a.x.n ? x[k + i] : 0.0f;
        if (!a.norm || k + i >= a.x.n) continue;
        v[i] = (v[i] * r) * w[k + i];
        if (keep) row_of(a.normed, row)[k + i] = v[i];
    }
}

static __device__ uint16_t to_bf16(float f)
{
    uint32_t u = __float_as_uint(f);
    if (f != f) return 0x7fff;
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static __device__ void put_bf16(const float v[4], uint32_t *to)
{
    for (int i = 0; i < 4; i += 2) {
        uint32_t h0 = to_bf16(v[i]), h1 = to_bf16(v[i + 1]);
        to[i / 2] = h0 | h1 << 16;
        to[4 + i / 2] = to_bf16(v[i] - __uint_as_float(h0 << 16)) |
                        (uint32_t)to_bf16(v[i + 1] - __uint_as_float(h1 << 16)) << 16;
    }
}

/* Grid: rows. */
KERNEL prepare(rvi_cuda_product_args a)
{
    begin();
    int row = blockIdx.x, n_units = (a.x.n + 31) / 32;
    float r = a.norm ? norm_factor(row_of(a.x, row), a.x.n, a.eps) : 0.0f, v[4];
    uint32_t *q = as<uint32_t>(a.acts) + (size_t)row * n_units * (a.part[0].type == BF16 ? 32 : 8);
    about *abouts = as<about>(a.acts + (size_t)a.n_rows * n_units * 32);
    for (int i = threadIdx.x; i < (n_units * 8 + 31) / 32 * 32; i += blockDim.x) { /* whole warps */
        normed(a, row, 4 * i, r, true, v);
        if (a.part[0].type == BF16) {
            if (i < n_units * 8) put_bf16(v, q + i / 2 * 8 + i % 2 * 2);
            continue;
        }
        uint32_t word;
        about x = quantize(v, &word);
        if (i >= n_units * 8) continue;
        q[i / 8 * 8 + i % 4 * 2 + i % 8 / 4] = word;
        if (i % 8 == 0) abouts[(size_t)(i / 8) * a.n_rows + row] = x;
    }
}

/* ---- a unit of weights ---- */

template <int TYPE> struct quants_of;
#define X(name, bits, offset, scales, d_units, has_m)                                                                  \
    template <> struct quants_of<name> {                                                                               \
        enum {                                                                                                         \
            BITS = bits,                                                                                               \
            OFFSET = offset,                                                                                           \
            SCALES = scales,                                                                                           \
            D_UNITS = d_units,                                                                                         \
            HAS_M = has_m,                                                                                             \
            LOW = RVI_CUDA_LOW_BYTES(bits),                                                                            \
            HIGH = RVI_CUDA_HIGH_BYTES(bits),                                                                          \
            D = RVI_CUDA_D_BYTES(has_m),                                                                               \
            TWO = scales == 4 || (scales == 2 && !has_m), /* scales of 16 weights */                                   \
        };                                                                                                             \
    };
RVI_CUDA_QUANTS(X)
#undef X

enum { OUTS = RVI_CUDA_PANEL, RUNS = RVI_CUDA_SEGMENTS / 4 };

struct scales {
    float d, m[2]; /* m: with its sign; m[1]: of the last 16, where there are two */
    int s[2];      /* where there are two */
};

template <int TYPE> static __device__ scales scales_at(const uint8_t *panel, int n_units, int unit, int o)
{
    typedef quants_of<TYPE> Q;
    const uint8_t *s = panel + (size_t)n_units * OUTS * (Q::LOW + Q::HIGH), *d = s + (size_t)n_units * OUTS * Q::SCALES;
    int at = unit * OUTS + o, d_at = unit / Q::D_UNITS * OUTS + o;
    scales x = {};
    if constexpr (Q::HAS_M) {
        uint32_t both = __ldg((const uint32_t *)d + d_at);
        x.d = from_half((uint16_t)both);
        x.m[0] = from_half((uint16_t)(both >> 16));
    } else {
        x.d = from_half(__ldg((const uint16_t *)d + d_at));
    }
    if constexpr (Q::SCALES == 1) {
        x.d *= (float)(int8_t)__ldg(s + at);
    } else if constexpr (Q::SCALES == 2 && Q::HAS_M) {
        uint16_t both = __ldg((const uint16_t *)s + at);
        x.d *= (float)(both & 255);
        x.m[0] *= -(float)(both >> 8);
    } else if constexpr (Q::SCALES == 2) {
        uint16_t both = __ldg((const uint16_t *)s + at);
        x.s[0] = (int8_t)both, x.s[1] = (int8_t)(both >> 8);
    } else if constexpr (Q::SCALES == 4) {
        uint32_t all = __ldg((const uint32_t *)s + at);
        float m = x.m[0];
        x.s[0] = all & 255, x.s[1] = all >> 8 & 255;
        x.m[0] = m * -(float)(all >> 16 & 255), x.m[1] = m * -(float)(all >> 24);
    }
    return x;
}

/* Word t of the low plane and what belongs to it: quants 4 t .. 4 t + 3, and those 16 further on. */
template <int TYPE>
static __device__ void quants_of_word(uint32_t low, uint32_t low2, const uint32_t high[2], int t, uint32_t q[2])
{
    typedef quants_of<TYPE> Q;
    if constexpr (Q::BITS == 8) {
        q[0] = low, q[1] = low2;
        return;
    }
    q[0] = low & 0x0f0f0f0f, q[1] = low >> 4 & 0x0f0f0f0f;
    if constexpr (Q::BITS == 5) {
        q[0] |= (high[0] >> t & 0x01010101) << 4;
        q[1] |= (high[0] >> (4 + t) & 0x01010101) << 4;
    } else if constexpr (Q::BITS == 6) {
        q[0] |= (high[0] >> (2 * t) & 0x03030303) << 4;
        q[1] |= (high[1] >> (2 * t) & 0x03030303) << 4;
    }
}

template <int TYPE> static __device__ void high_at(const uint8_t *panel, int n_units, int at, uint32_t high[2])
{
    typedef quants_of<TYPE> Q;
    const uint8_t *p = panel + (size_t)n_units * OUTS * Q::LOW;
    if constexpr (Q::HIGH == 4) high[0] = __ldg((const uint32_t *)p + at);
    if constexpr (Q::HIGH == 8) {
        uint2 v = __ldg((const uint2 *)p + at);
        high[0] = v.x, high[1] = v.y;
    }
}

template <int TYPE> static __device__ float step(const scales &w, int first, int last, const about &x, float acc)
{
    typedef quants_of<TYPE> Q;
    int dot = Q::TWO ? w.s[0] * first + w.s[1] * last : first + last;
    acc = fmaf((float)dot, w.d * x.d, acc);
    if constexpr (Q::SCALES == 4) {
        acc = fmaf(w.m[0], x.d * (float)x.first, acc);
        acc = fmaf(w.m[1], x.d * (float)x.last, acc);
    } else if constexpr (Q::HAS_M) {
        acc = fmaf(w.m[0], x.d * (float)(x.first + x.last), acc);
    }
    return acc;
}

/* ---- one row ---- */

struct staged {
    uint4 q[RVI_CUDA_STAGED / 16]; /* words in order */
    about x[RVI_CUDA_STAGED / 32];
};

template <int TYPE>
static __device__ float segment(const uint8_t *panel, int n_units, int from, int end, int o, const staged &acts)
{
    typedef quants_of<TYPE> Q;
    float acc = 0;
#pragma unroll 4
    for (int unit = from; unit < end; unit++) {
        const uint4 *low = (const uint4 *)panel + (size_t)unit * OUTS * (Q::LOW / 16) + o;
        uint32_t high[2] = {}, q[2];
        bytes16 w = load16((const uint8_t *)low), w2 = Q::BITS == 8 ? load16((const uint8_t *)(low + OUTS)) : bytes16{};
        high_at<TYPE>(panel, n_units, unit * OUTS + o, high);
        scales s = scales_at<TYPE>(panel, n_units, unit, o);
        uint4 a = acts.q[2 * unit], b = acts.q[2 * unit + 1];
        about x = acts.x[unit];
        uint32_t xs[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
        int first = 0, last = 0;
#pragma unroll
        for (int t = 0; t < 4; t++) {
            quants_of_word<TYPE>(w.w[t], w2.w[t], high, t, q);
            first = __dp4a((int)q[0], (int)xs[t], first);
            last = __dp4a((int)q[1], (int)xs[4 + t], last);
        }
        acc = step<TYPE>(s, first - Q::OFFSET * x.first, last - Q::OFFSET * x.last, x, acc);
    }
    return acc;
}

static __device__ float segment_of(const rvi_cuda_panels &p, int panel, int n, int s, int o, const staged &acts)
{
    int n_units = n / 32, length = (n_units + RVI_CUDA_SEGMENTS - 1) / RVI_CUDA_SEGMENTS;
    int from = s * length, end = min(from + length, n_units);
    const uint8_t *at = as<const uint8_t>(p.w) + (size_t)panel * p.panel_bytes;
    switch (p.type) {
#define X(name, bits, offset, scales, d_units, has_m)                                                                  \
    case name: return segment<name>(at, n_units, from, end, o, acts);
        RVI_CUDA_QUANTS(X)
#undef X
    }
    return 0;
}

static __device__ int panels_of(const rvi_cuda_panels &p)
{
    return (p.n_out + OUTS - 1) / OUTS;
}

/* The part that panel i of all of them is in; i becomes the panel of that part. */
static __device__ const rvi_cuda_panels &part_of(const rvi_cuda_product_args &a, int *i)
{
    int p = 0;
    while (p + 1 < a.n_parts && *i >= panels_of(a.part[p])) *i -= panels_of(a.part[p++]);
    return a.part[p];
}

static __device__ bool is_gated(const rvi_cuda_product_args &a)
{
    return a.finish == RVI_CUDA_SILU || a.finish == RVI_CUDA_GELU;
}

static __device__ void finish(const rvi_cuda_product_args &a, const rvi_cuda_panels &p, int row, int o, float v, float v2)
{
    rvi_cuda_matmul_args m = {};
    m.out.at = p.out, m.out.stride = p.stride;
    m.bias = p.bias, m.bias2 = is_gated(a) ? a.part[1].bias : 0;
    m.finish = a.finish;
    finish(m, row, o, v, v2);
}

/* The lanes of a warp have 4 segments of OUTS outputs. */
static __device__ void put_run(float v, float *to)
{
    float second = __shfl_xor_sync(0xffffffff, v, OUTS), third = __shfl_xor_sync(0xffffffff, v, 2 * OUTS),
          fourth = __shfl_xor_sync(0xffffffff, v, 3 * OUTS);
    if (threadIdx.x % 32 < OUTS) *to = ((v + second) + third) + fourth;
}

/* A segment of one output for each thread; blocks take panels in turns. */
KERNEL __launch_bounds__(RVI_CUDA_THREADS, 4) product_row(rvi_cuda_product_args a)
{
    __shared__ staged acts;
    __shared__ float sums[2][2][RUNS][OUTS];
    int o = threadIdx.x % OUTS, s = threadIdx.x / OUTS, n = a.x.n, gated = is_gated(a), n_panels = panels_of(a.part[0]);
    for (int i = 1; i < a.n_parts && !gated; i++) n_panels += panels_of(a.part[i]);
    {
        int i = blockIdx.x;
        const rvi_cuda_panels &p = part_of(a, &i);
        prefetch(as<const uint8_t>(p.w) + (size_t)i * p.panel_bytes, p.panel_bytes);
        if (gated) prefetch(as<const uint8_t>(a.part[1].w) + (size_t)i * p.panel_bytes, p.panel_bytes);
    }
    begin();
    float r = a.norm ? norm_factor(row_of(a.x, 0), n, a.eps) : 0.0f, v[4];
    for (int i = threadIdx.x; i < (n / 4 + 31) / 32 * 32; i += blockDim.x) {
        uint32_t word;
        normed(a, 0, 4 * i, r, blockIdx.x == 0, v);
        about x = quantize(v, &word);
        if (i >= n / 4) continue;
        ((uint32_t *)acts.q)[i] = word;
        if (i % 8 == 0) acts.x[i / 8] = x;
    }
    __syncthreads();
    for (int at = blockIdx.x, turn = 0; at < n_panels; at += gridDim.x, turn ^= 1) {
        int i = at;
        const rvi_cuda_panels &p = part_of(a, &i);
        for (int g = 0; g <= gated; g++)
            put_run(segment_of(gated ? a.part[g] : p, i, n, s, o, acts), &sums[turn][g][s / 4][o]);
        __syncthreads();
        if (threadIdx.x >= OUTS || i * OUTS + o >= p.n_out) continue;
        float total[2] = {sums[turn][0][0][o], gated ? sums[turn][1][0][o] : 0.0f};
        for (int g = 0; g <= gated; g++)
            for (int k = 1; k < RUNS; k++) total[g] += sums[turn][g][k][o];
        finish(a, p, 0, i * OUTS + o, total[0], total[1]);
    }
}

/* ---- many rows ----
 *
 * A warp computes tiles of 16 outputs (two panels) x 8 rows: lane l has row l / 4 of each panel and, of the results,
 * rows 2 (l % 4) and the next. */

template <int TYPE> struct tile_weights { /* of a unit: of the panel's output g, and of the next panel's */
    uint32_t q[2][2];                     /* [panel][half] */
    scales s[2];
};

/* The offset is taken off each of the 4 bytes, which are below 128. */
static __device__ uint32_t take_off(uint32_t q, int offset)
{
    return offset ? ((q | 0x80808080) - offset * 0x01010101u) ^ 0x80808080 : q;
}

template <int TYPE>
static __device__ void load_tile(const uint8_t *const panel[2], int n_units, int unit, tile_weights<TYPE> *w)
{
    typedef quants_of<TYPE> Q;
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    for (int p = 0; p < 2; p++) {
        const uint32_t *low = (const uint32_t *)panel[p] + ((size_t)unit * (Q::LOW / 16) * OUTS + g) * 4 + t;
        uint32_t high[2] = {}, word = __ldg(low), word2 = Q::BITS == 8 ? __ldg(low + OUTS * 4) : 0;
        high_at<TYPE>(panel[p], n_units, unit * OUTS + g, high);
        quants_of_word<TYPE>(word, word2, high, t, w->q[p]);
        for (int h = 0; h < 2; h++) w->q[p][h] = take_off(w->q[p][h], Q::OFFSET);
        w->s[p] = scales_at<TYPE>(panel[p], n_units, unit, g);
    }
}

/* acts: of row g of the tile; x: of the tile's rows 2 t and the next. */
template <int TYPE> static __device__ void step_tile(const tile_weights<TYPE> &w, uint2 acts, const about x[2], float acc[4])
{
    typedef quants_of<TYPE> Q;
    int first[4] = {}, last[4] = {};
    if constexpr (Q::TWO) {
        mma_s8_k16(first, w.q[0][0], w.q[1][0], acts.x);
        mma_s8_k16(last, w.q[0][1], w.q[1][1], acts.y);
    } else {
        mma_s8_k32(first, w.q[0][0], w.q[1][0], w.q[0][1], w.q[1][1], acts.x, acts.y);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) acc[i] = step<TYPE>(w.s[i / 2], first[i], last[i], x[i % 2], acc[i]);
}

template <int TYPE, int N>
static __device__ void add_units(const uint8_t *const panel[2], const rvi_cuda_product_args &a, int row, int unit, int end,
                                 float acc[N][4])
{
    int n_units = a.x.n / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const uint2 *acts = as<const uint2>(a.acts);
    const about *abouts = as<const about>(a.acts + (size_t)a.n_rows * n_units * 32);
#pragma unroll(N == 1 ? 4 : 1)
    for (; unit < end; unit++) {
        tile_weights<TYPE> w;
        load_tile<TYPE>(panel, n_units, unit, &w);
#pragma unroll
        for (int i = 0; i < N; i++) {
            int r = min(row + 8 * i + g, a.n_rows - 1), r0 = min(row + 8 * i + 2 * t, a.n_rows - 1);
            const about *at = abouts + (size_t)unit * a.n_rows;
            about x[2] = {at[r0], at[min(r0 + 1, a.n_rows - 1)]};
            step_tile<TYPE>(w, __ldg(acts + ((size_t)r * n_units + unit) * 4 + t), x, acc[i]);
        }
    }
}

template <int N>
static __device__ void add_bf16(const uint8_t *const panel[2], const rvi_cuda_product_args &a, int row, int unit, int end,
                                float acc[N][4])
{
    int n_units = (a.x.n + 31) / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const uint4 *acts = as<const uint4>(a.acts);
#pragma unroll(N == 1 ? 4 : 1)
    for (; unit < end; unit++) {
        uint4 w = __ldg((const uint4 *)panel[0] + (unit * 4 + t) * OUTS + g);
        uint4 v = __ldg((const uint4 *)panel[1] + (unit * 4 + t) * OUTS + g);
#pragma unroll
        for (int i = 0; i < N; i++) {
            int r = min(row + 8 * i + g, a.n_rows - 1);
            const uint4 *x = acts + (((size_t)r * n_units + unit) * 4 + t) * 2;
            uint4 h = __ldg(x), l = __ldg(x + 1);
            mma_bf16(acc[i], w.x, v.x, w.y, v.y, h.x, h.y);
            mma_bf16(acc[i], w.x, v.x, w.y, v.y, l.x, l.y);
            mma_bf16(acc[i], w.z, v.z, w.w, v.w, h.z, h.w);
            mma_bf16(acc[i], w.z, v.z, w.w, v.w, l.z, l.w);
        }
    }
}

/* The warp's run of segments. */
template <int TYPE, int N>
static __device__ void run_of(const uint8_t *const panel[2], const rvi_cuda_product_args &a, int row, float run[N][4])
{
    int n_units = (a.x.n + 31) / 32, length = (n_units + RVI_CUDA_SEGMENTS - 1) / RVI_CUDA_SEGMENTS;
#pragma unroll 1
    for (int s = 0; s < 4; s++) {
        float acc[N][4] = {};
        int unit = (threadIdx.x / 32 * 4 + s) * length, end = min(unit + length, n_units);
        if constexpr (TYPE == BF16)
            add_bf16<N>(panel, a, row, unit, end, acc);
        else
            add_units<TYPE, N>(panel, a, row, unit, end, acc);
#pragma unroll
        for (int i = 0; i < 4 * N; i++) run[i / 4][i % 4] = s ? run[i / 4][i % 4] + acc[i / 4][i % 4] : acc[i / 4][i % 4];
    }
}

/* Grid: tiles of 8 N rows, pairs of panels. A warp has a run of the segments. */
template <int N> static __device__ void product_tiles(const rvi_cuda_product_args &a)
{
    __shared__ float sums[2][RUNS][16][8 * N];
    int at = blockIdx.y, gated = is_gated(a), row = blockIdx.x * 8 * N, part = 0;
    for (; part + 1 < a.n_parts && !gated && at >= (panels_of(a.part[part]) + 1) / 2; part++)
        at -= (panels_of(a.part[part]) + 1) / 2;
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    begin();
    for (int k = 0; k <= gated; k++) {
        const rvi_cuda_panels &p = a.part[part + k];
        const uint8_t *w = as<const uint8_t>(p.w);
        const uint8_t *panel[2] = {w + (size_t)(2 * at) * p.panel_bytes,
                                   w + (size_t)min(2 * at + 1, panels_of(p) - 1) * p.panel_bytes};
        float run[N][4];
        switch (p.type) {
#define X(name, bits, offset, scales, d_units, has_m)                                                                  \
    case name: run_of<name, N>(panel, a, row, run); break;
            RVI_CUDA_QUANTS(X)
#undef X
        default: run_of<BF16, N>(panel, a, row, run);
        }
#pragma unroll
        for (int i = 0; i < 4 * N; i++)
            sums[k][threadIdx.x / 32][i % 4 / 2 * 8 + g][i / 4 * 8 + 2 * t + i % 2] = run[i / 4][i % 4];
    }
    __syncthreads();
    const rvi_cuda_panels &p = a.part[part];
    for (int i = threadIdx.x; i < 16 * 8 * N; i += blockDim.x) {
        int o = i % 16, r = i / 16;
        float total[2] = {sums[0][0][o][r], gated ? sums[1][0][o][r] : 0.0f};
        for (int k = 0; k <= gated; k++)
            for (int w = 1; w < RUNS; w++) total[k] += sums[k][w][o][r];
        if (row + r < a.n_rows && at * 16 + o < p.n_out) finish(a, p, row + r, at * 16 + o, total[0], total[1]);
    }
}

KERNEL __launch_bounds__(RVI_CUDA_THREADS) product_tiles_1(rvi_cuda_product_args a)
{
    product_tiles<1>(a);
}

KERNEL __launch_bounds__(RVI_CUDA_THREADS, 2) product_tiles_4(rvi_cuda_product_args a)
{
    product_tiles<4>(a);
}
