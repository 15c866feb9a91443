/* follow.h - requests that only the turns before them explain ("And its capital?").
 *
 * Whether a request is one, its words tell: by a logistic regression that tools/train_follow.py
 * made of such requests in ten languages (bench/natural/README.md has the figures). Pure functions:
 * any number of threads. */
#ifndef RVI_LEARN_RECOGNISE_FOLLOW_H
#define RVI_LEARN_RECOGNISE_FOLLOW_H

#include "base/error.h"
#include "base/mem.h"

enum { RVI_FOLLOW_WORDS = 16384, RVI_FOLLOW_FIRST = 256 };

typedef struct rvi_follow_weights {
    float scale;              /* of the words' weights */
    float length, name, bias; /* of 12 words, of a name or a number, of any text */
    float sure;               /* the probability from which on a request is one */
    /* Of words and pairs of neighbours, by hash; then of a text's first word. */
    int8_t word[RVI_FOLLOW_WORDS + RVI_FOLLOW_FIRST];
} rvi_follow_weights;

extern const rvi_follow_weights rvi_follow;

/* That the request is one, as any without a word is; and whether it surely is. */
rv_status rvi_follow_probability(const char *request, float *out, rv_error *err) RVI_MUST_CHECK;
rv_status rvi_follow_is_one(const char *request, bool *out, rv_error *err) RVI_MUST_CHECK;

/* Appends such a request behind the words that tell what it is about ("Australia. And its
 * capital?"), out of the nearest of the turns before it (the newest last) that has some. Nothing is
 * appended where it is none, or where they tell nothing. */
rv_status rvi_follow_resolve(const char *const *turns, size_t n, const char *request, rvi_buf *out,
                             rv_error *err) RVI_MUST_CHECK;

#endif
