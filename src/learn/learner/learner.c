/* The learner's life, and what it says about itself. Options, store and texts it was given are its
 * own; what `parts` names is borrowed and outlives it. */
#include <string.h>

#include "base/mem.h"
#include "base/os.h"
#include "learn/journal/text.h"
#include "learn/learner/learner_internal.h"
#include "model/digest.h"

/* ---- beginning and end ---- */

void rvi_learner_reset(rvi_learner *l)
{
    if (l->recogniser) rvi_recogniser_clear(l->recogniser);
    for (size_t i = 0; i < l->generations.n; i++) {
        rvi_adapter_sets_retire(&l->sets, l->generations.list[i].adapter);
        rvi_generation_deinit(&l->generations.list[i]);
    }
    rvi_free(l->generations.list);
    l->generations = (rvi_generations){.last_number = l->generations.last_number};
    rvi_history_deinit(&l->history);
    rvi_lock_take(l->instructing);
    rvi_buf_deinit(&l->instructions);
    rvi_free(l->answers);
    l->answers = NULL;
    l->n_answers = l->cap_answers = 0;
    rvi_lock_give(l->instructing);
    rvi_lessons_deinit(&l->lessons);
    rvi_refusals_deinit(&l->refusals);
    rvi_shared_deinit(&l->shared);
    rvi_instant_deinit(l);
    rvi_adapter_sets_sweep(&l->sets);
}

rv_status rvi_learner_new(rvi_learner **out, const rvi_learner_parts *parts,
                          const rvi_learner_options *o, rvi_store *take, rv_error *err)
{
    *out = NULL;
    rvi_learner *l = rvi_zalloc(sizeof *l);
    if (!l) {
        rvi_store_close(take);
        return rvi_nomem(err, "learner");
    }
    l->parts = *parts;
    l->o = *o;
    l->store = *take;
    l->lock = -1;
    l->sets = (rvi_adapter_sets){
        .m = parts->m, .new_serial = parts->new_serial, .serial_ctx = parts->serial_ctx};
    *take = (rvi_store){0};
    rv_status st = l->store.by.append ? RV_OK : rvi_store_memory(&l->store, err);
    if (!st && rvi_learner_shares(l) && (!o->dir || o->shared))
        st = rvi_error(err, RV_E_CONFIG,
                       "a store that is shared needs dir, and experiments without "
                       "shared");
    if (!st) st = rvi_lock_new(&l->instructing, err);
    if (!st) st = rvi_model_digest(parts->m->source, parts->m->be, l->digest, err);
    l->user = rvi_text_copy(rvi_text_of(o->user ? o->user : "default"));
    if (o->dir) l->dir = rvi_text_copy(rvi_text_of(o->dir));
    if (!st && (!l->user || (o->dir && !l->dir))) st = rvi_nomem(err, "learner");
    l->o.user = l->user;
    l->o.dir = l->dir;
    if (!st)
        st = rvi_base_model_init(&l->base, parts->m, parts->t, parts->chat, parts->eos, parts->be,
                                 err);
    const rvi_recogniser_memory memory = {l, rvi_learner_recall_reading, rvi_learner_save_reading};
    if (!st && parts->embedder)
        st = rvi_embedder_new(&l->embedder, parts->embedder, parts->embedder_t, parts->embedder->be,
                              err);
    if (!st) st = rvi_recogniser_new(&l->recogniser, l->embedder, &memory, err);
    if (!st) st = rvi_learner_reopen(l, err);
    if (!st) st = rvi_learner_recognise_anew(l, err);
    if (st)
        rvi_learner_free(l);
    else
        *out = l;
    return st;
}

/* Others may have the state. */
static void give_back(rvi_learner *l)
{
    rvi_learner_yield(l);
    rvi_learner_end_lease(l);
    rvi_os_unlock(l->lock);
    l->lock = -1;
    l->owned = false;
}

