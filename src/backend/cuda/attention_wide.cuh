/* attention_wide.cuh - attention by the law of attention.cuh, for many neighbouring rows and heads of the sizes in
 * RVI_CUDA_WIDE_HEADS.
 *
 * A block has two groups of 4 warps, and 4 warps that bring chunks of keys and values, some ahead. The groups have 64
 * queries each, or, of heads of more than 128 elements, the same 64 and a half of the values each: no registers would be
 * left for all of them. The tensor cores take queries, keys and values from shared memory, and go on with the next
 * chunk's scores while a group merges.
 *
 * Everything there is in lines of 128 bytes, whose pieces of 16 are swapped by the line's number (piece ^ line % 8):
 * queries 64 elements of a query (then those of the next 64), keys 64 keys of an element, values 64 elements of a key.
 * Of values that do not fill their lines the rest is anything: an element is mixed from its own column alone. */

enum { WIDE_GROUPS = 2, LINES = 64 * 128, STEP = 16 * 128 /* bytes */ };

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
/* Lines with their pieces swapped, for the tensor cores; they lie in groups of 8. */
static __device__ __forceinline__ uint64_t lines_at(const uint8_t *p)
{
    return (uint64_t)1 << 62 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)(1024 >> 4) << 16 | (shared_at(p) >> 4 & 0x3fff);
}

#define FOUR(i) "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3])
#define EIGHT_FOURS FOUR(0), FOUR(1), FOUR(2), FOUR(3), FOUR(4), FOUR(5), FOUR(6), FOUR(7)
#define C_32                                                                                                           \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "   \
    "%24, %25, %26, %27, %28, %29, %30, %31}, "

/* c += a b: a: 16 elements of 64 queries; b: 16 lines of 64. more: false: c is taken to be 0. */
static __device__ __forceinline__ void score_step(float c[8][4], const uint8_t *a, const uint8_t *b, bool more)
{
    asm volatile("{.reg .pred p; setp.ne.b32 p, %34, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 " C_32
                 "%32, %33, p, 1, 1, 0, 1;}"
                 : EIGHT_FOURS
                 : "l"(lines_at(a)), "l"(lines_at(b)), "r"((int)more));
}

static __device__ __forceinline__ void mix_step(float c[8][4], const uint32_t a[4], const uint8_t *b, bool more)
{
    asm volatile("{.reg .pred p; setp.ne.b32 p, %37, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 " C_32
                 "{%32, %33, %34, %35}, %36, p, 1, 1, 1;}"
                 : EIGHT_FOURS
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(lines_at(b)), "r"((int)more));
}

/* Registers of a group: those that bring chunks need few. */
template <int N> static __device__ __forceinline__ void leave_registers()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

template <int N> static __device__ __forceinline__ void take_registers()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

/* What all lanes of the warp have, so that the compiler knows it. */
static __device__ __forceinline__ int same_of_warp(int x)
{
    return __shfl_sync(0xffffffff, x, 0);
}

/* Nothing that reads c is moved to before here. */
static __device__ __forceinline__ void results(float c[8][4])
{
    asm volatile("" : EIGHT_FOURS::"memory");
}
#undef C_32
#undef EIGHT_FOURS
#undef FOUR
#else
static __device__ __forceinline__ void mix_step(float c[8][4], const uint32_t a[4], const uint8_t *b, bool more)
{
    int lane = threadIdx.x % 32, line = lane % 8, matrix = lane / 8;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        uint32_t m[4];
        load_matrices(m, b + (matrix % 2 * 8 + line) * 128 + ((j * 2 + matrix / 2) ^ line) * 16);
        for (int i = 0; i < 8 && !more; i++) c[2 * j + i / 4][i % 4] = 0;
        mma_f16(c[2 * j], a[0], a[1], a[2], a[3], m[0], m[1]);
        mma_f16(c[2 * j + 1], a[0], a[1], a[2], a[3], m[2], m[3]);
    }
}

static __device__ __forceinline__ void score_step(float c[8][4], const uint8_t *a, const uint8_t *b, bool more)
{
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4, piece = (uint32_t)(uint64_t)a % 128 / 16;
    const uint8_t *from = a - piece * 16 + (threadIdx.x / 32 % 4 * 16 + g) * 128 + t * 4;
    uint32_t f[4];
#pragma unroll
    for (int i = 0; i < 4; i++) f[i] = *(const uint32_t *)(from + i % 2 * 1024 + ((piece + i / 2) ^ g) * 16);
    mix_step(c, f, b, more);
}

