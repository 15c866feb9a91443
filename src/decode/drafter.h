/* drafter.h - guesses by a smaller model: a session of it follows the past of an answer.
 *
 * Its passes take time of their own. They are made as long as one more guess is expected to bring
 * more than it costs; where that is not so, they are tried again after a while, each time after a
 * longer one. */
#ifndef RVI_DECODE_DRAFTER_H
#define RVI_DECODE_DRAFTER_H

#include "decode/draft.h"
#include "decode/engine.h"

typedef struct rvi_drafter {
    rvi_session *by; /* borrowed; NULL: none */
    double seconds;  /* of one pass, a moving average */
    int n_paused;    /* tokens until it is tried again, */
    int pause;       /* and how many that were the last time */
} rvi_drafter;

/* RV_OK if both have the same tokens: ids of one mean the same to the other. */
rv_status rvi_drafter_check(const rvi_engine *e, const rvi_engine *by,
                            rv_error *err) RVI_MUST_CHECK;
/* Guesses what follows s->past. b and step: of the engine that will check it. What fails is no
 * guess, and nothing else. */
void rvi_drafter_guess(rvi_drafter *w, rvi_draft *d, const rvi_session *s, int most,
                       const rvi_budget *b, const rvi_draft_step *step, bool any_cost);

#endif
