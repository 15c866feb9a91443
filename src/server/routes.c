#include "server/routes.h"

#include <string.h>

#include "server/anthropic.h"
#include "server/feedback.h"
#include "server/llama_paths.h"
#include "server/lora.h"
#include "server/native.h"
#include "server/ollama.h"
#include "server/openai.h"
#include "server/page.h"

typedef struct route {
    const char *method, *path; /* without /v1, which every path may begin with; '*' ends a prefix */
    void (*handle)(rvi_serving *s, rvi_conn *c);
    const rvi_dialect *dialect;
    unsigned needs; /* RVI_MAY_...; 0: no key */
    bool early;     /* needs no model */
} route;

/* Of llama-server, before the others and only where it is asked for. */
typedef struct llama_route {
    route r;
    bool bare; /* only without /v1 */
} llama_route;

enum { INFER = RVI_MAY_INFER, TEACH = RVI_MAY_TEACH, ADMIN = RVI_MAY_ADMIN };

static const route routes[] = {
    {"GET", "/", rvi_page_document, &rvi_openai, 0, true},
    {"GET", "/page.css", rvi_page_style, &rvi_openai, 0, true},
    {"GET", "/page.js", rvi_page_script, &rvi_openai, 0, true},
    {"GET", "/health", rvi_native_health, &rvi_openai, 0, true},
    {"GET", "/models", rvi_openai_models, &rvi_openai, INFER, true},
    {"GET", "/models/*", rvi_openai_model, &rvi_openai, INFER, true},
    {"POST", "/chat/completions", rvi_openai_chat, &rvi_openai, INFER, false},
    {"POST", "/chat/completions/input_tokens", rvi_openai_chat_tokens, &rvi_openai, INFER, false},
    {"POST", "/completions", rvi_openai_completions, &rvi_openai, INFER, false},
    {"POST", "/responses", rvi_openai_respond, &rvi_openai, INFER, false},
    {"POST", "/responses/input_tokens", rvi_openai_response_tokens, &rvi_openai, INFER, false},
    {"POST", "/responses/*", rvi_openai_response_cancel, &rvi_openai, INFER, false},
    {"GET", "/responses/*", rvi_openai_response_get, &rvi_openai, INFER, false},
    {"DELETE", "/responses/*", rvi_openai_response_delete, &rvi_openai, INFER, false},
    {"POST", "/embeddings", rvi_openai_embeddings, &rvi_openai, INFER, false},
    {"POST", "/messages", rvi_anthropic_messages, &rvi_anthropic, INFER, false},
    {"POST", "/messages/count_tokens", rvi_anthropic_count, &rvi_anthropic, INFER, false},
    {"POST", "/api/chat", rvi_ollama_chat, &rvi_ollama, INFER, false},
    {"POST", "/api/generate", rvi_ollama_generate, &rvi_ollama, INFER, false},
    {"POST", "/api/embed", rvi_ollama_embed, &rvi_ollama, INFER, false},
    {"POST", "/api/embeddings", rvi_ollama_embeddings, &rvi_ollama, INFER, false},
    {"GET", "/api/tags", rvi_ollama_tags, &rvi_ollama, INFER, false},
    {"POST", "/api/show", rvi_ollama_show, &rvi_ollama, INFER, false},
    {"GET", "/api/ps", rvi_ollama_ps, &rvi_ollama, INFER, false},
    {"GET", "/api/version", rvi_ollama_version, &rvi_ollama, INFER, true},
    {"GET", "/version", rvi_ollama_version, &rvi_ollama, INFER, true},
    {"POST", "/api/pull", rvi_ollama_not_here, &rvi_ollama, INFER, true},
    {"POST", "/api/push", rvi_ollama_not_here, &rvi_ollama, INFER, true},
    {"POST", "/api/create", rvi_ollama_not_here, &rvi_ollama, INFER, true},
    {"POST", "/api/copy", rvi_ollama_not_here, &rvi_ollama, INFER, true},
    {"DELETE", "/api/delete", rvi_ollama_not_here, &rvi_ollama, INFER, true},
    {"POST", "/tokenize", rvi_native_tokenize, &rvi_openai, INFER, false},
    {"POST", "/detokenize", rvi_native_detokenize, &rvi_openai, INFER, false},
    {"POST", "/apply-template", rvi_native_apply_template, &rvi_openai, INFER, false},
    {"POST", "/infill", rvi_llama_infill, &rvi_openai, INFER, false},
    {"POST", "/rerank", rvi_llama_rerank, &rvi_openai, INFER, false},
    {"POST", "/reranking", rvi_llama_rerank, &rvi_openai, INFER, false},
    {"GET", "/lora-adapters", rvi_lora_show, &rvi_openai, INFER, false},
    {"POST", "/load_lora_adapter", rvi_lora_load, &rvi_openai, ADMIN, false},
    {"POST", "/unload_lora_adapter", rvi_lora_unload, &rvi_openai, ADMIN, false},
    {"GET", "/metrics", rvi_native_metrics, &rvi_openai, ADMIN, false},
    {"POST", "/feedback", rvi_server_feedback, &rvi_openai, TEACH, false},
    {"GET", "/learning", rvi_server_learning, &rvi_openai, TEACH, false},
    {"POST", "/learning/undo", rvi_server_undo, &rvi_openai, TEACH, false},
    {"POST", "/learning/rollback", rvi_server_rollback, &rvi_openai, TEACH, false},
    {"POST", "/learning/forget", rvi_server_forget, &rvi_openai, TEACH, false},
    {"POST", "/learning/export", rvi_server_export, &rvi_openai, TEACH, false},
};

