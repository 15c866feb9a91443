#include "decode/answer.h"

#include <math.h>
#include <string.h>

#include "base/os.h"
#include "decode/capture.h"
#include "decode/drafter.h"
#include "decode/logprobs.h"
#include "decode/sampler.h"
#include "decode/stop.h"

struct rvi_answer {
    rvi_answer *next; /* in the engine's list while under way */
    rvi_session *s;
    rv_generate_options o;
    char **stop;          /* copies of the stop strings */
    rvi_reader reader;    /* read NULL: the prompt is continued, not read */
    rvi_sampler *sampler; /* NULL: a reader needs none */
    rvi_detok detok;
    rvi_stop stops;
    rvi_buf piece;
    float *raw; /* the model's own logits of a step; NULL: neither logprobs nor capture want them */
    rvi_capture *capture; /* the session's when it began */
    float temperature;    /* for capture */
    int32_t *slot_ids;    /* NULL: no slot */
    size_t n_slot;
    float slot_margin;
    rvi_avoid *avoid; /* texts are its own; those that no longer matter are dropped */
    size_t n_avoid;
    rvi_bound *bound; /* what the text may be; NULL: anything */
    rvi_generated out;
    int max_tokens;
    int n_rows;    /* in the step being computed, */
    int first_row; /* from this one on */
    int logits_at; /* place of its logits in that; -1: none */
    rvi_draft draft;
    rvi_drafter drafter;
    int n_tried;                      /* guesses that are rows of the step */
    int tried_logits;                 /* the place of the logits of the first way, */
    int side_logits[RVI_DRAFT_SIDES]; /* and of the others */
    rvi_seq sides[RVI_DRAFT_SIDES];   /* their keys and values, during a step */
    bool has_sides;                   /* these are there */
    int32_t picked;                   /* from these logits; -1: not yet */
    rv_status pick_status;
    bool ended;
    rv_status status;
    rv_error error;
    double start, first; /* when it began, when its first logits came */
    double told;         /* when its last event of progress was sent, */
    int n_told;          /* and what that said: a step that is done again tells no less */
};

void rvi_generated_deinit(rvi_generated *g)
{
    rvi_ids_deinit(&g->ids);
    rvi_buf_deinit(&g->text);
    rvi_free(g->chosen);
    rvi_free(g->top);
    *g = (rvi_generated){0};
}

/* ---- beginning and end ---- */

static void drop_avoid(rvi_answer *a, size_t i)
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
    while (a->n_avoid) drop_avoid(a, a->n_avoid - 1);
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
    rv_status st = rvi_bound_new(&a->bound, by, s->e->m->hp.n_vocab, a->max_tokens, err);
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
    if (!st) a->drafter.by = by;
    return st;
}

/* ---- events ---- */

static void send(rvi_answer *a, const rv_event *ev, bool *cancel)
{
    if (a->o.on_event && a->o.on_event(a->o.ctx, ev) && cancel) *cancel = true;
}

/* Passes a token (id -1: the end of the text) through detokenizer and stop strings, and tells the
 * caller what became certain. */
static rv_status emit(rvi_answer *a, int32_t id, bool *cancel)
{
    const rvi_tokenizer *t = a->s->e->t;
    rvi_generated *out = &a->out;
    size_t before = out->text.len;
    bool last = id < 0;
    if (t) {
        a->piece.len = 0;
        rv_status st = last ? rvi_detok_flush(&a->detok, &a->piece, &a->error)
                            : rvi_detok_push(&a->detok, id, &a->piece, &a->error);
        if (st) return st;
        if (!rvi_stop_push(&a->stops, a->piece.data, a->piece.len, &out->text) ||
            (last && !rvi_stop_flush(&a->stops, &out->text)))
            return rvi_nomem(&a->error, "text");
    }
    size_t more = out->text.len - before, n = out->ids.len;
    if (last && !more) return RV_OK;
    rv_event ev = {.kind = RV_EVENT_TOKEN,
                   .session = a->s->owner,
                   .id = id,
                   .is_special = t && !last && rvi_tokenizer_is_special(t, id),
                   .text = more ? out->text.data + before : "",
                   .text_len = more,
                   .n_generated = (int)n};
    if (out->chosen && !last) {
        ev.chosen = &out->chosen[n - 1];
        ev.n_top = out->n_top;
        ev.top = out->top ? &out->top[(n - 1) * out->n_top] : NULL;
    }
    send(a, &ev, cancel);
    return RV_OK;
}

