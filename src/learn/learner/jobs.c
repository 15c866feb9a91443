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

void rvi_job_drop(rvi_job *j, rvi_learner *l)
{
    if (j->was_shared) {
        rvi_shared_deinit(&l->shared);
        l->shared = j->before;
    } else {
        rvi_shared_deinit(&j->before);
    }
    if (j->file.len) rvi_os_remove_tree(j->file.data); /* moved into place by now, or of no use */
    rvi_buf_deinit(&j->file);
    rvi_adapter_free(j->made.adapter);
    rvi_generation_deinit(&j->made);
    rvi_free(j->waiting);
    rvi_free(j->old);
    rvi_free(j->events);
    rvi_free(j->said);
    rvi_free(j->pairs);
    rvi_replay_deinit(&j->texts);
}

/* The most urgent first. */
const rvi_job_kind *rvi_job_due(rvi_learner *l, double idle, double *wait)
{
    static const rvi_job_kind *const kinds[] = {&rvi_job_calibrates, &rvi_job_trains,
                                                &rvi_job_trains_deep};
    for (size_t i = 0; i < RVI_COUNT(kinds); i++)
        if (kinds[i]->due(l, idle, wait)) return kinds[i];
    return NULL;
}

rv_status rvi_job_carry_out(rvi_job *j, rvi_learner *l, int n_least, rvi_study_progress_fn progress,
                            void *ctx, rv_error *err)
{
    rv_status st = j->kind->take(j, l, err);
    rvi_learner_yield(l);
    if (!st && j->n >= n_least) {
        st = j->kind->compute(j, l, &l->base, progress, ctx, err);
        if (!st) st = j->kind->publish(j, l, err);
    }
    rvi_job_drop(j, l);
    return st;
}
