/* pool.h - a fixed team of threads that run one parallel job at a time.
 *
 * The caller of rvi_pool_run takes part in the work and returns when every task is done. Any number
 * of threads may submit jobs: these run one after the other, in the order in which they were
 * submitted, so a thread that submits many jobs delays another by one job at most. Tasks must not
 * depend on which thread runs them or in which order: each writes its results to memory of its own.
 * A task must not submit a job. */
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
/* Runs every task, even while the flag of rvi_pool_set_stop is set. */
void rvi_pool_run_all(rvi_pool *pool, rvi_task_fn fn, void *ctx, int n_tasks);
/* While *stop is set, rvi_pool_run begins no further task and returns. NULL: it runs all tasks.
 * Only one thread at a time may use this function and rvi_pool_run; others use rvi_pool_run_all. */
void rvi_pool_set_stop(rvi_pool *pool, const atomic_bool *stop);
/* The thread that is about to run a task calls pause first, several threads at once; pause returns
 * when the task may begin. NULL: tasks begin at once. */
void rvi_pool_set_pause(rvi_pool *pool, void (*pause)(void *ctx), void *ctx);

#endif
