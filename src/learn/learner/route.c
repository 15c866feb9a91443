/* From a request to what takes part in its answer: the lesson that it asks for is spoken from its
 * slot, and generations that hold that lesson take part, as do those that stand behind no gate.
 * Where no lesson is asked for, nothing takes part that was trained for one. */
#include <stdio.h>
#include <string.h>

#include "learn/learner/learner_internal.h"

/* ---- recognising ---- */

static size_t reading_key(uint64_t lesson, char key[32])
{
    return (size_t)snprintf(key, 32, "%016llx", (unsigned long long)lesson);
}

/* With an embedder and without, so that neither has to read again what the other overwrote. */
static const char *reading_table(const rvi_learner *l, rvi_kept what)
{
    bool gist = what == RVI_KEPT_GIST;
    if (l->embedder) return gist ? "gist" : "reading";
    return gist ? "gist.spelled" : "reading.spelled";
}

bool rvi_learner_recall_reading(void *ctx, rvi_kept what, uint64_t lesson, rvi_buf *out)
{
    rvi_learner *l = ctx;
    char key[32];
    bool found = false;
    return !rvi_store_get(&l->store, reading_table(l, what), key, reading_key(lesson, key), out,
                          &found, NULL) &&
           found;
}

static void end_keeping(rvi_learner *l)
{
    if (!l->n_keeping) return;
    rv_status st = rvi_store_end(&l->store, RV_OK, NULL);
    (void)st;
    l->n_keeping = 0;
}

/* Where it cannot be written the lesson is read again next time. Thousands may come at once: many
 * of them are one transaction, which ends with the request that they were read for, or when others
 * who wait to write should have their turn. */
void rvi_learner_save_reading(void *ctx, rvi_kept what, uint64_t lesson, const void *data,
                              size_t len)
{
    enum { TOGETHER = 256 };
    rvi_learner *l = ctx;
    char key[32];
    if (!l->n_keeping && rvi_store_begin(&l->store, false, NULL)) return;
    l->n_keeping++;
    rv_status st = rvi_store_put(&l->store, reading_table(l, what), key, reading_key(lesson, key),
                                 data, len, NULL);
    if (st || l->n_keeping == TOGETHER) end_keeping(l);
}

static rv_status recognise_one(rvi_learner *l, const rvi_lesson *x, rv_error *err)
{
    if (rvi_lesson_answers(x) && x->scope == RV_SCOPE_TOPIC)
        return rvi_recogniser_add(l->recogniser, x->event, x->question, x->answer, err);
    rvi_recogniser_remove(l->recogniser, x->event);
    return RV_OK;
}

/* The newest last. */
static rv_status write_instructions(rvi_learner *l, rv_error *err)
{
    rvi_buf text = {0};
    for (size_t i = 0; i < l->lessons.n; i++)
        if (rvi_lesson_instructs(&l->lessons.list[i]))
            (void)rvi_buf_printf(&text, "%s%s", text.len ? "\n" : "", l->lessons.list[i].answer);
    if (text.failed) {
        rvi_buf_deinit(&text);
        return rvi_nomem(err, "instructions");
    }
    rvi_lock_take(l->instructing);
    rvi_buf before = l->instructions;
    l->instructions = text;
    rvi_lock_give(l->instructing);
    rvi_buf_deinit(&before);
    return RV_OK;
}

rv_status rvi_learner_recognise_anew(rvi_learner *l, rv_error *err)
{
    rv_status st = write_instructions(l, err);
    if (!st) st = rvi_learner_note_answers(l, err);
    for (size_t i = 0; !st && i < l->lessons.n; i++)
        st = recognise_one(l, &l->lessons.list[i], err);
    return st;
}

rv_status rvi_learner_recognise_last(rvi_learner *l, rv_error *err)
{
    const rvi_lesson *last = &l->lessons.list[l->lessons.n - 1];
    rv_status st = rvi_learner_note_answers(l, err);
    if (st || last->scope == RV_SCOPE_ALWAYS) return st ? st : write_instructions(l, err);
    st = recognise_one(l, last, err);
    for (size_t i = 0; !st && i + 1 < l->lessons.n; i++)
        if (l->lessons.list[i].ended_by == last->event)
            st = recognise_one(l, &l->lessons.list[i], err);
    /* so that the next request need not wait for it; what fails here is tried again there */
    rv_status read = !st ? rvi_recogniser_read(l->recogniser, last->event, NULL) : st;
    (void)read;
    end_keeping(l);
    return st;
}

