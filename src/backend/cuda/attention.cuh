/* attention.cuh - attention over pages of f16 on the tensor cores, for heads of 16 to 128 elements (multiples of 16).
 *
 *  query   Times the attention's scale and, where there is no soft cap, log2(e); then rounded to f16.
 *  chunk   64 keys by absolute position. Scores: mma.m16n8k16 over 16 elements at a time, in order. m: their maximum;
 *          p = exp2(score - m), by the device's approximation; l: a lane has keys 2 t, 2 t + 1 of each 8, in order, then the tree over the lanes; acc:
 *          p rounded to f16, mma over 16 keys at a time, in order.
 *  merge   Chunks with a key that the query sees, in order, onto m = -infinity, l = 0, acc = 0.
 *
 * Values are taken to be finite: a key that a query does not see, but another one of its tile does, has p = 0.
 *
 * The heads that share keys are queries of one tile, and so are neighbouring rows of a sequence. */

enum { KEYS = RVI_CUDA_KEYS, TILE_QUERIES = RVI_CUDA_QUERIES, CHUNK_BYTES = 2 * KEYS * 128 * 2, NO_CHUNK = 1 << 24 };

static __device__ const float LOG2_E = 1.44269504f;

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
static __device__ __forceinline__ int value_piece(int key, int piece)
{
    return KEYS * 128 * 2 / 16 + key * 16 + (piece ^ (key & 7));
}

/* Keys: a line of 64 for each element; values: a line of elements for each key, zeros where no query sees any. */
static __device__ void copy_chunk(const rvi_cuda_attention_args &a, const query_tile &t, int kv_head, int chunk, uint8_t *to)
{
    int n = a.kv.head_size, first = t.first_seen, last = t.last_seen;
    if (chunk * KEYS <= last)
        for (int page = 0; page < KEYS / RVI_CUDA_PAGE; page++) {
            int base = chunk * KEYS + page * RVI_CUDA_PAGE;
            bool any = base <= last && base + RVI_CUDA_PAGE > first;
            const uint8_t *k = any ? planes(a.kv, t.row, base / RVI_CUDA_PAGE, kv_head) : 0, *v = k + a.kv.k_bytes;
            for (int i = threadIdx.x; any && i < n * 4; i += RVI_CUDA_ATTENTION)
                copy16(to + key_piece(i / 4, page * 4 + i % 4) * 16, k + i * 16);
            for (int i = threadIdx.x; i < RVI_CUDA_PAGE * n / 8; i += RVI_CUDA_ATTENTION) {
                int key = i / (n / 8), piece = i % (n / 8);
                uint8_t *at = to + value_piece(page * RVI_CUDA_PAGE + key, piece) * 16;
                if (any && base + key >= first && base + key <= last)
                    copy16(at, v + i * 16);
                else
                    *(uint4 *)at = {};
            }
        }
    copy_commit();
}

struct mix_tile { /* of a lane's queries g and g + 8 */
    float m[2], l[2], acc[16][4];
};

/* q: A operands by 16 elements; k: the number of these; see: first and last key of the two queries. */
static __device__ __forceinline__ void chunk_tile(const rvi_cuda_attention_args &a, const uint32_t q[8][4], int k, int chunk,
                                                  const int2 see[2], bool all_seen, const uint8_t *shared, mix_tile *x)
{
    int lane = threadIdx.x % 32, t = lane % 4, line = lane % 8, matrix = lane / 8;
    float s[8][4];
#pragma unroll
    for (int i = 0; i < 32; i++) s[i / 4][i % 4] = 0;
#pragma unroll
    for (int e = 0; e < 8; e++) {
        if (e >= k) break;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            uint32_t b[4]; /* elements 0 .. 7, 8 .. 15 of keys 0 .. 7, then of 8 .. 15 */
            load_matrices(b, shared + key_piece(e * 16 + matrix % 2 * 8 + line, j * 2 + matrix / 2) * 16);
            mma_f16(s[2 * j], q[e][0], q[e][1], q[e][2], q[e][3], b[0], b[1]);
            mma_f16(s[2 * j + 1], q[e][0], q[e][1], q[e][2], q[e][3], b[2], b[3]);
        }
    }
    if (a.soft_cap > 0)
