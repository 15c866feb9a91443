/* log.h - log messages go to the sink that the owner of the runtime provides; without one they are
 * dropped. */
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
    rvi_log_level level; /* messages above this level are dropped */
} rvi_log;

void rvi_log_write(const rvi_log *log, rvi_log_level level, const char *fmt, ...)
    RVI_PRINTF(3, 4); /* log may be NULL */

#endif
