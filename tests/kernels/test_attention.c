/* test_attention.c - the attention entries of the kernel table, on every ISA row that this machine
 * can run.
 *
 * As in test_kernels.c: `same` compares a row with the reference, bit for bit; `meaning` holds a
 * row against double precision or against the law of kernels.h. Places of keys and values that no
 * query may read hold NaN. */
#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wunused-function" /* kernel_data.h has more than is needed here */
#endif
#include "kernel_data.h"

#include "harness/amount.h"
#include "kernels/exp.h"

static const char *const type_names[RVI_ATTN_TYPES] = {"f32", "f16", "q8", "q4"};
static const size_t head_sizes[] = {1, 7, 16, 32, 48, 64, 80, 100, 128, 256};

/* One chunk: planes, and the keys and values as they were given. */
typedef struct chunk {
    rvi_attn_keys keys;
    uint8_t *planes;
    float *k, *v; /* [RVI_ATTN_CHUNK][n] */
} chunk;

static void put_nibble(uint8_t *plane, size_t i, int value)
{
    int shift = (int)(i % 64 / 32 * 4);
    uint8_t *at = plane + i / 64 * 32 + i % 32;
    *at = (uint8_t)((*at & ~(15 << shift)) | value << shift);
}

static void put_q4(const rvi_attn_keys *keys, int i, const float *k, const float *v)
{
    size_t n = keys->n, padded = rvi_attn_padded(n), slot = (size_t)(i % RVI_ATTN_PAGE),
           groups = (n + 3) / 4;
    uint8_t *kp = (uint8_t *)(uintptr_t)keys->k[i / RVI_ATTN_PAGE],
            *vp = (uint8_t *)(uintptr_t)keys->v[i / RVI_ATTN_PAGE];
    uint8_t q[256];
    rvi_f16 d, m;
    rvi_attn_quantize4(k, q, n, &d, &m);
    for (size_t e = 0; e < groups * 4; e++)
        put_nibble(kp, (e / 4 * RVI_ATTN_PAGE + slot) * 4 + e % 4, e < n ? q[e] : 0);
    memcpy(kp + groups * 2 * RVI_ATTN_PAGE + slot * sizeof d, &d, sizeof d);
    memcpy(kp + groups * 2 * RVI_ATTN_PAGE + (RVI_ATTN_PAGE + slot) * sizeof m, &m, sizeof m);
    rvi_attn_quantize4(v, q, n, &d, &m);
    for (size_t e = 0; e < n; e++) put_nibble(vp, slot * padded + e, q[e]);
    memcpy(vp + padded / 2 * RVI_ATTN_PAGE + slot * sizeof d, &d, sizeof d);
    memcpy(vp + padded / 2 * RVI_ATTN_PAGE + (RVI_ATTN_PAGE + slot) * sizeof m, &m, sizeof m);
}

/* Writes position i (values that no query sees are not written). */
static void put(const rvi_attn_keys *keys, rvi_attn_type type, int i, const float *k,
                const float *v)
{
    size_t n = keys->n, padded = rvi_attn_padded(n), slot = (size_t)(i % RVI_ATTN_PAGE),
           groups = (n + 3) / 4;
    uint8_t *kp = (uint8_t *)(uintptr_t)keys->k[i / RVI_ATTN_PAGE],
            *vp = (uint8_t *)(uintptr_t)keys->v[i / RVI_ATTN_PAGE];
    int8_t q[256];
    if (type == RVI_ATTN_Q4) {
        put_q4(keys, i, k, v);
        return;
    }
    if (type == RVI_ATTN_Q8) {
        float d = ref.quantize_head(k, q, n);
        for (size_t e = 0; e < groups * 4; e++)
            kp[(e / 4 * RVI_ATTN_PAGE + slot) * 4 + e % 4] = e < n ? (uint8_t)q[e] : 0;
        memcpy(kp + groups * 4 * RVI_ATTN_PAGE + slot * sizeof d, &d, sizeof d);
        d = ref.quantize_head(v, q, n);
        memcpy(vp + slot * padded, q, n);
        memcpy(vp + padded * RVI_ATTN_PAGE + slot * sizeof d, &d, sizeof d);
        return;
    }
    for (size_t e = 0; e < n; e++) {
        size_t k_at = e * RVI_ATTN_PAGE + slot, v_at = slot * padded + e;
        if (type == RVI_ATTN_F32) {
            memcpy(kp + k_at * sizeof *k, &k[e], sizeof *k);
            memcpy(vp + v_at * sizeof *v, &v[e], sizeof *v);
        } else {
            rvi_f16 kh = rvi_f32_to_f16(k[e]), vh = rvi_f32_to_f16(v[e]);
            memcpy(kp + k_at * sizeof kh, &kh, sizeof kh);
            memcpy(vp + v_at * sizeof vh, &vh, sizeof vh);
        }
    }
}

