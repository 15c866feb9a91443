/* Learners: argument checks, and what a session needs of them. */
#include <math.h>
#include <string.h>

#include "api/api.h"
#include "base/json.h"
#include "learn/journal/text.h"
#include "learn/recognise/follow.h"

/* ---- lifetimes ---- */

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
    rvi_learner_options o;
    rv_store by = {0}; /* closed by the caller */
    const rv_model *embedder = NULL;
    rv_status st = rvi_api_need_decoder(m, err);
    if (!st) st = rvi_api_read_learner_options(&o, &by, &embedder, given, err);
    if (!st && embedder && embedder->rt != m->rt)
        st = rvi_error(err, RV_E_CONFIG, "embedder: it was opened on another runtime");
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
        if (embedder) l->embedder = rvi_api_retain_model(embedder);
        rvi_store store = {.by = by};
        rvi_learner_parts parts = {.m = m->model,
                                   .t = m->tokenizer,
                                   .chat = m->chat,
                                   .eos = &m->eos,
                                   .embedder = embedder ? embedder->model : NULL,
                                   .embedder_t = embedder ? embedder->tokenizer : NULL,
                                   .be = m->model->be,
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
    rv_model *m = l->m, *embedder = l->embedder;
    rvi_background_deinit(l);
    rvi_learner_free(l->l);
    rvi_free(l);
    if (embedder) rvi_api_release_model(embedder);
    rvi_api_release_model(m);
}

