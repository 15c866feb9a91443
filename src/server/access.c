#include "server/access.h"

#include <string.h>

#include "base/os.h"

/* ---- hosts and pages ---- */

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
static bool is_own_origin(const rvi_conn *c, const char *origin)
{
    if (!strncmp(origin, "http://", 7)) return rvi_http_same(origin + 7, c->in.host);
    if (!strncmp(origin, "https://", 8)) return rvi_http_same(origin + 8, c->in.host);
    return false;
}

static bool is_listed(const rvi_access *a, const char *origin)
{
    size_t n = strlen(origin);
    if (!a->origins) return false;
    if (!strcmp(a->origins, "*")) return true;
    for (const char *at = a->origins; *at; at += strcspn(at, ",")) {
        at += strspn(at, ", ");
        if (!strncmp(at, origin, n) && (at[n] == ',' || !at[n])) return true;
    }
    return false;
}

/* The page may read the answer, whatever it is. */
static void let_read(rvi_conn *c, const char *origin)
{
    rvi_buf_printf(&c->headers,
                   "access-control-allow-origin: %s\r\nvary: origin\r\n"
                   "access-control-expose-headers: x-request-id, retry-after, x-ruvllm-ignored, "
                   "x-ratelimit-limit-requests, x-ratelimit-remaining-requests\r\n",
                   origin);
}

bool rvi_access_preflight(const rvi_access *a, rvi_conn *c)
{
    const char *origin = rvi_http_header_get(&c->in, "origin");
    const char *headers = rvi_http_header_get(&c->in, "access-control-request-headers");
    bool asks = !strcmp(c->in.method, "OPTIONS") && origin &&
                rvi_http_header_get(&c->in, "access-control-request-method");
    if (!asks || !is_listed(a, origin)) return false;
    let_read(c, origin);
    rvi_buf_printf(&c->headers,
                   "access-control-allow-methods: GET, POST, DELETE\r\n"
                   "access-control-allow-headers: %s\r\naccess-control-max-age: 600\r\n",
                   headers ? headers : "authorization, content-type");
    rvi_conn_reply(c, 204, NULL, "", 0);
    return true;
}

static bool check_page(const rvi_access *a, rvi_conn *c, rvi_problem *p)
{
    const char *origin = rvi_http_header_get(&c->in, "origin");
    if (!origin || is_own_origin(c, origin)) return true;
    if (!is_listed(a, origin))
        return rvi_problem_set(p, 403, "origin_not_allowed", NULL,
                               "requests from pages of other origins are not answered");
    let_read(c, origin);
    return true;
}

/* ---- keys ---- */

static rvi_key *key_of(const rvi_access *a, const rvi_conn *c)
{
    static const char bearer[] = "bearer ";
    const char *given = rvi_http_header_get(&c->in, "authorization");
    const char *other = rvi_http_header_get(&c->in, "x-api-key");
    rvi_key *key = NULL;
    if (given && strlen(given) > strlen(bearer)) {
        char scheme[sizeof bearer];
        memcpy(scheme, given, sizeof bearer - 1);
        scheme[sizeof bearer - 1] = 0;
        if (rvi_http_same(scheme, bearer)) key = rvi_keys_find(&a->keys, given + strlen(bearer));
    }
    return key || !other ? key : rvi_keys_find(&a->keys, other);
}

static bool check_rate(rvi_key *key, rvi_conn *c, rvi_problem *p)
{
    double wait = 0;
    bool ok = rvi_key_take(key, rvi_os_seconds(), &wait);
    if (key->rate)
        rvi_buf_printf(&c->headers,
                       "x-ratelimit-limit-requests: %d\r\nx-ratelimit-remaining-requests: %d\r\n",
                       key->rate, (int)key->left);
    if (ok) return true;
    (void)rvi_problem_set(p, 429, "rate_limit_exceeded", NULL,
                          "this key may make %d requests a minute", key->rate);
    p->retry_after = (int)wait + 1;
    return false;
}

static bool check_key(const rvi_access *a, rvi_conn *c, unsigned needs, rvi_problem *p)
{
    static const rvi_key everybody = {.may = RVI_MAY_ALL};
    c->key = &everybody;
    if (!a->keys.n || !needs) return true;
    rvi_key *key = key_of(a, c);
    if (!key)
        return rvi_problem_set(p, 401, "invalid_api_key", NULL,
                               "a valid API key is needed: 'Authorization: Bearer KEY'");
    c->key = key;
    if (c->seen) snprintf(c->seen->who, sizeof c->seen->who, "%s", key->name);
    if ((key->may & needs) != needs)
        return rvi_problem_set(p, 403, "insufficient_scope", NULL, "this key may not do that: %s",
                               needs & RVI_MAY_ADMIN   ? "it lacks the scope admin"
                               : needs & RVI_MAY_TEACH ? "it lacks the scope teach"
                                                       : "it lacks the scope infer");
    return check_rate(key, c, p);
}

bool rvi_access_check(rvi_access *a, rvi_conn *c, unsigned needs, rvi_problem *p)
{
    if (!a->any_host && *c->in.host && !is_own_host(a, c->in.host))
        return rvi_problem_set(p, 403, "host_not_allowed", NULL,
                               "the Host header names a machine that this server is not");
    return check_page(a, c, p) && check_key(a, c, needs, p);
}
