/* vectors.h - a request for the vectors of texts, whatever its dialect. */
#ifndef RVI_SERVER_VECTORS_H
#define RVI_SERVER_VECTORS_H

#include "server/call.h"

/* Submits a part for each text or list of ids in a member of the body. cut: a text that is too long
 * is cut; otherwise it is a problem. */
bool rvi_vectors_submit(rvi_call *k, const char *field, bool cut);
/* Numbers of a part's vector; where fewer were asked for, its values are the first of them, scaled
 * to length 1 again. */
size_t rvi_vectors_size(rvi_call *k, int part);

#endif
