/* A request of a service: checked on the thread that submits, and copied, for it may wait. */
#include <math.h>
#include <string.h>

#include "api/service.h"
#include "base/os.h"
#include "decode/sampler.h"

enum { MOST_CHOICES = 128, MOST_PRIORITY = 100, LONGEST_NAME = 256 };

/* ---- copies ---- */

static char *copy_text(rvi_arena *a, const char *text)
{
    return rvi_arena_strndup(a, text, strlen(text));
}

static void *copy_bytes(rvi_arena *a, const void *from, size_t n, size_t size)
{
    void *to = rvi_arena_alloc(a, n, size);
    if (to) memcpy(to, from, n * size);
    return to;
}

static const char *const *copy_texts(rvi_arena *a, const char *const *from, size_t n)
{
    const char **to = rvi_arena_alloc(a, n, sizeof *to);
    for (size_t i = 0; to && i < n; i++)
        if (!(to[i] = copy_text(a, from[i]))) return NULL;
    return to;
}

static bool copy_sampling(rvi_arena *a, rv_sampling *s)
{
    if (s->n_logit_bias &&
        !(s->logit_bias = copy_bytes(a, s->logit_bias, s->n_logit_bias, sizeof *s->logit_bias)))
        return false;
    if (s->n_dry_breakers && !(s->dry_breakers = copy_texts(a, s->dry_breakers, s->n_dry_breakers)))
        return false;
    return !s->order || (s->order = copy_text(a, s->order));
}

/* Its texts are those of the caller's messages. */
static bool copy_json(rvi_arena *a, rvi_json *v)
{
    if (v->key && !(v->key = rvi_arena_strndup(a, v->key, v->key_len))) return false;
    if (v->kind == RVI_JSON_STRING)
        return (v->as.string.data = rvi_arena_strndup(a, v->as.string.data, v->as.string.len));
    if ((v->kind != RVI_JSON_ARRAY && v->kind != RVI_JSON_OBJECT) || !v->as.list.count) return true;
    rvi_json *items = copy_bytes(a, v->as.list.items, v->as.list.count, sizeof *items);
    v->as.list.items = items;
    for (size_t i = 0; items && i < v->as.list.count; i++)
        if (!copy_json(a, &items[i])) return false;
    return items;
}

/* ---- what lives as long as the request ---- */

typedef struct held {
    rv_service *service;      /* outlives it */
    rv_adapter_set *adapters; /* may be NULL */
    bool is_kept;             /* a session on disk, which says what its adapters were */
    rv_grammar *grammar;      /* may be NULL */
    uint32_t grammar_state;
    rv_learner *learner; /* may be NULL, then there are no sessions */
    rvi_json chat;
    rv_chat rendered; /* how: special, now */
    rv_time now;
    rv_session *sessions; /* one for each choice: what the learner decided */
    rv_session *judged;   /* borrowed; NULL: nobody will judge the answer */
    rv_given given;       /* ids NULL: the answer is a new one */
} held;

/* An answer that was given before is the model's, whatever it has been taught since, unless it is
 * what a lesson says, or its beginning, or what the model made of one that it read. */
static void look_at_given(const held *h, rv_session *own)
{
    const rvi_lesson *x = rvi_lessons_find(&h->learner->l->lessons, own->lesson);
    bool knew = x && x->event <= h->given.version;
    size_t len = strlen(h->given.text);
    bool spoken = own->slot.len && len && knew && !strncmp(x->answer, h->given.text, len);
    if (spoken || (own->reads && knew)) return;
    rvi_ids_deinit(&own->slot);
    own->reads = own->begun = false;
}

static rv_status begin(void *ctx, int choice, rvi_session *s, rv_error *err)
{
    held *h = ctx;
    rv_session *own = &h->sessions[choice];
    *own =
        (rv_session){.e = h->service->e, .s = s, .adapters = h->adapters, .unjudged = !h->judged};
    rv_status st = rvi_api_begin_learning(h->learner, own, &h->chat, NULL, err);
    if (!st && h->given.ids) look_at_given(h, own);
    return st;
}

static bool prepare(void *ctx)
{
    held *h = ctx;
    if (h->is_kept && h->adapters && rvi_api_digest_set(h->adapters)) return true;
    return h->learner && rvi_api_prepare_learning(h->learner, &h->chat, h->judged);
}

