/* vector_attention.h - the attention entries of a vector row, written once for all instruction sets. Inside the
 * kernels room only.
 *
 * Scores (queries times keys, lanes are keys) and the mix (weights times values, lanes are elements) are the same
 * small product: rows of floats times a panel whose rows hold a few registers, summed in order of the inner index.
 * A few queries go together, so that each register of keys or values is loaded and widened once for all of them;
 * lanes and queries are apart, so this does not show in the bits.
 *
 * Besides what vector_lanes.h asks for, a row defines
 *     QUERIES VECS             queries and registers of one product; QUERIES * VECS accumulators and VECS + 1
 *                              registers more must fit
 *     widen_int8(p)            WIDTH int8 as floats
 *     narrow_int8(p, v)        the reverse, rounded to nearest even; the values are within -127 .. 127
 *     dots, bytes              WIDTH int32; WIDTH times 4 int8
 *     dots_start(q, n)         what a sum of dot4 for the query q of n int8 (n: a multiple of 16) starts from
 *     load_bytes(p) splat_bytes(i)   keys; the four bytes i in every lane
 *     dot4(acc, k, q)          acc + the sum of the four products in every lane; |k|, |q| <= 127
 *     dots_to_float(acc) dots_zero()
 *     widen_nibbles(p, high)   the low or high halves of WIDTH bytes as floats
 *     split_nibbles(p, to)     32 bytes to 16 / WIDTH registers: their low halves, then their high ones, a byte each
 *     dot4_low(acc, k, q)      dot4 with such k
 * and afterwards calls fill_attention(table). */
#ifndef RVI_KERNELS_VECTOR_ATTENTION_H
#define RVI_KERNELS_VECTOR_ATTENTION_H

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "kernels/kernels.h"
#include "kernels/vector_lanes.h"

enum {
    COLUMNS = VECS * WIDTH,
    SCORES = RVI_ATTN_CHUNK + 16, /* floats from one query's scores to the next: not the same cache sets */
};
_Static_assert(RVI_ATTN_PAGE % COLUMNS == 0 && COLUMNS % 16 == 0 && (QUERIES == 6 || QUERIES == 12), "panel");

/* For how many queries there is code of their own: X(count). Others go in pieces of these. */
#if QUERIES == 12
#define COUNTS(X, arg) X(1, arg) X(2, arg) X(3, arg) X(4, arg) X(6, arg) X(8, arg) X(12, arg)
#else
#define COUNTS(X, arg) X(1, arg) X(2, arg) X(3, arg) X(4, arg) X(6, arg)
#endif

static ALWAYS_INLINE int piece(int n)
{
    if (QUERIES >= 12 && n >= 12) return 12;
    if (QUERIES >= 8 && n >= 8) return 8;
    return n >= 6 ? 6 : n >= 4 ? 4 : n;
}

/* Which half of bytes values of 4 bits are; further types to the functions below. */
enum { NIBBLES_LOW = RVI_ATTN_TYPES, NIBBLES_HIGH };

static ALWAYS_INLINE size_t element_bytes(int type)
{
    return type == RVI_ATTN_F32 ? sizeof(float) : type == RVI_ATTN_F16 ? sizeof(rvi_f16) : sizeof(int8_t);
}

static ALWAYS_INLINE vec load_elements(const uint8_t *p, int type)
{
    if (type == RVI_ATTN_F32) return load((const float *)(const void *)p, WIDTH);
    if (type == RVI_ATTN_F16) return load_f16(p, WIDTH);
    if (type >= NIBBLES_LOW) return widen_nibbles(p, type == NIBBLES_HIGH);
    return widen_int8((const int8_t *)p);
}

/* acc[q][c] = fma(a[q][i], b[i][c], acc[q][c]) for i in order. Rows of b are b_bytes apart; the same places at
 * `ahead` are asked for. */
