/* attention.cuh - attention over pages of f16 and q8 on the tensor cores, for heads of 16 to 128 elements (multiples of 16);
 * of f16 to 256: a block then has the scores of all elements and mixes one half of the values.
 *
 *  query   Times the attention's scale and log2(e), or, with a soft cap, 2 log2(e) / cap; then rounded to f16.
 *  chunk   64 keys by absolute position. Scores: mma.m16n8k16 over 16 elements at a time, in order; with a soft cap s becomes
 *          cap log2(e) (1 - 2 / (exp2(s) + 1)), both by the device's approximations. m: their maximum;
 *          p = exp2(score - m), by the device's approximation; l: a lane has keys 2 t, 2 t + 1 of each 8, in order, then the tree over the lanes; acc:
 *          p rounded to f16, mma over 16 keys at a time, in order.
 *  merge   A run is 4 chunks (256 keys by absolute position). Its chunks with a key that the query sees, in order, onto
 *          m = -infinity, l = 0, acc = 0; then the runs, in order, likewise.
 *
 * A key that a query does not see, but another one of its tile does, has p = 0. Its value is finite: see is_out.
 *
 * The heads that share keys are queries of one tile, and so are neighbouring rows of a sequence.
 *
 * Pages of q8 become what pages of f16 would be, a chunk at a time: an element is its byte times the scale of its key or
 * value, in f32, rounded to f16. Their bytes come to shared memory first, while the chunk before is computed. */

enum { KEYS = RVI_CUDA_KEYS, TILE_QUERIES = RVI_CUDA_QUERIES, CHUNK_BYTES = 2 * KEYS * 128 * 2, BYTES_CHUNK = RVI_CUDA_BYTES_CHUNK, NO_CHUNK = 1 << 24, RUN = RVI_CUDA_RUN };

static __device__ const float LOG2_E = 1.44269504f;

static __device__ __forceinline__ float query_scale(const rvi_cuda_attention_args &a)
{
    return a.scale * (a.soft_cap > 0 ? 2 * LOG2_E / a.soft_cap : LOG2_E);
}

/* Neighbouring rows of a sequence. */
struct query_tile {
    int row, n;           /* rows */
    int first_seen, last_seen; /* keys that any of them sees */
};

static __device__ int2 keys_of(const rvi_cuda_attention_args &a, int row) /* first and last one that it sees */
{
    int pos = as<const int2>(a.kv.rows)[row].y;
    return {first_key(a, pos), pos};
}

/* A run of rows has n_splits tiles. */
static __device__ query_tile tile_at(const rvi_cuda_attention_args &a, int i)
{
    int2 run = as<const int2>(a.runs)[i / a.n_splits];
    int most = max(TILE_QUERIES / (a.n_heads / a.kv.n_kv_heads), 1), from = i % a.n_splits * most;
    query_tile t = {run.x + from, min(run.y - from, most), 0, -1};
    if (t.n > 0) t.first_seen = keys_of(a, t.row).x, t.last_seen = keys_of(a, t.row + t.n - 1).y;
    return t;
}

/* Where piece (16 bytes) of a line of keys or values lies: 8 lines of one piece meet every bank once. */
static __device__ __forceinline__ int key_piece(int e, int piece)
{
    return e * 8 + (piece ^ (e & 7));
}
/* SIZE, VALUES: elements of a key and of a value there is room for. */
template <int SIZE = 128, int VALUES = SIZE> static __device__ __forceinline__ int value_piece(int key, int piece)
{
    return KEYS * SIZE * 2 / 16 + key * (VALUES / 8) + (piece ^ (key & 7));
}

/* The pages of a chunk; 0: none of its keys is seen. */
struct chunk_pages {
    const uint8_t *at[KEYS / RVI_CUDA_PAGE];
};

static __device__ __forceinline__ chunk_pages pages_of(const rvi_cuda_attention_args &a, int row, int kv_head, int chunk, int first, int last)
{
    chunk_pages p;
#pragma unroll
    for (int i = 0; i < KEYS / RVI_CUDA_PAGE; i++) {
        int base = chunk * KEYS + i * RVI_CUDA_PAGE;
        bool any = chunk != NO_CHUNK && base <= last && base + RVI_CUDA_PAGE > first;
        p.at[i] = any ? planes(a.kv, row, base / RVI_CUDA_PAGE, kv_head) : 0;
    }
    return p;
}

/* Keys: a line of 64 for each element; values: a line of elements for each key, zeros where no query sees any. */
template <int SIZE = 128>
static __device__ __forceinline__ void copy_chunk(const rvi_cuda_attention_args &a, const chunk_pages &pages, int chunk, int first,
                                                  int last, uint8_t *to)
{
    uint32_t pieces = a.kv.head_size / 8, key0 = threadIdx.x / pieces, piece0 = threadIdx.x % pieces;
    uint32_t keys_on = RVI_CUDA_ATTENTION / pieces, pieces_on = RVI_CUDA_ATTENTION % pieces;
    if (chunk != NO_CHUNK)
#pragma unroll 1
        for (int page = 0; page < KEYS / RVI_CUDA_PAGE; page++) {
            int base = chunk * KEYS + page * RVI_CUDA_PAGE;
            const uint8_t *k = page ? pages.at[1] : pages.at[0], *v = k + a.kv.k_bytes;
            uint32_t key = key0, piece = piece0; /* of values */
#pragma unroll 2
            for (uint32_t i = threadIdx.x; i < pieces * RVI_CUDA_PAGE; i += RVI_CUDA_ATTENTION) {
                uint8_t *at = to + value_piece<SIZE>(page * RVI_CUDA_PAGE + key, piece) * 16;
                if (k) copy16(to + key_piece(i / 4, page * 4 + i % 4) * 16, k + i * 16);
                if (k && base + (int)key >= first && base + (int)key <= last)
                    copy16(at, v + i * 16);
                else
                    *(uint4 *)at = {};
                key += keys_on, piece += pieces_on;
                if (piece >= pieces) piece -= pieces, key++;
            }
        }
    copy_commit();
}

