/* The background thread of a learner: once something was taught it finds out whether the model
 * repeats its chats, calibrates, then trains whatever waits, group after group; when nobody has
 * asked anything for a while and enough pairs have gathered, those too. Between calls it does what
 * judgements left to do, and prepares for those that may come. A learner that was taught nothing
 * computes nothing.
 *
 * It is two threads. One, of ordinary priority, waits and has the short parts to itself that need
 * the runtime's turn: taking what is to be done, and putting the result in its place. (At the
 * lowest priority it might hold up a call for as long as the machine is busy with other things.)
 * The other one lives for one job and computes: it and its helpers run when nothing else wants the
 * processor, on a backend of their own, and pause before every piece of work while the runtime
 * computes for a call. It takes no lock that a call may want: memory is reserved for it before it
 * starts, and what it has freed is given back after it has ended.
 *
 * Stopping cancels the job: its backend runs no further task, and whatever it had computed but not
 * published is thrown away. Whoever pauses waits until the computing thread has noticed. Freeing
 * the learner waits for a moment only: on a busy machine a thread of the lowest priority may not
 * run for seconds, so it is left to end by itself, with a reference to the learner. Calls that
 * train themselves (or reset) pause first, so that one of the two has the hidden states, the shared
 * adapter and the texts of the lessons. */
#include <stdio.h>

#include "api/api.h"
#include "base/mem.h"
#include "base/os.h"
#include "base/resident.h"
#include "learn/learner/jobs.h"

enum {
    AGAIN = 60,    /* seconds after a failure */
    LEASE = 3,     /* seconds until the next attempt where another process trains */
    STARVED = 30,  /* seconds of waiting for calls, after which services rest now and then */
    LEAVE_MS = 50, /* that freeing a learner waits for a job to notice that it was cancelled */
};

typedef struct job {
    atomic_int users;      /* both threads; the last one frees it */
    rv_learner *l;         /* held */
    rvi_job work;          /* kind NULL: there is nothing to do */
    rvi_quota_job room;    /* what it computes with, on a CPU: part of the budget, */
    bool has_room;         /* which has it */
    atomic_bool cancelled; /* it is stopped, or what it is for is gone */
    atomic_bool done;
    bool outdated;       /* what it is for is gone; the thread that waits looks at it */
    atomic_bool starves; /* it is one of the runtime's n_starving, until it ends */
    rv_status st;
    rv_error err;
} job;

static void release_job(job *j)
{
    if (atomic_fetch_sub(&j->users, 1) != 1) return;
    rv_learner *l = j->l;
    bool computed = j->work.kind;
    if (computed) rvi_job_drop(&j->work);
    if (j->has_room) rvi_quota_end_job(&l->m->rt->quota, &j->room);
    if (computed) rvi_resident_trim(SIZE_MAX);
    rvi_free(j);
    rvi_api_release_learner(l);
}

#define LOOK 0.1 /* seconds between two looks at whether others have taught something */

/* ---- the thread that computes ---- */

static void pause_while_busy(void *ctx)
{
    job *j = ctx;
    rv_runtime *rt = j->l->m->rt;
    double since = 0;
    while (!atomic_load(&j->cancelled) && !atomic_load(&j->l->bg.stop) && rvi_api_is_busy(rt)) {
        double now = rvi_os_seconds();
        if (since <= 0) since = now;
        if (now - since > STARVED && !atomic_exchange(&j->starves, true))
            atomic_fetch_add(&rt->n_starving, 1);
        rvi_thread_sleep(1e-2);
    }
}

static int report(void *ctx, const char *stage, int done, int total, double loss)
{
    const job *j = ctx;
    (void)loss;
    rvi_doing_report(&j->l->l->doing, stage, done, total);
    return atomic_load(&j->cancelled);
}

static rv_status compute_on(job *j, rvi_base_model *base, rv_error *err)
{
    rvi_backend_memory *own = base->be->memory;
    if (j->has_room) base->be->memory = &j->room.memory;
    base->be->ops->set_stop(base->be, &j->cancelled);
    rv_status st = j->work.kind->compute(&j->work, j->l->l, base, report, j, err);
    if (j->has_room) atomic_fetch_sub(&j->room.memory.scratch, rvi_backend_cpu_scratch(base->be));
    base->be->memory = own;
    return st;
}

static void compute(void *ctx)
{
    job *j = ctx;
    rv_learner *l = j->l;
    const rv_allocator *heap = rvi_api_use_heap(l->m->rt);
    rvi_base_model base = l->l->base;
    rvi_backend *be = l->m->model->be;
    if (be->ops->like)
        j->st = be->ops->like(&base.be, be, l->l->o.n_threads, pause_while_busy, j, &j->err);
    else
        j->st = rvi_error(&j->err, RV_E_UNSUPPORTED,
                          "training needs all layers of the model on one device");
    if (!j->st) {
        j->st = compute_on(j, &base, &j->err);
        base.be->ops->free(base.be);
    }
    if (atomic_load(&j->starves)) atomic_fetch_sub(&l->m->rt->n_starving, 1);
    rvi_api_leave_heap(heap);
    rvi_thread_be_ordinary(); /* it may be left alone, and then takes locks */
    atomic_store(&j->done, true);
    rvi_wakeup_post(l->bg.wakeup);
    release_job(j);
}

