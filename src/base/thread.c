#include "base/thread.h"

#include "base/mem.h"

#if defined(RVI_NO_THREADS)

rv_status rvi_thread_start(rvi_thread **out, void (*fn)(void *ctx), void *ctx, bool idle,
                           rv_error *err)
{
    (void)fn;
    (void)ctx;
    (void)idle;
    *out = NULL;
    return rvi_error(err, RV_E_UNSUPPORTED, "this build has no threads");
}

void rvi_thread_join(rvi_thread *t)
{
    (void)t;
}

void rvi_thread_detach(rvi_thread *t)
{
    (void)t;
}

void rvi_thread_hurry(void)
{
}

void rvi_thread_be_ordinary(void)
{
}

void rvi_thread_sleep(double seconds)
{
    (void)seconds;
}

struct rvi_lock {
    int unused;
};

rv_status rvi_lock_new(rvi_lock **out, rv_error *err)
{
    *out = rvi_zalloc(sizeof **out);
    return *out ? RV_OK : rvi_nomem(err, "lock");
}

void rvi_lock_free(rvi_lock *l)
{
    rvi_free(l);
}

void rvi_lock_take(rvi_lock *l)
{
    (void)l;
}

void rvi_lock_give(rvi_lock *l)
{
    (void)l;
}

rv_status rvi_wakeup_new(rvi_wakeup **out, rv_error *err)
{
    *out = NULL;
    return rvi_error(err, RV_E_UNSUPPORTED, "this build has no threads");
}

void rvi_wakeup_free(rvi_wakeup *w)
{
    (void)w;
}

void rvi_wakeup_post(rvi_wakeup *w)
{
    (void)w;
}

bool rvi_wakeup_wait(rvi_wakeup *w, double seconds)
{
    (void)w;
    (void)seconds;
    return false;
}

#else

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/syscall.h>
#endif

struct rvi_thread {
    atomic_int users; /* the thread itself, and its handle */
    pthread_t thread;
    void (*fn)(void *ctx);
    void *ctx;
    bool idle;
};

int rvi_thread_create(pthread_t *out, void *(*fn)(void *ctx), void *ctx)
{
    static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGPROF};
    sigset_t others, before;
    (void)sigfillset(&others);
    for (size_t i = 0; i < RVI_COUNT(own); i++) (void)sigdelset(&others, own[i]);
    (void)pthread_sigmask(SIG_BLOCK, &others, &before); /* a thread begins with its maker's */
    int code = pthread_create(out, NULL, fn, ctx);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return code;
}

static void release(rvi_thread *t)
{
    if (atomic_fetch_sub(&t->users, 1) == 1) rvi_free(t);
}

#if defined(SCHED_IDLE) && defined(SYS_getdents64)
/* The system's own call: a directory stream would allocate, which a signal handler must not. */
void rvi_thread_hurry(void)
{
    enum { NAME_AT = 19 }; /* after inode, offset, length of the entry and type */
    alignas(uint64_t) char entries[4096];
    struct sched_param none = {0};
    int before = errno, dir = open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (long n; dir >= 0 && (n = syscall(SYS_getdents64, dir, entries, sizeof entries)) > 0;) {
        uint16_t length;
        for (const char *e = entries; e < entries + n; e += length) {
            pid_t id = 0;
            memcpy(&length, e + NAME_AT - 3, sizeof length);
            for (const char *d = e + NAME_AT; *d >= '0' && *d <= '9'; d++) id = id * 10 + *d - '0';
            if (id && sched_getscheduler(id) == SCHED_IDLE)
                (void)sched_setscheduler(id, SCHED_OTHER, &none);
        }
    }
    if (dir >= 0) (void)close(dir);
    errno = before;
}
#else
void rvi_thread_hurry(void)
{
}
#endif

void rvi_thread_be_ordinary(void)
{
#ifdef SCHED_IDLE
    struct sched_param none = {0};
    if (sched_getscheduler(0) == SCHED_IDLE)
        (void)pthread_setschedparam(pthread_self(), SCHED_OTHER, &none);
#endif
}