/* The lesson of scope exact for this very request; NULL: none. */
static const rvi_lesson *find_exact(const rvi_learner *l, const char *request)
{
    uint64_t key = rvi_question_key(request);
    for (size_t i = l->lessons.n; i-- > 0;) {
        const rvi_lesson *x = &l->lessons.list[i];
        if (x->in_force && x->scope == RV_SCOPE_EXACT && rvi_question_may_be(x->key, key) &&
            rvi_question_same(x->question, request))
            return x;
    }
    return NULL;
}

/* ---- requests for which a lesson was wrong ---- */

/* Does the refusal tell where this lesson is not asked for? One of the lesson's own question says
 * nothing of other requests. */
static bool tells_of(const rvi_refusal *r, const rvi_lesson *x)
{
    return r->lesson == x->event && !rvi_question_same(r->request, x->question);
}

static bool was_wrong(const rvi_learner *l, const rvi_lesson *x)
{
    for (size_t i = 0; i < l->refusals.n; i++)
        if (tells_of(&l->refusals.list[i], x)) return true;
    return false;
}

static rv_status need_refused(rvi_learner *l, rv_error *err)
{
    rv_status st = RV_OK;
    if (!l->refused) st = rvi_recogniser_new(&l->refused, l->embedder, NULL, err);
    if (st || l->refused_at == l->refusals.n_changes) return st;
    rvi_recogniser_clear(l->refused);
    for (size_t i = 0; !st && i < l->refusals.n; i++) {
        const rvi_refusal *r = &l->refusals.list[i];
        const rvi_lesson *x = r->lesson ? rvi_lessons_find(&l->lessons, r->lesson) : NULL;
        if (x) st = rvi_recogniser_add(l->refused, r->event, r->request, x->answer, err);
    }
    if (!st) l->refused_at = l->refusals.n_changes;
    return st;
}

/* Is the request at least as near to one that got this lesson wrongly as to the lesson itself?
 * probability: that it asks for the lesson. */
static rv_status is_refused(rvi_learner *l, const rvi_lesson *x, const char *request,
                            float probability, bool *out, rv_error *err)
{
    enum { LIKELY = 16 };
    rvi_recognised found[LIKELY];
    size_t n = 0;
    /* wrong for its own question, it is wrong in any wording */
    *out = rvi_refusals_since(&l->refusals, request, x->event) ||
           rvi_refusals_since(&l->refusals, x->question, x->event);
    if (*out || !was_wrong(l, x)) return RV_OK;
    rv_status st = need_refused(l, err);
    if (!st) st = rvi_recogniser_ask(l->refused, request, found, LIKELY, &n, err);
    for (size_t i = 0; !st && i < n && !*out; i++) {
        const rvi_refusal *r = rvi_refusals_find(&l->refusals, found[i].lesson);
        *out = r && !found[i].listed && tells_of(r, x) && found[i].probability >= probability;
    }
    return st;
}

enum { LIKELY = 4 };

/* Takes the first of them that is sure and was not wrong for the request. */
static rv_status take_one(rvi_learner *l, const char *request, const rvi_recognised *found,
                          size_t n, rvi_plan *out, rv_error *err)
{
    rv_status st = RV_OK;
    for (size_t i = 0; !st && i < n && found[i].sure && !out->asked; i++) {
        const rvi_lesson *x = rvi_lessons_find(&l->lessons, found[i].lesson);
        bool refused = true;
        if (x) st = is_refused(l, x, request, found[i].probability, &refused, err);
        if (st || refused) continue;
        out->asked = x;
        out->probability = found[i].probability;
    }
    return st;
}

