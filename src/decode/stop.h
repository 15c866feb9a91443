/* stop.h - finds stop strings in a stream of text, also across token boundaries.
 *
 * Text that could still turn out to be the beginning of a stop string is held back. */
#ifndef RVI_DECODE_STOP_H
#define RVI_DECODE_STOP_H

#include <stdbool.h>

#include "base/mem.h"

typedef struct rvi_stop {
    const char *const *strings; /* borrowed */
    size_t n_strings;
    rvi_buf held;
    bool hit;
    size_t which; /* of strings was hit */
} rvi_stop;

void rvi_stop_init(rvi_stop *s, const char *const *strings, size_t n_strings);
void rvi_stop_deinit(rvi_stop *s);

/* Takes more text and appends to out what is certain to come before any stop string. Sets hit when
 * one is complete: the text before it has been appended, the rest is dropped. False: out of
 * memory. */
bool rvi_stop_push(rvi_stop *s, const char *text, size_t len, rvi_buf *out);
/* At the end of the text: appends what was held back, up to a complete stop string in it. */
bool rvi_stop_flush(rvi_stop *s, rvi_buf *out);

#endif
