/* What is made once for a model, before anything is trained: its own texts (replay.h). They are
 * kept in the store, table "model", in pieces that fit into a record, after every portion: opening
 * a learner again needs no forward pass for them, and one that was stopped goes on where it was.
 * Hidden states are not part of it: they are made when somebody trains (baseline.h). */
#include <stdio.h>

#include "base/mem.h"
#include "learn/journal/pieces.h"
#include "learn/learner/jobs.h"
#include "learn/learner/learner_internal.h"

enum { NAME = RVI_SHA256_HEX + 8, DIGITS = 1, MOST = 128 << 20, REPLAY_SEED = 7 };
static const char table[] = "model";

/* ---- in the store ---- */

static const char *name_of(const rvi_learner *l, char name[NAME])
{
    snprintf(name, NAME, "%s.replay", l->digest);
    return name;
}

static rv_status save(rvi_learner *l, const rvi_replay *r, rv_error *err)
{
    char name[NAME];
    rvi_buf texts = {0};
    rv_status st = rvi_replay_save(r, &texts) ? rvi_store_begin(&l->store, false, err)
                                              : rvi_nomem(err, "calibration");
    if (!st)
        st = rvi_store_end(
            &l->store,
            rvi_pieces_put(&l->store, table, name_of(l, name), DIGITS, texts.data, texts.len, err),
            err);
    rvi_buf_deinit(&texts);
    return st;
}

/* The longer of the two is the learner's. */
static void keep_longer(rvi_learner *l, rvi_replay *other)
{
    rvi_replay before = l->replay;
    if (other->n_portions <= before.n_portions) return;
    l->replay = *other;
    *other = before;
}

/* What is not there, or damaged, is made again when it is needed. */
rv_status rvi_calibration_reopen(rvi_learner *l, rv_error *err)
{
    char name[NAME];
    rvi_buf data = {.max = MOST};
    rv_error why = {0};
    rvi_replay stored = {0};
    rv_status st = rvi_pieces_get(&l->store, table, name_of(l, name), DIGITS, &data, err);
    if (!st && data.len && rvi_replay_load(&stored, &l->base, data.data, data.len, &why) &&
        why.code == RV_E_NOMEM)
        st = rvi_nomem(err, "replay texts");
    keep_longer(l, &stored);
    rvi_replay_deinit(&stored);
    l->calibrated = !st && rvi_replay_is_whole(&l->replay);
    rvi_buf_deinit(&data);
    return st;
}

/* ---- making ---- */

/* One more portion. */
static rv_status make(rvi_job *j, rvi_learner *l, const rvi_base_model *v,
                      rvi_study_progress_fn progress, void *ctx, rv_error *err)
{
    rvi_study_teller t = {progress, ctx, "the model's own texts"};
    if (l->calibrated) return RV_OK;
    rv_status st = v->be->ops->train_reserve(v->be, 1, 1, 1, err);
    if (st) return st; /* texts that nothing could be trained with */
    return rvi_replay_next(&j->texts, &l->replay, v, REPLAY_SEED, rvi_study_tell, &t, err);
}

static rv_status publish(rvi_job *j, rvi_learner *l, rv_error *err)
{
    rv_status st = RV_OK;
    if (j->texts.n_portions > l->replay.n_portions) { /* else by another call meanwhile */
        st = save(l, &j->texts, err);
        if (!st) keep_longer(l, &j->texts);
        if (!st) l->calibrated = rvi_replay_is_whole(&l->replay);
    }
    j->published = !st;
    return st;
}

const rvi_job_kind rvi_job_calibrates = {"calibrating", NULL, make, NULL, publish};

rv_status rvi_learner_calibrate(rvi_learner *l, rvi_study_progress_fn progress, void *ctx,
                                rv_error *err)
{
    rvi_job listens = {.kind = &rvi_job_listens}, reads = {.kind = &rvi_job_reads};
    rv_status st = rvi_learner_reopen_found(l, err);
    if (!st) st = rvi_job_carry_out(&listens, l, 0, progress, ctx, err);
    if (!st) st = rvi_job_carry_out(&reads, l, 0, progress, ctx, err);
    while (!st && !l->calibrated) {
        rvi_job j = {.kind = &rvi_job_calibrates};
        st = rvi_job_carry_out(&j, l, 0, progress, ctx, err);
    }
    return st;
}

rv_status rvi_learner_need_baseline(rvi_learner *l, const rvi_base_model *v,
                                    rvi_study_progress_fn progress, void *ctx, rv_error *err)
{
    rvi_study_teller t = {progress, ctx, "hidden states"};
    if (l->has_baseline) {
        rvi_baseline_use(&l->baseline, v);
        return RV_OK;
    }
    rv_status st = rvi_baseline_init(&l->baseline, v, &l->replay, rvi_study_tell, &t, err);
    l->has_baseline = !st;
    return st;
}
