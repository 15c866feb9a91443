/* pool.h - a fixed team of threads that run one parallel job at a time.
 *
 * One owner calls rvi_pool_run; it takes part in the work and returns when every task is done.
 * Tasks must not depend on which thread runs them or in which order: results are written to places
 * of their own. */
#ifndef RVI_BASE_POOL_H
#define RVI_BASE_POOL_H

#include <stdatomic.h>

#include "base/error.h"

typedef struct rvi_pool rvi_pool;

/* task: 0..n_tasks-1; worker: 0..rvi_pool_size-1, for scratch of a thread's own */
typedef void (*rvi_task_fn)(void *ctx, int task, int worker);

rv_status rvi_pool_new(rvi_pool **out, int n_threads,
                       rv_error *err) RVI_MUST_CHECK; /* n_threads >= 1, the caller included */
void rvi_pool_free(rvi_pool *pool);
int rvi_pool_size(const rvi_pool *pool);
void rvi_pool_run(rvi_pool *pool, rvi_task_fn fn, void *ctx, int n_tasks);
/* Called before every task, by the thread that runs it, several at once; it returns when the pool
 * may go on. NULL: at any time. */
void rvi_pool_set_rest(rvi_pool *pool, void (*rest)(void *ctx), void *ctx);
/* While *stop is set no further task is run: rvi_pool_run returns with its work half done. NULL: it
 * always does all of it. */
void rvi_pool_set_stop(rvi_pool *pool, const atomic_bool *stop);

#endif
