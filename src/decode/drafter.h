/* drafter.h - guesses by a smaller model: a session of it follows the past of an answer.
 *
 * Its passes take time of their own. They are made as long as one more guess is expected to bring
 * more than it costs; where that is not so, they are tried again after a while, each time after a
 * longer one. There is an account as in draft.h, too: its passes, and reading what came while it
 * rested, cost steps by their time, right guesses earn steps, and what is not in it is not spent. A
 * model that does not pay is so left alone for good. Only that it reads the prompt is free. */
#ifndef RVI_DECODE_DRAFTER_H
#define RVI_DECODE_DRAFTER_H

#include "decode/draft.h"
#include "decode/engine.h"

typedef struct rvi_drafter {
    rvi_session *by; /* borrowed; NULL: none */
    double seconds;  /* of one pass, a moving average, */
    double reading;  /* and of each token where it reads several */
    double credit;   /* steps */
    double spent;    /* seconds of the step at hand */
    bool has_read;   /* the prompt */
    int n_paused;    /* tokens until it is tried again, */
    int pause;       /* and how many that were the last time */
} rvi_drafter;

rvi_drafter rvi_drafter_begin(rvi_session *by); /* NULL: none */

/* RV_OK if both have the same tokens: ids of one mean the same to the other. */
rv_status rvi_drafter_check(const rvi_engine *e, const rvi_engine *by,
                            rv_error *err) RVI_MUST_CHECK;
/* Guesses what follows s->past, instead of what d guessed before; where it rests or fails, that
 * stays. b and step: of the engine that will check it. */
void rvi_drafter_guess(rvi_drafter *w, rvi_draft *d, const rvi_session *s, int most,
                       const rvi_budget *b, const rvi_draft_step *step, bool any_cost);

/* After a step in which n_tried guesses were tried, whoever made them; plain: the seconds of one
 * without guesses. */
void rvi_drafter_settle(rvi_drafter *w, double plain, int n_tried, int n_right);

#endif
