/* Requests that name a session, which the service keeps on disk.
 *
 * Clients send the whole conversation each time: the answer is the one without a session, which
 * saves computing what agrees again after a restart. A session is read, and all of it is hashed,
 * before the service has the request: on a thread for that, for others wait for the event loop. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/os.h"
#include "server/native.h"
#include "server/openai.h"
#include "server/reply.h"

/* ---- what may be asked for ---- */

static bool are_kept(const rvi_serving *s, rvi_problem *p)
{
    return s->served.service.sessions ||
           rvi_problem_set(p, 400, "sessions_off", "session",
                           "this server keeps no sessions; serve --sessions DIR does");
}

static bool busy(const char *name, rvi_problem *p)
{
    return rvi_problem_set(p, 409, "session_busy", "session",
                           "session '%.200s' has a request that has not ended", name);
}

bool rvi_call_session_damaged(const char *name, rvi_problem *p)
{
    return rvi_problem_set(p, 500, "session_damaged", "session",
                           "the file of session '%.200s' is damaged; delete the session to begin "
                           "it again",
                           name);
}

/* Nobody else uses the folder, so that the calls know who has which session. */
static bool is_free(const rvi_call *k)
{
    for (const rvi_call *other = k->s->calls; other; other = other->next)
        if (other->claims && !strcmp(other->tenant, k->tenant) &&
            !strcmp(other->wish.session, k->wish.session))
            return false;
    return true;
}

static bool check(rvi_call *k)
{
    rvi_problem *p = &k->problem;
    if (!are_kept(k->s, p)) return false;
    if (k->n_choices != 1)
        return rvi_problem_set(p, 400, "unsupported_parameter", "session",
                               "a session has one answer at a time (got %d)", k->n_choices);
    return is_free(k) || busy(k->wish.session, p);
}

/* ---- submitting ---- */

/* What it points to is the call's, which counts it among what is open: also when the service's last
 * event comes before the submitting thread is done with the service. */
typedef struct handover {
    rvi_work work;
    rvi_part *part;
    rv_service *service;
    rv_request r;
    rv_generate_options generate;
    double posted; /* when */
    uint64_t id;
    rv_status st;
    rv_error err;
} handover;

static void submit(rvi_work *w)
{
    static const double AT_ONCE = 1e-6; /* 0 would be no timeout */
    handover *h = (handover *)w;
    if (h->r.timeout > 0)
        h->r.timeout = RVI_MAX(h->r.timeout - (rvi_os_seconds() - h->posted), AT_ONCE);
    h->st = rv_service_submit(h->service, &h->r, &h->id, &h->err);
}

static void submitted(rvi_work *w)
{
    handover *h = (handover *)w;
    rvi_call *k = h->part->call;
    if (!h->st) {
        rvi_call_taken(h->part, h->id);
    } else {
        (void)rvi_call_refused(k, &h->r, h->st, &h->err);
        k->n_open--; /* no event will come of it */
    }
    rvi_free(h);
    rvi_call_leave(k);
}

bool rvi_call_submit_session(rvi_part *part, const rv_request *r)
{
    rvi_call *k = part->call;
    if (!check(k)) return false;
    handover *h = rvi_zalloc(sizeof *h);
    if (!h) return rvi_problem_set(&k->problem, 503, NULL, NULL, "out of memory");
    *h = (handover){.work = {.run = submit, .done = submitted},
                    .part = part,
                    .service = k->s->service,
                    .r = *r,
                    .generate = *r->generate,
                    .posted = rvi_os_seconds()};
    h->r.generate = &h->generate;
    h->r.session = k->wish.session;
    h->r.whole = 1;
    h->st = rvi_error(&h->err, RV_E_CANCELLED, "the server is shutting down");
    k->claims = true;
    k->opens = true;
    k->n_open += 2;
    rvi_worker_post(k->s->server->reader, &h->work);
    return true;
}

/* ---- what became of it ---- */

void rvi_call_note_session(rvi_call *k, const rv_service_event *done)
{
    if (!k->claims || (!done->saved && !done->session_status)) return;
    k->tells_session = true;
    if (done->saved) return;
    snprintf(k->not_saved, sizeof k->not_saved, "%s",
             done->error ? done->error : rv_status_text(done->session_status));
    rvi_problem_hide_paths(k->not_saved);
}

void rvi_call_put_session(const rvi_call *k, rvi_buf *out)
{
    if (!k->tells_session) return;
    rvi_buf_puts(out, ",\"session\":{\"id\":");
    rvi_put_text(out, k->wish.session);
    rvi_buf_printf(out, ",\"saved\":%s", *k->not_saved ? "false" : "true");
    if (*k->not_saved) rvi_put_member(out, "error", k->not_saved);
    rvi_buf_putc(out, '}');
}

/* ---- those that are kept ---- */

void rvi_native_sessions(rvi_serving *s, rvi_conn *c)
{
    rvi_problem p;
    rv_error err = {0};
    rvi_buf out = {0};
    rv_listed_session *list = NULL;
    size_t n = 0;
    bool ok = are_kept(s, &p);
    rv_status st = ok ? rv_service_list_sessions(s->service, c->key->name, &list, &n, &err) : RV_OK;
    if (st) ok = rvi_problem_from(&p, st, &err);
    if (!ok) {
        rvi_dialect_refuse(&rvi_openai, c, &p);
        return;
    }
    rvi_buf_puts(&out, "{\"object\":\"list\",\"data\":[");
    for (size_t i = 0; i < n; i++) {
        rvi_buf_puts(&out, i ? ",{\"id\":" : "{\"id\":");
        rvi_put_text(&out, list[i].name);
        rvi_buf_printf(&out, ",\"object\":\"session\",\"saved_at\":%llu}",
                       (unsigned long long)list[i].saved);
    }
    rvi_buf_puts(&out, "]}");
    rv_free(list);
    rvi_reply_json(&rvi_openai, c, &out);
}

void rvi_native_forget_session(rvi_serving *s, rvi_conn *c)
{
    char name[3 * RVI_SESSION_NAME + 1];
    rvi_problem p;
    rv_error err = {0};
    rvi_buf out = {0};
    snprintf(name, sizeof name, "%s", strstr(c->in.path, "/sessions/") + strlen("/sessions/"));
    rvi_http_unescape(name, false);
    bool ok = are_kept(s, &p);
    rv_status st = ok ? rv_service_forget(s->service, c->key->name, name, &err) : RV_OK;
    if (st) ok = st == RV_E_BUSY ? busy(name, &p) : rvi_problem_from(&p, st, &err);
    if (!ok) {
        rvi_dialect_refuse(&rvi_openai, c, &p);
        return;
    }
    rvi_buf_puts(&out, "{\"id\":");
    rvi_put_text(&out, name);
    rvi_buf_puts(&out, ",\"object\":\"session\",\"deleted\":true}");
    rvi_reply_json(&rvi_openai, c, &out);
}