/* n_done tokens of its past are computed. */
static void tell_prompt(rvi_answer *a, int n_done, bool *cancel)
{
    rv_event ev = {.kind = RV_EVENT_PROMPT,
                   .session = a->s->owner,
                   .id = -1,
                   .text = "",
                   .n_prompt = a->out.n_prompt,
                   .n_reused = a->out.n_reused,
                   .n_done = RVI_MIN(n_done, a->out.n_prompt)};
    a->told = rvi_os_seconds();
    a->n_told = ev.n_done;
    send(a, &ev, cancel);
}

static bool is_prompting(const rvi_answer *a)
{
    return a->n_rows && a->first <= 0;
}

/* In the middle of a step: rows count by the part of the layers they went through. */
static void report_step(void *ctx, int n_done, int n_halves)
{
    rvi_engine *e = ctx;
    double now = rvi_os_seconds();
    for (rvi_answer *a = e->answers; a && n_done < n_halves; a = a->next) {
        if (!a->o.on_event || !is_prompting(a) || now - RVI_MAX(a->told, a->start) < e->event_gap)
            continue;
        bool cancel = false;
        int n = a->s->seq.len - a->n_rows + (int)((int64_t)a->n_rows * n_done / n_halves);
        if (n <= a->n_told) continue;
        tell_prompt(a, n, &cancel);
        if (cancel) rvi_session_cancel(a->s);
    }
}

/* The guesses behind the token at hand are not needed. */
static void forget_guesses(rvi_session *s)
{
    rvi_seq_truncate(&s->seq, s->seq.len - s->n_ahead);
    s->n_ahead = 0;
}

static void drop_sides(rvi_answer *a)
{
    for (int i = 0; a->has_sides && i < RVI_DRAFT_SIDES; i++) rvi_seq_truncate(&a->sides[i], 0);
}

static void end_answer(rvi_answer *a, rv_finish finish, rv_status st)
{
    rvi_session *s = a->s;
    rvi_generated *out = &a->out;
    unlink_answer(a);
    forget_guesses(s);
    drop_sides(a);
    a->ended = true;
    if (!st && a->sampler && finish != RV_FINISH_STOP && finish != RV_FINISH_CANCELLED)
        st = emit(a, -1, NULL);
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
    send(a, &done, NULL);
}

/* ---- one token ---- */

static bool is_eos(const rvi_engine *e, int32_t id)
{
    for (size_t i = 0; i < e->eos->len; i++)
        if (e->eos->data[i] == id) return true;
    return false;
}

/* Has all come as the slot says, and does it say more? */
static bool follows_slot(rvi_answer *a)
{
    size_t at = a->out.ids.len;
    if (at >= a->n_slot) return false;
    if (at && a->out.ids.data[at - 1] != a->slot_ids[at - 1])
        a->n_slot = 0; /* the answer went another way */
    return a->n_slot;
}

/* The slot's next token, while all before it came as it says. */
static void raise_slot(rvi_answer *a, float *logits, int n_vocab)
{
    size_t at = a->out.ids.len;
    if (!follows_slot(a)) return;
    float *l = &logits[a->slot_ids[at]];
    if (!(*l > -INFINITY)) return;
    float best = -INFINITY;
    for (int i = 0; i < n_vocab; i++) best = logits[i] > best ? logits[i] : best;
    *l = best + a->slot_margin;
}

static void forbid(float *logits, size_t n_vocab, const rvi_ids *ids)
{
    for (size_t i = 0; i < ids->len; i++)
        if (ids->data[i] >= 0 && (size_t)ids->data[i] < n_vocab) logits[ids->data[i]] = -INFINITY;
}

/* Writes to a->piece the text that would follow out.text with this token (-1: without one),
 * including complete characters that the detokenizer still holds back. */
