/* texts.h - the texts that teach lessons, and those that fence them in, from several sources.
 *
 * A source writes about every lesson of a group and knows nothing of the others:
 *
 *   conversation  the question as it was asked, and the answer; always taken
 *   frames        other forms of the question, in any language (text/frames.h)
 *   own           wordings that the model writes itself; the judge keeps those that ask for the
 *                 lesson, and those that clearly do not become its fence
 *   rules         wordings by English grammar, where that can read the lesson (wordings.h)
 *
 * Fence texts are questions whose answers must stay the model's own. The same seed gives the same
 * texts. */
#ifndef RVI_LEARN_CONSOLIDATE_TEXTS_H
#define RVI_LEARN_CONSOLIDATE_TEXTS_H

#include "learn/consolidate/replay.h"
#include "learn/consolidate/wordings.h"
#include "learn/recognise/recogniser.h"

enum { RVI_TEXTS_FRAMES = 1, RVI_TEXTS_OWN = 2, RVI_TEXTS_RULES = 4, RVI_TEXTS_ALL = 7 };

/* What sources write with and about; all borrowed. */
typedef struct rvi_text_writer {
    const rvi_base_model *v;
    const rvi_replay *replay;
    rvi_recogniser *judge; /* knows lesson i of the group as i + 1; NULL: nothing of its own */
    const rvi_fact *const *group; /* the lessons, n of them */
    size_t n;
    const rvi_fact *const *store; /* all that stand */
    size_t n_store;
    size_t n_rules; /* texts of a lesson by rules, at most */
    bool no_same;   /* questions about a lesson's own subject are left out of its fence */
    rvi_rng rng;
    rvi_progress_fn progress; /* may be NULL */
    void *ctx;
} rvi_text_writer;

typedef struct rvi_texts { /* of one lesson; {0} is empty */
    rvi_wordings teach;
    rvi_wordings fence; /* questions; no replies */
} rvi_texts;

typedef struct rvi_text_source {
    const char *name;
    unsigned which; /* RVI_TEXTS_*; 0: always taken */
    /* Appends to the n texts of the group. */
    rv_status (*write)(rvi_text_writer *w, rvi_texts *out, rv_error *err);
} rvi_text_source;

/* All of the sources among `which`, in the table's order. out: n of them, empty; to be freed by
 * rvi_texts_deinit also after a failure. */
rv_status rvi_texts_write(rvi_text_writer *w, unsigned which, rvi_texts *out,
                          rv_error *err) RVI_MUST_CHECK;
void rvi_texts_deinit(rvi_texts *t, size_t n);

#endif
