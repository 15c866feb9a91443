/* The background thread of a learner: calibrates, then trains whatever waits, group after group;
 * when nobody has asked anything for a while and enough pairs have gathered, those too (deep.c).
 * Between calls it does what judgements left to do, and prepares for those that may come.
 *
 * It is two threads. One, of ordinary priority, waits and has the short parts to itself that need
 * the runtime's turn: taking what is to be done, and putting the result in its place. (At the
 * lowest priority it might hold up a call for as long as the machine is busy with other things.)
 * The other one lives for one round and computes: it and its helpers run when nothing else wants
 * the processor, on a backend of their own, and rest before every piece of work while the runtime
 * computes for a call.
 *
 * Whoever stops it waits for at most one step of training; what was not published then is as if it
 * had not begun. Calls that train themselves (or reset) stop it first, so that one of the two has
 * the ground, the shared adapter and the facts of the lessons. */
#include <stdio.h>

#include "api/api.h"
#include "base/mem.h"

enum { AGAIN = 60 }; /* seconds after a failure */

typedef enum job_kind { CALIBRATES, TRAINS, TRAINS_DEEP } job_kind;

typedef struct job {
    rv_learner *l;
    job_kind kind;
    rvi_calibrating calibrating;
    rvi_round round;
    rvi_deep deep;
    atomic_bool useless, done; /* what it is for is gone; it has ended */
    rv_status st;
    rv_error err;
} job;

/* ---- the thread that computes ---- */

static bool is_over(const job *j)
{
    return atomic_load(&j->l->bg.stop) || atomic_load(&j->useless);
}

static void rest(void *ctx)
{
    const job *j = ctx;
    while (!is_over(j) && rvi_api_is_busy(j->l->m->rt)) rvi_thread_sleep(1e-2);
}

static int report(void *ctx, const char *stage, int done, int total, double loss)
{
    (void)stage;
    (void)done;
    (void)total;
    (void)loss;
    return is_over(ctx);
}

static void compute(void *ctx)
{
    job *j = ctx;
    rv_learner *l = j->l;
    const rv_allocator *heap = rvi_api_use_heap(l->m->rt);
    rvi_voice voice = l->l->voice;
    int n_threads =
        l->l->o.n_threads > 0 ? l->l->o.n_threads : rvi_backend_cpu_threads(l->m->rt->be);
    j->st = rvi_backend_cpu_like(&voice.be, l->m->rt->be, n_threads, rest, j, &j->err);
    if (!j->st) {
        switch (j->kind) {
        case CALIBRATES:
            j->st = rvi_calibrating_make(&j->calibrating, l->l, &voice, report, j, &j->err);
            break;
        case TRAINS: j->st = rvi_round_train(&j->round, l->l, &voice, report, j, &j->err); break;
        case TRAINS_DEEP: j->st = rvi_deep_train(&j->deep, l->l, &voice, report, j, &j->err); break;
        }
        voice.be->ops->free(voice.be);
    }
    rvi_api_leave_heap(heap);
    atomic_store(&j->done, true);
    rvi_bell_ring(l->bg.bell);
}

/* ---- the thread that waits ---- */

/* Enough pairs wait for a deep run, and nobody has asked anything for a while; *wait: seconds until
 * that may be so. */
static bool is_deep_due(const rv_learner *l, double *wait)
{
    const rvi_learner_options *o = &l->l->o;
    size_t least = (size_t)RVI_MAX(o->deep_min_pairs, RVI_DEEP_LEAST);
    if (o->deep_min_pairs < 1 || rvi_learner_pairs_waiting(l->l) < least) return false;
    double rest_of_it = (double)o->deep_idle_seconds - rvi_api_idle_seconds(l->m->rt);
    if (rest_of_it > 0) *wait = rest_of_it;
    return rest_of_it <= 0;
}

/* *any false: there is nothing to do, at least for *wait seconds. The turn is held. */
static rv_status take(job *j, bool *any, double *wait)
{
    rvi_learner *l = j->l->l;
    size_t least = (size_t)RVI_MAX(l->o.background_min_samples, 1);
    j->kind = !l->calibrated ? CALIBRATES : rvi_learner_waiting(l) >= least ? TRAINS : TRAINS_DEEP;
    *any = j->kind != TRAINS_DEEP || is_deep_due(j->l, wait);
    if (!*any) return RV_OK;
    switch (j->kind) {
    case CALIBRATES: return rvi_calibrating_take(&j->calibrating, l, &j->err);
    case TRAINS: return rvi_round_take(&j->round, l, &j->err);
    default: return rvi_deep_take(&j->deep, l, RV_LOSS_DPO, &j->err);
    }
}

/* The turn is held. */
static rv_status give(job *j)
{
    bool published;
    switch (j->kind) {
    case CALIBRATES: return rvi_calibrating_keep(&j->calibrating, j->l->l, &j->err);
    case TRAINS: return rvi_round_publish(&j->round, j->l->l, &published, &j->err);
    default: return rvi_deep_publish(&j->deep, j->l->l, &published, &j->err);
    }
}

