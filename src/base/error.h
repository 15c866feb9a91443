/* error.h - filling an rv_error once, where the cause is known. */
#ifndef RVI_BASE_ERROR_H
#define RVI_BASE_ERROR_H

#include <stdarg.h>

#include "base/compat.h"
#include "ruvllm.h"

/* Writes code and text into err (may be NULL) and returns code, so that a failing function can
 * `return rvi_error(err, RV_E_MODEL, "tensor '%s' ...", name);`. Over-long text is cut at a whole
 * UTF-8 character; control characters become '?' so that a hostile file cannot drive a terminal. */
rv_status rvi_error(rv_error *err, rv_status code, const char *fmt, ...) RVI_PRINTF(3, 4);
rv_status rvi_errorv(rv_error *err, rv_status code, const char *fmt, va_list args) RVI_PRINTF(3, 0);

/* The usual answer to a NULL from an allocator. what names the thing: "token table". */
rv_status rvi_nomem(rv_error *err, const char *what);

#endif
