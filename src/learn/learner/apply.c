/* The log, and the owners of what follows from it: an event is logged first, then each owner
 * applies it; opening applies the whole log again, event by event, as it was when it came. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/os.h"
#include "learn/journal/text.h"
#include "learn/learner/learner_internal.h"

/* ---- applying events ---- */

rv_status rvi_learner_end(rvi_learner *l, rvi_text given, uint64_t by, int *n, rv_error *err)
{
    char *text = rvi_text_copy(given);
    rv_status st =
        text ? rvi_lessons_forget(&l->lessons, text, by, n, err) : rvi_nomem(err, "event");
    rvi_lock_take(l->instructing);
    if (!st) st = rvi_instructions_forget(&l->instructions, text, by, n, err);
    rvi_lock_give(l->instructing);
    if (!st) st = rvi_preferences_forget(&l->preferences, text, by, n, err);
    rvi_free(text);
    return st;
}

/* Each owner looks at the events that concern it. Lessons and pairs come before generations, which
 * claim those that they were made of. What follows for adapters is left to rvi_learner_settle. */
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
    int n_gone, n_again, n = 0;
    switch (f->kind) {
    case RVI_FEEDBACK_UNDO:
        (void)rvi_generations_bring_back(&l->generations, f->target);
        rvi_learner_withdraw(l, f->seq, false, &n_gone, &n_again);
        return RV_OK;
    case RVI_FEEDBACK_FORGET:
        st = rvi_learner_end(l, f->note, f->seq, &n, err);
        rvi_learner_withdraw(l, f->seq, true, &n_gone, &n_again);
        return st;
    case RVI_FEEDBACK_PUBLISH:
    case RVI_FEEDBACK_IMPORT:
    case RVI_FEEDBACK_MERGE: return rvi_learner_apply_generation(l, f, err);
    case RVI_FEEDBACK_ROLLBACK:
        (void)rvi_generations_go_back(&l->generations, f->generation, f->seq);
        return RV_OK;
    default: return RV_OK;
    }
}

static int mark_absorbed(void *ctx, rvi_bytes key, rvi_bytes record)
{
    rvi_learner *l = ctx;
    char text[24] = "";
    (void)record;
    if (key.len < sizeof text) memcpy(text, key.data, key.len);
    rvi_lesson *x = rvi_lessons_find(&l->lessons, strtoull(text, NULL, 10));
    if (x && x->generation) x->absorbed = true;
    return 0;
}

rv_status rvi_learner_mark_absorbed(rvi_learner *l, rv_error *err)
{
    return rvi_store_scan(&l->store, "absorbed", NULL, 0, mark_absorbed, l, err);
}

rv_status rvi_learner_save_absorbed(rvi_learner *l, const rvi_learned *x, rv_error *err)
{
    char key[24];
    int len = snprintf(key, sizeof key, "%020llu", (unsigned long long)x->event);
    return x->absorbed ? rvi_store_put(&l->store, "absorbed", key, (size_t)len, "1", 1, err)
                       : rvi_store_remove(&l->store, "absorbed", key, (size_t)len, err);
}

rv_status rvi_learner_reopen(rvi_learner *l, rv_error *err)
{
    rv_status st = l->dir ? rvi_os_make_private_dirs(l->dir, err) : RV_OK;
    if (!st) st = rvi_feedback_repair(&l->store, err);
    if (!st) st = rvi_learner_read_paused(l, err);
    if (!st) st = rvi_learner_read_log(l, err);
    if (!st) st = rvi_learner_settle(l, err);
    if (!st) st = rvi_learner_mark_absorbed(l, err);
    if (!st) st = rvi_calibration_reopen(l, err);
    if (!st) st = rvi_instant_reopen_scores(l, err);
    l->any = l->judged = false;
    return st;
}
