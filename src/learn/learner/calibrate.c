/* What is made once for a model, before anything is trained: its own texts (replay.h). They are
 * kept in the store, table "model", in pieces that fit into a record, after every portion: opening
 * a learner again needs no forward pass for them, and one that was stopped goes on where it was.
 * Hidden states are not part of it: they are made when somebody trains (baseline.h). */
#include <stdio.h>

#include "base/mem.h"
#include "learn/learner/jobs.h"
#include "learn/learner/learner_internal.h"

enum { PIECE = RVI_STORE_MAX_RECORD / 2, KEY = RVI_SHA256_HEX + 32, REPLAY_SEED = 7 };

/* ---- in the store ---- */

static size_t key_of(const rvi_learner *l, const char *what, size_t piece, char key[KEY])
{
    return (size_t)snprintf(key, KEY, "%s.%s.%zu", l->digest, what, piece);
}

/* Pieces of full size, and a shorter one behind them. */
static rv_status put(rvi_learner *l, const char *what, const rvi_buf *data, rv_error *err)
{
    char key[KEY];
    rv_status st = RV_OK;
    for (size_t i = 0; !st && i <= data->len / PIECE; i++) {
        size_t at = i * PIECE, n = RVI_MIN(data->len - at, (size_t)PIECE);
        st = rvi_store_put(&l->store, "model", key, key_of(l, what, i, key), data->data + at, n,
                           err);
    }
    return st;
}

static rv_status get(rvi_learner *l, const char *what, rvi_buf *out, rv_error *err)
{
    enum { MOST = 256 }; /* pieces */
    char key[KEY];
    bool found = true;
    rv_status st = RV_OK;
    for (size_t i = 0, before = 0; !st && found && i < MOST; i++, before = out->len) {
        st = rvi_store_get(&l->store, "model", key, key_of(l, what, i, key), out, &found, err);
        if (out->len - before < PIECE) break;
    }
    return st;
}

static rv_status save(rvi_learner *l, const rvi_replay *r, rv_error *err)
{
    rvi_buf texts = {0};
    rv_status st = rvi_replay_save(r, &texts) ? rvi_store_begin(&l->store, false, err)
                                              : rvi_nomem(err, "calibration");
    if (!st) st = rvi_store_end(&l->store, put(l, "replay", &texts, err), err);
    rvi_buf_deinit(&texts);
    return st;
}

/* What is not there, or damaged, is made again when it is needed. */
rv_status rvi_calibration_reopen(rvi_learner *l, rv_error *err)
{
    rvi_buf data = {0};
    rv_error why = {0};
    rvi_replay stored = {0};
    rv_status st = get(l, "replay", &data, err);
    if (!st && data.len && rvi_replay_load(&stored, &l->base, data.data, data.len, &why) &&
        why.code == RV_E_NOMEM)
        st = rvi_nomem(err, "replay texts");
    if (stored.n_portions > l->replay.n_portions) {
        rvi_replay before = l->replay;
        l->replay = stored;
        stored = before;
    }
    rvi_replay_deinit(&stored);
    l->calibrated = !st && rvi_replay_is_whole(&l->replay);
    rvi_buf_deinit(&data);
    return st;
}

/* ---- making ---- */

rv_status rvi_calibrating_make(rvi_calibrating *c, const rvi_learner *l, const rvi_base_model *v,
                               rvi_study_progress_fn progress, void *ctx, rv_error *err)
{
    rvi_study_teller t = {progress, ctx, "the model's own texts"};
    *c = (rvi_calibrating){0};
    if (l->calibrated) return RV_OK;
    rv_status st = v->be->ops->train_reserve(v->be, 1, 1, 1, err);
    if (st) return st; /* texts that nothing could be trained with */
    return rvi_replay_next(&c->replay, &l->replay, v, REPLAY_SEED, rvi_study_tell, &t, err);
}

rv_status rvi_calibrating_save(rvi_calibrating *c, rvi_learner *l, rv_error *err)
{
    if (c->replay.n_portions <= l->replay.n_portions) return RV_OK; /* by another call meanwhile */
    rv_status st = save(l, &c->replay, err);
    if (st) return st;
    rvi_replay before = l->replay;
    l->replay = c->replay;
    c->replay = before;
    l->calibrated = rvi_replay_is_whole(&l->replay);
    return RV_OK;
}

void rvi_calibrating_deinit(rvi_calibrating *c)
{
    rvi_replay_deinit(&c->replay);
    *c = (rvi_calibrating){0};
}

rv_status rvi_learner_calibrate(rvi_learner *l, rvi_study_progress_fn progress, void *ctx,
                                rv_error *err)
{
    rv_status st = RV_OK;
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
