/* Making the generations of a log again: every event is applied as on opening, and where a
 * generation was published it is trained from what was known when its making began. */
#include <string.h>

#include "base/mem.h"
#include "learn/learner/jobs.h"
#include "learn/learner/learner_internal.h"
#include "learn/journal/text.h"

typedef struct published {
    rvi_feedback f; /* but for its texts, which are gone */
    bool pairs, deep;
    rv_preference_loss loss;
} published;

typedef struct tracer {
    rvi_learner *l;
    published *list;
    size_t n, cap, done;
    rvi_study_progress_fn progress;
    void *ctx;
    rvi_retrace *out;
    rv_status st;
    rv_error *err;
} tracer;

static int list_one(void *ctx, const rvi_feedback *f)
{
    tracer *t = ctx;
    if (f->kind != RVI_FEEDBACK_PUBLISH || !f->target || !rvi_text_is(f->user, t->l->user))
        return 0;
    published *p = rvi_list_room((void **)&t->list, t->n, &t->cap, sizeof *p);
    if (!p) {
        t->st = rvi_nomem(t->err, "generations");
        return 1;
    }
    *p = (published){.f = *f,
                     .pairs = rvi_text_is(f->recipe, "preferences"),
                     .deep = f->note.len > 0,
                     .loss = rvi_text_is(f->note, "kto") ? RV_LOSS_KTO : RV_LOSS_DPO};
    t->n++;
    return 0;
}

static rv_status make_again(tracer *t, const published *p)
{
    rvi_learner *l = t->l;
    size_t before = l->generations.n;
    char digest[RVI_SHA256_HEX] = "";
    rv_status st = rvi_learner_calibrate(l, t->progress, t->ctx, t->err);
    rvi_learner_lose_named(l, &p->f);
    rvi_job j = {.kind = p->pairs ? &rvi_job_trains_deep : &rvi_job_trains,
                 .deep = p->deep,
                 .loss = p->loss};
    if (!st) st = j.kind->take(&j, l, t->err);
    if (!st && j.n && j.made.first == p->f.first && j.made.last == p->f.last) {
        st = j.kind->compute(&j, l, &l->base, t->progress, t->ctx, t->err);
        if (!st) st = j.kind->publish(&j, l, t->err);
    }
    rvi_job_drop(&j);
    if (!st && l->generations.n > before)
        st = rvi_adapter_digest(l->generations.list[before].adapter, digest, t->err);
    if (st) return st;
    if (!strcmp(digest, p->f.digest))
        t->out->n_generations++;
    else if (!t->out->different)
        t->out->different = p->f.seq;
    return RV_OK;
}

/* Generations whose making did not know of event `next` any more. */
static rv_status make_until(tracer *t, uint64_t next)
{
    rv_status st = RV_OK;
    while (!st && !t->out->different && t->done < t->n && t->list[t->done].f.target < next)
        st = make_again(t, &t->list[t->done++]);
    return st;
}

static int trace_one(void *ctx, const rvi_feedback *f)
{
    tracer *t = ctx;
    t->st = make_until(t, f->seq);
    if (!t->st) t->st = rvi_learner_apply(t->l, f, t->err);
    if (!t->st && f->kind != RVI_FEEDBACK_CORRECTION) t->st = rvi_learner_settle(t->l, t->err);
    t->out->n_events++;
    return t->st || t->out->different;
}

rv_status rvi_learner_retrace(rvi_learner *fresh, rvi_store *log, rvi_study_progress_fn progress,
                              void *ctx, rvi_retrace *out, rv_error *err)
{
    tracer t = {.l = fresh, .progress = progress, .ctx = ctx, .out = out, .err = err};
    *out = (rvi_retrace){0};
    if (fresh->dir || fresh->lessons.n || fresh->generations.n)
        return rvi_error(err, RV_E_INVALID,
                         "a log is retraced in a fresh learner without a folder");
    rv_status st = rvi_feedback_read(log, 1, list_one, &t, err);
    if (!st) st = t.st;
    if (!st) st = rvi_feedback_read(log, 1, trace_one, &t, err);
    if (!st) st = t.st;
    if (!st) st = make_until(&t, UINT64_MAX);
    rvi_free(t.list);
    return st;
}
