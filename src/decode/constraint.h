/* constraint.h - what the text of an answer may be, as decode sees it.
 *
 * Someone else knows the language (api/constrain.c: a grammar); decode keeps where in it an answer
 * is, masks the logits before a token is picked, and says which token came. Tokens that come in any
 * case are not picked at all. Before an answer runs out of tokens, it is brought to its end. */
#ifndef RVI_DECODE_CONSTRAINT_H
#define RVI_DECODE_CONSTRAINT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "tokenizer/tokenizer.h"

enum { RVI_MAX_FORCED = 2048 /* tokens that are asked for at once */ };

/* States are the language's; 0 is none. Called by the thread that advances answers. */
typedef struct rvi_constraint {
    /* Bit i % 64 of mask[i / 64]: token i may come. */
    rv_status (*mask)(void *ctx, uint32_t state, uint64_t *mask, size_t n_words, rv_error *err);
    /* *next: the state behind the token, 0 if that ended the text. *complete: nothing that means
     * anything can follow. */
    rv_status (*accept)(void *ctx, uint32_t state, int32_t token, uint32_t *next, bool *complete,
                        rv_error *err);
    /* The same, for a token that may not come after all. */
    rv_status (*peek)(void *ctx, uint32_t state, int32_t token, uint32_t *next, rv_error *err);
    /* The tokens that come in any case, *n of them, at most RVI_MAX_FORCED. */
    rv_status (*force)(void *ctx, uint32_t state, int32_t *ids, size_t *n, rv_error *err);
    /* Tokens with which the text may end, *n of them, be it none; false: no such were found. */
    rv_status (*finish)(void *ctx, uint32_t state, int32_t *ids, size_t *n, bool *found,
                        rv_error *err);
    void (*release)(void *ctx); /* the answer is gone */
    void *ctx;
    uint32_t state;        /* where the answer begins */
    const int32_t *spoken; /* control tokens that are part of the answer's text; valid until
                                 released */
    size_t n_spoken;
} rvi_constraint;

/* Where an answer is. */
typedef struct rvi_bound {
    rvi_constraint by;
    uint32_t state;
    bool complete;
    uint64_t *mask; /* [n_words] of the state, once it was asked for */
    size_t n_words;
    int32_t forced[RVI_MAX_FORCED]; /* the next tokens, n_taken of which have come */
    size_t n_forced, n_taken;
    bool asked;   /* for the forced tokens of this state */
    bool ending;  /* the forced tokens are its last */
    int unused;   /* tokens that may be left over by min_tokens, */
    int spare;    /* and by ending in time, */
    int check_at; /* and how many are left when it is to look whether that is now */
    int near;     /* with how many left a token is looked at before it comes */
} rvi_bound;

/* n_vocab: of the logits; min_tokens, max_tokens: of the answer. Takes the constraint over, unless
 * it fails. */
rv_status rvi_bound_new(rvi_bound **out, const rvi_constraint *by, int n_vocab, int min_tokens,
                        int max_tokens, rv_error *err) RVI_MUST_CHECK;
void rvi_bound_free(rvi_bound *b); /* accepts NULL */

/* The token that must come next, be it that the answer would not end in time otherwise; -1: there
 * is a choice. left: how many may still come. */
rv_status rvi_bound_force(rvi_bound *b, int left, int32_t *id, rv_error *err) RVI_MUST_CHECK;
/* A token was picked, from these logits by the mask, with which the answer would not end in time:
 * it becomes the first one of those with which it does, or -1, where it may end here; while that
 * would be before min_tokens, the likeliest with which it goes on, if one is found. */
rv_status rvi_bound_reconsider(rvi_bound *b, int left, const float *logits, size_t n_vocab,
                               int32_t *id, rv_error *err) RVI_MUST_CHECK;
/* Finds out which tokens may come next: the mask that the next two are about. */
rv_status rvi_bound_look(rvi_bound *b, rv_error *err) RVI_MUST_CHECK;
/* Whether the mask leaves nothing but these. */
bool rvi_bound_leaves_only(const rvi_bound *b, const rvi_ids *ids);
void rvi_bound_apply(const rvi_bound *b, float *logits, size_t n_vocab);
/* How many of these may come, one behind the other, from states[0] on; writes the states behind
 * them. */
int rvi_bound_count_allowed(const rvi_bound *b, const int32_t *ids, int n, uint32_t *states);
/* A token came. */
rv_status rvi_bound_accept(rvi_bound *b, int32_t token, rv_error *err) RVI_MUST_CHECK;

#endif