/* The same of keys of up to 256 elements, and of their values one half. */
static __device__ __forceinline__ void copy_large(const rvi_cuda_attention_args &a, const chunk_pages &pages, int chunk, int first,
                                                  int last, int half, uint8_t *to)
{
    uint32_t pieces = a.kv.head_size / 8, mine = min(pieces - half * 16, 16u);
    if (chunk != NO_CHUNK)
#pragma unroll 1
        for (int page = 0; page < KEYS / RVI_CUDA_PAGE; page++) {
            int base = chunk * KEYS + page * RVI_CUDA_PAGE;
            const uint8_t *k = page ? pages.at[1] : pages.at[0], *v = k + a.kv.k_bytes;
#pragma unroll 4
            for (uint32_t i = threadIdx.x; k && i < pieces * RVI_CUDA_PAGE; i += RVI_CUDA_ATTENTION)
                copy16(to + key_piece(i / 4, page * 4 + i % 4) * 16, k + i * 16);
#pragma unroll 4
            for (uint32_t i = threadIdx.x; i < mine * RVI_CUDA_PAGE; i += RVI_CUDA_ATTENTION) {
                uint32_t key = i / mine, piece = i % mine;
                uint8_t *at = to + value_piece<256, 128>(page * RVI_CUDA_PAGE + key, piece) * 16;
                if (k && base + (int)key >= first && base + (int)key <= last)
                    copy16(at, v + (key * pieces + half * 16 + piece) * 16);
                else
                    *(uint4 *)at = {};
            }
        }
    copy_commit();
}

/* Keys and values of q8 as they are, page after page. */
static __device__ __forceinline__ void copy_bytes(const rvi_cuda_attention_args &a, const chunk_pages &pages, uint8_t *to)
{
    int n = (int)(a.kv.k_bytes + a.kv.v_bytes);
#pragma unroll
    for (int page = 0; page < KEYS / RVI_CUDA_PAGE; page++)
        if (pages.at[page])
#pragma unroll 4
            for (int i = threadIdx.x * 16; i < n; i += RVI_CUDA_ATTENTION * 16) copy16(to + page * n + i, pages.at[page] + i);
    copy_commit();
}

/* Byte i of a word of int8 whose signs are turned. */
static __device__ __forceinline__ float byte_at(uint32_t turned, int i)
{
    return __uint_as_float(__byte_perm(turned, 0x4b000000, 0x7440 | i)) - 8388736.0f; /* 2^23 + 128 */
}

static __device__ __forceinline__ uint32_t turn_signs(uint32_t word)
{
    return word ^ 0x80808080;
}

/* Of an element at least what is_out says. */
static __device__ __forceinline__ bool is_lost(float scale)
{
    return !(scale * 127.0f < 65520.0f);
}

/* Of eight keys: their scales; of those whose values are lost: none. */
static __device__ __forceinline__ void key_scales(const float *k, const float *v, float scales[8])
{
#pragma unroll
    for (int i = 0; i < 8; i++) scales[i] = is_lost(v[i]) ? NOT_A_NUMBER : k[i];
}

/* A chunk that copy_bytes has brought, laid out as copy_chunk does. */
static __device__ __forceinline__ void turn_bytes(const rvi_cuda_attention_args &a, const uint8_t *from, int chunk, int first, int last,
                                                  uint8_t *to)
{
    int size = a.kv.head_size;
#pragma unroll 1
    for (int page = 0; page < KEYS / RVI_CUDA_PAGE; page++) {
        const uint8_t *k = from + page * (int)(a.kv.k_bytes + a.kv.v_bytes), *v = k + (int)a.kv.k_bytes;
        const float *k_scales = (const float *)(k + size * RVI_CUDA_PAGE), *v_scales = (const float *)(v + size * RVI_CUDA_PAGE);
#pragma unroll 1
        for (int i = threadIdx.x; i < size; i += RVI_CUDA_ATTENTION) { /* four elements of eight keys */
            float scales[8];
            uint32_t words[8];
            key_scales(k_scales + i % 4 * 8, v_scales + i % 4 * 8, scales);
#pragma unroll
            for (int j = 0; j < 2; j++) {
                uint4 w = ((const uint4 *)k)[i * 2 + j];
                words[j * 4] = turn_signs(w.x), words[j * 4 + 1] = turn_signs(w.y);
                words[j * 4 + 2] = turn_signs(w.z), words[j * 4 + 3] = turn_signs(w.w);
            }
#pragma unroll
            for (int e = 0; e < 4; e++) {
                uint32_t h[4];
#pragma unroll
                for (int j = 0; j < 4; j++)
                    h[j] = to_halves(byte_at(words[2 * j], e) * scales[2 * j], byte_at(words[2 * j + 1], e) * scales[2 * j + 1]);
                *(uint4 *)(to + key_piece(i / 4 * 4 + e, page * 4 + i % 4) * 16) = {h[0], h[1], h[2], h[3]};
            }
        }
        uint32_t pieces = size / 16;
#pragma unroll 1
        for (uint32_t i = threadIdx.x; i < pieces * RVI_CUDA_PAGE; i += RVI_CUDA_ATTENTION) { /* 16 elements of a value */
            int slot = i / pieces, piece = i % pieces * 2, line = page * RVI_CUDA_PAGE + slot, key = chunk * KEYS + line;
            float scale = v_scales[slot];
            uint4 w = ((const uint4 *)v)[i];
            uint32_t words[4] = {turn_signs(w.x), turn_signs(w.y), turn_signs(w.z), turn_signs(w.w)};
            bool is = key >= first && key <= last && !is_lost(scale);
#pragma unroll
            for (int j = 0; j < 2; j++) {
                uint32_t h[4];
#pragma unroll
                for (int n = 0; n < 4; n++) {
                    uint32_t word = words[j * 2 + n / 2];
                    h[n] = is ? to_halves(byte_at(word, n % 2 * 2) * scale, byte_at(word, n % 2 * 2 + 1) * scale) : 0;
                }
                *(uint4 *)(to + value_piece(line, piece + j) * 16) = {h[0], h[1], h[2], h[3]};
            }
        }
    }
}

