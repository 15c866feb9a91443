/* http.h - a strict reader of HTTP/1.1 requests, and the head of a response.
 *
 * The reader takes bytes as they come, in pieces of any size, and says when a whole request has
 * come. Whatever two readers could understand differently is refused: a lone CR or LF, white space
 * before a colon, folded lines, two lengths, a length beside a transfer coding, any coding but
 * chunked, NUL and other control characters. After an error nothing more is read: where the next
 * request would begin is unknown, and the connection has to be closed.
 *
 * Knows nothing of sockets. A request's texts lie in one buffer, valid until rvi_http_next. */
#ifndef RVI_SERVER_HTTP_H
#define RVI_SERVER_HTTP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/mem.h"

enum { RVI_HTTP_HEADERS = 100 };

typedef struct rvi_http_limits {
    size_t head; /* bytes of request line and headers; of the trailers too */
    size_t line; /* bytes of the request line */
    uint64_t body;
} rvi_http_limits;

typedef enum rvi_http_state {
    RVI_HTTP_HEAD, /* the request line or headers are expected */
    RVI_HTTP_BODY, /* the headers are there, the body is not */
    RVI_HTTP_WHOLE,
    RVI_HTTP_BAD /* status and why say what is wrong */
} rvi_http_state;

typedef struct rvi_http_header {
    uint32_t name, name_len, value, value_len; /* in head */
} rvi_http_header;

/* Only http.c looks at what is below the line. */
typedef struct rvi_http {
    rvi_http_limits limits;
    rvi_http_state state;
    int status;      /* of the answer to a bad request */
    const char *why; /* a sentence */
    /* from RVI_HTTP_BODY on */
    const char *method, *path, *query; /* terminated; query "" where there is none */
    const char *host;                  /* of the Host header or the target; "" in HTTP/1.0 */
    bool keep_alive;
    bool expects_continue; /* the client waits for "100 Continue" before it sends the body */
    rvi_http_header headers[RVI_HTTP_HEADERS];
    int n_headers;
    rvi_buf body; /* terminated; data may be NULL */
    /* ---- */
    rvi_buf head;
    int part; /* what the next byte belongs to */
    size_t line_at;
    size_t method_at, path_at, query_at, host_at; /* in head */
    uint64_t left;                                /* of the body or the chunk */
    bool after_cr, is_1_0, has_query, has_host, any;
} rvi_http;

rvi_http rvi_http_init(const rvi_http_limits *limits);
void rvi_http_deinit(rvi_http *h);

/* Reads until a request is whole, is bad, or the bytes are used up; returns how many were used. */
size_t rvi_http_feed(rvi_http *h, const char *bytes, size_t n);
/* A request has begun to come: silence now is a client that hangs, not one that is idle. */
bool rvi_http_begun(const rvi_http *h);
/* Forgets the request that was read; the next byte begins another. Memory of a large one is given
 * back. */
void rvi_http_next(rvi_http *h);

/* The value of a header, terminated; NULL: there is none. Of several the first. */
const char *rvi_http_header_get(const rvi_http *h, const char *name);
/* Takes the escapes (%2F) of a text apart, in its place; plus: '+' is a blank, as in queries. What
 * is no escape, or that of NUL, stays as it is. */
void rvi_http_unescape(char *text, bool plus);
bool rvi_http_same(const char *a, const char *b); /* but for the case of ASCII letters */

const char *rvi_http_reason(int status); /* "Not Found" */

#endif
