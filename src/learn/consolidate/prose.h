/* prose.h - passages of old books, in the public domain everywhere, that measure how far an adapter
 * moved the model on text nobody here wrote. */
#ifndef RVI_LEARN_CONSOLIDATE_PROSE_H
#define RVI_LEARN_CONSOLIDATE_PROSE_H

#include <stddef.h>

extern const char *const rvi_prose[];
extern const size_t rvi_n_prose;

#endif
