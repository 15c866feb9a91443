#include "learn/consolidate/base_model.h"

#include <string.h>

#include "base/mem.h"
#include "decode/sampler.h"

/* ---- prompts ---- */

static rvi_json text_node(const char *key, const char *text, size_t len)
{
    rvi_json node = {.kind = RVI_JSON_STRING};
    node.as.string.data = text;
    node.as.string.len = len;
    return rvi_json_named(node, key);
}

static rv_status render(const rvi_base_model *v, const rvi_text *turns, size_t n, rvi_buf *out,
                        rv_error *err)
{
    rvi_json members[RVI_BASE_TURNS][2], messages[RVI_BASE_TURNS];
    for (size_t i = 0; i < n; i++) {
        members[i][0] = i % 2 ? text_node("role", "assistant", 9) : text_node("role", "user", 4);
        members[i][1] = text_node("content", turns[i].data, turns[i].len);
        messages[i] = rvi_json_list(RVI_JSON_OBJECT, members[i], 2);
    }
    rvi_json begin = {.kind = RVI_JSON_BOOL, .as.boolean = true};
    rvi_json top[2] = {rvi_json_named(rvi_json_list(RVI_JSON_ARRAY, messages, n), "messages"),
                       rvi_json_named(begin, "add_generation_prompt")};
    rvi_json conversation = rvi_json_list(RVI_JSON_OBJECT, top, 2);
    return rvi_chat_render(v->chat, &conversation, NULL, out, err);
}

rv_status rvi_base_model_chat(const rvi_base_model *v, const rvi_text *turns, size_t n,
                              rvi_ids *out, rv_error *err)
{
    rvi_buf text = {0};
    rv_status st = render(v, turns, n, &text, err);
    if (!st) st = rvi_tokenizer_encode(v->t, text.data ? text.data : "", text.len, 0, out, err);
    rvi_buf_deinit(&text);
    return st;
}

rv_status rvi_base_model_prompt(const rvi_base_model *v, const char *question, size_t len,
                                rvi_ids *out, rv_error *err)
{
    return rvi_base_model_chat(v, &(rvi_text){question, len}, 1, out, err);
}

rv_status rvi_base_model_encode(const rvi_base_model *v, const char *text, size_t len, rvi_ids *out,
                                rv_error *err)
{
    return rvi_tokenizer_encode(v->t, text, len, RVI_TOK_PLAIN, out, err);
}

static bool is_end(const rvi_base_model *v, int32_t id)
{
    for (size_t i = 0; i < v->eos->len; i++)
        if (v->eos->data[i] == id) return true;
    return false;
}

rv_status rvi_base_model_decode(const rvi_base_model *v, const int32_t *ids, size_t n, rvi_buf *out,
                                rv_error *err)
{
    size_t len = 0;
    while (len < n && !is_end(v, ids[len])) len++;
    return rvi_tokenizer_decode(v->t, ids, len, RVI_TOK_SKIP_SPECIAL, out, err);
}

/* The tokens with which two prompts that have nothing in common but the template begin. */
static rv_status find_frame(rvi_base_model *v, rv_error *err)
{
    rvi_ids a = {0}, b = {0};
    rv_status st = rvi_base_model_prompt(v, "Why?", 4, &a, err);
    if (!st) st = rvi_base_model_prompt(v, "7", 1, &b, err);
    size_t n = 0;
    while (!st && n < a.len && n < b.len && a.data[n] == b.data[n]) n++;
    if (!rvi_ids_append(&v->frame, a.data, n)) st = rvi_nomem(err, "frame");
    rvi_ids_deinit(&a);
    rvi_ids_deinit(&b);
    return st;
}

/* The end token that the template itself puts behind an answer; else the first of the model's. */
static rv_status find_end(rvi_base_model *v, rv_error *err)
{
    rvi_ids ids = {0};
    size_t len;
    const char *text = rvi_chat_turn_end(v->chat, &len);
    rv_status st = len ? rvi_tokenizer_encode(v->t, text, len, 0, &ids, err) : RV_OK;
    v->end = v->eos->len ? v->eos->data[0] : -1;
    for (size_t i = ids.len; i-- > 0;)
        if (is_end(v, ids.data[i])) v->end = ids.data[i];
    rvi_ids_deinit(&ids);
    if (!st && v->end < 0)
        st = rvi_error(err, RV_E_LEARNING, "the model has no token that ends an answer");
    return st;
}

/* What stands before a document in the texts a model was made from. */
static void find_start(rvi_base_model *v)
{
    static const char *const usual[] = {"<|endoftext|>", "<|begin_of_text|>", "<bos>", "<s>"};
    v->start = -1;
    for (size_t i = 0; v->start < 0 && i < RVI_COUNT(usual); i++)
        v->start = rvi_tokenizer_find(v->t, usual[i], strlen(usual[i]));
    if (v->start < 0) v->start = rvi_tokenizer_bos(v->t);
    if (v->start < 0) v->start = v->end;
}

rv_status rvi_base_model_init(rvi_base_model *v, const rvi_model *m, const rvi_tokenizer *t,
                              const rvi_chat *chat, const rvi_ids *eos, rvi_backend *be,
                              rv_error *err)
{
    *v = (rvi_base_model){.m = m, .t = t, .chat = chat, .eos = eos, .be = be};
    if (!t || !chat)
        return rvi_error(err, RV_E_LEARNING, "learning needs a model with a tokenizer");
    rv_status st = find_frame(v, err);
    if (!st) st = find_end(v, err);
    if (!st) find_start(v);
    if (st) rvi_base_model_deinit(v);
    return st;
}

void rvi_base_model_deinit(rvi_base_model *v)
{
    rvi_ids_deinit(&v->frame);
    *v = (rvi_base_model){0};
}

