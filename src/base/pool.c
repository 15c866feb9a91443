/* Workers that wait for a job spin for a short time, because the next job of a token usually
 * follows within microseconds, and then wait on a condition variable, so that an idle engine costs
 * nothing.
 *
 * A job does not wait for a worker that the system has not scheduled: on a busy machine the others
 * may have done its share long before it runs. A worker enters a job while the job is open; the
 * owner closes it when no task is left and waits only for the workers that entered.
 *
 * A token is some hundred jobs of a few microseconds each, so the overhead of a job decides how
 * many threads pay off. If every worker changed one shared word on entering and leaving, the cost
 * of moving its cache line would grow with their number. Here only the owner writes the line that
 * all read, and each worker writes only its own line.
 *
 * Invariants:
 *  1. A worker marks itself as inside and then reads the gate; the owner closes the gate and then
 *     reads the marks. All four accesses are sequentially consistent, so at least one side sees the
 *     other: the owner waits for every worker that found the gate open. The writes are exchanges:
 *     x86 has the same instruction for both, and qemu lets a load pass a plain store of aarch64.
 *  2. The owner writes the job while the gate is closed and no worker is inside; workers read it
 *     only while inside.
 *  3. A share hands out each of its tasks exactly once. Its count belongs to the job it names; for
 *     any other job it is 0, so that the owner need not reset the shares.
 *  4. Threads work through their own shares, neighbouring tasks in order, and then through what is
 *     left of the others'. Where a share is a single task, only the owner looks for one that nobody
 *     has begun: looking costs every worker a turn at every line.
 *  5. The owner of a job is the thread whose ticket is being served. Tickets are drawn in order, so
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
    void (*pause)(void *ctx);
    void *pause_ctx;
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
        if (pool->pause) pool->pause(pool->pause_ctx);
        fn(ctx, i, 0);
    }
}

#else

#include <pthread.h>
#include <sched.h>
#include <stdalign.h>
#include <stdint.h>
#include <string.h>

enum { SPINS = 2000 };

/* The gate: the job's number, and in the lowest bits its shares; 0 of them: closed. The worker of
 * number i may enter a job of more than i shares; the others need not even look at it. */
enum { SHARE_BITS = 12, MAX_THREADS = 1024 };
static int shares_of(uint64_t gate)
{
    return (int)(gate & (((uint64_t)1 << SHARE_BITS) - 1));
}
static uint32_t tag_of(uint64_t gate)
{
    return (uint32_t)(gate >> SHARE_BITS);
}

/* Two cache lines, because some processors fetch lines in pairs. */
enum { LINES = 128 };

/* What one thread writes: on lines of its own. */
typedef struct worker {
    alignas(LINES) _Atomic uint64_t taken; /* of its share: tag of the job << 32 | tasks begun */
    atomic_bool inside;
    rvi_pool *pool;
    int index;
    pthread_t thread;
} worker;

/* Tasks first .. end - 1 */
typedef struct share {
    int first, end;
} share;

