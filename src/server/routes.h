/* routes.h - which handler a request goes to, and who is let in. */
#ifndef RVI_SERVER_ROUTES_H
#define RVI_SERVER_ROUTES_H

#include "server/serving.h"

typedef struct rvi_access {
    const char *key;  /* that requests must carry; NULL: none */
    const char *host; /* that was listened on by name; NULL: none */
    bool any_host;    /* no look at the Host header: a key or a unix socket keeps strangers out */
} rvi_access;

/* Answers the request of a connection, whole or bad. */
void rvi_routes_handle(rvi_serving *s, const rvi_access *access, rvi_conn *c);

#endif
