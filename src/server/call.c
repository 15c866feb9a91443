#include "server/call.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/os.h"
#include "server/adapters.h"
#include "server/presets.h"
#include "server/quick.h"
#include "server/times.h"

enum { MOST_ARENA = 256 << 20 };

void rvi_call_drop(rvi_call *k)
{
    if (k->writer->drop) k->writer->drop(k);
    for (int i = 0; i < k->n_choices; i++) {
        rvi_buf_deinit(&k->choices[i].text);
        rvi_buf_deinit(&k->choices[i].probs);
        rvi_items_free(&k->choices[i].said);
        rvi_free(k->choices[i].ids);
    }
    for (int i = 0; i < k->n_parts; i++) {
        rvi_free(k->parts[i].values);
        rvi_free(k->parts[i].top);
    }
    rv_grammar_free(&k->grammar);
    rv_tools_free(&k->tools);
    rv_adapter_set_free(&k->adapters);
    rvi_taught_leave(k->taught);
    rvi_buf_deinit(&k->chat);
    rvi_buf_deinit(&k->question);
    rvi_buf_deinit(&k->begun);
    rvi_arena_deinit(&k->arena);
    rvi_serving_leave(k->s);
    if (k->unloads && k->s->server->list)
        (void)rv_models_unload(k->s->server->list, k->s->name, NULL);
    if (k->prev)
        k->prev->next = k->next;
    else
        k->s->calls = k->next;
    if (k->next) k->next->prev = k->prev;
    rvi_free(k);
}

void rvi_calls_free(rvi_serving *s)
{
    while (s->calls) rvi_call_drop(s->calls);
}

static void cancel_parts(rvi_call *k)
{
    for (int i = 0; i < k->n_parts; i++)
        if (k->parts[i].request) rv_service_cancel(k->s->service, k->parts[i].request);
}

/* The client has left. */
static void on_gone(void *ctx)
{
    rvi_call *k = ctx;
    k->conn = NULL;
    cancel_parts(k);
}

/* Tells the client what is wrong, as a response or as the last event of one. */
static void refuse(rvi_call *k)
{
    rvi_conn *c = k->conn;
    if (!c) return;
    k->conn = NULL;
    c->gone = NULL;
    if (c->phase != RVI_CONN_STREAMING) {
        rvi_dialect_refuse(k->writer->dialect, c, &k->problem);
        return;
    }
    rvi_buf line = {0};
    rvi_buf_puts(&line, k->writer->dialect->before);
    k->writer->dialect->write_problem(&k->problem, &line);
    rvi_buf_puts(&line, k->writer->dialect->after);
    if (!line.failed) rvi_conn_send(c, line.data, line.len);
    rvi_buf_deinit(&line);
    c->in.keep_alive = false;
    rvi_conn_end(c);
}

/* ---- making ---- */

/* One that is ready is taken at once; any other is loaded by the worker before the request is
 * submitted. */
static bool choose_adapter(rvi_call *k, const char *name, rvi_problem *p)
{
    bool ready;
    const char *adapter = rvi_adapters_find(k->s, name, &ready, p);
    if (!adapter) return false;
    k->model = name;
    k->adapter = ready ? NULL : adapter;
    rv_error err = {0};
    rv_status st = ready ? rvi_adapters_load(k->s, adapter, &k->adapters, &err) : RV_OK;
    return !st || rvi_adapters_problem(p, adapter, st, &err);
}

static bool is_given(const rvi_call *k, const char *name)
{
    const rvi_json *v = rvi_json_get(k->body, name);
    return v && !rvi_json_is(v, RVI_JSON_NULL);
}

/* Where a request does not say: what llama-server samples with, and what it was told when it was
 * started. */