static void clear(job *j)
{
    switch (j->kind) {
    case CALIBRATES: rvi_calibrating_deinit(&j->calibrating); break;
    case TRAINS: rvi_round_deinit(&j->round, j->l->l); break;
    case TRAINS_DEEP: rvi_deep_deinit(&j->deep); break;
    }
}

/* Is what it was begun for still as it was? */
static bool stands(const job *j)
{
    return j->kind == CALIBRATES || (j->kind == TRAINS ? rvi_round_stands(&j->round, j->l->l)
                                                       : rvi_deep_stands(&j->deep, j->l->l));
}

/* What calls left to do; the turn is held. What cannot be done is tried again by whoever depends on
 * it. */
static void attend(rv_learner *l)
{
    rv_error why = {0};
    if (rvi_learner_attend(l->l, &why))
        rvi_log_write(l->m->rt->be->log, RVI_LOG_WARN, "after a judgement: %s", why.text);
    for (size_t i = 0; i < RVI_FORESEEN; i++) {
        const rv_session *s = l->answered[i];
        l->answered[i] = NULL;
        if (!s || s->s->answer) continue;
        rv_status st = rvi_learner_foresee(l->l, s->capture, s->question, NULL);
        (void)st; /* a thumb makes its keys itself */
    }
}

/* Whoever changes what stands rings: training what was taken back would be in vain. */
static void oversee(job *j)
{
    rvi_api_turn turn;
    while (!atomic_load(&j->done)) {
        rvi_bell_wait(j->l->bg.bell, 0);
        if (atomic_load(&j->done) || !rvi_api_enter_aside(&turn, j->l->m->rt, &j->l->bg.stop))
            continue;
        attend(j->l);
        if (!stands(j)) atomic_store(&j->useless, true);
        rvi_api_leave_aside(&turn);
    }
}

static void say(rvi_learner *l, const char *doing)
{
    atomic_store(&l->doing, doing);
}

/* One piece of work, or none; *wait: seconds until the next look unless the bell rings; 0: for
 * ever; negative: there may be more at once. */
static void work(rv_learner *l, double *wait)
{
    rvi_api_turn turn;
    rvi_thread *thread = NULL;
    job j = {.l = l};
    atomic_init(&j.useless, false);
    atomic_init(&j.done, false);
    bool any = false;
    *wait = 0;
    if (!rvi_api_enter_aside(&turn, l->m->rt, &l->bg.stop)) return;
    attend(l);
    j.st = take(&j, &any, wait);
    say(l->l, !any                   ? "resting"
              : j.kind == CALIBRATES ? "calibrating"
              : j.kind == TRAINS     ? "training"
                                     : "training deep");
    rvi_api_leave_aside(&turn);
    if (!any) return;
    if (!j.st) { /* from the start on the job is the thread's, its status too */
        rv_error why = {0};
        rv_status st = rvi_thread_start(&thread, compute, &j, !l->bg.brisk, &why);
        if (st) {
            j.st = st;
            j.err = why;
        }
    }
    if (thread) oversee(&j);
    rvi_thread_join(thread);
    if (atomic_load(&j.useless)) j.st = RV_OK; /* publishing sees it again, and does nothing */
    *wait = -1;
    if (rvi_api_enter_aside(&turn, l->m->rt, &l->bg.stop)) {
        if (!j.st) j.st = give(&j);
        snprintf(l->l->trouble, sizeof l->l->trouble, "%s", j.st ? j.err.text : "");
        if (j.st) {
            say(l->l, "resting");
            *wait = AGAIN;
        }
        rvi_api_leave_aside(&turn);
    }
    clear(&j);
}

static void background(void *ctx)
{
    rv_learner *l = ctx;
    const rv_allocator *heap = rvi_api_use_heap(l->m->rt);
    while (!atomic_load(&l->bg.stop)) {
        double wait;
        work(l, &wait);
        if (wait >= 0 && !atomic_load(&l->bg.stop)) rvi_bell_wait(l->bg.bell, wait);
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
        if (!bg->bell) st = rvi_bell_new(&bg->bell, err);
        atomic_store(&bg->stop, false);
        if (!st) say(l->l, "resting");
        if (!st) st = rvi_thread_start(&bg->thread, background, l, false, err);
        if (st) say(l->l, NULL);
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
        rvi_bell_ring(bg->bell);
        rvi_thread_join(bg->thread);
        bg->thread = NULL;
        say(l->l, NULL);
    }
    atomic_flag_clear(&bg->switching);
    return was;
}

/* Whoever rings has a call under way on the learner, so that the bell is there to stay. */
void rvi_background_ring(rv_learner *l)
{
    if (l->bg.bell) rvi_bell_ring(l->bg.bell);
}

void rvi_background_deinit(rv_learner *l)
{
    rvi_bell_free(l->bg.bell);
    l->bg.bell = NULL;
}
