#include "lora/svd.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

static double dot(const double *x, const double *y, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += x[i] * y[i];
    return sum;
}

static void add_times(double *x, const double *y, double factor, int n)
{
    for (int i = 0; i < n; i++) x[i] += factor * y[i];
}

static double *column(double *a, int m, int j)
{
    return a + (size_t)j * (size_t)m;
}

/* Column j, from its diagonal down, becomes the vector of the reflection that clears it; returns 2
 * over its squared length, 0 where there is nothing to clear. */
static double reflect(double *a, int m, int n, int j, double *r)
{
    double *v = column(a, m, j) + j, norm = sqrt(dot(v, v, m - j)), tau = 0;
    double *rj = column(r, n, j);
    memset(rj, 0, (size_t)n * sizeof *rj);
    memcpy(rj, column(a, m, j), (size_t)j * sizeof *rj);
    if (norm > 0) {
        rj[j] = v[0] > 0 ? -norm : norm;
        v[0] -= rj[j];
        tau = 2 / dot(v, v, m - j);
        for (int k = j + 1; k < n; k++) {
            double *x = column(a, m, k) + j;
            add_times(x, v, -tau * dot(x, v, m - j), m - j);
        }
    }
    return tau;
}

void rvi_qr(double *a, int m, int n, double *r)
{
    for (int j = 0; j < n; j++) (void)reflect(a, m, n, j, r);
    /* Q = H_0 H_1 ... applied to the unit vectors, from the last one back */
    for (int j = n - 1; j >= 0; j--) {
        double *v = column(a, m, j) + j, length = dot(v, v, m - j);
        double tau = length > 0 ? 2 / length : 0;
        for (int k = j + 1; k < n; k++) {
            double *x = column(a, m, k) + j;
            add_times(x, v, -tau * dot(x, v, m - j), m - j);
        }
        double first = v[0];
        for (int i = 0; i < m - j; i++) v[i] *= -tau * first;
        v[0] += 1;
        memset(column(a, m, j), 0, (size_t)j * sizeof *a);
    }
}

/* Turns columns p and q by the angle that makes them orthogonal; false if they are. */
static bool rotate(double *a, double *v, int n, int p, int q)
{
    double *x = column(a, n, p), *y = column(a, n, q);
    double xx = dot(x, x, n), yy = dot(y, y, n), xy = dot(x, y, n);
    if (fabs(xy) <= n * DBL_EPSILON * sqrt(xx) * sqrt(yy) || xy == 0) return false;
    double zeta = (yy - xx) / (2 * xy), t = (zeta >= 0 ? 1 : -1) / (fabs(zeta) + hypot(1, zeta));
    double c = 1 / sqrt(1 + t * t), s = c * t;
    double *pairs[2][2] = {{x, y}, {column(v, n, p), column(v, n, q)}};
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < n; i++) {
            double left = pairs[k][0][i], right = pairs[k][1][i];
            pairs[k][0][i] = c * left - s * right;
            pairs[k][1][i] = s * left + c * right;
        }
    return true;
}

static void swap_columns(double *a, int n, int p, int q)
{
    double *x = column(a, n, p), *y = column(a, n, q);
    for (int i = 0; i < n; i++) {
        double keep = x[i];
        x[i] = y[i];
        y[i] = keep;
    }
}

/* A unit vector orthogonal to the first n_done columns, as column n_done. Of the n unit vectors of
 * the axes one has a rest of at least 1 / sqrt(n). */
static void complete(double *a, int n, int n_done)
{
    double *x = column(a, n, n_done);
    for (int axis = 0; axis < n; axis++) {
        memset(x, 0, (size_t)n * sizeof *x);
        x[axis] = 1;
        for (int pass = 0; pass < 2; pass++)
            for (int k = 0; k < n_done; k++)
                add_times(x, column(a, n, k), -dot(x, column(a, n, k), n), n);
        double rest = sqrt(dot(x, x, n));
        if (2 * rest * rest * n < 1) continue;
        for (int i = 0; i < n; i++) x[i] /= rest;
        return;
    }
}

void rvi_svd(double *a, int n, double *s, double *v)
{
    enum { MOST_SWEEPS = 60 }; /* about ten are needed */
    double largest = 0;
    for (size_t i = 0; i < (size_t)n * (size_t)n; i++) {
        v[i] = i % ((size_t)n + 1) == 0;
        largest = fmax(largest, fabs(a[i]));
    }
    /* near 1, so that no square is lost */
    for (size_t i = 0; largest > 0 && i < (size_t)n * (size_t)n; i++) a[i] /= largest;
    bool turned = largest > 0;
    for (int sweep = 0; turned && sweep < MOST_SWEEPS; sweep++) {
        turned = false;
        for (int p = 0; p < n; p++)
            for (int q = p + 1; q < n; q++)
                if (rotate(a, v, n, p, q)) turned = true;
    }
    for (int j = 0; j < n; j++) s[j] = sqrt(dot(column(a, n, j), column(a, n, j), n));
    for (int j = 0; j < n; j++) {
        int best = j;
        for (int k = j + 1; k < n; k++)
            if (s[k] > s[best]) best = k;
        if (best == j) continue;
        double keep = s[j];
        s[j] = s[best];
        s[best] = keep;
        swap_columns(a, n, j, best);
        swap_columns(v, n, j, best);
    }
    double noise = n * DBL_EPSILON * s[0];
    for (int j = 0; j < n; j++) {
        double *x = column(a, n, j);
        if (s[j] > noise) {
            for (int i = 0; i < n; i++) x[i] /= s[j];
            s[j] *= largest;
        } else { /* s is descending, so all others are noise too */
            s[j] = 0;
            complete(a, n, j);
        }
    }
}