static void set_defaults(rvi_call *k)
{
    const rvi_llama *l = &k->s->server->llama;
    rvi_wish *w = &k->wish;
    if (!l->on) return;
    if (!is_given(k, "top_k")) w->sampling.top_k = 40;
    if (!is_given(k, "top_p")) w->sampling.top_p = 0.95F;
    if (!is_given(k, "min_p")) w->sampling.min_p = 0.05F;
    if (!is_given(k, "repeat_penalty") && !is_given(k, "repetition_penalty"))
        w->sampling.repetition_penalty = 1;
    w->sampling.order =
        "penalties,dry,top_n_sigma,top_k,typical_p,top_p,min_p,xtc,temperature,mirostat";
    if (l->has_seed && !is_given(k, "seed")) w->sampling.seed = l->seed;
    if (l->has_temperature && !w->has_temperature) {
        w->sampling.temperature = l->temperature;
        w->sampling.greedy = l->temperature <= 0;
    }
    if (l->n_predict && !is_given(k, "max_tokens") && !is_given(k, "max_completion_tokens") &&
        !is_given(k, "max_output_tokens") && !is_given(k, "n_predict"))
        w->generate.max_tokens = l->n_predict;
}

/* The model that a request names: it, one of its adapters, or a preset, whose options stand before
 * those of the request. */
static bool check_model(rvi_call *k, unsigned what, rvi_problem *p)
{
    const char *adapter = NULL;
    const rvi_json *model = rvi_json_get(k->body, "model");
    if (!model || rvi_json_is(model, RVI_JSON_NULL)) return true;
    if (!rvi_json_is(model, RVI_JSON_STRING))
        return rvi_problem_set(p, 400, "invalid_type", "model", "model must be a string");
    const char *name = rvi_json_string(model, "");
    if (rvi_presets_find(k->s->server, name)) {
        if (!rvi_presets_apply(k->s->server, name, what, &k->body, &k->arena, &adapter, p) ||
            (adapter && !choose_adapter(k, adapter, p)))
            return false;
        k->model = name;
        return true;
    }
    if (!rvi_serving_is(k->s, name)) return choose_adapter(k, name, p);
    if (!k->s->any_model) k->model = name;
    return true;
}

rvi_call *rvi_call_new(rvi_serving *s, rvi_conn *c, const rvi_writer *w, unsigned what,
                       const char *prefix)
{
    rvi_buf ignored = {0};
    rvi_problem p = {0};
    rvi_call *k = rvi_zalloc(sizeof *k);
    if (!k) {
        (void)rvi_problem_set(&p, 503, NULL, NULL, "out of memory");
        rvi_dialect_refuse(w->dialect, c, &p);
        return NULL;
    }
    rvi_serving_stay(s); /* it is held while a request is handled */
    *k = (rvi_call){.s = s, .conn = c, .writer = w, .arena = {.max = MOST_ARENA}};
    k->model = s->name;
    k->beginning = -1;
    k->created = (long)time(NULL);
    k->since = c->since;
    snprintf(k->tenant, sizeof k->tenant, "%s", c->key->name);
    bool taken = rvi_taught_take(&s->teaching, c->key, s->server->worker, &k->taught) ||
                 rvi_problem_set(&k->problem, 503, NULL, NULL, "out of memory");
    k->learned = rvi_taught_version(k->taught);
    k->next = s->calls;
    if (k->next) k->next->prev = k;
    s->calls = k;
    snprintf(k->id, sizeof k->id, "%s%016llx%08llx", prefix, (unsigned long long)rvi_os_random(),
             (unsigned long long)rvi_os_random() & 0xFFFFFFFF);
    bool ok = taken && rvi_wish_body(&k->body, &c->in.body, &k->arena, &k->problem) &&
              check_model(k, what, &k->problem) &&
              rvi_wish_read(&k->wish, what, k->body, &k->arena, &ignored, &k->problem) &&
              (set_defaults(k), true) &&
              rvi_form_grammar(&k->wish.form, s->model, &k->grammar, &k->problem);
    if (ignored.len && !ignored.failed)
        rvi_buf_printf(&c->headers, "x-ruvllm-ignored: %s\r\n", ignored.data);
    rvi_buf_deinit(&ignored);
    if (ok) return k;
    rvi_call_start(k);
    return NULL;
}

static void on_item(void *ctx, const rvi_answer_item *item, rvi_item_event event, const char *text,
                    size_t len)
{
    const rvi_choice *c = ctx;
    rvi_call *k = c->call;
    if (k->conn) k->writer->said(k, (int)(c - k->choices), item, event, text, len);
}