static bool find_text(rvi_answer *a, int32_t id)
{
    static const char incomplete[] = "\xef\xbf\xbd";
    rvi_detok next = a->detok; /* what a token's text is depends on those before it */
    a->piece.len = 0;
    if (id >= 0 && rvi_detok_push(&next, id, &a->piece, NULL)) return false;
    size_t certain = a->piece.len;
    if (rvi_detok_flush(&next, &a->piece, NULL)) return false;
    for (size_t i = certain; i + 3 <= a->piece.len; i++)
        if (!memcmp(a->piece.data + i, incomplete, 3)) a->piece.len = i;
    return true;
}

/* Tokens with which the text would share more than the branch. */
static void forbid_going_on(rvi_answer *a, const rvi_avoid *x, float *logits, size_t n_vocab)
{
    size_t at = a->out.text.len, rest = x->len - at;
    for (size_t id = 0; id < n_vocab; id++) {
        if (!(logits[id] > -INFINITY) || !find_text(a, (int32_t)id)) continue;
        size_t len = a->piece.len;
        if (at + len > x->branch && len <= rest && !memcmp(a->piece.data, x->text + at, len))
            logits[id] = -INFINITY;
    }
}

/* Keeps the answer from going as those went that it is to avoid. */
static void avoid(rvi_answer *a, float *logits, size_t n_vocab)
{
    const rvi_buf *text = &a->out.text;
    if (!find_text(a, -1)) return;
    size_t held = a->piece.len;
    for (size_t i = a->n_avoid; i-- > 0;) {
        const rvi_avoid *x = &a->avoid[i];
        if (text->len > x->branch || (text->len && memcmp(text->data, x->text, text->len)))
            drop_avoid(a, i); /* it went another way */
        else if (text->len + held == x->len)
            forbid(logits, n_vocab, a->s->e->eos);
        else if (text->len + held + a->s->e->longest_piece > x->branch)
            forbid_going_on(a, x, logits, n_vocab);
    }
}

static rv_status pick_from(rvi_answer *a, float *logits, int32_t *id, bool *cancel)
{
    rvi_session *s = a->s;
    const rvi_engine *e = s->e;
    size_t n_vocab = (size_t)e->m->hp.n_vocab;
    if (a->raw) memcpy(a->raw, logits, n_vocab * sizeof *logits);
    if (!a->o.ignore_eos && a->out.ids.len < (size_t)a->o.min_tokens &&
        !(a->bound && rvi_bound_leaves_only(a->bound, e->eos)))
        forbid(logits, n_vocab, e->eos);
    if (a->bound) rvi_bound_apply(a->bound, logits, n_vocab);
    if (a->o.mask && a->o.mask(a->o.ctx, a->out.ids.data, a->out.ids.len, logits, n_vocab)) {
        *cancel = true;
        return RV_OK;
    }
    if (a->n_avoid) avoid(a, logits, n_vocab);
    raise_slot(a, logits, (int)n_vocab);
    rv_status st = rvi_sampler_pick(a->sampler, logits, s->past.data, s->past.len,
                                    (size_t)a->out.n_prompt, id, &a->error);
    for (size_t i = 0; st && i < n_vocab; i++)
        if (isnan(logits[i])) return rvi_engine_explain(e, st, &a->error);
    return st;
}

/* Whether more than the constraint has a say in which token comes. */
static bool others_decide(const rvi_answer *a)
{
    return a->o.mask || a->n_slot || a->n_avoid;
}

static rv_status force(rvi_answer *a, int32_t *id)
{
    return rvi_bound_force(a->bound, a->max_tokens - (int)a->out.ids.len, id, &a->error);
}

/* Finds out what the constraint says of the next token: which must come (then it is picked), or
 * which may. */
static void look_ahead(rvi_answer *a, const float *logits)
{
    if (!others_decide(a)) a->pick_status = force(a, &a->picked);
    if (!a->pick_status && a->picked < 0) a->pick_status = rvi_bound_look(a->bound, &a->error);
    if (a->picked >= 0 && a->raw)
        memcpy(a->raw, logits, (size_t)a->s->e->m->hp.n_vocab * sizeof *logits);
}

static rv_status pick(rvi_answer *a, float *logits, int32_t *id, bool *cancel)
{
    if (a->picked < 0 && !a->pick_status) return pick_from(a, logits, id, cancel);
    *id = a->picked;
    return a->pick_status;
}

