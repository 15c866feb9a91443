/* draft.h - guesses of an answer's next tokens, to be checked as rows of one step.
 *
 * A row's result does not depend on the rows beside it, so the logits behind a guess are those that
 * the answer would get one token at a time, if the guess is right. The sampler draws each token
 * from its own row as ever; a guess is right if it is the token that was drawn, and a wrong one is
 * forgotten together with the rows behind it. Text, probabilities and random numbers are those of
 * an answer without guesses; only the number of steps differs.
 *
 * What is not guessed well costs rows for nothing. So every guess is of a kind, by how much speaks
 * for it, and the answer counts how often those of a kind were right: also of guesses that were
 * looked up and not tried. A step takes as many as make its tokens a second the most, by the times
 * that steps of so many rows took. Times are rough on a busy machine, so there is an account, too:
 * a guess that is tried costs a part of a step, one that is right earns a step, and every step
 * earns a hundredth. What is not in the account is not spent, which bounds the loss whatever the
 * times say. */
#ifndef RVI_DECODE_DRAFT_H
#define RVI_DECODE_DRAFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "decode/budget.h"

enum { RVI_DRAFT_MOST = 15, RVI_DRAFT_KINDS = 22 };

/* {0}, then rvi_draft_init. */
typedef struct rvi_draft {
    int32_t ids[RVI_DRAFT_MOST]; /* what may come next */
    uint8_t kinds[RVI_DRAFT_MOST];
    int n;
    float right[RVI_DRAFT_KINDS], tried[RVI_DRAFT_KINDS];
    float credit; /* steps */
} rvi_draft;

void rvi_draft_init(rvi_draft *d);

/* Looks for the longest end of past that occurs in it before, and guesses what followed there; the
 * kind is the length of what agrees. At most `most` guesses. */
void rvi_draft_repeat(rvi_draft *d, const int32_t *past, size_t n_past, int most);
/* Guesses these ids, which somebody knows to be meant. */
void rvi_draft_known(rvi_draft *d, const int32_t *ids, size_t n, int most);

/* One guess more, by a model that gives it the probability p; the kind is a class of p. */
void rvi_draft_add(rvi_draft *d, int32_t id, double p);
double rvi_draft_usual(const rvi_draft *d); /* how often a model's guesses are right */

double rvi_draft_chance(const rvi_draft *d, int i); /* of guess i, if all before it are right */
void rvi_draft_learn(rvi_draft *d, int i, bool right);
/* After a step in which n_tried guesses were tried. */
void rvi_draft_settle(rvi_draft *d, int n_tried, int n_right);

/* What a step is expected to bring: its rows without those of prompts, and the tokens of them. */
typedef struct rvi_draft_step {
    int n_rows;
    double tokens;
} rvi_draft_step;

/* How many of the guesses, `most` at most, are worth their rows in this step; adds them to it. */
int rvi_draft_choose(const rvi_draft *d, const rvi_budget *b, int most, rvi_draft_step *step);

#endif
