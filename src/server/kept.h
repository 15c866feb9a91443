/* kept.h - answers in a store that instances share, so that feedback on one, or a request that
 * continues it, may reach any of them.
 *
 * The worker writes them, a moment after they were given. The event loop reads one that a request
 * names and this instance did not give, by a connection that nothing long is done on. What is
 * larger than a record of the store is not kept; what is older than a day is removed. */
#ifndef RVI_SERVER_KEPT_H
#define RVI_SERVER_KEPT_H

#include "ruvllm_learn.h"
#include "server/answers.h"
#include "server/worker.h"

typedef struct rvi_kept {
    rv_store writes, reads; /* the worker's and the event loop's; append NULL: nothing is shared */
    rvi_answers *answers;   /* of this instance */
    rvi_worker **worker;
    struct rvi_serving *(*find_model)(void *ctx, const char *name); /* NULL: there is none */
    void *ctx;
    unsigned n_put;
} rvi_kept;

/* All on the event loop. The worker writes it; model: the name of the one that said it. */
void rvi_kept_put(rvi_kept *k, const rvi_said *said, const char *model);
void rvi_kept_remove(rvi_kept *k, const char *id);
/* Among the answers of this instance, or of another: it is among this one's from then on. NULL:
 * there is none, it is another tenant's, or the store cannot be reached. */
const rvi_said *rvi_kept_find(const rvi_kept *k, const char *tenant, const char *id, int choice);

#endif
