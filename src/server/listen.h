/* listen.h - where connections come from: an address and port, or a unix socket. */
#ifndef RVI_SERVER_LISTEN_H
#define RVI_SERVER_LISTEN_H

#include <event2/listener.h>

#include "base/error.h"
#include "base/mem.h"

typedef struct rvi_listener {
    struct evconnlistener *l;
    rvi_buf where;   /* "http://127.0.0.1:8080", for people */
    bool is_private; /* only this machine can reach it */
} rvi_listener;

/* accept: called for each connection. port 0: any. */
rv_status rvi_listen_tcp(rvi_listener *out, struct event_base *base, const char *host, int port,
                         evconnlistener_cb accept, void *ctx, rv_error *err) RVI_MUST_CHECK;
rv_status rvi_listen_unix(rvi_listener *out, struct event_base *base, const char *path,
                          evconnlistener_cb accept, void *ctx, rv_error *err) RVI_MUST_CHECK;
/* A socket that listens already, from who started the process. */
rv_status rvi_listen_inherited(rvi_listener *out, struct event_base *base, evutil_socket_t fd,
                               evconnlistener_cb accept, void *ctx, rv_error *err) RVI_MUST_CHECK;
void rvi_listen_close(rvi_listener *l);
/* What is written is sent at once: tokens are small, and somebody waits for each. */
void rvi_listen_no_delay(evutil_socket_t fd);

#endif