/* ---- the thread that waits ---- */

/* What is due, NULL: nothing, at least for *wait seconds. Of those that share the store one keeps
 * the lease for as long as anything is due to it, and begins with what others found out before. */
static rv_status find_due(rv_learner *held, const rvi_job_kind **kind, double *wait, rv_error *err)
{
    rvi_learner *l = held->l;
    double idle = rvi_api_idle_seconds(held->m->rt);
    bool fresh = false;
    *kind = rvi_job_due(l, idle, wait);
    if (*kind && !rvi_learner_lease(l, &fresh)) {
        *kind = NULL;
        *wait = LEASE;
    }
    rv_status st = RV_OK;
    if (*kind && fresh) {
        st = rvi_learner_reopen_found(l, err);
        if (!st) *kind = rvi_job_due(l, idle, wait);
    }
    if (!*kind) rvi_learner_end_lease(l);
    return st;
}

/* The turn is held. */
static rv_status take(job *j, double *wait)
{
    rvi_job *w = &j->work;
    rv_status st = find_due(j->l, &w->kind, wait, &j->err);
    if (!st && w->kind && w->kind->take) st = w->kind->take(w, j->l->l, &j->err);
    if (w->kind) rvi_doing_begin(&j->l->l->doing, w->kind->doing, w->n);
    return st;
}

/* The turn, in which nothing is left to do that takes forward passes: those were computed in turns
 * of their own, a piece in each, between which calls have theirs. */
static bool enter_prepared(rvi_api_turn *turn, rv_learner *l)
{
    const double gap = 3e-4; /* who waits for a background thread looks every 50 us */
    while (rvi_api_enter_aside(turn, l->m->rt, &l->bg.stop)) {
        if (!rvi_api_prepare_judging(l, false, false)) return true;
        rvi_api_leave_aside(turn);
        rvi_thread_sleep(gap);
    }
    return false;
}

/* What calls left to do; the turn is held. What cannot be done is tried again by whoever depends on
 * it. */
static void finish_pending(rv_learner *l)
{
    rv_error why = {0};
    bool news;
    rvi_learner_follow(l->l, &news);
    if (rvi_instant_catch_up(l->l, &why))
        rvi_log_write(l->m->rt->be->log, RVI_LOG_WARN, "after a judgement: %s", why.text);
}

/* Until the job has ended. Whoever changes the lessons posts the wakeup, and others who share the
 * store are looked for: training what was taken back would be in vain. False: the learner was
 * freed, and the job goes on for a while. */
static bool oversee(job *j)
{
    rvi_background *bg = &j->l->bg;
    rvi_api_turn turn;
    while (!atomic_load(&j->done) && !atomic_load(&bg->stop)) {
        bool woken = rvi_wakeup_wait(bg->wakeup, rvi_learner_shares(j->l->l) ? LOOK : 0);
        if (atomic_load(&j->done) || (!woken && !rvi_learner_is_behind(j->l->l)) ||
            !enter_prepared(&turn, j->l))
            continue;
        finish_pending(j->l);
        const rvi_job_kind *kind = j->work.kind;
        j->outdated = kind->is_current && !kind->is_current(&j->work, j->l->l);
        if (j->outdated || j->l->l->paused) atomic_store(&j->cancelled, true);
        rvi_learner_yield(j->l->l);
        rvi_api_leave_aside(&turn);
    }
    if (atomic_load(&bg->stop)) atomic_store(&j->cancelled, true);
    for (int ms = 0; ms < LEAVE_MS && atomic_load(&bg->closed) && !atomic_load(&j->done); ms++)
        rvi_thread_sleep(1e-3);
    return atomic_load(&j->done) || !atomic_load(&bg->closed);
}

static rv_status reserve_room(job *j)
{
    rv_runtime *rt = j->l->m->rt;
    if (!rvi_backend_is_cpu(rt->be)) return RV_OK;
    uint64_t least = rvi_study_least_bytes(j->l->l->base.m);
    rv_status st =
        rvi_quota_begin_job(&rt->quota, &j->room, least, &j->l->bg.stop, "training", &j->err);
    j->has_room = !st;
    return st;
}

