#include "learn/learner.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/os.h"
#include "learn/drift.h"
#include "model/digest.h"

/* ---- adapter sets ---- */

enum { MAX_ADAPTERS = 64 };

struct rvi_made_set {
    rvi_made_set *next;
    int n_users; /* sessions */
    rvi_adapter_use uses[MAX_ADAPTERS];
    rvi_adapter_set set;
};

/* Adapters of the last down projection alone write no keys or values: what was computed without them stays
 * valid, and such a set has the serial of the empty one. */
static bool writes_keys(const rvi_learner *l, const rvi_adapter *a)
{
    const rvi_model *m = l->parts.m;
    int last = m->layers[m->hp.n_layers - 1].down.slot;
    for (int i = 0; i < a->n_slots; i++)
        if (a->slots[i].a && i != last) return true;
    return false;
}

static uint64_t serial_of(const rvi_learner *l, const rvi_adapter *const *adapters, int n)
{
    for (int i = 0; i < n; i++)
        if (writes_keys(l, adapters[i])) return l->parts.new_serial(l->parts.serial_ctx);
    return 0;
}

/* The set of these adapters; one and the same for as long as somebody holds it or its adapters are in
 * use, so that keys and values computed with it are found again. */
static rv_status set_of(rvi_learner *l, const rvi_adapter *const *adapters, int n,
                        rvi_made_set **out, rv_error *err)
{
    *out = NULL;
    if (!n) return RV_OK;
    for (rvi_made_set *s = l->sets; s && !*out; s = s->next) {
        bool same = s->set.n == n;
        for (int i = 0; same && i < n; i++) same = s->uses[i].adapter == adapters[i];
        if (same) *out = s;
    }
    if (!*out) {
        rvi_made_set *s = rvi_zalloc(sizeof *s);
        if (!s) return rvi_nomem(err, "adapters");
        for (int i = 0; i < n; i++) s->uses[i] = (rvi_adapter_use){adapters[i], 1};
        s->set = (rvi_adapter_set){s->uses, n, serial_of(l, adapters, n)};
        s->next = l->sets;
        l->sets = *out = s;
    }
    (*out)->n_users++;
    return RV_OK;
}

const rvi_adapter_set *rvi_made_set_of(const rvi_made_set *s)
{
    return s ? &s->set : NULL;
}

void rvi_learner_release(rvi_learner *l, rvi_made_set *s)
{
    if (!s) return;
    s->n_users--;
    rvi_learner_sweep(l);
}

static bool is_named(const rvi_made_set *s, const rvi_adapter *a)
{
    for (int i = 0; i < s->set.n; i++)
        if (s->uses[i].adapter == a) return true;
    return false;
}

void rvi_learner_sweep(rvi_learner *l)
{
    rvi_instant *in = &l->instant;
    size_t kept = 0;
    for (size_t r = 0; r < in->n_retired; r++) {
        bool held = false;
        for (rvi_made_set **at = &l->sets; *at;) {
            rvi_made_set *s = *at;
            if (is_named(s, in->retired[r]) && !s->n_users) {
                *at = s->next;
                rvi_free(s);
                continue;
            }
            held |= is_named(s, in->retired[r]);
            at = &s->next;
        }
        if (held)
            in->retired[kept++] = in->retired[r];
        else
            rvi_adapter_free(in->retired[r]);
    }
    in->n_retired = kept;
}

static void free_sets(rvi_learner *l)
{
    while (l->sets) {
        rvi_made_set *s = l->sets;
        l->sets = s->next;
        rvi_free(s);
    }
}

/* ---- lists ---- */

char *rvi_learner_copy(const char *s)
{
    size_t len = strlen(s) + 1;
    char *p = rvi_alloc_array(len, 1);
    if (p) memcpy(p, s, len);
    return p;
}

void *rvi_learner_room(void **list, size_t n, size_t *cap, size_t size)
{
    if (n == *cap) {
        size_t more = *cap ? 2 * *cap : 32;
        void *p = rvi_realloc_array(*list, more, size);
        if (!p) return NULL;
        *list = p;
        *cap = more;
    }
    return memset((char *)*list + n * size, 0, size);
}

static void lesson_deinit(rvi_lesson *x)
{
    rvi_fact_free(x->fact);
    rvi_ids_deinit(&x->spoken);
    rvi_free(x->rejected);
}

static void drop_gate(rvi_learner *l)
{
    rvi_gate_free(l->gate);
    rvi_free(l->gate_facts);
    rvi_free(l->gate_lessons);
    l->gate = NULL;
    l->gate_facts = NULL;
    l->gate_lessons = NULL;
    l->n_gate = 0;
}

/* An adapter that no new set will name; freed when the last session lets go of it. Without memory for the
 * list it is freed with the learner's other adapters: never, rather than too early. */
