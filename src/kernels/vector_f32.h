/* vector_f32.h - the f32 entries of a vector row, written once for all instruction sets. Inside the kernels
 * room only.
 *
 * Each body repeats the operations of ref.c lane by lane, so it gives the same bits at any width. A row defines
 * its registers as vector_lanes.h says, includes this file and calls fill_f32(table). */
#ifndef RVI_KERNELS_VECTOR_F32_H
#define RVI_KERNELS_VECTOR_F32_H

#include <math.h>

#include "kernels/gelu.h"
#include "kernels/kernels.h"
#include "kernels/vector_lanes.h"

/* ---- sum16 ---- */

/* A single row of x has more rows of w at once: enough sums that none waits for the one before it. */
enum { TILE_W = 3, TILE_X = 2, TILE_ONE = WIDTH == 16 ? 8 : 4 };

/* How a matrix is stored; a constant at every use. */
typedef enum storage { IN_F32, IN_F16, IN_BYTES } storage;

enum { STREAM_AHEAD = 2048 }; /* bytes between a prefetch and its use, where a single row reads bytes from memory */

static ALWAYS_INLINE size_t element_bytes(storage s)
{
    return s == IN_F32 ? sizeof(float) : s == IN_F16 ? sizeof(rvi_f16) : sizeof(int8_t);
}

/* Element i and on of a row; bytes are there up to a multiple of 16. */
static ALWAYS_INLINE vec load_row(const void *row, size_t i, size_t left, storage s)
{
    if (s == IN_BYTES) return load_int8((const int8_t *)row + i);
    return s == IN_F16 ? load_f16((const rvi_f16 *)row + i, left) : load((const float *)row + i, left);
}

static ALWAYS_INLINE void ask_ahead(const void *w, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch((const char *)w + STREAM_AHEAD + i);
}

/* nw x nx outputs at once, at most TILE_W x TILE_X or TILE_ONE x TILE_X. Rows of w are w_stride elements apart, 16
 * elements of a row 16 w_step from the next 16. */
static ALWAYS_INLINE void tile(const void *w, size_t w_stride, size_t w_step, int nw, storage s, const float *x,
                               size_t x_stride, int nx, float *out, size_t out_stride, size_t n)
{
    vec acc[TILE_ONE][TILE_X][SUM_REGISTERS];
    const char *rows[TILE_ONE];
    UNROLL for (int iw = 0; iw < nw; iw++)
    {
        rows[iw] = (const char *)w + (size_t)iw * w_stride * element_bytes(s);
        UNROLL for (int ix = 0; ix < nx; ix++) UNROLL for (int r = 0; r < SUM_REGISTERS; r++) acc[iw][ix][r] =
            splat(0.0f);
    }

    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        if (s == IN_BYTES && nx == 1) ask_ahead(rows[0] + i * w_step, 16 * (size_t)nw);
        UNROLL for (size_t r = 0; r < SUM_REGISTERS; r++)
        {
            vec xv[TILE_X];
            UNROLL for (int ix = 0; ix < nx; ix++) xv[ix] = load(x + (size_t)ix * x_stride + i + WIDTH * r, WIDTH);
            UNROLL for (int iw = 0; iw < nw; iw++)
            {
                vec wv = load_row(rows[iw], i * w_step + WIDTH * r, WIDTH, s);
                UNROLL for (int ix = 0; ix < nx; ix++) acc[iw][ix][r] = fused(wv, xv[ix], acc[iw][ix][r]);
            }
        }
    }
    /* The rest: lanes without an element stay as they are (adding 0 could turn -0 into +0). */
    UNROLL for (size_t r = 0; r < SUM_REGISTERS; r++)
    {
        size_t at = i + WIDTH * r;
        if (at >= n) continue;
        mask live = first_lanes(n - at);
        UNROLL for (int iw = 0; iw < nw; iw++)
        {
            vec wv = load_row(rows[iw], i * w_step + WIDTH * r, n - at, s);
            UNROLL for (int ix = 0; ix < nx; ix++)
            {
                vec xv = load(x + (size_t)ix * x_stride + at, n - at);
                acc[iw][ix][r] = choose(live, fused(wv, xv, acc[iw][ix][r]), acc[iw][ix][r]);
            }
        }
    }

    UNROLL for (int iw = 0; iw < nw; iw++) UNROLL for (int ix = 0; ix < nx; ix++)
        out[(size_t)ix * out_stride + (size_t)iw] = add_lanes(acc[iw][ix]);
}