/* The prompt was made by whoever submitted it, who could not find out what is likely to be asked
 * for. Without memory, or room in the context, no lesson is read. */
static bool compose(void *ctx, rvi_order *r)
{
    held *h = ctx;
    rv_service *s = h->service;
    rvi_arena arena = {.max = RVI_API_CHAT_BYTES};
    rvi_ids ids = {0};
    uint64_t lesson = 0;
    rv_status st = rvi_api_find_read(h->learner, &h->chat, &lesson, NULL);
    if (h->given.ids && lesson > h->given.version) return false;
    bool reads = !st && rvi_api_read_lesson(h->learner, &h->rendered, &h->chat, lesson,
                                            s->n_context, &arena, &ids);
    int32_t *kept = reads ? copy_bytes(&r->arena, ids.data, ids.len, sizeof *kept) : NULL;
    if (kept) {
        r->ids = kept;
        r->n_ids = (int)ids.len;
        r->o.max_tokens = RVI_MIN(r->o.max_tokens, s->n_context - r->n_ids);
    }
    rvi_ids_deinit(&ids);
    rvi_arena_deinit(&arena);
    return kept != NULL;
}

static rv_status started(void *ctx, int choice, rvi_session *s, rv_error *err)
{
    held *h = ctx;
    rv_status st = rvi_api_constrain(s, h->grammar, h->grammar_state, err);
    if (!st && h->learner) st = rvi_api_apply_lesson(&h->sessions[choice], err);
    /* known, its tokens are rows of a few steps instead of one each */
    rvi_slot known = {.ids = h->given.ids, .n = RVI_MIN(h->given.n_ids, RVI_MAX_SLOT)};
    return st || !known.n ? st : rvi_answer_lock(s, &known, err);
}

/* What is judged later, without its pages and what took part in it. */
static void hand_over(rv_session *from, rv_session *to)
{
    rvi_api_leave_learner(to->learner, to->held, to->capture);
    rvi_free(to->question);
    rvi_free(to->meant);
    rvi_ids_deinit(&to->slot);
    to->learner = rvi_api_retain_learner(from->learner);
    to->held = NULL;
    rvi_api_deinit_composed(to);
    to->s->adapters = to->adapters ? &to->adapters->set : NULL;
    to->capture = to->s->capture = from->capture;
    to->question = from->question;
    to->meant = from->meant;
    to->lesson = from->lesson;
    to->spoke = from->spoke;
    to->read = from->read;
    to->reads = to->begun = false;
    from->capture = NULL;
    from->question = from->meant = NULL;
}

static void ended(void *ctx, int choice, bool good)
{
    held *h = ctx;
    rv_session *own = &h->sessions[choice];
    if (h->judged && own->learner && good) hand_over(own, h->judged);
    rvi_api_leave_learner(own->learner, own->held, own->capture);
    rvi_api_deinit_composed(own);
    rvi_free(own->question);
    rvi_free(own->meant);
    rvi_ids_deinit(&own->slot);
    *own = (rv_session){0};
}

static void release(void *ctx)
{
    held *h = ctx;
    rvi_api_release_set(h->adapters);
    rvi_api_release_learner(h->learner);
    rvi_api_release_grammar(h->grammar);
    rvi_free(h->sessions);
    rvi_free(h);
}

static rv_status hold(const rv_service *s, const rv_request *q, rvi_order *r, rv_error *err)
{
    held *h = rvi_zalloc(sizeof *h);
    if (!h) return rvi_nomem(err, "request");
    h->service = (rv_service *)(uintptr_t)s;
    h->adapters = rvi_api_retain_set(q->adapters);
    r->hooks = (rvi_order_hooks){.started = started, .release = release, .ctx = h};
    r->adapters = q->adapters ? &q->adapters->set : NULL;
    h->is_kept = q->session;
    if (h->is_kept && h->adapters) r->hooks.prepare = prepare;
    if (!q->learner || !q->chat) return RV_OK;
    h->sessions = rvi_zalloc_array((size_t)r->n_jobs, sizeof *h->sessions);
    if (!h->sessions) return rvi_nomem(err, "request");
    h->learner = rvi_api_retain_learner(q->learner);
    h->judged = q->judged;
    r->hooks.prepare = prepare;
    if (q->kind == RV_REQUEST_ANSWER) r->hooks.compose = compose;
    r->hooks.begin = begin;
    r->hooks.ended = ended;
    return RV_OK;
}