static void retire(rvi_learner *l, rvi_adapter *a)
{
    rvi_instant *in = &l->instant;
    rvi_adapter **slot = a ? rvi_learner_room((void **)&in->retired, in->n_retired,
                                              &in->cap_retired, sizeof *in->retired)
                           : NULL;
    if (!slot) return;
    *slot = a;
    in->n_retired++;
}

static void forget_all(rvi_learner *l)
{
    drop_gate(l);
    for (size_t i = 0; i < l->n_lessons; i++) lesson_deinit(&l->lessons[i]);
    for (size_t i = 0; i < l->n_generations; i++) {
        retire(l, l->generations[i].adapter);
        rvi_generation_deinit(&l->generations[i]);
    }
    for (size_t i = 0; i < l->n_pairs; i++) {
        rvi_free(l->pairs[i].question);
        rvi_free(l->pairs[i].chosen);
        rvi_free(l->pairs[i].rejected);
    }
    l->n_lessons = l->n_generations = l->n_pairs = l->n_done = 0;
    rvi_shared_deinit(&l->shared);
    rvi_instant_deinit(l);
    rvi_learner_sweep(l);
}

static rv_status make_gate(rvi_learner *l, rv_error *err)
{
    return rvi_learner_make_gate(l, NULL, err);
}

/* ---- beginning and end ---- */

rv_status rvi_learner_new(rvi_learner **out, const rvi_learner_parts *parts,
                          const rv_learner_options *o, rvi_store *take, rv_error *err)
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
    *take = (rvi_store){0};
    rv_status st = l->store.by.append ? RV_OK : rvi_store_memory(&l->store, err);
    rvi_model_digest(parts->m->source, l->digest);
    l->user = rvi_learner_copy(o->user ? o->user : "default");
    if (o->dir) l->dir = rvi_learner_copy(o->dir);
    if (!st && (!l->user || (o->dir && !l->dir))) st = rvi_nomem(err, "learner");
    l->o.user = l->user;
    l->o.dir = l->dir;
    if (!st)
        st = rvi_voice_init(&l->voice, parts->m, parts->t, parts->chat, parts->eos, parts->be, err);
    if (!st) st = rvi_learner_reopen(l, err);
    if (!st) st = make_gate(l, err);
    if (st)
        rvi_learner_free(l);
    else
        *out = l;
    return st;
}

void rvi_learner_free(rvi_learner *l)
{
    if (!l) return;
    rvi_learner_settle(l);
    forget_all(l);
    free_sets(l);
    rvi_learner_sweep(l);
    rvi_capturer_free(l->instant.capturer);
    rvi_free(l->instant.retired);
    rvi_free(l->done);
    rvi_free(l->lessons);
    rvi_free(l->generations);
    rvi_free(l->pairs);
    if (l->grounded) rvi_ground_deinit(&l->ground);
    rvi_replay_deinit(&l->replay);
    rvi_calibration_free(l->calibration);
    rvi_features_free(l->features);
    rvi_voice_deinit(&l->voice);
    rvi_bank_free(l->bank);
    rvi_store_close(&l->store);
    rvi_free(l->dir);
    rvi_free(l->user);
    rvi_free(l);
}

rv_status rvi_learner_reset(rvi_learner *l, rv_error *err)
{
    forget_all(l);
    return rvi_instant_save(l, err);
}

void rvi_learner_settle(rvi_learner *l)
{
    rv_error why = {0};
    if (l->instant.unsaved && rvi_instant_save(l, &why))
        rvi_log_write(l->parts.be->log, RVI_LOG_WARN, "what scores taught is not saved: %s",
                      why.text);
}

/* ---- the gate ---- */

/* Made anew after every change of what stands; prototypes of relations that `before` (else the gate as it
 * is) has are taken over. */
rv_status rvi_learner_make_gate(rvi_learner *l, const rvi_gate *before, rv_error *err)
{
    if (!before && l->gate && rvi_gate_calibrated(l->gate)) before = l->gate;
    rvi_gate *gate = NULL;
    size_t n = 0;
    const rvi_fact **facts = rvi_alloc_array(l->n_lessons + 1, sizeof *facts);
    size_t *lessons = rvi_alloc_array(l->n_lessons + 1, sizeof *lessons);
    rv_status st = facts && lessons ? RV_OK : rvi_nomem(err, "gate");
    for (size_t i = 0; !st && i < l->n_lessons; i++) {
        if (!l->lessons[i].stands || l->lessons[i].fact->kind == RVI_FACT_FREE) continue;
        facts[n] = l->lessons[i].fact;
        lessons[n++] = i;
    }
    rvi_gate_reader reader = {.read = rvi_features_read,
                              .ctx = l->features,
                              .recall = rvi_calibration_recall,
                              .keep = rvi_calibration_remember,
                              .memory = l};
    if (l->features) reader.dim = rvi_features_dim(l->features);
    if (!st && n)
        st = rvi_gate_new(&gate, l->parts.t, facts, n, l->calibration, &reader, before, err);
    if (st) {
        rvi_free(facts);
        rvi_free(lessons);
        return st;
    }
    drop_gate(l);
    l->gate = gate;
    l->gate_facts = facts;
    l->gate_lessons = lessons;
    l->n_gate = n;
    return RV_OK;
}

