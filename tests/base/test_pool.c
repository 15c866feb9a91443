/* The thread pool: every task runs exactly once, for any number of threads, and pools do not
 * disturb each other. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/pool.h"

enum { MAX_TASKS = 1000, MAX_THREADS = 8 };

typedef struct job {
    int n_threads;
    atomic_int runs[MAX_TASKS];     /* how often each task ran */
    atomic_int inside[MAX_THREADS]; /* tasks a worker is running now */
    atomic_int n_bad; /* wrong worker number, or one number used by two threads at once */
} job;

static void count_task(void *ctx, int task, int worker)
{
    job *j = ctx;
    if (worker < 0 || worker >= j->n_threads) {
        atomic_fetch_add(&j->n_bad, 1);
        return;
    }
    if (atomic_fetch_add(&j->inside[worker], 1) != 0) atomic_fetch_add(&j->n_bad, 1);
    atomic_fetch_add(&j->runs[task], 1);
    atomic_fetch_sub(&j->inside[worker], 1);
}

static void test_every_task_once(void **state)
{
    (void)state;
    static const int counts[] = {0, 1, 2, 3, 4, 5, 7, 64, 999, MAX_TASKS};
    for (int n_threads = 1; n_threads <= 4; n_threads++) {
        rvi_pool *pool;
        assert_int_equal(rvi_pool_new(&pool, n_threads, NULL), RV_OK);
        assert_int_equal(rvi_pool_size(pool), n_threads);
        for (int round = 0; round < 20; round++)
            for (size_t c = 0; c < RVI_COUNT(counts); c++) {
                job *j = rvi_zalloc(sizeof *j);
                assert_non_null(j);
                j->n_threads = n_threads;
                rvi_pool_run(pool, count_task, j, counts[c]);
                for (int t = 0; t < MAX_TASKS; t++)
                    assert_int_equal(atomic_load(&j->runs[t]), t < counts[c]);
                assert_int_equal(atomic_load(&j->n_bad), 0);
                rvi_free(j);
            }
        rvi_pool_free(pool);
    }
}

/* A job of few tasks calls on as many threads and leaves the others alone: each that takes part
 * costs a small job more than it brings. */
static void note_worker(void *ctx, int task, int worker)
{
    atomic_int *highest = ctx;
    int seen = atomic_load(highest);
    (void)task;
    while (worker > seen && !atomic_compare_exchange_weak(highest, &seen, worker)) {
    }
    for (volatile int i = 0; i < 2000; i++) {
    } /* so that others would come in time */
}

static void test_few_tasks_call_few_threads(void **state)
{
    (void)state;
    rvi_pool *pool;
    assert_int_equal(rvi_pool_new(&pool, MAX_THREADS, NULL), RV_OK);
    for (int n_tasks = 2; n_tasks <= 4; n_tasks++) {
        atomic_int highest = 0;
        for (int i = 0; i < 5000; i++) rvi_pool_run(pool, note_worker, &highest, n_tasks);
        assert_in_range(atomic_load(&highest), 0, n_tasks - 1);
    }
    rvi_pool_free(pool);
}

/* Jobs of all sizes in turn: whoever was left out of one takes part in the next. */
static void test_sizes_in_turn(void **state)
{
    (void)state;
    rvi_pool *pool;
    job *j = rvi_zalloc(sizeof *j);
    assert_non_null(j);
    assert_int_equal(rvi_pool_new(&pool, MAX_THREADS, NULL), RV_OK);
    j->n_threads = MAX_THREADS;
    enum { ROUNDS = 500 };
    for (int i = 0; i < ROUNDS; i++)
        for (int n = 1; n <= 2 * MAX_THREADS; n++) rvi_pool_run(pool, count_task, j, n);
    for (int t = 0; t < 2 * MAX_THREADS; t++)
        assert_int_equal(atomic_load(&j->runs[t]), ROUNDS * (2 * MAX_THREADS - t));
    assert_int_equal(atomic_load(&j->n_bad), 0);
    rvi_pool_free(pool);
    rvi_free(j);
}

/* What tasks wrote is seen by the owner without further care, and what the owner wrote before by
 * the tasks. */
