/* learner_internal.h - what the files of the learner share among themselves.
 *
 *   learner.c       its life, and what it says about itself
 *   lessons.c       feedback that teaches, and that takes back
 *   route.c         from a request to what takes part in its answer
 *   adapter_sets.c  the sets of adapters that sessions hold
 *   generations.c   adapters once they are published
 *   consolidate.c   from what waits to a new generation */
#ifndef RVI_LEARN_LEARNER_INTERNAL_H
#define RVI_LEARN_LEARNER_INTERNAL_H

#include "learn/learner.h"

enum { RVI_MAX_ADAPTERS = 64 }; /* of a set */

/* lessons.c */
void rvi_lesson_deinit(rvi_lesson *x);
void rvi_preference_deinit(rvi_preference *p);
rvi_feedback rvi_learner_event(const rvi_learner *l, rvi_feedback_kind kind); /* of its user */
rv_adaptation rvi_adaptation_new(rv_learn_loop loop); /* nothing done, nothing measured */

/* route.c */
void rvi_learner_drop_gate(rvi_learner *l);

/* adapter_sets.c */
/* The set of these adapters, held for the caller; n 0: NULL. */
rv_status rvi_learner_hold(rvi_learner *l, const rvi_adapter *const *adapters, int n,
                           rvi_made_set **out, rv_error *err) RVI_MUST_CHECK;
void rvi_learner_free_sets(rvi_learner *l); /* whoever holds them */

/* generations.c */
void rvi_generations_settle(rvi_learner *l); /* which generation replaces which */
void rvi_learner_go_back(rvi_learner *l, uint64_t to); /* generations of higher numbers are gone */
bool rvi_generation_active(const rvi_generation *g);
/* Was the lesson taught to it, or to one that it replaced? */
bool rvi_generation_holds(const rvi_learner *l, const rvi_generation *g, const rvi_lesson *x);
bool rvi_merge_gated(const rvi_learner *l, const rvi_generation *g); /* by its parents */

#endif
