#include "decode/answer.h"

#include <math.h>
#include <string.h>

#include "base/os.h"
#include "decode/answer_internal.h"

void rvi_generated_deinit(rvi_generated *g)
{
    rvi_ids_deinit(&g->ids);
    rvi_buf_deinit(&g->text);
    rvi_free(g->chosen);
    rvi_free(g->top);
    *g = (rvi_generated){0};
}

void rvi_answer_drop_avoid(rvi_answer *a, size_t i)
{
    rvi_free((char *)(uintptr_t)a->avoid[i].text);
    a->avoid[i] = a->avoid[--a->n_avoid];
}

static void answer_free(rvi_answer *a)
{
    if (!a) return;
    for (size_t i = 0; a->stop && i < a->o.n_stop; i++) rvi_free(a->stop[i]);
    rvi_free(a->stop);
    rvi_sampler_free(a->sampler);
    rvi_stop_deinit(&a->stops);
    rvi_buf_deinit(&a->piece);
    rvi_free(a->raw);
    rvi_free(a->slot_ids);
    while (a->n_avoid) rvi_answer_drop_avoid(a, a->n_avoid - 1);
    rvi_free(a->avoid);
    rvi_bound_free(a->bound);
    for (int i = 0; i < RVI_DRAFT_SIDES; i++) rvi_seq_deinit(&a->sides[i]);
    rvi_generated_deinit(&a->out);
    rvi_free(a);
}

static void unlink_answer(rvi_answer *a)
{
    rvi_answer **at = &a->s->e->answers;
    while (*at && *at != a) at = &(*at)->next;
    if (*at) *at = a->next;
    a->next = NULL;
}

void rvi_answer_drop(rvi_session *s)
{
    if (!s->answer) return;
    unlink_answer(s->answer);
    answer_free(s->answer);
    s->answer = NULL;
}

rv_status rvi_answer_check(const rvi_engine *e, int n_context, size_t n_prompt,
                           const rv_generate_options *o, rv_error *err)
{
    if (!n_prompt) return rvi_error(err, RV_E_INVALID, "the prompt is empty");
    if (n_prompt >= (size_t)n_context)
        return rvi_error(err, RV_E_TOO_LONG,
                         "the prompt has %zu tokens, but the context holds %d: shorten it or ask "
                         "for a larger context",
                         n_prompt, n_context);
    if (o->max_tokens < 0)
        return rvi_error(err, RV_E_CONFIG, "max_tokens must not be negative (got %d)",
                         o->max_tokens);
    if (o->min_tokens < 0)
        return rvi_error(err, RV_E_CONFIG, "min_tokens must not be negative (got %d)",
                         o->min_tokens);
    if (o->top_logprobs < -1 || o->top_logprobs > RVI_MAX_TOP_LOGPROBS)
        return rvi_error(err, RV_E_CONFIG, "top_logprobs must be 0..%d (got %d)",
                         RVI_MAX_TOP_LOGPROBS, o->top_logprobs);
    if ((unsigned)o->draft > RV_DRAFT_NGRAM)
        return rvi_error(err, RV_E_CONFIG, "draft must be 0..%d (got %d)", RV_DRAFT_NGRAM,
                         (int)o->draft);
    if (o->n_stop > 1024) return rvi_error(err, RV_E_CONFIG, "%zu stop strings", o->n_stop);
    for (size_t i = 0; i < o->n_stop; i++)
        if (!o->stop[i] || !o->stop[i][0])
            return rvi_error(err, RV_E_CONFIG, "stop string %zu is empty", i + 1);
    if (o->n_stop && !e->t)
        return rvi_error(err, RV_E_CONFIG, "stop strings need a tokenizer, which this model lacks");
    return RV_OK;
}

static rv_status check(const rvi_session *s, const int32_t *prompt, size_t n_prompt,
                       const rv_generate_options *o, rv_error *err)
{
    if (s->answer)
        return rvi_error(err, RV_E_STATE, "the session has an answer that was not finished");
    rv_status st = rvi_answer_check(s->e, s->n_context, n_prompt, o, err);
    return st ? st : rvi_engine_check_ids(s->e, prompt, n_prompt, err);
}

