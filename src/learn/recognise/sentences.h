/* sentences.h - which part of a request asks. Texts are a stranger's: any bytes. */
#ifndef RVI_LEARN_RECOGNISE_SENTENCES_H
#define RVI_LEARN_RECOGNISE_SENTENCES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/mem.h"

/* The sentence that asks: the last with a question mark, else the last. Returns its length. */
size_t rvi_sentence_asking(const char *text, size_t len, const char **out);

/* Words that name nothing: no digits, and no capitals but, where it begins, at the beginning. */
bool rvi_sentence_names_nothing(const char *text, size_t len, bool begins);

/* Without a few words that a mark sets apart before the question or behind it: a greeting, thanks,
 * "please". most: bytes of them. Moves *text, and returns the new length. */
size_t rvi_sentence_trim(const char **text, size_t len, size_t most);

/* Appends the sentences of a text that the other has not, letter by letter. False: there is none
 * that both have. */
bool rvi_sentences_apart(const char *text, size_t len, const char *other, size_t n_other,
                         rvi_buf *out);

#endif
