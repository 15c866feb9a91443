#include "server/routes.h"

#include <stdio.h>
#include <string.h>

#include "server/anthropic.h"
#include "server/feedback.h"
#include "server/llama_paths.h"
#include "server/lora.h"
#include "server/models.h"
#include "server/native.h"
#include "server/ollama.h"
#include "server/openai.h"
#include "server/page.h"

/* Which model a path is about, and whether that has to be loaded. */
typedef enum model_needed {
    NONE,
    READY,   /* none, but the first must have been loaded */
    NAMED,   /* that of the body's "model" or the query's model=NAME; without a name the first */
    ANSWERED /* that which gave the answer of the body's "response_id" */
} model_needed;

typedef struct route {
    const char *method, *path; /* without /v1, which every path may begin with; '*' ends a prefix */
    rvi_handler *handle;
    const rvi_dialect *dialect;
    unsigned needs; /* RVI_MAY_...; 0: no key */
    model_needed model;
} route;

/* Of llama-server, before the others and only where it is asked for. */
typedef struct llama_route {
    route r;
    bool bare; /* only without /v1 */
} llama_route;

enum { INFER = RVI_MAY_INFER, TEACH = RVI_MAY_TEACH, ADMIN = RVI_MAY_ADMIN };

static const route routes[] = {
    {"GET", "/", rvi_page_document, &rvi_openai, 0, NONE},
    {"GET", "/page.css", rvi_page_style, &rvi_openai, 0, NONE},
    {"GET", "/page.js", rvi_page_script, &rvi_openai, 0, NONE},
    {"GET", "/health", rvi_native_health, &rvi_openai, 0, NONE},
    {"GET", "/models", rvi_openai_models, &rvi_openai, INFER, NONE},
    {"GET", "/models/*", rvi_openai_model, &rvi_openai, INFER, NONE},
    {"POST", "/chat/completions", rvi_openai_chat, &rvi_openai, INFER, NAMED},
    {"POST", "/chat/completions/input_tokens", rvi_openai_chat_tokens, &rvi_openai, INFER, NAMED},
    {"POST", "/completions", rvi_openai_completions, &rvi_openai, INFER, NAMED},
    {"POST", "/responses", rvi_openai_respond, &rvi_openai, INFER, NAMED},
    {"POST", "/responses/input_tokens", rvi_openai_response_tokens, &rvi_openai, INFER, NAMED},
    {"POST", "/responses/*", rvi_openai_response_cancel, &rvi_openai, INFER, READY},
    {"GET", "/responses/*", rvi_openai_response_get, &rvi_openai, INFER, READY},
    {"DELETE", "/responses/*", rvi_openai_response_delete, &rvi_openai, INFER, READY},
    {"GET", "/sessions", rvi_native_sessions, &rvi_openai, INFER, NAMED},
    {"DELETE", "/sessions/*", rvi_native_forget_session, &rvi_openai, INFER, NAMED},
    {"POST", "/embeddings", rvi_openai_embeddings, &rvi_openai, INFER, NAMED},
    {"POST", "/messages", rvi_anthropic_messages, &rvi_anthropic, INFER, NAMED},
    {"POST", "/messages/count_tokens", rvi_anthropic_count, &rvi_anthropic, INFER, NAMED},
    {"POST", "/api/chat", rvi_ollama_chat, &rvi_ollama, INFER, NAMED},
    {"POST", "/api/generate", rvi_ollama_generate, &rvi_ollama, INFER, NAMED},
    {"POST", "/api/embed", rvi_ollama_embed, &rvi_ollama, INFER, NAMED},
    {"POST", "/api/embeddings", rvi_ollama_embeddings, &rvi_ollama, INFER, NAMED},
    {"GET", "/api/tags", rvi_ollama_tags, &rvi_ollama, INFER, READY},
    {"POST", "/api/show", rvi_ollama_show, &rvi_ollama, INFER, NAMED},
    {"GET", "/api/ps", rvi_ollama_ps, &rvi_ollama, INFER, READY},
    {"GET", "/api/version", rvi_ollama_version, &rvi_ollama, INFER, NONE},
    {"GET", "/version", rvi_ollama_version, &rvi_ollama, INFER, NONE},
    {"POST", "/api/pull", rvi_ollama_not_here, &rvi_ollama, INFER, NONE},
    {"POST", "/api/push", rvi_ollama_not_here, &rvi_ollama, INFER, NONE},
    {"POST", "/api/create", rvi_ollama_not_here, &rvi_ollama, INFER, NONE},
    {"POST", "/api/copy", rvi_ollama_not_here, &rvi_ollama, INFER, NONE},
    {"DELETE", "/api/delete", rvi_ollama_not_here, &rvi_ollama, INFER, NONE},
    {"POST", "/tokenize", rvi_native_tokenize, &rvi_openai, INFER, NAMED},
    {"POST", "/detokenize", rvi_native_detokenize, &rvi_openai, INFER, NAMED},
    {"POST", "/apply-template", rvi_native_apply_template, &rvi_openai, INFER, NAMED},
    {"POST", "/infill", rvi_llama_infill, &rvi_openai, INFER, NAMED},
    {"POST", "/rerank", rvi_llama_rerank, &rvi_openai, INFER, NAMED},
    {"POST", "/reranking", rvi_llama_rerank, &rvi_openai, INFER, NAMED},
    {"GET", "/lora-adapters", rvi_lora_show, &rvi_openai, INFER, READY},
    {"POST", "/load_lora_adapter", rvi_lora_load, &rvi_openai, ADMIN, NAMED},
    {"POST", "/unload_lora_adapter", rvi_lora_unload, &rvi_openai, ADMIN, NAMED},
    {"GET", "/metrics", rvi_native_metrics, &rvi_openai, ADMIN, READY},
    {"POST", "/feedback", rvi_server_feedback, &rvi_openai, TEACH, ANSWERED},
    {"GET", "/learning", rvi_server_learning, &rvi_openai, TEACH, NAMED},
    {"POST", "/learning/undo", rvi_server_undo, &rvi_openai, TEACH, NAMED},
    {"POST", "/learning/rollback", rvi_server_rollback, &rvi_openai, TEACH, NAMED},
    {"POST", "/learning/forget", rvi_server_forget, &rvi_openai, TEACH, NAMED},
    {"POST", "/learning/export", rvi_server_export, &rvi_openai, TEACH, NAMED},
};

