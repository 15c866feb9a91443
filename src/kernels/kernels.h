/* kernels.h - the arithmetic, as a table of functions filled from reference to best.
 *
 * No malloc, no threads, no logs; nothing here can fail. The scalar row (ref.c) is the specification and every
 * faster row gives THE SAME BITS. That is possible because each operation's order is written down here and is
 * the same for every vector width:
 *
 *  sum16   A sum over n f32 products runs in 16 lanes: lane j takes elements j, j+16, j+32, ... in order, each
 *          by one fused multiply-add onto the lane, starting from +0. Elements past the last whole 16 go to the
 *          lanes they fall on (lanes without one are left as they are). Then the lanes are added as a tree:
 *          l[j] += l[j+8] for j < 8, l[j] += l[j+4], l[j] += l[j+2], l[0] + l[1].
 *  chain   Products with int8 activations: one f32 accumulator per output, starting from +0, block after block;
 *          inside a block the integer dot product is exact (int32). The step of each type stands at rvi_gemm_act_fn.
 *  runs    Products with F32 and F16 weights in default mode: chains of 256 inputs (float_panels.h).
 *  pairs   Products with BF16 weights in default mode: in the order of the matrix units (float_panels.h).
 *  exp     One polynomial (exp.h), evaluated by the same fused multiply-adds in the same order; below about
 *          -87.34 it is 0.
 *
 * So the result of one output row never depends on how many rows go together: gemm over 1 x 1, 3 x 2 or 64 x
 * 512 agree. */
#ifndef RVI_KERNELS_KERNELS_H
#define RVI_KERNELS_KERNELS_H

#include <stdbool.h>

#include "formats/qtypes.h"
#include "kernels/train_gemm.h"

/* 32 activations as int8: x ~ d * q, d = amax / 127, q = round to nearest even of x * (127 / amax).
 * amax below 1e-30: d = 0, q = 0. Any NaN or infinity among the 32: d = NaN, q = 0 (so the result is NaN, never
 * garbage). |q| <= 127, never -128: the products rely on it. */
typedef struct rvi_act_block {
    float d;
    float d_sum; /* d * (float)sum */
    int32_t sum; /* of q */
    int8_t q[32];
} rvi_act_block;
_Static_assert(sizeof(rvi_act_block) == 44, "act block size");

/* 256 activations as int8, by the same rule with one d for all of them. */
typedef struct rvi_act_wide {
    float d;
    int16_t sum16[16], sum32[8]; /* sums of each 16, of each 32 */
    int8_t q[256];
} rvi_act_wide;
_Static_assert(sizeof(rvi_act_wide) == 308, "wide act block size");

/* Product of rows of weights, as a file has them, with prepared activations:
 *     out[ix * out_stride + iw] = sum over k of w[iw][k] * x[ix][k],  iw < n_w, ix < n_x,
 *     k < n (a multiple of the type's block: 32 or 256)
 * w: rows of one quantized type, w_stride bytes apart, any alignment. x: rows of rvi_act_block (types of 32 weights a
 * block) or rvi_act_wide (256), x_stride bytes apart. dot is the exact integer dot product of quants, their offset
 * removed (q - 8, q - 16, table value), with x's q; xd is x's d, sum the sum of x's q; dw, m and dmin are the f16
 * scales as f32; sc and mn the integer scales and minima of 16 or 32 weights. Step for one block:
 *     Q4_0 Q5_0 Q8_0 IQ4_NL   acc = fma((float)dot, dw * xd, acc)
 *     Q4_1 Q5_1               acc = fma((float)dot, dw * xd, acc);   acc = fma(m, xd * (float)sum, acc)
 *     Q3_K Q6_K IQ4_XS        acc = fma((float)(sum of sc * dot), dw * xd, acc)
 *     Q2_K Q4_K Q5_K          acc = fma((float)(sum of sc * dot), dw * xd, acc)
 *                             acc = fma(-(float)(sum of mn * sum), dmin * xd, acc) */
typedef void (*rvi_gemm_act_fn)(const void *w, size_t w_stride, int n_w, const void *x, size_t x_stride, int n_x,
                                float *out, size_t out_stride, size_t n);

/* The same for weights in panels of 16 outputs (panels.h): out[ix * out_stride + 16 * p + i], whole panels. */
typedef void (*rvi_gemm_panels_fn)(const void *panels, int n_panels, const void *x, size_t x_stride, int n_x,
                                   float *out, size_t out_stride, size_t n);

