/* credit.h - which tokens go with good scores.
 *
 * A score is of a whole answer; most of the answer's tokens had no part in it. Over many answers it
 * shows which had: where the score rises or falls with how often a token occurs, that token has
 * earned the credit, or the blame. credit = the slope of the advantage over the token's count,
 * least squares with a ridge, shrunk by how far it is from chance, to 0 where it is not beyond it.
 * Old answers fade.
 *
 * A table of fixed size; a token whose place is taken by one that has told something has no credit.
 * Everything is a function of the answers in their order. {0} is an empty one. */
#ifndef RVI_LEARN_CREDIT_H
#define RVI_LEARN_CREDIT_H

#include <stdbool.h>
#include <stdint.h>

#include "decode/capture.h"

enum { RVI_CREDITS = 2048 };

typedef struct rvi_credit_row {
    int32_t id;    /* + 1; 0: none */
    int32_t count; /* in the answer at hand */
    float mean;    /* of the counts */
    float product,
        squares; /* sums of the count's deviation times the advantage, and times itself */
} rvi_credit_row;

typedef struct rvi_credits {
    rvi_credit_row rows[RVI_CREDITS];
    int32_t n_answers;
} rvi_credits;

void rvi_credits_take(rvi_credits *c, const rvi_captured *tokens, int n, double advantage);
/* Advantage for one more of this token in an answer; 0: not known to matter. */
double rvi_credit_of(const rvi_credits *c, int32_t id);
bool rvi_credits_are_sound(const rvi_credits *c); /* as they came from a file */

#endif
