#include "learn/instant/whiten.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "learn/instant/vector.h"

static const char magic[8] = "rvwhite1";

struct rvi_whitener {
    rvi_kernels k;
    int n, rank, n_samples, max_samples; /* rank 0: the whole inverse */
    rvi_f16 *samples;                    /* [max_samples][n], while they are gathered */
    float *inverse;                      /* rank 0: [n][n] */
    float *diagonal, *main;              /* else C^-1 = diagonal - main^T main: [n], [rank][n] */
};

rv_status rvi_whitener_new(rvi_whitener **out, int n, int rank, rv_error *err)
{
    *out = NULL;
    if (n < 1 || n > 1 << 20 || rank < 0 || rank > RVI_MIN(n, RVI_WHITEN_RANK))
        return rvi_error(err, RV_E_INVALID, "whitening %d inputs by %d directions", n, rank);
    rvi_whitener *w = rvi_zalloc(sizeof *w);
    if (!w) return rvi_nomem(err, "whitening");
    rvi_kernels_init(&w->k, NULL);
    w->n = n;
    w->rank = rank || n <= RVI_WHITEN_FULL ? rank : RVI_WHITEN_RANK;
    w->max_samples = RVI_MIN(RVI_WHITEN_SAMPLES, RVI_WHITEN_SAMPLE_BYTES / (2 * n));
    w->samples = rvi_alloc_array((size_t)w->max_samples * (size_t)n, sizeof *w->samples);
    if (!w->samples) {
        rvi_whitener_free(w);
        return rvi_nomem(err, "whitening");
    }
    *out = w;
    return RV_OK;
}

void rvi_whitener_free(rvi_whitener *w)
{
    if (!w) return;
    rvi_free(w->samples);
    rvi_free(w->inverse);
    rvi_free(w->diagonal);
    rvi_free(w->main);
    rvi_free(w);
}

bool rvi_whitener_add(rvi_whitener *w, const float *u)
{
    if (!w->samples || w->n_samples == w->max_samples) return false;
    for (int i = 0; i < w->n; i++)
        if (!(fabsf(u[i]) < 65000.0f)) return false;
    w->k.f32_to_f16(u, w->samples + (size_t)w->n_samples++ * (size_t)w->n, (size_t)w->n);
    return true;
}

int rvi_whitener_n_samples(const rvi_whitener *w)
{
    return w->n_samples;
}

/* ---- linear algebra, in double ---- */

static double dot(const double *a, const double *b, int n)
{
    enum { LANES = 4 };
    double sum[LANES] = {0};
    int i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) sum[j] += a[i + j] * b[i + j];
    for (; i < n; i++) sum[0] += a[i] * b[i];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* a [n][n], symmetric: its lower triangle becomes L with L L^T = a. False: not positive. */
static bool cholesky(double *a, int n)
{
    for (int i = 0; i < n; i++) {
        double *row = a + (size_t)i * (size_t)n;
        for (int j = 0; j <= i; j++) {
            const double *other = a + (size_t)j * (size_t)n;
            double rest = row[j] - dot(row, other, j);
            if (j < i)
                row[j] = rest / other[j];
            else if (rest > 0)
                row[i] = sqrt(rest);
            else
                return false;
        }
    }
    return true;
}

/* Beside L in the lower triangle, the transpose of its inverse in the upper one: row i from the
 * diagonal on is column i of L^-1, so that later products run along rows. The diagonal becomes the
 * inverse's. column: [n] scratch. */
static void invert_lower(double *l, int n, double *column)
{
    for (int i = 0; i < n; i++) { /* column i of L^-1: entries i .. n-1, by forward substitution */
        column[i] = 1 / l[(size_t)i * (size_t)n + (size_t)i];
        for (int j = i + 1; j < n; j++) {
            const double *row = l + (size_t)j * (size_t)n;
            column[j] = -dot(row + i, column + i, j - i) / row[j];
        }
        for (int j = i + 1; j < n; j++) l[(size_t)i * (size_t)n + (size_t)j] = column[j];
    }
    for (int i = 0; i < n; i++)
        l[(size_t)i * (size_t)n + (size_t)i] = 1 / l[(size_t)i * (size_t)n + (size_t)i];
}