/* Would some of the text be a control token where a chat may have some? */
static rv_status names_control(const rvi_learner *l, const char *text, bool *out, rv_error *err)
{
    rvi_ids ids = {0}, plain = {0};
    size_t len = strlen(text);
    rv_status st = rvi_tokenizer_encode(l->parts.t, text, len, 0, &ids, err);
    if (!st) st = rvi_tokenizer_encode(l->parts.t, text, len, RVI_TOK_PLAIN, &plain, err);
    *out = ids.len != plain.len ||
           (ids.len && memcmp(ids.data, plain.data, ids.len * sizeof *ids.data) != 0);
    rvi_ids_deinit(&ids);
    rvi_ids_deinit(&plain);
    return st;
}

/* Where none is sure, the first that is likely: for a model that reads. */
static rv_status take_likely(rvi_learner *l, const char *request, const rvi_recognised *found,
                             size_t n, rvi_plan *out, rv_error *err)
{
    rv_status st = RV_OK;
    if (out->asked || !rvi_learner_reads(l)) return RV_OK;
    for (size_t i = 0; !st && i < n && !out->read; i++) {
        const rvi_lesson *x =
            found[i].likely ? rvi_lessons_find(&l->lessons, found[i].lesson) : NULL;
        bool unfit = !x;
        if (x) st = is_refused(l, x, request, found[i].probability, &unfit, err);
        if (!st && !unfit) st = names_control(l, x->question, &unfit, err);
        if (!st && !unfit) st = names_control(l, x->answer, &unfit, err);
        if (st || unfit) continue;
        out->read = x;
        out->probability = found[i].probability;
    }
    return st;
}

/* The lesson that the request asks for, if one surely does, and if it was not wrong there. */
static rv_status recognise(rvi_learner *l, const char *request, rvi_plan *out, rv_error *err)
{
    rvi_recognised found[LIKELY];
    size_t n;
    const rvi_lesson *exact = find_exact(l, request);
    if (exact && !rvi_refusals_since(&l->refusals, request, exact->event)) {
        out->asked = exact;
        out->probability = 1;
        return RV_OK;
    }
    rv_status st = rvi_recogniser_ask(l->recogniser, request, found, LIKELY, &n, err);
    end_keeping(l);
    if (!st) st = take_one(l, request, found, n, out, err);
    return st ? st : take_likely(l, request, found, n, out, err);
}

/* A lesson that the earlier turn asked for itself, in whichever words, was heard then: with these
 * words before it, any question near it would ask for it again. */
static rv_status drop_heard(rvi_learner *l, const char *earlier, rvi_recognised *found, size_t *n,
                            rv_error *err)
{
    rvi_recognised heard[LIKELY];
    size_t n_heard = 0, kept = 0;
    rv_status st = *n && found[0].sure
                       ? rvi_recogniser_ask(l->recogniser, earlier, heard, LIKELY, &n_heard, err)
                       : RV_OK;
    for (size_t i = 0; !st && i < *n; i++) {
        bool was = false;
        for (size_t k = 0; k < n_heard; k++)
            was |= heard[k].sure && heard[k].lesson == found[i].lesson;
        if (!was) found[kept++] = found[i];
    }
    if (!st) *n = kept;
    return st;
}

/* The same for a request that an earlier turn explains. */
static rv_status recognise_in_context(rvi_learner *l, const char *const *turns, size_t n_turns,
                                      rvi_plan *out, rv_error *err)
{
    enum { BACK = 3 };
    const char *request = turns[n_turns - 1];
    rvi_recognised found[LIKELY];
    size_t n;
    bool last = false;
    rv_status st = RV_OK;
    for (size_t back = 1; !st && !last && back < n_turns && back <= BACK; back++) {
        st = rvi_recogniser_follow(l->recogniser, turns[n_turns - 1 - back], request, found, LIKELY,
                                   &n, &last, err);
        if (!st) st = drop_heard(l, turns[n_turns - 1 - back], found, &n, err);
        end_keeping(l);
        if (!st) st = take_one(l, request, found, n, out, err);
    }
    return st;
}

/* What was brought in has no lessons that could open a gate for it. */
bool rvi_learner_is_gated(const rvi_learner *l, const rvi_generation *g)
{
    if (l->o.gate == RVI_GATING_OFF) return false;
    return g->gated ||
           (l->o.gate == RVI_GATING_ON && rvi_generations_of_lessons(&l->generations, g));
}