/* nw (a constant) rows of w, all of x. */
static ALWAYS_INLINE void gemm_tiles_of(const char *w, size_t w_stride, size_t w_step, int nw, storage s,
                                        const float *x, size_t x_stride, int n_x, float *out, size_t out_stride,
                                        size_t n)
{
    int ix = 0;
    for (; ix + 2 <= n_x; ix += 2)
        tile(w, w_stride, w_step, nw, s, x + (size_t)ix * x_stride, x_stride, 2, out + (size_t)ix * out_stride,
             out_stride, n);
    if (ix < n_x)
        tile(w, w_stride, w_step, nw, s, x + (size_t)ix * x_stride, x_stride, 1, out + (size_t)ix * out_stride,
             out_stride, n);
}

static ALWAYS_INLINE void gemm_rows(const void *w, size_t w_stride, int n_w, storage s, const float *x, size_t x_stride,
                                    int n_x, float *out, size_t out_stride, size_t n)
{
    const char *at = w;
    size_t row = w_stride * element_bytes(s);
    int iw = 0;
    for (; n_x == 1 && iw + TILE_ONE <= n_w; iw += TILE_ONE, at += TILE_ONE * row)
        tile(at, w_stride, 1, TILE_ONE, s, x, x_stride, 1, out + iw, out_stride, n);
    for (; iw + TILE_W <= n_w; iw += TILE_W, at += TILE_W * row)
        gemm_tiles_of(at, w_stride, 1, TILE_W, s, x, x_stride, n_x, out + iw, out_stride, n);
    if (n_w - iw == 2) gemm_tiles_of(at, w_stride, 1, 2, s, x, x_stride, n_x, out + iw, out_stride, n);
    if (n_w - iw == 1) gemm_tiles_of(at, w_stride, 1, 1, s, x, x_stride, n_x, out + iw, out_stride, n);
}

static void gemm_f32(const float *w, size_t w_stride, int n_w, const float *x, size_t x_stride, int n_x, float *out,
                     size_t out_stride, size_t n)
{
    gemm_rows(w, w_stride, n_w, IN_F32, x, x_stride, n_x, out, out_stride, n);
}

static void gemm_f16(const rvi_f16 *w, size_t w_stride, int n_w, const float *x, size_t x_stride, int n_x, float *out,
                     size_t out_stride, size_t n)
{
    gemm_rows(w, w_stride, n_w, IN_F16, x, x_stride, n_x, out, out_stride, n);
}

/* The rows of a group that remain, nw (a constant) at once; returns how many are done. */
static ALWAYS_INLINE int gemm_group(const int8_t *w, int done, int group, int nw, const float *x, size_t x_stride,
                                    int n_x, float *out, size_t out_stride, size_t n)
{
    for (; done + nw <= group; done += nw)
        gemm_tiles_of((const char *)w + 16 * done, 16, (size_t)group, nw, IN_BYTES, x, x_stride, n_x, out + done,
                      out_stride, n);
    return done;
}

static void gemm_bytes(const int8_t *w, int n_w, const float *x, size_t x_stride, int n_x, float *out,
                       size_t out_stride, size_t n)
{
    enum { MANY = WIDTH == 16 ? 8 : 4 };
    for (int iw = 0; iw < n_w; iw += RVI_BYTES_GROUP, w += 16 * RVI_BYTES_GROUP * ((n + 15) / 16)) {
        int group = n_w - iw < RVI_BYTES_GROUP ? n_w - iw : RVI_BYTES_GROUP, done = 0;
        if (WIDTH == 16 || n_x == 1) done = gemm_group(w, 0, group, MANY, x, x_stride, n_x, out + iw, out_stride, n);
        if (WIDTH == 16) done = gemm_group(w, done, group, 4, x, x_stride, n_x, out + iw, out_stride, n);
        done = gemm_group(w, done, group, 2, x, x_stride, n_x, out + iw, out_stride, n);
        gemm_group(w, done, group, 1, x, x_stride, n_x, out + iw, out_stride, n);
    }
}

