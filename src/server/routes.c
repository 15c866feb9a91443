#include "server/routes.h"

#include <string.h>

#include "server/anthropic.h"
#include "server/feedback.h"
#include "server/native.h"
#include "server/ollama.h"
#include "server/openai.h"
#include "server/page.h"

typedef struct route {
    const char *method, *path; /* without /v1, which every path may begin with; '*' ends a prefix */
    void (*handle)(rvi_serving *s, rvi_conn *c);
    const rvi_dialect *dialect;
    bool open;  /* needs no key */
    bool early; /* needs no model */
} route;

static const route routes[] = {
    {"GET", "/", rvi_page_document, &rvi_openai, true, true},
    {"GET", "/page.css", rvi_page_style, &rvi_openai, true, true},
    {"GET", "/page.js", rvi_page_script, &rvi_openai, true, true},
    {"GET", "/health", rvi_native_health, &rvi_openai, true, true},
    {"GET", "/models", rvi_openai_models, &rvi_openai, false, true},
    {"GET", "/models/*", rvi_openai_model, &rvi_openai, false, true},
    {"POST", "/chat/completions", rvi_openai_chat, &rvi_openai, false, false},
    {"POST", "/completions", rvi_openai_completions, &rvi_openai, false, false},
    {"POST", "/responses", rvi_openai_respond, &rvi_openai, false, false},
    {"POST", "/responses/input_tokens", rvi_openai_response_tokens, &rvi_openai, false, false},
    {"POST", "/responses/*", rvi_openai_response_cancel, &rvi_openai, false, false},
    {"GET", "/responses/*", rvi_openai_response_get, &rvi_openai, false, false},
    {"DELETE", "/responses/*", rvi_openai_response_delete, &rvi_openai, false, false},
    {"POST", "/embeddings", rvi_openai_embeddings, &rvi_openai, false, false},
    {"POST", "/messages", rvi_anthropic_messages, &rvi_anthropic, false, false},
    {"POST", "/messages/count_tokens", rvi_anthropic_count, &rvi_anthropic, false, false},
    {"POST", "/api/chat", rvi_ollama_chat, &rvi_ollama, false, false},
    {"POST", "/api/generate", rvi_ollama_generate, &rvi_ollama, false, false},
    {"POST", "/api/embed", rvi_ollama_embed, &rvi_ollama, false, false},
    {"POST", "/api/embeddings", rvi_ollama_embeddings, &rvi_ollama, false, false},
    {"GET", "/api/tags", rvi_ollama_tags, &rvi_ollama, false, false},
    {"POST", "/api/show", rvi_ollama_show, &rvi_ollama, false, false},
    {"GET", "/api/ps", rvi_ollama_ps, &rvi_ollama, false, false},
    {"GET", "/api/version", rvi_ollama_version, &rvi_ollama, false, true},
    {"GET", "/version", rvi_ollama_version, &rvi_ollama, false, true},
    {"POST", "/api/pull", rvi_ollama_not_here, &rvi_ollama, false, true},
    {"POST", "/api/push", rvi_ollama_not_here, &rvi_ollama, false, true},
    {"POST", "/api/create", rvi_ollama_not_here, &rvi_ollama, false, true},
    {"POST", "/api/copy", rvi_ollama_not_here, &rvi_ollama, false, true},
    {"DELETE", "/api/delete", rvi_ollama_not_here, &rvi_ollama, false, true},
    {"POST", "/tokenize", rvi_native_tokenize, &rvi_openai, false, false},
    {"POST", "/detokenize", rvi_native_detokenize, &rvi_openai, false, false},
    {"POST", "/apply-template", rvi_native_apply_template, &rvi_openai, false, false},
    {"GET", "/metrics", rvi_native_metrics, &rvi_openai, false, false},
    {"POST", "/feedback", rvi_server_feedback, &rvi_openai, false, false},
    {"GET", "/learning", rvi_server_learning, &rvi_openai, false, false},
};

/* ---- who is let in ---- */

/* A name without its port, in its letters as they are. */
static size_t name_len(const char *host)
{
    if (*host == '[') return strcspn(host, "]") + 1;
    return strcspn(host, ":");
}