/* ---- lessons ---- */

/* The short form of an answer: its first letter large, a full stop, the end. */
static rv_status speak(rvi_learner *l, rvi_lesson *x, rv_error *err)
{
    rvi_buf text = {0};
    const char *a = x->fact->answer;
    size_t len = strlen(a);
    rv_status st = RV_OK;
    (void)rvi_buf_append(&text, a, len);
    if (text.len && text.data[0] >= 'a' && text.data[0] <= 'z')
        text.data[0] = (char)(text.data[0] - 'a' + 'A');
    if (len && !strchr(".!?", a[len - 1])) (void)rvi_buf_putc(&text, '.');
    if (text.failed) st = rvi_nomem(err, "slot");
    if (!st) st = rvi_voice_encode(&l->voice, text.data, text.len, &x->spoken, err);
    if (!st && x->spoken.len >= RVI_MAX_SLOT) x->spoken.len = RVI_MAX_SLOT - 1;
    if (!st && !rvi_ids_push(&x->spoken, l->voice.end)) st = rvi_nomem(err, "slot");
    rvi_buf_deinit(&text);
    return st;
}

bool rvi_learner_same_words(const char *a, const char *b)
{
    bool in = false, back = false;
    return !rvi_words_contain(&in, a, strlen(a), b, strlen(b), NULL) && in &&
           !rvi_words_contain(&back, b, strlen(b), a, strlen(a), NULL) && back;
}

/* The newest correction of a thing wins. */
static void supersede(rvi_learner *l, const rvi_fact *f, uint64_t event)
{
    for (size_t i = 0; i < l->n_lessons; i++) {
        rvi_lesson *x = &l->lessons[i];
        if (!x->stands) continue;
        if (f->kind == RVI_FACT_FREE || x->fact->kind == RVI_FACT_FREE
                ? rvi_learner_same_words(x->fact->question, f->question)
                : rvi_learner_same_words(x->fact->subject, f->subject) &&
                      rvi_learner_same_words(x->fact->relation, f->relation)) {
            x->stands = false;
            x->ended_by = event;
        }
    }
}

/* A lesson with a place for it, so that nothing can fail once it is logged. Takes fact, also on failure. */
static rv_status prepare_lesson(rvi_learner *l, rvi_lesson *x, rvi_fact *fact, const char *rejected,
                                rv_error *err)
{
    *x = (rvi_lesson){.fact = fact, .stands = true};
    rv_status st = speak(l, x, err);
    if (!st && rejected && !(x->rejected = rvi_learner_copy(rejected)))
        st = rvi_nomem(err, "lessons");
    if (!st && (!rvi_learner_room((void **)&l->lessons, l->n_lessons, &l->cap_lessons, sizeof *x) ||
                !rvi_learner_room((void **)&l->done, l->n_done, &l->cap_done, sizeof *l->done)))
        st = rvi_nomem(err, "lessons");
    if (st) lesson_deinit(x);
    return st;
}

static void add_prepared(rvi_learner *l, const rvi_lesson *x, uint64_t event)
{
    supersede(l, x->fact, event);
    l->lessons[l->n_lessons] = *x;
    l->lessons[l->n_lessons++].event = event;
    l->done[l->n_done++] = (rvi_done){.kind = RVI_DID_CORRECT, .event = event};
}

rv_status rvi_learner_add_lesson(rvi_learner *l, uint64_t event, const char *question,
                                 const char *answer, const char *rejected, rv_error *err)
{
    rvi_fact *fact = NULL;
    rvi_lesson x;
    rv_status st =
        rvi_fact_read(&fact, l->parts.t, question, strlen(question), answer, strlen(answer), err);
    if (!st) st = prepare_lesson(l, &x, fact, rejected, err);
    if (!st) add_prepared(l, &x, event);
    return st;
}

static rvi_text text_of(const char *s)
{
    return (rvi_text){s, s ? strlen(s) : 0};
}

