#include "decode/drafter.h"

#include <math.h>
#include <string.h>

#include "base/os.h"

rv_status rvi_drafter_check(const rvi_engine *e, const rvi_engine *by, rv_error *err)
{
    if (!e->t != !by->t || (!e->t && e->m->hp.n_vocab != by->m->hp.n_vocab))
        return rvi_error(err, RV_E_INVALID, "the draft model has another vocabulary");
    if (!e->t) return RV_OK;
    int32_t n = rvi_tokenizer_size(e->t), other = rvi_tokenizer_size(by->t);
    if (n != other)
        return rvi_error(err, RV_E_INVALID,
                         "the draft model has another vocabulary: %d tokens instead of %d", other,
                         n);
    for (int32_t id = 0; id < n; id++) {
        size_t a_len = 0, b_len = 0;
        const char *a = rvi_tokenizer_text(e->t, id, &a_len),
                   *b = rvi_tokenizer_text(by->t, id, &b_len);
        if (!a && !b) continue;
        if (!a || !b || a_len != b_len || memcmp(a, b, a_len) != 0)
            return rvi_error(err, RV_E_INVALID,
                             "the draft model has another vocabulary: token %d is '%.*s' instead "
                             "of '%.*s'",
                             id, b ? (int)RVI_MIN(b_len, (size_t)40) : 0, b ? b : "",
                             a ? (int)RVI_MIN(a_len, (size_t)40) : 0, a ? a : "");
    }
    return RV_OK;
}

typedef struct likely {
    int32_t id;
    double p;
} likely;

/* The most likely token, and the one after it. */
static likely best(const float *logits, int n, likely *second)
{
    int32_t at = 0, next = -1;
    double sum = 0;
    for (int i = 1; i < n; i++)
        if (logits[i] > logits[at]) {
            next = at;
            at = i;
        } else if (next < 0 || logits[i] > logits[next]) {
            next = i;
        }
    for (int i = 0; i < n; i++) sum += (double)expf(logits[i] - logits[at]);
    *second = (likely){next, next < 0 ? 0 : (double)expf(logits[next] - logits[at]) / sum};
    return (likely){at, 1 / sum};
}

/* In steps, as in draft.c. */
#define ROW_COST     0.25
#define EARNED       0.01
#define FIRST_CREDIT 1.0
#define MOST_CREDIT  8.0
#define LEAST_CREDIT (-1.0) /* a time that was measured wrong is forgotten some day */

rvi_drafter rvi_drafter_begin(rvi_session *by)
{
    return (rvi_drafter){.by = by, .credit = FIRST_CREDIT};
}

/* Is there enough in the account for what came since, a pass and a row? */
static bool affords(const rvi_drafter *w, const rvi_session *s, double plain)
{
    double missing = (double)s->past.len - w->by->seq.len;
    if (!w->has_read || plain <= 0) return true;
    double seconds = w->seconds + w->reading * RVI_MAX(missing - 1, 0);
    return seconds / plain + ROW_COST <= w->credit;
}

void rvi_drafter_settle(rvi_drafter *w, double plain, int n_tried, int n_right)
{
    double gain = EARNED;
    if (w->spent > 0 && plain > 0) gain += n_right - w->spent / plain - ROW_COST * n_tried;
    w->credit = RVI_MAX(RVI_MIN(w->credit + gain, MOST_CREDIT), LEAST_CREDIT);
    w->spent = 0;
}

/* Reads what the answer has got since, in pieces, so that a cancel does not wait for all of it. */
static float *read_past(rvi_drafter *w, const rvi_session *s)
{
    rvi_session *by = w->by;
    size_t n = s->past.len, piece = (size_t)by->e->o.max_rows;
    float *logits = NULL;
    if (n >= (size_t)by->n_context) return NULL;
    int rope_set = rvi_rope_set(&by->e->m->rope, by->n_context);
    size_t at = (size_t)rvi_session_reuse(by, s->past.data, n, rope_set, true);
    while (at < n && !atomic_load(&s->cancelled)) {
        at = RVI_MIN(at + piece, n);
        if (rvi_session_sync(by, s->past.data, at, NULL, at == n ? &logits : NULL, NULL))
            return NULL;
    }
    return logits;
}

static float *catch_up(rvi_drafter *w, const rvi_session *s)
{
    double start = rvi_os_seconds();
    int before = w->by->seq.len;
    float *logits = read_past(w, s);
    double seconds = rvi_os_seconds() - start;
    int n = w->by->seq.len - before;
    if (n > 1) w->reading = seconds / n;
    if (w->has_read) w->spent += seconds;
    w->has_read = true;
    return logits;
}

static float *read_guess(rvi_session *by, int32_t id)
{
    rvi_step_row row = {.s = by, .token = id, .want_logits = true, .set = by->adapters};
    if (by->seq.len >= by->n_context || rvi_engine_step(by->e, &row, 1, NULL)) return NULL;
    return rvi_engine_logits(by->e, 0);
}

/* Is one more guess, of the usual quality, behind n of them worth a pass and a row? */
static bool pays(const rvi_drafter *w, const rvi_draft *d, int n, double chance,
                 const rvi_budget *b, const rvi_draft_step *step)
{
    double now = rvi_budget_seconds(b, step->n_rows + n),
           more = rvi_budget_seconds(b, step->n_rows + n + 1) - now;
    double cost = w->seconds + RVI_MAX(more, 0), spent = now + w->seconds * n;
    return chance * rvi_draft_usual(d) * spent > cost * step->tokens;
}

void rvi_drafter_guess(rvi_drafter *w, rvi_draft *d, const rvi_session *s, int most,
                       const rvi_budget *b, const rvi_draft_step *step, bool any_cost)
{
    enum { FIRST_REST = 16, LONGEST_REST = 1024 };
    const double side = 0.1; /* less likely ones are never worth a row */
    int n_vocab = RVI_MIN(w->by->e->m->hp.n_vocab, s->e->m->hp.n_vocab);
    rvi_draft_step now = *step;
    double chance = 1;
    if (most < 1 || (w->n_paused > 0 && w->n_paused--)) return;
    if (!any_cost && !affords(w, s, rvi_budget_seconds(b, step->n_rows))) return;
    if (!any_cost && w->seconds <= 0) most = RVI_MIN(most, 2); /* to see what a pass costs */
    if (!any_cost && w->seconds > 0 && !pays(w, d, 0, 1, b, step)) {
        w->pause = RVI_MIN(w->pause ? 2 * w->pause : FIRST_REST, LONGEST_REST);
        w->n_paused = w->pause;
        most = 1; /* to see whether it would be right now */
    }
    float *logits = catch_up(w, s);
    double start = rvi_os_seconds();
    if (!logits) return;
    rvi_draft_clear(d);
    while (logits) {
        likely second, guess = best(logits, n_vocab, &second);
        if (chance * second.p > side) rvi_draft_add_side(d, second.id, second.p);
        rvi_draft_add(d, guess.id, guess.p);
        chance *= rvi_draft_chance(d, &d->first, d->first.n - 1);
        now.tokens += chance;
        if (d->first.n == RVI_MIN(most, RVI_DRAFT_MOST)) break;
        if (!any_cost && w->seconds > 0 && !pays(w, d, d->first.n, chance, b, &now)) break;
        logits = read_guess(w->by, guess.id);
    }
    if (d->first.n < 2) return;
    double seconds = (rvi_os_seconds() - start) / (d->first.n - 1);
    w->spent += rvi_os_seconds() - start;
    w->seconds = w->seconds > 0 ? w->seconds + 0.25 * (seconds - w->seconds) : seconds;
    w->pause = 0;
}
