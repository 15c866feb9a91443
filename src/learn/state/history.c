#include "learn/state/history.h"

#include "base/mem.h"
#include "learn/journal/text.h"
#include "learn/journal/list.h"

rv_status rvi_history_reserve(rvi_history *h, rv_error *err)
{
    return rvi_list_room((void **)&h->list, h->n, &h->cap, sizeof *h->list)
               ? RV_OK
               : rvi_nomem(err, "events");
}

void rvi_history_note(rvi_history *h, rvi_done_kind kind, uint64_t event)
{
    h->list[h->n++] = (rvi_done){kind, event, true};
}

void rvi_history_take_out(rvi_history *h, uint64_t event)
{
    size_t at = h->n;
    while (at && h->list[at - 1].event != event) at--;
    if (at) rvi_list_cut(h->list, &h->n, at - 1, sizeof *h->list);
}

rv_status rvi_history_apply(rvi_history *h, const rvi_feedback *f, rv_error *err)
{
    rvi_done_kind kind = RVI_DID_CORRECT;
    switch (f->kind) {
    case RVI_FEEDBACK_CORRECTION:
        if (rvi_text_is(f->note, "preference")) kind = RVI_DID_PREFER;
        break;
    case RVI_FEEDBACK_SCORE: kind = RVI_DID_SCORE; break;
    case RVI_FEEDBACK_THUMB: kind = RVI_DID_THUMB; break;
    case RVI_FEEDBACK_ROLLBACK: kind = RVI_DID_ROLL_BACK; break;
    case RVI_FEEDBACK_UNDO: rvi_history_take_out(h, f->target); return RV_OK;
    case RVI_FEEDBACK_FORGET: h->n = 0; return RV_OK; /* what is older might bring it back */
    default: return RV_OK;
    }
    rv_status st = rvi_history_reserve(h, err);
    if (!st) h->list[h->n++] = (rvi_done){.kind = kind, .event = f->seq};
    return st;
}

void rvi_history_deinit(rvi_history *h)
{
    rvi_free(h->list);
    *h = (rvi_history){0};
}
