#include "scheduler/pace.h"

#include <limits.h>
#include <stdint.h>
#include <string.h>

#include "base/compat.h"

/* The time between two tokens may grow to half as much again; steps scatter, so less is planned:
 * with 0.45 one step in twenty took 1.56 times as long (1B, two threads). Where more wait than
 * that, their part of the time is their part of all. */
#define STRETCH     0.36
#define NEW_SHARE   (1.0 / 4)
#define TRIED_SHARE (1.0 / 2) /* of what is measured seldom */
#define FEW_SHARE   (1.0 / 8) /* of what few rows take: the next number below has half as many */
#define EACH        2.2 /* and where there are many rows, each as dearly as so many of a few */
#define NEARLY      1.4 /* times what fits, which it may become */
#define MOST_NEW    2   /* times the average that one measurement counts for at most */
#define STRAY       1.4 /* times the average: one step of tokens that takes so long tells nothing */
#define MOST        4.0 /* times what the tokens take that a step may, if it reads; */
#define UNHEARD     16  /* and what one takes, where none wait */

enum {
    BETWEEN = 3,      /* steps of tokens alone for each stream, before rows come many at a time */
    ROW = 2000,       /* a row costs what reading so many tokens does, besides those it reads; */
    SLOW_ROW = 10000, /* and a row of a model whose rows are dear */
    FIRST_ROWS = 4,   /* while nothing is known of their cost */
    MANY = 8,         /* rows that come at a time at least, so that the prompt ends */
    OFTEN = 32,       /* one step in so many is measured: texts grow, and so do other programs; */
    NEAR = 4,         /* and so many behind it are compared with it, before the machine changes, */
    TRIED = 48,       /* and one in so many takes more rows, which may have become cheap enough */
    TOGETHER = 16     /* rows that matrix units take at once: 16 may cost less than 14 */
};

/* Rows that a step may have of long prompts, in two ways: a few, or so many that all its rows, the
 * tokens among them, are whole groups of TOGETHER. */
static const int few[] = {1, 2, 3, 4, 6, 8, 12}, groups[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32};
enum { N_FEW = RVI_COUNT(few), N_WAYS = N_FEW + RVI_COUNT(groups) };
_Static_assert((int)N_WAYS == (int)RVI_PACE_WAYS, "a place for what each costs");

/* 0 or less: it has no such way, for the tokens are more. */
static int rows_of(int way, int n_tokens)
{
    return way < N_FEW ? few[way] : groups[way - N_FEW] * TOGETHER - n_tokens;
}

/* The way that fills the group in which the tokens end; with many tokens the widest of all. */
static int first_fill(int n_tokens)
{
    int way = N_FEW;
    while (way < N_WAYS - 1 && rows_of(way, n_tokens) < 1) way++;
    return way;
}

/* With half as many streams, or a quarter more, a step takes another time. */
static bool is_like(const rvi_pace *p, int n_tokens)
{
    return n_tokens * 2 > p->n_tokens && n_tokens * 4 <= p->n_tokens * 5;
}

static void follow(double *average, double now, double share)
{
    if (*average <= 0)
        *average = now;
    else
        *average += share * (RVI_MIN(now, MOST_NEW * *average) - *average);
}

/* What n rows of the prompts cost, in tokens that are read. How much dearer a row becomes with what
 * lies before it differs between models: less than it is in most is assumed, for rows that are
 * given are measured, and those that were given up for their cost are not. */
static double cost(const rvi_pace *p, double n)
{
    return n * (SLOW_ROW + p->depth);
}

/* By which part of `plain` so many rows are thought to make a step longer: by what steps with as
 * many did, or with the next number below or above that was measured. */
static double stretch(const rvi_pace *p, int way, int n_tokens)
{
    int n = rows_of(way, n_tokens), below = 0, above = INT_MAX;
    double unit = p->unit[way], unit_above = 0;
    for (int w = 0; w < N_WAYS && p->unit[way] <= 0; w++) {
        int other = rows_of(w, n_tokens);
        if (p->unit[w] <= 0) continue;
        if (other < 1) continue;
        if (other <= n && other > below) {
            below = other;
            unit = p->unit[w];
        } else if (other > n && other < above) {
            above = other;
            unit_above = p->unit[w];
        }
    }
    return (unit > 0 ? unit : unit_above) * cost(p, n);
}

/* The most rows that make the step longer by no more than a part; the next number above, if it was
 * never measured and may not either. -1: not even one row fits. */
