/* answer_token.c - the next token of an answer: which may come, which is picked, and what it does
 * to the answer. */
#include <math.h>
#include <string.h>

#include "base/os.h"
#include "decode/answer_internal.h"
#include "decode/logprobs.h"

static bool is_eos(const rvi_engine *e, int32_t id)
{
    for (size_t i = 0; i < e->eos->len; i++)
        if (e->eos->data[i] == id) return true;
    return false;
}

bool rvi_answer_follows_slot(rvi_answer *a)
{
    size_t at = a->out.ids.len;
    if (at >= a->n_slot) return false;
    if (at && a->out.ids.data[at - 1] != a->slot_ids[at - 1])
        a->n_slot = 0; /* the answer went another way */
    return a->n_slot;
}

/* The slot's next token, while all before it came as it says. */
static void raise_slot(rvi_answer *a, float *logits, int n_vocab)
{
    size_t at = a->out.ids.len;
    if (!rvi_answer_follows_slot(a)) return;
    float *l = &logits[a->slot_ids[at]];
    if (!(*l > -INFINITY)) return;
    float best = -INFINITY;
    for (int i = 0; i < n_vocab; i++) best = logits[i] > best ? logits[i] : best;
    *l = best + a->slot_margin;
}

static void forbid(float *logits, size_t n_vocab, const rvi_ids *ids)
{
    for (size_t i = 0; i < ids->len; i++)
        if (ids->data[i] >= 0 && (size_t)ids->data[i] < n_vocab) logits[ids->data[i]] = -INFINITY;
}

/* Writes to a->piece the text that would follow out.text with this token (-1: without one),
 * including complete characters that the detokenizer still holds back. */
static bool find_text(rvi_answer *a, int32_t id)
{
    static const char incomplete[] = "\xef\xbf\xbd";
    rvi_detok next = a->detok; /* what a token's text is depends on those before it */
    a->piece.len = 0;
    if (id >= 0 && rvi_detok_push(&next, id, &a->piece, NULL)) return false;
    size_t certain = a->piece.len;
    if (rvi_detok_flush(&next, &a->piece, NULL)) return false;
    for (size_t i = certain; i + 3 <= a->piece.len; i++)
        if (!memcmp(a->piece.data + i, incomplete, 3)) a->piece.len = i;
    return true;
}

/* Tokens with which the text would share more than the branch. */
static void forbid_going_on(rvi_answer *a, const rvi_avoid *x, float *logits, size_t n_vocab)
{
    size_t at = a->out.text.len, rest = x->len - at;
    for (size_t id = 0; id < n_vocab; id++) {
        if (!(logits[id] > -INFINITY) || !find_text(a, (int32_t)id)) continue;
        size_t len = a->piece.len;
        if (at + len > x->branch && len <= rest && !memcmp(a->piece.data, x->text + at, len))
            logits[id] = -INFINITY;
    }
}

/* Keeps the answer from going as those went that it is to avoid. */
static void avoid(rvi_answer *a, float *logits, size_t n_vocab)
{
    const rvi_buf *text = &a->out.text;
    if (!find_text(a, -1)) return;
    size_t held = a->piece.len;
    for (size_t i = a->n_avoid; i-- > 0;) {
        const rvi_avoid *x = &a->avoid[i];
        if (text->len > x->branch || (text->len && memcmp(text->data, x->text, text->len)))
            rvi_answer_drop_avoid(a, i); /* it went another way */
        else if (text->len + held == x->len)
            forbid(logits, n_vocab, a->s->e->eos);
        else if (text->len + held + a->s->e->longest_piece > x->branch)
            forbid_going_on(a, x, logits, n_vocab);
    }
}

rvi_draw_ask rvi_answer_ask(const rvi_answer *a, int ahead)
{
    const rvi_draw_ask all = {.wants = RVI_DRAW_LOGITS};
    rvi_draw_ask ask;
    bool others = a->capture || a->bound || a->o.mask || a->n_avoid || a->n_slot ||
                  (!a->o.ignore_eos && a->out.ids.len < (size_t)a->o.min_tokens);
    if (others || !rvi_sampler_ask(a->sampler, ahead, &ask)) return all;
    if (a->out.chosen) ask.wants |= RVI_DRAW_EXPS;
    if (a->out.top) ask.wants |= RVI_DRAW_TOP;
    return ask;
}