void rvi_learner_free(rvi_learner *l)
{
    if (!l) return;
    give_back(l); /* the caller may have closed the store since it was flushed */
    if (l->instructing) rvi_learner_reset(l); /* otherwise there is nothing yet */
    rvi_lock_free(l->instructing);
    rvi_adapter_sets_deinit(&l->sets);
    rvi_capturer_free(l->instant.capturer);
    rvi_capturer_free(l->instant.next_capturer);
    if (l->has_baseline) rvi_baseline_deinit(&l->baseline);
    rvi_replay_deinit(&l->replay);
    rvi_recogniser_free(l->recogniser);
    rvi_recogniser_free(l->refused);
    rvi_embedder_free(l->embedder);
    rvi_base_model_deinit(&l->base);
    rvi_store_close(&l->store);
    rvi_free(l->absent);
    rvi_free(l->dir);
    rvi_free(l->user);
    rvi_free(l);
}

void rvi_learner_flush(rvi_learner *l)
{
    bool any;
    if (l->instructing) rvi_learner_follow(l, &any); /* nothing that was forgotten stays here */
    give_back(l);
}

/* ---- looking ---- */

/* A member of an object: after `before`, which opens the object or goes on in it. */
static void put_text(rvi_buf *out, const char *before, const char *key, const char *s)
{
    (void)rvi_buf_printf(out, "%s\"%s\":", before, key);
    (void)rvi_json_write_string(out, s, strlen(s));
}

/* An object of a list, after n others, that begins with its event. */
static void put_event(rvi_buf *out, size_t n, uint64_t event)
{
    (void)rvi_buf_printf(out, "%s{\"event\":%llu", n ? "," : "", (unsigned long long)event);
}

static const char *truth(bool yes)
{
    return yes ? "true" : "false";
}

static void put_generation(rvi_buf *out, const rvi_generation *g)
{
    const rvi_study_result *f = &g->figures;
    (void)rvi_buf_printf(out, "{\"number\":%d,\"active\":%s,\"rolled_back\":%s,\"gated\":%s%s",
                         g->number, truth(rvi_generation_active(g)), truth(g->gone_by != 0),
                         truth(g->gated), g->erased ? ",\"erased\":true" : "");
    if (f->n_steps)
        (void)rvi_buf_printf(out, ",\"steps\":%d,\"loss\":%.5f,\"probe_kl\":%.5f", f->n_steps,
                             f->ce, f->probe_kl);
    if (f->n_rows) /* trained by this process */
        (void)rvi_buf_printf(out, ",\"kl\":%.5f,\"seconds\":%.2f,\"rows\":%llu,\"said\":%d", f->kl,
                             f->seconds, (unsigned long long)f->n_rows, g->n_said);
    if (g->n_wordings)
        (void)rvi_buf_printf(out, ",\"wordings\":%d,\"wordings_said\":%d", g->n_wordings,
                             g->n_wordings_said);
    (void)rvi_buf_putc(out, '}');
}

/* And what it took the place of; silent: a thumb down on its own question ended it. */
static void put_lesson(rvi_buf *out, size_t before, const rvi_learner *l, const rvi_lesson *x)
{
    const rvi_lessons *all = &l->lessons;
    size_t n = 0;
    put_event(out, before, x->event);
    put_text(out, ",", "question", x->question);
    put_text(out, ",", "answer", x->answer);
    put_text(out, ",", "scope", rvi_scope_name(x->scope));
    for (size_t i = 0; &all->list[i] != x; i++) {
        const rvi_lesson *old = &all->list[i];
        if (old->ended_by != x->event) continue;
        if (!n) (void)rvi_buf_puts(out, ",\"instead_of\":[");
        put_event(out, n++, old->event);
        put_text(out, ",", "answer", old->answer);
        (void)rvi_buf_putc(out, '}');
    }
    (void)rvi_buf_printf(
        out, "%s,\"generation\":%d%s}", n ? "]" : "", x->generation,
        rvi_refusals_since(&l->refusals, x->question, x->event) ? ",\"silent\":true" : "");
}

static bool is_in_weights(const rvi_generations *all, uint64_t event)
{
    for (size_t i = 0; i < all->n; i++)
        if (!all->list[i].erased && rvi_generation_has_learned(&all->list[i], event)) return true;
    return false;
}

/* What was taken back or corrected since. It may still be in adapters, so that one may want it
 * forgotten. */
