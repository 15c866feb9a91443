/* words.h - the words of a text as the learning loops see them: folded to lower case, a possessive
 * left out, apostrophes inside kept ("don't"), digits kept. How rare a word is, by the model's own
 * tokenizer; and whether a text contains an answer. */
#ifndef RVI_LEARN_CONSOLIDATE_WORDS_H
#define RVI_LEARN_CONSOLIDATE_WORDS_H

#include "tokenizer/tokenizer.h"

enum { RVI_WORD_MAX = 64 }; /* bytes of a folded word; a longer one is cut */

typedef struct rvi_word {
    size_t at, len;  /* in the text, without the possessive */
    size_t end;      /* behind the possessive */
    const char *key; /* folded and terminated; belongs to the list */
    bool possessive; /* "Anna's", "the Smiths'"; not before a capital */
    bool may_own;    /* "Anna's Volvo", "Fisher's Loft": a possessive or a part of a name */
    bool capital;    /* begins with an upper case letter, or goes on with one: "d'Arcy" */
    bool joined;     /* only white space, a hyphen or "&" stands between the word before and this */
    bool hyphen;     /* only a hyphen does */
} rvi_word;

typedef struct rvi_words { /* {0} is empty */
    rvi_word *data;
    size_t n, cap;
    rvi_arena keys;
} rvi_words;

/* Appends the words of a text (any bytes), at most RVI_WORDS_MAX in all: what comes later is not
 * read. Offsets are those of this text. */
enum { RVI_WORDS_MAX = 65536 };
rv_status rvi_words_split(rvi_words *out, const char *text, size_t len,
                          rv_error *err) RVI_MUST_CHECK;
void rvi_words_deinit(rvi_words *w);

/* How rare a word (folded) is. Merges were learned in order of frequency, so ln(id + 1) ranks a
 * word of one piece, and a word of several pieces is rarer than each of them: the sum over the
 * pieces of the word behind a space, in lower case or capitalised, whichever is less. */
rv_status rvi_words_rarity(const rvi_tokenizer *t, const char *word, size_t len, double *out,
                           rv_error *err) RVI_MUST_CHECK;
/* The same sum for the word as it is written. */
rv_status rvi_words_weigh(const rvi_tokenizer *t, const char *word, size_t len, double *out,
                          rv_error *err) RVI_MUST_CHECK;
/* Words above are names and other rare things; ordinary nouns stay below. */
#define RVI_WORDS_RARE 13.0

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