#pragma unroll
        for (int i = 0; i < 32; i++) s[i / 4][i % 4] = capped(s[i / 4][i % 4], a.soft_cap) * LOG2_E;
    if (!all_seen)
#pragma unroll
        for (int i = 0; i < 32; i++) {
            int key = chunk * KEYS + i / 4 * 8 + 2 * t + i % 2, h = i % 4 / 2;
            if (key < see[h].x || key > see[h].y) s[i / 4][i % 4] = -INFINITE;
        }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float top = -INFINITE, sum = 0;
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
        x->m[h] = top;
        x->l[h] = sum;
    }
#pragma unroll
    for (int i = 0; i < 64; i++) x->acc[i / 4][i % 4] = 0;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        uint32_t p[4];
        for (int i = 0; i < 4; i++)
            p[i] = to_halves(s[2 * j + i / 2][i % 2 * 2], s[2 * j + i / 2][i % 2 * 2 + 1]);
#pragma unroll
        for (int e = 0; e < 8; e++) {
            if (e >= k) break;
            uint32_t b[4];
            load_matrices(b, shared + value_piece(j * 16 + matrix % 2 * 8 + line, e * 2 + matrix / 2) * 16);
            mma_f16(x->acc[2 * e], p[0], p[1], p[2], p[3], b[0], b[1]);
            mma_f16(x->acc[2 * e + 1], p[0], p[1], p[2], p[3], b[2], b[3]);
        }
    }
}

static __device__ __forceinline__ void merge_factors(float *m, float *l, float m2, float l2, float *c, float *d)
{
    float top = fmaxf(*m, m2);
    *c = power_of_two(*m - top), *d = power_of_two(m2 - top);
    *m = top;
    *l = *l * *c + l2 * *d;
}

/* The query of line i of the warp's 16; false: there is none. */
static __device__ bool query_at(const rvi_cuda_attention_args &a, const query_tile &t, int i, int *row, int *head)
{
    int group = a.n_heads / a.kv.n_kv_heads, at = threadIdx.x / 32 * 16 + i;
    *row = t.row + min(at / group, t.n - 1);
    *head = blockIdx.x * group + at % group;
    return at < t.n * group;
}

static __device__ void load_query(const rvi_cuda_attention_args &a, const query_tile &t, int k, uint32_t q[8][4])
{
    int g = threadIdx.x % 32 / 4, n = a.kv.head_size;
    float scale = a.soft_cap > 0 ? a.scale : a.scale * LOG2_E;
#pragma unroll
    for (int e = 0; e < 8; e++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int row, head;
            q[e][i] = 0;
            if (e >= k || !query_at(a, t, g + i % 2 * 8, &row, &head)) continue;
            const float *x = row_of(a.q, row) + head * n + e * 16 + i / 2 * 8 + threadIdx.x % 4 * 2;
            q[e][i] = to_halves(x[0] * scale, x[1] * scale);
        }
}

/* Elements 2 t, 2 t + 1 of each 8. */
static __device__ void put_tile(const mix_tile &x, int h, int k, float factor, float *to)
{
#pragma unroll
    for (int e = 0; e < 16; e++) {
        if (e >= 2 * k) break;
        float *at = to + e * 8 + threadIdx.x % 4 * 2;
        at[0] = x.acc[e][2 * h] * factor, at[1] = x.acc[e][2 * h + 1] * factor;
    }
}

