/* preferences.h - of two answers to a question the one that was preferred. */
#ifndef RVI_LEARN_STATE_PREFERENCES_H
#define RVI_LEARN_STATE_PREFERENCES_H

#include "learn/journal/log.h"

typedef struct rvi_preference {
    uint64_t event;
    char *question, *chosen, *rejected;
    bool used; /* an adapter was made of it, or it must not be learned from */
} rvi_preference;

typedef struct rvi_preferences { /* {0} is empty */
    rvi_preference *list;
    size_t n, cap;
} rvi_preferences;

/* event 0: not logged yet. */
rv_status rvi_preferences_add(rvi_preferences *p, uint64_t event, const char *question,
                              const char *chosen, const char *rejected,
                              rv_error *err) RVI_MUST_CHECK;
/* Takes out one that no adapter was made of; false: there is none. */
bool rvi_preferences_remove(rvi_preferences *p, uint64_t event);
/* An event of the log as it was when it came. */
rv_status rvi_preferences_apply(rvi_preferences *p, const rvi_feedback *f,
                                rv_error *err) RVI_MUST_CHECK;
void rvi_preferences_deinit(rvi_preferences *p);

#endif