rv_status rvi_learner_correct(rvi_learner *l, const char *question, const char *answer,
                              const char *rejected, rv_adaptation *out, rv_error *err)
{
    double start = rvi_os_seconds();
    rvi_fact *fact = NULL;
    rvi_lesson x;
    rvi_feedback f = rvi_feedback_new(RVI_FEEDBACK_CORRECTION);
    f.user = text_of(l->user);
    f.question = text_of(question);
    f.corrected = text_of(answer);
    if (rejected) f.given = text_of(rejected);
    *out = (rv_adaptation){.loop = RV_LOOP_INSTANT, .quality_delta = NAN};
    rv_status st =
        rvi_fact_read(&fact, l->parts.t, question, strlen(question), answer, strlen(answer), err);
    if (!st) st = rvi_feedback_check(&f, err);
    if (st) {
        rvi_fact_free(fact);
        return st;
    }
    st = prepare_lesson(l, &x, fact, rejected, err);
    if (st) return st;
    if ((st = rvi_feedback_append(&l->store, &f, err))) {
        lesson_deinit(&x);
        return st;
    }
    snprintf(out->notes, sizeof out->notes, "%s: %s", fact->subject[0] ? fact->subject : "answer",
             fact->sentence);
    add_prepared(l, &x, f.seq);
    double added = rvi_os_seconds();
    st = make_gate(l, err);
    if (!st) st = rvi_learner_follow(l, err);
    out->forward_us = (rvi_os_seconds() - added) * 1e6;
    out->applied = !st;
    out->event = f.seq;
    out->samples_used = 1;
    out->latency_us = (added - start) * 1e6;
    return st;
}

rv_status rvi_learner_add_pair(rvi_learner *l, uint64_t event, const char *question,
                               const char *chosen, const char *rejected, rv_error *err)
{
    rvi_preference *p =
        rvi_learner_room((void **)&l->pairs, l->n_pairs, &l->cap_pairs, sizeof *l->pairs);
    if (!p) return rvi_nomem(err, "pairs");
    p->event = event;
    p->question = rvi_learner_copy(question);
    p->chosen = rvi_learner_copy(chosen);
    p->rejected = rvi_learner_copy(rejected);
    if (p->question && p->chosen && p->rejected) {
        l->n_pairs++;
        return RV_OK;
    }
    rvi_free(p->question);
    rvi_free(p->chosen);
    rvi_free(p->rejected);
    return rvi_nomem(err, "pairs");
}

rv_status rvi_learner_prefer(rvi_learner *l, const char *question, const char *chosen,
                             const char *rejected, rv_adaptation *out, rv_error *err)
{
    *out = (rv_adaptation){.loop = RV_LOOP_DEEP, .quality_delta = NAN};
    rvi_feedback f = rvi_feedback_new(RVI_FEEDBACK_CORRECTION);
    f.user = text_of(l->user);
    f.question = text_of(question);
    f.corrected = text_of(chosen);
    f.given = text_of(rejected);
    f.note = text_of("preference");
    rv_status st = rvi_feedback_append(&l->store, &f, err);
    if (st) return st;
    st = rvi_learner_add_pair(l, f.seq, question, chosen, rejected, err);
    if (!st) st = rvi_learner_follow(l, err);
    if (st) return st;
    out->applied = 1;
    out->event = f.seq;
    snprintf(out->notes, sizeof out->notes, "kept for the next deep run");
    return RV_OK;
}

rv_status rvi_learner_note(rvi_learner *l, rvi_done_kind kind, uint64_t event, size_t dislike,
                           rv_error *err)
{
    rvi_done *d = rvi_learner_room((void **)&l->done, l->n_done, &l->cap_done, sizeof *d);
    if (!d) return rvi_nomem(err, "events");
    *d = (rvi_done){kind, event, dislike};
    l->n_done++;
    return RV_OK;
}

/* What the correction had put in the place of others makes room for them again. */
void rvi_learner_take_back(rvi_learner *l, uint64_t event, uint64_t by, rv_adaptation *out)
{
    for (size_t i = 0; i < l->n_lessons; i++) {
        rvi_lesson *x = &l->lessons[i];
        if (x->event == event && x->stands) {
            x->stands = false;
            x->ended_by = by;
            out->applied = 1;
            snprintf(out->notes, sizeof out->notes, "no longer: %s", x->fact->sentence);
        } else if (x->ended_by == event) {
            x->stands = true;
            x->ended_by = 0;
        }
    }
}

rv_status rvi_learner_undo(rvi_learner *l, rv_adaptation *out, rv_error *err)
{
    *out = (rv_adaptation){.loop = RV_LOOP_INSTANT, .quality_delta = NAN};
    if (!l->n_done) {
        snprintf(out->notes, sizeof out->notes, "there is nothing to take back");
        return RV_OK;
    }
    rvi_done d = l->done[l->n_done - 1];
    rvi_feedback f = rvi_feedback_new(RVI_FEEDBACK_UNDO);
    f.user = text_of(l->user);
    f.target = d.event;
    rv_status st = rvi_feedback_append(&l->store, &f, err);
    if (st) return st;
    l->n_done--;
    out->event = f.seq;
    if (d.kind == RVI_DID_CORRECT) {
        rvi_learner_take_back(l, d.event, f.seq, out);
        st = make_gate(l, err);
        return st ? st : rvi_learner_follow(l, err);
    }
    out->applied = rvi_instant_undo(l, &d, err);
    snprintf(out->notes, sizeof out->notes, "%s",
             out->applied ? "the last judgement is taken back" : "it had changed nothing");
    return rvi_learner_follow(l, err);
}