/* From what came instead of all logits; false: that does not tell. */
static bool pick_drawn(rvi_answer *a, int32_t *id)
{
    const rvi_engine *e = a->s->e;
    if (e->has_best) *id = e->best[a->logits_at];
    if (e->has_best || !e->drawn) return e->has_best;
    const rvi_drawn *d = &e->drawn[a->logits_at];
    bool has_top = d->n >= (int)a->out.n_top || d->n == e->m->hp.n_vocab;
    if (!has_top || !rvi_sampler_pick_drawn(a->sampler, d, id)) return false;
    a->drawn = d;
    return true;
}

static rv_status pick_from(rvi_answer *a, float *logits, int32_t *id, bool *cancel)
{
    rvi_session *s = a->s;
    const rvi_engine *e = s->e;
    size_t n_vocab = (size_t)e->m->hp.n_vocab;
    if (a->raw) memcpy(a->raw, logits, n_vocab * sizeof *logits);
    if (!a->o.ignore_eos && a->out.ids.len < (size_t)a->o.min_tokens &&
        !(a->bound && rvi_bound_leaves_only(a->bound, e->eos)))
        forbid(logits, n_vocab, e->eos);
    if (a->bound) rvi_bound_apply(a->bound, logits, n_vocab);
    if (a->o.mask && a->o.mask(a->o.ctx, a->out.ids.data, a->out.ids.len, logits, n_vocab)) {
        *cancel = true;
        return RV_OK;
    }
    if (a->n_avoid) avoid(a, logits, n_vocab);
    raise_slot(a, logits, (int)n_vocab);
    rv_status st = rvi_sampler_pick(a->sampler, logits, s->past.data, s->past.len,
                                    (size_t)(a->out.n_prompt - a->n_cut), id, &a->error);
    for (size_t i = 0; st && i < n_vocab; i++)
        if (isnan(logits[i])) return rvi_engine_explain(e, st, &a->error);
    return st;
}

/* Whether more than the constraint has a say in which token comes. */
static bool others_decide(const rvi_answer *a)
{
    return a->o.mask || a->n_slot || a->n_avoid;
}

static rv_status force(rvi_answer *a, int32_t *id)
{
    return rvi_bound_force(a->bound, a->max_tokens - (int)a->out.ids.len, id, &a->error);
}

void rvi_answer_look_ahead(rvi_answer *a, const float *logits)
{
    if (!others_decide(a)) a->pick_status = force(a, &a->picked);
    if (!a->pick_status && a->picked < 0) a->pick_status = rvi_bound_look(a->bound, &a->error);
    if (a->picked >= 0 && a->raw)
        memcpy(a->raw, logits, (size_t)a->s->e->m->hp.n_vocab * sizeof *logits);
}

/* logits: NULL where they are not on the host. */
static rv_status pick(rvi_answer *a, float *logits, int32_t *id, bool *cancel)
{
    if (a->picked < 0 && !a->pick_status) {
        if (!logits && pick_drawn(a, id)) return RV_OK;
        return pick_from(a, logits ? logits : rvi_engine_fetch(a->s->e, a->logits_at), id, cancel);
    }
    *id = a->picked;
    return a->pick_status;
}

/* Of one that was picked from it. */
static float logit_of(const rvi_drawn *d, int32_t id)
{
    if (id == d->best) return d->best_logit;
    if (id == d->drawn) return d->drawn_logit;
    int low = 0, high = d->n - 1;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (d->ids[middle] < id)
            low = middle + 1;
        else
            high = middle;
    }
    return d->logits[low];
}

/* The same bits as from all logits. */
static void note_drawn(rvi_generated *out, const rvi_drawn *d, size_t at, int32_t id)
{
    double log_sum = (double)d->best_logit + log(d->exps);
    out->chosen[at] = (rv_token_prob){id, (float)((double)logit_of(d, id) - log_sum)};
    if (!out->top) return;
    rv_token_prob *top = out->top + at * out->n_top;
    rvi_top_logprobs(d->logits, d->n, log_sum, top, (int)out->n_top);
    for (size_t i = 0; i < out->n_top; i++)
        if (top[i].id >= 0) top[i].id = d->ids[top[i].id];
}

static void note_logprobs(rvi_answer *a, int32_t id)
{
    rvi_generated *out = &a->out;
    if (!out->chosen) return;
    int n_vocab = a->s->e->m->hp.n_vocab;
    size_t at = out->ids.len - 1;
    if (a->drawn) {
        note_drawn(out, a->drawn, at, id);
        return;
    }
    double log_sum = rvi_log_sum_exp(a->raw, n_vocab);
    out->chosen[at] = (rv_token_prob){id, (float)((double)a->raw[id] - log_sum)};
    if (out->top)
        rvi_top_logprobs(a->raw, n_vocab, log_sum, out->top + at * out->n_top, (int)out->n_top);
}