static ALWAYS_INLINE void multiply_panel(vec acc[QUERIES][VECS], int nq, int nv, const float *a, size_t a_stride,
                                         const uint8_t *b, size_t b_bytes, const uint8_t *ahead, int n, int type)
{
    const float *a3[4]; /* one for three rows, so that addresses need few registers */
    UNROLL for (int q = 0; q < 4; q++) a3[q] = a + (size_t)(3 * q) * a_stride;
    for (int i = 0; i < n; i++, b += b_bytes, ahead += b_bytes) {
        vec bv[VECS];
        UNROLL for (int c = 0; c < nv; c++) bv[c] = load_elements(b + (size_t)c * WIDTH * element_bytes(type), type);
        __builtin_prefetch(ahead);
        if (type == RVI_ATTN_F32) __builtin_prefetch(ahead + 64);
        UNROLL for (int q = 0; q < nq; q++)
        {
            vec s = splat(a3[q / 3][(size_t)(q % 3) * a_stride]);
            UNROLL for (int c = 0; c < nv; c++) acc[q][c] = fused(s, bv[c], acc[q][c]);
        }
        UNROLL for (int q = 0; q < 4; q++) a3[q]++;
    }
}

/* ---- scores ---- */

/* Pages first .. last of the chunk; scores of query q go to score + q * SCORES. */
typedef struct span {
    const rvi_attn_keys *keys;
    int first, last;
    float *score;
} span;

enum { AHEAD = 2 }; /* pages from what is read to what is asked for */

/* What to ask for while a page of keys is read: one further on, after the last one the first values. */
static ALWAYS_INLINE const uint8_t *after_keys(const span *s, int page)
{
    page += AHEAD;
    if (page <= s->last) return s->keys->k[page];
    page += s->first - s->last - 1;
    return s->keys->v[page < s->last ? page : s->last];
}

/* The same for values; what comes after them is known only to the caller. */
static ALWAYS_INLINE const uint8_t *after_values(const span *s, int page)
{
    if (page + AHEAD <= s->last) return s->keys->v[page + AHEAD];
    const uint8_t *next = s->keys->next[page + AHEAD - s->last - 1];
    return next ? next : s->keys->v[page];
}

static ALWAYS_INLINE void score_floats(int nq, const span *s, const rvi_attn_queries *queries, int query, int type)
{
    size_t n = s->keys->n, padded = rvi_attn_padded(n), row = RVI_ATTN_PAGE * element_bytes(type);
    const float *q = queries->q + (size_t)query * padded;
    for (int page = s->first; page <= s->last; page++)
        for (size_t at = 0; at < RVI_ATTN_PAGE; at += COLUMNS) {
            vec acc[QUERIES][VECS];
            UNROLL for (int i = 0; i < nq; i++) UNROLL for (int c = 0; c < VECS; c++) acc[i][c] = splat(0.0f);
            size_t offset = at * element_bytes(type);
            multiply_panel(acc, nq, VECS, q, padded, s->keys->k[page] + offset, row, after_keys(s, page) + offset,
                           (int)n, type);
            float *out = s->score + (size_t)query * SCORES + (size_t)page * RVI_ATTN_PAGE + at;
            UNROLL for (int i = 0; i < nq; i++) UNROLL for (int c = 0; c < VECS; c++)
                store(out + i * SCORES + c * WIDTH, WIDTH, acc[i][c]);
        }
}

static ALWAYS_INLINE void score_int8(int nq, const span *s, const rvi_attn_queries *queries, int query)
{
    size_t groups = (s->keys->n + 3) / 4, padded = rvi_attn_padded(s->keys->n);
    const int8_t *q = queries->q8 + (size_t)query * padded;
    dots start[QUERIES];
    UNROLL for (int i = 0; i < nq; i++) start[i] = dots_start(q + (size_t)i * padded, padded);
    for (int page = s->first; page <= s->last; page++)
        for (size_t at = 0; at < RVI_ATTN_PAGE; at += COLUMNS) {
            const uint8_t *k = s->keys->k[page] + at * 4, *ahead = after_keys(s, page) + at * 4;
            dots acc[QUERIES][VECS];
            UNROLL for (int i = 0; i < nq; i++) UNROLL for (int c = 0; c < VECS; c++) acc[i][c] = start[i];
            for (size_t g = 0; g < groups; g++, k += RVI_ATTN_PAGE * 4, ahead += RVI_ATTN_PAGE * 4) {
                bytes kv[VECS];
                UNROLL for (int c = 0; c < VECS; c++) kv[c] = load_bytes(k + c * WIDTH * 4);
                __builtin_prefetch(ahead);
                if (COLUMNS * 4 > 64) __builtin_prefetch(ahead + 64);
                UNROLL for (int i = 0; i < nq; i++)
                {
                    int32_t four;
                    memcpy(&four, q + (size_t)i * padded + 4 * g, sizeof four);
                    UNROLL for (int c = 0; c < VECS; c++) acc[i][c] = dot4(acc[i][c], kv[c], splat_bytes(four));
                }
            }
            const float *d = (const float *)(const void *)(s->keys->k[page] + groups * RVI_ATTN_PAGE * 4) + at;
            float *out = s->score + (size_t)query * SCORES + (size_t)page * RVI_ATTN_PAGE + at;
            UNROLL for (int i = 0; i < nq; i++) UNROLL for (int c = 0; c < VECS; c++)
            {
                vec scale = multiply(splat(queries->d[query + i]), load(d + c * WIDTH, WIDTH));
                store(out + i * SCORES + c * WIDTH, WIDTH, multiply(dots_to_float(acc[i][c]), scale));
            }
        }
}

