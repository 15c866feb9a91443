/* Learners: argument checks, and what a session needs of them. */
#include <math.h>
#include <string.h>

#include "api/api.h"
#include "base/json.h"

static const rv_learner_options defaults = {.size = sizeof defaults,
                                            .recipe = RV_RECIPE_GATED,
                                            .group_size = 20,
                                            .rank = 8,
                                            .alpha = 16,
                                            .learning_rate = 2e-3f,
                                            .ewc_lambda = 0.01f,
                                            .fisher_decay = 0.95f,
                                            .rehearsal = 0.5f,
                                            .kl_weight = -1,
                                            .micro_rank = 4,
                                            .micro_kl_step = 0.03f,
                                            .background_min_samples = 1,
                                            .deep_min_pairs = 32,
                                            .deep_idle_seconds = 60};

void rv_learner_options_init(rv_learner_options *o, size_t size)
{
    rvi_api_init_options(o, size, &defaults, sizeof defaults);
}

/* ---- lifetimes ---- */

static rv_status check_options(const rv_learner_options *o, rv_error *err)
{
    if (o->rank < 1 || o->rank > 256)
        return rvi_error(err, RV_E_CONFIG, "rank %d: 1 to 256 are possible", o->rank);
    if (o->group_size < 1 || o->group_size > 1000)
        return rvi_error(err, RV_E_CONFIG, "groups of %d: 1 to 1000 are possible", o->group_size);
    if (o->deep_min_pairs < 0 || o->deep_idle_seconds < 0)
        return rvi_error(err, RV_E_CONFIG, "when to run deep: %d pairs, %d seconds",
                         o->deep_min_pairs, o->deep_idle_seconds);
    if (o->n_steps < 0 || o->n_steps > 1000000)
        return rvi_error(err, RV_E_CONFIG, "%d steps are not possible", o->n_steps);
    if (!(o->learning_rate > 0) || !(o->learning_rate <= 1))
        return rvi_error(err, RV_E_CONFIG, "learning_rate must be above 0 and at most 1");
    if (!isfinite(o->alpha) || !isfinite(o->kl_weight) || !(o->ewc_lambda >= 0) ||
        !(o->fisher_decay >= 0) || !(o->rehearsal >= 0) || !(o->rehearsal < 1))
        return rvi_error(err, RV_E_CONFIG, "an option of the learner is out of its range");
    if (o->recipe != RV_RECIPE_GATED && o->recipe != RV_RECIPE_FENCED)
        return rvi_error(err, RV_E_CONFIG, "recipe %d is none", (int)o->recipe);
    if (o->store && (!o->store->append || !o->store->put || !o->store->get || !o->store->remove ||
                     !o->store->scan || !o->store->read || !o->store->begin || !o->store->commit ||
                     !o->store->rollback))
        return rvi_error(err, RV_E_CONFIG, "the store lacks a function");
    return RV_OK;
}

static uint64_t new_serial(void *ctx)
{
    rv_runtime *rt = ctx;
    return atomic_fetch_add(&rt->n_sets, 1) + 1;
}

rv_status rv_learner_new(rv_learner **out, const rv_model *m, const rv_learner_options *given,
                         rv_error *err)
{
    if (!out) return rvi_error(err, RV_E_INVALID, "rv_learner_new: NULL argument");
    *out = NULL;
    rv_learner_options o = defaults;
    rv_status st = rvi_api_need_decoder(m, err);
    if (!st) st = rvi_api_read_options(&o, sizeof o, given, "rv_learner_options", err);
    if (!st) st = check_options(&o, err);
    rvi_api_turn turn;
    if (!st) st = rvi_api_enter(&turn, m->rt, err);
    if (st) return st;
    rv_learner *l = rvi_zalloc(sizeof *l);
    if (l) {
        atomic_init(&l->users, 1);
        atomic_init(&l->bg.stop, false);
        atomic_init(&l->bg.closed, false);
        atomic_flag_clear(&l->bg.switching);
        l->m = rvi_api_retain_model(m);
        rvi_store store = {0};
        if (o.store) store.by = *o.store; /* closed by the caller */
        rvi_learner_parts parts = {.m = m->model,
                                   .t = m->tokenizer,
                                   .chat = m->chat,
                                   .eos = &m->eos,
                                   .be = m->rt->be,
                                   .new_serial = new_serial,
                                   .serial_ctx = m->rt};
        st = rvi_learner_new(&l->l, &parts, &o, &store, err);
    } else {
        st = rvi_nomem(err, "learner");
    }
    rvi_api_leave(&turn);
    if (st)
        rv_learner_free(&l);
    else
        *out = l;
    return st;
}

