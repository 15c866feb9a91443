/* pace.h - how fast long prompts are read beside streams. Steps without rows of prompts tell how
 * long a stream waits for its next token anyway, steps with some what a row of a prompt costs,
 * which grows with what lies before it; rows of long prompts make steps longer by no more than a
 * part. */
#ifndef RVI_SCHEDULER_PACE_H
#define RVI_SCHEDULER_PACE_H

/* {0} knows nothing. */
typedef struct rvi_pace {
    double plain; /* seconds, a moving average, of steps of tokens alone; 0: there was none */
    double row;   /* seconds, the same, that each row of a long prompt adds; 0: not known */
    int n_tokens; /* that the last step of tokens alone had, */
    int n_since;  /* and steps since then */
    int n_given;  /* what rvi_pace_rows said last */
} rvi_pace;

/* A step of n_rows, n_tokens of them tokens of streams, took so long. */
void rvi_pace_note(rvi_pace *p, int n_tokens, int n_rows, double seconds);
/* How many rows of n_long prompts may go with n_tokens > 0 in the next step, which is to take
 * `target` seconds at most. 0: none do this time, for the step is to be measured; that is so where
 * too little is known, and now and then. */
int rvi_pace_rows(rvi_pace *p, int n_tokens, int n_long, int max_rows, double target);

#endif
