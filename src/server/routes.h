/* routes.h - which handler a request goes to, and who is let in. */
#ifndef RVI_SERVER_ROUTES_H
#define RVI_SERVER_ROUTES_H

#include "server/access.h"
#include "server/serving.h"

/* Answers the request of a connection, whole or bad. */
void rvi_routes_handle(rvi_server *v, rvi_access *access, rvi_conn *c);

#endif
