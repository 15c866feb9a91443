/* The workers wait for a new job: a short spin, because the next job of a token usually follows
 * within microseconds, then on a condition variable, so that an idle engine costs nothing.
 *
 * Nobody waits for a thread that is not running: on a busy machine a worker may get its turn long
 * after the others have done its share. A worker enters a job while it is open; the owner closes it
 * when no task is left and waits for those alone that entered.
 *
 * Invariants:
 *  1. `gate` is (job number, open or not, workers inside) in one word, so that entering and closing
 *     cannot miss each other.
 *  2. fn, ctx and the shares are written by the owner while the gate is closed and nobody is
 *  inside,
 *     and touched by workers only while inside.
 *  3. A share's `next` hands out each of its tasks exactly once. A thread works through its own
 *  share,
 *     neighbouring tasks in order, and then through what is left of the others'.
 *  4. The owner of a job is the thread whose ticket is being served. Tickets are drawn in order, so
 *     threads that submit jobs at the same time take turns, job by job. */
#include "base/pool.h"

#include "base/mem.h"
#include "base/thread.h"

#include <stdatomic.h>
#include <stdbool.h>

static bool is_stopped(const atomic_bool *stop)
{
    return stop && atomic_load_explicit(stop, memory_order_relaxed);
}

#if defined(RVI_NO_THREADS)

struct rvi_pool {
    void (*rest)(void *ctx);
    void *rest_ctx;
    const atomic_bool *stop;
};

rv_status rvi_pool_new(rvi_pool **out, int n_threads, rv_error *err)
{
    (void)n_threads;
    *out = rvi_zalloc(sizeof **out);
    return *out ? RV_OK : rvi_nomem(err, "thread pool");
}
void rvi_pool_free(rvi_pool *pool)
{
    rvi_free(pool);
}
int rvi_pool_size(const rvi_pool *pool)
{
    (void)pool;
    return 1;
}
static void run(rvi_pool *pool, rvi_task_fn fn, void *ctx, int n_tasks, const atomic_bool *stop)
{
    for (int i = 0; i < n_tasks && !is_stopped(stop); i++) {
        if (pool->rest) pool->rest(pool->rest_ctx);
        fn(ctx, i, 0);
    }
}

#else

#include <pthread.h>
#include <sched.h>
#include <stdalign.h>
#include <stdint.h>

enum { SPINS = 2000 };

/* gate: bits 0-31 workers inside, bit 32 open, bits 33-63 job number */
#define OPEN    ((uint_fast64_t)1 << 32)
#define ONE_JOB ((uint_fast64_t)1 << 33)
static uint_fast64_t job_of(uint_fast64_t gate)
{
    return gate & ~(ONE_JOB - 1);
}

typedef struct worker {
    rvi_pool *pool;
    int index;
    pthread_t thread;
} worker;

/* On a cache line of its own: most of the time one thread alone uses it. */
typedef struct share {
    alignas(64) atomic_int next;
    int end;
} share;

struct rvi_pool {
    int n_threads, n_started;
    worker *workers; /* n_threads - 1, indices 1.. */
    share *shares;   /* one for each thread */
    atomic_uint next_ticket, serving;
    atomic_int n_waiting; /* threads asleep until their ticket is served */
    pthread_cond_t served;
    const atomic_bool *stop; /* of rvi_pool_run; may be NULL */
    /* the job */
    rvi_task_fn fn;
    void *ctx;
    const atomic_bool *job_stop;
    void (*rest)(void *ctx); /* may be NULL */
    void *rest_ctx;
    atomic_uint_fast64_t gate;
    atomic_bool quit;
    atomic_int sleepers;
    pthread_mutex_t lock; /* guards sleeping on wake and served */
    pthread_cond_t wake;
};

static void relax(unsigned spin)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
    if (spin % 64 == 63) sched_yield(); /* a busy neighbour may hold the core our partner needs */
}

