/* reading.h - a text as the judge of requests sees it: its words, and of each how it is spelled,
 * how rare it is, and what it means in this text (where there is an embedder).
 *
 * A word is a run of letters, digits and marks, a run of hiragana or katakana, a single Han
 * character, or a single symbol; punctuation is no word. Texts are a stranger's: any bytes, any
 * length; of a long one the first tokens are read, and of their words the last count. A reading
 * never changes once made, and is one block of memory. */
#ifndef RVI_LEARN_RECOGNISE_READING_H
#define RVI_LEARN_RECOGNISE_READING_H

#include "learn/recognise/embedder.h"

enum {
    RVI_READING_WORDS = 28,
    RVI_LONG_WORDS = RVI_READING_WORDS,
    RVI_READING_CHARS = 2000, /* of a text that are looked at */
    RVI_SPELLING = 128,       /* hashed pairs and triples of characters */
};

#define RVI_LENT_RARITY 0.35f /* below, words stand in questions of any kind */

typedef struct rvi_read_word {
    uint64_t key;    /* of the word in lower case, without accents */
    float rarity;    /* 0 (in every question) to 1 (in none that was seen) */
    float length;    /* in characters; 12 and more are 1 */
    float pieces;    /* tokens of the embedder, 6 and more are 1: of strange words it needs many */
    bool digits;     /* it has some */
    bool east_asian; /* of a script that is written without spaces */
    /* what makes the vectors below length 1 */
    float spelling_scale, middle_scale, last_scale;
} rvi_read_word;

/* A text on the whole. */
typedef struct rvi_gist {
    float spelled[RVI_SPELLING];       /* of all words, the rare ones counting most; length 1 */
    float meaning[RVI_EMBEDDER_WIDTH]; /* length 1, or zero without an embedder */
} rvi_gist;

/* What the judge has learned of the script that most of a text's words are written in. */
typedef enum rvi_script {
    RVI_SCRIPT_LEARNED,
    RVI_SCRIPT_STRANGE, /* nothing: its words are told apart by how they are spelled */
    RVI_SCRIPT_RUNS,    /* nothing, and it sets no words apart */
} rvi_script;

typedef struct rvi_reading {
    int n; /* words; 0: none, and nothing can be said about the text */
    bool embedded;
    bool cut; /* the end of the text was not read */
    /* It has RVI_LONG_WORDS and more, as languages with spaces count them: of characters of scripts
     * without them several make a word. */
    bool is_long;
    rvi_script script;
    rvi_gist gist;
    rvi_read_word words[RVI_READING_WORDS];
    int n_ids; /* the last tokens of the text, for the embedder to compare with another */
    int32_t ids[RVI_EMBEDDER_COMPARED];
    /* a vector for each word, of numbers up to 127; the last two are zero without an embedder */
    bool brief; /* there are no such vectors */
    int8_t (*spelling)[RVI_SPELLING];
    int8_t (*middle)[RVI_EMBEDDER_WIDTH], (*last)[RVI_EMBEDDER_WIDTH];
} rvi_reading;

/* embedder NULL: there is none. brief: without a vector for each word, which answers need not
 * have. */
rv_status rvi_reading_new(rvi_reading **out, rvi_embedder *embedder, const char *text, size_t len,
                          bool brief, rv_error *err) RVI_MUST_CHECK;
void rvi_reading_free(rvi_reading *r);                    /* accepts NULL */
bool rvi_reading_has(const rvi_reading *r, uint64_t key); /* a word */

/* Appends the words of an earlier text that explain a request: those that it has not itself and,
 * if it asks for a lesson, that the lesson's question has; question NULL: the names, or where there
 * are none, all of them. The frequent ones are left out. */
rv_status rvi_reading_lend(const char *earlier, size_t len, const rvi_reading *question,
                           const rvi_reading *request, rvi_buf *out, rv_error *err) RVI_MUST_CHECK;

/* Appends the text as far as it is not made of words that the other reading has. */
rv_status rvi_reading_without(const char *text, size_t len, const rvi_reading *these, rvi_buf *out,
                              rv_error *err) RVI_MUST_CHECK;

/* Appends it as flat bytes of this machine's order. */
bool rvi_reading_save(const rvi_reading *r, rvi_buf *out);
/* And back. data may be anything: RV_E_STORAGE where it is no reading. */
rv_status rvi_reading_load(rvi_reading **out, const void *data, size_t len,
                           rv_error *err) RVI_MUST_CHECK;
/* Names what readings follow from, tables and embedder (NULL: none): others are not comparable. */
rv_status rvi_reading_version(rvi_embedder *embedder, uint64_t *out, rv_error *err) RVI_MUST_CHECK;
/* Whatever its bytes were: can it be computed with? */
bool rvi_gist_is_sound(const rvi_gist *g);

/* Products of 16-bit numbers are what compilers turn into vectors without being asked. n: a
 * constant. */
static inline float rvi_dot_16(const int16_t *a, const int16_t *b, int n)
{
    int32_t sum = 0;
    for (int i = 0; i < n; i++) sum += a[i] * b[i];
    return (float)sum;
}

#endif
