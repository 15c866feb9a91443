/* judge.h - does a request ask for what a lesson answers?
 *
 * The words of the request and of the lesson's question are aligned by meaning and spelling. A
 * small network looks at how well each word is matched, how rare it is and what it was matched
 * with, pools that over the words of either text, and says how likely the two ask for the same.
 * tools/train_judge.py made its weights from pairs of questions in many languages and forms
 * (bench/natural/README.md); they are constants. There are two sets: with an embedder, and by
 * spelling alone. Pure functions: any number of threads. */
#ifndef RVI_LEARN_RECOGNISE_JUDGE_H
#define RVI_LEARN_RECOGNISE_JUDGE_H

#include "learn/recognise/reading.h"

/* The probability, 0 to 1. All three were read with the same embedder, or all without. */
float rvi_judge(const rvi_reading *question, const rvi_reading *answer, const rvi_reading *request);

/* The probability after the embedder has compared the texts too: odds is what it said
 * (rvi_embedder_compare), aligned what rvi_judge did. */
float rvi_judge_compared(float aligned, float odds);

/* From here on the taught answer is spoken. Chosen so that of questions made to be confused with a
 * lesson few are answered with it (bench/natural/README.md has the figures). */
float rvi_judge_sure(bool embedded);

#endif