rv_status rvi_learner_drop(rvi_learner *l, const char *text, uint64_t by, rv_adaptation *out,
                           rv_error *err)
{
    rv_status st = RV_OK;
    for (size_t i = 0; !st && i < l->n_lessons; i++) {
        rvi_lesson *x = &l->lessons[i];
        bool in = false;
        if (!x->stands) continue;
        st = rvi_words_contain(&in, x->fact->question, strlen(x->fact->question), text,
                               strlen(text), err);
        if (!st && !in)
            st = rvi_words_contain(&in, x->fact->sentence, strlen(x->fact->sentence), text,
                                   strlen(text), err);
        if (!in) continue;
        x->stands = false;
        x->ended_by = by;
        out->samples_used++;
    }
    if (!st) rvi_learner_drop_pairs(l, text);
    return st;
}

rv_status rvi_learner_forget(rvi_learner *l, const char *text, rv_adaptation *out, rv_error *err)
{
    *out = (rv_adaptation){.loop = RV_LOOP_INSTANT, .quality_delta = NAN};
    rvi_feedback f = rvi_feedback_new(RVI_FEEDBACK_FORGET);
    f.user = text_of(l->user);
    f.note = text_of(text);
    rv_status st = rvi_feedback_append(&l->store, &f, err);
    if (!st) st = rvi_learner_drop(l, text, f.seq, out, err);
    out->applied = out->samples_used > 0;
    out->event = f.seq;
    snprintf(out->notes, sizeof out->notes, "%d forgotten", out->samples_used);
    if (!st) st = make_gate(l, err);
    return st ? st : rvi_learner_follow(l, err);
}

/* ---- what takes part ---- */

const rvi_generation *rvi_learner_generation(const rvi_learner *l, int number)
{
    for (size_t i = l->n_generations; i-- > 0;)
        if (l->generations[i].number == number || !number) return &l->generations[i];
    return NULL;
}

/* Does this generation take part where the subject of `named` lessons stands? */
static bool takes_part(const rvi_learner *l, const rvi_generation *g, const bool *named)
{
    if (!g->active) return false;
    if (!g->gated || l->o.no_gate) return true;
    for (size_t i = 0; i < l->n_lessons; i++)
        if (named[i] && (l->lessons[i].generation == g->number ||
                         (g->origin == RVI_FROM_SHARED && l->lessons[i].generation)))
            return true;
    return false;
}

/* Of the lessons about the subjects that were hit: the one that is asked for, or -1. */
static rv_status pick_lesson(rvi_learner *l, const rvi_gate_hit *hit, const char *turn, int *out,
                             rv_error *err)
{
    float *features = NULL;
    rv_status st = RV_OK;
    *out = -1;
    if (rvi_gate_calibrated(l->gate)) {
        rvi_gate_text text = {turn, strlen(turn), hit->masks, hit->n_masks};
        features = rvi_alloc_array((size_t)rvi_features_dim(l->features), sizeof *features);
        if (!features) return rvi_nomem(err, "features");
        st = rvi_features_read(l->features, &text, 1, features, err);
    }
    float tau = l->o.strict_gate ? RVI_GATE_TAU_STRICT : RVI_GATE_TAU;
    if (!st) *out = rvi_gate_pick(l->gate, hit, features, tau);
    rvi_free(features);
    return st;
}

/* Which lessons are about what the request names, and which one it asks for. */
static rv_status open_gate(rvi_learner *l, const char *const *turns, size_t n_turns, bool *named,
                           rvi_plan *out, rv_error *err)
{
    rvi_gate_hit hit = {0};
    int picked = -1;
    const char *last = turns[n_turns - 1];
    for (size_t i = 0; i < l->n_lessons; i++) {
        const rvi_lesson *x = &l->lessons[i];
        if (!x->stands || x->fact->kind != RVI_FACT_FREE ||
            !rvi_learner_same_words(last, x->fact->question))
            continue;
        named[i] = true;
        out->subject = out->lesson = x;
    }
    if (!l->gate) return RV_OK;
    rvi_turn *given = rvi_alloc_array(n_turns, sizeof *given);
    if (!given) return rvi_nomem(err, "turns");
    for (size_t i = 0; i < n_turns; i++) given[i] = (rvi_turn){turns[i], strlen(turns[i]), true};
    rv_status st = rvi_gate_words(l->gate, given, n_turns, &hit, err);
    rvi_free(given);
    if (st || !hit.n) return st;
    for (size_t i = 0; i < l->n_gate; i++) {
        if (!rvi_gate_about(l->gate, &hit, i)) continue;
        named[l->gate_lessons[i]] = true;
        out->subject = &l->lessons[l->gate_lessons[i]];
    }
    if (!l->o.no_slots) st = pick_lesson(l, &hit, last, &picked, err);
    if (picked >= 0) out->lesson = &l->lessons[l->gate_lessons[picked]];
    return st;
}