/* ---- an answer that was given ---- */

/* Only the token that was given at this place may come. */
static int as_given(void *ctx, const int32_t *ids, size_t n_ids, float *logits, size_t n_vocab)
{
    const rv_given *g = &((const held *)ctx)->given;
    (void)ids;
    if (n_ids >= g->n_ids) return 1;
    for (size_t i = 0, id = (size_t)g->ids[n_ids]; i < n_vocab; i++)
        if (i != id) logits[i] = -INFINITY;
    if (!(logits[g->ids[n_ids]] > -INFINITY)) logits[g->ids[n_ids]] = 0;
    return 0;
}

static rv_status give_again(const rv_service *s, const rv_given *given, rvi_order *r, rv_error *err)
{
    held *h = r->hooks.ctx;
    size_t room = (size_t)RVI_MAX(s->n_context - r->n_ids, 0);
    rv_status st = rvi_engine_check_ids(s->e->e, given->ids, given->n_ids, err);
    if (st) return st;
    if (given->n_ids > room)
        return rvi_error(err, RV_E_TOO_LONG,
                         "the prompt has %d tokens and the answer %zu, more than the context of %d",
                         r->n_ids, given->n_ids, s->n_context);
    h->given = *given;
    h->given.ids = copy_bytes(&r->arena, given->ids, given->n_ids, sizeof *given->ids);
    h->given.text = copy_text(&r->arena, given->text);
    r->exact = r->beside = true;
    r->o = (rv_generate_options){.size = sizeof r->o,
                                 .sampling = &r->sampling,
                                 .max_tokens = (int)given->n_ids,
                                 .top_logprobs = -1,
                                 .ignore_eos = 1,
                                 .mask = as_given,
                                 .ctx = h};
    return h->given.ids && h->given.text ? RV_OK : rvi_nomem(err, "request");
}

/* ---- checks ---- */

static rv_status check_judged(const rv_service *s, const rv_request *q, rv_error *err)
{
    if (q->judged && (q->kind != RV_REQUEST_ANSWER || q->n > 1 || !q->chat || !q->learner))
        return rvi_error(err, RV_E_INVALID,
                         "the one answer to a chat that a learner takes part in is judged");
    if (q->judged && q->judged->e->m != s->e->m)
        return rvi_error(err, RV_E_INVALID, "the session is of another model");
    if (q->judged && q->judged->s->answer)
        return rvi_error(err, RV_E_STATE, "the session has an answer that was not finished");
    if (q->given && (!q->judged || !q->given->ids || !q->given->n_ids || !q->given->text))
        return rvi_error(err, RV_E_INVALID,
                         "an answer that was given has tokens, a text, and a "
                         "session to be judged on");
    return RV_OK;
}

