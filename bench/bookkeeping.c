/* bookkeeping.c - what a service's own work costs beside computing: build/bench/bookkeeping.
 *
 * The figures of a step, as the scheduler counts them for so many streams, with the clock read for
 * each token; a copy of them for whoever asks. The tree of prefixes, full of other texts: looking a
 * prompt up that shares nothing, keeping its pages and giving up as many others, and looking one up
 * that is there. CPU time, of many repetitions. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "program.h"

#include "base/mem.h"
#include "base/os.h"
#include "base/rng.h"
#include "scheduler/figures.h"
#include "scheduler/prefix.h"

enum { STEPS = 20000, PAGES = 8192, LONGEST = 6000, PROMPTS = 400 };

/* As scheduler.c and job.c do in a step in which each stream gets a token. */
static void count_step(rvi_figures *f, int n_streams, double seconds)
{
    atomic_uint_fast64_t *const now[] = {&f->bytes_hot,  &f->bytes_warm,    &f->bytes_cold,
                                         &f->bytes_kept, &f->bytes_spilled, &f->n_running,
                                         &f->pages_kept, &f->pages_running, &f->pages_hot,
                                         &f->pages_warm, &f->pages_cold,    &f->n_waiting};
    for (int i = 0; i < n_streams; i++) rvi_tally_add(&f->inter_token, rvi_os_seconds() - seconds);
    rvi_figures_step(f, n_streams, 0, rvi_os_seconds() - seconds);
    for (size_t i = 0; i < sizeof now / sizeof *now; i++)
        rvi_figures_set(now[i], (uint64_t)n_streams);
}

static void time_figures(int n_streams)
{
    static rvi_figures f;
    static rv_service_metrics m;
    double seconds = rvi_os_seconds(), start = cpu_seconds();
    for (int i = 0; i < STEPS; i++) count_step(&f, n_streams, seconds);
    double step = (cpu_seconds() - start) / STEPS;
    start = cpu_seconds();
    for (int i = 0; i < STEPS / 10; i++) rvi_figures_read(&f, &m);
    printf(
        "figures of a step of %2d streams: %.2f us (0.5 %% of a step of %.2f ms); a copy %.2f us\n",
        n_streams, step * 1e6, step * 1e3 / 0.005, (cpu_seconds() - start) / STEPS * 1e7);
}

typedef struct forest {
    rvi_pages *pool;
    rvi_prefix *tree;
    rvi_rng rng;
    int32_t ids[LONGEST], pages[LONGEST / RVI_PAGE_TOKENS + 1];
} forest;

/* A prompt that nobody has sent before comes, is read, and ends. */
static double pass_by(forest *x, int n, const rvi_prefix_space *space)
{
    rvi_seq seq;
    for (int i = 0; i < n; i++) x->ids[i] = (int32_t)(rvi_rng_u64(&x->rng) % 49152);
    double start = cpu_seconds();
    (void)rvi_prefix_find(x->tree, space, x->ids, n, x->pages);
    (void)rvi_prefix_evict(x->tree, n / RVI_PAGE_TOKENS + 2);
    double seconds = cpu_seconds() - start;
    must(rvi_seq_init(&seq, x->pool, n, &err)); /* has pages in any case */
    must(rvi_seq_extend(&seq, n, &err));
    start = cpu_seconds();
    rvi_prefix_insert(x->tree, space, x->ids, n, seq.pages);
    seconds += cpu_seconds() - start;
    rvi_seq_deinit(&seq);
    return seconds;
}

static void time_prefixes(forest *x, int n)
{
    const rvi_prefix_space space = {.salt = 7};
    double seconds = 0, found = 0;
    int same = 0;
    for (int i = 0; i < PAGES * RVI_PAGE_TOKENS / n; i++) (void)pass_by(x, n, &space);
    for (int i = 0; i < PROMPTS; i++) {
        seconds += pass_by(x, n, &space);
        double start = cpu_seconds();
        same += rvi_prefix_find(x->tree, &space, x->ids, n, x->pages) == n;
        found += cpu_seconds() - start;
    }
    if (same != PROMPTS) exit(1);
    printf(
        "a prompt of %4d tokens that shares nothing: %6.1f us, %.1f us a thousand tokens; one that "
        "is there is found in %.1f us\n",
        n, seconds / PROMPTS * 1e6, seconds / PROMPTS * 1e9 / n, found / PROMPTS * 1e6);
}

int main(void)
{
    static forest x = {.rng = {5}};
    rvi_backend *be;
    rvi_kv_spec spec = {
        .n_layers = 1, .n_kv_heads = 1, .head_size = 8, .n_pages = PAGES, .type = RV_KV_F16};
    time_figures(8);
    time_figures(32);
    must(rvi_backend_cpu_new(&be, &(rvi_cpu_options){.n_threads = 1}, NULL, &err));
    must(rvi_pages_new(&x.pool, be, &spec, &err));
    must(rvi_prefix_new(&x.tree, x.pool, RVI_PREFIX_WAYS, &err));
    time_prefixes(&x, 200);
    time_prefixes(&x, 1000);
    time_prefixes(&x, LONGEST);
    rvi_prefix_free(x.tree);
    rvi_pages_free(x.pool);
    be->ops->free(be);
    return 0;
}