rv_learner *rvi_api_retain_learner(rv_learner *l)
{
    if (l) atomic_fetch_add(&l->users, 1);
    return l;
}

void rvi_api_release_learner(rv_learner *l)
{
    if (!l || atomic_fetch_sub(&l->users, 1) != 1) return;
    rv_model *m = l->m;
    rvi_background_deinit(l);
    rvi_learner_free(l->l);
    rvi_free(l);
    rvi_api_release_model(m);
}

void rvi_api_note_answer(rv_session *s)
{
    rv_learner *l = s->learner;
    if (!l || !s->capture || !s->question || !rvi_learner_is_attended(l->l) ||
        !rvi_learner_foresees(l->l))
        return;
    rvi_api_forget_answer(s);
    l->answered[l->next_answered++ % RVI_FORESEEN] = s;
    rvi_background_ring(l);
}

void rvi_api_forget_answer(rv_session *s)
{
    for (size_t i = 0; s->learner && i < RVI_FORESEEN; i++)
        if (s->learner->answered[i] == s) s->learner->answered[i] = NULL;
}

void rvi_api_leave_learner(rv_learner *l, rvi_made_set *held, rvi_capture *capture)
{
    if (!l) return;
    if (capture) rvi_instant_forsake(l->l, capture);
    rvi_learner_release(l->l, held);
    rvi_capture_free(capture);
    rvi_api_release_learner(l);
}

void rv_learner_free(rv_learner **l)
{
    rvi_api_turn turn;
    if (!l || !*l) return;
    atomic_store(&(*l)->bg.closed, true);
    (void)rvi_background_stop(*l);
    /* Sessions may keep it for longer; whoever opens the same state again finds all of it. */
    if ((*l)->l && rvi_api_enter(&turn, (*l)->m->rt, NULL) == RV_OK) {
        rvi_learner_settle((*l)->l);
        rvi_api_leave(&turn);
    }
    rvi_api_release_learner(*l);
    *l = NULL;
}

/* ---- calls ---- */

static rv_status enter(rvi_api_turn *turn, const rv_learner *l, const char *what, rv_error *err)
{
    if (!l) return rvi_error(err, RV_E_INVALID, "%s: NULL argument", what);
    return rvi_api_enter(turn, l->m->rt, err);
}

/* A call that reports what it changed: to the caller's place, or to one that nobody reads. */
typedef struct reporting {
    rvi_api_turn turn;
    rv_adaptation unread;
} reporting;

/* given: no argument that is needed is NULL. */
static rv_status enter_reporting(reporting *r, const rv_learner *l, const char *what, bool given,
                                 rv_adaptation **out, rv_error *err)
{
    if (!*out) *out = &r->unread;
    **out = (rv_adaptation){.quality_delta = NAN};
    return enter(&r->turn, given ? l : NULL, what, err);
}

/* For calls that train or forget everything: one of the two does, this one or the background
 * thread. A callback may free the learner meanwhile. */
typedef struct alone {
    rv_learner *l;
    rvi_api_turn turn;
    bool background;
} alone;

static rv_status enter_alone(alone *a, rv_learner *l, const char *what, rv_error *err)
{
    *a = (alone){.l = rvi_api_retain_learner(l), .background = l && rvi_background_stop(l)};
    rv_status st = enter(&a->turn, l, what, err);
    if (st) {
        rv_status again = a->background ? rvi_background_start(l, NULL) : RV_OK;
        (void)again; /* the first error counts; the status says that the thread is off */
        rvi_api_release_learner(l);
    }
    return st;
}