static bool same_name(const char *host, size_t len, const char *name)
{
    char copy[256];
    if (len >= sizeof copy) return false;
    memcpy(copy, host, len);
    copy[len] = 0;
    return rvi_http_same(copy, name);
}

/* Addresses, and names that always mean this machine. A page of a stranger can make a name of its
 * own mean this machine, but it cannot name an address. */
static bool is_own_host(const rvi_access *a, const char *host)
{
    static const char local[] = ".localhost";
    size_t n = name_len(host);
    if (*host == '[') return true;
    if (strspn(host, "0123456789.") == n && n) return true;
    if (same_name(host, n, "localhost") || (a->host && same_name(host, n, a->host))) return true;
    return n > strlen(local) && same_name(host + n - strlen(local), strlen(local), local);
}

/* A browser sends the page's origin with every request that a page makes across origins. */
static bool is_own_origin(const rvi_conn *c)
{
    const char *origin = rvi_http_header_get(&c->in, "origin");
    if (!origin) return true;
    if (!strncmp(origin, "http://", 7)) return rvi_http_same(origin + 7, c->in.host);
    if (!strncmp(origin, "https://", 8)) return rvi_http_same(origin + 8, c->in.host);
    return false;
}

/* Takes the same time whatever differs, and tells the length alone. */
static bool same_key(const char *given, const char *key)
{
    size_t n = strlen(key);
    unsigned char differ = 0;
    if (strlen(given) != n) return false;
    for (size_t i = 0; i < n; i++) differ |= (unsigned char)(given[i] ^ key[i]);
    return !differ;
}

static bool has_key(const rvi_conn *c, const char *key)
{
    static const char bearer[] = "bearer ";
    const char *given = rvi_http_header_get(&c->in, "authorization");
    const char *other = rvi_http_header_get(&c->in, "x-api-key");
    if (given && strlen(given) > strlen(bearer)) {
        char scheme[sizeof bearer];
        memcpy(scheme, given, sizeof bearer - 1);
        scheme[sizeof bearer - 1] = 0;
        if (rvi_http_same(scheme, bearer) && same_key(given + strlen(bearer), key)) return true;
    }
    return other && same_key(other, key);
}

static bool check_access(const rvi_access *a, const rvi_conn *c, const route *r, rvi_problem *p)
{
    if (!a->any_host && *c->in.host && !is_own_host(a, c->in.host))
        return rvi_problem_set(p, 403, "host_not_allowed", NULL,
                               "the Host header names a machine that this server is not");
    if (!is_own_origin(c))
        return rvi_problem_set(p, 403, "origin_not_allowed", NULL,
                               "requests from pages of other origins are not answered");
    if (a->key && !(r && r->open) && !has_key(c, a->key))
        return rvi_problem_set(p, 401, "invalid_api_key", NULL,
                               "a valid API key is needed: 'Authorization: Bearer KEY'");
    return true;
}

/* ---- which handler ---- */

static bool matches(const route *r, const char *path)
{
    size_t n = strcspn(r->path, "*");
    return r->path[n] ? !strncmp(path, r->path, n) && path[n] : !strcmp(path, r->path);
}

/* The route of a path and method; *other: one of the path alone. */
static const route *find(const rvi_conn *c, const route **other)
{
    const char *path = c->in.path, *method = c->in.method;
    if (!strncmp(path, "/v1/", 4) && path[4]) path += 3;
    if (!strcmp(method, "HEAD")) method = "GET";
    *other = NULL;
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

void rvi_routes_handle(rvi_serving *s, const rvi_access *access, rvi_conn *c)
{
    rvi_problem p = {0};
    const route *other, *r;
    r = find(c, &other);
    const rvi_dialect *d = dialect_of(c, other);
    if (c->in.state == RVI_HTTP_BAD) {
        refuse_bad(c, d);
        return;
    }
    if (d->id_name) rvi_buf_printf(&c->headers, "%s: %s\r\n", d->id_name, c->id);
    if (check_access(access, c, r, &p) && check_route(s, c, r, other, &p))
        r->handle(s, c);
    else
        rvi_dialect_refuse(d, c, &p);
}
