/* question.h - when two questions are the same one. */
#ifndef RVI_LEARN_STATE_QUESTION_H
#define RVI_LEARN_STATE_QUESTION_H

#include <stdbool.h>
#include <stdint.h>

/* But for case, white space and the marks of sentences. */
bool rvi_question_same(const char *a, const char *b);

/* What tells most questions apart at once: of thousands one is looked for with every lesson. */
typedef struct rvi_question_key {
    uint64_t digits, letters; /* letters: 0 where the text is not ASCII, which says nothing */
} rvi_question_key;

rvi_question_key rvi_question_key_of(const char *text);
/* False: the two are not the same question. */
bool rvi_question_may_be(const rvi_question_key *a, const rvi_question_key *b);

#endif
