/* The log as one order of events that several processes may append to.
 *
 * A learner has applied the log up to an event (`applied`). Before it appends it must have applied
 * all of it, and nobody else may append meanwhile: it owns the state.
 *   In a directory of its own: the first process that learns has it, by a file that it locks, until
 *   its learner is freed.
 *   In a store that is shared: for as long as a call takes, by a lock of the store. So the events
 *   of all processes are one order, and every process applies them in that order through the same
 *   code (apply.c), its own when it has appended them, those of others when it owns the state again
 *   or when it follows: before an answer, and between them in the background. The store tells at
 *   once when others have appended, so that looking costs nothing. Where the store cannot be
 *   reached, a learner goes on with what it knows, and appending fails.
 *
 * Training is a lease of the store: one of the processes does it, others fetch the adapter
 * (files.c). A lease that was lost with a connection wastes work at most: publishing looks
 * again at what was trained, as the owner. */
#include <string.h>

#include "base/mem.h"
#include "base/os.h"
#include "base/thread.h"
#include "learn/journal/text.h"
#include "learn/learner/learner_internal.h"

static const char turn[] = "feedback", training[] = "training";

bool rvi_learner_shares(const rvi_learner *l)
{
    return l->store.by.lock != NULL;
}

/* ---- applying what is new ---- */

typedef struct reader {
    rvi_learner *l;
    uint64_t last; /* up to this event */
    rv_status st;
    rv_error *err;
} reader;

static int apply(void *ctx, const rvi_feedback *f)
{
    reader *r = ctx;
    rvi_learner *l = r->l;
    if (f->seq > r->last) return 1;
    if (rvi_text_is(f->user, l->user)) {
        l->any = true;
        l->judged = l->judged || f->kind == RVI_FEEDBACK_SCORE || f->kind == RVI_FEEDBACK_UNDO ||
                    f->kind == RVI_FEEDBACK_FORGET;
    }
    r->st = rvi_learner_apply(l, f, r->err);
    if (!r->st) atomic_store(&l->applied, f->seq);
    return r->st != RV_OK;
}

rv_status rvi_learner_read_log(rvi_learner *l, rv_error *err)
{
    uint64_t from = atomic_load(&l->applied) + 1;
    reader r = {.l = l, .err = err};
    rv_status st = rvi_learner_find_files(l, from, &r.last, err);
    if (!st && r.last >= from) st = rvi_feedback_read(&l->store, from, apply, &r, err);
    return st ? st : r.st;
}

/* What fails here is tried again by the next call. */
static rv_status take_over(rvi_learner *l, rv_error *err)
{
    rv_status st = rvi_learner_read_paused(l, err);
    if (!st) st = rvi_learner_read_log(l, err);
    if (!st && l->judged) st = rvi_instant_reopen_scores(l, err);
    if (!st) l->judged = false;
    if (st || !l->any) return st;
    st = rvi_learner_settle(l, err);
    rv_status read = rvi_learner_recognise_anew(l, st ? NULL : err);
    if (!st) st = read;
    if (!st) l->any = false;
    return st;
}

bool rvi_learner_is_behind(rvi_learner *l)
{
    if (l->store.by.changed && l->store.by.changed(l->store.by.ctx)) atomic_store(&l->behind, true);
    return atomic_load(&l->behind);
}

void rvi_learner_follow(rvi_learner *l, bool *any)
{
    rv_error why = {0};
    uint64_t before = atomic_load(&l->applied);
    *any = false;
    if (!rvi_learner_shares(l) || !rvi_learner_is_behind(l)) return;
    atomic_store(&l->behind, false);
    bool failed = take_over(l, &why) != RV_OK;
    if (failed) atomic_store(&l->behind, true);
    if (failed && !l->failed) /* once, until it succeeds again */
        rvi_log_write(l->parts.be->log, RVI_LOG_WARN,
                      "what others have taught is not known yet: %s", why.text);
    l->failed = failed;
    *any = atomic_load(&l->applied) != before;
}

