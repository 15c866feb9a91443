/* ref_train.c - the scalar row's training entries, written to be read. */
#include <math.h>

#include "kernels/exp.h"
#include "kernels/kernels.h"
#include "kernels/rows.h"

/* ---- products: A as [row][k], B as panels of [k][16 columns] ---- */

static void pack_a(void *out, size_t k_total, const float *a, size_t stride, bool transposed, int m, int k)
{
    for (int i = 0; i < m; i++)
        for (int j = 0; j < k; j++) {
            size_t from = transposed ? (size_t)j * stride + (size_t)i : (size_t)i * stride + (size_t)j;
            ((float *)out)[(size_t)i * k_total + (size_t)j] = a[from];
        }
}

static void pack_b(void *out, size_t k_total, const float *b, size_t stride, bool transposed, int k, int n)
{
    for (int j = 0; j < n; j++) {
        float *panel = (float *)out + (size_t)(j / RVI_GEMM_PANEL * RVI_GEMM_PANEL) * k_total;
        for (int i = 0; i < k; i++) {
            size_t from = transposed ? (size_t)j * stride + (size_t)i : (size_t)i * stride + (size_t)j;
            panel[i * RVI_GEMM_PANEL + j % RVI_GEMM_PANEL] = b[from];
        }
    }
}

static void pack_a_rows(void *out, size_t k_total, const float *const *rows, int m, int k)
{
    for (int i = 0; i < m; i++)
        for (int j = 0; j < k; j++) ((float *)out)[(size_t)i * k_total + (size_t)j] = rows[i][j];
}

static void pack_b_rows(void *out, size_t k_total, const float *const *rows, bool transposed, int k, int n)
{
    for (int j = 0; j < n; j++) {
        float *panel = (float *)out + (size_t)(j / RVI_GEMM_PANEL * RVI_GEMM_PANEL) * k_total;
        for (int i = 0; i < k; i++)
            panel[i * RVI_GEMM_PANEL + j % RVI_GEMM_PANEL] = transposed ? rows[j][i] : rows[i][j];
    }
}

static void product(const void *a, size_t a_total, int m, const void *b, size_t b_total, int n, size_t k, float *c,
                    size_t c_stride, bool add_to)
{
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            const float *row = (const float *)a + (size_t)i * a_total;
            const float *panel = (const float *)b + (size_t)(j / RVI_GEMM_PANEL * RVI_GEMM_PANEL) * b_total;
            float *at = c + (size_t)i * c_stride + j, sum = add_to ? *at : 0.0f;
            for (size_t e = 0; e < k; e++)
                sum = fmaf(row[e], panel[e * RVI_GEMM_PANEL + (size_t)(j % RVI_GEMM_PANEL)], sum);
            *at = sum;
        }
}

static const rvi_train_gemm gemm_table = {"scalar f32", 1,       1,           sizeof(float), pack_a,
                                          pack_b,       product, pack_a_rows, pack_b_rows};

/* ---- rows ---- */

static void norm_back(float *dx, const float *dy, const float *x, const float *w, size_t n, float eps, bool add_to)
{
    float square = 0, dot = 0;
    for (size_t i = 0; i < n; i++) {
        square += x[i] * x[i];
        dot += x[i] * (w[i] * dy[i]);
    }
    float r = 1.0f / sqrtf(square / (float)n + eps), c = r * r * r * dot / (float)n;
    for (size_t i = 0; i < n; i++) {
        float d = r * (w[i] * dy[i]) - x[i] * c;
        dx[i] = add_to ? dx[i] + d : d;
    }
}

static void silu_back(float *dgate, float *dup, const float *dact, const float *gate, const float *up, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float g = gate[i], u = up[i], d = dact[i], s = 1.0f / (1.0f + rvi_exp_f32(-g));
        dgate[i] = d * u * (s * (1.0f + g * (1.0f - s)));
        dup[i] = d * (g * s);
    }
}

static void gelu_back(float *dgate, float *dup, const float *dact, const float *gate, const float *up, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float g = gate[i], u = up[i], d = dact[i], y = g * (1.0f + RVI_GELU_CUBE * (g * g));
        float s = 1.0f / (1.0f + rvi_exp_f32(RVI_GELU_Z * y)), f = g * s;
        float slope = s + f * (1.0f - s) * (-RVI_GELU_Z * (1.0f + 3 * RVI_GELU_CUBE * (g * g)));
        dgate[i] = d * u * slope;
        dup[i] = d * f;
    }
}

static double exp_sum(const float *z, float top, float inverse, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)rvi_exp_f32((z[i] - top) * inverse);
    return sum;
}

static void exp_slope(float *z, float top, float inverse, float factor, float soft_cap, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float e = rvi_exp_f32((z[i] - top) * inverse) * factor, c = soft_cap != 0.0f ? z[i] / soft_cap : 0.0f;
        z[i] = e * (1.0f - c * c);
    }
}

static float score(float s, float scale, float soft_cap)
{
    s *= scale;
    if (soft_cap == 0.0f) return s;
    return soft_cap * (1.0f - 2.0f / (rvi_exp_f32(2.0f * (s / soft_cap)) + 1.0f));
}

static void softmax(float *s, size_t n, size_t from, size_t end, float scale, float soft_cap, float stats[2])
{
    float top = -INFINITY, sum = 0;
    for (size_t i = from; i < end; i++) {
        s[i] = score(s[i], scale, soft_cap);
        top = s[i] > top ? s[i] : top;
    }
    for (size_t i = from; i < end; i++) {
        s[i] = rvi_exp_f32(s[i] - top);
        sum += s[i];
    }
    for (size_t i = 0; i < n; i++) s[i] = i < from || i >= end ? 0.0f : s[i] * (1.0f / sum);
    stats[0] = top;
    stats[1] = 1.0f / sum;
}

static float slope(float s, float scale, float soft_cap)
{
    float t = soft_cap != 0.0f ? score(s, scale, soft_cap) / soft_cap : 0.0f;
    return 1.0f - t * t;
}

static float softmax_back(float *dp, const float *p, const float *s, size_t n, float scale, float soft_cap)
{
    float sum = 0;
    for (size_t i = 0; i < n; i++) sum += p[i] * dp[i];
    for (size_t i = 0; i < n; i++)
        dp[i] = p[i] * (dp[i] - sum) * scale * (soft_cap != 0.0f ? slope(s[i], scale, soft_cap) : 1.0f);
    return sum;
}

static void key_back(float *s, float *dp, const float *top, const float *inverse, const float *sums, size_t n,
                     size_t from, size_t end, float scale, float soft_cap)
{
    for (size_t i = 0; i < n; i++) {
        bool seen = i >= from && i < end;
        float p = seen ? rvi_exp_f32(score(s[i], scale, soft_cap) - top[i]) * inverse[i] : 0.0f;
        dp[i] = seen ? p * (dp[i] - sums[i]) * scale * slope(s[i], scale, soft_cap) : 0.0f;
        s[i] = p;
    }
}

void rvi_kernels_fill_ref_train(rvi_kernels *k)
{
    k->train_f32 = &gemm_table;
    k->norm_back = norm_back;
    k->silu_back = silu_back;
    k->gelu_back = gelu_back;
    k->exp_sum = exp_sum;
    k->exp_slope = exp_slope;
    k->softmax = softmax;
    k->softmax_back = softmax_back;
    k->key_back = key_back;
}
