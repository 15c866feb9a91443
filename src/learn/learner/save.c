/* Generations as adapter files: written, read again where the log names them, brought in from
 * elsewhere, merged. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/number.h"
#include "base/os.h"
#include "learn/learner/learner_internal.h"
#include "learn/journal/text.h"
#include "lora/file.h"
#include "lora/merge.h"
#include "lora/write.h"

/* ---- generation files ---- */

bool rvi_learner_generation_file(const rvi_learner *l, int number, rvi_buf *out)
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
    rv_status st =
        rvi_learner_generation_file(l, g->number, &path) ? RV_OK : rvi_nomem(err, "path");
    if (!st) st = rvi_learner_write(l, g, path.data, false, err);
    rvi_buf_deinit(&path);
    return st;
}

rv_status rvi_learner_save_early(rvi_learner *l, const rvi_base_model *v, const rvi_generation *g,
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
    rv_status st =
        rvi_learner_generation_file(l, g->number, &path) ? RV_OK : rvi_nomem(err, "path");
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
    for (size_t i = 0; i < l->lessons.n; i++) n += l->lessons.list[i].generation == g->number;
    return (double)RVI_MAX(n, (size_t)1);
}

rv_status rvi_learner_merge(rvi_learner *l, int a, int b, rv_consolidation how, rvi_adaptation *out,
                            rv_error *err)
{
    static const char *const rules[] = {[RV_MERGE_AVERAGE] = "average",
                                        [RV_MERGE_QUALITY_WEIGHTED] = "quality_weighted",
                                        [RV_MERGE_EWC] = "ewc"};
    *out = rvi_adaptation_new(RV_LOOP_BACKGROUND);
    rv_status st = rvi_learner_own(l, err);
    if (st) return st;
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
    g.gated = rvi_generations_gate_merged(&l->generations, &g);
    rvi_merge_report report = {0};
    st = rvi_adapter_merge(&g.adapter, l->parts.m->targets, rvi_merge_find(rules[how]), parts, 2,
                           l->o.rank, &report, err);
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

/* ---- from the log ---- */

/* Lessons that waited then and are of these events are the generation's now. */
static void claim(rvi_learner *l, const rvi_generation *g)
{
    for (size_t i = 0; i < l->lessons.n; i++) {
        rvi_lesson *x = &l->lessons.list[i];
        if (g->origin != RVI_FROM_PAIRS && x->in_force && !x->generation && x->event >= g->first &&
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
rv_status rvi_learner_apply_generation(rvi_learner *l, const rvi_feedback *f, rv_error *err)
{
    rvi_buf path = {0};
    rv_error why = {0};
    if (f->generation >= INT32_MAX) return RV_OK; /* nobody has made so many */
    l->generations.last_number = RVI_MAX(l->generations.last_number, (int)f->generation);
    if (!l->dir) return RV_OK;
    rvi_generation g = {.number = (int)f->generation,
                        .first = f->first,
                        .last = f->last,
                        .n_parents = RVI_MIN(f->n_parents, (size_t)RVI_GENERATION_PARENTS)};
    for (size_t i = 0; i < g.n_parents; i++)
        g.parents[i] = (int)RVI_MIN(f->parents[i], (uint64_t)INT32_MAX);
    rvi_recipe_read(&g, f->recipe);
    if (g.origin == RVI_FROM_MERGE) g.gated = rvi_generations_gate_merged(&l->generations, &g);
    rv_status st = rvi_learner_generation_file(l, g.number, &path) ? RV_OK : rvi_nomem(err, "path");
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
    return RV_OK;
}