static __device__ __forceinline__ void results(float[8][4])
{
}
template <int N> static __device__ __forceinline__ void leave_registers()
{
}
template <int N> static __device__ __forceinline__ void take_registers()
{
}
static __device__ __forceinline__ int same_of_warp(int x)
{
    return x;
}
#endif

/* ---- who waits for whom ---- */

#if __CUDA_ARCH__ >= 900
/* When the lane's copies are there; of all lanes. */
static __device__ __forceinline__ void tell_copied(uint64_t *place)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_at(place)) : "memory");
}

static __device__ __forceinline__ void wait_copied(uint64_t *place, uint32_t parity)
{
    wait_for(place, parity);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* The groups have written what the tensor cores read. */
static __device__ __forceinline__ void groups_meet()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("bar.sync 1, %0;" ::"n"(WIDE_GROUPS * 128) : "memory");
}

static __device__ __forceinline__ void let_groups_meet()
{
}
#else /* all threads of the block, chunk after chunk */
static __device__ __forceinline__ void tell_copied(uint64_t *)
{
    copy_commit();
    copy_wait<0>();
    __syncthreads();
}

static __device__ __forceinline__ void wait_copied(uint64_t *, uint32_t)
{
    __syncthreads();
}

static __device__ __forceinline__ void groups_meet()
{
    __syncthreads();
}

static __device__ __forceinline__ void let_groups_meet()
{
    __syncthreads();
}
#endif

/* 16 bytes, or zeros. */
static __device__ __forceinline__ void copy16_if(uint8_t *to, const uint8_t *from, bool is)
{
#ifdef __CUDACC__
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((uint32_t)__cvta_generic_to_shared(to)), "l"(from), "r"(is ? 16 : 0)
                 : "memory");
#else
    if (is)
        copy16(to, from);
    else
        *(uint4 *)to = {};
#endif
}

template <int HEAD> struct wide {
    enum {
        SHARE = RVI_CUDA_WIDE_SHARE(HEAD), /* groups that have the same queries */
        STAGES = RVI_CUDA_WIDE_STAGES(HEAD),
        STRIPS = (HEAD + 63) / 64,
        MINE = STRIPS / SHARE,   /* strips of values of a group, */
        ELEMENTS = HEAD / SHARE, /* and elements */
        QUERIES = STRIPS * LINES,
        STAGE = HEAD * 128 + STRIPS * LINES,
        ALL_QUERIES = WIDE_GROUPS / SHARE * QUERIES
    };
    uint8_t *queries, *chunks;
    uint64_t *copied, *done; /* of each stage */
    int first, end;          /* chunks of the block */
    float4 *totals;          /* [ELEMENTS / 8][threads]: four elements of the lane's queries */
};

/* ---- the warps that bring keys and values ---- */

/* Keys or values of half `page` of a chunk, whose first key is base. Values of keys that no query sees are zeros. */
template <int HEAD>
static __device__ __forceinline__ void copy_keys(const uint8_t *from, int page, uint8_t *to)
{
    int lane = threadIdx.x % 32, line = lane / 4;
    to += line * 128 + ((page * 4 + lane % 4) ^ line) * 16;
#pragma unroll
    for (int i = 0; i < HEAD / 8; i++) copy16(to + i * 1024, from + lane * 16 + i * 512);
}

template <int HEAD>
static __device__ __forceinline__ void copy_values(const uint8_t *from, int page, int base, const query_tile &t, uint8_t *to)
{
    int lane = threadIdx.x % 32, line = lane / 4, piece = lane % 4;
    enum { FOURS = (HEAD + 31) / 32 }; /* pieces of a line, four lanes at a time */
    uint8_t *half[2]; /* of a line */
    to += HEAD * 128 + (page * RVI_CUDA_PAGE + line) * 128;
    half[0] = to + (piece ^ line) * 16, half[1] = to + (piece ^ line ^ 4) * 16;
    from += line * HEAD * 2 + piece * 16;
    bool all = base >= t.first_seen && base + RVI_CUDA_PAGE - 1 <= t.last_seen;
#pragma unroll
    for (int i = 0; i < 4 * FOURS; i++) {
        int j = i % FOURS, key = i / FOURS * 8, at = base + key + line;
        if (HEAD % 32 && j == FOURS - 1 && piece >= HEAD % 32 / 8) continue;
        copy16_if(half[j % 2] + j / 2 * LINES + key * 128, from + key * HEAD * 2 + j * 64, all || (at >= t.first_seen && at <= t.last_seen));
    }
}

