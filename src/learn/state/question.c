#include "learn/state/question.h"

#include <string.h>

#include "learn/words.h"

bool rvi_question_same(const char *a, const char *b)
{
    bool same = false;
    return !rvi_words_same(&same, a, strlen(a), b, strlen(b), NULL) && same;
}
