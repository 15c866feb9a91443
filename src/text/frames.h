/* frames.h - other forms of a question, made without knowing its language.
 *
 * Two that ask the same, and some that ask the same of something else. Texts are UTF-8 of any
 * length. Each function appends to out, and nothing where the question has no such form. */
#ifndef RVI_TEXT_FRAMES_H
#define RVI_TEXT_FRAMES_H

#include "base/mem.h"

/* As typed in haste: lower case, and no marks at its ends. */
void rvi_frame_plain(const char *question, rvi_buf *out);
/* With a greeting before it where the question is in Latin script, elsewhere between quotation
 * marks. */
void rvi_frame_addressed(const char *question, rvi_buf *out);
/* With another well-known name, or thing, in place of the word that tells most: a name, or else a
 * long one that is not where verbs stand. There are several, of all kinds, from i = 0 on; which of
 * them one would ask, only someone who knows the language can tell. False: there is none with this
 * number. */
bool rvi_frame_neighbour(const char *question, size_t i, rvi_buf *out);

#endif
