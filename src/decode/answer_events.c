/* answer_events.c - what the caller is told while an answer is under way. */
#include "base/os.h"
#include "decode/answer_internal.h"

void rvi_answer_send(rvi_answer *a, const rv_event *ev, bool *cancel)
{
    if (a->o.on_event && a->o.on_event(a->o.ctx, ev) && cancel) *cancel = true;
}

rv_status rvi_answer_emit(rvi_answer *a, int32_t id, bool *cancel)
{
    const rvi_tokenizer *t = a->s->e->t;
    rvi_generated *out = &a->out;
    size_t before = out->text.len;
    bool last = id < 0;
    if (t) {
        a->piece.len = 0;
        rv_status st = last ? rvi_detok_flush(&a->detok, &a->piece, &a->error)
                            : rvi_detok_push(&a->detok, id, &a->piece, &a->error);
        if (st) return st;
        if (!rvi_stop_push(&a->stops, a->piece.data, a->piece.len, &out->text) ||
            (last && !rvi_stop_flush(&a->stops, &out->text)))
            return rvi_nomem(&a->error, "text");
    }
    size_t more = out->text.len - before, n = out->ids.len;
    if (last && !more) return RV_OK;
    rv_event ev = {.kind = RV_EVENT_TOKEN,
                   .session = a->s->owner,
                   .id = id,
                   .is_special = t && !last && rvi_tokenizer_is_special(t, id),
                   .text = more ? out->text.data + before : "",
                   .text_len = more,
                   .n_generated = (int)n};
    if (out->chosen && !last) {
        ev.chosen = &out->chosen[n - 1];
        ev.n_top = out->n_top;
        ev.top = out->top ? &out->top[(n - 1) * out->n_top] : NULL;
    }
    rvi_answer_send(a, &ev, cancel);
    return RV_OK;
}

void rvi_answer_tell_prompt(rvi_answer *a, int n_done, bool *cancel)
{
    rv_event ev = {.kind = RV_EVENT_PROMPT,
                   .session = a->s->owner,
                   .id = -1,
                   .text = "",
                   .n_prompt = a->out.n_prompt,
                   .n_reused = a->out.n_reused,
                   .n_done = RVI_MIN(n_done, a->out.n_prompt)};
    a->told = rvi_os_seconds();
    a->n_told = ev.n_done;
    rvi_answer_send(a, &ev, cancel);
}

bool rvi_answer_is_prompting(const rvi_answer *a)
{
    return a->n_rows && a->first <= 0;
}

/* In the middle of a step: rows count by the part of the layers they went through. */
void rvi_answer_report_step(void *ctx, int n_done, int n_halves)
{
    rvi_engine *e = ctx;
    double now = rvi_os_seconds();
    for (rvi_answer *a = e->answers; a && n_done < n_halves; a = a->next) {
        if (!a->o.on_event || !rvi_answer_is_prompting(a) ||
            now - RVI_MAX(a->told, a->start) < e->event_gap)
            continue;
        bool cancel = false;
        int n = a->s->seq.len - a->n_rows + (int)((int64_t)a->n_rows * n_done / n_halves);
        if (n <= a->n_told) continue;
        rvi_answer_tell_prompt(a, n, &cancel);
        if (cancel) rvi_session_cancel(a->s);
    }
}