static void chunk_init(chunk *c, rvi_attn_type type, size_t n, int from, int end, kind kind_k,
                       kind kind_v)
{
    size_t k_bytes = rvi_attn_k_bytes(type, n), v_bytes = rvi_attn_v_bytes(type, n);
    *c = (chunk){.keys = {.n = n}};
    assert_true(k_bytes % 64 == 0 && v_bytes % 64 == 0);
    c->planes = aligned_alloc(64, RVI_ATTN_PAGES * (k_bytes + v_bytes));
    assert_non_null(c->planes);
    memset(c->planes, 0xff, RVI_ATTN_PAGES * (k_bytes + v_bytes)); /* NaN in f32 and f16 */
    c->k = floats_new(RVI_ATTN_CHUNK * n, kind_k);
    c->v = floats_new(RVI_ATTN_CHUNK * n, kind_v);
    for (int p = from / RVI_ATTN_PAGE; p <= (end - 1) / RVI_ATTN_PAGE; p++) {
        c->keys.k[p] = c->planes + (size_t)p * (k_bytes + v_bytes);
        c->keys.v[p] = c->keys.k[p] + k_bytes;
    }
    for (int i = from; i < end; i++)
        put(&c->keys, type, i, c->k + (size_t)i * n, c->v + (size_t)i * n);
}

static void chunk_deinit(chunk *c)
{
    free(c->planes);
    free(c->k);
    free(c->v);
}

/* Queries, and what they see. */
enum { MAX_QUERIES = 48 };
typedef struct queries {
    rvi_attn_queries q;
    float *x, d[MAX_QUERIES];
    int8_t *q8;
    int32_t from[MAX_QUERIES], end[MAX_QUERIES];
    int first, last; /* of all of them: first .. last - 1 */
} queries;

static void queries_init(queries *s, size_t n, int count, kind k)
{
    size_t padded = rvi_attn_padded(n);
    s->x = alloc((size_t)count * padded * sizeof *s->x);
    s->q8 = alloc((size_t)count * padded);
    for (size_t i = 0; i < (size_t)count; i++) {
        memset(s->x + i * padded, 0, padded * sizeof *s->x);
        fill(s->x + i * padded, n, k);
        s->d[i] = ref.quantize_head(s->x + i * padded, s->q8 + i * padded, n);
    }
    s->q = (rvi_attn_queries){s->x, s->q8, s->d, s->from, s->end, count};
}

static void queries_deinit(queries *s)
{
    free(s->x);
    free(s->q8);
}

/* All alike, one key more each, a sliding window, or anything. */
static void choose_ranges(queries *s, int how)
{
    int at = 1 + random_below(RVI_ATTN_CHUNK - MAX_QUERIES), window = 1 + random_below(40);
    s->first = RVI_ATTN_CHUNK;
    s->last = 0;
    for (int i = 0; i < s->q.n_queries; i++) {
        s->from[i] = how == 2   ? (at + i > window ? at + i - window : 0)
                     : how == 3 ? random_below(RVI_ATTN_CHUNK)
                                : 0;
        s->end[i] = how == 0   ? at
                    : how == 3 ? s->from[i] + 1 + random_below(RVI_ATTN_CHUNK - s->from[i])
                               : at + i;
        if (how == 4) s->end[i] = RVI_ATTN_CHUNK;
        s->first = s->from[i] < s->first ? s->from[i] : s->first;
        s->last = s->end[i] > s->last ? s->end[i] : s->last;
    }
}

