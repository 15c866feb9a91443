#include "scheduler/figures.h"

#include <math.h>

#include "base/compat.h"

/* A bucket is a doubling of a microsecond, divided into SUB equal parts. */
enum { SUB = 32 };

/* One thread writes: no read-modify-write is needed. */
void rvi_figures_add(atomic_uint_fast64_t *counter, uint64_t n)
{
    rvi_figures_set(counter, atomic_load_explicit(counter, memory_order_relaxed) + n);
}

void rvi_figures_set(atomic_uint_fast64_t *counter, uint64_t n)
{
    atomic_store_explicit(counter, n, memory_order_relaxed);
}

static int bucket_of(double seconds)
{
    int doubling;
    double part = frexp(seconds * 1e6, &doubling); /* 0.5 <= part < 1 */
    if (!(seconds > 1e-6)) return 0;
    int i = (doubling - 1) * SUB + (int)((part - 0.5) * 2 * SUB);
    return RVI_MIN(i, RV_HISTOGRAM_BUCKETS - 1);
}

void rvi_tally_add(rvi_tally *t, double seconds)
{
    uint64_t ns = seconds > 0 ? (uint64_t)(seconds * 1e9) : 0;
    rvi_figures_add(&t->counts[bucket_of(seconds)], 1);
    rvi_figures_add(&t->sum_ns, ns);
    if (ns > atomic_load_explicit(&t->max_ns, memory_order_relaxed))
        rvi_figures_set(&t->max_ns, ns);
}

static uint64_t read_counter(const atomic_uint_fast64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

void rvi_figures_step(rvi_figures *f, int n_tokens, int n_prompt_rows, double seconds)
{
    double ns = RVI_MAX(seconds, 0) * 1e9, rows = RVI_MAX(n_tokens + n_prompt_rows, 1);
    rvi_tally_add(&f->step, seconds);
    rvi_figures_add(&f->n_steps, 1);
    rvi_figures_add(&f->token_rows, (uint64_t)n_tokens);
    rvi_figures_add(&f->prompt_rows, (uint64_t)n_prompt_rows);
    rvi_figures_add(&f->token_ns, (uint64_t)(ns * n_tokens / rows));
    rvi_figures_add(&f->prompt_ns, (uint64_t)(ns * n_prompt_rows / rows));
}

void rvi_tally_read(const rvi_tally *t, rv_histogram *out)
{
    *out = (rv_histogram){.sum = (double)read_counter(&t->sum_ns) * 1e-9,
                          .max = (double)read_counter(&t->max_ns) * 1e-9};
    for (int i = 0; i < RV_HISTOGRAM_BUCKETS; i++)
        out->n += out->counts[i] = read_counter(&t->counts[i]);
}

void rvi_figures_read(const rvi_figures *f, rv_service_metrics *out)
{
#define X(name) out->name = read_counter(&f->name);
    RVI_FIGURES(X)
#undef X
#define X(name) rvi_tally_read(&f->name, &out->name);
    RVI_TALLIES(X)
#undef X
    out->busy_seconds = out->step.sum;
    out->prompt_seconds = (double)read_counter(&f->prompt_ns) * 1e-9;
    out->token_seconds = (double)read_counter(&f->token_ns) * 1e-9;
}

double rv_histogram_bound(int i)
{
    if (i < 0) return 0;
    return i < RV_HISTOGRAM_BUCKETS - 1 ? ldexp(1e-6 * (1 + (double)(i % SUB + 1) / SUB), i / SUB)
                                        : INFINITY;
}

/* Within its bucket in proportion. */
double rv_histogram_quantile(const rv_histogram *h, double q)
{
    if (!h || !h->n || !(q >= 0)) return 0;
    double rank = RVI_MIN(q, 1.0) * (double)h->n, below = 0;
    for (int i = 0; i < RV_HISTOGRAM_BUCKETS; i++) {
        double here = (double)h->counts[i];
        if (here > 0 && below + here >= rank) {
            double low = i ? rv_histogram_bound(i - 1) : 0;
            double high = RVI_MIN(rv_histogram_bound(i), h->max);
            return low + RVI_MAX(high - low, 0) * (rank - below) / here;
        }
        below += here;
    }
    return h->max;
}