/* ---- the whole inverse ---- */

static rv_status covariance(const rvi_whitener *w, double *c, rv_error *err)
{
    enum { BATCH = 256 };
    size_t n = (size_t)w->n;
    float *u = rvi_alloc_array(BATCH * n, sizeof *u), *sum = rvi_zalloc_array(n, sizeof *sum);
    if (!u || !sum) {
        rvi_free(u);
        rvi_free(sum);
        return rvi_nomem(err, "whitening");
    }
    memset(c, 0, n * n * sizeof *c);
    for (int at = 0; at < w->n_samples; at += BATCH) {
        int batch = RVI_MIN(BATCH, w->n_samples - at);
        for (int s = 0; s < batch; s++)
            w->k.f16_to_f32(w->samples + (size_t)(at + s) * n, u + (size_t)s * n, n);
        for (size_t i = 0; i < n; i++) { /* the lower triangle */
            memset(sum, 0, (i + 1) * sizeof *sum);
            for (int s = 0; s < batch; s++)
                w->k.axpy(sum, u[(size_t)s * n + i], u + (size_t)s * n, i + 1);
            for (size_t j = 0; j <= i; j++) c[i * n + j] += (double)sum[j];
        }
    }
    double trace = 0;
    for (size_t i = 0; i < n; i++) trace += c[i * n + i] /= (double)w->n_samples;
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < i; j++) c[i * n + j] /= (double)w->n_samples;
    for (size_t i = 0; i < n; i++) c[i * n + i] += 1e-2 * trace / (double)n;
    rvi_free(u);
    rvi_free(sum);
    return RV_OK;
}

static rv_status finish_whole(rvi_whitener *w, rv_error *err)
{
    size_t n = (size_t)w->n;
    double *c = rvi_alloc_array(n * n, sizeof *c), *column = rvi_alloc_array(n, sizeof *column);
    rv_status st = RV_OK;
    w->inverse = rvi_floats_new(n * n);
    if (!c || !column || !w->inverse) st = rvi_nomem(err, "whitening");
    if (!st) st = covariance(w, c, err);
    if (!st && !cholesky(c, w->n))
        st = rvi_error(err, RV_E_INVALID, "the samples have no direction to whiten");
    if (!st) {
        invert_lower(c, w->n, column); /* C^-1 = L^-T L^-1 */
        for (size_t i = 0; i < n; i++)
            for (size_t j = 0; j <= i; j++) {
                double v = dot(c + i * n + i, c + j * n + i, (int)(n - i));
                w->inverse[i * n + j] = w->inverse[j * n + i] = (float)v;
            }
    }
    rvi_free(c);
    rvi_free(column);
    return st;
}

/* ---- diagonal and main directions ---- */

/* Orthonormal rows, one after the other, twice for rounding. */
static void orthonormalize(const rvi_whitener *w, float *q)
{
    size_t n = (size_t)w->n;
    for (int i = 0; i < w->rank; i++) {
        float *row = q + (size_t)i * n, d;
        for (int twice = 0; twice < 2; twice++)
            for (int j = 0; j < i; j++) {
                w->k.gemm_f32(q + (size_t)j * n, 0, 1, row, 0, 1, &d, 0, n);
                w->k.axpy(row, -d, q + (size_t)j * n, n);
            }
        w->k.gemm_f32(row, 0, 1, row, 0, 1, &d, 0, n);
        w->k.scale(row, d > 1e-30f ? 1 / sqrtf(d) : 0, n);
    }
}

/* z = C q for every row of q; squares (may be NULL): the diagonal of C */
static void multiply(const rvi_whitener *w, const float *q, float *z, float *u, double *squares)
{
    size_t n = (size_t)w->n;
    float y[RVI_WHITEN_RANK];
    memset(z, 0, (size_t)w->rank * n * sizeof *z);
    for (int s = 0; s < w->n_samples; s++) {
        w->k.f16_to_f32(w->samples + (size_t)s * n, u, n);
        w->k.gemm_f32(q, n, w->rank, u, 0, 1, y, 0, n);
        for (int i = 0; i < w->rank; i++)
            w->k.axpy(z + (size_t)i * n, y[i] / (float)w->n_samples, u, n);
        for (size_t i = 0; squares && i < n; i++)
            squares[i] += (double)u[i] * (double)u[i] / (double)w->n_samples;
    }
}

