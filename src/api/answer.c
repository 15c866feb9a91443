/* Answers: from a chat or a prompt to text, one at a time or many together. */
#include <string.h>

#include "api/api.h"
#include "decode/sampler.h"

enum { DEFAULT_TOKENS = 256 };

const char *rv_finish_name(rv_finish f)
{
    static const char *const names[] = {
#define X(name, text) text,
        RV_FINISH_MAP(X)
#undef X
    };
    return (size_t)f < RVI_COUNT(names) ? names[f] : "";
}

/* ---- options ---- */

rv_status rvi_api_read_generate(rv_generate_options *o, const rv_generate_options *given,
                                rv_sampling *sampling, rv_error *err)
{
    rv_status st = rvi_api_read_struct(o, sizeof *o, given, "rv_generate_options", err);
    if (!st) st = rvi_api_read_sampling(sampling, o->sampling, err);
    if (st) return st;
    if (!o->stop && o->n_stop)
        return rvi_error(err, RV_E_INVALID, "n_stop is %zu, but stop is NULL", o->n_stop);
    if (o->max_tokens < RV_NO_TOKENS)
        return rvi_error(err, RV_E_CONFIG,
                         "max_tokens must be above 0, RV_TO_CONTEXT_END or RV_NO_TOKENS (got %d)",
                         o->max_tokens);
    if (o->top_logprobs < 0)
        return rvi_error(err, RV_E_CONFIG, "top_logprobs must be 0..20 (got %d)", o->top_logprobs);
    o->sampling = sampling;
    if (o->max_tokens == 0)
        o->max_tokens = DEFAULT_TOKENS;
    else if (o->max_tokens == RV_TO_CONTEXT_END)
        o->max_tokens = INT32_MAX;
    else if (o->max_tokens == RV_NO_TOKENS)
        o->max_tokens = 0;
    if (!o->logprobs && !o->top_logprobs) o->top_logprobs = -1;
    return RV_OK;
}

/* ---- beginning; busy is held ---- */

/* Answers that got a thumb down do not come again, unless they were taught since: a lesson from
 * before it would not speak. */
static rv_status avoid_disliked(rv_session *s, rv_error *err)
{
    enum { MOST = 256 };
    rvi_avoid list[MOST];
    size_t n = rvi_refusals_avoids(&s->learner->l->refusals, s->question, list, MOST);
    return rvi_answer_avoid(s->s, list, n, err);
}

rv_status rvi_api_apply_lesson(rv_session *s, rv_error *err)
{
    rvi_slot slot = {.ids = s->slot.data, .n = s->slot.len};
    rv_status st = slot.n ? rvi_answer_lock(s->s, &slot, err) : RV_OK;
    if (!st && s->begun && !slot.n) st = avoid_disliked(s, err);
    s->spoke = !st && slot.n;
    s->read = !st && s->begun && s->reads;
    s->begun = false;
    rvi_ids_deinit(&s->slot);
    return st;
}

static rv_status use_draft(rv_session *s, rv_session *by, rv_error *err)
{
    if (by->e->m->rt != s->e->m->rt)
        return rvi_error(err, RV_E_INVALID, "the draft session is of another runtime");
    return rvi_answer_draft(s->s, by->s, err);
}

static rv_status start(rv_session *s, const int32_t *prompt, size_t n_prompt,
                       const rv_generate_options *given, rv_error *err)
{
    rv_generate_options o;
    rv_sampling sampling;
    rv_status st = rvi_api_read_generate(&o, given, &sampling, err);
    if (!st) st = rvi_api_check_grammar(s->e->m, &o, err);
    if (st) return st;
    rvi_api_note_use(s->e->m->rt);
    st = rvi_answer_start(s->s, prompt, n_prompt, &o, err);
    if (!st) {
        st = rvi_api_constrain(s->s, o.grammar, o.grammar_state, err);
        if (!st && o.draft_session) st = use_draft(s, o.draft_session, err);
        if (!st) st = rvi_api_apply_lesson(s, err);
        if (st) rvi_answer_drop(s->s);
    }
    if (st) { /* what was decided was for this answer */
        s->spoke = s->read = s->begun = false;
        rvi_ids_deinit(&s->slot);
    }
    return st;
}

/* The learner first decides what takes part: its adapters compute the prompt too. */
static rv_status start_chat(rv_session *s, const rv_chat *given, const rv_generate_options *o,
                            rv_error *err)
{
    rv_chat chat;
    rvi_arena arena = {.max = RVI_API_CHAT_BYTES};
    const rvi_json *json;
    rvi_ids ids = {0};
    rv_status st = RV_OK;
    if (s->s->answer)
        st = rvi_error(err, RV_E_STATE, "the session has an answer that was not finished");
    if (!st) st = rvi_api_read_chat(&chat, &json, given, &arena, err);
    if (!st) st = rvi_api_learned_ids(s->teacher, s->e->m, &chat, json, &arena, &ids, err);
    if (!st && s->teacher) st = rvi_api_begin_learning(s->teacher, s, json, NULL, err);
    if (!st && s->teacher && s->reads)
        s->reads =
            rvi_api_read_lesson(s->teacher, &chat, json, s->lesson, s->s->n_context, &arena, &ids);
    if (!st) st = start(s, ids.data, ids.len, o, err);
    rvi_ids_deinit(&ids);
    rvi_arena_deinit(&arena);
    return st;
}

