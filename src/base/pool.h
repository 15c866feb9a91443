/* pool.h - a fixed team of threads that run one parallel job at a time.
 *
 * The caller of rvi_pool_run takes part in the work and returns when every task is done. Any number
 * of threads may submit jobs: these run one after the other, in the order in which they were
 * submitted, so that a thread with many jobs does not keep another one waiting for more than one.
 * Tasks must not depend on which thread runs them or in which order: results are written to places
 * of their own. A task must not submit a job. */
#ifndef RVI_BASE_POOL_H
#define RVI_BASE_POOL_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/error.h"

typedef struct rvi_pool rvi_pool;

/* task: 0..n_tasks-1; worker: 0..rvi_pool_size-1, for scratch of a thread's own */
typedef void (*rvi_task_fn)(void *ctx, int task, int worker);

rv_status rvi_pool_new(rvi_pool **out, int n_threads,
                       rv_error *err) RVI_MUST_CHECK; /* n_threads >= 1, the caller included */
void rvi_pool_free(rvi_pool *pool);
int rvi_pool_size(const rvi_pool *pool);
void rvi_pool_run(rvi_pool *pool, rvi_task_fn fn, void *ctx, int n_tasks);
/* The same whatever rvi_pool_set_stop says. */
void rvi_pool_run_all(rvi_pool *pool, rvi_task_fn fn, void *ctx, int n_tasks);
/* While *stop is set, rvi_pool_run returns without beginning further tasks. NULL: never. One
 * thread at a time uses this and rvi_pool_run; others use rvi_pool_run_all. */
void rvi_pool_set_stop(rvi_pool *pool, const atomic_bool *stop);
/* Called before every task, by the thread that runs it, several at once; it returns when the pool
 * may go on. NULL: at any time. */
void rvi_pool_set_rest(rvi_pool *pool, void (*rest)(void *ctx), void *ctx);

#endif