struct rvi_pool {
    int n_threads, n_started;
    worker *workers; /* n_threads; [0]: the owner's, without a thread */
    atomic_uint next_ticket, serving;
    atomic_int n_waiting; /* threads asleep until their ticket is served */
    pthread_cond_t served;
    const atomic_bool *stop;  /* of rvi_pool_run; may be NULL */
    void (*pause)(void *ctx); /* may be NULL */
    void *pause_ctx;
    alignas(LINES) _Atomic uint64_t gate;
    rvi_task_fn fn; /* the job */
    void *ctx;
    const atomic_bool *job_stop;
    int n_tasks;
    alignas(LINES) atomic_bool quit;
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

static share share_of(const rvi_pool *p, int i, int n_shares)
{
    int64_t n = p->n_tasks;
    return (share){(int)(n * i / n_shares), (int)(n * (i + 1) / n_shares)};
}

/* The next task of worker i's share, or -1 */
static int take(rvi_pool *p, int i, uint64_t gate)
{
    share s = share_of(p, i, shares_of(gate));
    uint64_t tag = tag_of(gate);
    _Atomic uint64_t *taken = &p->workers[i].taken;
    uint64_t old = atomic_load_explicit(taken, memory_order_relaxed);
    for (;;) {
        uint64_t n = old >> 32 == tag ? (uint32_t)old : 0;
        if (n >= (uint64_t)(s.end - s.first)) return -1;
        if (atomic_compare_exchange_weak(taken, &old, tag << 32 | (n + 1))) return s.first + (int)n;
    }
}

static void work(rvi_pool *p, int index, uint64_t gate)
{
    int n_shares = shares_of(gate);
    bool alone = index && p->n_tasks <= n_shares; /* with its own share */
    for (int i = 0; i < (alone ? 1 : n_shares); i++)
        for (int t; (t = take(p, (index + i) % n_shares, gate)) >= 0;) {
            if (is_stopped(p->job_stop)) return; /* the others see it too */
            if (p->pause) p->pause(p->pause_ctx);
            p->fn(p->ctx, t, index);
        }
}

/* May a worker that has seen `seen` enter? */
static bool is_for(const worker *w, uint64_t gate, uint64_t seen)
{
    return shares_of(gate) > w->index && gate != seen;
}

/* Goes inside if there is a job for this worker other than *seen, and sets that. */
static bool enter(worker *w, uint64_t *seen)
{
    (void)atomic_exchange(&w->inside, true);
    uint64_t gate = atomic_load(&w->pool->gate);
    if (is_for(w, gate, *seen)) {
        *seen = gate;
        return true;
    }
    atomic_store_explicit(&w->inside, false, memory_order_release);
    return false;
}

static void sleep_until_other(rvi_pool *p, uint64_t gate)
{
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add(&p->sleepers, 1);
    while (atomic_load(&p->gate) == gate && !atomic_load(&p->quit))
        pthread_cond_wait(&p->wake, &p->lock);
    atomic_fetch_sub(&p->sleepers, 1);
    pthread_mutex_unlock(&p->lock);
}

/* Waits for a job to enter. A worker that the jobs leave out stays awake while others work: the
 * next job may be larger. False: no more jobs. */
static bool await_job(worker *w, uint64_t seen)
{
    rvi_pool *p = w->pool;
    uint64_t gate = atomic_load(&p->gate), before = gate;
    for (unsigned spin = 0; !is_for(w, gate, seen) && !atomic_load(&p->quit); spin++) {
        if (gate != before) spin = 0;
        if (spin < SPINS)
            relax(spin);
        else
            sleep_until_other(p, gate);
        before = gate;
        gate = atomic_load(&p->gate);
    }
    return !atomic_load(&p->quit);
}

static void *worker_main(void *arg)
{
    worker *w = arg;
    uint64_t seen = 0;
    while (await_job(w, seen)) {
        if (!enter(w, &seen)) continue;
        work(w->pool, w->index, seen);
        atomic_store_explicit(&w->inside, false, memory_order_release);
    }
    return NULL;
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
    if (n_threads < 1 || n_threads > MAX_THREADS)
        return rvi_error(err, RV_E_CONFIG, "n_threads must be 1..%d (got %d)", MAX_THREADS,
                         n_threads);
    rvi_pool *p = rvi_alloc_aligned(sizeof *p, alignof(rvi_pool));
    if (!p) return rvi_nomem(err, "thread pool");
    memset(p, 0, sizeof *p);
    p->n_threads = n_threads;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    pthread_cond_init(&p->served, NULL);
    p->workers = rvi_alloc_aligned((size_t)n_threads * sizeof *p->workers, alignof(worker));
    if (!p->workers) {
        rvi_pool_free(p);
        return rvi_nomem(err, "thread pool");
    }
    memset(p->workers, 0, (size_t)n_threads * sizeof *p->workers);
    for (int i = 1; i < n_threads; i++) {
        worker *w = &p->workers[i];
        w->pool = p;
        w->index = i;
        if (rvi_thread_create(&w->thread, worker_main, w)) {
            rvi_pool_free(p);
            return rvi_error(err, RV_E_NOMEM, "cannot start thread %d of %d", i + 1, n_threads);
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
        (void)atomic_exchange(&p->quit, true);
        wake_sleepers(p);
        for (int i = 1; i <= p->n_started; i++) pthread_join(p->workers[i].thread, NULL);
    }
    pthread_cond_destroy(&p->wake);
    pthread_cond_destroy(&p->served);
    pthread_mutex_destroy(&p->lock);
    rvi_free(p->workers);
    rvi_free(p);
}

int rvi_pool_size(const rvi_pool *p)
{
    return p->n_threads;
}

/* The gate of a new job. Tags come again after 2^32 jobs: what shares remember is then wiped
 * out. */
static uint64_t next_gate(rvi_pool *p, int n_shares)
{
    const uint64_t one = (uint64_t)1 << SHARE_BITS;
    uint64_t gate = atomic_load_explicit(&p->gate, memory_order_relaxed) + one;
    if (!tag_of(gate)) {
        for (int i = 0; i < p->n_threads; i++) atomic_store(&p->workers[i].taken, 0);
        gate += one;
    }
    return gate + (uint64_t)n_shares;
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
    (void)atomic_exchange(&p->serving, ticket + 1);
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
    p->n_tasks = n_tasks;
    int n_shares = n_tasks < p->n_threads ? n_tasks : p->n_threads;
    uint64_t gate = next_gate(p, n_shares);
    (void)atomic_exchange(&p->gate, gate);
    wake_sleepers(p);
    work(p, 0, gate);
    (void)atomic_exchange(&p->gate, gate - (uint64_t)n_shares);
    for (int i = 1; i < n_shares; i++)
        for (unsigned spin = 0; atomic_load(&p->workers[i].inside); spin++) {
            if (p->pause) p->pause(p->pause_ctx); /* the workers pause too, so none spins */
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
            if (p->pause) p->pause(p->pause_ctx);
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

void rvi_pool_set_pause(rvi_pool *pool, void (*pause)(void *ctx), void *ctx)
{
    pool->pause = pause;
    pool->pause_ctx = ctx;
}
