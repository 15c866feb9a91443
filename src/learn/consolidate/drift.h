/* drift.h - how far adapters, as they are served, move a model on the probe texts. */
#ifndef RVI_LEARN_CONSOLIDATE_DRIFT_H
#define RVI_LEARN_CONSOLIDATE_DRIFT_H

#include "learn/consolidate/replay.h"

/* Mean over the positions with a loss of KL(model alone || model with set), nats a token, in the
 * arithmetic of serving. Half self-made texts, half prose. */
rv_status rvi_drift(const rvi_replay *r, const rvi_base_model *v, const rvi_adapter_set *set,
                    double *kl, rv_error *err) RVI_MUST_CHECK;

#endif
