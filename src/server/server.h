/* server.h - models behind HTTP: listens, opens the first, serves until a signal ends it. */
#ifndef RVI_SERVER_SERVER_H
#define RVI_SERVER_SERVER_H

#include "server/options.h"

/* Serves until SIGTERM or SIGINT, and then until the last answer has ended; a second signal ends
 * the process. Says on standard error where it listens. */
rv_status rvi_server_run(const rvi_server_options *o, rv_error *err);

#endif