/* Each warp has keys or values of one of a chunk's pages. */
template <int HEAD> static __device__ __forceinline__ void bring_chunks(const rvi_cuda_attention_args &a, const query_tile &t, const wide<HEAD> &w)
{
    const int32_t *table = as<const int32_t>(a.kv.tables) + as<const int2>(a.kv.rows)[t.row].x;
    int page = threadIdx.x / 64 % 2, values = threadIdx.x / 32 % 2;
    const uint8_t *head = as<const uint8_t>(a.kv.data) + ((size_t)a.kv.il * a.kv.n_kv_heads + blockIdx.x) * (a.kv.k_bytes + a.kv.v_bytes) +
                          (values ? a.kv.k_bytes : 0);
    int low = t.first_seen / RVI_CUDA_PAGE, high = t.last_seen / RVI_CUDA_PAGE;
    int next = table[min(max(2 * w.first + page, low), high)], stage = 0, round = 0;
    let_groups_meet();
#pragma unroll 1
    for (int chunk = w.first; chunk <= w.end; chunk++) {
        const uint8_t *from = head + (size_t)next * a.kv.page_bytes;
        uint8_t *to = w.chunks + stage * wide<HEAD>::STAGE;
        next = table[min(max(2 * chunk + 2 + page, low), high)];
        if (round) wait_for_warps(w.done + stage, (round - 1) & 1);
        if (values)
            copy_values<HEAD>(from, page, chunk * KEYS + page * RVI_CUDA_PAGE, t, to);
        else
            copy_keys<HEAD>(from, page, to);
        tell_copied(w.copied + stage);
        if (++stage == wide<HEAD>::STAGES) stage = 0, round++;
    }
    copy_commit();
    copy_wait<0>();
}

/* ---- the groups ---- */

/* Elements 8 piece .. + 7 of a query; a.turns: turned by the row's angles, as rope does. */
static __device__ __forceinline__ void query_piece(const rvi_cuda_attention_args &a, int row, const float *x, int piece, float v[8])
{
    int e = piece * 8, n_pairs = a.turns ? a.angles.n / 2 : 0, p = e < n_pairs ? e : e - n_pairs;
#pragma unroll
    for (int i = 0; i < 2; i++) *(float4 *)(v + 4 * i) = ((const float4 *)(x + e))[i];
    if (e >= 2 * n_pairs) return;
    const float *angles = row_of(a.angles, row);
    if (a.interleaved) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float c = angles[e / 2 + i], s = angles[n_pairs + e / 2 + i], left = v[2 * i], right = v[2 * i + 1];
            v[2 * i] = fmaf(left, c, -(right * s)), v[2 * i + 1] = fmaf(right, c, left * s);
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float4 c = *(const float4 *)(angles + p + 4 * i), s = *(const float4 *)(angles + n_pairs + p + 4 * i);
        float4 y = *(const float4 *)(x + (e < n_pairs ? e + n_pairs : p) + 4 * i);
        if (e < n_pairs) y = {-y.x, -y.y, -y.z, -y.w}; /* its sign alone: the bits are those of -(right * s) */
        float *to = v + 4 * i;
        to[0] = fmaf(to[0], c.x, y.x * s.x), to[1] = fmaf(to[1], c.y, y.y * s.y);
        to[2] = fmaf(to[2], c.z, y.z * s.z), to[3] = fmaf(to[3], c.w, y.w * s.w);
    }
}