/* C ~ D + Q^T L Q. Its inverse, by Woodbury: D^-1 - D^-1 Q^T M Q D^-1, M = (L^-1 + Q D^-1 Q^T)^-1,
 * and with M = (N N^T)^-1, N lower: main = N^-1 Q D^-1. */
static rv_status finish_main(rvi_whitener *w, rv_error *err)
{
    enum { ROUNDS = 10 };
    size_t n = (size_t)w->n, rank = (size_t)w->rank;
    float *z = rvi_alloc_array(rank * n, sizeof *z), *u = rvi_alloc_array(n, sizeof *u);
    double *squares = rvi_zalloc_array(n, sizeof *squares),
           *small = rvi_alloc_array(rank * rank, sizeof *small);
    float *q = w->main = rvi_floats_new(rank * n);
    w->diagonal = rvi_alloc_array(n, sizeof *w->diagonal);
    rv_status st =
        z && u && squares && small && q && w->diagonal ? RV_OK : rvi_nomem(err, "whitening");
    if (!st) {
        rvi_rng rng = {1};
        double trace = 0, length[RVI_WHITEN_RANK];
        for (size_t i = 0; i < rank * n; i++) q[i] = (float)(rvi_rng_double(&rng) - 0.5);
        orthonormalize(w, q);
        for (int round = 0; round < ROUNDS; round++) {
            multiply(w, q, z, u, NULL);
            memcpy(q, z, rank * n * sizeof *q);
            orthonormalize(w, q);
        }
        multiply(w, q, z, u, squares);
        for (size_t r = 0; r < rank; r++) {
            float along;
            w->k.gemm_f32(q + r * n, 0, 1, z + r * n, 0, 1, &along, 0, n);
            length[r] = fmax((double)along, 1e-30);
        }
        for (size_t i = 0; i < n; i++) trace += squares[i];
        double ridge = 1e-2 * trace / (double)n;
        for (size_t i = 0; i < n; i++) {
            double rest = squares[i];
            for (size_t r = 0; r < rank; r++)
                rest -= length[r] * (double)q[r * n + i] * (double)q[r * n + i];
            w->diagonal[i] = (float)(1 / (fmax(rest, 0) + ridge));
        }
        for (size_t r = 0; r < rank; r++)
            for (size_t i = 0; i < n; i++) z[r * n + i] = q[r * n + i] * w->diagonal[i];
        for (size_t r = 0; r < rank; r++)
            for (size_t t = 0; t <= r; t++) {
                float v;
                w->k.gemm_f32(q + r * n, 0, 1, z + t * n, 0, 1, &v, 0, n);
                small[r * rank + t] = (double)v + (r == t ? 1 / length[r] : 0);
            }
        if (!(ridge > 0) || !cholesky(small, w->rank))
            st = rvi_error(err, RV_E_INVALID, "the samples have no direction to whiten");
        for (size_t r = 0; !st && r < rank; r++) { /* forward substitution over whole rows */
            memcpy(q + r * n, z + r * n, n * sizeof *q);
            for (size_t t = 0; t < r; t++)
                w->k.axpy(q + r * n, (float)-small[r * rank + t], q + t * n, n);
            w->k.scale(q + r * n, (float)(1 / small[r * rank + r]), n);
        }
    }
    rvi_free(z);
    rvi_free(u);
    rvi_free(squares);
    rvi_free(small);
    return st;
}

rv_status rvi_whitener_finish(rvi_whitener *w, rv_error *err)
{
    if (!w->samples) return rvi_error(err, RV_E_INVALID, "whitening was finished before");
    if (!w->n_samples) return rvi_error(err, RV_E_INVALID, "there are no samples to whiten by");
    rv_status st = w->rank ? finish_main(w, err) : finish_whole(w, err);
    if (st) return st;
    rvi_free(w->samples);
    w->samples = NULL;
    return RV_OK;
}

/* ---- use ---- */

