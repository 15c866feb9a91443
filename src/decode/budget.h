/* budget.h - how long a step of so many rows takes, and how many rows a step may have to take no
 * longer than it should, from the times that steps took before. */
#ifndef RVI_DECODE_BUDGET_H
#define RVI_DECODE_BUDGET_H

enum { RVI_BUDGET_SIZES = 21 };

/* {0} knows nothing. */
typedef struct rvi_budget {
    struct {
        double rows,
            seconds; /* moving averages of steps of 2^i to 2^(i+1) - 1 rows; rows 0: none */
    } at[RVI_BUDGET_SIZES];
} rvi_budget;

void rvi_budget_note(rvi_budget *b, int n_rows, double seconds);
double rvi_budget_seconds(const rvi_budget *b, int n_rows); /* expected; 0: nothing is known */
/* The most rows, from least to most, that are expected to take `seconds`; least, if even those take
 * longer. */
int rvi_budget_rows(const rvi_budget *b, int least, int most, double seconds);

#endif
