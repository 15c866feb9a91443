/* answer_guess.c - guesses of an answer: which a step tries, and which came true (draft.h). */
#include <string.h>

#include "decode/answer_internal.h"

void rvi_answer_forget_guesses(rvi_session *s)
{
    rvi_seq_truncate(&s->seq, s->seq.len - s->n_ahead);
    s->n_ahead = 0;
}

void rvi_answer_drop_sides(rvi_answer *a)
{
    for (int i = 0; a->has_sides && i < RVI_DRAFT_SIDES; i++) rvi_seq_truncate(&a->sides[i], 0);
}

/* ---- before a step ---- */

/* Leaves out what the constraint forbids. */
static void allow_guesses(rvi_answer *a)
{
    rvi_draft *d = &a->draft;
    uint32_t states[RVI_DRAFT_MOST + 1];
    int n_sides = 0;
    states[0] = a->bound->state;
    d->first.n = rvi_bound_count_allowed(a->bound, d->first.ids, d->first.n, states);
    for (int i = 0; i < d->n_sides; i++) {
        rvi_draft_way *side = &d->sides[i];
        uint32_t own[RVI_DRAFT_MOST + 1] = {0};
        if (side->at <= d->first.n) own[0] = states[side->at];
        side->n = rvi_bound_count_allowed(a->bound, side->ids, side->n, own);
        if (side->n) d->sides[n_sides++] = *side;
    }
    d->n_sides = n_sides;
}

/* What may come after the token that waits. A repetition that is nearly certain costs less than a
 * model. */
static void guess(rvi_answer *a, const rvi_draft_step *step)
{
    const double certain = 0.8;
    const rvi_engine *e = a->s->e;
    const rvi_session *s = a->s;
    rvi_draft *d = &a->draft;
    size_t at = a->out.ids.len;
    int most = a->max_tokens - (int)at - 1; /* the last token has no row */
    if (a->logits_at < 0 || a->first <= 0 || a->o.draft == RV_DRAFT_OFF) return;
    if (rvi_answer_follows_slot(a))
        rvi_draft_known(d, a->slot_ids + at, a->n_slot - at, most);
    else
        rvi_draft_repeat(d, s->past.data, s->past.len, most);
    bool is_certain = d->first.n && rvi_draft_chance(d, &d->first, 0) >= certain;
    if (a->drafter.by && !is_certain)
        rvi_drafter_guess(&a->drafter, d, s, most, &e->budget, step, e->tries_all);
    if (!a->has_sides) d->n_sides = 0;
    if (a->bound) allow_guesses(a);
}

static int free_pages(const rvi_engine *e)
{
    return rvi_pages_total(e->pool) - rvi_pages_in_use(e->pool);
}

/* Adds a side of the guesses, if there are pages for it; nobody else is to give up some. */
static void add_side(rvi_engine *e, rvi_answer *a, int i)
{
    rvi_draft_way *side = &a->draft.sides[i];
    int from = a->s->seq.len - a->draft.first.n_taken - a->n_rows, to = from + a->n_rows + side->at;
    int n = side->n_taken;
    a->side_logits[i] = e->n_logits;
    side->n_taken = 0;
    if (!n || side->at > a->draft.first.n_taken ||
        (to + n - from) / RVI_PAGE_TOKENS + 2 > free_pages(e))
        return;
    if (rvi_engine_add_side(e, a->s, &a->sides[i], from, to, side->ids, n, a->s->adapters, NULL))
        return;
    side->n_taken = n;
    a->n_tried += n;
}

/* The guesses of the first way for which there are pages. */
static void add_first(rvi_engine *e, rvi_answer *a)
{
    rvi_session *s = a->s;
    rvi_draft_way *w = &a->draft.first;
    int n = w->n_taken, n_free = free_pages(e);
    while (n > 0 && rvi_seq_wants(&s->seq, n) > n_free) n--;
    w->n_taken = 0;
    if (n < 1) return;
    memcpy(s->past.data + s->past.len, w->ids, (size_t)n * sizeof *w->ids);
    a->tried_logits = e->n_logits;
    if (!rvi_engine_add(e, s, n, s->adapters, n, NULL)) a->n_tried = w->n_taken = n;
}