/* Queries of the group, or of those that share them, as load_query has them. */
template <int HEAD>
static __device__ __forceinline__ void stage_wide_queries(const rvi_cuda_attention_args &a, const query_tile &t, int group, uint8_t *to)
{
    enum { PIECES = HEAD / 8, THREADS = wide<HEAD>::SHARE * 128 };
    float scale = query_scale(a);
    int share = a.n_heads / a.kv.n_kv_heads;
#pragma unroll 4
    for (int i = threadIdx.x % THREADS; i < 64 * PIECES; i += THREADS) {
        int line = i / PIECES, piece = i % PIECES, at = group * 64 + line;
        uint4 v = {};
        if (at < t.n * share) {
            int row = t.row + at / share;
            __align__(16) float x[8];
            query_piece(a, row, row_of(a.q, row) + (blockIdx.x * share + at % share) * HEAD, piece, x);
            v = {to_halves(x[0] * scale, x[1] * scale), to_halves(x[2] * scale, x[3] * scale), to_halves(x[4] * scale, x[5] * scale),
                 to_halves(x[6] * scale, x[7] * scale)};
        }
        *(uint4 *)(to + piece / 8 * LINES + line * 128 + (piece % 8 ^ line % 8) * 16) = v;
    }
}

template <int HEAD> static __device__ __forceinline__ void begin_scores(const uint8_t *queries, const uint8_t *keys, float s[8][4])
{
#pragma unroll
    for (int e = 0; e < HEAD / 16; e++) score_step(s, queries + e / 4 * LINES + e % 4 * 32, keys + e * STEP, e > 0);
    group_end();
}

static __device__ __forceinline__ void begin_mix(const uint32_t p[4][4], const uint8_t *values, float acc[8][4])
{
#pragma unroll
    for (int j = 0; j < 4; j++) mix_step(acc, p[j], values + j * STEP, j > 0);
    group_end();
}

/* 64 elements of a chunk onto those of the lane's queries. */
static __device__ __forceinline__ void merge_wide(const float acc[8][4], const float c[2], const float d[2], const bool takes[2],
                                                  bool all_take, float all[8][4])
{
    if (all_take) {
#pragma unroll
        for (int i = 0; i < 32; i++) all[i / 4][i % 4] = all[i / 4][i % 4] * c[i % 4 / 2] + acc[i / 4][i % 4] * d[i % 4 / 2];
    } else
#pragma unroll
        for (int i = 0; i < 32; i++) {
            float *v = &all[i / 4][i % 4], merged = *v * c[i % 4 / 2] + acc[i / 4][i % 4] * d[i % 4 / 2];
            *v = takes[i % 4 / 2] ? merged : *v;
        }
}

struct stage_turn {
    int stage;
    uint32_t turn;
};

template <int HEAD> static __device__ __forceinline__ stage_turn after(const stage_turn &at)
{
    return at.stage + 1 == wide<HEAD>::STAGES ? stage_turn{0, at.turn ^ 1} : stage_turn{at.stage + 1, at.turn};
}

/* None of the group's queries sees it. */
template <int HEAD> static __device__ __forceinline__ void pass_chunk(const wide<HEAD> &w, stage_turn *at)
{
    wait_copied(w.copied + at->stage, at->turn);
    if (threadIdx.x % 32 == 0) done_with(w.done + at->stage);
    *at = after<HEAD>(*at);
}

/* The queries that a group has, 64 from 64 `group` on, and the lane's two of them: lines g and g + 8 of the warp's 16. */
struct wide_queries {
    int2 early, late; /* keys that the first and the last one of the group see */
    bool whole;       /* the group has 64 */
    int row[2], head[2];
    bool is[2];
    int2 see[2];
};

static __device__ __forceinline__ wide_queries queries_of(const rvi_cuda_attention_args &a, const query_tile &t, int group)
{
    int share = a.n_heads / a.kv.n_kv_heads;
    wide_queries q;
    q.early = keys_of(a, t.row + min(group * 64 / share, t.n - 1));
    q.late = keys_of(a, t.row + min((group * 64 + 63) / share, t.n - 1));
    q.whole = (group + 1) * 64 <= t.n * share;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int at = group * 64 + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4 + 8 * h;
        q.is[h] = at < t.n * share;
        q.row[h] = t.row + min(at / share, t.n - 1), q.head[h] = blockIdx.x * share + at % share;
        q.see[h] = q.is[h] ? keys_of(a, q.row[h]) : int2{0, -1};
    }
    return q;
}

/* What the lane has of its queries in a run, and the maximum and the sum of the runs before. */
template <int HEAD> struct wide_sums {
    float m[2], l[2], all[wide<HEAD>::MINE][8][4], top[2], sum[2];
};