static int widest(const rvi_pace *p, int n_tokens, int most, double part)
{
    int best = -1, next = -1;
    for (int w = 0; w < N_WAYS; w++) {
        int n = rows_of(w, n_tokens);
        if (n < 1 || n > most || stretch(p, w, n_tokens) > part) continue;
        if (p->unit[w] > 0 && (best < 0 || n >= rows_of(best, n_tokens))) best = w;
    }
    int least = best < 0 ? 0 : rows_of(best, n_tokens);
    for (int w = 0; w < N_WAYS; w++) {
        int n = rows_of(w, n_tokens);
        if (n <= least || n > most || p->unit[w] > 0 || stretch(p, w, n_tokens) > part) continue;
        if (next < 0 || n <= rows_of(next, n_tokens)) next = w;
    }
    return next < 0 ? best : next;
}

/* More rows than `way` has: in turn the most that nearly fit, and one of the next three numbers
 * above, unless that was too dear by far or would be at what the next number below costs a row. */
static int try_more(rvi_pace *p, int way, int n_tokens, int most, double part)
{
    const double far = 3;
    int n = rows_of(way, n_tokens), found = way;
    unsigned turn = p->n_trials++;
    if (turn % 2) {
        int wide = widest(p, n_tokens, most, NEARLY * part);
        if (wide >= 0 && rows_of(wide, n_tokens) > n) return wide;
    }
    for (unsigned skip = 1 + turn / 2 % 3; skip > 0; skip--) {
        int next = INT_MAX;
        for (int w = 0; w < N_WAYS; w++) {
            int rows = rows_of(w, n_tokens);
            if (rows <= n || rows > next || rows > most) continue;
            if (stretch(p, w, n_tokens) > far * part) continue;
            next = rows;
            found = w;
        }
        if (next == INT_MAX) break;
        n = next;
    }
    return found;
}

