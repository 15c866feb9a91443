/* history.h - the events that undo can take back, newest last. */
#ifndef RVI_LEARN_STATE_HISTORY_H
#define RVI_LEARN_STATE_HISTORY_H

#include "learn/journal/log.h"

typedef struct rvi_done {
    rvi_feedback_kind kind; /* CORRECTION, SCORE, THUMB or ROLLBACK */
    uint64_t event;
    bool own; /* by this learner, not read from the log */
} rvi_done;

typedef struct rvi_history { /* {0} is empty */
    rvi_done *list;
    size_t n, cap;
} rvi_history;

/* Room for one more, so that the next note cannot fail: before an event is logged. */
rv_status rvi_history_reserve(rvi_history *h, rv_error *err) RVI_MUST_CHECK;
void rvi_history_note(rvi_history *h, const rvi_feedback *f);
void rvi_history_take_out(rvi_history *h, uint64_t event); /* taken back, or forgotten */
/* An event of the log as it was when it came; what a forgetting forgot, its owners know. */
rv_status rvi_history_apply(rvi_history *h, const rvi_feedback *f, rv_error *err) RVI_MUST_CHECK;
void rvi_history_deinit(rvi_history *h);

#endif
