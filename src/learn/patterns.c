/* How the bank (bank.h) takes part: it follows the feedback log. Every event is applied after it
 * was logged, in the log's order, and the bank remembers how far it came: what a crash or an error
 * kept from it is made up for by the next call, or when the learner is opened again. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "learn/bank.h"
#include "learn/learner_internal.h"
#include "learn/text.h"

/* ---- what a question is like ---- */

/* The gate's features of the question without its subject, in units of their spread; *out NULL:
 * there is no calibration yet, or nothing to compare by. */
static rv_status read_vector(rvi_learner *l, rvi_text question, rvi_text subject, float **out,
                             rv_error *err)
{
    const rvi_calibration *c = l->calibration;
    rvi_gate_mask mask = {0};
    *out = NULL;
    if (!c || !l->features || !question.len) return RV_OK;
    for (size_t at = 0; subject.len && !mask.len && at + subject.len <= question.len; at++)
        if (!memcmp(question.data + at, subject.data, subject.len))
            mask = (rvi_gate_mask){at, subject.len};
    rvi_gate_text text = {question.data, question.len, &mask, mask.len > 0};
    float *x = rvi_alloc_array((size_t)c->dim, sizeof *x), length = 0;
    if (!x) return rvi_nomem(err, "features");
    rv_status st = rvi_features_read(l->features, &text, 1, x, err);
    for (int i = 0; !st && i < c->dim; i++) {
        x[i] = (x[i] - c->mean[i]) * c->scale[i];
        length += x[i] * x[i];
    }
    if (!st && length > 0 && isfinite(length))
        *out = x;
    else
        rvi_free(x);
    return st;
}

/* ---- events ---- */

/* Subject and relation are the question's, whatever was answered: so all answers to it meet. */
static rv_status learn(rvi_learner *l, const rvi_feedback *f, rv_error *err)
{
    static const char some_answer[] = "this";
    rvi_pattern about = {0};
    rvi_fact *fact = NULL;
    float *vector = NULL;
    if (f->kind != RVI_FEEDBACK_CORRECTION && rvi_text_blank(f->given)) return RV_OK;
    rv_status st = rvi_fact_read(&fact, l->parts.t, f->question.len ? f->question.data : "",
                                 f->question.len, some_answer, strlen(some_answer), err);
    if (!st && fact->kind != RVI_FACT_FREE) {
        about.subject = rvi_text_of(fact->subject);
        about.relation = rvi_text_of(fact->relation);
    }
    if (!st) st = read_vector(l, f->question, about.subject, &vector, err);
    about.vector = vector;
    about.n_dim = vector ? (size_t)l->calibration->dim : 0;
    if (!st) st = rvi_bank_learn(l->bank, &about, f, NULL, err);
    rvi_fact_free(fact);
    rvi_free(vector);
    return st;
}

static rv_status apply(rvi_learner *l, const rvi_feedback *f, rv_error *err)
{
    rv_error why = {0};
    size_t n;
    rv_status st = RV_OK;
    switch (f->kind) {
    case RVI_FEEDBACK_CORRECTION:
    case RVI_FEEDBACK_SCORE:
    case RVI_FEEDBACK_THUMB: st = learn(l, f, &why); break;
    case RVI_FEEDBACK_UNDO: st = rvi_bank_undo(l->bank, f->target, f->seq, &why); break;
    case RVI_FEEDBACK_FORGET:
        st = rvi_bank_forget(l->bank, f->note, f->seq, NULL, NULL, &n, &why);
        break;
    default: break;
    }
    if (st == RV_E_LEARNING || st == RV_E_INVALID || st == RV_E_NOT_FOUND) {
        /* nothing for the bank: it is full, or the event did not reach it in the first place */
        if (st != RV_E_NOT_FOUND)
            rvi_log_write(l->parts.be->log, RVI_LOG_WARN, "event %llu is not in the bank: %s",
                          (unsigned long long)f->seq, why.text);
        return RV_OK;
    }
    return st ? rvi_error(err, st, "%s", why.text) : RV_OK;
}

typedef struct next_event {
    const rvi_learner *l;
    rvi_buf text; /* empty: there is none */
} next_event;

static int take_next(void *ctx, const rvi_feedback *f)
{
    next_event *n = ctx;
    if (f->user.len != strlen(n->l->user) || memcmp(f->user.data, n->l->user, f->user.len))
        return 0;
    return rvi_feedback_write(&n->text, f, NULL) == RV_OK || n->text.failed;
}