/* ---- end ---- */

static size_t pad(size_t n)
{
    return (n + sizeof(void *) - 1) / sizeof(void *) * sizeof(void *);
}

static void *place(char **at, const void *from, size_t len)
{
    void *to = *at;
    if (len) memcpy(to, from, len);
    *at += pad(len);
    return to;
}

/* One block: the struct, then what it points to. */
static rv_answer *pack(const rvi_generated *g)
{
    size_t ids = g->ids.len * sizeof *g->ids.data;
    size_t chosen = g->chosen ? g->ids.len * sizeof *g->chosen : 0;
    size_t top = g->top ? g->ids.len * g->n_top * sizeof *g->top : 0;
    rv_answer *a =
        rvi_alloc_array(pad(sizeof *a) + pad(ids) + pad(chosen) + pad(top) + g->text.len + 1, 1);
    if (!a) return NULL;
    char *at = (char *)a + pad(sizeof *a);
    *a = (rv_answer){.text_len = g->text.len,
                     .n_ids = g->ids.len,
                     .n_top = g->n_top,
                     .finish = g->finish,
                     .n_prompt = g->n_prompt,
                     .n_reused = g->n_reused,
                     .prompt_seconds = g->prompt_seconds,
                     .seconds = g->seconds,
                     .grammar_state = g->state,
                     .n_guessed = g->n_guessed,
                     .n_right = g->n_right,
                     .stop = g->stop};
    a->ids = place(&at, g->ids.data, ids);
    if (g->chosen) a->chosen = place(&at, g->chosen, chosen);
    if (g->top) a->top = place(&at, g->top, top);
    a->text = at;
    if (g->text.len) memcpy(at, g->text.data, g->text.len);
    at[g->text.len] = 0;
    return a;
}

static rv_status give(rv_session *s, rv_answer **out, rv_error *err)
{
    rvi_generated g;
    rv_status st = rvi_answer_take(s->s, &g, err);
    rvi_api_note_use(s->e->m->rt);
    *out = pack(&g);
    rvi_generated_deinit(&g);
    return !st && !*out ? rvi_nomem(err, "answer") : st;
}

static rv_status finish(rv_session *s, rv_status st, rv_answer **out, rv_error *err)
{
    if (st) return st;
    while (rvi_answer_advance(s->e->e, s->s)) {
    }
    return give(s, out, err);
}

/* ---- calls ---- */

rv_status rv_session_start(rv_session *s, const int32_t *prompt, size_t n_prompt,
                           const rv_generate_options *o, rv_error *err)
{
    if (!s || (!prompt && n_prompt))
        return rvi_error(err, RV_E_INVALID, "rv_session_start: NULL argument");
    rvi_api_turn turn;
    rv_status st = rvi_api_enter(&turn, s->e->m->rt, err);
    if (st) return st;
    st = start(s, prompt, n_prompt, o, err);
    rvi_api_leave(&turn);
    return st;
}

rv_status rv_session_start_chat(rv_session *s, const rv_chat *chat, const rv_generate_options *o,
                                rv_error *err)
{
    if (!s || !chat) return rvi_error(err, RV_E_INVALID, "rv_session_start_chat: NULL argument");
    rvi_api_turn turn;
    rv_status st = rvi_api_enter(&turn, s->e->m->rt, err);
    if (st) return st;
    st = start_chat(s, chat, o, err);
    rvi_api_leave(&turn);
    return st;
}

rv_status rv_session_finish(rv_session *s, rv_answer **a, rv_error *err)
{
    if (a) *a = NULL;
    if (!s || !a) return rvi_error(err, RV_E_INVALID, "rv_session_finish: NULL argument");
    rvi_api_turn turn;
    rv_status st = rvi_api_enter(&turn, s->e->m->rt, err);
    if (st) return st;
    st = s->s->answer ? give(s, a, err)
                      : rvi_error(err, RV_E_STATE, "the session has no answer to finish");
    rvi_api_leave(&turn);
    return st;
}

rv_status rv_session_generate(rv_session *s, const int32_t *prompt, size_t n_prompt,
                              const rv_generate_options *o, rv_answer **a, rv_error *err)
{
    if (a) *a = NULL;
    if (!s || !a || (!prompt && n_prompt))
        return rvi_error(err, RV_E_INVALID, "rv_session_generate: NULL argument");
    rvi_api_turn turn;
    rv_status st = rvi_api_enter(&turn, s->e->m->rt, err);
    if (st) return st;
    st = finish(s, start(s, prompt, n_prompt, o, err), a, err);
    rvi_api_leave(&turn);
    return st;
}

rv_status rv_session_chat(rv_session *s, const rv_chat *chat, const rv_generate_options *o,
                          rv_answer **a, rv_error *err)
{
    if (a) *a = NULL;
    if (!s || !a || !chat) return rvi_error(err, RV_E_INVALID, "rv_session_chat: NULL argument");
    rvi_api_turn turn;
    rv_status st = rvi_api_enter(&turn, s->e->m->rt, err);
    if (st) return st;
    st = finish(s, start_chat(s, chat, o, err), a, err);
    rvi_api_leave(&turn);
    return st;
}
