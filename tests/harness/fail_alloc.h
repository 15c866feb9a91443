/* fail_alloc.h - makes the n-th allocation fail.
 *
 * For a test program linked with
 * -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=aligned_alloc,--wrap=mmap; include it
 * in one file of the program. Calls from the program and the static library count; those inside
 * libc and cmocka do not. The usual sweep:
 *
 *     for (long n = 0;; n++) {
 *         fail_alloc_after(n);
 *         rv_status st = thing_open(&thing, ...);
 *         bool done = !fail_alloc_off();     // true when no call was refused
 *         ...                                // done: st must be RV_OK; otherwise RV_E_NOMEM, and
 *                                            nothing may leak
 *         if (done) break;
 *     } */
#ifndef TESTS_HARNESS_FAIL_ALLOC_H
#define TESTS_HARNESS_FAIL_ALLOC_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#ifdef __linux__
#include <sys/mman.h>
#endif

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void *__real_aligned_alloc(size_t align, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap_aligned_alloc(size_t align, size_t size);
#ifdef __linux__
void *__real_mmap(void *at, size_t len, int prot, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t len, int prot, int flags, int fd, off_t offset);
#endif

static atomic_long fail_alloc_calls, fail_alloc_refused;
static atomic_long fail_alloc_first = -1,
                   fail_alloc_last = -1; /* the calls to refuse; first -1: none */

static inline void fail_alloc_arm(long first, long last)
{
    atomic_store(&fail_alloc_calls, 0);
    atomic_store(&fail_alloc_refused, 0);
    atomic_store(&fail_alloc_last, last);
    atomic_store(&fail_alloc_first, first);
}

/* The next n calls succeed, and all later ones fail. */
static inline void fail_alloc_after(long n)
{
    fail_alloc_arm(n, (long)(~0UL >> 1));
}

/* The next n calls succeed, one fails, and the rest succeeds again. */
static inline void fail_alloc_once(long n)
{
    fail_alloc_arm(n, n);
}

/* Back to normal. True if a call was refused since it was armed. */
static inline bool fail_alloc_off(void)
{
    atomic_store(&fail_alloc_first, -1);
    return atomic_load(&fail_alloc_refused) > 0;
}

/* Calls seen since it was armed. */
static inline long fail_alloc_count(void)
{
    return atomic_load(&fail_alloc_calls);
}

static inline bool fail_alloc_refuses(void)
{
    long first = atomic_load(&fail_alloc_first), call = atomic_fetch_add(&fail_alloc_calls, 1);
    if (first < 0 || call < first || call > atomic_load(&fail_alloc_last)) return false;
    atomic_fetch_add(&fail_alloc_refused, 1);
    return true;
}

void *__wrap_malloc(size_t size)
{
    return fail_alloc_refuses() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return fail_alloc_refuses() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *old, size_t size)
{
    return fail_alloc_refuses() ? NULL : __real_realloc(old, size);
}

void *__wrap_aligned_alloc(size_t align, size_t size)
{
    return fail_alloc_refuses() ? NULL : __real_aligned_alloc(align, size);
}

#ifdef __linux__
/* Large blocks are mapped (base/mem.c); mappings of files take no memory. */
void *__wrap_mmap(void *at, size_t len, int prot, int flags, int fd, off_t offset)
{
    if (!at && flags & MAP_ANONYMOUS && fail_alloc_refuses()) return MAP_FAILED;
    return __real_mmap(at, len, prot, flags, fd, offset);
}
#endif

#endif
