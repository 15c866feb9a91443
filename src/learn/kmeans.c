/* With |x - c|^2 = |x|^2 - 2 x.c + |c|^2. Sums over points are in double, in the order of the
 * points; ties go to the lower number. */
#include "learn/kmeans.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "learn/vector.h"

enum {
    MAX_PASSES = 50,
    RUNS = 4,          /* a start can be unlucky, so the best of some runs counts, */
    MANY = 100 * 1000, /* unless there are more points times groups than this */
};

typedef struct work {
    const float *const *points;
    size_t n, n_dim, k;
    float *centres;         /* [k][n_dim] */
    float *centre_norms;    /* [k]: |c|^2 */
    float *norms;           /* [n]: |x|^2 */
    float *nearest, *trial; /* [n]: distances to the nearest centre so far, and with one more */
    double *sums;           /* [k][n_dim] */
    size_t *counts;         /* [k] */
    uint32_t *groups;       /* [n], of this run */
    size_t *medoids;        /* [k], of this run */
} work;

size_t rvi_kmeans_groups(size_t n)
{
    size_t k = (size_t)sqrt((double)n / 2);
    return k ? k : 1;
}

static float distance(const work *w, size_t point, const float *centre, float centre_norm)
{
    float d =
        w->norms[point] - 2 * rvi_vector_dot(w->points[point], centre, w->n_dim) + centre_norm;
    return d > 0 ? d : 0;
}

/* Distances in `trial` as they would be with that point as one more centre; returns their sum. */
static double try_centre(work *w, size_t point, bool first)
{
    double sum = 0;
    for (size_t i = 0; i < w->n; i++) {
        float d = distance(w, i, w->points[point], w->norms[point]);
        w->trial[i] = first || d < w->nearest[i] ? d : w->nearest[i];
        sum += (double)w->trial[i];
    }
    return sum;
}

/* A point, drawn with the probability of its distance. */
static size_t draw(const work *w, double total, rvi_rng *r)
{
    double at = rvi_rng_double(r) * total;
    for (size_t i = 0; i < w->n; i++) {
        at -= (double)w->nearest[i];
        if (at < 0) return i;
    }
    for (size_t i = w->n; i-- > 0;) /* rounding */
        if (w->nearest[i] > 0) return i;
    return 0;
}

/* k-means++, taking the best of several draws for each centre. Returns how many centres there are:
 * fewer than k when there are fewer different points. */
static size_t start(work *w, rvi_rng *r)
{
    size_t n_draws = 2 + (size_t)(3 * log((double)w->k));
    size_t chosen = (size_t)(rvi_rng_double(r) * (double)w->n);
    double total = try_centre(w, chosen, true);
    for (size_t k = 0;;) {
        float *swap = w->nearest;
        w->nearest = w->trial;
        w->trial = swap;
        memcpy(w->centres + k * w->n_dim, w->points[chosen], w->n_dim * sizeof *w->centres);
        w->centre_norms[k] = w->norms[chosen];
        if (++k == w->k || !(total > 0)) return k;
        double best = INFINITY;
        for (size_t i = 0; i < n_draws; i++) {
            size_t point = draw(w, total, r);
            double sum = try_centre(w, point, false);
            if (sum < best) {
                best = sum;
                chosen = point;
            }
        }
        total = try_centre(w, chosen, false);
    }
}

/* Every point to its nearest centre; true if one moved. */
static bool assign(work *w, bool first)
{
    bool moved = first;
    for (size_t i = 0; i < w->n; i++) {
        size_t best = 0;
        float best_distance = INFINITY;
        for (size_t k = 0; k < w->k; k++) {
            float d = w->centre_norms[k] -
                      2 * rvi_vector_dot(w->points[i], w->centres + k * w->n_dim, w->n_dim);
            if (d < best_distance) {
                best_distance = d;
                best = k;
            }
        }
        if (!first && w->groups[i] != best) moved = true;
        w->groups[i] = (uint32_t)best;
    }
    return moved;
}