static rv_status check(const rv_service *s, const rv_request *q, rv_error *err)
{
    const rv_model *m = s->e->m;
    if ((unsigned)q->kind > RV_REQUEST_SCORE)
        return rvi_error(err, RV_E_CONFIG, "kind must be 0..%d (got %d)", RV_REQUEST_SCORE,
                         (int)q->kind);
    if (m->model->arch->is_encoder && q->kind != RV_REQUEST_EMBED)
        return rvi_error(err, RV_E_INVALID, "%s makes embeddings; it predicts no tokens", m->name);
    if (!q->chat == !q->ids && !(q->session && !q->chat && !q->n_ids))
        return rvi_error(err, RV_E_INVALID, "a request has either a chat or ids");
    if (q->adapters && q->adapters->m != m)
        return rvi_error(err, RV_E_ADAPTER, "the adapters were loaded for another model");
    if (q->adapters && q->kind == RV_REQUEST_EMBED)
        return rvi_error(err, RV_E_ADAPTER, "embeddings are made without adapters");
    if (q->learner && q->learner->m != m)
        return rvi_error(err, RV_E_INVALID, "the learner is of another model");
    if (q->n < 0 || q->n > MOST_CHOICES)
        return rvi_error(err, RV_E_CONFIG, "n must be 0..%d (got %d)", MOST_CHOICES, q->n);
    if (q->n > 1 && q->kind != RV_REQUEST_ANSWER)
        return rvi_error(err, RV_E_CONFIG, "n must be 1 where nothing is generated (got %d)", q->n);
    if (q->priority < -MOST_PRIORITY || q->priority > MOST_PRIORITY)
        return rvi_error(err, RV_E_CONFIG, "priority must be -%d..%d (got %d)", MOST_PRIORITY,
                         MOST_PRIORITY, q->priority);
    if (!(q->timeout >= 0) || q->timeout > 1e9)
        return rvi_error(err, RV_E_CONFIG, "timeout must be 0..1e9 seconds (got %g)", q->timeout);
    if ((q->tenant && strlen(q->tenant) > LONGEST_NAME) ||
        (q->salt && strlen(q->salt) > LONGEST_NAME) ||
        (q->session && strlen(q->session) > LONGEST_NAME))
        return rvi_error(err, RV_E_CONFIG, "tenant, salt and session have at most %d bytes",
                         LONGEST_NAME);
    if (q->session && !s->sessions)
        return rvi_error(err, RV_E_CONFIG, "the service keeps no sessions");
    if (q->session && (q->kind != RV_REQUEST_ANSWER || q->n > 1))
        return rvi_error(err, RV_E_CONFIG, "a session has one answer at a time");
    return check_judged(s, q, err);
}

/* ---- reading ---- */

static rv_status read_generate(const rv_service *s, const rv_request *q, rvi_order *r,
                               rv_error *err)
{
    rv_generate_options *o = &r->o;
    rv_status st = rvi_api_read_generate(o, q->generate, &r->sampling, err);
    if (!st && o->draft_session)
        st = rvi_error(err, RV_E_INVALID, "a request of a service takes no draft_session");
    if (!st && q->given) st = give_again(s, q->given, r, err);
    if (!st) st = rvi_sampling_check(&r->sampling, err);
    if (!st) st = rvi_api_check_grammar(s->e->m, o, err);
    if (!st) st = rvi_answer_check(s->e->e, s->n_context, (size_t)r->n_ids, o, err);
    if (st) return st;
    held *h = r->hooks.ctx;
    h->grammar = rvi_api_retain_grammar(o->grammar);
    h->grammar_state = o->grammar_state;
    o->grammar = NULL;
    o->sampling = NULL;
    o->on_event = NULL;
    o->max_tokens = RVI_MIN(o->max_tokens, s->n_context - r->n_ids);
    if (o->n_stop && !(o->stop = copy_texts(&r->arena, o->stop, o->n_stop)))
        return rvi_nomem(err, "request");
    return copy_sampling(&r->arena, &r->sampling) ? RV_OK : rvi_nomem(err, "request");
}

static rv_status read_embed(const rv_service *s, const rv_request *q, rvi_order *r, rv_error *err)
{
    rv_embed_options o;
    rvi_engine *e = s->e->e;
    int32_t *cut = NULL;
    size_t n = (size_t)r->n_ids;
    rv_status st = rvi_api_read_struct(&o, sizeof o, q->embed, "rv_embed_options", err);
    if (!st && !o.refuse_long) st = rvi_api_cut_ids(s->e->m, r->ids, &n, &cut, err);
    if (!st && cut && !(r->ids = copy_bytes(&r->arena, cut, n, sizeof *cut)))
        st = rvi_nomem(err, "request");
    rvi_free(cut);
    r->n_ids = (int)n;
    r->embed = (rvi_embed_options){.pooling = o.pooling, .normalize = !o.keep_length};
    return st ? st : rvi_embed_check(e->m, e->o.max_rows, r->ids, n, &r->embed, err);
}

static rv_status read_score(const rv_request *q, rvi_order *r, rv_error *err)
{
    enum { MOST_TOP = 20 };
    if (q->n_top < 0 || q->n_top > MOST_TOP)
        return rvi_error(err, RV_E_CONFIG, "n_top must be 0..%d (got %d)", MOST_TOP, q->n_top);
    r->n_top = q->n_top;
    return r->n_ids < 2 ? rvi_error(err, RV_E_INVALID, "scores need at least 2 ids") : RV_OK;
}

