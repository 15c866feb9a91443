/* fact_internal.h - between the three files that read a correction. */
#ifndef RVI_LEARN_CONSOLIDATE_FACT_INTERNAL_H
#define RVI_LEARN_CONSOLIDATE_FACT_INTERNAL_H

#include "learn/consolidate/english.h"
#include "learn/consolidate/fact.h"

typedef struct rvi_question { /* a question in words, and where its subject is */
    const char *text;
    rvi_words words;
    size_t begin, end;    /* the words of the sentence that asks, without "please tell me" */
    size_t first, behind; /* the subject's words; equal: there is none */
    bool strong;          /* the subject is a name or as rare as one */
} rvi_question;

/* What the shape of a question gives. relation empty: not a noun phrase. before and after stand
 * around the answer in a sentence; both empty: none could be made. */
typedef struct rvi_shape {
    rvi_buf relation, before, after, ask;
} rvi_shape;

/* answer: O, because "where" wants a preposition that O may already have. Where the shape gives a
 * noun, O loses what does not go with it ("in Oslo", "12 years old"). */
rv_status rvi_fact_shape(rvi_shape *out, const rvi_question *q, rvi_buf *answer,
                         rv_error *err) RVI_MUST_CHECK;
void rvi_shape_deinit(rvi_shape *s);

/* The part of an answer that is new, and the answer as a sentence about the subject if it is one
 * (otherwise *sentence stays empty). *o empty: nothing that a fact could be made of. */
rv_status rvi_fact_answer(const rvi_question *q, const char *answer, rvi_buf *o, rvi_buf *sentence,
                          rv_error *err) RVI_MUST_CHECK;

/* The words' bytes of the text, a possessive at the end left out. */
bool rvi_question_slice(rvi_buf *out, const char *text, const rvi_word *words, size_t from,
                        size_t to);
bool rvi_question_ends_sentence(const char *text, const rvi_word *w, const rvi_word *next);

#endif