/* ---- whose the state is ---- */

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

static rv_status lock_dir(rvi_learner *l, rv_error *err)
{
    rvi_buf path = {0};
    if (!l->dir || l->lock >= 0) return RV_OK;
    rv_status st = rvi_buf_printf(&path, "%s/lock", l->dir) ? RV_OK : rvi_nomem(err, "path");
    if (!st) st = lock_file(l, path.data, &l->lock, err);
    if (!st) rvi_learner_remove_early(l->dir);
    rvi_buf_deinit(&path);
    return st;
}

rv_status rvi_learner_own(rvi_learner *l, rv_error *err)
{
    bool shares = rvi_learner_shares(l);
    const rv_store *by = &l->store.by;
    if (l->owned || (!l->dir && !shares)) return RV_OK;
    rv_status st = lock_dir(l, err);
    if (!st && shares) st = by->lock(by->ctx, turn, l->o.lock_wait_ms, err);
    if (st) return st;
    st = take_over(l, err);
    l->owned = !st;
    if (st && shares) {
        by->unlock(by->ctx, turn);
    } else if (st) {
        rvi_os_unlock(l->lock);
        l->lock = -1;
    }
    return st;
}

void rvi_learner_yield(rvi_learner *l)
{
    if (!l->owned || !rvi_learner_shares(l)) return;
    l->owned = false;
    l->store.by.unlock(l->store.by.ctx, turn);
}

void rvi_learner_logged(rvi_learner *l, const rvi_feedback *f)
{
    atomic_store(&l->applied, f->seq);
}

rv_status rvi_learner_log(rvi_learner *l, rvi_feedback *f, rv_error *err)
{
    rv_status st = rvi_learner_own(l, err);
    if (!st) st = rvi_feedback_append(&l->store, f, err);
    if (!st) rvi_learner_logged(l, f);
    return st;
}

/* ---- who trains ---- */

static const char settings[] = "settings", paused_key[] = "paused";

rv_status rvi_learner_read_paused(rvi_learner *l, rv_error *err)
{
    rvi_buf value = {0};
    rv_status st =
        rvi_store_get(&l->store, settings, paused_key, strlen(paused_key), &value, &l->paused, err);
    rvi_buf_deinit(&value);
    return st;
}

/* What is appended tells others that there is something to read. */
rv_status rvi_learner_set_paused(rvi_learner *l, bool paused, rv_error *err)
{
    const char *said = paused ? "paused" : "resumed";
    if (l->paused == paused && !rvi_learner_shares(l)) return RV_OK;
    rv_status st = rvi_store_begin(&l->store, true, err);
    if (st) return st;
    st = paused ? rvi_store_put(&l->store, settings, paused_key, strlen(paused_key), "1", 1, err)
                : rvi_store_remove(&l->store, settings, paused_key, strlen(paused_key), err);
    if (!st) st = rvi_store_append(&l->store, settings, said, strlen(said), NULL, err);
    st = rvi_store_end(&l->store, st, err);
    if (!st) l->paused = paused;
    return st;
}

bool rvi_learner_lease(rvi_learner *l, bool *fresh)
{
    const rv_store *by = &l->store.by;
    *fresh = false;
    if (!rvi_learner_shares(l)) return true;
    rv_status st = by->lock(by->ctx, training, 0, NULL);
    if (st == RV_E_INVALID && l->leased) return true;
    *fresh = l->leased = st == RV_OK;
    return l->leased;
}

rv_status rvi_learner_reopen_found(rvi_learner *l, rv_error *err)
{
    if (!rvi_learner_shares(l)) return RV_OK;
    rv_status st = take_over(l, err);
    if (!st) st = rvi_repeats_reopen(l, err);
    if (!st) st = rvi_reads_reopen(l, err);
    if (!st) st = rvi_calibration_reopen(l, err);
    return st;
}

void rvi_learner_end_lease(rvi_learner *l)
{
    if (l->leased) l->store.by.unlock(l->store.by.ctx, training);
    l->leased = false;
}
