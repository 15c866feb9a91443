#include "decode/draft.h"

#include "base/compat.h"

/* Kinds: all of a model; 1 to LONGEST, the tokens that agree; known ones; then of a model by their
 * probability. */
enum { ANY_MODEL, LONGEST = 10, KNOWN, MODEL, CLASSES = RVI_DRAFT_KINDS - MODEL };

/* A rate is a mean over about MEMORY guesses, and begins as if FIRST had been seen. */
#define MEMORY 24.0f
#define FIRST  2.0f

/* In steps. A row costs 0.2 to 0.3 of a step where a model runs on two cores, less on more. */
#define ROW_COST     0.25f
#define EARNED       0.01f
#define FIRST_CREDIT 1.0f
#define MOST_CREDIT  8.0f

void rvi_draft_init(rvi_draft *d)
{
    d->credit = FIRST_CREDIT;
    for (int k = 0; k < RVI_DRAFT_KINDS; k++) {
        float rate = k == ANY_MODEL ? 0.7f
                     : k <= LONGEST ? (float)k / (float)(k + 4)
                     : k == KNOWN   ? 0.95f
                                    : ((float)(k - MODEL) + 0.5f) / CLASSES;
        d->tried[k] = FIRST;
        d->right[k] = FIRST * rate;
    }
}

/* ---- guesses ---- */

/* How many tokens before `at` equal those at the end, LONGEST at most. */
static int agree(const int32_t *past, size_t n, size_t at)
{
    int len = 0;
    while (len < LONGEST && (size_t)len < at &&
           past[at - 1 - (size_t)len] == past[n - 1 - (size_t)len])
        len++;
    return len;
}

/* Where the longest agreement ends, the latest of equals; 0: nowhere. */
static size_t find(const int32_t *past, size_t n, int *len)
{
    size_t best = 0;
    int32_t last = past[n - 1];
    *len = 0;
    for (size_t at = n - 1; at > 0 && *len < LONGEST; at--) {
        if (past[at - 1] != last) continue;
        int own = agree(past, n, at);
        if (own <= *len) continue;
        *len = own;
        best = at;
    }
    return best;
}

void rvi_draft_repeat(rvi_draft *d, const int32_t *past, size_t n_past, int most)
{
    int len;
    d->n = 0;
    if (n_past < 2 || most < 1) return;
    size_t at = find(past, n_past, &len);
    if (!at) return;
    d->n = RVI_MIN(most, RVI_DRAFT_MOST);
    for (int i = 0; i < d->n; i++) {
        /* where the repeated part reaches the end of the past, it goes on with the guesses */
        size_t from = at + (size_t)i;
        d->ids[i] = from < n_past ? past[from] : d->ids[from - n_past];
        d->kinds[i] = (uint8_t)RVI_MIN(len + i, LONGEST);
    }
}

void rvi_draft_known(rvi_draft *d, const int32_t *ids, size_t n, int most)
{
    d->n = (int)RVI_MIN(n, (size_t)RVI_MAX(RVI_MIN(most, RVI_DRAFT_MOST), 0));
    for (int i = 0; i < d->n; i++) {
        d->ids[i] = ids[i];
        d->kinds[i] = KNOWN;
    }
}

void rvi_draft_add(rvi_draft *d, int32_t id, double p)
{
    d->ids[d->n] = id;
    d->kinds[d->n++] = (uint8_t)(MODEL + RVI_MIN((int)(p * CLASSES), CLASSES - 1));
}

/* ---- whether they are right ---- */

double rvi_draft_usual(const rvi_draft *d)
{
    return (double)(d->right[ANY_MODEL] / d->tried[ANY_MODEL]);
}

double rvi_draft_chance(const rvi_draft *d, int i)
{
    int k = d->kinds[i];
    return (double)(d->right[k] / d->tried[k]);
}

static void count(rvi_draft *d, int k, bool right)
{
    if (d->tried[k] >= MEMORY) {
        d->right[k] *= 1 - 1 / MEMORY;
        d->tried[k] *= 1 - 1 / MEMORY;
    }
    d->tried[k] += 1;
    d->right[k] += right;
}

void rvi_draft_learn(rvi_draft *d, int i, bool right)
{
    count(d, d->kinds[i], right);
    if (d->kinds[i] >= MODEL) count(d, ANY_MODEL, right);
}

void rvi_draft_settle(rvi_draft *d, int n_tried, int n_right)
{
    d->credit += EARNED + (float)n_right - ROW_COST * (float)n_tried;
    d->credit = RVI_MIN(d->credit, MOST_CREDIT);
}

/* ---- whether they pay ---- */

/* Products are computed for some rows at a time: what fills such a group is worth measuring, and a
 * few sizes are measured soon. */
static bool is_full(int n_rows)
{
    return n_rows == 2 || n_rows % 4 == 0;
}

int rvi_draft_choose(const rvi_draft *d, const rvi_budget *b, int most, rvi_draft_step *step)
{
    const double worth = 1.05; /* for less it is not tried: the times are not that exact */
    double plain = rvi_budget_seconds(b, step->n_rows), chance = 1, tokens = step->tokens;
    rvi_draft_step best = *step;
    if (plain <= 0) return 0;
    double rate = step->tokens / plain * worth;
    int n = RVI_MIN(RVI_MIN(most, d->n), (int)(d->credit / ROW_COST)), chosen = 0;
    for (int i = 0; i < n; i++) {
        chance *= rvi_draft_chance(d, i);
        tokens += chance;
        int n_rows = step->n_rows + i + 1;
        if (!is_full(n_rows) && i + 1 < n) continue;
        double seconds = RVI_MAX(rvi_budget_seconds(b, n_rows), plain);
        if (tokens <= rate * seconds) continue;
        rate = tokens / seconds;
        best = (rvi_draft_step){n_rows, tokens};
        chosen = i + 1;
    }
    *step = best;
    return chosen;
}