/* qs of the law */
static float sum_query(const rvi_attn_queries *q, int i, size_t padded)
{
    int32_t all = 0;
    for (size_t e = 0; e < padded; e++) all += q->q8[(size_t)i * padded + e];
    return q->d[i] * (float)all;
}

static ALWAYS_INLINE void score_nibbles(int nq, const span *s, const rvi_attn_queries *queries, int query)
{
    enum { REGISTERS = 16 / WIDTH /* of 16 keys */ };
    size_t groups = (s->keys->n + 3) / 4, padded = rvi_attn_padded(s->keys->n);
    const int8_t *q = queries->q8 + (size_t)query * padded;
    float sums[QUERIES];
    UNROLL for (int i = 0; i < nq; i++) sums[i] = sum_query(queries, query + i, padded);
    for (int page = s->first; page <= s->last; page++)
        for (size_t at = 0; at < RVI_ATTN_PAGE; at += COLUMNS) {
            const uint8_t *k = s->keys->k[page] + at * 2, *ahead = after_keys(s, page) + at * 2;
            dots acc[QUERIES][VECS];
            UNROLL for (int i = 0; i < nq; i++) UNROLL for (int c = 0; c < VECS; c++) acc[i][c] = dots_zero();
            for (size_t g = 0; g < groups; g++, k += RVI_ATTN_PAGE * 2, ahead += RVI_ATTN_PAGE * 2) {
                bytes kv[VECS];
                UNROLL for (int c = 0; c < VECS; c += REGISTERS) split_nibbles(k + c * WIDTH * 2, kv + c);
                __builtin_prefetch(ahead);
                UNROLL for (int i = 0; i < nq; i++)
                {
                    int32_t four;
                    memcpy(&four, q + (size_t)i * padded + 4 * g, sizeof four);
                    UNROLL for (int c = 0; c < VECS; c++) acc[i][c] = dot4_low(acc[i][c], kv[c], splat_bytes(four));
                }
            }
            const uint8_t *scales = s->keys->k[page] + groups * 2 * RVI_ATTN_PAGE;
            const rvi_f16 *d = (const rvi_f16 *)(const void *)scales + at, *m = d + RVI_ATTN_PAGE;
            float *out = s->score + (size_t)query * SCORES + (size_t)page * RVI_ATTN_PAGE + at;
            UNROLL for (int c = 0; c < VECS; c++)
            {
                vec kd = load_f16(d + c * WIDTH, WIDTH), km = load_f16(m + c * WIDTH, WIDTH);
                UNROLL for (int i = 0; i < nq; i++)
                {
                    vec scaled = multiply(dots_to_float(acc[i][c]), multiply(splat(queries->d[query + i]), kd));
                    store(out + i * SCORES + c * WIDTH, WIDTH, fused(splat(sums[i]), km, scaled));
                }
            }
        }
}

typedef void score_fn(const span *s, const rvi_attn_queries *queries, int query);