bool rvi_whitener_fits(const rvi_whitener *w, int n)
{
    return !w->samples && w->n == n;
}

void rvi_whitener_keys(const rvi_whitener *w, const float *u, int n_u, float *keys)
{
    size_t n = (size_t)w->n;
    if (!w->rank) w->k.gemm_f32(w->inverse, n, w->n, u, n, n_u, keys, n, n);
    for (int t = 0; t < n_u; t++) {
        const float *from = u + (size_t)t * n;
        float *key = keys + (size_t)t * n, y[RVI_WHITEN_RANK], along;
        if (w->rank) {
            for (size_t i = 0; i < n; i++) key[i] = w->diagonal[i] * from[i];
            w->k.gemm_f32(w->main, n, w->rank, from, 0, 1, y, 0, n);
            for (int r = 0; r < w->rank; r++) w->k.axpy(key, -y[r], w->main + (size_t)r * n, n);
        }
        w->k.gemm_f32(key, 0, 1, from, 0, 1, &along, 0, n);
        w->k.scale(key, 1 / fmaxf(along, 1e-9f), n);
    }
}

/* ---- as bytes ---- */

typedef struct header {
    char magic[8];
    int32_t n, rank;
} header;

rv_status rvi_whitener_save(const rvi_whitener *w, rvi_buf *out, rv_error *err)
{
    size_t n = (size_t)w->n;
    header h = {.n = w->n, .rank = w->rank};
    memcpy(h.magic, magic, sizeof magic);
    if (w->samples) return rvi_error(err, RV_E_INVALID, "whitening was not finished");
    rvi_buf_append(out, &h, sizeof h);
    if (w->rank) {
        rvi_buf_append(out, w->diagonal, n * sizeof(float));
        rvi_buf_append(out, w->main, (size_t)w->rank * n * sizeof(float));
    } else {
        rvi_buf_append(out, w->inverse, n * n * sizeof(float));
    }
    return out->failed ? rvi_nomem(err, "whitening") : RV_OK;
}

static bool read_floats(float **out, const char **at, size_t count)
{
    if (!(*out = rvi_floats_new(count))) return false;
    memcpy(*out, *at, count * sizeof **out);
    *at += count * sizeof **out;
    return true;
}

static bool all_finite(const float *x, size_t n)
{
    for (size_t i = 0; x && i < n; i++)
        if (!isfinite(x[i])) return false;
    return true;
}

rv_status rvi_whitener_load(rvi_whitener **out, const void *bytes, size_t len, int n, rv_error *err)
{
    header h;
    size_t wide = (size_t)n;
    *out = NULL;
    if (len < sizeof h) return rvi_error(err, RV_E_LEARNING, "whitening: %zu bytes", len);
    memcpy(&h, bytes, sizeof h);
    size_t rank = (size_t)(uint32_t)h.rank;
    if (memcmp(h.magic, magic, sizeof magic) || h.n != n || n < 1 || n > 1 << 20 ||
        rank > RVI_WHITEN_RANK || (!rank && n > RVI_WHITEN_FULL) ||
        len != sizeof h + (rank ? wide + rank * wide : wide * wide) * sizeof(float))
        return rvi_error(err, RV_E_LEARNING, "whitening: not that of a layer of %d inputs", n);
    rvi_whitener *w = rvi_zalloc(sizeof *w);
    if (!w) return rvi_nomem(err, "whitening");
    rvi_kernels_init(&w->k, NULL);
    w->n = n;
    w->rank = h.rank;
    const char *at = (const char *)bytes + sizeof h;
    bool ok = rank ? read_floats(&w->diagonal, &at, wide) && read_floats(&w->main, &at, rank * wide)
                   : read_floats(&w->inverse, &at, wide * wide);
    rv_status st = ok ? RV_OK : rvi_nomem(err, "whitening");
    if (!st && (!all_finite(w->diagonal, wide) || !all_finite(w->main, rank * wide) ||
                !all_finite(w->inverse, wide * wide)))
        st = rvi_error(err, RV_E_LEARNING, "whitening: a value is not a number");
    if (st)
        rvi_whitener_free(w);
    else
        *out = w;
    return st;
}