static const llama_route llama_routes[] = {
    {{"POST", "/completion", rvi_llama_completion, &rvi_openai, INFER, NAMED}, true},
    {{"POST", "/completions", rvi_llama_completion, &rvi_openai, INFER, NAMED}, true},
    {{"POST", "/embedding", rvi_llama_embeddings, &rvi_openai, INFER, NAMED}, true},
    {{"POST", "/embeddings", rvi_llama_embeddings, &rvi_openai, INFER, NAMED}, true},
    {{"GET", "/props", rvi_llama_props, &rvi_openai, INFER, NAMED}, false},
    {{"GET", "/slots", rvi_llama_slots, &rvi_openai, INFER, NAMED}, false},
    {{"GET", "/metrics", rvi_llama_metrics, &rvi_openai, ADMIN, NAMED}, false},
};

/* ---- which handler ---- */

static bool matches(const route *r, const char *path)
{
    size_t n = strcspn(r->path, "*");
    return r->path[n] ? !strncmp(path, r->path, n) && path[n] : !strcmp(path, r->path);
}

/* The route of a path and method; *other: one of the path alone. */
static const route *find(const rvi_server *v, const rvi_conn *c, const route **other)
{
    const char *path = c->in.path, *method = c->in.method;
    bool bare = strncmp(path, "/v1/", 4) || !path[4];
    if (!bare) path += 3;
    if (!strcmp(method, "HEAD")) method = "GET";
    *other = NULL;
    for (size_t i = 0; v->llama.on && i < RVI_COUNT(llama_routes); i++) {
        const llama_route *l = &llama_routes[i];
        if ((l->bare && !bare) || !matches(&l->r, path)) continue;
        *other = &l->r;
        if (!strcmp(l->r.method, method)) return &l->r;
    }
    if (v->llama.no_ui && !strcmp(path, "/")) return NULL;
    for (size_t i = 0; i < RVI_COUNT(routes); i++) {
        if (!matches(&routes[i], path)) continue;
        *other = &routes[i];
        if (!strcmp(routes[i].method, method)) return &routes[i];
    }
    return NULL;
}

static bool check_route(const rvi_server *v, rvi_conn *c, const route *r, const route *other,
                        rvi_problem *p)
{
    if (!r && other) {
        rvi_buf_printf(&c->headers, "allow: %s\r\n", other->method);
        return rvi_problem_set(p, 405, "method_not_allowed", NULL, "%.40s %.200s: use %s",
                               c->in.method, c->in.path, other->method);
    }
    if (!r)
        return rvi_problem_set(p, 404, "not_found", NULL, "there is nothing at %.200s", c->in.path);
    if (!v->ready && r->model != NONE)
        return rvi_problem_set(p, 503, "model_loading", NULL, "the model is being opened");
    return true;
}

