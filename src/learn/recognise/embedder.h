/* embedder.h - the sentence encoder that tells what the words of a text mean: all-MiniLM-L6-v2, the
 * one that the judge's weights (judge.h) were trained with.
 *
 * Owns a workspace and pages; model, tokenizer and backend are borrowed and outlive it. One thread
 * at a time, and it computes on the backend.
 *
 * A request takes several passes, each of which depends on what came out of those before. So that
 * others have their turns between them, an embedder may be held to some rows: what would exceed
 * them fails, and whoever asked begins anew later. What was computed meanwhile is remembered, so
 * that it comes further each time, with the same results. */
#ifndef RVI_LEARN_RECOGNISE_EMBEDDER_H
#define RVI_LEARN_RECOGNISE_EMBEDDER_H

#include "model/model.h"
#include "tokenizer/tokenizer.h"

enum {
    RVI_EMBEDDER_WIDTH = 384,
    RVI_EMBEDDER_LAYERS = 6,
    RVI_EMBEDDER_VOCABULARY = 30522,
    RVI_EMBEDDER_MIDDLE = 4, /* layers before the states that are read beside the final ones */
    RVI_EMBEDDER_TOKENS = 126,
    RVI_EMBEDDER_COMPARED = 62, /* tokens of a text that is compared with another */
    RVI_EMBEDDER_PAIRS = 4,
};

typedef struct rvi_embedder rvi_embedder;

/* RV_E_MODEL: another model than the judge knows. */
rv_status rvi_embedder_new(rvi_embedder **out, const rvi_model *m, const rvi_tokenizer *t,
                           rvi_backend *be, rv_error *err) RVI_MUST_CHECK;
void rvi_embedder_free(rvi_embedder *e); /* accepts NULL */

const rvi_tokenizer *rvi_embedder_tokenizer(const rvi_embedder *e);

/* From now on passes have n rows in all, or are one: what needs more fails with RV_E_BUSY. n < 0:
 * as many as it takes. */
void rvi_embedder_hold(rvi_embedder *e, int n);
bool rvi_embedder_was_held(const rvi_embedder *e); /* something failed because of it */
void rvi_embedder_forget(rvi_embedder *e);         /* what was remembered */

/* The states of a text's tokens, n <= RVI_EMBEDDER_TOKENS without those that stand around a text:
 * after the middle layer and after the last, n x width each; and the mean of the last states, with
 * those around the text, scaled to length 1. */
rv_status rvi_embedder_read(rvi_embedder *e, const int32_t *ids, size_t n, float *middle,
                            float *last, float *mean, rv_error *err) RVI_MUST_CHECK;

/* Two texts, at most RVI_EMBEDDER_COMPARED tokens each. */
typedef struct rvi_embedder_pair {
    const int32_t *a, *b;
    size_t n_a, n_b;
    float odds; /* the logarithm of the odds that b asks for the same as a */
} rvi_embedder_pair;

/* Sets the odds of at most RVI_EMBEDDER_PAIRS pairs: reads the texts of each together, with an
 * adapter that was trained to tell. Pairs that are compared in one call cost less than one by
 * one, and their odds are the same. */
rv_status rvi_embedder_compare(rvi_embedder *e, rvi_embedder_pair *pairs, size_t n,
                               rv_error *err) RVI_MUST_CHECK;

#endif
