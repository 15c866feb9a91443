/* ref.c - the scalar row for f32 data: the specification of every entry that has no quantized weights
 * (ref_quant.c has those).
 *
 * Written to be read, not to be fast. fmaf() stands exactly where kernels.h says fused; everything else is
 * rounded at each operation. */
#include <math.h>

#include "kernels/gelu.h"
#include "kernels/kernels.h"
#include "kernels/rows.h"

/* The tree at the end of sum16. */
static float add_lanes(float l[16])
{
    for (int width = 8; width >= 1; width /= 2)
        for (int j = 0; j < width; j++) l[j] += l[j + width];
    return l[0];
}

static float sum16(const float *a, const float *b, size_t n)
{
    float l[16] = {0};
    for (size_t i = 0; i < n; i++) l[i % 16] = fmaf(a[i], b[i], l[i % 16]);
    return add_lanes(l);
}

static void gemm_f32(const float *w, size_t w_stride, int n_w, const float *x, size_t x_stride, int n_x, float *out,
                     size_t out_stride, size_t n)
{
    for (int ix = 0; ix < n_x; ix++)
        for (int iw = 0; iw < n_w; iw++)
            out[(size_t)ix * out_stride + (size_t)iw] = sum16(w + (size_t)iw * w_stride, x + (size_t)ix * x_stride, n);
}

static void gemm_f16(const rvi_f16 *w, size_t w_stride, int n_w, const float *x, size_t x_stride, int n_x, float *out,
                     size_t out_stride, size_t n)
{
    for (int ix = 0; ix < n_x; ix++)
        for (int iw = 0; iw < n_w; iw++) {
            float l[16] = {0};
            for (size_t i = 0; i < n; i++)
                l[i % 16] = fmaf(rvi_f16_to_f32(w[(size_t)iw * w_stride + i]), x[(size_t)ix * x_stride + i], l[i % 16]);
            out[(size_t)ix * out_stride + (size_t)iw] = add_lanes(l);
        }
}

static void gemm_low(const float *w, int n_out, const float *x, size_t x_stride, int n_x, float *out, size_t out_stride,
                     size_t n)
{
    for (int ix = 0; ix < n_x; ix++)
        for (int o = 0; o < n_out; o++) {
            const float *column = w + (size_t)(o / 16) * 16 * n + o % 16;
            float sum = 0;
            for (size_t k = 0; k < n; k++) sum = fmaf(column[16 * k], x[(size_t)ix * x_stride + k], sum);
            out[(size_t)ix * out_stride + (size_t)o] += sum;
        }
}

static void gemm_low_f16(const rvi_f16 *w, int n_out, const float *x, size_t x_stride, int n_x, float *out,
                         size_t out_stride, size_t n)
{
    for (int ix = 0; ix < n_x; ix++)
        for (int o = 0; o < n_out; o++) {
            const rvi_f16 *column = w + (size_t)(o / 16) * 16 * n + o % 16;
            float sum = 0;
            for (size_t k = 0; k < n; k++)
                sum = fmaf(rvi_f16_to_f32(column[16 * k]), x[(size_t)ix * x_stride + k], sum);
            out[(size_t)ix * out_stride + (size_t)o] += sum;
        }
}

static void gemm_bytes(const int8_t *w, int n_w, const float *x, size_t x_stride, int n_x, float *out,
                       size_t out_stride, size_t n)
{
    size_t blocks = (n + 15) / 16;
    for (int ix = 0; ix < n_x; ix++)
        for (int iw = 0; iw < n_w; iw++) {
            int first = iw / RVI_BYTES_GROUP * RVI_BYTES_GROUP;
            int group = n_w - first < RVI_BYTES_GROUP ? n_w - first : RVI_BYTES_GROUP;
            const int8_t *at = w + 16 * (blocks * (size_t)first + (size_t)(iw - first));
            float l[16] = {0};
            for (size_t i = 0; i < n; i++)
                l[i % 16] = fmaf(at[i / 16 * 16 * (size_t)group + i % 16], x[(size_t)ix * x_stride + i], l[i % 16]);
            out[(size_t)ix * out_stride + (size_t)iw] = add_lanes(l);
        }
}

static void gemm_low_bytes(const int8_t *w, const float *d, int n_out, const float *x, size_t x_stride, int n_x,
                           float *out, size_t out_stride, size_t n)
{
    for (int ix = 0; ix < n_x; ix++)
        for (int o = 0; o < n_out; o++) {
            const int8_t *column = w + (size_t)(o / 16) * 16 * n + o % 16;
            float sum = 0, *to = &out[(size_t)ix * out_stride + (size_t)o];
            for (size_t k = 0; k < n; k++) sum = fmaf(column[16 * k], x[(size_t)ix * x_stride + k], sum);
            *to = fmaf(sum, d[o / 16], *to);
        }
}

static void rms_norm(float *out, const float *x, const float *w, size_t n, float eps)
{
    float r = 1.0f / sqrtf(sum16(x, x, n) / (float)n + eps);
    for (size_t i = 0; i < n; i++) out[i] = (x[i] * r) * w[i];
}