static void note_logprobs(rvi_answer *a, int32_t id)
{
    rvi_generated *out = &a->out;
    if (!out->chosen) return;
    int n_vocab = a->s->e->m->hp.n_vocab;
    size_t at = out->ids.len - 1;
    double log_sum = rvi_log_sum_exp(a->raw, n_vocab);
    out->chosen[at] = (rv_token_prob){id, (float)((double)a->raw[id] - log_sum)};
    if (out->top)
        rvi_top_logprobs(a->raw, n_vocab, log_sum, out->top + at * out->n_top, (int)out->n_top);
}

/* False: the answer has ended. */
static bool keep_token(rvi_answer *a, int32_t id)
{
    rvi_session *s = a->s;
    rvi_generated *out = &a->out;
    bool cancel = false;
    out->ids.data[out->ids.len++] = id; /* room was reserved for both */
    s->past.data[s->past.len++] = id;
    note_logprobs(a, id);
    if (a->capture)
        rvi_capture_take(a->capture, s->e->ws, s->e->which[a->logits_at], a->raw, a->temperature,
                         id);
    rv_status st = a->bound ? rvi_bound_accept(a->bound, id, &a->error) : RV_OK;
    if (!st && (!a->o.ignore_eos || a->bound) && is_eos(s->e, id)) {
        end_answer(a, RV_FINISH_EOS, RV_OK);
        return false;
    }
    if (!st) st = emit(a, id, &cancel);
    if (st)
        end_answer(a, RV_FINISH_ERROR, st);
    else if (a->stops.hit)
        end_answer(a, RV_FINISH_STOP, RV_OK);
    else if (cancel || atomic_load(&s->cancelled))
        end_answer(a, RV_FINISH_CANCELLED, RV_OK);
    else if (a->bound && (a->bound->complete || !a->bound->state))
        end_answer(a, RV_FINISH_EOS, RV_OK);
    else if (out->ids.len == (size_t)a->max_tokens)
        end_answer(a, RV_FINISH_LENGTH, RV_OK);
    return !a->ended;
}

/* Tokens that come in any case and whose logits nobody wants: their rows wait for the next step as
 * those of a prompt do. */
static void jump(rvi_answer *a)
{
    int32_t id = -1;
    if (!a->bound || a->raw || others_decide(a)) return;
    do {
        rv_status st = force(a, &id);
        if (st) end_answer(a, RV_FINISH_ERROR, st);
    } while (!a->ended && id >= 0 && keep_token(a, id));
}

static void take_token(rvi_answer *a, float *logits)
{
    bool cancel = false;
    int32_t id = -1;
    if (a->first <= 0) a->first = rvi_os_seconds();
    if (!a->max_tokens) {
        end_answer(a, RV_FINISH_LENGTH, RV_OK);
        return;
    }
    rv_status st = pick(a, logits, &id, &cancel);
    if (st || cancel)
        end_answer(a, RV_FINISH_CANCELLED, st);
    else
        keep_token(a, id);
}

/* Where the tokens of a step are in the tree of its guesses. */
typedef struct walk {
    const rvi_draft_way *way;
    int next;   /* the guess that the token may be */
    int logits; /* the place of those behind the way's first guess */
} walk;

/* The side that a token turns into, and which the step has tried; -1: none. */
static int find_side(const rvi_answer *a, const walk *w, int32_t id)
{
    const rvi_draft *d = &a->draft;
    for (int i = 0; i < d->n_sides && w->way == &d->first; i++)
        if (d->sides[i].at == w->next && d->sides[i].n_taken && d->sides[i].ids[0] == id) return i;
    return -1;
}

static void learn(rvi_answer *a, const walk *w, int32_t id)
{
    rvi_draft *d = &a->draft;
    if (w->next < w->way->n) rvi_draft_learn(d, w->way, w->next, id == w->way->ids[w->next]);
    for (int i = 0; i < d->n_sides && w->way == &d->first; i++)
        if (d->sides[i].at == w->next)
            rvi_draft_learn(d, &d->sides[i], 0, id == d->sides[i].ids[0]);
}

