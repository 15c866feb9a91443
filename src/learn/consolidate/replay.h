/* replay.h - what a model says by itself, made once for each model: the texts on which an adapter
 * must not change it.
 *
 *  general   the model writes a user's turn and answers it; and free texts
 *  probe     some of the general texts and passages of prose, never trained on: how far it drifted
 * Made in portions, so that whoever is stopped goes on with the next one; the result is the same.
 * Immutable once made. */
#ifndef RVI_LEARN_CONSOLIDATE_REPLAY_H
#define RVI_LEARN_CONSOLIDATE_REPLAY_H

#include "learn/consolidate/base_model.h"

typedef enum rvi_replay_kind { RVI_GENERAL, RVI_PROBE, RVI_PROSE } rvi_replay_kind;

typedef struct rvi_replay_text {
    uint32_t first, n; /* tokens */
    uint32_t loss;     /* first position with a loss */
    uint32_t kind;
} rvi_replay_text;

enum { RVI_REPLAY_PORTIONS = 3 };

typedef struct rvi_replay { /* {0} is empty */
    rvi_ids ids;
    rvi_replay_text *pieces;
    size_t n_pieces;
    rvi_buf contexts; /* short unrelated sentences, each with a 0 byte behind it */
    size_t n_contexts;
    size_t n_portions; /* that are in it */
} rvi_replay;

bool rvi_replay_is_whole(const rvi_replay *r);
/* A copy, with the next portion in it: some seconds for a small model. progress tells of all
 * portions. */
rv_status rvi_replay_next(rvi_replay *out, const rvi_replay *before, const rvi_base_model *v,
                          uint64_t seed, rvi_progress_fn progress, void *ctx,
                          rv_error *err) RVI_MUST_CHECK;
void rvi_replay_deinit(rvi_replay *r);
bool rvi_replay_save(const rvi_replay *r, rvi_buf *out);
/* data may be anything: what does not fit together is RV_E_STORAGE. */
rv_status rvi_replay_load(rvi_replay *out, const rvi_base_model *v, const void *data, size_t len,
                          rv_error *err) RVI_MUST_CHECK;
size_t rvi_replay_count(const rvi_replay *r, rvi_replay_kind kind);
const char *rvi_replay_context(const rvi_replay *r, size_t i);

#endif