/* st, unless that was good and the background thread cannot go on. */
static rv_status leave_alone(alone *a, rv_status st, rv_error *err)
{
    rvi_api_leave(&a->turn);
    rv_status again = a->background ? rvi_background_start(a->l, st ? NULL : err) : RV_OK;
    rvi_api_release_learner(a->l);
    return st ? st : again;
}

rv_status rv_learner_start(rv_learner *l, rv_error *err)
{
    if (!l) return rvi_error(err, RV_E_INVALID, "rv_learner_start: NULL argument");
    return rvi_background_start(l, err);
}

void rv_learner_pause(rv_learner *l)
{
    if (l) (void)rvi_background_stop(l);
}

rv_status rv_learner_reset(rv_learner *l, rv_error *err)
{
    alone a;
    rv_status st = enter_alone(&a, l, "rv_learner_reset", err);
    if (st) return st;
    st = rvi_learner_reset(l->l, err);
    return leave_alone(&a, st, err);
}

rv_status rv_learner_calibrate(rv_learner *l, rv_learn_progress_fn progress, void *ctx,
                               rv_error *err)
{
    alone a;
    rv_status st = enter_alone(&a, l, "rv_learner_calibrate", err);
    if (st) return st;
    st = rvi_learner_calibrate(l->l, progress, ctx, err);
    return leave_alone(&a, st, err);
}

/* The texts of the user's turns, in the arena. */
static rv_status user_turns(const char *conversation, size_t len, rvi_arena *arena,
                            const char ***turns, size_t *n, rv_error *err)
{
    const rvi_json *root;
    rv_status st = rvi_json_parse(&root, conversation, len, arena, "conversation", err);
    if (st) return st;
    const rvi_json *messages = rvi_json_get(root, "messages");
    size_t count = rvi_json_count(messages);
    *n = 0;
    *turns = rvi_arena_alloc(arena, count + 1, sizeof **turns);
    if (!*turns) return rvi_nomem(err, "conversation");
    for (size_t i = 0; i < count; i++) {
        const rvi_json *m = rvi_json_at(messages, i), *content = rvi_json_get(m, "content");
        if (!rvi_json_is_string(rvi_json_get(m, "role"), "user")) continue;
        if (rvi_json_is(content, RVI_JSON_ARRAY)) { /* text parts, joined */
            rvi_buf text = {0};
            for (size_t k = 0; k < rvi_json_count(content); k++) {
                const rvi_json *part = rvi_json_get(rvi_json_at(content, k), "text");
                if (k) (void)rvi_buf_putc(&text, '\n');
                (void)rvi_buf_puts(&text, rvi_json_string(part, ""));
            }
            (*turns)[*n] = rvi_arena_strndup(arena, text.data ? text.data : "", text.len);
            rvi_buf_deinit(&text);
            if (!(*turns)[*n]) return rvi_nomem(err, "conversation");
        } else {
            (*turns)[*n] = rvi_json_string(content, "");
        }
        (*n)++;
    }
    return RV_OK;
}

static void copy_field(char *to, size_t size, const char *from)
{
    size_t len = strlen(from);
    if (len >= size) {
        len = size - 1;
        while (len && ((unsigned char)from[len] & 0xC0) == 0x80) len--;
    }
    memcpy(to, from, len);
    to[len] = 0;
}