/* Of a path that leads nowhere too. */
static const rvi_dialect *dialect_of(const rvi_conn *c, const route *r)
{
    if ((!r || r->dialect == &rvi_openai) && rvi_anthropic_asks(c)) return &rvi_anthropic;
    if (r) return r->dialect;
    return strncmp(c->in.path, "/api/", 5) ? &rvi_openai : &rvi_ollama;
}

static void refuse_bad(rvi_conn *c, const rvi_dialect *d)
{
    rvi_problem p;
    const char *code = c->in.status == 413 ? "request_too_large" : "bad_request";
    (void)rvi_problem_set(&p, c->in.status, code, NULL, "%s", c->in.why);
    rvi_dialect_refuse(d, c, &p);
}

/* ---- which model ---- */

/* The value of model= in a query, without its escapes, in the arena; NULL: there is none. */
static const char *asked_for(const char *query, rvi_arena *arena)
{
    static const char name[] = "model=";
    while (*query && strncmp(query, name, sizeof name - 1)) {
        query += strcspn(query, "&");
        query += *query == '&';
    }
    if (!*query) return NULL;
    query += sizeof name - 1;
    char *out = rvi_arena_strndup(arena, query, strcspn(query, "&"));
    if (out) rvi_http_unescape(out, true);
    return out;
}

static const rvi_said *answer_of(rvi_server *v, const rvi_conn *c, const rvi_json *body)
{
    const rvi_json *id = rvi_json_get(body, "response_id");
    if (!id) id = rvi_json_get(body, "completion_id");
    return rvi_kept_find(&v->kept, c->key->name, rvi_json_string(id, ""), 0);
}

/* Of several models the one that a request is about; NULL: p says why not. What is wrong with the
 * request but for this, its handler finds. */
static rvi_serving *choose(rvi_server *v, const rvi_conn *c, const route *r, rvi_arena *arena,
                           rvi_problem *p)
{
    const rvi_json *body = NULL;
    rvi_serving *found = &v->models[0];
    if (v->o->n_models == 1 || r->model < NAMED) return found;
    if (c->in.body.len && !rvi_wish_body(&body, &c->in.body, arena, p)) return NULL;
    if (r->model == ANSWERED) {
        const rvi_said *said = answer_of(v, c, body);
        return said && said->by ? said->by : found;
    }
    const rvi_json *model = rvi_json_get(body, "model");
    if (!model && r->dialect == &rvi_ollama) model = rvi_json_get(body, "name");
    const char *name = rvi_json_is(model, RVI_JSON_STRING) ? rvi_json_string(model, "")
                                                           : asked_for(c->in.query, arena);
    if (name && !(found = rvi_serving_find(v, name))) (void)rvi_serving_unknown(v, name, p);
    return found;
}

static void handle(rvi_server *v, rvi_conn *c, const route *r)
{
    enum { MOST_ARENA = 256 << 20 };
    rvi_arena arena = {.max = MOST_ARENA};
    rvi_problem p = {0};
    rvi_serving *s = choose(v, c, r, &arena, &p);
    rvi_arena_deinit(&arena);
    if (!s) {
        rvi_dialect_refuse(r->dialect, c, &p);
    } else if (r->model < NAMED) {
        r->handle(s, c);
    } else if (rvi_serving_enter(s)) {
        r->handle(s, c);
        rvi_serving_leave(s);
    } else {
        rvi_serving_await(s, c, r->handle, r->dialect);
    }
}

void rvi_routes_handle(rvi_server *v, rvi_access *access, rvi_conn *c)
{
    rvi_problem p = {0};
    const route *other, *r;
    r = find(v, c, &other);
    const rvi_dialect *d = dialect_of(c, other);
    if (c->in.state == RVI_HTTP_BAD) {
        refuse_bad(c, d);
        return;
    }
    if (d->id_name) rvi_buf_printf(&c->headers, "%s: %s\r\n", d->id_name, c->id);
    if (rvi_access_preflight(access, c)) return;
    if (rvi_access_check(access, c, r ? r->needs : INFER, &p) && check_route(v, c, r, other, &p))
        handle(v, c, r);
    else
        rvi_dialect_refuse(d, c, &p);
}
