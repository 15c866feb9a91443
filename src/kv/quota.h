/* quota.h - one budget in bytes for what is made from a runtime: weights, adapters and scratch as
 * they are counted anyway, and the pages of services, which charge them here.
 *
 * There are two marks. Nobody takes more than the high one allows. What does not fit has the
 * members asked to give up what they merely keep (pages of requests that have ended, adapters that
 * nobody uses) until the low mark is reached, so that it is seldom.
 *
 * Any thread may call these functions. */
#ifndef RVI_KV_QUOTA_H
#define RVI_KV_QUOTA_H

#include <stdatomic.h>

#include "backend/backend.h"
#include "base/thread.h"

typedef enum rvi_quota_class {
    RVI_QUOTA_WEIGHTS,
    RVI_QUOTA_ADAPTERS,
    RVI_QUOTA_SCRATCH,
    RVI_QUOTA_KV,
    RVI_QUOTA_CLASSES
} rvi_quota_class;

typedef struct rvi_quota_limits {
    uint64_t most, most_of[RVI_QUOTA_CLASSES]; /* 0: no limit */
    double low;                                /* the low mark, as a share of each */
} rvi_quota_limits;

/* Somebody who keeps things. Its storage, as long as it takes part. */
typedef struct rvi_quota_member {
    struct rvi_quota_member *next;
    rvi_quota_class class;
    /* Gives up some `bytes` of what nobody uses, at once or soon; returns how many. 0 asks how many
     * there are. Must be quick, and call nothing here. */
    uint64_t (*give)(void *ctx, uint64_t bytes);
    void *ctx;
} rvi_quota_member;

/* What a learner computes in the background. Its storage, from its beginning to its end. */
typedef struct rvi_quota_job {
    struct rvi_quota_job *next;
    rvi_backend_memory memory; /* of its backend, all of which is scratch */
    uint64_t promised;         /* to it; what it has taken is part of that */
} rvi_quota_job;

typedef struct rvi_quota {
    rvi_lock *lock; /* of everything below */
    const rvi_backend_memory *counted;
    const atomic_size_t *adapters; /* part of the weights that are counted */
    rvi_quota_limits limits;
    uint64_t taken[RVI_QUOTA_CLASSES]; /* pages; of other classes what is not counted yet */
    uint64_t n_asked, n_refused;
    rvi_quota_member *members;
    rvi_quota_job *jobs;
} rvi_quota;

/* {0} may be deinitialised. */
rv_status rvi_quota_init(rvi_quota *q, const rvi_backend_memory *counted,
                         const atomic_size_t *adapters, rv_error *err) RVI_MUST_CHECK;
void rvi_quota_deinit(rvi_quota *q);
/* Where more is used already, asks for what is kept of that. */
void rvi_quota_limit(rvi_quota *q, const rvi_quota_limits *limits);

void rvi_quota_join(rvi_quota *q, rvi_quota_member *m);
void rvi_quota_leave(rvi_quota *q, rvi_quota_member *m); /* one that is no member is ignored */

/* Bytes that can be taken now; UINT64_MAX: no limit. */
uint64_t rvi_quota_room(rvi_quota *q, rvi_quota_class class);
/* Takes them, or nothing. */
bool rvi_quota_take(rvi_quota *q, rvi_quota_class class, uint64_t bytes);
/* They are counted now, or not there any more. */
void rvi_quota_return(rvi_quota *q, rvi_quota_class class, uint64_t bytes);
/* Has members but one (NULL: all) make room for so many bytes; returns how many will come. */
uint64_t rvi_quota_ask(rvi_quota *q, rvi_quota_class class, uint64_t bytes,
                       const rvi_quota_member *but);
/* Takes bytes for a while, so that something can be loaded: asks, and waits for what others give up
 * soon, unless stop (or NULL) becomes true. RV_E_NOMEM: there is not enough. 0 bytes: no more than
 * the limit may be used already. */
rv_status rvi_quota_await(rvi_quota *q, rvi_quota_class class, uint64_t bytes,
                          const atomic_bool *stop, const char *what, rv_error *err) RVI_MUST_CHECK;

/* A job, {0}, has room for so many bytes until it ends: others make way for it as for what is
 * loaded. What it may take beside (memory.spare) is half of what nobody else may take. */
rv_status rvi_quota_begin_job(rvi_quota *q, rvi_quota_job *j, uint64_t bytes,
                              const atomic_bool *stop, const char *what,
                              rv_error *err) RVI_MUST_CHECK;
void rvi_quota_end_job(rvi_quota *q, rvi_quota_job *j); /* one that did not begin is ignored */
/* What jobs have taken, all together. */
uint64_t rvi_quota_in_jobs(const rvi_quota *q);

typedef struct rvi_quota_use {
    uint64_t used[RVI_QUOTA_CLASSES], kept[RVI_QUOTA_CLASSES]; /* kept: could be given up */
    rvi_quota_limits limits;
    uint64_t n_asked, n_refused;
} rvi_quota_use;

void rvi_quota_read(rvi_quota *q, rvi_quota_use *out);

#endif
