/* text.h - what feedback texts are checked by. */
#ifndef RVI_LEARN_TEXT_H
#define RVI_LEARN_TEXT_H

#include "learn/journal/store.h"

rvi_text rvi_text_of(const char *s); /* borrowed; of NULL: none */
bool rvi_text_is(rvi_text t, const char *s);
rvi_text rvi_text_trim(rvi_text t); /* without the white space around it */
char *rvi_text_copy(rvi_text t);    /* terminated; NULL: there is no memory */

/* Where it stops being UTF-8; t.len: nowhere. */
size_t rvi_text_invalid(rvi_text t);
bool rvi_text_blank(rvi_text t); /* nothing but white space */

#endif