/* Scores become weights. see: first and last key of the lane's two queries, of which there are n. */
static __device__ __forceinline__ void weigh(const rvi_cuda_attention_args &a, int chunk, const int2 see[2], bool all_seen,
                                             int n, float s[8][4], float m[2], float l[2])
{
    int t = threadIdx.x % 4;
    if (a.soft_cap > 0) {
        float cap = a.soft_cap * LOG2_E;
#pragma unroll
        for (int i = 0; i < 32; i++) s[i / 4][i % 4] = fmaf(-2 * cap, reciprocal(power_of_two(s[i / 4][i % 4]) + 1), cap);
    }
    if (!all_seen)
#pragma unroll
        for (int i = 0; i < 32; i++) {
            int key = chunk * KEYS + i / 4 * 8 + 2 * t + i % 2, h = i % 4 / 2;
            if (key < see[h].x || key > see[h].y) s[i / 4][i % 4] = -INFINITE;
        }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float top = -INFINITE, sum = 0;
        if (h >= n) break;
#pragma unroll
        for (int i = 0; i < 16; i++) top = fmaxf(top, s[i / 2][2 * h + i % 2]);
        top = fmaxf(top, __shfl_xor_sync(0xffffffff, top, 1));
        top = fmaxf(top, __shfl_xor_sync(0xffffffff, top, 2));
        float from = top == -INFINITE ? 0.0f : top; /* no key is seen: all p are 0 */
#pragma unroll
        for (int i = 0; i < 16; i++) {
            float *v = &s[i / 2][2 * h + i % 2];
            *v = power_of_two(*v - from);
            sum += *v;
        }
        sum += __shfl_xor_sync(0xffffffff, sum, 1);
        sum += __shfl_xor_sync(0xffffffff, sum, 2);
        m[h] = top;
        l[h] = sum;
    }
}

/* The weights of keys 16 j .. + 15, as an A operand. */
static __device__ __forceinline__ void weights_at(const float s[8][4], int j, uint32_t p[4])
{
#pragma unroll
    for (int i = 0; i < 4; i++) p[i] = to_halves(s[2 * j + i / 2][i % 2 * 2], s[2 * j + i / 2][i % 2 * 2 + 1]);
}

/* Scores of the warp's queries and 64 keys by 16 elements; f: their A operand. */
static __device__ __forceinline__ void add_scores(const uint32_t f[4], int e, const uint8_t *shared, float s[8][4])
{
    int lane = threadIdx.x % 32, line = lane % 8, matrix = lane / 8;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        uint32_t b[4]; /* elements 0 .. 7, 8 .. 15 of keys 0 .. 7, then of 8 .. 15 */
        load_matrices(b, shared + key_piece(e * 16 + matrix % 2 * 8 + line, j * 2 + matrix / 2) * 16);
        mma_f16(s[2 * j], f[0], f[1], f[2], f[3], b[0], b[1]);
        mma_f16(s[2 * j + 1], f[0], f[1], f[2], f[3], b[2], b[3]);
    }
}

/* Elements 16 e .. + 15 of the values there that p mixes, for the lane's two queries. */
template <int SIZE = 128, int VALUES = SIZE>
static __device__ __forceinline__ void mix_values(const uint32_t p[4][4], int e, const uint8_t *shared, float acc[2][4])
{
    int lane = threadIdx.x % 32, line = lane % 8, matrix = lane / 8;
#pragma unroll
    for (int i = 0; i < 8; i++) acc[i / 4][i % 4] = 0;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        uint32_t b[4];
        load_matrices(b, shared + value_piece<SIZE, VALUES>(j * 16 + matrix % 2 * 8 + line, e * 2 + matrix / 2) * 16);
        mma_f16(acc[0], p[j][0], p[j][1], p[j][2], p[j][3], b[0], b[1]);
        mma_f16(acc[1], p[j][0], p[j][1], p[j][2], p[j][3], b[2], b[3]);
    }
}

static __device__ __forceinline__ void merge_factors(float *m, float *l, float m2, float l2, float *c, float *d)
{
    float top = fmaxf(*m, m2);
    *c = power_of_two(*m - top), *d = power_of_two(m2 - top);
    *m = top;
    *l = *l * *c + l2 * *d;
}

static __device__ __forceinline__ float4 merged(const float4 &x, float c, const float4 &y, float d)
{
    return {x.x * c + y.x * d, x.y * c + y.y * d, x.z * c + y.z * d, x.w * c + y.w * d};
}

/* The query of line i of the warp's 16; false: there is none. */
static __device__ bool query_at(const rvi_cuda_attention_args &a, const query_tile &t, int i, int *row, int *head)
{
    int group = a.n_heads / a.kv.n_kv_heads, at = threadIdx.x / 32 * 16 + i;
    *row = t.row + min(at / group, t.n - 1);
    *head = blockIdx.x * group + at % group;
    return at < t.n * group;
}

/* The two queries of a lane: lines g and g + 8 of the warp's 16. */
struct query_pair {
    int row[2], head[2];
    bool is[2];
    int2 see[2]; /* first and last key */
};

template <int SIZE>
static __device__ __forceinline__ void load_query(const rvi_cuda_attention_args &a, const query_pair &two, int k, uint32_t q[SIZE / 16][4])
{
    float scale = query_scale(a);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const float *x = row_of(a.q, two.row[h]) + two.head[h] * a.kv.head_size + threadIdx.x % 4 * 2;
#pragma unroll
        for (int e = 0; e < SIZE / 8; e++) {
            bool has = e < 2 * k && two.is[h];
            q[e / 2][e % 2 * 2 + h] = has ? to_halves(x[e * 8] * scale, x[e * 8 + 1] * scale) : 0;
        }
    }
}

/* A chunk for the lane's queries: onto m, l and all; PARTS: to its part. half: of the values. */
template <bool PARTS, int SIZE>
static __device__ __forceinline__ void tile_chunk(const rvi_cuda_attention_args &a, const uint32_t q[SIZE / 16][4], int k, int half,
                                                  int chunk, const query_pair &two, bool all_seen, const uint8_t *shared,
                                                  float m[2], float l[2], float all[16][4])
{
    float s[8][4], top[2], sum[2], c[2] = {}, d[2] = {}, *part[2];
    bool takes[2];
    uint32_t p[4][4];
#pragma unroll
    for (int i = 0; i < 32; i++) s[i / 4][i % 4] = 0;
#pragma unroll
    for (int e = 0; e < SIZE / 16; e++)
        if (e < k) add_scores(q[e], e, shared, s);
    weigh(a, chunk, two.see, all_seen, 2, s, top, sum);
#pragma unroll
    for (int j = 0; j < 4; j++) weights_at(s, j, p[j]);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        takes[h] = two.is[h] && chunk * KEYS <= two.see[h].y && chunk * KEYS + KEYS > two.see[h].x;
        if (PARTS) part[h] = part_at(a, two.row[h], two.head[h], chunk - two.see[h].x / KEYS);
        if (!PARTS && takes[h]) merge_factors(&m[h], &l[h], top[h], sum[h], &c[h], &d[h]);
        if (PARTS && takes[h] && half == 0 && threadIdx.x % 4 == 0) part[h][a.kv.padded] = top[h], part[h][a.kv.padded + 1] = sum[h];
    }
