#include "scheduler/pace.h"

#include <limits.h>
#include <stdint.h>

#include "base/compat.h"

/* The time between two tokens may grow to half as much again; measurements scatter, so a little
 * less is planned. Where more wait than that, their part of the time is their part of all. */
#define STRETCH   0.45
#define NEW_SHARE (1.0 / 4)
#define EACH      2.2 /* and where there are many rows, each as dearly as so many of a few */
#define MOST_NEW  2   /* times the average that one measurement counts for at most */
#define MOST      4.0 /* times what the tokens take that a step may, if it reads; */

enum {
    BETWEEN = 3,    /* steps of tokens alone for each stream, before rows come many at a time */
    ROW = 2000,     /* a row costs what reading so many tokens does, besides those it reads; */
    FIRST = 6,      /* the first row of a prompt reads its tokens as dearly as so many more do, */
    FIRST_ROWS = 4, /* while nothing is known of their cost */
    MANY = 8,       /* rows that come at a time at least, so that the prompt ends */
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

/* What n rows of the prompts cost, in tokens that are read. */
static double cost(const rvi_pace *p, double n)
{
    return n * ROW + RVI_MAX(n + FIRST * RVI_MIN(n, p->n_long), EACH * n) * p->depth;
}

static double rows_in(const rvi_pace *p, double seconds)
{
    double units = seconds / p->unit;
    double rows = RVI_MIN((units - FIRST * p->n_long * p->depth) / (ROW + p->depth),
                          units / (ROW + EACH * p->depth));
    /* too few for all of them: of as many prompts as there are rows */
    return rows >= p->n_long ? rows : units / cost(p, 1);
}

void rvi_pace_note(rvi_pace *p, int n_tokens, int n_rows, double seconds)
{
    p->n_since += p->n_since < OFTEN;
    if (n_tokens < 1) return;
    seconds = RVI_MAX(seconds, 1e-6); /* a clock may stand still */
    if (p->n_given > 0) p->n_plain = 0;
    if (p->n_given > 0 && p->alone)
        follow(&p->unit, RVI_MAX(seconds - p->plain, 0.05 * p->plain) / cost(p, p->n_given));
    if (n_rows > n_tokens) return;
    if (!is_like(p, n_tokens)) p->plain = 0;
    follow(&p->plain, seconds);
    p->n_plain += p->n_plain < INT_MAX;
    p->n_tokens = n_tokens;
    p->n_since = 0;
}

/* A step that reads takes as long as its tokens alone would, and then some: at the target it reads
 * well while the tokens take a small part of it. waiting: the part of all requests that wait for
 * their first token, who gain what the others lose. */
static double with_reading(double plain, double target, double waiting)
{
    const double least = 2.5, near = 1 / least, far = 0.6;
    double part = RVI_MIN(RVI_MAX((plain / target - near) / (far - near), 0), 1);
    return RVI_MAX(target, (least + (MOST * (1 + waiting) - least) * part) * plain);
}

double rvi_pace_target(const rvi_pace *p, int n_tokens, int n_reading, double usual, double target)
{
    double waiting = n_reading > 0 ? (double)n_reading / (n_reading + n_tokens) : 0;
    if (!n_tokens) return RVI_MAX(MOST * target, with_reading(p->plain, target, waiting));
    if (p->plain <= 0) return RVI_MIN(with_reading(usual, target, waiting), MOST * target);
    bool were_more = n_tokens <= p->n_tokens;
    double plain = were_more && usual > 0 ? RVI_MIN(p->plain, usual) : RVI_MAX(p->plain, usual);
    return with_reading(plain, target, waiting);
}

int rvi_pace_share(const rvi_pace *p, int n_others, double n_rows, double most)
{
    double part = (double)n_others / (n_others + p->n_long);
    double dearer = (ROW + EACH * p->depth) / ROW; /* than a row of a text's beginning */
    return (int)(RVI_MIN(n_rows, most * part) * p->n_long / n_others / dearer);
}

int rvi_pace_rows(rvi_pace *p, int n_tokens, int max_rows, double target)
{
    const double sure = 0.8; /* measurements scatter: what was too dear must be clearly cheaper */
    if (p->plain <= 0 || p->n_since >= OFTEN - 1 || !is_like(p, n_tokens)) {
        /* where the number of streams changes with every step, none is like the one before */
        if (++p->n_unsure <= OFTEN) return 0;
        p->n_unsure = 0;
        return RVI_MIN(MANY, max_rows - n_tokens);
    }
    p->n_unsure = 0;
    double part = p->plain * RVI_MAX(STRETCH, (double)p->n_long / n_tokens);
    double room = p->plain < target ? target - p->plain : part, rows = FIRST_ROWS;
    if (p->unit > 0) rows = rows_in(p, RVI_MIN(part, room));
    p->seldom = p->unit * cost(p, 1) > part * (p->seldom ? sure : 1);
    if (p->seldom) {
        if ((int64_t)p->n_plain * p->n_long < BETWEEN * n_tokens) return 0;
        rows = RVI_MAX(rows_in(p, room), MANY);
    }
    /* one at least, also where the streams alone come near the target */
    return (int)RVI_MIN(RVI_MAX(rows, 1), max_rows - n_tokens);
}
