/* spans.h - parts of a text: which bytes of a rendered prompt come from users.
 *
 * A list is in order, and its spans neither overlap nor touch. The template room makes such lists,
 * the tokenizer room reads them. */
#ifndef RVI_TEXT_SPANS_H
#define RVI_TEXT_SPANS_H

#include <stdbool.h>
#include <stddef.h>

typedef struct rvi_text_span {
    size_t start, end; /* bytes; end is behind the last one */
} rvi_text_span;

typedef struct rvi_text_spans {
    rvi_text_span *data;
    size_t n, cap;
} rvi_text_spans;

void rvi_text_spans_deinit(rvi_text_spans *s);
/* start must not lie before the end of the last span; a span that begins exactly there extends it.
 * An empty span is ignored. False: out of memory. */
bool rvi_text_spans_add(rvi_text_spans *s, size_t start, size_t end);
/* Removes everything from `start` on. */
void rvi_text_spans_cut(rvi_text_spans *s, size_t start);
/* The first span that ends behind pos, or NULL. */
const rvi_text_span *rvi_text_spans_from(const rvi_text_spans *s, size_t pos);

#endif
