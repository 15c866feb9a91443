/* tls.h - encrypted connections, by OpenSSL through libevent. */
#ifndef RVI_SERVER_TLS_H
#define RVI_SERVER_TLS_H

#include <event2/bufferevent.h>

#include "base/error.h"

typedef struct rvi_tls rvi_tls;

/* From a chain of certificates and its key, both PEM files. */
rv_status rvi_tls_new(rvi_tls **out, const char *cert, const char *key,
                      rv_error *err) RVI_MUST_CHECK;
void rvi_tls_free(rvi_tls **t); /* connections that use it keep what they need */
/* An accepted socket as an encrypted stream; NULL: no memory. Closes fd when it is freed. */
struct bufferevent *rvi_tls_accept(rvi_tls *t, struct event_base *base, evutil_socket_t fd);

#endif