/* busy is held */
static rv_status begin(rv_learner *l, rv_session *s, const char *conversation, size_t len,
                       rv_learn_plan *out, rv_error *err)
{
    enum { MOST = 64 << 20 };
    rvi_arena arena = {.max = MOST};
    const char **turns;
    size_t n;
    rvi_plan plan = {0};
    rv_status st = user_turns(conversation, len, &arena, &turns, &n, err);
    if (!st) st = rvi_learner_plan(l->l, turns, n, &plan, err);
    char *question = NULL;
    rvi_ids slot = {0};
    rvi_capture *capture = NULL;
    bool other = s->learner != l;
    if (!st && (other || !s->capture)) st = rvi_learner_capture(l->l, &capture, err);
    if (!st) {
        const char *last = n ? turns[n - 1] : "";
        question = rvi_alloc_array(strlen(last) + 1, 1);
        if (question)
            memcpy(question, last, strlen(last) + 1);
        else
            st = rvi_nomem(err, "question");
    }
    for (size_t i = 0; !st && plan.lesson && i < plan.lesson->spoken.len; i++)
        if (!rvi_ids_push(&slot, plan.lesson->spoken.data[i])) st = rvi_nomem(err, "slot");
    if (st) {
        rvi_free(question);
        rvi_ids_deinit(&slot);
        rvi_capture_free(capture);
        rvi_learner_release(l->l, plan.adapters);
    } else {
        rvi_api_forget_answer(s);
        if (other) {
            rvi_api_leave_learner(s->learner, s->held, s->capture);
            s->learner = rvi_api_retain_learner(l);
        } else {
            rvi_learner_release(l->l, s->held);
        }
        if (capture) s->s->capture = s->capture = capture;
        rvi_free(s->question);
        s->question = question;
        s->held = plan.adapters;
        s->s->adapters = plan.adapters ? rvi_made_set_of(plan.adapters)
                         : s->adapters ? &s->adapters->set
                                       : NULL;
        rvi_ids_deinit(&s->slot);
        s->slot = slot;
        s->begun = true;
    }
    if (!st && out) {
        const rvi_lesson *x = plan.lesson ? plan.lesson : plan.subject;
        out->gate_open = plan.subject != NULL;
        out->slot = plan.lesson != NULL;
        out->n_adapters = plan.adapters ? rvi_made_set_of(plan.adapters)->n : 0;
        if (x) {
            copy_field(out->subject, sizeof out->subject, x->fact->subject);
            copy_field(out->relation, sizeof out->relation, x->fact->relation);
            copy_field(out->answer, sizeof out->answer, x->fact->answer);
        }
    }
    rvi_arena_deinit(&arena);
    return st;
}

rv_status rv_learner_begin(rv_learner *l, rv_session *s, const char *conversation,
                           size_t conversation_len, rv_learn_plan *out, rv_error *err)
{
    rvi_api_turn turn;
    if (out) *out = (rv_learn_plan){0};
    if (!s || !conversation) return rvi_error(err, RV_E_INVALID, "rv_learner_begin: NULL argument");
    rv_status st = enter(&turn, l, "rv_learner_begin", err);
    if (st) return st;
    if (s->e->m != l->m)
        st = rvi_error(err, RV_E_INVALID, "the session is of another model");
    else if (s->s->answer)
        st = rvi_error(err, RV_E_SESSION, "the session has an answer that was not finished");
    else
        st = begin(l, s, conversation, conversation_len, out, err);
    rvi_api_leave(&turn);
    return st;
}

rv_status rv_learner_correct(rv_learner *l, rv_session *s, const char *question, const char *answer,
                             rv_adaptation *out, rv_error *err)
{
    rvi_buf given = {0}; /* what was answered */
    reporting r;
    rv_status st =
        enter_reporting(&r, l, "rv_learner_correct", answer && (s || question), &out, err);
    if (st) return st;
    if (!question && (s->learner != l || !s->question))
        st = rvi_error(err, RV_E_SONA, "nothing was asked on this session yet");
    else if (!question && s->capture)
        st = rvi_learner_given(l->l, s->capture, &given, err);
    if (!st)
        st = rvi_learner_correct(l->l, question ? question : s->question, answer,
                                 given.len ? given.data : NULL, out, err);
    rvi_buf_deinit(&given);
    rvi_api_leave(&r.turn);
    if (!st) rvi_background_ring(l);
    return st;
}

static rv_status need_answer(const rv_learner *l, const rv_session *s, rv_error *err)
{
    if (s->learner == l && s->capture && s->question) return RV_OK;
    return rvi_error(err, RV_E_SONA, "nothing was answered on this session that could be judged");
}

