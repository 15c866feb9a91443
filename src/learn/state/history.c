#include "learn/state/history.h"

#include "base/mem.h"
#include "learn/journal/list.h"

rv_status rvi_history_reserve(rvi_history *h, rv_error *err)
{
    return rvi_list_room((void **)&h->list, h->n, &h->cap, sizeof *h->list)
               ? RV_OK
               : rvi_nomem(err, "events");
}

void rvi_history_note(rvi_history *h, const rvi_feedback *f)
{
    h->list[h->n++] = (rvi_done){f->kind, f->seq, true};
}

void rvi_history_take_out(rvi_history *h, uint64_t event)
{
    size_t at = h->n;
    while (at && h->list[at - 1].event != event) at--;
    if (at) rvi_list_cut(h->list, &h->n, at - 1, sizeof *h->list);
}

rv_status rvi_history_apply(rvi_history *h, const rvi_feedback *f, rv_error *err)
{
    rv_status st = RV_OK;
    switch (f->kind) {
    case RVI_FEEDBACK_CORRECTION:
    case RVI_FEEDBACK_SCORE:
    case RVI_FEEDBACK_THUMB:
    case RVI_FEEDBACK_ROLLBACK:
        st = rvi_history_reserve(h, err);
        if (!st) h->list[h->n++] = (rvi_done){.kind = f->kind, .event = f->seq};
        return st;
    case RVI_FEEDBACK_UNDO: rvi_history_take_out(h, f->target); return RV_OK;
    default: return RV_OK;
    }
}

void rvi_history_deinit(rvi_history *h)
{
    rvi_free(h->list);
    *h = (rvi_history){0};
}
