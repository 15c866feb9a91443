#include "learn/learner/jobs.h"

#include "base/mem.h"
#include "base/os.h"
#include "learn/learner/learner_internal.h"

void rvi_job_published(rvi_job *j)
{
    j->published = true;
    j->generation = j->made.number;
    j->made = (rvi_generation){0};
}

void rvi_job_drop(rvi_job *j)
{
    if (j->file.len) rvi_os_remove_tree(j->file.data); /* moved into place by now, or of no use */
    rvi_buf_deinit(&j->file);
    rvi_adapter_free(j->made.adapter);
    rvi_generation_deinit(&j->made);
    rvi_free(j->waiting);
    rvi_free(j->old);
    rvi_free(j->events);
    rvi_free(j->said);
    rvi_replay_deinit(&j->texts);
}

/* Enough pairs, and nobody has asked anything for a while. */
static bool pairs_are_due(const rvi_learner *l, double idle, double *wait)
{
    size_t least = (size_t)RVI_MAX(l->o.deep_min_pairs, RVI_DEEP_LEAST);
    if (l->o.deep_min_pairs < 1 || rvi_learner_pairs_waiting(l) < least) return false;
    double rest = (double)l->o.deep_idle_seconds - idle;
    if (rest > 0) *wait = rest;
    return rest <= 0;
}

/* Lessons are more urgent than pairs, and without calibration nothing is trained. */
const rvi_job_kind *rvi_job_due(const rvi_learner *l, double idle, double *wait)
{
    if (l->paused) return NULL;
    bool group = rvi_learner_waiting(l) >= (size_t)RVI_MAX(l->o.background_min_samples, 1);
    if (rvi_trait_is_due(l, &l->repeats)) return &rvi_job_listens;
    if (rvi_trait_is_due(l, &l->reads)) return &rvi_job_reads;
    if (!group && !pairs_are_due(l, idle, wait)) return NULL;
    if (!l->calibrated) return &rvi_job_calibrates;
    return group ? &rvi_job_trains : &rvi_job_trains_deep;
}

rv_status rvi_job_carry_out(rvi_job *j, rvi_learner *l, int n_least, rvi_study_progress_fn progress,
                            void *ctx, rv_error *err)
{
    rv_status st = j->kind->take ? j->kind->take(j, l, err) : RV_OK;
    rvi_learner_yield(l);
    if (!st && j->n >= n_least) {
        st = j->kind->compute(j, l, &l->base, progress, ctx, err);
        if (!st) st = j->kind->publish(j, l, err);
    }
    rvi_job_drop(j);
    return st;
}

/* ---- what is told of it ---- */

void rvi_doing_begin(rvi_doing *d, const char *what, int n)
{
    atomic_store(&d->stage, NULL);
    atomic_store(&d->done, 0);
    atomic_store(&d->total, 0);
    atomic_store(&d->n, n);
    atomic_store(&d->what, what);
}

static long long now_ms(void)
{
    return (long long)(rvi_os_seconds() * 1e3);
}

void rvi_doing_report(rvi_doing *d, const char *stage, int done, int total)
{
    if (atomic_load(&d->stage) != stage) {
        atomic_store(&d->begun_ms, now_ms());
        atomic_store(&d->begun_at, done);
    }
    atomic_store(&d->stage, stage);
    atomic_store(&d->done, done);
    atomic_store(&d->total, total);
}

double rvi_doing_remaining(const rvi_doing *d)
{
    int did = atomic_load(&d->done) - atomic_load(&d->begun_at);
    int left = atomic_load(&d->total) - atomic_load(&d->done);
    if (!atomic_load(&d->stage) || did <= 0 || left < 0) return -1;
    return (double)(now_ms() - atomic_load(&d->begun_ms)) / 1e3 * left / did;
}
