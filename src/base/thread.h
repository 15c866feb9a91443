/* thread.h - threads of their own, and a bell that they wait for. Without threads (WASM) nothing
 * can be started: RV_E_SONA. */
#ifndef RVI_BASE_THREAD_H
#define RVI_BASE_THREAD_H

#include <stdbool.h>

#include "base/error.h"

typedef struct rvi_thread rvi_thread;

/* idle: it runs when nothing else wants the processor, and so do threads that it starts. */
rv_status rvi_thread_start(rvi_thread **out, void (*fn)(void *ctx), void *ctx, bool idle,
                           rv_error *err) RVI_MUST_CHECK;
void rvi_thread_join(rvi_thread *t);   /* accepts NULL */
void rvi_thread_detach(rvi_thread *t); /* it ends by itself; accepts NULL */

/* Of the calling thread, one of ours: signals are for the threads of the program that uses us. */
void rvi_thread_ignore_signals(void);

void rvi_thread_sleep(double seconds);

typedef struct rvi_bell rvi_bell;

rv_status rvi_bell_new(rvi_bell **out, rv_error *err) RVI_MUST_CHECK;
void rvi_bell_free(rvi_bell *b); /* accepts NULL; nobody waits */
void rvi_bell_ring(rvi_bell *b);
/* Until it was rung (since the last wait), or so many seconds have passed; 0: no matter how
 * many. */
void rvi_bell_wait(rvi_bell *b, double seconds);

#endif