static bool copy_stops(rvi_answer *a, const rv_generate_options *o, size_t *longest)
{
    *longest = 0;
    if (!o->n_stop) return true;
    if (!(a->stop = rvi_zalloc_array(o->n_stop, sizeof *a->stop))) return false;
    for (size_t i = 0; i < o->n_stop; i++) {
        size_t len = strlen(o->stop[i]) + 1;
        if (!(a->stop[i] = rvi_alloc_array(len, 1))) return false;
        memcpy(a->stop[i], o->stop[i], len);
        *longest = RVI_MAX(*longest, len);
    }
    return true;
}

/* Everything the token loop will write into. */
static bool reserve(rvi_answer *a)
{
    const rvi_engine *e = a->s->e;
    size_t n = (size_t)a->max_tokens, longest;
    if (!copy_stops(a, &a->o, &longest)) return false;
    a->o.stop = (const char *const *)a->stop;
    rvi_stop_init(&a->stops, a->o.stop, a->o.n_stop);
    if (e->t) {
        size_t piece = e->longest_piece + RVI_DETOK_RUN + 16;
        size_t text = n < RVI_TEXT_RESERVE / (e->longest_piece + 4) ? n * (e->longest_piece + 4)
                                                                    : RVI_TEXT_RESERVE;
        if (!rvi_buf_reserve(&a->piece, piece) || !rvi_buf_reserve(&a->out.text, text + piece) ||
            (a->o.n_stop && !rvi_buf_reserve(&a->stops.held, piece + longest)))
            return false;
    }
    if (n && !(a->out.ids.data = rvi_alloc_array(n, sizeof *a->out.ids.data))) return false;
    a->out.ids.cap = n;
    if (a->o.top_logprobs < 0 && !a->capture) return true;
    a->raw = rvi_alloc_array((size_t)e->m->hp.n_vocab, sizeof *a->raw);
    if (!a->raw) return false;
    if (a->o.top_logprobs < 0) return true;
    a->out.n_top = (size_t)a->o.top_logprobs;
    if (n && !(a->out.chosen = rvi_alloc_array(n, sizeof *a->out.chosen))) return false;
    if (n && a->out.n_top && !(a->out.top = rvi_alloc_array(n * a->out.n_top, sizeof *a->out.top)))
        return false;
    return true;
}

/* Room for guesses on several ways at once; tiered pages would keep forms for them that nobody else
 * reads. */
static rv_status prepare_sides(rvi_answer *a, rv_error *err)
{
    rvi_pages *pool = a->s->e->pool;
    rv_status st = RV_OK;
    if (a->o.draft == RV_DRAFT_OFF || rvi_pages_is_tiered(pool)) return RV_OK;
    for (int i = 0; i < RVI_DRAFT_SIDES && !st; i++)
        st = rvi_seq_init(&a->sides[i], pool, a->s->n_context, err);
    a->has_sides = !st;
    return st;
}

/* Sampler, text, what is recorded: everything that continuing a prompt needs. */
static rv_status prepare(rvi_answer *a, rv_error *err)
{
    const rvi_engine *e = a->s->e;
    rv_sampling sampling;
    a->capture = a->s->capture;
    rv_status st = rvi_sampler_new(&a->sampler, a->o.sampling, e->m->hp.n_vocab, e->t, err);
    if (!st && !reserve(a)) st = rvi_nomem(err, "answer");
    if (!st) st = prepare_sides(a, err);
    if (st) return st;
    rvi_sampling_read(&sampling, a->o.sampling);
    a->temperature = sampling.temperature;
    if (a->capture) rvi_capture_begin(a->capture);
    if (e->t) rvi_detok_init(&a->detok, e->t, RVI_TOK_SKIP_SPECIAL);
    if (e->t && a->o.continues) rvi_detok_continue(&a->detok);
    rvi_draft_init(&a->draft);
    return RV_OK;
}