rv_status rvi_learner_plan(rvi_learner *l, const char *const *turns, size_t n_turns, rvi_plan *out,
                           rv_error *err)
{
    const rvi_adapter *adapters[MAX_ADAPTERS];
    int n = 0;
    *out = (rvi_plan){0};
    bool *named = rvi_zalloc_array(l->n_lessons + 1, sizeof *named);
    rv_status st = named ? RV_OK : rvi_nomem(err, "gate");
    if (!st && n_turns) st = open_gate(l, turns, n_turns, named, out, err);
    if (out->lesson && (l->o.no_slots || rvi_learner_rests(l, out->lesson))) out->lesson = NULL;
    for (size_t i = 0; !st && i < l->n_generations && n < MAX_ADAPTERS; i++)
        if (takes_part(l, &l->generations[i], named)) adapters[n++] = l->generations[i].adapter;
    if (!st)
        n += rvi_instant_adapters(l, n_turns ? turns[n_turns - 1] : "", adapters + n,
                                  MAX_ADAPTERS - n);
    if (!st) st = set_of(l, adapters, n, &out->adapters, err);
    rvi_free(named);
    return st;
}

rv_status rvi_learner_all(rvi_learner *l, rvi_made_set **out, rv_error *err)
{
    const rvi_adapter *adapters[MAX_ADAPTERS];
    int n = 0;
    for (size_t i = 0; i < l->n_generations && n < MAX_ADAPTERS; i++)
        if (l->generations[i].active) adapters[n++] = l->generations[i].adapter;
    n += rvi_instant_adapters(l, NULL, adapters + n, MAX_ADAPTERS - n);
    return set_of(l, adapters, n, out, err);
}

/* ---- generations ---- */

static const char *const origin_names[] = {[RVI_FROM_GROUP] = "R7",
                                           [RVI_FROM_SHARED] = "shared",
                                           [RVI_FROM_PAIRS] = "preferences",
                                           [RVI_FROM_FILE] = "import",
                                           [RVI_FROM_MERGE] = "merge"};

const char *rvi_recipe_name(const rvi_generation *g)
{
    if (g->origin == RVI_FROM_GROUP && g->recipe == RV_RECIPE_FENCED) return "R1";
    return origin_names[g->origin];
}

void rvi_recipe_read(rvi_generation *g, rvi_text name)
{
    g->origin = RVI_FROM_GROUP;
    for (size_t i = 0; i < RVI_COUNT(origin_names); i++)
        if (strlen(origin_names[i]) == name.len && !memcmp(origin_names[i], name.data, name.len))
            g->origin = (rvi_origin)i;
    g->recipe = name.len == 2 && name.data[1] == '1' ? RV_RECIPE_FENCED : RV_RECIPE_GATED;
    g->gated = (g->origin == RVI_FROM_GROUP && g->recipe == RV_RECIPE_GATED) ||
               g->origin == RVI_FROM_SHARED || g->origin == RVI_FROM_MERGE;
}

rv_status rvi_learner_add_generation(rvi_learner *l, const rvi_generation *g, rv_error *err)
{
    rvi_generation *x = rvi_learner_room((void **)&l->generations, l->n_generations,
                                         &l->cap_generations, sizeof *x);
    if (!x) return rvi_nomem(err, "generations");
    *x = *g;
    l->n_generations++;
    return RV_OK;
}

int rvi_learner_next_number(const rvi_learner *l)
{
    return l->n_generations ? l->generations[l->n_generations - 1].number + 1 : 1;
}

rv_status rvi_learner_publish(rvi_learner *l, rvi_generation *g, uint64_t *event, rv_error *err)
{
    char digest[RVI_SHA256_HEX];
    rv_status st = rvi_adapter_digest(g->adapter, digest, err);
    return st ? st : rvi_learner_publish_made(l, g, digest, NULL, event, err);
}

rv_status rvi_learner_publish_made(rvi_learner *l, rvi_generation *g, const char *digest,
                                   const char *file, uint64_t *event, rv_error *err)
{
    rvi_feedback f = rvi_feedback_new(g->origin == RVI_FROM_FILE    ? RVI_FEEDBACK_IMPORT
                                      : g->origin == RVI_FROM_MERGE ? RVI_FEEDBACK_MERGE
                                                                    : RVI_FEEDBACK_PUBLISH);
    int number = rvi_learner_next_number(l);
    bool fits = g->number == number;
    g->number = number;
    f.user = text_of(l->user);
    f.generation = (uint64_t)g->number;
    f.first = g->first;
    f.last = g->last;
    f.seed = l->o.seed;
    f.recipe = text_of(rvi_recipe_name(g));
    f.target = g->known;
    if (l->deep && g->known) f.note = text_of(l->deep);
    f.n_parents = g->n_parents;
    for (size_t i = 0; i < g->n_parents; i++) f.parents[i] = (uint64_t)g->parents[i];
    memcpy(f.digest, digest, sizeof f.digest);
    rv_status st = file && fits ? rvi_learner_move_generation(l, file, g, err)
                                : rvi_learner_save_generation(l, g, err);
    if (!st) st = rvi_learner_add_generation(l, g, err);
    if (st) return st;
    if ((st = rvi_feedback_append(&l->store, &f, err)))
        l->n_generations--;
    else if (event)
        *event = f.seq;
    return st;
}