#pragma unroll
    for (int e = 0; e < 8; e++) {
        float acc[2][4];
        if (half * 8 + e >= k) break;
        mix_values<SIZE, 128>(p, e, shared, acc);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            int h = i % 4 / 2;
            float *v = &all[2 * e + i / 4][i % 4], merged = *v * c[h] + acc[i / 4][i % 4] * d[h];
            if (!PARTS)
                *v = takes[h] ? merged : *v;
            else if (takes[h])
                part[h][half * 128 + e * 16 + i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2] = acc[i / 4][i % 4];
        }
    }
}

/* A run onto the total of the lane's queries, which lies behind the chunks in shared memory: no registers are left for it. */
struct run_total {
    float m[2][RVI_CUDA_ATTENTION], l[2][RVI_CUDA_ATTENTION], all[64][RVI_CUDA_ATTENTION];
};
static_assert(sizeof(run_total) == RVI_CUDA_RUN_TOTAL, "there is room for it");

static __device__ __forceinline__ void add_run(run_total *to, bool is_first, const bool takes[2], float m[2], float l[2], float all[16][4])
{
    int t = threadIdx.x;
    float c[2] = {1.0f, 1.0f}, d[2] = {};
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float top = is_first ? -INFINITE : to->m[h][t], sum = is_first ? 0.0f : to->l[h][t];
        if (takes[h]) merge_factors(&top, &sum, m[h], l[h], &c[h], &d[h]);
        to->m[h][t] = top, to->l[h][t] = sum;
        m[h] = -INFINITE, l[h] = 0;
    }
#pragma unroll
    for (int i = 0; i < 64; i++) {
        int h = i % 4 / 2;
        float *v = &all[i / 4][i % 4], old = is_first ? 0.0f : to->all[i][t];
        to->all[i][t] = takes[h] ? old * c[h] + *v * d[h] : old;
        *v = 0;
    }
}

/* Q8: shared memory has one chunk in f16 and one on its way in bytes, instead of two. SIZE: 128 or 256; of 256 it has one
 * chunk, blocks of a processor hide each other's waits, and neighbouring blocks have the halves of a tile. */
template <bool PARTS, bool Q8, int SIZE>
static __device__ __forceinline__ void tiles_attention(const rvi_cuda_attention_args &a, uint8_t *shared)
{
    enum { LARGE = SIZE > 128, CHUNK = LARGE ? KEYS * (SIZE + 128) * 2 : CHUNK_BYTES };
    int at = gridDim.y - 1 - blockIdx.y, half = LARGE ? at % 2 : 0; /* those with most keys first */
    query_tile t = tile_at(a, LARGE ? at / 2 : at);
    int k = a.kv.head_size / 16, g = threadIdx.x % 32 / 4;
    int chunk = t.first_seen / KEYS + blockIdx.z, end = PARTS ? chunk : t.last_seen / KEYS;
    if (t.n < 1 || chunk * KEYS > t.last_seen) return;
    int low = 0x7fffffff, high = -1, latest = 0, earliest = 0x7fffffff;
    query_pair two;
    uint32_t q[SIZE / 16][4];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        two.is[h] = query_at(a, t, g + 8 * h, &two.row[h], &two.head[h]);
        two.see[h] = two.is[h] ? keys_of(a, two.row[h]) : int2{0, -1};
        if (!two.is[h]) continue;
        low = min(low, two.see[h].x), high = max(high, two.see[h].y);
        latest = max(latest, two.see[h].x), earliest = min(earliest, two.see[h].y);
    }
#pragma unroll 1
    for (int d = 4; d < 32; d *= 2) { /* of the warp's queries */
        low = min(low, __shfl_xor_sync(0xffffffff, low, d));
        high = max(high, __shfl_xor_sync(0xffffffff, high, d));
        latest = max(latest, __shfl_xor_sync(0xffffffff, latest, d));
        earliest = min(earliest, __shfl_xor_sync(0xffffffff, earliest, d));
    }
    load_query<SIZE>(a, two, k, q);
    float m[2] = {-INFINITE, -INFINITE}, l[2] = {}, all[16][4];
#pragma unroll
    for (int i = 0; i < 64; i++) all[i / 4][i % 4] = 0;
    uint8_t *bytes = shared + CHUNK;
    run_total *total = (run_total *)(shared + (Q8 ? CHUNK + BYTES_CHUNK : LARGE ? CHUNK : 2 * CHUNK));
    bool is_first = true;
    chunk_pages pages = pages_of(a, t.row, blockIdx.x, chunk, t.first_seen, t.last_seen);
    if (Q8)
        copy_bytes(a, pages, bytes);
    else if (LARGE)
        copy_large(a, pages, chunk, t.first_seen, t.last_seen, half, shared);
    else
        copy_chunk(a, pages, chunk, t.first_seen, t.last_seen, shared);
#pragma unroll 1
    for (int turn = 0; chunk <= end; chunk++, turn ^= Q8 || LARGE ? 0 : 1) {
        int next = chunk < end ? chunk + 1 : NO_CHUNK;
        pages = pages_of(a, t.row, blockIdx.x, next, t.first_seen, t.last_seen);
        if (Q8) {
            copy_wait<0>();
            __syncthreads();
            turn_bytes(a, bytes, chunk, t.first_seen, t.last_seen, shared);
            __syncthreads();
            copy_bytes(a, pages, bytes);
        } else if (LARGE) {
            copy_wait<0>();
            __syncthreads();
        } else {
            copy_chunk(a, pages, next, t.first_seen, t.last_seen, shared + (turn ^ 1) * CHUNK);
            copy_wait<1>();
            __syncthreads();
        }
        bool all_seen = chunk * KEYS >= latest && chunk * KEYS + KEYS - 1 <= earliest;
        if (chunk * KEYS <= high && chunk * KEYS + KEYS > low)
            tile_chunk<PARTS, SIZE>(a, q, k, half, chunk, two, all_seen, shared + turn * CHUNK, m, l, all);
        if (!PARTS && (chunk % RUN == RUN - 1 || chunk == end)) {
            int run = chunk / RUN * RUN * KEYS;
            bool takes[2];
#pragma unroll
            for (int h = 0; h < 2; h++) takes[h] = run <= two.see[h].y && run + RUN * KEYS > two.see[h].x;
            add_run(total, is_first, takes, m, l, all);
            is_first = false;
        }
        if (!Q8) __syncthreads();
        if (LARGE) copy_large(a, pages, next, t.first_seen, t.last_seen, half, shared);
    }
    if (PARTS) return;
    float over[2] = {1.0f / total->l[0][threadIdx.x], 1.0f / total->l[1][threadIdx.x]};