static rv_status start(rvi_session *s, const int32_t *prompt, size_t n_prompt,
                       const rv_generate_options *o, const rvi_reader *reader, rv_error *err)
{
    rvi_engine *e = s->e;
    rv_status st = check(s, prompt, n_prompt, o, err);
    if (st) return st;
    atomic_store(&s->cancelled, false); /* from here on a cancel is meant for this answer */
    rvi_answer *a = rvi_zalloc(sizeof *a);
    if (!a) return rvi_nomem(err, "answer");
    a->s = s;
    a->o = *o;
    a->max_tokens = RVI_MIN(o->max_tokens, s->n_context - (int)n_prompt);
    a->out.finish = RV_FINISH_ERROR;
    a->logits_at = -1;
    if (reader)
        a->reader = *reader;
    else
        st = prepare(a, err);
    if (st) {
        answer_free(a);
        return st;
    }
    a->o.sampling = NULL; /* the sampler has its own copy */
    a->start = rvi_os_seconds();
    a->out.n_prompt = (int)n_prompt;
    int rope_set = rvi_rope_set(&e->m->rope, (int)n_prompt + a->max_tokens);
    if (reader) rvi_session_suspend(s); /* every row is to be computed */
    a->out.n_reused = rvi_session_reuse(s, prompt, n_prompt, rope_set, true);
    memcpy(s->past.data + s->past.len, prompt + s->past.len,
           (n_prompt - s->past.len) * sizeof *prompt);
    s->past.len = n_prompt;
    s->answer = a;
    s->drop_answer = rvi_answer_drop;
    rvi_answer **end = &e->answers;
    while (*end) end = &(*end)->next;
    *end = a;
    return RV_OK;
}

rv_status rvi_answer_start(rvi_session *s, const int32_t *prompt, size_t n_prompt,
                           const rv_generate_options *o, rv_error *err)
{
    return start(s, prompt, n_prompt, o, NULL, err);
}

rv_status rvi_answer_start_reading(rvi_session *s, const int32_t *prompt, size_t n_prompt,
                                   const rvi_reader *reader, const rv_generate_options *o,
                                   rv_error *err)
{
    rv_generate_options read = {
        .size = sizeof read, .top_logprobs = -1, .on_event = o->on_event, .ctx = o->ctx};
    return start(s, prompt, n_prompt, &read, reader, err);
}

rv_status rvi_answer_lock(rvi_session *s, const rvi_slot *slot, rv_error *err)
{
    rvi_answer *a = s->answer;
    if (!a || a->ended || a->out.ids.len)
        return rvi_error(err, RV_E_STATE, "the session has no answer that is about to begin");
    if (!slot->n || slot->n > RVI_MAX_SLOT || !isfinite(slot->margin))
        return rvi_error(err, RV_E_CONFIG, "the length of a slot must be 1..%d tokens (got %zu)",
                         RVI_MAX_SLOT, slot->n);
    rv_status st = rvi_engine_check_ids(s->e, slot->ids, slot->n, err);
    if (st) return st;
    int32_t *ids = rvi_alloc_array(slot->n, sizeof *ids);
    if (!ids) return rvi_nomem(err, "slot");
    memcpy(ids, slot->ids, slot->n * sizeof *ids);
    rvi_free(a->slot_ids);
    a->slot_ids = ids;
    a->n_slot = slot->n;
    a->slot_margin = slot->margin != 0 ? slot->margin : RVI_SLOT_MARGIN;
    return RV_OK;
}

rv_status rvi_answer_avoid(rvi_session *s, const rvi_avoid *list, size_t n, rv_error *err)
{
    rvi_answer *a = s->answer;
    if (!a || a->ended || a->out.ids.len)
        return rvi_error(err, RV_E_STATE, "the session has no answer that is about to begin");
    if (!n || !s->e->t || a->avoid) return RV_OK;
    if (!(a->avoid = rvi_zalloc_array(n, sizeof *a->avoid))) return rvi_nomem(err, "answer");
    for (size_t i = 0; i < n; i++) {
        char *text = rvi_alloc_array(list[i].len + 1, 1);
        if (!text) return rvi_nomem(err, "answer");
        if (list[i].len) memcpy(text, list[i].text, list[i].len);
        text[list[i].len] = 0;
        a->avoid[a->n_avoid++] = (rvi_avoid){text, list[i].len, list[i].branch};
    }
    return RV_OK;
}