/* False: the answer has ended. */
static bool append_token(rvi_answer *a, int32_t id)
{
    rvi_session *s = a->s;
    rvi_generated *out = &a->out;
    bool cancel = false;
    out->ids.data[out->ids.len++] = id; /* room was reserved for both */
    s->past.data[s->past.len++] = id;
    note_logprobs(a, id);
    if (a->capture)
        rvi_capture_take(a->capture, s->e->ws, s->e->which[a->logits_at], a->raw, a->temperature,
                         id);
    rv_status st = a->bound ? rvi_bound_accept(a->bound, id, &a->error) : RV_OK;
    if (!st && (!a->o.ignore_eos || a->bound) && is_eos(s->e, id)) {
        rvi_answer_end(a, RV_FINISH_EOS, RV_OK);
        return false;
    }
    if (!st) st = rvi_answer_emit(a, id, &cancel);
    if (st)
        rvi_answer_end(a, RV_FINISH_ERROR, st);
    else if (a->stops.hit)
        rvi_answer_end(a, RV_FINISH_STOP, RV_OK);
    else if (cancel || atomic_load(&s->cancelled))
        rvi_answer_end(a, RV_FINISH_CANCELLED, RV_OK);
    else if (a->bound && (a->bound->complete || !a->bound->state))
        rvi_answer_end(a, RV_FINISH_EOS, RV_OK);
    else if (out->ids.len == (size_t)a->max_tokens)
        rvi_answer_end(a, RV_FINISH_LENGTH, RV_OK);
    return !a->ended;
}

void rvi_answer_jump(rvi_answer *a)
{
    int32_t id = -1;
    if (!a->bound || a->raw || others_decide(a)) return;
    do {
        rv_status st = force(a, &id);
        if (st) rvi_answer_end(a, RV_FINISH_ERROR, st);
    } while (!a->ended && id >= 0 && append_token(a, id));
}

void rvi_answer_take_token(rvi_answer *a, float *logits)
{
    bool cancel = false;
    int32_t id = -1;
    if (a->first <= 0) a->first = rvi_os_seconds();
    if (!a->max_tokens) {
        rvi_answer_end(a, RV_FINISH_LENGTH, RV_OK);
        return;
    }
    rv_status st = pick(a, logits, &id, &cancel);
    if (!st && !cancel && a->bound && !others_decide(a))
        st = rvi_bound_reconsider(a->bound, a->max_tokens - (int)a->out.ids.len, logits,
                                  (size_t)a->s->e->m->hp.n_vocab, &id, &a->error);
    if (st || cancel)
        rvi_answer_end(a, RV_FINISH_CANCELLED, st);
    else if (id < 0)
        rvi_answer_end(a, RV_FINISH_EOS, RV_OK);
    else
        append_token(a, id);
}

/* ---- all answers of a step ---- */

/* Answers whose tokens the threads pick side by side. */
typedef struct picks {
    const rvi_engine *e;
    rvi_answer **answers;
} picks;

static void pick_task(void *ctx, int task, int worker)
{
    const picks *p = ctx;
    rvi_answer *a = p->answers[task];
    bool cancel; /* only a mask can */
    float *logits = rvi_engine_logits(p->e, a->logits_at);
    (void)worker;
    if (logits)
        a->pick_status = pick_from(a, logits, &a->picked, &cancel);
    else if (!pick_drawn(a, &a->picked))
        a->picked = -1; /* the computing thread fetches them, later */
}

/* A token is picked from its answer's own logits and past: the threads may do that for all answers
 * of a step at once. A mask is the caller's code and runs on the caller's thread, later. */
void rvi_answer_pick_all(rvi_engine *e)
{
    enum { MOST = 64 };
    rvi_answer *answers[MOST];
    picks p = {e, answers};
    int n = 0;
    for (rvi_answer *a = e->answers; a; a = a->next) {
        a->picked = -1;
        a->drawn = NULL;
        a->pick_status = RV_OK;
        if (a->logits_at < 0 || !a->max_tokens) continue;
        if (a->bound) rvi_answer_look_ahead(a, rvi_engine_logits(e, a->logits_at));
        if (a->picked < 0 && !a->pick_status && !a->o.mask && n < MOST) answers[n++] = a;
    }
    rvi_backend *be = e->o.be ? e->o.be : e->m->be;
    if (n > 1) be->ops->run(be, pick_task, &p, n);
}
