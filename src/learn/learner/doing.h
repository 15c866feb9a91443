/* doing.h - what a learner's background thread does, and how far it is, for whoever asks, on any
 * thread. */
#ifndef RVI_LEARN_LEARNER_DOING_H
#define RVI_LEARN_LEARNER_DOING_H

#include <stdatomic.h>

typedef struct rvi_doing {       /* texts are constants */
    _Atomic(const char *) what;  /* NULL: there is no such thread */
    _Atomic(const char *) stage; /* of it; NULL: none yet */
    atomic_int n;                /* lessons or pairs that it is about */
    atomic_int done, total;      /* of the stage, */
    atomic_int begun_at;         /* which began with so much done, */
    atomic_llong begun_ms;       /* at this time */
} rvi_doing;

void rvi_doing_begin(rvi_doing *d, const char *what, int n);
void rvi_doing_report(rvi_doing *d, const char *stage, int done, int total);
/* Seconds until the stage ends, if it goes on as it went; negative: nobody knows. */
double rvi_doing_remaining(const rvi_doing *d);

#endif
