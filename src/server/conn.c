#include "server/conn.h"

#include <event2/buffer.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "base/os.h"

/* Bytes that wait to be read or to be sent; seconds. */
enum { MOST_IN = 65536, MOST_OUT = 4 << 20 };
enum {
    HEAD_TIME = 60,
    BODY_TIME = 300,
    REST_TIME = 120,
    SEND_TIME = 60,
    PING_TIME = 15,
    LINGER_TIME = 5
};

/* ---- the end ---- */

static void tell_gone(rvi_conn *c)
{
    void (*gone)(void *) = c->gone;
    c->gone = NULL;
    if (gone) gone(c->gone_ctx);
}

static void end_seen(rvi_conn *c, bool left)
{
    rvi_witness_end(c->all->witness, c->seen, c->in.method, c->in.path, c->id, left, &c->in.body);
    c->seen = NULL;
}

static void drop(rvi_conn *c)
{
    tell_gone(c);
    end_seen(c, true);
    if (c->prev)
        c->prev->next = c->next;
    else
        c->all->first = c->next;
    if (c->next) c->next->prev = c->prev;
    c->all->n--;
    bufferevent_free(c->bev);
    rvi_http_deinit(&c->in);
    rvi_buf_deinit(&c->headers);
    rvi_free(c);
}

static size_t unsent(const rvi_conn *c)
{
    return evbuffer_get_length(bufferevent_get_output(c->bev));
}

static void set_phase(rvi_conn *c, rvi_conn_phase phase)
{
    c->phase = phase;
    c->since = rvi_os_seconds();
}

/* ---- requests ---- */

static void new_id(rvi_conn *c)
{
    const char *given = rvi_http_header_get(&c->in, "x-request-id");
    bool good = given && *given && strlen(given) < sizeof c->id;
    for (const char *p = given; good && *p; p++) good = *p > ' ' && *p < 0x7F;
    if (good)
        snprintf(c->id, sizeof c->id, "%s", given);
    else
        snprintf(c->id, sizeof c->id, "req-%016llx", (unsigned long long)rvi_os_random());
}

static void handle(rvi_conn *c)
{
    new_id(c);
    set_phase(c, RVI_CONN_ANSWERING);
    c->key = NULL;
    c->all->n_requests++;
    c->seen = rvi_witness_begin(c->all->witness, c->in.method);
    c->all->handle(c->all->ctx, c);
}

static void tell_to_continue(rvi_conn *c)
{
    static const char text[] = "HTTP/1.1 100 Continue\r\n\r\n";
    if (c->told_to_continue || !c->in.expects_continue || c->in.state != RVI_HTTP_BODY) return;
    c->told_to_continue = true;
    (void)bufferevent_write(c->bev, text, sizeof text - 1);
}

/* Reads requests while there are any and none is being answered. */
static void advance(rvi_conn *c)
{
    struct evbuffer *in = bufferevent_get_input(c->bev);
    if (c->in_advance) return;
    c->in_advance = true;
    while (c->phase == RVI_CONN_READING && evbuffer_get_length(in)) {
        bool begun = rvi_http_begun(&c->in);
        size_t n = evbuffer_get_contiguous_space(in);
        const char *bytes = (const char *)evbuffer_pullup(in, (ev_ssize_t)n);
        (void)evbuffer_drain(in, bytes ? rvi_http_feed(&c->in, bytes, n) : n);
        if (!begun) c->since = rvi_os_seconds();
        tell_to_continue(c);
        if (c->in.state >= RVI_HTTP_WHOLE) handle(c);
    }
    c->in_advance = false;
}

/* ---- responses ---- */