/* The n ids behind those of the session, if it has some, in the arena. */
static rv_status take_ids(rvi_order *r, const int32_t *from, size_t n, bool behind, rv_error *err)
{
    size_t n_before = behind && r->kept ? r->kept->n_ids : 0, all = n_before + n;
    if (!all) return rvi_error(err, RV_E_INVALID, "the prompt is empty");
    if (all > RVI_MAX_CONTEXT)
        return rvi_error(err, RV_E_TOO_LONG, "the prompt has %zu tokens, more than %d", all,
                         RVI_MAX_CONTEXT);
    int32_t *ids = rvi_arena_alloc(&r->arena, all, sizeof *ids);
    if (!ids) return rvi_nomem(err, "request");
    for (size_t i = 0; i < n_before; i++) ids[i] = rvi_kept_id(r->kept, i);
    if (n) memcpy(ids + n_before, from, n * sizeof *ids);
    r->ids = ids;
    r->n_ids = (int)all;
    return RV_OK;
}

/* The ids of a chat or those given, in the arena. */
static rv_status read_ids(const rv_service *s, const rv_request *q, rvi_order *r, rv_error *err)
{
    enum { MOST = 64 << 20 };
    const rv_model *m = s->e->m;
    rvi_arena arena = {.max = RVI_API_CHAT_BYTES};
    const rvi_json *json = NULL;
    rvi_ids ids = {0};
    rv_chat chat;
    rv_status st = RV_OK;
    held *h = r->hooks.ctx;
    r->arena.max = MOST;
    if (q->chat) {
        st = rvi_api_read_chat(&chat, &json, q->chat, &arena, err);
        if (!st) st = rvi_api_learned_ids(h->learner, m, &chat, json, &arena, &ids, err);
        if (!st && h->learner) {
            h->chat = *json;
            h->rendered = (rv_chat){.size = sizeof chat, .special = chat.special};
            if (chat.now) {
                h->now = *chat.now;
                h->rendered.now = &h->now;
            }
            if (!copy_json(&r->arena, &h->chat)) st = rvi_nomem(err, "request");
        }
    }
    const int32_t *from = q->chat ? ids.data : q->ids;
    size_t n = q->chat ? ids.len : q->n_ids;
    if (!st) st = take_ids(r, from, n, !q->chat && !q->whole, err);
    if (!st) st = rvi_engine_check_ids(s->e->e, r->ids, (size_t)r->n_ids, err);
    rvi_ids_deinit(&ids);
    rvi_arena_deinit(&arena);
    return st;
}

static rv_status fill(const rv_service *s, const rv_request *q, rvi_order *r, rv_error *err)
{
    const char *tenant = q->tenant ? q->tenant : "";
    r->kind = q->kind;
    r->priority = q->priority;
    r->exact = q->exact != 0;
    r->whole = q->whole != 0;
    r->user = q->user;
    r->deadline = q->timeout > 0 ? rvi_os_seconds() + q->timeout : 0;
    r->tenant = copy_text(&r->arena, tenant);
    r->salt = copy_text(&r->arena, q->salt ? q->salt : tenant);
    rv_status st = r->tenant && r->salt ? RV_OK : rvi_nomem(err, "request");
    if (!st) st = hold(s, q, r, err);
    if (!st && q->session) st = rvi_sessions_claim(s->sessions, tenant, q->session, &r->kept, err);
    if (!st) st = read_ids(s, q, r, err);
    if (st) return st;
    switch (q->kind) {
    case RV_REQUEST_EMBED: return read_embed(s, q, r, err);
    case RV_REQUEST_SCORE: return read_score(q, r, err);
    default: return read_generate(s, q, r, err);
    }
}

rv_status rvi_service_read(const rv_service *s, const rv_request *given, rvi_order **out,
                           rv_error *err)
{
    rv_request q;
    *out = NULL;
    rv_status st = rvi_api_read_struct(&q, sizeof q, given, "rv_request", err);
    if (!st) st = check(s, &q, err);
    if (!st) st = rvi_order_new(out, q.n ? q.n : 1, err);
    if (st) return st;
    st = fill(s, &q, *out, err);
    if (st) {
        rvi_order_free(*out);
        *out = NULL;
    }
    return st;
}
