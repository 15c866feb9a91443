#include "base/guard.h"

#ifndef __wasi__ /* which maps no files */

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/compat.h"

enum { MOST = 1024, MOST_BEFORE = 16 };

/* A slot belongs to whoever set `taken`; the handler looks at `from`, which is set last. */
typedef struct slot {
    atomic_bool taken, lost;
    atomic_uintptr_t from; /* 0: nothing here */
    atomic_size_t len;
} slot;

static slot slots[MOST];
static atomic_int n_used; /* slots from here on were never taken */
static uintptr_t page_bytes;

/* The handlers that ours took the place of, the newest last; an entry never changes. */
static struct sigaction before[MOST_BEFORE];
static atomic_int n_before;
static pthread_mutex_t installing = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local struct {
    void *context, *at;
    int n;
} passing; /* the fault that was handed on last, and how often */

/* True: the page at this address, and all behind it, are zeros now. */
static bool put_zeros(uintptr_t at)
{
    for (int i = 0, n = atomic_load(&n_used); i < n; i++) {
        uintptr_t from = atomic_load(&slots[i].from), page = at / page_bytes * page_bytes;
        size_t len = atomic_load(&slots[i].len);
        if (!from || at < from || at - from >= len) continue;
        atomic_store(&slots[i].lost, true);
        /* a place that is mapped: the number is an address of it */
        return mmap((void *)page, from + len - page, PROT_READ,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED;
    }
    return false;
}

/* Not ours: to whom it was before. A handler that was installed after ours may hand the same fault
 * back to us: after a few rounds it is the system's. */
static void pass_on(int number, siginfo_t *info, void *context)
{
    enum { ROUNDS = 8 };
    const struct sigaction *old = &before[atomic_load(&n_before) - 1];
    passing.n = passing.context == context && passing.at == info->si_addr ? passing.n + 1 : 0;
    passing.context = context;
    passing.at = info->si_addr;
    if (passing.n < ROUNDS && old->sa_flags & SA_SIGINFO)
        old->sa_sigaction(number, info, context);
    else if (passing.n < ROUNDS && old->sa_handler != SIG_DFL && old->sa_handler != SIG_IGN)
        old->sa_handler(number);
    else
        (void)signal(number, SIG_DFL); /* the fault comes again, and ends the process */
}

static void on_fault(int number, siginfo_t *info, void *context)
{
    int code = errno;
    if (!put_zeros((uintptr_t)info->si_addr)) pass_on(number, info, context);
    errno = code;
}

/* Again with every range: the program may have put a handler of its own in its place since. */
static void install(void)
{
    struct sigaction now;
    pthread_mutex_lock(&installing);
    int n = atomic_load(&n_before);
    if (!page_bytes) page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    if (n < MOST_BEFORE && !sigaction(SIGBUS, NULL, &now) &&
        !(now.sa_flags & SA_SIGINFO && now.sa_sigaction == on_fault)) {
        struct sigaction own = {.sa_flags = SA_SIGINFO | SA_ONSTACK};
        own.sa_sigaction = on_fault;
        (void)sigemptyset(&own.sa_mask);
        before[n] = now;
        atomic_store(&n_before, n + 1);
        (void)sigaction(SIGBUS, &own, NULL);
    }
    pthread_mutex_unlock(&installing);
}

void rvi_guard_each(void (*each)(void *ctx, const void *from, size_t len), void *ctx)
{
    for (int i = 0, n = atomic_load(&n_used); i < n; i++) {
        uintptr_t from = atomic_load(&slots[i].from);
        if (from) each(ctx, (const void *)from, atomic_load(&slots[i].len));
    }
}

int rvi_guard_add(const void *mapping, size_t len)
{
    install();
    for (int i = 0; i < MOST; i++) {
        bool free_one = false;
        if (!atomic_compare_exchange_strong(&slots[i].taken, &free_one, true)) continue;
        for (int n = atomic_load(&n_used);
             n <= i && !atomic_compare_exchange_weak(&n_used, &n, i + 1);) {
        }
        atomic_store(&slots[i].lost, false);
        atomic_store(&slots[i].len, len);
        atomic_store(&slots[i].from, (uintptr_t)mapping);
        return i + 1;
    }
    return 0;
}

void rvi_guard_remove(int guard)
{
    if (!guard) return;
    atomic_store(&slots[guard - 1].from, 0);
    atomic_store(&slots[guard - 1].taken, false);
}

bool rvi_guard_is_lost(int guard)
{
    return guard && atomic_load(&slots[guard - 1].lost);
}

#else

int rvi_guard_add(const void *mapping, size_t len)
{
    (void)mapping;
    (void)len;
    return 0;
}

void rvi_guard_remove(int guard)
{
    (void)guard;
}

void rvi_guard_each(void (*each)(void *ctx, const void *from, size_t len), void *ctx)
{
    (void)each;
    (void)ctx;
}

bool rvi_guard_is_lost(int guard)
{
    (void)guard;
    return false;
}

#endif
