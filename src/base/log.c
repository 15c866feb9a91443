#include "base/log.h"

#include <stdarg.h>

#include "base/number.h"

void rvi_log_write(const rvi_log *log, rvi_log_level level, const char *fmt, ...)
{
    if (!log || !log->sink || level > log->level) return;
    char line[1024];
    va_list args;
    va_start(args, fmt);
    (void)rvi_vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    log->sink(log->ctx, level, line);
}
