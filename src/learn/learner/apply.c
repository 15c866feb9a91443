/* The log, and the owners of what follows from it: an event is logged first, then each owner
 * applies it; opening applies the whole log again, event by event, as it was when it came. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/os.h"
#include "base/thread.h"
#include "learn/journal/text.h"
#include "learn/learner/learner_internal.h"

/* ---- whose the state is ---- */

typedef struct reader {
    rvi_learner *l;
    bool any, judged; /* events of its user came; scores among them */
    rv_status st;
    rv_error *err;
} reader;

static int apply(void *ctx, const rvi_feedback *f)
{
    reader *r = ctx;
    if (rvi_text_is(f->user, r->l->user)) {
        r->any = true;
        r->judged = r->judged || f->kind == RVI_FEEDBACK_SCORE || f->kind == RVI_FEEDBACK_UNDO;
    }
    r->st = rvi_learner_apply(r->l, f, r->err);
    return r->st != RV_OK;
}

/* Waits while another process has it, for as long as the options say. */
static rv_status lock_file(const rvi_learner *l, const char *path, int *lock, rv_error *err)
{
    static const double moment = 0.02;
    double end = rvi_os_seconds() + l->o.lock_wait_ms / 1000.0;
    rv_error why = {0};
    rv_status st;
    while ((st = rvi_os_lock(path, lock, &why)) == RV_E_STORAGE && rvi_os_seconds() < end)
        rvi_thread_sleep(moment);
    if (st == RV_E_STORAGE)
        return rvi_error(err, st,
                         "another process is learning in %s: until it ends, this one can only "
                         "answer (waited %d ms)",
                         l->dir, l->o.lock_wait_ms);
    if (st && err) *err = why;
    return st;
}

/* What other processes have learned since this one looked. */
static rv_status take_over(rvi_learner *l, rv_error *err)
{
    reader r = {.l = l, .err = err};
    uint64_t n = l->opened_at;
    rv_status st = rvi_feedback_count(&l->store, &n, err);
    if (st || n == l->opened_at) return st;
    st = rvi_feedback_read(&l->store, l->opened_at + 1, apply, &r, err);
    if (!st) st = r.st;
    if (!st && r.judged) st = rvi_instant_reopen_scores(l, err);
    if (!st && r.any) st = rvi_shared_restore(l, err);
    if (!st && r.any) st = rvi_learner_recognise_anew(l, err);
    if (!st) l->opened_at = n;
    return st;
}

rv_status rvi_learner_own(rvi_learner *l, rv_error *err)
{
    rvi_buf path = {0};
    int lock = -1;
    if (!l->dir || l->owned) return RV_OK;
    rv_status st = rvi_buf_printf(&path, "%s/lock", l->dir) ? RV_OK : rvi_nomem(err, "path");
    if (!st) st = lock_file(l, path.data, &lock, err);
    if (!st) st = take_over(l, err);
    rvi_buf_deinit(&path);
    l->owned = !st;
    if (st)
        rvi_os_unlock(lock);
    else
        l->lock = lock;
    return st;
}

rv_status rvi_learner_log(rvi_learner *l, rvi_feedback *f, rv_error *err)
{
    rv_status st = rvi_learner_own(l, err);
    return st ? st : rvi_feedback_append(&l->store, f, err);
}

/* ---- applying events ---- */

static rv_status forget_pairs(rvi_learner *l, const rvi_feedback *f, rv_error *err)
{
    char *text = rvi_text_copy(f->note);
    rv_status st = text ? rvi_learner_drop_pairs(l, text, err) : rvi_nomem(err, "event");
    rvi_free(text);
    return st;
}

/* Each owner looks at the events that concern it. Lessons come before generations, which claim
 * those that they were made of. */
rv_status rvi_learner_apply(rvi_learner *l, const rvi_feedback *f, rv_error *err)
{
    if (!rvi_text_is(f->user, l->user)) return RV_OK;
    rv_status st = rvi_history_apply(&l->history, f, err);
    if (!st) st = rvi_lessons_apply(&l->lessons, f, &l->base, err);
    rvi_lock_take(l->instructing);
    if (!st) st = rvi_instructions_apply(&l->instructions, f, err);
    rvi_lock_give(l->instructing);
    if (!st) st = rvi_preferences_apply(&l->preferences, f, err);
    if (!st) st = rvi_refusals_apply(&l->refusals, f, err);
    if (st) return st;
    int n_gone, n_again;
    switch (f->kind) {
    case RVI_FEEDBACK_UNDO:
        if (rvi_generations_bring_back(&l->generations, f->target)) st = rvi_shared_restore(l, err);
        return st ? st : rvi_learner_withdraw(l, f->seq, &n_gone, &n_again, err);
    case RVI_FEEDBACK_FORGET:
        st = rvi_learner_withdraw(l, f->seq, &n_gone, &n_again, err);
        return st ? st : forget_pairs(l, f, err);
    case RVI_FEEDBACK_PUBLISH:
    case RVI_FEEDBACK_IMPORT:
    case RVI_FEEDBACK_MERGE: return rvi_learner_apply_generation(l, f, err);
    case RVI_FEEDBACK_ROLLBACK:
        (void)rvi_generations_go_back(&l->generations, f->generation, f->seq);
        return rvi_shared_restore(l, err);
    default: return RV_OK;
    }
}

static int mark_absorbed(void *ctx, rvi_bytes key, rvi_bytes record)
{
    rvi_learner *l = ctx;
    char text[24] = "";
    (void)record;
    if (key.len < sizeof text) memcpy(text, key.data, key.len);
    uint64_t event = strtoull(text, NULL, 10);
    for (size_t i = 0; i < l->lessons.n; i++)
        if (l->lessons.list[i].event == event && l->lessons.list[i].generation)
            l->lessons.list[i].absorbed = true;
    return 0;
}

rv_status rvi_learner_save_absorbed(rvi_learner *l, const rvi_lesson *x, rv_error *err)
{
    char key[24];
    int len = snprintf(key, sizeof key, "%020llu", (unsigned long long)x->event);
    return x->absorbed ? rvi_store_put(&l->store, "absorbed", key, (size_t)len, "1", 1, err)
                       : rvi_store_remove(&l->store, "absorbed", key, (size_t)len, err);
}

rv_status rvi_learner_reopen(rvi_learner *l, rv_error *err)
{
    reader r = {.l = l, .err = err};
    rv_status st = l->dir ? rvi_os_make_private_dirs(l->dir, err) : RV_OK;
    if (!st) st = rvi_feedback_repair(&l->store, err);
    if (!st) st = rvi_feedback_count(&l->store, &l->opened_at, err);
    if (!st) st = rvi_feedback_read(&l->store, 1, apply, &r, err);
    if (!st) st = r.st;
    if (!st) st = rvi_shared_restore(l, err);
    if (!st) st = rvi_store_scan(&l->store, "absorbed", NULL, 0, mark_absorbed, l, err);
    if (!st) st = rvi_calibration_reopen(l, err);
    if (!st) st = rvi_instant_reopen_scores(l, err);
    return st;
}
