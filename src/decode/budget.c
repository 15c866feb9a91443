#include "decode/budget.h"

#include "base/compat.h"

/* Steps grow dearer as texts grow longer, and cheaper when a neighbour leaves the machine: new
 * measurements count for a third, one that is out of all proportion for no more than twice what was
 * expected, and what was not measured for a while slowly loses its weight, so that a size that was
 * slow once is tried again; but a row of a large step costs a quarter of one of a small step at
 * least. */
#define NEW_SHARE  (1.0 / 3)
#define MOST_NEW   2
#define FORGETTING (1.0 / 128)
#define LEAST_ROW  (1.0 / 4)

static int size_of(int n_rows)
{
    int i = 0;
    while (n_rows > 1 && i < RVI_BUDGET_SIZES - 1) {
        n_rows /= 2;
        i++;
    }
    return i;
}

/* What is known of steps larger than the one that is now noted. */
static void forget(rvi_budget *b, int own)
{
    double rows = b->at[own].rows, seconds = b->at[own].seconds;
    for (int i = own + 1; i < RVI_BUDGET_SIZES; i++) {
        double times = rows > 0 ? RVI_MAX(1, LEAST_ROW * b->at[i].rows / rows) : 0;
        double less = RVI_MAX(b->at[i].seconds * (1 - FORGETTING), seconds * times);
        b->at[i].seconds = RVI_MIN(b->at[i].seconds, less);
    }
}

void rvi_budget_note(rvi_budget *b, int n_rows, double seconds)
{
    int own = size_of(n_rows);
    forget(b, own);
    double share = b->at[own].rows > 0 ? NEW_SHARE : 1;
    if (share < 1) seconds = RVI_MIN(seconds, MOST_NEW * b->at[own].seconds);
    b->at[own].rows += share * (n_rows - b->at[own].rows);
    b->at[own].seconds += share * (seconds - b->at[own].seconds);
}

/* Between two measured sizes in proportion; beyond the largest as if every row cost the same, which
 * is too much; below the smallest as much as that. */
double rvi_budget_seconds(const rvi_budget *b, int n_rows)
{
    double below = 0, below_s = 0;
    for (int i = 0; i < RVI_BUDGET_SIZES; i++) {
        double rows = b->at[i].rows, s = b->at[i].seconds;
        if (rows <= 0) continue;
        if (rows >= n_rows) {
            if (below <= 0 || rows <= below) return s;
            return below_s + (s - below_s) * (n_rows - below) / (rows - below);
        }
        below = rows;
        below_s = s;
    }
    return below > 0 ? below_s * n_rows / below : 0;
}

int rvi_budget_rows(const rvi_budget *b, int least, int most, double seconds)
{
    enum { UNKNOWN = 64 };
    if (most <= least) return most;
    if (rvi_budget_seconds(b, least) <= 0) return RVI_MIN(RVI_MAX(UNKNOWN, least), most);
    while (least < most) {
        int mid = least + (most - least + 1) / 2;
        if (rvi_budget_seconds(b, mid) <= seconds)
            least = mid;
        else
            most = mid - 1;
    }
    return least;
}
