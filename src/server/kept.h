/* kept.h - answers in a store that instances share, so that feedback on one, or a request that
 * continues it, may reach any of them.
 *
 * The worker writes them, a moment after they were given, and reads them where feedback names one
 * that this instance did not give. The event loop reads those that other requests name, by a
 * connection that nothing long is done on. What is larger than a record of the store is not kept;
 * what is older than a day is removed. */
#ifndef RVI_SERVER_KEPT_H
#define RVI_SERVER_KEPT_H

#include "ruvllm_learn.h"
#include "server/answers.h"
#include "server/worker.h"

typedef struct rvi_kept {
    rv_store worker, loop; /* one for each thread; append NULL: nothing is shared */
    rvi_answers *answers;  /* of this instance */
    unsigned n_put;
} rvi_kept;

/* On the event loop; the worker writes it. */
void rvi_kept_put(rvi_kept *k, rvi_worker *w, const rvi_said *said);
void rvi_kept_remove(rvi_kept *k, rvi_worker *w, const char *id);
/* On the event loop: it is among the answers of this instance from then on. NULL: there is none, it
 * is another tenant's, or the store cannot be reached. */
const rvi_said *rvi_kept_fetch(const rvi_kept *k, const char *tenant, const char *id);
/* The same on the worker's thread, which waits a moment for one that is just being written; the
 * caller frees it. */
rvi_said *rvi_kept_await(const rvi_kept *k, const char *tenant, const char *id, int choice);

#endif