rv_status rvi_answer_constrain(rvi_session *s, const rvi_constraint *by, rv_error *err)
{
    rvi_answer *a = s->answer;
    if (!a || a->ended || a->out.ids.len || a->bound)
        return rvi_error(err, RV_E_STATE, "the session has no answer that is about to begin");
    rv_status st =
        rvi_bound_new(&a->bound, by, s->e->m->hp.n_vocab, a->o.min_tokens, a->max_tokens, err);
    if (!st && s->e->t) { /* a language knows tokens as they are in the middle of a text */
        a->detok.started = true;
        a->detok.to_strip = 0;
        a->detok.spoken = by->spoken;
        a->detok.n_spoken = by->n_spoken;
    }
    return st;
}

rv_status rvi_answer_draft(rvi_session *s, rvi_session *by, rv_error *err)
{
    rvi_answer *a = s->answer;
    if (!a || a->ended || a->out.ids.len)
        return rvi_error(err, RV_E_STATE, "the session has no answer that is about to begin");
    if (by == s || by->answer)
        return rvi_error(err, RV_E_STATE, "the draft session has an answer of its own");
    rv_status st = rvi_drafter_check(s->e, by->e, err);
    if (!st) a->drafter = rvi_drafter_begin(by);
    return st;
}

/* ---- the end ---- */

void rvi_answer_end(rvi_answer *a, rv_finish finish, rv_status st)
{
    rvi_session *s = a->s;
    rvi_generated *out = &a->out;
    unlink_answer(a);
    rvi_answer_forget_guesses(s);
    rvi_answer_drop_sides(a);
    a->ended = true;
    if (!st && a->sampler && finish != RV_FINISH_STOP && finish != RV_FINISH_CANCELLED)
        st = rvi_answer_emit(a, -1, NULL);
    if (a->stops.hit) finish = RV_FINISH_STOP;
    out->finish = st ? RV_FINISH_ERROR : finish;
    out->stop = a->stops.which;
    out->state = a->bound ? a->bound->state : 0;
    a->status = st;
    if (s->past.len > (size_t)s->seq.len)
        s->past.len = (size_t)s->seq.len; /* what was never computed is no part of the past */
    double now = rvi_os_seconds();
    out->prompt_seconds = (a->first > 0 ? a->first : now) - a->start;
    out->seconds = a->first > 0 ? now - a->first : 0;
    rv_event done = {.kind = RV_EVENT_DONE,
                     .session = s->owner,
                     .id = -1,
                     .text = "",
                     .finish = out->finish,
                     .error = st ? &a->error : NULL,
                     .n_prompt = out->n_prompt,
                     .n_reused = out->n_reused,
                     .n_generated = (int)out->ids.len,
                     .prompt_seconds = out->prompt_seconds,
                     .seconds = out->seconds,
                     .n_guessed = out->n_guessed,
                     .n_right = out->n_right};
    rvi_answer_send(a, &done, NULL);
}

rvi_sampler *rvi_answer_sampler(rvi_session *s)
{
    return s->answer->sampler;
}

bool rvi_answer_ended(const rvi_session *s)
{
    return s->answer && s->answer->ended;
}

rv_status rvi_answer_take(rvi_session *s, rvi_generated *out, rv_error *err)
{
    rvi_answer *a = s->answer;
    if (!a->ended) rvi_answer_end(a, RV_FINISH_CANCELLED, RV_OK);
    rv_status st = a->status;
    if (st && err) *err = a->error;
    *out = a->out;
    a->out = (rvi_generated){0};
    answer_free(a);
    s->answer = NULL;
    return st;
}