template <int HEAD> static __device__ __forceinline__ void empty_run(wide_sums<HEAD> *x)
{
#pragma unroll
    for (int i = 0; i < wide<HEAD>::MINE * 32; i++) x->all[i / 32][i / 4 % 8][i % 4] = 0;
#pragma unroll
    for (int h = 0; h < 2; h++) x->m[h] = -INFINITE, x->l[h] = 0;
}

/* A run, whose first key is given, onto the total of the lane's queries, whose elements lie in shared memory: no
 * registers are left for them. */
template <int HEAD>
static __device__ __forceinline__ void add_wide_run(float4 *total, const wide_queries &q, int key, bool is_first, wide_sums<HEAD> *x)
{
    enum { THREADS = WIDE_GROUPS * 128 };
    float c[2] = {1.0f, 1.0f}, d[2] = {};
    bool takes[2];
#pragma unroll
    for (int h = 0; h < 2; h++) takes[h] = key <= q.see[h].y && key + RUN * KEYS > q.see[h].x;
    for (int h = 0; h < 2; h++)
        if (takes[h]) merge_factors(&x->top[h], &x->sum[h], x->m[h], x->l[h], &c[h], &d[h]);
#pragma unroll
    for (int i = 0; i < wide<HEAD>::ELEMENTS / 8; i++) {
        float *v = x->all[i / 8][i % 8];
        float4 y = is_first ? float4{} : total[i * THREADS];
        if (takes[0]) y.x = y.x * c[0] + v[0] * d[0], y.y = y.y * c[0] + v[1] * d[0];
        if (takes[1]) y.z = y.z * c[1] + v[2] * d[1], y.w = y.w * c[1] + v[3] * d[1];
        total[i * THREADS] = y;
    }
    empty_run(x);
}

/* A chunk, whose scores are on their way to s; then those of the next one are. strip: the group's first one. */
template <int HEAD>
static __device__ __forceinline__ stage_turn wide_chunk(const rvi_cuda_attention_args &a, const wide<HEAD> &w, const wide_queries &q,
                                                        const uint8_t *queries, int strip, int chunk, int last,
                                                        const stage_turn &at, float s[8][4], wide_sums<HEAD> *x)
{
    enum { MINE = wide<HEAD>::MINE };
    const uint8_t *values = w.chunks + at.stage * wide<HEAD>::STAGE + HEAD * 128 + strip * LINES;
    float top[2], sum[2], c[2] = {}, d[2] = {}, acc[MINE][8][4];
    bool takes[2], all_take = q.whole && chunk * KEYS + KEYS > q.late.x && chunk * KEYS <= q.early.y;
    uint32_t p[4][4];
    group_wait<0>();
    results(s);
    weigh(a, chunk, q.see, chunk * KEYS >= q.late.x && chunk * KEYS + KEYS - 1 <= q.early.y, 2, s, top, sum);
#pragma unroll
    for (int j = 0; j < 4; j++) weights_at(s, j, p[j]);
    group_begin();
#pragma unroll
    for (int h = 0; h < MINE; h++) begin_mix(p, values + h * LINES, acc[h]);
    stage_turn next = chunk < last ? after<HEAD>(at) : at; /* behind the last chunk: once more, and nobody looks at it */
    if (chunk < last) wait_copied(w.copied + next.stage, next.turn);
    group_begin();
    begin_scores<HEAD>(queries, w.chunks + next.stage * wide<HEAD>::STAGE, s);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        takes[h] = q.is[h] && chunk * KEYS <= q.see[h].y && chunk * KEYS + KEYS > q.see[h].x;
        if (takes[h]) merge_factors(&x->m[h], &x->l[h], top[h], sum[h], &c[h], &d[h]);
    }
    if constexpr (MINE == 2) {
        group_wait<2>();
        results(acc[0]);
        merge_wide(acc[0], c, d, takes, all_take, x->all[0]);
    }
    group_wait<1>();
    results(acc[MINE - 1]);
    if (threadIdx.x % 32 == 0 && chunk < last) done_with(w.done + at.stage);
    merge_wide(acc[MINE - 1], c, d, takes, all_take, x->all[MINE - 1]);
    return next;
}

