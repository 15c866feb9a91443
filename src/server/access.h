/* access.h - who is let in: by the Host header, by the page that asks, by the key. */
#ifndef RVI_SERVER_ACCESS_H
#define RVI_SERVER_ACCESS_H

#include "server/dialect.h"
#include "server/keys.h"

typedef struct rvi_access {
    rvi_keys keys;       /* none: everybody may do everything */
    const char *host;    /* that was listened on by name; NULL: none */
    bool any_host;       /* no look at the Host header: keys or a unix socket keep strangers out */
    const char *origins; /* of pages that may ask, with commas between them, or "*"; NULL: none but
                            the server's own */
} rvi_access;

/* False: p says why not. needs: RVI_MAY_..., 0: what everybody may see. Sets c->key, and the
 * headers that the page's browser wants. */
bool rvi_access_check(rvi_access *a, rvi_conn *c, unsigned needs, rvi_problem *p);
/* A browser asks whether a page may ask: true, and it has its answer. */
bool rvi_access_preflight(const rvi_access *a, rvi_conn *c);

#endif