static const llama_route llama_routes[] = {
    {{"POST", "/completion", rvi_llama_completion, &rvi_openai, INFER, false}, true},
    {{"POST", "/completions", rvi_llama_completion, &rvi_openai, INFER, false}, true},
    {{"POST", "/embedding", rvi_llama_embeddings, &rvi_openai, INFER, false}, true},
    {{"POST", "/embeddings", rvi_llama_embeddings, &rvi_openai, INFER, false}, true},
    {{"GET", "/props", rvi_llama_props, &rvi_openai, INFER, false}, false},
    {{"GET", "/slots", rvi_llama_slots, &rvi_openai, INFER, false}, false},
    {{"GET", "/metrics", rvi_llama_metrics, &rvi_openai, ADMIN, false}, false},
};

/* ---- which handler ---- */

static bool matches(const route *r, const char *path)
{
    size_t n = strcspn(r->path, "*");
    return r->path[n] ? !strncmp(path, r->path, n) && path[n] : !strcmp(path, r->path);
}

/* The route of a path and method; *other: one of the path alone. */
static const route *find(const rvi_serving *s, const rvi_conn *c, const route **other)
{
    const char *path = c->in.path, *method = c->in.method;
    bool bare = strncmp(path, "/v1/", 4) || !path[4];
    if (!bare) path += 3;
    if (!strcmp(method, "HEAD")) method = "GET";
    *other = NULL;
    for (size_t i = 0; s->llama.on && i < RVI_COUNT(llama_routes); i++) {
        const llama_route *l = &llama_routes[i];
        if ((l->bare && !bare) || !matches(&l->r, path)) continue;
        *other = &l->r;
        if (!strcmp(l->r.method, method)) return &l->r;
    }
    if (s->llama.no_ui && !strcmp(path, "/")) return NULL;
    for (size_t i = 0; i < RVI_COUNT(routes); i++) {
        if (!matches(&routes[i], path)) continue;
        *other = &routes[i];
        if (!strcmp(routes[i].method, method)) return &routes[i];
    }
    return NULL;
}

static bool check_route(const rvi_serving *s, rvi_conn *c, const route *r, const route *other,
                        rvi_problem *p)
{
    if (!r && other) {
        rvi_buf_printf(&c->headers, "allow: %s\r\n", other->method);
        return rvi_problem_set(p, 405, "method_not_allowed", NULL, "%.40s %.200s: use %s",
                               c->in.method, c->in.path, other->method);
    }
    if (!r)
        return rvi_problem_set(p, 404, "not_found", NULL, "there is nothing at %.200s", c->in.path);
    if (!s->ready && !r->early)
        return rvi_problem_set(p, 503, "model_loading", NULL, "the model is being opened");
    return true;
}

/* Of a path that leads nowhere too. */
static const rvi_dialect *dialect_of(const rvi_conn *c, const route *r)
{
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

void rvi_routes_handle(rvi_serving *s, rvi_access *access, rvi_conn *c)
{
    rvi_problem p = {0};
    const route *other, *r;
    r = find(s, c, &other);
    const rvi_dialect *d = dialect_of(c, other);
    if (c->in.state == RVI_HTTP_BAD) {
        refuse_bad(c, d);
        return;
    }
    if (d->id_name) rvi_buf_printf(&c->headers, "%s: %s\r\n", d->id_name, c->id);
    if (rvi_access_preflight(access, c)) return;
    if (rvi_access_check(access, c, r ? r->needs : INFER, &p) && check_route(s, c, r, other, &p))
        r->handle(s, c);
    else
        rvi_dialect_refuse(d, c, &p);
}
