/* held.h - a model's linear layers packed for training (rvi_backend_ops.held_new). Trainers that
 * follow each other on one device share them: to make them takes as long as several steps. */
#ifndef RVI_MODEL_HELD_H
#define RVI_MODEL_HELD_H

#include "model/model.h"

typedef struct rvi_held_weights {
    rvi_backend *be;
    rvi_held **by_slot;
    int n_slots;
    rvi_pack *pack; /* their memory */
} rvi_held_weights;

/* Layers from `first` on; those from `back` on, and the head, for the backward too. back beyond the
 * last layer: none, nor the head. */
typedef struct rvi_held_range {
    int first, back;
} rvi_held_range;

size_t rvi_held_weights_bytes(const rvi_model *m, rvi_backend *be, rvi_held_range range);
/* bytes: of the function above, more than 0. */
rv_status rvi_held_weights_new(rvi_held_weights **out, const rvi_model *m, rvi_backend *be,
                               rvi_held_range range, size_t bytes, rv_error *err) RVI_MUST_CHECK;
void rvi_held_weights_free(rvi_held_weights *w); /* accepts NULL */

#endif