static void on_event(rvi_recipient *r, const rv_service_event *e);

bool rvi_call_parts(rvi_call *k, int n_parts, int n_generating)
{
    size_t n_choices = (size_t)n_generating * (size_t)k->wish.n;
    k->parts = rvi_arena_alloc(&k->arena, (size_t)n_parts, sizeof *k->parts);
    k->choices = rvi_arena_alloc(&k->arena, n_choices + 1, sizeof *k->choices);
    if (!k->parts || !k->choices)
        return rvi_problem_set(&k->problem, 503, NULL, NULL, "out of memory");
    k->n_parts = n_parts;
    k->n_choices = (int)n_choices;
    for (int i = 0; i < n_parts; i++)
        k->parts[i] = (rvi_part){.recipient = {.event = on_event}, .call = k, .index = i};
    for (int i = 0; i < k->n_choices; i++) {
        k->choices[i].call = k;
        k->choices[i].said =
            (rvi_answer_items){.tools = k->tools, .hear = on_item, .ctx = &k->choices[i]};
    }
    return true;
}

/* ---- submitting ---- */

/* In the words by which client libraries know it. */
static bool too_long(rvi_call *k, const rv_request *r)
{
    rv_error err = {0};
    size_t n = r->n_ids;
    int32_t *ids = NULL;
    if (r->chat && rv_chat_tokenize(k->s->model, r->chat, &ids, &n, &err)) n = 0;
    rv_free(ids);
    if (k->s->server->llama.on && r->kind == RV_REQUEST_EMBED)
        (void)rvi_problem_set(&k->problem, 400, "context_length_exceeded", NULL,
                              "input (%zu tokens) is too large to process: at most %d", n,
                              k->s->n_context);
    else if (k->s->server->llama.on)
        (void)rvi_problem_set(&k->problem, 400, "context_length_exceeded", NULL,
                              "request (%zu tokens) exceeds the available context size (%d tokens)",
                              n, k->s->n_context);
    else
        (void)rvi_problem_set(&k->problem, 400, "context_length_exceeded",
                              r->chat ? "messages" : NULL,
                              "This model's maximum context length is %d tokens. However, your "
                              "prompt has %zu tokens. Please reduce its length.",
                              k->s->n_context, n);
    if (k->s->server->llama.on) k->problem.type = "exceed_context_size_error";
    k->problem.n_prompt = (long)n;
    k->problem.n_context = k->s->n_context;
    return false;
}

static bool timed_out(rvi_call *k)
{
    return rvi_problem_timed_out(&k->problem, (double)k->wish.timeout);
}

/* Of its time some may be over: the model or an adapter had to be loaded. False: all of it. */
static bool set_timeout(rvi_call *k, rv_request *r)
{
    if (!(k->wish.timeout > 0)) return true;
    r->timeout = (double)k->wish.timeout - (rvi_os_seconds() - k->since);
    return r->timeout > 0 || timed_out(k);
}

bool rvi_call_refused(rvi_call *k, const rv_request *r, rv_status st, const rv_error *err)
{
    if (st == RV_E_TOO_LONG && k->s->n_context) return too_long(k, r);
    if (st == RV_E_STATE && r->session)
        return rvi_problem_set(&k->problem, 429, "session_limit", "session",
                               "there are as many sessions as this key may have; delete one to "
                               "begin another");
    if (st == RV_E_STORAGE && r->session) return rvi_call_session_damaged(r->session, &k->problem);
    return rvi_problem_from(&k->problem, st, err);
}

