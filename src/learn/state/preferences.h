/* preferences.h - of two answers to a question the one that was preferred. */
#ifndef RVI_LEARN_STATE_PREFERENCES_H
#define RVI_LEARN_STATE_PREFERENCES_H

#include "learn/journal/log.h"

typedef struct rvi_preference {
    uint64_t event;
    char *question, *chosen, *rejected;
    int generation;        /* that learned it; 0: it waits */
    uint64_t forgotten_by; /* the event after which it is not known any more; 0: none */
} rvi_preference;

typedef struct rvi_preferences { /* {0} is empty */
    rvi_preference *list;
    size_t n, cap;
} rvi_preferences;

/* event 0: not logged yet. */
rv_status rvi_preferences_add(rvi_preferences *p, uint64_t event, rvi_text question,
                              rvi_text chosen, rvi_text rejected, rv_error *err) RVI_MUST_CHECK;
/* Does it wait for a deep run? */
bool rvi_preference_waits(const rvi_preference *x);
/* Takes out one that no adapter was made of; false: there is none. */
bool rvi_preferences_remove(rvi_preferences *p, uint64_t event);
/* The one that the event names, or all with its text in their question or answers; *n: becomes so
 * many more. What cannot be looked at is not known any more either. */
rv_status rvi_preferences_forget(rvi_preferences *p, const rvi_feedback *f, int *n,
                                 rv_error *err) RVI_MUST_CHECK;
/* An event of the log as it was when it came. */
rv_status rvi_preferences_apply(rvi_preferences *p, const rvi_feedback *f,
                                rv_error *err) RVI_MUST_CHECK;
void rvi_preferences_deinit(rvi_preferences *p);

#endif
