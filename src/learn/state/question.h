/* question.h - when two questions are the same one. */
#ifndef RVI_LEARN_STATE_QUESTION_H
#define RVI_LEARN_STATE_QUESTION_H

#include <stdbool.h>

/* But for case, white space and the marks of sentences. */
bool rvi_question_same(const char *a, const char *b);

#endif
