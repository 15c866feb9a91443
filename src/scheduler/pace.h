/* pace.h - how fast long prompts are read beside streams. Steps without rows of prompts tell how
 * long a stream waits for its next token anyway, steps with some what reading costs; rows of long
 * prompts make steps longer by no more than a part. A row reads all that lies before it, so the
 * further a prompt has been read, the fewer rows fit. Where not even one does, a step in many takes
 * rows, up to the target, and 95 % of all steps have none. */
#ifndef RVI_SCHEDULER_PACE_H
#define RVI_SCHEDULER_PACE_H

#include <stdbool.h>

enum { RVI_PACE_WAYS = 17 };

/* {0} knows nothing. */
typedef struct rvi_pace {
    double plain; /* seconds, a moving average, of steps of tokens alone; 0: there was none */
    double last;  /* and what the last one took */
    /* By how much longer than that, as a part of it, steps with rows of long prompts take, for a
     * token that these read: the same, for each number of rows that a step may have; 0: not known.
     * Rows cost by no means the same each: matrix units take some at once. */
    double unit[RVI_PACE_WAYS];
    int n_plain;   /* steps since the last that rows of long prompts made too long */
    int n_tokens;  /* that the last step of tokens alone had, */
    int n_since;   /* and steps since then */
    int n_unsure;  /* steps in a row in which long prompts had nothing for lack of a measurement */
    int n_long;    /* long prompts of the step that is planned, */
    double depth;  /* and tokens before each of them */
    int n_given;   /* rows that they have in it */
    int n_planned; /* and were to have, */
    int way;       /* which is that of the numbers of rows; -1: none */
    int n_like;    /* steps since more rows than fit were last tried, */
    unsigned n_trials; /* and how often that was */
    unsigned turn;     /* of which prompt it is to have one row more than others */
    bool seldom;       /* not even one row fits into every step */
    bool strayed;      /* the last step of tokens alone took far less, or more, than `plain` */
    bool alone;        /* in that step nobody reads but long prompts, at this pace */
} rvi_pace;

/* A step of n_rows, n_tokens of them of streams and n_given of long prompts, took so long. */
void rvi_pace_note(rvi_pace *p, int n_tokens, int n_rows, double seconds);
/* Seconds that a step with n_tokens tokens of streams and rows of n_reading prompts may take: the
 * target. Where the tokens alone take more than two fifths of it, that would leave prompts too
 * little: most of each step would go into what it takes anyway, prompts would wait for long, and
 * streams would share few steps. So it grows, where the tokens take three fifths of the target or
 * more to four times as long as they take, and up to eight times where most requests wait to be
 * read. Where a crowd does, a third of all requests, eight or more with short prompts, it grows for
 * faster models too: to three times the target, or twelve times what the tokens take. 0 tokens:
 * nobody waits for the step, which may take four times the target, or sixteen times as long as one
 * of a token. usual: what a step of the tokens, or of one, is thought to take; 0: not known. */
double rvi_pace_target(const rvi_pace *p, int n_tokens, int n_reading, double usual, double target);
/* Of the rows that a step may have, from least to most, as many as matrix units compute well. */
int rvi_pace_whole(int n_rows, int least, int most);
/* How many rows of p->n_long prompts may go with n_tokens > 0 in the next step, which is to take
 * `target` seconds at most. 0: none do this time, for the step is to be measured, which is so where
 * too little is known and now and then, or because the streams would wait too often. */
int rvi_pace_rows(rvi_pace *p, int n_tokens, int max_rows, double target);
/* How many rows of p->n_long prompts go with n_rows that n_others > 0 short ones want, in a step
 * with `most` rows of prompts: as much time for each as for one of the others. */
int rvi_pace_share(const rvi_pace *p, int n_others, double n_rows, double most);

#endif
