/* trainer.h - the layers of block.c in float arithmetic over whole texts, and their backward.
 *
 * A batch is rows of texts (spans, backend.h). The forward keeps every trained layer's input; the
 * backward computes a layer once more from it (or reads what was kept, without checkpointing) and
 * adds the gradients of the adapter's matrices. Frozen weights may be of any type. Nothing here
 * allocates after rvi_trainer_new. One thread at a time uses a trainer; it only reads the model,
 * and no other thread may compute on its backend at the same time. Decoders only. */
#ifndef RVI_MODEL_TRAINER_H
#define RVI_MODEL_TRAINER_H

#include "lora/params.h"
#include "model/held.h"

typedef struct rvi_trainer rvi_trainer;

typedef struct rvi_trainer_options {
    int max_rows, max_spans;
    int max_losses;   /* rows through the head at a time; more are taken in turns */
    int lowest;       /* layer that the backward reaches: layers below are frozen */
    bool keep_layers; /* keep what a layer computed instead of computing it again, if that takes
                         no more than an eighth of the free memory: a fifth faster */
    const rvi_held_weights *weights; /* of the same model and backend: all layers, for the backward
                                        from `lowest` on; NULL: it makes its own where it needs
                                        them */
} rvi_trainer_options;

typedef void (*rvi_columns_fn)(void *ctx, int row, int first, int n, float *out);

/* be may differ from the model's. params (with grads of the same shape) may be NULL: forward
 * only. */
rv_status rvi_trainer_new(rvi_trainer **out, const rvi_model *m, rvi_backend *be,
                          const rvi_params *params, rvi_params *grads, const rvi_trainer_options *o,
                          rv_error *err) RVI_MUST_CHECK;
void rvi_trainer_free(rvi_trainer *t); /* accepts NULL */
/* Bytes of tensors that one takes at least, with gradients; no less than it is. */
size_t rvi_trainer_least_bytes(const rvi_model *m, const rvi_trainer_options *o);

/* The texts of the next forward; tokens[row] for every row of the spans. Where rotary frequencies
 * depend on a text's length (longrope), texts that share their beginning count as long as the
 * longest of them: those on both sides of the bound should not share it. */
void rvi_trainer_begin(rvi_trainer *t, const int32_t *tokens, const rvi_span *spans, int n_spans);
int rvi_trainer_rows(const rvi_trainer *t);
/* The residual stream of a row, before the final norm: to start above frozen layers, and to read it
 * after a forward (a backward leaves it as it is). */
void rvi_trainer_set_x(rvi_trainer *t, int row, const float *x);
/* The same for all rows of the texts: x(ctx, row, first, n, out) writes n columns from `first` on.
 * It is called on the backend's threads, several at once. */
void rvi_trainer_fill_x(rvi_trainer *t, rvi_columns_fn x, void *ctx);
void rvi_trainer_get_x(rvi_trainer *t, float *x); /* of all rows of the texts */
/* Layers first .. last - 1; first 0 begins with the tokens' embeddings, another with the x that
 * were set. The adapter takes part where it has matrices. */
void rvi_trainer_forward(rvi_trainer *t, int first, int last);

/* Targets of rows of the last forward, which reached the last layer. Fills their losses; with grad
 * also adds to the gradient at the top (rvi_trainer_begin clears it). */
void rvi_trainer_loss(rvi_trainer *t, const int32_t *rows, rvi_target *targets, int n, bool grad);
/* The k largest logits of a row as log probabilities (ids and log p, largest first), for KL
 * targets; k <= n_vocab. */
void rvi_trainer_top(rvi_trainer *t, const int32_t *rows, int n, int k, int32_t *ids, float *log_p);
/* From the gradient at the top down to o.lowest: adds to grads. */
void rvi_trainer_backward(rvi_trainer *t);
/* d loss / d x of a row at layer o.lowest's input, after a backward. */
void rvi_trainer_get_dx(rvi_trainer *t, int row, float *dx);

#endif
