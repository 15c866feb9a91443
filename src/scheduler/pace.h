/* pace.h - how fast long prompts are read beside streams. Steps without rows of prompts tell how
 * long a stream waits for its next token anyway, steps with some what a row of a prompt costs,
 * which grows with what lies before it; rows of long prompts make steps longer by no more than a
 * part. Far into a prompt even one row makes a step long, for all that lies before it is read; then
 * a step in many takes rows, up to the target, so that prompts have less than their part of the
 * time and 95 % of all steps have no such rows. */
#ifndef RVI_SCHEDULER_PACE_H
#define RVI_SCHEDULER_PACE_H

#include <stdbool.h>

/* {0} knows nothing. */
typedef struct rvi_pace {
    double plain; /* seconds, a moving average, of steps of tokens alone; 0: there was none */
    double row;   /* seconds, the same, that each row of a long prompt adds; 0: not known */
    int n_plain;  /* steps of tokens alone since the last with rows of prompts */
    int n_tokens; /* that the last step of tokens alone had, */
    int n_since;  /* and steps since then */
    bool alone;   /* in the next step nobody reads but long prompts, at this pace */
} rvi_pace;

/* A step of n_rows, n_tokens of them tokens of streams, took so long. */
void rvi_pace_note(rvi_pace *p, int n_tokens, int n_rows, double seconds);
/* How many rows of n_long prompts may go with n_tokens > 0 in the next step, which is to take
 * `target` seconds at most. 0: none do this time, for the step is to be measured, which is so where
 * too little is known and now and then, or because few rows at a time would cost too much. */
int rvi_pace_rows(const rvi_pace *p, int n_tokens, int n_long, int max_rows, double target);

#endif