bool rvi_call_submit(rvi_call *k, int i, rv_request *r)
{
    rv_error err = {0};
    rvi_part *part = &k->parts[i];
    if (k->s->info.is_encoder && r->kind != RV_REQUEST_EMBED)
        return rvi_problem_set(&k->problem, 400, "model_not_supported", "model",
                               "The model '%.200s' makes embeddings; it writes no texts",
                               k->s->name);
    if (k->adapter && r->kind != RV_REQUEST_EMBED) {
        part->waits = true;
        part->later = *r;
        return true;
    }
    r->size = sizeof *r;
    r->user = &part->recipient;
    r->tenant = k->tenant;
    r->priority = -k->wish.priority;
    if (!set_timeout(k, r)) return false;
    if (r->kind != RV_REQUEST_EMBED) r->adapters = k->adapters;
    rv_generate_options go = k->wish.generate;
    go.sampling = &k->wish.sampling;
    go.grammar = k->tools ? rv_tools_grammar(k->tools) : k->grammar;
    /* a text that is continued may go on with a blank */
    go.continues = r->ids && (!k->talk.size || k->begun.len);
    if (r->kind == RV_REQUEST_ANSWER) {
        r->generate = &go;
        r->n = k->wish.n;
    }
    part->kind = r->kind;
    if (r->kind == RV_REQUEST_ANSWER && k->wish.session) return rvi_call_submit_session(part, r);
    rv_status st = rv_service_submit(k->s->service, r, &part->request, &err);
    if (st) return rvi_call_refused(k, r, st, &err);
    k->n_open++;
    return true;
}

/* llama-server begins every prompt with the token that begins a text, whatever the template says.
 * True: this one lacks it. */
static bool lacks_beginning(rvi_call *k)
{
    int32_t *ids = NULL, *first = NULL;
    size_t n = 0, n_first = 0;
    rv_error err;
    bool lacks = k->s->server->llama.on &&
                 !rv_tokenize(k->s->model, "", 0, RV_TOKENIZE_BOS, &first, &n_first, &err) &&
                 n_first && !rv_chat_tokenize(k->s->model, &k->talk, &ids, &n, &err) &&
                 (!n || ids[0] != first[0]);
    if (lacks) k->beginning = first[0];
    rv_free(ids);
    rv_free(first);
    return lacks;
}

/* The ids of the chat up to the reply, and of what the reply begins with. */
static bool submit_begun(rvi_call *k)
{
    const rvi_buf *begun = &k->begun;
    rv_error err = {0};
    int32_t *ids = NULL, *more = NULL, *all = NULL;
    size_t n = 0, n_more = 0;
    rv_status st = rv_chat_tokenize(k->s->model, &k->talk, &ids, &n, &err);
    if (!st && begun->len)
        st = rv_tokenize(k->s->model, begun->data, begun->len, 0, &more, &n_more, &err);
    size_t at = k->beginning >= 0;
    if (!st && !(all = rvi_arena_alloc(&k->arena, n + n_more + 1, sizeof *all)))
        st = rvi_nomem(&err, "prompt");
    if (!st && at) all[0] = k->beginning;
    if (!st && n) memcpy(all + at, ids, n * sizeof *ids);
    if (!st && n_more) memcpy(all + at + n, more, n_more * sizeof *more);
    rv_free(ids);
    rv_free(more);
    rv_request r = {.kind = RV_REQUEST_ANSWER, .ids = all, .n_ids = at + n + n_more};
    return st ? rvi_problem_from(&k->problem, st, &err) : rvi_call_submit(k, 0, &r);
}

static bool submit_taught(rvi_call *k)
{
    rv_request r = {.kind = RV_REQUEST_ANSWER,
                    .chat = &k->talk,
                    .learner = k->taught ? k->taught->learner : NULL};
    k->learned = rvi_taught_version(k->taught);
    return rvi_call_submit(k, 0, &r);
}

typedef struct opening {
    rvi_work work;
    rvi_call *call;
    rv_status st;
    rv_error err;
} opening;

static void open_taught(rvi_work *w)
{
    opening *o = (opening *)w;
    o->st = rvi_taught_open(&o->call->s->teaching, o->call->taught, &o->err);
}

/* The client may have left meanwhile. */
static void taught_opened(rvi_work *w)
{
    opening *o = (opening *)w;
    rvi_call *k = o->call;
    rvi_taught_opened(k->taught);
    k->opens = false;
    if (!k->conn) {
        rvi_call_drop(k);
    } else {
        k->conn->gone = NULL;
        if (!k->taught->ready)
            (void)rvi_problem_from(&k->problem, o->st ? o->st : RV_E_STATE, &o->err);
        else
            (void)submit_taught(k);
        rvi_call_start(k);
    }
    rvi_free(o);
}