rv_status rv_learner_score(rv_learner *l, rv_session *s, double score, rv_adaptation *out,
                           rv_error *err)
{
    reporting r;
    rv_status st = enter_reporting(&r, l, "rv_learner_score", s, &out, err);
    if (st) return st;
    st = need_answer(l, s, err);
    if (!st) st = rvi_learner_score(l->l, s->capture, s->question, score, out, err);
    rvi_api_leave(&r.turn);
    if (!st) rvi_background_ring(l); /* it attends to the rest */
    return st;
}

rv_status rv_learner_thumb(rv_learner *l, rv_session *s, int up, rv_adaptation *out, rv_error *err)
{
    if (up) return rv_learner_score(l, s, 1, out, err);
    reporting r;
    rv_status st = enter_reporting(&r, l, "rv_learner_thumb", s, &out, err);
    if (st) return st;
    st = need_answer(l, s, err);
    if (!st) st = rvi_learner_thumb_down(l->l, s->capture, s->question, out, err);
    if (!st && s->spoke) {
        snprintf(out->notes, sizeof out->notes,
                 "the correction is no longer spoken where this is asked");
    }
    rvi_api_leave(&r.turn);
    if (!st) rvi_background_ring(l);
    return st;
}

rv_status rv_learner_prefer(rv_learner *l, const char *question, const char *chosen,
                            const char *rejected, rv_adaptation *out, rv_error *err)
{
    reporting r;
    rv_status st =
        enter_reporting(&r, l, "rv_learner_prefer", question && chosen && rejected, &out, err);
    if (st) return st;
    st = rvi_learner_prefer(l->l, question, chosen, rejected, out, err);
    rvi_api_leave(&r.turn);
    if (!st) rvi_background_ring(l);
    return st;
}

rv_status rv_learner_undo(rv_learner *l, rv_adaptation *out, rv_error *err)
{
    reporting r;
    rv_status st = enter_reporting(&r, l, "rv_learner_undo", true, &out, err);
    if (st) return st;
    st = rvi_learner_undo(l->l, out, err);
    rvi_api_leave(&r.turn);
    if (!st) rvi_background_ring(l); /* what it had replaced may wait again */
    return st;
}

rv_status rv_learner_forget(rv_learner *l, const char *text, rv_adaptation *out, rv_error *err)
{
    reporting r;
    rv_status st = enter_reporting(&r, l, "rv_learner_forget", text, &out, err);
    if (st) return st;
    st = rvi_learner_forget(l->l, text, out, err);
    rvi_api_leave(&r.turn);
    if (!st) rvi_background_ring(l);
    return st;
}

rv_status rv_learner_consolidate(rv_learner *l, rv_learn_loop loop, rv_preference_loss loss,
                                 rv_learn_progress_fn progress, void *ctx, rv_adaptation *out,
                                 rv_error *err)
{
    rv_adaptation own;
    alone a;
    if (!out) out = &own;
    *out = (rv_adaptation){.quality_delta = NAN};
    if (loop != RV_LOOP_BACKGROUND && loop != RV_LOOP_DEEP)
        return rvi_error(err, RV_E_INVALID, "consolidation is background or deep");
    rv_status st = enter_alone(&a, l, "rv_learner_consolidate", err);
    if (st) return st;
    st = rvi_learner_consolidate(l->l, loop, loss, progress, ctx, out, err);
    return leave_alone(&a, st, err);
}

rv_status rv_learner_rollback(rv_learner *l, int generation, rv_adaptation *out, rv_error *err)
{
    rv_adaptation unread;
    alone a; /* what is being trained may go on from what is rolled back */
    if (!out) out = &unread;
    *out = (rv_adaptation){.quality_delta = NAN};
    rv_status st = enter_alone(&a, l, "rv_learner_rollback", err);
    if (st) return st;
    st = rvi_learner_rollback(l->l, generation, out, err);
    return leave_alone(&a, st, err);
}

