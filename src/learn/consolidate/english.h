/* english.h - the little grammar that turns a question and its answer into a sentence: classes of
 * words and forms of verbs. Words are folded (words.h). */
#ifndef RVI_LEARN_CONSOLIDATE_ENGLISH_H
#define RVI_LEARN_CONSOLIDATE_ENGLISH_H

#include <stdbool.h>

#include "base/mem.h"

typedef enum rvi_english_class {
    RVI_EN_WH,       /* what, who, where ... */
    RVI_EN_BE,       /* is, are, was, were */
    RVI_EN_DO,       /* do, does, did */
    RVI_EN_MODAL,    /* can, will ..., has, have, had */
    RVI_EN_ARTICLE,  /* the, a, an */
    RVI_EN_OWNER,    /* my, your, his ... */
    RVI_EN_PLACE,    /* prepositions and adverbs that an answer to "where" may begin with */
    RVI_EN_PREP,     /* prepositions */
    RVI_EN_PRONOUN,  /* he, she, it, they: may stand for the subject of a question */
    RVI_EN_THIRD,    /* third person in any case, for references to earlier turns */
    RVI_EN_FUNCTION, /* any of the above and other words without a meaning of their own */
} rvi_english_class;

bool rvi_english_is(const char *word, rvi_english_class c);
/* Is the word in a list such as " one two three "? */
bool rvi_english_among(const char *word, const char *list);

bool rvi_english_third(rvi_buf *out, const char *verb); /* live -> lives; false: out of memory */
bool rvi_english_past(rvi_buf *out, const char *verb);  /* grow -> grew */
/* Could this be a participle ("collected", "built")? */
bool rvi_english_participle(const char *word);
/* May it stand between a thing and what is said of it ("first" published)? */
bool rvi_english_adverb(const char *word);
/* Is this the base of a verb that often ends a question ("open", "cost", "begin")? */
bool rvi_english_verb(const char *word);
/* Could both be forms of one word (live, lives, living, lived; grow, grew; pet, pets)? */
bool rvi_english_same(const char *a, const char *b);

#endif