typedef struct sums {
    uint64_t scale, in[16], out[16]; /* plain memory: a race would be seen by a thread sanitizer */
} sums;

static void scale_one(void *ctx, int task, int worker)
{
    sums *s = ctx;
    (void)worker;
    s->out[task] = s->in[task] * s->scale;
}

static void run_small_jobs(rvi_pool *pool, int n_jobs)
{
    sums s = {0};
    for (int i = 0; i < n_jobs; i++) {
        int n = 2 + i % 15;
        s.scale = (uint64_t)i + 1;
        for (int t = 0; t < n; t++) s.in[t] = (uint64_t)(t + i);
        rvi_pool_run(pool, scale_one, &s, n);
        for (int t = 0; t < n; t++)
            if (s.out[t] != (uint64_t)(t + i) * s.scale) fail_msg("job %d, task %d", i, t);
    }
}

static void test_many_small_jobs(void **state)
{
    (void)state;
    rvi_pool *pool;
    assert_int_equal(rvi_pool_new(&pool, 2, NULL), RV_OK);
    run_small_jobs(pool, 100000);
    rvi_pool_free(pool);
    assert_int_equal(rvi_pool_new(&pool, 4, NULL), RV_OK);
    run_small_jobs(pool, 5000);
    rvi_pool_free(pool);
}

/* Workers that went to sleep wake up again. */
static void test_pauses(void **state)
{
    (void)state;
    rvi_pool *pool;
    assert_int_equal(rvi_pool_new(&pool, 3, NULL), RV_OK);
    for (int i = 0; i < 20; i++) {
        usleep(5000);
        run_small_jobs(pool, 3);
    }
    usleep(20000); /* freed while all of them sleep */
    rvi_pool_free(pool);
}

static void *own_pool(void *arg)
{
    int *n_threads = arg;
    sums s = {.scale = 3};
    rvi_pool *pool;
    if (rvi_pool_new(&pool, *n_threads, NULL)) return arg;
    for (int i = 0; i < 5000; i++) {
        for (int t = 0; t < 16; t++) s.in[t] = (uint64_t)(i * t);
        rvi_pool_run(pool, scale_one, &s, 16);
        for (int t = 0; t < 16; t++)
            if (s.out[t] != (uint64_t)(i * t) * 3) return arg;
    }
    rvi_pool_free(pool);
    return NULL;
}

static void test_two_pools_at_once(void **state)
{
    (void)state;
    int sizes[2] = {2, 3};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, own_pool, &sizes[i]), 0);
    for (int i = 0; i < 2; i++) {
        void *bad = &sizes;
        assert_int_equal(pthread_join(threads[i], &bad), 0);
        assert_null(bad);
    }
}

/* ---- several threads, one pool ---- */

typedef struct submitter {
    rvi_pool *pool;
    int n_jobs, n_submitted;       /* n_jobs 0: until the others are done */
    atomic_int *n_left;            /* submitters with a number of jobs that are not done */
    uint64_t *n_running, *n_worst; /* jobs running now, and most at once: plain memory, the pool's
                                       turns are all that guards it */
    int n_bad;
} submitter;

static void note_task(void *ctx, int task, int worker)
{
    submitter *s = ctx;
    (void)worker;
    if (task) return;
    if (++*s->n_running > *s->n_worst) *s->n_worst = *s->n_running;
    --*s->n_running;
}

static void *submit_jobs(void *arg)
{
    submitter *s = arg;
    sums v = {0};
    while (s->n_jobs ? s->n_submitted < s->n_jobs : atomic_load(s->n_left) > 0) {
        int n = 1 + s->n_submitted % 16; /* jobs of one task run on the submitter alone */
        v.scale = (uint64_t)s->n_submitted + 3;
        for (int t = 0; t < n; t++) v.in[t] = (uint64_t)(t * 5 + s->n_submitted);
        rvi_pool_run_all(s->pool, scale_one, &v, n);
        for (int t = 0; t < n; t++) s->n_bad += v.out[t] != v.in[t] * v.scale;
        rvi_pool_run_all(s->pool, note_task, s, n);
        s->n_submitted++;
    }
    if (s->n_jobs) atomic_fetch_sub(s->n_left, 1);
    return NULL;
}