/* ---- few inputs ---- */

/* Rows and panels at once: their sums and the panels' floats of one input stay in registers. */
enum { LOW_X = 4, LOW_PANELS = WIDTH == 16 ? 2 : 1, LOW_REGISTERS = LOW_PANELS * SUM_REGISTERS };

/* d: scales of the panels, of bytes. */
static ALWAYS_INLINE void low_tile(const void *w, storage s, const float *d, size_t from, size_t n_out, int n_panels,
                                   const float *x, size_t x_stride, int nx, float *out, size_t out_stride, size_t n)
{
    vec acc[LOW_X][LOW_REGISTERS];
    UNROLL for (int ix = 0; ix < nx; ix++) UNROLL for (int r = 0; r < LOW_REGISTERS; r++) acc[ix][r] = splat(0.0f);
    int used = n_panels * SUM_REGISTERS;
    if (s == IN_BYTES && nx == 1) ask_ahead((const int8_t *)w + from, 16 * n * (size_t)n_panels);
    for (size_t k = 0; k < n; k++) {
        vec wv[LOW_REGISTERS];
        UNROLL for (int r = 0; r < used; r++) wv[r] = load_row(
            w, from + ((size_t)(r / SUM_REGISTERS) * n + k) * 16 + WIDTH * (size_t)(r % SUM_REGISTERS), WIDTH, s);
        UNROLL for (int ix = 0; ix < nx; ix++)
        {
            vec xv = splat(x[(size_t)ix * x_stride + k]);
            UNROLL for (int r = 0; r < used; r++) acc[ix][r] = fused(wv[r], xv, acc[ix][r]);
        }
    }
    UNROLL for (int ix = 0; ix < nx; ix++) UNROLL for (size_t r = 0; r < (size_t)used; r++)
    {
        float *at = out + (size_t)ix * out_stride + WIDTH * r;
        if (WIDTH * r >= n_out) continue;
        size_t left = n_out - WIDTH * r;
        vec before = load(at, left);
        store(at, left,
              s == IN_BYTES ? fused(acc[ix][r], splat(d[r / SUM_REGISTERS]), before) : add(before, acc[ix][r]));
    }
}

/* All panels, nx (a constant) rows. */
static ALWAYS_INLINE void low_rows(const void *w, storage s, const float *d, size_t n_out, const float *x,
                                   size_t x_stride, int nx, float *out, size_t out_stride, size_t n)
{
    size_t o = 0;
    for (; LOW_PANELS > 1 && o + 16 < n_out; o += 16 * LOW_PANELS)
        low_tile(w, s, d ? d + o / 16 : NULL, o * n, n_out - o, LOW_PANELS, x, x_stride, nx, out + o, out_stride, n);
    for (; o < n_out; o += 16)
        low_tile(w, s, d ? d + o / 16 : NULL, o * n, n_out - o, 1, x, x_stride, nx, out + o, out_stride, n);
}

static ALWAYS_INLINE void low_all(const void *w, storage s, const float *d, int n_out, const float *x, size_t x_stride,
                                  int n_x, float *out, size_t out_stride, size_t n)
{
    int ix = 0;
    for (; ix + LOW_X <= n_x; ix += LOW_X)
        low_rows(w, s, d, (size_t)n_out, x + (size_t)ix * x_stride, x_stride, LOW_X, out + (size_t)ix * out_stride,
                 out_stride, n);
    if (ix + 2 <= n_x) {
        low_rows(w, s, d, (size_t)n_out, x + (size_t)ix * x_stride, x_stride, 2, out + (size_t)ix * out_stride,
                 out_stride, n);
        ix += 2;
    }
    if (ix < n_x)
        low_rows(w, s, d, (size_t)n_out, x + (size_t)ix * x_stride, x_stride, 1, out + (size_t)ix * out_stride,
                 out_stride, n);
}

