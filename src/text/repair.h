/* repair.h - JSON that a model wrote without being held to it, mended as it comes.
 *
 * What is right already comes out as it is. Mended are: text and fences around it, comments,
 * trailing and missing commas, single and curly quotes, names and words without quotes, Python's
 * words, bad escapes, raw control characters, wrong closing brackets, and an end that was cut
 * off. */
#ifndef RVI_TEXT_REPAIR_H
#define RVI_TEXT_REPAIR_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "base/mem.h"

/* What was changed, and where in the text that came. what: static. */
typedef void (*rvi_repair_note)(void *ctx, const char *what, size_t offset);

typedef struct rvi_mender rvi_mender;
rv_status rvi_mender_new(rvi_mender **out, rvi_repair_note note, void *ctx,
                         rv_error *err) RVI_MUST_CHECK;
void rvi_mender_free(rvi_mender *m); /* accepts NULL */
/* Appends what became certain to out. RV_E_CONFIG: it is nested too deeply. */
rv_status rvi_mender_push(rvi_mender *m, const char *text, size_t len, rvi_buf *out,
                          rv_error *err) RVI_MUST_CHECK;
/* The text has ended. RV_E_CONFIG: there was no JSON in it. */
rv_status rvi_mender_end(rvi_mender *m, rvi_buf *out, rv_error *err) RVI_MUST_CHECK;

/* All at once; note may be NULL. */
rv_status rvi_json_repair(const char *text, size_t len, rvi_buf *out, rvi_repair_note note,
                          void *ctx, rv_error *err) RVI_MUST_CHECK;

#endif
