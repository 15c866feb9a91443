/* draw.h - what a device says of a row of logits instead of the logits, for picking a token.
 *
 * Shared by the C side and the kernels. Everything in it is exact: the ids and logits are the row's
 * own, and the sums are those that the host makes of the same logits, bit for bit, because their
 * operations and orders are written down:
 *
 *  weight   exp(s - s_best) by the polynomial of decode/sampler_set.c, where s is the logit after
 *           the temperature: (logit - shift) / temperature, no lower than the lowest finite float;
 *           shift is 0, or the best logit where its quotient would not be finite
 *  exp      exp(logit - best) by the polynomial of decode/logprobs.c
 *  sum      of the first n of a row, in doubles: blocks of RVI_SUM_BLOCK elements, of which lane j
 *           of RVI_SUM_LANES adds those at j, j + 8, ...; lanes are added as a tree, what does not
 *           fill all lanes comes behind that, one after the other; blocks are added in order to
 *           runs of RVI_SUM_RUN elements, runs in order to the sum
 *  drawn    of the weights: the token at random * sum, found run by run, then block by block, then
 *           one by one, each of which is taken away from it (draw of decode/sampler.c) */
#ifndef RVI_BACKEND_DRAW_H
#define RVI_BACKEND_DRAW_H

#include <stdint.h>

enum {
    RVI_SUM_LANES = 8,
    RVI_SUM_BLOCK = 256,
    RVI_SUM_RUN = 16 * RVI_SUM_BLOCK,
    RVI_DRAW_LEAST = 256, /* of the highest logits, in a vocabulary of 4096 or more */
    RVI_DRAW_MOST = 1024,
};

enum { /* of a row, besides the most likely token */
       RVI_DRAW_TOP = 1,
       RVI_DRAW_WEIGHTS = 2,
       RVI_DRAW_EXPS = 4,
       RVI_DRAW_LOGITS = 8, /* all of them; for those who ask a device, which does not see it */
};

typedef struct rvi_draw_ask {
    double random; /* RVI_DRAW_WEIGHTS: in [0, 1), draws a token; negative: none is drawn */
    float temperature;
    int32_t wants;
} rvi_draw_ask;

typedef struct rvi_drawn {
    double weights, exps; /* sums; weights: of all tokens, if `possible` */
    float best_logit;     /* the largest, */
    int32_t best;         /* and its first token; -1: a logit is NaN or infinite, or all are
                              -INFINITY: nothing else counts then */
    int32_t possible;     /* 1: no logit is -INFINITY */
    int32_t drawn;        /* -1: none */
    float drawn_logit;    /* its logit */
    int32_t n;            /* of the highest logits; -1: more than RVI_DRAW_MOST. A token that is
                              not among them has a lower logit than each of them. */
    int32_t ids[RVI_DRAW_MOST]; /* ascending */
    float logits[RVI_DRAW_MOST];
} rvi_drawn;

#endif