static void put_head(rvi_conn *c, int status, const char *type, rvi_buf *out)
{
    char date[64];
    time_t now = time(NULL);
    struct tm tm;
    if (c->seen) c->seen->status = status;
    rvi_buf_printf(out, "HTTP/1.1 %d %s\r\n", status, rvi_http_reason(status));
    if (gmtime_r(&now, &tm) && evutil_date_rfc1123(date, sizeof date, &tm) > 0)
        rvi_buf_printf(out, "date: %s\r\n", date);
    if (type) rvi_buf_printf(out, "content-type: %s\r\n", type);
    rvi_buf_printf(out, "x-request-id: %s\r\nx-content-type-options: nosniff\r\n", c->id);
    if (c->headers.len && !c->headers.failed) rvi_buf_append(out, c->headers.data, c->headers.len);
    bool keep = c->in.state == RVI_HTTP_WHOLE && c->in.keep_alive && !c->all->draining;
    if (!keep) rvi_buf_puts(out, "connection: close\r\n");
    if (keep && c->in.is_1_0) rvi_buf_puts(out, "connection: keep-alive\r\n");
    if (!keep) c->in.keep_alive = false;
}

/* A stream that began before the server was told to end promised to keep its connection: nobody
 * waits for what may come on it. */
static void finish(rvi_conn *c)
{
    bool keep = c->in.state == RVI_HTTP_WHOLE && c->in.keep_alive && !c->all->draining;
    c->gone = NULL;
    end_seen(c, false);
    c->told_to_continue = false;
    rvi_buf_deinit(&c->headers);
    c->headers = (rvi_buf){0};
    if (!keep) {
        set_phase(c, RVI_CONN_CLOSING);
        return;
    }
    rvi_http_next(&c->in);
    set_phase(c, RVI_CONN_READING);
    advance(c);
}

/* A head that could not be made whole ends the connection: nothing was sent of it. */
static bool send_head(rvi_conn *c, rvi_buf *head)
{
    rvi_buf_puts(head, "\r\n");
    bool ok = !head->failed && !bufferevent_write(c->bev, head->data, head->len);
    rvi_buf_deinit(head);
    if (!ok) c->in.keep_alive = false;
    return ok;
}

void rvi_conn_reply(rvi_conn *c, int status, const char *type, const char *body, size_t len)
{
    rvi_buf head = {0};
    put_head(c, status, len ? type : NULL, &head);
    if (status != 204) rvi_buf_printf(&head, "content-length: %zu\r\n", len);
    bool ok = send_head(c, &head);
    rvi_seen_add(c->seen, body, len);
    if (ok && strcmp(c->in.method, "HEAD") && bufferevent_write(c->bev, body, len))
        c->in.keep_alive = false;
    finish(c);
}

void rvi_conn_stream(rvi_conn *c, const char *type, bool is_events)
{
    rvi_buf head = {0};
    if (c->in.is_1_0) c->in.keep_alive = false; /* the end of the body is that of the connection */
    put_head(c, 200, type, &head);
    rvi_buf_puts(&head, "cache-control: no-cache\r\nx-accel-buffering: no\r\n");
    if (!c->in.is_1_0) rvi_buf_puts(&head, "transfer-encoding: chunked\r\n");
    (void)send_head(c, &head);
    c->is_events = is_events;
    set_phase(c, RVI_CONN_STREAMING);
}

void rvi_conn_send(rvi_conn *c, const char *bytes, size_t len)
{
    struct evbuffer *out = bufferevent_get_output(c->bev);
    if (!len) return;
    rvi_seen_add(c->seen, bytes, len);
    if (!c->in.is_1_0) (void)evbuffer_add_printf(out, "%zx\r\n", len);
    (void)evbuffer_add(out, bytes, len);
    if (!c->in.is_1_0) (void)evbuffer_add(out, "\r\n", 2);
    c->since = rvi_os_seconds();
}

void rvi_conn_end(rvi_conn *c)
{
    if (!c->in.is_1_0) (void)bufferevent_write(c->bev, "0\r\n\r\n", 5);
    finish(c);
}

/* ---- the event loop ---- */

static void on_read(struct bufferevent *bev, void *ctx)
{
    rvi_conn *c = ctx;
    if (c->phase == RVI_CONN_CLOSING)
        (void)evbuffer_drain(bufferevent_get_input(bev), MOST_IN);
    else
        advance(c);
}

/* Who is still sending a request that was refused must not lose the answer: closing would reset the
 * connection, so the rest is read and thrown away for a while. */
