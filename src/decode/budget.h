/* budget.h - how long a step of so many rows takes, and how many rows a step may have to take no
 * longer than it should, from the times that steps took before. A step costs what its rows do, and
 * what they read: every row reads all tokens before it, and far into a text that is most of it. */
#ifndef RVI_DECODE_BUDGET_H
#define RVI_DECODE_BUDGET_H

enum { RVI_BUDGET_SIZES = 21 };

/* Rows of one text in one step read what lies before them together: all but the first take so much
 * of what the first takes. */
#define RVI_READ_TOGETHER (1.0 / 3)

/* {0} knows nothing. */
typedef struct rvi_budget {
    struct {
        double rows, reads,
            seconds; /* moving averages of steps of 2^i to 2^(i+1) - 1 rows; rows 0: none */
    } at[RVI_BUDGET_SIZES];
    double read; /* seconds for a token that is read; 0: not known */
} rvi_budget;

/* What a step that is planned reads: with no rows but those that are certain, and more a row. */
typedef struct rvi_budget_reads {
    double certain, each;
} rvi_budget_reads;

void rvi_budget_note(rvi_budget *b, int n_rows, double reads, double seconds);
/* Expected of a step that reads as much as such steps did; 0: nothing is known. */
double rvi_budget_seconds(const rvi_budget *b, int n_rows);
/* The most rows, from least to most, that are expected to take `seconds`; least, if even those take
 * longer. reads NULL: as much as such steps did. */
int rvi_budget_rows(const rvi_budget *b, int least, int most, const rvi_budget_reads *reads,
                    double seconds);
/* The rows, no more than `most`, of a step beside which others wait, with a token of each of
 * n_answers and rows of their prompts: as many as take half of `seconds`; a few, where they take no
 * more than all of it; one of a prompt in any case. */
int rvi_budget_beside(const rvi_budget *b, int n_answers, int most, double seconds);

#endif