static void gemm_low(const float *w, int n_out, const float *x, size_t x_stride, int n_x, float *out, size_t out_stride,
                     size_t n)
{
    low_all(w, IN_F32, NULL, n_out, x, x_stride, n_x, out, out_stride, n);
}

static void gemm_low_f16(const rvi_f16 *w, int n_out, const float *x, size_t x_stride, int n_x, float *out,
                         size_t out_stride, size_t n)
{
    low_all(w, IN_F16, NULL, n_out, x, x_stride, n_x, out, out_stride, n);
}

static void gemm_low_bytes(const int8_t *w, const float *d, int n_out, const float *x, size_t x_stride, int n_x,
                           float *out, size_t out_stride, size_t n)
{
    low_all(w, IN_BYTES, d, n_out, x, x_stride, n_x, out, out_stride, n);
}

/* ---- elementwise ---- */

static void rms_norm(float *out, const float *x, const float *w, size_t n, float eps)
{
    float sum;
    tile(x, n, 1, 1, IN_F32, x, n, 1, &sum, 1, n);
    vec r = splat(1.0f / sqrtf(sum / (float)n + eps));
    for (size_t i = 0; i < n; i += WIDTH)
        store(out + i, n - i, multiply(multiply(load(x + i, n - i), r), load(w + i, n - i)));
}

/* sum16 of x times 1 */
static ALWAYS_INLINE float sum_row(const float *x, size_t n)
{
    vec acc[SUM_REGISTERS];
    UNROLL for (int r = 0; r < SUM_REGISTERS; r++) acc[r] = splat(0.0f);
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        UNROLL for (int r = 0; r < SUM_REGISTERS; r++) acc[r] = add(acc[r], load(x + i + WIDTH * r, WIDTH));
    UNROLL for (int r = 0; r < SUM_REGISTERS; r++)
    {
        size_t at = i + WIDTH * (size_t)r;
        if (at >= n) continue;
        acc[r] = choose(first_lanes(n - at), add(acc[r], load(x + at, n - at)), acc[r]);
    }
    return add_lanes(acc);
}

static void layer_norm(float *out, const float *x, const float *w, const float *b, size_t n, float eps)
{
    vec mean = splat(sum_row(x, n) / (float)n);
    for (size_t i = 0; i < n; i += WIDTH) store(out + i, n - i, subtract(load(x + i, n - i), mean));
    float sum;
    tile(out, n, 1, 1, IN_F32, out, n, 1, &sum, 1, n);
    vec r = splat(1.0f / sqrtf(sum / (float)n + eps));
    for (size_t i = 0; i < n; i += WIDTH)
        store(out + i, n - i, fused(multiply(load(out + i, n - i), r), load(w + i, n - i), load(b + i, n - i)));
}

static void add_row(float *x, const float *y, size_t n)
{
    for (size_t i = 0; i < n; i += WIDTH) store(x + i, n - i, add(load(x + i, n - i), load(y + i, n - i)));
}

static void scale_row(float *x, float s, size_t n)
{
    for (size_t i = 0; i < n; i += WIDTH) store(x + i, n - i, multiply(load(x + i, n - i), splat(s)));
}

static void axpy(float *x, float s, const float *y, size_t n)
{
    for (size_t i = 0; i < n; i += WIDTH) store(x + i, n - i, fused(splat(s), load(y + i, n - i), load(x + i, n - i)));
}

static void silu_mul(float *out, const float *gate, const float *up, size_t n)
{
    for (size_t i = 0; i < n; i += WIDTH) {
        vec g = load(gate + i, n - i);
        vec y = divide(g, add(splat(1.0f), exp_lanes(negate(g))));
        store(out + i, n - i, multiply(y, load(up + i, n - i)));
    }
}

