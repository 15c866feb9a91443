#include "decode/draft.h"

#include "base/compat.h"

/* Kinds: all of a model; 1 to LONGEST, the tokens that agree; known ones; what followed elsewhere,
 * by the tokens that agree; then of a model by their probability. */
enum { ANY_MODEL, LONGEST = 10, KNOWN, ELSEWHERE, MODEL = ELSEWHERE + 4 };
enum { CLASSES = RVI_DRAFT_KINDS - MODEL };

/* A rate is a mean over about MEMORY guesses, and begins as if FIRST had been seen. */
#define MEMORY 24.0f
#define FIRST  2.0f

/* In steps. A row costs 0.2 to 0.3 of a step where a model runs on two cores; times of a busy
 * machine often say less, and are believed only where they say more. */
#define LEAST_COST   0.25f
#define EARNED       0.01f
#define FIRST_CREDIT 0.5f
#define MOST_CREDIT  8.0f

void rvi_draft_init(rvi_draft *d)
{
    d->credit = FIRST_CREDIT;
    for (int k = 0; k < RVI_DRAFT_KINDS; k++) {
        float rate = k == ANY_MODEL ? 0.7f
                     : k <= LONGEST ? (float)k / (float)(k + 4)
                     : k == KNOWN   ? 0.95f
                     : k < MODEL    ? 0.1f
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

typedef struct place {
    size_t at; /* where an agreement ends */
    int len;
} place;

/* Where the longest agreements end, each followed by another token; the longest first, the latest
 * of equals. Returns how many there are. */
static int find(const int32_t *past, size_t n, place found[1 + RVI_DRAFT_SIDES])
{
    int n_found = 0;
    int32_t last = past[n - 1];
    for (size_t at = n - 1; at > 0; at--) {
        if (past[at - 1] != last) continue;
        int len = agree(past, n, at), same = 0;
        while (same < n_found && past[found[same].at] != past[at]) same++;
        if (same < n_found && found[same].len >= len) continue;
        if (same == n_found && n_found <= RVI_DRAFT_SIDES) n_found++;
        if (same > RVI_DRAFT_SIDES) {
            if (found[RVI_DRAFT_SIDES].len >= len) continue;
            same = RVI_DRAFT_SIDES;
        }
        for (; same > 0 && found[same - 1].len < len; same--) found[same] = found[same - 1];
        found[same] = (place){at, len};
        if (found[0].len == LONGEST) break; /* that is certain enough */
    }
    return n_found;
}

/* What followed at a place. Where that reaches the end of the past, it goes on with the guesses. */
static void follow(rvi_draft_way *w, const int32_t *past, size_t n_past, place from, int n)
{
    w->n = n;
    for (int i = 0; i < n; i++) {
        size_t at = from.at + (size_t)i;
        w->ids[i] = at < n_past ? past[at] : w->ids[at - n_past];
        w->kinds[i] = (uint8_t)RVI_MIN(from.len + i, LONGEST);
    }
}

void rvi_draft_clear(rvi_draft *d)
{
    d->first.n = d->first.n_taken = d->n_sides = 0;
}

void rvi_draft_repeat(rvi_draft *d, const int32_t *past, size_t n_past, int most)
{
    place found[1 + RVI_DRAFT_SIDES];
    rvi_draft_clear(d);
    if (n_past < 2 || most < 1) return;
    most = RVI_MIN(most, RVI_DRAFT_MOST);
    int n = find(past, n_past, found);
    if (n) follow(&d->first, past, n_past, found[0], most);
    for (int i = 1; i < n; i++) {
        rvi_draft_way *side = &d->sides[d->n_sides++];
        follow(side, past, n_past, found[i], most);
        side->kinds[0] = (uint8_t)(ELSEWHERE + RVI_MIN(found[i].len, MODEL - ELSEWHERE) - 1);
        side->at = side->n_taken = 0;
    }
}

void rvi_draft_known(rvi_draft *d, const int32_t *ids, size_t n, int most)
{
    rvi_draft_clear(d);
    d->first.n = (int)RVI_MIN(n, (size_t)RVI_MAX(RVI_MIN(most, RVI_DRAFT_MOST), 0));
    for (int i = 0; i < d->first.n; i++) {
        d->first.ids[i] = ids[i];
        d->first.kinds[i] = KNOWN;
    }
}

static void add(rvi_draft_way *w, int32_t id, double p)
{
    w->ids[w->n] = id;
    w->kinds[w->n++] = (uint8_t)(MODEL + RVI_MIN((int)(p * CLASSES), CLASSES - 1));
}

void rvi_draft_add(rvi_draft *d, int32_t id, double p)
{
    add(&d->first, id, p);
}

void rvi_draft_add_side(rvi_draft *d, int32_t id, double p)
{
    if (d->n_sides == RVI_DRAFT_SIDES) return;
    rvi_draft_way *side = &d->sides[d->n_sides++];
    side->n = side->n_taken = 0;
    side->at = d->first.n;
    add(side, id, p);
}

/* ---- whether they are right ---- */

double rvi_draft_usual(const rvi_draft *d)
{
    return (double)(d->right[ANY_MODEL] / d->tried[ANY_MODEL]);
}

double rvi_draft_chance(const rvi_draft *d, const rvi_draft_way *w, int i)
{
    int k = w->kinds[i];
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

void rvi_draft_learn(rvi_draft *d, const rvi_draft_way *w, int i, bool right)
{
    count(d, w->kinds[i], right);
    if (w == &d->first && w->kinds[i] >= MODEL) count(d, ANY_MODEL, right);
}

/* What n rows more add to a step of n_plain, in such steps. */
static double cost_of(const rvi_budget *b, int n_plain, int n)
{
    double plain = rvi_budget_seconds(b, n_plain), least = (double)LEAST_COST * n;
    if (plain <= 0) return least;
    return RVI_MAX(rvi_budget_seconds(b, n_plain + n) / plain - 1, least);
}

void rvi_draft_settle(rvi_draft *d, const rvi_budget *b, int n_tried, int n_right)
{
    float cost = n_tried ? (float)cost_of(b, d->n_plain, n_tried) : 0;
    d->credit = RVI_MIN(d->credit + EARNED + (float)n_right - cost, MOST_CREDIT);
}

/* ---- whether they pay ---- */

/* Products are computed for some rows at a time: what fills such a group is worth measuring, and a
 * few sizes are measured soon. */
static bool is_full(int n_rows)
{
    return n_rows == 2 || n_rows % 4 == 0;
}

/* The ways of a draft while its guesses are taken one by one: the first, then its sides. */
typedef struct taking {
    rvi_draft *d;
    double chance[1 + RVI_DRAFT_SIDES]; /* that all guesses taken of a way are right */
    int n_taken[1 + RVI_DRAFT_SIDES];
} taking;

static rvi_draft_way *way_at(rvi_draft *d, int i)
{
    return i ? &d->sides[i - 1] : &d->first;
}

/* That the next guess of a way is right, and all before it; 0: it has none, or leaves the first way
 * behind what was not taken. */
static double next_chance(const taking *t, int i)
{
    const rvi_draft_way *w = way_at(t->d, i);
    double chance = t->chance[i];
    if (t->n_taken[i] == w->n || (i && w->at > t->n_taken[0])) return 0;
    for (int k = 0; i && !t->n_taken[i] && k < w->at; k++)
        chance *= rvi_draft_chance(t->d, &t->d->first, k);
    return chance * rvi_draft_chance(t->d, w, t->n_taken[i]);
}

/* Takes the most likely guess; returns its chance, 0: there is none. */
static double take_next(taking *t)
{
    double best = 0;
    int which = 0;
    for (int i = 0; i <= t->d->n_sides; i++) {
        double chance = next_chance(t, i);
        if (chance <= best) continue;
        best = chance;
        which = i;
    }
    if (best > 0) {
        t->chance[which] = best;
        t->n_taken[which]++;
    }
    return best;
}

static taking take_none(rvi_draft *d)
{
    taking t = {.d = d};
    for (int i = 0; i <= RVI_DRAFT_SIDES; i++) {
        t.chance[i] = 1;
        way_at(d, i)->n_taken = 0;
    }
    return t;
}

static void take_these(const taking *t)
{
    for (int i = 0; i <= t->d->n_sides; i++) way_at(t->d, i)->n_taken = t->n_taken[i];
}

int rvi_draft_choose(rvi_draft *d, const rvi_budget *b, int most, rvi_draft_step *step)
{
    const double worth = 1.05; /* for less it is not tried: the times are not that exact */
    double plain = rvi_budget_seconds(b, step->n_rows), tokens = step->tokens;
    rvi_draft_step best = *step;
    taking t = take_none(d);
    if (plain <= 0) return 0;
    double rate = step->tokens / plain * worth;
    bool known = d->first.n && d->first.kinds[0] == KNOWN; /* nothing to be earned first */
    int n = most, chosen = 0, n_all = d->first.n;
    d->n_plain = step->n_rows;
    for (int i = 0; i < d->n_sides; i++) n_all += d->sides[i].n;
    n = RVI_MIN(n, n_all);
    for (int i = 0; i < n; i++) {
        double chance = take_next(&t);
        if (chance <= 0) break;
        tokens += chance;
        int n_rows = step->n_rows + i + 1;
        if (!is_full(n_rows) && i + 1 < n) continue;
        double seconds = RVI_MAX(rvi_budget_seconds(b, n_rows), plain);
        if (!known && cost_of(b, step->n_rows, i + 1) > (double)d->credit) break;
        if (tokens <= rate * seconds) continue;
        rate = tokens / seconds;
        best = (rvi_draft_step){n_rows, tokens};
        chosen = i + 1;
        take_these(&t);
    }
    *step = best;
    return chosen;
}

int rvi_draft_take_all(rvi_draft *d, int most)
{
    taking t = take_none(d);
    int n = 0;
    while (n < most && take_next(&t) > 0) n++;
    take_these(&t);
    return n;
}