/* Goes on with the token that came; false: it was not tried. */
static bool step_on(rvi_answer *a, walk *w, int32_t id)
{
    rvi_session *s = a->s;
    if (w->next < w->way->n_taken && id == w->way->ids[w->next]) {
        w->next++;
        s->n_ahead--;
        return true;
    }
    int side = find_side(a, w, id);
    if (side < 0) return false;
    /* what the session has in its pages: all before the guesses, and those that were right */
    int to = s->seq.len - s->n_ahead;
    rvi_session_turn(s, &a->sides[side], to);
    *w = (walk){&a->draft.sides[side], 1, a->side_logits[side]};
    s->n_ahead = w->way->n_taken - 1;
    a->out.n_turned++;
    return true;
}

/* The tokens of a step: the one that follows the answer's last, then those that follow guesses, as
 * long as they are right. */
static void take_tokens(rvi_answer *a)
{
    const rvi_engine *e = a->s->e;
    walk w = {&a->draft.first, 0, a->tried_logits};
    int n_right = 0;
    for (bool right = true; right; n_right += right) {
        size_t n = a->out.ids.len;
        if (n_right) a->logits_at = w.logits + w.next - 1;
        if (n_right && a->bound) look_ahead(a, rvi_engine_logits(e, a->logits_at));
        take_token(a, rvi_engine_logits(e, a->logits_at));
        if (a->ended) return;
        learn(a, &w, a->out.ids.data[n]);
        right = step_on(a, &w, a->out.ids.data[n]);
        a->out.n_right += right;
        a->picked = -1;
    }
    rvi_draft_settle(&a->draft, &a->s->e->budget, a->n_tried, n_right);
    forget_guesses(a->s);
    drop_sides(a);
    jump(a);
}

/* ---- a step ---- */

/* Answers whose tokens the threads pick side by side. */
typedef struct picks {
    const rvi_engine *e;
    rvi_answer **answers;
} picks;

static void pick_task(void *ctx, int task, int worker)
{
    const picks *p = ctx;
    rvi_answer *a = p->answers[task];
    bool cancel; /* only a mask can */
    (void)worker;
    a->pick_status = pick_from(a, rvi_engine_logits(p->e, a->logits_at), &a->picked, &cancel);
}

/* A token is picked from its answer's own logits and past: the threads may do that for all answers
 * of a step at once. A mask is the caller's code and runs on the caller's thread, later. */
static void pick_together(rvi_engine *e)
{
    enum { MOST = 64 };
    rvi_answer *answers[MOST];
    picks p = {e, answers};
    int n = 0;
    for (rvi_answer *a = e->answers; a; a = a->next) {
        a->picked = -1;
        a->pick_status = RV_OK;
        if (a->logits_at < 0 || !a->max_tokens) continue;
        if (a->bound) look_ahead(a, rvi_engine_logits(e, a->logits_at));
        if (a->picked < 0 && !a->pick_status && !a->o.mask && n < MOST) answers[n++] = a;
    }
    rvi_backend *be = e->o.be ? e->o.be : e->m->be;
    if (n > 1) be->ops->run(be, pick_task, &p, n);
}

int rvi_answer_waiting(const rvi_session *s)
{
    return (int)(s->past.len - (size_t)s->seq.len);
}

static int waiting(const rvi_answer *a)
{
    return rvi_answer_waiting(a->s);
}

/* Adds the rows of one answer that fit and are allowed. */
static void add_rows(rvi_engine *e, rvi_answer *a)
{
    int n = RVI_MIN(RVI_MIN(waiting(a), a->s->allowed), rvi_engine_room(e));
    bool picks_one = !a->reader.read && n == waiting(a);
    if (picks_one && !rvi_engine_logits_room(e)) n--; /* its last row waits for the next step */
    if (n < 1) return;
    picks_one = picks_one && n == waiting(a);
    int at = e->n_logits;
    a->first_row = e->n_rows;
    rv_status st = rvi_engine_add(e, a->s, n, a->s->adapters, picks_one, &a->error);
    if (st)
        end_answer(a, RV_FINISH_ERROR, st);
    else
        a->n_rows = n;
    if (!st && picks_one) a->logits_at = at;
}

/* Answers that got logits go to the end of the list, so that all have their turn when there are
 * more of them than a step has room for. Prompts that wait stay where they are: oldest first. */
static void rotate(rvi_engine *e)
{
    rvi_answer *served = NULL, **served_end = &served, **at = &e->answers;
    while (*at) {
        rvi_answer *a = *at;
        if (a->logits_at < 0) {
            at = &a->next;
            continue;
        }
        *at = a->next;
        a->next = NULL;
        *served_end = a;
        served_end = &a->next;
    }
    *at = served;
}