/* Does this generation take part where this lesson (NULL: none) is asked for? */
static bool takes_part(const rvi_learner *l, const rvi_generation *g, const rvi_lesson *asked,
                       bool all)
{
    if (!g->adapter || !rvi_generation_active(g)) return false;
    if (all || !rvi_learner_is_gated(l, g)) return true;
    return asked && asked->generation && rvi_generation_has_learned(g, asked->event);
}

/* The adapters for this lesson; all: whatever is asked for. */
static rv_status hold_adapters(rvi_learner *l, const rvi_lesson *asked, bool all,
                               rvi_made_set **out, rv_error *err)
{
    const rvi_adapter *adapters[RVI_MAX_ADAPTERS], *scores = l->instant.adapter;
    int n = 0, n_more = (scores != NULL) - RVI_MAX_ADAPTERS; /* too many: the oldest stay out */
    for (size_t i = 0; i < l->generations.n; i++)
        n_more += takes_part(l, &l->generations.list[i], asked, all);
    for (size_t i = 0; i < l->generations.n; i++)
        if (takes_part(l, &l->generations.list[i], asked, all) && n_more-- <= 0)
            adapters[n++] = l->generations.list[i].adapter;
    if (scores) adapters[n++] = scores;
    return rvi_adapter_sets_hold(&l->sets, adapters, n, out, err);
}

static rv_status find_asked(rvi_learner *l, const char *const *turns, size_t n_turns, rvi_plan *out,
                            rv_error *err)
{
    rv_status st = n_turns ? recognise(l, turns[n_turns - 1], out, err) : RV_OK;
    if (!st && n_turns > 1 && !out->asked) st = recognise_in_context(l, turns, n_turns, out, err);
    if (out->asked) out->read = NULL; /* behind a turn before it, it asks for another */
    return st;
}

rv_status rvi_learner_find_read(rvi_learner *l, const char *const *turns, size_t n_turns,
                                const rvi_lesson **out, rv_error *err)
{
    rvi_plan plan = {0};
    rv_status st = find_asked(l, turns, n_turns, &plan, err);
    *out = st ? NULL : plan.read;
    return st;
}

/* ---- in pieces ---- */

bool rvi_learner_foresee(rvi_learner *l, const char *const *turns, size_t n_turns)
{
    rvi_plan plan = {0};
    if (!l->embedder) return false;
    rvi_embedder_hold(l->embedder, 0);
    bool more = find_asked(l, turns, n_turns, &plan, NULL) && rvi_embedder_was_held(l->embedder);
    rvi_embedder_hold(l->embedder, -1);
    return more;
}

rv_status rvi_learner_plan(rvi_learner *l, const char *const *turns, size_t n_turns, rvi_plan *out,
                           rv_error *err)
{
    *out = (rvi_plan){0};
    rv_status st = rvi_instant_catch_up(l, err);
    if (!st) st = find_asked(l, turns, n_turns, out, err);
    if (l->embedder) rvi_embedder_forget(l->embedder);
    if (!st) st = hold_adapters(l, out->asked, false, &out->adapters, err);
    if (!st && !l->o.no_slots) out->lesson = out->asked;
    return st;
}

rv_status rvi_learner_all(rvi_learner *l, rvi_made_set **out, rv_error *err)
{
    rv_status st = rvi_instant_catch_up(l, err);
    if (!st) st = rvi_learner_read_active(l, true, err);
    return st ? st : hold_adapters(l, NULL, true, out, err);
}

rv_status rvi_learner_instructions(const rvi_learner *l, rvi_buf *out, rv_error *err)
{
    rvi_lock_take(l->instructing);
    bool done =
        !l->instructions.len || rvi_buf_append(out, l->instructions.data, l->instructions.len);
    rvi_lock_give(l->instructing);
    return done ? RV_OK : rvi_nomem(err, "instructions");
}

void rvi_learner_release(rvi_learner *l, rvi_made_set *s)
{
    rvi_adapter_sets_release(&l->sets, s);
}