/* strip: the group's first one. */
template <int HEAD>
static __device__ __forceinline__ void put_wide(const rvi_cuda_attention_args &a, const wide<HEAD> &w, const wide_queries &q, int strip,
                                                const wide_sums<HEAD> &x)
{
    const float4 *total = w.totals + threadIdx.x;
    float *out[2], over[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        out[h] = row_of(a.out, q.row[h]) + q.head[h] * HEAD + strip * 64 + threadIdx.x % 4 * 2;
        over[h] = 1.0f / x.sum[h];
    }
#pragma unroll
    for (int i = 0; i < wide<HEAD>::ELEMENTS / 8; i++) {
        float4 y = total[i * WIDE_GROUPS * 128];
        if (q.is[0]) *(float2 *)(out[0] + i * 8) = {y.x * over[0], y.y * over[0]};
        if (q.is[1]) *(float2 *)(out[1] + i * 8) = {y.z * over[1], y.w * over[1]};
    }
}

template <int HEAD>
static __device__ __forceinline__ void attend(const rvi_cuda_attention_args &a, const query_tile &t, const wide<HEAD> &w)
{
    typedef wide<HEAD> W;
    int number = same_of_warp(threadIdx.x / 128), group = number / W::SHARE, strip = number % W::SHARE * W::MINE, chunk = w.first;
    uint8_t *queries = w.queries + group * W::QUERIES;
    stage_wide_queries<HEAD>(a, t, group, queries);
    wide_queries q = queries_of(a, t, group);
    wide_sums<HEAD> x;
    empty_run(&x);
#pragma unroll
    for (int h = 0; h < 2; h++) x.top[h] = -INFINITE, x.sum[h] = 0;
    int from = q.early.x / KEYS, last = q.late.y / KEYS; /* chunks of the group */
    stage_turn at = {};
    bool is_first = true; /* run */
    float s[8][4];
    groups_meet();
    for (; chunk < from; chunk++) pass_chunk(w, &at);
    wait_copied(w.copied + at.stage, at.turn);
    group_begin();
    begin_scores<HEAD>(queries, w.chunks + at.stage * W::STAGE, s);
#pragma unroll 1
    for (; chunk <= last; chunk++) {
        at = wide_chunk<HEAD>(a, w, q, queries, strip, chunk, last, at, s, &x);
        if (chunk % RUN != RUN - 1 && chunk != last) continue;
        add_wide_run<HEAD>(w.totals + threadIdx.x, q, chunk / RUN * RUN * KEYS, is_first, &x);
        is_first = false;
    }
    group_wait<0>();
    if (threadIdx.x % 32 == 0) done_with(w.done + at.stage);
    at = after<HEAD>(at);
    for (; chunk <= w.end; chunk++) pass_chunk(w, &at);
    put_wide<HEAD>(a, w, q, strip, x);
}

/* Like tile_at, for blocks of so many queries. */
template <int QUERIES> static __device__ query_tile wide_tile_at(const rvi_cuda_attention_args &a, int i)
{
    int2 run = as<const int2>(a.runs)[i / a.n_splits];
    int most = QUERIES / (a.n_heads / a.kv.n_kv_heads), from = i % a.n_splits * most;
    query_tile t = {run.x + from, min(run.y - from, most), 0, -1};
    if (t.n > 0) t.first_seen = keys_of(a, t.row).x, t.last_seen = keys_of(a, t.row + t.n - 1).y;
    return t;
}

template <int HEAD> static __device__ __forceinline__ void wide_attention(const rvi_cuda_attention_args &a, uint8_t *shared)
{
    typedef wide<HEAD> W;
    __shared__ uint64_t copied[W::STAGES], done[W::STAGES];
    if (threadIdx.x < W::STAGES) expect_warps(copied + threadIdx.x, 128), expect_warps(done + threadIdx.x, WIDE_GROUPS * 4);
    expecting();
    __syncthreads();
    begin();
    query_tile t = wide_tile_at<RVI_CUDA_WIDE_QUERIES(HEAD)>(a, gridDim.y - 1 - blockIdx.y); /* those with most keys first */
    if (t.n < 1) return;
    uint8_t *chunks = shared + W::ALL_QUERIES;
    W w = {shared, chunks, copied, done, t.first_seen / KEYS, t.last_seen / KEYS, (float4 *)(chunks + W::STAGES * W::STAGE)};
    if (threadIdx.x / 128 == WIDE_GROUPS) {
        leave_registers<40>();
        bring_chunks<HEAD>(a, t, w);
    } else {
        take_registers<232>();
        attend<HEAD>(a, t, w);
    }
}