void rvi_pace_note(rvi_pace *p, int n_tokens, int n_rows, double seconds)
{
    p->n_since += p->n_since < OFTEN;
    if (n_tokens < 1) return;
    seconds = RVI_MAX(seconds, 1e-6); /* a clock may stand still */
    if (p->n_given > 0 && seconds > (1 + STRETCH) * p->plain)
        p->n_plain = 0;
    else
        p->n_plain += p->n_plain < INT_MAX;
    bool was_planned = p->n_given > 0 && p->n_given == p->n_planned;
    /* what rows add to a step is lost in what other programs do, unless it is most of the step */
    double share = p->n_given < FIRST_ROWS ? FEW_SHARE : NEW_SHARE;
    if (was_planned && p->alone && p->plain > 0 &&
        (p->n_since <= NEAR || p->unit[p->way] <= 0 || stretch(p, p->way, n_tokens) > 1))
        follow(&p->unit[p->way], RVI_MAX(seconds / p->last - 1, 0.02) / cost(p, p->n_given),
               p->n_like ? share : TRIED_SHARE);
    if (n_rows > n_tokens) return;
    /* a step may take long for another reason, and beside it rows would look free; one that guessed
     * nothing or failed takes less: what two in a row took is believed */
    bool is_like_last = is_like(p, n_tokens), fell = is_like_last && p->plain > MOST_NEW * seconds;
    bool strayed = fell || (is_like_last && p->plain > 0 && seconds > STRAY * p->plain);
    if (strayed && !p->strayed) {
        p->strayed = true;
        p->n_since = OFTEN;
        return;
    }
    p->strayed = false;
    if (!is_like_last || fell) {
        p->plain = 0;
        memset(p->unit, 0, sizeof p->unit);
    }
    p->n_since = p->plain > 0 ? 0 : OFTEN; /* what was measured once is measured again at once */
    follow(&p->plain, seconds, NEW_SHARE);
    p->last = seconds;
    p->n_tokens = n_tokens;
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

/* Where a crowd waits with short prompts, so long that the tokens, which each step computes, are a
 * small part of it: a 1B model on 16 threads takes 14 ms for eight tokens, and read 32 prompts in
 * steps of 50 ms at 70 % of its rate. */
static double with_crowd(double plain, double target, int n_short, double waiting)
{
    const double crowd = 8, third = 1.0 / 3, most = 3, small = 12;
    double part = RVI_MIN((n_short - 1) / (crowd - 1), 1) * RVI_MIN(waiting / third, 1);
    return part * RVI_MIN(most * target, small * plain);
}

double rvi_pace_target(const rvi_pace *p, int n_tokens, int n_reading, double usual, double target)
{
    double waiting = n_reading > 0 ? (double)n_reading / (n_reading + n_tokens) : 0;
    if (!n_tokens)
        return RVI_MAX(MOST * target, UNHEARD * (usual > 0 ? RVI_MIN(p->plain, usual) : p->plain));
    if (p->plain <= 0) return RVI_MIN(with_reading(usual, target, waiting), MOST * target);
    bool were_more = n_tokens <= p->n_tokens;
    double plain = were_more && usual > 0 ? RVI_MIN(p->plain, usual) : RVI_MAX(p->plain, usual);
    if (usual > 0) plain = RVI_MIN(plain, MOST_NEW * usual); /* the process may have been stopped */
    return RVI_MAX(with_reading(plain, target, waiting),
                   with_crowd(plain, target, n_reading - p->n_long, waiting));
}

/* Groups of TOGETHER; of a few rows that would leave out too many, and half a group costs a row
 * hardly more: with AMX a 1B model on two threads takes 5.5 ms for each of 16, 5.7 of 24. */
int rvi_pace_whole(int n_rows, int least, int most)
{
    enum { FEW = 4 * TOGETHER };
    if (n_rows <= least || n_rows >= most) return n_rows;
    return n_rows - n_rows % (n_rows < FEW ? TOGETHER / 2 : TOGETHER);
}

int rvi_pace_share(const rvi_pace *p, int n_others, double n_rows, double most)
{
    double part = (double)n_others / (n_others + p->n_long);
    double dearer = (ROW + EACH * p->depth) / ROW; /* than a row of a text's beginning */
    return (int)(RVI_MIN(n_rows, most * part) * p->n_long / n_others / dearer);
}

/* Beside streams that one row would already hold up: none in most steps, then as many as fit into
 * `room`, or MANY; now and then so few that they may fit again. */
static int seldom_way(rvi_pace *p, int n_tokens, int most, double part, double room)
{
    enum { LOOK = 4 };
    if ((int64_t)p->n_plain * p->n_long < BETWEEN * n_tokens) return -1;
    if (p->n_trials++ % LOOK == LOOK - 1) {
        p->n_like = 0;
        return RVI_MAX(widest(p, n_tokens, most, NEARLY * part), 0);
    }
    int way = widest(p, n_tokens, most, room), many = 0;
    while (few[many] < MANY) many++;
    bool is_less = way < 0 || rows_of(way, n_tokens) < MANY;
    return is_less && few[many] <= most ? many : RVI_MAX(way, 0);
}

static int choose_way(rvi_pace *p, int n_tokens, int most, double part, double room)
{
    const double sure = 0.8; /* measurements scatter: what was too dear must be clearly cheaper */
    bool known = false;
    for (int w = 0; w < N_WAYS; w++) known = known || p->unit[w] > 0;
    if (!known) {
        int first = 0;
        while (few[first] < FIRST_ROWS && few[first + 1] <= most) first++;
        return first;
    }
    p->seldom = stretch(p, 0, n_tokens) > part * (p->seldom ? sure : 1);
    int way = widest(p, n_tokens, most, RVI_MIN(part, room));
    if (p->seldom && way < 0) return seldom_way(p, n_tokens, most, part, room);
    p->seldom = false;
    way = RVI_MAX(way, 0);     /* one at least, also where the streams alone come near the target */
    if (!p->alone) return way; /* nothing could be measured */
    int fill = first_fill(n_tokens), n = rows_of(fill, n_tokens);
    if (p->unit[fill] <= 0 && n > 0 && n <= most) return fill; /* that may be cheap */
    if (++p->n_like < TRIED || p->n_since >= NEAR) return way;
    p->n_like = 0;
    return try_more(p, way, n_tokens, most, part);
}

int rvi_pace_rows(rvi_pace *p, int n_tokens, int max_rows, double target)
{
    int most = max_rows - n_tokens;
    p->n_planned = 0;
    if (p->plain <= 0 || p->n_since >= OFTEN - 1 || !is_like(p, n_tokens)) {
        /* where the number of streams changes with every step, none is like the one before */
        if (++p->n_unsure <= OFTEN) return 0;
        p->n_unsure = 0;
        return RVI_MIN(MANY, most);
    }
    p->n_unsure = 0;
    if (most < 1) return 0;
    double part = RVI_MAX(STRETCH, (double)p->n_long / n_tokens);
    double room = p->plain < target ? target / p->plain - 1 : part;
    p->way = choose_way(p, n_tokens, most, part, room);
    if (p->way >= 0) p->n_planned = rows_of(p->way, n_tokens);
    return p->n_planned;
}