#define SCORE_FLOATS(nq, type)                                                                                         \
    static void score_##type##_##nq(const span *s, const rvi_attn_queries *queries, int query)                         \
    {                                                                                                                  \
        score_floats(nq, s, queries, query, RVI_ATTN_##type);                                                          \
    }
#define SCORE_INT8(nq, type)                                                                                           \
    static void score_##type##_##nq(const span *s, const rvi_attn_queries *queries, int query)                         \
    {                                                                                                                  \
        score_int8(nq, s, queries, query);                                                                             \
    }
#define SCORE_NIBBLES(nq, type)                                                                                        \
    static void score_##type##_##nq(const span *s, const rvi_attn_queries *queries, int query)                         \
    {                                                                                                                  \
        score_nibbles(nq, s, queries, query);                                                                          \
    }
COUNTS(SCORE_FLOATS, F32)
COUNTS(SCORE_FLOATS, F16)
COUNTS(SCORE_INT8, Q8)
COUNTS(SCORE_NIBBLES, Q4)

#define SCORE_ENTRY(nq, type) [nq] = score_##type##_##nq,
static score_fn *const score_fns[RVI_ATTN_TYPES][QUERIES + 1] = {
    {COUNTS(SCORE_ENTRY, F32)}, {COUNTS(SCORE_ENTRY, F16)}, {COUNTS(SCORE_ENTRY, Q8)}, {COUNTS(SCORE_ENTRY, Q4)}};

/* ---- weights ---- */

/* The lanes of a block of 16 scores outside from .. end - 1 (within the block) become -infinity. */
static ALWAYS_INLINE void hide_scores(float *s, int from, int end)
{
    static const float lane[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    UNROLL for (int r = 0; r < SUM_REGISTERS; r++)
    {
        vec at = load(lane + r * WIDTH, WIDTH), v = load(s + r * WIDTH, WIDTH);
        mask hidden = either(above(splat((float)from), at), above(at, splat((float)end - 0.5f)));
        store(s + r * WIDTH, WIDTH, choose(hidden, splat(-INFINITY), v));
    }
}

/* Scores from .. end - 1 of one query get their cap; returns the largest of them. What lies around them in their blocks
 * of 16 becomes -infinity: its weight will be 0, so it enters neither the maximum nor the sum. */
static float top_score(const rvi_attn_keys *keys, float *s, int from, int end)
{
    int begin = from / 16 * 16, stop = (end + 15) / 16 * 16;
    if (keys->soft_cap > 0)
        for (int i = begin; i < stop; i += WIDTH) store(s + i, WIDTH, cap_lanes(load(s + i, WIDTH), keys->soft_cap));
    if (begin < from) hide_scores(s + begin, from - begin, 16);
    if (end < stop) hide_scores(s + stop - 16, 0, end - (stop - 16));
    vec high[SUM_REGISTERS];
    UNROLL for (int r = 0; r < SUM_REGISTERS; r++) high[r] = splat(-INFINITY);
    for (int i = begin; i < stop; i += 16)
        UNROLL for (int r = 0; r < SUM_REGISTERS; r++) high[r] = higher(load(s + i + r * WIDTH, WIDTH), high[r]);
    UNROLL for (int r = 1; r < SUM_REGISTERS; r++) high[0] = higher(high[r], high[0]);
    return max_across(high[0]) + 0.0f; /* -0 becomes +0 */
}

/* Then they become weights; in q8 the scales of the values go into them. Returns l of the law. */
static float weigh(const rvi_attn_keys *keys, float *s, int from, int end, float top, rvi_attn_type type)
{
    vec sum[SUM_REGISTERS];
    UNROLL for (int r = 0; r < SUM_REGISTERS; r++) sum[r] = splat(0.0f);
    for (int i = from / 16 * 16; i < end; i += 16) UNROLL for (int r = 0; r < SUM_REGISTERS; r++)
        {
            int at = i + r * WIDTH;
            vec p = exp_down_lanes(subtract(load(s + at, WIDTH), splat(top)));
            sum[r] = add(sum[r], p);
            if (type == RVI_ATTN_Q8) {
                const uint8_t *v = keys->v[at / RVI_ATTN_PAGE];
                const float *d = (const float *)(const void *)(v + RVI_ATTN_PAGE * rvi_attn_padded(keys->n));
                p = multiply(p, load(d + at % RVI_ATTN_PAGE, WIDTH));
            }
            store(s + at, WIDTH, p);
        }
    return add_lanes(sum);
}

/* ---- the mix ---- */

/* n keys of a page, from `slot` on, onto columns `at` and on. Values of 4 bits are in the same half of their bytes for
 * all keys where a head has whole blocks of 64. */
static ALWAYS_INLINE void mix_slots(vec acc[QUERIES][VECS], int nq, int nv, const float *weight, const uint8_t *v,
                                    const uint8_t *ahead, size_t padded, size_t at, int slot, int n, int type)
{
    if (type != RVI_ATTN_Q4) {
        size_t row = padded * element_bytes(type), offset = (size_t)slot * row + at * element_bytes(type);
        multiply_panel(acc, nq, nv, weight, SCORES, v + offset, row, ahead + offset, n, type);
        return;
    }
    for (int some = padded % 64 ? 1 : n; n > 0; n -= some, slot += some, weight += some) {
        size_t i = (size_t)slot * padded + at, offset = i / 64 * 32 + i % 32;
        if (i % 64 < 32)
            multiply_panel(acc, nq, nv, weight, SCORES, v + offset, padded / 2, ahead + offset, some, NIBBLES_LOW);
        else
            multiply_panel(acc, nq, nv, weight, SCORES, v + offset, padded / 2, ahead + offset, some, NIBBLES_HIGH);
    }
}

/* Keys from .. end - 1 onto columns `at` and on of the sums of nq queries, or onto 0 where they are fresh. */
static ALWAYS_INLINE void mix_columns(int nq, int nv, const span *s, int query, int from, int end, bool fresh,
                                      size_t at, float *part, size_t part_stride, rvi_attn_type type)
{
    const rvi_attn_keys *keys = s->keys;
    float *out = part + (size_t)query * part_stride + at;
    vec acc[QUERIES][VECS];
    UNROLL for (int i = 0; i < nq; i++) UNROLL for (int c = 0; c < nv; c++) acc[i][c] =
        fresh ? splat(0.0f) : load(out + (size_t)i * part_stride + c * WIDTH, WIDTH);
    for (int key = from; key < end;) {
        int page = key / RVI_ATTN_PAGE, slot = key % RVI_ATTN_PAGE;
        int n = end - key < RVI_ATTN_PAGE - slot ? end - key : RVI_ATTN_PAGE - slot;
        mix_slots(acc, nq, nv, s->score + (size_t)query * SCORES + (size_t)key, keys->v[page], after_values(s, page),
                  rvi_attn_padded(keys->n), at, slot, n, (int)type);
        key += n;
    }
    UNROLL for (int i = 0; i < nq; i++) UNROLL for (int c = 0; c < nv; c++)
        store(out + (size_t)i * part_stride + c * WIDTH, WIDTH, acc[i][c]);
}

static ALWAYS_INLINE void mix_keys(int nq, const span *s, int query, int from, int end, bool fresh, float *part,
                                   size_t part_stride, rvi_attn_type type)
{
    size_t at = 0, padded = rvi_attn_padded(s->keys->n);
    bool even = type != RVI_ATTN_Q4 || padded % 64 == 0; /* else more than 16 values may be in both halves of bytes */
    for (; even && at + COLUMNS <= padded; at += COLUMNS)
        mix_columns(nq, VECS, s, query, from, end, fresh, at, part, part_stride, type);
    for (; at < padded; at += 16) mix_columns(nq, 16 / WIDTH, s, query, from, end, fresh, at, part, part_stride, type);
}

typedef void mix_fn(const span *s, int query, int from, int end, bool fresh, float *part, size_t part_stride);

#define MIX(nq, type)                                                                                                  \
    static void mix_##type##_##nq(const span *s, int query, int from, int end, bool fresh, float *part,                \
                                  size_t part_stride)                                                                  \
    {                                                                                                                  \
        mix_keys(nq, s, query, from, end, fresh, part, part_stride, RVI_ATTN_##type);                                  \
    }
COUNTS(MIX, F32)
COUNTS(MIX, F16)
COUNTS(MIX, Q8)
COUNTS(MIX, Q4)

#define MIX_ENTRY(nq, type) [nq] = mix_##type##_##nq,
static mix_fn *const mix_fns[RVI_ATTN_TYPES][QUERIES + 1] = {
    {COUNTS(MIX_ENTRY, F32)}, {COUNTS(MIX_ENTRY, F16)}, {COUNTS(MIX_ENTRY, Q8)}, {COUNTS(MIX_ENTRY, Q4)}};

/* ---- 4 bits ---- */

/* o of the law, from the weights p before they get their scales. */
static float sum_lows(const rvi_attn_keys *keys, const float *p, int from, int end)
{
    _Alignas(64) float low[RVI_ATTN_CHUNK];
    int begin = from / 16 * 16, stop = (end + 15) / 16 * 16;
    size_t scales = RVI_ATTN_PAGE / 2 * rvi_attn_padded(keys->n) + RVI_ATTN_PAGE * sizeof(rvi_f16);
    for (int i = begin; i < stop; i += WIDTH) {
        const uint8_t *m = keys->v[i / RVI_ATTN_PAGE] + scales;
        store(low + i, WIDTH, load_f16(m + (size_t)(i % RVI_ATTN_PAGE) * sizeof(rvi_f16), WIDTH));
    }
    for (int i = begin; i < from; i++) low[i] = 0.0f; /* not seen */
    for (int i = end; i < stop; i++) low[i] = 0.0f;
    vec sum[SUM_REGISTERS];
    UNROLL for (int r = 0; r < SUM_REGISTERS; r++) sum[r] = splat(0.0f);
    for (int i = begin; i < stop; i += 16)
        UNROLL for (int r = 0; r < SUM_REGISTERS; r++) sum[r] =
            fused(load(p + i + r * WIDTH, WIDTH), load(low + i + r * WIDTH, WIDTH), sum[r]);
    return add_lanes(sum);
}

static void scale_weights(const rvi_attn_keys *keys, float *p, int from, int end)
{
    size_t scales = RVI_ATTN_PAGE / 2 * rvi_attn_padded(keys->n);
    for (int i = from / 16 * 16; i < end; i += WIDTH) {
        const uint8_t *d = keys->v[i / RVI_ATTN_PAGE] + scales;
        vec s = load_f16(d + (size_t)(i % RVI_ATTN_PAGE) * sizeof(rvi_f16), WIDTH);
        store(p + i, WIDTH, multiply(load(p + i, WIDTH), s));
    }
}

/* ---- a chunk ---- */

/* Up to QUERIES queries. Keys that all of them see are mixed together; those before and after, query by query. */
static void attend(const rvi_attn_keys *keys, const rvi_attn_queries *q, float *part, size_t part_stride,
                   rvi_attn_type type)
{
    _Alignas(64) float score[QUERIES * SCORES];
    float low[QUERIES]; /* q4 */
    size_t padded = rvi_attn_padded(keys->n);
    int first = RVI_ATTN_CHUNK, last = 0, from = 0, end = RVI_ATTN_CHUNK; /* of some query, of all of them */
    for (int i = 0; i < q->n_queries; i++) {
        first = q->from[i] < first ? q->from[i] : first;
        from = q->from[i] > from ? q->from[i] : from;
        last = q->end[i] > last ? q->end[i] : last;
        end = q->end[i] < end ? q->end[i] : end;
    }
    span s = {.keys = keys, .first = first / RVI_ATTN_PAGE, .last = (last - 1) / RVI_ATTN_PAGE, .score = score};
    for (int i = 0, n; i < q->n_queries; i += n) {
        n = piece(q->n_queries - i);
        score_fns[type][n](&s, q, i);
    }
    for (int i = 0; i < q->n_queries; i++)
        part[(size_t)i * part_stride + padded] = top_score(keys, score + i * SCORES, q->from[i], q->end[i]);
    for (int i = 0; i < q->n_queries; i++) {
        float *out = part + (size_t)i * part_stride;
        out[padded + 1] = weigh(keys, score + i * SCORES, q->from[i], q->end[i], out[padded], type);
        if (type == RVI_ATTN_Q4) {
            low[i] = sum_lows(keys, score + i * SCORES, q->from[i], q->end[i]);
            scale_weights(keys, score + i * SCORES, q->from[i], q->end[i]);
        }
        int until = from < end ? from : q->end[i];
        if (q->from[i] < until)
            mix_fns[type][1](&s, i, q->from[i], until, true, part, part_stride);
        else if (first < from)
            memset(out, 0, padded * sizeof *out);
    }
    for (int i = 0, n; from < end && i < q->n_queries; i += n) {
        n = piece(q->n_queries - i);
        mix_fns[type][n](&s, i, from, end, first == from, part, part_stride);
    }
    for (int i = 0, n; from < end && i < q->n_queries; i += n) { /* the heads of a row end together */
        for (n = 1; i + n < q->n_queries && q->end[i + n] == q->end[i];) n++;
        n = piece(n);
        if (end < q->end[i]) mix_fns[type][n](&s, i, end, q->end[i], false, part, part_stride);
    }
    for (int i = 0; type == RVI_ATTN_Q4 && i < q->n_queries; i++)
        for (size_t e = 0; e < padded; e += WIDTH) {
            float *out = part + (size_t)i * part_stride + e;
            store(out, WIDTH, add(load(out, WIDTH), splat(low[i])));
        }
}

static void attend_all(const rvi_attn_keys *keys, const rvi_attn_queries *queries, float *part, size_t part_stride,
                       rvi_attn_type type)
{
    size_t padded = rvi_attn_padded(keys->n);
    for (int at = 0; at < queries->n_queries; at += QUERIES) {
        rvi_attn_queries few = *queries;
        few.n_queries = queries->n_queries - at < QUERIES ? queries->n_queries - at : QUERIES;
        few.from += at;
        few.end += at;
        if (type == RVI_ATTN_Q8 || type == RVI_ATTN_Q4) {
            few.q8 += (size_t)at * padded;
            few.d += at;
        } else {
            few.q += (size_t)at * padded;
        }
        attend(keys, &few, part + (size_t)at * part_stride, part_stride, type);
    }
}

static void attn_chunk_f32(const rvi_attn_keys *keys, const rvi_attn_queries *queries, float *part, size_t part_stride)
{
    attend_all(keys, queries, part, part_stride, RVI_ATTN_F32);
}

static void attn_chunk_f16(const rvi_attn_keys *keys, const rvi_attn_queries *queries, float *part, size_t part_stride)
{
    attend_all(keys, queries, part, part_stride, RVI_ATTN_F16);
}

static void attn_chunk_q8(const rvi_attn_keys *keys, const rvi_attn_queries *queries, float *part, size_t part_stride)
{
    attend_all(keys, queries, part, part_stride, RVI_ATTN_Q8);
}

static void attn_chunk_q4(const rvi_attn_keys *keys, const rvi_attn_queries *queries, float *part, size_t part_stride)
{
    attend_all(keys, queries, part, part_stride, RVI_ATTN_Q4);
}

static void attn_merge(float *acc, float *m, float *l, const float *part, size_t n)
{
    float part_m = part[rvi_attn_padded(n)], part_l = part[rvi_attn_padded(n) + 1];
    float top = part_m > *m ? part_m : *m;
    float a = rvi_exp_f32(*m - top), b = rvi_exp_f32(part_m - top);
    bool fresh = *l == 0.0f;
    for (size_t i = 0; i < n; i += WIDTH) {
        vec more = multiply(load(part + i, WIDTH), splat(b)), old = fresh ? splat(0.0f) : load(acc + i, n - i);
        store(acc + i, n - i, fused(old, splat(a), more));
    }
    *l = fmaf(*l, a, part_l * b);
    *m = top;
}

/* ---- int8 heads ---- */

static float quantize_head(const float *x, int8_t *q, size_t n)
{
    vec high = splat(0.0f);
    mask nan = unordered(splat(0.0f));
    for (size_t i = 0; i < n; i += WIDTH) {
        vec v = load(x + i, n - i);
        nan = either(nan, unordered(v));
        v = choose(above(splat(0.0f), v), negate(v), v);
        high = choose(above(v, high), v, high);
    }
    float lanes[WIDTH], amax = 0.0f;
    store(lanes, WIDTH, high);
    for (int j = 0; j < WIDTH; j++) amax = lanes[j] > amax ? lanes[j] : amax;
    bool finite = !any(nan) && amax < INFINITY;
    if (!finite || amax < 1e-30f) {
        memset(q, 0, rvi_attn_padded(n));
        return finite ? 0.0f : NAN;
    }
    vec inverse = splat(127.0f / amax);
    for (size_t i = 0; i < rvi_attn_padded(n); i += WIDTH)
        narrow_int8(q + i, i < n ? multiply(load(x + i, n - i), inverse) : splat(0.0f));
    return amax / 127.0f;
}

static void fill_attention(rvi_kernels *k)
{
    k->quantize_head = quantize_head;
    k->attn_chunk[RVI_ATTN_F32] = attn_chunk_f32;
    k->attn_chunk[RVI_ATTN_F16] = attn_chunk_f16;
    k->attn_chunk[RVI_ATTN_Q8] = attn_chunk_q8;
    k->attn_chunk[RVI_ATTN_Q4] = attn_chunk_q4;
    k->attn_merge = attn_merge;
}

#endif
