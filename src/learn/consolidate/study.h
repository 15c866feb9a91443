/* study.h - how a group of corrections, or pairs of answers, becomes an adapter.
 *
 * Each lesson is taught by the texts of several sources (texts.h), and all lessons of a group
 * equally often, however many texts they have. GATED (R7): the model's general texts are kept; for
 * use behind a gate. FENCED (R1): besides, its answers to the fences of the sources; for use
 * without a gate. A shared adapter is trained further
 * with each group: with old lessons in its batches, and pulled to what it was by their Fisher
 * information. */
#ifndef RVI_LEARN_CONSOLIDATE_STUDY_H
#define RVI_LEARN_CONSOLIDATE_STUDY_H

#include "learn/consolidate/run.h"
#include "learn/consolidate/texts.h"

/* Tells of a stage that has no loss: an rvi_progress_fn, ctx is a teller. */
typedef struct rvi_study_teller {
    rvi_study_progress_fn fn; /* may be NULL */
    void *ctx;
    const char *stage;
} rvi_study_teller;
int rvi_study_tell(void *ctx, size_t done, size_t total);

/* What a shared adapter keeps between groups. */
typedef struct rvi_shared {
    rvi_params *theta;
    float *fisher, *star; /* theta->n each */
    int n_groups;
} rvi_shared;

void rvi_shared_deinit(rvi_shared *s);
/* If it has not begun yet: as before the first group. */
rv_status rvi_shared_begin(rvi_shared *s, const rvi_model *m, const rvi_learner_options *o,
                           rv_error *err) RVI_MUST_CHECK;

/* An adapter of its own for a group. */
rv_status rvi_study_group(rvi_params **out, rvi_baseline *g, const rvi_lesson_text *group, size_t n,
                          const rvi_study *by, rvi_study_result *result,
                          rv_error *err) RVI_MUST_CHECK;
/* The group into the shared adapter; old: what was learned into it before. A failure leaves it
 * somewhere between: whoever wants it back has a copy. */
rv_status rvi_study_shared(rvi_shared *s, rvi_baseline *g, const rvi_lesson_text *group, size_t n,
                           const rvi_lesson_text *old, size_t n_old, const rvi_study *by,
                           rvi_study_result *result, rv_error *err) RVI_MUST_CHECK;

/* Preferences, by DPO or KTO. Of 8 pairs or more one in ten, but at least two, are set aside to see
 * when it is enough. */
rv_status rvi_study_pairs(rvi_params **out, rvi_baseline *g, const rvi_lesson_text *pairs, size_t n,
                          rv_preference_loss loss, const rvi_study *by, rvi_study_result *result,
                          rv_error *err) RVI_MUST_CHECK;

/* Bytes without which nothing can be trained, or written to be trained with. */
size_t rvi_study_least_bytes(const rvi_model *m);

#endif
