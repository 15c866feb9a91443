/* samples.h - the texts an adapter is trained on, ready for use.
 *
 * A text is tokens with the positions that carry a loss: position p predicts token p + 1. A taught
 * text has cross entropy there; a kept one has the distribution of the base itself (its 32 best
 * tokens and the mass of all others), so that what it says there stays as it is. Layers below the
 * lowest trained one never change: the hidden states they leave are computed once a text and kept
 * as f16 with one scale a row. Prompts begin alike, with the template's frame: its rows are shared
 * by all texts of a batch. */
#ifndef RVI_LEARN_CONSOLIDATE_SAMPLES_H
#define RVI_LEARN_CONSOLIDATE_SAMPLES_H

#include "learn/consolidate/base_model.h"

enum {
    RVI_SAMPLE_TOP = 32,
    RVI_SAMPLE_LOSSES = 24,
    RVI_SAMPLE_TOKENS = 1024,
    RVI_SAMPLES_AT_ONCE = 64
};

typedef struct rvi_sample {
    size_t first; /* of its tokens among ids */
    int n;
    int n_shared;  /* tokens of the frame it begins with: all or 0 */
    size_t losses; /* first of its positions among `at` */
    int n_losses;
    bool keep;        /* the base's own distribution is wanted */
    size_t keeps;     /* keep: first of its targets */
    size_t rows;      /* first of its hidden states */
    double ref_log_p; /* sum over its positions by the base, where refs are wanted */
} rvi_sample;

typedef struct rvi_samples {
    const rvi_base_model *v;
    int lowest;     /* the layer whose input is kept */
    bool want_refs; /* log p of every text by the base */
    rvi_ids ids, at;
    rvi_sample *items;
    size_t n, cap;
    size_t n_ready; /* of them have their hidden states and targets */
    size_t n_rows, n_keeps;
    float *frame_x; /* frame.len x n_embd */
    rvi_f16 *x;     /* rows x n_embd, times x_scale of the row */
    float *x_scale;
    int32_t *top_ids; /* keeps x RVI_SAMPLE_TOP */
    float *top_p;
    rvi_held_weights *weights; /* of a device that v computes on, for trainers; NULL: none */
} rvi_samples;

typedef struct rvi_index { /* numbers of samples; {0} is empty */
    size_t *data;
    size_t n, cap;
} rvi_index;

bool rvi_index_push(rvi_index *x, size_t number); /* false: out of memory */
void rvi_index_deinit(rvi_index *x);

void rvi_samples_init(rvi_samples *t, const rvi_base_model *v, int lowest);
void rvi_samples_deinit(rvi_samples *t);

/* Adds a text, whose number `to` (may be NULL) takes; one without anything to predict is left out.
 * The positions first_loss .. n - 2 carry a loss, RVI_SAMPLE_LOSSES of them spread
 * evenly where there are more (all: every one), of a taught text others than of the one before it.
 * Texts are cut to RVI_SAMPLE_TOKENS, at their end,
 * and where the loss begins late before it. */
rv_status rvi_samples_add(rvi_samples *t, const int32_t *ids, size_t n, size_t first_loss,
                          bool keep, bool all, rvi_index *to, rv_error *err) RVI_MUST_CHECK;
/* The same from words: an answer to a question, ended, or cut to `most` tokens. */
rv_status rvi_samples_teach(rvi_samples *t, const char *question, const char *answer, size_t most,
                            bool all, rvi_index *to, rv_error *err) RVI_MUST_CHECK;
/* Computes hidden states and targets of the texts that lack them, with the base as it is. trainer:
 * one without params (or whose B are all 0). */
rv_status rvi_samples_prepare(rvi_samples *t, rvi_trainer *trainer, int max_rows,
                              rvi_progress_fn progress, void *ctx, rv_error *err) RVI_MUST_CHECK;
void rvi_samples_cut(rvi_samples *t, size_t n); /* keeps the first n */
/* Makes the weights that trainers share, where v's device needs any; they take its memory until
 * they are let go, which must be before another v is used. */
rv_status rvi_samples_hold_weights(rvi_samples *t, rv_error *err) RVI_MUST_CHECK;
void rvi_samples_let_weights_go(rvi_samples *t);

/* ---- batches ---- */

/* Rows of several texts, and their loss positions. */
typedef struct rvi_batch {
    int max_rows, max_texts;
    int32_t *tokens, *loss_rows, *kept;
    size_t *states; /* of each row: its hidden state among those of the texts, or of the frame */
    rvi_span *spans;
    rvi_target *targets;
    int n_rows, n_spans, n_losses;
} rvi_batch;

rv_status rvi_batch_init(rvi_batch *b, int max_rows, int max_texts, rv_error *err) RVI_MUST_CHECK;
void rvi_batch_deinit(rvi_batch *b);
/* As many of the texts which[0..n) as fit, in order; at least one. Targets weigh 1. Then forward up
 * to the head, from the hidden states at t->lowest on: all of them must be ready. Returns how
 * many. */
size_t rvi_batch_run(rvi_batch *b, const rvi_samples *t, const size_t *which, size_t n,
                     rvi_trainer *trainer);

#endif