static void work(rvi_pool *p, int index)
{
    for (int i = 0; i < p->n_threads; i++) {
        share *s = &p->shares[(index + i) % p->n_threads];
        if (atomic_load_explicit(&s->next, memory_order_relaxed) >= s->end) continue;
        for (int t; (t = atomic_fetch_add(&s->next, 1)) < s->end;) {
            if (is_stopped(p->job_stop)) return; /* the others see it too */
            if (p->rest) p->rest(p->rest_ctx);
            p->fn(p->ctx, t, index);
        }
    }
}

/* Is there a job that a worker which has seen `seen` may enter? */
static bool is_new(const rvi_pool *p, uint_fast64_t seen)
{
    uint_fast64_t gate = atomic_load(&p->gate);
    return ((gate & OPEN) && job_of(gate) != seen) || atomic_load(&p->quit);
}

/* Goes inside if the gate is open. *seen: the job that was entered. */
static bool enter(rvi_pool *p, uint_fast64_t *seen)
{
    uint_fast64_t gate = atomic_load(&p->gate);
    while ((gate & OPEN) && job_of(gate) != *seen)
        if (atomic_compare_exchange_weak(&p->gate, &gate, gate + 1)) {
            *seen = job_of(gate);
            return true;
        }
    return false;
}

static void *worker_main(void *arg)
{
    worker *w = arg;
    rvi_pool *p = w->pool;
    uint_fast64_t seen = 0;
    rvi_thread_ignore_signals();
    for (;;) {
        for (unsigned spin = 0; spin < SPINS && !is_new(p, seen); spin++) relax(spin);
        if (!is_new(p, seen)) {
            pthread_mutex_lock(&p->lock);
            atomic_fetch_add(&p->sleepers, 1);
            while (!is_new(p, seen)) pthread_cond_wait(&p->wake, &p->lock);
            atomic_fetch_sub(&p->sleepers, 1);
            pthread_mutex_unlock(&p->lock);
        }
        if (atomic_load(&p->quit)) return NULL;
        if (!enter(p, &seen)) continue;
        work(p, w->index);
        atomic_fetch_sub(&p->gate, 1);
    }
}

static void wake_sleepers(rvi_pool *p)
{
    if (atomic_load(&p->sleepers)) {
        pthread_mutex_lock(&p->lock);
        pthread_cond_broadcast(&p->wake);
        pthread_mutex_unlock(&p->lock);
    }
}

rv_status rvi_pool_new(rvi_pool **out, int n_threads, rv_error *err)
{
    *out = NULL;
    if (n_threads < 1 || n_threads > 1024)
        return rvi_error(err, RV_E_CONFIG, "%d threads: between 1 and 1024 are possible",
                         n_threads);
    rvi_pool *p = rvi_zalloc(sizeof *p);
    if (!p) return rvi_nomem(err, "thread pool");
    p->n_threads = n_threads;
    p->shares = rvi_alloc_aligned((size_t)n_threads * sizeof *p->shares, alignof(share));
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    pthread_cond_init(&p->served, NULL);
    if (!p->shares || (n_threads > 1 && !(p->workers = rvi_zalloc_array((size_t)n_threads - 1,
                                                                        sizeof *p->workers)))) {
        rvi_pool_free(p);
        return rvi_nomem(err, "thread pool");
    }
    for (int i = 0; i < n_threads - 1; i++) {
        worker *w = &p->workers[i];
        w->pool = p;
        w->index = i + 1;
        if (pthread_create(&w->thread, NULL, worker_main, w)) {
            rvi_pool_free(p);
            return rvi_error(err, RV_E_NOMEM, "cannot start thread %d of %d", i + 2, n_threads);
        }
        p->n_started++;
    }
    *out = p;
    return RV_OK;
}

