/* Threads and wakeups: a post ends one wait, also when it came before the wait; and a pool calls
 * its pause function before every task. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/interrupt.h"
#include "base/os.h"
#include "base/pool.h"
#include "base/thread.h"
#include "harness/amount.h"
#include "harness/assert_ok.h"

typedef struct talk {
    rvi_wakeup *question, *answer;
    atomic_int n;
} talk;

static void echo(void *ctx)
{
    talk *t = ctx;
    for (int i = 0; i < 100; i++) {
        rvi_wakeup_wait(t->question, 0);
        atomic_fetch_add(&t->n, 1);
        rvi_wakeup_post(t->answer);
    }
}

static void wakeups(void **state)
{
    (void)state;
    for (int idle = 0; idle < 2; idle++) {
        talk t = {0};
        rvi_thread *thread;
        assert_ok(rvi_wakeup_new(&t.question, err));
        assert_ok(rvi_wakeup_new(&t.answer, err));
        rvi_wakeup_post(t.question); /* before any thread waits */
        rvi_wakeup_post(t.question);
        assert_ok(rvi_thread_start(&thread, echo, &t, idle, err));
        rvi_wakeup_wait(t.answer, 0);
        for (int i = 1; i < 100; i++) {
            assert_int_equal(atomic_load(&t.n), i); /* twice is as good as once */
            rvi_wakeup_post(t.question);
            rvi_wakeup_wait(t.answer, 0);
        }
        rvi_thread_join(thread);
        assert_int_equal(atomic_load(&t.n), 100);
        double start = rvi_os_seconds();
        rvi_wakeup_wait(t.answer, 0.02); /* nobody posts */
        assert_true(rvi_os_seconds() - start >= 0.019);
        rvi_wakeup_free(t.question);
        rvi_wakeup_free(t.answer);
    }
    rvi_thread_join(NULL);
    rvi_wakeup_free(NULL);
}

static void count_pause(void *ctx)
{
    atomic_fetch_add((atomic_int *)ctx, 1);
}

static void work(void *ctx, int task, int worker)
{
    (void)task;
    (void)worker;
    atomic_fetch_add((atomic_int *)ctx, 1);
}

static void pools_pause(void **state)
{
    (void)state;
    for (int n_threads = 1; n_threads < 4; n_threads++) {
        rvi_pool *p;
        atomic_int n = 0;
        atomic_int pauses = 0;
        assert_ok(rvi_pool_new(&p, n_threads, err));
        rvi_pool_set_pause(p, count_pause, &pauses);
        for (int i = 0; i < 20; i++) rvi_pool_run(p, work, &n, i);
        assert_true(atomic_load(&pauses) >=
                    190); /* before every task, and while waiting for others */
        assert_int_equal(atomic_load(&n), 190);
        int before = atomic_load(&pauses);
        rvi_pool_set_pause(p, NULL, NULL);
        rvi_pool_run(p, work, &n, 5);
        assert_int_equal(atomic_load(&pauses), before);
        rvi_pool_free(p);
    }
}

typedef struct stopped_run {
    atomic_bool stop;
    atomic_int n;
    int after; /* tasks, then it is set */
} stopped_run;

static void work_then_stop(void *ctx, int task, int worker)
{
    stopped_run *r = ctx;
    (void)task;
    (void)worker;
    if (atomic_fetch_add(&r->n, 1) + 1 == r->after) atomic_store(&r->stop, true);
}

/* Of the tasks that had not begun when it was set none runs, in this job and all later ones. */
static void pools_stop(void **state)
{
    enum { TASKS = 1000, AFTER = 10 };
    (void)state;
    for (int n_threads = 1; n_threads < 4; n_threads++) {
        rvi_pool *p;
        stopped_run r = {.after = AFTER};
        atomic_init(&r.stop, false);
        assert_ok(rvi_pool_new(&p, n_threads, err));
        rvi_pool_set_stop(p, &r.stop);
        rvi_pool_run(p, work_then_stop, &r, TASKS);
        int n = atomic_load(&r.n);
        assert_in_range(n, AFTER, AFTER + n_threads - 1); /* one may be under way on each other */
        rvi_pool_run(p, work_then_stop, &r, TASKS);
        rvi_pool_run(p, work_then_stop, &r, 1);
        assert_int_equal(atomic_load(&r.n), n);
        rvi_pool_free(p);
    }
}

static void end(void *ctx)
{
    rvi_wakeup_post(ctx);
}

/* A detached thread runs to its end although nobody waits for it. */
static void threads_detach(void **state)
{
    static rvi_wakeup *b; /* stays: the last thread may not have let go of it at the end */
    rvi_thread *t;
    (void)state;
    assert_ok(rvi_wakeup_new(&b, err));
    for (int i = 0; i < 20; i++) {
        assert_ok(rvi_thread_start(&t, end, b, i % 2, err));
        rvi_thread_detach(t);
        rvi_wakeup_wait(b, 0);
    }
    rvi_thread_detach(NULL);
}

static void tell_policy(void *ctx)
{
    talk *t = ctx;
    rvi_wakeup_post(t->question);
    rvi_wakeup_wait(t->answer, 0);
    atomic_store(&t->n, sched_getscheduler(0));
}

static void threads_hurry(void **state)
{
    talk t = {0};
    rvi_thread *thread;
    (void)state;
    assert_ok(rvi_wakeup_new(&t.question, err));
    assert_ok(rvi_wakeup_new(&t.answer, err));
    assert_ok(rvi_thread_start(&thread, tell_policy, &t, true, err));
    rvi_wakeup_wait(t.question, 0);
    rvi_thread_hurry();
    rvi_wakeup_post(t.answer);
    rvi_thread_join(thread);
    rvi_wakeup_free(t.question);
    rvi_wakeup_free(t.answer);
    int policy = atomic_load(&t.n);
    assert_true(policy == SCHED_OTHER || policy == SCHED_IDLE); /* where that is not allowed */
    if (!geteuid()) assert_int_equal(policy, SCHED_OTHER);
}