static ALWAYS_INLINE vec gelu_tanh_lanes(vec g)
{
    vec y = multiply(g, fused(splat(RVI_GELU_CUBE), multiply(g, g), splat(1.0f)));
    return divide(g, add(splat(1.0f), exp_lanes(multiply(splat(RVI_GELU_Z), y))));
}

static void gelu_mul(float *out, const float *gate, const float *up, size_t n)
{
    for (size_t i = 0; i < n; i += WIDTH)
        store(out + i, n - i, multiply(gelu_tanh_lanes(load(gate + i, n - i)), load(up + i, n - i)));
}

/* rvi_phi_f32 in all lanes. */
static ALWAYS_INLINE vec phi_lanes(vec x)
{
    vec u = multiply(x, x), zero = splat(0.0f), one = splat(1.0f);
    mask negative = above(zero, x);
    vec p = fused(splat(RVI_PHI_L6), u, splat(RVI_PHI_L5));
    p = fused(p, u, splat(RVI_PHI_L4));
    p = fused(p, u, splat(RVI_PHI_L3));
    p = fused(p, u, splat(RVI_PHI_L2));
    p = fused(p, u, splat(RVI_PHI_L1));
    p = fused(p, u, splat(RVI_PHI_L0));
    vec low = fused(x, p, splat(0.5f));

    vec t = choose(negative, negate(x), x);
    vec k = divide(one, fused(splat(RVI_PHI_C), t, one));
    p = fused(splat(RVI_PHI_U6), k, splat(RVI_PHI_U5));
    p = fused(p, k, splat(RVI_PHI_U4));
    p = fused(p, k, splat(RVI_PHI_U3));
    p = fused(p, k, splat(RVI_PHI_U2));
    p = fused(p, k, splat(RVI_PHI_U1));
    vec q = multiply(multiply(p, k), exp_lanes(multiply(splat(-0.5f), u)));
    vec high = choose(negative, q, subtract(one, q));
    return choose(above(t, splat(RVI_PHI_SPLIT)), high, low);
}

static void gelu(float *x, size_t n)
{
    for (size_t i = 0; i < n; i += WIDTH) {
        vec v = load(x + i, n - i);
        store(x + i, n - i, multiply(v, phi_lanes(v)));
    }
}

static void gelu_tanh(float *x, size_t n)
{
    for (size_t i = 0; i < n; i += WIDTH) store(x + i, n - i, gelu_tanh_lanes(load(x + i, n - i)));
}

static void relu(float *x, size_t n)
{
    for (size_t i = 0; i < n; i += WIDTH) {
        vec v = load(x + i, n - i);
        store(x + i, n - i, choose(above(splat(0.0f), v), splat(0.0f), v));
    }
}

static void soft_cap(float *x, float cap, size_t n)
{
    for (size_t i = 0; i < n; i += WIDTH) store(x + i, n - i, cap_lanes(load(x + i, n - i), cap));
}

static ALWAYS_INLINE void rotate(vec *a, vec *b, vec c, vec s)
{
    vec new_a = fused(*a, c, negate(multiply(*b, s)));
    *b = fused(*b, c, multiply(*a, s));
    *a = new_a;
}

static void rope(float *x, const float *cos, const float *sin, size_t n_pairs, bool interleaved)
{
    for (size_t i = 0; i < n_pairs; i += WIDTH) {
        size_t left = n_pairs - i;
        vec c = load(cos + i, left), s = load(sin + i, left), a, b;
        if (!interleaved) {
            a = load(x + i, left);
            b = load(x + n_pairs + i, left);
            rotate(&a, &b, c, s);
            store(x + i, left, a);
            store(x + n_pairs + i, left, b);
            continue;
        }
        float *lo_at = x + 2 * i, *hi_at = left > WIDTH / 2 ? lo_at + WIDTH : lo_at;
        size_t hi_left = left > WIDTH / 2 ? 2 * left - WIDTH : 0;
        vec lo = load(lo_at, 2 * left), hi = load(hi_at, hi_left);
        split_pairs(lo, hi, &a, &b);
        rotate(&a, &b, c, s);
        join_pairs(a, b, &lo, &hi);
        store(lo_at, 2 * left, lo);
        store(hi_at, hi_left, hi);
    }
}

