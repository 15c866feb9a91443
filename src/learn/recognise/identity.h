/* identity.h - questions who the assistant is.
 *
 * "Who are you?" and "What is your name?" ask for the same of whoever has nothing but a name, and
 * have hardly a word in common: judge and encoder find them as far apart as "Who made you?". They
 * are what people teach first, and few: a table has them. */
#ifndef RVI_LEARN_RECOGNISE_IDENTITY_H
#define RVI_LEARN_RECOGNISE_IDENTITY_H

#include "base/error.h"

/* *out names the language in which this text, whatever its case, its punctuation, a "please" in it
 * and how its marks are encoded, is such a question; 0: it is none. Texts are a stranger's: any
 * bytes. */
rv_status rvi_identity_asked(const char *text, size_t len, int *out, rv_error *err) RVI_MUST_CHECK;

#endif
