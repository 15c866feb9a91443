/* taught.h - what was taught: for all, and for each tenant that has learned state of its own.
 *
 * A tenant's is opened when it is first needed, by the worker, and closed when others are needed
 * more. The worker alone opens and closes; the event loop alone looks at the list. */
#ifndef RVI_SERVER_TAUGHT_H
#define RVI_SERVER_TAUGHT_H

#include "ruvllm_learn.h"
#include "server/keys.h"
#include "server/worker.h"

enum { RVI_TAUGHT_MOST = 64 }; /* open at the same time, unless more are in use */

typedef struct rvi_taught_ways {
    /* Opens the learned state of a tenant; handle is for closing it. */
    rv_status (*open)(void *ctx, const char *tenant, rv_learner **out, void **handle,
                      rv_error *err);
    void (*close)(void *ctx, void *handle);
    void *ctx;
} rvi_taught_ways;

typedef struct rvi_taught {
    struct rvi_taught *next;
    char tenant[RVI_KEY_NAME + 1]; /* "": for all */
    bool ready;                    /* the learner can be used; the event loop's */
    int users;                     /* requests that refer to it */
    uint64_t used;                 /* when it was last asked for */
    /* the worker's until it is ready */
    rv_learner *learner;
    void *handle;
    uint64_t n_forgotten; /* times that something was; the worker's */
} rvi_taught;

typedef struct rvi_teaching {
    rvi_taught_ways ways;
    rvi_taught shared;  /* its learner NULL: nothing is learned */
    rvi_taught *others; /* tenants */
    int n_others;
    uint64_t clock;
} rvi_teaching;

/* What takes part in answers for a key, and is changed by it; *out NULL: nothing does. One user
 * more; may not be ready. False: no memory. */
bool rvi_taught_take(rvi_teaching *t, const rvi_key *key, rvi_worker *worker, rvi_taught **out);
void rvi_taught_leave(rvi_taught *one); /* accepts NULL */
/* The number of the last event that it knows; 0: nothing, or it is not open. */
uint64_t rvi_taught_version(const rvi_taught *one);
/* On the worker's thread: opens it if it is not open. */
rv_status rvi_taught_open(const rvi_teaching *t, rvi_taught *one, rv_error *err) RVI_MUST_CHECK;
/* Back on the event loop. */
void rvi_taught_opened(rvi_taught *one);
/* Closes all but the shared one, when the worker and the service are gone. */
void rvi_teaching_close(rvi_teaching *t);

#endif
