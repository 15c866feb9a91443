/* text.h - what feedback texts are checked and compared by. */
#ifndef RVI_LEARN_TEXT_H
#define RVI_LEARN_TEXT_H

#include "learn/store.h"

rvi_text rvi_text_of(const char *s); /* borrowed; of NULL: none */
bool rvi_text_is(rvi_text t, const char *s);

/* Where it stops being UTF-8; t.len: nowhere. */
size_t rvi_text_invalid(rvi_text t);
bool rvi_text_blank(rvi_text t); /* nothing but white space */

/* Appends it in lower case, without white space at the ends and with one space for any run of it;
 * also without full stops, exclamation and question marks at the end. Texts that fold to the same
 * bytes are the same text to the bank. */
bool rvi_text_fold(rvi_buf *out, rvi_text t); /* false: out of memory */

/* *yes: `part`, folded, occurs in `whole`, folded, with no letter or digit right before or behind
 * it. An empty part occurs nowhere. */
rv_status rvi_text_has_words(bool *yes, rvi_text whole, rvi_text part,
                             rv_error *err) RVI_MUST_CHECK;

#endif
