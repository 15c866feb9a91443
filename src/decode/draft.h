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
 * that steps of so many rows took. Chances are rough, so there is an account, too: guesses that
 * were tried cost what their rows added to the time of a step, as it was measured, a quarter of a
 * step each at least; one that is right earns a step, and every step earns a hundredth. What is not
 * in the account is not spent, which bounds the loss whatever the chances were.
 *
 * Guesses form a tree: beside the way that is most likely there are others, which leave it behind
 * some of its guesses (sides). A step takes those of its guesses that are most likely, be they on
 * one way or on several; all are checked in one pass, each row seeing its own way alone. */
#ifndef RVI_DECODE_DRAFT_H
#define RVI_DECODE_DRAFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "decode/budget.h"

enum { RVI_DRAFT_MOST = 15, RVI_DRAFT_SIDES = 3, RVI_DRAFT_KINDS = 26 };

typedef struct rvi_draft_way {
    int32_t ids[RVI_DRAFT_MOST]; /* what may come next */
    uint8_t kinds[RVI_DRAFT_MOST];
    int n, n_taken; /* guesses, and those of them that are rows of the step */
    int at;         /* a side: how many guesses of the first way come before it */
} rvi_draft_way;

/* {0}, then rvi_draft_init. */
typedef struct rvi_draft {
    rvi_draft_way first, sides[RVI_DRAFT_SIDES];
    int n_sides;
    float right[RVI_DRAFT_KINDS], tried[RVI_DRAFT_KINDS];
    float credit; /* steps */
    int n_plain;  /* rows of the step without its own guesses */
} rvi_draft;

void rvi_draft_init(rvi_draft *d);

void rvi_draft_clear(rvi_draft *d); /* no guesses; what was learned stays */
/* Looks for the longest end of past that occurs in it before, and guesses what followed there; the
 * kind is the length of what agrees. Where something else followed at other places, these are
 * sides. At most `most` guesses on a way. */
void rvi_draft_repeat(rvi_draft *d, const int32_t *past, size_t n_past, int most);
/* Guesses these ids, which somebody knows to be meant. */
void rvi_draft_known(rvi_draft *d, const int32_t *ids, size_t n, int most);

/* One guess more, by a model that gives it the probability p; the kind is a class of p. */
void rvi_draft_add(rvi_draft *d, int32_t id, double p);
/* What may come instead of the next guess that is added. */
void rvi_draft_add_side(rvi_draft *d, int32_t id, double p);
double rvi_draft_usual(const rvi_draft *d); /* how often a model's guesses are right */

/* Of guess i of a way, if all before it are right. */
double rvi_draft_chance(const rvi_draft *d, const rvi_draft_way *w, int i);
void rvi_draft_learn(rvi_draft *d, const rvi_draft_way *w, int i, bool right);
/* After a step in which n_tried guesses were tried; b knows its time already. */
void rvi_draft_settle(rvi_draft *d, const rvi_budget *b, int n_tried, int n_right);

/* What a step is expected to bring: its rows without those of prompts, and the tokens of them. */
typedef struct rvi_draft_step {
    int n_rows;
    double tokens;
} rvi_draft_step;

/* Takes those of the guesses, `most` at most, that are worth their rows in this step (n_taken of
 * each way), and adds them to it. Returns how many they are. */
int rvi_draft_choose(rvi_draft *d, const rvi_budget *b, int most, rvi_draft_step *step);
/* Takes as many as fit, whatever they cost. */
int rvi_draft_take_all(rvi_draft *d, int most);

#endif
