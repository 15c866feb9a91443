#include "learn/state/refusals.h"

#include <string.h>

#include "base/mem.h"
#include "learn/journal/text.h"
#include "learn/journal/list.h"
#include "learn/state/lessons.h"

static void free_texts(rvi_refusal *x)
{
    rvi_free(x->request);
    rvi_free(x->avoid);
}

static size_t place_of(const rvi_refusals *r, uint64_t event)
{
    size_t i = 0;
    while (i < r->n && r->list[i].event != event) i++;
    return i;
}

static void cut(rvi_refusals *r, size_t at)
{
    free_texts(&r->list[at]);
    rvi_list_cut(r->list, &r->n, at, sizeof *r->list);
    r->n_changes++;
}

rv_status rvi_refusals_add(rvi_refusals *r, uint64_t event, uint64_t lesson, rvi_text request,
                           rvi_text avoid, uint64_t branch, rv_error *err)
{
    bool known = branch && branch - 1 <= avoid.len;
    if (r->n == RVI_REFUSALS_MAX) cut(r, 0);
    rvi_refusal *x = rvi_list_room((void **)&r->list, r->n, &r->cap, sizeof *x);
    if (!x) return rvi_nomem(err, "judgements");
    *x = (rvi_refusal){.event = event,
                       .lesson = lesson,
                       .request = rvi_text_copy(request),
                       .avoid = known ? rvi_text_copy(avoid) : NULL,
                       .branch = known ? (size_t)branch - 1 : 0};
    if (!x->request || (known && !x->avoid)) {
        free_texts(x);
        return rvi_nomem(err, "judgements");
    }
    r->n++;
    r->n_changes++;
    return RV_OK;
}

void rvi_refusals_remove(rvi_refusals *r, uint64_t event)
{
    size_t at = place_of(r, event);
    if (at < r->n) cut(r, at);
}

const rvi_refusal *rvi_refusals_find(const rvi_refusals *r, uint64_t event)
{
    size_t at = place_of(r, event);
    return at < r->n ? &r->list[at] : NULL;
}

bool rvi_refusals_since(const rvi_refusals *r, const char *request, uint64_t event)
{
    for (size_t i = r->n; i-- > 0 && r->list[i].event > event;)
        if (r->list[i].lesson && rvi_question_same(r->list[i].request, request)) return true;
    return false;
}

size_t rvi_refusals_avoids(const rvi_refusals *r, const char *request, rvi_avoid *out, size_t max)
{
    size_t n = 0;
    for (size_t i = r->n; i-- > 0 && n < max;) {
        const rvi_refusal *x = &r->list[i];
        if (x->avoid && rvi_question_same(x->request, request))
            out[n++] = (rvi_avoid){x->avoid, strlen(x->avoid), x->branch};
    }
    return n;
}

static bool is_refusal(const rvi_feedback *f)
{
    if (f->kind == RVI_FEEDBACK_CORRECTION) return f->target != 0;
    return f->kind == RVI_FEEDBACK_THUMB && !(f->score > 0) && f->question.len;
}

rv_status rvi_refusals_apply(rvi_refusals *r, const rvi_feedback *f, rv_error *err)
{
    if (f->kind == RVI_FEEDBACK_UNDO) rvi_refusals_remove(r, f->target);
    if (!is_refusal(f)) return RV_OK;
    return rvi_refusals_add(r, f->seq, f->target, f->question, f->note,
                            f->kind == RVI_FEEDBACK_THUMB ? f->branch : 0, err);
}

void rvi_refusals_deinit(rvi_refusals *r)
{
    for (size_t i = 0; i < r->n; i++) free_texts(&r->list[i]);
    rvi_free(r->list);
    *r = (rvi_refusals){.n_changes = r->n_changes + 1};
}
