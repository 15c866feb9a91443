/* kept.h - answers in a store, so that feedback on one, or a request that continues it, may come
 * after a restart, or to another instance that shares the store.
 *
 * The worker writes them, a moment after they were given. The event loop reads one that a request
 * names and this process did not give, by a connection that nothing long is done on. What is larger
 * than a record of the store is not kept; what is older than a day is removed, and where the store
 * has a limit, the oldest of what is too much. */
#ifndef RVI_SERVER_KEPT_H
#define RVI_SERVER_KEPT_H

#include "ruvllm_learn.h"
#include "server/answers.h"
#include "server/worker.h"

/* A file is read through when it is opened: so large that nobody waits for that. */
enum { RVI_KEPT_MOST = RVI_ANSWERS_MOST, RVI_KEPT_BYTES = 32 << 20 };

typedef struct rvi_kept {
    rv_store writes, reads; /* the worker's and the event loop's; append NULL: there is none */
    bool is_limited;        /* to RVI_KEPT_MOST and RVI_KEPT_BYTES */
    rvi_answers *answers;   /* of this instance */
    rvi_worker **worker;
    struct rvi_serving *(*find_model)(void *ctx, const char *name); /* NULL: there is none */
    void *ctx;
    unsigned n_put;
    uint64_t forgot;                   /* the last forgetting that this instance knows of */
    bool behind;                       /* there may be others, which could not be read */
    bool write_fails, read_fails;      /* the last time; the worker's and the event loop's */
    struct rvi_kept_writing *removals; /* that the worker has not done yet */
} rvi_kept;

/* All on the event loop. The worker writes it; model: the name of the one that said it. */
void rvi_kept_put(rvi_kept *k, const rvi_said *said, const char *model);
void rvi_kept_remove(rvi_kept *k, const char *id);
/* Among the answers of this instance, or of another: it is among this one's from then on. NULL:
 * there is none, it is another tenant's, or the store cannot be reached. */
const rvi_said *rvi_kept_find(rvi_kept *k, const char *tenant, const char *id, int choice);
/* What any process has forgotten is forgotten here, too; costs nothing where there is nothing. */
void rvi_kept_follow(rvi_kept *k);
/* On the thread of the store: removes the answers of a tenant, or of all where it is "", and tells
 * the instances that share it. Where lessons are forgotten, the conversations that they came from
 * are. */
rv_status rvi_kept_forget(const rv_store *s, const char *tenant, rv_error *err) RVI_MUST_CHECK;

#endif
