/* words.h - whether two texts are the same but for how they are written, and whether one contains
 * an answer. */
#ifndef RVI_LEARN_CONSOLIDATE_WORDS_H
#define RVI_LEARN_CONSOLIDATE_WORDS_H

#include "base/error.h"
#include "base/mem.h"

/* Is it the same text but for case, white space and the marks that end or quote a sentence? Signs
 * that mean something count: "7 + 2", "C#". */
rv_status rvi_words_same(bool *out, const char *a, size_t a_len, const char *b, size_t b_len,
                         rv_error *err) RVI_MUST_CHECK;
/* Of texts that are the same in this sense keys are the same; those of others hardly ever. */
rv_status rvi_words_key(uint64_t *out, const char *text, size_t len, rv_error *err) RVI_MUST_CHECK;
/* Does the text contain the answer, word for word? Case and punctuation do not count. An answer
 * without any word is in no text. */
rv_status rvi_words_contain(bool *out, const char *text, size_t text_len, const char *answer,
                            size_t answer_len, rv_error *err) RVI_MUST_CHECK;

#endif