/* The same for groups of 16 rows whose activations were prepared for tiles. */
typedef void (*rvi_gemm_tiles_fn)(const void *panels, int n_panels, const void *x, int n_groups, float *out,
                                  size_t out_stride, size_t n);

/* ---- attention ----
 *
 * Keys and values lie in pages of RVI_ATTN_PAGE positions; RVI_ATTN_PAGES pages in order are a chunk, counted from
 * position 0 of the sequence. A (position, head) has n elements; padded = n rounded up to 16.
 *     K plane   f32, f16: [n][32 keys]; q8: int8 [(n + 3) / 4][32 keys][4 elements, 0 past the last], f32 d[32]
 *     V plane   f32, f16: [32 keys][padded]; q8: int8 [32 keys][padded], f32 d[32]
 *     q4        the values of a plane of q8 in 4 bits each, f16 d[32], f16 m[32]; bytes 32 b .. 32 b + 31 hold values
 *               64 b .. 64 b + 31 in their low and the next 32 in their high halves
 * In q8 a head is x ~ d * q with one d, by the rule of rvi_act_block over all its n elements (quantize_head). In q4 it
 * is x ~ m + d * q, made of the head in q8 (rvi_attn_chill); of keys, which have a few large elements, x is the head
 * after rvi_attn_rotate. That leaves dot products as they are, if the query is rotated too.
 *
 * The law, for one query (a row's head, already times the attention's scale) and the keys it sees:
 *  score   f32, f16: one chain from +0, acc = fma(q[e], k[e], acc), e in order; f16 is widened exactly.
 *          q8: (float)dot * (qd * kd), dot the exact int32 dot product with the query quantized likewise.
 *          q4: fma(qs, km, (float)dot * (qd * kd)) with the query rotated, then quantized as in q8; qs = qd * (float)
 *          (the sum of its int8).
 *          Then the soft cap, if there is one, by the formula of soft_cap.
 *  chunk   over the keys of one chunk that the query sees, i = their place in the chunk:
 *              m = the largest score      NaN is passed over (-infinity if there are no others); -0 becomes +0
 *              p[i] = exp(score[i] - m)
 *              l = the p in 16 lanes, lane i % 16, each from +0 in order of i, then the tree of sum16
 *              acc[e] from +0, in order of i: fma(p[i], v[i][e], acc[e]);  q8: fma(p[i] * vd[i], v[i][e], acc[e])
 *              q4: as q8, and at the end + o, the sum of fma(p[i], vm[i], ...) in 16 lanes and a tree as l
 *  merge   the chunks with at least one key in order, onto m = -infinity, l = 0, acc = 0:
 *              m' = m_chunk > m ? m_chunk : m;  a = exp(m - m');  b = exp(m_chunk - m')
 *              l = fma(l, a, l_chunk * b);  acc[e] = fma(acc[e], a, acc_chunk[e] * b);  m = m'
 *          and at the end acc[e] * (1 / l).
 * So the result follows from the query, its keys and their positions alone: queries may go together, and chunks
 * may be computed anywhere. A key that a query does not see is never read into it, whatever lies in its place. */
enum { RVI_ATTN_PAGE = 32, RVI_ATTN_PAGES = 8, RVI_ATTN_CHUNK = RVI_ATTN_PAGE * RVI_ATTN_PAGES };

typedef enum rvi_attn_type { RVI_ATTN_F32, RVI_ATTN_F16, RVI_ATTN_Q8, RVI_ATTN_Q4, RVI_ATTN_TYPES } rvi_attn_type;

static inline size_t rvi_attn_padded(size_t n)
{
    return (n + 15) / 16 * 16;
}

/* Multiples of 64. */
static inline size_t rvi_attn_k_bytes(rvi_attn_type type, size_t n)
{
    if (type == RVI_ATTN_Q4) return RVI_ATTN_PAGE * ((n + 3) / 4 * 2 + 2 * sizeof(rvi_f16));
    if (type == RVI_ATTN_Q8) return RVI_ATTN_PAGE * ((n + 3) / 4 * 4 + sizeof(float));
    return RVI_ATTN_PAGE * n * (type == RVI_ATTN_F32 ? sizeof(float) : sizeof(rvi_f16));
}

