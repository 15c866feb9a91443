/* rest.h - what two long texts do not share.
 *
 * Who asks something else about the same matter tells the same first, often in the same words. Then
 * most of a long request is like the lesson's question, whatever it asks. So what is left of both
 * without the sentences that stand in both is judged by itself. */
#ifndef RVI_LEARN_RECOGNISE_REST_H
#define RVI_LEARN_RECOGNISE_REST_H

#include "base/utf8.h"
#include "learn/recognise/reading.h"

/* The probability that one text asks for what the other does, each by itself; out stays as it is if
 * one of them has no words, or is too long to be read. answer: of the lesson. embedder NULL: there
 * is none. */
rv_status rvi_rest_compare(rvi_embedder *embedder, rvi_text question, const rvi_reading *answer,
                           rvi_text request, float *out, rv_error *err) RVI_MUST_CHECK;

/* The same of what is left of a request and of a question; out stays as it is, too, if they share
 * no sentence, or one has nothing else. */
rv_status rvi_rest_judge(rvi_embedder *embedder, const char *question, const rvi_reading *answer,
                         const char *request, size_t len, float *out, rv_error *err) RVI_MUST_CHECK;

#endif
