/* What of a learner outlives the process: generations as adapter files, and everything else by
 * folding the feedback log again, event by event, as it was when it came. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/number.h"
#include "base/os.h"
#include "base/thread.h"
#include "learn/learner/learner_internal.h"
#include "learn/journal/snapshot.h"
#include "learn/journal/text.h"
#include "lora/merge.h"
#include "lora/write.h"

/* ---- whose the state is ---- */

typedef struct reader {
    rvi_learner *l;
    bool any, judged; /* events of its user came; scores among them */
    rv_status st;
    rv_error *err;
} reader;

static int fold(void *ctx, const rvi_feedback *f)
{
    reader *r = ctx;
    if (rvi_text_is(f->user, r->l->user)) {
        r->any = true;
        r->judged = r->judged || f->kind == RVI_FEEDBACK_SCORE || f->kind == RVI_FEEDBACK_UNDO;
    }
    r->st = rvi_learner_fold(r->l, f, r->err);
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
    st = rvi_feedback_read(&l->store, l->opened_at + 1, fold, &r, err);
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

/* ---- generation files ---- */

static bool file_name(const rvi_learner *l, int number, rvi_buf *out)
{
    return rvi_buf_printf(out, "%s/generation-%06d.gguf", l->dir, number);
}

/* Where an adapter comes from, as its files say. */
static bool put_provenance(rvi_buf *out, const rvi_generation *g)
{
    (void)rvi_buf_printf(out, "{\"generation\":%d,\"recipe\":\"%s\",\"events\":[%llu,%llu]",
                         g->number, rvi_recipe_name(g), (unsigned long long)g->first,
                         (unsigned long long)g->last);
    (void)rvi_buf_printf(out, ",\"parents\":[");
    for (size_t i = 0; i < g->n_parents; i++)
        (void)rvi_buf_printf(out, "%s%d", i ? "," : "", g->parents[i]);
    (void)rvi_buf_printf(out, "],\"gated\":%s", g->gated ? "true" : "false");
    if (g->figures.n_steps && isfinite(g->figures.ce) && isfinite(g->figures.probe_kl))
        (void)rvi_buf_printf(out, ",\"steps\":%d,\"loss\":%.6g,\"probe_kl\":%.6g",
                             g->figures.n_steps, g->figures.ce, g->figures.probe_kl);
    return rvi_buf_putc(out, '}');
}

rv_status rvi_learner_write(const rvi_learner *l, const rvi_generation *g, const char *path,
                            bool f16, rv_error *err)
{
    rvi_buf provenance = {0};
    size_t len = strlen(path);
    rvi_qtype type = f16 ? RVI_F16 : RVI_F32;
    rv_status st = put_provenance(&provenance, g) ? RV_OK : rvi_nomem(err, "provenance");
    rvi_adapter_note note = {.base_digest = l->digest, .provenance = provenance.data};
    const rvi_lora_target *targets = l->parts.m->targets;
    if (!st && len > 5 && !strcmp(path + len - 5, ".gguf"))
        st = rvi_adapter_write_gguf(g->adapter, targets, rvi_source_gguf_arch(l->parts.m->source),
                                    path, type, &note, err);
    else if (!st)
        st = rvi_adapter_write_peft(g->adapter, targets, path, type, &note, err);
    rvi_buf_deinit(&provenance);
    return st;
}

rv_status rvi_learner_save_generation(rvi_learner *l, const rvi_generation *g, rv_error *err)
{
    rvi_buf path = {0};
    if (!l->dir) return RV_OK;
    rv_status st = file_name(l, g->number, &path) ? RV_OK : rvi_nomem(err, "path");
    if (!st) st = rvi_learner_write(l, g, path.data, false, err);
    rvi_buf_deinit(&path);
    return st;
}

rv_status rvi_learner_save_early(rvi_learner *l, const rvi_voice *v, const rvi_generation *g,
                                 const char *digest, rvi_buf *file, rv_error *err)
{
    if (rvi_backend_is_stopped(v->be)) return rvi_error(err, RV_E_CANCELLED, "cancelled");
    if (!l->dir) return RV_OK;
    if (!rvi_buf_printf(file, "%s/training-%.16s.gguf", l->dir, digest))
        return rvi_nomem(err, "path");
    return rvi_learner_write(l, g, file->data, false, err);
}

rv_status rvi_learner_move_generation(rvi_learner *l, const char *file, const rvi_generation *g,
                                      rv_error *err)
{
    rvi_buf path = {0};
    rv_status st = file_name(l, g->number, &path) ? RV_OK : rvi_nomem(err, "path");
    if (!st) st = rvi_os_replace(file, path.data, err);
    if (!st) st = rvi_os_sync_parent(path.data, err);
    rvi_buf_deinit(&path);
    return st;
}

static rv_status load(const rvi_learner *l, const char *path, rvi_adapter **out, rv_error *err)
{
    const rvi_model *m = l->parts.m;
    return rvi_adapter_load(out, l->parts.be, path, m->targets, m->n_targets, m->arch->gguf_names,
                            l->digest, err);
}

/* ---- from elsewhere, and of two ---- */

rv_status rvi_learner_import(rvi_learner *l, const char *path, rvi_adaptation *out, rv_error *err)
{
    rvi_generation g = {.origin = RVI_FROM_FILE};
    *out = rvi_adaptation_new(RV_LOOP_BACKGROUND);
    rv_status st = load(l, path, &g.adapter, err);
    if (!st) st = rvi_learner_publish(l, &g, &out->event, err);
    if (st) {
        rvi_adapter_free(g.adapter);
        return st;
    }
    out->applied = 1;
    out->generation = g.number;
    snprintf(out->notes, sizeof out->notes, "%s",
             g.adapter->base_digest
                 ? "made for this very model"
                 : "it does not say for which model it was made; its shapes fit");
    return RV_OK;
}

static double count_lessons(const rvi_learner *l, const rvi_generation *g)
{
    size_t n = 0;
    for (size_t i = 0; i < l->n_lessons; i++) n += l->lessons[i].generation == g->number;
    return (double)RVI_MAX(n, (size_t)1);
}

rv_status rvi_learner_merge(rvi_learner *l, int a, int b, rv_consolidation how, rvi_adaptation *out,
                            rv_error *err)
{
    static const char *const rules[] = {[RV_MERGE_AVERAGE] = "average",
                                        [RV_MERGE_QUALITY_WEIGHTED] = "quality_weighted",
                                        [RV_MERGE_EWC] = "ewc"};
    *out = rvi_adaptation_new(RV_LOOP_BACKGROUND);
    const rvi_generation *ga = rvi_learner_generation(l, a), *gb = rvi_learner_generation(l, b);
    if (!a || !b || !ga || !gb || ga == gb)
        return rvi_error(err, RV_E_NOT_FOUND, "two generations are needed, and %d and %d are not",
                         a, b);
    if ((size_t)how >= RVI_COUNT(rules) || (how == RV_MERGE_EWC && (!ga->fisher || !gb->fisher)))
        return rvi_error(err, RV_E_LEARNING,
                         "this way of merging needs Fisher information that these do not have");
    rvi_merge_part parts[2] = {
        {ga->adapter, exp(-ga->figures.ce), count_lessons(l, ga), ga->fisher},
        {gb->adapter, exp(-gb->figures.ce), count_lessons(l, gb), gb->fisher}};
    rvi_generation g = {.origin = RVI_FROM_MERGE, .parents = {a, b}, .n_parents = 2};
    g.gated = rvi_merge_gated(l, &g);
    rvi_merge_report report = {0};
    rv_status st = rvi_adapter_merge(&g.adapter, l->parts.m->targets, rvi_merge_find(rules[how]),
                                     parts, 2, l->o.rank, &report, err);
    if (!st) st = rvi_learner_publish(l, &g, &out->event, err);
    if (st) {
        rvi_adapter_free(g.adapter);
        return st;
    }
    out->applied = 1;
    out->generation = g.number;
    (void)rvi_snprintf(out->notes, sizeof out->notes, "%.2f %% of the energy discarded",
                       100 * report.lost);
    return RV_OK;
}

/* ---- opening ---- */

/* A terminated copy; texts of events are not. */
static char *own(rvi_text t)
{
    char *p = rvi_alloc_array(t.len + 1, 1);
    if (!p) return NULL;
    if (t.len) memcpy(p, t.data, t.len);
    p[t.len] = 0;
    return p;
}

static rv_status fold_correction(rvi_learner *l, const rvi_feedback *f, rv_error *err)
{
    char *q = own(f->question), *a = own(f->corrected), *given = own(f->given);
    bool pair = rvi_text_is(f->note, "preference");
    rv_status st = RV_OK;
    if (!q || !a || !given)
        st = rvi_nomem(err, "event");
    else if (pair && !(st = rvi_learner_add_pair(l, f->seq, q, a, given, err)))
        st = rvi_learner_note(l, RVI_DID_PREFER, f->seq, err);
    else if (!pair)
        st = rvi_learner_add_lesson(l, f->seq, q, a, given[0] ? given : NULL, err);
    rvi_free(q);
    rvi_free(a);
    rvi_free(given);
    return st;
}

/* Lessons that waited then and are of these events are the generation's now. */
static void claim(rvi_learner *l, const rvi_generation *g)
{
    for (size_t i = 0; i < l->n_lessons; i++) {
        rvi_lesson *x = &l->lessons[i];
        if (g->origin != RVI_FROM_PAIRS && x->stands && !x->generation && x->event >= g->first &&
            x->event <= g->last)
            x->generation = g->number;
    }
    if (g->origin == RVI_FROM_PAIRS) rvi_learner_use_pairs(l, g->first, g->last);
}

/* The adapter of the file, if that is the one the log names. Others' may be written otherwise than
 * they were read: of imports and merges the log's digest is not the file's. */
static rv_status load_published(const rvi_learner *l, const rvi_feedback *f, const char *path,
                                rvi_adapter **out, rv_error *err)
{
    char digest[RVI_SHA256_HEX] = "";
    rv_status st = load(l, path, out, err);
    if (st || f->kind != RVI_FEEDBACK_PUBLISH || !f->digest[0]) return st;
    st = rvi_adapter_digest(*out, digest, err);
    if (!st && strcmp(digest, f->digest))
        st = rvi_error(err, RV_E_STORAGE, "%s is not the adapter that was published", path);
    if (st) {
        rvi_adapter_free(*out);
        *out = NULL;
    }
    return st;
}

/* What its file tells of its training; one that tells nothing was not trained here. */
static void read_provenance(rvi_generation *g)
{
    rvi_arena arena = {0};
    const rvi_json *root;
    const char *text = g->adapter->provenance;
    if (text && !rvi_json_parse(&root, text, strlen(text), &arena, "provenance", NULL)) {
        int64_t steps = rvi_json_int(rvi_json_get(root, "steps"), 0);
        double loss = rvi_json_number(rvi_json_get(root, "loss"), 0);
        double kl = rvi_json_number(rvi_json_get(root, "probe_kl"), 0);
        if (steps > 0 && steps < INT32_MAX && loss >= 0 && kl >= 0)
            g->figures = (rvi_study_result){.n_steps = (int)steps, .ce = loss, .probe_kl = kl};
    }
    rvi_arena_deinit(&arena);
}

/* An adapter whose file is gone or damaged is left out, and what it held waits again: nothing is
 * lost. */
static rv_status fold_generation(rvi_learner *l, const rvi_feedback *f, rv_error *err)
{
    rvi_buf path = {0};
    rv_error why = {0};
    if (f->generation >= INT32_MAX) return RV_OK; /* nobody has made so many */
    l->last_number = RVI_MAX(l->last_number, (int)f->generation);
    if (!l->dir) return RV_OK;
    rvi_generation g = {.number = (int)f->generation,
                        .first = f->first,
                        .last = f->last,
                        .n_parents = RVI_MIN(f->n_parents, (size_t)RVI_GENERATION_PARENTS)};
    for (size_t i = 0; i < g.n_parents; i++)
        g.parents[i] = (int)RVI_MIN(f->parents[i], (uint64_t)INT32_MAX);
    rvi_recipe_read(&g, f->recipe);
    if (g.origin == RVI_FROM_MERGE) g.gated = rvi_merge_gated(l, &g);
    rv_status st = file_name(l, g.number, &path) ? RV_OK : rvi_nomem(err, "path");
    if (!st && load_published(l, f, path.data, &g.adapter, &why)) {
        rvi_log_write(l->parts.be->log, RVI_LOG_WARN, "generation %d is left out: %s", g.number,
                      why.text);
        if (why.code == RV_E_NOMEM) st = rvi_nomem(err, "adapter");
    }
    rvi_buf_deinit(&path);
    if (st || !g.adapter) return st;
    if (g.origin != RVI_FROM_FILE) read_provenance(&g);
    st = rvi_shared_load(l, &g, err);
    if (!st) st = rvi_learner_add_generation(l, &g, err);
    if (st) {
        rvi_adapter_free(g.adapter);
        rvi_generation_deinit(&g);
        return st;
    }
    claim(l, &g);
    rvi_generations_settle(l);
    return RV_OK;
}

rv_status rvi_learner_fold(rvi_learner *l, const rvi_feedback *f, rv_error *err)
{
    rv_status st = RV_OK;
    char *text;
    rvi_adaptation ignored = {0};
    if (!rvi_text_is(f->user, l->user)) return RV_OK;
    switch (f->kind) {
    case RVI_FEEDBACK_CORRECTION: return fold_correction(l, f, err);
    case RVI_FEEDBACK_SCORE: return rvi_learner_note(l, RVI_DID_SCORE, f->seq, err);
    case RVI_FEEDBACK_THUMB:
        st = rvi_learner_note(l, RVI_DID_THUMB, f->seq, err);
        if (st || f->score > 0 || !f->question.len) break;
        text = own(f->question);
        st = !text ? rvi_nomem(err, "event")
                   : rvi_learner_silence(l, text, f->seq, f->branch ? f->note : (rvi_text){0},
                                         (size_t)f->branch - (f->branch > 0), err);
        rvi_free(text);
        break;
    case RVI_FEEDBACK_UNDO:
        rvi_learner_take_back(l, f->target, f->seq, &ignored);
        (void)rvi_learner_unsilence(l, f->target);
        rvi_learner_unnote(l, f->target);
        break;
    case RVI_FEEDBACK_FORGET:
        text = own(f->note);
        st = text ? rvi_learner_drop(l, text, f->seq, &ignored, err) : rvi_nomem(err, "event");
        rvi_free(text);
        break;
    case RVI_FEEDBACK_PUBLISH:
    case RVI_FEEDBACK_IMPORT:
    case RVI_FEEDBACK_MERGE: return fold_generation(l, f, err);
    case RVI_FEEDBACK_ROLLBACK:
        rvi_learner_go_back(l, f->generation);
        return rvi_shared_restore(l, err);
    default: break;
    }
    return st;
}

static int mark_absorbed(void *ctx, rvi_bytes key, rvi_bytes record)
{
    rvi_learner *l = ctx;
    char text[24] = "";
    (void)record;
    if (key.len < sizeof text) memcpy(text, key.data, key.len);
    uint64_t event = strtoull(text, NULL, 10);
    for (size_t i = 0; i < l->n_lessons; i++)
        if (l->lessons[i].event == event && l->lessons[i].generation) l->lessons[i].absorbed = true;
    return 0;
}

rv_status rvi_learner_keep_absorbed(rvi_learner *l, const rvi_lesson *x, rv_error *err)
{
    char key[24];
    int len = snprintf(key, sizeof key, "%020llu", (unsigned long long)x->event);
    return x->absorbed ? rvi_store_put(&l->store, "absorbed", key, (size_t)len, "1", 1, err)
                       : rvi_store_remove(&l->store, "absorbed", key, (size_t)len, err);
}

rv_status rvi_learner_reopen(rvi_learner *l, rv_error *err)
{
    reader r = {.l = l, .err = err};
    rv_status st = l->dir ? rvi_os_make_dirs(l->dir, err) : RV_OK;
    if (!st) st = rvi_feedback_repair(&l->store, err);
    if (!st) st = rvi_feedback_count(&l->store, &l->opened_at, err);
    if (!st) st = rvi_feedback_read(&l->store, 1, fold, &r, err);
    if (!st) st = r.st;
    if (!st) st = rvi_shared_restore(l, err);
    if (!st) st = rvi_store_scan(&l->store, "absorbed", NULL, 0, mark_absorbed, l, err);
    if (!st) st = rvi_calibration_reopen(l, err);
    if (!st) st = rvi_instant_reopen(l, err);
    return st;
}
