/* Sessions on their way to the disk, one at a time, oldest first. The thread that steps copies some
 * pages in each step, another one hashes and writes them meanwhile; the request ends when that is
 * over. Only the thread that steps knows the list and touches pages: the other one has one save at
 * a time, or none. Without it each is saved at once. */
#include "scheduler/internal.h"

#include "base/mem.h"

struct rvi_saver {
    rvi_thread *thread;
    const rv_allocator *heap;
    _Atomic(rvi_save *) given; /* the thread's, to be written; NULL: it waits for one */
    atomic_bool stop;
    rvi_wakeup *work; /* of the thread */
    rvi_wakeup *done; /* borrowed: of the thread that steps */
};

static void write_on(void *ctx)
{
    rvi_saver *v = ctx;
    const rv_allocator *before = rvi_mem_use(v->heap);
    while (!atomic_load(&v->stop)) {
        rvi_save *x = atomic_load(&v->given);
        if (!x) {
            rvi_wakeup_wait(v->work, 0);
            continue;
        }
        rvi_save_write(x);
        atomic_store(&v->given, NULL);
        rvi_wakeup_post(v->done);
    }
    rvi_mem_use(before);
}

rv_status rvi_saving_start(rvi_scheduler *s, rv_error *err)
{
    rvi_saver *v = s->saver = rvi_zalloc(sizeof *v);
    if (!v) return rvi_nomem(err, "sessions");
    atomic_init(&v->given, NULL);
    atomic_init(&v->stop, false);
    v->done = s->o.saves_beside;
    v->heap = rvi_mem_use(NULL);
    rvi_mem_use(v->heap);
    rv_status st = rvi_wakeup_new(&v->work, err);
    return st ? st : rvi_thread_start(&v->thread, write_on, v, false, err);
}

void rvi_saving_stop(rvi_scheduler *s)
{
    rvi_saver *v = s->saver;
    if (v && v->thread) {
        atomic_store(&v->stop, true);
        rvi_wakeup_post(v->work);
        rvi_thread_join(v->thread);
    }
    for (rvi_job *j = s->saving; j; j = j->next) {
        rvi_save_free(j->save);
        j->save = NULL;
        j->ended = true;
    }
    s->saving = NULL;
    if (v) rvi_wakeup_free(v->work);
    rvi_free(v);
    s->saver = NULL;
}

/* How it went is part of the last event. */
static void end(rvi_save *x, rv_service_event *ev, rv_error *why)
{
    ev->session_status = rvi_save_result(x, why);
    ev->saved = !ev->session_status;
    ev->error = ev->session_status ? why->text : NULL;
    rvi_save_free(x);
}

void rvi_saving_begin(rvi_scheduler *s, rvi_job *j, const rvi_sampler_state *sampler,
                      rv_service_event *ev, rv_error *why)
{
    rvi_save *x;
    ev->session_status = rvi_save_begin(&x, j->r->kept, j->s, sampler, why);
    if (ev->session_status) {
        ev->error = why->text;
    } else if (s->saver) {
        j->save = x;
        j->end = *ev;
        j->next = NULL;
        *(s->saving ? &s->saving_last->next : &s->saving) = j;
        s->saving_last = j;
        s->n_saving++;
    } else {
        while (!rvi_save_is_over(x)) {
            rvi_save_fill(x);
            rvi_save_write(x);
        }
        end(x, ev, why);
    }
}

void rvi_saving_go_on(rvi_scheduler *s)
{
    rvi_saver *v = s->saver;
    for (rvi_job *j; (j = s->saving) && !atomic_load(&v->given);) {
        rvi_order *r = j->r;
        rv_error why;
        if (rvi_save_is_over(j->save)) {
            s->saving = j->next;
            s->n_saving--;
            end(j->save, &j->end, &why);
            j->save = NULL;
            rvi_job_tell_end(s, j, &j->end);
            rvi_scheduler_job_ended(s, r);
        } else {
            rvi_save_fill(j->save);
            atomic_store(&v->given, j->save);
            rvi_wakeup_post(v->work);
        }
    }
}