static void add_guesses(rvi_engine *e, rvi_answer *a, rvi_draft_step *step)
{
    int most = RVI_MIN(rvi_engine_room(e), rvi_engine_logits_room(e));
    if (!a->draft.first.n && !a->draft.n_sides) return;
    int n = e->tries_all ? rvi_draft_take_all(&a->draft, most)
                         : rvi_draft_choose(&a->draft, &e->budget, most, step);
    if (n < 1) return;
    add_first(e, a);
    for (int i = 0; i < a->draft.n_sides; i++) add_side(e, a, i);
}

/* Last, with the room that is left. */
void rvi_answer_guess_all(rvi_engine *e)
{
    rvi_draft_step step = {0};
    if (e->o.max_logits < 2) return;
    for (const rvi_answer *a = e->answers; a; a = a->next) step.n_rows += a->logits_at >= 0;
    step.tokens = step.n_rows;
    for (rvi_answer *a = e->answers; a; a = a->next) {
        guess(a, &step);
        add_guesses(e, a, &step);
    }
}

/* ---- behind a step ---- */

/* Where the tokens of a step are in the tree of its guesses. */
typedef struct walk {
    const rvi_draft_way *way;
    int next;   /* the guess that the token may be */
    int logits; /* the place of those behind the way's first guess */
} walk;

/* The side that a token turns into, and which the step has tried; -1: none. */
static int find_side(const rvi_answer *a, const walk *w, int32_t id)
{
    const rvi_draft *d = &a->draft;
    for (int i = 0; i < d->n_sides && w->way == &d->first; i++)
        if (d->sides[i].at == w->next && d->sides[i].n_taken && d->sides[i].ids[0] == id) return i;
    return -1;
}

static void learn(rvi_answer *a, const walk *w, int32_t id)
{
    rvi_draft *d = &a->draft;
    if (w->next < w->way->n) rvi_draft_learn(d, w->way, w->next, id == w->way->ids[w->next]);
    for (int i = 0; i < d->n_sides && w->way == &d->first; i++)
        if (d->sides[i].at == w->next)
            rvi_draft_learn(d, &d->sides[i], 0, id == d->sides[i].ids[0]);
}

/* Goes on with the token that came; false: it was not tried. */
static bool step_on(rvi_answer *a, walk *w, int32_t id)
{
    rvi_session *s = a->s;
    if (w->next < w->way->n_taken && id == w->way->ids[w->next]) {
        w->next++;
        s->n_ahead--;
        return true;
    }
    int side = find_side(a, w, id);
    if (side < 0) return false;
    /* what the session has in its pages: all before the guesses, and those that were right */
    int to = s->seq.len - s->n_ahead;
    rvi_session_turn(s, &a->sides[side], to);
    *w = (walk){&a->draft.sides[side], 1, a->side_logits[side]};
    s->n_ahead = w->way->n_taken - 1;
    a->out.n_turned++;
    return true;
}

void rvi_answer_take_tokens(rvi_answer *a)
{
    const rvi_engine *e = a->s->e;
    walk w = {&a->draft.first, 0, a->tried_logits};
    int n_right = 0;
    for (bool right = true; right; n_right += right) {
        size_t n = a->out.ids.len;
        if (n_right) a->logits_at = w.logits + w.next - 1;
        if (n_right && a->bound) rvi_answer_look_ahead(a, rvi_engine_logits(e, a->logits_at));
        rvi_answer_take_token(a, rvi_engine_logits(e, a->logits_at));
        if (a->ended) return;
        learn(a, &w, a->out.ids.data[n]);
        right = step_on(a, &w, a->out.ids.data[n]);
        a->out.n_right += right;
        a->picked = -1;
        a->drawn = NULL;
    }
    rvi_draft_settle(&a->draft, &e->budget, a->n_tried, n_right);
    if (a->drafter.by)
        rvi_drafter_settle(&a->drafter,
                           rvi_budget_seconds(&e->budget, RVI_MAX(a->draft.n_plain, 1)), a->n_tried,
                           n_right);
    rvi_answer_forget_guesses(a->s);
    rvi_answer_drop_sides(a);
    rvi_answer_jump(a);
}
