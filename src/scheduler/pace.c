#include "scheduler/pace.h"

#include <limits.h>

#include "base/compat.h"

/* The time between two tokens may grow to half as much again; measurements scatter, so a little
 * less is planned. Where more wait than that, their part of the time is their part of all. */
#define STRETCH   0.4
#define NEW_SHARE (1.0 / 4)
#define MOST_NEW  2 /* times the average that one measurement counts for at most */

enum {
    BETWEEN = 3,    /* steps of tokens alone for each stream, before rows come many at a time */
    FEW_ROWS = 8,   /* fewer do not make up for reading what lies before them, once a step */
    FIRST_ROWS = 4, /* while nothing is known of their cost */
    LEAST_ROWS = 1, /* so that a prompt ends, whatever it costs */
    OFTEN = 32      /* one step in so many is measured: texts grow, and so do other programs */
};

/* With half as many streams, or a quarter more, a step takes another time. */
static bool is_like(const rvi_pace *p, int n_tokens)
{
    return n_tokens * 2 > p->n_tokens && n_tokens * 4 <= p->n_tokens * 5;
}

static void follow(double *average, double seconds)
{
    if (*average <= 0)
        *average = seconds;
    else
        *average += NEW_SHARE * (RVI_MIN(seconds, MOST_NEW * *average) - *average);
}

void rvi_pace_note(rvi_pace *p, int n_tokens, int n_rows, double seconds)
{
    int n_read = n_rows - n_tokens;
    p->n_since += p->n_since < OFTEN;
    if (n_tokens < 1) return;
    if (n_read > 0) p->n_plain = 0;
    if (n_read > 0 && p->alone)
        follow(&p->row, RVI_MAX(seconds - p->plain, 0.05 * p->plain) / n_read);
    if (n_read) return;
    if (!is_like(p, n_tokens)) p->plain = 0;
    follow(&p->plain, seconds);
    p->n_plain += p->n_plain < INT_MAX;
    p->n_tokens = n_tokens;
    p->n_since = 0;
}

int rvi_pace_rows(const rvi_pace *p, int n_tokens, int n_long, int max_rows, double target)
{
    if (p->plain <= 0 || p->n_since >= OFTEN - 1 || !is_like(p, n_tokens)) return 0;
    double more = p->plain * RVI_MAX(STRETCH, (double)n_long / n_tokens);
    if (p->plain < target) more = RVI_MIN(more, target - p->plain);
    if (p->row > 0 && more < FEW_ROWS * p->row && more < target - p->plain) {
        if (p->n_plain * n_long < BETWEEN * n_tokens) return 0;
        more = target - p->plain;
    }
    double rows = p->row > 0 ? more / p->row : FIRST_ROWS;
    return (int)RVI_MIN(RVI_MAX(rows, LEAST_ROWS), max_rows - n_tokens);
}
