/* Generations as adapter files: written, brought in from elsewhere, merged. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/number.h"
#include "base/os.h"
#include "learn/learner/learner_internal.h"
#include "lora/file.h"
#include "lora/merge.h"
#include "lora/write.h"

static const char early_name[] = "training-";

/* ---- generation files ---- */

rv_status rvi_learner_generation_file(const rvi_learner *l, int number, rvi_buf *out, rv_error *err)
{
    bool done = rvi_buf_printf(out, "%s/" RVI_GENERATION_FILE, l->dir, number);
    return done ? RV_OK : rvi_nomem(err, "path");
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

rv_status rvi_learner_save_generation(rvi_learner *l, const rvi_generation *g, const char *early,
                                      rv_error *err)
{
    rvi_buf path = {0};
    if (!l->dir) return RV_OK;
    rv_status st = rvi_learner_generation_file(l, g->number, &path, err);
    if (!st && !early) st = rvi_learner_write(l, g, path.data, false, err);
    if (!st && early) st = rvi_os_replace(early, path.data, err);
    if (!st && early) st = rvi_os_sync_parent(path.data, err);
    rvi_buf_deinit(&path);
    return st;
}

rv_status rvi_learner_save_early(rvi_learner *l, const rvi_base_model *v, const rvi_generation *g,
                                 rvi_buf *file, rv_error *err)
{
    if (rvi_backend_is_stopped(v->be)) return rvi_error(err, RV_E_CANCELLED, "cancelled");
    if (!l->dir) return RV_OK;
    if (!rvi_buf_printf(file, "%s/%s%.16s.gguf", l->dir, early_name, g->digest))
        return rvi_nomem(err, "path");
    return rvi_learner_write(l, g, file->data, false, err);
}

static int remove_one(void *ctx, const char *name)
{
    rvi_buf path = {0};
    if (!strncmp(name, early_name, strlen(early_name)) &&
        rvi_buf_printf(&path, "%s/%s", (const char *)ctx, name))
        rvi_os_remove_tree(path.data);
    rvi_buf_deinit(&path);
    return 0;
}

void rvi_learner_remove_early(const char *dir)
{
    (void)!rvi_os_list(dir, remove_one, (void *)(uintptr_t)dir, NULL);
}

rv_status rvi_learner_load_file(const rvi_learner *l, const char *path, rvi_adapter **out,
                                rv_error *err)
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
    rv_status st = rvi_learner_load_file(l, path, &g.adapter, err);
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
    for (size_t i = 0; i < l->lessons.n; i++)
        n += l->lessons.list[i].generation == g->number && !l->lessons.list[i].rejected;
    return (double)RVI_MAX(n, (size_t)1);
}

rv_status rvi_learner_merge(rvi_learner *l, int a, int b, rv_consolidation how, rvi_adaptation *out,
                            rv_error *err)
{
    static const char *const rules[] = {[RV_MERGE_AVERAGE] = "average",
                                        [RV_MERGE_QUALITY_WEIGHTED] = "quality_weighted",
                                        [RV_MERGE_EWC] = "ewc"};
    *out = rvi_adaptation_new(RV_LOOP_BACKGROUND);
    const rvi_generation *ga = NULL, *gb = NULL;
    rv_status st = rvi_learner_own(l, err);
    if (st) return st;
    if (!a || !b || a == b)
        return rvi_error(err, RV_E_NOT_FOUND, "two generations are needed, and %d and %d are not",
                         a, b);
    st = rvi_learner_need_adapter(l, a, &ga, err);
    if (!st) st = rvi_learner_need_adapter(l, b, &gb, err);
    if (st) return st;
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
        rvi_generation_deinit(&g);
        return st;
    }
    out->applied = 1;
    out->generation = g.number;
    (void)rvi_snprintf(out->notes, sizeof out->notes, "%.2f %% of the energy discarded",
                       100 * report.lost);
    return RV_OK;
}