static void check_chunk(rvi_attn_type type, size_t n, int count, int how, kind kind_q, kind kind_k,
                        kind kind_v)
{
    queries s;
    chunk c;
    queries_init(&s, n, count, kind_q);
    choose_ranges(&s, how);
    chunk_init(&c, type, n, s.first, s.last, kind_k, kind_v);
    c.keys.soft_cap = random_below(2) ? 0.0f : 20.0f;
    size_t padded = rvi_attn_padded(n), stride = rvi_attn_part_floats(n) + 3,
           total = (size_t)count * stride;
    guarded g;
    float *got = out_new(&g, total), *want = alloc(total * sizeof *want);
    row.attn_chunk[type](&c.keys, &s.q, got, stride);
    ref.attn_chunk[type](&c.keys, &s.q, want, stride);
    for (size_t i = 0; i < (size_t)count; i++) {
        assert_same_bits(type_names[type], got + i * stride, want + i * stride, n, n, i);
        assert_same_bits("m and l", got + i * stride + padded, want + i * stride + padded, 2, n, i);
        const uint8_t *gap = (const uint8_t *)(got + i * stride + padded + 2);
        for (size_t b = 0; b < (stride - padded - 2) * sizeof *got; b++)
            assert_int_equal(gap[b], GUARD_BYTE);
    }
    guard_free(&g, "attn_chunk");
    free(want);
    chunk_deinit(&c);
    queries_deinit(&s);
}

static void same_chunk(void **state)
{
    (void)state;
    for (int type = 0; type < RVI_ATTN_TYPES; type++)
        for (size_t h = 0; h < sizeof head_sizes / sizeof head_sizes[0]; h++)
            for (int count = 1 + random_below(OFTEN(1, 2)); count <= 16; count += OFTEN(1, 2)) {
                kind k = (kind)random_below(KINDS), v = (kind)random_below(KINDS);
                const kind kinds[][3] = {
                    {ORDINARY, ORDINARY, ORDINARY}, {k, ORDINARY, v}, {ORDINARY, k, v}};
                int i = count % 3;
                check_chunk((rvi_attn_type)type, head_sizes[h], count,
                            i ? random_below(5) : count % 5, kinds[i][0], kinds[i][1], kinds[i][2]);
            }
    for (int type = 0; type < RVI_ATTN_TYPES; type++)
        for (int how = 0; how < 5; how++)
            check_chunk((rvi_attn_type)type, 64, 48, how, ORDINARY, ORDINARY, ORDINARY);
}

static void same_merge(void **state)
{
    (void)state;
    for (size_t n = 1; n != 0; n = next_size(n))
        for (kind k = ORDINARY; k < KINDS; k++) {
            size_t padded = rvi_attn_padded(n);
            float *part = floats_new(rvi_attn_part_floats(n), k), *want = floats_new(n, ORDINARY);
            float m[2], l[2];
            if (isnan(part[padded])) part[padded] = -INFINITY; /* a maximum is never NaN */
            m[0] = m[1] = random_below(4) ? random_unit() * 9.0f : -INFINITY;
            l[0] = l[1] = random_unit() + 1.0f;
            guarded g;
            float *got = out_new(&g, n);
            if (random_below(4)) {
                memcpy(got, want, n * sizeof *got);
            } else { /* the first chunk: what lies in acc does not count */
                m[0] = m[1] = -INFINITY;
                l[0] = l[1] = 0;
                for (size_t i = 0; i < n; i++) got[i] = NAN;
                memset(want, 0, n * sizeof *want);
            }
            row.attn_merge(got, &m[0], &l[0], part, n);
            ref.attn_merge(want, &m[1], &l[1], part, n);
            assert_same_bits("attn_merge", got, want, n, n, (size_t)k);
            assert_same_bits("attn_merge, m", &m[0], &m[1], 1, n, (size_t)k);
            assert_same_bits("attn_merge, l", &l[0], &l[1], 1, n, (size_t)k);
            guard_free(&g, "attn_merge");
            free(part);
            free(want);
        }
}

static void same_quantize_head(void **state)
{
    (void)state;
    for (size_t n = 1; n != 0; n = next_size(n))
        for (int i = 0; i < 4 * KINDS; i++) {
            float *x = floats_new(n, (kind)(i % KINDS));
            if (i / KINDS == 1) x[random_below((int)n)] *= 1e-3f;
            guarded g;
            int8_t *got = guard_new(&g, rvi_attn_padded(n), 1), *want = alloc(rvi_attn_padded(n));
            float got_d = row.quantize_head(x, got, n), want_d = ref.quantize_head(x, want, n);
            assert_same_bits("quantize_head, d", &got_d, &want_d, 1, n, 0);
            assert_memory_equal(got, want, rvi_attn_padded(n));
            guard_free(&g, "quantize_head");
            free(want);
            free(x);
        }
}

