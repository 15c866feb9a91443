/* jobs.h - what a learner computes beside serving: one table, a row for each kind of job.
 *
 * A job is cut in three. Taking what it needs and publishing its result are short and need the
 * learner for themselves; computing is long, uses a backend of its own, and meanwhile others
 * may use the learner for anything but calibrating, consolidating, resetting and freeing. A job
 * that is cancelled while it computes stops before the next task of its backend, in the middle of a
 * layer; what it has not published is dropped, and the next job of its kind goes on from what is in
 * the store: portions of the model's own texts, snapshots of a training run. */
#ifndef RVI_LEARN_LEARNER_JOBS_H
#define RVI_LEARN_LEARNER_JOBS_H

#include "learn/learner/learner.h"

typedef struct rvi_job_kind rvi_job_kind;

typedef struct rvi_job { /* .kind (and .deep, .loss) alone, before it is taken */
    const rvi_job_kind *kind;
    bool deep;               /* of lessons: trained longer, some wordings set aside; pairs always */
    rv_preference_loss loss; /* of pairs; the log names it of all that is deep */
    int n;                   /* lessons or pairs that it is about; 0: nothing waits */
    bool published;   /* its result is in place; false also where that was not needed, or where what
                         it was taken for does not stand any more: then nothing changed */
    int generation;   /* that it became; 0: none */
    int n_repeated;   /* of the kind that listens: chats */
    bool reads;       /* of the kind that tries to read */
    rvi_replay texts; /* of the kind that calibrates */
    /* of those that train */
    rvi_generation made;            /* adapter NULL: not yet */
    rvi_buf file;                   /* it lies there; empty: there is no file */
    rvi_lesson_text *waiting, *old; /* a group of corrections, or pairs; what the shared adapter
                                       learned before */
    uint64_t *events;               /* of those that wait, */
    uint64_t *said;                 /* and of the old ones */
    size_t n_waiting, n_old;
} rvi_job;

struct rvi_job_kind {
    const char *doing; /* a constant, for rvi_doing */
    /* NULL: it needs nothing. */
    rv_status (*take)(rvi_job *j, rvi_learner *l, rv_error *err);
    rv_status (*compute)(rvi_job *j, rvi_learner *l, const rvi_base_model *v,
                         rvi_study_progress_fn progress, void *ctx, rv_error *err);
    /* Is what it was taken for still as it was? Otherwise it need not go on. NULL: always. */
    bool (*is_current)(const rvi_job *j, const rvi_learner *l);
    rv_status (*publish)(rvi_job *j, rvi_learner *l, rv_error *err);
};

extern const rvi_job_kind rvi_job_listens, rvi_job_reads, rvi_job_calibrates, rvi_job_trains,
    rvi_job_trains_deep;

/* In any case, once it was taken: what was not published is as if it had not been. */
void rvi_job_drop(rvi_job *j);
void rvi_job_published(rvi_job *j); /* what it made is the learner's */

/* What there is to do. idle: seconds since an answer was asked for. NULL: nothing, and *wait
 * becomes the seconds after which there may be, where only time is missing. */
const rvi_job_kind *rvi_job_due(const rvi_learner *l, double idle, double *wait);

/* All of a job, by a caller that has the learner to himself. n_least: it is dropped where it is
 * about less. */
rv_status rvi_job_carry_out(rvi_job *j, rvi_learner *l, int n_least, rvi_study_progress_fn progress,
                            void *ctx, rv_error *err) RVI_MUST_CHECK;

#endif