static inline size_t rvi_attn_v_bytes(rvi_attn_type type, size_t n)
{
    if (type == RVI_ATTN_Q4) return RVI_ATTN_PAGE * (rvi_attn_padded(n) / 2 + 2 * sizeof(rvi_f16));
    if (type == RVI_ATTN_Q8) return RVI_ATTN_PAGE * (rvi_attn_padded(n) + sizeof(float));
    return RVI_ATTN_PAGE * rvi_attn_padded(n) * (type == RVI_ATTN_F32 ? sizeof(float) : sizeof(rvi_f16));
}

enum { RVI_ATTN_COLD_HEAD = 256 }; /* the largest n in q4 */

/* Hadamard's matrix, in blocks of the largest power of 2 that divides n; it is its own inverse. */
void rvi_attn_rotate(float *x, size_t n);
/* One head: values of 0..15, each in a byte. Where an element is not finite, d and m are NaN. */
void rvi_attn_quantize4(const float *x, uint8_t *q, size_t n, rvi_f16 *d, rvi_f16 *m);
/* The K plane of one head and the V plane behind it, from q8 to q4. */
void rvi_attn_chill(const uint8_t *warm, uint8_t *cold, size_t n);

/* The keys of a chunk. Pages that no query sees may be NULL; planes are aligned to 64. */
typedef struct rvi_attn_keys {
    const uint8_t *k[RVI_ATTN_PAGES], *v[RVI_ATTN_PAGES];
    const uint8_t *next[2]; /* pages of keys that will probably be read after this chunk, or NULL */
    size_t n;
    float soft_cap; /* 0: none */
} rvi_attn_keys;

/* Query i sees the keys from[i] <= key < end[i] of the chunk, at least one. */
typedef struct rvi_attn_queries {
    const float *q;   /* f32, f16: [n_queries][padded], times the attention's scale */
    const int8_t *q8; /* q8, q4: [n_queries][padded], 0 past n */
    const float *d;   /* q8, q4 */
    const int32_t *from, *end;
    int n_queries;
} rvi_attn_queries;

/* What attn_chunk gives for query i, at part + i * part_stride: acc[padded], m, l. attn_merge takes it. */
static inline size_t rvi_attn_part_floats(size_t n)
{
    return rvi_attn_padded(n) + 16;
}

enum { RVI_BYTES_GROUP = 8 }; /* see gemm_bytes */

