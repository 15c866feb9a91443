/* question.h - when two questions are the same one. */
#ifndef RVI_LEARN_STATE_QUESTION_H
#define RVI_LEARN_STATE_QUESTION_H

#include <stdbool.h>
#include <stdint.h>

/* But for case, white space and the marks of sentences. */
bool rvi_question_same(const char *a, const char *b);

/* Tells questions apart at once, in any script: of thousands one is looked for with every lesson.
 * 0: there was no memory to make it, and it says nothing. */
uint64_t rvi_question_key(const char *text);
/* False: the two are not the same question. */
bool rvi_question_may_be(uint64_t a, uint64_t b);

#endif
