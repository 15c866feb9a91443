#include "server/worker.h"

#include "base/mem.h"
#include "base/thread.h"

typedef struct list {
    rvi_work *first, *last;
} list;

struct rvi_worker {
    rvi_thread *thread;
    rvi_wakeup *posted;
    rvi_lock *lock; /* guards todo, ran, stop */
    list todo, ran;
    bool stop;
    void (*tell)(void *ctx);
    void *ctx;
};

static void put(list *l, rvi_work *w)
{
    w->next = NULL;
    if (l->last)
        l->last->next = w;
    else
        l->first = w;
    l->last = w;
}

static rvi_work *take(list *l)
{
    rvi_work *w = l->first;
    if (w && !(l->first = w->next)) l->last = NULL;
    return w;
}

static void work(void *ctx)
{
    rvi_worker *w = ctx;
    for (;;) {
        rvi_lock_take(w->lock);
        bool stop = w->stop;
        rvi_work *one = stop ? NULL : take(&w->todo);
        rvi_lock_give(w->lock);
        if (stop) return;
        if (!one) {
            rvi_wakeup_wait(w->posted, 0);
            continue;
        }
        one->run(one);
        rvi_lock_take(w->lock);
        put(&w->ran, one);
        rvi_lock_give(w->lock);
        w->tell(w->ctx);
    }
}

rv_status rvi_worker_new(rvi_worker **out, void (*tell)(void *ctx), void *ctx, rv_error *err)
{
    rvi_worker *w = *out = rvi_zalloc(sizeof *w);
    if (!w) return rvi_nomem(err, "worker");
    w->tell = tell;
    w->ctx = ctx;
    rv_status st = rvi_lock_new(&w->lock, err);
    if (!st) st = rvi_wakeup_new(&w->posted, err);
    if (!st) st = rvi_thread_start(&w->thread, work, w, false, err);
    if (st) {
        rvi_worker_free(w);
        *out = NULL;
    }
    return st;
}

void rvi_worker_free(rvi_worker *w)
{
    if (!w) return;
    if (w->thread) {
        rvi_lock_take(w->lock);
        w->stop = true;
        rvi_lock_give(w->lock);
        rvi_wakeup_post(w->posted);
        rvi_thread_join(w->thread);
        rvi_worker_call_done(w);
        for (rvi_work *one; (one = take(&w->todo));) one->done(one);
    }
    rvi_wakeup_free(w->posted);
    rvi_lock_free(w->lock);
    rvi_free(w);
}

void rvi_worker_post(rvi_worker *w, rvi_work *one)
{
    rvi_lock_take(w->lock);
    put(&w->todo, one);
    rvi_lock_give(w->lock);
    rvi_wakeup_post(w->posted);
}

void rvi_worker_call_done(rvi_worker *w)
{
    for (;;) {
        rvi_lock_take(w->lock);
        rvi_work *one = take(&w->ran);
        rvi_lock_give(w->lock);
        if (!one) return;
        one->done(one);
    }
}
