/* refusals.h - requests that got the wrong answer: a thumb down, or a correction of a lesson that
 * was spoken.
 *
 * Where the same is asked again, after a thumb down, the answer does not go on as the one that got
 * it did (decode/answer.h); where that was a lesson's, lessons from before it are not spoken. Nor
 * is that lesson where a request is nearer to the refused one than to the lesson's own question
 * (learner/route.c). */
#ifndef RVI_LEARN_STATE_REFUSALS_H
#define RVI_LEARN_STATE_REFUSALS_H

#include "decode/answer.h"
#include "learn/journal/log.h"

enum { RVI_REFUSALS_MAX = 1024 }; /* the oldest go first */

typedef struct rvi_refusal {
    uint64_t event;
    char *request;
    uint64_t lesson; /* that was spoken: its event; 0: none */
    char *avoid;     /* of a thumb down: how the answer began; NULL: unknown */
    size_t branch;
} rvi_refusal;

typedef struct rvi_refusals { /* {0} is empty */
    rvi_refusal *list;        /* in the order of their events */
    size_t n, cap;
    uint64_t n_changes;
} rvi_refusals;

/* Texts are copied. event 0: not logged yet. branch: as an event has it (journal/log.h), 0: it is
 * not known how the answer began. */
rv_status rvi_refusals_add(rvi_refusals *r, uint64_t event, uint64_t lesson, rvi_text request,
                           rvi_text avoid, uint64_t branch, rv_error *err) RVI_MUST_CHECK;
void rvi_refusals_remove(rvi_refusals *r, uint64_t event); /* a missing one is no error */
const rvi_refusal *rvi_refusals_find(const rvi_refusals *r, uint64_t event); /* NULL: unknown */
/* Was what a lesson said to this request refused after that event? */
bool rvi_refusals_since(const rvi_refusals *r, const char *request, uint64_t event);
/* How answers to this request must not go on: up to max; returns how many. Texts are borrowed. */
size_t rvi_refusals_avoids(const rvi_refusals *r, const char *request, rvi_avoid *out, size_t max);
/* An event of the log as it was when it came. */
rv_status rvi_refusals_apply(rvi_refusals *r, const rvi_feedback *f, rv_error *err) RVI_MUST_CHECK;
void rvi_refusals_deinit(rvi_refusals *r);

#endif