static bool takes_part(const rvi_answer *a, const rvi_session *only)
{
    return !only || a->s == only;
}

/* Ends the cancelled ones; returns how many. */
static size_t end_cancelled(rvi_engine *e, const rvi_session *only)
{
    size_t n = 0;
    for (rvi_answer *a = e->answers, *next; a; a = next) {
        next = a->next;
        if (!takes_part(a, only) || !atomic_load(&a->s->cancelled)) continue;
        end_answer(a, RV_FINISH_CANCELLED, RV_OK);
        n++;
    }
    return n;
}

/* Leaves out what the constraint forbids. */
static void allow_guesses(rvi_answer *a)
{
    rvi_draft *d = &a->draft;
    uint32_t states[RVI_DRAFT_MOST + 1];
    int n_sides = 0;
    states[0] = a->bound->state;
    d->first.n = rvi_bound_follow(a->bound, d->first.ids, d->first.n, states);
    for (int i = 0; i < d->n_sides; i++) {
        rvi_draft_way *side = &d->sides[i];
        uint32_t own[RVI_DRAFT_MOST + 1] = {0};
        if (side->at <= d->first.n) own[0] = states[side->at];
        side->n = rvi_bound_follow(a->bound, side->ids, side->n, own);
        if (side->n) d->sides[n_sides++] = *side;
    }
    d->n_sides = n_sides;
}

/* What may come after the token that waits. A repetition that is nearly certain costs less than a
 * model. */
static void guess(rvi_answer *a, const rvi_draft_step *step)
{
    const double certain = 0.8;
    const rvi_engine *e = a->s->e;
    const rvi_session *s = a->s;
    rvi_draft *d = &a->draft;
    size_t at = a->out.ids.len;
    int most = a->max_tokens - (int)at - 1; /* the last token has no row */
    if (a->logits_at < 0 || a->first <= 0 || a->o.draft == RV_DRAFT_OFF) return;
    if (follows_slot(a))
        rvi_draft_known(d, a->slot_ids + at, a->n_slot - at, most);
    else
        rvi_draft_repeat(d, s->past.data, s->past.len, most);
    bool is_certain = d->first.n && rvi_draft_chance(d, &d->first, 0) >= certain;
    if (a->drafter.by && !is_certain)
        rvi_drafter_guess(&a->drafter, d, s, most, &e->budget, step, e->tries_all);
    if (!a->has_sides) d->n_sides = 0;
    if (a->bound) allow_guesses(a);
}

static int free_pages(const rvi_engine *e)
{
    return rvi_pages_total(e->pool) - rvi_pages_in_use(e->pool);
}

/* Adds a side of the guesses, if there are pages for it; nobody else is to give up some. */
static void add_side(rvi_engine *e, rvi_answer *a, int i)
{
    rvi_draft_way *side = &a->draft.sides[i];
    int from = a->s->seq.len - a->draft.first.n_taken - a->n_rows, to = from + a->n_rows + side->at;
    int n = side->n_taken;
    a->side_logits[i] = e->n_logits;
    side->n_taken = 0;
    if (!n || side->at > a->draft.first.n_taken ||
        (to + n - from) / RVI_PAGE_TOKENS + 2 > free_pages(e))
        return;
    if (rvi_engine_add_side(e, a->s, &a->sides[i], from, to, side->ids, n, a->s->adapters, NULL))
        return;
    side->n_taken = n;
    a->n_tried += n;
}

/* The guesses of the first way for which there are pages. */
static void add_first(rvi_engine *e, rvi_answer *a)
{
    rvi_session *s = a->s;
    rvi_draft_way *w = &a->draft.first;
    int n = w->n_taken, n_free = free_pages(e);
    while (n > 0 && rvi_seq_wants(&s->seq, n) > n_free) n--;
    w->n_taken = 0;
    if (n < 1) return;
    memcpy(s->past.data + s->past.len, w->ids, (size_t)n * sizeof *w->ids);
    a->tried_logits = e->n_logits;
    if (!rvi_engine_add(e, s, n, s->adapters, n, NULL)) a->n_tried = w->n_taken = n;
}