/* exp from its lower bound up to 0 and over all bit patterns: query i sees a key with score 0 and
 * value 0, and one with score x and value 1, so its sum is exp(x). */
static void same_exp(void **state)
{
    (void)state;
    enum { PAIRS = 32, ROUNDS = AMOUNT(1 << 10, 1 << 5) };
    queries s;
    chunk c;
    queries_init(&s, 1, PAIRS, ORDINARY);
    for (int i = 0; i < PAIRS; i++) {
        s.x[16 * i] = 1.0f;
        s.from[i] = 2 * i;
        s.end[i] = 2 * i + 2;
    }
    chunk_init(&c, RVI_ATTN_F32, 1, 0, 2 * PAIRS, ORDINARY, ORDINARY);
    size_t stride = rvi_attn_part_floats(1);
    float *got = alloc(PAIRS * stride * sizeof *got), *want = alloc(PAIRS * stride * sizeof *want);
    const float zero = 0.0f, one = 1.0f;
    for (uint32_t r = 0; r < ROUNDS; r++) {
        float x[PAIRS];
        for (uint32_t i = 0; i < PAIRS; i++) {
            uint32_t all = (r * PAIRS + i) * (0x80000000u / (PAIRS * ROUNDS)) + 0x80000000u +
                           random_bits() % 65536;
            x[i] =
                float_of_bits(r < 4 ? bits_of_float(RVI_EXP_MIN) + r * PAIRS + i - 2 * PAIRS : all);
            put(&c.keys, RVI_ATTN_F32, 2 * (int)i, &zero, &zero);
            put(&c.keys, RVI_ATTN_F32, 2 * (int)i + 1, &x[i], &one);
        }
        row.attn_chunk[RVI_ATTN_F32](&c.keys, &s.q, got, stride);
        ref.attn_chunk[RVI_ATTN_F32](&c.keys, &s.q, want, stride);
        for (size_t i = 0; i < PAIRS; i++) {
            float exact = rvi_exp_f32(x[i]);
            assert_same_bits("exp", got + i * stride, &exact, 1, r, i);
            assert_same_bits("exp, reference", want + i * stride, &exact, 1, r, i);
        }
    }
    free(got);
    free(want);
    chunk_deinit(&c);
    queries_deinit(&s);
}

/* ---- meaning ---- */

/* A query's bits do not depend on which others go with it. */
static void meaning_queries_are_apart(void **state)
{
    (void)state;
    for (int type = 0; type < RVI_ATTN_TYPES; type++)
        for (int how = 0; how < 5; how++) {
            enum { N = 80, COUNT = 17 };
            queries s;
            chunk c;
            queries_init(&s, N, COUNT, ORDINARY);
            choose_ranges(&s, how);
            chunk_init(&c, (rvi_attn_type)type, N, s.first, s.last, ORDINARY, TINY);
            size_t stride = rvi_attn_part_floats(N);
            float *together = alloc(COUNT * stride * sizeof *together),
                  *alone = alloc(stride * sizeof *alone);
            row.attn_chunk[type](&c.keys, &s.q, together, stride);
            for (int i = 0; i < COUNT; i++) {
                rvi_attn_queries one = {s.x + i * N, s.q8 + i * N, s.d + i,
                                        s.from + i,  s.end + i,    1};
                row.attn_chunk[type](&c.keys, &one, alone, stride);
                assert_memory_equal(alone, together + (size_t)i * stride, (N + 2) * sizeof *alone);
            }
            free(together);
            free(alone);
            chunk_deinit(&c);
            queries_deinit(&s);
        }
}

/* Four chunks merged, against a softmax in double. Observed: 2.8e-6, 1.7e-3, 9.9e-2, 1.1 (scores
 * up to about 15; of 4 bits the largest weights err by a factor). */