/* ---- many answers ---- */

void rvi_requests_free(rvi_request *list, size_t n)
{
    for (size_t i = 0; list && i < n; i++) {
        rvi_ids_deinit(&list[i].prompt);
        rvi_ids_deinit(&list[i].answer);
    }
    rvi_free(list);
}

enum { AT_ONCE = 64 };

typedef struct crowd {
    const rvi_base_model *v;
    rvi_request *requests;
    size_t n, next, done;
    rv_sampling sampling;
    uint64_t seed;
    int max_tokens;
    rvi_engine *e;
    rvi_session *seats[AT_ONCE];
    rvi_request *served[AT_ONCE]; /* whose answer is under way on each seat */
} crowd;

/* Tokens that all prompts begin with, and that are computed without adapters. */
static size_t count_shared(const crowd *c)
{
    const rvi_request *first = &c->requests[0];
    size_t n = first->adapters ? 0 : first->prompt.len;
    for (size_t i = 1; n && i < c->n; i++) {
        const rvi_request *r = &c->requests[i];
        size_t same = 0;
        while (same < n && same < r->prompt.len && r->prompt.data[same] == first->prompt.data[same])
            same++;
        n = r->adapters ? 0 : same;
    }
    return n;
}

/* As many as there are answers; fewer where memory is scarce. */
static int count_seats(const crowd *c, int pages)
{
    const rvi_hparams *h = &c->v->m->hp;
    size_t token = (size_t)(h->n_layers * h->n_kv_heads * h->head_size) * 2 * sizeof(uint16_t);
    size_t each = token * RVI_PAGE_TOKENS * (size_t)pages,
           spare = atomic_load(&c->v->be->memory->spare), most = RVI_MIN(c->n, (size_t)AT_ONCE);
    return (int)(spare ? RVI_MAX(RVI_MIN(most, spare / each), 1) : most);
}

static rv_status open_crowd(crowd *c, size_t longest, rv_error *err)
{
    int context = (int)RVI_MIN(longest + (size_t)c->max_tokens + 1, (size_t)RVI_MAX_CONTEXT);
    int pages = (context + RVI_PAGE_TOKENS - 1) / RVI_PAGE_TOKENS;
    int seats = count_seats(c, pages);
    rvi_engine_options o = {.n_tokens = seats * pages * RVI_PAGE_TOKENS,
                            .max_rows = 512,
                            .max_logits = seats,
                            .kv_type = RV_KV_F16,
                            .be = c->v->be};
    rv_status st = rvi_engine_new(&c->e, c->v->m, c->v->t, c->v->eos, &o, err);
    size_t shared = count_shared(c);
    if (!st) st = rvi_session_new(&c->seats[0], c->e, context, NULL, NULL, err);
    if (!st && shared)
        st = rvi_session_sync(c->seats[0], c->requests[0].prompt.data, shared, NULL, NULL, err);
    for (int i = 1; !st && i < seats; i++)
        st = rvi_session_fork(&c->seats[i], c->seats[0], NULL, err);
    return st;
}

static void close_crowd(crowd *c)
{
    for (int i = 0; i < AT_ONCE; i++) rvi_session_free(c->seats[i]);
    rvi_engine_free(c->e);
}

static rv_status seat_next(crowd *c, int seat, rv_error *err)
{
    size_t at = c->next++;
    rvi_request *r = &c->requests[at];
    rv_generate_options o = {.size = sizeof o,
                             .max_tokens = c->max_tokens,
                             .top_logprobs = -1,
                             .sampling = &c->sampling};
    c->sampling.seed = c->seed + at;
    c->seats[seat]->adapters = r->adapters;
    rv_status st = rvi_answer_start(c->seats[seat], r->prompt.data, r->prompt.len, &o, err);
    if (!st) c->served[seat] = r;
    return st;
}

static rv_status collect(crowd *c, int seat, rv_error *err)
{
    rvi_generated g;
    rv_status st = rvi_answer_take(c->seats[seat], &g, err);
    c->served[seat]->answer = g.ids;
    g.ids = (rvi_ids){0};
    rvi_generated_deinit(&g);
    c->served[seat] = NULL;
    c->done++;
    return st;
}

rv_status rvi_base_model_answer(const rvi_base_model *v, rvi_request *requests, size_t n,
                                const rv_sampling *sampling, int max_tokens,
                                rvi_progress_fn progress, void *ctx, rv_error *err)
{
    crowd c = {.v = v, .requests = requests, .n = n, .max_tokens = max_tokens};
    size_t longest = 1;
    if (!n) return RV_OK;
    for (size_t i = 0; i < n; i++) {
        requests[i].answer = (rvi_ids){0};
        longest = RVI_MAX(longest, requests[i].prompt.len);
    }
    if (sampling)
        c.sampling = *sampling;
    else
        rvi_sampling_init(&c.sampling, sizeof c.sampling, true);
    c.seed = c.sampling.seed;
    rv_status st = open_crowd(&c, longest, err);
    while (!st && c.done < n) {
        for (int i = 0; !st && i < AT_ONCE; i++)
            if (c.seats[i] && !c.served[i] && c.next < n) st = seat_next(&c, i, err);
        if (!st) (void)rvi_answer_advance(c.e, NULL);
        size_t before = c.done;
        for (int i = 0; !st && i < AT_ONCE; i++)
            if (c.served[i] && rvi_answer_ended(c.seats[i])) st = collect(&c, i, err);
        if (!st && progress && c.done > before && progress(ctx, c.done, n))
            st = rvi_error(err, RV_E_CANCELLED, "cancelled");
    }
    close_crowd(&c);
    if (st)
        for (size_t i = 0; i < n; i++) rvi_ids_deinit(&requests[i].answer);
    return st;
}
