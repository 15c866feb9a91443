/* run.h - a whole run of training.
 *
 * Without texts set aside it takes all its steps. With them their loss is measured before the first
 * step and every few steps; when it has not fallen for some measurements in a row the run ends, and
 * the parameters are those with which it was lowest.
 *
 * With a folder, where the run stands is kept there now and then, and when it is cancelled; the
 * next run of the same model, texts and options goes on from there and ends with the same bits as
 * one that was not interrupted. What is damaged or of another run is passed over. */
#ifndef RVI_LEARN_CONSOLIDATE_RUN_H
#define RVI_LEARN_CONSOLIDATE_RUN_H

#include "learn/consolidate/baseline.h"
#include "learn/consolidate/options.h"
#include "learn/consolidate/train.h"
#include "learn/recognise/recogniser.h"

/* loss: of the step just taken. Anything but 0 cancels. */
typedef int (*rvi_study_progress_fn)(void *ctx, const char *stage, int done, int total,
                                     double loss);

typedef struct rvi_study_result {
    int n_steps;     /* that were taken */
    double ce, kl;   /* of the last steps, means over 10 */
    double probe_kl; /* measured on the probe texts afterwards */
    double seconds;  /* of the steps */
    uint64_t n_rows; /* that went through the trainer */

    size_t n_held; /* texts or pairs that were set aside; 0: none, and nothing below was measured */
    double held_before, held_after; /* their loss without and with what was learned */
    int best_step;                  /* after which it was lowest */
    bool resumed;                   /* part of the steps had been taken earlier */
} rvi_study_result;

/* What a run is made with. */
typedef struct rvi_study {
    const rvi_learner_options *o; /* a run that was stopped is taken up in its dir */
    /* knows the group's lessons from 1 on, then the old ones; NULL: nothing that it would have to
     * sort is written */
    rvi_recogniser *judge;
    /* up to twice the steps; of a lesson one wording in six is set aside to see when to stop */
    bool deep;
    const char *model;              /* its digest */
    rvi_study_progress_fn progress; /* may be NULL */
    void *ctx;
} rvi_study;

/* held: texts (of pairs: the chosen ones) that are never trained on. */
rv_status rvi_run_training(rvi_training *t, const rvi_study *by, const rvi_index *held,
                           rvi_study_result *result, rv_error *err) RVI_MUST_CHECK;

#endif
