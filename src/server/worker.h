/* worker.h - one thread for what takes long and is not a step: opening models, learning.
 *
 * A piece of work runs on the worker's thread, in the order in which it was posted; `done` is
 * called by rvi_worker_call_done on the thread that asks for it. */
#ifndef RVI_SERVER_WORKER_H
#define RVI_SERVER_WORKER_H

#include <stdbool.h>

#include "base/error.h"

typedef struct rvi_work {
    struct rvi_work *next;
    void (*run)(struct rvi_work *w);
    void (*done)(struct rvi_work *w); /* frees it */
} rvi_work;

typedef struct rvi_worker rvi_worker;

/* tell: some work is done; called on the worker's thread, with no lock held. */
rv_status rvi_worker_new(rvi_worker **out, void (*tell)(void *ctx), void *ctx,
                         rv_error *err) RVI_MUST_CHECK;
/* Waits for what runs; of what has not begun only done is called. Accepts NULL. */
void rvi_worker_free(rvi_worker *w);
void rvi_worker_post(rvi_worker *w, rvi_work *work);
void rvi_worker_call_done(rvi_worker *w); /* calls done of all work that has run */

#endif