static void *thread_main(void *arg)
{
    rvi_thread *t = arg;
#ifdef SCHED_IDLE
    /* Refused by some containers: then it runs like any other. */
    struct sched_param none = {0};
    if (t->idle) (void)pthread_setschedparam(pthread_self(), SCHED_IDLE, &none);
#endif
    t->fn(t->ctx);
    release(t);
    return NULL;
}

rv_status rvi_thread_start(rvi_thread **out, void (*fn)(void *ctx), void *ctx, bool idle,
                           rv_error *err)
{
    *out = NULL;
    /* Not from the caller's allocator: a detached thread may outlive the object that has it. */
    const rv_allocator *heap = rvi_mem_use(NULL);
    rvi_thread *t = rvi_zalloc(sizeof *t);
    (void)rvi_mem_use(heap);
    if (!t) return rvi_nomem(err, "thread");
    t->fn = fn;
    t->ctx = ctx;
    t->idle = idle;
    atomic_init(&t->users, 2);
    if (rvi_thread_create(&t->thread, thread_main, t)) {
        rvi_free(t);
        return rvi_error(err, RV_E_NOMEM, "cannot start a thread");
    }
    *out = t;
    return RV_OK;
}

void rvi_thread_join(rvi_thread *t)
{
    if (!t) return;
    pthread_join(t->thread, NULL);
    release(t);
}

void rvi_thread_detach(rvi_thread *t)
{
    if (!t) return;
    pthread_detach(t->thread);
    release(t);
}

static struct timespec timespec_of(double seconds)
{
    double whole = floor(seconds);
    return (struct timespec){(time_t)whole, (long)((seconds - whole) * 1e9)};
}

void rvi_thread_sleep(double seconds)
{
    struct timespec t = timespec_of(seconds);
    while (nanosleep(&t, &t) && errno == EINTR) {
    }
}

struct rvi_lock {
    pthread_mutex_t mutex;
};

rv_status rvi_lock_new(rvi_lock **out, rv_error *err)
{
    *out = rvi_zalloc(sizeof **out);
    if (!*out) return rvi_nomem(err, "lock");
    pthread_mutex_init(&(*out)->mutex, NULL);
    return RV_OK;
}

void rvi_lock_free(rvi_lock *l)
{
    if (!l) return;
    pthread_mutex_destroy(&l->mutex);
    rvi_free(l);
}

void rvi_lock_take(rvi_lock *l)
{
    pthread_mutex_lock(&l->mutex);
}

void rvi_lock_give(rvi_lock *l)
{
    pthread_mutex_unlock(&l->mutex);
}

struct rvi_wakeup {
    pthread_mutex_t lock;
    pthread_cond_t posted;
    bool is_posted;
};

rv_status rvi_wakeup_new(rvi_wakeup **out, rv_error *err)
{
    *out = rvi_zalloc(sizeof **out);
    if (!*out) return rvi_nomem(err, "wakeup");
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&(*out)->lock, NULL);
    pthread_cond_init(&(*out)->posted, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return RV_OK;
}

void rvi_wakeup_free(rvi_wakeup *w)
{
    if (!w) return;
    pthread_cond_destroy(&w->posted);
    pthread_mutex_destroy(&w->lock);
    rvi_free(w);
}

void rvi_wakeup_post(rvi_wakeup *w)
{
    pthread_mutex_lock(&w->lock);
    w->is_posted = true;
    pthread_cond_signal(&w->posted);
    pthread_mutex_unlock(&w->lock);
}

bool rvi_wakeup_wait(rvi_wakeup *w, double seconds)
{
    struct timespec now, until = {0};
    int gone = 0;
    if (seconds > 0) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        until = timespec_of((double)now.tv_sec + 1e-9 * (double)now.tv_nsec + seconds);
    }
    pthread_mutex_lock(&w->lock);
    while (!w->is_posted && !gone)
        gone = seconds > 0 ? pthread_cond_timedwait(&w->posted, &w->lock, &until)
                           : pthread_cond_wait(&w->posted, &w->lock);
    bool posted = w->is_posted;
    w->is_posted = false;
    pthread_mutex_unlock(&w->lock);
    return posted;
}

#endif
