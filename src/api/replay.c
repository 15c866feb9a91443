/* What a learner's log says, and whether its adapters come out of it again. */
#include "api/api.h"
#include "ruvllm_experimental.h"

typedef struct reader {
    rv_log_fn each;
    void *ctx;
    rv_status st;
    rv_error *err;
} reader;

static int give(void *ctx, const rvi_feedback *f)
{
    reader *r = ctx;
    rvi_buf text = {0};
    r->st = rvi_feedback_write(&text, f, r->err);
    int end = r->st || r->each(r->ctx, f->seq, text.data, text.len);
    rvi_buf_deinit(&text);
    return end;
}

rv_status rv_learner_read_log(rv_learner *l, uint64_t from, rv_log_fn each, void *ctx,
                              rv_error *err)
{
    rvi_api_turn turn;
    if (!l || !each) return rvi_error(err, RV_E_INVALID, "rv_learner_read_log: NULL argument");
    rv_status st = rvi_api_enter(&turn, l->m->rt, err);
    if (st) return st;
    reader r = {.each = each, .ctx = ctx, .err = err};
    st = rvi_feedback_read(&l->l->store, from, give, &r, err);
    rvi_api_leave(&turn);
    return st ? st : r.st;
}

static rv_status replay(const rv_learner *l, rv_learn_progress_fn progress, void *ctx,
                        rv_replay *out, rv_error *err)
{
    rvi_learner *fresh = NULL;
    rvi_store store;
    rvi_retrace r = {0};
    rvi_learner_options o = l->l->o;
    o.dir = NULL;
    o.user = l->l->user;
    rv_status st = rvi_store_memory(&store, err);
    if (!st) st = rvi_learner_new(&fresh, &l->l->parts, &o, &store, err);
    if (!st) st = rvi_learner_retrace(fresh, &l->l->store, progress, ctx, &r, err);
    rvi_learner_free(fresh);
    *out = (rv_replay){r.n_events, r.n_generations, r.different};
    return st;
}

rv_status rv_learner_replay(rv_learner *l, rv_learn_progress_fn progress, void *ctx, rv_replay *out,
                            rv_error *err)
{
    rvi_api_turn turn;
    if (!l || !out) return rvi_error(err, RV_E_INVALID, "rv_learner_replay: NULL argument");
    *out = (rv_replay){0};
    bool background = rvi_background_stop(l);
    rv_status st = rvi_api_enter(&turn, l->m->rt, err);
    if (!st) {
        st = replay(l, progress, ctx, out, err);
        rvi_api_leave(&turn);
    }
    rv_status again = background ? rvi_background_start(l, st ? NULL : err) : RV_OK;
    return st ? st : again;
}
