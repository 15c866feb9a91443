/* conn.h - connections: bytes in, requests out to a handler, responses in, bytes out.
 *
 * A connection answers one request after the other, in the order in which they came; what a client
 * sends meanwhile waits, up to a limit. Reading is never turned off below that limit, so that a
 * client who leaves is noticed while its answer is made. All functions belong to the thread of the
 * event loop. */
#ifndef RVI_SERVER_CONN_H
#define RVI_SERVER_CONN_H

#include <event2/bufferevent.h>
#include <event2/event.h>

#include "server/http.h"
#include "server/tls.h"
#include "server/witness.h"

typedef struct rvi_conn rvi_conn;

/* All connections of a server. */
typedef struct rvi_conns {
    struct event_base *base;
    rvi_http_limits limits;
    rvi_tls *tls;                           /* NULL: connections are plain */
    rvi_witness *witness;                   /* that sees all requests; NULL: none */
    int most;                               /* connections; one more is turned away */
    void (*handle)(void *ctx, rvi_conn *c); /* a whole request, or a bad one: c->in.state */
    void *ctx;
    /* --- */
    rvi_conn *first;
    int n;
    uint64_t n_accepted, n_requests;
    bool draining; /* every response is the last one of its connection */
} rvi_conns;

typedef enum rvi_conn_phase {
    RVI_CONN_READING,
    RVI_CONN_ANSWERING, /* the handler has the request */
    RVI_CONN_STREAMING, /* the head of the response is out, and the body comes in pieces */
    RVI_CONN_CLOSING    /* what is to be sent is sent, and that is all */
} rvi_conn_phase;

struct rvi_conn {
    rvi_conns *all;
    rvi_conn *next, *prev;
    struct bufferevent *bev;
    rvi_http in;
    rvi_conn_phase phase;
    bool in_advance, told_to_continue, is_events, lingers;
    double since;   /* when the phase or the request began, or something was last sent */
    char id[33];    /* of the request; x-request-id */
    rvi_seen *seen; /* of the response, for the witness; NULL: it does not look */
    /* Whose request it is; valid until the handler returns. */
    const struct rvi_key *key;
    rvi_buf headers; /* of the response, beside the usual ones: "name: value\r\n"... */
    /* Called once when the client leaves before the response has ended. */
    void (*gone)(void *ctx);
    void *gone_ctx;
};

/* Takes an accepted socket. */
void rvi_conn_accept(rvi_conns *all, evutil_socket_t fd);
/* From time to time: ends what hangs or is idle too long, keeps streams of events alive. */
void rvi_conns_tick(rvi_conns *all);
/* No further requests; connections without one are closed. */
void rvi_conns_drain(rvi_conns *all);
void rvi_conns_close(rvi_conns *all); /* all, at once */

/* The whole response to the request at hand. */
void rvi_conn_reply(rvi_conn *c, int status, const char *type, const char *body, size_t len);
/* Or the response in pieces; is_events: server-sent events, in which comments keep it alive. */
void rvi_conn_stream(rvi_conn *c, const char *type, bool is_events);
void rvi_conn_send(rvi_conn *c, const char *bytes, size_t len);
void rvi_conn_end(rvi_conn *c);

#endif
