/* thread.h - starting threads, and waking one that waits. In a build without threads (WASM)
 * rvi_thread_start returns RV_E_UNSUPPORTED. */
#ifndef RVI_BASE_THREAD_H
#define RVI_BASE_THREAD_H

#if !defined(RVI_NO_THREADS)
#include <pthread.h>
#endif
#include <stdbool.h>

#include "base/error.h"

typedef struct rvi_thread rvi_thread;

/* idle: the thread, and every thread it starts, runs only while nothing else wants the processor.
 * */
rv_status rvi_thread_start(rvi_thread **out, void (*fn)(void *ctx), void *ctx, bool idle,
                           rv_error *err) RVI_MUST_CHECK;
void rvi_thread_join(rvi_thread *t);   /* accepts NULL */
void rvi_thread_detach(rvi_thread *t); /* it is never joined; accepts NULL */

#if !defined(RVI_NO_THREADS)
/* As pthread_create, with all signals blocked in the thread, so that they reach the threads of the
 * program: from its very beginning, because an idle thread may wait long for its first turn. */
int rvi_thread_create(pthread_t *out, void *(*fn)(void *ctx), void *ctx);
#endif

/* For a program that leaves: no thread of it is idle any more, where the system allows that. A
 * process ends when the last of its threads has run once more, and on a busy machine an idle one
 * may wait for that for seconds. May be called in a signal handler. */
void rvi_thread_hurry(void);
/* For an idle thread that is about to take a lock which others may wait for: it is idle no more. */
void rvi_thread_be_ordinary(void);

void rvi_thread_sleep(double seconds);

/* A mutex: held for moments, never while something is computed or a callback runs. Without threads
 * it does nothing. */
typedef struct rvi_lock rvi_lock;

rv_status rvi_lock_new(rvi_lock **out, rv_error *err) RVI_MUST_CHECK;
void rvi_lock_free(rvi_lock *l); /* accepts NULL; nobody holds it */
void rvi_lock_take(rvi_lock *l);
void rvi_lock_give(rvi_lock *l);

/* A wakeup is posted by one thread and awaited by another. It remembers one post, so a post before
 * the wait is not lost. */
typedef struct rvi_wakeup rvi_wakeup;

rv_status rvi_wakeup_new(rvi_wakeup **out, rv_error *err) RVI_MUST_CHECK;
void rvi_wakeup_free(rvi_wakeup *w); /* accepts NULL; no thread may be waiting */
void rvi_wakeup_post(rvi_wakeup *w);
/* Returns once it has been posted since the last wait, or after the timeout in seconds: false then;
 * 0 waits forever. */
bool rvi_wakeup_wait(rvi_wakeup *w, double seconds);

#endif