/* A copy of what is in theta now becomes a generation. */
static rv_status publish(rvi_learner *l, const rvi_params *theta, rvi_origin origin, uint64_t first,
                         uint64_t last, const rvi_study_result *figures, int *number, rv_error *err)
{
    rvi_generation g = {.origin = origin,
                        .recipe = l->o.recipe,
                        .gated = origin != RVI_FROM_PAIRS && l->o.recipe == RV_RECIPE_GATED,
                        .active = true,
                        .first = first,
                        .last = last,
                        .figures = *figures};
    rv_status st = rvi_feedback_count(&l->store, &g.known, err);
    if (!st) st = rvi_adapter_copy(&g.adapter, theta->adapter, err);
    if (!st) st = rvi_learner_publish(l, &g, NULL, err);
    if (st) rvi_adapter_free(g.adapter);
    *number = g.number;
    return st;
}

rvi_study_options rvi_learner_study_options(const rvi_learner *l)
{
    return (rvi_study_options){.recipe = l->o.recipe,
                               .rank = l->o.rank,
                               .alpha = l->o.alpha,
                               .rate = l->o.learning_rate,
                               .n_steps = l->o.n_steps,
                               .beta = l->o.kl_weight,
                               .rehearsal = l->o.rehearsal,
                               .ewc = l->o.ewc_lambda,
                               .decay = l->o.fisher_decay,
                               .random = l->o.random_gradient != 0,
                               .seed = l->o.seed,
                               .deep = l->deep != NULL,
                               .dir = l->dir,
                               .model = l->digest};
}

static rv_status study_waiting(rvi_learner *l, rvi_study_progress_fn progress, void *ctx,
                               rv_adaptation *out, rv_error *err)
{
    rv_status st = RV_OK;
    for (bool more = true; !st && more;) {
        rvi_round r;
        bool published = false;
        st = rvi_round_take(&r, l, err);
        more = !st && r.n_waiting;
        if (more) st = rvi_round_train(&r, l, &l->voice, progress, ctx, err);
        if (!st && more) st = rvi_round_publish(&r, l, &published, err);
        if (published) {
            out->applied = 1;
            out->samples_used += (int)r.n_waiting;
            out->generation = r.made.number;
        }
        rvi_round_deinit(&r, l);
    }
    return st;
}

rv_status rvi_learner_study_pairs(rvi_learner *l, rv_preference_loss loss,
                                  rvi_study_progress_fn progress, void *ctx, rv_adaptation *out,
                                  rv_error *err)
{
    enum { LEAST = 4 };
    rvi_study_options o = rvi_learner_study_options(l);
    rvi_params *theta = NULL;
    rvi_study_result figures;
    int number = 0;
    rvi_pair *pairs = rvi_alloc_array(l->n_pairs + l->n_lessons + 1, sizeof *pairs);
    if (!pairs) return rvi_nomem(err, "pairs");
    uint64_t first, last;
    size_t n = rvi_learner_gather_pairs(l, pairs, &first, &last);
    rv_status st = RV_OK;
    if (n >= LEAST) {
        st = rvi_learner_need_ground(l, &l->voice, progress, ctx, err);
        if (!st)
            st = rvi_study_pairs(&theta, &l->ground, pairs, n, loss, &o, &figures, progress, ctx,
                                 err);
        if (!st) st = publish(l, theta, RVI_FROM_PAIRS, first, last, &figures, &number, err);
        if (!st) {
            rvi_learner_use_pairs(l, first, last);
            out->applied = 1;
            out->samples_used += (int)n;
            out->generation = number;
        }
    }
    rvi_params_free(theta);
    rvi_free(pairs);
    return st;
}

rv_status rvi_learner_consolidate(rvi_learner *l, rv_learn_loop loop, rv_preference_loss loss,
                                  rvi_study_progress_fn progress, void *ctx, rv_adaptation *out,
                                  rv_error *err)
{
    double start = rvi_os_seconds();
    *out = (rv_adaptation){.loop = loop, .quality_delta = NAN};
    size_t before = l->n_generations;
    rv_status st = rvi_learner_calibrate(l, progress, ctx, err);
    l->deep = loop != RV_LOOP_DEEP ? NULL : loss == RV_LOSS_KTO ? "kto" : "dpo";
    if (!st) st = study_waiting(l, progress, ctx, out, err);
    if (!st && loop == RV_LOOP_DEEP) st = rvi_learner_study_pairs(l, loss, progress, ctx, out, err);
    l->deep = NULL;
    rvi_learner_report(l, before, out);
    if (!st) st = rvi_learner_absorb(l, err);
    if (!st && loop == RV_LOOP_DEEP) st = rvi_bank_consolidate(l->bank, NULL, err);
    out->latency_us = (rvi_os_seconds() - start) * 1e6;
    if (!st && !out->applied) snprintf(out->notes, sizeof out->notes, "nothing waits");
    return st;
}