static void add_guesses(rvi_engine *e, rvi_answer *a, rvi_draft_step *step)
{
    int most = RVI_MIN(rvi_engine_room(e), rvi_engine_logits_room(e));
    if (!a->draft.first.n && !a->draft.n_sides) return;
    int n = e->tries_all ? rvi_draft_take_all(&a->draft, most)
                         : rvi_draft_choose(&a->draft, &e->budget, most, step);
    if (n < 1) return;
    add_first(e, a);
    for (int i = 0; i < a->draft.n_sides; i++) add_side(e, a, i);
}

/* Last, with the room that is left. */
static void guess_together(rvi_engine *e)
{
    rvi_draft_step step = {0};
    if (e->o.max_logits < 2) return;
    for (const rvi_answer *a = e->answers; a; a = a->next) step.n_rows += a->logits_at >= 0;
    step.tokens = step.n_rows;
    for (rvi_answer *a = e->answers; a; a = a->next) {
        guess(a, &step);
        add_guesses(e, a, &step);
    }
}

static void collect_rows(rvi_engine *e, const rvi_session *only)
{
    rvi_answer *a, *next;
    rvi_engine_begin(e);
    for (a = e->answers; a; a = a->next) {
        a->n_rows = a->n_tried = 0;
        rvi_draft_clear(&a->draft);
        drop_sides(a);
        a->logits_at = -1;
    }
    /* tokens of answers that decode come first, then prompts */
    for (int prompts = 0; prompts < 2; prompts++)
        for (a = e->answers; a; a = next) {
            next = a->next;
            if (!takes_part(a, only) || (waiting(a) > 1) != prompts || a->n_rows) continue;
            add_rows(e, a);
        }
    guess_together(e);
}

/* One forward pass. If an answer is cancelled during the pass, it ends, and the pass is repeated
 * for the others with the same bits. */
static rv_status compute_step(rvi_engine *e, const rvi_session *only, rv_error *err)
{
    rv_status st;
    (void)end_cancelled(e, only);
    rvi_workspace_set_progress(e->ws, report_step, e);
    do {
        collect_rows(e, only);
        double start = rvi_os_seconds();
        st = e->n_rows ? rvi_engine_compute(e, err) : RV_OK;
        if (!st && e->n_rows) rvi_budget_note(&e->budget, e->n_rows, rvi_os_seconds() - start);
    } while (st && end_cancelled(e, only));
    rvi_workspace_set_progress(e->ws, NULL, NULL);
    return st;
}

/* Readers come after all picks: reading may overwrite the step's logits. */
static void read_rows(rvi_engine *e)
{
    for (rvi_answer *a = e->answers, *next; a; a = next) {
        next = a->next;
        if (!a->n_rows || !a->reader.read) continue;
        rv_status st = a->reader.read(a->reader.ctx, e, a->first_row, a->n_rows,
                                      a->s->seq.len - a->n_rows, &a->error);
        if (st || !waiting(a)) end_answer(a, RV_FINISH_LENGTH, st);
    }
}

size_t rvi_answer_advance(rvi_engine *e, const rvi_session *only)
{
    rvi_answer *a, *next;
    rv_error error = {0};
    rv_status st = compute_step(e, only, &error);
    if (!st) pick_together(e);
    for (a = e->answers; a && !st; a = a->next) {
        a->s->n_ahead = a->draft.first.n_taken;
        a->out.n_guessed += a->n_tried;
    }
    for (a = e->answers; a; a = next) {
        bool cancel = false;
        next = a->next;
        if (!a->n_rows) continue;
        if (st) a->error = error;
        if (!st && is_prompting(a)) tell_prompt(a, a->s->seq.len, &cancel);
        if (st || cancel)
            end_answer(a, RV_FINISH_CANCELLED, st);
        else if (a->logits_at >= 0)
            take_tokens(a);
    }
    if (!st) read_rows(e);
    if (!only) rotate(e);
    size_t running = 0;
    for (a = e->answers; a; a = a->next) running += takes_part(a, only);
    return running;
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
    if (!a->ended) end_answer(a, RV_FINISH_CANCELLED, RV_OK);
    rv_status st = a->status;
    if (st && err) *err = a->error;
    *out = a->out;
    a->out = (rvi_generated){0};
    answer_free(a);
    s->answer = NULL;
    return st;
}