static void move_centres(work *w)
{
    memset(w->sums, 0, w->k * w->n_dim * sizeof *w->sums);
    memset(w->counts, 0, w->k * sizeof *w->counts);
    for (size_t i = 0; i < w->n; i++) {
        double *sum = w->sums + w->groups[i] * w->n_dim;
        for (size_t j = 0; j < w->n_dim; j++) sum[j] += (double)w->points[i][j];
        w->counts[w->groups[i]]++;
    }
    for (size_t k = 0; k < w->k; k++) {
        if (!w->counts[k]) continue; /* stays where it is */
        float *centre = w->centres + k * w->n_dim;
        for (size_t j = 0; j < w->n_dim; j++)
            centre[j] = (float)(w->sums[k * w->n_dim + j] / (double)w->counts[k]);
        w->centre_norms[k] = rvi_vector_dot(centre, centre, w->n_dim);
    }
}

/* Returns the sum of the squared distances to the centres. */
static double find_medoids(work *w)
{
    double sum = 0;
    for (size_t i = 0; i < w->n; i++) {
        size_t k = w->groups[i];
        float d = distance(w, i, w->centres + k * w->n_dim, w->centre_norms[k]);
        sum += (double)d;
        if (w->medoids[k] == SIZE_MAX || d < w->nearest[k]) {
            w->medoids[k] = i;
            w->nearest[k] = d; /* k <= n: there is room */
        }
    }
    return sum;
}

static double run(work *w, size_t k, rvi_rng *r)
{
    w->k = k;
    w->k = start(w, r);
    for (size_t i = 0; i < k; i++) w->medoids[i] = SIZE_MAX;
    for (int pass = 0; pass < MAX_PASSES && assign(w, !pass); pass++) move_centres(w);
    return find_medoids(w);
}

static void work_deinit(work *w)
{
    rvi_free(w->centres);
    rvi_free(w->centre_norms);
    rvi_free(w->norms);
    rvi_free(w->nearest);
    rvi_free(w->trial);
    rvi_free(w->sums);
    rvi_free(w->counts);
    rvi_free(w->groups);
    rvi_free(w->medoids);
}

static bool work_init(work *w, size_t n, size_t n_dim, size_t k)
{
    w->centres = rvi_alloc_array(k * n_dim, sizeof *w->centres);
    w->centre_norms = rvi_alloc_array(k, sizeof *w->centre_norms);
    w->norms = rvi_alloc_array(n, sizeof *w->norms);
    w->nearest = rvi_alloc_array(n, sizeof *w->nearest);
    w->trial = rvi_alloc_array(n, sizeof *w->trial);
    w->sums = rvi_alloc_array(k * n_dim, sizeof *w->sums);
    w->counts = rvi_alloc_array(k, sizeof *w->counts);
    w->groups = rvi_alloc_array(n, sizeof *w->groups);
    w->medoids = rvi_alloc_array(k, sizeof *w->medoids);
    return w->centres && w->centre_norms && w->norms && w->nearest && w->trial && w->sums &&
           w->counts && w->groups && w->medoids;
}

rv_status rvi_kmeans(const float *const *points, size_t n, size_t n_dim, size_t k, uint64_t seed,
                     uint32_t *groups, size_t *medoids, rv_error *err)
{
    if (!n || !n_dim || !k || k > n || k > UINT32_MAX || k > SIZE_MAX / n_dim)
        return rvi_error(err, RV_E_INVALID, "%zu groups of %zu vectors of %zu numbers", k, n,
                         n_dim);
    work w = {.points = points, .n = n, .n_dim = n_dim};
    rvi_rng r = {seed};
    if (!work_init(&w, n, n_dim, k)) {
        work_deinit(&w);
        return rvi_nomem(err, "groups of vectors");
    }
    for (size_t i = 0; i < n; i++) w.norms[i] = rvi_vector_dot(points[i], points[i], n_dim);
    double best = INFINITY;
    int n_runs = n > MANY / k ? 1 : RUNS;
    for (int i = 0; i < n_runs; i++) {
        double sum = run(&w, k, &r);
        if (i && !(sum < best)) continue;
        best = sum;
        memcpy(groups, w.groups, n * sizeof *groups);
        memcpy(medoids, w.medoids, k * sizeof *medoids);
    }
    work_deinit(&w);
    return RV_OK;
}