static void stay_idle(void *ctx)
{
    rvi_wakeup_post(ctx);
    for (;;) pause();
}

/* The child blocks in the last write of leaving, because the pipe is full. */
static void leave_with_idle_thread(int full, int idle, rvi_wakeup *begun)
{
    rvi_thread *t;
    rv_error err;
    char filler[4096] = {0};
    if (fcntl(full, F_SETFL, O_NONBLOCK)) _exit(1);
    while (write(full, filler, sizeof filler) > 0) {
    }
    if (fcntl(full, F_SETFL, 0) || dup2(full, STDOUT_FILENO) < 0 || dup2(full, STDERR_FILENO) < 0)
        _exit(1);
    if (rvi_thread_start(&t, stay_idle, begun, true, &err)) _exit(1);
    rvi_wakeup_wait(begun, 0);
    close(idle);
    rvi_interrupt_leave(7, "last words");
}

typedef struct tasks {
    long process; /* threads other than this one are counted */
    int n_idle, n_others;
} tasks;

static int count_task(void *ctx, const char *name)
{
    tasks *t = ctx;
    long id = strtol(name, NULL, 10);
    if (id == t->process) return 0;
    *(sched_getscheduler((pid_t)id) == SCHED_IDLE ? &t->n_idle : &t->n_others) += 1;
    return 0;
}

/* Who leaves makes idle threads ordinary ones before it says its last words. */
static void leaving_hurries(void **state)
{
    (void)state;
    if (geteuid()) skip(); /* the system may not allow it */
    int ends[2], idle[2], status;
    rvi_wakeup *begun;
    char dir[64], seen[4096];
    assert_ok(rvi_wakeup_new(&begun, err));
    assert_int_equal(pipe(ends) || pipe(idle), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        close(ends[0]); /* so that it ends with its parent */
        leave_with_idle_thread(ends[1], idle[1], begun);
    }
    close(idle[1]);
    assert_int_equal(read(idle[0], seen, 1), 0); /* until its thread is idle */
    close(idle[0]);
    snprintf(dir, sizeof dir, "/proc/%ld/task", (long)child);
    tasks now = {.n_idle = 1};
    for (int i = 0; i < 3000 && now.n_idle; i++) {
        rvi_thread_sleep(1e-2);
        now = (tasks){.process = child};
        assert_ok(rvi_os_list(dir, count_task, &now, err));
    }
    assert_int_equal(now.n_idle, 0);
    assert_true(now.n_others > 0); /* a sanitizer has threads of its own */
    close(ends[1]);
    while (read(ends[0], seen, sizeof seen) > 0) {
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    close(ends[0]);
    rvi_wakeup_free(begun);
}

typedef struct tally {
    rvi_lock *lock;
    int n; /* guarded by it */
} tally;

static void add_many(void *ctx)
{
    tally *t = ctx;
    for (int i = 0; i < 20000; i++) {
        rvi_lock_take(t->lock);
        t->n++;
        rvi_lock_give(t->lock);
    }
}

static void locks_exclude(void **state)
{
    tally t = {0};
    rvi_thread *threads[3];
    (void)state;
    assert_ok(rvi_lock_new(&t.lock, err));
    for (int i = 0; i < 3; i++) assert_ok(rvi_thread_start(&threads[i], add_many, &t, false, err));
    for (int i = 0; i < 3; i++) rvi_thread_join(threads[i]);
    assert_int_equal(t.n, 60000);
    rvi_lock_free(t.lock);
    rvi_lock_free(NULL);
}

static atomic_int n_caught;

static void count_signal(int number)
{
    (void)number;
    atomic_fetch_add(&n_caught, 1);
}

static void nothing(void *ctx)
{
    (void)ctx;
}

/* A signal that its program blocks for a moment waits for it, and is not taken by a thread that has
 * just begun. */
static void threads_take_no_signals(void **state)
{
    enum { ROUNDS = AMOUNT(500, 50) };
    struct sigaction action = {.sa_handler = count_signal}, old;
    sigset_t one, before, pending;
    (void)state;
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    assert_int_equal(sigaction(SIGUSR1, &action, &old), 0);
    for (int i = 0; i < ROUNDS; i++) {
        rvi_thread *t = NULL;
        rvi_pool *p = NULL;
        if (i % 2)
            assert_ok(rvi_pool_new(&p, 2, err));
        else
            assert_ok(rvi_thread_start(&t, nothing, NULL, i % 4 == 0, err));
        pthread_sigmask(SIG_BLOCK, &one, &before);
        kill(getpid(), SIGUSR1);
        assert_int_equal(sigpending(&pending), 0);
        assert_int_equal(sigismember(&pending, SIGUSR1), 1);
        rvi_thread_join(t);
        rvi_pool_free(p);
        assert_int_equal(atomic_load(&n_caught), i);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        assert_int_equal(atomic_load(&n_caught), i + 1);
    }
    sigaction(SIGUSR1, &old, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wakeups),       cmocka_unit_test(pools_pause),
        cmocka_unit_test(pools_stop),    cmocka_unit_test(threads_detach),
        cmocka_unit_test(threads_hurry), cmocka_unit_test(leaving_hurries),
        cmocka_unit_test(locks_exclude), cmocka_unit_test(threads_take_no_signals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