static void meaning_attention(void **state)
{
    (void)state;
    static const double bound[RVI_ATTN_TYPES] = {1e-5, 1e-2, 0.3, 2.0};
    for (int type = 0; type < RVI_ATTN_TYPES; type++) {
        enum { N = 64, CHUNKS = 4, KEYS = CHUNKS * RVI_ATTN_CHUNK - 33 };
        queries s;
        chunk c[CHUNKS];
        float acc[N] = {0}, m = -INFINITY, l = 0, part[N + 16];
        double score[KEYS], top = -INFINITY, total = 0, worst = 0;
        queries_init(&s, N, 1, ORDINARY);
        for (int e = 0; e < N; e++) s.x[e] *= 0.125f;
        s.d[0] = ref.quantize_head(s.x, s.q8, N);
        for (int i = 0; i < CHUNKS; i++) {
            s.from[0] = 0;
            s.end[0] = i < CHUNKS - 1 ? RVI_ATTN_CHUNK : KEYS - i * RVI_ATTN_CHUNK;
            chunk_init(&c[i], (rvi_attn_type)type, N, 0, s.end[0], ORDINARY, ORDINARY);
            row.attn_chunk[type](&c[i].keys, &s.q, part, N + 16);
            row.attn_merge(acc, &m, &l, part, N);
        }
        for (int i = 0; i < KEYS; i++) {
            const float *k = c[i / RVI_ATTN_CHUNK].k + i % RVI_ATTN_CHUNK * N;
            score[i] = 0;
            for (int e = 0; e < N; e++) score[i] += (double)s.x[e] * (double)k[e];
            top = fmax(top, score[i]);
        }
        for (int i = 0; i < KEYS; i++) total += exp(score[i] - top);
        for (int e = 0; e < N; e++) {
            double want = 0;
            for (int i = 0; i < KEYS; i++)
                want += exp(score[i] - top) / total *
                        (double)c[i / RVI_ATTN_CHUNK].v[i % RVI_ATTN_CHUNK * N + e];
            worst = fmax(worst, fabs((double)(acc[e] * (1.0f / l)) - want));
        }
        print_message("attention over %d keys, %s: worst error %.3g\n", KEYS, type_names[type],
                      worst);
        assert_true(worst < bound[type]);
        for (int i = 0; i < CHUNKS; i++) chunk_deinit(&c[i]);
        queries_deinit(&s);
    }
}

/* NaN in a key or a value shows in every query that sees it, and in no other. */
static void meaning_nan(void **state)
{
    (void)state;
    for (int type = 0; type < RVI_ATTN_TYPES; type++)
        for (int where = 0; where < 2; where++) {
            enum { N = 48, COUNT = 12, BAD = 40 };
            queries s;
            chunk c;
            queries_init(&s, N, COUNT, ORDINARY);
            for (int i = 0; i < COUNT; i++) {
                s.from[i] = 0;
                s.end[i] = BAD - 5 + i;
            }
            chunk_init(&c, (rvi_attn_type)type, N, 0, BAD + COUNT, ORDINARY, ORDINARY);
            (where ? c.v : c.k)[BAD * N + 3] = NAN;
            put(&c.keys, (rvi_attn_type)type, BAD, c.k + BAD * N, c.v + BAD * N);
            float part[COUNT * (N + 16)];
            row.attn_chunk[type](&c.keys, &s.q, part, N + 16);
            for (int i = 0; i < COUNT; i++)
                assert_true(!!isnan(part[i * (N + 16) + 3]) == (s.end[i] > BAD));
            chunk_deinit(&c);
            queries_deinit(&s);
        }
}

/* Rotating twice is not rotating, and leaves dot products as they are. */
static void meaning_rotate(void **state)
{
    (void)state;
    for (size_t h = 0; h < sizeof head_sizes / sizeof head_sizes[0]; h++) {
        size_t n = head_sizes[h];
        float *x = floats_new(n, ORDINARY), *y = floats_new(n, ORDINARY),
              *old = floats_new(n, TINY);
        double before = 0, after = 0, size = 0;
        memcpy(old, x, n * sizeof *x);
        for (size_t e = 0; e < n; e++) before += (double)x[e] * (double)y[e];
        for (size_t e = 0; e < n; e++) size += fabs((double)x[e] * (double)y[e]);
        rvi_attn_rotate(x, n);
        rvi_attn_rotate(y, n);
        for (size_t e = 0; e < n; e++) after += (double)x[e] * (double)y[e];
        assert_true(fabs(after - before) <= 1e-5 * size);
        if (n % 2 == 0) assert_memory_not_equal(x, old, n * sizeof *x);
        rvi_attn_rotate(x, n);
        for (size_t e = 0; e < n; e++)
            assert_true(fabs((double)x[e] - (double)old[e]) <= 1e-5 * (1 + size));
        free(x);
        free(y);
        free(old);
    }
}