bool rvi_call_submit_chat(rvi_call *k)
{
    rvi_quick_today(&k->now);
    if (k->s->server->llama.on && k->chat.len) {
        k->chat.len--; /* the brace */
        rvi_quick_put_variables(&k->chat, rvi_json_get(k->body, "tools"));
        rvi_buf_putc(&k->chat, '}');
    }
    k->talk = (rv_chat){.size = sizeof k->talk, .variables = k->chat.data, .now = &k->now};
    if (k->chat.failed || k->begun.failed)
        return rvi_problem_set(&k->problem, 503, NULL, NULL, "out of memory");
    if (!rvi_call_parts(k, 1, 1)) return false;
    if (lacks_beginning(k) || k->begun.len) return submit_begun(k);
    if (!k->taught || k->taught->ready) return submit_taught(k);
    opening *o = rvi_zalloc(sizeof *o);
    if (!o) return rvi_problem_set(&k->problem, 503, NULL, NULL, "out of memory");
    *o = (opening){.work = {.run = open_taught, .done = taught_opened}, .call = k};
    k->opens = true;
    rvi_worker_post(k->s->server->worker, &o->work);
    return true;
}

/* ---- an adapter that is not ready ---- */

static bool waits(const rvi_call *k)
{
    for (int i = 0; i < k->n_parts; i++)
        if (k->parts[i].waits) return true;
    return false;
}

static void load_adapter(rvi_work *w)
{
    opening *o = (opening *)w;
    o->st = rvi_adapters_load(o->call->s, o->call->adapter, &o->call->adapters, &o->err);
}

/* The client may have left meanwhile. */
static void adapter_loaded(rvi_work *w)
{
    opening *o = (opening *)w;
    rvi_call *k = o->call;
    bool ok = !o->st && k->adapters;
    const char *adapter = k->adapter;
    k->adapter = NULL;
    if (!k->conn) {
        rvi_call_drop(k);
    } else {
        k->conn->gone = NULL;
        if (!ok)
            (void)rvi_adapters_problem(&k->problem, adapter, o->st ? o->st : RV_E_STATE, &o->err);
        for (int i = 0; ok && i < k->n_parts; i++) {
            ok = !k->parts[i].waits || rvi_call_submit(k, i, &k->parts[i].later);
            k->parts[i].waits = false;
        }
        rvi_call_start(k);
    }
    rvi_free(o);
}

static bool post_loading(rvi_call *k)
{
    opening *o = rvi_zalloc(sizeof *o);
    if (!o) return rvi_problem_set(&k->problem, 503, NULL, NULL, "out of memory");
    *o = (opening){.work = {.run = load_adapter, .done = adapter_loaded}, .call = k};
    rvi_worker_post(k->s->server->worker, &o->work);
    return true;
}

void rvi_call_start(rvi_call *k)
{
    bool loads = !k->problem.status && !k->opens && waits(k) && post_loading(k);
    if (k->problem.status) {
        refuse(k);
        cancel_parts(k);
        if (!k->n_open) rvi_call_drop(k);
        return;
    }
    k->conn->gone = on_gone;
    k->conn->gone_ctx = k;
    if (k->opens || loads) return;
    if (k->writer->begin) k->writer->begin(k);
}

void rvi_call_taken(rvi_part *part, uint64_t request)
{
    rvi_call *k = part->call;
    if (part->request) return;
    part->request = request;
    k->opens = false;
    if (!k->conn)
        rv_service_cancel(k->s->service, request);
    else if (k->writer->begin)
        k->writer->begin(k);
}

/* ---- events ---- */

static void keep_id(rvi_choice *c, int32_t id)
{
    if (id < 0) return;
    if (c->n_ids == c->cap_ids) {
        size_t cap = c->cap_ids ? c->cap_ids * 2 : 64;
        int32_t *ids = rvi_realloc_array(c->ids, cap, sizeof *ids);
        if (!ids) return;
        c->ids = ids;
        c->cap_ids = cap;
    }
    c->ids[c->n_ids++] = id;
}

