#include "server/taught.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

static void close_one(const rvi_teaching *t, rvi_taught *one)
{
    if (one->handle) t->ways.close(t->ways.ctx, one->handle);
    rvi_free(one);
}

/* ---- closing what is not needed ---- */

typedef struct closing {
    rvi_work work;
    const rvi_teaching *t;
    rvi_taught *one;
} closing;

static void run_closing(rvi_work *w)
{
    closing *c = (closing *)w;
    close_one(c->t, c->one);
}

static void closing_done(rvi_work *w)
{
    rvi_free(w);
}

static void unlink_one(rvi_teaching *t, const rvi_taught *one)
{
    rvi_taught **at = &t->others;
    while (*at != one) at = &(*at)->next;
    *at = one->next;
    t->n_others--;
}

/* The one that was not asked for longest, and that nobody uses. */
static void make_room(rvi_teaching *t, rvi_worker *worker)
{
    rvi_taught *oldest = NULL;
    if (t->n_others < RVI_TAUGHT_MOST) return;
    for (rvi_taught *o = t->others; o; o = o->next)
        if (!o->users && (!oldest || o->used < oldest->used)) oldest = o;
    closing *c = oldest ? rvi_zalloc(sizeof *c) : NULL;
    if (!c) return;
    *c = (closing){.work = {.run = run_closing, .done = closing_done}, .t = t, .one = oldest};
    unlink_one(t, oldest);
    rvi_worker_post(worker, &c->work);
}

/* ---- use ---- */

bool rvi_taught_take(rvi_teaching *t, const rvi_key *key, rvi_worker *worker, rvi_taught **out)
{
    rvi_taught *one = &t->shared;
    *out = NULL;
    if (!t->shared.learner || key->learned == RVI_LEARNED_OFF) return true;
    if (key->learned == RVI_LEARNED_TENANT && *key->name) {
        for (one = t->others; one && strcmp(one->tenant, key->name);) one = one->next;
        if (!one) {
            make_room(t, worker);
            if (!(one = rvi_zalloc(sizeof *one))) return false;
            snprintf(one->tenant, sizeof one->tenant, "%s", key->name);
            one->next = t->others;
            t->others = one;
            t->n_others++;
        }
    }
    one->users++;
    one->used = ++t->clock;
    *out = one;
    return true;
}

void rvi_taught_leave(rvi_taught *one)
{
    if (one) one->users--;
}

rv_status rvi_taught_open(const rvi_teaching *t, rvi_taught *one, rv_error *err)
{
    if (one->learner) return RV_OK;
    rv_status st = t->ways.open(t->ways.ctx, one->tenant, &one->learner, &one->handle, err);
    uint64_t n;
    if (!st) st = rv_learner_verify_log(one->learner, &n, err);
    if (!st) return RV_OK;
    if (one->handle) t->ways.close(t->ways.ctx, one->handle);
    one->learner = NULL;
    one->handle = NULL;
    return st;
}

uint64_t rvi_taught_version(const rvi_taught *one)
{
    return one && one->ready ? rv_learner_version(one->learner) : 0;
}

void rvi_taught_opened(rvi_taught *one)
{
    if (one->learner) one->ready = true;
}

void rvi_teaching_close(rvi_teaching *t)
{
    while (t->others) {
        rvi_taught *one = t->others;
        t->others = one->next;
        close_one(t, one);
    }
}