/* Threads that submit without a pause do not shut out those that submit now and then: two of them
 * go on until the others have had all their turns. */
static void test_threads_take_turns(void **state)
{
    (void)state;
    enum { N = 4 };
    for (int n_threads = 1; n_threads <= 3; n_threads++) {
        rvi_pool *pool;
        pthread_t threads[N];
        submitter s[N];
        atomic_int n_left = 2;
        uint64_t n_running = 0, n_worst = 0;
        assert_int_equal(rvi_pool_new(&pool, n_threads, NULL), RV_OK);
        for (int i = 0; i < N; i++)
            s[i] = (submitter){.pool = pool,
                               .n_jobs = i < 2 ? 300 : 0,
                               .n_left = &n_left,
                               .n_running = &n_running,
                               .n_worst = &n_worst};
        for (int i = 0; i < N; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, submit_jobs, &s[i]), 0);
        for (int i = 0; i < N; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
        for (int i = 0; i < N; i++) assert_int_equal(s[i].n_bad, 0);
        assert_int_equal(n_worst, 1);
        rvi_pool_free(pool);
    }
}

/* ---- stopping ---- */

typedef struct stopping {
    atomic_bool stop;
    atomic_int n_run;
    int stop_at;
} stopping;

static void stop_task(void *ctx, int task, int worker)
{
    stopping *s = ctx;
    (void)task;
    (void)worker;
    if (atomic_fetch_add(&s->n_run, 1) + 1 == s->stop_at) atomic_store(&s->stop, true);
}

static void test_stop(void **state)
{
    (void)state;
    for (int n_threads = 1; n_threads <= 3; n_threads++) {
        rvi_pool *pool;
        stopping s = {.stop_at = 10};
        assert_int_equal(rvi_pool_new(&pool, n_threads, NULL), RV_OK);
        rvi_pool_set_stop(pool, &s.stop);
        rvi_pool_run(pool, stop_task, &s, MAX_TASKS);
        /* every other thread may have been between its look at `stop` and its task */
        assert_in_range(atomic_load(&s.n_run), 10, 10 + n_threads - 1);
        atomic_store(&s.n_run, 20);
        rvi_pool_run(pool, stop_task, &s, MAX_TASKS);
        rvi_pool_run(pool, stop_task, &s, 1);
        assert_int_equal(atomic_load(&s.n_run), 20);
        rvi_pool_run_all(pool, stop_task, &s, MAX_TASKS); /* of a thread that is not meant */
        assert_int_equal(atomic_load(&s.n_run), 20 + MAX_TASKS);
        atomic_store(&s.stop, false);
        rvi_pool_run(pool, stop_task, &s, 7);
        assert_int_equal(atomic_load(&s.n_run), 27 + MAX_TASKS);
        rvi_pool_free(pool);
    }
}

static void test_new_and_free(void **state)
{
    (void)state;
    rv_error err = {0};
    rvi_pool *pool;
    static const int bad[] = {0, -1, 1025, INT32_MIN};
    for (size_t i = 0; i < RVI_COUNT(bad); i++) {
        pool = (rvi_pool *)&err;
        assert_int_equal(rvi_pool_new(&pool, bad[i], &err), RV_E_CONFIG);
        assert_null(pool);
    }
    for (int i = 0; i < 50; i++) { /* freed at once, without a job */
        assert_int_equal(rvi_pool_new(&pool, 1 + i % 5, NULL), RV_OK);
        rvi_pool_free(pool);
    }
    rvi_pool_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_task_once),
        cmocka_unit_test(test_few_tasks_call_few_threads),
        cmocka_unit_test(test_sizes_in_turn),
        cmocka_unit_test(test_many_small_jobs),
        cmocka_unit_test(test_pauses),
        cmocka_unit_test(test_two_pools_at_once),
        cmocka_unit_test(test_threads_take_turns),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_new_and_free),
    };
    return cmocka_run_group_tests_name("pool", tests, NULL, NULL);
}
