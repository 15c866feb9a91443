/* texts.h - the texts that teach lessons, and those that fence them in, from several sources.
 *
 * A source writes about every lesson of a group and knows nothing of the others:
 *
 *   conversation  the question as it was asked, and the answer, word for word; always taken
 *   frames        other forms of the question, in any language (text/frames.h)
 *   own           wordings that the model writes itself; the judge keeps those that ask for the
 *                 lesson, and those that clearly do not become its fence
 *   parts         the question with words left out, as far as the judge still knows it
 *
 * Fence texts are questions whose answers must stay the model's own. The same seed gives the same
 * texts. */
#ifndef RVI_LEARN_CONSOLIDATE_TEXTS_H
#define RVI_LEARN_CONSOLIDATE_TEXTS_H

#include "base/rng.h"
#include "learn/consolidate/replay.h"
#include "learn/recognise/recogniser.h"

enum { RVI_TEXTS_FRAMES = 1, RVI_TEXTS_OWN = 2, RVI_TEXTS_PARTS = 4, RVI_TEXTS_ALL = 7 };

/* A lesson as it was given; all borrowed. */
typedef struct rvi_lesson_text {
    const char *question, *answer;
    const char *rejected; /* of a pair: the other answer; of a correction NULL */
} rvi_lesson_text;

/* Questions, each once; the list owns them. {0} is empty. */
typedef struct rvi_questions {
    const char **data;
    size_t n, cap;
    rvi_arena texts;
} rvi_questions;

/* Appends a copy, unless the very same is there. */
rv_status rvi_questions_add(rvi_questions *q, const char *text, rv_error *err) RVI_MUST_CHECK;
void rvi_questions_deinit(rvi_questions *q);

/* What sources write with and about; all borrowed. */
typedef struct rvi_text_writer {
    const rvi_base_model *v;
    const rvi_replay *replay;
    rvi_recogniser *judge; /* knows lesson i of the group as first + i; NULL: nothing is sorted */
    uint64_t first;
    const rvi_lesson_text *group; /* the lessons, n of them */
    size_t n;
    bool no_same; /* questions about a lesson's own subject are left out of its fence */
    rvi_rng rng;
    rvi_progress_fn progress; /* may be NULL */
    void *ctx;
} rvi_text_writer;

typedef struct rvi_texts { /* of one lesson; {0} is empty */
    rvi_questions teach;   /* what its answer is taught to */
    rvi_questions fence;
} rvi_texts;

/* All of the sources among `which`, in the table's order. out: n of them, empty; to be freed by
 * rvi_texts_deinit also after a failure. */
rv_status rvi_texts_write(rvi_text_writer *w, unsigned which, rvi_texts *out,
                          rv_error *err) RVI_MUST_CHECK;
void rvi_texts_deinit(rvi_texts *t, size_t n);

size_t rvi_rng_below(rvi_rng *r, size_t n); /* 0 .. n-1; n > 0 */

#endif