/* A page in q4 is the page in q8, each head to half a step of its own range. */
static void meaning_chill(void **state)
{
    (void)state;
    for (size_t h = 0; h < sizeof head_sizes / sizeof head_sizes[0]; h++) {
        size_t n = head_sizes[h], padded = rvi_attn_padded(n), groups = (n + 3) / 4;
        chunk c;
        chunk_init(&c, RVI_ATTN_Q8, n, 0, RVI_ATTN_PAGE, ORDINARY, ORDINARY);
        uint8_t *cold = alloc(rvi_attn_k_bytes(RVI_ATTN_Q4, n) + rvi_attn_v_bytes(RVI_ATTN_Q4, n));
        rvi_attn_chill(c.planes, cold, n);
        for (int of_v = 0; of_v < 2; of_v++)
            for (size_t slot = 0; slot < RVI_ATTN_PAGE; slot++) {
                const uint8_t *plane = cold + (of_v ? rvi_attn_k_bytes(RVI_ATTN_Q4, n) : 0);
                const float *given = (of_v ? c.v : c.k) + slot * n;
                float want[256], low = INFINITY, high = -INFINITY, amax = 0;
                rvi_f16 d, m;
                const uint8_t *scales =
                    plane + (of_v ? padded / 2 : groups * 2) * RVI_ATTN_PAGE + slot * sizeof d;
                memcpy(&d, scales, sizeof d);
                memcpy(&m, scales + RVI_ATTN_PAGE * sizeof d, sizeof m);
                for (size_t e = 0; e < n; e++) amax = fmaxf(amax, fabsf(want[e] = given[e]));
                if (!of_v) rvi_attn_rotate(want, n);
                for (size_t e = 0; e < n; e++) {
                    low = fminf(low, want[e]);
                    high = fmaxf(high, want[e]);
                }
                /* q8 is off by half of amax / 127, which rotating may add up; f16 by 2^-11 */
                double room = (double)(high - low) / 15 * 0.55 +
                              (double)amax / 127 * 0.5 * sqrt((double)n) +
                              (double)amax * sqrt((double)n) / 1024;
                for (size_t e = 0; e < n; e++) {
                    size_t i =
                        of_v ? slot * padded + e : (e / 4 * RVI_ATTN_PAGE + slot) * 4 + e % 4;
                    int q = plane[i / 64 * 32 + i % 32] >> (i % 64 / 32 * 4) & 15;
                    double got = (double)rvi_f16_to_f32(m) + (double)rvi_f16_to_f32(d) * q;
                    assert_true(fabs(got - (double)want[e]) <= room);
                }
            }
        free(cold);
        chunk_deinit(&c);
    }
}

static int seed(void **state)
{
    (void)state;
    random_state = 20240611;
    return 0;
}

#define CASE(function) cmocka_unit_test_setup(function, seed)

/* A row that adds no attention of its own was tested as the row before it. */
static bool has_same_attention(const rvi_kernels *a, const rvi_kernels *b)
{
    return !memcmp(a->attn_chunk, b->attn_chunk, sizeof a->attn_chunk) &&
           a->attn_merge == b->attn_merge && a->quantize_head == b->quantize_head;
}

int main(void)
{
    const struct CMUnitTest same[] = {CASE(same_chunk), CASE(same_merge), CASE(same_quantize_head),
                                      CASE(same_exp)};
    const struct CMUnitTest meaning[] = {CASE(meaning_queries_are_apart), CASE(meaning_attention),
                                         CASE(meaning_nan), CASE(meaning_rotate),
                                         CASE(meaning_chill)};
    int failed = 0;
    rvi_kernels before = {0};
    rvi_kernels_init(&ref, "ref");
    for (const char *const *isa = rvi_kernels_available(); *isa != NULL; isa++, before = row) {
        char group[64];
        if (!rvi_kernels_init(&row, *isa)) return 1;
        if (has_same_attention(&row, &before)) continue;
        snprintf(group, sizeof group, "attention, meaning, %s", *isa);
        failed += cmocka_run_group_tests_name(group, meaning, NULL, NULL);
        if (strcmp(*isa, "ref") == 0) continue;
        snprintf(group, sizeof group, "attention, %s against ref", *isa);
        failed += cmocka_run_group_tests_name(group, same, NULL, NULL);
    }
    return failed != 0;
}
