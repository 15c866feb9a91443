/* pq.h - the functions of libpq that are used, found when the first database is opened: libpq needs
 * some twenty libraries, which every start of the program would load. */
#ifndef RVI_STORE_PQ_H
#define RVI_STORE_PQ_H

#include <libpq-fe.h>

#include "base/error.h"

#define RVI_PQ_FUNCTIONS                                                                           \
    X(backendPID)                                                                                  \
    X(clear)                                                                                       \
    X(cmdStatus)                                                                                   \
    X(connectdbParams)                                                                             \
    X(conninfoFree)                                                                                \
    X(conninfoParse)                                                                               \
    X(consumeInput)                                                                                \
    X(db)                                                                                          \
    X(errorMessage)                                                                                \
    X(exec)                                                                                        \
    X(execPrepared)                                                                                \
    X(finish)                                                                                      \
    X(freemem)                                                                                     \
    X(getlength)                                                                                   \
    X(getvalue)                                                                                    \
    X(host)                                                                                        \
    X(notifies)                                                                                    \
    X(ntuples)                                                                                     \
    X(prepare)                                                                                     \
    X(resultErrorField)                                                                            \
    X(resultErrorMessage)                                                                          \
    X(resultStatus)                                                                                \
    X(setNoticeProcessor)                                                                          \
    X(status)

typedef struct rvi_pq_functions {
#define X(name) __typeof__(PQ##name) *name;
    RVI_PQ_FUNCTIONS
#undef X
} rvi_pq_functions;

extern rvi_pq_functions rvi_pq;

/* Call before the first use of rvi_pq; any thread may. The library stays loaded. */
rv_status rvi_pq_load(rv_error *err) RVI_MUST_CHECK;

#endif