#pragma unroll 8
    for (int i = 0; i < 64; i++) {
        int h = i % 4 / 2, e = half * 128 + i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2;
        if (two.is[h] && e < a.kv.head_size)
            row_of(a.out, two.row[h])[two.head[h] * a.kv.head_size + e] = total->all[i][threadIdx.x] * over[h];
    }
}

/* Grid: heads of keys, tiles, parts. With parts a block has one chunk of its tile, and attention_join follows. */
KERNEL __launch_bounds__(RVI_CUDA_ATTENTION, 2) attention_tiles(rvi_cuda_attention_args a)
{
    DYNAMIC_SHARED(shared_keys);
    begin();
    if (a.n_parts)
        tiles_attention<true, false, 128>(a, shared_keys);
    else
        tiles_attention<false, false, 128>(a, shared_keys);
}

KERNEL __launch_bounds__(RVI_CUDA_ATTENTION, 2) attention_tiles_q8(rvi_cuda_attention_args a)
{
    DYNAMIC_SHARED(shared_keys);
    begin();
    if (a.n_parts)
        tiles_attention<true, true, 128>(a, shared_keys);
    else
        tiles_attention<false, true, 128>(a, shared_keys);
}

/* Heads of up to 256 elements. Grid: likewise, but twice as many tiles. */
KERNEL __launch_bounds__(RVI_CUDA_ATTENTION, 2) attention_tiles_large(rvi_cuda_attention_args a)
{
    DYNAMIC_SHARED(shared_keys);
    begin();
    if (a.n_parts)
        tiles_attention<true, false, 256>(a, shared_keys);
    else
        tiles_attention<false, false, 256>(a, shared_keys);
}

/* ---- rows that have no neighbours: a block has parts of a row, a.per chunks each (one, or a run), one after the other.
 * Its warps have 16 of a chunk's keys each, then every fourth 16 elements of the values. The blocks of a processor hide
 * each other's waits: a block has one chunk at a time, so that there are four. a.turns: queries and key are turned here,
 * and the row's key and value written. a.early: nothing else in the list writes keys of this layer, so that older ones
 * can be asked for before the kernels in front have ended. ---- */

enum { ROW_PAIRS = 4 };
template <int SIZE> struct query_line { /* in f16 */
    __align__(16) uint16_t x[SIZE + 8];
};

/* Two elements of a query or key. */
struct element_pair {
    int at, at2;
    float x, x2;
};

/* What the row brings, in shared memory: queries of the heads that share keys, then their key and value; its angles. */
template <int SIZE> struct raw_row {
    float x[(RVI_CUDA_ROW_QUERIES + 2) * SIZE], angles[SIZE];
};

/* n: elements of the queries; newest: key and value too. */
template <int SIZE>
static __device__ __forceinline__ void stage_raw(const rvi_cuda_attention_args &a, int row, int n, bool newest, raw_row<SIZE> *raw)
{
    enum { AT_ONCE = 6, ANGLES = SIZE / RVI_CUDA_ATTENTION };
    int size = a.kv.head_size, total = n + (newest ? 2 * size : 0), t = threadIdx.x;
    const float *q = row_of(a.q, row) + blockIdx.x * n, *k = 0, *v = 0;
    if (newest) k = row_of(a.k, row) + blockIdx.x * size, v = row_of(a.v, row) + blockIdx.x * size;
    float angle[ANGLES];
#pragma unroll
    for (int i = 0; i < ANGLES; i++) {
        int at = i * RVI_CUDA_ATTENTION + t;
        angle[i] = a.turns && at < a.angles.n ? row_of(a.angles, row)[at] : 0.0f;
    }
#pragma unroll 1
    for (int first = t; first < total; first += AT_ONCE * RVI_CUDA_ATTENTION) {
        float x[AT_ONCE];
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            int i = min(first + j * RVI_CUDA_ATTENTION, total - 1), more = i - n;
            x[j] = more < 0 ? q[i] : more < size ? k[more] : v[more - size];
        }
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++)
            if (first + j * RVI_CUDA_ATTENTION < total) raw->x[first + j * RVI_CUDA_ATTENTION] = x[j];
    }
#pragma unroll
    for (int i = 0; i < ANGLES; i++) raw->angles[i * RVI_CUDA_ATTENTION + t] = angle[i];
    __syncthreads();
}

static __device__ __forceinline__ element_pair pair_of(const rvi_cuda_attention_args &a, const float *angles, const float *x, int p)
{
    int n_pairs = a.turns ? a.angles.n / 2 : 0;
    if (p >= n_pairs) return {2 * p, 2 * p + 1, x[2 * p], x[2 * p + 1]};
    int u = a.interleaved ? 2 * p : p, v = u + (a.interleaved ? 1 : n_pairs);
    float c = angles[p], s = angles[n_pairs + p], left = x[u], right = x[v];
    return {u, v, fmaf(left, c, -(right * s)), fmaf(right, c, left * s)};
}

template <int SIZE>
static __device__ __forceinline__ void stage_queries(const rvi_cuda_attention_args &a, const raw_row<SIZE> &raw, int group,
                                                     query_line<SIZE> *to)
{
    uint32_t half = a.kv.head_size / 2, total = group * half;
    float scale = query_scale(a);
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < total; i += ROW_PAIRS * RVI_CUDA_ATTENTION) {
        element_pair x[ROW_PAIRS];
#pragma unroll
        for (int j = 0; j < ROW_PAIRS; j++) {
            uint32_t at = min(i + j * RVI_CUDA_ATTENTION, total - 1);
            x[j] = pair_of(a, raw.angles, raw.x + at / half * a.kv.head_size, at % half);
        }
#pragma unroll
        for (int j = 0; j < ROW_PAIRS; j++) {
            uint32_t at = i + j * RVI_CUDA_ATTENTION;
            if (at >= total) break;
            to[at / half].x[x[j].at] = to_half(x[j].x * scale);
            to[at / half].x[x[j].at2] = to_half(x[j].x2 * scale);
        }
    }
}