typedef struct rvi_kernels {
    const char *isa; /* of the best row that took part */
    const char *why; /* that was the last */

    void (*quantize_act)(const float *x, rvi_act_block *out, size_t n); /* n: a multiple of 32 */
    void (*quantize_wide)(const float *x, rvi_act_wide *out, size_t n); /* n: a multiple of 256 */
    /* The reference takes rows of quantized weights as they are (NULL for F32, F16, BF16); all other products want
     * panels. */
    rvi_gemm_act_fn gemm_act[RVI_QTYPE_COUNT];
    rvi_gemm_panels_fn gemm_panels[RVI_QTYPE_COUNT]; /* NULL for quantized types in the reference */
    /* A row of n activations for F32, F16, BF16 weights (NULL for the others): rvi_act_bytes(type, n) bytes. */
    void (*prepare[RVI_QTYPE_COUNT])(const float *x, void *out, size_t n);
    /* n_rows <= 16 rows of n weights, row_stride bytes apart, become one panel; outputs without a row are 0. */
    void (*pack[RVI_QTYPE_COUNT])(const void *rows, size_t row_stride, int n_rows, void *panel, size_t n);

    /* Matrix units, for many rows; NULL where there are none. 16 rows of n activations, x_stride floats apart, become
     * rvi_tile_act_bytes(type, n) bytes on a cache line. */
    rvi_gemm_tiles_fn gemm_tiles[RVI_QTYPE_COUNT];
    void (*prepare_tiles[RVI_QTYPE_COUNT])(const float *x, size_t x_stride, void *out, size_t n);

    /* Exact mode and float weights: rows become f32 first (bit-equal to rvi_dequantize), then sum16. */
    void (*dequantize[RVI_QTYPE_COUNT])(const void *src, float *dst, size_t n);
    /* out[ix * out_stride + iw] = sum16 over k of w[iw * w_stride + k] * x[ix * x_stride + k]; any n, strides
     * in floats */
    void (*gemm_f32)(const float *w, size_t w_stride, int n_w, const float *x, size_t x_stride, int n_x, float *out,
                     size_t out_stride, size_t n);
    /* The same with weights in f16, widened exactly. */
    void (*gemm_f16)(const rvi_f16 *w, size_t w_stride, int n_w, const float *x, size_t x_stride, int n_x, float *out,
                     size_t out_stride, size_t n);
    /* Few inputs, many outputs: out[ix * out_stride + o] += sum over k of w[k][o] * x[ix * x_stride + k], o < n_out.
     * The sum is one chain from +0, fused multiply-adds in order of k. w: panels of 16 outputs, in each input after
     * input 16 floats; outputs past n_out are in the last panel, but not in out. */
    void (*gemm_low)(const float *w, int n_out, const float *x, size_t x_stride, int n_x, float *out, size_t out_stride,
                     size_t n);
    void (*gemm_low_f16)(const rvi_f16 *w, int n_out, const float *x, size_t x_stride, int n_x, float *out,
                         size_t out_stride, size_t n); /* the same with weights in f16 */
    /* gemm_f32 and gemm_low with weights of 8 bits, arranged so that a single row of x reads them from the first byte
     * to the last. gemm_bytes has groups of RVI_BYTES_GROUP rows (the last may have fewer), in each 16 inputs of all
     * its rows, then the next 16; behind input n there are zeros up to a multiple of 16. gemm_low_bytes adds to o the
     * sum times d[o / 16], fused. */
    void (*gemm_bytes)(const int8_t *w, int n_w, const float *x, size_t x_stride, int n_x, float *out,
                       size_t out_stride, size_t n);
    void (*gemm_low_bytes)(const int8_t *w, const float *d, int n_out, const float *x, size_t x_stride, int n_x,
                           float *out, size_t out_stride, size_t n);

    /* out = (x * (1 / sqrt(sum16(x * x) / n + eps))) * w; out may be x. The mean is a division by (float)n. */
    void (*rms_norm)(float *out, const float *x, const float *w, size_t n, float eps);
    /* m = s / n, s: sum16 of the products x * 1; c = x - m; r = 1 / sqrt(sum16(c * c) / n + eps);
     * out = fma(c * r, w, b); out may be x. Divisions are by (float)n. */
    void (*layer_norm)(float *out, const float *x, const float *w, const float *b, size_t n, float eps);
    void (*add)(float *x, const float *y, size_t n);           /* x += y */
    void (*scale)(float *x, float s, size_t n);                /* x *= s */
    void (*axpy)(float *x, float s, const float *y, size_t n); /* x = fma(s, y, x) */
    /* (g / (1 + exp(-g))) * u; out may be gate or up */
    void (*silu_mul)(float *out, const float *gate, const float *up, size_t n);
    /* The tanh form: (g / (1 + exp(z * (g * fma(0.044715, g * g, 1))))) * u, z = -2 sqrt(2 / pi); out may be
     * gate or up */
    void (*gelu_mul)(float *out, const float *gate, const float *up, size_t n);
    void (*gelu)(float *x, size_t n);      /* x * Phi(x), the exact form (gelu.h) */
    void (*gelu_tanh)(float *x, size_t n); /* g / (1 + exp(...)) as in gelu_mul */
    void (*relu)(float *x, size_t n);      /* 0 where x < 0; -0 and NaN stay */
    /* cap * tanh(x / cap), as cap * (1 - 2 / (exp(2 * (x / cap)) + 1)) */
    void (*soft_cap)(float *x, float cap, size_t n);

    /* Rotates pairs by the angles of one position: (a, b) -> (a c - b s, b c + a s), as fma(a, c, -(b * s)) and
     * fma(b, c, a * s). Pair i is (x[i], x[i + n_pairs]), or (x[2i], x[2i+1]) when interleaved. In place, one head. */
    void (*rope)(float *x, const float *cos, const float *sin, size_t n_pairs, bool interleaved);

    void (*f32_to_f16)(const float *x, rvi_f16 *out, size_t n);
    void (*f16_to_f32)(const rvi_f16 *x, float *out, size_t n);

    /* Attention, see rvi_attn_keys. */
    float (*quantize_head)(const float *x, int8_t *q, size_t n); /* returns d; q: rvi_attn_padded(n) */
    void (*attn_chunk[RVI_ATTN_TYPES])(const rvi_attn_keys *keys, const rvi_attn_queries *queries, float *part,
                                       size_t part_stride);
    /* While *l is 0, nothing was merged: acc counts as 0 and is not read. */
    void (*attn_merge)(float *acc, float *m, float *l, const float *part, size_t n);
    /* The maximum of a row of logits: NaN if any is NaN, -infinity if n is 0, +0 if it is a zero of either sign. */
    float (*max)(const float *x, size_t n);
    /* Of a softmax: with y = (x - top) * s (x finite, y no more than 0 or so) sums[0] = sum16 of exp(y) * 1, sums[1] =
     * sum16 of exp(y) * y. */
    void (*exp_sums)(const float *x, float top, float s, size_t n, float sums[2]);

    /* Training: products of float matrices (train_gemm.h). */
    const rvi_train_gemm *train_f32;
    const rvi_train_gemm *train_bf16; /* NULL: no matrix units */

    /* Training, rows of f32. Their sums run in lanes of the row's own width: other bits on other instruction sets. */
    /* y = w x r, r = 1 / sqrt(mean x^2 + eps): dx (=, add: +=) r w dy - x (r^3 / n) sum(x w dy); dx may be dy */
    void (*norm_back)(float *dx, const float *dy, const float *x, const float *w, size_t n, float eps, bool add);
    /* From f(gate) * up, f as in silu_mul and gelu_mul; results may overwrite any operand */
    void (*silu_back)(float *dgate, float *dup, const float *dact, const float *gate, const float *up, size_t n);
    void (*gelu_back)(float *dgate, float *dup, const float *dact, const float *gate, const float *up, size_t n);
    /* Sum of exp((z - top) * inverse). */
    double (*exp_sum)(const float *z, float top, float inverse, size_t n);
    /* z = exp((z - top) * inverse) * factor * (1 - (z / soft_cap)^2), the last where soft_cap is not 0 */
    void (*exp_slope)(float *z, float top, float inverse, float factor, float soft_cap, size_t n);
    /* Scores of one query, n of them, become its probabilities: softmax of cap(scale * s) over from .. end - 1 (at
     * least one), 0 outside. stats: the largest of them, and 1 / the sum of exp(score - largest). */
    void (*softmax)(float *s, size_t n, size_t from, size_t end, float scale, float soft_cap, float stats[2]);
    /* dp: d loss / d p becomes d loss / d s; returns sum(p dp). s: the scores before softmax, read where there is a
     * cap. */
    float (*softmax_back)(float *dp, const float *p, const float *s, size_t n, float scale, float soft_cap);
    /* The same for one key and n queries with their stats and sums: s becomes p, dp becomes d loss / d s; queries
     * outside from .. end - 1 do not see it and get 0. */
    void (*key_back)(float *s, float *dp, const float *top, const float *inverse, const float *sums, size_t n,
                     size_t from, size_t end, float scale, float soft_cap);
} rvi_kernels;

