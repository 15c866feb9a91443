/* log.h - where the library's words go: a sink of the runtime's owner, silent without one. */
#ifndef RVI_BASE_LOG_H
#define RVI_BASE_LOG_H

#include "base/compat.h"

typedef enum rvi_log_level {
    RVI_LOG_ERROR,
    RVI_LOG_WARN,
    RVI_LOG_INFO,
    RVI_LOG_DEBUG
} rvi_log_level;

typedef struct rvi_log {
    void (*sink)(void *ctx, rvi_log_level level, const char *line); /* NULL: silent */
    void *ctx;
    rvi_log_level level; /* the most talkative one that passes */
} rvi_log;

void rvi_log_write(const rvi_log *log, rvi_log_level level, const char *fmt, ...)
    RVI_PRINTF(3, 4); /* log may be NULL */

#endif