void rvi_pool_free(rvi_pool *p)
{
    if (!p) return;
    if (p->n_started) {
        atomic_store(&p->quit, true);
        wake_sleepers(p);
        for (int i = 0; i < p->n_started; i++) pthread_join(p->workers[i].thread, NULL);
    }
    pthread_cond_destroy(&p->wake);
    pthread_cond_destroy(&p->served);
    pthread_mutex_destroy(&p->lock);
    rvi_free(p->workers);
    rvi_free(p->shares);
    rvi_free(p);
}

int rvi_pool_size(const rvi_pool *p)
{
    return p->n_threads;
}

/* A thread that waits for long sleeps: the one it waits for may need its core. */
static unsigned take_turn(rvi_pool *p)
{
    unsigned ticket = atomic_fetch_add(&p->next_ticket, 1);
    for (unsigned spin = 0; spin < SPINS && atomic_load(&p->serving) != ticket; spin++) relax(spin);
    if (atomic_load(&p->serving) != ticket) {
        pthread_mutex_lock(&p->lock);
        atomic_fetch_add(&p->n_waiting, 1);
        while (atomic_load(&p->serving) != ticket) pthread_cond_wait(&p->served, &p->lock);
        atomic_fetch_sub(&p->n_waiting, 1);
        pthread_mutex_unlock(&p->lock);
    }
    return ticket;
}

static void give_turn(rvi_pool *p, unsigned ticket)
{
    atomic_store(&p->serving, ticket + 1);
    if (!atomic_load(&p->n_waiting)) return;
    pthread_mutex_lock(&p->lock);
    pthread_cond_broadcast(&p->served);
    pthread_mutex_unlock(&p->lock);
}

static void run_shared(rvi_pool *p, rvi_task_fn fn, void *ctx, int n_tasks, const atomic_bool *stop)
{
    p->fn = fn;
    p->ctx = ctx;
    p->job_stop = stop;
    for (int i = 0; i < p->n_threads; i++) {
        p->shares[i].end = (int)((int64_t)n_tasks * (i + 1) / p->n_threads);
        atomic_store_explicit(&p->shares[i].next, (int)((int64_t)n_tasks * i / p->n_threads),
                              memory_order_relaxed);
    }
    atomic_store(&p->gate, (job_of(atomic_load(&p->gate)) + ONE_JOB) | OPEN);
    wake_sleepers(p);
    work(p, 0);
    uint_fast64_t closed = atomic_fetch_and(&p->gate, ~OPEN) & ~OPEN;
    for (unsigned spin = 0; closed & (OPEN - 1); spin++, closed = atomic_load(&p->gate)) {
        if (p->rest) p->rest(p->rest_ctx); /* those inside rest too: no spinning meanwhile */
        relax(spin);
    }
}

static void run(rvi_pool *p, rvi_task_fn fn, void *ctx, int n_tasks, const atomic_bool *stop)
{
    unsigned ticket = take_turn(p);
    if (p->n_started && n_tasks > 1) {
        run_shared(p, fn, ctx, n_tasks, stop);
    } else {
        for (int i = 0; i < n_tasks && !is_stopped(stop); i++) {
            if (p->rest) p->rest(p->rest_ctx);
            fn(ctx, i, 0);
        }
    }
    give_turn(p, ticket);
}

#endif

void rvi_pool_run(rvi_pool *pool, rvi_task_fn fn, void *ctx, int n_tasks)
{
    run(pool, fn, ctx, n_tasks, pool->stop);
}

void rvi_pool_run_all(rvi_pool *pool, rvi_task_fn fn, void *ctx, int n_tasks)
{
    run(pool, fn, ctx, n_tasks, NULL);
}

void rvi_pool_set_stop(rvi_pool *pool, const atomic_bool *stop)
{
    pool->stop = stop;
}

void rvi_pool_set_rest(rvi_pool *pool, void (*rest)(void *ctx), void *ctx)
{
    pool->rest = rest;
    pool->rest_ctx = ctx;
}
