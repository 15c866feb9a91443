#include "decode/budget.h"

#include <math.h>
#include <stddef.h>

#include "base/compat.h"

/* Steps grow dearer as texts grow longer, and cheaper when a neighbour leaves the machine: new
 * measurements count for a third, one that is out of all proportion for no more than twice what was
 * expected. What reading costs is learned from steps that read much more or less than others of
 * their size. */
#define NEW_SHARE   (1.0 / 3)
#define MOST_NEW    2
#define MUCH_MORE   (1.0 / 4)
#define HARDLY_MORE 1.25      /* matrix units take 16 rows at once: of 17 each costs more */
#define LEAST       (1.0 / 4) /* of what such steps took, however little is read */

static int size_of(int n_rows)
{
    int i = 0;
    while (n_rows > 1 && i < RVI_BUDGET_SIZES - 1) {
        n_rows /= 2;
        i++;
    }
    return i;
}

/* Seconds of a step as such steps were, and what it then reads. Between two measured sizes in
 * proportion; beyond the largest as if every row cost the same, which is too much; below the
 * smallest as much as that. */
static double usual(const rvi_budget *b, int n_rows, double *reads)
{
    double below = 0, below_s = 0, below_r = 0;
    for (int i = 0; i < RVI_BUDGET_SIZES; i++) {
        double rows = b->at[i].rows, s = b->at[i].seconds, r = b->at[i].reads;
        if (rows <= 0) continue;
        if (rows >= n_rows) {
            double part = below <= 0 || rows <= below ? 1 : (n_rows - below) / (rows - below);
            *reads = below_r + (r - below_r) * part;
            return below_s + (s - below_s) * part;
        }
        below = rows;
        below_s = s;
        below_r = r;
    }
    *reads = below > 0 ? below_r * n_rows / below : 0;
    return below > 0 ? below_s * n_rows / below : 0;
}

static double expected(const rvi_budget *b, int n_rows, double reads)
{
    double others, seconds = usual(b, n_rows, &others);
    return RVI_MAX(seconds + b->read * (reads - others), LEAST * seconds);
}

static void note_reads(rvi_budget *b, int n_rows, double reads, double seconds)
{
    double others, expected_s = usual(b, n_rows, &others), more = reads - others;
    if (expected_s <= 0 || fabs(more) < MUCH_MORE * RVI_MAX(reads, others) || more == 0) return;
    double most = RVI_MIN(seconds / RVI_MAX(reads, 1), expected_s / RVI_MAX(others, 1));
    double read = RVI_MIN(RVI_MAX((seconds - expected_s) / more, 0), most);
    b->read += (b->read > 0 ? NEW_SHARE : 1) * (read - b->read);
}

/* A larger step takes no less time, and hardly more for each of its rows; a smaller one takes no
 * more. What was measured long ago gives way to that. */
static void keep_order(rvi_budget *b, int own)
{
    double rows = b->at[own].rows, seconds = b->at[own].seconds, reads = b->at[own].reads;
    for (int i = 0; i < RVI_BUDGET_SIZES; i++) {
        double *at = &b->at[i].seconds;
        if (b->at[i].rows <= 0 || i == own) continue;
        double for_reads = b->read * (b->at[i].reads - reads);
        double most = seconds * (i < own ? 1 : HARDLY_MORE * b->at[i].rows / rows) + for_reads;
        double least = i < own ? 0 : seconds + for_reads;
        *at = RVI_MAX(RVI_MAX(RVI_MIN(*at, most), least), LEAST * *at);
    }
}

void rvi_budget_note(rvi_budget *b, int n_rows, double reads, double seconds)
{
    int own = size_of(n_rows);
    double share = b->at[own].rows > 0 ? NEW_SHARE : 1;
    seconds = RVI_MAX(seconds, 1e-6); /* a clock may stand still */
    if (share < 1) {
        note_reads(b, n_rows, reads, seconds);
        seconds = RVI_MIN(seconds, MOST_NEW * expected(b, n_rows, reads));
    }
    b->at[own].rows += share * (n_rows - b->at[own].rows);
    b->at[own].reads += share * (reads - b->at[own].reads);
    b->at[own].seconds += share * (seconds - b->at[own].seconds);
    keep_order(b, own);
}

double rvi_budget_seconds(const rvi_budget *b, int n_rows)
{
    double reads;
    return usual(b, n_rows, &reads);
}

int rvi_budget_rows(const rvi_budget *b, int least, int most, const rvi_budget_reads *reads,
                    double seconds)
{
    enum { UNKNOWN = 64 };
    if (most <= least) return most;
    if (rvi_budget_seconds(b, least) <= 0) return RVI_MIN(RVI_MAX(UNKNOWN, least), most);
    while (least < most) {
        int mid = least + (most - least + 1) / 2;
        double s = reads ? expected(b, mid, reads->certain + reads->each * mid)
                         : rvi_budget_seconds(b, mid);
        if (s <= seconds)
            least = mid;
        else
            most = mid - 1;
    }
    return least;
}

int rvi_budget_beside(const rvi_budget *b, int n_answers, int most, double seconds)
{
    enum { FEW = 8 };
    int few = RVI_MIN(n_answers + FEW, most), one = RVI_MIN(n_answers + 1, most);
    if (rvi_budget_seconds(b, one) <= 0) return one;
    int least = rvi_budget_rows(b, one, few, NULL, seconds);
    return rvi_budget_rows(b, least, most, NULL, seconds / 2);
}
