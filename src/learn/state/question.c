#include "learn/state/question.h"

#include <string.h>

#include "learn/words.h"

static uint64_t add(uint64_t key, unsigned char c)
{
    return (key ^ c) * 0x100000001b3u; /* FNV-1a */
}

rvi_question_key rvi_question_key_of(const char *text)
{
    rvi_question_key key = {0xcbf29ce484222325u, 0xcbf29ce484222325u};
    bool ascii = true;
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        ascii = ascii && c < 0x80;
        if (c >= '0' && c <= '9') key.digits = add(key.digits, c);
        if ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') key.letters = add(key.letters, c | 0x20);
    }
    if (!ascii) key.letters = 0; /* other characters may become ASCII letters, or take them along */
    return key;
}

bool rvi_question_may_be(const rvi_question_key *a, const rvi_question_key *b)
{
    return a->digits == b->digits && (a->letters == b->letters || !a->letters || !b->letters);
}

bool rvi_question_same(const char *a, const char *b)
{
    bool same = false;
    return !rvi_words_same(&same, a, strlen(a), b, strlen(b), NULL) && same;
}