/* Computes the job and puts its result in place. */
static rv_status carry_out(job *j)
{
    rvi_thread *thread;
    rvi_api_turn turn;
    rv_error why = {0};
    rv_status st = reserve_room(j);
    if (st) return st;
    atomic_fetch_add(&j->users, 1); /* the thread's; from its start on j->st is its own, too */
    st = rvi_thread_start(&thread, compute, j, !j->l->bg.brisk, &why);
    if (st) {
        atomic_fetch_sub(&j->users, 1);
        j->err = why;
        return st;
    }
    if (!oversee(j)) {
        rvi_thread_detach(thread);
        return RV_OK;
    }
    rvi_thread_join(thread);
    if (atomic_load(&j->cancelled)) return RV_OK; /* its result may be undefined */
    st = j->st;
    if (!st && rvi_api_enter_aside(&turn, j->l->m->rt, &j->l->bg.stop)) {
        st = j->work.kind->publish(&j->work, j->l->l, &j->err);
        rvi_learner_yield(j->l->l);
        rvi_api_leave_aside(&turn);
    }
    return st;
}

/* One piece of work, or none; *wait: seconds until the next look unless it is woken; 0: for
 * ever; negative: there may be more at once. */
static void work(rv_learner *l, double *wait)
{
    rvi_api_turn turn;
    job *j = rvi_zalloc(sizeof *j);
    *wait = AGAIN;
    if (!j) return;
    atomic_init(&j->users, 1);
    j->l = rvi_api_retain_learner(l);
    atomic_init(&j->cancelled, false);
    atomic_init(&j->done, false);
    atomic_init(&j->starves, false);
    *wait = 0;
    if (enter_prepared(&turn, l)) {
        finish_pending(l);
        j->st = take(j, wait);
        rvi_learner_yield(l->l);
        rvi_api_leave_aside(&turn);
    }
    if (j->work.kind) {
        rv_status st = j->st ? j->st : carry_out(j);
        rvi_doing_begin(&l->l->doing, "resting", 0);
        *wait = st ? AGAIN : -1;
        if (rvi_api_enter_aside(&turn, l->m->rt, &l->bg.stop)) {
            snprintf(l->l->trouble, sizeof l->l->trouble, "%s", st ? j->err.text : "");
            /* others may succeed */
            if (st) rvi_learner_end_lease(l->l);
            if (j->outdated) rvi_learner_drop_run(l->l); /* what was forgotten may be in it */
            rvi_api_leave_aside(&turn);
        }
    }
    release_job(j);
}

/* Until there may be work: something was posted, the time has come (0: it never does), or others
 * who share the store have taught something. */
static void rest(rv_learner *l, double wait)
{
    bool shares = rvi_learner_shares(l->l), woken;
    double end = rvi_os_seconds() + wait;
    do /* at least once: the store may be out of reach */
        woken = rvi_wakeup_wait(l->bg.wakeup, shares ? LOOK : wait);
    while (shares && !woken && !rvi_learner_is_behind(l->l) &&
           (wait <= 0 || rvi_os_seconds() < end));
}

static void background(void *ctx)
{
    rv_learner *l = ctx;
    const rv_allocator *heap = rvi_api_use_heap(l->m->rt);
    while (!atomic_load(&l->bg.stop)) {
        double wait;
        work(l, &wait);
        if (wait >= 0 && !atomic_load(&l->bg.stop)) rest(l, wait);
    }
    rvi_api_leave_heap(heap);
}

/* ---- on and off ---- */

static void begin_switch(rvi_background *bg)
{
    while (atomic_flag_test_and_set(&bg->switching)) rvi_thread_sleep(1e-3);
}

rv_status rvi_background_start(rv_learner *l, rv_error *err)
{
    rvi_background *bg = &l->bg;
    rv_status st = RV_OK;
    begin_switch(bg);
    if (!bg->thread && !atomic_load(&bg->closed)) {
        const rv_allocator *heap = rvi_api_use_heap(l->m->rt);
        if (!bg->wakeup) st = rvi_wakeup_new(&bg->wakeup, err);
        atomic_store(&bg->stop, false);
        if (!st) rvi_doing_begin(&l->l->doing, "resting", 0);
        if (!st) st = rvi_thread_start(&bg->thread, background, l, false, err);
        if (st) rvi_doing_begin(&l->l->doing, NULL, 0);
        rvi_api_leave_heap(heap);
    }
    atomic_flag_clear(&bg->switching);
    return st;
}

bool rvi_background_stop(rv_learner *l)
{
    rvi_background *bg = &l->bg;
    begin_switch(bg);
    bool was = bg->thread != NULL;
    if (was) {
        atomic_store(&bg->stop, true);
        rvi_wakeup_post(bg->wakeup);
        rvi_thread_join(bg->thread);
        bg->thread = NULL;
        rvi_doing_begin(&l->l->doing, NULL, 0);
    }
    atomic_flag_clear(&bg->switching);
    return was;
}

/* The caller has a call under way on the learner, so the wakeup cannot be freed meanwhile. */
void rvi_background_wake(rv_learner *l)
{
    if (l->bg.wakeup) rvi_wakeup_post(l->bg.wakeup);
}

void rvi_background_deinit(rv_learner *l)
{
    rvi_wakeup_free(l->bg.wakeup);
    l->bg.wakeup = NULL;
}