void rvi_api_leave_learner(rv_learner *l, rvi_made_set *held, rvi_capture *capture)
{
    if (!l) return;
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
        rvi_learner_flush((*l)->l);
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

/* given: no argument that is needed is NULL. */
static rv_status enter_reporting(rvi_api_turn *turn, const rv_learner *l, const char *what,
                                 bool given, rvi_adaptation *r, rv_adaptation **out, rv_error *err)
{
    if (out) *out = NULL;
    *r = (rvi_adaptation){.quality_delta = NAN};
    return enter(turn, given ? l : NULL, what, err);
}

/* Leaves, after st; what changed goes to the caller, who may not want to know. */
static rv_status leave_reporting(rvi_api_turn *turn, rv_learner *l, rv_status st,
                                 const rvi_adaptation *r, rv_adaptation **out, rv_error *err)
{
    if (!st && out) st = rvi_api_give_adaptation(r, out, err);
    rvi_learner_yield(l->l);
    rvi_api_leave(turn);
    if (!st) rvi_background_wake(l);
    return st;
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
    rvi_learner_yield(a->l->l);
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

rv_status rv_learner_set_paused(rv_learner *l, int paused, rv_error *err)
{
    rvi_api_turn turn;
    rv_status st = enter(&turn, l, "rv_learner_set_paused", err);
    if (st) return st;
    st = rvi_learner_set_paused(l->l, paused != 0, err);
    rvi_api_leave(&turn);
    rvi_background_wake(l);
    return st;
}

rv_status rv_learner_reset(rv_learner *l, rv_error *err)
{
    alone a;
    rv_status st = enter_alone(&a, l, "rv_learner_reset", err);
    if (st) return st;
    rvi_learner_reset(l->l);
    return leave_alone(&a, RV_OK, err);
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

enum {
    MOST_TURNS = 64 << 20, /* bytes of their texts */
    MOST_PIECES = 4096 /* what others begin meanwhile may undo a piece: at last it is done whole */
};

/* The texts of the user's turns, in the arena. */
static rv_status user_turns(const rvi_json *chat, rvi_arena *arena, const char ***turns, size_t *n,
                            rv_error *err)
{
    const rvi_json *messages = rvi_json_get(chat, "messages");
    size_t count = rvi_json_count(messages);
    *n = 0;
    *turns = rvi_arena_alloc(arena, count + 1, sizeof **turns);
    if (!*turns) return rvi_nomem(err, "chat");
    for (size_t i = 0; i < count; i++) {
        const rvi_json *m = rvi_json_at(messages, i);
        if (!rvi_api_message_is(m, "user")) continue;
        if (!((*turns)[*n] = rvi_api_message_text(m, arena))) return rvi_nomem(err, "chat");
        (*n)++;
    }
    return RV_OK;
}

static rv_status give_plan(const rv_learner *l, const rvi_plan *plan, rv_learn_plan **out,
                           rv_error *err)
{
    rvi_buf instructions = {0};
    rv_status st = rvi_learner_instructions(l->l, &instructions, err);
    if (!st) st = rvi_api_give_plan(plan, instructions.data ? instructions.data : "", out, err);
    rvi_buf_deinit(&instructions);
    return st;
}

/* What a correction of the answer to the last turn would be taught for; NULL: for that turn. */
static rv_status resolve(const char **turns, size_t n, char **out, rv_error *err)
{
    rvi_buf meant = {0};
    rv_status st = rvi_follow_resolve(turns, n - 1, turns[n - 1], &meant, err);
    if (!st && meant.len && !(*out = rvi_text_copy((rvi_text){meant.data, meant.len})))
        st = rvi_nomem(err, "question");
    rvi_buf_deinit(&meant);
    return st;
}

bool rvi_api_prepare_judging(const rv_learner *l, bool captures, bool scores)
{
    const rv_runtime *rt = l->m->rt;
    bool waited_for = rvi_api_is_serving(rt);
    l->l->instant.piece_seconds = waited_for ? 1e-9 * (double)atomic_load(&rt->token_ns) : 0;
    return rvi_instant_prepare(l->l, captures, scores);
}

bool rvi_api_prepare_learning(rv_learner *l, const rvi_json *chat, bool captures)
{
    rvi_arena arena = {.max = MOST_TURNS};
    const char **turns;
    size_t n;
    bool more = rvi_api_prepare_judging(l, captures, false);
    if (!more && !user_turns(chat, &arena, &turns, &n, NULL))
        more = rvi_learner_foresee(l->l, turns, n);
    rvi_arena_deinit(&arena);
    return more;
}

rv_status rvi_api_find_read(rv_learner *l, const rvi_json *chat, uint64_t *lesson, rv_error *err)
{
    rvi_arena arena = {.max = MOST_TURNS};
    const char **turns;
    size_t n;
    const rvi_lesson *x = NULL;
    *lesson = 0;
    if (!rvi_learner_reads(l->l)) return RV_OK;
    rv_status st = user_turns(chat, &arena, &turns, &n, err);
    if (!st) st = rvi_learner_find_read(l->l, turns, n, &x, err);
    if (x && !rvi_api_has_turn(chat, x, &arena)) *lesson = x->event;
    rvi_arena_deinit(&arena);
    return st;
}

/* busy is held */
rv_status rvi_api_begin_learning(rv_learner *l, rv_session *s, const rvi_json *chat,
                                 rv_learn_plan **out, rv_error *err)
{
    rvi_arena arena = {.max = MOST_TURNS};
    const char **turns;
    size_t n;
    rvi_plan plan = {0};
    bool news;
    rvi_learner_follow(l->l, &news);
    if (news) rvi_background_wake(l);
    rv_status st = user_turns(chat, &arena, &turns, &n, err);
    if (!st) st = rvi_learner_plan(l->l, turns, n, &plan, err);
    if (plan.read && rvi_api_has_turn(chat, plan.read, &arena))
        plan = (rvi_plan){.adapters = plan.adapters};
    rvi_learner_yield(l->l);
    char *question = NULL, *meant = NULL;
    rvi_ids slot = {0};
    rvi_capture *capture = NULL;
    bool other = s->learner != l;
    if (!st && !s->unjudged && (other || !s->capture))
        st = rvi_learner_capture(l->l, &capture, err);
    if (!st && !(question = rvi_text_copy(rvi_text_of(n ? turns[n - 1] : ""))))
        st = rvi_nomem(err, "question");
    if (!st && n > 1 && !s->unjudged) st = resolve(turns, n, &meant, err);
    for (size_t i = 0; !st && plan.lesson && i < plan.lesson->spoken.len; i++)
        if (!rvi_ids_push(&slot, plan.lesson->spoken.data[i])) st = rvi_nomem(err, "slot");
    if (!st && out) st = give_plan(l, &plan, out, err);
    if (!st && (st = rvi_api_compose(s, plan.adapters, err)) && out) {
        rvi_free(*out);
        *out = NULL;
    }
    if (st) {
        rvi_free(question);
        rvi_free(meant);
        rvi_ids_deinit(&slot);
        rvi_capture_free(capture);
        rvi_learner_release(l->l, plan.adapters);
    } else {
        if (other) {
            rvi_api_leave_learner(s->learner, s->held, s->capture);
            s->learner = rvi_api_retain_learner(l);
        } else {
            rvi_learner_release(l->l, s->held);
        }
        if (capture) s->s->capture = s->capture = capture;
        rvi_free(s->question);
        rvi_free(s->meant);
        s->question = question;
        s->meant = meant;
        s->held = plan.adapters;
        rvi_ids_deinit(&s->slot);
        s->slot = slot;
        s->lesson = plan.lesson ? plan.lesson->event : plan.read ? plan.read->event : 0;
        s->reads = plan.read != NULL;
        s->begun = true;
    }
    rvi_arena_deinit(&arena);
    return st;
}

/* Beside services, a piece in each turn. */
static void prepare_learning(rvi_api_turn *turn, rv_learner *l, const rvi_json *chat, bool captures)
{
    for (int i = 0; i < MOST_PIECES && rvi_api_is_serving(l->m->rt) &&
                    rvi_api_prepare_learning(l, chat, captures);
         i++)
        rvi_api_make_way(turn);
}

rv_status rv_learner_begin(rv_learner *l, rv_session *s, const rv_chat *given, rv_learn_plan **out,
                           rv_error *err)
{
    rvi_api_turn turn;
    if (out) *out = NULL;
    if (!s || !given) return rvi_error(err, RV_E_INVALID, "rv_learner_begin: NULL argument");
    rv_status st = enter(&turn, l, "rv_learner_begin", err);
    if (st) return st;
    rv_chat chat;
    rvi_arena arena = {.max = RVI_API_CHAT_BYTES};
    const rvi_json *json;
    if (s->e->m != l->m) st = rvi_error(err, RV_E_INVALID, "the session is of another model");
    if (!st) st = rvi_api_read_chat(&chat, &json, given, &arena, err);
    if (!st) prepare_learning(&turn, l, json, !s->unjudged);
    if (!st && s->s->answer) /* asked last: while others had their turns, one may have begun */
        st = rvi_error(err, RV_E_STATE, "the session has an answer that was not finished");
    if (!st) st = rvi_api_begin_learning(l, s, json, out, err);
    rvi_arena_deinit(&arena);
    rvi_api_leave(&turn);
    return st;
}

const char *rv_scope_name(rv_scope scope)
{
    return rvi_scope_name(scope);
}

/* The lesson that follows the session's last answer. */
static rv_status teach_last(rv_learner *l, const rv_session *s, rvi_correction t, rvi_adaptation *r,
                            rv_error *err)
{
    rvi_buf given = {0}; /* what was answered */
    rv_status st = RV_OK;
    if (s->learner != l || !s->question)
        st = rvi_error(err, RV_E_LEARNING, "nothing was asked on this session yet");
    else if (s->capture)
        st = rvi_learner_given(l->l, s->capture, &given, err);
    t.question = t.scope == RV_SCOPE_TOPIC && s->meant ? s->meant : s->question;
    if (given.len) t.rejected = given.data;
    const rvi_lesson *x = s->read ? rvi_lessons_find(&l->l->lessons, s->lesson) : NULL;
    bool worded = x && !strcmp(x->answer, t.answer); /* wrongly; it was the right lesson */
    if (s->spoke || (x && !worded)) t.spoken = s->lesson;
    if (!st) st = rvi_learner_teach(l->l, &t, r, err);
    rvi_buf_deinit(&given);
    return st;
}

rv_status rv_learner_teach(rv_learner *l, rv_session *s, const char *question, const char *text,
                           rv_scope scope, rv_adaptation **out, rv_error *err)
{
    rvi_api_turn turn;
    rvi_adaptation r;
    rvi_correction t = {.question = question, .answer = text, .scope = scope};
    if (scope == RV_SCOPE_ALWAYS && !question) t.question = "";
    rv_status st =
        enter_reporting(&turn, l, "rv_learner_teach", text && (s || t.question), &r, out, err);
    if (st) return st;
    st = t.question ? rvi_learner_teach(l->l, &t, &r, err) : teach_last(l, s, t, &r, err);
    return leave_reporting(&turn, l, st, &r, out, err);
}

rv_status rv_learner_tokenize(rv_learner *l, const rv_chat *given, int32_t **ids, size_t *n,
                              rv_error *err)
{
    rvi_api_turn turn;
    if (ids) *ids = NULL;
    if (n) *n = 0;
    if (!given || !ids || !n)
        return rvi_error(err, RV_E_INVALID, "rv_learner_tokenize: NULL argument");
    rv_status st = enter(&turn, l, "rv_learner_tokenize", err);
    if (st) return st;
    rv_chat chat;
    rvi_ids out = {0};
    rvi_arena arena = {.max = RVI_API_CHAT_BYTES};
    const rvi_json *json;
    uint64_t lesson = 0;
    st = rvi_api_read_chat(&chat, &json, given, &arena, err);
    if (!st) st = rvi_api_learned_ids(l, l->m, &chat, json, &arena, &out, err);
    if (!st && rvi_learner_reads(l->l)) prepare_learning(&turn, l, json, false);
    if (!st) st = rvi_api_find_read(l, json, &lesson, err);
    if (!st) (void)rvi_api_read_lesson(l, &chat, json, lesson, 0, &arena, &out);
    rvi_arena_deinit(&arena);
    if (st)
        rvi_ids_deinit(&out);
    else
        st = rvi_api_give_ids(&out, ids, n, err);
    rvi_api_leave(&turn);
    return st;
}

rv_status rv_learner_correct(rv_learner *l, rv_session *s, const char *question, const char *answer,
                             rv_adaptation **out, rv_error *err)
{
    return rv_learner_teach(l, s, question, answer, RV_SCOPE_TOPIC, out, err);
}

/* Scoring may take forward passes: beside services, a piece in each turn. */
static void prepare_judging(rvi_api_turn *turn, const rv_learner *l)
{
    for (int i = 0;
         i < MOST_PIECES && rvi_api_is_serving(l->m->rt) && rvi_api_prepare_judging(l, true, true);
         i++)
        rvi_api_make_way(turn);
}

static rv_status need_answer(const rv_learner *l, const rv_session *s, rv_error *err)
{
    if (s->learner == l && s->capture && s->question) return RV_OK;
    return rvi_error(err, RV_E_LEARNING,
                     "nothing was answered on this session that could be judged");
}

rv_status rv_learner_score(rv_learner *l, rv_session *s, double score, rv_adaptation **out,
                           rv_error *err)
{
    rvi_api_turn turn;
    rvi_adaptation r;
    rv_status st = enter_reporting(&turn, l, "rv_learner_score", s, &r, out, err);
    if (st) return st;
    prepare_judging(&turn, l);
    st = need_answer(l, s, err);
    if (!st) st = rvi_learner_score(l->l, s->capture, s->question, score, &r, err);
    return leave_reporting(&turn, l, st, &r, out, err);
}

rv_status rv_learner_thumb(rv_learner *l, rv_session *s, int up, rv_adaptation **out, rv_error *err)
{
    if (up) return rv_learner_score(l, s, 1, out, err);
    rvi_api_turn turn;
    rvi_adaptation r;
    rv_status st = enter_reporting(&turn, l, "rv_learner_thumb", s, &r, out, err);
    if (st) return st;
    st = need_answer(l, s, err);
    if (!st)
        st = rvi_learner_thumb_down(l->l, s->capture, s->question,
                                    s->spoke || s->read ? s->lesson : 0, &r, err);
    if (!st && (s->spoke || s->read))
        snprintf(r.notes, sizeof r.notes,
                 "the correction is no longer %s where this is asked, nor where something nearer "
                 "to this than to its own question is",
                 s->spoke ? "spoken" : "read");
    return leave_reporting(&turn, l, st, &r, out, err);
}

rv_status rv_learner_prefer(rv_learner *l, const char *question, const char *chosen,
                            const char *rejected, rv_adaptation **out, rv_error *err)
{
    rvi_api_turn turn;
    rvi_adaptation r;
    rv_status st = enter_reporting(&turn, l, "rv_learner_prefer", question && chosen && rejected,
                                   &r, out, err);
    if (st) return st;
    st = rvi_learner_prefer(l->l, question, chosen, rejected, &r, err);
    return leave_reporting(&turn, l, st, &r, out, err);
}

rv_status rv_learner_undo(rv_learner *l, rv_adaptation **out, rv_error *err)
{
    rvi_api_turn turn;
    rvi_adaptation r;
    rv_status st = enter_reporting(&turn, l, "rv_learner_undo", true, &r, out, err);
    if (st) return st;
    st = rvi_learner_undo(l->l, false, &r, err);
    return leave_reporting(&turn, l, st, &r, out, err);
}

rv_status rv_learner_undo_own(rv_learner *l, rv_adaptation **out, rv_error *err)
{
    rvi_api_turn turn;
    rvi_adaptation r;
    rv_status st = enter_reporting(&turn, l, "rv_learner_undo_own", true, &r, out, err);
    if (st) return st;
    st = rvi_learner_undo(l->l, true, &r, err);
    return leave_reporting(&turn, l, st, &r, out, err);
}

rv_status rv_learner_undo_to(rv_learner *l, uint64_t version, rv_adaptation **out, rv_error *err)
{
    rvi_api_turn turn;
    rvi_adaptation r;
    rv_status st = enter_reporting(&turn, l, "rv_learner_undo_to", true, &r, out, err);
    if (st) return st;
    st = rvi_learner_undo_to(l->l, version, &r, err);
    return leave_reporting(&turn, l, st, &r, out, err);
}

rv_status rv_learner_forget(rv_learner *l, const char *text, rv_adaptation **out, rv_error *err)
{
    rvi_api_turn turn;
    rvi_adaptation r;
    rv_status st = enter_reporting(&turn, l, "rv_learner_forget", text, &r, out, err);
    if (st) return st;
    st = rvi_learner_forget(l->l, text, 0, &r, err);
    return leave_reporting(&turn, l, st, &r, out, err);
}

rv_status rv_learner_forget_one(rv_learner *l, uint64_t event, rv_adaptation **out, rv_error *err)
{
    rvi_api_turn turn;
    rvi_adaptation r;
    rv_status st = enter_reporting(&turn, l, "rv_learner_forget_one", true, &r, out, err);
    if (st) return st;
    st = rvi_learner_forget(l->l, NULL, event, &r, err);
    return leave_reporting(&turn, l, st, &r, out, err);
}

rv_status rv_learner_clean(rv_learner *l, const char *dir, rv_error *err)
{
    rvi_api_turn turn;
    if (!dir) return rvi_error(err, RV_E_INVALID, "rv_learner_clean: NULL argument");
    rv_status st = enter(&turn, l, "rv_learner_clean", err);
    if (st) return st;
    st = rvi_learner_clean(l->l, dir, true, err);
    rvi_api_leave(&turn);
    return st;
}

rv_status rv_learner_consolidate(rv_learner *l, rv_learn_loop loop, rv_preference_loss loss,
                                 rv_learn_progress_fn progress, void *ctx, rv_adaptation **out,
                                 rv_error *err)
{
    rvi_adaptation r = {.quality_delta = NAN};
    alone a;
    if (out) *out = NULL;
    if (loop != RV_LOOP_BACKGROUND && loop != RV_LOOP_DEEP)
        return rvi_error(err, RV_E_INVALID, "consolidation is background or deep");
    rv_status st = enter_alone(&a, l, "rv_learner_consolidate", err);
    if (st) return st;
    st = rvi_learner_consolidate(l->l, loop, loss, progress, ctx, &r, err);
    if (!st && out) st = rvi_api_give_adaptation(&r, out, err);
    return leave_alone(&a, st, err);
}

/* What is being trained goes on from what is rolled back. */
static rv_status rollback_alone(rv_learner *l, int generation, rv_adaptation **out, rv_error *err)
{
    rvi_adaptation r = {.quality_delta = NAN};
    alone a;
    if (out) *out = NULL;
    rv_status st = enter_alone(&a, l, "rv_learner_rollback", err);
    if (st) return st;
    st = rvi_learner_rollback(l->l, generation, &r, err);
    if (!st && out) st = rvi_api_give_adaptation(&r, out, err);
    return leave_alone(&a, st, err);
}

/* Training pauses where it has to: on a busy machine it may take minutes to notice. */
rv_status rv_learner_rollback(rv_learner *l, int generation, rv_adaptation **out, rv_error *err)
{
    rvi_api_turn turn;
    rvi_adaptation r;
    if (l && l->l->o.shared) return rollback_alone(l, generation, out, err);
    rv_status st = enter_reporting(&turn, l, "rv_learner_rollback", true, &r, out, err);
    if (st) return st;
    st = rvi_learner_rollback(l->l, generation, &r, err);
    return leave_reporting(&turn, l, st, &r, out, err);
}

rv_status rv_learner_status(rv_learner *l, char **json, rv_error *err)
{
    rvi_api_turn turn;
    rvi_buf out = {0};
    if (!json) return rvi_error(err, RV_E_INVALID, "rv_learner_status: NULL argument");
    *json = NULL;
    rv_status st = enter(&turn, l, "rv_learner_status", err);
    if (st) return st;
    bool news;
    rvi_learner_follow(l->l, &news);
    st = rvi_learner_status(l->l, &out, err);
    rvi_learner_yield(l->l);
    st = rvi_api_give_text_after(st, &out, json, NULL, err);
    rvi_api_leave(&turn);
    if (news) rvi_background_wake(l);
    return st;
}

uint64_t rv_learner_version(const rv_learner *l)
{
    return l ? atomic_load(&l->l->applied) : 0;
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
    const rvi_generation *g;
    st = rvi_learner_need_adapter(l->l, generation, &g, err);
    if (!st) st = rvi_learner_write(l->l, g, path, f16 != 0, err);
    rvi_api_leave(&turn);
    return st;
}

rv_status rv_learner_import(rv_learner *l, const char *path, rv_adaptation **out, rv_error *err)
{
    rvi_api_turn turn;
    rvi_adaptation r;
    rv_status st = enter_reporting(&turn, l, "rv_learner_import", path, &r, out, err);
    if (st) return st;
    st = rvi_learner_import(l->l, path, &r, err);
    return leave_reporting(&turn, l, st, &r, out, err);
}

rv_status rv_learner_merge(rv_learner *l, int a, int b, rv_consolidation how, rv_adaptation **out,
                           rv_error *err)
{
    rvi_api_turn turn;
    rvi_adaptation r;
    rv_status st = enter_reporting(&turn, l, "rv_learner_merge", true, &r, out, err);
    if (st) return st;
    st = rvi_learner_merge(l->l, a, b, how, &r, err);
    return leave_reporting(&turn, l, st, &r, out, err);
}
