#include "learn/state/question.h"

#include <string.h>

#include "learn/consolidate/words.h"

uint64_t rvi_question_key(const char *text)
{
    uint64_t key;
    if (rvi_words_key(&key, text, strlen(text), NULL)) return 0;
    return key ? key : 1;
}

bool rvi_question_may_be(uint64_t a, uint64_t b)
{
    return a == b || !a || !b;
}

bool rvi_question_same(const char *a, const char *b)
{
    bool same = false;
    return !rvi_words_same(&same, a, strlen(a), b, strlen(b), NULL) && same;
}