/* A block's way over the row's chunks. */
struct row_walk {
    int part, chunk, end; /* the part's last chunk; chunk: NO_CHUNK: behind the last */
};

static __device__ __forceinline__ row_walk part_from(int part, int first, int last, int per)
{
    int at = (first / per + part) * per;
    return {part, at > last ? (int)NO_CHUNK : max(at, first), min(at + per - 1, last)};
}

static __device__ __forceinline__ row_walk next_chunk(const row_walk &w, int first, int last, int per)
{
    if (w.chunk < w.end) return {w.part, w.chunk + 1, w.end};
    return part_from(w.part + gridDim.z, first, last, per);
}

/* The row's own key and value, to its page and to the chunk in shared memory; by all threads. is: the thread has elements. */
template <int SIZE>
static __device__ __forceinline__ void put_newest(const rvi_cuda_attention_args &a, int row, int pos, element_pair k, float2 v,
                                                  bool is, uint8_t *shared)
{
    if (__syncthreads_or(is && (is_out(v.x) || is_out(v.y)))) k.x = k.x2 = NOT_A_NUMBER, v = {};
    if (!is) return;
    int p = threadIdx.x, key = pos % KEYS, slot = pos % RVI_CUDA_PAGE;
    uint8_t *plane = planes(a.kv, row, pos / RVI_CUDA_PAGE, blockIdx.x);
    uint16_t x = to_half(k.x), x2 = to_half(k.x2);
    uint32_t two = to_halves(v.x, v.y);
    ((uint16_t *)plane)[k.at * RVI_CUDA_PAGE + slot] = x;
    ((uint16_t *)plane)[k.at2 * RVI_CUDA_PAGE + slot] = x2;
    ((uint32_t *)(plane + a.kv.k_bytes))[(slot * a.kv.padded) / 2 + p] = two;
    *(uint16_t *)(shared + key_piece(k.at, key / 8) * 16 + key % 8 * 2) = x;
    *(uint16_t *)(shared + key_piece(k.at2, key / 8) * 16 + key % 8 * 2) = x2;
    *(uint32_t *)(shared + value_piece<SIZE>(key, p / 4) * 16 + p % 4 * 4) = two;
}

/* The same for pages of q8. The scales are those of head_scale. */
struct newest_scale {
    float scale, inverse;
};

static __device__ __forceinline__ newest_scale scale_of_pairs(bool is, float x, float y)
{
    float most = 0;
    if (is) most = isfinite(x) && isfinite(y) ? fmaxf(fabsf(x), fabsf(y)) : INFINITE;
    most = block_max(most);
    bool bad = most == INFINITE, zero = bad || most < 1e-30f;
    return {bad ? NOT_A_NUMBER : zero ? 0.0f : most / 127.0f, zero ? 0.0f : 127.0f / most};
}

static __device__ __forceinline__ void put_newest_q8(const rvi_cuda_attention_args &a, int row, int pos, const element_pair &k,
                                                     float2 v, bool is, uint8_t *shared)
{
    newest_scale ks = scale_of_pairs(is, k.x, k.x2), vs = scale_of_pairs(is, v.x, v.y);
    if (!is) return;
    int p = threadIdx.x, key = pos % KEYS, slot = pos % RVI_CUDA_PAGE, size = a.kv.head_size;
    uint8_t *plane = planes(a.kv, row, pos / RVI_CUDA_PAGE, blockIdx.x), *v_plane = plane + a.kv.k_bytes;
    int8_t x = quant(k.x, ks.inverse), x2 = quant(k.x2, ks.inverse), y = quant(v.x, vs.inverse), y2 = quant(v.y, vs.inverse);
    plane[(k.at / 4 * RVI_CUDA_PAGE + slot) * 4 + k.at % 4] = (uint8_t)x;
    plane[(k.at2 / 4 * RVI_CUDA_PAGE + slot) * 4 + k.at2 % 4] = (uint8_t)x2;
    v_plane[slot * size + 2 * p] = (uint8_t)y, v_plane[slot * size + 2 * p + 1] = (uint8_t)y2;
    if (p == 0) {
        ((float *)(plane + size * RVI_CUDA_PAGE))[slot] = ks.scale;
        ((float *)(v_plane + size * RVI_CUDA_PAGE))[slot] = vs.scale;
    }
    bool lost = is_lost(vs.scale);
    float scale = lost ? NOT_A_NUMBER : ks.scale;
    *(uint16_t *)(shared + key_piece(k.at, key / 8) * 16 + key % 8 * 2) = to_half((float)x * scale);
    *(uint16_t *)(shared + key_piece(k.at2, key / 8) * 16 + key % 8 * 2) = to_half((float)x2 * scale);
    *(uint32_t *)(shared + value_piece(key, p / 4) * 16 + p % 4 * 4) = lost ? 0 : to_halves((float)y * vs.scale, (float)y2 * vs.scale);
}

/* The last block of a head to end merges its parts, as attention_join does. first: the row's first chunk. */
static __device__ __forceinline__ void join_here(const rvi_cuda_attention_args &a, int row, int group, int first, int parts)
{
    enum { AHEAD = 8 };
    __shared__ int last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        int *arrived = as<int>(a.arrivals) + row * a.kv.n_kv_heads + blockIdx.x;
        last = atomicAdd(arrived, 1) == min(parts, (int)gridDim.z) - 1;
        if (last) *arrived = 0;
    }
    __syncthreads();
    if (!last) return;
    __threadfence();
    uint32_t fours = a.kv.head_size / 4;
    int size = a.kv.padded + RVI_CUDA_PART_MORE;
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < group * fours; i += RVI_CUDA_ATTENTION) {
        int head = blockIdx.x * group + i / fours, e = i % fours * 4;
        const float *part = part_at(a, row, head, 0);
        float m = -INFINITE, l = 0, run_m = -INFINITE, run_l = 0, c, d;
        float4 acc = {}, run = {};
#pragma unroll 1
        for (int at = 0; at < parts; at += AHEAD) {
            float4 v[AHEAD];
            float2 x[AHEAD];
#pragma unroll
            for (int j = 0; j < AHEAD; j++) {
                const float *from = part + (size_t)min(at + j, parts - 1) * size;
                v[j] = __ldcg((const float4 *)(from + e)), x[j] = __ldcg((const float2 *)(from + a.kv.padded));
            }
#pragma unroll
            for (int j = 0; j < AHEAD; j++) {
                if (at + j >= parts) break;
                merge_factors(&run_m, &run_l, x[j].x, x[j].y, &c, &d);
                run = merged(run, c, v[j], d);
                if (a.per == 1 && (first + at + j) % RUN != RUN - 1 && at + j != parts - 1) continue;
                merge_factors(&m, &l, run_m, run_l, &c, &d);
                acc = merged(acc, c, run, d);
                run_m = -INFINITE, run_l = 0, run = {};
            }
        }
        float over = 1.0f / l;
        float *to = row_of(a.out, row) + head * a.kv.head_size + e;
        to[0] = acc.x * over, to[1] = acc.y * over, to[2] = acc.z * over, to[3] = acc.w * over;
    }
}