static void on_token(rvi_call *k, int choice, const rv_service_event *e)
{
    rvi_choice *c = &k->choices[choice];
    keep_id(c, e->id);
    if (!(c->first_token > 0)) c->first_token = rvi_os_seconds();
    if (!k->spoke) rvi_times_add(&k->s->first_token, c->first_token - k->since);
    k->spoke = true;
    rvi_buf_append(&c->text, e->text, e->text_len);
    if (k->writer->token) k->writer->token(k, choice, e);
    if (k->writer->said && k->conn) rvi_items_read(&c->said, e->text, e->text_len);
}

static void on_progress(rvi_call *k, rvi_part *p, const rv_service_event *e)
{
    if (!p->progressed) k->writer->progress(k, p->index, e->n_reused);
    p->progressed = true;
    if (e->n_done > e->n_reused) k->writer->progress(k, p->index, e->n_done);
}

static void keep_values(rvi_part *p, const rv_service_event *e)
{
    if (!e->n_values || p->values) return;
    p->values = rvi_alloc_array(e->n_values, sizeof *p->values);
    if (e->n_top) p->top = rvi_alloc_array(e->n_top, sizeof *p->top);
    if (!p->values || (e->n_top && !p->top)) {
        (void)rvi_problem_set(&p->call->problem, 503, NULL, NULL, "out of memory");
        return;
    }
    memcpy(p->values, e->values, e->n_values * sizeof *p->values);
    p->n_values = e->n_values;
    p->n_top = e->n_top / e->n_values;
    if (p->top) memcpy(p->top, e->top, e->n_top * sizeof *p->top);
}

static void end_items(rvi_choice *c)
{
    rvi_items_end(&c->said);
    if (c->said.failed) c->text.failed = true;
}

/* Where feedback can find it. */
static void remember(const rvi_call *k, int choice)
{
    const rvi_choice *c = &k->choices[choice];
    rvi_buf calls = {0};
    if (!k->chat.len || k->chat.failed || k->question.failed || c->text.failed) return;
    if (rvi_items_call(&c->said)) rvi_items_put_calls(&c->said, &calls);
    rvi_said said = {.by = k->s,
                     .choice = choice,
                     .chat = k->chat.data,
                     .question = k->question.len ? k->question.data : "",
                     .text = c->text.len ? c->text.data : "",
                     .ids = c->ids,
                     .n_ids = c->n_ids,
                     .calls = calls.failed ? NULL : calls.data,
                     .instructed = k->instructed,
                     .learned = k->learned,
                     .temperature = k->wish.sampling.greedy ? 0 : k->wish.sampling.temperature};
    snprintf(said.id, sizeof said.id, "%s", k->id);
    snprintf(said.tenant, sizeof said.tenant, "%s", k->tenant);
    rvi_answers_add(&k->s->server->answers, &said);
    rvi_buf_deinit(&calls);
}

/* Where it can be found after a restart and by other instances: once it is whole, because they read
 * it once. */
static void share(const rvi_call *k)
{
    if (!rvi_json_bool(rvi_json_get(k->body, "store"), true)) return;
    for (int i = 0; i < k->n_choices; i++) {
        const rvi_said *said = rvi_answers_find(&k->s->server->answers, k->tenant, k->id, i);
        if (said) rvi_kept_put(&k->s->server->kept, said, k->s->name);
    }
}

static void count(rvi_llama *l, const rv_service_event *e)
{
    l->n_prompt += (uint64_t)(e->choice ? 0 : e->n_prompt - e->n_reused);
    l->n_cached += (uint64_t)(e->choice ? 0 : e->n_reused);
    l->n_predicted += (uint64_t)e->n_generated;
    l->prompt_seconds += e->prompt_seconds;
    l->predicted_seconds += e->seconds;
    l->most = RVI_MAX(l->most, (uint64_t)(e->n_prompt + e->n_generated));
}

