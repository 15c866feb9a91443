/* answer_step.c - one forward pass for the answers under way. */
#include "base/os.h"
#include "decode/answer_internal.h"

void rvi_answer_cut(rvi_session *s, int from, int n)
{
    rvi_answer *a = s->answer;
    int of_prompt = RVI_MIN(a->out.n_prompt - a->n_cut - from, n);
    if (of_prompt > 0) a->n_cut += of_prompt;
    rvi_session_cut(s, from, n);
}

int rvi_answer_waiting(const rvi_session *s)
{
    return (int)(s->past.len - (size_t)s->seq.len);
}

int rvi_answer_count(const rvi_engine *e)
{
    int n = 0;
    for (const rvi_answer *a = e->answers; a; a = a->next) n++;
    return n;
}

static int waiting(const rvi_answer *a)
{
    return rvi_answer_waiting(a->s);
}

/* Adds the rows of one answer that fit and are allowed. */
static void add_rows(rvi_engine *e, rvi_answer *a)
{
    int n = RVI_MIN(RVI_MIN(waiting(a), a->s->allowed), rvi_engine_room(e));
    bool picks_one = !a->reader.read && n == waiting(a);
    if (picks_one && !rvi_engine_logits_room(e)) n--; /* its last row waits for the next step */
    if (n < 1) return;
    picks_one = picks_one && n == waiting(a);
    int at = e->n_logits;
    a->first_row = e->n_rows;
    rv_status st = rvi_engine_add(e, a->s, n, a->s->adapters, picks_one, &a->error);
    if (st)
        rvi_answer_end(a, RV_FINISH_ERROR, st);
    else
        a->n_rows = n;
    if (!st && picks_one) a->logits_at = at;
}

/* Answers that got logits go to the end of the list, so that all have their turn when there are
 * more of them than a step has room for. Prompts that wait stay where they are: oldest first. */
static void rotate(rvi_engine *e)
{
    rvi_answer *served = NULL, **served_end = &served, **at = &e->answers;
    while (*at) {
        rvi_answer *a = *at;
        if (a->logits_at < 0) {
            at = &a->next;
            continue;
        }
        *at = a->next;
        a->next = NULL;
        *served_end = a;
        served_end = &a->next;
    }
    *at = served;
}

static bool takes_part(const rvi_answer *a, const rvi_session *only)
{
    return !only || a->s == only;
}

/* Ends the cancelled ones; returns how many. */
static size_t end_cancelled(rvi_engine *e, const rvi_session *only)
{
    size_t n = 0;
    for (rvi_answer *a = e->answers, *next; a; a = next) {
        next = a->next;
        if (!takes_part(a, only) || !atomic_load(&a->s->cancelled)) continue;
        rvi_answer_end(a, RV_FINISH_CANCELLED, RV_OK);
        n++;
    }
    return n;
}

static void collect_rows(rvi_engine *e, const rvi_session *only)
{
    rvi_answer *a, *next;
    rvi_engine_begin(e);
    for (a = e->answers; a; a = a->next) {
        a->n_rows = a->n_tried = 0;
        rvi_draft_clear(&a->draft);
        rvi_answer_drop_sides(a);
        a->logits_at = -1;
    }
    /* tokens of answers that decode come first, then prompts */
    for (int prompts = 0; prompts < 2; prompts++)
        for (a = e->answers; a; a = next) {
            next = a->next;
            if (!takes_part(a, only) || (waiting(a) > 1) != prompts || a->n_rows) continue;
            add_rows(e, a);
        }
    rvi_answer_guess_all(e);
}

static void ask(rvi_engine *e, const rvi_answer *a, int at, int n, int ahead)
{
    for (int i = 0; i < n; i++) e->asks[at + i] = rvi_answer_ask(a, ahead + i);
}

/* Most logits need not leave a device: what must be known of each instead. */
static void ask_all(rvi_engine *e)
{
    int n_all = 0, wants = 0;
    for (const rvi_answer *a = e->answers; a; a = a->next) {
        const rvi_draft *d = &a->draft;
        if (a->logits_at < 0) continue;
        ask(e, a, a->logits_at, 1, 0);
        if (!a->n_tried) continue;
        ask(e, a, a->tried_logits, d->first.n_taken, 1);
        for (int i = 0; i < d->n_sides; i++)
            ask(e, a, a->side_logits[i], d->sides[i].n_taken, d->sides[i].at + 1);
    }
    for (int i = 0; i < e->n_logits; i++) {
        wants |= e->asks[i].wants;
        n_all += (e->asks[i].wants & RVI_DRAW_LOGITS) != 0;
    }
    bool rather_all = 2 * n_all > e->n_logits; /* at once, not each by itself */
    e->then = !wants ? RVI_THEN_BEST : rather_all ? RVI_THEN_LOGITS : RVI_THEN_DRAWN;
}

/* Tokens that the rows of a step read; what rows of one text read together counts in part. */
static double count_reads(const rvi_engine *e)
{
    double n = 0;
    for (int i = 0; i < e->n_rows; i++) {
        bool is_first = !i || e->rows[i].seq != e->rows[i - 1].seq;
        n += e->rows[i].pos * (is_first ? 1 : RVI_READ_TOGETHER);
    }
    return n;
}

/* One forward pass. If an answer is cancelled during the pass, it ends, and the pass is repeated
 * for the others with the same bits. */
static rv_status compute_step(rvi_engine *e, const rvi_session *only, rv_error *err)
{
    rv_status st;
    (void)end_cancelled(e, only);
    rvi_workspace_set_progress(e->ws, rvi_answer_report_step, e);
    do {
        collect_rows(e, only);
        ask_all(e);
        double start = rvi_os_seconds();
        st = e->n_rows ? rvi_engine_compute(e, err) : RV_OK;
        if (!st && e->n_rows)
            rvi_budget_note(&e->budget, e->n_rows, count_reads(e), rvi_os_seconds() - start);
    } while (st && end_cancelled(e, only));
    rvi_workspace_set_progress(e->ws, NULL, NULL);
    return st;
}

/* Readers come after all picks: reading may overwrite the step's logits. */
static void read_rows(rvi_engine *e)
{
    for (rvi_answer *a = e->answers, *next; a; a = next) {
        next = a->next;
        if (!a->n_rows || !a->reader.read) continue;
        rv_status st = a->reader.read(a->reader.ctx, e, a->first_row, a->n_rows,
                                      a->s->seq.len - a->n_rows, &a->error);
        if (st || !waiting(a)) rvi_answer_end(a, RV_FINISH_LENGTH, st);
    }
}

size_t rvi_answer_advance(rvi_engine *e, const rvi_session *only)
{
    rvi_answer *a, *next;
    rv_error error = {0};
    rv_status st = compute_step(e, only, &error);
    if (!st) rvi_answer_pick_all(e);
    for (a = e->answers; a && !st; a = a->next) {
        a->s->n_ahead = a->draft.first.n_taken;
        a->out.n_guessed += a->n_tried;
    }
    for (a = e->answers; a; a = next) {
        bool cancel = false;
        next = a->next;
        if (!a->n_rows) continue;
        if (st) a->error = error;
        if (!st && rvi_answer_is_prompting(a)) rvi_answer_tell_prompt(a, a->s->seq.len, &cancel);
        if (st || cancel)
            rvi_answer_end(a, RV_FINISH_CANCELLED, st);
        else if (a->logits_at >= 0)
            rvi_answer_take_tokens(a);
    }
    if (!st) read_rows(e);
    if (!only) rotate(e);
    size_t running = 0;
    for (a = e->answers; a; a = a->next) running += takes_part(a, only);
    return running;
}
