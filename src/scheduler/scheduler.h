/* scheduler.h - requests of many users become steps of one engine (docs/SERVICE.md).
 *
 * A request has one job for each of its choices. A job waits in its tenant's queue, runs (it has a
 * session with an answer, and pages), waits again if its pages are needed more elsewhere, and ends.
 *
 * Threads: rvi_scheduler_submit, _cancel, _take, _has_told and _read may be called by any thread;
 * they take the lock for moments. Everything else is done by the one thread that steps, which is
 * the engine's. */
#ifndef RVI_SCHEDULER_SCHEDULER_H
#define RVI_SCHEDULER_SCHEDULER_H

#include "decode/answer.h"
#include "decode/embed.h"
#include "kv/quota.h"
#include "ruvllm_service.h"
#include "scheduler/sessions.h"

typedef struct rvi_scheduler rvi_scheduler;
typedef struct rvi_job rvi_job;
typedef struct rvi_tenant rvi_tenant;

typedef struct rvi_scheduler_options {
    int max_running, max_waiting, max_tenant; /* max_tenant 0: no limit */
    size_t max_events;
    double token_seconds, overcommit, age_seconds;
    int quantum;
    bool no_cache;
    rv_pressure pressure;
    const char *spill; /* a folder that exists, copied; or NULL */
    uint64_t spill_bytes;
    int cache_pages;  /* 0: no limit */
    rvi_quota *quota; /* of what its pages take */
    const rvi_quota_member *member;
    int floor_pages; /* that it has of the quota in any case: enough for the longest request */
    /* Sessions are saved by a thread of their own, which posts this when a step is to look after
     * that; NULL: within the step that ends the answer. */
    rvi_wakeup *saves_beside;
} rvi_scheduler_options;

/* The engine is borrowed; nobody else has answers in it. RV_E_NOMEM: the quota is used up. */
rv_status rvi_scheduler_new(rvi_scheduler **out, rvi_engine *e, const rvi_scheduler_options *o,
                            rv_error *err) RVI_MUST_CHECK;
void rvi_scheduler_free(rvi_scheduler *s); /* accepts NULL; ends everything without events */
/* Before that, instead of steps: goes on with saving sessions of answers that have ended. False:
 * all are saved. */
bool rvi_scheduler_finish(rvi_scheduler *s);

enum { RVI_BESIDE = 4 };

struct rvi_order;
/* What the maker of a request does for it, on the thread that steps; each may be NULL. */
typedef struct rvi_order_hooks {
    /* One piece of what beginning takes; true: there are more. Between pieces others go on. */
    bool (*prepare)(void *ctx);
    /* Once, behind the last piece: may give the request another prompt; true: it did. */
    bool (*compose)(void *ctx, struct rvi_order *r);
    /* A session was made for a choice: may choose its adapters. */
    rv_status (*begin)(void *ctx, int choice, rvi_session *s, rv_error *err);
    /* Its answer was started, and nothing computed yet. */
    rv_status (*started)(void *ctx, int choice, rvi_session *s, rv_error *err);
    /* Its session, if there was one, is gone; good: it ended by itself. */
    void (*ended)(void *ctx, int choice, bool good);
    void (*release)(void *ctx); /* the request is gone */
    void *ctx;
} rvi_order_hooks;

/* A request, as the scheduler knows it. */
typedef struct rvi_order {
    /* from its maker; texts and lists in the arena */
    rvi_arena arena;
    rv_request_kind kind;
    const int32_t *ids;
    int n_ids;
    rv_generate_options o; /* as decode wants them; max_tokens fits the context */
    rv_sampling sampling;  /* of choice 0; o.sampling is not used */
    const rvi_adapter_set *adapters;
    rvi_embed_options embed;
    int n_top; /* of scores */
    rvi_kept_session
        *kept;  /* the session that it continues and is saved to; NULL: none. One choice */
    bool whole; /* no random numbers of that are continued */
    bool exact; /* pressure may not change its text */
    /* Of a few rows, for something else than an answer: it is taken whatever waits, and has one of
     * RVI_BESIDE places of its own. */
    bool beside;
    double priority;
    const char *tenant, *salt;
    double deadline; /* by rvi_os_seconds; 0: none */
    void *user;
    rvi_order_hooks hooks;
    /* the scheduler's */
    struct rvi_order *next; /* in the inbox, or of all that live */
    uint64_t id;
    double arrived;
    uint64_t space; /* salt of its prefixes */
    rvi_tenant *of; /* NULL: in the inbox */
    rvi_job *jobs;
    int n_jobs, n_left;
    atomic_bool cancelled;
    bool timed_out;
    bool admitted; /* some job of it was */
    bool composed; /* its hook was asked */
    bool is_read;  /* the first job has read the prompt: the others may begin */
} rvi_order;

/* Empty, for n choices. */
rv_status rvi_order_new(rvi_order **out, int n, rv_error *err) RVI_MUST_CHECK;
void rvi_order_free(rvi_order *r); /* accepts NULL; releases */

/* Takes the request on success. RV_E_BUSY: too many wait; RV_E_TOO_LONG: it cannot fit. */
rv_status rvi_scheduler_submit(rvi_scheduler *s, rvi_order *r, uint64_t *id,
                               rv_error *err) RVI_MUST_CHECK;
void rvi_scheduler_cancel(rvi_scheduler *s, uint64_t id);

typedef struct rvi_step {
    size_t n_live; /* requests that have not ended */
    bool computed; /* false: there was nothing to compute, or nobody drains */
    bool told;     /* there is a new batch */
    double wait;   /* not computed: seconds after which to look again; 0: when something changes */
} rvi_step;

/* So many schedulers take turns from now on: steps are that much shorter. */
void rvi_scheduler_share(rvi_scheduler *s, int n);
rvi_step rvi_scheduler_step(rvi_scheduler *s);
rv_batch *rvi_scheduler_take(rvi_scheduler *s);      /* NULL: none */
bool rvi_scheduler_has_told(const rvi_scheduler *s); /* and nobody has taken it */
/* From any thread: pages that are merely kept are given up in the next step. Returns how many of
 * the bytes that will be; 0 asks how many there are. */
uint64_t rvi_scheduler_shrink(rvi_scheduler *s, uint64_t bytes);
void rvi_scheduler_read(const rvi_scheduler *s, rv_service_metrics *out);

#endif