static void layer_norm(float *out, const float *x, const float *w, const float *b, size_t n, float eps)
{
    float l[16] = {0};
    for (size_t i = 0; i < n; i++) l[i % 16] += x[i];
    float mean = add_lanes(l) / (float)n;
    for (size_t i = 0; i < n; i++) out[i] = x[i] - mean;
    float r = 1.0f / sqrtf(sum16(out, out, n) / (float)n + eps);
    for (size_t i = 0; i < n; i++) out[i] = fmaf(out[i] * r, w[i], b[i]);
}

static void add(float *x, const float *y, size_t n)
{
    for (size_t i = 0; i < n; i++) x[i] += y[i];
}

static void scale(float *x, float s, size_t n)
{
    for (size_t i = 0; i < n; i++) x[i] *= s;
}

static void axpy(float *x, float s, const float *y, size_t n)
{
    for (size_t i = 0; i < n; i++) x[i] = fmaf(s, y[i], x[i]);
}

static void silu_mul(float *out, const float *gate, const float *up, size_t n)
{
    for (size_t i = 0; i < n; i++) out[i] = (gate[i] / (1.0f + rvi_exp_f32(-gate[i]))) * up[i];
}

static float gelu_tanh_of(float g)
{
    float y = g * fmaf(RVI_GELU_CUBE, g * g, 1.0f);
    return g / (1.0f + rvi_exp_f32(RVI_GELU_Z * y));
}

static void gelu_mul(float *out, const float *gate, const float *up, size_t n)
{
    for (size_t i = 0; i < n; i++) out[i] = gelu_tanh_of(gate[i]) * up[i];
}

static void gelu(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) x[i] *= rvi_phi_f32(x[i]);
}

static void gelu_tanh(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) x[i] = gelu_tanh_of(x[i]);
}

static void relu(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) x[i] = x[i] < 0.0f ? 0.0f : x[i];
}

static void soft_cap(float *x, float cap, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float e = rvi_exp_f32(2.0f * (x[i] / cap));
        x[i] = cap * (1.0f - 2.0f / (e + 1.0f));
    }
}

static void rope(float *x, const float *cos, const float *sin, size_t n_pairs, bool interleaved)
{
    size_t step = interleaved ? 2 : 1, apart = interleaved ? 1 : n_pairs;
    for (size_t i = 0; i < n_pairs; i++) {
        float *a = x + i * step, *b = a + apart;
        float c = cos[i], s = sin[i];
        float new_a = fmaf(*a, c, -(*b * s));
        float new_b = fmaf(*b, c, *a * s);
        *a = new_a;
        *b = new_b;
    }
}

static void f32_to_f16(const float *x, rvi_f16 *out, size_t n)
{
    for (size_t i = 0; i < n; i++) out[i] = rvi_f32_to_f16(x[i]);
}

static void f16_to_f32(const rvi_f16 *x, float *out, size_t n)
{
    for (size_t i = 0; i < n; i++) out[i] = rvi_f16_to_f32(x[i]);
}

static float max(const float *x, size_t n)
{
    float top = -INFINITY;
    bool nan = false;
    for (size_t i = 0; i < n; i++) {
        nan = nan || x[i] != x[i];
        top = x[i] > top ? x[i] : top;
    }
    return nan ? NAN : top + 0.0f;
}

static void exp_sums(const float *x, float top, float s, size_t n, float sums[2])
{
    float plain[16] = {0}, weighted[16] = {0};
    for (size_t i = 0; i < n; i++) {
        float y = (x[i] - top) * s, e = rvi_exp_f32(y);
        plain[i % 16] += e;
        weighted[i % 16] = fmaf(e, y, weighted[i % 16]);
    }
    sums[0] = add_lanes(plain);
    sums[1] = add_lanes(weighted);
}

void rvi_kernels_fill_ref(rvi_kernels *k)
{
    *k = (rvi_kernels){
        .isa = "ref",
        .gemm_f32 = gemm_f32,
        .gemm_f16 = gemm_f16,
        .gemm_low = gemm_low,
        .gemm_low_f16 = gemm_low_f16,
        .gemm_bytes = gemm_bytes,
        .gemm_low_bytes = gemm_low_bytes,
        .rms_norm = rms_norm,
        .layer_norm = layer_norm,
        .add = add,
        .scale = scale,
        .axpy = axpy,
        .silu_mul = silu_mul,
        .gelu_mul = gelu_mul,
        .gelu = gelu,
        .gelu_tanh = gelu_tanh,
        .relu = relu,
        .soft_cap = soft_cap,
        .rope = rope,
        .f32_to_f16 = f32_to_f16,
        .f16_to_f32 = f16_to_f32,
        .max = max,
        .exp_sums = exp_sums,
    };
    rvi_kernels_fill_ref_quant(k);
    rvi_kernels_fill_ref_attention(k);
    rvi_kernels_fill_ref_float(k);
    rvi_kernels_fill_ref_train(k);
}