/* Scores of the row's queries and a chunk's keys, whole in every warp. */
template <int SIZE>
static __device__ __forceinline__ void row_scores(const query_line<SIZE> *q, int group, int k, const uint8_t *keys,
                                                  float2 (*scores)[2][32], float s[8][4])
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4, n = group > 8 ? 2 : 1;
#pragma unroll
    for (int i = 0; i < 8; i++) s[i / 4][i % 4] = 0;
#pragma unroll 2
    for (int e = 0; e < k; e++) {
        uint32_t f[4], b[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            f[i] = i % 2 < n && g + i % 2 * 8 < group ? ((const uint32_t *)q[g + i % 2 * 8].x)[e * 8 + i / 2 * 4 + t] : 0;
        load_matrices(b, keys + key_piece(e * 16 + lane / 8 % 2 * 8 + lane % 8, warp * 2 + lane / 16) * 16);
        mma_f16(s[0], f[0], f[1], f[2], f[3], b[0], b[1]);
        mma_f16(s[1], f[0], f[1], f[2], f[3], b[2], b[3]);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) scores[2 * warp + i / 2][i % 2][lane] = {s[i / 2][i % 2 * 2], s[i / 2][i % 2 * 2 + 1]};
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 16; i++) {
        float2 x = i % 2 < n ? scores[i / 2][i % 2][lane] : float2{};
        s[i / 2][i % 2 * 2] = x.x, s[i / 2][i % 2 * 2 + 1] = x.y;
    }
}

/* What a warp has of a part: of its queries the maximum, the sum of weights, and every fourth 16 elements. */
template <int SIZE> struct row_part {
    enum { MINE = SIZE / 16 / (RVI_CUDA_ATTENTION / 32) };
    float m[2], l[2], all[MINE][2][4];
};

template <int SIZE> static __device__ __forceinline__ void empty_part(row_part<SIZE> *p)
{
#pragma unroll
    for (int h = 0; h < 2; h++) p->m[h] = -INFINITE, p->l[h] = 0;
#pragma unroll
    for (int i = 0; i < 8 * row_part<SIZE>::MINE; i++) p->all[i / 8][i / 4 % 2][i % 4] = 0;
}

/* A chunk's weights onto the part. */
template <int SIZE>
static __device__ __forceinline__ void add_chunk(const float s[8][4], const float m[2], const float l[2], int n, int k,
                                                 const uint8_t *keys, row_part<SIZE> *to)
{
    uint32_t p[4][4];
    float c[2] = {}, d[2] = {};
#pragma unroll
    for (int j = 0; j < 4; j++) weights_at(s, j, p[j]);
#pragma unroll
    for (int h = 0; h < 2; h++)
        if (h < n) merge_factors(&to->m[h], &to->l[h], m[h], l[h], &c[h], &d[h]);
#pragma unroll
    for (int i = 0; i < row_part<SIZE>::MINE; i++) {
        int e = threadIdx.x / 32 + i * (RVI_CUDA_ATTENTION / 32);
        float acc[2][4];
        if (e >= k) break;
        mix_values<SIZE>(p, e, keys, acc);
#pragma unroll
        for (int j = 0; j < 8; j++) {
            float *v = &to->all[i][j / 4][j % 4];
            *v = *v * c[j % 4 / 2] + acc[j / 4][j % 4] * d[j % 4 / 2];
        }
    }
}

/* part: its number; without parts it is all there is. */
template <int SIZE>
static __device__ __forceinline__ void put_part(const rvi_cuda_attention_args &a, int row, int group, int part, const row_part<SIZE> &x)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        if (g + 8 * h >= group) break;
        int head = blockIdx.x * group + g + 8 * h;
        float *to = a.n_parts ? part_at(a, row, head, part) : row_of(a.out, row) + head * a.kv.head_size;
        float over = a.n_parts ? 1.0f : 1.0f / x.l[h];
        if (a.n_parts && t == 0 && warp == 0) to[a.kv.padded] = x.m[h], to[a.kv.padded + 1] = x.l[h];
#pragma unroll
        for (int i = 0; i < 4 * row_part<SIZE>::MINE; i++) {
            int e = (warp + i / 4 * (RVI_CUDA_ATTENTION / 32)) * 16 + i / 2 % 2 * 8 + t * 2 + i % 2;
            float v = x.all[i / 4][i / 2 % 2][2 * h + i % 2];
            if (e < a.kv.head_size) to[e] = a.n_parts ? v : v * over;
        }
    }
}

