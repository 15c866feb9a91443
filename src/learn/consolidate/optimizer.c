#include "learn/consolidate/optimizer.h"

#include <math.h>

#include "base/mem.h"
#include "base/rng.h"

static const double pi = 3.14159265358979323846;

double rvi_rate_at(int step, int n_steps, double rate, double warm_up)
{
    int n = RVI_MAX(n_steps, 1), t = RVI_MIN(RVI_MAX(step, 0), n - 1);
    return 0.5 * rate * (1 + cos(pi * t / n)) * fmin(1, (t + 1) / fmax(1, warm_up * n));
}

/* ---- Adam ---- */

static const float b1 = 0.9f, b2 = 0.99f, eps = 1e-8f;

enum { PIECE = 1 << 14 }; /* parameters of a task */

static int pieces_of(size_t n)
{
    return (int)((n + PIECE - 1) / PIECE);
}

rv_status rvi_optimizer_new(rvi_optimizer **out, size_t n, rvi_backend *be, rv_error *err)
{
    *out = NULL;
    rvi_optimizer *p = rvi_zalloc(sizeof *p);
    if (!p) return rvi_nomem(err, "optimizer");
    p->be = be;
    p->n = n;
    p->m = rvi_zalloc_array(n, sizeof *p->m);
    p->v = rvi_zalloc_array(n, sizeof *p->v);
    p->squares = rvi_zalloc_array((size_t)pieces_of(n) + 1, sizeof *p->squares);
    if (!p->m || !p->v || !p->squares) {
        rvi_optimizer_free(p);
        return rvi_nomem(err, "optimizer");
    }
    *out = p;
    return RV_OK;
}

void rvi_optimizer_free(rvi_optimizer *p)
{
    if (!p) return;
    rvi_free(p->m);
    rvi_free(p->v);
    rvi_free(p->squares);
    rvi_free(p);
}

/* The sum of the squares of a piece */
static double squares_of(const float *grad, size_t n, int piece)
{
    enum { SUMS = 8 }; /* side by side: one alone would wait for itself */
    double sums[SUMS] = {0}, total = 0;
    size_t i = (size_t)piece * PIECE, end = RVI_MIN(i + PIECE, n);
    for (; i + SUMS <= end; i += SUMS)
        for (size_t j = 0; j < SUMS; j++) sums[j] += (double)grad[i + j] * (double)grad[i + j];
    for (; i < end; i++) total += (double)grad[i] * (double)grad[i];
    for (size_t j = 0; j < SUMS; j++) total += sums[j];
    return total;
}

double rvi_gradient_norm(const float *grad, size_t n)
{
    double total = 0;
    for (int i = 0; i < pieces_of(n); i++) total += squares_of(grad, n, i);
    return sqrt(total);
}

/* One step of all parameters, by pieces. */
typedef struct moving {
    rvi_optimizer *p;
    float *theta;
    const float *grad;
    float clip, step, unbiased;
} moving;

typedef struct measuring {
    const rvi_optimizer *p;
    const float *grad;
} measuring;

static void measure_task(void *ctx, int task, int worker)
{
    const measuring *m = ctx;
    (void)worker;
    m->p->squares[task] = squares_of(m->grad, m->p->n, task);
}

static double length_of(const rvi_optimizer *p, const float *grad)
{
    double total = 0;
    p->be->ops->run(p->be, measure_task, &(measuring){p, grad}, pieces_of(p->n));
    for (int i = 0; i < pieces_of(p->n); i++) total += p->squares[i];
    return sqrt(total);
}

static void move_task(void *ctx, int task, int worker)
{
    const moving *t = ctx;
    const rvi_optimizer *p = t->p;
    size_t first = (size_t)task * PIECE;
    (void)worker;
    for (size_t i = first; i < RVI_MIN(first + PIECE, p->n); i++) {
        float g = t->grad[i] * t->clip;
        float m = p->m[i] = b1 * p->m[i] + (1 - b1) * g;
        float v = p->v[i] = b2 * p->v[i] + (1 - b2) * g * g;
        t->theta[i] -= t->step * m / (sqrtf(v * t->unbiased) + eps);
    }
}

bool rvi_optimizer_step(rvi_optimizer *p, float *theta, const float *grad, double rate)
{
    double length = length_of(p, grad);
    if (!isfinite(length)) return false;
    p->n_steps++;
    float clip = length > 1 ? (float)(1 / length) : 1;
    float step = (float)(rate / (1 - pow(b1, (double)p->n_steps)));
    float unbiased = (float)(1 / (1 - pow(b2, (double)p->n_steps)));
    moving t = {p, theta, grad, clip, step, unbiased};
    p->be->ops->run(p->be, move_task, &t, pieces_of(p->n));
    return true;
}

void rvi_gradient_randomise(float *grad, size_t n, uint64_t seed)
{
    rvi_rng rng = {seed};
    double norm = rvi_gradient_norm(grad, n);
    for (size_t i = 0; i < n; i += 2) { /* normal numbers come in pairs */
        double radius = sqrt(-2 * log(1 - rvi_rng_double(&rng))),
               angle = 2 * pi * rvi_rng_double(&rng);
        grad[i] = (float)(radius * cos(angle));
        if (i + 1 < n) grad[i + 1] = (float)(radius * sin(angle));
    }
    double own = rvi_gradient_norm(grad, n);
    for (size_t i = 0; i < n; i++) grad[i] = (float)(grad[i] * (own > 0 ? norm / own : 0));
}