/* Grid: heads of keys, tiles, parts. With parts a block has one chunk of its tile, and attention_join follows. */
KERNEL __launch_bounds__(RVI_CUDA_ATTENTION) attention_tiles(rvi_cuda_attention_args a)
{
    DYNAMIC_SHARED(shared);
    begin();
    query_tile t = tile_at(a, blockIdx.y);
    int k = a.kv.head_size / 16, g = threadIdx.x % 32 / 4;
    int chunk = t.first_seen / KEYS + blockIdx.z, end = a.n_parts ? chunk : t.last_seen / KEYS;
    if (t.n < 1 || chunk * KEYS > t.last_seen) return;
    int row[2], head[2], low = 0x7fffffff, high = -1, latest = 0, earliest = 0x7fffffff;
    bool is[2];
    int2 see[2];
    uint32_t q[8][4];
    for (int h = 0; h < 2; h++) {
        is[h] = query_at(a, t, g + 8 * h, &row[h], &head[h]);
        see[h] = is[h] ? keys_of(a, row[h]) : int2{0, -1};
        if (is[h]) low = min(low, see[h].x), high = max(high, see[h].y);
        if (is[h]) latest = max(latest, see[h].x), earliest = min(earliest, see[h].y);
    }
    for (int d = 4; d < 32; d *= 2) { /* of the warp's queries */
        low = min(low, __shfl_xor_sync(0xffffffff, low, d));
        high = max(high, __shfl_xor_sync(0xffffffff, high, d));
        latest = max(latest, __shfl_xor_sync(0xffffffff, latest, d));
        earliest = min(earliest, __shfl_xor_sync(0xffffffff, earliest, d));
    }
    load_query(a, t, k, q);
    mix_tile all, x;
    for (int i = 0; i < 64; i++) all.acc[i / 4][i % 4] = 0;
    for (int h = 0; h < 2; h++) all.m[h] = -INFINITE, all.l[h] = 0;
    copy_chunk(a, t, blockIdx.x, chunk, shared);
    for (int turn = 0; chunk <= end; chunk++, turn ^= 1) {
        copy_chunk(a, t, blockIdx.x, chunk < end ? chunk + 1 : NO_CHUNK, shared + (turn ^ 1) * CHUNK_BYTES);
        copy_wait<1>();
        __syncthreads();
        if (chunk * KEYS <= high && chunk * KEYS + KEYS > low) {
            bool all_seen = chunk * KEYS >= latest && chunk * KEYS + KEYS - 1 <= earliest;
            chunk_tile(a, q, k, chunk, see, all_seen, shared + turn * CHUNK_BYTES, &x);
#pragma unroll
            for (int h = 0; h < 2; h++) {
                if (!is[h] || chunk * KEYS > see[h].y || chunk * KEYS + KEYS <= see[h].x) continue;
                if (a.n_parts) {
                    float *part = part_at(a, row[h], head[h], chunk - see[h].x / KEYS);
                    put_tile(x, h, k, 1.0f, part);
                    if (threadIdx.x % 4 == 0) part[a.kv.padded] = x.m[h], part[a.kv.padded + 1] = x.l[h];
                    continue;
                }
                float c, d;
                merge_factors(&all.m[h], &all.l[h], x.m[h], x.l[h], &c, &d);
#pragma unroll
                for (int i = 0; i < 32; i++) {
                    float *v = &all.acc[i / 2][2 * h + i % 2];
                    *v = *v * c + x.acc[i / 2][2 * h + i % 2] * d;
                }
            }
        }
        __syncthreads();
    }
    for (int h = 0; h < 2 && !a.n_parts; h++)
        if (is[h]) put_tile(all, h, k, 1.0f / all.l[h], row_of(a.out, row[h]) + head[h] * a.kv.head_size);
}

/* Grid: heads, rows. */
KERNEL attention_join(rvi_cuda_attention_args a)
{
    begin();
    int head = blockIdx.x, row = blockIdx.y, e = threadIdx.x;
    int2 see = keys_of(a, row);
    float m = -INFINITE, l = 0, acc = 0;
#pragma unroll 4
    for (int i = 0; i <= see.y / KEYS - see.x / KEYS; i++) {
        const float *part = part_at(a, row, head, i);
        float c, d, v = e < a.kv.head_size ? part[e] : 0.0f;
        merge_factors(&m, &l, part[a.kv.padded], part[a.kv.padded + 1], &c, &d);
        acc = acc * c + v * d;
    }
    if (e < a.kv.head_size) row_of(a.out, row)[head * a.kv.head_size + e] = acc * (1.0f / l);
}