static void on_done(rvi_call *k, rvi_part *p, int choice, const rv_service_event *e)
{
    keep_values(p, e);
    count(&k->s->server->llama, e);
    rvi_call_note_session(k, e);
    k->n_forgotten += e->n_evicted;
    k->coarse = k->coarse || e->coarse;
    if (e->finish == RV_FINISH_ERROR) {
        rv_error err = {.code = e->status};
        snprintf(err.text, sizeof err.text, "%s", e->error ? e->error : "");
        if (!k->problem.status) (void)rvi_problem_from(&k->problem, e->status, &err);
        cancel_parts(k);
    } else if (e->finish == RV_FINISH_CANCELLED && !k->problem.status) {
        if (e->timed_out)
            (void)timed_out(k);
        else
            (void)rvi_problem_set(&k->problem, 503, NULL, NULL, "the server is shutting down");
    } else if (p->kind == RV_REQUEST_ANSWER) {
        rvi_choice *c = &k->choices[choice];
        c->finish = e->finish;
        c->stop = e->stop;
        c->n_generated = e->n_generated;
        c->queue_seconds = e->queue_seconds;
        c->prompt_seconds = e->prompt_seconds;
        c->seconds = e->seconds;
        if (k->writer->said && k->conn) end_items(c);
        remember(k, choice);
        if (k->conn && k->writer->done) k->writer->done(k, choice);
    }
}

void rvi_call_leave(rvi_call *k)
{
    if (--k->n_open) return;
    if (k->problem.status) {
        refuse(k);
    } else if (k->conn) {
        k->conn->gone = NULL;
        k->writer->end(k);
        rvi_times_add(&k->s->whole, rvi_os_seconds() - k->since);
    }
    share(k);
    rvi_call_drop(k);
}

static void on_event(rvi_recipient *r, const rv_service_event *e)
{
    rvi_part *p = (rvi_part *)r;
    rvi_call *k = p->call;
    int choice = p->index * k->wish.n + e->choice;
    rvi_call_taken(p, e->request);
    if (e->kind != RV_SERVICE_END) {
        p->n_prompt = e->n_prompt;
        p->n_reused = e->n_reused;
    }
    if (e->kind == RV_SERVICE_PROMPT && k->conn && k->writer->progress) on_progress(k, p, e);
    if (e->kind == RV_SERVICE_TOKEN && k->conn) on_token(k, choice, e);
    if (e->kind == RV_SERVICE_DONE) on_done(k, p, choice, e);
    if (e->kind == RV_SERVICE_END) rvi_call_leave(k);
}

/* ---- figures ---- */

rvi_usage rvi_call_usage(const rvi_call *k)
{
    rvi_usage u = {0};
    for (int i = 0; i < k->n_parts; i++) {
        if (k->parts[i].kind == RV_REQUEST_SCORE) continue;
        u.prompt += k->parts[i].n_prompt;
        u.cached += k->parts[i].n_reused;
    }
    for (int i = 0; i < k->n_choices; i++) u.generated += k->choices[i].n_generated;
    return u;
}

void rvi_call_put_state(const rvi_call *k, rvi_buf *out)
{
    unsigned long long version = k->learned;
    rvi_buf_printf(out, ",\"system_fingerprint\":\"%s-%llu\",\"learned_version\":%llu",
                   k->s->fingerprint, version, version);
    rvi_call_put_end(k, out);
}

void rvi_call_put_end(const rvi_call *k, rvi_buf *out)
{
    if (k->n_forgotten) rvi_buf_printf(out, ",\"forgotten_tokens\":%ld", k->n_forgotten);
    if (k->coarse) rvi_buf_puts(out, ",\"coarse\":true");
    rvi_call_put_session(k, out);
}

bool rvi_call_token_text(const rvi_serving *s, int32_t id, rvi_buf *out)
{
    const char *name;
    char *text = NULL;
    size_t len = 0;
    rv_error err;
    if (rv_token_get(s->model, id, &name, &len) != RV_TOKEN_NORMAL) {
        rvi_buf_append(out, name, len);
        return true;
    }
    if (!rv_token_bytes(s->model, id, &text, &len, &err) ||
        !rv_detokenize(s->model, &id, 1, 0, &text, &len, &err))
        rvi_buf_append(out, text, len);
    rv_free(text);
    return false;
}