rv_status rvi_learner_rollback(rvi_learner *l, int generation, rv_adaptation *out, rv_error *err)
{
    *out = (rv_adaptation){.loop = RV_LOOP_BACKGROUND, .quality_delta = NAN};
    if (generation && !rvi_learner_generation(l, generation))
        return rvi_error(err, RV_E_NOT_FOUND, "there is no generation %d", generation);
    rvi_feedback f = rvi_feedback_new(RVI_FEEDBACK_ROLLBACK);
    f.user = text_of(l->user);
    f.generation = (uint64_t)generation;
    rv_status st = rvi_feedback_append(&l->store, &f, err);
    if (st) return st;
    for (size_t i = 0; i < l->n_generations; i++)
        if (l->generations[i].number > generation) l->generations[i].active = false;
    st = rvi_bank_release(l->bank, (uint64_t)generation, err);
    if (!st) st = rvi_shared_restore(l, err);
    if (st) return st;
    out->applied = 1;
    out->event = f.seq;
    out->generation = generation;
    return RV_OK;
}

/* ---- looking ---- */

rv_status rvi_learner_probe(rvi_learner *l, double *kl, rv_error *err)
{
    rvi_made_set *all = NULL;
    *kl = 0;
    rv_status st = rvi_learner_all(l, &all, err);
    if (!st && all && !l->calibrated) st = rvi_learner_calibrate(l, NULL, NULL, err);
    if (!st && all) st = rvi_drift(&l->replay, &l->voice, rvi_made_set_of(all), kl, err);
    rvi_learner_release(l, all);
    return st;
}

static void put_text(rvi_buf *out, const char *key, const char *s)
{
    (void)rvi_buf_printf(out, "\"%s\":", key);
    (void)rvi_json_write_string(out, s, strlen(s));
}

rv_status rvi_learner_status(rvi_learner *l, rvi_buf *out, rv_error *err)
{
    size_t waiting = rvi_learner_waiting(l), standing = 0;
    for (size_t i = 0; i < l->n_lessons; i++) standing += l->lessons[i].stands;
    (void)rvi_buf_printf(out, "{");
    put_text(out, "user", l->user);
    (void)rvi_buf_putc(out, ',');
    put_text(out, "model", l->digest);
    (void)rvi_buf_printf(out, ",\"calibrated\":%s,\"lessons\":%zu,\"waiting\":%zu",
                         l->calibrated ? "true" : "false", standing, waiting);
    const char *doing = atomic_load(&l->doing);
    (void)rvi_buf_putc(out, ',');
    put_text(out, "background", doing ? doing : "off");
    if (l->trouble[0]) {
        (void)rvi_buf_putc(out, ',');
        put_text(out, "background_error", l->trouble);
    }
    (void)rvi_buf_putc(out, ',');
    rvi_learner_count_patterns(l, out);
    (void)rvi_buf_printf(out, ",\"generations\":[");
    for (size_t i = 0; i < l->n_generations; i++) {
        const rvi_generation *g = &l->generations[i];
        (void)rvi_buf_printf(out, "%s{\"number\":%d,\"active\":%s,\"gated\":%s", i ? "," : "",
                             g->number, g->active ? "true" : "false", g->gated ? "true" : "false");
        if (g->figures.n_steps)
            (void)rvi_buf_printf(out,
                                 ",\"steps\":%d,\"loss\":%.5f,\"kl\":%.5f,\"probe_kl\":%.5f,"
                                 "\"seconds\":%.2f,\"rows\":%llu",
                                 g->figures.n_steps, g->figures.ce, g->figures.kl,
                                 g->figures.probe_kl, g->figures.seconds,
                                 (unsigned long long)g->figures.n_rows);
        (void)rvi_buf_putc(out, '}');
    }
    (void)rvi_buf_printf(out, "],\"learned\":[");
    bool first = true;
    for (size_t i = 0; i < l->n_lessons; i++) {
        const rvi_lesson *x = &l->lessons[i];
        if (!x->stands) continue;
        (void)rvi_buf_printf(out, "%s{\"event\":%llu,", first ? "" : ",",
                             (unsigned long long)x->event);
        first = false;
        put_text(out, "question", x->fact->question);
        (void)rvi_buf_putc(out, ',');
        put_text(out, "sentence", x->fact->sentence);
        (void)rvi_buf_printf(out, ",\"generation\":%d,\"absorbed\":%s}", x->generation,
                             x->absorbed ? "true" : "false");
    }
    (void)rvi_buf_printf(out, "]}");
    return out->failed ? rvi_nomem(err, "status") : RV_OK;
}