/* The instruction sets, from slow to fast: X(name, is_present). `name` is what --isa takes,
 * rvi_kernels_fill_<name> fills in its kernels, and is_present (features.h) asks the machine. The declarations in
 * rows.h and the table in table.c are made from these rows. */
#define RVI_ISA_LIST_PORTABLE(X) X(ref, rvi_has_ref) /* scalar C */

#define RVI_ISA_LIST_X86_64(X)                                                                                         \
    X(avx2, rvi_has_avx2)          /* AVX2, FMA, F16C */                                                               \
    X(avxvnni, rvi_has_avxvnni)    /* the same with AVX-VNNI */                                                        \
    X(avx512, rvi_has_avx512_vnni) /* AVX-512 F, BW, DQ, VL, VNNI */                                                   \
    X(amx, rvi_has_amx)            /* the same with AMX int8 and bf16 */

#define RVI_ISA_LIST_AARCH64(X)                                                                                        \
    X(neon, rvi_has_neon)       /* Advanced SIMD */                                                                    \
    X(dotprod, rvi_has_dotprod) /* the same with int8 dot products */

/* Those of this build. */
#if defined(__x86_64__)
#define RVI_ISA_LIST(X) RVI_ISA_LIST_PORTABLE(X) RVI_ISA_LIST_X86_64(X)
#elif defined(__aarch64__)
#define RVI_ISA_LIST(X) RVI_ISA_LIST_PORTABLE(X) RVI_ISA_LIST_AARCH64(X)
#else
#define RVI_ISA_LIST(X) RVI_ISA_LIST_PORTABLE(X)
#endif

/* Fills k with the kernels of every instruction set this machine has, up to and including `isa` (NULL: all). False if
 * the name is unknown or the machine lacks it; k then holds the reference kernels. */
bool rvi_kernels_init(rvi_kernels *k, const char *isa);

/* The names of the instruction sets this machine has, reference first, NULL at the end. */
const char *const *rvi_kernels_available(void);

#endif