rv_status rv_learner_status(rv_learner *l, char **json, rv_error *err)
{
    rvi_api_turn turn;
    rvi_buf out = {0};
    if (!json) return rvi_error(err, RV_E_INVALID, "rv_learner_status: NULL argument");
    *json = NULL;
    rv_status st = enter(&turn, l, "rv_learner_status", err);
    if (st) return st;
    st = rvi_learner_status(l->l, &out, err);
    st = rvi_api_give_text_after(st, &out, json, NULL, err);
    rvi_api_leave(&turn);
    return st;
}

rv_status rv_learner_probe(rv_learner *l, double *kl, rv_error *err)
{
    alone a; /* it calibrates if nobody has yet */
    if (!kl) return rvi_error(err, RV_E_INVALID, "rv_learner_probe: NULL argument");
    rv_status st = enter_alone(&a, l, "rv_learner_probe", err);
    if (st) return st;
    st = rvi_learner_probe(l->l, kl, err);
    return leave_alone(&a, st, err);
}

rv_status rv_learner_adapters(rv_learner *l, rv_adapter_set **out, rv_error *err)
{
    rvi_api_turn turn;
    rvi_made_set *inner = NULL;
    if (!out) return rvi_error(err, RV_E_INVALID, "rv_learner_adapters: NULL argument");
    *out = NULL;
    rv_status st = enter(&turn, l, "rv_learner_adapters", err);
    if (st) return st;
    rv_adapter_set *set = rvi_zalloc(sizeof *set);
    st = set ? rvi_learner_all(l->l, &inner, err) : rvi_nomem(err, "adapters");
    if (!st) {
        atomic_init(&set->users, 1);
        set->m = rvi_api_retain_model(l->m);
        set->learner = rvi_api_retain_learner(l);
        set->held = inner;
        if (inner) set->set = *rvi_made_set_of(inner);
        *out = set;
    } else {
        rvi_free(set);
    }
    rvi_api_leave(&turn);
    return st;
}

rv_status rv_learner_verify_log(rv_learner *l, uint64_t *n, rv_error *err)
{
    rvi_api_turn turn;
    rvi_feedback_report report;
    if (!n) return rvi_error(err, RV_E_INVALID, "rv_learner_verify_log: NULL argument");
    *n = 0;
    rv_status st = enter(&turn, l, "rv_learner_verify_log", err);
    if (st) return st;
    st = rvi_feedback_verify(&l->l->store, &report, err);
    if (!st) *n = report.n_events;
    if (!st && report.broken)
        st = rvi_error(err, RV_E_STORAGE, "record %llu of the log is broken: %s",
                       (unsigned long long)report.broken, report.why);
    rvi_api_leave(&turn);
    return st;
}

rv_status rv_learner_export(rv_learner *l, int generation, const char *path, int f16, rv_error *err)
{
    rvi_api_turn turn;
    if (!path) return rvi_error(err, RV_E_INVALID, "rv_learner_export: NULL argument");
    rv_status st = enter(&turn, l, "rv_learner_export", err);
    if (st) return st;
    const rvi_generation *g = rvi_learner_generation(l->l, generation);
    st = g ? rvi_learner_write(l->l, g, path, f16 != 0, err)
           : rvi_error(err, RV_E_NOT_FOUND, "there is no generation to export");
    rvi_api_leave(&turn);
    return st;
}

rv_status rv_learner_import(rv_learner *l, const char *path, rv_adaptation *out, rv_error *err)
{
    reporting r;
    rv_status st = enter_reporting(&r, l, "rv_learner_import", path, &out, err);
    if (st) return st;
    st = rvi_learner_import(l->l, path, out, err);
    rvi_api_leave(&r.turn);
    return st;
}

rv_status rv_learner_merge(rv_learner *l, int a, int b, rv_consolidation how, rv_adaptation *out,
                           rv_error *err)
{
    reporting r;
    rv_status st = enter_reporting(&r, l, "rv_learner_merge", true, &out, err);
    if (st) return st;
    st = rvi_learner_merge(l->l, a, b, how, out, err);
    rvi_api_leave(&r.turn);
    return st;
}
