#include "server/dialect.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/number.h"

static const char *type_of(int status)
{
    switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 429: return "rate_limit_error";
    case 503: return "unavailable_error";
    case 504: return "timeout_error";
    default: return status < 500 ? "invalid_request_error" : "server_error";
    }
}

bool rvi_problem_set(rvi_problem *p, int status, const char *code, const char *param,
                     const char *fmt, ...)
{
    va_list args;
    *p = (rvi_problem){.status = status, .type = type_of(status), .code = code};
    va_start(args, fmt);
    (void)rvi_vsnprintf(p->message, sizeof p->message, fmt, args);
    va_end(args);
    if (param) snprintf(p->param, sizeof p->param, "%s", param);
    return false;
}

/* A word that is a path becomes its last part, and so does what follows it, for folders may have
 * spaces in their names; "key/value" is none. */
void rvi_problem_hide_paths(char *text)
{
    bool within = false; /* a path, whose end was not seen */
    char *to = text;
    for (const char *at = text; *at;) {
        size_t before = strspn(at, " \n'\"("), n = strcspn(at + before, " \n"), last = n;
        memmove(to, at, before);
        to += before;
        at += before;
        while (last && at[last - 1] != '/') last--;
        bool is_path = last && (within || strchr("/.~", *at) || memchr(at + last, '.', n - last) ||
                                memchr(at + last, ':', n - last));
        within = (within || is_path) && n && !strchr(":'\")", at[n - 1]);
        size_t from = is_path ? last : 0;
        memmove(to, at + from, n - from);
        to += n - from;
        at += n;
    }
    *to = 0;
}

/* A problem of this machine rather than of the request: clients need not know what lies where. */
static bool set_hidden(rvi_problem *p, int status, const char *code, const char *text)
{
    (void)rvi_problem_set(p, status, code, NULL, "%s", text);
    rvi_problem_hide_paths(p->message);
    return false;
}

bool rvi_problem_timed_out(rvi_problem *p, double timeout)
{
    return rvi_problem_set(p, 504, "timeout", "timeout",
                           "the request was not answered within its timeout of %g seconds",
                           timeout);
}

bool rvi_problem_from(rvi_problem *p, rv_status st, const rv_error *err)
{
    const char *text = err->text[0] ? err->text : rv_status_text(st);
    switch (st) {
    case RV_E_BUSY: return rvi_problem_set(p, 429, "queue_full", NULL, "%s", text);
    case RV_E_TOO_LONG:
    case RV_E_CONTEXT_FULL:
        return rvi_problem_set(p, 400, "context_length_exceeded", NULL, "%s", text);
    case RV_E_NOT_FOUND: return set_hidden(p, 404, "not_found", text);
    case RV_E_STORAGE: return set_hidden(p, 503, "store_unavailable", text);
    case RV_E_NOMEM: return set_hidden(p, 503, "out_of_memory", text);
    case RV_E_INVALID:
    case RV_E_CONFIG:
    case RV_E_TOKENIZATION:
    case RV_E_UNSUPPORTED: return rvi_problem_set(p, 400, NULL, NULL, "%s", text);
    case RV_E_LEARNING:
    case RV_E_GENERATION: return set_hidden(p, 400, NULL, text);
    default: return set_hidden(p, 500, NULL, text);
    }
}

void rvi_dialect_refuse(const rvi_dialect *d, rvi_conn *c, const rvi_problem *p)
{
    rvi_buf body = {0};
    d->write_problem(p, &body);
    if (p->status == 429 || p->status == 503)
        rvi_buf_printf(&c->headers, "retry-after: %d\r\n", p->retry_after ? p->retry_after : 1);
    if (p->status == 401) rvi_buf_puts(&c->headers, "www-authenticate: Bearer\r\n");
    rvi_conn_reply(c, p->status, "application/json", body.failed ? "" : body.data,
                   body.failed ? 0 : body.len);
    rvi_buf_deinit(&body);
}
