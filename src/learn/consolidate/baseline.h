/* baseline.h - what adapters are trained against: texts of the model's own (replay.h),
 * ready as samples with hidden states and targets, made once a process. Behind them stand the
 * samples of the run under way. */
#ifndef RVI_LEARN_CONSOLIDATE_BASELINE_H
#define RVI_LEARN_CONSOLIDATE_BASELINE_H

#include "learn/consolidate/replay.h"
#include "learn/consolidate/samples.h"

enum {
    RVI_PORTION_ROWS = 704 /* of texts that are computed together; a step of a group of 20 behind a
                              gate has some 580 */
};

typedef struct rvi_baseline {
    const rvi_base_model *v;
    const rvi_replay *replay; /* borrowed */
    rvi_samples samples;
    rvi_index general;
    rvi_index probe; /* half self-made texts, half prose; never trained on */
    size_t n_own;    /* samples of the replay */
} rvi_baseline;

/* The layer that adapters begin at: 0.4 of all. */
int rvi_baseline_lowest(const rvi_model *m);

/* replay must outlive it. */
rv_status rvi_baseline_init(rvi_baseline *g, const rvi_base_model *v, const rvi_replay *replay,
                            rvi_progress_fn progress, void *ctx, rv_error *err) RVI_MUST_CHECK;
void rvi_baseline_deinit(rvi_baseline *g);
void rvi_baseline_use(rvi_baseline *g, const rvi_base_model *v); /* v computes from now on */
/* Computes what samples that were added lack. */
rv_status rvi_baseline_prepare(rvi_baseline *g, rvi_progress_fn progress, void *ctx,
                               rv_error *err) RVI_MUST_CHECK;
void rvi_baseline_clear(rvi_baseline *g); /* drops the samples that are not its own */
/* Mean KL(base || base with params) per token over the probe texts; NaN: out of memory. */
rv_status rvi_baseline_probe(rvi_baseline *g, const rvi_params *params, double *kl,
                             rv_error *err) RVI_MUST_CHECK;

#endif