/* ---- conversions ---- */

static void f32_to_f16(const float *x, rvi_f16 *out, size_t n)
{
    for (size_t i = 0; i < n; i += WIDTH) store_f16(out + i, n - i, load(x + i, n - i));
}

static void f16_to_f32(const rvi_f16 *x, float *out, size_t n)
{
    for (size_t i = 0; i < n; i += WIDTH) store(out + i, n - i, load_f16(x + i, n - i));
}

/* Rows of weights may begin at any address, so these step in bytes. */
static void dequantize_f16(const void *src, float *dst, size_t n)
{
    for (size_t i = 0; i < n; i += WIDTH) store(dst + i, n - i, load_f16((const char *)src + 2 * i, n - i));
}

static void dequantize_bf16(const void *src, float *dst, size_t n)
{
    for (size_t i = 0; i < n; i += WIDTH) store(dst + i, n - i, load_bf16((const char *)src + 2 * i, n - i));
}

/* The larger of start and the elements of x, first in every lane on its own; NaN in x is passed over, as in ref.c. */
static ALWAYS_INLINE float largest(const float *x, size_t n, float start)
{
    vec top = splat(start);
    for (size_t i = 0; i < n; i += WIDTH) {
        vec v = choose(first_lanes(n - i), load(x + i, n - i), top);
        top = choose(above(v, top), v, top);
    }
    float lanes[WIDTH];
    store(lanes, WIDTH, top);
    for (int j = 0; j < WIDTH; j++) start = lanes[j] > start ? lanes[j] : start;
    return start + 0.0f; /* -0 becomes +0 */
}

static float max_row(const float *x, size_t n)
{
    mask nan = unordered(splat(0.0f));
    for (size_t i = 0; i < n; i += WIDTH) nan = either(nan, unordered(load(x + i, n - i)));
    return any(nan) ? NAN : largest(x, n, -INFINITY);
}

static void exp_sums(const float *x, float top, float s, size_t n, float sums[2])
{
    vec plain[SUM_REGISTERS], weighted[SUM_REGISTERS];
    UNROLL for (int r = 0; r < SUM_REGISTERS; r++) plain[r] = weighted[r] = splat(0.0f);
    for (size_t i = 0; i < n; i += 16) UNROLL for (size_t r = 0; r < SUM_REGISTERS; r++)
        {
            size_t at = i + WIDTH * r;
            if (at >= n) continue;
            vec y = multiply(subtract(load(x + at, n - at), splat(top)), splat(s)), e = exp_lanes(y);
            mask live = first_lanes(n - at);
            plain[r] = choose(live, add(plain[r], e), plain[r]);
            weighted[r] = choose(live, fused(e, y, weighted[r]), weighted[r]);
        }
    sums[0] = add_lanes(plain);
    sums[1] = add_lanes(weighted);
}

static void fill_f32(rvi_kernels *k)
{
    k->gemm_f32 = gemm_f32;
    k->gemm_f16 = gemm_f16;
    k->gemm_low = gemm_low;
    k->gemm_low_f16 = gemm_low_f16;
    k->gemm_bytes = gemm_bytes;
    k->gemm_low_bytes = gemm_low_bytes;
    k->rms_norm = rms_norm;
    k->layer_norm = layer_norm;
    k->add = add_row;
    k->scale = scale_row;
    k->axpy = axpy;
    k->silu_mul = silu_mul;
    k->gelu_mul = gelu_mul;
    k->gelu = gelu;
    k->gelu_tanh = gelu_tanh;
    k->relu = relu;
    k->soft_cap = soft_cap;
    k->rope = rope;
    k->f32_to_f16 = f32_to_f16;
    k->f16_to_f32 = f16_to_f32;
    k->max = max_row;
    k->exp_sums = exp_sums;
    k->dequantize[RVI_F16] = dequantize_f16;
    k->dequantize[RVI_BF16] = dequantize_bf16;
}

#endif