static void on_sent(struct bufferevent *bev, void *ctx)
{
    rvi_conn *c = ctx;
    if (c->phase != RVI_CONN_CLOSING) return;
    bool half_sent = c->in.state == RVI_HTTP_BAD && !c->lingers;
    if (!half_sent || shutdown(bufferevent_getfd(bev), SHUT_WR))
        drop(c);
    else
        c->lingers = true;
}

static void on_event(struct bufferevent *bev, short what, void *ctx)
{
    rvi_conn *c = ctx;
    (void)bev;
    if (what & BEV_EVENT_CONNECTED) return; /* TLS has been agreed on */
    bool over = what & (BEV_EVENT_ERROR | BEV_EVENT_TIMEOUT);
    bool idle = c->phase == RVI_CONN_READING || c->phase == RVI_CONN_CLOSING;
    if (!over && idle && unsent(c))
        set_phase(c, RVI_CONN_CLOSING); /* it asked, said that this was all, and waits */
    else
        drop(c);
}

void rvi_conn_accept(rvi_conns *all, evutil_socket_t fd)
{
    const struct timeval send_time = {.tv_sec = SEND_TIME};
    rvi_conn *c = all->n < all->most && !all->draining ? rvi_zalloc(sizeof *c) : NULL;
    struct bufferevent *bev = NULL;
    if (c && all->tls)
        bev = rvi_tls_accept(all->tls, all->base, fd);
    else if (c)
        bev = bufferevent_socket_new(all->base, fd, BEV_OPT_CLOSE_ON_FREE);
    if (!bev) {
        rvi_free(c);
        (void)evutil_closesocket(fd);
        return;
    }
    c->all = all;
    c->bev = bev;
    c->in = rvi_http_init(&all->limits);
    c->next = all->first;
    if (c->next) c->next->prev = c;
    all->first = c;
    all->n++;
    all->n_accepted++;
    set_phase(c, RVI_CONN_READING);
    bufferevent_setcb(bev, on_read, on_sent, on_event, c);
    bufferevent_setwatermark(bev, EV_READ, 0, MOST_IN);
    bufferevent_set_timeouts(bev, NULL, &send_time);
    if (bufferevent_enable(bev, EV_READ | EV_WRITE)) drop(c);
}

static void refuse_late(rvi_conn *c)
{
    c->in.state = RVI_HTTP_BAD;
    c->in.status = 408;
    c->in.why = "the request took too long to come";
    handle(c);
}

static void tick(rvi_conn *c, double now)
{
    double age = now - c->since;
    bool begun = rvi_http_begun(&c->in);
    switch (c->phase) {
    case RVI_CONN_READING:
        if (!begun && age > REST_TIME)
            drop(c);
        else if (begun && age > (c->in.state == RVI_HTTP_BODY ? BODY_TIME : HEAD_TIME))
            refuse_late(c);
        break;
    case RVI_CONN_STREAMING:
        if (unsent(c) > MOST_OUT)
            drop(c); /* it does not read */
        else if (c->is_events && age > PING_TIME)
            rvi_conn_send(c, ": keep-alive\n\n", 14);
        break;
    case RVI_CONN_CLOSING:
        if (age > (unsent(c) ? SEND_TIME : LINGER_TIME)) drop(c);
        break;
    case RVI_CONN_ANSWERING: break;
    }
}

void rvi_conns_tick(rvi_conns *all)
{
    double now = rvi_os_seconds();
    for (rvi_conn *c = all->first, *next; c; c = next) {
        next = c->next;
        tick(c, now);
    }
}

void rvi_conns_drain(rvi_conns *all)
{
    all->draining = true;
    for (rvi_conn *c = all->first, *next; c; c = next) {
        next = c->next;
        if (c->phase != RVI_CONN_READING || rvi_http_begun(&c->in)) continue;
        if (unsent(c))
            set_phase(c, RVI_CONN_CLOSING);
        else
            drop(c);
    }
}

void rvi_conns_close(rvi_conns *all)
{
    while (all->first) drop(all->first);
}