/* bytes: room for a chunk of q8, whose heads have at most 128 elements. */
template <bool Q8, int SIZE>
static __device__ __forceinline__ void row_attention(const rvi_cuda_attention_args &a, uint8_t *shared, uint8_t *bytes)
{
    __shared__ query_line<SIZE> q[RVI_CUDA_ROW_QUERIES];
    __shared__ __align__(16) raw_row<SIZE> raw;
    if (!a.early) begin();
    int row = blockIdx.y, group = a.n_heads / a.kv.n_kv_heads, k = a.kv.head_size / 16, n = group > 8 ? 2 : 1;
    int2 see[2] = {keys_of(a, row)};
    see[1] = see[0];
    int first = see[0].x / KEYS, last = see[0].y / KEYS, parts = last / a.per - first / a.per + 1, old = see[0].y - a.turns;
    row_walk now = part_from(blockIdx.z, first, last, a.per);
    if (now.chunk == NO_CHUNK) return;
    chunk_pages pages = pages_of(a, row, blockIdx.x, now.chunk, see[0].x, old);
    if (Q8)
        copy_bytes(a, pages, bytes);
    else
        copy_chunk<SIZE>(a, pages, now.chunk, see[0].x, old, shared);
    if (a.early) begin();
    bool newest = a.turns && (parts - 1) % gridDim.z == blockIdx.z, writes = newest && (int)threadIdx.x < a.kv.head_size / 2;
    stage_raw(a, row, group * a.kv.head_size, newest, &raw);
    element_pair key = {};
    float2 value = {};
    if (writes) {
        const float *k = raw.x + group * a.kv.head_size, *v = k + a.kv.head_size + 2 * threadIdx.x;
        key = pair_of(a, raw.angles, k, threadIdx.x);
        value = {v[0], v[1]};
    }
    stage_queries(a, raw, group, q);
    row_part<SIZE> part;
    empty_part(&part);
#pragma unroll 1
    while (now.chunk != NO_CHUNK) {
        row_walk next = next_chunk(now, first, last, a.per);
        pages = pages_of(a, row, blockIdx.x, next.chunk, see[0].x, old);
        copy_wait<0>();
        __syncthreads();
        if (Q8) {
            turn_bytes(a, bytes, now.chunk, see[0].x, old, shared);
            __syncthreads();
            copy_bytes(a, pages, bytes);
        }
        if (newest && now.chunk == last) {
            if (Q8)
                put_newest_q8(a, row, see[0].y, key, value, writes, shared);
            else
                put_newest<SIZE>(a, row, see[0].y, key, value, writes, shared);
            __syncthreads();
        }
        float s[8][4], m[2], l[2];
        row_scores(q, group, k, shared, (float2 (*)[2][32])raw.x, s);
        weigh(a, now.chunk, see, now.chunk * KEYS >= see[0].x && now.chunk * KEYS + KEYS - 1 <= see[0].y, n, s, m, l);
        add_chunk(s, m, l, n, k, shared, &part);
        if (now.chunk == now.end) {
            put_part(a, row, group, now.part, part);
            empty_part(&part);
        }
        if (!Q8) {
            __syncthreads();
            copy_chunk<SIZE>(a, pages, next.chunk, see[0].x, old, shared);
        }
        now = next;
    }
    if (a.n_parts && a.arrivals) join_here(a, row, group, first, parts);
}

/* Grid: heads of keys, rows, blocks that share the parts. With parts and no arrivals attention_join follows; without
 * parts, a row has one run. */
KERNEL __launch_bounds__(RVI_CUDA_ATTENTION) attention_row(rvi_cuda_attention_args a)
{
    DYNAMIC_SHARED(shared_row);
    row_attention<false, 128>(a, shared_row, 0);
}

/* Heads of up to 256 elements. */
KERNEL __launch_bounds__(RVI_CUDA_ATTENTION) attention_row_large(rvi_cuda_attention_args a)
{
    DYNAMIC_SHARED(shared_row);
    row_attention<false, 256>(a, shared_row, 0);
}

KERNEL __launch_bounds__(RVI_CUDA_ATTENTION, 3) attention_row_q8(rvi_cuda_attention_args a)
{
    DYNAMIC_SHARED(shared_row);
    row_attention<true, 128>(a, shared_row, shared_row + CHUNK_BYTES);
}

/* Merges the parts of a head of a row; a block has JOIN_ELEMENTS of its elements. JOINED runs at a time: their parts are
 * merged by all threads, then every element is added up by one. Grid: heads, rows, elements / JOIN_ELEMENTS. */
KERNEL __launch_bounds__(RVI_CUDA_ATTENTION) attention_join(rvi_cuda_attention_args a)
{
    enum { JOINED = RVI_CUDA_ATTENTION, ELEMENTS = RVI_CUDA_JOIN_ELEMENTS, THREADS = RVI_CUDA_ATTENTION, PIECES = ELEMENTS / 4 };
    __shared__ __align__(16) float4 values[JOINED][PIECES];
    __shared__ float tops[JOINED], sums[JOINED], old[JOINED], added[JOINED];
    int head = blockIdx.x, row = blockIdx.y, e0 = blockIdx.z * ELEMENTS, t = threadIdx.x, size = a.kv.padded + RVI_CUDA_PART_MORE;
    int2 see = keys_of(a, row); /* staged before the list began */
    begin();
    int first = see.x / KEYS, last = see.y / KEYS, first_part = first / a.per, last_part = last / a.per;
    const float *part = part_at(a, row, head, 0);
    float m = -INFINITE, l = 0, acc = 0;
#pragma unroll 1
    for (int run = first / RUN; run <= last / RUN; run += JOINED) {
        int n = min(last / RUN - run + 1, (int)JOINED);
        __syncthreads();
#pragma unroll 1
        for (int i = t; i < n * PIECES; i += THREADS) {
            int at = (run + i / PIECES) * (RUN / a.per), from = max(at, first_part), end = min(at + RUN / a.per - 1, last_part);
            int e = min(e0 + i % PIECES * 4, a.kv.padded - 4);
            float4 v[RUN], x = {};
            float2 y[RUN];
            float top = -INFINITE, sum = 0, c, d;
#pragma unroll
            for (int j = 0; j < RUN; j++) {
                const float *p = part + (size_t)(from + j - first_part) * size;
                if (from + j <= end) v[j] = __ldcg((const float4 *)(p + e)), y[j] = __ldcg((const float2 *)(p + a.kv.padded));
            }
#pragma unroll
            for (int j = 0; j < RUN; j++) {
                if (from + j > end) break;
                merge_factors(&top, &sum, y[j].x, y[j].y, &c, &d);
                x = merged(x, c, v[j], d);
            }
            values[i / PIECES][i % PIECES] = x;
            if (i % PIECES == 0) tops[i / PIECES] = top, sums[i / PIECES] = sum;
        }
        __syncthreads();
        float before = m; /* before run t the maximum is that of all runs before it */
#pragma unroll 8
        for (int i = 0; i < n; i++) {
            float top = tops[i];
            if (i < t) before = fmaxf(before, top);
            m = fmaxf(m, top);
        }
        if (t < n) {
            float top = fmaxf(before, tops[t]);
            old[t] = power_of_two(before - top), added[t] = power_of_two(tops[t] - top);
        }
        __syncthreads();
        if (t < ELEMENTS)
#pragma unroll 8
            for (int i = 0; i < n; i++) {
                l = l * old[i] + sums[i] * added[i];
                acc = acc * old[i] + ((const float *)values[i])[t] * added[i];
            }
    }
    if (t < ELEMENTS && e0 + t < a.kv.head_size) row_of(a.out, row)[head * a.kv.head_size + e0 + t] = acc * (1.0f / l);
}