rv_status rvi_learner_follow(rvi_learner *l, rv_error *err)
{
    rv_status st = RV_OK;
    for (bool more = true; !st && more;) {
        next_event next = {.l = l};
        rvi_arena arena = {0};
        rvi_feedback f;
        st = rvi_feedback_read(&l->store, l->followed + 1, take_next, &next, err);
        if (!st && next.text.failed) st = rvi_nomem(err, "event");
        more = next.text.len > 0;
        if (!st && more) {
            st = rvi_feedback_parse(&f, next.text.data, next.text.len, &arena, err);
            if (!st) st = apply(l, &f, err);
            if (!st) l->followed = f.seq;
        }
        rvi_arena_deinit(&arena);
        rvi_buf_deinit(&next.text);
    }
    return st;
}

/* ---- what the weights know ---- */

static uint64_t pattern_of(const rvi_learner *l, uint64_t event)
{
    for (size_t i = rvi_bank_count(l->bank); i-- > 0;) {
        const rvi_pattern *p = rvi_bank_at(l->bank, i);
        if (p->correction && p->state == RVI_PATTERN_LIVE &&
            (p->event == event || p->last_event == event))
            return p->id;
    }
    return 0;
}

rv_status rvi_learner_absorb(rvi_learner *l, rv_error *err)
{
    rv_status st = RV_OK;
    uint64_t *ids = rvi_alloc_array(l->n_lessons + 1, sizeof *ids);
    if (!ids) return rvi_nomem(err, "patterns");
    for (size_t g = 0; !st && g < l->n_generations; g++) {
        size_t n = 0;
        for (size_t i = 0; i < l->n_lessons; i++) {
            const rvi_lesson *x = &l->lessons[i];
            if (!x->stands || x->generation != l->generations[g].number || !rvi_learner_rests(l, x))
                continue;
            if ((ids[n] = pattern_of(l, x->event))) n++;
        }
        if (n) st = rvi_bank_absorb(l->bank, ids, n, (uint64_t)l->generations[g].number, err);
    }
    rvi_free(ids);
    return st;
}

rv_status rvi_learner_open_bank(rvi_learner *l, rv_error *err)
{
    rvi_bank_options o = {.seed = l->o.seed};
    rv_error why = {0};
    rv_status st = rvi_bank_open(&l->bank, &l->store, &o, &why);
    if (st == RV_E_STORAGE || (!st && rvi_bank_damaged(l->bank))) { /* it follows from the log */
        rvi_log_write(l->parts.be->log, RVI_LOG_WARN, "the bank is made again from the log: %s",
                      st ? why.text : "a record of it is damaged");
        rvi_bank_free(l->bank);
        l->bank = NULL;
        st = rvi_bank_erase(&l->store, err);
        if (!st) st = rvi_bank_open(&l->bank, &l->store, &o, err);
    } else if (st) {
        st = rvi_error(err, st, "%s", why.text);
    }
    if (st) return st;
    l->followed = rvi_bank_last_event(l->bank);
    st = rvi_learner_follow(l, err);
    return st ? st : rvi_learner_absorb(l, err);
}

/* ---- looking ---- */

void rvi_learner_count_patterns(const rvi_learner *l, rvi_buf *out)
{
    size_t states[3] = {0}, verdicts[4] = {0}, n = rvi_bank_count(l->bank);
    for (size_t i = 0; i < n; i++) {
        states[rvi_bank_at(l->bank, i)->state]++;
        verdicts[rvi_bank_at(l->bank, i)->verdict]++;
    }
    (void)rvi_buf_printf(out,
                         "\"patterns\":{\"count\":%zu,\"live\":%zu,\"absorbed\":%zu,"
                         "\"superseded\":%zu,\"success\":%zu,\"partial\":%zu,\"failure\":%zu,"
                         "\"damaged\":%zu}",
                         n, states[RVI_PATTERN_LIVE], states[RVI_PATTERN_ABSORBED],
                         states[RVI_PATTERN_SUPERSEDED], verdicts[RVI_VERDICT_SUCCESS],
                         verdicts[RVI_VERDICT_PARTIAL], verdicts[RVI_VERDICT_FAILURE],
                         rvi_bank_damaged(l->bank));
}