static void put_ended(rvi_buf *out, const rvi_learner *l)
{
    size_t n = 0;
    (void)rvi_buf_printf(out, "],\"ended\":[");
    for (size_t i = 0; i < l->lessons.n; i++) {
        const rvi_lesson *x = &l->lessons.list[i];
        if (x->in_force || x->forgotten || x->rejected || x->scope == RV_SCOPE_ALWAYS) continue;
        put_event(out, n++, x->event);
        put_text(out, ",", "question", x->question);
        put_text(out, ",", "answer", x->answer);
        (void)rvi_buf_printf(out, ",\"trained\":%s}",
                             truth(is_in_weights(&l->generations, x->event)));
    }
}

static void put_instructions(rvi_buf *out, const rvi_lessons *all)
{
    size_t n = 0;
    (void)rvi_buf_printf(out, "],\"instructions\":[");
    for (size_t i = 0; i < all->n; i++) {
        const rvi_lesson *x = &all->list[i];
        if (!rvi_lesson_instructs(x)) continue;
        put_event(out, n++, x->event);
        put_text(out, ",", "text", x->answer);
        (void)rvi_buf_putc(out, '}');
    }
}

static void put_doing(rvi_buf *out, const rvi_doing *d, bool paused)
{
    const char *what = atomic_load(&d->what), *stage = atomic_load(&d->stage);
    put_text(out, ",", "background", paused && what ? "paused" : what ? what : "off");
    if (!what || !stage) return;
    put_text(out, ",\"background_progress\":{", "stage", stage);
    (void)rvi_buf_printf(out, ",\"about\":%d,\"done\":%d,\"total\":%d", atomic_load(&d->n),
                         atomic_load(&d->done), atomic_load(&d->total));
    double remaining = rvi_doing_remaining(d);
    if (remaining >= 0) (void)rvi_buf_printf(out, ",\"remaining_s\":%.1f", remaining);
    (void)rvi_buf_putc(out, '}');
}

static void put_pair(rvi_buf *out, size_t before, const rvi_lesson *x)
{
    put_event(out, before, x->event);
    put_text(out, ",", "question", x->question);
    put_text(out, ",", "chosen", x->answer);
    put_text(out, ",", "rejected", x->rejected);
    (void)rvi_buf_printf(out, ",\"trained\":%s,\"generation\":%d}", truth(x->generation != 0),
                         x->generation);
}

rv_status rvi_learner_status(rvi_learner *l, rvi_buf *out, rv_error *err)
{
    size_t n = rvi_learner_standing(l);
    rv_status st = rvi_instant_catch_up(l, err);
    if (st) return st;
    put_text(out, "{", "user", l->user);
    put_text(out, ",", "model", l->digest);
    (void)rvi_buf_printf(out, ",\"calibrated\":%s,\"lessons\":%zu,\"waiting\":%zu",
                         truth(l->calibrated), n, rvi_learner_waiting(l));
    (void)rvi_buf_printf(out, ",\"repeats\":%s,\"reads\":%s,\"paused\":%s",
                         rvi_trait_json(&l->repeats), rvi_trait_json(&l->reads), truth(l->paused));
    put_doing(out, &l->doing, l->paused);
    if (l->trouble[0]) put_text(out, ",", "background_error", l->trouble);
    (void)rvi_buf_printf(out, ",\"generations\":[");
    n = 0;
    for (size_t i = 0; i < l->generations.n; i++) {
        if (l->generations.list[i].lost) continue;
        if (n++) (void)rvi_buf_putc(out, ',');
        put_generation(out, &l->generations.list[i]);
    }
    (void)rvi_buf_printf(out, "],\"learned\":[");
    n = 0;
    for (size_t i = 0; i < l->lessons.n; i++)
        if (rvi_lesson_answers(&l->lessons.list[i])) put_lesson(out, n++, l, &l->lessons.list[i]);
    put_ended(out, l);
    put_instructions(out, &l->lessons);
    (void)rvi_buf_printf(out, "],\"preferences\":[");
    n = 0;
    for (size_t i = 0; i < l->lessons.n; i++)
        if (rvi_lesson_prefers(&l->lessons.list[i])) put_pair(out, n++, &l->lessons.list[i]);
    (void)rvi_buf_printf(out, "]}");
    return out->failed ? rvi_nomem(err, "status") : RV_OK;
}