/* Grid: heads of keys, tiles. */
#define X(size)                                                                                                        \
    KERNEL __launch_bounds__(RVI_CUDA_WIDE_THREADS, 1) attention_wide_##size(rvi_cuda_attention_args a)                \
    {                                                                                                                  \
        DYNAMIC_SHARED(shared_wide);                                                                                   \
        wide_attention<size>(a, shared_wide);                                                                          \
    }
RVI_CUDA_WIDE_HEADS(X)
#undef X

enum { NAN_HALF = 0x7fff }; /* to_half of one */

/* ---- keys of many rows, turned, and their values, to pages of f16: what rope_kv does, for 32 rows of a head at a time,
 * so that neighbours of a sequence write whole lines. Grid: rows / 32, heads of keys. ---- */

enum { KEY_ROWS = RVI_CUDA_KEY_ROWS, KEY_LINE = RVI_CUDA_MAX_WIDE_HEAD + 2 /* elements: rows of one element lie in different banks */ };

KERNEL __launch_bounds__(RVI_CUDA_THREADS, 4) rope_keys(rvi_cuda_rope_kv_args a)
{
    __shared__ uint16_t keys[KEY_ROWS][KEY_LINE];
    __shared__ bool lost[KEY_ROWS]; /* see is_out */
    begin();
    int first = blockIdx.x * KEY_ROWS, rows = min(a.n_rows - first, (int)KEY_ROWS), head = blockIdx.y, lane = threadIdx.x % 32;
    uint32_t n = a.kv.head_size, half = n / 2, n_pairs = a.angles.n / 2, before = a.x.n - a.kv.n_kv_heads * n + head * n;
    int mine = first + min(lane, rows - 1), pos = as<const int2>(a.kv.rows)[mine].y, slot = pos % RVI_CUDA_PAGE;
    uint8_t *plane = planes(a.kv, mine, pos / RVI_CUDA_PAGE, head);
#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < rows * half; i += RVI_CUDA_THREADS) {
        uint32_t r = i / half, p = i % half, u = 2 * p, v = 2 * p + 1;
        const float *x = row_of(a.x, first + r) + before, *angles = row_of(a.angles, first + r);
        float y[2];
        if (p < n_pairs && !a.interleaved) u = p, v = p + n_pairs;
        float left = x[u], right = x[v];
        if (p < n_pairs) {
            float c = angles[p], s = angles[n_pairs + p];
            y[0] = fmaf(left, c, -(right * s)), y[1] = fmaf(right, c, left * s);
        } else
            y[0] = left, y[1] = right;
        keys[r][u] = to_half(y[0]), keys[r][v] = to_half(y[1]);
    }
#pragma unroll 4
    for (int r = threadIdx.x / 32; r < rows; r += RVI_CUDA_THREADS / 32) {
        int at = as<const int2>(a.kv.rows)[first + r].y;
        uint8_t *to = planes(a.kv, first + r, at / RVI_CUDA_PAGE, head) + a.kv.k_bytes + (size_t)(at % RVI_CUDA_PAGE) * n * 2;
        const float *x = row_of(a.v, first + r) + head * n;
        float2 v[RVI_CUDA_MAX_WIDE_HEAD / 64];
        bool out = false;
#pragma unroll
        for (int i = 0; i < RVI_CUDA_MAX_WIDE_HEAD / 64; i++) {
            uint32_t e = 2 * lane + 64 * i;
            v[i] = {};
            if (e < n) v[i] = {x[e], x[e + 1]};
            out = out || is_out(v[i].x) || is_out(v[i].y);
        }
        out = __any_sync(0xffffffff, out);
#pragma unroll
        for (int i = 0; i < RVI_CUDA_MAX_WIDE_HEAD / 64; i++) {
            uint32_t e = 2 * lane + 64 * i;
            if (e < n) *(uint32_t *)(to + e * 2) = out ? 0 : to_halves(v[i].x, v[i].y);
        }
        if (lane == 0) lost[r] = out;
    }
    __syncthreads();
    if (lane < rows)
#pragma unroll 4
        for (uint32_t e = threadIdx.x / 32; e < n; e += RVI_CUDA_THREADS / 32)
            ((uint16_t *)plane)[e * RVI_CUDA_PAGE + slot] = lost[lane] ? (uint16_t)NAN_HALF : keys[lane][e];
}
